/* dropout.cuh: which elements dropout keeps (spec/dropout.h), eight at a time.
 *
 * A block of Philox has a 16-bit draw for each of eight elements, and an element is dropped if its draw is not below
 * the threshold t. Two draws are compared at once, in the two halves of a word w. The draws from 2^15 on are those
 * whose sign is set. With b = 2^15 - t, whose sum with a draw wraps in 16 bits, the sum's sign is set for the 2^15
 * draws from t on, wrapped too. So where t is at least 2^15, a draw is dropped if both signs are set, where it is at
 * most 2^15, if either is:
 *
 *   t >= 2^15   sign of the signed maximum of w + b and w          t <= 2^15   sign of their minimum
 *
 * which is one instruction on Hopper: "and" and "or" of the signs. Another one, a permutation of bytes, repeats the
 * signs of two words over four bytes.
 */
#ifndef CUDA_DROPOUT_CUH
#define CUDA_DROPOUT_CUH

#include "device/cuda/shared/common.cuh"

#include "spec/dropout.h"

/* 2^15 - threshold, in both halves; and whether that is above 0: dropout drops more than half. */
static inline uint32_t dropout_shift(uint32_t threshold) { return ((0x8000u - threshold) & 0xFFFFu) * 0x10001u; }
__host__ __device__ inline bool drops_most(uint32_t threshold) { return threshold < 0x8000u; }

/* Bytes of x (0 .. 3) and y (4 .. 7), chosen by the digits of `which`; of a digit with 8 added, only the sign, eight
 * times. */
__device__ inline uint32_t bytes_of(uint32_t x, uint32_t y, uint32_t which) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(x), "r"(y), "r"(which));
    return bytes;
}

/* In the sign of each half, whether the draw there is dropped; MOST: drops_most. */
template <bool MOST> __device__ inline uint32_t halves_dropped(uint32_t shift, uint32_t draws) {
#if __CUDA_ARCH__ >= 900
    return MOST ? __viaddmin_s16x2(draws, shift, draws) : __viaddmax_s16x2(draws, shift, draws);
#else
    const uint32_t sums = __vadd2(draws, shift);
    return MOST ? sums | draws : sums & draws;
#endif
}

/* Of the elements of a block, bit i / 4 of byte i % 4: whether element i is dropped; with other bits, `rest`. */
template <bool MOST> __device__ inline uint32_t eight_dropped(uint32_t shift, const rng_block &block, uint32_t rest) {
    const uint32_t a = halves_dropped<MOST>(shift, block.word[0]), b = halves_dropped<MOST>(shift, block.word[1]);
    const uint32_t x = halves_dropped<MOST>(shift, block.word[2]), y = halves_dropped<MOST>(shift, block.word[3]);
    rest |= bytes_of(a, b, 0xFDB9) & 0x01010101u;
    return rest | (bytes_of(x, y, 0xFDB9) & 0x02020202u);
}

/* rng_mask_draw of any lane, with all words in registers. */
__device__ inline uint32_t mask_draw_of(const rng_block &block, int lane) {
    const uint32_t left = lane & 2 ? block.word[1] : block.word[0], right = lane & 2 ? block.word[3] : block.word[2];
    return (lane & 4 ? right : left) >> 16 * (lane & 1) & 0xFFFFu;
}

/* ---- Tensors ---- */

struct dropout_draws {
    struct rng_key key;
    uint64_t first;            /* the block of elements 0 .. 7 */
    uint32_t threshold, shift; /* the latter of the former */
    double growth;             /* of what is kept; 0: there is no dropout */
};
static inline dropout_draws dropout_draws_of(double p, tl_generator g) {
    const uint32_t threshold = rng_mask_threshold(p);
    return {dropout_key(g), dropout_first(g) / 8, threshold, dropout_shift(threshold), p > 0 ? 1 / (1 - p) : 0};
}

/* Which of elements i .. i + U - 1 are dropped, as above; i is a multiple of U. Eight are a block. */
template <int U> __device__ inline uint32_t dropped_bits(const dropout_draws &d, int64_t i) {
    static_assert(U == 1 || U == 2 || U == 8, "parts of a block, or blocks");
    const rng_block block = rng_mask_block_at(d.key, d.first + (uint64_t)i / 8);
    if (U < 8) {
        uint32_t bits = 0;
        for (int j = 0; j < U; j++)
            bits |= (uint32_t)!rng_mask_keeps(mask_draw_of(block, (int)(i % 8) + j), d.threshold) << (8 * j);
        return bits;
    }
    return drops_most(d.threshold) ? eight_dropped<true>(d.shift, block, 0) : eight_dropped<false>(d.shift, block, 0);
}

template <int U, class C> __device__ inline void drop_unit(const dropout_draws &d, uint32_t dropped, C (&x)[U]) {
    const C growth = (C)d.growth;
#pragma unroll
    for (int j = 0; j < U; j++) x[j] = dropped >> (8 * (j % 4) + j / 4) & 1 ? C(0) : x[j] * growth;
}

#endif
