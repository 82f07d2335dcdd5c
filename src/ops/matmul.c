/* matmul.c: products of matrices, 2mkn FLOPs each. */
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "spec/rows.h"
#include "ops/ops.h"

static atomic_int precision = TL_MATMUL_HIGHEST;

tl_matmul_precision tl_set_matmul_precision(tl_matmul_precision wanted) {
    return (tl_matmul_precision)atomic_exchange(&precision,
                                                wanted == TL_MATMUL_HIGH ? TL_MATMUL_HIGH : TL_MATMUL_HIGHEST);
}

bool matmul_is_fast(void) { return atomic_load_explicit(&precision, memory_order_relaxed) == TL_MATMUL_HIGH; }

/* Rows of a stack (...,c). */
static int64_t row_count(const tl_tensor *x) {
    int64_t n = 1;
    for (int i = 0; i < x->rank - 1; i++) n *= x->shape[i];
    return n;
}

/* Size of one of the two axes of a matrix, or of a stack of rows that is read as one. */
static int64_t matrix_size(const tl_tensor *x, bool folds, int axis) {
    return folds && axis == 0 ? row_count(x) : x->shape[x->rank - 2 + axis];
}

/* A folded product is a stack of rows times a matrix, or the product of two stacks over their rows. */
static bool folds_well(const tl_call *c, const tl_tensor *a, const tl_tensor *b) {
    const struct attr_matmul *at = c->attr;
    if (a->rank < 2 || b->rank < 2 || (!at->transpose_a && b->rank != 2) || (at->transpose_a && at->transpose_b))
        return call_fail(c, "needs a stack of rows and a matrix, or two stacks of rows");
    return true;
}

/* Which input is a; b is behind it. */
static int first_factor(const tl_call *c) { return c->op == &op_matmul_acc; }

/* Sizes of op(a) op(b): (m,k) x (k,n). */
static bool inner_sizes(const tl_call *c, int first, int64_t *m, int64_t *k, int64_t *n) {
    const struct attr_matmul *at = c->attr;
    const tl_tensor *a = c->input[first], *b = c->input[first + 1];
    if (at->folds && !folds_well(c, a, b)) return false;
    if (!at->folds && (a->rank < 2 || a->rank != b->rank))
        return call_fail(c, "needs two matrices, or batches of them, of one rank");
    *m = matrix_size(a, at->folds, at->transpose_a);
    *k = matrix_size(a, at->folds, !at->transpose_a);
    *n = matrix_size(b, at->folds, !at->transpose_b);
    int64_t there = matrix_size(b, at->folds, at->transpose_b);
    if (there != *k)
        return call_fail_need(c, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)", "[m,k] x [k,n]",
                              (long long)*m, (long long)*k, (long long)there, (long long)*n);
    if (!call_needs_float(c, first)) return false;
    return a->dtype == b->dtype ||
           call_fail_need(c, "expected m1 and m2 to have the same dtype: expected scalar type %s but found %s",
                          "a cast", dtype_info(a->dtype)->scalar_name, dtype_info(b->dtype)->scalar_name);
}

/* Both are of one rank. */
static bool batches_clash(const tl_call *c, const tl_tensor *a, const tl_tensor *b) {
    int i = a->rank - 3;
    while (i > 0 && (a->shape[i] == b->shape[i] || a->shape[i] == 1 || b->shape[i] == 1)) i--;
    return call_fail(
        c,
        "the batch axes do not broadcast: The size of tensor a (%lld) must match the size of tensor b (%lld) at "
        "non-singleton dimension %d",
        (long long)a->shape[i], (long long)b->shape[i], i);
}

static bool matmul_shape(tl_call *c) {
    const struct attr_matmul *at = c->attr;
    const tl_tensor *a = c->input[0], *b = c->input[1];
    int64_t m = 0, k = 0, n = 0, shape[TL_MAX_RANK];
    int rank;
    if (!inner_sizes(c, 0, &m, &k, &n)) return false;
    const tl_tensor *bias = c->n_inputs > 2 ? c->input[2] : NULL;
    if (bias && (bias->rank != 1 || bias->shape[0] != n || bias->dtype != a->dtype))
        return call_fail(c, "the bias must have the length of a row of the result, and its dtype");
    if (at->folds) {
        rank = at->transpose_a ? 2 : a->rank;
        for (int i = 0; i < rank - 1; i++) shape[i] = at->transpose_a ? m : a->shape[i];
        shape[rank - 1] = n;
        return call_output(c, 0, at->dtype, rank, shape);
    }
    if (!shape_broadcast(a->rank - 2, a->shape, b->rank - 2, b->shape, &rank, shape)) return batches_clash(c, a, b);
    shape[rank] = m;
    shape[rank + 1] = n;
    return call_output(c, 0, at->dtype, rank + 2, shape);
}

static bool matmul_acc_shape(tl_call *c) {
    const struct attr_matmul *at = c->attr;
    const tl_tensor *sum = c->input[0], *a = c->input[1];
    int64_t m = 0, k = 0, n = 0;
    if (!inner_sizes(c, 1, &m, &k, &n)) return false;
    bool is_stack = at->folds && !at->transpose_a; /* then it has a's leading axes */
    bool fits = sum->rank >= 2 && sum->shape[sum->rank - 1] == n &&
                (is_stack ? shape_equal(sum->rank - 1, sum->shape, a->rank - 1, a->shape)
                          : sum->rank == 2 && sum->shape[0] == m && (at->folds || a->rank == 2));
    return fits || call_fail(c, "the sum has another shape than the product");
}

/* 2mkn for each of the result's matrices; adding to a sum is part of the multiply-adds, adding a bias is not */
static void matmul_cost(const tl_call *c, struct cost *cost) {
    const struct attr_matmul *at = c->attr;
    const tl_tensor *a = c->input[first_factor(c)];
    const count n = (count)c->output[0]->numel, k = (count)matrix_size(a, at->folds, !at->transpose_a);
    const bool has_bias = c->n_inputs > 2 && !first_factor(c);
    cost_traffic(c, cost, 2 * n * k + (has_bias ? n : 0));
}

static tl_dtype matmul_acc_dtype(const tl_call *c) { return c->input[1]->dtype; }

/* The dtype of an operand's gradient: f32 where an operand without the other's batch axes gets the sum over them, so
 * that the terms of that sum are not rounded one by one. */
static tl_dtype gradient_dtype(const struct edge *e, const tl_tensor *grad, bool folds) {
    int64_t n_own = 1, n_all = 1;
    for (int i = 0; i < e->rank - 2; i++) n_own *= e->shape[i];
    for (int i = 0; i < grad->rank - 2; i++) n_all *= grad->shape[i];
    return folds || n_own == n_all ? e->dtype : statistics_dtype(e->dtype);
}

/* C = A B: dA = g B^T, dB = A^T g, each in the layout its operand has (transposed operands: the transposed product).
 * If the gradient's sum exists already, the GEMM adds to it. */
static void matmul_backward(tl_gradient *g) {
    const struct attr_matmul *at = g->node->attr;
    tl_tensor *grad = g->grad[0];
    tl_dtype dtype = g->node->edges[0].dtype;
    if (g->node->n_inputs > 2) g->result[2] = grad;        /* a bias; summed over the rows when it is delivered */
    if (grad->dtype != dtype) grad = tl_cast(grad, dtype); /* f32 results of 16-bit operands */
    if (!grad) return;
    if (g->needs[0]) {
        tl_tensor *b = gradient_input(g, 1);
        dtype = gradient_dtype(&g->node->edges[0], grad, at->folds);
        g->result[0] = at->transpose_a ? matmul_product(b, at->transpose_b, grad, true, g->into[0], dtype, at->folds)
                                       : matmul_product(grad, false, b, !at->transpose_b, g->into[0], dtype, at->folds);
    }
    if (g->needs[1]) {
        tl_tensor *a = gradient_input(g, 0);
        dtype = gradient_dtype(&g->node->edges[1], grad, at->folds);
        g->result[1] = at->transpose_b ? matmul_product(grad, true, a, at->transpose_a, g->into[1], dtype, at->folds)
                                       : matmul_product(a, !at->transpose_a, grad, false, g->into[1], dtype, at->folds);
    }
}

/* C += A B: dC = g; dA, dB as above. */
static void matmul_acc_backward(tl_gradient *g) {
    const struct attr_matmul *at = g->node->attr;
    tl_dtype dtype = g->node->edges[1].dtype;
    g->result[0] = g->grad[0];
    tl_tensor *grad = tl_cast(g->grad[0], dtype);
    if (g->needs[1])
        g->result[1] =
            at->transpose_a
                ? matmul_product(gradient_input(g, 2), at->transpose_b, grad, true, NULL, dtype, at->folds)
                : matmul_product(grad, false, gradient_input(g, 2), !at->transpose_b, NULL, dtype, at->folds);
    if (g->needs[2])
        g->result[2] =
            at->transpose_b
                ? matmul_product(grad, true, gradient_input(g, 1), at->transpose_a, NULL, dtype, at->folds)
                : matmul_product(gradient_input(g, 1), !at->transpose_a, grad, false, NULL, dtype, at->folds);
}

const tl_op op_matmul = {
    RECORD(KERNEL, matmul, 1),
    .shapes = "a (...,m,k), b (...,k,n) [, bias (n)] -> (...,m,n); either transposed; rows of a stack as one matrix",
    .dtypes = "floats, all alike; the result theirs or f32",
    .flops = "2mkn per matrix of the result; bias mn",
    .shape = matmul_shape,
    .cost = matmul_cost,
    .backward = matmul_backward,
    .saves = {TL_INPUT(1), TL_INPUT(0)},
    .bias = SUMS_INTO(2),
    .is_costly = true};
const tl_op op_matmul_acc = {RECORD(KERNEL, matmul_acc, 1),
                             .shapes =
                                 "sum (m,n), a (m,k), b (k,n) -> sum; either transposed; rows of a stack as one matrix",
                             .dtypes = "floats, a and b alike; sum theirs or f32",
                             .flops = "2mkn",
                             .shape = matmul_acc_shape,
                             .cost = matmul_cost,
                             .backward = matmul_acc_backward,
                             .overwrites = {OVERWRITES(0)},
                             .saves = {0, TL_INPUT(2), TL_INPUT(1)},
                             .compute_dtype = matmul_acc_dtype};

/* ---- matmul_parts ---- */

static bool matmul_parts_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    int64_t shape[TL_MAX_RANK], n = 0;
    if (c->n_inputs < 3 || c->n_inputs > 1 + MATMUL_PARTS) return call_fail(c, "needs rows and two or three matrices");
    if (!call_needs_float(c, 0)) return false;
    for (int i = 0; i < c->n_inputs; i++) {
        const tl_tensor *w = c->input[i];
        if (w->rank < 2 || (i && w->rank != 2) || !tl_is_contiguous(w))
            return call_fail(c, "needs dense rows and dense matrices");
        if (w->dtype != x->dtype) return call_fail_need(c, "the dtypes differ", "a cast");
        if (w->shape[w->rank - 1] != x->shape[x->rank - 1])
            return call_fail(c, "rows of %lld numbers and a matrix of %lldx%lld cannot be multiplied",
                             (long long)x->shape[x->rank - 1], (long long)w->shape[0], (long long)w->shape[1]);
        if (i) n += w->shape[0];
    }
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank - 1] = n;
    return call_output(c, 0, x->dtype, x->rank, shape);
}
static void matmul_parts_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *x = c->input[0];
    cost_traffic(c, cost, 2 * (count)c->output[0]->numel * (count)x->shape[x->rank - 1]);
}
const tl_op op_matmul_parts = {
    RECORD(KERNEL, matmul_parts, 1), .shapes = "x (...,k), matrices (n1,k), (n2,k) [, (n3,k)] -> (...,n1+n2+n3)",
    .dtypes = "floats, all alike",   .flops = "2mkn, n of all matrices",
    .shape = matmul_parts_shape,     .cost = matmul_parts_cost,
    .backward = gradient_missing,    .is_costly = true};

/* Kernels need one of the last two axes dense. */
static tl_tensor *matrix(tl_tensor *x) {
    if (!x || x->rank < 2) return x;
    const int64_t *shape = x->shape + x->rank - 2, *stride = x->stride + x->rank - 2;
    bool ok = (stride[1] == 1 || shape[1] == 1) || (stride[0] == 1 || shape[0] == 1);
    return ok && stride[0] >= 0 && stride[1] >= 0 ? x : tl_clone(x);
}

/* The same for a stack of rows: rows dense, and one stride apart. */
static tl_tensor *stack(tl_tensor *x) {
    if (!x || x->rank <= 2) return matrix(x);
    bool ok = (x->stride[x->rank - 1] == 1 || x->shape[x->rank - 1] == 1) &&
              fold_is_even(x->rank, x->shape, x->stride) && fold_row_stride(x->rank, x->shape, x->stride) > 0;
    return ok ? x : tl_clone(x);
}

/* Padding is zeroed too: the graph compares and copies bytes. */
static struct attr_matmul *attr_fill(struct attr_matmul *at, bool transpose_a, bool transpose_b, tl_dtype dtype,
                                     bool folds) {
    memset(at, 0, sizeof *at);
    at->transpose_a = transpose_a;
    at->transpose_b = transpose_b;
    at->dtype = dtype;
    at->folds = folds;
    at->is_fast = matmul_is_fast();
    at->is_timed = fast_is_on();
    return at;
}

bool matmul_parts_fit(const tl_tensor *x, tl_tensor *const *weights, int n) {
    const struct target *t = x->storage->device->target;
    if (!t->rules->joins_parts || !thread_state()->grad_off || x->rank < 2 || n < 2 || n > MATMUL_PARTS) return false;
    const int64_t k = x->shape[x->rank - 1];
    const tl_dtype dtype = autocast_narrow_dtype(x);
    for (int i = 0; i < n; i++)
        if (weights[i]->rank != 2 || weights[i]->shape[1] != k || !tl_is_contiguous(weights[i]) ||
            autocast_narrow_dtype(weights[i]) != dtype)
            return false;
    return k > 0 && t->rules->joins_parts(t, dtype, x->numel / k, k);
}

tl_tensor *matmul_parts(tl_tensor *x, tl_tensor *const *weights, int n) {
    tl_tensor *input[1 + MATMUL_PARTS] = {tl_contiguous(autocast_narrow(x))};
    struct attr_matmul at;
    if (!input[0]) return NULL;
    for (int i = 0; i < n; i++)
        if (!(input[1 + i] = tl_contiguous(autocast_narrow(weights[i])))) return NULL;
    tl_call c;
    call_begin(&c, &op_matmul_parts, input, 1 + n, attr_fill(&at, false, true, input[0]->dtype, true), sizeof at);
    return op_apply(&c);
}

/* op(a) op(b), added to `into` when there is one that fits. */
static tl_tensor *product_of(const struct attr_matmul *at, tl_tensor *a, tl_tensor *b, tl_tensor *into) {
    a = at->folds ? stack(a) : matrix(a);
    b = at->folds ? stack(b) : matrix(b);
    bool fits = into && a && b && (at->folds || (a->rank == 2 && b->rank == 2)) &&
                (into->dtype == a->dtype || into->dtype == TL_F32);
    if (!fits) return op_apply2(&op_matmul, a, b, at, sizeof *at);
    tl_tensor *input[3] = {into, a, b};
    tl_call c;
    call_begin(&c, &op_matmul_acc, input, 3, at, sizeof *at);
    return op_apply(&c);
}

tl_tensor *matmul_product(tl_tensor *a, bool transpose_a, tl_tensor *b, bool transpose_b, tl_tensor *into,
                          tl_dtype dtype, bool folds) {
    struct attr_matmul at;
    if (!a || !b) return NULL;
    return product_of(attr_fill(&at, transpose_a, transpose_b, dtype, folds), a, b, into);
}

/* A stack of rows x (...,k) times one matrix is one product of matrices: no batch, and one gradient for the matrix. */
static tl_tensor *rows_times(tl_tensor *x, tl_tensor *w, bool transpose_w) {
    return matmul_product(x, false, w, transpose_w, NULL, x->dtype, x->rank > 2 && w->rank == 2);
}

tl_tensor *tl_matmul(tl_tensor *a, tl_tensor *b) {
    if (!tensor_check(a, "matmul") || !tensor_check(b, "matmul")) return NULL;
    if (a->rank == 0 || b->rank == 0) {
        error_set(TL_ERROR_USE, "matmul: both arguments to matmul need to be at least 1D, but they are %dD and %dD",
                  a->rank, b->rank);
        return NULL;
    }
    a = autocast_narrow(a);
    b = autocast_narrow(b);
    if (!a || !b) return NULL;
    bool vector_a = a->rank == 1, vector_b = b->rank == 1;
    if (vector_a) a = tl_unsqueeze(a, 0); /* PyTorch's rule: a vector is a row on the left, a column on the right */
    if (vector_b) b = tl_unsqueeze(b, 1);
    if (!a || !b) return NULL;
    tl_tensor *y;
    if (b->rank == 2 && a->rank > 2) {
        y = rows_times(a, b, false);
    } else {
        while (a && a->rank < b->rank) a = tl_unsqueeze(a, 0);
        while (b && a && b->rank < a->rank) b = tl_unsqueeze(b, 0);
        y = a && b ? matmul_product(a, false, b, false, NULL, a->dtype, false) : NULL;
    }
    if (y && vector_b) y = tl_squeeze(y, -1);
    if (y && vector_a) y = tl_squeeze(y, vector_b ? -1 : -2);
    return y;
}

/* True if the device's product adds a bias before it writes, which saves a pass over y. */
bool matmul_takes_bias(const tl_tensor *x, const tl_tensor *weight, const tl_tensor *bias) {
    const struct target *t = x->storage->device->target;
    if (!t->rules->adds_bias) return false;
    return x->rank >= 2 && weight->rank == 2 && t->rules->adds_bias(t, x->dtype, weight->shape[0], weight->shape[1]) &&
           x->numel > 0 && weight->numel > 0 && bias->rank == 1 && bias->shape[0] == weight->shape[0] &&
           bias->stride[0] == 1 && weight->dtype == x->dtype && bias->dtype == x->dtype &&
           bias->storage->device == x->storage->device;
}

static tl_tensor *rows_times_and_bias(const struct attr_matmul *at, tl_tensor *x, tl_tensor *weight, tl_tensor *bias) {
    x = at->folds ? stack(x) : matrix(x);
    tl_tensor *input[3] = {x, matrix(weight), bias};
    tl_call c;
    call_begin(&c, &op_matmul, input, bias ? 3 : 2, at, sizeof *at);
    return op_apply(&c);
}

tl_tensor *tl_linear(tl_tensor *x, tl_tensor *weight, tl_tensor *bias) {
    if (!tensor_check(x, "linear") || !tensor_check(weight, "linear")) return NULL;
    x = autocast_narrow(x);
    weight = autocast_narrow(weight);
    if (!x || !weight || (bias && !(bias = autocast_narrow(bias)))) return NULL;
    struct attr_matmul at;
    if (bias && matmul_takes_bias(x, weight, bias))
        return rows_times_and_bias(attr_fill(&at, false, true, x->dtype, x->rank > 2), x, weight, bias);
    bool vector = x->rank == 1;
    if (vector) x = tl_unsqueeze(x, 0);
    tl_tensor *y = x ? rows_times(x, weight, true) : NULL;
    if (y && vector) y = tl_squeeze(y, 0);
    return y && bias ? tl_add(y, bias) : y;
}
