/* walk.h: what a run does when, and the walk through it that gives its price.
 *
 * A run is a row of steps with evaluations, samples and saves after some of them, each billed by a ledger of its
 * own. The walk is the same row on meta, without the parts that are known to repeat: plain steps are run until the
 * pool's layout comes back (cycle.h) and whole cycles of them are left out, and so are equal evaluations or samples
 * with equal stretches between them. What is left runs in the order of the run, from the pool that the run would
 * have, so every kind finds what it will find. */
#ifndef STEP_WALK_H
#define STEP_WALK_H

#include "step/kinds.h"
#include "step/settings.h"
#include "step/trainer.h"
#include "tally.h"

/* Hears of each stretch when it has ended, and takes its ledger over; false ends the walk. */
struct walker {
    bool (*bill)(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device);
    void *context;
};

/* Whether a kind comes after so many steps; a step always does. */
bool walk_is_due(const struct trainer *t, enum step_kind kind, int64_t done);
/* How often something comes that is due every so many steps (0: at the end alone), after `from` of `steps`. */
int64_t walk_n_due(int64_t every, int64_t from, int64_t steps);

/* Runs one stretch and bills it. `step`: of a step, counted from 0. False: recorded. */
bool walk_kind(struct trainer *t, enum step_kind kind, int64_t step, const struct walker *w);
/* A walker's bill that adds to a struct kinds, its context. */
bool walk_bill_kinds(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device);

struct walk {
    int64_t from;   /* steps that are behind the process whose pool is walked */
    bool is_sketch; /* for memory alone: of samples only as much is made as has peaks of its own; a fifth of the time */
    int64_t counts[KIND_COUNT]; /* how often each kind comes in the whole run; too low in a sketch */
    bool is_settled;            /* the pool's layout came back wherever something was left out */
};

/* Walks through the settings' run on a device without data, with a pool of at most memory_bytes (0: of the device's
 * own size). The caller gives from and is_sketch. False: recorded. */
bool walk_run(struct walk *walk, const struct settings *s, tl_device *device, uint64_t memory_bytes,
              const struct walker *w);

/* The device on meta that stands in for the run's own. */
tl_device *walk_stand_in(const struct settings *s);

#endif
