/* attention.cuh: what our attention kernels share: which keys a query sees, which of them dropout keeps, and powers of
 * two for exponentials.
 *
 * Both instructions for tensor cores (mma, and the warpgroup's wgmma) leave their results alike: of 16 rows and 8
 * columns, a lane has (row, pair), (row, pair + 1), (row + 8, pair) and (row + 8, pair + 1), in this order.
 */
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH

#include "device/cuda/ops/attention.h"
#include "device/cuda/shared/dropout.cuh"
#include "device/cuda/shared/common.cuh"

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

/* ---- Scores in f32 or f64 ------------------------------------------------------------------------------ */

__device__ inline float fma_of(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fma_of(double a, double b, double c) { return fma(a, b, c); }

__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }

/* Of scaled products: c tanh(s / c) with a soft cap. */
template <class C> __device__ inline C plain_score(const attention_call &a, C dot) {
    const C s = C(a.scale) * dot;
    return a.soft_cap > 0 ? C(a.soft_cap) * tanh_of(s / C(a.soft_cap)) : s;
}
/* The slope of the cap there. */
template <class C> __device__ inline C cap_slope(const attention_call &a, C dot) {
    if (a.soft_cap == 0) return C(1);
    const C t = tanh_of(C(a.scale) * dot / C(a.soft_cap));
    return C(1) - t * t;
}

/* The score of query t and key s, whose rows have the product `dot`. */
template <class C>
__device__ inline C score_of(const attention_call &a, int64_t b, int64_t h, int64_t t, int64_t s, C dot) {
    if (!a.mask) return plain_score(a, dot);
    const int64_t at = b * a.mask_stride[0] + h * a.mask_stride[1] + t * a.mask_stride[2] + s * a.mask_stride[3];
    const C added = load_as<C>(a.mask, at, a.mask_dtype);
    if (a.mask_dtype == TL_BOOL) return added != C(0) ? plain_score(a, dot) : lowest<C>();
    return plain_score(a, dot) + added;
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

/* The mask of a call: block number first + row row_blocks + s / 8 has keys s .. s + 7 of row (b H + h) T + t. Kernels
 * get it as a parameter, so that the keys of Philox's rounds are constants there. Of the first round they are left the
 * product with the block's number: the other one is of the stream alone. */
struct tile_mask {
    rng_block begin;                               /* what the first round makes of the stream, with its key */
    rng_philox_key round_key[RNG_MASK_ROUNDS - 1]; /* of the others */
    uint64_t first, row_blocks;
    uint32_t shift; /* dropout_shift */
    float growth;   /* of what is kept */
    bool drops;     /* anything at all */
    bool is_most;   /* drops_most */
};
static inline tile_mask mask_of(const attention_call &a) {
    const uint32_t threshold = rng_mask_threshold(a.dropout);
    tile_mask m = {};
    rng_philox_key key = rng_philox_key_of(a.generator.seed);
    m.begin = rng_philox_round(rng_counter(dropout_key(a.generator), 0), key);
    for (rng_philox_key &next : m.round_key) next = key = rng_philox_next_key(key);
    m.first = dropout_first(a.generator) / 8, m.row_blocks = dropout_row_elements(a.S) / 8;
    m.shift = dropout_shift(threshold), m.growth = (float)(1 / (1 - a.dropout));
    m.drops = threshold < 0x10000u, m.is_most = drops_most(threshold);
    return m;
}

/* rng_mask_block_at. A round makes (hi(b x2) ^ x1 ^ k0, lo(b x2), hi(a x0) ^ x3 ^ k1, lo(a x0)) of x; in the first one
 * x0 and x1 are the block's number, x2 and x3 the stream. */
__device__ inline rng_block block_draw(const tile_mask &mask, uint64_t block) {
    uint32_t low; /* written out, since the compiler multiplies 64 bits otherwise */
    asm("cvt.u32.u64 %0, %1;" : "=r"(low) : "l"(block));
    const rng_block number = {{low, (uint32_t)(block >> 32), 0, 0}};
    rng_block x = rng_philox_round(number, {{mask.begin.word[0], mask.begin.word[2]}});
    x.word[1] = mask.begin.word[1];
#pragma unroll
    for (int round = 1; round < RNG_MASK_ROUNDS; round++) x = rng_philox_round(x, mask.round_key[round - 1]);
    return x;
}

/* A lane has its part of the mask as a word: of up to eight results (16 rows, 8 columns) side by side, bit n of byte i
 * is set where element i of result n is dropped. */
__device__ inline bool is_dropped(uint32_t dropped, int n, int i) { return dropped >> (8 * i + n) & 1; }

/* Elements 2 i and 2 i + 1 of result n in one register, with zeros for those that are dropped. */
__device__ inline uint32_t two_kept(uint32_t two, uint32_t dropped, int n, int i) {
    return two & ~bytes_of(dropped << (7 - n), 0, i ? 0xBBAA : 0x9988);
}

/* Lanes draw whole blocks, each of them another one, and then share them: they exchange bits until all have what they
 * need. In one step, the lanes whose numbers differ in one bit, `lane_bit`, exchange half of their words, so that this
 * bit takes the place of a bit of the places in a word: of a byte's number (halves: the upper one, bytes: the lower
 * one), or of the lowest bit of the places in a byte. */
__device__ inline uint32_t halves_exchange(uint32_t x, int lane_bit) {
    const uint32_t other = __shfl_xor_sync(ALL_LANES, x, lane_bit);
    return bytes_of(x, other, lane_of() & lane_bit ? 0x3276 : 0x5410);
}
__device__ inline uint32_t bytes_exchange(uint32_t x, int lane_bit) {
    const uint32_t other = __shfl_xor_sync(ALL_LANES, x, lane_bit);
    return bytes_of(x, other, lane_of() & lane_bit ? 0x3715 : 0x6240);
}
__device__ inline uint32_t bits_exchange(uint32_t x, int lane_bit) {
    const bool is_upper = lane_of() & lane_bit;
    const uint32_t other = __shfl_xor_sync(ALL_LANES, x, lane_bit), own = is_upper ? 0xAAAAAAAAu : 0x55555555u;
    return (x & own) | (__funnelshift_l(other, other, is_upper ? 31 : 1) & ~own);
}

/* Rows are queries. Four lanes have the same two rows, 8 apart, and 16 keys of them are four blocks: lane j of the four
 * draws row j % 2, keys from 8 (j / 2) on. This is its block at key 0, of results whose first row is first_row. */
__device__ inline uint64_t block_of_queries(const tile_mask &mask, int64_t first_row) {
    const int64_t row = first_row + lane_row() + lane_of() % 2 * 8;
    return mask.first + (uint64_t)row * mask.row_blocks + (uint64_t)(lane_of() % 4 / 2);
}
/* Of N keys from s0 on; none are drawn that are not in from .. to - 1, which any of the rows sees. AT_ONCE: blocks that
 * are drawn side by side. */
template <int N, int AT_ONCE, bool MOST>
__device__ inline uint32_t queries_draw(const tile_mask &mask, uint64_t block, int s0, int from, int to) {
    uint32_t drawn = 0; /* bit 2 k + key / 4 % 2 of byte key % 4, for keys from 16 k on */
#pragma unroll
    for (int k = N / 16 - AT_ONCE; k >= 0; k -= AT_ONCE) {
        const int s = s0 + 16 * k;
        drawn <<= 2 * AT_ONCE;
        if (s >= to || s + 16 * AT_ONCE <= from) continue;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            drawn |= eight_dropped<MOST>(mask.shift, block_draw(mask, block + (unsigned)s / 8 + 2 * i), 0) << 2 * i;
    }
    /* a lane needs keys 2 j and 2 j + 1 of 8: bytes 2 (j % 2) and the next, bits j / 2 */
    return bits_exchange(halves_exchange(drawn, 1), 2);
}
template <int N, int AT_ONCE>
__device__ inline uint32_t dropped_queries(const tile_mask &mask, uint64_t block, int s0, int from, int to) {
    if (!mask.drops) return 0;
    return mask.is_most ? queries_draw<N, AT_ONCE, true>(mask, block, s0, from, to)
                        : queries_draw<N, AT_ONCE, false>(mask, block, s0, from, to);
}

/* Rows are keys. Eight lanes have the same two queries of each result, and 16 keys of two results are eight blocks:
 * lane j of the eight, in row j, draws query j % 2 of result j / 4, keys from 8 (j / 2 % 2) on. This is its block, of
 * keys from s on, of results whose first query is in row first_row. */
__device__ inline uint64_t block_of_keys(const tile_mask &mask, int64_t first_row, int s) {
    const int j = lane_row();
    const int64_t row = first_row + lane_pair() + j % 2 + j / 4 * 8;
    return mask.first + (uint64_t)row * mask.row_blocks + (uint64_t)((unsigned)s / 8 + j / 2 % 2);
}
/* Of N queries. The first key is `ahead` of the first query, and a key is seen where it is least .. most ahead: none of
 * 16 x 16 is drawn where no query sees a key. */
template <int N, int AT_ONCE, bool MOST>
__device__ inline uint32_t keys_draw(const tile_mask &mask, uint64_t block, int ahead, int least, int most) {
    uint32_t drawn = 0; /* bit 2 k + key / 4 of byte key % 4, for queries from 16 k on */
    ahead -= N - 16, block += (N - 16) * mask.row_blocks;
#pragma unroll AT_ONCE
    for (int k = 0; k < N / 16; k++, ahead += 16, block -= 16 * mask.row_blocks) {
        drawn <<= 2;
        if (ahead - 15 <= most && ahead + 15 >= least)
            drawn = eight_dropped<MOST>(mask.shift, block_draw(mask, block), drawn);
    }
    /* a lane needs key j: byte j % 4, bits j / 4 */
    return bits_exchange(halves_exchange(bytes_exchange(drawn, 4), 8), 16);
}
template <int N, int AT_ONCE>
__device__ inline uint32_t dropped_keys(const tile_mask &mask, uint64_t block, int ahead, int least, int most) {
    if (!mask.drops) return 0;
    return mask.is_most ? keys_draw<N, AT_ONCE, true>(mask, block, ahead, least, most)
                        : keys_draw<N, AT_ONCE, false>(mask, block, ahead, least, most);
}

#endif
