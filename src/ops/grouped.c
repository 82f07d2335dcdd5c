/* grouped.c: products of rows with one of several matrices each, for mixtures of experts.
 *
 * The rows of a (N,k) are in order of their groups; group e is rows ends[e-1] .. ends[e]-1, and is multiplied by matrix
 * e of b (E,k,n). `ends` (E) stays on the device: nobody waits for it, and costs depend on shapes alone. Rows behind
 * the last group give zeros.
 *
 *      grouped_matmul   out (N,n):    out[r] = a[r] b[e]                      the row r is in group e
 *      grouped_outer    out (E,k,n):  out[e] = sum over rows r of e: a[r]^T c[r]
 *
 * Each is the other's gradient, so gradients of any order exist. */
#include <string.h>

#include "ops/ops.h"

enum { MOST_GROUPS = GROUPED_MOST };

/* ---- Shapes and costs ---- */

/* The factors and the ends from input `first` on; both factors of one float dtype. */
static bool factors_fit(const tl_call *c, int first) {
    const tl_tensor *a = c->input[first], *b = c->input[first + 1], *ends = c->input[first + 2];
    if (!call_needs_float(c, first) || !call_needs_index(c, first + 2)) return false;
    if (ends->rank != 1 || ends->shape[0] < 1 || ends->shape[0] > MOST_GROUPS)
        return call_fail(c, "the ends of groups must be a vector of 1 to %d numbers", MOST_GROUPS);
    return a->dtype == b->dtype ||
           call_fail_need(c, "expected m1 and m2 to have the same dtype: expected scalar type %s but found %s",
                          "a cast", dtype_info(a->dtype)->scalar_name, dtype_info(b->dtype)->scalar_name);
}

/* a (N,k), b (E,k,n), or (E,n,k) transposed. */
static bool matrices_fit(const tl_call *c, int first, int64_t *n) {
    const struct attr_grouped *at = c->attr;
    const tl_tensor *a = c->input[first], *b = c->input[first + 1];
    if (!factors_fit(c, first)) return false;
    if (a->rank != 2 || b->rank != 3 || b->shape[0] != c->input[first + 2]->shape[0])
        return call_fail(c, "needs rows (N,k), one matrix for each group (E,k,n), and (E) ends");
    *n = b->shape[at->transpose_b ? 1 : 2];
    const int64_t k = b->shape[at->transpose_b ? 2 : 1];
    return a->shape[1] == k ||
           call_fail_need(c, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)", "[m,k] x [k,n]",
                          (long long)a->shape[0], (long long)a->shape[1], (long long)k, (long long)*n);
}

/* a (N,m), b (N,n). */
static bool stacks_fit(const tl_call *c, int first) {
    const tl_tensor *a = c->input[first], *b = c->input[first + 1];
    if (!factors_fit(c, first)) return false;
    return (a->rank == 2 && b->rank == 2 && a->shape[0] == b->shape[0]) ||
           call_fail(c, "needs two matrices with the same number of rows");
}

static bool grouped_matmul_shape(tl_call *c) {
    int64_t n = 0;
    if (!matrices_fit(c, 0, &n)) return false;
    return call_output(c, 0, c->input[0]->dtype, 2, (const int64_t[]){c->input[0]->shape[0], n});
}
static bool grouped_matmul_acc_shape(tl_call *c) {
    const tl_tensor *sum = c->input[0], *a = c->input[1];
    int64_t n = 0;
    if (!matrices_fit(c, 1, &n)) return false;
    return (sum->rank == 2 && sum->shape[0] == a->shape[0] && sum->shape[1] == n) ||
           call_fail(c, "the sum has another shape than the product");
}
static bool grouped_outer_shape(tl_call *c) {
    if (!stacks_fit(c, 0)) return false;
    const tl_tensor *a = c->input[0], *b = c->input[1];
    return call_output(c, 0, a->dtype, 3, (const int64_t[]){c->input[2]->shape[0], a->shape[1], b->shape[1]});
}
static bool grouped_outer_acc_shape(tl_call *c) {
    const tl_tensor *sum = c->input[0], *a = c->input[1], *b = c->input[2];
    if (!stacks_fit(c, 1)) return false;
    return (sum->rank == 3 && sum->shape[0] == c->input[3]->shape[0] && sum->shape[1] == a->shape[1] &&
            sum->shape[2] == b->shape[1]) ||
           call_fail(c, "the sum has another shape than the product");
}

/* 2 N k n: every row is in a group; adding to a sum is part of the multiply-adds */
static void grouped_matmul_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *a = c->input[c->op == &op_grouped_matmul_acc], *out = c->output[0];
    cost_traffic(c, cost, 2 * (count)out->numel * (count)a->shape[1]);
}
/* 2 N m n: every row is multiplied once */
static void grouped_outer_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *a = c->input[c->op == &op_grouped_outer_acc], *out = c->output[0];
    cost_traffic(c, cost, 2 * (count)a->numel * (count)out->shape[2]);
}
static tl_dtype factors_dtype(const tl_call *c) { return c->input[1]->dtype; }

/* ---- Calls ---- */

/* The first `n` factors dense, then the ends. Added to `into` where there is one that fits. */
static tl_tensor *apply(const tl_op *plain, const tl_op *adding, tl_tensor *a, tl_tensor *b, tl_tensor *ends,
                        bool transpose_b, tl_tensor *into) {
    struct attr_grouped at;
    memset(&at, 0, sizeof at);
    at.transpose_b = transpose_b;
    at.is_fast = matmul_is_fast();
    tl_tensor *input[4] = {into, tl_contiguous(a), NULL, NULL};
    input[2] = input[1] ? tl_contiguous(b) : NULL;
    input[3] = input[2] ? tl_contiguous(ends) : NULL;
    if (!input[3]) return NULL;
    const bool fits = into && tl_is_contiguous(into) && (into->dtype == input[1]->dtype || into->dtype == TL_F32);
    tl_call c;
    call_begin(&c, fits ? adding : plain, input + !fits, 3 + fits, ATTR(at));
    return op_apply(&c);
}

static tl_tensor *rows_product(tl_tensor *a, tl_tensor *b, tl_tensor *ends, bool transpose_b, tl_tensor *into) {
    return apply(&op_grouped_matmul, &op_grouped_matmul_acc, a, b, ends, transpose_b, into);
}
static tl_tensor *outer_product(tl_tensor *a, tl_tensor *b, tl_tensor *ends, tl_tensor *into) {
    return apply(&op_grouped_outer, &op_grouped_outer_acc, a, b, ends, false, into);
}

/* ---- Gradients ---- */

/* out[r] = a[r] b[e]: da[r] = g[r] b[e]^T, db[e] = sum a[r]^T g[r]; of a transposed b, its transpose. */
static void rows_backward(tl_gradient *g, int first, tl_tensor *grad) {
    const struct attr_grouped *at = g->node->attr;
    tl_tensor *ends = gradient_input(g, first + 2);
    if (g->needs[first])
        g->result[first] = rows_product(grad, gradient_input(g, first + 1), ends, !at->transpose_b, g->into[first]);
    if (!g->needs[first + 1]) return;
    tl_tensor *a = gradient_input(g, first);
    g->result[first + 1] = at->transpose_b ? outer_product(grad, a, ends, g->into[first + 1])
                                           : outer_product(a, grad, ends, g->into[first + 1]);
}

/* out[e] = sum a[r]^T b[r]: da[r] = b[r] g[e]^T, db[r] = a[r] g[e] */
static void outer_backward(tl_gradient *g, int first, tl_tensor *grad) {
    tl_tensor *ends = gradient_input(g, first + 2);
    if (g->needs[first])
        g->result[first] = rows_product(gradient_input(g, first + 1), grad, ends, true, g->into[first]);
    if (g->needs[first + 1])
        g->result[first + 1] = rows_product(gradient_input(g, first), grad, ends, false, g->into[first + 1]);
}

static void grouped_matmul_backward(tl_gradient *g) { rows_backward(g, 0, g->grad[0]); }
static void grouped_outer_backward(tl_gradient *g) { outer_backward(g, 0, g->grad[0]); }
static void grouped_matmul_acc_backward(tl_gradient *g) {
    g->result[0] = g->grad[0];
    tl_tensor *grad = tl_cast(g->grad[0], g->node->edges[1].dtype);
    if (grad) rows_backward(g, 1, grad);
}
static void grouped_outer_acc_backward(tl_gradient *g) {
    g->result[0] = g->grad[0];
    tl_tensor *grad = tl_cast(g->grad[0], g->node->edges[1].dtype);
    if (grad) outer_backward(g, 1, grad);
}

/* ---- Records ---- */

const tl_op op_grouped_matmul = {RECORD(KERNEL, grouped_matmul, 1),
                                 .shapes = "a (N,k), b (E,k,n) or transposed, ends (E) -> (N,n)",
                                 .dtypes = "floats, a and b alike; ends i64 or i32",
                                 .flops = "2Nkn",
                                 .shape = grouped_matmul_shape,
                                 .cost = grouped_matmul_cost,
                                 .backward = grouped_matmul_backward,
                                 .saves_any = TL_INPUT(2),
                                 .saves = {TL_INPUT(1), TL_INPUT(0)},
                                 .is_costly = true};
const tl_op op_grouped_matmul_acc = {RECORD(KERNEL, grouped_matmul_acc, 1),
                                     .shapes = "sum (N,n), a (N,k), b (E,k,n) or transposed, ends (E) -> sum",
                                     .dtypes = "floats, a and b alike; sum theirs or f32; ends i64 or i32",
                                     .flops = "2Nkn",
                                     .shape = grouped_matmul_acc_shape,
                                     .cost = grouped_matmul_cost,
                                     .backward = grouped_matmul_acc_backward,
                                     .overwrites = {OVERWRITES(0)},
                                     .saves_any = TL_INPUT(3),
                                     .saves = {0, TL_INPUT(2), TL_INPUT(1)},
                                     .compute_dtype = factors_dtype};
const tl_op op_grouped_outer = {RECORD(KERNEL, grouped_outer, 1),
                                .shapes = "a (N,m), b (N,n), ends (E) -> (E,m,n)",
                                .dtypes = "floats, a and b alike; ends i64 or i32",
                                .flops = "2Nmn",
                                .shape = grouped_outer_shape,
                                .cost = grouped_outer_cost,
                                .backward = grouped_outer_backward,
                                .saves_any = TL_INPUT(2),
                                .saves = {TL_INPUT(1), TL_INPUT(0)}};
const tl_op op_grouped_outer_acc = {RECORD(KERNEL, grouped_outer_acc, 1),
                                    .shapes = "sum (E,m,n), a (N,m), b (N,n), ends (E) -> sum",
                                    .dtypes = "floats, a and b alike; sum theirs or f32; ends i64 or i32",
                                    .flops = "2Nmn",
                                    .shape = grouped_outer_acc_shape,
                                    .cost = grouped_outer_cost,
                                    .backward = grouped_outer_acc_backward,
                                    .overwrites = {OVERWRITES(0)},
                                    .saves_any = TL_INPUT(3),
                                    .saves = {0, TL_INPUT(2), TL_INPUT(1)},
                                    .compute_dtype = factors_dtype};

tl_tensor *tl_grouped_matmul(tl_tensor *a, tl_tensor *b, tl_tensor *ends, bool transpose_b) {
    if (!tensor_check(a, "grouped_matmul") || !tensor_check(b, "grouped_matmul") ||
        !tensor_check(ends, "grouped_matmul"))
        return NULL;
    a = autocast_narrow(a);
    b = autocast_narrow(b);
    return a && b ? rows_product(a, b, ends, transpose_b, NULL) : NULL;
}
