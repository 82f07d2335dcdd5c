/* elementwise.h: the rules that elementwise ops share. */
#ifndef OPS_ELEMENTWISE_H
#define OPS_ELEMENTWISE_H

#include "ops/ops.h"

/* In place, a result of this shape and dtype must fit into the first operand as it is. */
bool call_fits_in_place(const tl_call *c, int rank, const int64_t *shape, tl_dtype dtype);
/* The common dtype and shape of operands i and k. */
bool call_pair(const tl_call *c, int i, int k, tl_dtype *dtype, int *rank, int64_t *shape);

/* Like input 0 in shape, of another dtype; in place where that fits. */
static inline bool call_output_as(tl_call *c, tl_dtype dtype) {
    const tl_tensor *x = c->input[0];
    if (c->in_place) return call_fits_in_place(c, x->rank, x->shape, dtype);
    return call_output(c, 0, dtype, x->rank, x->shape);
}

/* A function of real numbers: floats keep their dtype, integers and bool give f32. */
bool real_shape(tl_call *c);
/* Like input 0, which is no bool. */
bool number_shape(tl_call *c);

/* So many FLOPs for each element of the result, and the bytes of all operands. */
void elementwise_cost(const tl_call *c, struct cost *cost, int flops);

/* The rule of y = g f'(x), where f' has a kernel of its own (inputs x and g) and `second` computes f'' in ops. */
void elementwise_slope_backward(tl_gradient *g, const tl_op *op, tl_tensor *(*second)(tl_tensor *x));

/* Calls without attributes; a name that ends in _ changes its first operand. */
static inline tl_tensor *unary(const tl_op *op, tl_tensor *x) { return op_apply1(op, x, NULL, 0); }
static inline tl_tensor *unary_(const tl_op *op, tl_tensor *x) { return op_apply_in_place(op, &x, 1, NULL, 0); }
static inline tl_tensor *binary(const tl_op *op, tl_tensor *a, tl_tensor *b) { return op_apply2(op, a, b, NULL, 0); }
static inline tl_tensor *binary_(const tl_op *op, tl_tensor *a, tl_tensor *b) {
    tl_tensor *input[2] = {a, b};
    return op_apply_in_place(op, input, 2, NULL, 0);
}

#endif
