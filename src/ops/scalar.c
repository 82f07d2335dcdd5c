/* scalar.c: a tensor and a number.
 *
 * A number promotes by its kind alone, as a Python number does in PyTorch: it decides the result's dtype only where it
 * is of a higher kind than the tensor's (bool, integer, float). It travels in the attributes, so a call costs what the
 * tensor form costs without the second operand's bytes, and no tensor is made of it. The records are rows of
 * elementwise_list.h.
 */
#include <math.h>
#include <string.h>

#include "ops/elementwise.h"

tl_scalar tl_scalar_bool(bool value) { return (tl_scalar){.kind = TL_SCALAR_BOOL, .i = value}; }
tl_scalar tl_scalar_int(int64_t value) { return (tl_scalar){.kind = TL_SCALAR_INT, .i = value}; }
tl_scalar tl_scalar_float(double value) { return (tl_scalar){.kind = TL_SCALAR_FLOAT, .f = value}; }

static tl_dtype promoted(tl_dtype dtype, tl_scalar s) {
    if (dtype_has_gradient(dtype)) return dtype;
    if (s.kind == TL_SCALAR_FLOAT) return TL_F32;
    return dtype == TL_BOOL && s.kind == TL_SCALAR_INT ? TL_I64 : dtype;
}

static double real_of(tl_scalar s) { return s.kind == TL_SCALAR_FLOAT ? s.f : (double)s.i; }

/* ---- Shapes ---- */

static const tl_scalar *value_of(const tl_call *c) { return &((const struct attr_scalar *)c->attr)->value; }

bool scalar_shape(tl_call *c) {
    return call_needs_arithmetic(c, 0) && call_output_as(c, promoted(c->input[0]->dtype, *value_of(c)));
}

bool sub_scalar_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL || value_of(c)->kind == TL_SCALAR_BOOL)
        return call_fail(c, "subtraction, the `-` operator, with a bool tensor is not supported");
    return scalar_shape(c);
}

/* True division: integers become f32. */
bool div_scalar_shape(tl_call *c) {
    tl_dtype dtype = promoted(c->input[0]->dtype, *value_of(c));
    return call_needs_arithmetic(c, 0) && call_output_as(c, dtype_is_float(dtype) ? dtype : TL_F32);
}

static bool has_number(tl_call *c) {
    return promoted(c->input[0]->dtype, *value_of(c)) != TL_BOOL ||
           call_fail_need(c, "not implemented for bool", "a number");
}

bool pow_scalar_shape(tl_call *c) {
    const struct attr_scalar *a = c->attr;
    if (!a->is_first && !dtype_is_float(c->input[0]->dtype) && a->value.kind == TL_SCALAR_INT && a->value.i < 0)
        return call_fail(c, "Integers to negative integer powers are not allowed");
    const struct dtype_info *info = dtype_info(promoted(c->input[0]->dtype, a->value));
    if (!a->is_first && info->kind != DTYPE_FLOAT && a->value.i > info->integer_max)
        return call_fail(c, "value cannot be converted to type %s without overflow", info->torch_name);
    return has_number(c) && scalar_shape(c);
}

bool remainder_scalar_shape(tl_call *c) {
    tl_dtype dtype = promoted(c->input[0]->dtype, *value_of(c));
    if (!dtype_is_float(dtype) && value_of(c)->i == 0 && c->input[0]->numel)
        return call_fail(c, "ZeroDivisionError: an integer has no remainder by 0");
    return has_number(c) && scalar_shape(c);
}

/* An integer bound may lie outside the dtype only where it bounds nothing. */
static bool bound_is_reachable(const tl_call *c, const char *name, tl_scalar s, tl_dtype dtype, bool is_min) {
    const struct dtype_info *info = dtype_info(dtype);
    if (dtype_is_float(dtype) || (is_min ? s.i <= info->integer_max : s.i >= info->integer_min)) return true;
    return call_fail(c, "clamp %s value %lld is outside the representable range of %s", name, (long long)s.i,
                     info->torch_name);
}

bool clamp_shape(tl_call *c) {
    const struct attr_clamp *a = c->attr;
    tl_dtype dtype = c->input[0]->dtype;
    if (a->has_min) dtype = promoted(dtype, a->min);
    if (a->has_max) dtype = promoted(dtype, a->max);
    if (!a->has_min && !a->has_max) return call_fail(c, "at least one of 'min' or 'max' must not be NULL");
    if (dtype == TL_BOOL) return call_fail_need(c, "not implemented for bool", "a number");
    if (a->has_min && !bound_is_reachable(c, "min", a->min, dtype, true)) return false;
    if (a->has_max && !bound_is_reachable(c, "max", a->max, dtype, false)) return false;
    return call_needs_arithmetic(c, 0) && call_output_as(c, dtype);
}

/* ---- Gradients ---- */

static const struct attr_scalar *scalar_of(const tl_gradient *g) { return g->node->attr; }

void add_scalar_backward(tl_gradient *g) { g->result[0] = g->grad[0]; }
/* d(x-s) = g, d(s-x) = -g */
void sub_scalar_backward(tl_gradient *g) { g->result[0] = scalar_of(g)->is_first ? tl_neg(g->grad[0]) : g->grad[0]; }
/* s g */
void mul_scalar_backward(tl_gradient *g) { g->result[0] = tl_mul_scalar(g->grad[0], scalar_of(g)->value); }
/* d(x/s) = g/s */
void div_scalar_backward(tl_gradient *g) {
    const struct attr_scalar *a = scalar_of(g);
    if (!a->is_first) {
        g->result[0] = tl_div_scalar(g->grad[0], a->value);
        return;
    }
    tl_tensor *x = gradient_input(g, 0); /* d(s/x) = -(g/x) (s/x) */
    tl_tensor *y = tl_rdiv_scalar(x, a->value);
    g->result[0] = tl_neg(tl_mul(tl_div(g->grad[0], x), y));
}
/* d(x^s) = g s x^(s-1), 0 for s = 0; d(s^x) = g s^x log s, 0 where s is 0 and x not negative (the limit) */
void pow_scalar_backward(tl_gradient *g) {
    const struct attr_scalar *a = scalar_of(g);
    double s = real_of(a->value);
    tl_tensor *x = gradient_input(g, 0);
    if (!a->is_first) {
        tl_tensor *slope = s == 0 ? tl_zeros_like(x) : tl_scale(tl_pow_scalar(x, tl_scalar_float(s - 1)), s);
        g->result[0] = s == 0 ? slope : tl_mul(g->grad[0], slope);
        return;
    }
    tl_tensor *y = tl_rpow_scalar(x, a->value);
    tl_tensor *slope = tl_scale(s == 0 ? tl_detach(y) : y, log(s)); /* a path through log 0 would give 0 * -inf */
    if (s == 0) {
        tl_tensor *zero = tl_zeros(0, NULL, x->dtype, x->storage->device);
        slope = tl_where(tl_cmp(x, TL_GE, zero), zero, slope);
    }
    g->result[0] = tl_mul(g->grad[0], slope);
}
/* d(x mod s) = g */
void remainder_scalar_backward(tl_gradient *g) { g->result[0] = g->grad[0]; }
/* g strictly between the bounds */
void clamp_backward(tl_gradient *g) {
    const struct attr_clamp *a = g->node->attr;
    tl_tensor *x = gradient_input(g, 0), *inside = NULL;
    tl_tensor *zero = tl_zeros(0, NULL, g->grad[0]->dtype, g->grad[0]->storage->device);
    if (a->has_min) inside = tl_cmp_scalar(x, TL_GT, a->min);
    if (a->has_max) {
        tl_tensor *below = tl_cmp_scalar(x, TL_LT, a->max);
        inside = a->has_min ? tl_logical_and(inside, below) : below;
    }
    g->result[0] = tl_where(inside, g->grad[0], zero);
}

/* ---- Public ---- */

/* Whole structs are cleared first: the graph keeps their bytes. */
static struct attr_scalar attr_of(tl_scalar value, bool is_first, tl_compare relation) {
    struct attr_scalar a;
    memset(&a, 0, sizeof a);
    a.value.kind = value.kind;
    a.value.i = value.i;
    a.value.f = value.f;
    a.is_first = is_first;
    a.relation = relation;
    return a;
}
static tl_tensor *with(const tl_op *op, tl_tensor *x, tl_scalar value, bool is_first) {
    struct attr_scalar a = attr_of(value, is_first, TL_EQ);
    return op_apply1(op, x, ATTR(a));
}
static tl_tensor *with_(const tl_op *op, tl_tensor *x, tl_scalar value) {
    struct attr_scalar a = attr_of(value, false, TL_EQ);
    return op_apply_in_place(op, &x, 1, ATTR(a));
}

tl_tensor *tl_add_scalar(tl_tensor *x, tl_scalar value) { return with(&op_add_scalar, x, value, false); }
tl_tensor *tl_sub_scalar(tl_tensor *x, tl_scalar value) { return with(&op_sub_scalar, x, value, false); }
tl_tensor *tl_rsub_scalar(tl_tensor *x, tl_scalar value) { return with(&op_sub_scalar, x, value, true); }
tl_tensor *tl_mul_scalar(tl_tensor *x, tl_scalar value) { return with(&op_mul_scalar, x, value, false); }
tl_tensor *tl_div_scalar(tl_tensor *x, tl_scalar value) { return with(&op_div_scalar, x, value, false); }
tl_tensor *tl_rdiv_scalar(tl_tensor *x, tl_scalar value) { return with(&op_div_scalar, x, value, true); }
tl_tensor *tl_pow_scalar(tl_tensor *x, tl_scalar value) { return with(&op_pow_scalar, x, value, false); }
tl_tensor *tl_rpow_scalar(tl_tensor *x, tl_scalar value) { return with(&op_pow_scalar, x, value, true); }
tl_tensor *tl_remainder_scalar(tl_tensor *x, tl_scalar value) { return with(&op_remainder_scalar, x, value, false); }
tl_tensor *tl_add_scalar_(tl_tensor *x, tl_scalar value) { return with_(&op_add_scalar, x, value); }
tl_tensor *tl_sub_scalar_(tl_tensor *x, tl_scalar value) { return with_(&op_sub_scalar, x, value); }
tl_tensor *tl_mul_scalar_(tl_tensor *x, tl_scalar value) { return with_(&op_mul_scalar, x, value); }
tl_tensor *tl_div_scalar_(tl_tensor *x, tl_scalar value) { return with_(&op_div_scalar, x, value); }
tl_tensor *tl_pow_scalar_(tl_tensor *x, tl_scalar value) { return with_(&op_pow_scalar, x, value); }
tl_tensor *tl_remainder_scalar_(tl_tensor *x, tl_scalar value) { return with_(&op_remainder_scalar, x, value); }
tl_tensor *tl_reciprocal(tl_tensor *x) { return tl_rdiv_scalar(x, tl_scalar_int(1)); }

tl_tensor *tl_cmp_scalar(tl_tensor *x, tl_compare relation, tl_scalar value) {
    struct attr_scalar a = attr_of(value, false, relation);
    if ((unsigned)relation > TL_GE) {
        error_set(TL_ERROR_USE, "cmp: no relation has the number %d", (int)relation);
        return NULL;
    }
    return op_apply1(&op_compare_scalar, x, ATTR(a));
}

static struct attr_clamp bounds_of(const tl_scalar *min, const tl_scalar *max) {
    struct attr_clamp a;
    memset(&a, 0, sizeof a);
    if (min) a.min = attr_of(*min, false, TL_EQ).value;
    if (max) a.max = attr_of(*max, false, TL_EQ).value;
    a.has_min = min != NULL;
    a.has_max = max != NULL;
    return a;
}
tl_tensor *tl_clamp(tl_tensor *x, const tl_scalar *min, const tl_scalar *max) {
    struct attr_clamp a = bounds_of(min, max);
    return op_apply1(&op_clamp, x, ATTR(a));
}
tl_tensor *tl_clamp_(tl_tensor *x, const tl_scalar *min, const tl_scalar *max) {
    struct attr_clamp a = bounds_of(min, max);
    return op_apply_in_place(&op_clamp, &x, 1, ATTR(a));
}
tl_tensor *tl_minimum_scalar(tl_tensor *x, tl_scalar value) { return tl_clamp(x, NULL, &value); }
tl_tensor *tl_maximum_scalar(tl_tensor *x, tl_scalar value) { return tl_clamp(x, &value, NULL); }

tl_tensor *tl_where_scalar(tl_tensor *condition, tl_tensor *a, tl_scalar b) {
    if (!tensor_check(a, "where")) return NULL;
    tl_dtype dtype = promoted(a->dtype, b);
    tl_dtype wide = dtype_is_float(dtype) ? statistics_dtype(dtype) : dtype; /* 16 bits: overflow gives infinity */
    tl_tensor *number = tl_fill_scalar_(tl_zeros(0, NULL, wide, a->storage->device), b);
    return tl_where(condition, a, number ? tl_cast(number, dtype) : NULL);
}

/* PyTorch's rule: finite numbers must lie within the dtype, but negative integers wrap in unsigned ones. */
static bool number_fits(tl_dtype dtype, tl_scalar s) {
    const struct dtype_info *info = dtype_info(dtype_part(dtype));
    if (info->kind == DTYPE_BOOL) return true;
    if (info->kind == DTYPE_FLOAT) return !isfinite(real_of(s)) || fabs(real_of(s)) <= info->max;
    if (s.kind == TL_SCALAR_FLOAT) return s.f >= (double)info->integer_min && s.f <= (double)info->integer_max;
    int64_t lowest = info->kind == DTYPE_UNSIGNED ? -info->integer_max : info->integer_min;
    return s.i >= lowest && s.i <= info->integer_max;
}

/* A double holds every number but large integers: those go by way of a tensor of one. */
tl_tensor *tl_fill_scalar_(tl_tensor *x, tl_scalar value) {
    if (!tensor_check(x, "fill")) return NULL;
    const struct dtype_info *info = dtype_info(x->dtype);
    if (!number_fits(x->dtype, value)) {
        error_set(TL_ERROR_USE, "fill: value cannot be converted to type %s without overflow", info->torch_name);
        return NULL;
    }
    if (value.kind == TL_SCALAR_FLOAT || (value.i > -(1LL << 53) && value.i < 1LL << 53)) {
        bool wraps = info->kind == DTYPE_UNSIGNED && value.kind != TL_SCALAR_FLOAT && value.i < 0;
        return tl_fill_(x, real_of(value) + (wraps ? (double)info->integer_max + 1 : 0));
    }
    return tl_copy_(x, tl_from_data(&value.i, 0, NULL, TL_I64, x->storage->device));
}
