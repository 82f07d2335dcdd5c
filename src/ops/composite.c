/* composite.c: functions of several elementwise ops. They have no kernel: shape, cost and gradient are those of their
 * ops. */
#include "ops/elementwise.h"

tl_tensor *tl_scale(tl_tensor *x, double scale) { return tl_affine(x, scale, 0); }

tl_tensor *tl_square(tl_tensor *x) {
    if (!tensor_check(x, "square")) return NULL;
    tl_tensor *number = x->dtype == TL_BOOL ? tl_cast(x, TL_I64) : x;
    return tl_mul(number, number);
}

static bool are_floats_of_one_dtype(const char *what, const tl_tensor *a, const tl_tensor *b) {
    if (!tensor_check(a, what) || !tensor_check(b, what)) return false;
    if (!dtype_is_float(a->dtype))
        return error_set(TL_ERROR_USE, "%s: not implemented for %s (need a floating point dtype)", what,
                         dtype_info(a->dtype)->torch_name);
    return a->dtype == b->dtype || error_set(TL_ERROR_USE, "%s: expected dtype %s, but got %s", what,
                                             dtype_info(a->dtype)->torch_name, dtype_info(b->dtype)->torch_name);
}

/* base + step (b - a), from the nearer end: (a, weight) or (b, weight - 1), so that weight 1 gives b itself. In f32 at
 * least, and rounded once. */
static tl_tensor *lerp(tl_tensor *a, tl_tensor *b, tl_tensor *weight, double number) {
    const tl_dtype dtype = a->dtype, wide = statistics_dtype(dtype);
    a = tl_cast(a, wide);
    b = tl_cast(b, wide);
    tl_tensor *difference = tl_sub(b, a), *base = number < 0.5 && number > -0.5 ? a : b, *move;
    if (weight) {
        weight = tl_cast(weight, wide);
        tl_tensor *half = tl_full(TL_SCALAR, 0.5, wide, a ? a->storage->device : NULL);
        tl_tensor *is_above = tl_cmp(weight, TL_GT, tl_neg(half));
        tl_tensor *is_near = tl_logical_and(tl_cmp(weight, TL_LT, half), is_above);
        base = tl_where(is_near, a, b);
        move = tl_mul(tl_where(is_near, weight, tl_affine(weight, 1, -1)), difference);
    } else {
        move = tl_scale(difference, base == a ? number : number - 1);
    }
    tl_tensor *sum = tl_add(base, move);
    return sum ? tl_cast(sum, dtype) : NULL;
}

tl_tensor *tl_lerp(tl_tensor *a, tl_tensor *b, tl_tensor *weight) {
    if (!are_floats_of_one_dtype("lerp", a, b) || !are_floats_of_one_dtype("lerp", a, weight)) return NULL;
    return lerp(a, b, weight, 0);
}
tl_tensor *tl_lerp_scalar(tl_tensor *a, tl_tensor *b, double weight) {
    if (!are_floats_of_one_dtype("lerp", a, b)) return NULL;
    return lerp(a, b, NULL, weight);
}

/* x + (value a) b or x + (value a) / b. Operands of one narrow dtype: in f32, and rounded once. */
static tl_tensor *add_combined(tl_tensor *x, tl_tensor *a, tl_tensor *b, double value,
                               tl_tensor *(*combine)(tl_tensor *, tl_tensor *)) {
    const tl_dtype dtype = x->dtype;
    const bool is_narrow =
        dtype_is_float(dtype) && dtype_info(dtype)->bits < 32 && a->dtype == dtype && b->dtype == dtype;
    if (is_narrow) {
        x = tl_cast(x, TL_F32);
        a = tl_cast(a, TL_F32);
        b = tl_cast(b, TL_F32);
    }
    tl_tensor *sum = tl_add(x, combine(tl_scale(a, value), b));
    return is_narrow && sum ? tl_cast(sum, dtype) : sum;
}

tl_tensor *tl_addcmul(tl_tensor *x, tl_tensor *a, tl_tensor *b, double value) {
    if (!tensor_check(x, "addcmul") || !tensor_check(a, "addcmul") || !tensor_check(b, "addcmul")) return NULL;
    if (x->dtype == TL_BOOL && a->dtype == TL_BOOL && b->dtype == TL_BOOL) {
        error_set(TL_ERROR_USE, "addcmul: not implemented for bool (need a number)");
        return NULL;
    }
    return add_combined(x, a, b, value, tl_mul);
}

tl_tensor *tl_addcdiv(tl_tensor *x, tl_tensor *a, tl_tensor *b, double value) {
    if (!tensor_check(x, "addcdiv") || !tensor_check(a, "addcdiv") || !tensor_check(b, "addcdiv")) return NULL;
    if (!dtype_has_gradient(a->dtype) && !dtype_has_gradient(b->dtype)) {
        error_set(TL_ERROR_USE,
                  "addcdiv: integer division with addcdiv is not supported (need a floating point dtype)");
        return NULL;
    }
    return add_combined(x, a, b, value, tl_div);
}
