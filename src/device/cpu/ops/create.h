/* create.h: random numbers, for kernels that need them as a part. */
#ifndef TALLY_DEVICE_CPU_CREATE_H
#define TALLY_DEVICE_CPU_CREATE_H

#include "spec/attr.h"

/* Elements first .. first+n-1 of the tensor that `random` makes with these attributes: dense, in this dtype. */
void create_random(const struct attr_random *attr, tl_dtype dtype, void *to, int64_t first, int64_t n);

#endif
