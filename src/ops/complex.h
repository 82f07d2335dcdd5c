/* complex.h: complex numbers as pairs of real ones. */
#ifndef OPS_COMPLEX_H
#define OPS_COMPLEX_H

#include "engine/inner_calls.h"
#include "ops/ops.h"

/* How an op's call with complex operands is made of calls on real ones; NULL: it is refused. */
complex_rule complex_rule_of(const tl_op *op);

/* The geometry of a complex tensor in real numbers, with the pair as the last axis. False: it cannot be counted, or has
 * too many axes; recorded. */
bool complex_pairs(const tl_tensor *x, struct layout *pairs);

/* x + 0i. NULL stays NULL. */
tl_tensor *complex_of_real(tl_tensor *x, tl_dtype dtype);
tl_tensor *complex_full(int rank, const int64_t *shape, double value, tl_dtype dtype, tl_device *device);

#endif
