/* layouts.h: every way to divide one run among so many devices, by expected time. */
#ifndef PLAN_LAYOUTS_H
#define PLAN_LAYOUTS_H

#include "plan/fit.h"

struct layouts_row {
    struct layout layout;
    int64_t batch; /* sequences of a micro-batch, of one rank of dp */
    struct layout_estimate estimate;
    bool fits;
    char why[160]; /* of one that cannot be, or does not fit */
};

struct layouts {
    struct layouts_row *rows; /* those that fit, the fastest first, then the others */
    int n, n_fit;
    size_t room;
    int64_t sequences; /* of a step, over all devices */
    double tokens;     /* the same */
};

/* Divisions of a step of batch x accum sequences: tp up to a node, cp, pp and dp, every sharding, and for each the
 * micro-batch that is fastest of those that fit. Axes above 1 and sharding that the
 * settings give are kept. Free it in any case. False:
 * recorded. */
bool layouts_find(struct layouts *all, const struct settings *s, const struct plan_target *target,
                  const struct plan_options *options);
/* The same by closed forms alone, for these devices and for the half of them, down to two. */
bool layouts_sketch(struct layouts *all, const struct settings *s, const struct plan_target *target,
                    const struct plan_options *options);
void layouts_free(struct layouts *all);

#endif
