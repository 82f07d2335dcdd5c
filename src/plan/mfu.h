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
/* Of a training whose MFU is m, ops take their roofline / (MFU_TO_ROOFLINE m): published runs also recompute, and do
 * more than products. Chosen with half of the published runs, of which the other half is the check
 * (test_published.c). */
#define MFU_TO_ROOFLINE 1.2
/* The row of this chip whose size is nearest, in proportion; 0 parameters: a middle one. NULL: none is published for
 * the chip. */
const struct mfu_row *mfu_find(const struct hardware *chip, double parameters);
/* The share of the roofline that ops of such a training are expected to reach; 0.5 where nothing is published. */
double mfu_roofline_share(const struct hardware *chip, double parameters);

#endif
