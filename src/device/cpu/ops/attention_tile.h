/* attention_tile.h: the two matrix products of attention, on one tile of registers at a time.
 *
 *     tile_of_rows       c[i][j] = or += sum over p of a[i][p] b[p][j]       a is row-major
 *     tile_of_columns    c[i][j] = or += sum over p of a[p][i] b[p][j]       a is column-major
 *
 * for TILE_M rows i and N = 2 vectors of columns j. Operands are in a thread's own buffers, padded to whole tiles, so
 * there are no edges. In tile_of_rows n_k is a multiple of 4. Each sum runs over p in order in one accumulator,
 * begins at 0 and is added to c at the end: the bits do not depend on which of the two forms was used, nor on how
 * rows and columns were cut into tiles.
 *
 * Multiply-adds are fused where the chip does so in one instruction, and rounded twice elsewhere.
 */
#ifndef TALLY_DEVICE_CPU_ATTENTION_TILE_H
#define TALLY_DEVICE_CPU_ATTENTION_TILE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

/* Rows of a tile: as many as fit in 32 or 16 registers beside two vectors of b. Sizes here divide 64. */
#if defined(__aarch64__) || defined(__AVX512F__)
#define TILE_M 8
#else
#define TILE_M 4
#endif

#if defined(__AVX512F__)
#define TILE_BYTES 64
#elif defined(__AVX__)
#define TILE_BYTES 32
#else
#define TILE_BYTES 16
#endif
#define TILE_N_F32 (2 * TILE_BYTES / 4)
#define TILE_N_F64 (2 * TILE_BYTES / 8)

#if defined(__clang__)
#define TILE_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define TILE_UNROLLED _Pragma("GCC unroll 8") /* without it gcc 12 keeps the sums in memory as well */
#endif

typedef float tile_f32 __attribute__((vector_size(TILE_BYTES)));
typedef double tile_f64 __attribute__((vector_size(TILE_BYTES)));
/* The same in memory, with the alignment of one element. */
typedef float tile_stored_f32 __attribute__((vector_size(TILE_BYTES), aligned(4), may_alias));
typedef double tile_stored_f64 __attribute__((vector_size(TILE_BYTES), aligned(8), may_alias));

/* sum + b * a for one number a. */
#if defined(__aarch64__)
#define TILE_ADD_F32(sum, b, a) vfmaq_n_f32(sum, b, a)
#define TILE_ADD_F64(sum, b, a) vfmaq_n_f64(sum, b, a)
#elif defined(__AVX512F__)
#define TILE_ADD_F32(sum, b, a) ((tile_f32)_mm512_fmadd_ps((__m512)(b), _mm512_set1_ps(a), (__m512)(sum)))
#define TILE_ADD_F64(sum, b, a) ((tile_f64)_mm512_fmadd_pd((__m512d)(b), _mm512_set1_pd(a), (__m512d)(sum)))
#elif defined(__FMA__)
#define TILE_ADD_F32(sum, b, a) ((tile_f32)_mm256_fmadd_ps((__m256)(b), _mm256_set1_ps(a), (__m256)(sum)))
#define TILE_ADD_F64(sum, b, a) ((tile_f64)_mm256_fmadd_pd((__m256d)(b), _mm256_set1_pd(a), (__m256d)(sum)))
#else
#define TILE_ADD_F32(sum, b, a) ((sum) + (b) * (a))
#define TILE_ADD_F64(sum, b, a) ((sum) + (b) * (a))
#endif

#if defined(__aarch64__)

/* A vector of a feeds multiply-adds lane by lane: one load for every four. */
static inline void tile_of_columns_f32(int64_t n_k, const float *a, int64_t a_step, const float *b, int64_t b_step,
                                       float *c, int64_t c_step, bool add) {
    float32x4_t sum[8][2];
    TILE_UNROLLED
    for (int i = 0; i < 8; i++) sum[i][0] = sum[i][1] = vdupq_n_f32(0);
    for (int64_t p = 0; p < n_k; p++) {
        const float32x4_t b0 = vld1q_f32(b + p * b_step), b1 = vld1q_f32(b + p * b_step + 4);
        const float32x4_t a0 = vld1q_f32(a + p * a_step), a1 = vld1q_f32(a + p * a_step + 4);
#define TILE_ROW(i, vector, lane)                             \
    sum[i][0] = vfmaq_laneq_f32(sum[i][0], b0, vector, lane); \
    sum[i][1] = vfmaq_laneq_f32(sum[i][1], b1, vector, lane);
        TILE_ROW(0, a0, 0)
        TILE_ROW(1, a0, 1)
        TILE_ROW(2, a0, 2)
        TILE_ROW(3, a0, 3)
        TILE_ROW(4, a1, 0)
        TILE_ROW(5, a1, 1)
        TILE_ROW(6, a1, 2)
        TILE_ROW(7, a1, 3)
#undef TILE_ROW
    }
    TILE_UNROLLED
    for (int i = 0; i < 8; i++) {
        float *row = c + i * c_step;
        if (add) {
            sum[i][0] = vaddq_f32(sum[i][0], vld1q_f32(row));
            sum[i][1] = vaddq_f32(sum[i][1], vld1q_f32(row + 4));
        }
        vst1q_f32(row, sum[i][0]);
        vst1q_f32(row + 4, sum[i][1]);
    }
}

/* Four terms of eight rows at a time: 16 loads for 64 multiply-adds, and 16 of these between two that use the same
 * sum. Written out because gcc 12 moves those closer together, which is 10 % slower. v0-v7 hold a, v8-v23 sums,
 * v24-v31 b. */
#define TILE_FMLA(sum, b, a, p) "fmla v" #sum ".4s, v" #b ".4s, v" #a ".s[" #p "]\n\t"
#define TILE_LEFT(b, p)    \
    TILE_FMLA(8, b, 0, p)  \
    TILE_FMLA(10, b, 1, p) \
    TILE_FMLA(12, b, 2, p) \
    TILE_FMLA(14, b, 3, p) TILE_FMLA(16, b, 4, p) TILE_FMLA(18, b, 5, p) TILE_FMLA(20, b, 6, p) TILE_FMLA(22, b, 7, p)
#define TILE_RIGHT(b, p)   \
    TILE_FMLA(9, b, 0, p)  \
    TILE_FMLA(11, b, 1, p) \
    TILE_FMLA(13, b, 2, p) \
    TILE_FMLA(15, b, 3, p) TILE_FMLA(17, b, 4, p) TILE_FMLA(19, b, 5, p) TILE_FMLA(21, b, 6, p) TILE_FMLA(23, b, 7, p)
#define TILE_ZERO(sum) "movi v" #sum ".4s, #0\n\t"
#define TILE_LOAD_B(left, right) "ldp q" #left ", q" #right ", [%[b]]\n\tadd %[b], %[b], %[b_step]\n\t"
#define TILE_LOAD_C(left, right)                          \
    "ldp q0, q1, [%[b]]\n\tadd %[b], %[b], %[c_step]\n\t" \
    "fadd v" #left ".4s, v" #left ".4s, v0.4s\n\tfadd v" #right ".4s, v" #right ".4s, v1.4s\n\t"
#define TILE_STORE_C(left, right) "stp q" #left ", q" #right ", [%[c]]\n\tadd %[c], %[c], %[c_step]\n\t"

static inline void tile_of_rows_f32(int64_t n_k, const float *a, int64_t a_step, const float *b, int64_t b_step,
                                    float *c, int64_t c_step, bool add) {
    const float *a4 = a + 4 * a_step;
    int64_t n = n_k / 4;
    const int64_t one = 4 * a_step, two = 8 * a_step, three = 12 * a_step, b_bytes = 4 * b_step, c_bytes = 4 * c_step;
    const int is_sum = add;
    __asm__ volatile(
        TILE_ZERO(8) TILE_ZERO(9) TILE_ZERO(10) TILE_ZERO(11) TILE_ZERO(12) TILE_ZERO(13) TILE_ZERO(14) TILE_ZERO(15)
            TILE_ZERO(16) TILE_ZERO(17) TILE_ZERO(18) TILE_ZERO(19) TILE_ZERO(20) TILE_ZERO(21) TILE_ZERO(22) TILE_ZERO(
                23) "cbz %[n], 2f\n\t"
                    "1:\n\t" TILE_LOAD_B(
                        24, 25) "ldr q0, [%[a]]\n\tldr q1, [%[a], %[one]]\n\tldr q2, [%[a], %[two]]\n\tldr q3, [%[a], "
                                "%[three]]\n\t"
                                "ldr q4, [%[a4]]\n\tldr q5, [%[a4], %[one]]\n\tldr q6, [%[a4], %[two]]\n\tldr q7, "
                                "[%[a4], %[three]]\n\t"
                                "add %[a], %[a], #16\n\tadd %[a4], %[a4], #16\n\t" TILE_LEFT(24, 0) TILE_LOAD_B(26, 27)
                                    TILE_RIGHT(25, 0) TILE_LEFT(26, 1) TILE_LOAD_B(28, 29) TILE_RIGHT(27, 1) TILE_LEFT(
                                        28, 2) TILE_LOAD_B(30, 31) TILE_RIGHT(29, 2)
                                        TILE_LEFT(30, 3) "subs %[n], %[n], #1\n\t" TILE_RIGHT(
                                            31, 3) "b.ne 1b\n\t"
                                                   "2: cbz %w[add], 3f\n\tmov %[b], %[c]\n\t" TILE_LOAD_C(8, 9)
                                                       TILE_LOAD_C(10, 11) TILE_LOAD_C(12, 13) TILE_LOAD_C(14, 15)
                                                           TILE_LOAD_C(16, 17) TILE_LOAD_C(18, 19) TILE_LOAD_C(20, 21)
                                                               TILE_LOAD_C(22, 23) "3:\n\t" TILE_STORE_C(8, 9)
                                                                   TILE_STORE_C(10, 11) TILE_STORE_C(12, 13)
                                                                       TILE_STORE_C(14, 15) TILE_STORE_C(16, 17)
                                                                           TILE_STORE_C(18, 19) TILE_STORE_C(20, 21)
                                                                               TILE_STORE_C(22, 23)
        : [n] "+&r"(n), [a] "+&r"(a), [a4] "+&r"(a4), [b] "+&r"(b), [c] "+&r"(c)
        : [one] "r"(one), [two] "r"(two), [three] "r"(three), [b_step] "r"(b_bytes), [c_step] "r"(c_bytes),
          [add] "r"(is_sum)
        : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
          "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29",
          "v30", "v31");
}

#else

#define REAL float
#define NAME(name) name##_f32
#define TILE_ADD TILE_ADD_F32
#define TILE_N TILE_N_F32
#include "device/cpu/ops/attention_tile_template.h"

#endif

#define REAL double
#define NAME(name) name##_f64
#define TILE_ADD TILE_ADD_F64
#define TILE_N TILE_N_F64
#include "device/cpu/ops/attention_tile_template.h"

#endif
