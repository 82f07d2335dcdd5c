/* muon.c: Muon's step of a matrix, of other ops: momentum, Newton-Schulz iterations, the update.
 *
 * Each iteration is three products, whose sums are f32 and rounded once. Its scratch goes before the next begins. A
 * scale that is not finite changes nothing: the momentum refuses it, and the update at the end is scaled by 1 or
 * NaN. The decay of the last part is written for the learning rate that is adjusted to the shape.
 *
 * Where processes share a matrix, each has the momentum of its own part, and makes its part of the update; in between
 * the iterations need the whole matrix. So momenta are gathered, first the parts of a vector of matrices (buckets of
 * ZeRO), then those of each matrix in it (tp). Every process then orthogonalizes every matrix, which gives the same
 * bits on all of them and sends nothing more. Dividing the matrices among the processes instead would take a second
 * exchange, and processes would not cost the same.
 */
#include <math.h>

#include "ops/ops.h"
#include "ops/shard.h"
#include "ops/update.h"

tl_muon_options tl_muon_defaults(void) {
    return (tl_muon_options){.lr = 1e-3,
                             .momentum = 0.95,
                             .weight_decay = 0.1,
                             .eps = 1e-7,
                             .a = 3.4445,
                             .b = -4.7750,
                             .c = 2.0315,
                             .ns_steps = 5,
                             .nesterov = true};
}

static tl_dtype products_dtype(const tl_tensor *p) {
    if (p->dtype == TL_F64) return TL_F64;
    return target_has_native(p->storage->device->target, TL_BF16) ? TL_BF16 : TL_F32;
}

/* left right + factor x, rounded once. */
static tl_tensor *product_and(tl_tensor *left, tl_tensor *right, tl_tensor *x, double factor) {
    const tl_dtype wide = statistics_dtype(x->dtype);
    tl_tensor *sum = wide == x->dtype ? tl_affine(x, factor, 0) : tl_cast(x, wide);
    if (sum && wide != x->dtype) sum = tl_affine_(sum, factor, 0);
    return sum ? matmul_product(left, false, right, false, sum, wide, false) : NULL;
}

/* a X + (b A + c A A) X with A = X X^T; of a tall matrix a X + X (b A + c A A) with A = X^T X. */
static tl_tensor *iterate(tl_tensor *x, const tl_muon_options *o) {
    const bool is_tall = x->shape[0] > x->shape[1];
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *gram = matmul_product(x, is_tall, x, !is_tall, NULL, x->dtype, false);
    tl_tensor *sum = gram ? product_and(gram, gram, gram, o->b / o->c) : NULL;
    sum = sum ? tl_cast(tl_affine_(sum, o->c, 0), x->dtype) : NULL;
    tl_tensor *next = sum ? product_and(is_tall ? x : sum, is_tall ? sum : x, x, o->a) : NULL;
    return tl_scope_return(scope, next ? tl_cast(next, x->dtype) : NULL);
}

/* In a scope of the caller; u is overwritten. */
static tl_tensor *orthogonalize(tl_tensor *u, const tl_muon_options *o) {
    if (!u) return NULL;
    tl_tensor *norm = tl_sqrt(tl_sum_squares(&u, 1));
    tl_tensor *x = norm ? tl_mul_(u, tl_reciprocal(tl_maximum_scalar(norm, tl_scalar_float(o->eps)))) : NULL;
    for (int i = 0; x && i < o->ns_steps; i++) x = iterate(x, o);
    return x;
}

/* Overwrites each matrix of the vector u by what it is orthogonalized to. */
static bool matrices_orthogonalize(tl_tensor *u, const struct update_matrices *m, const tl_muon_options *o) {
    bool ok = true;
    for (int i = 0; ok && i < m->n; i++) {
        const struct update_matrix *own = &m->at[i];
        const tl_tensor *p = own->parameter;
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = scope.depth ? tl_slice(u, 0, own->at, own->at + p->numel, 1) : NULL;
        tl_tensor *place = x ? tl_view(x, p->rank, p->shape) : NULL;
        x = orthogonalize(shard_gather(own->shard, place), o);
        ok = x && (x == place || tl_copy_(place, shard_cut(own->shard, x)));
        ok = scope.depth && tl_scope_end(scope) && ok;
    }
    return ok;
}

/* The momentum of what this process has, in the parameter's shape; or of the whole vector of which that is a part. */
static tl_tensor *momentum_find(const struct update_tensors *t, const tl_muon_options *o) {
    const tl_tensor *p = t->parameter;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *u = tl_zeros(p->rank, p->shape, products_dtype(p), p->storage->device);
    struct update_tensors momentum = {.parameter = u, .grad = t->grad, .state = {t->state[0]}};
    tl_muon_options own = *o;
    own.update.stochastic = false;
    if (!u || !update_muon_momentum(&momentum, 1, &own)) u = NULL;
    if (u && t->matrices && t->matrices->group) u = tl_all_gather(u, t->matrices->group);
    return tl_scope_return(scope, u);
}

/* What the parameter changes by, in its shape. */
static tl_tensor *direction_find(const struct update_tensors *t, const tl_muon_options *o) {
    const tl_tensor *p = t->parameter;
    const struct update_matrices *m = t->matrices;
    tl_tensor *u = momentum_find(t, o);
    if (!u || !m) return u ? orthogonalize(u, o) : NULL;
    tl_tensor *all = tl_view(u, TL_SHAPE(u->numel));
    if (!all || !matrices_orthogonalize(all, m, o)) return NULL;
    return m->group ? tl_slice(all, 0, m->before, m->before + p->numel, 1) : u;
}

double update_muon_factor(const tl_tensor *parameter, const tl_shard *shard, bool matches_adamw) {
    int64_t shape[TL_MAX_RANK];
    shard_whole_shape(shard, parameter, shape);
    const double rows = (double)shape[0], columns = (double)shape[1];
    return matches_adamw ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

static bool parameter_step(const struct update_tensors *t, const tl_muon_options *o, tl_tensor *guard) {
    const struct update_matrix *first = t->matrices ? t->matrices->at : NULL;
    const double factor =
        update_muon_factor(first ? first->parameter : t->parameter, first ? first->shard : NULL, o->matches_adamw);
    struct update_tensors last = *t;
    last.grad = direction_find(t, o);
    last.state[0] = NULL;
    const tl_sgd_options sgd = {.lr = o->lr * factor,
                                .weight_decay = o->weight_decay / factor,
                                .step = 1,
                                .update = {NULL, o->update.stochastic, guard}};
    return last.grad && update_sgd(&last, 1, &sgd);
}

static bool parameter_check(const struct update_tensors *t) {
    const tl_tensor *p = t->parameter;
    if (!tensor_check(p, "muon") || !tensor_check(t->grad, "muon") || !tensor_check(t->state[0], "muon")) return false;
    return t->matrices || p->rank == 2 ||
           error_set(TL_ERROR_USE, "muon: the parameter has rank %d (need a matrix)", p->rank);
}

bool update_muon(const struct update_tensors *list, int n, const tl_muon_options *options) {
    if (tl_error() != TL_OK) return false; /* a NULL may be a scale that failed */
    if (!(options->c != 0 && options->ns_steps >= 0 && options->ns_steps < 100))
        return error_set(TL_ERROR_USE, "muon: c is %g and ns_steps %d (need another c than 0, and 0 to 99 steps)",
                         options->c, options->ns_steps);
    bool mode = tl_set_grad_mode(false), ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_scope all = tl_scope_enter("muon");
    tl_tensor *scale = options->update.grad_scale, *guard = all.depth && scale ? tl_affine(scale, 0, 1) : NULL;
    ok = all.depth && (guard || !scale);
    for (int t = 0; ok && t < n; t++) {
        tl_scope scope = tl_scope_begin();
        ok = scope.depth && parameter_check(&list[t]) &&
             (!list[t].parameter->numel || parameter_step(&list[t], options, guard));
        ok = scope.depth && tl_scope_end(scope) && ok;
    }
    ok = all.depth && tl_scope_end(all) && ok;
    tl_set_phase(phase);
    tl_set_grad_mode(mode);
    return ok;
}

bool tl_muon_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *buffer, const tl_muon_options *options) {
    const tl_muon_options defaults = tl_muon_defaults();
    if (!options) options = &defaults;
    return update_muon(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {buffer}, .master = options->update.master},
        1, options);
}
