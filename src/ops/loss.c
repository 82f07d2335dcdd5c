/* loss.c: losses with all their options.
 *
 * tl_cross_entropy is the one that training uses: its op (token.c) reads the logits once and keeps no second tensor
 * of their size; it leaves rows out and adds up the others. Ids with weights take the same path, with small tensors of
 * one number per row around it. Label smoothing and probabilities as targets need every log probability, and go
 * through log_softmax.
 */
#include <string.h>

#include "ops/reduce.h"

/* ---- nll: -x[n][target[n]] ---- */

static bool nll_shape(tl_call *c) {
    const tl_tensor *x = c->input[0], *targets = c->input[1];
    if (!call_needs_float(c, 0) || !call_needs_index(c, 1)) return false;
    if (x->rank != 2 || targets->rank != 1 || targets->shape[0] != x->shape[0])
        return call_fail_need(c, "one target per row", "[N,V] and [N]");
    return call_output(c, 0, x->dtype, 1, targets->shape);
}
/* negate. A gather reads what it fetches: one element per target. */
static void nll_cost(const tl_call *c, struct cost *cost) {
    count fetched = tensor_traffic(c->output[0]);
    *cost = (struct cost){
        .n_parts = 1,
        .part[0] = {COST_HERE, (count)c->output[0]->numel, fetched + tensor_traffic(c->input[1]), fetched}};
}
static bool nll_grad_shape(tl_call *c) {
    const struct attr_nll *a = c->attr;
    if (!call_needs_float(c, 0) || !call_needs_index(c, 1)) return false;
    int64_t shape[2] = {c->input[0]->shape[0], a->n_classes};
    return call_output(c, 0, c->input[0]->dtype, 2, shape);
}
static void nll_grad_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, (count)c->input[0]->numel); }

static tl_tensor *nll(tl_tensor *x, tl_tensor *targets) {
    x = tl_contiguous(x);
    return op_apply2(&op_nll, x, tl_contiguous(targets), NULL, 0);
}

/* -g at [n][target[n]], 0 elsewhere; and back */
static void nll_backward(tl_gradient *g) {
    struct attr_nll a = {g->node->edges[0].shape[1]};
    g->result[0] = op_apply2(&op_nll_grad, tl_contiguous(g->grad[0]), gradient_input(g, 1), ATTR(a));
}
static void nll_grad_backward(tl_gradient *g) { g->result[0] = nll(g->grad[0], gradient_input(g, 1)); }

const tl_op op_nll = {RECORD(KERNEL, nll, 1),
                      .shapes = "x [N,V], targets [N]; gives [N]",
                      .dtypes = "x float, targets i64 or i32",
                      .flops = "one per target: negate",
                      .shape = nll_shape,
                      .cost = nll_cost,
                      .backward = nll_backward,
                      .saves = {TL_INPUT(1)}};
const tl_op op_nll_grad = {RECORD(KERNEL, nll_grad, 1),
                           .shapes = "g [N], targets [N]; gives [N,V]",
                           .dtypes = "g float, targets i64 or i32",
                           .flops = "one per target: negate",
                           .shape = nll_grad_shape,
                           .cost = nll_grad_cost,
                           .backward = nll_grad_backward,
                           .saves = {TL_INPUT(1)}};

/* ---- Reductions of losses ---- */

static bool reduction_check(const char *name, tl_reduction reduction) {
    return (unsigned)reduction <= TL_REDUCE_SUM ||
           error_set(TL_ERROR_USE, "%s: no reduction has the number %d", name, (int)reduction);
}

static tl_tensor *reduced(tl_tensor *loss, tl_reduction reduction) {
    return reduction == TL_REDUCE_NONE ? loss : reduction == TL_REDUCE_MEAN ? tl_mean_all(loss) : tl_sum_all(loss);
}

/* ---- Cross entropy and nll with options ---- */

tl_cross_entropy_options tl_cross_entropy_defaults(void) {
    return (tl_cross_entropy_options){.ignore_index = TL_IGNORE_NONE, .reduction = TL_REDUCE_MEAN};
}

/* The shape of a loss per row: that of x (V), (N,V) or (N,V,d1,...) without its classes. */
struct frame {
    int rank, class_axis;
    int64_t shape[TL_MAX_RANK], n_rows;
};

static bool frame_begin(struct frame *f, const char *name, const tl_tensor *x, const tl_tensor *targets) {
    if (x->rank == 0)
        return error_set(TL_ERROR_USE, "%s: logits have an axis of classes (need [V], [N,V] or [N,V,d1,...])", name);
    *f = (struct frame){.rank = x->rank - 1, .class_axis = x->rank == 1 ? 0 : 1, .n_rows = 1};
    for (int i = 0, j = 0; i < x->rank; i++) {
        if (i == f->class_axis) continue;
        f->n_rows *= x->shape[i];
        f->shape[j++] = x->shape[i];
    }
    const bool is_float = dtype_is_float(targets->dtype);
    if (is_float && !shape_equal(x->rank, x->shape, targets->rank, targets->shape))
        return error_set(TL_ERROR_USE, "%s: probabilities must have the shape of the logits", name);
    if (!is_float && !shape_equal(f->rank, f->shape, targets->rank, targets->shape))
        return error_set(TL_ERROR_USE,
                         "%s: one target per row (need [V] and [], [N,V] and [N], or [N,V,d1,...] and [N,d1,...])",
                         name);
    return true;
}

/* x as (rows, V), a copy where the classes are not the last axis; and ids as (rows). (N,V) and (N) stay as they are. */
static tl_tensor *frame_classes(const struct frame *f, tl_tensor *x) {
    if (x->rank == 2) return x;
    const int64_t n_classes = x->shape[f->class_axis];
    int axes[TL_MAX_RANK];
    for (int i = 0; i < x->rank; i++) axes[i] = i < f->class_axis ? i : i + 1;
    axes[x->rank - 1] = f->class_axis;
    return tl_reshape(tl_permute(x, axes), TL_SHAPE(f->n_rows, n_classes));
}
static tl_tensor *frame_targets(const struct frame *f, tl_tensor *targets) {
    if (dtype_is_float(targets->dtype)) return frame_classes(f, targets);
    return targets->rank == 1 ? targets : tl_reshape(targets, TL_SHAPE(f->n_rows));
}

/* The losses of rows in the targets' shape; a reduced one as it is. */
static tl_tensor *frame_end(const struct frame *f, tl_tensor *loss, tl_reduction reduction) {
    return reduction != TL_REDUCE_NONE || f->rank == 1 ? loss : tl_reshape(loss, f->rank, f->shape);
}

static bool options_check(const char *name, const struct frame *f, const tl_tensor *x,
                          const tl_cross_entropy_options *o) {
    const int64_t n_classes = x->shape[f->class_axis];
    if (!reduction_check(name, o->reduction)) return false;
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return error_set(TL_ERROR_USE, "%s: label_smoothing must be between 0.0 and 1.0. Got: %g", name,
                         o->label_smoothing);
    if (!o->weight) return true;
    if (!tensor_check(o->weight, name)) return false;
    if (o->weight->rank != 1 || o->weight->shape[0] != n_classes || !dtype_is_float(o->weight->dtype))
        return error_set(TL_ERROR_USE, "%s: weight tensor should be defined either for all %lld classes or no classes",
                         name, (long long)n_classes);
    return true;
}

/* Per row of ids: whether it counts, an id that can be looked up, and its weight. */
struct rows {
    tl_tensor *is_counted; /* (N) bool */
    tl_tensor *ids;        /* (N), 0 where the row does not count */
    tl_tensor *weight;     /* (N), 0 where the row does not count */
};

static bool rows_begin(struct rows *rows, tl_tensor *targets, const tl_cross_entropy_options *o, tl_dtype dtype) {
    tl_device *device = targets->storage->device;
    tl_tensor *zero = tl_zeros(TL_SCALAR, targets->dtype, device);
    if (o->ignore_index == TL_IGNORE_NONE) rows->is_counted = tl_ones(targets->rank, targets->shape, TL_BOOL, device);
    else rows->is_counted = tl_cmp_scalar(targets, TL_NE, tl_scalar_int(o->ignore_index));
    rows->ids = tl_where(rows->is_counted, targets, zero);
    if (!rows->ids) return false;
    if (!o->weight) {
        rows->weight = tl_cast(rows->is_counted, dtype);
        return rows->weight != NULL;
    }
    tl_tensor *table = tl_reshape(tl_cast(o->weight, dtype), TL_SHAPE(o->weight->numel, 1));
    tl_tensor *weight = tl_reshape(tl_embedding(table, rows->ids), TL_SHAPE(targets->numel));
    rows->weight = tl_where(rows->is_counted, weight, tl_zeros(TL_SCALAR, dtype, device));
    return rows->weight != NULL;
}

/* The weighted mean: the terms have their weights already. Both sums in f32 at least: bf16 cannot count to 257. */
static tl_tensor *rows_reduced(const struct rows *rows, tl_tensor *loss, tl_reduction reduction) {
    if (reduction == TL_REDUCE_NONE) return loss;
    if (reduction == TL_REDUCE_SUM || !loss) return tl_sum_all(loss);
    tl_tensor *sum = reduce_sum_wide("nll_loss", loss, NULL, 0, false);
    tl_tensor *mean = tl_div(sum, reduce_sum_wide("nll_loss", rows->weight, NULL, 0, false));
    return mean ? tl_cast(mean, loss->dtype) : NULL;
}

/* loss[n] w[target[n]]; rows that do not count are left out, even if they hold NaN. */
static tl_tensor *rows_weighted(const struct rows *rows, tl_tensor *loss, const tl_cross_entropy_options *o) {
    if (o->weight) loss = tl_mul(loss, rows->weight);
    if (!loss) return NULL;
    return tl_where(rows->is_counted, loss, tl_zeros(TL_SCALAR, loss->dtype, loss->storage->device));
}

/* sum over classes of -w[c] logp[n][c] t[n][c]; t, w may be NULL for 1 */
static tl_tensor *class_sum(tl_tensor *logp, tl_tensor *t, tl_tensor *weight) {
    const int last = -1;
    if (weight) logp = tl_mul(logp, tl_cast(weight, logp->dtype));
    if (logp && t) logp = tl_mul(logp, t);
    return tl_neg(tl_sum(logp, &last, 1, false));
}

/* Without weights and smoothing: one op, the case of training. */
static tl_tensor *plain_loss(tl_tensor *logits, tl_tensor *targets, const tl_cross_entropy_options *o) {
    struct attr_cross_entropy a;
    memset(&a, 0, sizeof a); /* padding too: the graph compares and copies bytes */
    a.ignore_index = o->ignore_index;
    a.reduction = o->reduction;
    a.is_narrow = o->is_narrow;
    logits = tl_contiguous(logits);
    return op_apply2(&op_cross_entropy, logits, tl_contiguous(targets), ATTR(a));
}

static tl_tensor *ids_loss(tl_tensor *logits, tl_tensor *targets, const tl_cross_entropy_options *o) {
    struct rows rows;
    const double e = o->label_smoothing;
    if (e == 0 && !o->weight) return plain_loss(logits, targets, o);
    if (!rows_begin(&rows, targets, o, statistics_dtype(logits->dtype))) return NULL;
    if (e == 0) {
        tl_tensor *ids = tl_contiguous(rows.ids);
        tl_tensor *loss = op_apply2(&op_cross_entropy, tl_contiguous(logits), ids, NULL, 0);
        return rows_reduced(&rows, rows_weighted(&rows, loss, o), o->reduction);
    }
    tl_tensor *logp = tl_log_softmax(tl_cast(logits, statistics_dtype(logits->dtype)), -1);
    if (!logp) return NULL;
    tl_tensor *own = rows_weighted(&rows, tl_scale(nll(logp, rows.ids), 1 - e), o);
    tl_tensor *every = tl_scale(class_sum(logp, NULL, o->weight), e / (double)logits->shape[1]);
    tl_tensor *zero = tl_zeros(TL_SCALAR, logp->dtype, logp->storage->device);
    return rows_reduced(&rows, tl_add(own, tl_where(rows.is_counted, every, zero)), o->reduction);
}

/* (1 - e) t + e/V as the target; the mean is over rows */
static tl_tensor *probability_loss(tl_tensor *logits, tl_tensor *targets, const tl_cross_entropy_options *o) {
    const tl_dtype dtype = statistics_dtype(logits->dtype);
    const double e = o->label_smoothing;
    tl_tensor *logp = tl_log_softmax(tl_cast(logits, dtype), -1), *t = tl_cast(targets, dtype);
    if (!logp || !t) return NULL;
    if (e > 0) t = tl_affine(t, 1 - e, e / (double)logits->shape[1]);
    if (!t) return NULL; /* to class_sum it would mean 1 */
    tl_tensor *loss = class_sum(logp, t, o->weight);
    return reduced(loss, o->reduction);
}

tl_tensor *tl_cross_entropy(tl_tensor *logits, tl_tensor *targets, const tl_cross_entropy_options *options) {
    const tl_cross_entropy_options o = options ? *options : tl_cross_entropy_defaults();
    struct frame f;
    if (!tensor_check(logits, "cross_entropy") || !tensor_check(targets, "cross_entropy")) return NULL;
    if (!frame_begin(&f, "cross_entropy", logits, targets) || !options_check("cross_entropy", &f, logits, &o))
        return NULL;
    logits = frame_classes(&f, logits);
    targets = frame_targets(&f, targets);
    if (!logits || !targets) return NULL;
    const bool is_float = dtype_is_float(targets->dtype);
    tl_tensor *loss = is_float ? probability_loss(logits, targets, &o) : ids_loss(logits, targets, &o);
    if (loss && o.is_narrow) loss = tl_cast(loss, logits->dtype);
    return frame_end(&f, loss, o.reduction);
}

tl_tensor *tl_nll_loss(tl_tensor *x, tl_tensor *targets, const tl_cross_entropy_options *options) {
    const tl_cross_entropy_options o = options ? *options : tl_cross_entropy_defaults();
    struct frame f;
    struct rows rows;
    if (!tensor_check(x, "nll_loss") || !tensor_check(targets, "nll_loss")) return NULL;
    if (o.label_smoothing != 0 || dtype_is_float(targets->dtype)) {
        error_set(TL_ERROR_USE, o.label_smoothing != 0 ? "nll_loss: label_smoothing has no meaning here (need 0)"
                                                       : "nll_loss: targets are ids (need i64 or i32)");
        return NULL;
    }
    x = autocast_wide(x);
    if (!x || !frame_begin(&f, "nll_loss", x, targets) || !options_check("nll_loss", &f, x, &o)) return NULL;
    x = frame_classes(&f, x);
    targets = frame_targets(&f, targets);
    if (!x || !targets || !rows_begin(&rows, targets, &o, x->dtype)) return NULL;
    tl_tensor *loss = rows_weighted(&rows, nll(x, rows.ids), &o);
    return frame_end(&f, rows_reduced(&rows, loss, o.reduction), o.reduction);
}

/* ---- Losses of elements ---- */

tl_tensor *tl_mse_loss(tl_tensor *prediction, tl_tensor *target, tl_reduction reduction) {
    if (!reduction_check("mse_loss", reduction)) return NULL;
    prediction = autocast_wide(prediction);
    target = autocast_wide(target);
    tl_tensor *difference = tl_sub(prediction, target);
    return reduced(tl_mul(difference, difference), reduction);
}

/* |a - b|, with slope 0 where they are equal */
static tl_tensor *distance(tl_tensor *a, tl_tensor *b) {
    a = autocast_wide(a);
    b = autocast_wide(b);
    tl_tensor *difference = tl_sub(a, b), *above = tl_relu(difference);
    return tl_add(above, tl_relu(tl_neg(difference)));
}

tl_tensor *tl_l1_loss(tl_tensor *prediction, tl_tensor *target, tl_reduction reduction) {
    return reduction_check("l1_loss", reduction) ? reduced(distance(prediction, target), reduction) : NULL;
}

/* With m = min(|d|, beta): m (|d| - m/2) / beta, which is both branches, and finite in its slope where |d| is
 * infinite. */
tl_tensor *tl_smooth_l1_loss(tl_tensor *prediction, tl_tensor *target, double beta, tl_reduction reduction) {
    if (!reduction_check("smooth_l1_loss", reduction)) return NULL;
    if (!(beta >= 0)) {
        error_set(TL_ERROR_USE, "smooth_l1_loss does not support negative values for beta, and it is %g", beta);
        return NULL;
    }
    if (beta == 0) return tl_l1_loss(prediction, target, reduction);
    tl_tensor *d = distance(prediction, target);
    if (!d) return NULL;
    tl_tensor *limit = tl_full(TL_SCALAR, beta, d->dtype, d->storage->device);
    tl_tensor *least = tl_where(tl_cmp(d, TL_GE, limit), limit, d); /* NaN stays, and in the gradient too */
    tl_tensor *rest = tl_sub(d, tl_scale(least, 0.5));
    return reduced(tl_mul(tl_scale(least, 1 / beta), rest), reduction);
}

/* ---- Binary cross entropy of logits ---- */

static bool bce_shape(tl_call *c) {
    const tl_tensor *x = c->input[0], *t = c->input[1];
    if (!call_needs_float(c, 0) || !call_needs_float(c, 1)) return false;
    if (!shape_equal(x->rank, x->shape, t->rank, t->shape))
        return call_fail(c, "target size must be the same as input size");
    tl_dtype dtype = dtype_promote(x->dtype, t->dtype);
    if (dtype == TL_DTYPE_COUNT) return call_fail_need(c, "these dtypes do not promote to a common one", "a cast");
    return call_output(c, 0, dtype, x->rank, x->shape);
}
/* 1 - t, times x; negate, max; magnitude, negate, exp, add, log; two sums */
static void bce_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 11 * (count)c->output[0]->numel); }

/* dx = g (sigmoid(x) - t), dt = -g x */
static void bce_backward(tl_gradient *g) {
    tl_tensor *x = gradient_input(g, 0);
    if (g->needs[0]) g->result[0] = tl_mul(g->grad[0], tl_sub(tl_sigmoid(x), gradient_input(g, 1)));
    if (g->needs[1]) g->result[1] = tl_neg(tl_mul(g->grad[0], x));
}

const tl_op op_bce = {
    RECORD(KERNEL, bce, 1), .is_wide = true,           .shapes = "x, t of one shape",
    .dtypes = "floats",     .flops = "11 per element", .shape = bce_shape,
    .cost = bce_cost,       .backward = bce_backward,  .saves = {TL_INPUT(0) | TL_INPUT(1), TL_INPUT(0)}};

static bool weight_check(const char *name, const tl_tensor *weight, const tl_tensor *loss) {
    if (!weight) return true;
    if (!tensor_check(weight, "bce_with_logits")) return false;
    return shape_broadcasts_to(weight->rank, weight->shape, loss->rank, loss->shape) ||
           error_set(TL_ERROR_USE, "bce_with_logits: %s does not broadcast to the input's shape", name);
}

/* pos_weight multiplies t log sigmoid(x), and -log sigmoid(x) is the loss at t = 1: bce(x, t) + (pos_weight - 1) t
 * bce(x, 1) */
tl_tensor *tl_bce_with_logits(tl_tensor *x, tl_tensor *target, tl_tensor *weight, tl_tensor *pos_weight,
                              tl_reduction reduction) {
    if (!reduction_check("bce_with_logits", reduction)) return NULL;
    tl_tensor *loss = op_apply2(&op_bce, x, target, NULL, 0);
    if (!loss || !weight_check("pos_weight", pos_weight, loss) || !weight_check("weight", weight, loss)) return NULL;
    if (pos_weight) {
        tl_tensor *positive = op_apply2(&op_bce, x, tl_ones_like(target), NULL, 0);
        tl_tensor *factor = tl_mul(tl_affine(pos_weight, 1, -1), target);
        loss = tl_add(loss, tl_mul(factor, positive));
    }
    if (loss && weight) loss = tl_mul(loss, weight);
    return reduced(loss, reduction);
}
