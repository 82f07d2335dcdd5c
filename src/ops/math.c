/* math.c: elementary functions, rounding, remainders, extremes, truth values, further activations.
 *
 * Functions of real numbers take integers too and give f32, as in PyTorch. FLOPs as in elementwise.c: an elementary function
 * is one.
 */
#include "ops/elementwise.h"

/* ---- Shapes ---- */

static bool float_shape(tl_call *c) { return call_needs_float(c, 0) && call_output_like(c, 0, 0); }
static bool any_shape(tl_call *c) { return call_needs_arithmetic(c, 0) && call_output_like(c, 0, 0); }

static bool pair_shape(tl_call *c) {
    tl_dtype dtype;
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_pair(c, 0, 1, &dtype, &rank, shape)) return false;
    return c->in_place ? call_fits_in_place(c, rank, shape, dtype) : call_output(c, 0, dtype, rank, shape);
}
static bool number_pair_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL && c->input[1]->dtype == TL_BOOL)
        return call_fail(c, "not implemented for bool (need a number)");
    return pair_shape(c);
}
static bool float_pair_shape(tl_call *c) { return call_needs_float(c, 0) && call_needs_float(c, 1) && pair_shape(c); }

/* Any two dtypes: each has a truth of its own. */
static bool logic_shape(tl_call *c) {
    const tl_tensor *a = c->input[0], *b = c->input[1];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_arithmetic(c, 0) || !call_needs_arithmetic(c, 1)) return false;
    if (!shape_broadcast(a->rank, a->shape, b->rank, b->shape, &rank, shape))
        return call_fail_clash(c, c->input[0]->rank, c->input[0]->shape, c->input[1]->rank, c->input[1]->shape);
    return call_output(c, 0, TL_BOOL, rank, shape);
}
static bool truth_shape(tl_call *c) { return call_needs_arithmetic(c, 0) && call_output_as(c, TL_BOOL); }

/* ---- Costs ---- */

static void cost_1(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 1); }
static void cost_2(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 2); }
static void cost_4(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 4); }
static void cost_5(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 5); }
static void cost_11(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, 11); }

/* ---- Gradients ---- */

#define LN_2 0.69314718055994530942
#define TWO_OVER_SQRT_PI 1.12837916709551257390
#define ONE_OVER_SQRT_2PI 0.39894228040143267794

static tl_tensor *zero_like(const tl_tensor *x) { return tl_zeros(0, NULL, x->dtype, x->storage->device); }

/* y = 2^x: g y ln 2 */
static void exp2_backward(tl_gradient *g) { g->result[0] = tl_scale(tl_mul(g->grad[0], gradient_output(g, 0)), LN_2); }
/* y = e^x - 1: g (y + 1) */
static void expm1_backward(tl_gradient *g) {
    g->result[0] = tl_mul(g->grad[0], tl_affine(gradient_output(g, 0), 1, 1));
}
/* g / (1 + x) */
static void log1p_backward(tl_gradient *g) { g->result[0] = tl_div(g->grad[0], tl_affine(gradient_input(g, 0), 1, 1)); }
/* g / (x ln 2) */
static void log2_backward(tl_gradient *g) { g->result[0] = tl_div(g->grad[0], tl_scale(gradient_input(g, 0), LN_2)); }
/* y = x^(-1/2): -g y^3 / 2 */
static void rsqrt_backward(tl_gradient *g) {
    tl_tensor *y = gradient_output(g, 0);
    g->result[0] = tl_scale(tl_mul(g->grad[0], tl_mul(y, tl_mul(y, y))), -0.5);
}
/* g cos x */
static void sin_backward(tl_gradient *g) { g->result[0] = tl_mul(g->grad[0], tl_cos(gradient_input(g, 0))); }
/* -g sin x */
static void cos_backward(tl_gradient *g) { g->result[0] = tl_neg(tl_mul(g->grad[0], tl_sin(gradient_input(g, 0)))); }
/* g 2/sqrt(pi) e^(-x^2) */
static void erf_backward(tl_gradient *g) {
    tl_tensor *x = gradient_input(g, 0);
    tl_tensor *bell = tl_exp(tl_neg(tl_mul(x, x)));
    g->result[0] = tl_mul(g->grad[0], tl_scale(bell, TWO_OVER_SQRT_PI));
}
/* g sign(x) */
static void abs_backward(tl_gradient *g) { g->result[0] = tl_mul(g->grad[0], tl_sign(gradient_input(g, 0))); }
/* constant between its steps */
static void step_backward(tl_gradient *g) { (void)g; }

/* d(a^b): da = g b a^(b-1), 0 where b is 0; db = g a^b log a, 0 where a is 0 and b is not negative (the limit) */
static void pow_backward(tl_gradient *g) {
    tl_tensor *a = gradient_input(g, 0), *b = gradient_input(g, 1), *zero = zero_like(g->grad[0]);
    if (!a || !b) return;
    if (g->needs[0]) {
        tl_tensor *exponent =
            dtype_is_float(b->dtype) ? tl_cast(b, g->grad[0]->dtype) : b; /* b - 1 in the wider of two */
        tl_tensor *slope = tl_mul(b, tl_pow(a, tl_affine(exponent, 1, -1)));
        tl_tensor *is_zero = tl_cmp(b, TL_EQ, zero);
        g->result[0] = tl_where(is_zero, zero, tl_mul(g->grad[0], slope));
    }
    if (g->needs[1]) {
        tl_tensor *slope = tl_mul(gradient_output(g, 0), tl_log(tl_cast(a, g->grad[0]->dtype)));
        tl_tensor *at_zero = tl_cmp(a, TL_EQ, zero);
        at_zero = tl_logical_and(at_zero, tl_cmp(b, TL_GE, zero));
        g->result[1] = tl_mul(g->grad[0], tl_where(at_zero, zero, slope));
    }
}
/* d(a - b floor(a/b)): g, -g floor(a/b) */
static void remainder_backward(tl_gradient *g) {
    g->result[0] = g->grad[0];
    if (!g->needs[1]) return;
    tl_tensor *quotient = tl_floor(tl_div(gradient_input(g, 0), gradient_input(g, 1)));
    g->result[1] = tl_neg(tl_mul(g->grad[0], quotient));
}
/* Each operand gets g where it was taken, half of it where both are equal, and g where either is NaN. */
static void extreme_backward(tl_gradient *g, tl_compare loses) {
    tl_tensor *a = gradient_input(g, 0), *b = gradient_input(g, 1), *zero = zero_like(g->grad[0]);
    tl_tensor *half = tl_scale(g->grad[0], 0.5);
    tl_tensor *shared = tl_where(tl_cmp(a, TL_EQ, b), half, g->grad[0]);
    if (g->needs[0]) g->result[0] = tl_where(tl_cmp(a, loses, b), zero, shared);
    if (g->needs[1]) g->result[1] = tl_where(tl_cmp(b, loses, a), zero, shared);
}
static void minimum_backward(tl_gradient *g) { extreme_backward(g, TL_GT); }
static void maximum_backward(tl_gradient *g) { extreme_backward(g, TL_LT); }

/* g where x > 0, slope g elsewhere */
static void leaky_relu_backward(tl_gradient *g) {
    const struct attr_leaky_relu *a = g->node->attr;
    tl_tensor *is_positive = tl_cmp(gradient_input(g, 0), TL_GT, zero_like(g->grad[0]));
    g->result[0] = tl_where(is_positive, g->grad[0], tl_scale(g->grad[0], a->slope));
}
static void gelu_erf_backward(tl_gradient *g) {
    g->result[0] = op_apply2(&op_gelu_erf_grad, gradient_input(g, 0), g->grad[0], NULL, 0);
}
/* (x Phi)'' = phi (2 - x^2), phi = e^(-x^2/2) / sqrt(2 pi) */
static tl_tensor *gelu_erf_second(tl_tensor *x) {
    tl_tensor *square = tl_mul(x, x);
    tl_tensor *density = tl_scale(tl_exp(tl_scale(square, -0.5)), ONE_OVER_SQRT_2PI);
    return tl_mul(density, tl_affine(square, -1, 2));
}
static void gelu_erf_grad_backward(tl_gradient *g) {
    elementwise_slope_backward(g, &op_gelu_erf_grad, gelu_erf_second);
}
/* g sigmoid(beta x), and g where beta x > threshold: in f32 at least, as forward compares */
static void softplus_backward(tl_gradient *g) {
    const struct attr_softplus *a = g->node->attr;
    tl_tensor *x = gradient_input(g, 0);
    if (!x) return;
    const tl_dtype wide = statistics_dtype(x->dtype);
    tl_tensor *bx = tl_scale(tl_cast(x, wide), a->beta), *grad = tl_cast(g->grad[0], wide);
    tl_tensor *threshold = tl_full(0, NULL, a->threshold, wide, x->storage->device);
    tl_tensor *soft = tl_mul(grad, tl_sigmoid(bx));
    g->result[0] = tl_where(tl_cmp(bx, TL_GT, threshold), grad, soft);
}

/* ---- Records ---- */

/* clang-format off */
#define REAL_WORDS .shapes = "x (...) -> (...)", .dtypes = "floats; integers and bool give f32"
#define NUMBER_WORDS .shapes = "x (...) -> (...)", .dtypes = "floats, integers"
#define PAIR_WORDS .shapes = "a (...), b (...) -> broadcast", .dtypes = "floats, integers, bool; promoted"
#define NUMBER_PAIR_WORDS \
    .shapes = "a (...), b (...) -> broadcast", .dtypes = "floats, integers, bool beside one; promoted"
#define LOGIC_WORDS .shapes = "a (...), b (...) -> broadcast", .dtypes = "any for arithmetic -> bool"
#define TRUTH_WORDS .shapes = "x (...) -> (...)", .dtypes = "any for arithmetic -> bool"
#define FLOAT_WORDS .shapes = "x (...) -> (...)", .dtypes = "floats"

const tl_op op_exp2 = {RECORD(KERNEL, exp2, 1), REAL_WORDS, .flops = "n", .shape = real_shape, .cost = cost_1,
                       .backward = exp2_backward, .saves = {TL_OUTPUT(0)}, .may_overwrite = true};
const tl_op op_expm1 = {RECORD(KERNEL, expm1, 1), .is_wide = true, REAL_WORDS, .flops = "n", .shape = real_shape, .cost = cost_1,
                        .backward = expm1_backward, .saves = {TL_OUTPUT(0)}, .may_overwrite = true};
const tl_op op_log1p = {RECORD(KERNEL, log1p, 1), .is_wide = true, REAL_WORDS, .flops = "n", .shape = real_shape, .cost = cost_1,
                        .backward = log1p_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};
const tl_op op_log2 = {RECORD(KERNEL, log2, 1), .is_wide = true, REAL_WORDS, .flops = "n", .shape = real_shape, .cost = cost_1,
                       .backward = log2_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};
/* square root, divide */
const tl_op op_rsqrt = {RECORD(KERNEL, rsqrt, 1), .is_wide = true, REAL_WORDS, .flops = "2n", .shape = real_shape, .cost = cost_2,
                        .backward = rsqrt_backward, .saves = {TL_OUTPUT(0)}, .may_overwrite = true};
const tl_op op_sin = {RECORD(KERNEL, sin, 1), REAL_WORDS, .flops = "n", .shape = real_shape, .cost = cost_1,
                      .backward = sin_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};
const tl_op op_cos = {RECORD(KERNEL, cos, 1), REAL_WORDS, .flops = "n", .shape = real_shape, .cost = cost_1,
                      .backward = cos_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};
const tl_op op_erf = {RECORD(KERNEL, erf, 1), REAL_WORDS, .flops = "n", .shape = real_shape, .cost = cost_1,
                      .backward = erf_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};

const tl_op op_abs = {RECORD(KERNEL, abs, 1), NUMBER_WORDS, .flops = "n", .shape = number_shape, .cost = cost_1,
                      .backward = abs_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};
const tl_op op_sign = {RECORD(KERNEL, sign, 1), .shapes = "x (...) -> (...)", .dtypes = "floats, integers, bool",
                       .flops = "n", .shape = any_shape, .cost = cost_1, .backward = step_backward, .may_overwrite = true};
const tl_op op_floor = {RECORD(KERNEL, floor, 1), NUMBER_WORDS, .flops = "n", .shape = number_shape, .cost = cost_1,
                        .backward = step_backward, .may_overwrite = true};
const tl_op op_ceil = {RECORD(KERNEL, ceil, 1), NUMBER_WORDS, .flops = "n", .shape = number_shape, .cost = cost_1,
                       .backward = step_backward, .may_overwrite = true};
const tl_op op_round = {RECORD(KERNEL, round, 1), NUMBER_WORDS, .flops = "n", .shape = number_shape, .cost = cost_1,
                        .backward = step_backward, .may_overwrite = true};
const tl_op op_trunc = {RECORD(KERNEL, trunc, 1), NUMBER_WORDS, .flops = "n", .shape = number_shape, .cost = cost_1,
                        .backward = step_backward, .may_overwrite = true};

const tl_op op_pow = {RECORD(KERNEL, pow, 1), NUMBER_PAIR_WORDS, .flops = "n", .shape = number_pair_shape, .cost = cost_1,
                      .backward = pow_backward, .may_overwrite = true,
                      .saves = {TL_INPUT(0) | TL_INPUT(1), TL_INPUT(0) | TL_INPUT(1) | TL_OUTPUT(0)}};
/* divide, floor, product, subtract */
const tl_op op_remainder = {RECORD(KERNEL, remainder, 1), NUMBER_PAIR_WORDS, .flops = "4n", .shape = number_pair_shape,
                            .cost = cost_4, .backward = remainder_backward, .may_overwrite = true,
                            .saves = {0, TL_INPUT(0) | TL_INPUT(1)}};
const tl_op op_minimum = {RECORD(KERNEL, minimum, 1), PAIR_WORDS, .flops = "n", .shape = pair_shape, .cost = cost_1,
                          .backward = minimum_backward, .saves_any = TL_INPUT(0) | TL_INPUT(1)};
const tl_op op_maximum = {RECORD(KERNEL, maximum, 1), PAIR_WORDS, .flops = "n", .shape = pair_shape, .cost = cost_1,
                          .backward = maximum_backward, .saves_any = TL_INPUT(0) | TL_INPUT(1)};

const tl_op op_logical_and = {RECORD(KERNEL, logical_and, 1), LOGIC_WORDS, .flops = "n", .shape = logic_shape, .cost = cost_1};
const tl_op op_logical_or = {RECORD(KERNEL, logical_or, 1), LOGIC_WORDS, .flops = "n", .shape = logic_shape, .cost = cost_1};
const tl_op op_logical_xor = {RECORD(KERNEL, logical_xor, 1), LOGIC_WORDS, .flops = "n", .shape = logic_shape, .cost = cost_1};
const tl_op op_logical_not = {RECORD(KERNEL, logical_not, 1), TRUTH_WORDS, .flops = "n", .shape = truth_shape, .cost = cost_1};
const tl_op op_isnan = {RECORD(KERNEL, isnan, 1), TRUTH_WORDS, .flops = "n", .shape = truth_shape, .cost = cost_1};
const tl_op op_isfinite = {RECORD(KERNEL, isfinite, 1), TRUTH_WORDS, .flops = "n", .shape = truth_shape, .cost = cost_1};

/* comparison, product */
const tl_op op_leaky_relu = {RECORD(KERNEL, leaky_relu, 1), FLOAT_WORDS, .flops = "2n", .shape = float_shape,
                             .cost = cost_2, .backward = leaky_relu_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};
/* 0.5 x (1 + erf(x / sqrt 2)): 3 products, sum, erf */
const tl_op op_gelu_erf = {RECORD(KERNEL, gelu_erf, 1), FLOAT_WORDS, .flops = "5n", .shape = float_shape, .cost = cost_5,
                           .backward = gelu_erf_backward, .saves = {TL_INPUT(0)}, .may_overwrite = true};
/* Phi: 4; phi = c e^(-x x / 2): 4; g (Phi + x phi): 3 */
const tl_op op_gelu_erf_grad = {RECORD(KERNEL, gelu_erf_grad, 1), .shapes = "x (...), g (...) -> (...)", .dtypes = "floats",
                                .flops = "11n", .shape = float_pair_shape, .cost = cost_11,
                                .backward = gelu_erf_grad_backward, .saves = {TL_INPUT(0) | TL_INPUT(1), TL_INPUT(0)}};
/* product, exp, log, divide */
const tl_op op_softplus = {RECORD(KERNEL, softplus, 1), .is_wide = true, FLOAT_WORDS, .flops = "4n", .shape = float_shape, .cost = cost_4,
                           .backward = softplus_backward, .saves = {TL_INPUT(0)}};
/* clang-format on */

/* ---- Public ---- */

tl_tensor *tl_exp2(tl_tensor *x) { return unary(&op_exp2, x); }
tl_tensor *tl_expm1(tl_tensor *x) { return unary(&op_expm1, x); }
tl_tensor *tl_log1p(tl_tensor *x) { return unary(&op_log1p, x); }
tl_tensor *tl_log2(tl_tensor *x) { return unary(&op_log2, x); }
tl_tensor *tl_rsqrt(tl_tensor *x) { return unary(&op_rsqrt, x); }
tl_tensor *tl_sin(tl_tensor *x) { return unary(&op_sin, x); }
tl_tensor *tl_cos(tl_tensor *x) { return unary(&op_cos, x); }
tl_tensor *tl_erf(tl_tensor *x) { return unary(&op_erf, x); }
tl_tensor *tl_abs(tl_tensor *x) { return unary(&op_abs, x); }
tl_tensor *tl_sign(tl_tensor *x) { return unary(&op_sign, x); }
tl_tensor *tl_floor(tl_tensor *x) { return unary(&op_floor, x); }
tl_tensor *tl_ceil(tl_tensor *x) { return unary(&op_ceil, x); }
tl_tensor *tl_round(tl_tensor *x) { return unary(&op_round, x); }
tl_tensor *tl_trunc(tl_tensor *x) { return unary(&op_trunc, x); }
tl_tensor *tl_gelu_erf(tl_tensor *x) { return unary(&op_gelu_erf, x); }
tl_tensor *tl_logical_not(tl_tensor *x) { return unary(&op_logical_not, x); }
tl_tensor *tl_isnan(tl_tensor *x) { return unary(&op_isnan, x); }
tl_tensor *tl_isfinite(tl_tensor *x) { return unary(&op_isfinite, x); }

tl_tensor *tl_exp2_(tl_tensor *x) { return unary_(&op_exp2, x); }
tl_tensor *tl_expm1_(tl_tensor *x) { return unary_(&op_expm1, x); }
tl_tensor *tl_log1p_(tl_tensor *x) { return unary_(&op_log1p, x); }
tl_tensor *tl_log2_(tl_tensor *x) { return unary_(&op_log2, x); }
tl_tensor *tl_rsqrt_(tl_tensor *x) { return unary_(&op_rsqrt, x); }
tl_tensor *tl_sin_(tl_tensor *x) { return unary_(&op_sin, x); }
tl_tensor *tl_cos_(tl_tensor *x) { return unary_(&op_cos, x); }
tl_tensor *tl_erf_(tl_tensor *x) { return unary_(&op_erf, x); }
tl_tensor *tl_abs_(tl_tensor *x) { return unary_(&op_abs, x); }
tl_tensor *tl_sign_(tl_tensor *x) { return unary_(&op_sign, x); }
tl_tensor *tl_floor_(tl_tensor *x) { return unary_(&op_floor, x); }
tl_tensor *tl_ceil_(tl_tensor *x) { return unary_(&op_ceil, x); }
tl_tensor *tl_round_(tl_tensor *x) { return unary_(&op_round, x); }
tl_tensor *tl_trunc_(tl_tensor *x) { return unary_(&op_trunc, x); }
tl_tensor *tl_gelu_erf_(tl_tensor *x) { return unary_(&op_gelu_erf, x); }

tl_tensor *tl_pow(tl_tensor *a, tl_tensor *b) { return binary(&op_pow, a, b); }
tl_tensor *tl_remainder(tl_tensor *a, tl_tensor *b) { return binary(&op_remainder, a, b); }
tl_tensor *tl_minimum(tl_tensor *a, tl_tensor *b) { return binary(&op_minimum, a, b); }
tl_tensor *tl_maximum(tl_tensor *a, tl_tensor *b) { return binary(&op_maximum, a, b); }
tl_tensor *tl_pow_(tl_tensor *a, tl_tensor *b) { return binary_(&op_pow, a, b); }
tl_tensor *tl_remainder_(tl_tensor *a, tl_tensor *b) { return binary_(&op_remainder, a, b); }
tl_tensor *tl_logical_and(tl_tensor *a, tl_tensor *b) { return binary(&op_logical_and, a, b); }
tl_tensor *tl_logical_or(tl_tensor *a, tl_tensor *b) { return binary(&op_logical_or, a, b); }
tl_tensor *tl_logical_xor(tl_tensor *a, tl_tensor *b) { return binary(&op_logical_xor, a, b); }

tl_tensor *tl_leaky_relu(tl_tensor *x, double slope) {
    struct attr_leaky_relu a = {slope};
    return op_apply1(&op_leaky_relu, x, ATTR(a));
}
tl_tensor *tl_leaky_relu_(tl_tensor *x, double slope) {
    struct attr_leaky_relu a = {slope};
    return op_apply_in_place(&op_leaky_relu, &x, 1, ATTR(a));
}
tl_tensor *tl_softplus(tl_tensor *x, double beta, double threshold) {
    struct attr_softplus a = {beta, threshold};
    return op_apply1(&op_softplus, x, ATTR(a));
}

/* ---- Composites ---- */

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
        tl_tensor *is_near = tl_logical_and(tl_cmp(weight, TL_LT, half), tl_cmp(weight, TL_GT, tl_neg(half)));
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
    if (!dtype_is_float(a->dtype) && !dtype_is_float(b->dtype)) {
        error_set(TL_ERROR_USE,
                  "addcdiv: integer division with addcdiv is not supported (need a floating point dtype)");
        return NULL;
    }
    return add_combined(x, a, b, value, tl_div);
}
