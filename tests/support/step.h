/* step.h: a whole training step of a very small transformer, for tests that break it (faults) or run it side by side
 * (threads). Everything a step has: embedding, norms, attention, MLP, dropout, loss, backward, update. */
#ifndef TESTS_SUPPORT_STEP_H
#define TESTS_SUPPORT_STEP_H

#include "tally.h"

enum step_checkpoint { STEP_PLAIN, STEP_FULL, STEP_SELECTIVE };

/* Makes the parameters from `seed`, does `n_steps` steps on `device` inside a separate scope and named scopes, and
 * returns the last loss (0 on meta). False: an error is pending, and nothing is left behind. */
bool step_train(tl_device *device, uint64_t seed, int n_steps, enum step_checkpoint checkpoint, double *loss);

#endif
