/* inner_calls.h: the ops that the engine itself calls, as part of another call.
 *
 * Ops are above the engine, which therefore knows these by pointer; ops/inner_calls.c fills them in before main.
 */
#ifndef ENGINE_INNER_CALLS_H
#define ENGINE_INNER_CALLS_H

#include "spec/op.h"

/* Does a call with complex operands by calls on their real parts. Returns its result, NULL on error. */
typedef tl_tensor *(*complex_rule)(tl_call *call);

struct inner_calls {
    tl_tensor *(*cast)(tl_tensor *x, tl_dtype dtype); /* autocast */
    tl_tensor *(*clone)(tl_tensor *x);                /* if an in-place call overwrites what its gradient reads */
    tl_tensor *(*view_again)(tl_tensor *base, tl_tensor *view); /* rebuilds a view whose base has changed */
    complex_rule (*complex_rule)(const tl_op *op);              /* NULL: the op takes no complex numbers */
    const tl_op *region;                                        /* the record of region nodes; see attr_region */
};
extern struct inner_calls inner_calls;

/* A region node: the base of a view after an in-place call on the view. The gradient of the base as it was is that of
 * the new one outside the view; the gradient of the view's elements is the rest. */
struct attr_region {
    int rank;
    /* of the view, relative to a dense base, in its elements */
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK], offset;
};

#endif
