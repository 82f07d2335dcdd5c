/* walk.h: the schedule of a run, and the walk through it that gives its price.
 *
 * A run is a sequence of steps with evaluations, samples and saves after some of them, each billed to its own
 * ledger. The walk is the same sequence on meta, without the parts that are known to repeat: plain steps are run
 * until the pool's layout repeats (cycle.h) and whole cycles of them are left out, and so are equal evaluations or
 * samples with equal stretches between them. A stretch that begins with a layout from which its kind has run before
 * is left out too. The rest runs in the order of the run, from the pool that the run would have, so every kind
 * starts from the same state as in the run. */
#ifndef STEP_WALK_H
#define STEP_WALK_H

#include "step/kinds.h"
#include "step/settings.h"
#include "step/trainer.h"
#include "tally.h"

/* Called when a stretch has ended; takes over its ledger. False ends the walk. */
struct walker {
    bool (*bill)(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device);
    void *context;
};

/* Whether a kind is due after `done` steps; a step always is. */
bool walk_is_due(const struct trainer *t, enum step_kind kind, int64_t done);

/* Runs one stretch and bills it. `step`: of a step, counted from 0. A stage of batch-size warm-up begins with a pool
 * that has nothing unused, so that what it reserves does not depend on where the process began. False: recorded. */
bool walk_kind(struct trainer *t, enum step_kind kind, int64_t step, const struct walker *w);
/* A walker's bill that adds to a struct kinds, its context. */
bool walk_bill_kinds(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device);

struct walk {
    int64_t from;               /* steps done before the process whose pool is walked */
    int rank;                   /* of the processes, whose price it is */
    bool is_sketch;             /* for memory alone: samples only as far as they affect peaks; a fifth of the time */
    int64_t counts[KIND_COUNT]; /* how often each kind comes in the whole run; too low in a sketch */
    bool is_settled;            /* the pool's layout repeated wherever something was left out */
};

/* Walks through the settings' run on a device without data, with a pool of at most memory_bytes (0: of the device's
 * own size). The caller gives from and is_sketch. False: recorded. */
bool walk_run(struct walk *walk, const struct settings *s, tl_device *device, uint64_t memory_bytes,
              const struct walker *w);

/* The device on meta that stands in for the run's own. */
tl_device *walk_stand_in(const struct settings *s);

#endif
