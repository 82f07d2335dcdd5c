/* inner_calls.h: the ops that the engine itself calls, as part of another call.
 *
 * Ops are above the engine, which therefore knows these by pointer; ops/inner_calls.c fills them in before main.
 */
#ifndef ENGINE_INNER_CALLS_H
#define ENGINE_INNER_CALLS_H

#include "spec/op.h"

struct inner_calls {
    tl_tensor *(*cast)(tl_tensor *x, tl_dtype dtype); /* autocast */
    tl_tensor *(*clone)(tl_tensor *x);                /* if an in-place call overwrites what its gradient reads */
    /* rebuilds a view whose base has changed */
    tl_tensor *(*as_strided)(tl_tensor *x, int rank, const int64_t *shape, const int64_t *stride, int64_t offset);
    const tl_op *region; /* the record of region nodes; see attr_region */
};
extern struct inner_calls inner_calls;

/* A region node: the base of a view after an in-place call on the view. The gradient of the base as it was is that of
 * the new one outside the view; the gradient of the view's elements is the rest. */
struct attr_region {
    int rank;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK], offset; /* of the view, relative to a dense base */
};

#endif
