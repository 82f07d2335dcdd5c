/* best.h: the best ways to run one training: of recipe, checkpointing, micro-batch and accumulation, and on several
 * devices of how many of them, layout and sharding.
 *
 * The step stays: as many sequences, of as many tokens. First everything is estimated: on one device every combination
 * is priced on meta without its evaluations; on several, layouts are estimated by their closed forms (layouts.h). Then
 * those that may be best are planned in full, as `tally plan` would plan them, and only those are answers.
 *
 *   fastest    the least expected time of a step
 *   cheapest   the least time of all devices together
 *   smallest   the fewest devices, and on them the least memory
 */
#ifndef PLAN_BEST_H
#define PLAN_BEST_H

#include "plan/plan.h"

struct best_row {
    int recipe, checkpointing; /* values of the settings */
    int64_t batch, accum;      /* of all ranks of dp */
    int64_t devices;
    struct layout layout;
    uint64_t bytes;                 /* on each device */
    double step_s;                  /* expected; 0: not known */
    bool is_planned, fits, is_best; /* planned in full; best: no other row is better in every respect */
};

struct best {
    struct best_row *rows; /* those that were planned and are best, the fastest first */
    int n;
    size_t room;
    int fastest, cheapest, smallest; /* rows; -1: nothing fits */
    int n_tried;
};

/* What the search may change; everything else is as the settings say. */
struct best_freedom {
    bool recipe, checkpointing;
    void (*tell)(int n_tried); /* after each that was tried; NULL: nothing */
};

/* Free it in any case. False: recorded. */
bool best_find(struct best *best, const struct settings *s, const struct plan_target *target,
               const struct plan_options *options, const struct best_freedom *freedom);
void best_free(struct best *best);
/* The settings and options of a row. */
void best_apply(const struct best_row *row, struct settings *s, struct plan_options *options);

#endif
