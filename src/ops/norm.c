/* norm.c: layer norm and RMS norm over the last axis C, with optional weights.
 *
 * FLOPs per element, as written beside the formulas. The reciprocal square root is once per row and not counted.
 */
#include "ops/ops.h"

#define NORM_DTYPES "floats, all alike; statistics f32 (f64 for f64)"

static int64_t row_length(const tl_tensor *x) { return x->rank ? x->shape[x->rank - 1] : 0; }
static count elements(const tl_call *c, int i) { return (count)c->input[i]->numel; }

static bool norm_shape(tl_call *c, int n_weights) {
    const tl_tensor *x = c->input[0];
    if (!call_needs_float(c, 0)) return false;
    if (x->rank == 0) return call_fail(c, "needs at least one axis");
    for (int i = 1; i <= n_weights; i++) {
        const tl_tensor *w = c->input[i];
        if (w->rank != 1 || w->shape[0] != row_length(x))
            return call_fail(c, "weights must have the size of the last axis");
        if (w->dtype != x->dtype) return call_fail_need(c, "weights must have the dtype of the input", "a cast");
    }
    call_output_like(c, 0, 0);
    for (int j = 1; j < c->op->n_outputs; j++) call_output(c, j, statistics_dtype(x->dtype), x->rank - 1, x->shape);
    return true;
}

/* dx like x; dweight, dbias like the weight (the last input), when there is one */
static bool norm_grad_shape(tl_call *c, int n_without_weight) {
    if (!call_needs_float(c, 1)) return false;
    call_output_like(c, 0, 1);
    int64_t length = row_length(c->input[1]);
    if (c->n_inputs == n_without_weight) c->n_outputs = 1;
    for (int j = 1; j < c->n_outputs; j++) call_output(c, j, c->input[1]->dtype, 1, &length);
    return true;
}

/* Per-run sums of the weights' gradients. */
static size_t norm_grad_workspace(const tl_call *c, const struct target *target) {
    size_t element = statistics_dtype(c->input[1]->dtype) == TL_F64 ? 8 : 4;
    size_t n_runs = target->kind == DEVICE_CUDA ? NORM_RUNS : NORM_CHUNKS;
    return (size_t)(c->n_outputs - 1) * n_runs * (size_t)row_length(c->input[1]) * element;
}

/* The gradients of one call, put to the inputs x, weight, bias. */
static void norm_backward(tl_gradient *g, const tl_op *op, tl_tensor **input, int n_inputs) {
    tl_call c;
    input[0] = tl_contiguous(g->grad[0]);
    call_begin(&c, op, input, n_inputs, g->node->attr, g->node->attr_bytes);
    if (!op_apply(&c)) return;
    for (int j = 0; j < c.n_outputs; j++) g->result[j] = c.output[j];
}

/* The same in ops, so that it can be differentiated again: dx like x, g xhat (dweight, once it is summed) and g (dbias). The
 * statistics are made anew from x, since the way to them counts now. */
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
static void norm_slope(tl_gradient *g, bool is_centred) {
    const bool weighted = g->node->n_inputs > 1;
    tl_tensor *x = gradient_input(g, 0), *weight = weighted ? gradient_input(g, 1) : NULL;
    struct slopes d = norm_slopes(g, x, g->grad[0], weight, is_centred);
    g->result[0] = d.x;
    if (weighted) g->result[1] = d.weight;
    if (weighted && is_centred) g->result[2] = d.bias;
}

/* ---- layer norm: y = (x - mean) rstd [weight + bias] ---- */

static bool layer_norm_shape(tl_call *c) { return norm_shape(c, c->n_inputs - 1); }
static bool layer_norm_grad_shape(tl_call *c) { return norm_grad_shape(c, 4); }
/* sum, subtract, square, sum, times rstd: 5; times weight, plus bias: 2 */
static void layer_norm_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_inputs > 1 ? 7 : 5) * elements(c, 0));
}
/* xhat = (x - mean) rstd: 2; sum of gw: 1; sum of gw xhat: 2; dx = rstd (gw - s1 - xhat s2): 4;
 * with weights gw = g weight: 1; dweight += g xhat: 2; dbias += g: 1 */
static void layer_norm_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_outputs > 1 ? 13 : 9) * elements(c, 1));
}

/* dx = rstd (gw - mean(gw) - xhat mean(gw xhat)), gw = g weight; dweight = sum g xhat; dbias = sum g */
static void layer_norm_backward(tl_gradient *g) {
    if (g->creates_graph) {
        norm_slope(g, true);
        return;
    }
    tl_tensor *input[5] = {NULL, gradient_input(g, 0), gradient_output(g, 1), gradient_output(g, 2)};
    bool weighted = g->node->n_inputs > 1;
    if (weighted) input[4] = gradient_input(g, 1);
    norm_backward(g, &op_layer_norm_grad, input, weighted ? 5 : 4);
}

const tl_op op_layer_norm = {RECORD(KERNEL, layer_norm, 3),
                             .is_wide = true,
                             .shapes = "x (...,C) [, weight, bias (C)]: y like x; mean, rstd (...)",
                             .dtypes = NORM_DTYPES,
                             .flops = "5n; with weight and bias 7n",
                             .shape = layer_norm_shape,
                             .cost = layer_norm_cost,
                             .backward = layer_norm_backward,
                             .saves_any = TL_INPUT(0) | TL_INPUT(1) | TL_OUTPUT(1) | TL_OUTPUT(2)};
const tl_op op_layer_norm_grad = {RECORD(KERNEL, layer_norm_grad, 3),
                                  .shapes = "g, x, mean, rstd [, weight]: dx like x [, dweight, dbias (C)]",
                                  .dtypes = NORM_DTYPES,
                                  .flops = "9e; with weights 13e; e elements of x",
                                  .shape = layer_norm_grad_shape,
                                  .cost = layer_norm_grad_cost,
                                  .workspace = norm_grad_workspace,
                                  .backward = gradient_missing};

tl_tensor *tl_layer_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, double eps) {
    if (!weight != !bias) {
        error_set(TL_ERROR_USE, "layer_norm: weight and bias come together, or not at all");
        return NULL;
    }
    struct attr_norm a = {eps};
    tl_tensor *input[3] = {x, weight, bias};
    for (int i = 0; i < (weight ? 3 : 1); i++) input[i] = tl_contiguous(input[i]);
    tl_call c;
    call_begin(&c, &op_layer_norm, input, weight ? 3 : 1, ATTR(a));
    return op_apply(&c);
}

/* ---- RMS norm: y = x rstd [weight], rstd = 1 / sqrt(mean(x^2) + eps) ---- */

static bool rms_norm_shape(tl_call *c) { return norm_shape(c, c->n_inputs - 1); }
static bool rms_norm_grad_shape(tl_call *c) { return norm_grad_shape(c, 3); }
/* square, sum, times rstd: 3; times weight: 1 */
static void rms_norm_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_inputs > 1 ? 4 : 3) * elements(c, 0));
}
/* sum of gw x: 2; dx = rstd gw - x s: 3; with weights gw = g weight: 1; dweight += g x rstd: 3 */
static void rms_norm_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_outputs > 1 ? 9 : 5) * elements(c, 1));
}

/* dx = rstd gw - x rstd^3 mean(gw x), gw = g weight; dweight = sum g x rstd */
static void rms_norm_backward(tl_gradient *g) {
    if (g->creates_graph) {
        norm_slope(g, false);
        return;
    }
    tl_tensor *input[4] = {NULL, gradient_input(g, 0), gradient_output(g, 1)};
    bool weighted = g->node->n_inputs > 1;
    if (weighted) input[3] = gradient_input(g, 1);
    norm_backward(g, &op_rms_norm_grad, input, weighted ? 4 : 3);
}

const tl_op op_rms_norm = {RECORD(KERNEL, rms_norm, 2),
                           .is_wide = true,
                           .shapes = "x (...,C) [, weight (C)]: y like x; rstd (...)",
                           .dtypes = NORM_DTYPES,
                           .flops = "3n; with weight 4n",
                           .shape = rms_norm_shape,
                           .cost = rms_norm_cost,
                           .backward = rms_norm_backward,
                           .saves_any = TL_INPUT(0) | TL_INPUT(1) | TL_OUTPUT(1)};
const tl_op op_rms_norm_grad = {RECORD(KERNEL, rms_norm_grad, 2),
                                .shapes = "g, x, rstd [, weight]: dx like x [, dweight (C)]",
                                .dtypes = NORM_DTYPES,
                                .flops = "5e; with weight 9e; e elements of x",
                                .shape = rms_norm_grad_shape,
                                .cost = rms_norm_grad_cost,
                                .workspace = norm_grad_workspace,
                                .backward = gradient_missing};

tl_tensor *tl_rms_norm(tl_tensor *x, tl_tensor *weight, double eps) {
    struct attr_norm a = {eps};
    tl_tensor *input[2] = {x, weight};
    for (int i = 0; i < (weight ? 2 : 1); i++) input[i] = tl_contiguous(input[i]);
    tl_call c;
    call_begin(&c, &op_rms_norm, input, weight ? 2 : 1, ATTR(a));
    return op_apply(&c);
}

/* ---- sum = x + residual, and its norm: the sum is read where it was made ---- */

static bool add_norm_shape(tl_call *c) {
    const tl_tensor *x = c->input[0], *residual = c->input[1];
    if (!call_needs_float(c, 0)) return false;
    if (x->rank == 0) return call_fail(c, "needs at least one axis");
    if (!shape_equal(x->rank, x->shape, residual->rank, residual->shape) || x->dtype != residual->dtype)
        return call_fail(c, "x and residual must have one shape and one dtype");
    for (int i = 2; i < c->n_inputs; i++) {
        const tl_tensor *w = c->input[i];
        if (w->rank != 1 || w->shape[0] != row_length(x))
            return call_fail(c, "weights must have the size of the last axis");
        if (w->dtype != x->dtype) return call_fail_need(c, "weights must have the dtype of the input", "a cast");
    }
    for (int j = 0; j < 2; j++) call_output_like(c, j, 0);
    for (int j = 2; j < c->op->n_outputs; j++) call_output(c, j, statistics_dtype(x->dtype), x->rank - 1, x->shape);
    return true;
}
static bool add_rms_norm_grad_shape(tl_call *c) { return norm_grad_shape(c, 4); }
static bool add_layer_norm_grad_shape(tl_call *c) { return norm_grad_shape(c, 5); }
/* the norm's, and one addition, forward and backward */
static void add_rms_norm_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_inputs > 2 ? 5 : 4) * elements(c, 0));
}
static void add_layer_norm_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_inputs > 2 ? 8 : 6) * elements(c, 0));
}
static void add_rms_norm_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_outputs > 1 ? 10 : 6) * elements(c, 1));
}
static void add_layer_norm_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (c->n_outputs > 1 ? 14 : 10) * elements(c, 1));
}

static void add_norm_slope(tl_gradient *g, bool is_centred) {
    const bool weighted = g->node->n_inputs > 2;
    tl_tensor *sum = gradient_output(g, 0), *weight = weighted ? gradient_input(g, 2) : NULL;
    struct slopes d = norm_slopes(g, sum, g->grad[1], weight, is_centred);
    g->result[0] = g->result[1] = g->grad[0] ? tl_add(g->grad[0], d.x) : d.x;
    if (weighted) g->result[2] = d.weight;
    if (weighted && is_centred) g->result[3] = d.bias;
}

/* d = g_sum + (the norm's dx of g): of x and of residual alike. `plain` is the norm's own gradient, where g_sum is absent. */
static void add_norm_backward(tl_gradient *g, const tl_op *fused, const tl_op *plain, int n_statistics) {
    if (!g->grad[1]) {
        g->result[0] = g->result[1] = g->grad[0];
        return;
    }
    if (g->creates_graph) {
        add_norm_slope(g, n_statistics == 2);
        return;
    }
    tl_tensor *input[6];
    int n = 0;
    input[n++] = tl_contiguous(g->grad[1]);
    if (g->grad[0]) input[n++] = tl_contiguous(g->grad[0]);
    input[n++] = gradient_output(g, 0);
    for (int j = 0; j < n_statistics; j++) input[n++] = gradient_output(g, 2 + j);
    if (g->node->n_inputs > 2) input[n++] = gradient_input(g, 2);
    tl_call c;
    call_begin(&c, g->grad[0] ? fused : plain, input, n, g->node->attr, g->node->attr_bytes);
    if (!op_apply(&c)) return;
    g->result[0] = c.output[0];
    for (int j = 0; j < c.n_outputs; j++) g->result[1 + j] = c.output[j];
}
static void add_rms_norm_backward(tl_gradient *g) { add_norm_backward(g, &op_add_rms_norm_grad, &op_rms_norm_grad, 1); }
static void add_layer_norm_backward(tl_gradient *g) {
    add_norm_backward(g, &op_add_layer_norm_grad, &op_layer_norm_grad, 2);
}

const tl_op op_add_rms_norm = {RECORD(KERNEL, add_rms_norm, 3),
                               .shapes = "x, residual (...,C) [, weight (C)]: sum, y like x; rstd (...)",
                               .dtypes = NORM_DTYPES,
                               .flops = "4n; with weight 5n: rms_norm's and a sum",
                               .shape = add_norm_shape,
                               .cost = add_rms_norm_cost,
                               .backward = add_rms_norm_backward,
                               .saves_any = TL_INPUT(2) | TL_OUTPUT(0) | TL_OUTPUT(2)};
const tl_op op_add_rms_norm_grad = {RECORD(KERNEL, add_rms_norm_grad, 2),
                                    .shapes = "g, g_sum, sum, rstd [, weight]: d like sum [, dweight (C)]",
                                    .dtypes = NORM_DTYPES,
                                    .flops = "6e; with weight 10e: rms_norm_grad's and a sum; e elements of sum",
                                    .shape = add_rms_norm_grad_shape,
                                    .cost = add_rms_norm_grad_cost,
                                    .workspace = norm_grad_workspace,
                                    .backward = gradient_missing};
const tl_op op_add_layer_norm = {RECORD(KERNEL, add_layer_norm, 4),
                                 .shapes = "x, residual (...,C) [, weight, bias (C)]: sum, y like x; mean, rstd (...)",
                                 .dtypes = NORM_DTYPES,
                                 .flops = "6n; with weight and bias 8n: layer_norm's and a sum",
                                 .shape = add_norm_shape,
                                 .cost = add_layer_norm_cost,
                                 .backward = add_layer_norm_backward,
                                 .saves_any = TL_INPUT(2) | TL_OUTPUT(0) | TL_OUTPUT(2) | TL_OUTPUT(3)};
const tl_op op_add_layer_norm_grad = {RECORD(KERNEL, add_layer_norm_grad, 3),
                                      .shapes =
                                          "g, g_sum, sum, mean, rstd [, weight]: d like sum [, dweight, dbias (C)]",
                                      .dtypes = NORM_DTYPES,
                                      .flops = "10e; with weights 14e: layer_norm_grad's and a sum; e elements of sum",
                                      .shape = add_layer_norm_grad_shape,
                                      .cost = add_layer_norm_grad_cost,
                                      .workspace = norm_grad_workspace,
                                      .backward = gradient_missing};

static tl_tensor *add_norm(const tl_op *op, tl_tensor **input, int n_inputs, double eps, tl_tensor **sum) {
    struct attr_norm a = {eps};
    tl_call c;
    *sum = NULL;
    for (int i = 0; i < n_inputs; i++) input[i] = tl_contiguous(input[i]);
    call_begin(&c, op, input, n_inputs, ATTR(a));
    *sum = op_apply(&c);
    return *sum ? c.output[1] : NULL;
}

tl_tensor *tl_add_rms_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, double eps, tl_tensor **sum) {
    tl_tensor *input[3] = {x, residual, weight};
    return add_norm(&op_add_rms_norm, input, weight ? 3 : 2, eps, sum);
}

tl_tensor *tl_add_layer_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, tl_tensor *bias, double eps,
                             tl_tensor **sum) {
    tl_tensor *input[4] = {x, residual, weight, bias};
    *sum = NULL;
    if (!weight != !bias) {
        error_set(TL_ERROR_USE, "add_layer_norm: weight and bias come together, or not at all");
        return NULL;
    }
    return add_norm(&op_add_layer_norm, input, weight ? 4 : 2, eps, sum);
}
