/* elementwise.c: one result element from one element of each operand, with broadcasting.
 *
 * FLOPs per element are those of the formula as written; an elementary function (exp, tanh, sqrt, ...) is one.
 */
#include "ops/elementwise.h"

/* ---- Shapes ---- */

bool call_fits_in_place(const tl_call *c, int rank, const int64_t *shape, tl_dtype dtype) {
    const tl_tensor *x = c->input[0];
    if (!shape_equal(rank, shape, x->rank, x->shape)) return call_fail_larger(c, x, rank, shape);
    if ((dtype_is_float(dtype) && !dtype_is_float(x->dtype)) || (dtype != TL_BOOL && x->dtype == TL_BOOL))
        return call_fail(c, "result type %s can't be cast to the desired output type %s",
                         dtype_info(dtype)->scalar_name, dtype_info(x->dtype)->scalar_name);
    return true;
}

static bool unary_shape(tl_call *c) { return call_needs_float(c, 0) && call_output_like(c, 0, 0); }
static bool unary_any_shape(tl_call *c) { return call_needs_arithmetic(c, 0) && call_output_like(c, 0, 0); }
bool real_shape(tl_call *c) {
    tl_dtype dtype = c->input[0]->dtype;
    return call_needs_arithmetic(c, 0) && call_output_as(c, dtype_is_float(dtype) ? dtype : TL_F32);
}
bool number_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL) return call_fail(c, "not implemented for bool (need a number)");
    return unary_any_shape(c);
}
static bool neg_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL)
        return call_fail(c, "negation, the `-` operator, on a bool tensor is not supported");
    return unary_any_shape(c);
}

/* PyTorch's rule: a scalar tensor has a say only where it is of a higher kind (bool, integer, float). */
static tl_dtype common_dtype(const tl_tensor *a, const tl_tensor *b) {
    if ((a->rank == 0) == (b->rank == 0)) return dtype_promote(a->dtype, b->dtype);
    tl_dtype array = a->rank ? a->dtype : b->dtype, scalar = a->rank ? b->dtype : a->dtype;
    bool keeps = dtype_is_float(array) || (array != TL_BOOL && !dtype_is_float(scalar));
    return keeps ? array : dtype_promote(array, scalar);
}

bool call_pair(const tl_call *c, int i, int k, tl_dtype *dtype, int *rank, int64_t *shape) {
    const tl_tensor *a = c->input[i], *b = c->input[k];
    if (!call_needs_arithmetic(c, i) || !call_needs_arithmetic(c, k)) return false;
    *dtype = common_dtype(a, b);
    if (*dtype == TL_DTYPE_COUNT) return call_fail(c, "these dtypes do not promote to a common one (need a cast)");
    return shape_broadcast(a->rank, a->shape, b->rank, b->shape, rank, shape) ||
           call_fail_clash(c, a->rank, a->shape, b->rank, b->shape);
}

static bool binary_shape(tl_call *c) {
    tl_dtype dtype;
    int rank;
    int64_t *shape = c->out[0].shape; /* in place, too, nobody reads it yet */
    if (!call_pair(c, 0, 1, &dtype, &rank, shape)) return false;
    if (c->in_place) return call_fits_in_place(c, rank, shape, dtype);
    return call_output(c, 0, dtype, rank, shape);
}

static bool sub_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL || c->input[1]->dtype == TL_BOOL)
        return call_fail(c, "subtraction, the `-` operator, with a bool tensor is not supported");
    return binary_shape(c);
}

static bool binary_float_shape(tl_call *c) {
    if (!binary_shape(c)) return false;
    return dtype_is_float(c->in_place ? c->input[0]->dtype : c->out[0].dtype) ||
           call_fail(c, "not implemented for integers (need a floating point dtype)");
}

/* True division: integers become f32. */
static bool div_shape(tl_call *c) {
    tl_dtype dtype;
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_pair(c, 0, 1, &dtype, &rank, shape)) return false;
    if (!dtype_is_float(dtype)) dtype = TL_F32;
    if (c->in_place) return call_fits_in_place(c, rank, shape, dtype);
    return call_output(c, 0, dtype, rank, shape);
}

static bool compare_shape(tl_call *c) {
    tl_dtype dtype;
    int rank;
    int64_t shape[TL_MAX_RANK];
    return call_pair(c, 0, 1, &dtype, &rank, shape) && call_output(c, 0, TL_BOOL, rank, shape);
}

static bool where_shape(tl_call *c) {
    tl_dtype dtype;
    int rank, rank_ab;
    int64_t shape[TL_MAX_RANK], shape_ab[TL_MAX_RANK];
    const tl_tensor *condition = c->input[0];
    if (condition->dtype != TL_BOOL) return call_fail(c, "expected condition to be a boolean tensor");
    if (!call_pair(c, 1, 2, &dtype, &rank_ab, shape_ab)) return false;
    if (!shape_broadcast(condition->rank, condition->shape, rank_ab, shape_ab, &rank, shape))
        return call_fail_clash(c, condition->rank, condition->shape, rank_ab, shape_ab);
    return call_output(c, 0, dtype, rank, shape);
}

/* ---- Costs ---- */

void elementwise_cost(const tl_call *c, struct cost *cost, int flops) {
    cost_traffic(c, cost, (count)flops * (count)c->output[0]->numel);
}
static void cost_0(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 0); }
static void cost_1(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 1); }
static void cost_4(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 4); }
static void cost_9(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 9); }
static void cost_19(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 19); }
/* a multiplication unless the scale is 1, an addition unless the shift is 0 */
static void affine_cost(const tl_call *c, struct cost *cost) {
    const struct attr_affine *a = c->attr;
    elementwise_cost(c, cost, (a->scale != 1) + (a->shift != 0));
}

/* ---- Gradients ---- */

/* d(a+b): both get g */
static void add_backward(tl_gradient *g) { g->result[0] = g->result[1] = g->grad[0]; }
/* d(a-b): g, -g */
static void sub_backward(tl_gradient *g) {
    g->result[0] = g->grad[0];
    if (g->needs[1]) g->result[1] = tl_neg(g->grad[0]);
}
/* d(ab): gb, ga */
static void mul_backward(tl_gradient *g) {
    if (g->needs[0]) g->result[0] = tl_mul(g->grad[0], gradient_input(g, 1));
    if (g->needs[1]) g->result[1] = tl_mul(g->grad[0], gradient_input(g, 0));
}
/* d(a/b): g/b, -g a/b^2 = -(g/b)(a/b) */
static void div_backward(tl_gradient *g) {
    tl_tensor *b = gradient_input(g, 1), *q = tl_div(g->grad[0], b);
    if (g->needs[0]) g->result[0] = q;
    if (g->needs[1]) g->result[1] = tl_neg(tl_mul(q, tl_div(gradient_input(g, 0), b)));
}
/* d(sx+t) = s g */
static void affine_backward(tl_gradient *g) {
    g->result[0] = tl_scale(g->grad[0], ((const struct attr_affine *)g->node->attr)->scale);
}
static void neg_backward(tl_gradient *g) { g->result[0] = tl_neg(g->grad[0]); }
/* y = e^x: g y */
static void exp_backward(tl_gradient *g) { g->result[0] = tl_mul(g->grad[0], gradient_output(g, 0)); }
/* log x: g/x */
static void log_backward(tl_gradient *g) { g->result[0] = tl_div(g->grad[0], gradient_input(g, 0)); }
/* y = sqrt x: g / 2y */
static void sqrt_backward(tl_gradient *g) { g->result[0] = tl_scale(tl_div(g->grad[0], gradient_output(g, 0)), 0.5); }
/* y = tanh x: g (1 - y^2), as g (1 - y) (1 + y): rounding y^2 to 16 bits would leave nothing where y is near 1 */
static void tanh_backward(tl_gradient *g) {
    tl_tensor *y = gradient_output(g, 0);
    tl_tensor *left = tl_mul(g->grad[0], tl_affine(y, -1, 1));
    g->result[0] = tl_mul(left, tl_affine(y, 1, 1));
}
/* y = sigmoid x: g y (1 - y) */
static void sigmoid_backward(tl_gradient *g) {
    tl_tensor *y = gradient_output(g, 0);
    tl_tensor *gy = tl_mul(g->grad[0], y);
    g->result[0] = tl_mul(gy, tl_affine(y, -1, 1));
}
/* g, and 0 where y is 0: NaN lets it pass */
static void relu_backward(tl_gradient *g) {
    tl_tensor *zero = tl_zeros(0, NULL, g->grad[0]->dtype, g->grad[0]->storage->device);
    g->result[0] = tl_where(tl_cmp(gradient_output(g, 0), TL_LE, zero), zero, g->grad[0]);
}
static void gelu_backward(tl_gradient *g) {
    g->result[0] = op_apply2(&op_gelu_grad, gradient_input(g, 0), g->grad[0], NULL, 0);
}
static void silu_backward(tl_gradient *g) {
    g->result[0] = op_apply2(&op_silu_grad, gradient_input(g, 0), g->grad[0], NULL, 0);
}
/* y = g f'(x) with an f' of its own kernel: dg = h f'(x), which is this op again; dx = h g f''(x) */
void elementwise_slope_backward(tl_gradient *g, const tl_op *op, tl_tensor *(*second)(tl_tensor *x)) {
    tl_tensor *h = g->grad[0], *x = gradient_input(g, 0);
    if (g->needs[1]) g->result[1] = op_apply2(op, x, h, NULL, 0);
    if (!g->needs[0]) return;
    tl_tensor *hg = tl_mul(h, gradient_input(g, 1));
    g->result[0] = tl_mul(hg, second(x));
}
/* gelu = x s(v), v = x (a + b x^2), s the sigmoid. With v' = a + 3b x^2 and s' = s (1 - s):
 * gelu'' = s' (2a + 12b x^2 + x (1 - 2s) v'^2) */
static tl_tensor *gelu_second(tl_tensor *x) {
    const double a = 1.5957691216057307, b = a * 0.044715; /* a = 2 sqrt(2/pi) */
    tl_tensor *square = tl_mul(x, x);
    tl_tensor *s = tl_sigmoid(tl_mul(x, tl_affine(square, b, a)));
    tl_tensor *v1 = tl_affine(square, 3 * b, a), *s1 = tl_mul(s, tl_affine(s, -1, 1));
    tl_tensor *bend = tl_mul(tl_mul(x, tl_affine(s, -2, 1)), tl_mul(v1, v1));
    return tl_mul(s1, tl_add(bend, tl_affine(square, 12 * b, 2 * a)));
}
/* silu'' = s (1 - s) (2 + x (1 - 2s)) */
static tl_tensor *silu_second(tl_tensor *x) {
    tl_tensor *s = tl_sigmoid(x);
    tl_tensor *s1 = tl_mul(s, tl_affine(s, -1, 1));
    return tl_mul(s1, tl_affine(tl_mul(x, tl_affine(s, -2, 1)), 1, 2));
}
static void gelu_grad_backward(tl_gradient *g) { elementwise_slope_backward(g, &op_gelu_grad, gelu_second); }
static void silu_grad_backward(tl_gradient *g) { elementwise_slope_backward(g, &op_silu_grad, silu_second); }
/* a gets g where the condition holds, b where it does not */
static void where_backward(tl_gradient *g) {
    tl_tensor *condition = gradient_input(g, 0);
    tl_tensor *zero = tl_zeros(0, NULL, g->grad[0]->dtype, g->grad[0]->storage->device);
    if (g->needs[1]) g->result[1] = tl_where(condition, g->grad[0], zero);
    if (g->needs[2]) g->result[2] = tl_where(condition, zero, g->grad[0]);
}

/* ---- Records ---- */

const tl_op op_add = {RECORD(KERNEL, add, 1),
                      .shapes = "a (...), b (...) -> broadcast",
                      .dtypes = "any for arithmetic; promoted",
                      .flops = "n",
                      .shape = binary_shape,
                      .cost = cost_1,
                      .backward = add_backward,
                      .may_overwrite = true};
const tl_op op_sub = {RECORD(KERNEL, sub, 1),
                      .shapes = "a (...), b (...) -> broadcast",
                      .dtypes = "any for arithmetic but bool; promoted",
                      .flops = "n",
                      .shape = sub_shape,
                      .cost = cost_1,
                      .backward = sub_backward,
                      .may_overwrite = true};
const tl_op op_mul = {RECORD(KERNEL, mul, 1),
                      .shapes = "a (...), b (...) -> broadcast",
                      .dtypes = "any for arithmetic; promoted",
                      .flops = "n",
                      .shape = binary_shape,
                      .cost = cost_1,
                      .backward = mul_backward,
                      .saves = {TL_INPUT(1), TL_INPUT(0)},
                      .may_overwrite = true};
const tl_op op_div = {RECORD(KERNEL, div, 1),
                      .shapes = "a (...), b (...) -> broadcast",
                      .dtypes = "any for arithmetic; promoted; integers and bool give f32",
                      .flops = "n",
                      .shape = div_shape,
                      .cost = cost_1,
                      .backward = div_backward,
                      .saves = {TL_INPUT(1), TL_INPUT(0) | TL_INPUT(1)},
                      .may_overwrite = true};
const tl_op op_affine = {
    RECORD(KERNEL, affine, 1),      .shapes = "x (...) -> (...)",
    .dtypes = "any for arithmetic", .flops = "n for a scale that is not 1, n for a shift that is not 0",
    .shape = unary_any_shape,       .cost = affine_cost,
    .backward = affine_backward,    .may_overwrite = true};
const tl_op op_neg = {RECORD(KERNEL, neg, 1),
                      .shapes = "x (...) -> (...)",
                      .dtypes = "any for arithmetic but bool",
                      .flops = "n",
                      .shape = neg_shape,
                      .cost = cost_1,
                      .backward = neg_backward,
                      .may_overwrite = true};
const tl_op op_exp = {RECORD(KERNEL, exp, 1),
                      .is_wide = true,
                      .shapes = "x (...) -> (...)",
                      .dtypes = "floats; integers and bool give f32",
                      .flops = "n",
                      .shape = real_shape,
                      .cost = cost_1,
                      .backward = exp_backward,
                      .saves = {TL_OUTPUT(0)},
                      .may_overwrite = true};
const tl_op op_log = {RECORD(KERNEL, log, 1),
                      .is_wide = true,
                      .shapes = "x (...) -> (...)",
                      .dtypes = "floats; integers and bool give f32",
                      .flops = "n",
                      .shape = real_shape,
                      .cost = cost_1,
                      .backward = log_backward,
                      .saves = {TL_INPUT(0)},
                      .may_overwrite = true};
const tl_op op_sqrt = {RECORD(KERNEL, sqrt, 1),
                       .shapes = "x (...) -> (...)",
                       .dtypes = "floats; integers and bool give f32",
                       .flops = "n",
                       .shape = real_shape,
                       .cost = cost_1,
                       .backward = sqrt_backward,
                       .saves = {TL_OUTPUT(0)},
                       .may_overwrite = true};
const tl_op op_tanh = {RECORD(KERNEL, tanh, 1),
                       .shapes = "x (...) -> (...)",
                       .dtypes = "floats; integers and bool give f32",
                       .flops = "n",
                       .shape = real_shape,
                       .cost = cost_1,
                       .backward = tanh_backward,
                       .saves = {TL_OUTPUT(0)},
                       .may_overwrite = true};
/* 1 / (1 + e^-x): negate, exp, add, divide */
const tl_op op_sigmoid = {RECORD(KERNEL, sigmoid, 1),
                          .shapes = "x (...) -> (...)",
                          .dtypes = "floats; integers and bool give f32",
                          .flops = "4n: negate, exp, sum, divide",
                          .shape = real_shape,
                          .cost = cost_4,
                          .backward = sigmoid_backward,
                          .saves = {TL_OUTPUT(0)},
                          .may_overwrite = true};
const tl_op op_relu = {RECORD(KERNEL, relu, 1),      .shapes = "x (...) -> (...)",
                       .dtypes = "floats, integers", .flops = "n",
                       .shape = number_shape,        .cost = cost_1,
                       .backward = relu_backward,    .saves = {TL_OUTPUT(0)},
                       .may_overwrite = true};
/* 0.5 x (1 + tanh(c (x + 0.044715 x x x))): 6 products, 2 sums, tanh */
const tl_op op_gelu = {RECORD(KERNEL, gelu, 1),   .shapes = "x (...) -> (...)",
                       .dtypes = "floats",        .flops = "9n: products 6, sums 2, tanh",
                       .shape = unary_shape,      .cost = cost_9,
                       .backward = gelu_backward, .saves = {TL_INPUT(0)},
                       .may_overwrite = true};
/* u = c (x + 0.044715 x x x): 5; t = tanh u: 1; 1 - t t: 2; u' = c (1 + 0.134145 x x): 4;
 * g (0.5 (1 + t) + 0.5 x (1 - t t) u'): 7 */
const tl_op op_gelu_grad = {RECORD(KERNEL, gelu_grad, 1),   .shapes = "x (...), g (...) -> broadcast",
                            .dtypes = "floats; promoted",   .flops = "19n: u 5, tanh 1, 1 - tt 2, u' 4, the rest 7",
                            .shape = binary_float_shape,    .cost = cost_19,
                            .backward = gelu_grad_backward, .saves = {TL_INPUT(0) | TL_INPUT(1), TL_INPUT(0)}};
/* x / (1 + e^-x) */
const tl_op op_silu = {RECORD(KERNEL, silu, 1),   .shapes = "x (...) -> (...)",
                       .dtypes = "floats",        .flops = "4n: negate, exp, sum, divide",
                       .shape = unary_shape,      .cost = cost_4,
                       .backward = silu_backward, .saves = {TL_INPUT(0)},
                       .may_overwrite = true};
/* s = sigmoid x: 4; g s (1 + x (1 - s)): 5 */
const tl_op op_silu_grad = {RECORD(KERNEL, silu_grad, 1),   .shapes = "x (...), g (...) -> broadcast",
                            .dtypes = "floats; promoted",   .flops = "9n: sigmoid 4, slope and product 5",
                            .shape = binary_float_shape,    .cost = cost_9,
                            .backward = silu_grad_backward, .saves = {TL_INPUT(0) | TL_INPUT(1), TL_INPUT(0)}};
const tl_op op_compare = {RECORD(KERNEL, compare, 1),
                          .shapes = "a (...), b (...) -> broadcast",
                          .dtypes = "any for arithmetic -> bool",
                          .flops = "n",
                          .shape = compare_shape,
                          .cost = cost_1};
const tl_op op_where = {RECORD(KERNEL, where, 1),
                        .shapes = "condition, a, b -> broadcast",
                        .dtypes = "condition bool; a, b any for arithmetic; promoted",
                        .flops = "0",
                        .shape = where_shape,
                        .cost = cost_0,
                        .backward = where_backward,
                        .saves_any = TL_INPUT(0)};

/* ---- Public ---- */

tl_tensor *tl_add(tl_tensor *a, tl_tensor *b) { return binary(&op_add, a, b); }
tl_tensor *tl_sub(tl_tensor *a, tl_tensor *b) { return binary(&op_sub, a, b); }
tl_tensor *tl_mul(tl_tensor *a, tl_tensor *b) { return binary(&op_mul, a, b); }
tl_tensor *tl_div(tl_tensor *a, tl_tensor *b) { return binary(&op_div, a, b); }
tl_tensor *tl_add_(tl_tensor *a, tl_tensor *b) { return binary_(&op_add, a, b); }
tl_tensor *tl_sub_(tl_tensor *a, tl_tensor *b) { return binary_(&op_sub, a, b); }
tl_tensor *tl_mul_(tl_tensor *a, tl_tensor *b) { return binary_(&op_mul, a, b); }
tl_tensor *tl_div_(tl_tensor *a, tl_tensor *b) { return binary_(&op_div, a, b); }
tl_tensor *tl_neg(tl_tensor *x) { return unary(&op_neg, x); }
tl_tensor *tl_exp(tl_tensor *x) { return unary(&op_exp, x); }
tl_tensor *tl_log(tl_tensor *x) { return unary(&op_log, x); }
tl_tensor *tl_sqrt(tl_tensor *x) { return unary(&op_sqrt, x); }
tl_tensor *tl_tanh(tl_tensor *x) { return unary(&op_tanh, x); }
tl_tensor *tl_sigmoid(tl_tensor *x) { return unary(&op_sigmoid, x); }
tl_tensor *tl_relu(tl_tensor *x) { return unary(&op_relu, x); }
tl_tensor *tl_gelu(tl_tensor *x) { return unary(&op_gelu, x); }
tl_tensor *tl_silu(tl_tensor *x) { return unary(&op_silu, x); }
tl_tensor *tl_exp_(tl_tensor *x) { return unary_(&op_exp, x); }
tl_tensor *tl_relu_(tl_tensor *x) { return unary_(&op_relu, x); }
tl_tensor *tl_neg_(tl_tensor *x) { return unary_(&op_neg, x); }
tl_tensor *tl_log_(tl_tensor *x) { return unary_(&op_log, x); }
tl_tensor *tl_sqrt_(tl_tensor *x) { return unary_(&op_sqrt, x); }
tl_tensor *tl_tanh_(tl_tensor *x) { return unary_(&op_tanh, x); }
tl_tensor *tl_sigmoid_(tl_tensor *x) { return unary_(&op_sigmoid, x); }
tl_tensor *tl_gelu_(tl_tensor *x) { return unary_(&op_gelu, x); }
tl_tensor *tl_silu_(tl_tensor *x) { return unary_(&op_silu, x); }

tl_tensor *tl_affine(tl_tensor *x, double scale, double shift) {
    struct attr_affine a = {scale, shift};
    return op_apply1(&op_affine, x, ATTR(a));
}
tl_tensor *tl_affine_(tl_tensor *x, double scale, double shift) {
    struct attr_affine a = {scale, shift};
    return op_apply_in_place(&op_affine, &x, 1, ATTR(a));
}
tl_tensor *tl_scale(tl_tensor *x, double scale) { return tl_affine(x, scale, 0); }

tl_tensor *tl_cmp(tl_tensor *a, tl_compare relation, tl_tensor *b) {
    struct attr_compare attr = {relation};
    if ((unsigned)relation > TL_GE) {
        error_set(TL_ERROR_USE, "cmp: no relation has the number %d", (int)relation);
        return NULL;
    }
    return op_apply2(&op_compare, a, b, ATTR(attr));
}

tl_tensor *tl_where(tl_tensor *condition, tl_tensor *a, tl_tensor *b) {
    tl_tensor *input[3] = {condition, a, b};
    tl_call c;
    call_begin(&c, &op_where, input, 3, NULL, 0);
    return op_apply(&c);
}

/* ---- Composites ---- */

tl_tensor *tl_mse_loss(tl_tensor *prediction, tl_tensor *target) {
    prediction = autocast_wide(prediction);
    target = autocast_wide(target);
    tl_tensor *difference = tl_sub(prediction, target);
    return tl_mean_all(tl_mul(difference, difference));
}

tl_tensor *tl_dropout(tl_tensor *x, double p) {
    if (!tensor_check(x, "dropout")) return NULL;
    if (!(p >= 0 && p < 1)) {
        error_set(TL_ERROR_USE, "dropout: probability has to be in [0, 1), but got %g", p);
        return NULL;
    }
    if (p == 0) return x;
    tl_tensor *mask = tl_bernoulli(x->rank, x->shape, 1 - p, x->storage->device);
    tl_tensor *zero = tl_zeros(0, NULL, x->dtype, x->storage->device);
    return tl_where(mask, tl_scale(x, 1 / (1 - p)), zero);
}

/* ---- swiglu: silu(gate) up, fused: silu(gate) is neither written nor kept ---- */

static void swiglu_cost(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 5); }
static void swiglu_grad_cost(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 11); }

static bool swiglu_grad_shape(tl_call *c) {
    for (int i = 0; i < 3; i++)
        if (!call_needs_float(c, i)) return false;
    return call_output_like(c, 0, 2) && call_output_like(c, 1, 2);
}

/* The same in ops, so that it can be differentiated again. */
static void swiglu_slope(tl_gradient *g) {
    tl_tensor *gate = gradient_input(g, 0), *up = gradient_input(g, 1);
    tl_tensor *s = tl_sigmoid(gate), *y = tl_mul(gate, s);
    tl_tensor *slope = tl_add(s, tl_mul(y, tl_affine(s, -1, 1)));
    if (g->needs[0]) g->result[0] = tl_mul(tl_mul(g->grad[0], up), slope);
    if (g->needs[1]) g->result[1] = tl_mul(g->grad[0], y);
}

/* s = sigmoid(gate): dgate = g up s (1 + gate (1 - s)), dup = g gate s */
static void swiglu_backward(tl_gradient *g) {
    if (g->creates_graph) {
        swiglu_slope(g);
        return;
    }
    tl_tensor *input[3] = {gradient_input(g, 0), gradient_input(g, 1), g->grad[0]};
    tl_call c;
    call_begin(&c, &op_swiglu_grad, input, 3, NULL, 0);
    if (!op_apply(&c)) return;
    for (int j = 0; j < 2; j++) g->result[j] = c.output[j];
}

/* silu: 4, times up: 1 */
const tl_op op_swiglu = {RECORD(KERNEL, swiglu, 1),    .shapes = "two, broadcast",
                         .dtypes = "floats; promoted", .flops = "5n: silu 4, product",
                         .shape = binary_float_shape,  .cost = swiglu_cost,
                         .backward = swiglu_backward,  .saves_any = TL_INPUT(0) | TL_INPUT(1)};
/* s: 4; y = gate s: 1; slope s + y (1 - s): 3; g y: 1; g up slope: 2 */
const tl_op op_swiglu_grad = {RECORD(KERNEL, swiglu_grad, 2),
                              .shapes = "gate, up, g: dgate, dup like g",
                              .dtypes = "floats",
                              .flops = "11n: sigmoid 4, silu 1, slope 3, products 3",
                              .shape = swiglu_grad_shape,
                              .cost = swiglu_grad_cost,
                              .backward = gradient_missing};

tl_tensor *tl_swiglu(tl_tensor *gate, tl_tensor *up) { return op_apply2(&op_swiglu, gate, up, NULL, 0); }
