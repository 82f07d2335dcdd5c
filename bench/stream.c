/* stream.c: memory bandwidth, for bench_ops.py, which compiles and loads this file: the ceiling of ops that only move
 * bytes.
 *
 * One pass over arrays of `bytes` in all, on OpenMP threads, by plain vector loops each thread over its own part.
 * The mixes differ: a read waits for its lines, while whole lines are written almost for free after they are read.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { CHUNK = 16384, ALIGN = 2 << 20 }; /* floats; bytes */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *array_new(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN)) return NULL;
    madvise(p, (bytes + ALIGN - 1) / ALIGN * ALIGN, MADV_HUGEPAGE);
    memset(p, 0, (bytes + ALIGN - 1) / ALIGN * ALIGN);
    return p;
}

static float read_chunk(const float *a, size_t n) {
    float sum[32] = {0}, total = 0;
    for (size_t i = 0; i + 32 <= n; i += 32)
        for (int k = 0; k < 32; k++) sum[k] += a[i + (size_t)k];
    for (int k = 0; k < 32; k++) total += sum[k];
    return total;
}
static void write_chunk(float *restrict c, size_t n) {
    for (size_t i = 0; i < n; i++) c[i] = 1;
}
static void copy_chunk(float *restrict c, const float *restrict a, size_t n) {
    for (size_t i = 0; i < n; i++) c[i] = a[i] * 0.5f;
}
static void triad_chunk(float *restrict c, const float *restrict a, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}
static void update_chunk(float *restrict a, float *restrict b, float *restrict c, const float *restrict g, size_t n) {
    for (size_t i = 0; i < n; i++) {
        b[i] += g[i];
        c[i] += g[i];
        a[i] += b[i];
    }
}

/* Arrays of each mix: read 1, write 1, copy 1 + 1, triad 2 + 1, update in place 4 + 3 of four. */
static const int n_arrays[] = {1, 1, 2, 3, 4};
static volatile float sink;

static void pass(int mix, float *const *x, size_t n, int threads) {
    float total = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : total)
    for (size_t i = 0; i < n; i += CHUNK) {
        const size_t m = n - i < CHUNK ? n - i : CHUNK;
        if (mix == 0) total += read_chunk(x[0] + i, m);
        else if (mix == 1) write_chunk(x[0] + i, m);
        else if (mix == 2) copy_chunk(x[1] + i, x[0] + i, m);
        else if (mix == 3) triad_chunk(x[2] + i, x[0] + i, x[1] + i, m);
        else update_chunk(x[0] + i, x[1] + i, x[2] + i, x[3] + i, m);
    }
    sink = total;
}

double stream(int mix, double bytes, int threads, int runs); /* for the program that loads it */

/* Seconds of the shortest of `runs` passes in which `bytes` are moved in all; -1: no memory. */
double stream(int mix, double bytes, int threads, int runs); /* bench_ops.py calls it */
double stream(int mix, double bytes, int threads, int runs) {
    const double moved = mix == 4 ? 7 : n_arrays[mix]; /* in place, an array counts twice */
    const size_t n = (size_t)(bytes / moved / 4);
    float *x[4] = {0};
    double least = -1;
    int made = 0;
    for (; made < n_arrays[mix]; made++)
        if (!(x[made] = array_new(n * 4 + 4))) break;
    for (int run = 0; run <= runs && made == n_arrays[mix]; run++) {
        const double began = now();
        pass(mix, x, n, threads);
        const double seconds = now() - began;
        if (run > 0 && (least < 0 || seconds < least)) least = seconds;
    }
    for (int i = 0; i < made; i++) free(x[i]);
    return least;
}
