/* reduce.h: the walk that all reductions share. */
#ifndef TALLY_DEVICE_CPU_REDUCE_H
#define TALLY_DEVICE_CPU_REDUCE_H

#include "device/cpu/shared/iterate.h"

/* The walk over those axes of x whose bit in `axes` is set, row-major. */
void reduce_walk(struct iterate *walk, const tl_operand *x, uint32_t axes);

#endif
