/* bench_peak.c: multiply-adds per second that the cores reach on registers alone, as one line of JSON.
 *
 *     build/bench/bench_peak [threads] */
#include <stdio.h>
#include <stdlib.h>

#include "device/cpu/probe.h"
#include "tally.h"

int main(int argc, char **argv) {
    if (argc > 1 && atoi(argv[1]) > 0) tl_set_threads(atoi(argv[1]));
    int n_threads = tl_set_threads(0);
    tl_set_threads(n_threads);
    printf("{\"threads\": %d, \"f32_gflops\": %.1f, \"bf16_gflops\": %.1f}\n", n_threads, cpu_peak(NULL, TL_F32) / 1e9,
           cpu_peak(NULL, TL_BF16) / 1e9);
    return 0;
}
