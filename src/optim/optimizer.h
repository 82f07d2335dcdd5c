/* optimizer.h: parameters of which this process updates a part. */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "tally.h"

/* tl_optimizer_add for a part of something larger, the rest of which other processes update. words_before and
 * words_after are multiples of 4: the elements before and behind this part, rounded up. With them an element is rounded
 * at random by the same number whoever updates it, and the generator of every process moves on alike. */
bool optimizer_add_part(tl_optimizer *o, const char *name, tl_tensor *parameter, const tl_optimizer_options *options,
                        uint64_t words_before, uint64_t words_after);

#endif
