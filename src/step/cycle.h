/* cycle.h: when the pool goes in a circle.
 *
 * What a round of a run requests follows from shapes alone, and what the pool answers follows from its layout
 * (tensor/pool.h). So when the layout after a round is one that was seen before, all rounds from there on repeat
 * those in between. A cycle is found as Brent does: the layout after some round is the mark, and later ones are
 * compared with it; when as many have passed as before the mark was set, the newest becomes the mark. Two layouts
 * are kept, however long the cycle is. */
#ifndef STEP_CYCLE_H
#define STEP_CYCLE_H

#include "step/trainer.h"
#include "tensor/pool.h"

struct cycle {
    struct pool_layout mark, now;
    int64_t n_since, most; /* rounds since the mark; how many until the next; most 0: there is no mark yet */
};

enum cycle_news {
    CYCLE_FAILED, /* no memory; recorded */
    CYCLE_NONE,
    CYCLE_MARKED, /* the newest layout is the mark from now on */
    CYCLE_FOUND   /* the layout is that of n_since rounds ago */
};

/* Called after each round. The layout includes which blocks the gradients and their sums have. */
enum cycle_news cycle_look(struct cycle *c, const struct trainer *t);
void cycle_end(struct cycle *c); /* it can be used again */

#endif
