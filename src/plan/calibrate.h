/* calibrate.h: measures a machine: peaks in registers, matrix products, memory, and every op of training steps at many sizes. */
#ifndef PLAN_CALIBRATE_H
#define PLAN_CALIBRATE_H

#include "plan/machine.h"

struct calibrate_options {
    tl_device *device;
    bool is_quick; /* a few sizes: seconds instead of a minute; predictions are rougher */
    void (*tell)(void *context, const char *words); /* before each part; may be NULL */
    void *context;
};

/* Fills a profile that is freed with machine_free. False: recorded. */
bool calibrate(const struct calibrate_options *o, struct machine *p);

/* The roof alone: peaks, products of f32 and bf16, memory. Seconds. */
bool calibrate_roof(const struct calibrate_options *o, struct machine *p);

/* The configurations whose steps are measured, so that a check can avoid them; NULL after the last. */
struct calibrate_case {
    const char *model, *recipe;
    int64_t layers, channels, heads, ff, vocabulary, batch, seq;
    bool is_quick;
};
const struct calibrate_case *calibrate_case_at(int index);

#endif
