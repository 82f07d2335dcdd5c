/* optimizer.c: the optimizers of torch.optim, one op and one pass each, with one way to treat narrow parameters.
 *
 * Inputs are p, g, the states that the options ask for, a master copy and a scale of the gradient where there are any;
 * results are all of them but g and the scale. With a master the old parameter is not read.
 */
#include <string.h>

#include "ops/ops.h"

enum { UPDATE_INPUTS = 7 };

static bool update_shape(tl_call *c) {
    const struct attr_update *a = c->attr; /* every attribute begins with it */
    const tl_tensor *p = c->input[0], *last = c->input[c->n_inputs - 1];
    if (a->has_scale && (last->dtype != TL_F32 || last->numel != 1))
        return call_fail(c, "the gradient's scale must be one f32 number");
    for (int i = 0; i < c->n_inputs - a->has_scale; i++) {
        const tl_tensor *x = c->input[i];
        if (!call_needs_float(c, i)) return false;
        if (!shape_equal(x->rank, x->shape, p->rank, p->shape))
            return call_fail(c, "gradient and state must have the parameter's shape");
        if (i >= 2 && x->dtype != statistics_dtype(p->dtype))
            return call_fail(c, "state must be %s", tl_dtype_name(statistics_dtype(p->dtype)));
    }
    return !a->has_master || dtype_info(p->dtype)->bits < 32 ||
           call_fail(c, "a master copy is for parameters narrower than f32");
}

/* a scale of the gradient: 1 */
static void update_cost(const tl_call *c, struct cost *cost, int flops) {
    const struct attr_update *a = c->attr;
    cost_traffic(c, cost, (count)(flops + a->has_scale) * (count)c->input[0]->numel);
    if (a->has_master) cost->part[0].bytes_read -= tensor_traffic(c->input[0]); /* the master is read instead */
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
/* square: 4; sqrt, eps, divide: 3; times lr, subtract: 2; weight decay: 2; centered: mean 3, minus its square 2; momentum: 2 */
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

#define UPDATE_RULES                                                       \
    .dtypes = "floats; states f32 (f64 for f64 p)", .shape = update_shape, \
    .overwrites = {OVERWRITES(0), OVERWRITES(2), OVERWRITES(3), OVERWRITES(4), OVERWRITES(5)}

const tl_op op_sgd_momentum = {RECORD(KERNEL, sgd_momentum, 3), UPDATE_RULES, .cost = sgd_momentum_cost,
                               .shapes = "p, g [, buffer] [, master], all alike [, scale]",
                               .flops = "2n; weight decay 2n, momentum 3n, nesterov 2n, scale n"};
const tl_op op_adagrad = {RECORD(KERNEL, adagrad, 3), UPDATE_RULES, .cost = adagrad_cost,
                          .shapes = "p, g, sum [, master], all alike [, scale]",
                          .flops = "7n; weight decay 2n, scale n"};
const tl_op op_rmsprop = {RECORD(KERNEL, rmsprop, 5), UPDATE_RULES, .cost = rmsprop_cost,
                          .shapes = "p, g, square [, mean] [, buffer] [, master], all alike [, scale]",
                          .flops = "9n; weight decay 2n, centered 5n, momentum 2n, scale n"};
const tl_op op_adam = {RECORD(KERNEL, adam, 5), UPDATE_RULES, .cost = adam_cost,
                       .shapes = "p, g, m, v [, max] [, master], all alike [, scale]",
                       .flops = "13n; weight decay 2n (decoupled n), amsgrad n, scale n"};

/* The operands of one step, in their order. */
struct step {
    tl_tensor *input[UPDATE_INPUTS];
    int n_inputs;
};
static void step_add(struct step *s, tl_tensor *x) {
    if (x) s->input[s->n_inputs++] = x;
}

/* Outside the graph, in the update phase. `attr` begins with a struct attr_update, which is filled here. */
static bool step_apply(const tl_op *op, struct step *s, const tl_update_options *options, void *attr,
                       size_t attr_bytes) {
    struct attr_update *a = attr;
    struct thread_state *state = thread_state();
    const tl_tensor *p = s->input[0];
    if (tl_error() != TL_OK)
        return false; /* a NULL may be a scale or a master that failed, not one that is not wanted */
    step_add(s, options->master);
    step_add(s, options->grad_scale);
    a->has_master = options->master != NULL;
    a->has_scale = options->grad_scale != NULL;
    a->is_stochastic = options->stochastic && dtype_info(p->dtype)->bits < 32;
    a->generator = state->generator;
    a->generator.index = (state->generator.index + 3) / 4 * 4; /* rounded: a state may have been set by hand */
    bool mode = tl_grad_mode(false);
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_call c;
    call_begin(&c, op, s->input, s->n_inputs, attr, attr_bytes);
    c.n_outputs = s->n_inputs - 1 - a->has_scale;
    bool ok = op_apply(&c) != NULL;
    if (ok && a->is_stochastic) state->generator.index = (a->generator.index + (uint64_t)p->numel + 3) / 4 * 4;
    tl_set_phase(phase);
    tl_grad_mode(mode);
    return ok;
}

static bool step_check(const char *what, int64_t step, bool needs_buffer, bool has_buffer) {
    if (step < 1) return error_set(TL_ERROR_USE, "%s: steps are counted from 1, not %lld", what, (long long)step);
    return needs_buffer == has_buffer ||
           error_set(TL_ERROR_USE, "%s: a buffer is given exactly when there is momentum", what);
}

tl_sgd_options tl_sgd_defaults(void) { return (tl_sgd_options){.lr = 1e-3, .step = 1}; }

bool tl_sgd_momentum_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *buffer, const tl_sgd_options *options) {
    if (!tensor_check(parameter, "sgd_momentum") || !tensor_check(grad, "sgd_momentum")) return false;
    if (!step_check("sgd_momentum", options->step, options->momentum != 0, buffer != NULL)) return false;
    if (options->nesterov && (options->momentum <= 0 || options->dampening != 0))
        return error_set(TL_ERROR_USE, "sgd_momentum: Nesterov momentum requires a momentum and zero dampening");
    struct attr_sgd_momentum a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    struct step s = {{parameter, grad}, 2};
    step_add(&s, buffer);
    return step_apply(&op_sgd_momentum, &s, &options->update, ATTR(a));
}

bool tl_sgd_(tl_tensor *parameter, tl_tensor *grad, double lr) {
    return tl_sgd_momentum_(parameter, grad, NULL, &(tl_sgd_options){.lr = lr, .step = 1});
}

tl_adagrad_options tl_adagrad_defaults(void) { return (tl_adagrad_options){.lr = 1e-2, .eps = 1e-10, .step = 1}; }

bool tl_adagrad_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *sum, const tl_adagrad_options *options) {
    if (!tensor_check(parameter, "adagrad") || !tensor_check(grad, "adagrad") || !tensor_check(sum, "adagrad"))
        return false;
    if (!step_check("adagrad", options->step, false, false)) return false;
    struct attr_adagrad a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    struct step s = {{parameter, grad, sum}, 3};
    return step_apply(&op_adagrad, &s, &options->update, ATTR(a));
}

tl_rmsprop_options tl_rmsprop_defaults(void) { return (tl_rmsprop_options){.lr = 1e-2, .alpha = 0.99, .eps = 1e-8}; }

bool tl_rmsprop_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *square, tl_tensor *mean, tl_tensor *buffer,
                 const tl_rmsprop_options *options) {
    if (!tensor_check(parameter, "rmsprop") || !tensor_check(grad, "rmsprop") || !tensor_check(square, "rmsprop"))
        return false;
    if (!step_check("rmsprop", 1, options->momentum != 0, buffer != NULL)) return false;
    if (options->centered != (mean != NULL))
        return error_set(TL_ERROR_USE, "rmsprop: a mean is given exactly when it is centered");
    struct attr_rmsprop a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    struct step s = {{parameter, grad, square}, 3};
    step_add(&s, mean);
    step_add(&s, buffer);
    return step_apply(&op_rmsprop, &s, &options->update, ATTR(a));
}

tl_adam_options tl_adam_defaults(void) {
    return (tl_adam_options){.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 1};
}

bool tl_adam_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *max,
              const tl_adam_options *options) {
    if (!tensor_check(parameter, "adam") || !tensor_check(grad, "adam") || !tensor_check(m, "adam") ||
        !tensor_check(v, "adam"))
        return false;
    if (!step_check("adam", options->step, false, false)) return false;
    struct attr_adam a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    a.has_max = max != NULL;
    struct step s = {{parameter, grad, m, v}, 4};
    step_add(&s, max);
    return step_apply(&op_adam, &s, &options->update, ATTR(a));
}

bool tl_adamw_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, const tl_adamw_options *options) {
    return tl_adam_(parameter, grad, m, v, NULL,
                    &(tl_adam_options){.lr = options->lr,
                                       .beta1 = options->beta1,
                                       .beta2 = options->beta2,
                                       .eps = options->eps,
                                       .weight_decay = options->weight_decay,
                                       .decoupled = true,
                                       .step = options->step});
}
