/* adafactor.c: Adafactor's step of a parameter. */
#include <math.h>
#include <string.h>

#include "ops/ops.h"
#include "ops/update.h"
#include "spec/adafactor.h"

tl_adafactor_options tl_adafactor_defaults(void) {
    return (tl_adafactor_options){.lr = 1e-2, .beta2_decay = -0.8, .eps2 = 1e-3, .d = 1, .step = 1};
}

/* Operands: p, g, row and column, or from rank 1 down the variance [, master] [, scale]. */
enum { P, G, FIRST_STATE };

static bool adafactor_changes(const tl_call *c, int i) {
    const struct attr_update *a = c->attr;
    return i != G && i < c->n_inputs - a->has_scale;
}

/* x has the parameter's shape, with 1 for the axis that is `before_last` places before the last; -1: all of it. */
static bool state_fits(const tl_call *c, const tl_tensor *x, int before_last, const char *name) {
    const tl_tensor *p = c->input[P];
    const tl_dtype wide = statistics_dtype(p->dtype);
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < p->rank; i++) shape[i] = p->shape[i];
    if (before_last >= 0) shape[p->rank - 1 - before_last] = 1;
    if (x->dtype != wide) return call_fail(c, "state must be %s", tl_dtype_name(wide));
    return shape_equal(x->rank, x->shape, p->rank, shape) ||
           call_fail(c, "%s must have the parameter's shape%s", name,
                     before_last == 0   ? ", with 1 for its last axis"
                     : before_last == 1 ? ", with 1 for its last axis but one"
                                        : "");
}

static bool adafactor_shape(tl_call *c) {
    const struct attr_update *a = c->attr;
    const tl_tensor *p = c->input[P],
                    *g = c->input[G], *const *state = (const tl_tensor *const *)c->input + FIRST_STATE;
    const tl_tensor *scale = a->has_scale ? c->input[c->n_inputs - 1] : NULL;
    if (!call_needs_float(c, P) || !call_needs_float(c, G)) return false;
    if (!shape_equal(g->rank, g->shape, p->rank, p->shape))
        return call_fail(c, "the gradient must have the parameter's shape");
    const bool is_factored = p->rank >= 2;
    if (is_factored ? !state_fits(c, state[0], 0, "row") || !state_fits(c, state[1], 1, "column")
                    : !state_fits(c, state[0], -1, "variance"))
        return false;
    if (a->has_master && dtype_info(p->dtype)->bits >= 32)
        return call_fail(c, "a master copy is for parameters narrower than f32");
    if (a->has_master && !state_fits(c, state[is_factored ? 2 : 1], -1, "the master copy")) return false;
    if (scale && (scale->dtype != TL_F32 || scale->numel != 1))
        return call_fail(c, "the gradient's scale must be one f32 number");
    for (int i = 0; i < c->n_inputs; i++)
        if (!tensor_is_dense(c->input[i])) return call_fail(c, "needs dense tensors");
    return true;
}

/* g^2 and p^2, sums over rows, over columns, and of p^2: 5; row x column, at least eps^2, root, g over it: 4; u^2
 * and its sum: 2; times the factor, subtract: 2; decay: 1. Of each row mean, average 3, sum, over it: 6; of each
 * column mean and average: 4. Of a vector the variance is an average, 3, in the place of the two sums and the
 * product. */
static void adafactor_cost(const tl_call *c, struct cost *cost) {
    const struct attr_adafactor *a = c->attr;
    const struct adafactor_sizes s = adafactor_sizes_of(c->input[P]->rank, c->input[P]->shape);
    const int each = 13 + (a->options.weight_decay != 0) + a->update.has_scale;
    const count others = s.is_factored && s.numel ? (count)(6 * s.lines + 4 * s.n_matrices * s.columns) : 0;
    cost_traffic(c, cost, (count)each * (uint64_t)s.numel + others);
    if (a->update.has_master) cost->part[0].bytes_read -= tensor_traffic(c->input[P]); /* the master is read instead */
}

static uint64_t adafactor_workspace(const tl_call *c) {
    const struct adafactor_sizes s = adafactor_sizes_of(c->input[P]->rank, c->input[P]->shape);
    return adafactor_room_of(&s, c->input[P]->dtype == TL_F64).all;
}

const tl_op op_adafactor = {RECORD(KERNEL, adafactor, 0),
                            .shapes = "p, g alike (...,R,C), row (...,R,1), column (...,1,C), or variance [, master] "
                                      "[, scale]",
                            .dtypes = "floats; states f32 (f64 for f64 p)",
                            .flops = "13n + 6 rows + 4 columns; weight decay n, scale n",
                            .shape = adafactor_shape,
                            .cost = adafactor_cost,
                            .workspace = adafactor_workspace,
                            .changes = adafactor_changes};

/* ---- One parameter ---- */

enum { ROW, COLUMN, VARIANCE }; /* of its states */

static bool tensors_check(const struct update_tensors *t) {
    const tl_tensor *p = t->parameter;
    if (!tensor_check(p, "adafactor") || !tensor_check(t->grad, "adafactor")) return false;
    const bool is_factored = p->rank >= 2;
    if (is_factored == (t->state[ROW] && t->state[COLUMN]) && is_factored == !t->state[VARIANCE]) return true;
    return error_set(TL_ERROR_USE, "adafactor: a parameter of rank %d needs %s", p->rank,
                     is_factored ? "row and column, and no variance" : "a variance, and neither row nor column");
}

/* The tensors of one parameter, each a place. */
enum { N_PLACES = 3 + UPDATE_STATES };
static void places_of(struct update_tensors *t, tl_tensor **places[N_PLACES]) {
    places[0] = &t->parameter;
    places[1] = &t->master;
    places[2] = &t->grad;
    for (int i = 0; i < UPDATE_STATES; i++) places[3 + i] = &t->state[i];
}

/* The kernel walks dense tensors; others are copied, and the results copied back. In a scope of the caller. */
static bool dense_step(const struct update_tensors *given, const tl_adafactor_options *options) {
    struct update_tensors t = *given, before = *given;
    struct attr_adafactor a;
    tl_tensor **place[N_PLACES], **old[N_PLACES];
    if (!tensors_check(given)) return false;
    places_of(&t, place);
    places_of(&before, old);
    for (int i = 0; i < N_PLACES; i++)
        if (*place[i] && !(*place[i] = tl_contiguous(*place[i]))) return false;
    memset(&a, 0, sizeof a);
    a.options = *options;
    a.eps1 = options->eps1 > 0 ? options->eps1 : dtype_info((t.master ? t.master : t.parameter)->dtype)->eps;
    bool ok = update_apply(&op_adafactor, &t, 1, &options->update, ATTR(a));
    for (int i = 0; ok && i < N_PLACES; i++)
        if (place[i] != &t.grad && *place[i] != *old[i]) ok = tl_copy_(*old[i], *place[i]) != NULL;
    return ok;
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

bool update_adafactor(const struct update_tensors *list, int n, const tl_adafactor_options *options) {
    if (tl_error() != TL_OK) return false; /* a NULL may be a scale that failed */
    if (!options_check(options)) return false;
    bool mode = tl_set_grad_mode(false), ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int t = 0; ok && t < n; t++) {
        tl_scope scope = tl_scope_begin();
        ok = scope.depth && dense_step(&list[t], options);
        ok = scope.depth && tl_scope_end(scope) && ok;
    }
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
