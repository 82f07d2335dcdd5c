/* reduce.c: many elements into one; softmax and its logarithm. */
#include "ops/reduce.h"

/* ---- What all share ---- */

void reduce_shape(const tl_tensor *x, const struct attr_reduce *a, int *rank, int64_t *shape) {
    *rank = 0;
    for (int i = 0; i < x->rank; i++) {
        bool reduced = a->axes >> i & 1;
        if (!reduced || a->keep) shape[(*rank)++] = reduced ? 1 : x->shape[i];
    }
}

int64_t reduce_count(const tl_tensor *x, int64_t n_outputs) { return n_outputs ? x->numel / n_outputs : 0; }

int reduce_axes(uint32_t axes, int rank, int *list) {
    int n = 0;
    for (int i = 0; i < rank; i++)
        if (axes >> i & 1) list[n++] = i;
    return n;
}

bool reduce_is_empty(const tl_tensor *x, const struct attr_reduce *a) {
    for (int i = 0; i < x->rank; i++)
        if (a->axes >> i & 1 && x->shape[i] == 0) return true;
    return false;
}

tl_tensor *reduce_restore(tl_tensor *x, const struct edge *e, uint32_t axes) {
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < e->rank; i++) shape[i] = axes >> i & 1 ? 1 : e->shape[i];
    return tl_reshape(x, e->rank, shape);
}

bool reduce_over(const char *op, tl_tensor *x, const int *axes, int n_axes, bool keep, struct attr_reduce *a) {
    if (!tensor_check(x, op) || (n_axes > 0 && !error_given(axes, op, "axes"))) return false;
    *a = (struct attr_reduce){.keep = keep};
    for (int k = 0; k < n_axes; k++) {
        int at = axis_check(op, axes[k], x->rank ? x->rank : 1);
        if (at < 0) return false;
        if (a->axes >> at & 1)
            return error_set(TL_ERROR_USE, "%s: dim %d appears multiple times in the list of dims", op, at);
        a->axes |= (uint32_t)1 << at;
    }
    if (x->rank == 0) a->axes = 0; /* as PyTorch: a scalar has one axis here, and stays as it is */
    if (n_axes == 0)
        for (int i = 0; i < x->rank; i++) a->axes |= (uint32_t)1 << i;
    return true;
}

/* ---- sum, max, min, prod over a set of axes ---- */

static bool sum_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_arithmetic(c, 0)) return false;
    reduce_shape(x, c->attr, &rank, shape);
    const struct attr_reduce *a = c->attr;
    tl_dtype dtype = !dtype_is_float(x->dtype) ? TL_I64 : a->is_wide ? statistics_dtype(x->dtype) : x->dtype;
    return call_output(c, 0, dtype, rank, shape);
}

static bool extreme_shape(tl_call *c, const char *what) {
    const tl_tensor *x = c->input[0];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_arithmetic(c, 0)) return false;
    reduce_shape(x, c->attr, &rank, shape);
    if (reduce_is_empty(x, c->attr)) return call_fail(c, "the %s of no elements does not exist", what);
    return call_output(c, 0, x->dtype, rank, shape);
}
static bool max_shape(tl_call *c) { return extreme_shape(c, "maximum"); }
static bool min_shape(tl_call *c) { return extreme_shape(c, "minimum"); }

void reduce_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, (count)c->input[0]->numel); }
/* A mean: the division too. */
static void sum_cost(const tl_call *c, struct cost *cost) {
    const bool is_mean = ((const struct attr_reduce *)c->attr)->is_mean;
    cost_traffic(c, cost, (count)c->input[0]->numel + (is_mean ? (count)c->output[0]->numel : 0));
}

uint64_t reduce_chunk_bytes(const tl_call *c, uint64_t bytes) {
    int64_t outputs = c->output[0]->numel;
    int64_t chunks = (reduce_count(c->input[0], outputs) + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    return chunks > 1 ? (uint64_t)outputs * (uint64_t)chunks * bytes : 0;
}
static uint64_t reduce_workspace(const tl_call *c) { return reduce_chunk_bytes(c, sizeof(double)); }

/* every summand gets g; of a mean of n, g / n */
static void sum_backward(tl_gradient *g) {
    const struct edge *e = &g->node->edges[0];
    const struct attr_reduce *a = g->node->attr;
    tl_tensor *grad = g->grad[0]; /* changed before it becomes large */
    double n = 1;
    for (int i = 0; i < e->rank; i++) n *= a->axes >> i & 1 ? (double)e->shape[i] : 1;
    if (a->is_mean) grad = tl_scale(grad, 1 / n);
    grad = tl_cast(grad, e->dtype);
    g->result[0] = tl_expand(reduce_restore(grad, e, a->axes), e->rank, e->shape);
}

/* elements equal to the maximum (minimum) share g evenly */
static void extreme_backward(tl_gradient *g) {
    const struct edge *e = &g->node->edges[0];
    const struct attr_reduce *a = g->node->attr;
    tl_tensor *x = gradient_input(g, 0), *y = reduce_restore(gradient_output(g, 0), e, a->axes);
    if (!g->creates_graph) {
        x = tl_contiguous(x);
        tl_tensor *grad = tl_contiguous(tl_cast(reduce_restore(g->grad[0], e, a->axes), e->dtype));
        tl_call c;
        call_begin(&c, &op_extreme_grad, (tl_tensor *[]){x, y, grad}, 3, a, sizeof *a);
        g->result[0] = op_apply(&c);
        return;
    }
    /* in ops, so that it can be differentiated again */
    int axes[TL_MAX_RANK], n_axes = reduce_axes(a->axes, e->rank, axes);
    tl_tensor *is_extreme = tl_cmp(x, TL_EQ, y);
    tl_tensor *mask = is_extreme ? tl_cast(is_extreme, e->dtype) : NULL;
    tl_tensor *share = tl_div(mask, n_axes ? tl_sum(mask, axes, n_axes, true) : mask); /* NaN equals nothing: 0/0 */
    g->result[0] = tl_mul(share, reduce_restore(g->grad[0], e, a->axes));
}

const tl_op op_sum = {RECORD(KERNEL, sum, 1),
                      .is_wide = true,
                      .shapes = "x; the named axes go, or stay with size 1",
                      .dtypes = "any for arithmetic; of integers and bool i64",
                      .flops = "one sum per element of x; a mean: a division per element of the result",
                      .shape = sum_shape,
                      .cost = sum_cost,
                      .workspace = reduce_workspace,
                      .backward = sum_backward};
const tl_op op_max = {RECORD(KERNEL, max, 1),
                      .shapes = "x; the named axes go, or stay with size 1",
                      .dtypes = "any for arithmetic; the result has x's",
                      .flops = "one comparison per element of x",
                      .shape = max_shape,
                      .workspace = reduce_workspace,
                      .cost = reduce_cost,
                      .backward = extreme_backward,
                      .saves = {TL_INPUT(0) | TL_OUTPUT(0)}};
const tl_op op_min = {RECORD(KERNEL, min, 1),
                      .shapes = "x; the named axes go, or stay with size 1",
                      .dtypes = "any for arithmetic; the result has x's",
                      .flops = "one comparison per element of x",
                      .shape = min_shape,
                      .workspace = reduce_workspace,
                      .cost = reduce_cost,
                      .backward = extreme_backward,
                      .saves = {TL_INPUT(0) | TL_OUTPUT(0)}};

/* x dense, y and g dense with the reduced axes of size 1 */
static bool extreme_grad_shape(tl_call *c) {
    const tl_tensor *x = c->input[0], *y = c->input[1], *g = c->input[2];
    int rank;
    int64_t shape[TL_MAX_RANK];
    reduce_shape(x, &(struct attr_reduce){.axes = ((const struct attr_reduce *)c->attr)->axes, .keep = true}, &rank,
                 shape);
    if (!call_needs_float(c, 0)) return false;
    for (int i = 0; i < rank; i++)
        if (y->rank != rank || g->rank != rank || y->shape[i] != shape[i] || g->shape[i] != shape[i])
            return call_fail(c, "y and g are not what a reduction leaves of x");
    return call_output_like(c, 0, 0);
}
/* for each element of x a comparison, a sum of ties and a product; for each of y the share of a tie, a division */
static void extreme_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 3 * (count)c->input[0]->numel + (count)c->input[1]->numel);
}
/* The ties of each output; if chunks make one, those of each chunk too. */
static uint64_t extreme_grad_workspace(const tl_call *c) {
    const int64_t outputs = c->input[1]->numel;
    const int64_t chunks = (reduce_count(c->input[0], outputs) + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    return (uint64_t)outputs * (uint64_t)(chunks > 1 ? chunks + 1 : 1) * sizeof(double);
}

const tl_op op_extreme_grad = {RECORD(KERNEL, extreme_grad, 1),
                               .shapes = "x; y and g: x with reduced axes of size 1",
                               .dtypes = "floats",
                               .flops = "3 per element of x: compare, sum, product; a division per element of y",
                               .shape = extreme_grad_shape,
                               .cost = extreme_grad_cost,
                               .workspace = extreme_grad_workspace,
                               .backward = gradient_missing};

const tl_op op_prod = {RECORD(KERNEL, prod, 1),
                       .is_wide = true,
                       .shapes = "x; the named axes go, or stay with size 1",
                       .dtypes = "any for arithmetic; of integers and bool i64",
                       .flops = "one product per element of x",
                       .shape = sum_shape,
                       .cost = reduce_cost,
                       .workspace = reduce_workspace,
                       .backward = prod_backward,
                       .saves = {TL_INPUT(0)}};

tl_tensor *reduce_apply(const tl_op *op, tl_tensor *x, const int *axes, int n_axes, bool keep) {
    struct attr_reduce a;
    return reduce_over(op->name, x, axes, n_axes, keep, &a) ? op_apply1(op, x, ATTR(a)) : NULL;
}

tl_tensor *reduce_sum_wide(const char *name, tl_tensor *x, const int *axes, int n_axes, bool keep) {
    struct attr_reduce a;
    if (!reduce_over(name, x, axes, n_axes, keep, &a)) return NULL;
    a.is_wide = true;
    return op_apply1(&op_sum, x, ATTR(a));
}

tl_tensor *tl_sum(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    return reduce_apply(&op_sum, x, axes, n_axes, keep);
}
tl_tensor *tl_max(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    return reduce_apply(&op_max, x, axes, n_axes, keep);
}
tl_tensor *tl_min(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    return reduce_apply(&op_min, x, axes, n_axes, keep);
}
tl_tensor *tl_prod(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    return reduce_apply(&op_prod, x, axes, n_axes, keep);
}
tl_tensor *tl_prod_all(tl_tensor *x) { return tl_prod(x, NULL, 0, false); }
tl_tensor *tl_sum_all(tl_tensor *x) { return tl_sum(x, NULL, 0, false); }
tl_tensor *tl_mean_all(tl_tensor *x) { return tl_mean(x, NULL, 0, false); }

tl_tensor *tl_mean(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    if (!tensor_check(x, "mean")) return NULL;
    if (!dtype_has_gradient(x->dtype)) {
        error_set(TL_ERROR_USE,
                  "mean: could not infer output dtype. Input dtype must be a floating point dtype, not %s",
                  tl_dtype_name(x->dtype));
        return NULL;
    }
    struct attr_reduce a;
    if (!reduce_over("mean", x, axes, n_axes, keep, &a)) return NULL;
    a.is_mean = true;
    tl_tensor *mean = op_apply1(&op_sum, x, ATTR(a));
    return mean ? tl_cast(mean, x->dtype) : NULL; /* under autocast a sum is wide, but a mean is not */
}

/* ---- softmax over an axis: y = e^(x - max) / sum ---- */

static bool softmax_shape(tl_call *c) {
    return call_needs_float(c, 0) && (c->input[0]->rank > 0 || call_fail(c, "needs at least one axis")) &&
           call_output_like(c, 0, 0);
}
/* max, subtract, exp, sum, divide; of logarithms: subtract at last */
static void softmax_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 5 * (count)c->input[0]->numel); }
/* product, sum, subtract, product; of logarithms: sum, exp, product, subtract */
static void softmax_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 4 * (count)c->input[0]->numel);
}

/* dx = y (g - sum(g y)) */
static void softmax_backward(tl_gradient *g) {
    tl_tensor *y = gradient_output(g, 0);
    const struct attr_softmax *a = g->node->attr;
    if (!g->creates_graph) {
        g->result[0] = op_apply2(&op_softmax_grad, y, tl_contiguous(g->grad[0]), a, sizeof *a);
        return;
    }
    /* in ops, so that it can be differentiated again */
    g->result[0] = tl_mul(y, tl_sub(g->grad[0], tl_sum(tl_mul(g->grad[0], y), &a->axis, 1, true)));
}

const tl_op op_softmax = {RECORD(KERNEL, softmax, 1),
                          .is_wide = true,
                          .shapes = "x; over one of its axes",
                          .dtypes = "floats",
                          .flops = "5 per element: max, subtract, exp, sum, divide",
                          .shape = softmax_shape,
                          .cost = softmax_cost,
                          .backward = softmax_backward,
                          .saves = {TL_OUTPUT(0)}};
const tl_op op_softmax_grad = {RECORD(KERNEL, softmax_grad, 1),
                               .shapes = "y, g of one shape",
                               .dtypes = "floats",
                               .flops = "4 per element: product, sum, subtract, product",
                               .shape = softmax_shape,
                               .cost = softmax_grad_cost,
                               .backward = gradient_missing};

/* ---- log_softmax over an axis: y = x - log sum e^x ---- */

/* dx = g - e^y sum(g) */
static void log_softmax_backward(tl_gradient *g) {
    tl_tensor *y = gradient_output(g, 0);
    const struct attr_softmax *a = g->node->attr;
    if (!g->creates_graph) {
        g->result[0] = op_apply2(&op_log_softmax_grad, y, tl_contiguous(g->grad[0]), a, sizeof *a);
        return;
    }
    /* in ops, so that it can be differentiated again */
    tl_tensor *sum = tl_sum(g->grad[0], &a->axis, 1, true);
    g->result[0] = tl_sub(g->grad[0], tl_mul(tl_exp(y), sum));
}

const tl_op op_log_softmax = {RECORD(KERNEL, log_softmax, 1),
                              .is_wide = true,
                              .shapes = "x; over one of its axes",
                              .dtypes = "floats",
                              .flops = "5 per element: max, subtract, exp, sum, subtract",
                              .shape = softmax_shape,
                              .cost = softmax_cost,
                              .backward = log_softmax_backward,
                              .saves = {TL_OUTPUT(0)}};
const tl_op op_log_softmax_grad = {RECORD(KERNEL, log_softmax_grad, 1),
                                   .shapes = "y, g of one shape",
                                   .dtypes = "floats",
                                   .flops = "4 per element: sum, exp, product, subtract",
                                   .shape = softmax_shape,
                                   .cost = softmax_grad_cost,
                                   .backward = gradient_missing};

/* The call of op, softmax or log_softmax, along any axis. */
static tl_tensor *along(const tl_op *op, tl_tensor *x, int axis) {
    if (!tensor_check(x, op->name)) return NULL;
    if (x->rank == 0 && (axis == 0 || axis == -1)) /* as PyTorch: a scalar has one axis here */
        return tl_reshape(along(op, tl_reshape(x, TL_SHAPE(1)), 0), TL_SCALAR);
    struct attr_softmax a = {axis_check(op->name, axis, x->rank ? x->rank : 1)};
    return a.axis < 0 ? NULL : op_apply1(op, tl_contiguous(x), ATTR(a));
}

tl_tensor *tl_softmax(tl_tensor *x, int axis) { return along(&op_softmax, x, axis); }
tl_tensor *tl_log_softmax(tl_tensor *x, int axis) { return along(&op_log_softmax, x, axis); }
