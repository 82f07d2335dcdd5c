/* gemm_x86.h: the blocks of gemm.c for x86-64 with FMA.
 *
 * AVX2 has 16 registers: 6 x 16 sums in 12 of them, two for b's columns, the rest for a's broadcast numbers. AVX-512
 * has 32 of twice the width: 8 x 48 sums in 24, which takes 11 loads for 24 multiply-adds where 12 x 32 takes 14.
 * Its bf16 instruction multiplies pairs of terms and keeps the shape. AMX holds 16 x 16 sums in a tile: four of them
 * make 32 x 32, fed by two tiles of each operand, 32 terms at a time. The bf16 instructions take subnormal numbers
 * as zero.
 *
 * With AVX-512, 192 terms of 48 columns take 36 KiB of a 48 KiB L1 cache, and 384 rows of 768 terms take 1.2 MiB of
 * a 2 MiB L2 cache. With AMX, a chunk of 256 terms would move 4 KiB of sums in and out for every 512 cycles of
 * products. So sums stay in tiles over all terms of a block, and both operands come from the L2 cache. Measured in
 * alternation on a Xeon whose cores are shared with other guests, this f32 kernel is 1.12 (median) to 1.17 times
 * (best) as fast as 12 x 32 with all panels packed first and slices of 128 rows; this bf16 kernel is 1.28 to 1.09
 * times as fast as chunks of 256 terms (docs/speed.md).
 */
#include <immintrin.h>

#include "device/cpu/arch/amx.h"

/* ---- f32: packed as (k, rows) and (k, columns) ------------------------------------------------------------------- */

#if defined(__AVX512F__)
enum { F32_ROWS = 8, F32_COLUMNS = 48, F32_CHUNK = 192, F32_SLICE = 384, F32_LANES = 16, F32_AHEAD = 48 };
typedef __m512 f32_vector;
#define F32_ZERO _mm512_setzero_ps
#define F32_LOAD _mm512_loadu_ps
#define F32_STORE _mm512_storeu_ps
#define F32_SET _mm512_set1_ps
#define F32_ADD _mm512_add_ps
#define F32_FMA _mm512_fmadd_ps
#else
enum { F32_ROWS = 6, F32_COLUMNS = 16, F32_CHUNK = 256, F32_SLICE = 128, F32_LANES = 8, F32_AHEAD = 0 };
typedef __m256 f32_vector;
#define F32_ZERO _mm256_setzero_ps
#define F32_LOAD _mm256_loadu_ps
#define F32_STORE _mm256_storeu_ps
#define F32_SET _mm256_set1_ps
#define F32_ADD _mm256_add_ps
#define F32_FMA _mm256_fmadd_ps
#endif
enum { F32_TERMS = 1, F32_VECTORS = F32_COLUMNS / F32_LANES };

/* The last panel of b may have fewer columns: its blocks leave out the vectors that are beyond them. For all of these
 * functions the number of vectors is a constant, so that the sums stay in registers. */

/* c (F32_ROWS, n_vectors F32_LANES) = or += sums. */
INLINE void part_store(f32_vector sum[F32_ROWS][F32_VECTORS], const int n_vectors, float *c, int64_t c_step,
                       enum store store) {
#pragma GCC unroll 12
    for (int i = 0; i < F32_ROWS; i++, c += c_step) {
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) {
            float *at = c + v * F32_LANES;
            if (store == STORE_SUM) sum[i][v] = F32_ADD(sum[i][v], F32_LOAD(at));
            F32_STORE(at, sum[i][v]);
        }
    }
}

INLINE void part_begin(f32_vector sum[F32_ROWS][F32_VECTORS], const int n_vectors) {
#pragma GCC unroll 12
    for (int i = 0; i < F32_ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) sum[i][v] = F32_ZERO();
}

INLINE void part_f32(const int n_vectors, int64_t n_k, const void *a, const void *b, void *c, int64_t c_step,
                     enum store store) {
    const float *rows = a, *columns = b;
    f32_vector sum[F32_ROWS][F32_VECTORS];
    part_begin(sum, n_vectors);
    for (int64_t p = 0; p < n_k; p++, rows += F32_ROWS, columns += F32_COLUMNS) {
        f32_vector column[F32_VECTORS];
        if (F32_AHEAD) __builtin_prefetch(rows + F32_AHEAD * F32_ROWS); /* a comes from the L2 cache */
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) column[v] = F32_LOAD(columns + v * F32_LANES);
#pragma GCC unroll 12
        for (int i = 0; i < F32_ROWS; i++) {
            const f32_vector number = F32_SET(rows[i]);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++) sum[i][v] = F32_FMA(number, column[v], sum[i][v]);
        }
    }
    part_store(sum, n_vectors, c, c_step, store);
}

#define BLOCK_OF(name, part, n_vectors)                                                                      \
    static void name(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) { \
        part(n_vectors, n_k, a, b, c, c_step, store);                                                        \
    }
BLOCK_OF(block_f32, part_f32, F32_VECTORS)
BLOCK_OF(block_f32_1, part_f32, 1)
#if defined(__AVX512F__)
BLOCK_OF(block_f32_2, part_f32, 2)
#define F32_PARTS \
    { block_f32_1, block_f32_2, block_f32 }
#else
#define F32_PARTS \
    { block_f32_1, block_f32 }
#endif
enum { F32_PART = F32_LANES };

/* ---- bf16 with AMX: packed as (k/32, 32, 32) and (k/2, 32, 2) ---------------------------------------------------- */

#if defined(__AMX_BF16__)
#define GEMM_HAS_BF16 1
#define GEMM_HAS_TILES 1
#define GEMM_STORES_BF16 1
enum {
    BF16_ROWS = 32,
    BF16_COLUMNS = 32,
    BF16_TERMS = 32,
    BF16_CHUNK = 0,
    BF16_SLICE = 512,
    BF16_A_GROUP = 32,
    BF16_B_GROUP = 2
};

/* A thread configures its tiles before its blocks and releases them afterwards. */
static void tiles_begin(void) { tiles_configure(); }
static void tiles_end(void) { _tile_release(); }

enum { TILE_STEP = 64, PAIRS_STEP = 128, TILES_BYTES = 2048 }; /* rows of a's tiles, of b's; both tiles of 32 terms */

/* Prefetches half of the lines of a's tiles that are needed in four steps. */
static inline void tiles_ahead(const char *rows, int half) {
    rows += 4 * TILES_BYTES + half * TILES_BYTES / 2;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) __builtin_prefetch(rows + 64 * i);
}

/* Sums 0 to 3 += two tiles of a's rows (4, 5) times two of b's columns (6, 7), n_k / 32 times. Each tile is loaded as
 * soon as its last product is under way, so that loads and products overlap. */
static inline void tiles_multiply(int64_t n_k, const char *rows, const char *columns) {
    _tile_loadd(4, rows, TILE_STEP);
    _tile_loadd(6, columns, PAIRS_STEP);
    for (int64_t p = 32; p < n_k; p += 32, rows += TILES_BYTES, columns += TILES_BYTES) {
        tiles_ahead(rows, 0);
        _tile_loadd(5, rows + TILES_BYTES / 2, TILE_STEP);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, columns + 64, PAIRS_STEP);
        _tile_dpbf16ps(2, 5, 6);
        _tile_loadd(6, columns + TILES_BYTES, PAIRS_STEP);
        tiles_ahead(rows, 1);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(4, rows + TILES_BYTES, TILE_STEP);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_loadd(5, rows + TILES_BYTES / 2, TILE_STEP);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, columns + 64, PAIRS_STEP);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
}

static inline void tiles_store(float *c, int64_t c_step) {
    const int64_t step = c_step * (int64_t)sizeof *c;
    _tile_stored(0, c, step);
    _tile_stored(1, c + 16, step);
    _tile_stored(2, c + 16 * c_step, step);
    _tile_stored(3, c + 16 * c_step + 16, step);
}

/* 32 sums. */
static inline void round_32(uint16_t *out, const float *sums) {
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(F32_LOAD(sums + 16), F32_LOAD(sums)));
}

static void block_bf16(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    if (store == STORE_SUM) {
        const int64_t step = c_step * (int64_t)sizeof(float);
        const float *sums = c;
        _tile_loadd(0, sums, step);
        _tile_loadd(1, sums + 16, step);
        _tile_loadd(2, sums + 16 * c_step, step);
        _tile_loadd(3, sums + 16 * c_step + 16, step);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    tiles_multiply(n_k, a, b);
    if (store != STORE_BF16) {
        tiles_store(c, c_step);
        return;
    }
    _Alignas(64) float sums[BF16_ROWS * BF16_COLUMNS];
    tiles_store(sums, BF16_COLUMNS);
    for (int i = 0; i < BF16_ROWS; i++) round_32((uint16_t *)c + i * c_step, sums + i * BF16_COLUMNS);
}

/* ---- bf16 with AVX-512: packed as (k/2, rows, 2) and (k/2, columns, 2) ------------------------------------------- */

#elif defined(__AVX512BF16__)
#define GEMM_HAS_BF16 1
enum {
    BF16_ROWS = F32_ROWS,
    BF16_COLUMNS = F32_COLUMNS,
    BF16_TERMS = 2,
    BF16_CHUNK = 256,
    BF16_SLICE = F32_SLICE,
    BF16_A_GROUP = 2,
    BF16_B_GROUP = 2
};

INLINE void part_bf16(const int n_vectors, int64_t n_k, const void *a, const void *b, void *c, int64_t c_step,
                      enum store store) {
    const char *rows = a, *columns = b;
    f32_vector sum[BF16_ROWS][F32_VECTORS];
    part_begin(sum, n_vectors);
    for (int64_t p = 0; p < n_k; p += 2, rows += 4 * BF16_ROWS, columns += 4 * BF16_COLUMNS) {
        __m512bh column[F32_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) column[v] = (__m512bh)_mm512_loadu_si512(columns + 64 * v);
#pragma GCC unroll 12
        for (int i = 0; i < BF16_ROWS; i++) {
            int pair;
            memcpy(&pair, rows + 4 * i, sizeof pair);
            const __m512bh number = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], number, column[v]);
        }
    }
    part_store(sum, n_vectors, c, c_step, store);
}
BLOCK_OF(block_bf16, part_bf16, F32_VECTORS)
BLOCK_OF(block_bf16_1, part_bf16, 1)
BLOCK_OF(block_bf16_2, part_bf16, 2)
#define BF16_PARTS \
    { block_bf16_1, block_bf16_2, block_bf16 }
enum { BF16_PART = F32_LANES };
#endif
