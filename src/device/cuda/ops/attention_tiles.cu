/* attention_tiles.cu: attention on tensor cores, for every call of 16 bits that neither cuDNN nor the kernels for
 * Hopper (attention_hopper*.cu) take: masks, soft caps, dropout, first keys, windows, fewer queries than keys, heads of
 * any size up to 256, rows that are not aligned.
 *
 * A block of four warps has 64 queries (or 64 keys) and walks the other side in tiles; each warp has 16 rows of
 * them. Tiles that no query of the block sees are not visited. Scores exist one tile at a time, in registers.
 *
 *   forward   s = scale q k^T + mask; running maximum m and sum l per query; out = sum of p v / (l (1 - dropout))
 *   dK, dV    a block of keys, over the tiles of queries that see it: p and dp lie as (keys, queries)
 *   dQ        a block of queries, over its tiles of keys; it also writes the mask's gradient, which is ds
 *
 * with p = exp(s - lse), dp = m g v^T, ds = p (dp - delta); m is 0 or 1/(1 - dropout). Sums are in f32; p and ds are
 * rounded to the operands' dtype for the products that sum over them, as cuDNN does. No atomics: the same bits each
 * time.
 *
 * While a tile is computed, the next one is copied to shared memory (cp.async). Rows that are not aligned are copied
 * element by element, so that what is computed does not depend on it. Heads wider than 128 leave no room in
 * registers for a block's own rows, which stay in shared memory then; dk and dv are made in two halves, by two
 * blocks.
 *
 * shared/tensor_core.cuh says which elements of a product a lane has.
 */
#include "device/cuda/ops/attention_tile.cuh"

enum { TILE = 64, TILE_WARPS = 4, TILE_THREADS = 32 * TILE_WARPS, WIDEST = 256, STAGES = 2 };

template <int DP> struct tile_shape {
    enum { KEYS = DP > 128 ? 32 : 64 };        /* in a tile that queries walk */
    enum { QUERIES = DP > 32 ? 32 : 64 };      /* in a tile that keys walk */
    enum { COLUMNS = DP > 128 ? DP / 2 : DP }; /* of dk and dv that a block has */
};

/* ---- Tiles and operands ------------------------------------------------------------------------------- */

/* 16-bit elements of shared memory: n_own tiles of the block's own rows, and the ring of tiles of n rows, which takes
 * the place of the first once they are in registers. */
__host__ __device__ constexpr int shared_elements(int DP, int n_own, int n, bool holds) {
    const int own = n_own * TILE, ring = STAGES * 2 * n;
    return (DP + PAD) * (holds ? (own > ring ? own : ring) : own + ring);
}

/* The warp's 16 rows, times a factor for each of the lane's two, into rows of a head from `first` on, columns from
 * `column` on. */
template <class T, int COLUMNS>
__device__ inline void rows_store(const attention_rows &rows, int64_t b, int64_t first, int64_t h, int64_t end,
                                  int64_t D, int column, const float (&c)[COLUMNS / 8][4], const float (&factor)[2]) {
    const bool has_pairs = is_aligned(rows, D, 4);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t t = first + lane_row() + 8 * i;
        if (t >= end) continue;
        uint16_t *to = row_at(rows, b, t, h);
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            const int d = column + 8 * n + lane_pair();
            const float x = c[n][2 * i] * factor[i], y = c[n][2 * i + 1] * factor[i];
            if (has_pairs) {
                if (d < D) *(uint32_t *)(to + d) = pair_of<T>(x, y);
                continue;
            }
            if (d < D) to[d] = rounded_bits<T>(x);
            if (d + 1 < D) to[d + 1] = rounded_bits<T>(y);
        }
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

/* The slope of the cap of a score, by its share of the cap. */
__device__ inline float cap_share(const attention_call &a) {
    return a.soft_cap > 0 ? 1 / ((float)a.soft_cap * LOG2_E) : 0.0f;
}
__device__ inline float cap_slope(float score, float share) { return 1 - score * share * (score * share); }

/* From products to scores in powers of two: lowest where a row of the lane does not see column `at` and what follows.
 * `is_whole`: every row of the block sees all N columns. */
template <int N>
__device__ inline void scores_hide(float (&p)[N / 8][4], const lane_sight &own, int at, float scale, bool is_whole) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int other = at + 8 * j + lane_pair() + i % 2;
            const bool is_seen = is_whole || (other >= own.from[i / 2] && other < own.to[i / 2]);
            p[j][i] = is_seen ? scale * p[j][i] : lowest<float>();
        }
}

template <int N> __device__ inline void scores_mask(float (&p)[N / 8][4], const float (&added)[N / 8][4]) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (p[j][i] != lowest<float>()) p[j][i] += added[j][i]; /* what is hidden stays so, whatever is added */
}

/* ---- Forward ------------------------------------------------------------------------------------------ */

/* Where a block of queries is, and which keys it walks. */
struct query_block {
    int64_t head, b, h, h_kv;
    int begin, first;         /* the block's first query, the warp's */
    int from, to;             /* the keys that any of them sees */
    int whole_from, whole_to; /* the keys that all of them see */
};
__device__ inline query_block query_block_of(const attention_call &a, int64_t n) {
    query_block q;
    q.head = blockIdx.x / n, q.b = q.head / a.H, q.h = q.head % a.H, q.h_kv = q.h / (a.H / a.H_kv);
    q.begin = (int)(n - 1 - blockIdx.x % n) * TILE, q.first = q.begin + warp_rows(); /* the longest first */
    const int64_t last = min((int64_t)q.begin + TILE, a.T) - 1;
    q.from = (int)first_key(a, q.b, q.begin), q.to = (int)visible_keys(a, last);
    q.whole_from = (int)first_key(a, q.b, last), q.whole_to = (int)visible_keys(a, q.begin);
    return q;
}

/* Two tiles of N rows, of x and y, stage after stage. */
template <int DP, int N> struct tile_ring {
    uint16_t *memory;
    static const int ELEMENTS = N * tile_row<DP>();
    __device__ inline uint16_t *first(int i) const { return memory + i % STAGES * 2 * ELEMENTS; }
    __device__ inline uint16_t *second(int i) const { return first(i) + ELEMENTS; }
    __device__ inline void load(int i, const attention_rows &x, const attention_rows &y, int64_t b, int64_t at,
                                int64_t h, int64_t end, int64_t D) const {
        tile_load<DP, N, TILE_THREADS>(first(i), x, b, at, h, end, D);
        tile_load<DP, N, TILE_THREADS>(second(i), y, b, at, h, end, D);
        copies_commit();
    }
    /* Tile i is there, and tile i + 1 may be under way. */
    static __device__ inline void wait() {
        copies_wait<1>();
        __syncthreads();
    }
};

template <class T, int DP>
__global__ void __launch_bounds__(TILE_THREADS) tiles_forward(attention_call a, tile_mask mask, int64_t n) {
    enum { N = tile_shape<DP>::KEYS, HOLDS = DP <= 128, OWN = TILE * tile_row<DP>() };
    extern __shared__ __align__(16) uint16_t memory[];
    const tile_ring<DP, N> ring = {memory + (HOLDS ? 0 : OWN)};
    const query_block at = query_block_of(a, n);
    const uint64_t mask_block = block_of_queries(mask, at.head * a.T + at.first);
    const lane_sight own = sight_of_queries(a, at.b, at.first);
    own_rows<DP, HOLDS> q;
    tile_load<DP, TILE, TILE_THREADS>(memory, a.q, at.b, at.begin, at.h, a.T, a.D);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    q.take(memory);
    if (HOLDS) __syncthreads(); /* the ring begins in the same place */
    float o[DP / 8][4] = {};
    row_softmax r = {{lowest<float>(), lowest<float>()}, {0, 0}};
    const int begin = at.from / N * N;
    if (begin < at.to) ring.load(0, a.k, a.v, at.b, begin, at.h_kv, a.S, a.D);
    for (int i = 0, s = begin; s < at.to; i++, s += N) {
        if (s + N < at.to) ring.load(i + 1, a.k, a.v, at.b, s + N, at.h_kv, a.S, a.D);
        else copies_commit();
        float added[N / 8][4]; /* read while the tile arrives */
        if (a.mask) mask_load<N, false>(added, a, at.b, at.h, at.first, s);
        ring.wait();
        float p[N / 8][4];
        multiply_rows<T, DP, N>(p, q, ring.first(i));
        if (a.soft_cap > 0) scores_cap<N>(p, a);
        scores_hide<N>(p, own, s, score_scale(a), s >= at.whole_from && s + N <= at.whole_to);
        if (a.mask) scores_mask<N>(p, added);
        weights_of<N, DP>(p, r, o, mask, mask_block, s);
        multiply_columns<T, DP, DP, N>(o, p, ring.second(i));
        __syncthreads();
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float total = row_sum(r.sum[i]);
        const int64_t t = at.first + lane_row() + 8 * i;
        factor[i] = total == 0 ? 0 : mask.growth / total;
        if (t < a.T && lane_pair() == 0)
            ((float *)a.lse)[at.head * a.T + t] =
                total == 0 ? lowest<float>() : r.top[i] * (1 / LOG2_E) + log_of(total);
    }
    rows_store<T, DP>(a.out, at.b, at.first, at.h, a.T, a.D, 0, o, factor);
}

/* ---- Backward ----------------------------------------------------------------------------------------- */

/* p of a score and its lse, both in powers of two. */
__device__ inline float weight_of(float score, float lse) {
    return score == lowest<float>() ? 0 : exp2_of(score - lse);
}

template <class T, int DP>
__global__ void __launch_bounds__(TILE_THREADS)
    tiles_keys(attention_call a, tile_mask mask, const float *delta, int64_t n) {
    enum { N = tile_shape<DP>::QUERIES, COLUMNS = tile_shape<DP>::COLUMNS, HOLDS = DP <= 64 };
    enum { OWN = TILE * tile_row<DP>() };
    extern __shared__ __align__(16) uint16_t memory[];
    const tile_ring<DP, N> ring = {memory + (HOLDS ? 0 : 2 * OWN)};
    const int64_t head = blockIdx.x / n, b = head / a.H_kv, h_kv = head % a.H_kv, group = a.H / a.H_kv;
    const int begin = (int)(blockIdx.x % n) * TILE, first = begin + warp_rows(); /* the longest first */
    const int64_t last = min((int64_t)begin + TILE, a.S) - 1;
    const int column = (int)blockIdx.y * COLUMNS;
    const int from = (int)first_query(a, begin) / N * N, to = (int)end_query(a, b, last);
    const int whole_from = (int)first_query(a, last), whole_to = (int)end_query(a, b, begin);
    const int n_tiles = to > from ? (to - from + N - 1) / N : 0, n_all = n_tiles * (int)group;
    const lane_sight own = sight_of_keys(a, b, first);
    own_rows<DP, HOLDS> k, v;
    tile_load<DP, TILE, TILE_THREADS>(memory, a.k, b, begin, h_kv, a.S, a.D);
    tile_load<DP, TILE, TILE_THREADS>(memory + OWN, a.v, b, begin, h_kv, a.S, a.D);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    k.take(memory), v.take(memory + OWN);
    if (HOLDS) __syncthreads();
    const float share = cap_share(a);
    float dk[COLUMNS / 8][4] = {}, dv[COLUMNS / 8][4] = {};
    if (n_all) ring.load(0, a.q, a.g, b, from, h_kv * group, a.T, a.D);
    for (int i = 0; i < n_all; i++) {
        const int64_t h = h_kv * group + i / n_tiles, row = (b * a.H + h) * a.T;
        const int t0 = from + i % n_tiles * N, next = i + 1;
        if (next < n_all)
            ring.load(next, a.q, a.g, b, from + next % n_tiles * N, h_kv * group + next / n_tiles, a.T, a.D);
        else copies_commit();
        float added[N / 8][4], lse[N / 8][2], own_delta[N / 8][2]; /* read while the tile arrives */
        if (a.mask) mask_load<N, true>(added, a, b, h, first, t0);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int64_t t = row + min(t0 + 8 * j + lane_pair() + e, (int)a.T - 1);
                lse[j][e] = ((const float *)a.lse)[t] * LOG2_E, own_delta[j][e] = delta[t];
            }
        ring.wait();
        float p[N / 8][4], ds[N / 8][4];
        multiply_rows<T, DP, N>(p, k, ring.first(i));
        multiply_rows<T, DP, N>(ds, v, ring.second(i));
        if (a.soft_cap > 0) scores_cap<N>(p, a);
        scores_hide<N>(p, own, t0, score_scale(a), t0 >= whole_from && t0 + N <= whole_to);
        if (a.mask) scores_mask<N>(p, added);
        const uint32_t dropped =
            dropped_keys<N, 2>(mask, block_of_keys(mask, row + t0, first), 0, INT32_MIN, INT32_MAX);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float weight = weight_of(p[j][e], lse[j][e % 2]);
                const float dp = is_dropped(dropped, j, e) ? 0 : mask.growth * ds[j][e];
                const float slope = share > 0 ? cap_slope(p[j][e], share) : 1;
                p[j][e] = is_dropped(dropped, j, e) ? 0 : weight;
                ds[j][e] = weight == 0 ? 0 : weight * (dp - own_delta[j][e % 2]) * slope;
            }
        multiply_columns<T, DP, COLUMNS, N>(dv, p, ring.second(i) + column);
        multiply_columns<T, DP, COLUMNS, N>(dk, ds, ring.first(i) + column);
        __syncthreads();
    }
    const float scale[2] = {(float)a.scale, (float)a.scale}, growth[2] = {mask.growth, mask.growth};
    rows_store<T, COLUMNS>(a.dk, b, first, h_kv, a.S, a.D, column, dk, scale);
    rows_store<T, COLUMNS>(a.dv, b, first, h_kv, a.S, a.D, column, dv, growth);
}

/* ds of (16 queries, N keys) is the gradient of the mask there. */
template <int N>
__device__ inline void mask_gradient(const attention_call &a, const float (&ds)[N / 8][4], int64_t head, int first,
                                     int at) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t t = first + lane_row() + i / 2 * 8, s = at + 8 * j + lane_pair() + i % 2;
            if (t < a.T && s < a.S) store_as<float>(a.dmask, (head * a.T + t) * a.S + s, a.mask_dtype, ds[j][i]);
        }
}

template <class T, int DP>
__global__ void __launch_bounds__(TILE_THREADS)
    tiles_queries(attention_call a, tile_mask mask, const float *delta, int64_t n) {
    enum { N = tile_shape<DP>::KEYS, HOLDS = DP <= 64, OWN = TILE * tile_row<DP>() };
    extern __shared__ __align__(16) uint16_t memory[];
    const tile_ring<DP, N> ring = {memory + (HOLDS ? 0 : 2 * OWN)};
    query_block at = query_block_of(a, n);
    if (a.dmask) at.from = 0, at.to = (int)a.S; /* its zeros are written too */
    const int64_t row = at.head * a.T + at.first;
    const uint64_t mask_block = block_of_queries(mask, row);
    const lane_sight own = sight_of_queries(a, at.b, at.first);
    own_rows<DP, HOLDS> q, g;
    tile_load<DP, TILE, TILE_THREADS>(memory, a.q, at.b, at.begin, at.h, a.T, a.D);
    tile_load<DP, TILE, TILE_THREADS>(memory + OWN, a.g, at.b, at.begin, at.h, a.T, a.D);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    q.take(memory), g.take(memory + OWN);
    if (HOLDS) __syncthreads();
    const float share = cap_share(a);
    float dq[DP / 8][4] = {}, lse[2], own_delta[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool is_there = at.first + lane_row() + 8 * i < a.T;
        lse[i] = is_there ? ((const float *)a.lse)[row + lane_row() + 8 * i] * LOG2_E : 0;
        own_delta[i] = is_there ? delta[row + lane_row() + 8 * i] : 0;
    }
    const int begin = at.from / N * N;
    if (begin < at.to) ring.load(0, a.k, a.v, at.b, begin, at.h_kv, a.S, a.D);
    for (int i = 0, s = begin; s < at.to; i++, s += N) {
        if (s + N < at.to) ring.load(i + 1, a.k, a.v, at.b, s + N, at.h_kv, a.S, a.D);
        else copies_commit();
        float added[N / 8][4]; /* read while the tile arrives */
        if (a.mask) mask_load<N, false>(added, a, at.b, at.h, at.first, s);
        ring.wait();
        float p[N / 8][4], ds[N / 8][4];
        multiply_rows<T, DP, N>(p, q, ring.first(i));
        multiply_rows<T, DP, N>(ds, g, ring.second(i));
        if (a.soft_cap > 0) scores_cap<N>(p, a);
        scores_hide<N>(p, own, s, score_scale(a), s >= at.whole_from && s + N <= at.whole_to);
        if (a.mask) scores_mask<N>(p, added);
        const uint32_t dropped = dropped_queries<N, 1>(mask, mask_block, s, 0, INT32_MAX);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float dp = is_dropped(dropped, j, e) ? 0 : mask.growth * ds[j][e];
                const float weight = weight_of(p[j][e], lse[e / 2]);
                const float slope = share > 0 ? cap_slope(p[j][e], share) : 1;
                ds[j][e] = weight == 0 ? 0 : weight * (dp - own_delta[e / 2]) * slope;
            }
        if (a.dmask) mask_gradient<N>(a, ds, at.head, at.first, s);
        multiply_columns<T, DP, DP, N>(dq, ds, ring.first(i));
        __syncthreads();
    }
    const float scale[2] = {(float)a.scale, (float)a.scale};
    rows_store<T, DP>(a.dq, at.b, at.first, at.h, a.T, a.D, 0, dq, scale);
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }

template <class T, int DP> static bool forward_launch(const tl_kernel_args *args, const attention_call &a) {
    const int64_t n = tiles_of(a.T);
    const int bytes = 2 * shared_elements(DP, 1, tile_shape<DP>::KEYS, DP <= 128);
    if (!shared_memory_allow(args, tiles_forward<T, DP>, bytes)) return false;
    tiles_forward<T, DP><<<(unsigned)(n * a.B * a.H), TILE_THREADS, (size_t)bytes, stream_of(args)>>>(a, mask_of(a), n);
    return true;
}

template <class T, int DP> static bool backward_launch(const tl_kernel_args *args, const attention_call &a) {
    const int64_t n_keys = tiles_of(a.S), n_queries = tiles_of(a.T);
    const float *delta = (const float *)args->workspace;
    const int key_bytes = 2 * shared_elements(DP, 2, tile_shape<DP>::QUERIES, DP <= 64);
    const int query_bytes = 2 * shared_elements(DP, 2, tile_shape<DP>::KEYS, DP <= 64);
    if (!shared_memory_allow(args, tiles_keys<T, DP>, key_bytes) ||
        !shared_memory_allow(args, tiles_queries<T, DP>, query_bytes))
        return false;
    const dim3 key_blocks((unsigned)(n_keys * a.B * a.H_kv), DP / tile_shape<DP>::COLUMNS);
    tiles_keys<T, DP><<<key_blocks, TILE_THREADS, (size_t)key_bytes, stream_of(args)>>>(a, mask_of(a), delta, n_keys);
    tiles_queries<T, DP><<<(unsigned)(n_queries * a.B * a.H), TILE_THREADS, (size_t)query_bytes, stream_of(args)>>>(
        a, mask_of(a), delta, n_queries);
    return true;
}

template <class T, bool BACKWARD, int DP> static bool launch(const tl_kernel_args *args, const attention_call &a) {
    return BACKWARD ? backward_launch<T, DP>(args, a) : forward_launch<T, DP>(args, a);
}
/* By the head size, rounded up. */
template <class T, bool BACKWARD> static bool launch_sized(const tl_kernel_args *args, const attention_call &a) {
    if (a.D <= 32) return launch<T, BACKWARD, 32>(args, a);
    if (a.D <= 64) return launch<T, BACKWARD, 64>(args, a);
    if (a.D <= 96) return launch<T, BACKWARD, 96>(args, a);
    if (a.D <= 128) return launch<T, BACKWARD, 128>(args, a);
    if (a.D <= 192) return launch<T, BACKWARD, 192>(args, a);
    return launch<T, BACKWARD, 256>(args, a);
}

extern "C" {

bool attention_tiles_fit(const attention_call *a, int capability) {
    const bool is_empty = a->B == 0 || a->T == 0 || a->S == 0 || a->H == 0 || a->D == 0;
    const bool is_16_bit = a->dtype == TL_BF16 || a->dtype == TL_F16;
    const bool fits_mask = !a->mask || a->mask_dtype == TL_BOOL || a->mask_dtype == TL_BF16 ||
                           a->mask_dtype == TL_F16 || a->mask_dtype == TL_F32;
    if (capability < 80 || !is_16_bit || is_empty || a->D > WIDEST || !fits_mask) return false;
    if (a->mask && a->soft_cap > 0) return false; /* a score behind a mask no longer tells the slope of its cap */
    const int64_t n = tiles_of(a->T > a->S ? a->T : a->S);
    const bool fits_int = a->T < INT32_MAX - TILE && a->S < INT32_MAX - TILE;
    /* tiles of one key head's queries are counted in an int */
    return fits_int && a->B * a->H <= INT32_MAX / n && a->H / a->H_kv <= INT32_MAX / (2 * n);
}

bool attention_tiles_forward(const tl_kernel_args *args, const attention_call *call) {
    return call->dtype == TL_BF16 ? launch_sized<bf16, false>(args, *call) : launch_sized<f16, false>(args, *call);
}

bool attention_tiles_backward(const tl_kernel_args *args, const attention_call *call) {
    return call->dtype == TL_BF16 ? launch_sized<bf16, true>(args, *call) : launch_sized<f16, true>(args, *call);
}

} /* extern "C" */
