/* elementwise.h: the rules that elementwise ops share. */
#ifndef OPS_ELEMENTWISE_H
#define OPS_ELEMENTWISE_H

#include "ops/ops.h"

/* In place, a result of this shape and dtype must fit into the first operand as it is. */
bool call_fits_in_place(const tl_call *c, int rank, const int64_t *shape, tl_dtype dtype);
/* The common dtype and shape of operands i and k. */
bool call_pair(const tl_call *c, int i, int k, tl_dtype *dtype, int *rank, int64_t *shape);

/* The dtype that two operands promote to; TL_DTYPE_COUNT: none. */
tl_dtype elementwise_dtype(const tl_tensor *a, const tl_tensor *b);

/* Like input 0 in shape, of another dtype; in place where that fits. */
static inline bool call_output_as(tl_call *c, tl_dtype dtype) {
    const tl_tensor *x = c->input[0];
    if (c->in_place) return call_fits_in_place(c, x->rank, x->shape, dtype);
    return call_output(c, 0, dtype, x->rank, x->shape);
}

/* The hand-written parts of the rows of elementwise_list.h, in elementwise.c, scalar.c and swiglu.c. */
#define UNARY(...)
#define BINARY(...)
#define BINARY_SHARED(name, ...) void name##_backward(tl_gradient *g);
#define SPECIAL(name, dtypes, shape_rule, ...) \
    bool shape_rule(tl_call *c);               \
    void name##_backward(tl_gradient *g);
#include "spec/elementwise_list.h"

#endif
