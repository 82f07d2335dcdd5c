/* cost.h: what one op call costs, as its cost rule states it.
 *
 * FLOPs are algorithmic: a multiply-add is 2, whatever the device does. Bytes are compulsory traffic: each distinct
 * input byte once, each output byte once. See docs/accounting.md.
 */
#ifndef SPEC_COST_H
#define SPEC_COST_H

#include "tally.h"

__extension__ typedef unsigned __int128 count; /* totals exceed 64 bits */

#define COST_HERE TL_PHASE_COUNT /* the phase that is running */
#define COST_PARTS 2

struct cost_part {
    int phase; /* COST_HERE, or the phase whose work this part does (recompute inside attention_grad) */
    count flops, bytes_read, bytes_written;
};

struct cost {
    int n_parts;
    struct cost_part part[COST_PARTS];
    count transfer_bytes; /* between host and device */
    count sent_bytes;     /* to other processes */
};

static inline tl_count count_public(count c) { return (tl_count){(uint64_t)c, (uint64_t)(c >> 64)}; }

#endif
