/* advice.h: settings that fit, for a run that does not. */
#ifndef STEP_ADVICE_H
#define STEP_ADVICE_H

#include "tally.h"
#include "step/settings.h"

/* The pending error is that a pool could not give the memory that a run needs. Adds to its message what the run
 * needs in all, and settings that fit, each of them priced: the largest batch, and the cheapest checkpointing.
 * `device` is where it failed. If nothing is found, the message stays as it was. */
void advice_add(const struct settings *s, const tl_device *device);

#endif
