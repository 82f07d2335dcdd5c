/* optimizer.h: parameters of which this process updates a part. */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "ops/update.h"
#include "tally.h"

/* What a parameter is a part of, whose rest other processes update. */
struct optimizer_part {
    /* Multiples of 4: the elements in front of this part and behind it, rounded up. With them an element is rounded at
     * random by the same number whoever updates it, and the generator of every process moves on alike. */
    uint64_t words_before, words_after;
    const struct update_matrices *matrices; /* not NULL: Muon updates it; not owned */
};

/* tl_optimizer_add for a part of something larger. */
bool optimizer_add_part(tl_optimizer *o, const char *name, tl_tensor *parameter, const tl_optimizer_options *options,
                        const struct optimizer_part *part);

#endif
