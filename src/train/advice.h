/* advice.h: what would fit, when a run does not. */
#ifndef TRAIN_ADVICE_H
#define TRAIN_ADVICE_H

#include "tally.h"
#include "train/settings.h"

/* The pending error is that a pool could not give the memory that a run needs. Adds to its message what the run needs in all, and settings
 * that fit, each of them priced: the largest batch, and the cheapest checkpointing. `device` is where it failed. What was known before
 * stays when nothing can be found. */
void advice_add(const struct settings *s, const tl_device *device);

#endif
