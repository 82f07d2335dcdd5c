/* fold.c: reductions that are more than one addition per element, and running sums and products.
 *
 * any, all and count_nonzero are sums of comparisons; nansum is a sum after a choice. The others have kernels: a
 * variance, a norm or a log-sum-exp made of elementwise ops would write tensors of x's size, and round in 16 bits
 * between them.
 */
#include <math.h>

#include "ops/reduce.h"

/* ---- Shapes, costs, scratch ---- */

static const struct attr_reduce *over(const tl_call *c) {
    return c->attr;
} /* the first member of every attribute here */

static bool float_shape(tl_call *c) {
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_float(c, 0)) return false;
    reduce_shape(c->input[0], over(c), &rank, shape);
    return call_output(c, 0, c->input[0]->dtype, rank, shape);
}

static bool arg_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_arithmetic(c, 0)) return false;
    if (x->dtype == TL_BOOL) return call_fail_need(c, "not implemented for bool", "a cast first");
    reduce_shape(x, over(c), &rank, shape);
    if (reduce_is_empty(x, over(c)))
        return call_fail(c, "Expected reduction dim to have non-zero size: no elements, no place");
    return call_output(c, 0, TL_I64, rank, shape);
}

static bool var_shape(tl_call *c) {
    if (!float_shape(c)) return false;
    return call_output(c, 1, statistics_dtype(c->input[0]->dtype), c->out[0].rank, c->out[0].shape);
}

static bool norm_shape(tl_call *c) {
    const struct attr_vector_norm *a = c->attr;
    if (!float_shape(c)) return false;
    if (reduce_is_empty(c->input[0], over(c)) && (a->p < 0 || isinf(a->p)))
        return call_fail(c, "cannot compute the %g norm of no elements, because it has no identity", a->p);
    return true;
}

static void input_cost(const tl_call *c, struct cost *cost, int per_element, int per_output) {
    cost_traffic(c, cost,
                 (count)per_element * (count)c->input[0]->numel + (count)per_output * (count)c->output[0]->numel);
}
/* sum, subtract, square, sum; the root */
static void var_cost(const tl_call *c, struct cost *cost) {
    input_cost(c, cost, 4, ((const struct attr_var *)c->attr)->is_root);
}
/* 0: compare, sum; 1: magnitude, sum; 2: square, sum, the root; inf: magnitude, compare; others: magnitude, power,
 * sum, the root */
static void norm_cost(const tl_call *c, struct cost *cost) {
    double p = ((const struct attr_vector_norm *)c->attr)->p;
    bool is_plain = p == 0 || p == 1 || isinf(p);
    input_cost(c, cost, is_plain || p == 2 ? 2 : 3, !is_plain);
}
/* max, subtract, exp, sum; the logarithm */
static void logsumexp_cost(const tl_call *c, struct cost *cost) { input_cost(c, cost, 4, 1); }

static uint64_t fold_workspace(const tl_call *c) { return reduce_chunk_bytes(c, FOLD_STATE_BYTES); }

/* ---- Gradients ---- */

static tl_tensor *scalar_like(tl_tensor *x, double value) {
    return x ? tl_full(TL_SCALAR, value, x->dtype, x->storage->device) : NULL;
}

/* 0 where y is 0, else x. */
static tl_tensor *zero_where_zero(tl_tensor *y, tl_tensor *x) {
    tl_tensor *is_zero = tl_cmp(y, TL_EQ, scalar_like(y, 0));
    return tl_where(is_zero, scalar_like(x, 0), x);
}

/* The reduced axes of x as one last axis: (rows, n), dense. `order` receives x's axes as they then come. */
static tl_tensor *as_lines(tl_tensor *x, uint32_t axes, int *order) {
    int64_t n = 1;
    int rank = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->rank; i++)
            if ((int)(axes >> i & 1) == pass) {
                order[rank++] = i;
                if (pass) n *= x->shape[i];
            }
    tl_tensor *moved = tl_contiguous(tl_permute(x, order));
    return tl_reshape(moved, TL_SHAPE(n ? x->numel / n : 0, n));
}

static tl_tensor *from_lines(tl_tensor *lines, const struct edge *e, const int *order) {
    int64_t shape[TL_MAX_RANK];
    int back[TL_MAX_RANK];
    for (int k = 0; k < e->rank; k++) {
        shape[k] = e->shape[order[k]];
        back[order[k]] = k;
    }
    return tl_permute(tl_reshape(lines, e->rank, shape), back);
}

/* d prod / dx[k] is the product of the others: those before times those after, right where x has zeros */
void prod_backward(tl_gradient *g) {
    const struct edge *e = &g->node->edges[0];
    const struct attr_reduce *a = g->node->attr;
    int order[TL_MAX_RANK];
    tl_tensor *x = gradient_input(g, 0);
    if (!x || x->numel == 0) {
        if (x) g->result[0] = tl_zeros(e->rank, e->shape, e->dtype, x->storage->device);
        return;
    }
    tl_tensor *lines = as_lines(x, a->axes, order);
    if (!lines) return;
    tl_tensor *g_lines = tl_reshape(tl_contiguous(g->grad[0]), TL_SHAPE(lines->shape[0], 1));
    struct attr_scan scan = {.is_total = true};
    if (!g->creates_graph) {
        g->result[0] = from_lines(op_apply2(&op_cumprod_grad, lines, g_lines, ATTR(scan)), e, order);
        return;
    }
    scan = (struct attr_scan){.is_exclusive = true};
    tl_tensor *before = op_apply1(&op_cumprod, lines, ATTR(scan));
    scan.is_reverse = true;
    tl_tensor *after = op_apply1(&op_cumprod, lines, ATTR(scan));
    tl_tensor *others = tl_mul(before, after);
    g->result[0] = from_lines(tl_mul(others, g_lines), e, order);
}

/* var: g 2 (x - mean) / (n - correction); std s: g (x - mean) / (s (n - correction)), and 0 where s is 0 */
static void var_backward(tl_gradient *g) {
    const struct edge *e = &g->node->edges[0];
    const struct attr_var *a = g->node->attr;
    int axes[TL_MAX_RANK], n_axes = reduce_axes(a->over.axes, e->rank, axes);
    tl_tensor *x = gradient_input(g, 0), *mean = NULL;
    if (!x || !g->grad[0]) return;
    /* As an op of x when it will be differentiated again. A scalar is its own mean. */
    if (g->creates_graph) mean = n_axes ? tl_mean(x, axes, n_axes, true) : x;
    else mean = reduce_restore(gradient_output(g, 1), e, a->over.axes);
    double n = (double)reduce_count(x, g->grad[0]->numel), divisor = fmax(n - a->correction, 0);
    tl_tensor *scale = tl_scale(g->grad[0], (a->is_root ? 1 : 2) / divisor);
    if (a->is_root) {
        tl_tensor *y = gradient_output(g, 0);
        scale = zero_where_zero(y, tl_div(scale, y));
    }
    scale = reduce_restore(scale, e, a->over.axes);
    g->result[0] = tl_mul(tl_sub(x, mean), scale);
}

/* y = log sum e^x: g e^(x - y) */
static void logsumexp_backward(tl_gradient *g) {
    const struct edge *e = &g->node->edges[0];
    const struct attr_reduce *a = g->node->attr;
    tl_tensor *y = reduce_restore(gradient_output(g, 0), e, a->axes);
    tl_tensor *share = tl_exp(tl_sub(gradient_input(g, 0), y));
    g->result[0] = tl_mul(share, reduce_restore(g->grad[0], e, a->axes));
}

/* sign x, 0 at 0 */
static tl_tensor *sign(tl_tensor *x) {
    if (!x) return NULL;
    tl_tensor *zero = scalar_like(x, 0), *is_above = tl_cmp(x, TL_GT, zero), *is_below = tl_cmp(x, TL_LT, zero);
    if (!is_above || !is_below) return NULL;
    tl_tensor *above = tl_cast(is_above, x->dtype);
    return tl_sub(above, tl_cast(is_below, x->dtype));
}

/* |x|, with slope 0 at 0 */
static tl_tensor *magnitude(tl_tensor *x) {
    tl_tensor *above = tl_relu(x);
    return tl_add(above, tl_relu(tl_neg(x)));
}

/* x^p for x > 0; 0 where x is 0 */
static tl_tensor *power(tl_tensor *x, double p) { return zero_where_zero(x, tl_exp(tl_scale(tl_log(x), p))); }

/* the extreme magnitudes share g evenly */
static tl_tensor *extreme_share(tl_tensor *x, tl_tensor *y, tl_tensor *grad, const int *axes, int n_axes) {
    tl_tensor *is_extreme = tl_cmp(magnitude(x), TL_EQ, y), *sign_x = sign(x);
    if (!is_extreme || !sign_x) return NULL;
    tl_tensor *mask = tl_cast(is_extreme, x->dtype);
    if (n_axes) grad = tl_div(grad, tl_sum(mask, axes, n_axes, true));
    return tl_mul(tl_mul(sign_x, mask), grad);
}

/* y = norm: p = 1: g sign x; p = 2: g x / y; any p: g sign x |x|^(p-1) / y^(p-1); 0 where y is 0 */
static void norm_backward(tl_gradient *g) {
    const struct edge *e = &g->node->edges[0];
    const struct attr_vector_norm *a = g->node->attr;
    int axes[TL_MAX_RANK], n_axes = reduce_axes(a->over.axes, e->rank, axes);
    tl_tensor *x = gradient_input(g, 0);
    if (!x || a->p == 0) return;
    tl_tensor *grad = reduce_restore(g->grad[0], e, a->over.axes);
    if (a->p == 1) {
        g->result[0] = tl_mul(sign(x), grad);
        return;
    }
    tl_tensor *y = reduce_restore(gradient_output(g, 0), e, a->over.axes);
    if (a->p == 2) {
        g->result[0] = tl_mul(x, zero_where_zero(y, tl_div(grad, y)));
    } else if (isinf(a->p)) {
        g->result[0] = extreme_share(x, y, grad, axes, n_axes);
    } else { /* powers in f32 at least: their exponent is a logarithm */
        tl_tensor *wide = tl_cast(x, statistics_dtype(x->dtype)), *wide_y = tl_cast(y, statistics_dtype(x->dtype));
        tl_tensor *slope = power(magnitude(wide), a->p - 1);
        slope = tl_mul(sign(wide), slope);
        tl_tensor *scale = zero_where_zero(wide_y, tl_div(grad, power(wide_y, a->p - 1)));
        g->result[0] = tl_mul(slope, scale);
    }
}

/* ---- Records ---- */

#define WORDS_OVER .shapes = "x; the named axes go, or stay with size 1"
#define WORDS_FLOAT .dtypes = "floats; the result has x's"

const tl_op op_argmax = {RECORD(KERNEL, argmax, 1),
                         WORDS_OVER,
                         .dtypes = "any for arithmetic but bool; gives i64",
                         .flops = "one comparison per element of x",
                         .shape = arg_shape,
                         .cost = reduce_cost,
                         .workspace = fold_workspace};
const tl_op op_argmin = {RECORD(KERNEL, argmin, 1),
                         WORDS_OVER,
                         .dtypes = "any for arithmetic but bool; gives i64",
                         .flops = "one comparison per element of x",
                         .shape = arg_shape,
                         .cost = reduce_cost,
                         .workspace = fold_workspace};
const tl_op op_var = {RECORD(KERNEL, var, 2),
                      WORDS_OVER,
                      .dtypes = "floats; var has x's, mean f32 (f64 for f64)",
                      .flops = "4 per element of x; std: 1 per element of the result",
                      .shape = var_shape,
                      .cost = var_cost,
                      .workspace = fold_workspace,
                      .backward = var_backward,
                      .saves = {TL_INPUT(0) | TL_OUTPUT(0) | TL_OUTPUT(1)}};
const tl_op op_norm = {RECORD(KERNEL, norm, 1),
                       .is_wide = true,
                       WORDS_OVER,
                       WORDS_FLOAT,
                       .flops = "2 per element of x, 3 for a p that is not 0, 1, 2 or inf; a root per result",
                       .shape = norm_shape,
                       .cost = norm_cost,
                       .workspace = fold_workspace,
                       .backward = norm_backward,
                       .saves = {TL_INPUT(0) | TL_OUTPUT(0)}};
const tl_op op_logsumexp = {RECORD(KERNEL, logsumexp, 1),
                            .is_wide = true,
                            WORDS_OVER,
                            WORDS_FLOAT,
                            .flops = "4 per element of x, a logarithm per result",
                            .shape = float_shape,
                            .cost = logsumexp_cost,
                            .workspace = fold_workspace,
                            .backward = logsumexp_backward,
                            .saves = {TL_INPUT(0) | TL_OUTPUT(0)}};

/* ---- Public ---- */

tl_tensor *tl_argmax(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    return reduce_apply(&op_argmax, x, axes, n_axes, keep);
}
tl_tensor *tl_argmin(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    return reduce_apply(&op_argmin, x, axes, n_axes, keep);
}
tl_tensor *tl_logsumexp(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    if (!tensor_check(x, "logsumexp")) return NULL;
    return reduce_apply(&op_logsumexp, dtype_has_gradient(x->dtype) ? x : tl_cast(x, TL_F32), axes, n_axes, keep);
}

static tl_tensor *variance(const char *name, tl_tensor *x, const int *axes, int n_axes, double correction, bool keep) {
    struct attr_var a = {.correction = correction, .is_root = name[0] == 's'};
    return reduce_over(name, x, axes, n_axes, keep, &a.over) ? op_apply1(&op_var, x, ATTR(a)) : NULL;
}
tl_tensor *tl_var(tl_tensor *x, const int *axes, int n_axes, double correction, bool keep) {
    return variance("var", x, axes, n_axes, correction, keep);
}
tl_tensor *tl_std(tl_tensor *x, const int *axes, int n_axes, double correction, bool keep) {
    return variance("std", x, axes, n_axes, correction, keep);
}

tl_tensor *tl_norm(tl_tensor *x, double p, const int *axes, int n_axes, bool keep) {
    struct attr_vector_norm a = {.p = p};
    if (!reduce_over("norm", x, axes, n_axes, keep, &a.over)) return NULL;
    if (isnan(p)) {
        error_set(TL_ERROR_USE, "norm: p is not a number");
        return NULL;
    }
    return op_apply1(&op_norm, x, ATTR(a));
}

/* ---- Composites ---- */

static tl_tensor *compare_with_zero(tl_tensor *x, tl_compare relation) {
    return tl_cmp(x, relation, scalar_like(x, 0));
}

tl_tensor *tl_count_nonzero(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    if (!tensor_check(x, "count_nonzero")) return NULL;
    return tl_sum(compare_with_zero(x, TL_NE), axes, n_axes, keep);
}

/* PyTorch's any and all of uint8 are uint8. */
static tl_tensor *truth(tl_tensor *x, tl_tensor *y) { return y && x->dtype == TL_U8 ? tl_cast(y, TL_U8) : y; }

tl_tensor *tl_any(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    if (!tensor_check(x, "any")) return NULL;
    return truth(x, compare_with_zero(tl_count_nonzero(x, axes, n_axes, keep), TL_NE));
}

tl_tensor *tl_all(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    if (!tensor_check(x, "all")) return NULL;
    tl_tensor *n_zeros = tl_sum(compare_with_zero(x, TL_EQ), axes, n_axes, keep);
    return truth(x, compare_with_zero(n_zeros, TL_EQ));
}

tl_tensor *tl_nansum(tl_tensor *x, const int *axes, int n_axes, bool keep) {
    if (!tensor_check(x, "nansum")) return NULL;
    if (dtype_is_complex(x->dtype)) {
        error_set(TL_ERROR_USE, "nansum: not implemented for %s (need a real dtype)", dtype_info(x->dtype)->torch_name);
        return NULL;
    }
    if (!dtype_is_float(x->dtype)) return tl_sum(x, axes, n_axes, keep);
    tl_tensor *is_number = tl_cmp(x, TL_EQ, x);
    return tl_sum(tl_where(is_number, x, scalar_like(x, 0)), axes, n_axes, keep);
}

/* ---- Scans ---- */

static bool scan_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    if (!call_needs_arithmetic(c, 0)) return false;
    return call_output(c, 0, dtype_is_float(x->dtype) ? x->dtype : TL_I64, x->rank, x->shape);
}
static bool cumprod_grad_shape(tl_call *c) {
    return call_needs_float(c, 0) && call_needs_float(c, 1) && call_output_like(c, 0, 0);
}
/* products before: 1; r: product and sum; their product */
static void cumprod_grad_cost(const tl_call *c, struct cost *cost) { input_cost(c, cost, 4, 0); }
static uint64_t cumprod_grad_workspace(const tl_call *c) {
    const tl_tensor *x = c->input[0];
    int64_t n = x->shape[x->rank - 1], rows = n ? x->numel / n : 0;
    return (uint64_t)(rows * ((n + SCAN_BLOCK - 1) / SCAN_BLOCK)) * sizeof(double);
}

/* every element is in the sums from its own on: running sums of g the other way */
static void cumsum_backward(tl_gradient *g) {
    struct attr_scan a = *(const struct attr_scan *)g->node->attr;
    a.is_reverse = !a.is_reverse;
    g->result[0] = op_apply1(&op_cumsum, tl_contiguous(g->grad[0]), ATTR(a));
}
static void cumprod_backward(tl_gradient *g) {
    const struct attr_scan *a = g->node->attr;
    g->result[0] = op_apply2(&op_cumprod_grad, gradient_input(g, 0), tl_contiguous(g->grad[0]), a, sizeof *a);
}

/* L = sum_k u[k] dx[k] with dx[k] = sum_j g[j] C[k][j], where C[k] are the running products of x with x[k] = 1, and
 * j goes over those that x[k] is in. So dg[j] = sum_k u[k] C[k][j]; and dx is the gradient of all lines C[k] by their
 * elements other than the k-th. That is n x n elements for each row of n, since zeros in x rule out division. */
static void cumprod_grad_backward(tl_gradient *g) {
    const struct attr_scan *a = g->node->attr;
    const int rows = -2;
    tl_tensor *x = gradient_input(g, 0), *slope = gradient_input(g, 1);
    if (a->is_total) gradient_missing(g); /* prod's, which is never recorded */
    if (!x || !slope || a->is_total) return;
    tl_device *device = x->storage->device;
    tl_tensor *j = tl_arange(0, 1, x->shape[x->rank - 1], TL_I64, device), *k = tl_unsqueeze(j, 1);
    tl_tensor *is_own = tl_cmp(k, TL_EQ, j), *zero = tl_zeros(TL_SCALAR, x->dtype, device);
    tl_tensor *is_in = tl_cmp(k, a->is_reverse ? a->is_exclusive ? TL_GT : TL_GE : a->is_exclusive ? TL_LT : TL_LE, j);
    tl_tensor *one = tl_ones(TL_SCALAR, x->dtype, device);
    tl_tensor *lines = tl_contiguous(tl_where(is_own, one, tl_unsqueeze(x, -2))); /* (...,n,n) */
    tl_tensor *u = tl_where(is_in, tl_unsqueeze(g->grad[0], -1), zero);
    if (g->needs[1]) g->result[1] = tl_sum(tl_mul(u, op_apply1(&op_cumprod, lines, a, sizeof *a)), &rows, 1, false);
    if (!g->needs[0]) return;
    slope = tl_contiguous(tl_mul(u, tl_unsqueeze(slope, -2)));
    tl_tensor *of_lines = op_apply2(&op_cumprod_grad, lines, slope, a, sizeof *a);
    g->result[0] = tl_sum(tl_where(is_own, zero, of_lines), &rows, 1, false);
}

#define WORDS_SCAN .shapes = "x; the last axis is scanned", .dtypes = "any for arithmetic; of integers and bool i64"

const tl_op op_cumsum = {RECORD(KERNEL, cumsum, 1),      .is_wide = true,     WORDS_SCAN,
                         .flops = "one sum per element", .shape = scan_shape, .cost = reduce_cost,
                         .backward = cumsum_backward};
const tl_op op_cumprod = {RECORD(KERNEL, cumprod, 1),         .is_wide = true,       WORDS_SCAN,
                          .flops = "one product per element", .shape = scan_shape,   .cost = reduce_cost,
                          .backward = cumprod_backward,       .saves = {TL_INPUT(0)}};
const tl_op op_cumprod_grad = {RECORD(KERNEL, cumprod_grad, 1),
                               .shapes = "x, and g of its shape (with a last axis of 1 for a product of all)",
                               .dtypes = "floats",
                               .flops = "4 per element of x",
                               .shape = cumprod_grad_shape,
                               .cost = cumprod_grad_cost,
                               .workspace = cumprod_grad_workspace,
                               .backward = cumprod_grad_backward,
                               .saves = {TL_INPUT(0) | TL_INPUT(1), TL_INPUT(0) | TL_INPUT(1)}};

static tl_tensor *scan(const tl_op *op, tl_tensor *x, int axis) {
    struct attr_scan a = {0};
    if (!tensor_check(x, op->name)) return NULL;
    if (x->rank == 0 && (axis == 0 || axis == -1)) /* as PyTorch: a scalar has one axis here */
        return tl_reshape(scan(op, tl_reshape(x, TL_SHAPE(1)), 0), TL_SCALAR);
    int at = axis_check(op->name, axis, x->rank ? x->rank : 1);
    if (at < 0) return NULL;
    if (at == x->rank - 1) return op_apply1(op, tl_contiguous(x), ATTR(a));
    tl_tensor *moved = tl_contiguous(tl_transpose(x, at, -1));
    return tl_contiguous(tl_transpose(op_apply1(op, moved, ATTR(a)), at, -1));
}

tl_tensor *tl_cumsum(tl_tensor *x, int axis) { return scan(&op_cumsum, x, axis); }
tl_tensor *tl_cumprod(tl_tensor *x, int axis) { return scan(&op_cumprod, x, axis); }

/* The sums of bool are i64, which bool cannot hold. */
static bool can_hold_scan(const char *name, const tl_tensor *x) {
    if (!tensor_check(x, name)) return false;
    return x->dtype != TL_BOOL || error_set(TL_ERROR_USE, "%s: not implemented for bool (need a cast first)", name);
}
tl_tensor *tl_cumsum_(tl_tensor *x, int axis) {
    return can_hold_scan("cumsum_", x) ? tl_copy_(x, tl_cumsum(x, axis)) : NULL;
}
/* Its gradient reads the old x. */
tl_tensor *tl_cumprod_(tl_tensor *x, int axis) {
    return can_hold_scan("cumprod_", x) ? tl_copy_(x, tl_cumprod(tl_clone(x), axis)) : NULL;
}
