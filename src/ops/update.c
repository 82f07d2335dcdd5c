/* update.c: the optimizers of torch.optim, one op and one pass each, with one way to treat narrow parameters.
 *
 * Inputs are, for each parameter of the call, p, g, the states that the options need and a master copy, if any; then
 * a scale of the gradients, if any. All but the gradients and the scale are updated in place: there are no results.
 * With a master the old parameter is not read.
 */
#include <math.h>
#include <string.h>

#include "ops/ops.h"
#include "ops/update.h"
#include "spec/dynamic_map.h"

/* Operands of each parameter. */
static int operands_of(const tl_call *c) {
    const struct attr_update *a = c->attr; /* every attribute begins with it */
    return (c->n_inputs - a->has_scale) / a->n_parameters;
}

/* Of each parameter everything but the gradient. */
static bool update_changes(const tl_call *c, int i) {
    const int n = operands_of(c);
    return i < n * ((const struct attr_update *)c->attr)->n_parameters && i % n != 1;
}

/* Adam's moments may be bf16, all of a call or none of it. */
static bool state_fits(const tl_call *c, const tl_tensor *x, const tl_tensor *p, bool is_master) {
    const tl_dtype wide = statistics_dtype(p->dtype), first = c->input[2]->dtype;
    const bool is_narrow = c->op == &op_adam && wide == TL_F32 && first == TL_BF16;
    const tl_dtype need = is_narrow && !is_master ? TL_BF16 : wide;
    return x->dtype == need || call_fail(c, "state must be %s", tl_dtype_name(need));
}

static bool scale_fits(const tl_call *c) {
    const tl_tensor *last = c->input[c->n_inputs - 1];
    return !((const struct attr_update *)c->attr)->has_scale || (last->dtype == TL_F32 && last->numel == 1) ||
           call_fail(c, "the gradient's scale must be one f32 number");
}

static bool master_fits(const tl_call *c) {
    return !((const struct attr_update *)c->attr)->has_master || dtype_info(c->input[0]->dtype)->bits < 32 ||
           call_fail(c, "a master copy is for parameters narrower than f32");
}

static bool update_shape(tl_call *c) {
    const struct attr_update *a = c->attr;
    const int n = operands_of(c);
    if (!scale_fits(c)) return false;
    for (int i = 0; i < n * a->n_parameters; i++) {
        const tl_tensor *x = c->input[i], *p = c->input[i - i % n];
        if (!call_needs_float(c, i)) return false;
        if (!shape_equal(x->rank, x->shape, p->rank, p->shape))
            return call_fail(c, "gradient and state must have the parameter's shape");
        if (i % n >= 2 && !state_fits(c, x, p, a->has_master && i % n == n - 1)) return false;
        if (p->dtype != c->input[0]->dtype) return call_fail(c, "all parameters of a call must have one dtype");
    }
    return master_fits(c);
}

/* Codes and scales of moments: operands 2 to 5 of a parameter. */
static bool moments_fit(const tl_call *c, const tl_tensor *x, const tl_tensor *p, bool is_scale) {
    const int64_t n_blocks = (p->numel + DYNAMIC_BLOCK - 1) / DYNAMIC_BLOCK;
    if (x->dtype != (is_scale ? TL_F32 : TL_U8) || !tensor_is_dense(x))
        return call_fail(c, "moments must be dense u8 with dense f32 scales");
    if (is_scale)
        return (x->rank == 1 && x->numel == n_blocks) ||
               call_fail(c, "moments must have one scale for %d elements", (int)DYNAMIC_BLOCK);
    return shape_equal(x->rank, x->shape, p->rank, p->shape) ||
           call_fail(c, "gradient and moments must have the parameter's shape");
}

static bool adam_8bit_shape(tl_call *c) {
    const struct attr_update *a = c->attr;
    const int n = operands_of(c);
    if (!scale_fits(c)) return false;
    for (int i = 0; i < n * a->n_parameters; i++) {
        const tl_tensor *x = c->input[i], *p = c->input[i - i % n];
        const int which = i % n;
        if (which >= 2 && which < 6) {
            if (!moments_fit(c, x, p, which >= 4)) return false;
            continue;
        }
        if (!call_needs_float(c, i)) return false;
        if (!shape_equal(x->rank, x->shape, p->rank, p->shape))
            return call_fail(c, "gradient and moments must have the parameter's shape");
        if (which == 6 && x->dtype != TL_F32) return call_fail(c, "state must be f32");
        if (p->dtype != c->input[0]->dtype) return call_fail(c, "all parameters of a call must have one dtype");
        if (p->dtype == TL_F64) return call_fail(c, "f64 parameters need f64 moments");
    }
    return master_fits(c);
}

/* a scale of the gradient: 1 */
static void update_cost(const tl_call *c, struct cost *cost, int flops) {
    const struct attr_update *a = c->attr;
    const int n = operands_of(c);
    count numel = 0;
    for (int t = 0; t < a->n_parameters; t++) numel += (count)c->input[t * n]->numel;
    cost_traffic(c, cost, (count)(flops + a->has_scale) * numel);
    for (int t = 0; a->has_master && t < a->n_parameters; t++)
        cost->part[0].bytes_read -= tensor_traffic(c->input[t * n]); /* the master is read instead */
}

/* times lr, subtract: 2; weight decay: 2; momentum: 3; nesterov: 2 */
static void sgd_momentum_cost(const tl_call *c, struct cost *cost) {
    const tl_sgd_options *o = &((const struct attr_sgd_momentum *)c->attr)->options;
    update_cost(c, cost, 2 + 2 * (o->weight_decay != 0) + 3 * (o->momentum != 0) + 2 * o->nesterov);
}
/* sum of squares: 2; sqrt, eps, divide: 3; times lr, subtract: 2; weight decay: 2 */
static void adagrad_cost(const tl_call *c, struct cost *cost) {
    const tl_adagrad_options *o = &((const struct attr_adagrad *)c->attr)->options;
    update_cost(c, cost, 7 + 2 * (o->weight_decay != 0));
}
/* square: 4; sqrt, eps, divide: 3; times lr, subtract: 2; weight decay: 2; centered: mean 3, minus its square 2;
 * momentum: 2 */
static void rmsprop_cost(const tl_call *c, struct cost *cost) {
    const tl_rmsprop_options *o = &((const struct attr_rmsprop *)c->attr)->options;
    update_cost(c, cost, 9 + 2 * (o->weight_decay != 0) + 5 * o->centered + 2 * (o->momentum != 0));
}
/* m: 3; v: 4; sqrt, divide, eps: 3; times step size, divide, subtract: 3; weight decay: 2, decoupled 1; amsgrad: 1 */
static void adam_cost(const tl_call *c, struct cost *cost) {
    const struct attr_adam *a = c->attr;
    const tl_adam_options *o = &a->options;
    update_cost(c, cost, 13 + (o->weight_decay != 0 ? 2 - o->decoupled : 0) + a->has_max);
}

/* Adam's, and of both moments: value times scale, the largest of the block, a division */
static void adam_8bit_cost(const tl_call *c, struct cost *cost) {
    const tl_adam_options *o = &((const struct attr_adam *)c->attr)->options;
    update_cost(c, cost, 13 + (o->weight_decay != 0 ? 2 - o->decoupled : 0) + 2 * 3);
}

/* mean of m and g: 3; its sign: 1; times lr, subtract: 2; m: 3; weight decay: 1 */
static void lion_cost(const tl_call *c, struct cost *cost) {
    const tl_lion_options *o = &((const struct attr_lion *)c->attr)->options;
    update_cost(c, cost, 9 + (o->weight_decay != 0));
}
/* buffer: 3; nesterov: 3 */
static void muon_momentum_cost(const tl_call *c, struct cost *cost) {
    const tl_muon_options *o = &((const struct attr_muon_momentum *)c->attr)->options;
    update_cost(c, cost, 3 + 3 * o->nesterov);
}

/* v: 4; corrected, sqrt, eps, divide: 4; mean of p and z: 3; steps of p and z: 4; weight decay: 2 */
static void schedule_free_cost(const tl_call *c, struct cost *cost) {
    const tl_schedule_free_options *o = &((const struct attr_schedule_free *)c->attr)->options;
    update_cost(c, cost, 15 + 2 * (o->weight_decay != 0));
}
/* difference, times weight, sum: 3 */
static void ema_cost(const tl_call *c, struct cost *cost) { update_cost(c, cost, 3); }

#define UPDATE_RULES .dtypes = "floats; states f32 (f64 for f64 p)", .shape = update_shape, .changes = update_changes

const tl_op op_sgd_momentum = {RECORD(KERNEL, sgd_momentum, 0), UPDATE_RULES, .cost = sgd_momentum_cost,
                               .shapes = "p, g [, buffer] [, master], all alike, for each parameter [, scale]",
                               .flops = "2n; weight decay 2n, momentum 3n, nesterov 2n, scale n"};
const tl_op op_adagrad = {RECORD(KERNEL, adagrad, 0), UPDATE_RULES, .cost = adagrad_cost,
                          .shapes = "p, g, sum [, master], all alike, for each parameter [, scale]",
                          .flops = "7n; weight decay 2n, scale n"};
const tl_op op_rmsprop = {RECORD(KERNEL, rmsprop, 0), UPDATE_RULES, .cost = rmsprop_cost,
                          .shapes =
                              "p, g, square [, mean] [, buffer] [, master], all alike, for each parameter [, scale]",
                          .flops = "9n; weight decay 2n, centered 5n, momentum 2n, scale n"};
const tl_op op_adam = {RECORD(KERNEL, adam, 0), UPDATE_RULES, .cost = adam_cost,
                       .shapes = "p, g, m, v [, max] [, master], all alike, for each parameter [, scale]",
                       .flops = "13n; weight decay 2n (decoupled n), amsgrad n, scale n"};
const tl_op op_adam_8bit = {RECORD(KERNEL, adam_8bit, 0),
                            .dtypes = "floats but f64; m, v u8, their scales f32",
                            .shape = adam_8bit_shape,
                            .changes = update_changes,
                            .cost = adam_8bit_cost,
                            .shapes = "p, g, m, v alike, m_scale, v_scale (n/256) [, master], for each [, scale]",
                            .flops = "19n; weight decay 2n (decoupled n), scale n"};
const tl_op op_lion = {RECORD(KERNEL, lion, 0), UPDATE_RULES, .cost = lion_cost,
                       .shapes = "p, g, m [, master], all alike, for each parameter [, scale]",
                       .flops = "9n; weight decay n, scale n"};
const tl_op op_muon_momentum = {RECORD(KERNEL, muon_momentum, 0), UPDATE_RULES, .cost = muon_momentum_cost,
                                .shapes = "u, g, buffer, all alike, for each parameter [, scale]",
                                .flops = "3n; nesterov 3n, scale n"};
const tl_op op_schedule_free = {RECORD(KERNEL, schedule_free, 0), UPDATE_RULES, .cost = schedule_free_cost,
                                .shapes = "p, g, z, v [, master], all alike, for each parameter [, scale]",
                                .flops = "15n; weight decay 2n, scale n"};
const tl_op op_ema = {RECORD(KERNEL, ema, 0), .dtypes = "floats",
                      .shape = update_shape,  .changes = update_changes,
                      .cost = ema_cost,       .shapes = "average, x, alike, for each pair [, scale]",
                      .flops = "3n; scale n"};

/* The tensors of one call: those of as many parameters as fit. */
struct batch {
    tl_tensor *input[TL_MAX_INPUTS];
    int n_inputs, n_parameters;
    uint64_t n_words, words_before, words_after; /* of rounding at random: of these, and of parts that others have */
};

static int tensors_of(const struct update_tensors *t, tl_tensor **input) {
    int n = 0;
    input[n++] = t->parameter;
    input[n++] = t->grad;
    for (int i = 0; i < UPDATE_STATES; i++)
        if (t->state[i]) input[n++] = t->state[i];
    if (t->master) input[n++] = t->master;
    return n;
}

/* Whether tensors of two parameters share a storage: one call would refuse to write both, separate calls may. */
static bool is_shared(const struct batch *b, tl_tensor *const *input, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < b->n_inputs; k++)
            if (b->input[k]->storage == input[i]->storage) return true;
    return false;
}

/* Takes the list's next parameters, at least one. Returns how many. */
static int batch_fill(struct batch *b, const struct update_tensors *list, int n, int room) {
    *b = (struct batch){.n_inputs = 0};
    for (int t = 0; t < n; t++) {
        tl_tensor *input[2 + UPDATE_STATES + 1];
        const int n_tensors = tensors_of(&list[t], input);
        const bool is_part = list[t].words_before || list[t].words_after;
        if (t && (is_part || b->words_before || b->words_after)) break;
        if (t && (b->n_inputs + n_tensors > room || is_shared(b, input, n_tensors))) break;
        memcpy(b->input + b->n_inputs, input, (size_t)n_tensors * sizeof *input);
        b->n_inputs += n_tensors;
        b->n_parameters++;
        b->n_words += update_words(list[t].parameter->numel);
        b->words_before = list[t].words_before;
        b->words_after = list[t].words_after;
    }
    return b->n_parameters;
}

/* `attr` begins with a struct attr_update, which is filled here but for has_master. */
static bool batch_apply(const tl_op *op, struct batch *b, const tl_update_options *options, void *attr,
                        size_t attr_bytes) {
    struct attr_update *a = attr;
    struct thread_state *state = thread_state();
    if (options->grad_scale) b->input[b->n_inputs++] = options->grad_scale;
    a->n_parameters = b->n_parameters;
    a->has_scale = options->grad_scale != NULL;
    a->is_stochastic = options->stochastic && dtype_info(b->input[0]->dtype)->bits < 32;
    a->generator = state->generator;
    a->generator.index = (state->generator.index + 3) / 4 * 4; /* rounded: a state may have been set by hand */
    a->generator.index += b->words_before;
    tl_call c;
    call_begin(&c, op, b->input, b->n_inputs, attr, attr_bytes);
    bool ok = op_apply(&c) != NULL;
    if (ok && a->is_stochastic) state->generator.index = a->generator.index + b->n_words + b->words_after;
    return ok;
}

bool update_apply(const tl_op *op, const struct update_tensors *list, int n, const tl_update_options *options,
                  void *attr, size_t attr_bytes) {
    if (tl_error() != TL_OK)
        return false; /* a NULL may be a scale or a master that failed, not one that is not wanted */
    const char *const name = op->name;
    for (int t = 0; t < n; t++)
        if (!tensor_check(list[t].parameter, name) || !tensor_check(list[t].grad, name)) return false;
    ((struct attr_update *)attr)->has_master = n > 0 && list[0].master;
    bool mode = tl_set_grad_mode(false), ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int done = 0; ok && done < n;) {
        struct batch b;
        done += batch_fill(&b, list + done, n - done, TL_MAX_INPUTS - (options->grad_scale != NULL));
        ok = batch_apply(op, &b, options, attr, attr_bytes);
    }
    tl_set_phase(phase);
    tl_set_grad_mode(mode);
    return ok;
}

static bool step_check(const char *what, int64_t step, bool needs_buffer, bool has_buffer) {
    if (step < 1) return error_set(TL_ERROR_USE, "%s: steps are counted from 1, not %lld", what, (long long)step);
    return needs_buffer == has_buffer ||
           error_set(TL_ERROR_USE, "%s: a buffer is given exactly when there is momentum", what);
}

/* ---- SGD ---- */

tl_sgd_options tl_sgd_defaults(void) { return (tl_sgd_options){.lr = 1e-3, .step = 1}; }

bool update_sgd(const struct update_tensors *list, int n, const tl_sgd_options *options) {
    const int64_t step = options->momentum != 0 ? options->step : 1; /* only a buffer needs to know the first */
    for (int t = 0; t < n; t++)
        if (!step_check("sgd_momentum", step, options->momentum != 0, list[t].state[0] != NULL)) return false;
    if (options->nesterov && (options->momentum <= 0 || options->dampening != 0))
        return error_set(TL_ERROR_USE, "sgd_momentum: Nesterov momentum requires a momentum and zero dampening");
    struct attr_sgd_momentum a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    return update_apply(&op_sgd_momentum, list, n, &options->update, ATTR(a));
}

bool tl_sgd_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *buffer, const tl_sgd_options *options) {
    const tl_sgd_options defaults = tl_sgd_defaults();
    if (!options) options = &defaults;
    if (!tensor_check(parameter, "sgd_momentum") || !tensor_check(grad, "sgd_momentum")) return false;
    return update_sgd(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {buffer}, .master = options->update.master},
        1, options);
}

/* ---- Adagrad ---- */

tl_adagrad_options tl_adagrad_defaults(void) { return (tl_adagrad_options){.lr = 1e-2, .eps = 1e-10, .step = 1}; }

bool update_adagrad(const struct update_tensors *list, int n, const tl_adagrad_options *options) {
    for (int t = 0; t < n; t++)
        if (!tensor_check(list[t].state[0], "adagrad")) return false;
    if (!step_check("adagrad", options->step, false, false)) return false;
    struct attr_adagrad a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    return update_apply(&op_adagrad, list, n, &options->update, ATTR(a));
}

bool tl_adagrad_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *sum, const tl_adagrad_options *options) {
    const tl_adagrad_options defaults = tl_adagrad_defaults();
    if (!options) options = &defaults;
    if (!tensor_check(parameter, "adagrad") || !tensor_check(grad, "adagrad")) return false;
    return update_adagrad(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {sum}, .master = options->update.master},
        1, options);
}

/* ---- RMSprop ---- */

tl_rmsprop_options tl_rmsprop_defaults(void) { return (tl_rmsprop_options){.lr = 1e-2, .alpha = 0.99, .eps = 1e-8}; }

/* The states are square, mean and buffer. */
bool update_rmsprop(const struct update_tensors *list, int n, const tl_rmsprop_options *options) {
    for (int t = 0; t < n; t++) {
        if (!tensor_check(list[t].state[0], "rmsprop")) return false;
        if (!step_check("rmsprop", 1, options->momentum != 0, list[t].state[2] != NULL)) return false;
        if (options->centered != (list[t].state[1] != NULL))
            return error_set(TL_ERROR_USE, "rmsprop: a mean is given exactly when it is centered");
    }
    struct attr_rmsprop a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    return update_apply(&op_rmsprop, list, n, &options->update, ATTR(a));
}

bool tl_rmsprop_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *square, tl_tensor *mean, tl_tensor *buffer,
                 const tl_rmsprop_options *options) {
    const tl_rmsprop_options defaults = tl_rmsprop_defaults();
    if (!options) options = &defaults;
    if (!tensor_check(parameter, "rmsprop") || !tensor_check(grad, "rmsprop")) return false;
    return update_rmsprop(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {square, mean, buffer}, .master = options->update.master},
        1, options);
}

/* ---- Adam ---- */

tl_adam_options tl_adam_defaults(void) {
    return (tl_adam_options){.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 1};
}

/* The states are m, v and, for amsgrad, max. */
bool update_adam(const struct update_tensors *list, int n, const tl_adam_options *options) {
    for (int t = 0; t < n; t++)
        if (!tensor_check(list[t].state[0], "adam") || !tensor_check(list[t].state[1], "adam")) return false;
    if (!step_check("adam", options->step, false, false)) return false;
    struct attr_adam a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    a.has_max = n > 0 && list[0].state[2];
    return update_apply(&op_adam, list, n, &options->update, ATTR(a));
}

bool tl_adam_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *max,
              const tl_adam_options *options) {
    const tl_adam_options defaults = tl_adam_defaults();
    if (!options) options = &defaults;
    if (!tensor_check(parameter, "adam") || !tensor_check(grad, "adam")) return false;
    return update_adam(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {m, v, max}, .master = options->update.master},
        1, options);
}

/* The states are m, v and their scales. */
bool update_adam_8bit(const struct update_tensors *list, int n, const tl_adam_options *options) {
    for (int t = 0; t < n; t++)
        for (int i = 0; i < UPDATE_STATES; i++)
            if (!tensor_check(list[t].state[i], "adam_8bit")) return false;
    if (!step_check("adam_8bit", options->step, false, false)) return false;
    struct attr_adam a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    return update_apply(&op_adam_8bit, list, n, &options->update, ATTR(a));
}

bool tl_adam_8bit_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *m_scale,
                   tl_tensor *v_scale, const tl_adam_options *options) {
    const tl_adam_options defaults = tl_adam_defaults();
    if (!options) options = &defaults;
    if (!tensor_check(parameter, "adam_8bit") || !tensor_check(grad, "adam_8bit")) return false;
    return update_adam_8bit(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {m, v, m_scale, v_scale}, .master = options->update.master},
        1, options);
}

/* ---- Lion ---- */

tl_lion_options tl_lion_defaults(void) { return (tl_lion_options){.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99}; }

bool update_lion(const struct update_tensors *list, int n, const tl_lion_options *options) {
    for (int t = 0; t < n; t++)
        if (!tensor_check(list[t].state[0], "lion")) return false;
    struct attr_lion a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    return update_apply(&op_lion, list, n, &options->update, ATTR(a));
}

bool tl_lion_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, const tl_lion_options *options) {
    const tl_lion_options defaults = tl_lion_defaults();
    if (!options) options = &defaults;
    if (!tensor_check(parameter, "lion") || !tensor_check(grad, "lion")) return false;
    return update_lion(
        &(struct update_tensors){.parameter = parameter, .grad = grad, .state = {m}, .master = options->update.master},
        1, options);
}

/* ---- Muon's first part; the rest is in muon.c ---- */

bool update_muon_momentum(const struct update_tensors *list, int n, const tl_muon_options *options) {
    struct attr_muon_momentum a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    return update_apply(&op_muon_momentum, list, n, &options->update, ATTR(a));
}

/* ---- Schedule-free AdamW ---- */

tl_schedule_free_options tl_schedule_free_defaults(void) {
    return (tl_schedule_free_options){.lr = 2.5e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .share = 1, .step = 1};
}

/* The states are z and v. */
bool update_schedule_free(const struct update_tensors *list, int n, const tl_schedule_free_options *options) {
    for (int t = 0; t < n; t++)
        if (!tensor_check(list[t].state[0], "schedule_free") || !tensor_check(list[t].state[1], "schedule_free"))
            return false;
    if (!step_check("schedule_free", options->step, false, false)) return false;
    if (!(options->share >= 0 && options->share <= 1))
        return error_set(TL_ERROR_USE, "schedule_free: share is %g (need 0 to 1)", options->share);
    struct attr_schedule_free a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    return update_apply(&op_schedule_free, list, n, &options->update, ATTR(a));
}

bool tl_schedule_free_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *z, tl_tensor *v,
                       const tl_schedule_free_options *options) {
    const tl_schedule_free_options defaults = tl_schedule_free_defaults();
    if (!options) options = &defaults;
    if (!tensor_check(parameter, "schedule_free") || !tensor_check(grad, "schedule_free")) return false;
    return update_schedule_free(
        &(struct update_tensors){
            .parameter = parameter, .grad = grad, .state = {z, v}, .master = options->update.master},
        1, options);
}

/* ---- Averages ---- */

bool update_ema(const struct update_tensors *list, int n, double weight, tl_tensor *scale) {
    if (!isfinite(weight)) return error_set(TL_ERROR_USE, "ema: weight is %g (need a number)", weight);
    struct attr_ema a;
    memset(&a, 0, sizeof a);
    a.weight = weight;
    return update_apply(&op_ema, list, n, &(tl_update_options){.grad_scale = scale}, ATTR(a));
}

bool tl_ema_(tl_tensor *average, tl_tensor *x, double weight) {
    if (!tensor_check(average, "ema") || !tensor_check(x, "ema")) return false;
    return update_ema(&(struct update_tensors){.parameter = average, .grad = x}, 1, weight, NULL);
}
