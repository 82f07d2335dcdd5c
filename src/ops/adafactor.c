/* adafactor.c: Adafactor's step of a parameter, of other ops: means of squares, the update, a step of SGD.
 *
 * The scale s of the gradient costs no pass over it: g is read as it is, s^2 is the scale of the means and s a part
 * of the last factor. If s is not finite, nothing changes: neither of the two is finite. Its scratch, one tensor of
 * the parameter's size, goes before the next begins.
 */
#include <math.h>

#include "ops/ops.h"
#include "ops/update.h"

tl_adafactor_options tl_adafactor_defaults(void) {
    return (tl_adafactor_options){.lr = 1e-2, .beta2_decay = -0.8, .eps2 = 1e-3, .d = 1, .step = 1};
}

/* The states are state[0] and state[1], row and column, or state[2], the variance. */
enum { ROW, COLUMN, VARIANCE };

/* What the step of one parameter needs beside its tensors. */
struct step {
    const tl_adafactor_options *options;
    tl_tensor *scale, *square; /* s and s^2; NULL: no scale */
    double eps1;
    tl_dtype wide;
};

static double eps_of(const struct update_tensors *t, const tl_adafactor_options *o) {
    return o->eps1 > 0 ? o->eps1 : dtype_info(t->master ? t->master->dtype : t->parameter->dtype)->eps;
}

/* g^2, unscaled. */
static tl_tensor *squares_of(tl_tensor *g, tl_dtype wide) {
    if (g->dtype == wide) return tl_square(g);
    tl_tensor *copy = tl_cast(g, wide);
    return copy ? tl_mul_(copy, copy) : NULL;
}

static tl_tensor *scaled(tl_tensor *x, tl_tensor *factor) { return x && factor ? tl_mul_(x, factor) : x; }

/* Moves the second moments towards those of this step. */
static bool moments_step(const struct update_tensors *t, const struct step *s) {
    const double weight = pow((double)s->options->step, s->options->beta2_decay);
    const bool is_factored = t->parameter->rank >= 2;
    const int along_row = -1, along_column = -2;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *squares = squares_of(t->grad, s->wide);
    struct update_tensors means[2] = {{.parameter = t->state[is_factored ? ROW : VARIANCE]},
                                      {.parameter = t->state[COLUMN]}};
    if (squares && is_factored) {
        means[0].grad = tl_mean(squares, &along_row, 1, true);
        means[1].grad = tl_mean(squares, &along_column, 1, true);
    } else {
        means[0].grad = squares;
    }
    bool ok = means[0].grad && (means[1].grad || !is_factored);
    ok = ok && update_ema(means, is_factored ? 2 : 1, weight, s->square);
    return tl_scope_end(scope) && ok;
}

/* max(v, eps1^2), in a tensor that may be overwritten. */
static tl_tensor *moment_of(const struct update_tensors *t, const struct step *s) {
    const tl_scalar least = tl_scalar_float(s->eps1 * s->eps1);
    const int along_column = -2;
    if (t->parameter->rank < 2) return tl_clamp(t->state[VARIANCE], &least, NULL);
    tl_tensor *mean = tl_mean(t->state[ROW], &along_column, 1, true);
    mean = mean ? tl_maximum_scalar(mean, tl_scalar_float(s->eps1)) : NULL;
    tl_tensor *row = mean ? tl_div(t->state[ROW], mean) : NULL;
    tl_tensor *v = row ? tl_mul(row, t->state[COLUMN]) : NULL;
    return v ? tl_clamp_(v, &least, NULL) : NULL;
}

/* u = g / max(sqrt(v), eps1), unscaled. */
static tl_tensor *update_of(const struct update_tensors *t, const struct step *s) {
    tl_tensor *u = moment_of(t, s);
    u = u ? tl_rsqrt_(u) : NULL;
    return u ? tl_mul_(u, t->grad) : NULL;
}

static tl_tensor *rms_of(tl_tensor *x, tl_dtype wide) {
    tl_tensor *sum = tl_sum_squares(&x, 1);
    sum = sum ? tl_cast(sum, wide) : NULL;
    sum = sum ? tl_affine_(sum, 1 / (double)x->numel, 0) : NULL;
    return sum ? tl_sqrt_(sum) : NULL;
}

/* What u is multiplied by, over the learning rate: min(1, 1 / (lr sqrt(step))) max(eps2, rms(p)) s / max(1, rms(s u) /
 * d). */
static tl_tensor *factor_of(const struct update_tensors *t, tl_tensor *u, const struct step *s) {
    const tl_adafactor_options *o = s->options;
    const double rho = fmin(o->lr, 1 / sqrt((double)o->step));
    tl_tensor *clip = scaled(rms_of(u, s->wide), s->scale);
    clip = clip ? tl_maximum_scalar(tl_affine_(clip, 1 / o->d, 0), tl_scalar_float(1)) : NULL;
    tl_tensor *size = clip ? rms_of(t->master ? t->master : t->parameter, s->wide) : NULL;
    size = size ? tl_maximum_scalar(size, tl_scalar_float(o->eps2)) : NULL;
    size = size ? scaled(tl_affine_(size, o->lr > 0 ? rho / o->lr : 0, 0), s->scale) : NULL;
    return size ? tl_div(size, clip) : NULL;
}

/* p - lr (factor u + weight_decay p). A factor for the op is f32: of f64 parameters, u is multiplied by it here. */
static bool parameter_step(const struct update_tensors *t, const struct step *s) {
    const tl_adafactor_options *o = s->options;
    tl_tensor *u = update_of(t, s), *factor = u ? factor_of(t, u, s) : NULL;
    if (!factor) return false;
    if (s->wide == TL_F64) {
        if (!tl_mul_(u, factor)) return false;
        factor = tl_cast(tl_affine_(factor, 0, 1), TL_F32);
        if (!factor) return false;
    }
    struct update_tensors last = *t;
    last.grad = u;
    last.state[ROW] = last.state[COLUMN] = last.state[VARIANCE] = NULL;
    const tl_sgd_options sgd = {
        .lr = o->lr, .weight_decay = o->weight_decay, .step = 1, .update = {NULL, o->update.stochastic, factor}};
    return update_sgd(&last, 1, &sgd);
}

/* x has the parameter's shape, with 1 for the axis that is `before_last` places before the last; -1: all of it. */
static bool state_fits(const tl_tensor *x, const tl_tensor *p, int before_last, const char *name) {
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < p->rank; i++) shape[i] = p->shape[i];
    if (before_last >= 0) shape[p->rank - 1 - before_last] = 1;
    if (!tensor_check(x, "adafactor")) return false;
    if (x->dtype != statistics_dtype(p->dtype))
        return error_set(TL_ERROR_USE, "adafactor: state must be %s", tl_dtype_name(statistics_dtype(p->dtype)));
    return shape_equal(x->rank, x->shape, p->rank, shape) ||
           error_set(TL_ERROR_USE, "adafactor: %s must have the parameter's shape%s", name,
                     before_last == 0   ? ", with 1 for its last axis"
                     : before_last == 1 ? ", with 1 for its last axis but one"
                                        : "");
}

static bool tensors_check(const struct update_tensors *t) {
    const tl_tensor *p = t->parameter, *g = t->grad;
    if (!tensor_check(p, "adafactor") || !tensor_check(g, "adafactor")) return false;
    if (!dtype_is_float(p->dtype) || !dtype_is_float(g->dtype))
        return error_set(TL_ERROR_USE, "adafactor: not implemented for %s (need a floating point dtype)",
                         dtype_info(dtype_is_float(p->dtype) ? g->dtype : p->dtype)->torch_name);
    if (!shape_equal(g->rank, g->shape, p->rank, p->shape))
        return error_set(TL_ERROR_USE, "adafactor: the gradient must have the parameter's shape");
    const bool is_factored = p->rank >= 2;
    if (is_factored != (t->state[ROW] && t->state[COLUMN]) || is_factored != !t->state[VARIANCE])
        return error_set(TL_ERROR_USE, "adafactor: a parameter of rank %d needs %s", p->rank,
                         is_factored ? "row and column, and no variance" : "a variance, and neither row nor column");
    if (!is_factored) return state_fits(t->state[VARIANCE], p, -1, "variance");
    return state_fits(t->state[ROW], p, 0, "row") && state_fits(t->state[COLUMN], p, 1, "column");
}

static bool options_check(const tl_adafactor_options *o) {
    if (o->step < 1)
        return error_set(TL_ERROR_USE, "adafactor: steps are counted from 1, not %lld", (long long)o->step);
    return (o->beta2_decay <= 0 && isfinite(o->beta2_decay) && o->eps1 >= 0 && o->eps2 >= 0 && o->d >= 1) ||
           error_set(TL_ERROR_USE,
                     "adafactor: beta2_decay is %g, eps1 %g, eps2 %g and d %g (need 0 or less, 0 or more twice, and 1 "
                     "or more)",
                     o->beta2_decay, o->eps1, o->eps2, o->d);
}

/* In a scope of the caller. */
static bool parameter_update(const struct update_tensors *t, struct step *s) {
    if (!tensors_check(t)) return false;
    if (!t->parameter->numel) return true;
    s->wide = statistics_dtype(t->parameter->dtype);
    s->eps1 = eps_of(t, s->options);
    return moments_step(t, s) && parameter_step(t, s);
}

static bool scale_begin(struct step *s) {
    s->scale = s->options->update.grad_scale;
    if (!s->scale) return true;
    if (s->scale->dtype != TL_F32 || s->scale->numel != 1)
        return error_set(TL_ERROR_USE, "adafactor: the gradient's scale must be one f32 number");
    return (s->square = tl_mul(s->scale, s->scale)) != NULL;
}

bool update_adafactor(const struct update_tensors *list, int n, const tl_adafactor_options *options) {
    if (tl_error() != TL_OK) return false; /* a NULL may be a scale that failed */
    if (!options_check(options)) return false;
    struct step s = {.options = options};
    bool mode = tl_set_grad_mode(false);
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_scope all = tl_scope_enter("adafactor");
    bool ok = all.depth && scale_begin(&s);
    for (int t = 0; ok && t < n; t++) {
        tl_scope scope = tl_scope_begin();
        ok = scope.depth && parameter_update(&list[t], &s);
        ok = scope.depth && tl_scope_end(scope) && ok;
    }
    ok = all.depth && tl_scope_end(all) && ok;
    tl_set_phase(phase);
    tl_set_grad_mode(mode);
    return ok;
}

bool tl_adafactor_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *row, tl_tensor *column, tl_tensor *variance,
                   const tl_adafactor_options *options) {
    const tl_adafactor_options defaults = tl_adafactor_defaults();
    if (!options) options = &defaults;
    return update_adafactor(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {row, column, variance}, .master = options->update.master},
        1, options);
}
