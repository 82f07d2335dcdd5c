/* rounds.h: the repeated parts of a step: micro-batches, batches of an evaluation.
 *
 * On meta a round that begins as an earlier one began does what that one did: its requests follow from shapes alone,
 * and the pool's answers from its layout (tensor/pool.h). So rounds are run until everything is as it was after an
 * earlier one. From there on they repeat in cycles: whole cycles are billed without being run, and the rest is run,
 * so that the pool ends as it would have. The price of a million micro-batches takes the time of a few, and equals
 * the receipt to the last byte, FLOP and call. If no state repeats, all rounds are run. Cycles are short, but not
 * always one round: free blocks of one size swap places. */
#ifndef STEP_ROUNDS_H
#define STEP_ROUNDS_H

#include "step/trainer.h"

/* round(t, k, context) for k = 0 .. n - 1. Rounds from 1 on must make the same requests in the same order on any
 * device; they keep only gradients and their sums from one to the next. False: a round failed, or there was no
 * memory; recorded. */
bool rounds_run(struct trainer *t, int64_t n, bool (*round)(struct trainer *t, int64_t k, void *context),
                void *context);

/* For tests: every round is run. */
extern bool rounds_are_all_run;

#endif
