/* attention_tiles.cu: attention with dropout or first keys on tensor cores, for 16-bit operands.
 *
 * cuDNN's dropout draws another mask than the cpu, and our graphs for it have no first keys, so these kernels
 * compute what its kernels do, with the mask of spec/dropout.h, and without the tiles before a block's first key (or
 * behind the last query that sees it). A block of four warps has 64 queries (or 64 keys) and walks the other side in
 * tiles; each warp has 16 rows of them. Scores exist one tile at a time, in registers.
 *
 *   forward   s = scale q k^T; running maximum m and sum l per query; out = sum of p v / (l (1 - dropout))
 *   dK, dV    a block of keys, over the tiles of queries that see it: p and dp lie as (keys, queries)
 *   dQ        a block of queries, over its tiles of keys
 *
 * with p = exp(s - lse), dp = m g v^T, ds = p (dp - delta); m is 0 or 1/(1 - dropout). Sums are in f32; p and ds are
 * rounded to the operands' dtype for the products that sum over them, as cuDNN does. No atomics: the same bits each
 * time. What does not fit (attention_tiles_fit) is done by attention_own.cu.
 *
 * mma.m16n8k16 multiplies A (16,16) by B (16,8). With row = lane / 4 and pair = 2 (lane % 4), a lane holds of A the
 * elements (row, pair..), (row + 8, pair..), (row, pair + 8..), (row + 8, pair + 8..), two in each register; of B
 * (pair.., row), (pair + 8.., row); and of the result (row, pair), (row, pair + 1), (row + 8, pair), (row + 8, pair
 * + 1). Two neighbouring results, rounded, thus are an A. A B whose memory has its sums along rows is read as it is,
 * and by ldmatrix.trans where it has them along columns.
 */
#include "device/cuda/ops/attention.cuh"
#include "device/cuda/shared/common.cuh"

#include "spec/dropout.h"

enum { TILE = 64, TILE_WARPS = 4, TILE_THREADS = 32 * TILE_WARPS };
enum { PAD = 8 }; /* elements behind each row in shared memory, so that eight rows lie in different banks */
#define ALL_LANES 0xffffffffu

/* ---- One instruction each ----------------------------------------------------------------------------- */

template <class T> struct tensor_core;
template <> struct tensor_core<bf16> {
    static __device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};
template <> struct tensor_core<f16> {
    static __device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

/* B (16,8) from 16 rows of 8: lane i < 16 gives the address of row i. */
__device__ inline void matrix_turned(uint32_t (&b)[2], const uint16_t *row) {
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(address));
}

/* Two numbers, rounded, the first in the lower half. */
template <class T> __device__ inline uint32_t pair_of(float first, float second) {
    const T low = conversion<T>::from(first), high = conversion<T>::from(second);
    uint16_t bits[2];
    memcpy(&bits[0], &low, 2);
    memcpy(&bits[1], &high, 2);
    return (uint32_t)bits[1] << 16 | bits[0];
}

__device__ inline int lane_of() { return (int)threadIdx.x % 32; }
__device__ inline int lane_row() { return lane_of() / 4; }
__device__ inline int lane_pair() { return lane_of() % 4 * 2; }
__device__ inline int warp_rows() { return (int)threadIdx.x / 32 * 16; } /* the first of the warp's rows in a tile */

/* ---- Tiles and fragments ------------------------------------------------------------------------------ */

__device__ inline uint16_t *row_at(const attention_rows &rows, int64_t b, int64_t t, int64_t h) {
    return (uint16_t *)rows.data + b * rows.stride_b + t * rows.stride_t + h * rows.stride_h;
}

/* ROWS rows of a head from `first` on into shared memory; zeros beyond `end` and beyond D. */
template <int DP, int ROWS>
__device__ inline void tile_load(uint16_t (&tile)[ROWS][DP + PAD], const attention_rows &rows, int64_t b, int64_t first,
                                 int64_t h, int64_t end, int64_t D) {
    for (int i = (int)threadIdx.x; i < ROWS * DP / 8; i += TILE_THREADS) {
        const int row = i / (DP / 8), column = i % (DP / 8) * 8;
        uint4 eight = make_uint4(0, 0, 0, 0);
        if (first + row < end && column < D) eight = *(const uint4 *)(row_at(rows, b, first + row, h) + column);
        *(uint4 *)&tile[row][column] = eight;
    }
}

/* The warp's 16 rows, beginning with row `first` of a head, as A's: DP / 16 of them, from global memory. */
template <int DP>
__device__ inline void fragments_load(uint32_t (&a)[DP / 16][4], const attention_rows &rows, int64_t b, int64_t first,
                                      int64_t h, int64_t end, int64_t D) {
#pragma unroll
    for (int k = 0; k < DP / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t t = first + lane_row() + i % 2 * 8, d = 16 * k + i / 2 * 8 + lane_pair();
            a[k][i] = t < end && d < D ? *(const uint32_t *)(row_at(rows, b, t, h) + d) : 0;
        }
}

/* c (16,COLUMNS) = a (16,DP) tile^T: the tile's rows are the columns of the result. */
template <class T, int DP, int COLUMNS>
__device__ inline void multiply_rows(float (&c)[COLUMNS / 8][4], const uint32_t (&a)[DP / 16][4],
                                     const uint16_t (&tile)[COLUMNS][DP + PAD]) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) c[n][i] = 0;
#pragma unroll
        for (int k = 0; k < DP / 16; k++) {
            const uint16_t *at = &tile[8 * n + lane_row()][16 * k + lane_pair()];
            const uint32_t b[2] = {*(const uint32_t *)at, *(const uint32_t *)(at + 8)};
            tensor_core<T>::multiply(c[n], a[k], b);
        }
    }
}

/* c (16,DP) += p (16,ROWS) tile (ROWS,DP): p, rounded, are the results of multiply_rows. */
template <class T, int DP, int ROWS>
__device__ inline void multiply_columns(float (&c)[DP / 8][4], const float (&p)[ROWS / 8][4],
                                        const uint16_t (&tile)[ROWS][DP + PAD]) {
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
        const uint32_t a[4] = {pair_of<T>(p[2 * k][0], p[2 * k][1]), pair_of<T>(p[2 * k][2], p[2 * k][3]),
                               pair_of<T>(p[2 * k + 1][0], p[2 * k + 1][1]),
                               pair_of<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < DP / 8; n++) {
            uint32_t b[2];
            matrix_turned(b, &tile[16 * k + lane_of() % 16][8 * n]);
            tensor_core<T>::multiply(c[n], a, b);
        }
    }
}

/* The warp's 16 rows, times a factor for each of the lane's two, into rows of a head from `first` on. */
template <class T, int DP>
__device__ inline void rows_store(const attention_rows &rows, int64_t b, int64_t first, int64_t h, int64_t end,
                                  int64_t D, const float (&c)[DP / 8][4], float factor, float factor_below) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t t = first + lane_row() + 8 * i;
        const float f = i ? factor_below : factor;
        if (t >= end) continue;
        uint16_t *to = row_at(rows, b, t, h);
#pragma unroll
        for (int n = 0; n < DP / 8; n++)
            if (8 * n < D) *(uint32_t *)(to + 8 * n + lane_pair()) = pair_of<T>(c[n][2 * i] * f, c[n][2 * i + 1] * f);
    }
}

/* ---- What sees what ----------------------------------------------------------------------------------- */

/* What the lane's two rows see: keys from .. to - 1 of a query, queries of a key. */
struct lane_sight {
    int from[2], to[2];
};
__device__ inline lane_sight sight_of_queries(const attention_call &a, int64_t b, int first) {
    lane_sight own;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = first + lane_row() + 8 * i;
        own.from[i] = t < a.T ? (int)first_key(a, b, t) : 0;
        own.to[i] = t < a.T ? (int)visible_keys(a, t) : 0;
    }
    return own;
}
__device__ inline lane_sight sight_of_keys(const attention_call &a, int64_t b, int first) {
    lane_sight own;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int s = first + lane_row() + 8 * i;
        own.from[i] = (int)first_query(a, s);
        own.to[i] = s < a.S ? (int)end_query(a, b, s) : 0;
    }
    return own;
}
__device__ inline bool sees(const lane_sight &own, int i, int at) { return at >= own.from[i] && at < own.to[i]; }

/* ---- Dropout ------------------------------------------------------------------------------------------ */

/* The mask of a call: block number first + (row words + s) / 4 has keys s .. s + 3 of row (b H + h) T + t. */
struct tile_mask {
    rng_key key;
    uint64_t first, row_blocks, threshold;
    float growth; /* of what is kept */
    bool drops;   /* anything at all */
};
__device__ inline tile_mask mask_of(const attention_call &a) {
    return {dropout_key(a.generator),     a.generator.index / 4,        dropout_row_words(a.S) / 4,
            rng_threshold(1 - a.dropout), (float)(1 / (1 - a.dropout)), a.dropout > 0};
}

/* The four keys of a block: bit i, whether the i-th is kept. */
__device__ inline unsigned keeps_four(const tile_mask &m, uint64_t block) {
    const rng_block words = rng_block_at(m.key, block);
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) bits |= (unsigned)rng_bernoulli(words.word[i], m.threshold) << i;
    return bits;
}

/* Two neighbouring lanes share four keys of two queries, and draw one of the two each. The block that this lane draws
 * for a result (16 queries, 8 keys) that begins in row `first_row`, at key 0. */
__device__ inline uint64_t keeps_row(const tile_mask &m, int64_t first_row) {
    const int64_t row = first_row + lane_row() + lane_of() % 2 * 8;
    return m.first + (uint64_t)row * m.row_blocks + (uint64_t)(lane_of() % 4 / 2);
}

/* Of the lane's four elements of such a result at key s: bit i, whether element i is kept. */
__device__ inline unsigned keeps_queries(const tile_mask &m, uint64_t row, int s) {
    const int is_odd = lane_of() % 2;
    if (!m.drops) return 15;
    const unsigned own = keeps_four(m, row + (uint64_t)(s / 4)), other = __shfl_xor_sync(ALL_LANES, own, 1);
    const unsigned above = is_odd ? other : own, below = is_odd ? own : other;
    return (above >> 2 * is_odd & 3) | (below >> 2 * is_odd & 3) << 2;
}

/* The same of a result (16 keys, 8 queries). Four lanes share four keys, of two queries and 8 keys apart, and draw one
 * of the four each. */
__device__ inline unsigned keeps_keys(const tile_mask &m, int64_t first_row, int s) {
    const int turn = lane_row() % 4;
    if (!m.drops) return 15;
    const int64_t row = first_row + lane_pair() + turn % 2;
    const uint64_t block = (uint64_t)(s / 4 + turn / 2 * 2 + lane_row() / 4);
    const unsigned own = keeps_four(m, m.first + (uint64_t)row * m.row_blocks + block);
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned of_i = __shfl_sync(ALL_LANES, own, (lane_of() & ~12) | i << 2);
        bits |= (of_i >> turn & 1) << i;
    }
    return bits;
}

/* ---- Forward ------------------------------------------------------------------------------------------ */

/* Over the four lanes that share a row. */
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

template <class T, int DP> __global__ void __launch_bounds__(TILE_THREADS) tiles_forward(attention_call a, int64_t n) {
    __shared__ __align__(16) uint16_t k[TILE][DP + PAD], v[TILE][DP + PAD];
    const int64_t head = blockIdx.x / n, b = head / a.H, h = head % a.H, h_kv = h / (a.H / a.H_kv);
    const int begin = (int)(n - 1 - blockIdx.x % n) * TILE, first = begin + warp_rows(); /* the longest first */
    const int end = (int)visible_keys(a, min((int64_t)begin + TILE, a.T) - 1);
    const tile_mask mask = mask_of(a);
    const uint64_t mask_row = keeps_row(mask, head * a.T + first);
    const float scale = (float)a.scale;
    const lane_sight own = sight_of_queries(a, b, first);
    uint32_t q[DP / 16][4];
    fragments_load<DP>(q, a.q, b, first, h, a.T, a.D);
    float o[DP / 8][4] = {}, top[2] = {lowest<float>(), lowest<float>()}, sum[2] = {0, 0};
    for (int s0 = (int)first_key(a, b, begin) / TILE * TILE; s0 < end; s0 += TILE) {
        __syncthreads();
        tile_load<DP, TILE>(k, a.k, b, s0, h_kv, a.S, a.D);
        tile_load<DP, TILE>(v, a.v, b, s0, h_kv, a.S, a.D);
        __syncthreads();
        float p[TILE / 8][4], tile_top[2] = {top[0], top[1]}, shift[2];
        multiply_rows<T, DP, TILE>(p, q, k);
#pragma unroll
        for (int j = 0; j < TILE / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int s = s0 + 8 * j + lane_pair() + i % 2;
                p[j][i] = sees(own, i / 2, s) ? scale * p[j][i] : lowest<float>();
                tile_top[i / 2] = fmaxf(tile_top[i / 2], p[j][i]);
            }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            tile_top[i] = row_max(tile_top[i]);
            /* nothing seen yet: exp(-inf) is the 0 we want */
            shift[i] = tile_top[i] == lowest<float>() ? 0 : tile_top[i];
            const float shrink = exp_of(top[i] - shift[i]);
            top[i] = tile_top[i];
            sum[i] *= shrink;
#pragma unroll
            for (int j = 0; j < DP / 8; j++) o[j][2 * i] *= shrink, o[j][2 * i + 1] *= shrink;
        }
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            const unsigned keeps = keeps_queries(mask, mask_row, s0 + 8 * j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float weight = exp_of(p[j][i] - shift[i / 2]);
                sum[i / 2] += weight;
                p[j][i] = keeps >> i & 1 ? weight : 0;
            }
        }
        multiply_columns<T, DP, TILE>(o, p, v);
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float total = row_sum(sum[i]);
        const int64_t t = first + lane_row() + 8 * i;
        factor[i] = total == 0 ? 0 : mask.growth / total;
        if (t < a.T && lane_pair() == 0)
            ((float *)a.lse)[head * a.T + t] = total == 0 ? lowest<float>() : top[i] + log_of(total);
    }
    rows_store<T, DP>(a.out, b, first, h, a.T, a.D, o, factor[0], factor[1]);
}

/* ---- Backward ----------------------------------------------------------------------------------------- */

template <class T, int DP>
__global__ void __launch_bounds__(TILE_THREADS) tiles_keys(attention_call a, const float *delta, int64_t n) {
    enum { QUERIES = DP > 32 ? 32 : 64 }; /* wide heads leave registers for half a tile of scores */
    __shared__ __align__(16) uint16_t q[QUERIES][DP + PAD], g[QUERIES][DP + PAD];
    const int64_t head = blockIdx.x / n, b = head / a.H_kv, h_kv = head % a.H_kv, group = a.H / a.H_kv;
    const int begin = (int)(blockIdx.x % n) * TILE, first = begin + warp_rows(); /* the longest first */
    const int first_t = (int)first_query(a, begin) / QUERIES * QUERIES;
    const int end_t = (int)end_query(a, b, min((int64_t)begin + TILE, a.S) - 1);
    const tile_mask mask = mask_of(a);
    const lane_sight own = sight_of_keys(a, b, first);
    const float scale = (float)a.scale;
    uint32_t k[DP / 16][4], v[DP / 16][4];
    fragments_load<DP>(k, a.k, b, first, h_kv, a.S, a.D);
    fragments_load<DP>(v, a.v, b, first, h_kv, a.S, a.D);
    float dk[DP / 8][4] = {}, dv[DP / 8][4] = {};
    for (int64_t h = h_kv * group; h < (h_kv + 1) * group; h++)
        for (int t0 = first_t; t0 < end_t; t0 += QUERIES) {
            __syncthreads();
            tile_load<DP, QUERIES>(q, a.q, b, t0, h, a.T, a.D);
            tile_load<DP, QUERIES>(g, a.g, b, t0, h, a.T, a.D);
            __syncthreads();
            const int64_t row = (b * a.H + h) * a.T;
            float p[QUERIES / 8][4], ds[QUERIES / 8][4];
            multiply_rows<T, DP, QUERIES>(p, k, q);
            multiply_rows<T, DP, QUERIES>(ds, v, g);
#pragma unroll
            for (int j = 0; j < QUERIES / 8; j++) {
                const unsigned keeps = keeps_keys(mask, row + t0 + 8 * j, first);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int t = t0 + 8 * j + lane_pair() + i % 2;
                    const bool is_seen = sees(own, i / 2, t);
                    const float weight = is_seen ? exp_of(scale * p[j][i] - ((const float *)a.lse)[row + t]) : 0;
                    const float dp = keeps >> i & 1 ? mask.growth * ds[j][i] : 0;
                    p[j][i] = keeps >> i & 1 ? weight : 0;
                    ds[j][i] = is_seen ? weight * (dp - delta[row + t]) : 0;
                }
            }
            multiply_columns<T, DP, QUERIES>(dv, p, g);
            multiply_columns<T, DP, QUERIES>(dk, ds, q);
        }
    rows_store<T, DP>(a.dk, b, first, h_kv, a.S, a.D, dk, scale, scale);
    rows_store<T, DP>(a.dv, b, first, h_kv, a.S, a.D, dv, mask.growth, mask.growth);
}

template <class T, int DP>
__global__ void __launch_bounds__(TILE_THREADS) tiles_queries(attention_call a, const float *delta, int64_t n) {
    __shared__ __align__(16) uint16_t k[TILE][DP + PAD], v[TILE][DP + PAD];
    const int64_t head = blockIdx.x / n, b = head / a.H, h = head % a.H, h_kv = h / (a.H / a.H_kv);
    const int begin = (int)(n - 1 - blockIdx.x % n) * TILE, first = begin + warp_rows(); /* the longest first */
    const int end = (int)visible_keys(a, min((int64_t)begin + TILE, a.T) - 1);
    const int64_t row = head * a.T + first;
    const tile_mask mask = mask_of(a);
    const uint64_t mask_row = keeps_row(mask, row);
    const float scale = (float)a.scale;
    const lane_sight own = sight_of_queries(a, b, first);
    uint32_t q[DP / 16][4], g[DP / 16][4];
    fragments_load<DP>(q, a.q, b, first, h, a.T, a.D);
    fragments_load<DP>(g, a.g, b, first, h, a.T, a.D);
    float dq[DP / 8][4] = {}, lse[2], own_delta[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool is_there = first + lane_row() + 8 * i < a.T;
        lse[i] = is_there ? ((const float *)a.lse)[row + lane_row() + 8 * i] : 0;
        own_delta[i] = is_there ? delta[row + lane_row() + 8 * i] : 0;
    }
    for (int s0 = (int)first_key(a, b, begin) / TILE * TILE; s0 < end; s0 += TILE) {
        __syncthreads();
        tile_load<DP, TILE>(k, a.k, b, s0, h_kv, a.S, a.D);
        tile_load<DP, TILE>(v, a.v, b, s0, h_kv, a.S, a.D);
        __syncthreads();
        float p[TILE / 8][4], ds[TILE / 8][4];
        multiply_rows<T, DP, TILE>(p, q, k);
        multiply_rows<T, DP, TILE>(ds, g, v);
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            const unsigned keeps = keeps_queries(mask, mask_row, s0 + 8 * j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool is_seen = sees(own, i / 2, s0 + 8 * j + lane_pair() + i % 2);
                const float weight = is_seen ? exp_of(scale * p[j][i] - lse[i / 2]) : 0;
                const float dp = keeps >> i & 1 ? mask.growth * ds[j][i] : 0;
                ds[j][i] = is_seen ? weight * (dp - own_delta[i / 2]) : 0;
            }
        }
        multiply_columns<T, DP, TILE>(dq, ds, k);
    }
    rows_store<T, DP>(a.dq, b, first, h, a.T, a.D, dq, scale, scale);
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }

template <class T, int DP> static void forward_launch(const attention_call &a, const void *, cudaStream_t stream) {
    const int64_t n = tiles_of(a.T);
    tiles_forward<T, DP><<<(unsigned)(n * a.B * a.H), TILE_THREADS, 0, stream>>>(a, n);
}

template <class T, int DP>
static void backward_launch(const attention_call &a, const void *delta, cudaStream_t stream) {
    const int64_t n_keys = tiles_of(a.S), n_queries = tiles_of(a.T);
    tiles_keys<T, DP><<<(unsigned)(n_keys * a.B * a.H_kv), TILE_THREADS, 0, stream>>>(a, (const float *)delta, n_keys);
    tiles_queries<T, DP>
        <<<(unsigned)(n_queries * a.B * a.H), TILE_THREADS, 0, stream>>>(a, (const float *)delta, n_queries);
}

/* By the head size, rounded up. */
template <class T, bool BACKWARD> static bool launch(const tl_kernel_args *args, const attention_call &a) {
    void (*const by_size[3])(const attention_call &, const void *,
                             cudaStream_t) = {BACKWARD ? backward_launch<T, 32> : forward_launch<T, 32>,
                                              BACKWARD ? backward_launch<T, 64> : forward_launch<T, 64>,
                                              BACKWARD ? backward_launch<T, 128> : forward_launch<T, 128>};
    by_size[a.D <= 32 ? 0 : a.D <= 64 ? 1 : 2](a, args->workspace, stream_of(args));
    return true;
}

/* Every row of eight begins at a multiple of 16 bytes. */
static bool is_aligned(const attention_rows &rows) {
    return (uintptr_t)rows.data % 16 == 0 && (rows.stride_b | rows.stride_t | rows.stride_h) % 8 == 0;
}

extern "C" {

bool attention_tiles_fit(const attention_call *a, int capability) {
    const bool is_wanted = a->dropout > 0 || a->first_key;
    const bool fits_kind = is_wanted && !a->mask && (a->dtype == TL_BF16 || a->dtype == TL_F16);
    const bool is_empty = a->B == 0 || a->T == 0 || a->S == 0 || a->H == 0 || a->D == 0;
    if (capability < 80 || !fits_kind || is_empty || a->D > 128 || a->D % 8) return false;
    const int64_t n = tiles_of(a->T > a->S ? a->T : a->S);
    const bool fits_int = a->T < INT32_MAX - TILE && a->S < INT32_MAX - TILE;
    const bool fits_grid = fits_int && a->B * a->H <= INT32_MAX / n;
    return fits_grid && is_aligned(a->q) && is_aligned(a->k) && is_aligned(a->v) && is_aligned(a->out) &&
           is_aligned(a->g) && is_aligned(a->dq) && is_aligned(a->dk) && is_aligned(a->dv);
}

bool attention_tiles_forward(const tl_kernel_args *args, const attention_call *call) {
    return call->dtype == TL_BF16 ? launch<bf16, false>(args, *call) : launch<f16, false>(args, *call);
}

bool attention_tiles_backward(const tl_kernel_args *args, const attention_call *call) {
    return call->dtype == TL_BF16 ? launch<bf16, true>(args, *call) : launch<f16, true>(args, *call);
}

} /* extern "C" */
