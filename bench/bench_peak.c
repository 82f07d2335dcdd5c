/* bench_peak.c: multiply-adds per second that the cores reach on registers alone, as one line of JSON.
 *
 *     build/bench/bench_peak [threads] */
#include <stdio.h>
#include <stdlib.h>

#include "peak.h"

#ifdef _OPENMP
#include <omp.h>
#endif

int main(int argc, char **argv) {
#ifdef _OPENMP
    int n_threads = omp_get_max_threads();
#else
    int n_threads = 1;
#endif
    if (argc > 1 && atoi(argv[1]) > 0) n_threads = atoi(argv[1]);
    printf("{\"threads\": %d, \"f32_gflops\": %.1f, \"bf16_gflops\": %.1f}\n", n_threads,
           peak_of(peak_chunk_f32, n_threads), peak_of(peak_chunk_bf16, n_threads));
    return 0;
}
