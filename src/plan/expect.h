/* expect.h: what this machine's stored profile predicts for a run before it starts. */
#ifndef PLAN_EXPECT_H
#define PLAN_EXPECT_H

#include "step/settings.h"

struct expectation {
    double peak;   /* FLOP/s of the run's products, each dtype at its own peak; 0: there is no profile */
    double step_s; /* of a step; 0: there is no profile */
};

/* Prices the run, if there is a profile of its device. Records nothing: without a profile, or if the run cannot be
 * priced (the run itself will report that), everything is 0. */
struct expectation expect_of(const struct settings *s);

#endif
