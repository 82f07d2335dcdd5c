/* gemm_kernels.h: the kernels of gemm.c for the instruction set of this compilation. A part of gemm.c.
 *
 * For f32, and where GEMM_HAS_BF16 for bf16, there are
 *
 *     ROWS, COLUMNS   of the block of sums that stays in registers while the terms run
 *     TERMS           by which the number of terms must be divisible
 *     CHUNK           terms (a multiple of TERMS) that are multiplied at once, so that a panel of b fits in the L1
 *                     cache; 0: all
 *     SLICE           rows of a that stay in the L2 cache while panels of b change
 *     block           c (ROWS, COLUMNS) = or += a^T b over n_k terms, rows of c c_step apart; in bf16, where
 *                     GEMM_STORES_BF16, c may also be bf16
 *     PARTS, PART     (optional) blocks of only the first columns, as many more each time as the first has, PART; the
 *                     last is block
 *
 * With GEMM_PACKS_LATE, a thread packs each panel of b just before it multiplies, on its own stack: the panel is then
 * in the L1 cache, and nothing of b is written to memory. It does so once per slice of rows, which pays for large
 * slices, and not for an operand that is converted on the way. Otherwise all panels are packed first.
 *
 * f32 operands are packed as panels (k, ROWS) and (k, COLUMNS). bf16 operands are packed as (k / GROUP, ROWS or
 * COLUMNS, GROUP): as many neighbouring terms of one row as the instruction takes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* For all parts of gemm.c: into callers that know some arguments as constants. */
#define INLINE static inline __attribute__((always_inline))

enum store { STORE, STORE_SUM, STORE_BF16 }; /* c = f32, c += f32, c = bf16 */

#if defined(__aarch64__)
#include "device/cpu/arch/gemm_arm.h"
#define GEMM_BEATS_BLAS 1
#define GEMM_PACKS_LATE 0
#elif defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__)
#include "device/cpu/arch/gemm_x86.h"
#define GEMM_BEATS_BLAS 1
#if defined(__AVX512F__)
#define GEMM_PACKS_LATE 1
#else
#define GEMM_PACKS_LATE 0
#endif
#else
/* Whatever vectors the compiler has. A CBLAS chooses its kernels by itself, so it is the faster one here. */
#include "device/cpu/shared/tile.h"
#define GEMM_BEATS_BLAS 0
#define GEMM_PACKS_LATE 0
enum { F32_ROWS = TILE_ROWS, F32_COLUMNS = TILE_COLUMNS_F32, F32_TERMS = 1, F32_CHUNK = 0, F32_SLICE = 128 };
static void block_f32(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    tile_block_f32(n_k, a, F32_ROWS, b, F32_COLUMNS, c, c_step, store == STORE_SUM);
}
#endif

#ifndef GEMM_HAS_TILES /* AMX alone has state that a thread sets up */
static void tiles_begin(void) {}
static void tiles_end(void) {}
#endif
