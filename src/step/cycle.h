/* cycle.h: detects when the pool's layout repeats.
 *
 * The requests of a round follow from shapes alone, and the pool's answers from its layout (tensor/pool.h). So if the
 * layout after a round was seen before, all later rounds repeat those in between. Cycles are found by Brent's
 * algorithm: the layout after some round is the mark, and later ones are compared with it; when as many have passed
 * as before the mark was set, the newest becomes the mark. Two layouts are kept, however long the cycle is. */
#ifndef STEP_CYCLE_H
#define STEP_CYCLE_H

#include "step/trainer.h"
#include "tensor/pool.h"

struct cycle {
    struct pool_layout mark;
    int64_t n_since, most; /* rounds since the mark; rounds until the next mark; most 0: there is no mark yet */
};

enum cycle_news {
    CYCLE_FAILED, /* no memory; recorded */
    CYCLE_NONE,
    CYCLE_MARKED, /* the newest layout is the mark from now on */
    CYCLE_FOUND   /* the layout is that of n_since rounds ago */
};

/* The layout, with the blocks that the gradients and their sums have. False: recorded. */
bool cycle_layout_read(const struct trainer *t, struct pool_layout *layout);
/* As cycle_layout_read, in the order that a step gives to what is free before it asks for anything. */
bool cycle_blocks_read(const struct trainer *t, struct pool_layout *layout);
bool cycle_is_same(const struct pool_layout *a, const struct pool_layout *b);

/* Called after each round, with the layout that it left. */
enum cycle_news cycle_look(struct cycle *c, const struct pool_layout *now);
void cycle_end(struct cycle *c); /* it can be used again */

#endif
