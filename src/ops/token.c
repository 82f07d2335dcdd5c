/* token.c: from token ids to vectors, and from logits to a loss. */
#include "ops/ops.h"

/* ---- embedding: rows of a table ---- */

static bool embedding_shape(tl_call *c) {
    const tl_tensor *w = c->input[0], *ids = c->input[1];
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_float(c, 0) || !call_needs_index(c, 1)) return false;
    if (w->rank != 2 || ids->rank >= TL_MAX_RANK)
        return call_fail_need(c, "the weight must be a matrix", "[V,C] and ids");
    for (int i = 0; i < ids->rank; i++) shape[i] = ids->shape[i];
    shape[ids->rank] = w->shape[1];
    return call_output(c, 0, w->dtype, ids->rank + 1, shape);
}
/* A gather reads what it fetches: one row per id. */
static void embedding_cost(const tl_call *c, struct cost *cost) {
    count rows = (count)c->output[0]->numel * (count)dtype_info(c->output[0]->dtype)->bits / 8;
    *cost = (struct cost){.n_parts = 1, .part[0] = {COST_HERE, 0, rows + tensor_traffic(c->input[1]), rows}};
}

static bool embedding_grad_shape(tl_call *c) {
    const struct attr_embedding *a = c->attr;
    int64_t shape[2] = {a->n_rows, c->input[0]->shape[1]};
    if (!call_needs_float(c, 0) || !call_needs_index(c, 1)) return false;
    return call_output(c, 0, c->input[0]->dtype, 2, shape);
}
static void embedding_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (count)c->input[0]->numel);
}
/* First place, count and list of the rows of each id. */
static uint64_t embedding_grad_workspace(const tl_call *c) {
    return (uint64_t)(((const struct attr_embedding *)c->attr)->n_rows + 1 + c->input[1]->numel) * sizeof(int32_t);
}

static bool embedding_acc_shape(tl_call *c) {
    const tl_tensor *sum = c->input[0], *g = c->input[1];
    if (!call_needs_float(c, 0) || !call_needs_index(c, 2)) return false;
    bool fits = sum->rank == 2 && g->rank == 2 && sum->shape[1] == g->shape[1] && sum->dtype == g->dtype;
    return fits || call_fail(c, "the sum has other rows than the gradient");
}
/* Rows of the sum are read and written where there are ids: at most one row for each. */
static void embedding_acc_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *g = c->input[1];
    count rows = tensor_traffic(g);
    *cost = (struct cost){.n_parts = 1,
                          .part[0] = {COST_HERE, (count)g->numel, 2 * rows + tensor_traffic(c->input[2]), rows}};
}
static uint64_t embedding_acc_workspace(const tl_call *c) {
    return (uint64_t)(c->input[0]->shape[0] + 1 + c->input[2]->numel) * sizeof(int32_t);
}

/* sum[id] += g: dsum = its gradient, d row = that of the row of its id */
static void embedding_acc_backward(tl_gradient *g) {
    g->result[0] = g->grad[0];
    if (g->needs[1]) g->result[1] = tl_embedding(g->grad[0], gradient_input(g, 2));
}

/* each row of g went to the row of its id: d row = d dweight[id] */
static void embedding_grad_backward(tl_gradient *g) { g->result[0] = tl_embedding(g->grad[0], gradient_input(g, 1)); }

/* dweight[id] = sum of the rows of g with that id. A table that is the head's weight too has a gradient already;
 * most of a vocabulary has nothing to add to it. */
static void embedding_backward(tl_gradient *g) {
    struct attr_embedding a = {g->node->edges[0].shape[0]};
    tl_tensor *ids = tl_contiguous(gradient_input(g, 1));
    if (!ids) return;
    tl_tensor *rows = tl_reshape(g->grad[0], TL_SHAPE(ids->numel, g->node->edges[0].shape[1]));
    rows = tl_contiguous(rows);
    ids = tl_reshape(ids, TL_SHAPE(ids->numel));
    if (!rows || !g->into[0] || g->into[0]->dtype != rows->dtype) {
        g->result[0] = op_apply2(&op_embedding_grad, rows, ids, ATTR(a));
        return;
    }
    tl_tensor *input[3] = {g->into[0], rows, ids};
    tl_call c;
    call_begin(&c, &op_embedding_acc, input, 3, NULL, 0);
    g->result[0] = op_apply(&c);
}

const tl_op op_embedding = {RECORD(KERNEL, embedding, 1),     .shapes = "weight (V,C), ids (...) -> (...,C)",
                            .dtypes = "floats; ids i64, i32", .flops = "0",
                            .shape = embedding_shape,         .cost = embedding_cost,
                            .backward = embedding_backward,   .saves = {TL_INPUT(1)}};
const tl_op op_embedding_grad = {
    RECORD(KERNEL, embedding_grad, 1),       .shapes = "g (N,C), ids (N) -> (V,C)", .dtypes = "floats; ids i64, i32",
    .flops = "NC: one sum per element of g", .shape = embedding_grad_shape,         .cost = embedding_grad_cost,
    .workspace = embedding_grad_workspace,   .backward = embedding_grad_backward,   .saves = {TL_INPUT(1)}};

const tl_op op_embedding_acc = {RECORD(KERNEL, embedding_acc, 1),
                                .shapes = "sum (V,C), g (N,C), ids (N) -> sum",
                                .dtypes = "floats, sum and g alike; ids i64, i32",
                                .flops = "NC: one sum per element of g",
                                .shape = embedding_acc_shape,
                                .cost = embedding_acc_cost,
                                .workspace = embedding_acc_workspace,
                                .backward = embedding_acc_backward,
                                .overwrites = {OVERWRITES(0)},
                                .saves = {0, TL_INPUT(2)}};

tl_tensor *tl_embedding(tl_tensor *weight, tl_tensor *ids) {
    return op_apply2(&op_embedding, tl_contiguous(weight), ids, NULL, 0);
}

/* ---- cross entropy of rows: loss[n] = log sum e^logits[n] - logits[n][target[n]] ---- */

static bool cross_entropy_shape(tl_call *c) {
    const tl_tensor *logits = c->input[0], *targets = c->input[1];
    if (!call_needs_float(c, 0) || !call_needs_index(c, 1)) return false;
    if (logits->rank != 2 || targets->rank != 1 || targets->shape[0] != logits->shape[0])
        return call_fail_need(c, "one target per row of logits", "[N,V] and [N]");
    const struct attr_cross_entropy a = cross_entropy_options(c->attr);
    const tl_dtype wide = statistics_dtype(logits->dtype);
    const bool is_mean = a.reduction == TL_REDUCE_MEAN;
    call_output(c, 0, a.is_narrow ? logits->dtype : wide, a.reduction == TL_REDUCE_NONE, targets->shape);
    call_output(c, 1, wide, 1, targets->shape);
    if (is_mean) call_output(c, 2, wide, 0, NULL);
    c->n_outputs = is_mean ? 3 : 2;
    return true;
}
/* per logit: max, subtract, exp, sum; the sum of rows, and the mean's division */
static void cross_entropy_cost(const tl_call *c, struct cost *cost) {
    const tl_reduction reduction = cross_entropy_options(c->attr).reduction;
    const count rows = reduction == TL_REDUCE_NONE ? 0 : (count)c->input[1]->numel;
    cost_traffic(c, cost, 4 * (count)c->input[0]->numel + rows + (reduction == TL_REDUCE_MEAN));
}
static uint64_t cross_entropy_workspace(const tl_call *c) {
    if (cross_entropy_options(c->attr).reduction == TL_REDUCE_NONE) return 0;
    return (uint64_t)cross_entropy_parts(c->input[1]->numel) * sizeof(struct cross_entropy_part);
}

static bool cross_entropy_grad_shape(tl_call *c) { return call_needs_float(c, 1) && call_output_like(c, 0, 1); }
/* per logit: subtract, exp, times g; and g times the share of a row */
static void cross_entropy_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 3 * (count)c->input[1]->numel + (c->n_inputs > 4));
}
static tl_dtype cross_entropy_grad_dtype(const tl_call *c) { return c->input[1]->dtype; }

static struct attr_cross_entropy options_of(const tl_gradient *g) {
    return cross_entropy_options(g->node->attr_bytes ? g->node->attr : NULL);
}

/* The gradient of each row's loss (N), wide. */
static tl_tensor *row_slopes(tl_gradient *g, tl_tensor *targets) {
    const tl_reduction reduction = options_of(g).reduction;
    tl_tensor *slope = tl_cast(g->grad[0], statistics_dtype(g->node->edges[0].dtype));
    if (reduction == TL_REDUCE_MEAN) slope = tl_mul(slope, gradient_output(g, 2));
    return reduction == TL_REDUCE_NONE ? slope : tl_expand(slope, 1, targets->shape);
}

/* The same in ops, so that it can be differentiated again: softmax(logits) g, and -g at the targets (nll_grad). Rows
 * that are left out, whatever their logits, get 0. */
static tl_tensor *cross_entropy_slope(tl_gradient *to) {
    tl_tensor *logits = gradient_input(to, 0), *targets = gradient_input(to, 1);
    const int64_t ignored = options_of(to).ignore_index;
    if (!logits || !targets) return NULL;
    tl_tensor *g = row_slopes(to, targets), *is_counted = NULL, *zero = NULL;
    if (ignored != TL_IGNORE_NONE) {
        zero = tl_zeros(TL_SCALAR, statistics_dtype(logits->dtype), logits->storage->device);
        is_counted = tl_cmp_scalar(targets, TL_NE, tl_scalar_int(ignored));
        targets = tl_where(is_counted, targets, tl_zeros(TL_SCALAR, targets->dtype, targets->storage->device));
        g = tl_where(is_counted, g, zero);
    }
    if (!g || !targets) return NULL;
    struct attr_nll a = {logits->shape[1]};
    tl_tensor *at_target = op_apply2(&op_nll_grad, tl_contiguous(g), targets, ATTR(a));
    tl_tensor *p = tl_softmax(tl_cast(logits, statistics_dtype(logits->dtype)), -1);
    tl_tensor *share = tl_mul(p, tl_unsqueeze(g, 1));
    if (is_counted) share = tl_where(tl_unsqueeze(is_counted, 1), share, zero);
    return tl_add(share, at_target);
}

/* dlogits = (softmax(logits) - onehot(target)) g */
static void cross_entropy_backward(tl_gradient *g) {
    if (!g->grad[0]) return;
    if (g->creates_graph) {
        g->result[0] = cross_entropy_slope(g);
        return;
    }
    const struct attr_cross_entropy a = options_of(g);
    const bool has_share = a.reduction == TL_REDUCE_MEAN;
    tl_tensor *input[5] = {tl_contiguous(g->grad[0]), gradient_input(g, 0), gradient_input(g, 1), gradient_output(g, 1),
                           has_share ? gradient_output(g, 2) : NULL};
    tl_call c;
    call_begin(&c, &op_cross_entropy_grad, input, has_share ? 5 : 4, ATTR(a));
    g->result[0] = op_apply(&c);
}

const tl_op op_cross_entropy = {RECORD(KERNEL, cross_entropy, 3),
                                .shapes = "logits (N,V), targets (N): loss (N) or (), lse (N) [, a mean's share ()]",
                                .dtypes =
                                    "floats; targets i64, i32; results f32 (f64 for f64), a narrow loss as logits",
                                .flops = "4NV: max, subtract, exp, sum; of all rows N, their mean 1",
                                .shape = cross_entropy_shape,
                                .cost = cross_entropy_cost,
                                .workspace = cross_entropy_workspace,
                                .backward = cross_entropy_backward,
                                .saves = {TL_INPUT(0) | TL_INPUT(1) | TL_OUTPUT(1) | TL_OUTPUT(2)}};
const tl_op op_cross_entropy_grad = {RECORD(KERNEL, cross_entropy_grad, 1),
                                     .shapes = "g (N) or (), logits (N,V), targets (N), lse (N) [, share ()] -> (N,V)",
                                     .dtypes = "floats; targets i64, i32; lse, share f32 (f64 for f64)",
                                     .flops = "3NV: subtract, exp, product; of a mean 1",
                                     .shape = cross_entropy_grad_shape,
                                     .cost = cross_entropy_grad_cost,
                                     .backward = gradient_missing,
                                     .compute_dtype = cross_entropy_grad_dtype};
