/* rounds.h: what a step does many times over: micro-batches, batches of an evaluation.
 *
 * On meta a round that begins as an earlier one began does what that one did: which requests it makes follows from
 * shapes alone, and what the pool answers from its layout (tensor/pool.h). So rounds are run until everything is as
 * it was after an earlier one. From there on they go in a circle: whole circles are billed without being run, and
 * the rest is run, so that the pool too ends as it would have. The price of a million micro-batches takes the time
 * of a few, and is the receipt's to the last byte, FLOP and call. Where no state comes back, all rounds are run.
 * Circles are short, but not always of one round: free blocks of one size change places. */
#ifndef STEP_ROUNDS_H
#define STEP_ROUNDS_H

#include "step/trainer.h"

/* round(t, k, context) for k = 0 .. n - 1. Rounds from 1 on must make the same requests in the same order on any
 * device; what they keep from one to the next are gradients and their sums. False: a round failed, or there was no
 * memory; recorded. */
bool rounds_run(struct trainer *t, int64_t n, bool (*round)(struct trainer *t, int64_t k, void *context),
                void *context);

/* For tests: every round is run. */
extern bool rounds_are_all_run;

#endif
