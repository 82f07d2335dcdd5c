/* parallel.c: fixed ranges over OpenMP.
 *
 * Ranges are handed out dynamically: the machine is shared, and with a static split the slowest core decides. Which
 * thread runs a range has no influence on its result.
 *
 * Fork. OpenMP's worker threads do not exist in a forked child, and libgomp waits for them for ever. So the first use
 * registers a handler, and a child that came after it never asks OpenMP for threads.
 */
#include "device/cpu/parallel.h"

#include <stdbool.h>

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>
#endif

enum { GRAIN_WORK = 16384 };

int64_t parallel_grain(int64_t item_work) {
    return item_work >= GRAIN_WORK ? 1 : GRAIN_WORK / (item_work < 1 ? 1 : item_work);
}

static void run_range(int64_t n_items, int64_t grain, int64_t range, parallel_body body, void *context) {
    const int64_t first = range * grain;
    body(context, first, n_items - first < grain ? n_items : first + grain);
}

#ifdef _OPENMP
static bool is_forked_child; /* written only in the child, while it has one thread */

static void note_fork(void) { is_forked_child = true; }

static void watch_fork(void) { pthread_atfork(NULL, NULL, note_fork); }

static bool may_use_threads(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_fork);
    return !is_forked_child && !omp_in_parallel();
}
#endif

void parallel_for(int64_t n_items, int64_t grain, int n_threads, parallel_body body, void *context) {
    if (n_items <= 0) return;
    const int64_t n_ranges = (n_items - 1) / grain + 1;

#ifdef _OPENMP
    if (n_threads > 1 && n_ranges > 1 && may_use_threads()) {
        const int team = n_ranges < n_threads ? (int)n_ranges : n_threads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
        for (int64_t range = 0; range < n_ranges; range++) run_range(n_items, grain, range, body, context);
        return;
    }
#else
    (void)n_threads;
#endif

    for (int64_t range = 0; range < n_ranges; range++) run_range(n_items, grain, range, body, context);
}
