/* probe.c: peaks of the cores, in registers.
 *
 * Two dozen independent sums hide the latency of a multiply-add. The work is cut into pieces of some ten
 * microseconds with a barrier of the pipeline between them: after a timer interrupt, a long run of nothing but
 * multiply-adds can drop to half the rate until the pipeline is disturbed (seen on Neoverse V1). The best of several
 * stretches counts: a peak is what the machine can do, not what a neighbour left of it.
 *
 * Written as assembly and with target attributes: this file is compiled once, for the baseline, and checks the
 * capability bits. */
#include "device/cpu/probe.h"

#include "base/clock.h"
#include "base/process.h"
#include "device/cpu/isa.h"
#include "tensor/device.h"

/* One piece of work: how many FLOPs it did. */
typedef double piece(void);
enum { N_TURNS = 2000 };

#if defined(__aarch64__)
#include <sys/auxv.h>

#define ONE(op, t, s, i) op " v" #i "." t ", v24." s ", v25." s "\n"
#define SIX(op, t, s, i, j, k, l, m, n) \
    ONE(op, t, s, i) ONE(op, t, s, j) ONE(op, t, s, k) ONE(op, t, s, l) ONE(op, t, s, m) ONE(op, t, s, n)
#define TWENTY_FOUR(op, t, s)       \
    SIX(op, t, s, 0, 1, 2, 3, 4, 5) \
    SIX(op, t, s, 6, 7, 8, 9, 10, 11) SIX(op, t, s, 12, 13, 14, 15, 16, 17) SIX(op, t, s, 18, 19, 20, 21, 22, 23)
#define CLOBBERED                                                                                                \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "memory", "cc"
/* The assembler must know that an instruction may be used: clang looks at the function, gcc's assembler at the text. */
#if defined(__clang__)
#define ALLOWED(feature) __attribute__((target(feature)))
#define EXTENSION(for_gcc) ""
#else
#define ALLOWED(feature)
#define EXTENSION(for_gcc) for_gcc
#endif
/* Zeros: no value ever grows, and multiply-adds take the same time for all. */
#define PIECE(name, extension, op, t, s, flops)                                                    \
    static double name(void) {                                                                     \
        long n = N_TURNS;                                                                          \
        __asm__ volatile(extension "movi v24.16b, #0\n movi v25.16b, #0\n"                         \
                                   "0:\n" TWENTY_FOUR(op, t, s) "subs %0, %0, #1\n bne 0b\n isb\n" \
                         : "+r"(n)                                                                 \
                         :                                                                         \
                         : CLOBBERED);                                                             \
        return 24.0 * (flops)*N_TURNS;                                                             \
    }

PIECE(f32_piece, "", "fmla", "4s", "4s", 8)
PIECE(f64_piece, "", "fmla", "2d", "2d", 4)
ALLOWED("fullfp16")
PIECE(f16_piece, EXTENSION(".arch_extension fp16\n"), "fmla", "8h", "8h", 16)
ALLOWED("bf16")
PIECE(bf16_piece, EXTENSION(".arch_extension bf16\n"), "bfmmla", "4s", "8h", 32)

static piece *piece_of(tl_dtype dtype) {
    if (dtype == TL_F32) return f32_piece;
    if (dtype == TL_F64) return f64_piece;
    if (dtype == TL_F16 && (getauxval(AT_HWCAP) & CAP_ASIMDHP)) return f16_piece;
    if (dtype == TL_BF16 && (getauxval(AT_HWCAP2) & CAP2_BF16)) return bf16_piece;
    return NULL;
}

/* Additions that wait for each other: one per cycle. */
static double chain(void) {
    long n = N_TURNS, x = 0;
    __asm__ volatile("0:\n add %1, %1, #1\n add %1, %1, #3\n add %1, %1, #1\n add %1, %1, #3\n"
                     "add %1, %1, #1\n add %1, %1, #3\n add %1, %1, #1\n add %1, %1, #3\n subs %0, %0, #1\n bne 0b\n"
                     : "+r"(n), "+r"(x)
                     :
                     : "cc");
    return 8.0 * N_TURNS;
}

#elif defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "device/cpu/arch/amx.h"

#define PIECE(name, features, vector, zero, fma, flops)                             \
    __attribute__((target(features))) static double name(void) {                    \
        vector a = zero(), b = zero(), s[12];                                       \
        for (int i = 0; i < 12; i++) s[i] = zero();                                 \
        for (int n = 0; n < N_TURNS; n++) {                                         \
            for (int i = 0; i < 12; i++) s[i] = fma(a, b, s[i]);                    \
            __asm__ volatile("" : "+x"(a), "+x"(b)); /* or it would be done once */ \
        }                                                                           \
        for (int i = 0; i < 12; i++) __asm__ volatile("" ::"x"(s[i]));              \
        return 12.0 * (flops)*N_TURNS;                                              \
    }
#define PIECE512(name, features, vector, zero, fma, flops)             \
    __attribute__((target(features))) static double name(void) {       \
        vector a = zero(), b = zero(), s[12];                          \
        for (int i = 0; i < 12; i++) s[i] = zero();                    \
        for (int n = 0; n < N_TURNS; n++) {                            \
            for (int i = 0; i < 12; i++) s[i] = fma(a, b, s[i]);       \
            __asm__ volatile("" : "+v"(a), "+v"(b));                   \
        }                                                              \
        for (int i = 0; i < 12; i++) __asm__ volatile("" ::"v"(s[i])); \
        return 12.0 * (flops)*N_TURNS;                                 \
    }

PIECE(f32_avx2, "avx2,fma", __m256, _mm256_setzero_ps, _mm256_fmadd_ps, 16)
PIECE(f64_avx2, "avx2,fma", __m256d, _mm256_setzero_pd, _mm256_fmadd_pd, 8)
PIECE512(f32_avx512, "avx512f", __m512, _mm512_setzero_ps, _mm512_fmadd_ps, 32)
PIECE512(f64_avx512, "avx512f", __m512d, _mm512_setzero_pd, _mm512_fmadd_pd, 16)

/* vdpbf16ps: two products for each of 16 sums. Compilers have no zero of the operands' type. */
#define ZERO_BF16() ((__m512bh)_mm512_setzero_si512())
__attribute__((target("avx512f,avx512bf16"))) static double bf16_avx512(void) {
    __m512bh a = ZERO_BF16(), b = ZERO_BF16();
    __m512 s[12];
    for (int i = 0; i < 12; i++) s[i] = _mm512_setzero_ps();
    for (int n = 0; n < N_TURNS; n++) {
        for (int i = 0; i < 12; i++) s[i] = _mm512_dpbf16_ps(s[i], a, b);
        __asm__ volatile("" : "+v"(a), "+v"(b));
    }
    for (int i = 0; i < 12; i++) __asm__ volatile("" ::"v"(s[i]));
    return 12.0 * 64 * N_TURNS;
}

/* tdpbf16ps: 16 x 16 sums of 32 products each, in four tiles of sums and four of operands. */
__attribute__((target("amx-tile,amx-bf16"))) static double bf16_amx(void) {
    tiles_configure();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int n = 0; n < N_TURNS / 10; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 4.0 * (2 * 16 * 16 * 32) * (N_TURNS / 10);
}

static bool has_isa(const char *name) {
    struct cpu_isa isa;
    for (int i = 0; cpu_isa_at(i, &isa); i++)
        if (strcmp(isa.name, name) == 0) return true;
    return false;
}

static piece *piece_of(tl_dtype dtype) {
    bool has_avx512 = __builtin_cpu_supports("avx512f");
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (dtype == TL_F32) return has_avx512 ? f32_avx512 : has_avx2 ? f32_avx2 : NULL;
    if (dtype == TL_F64) return has_avx512 ? f64_avx512 : has_avx2 ? f64_avx2 : NULL;
    if (dtype == TL_BF16) return has_isa("amx") ? bf16_amx : has_isa("avx512bf16") ? bf16_avx512 : NULL;
    return NULL;
}

/* Rotations that wait for each other: one per cycle (additions of constants may be folded by the renamer). */
static double chain(void) {
    long n = N_TURNS, x = 5;
    __asm__ volatile("0:\n rorq $1, %1\n rorq $3, %1\n rorq $1, %1\n rorq $3, %1\n"
                     "rorq $1, %1\n rorq $3, %1\n rorq $1, %1\n rorq $3, %1\n decq %0\n jne 0b\n"
                     : "+r"(n), "+r"(x)
                     :
                     : "cc");
    return 8.0 * N_TURNS;
}

#else
static piece *piece_of(tl_dtype dtype) {
    (void)dtype;
    return NULL;
}
static double chain(void) { return 0; }
#endif

/* Work per second in one stretch of this many seconds, by all threads. */
static double stretch(piece *work, int n_threads, double seconds) {
    double total = 0, began = now_s();
#pragma omp parallel num_threads(n_threads) reduction(+ : total)
    while (now_s() - began < seconds) total += work();
    return total / (now_s() - began);
}

static double best_of(piece *work, int n_threads) {
    double best = 0;
    for (int i = 0; i < 8; i++) {
        double rate = stretch(work, n_threads, 0.02);
        if (rate > best) best = rate;
    }
    return best;
}

double cpu_peak(tl_device *device, tl_dtype dtype) {
    (void)device;
    piece *work = piece_of(dtype);
    return work ? best_of(work, process_threads()) : 0;
}

double cpu_clock(tl_device *device) {
    (void)device;
    return best_of(chain, 1);
}
