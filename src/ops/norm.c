/* norm.c: layer norm and RMS norm over the last axis C, with optional weights.
 *
 * FLOPs per element, as written beside the formulas. The reciprocal square root is once per row and not counted.
 */
#include <string.h>

#include "ops/draw.h"
#include "ops/ops.h"
#include "spec/dropout.h"

#define NORM_DTYPES "floats, all alike; statistics f32 (f64 for f64)"

static int64_t row_length(const tl_tensor *x) { return x->rank ? x->shape[x->rank - 1] : 0; }
static count elements(const tl_call *c, int i) { return (count)c->input[i]->numel; }

/* The first `n` inputs are x, or x and a residual; as many outputs are like x: y, or their sum and y. Weights
 * follow, and statistics. */
static bool norm_shape_of(tl_call *c, int n) {
    const tl_tensor *x = c->input[0], *residual = c->input[n - 1];
    if (!call_needs_float(c, 0)) return false;
    if (x->rank == 0) return call_fail(c, "needs at least one axis");
    if (!shape_equal(x->rank, x->shape, residual->rank, residual->shape) || x->dtype != residual->dtype)
        return call_fail(c, "x and residual must have one shape and one dtype");
    for (int i = n; i < c->n_inputs; i++) {
        const tl_tensor *w = c->input[i];
        if (w->rank != 1 || w->shape[0] != row_length(x))
            return call_fail(c, "weights must have the size of the last axis");
        if (w->dtype != x->dtype) return call_fail_need(c, "weights must have the dtype of the input", "a cast");
    }
    for (int j = 0; j < n; j++) call_output_like(c, j, 0);
    for (int j = n; j < c->op->n_outputs; j++) call_output(c, j, statistics_dtype(x->dtype), x->rank - 1, x->shape);
    return true;
}
static bool norm_shape(tl_call *c) { return norm_shape_of(c, 1); }
static bool add_norm_shape(tl_call *c) { return norm_shape_of(c, 2); }

/* A norm has as many statistics as weights; its gradient has dx, what dropout leaves of it, theirs, and sums. */
static int n_statistics(const tl_op *grad) { return grad->n_outputs - 3; }

/* Gradients like x: dx, and with dropout that of the residual, the last of them. */
static int n_like_x(const struct attr_norm *a) { return a->dropout > 0 ? 2 : 1; }

/* dx like x, and with dropout the residual's; dweight, dbias like the weight (the last input), when there is one; sums
 * of the columns of the last one like x where they are wanted. */
static bool norm_grad_shape_of(tl_call *c, int n) {
    if (!call_needs_float(c, 1)) return false;
    const struct attr_norm *a = c->attr;
    const int at_weights = n_like_x(a);
    const tl_tensor *x = c->input[1];
    const int64_t length = row_length(x);
    const bool is_weighted = c->n_inputs > n + 1 + n_statistics(c->op); /* behind g [, g_sum], x, statistics */
    const int at_sums = at_weights + (is_weighted ? n_statistics(c->op) : 0);
    for (int j = 0; j < at_weights; j++) call_output_like(c, j, 1);
    for (int j = at_weights; j < at_sums; j++) call_output(c, j, x->dtype, 1, &length);
    if (a->gives_sums) call_output(c, at_sums, x->dtype, 1, &length);
    c->n_outputs = at_sums + a->gives_sums;
    return true;
}
static bool norm_grad_shape(tl_call *c) { return norm_grad_shape_of(c, 1); }
static bool add_norm_grad_shape(tl_call *c) { return norm_grad_shape_of(c, 2); }

/* FLOPs per element, without weights and with them; a sum of columns is one more, and so is dropout. */
static void grad_cost(const tl_call *c, struct cost *cost, count plain, count weighted) {
    const struct attr_norm *a = c->attr;
    const bool gives_sums = a->gives_sums, is_weighted = c->n_outputs - gives_sums > n_like_x(a);
    cost_traffic(c, cost, ((is_weighted ? weighted : plain) + gives_sums + (a->dropout > 0)) * elements(c, 1));
}

/* What dropout leaves of x, or of a gradient. */
static tl_tensor *drop(const struct attr_norm *a, tl_tensor *x) {
    struct attr_dropout d;
    memset(&d, 0, sizeof d);
    d.p = a->dropout;
    d.generator = a->generator;
    return d.p > 0 ? op_apply1(&op_dropout, x, ATTR(d)) : x;
}

/* The gradients in ops, so that they can be differentiated again: dx like x, g xhat (dweight, once it is summed) and
 * g (dbias). The statistics are recomputed from x, since their gradients count here. */
struct slopes {
    tl_tensor *x, *weight, *bias;
};
static struct slopes norm_slopes(tl_gradient *g, tl_tensor *x, tl_tensor *grad, tl_tensor *weight, bool is_centred) {
    const double eps = ((const struct attr_norm *)g->node->attr)->eps;
    const int last = -1;
    if (!x || !grad) return (struct slopes){0};
    const tl_dtype dtype = statistics_dtype(x->dtype);
    x = tl_cast(x, dtype);
    if (is_centred) x = tl_sub(x, tl_mean(x, &last, 1, true));
    tl_tensor *variance = tl_mean(tl_mul(x, x), &last, 1, true);
    tl_tensor *rstd = tl_rsqrt(tl_affine(variance, 1, eps)), *xhat = tl_mul(x, rstd);
    grad = tl_cast(grad, dtype);
    tl_tensor *gw = weight ? tl_mul(grad, tl_cast(weight, dtype)) : grad;
    tl_tensor *along = tl_mul(xhat, tl_mean(tl_mul(gw, xhat), &last, 1, true));
    tl_tensor *rest = is_centred ? tl_sub(gw, tl_mean(gw, &last, 1, true)) : gw;
    tl_tensor *dx = tl_mul(rstd, tl_sub(rest, along)), *dweight = tl_mul(grad, xhat);
    return (struct slopes){dx, dweight, grad};
}
static void norm_slope(tl_gradient *g, int n, bool is_centred) {
    const bool weighted = g->node->n_inputs > n;
    tl_tensor *x = n == 1 ? gradient_input(g, 0) : gradient_output(g, 0);
    struct slopes d = norm_slopes(g, x, g->grad[n - 1], weighted ? gradient_input(g, n) : NULL, is_centred);
    g->result[0] = n == 2 && g->grad[0] ? tl_add(g->grad[0], d.x) : d.x;
    if (n == 2) g->result[1] = drop(g->node->attr, g->result[0]);
    if (weighted) g->result[n] = d.weight;
    if (weighted && is_centred) g->result[n + 1] = d.bias;
}

/* Whether a bias before the norm gets the sums of columns, and the device has them on the way. */
static bool sums_are_due(const tl_gradient *g, int n, const tl_call *c) {
    const tl_tensor *x = c->input[1];
    const struct target *t = x ? x->storage->device->target : NULL;
    if (!t || !t->rules->sums || !t->rules->sums(c, t)) return false;
    bool is_due = false;
    for (int i = n_like_x(c->attr) - 1; i < n; i++)
        is_due = is_due || gradient_wants_sums(g, i, x->numel, row_length(x));
    return is_due;
}

/* Delivers the gradients of one call, which the op `of` computes, to its inputs. n as in norm_shape_of; for n = 2,
 * `sum` is the op that also takes the gradient of the sum, which x and, but for dropout, the residual get. */
static void norm_backward(tl_gradient *g, int n, const tl_op *of, const tl_op *sum) {
    if (!g->grad[n - 1]) {
        g->result[0] = g->grad[0];
        g->result[1] = g->needs[1] ? drop(g->node->attr, g->grad[0]) : NULL;
        return;
    }
    if (g->creates_graph) {
        norm_slope(g, n, n_statistics(of) == 2);
        return;
    }
    tl_tensor *input[6], *g_sum = n == 2 ? g->grad[0] : NULL;
    int n_inputs = 0;
    input[n_inputs++] = tl_contiguous(g->grad[n - 1]);
    if (g_sum) input[n_inputs++] = tl_contiguous(g_sum);
    input[n_inputs++] = n == 1 ? gradient_input(g, 0) : gradient_output(g, 0);
    for (int j = 0; j < n_statistics(of); j++) input[n_inputs++] = gradient_output(g, n + j);
    if (g->node->n_inputs > n) input[n_inputs++] = gradient_input(g, n);
    struct attr_norm a;
    memcpy(&a, g->node->attr, sizeof a);       /* with its padding */
    if (n == 2 && !g->needs[1]) a.dropout = 0; /* what it leaves would go nowhere */
    tl_call c;
    call_begin(&c, g_sum ? sum : of, input, n_inputs, ATTR(a));
    a.gives_sums = sums_are_due(g, n, &c);
    if (!op_apply(&c)) return;
    const int n_gradients = c.n_outputs - a.gives_sums, at_weights = n_like_x(&a);
    tl_tensor *const last = c.output[at_weights - 1];
    g->result[0] = c.output[0];
    g->result[n - 1] = last;
    for (int j = at_weights; j < n_gradients; j++) g->result[n + j - at_weights] = c.output[j];
    if (a.gives_sums) storage_set_sums(last->storage, c.output[n_gradients]);
}

/* dropout: of input 1, the residual. It draws what tl_dropout would. */
static tl_tensor *norm_apply(const tl_op *op, tl_tensor **input, int n_inputs, double eps, double dropout,
                             tl_tensor **sum) {
    struct attr_norm a;
    memset(&a, 0, sizeof a);
    a.eps = eps;
    a.dropout = dropout;
    tl_call c;
    for (int i = 0; i < n_inputs; i++) input[i] = tl_contiguous(input[i]);
    const int64_t n_words = dropout > 0 && input[1] ? (int64_t)dropout_words((uint64_t)input[1]->numel) : 0;
    if (dropout > 0) a.generator = draw_part_begin(1, n_words);
    call_begin(&c, op, input, n_inputs, ATTR(a));
    tl_tensor *first = op_apply(&c);
    if (first && dropout > 0) draw_part_end(1, n_words);
    if (sum) *sum = first;
    return first && sum ? c.output[1] : first;
}

static bool come_together(const char *what, const tl_tensor *weight, const tl_tensor *bias) {
    return !weight == !bias || error_set(TL_ERROR_USE, "%s: weight and bias come together, or not at all", what);
}

/* ---- layer norm: y = (x - mean) rstd [weight + bias] ---- */

/* sum, subtract, square, sum, times rstd: 5; times weight, plus bias: 2 */
static void layer_norm_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_inputs > 1 ? 7 : 5) * elements(c, 0));
}
/* xhat = (x - mean) rstd: 2; sum of gw: 1; sum of gw xhat: 2; dx = rstd (gw - s1 - xhat s2): 4;
 * with weights gw = g weight: 1; dweight += g xhat: 2; dbias += g: 1 */
static void layer_norm_grad_cost(const tl_call *c, struct cost *cost) { grad_cost(c, cost, 9, 13); }

/* dx = rstd (gw - mean(gw) - xhat mean(gw xhat)), gw = g weight; dweight = sum g xhat; dbias = sum g */
static void layer_norm_backward(tl_gradient *g) { norm_backward(g, 1, &op_layer_norm_grad, NULL); }

const tl_op op_layer_norm = {RECORD(KERNEL, layer_norm, 3),
                             .is_wide = true,
                             .shapes = "x (...,C) [, weight, bias (C)]: y like x; mean, rstd (...)",
                             .dtypes = NORM_DTYPES,
                             .flops = "5n; with weight and bias 7n",
                             .shape = norm_shape,
                             .cost = layer_norm_cost,
                             .backward = layer_norm_backward,
                             .saves_any = TL_INPUT(0) | TL_INPUT(1) | TL_OUTPUT(1) | TL_OUTPUT(2)};
const tl_op op_layer_norm_grad = {
    RECORD(KERNEL, layer_norm_grad, 5),
    .shapes = "g, x, mean, rstd [, weight]: dx [, dropped] like x [, dweight, dbias (C)] [, sums (C)]",
    .dtypes = NORM_DTYPES,
    .flops = "9e; with weights 13e; sums e; dropout e; e elements of x",
    .shape = norm_grad_shape,
    .cost = layer_norm_grad_cost,
    .backward = gradient_missing};

tl_tensor *tl_layer_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, double eps) {
    tl_tensor *input[3] = {x, weight, bias};
    if (!come_together("layer_norm", weight, bias)) return NULL;
    return norm_apply(&op_layer_norm, input, weight ? 3 : 1, eps, 0, NULL);
}

/* ---- RMS norm: y = x rstd [weight], rstd = 1 / sqrt(mean(x^2) + eps) ---- */

/* square, sum, times rstd: 3; times weight: 1 */
static void rms_norm_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_inputs > 1 ? 4 : 3) * elements(c, 0));
}
/* sum of gw x: 2; dx = rstd gw - x s: 3; with weights gw = g weight: 1; dweight += g x rstd: 3 */
static void rms_norm_grad_cost(const tl_call *c, struct cost *cost) { grad_cost(c, cost, 5, 9); }

/* dx = rstd gw - x rstd^3 mean(gw x), gw = g weight; dweight = sum g x rstd */
static void rms_norm_backward(tl_gradient *g) { norm_backward(g, 1, &op_rms_norm_grad, NULL); }

const tl_op op_rms_norm = {RECORD(KERNEL, rms_norm, 2),
                           .is_wide = true,
                           .shapes = "x (...,C) [, weight (C)]: y like x; rstd (...)",
                           .dtypes = NORM_DTYPES,
                           .flops = "3n; with weight 4n",
                           .shape = norm_shape,
                           .cost = rms_norm_cost,
                           .backward = rms_norm_backward,
                           .saves_any = TL_INPUT(0) | TL_INPUT(1) | TL_OUTPUT(1)};
const tl_op op_rms_norm_grad = {RECORD(KERNEL, rms_norm_grad, 4),
                                .shapes = "g, x, rstd [, weight]: dx [, dropped] like x [, dweight (C)] [, sums (C)]",
                                .dtypes = NORM_DTYPES,
                                .flops = "5e; with weight 9e; sums e; dropout e; e elements of x",
                                .shape = norm_grad_shape,
                                .cost = rms_norm_grad_cost,
                                .backward = gradient_missing};

tl_tensor *tl_rms_norm(tl_tensor *x, tl_tensor *weight, double eps) {
    tl_tensor *input[2] = {x, weight};
    return norm_apply(&op_rms_norm, input, weight ? 2 : 1, eps, 0, NULL);
}

/* ---- sum = x + residual, and its norm, in one op ---- */

/* the norm's, and one addition, forward and backward; dropout is one more, as the op alone */
static void add_norm_cost(const tl_call *c, struct cost *cost, count plain, count weighted) {
    const bool drops = ((const struct attr_norm *)c->attr)->dropout > 0;
    cost_traffic(c, cost, ((c->n_inputs > 2 ? weighted : plain) + drops) * elements(c, 0));
}
static void add_rms_norm_cost(const tl_call *c, struct cost *cost) { add_norm_cost(c, cost, 4, 5); }
static void add_layer_norm_cost(const tl_call *c, struct cost *cost) { add_norm_cost(c, cost, 6, 8); }
static void add_rms_norm_grad_cost(const tl_call *c, struct cost *cost) { grad_cost(c, cost, 6, 10); }
static void add_layer_norm_grad_cost(const tl_call *c, struct cost *cost) { grad_cost(c, cost, 10, 14); }

/* d = g_sum + (the norm's dx of g): of x and, but for dropout, of residual alike */
static void add_rms_norm_backward(tl_gradient *g) { norm_backward(g, 2, &op_rms_norm_grad, &op_add_rms_norm_grad); }
static void add_layer_norm_backward(tl_gradient *g) {
    norm_backward(g, 2, &op_layer_norm_grad, &op_add_layer_norm_grad);
}

const tl_op op_add_rms_norm = {RECORD(KERNEL, add_rms_norm, 3),
                               .shapes = "x, residual (...,C) [, weight (C)]: sum, y like x; rstd (...)",
                               .dtypes = NORM_DTYPES,
                               .flops = "4n; with weight 5n: rms_norm's and a sum; dropout n",
                               .shape = add_norm_shape,
                               .cost = add_rms_norm_cost,
                               .backward = add_rms_norm_backward,
                               .saves_any = TL_INPUT(2) | TL_OUTPUT(0) | TL_OUTPUT(2)};
const tl_op op_add_rms_norm_grad = {
    RECORD(KERNEL, add_rms_norm_grad, 4),
    .shapes = "g, g_sum, sum, rstd [, weight]: d [, dropped] like sum [, dweight (C)] [, sums (C)]",
    .dtypes = NORM_DTYPES,
    .flops = "6e; with weight 10e: rms_norm_grad's and a sum; sums e; dropout e; e elements of sum",
    .shape = add_norm_grad_shape,
    .cost = add_rms_norm_grad_cost,
    .backward = gradient_missing};
const tl_op op_add_layer_norm = {RECORD(KERNEL, add_layer_norm, 4),
                                 .shapes = "x, residual (...,C) [, weight, bias (C)]: sum, y like x; mean, rstd (...)",
                                 .dtypes = NORM_DTYPES,
                                 .flops = "6n; with weight and bias 8n: layer_norm's and a sum; dropout n",
                                 .shape = add_norm_shape,
                                 .cost = add_layer_norm_cost,
                                 .backward = add_layer_norm_backward,
                                 .saves_any = TL_INPUT(2) | TL_OUTPUT(0) | TL_OUTPUT(2) | TL_OUTPUT(3)};
const tl_op op_add_layer_norm_grad = {
    RECORD(KERNEL, add_layer_norm_grad, 5),
    .shapes = "g, g_sum, sum, mean, rstd [, weight]: d [, dropped] like sum [, dweight, dbias (C)] [, sums (C)]",
    .dtypes = NORM_DTYPES,
    .flops = "10e; with weights 14e: layer_norm_grad's and a sum; sums e; dropout e; e elements of sum",
    .shape = add_norm_grad_shape,
    .cost = add_layer_norm_grad_cost,
    .backward = gradient_missing};

tl_tensor *add_rms_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, double eps, double dropout,
                        tl_tensor **sum) {
    tl_tensor *input[3] = {x, residual, weight};
    if (!error_given(sum, "add_rms_norm", "a place for the sum")) return NULL;
    *sum = NULL;
    return norm_apply(&op_add_rms_norm, input, weight ? 3 : 2, eps, dropout, sum);
}
tl_tensor *tl_add_rms_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, double eps, tl_tensor **sum) {
    return add_rms_norm(x, residual, weight, eps, 0, sum);
}

tl_tensor *add_layer_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, tl_tensor *bias, double eps,
                          double dropout, tl_tensor **sum) {
    tl_tensor *input[4] = {x, residual, weight, bias};
    if (!error_given(sum, "add_layer_norm", "a place for the sum")) return NULL;
    *sum = NULL;
    if (!come_together("add_layer_norm", weight, bias)) return NULL;
    return norm_apply(&op_add_layer_norm, input, weight ? 4 : 2, eps, dropout, sum);
}
tl_tensor *tl_add_layer_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, tl_tensor *bias, double eps,
                             tl_tensor **sum) {
    return add_layer_norm(x, residual, weight, bias, eps, 0, sum);
}
