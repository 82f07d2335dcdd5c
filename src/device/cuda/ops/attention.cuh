/* attention.cuh: what our attention kernels share: which keys a query sees, which of them dropout keeps, and powers of
 * two for exponentials.
 *
 * Both instructions for tensor cores (mma, and the warpgroup's wgmma) leave their results alike: of 16 rows and 8
 * columns, a lane has (row, pair), (row, pair + 1), (row + 8, pair) and (row + 8, pair + 1), in this order.
 */
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH

#include "device/cuda/ops/attention.h"
#include "device/cuda/shared/common.cuh"

#include "spec/dropout.h"

#define ALL_LANES 0xffffffffu
#define LOG2_E 1.4426950408889634f

/* ---- What sees what ----------------------------------------------------------------------------------- */

__device__ inline int64_t given_first_key(const attention_call &a, int64_t b, int64_t t) {
    const int64_t at = b * a.first_key_stride[0] + t * a.first_key_stride[1];
    return a.first_key_dtype == TL_I64 ? ((const int64_t *)a.first_key)[at] : ((const int32_t *)a.first_key)[at];
}

/* The keys that query t of batch entry b sees: from first_key to visible_keys - 1. */
__device__ inline int64_t visible_keys(const attention_call &a, int64_t t) {
    const int64_t n = a.S - a.T + t + a.right + 1;
    return n < 0 ? 0 : n < a.S ? n : a.S;
}
__device__ inline int64_t first_key(const attention_call &a, int64_t b, int64_t t) {
    const int64_t s = a.S - a.T + t - a.left, least = s > 0 ? s : 0;
    if (!a.first_key) return least;
    const int64_t given = given_first_key(a, b, t), first = given > least ? given : least;
    return first < a.S ? first : a.S; /* fits an int where S does */
}

/* The queries that see key s: from first_query to end_query - 1. */
__device__ inline int64_t first_query(const attention_call &a, int64_t s) {
    const int64_t t = s - (a.S - a.T) - a.right;
    return t > 0 ? t : 0;
}
__device__ inline int64_t end_query(const attention_call &a, int64_t b, int64_t s) {
    int64_t t = 0, end = s - (a.S - a.T) + a.left + 1;
    end = end < a.T ? end : a.T;
    while (a.first_key && t < end) { /* one beyond the last whose first key is at most s */
        const int64_t middle = t + (end - t) / 2;
        if (given_first_key(a, b, middle) <= s) t = middle + 1;
        else end = middle;
    }
    return end;
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

/* A row of 16-bit elements. */
__device__ inline uint16_t *row_at(const attention_rows &rows, int64_t b, int64_t t, int64_t h) {
    return (uint16_t *)rows.data + b * rows.stride_b + t * rows.stride_t + h * rows.stride_h;
}

/* ---- Lanes -------------------------------------------------------------------------------------------- */

__device__ inline int lane_of() { return (int)threadIdx.x % 32; }
__device__ inline int lane_row() { return lane_of() / 4; }
__device__ inline int lane_pair() { return lane_of() % 4 * 2; }

/* 2^x, to 2 units in the last place; 0 of -inf. */
__device__ inline float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- Dropout ------------------------------------------------------------------------------------------ */

/* The mask of a call: block number first + (row words + s) / 4 has keys s .. s + 3 of row (b H + h) T + t. Kernels get
 * it as a parameter, so that the keys of Philox's rounds are constants there. */
struct tile_mask {
    rng_philox_key round_key[RNG_PHILOX_ROUNDS];
    uint64_t stream, first, row_blocks;
    uint32_t threshold;
    float growth; /* of what is kept */
    bool drops;   /* anything at all */
};
static inline tile_mask mask_of(const attention_call &a) {
    const uint64_t threshold = rng_threshold(1 - a.dropout); /* 2^32: all are kept */
    tile_mask m = {{},
                   a.generator.stream,
                   a.generator.index / 4,
                   dropout_row_words(a.S) / 4,
                   (uint32_t)threshold,
                   (float)(1 / (1 - a.dropout)),
                   a.dropout > 0 && threshold <= UINT32_MAX};
    m.round_key[0] = rng_philox_key_of(a.generator.seed);
    for (int round = 1; round < RNG_PHILOX_ROUNDS; round++)
        m.round_key[round] = rng_philox_next_key(m.round_key[round - 1]);
    return m;
}

/* The four keys of a block: bit i, whether the i-th is kept. */
__device__ inline unsigned keeps_four(const tile_mask &m, uint64_t block) {
    rng_block x = {{(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)m.stream, (uint32_t)(m.stream >> 32)}};
#pragma unroll
    for (int round = 0; round < RNG_PHILOX_ROUNDS; round++) x = rng_philox_round(x, m.round_key[round]);
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) bits |= x.word[i] < m.threshold ? 1u << i : 0;
    return bits;
}

/* Two neighbouring lanes share four keys of two queries, and draw one of the two each. The block that this lane draws
 * for a result (16 queries, 8 keys) that begins in row `first_row`, at key 0. */
__device__ inline uint64_t keeps_row(const tile_mask &m, int64_t first_row) {
    const int64_t row = first_row + lane_row() + lane_of() % 2 * 8;
    return m.first + (uint64_t)row * m.row_blocks + (uint64_t)(lane_of() % 4 / 2);
}

/* From what each lane drew to what it has: of its four elements of such a result, bit i, whether element i is kept; of
 * up to eight results side by side, four bits each. */
__device__ inline unsigned queries_share(unsigned own) {
    const int is_odd = lane_of() % 2;
    const unsigned other = __shfl_xor_sync(ALL_LANES, own, 1);
    const unsigned above = is_odd ? other : own, below = is_odd ? own : other;
    return (above >> 2 * is_odd & 0x33333333u) | (below >> 2 * is_odd & 0x33333333u) << 2;
}
/* The same of one result, at key s. */
__device__ inline unsigned keeps_queries(const tile_mask &m, uint64_t row, int s) {
    return m.drops ? queries_share(keeps_four(m, row + (uint64_t)(s / 4))) : 15;
}

/* Of a result (16 keys, 8 queries), four lanes share four keys, of two queries and 8 keys apart, and draw one of the
 * four each: this lane's block. */
__device__ inline uint64_t keeps_column(const tile_mask &m, int64_t first_row, int s) {
    const int turn = lane_row() % 4;
    const int64_t row = first_row + lane_pair() + turn % 2;
    return m.first + (uint64_t)row * m.row_blocks + (uint64_t)(s / 4 + turn / 2 * 2 + lane_row() / 4);
}
__device__ inline unsigned keys_share(unsigned own) {
    const int turn = lane_row() % 4;
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned of_i = __shfl_sync(ALL_LANES, own, (lane_of() & ~12) | i << 2);
        bits |= (of_i >> turn & 0x11111111u) << i;
    }
    return bits;
}
__device__ inline unsigned keeps_keys(const tile_mask &m, int64_t first_row, int s) {
    return m.drops ? keys_share(keeps_four(m, keeps_column(m, first_row, s))) : 15;
}

#endif
