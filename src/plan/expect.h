/* expect.h: what the kept profile of this machine says of a run before it starts. */
#ifndef PLAN_EXPECT_H
#define PLAN_EXPECT_H

#include "step/settings.h"

struct expectation {
    double peak;   /* FLOP/s of the run's products; 0: there is no profile */
    double step_s; /* of a step; 0: there is no profile */
};

/* Prices the run, if there is a profile of its device. Records nothing: without a profile, or when the run cannot be
 * priced (which it will say itself), everything is 0. */
struct expectation expect_of(const struct settings *s);

#endif
