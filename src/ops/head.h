/* head.h: how the last product and the loss take their rows. */
#ifndef OPS_HEAD_H
#define OPS_HEAD_H

#include "ops/ops.h"

/* How linear_cross_entropy takes rows of x (N,C) for a number of classes. */
struct head_cut head_cut_of(const tl_tensor *x, int64_t n_classes);

#endif
