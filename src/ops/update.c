/* update.c: optimizer steps, in place, one pass each. */
#include <string.h>

#include "ops/ops.h"

static bool update_shape(tl_call *c) {
    const tl_tensor *p = c->input[0];
    for (int i = 0; i < c->n_inputs; i++) {
        const tl_tensor *x = c->input[i];
        if (!call_needs_float(c, i)) return false;
        if (!shape_equal(x->rank, x->shape, p->rank, p->shape))
            return call_fail(c, "gradient and state must have the parameter's shape");
        if (i >= 2 && x->dtype != statistics_dtype(p->dtype))
            return call_fail(c, "state must be %s", tl_dtype_name(statistics_dtype(p->dtype)));
    }
    return true;
}

/* decay 1; m: 3; v: 4; sqrt, divide, add eps: 3; times step size, divide, subtract: 3 */
static void adamw_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 14 * (count)c->input[0]->numel); }
static void sgd_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 2 * (count)c->input[0]->numel); }

const tl_op op_adamw = {RECORD(KERNEL, adamw, 3),
                        .shapes = "p, g, m, v, all alike",
                        .dtypes = "floats; states f32 (f64 for f64 p)",
                        .flops = "14n: decay 1, m 3, v 4, sqrt and eps 3, step 3",
                        .shape = update_shape,
                        .cost = adamw_cost,
                        .overwrites = {OVERWRITES(0), OVERWRITES(2), OVERWRITES(3)}};
const tl_op op_sgd = {RECORD(KERNEL, sgd, 1),       .shapes = "p, g, all alike",
                      .dtypes = "floats",           .flops = "2n: times lr, subtract",
                      .shape = update_shape,        .cost = sgd_cost,
                      .overwrites = {OVERWRITES(0)}};

/* Outside the graph, in the update phase. */
static bool update(const tl_op *op, tl_tensor **input, int n_inputs, const void *attr, size_t attr_bytes) {
    bool mode = tl_grad_mode(false);
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_call c;
    call_begin(&c, op, input, n_inputs, attr, attr_bytes);
    bool ok = op_apply(&c) != NULL;
    tl_set_phase(phase);
    tl_grad_mode(mode);
    return ok;
}

bool tl_adamw_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, const tl_adamw_options *options) {
    struct attr_adamw a;
    memset(&a, 0, sizeof a);
    a.options = *options;
    if (options->step < 1)
        return error_set(TL_ERROR_USE, "adamw: steps are counted from 1, not %lld", (long long)options->step);
    tl_tensor *input[4] = {parameter, grad, m, v};
    return update(&op_adamw, input, 4, ATTR(a));
}

bool tl_sgd_(tl_tensor *parameter, tl_tensor *grad, double lr) {
    struct attr_sgd a = {lr};
    tl_tensor *input[2] = {parameter, grad};
    return update(&op_sgd, input, 2, ATTR(a));
}
