/* head_parts.c: the last product and the loss where several processes share the vocabulary.
 *
 * As in head.c the logits never exist as a whole: rows are taken in chunks, and the gradients are made with the loss.
 * Each rank has the logits of its own classes. Of each row, the ranks exchange two numbers in f32, the log-sum-exp of
 * the classes that a rank has and the logit of the target, which is 0 where the target is elsewhere: every rank then
 * has the loss of the row and the log-sum-exp of all classes, from which the slopes of its own logits follow.
 *
 *      lse = log sum_r e^lse_r;   loss = lse - sum_r logit_r;   dlogits = (e^(logits - lse) - onehot)
 *
 * With a soft cap c the logits are c tanh(z / c), and dz = dlogits (1 - (logits / c)^2). For smoothed labels the ranks
 * also exchange the sum of their logits; those and the z loss are as in spec/attr.h.
 *
 * The number of rows that count divides sums, not slopes: in f16 a slope over many rows would vanish. */
#include "nn/head_parts.h"

#include "base/memory.h"
#include "ops/head.h"

/* ---- Ids ---- */

/* Whether first <= ids < last. */
static tl_tensor *is_between(tl_tensor *ids, int64_t first, int64_t last) {
    tl_tensor *is_late = tl_cmp_scalar(ids, TL_GE, tl_scalar_int(first));
    tl_tensor *is_early = tl_cmp_scalar(ids, TL_LT, tl_scalar_int(last));
    return is_late && is_early ? tl_logical_and(is_late, is_early) : NULL;
}

tl_tensor *ids_elsewhere(const struct class_part *part, tl_tensor *ids) {
    tl_tensor *before = is_between(ids, 0, part->from), *after = is_between(ids, part->to, part->size);
    return before && after ? tl_logical_or(before, after) : NULL;
}

tl_tensor *ids_local(const struct class_part *part, tl_tensor *ids, tl_tensor *is_elsewhere, int64_t other) {
    tl_tensor *local = tl_sub_scalar(ids, tl_scalar_int(part->from));
    tl_tensor *none = local ? tl_full(TL_SCALAR, (double)other, local->dtype, local->storage->device) : NULL;
    return none ? tl_where(is_elsewhere, none, local) : NULL;
}

tl_tensor *targets_count(tl_tensor *targets, int64_t ignore_index) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *counts = tl_cast(tl_cmp_scalar(targets, TL_NE, tl_scalar_int(ignore_index)), TL_F32);
    return tl_scope_return(scope, counts ? tl_sum_all(counts) : NULL);
}

/* ---- Chunks ---- */

struct parts {
    const struct class_part *part;
    tl_tensor *x, *weight;   /* (N,C), (V_part,C) */
    tl_tensor *local, *hit;  /* (N): classes of this part, 0 for others; the same, -1 for others */
    tl_tensor *is_elsewhere; /* (N) bool: the target is of another part, or ignored */
    tl_tensor *counts;       /* (N): 1, or 0 for an ignored row */
    tl_tensor *scale;        /* () of the gradients */
    tl_tensor *losses;       /* (N) */
    tl_tensor *dx, *dweight; /* (N,C); (V_part,C) sums in f32 at least; NULL: not needed, or not begun */
    bool gives_dx, gives_dweight;
    double soft_cap, smoothing, z_weight; /* of logits, of labels, of the squared lse; 0: none */
};

static bool targets_prepare(struct parts *p, tl_tensor *targets, int64_t ignore_index) {
    const tl_dtype wide = statistics_dtype(p->x->dtype);
    tl_tensor *is_ignored = tl_cmp_scalar(targets, TL_EQ, tl_scalar_int(ignore_index));
    tl_tensor *is_other = ids_elsewhere(p->part, targets);
    p->is_elsewhere = is_ignored && is_other ? tl_logical_or(is_ignored, is_other) : NULL;
    if (!p->is_elsewhere) return false;
    p->local = ids_local(p->part, targets, p->is_elsewhere, 0);
    p->hit = ids_local(p->part, targets, p->is_elsewhere, -1);
    p->counts = tl_cast(tl_logical_not(is_ignored), wide);
    return p->local && p->hit && p->counts;
}

static tl_tensor *rows_at(tl_tensor *x, int64_t row, int64_t n) { return x ? tl_slice(x, 0, row, row + n, 1) : NULL; }

/* What the ranks know of a chunk's rows, together: the log-sum-exp over all classes (n), the targets' logits (n), and
 * the sum of all logits (n) if labels are smoothed. */
static bool rows_exchange(const struct parts *p, tl_tensor *logits, int64_t row, tl_tensor **lse, tl_tensor **at_target,
                          tl_tensor **sum) {
    const int64_t n = logits->shape[0], size = tl_comm_size(p->part->group);
    tl_tensor *input[2] = {logits, rows_at(p->local, row, n)};
    tl_call c;
    call_begin(&c, &op_cross_entropy, input, 2, NULL, 0);
    if (!input[1] || !op_apply(&c)) return false;
    tl_tensor *zero = tl_zeros(TL_SCALAR, logits->dtype, logits->storage->device);
    tl_tensor *minus = op_apply2(&op_nll, logits, input[1], NULL, 0);
    tl_tensor *is_elsewhere = rows_at(p->is_elsewhere, row, n), *own = minus ? tl_neg(minus) : NULL;
    own = own && zero ? tl_where(is_elsewhere, zero, own) : NULL;
    const int first = 0, last = 1, n_facts = p->smoothing > 0 ? 3 : 2;
    tl_tensor *facts[3] = {c.output[1], own, n_facts > 2 ? tl_sum(logits, &last, 1, false) : NULL}, *all;
    all = own && (n_facts < 3 || facts[2]) ? tl_all_gather(tl_stack(facts, n_facts, 0), p->part->group) : NULL;
    all = all ? tl_view(all, TL_SHAPE(size, n_facts, n)) : NULL;
    if (!all) return false;
    *lse = tl_logsumexp(tl_select(all, 1, 0), &first, 1, false);
    *at_target = tl_sum(tl_select(all, 1, 1), &first, 1, false);
    *sum = n_facts > 2 ? tl_sum(tl_select(all, 1, 2), &first, 1, false) : NULL;
    return *lse && *at_target && (*sum || n_facts < 3);
}

/* slopes (1 - (logits / c)^2) */
static tl_tensor *slopes_before_cap(tl_tensor *slopes, tl_tensor *logits, double c) {
    tl_tensor *square = slopes ? tl_square(tl_scale(logits, 1 / c)) : NULL;
    tl_tensor *share = square ? tl_rsub_scalar(square, tl_scalar_float(1)) : NULL;
    return share ? tl_mul(slopes, share) : NULL;
}

/* (1 - e) (lse - logit) + e (lse - sum / V) + w lse^2, of each row */
static tl_tensor *rows_loss(const struct parts *p, tl_tensor *lse, tl_tensor *at_target, tl_tensor *sum) {
    const double e = p->smoothing;
    tl_tensor *loss = tl_sub(lse, at_target);
    if (loss && e > 0) {
        tl_tensor *even = tl_sub(lse, tl_scale(sum, 1 / (double)p->part->size));
        loss = tl_scale(loss, 1 - e);
        loss = even && loss ? tl_add(loss, tl_scale(even, e)) : NULL;
    }
    if (loss && p->z_weight > 0) loss = tl_add(loss, tl_scale(tl_square(lse), p->z_weight));
    return loss;
}

/* The slopes of rows that count, with smoothed labels and the z loss: those of cross entropy, (softmax - onehot),
 * become softmax (1 + 2 w lse) - (1 - e) onehot - e / V. With counts of 1 + 2 w lse, and 0 for ignored rows, cross
 * entropy gives (softmax - onehot) (1 + 2 w lse); the rest is (2 w lse + e) onehot - e / V. */
static tl_tensor *slopes_smooth(const struct parts *p, tl_tensor *slopes, tl_tensor *counts, tl_tensor *lse,
                                tl_tensor *hit) {
    const int64_t n = slopes->shape[0], V = slopes->shape[1];
    tl_tensor *classes = tl_arange(0, 1, V, TL_I64, slopes->storage->device);
    tl_tensor *ids = classes ? tl_cast(tl_view(hit, TL_SHAPE(n, 1)), TL_I64) : NULL;
    tl_tensor *onehot = ids ? tl_cast(tl_cmp(ids, TL_EQ, classes), slopes->dtype) : NULL;
    tl_tensor *more = tl_add_scalar(tl_scale(lse, 2 * p->z_weight), tl_scalar_float(p->smoothing)); /* (n) */
    more = more && onehot ? tl_mul(onehot, tl_view(more, TL_SHAPE(n, 1))) : NULL;
    more = more ? tl_sub_scalar(more, tl_scalar_float(p->smoothing / (double)p->part->size)) : NULL;
    more = more ? tl_mul(more, tl_view(counts, TL_SHAPE(n, 1))) : NULL;
    return more ? tl_add(slopes, more) : NULL;
}

/* The gradients that follow from a chunk's logits; they are backward's work, done early. */
static bool gradients_add(struct parts *p, tl_tensor *logits, tl_tensor *lse, int64_t row) {
    const int64_t n = logits->shape[0];
    tl_tensor *counts = rows_at(p->counts, row, n), *hit = rows_at(p->hit, row, n);
    tl_tensor *growth = counts;
    if (counts && p->z_weight > 0) growth = tl_add_scalar(tl_scale(lse, 2 * p->z_weight), tl_scalar_float(1));
    if (growth != counts) growth = growth ? tl_mul(growth, counts) : NULL;
    tl_tensor *input[4] = {growth, logits, hit, lse};
    tl_call c;
    call_begin(&c, &op_cross_entropy_grad, input, 4, NULL, 0);
    tl_tensor *slopes = growth && hit ? op_apply(&c) : NULL;
    if (slopes && (p->smoothing > 0 || p->z_weight > 0)) slopes = slopes_smooth(p, slopes, counts, lse, hit);
    if (p->soft_cap > 0) slopes = slopes_before_cap(slopes, logits, p->soft_cap);
    slopes = slopes ? tl_cast(slopes, p->x->dtype) : NULL;
    if (slopes && p->gives_dx) {
        tl_tensor *dx = matmul_product(slopes, false, p->weight, false, NULL, logits->dtype, false);
        if (!dx || !tl_mul_(dx, p->scale) || !tl_copy_(rows_at(p->dx, row, n), dx)) return false;
    }
    if (slopes && p->gives_dweight) {
        tl_tensor *sum = matmul_product(slopes, true, rows_at(p->x, row, n), false, p->dweight, logits->dtype, false);
        if (!sum) return false;
        if (!p->dweight) p->dweight = tl_keep(sum);
    }
    return slopes != NULL;
}

static bool chunk_run(struct parts *p, int64_t row, int64_t n) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *lse = NULL, *at_target = NULL, *sum = NULL;
    tl_tensor *logits = matmul_product(rows_at(p->x, row, n), false, p->weight, true, NULL, p->losses->dtype, false);
    if (logits && p->soft_cap > 0) {
        logits = tl_tanh(tl_scale(logits, 1 / p->soft_cap));
        logits = logits ? tl_scale(logits, p->soft_cap) : NULL;
    }
    bool ok = logits && rows_exchange(p, logits, row, &lse, &at_target, &sum);
    tl_tensor *loss = ok ? rows_loss(p, lse, at_target, sum) : NULL, *counts = rows_at(p->counts, row, n);
    loss = loss && counts ? tl_mul_(loss, counts) : NULL;
    ok = loss && tl_copy_(rows_at(p->losses, row, n), loss);
    if (ok && (p->gives_dx || p->gives_dweight)) {
        tl_phase phase = tl_set_phase(TL_BACKWARD);
        ok = gradients_add(p, logits, lse, row);
        tl_set_phase(phase);
    }
    return tl_scope_end(scope) && ok;
}

/* ---- The loss, and its gradient ---- */

struct slopes { /* of x and weight; NULL: not needed. Owned. */
    tl_tensor *dx, *dweight;
};

static void slopes_release(void *context) {
    struct slopes *s = context;
    tl_drop(s->dx);
    tl_drop(s->dweight);
    memory_free(s);
}

/* forward computed dx and dweight of the loss; times g */
static void slopes_scale(tl_gradient *g, void *context) {
    const struct slopes *s = context;
    tl_tensor *dloss = tl_gradient_of_output(g, 0);
    if (g->creates_graph) {
        error_set(TL_ERROR_USE, "derivative for the gradient of a loss that several processes share is not "
                                "implemented (need a model of one process)");
        return;
    }
    if (dloss && s->dx && tl_gradient_needs(g, 0)) tl_gradient_set(g, 0, tl_mul(s->dx, dloss));
    if (dloss && s->dweight && tl_gradient_needs(g, 1)) tl_gradient_set(g, 1, tl_mul(s->dweight, dloss));
}

/* All chunks; the gradients, if any, go to `slopes`. */
static tl_tensor *parts_run(struct parts *p, tl_tensor *targets, int64_t ignore_index, tl_tensor *total_rows,
                            double share, struct slopes *slopes) {
    const tl_dtype wide = statistics_dtype(p->x->dtype);
    const int64_t N = p->x->shape[0], n = tl_comm_size(p->part->group);
    const int64_t largest = (p->part->size + n - 1) / n; /* of the parts: all ranks take the same chunks */
    const int64_t chunk = head_cut_of(p->x, largest).chunk_rows;
    total_rows = tl_cast(total_rows, wide);
    p->scale =
        total_rows ? tl_rdiv_scalar(tl_maximum_scalar(total_rows, tl_scalar_float(1)), tl_scalar_float(share)) : NULL;
    p->losses = tl_empty(TL_SHAPE(N), wide, p->x->storage->device);
    if (p->gives_dx) p->dx = tl_empty_like(p->x);
    bool ok = p->scale && p->losses && (p->dx || !p->gives_dx) && targets_prepare(p, targets, ignore_index);
    for (int64_t row = 0; ok && row < N; row += chunk) ok = chunk_run(p, row, row + chunk < N ? chunk : N - row);
    if (ok && p->gives_dx) slopes->dx = tl_keep(p->dx);
    if (ok && p->gives_dweight) {
        tl_phase phase = tl_set_phase(TL_BACKWARD);
        tl_tensor *scaled = p->dweight ? tl_mul_(p->dweight, p->scale) : tl_zeros_like(p->weight);
        scaled = scaled ? tl_cast(scaled, p->weight->dtype) : NULL;
        slopes->dweight = scaled ? tl_keep(scaled) : NULL;
        ok = scaled != NULL;
        tl_set_phase(phase);
    }
    tl_drop(p->dweight);
    tl_tensor *total = ok ? tl_sum_all(p->losses) : NULL;
    return total ? tl_div(tl_scale(total, share), total_rows) : NULL; /* no rows: 0/0, as a mean of nothing is */
}

tl_tensor *linear_cross_entropy_parts(tl_tensor *x, tl_tensor *weight, tl_tensor *targets,
                                      const tl_linear_cross_entropy_options *options, const struct class_part *part,
                                      tl_tensor *total_rows, double share) {
    if (!x || !weight || !targets || !total_rows) return NULL; /* the call that made them failed */
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    x = autocast_narrow(x);
    weight = autocast_narrow(weight);
    x = x && weight ? tl_contiguous(x) : NULL;
    struct slopes *slopes = memory_new(sizeof *slopes);
    if (!slopes) error_memory(sizeof *slopes, "gradients");
    if (!x || !slopes) return memory_free(slopes), tl_scope_return(scope, NULL);
    *slopes = (struct slopes){0};
    const bool is_recording = !thread_state()->grad_off;
    bool grad = tl_set_grad_mode(false);
    struct parts p = {.part = part,
                      .x = x,
                      .weight = weight,
                      .soft_cap = options->soft_cap,
                      .smoothing = options->label_smoothing,
                      .z_weight = options->z_loss,
                      .gives_dx = is_recording && tensor_needs_grad(x),
                      .gives_dweight = is_recording && tensor_needs_grad(weight)};
    tl_tensor *loss = parts_run(&p, tl_contiguous(targets), options->ignore_index, total_rows, share, slopes);
    tl_set_grad_mode(grad);
    tl_tensor *input[2] = {x, weight};
    if (!loss) slopes_release(slopes);
    else if (!tl_function(slopes_scale, slopes, slopes_release, input, 2, &loss, 1)) loss = NULL;
    return tl_scope_return(scope, loss);
}
