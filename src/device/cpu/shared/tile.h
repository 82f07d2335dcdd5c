/* tile.h: products of small matrices in a thread's own buffers, for float and double.
 *
 * The library's gemm is the right tool for one large f32 product. Attention, 16-bit matrices and many small
 * matrices need another: tiles of 50 to 100 rows, converted and laid out by the caller, multiplied on one
 * thread without any set-up cost. The heart is a block of TILE_ROWS x (2 vectors) of sums that stay in
 * registers while k runs:
 *
 *     c[i][j] += sum over p of a[p*a_step + i] * b[p*b_step + j]
 *
 * So in both operands the index that is *not* summed over is the contiguous one. Each sum runs over p in order
 * in one accumulator, hence results do not depend on how rows and columns were cut into tiles.
 *
 * Multiply-adds are fused where the chip does so in one instruction (Arm) and rounded twice elsewhere:
 * products of matrices differ between chips in the last bits anyway, whichever library computes them.
 */
#ifndef TALLY_DEVICE_CPU_TILE_H
#define TALLY_DEVICE_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX__)
#define TILE_VECTOR_BYTES 32
#else
#define TILE_VECTOR_BYTES 16
#endif

/* Sums in registers: 12 x 2 vectors of Arm's 32, 6 x 2 of the 16 that x86 has. */
#if defined(__aarch64__)
#define TILE_ROWS 12
#else
#define TILE_ROWS 6
#endif

/* Columns of a block. 48 is a multiple of every number of rows and columns here. */
#define TILE_COLUMNS_F32 (2 * TILE_VECTOR_BYTES / 4)
#define TILE_COLUMNS_F64 (2 * TILE_VECTOR_BYTES / 8)

typedef float tile_vector_f32 __attribute__((vector_size(TILE_VECTOR_BYTES)));
typedef double tile_vector_f64 __attribute__((vector_size(TILE_VECTOR_BYTES)));
/* The same in memory, with the alignment of one element. */
typedef float tile_memory_f32 __attribute__((vector_size(TILE_VECTOR_BYTES), aligned(4), may_alias));
typedef double tile_memory_f64 __attribute__((vector_size(TILE_VECTOR_BYTES), aligned(8), may_alias));

/* One step of a block: sum[i] += column[i] * (b0, b1) for its TILE_ROWS rows. On Arm a vector of the column feeds
 * multiply-adds lane by lane, which saves most of the loads. */
#if defined(__aarch64__)

static inline void tile_step_f32(tile_vector_f32 sum[TILE_ROWS][2], const float *column, tile_vector_f32 b0,
                                 tile_vector_f32 b1) {
    for (int i = 0; i < TILE_ROWS; i += 4) {
        const float32x4_t a = vld1q_f32(column + i);
        sum[i][0] = vfmaq_laneq_f32(sum[i][0], b0, a, 0);
        sum[i][1] = vfmaq_laneq_f32(sum[i][1], b1, a, 0);
        sum[i + 1][0] = vfmaq_laneq_f32(sum[i + 1][0], b0, a, 1);
        sum[i + 1][1] = vfmaq_laneq_f32(sum[i + 1][1], b1, a, 1);
        sum[i + 2][0] = vfmaq_laneq_f32(sum[i + 2][0], b0, a, 2);
        sum[i + 2][1] = vfmaq_laneq_f32(sum[i + 2][1], b1, a, 2);
        sum[i + 3][0] = vfmaq_laneq_f32(sum[i + 3][0], b0, a, 3);
        sum[i + 3][1] = vfmaq_laneq_f32(sum[i + 3][1], b1, a, 3);
    }
}

static inline void tile_step_f64(tile_vector_f64 sum[TILE_ROWS][2], const double *column, tile_vector_f64 b0,
                                 tile_vector_f64 b1) {
    for (int i = 0; i < TILE_ROWS; i += 2) {
        const float64x2_t a = vld1q_f64(column + i);
        sum[i][0] = vfmaq_laneq_f64(sum[i][0], b0, a, 0);
        sum[i][1] = vfmaq_laneq_f64(sum[i][1], b1, a, 0);
        sum[i + 1][0] = vfmaq_laneq_f64(sum[i + 1][0], b0, a, 1);
        sum[i + 1][1] = vfmaq_laneq_f64(sum[i + 1][1], b1, a, 1);
    }
}

#else

static inline void tile_step_f32(tile_vector_f32 sum[TILE_ROWS][2], const float *column, tile_vector_f32 b0,
                                 tile_vector_f32 b1) {
    for (int i = 0; i < TILE_ROWS; i++) {
        sum[i][0] += b0 * column[i];
        sum[i][1] += b1 * column[i];
    }
}

static inline void tile_step_f64(tile_vector_f64 sum[TILE_ROWS][2], const double *column, tile_vector_f64 b0,
                                 tile_vector_f64 b1) {
    for (int i = 0; i < TILE_ROWS; i++) {
        sum[i][0] += b0 * column[i];
        sum[i][1] += b1 * column[i];
    }
}

#endif

/* out (4, 4) = in^T: vector code for f32, which compilers do not generate by themselves. */
static inline void tile_transpose_quad_f32(const float *in, int64_t in_step, float *out, int64_t out_step) {
    typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
    const quad a = *(const quad *)in, b = *(const quad *)(in + in_step);
    const quad c = *(const quad *)(in + 2 * in_step), d = *(const quad *)(in + 3 * in_step);
    const quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(quad *)out = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(quad *)(out + out_step) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(quad *)(out + 2 * out_step) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(quad *)(out + 3 * out_step) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

static inline void tile_transpose_quad_f64(const double *in, int64_t in_step, double *out, int64_t out_step) {
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 4; i++) {
            out[j * out_step + i] = in[i * in_step + j];
        }
    }
}

#define REAL float
#define NAME(name) name##_f32
#define COLUMNS TILE_COLUMNS_F32
#include "device/cpu/shared/tile_template.h"

#define REAL double
#define NAME(name) name##_f64
#define COLUMNS TILE_COLUMNS_F64
#include "device/cpu/shared/tile_template.h"

#endif
