/* linalg.c: factorisations of matrices in the last two axes, and solutions with them.
 *
 * FLOPs are the nominal ones, of the textbook's algorithm (Golub and Van Loan, Matrix Computations): what a library
 * does beyond them is its own affair. Gradients are written in ops and have derivatives.
 */
#include "ops/ops.h"

#include <limits.h>
#include <string.h>

#include "spec/linalg.h"

/* ---- Rules in common ---- */

static int64_t rows_of(const tl_tensor *x) { return x->shape[x->rank - 2]; }
static int64_t columns_of(const tl_tensor *x) { return x->shape[x->rank - 1]; }
static count batch_of(const tl_tensor *x) {
    count n = 1;
    for (int i = 0; i < x->rank - 2; i++) n *= (count)x->shape[i];
    return n;
}

static bool call_needs_matrix(const tl_call *c) {
    const tl_tensor *x = c->input[0];
    if (x->rank < 2) return call_fail(c, "The input tensor A must have at least 2 dimensions");
    return x->dtype == TL_F32 || x->dtype == TL_F64 ||
           call_fail_need(c, "not implemented for %s", "float32 or float64", dtype_info(x->dtype)->torch_name);
}

/* LAPACK counts in 32 bits. */
static bool call_fits(const tl_call *c) {
    const tl_tensor *x = c->input[0];
    return (count)rows_of(x) * (count)columns_of(x) <= INT_MAX && rows_of(x) < INT_MAX / 128 &&
                   columns_of(x) < INT_MAX / 128
               ? true
               : call_fail(c, "a matrix of %lld x %lld is too large for LAPACK", (long long)rows_of(x),
                           (long long)columns_of(x));
}

static bool call_needs_square(const tl_call *c) {
    const tl_tensor *x = c->input[0];
    if (!call_needs_matrix(c)) return false;
    if (rows_of(x) != columns_of(x))
        return call_fail(c, "A must be batches of square matrices, but they are %lld by %lld matrices",
                         (long long)rows_of(x), (long long)columns_of(x));
    return call_fits(c);
}

/* Input 1 is (...,n,k) beside a square input 0, with its leading axes and its dtype. */
static bool call_needs_sides(const tl_call *c) {
    const tl_tensor *a = c->input[0], *b = c->input[1];
    if (!call_needs_square(c)) return false;
    if (a->dtype != b->dtype)
        return call_fail(c, "Expected A and B to have the same dtype, but found %s and %s",
                         dtype_info(a->dtype)->torch_name, dtype_info(b->dtype)->torch_name);
    if (b->rank != a->rank || !shape_equal(a->rank - 1, a->shape, a->rank - 1, b->shape))
        return call_fail_need(c, "Incompatible shapes of A and B", "[...,n,n] and [...,n,k]");
    return (count)columns_of(a) * (count)columns_of(b) <= INT_MAX || call_fail(c, "the sides are too large for LAPACK");
}

/* Output j has input 0's leading axes, then `n_axes` of these. True. */
static bool call_output_of(tl_call *c, int j, tl_dtype dtype, int n_axes, int64_t first, int64_t second) {
    const tl_tensor *a = c->input[0];
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, a->shape, (size_t)a->rank * sizeof *shape);
    shape[a->rank - 2] = first;
    shape[a->rank - 1] = second;
    return call_output(c, j, dtype, a->rank - 2 + n_axes, shape);
}

static uint64_t scratch_bytes(const tl_call *c, int64_t numbers) {
    const tl_tensor *a = c->input[0];
    const count n = batch_of(a), slots = n < LINALG_SLOTS ? n : LINALG_SLOTS;
    return (uint64_t)slots * (uint64_t)numbers * (uint64_t)(dtype_info(a->dtype)->bits / 8);
}
static uint64_t matrix_workspace(const tl_call *c) {
    return scratch_bytes(c, rows_of(c->input[0]) * columns_of(c->input[0]));
}
static uint64_t sides_workspace(const tl_call *c) {
    const int64_t n = rows_of(c->input[0]);
    return scratch_bytes(c, n * n + n * columns_of(c->input[1]));
}

static tl_tensor *turned(tl_tensor *x) { return x ? tl_transpose(x, -2, -1) : NULL; }
static tl_tensor *product(tl_tensor *a, tl_tensor *b) { return a && b ? tl_matmul(a, b) : NULL; }
/* a^T b and a b^T */
static tl_tensor *product_tn(tl_tensor *a, tl_tensor *b) { return product(turned(a), b); }
static tl_tensor *product_nt(tl_tensor *a, tl_tensor *b) { return product(a, turned(b)); }

/* The sum of two, of which one may not be there. */
static tl_tensor *sum_of(tl_tensor *a, tl_tensor *b) { return a && b ? tl_add(a, b) : a ? a : b; }
/* Rows [from, to) or columns of the last axes. */
static tl_tensor *part(tl_tensor *x, int axis, int64_t from, int64_t to) {
    return x ? tl_slice(x, axis, from, to, 1) : NULL;
}

/* (...,n) as the diagonals of (...,n,n). */
static tl_tensor *diagonal_matrix(tl_tensor *values) {
    if (!values) return NULL;
    const int64_t n = values->shape[values->rank - 1];
    tl_tensor *mask = tl_eye(n, n, TL_BOOL, values->storage->device);
    return mask ? tl_where_scalar(mask, tl_unsqueeze(values, -1), tl_scalar_float(0)) : NULL;
}

/* ---- solve_triangular: a x = b ---- */

static bool triangular_shape(tl_call *c) { return call_needs_sides(c) && call_output_like(c, 0, 1); }
/* n^2 for each side */
static void triangular_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *b = c->input[1];
    cost_traffic(c, cost, (count)rows_of(c->input[0]) * (count)b->numel);
}

static tl_tensor *triangular(tl_tensor *a, tl_tensor *b, bool upper, bool is_unit) {
    const struct attr_triangular attr = {upper, is_unit};
    return a && b ? op_apply2(&op_solve_triangular, a, b, ATTR(attr)) : NULL;
}
/* x a = b: a^T x^T = b^T */
static tl_tensor *triangular_right(tl_tensor *a, tl_tensor *b, bool upper, bool is_unit) {
    tl_tensor *across = turned(a), *sides = turned(b);
    return turned(triangular(across, sides, !upper, is_unit));
}

/* db = a^-T g, da = -db x^T in the triangle that was read */
static void triangular_backward(tl_gradient *g) {
    const struct attr_triangular *attr = g->node->attr;
    tl_tensor *a = gradient_input(g, 0), *db = triangular(turned(a), g->grad[0], !attr->upper, attr->is_unit);
    if (g->needs[1]) g->result[1] = db;
    if (!g->needs[0] || !db) return;
    tl_tensor *da = product_nt(tl_neg(db), gradient_output(g, 0));
    g->result[0] = !da ? NULL : attr->upper ? tl_triu(da, attr->is_unit) : tl_tril(da, attr->is_unit ? -1 : 0);
}

const tl_op op_solve_triangular = {RECORD(KERNEL, solve_triangular, 1),
                                   .shapes = "a (...,n,n), b (...,n,k) -> (...,n,k)",
                                   .dtypes = "f32, f64",
                                   .flops = "n^2 k per matrix",
                                   .shape = triangular_shape,
                                   .cost = triangular_cost,
                                   .workspace = sides_workspace,
                                   .backward = triangular_backward,
                                   .is_wide = true,
                                   .is_costly = true,
                                   .saves_any = TL_INPUT(0),
                                   .saves = {TL_OUTPUT(0)}};

/* Both with the leading axes to which they broadcast. */
static bool broadcast_sides(const char *what, tl_tensor **a, tl_tensor **b) {
    int64_t shape[TL_MAX_RANK];
    int rank;
    if (!tensor_check(*a, what) || !tensor_check(*b, what)) return false;
    if ((*a)->rank < 2 || (*b)->rank < 2)
        return error_set(TL_ERROR_USE, "%s: The input tensors must have at least 2 dimensions", what);
    if (!shape_broadcast((*a)->rank - 2, (*a)->shape, (*b)->rank - 2, (*b)->shape, &rank, shape))
        return error_set(TL_ERROR_USE, "%s: the leading axes of A and B do not broadcast", what);
    tl_tensor **both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        tl_tensor *x = *both[i];
        shape[rank] = rows_of(x);
        shape[rank + 1] = columns_of(x);
        if (!shape_equal(x->rank, x->shape, rank + 2, shape)) *both[i] = tl_expand(x, rank + 2, shape);
        if (!*both[i]) return false;
    }
    return true;
}

tl_tensor *tl_solve_triangular(tl_tensor *a, tl_tensor *b, bool upper, bool is_unit) {
    return broadcast_sides("solve_triangular", &a, &b) ? triangular(a, b, upper, is_unit) : NULL;
}

/* ---- cholesky: a = l l^T ---- */

static bool cholesky_shape(tl_call *c) {
    return call_needs_square(c) && call_output_like(c, 0, 0) && call_output_of(c, 1, TL_I32, 0, 0, 0);
}
static count cube(const tl_tensor *a) { return (count)rows_of(a) * (count)rows_of(a) * (count)rows_of(a); }
static void cholesky_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, batch_of(c->input[0]) * (cube(c->input[0]) / 3));
}

/* With P = tril(l^T g), its diagonal halved: da = l^-T (P + P^T) / 2 l^-1 */
static void cholesky_backward(tl_gradient *g) {
    if (!g->grad[0]) return;
    tl_tensor *l = gradient_output(g, 0), *inner = product_tn(l, g->grad[0]);
    tl_tensor *below = inner ? tl_tril(inner, 0) : NULL, *strictly = inner ? tl_tril(inner, -1) : NULL;
    tl_tensor *both = below && strictly ? tl_scale(tl_add(below, turned(strictly)), 0.5) : NULL;
    tl_tensor *left = triangular(turned(l), both, true, false);
    g->result[0] = triangular_right(l, left, false, false);
}

const tl_op op_cholesky = {RECORD(KERNEL, cholesky, 2),
                           .shapes = "a (...,n,n) -> l (...,n,n), info (...)",
                           .dtypes = "f32, f64; info i32",
                           .flops = "n^3 / 3 per matrix",
                           .shape = cholesky_shape,
                           .cost = cholesky_cost,
                           .workspace = matrix_workspace,
                           .backward = cholesky_backward,
                           .is_wide = true,
                           .is_costly = true,
                           .saves = {TL_OUTPUT(0)}};

/* The first result of a call in which a matrix that fails is an error; or all results, info as the last. */
static tl_tensor *factored(const tl_op *op, tl_tensor **input, int n_inputs) {
    const struct attr_factor attr = {true};
    tl_call c;
    call_begin(&c, op, input, n_inputs, ATTR(attr));
    return tensor_check(input[0], op->name) ? op_apply(&c) : NULL;
}
static bool factored_all(const tl_op *op, tl_tensor **input, int n_inputs, bool checks, tl_tensor ***result) {
    const struct attr_factor attr = {checks};
    tl_call c;
    call_begin(&c, op, input, n_inputs, ATTR(attr));
    if (!tensor_check(input[0], op->name) || !op_apply(&c)) return false;
    for (int j = 0; j < op->n_outputs; j++)
        if (result[j]) *result[j] = c.output[j];
    return true;
}

tl_tensor *tl_cholesky(tl_tensor *a) { return factored(&op_cholesky, &a, 1); }
bool tl_cholesky_ex(tl_tensor *a, tl_tensor **l, tl_tensor **info) {
    return factored_all(&op_cholesky, &a, 1, false, (tl_tensor * *[]){l, info});
}

/* ---- swap_rows: P x ---- */

static bool swap_rows_shape(tl_call *c) {
    const tl_tensor *x = c->input[0], *pivots = c->input[1];
    if (!call_needs_matrix(c)) return false;
    if (pivots->dtype != TL_I32) return call_fail(c, "pivots must be i32, not %s", dtype_info(pivots->dtype)->name);
    if (pivots->rank != x->rank - 1 || !shape_equal(x->rank - 2, x->shape, x->rank - 2, pivots->shape) ||
        columns_of(pivots) > rows_of(x))
        return call_fail_need(c, "one row of pivots per matrix", "[...,m,k] and [...,p], p <= m");
    return call_output_like(c, 0, 0);
}
static void swap_rows_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }

static tl_tensor *swapped(tl_tensor *x, tl_tensor *pivots, bool inverse) {
    const struct attr_swap attr = {inverse};
    return x && pivots ? op_apply2(&op_swap_rows, x, pivots, ATTR(attr)) : NULL;
}

/* The inverse permutation. */
static void swap_rows_backward(tl_gradient *g) {
    const struct attr_swap *attr = g->node->attr;
    g->result[0] = swapped(g->grad[0], gradient_input(g, 1), !attr->inverse);
}

const tl_op op_swap_rows = {RECORD(KERNEL, swap_rows, 1),
                            .shapes = "x (...,m,k), pivots (...,p) -> (...,m,k)",
                            .dtypes = "f32, f64; pivots i32",
                            .flops = "0",
                            .shape = swap_rows_shape,
                            .cost = swap_rows_cost,
                            .backward = swap_rows_backward,
                            .is_wide = true,
                            .saves = {TL_INPUT(1)}};

tl_tensor *tl_swap_rows(tl_tensor *x, tl_tensor *pivots, bool inverse) {
    if (!tensor_check(x, "swap_rows") || !tensor_check(pivots, "swap_rows")) return NULL;
    return swapped(x, pivots, inverse);
}

/* ---- lu: a = P L U ---- */

static bool lu_shape(tl_call *c) {
    const tl_tensor *a = c->input[0];
    return call_needs_matrix(c) && call_fits(c) && call_output_like(c, 0, 0) &&
           call_output_of(c, 1, TL_I32, 1, linalg_least(rows_of(a), columns_of(a)), 0) &&
           call_output_of(c, 2, TL_I32, 0, 0, 0);
}
/* 2mnk - (m + n) k^2 + 2/3 k^3 with k = min(m,n): 2/3 n^3 of a square matrix */
static count lu_flops(const tl_tensor *a) {
    const count m = (count)rows_of(a), n = (count)columns_of(a), k = m < n ? m : n;
    return 2 * m * n * k - (m + n) * k * k + 2 * k * k * k / 3;
}
static void lu_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, batch_of(c->input[0]) * lu_flops(c->input[0]));
}

/* g and LU are packed alike: below the diagonal of L, the rest of U. With k = min(m,n), L1 and U1 the square parts, L2
 * the rows below L1 and U2 the columns behind U1:
 *      M  = tril(L1^T gL1, -1) + triu(gU1 U1^T) - tril(gU2 U2^T, -1) - triu(L2^T gL2)
 *      dA = P [ L1^-T M U1^-T   L1^-T gU2 ]
 *             [    gL2 U1^-T              ] */
static void lu_backward(tl_gradient *g) {
    tl_tensor *lu = gradient_output(g, 0), *pivots = gradient_output(g, 1), *grad = g->grad[0];
    if (!grad || !lu || !pivots) return;
    const int64_t m = rows_of(lu), n = columns_of(lu), k = linalg_least(m, n);
    tl_tensor *top = part(lu, -2, 0, k), *grad_top = part(grad, -2, 0, k);
    tl_tensor *square = part(top, -1, 0, k), *grad_square = part(grad_top, -1, 0, k);
    tl_tensor *l = square ? tl_tril(square, -1) : NULL, *u = square ? tl_triu(square, 0) : NULL;
    tl_tensor *gl = grad_square ? tl_tril(grad_square, -1) : NULL, *gu = grad_square ? tl_triu(grad_square, 0) : NULL;
    tl_tensor *of_l = product_tn(l, gl), *of_u = product_nt(gu, u);
    of_l = of_l ? tl_tril(tl_add(of_l, gl), -1) : NULL; /* L's own diagonal is ones */
    tl_tensor *inner = of_l && of_u ? tl_add(of_l, tl_triu(of_u, 0)) : NULL;
    tl_tensor *right = NULL, *below = NULL;
    if (m < n) {
        tl_tensor *gu2 = part(grad_top, -1, k, n), *lost = product_nt(gu2, part(top, -1, k, n));
        inner = inner && lost ? tl_sub(inner, tl_tril(lost, -1)) : NULL;
        right = triangular(turned(square), gu2, true, true);
    } else if (m > n) {
        tl_tensor *gl2 = part(grad, -2, k, m), *lost = product_tn(part(lu, -2, k, m), gl2);
        inner = inner && lost ? tl_sub(inner, tl_triu(lost, 0)) : NULL;
        below = triangular_right(turned(square), gl2, false, false);
    }
    tl_tensor *across = turned(square), *half = triangular(across, inner, true, true);
    tl_tensor *whole = triangular_right(across, half, false, false);
    tl_tensor *parts[2] = {whole, right ? right : below};
    if (m != n) whole = whole && parts[1] ? tl_concat(parts, 2, right ? -1 : -2) : NULL;
    g->result[0] = swapped(whole, pivots, false);
}

const tl_op op_lu = {RECORD(KERNEL, lu, 3),
                     .shapes = "a (...,m,n) -> lu (...,m,n), pivots (...,min(m,n)), info (...)",
                     .dtypes = "f32, f64; pivots and info i32",
                     .flops = "2/3 n^3 per square matrix; 2mnk - (m + n) k^2 + 2/3 k^3, k = min(m,n)",
                     .shape = lu_shape,
                     .cost = lu_cost,
                     .workspace = matrix_workspace,
                     .backward = lu_backward,
                     .is_wide = true,
                     .is_costly = true,
                     .saves = {TL_OUTPUT(0) | TL_OUTPUT(1)}};

bool tl_lu(tl_tensor *a, tl_tensor **lu, tl_tensor **pivots) {
    return factored_all(&op_lu, &a, 1, true, (tl_tensor * *[]){lu, pivots, NULL});
}
bool tl_lu_ex(tl_tensor *a, tl_tensor **lu, tl_tensor **pivots, tl_tensor **info) {
    return factored_all(&op_lu, &a, 1, false, (tl_tensor * *[]){lu, pivots, info});
}

/* a x = P L U x = b, or a^T x = U^T L^T P^T x = b */
static tl_tensor *lu_solved(tl_tensor *lu, tl_tensor *pivots, tl_tensor *b, bool transposed) {
    if (!transposed) return triangular(lu, triangular(lu, swapped(b, pivots, true), false, true), true, false);
    tl_tensor *across = turned(lu), *half = triangular(across, b, false, false);
    return swapped(triangular(across, half, true, true), pivots, false);
}

tl_tensor *tl_lu_solve(tl_tensor *lu, tl_tensor *pivots, tl_tensor *b, bool transposed) {
    if (!broadcast_sides("lu_solve", &lu, &b) || !tensor_check(pivots, "lu_solve")) return NULL;
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, lu->shape, (size_t)lu->rank * sizeof *shape);
    pivots = tl_expand(pivots, lu->rank - 1, shape);
    return lu_solved(lu, pivots, b, transposed);
}

/* ---- solve: a x = b ---- */

static bool solve_shape(tl_call *c) {
    return call_needs_sides(c) && call_output_like(c, 0, 1) && call_output_like(c, 1, 0) &&
           call_output_of(c, 2, TL_I32, 1, rows_of(c->input[0]), 0) && call_output_of(c, 3, TL_I32, 0, 0, 0);
}
/* the factorisation, and 2 n^2 for each side */
static void solve_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *a = c->input[0], *b = c->input[1];
    cost_traffic(c, cost, batch_of(a) * lu_flops(a) + 2 * (count)rows_of(a) * (count)b->numel);
}

/* db = a^-T g, da = -db x^T. The factors are used again, unless a derivative of this is wanted. */
static void solve_backward(tl_gradient *g) {
    if (!g->grad[0]) return;
    tl_tensor *db = g->creates_graph ? tl_solve(turned(gradient_input(g, 0)), g->grad[0])
                                     : lu_solved(gradient_output(g, 1), gradient_output(g, 2), g->grad[0], true);
    if (g->needs[1]) g->result[1] = db;
    if (g->needs[0]) g->result[0] = db ? product_nt(tl_neg(db), gradient_output(g, 0)) : NULL;
}

const tl_op op_solve = {RECORD(KERNEL, solve, 4),
                        .shapes = "a (...,n,n), b (...,n,k) -> x (...,n,k), lu (...,n,n), pivots (...,n), info (...)",
                        .dtypes = "f32, f64; pivots and info i32",
                        .flops = "2/3 n^3 + 2 n^2 k per matrix",
                        .shape = solve_shape,
                        .cost = solve_cost,
                        .workspace = sides_workspace,
                        .backward = solve_backward,
                        .is_wide = true,
                        .is_costly = true,
                        .saves_any = TL_INPUT(0) | TL_OUTPUT(1) | TL_OUTPUT(2),
                        .saves = {TL_OUTPUT(0)}};

tl_tensor *tl_solve(tl_tensor *a, tl_tensor *b) {
    if (!broadcast_sides("solve", &a, &b)) return NULL;
    return factored(&op_solve, (tl_tensor *[]){a, b}, 2);
}
bool tl_solve_ex(tl_tensor *a, tl_tensor *b, tl_tensor **x, tl_tensor **info) {
    if (!broadcast_sides("solve", &a, &b)) return false;
    return factored_all(&op_solve, (tl_tensor *[]){a, b}, 2, false, (tl_tensor * *[]){x, NULL, NULL, info});
}

/* ---- inv ---- */

static bool inv_shape(tl_call *c) {
    return call_needs_square(c) && call_output_like(c, 0, 0) && call_output_of(c, 1, TL_I32, 0, 0, 0);
}
static void inv_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, batch_of(c->input[0]) * 2 * cube(c->input[0]));
}
static uint64_t inv_workspace(const tl_call *c) { return scratch_bytes(c, linalg_inv_numbers(rows_of(c->input[0]))); }

/* da = -x^T g x^T */
static void inv_backward(tl_gradient *g) {
    if (!g->grad[0]) return;
    tl_tensor *x = gradient_output(g, 0);
    g->result[0] = product_tn(x, product_nt(tl_neg(g->grad[0]), x));
}

const tl_op op_inv = {RECORD(KERNEL, inv, 2),
                      .shapes = "a (...,n,n) -> (...,n,n), info (...)",
                      .dtypes = "f32, f64; info i32",
                      .flops = "2 n^3 per matrix",
                      .shape = inv_shape,
                      .cost = inv_cost,
                      .workspace = inv_workspace,
                      .backward = inv_backward,
                      .is_wide = true,
                      .is_costly = true,
                      .saves = {TL_OUTPUT(0)}};

tl_tensor *tl_inv(tl_tensor *a) { return factored(&op_inv, &a, 1); }
bool tl_inv_ex(tl_tensor *a, tl_tensor **x, tl_tensor **info) {
    return factored_all(&op_inv, &a, 1, false, (tl_tensor * *[]){x, info});
}

/* ---- det, and its sign and logarithm ---- */

static bool det_shape(tl_call *c) {
    if (!call_needs_square(c)) return false;
    for (int j = 0; j < 3; j++) call_output_of(c, j, c->input[0]->dtype, 0, 0, 0);
    return call_output_like(c, 3, 0) && call_output_of(c, 4, TL_I32, 1, rows_of(c->input[0]), 0);
}

/* da = (det g + g_log) a^-T. A zero on U's diagonal becomes eps: where the matrix is singular, the determinant has a
 * derivative all the same. */
static void det_backward(tl_gradient *g) {
    tl_tensor *factor = g->grad[0] ? tl_mul(g->grad[0], gradient_output(g, 0)) : NULL;
    factor = sum_of(factor, g->grad[2]);
    if (!factor) return;
    const struct edge *e = &g->node->edges[0];
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, e->shape, (size_t)e->rank * sizeof *shape);
    tl_tensor *sides = diagonal_matrix(tl_expand(tl_unsqueeze(factor, -1), e->rank - 1, shape));
    if (g->creates_graph) {
        g->result[0] = sides ? tl_solve(turned(gradient_input(g, 0)), sides) : NULL;
        return;
    }
    tl_tensor *lu = gradient_output(g, 3);
    if (!lu || !sides) return;
    tl_tensor *is_zero = tl_cmp_scalar(lu, TL_EQ, tl_scalar_float(0));
    tl_tensor *on = tl_eye(rows_of(lu), rows_of(lu), TL_BOOL, lu->storage->device);
    is_zero = is_zero && on ? tl_logical_and(is_zero, on) : NULL;
    lu = is_zero ? tl_masked_fill(lu, is_zero, dtype_info(lu->dtype)->eps) : NULL;
    g->result[0] = lu_solved(lu, gradient_output(g, 4), sides, true);
}

const tl_op op_det = {RECORD(KERNEL, det, 5),
                      .shapes = "a (...,n,n) -> det, sign, log |det| (...), lu (...,n,n), pivots (...,n)",
                      .dtypes = "f32, f64; pivots i32",
                      .flops = "2/3 n^3 per matrix",
                      .shape = det_shape,
                      .cost = lu_cost,
                      .workspace = matrix_workspace,
                      .backward = det_backward,
                      .is_wide = true,
                      .is_costly = true,
                      .saves = {TL_INPUT(0) | TL_OUTPUT(0) | TL_OUTPUT(3) | TL_OUTPUT(4)}};

tl_tensor *tl_det(tl_tensor *a) { return op_apply1(&op_det, a, NULL, 0); }

bool tl_slogdet(tl_tensor *a, tl_tensor **sign, tl_tensor **logarithm) {
    if (!tensor_check(a, "slogdet")) return false;
    tl_call c;
    call_begin(&c, &op_det, &a, 1, NULL, 0);
    if (!op_apply(&c)) return false;
    if (sign) *sign = c.output[1];
    if (logarithm) *logarithm = c.output[2];
    return true;
}

/* ---- qr ---- */

/* Columns of Q, rows of R. */
static int64_t q_columns(const tl_call *c) {
    const tl_tensor *a = c->input[0];
    const struct attr_qr *attr = c->attr;
    return attr->complete ? rows_of(a) : linalg_least(rows_of(a), columns_of(a));
}
static bool qr_shape(tl_call *c) {
    const struct attr_qr *attr = c->attr;
    if (!call_needs_matrix(c) || !call_fits(c)) return false;
    const tl_tensor *a = c->input[0];
    const int64_t n_q = q_columns(c);
    if ((count)rows_of(a) * (count)n_q > INT_MAX) return call_fail(c, "Q is too large for LAPACK");
    c->n_outputs = attr->vectors ? 2 : 1;
    return call_output_of(c, 0, a->dtype, 2, n_q, columns_of(a)) &&
           (!attr->vectors || call_output_of(c, 1, a->dtype, 2, rows_of(a), n_q));
}
/* R is 4mnk - 2 (m + n) k^2 + 4/3 k^3 with k = min(m,n); Q of q columns the same with q for n */
static count reflections(count m, count n, count k) { return 4 * m * n * k - 2 * (m + n) * k * k + 4 * k * k * k / 3; }
static void qr_cost(const tl_call *c, struct cost *cost) {
    const struct attr_qr *attr = c->attr;
    const tl_tensor *a = c->input[0];
    const count m = (count)rows_of(a), n = (count)columns_of(a), k = m < n ? m : n;
    const count of_q = attr->vectors ? reflections(m, (count)q_columns(c), k) : 0;
    cost_traffic(c, cost, batch_of(a) * (reflections(m, n, k) + of_q));
}
static uint64_t qr_workspace(const tl_call *c) {
    return scratch_bytes(c, linalg_qr_numbers(rows_of(c->input[0]), columns_of(c->input[0]), q_columns(c)));
}

/* With M = gR R^T - Q^T gQ:
 *      m >= n: da = (gQ + Q (triu(M) + triu(M, 1)^T)) R^-T
 *      m < n:  da = [ (Q tril(M^T - M)) R1^-T   0 ] + Q gR, R1 the first m columns, M with a minus before */
static void qr_backward(tl_gradient *g) {
    const struct attr_qr *attr = g->node->attr;
    tl_tensor *r = gradient_output(g, 0), *q = attr->vectors ? gradient_output(g, 1) : NULL;
    tl_tensor *gr = g->grad[0], *gq = attr->vectors ? g->grad[1] : NULL;
    if (!r || !q || (!gr && !gq)) return;
    const int64_t m = rows_of(q), n = columns_of(r);
    if (attr->complete && m > n) {
        error_set(TL_ERROR_USE,
                  "qr: The QR decomposition is not differentiable when mode='complete' and nrows > ncols");
        return;
    }
    tl_tensor *inner = gr ? product_nt(gr, r) : NULL;
    if (gq) {
        tl_tensor *other = product_tn(q, gq);
        inner = gr ? (inner && other ? tl_sub(inner, other) : NULL) : other ? tl_neg(other) : NULL;
    }
    if (!inner) return;
    if (m >= n) {
        tl_tensor *upper = tl_triu(inner, 0), *both = upper ? tl_add(upper, turned(tl_triu(inner, 1))) : NULL;
        tl_tensor *sum = sum_of(product(q, both), gq), *across = turned(r);
        g->result[0] = triangular_right(across, sum, false, false);
        return;
    }
    tl_tensor *lower = tl_tril(tl_sub(turned(inner), inner), 0), *joined[2];
    tl_tensor *across = turned(part(r, -1, 0, m)), *turn = product(q, lower);
    joined[0] = triangular_right(across, turn, false, false);
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, r->shape, (size_t)r->rank * sizeof *shape);
    shape[r->rank - 1] = n - m;
    joined[1] = tl_zeros(r->rank, shape, r->dtype, r->storage->device);
    tl_tensor *whole = joined[0] && joined[1] ? tl_concat(joined, 2, -1) : NULL;
    g->result[0] = gr && whole ? tl_add(whole, product(q, gr)) : whole;
}

const tl_op op_qr = {RECORD(KERNEL, qr, 2),
                     .shapes = "a (...,m,n) -> r (...,q,n) [, q (...,m,q)]; q = min(m,n), or m",
                     .dtypes = "f32, f64",
                     .flops = "R: 2mn^2 - 2/3 n^3 per matrix, m >= n; Q of n columns the same",
                     .shape = qr_shape,
                     .cost = qr_cost,
                     .workspace = qr_workspace,
                     .backward = qr_backward,
                     .is_wide = true,
                     .is_costly = true,
                     .saves = {TL_OUTPUT(0) | TL_OUTPUT(1)}};

static bool qr(tl_tensor *a, bool complete, bool vectors, tl_tensor **q, tl_tensor **r) {
    if (!tensor_check(a, "qr")) return false;
    const struct attr_qr attr = {complete, vectors || tensor_needs_grad(a)};
    tl_call c;
    call_begin(&c, &op_qr, &a, 1, ATTR(attr));
    if (tl_error() != TL_OK || !op_apply(&c)) return false;
    if (r) *r = c.output[0];
    if (q) *q = c.output[1];
    return true;
}
bool tl_qr(tl_tensor *a, bool complete, tl_tensor **q, tl_tensor **r) { return qr(a, complete, true, q, r); }
tl_tensor *tl_qr_r(tl_tensor *a) {
    tl_tensor *r;
    return qr(a, false, false, NULL, &r) ? r : NULL;
}

/* ---- eigh: a = V diag(w) V^T ---- */

static bool eigh_shape(tl_call *c) {
    const struct attr_eigh *attr = c->attr;
    if (!call_needs_square(c)) return false;
    const int64_t n = rows_of(c->input[0]);
    if (linalg_eigh_lwork(n, attr->vectors) > INT_MAX) return call_fail(c, "the matrix is too large for LAPACK");
    c->n_outputs = attr->vectors ? 2 : 1;
    return call_output_of(c, 0, c->input[0]->dtype, 1, n, 0) && (!attr->vectors || call_output_like(c, 1, 0));
}
static void eigh_cost(const tl_call *c, struct cost *cost) {
    const struct attr_eigh *attr = c->attr;
    const count n3 = cube(c->input[0]);
    cost_traffic(c, cost, batch_of(c->input[0]) * (attr->vectors ? 9 * n3 : 4 * n3 / 3));
}
static uint64_t eigh_workspace(const tl_call *c) {
    const struct attr_eigh *attr = c->attr;
    return scratch_bytes(c, linalg_eigh_numbers(rows_of(c->input[0]), attr->vectors));
}

/* x - x^T */
static tl_tensor *skew(tl_tensor *x) { return x ? tl_sub(x, turned(x)) : NULL; }

/* d_ij = x_j - x_i, and 1 on the diagonal */
static tl_tensor *differences(tl_tensor *x) {
    if (!x) return NULL;
    const int64_t n = x->shape[x->rank - 1];
    tl_tensor *row = tl_unsqueeze(x, -2), *column = row ? tl_unsqueeze(x, -1) : NULL;
    tl_tensor *mask = column ? tl_eye(n, n, TL_BOOL, x->storage->device) : NULL;
    return mask ? tl_masked_fill(tl_sub(row, column), mask, 1) : NULL;
}

/* da = V (diag(gw) + skew(V^T gV) / 2 / (w_j - w_i)) V^T, with skew(x) = x - x^T: it is symmetric */
static void eigh_backward(tl_gradient *g) {
    const struct attr_eigh *attr = g->node->attr;
    tl_tensor *vectors = attr->vectors ? gradient_output(g, 1) : NULL, *inner = NULL;
    if (!vectors || (!g->grad[0] && !g->grad[1])) return;
    if (g->grad[1]) {
        tl_tensor *turn = skew(product_tn(vectors, g->grad[1])), *between = differences(gradient_output(g, 0));
        inner = turn && between ? tl_div(tl_scale(turn, 0.5), between) : NULL;
        if (!inner) return;
    }
    inner = sum_of(inner, diagonal_matrix(g->grad[0]));
    g->result[0] = product(vectors, product_nt(inner, vectors));
}

const tl_op op_eigh = {RECORD(KERNEL, eigh, 2),
                       .shapes = "a (...,n,n), symmetric -> values (...,n) [, vectors (...,n,n)]",
                       .dtypes = "f32, f64",
                       .flops = "9 n^3 per matrix; values alone 4/3 n^3",
                       .shape = eigh_shape,
                       .cost = eigh_cost,
                       .workspace = eigh_workspace,
                       .backward = eigh_backward,
                       .is_wide = true,
                       .is_costly = true,
                       .saves = {TL_OUTPUT(0) | TL_OUTPUT(1)}};

static bool eigh(tl_tensor *a, bool upper, bool has_vectors, tl_tensor **values, tl_tensor **vectors) {
    if (!tensor_check(a, "eigh")) return false;
    const struct attr_eigh attr = {upper, has_vectors || tensor_needs_grad(a)};
    tl_call c;
    call_begin(&c, &op_eigh, &a, 1, ATTR(attr));
    if (tl_error() != TL_OK || !op_apply(&c)) return false;
    if (values) *values = c.output[0];
    if (vectors) *vectors = c.output[1];
    return true;
}
bool tl_eigh(tl_tensor *a, bool upper, tl_tensor **values, tl_tensor **vectors) {
    return eigh(a, upper, true, values, vectors);
}
tl_tensor *tl_eigvalsh(tl_tensor *a, bool upper) {
    tl_tensor *values;
    return eigh(a, upper, false, &values, NULL) ? values : NULL;
}

/* ---- eig: a V = V diag(w), in complex numbers ---- */

static bool eig_shape(tl_call *c) {
    const struct attr_eig *attr = c->attr;
    if (!call_needs_square(c)) return false;
    const tl_tensor *a = c->input[0];
    int64_t shape[TL_MAX_RANK];
    if (a->rank == TL_MAX_RANK) return call_fail(c, "pairs have more than %d axes", TL_MAX_RANK);
    if (linalg_eig_lwork(rows_of(a)) > INT_MAX) return call_fail(c, "the matrix is too large for LAPACK");
    memcpy(shape, a->shape, (size_t)a->rank * sizeof *shape);
    shape[a->rank] = 2;
    c->n_outputs = attr->vectors ? 2 : 1;
    return call_output_of(c, 0, a->dtype, 2, rows_of(a), 2) &&
           (!attr->vectors || call_output(c, 1, a->dtype, a->rank + 1, shape));
}
/* 25 n^3 by the QR algorithm; the values alone 10 n^3 */
static void eig_cost(const tl_call *c, struct cost *cost) {
    const struct attr_eig *attr = c->attr;
    cost_traffic(c, cost, batch_of(c->input[0]) * (attr->vectors ? 25 : 10) * cube(c->input[0]));
}
static uint64_t eig_workspace(const tl_call *c) {
    const struct attr_eig *attr = c->attr;
    return scratch_bytes(c, linalg_eig_numbers(rows_of(c->input[0]), attr->vectors));
}

/* a^-1 b of complex matrices, as one of real ones: [ re -im ] [ x_re ]   [ b_re ]
 *                                                  [ im  re ] [ x_im ] = [ b_im ] */
static tl_tensor *complex_solved(tl_tensor *a, tl_tensor *b) {
    if (!a || !b) return NULL;
    const int64_t n = rows_of(a);
    tl_tensor *re = tl_real(a), *im = tl_imag(a), *negative = im ? tl_neg(im) : NULL;
    if (!re || !negative) return NULL;
    tl_tensor *halves[2] = {tl_concat((tl_tensor *[]){re, negative}, 2, -1), NULL};
    halves[1] = tl_concat((tl_tensor *[]){im, re}, 2, -1);
    tl_tensor *sides[2] = {tl_real(b), NULL};
    sides[1] = tl_imag(b);
    if (!halves[0] || !halves[1] || !sides[0] || !sides[1]) return NULL;
    tl_tensor *whole = tl_concat(halves, 2, -2), *side = tl_concat(sides, 2, -2);
    tl_tensor *x = whole && side ? tl_solve(whole, side) : NULL;
    re = part(x, -2, 0, n);
    im = part(x, -2, n, 2 * n);
    return re && im ? tl_complex(re, im) : NULL;
}

/* With M = V^H gV and E_ij = w_j - w_i: da = V^-H ((M - V^H V diag(re M)) / conj(E), diag(gw) on its diagonal) V^H, of
 * which a has the real part. */
static void eig_backward(tl_gradient *g) {
    const struct attr_eig *attr = g->node->attr;
    if (!attr->vectors || (!g->grad[0] && !g->grad[1])) return;
    tl_tensor *w = tl_view_as_complex(gradient_output(g, 0)), *v = tl_view_as_complex(gradient_output(g, 1));
    if (!w || !v) return;
    tl_tensor *across = turned(tl_conj(v)), *inner = NULL; /* V^H */
    tl_tensor *on = tl_eye(rows_of(v), rows_of(v), TL_BOOL, v->storage->device);
    if (!across || !on) return;
    if (g->grad[1]) {
        tl_tensor *m = product(across, tl_view_as_complex(tl_contiguous(g->grad[1])));
        tl_tensor *off = tl_logical_not(on), *of_m = m && off ? tl_masked_fill(tl_real(m), off, 0) : NULL;
        of_m = of_m ? tl_sum(of_m, (const int[]){-2}, 1, true) : NULL;
        tl_tensor *lost = of_m ? product(across, tl_mul(v, of_m)) : NULL;
        tl_tensor *row = tl_unsqueeze(w, -2), *between = row ? tl_conj(tl_sub(row, tl_unsqueeze(w, -1))) : NULL;
        between = between ? tl_masked_fill(between, on, 1) : NULL;
        inner = lost && between ? tl_div(tl_sub(m, lost), between) : NULL;
        inner = inner ? tl_masked_fill(inner, on, 0) : NULL;
        if (!inner) return;
    }
    if (g->grad[0]) {
        tl_tensor *gw = tl_unsqueeze(tl_view_as_complex(tl_contiguous(g->grad[0])), -1);
        tl_tensor *none = gw ? tl_zeros_like(gw) : NULL, *diagonal = none ? tl_where(on, gw, none) : NULL;
        inner = sum_of(inner, diagonal);
        if (!diagonal || !inner) return;
    }
    tl_tensor *whole = complex_solved(across, product(inner, across));
    g->result[0] = whole ? tl_real(whole) : NULL;
}

const tl_op op_eig = {RECORD(KERNEL, eig, 2),
                      .shapes = "a (...,n,n) -> values (...,n,2) [, vectors (...,n,n,2)]; pairs",
                      .dtypes = "f32, f64",
                      .flops = "25 n^3 per matrix; values alone 10 n^3",
                      .shape = eig_shape,
                      .cost = eig_cost,
                      .workspace = eig_workspace,
                      .backward = eig_backward,
                      .is_wide = true,
                      .is_costly = true,
                      .saves = {TL_OUTPUT(0) | TL_OUTPUT(1)}};

static bool eig(tl_tensor *a, bool vectors, tl_tensor **values, tl_tensor **all) {
    if (!tensor_check(a, "eig")) return false;
    const struct attr_eig attr = {vectors || tensor_needs_grad(a)};
    tl_call c;
    call_begin(&c, &op_eig, &a, 1, ATTR(attr));
    if (tl_error() != TL_OK || !op_apply(&c)) return false;
    if (values && !(*values = tl_view_as_complex(c.output[0]))) return false;
    return !all || (*all = tl_view_as_complex(c.output[1]));
}
bool tl_eig(tl_tensor *a, tl_tensor **values, tl_tensor **vectors) { return eig(a, true, values, vectors); }
tl_tensor *tl_eigvals(tl_tensor *a) {
    tl_tensor *values;
    return eig(a, false, &values, NULL) ? values : NULL;
}

/* ---- svd: a = U diag(s) V^T ---- */

static bool svd_shape(tl_call *c) {
    const struct attr_svd *attr = c->attr;
    if (!call_needs_matrix(c) || !call_fits(c)) return false;
    const tl_tensor *a = c->input[0];
    const int64_t m = rows_of(a), n = columns_of(a), k = linalg_least(m, n);
    const count largest = (count)linalg_most(m, n);
    if (linalg_svd_lwork(m, n, attr->vectors) > INT_MAX || (attr->full && attr->vectors && largest * largest > INT_MAX))
        return call_fail(c, "the matrix is too large for LAPACK");
    c->n_outputs = attr->vectors ? 3 : 1;
    return call_output_of(c, 0, a->dtype, 1, k, 0) &&
           (!attr->vectors || (call_output_of(c, 1, a->dtype, 2, m, attr->full ? m : k) &&
                               call_output_of(c, 2, a->dtype, 2, attr->full ? n : k, n)));
}
/* With m >= n: values 4mn^2 - 4/3 n^3; all of U 4m^2 n + 8mn^2 + 9n^3, its first n columns 14mn^2 + 8n^3 */
static void svd_cost(const tl_call *c, struct cost *cost) {
    const struct attr_svd *attr = c->attr;
    const tl_tensor *a = c->input[0];
    const count m = (count)linalg_most(rows_of(a), columns_of(a)), n = (count)linalg_least(rows_of(a), columns_of(a));
    const count flops = !attr->vectors ? 4 * m * n * n - 4 * n * n * n / 3
                        : attr->full   ? 4 * m * m * n + 8 * m * n * n + 9 * n * n * n
                                       : 14 * m * n * n + 8 * n * n * n;
    cost_traffic(c, cost, batch_of(a) * flops);
}
static uint64_t svd_workspace(const tl_call *c) {
    const struct attr_svd *attr = c->attr;
    return scratch_bytes(c,
                         linalg_svd_numbers(rows_of(c->input[0]), columns_of(c->input[0]), attr->vectors, attr->full));
}

/* (skew(U^T gU) s_j + s_i skew(V^T gV)) / (s_j^2 - s_i^2) + diag(gs): the gradient between U and V^T */
static tl_tensor *svd_inner(tl_tensor *u, tl_tensor *s, tl_tensor *vh, tl_tensor *gu, tl_tensor *gs, tl_tensor *gvh) {
    tl_tensor *inner = NULL;
    if (gu || gvh) {
        tl_tensor *row = tl_unsqueeze(s, -2), *column = tl_unsqueeze(s, -1), *left = NULL, *right = NULL;
        if (gu) {
            left = skew(product_tn(u, gu));
            left = left ? tl_mul(left, row) : NULL;
        }
        if (gvh) {
            right = skew(product_nt(vh, gvh));
            right = right ? tl_mul(column, right) : NULL;
        }
        if ((gu && !left) || (gvh && !right)) return NULL;
        tl_tensor *between = differences(tl_square(s));
        inner = between ? tl_div(sum_of(left, right), between) : NULL;
        if (!inner) return NULL;
    }
    return gs ? sum_of(inner, diagonal_matrix(gs)) : inner;
}

/* With I the inner gradient: da = U I V^T, and where U is not square + (1 - U U^T) gU s^-1 V^T, where V is not square
 * + U s^-1 gV^T (1 - V V^T). */
static void svd_backward(tl_gradient *g) {
    const struct attr_svd *attr = g->node->attr;
    if (!attr->vectors || (!g->grad[0] && !g->grad[1] && !g->grad[2])) return;
    tl_tensor *s = gradient_output(g, 0), *u = gradient_output(g, 1), *vh = gradient_output(g, 2);
    if (!s || !u || !vh) return;
    const int64_t k = s->shape[s->rank - 1], m = rows_of(u), n = columns_of(vh);
    tl_tensor *gu = part(g->grad[1], -1, 0, k), *gvh = part(g->grad[2], -2, 0, k);
    u = part(u, -1, 0, k);
    vh = part(vh, -2, 0, k);
    tl_tensor *inner = svd_inner(u, s, vh, gu, g->grad[0], gvh);
    if (!inner) return;
    tl_tensor *left = product(u, inner); /* (m,k) */
    if (m > k && gu) {
        tl_tensor *scaled = tl_div(gu, tl_unsqueeze(s, -2)), *within = product(u, product_tn(u, scaled));
        left = left && within ? tl_add(left, tl_sub(scaled, within)) : NULL;
    }
    tl_tensor *all = product(left, vh);
    if (n > k && gvh) {
        tl_tensor *scaled = tl_div(gvh, tl_unsqueeze(s, -1)), *within = product(product_nt(scaled, vh), vh);
        all = all && within ? tl_add(all, product(u, tl_sub(scaled, within))) : NULL;
    }
    g->result[0] = all;
}

const tl_op op_svd = {RECORD(KERNEL, svd, 3),
                      .shapes =
                          "a (...,m,n) -> s (...,k) [, u (...,m,k), vh (...,k,n)]; k = min(m,n); full: square ones",
                      .dtypes = "f32, f64",
                      .flops = "14mn^2 + 8n^3 per matrix, m >= n; values alone 4mn^2 - 4/3 n^3",
                      .shape = svd_shape,
                      .cost = svd_cost,
                      .workspace = svd_workspace,
                      .backward = svd_backward,
                      .is_wide = true,
                      .is_costly = true,
                      .saves = {TL_OUTPUT(0) | TL_OUTPUT(1) | TL_OUTPUT(2)}};

static bool svd(tl_tensor *a, bool full, bool vectors, tl_tensor **u, tl_tensor **s, tl_tensor **vh) {
    if (!tensor_check(a, "svd")) return false;
    const struct attr_svd attr = {full, vectors || tensor_needs_grad(a)};
    tl_call c;
    call_begin(&c, &op_svd, &a, 1, ATTR(attr));
    if (tl_error() != TL_OK || !op_apply(&c)) return false;
    if (u) *u = c.output[1];
    if (s) *s = c.output[0];
    if (vh) *vh = c.output[2];
    return true;
}
bool tl_svd(tl_tensor *a, bool full, tl_tensor **u, tl_tensor **s, tl_tensor **vh) {
    return svd(a, full, true, u, s, vh);
}
tl_tensor *tl_svdvals(tl_tensor *a) {
    tl_tensor *s;
    return svd(a, false, false, NULL, &s, NULL) ? s : NULL;
}
