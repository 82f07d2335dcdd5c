/* peak.h: what the cores can do at most, in multiply-adds on registers alone: what shares of peak are taken of.
 *
 * In short chunks with a pause in between: a long loop of nothing else can fall into a state of half the rate on some chips, and
 * stay there. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include <stdbool.h>

#include "base/clock.h"

#pragma GCC diagnostic ignored "-Woverlength-strings"

#define PEAK_TEN(x) x x x x x x x x x x

#if defined(__aarch64__)
#include <sys/auxv.h>

#define PEAK_ONE(op, in, sum) op " v" #sum ".4s, v0." in ", v1." in "\n\t"
#define PEAK_SUMS(op, in)                                                                                            \
    PEAK_ONE(op, in, 8)                                                                                              \
    PEAK_ONE(op, in, 9)                                                                                              \
    PEAK_ONE(op, in, 10) PEAK_ONE(op, in, 11) PEAK_ONE(op, in, 12) PEAK_ONE(op, in, 13) PEAK_ONE(op, in, 14)         \
        PEAK_ONE(op, in, 15) PEAK_ONE(op, in, 16) PEAK_ONE(op, in, 17) PEAK_ONE(op, in, 18) PEAK_ONE(op, in, 19)     \
            PEAK_ONE(op, in, 20) PEAK_ONE(op, in, 21) PEAK_ONE(op, in, 22) PEAK_ONE(op, in, 23) PEAK_ONE(op, in, 24) \
                PEAK_ONE(op, in, 25) PEAK_ONE(op, in, 26) PEAK_ONE(op, in, 27) PEAK_ONE(op, in, 28)                  \
                    PEAK_ONE(op, in, 29) PEAK_ONE(op, in, 30) PEAK_ONE(op, in, 31)
#define PEAK_CLOBBERS                                                                                                  \
    "v0", "v1", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", \
        "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

/* FLOPs of one chunk; 0 where it cannot be measured. */
static double peak_chunk_f32(void) {
    for (int i = 0; i < 500; i++)
        __asm__ volatile("movi v0.4s, #0\n\tmovi v1.4s, #0\n\t" PEAK_TEN(PEAK_SUMS("fmla", "4s"))::: PEAK_CLOBBERS);
    __asm__ volatile("isb");
    return 500. * 240 * 8;
}

/* The instruction is not in what programs are compiled for, and compilers name it differently: BFMMLA by its bits. */
#define PEAK_BFMMLA(sum) ".inst 0x6e41ec00 + " #sum "\n\t" /* bfmmla v<sum>.4s, v0.8h, v1.8h */
#define PEAK_BF16_SUMS                                                                                             \
    PEAK_BFMMLA(8)                                                                                                 \
    PEAK_BFMMLA(9) PEAK_BFMMLA(10) PEAK_BFMMLA(11) PEAK_BFMMLA(12) PEAK_BFMMLA(13) PEAK_BFMMLA(14) PEAK_BFMMLA(15) \
        PEAK_BFMMLA(16) PEAK_BFMMLA(17) PEAK_BFMMLA(18) PEAK_BFMMLA(19) PEAK_BFMMLA(20) PEAK_BFMMLA(21)            \
            PEAK_BFMMLA(22) PEAK_BFMMLA(23) PEAK_BFMMLA(24) PEAK_BFMMLA(25) PEAK_BFMMLA(26) PEAK_BFMMLA(27)        \
                PEAK_BFMMLA(28) PEAK_BFMMLA(29) PEAK_BFMMLA(30) PEAK_BFMMLA(31)

static double peak_chunk_bf16(void) {
    if (!(getauxval(AT_HWCAP2) & (1UL << 14))) return 0;
    for (int i = 0; i < 500; i++)
        __asm__ volatile("movi v0.4s, #0\n\tmovi v1.4s, #0\n\t" PEAK_TEN(PEAK_BF16_SUMS)::: PEAK_CLOBBERS);
    __asm__ volatile("isb");
    return 500. * 240 * 32;
}

#elif defined(__x86_64__)

#define PEAK_ONE(reg, sum) "vfmadd231ps %%" reg "0, %%" reg "1, %%" reg #sum "\n\t"
#define PEAK_SUMS(reg)                                                                                      \
    PEAK_ONE(reg, 4)                                                                                        \
    PEAK_ONE(reg, 5)                                                                                        \
    PEAK_ONE(reg, 6) PEAK_ONE(reg, 7) PEAK_ONE(reg, 8) PEAK_ONE(reg, 9) PEAK_ONE(reg, 10) PEAK_ONE(reg, 11) \
        PEAK_ONE(reg, 12) PEAK_ONE(reg, 13)
#define PEAK_CLOBBERS "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13"

static double peak_chunk_f32(void) {
    const bool is_wide = __builtin_cpu_supports("avx512f");
    if (!is_wide && !__builtin_cpu_supports("fma")) return 0;
    for (int i = 0; i < 500; i++) {
        if (is_wide) __asm__ volatile(PEAK_TEN(PEAK_SUMS("zmm"))::: PEAK_CLOBBERS);
        else __asm__ volatile(PEAK_TEN(PEAK_SUMS("ymm"))::: PEAK_CLOBBERS);
    }
    return 500. * 100 * (is_wide ? 32 : 16);
}
static double peak_chunk_bf16(void) { return 0; } /* compare with the data sheet */

#else

static double peak_chunk_f32(void) { return 0; }
static double peak_chunk_bf16(void) { return 0; }

#endif

/* GFLOP/s of all threads together, the best of nine; 0 where it cannot be measured. */
static double peak_of(double (*chunk)(void), int n_threads) {
    double best = 0;
    (void)n_threads;
    if (chunk() == 0) return 0;
    for (int r = 0; r < 9; r++) {
        double flops = 0, start = now_s();
#pragma omp parallel num_threads(n_threads) reduction(+ : flops)
        for (int i = 0; i < 200; i++) flops += chunk();
        double rate = flops / (now_s() - start) / 1e9;
        if (rate > best) best = rate;
    }
    return best;
}

#endif
