/* reduce.h: helpers of reductions over a set of axes. */
#ifndef OPS_REDUCE_H
#define OPS_REDUCE_H

#include "ops/ops.h"

/* The set of axes a caller names (n_axes 0: all of them). False, and an error that names `op`, for an axis that does
 * not exist or comes twice. x is checked too. */
bool reduce_over(const char *op, tl_tensor *x, const int *axes, int n_axes, bool keep, struct attr_reduce *a);

/* The set as a list, in rising order; returns how many. */
int reduce_axes(uint32_t axes, int rank, int *list);

/* The shape that is left of x. */
void reduce_shape(const tl_tensor *x, const struct attr_reduce *a, int *rank, int64_t *shape);

/* Elements of x that make one element of a result with n_outputs of them. */
int64_t reduce_count(const tl_tensor *x, int64_t n_outputs);

/* Whether one of the reduced axes has no elements: it has no extremes, even where the result is empty too. */
bool reduce_is_empty(const tl_tensor *x, const struct attr_reduce *a);

/* The call of an op whose attributes are attr_reduce. */
tl_tensor *reduce_apply(const tl_op *op, tl_tensor *x, const int *axes, int n_axes, bool keep);

/* One FLOP per element of x. */
void reduce_cost(const tl_call *c, struct cost *cost);
/* `bytes` for each (output, chunk), where several chunks make one output. */
uint64_t reduce_chunk_bytes(const tl_call *c, uint64_t bytes);

/* Of running products: fold.c. */
void prod_backward(tl_gradient *g);

/* tl_sum, in f32 for narrower floats: a sum on its way to a mean may exceed what f16 can hold. `name` is for errors. */
tl_tensor *reduce_sum_wide(const char *name, tl_tensor *x, const int *axes, int n_axes, bool keep);

/* Restores the axes of size 1 of a reduced tensor, from the input's shape (an edge of the graph). */
tl_tensor *reduce_restore(tl_tensor *x, const struct edge *e, uint32_t axes);

#endif
