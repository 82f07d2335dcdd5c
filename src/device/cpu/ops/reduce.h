/* reduce.h: what reductions share: the walk, and lines along any axis. */
#ifndef TALLY_DEVICE_CPU_REDUCE_H
#define TALLY_DEVICE_CPU_REDUCE_H

#include "device/cpu/shared/iterate.h"

/* The walk over those axes of x whose bit in `axes` is set, row-major. */
void reduce_walk(struct iterate *walk, const tl_operand *x, uint32_t axes);

/* Runs `rows`, a kernel that takes dense rows, along the axis of attr_softmax: its operands become (rows, n), and where
 * elements of a line are not neighbours, rows of the workspace, which has room for copies of all inputs; the result
 * takes the place of the first. */
bool reduce_along(const tl_kernel_args *args, bool (*rows)(const tl_kernel_args *args));

#endif
