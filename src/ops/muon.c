/* muon.c: Muon's step of a matrix, of other ops: momentum, Newton-Schulz iterations, the update.
 *
 * Each iteration is three products, whose sums are f32 and rounded once. Its scratch goes before the next begins. A
 * scale that is not finite changes nothing: the momentum refuses it, and the update at the end is scaled by 1 or
 * NaN. The decay of the last part is written for the learning rate that is adjusted to the shape.
 */
#include <math.h>

#include "ops/ops.h"
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
    tl_tensor *norm = tl_sqrt(tl_sum_squares(&u, 1));
    tl_tensor *x = norm ? tl_mul_(u, tl_reciprocal(tl_maximum_scalar(norm, tl_scalar_float(o->eps)))) : NULL;
    for (int i = 0; x && i < o->ns_steps; i++) x = iterate(x, o);
    return x;
}

static bool step_matrix(const struct update_tensors *t, const tl_muon_options *o, tl_tensor *guard) {
    const tl_tensor *p = t->parameter;
    const double rows = (double)p->shape[0], columns = (double)p->shape[1];
    const double ratio = o->matches_adamw ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
    tl_tensor *u = tl_zeros(p->rank, p->shape, products_dtype(p), p->storage->device);
    struct update_tensors momentum = {.parameter = u, .grad = t->grad, .state = {t->state[0]}};
    tl_muon_options own = *o;
    own.update.stochastic = false;
    if (!u || !update_muon_momentum(&momentum, 1, &own)) return false;
    struct update_tensors last = *t;
    last.grad = orthogonalize(u, o);
    last.state[0] = NULL;
    const tl_sgd_options sgd = {.lr = o->lr * ratio,
                                .weight_decay = o->weight_decay / ratio,
                                .step = 1,
                                .update = {NULL, o->update.stochastic, guard}};
    return last.grad && update_sgd(&last, 1, &sgd);
}

static bool matrix_check(const struct update_tensors *t) {
    const tl_tensor *p = t->parameter;
    if (!tensor_check(p, "muon") || !tensor_check(t->grad, "muon") || !tensor_check(t->state[0], "muon")) return false;
    return p->rank == 2 || error_set(TL_ERROR_USE, "muon: the parameter has rank %d (need a matrix)", p->rank);
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
        ok = scope.depth && matrix_check(&list[t]) &&
             (!list[t].parameter->numel || step_matrix(&list[t], options, guard));
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
