/* index.h: helpers shared by gathering, joining and sorting. */
#ifndef OPS_INDEX_H
#define OPS_INDEX_H

#include "ops/ops.h"

/* Two f4 share a byte: single ones cannot be moved. */
static inline bool call_needs_bytes(const tl_call *c, int i) {
    tl_dtype dtype = c->input[i]->dtype;
    return dtype_info(dtype)->bits >= 8 ||
           call_fail_need(c, "two %s share a byte, single ones do not move", "a cast first", tl_dtype_name(dtype));
}

/* An axis counted from 0; -1, and an error, when x has none such. A scalar has axis 0. */
static inline int index_axis(const char *what, const tl_tensor *x, int axis) {
    return axis_check(what, axis, x->rank ? x->rank : 1);
}

/* A scalar as a vector of one. */
static inline tl_tensor *index_lift(tl_tensor *x) { return x->rank ? x : tl_view(x, TL_SHAPE(1)); }

/* Bytes of n elements of x's dtype. */
static inline count index_bytes(const tl_tensor *x, int64_t n) {
    return (count)n * (count)dtype_info(x->dtype)->bits / 8;
}

/* Whether sums of this dtype need wider storage than the result. */
static inline bool index_sums_are_wider(tl_dtype dtype) {
    return dtype_is_float(dtype) && dtype != TL_F32 && dtype != TL_F64;
}

#endif
