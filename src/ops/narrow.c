/* narrow.c: products of 8-bit numbers with one scale per tensor.
 *
 * An operand is rounded once, when it is first needed, and one pass makes both forms that products need, its rows and
 * its transpose, since 8-bit products read both factors along the axis that is summed over.
 *
 *      y  = x w^T        x and w in e4m3           rows of x, rows of w
 *      dx = g w          g in e5m2                 rows of g, transpose of w
 *      dw = g^T x                                  transposes of g and x
 *
 * The graph keeps the transpose of x, in 8 bits, in the place of x. Of w it keeps the scale: its transpose is made
 * in backward, so that weights are not stored twice. */
#include <string.h>

#include "ops/ops.h"

/* ---- narrow ---- */

static bool narrow_shape(tl_call *c) {
    const struct attr_narrow *a = c->attr;
    const tl_tensor *x = c->input[0];
    const bool has_scale = c->n_inputs > 1;
    if (x->rank < 2 || !tl_is_contiguous(x)) return call_fail(c, "needs dense rows");
    if (!call_needs_float(c, 0)) return false;
    if (has_scale && (c->input[1]->dtype != TL_F32 || c->input[1]->numel != 1))
        return call_fail(c, "the scale must be one f32");
    const int64_t C = x->shape[x->rank - 1], transposed[2] = {C, C ? x->numel / C : 0};
    c->n_outputs = a->gives_rows + a->gives_transposed + !has_scale;
    int at = 0;
    if (a->gives_rows && !call_output(c, at++, a->dtype, x->rank, x->shape)) return false;
    if (a->gives_transposed && !call_output(c, at++, a->dtype, 2, transposed)) return false;
    return has_scale || call_output(c, at, TL_F32, 0, NULL);
}
/* a division for each element, and, where the scale is not given, the larger of two magnitudes */
static void narrow_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (count)(c->n_inputs > 1 ? 1 : 2) * (uint64_t)c->input[0]->numel);
}
const tl_op op_narrow = {RECORD(KERNEL, narrow, 3),
                         .shape = narrow_shape,
                         .cost = narrow_cost,
                         .shapes = "x (...,C) [, scale ()] -> [rows (...,C)] [, transposed (C,rows)] [, scale ()]",
                         .dtypes = "floats to f8e4m3 or f8e5m2",
                         .flops = "2 per element, 1 with a given scale"};

struct narrowed {
    tl_tensor *rows, *transposed, *scale;
};

/* `scale` NULL: x's own. False: recorded. */
static bool narrow(tl_tensor *x, tl_tensor *scale, tl_dtype dtype, bool gives_rows, bool gives_transposed,
                   struct narrowed *narrowed) {
    struct attr_narrow a;
    tl_call c;
    memset(&a, 0, sizeof a);
    a.dtype = dtype;
    a.gives_rows = gives_rows;
    a.gives_transposed = gives_transposed;
    tl_tensor *input[2] = {tl_contiguous(x), scale};
    if (!input[0]) return false;
    call_begin(&c, &op_narrow, input, scale ? 2 : 1, ATTR(a));
    if (!op_apply(&c)) return false;
    *narrowed = (struct narrowed){gives_rows ? c.output[0] : NULL, gives_transposed ? c.output[gives_rows] : NULL,
                                  scale ? scale : c.output[gives_rows + gives_transposed]};
    return true;
}

/* ---- matmul_f8 ---- */

enum { A, B, SCALE_A, SCALE_B, X, WEIGHT, TRANSPOSED, BIAS };

static bool is_f8(tl_dtype dtype) { return dtype == TL_F8E4M3 || dtype == TL_F8E5M2; }

/* a and b from input `first` on, their scales behind them. */
static bool factors_fit(const tl_call *c, int first) {
    const tl_tensor *a = c->input[first], *b = c->input[first + 1];
    if (!is_f8(a->dtype) || !is_f8(b->dtype)) return call_fail(c, "needs factors of 8 bits");
    if (a->rank < 2 || b->rank != 2 || a->shape[a->rank - 1] != b->shape[1])
        return call_fail(c, "needs (...,k) and (n,k)");
    if (!tl_is_contiguous(a) || !tl_is_contiguous(b)) return call_fail(c, "needs dense factors");
    for (int i = 2; i < 4; i++)
        if (c->input[first + i]->dtype != TL_F32 || c->input[first + i]->numel != 1)
            return call_fail(c, "a scale must be one f32");
    return true;
}

static bool matmul_f8_shape(tl_call *c) {
    const struct attr_matmul_f8 *at = c->attr;
    const tl_tensor *a = c->input[A], *b = c->input[B], *bias = c->n_inputs > BIAS ? c->input[BIAS] : NULL;
    int64_t shape[TL_MAX_RANK];
    if (!factors_fit(c, A)) return false;
    if (bias &&
        (bias->rank != 1 || bias->shape[0] != b->shape[0] || bias->dtype != at->dtype || !tl_is_contiguous(bias)))
        return call_fail(c, "the bias must be dense, and have the length of a row of the result and its dtype");
    memcpy(shape, a->shape, (size_t)a->rank * sizeof *shape);
    shape[a->rank - 1] = b->shape[0];
    return call_output(c, 0, at->dtype, a->rank, shape);
}

/* 2mkn, and mn for a bias. Operands that only gradients read are not read here. */
static void matmul_f8_cost(const tl_call *c, struct cost *cost) {
    const bool has_bias = c->n_inputs > BIAS;
    tl_call read = *c;
    read.n_inputs = X;
    cost_traffic(&read, cost, (count)(2 * (uint64_t)c->input[B]->shape[1] + has_bias) * (uint64_t)c->output[0]->numel);
    if (has_bias) cost->part[0].bytes_read += tensor_traffic(c->input[BIAS]);
}

static bool matmul_f8_acc_shape(tl_call *c) {
    const tl_tensor *sum = c->input[0], *a = c->input[1], *b = c->input[2];
    if (!factors_fit(c, 1)) return false;
    return (sum->rank == 2 && a->rank == 2 && sum->shape[0] == a->shape[0] && sum->shape[1] == b->shape[0]) ||
           call_fail(c, "the sum has another shape than the product");
}
static void matmul_f8_acc_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 2 * (count)c->input[1]->shape[1] * (uint64_t)c->input[0]->numel);
}
static tl_dtype matmul_f8_acc_dtype(const tl_call *c) { return c->input[1]->dtype; }

/* Added to `into` when there is one that fits. */
static tl_tensor *product(tl_tensor *a, tl_tensor *b, tl_tensor *scale_a, tl_tensor *scale_b, tl_dtype dtype,
                          tl_tensor *into) {
    struct attr_matmul_f8 at;
    tl_tensor *input[5] = {into, a, b, scale_a, scale_b};
    tl_call c;
    memset(&at, 0, sizeof at);
    at.dtype = dtype;
    at.is_timed = fast_is_on();
    bool fits = into && a->rank == 2 && tl_is_contiguous(into) && (into->dtype == dtype || into->dtype == TL_F32);
    call_begin(&c, fits ? &op_matmul_f8_acc : &op_matmul_f8, input + !fits, 4 + fits, ATTR(at));
    return op_apply(&c);
}

/* y = x w^T: dx = g w, dw = g^T x, with g in e5m2; a bias's is summed over the rows when it is delivered */
static void matmul_f8_backward(tl_gradient *g) {
    const tl_dtype dtype = g->node->edges[X].dtype;
    tl_tensor *grad = g->grad[0];
    struct narrowed ng, nw;
    if (g->node->n_inputs > BIAS) g->result[BIAS] = grad;
    if (!g->needs[X] && !g->needs[WEIGHT]) return;
    if (grad->dtype != dtype) grad = tl_cast(grad, dtype);
    if (!grad || !narrow(grad, NULL, TL_F8E5M2, g->needs[X], g->needs[WEIGHT], &ng)) return;
    tl_tensor *scale_w = gradient_input(g, SCALE_B);
    if (g->needs[X]) {
        if (!narrow(gradient_input(g, WEIGHT), scale_w, TL_F8E4M3, false, true, &nw)) return;
        g->result[X] = product(ng.rows, nw.transposed, ng.scale, scale_w, dtype, g->into[X]);
    }
    if (g->needs[WEIGHT])
        g->result[WEIGHT] = product(ng.transposed, gradient_input(g, TRANSPOSED), ng.scale, gradient_input(g, SCALE_A),
                                    dtype, g->into[WEIGHT]);
}

const tl_op op_matmul_f8 = {
    RECORD(KERNEL, matmul_f8, 1),
    .shapes = "a (...,k), b (n,k), scale_a (), scale_b () [, x, weight, transposed [, bias (n)]] "
              "-> (...,n)",
    .dtypes = "factors f8e4m3 or f8e5m2, scales f32; the result any float",
    .flops = "2mkn; bias mn",
    .shape = matmul_f8_shape,
    .cost = matmul_f8_cost,
    .backward = matmul_f8_backward,
    .saves_any = TL_INPUT(SCALE_A) | TL_INPUT(SCALE_B) | TL_INPUT(WEIGHT) | TL_INPUT(TRANSPOSED),
    .is_costly = true};
const tl_op op_matmul_f8_acc = {RECORD(KERNEL, matmul_f8_acc, 1),
                                .shapes = "sum (m,n), a (m,k), b (n,k), scale_a (), scale_b () -> sum",
                                .dtypes = "factors f8e4m3 or f8e5m2, scales f32; sum any float",
                                .flops = "2mkn",
                                .shape = matmul_f8_acc_shape,
                                .cost = matmul_f8_acc_cost,
                                .overwrites = {OVERWRITES(0)},
                                .compute_dtype = matmul_f8_acc_dtype};

/* Depends on the target and on sizes alone, so a price knows it. */
bool linear_f8_fits(const tl_tensor *x, const tl_tensor *weight, const tl_tensor *bias) {
    const struct target *t = x->storage->device->target;
    if (!t->rules->multiplies_f8) return false;
    if (x->rank < 2 || weight->rank != 2 || weight->dtype != x->dtype || !x->numel || !weight->numel) return false;
    if (x->shape[x->rank - 1] != weight->shape[1]) return false;
    const int64_t n = weight->shape[0], k = weight->shape[1];
    return t->rules->multiplies_f8(t, x->dtype, x->numel / k, n, k) && (!bias || matmul_takes_bias(x, weight, bias));
}

tl_tensor *linear_f8(tl_tensor *x, tl_tensor *weight, tl_tensor *bias) {
    struct attr_matmul_f8 at;
    struct narrowed nx, nw;
    tl_call c;
    const bool turns = tl_needs_grad(weight) && !thread_state()->grad_off;
    bool grad = tl_set_grad_mode(false);
    bool ok = narrow(x, NULL, TL_F8E4M3, true, turns, &nx) && narrow(weight, NULL, TL_F8E4M3, true, false, &nw);
    tl_set_grad_mode(grad);
    if (!ok || (bias && !(bias = tl_contiguous(bias)))) return NULL;
    memset(&at, 0, sizeof at);
    at.dtype = x->dtype;
    at.is_timed = fast_is_on();
    /* if the weight's gradient is not needed, an existing tensor takes the place of x's transpose */
    tl_tensor *input[8] = {nx.rows, nw.rows, nx.scale, nw.scale, x, weight, turns ? nx.transposed : nw.rows, bias};
    call_begin(&c, &op_matmul_f8, input, bias ? 8 : 7, ATTR(at));
    return op_apply(&c);
}
