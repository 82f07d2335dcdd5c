/* attention_tile.cuh: what our attention kernels on mma.m16n8k16 and, in f32, mma.m16n8k8 are made of: tiles of rows in
 * shared memory, their products, and softmax over what has been seen so far. shared/tensor_core.cuh says which elements
 * a lane has.
 *
 * Lengths and strides of rows are in units of 16 bits, of which an element of f32 has two.
 */
#ifndef CUDA_ATTENTION_TILE_CUH
#define CUDA_ATTENTION_TILE_CUH

#include "device/cuda/ops/attention.cuh"
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/tensor_core.cuh"

/* Elements from row to row in shared memory. Those behind each row let eight rows lie in different banks. */
enum { PAD = 8 };
template <int DP> __host__ __device__ constexpr int tile_row() { return DP + PAD; }
/* Units of an element. */
template <class T> __host__ __device__ constexpr int units() { return (int)sizeof(T) / 2; }

/* ---- Rounding ----------------------------------------------------------------------------------------- */

template <class T> __device__ inline uint16_t rounded_bits(float x) {
    const T rounded = conversion<T>::from(x);
    uint16_t bits;
    memcpy(&bits, &rounded, 2);
    return bits;
}
/* Two numbers, rounded, the first in the lower half. */
template <class T> __device__ inline uint32_t pair_of(float first, float second);
template <> __device__ inline uint32_t pair_of<bf16>(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *(const uint32_t *)&pair;
}
template <> __device__ inline uint32_t pair_of<f16>(float first, float second) {
    const __half2 pair = __floats2half2_rn(first, second);
    return *(const uint32_t *)&pair;
}

/* The warp's first row among those of its block, and which of the warps that share these it is. */
template <int ROWS> __device__ inline int warp_row() { return (int)threadIdx.x / 32 * 16 % ROWS; }
template <int ROWS> __device__ inline int warp_role() { return (int)threadIdx.x / 32 * 16 / ROWS; }

/* ---- Tiles and operands ------------------------------------------------------------------------------- */

/* Every row of D begins at a multiple of `bytes`, and is a multiple of it long. */
__host__ __device__ inline bool is_aligned(const attention_rows &rows, int64_t D, int bytes) {
    return (uintptr_t)rows.data % (unsigned)bytes == 0 &&
           (rows.stride_b | rows.stride_t | rows.stride_h | D) % (bytes / 2) == 0;
}

/* Lanes that copy a row in parts: all of a warp, or as few as have a part each. */
__host__ __device__ constexpr int lanes_for(int n_parts) {
    int n = 32;
    while (n / 2 >= n_parts) n /= 2;
    return n;
}
/* N rows of a head from `first` on into shared memory, by THREADS threads, BYTES at a time; zeros beyond `end` and
 * beyond D, where nothing is read. */
template <int DP, int N, int THREADS, int BYTES>
__device__ inline void tile_copy(uint16_t *tile, const attention_rows &rows, int64_t b, int64_t first, int64_t h,
                                 int64_t end, int64_t D) {
    enum { PACK = BYTES / 2, LANES = lanes_for(DP / PACK), AT_ONCE = THREADS / LANES };
    static_assert(N % AT_ONCE == 0, "all threads copy as many rows");
    const int row = (int)threadIdx.x % THREADS / LANES, column = (int)threadIdx.x % LANES * PACK;
    const int n_rows = (int)min(end - first, (int64_t)N), n_columns = (int)D;
    const uint16_t *from = row_at(rows, b, first + row, h) + column;
    uint16_t *const to = tile + row * tile_row<DP>() + column;
#pragma unroll
    for (int i = 0; i < N; i += AT_ONCE, from += AT_ONCE * rows.stride_t)
#pragma unroll
        for (int d = 0; d < DP; d += LANES * PACK)
            if (DP % (LANES * PACK) == 0 || column + d < DP)
                copy_later<BYTES>(to + i * tile_row<DP>() + d, from + d, row + i < n_rows && column + d < n_columns);
}
/* The same where rows begin at odd places: a batch of elements is read before it is written. */
template <int DP, int N, int THREADS>
__device__ inline void tile_copy_single(uint16_t *tile, const attention_rows &rows, int64_t b, int64_t first, int64_t h,
                                        int64_t end, int64_t D) {
    enum { BATCH = 8 };
    for (int i = (int)threadIdx.x % THREADS; i < N * DP; i += BATCH * THREADS) {
        uint16_t x[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int row = (i + k * THREADS) / DP, column = (i + k * THREADS) % DP;
            x[k] = first + row < end && column < D ? row_at(rows, b, first + row, h)[column] : 0;
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) tile[(i + k * THREADS) / DP * tile_row<DP>() + (i + k * THREADS) % DP] = x[k];
    }
}
/* WORDS: elements have 32 bits. */
template <int DP, int N, int THREADS, bool WORDS = false>
__device__ inline void tile_load(uint16_t *tile, const attention_rows &rows, int64_t b, int64_t first, int64_t h,
                                 int64_t end, int64_t D) {
    static_assert(WORDS || N * DP % (8 * THREADS) == 0, "tile_copy_single takes whole batches");
    if (is_aligned(rows, D, 16)) tile_copy<DP, N, THREADS, 16>(tile, rows, b, first, h, end, D);
    else if (is_aligned(rows, D, 8)) tile_copy<DP, N, THREADS, 8>(tile, rows, b, first, h, end, D);
    else if (WORDS || is_aligned(rows, D, 4)) tile_copy<DP, N, THREADS, 4>(tile, rows, b, first, h, end, D);
    else tile_copy_single<DP, N, THREADS>(tile, rows, b, first, h, end, D);
}

/* 16 rows of a tile as A's of 16 columns each: in registers, or read each time. */
template <int DP, bool HOLDS> struct own_rows {
    const uint16_t *at;
    __device__ inline void take(const uint16_t *tile, int first) {
        const int lane = lane_of();
        at = tile + (first + lane % 16) * tile_row<DP>() + lane / 16 * 8;
    }
    __device__ inline void get(uint32_t (&a)[4], int k) const { parts_load<false>(a, at + 16 * k); }
};
template <int DP> struct own_rows<DP, true> {
    uint32_t held[DP / 16][4];
    __device__ inline void take(const uint16_t *tile, int first) {
        own_rows<DP, false> rows;
        rows.take(tile, first);
#pragma unroll
        for (int k = 0; k < DP / 16; k++) rows.get(held[k], k);
    }
    __device__ inline void get(uint32_t (&a)[4], int k) const {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = held[k][i];
    }
};

/* c (16,N) = own (16,DP) tile^T: the tile's N rows are the columns of the result. */
template <class T, int DP, int N, class OWN>
__device__ inline void multiply_rows(float (&c)[N / 8][4], const OWN &own, const uint16_t *tile) {
    const int lane = lane_of();
    const uint16_t *at = tile + (lane / 16 * 8 + lane % 8) * tile_row<DP>() + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) c[n][i] = 0;
#pragma unroll
    for (int k = 0; k < DP / 16; k++) {
        uint32_t a[4], b[4];
        own.get(a, k);
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            parts_load<false>(b, at + 8 * n * tile_row<DP>() + 16 * k);
            tensor_core<T>::multiply(c[n], a, b[0], b[1]);
            tensor_core<T>::multiply(c[n + 1], a, b[2], b[3]);
        }
    }
}

/* c (16,COLUMNS) += p (16,N) tile (N,COLUMNS): p, rounded, are the results of multiply_rows. */
template <class T, int DP, int COLUMNS, int N>
__device__ inline void multiply_columns(float (&c)[COLUMNS / 8][4], const float (&p)[N / 8][4], const uint16_t *tile) {
    const int lane = lane_of();
    const uint16_t *at = tile + lane % 16 * tile_row<DP>() + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const uint32_t a[4] = {pair_of<T>(p[2 * k][0], p[2 * k][1]), pair_of<T>(p[2 * k][2], p[2 * k][3]),
                               pair_of<T>(p[2 * k + 1][0], p[2 * k + 1][1]),
                               pair_of<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n += 2) {
            uint32_t b[4];
            parts_load<true>(b, at + 16 * k * tile_row<DP>() + 8 * n);
            tensor_core<T>::multiply(c[n], a, b[0], b[1]);
            tensor_core<T>::multiply(c[n + 1], a, b[2], b[3]);
        }
    }
}

/* ---- Products in f32 --------------------------------------------------------------------------------- */

/* An f32 is the sum of two tf32, so a product is the sum of three: high by high, and high by low both ways; low by low
 * is less than f32 holds of it. Small products have sums of their own. Sums on the tensor cores are cut instead of
 * rounded, so that many of them would shrink the result: those of a tile are added to others by f32 additions. */
struct f32_sums {
    float large[4], small[4];
    __device__ inline void clear() {
#pragma unroll
        for (int i = 0; i < 4; i++) large[i] = small[i] = 0;
    }
    __device__ inline float get(int i) const { return large[i] + small[i]; }
};
/* Those of N / 8 results += a (16,8) b (8,N), of which b has four elements for two results. */
template <int N>
__device__ inline void f32_multiply(f32_sums (&c)[N], const tf32_pairs &a, const tf32_pairs (&b)[(N + 1) / 2]) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        const tf32_pairs &of = b[n / 2];
        tensor_core<tf32>::multiply(c[n].small, a.low, of.high[n % 2 * 2], of.high[n % 2 * 2 + 1]);
        tensor_core<tf32>::multiply(c[n].large, a.high, of.high[n % 2 * 2], of.high[n % 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        const tf32_pairs &of = b[n / 2];
        tensor_core<tf32>::multiply(c[n].small, a.high, of.low[n % 2 * 2], of.low[n % 2 * 2 + 1]);
    }
}

/* multiply_rows; the tile has N rows of DP f32. */
template <int DP, int N, class OWN>
__device__ inline void multiply_rows_f32(float (&c)[N / 8][4], const OWN &own, const uint16_t *tile) {
    enum { ROW = tile_row<2 * DP>(), AT_ONCE = DP > 64 ? 4 : DP / 8 };
    const int lane = lane_of();
    const uint16_t *at = tile + (lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * 8;
    f32_sums sums[N / 16][2];
#pragma unroll
    for (int n = 0; n < N / 8; n++) sums[n / 2][n % 2].clear();
#pragma unroll AT_ONCE
    for (int k = 0; k < DP / 8; k++) {
        uint32_t bits[4];
        tf32_pairs a, b[1];
        own.get(bits, k);
        a.set_all(bits);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            parts_load<false>(bits, at + 16 * n * ROW + 16 * k);
            b[0].set_all(bits);
            f32_multiply<2>(sums[n], a, b);
        }
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) c[n][i] = sums[n / 2][n % 2].get(i);
}

/* Groups of results that are summed side by side. */
template <int ALL, int STEPS, int ROW>
__device__ inline void groups_add_f32(float (&c)[ALL][4], const tf32_pairs (&a)[STEPS], const float *at) {
    enum { GROUP = ALL >= 8 && ALL % 2 == 0 ? 2 : ALL % 4 == 0 ? 4 : ALL % 3 == 0 ? 3 : ALL };
    static_assert(ALL % GROUP == 0 && GROUP <= 5, "sums of a group are in registers");
#pragma unroll
    for (int first = 0; first < ALL; first += GROUP) {
        f32_sums sums[GROUP];
#pragma unroll
        for (int n = 0; n < GROUP; n++) sums[n].clear();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            tf32_pairs b[(GROUP + 1) / 2];
#pragma unroll
            for (int n = 0; n < GROUP; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) b[n / 2].set(n % 2 * 2 + i, at[(8 * k + i) * ROW + 8 * (first + n)]);
            f32_multiply<GROUP>(sums, a[k], b);
        }
#pragma unroll
        for (int n = 0; n < GROUP; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[first + n][i] += sums[n].get(i);
    }
}

/* multiply_columns, of a tile of f32, 32 of its rows at a time. A sum is the same in any order of its terms. So that p
 * can stay where it is, and reads of shared memory take different banks, a lane has of eight rows of the tile not
 * lane % 4 and lane % 4 + 4, but 2 (lane % 4) and the next, in which columns of p it has. */
template <int DP, int COLUMNS, int N>
__device__ inline void multiply_columns_f32(float (&c)[COLUMNS / 8][4], const float (&p)[N / 8][4],
                                            const uint16_t *tile) {
    enum { ROW = tile_row<2 * DP>() / 2, STEPS = N / 8 < 4 ? N / 8 : 4 };
    const float *at = (const float *)tile + lane_pair() * ROW + lane_row();
#pragma unroll
    for (int begin = 0; begin < N / 8; begin += STEPS, at += 8 * STEPS * ROW) {
        tf32_pairs a[STEPS];
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            const float(&own)[4] = p[begin + k];
            a[k].set(0, own[0]), a[k].set(1, own[2]), a[k].set(2, own[1]), a[k].set(3, own[3]);
        }
        groups_add_f32<COLUMNS / 8, STEPS, ROW>(c, a, at);
    }
}

/* ---- Scores ------------------------------------------------------------------------------------------- */

/* c tanh(s / c) = c - 2 c / (e^(2 s / c) + 1), in powers of two, of a product; `cap` is c in powers of two, and `grow`
 * turns a product into the exponent. Its error is some 2^-22 of c. */
__device__ inline float capped_score(float product, float grow, float cap) {
    return cap - 2 * cap / (exp2_of(product * grow) + 1);
}
/* T: the operands' dtype. What is computed in f32 throughout gets a tanh that is exact to f32 near 0, too. */
template <class T, int N> __device__ inline void scores_cap(float (&p)[N / 8][4], const attention_call &a) {
    const float cap = (float)a.soft_cap * LOG2_E, share = (float)a.scale / (float)a.soft_cap;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[j][i] = sizeof(T) == 4 ? cap * tanhf(p[j][i] * share) : capped_score(p[j][i], 2 * share * LOG2_E, cap);
}
/* The factor from products, capped or not, to scores in powers of two. */
__device__ inline float score_scale(const attention_call &a) { return a.soft_cap > 0 ? 1.0f : (float)a.scale * LOG2_E; }

/* What an element of a mask adds to a score in powers of two; lowest where it hides. */
__device__ inline float mask_added(uint8_t x) { return x ? 0 : lowest<float>(); }
__device__ inline float mask_added(bf16 x) { return value_of<float>(x) * LOG2_E; }
__device__ inline float mask_added(f16 x) { return value_of<float>(x) * LOG2_E; }
__device__ inline float mask_added(float x) { return x * LOG2_E; }

/* Neighbouring keys of every query are neighbours in memory, in pairs that are aligned. */
template <class M> __device__ inline bool mask_has_pairs(const attention_call &a) {
    return a.mask_stride[3] == 1 && (a.mask_stride[0] | a.mask_stride[1] | a.mask_stride[2]) % 2 == 0 &&
           (uintptr_t)a.mask % (2 * sizeof(M)) == 0;
}
/* What a mask adds to the lane's elements of (16,N) results: of its two rows, whose first elements are at `above` and
 * `below`, in columns from `at` (even) to n - 1, `stride` elements apart. */
template <class M, int N>
__device__ inline void mask_read(float (&added)[N / 8][4], const M *above, const M *below, int64_t stride,
                                 bool has_pairs, int at, int n) {
    const int first = at + lane_pair();
    if (at + N > n) {
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const M *const row = i < 2 ? above : below;
                added[j][i] = mask_added(row[min(first + 8 * j + i % 2, n - 1) * stride]);
            }
        return;
    }
    above += first * stride, below += first * stride;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        unit<M, 2> x, y;
        if (has_pairs) {
            x = *(const unit<M, 2> *)(above + 8 * j), y = *(const unit<M, 2> *)(below + 8 * j);
        } else {
            x.v[0] = above[8 * j * stride], x.v[1] = above[(8 * j + 1) * stride];
            y.v[0] = below[8 * j * stride], y.v[1] = below[(8 * j + 1) * stride];
        }
        added[j][0] = mask_added(x.v[0]), added[j][1] = mask_added(x.v[1]);
        added[j][2] = mask_added(y.v[0]), added[j][3] = mask_added(y.v[1]);
    }
}

/* What the mask adds to the warp's scores of rows from `first` on and N columns from `at` on, in powers of two. Rows
 * are queries or, KEYS_FIRST, keys. */
template <class M, int N, bool KEYS_FIRST>
__device__ inline void mask_rows(float (&added)[N / 8][4], const attention_call &a, int64_t b, int64_t h, int first,
                                 int at) {
    const M *const head = (const M *)a.mask + b * a.mask_stride[0] + h * a.mask_stride[1];
    const int n_rows = (int)(KEYS_FIRST ? a.S : a.T), n = (int)(KEYS_FIRST ? a.T : a.S);
    const int64_t row_stride = a.mask_stride[KEYS_FIRST ? 3 : 2], stride = a.mask_stride[KEYS_FIRST ? 2 : 3];
    const M *const above = head + min(first + lane_row(), n_rows - 1) * row_stride;
    const M *const below = head + min(first + lane_row() + 8, n_rows - 1) * row_stride;
    mask_read<M, N>(added, above, below, stride, !KEYS_FIRST && mask_has_pairs<M>(a), at, n);
}
template <int N, bool KEYS_FIRST>
__device__ inline void mask_load(float (&added)[N / 8][4], const attention_call &a, int64_t b, int64_t h, int first,
                                 int at) {
    if (a.mask_dtype == TL_BOOL) mask_rows<uint8_t, N, KEYS_FIRST>(added, a, b, h, first, at);
    else if (a.mask_dtype == TL_BF16) mask_rows<bf16, N, KEYS_FIRST>(added, a, b, h, first, at);
    else if (a.mask_dtype == TL_F16) mask_rows<f16, N, KEYS_FIRST>(added, a, b, h, first, at);
    else mask_rows<float, N, KEYS_FIRST>(added, a, b, h, first, at);
}

/* ---- Softmax ----------------------------------------------------------------------------------------- */

/* Over the four lanes that share a row. */
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* Softmax so far: the largest score and the sum of the weights, of the lane's two rows. */
struct row_softmax {
    float top[2], sum[2];
};

/* Turns scores into weights, brings the sums so far to the new maximum, and drops. */
template <int N, int DP>
__device__ inline void weights_of(float (&p)[N / 8][4], row_softmax &r, float (&o)[DP / 8][4], const tile_mask &mask,
                                  uint64_t mask_block, int at) {
    float top[2] = {r.top[0], r.top[1]}, shift[2];
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) top[i / 2] = fmaxf(top[i / 2], p[j][i]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = row_max(top[i]);
        shift[i] = top[i] == lowest<float>() ? 0 : top[i]; /* nothing seen yet: 2^-inf is the 0 we want */
        const float shrink = exp2_of(r.top[i] - shift[i]);
        r.top[i] = top[i];
        r.sum[i] *= shrink;
#pragma unroll
        for (int j = 0; j < DP / 8; j++) o[j][2 * i] *= shrink, o[j][2 * i + 1] *= shrink;
    }
    const uint32_t dropped = dropped_queries < N, N / 16 < 2 ? 1 : 2 > (mask, mask_block, at, 0, INT32_MAX);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float weight = exp2_of(p[j][i] - shift[i / 2]);
            r.sum[i / 2] += weight;
            p[j][i] = is_dropped(dropped, j, i) ? 0 : weight;
        }
}

#endif
