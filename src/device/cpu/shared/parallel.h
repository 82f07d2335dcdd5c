/* parallel.h: the one way in which cpu kernels use threads. */
#ifndef TALLY_DEVICE_CPU_PARALLEL_H
#define TALLY_DEVICE_CPU_PARALLEL_H

#include <stdint.h>

typedef void (*parallel_body)(void *context, int64_t first, int64_t last);

/* Calls body(context, k*grain, min((k+1)*grain, n_items)) once for every k, on at most n_threads threads, in
 * any order, and returns when all are done. The ranges depend on n_items and grain alone, so a body whose result
 * for a range depends on that range only gives the same bits on any number of threads. One range, one
 * thread, a call from inside a body, or a forked child: all ranges run in order on the calling thread and
 * OpenMP is not touched. Bodies must not fail: errors are detected before, or recorded in the context. */
void parallel_for(int64_t n_items, int64_t grain, int n_threads, parallel_body body, void *context);

/* The grain at which a range is worth a thread: about 16 Ki units of work, when one item is item_work units (one
 * unit is one element of a cheap elementwise op). At least 1. */
int64_t parallel_grain(int64_t item_work);

/* The grain for independent elements, whose ranges may end anywhere: two long ranges per thread. At the start of a
 * range a core stores elsewhere (the walk, the stack); until it detects a stream again, it reads every line before it
 * writes it. Sums of 4 Mi floats on two cores of a Neoverse V1 take 391 us in one range a thread, 410 in two, 421 in
 * four, 450 in eight, 500 in 128; with one range, no thread could help a late one. */
int64_t parallel_stream_grain(int64_t n_items, int n_threads);

#endif
