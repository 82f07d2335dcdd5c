/* tile.h: products of small matrices that lie in a thread's own buffers, for float and double.
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
/* The same in memory: wherever an element may lie. */
typedef float tile_memory_f32 __attribute__((vector_size(TILE_VECTOR_BYTES), aligned(4), may_alias));
typedef double tile_memory_f64 __attribute__((vector_size(TILE_VECTOR_BYTES), aligned(8), may_alias));

static inline tile_vector_f32 tile_madd_f32(tile_vector_f32 sum, tile_vector_f32 b, float a)
{
#if defined(__aarch64__)
    return vfmaq_n_f32(sum, b, a);
#else
    return sum + b * a;
#endif
}

static inline tile_vector_f64 tile_madd_f64(tile_vector_f64 sum, tile_vector_f64 b, double a)
{
#if defined(__aarch64__)
    return vfmaq_n_f64(sum, b, a);
#else
    return sum + b * a;
#endif
}

#define REAL float
#define NAME(name) name##_f32
#define COLUMNS TILE_COLUMNS_F32
#include "device/cpu/tile_template.h"

#define REAL double
#define NAME(name) name##_f64
#define COLUMNS TILE_COLUMNS_F64
#include "device/cpu/tile_template.h"

#endif
