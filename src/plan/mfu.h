/* mfu.h: the share of the peak that published trainings reached, by chip and by size of the model: what to expect where
 * nothing was measured. */
#ifndef PLAN_MFU_H
#define PLAN_MFU_H

#include "plan/hardware.h"

struct mfu_row {
    const char *chip;       /* how its name begins; NULL after the last */
    double parameters, mfu; /* by PaLM's rule, without recomputation; the median of `n` rows */
    int n;
    const char *source;
};
extern const struct mfu_row mfu_rows[];
/* The row of this chip whose size is nearest, in proportion; 0 parameters: a middle one. NULL: none is published for
 * the chip. */
const struct mfu_row *mfu_find(const struct hardware *chip, double parameters);

#endif
