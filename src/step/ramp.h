/* ramp.h: batch-size warm-up. In the first batch_warmup steps of a run, a step has fewer micro-batches than accum.
 *
 * These steps are divided into n = min(accum, 8) - 1 stages of about equal length. A step of stage i, from 0, has
 * 1 + (accum - 1) i / n micro-batches, rounded down: at most 8 sizes of step are priced, however large accum is. Later
 * steps have accum. Micro-batches come in the order in which they would come without warm-up. */
#ifndef STEP_RAMP_H
#define STEP_RAMP_H

#include "step/settings.h"

enum { RAMP_STAGES = 7 }; /* at most */

int ramp_stages(const struct settings *s);              /* 0: no warm-up */
int ramp_stage(const struct settings *s, int64_t step); /* of a step, from 0; ramp_stages: warm-up is over */
int64_t ramp_stage_accum(const struct settings *s, int stage);
int64_t ramp_stage_begin(const struct settings *s, int stage); /* its first step; of ramp_stages: batch_warmup */
int64_t ramp_accum(const struct settings *s, int64_t step);
/* Micro-batches of the first `steps` steps; and how many steps have that many at least. */
int64_t ramp_batches(const struct settings *s, int64_t steps);
double ramp_steps_for(const struct settings *s, double batches);

#endif
