/* gemm_x86.h: the blocks of gemm.c for x86-64 with FMA.
 *
 * AVX2 has 16 registers: 6 x 16 sums in 12 of them, two for b's columns, the rest for a's broadcast numbers. AVX-512
 * has 32 of twice the width: 12 x 32 sums in 24. Its bf16 instruction multiplies pairs of terms and keeps the shape.
 * AMX holds 16 x 16 sums in a tile: four of them make 32 x 32, fed by two tiles of each operand, 32 terms at a time.
 * The bf16 instructions take subnormal numbers as zero.
 */
#include <immintrin.h>

#include "device/cpu/tiles.h"

#ifndef X86_CHUNK_F32
#define X86_CHUNK_F32 256
#endif
#ifndef X86_CHUNK_BF16
#define X86_CHUNK_BF16 256
#endif

/* ---- f32: packed as (k, rows) and (k, columns) ------------------------------------------------------------------- */

#if defined(__AVX512F__)
enum { F32_ROWS = 12, F32_COLUMNS = 32, F32_TERMS = 1, F32_CHUNK = X86_CHUNK_F32, F32_LANES = 16 };
typedef __m512 f32_vector;
#define F32_ZERO _mm512_setzero_ps
#define F32_LOAD _mm512_loadu_ps
#define F32_STORE _mm512_storeu_ps
#define F32_SET _mm512_set1_ps
#define F32_ADD _mm512_add_ps
#define F32_FMA _mm512_fmadd_ps
#else
enum { F32_ROWS = 6, F32_COLUMNS = 16, F32_TERMS = 1, F32_CHUNK = X86_CHUNK_F32, F32_LANES = 8 };
typedef __m256 f32_vector;
#define F32_ZERO _mm256_setzero_ps
#define F32_LOAD _mm256_loadu_ps
#define F32_STORE _mm256_storeu_ps
#define F32_SET _mm256_set1_ps
#define F32_ADD _mm256_add_ps
#define F32_FMA _mm256_fmadd_ps
#endif

/* c (F32_ROWS, F32_COLUMNS) = or += sums. */
static inline void block_store(f32_vector sum[F32_ROWS][2], float *c, int64_t c_step, enum store store) {
#pragma GCC unroll 12
    for (int i = 0; i < F32_ROWS; i++, c += c_step) {
        if (store == STORE_SUM) {
            sum[i][0] = F32_ADD(sum[i][0], F32_LOAD(c));
            sum[i][1] = F32_ADD(sum[i][1], F32_LOAD(c + F32_LANES));
        }
        F32_STORE(c, sum[i][0]);
        F32_STORE(c + F32_LANES, sum[i][1]);
    }
}

static inline void block_begin(f32_vector sum[F32_ROWS][2]) {
#pragma GCC unroll 12
    for (int i = 0; i < F32_ROWS; i++) {
        sum[i][0] = F32_ZERO();
        sum[i][1] = F32_ZERO();
    }
}

static void block_f32(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    const float *rows = a, *columns = b;
    f32_vector sum[F32_ROWS][2];
    block_begin(sum);
    for (int64_t p = 0; p < n_k; p++, rows += F32_ROWS, columns += F32_COLUMNS) {
        const f32_vector left = F32_LOAD(columns), right = F32_LOAD(columns + F32_LANES);
#pragma GCC unroll 12
        for (int i = 0; i < F32_ROWS; i++) {
            const f32_vector number = F32_SET(rows[i]);
            sum[i][0] = F32_FMA(number, left, sum[i][0]);
            sum[i][1] = F32_FMA(number, right, sum[i][1]);
        }
    }
    block_store(sum, c, c_step, store);
}

/* ---- bf16 with AMX: packed as (k/32, 32, 32) and (k/2, 32, 2) -------------------------------------------------------- */

#if defined(__AMX_BF16__)
#define GEMM_HAS_BF16 1
#define GEMM_HAS_TILES 1
enum {
    BF16_ROWS = 32,
    BF16_COLUMNS = 32,
    BF16_TERMS = 32,
    BF16_CHUNK = X86_CHUNK_BF16,
    BF16_A_GROUP = 32,
    BF16_B_GROUP = 2
};

/* A thread's tiles are set up before its blocks and given back after them. */
static void tiles_begin(void) { tiles_configure(); }
static void tiles_end(void) { _tile_release(); }

static void block_bf16(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    enum { A_STEP = 64, B_STEP = 128, B_BYTES = 16 * B_STEP, A_BYTES = 32 * A_STEP };
    const char *rows = a, *columns = b;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t p = 0; p < n_k; p += 32, rows += A_BYTES, columns += B_BYTES) {
        _tile_loadd(4, rows, A_STEP);
        _tile_loadd(6, columns, B_STEP);
        _tile_loadd(7, columns + 64, B_STEP);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, rows + 16 * A_STEP, A_STEP);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    float *out = c;
    if (store != STORE_SUM) {
        const int64_t step = c_step * (int64_t)sizeof *out;
        _tile_stored(0, out, step);
        _tile_stored(1, out + 16, step);
        _tile_stored(2, out + 16 * c_step, step);
        _tile_stored(3, out + 16 * c_step + 16, step);
        return;
    }
    _Alignas(64) float sums[BF16_ROWS * BF16_COLUMNS];
    _tile_stored(0, sums, B_STEP);
    _tile_stored(1, sums + 16, B_STEP);
    _tile_stored(2, sums + 16 * BF16_COLUMNS, B_STEP);
    _tile_stored(3, sums + 16 * BF16_COLUMNS + 16, B_STEP);
    for (int i = 0; i < BF16_ROWS; i++, out += c_step) {
        const float *sum = sums + i * BF16_COLUMNS;
        F32_STORE(out, F32_ADD(F32_LOAD(out), F32_LOAD(sum)));
        F32_STORE(out + F32_LANES, F32_ADD(F32_LOAD(out + F32_LANES), F32_LOAD(sum + F32_LANES)));
    }
}

/* ---- bf16 with AVX-512: packed as (k/2, rows, 2) and (k/2, columns, 2) ----------------------------------------------- */

#elif defined(__AVX512BF16__)
#define GEMM_HAS_BF16 1
enum {
    BF16_ROWS = F32_ROWS,
    BF16_COLUMNS = F32_COLUMNS,
    BF16_TERMS = 2,
    BF16_CHUNK = X86_CHUNK_BF16,
    BF16_A_GROUP = 2,
    BF16_B_GROUP = 2
};

static void block_bf16(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    const char *rows = a, *columns = b;
    f32_vector sum[BF16_ROWS][2];
    block_begin(sum);
    for (int64_t p = 0; p < n_k; p += 2, rows += 4 * BF16_ROWS, columns += 4 * BF16_COLUMNS) {
        const __m512bh left = (__m512bh)_mm512_loadu_si512(columns), right = (__m512bh)_mm512_loadu_si512(columns + 64);
#pragma GCC unroll 12
        for (int i = 0; i < BF16_ROWS; i++) {
            int pair;
            memcpy(&pair, rows + 4 * i, sizeof pair);
            const __m512bh number = (__m512bh)_mm512_set1_epi32(pair);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], number, left);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], number, right);
        }
    }
    block_store(sum, c, c_step, store);
}
#endif
