/* calibrate.h: measures a machine: peaks in registers, matrix products, memory, and every op of training steps at
 * many sizes. */
#ifndef PLAN_CALIBRATE_H
#define PLAN_CALIBRATE_H

#include <signal.h>

#include "plan/machine.h"

struct calibrate_options {
    tl_device *device;
    bool is_quick; /* a few sizes: seconds instead of a minute; predictions are rougher */
    void (*tell)(void *context, const char *words); /* before each part; may be NULL */
    void *context;
    const volatile sig_atomic_t *stop; /* becomes nonzero when it is to end, with an error; may be NULL */
};

/* Fills a profile that is freed with machine_free. False: recorded. */
bool calibrate(const struct calibrate_options *o, struct machine *p);

/* The roof alone: peaks, products of f32 and bf16, memory. Seconds. */
bool calibrate_roof(const struct calibrate_options *o, struct machine *p);

/* Bytes per second that ops over a working set of so many bytes (at most 1 GB) move, measured now. 0: it could not be
 * measured. */
double calibrate_bandwidth(tl_device *device, double bytes);

/* The configurations whose steps are measured, so that a check can avoid them: from 0 to CALIBRATE_CASES - 1, on a
 * GPU large ones, to CALIBRATE_LARGE - 1. CALIBRATE_LEAST are measured however long they take. */
enum { CALIBRATE_CASES = 200, CALIBRATE_LARGE = 300, CALIBRATE_QUICK = 24, CALIBRATE_LEAST = 8 };
struct calibrate_case {
    const char *model, *recipe, *optimizer;
    int64_t channels, heads, kv_heads, ff, vocabulary, batch, seq; /* of one layer; ff 0: the model's own */
    double dropout;
};
struct calibrate_case calibrate_case_at(int index, bool is_large);

#endif
