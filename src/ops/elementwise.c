/* elementwise.c: one result element from one element of each operand, with broadcasting. elementwise_list.h has the
 * ops, one row each; here are the rules that rows name, and what follows from a row: gradient, record, public
 * functions.
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

bool float_shape(tl_call *c) { return call_needs_float(c, 0) && call_output_like(c, 0, 0); }
bool any_shape(tl_call *c) { return call_needs_arithmetic(c, 0) && call_output_like(c, 0, 0); }
bool truth_shape(tl_call *c) { return call_needs_arithmetic(c, 0) && call_output_as(c, TL_BOOL); }
/* A function of real numbers: floats keep their dtype, integers and bool give f32. */
static bool real_shape(tl_call *c) {
    tl_dtype dtype = c->input[0]->dtype;
    return call_needs_arithmetic(c, 0) && call_output_as(c, dtype_is_float(dtype) ? dtype : TL_F32);
}
static bool number_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL) return call_fail_need(c, "not implemented for bool", "a number");
    return any_shape(c);
}
static bool signed_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL)
        return call_fail(c, "negation, the `-` operator, on a bool tensor is not supported");
    return any_shape(c);
}

/* PyTorch's rule: a scalar tensor affects the dtype only if it is of a higher kind (bool, integer, float, complex); a
 * complex one makes complex numbers of floats as wide as the array's. */
tl_dtype elementwise_dtype(const tl_tensor *a, const tl_tensor *b) {
    if ((a->rank == 0) == (b->rank == 0)) return dtype_promote(a->dtype, b->dtype);
    tl_dtype array = a->rank ? a->dtype : b->dtype, scalar = a->rank ? b->dtype : a->dtype;
    if (dtype_is_complex(array)) return array;
    if (dtype_is_complex(scalar)) return dtype_is_float(array) ? dtype_complex(array) : scalar;
    bool keeps = dtype_is_float(array) || (array != TL_BOOL && !dtype_is_float(scalar));
    return keeps ? array : dtype_promote(array, scalar);
}

bool call_pair(const tl_call *c, int i, int k, tl_dtype *dtype, int *rank, int64_t *shape) {
    const tl_tensor *a = c->input[i], *b = c->input[k];
    if (!call_needs_arithmetic(c, i) || !call_needs_arithmetic(c, k)) return false;
    *dtype = elementwise_dtype(a, b);
    if (*dtype == TL_DTYPE_COUNT) return call_fail_need(c, "these dtypes do not promote to a common one", "a cast");
    return shape_broadcast(a->rank, a->shape, b->rank, b->shape, rank, shape) ||
           call_fail_clash(c, a->rank, a->shape, b->rank, b->shape);
}

static bool pair_shape(tl_call *c) {
    tl_dtype dtype;
    int rank;
    int64_t *shape = c->out[0].shape; /* in place, too: it is not read yet */
    if (!call_pair(c, 0, 1, &dtype, &rank, shape)) return false;
    return c->in_place ? call_fits_in_place(c, rank, shape, dtype) : call_output(c, 0, dtype, rank, shape);
}

static bool signed_pair_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL || c->input[1]->dtype == TL_BOOL)
        return call_fail(c, "subtraction, the `-` operator, with a bool tensor is not supported");
    return pair_shape(c);
}

static bool number_pair_shape(tl_call *c) {
    if (c->input[0]->dtype == TL_BOOL && c->input[1]->dtype == TL_BOOL)
        return call_fail_need(c, "not implemented for bool", "a number");
    return pair_shape(c);
}

static bool float_pair_shape(tl_call *c) {
    if (!pair_shape(c)) return false;
    return dtype_is_float(c->in_place ? c->input[0]->dtype : c->out[0].dtype) ||
           call_fail_need(c, "not implemented for integers", "a floating point dtype");
}

static bool bits_pair_shape(tl_call *c) {
    for (int i = 0; i < 2; i++)
        if (dtype_is_float(c->input[i]->dtype))
            return call_fail_need(c, "not implemented for floats", "integers or bool");
    return pair_shape(c);
}

/* True division: integers become f32. */
static bool quotient_shape(tl_call *c) {
    tl_dtype dtype;
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_pair(c, 0, 1, &dtype, &rank, shape)) return false;
    if (!dtype_is_float(dtype)) dtype = TL_F32;
    if (c->in_place) return call_fits_in_place(c, rank, shape, dtype);
    return call_output(c, 0, dtype, rank, shape);
}

bool compare_shape(tl_call *c) {
    tl_dtype dtype;
    int rank;
    int64_t shape[TL_MAX_RANK];
    return call_pair(c, 0, 1, &dtype, &rank, shape) && call_output(c, 0, TL_BOOL, rank, shape);
}

bool where_shape(tl_call *c) {
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

/* Any two dtypes: each is converted to bool by itself. */
static bool logic_shape(tl_call *c) {
    const tl_tensor *a = c->input[0], *b = c->input[1];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_arithmetic(c, 0) || !call_needs_arithmetic(c, 1)) return false;
    if (!shape_broadcast(a->rank, a->shape, b->rank, b->shape, &rank, shape))
        return call_fail_clash(c, c->input[0]->rank, c->input[0]->shape, c->input[1]->rank, c->input[1]->shape);
    return call_output(c, 0, TL_BOOL, rank, shape);
}

/* ---- Gradients that are longer than a row ---- */

#define LN_2 0.69314718055994530942
#define TWO_OVER_SQRT_PI 1.12837916709551257390
#define ONE_OVER_SQRT_2PI 0.39894228040143267794

static tl_tensor *zero_like(const tl_tensor *x) { return tl_zeros(0, NULL, x->dtype, x->storage->device); }

/* erf' = 2/sqrt(pi) e^(-x^2) */
static tl_tensor *bell(tl_tensor *x) { return tl_scale(tl_exp(tl_neg(tl_mul(x, x))), TWO_OVER_SQRT_PI); }
/* d atan(a / b) by a: g b / (a a + b b), by b, with the sign of the caller: g a / (a a + b b); 0 where both are 0 */
static tl_tensor *atan2_gradient(tl_tensor *g, tl_tensor *other, tl_tensor *a, tl_tensor *b) {
    tl_tensor *aa = tl_square(a), *bb = tl_square(b);
    tl_tensor *square = tl_add(aa, bb), *zero = square ? zero_like(square) : NULL;
    tl_tensor *is_zero = tl_cmp(square, TL_EQ, zero), *inverse = tl_reciprocal(square);
    tl_tensor *part = tl_mul(g, other);
    return tl_mul(part, tl_where(is_zero, zero, inverse));
}
/* d(a - b floor(a/b)) by b: -g floor(a/b) */
static tl_tensor *remainder_gradient(tl_tensor *g, tl_tensor *a, tl_tensor *b) {
    return tl_neg(tl_mul(g, tl_floor(tl_div(a, b))));
}

/* g f'(x), where f' has its own kernel. */
static tl_tensor *slope(const tl_op *op, tl_tensor *x, tl_tensor *g) { return op_apply2(op, x, g, NULL, 0); }
/* The gradient of g f'(x) by x, h being that of the result: h g f''(x). */
static tl_tensor *slope_gradient(tl_tensor *h, tl_tensor *x, tl_tensor *g, tl_tensor *(*second)(tl_tensor *x)) {
    tl_tensor *hg = tl_mul(h, g);
    return tl_mul(hg, second(x));
}
/* tanh' and sigmoid' by the result y: 1 - y^2 and y (1 - y), and theirs by y. */
static tl_tensor *tanh_second(tl_tensor *y) { return tl_scale(y, -2); }
static tl_tensor *sigmoid_second(tl_tensor *y) { return tl_affine(y, -2, 1); }
/* gelu = x s(v), v = x (a + b x^2), s the sigmoid. With v' = a + 3b x^2 and s' = s (1 - s):
 * gelu'' = s' (2a + 12b x^2 + x (1 - 2s) v'^2) */
static tl_tensor *gelu_second(tl_tensor *x) {
    const double a = 1.5957691216057307, b = a * 0.044715; /* a = 2 sqrt(2/pi) */
    tl_tensor *square = tl_mul(x, x);
    tl_tensor *s = tl_sigmoid(tl_mul(x, tl_affine(square, b, a)));
    tl_tensor *v1 = tl_affine(square, 3 * b, a), *s1 = tl_mul(s, tl_affine(s, -1, 1));
    tl_tensor *bend = tl_mul(v1, v1);
    bend = tl_mul(tl_mul(x, tl_affine(s, -2, 1)), bend);
    return tl_mul(s1, tl_add(bend, tl_affine(square, 12 * b, 2 * a)));
}
/* silu'' = s (1 - s) (2 + x (1 - 2s)) */
static tl_tensor *silu_second(tl_tensor *x) {
    tl_tensor *s = tl_sigmoid(x);
    tl_tensor *s1 = tl_mul(s, tl_affine(s, -1, 1));
    return tl_mul(s1, tl_affine(tl_mul(x, tl_affine(s, -2, 1)), 1, 2));
}
/* (x Phi)'' = phi (2 - x^2), phi = e^(-x^2/2) / sqrt(2 pi) */
static tl_tensor *gelu_erf_second(tl_tensor *x) {
    tl_tensor *square = tl_mul(x, x);
    tl_tensor *density = tl_scale(tl_exp(tl_scale(square, -0.5)), ONE_OVER_SQRT_2PI);
    return tl_mul(density, tl_affine(square, -1, 2));
}

/* ---- Both gradients at once ---- */

/* d(a/b): g/b, -g a/b^2 = -(g/b)(a/b) */
void div_backward(tl_gradient *g) {
    tl_tensor *b = gradient_input(g, 1), *q = tl_div(g->grad[0], b);
    if (g->needs[0]) g->result[0] = q;
    if (g->needs[1]) g->result[1] = tl_neg(tl_mul(q, tl_div(gradient_input(g, 0), b)));
}
/* d(a^b): da = g b a^(b-1), 0 where b is 0; db = g a^b log a, 0 where a is 0 and b is not negative (the limit) */
void pow_backward(tl_gradient *g) {
    tl_tensor *a = gradient_input(g, 0), *b = gradient_input(g, 1), *zero = zero_like(g->grad[0]);
    if (!a || !b) return;
    if (g->needs[0]) {
        /* b - 1 in the wider of two, even if an in-place change narrowed the result */
        tl_tensor *exponent = dtype_is_float(b->dtype) ? tl_cast(b, dtype_promote(a->dtype, b->dtype)) : b;
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
/* Each operand gets g where it was taken, half of it where both are equal, and g where either is NaN. */
static void extreme_backward(tl_gradient *g, tl_compare loses) {
    tl_tensor *a = gradient_input(g, 0), *b = gradient_input(g, 1), *zero = zero_like(g->grad[0]);
    tl_tensor *half = tl_scale(g->grad[0], 0.5);
    tl_tensor *shared = tl_where(tl_cmp(a, TL_EQ, b), half, g->grad[0]);
    if (g->needs[0]) g->result[0] = tl_where(tl_cmp(a, loses, b), zero, shared);
    if (g->needs[1]) g->result[1] = tl_where(tl_cmp(b, loses, a), zero, shared);
}
void minimum_backward(tl_gradient *g) { extreme_backward(g, TL_GT); }
void maximum_backward(tl_gradient *g) { extreme_backward(g, TL_LT); }

/* ---- Gradients of special rows ---- */

/* d(sx+t) = s g */
void affine_backward(tl_gradient *g) {
    g->result[0] = tl_scale(g->grad[0], ((const struct attr_affine *)g->node->attr)->scale);
}
/* g where x > 0, slope g elsewhere */
void leaky_relu_backward(tl_gradient *g) {
    const struct attr_leaky_relu *a = g->node->attr;
    tl_tensor *is_positive = tl_cmp(gradient_input(g, 0), TL_GT, zero_like(g->grad[0]));
    g->result[0] = tl_where(is_positive, g->grad[0], tl_scale(g->grad[0], a->slope));
}
/* g sigmoid(beta x), and g where beta x > threshold: in f32 at least, as forward compares */
void softplus_backward(tl_gradient *g) {
    const struct attr_softplus *a = g->node->attr;
    tl_tensor *x = gradient_input(g, 0);
    if (!x) return;
    const tl_dtype wide = statistics_dtype(x->dtype);
    tl_tensor *bx = tl_scale(tl_cast(x, wide), a->beta), *grad = tl_cast(g->grad[0], wide);
    tl_tensor *threshold = tl_full(0, NULL, a->threshold, wide, x->storage->device);
    tl_tensor *soft = tl_mul(grad, tl_sigmoid(bx));
    g->result[0] = tl_where(tl_cmp(bx, TL_GT, threshold), grad, soft);
}
/* a gets g where the condition holds, b where it does not */
void where_backward(tl_gradient *g) {
    tl_tensor *condition = gradient_input(g, 0);
    tl_tensor *zero = zero_like(g->grad[0]);
    if (g->needs[1]) g->result[1] = tl_where(condition, g->grad[0], zero);
    if (g->needs[2]) g->result[2] = tl_where(condition, zero, g->grad[0]);
}

/* ---- What follows from a row: its gradient ---- */

/* A step has a gradient, which is 0. */
static void step_backward(tl_gradient *to) { (void)to; }

/* By the operands that the rule reads: see elementwise_list.h. */
#define UNARY_RULE_X(name, rule)                                               \
    static tl_tensor *name##_rule(tl_tensor *g, tl_tensor *x) { return rule; } \
    static void name##_backward(tl_gradient *to) { to->result[0] = name##_rule(to->grad[0], gradient_input(to, 0)); }
#define UNARY_RULE_Y(name, rule)                                               \
    static tl_tensor *name##_rule(tl_tensor *g, tl_tensor *y) { return rule; } \
    static void name##_backward(tl_gradient *to) { to->result[0] = name##_rule(to->grad[0], gradient_output(to, 0)); }
#define UNARY_RULE_G(name, rule)                                 \
    static tl_tensor *name##_rule(tl_tensor *g) { return rule; } \
    static void name##_backward(tl_gradient *to) { to->result[0] = name##_rule(to->grad[0]); }
#define UNARY_RULE_STEP(name, rule)
#define UNARY_RULE_NONE(name, rule)

/* A rule of one operand of two; tensors that it does not read are NULL. */
typedef tl_tensor *(*pair_rule)(tl_tensor *g, tl_tensor *a, tl_tensor *b, tl_tensor *y);
static tl_tensor *pair_gradient(tl_gradient *to, int i, pair_rule rule) {
    const uint32_t reads = to->node->op->saves[i];
    tl_tensor *a = reads & TL_INPUT(0) ? gradient_input(to, 0) : NULL;
    tl_tensor *b = reads & TL_INPUT(1) ? gradient_input(to, 1) : NULL;
    return rule(to->grad[0], a, b, reads & TL_OUTPUT(0) ? gradient_output(to, 0) : NULL);
}
#define PAIR_RULE(name, rule)                                                        \
    static tl_tensor *name(tl_tensor *g, tl_tensor *a, tl_tensor *b, tl_tensor *y) { \
        (void)g, (void)a, (void)b, (void)y;                                          \
        return rule;                                                                 \
    }
#define BINARY_RULES(name, rule_a, rule_b)                                     \
    PAIR_RULE(name##_rule_a, rule_a)                                           \
    PAIR_RULE(name##_rule_b, rule_b)                                           \
    static void name##_backward(tl_gradient *to) {                             \
        if (to->needs[0]) to->result[0] = pair_gradient(to, 0, name##_rule_a); \
        if (to->needs[1]) to->result[1] = pair_gradient(to, 1, name##_rule_b); \
    }
#define BINARY_RULES_G BINARY_RULES
#define BINARY_RULES_B BINARY_RULES
#define BINARY_RULES_AB BINARY_RULES
#define BINARY_RULES_NONE(name, rule_a, rule_b)

#define UNARY(name, dtypes, formula, flops, words, reads, gradient, ...) UNARY_RULE_##reads(name, gradient)
#define BINARY(name, dtypes, formula, flops, words, reads_a, rule_a, reads_b, rule_b, ...) \
    BINARY_RULES_##reads_a(name, rule_a, rule_b)
#define BINARY_SHARED(...)
#define SPECIAL(...)
#include "spec/elementwise_list.h"

/* ---- ... its cost ---- */

static void elementwise_cost(const tl_call *c, struct cost *cost, int flops) {
    cost_traffic(c, cost, (count)flops * (count)c->output[0]->numel);
}
#define COST(name, flops) \
    static void name##_cost(const tl_call *c, struct cost *cost) { elementwise_cost(c, cost, flops); }
#define UNARY(name, dtypes, formula, flops, ...) COST(name, flops)
#define BINARY(name, dtypes, formula, flops, ...) COST(name, flops)
#define SPECIAL(name, dtypes, shape_rule, flops, ...)              \
    static void name##_cost(const tl_call *c, struct cost *cost) { \
        const struct attr_##name *p = c->attr;                     \
        (void)p;                                                   \
        elementwise_cost(c, cost, flops);                          \
    }
#include "spec/elementwise_list.h"

/* ---- ... its record ---- */

/* The classes, in words. */
#define ONE .shapes = "x (...) -> (...)"
#define TWO .shapes = "a (...), b (...) -> broadcast"
#define WORDS_REAL ONE, .dtypes = "floats; integers and bool give f32"
#define WORDS_FLOAT ONE, .dtypes = "floats"
#define WORDS_NUMBER ONE, .dtypes = "floats, integers"
#define WORDS_SIGNED ONE, .dtypes = "any for arithmetic but bool"
#define WORDS_ANY ONE, .dtypes = "floats, integers, bool"
#define WORDS_ARITHMETIC ONE, .dtypes = "any for arithmetic"
#define WORDS_TRUTH ONE, .dtypes = "any for arithmetic -> bool"
#define WORDS_SCALAR ONE, .dtypes = "floats, integers, bool; promoted by the number's kind"
#define WORDS_SCALAR_NUMBER ONE, .dtypes = "floats, integers; promoted by the number's kind"
#define WORDS_ANY_PAIR TWO, .dtypes = "any for arithmetic; promoted"
#define WORDS_SIGNED_PAIR TWO, .dtypes = "any for arithmetic but bool; promoted"
#define WORDS_QUOTIENT TWO, .dtypes = "any for arithmetic; promoted; integers and bool give f32"
#define WORDS_NUMBER_PAIR TWO, .dtypes = "floats, integers, bool beside one; promoted"
#define WORDS_EXTREME TWO, .dtypes = "floats, integers, bool; promoted"
#define WORDS_LOGIC TWO, .dtypes = "any for arithmetic -> bool"
#define WORDS_FLOAT_PAIR .shapes = "two, broadcast", .dtypes = "floats; promoted"
#define WORDS_SLOPE .shapes = "x (...), g (...) -> broadcast", .dtypes = "floats; promoted"
#define WORDS_BITS_PAIR TWO, .dtypes = "integers, bool; promoted"
#define WORDS_CHOICE \
    .shapes = "condition, a, b -> broadcast", .dtypes = "condition bool; a, b any for arithmetic; promoted"

/* ... and their rules. */
#define CLASS_REAL WORDS_REAL, .shape = real_shape
#define CLASS_FLOAT WORDS_FLOAT, .shape = float_shape
#define CLASS_NUMBER WORDS_NUMBER, .shape = number_shape
#define CLASS_SIGNED WORDS_SIGNED, .shape = signed_shape
#define CLASS_ANY WORDS_ANY, .shape = any_shape
#define CLASS_TRUTH WORDS_TRUTH, .shape = truth_shape
#define CLASS_ANY_PAIR WORDS_ANY_PAIR, .shape = pair_shape
#define CLASS_SIGNED_PAIR WORDS_SIGNED_PAIR, .shape = signed_pair_shape
#define CLASS_QUOTIENT WORDS_QUOTIENT, .shape = quotient_shape
#define CLASS_NUMBER_PAIR WORDS_NUMBER_PAIR, .shape = number_pair_shape
#define CLASS_EXTREME WORDS_EXTREME, .shape = pair_shape
#define CLASS_LOGIC WORDS_LOGIC, .shape = logic_shape
#define CLASS_FLOAT_PAIR WORDS_FLOAT_PAIR, .shape = float_pair_shape
#define CLASS_SLOPE WORDS_SLOPE, .shape = float_pair_shape
#define CLASS_BITS_PAIR WORDS_BITS_PAIR, .shape = bits_pair_shape

#define READS_G 0
#define READS_STEP 0
#define READS_NONE 0
#define READS_X TL_INPUT(0)
#define READS_Y TL_OUTPUT(0)
#define READS_A TL_INPUT(0)
#define READS_B TL_INPUT(1)
#define READS_AB (TL_INPUT(0) | TL_INPUT(1))
#define READS_ABY (TL_INPUT(0) | TL_INPUT(1) | TL_OUTPUT(0))

#define BACKWARD_G(name) name##_backward
#define BACKWARD_X(name) name##_backward
#define BACKWARD_Y(name) name##_backward
#define BACKWARD_A(name) name##_backward
#define BACKWARD_B(name) name##_backward
#define BACKWARD_AB(name) name##_backward
#define BACKWARD_STEP(name) step_backward
#define BACKWARD_NONE(name) NULL

#define MAY_OVERWRITE_IN_PLACE true
#define MAY_OVERWRITE_FRESH false
#define MAY_OVERWRITE_INTERNAL false
#define IS_WIDE_WIDE true
#define IS_WIDE_AS_IS false

/* "n", or "4n: negate, exp, sum, divide" */
#define FLOPS(flops_, words) .flops = flops_ == 1 ? "n" : #flops_ "n: " words
#define FIRST_FIELDS(name, in_place, autocast)                                               \
    RECORD(KERNEL, name, 1), .cost = name##_cost, .may_overwrite = MAY_OVERWRITE_##in_place, \
                             .is_wide = IS_WIDE_##autocast

#define UNARY(name, dtypes, formula, flops, words, reads, gradient, in_place, autocast, kernel)           \
    const tl_op op_##name = {FIRST_FIELDS(name, in_place, autocast), CLASS_##dtypes, FLOPS(flops, words), \
                             .backward = BACKWARD_##reads(name), .saves = {READS_##reads}};
#define BINARY(name, dtypes, formula, flops, words, reads_a, rule_a, reads_b, rule_b, in_place, autocast, kernel) \
    const tl_op op_##name = {FIRST_FIELDS(name, in_place, autocast), CLASS_##dtypes, FLOPS(flops, words),         \
                             .backward = BACKWARD_##reads_a(name), .saves = {READS_##reads_a, READS_##reads_b}};
#define SPECIAL(name, dtypes, shape_rule, flops_, words, reads, in_place, autocast) \
    const tl_op op_##name = {FIRST_FIELDS(name, in_place, autocast),                \
                             WORDS_##dtypes,                                        \
                             .shape = shape_rule,                                   \
                             .flops = words,                                        \
                             .backward = BACKWARD_##reads(name),                    \
                             .saves_any = READS_##reads};
#include "spec/elementwise_list.h"

/* ---- ... and its public functions ---- */

static inline tl_tensor *unary(const tl_op *op, tl_tensor *x) { return op_apply1(op, x, NULL, 0); }
static inline tl_tensor *unary_(const tl_op *op, tl_tensor *x) { return op_apply_in_place(op, &x, 1, NULL, 0); }
static inline tl_tensor *binary(const tl_op *op, tl_tensor *a, tl_tensor *b) { return op_apply2(op, a, b, NULL, 0); }
static inline tl_tensor *binary_(const tl_op *op, tl_tensor *a, tl_tensor *b) {
    tl_tensor *input[2] = {a, b};
    return op_apply_in_place(op, input, 2, NULL, 0);
}

#define UNARY_FRESH(name) \
    tl_tensor *tl_##name(tl_tensor *x) { return unary(&op_##name, x); }
#define UNARY_IN_PLACE(name) \
    UNARY_FRESH(name)        \
    tl_tensor *tl_##name##_(tl_tensor *x) { return unary_(&op_##name, x); }
#define BINARY_FRESH(name) \
    tl_tensor *tl_##name(tl_tensor *a, tl_tensor *b) { return binary(&op_##name, a, b); }
#define BINARY_IN_PLACE(name) \
    BINARY_FRESH(name)        \
    tl_tensor *tl_##name##_(tl_tensor *a, tl_tensor *b) { return binary_(&op_##name, a, b); }
#define BINARY_INTERNAL(name)

#define UNARY(name, dtypes, formula, flops, words, reads, gradient, in_place, ...) UNARY_##in_place(name)
#define BINARY(name, dtypes, formula, flops, words, reads_a, rule_a, reads_b, rule_b, in_place, ...) \
    BINARY_##in_place(name)
#define SPECIAL(...)
#include "spec/elementwise_list.h"

/* ---- The public functions of special rows ---- */

tl_tensor *tl_affine(tl_tensor *x, double scale, double shift) {
    struct attr_affine a = {scale, shift};
    return op_apply1(&op_affine, x, ATTR(a));
}
tl_tensor *tl_affine_(tl_tensor *x, double scale, double shift) {
    struct attr_affine a = {scale, shift};
    return op_apply_in_place(&op_affine, &x, 1, ATTR(a));
}
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
