/* head.c: the last product and the loss in one op, so that the logits never exist as a whole.
 *
 * Logits (N,V) are by far the largest tensor of a language model, and they live through the peak: made by the last
 * product, kept for backward, and joined there by their own gradient. The loss is a sum over rows, so rows can be
 * taken in chunks: logits of a chunk, their loss, the gradient of the logits in their place, and from it the chunk's
 * part of dx and dweight. The results are dx and dweight, which backward multiplies by the gradient of the loss.
 *
 * The gradients are backward's work done early. They are billed to backward, and computed only if gradients may be
 * needed.
 */
#include <math.h>
#include <string.h>

#include "ops/head.h"
#include "ops/ops.h"

struct head_cut head_cut_of(const tl_tensor *x, int64_t n_classes) {
    const struct target *t = x->storage->device->target;
    if (!t->rules->head) return (struct head_cut){.chunk_rows = x->shape[0] > 0 ? x->shape[0] : 1};
    return t->rules->head(t, x->dtype, x->shape[0], n_classes, x->shape[1]);
}

/* Ranks are checked later, by the shape rule. */
static struct head_cut cut_of(const tl_tensor *x, const tl_tensor *weight) {
    if (x->rank != 2 || weight->rank != 2) return (struct head_cut){.chunk_rows = 1};
    return head_cut_of(x, weight->shape[0]);
}

static bool linear_cross_entropy_shape(tl_call *c) {
    const struct attr_linear_cross_entropy *a = c->attr;
    const tl_tensor *x = c->input[0], *w = c->input[1], *targets = c->input[2];
    if (!call_needs_float(c, 0) || !call_needs_float(c, 1) || !call_needs_index(c, 2)) return false;
    if (x->rank != 2 || w->rank != 2 || x->shape[1] != w->shape[1])
        return call_fail_need(c, "inner sizes differ", "x [N,C], weight [V,C] and targets [N]");
    if (targets->rank != 1 || targets->shape[0] != x->shape[0])
        return call_fail_need(c, "one target per row", "x [N,C], weight [V,C] and targets [N]");
    if (x->dtype != w->dtype) return call_fail_need(c, "x and weight have different dtypes", "a cast");
    int j = 0;
    call_output(c, j++, statistics_dtype(x->dtype), 0, NULL);
    if (a->gives_dx) call_output_like(c, j++, 0);
    if (a->gives_dweight) call_output_like(c, j++, 1);
    c->n_outputs = j;
    return true;
}

/* Forward: the product 2NVC, per logit max, subtract, exp, sum, per row one addition, and the mean's product.
 * Backward: per logit subtract, exp, times the scale, and one product for each gradient. A soft cap: per logit a
 * division, tanh and a product, and backward a division, a square and a product. Label smoothing: per logit an
 * addition, per row the mean, a subtraction, two products and an addition, and backward a subtraction per logit. z
 * loss: per row a square, a product and an addition, and backward a product per logit. */
static void linear_cross_entropy_cost(const tl_call *c, struct cost *cost) {
    count N = (count)c->input[0]->shape[0], C = (count)c->input[0]->shape[1], V = (count)c->input[1]->shape[0];
    count read = 0, written = 0;
    const struct attr_linear_cross_entropy *a = c->attr;
    const count cap = a->soft_cap > 0 ? 3 * N * V : 0, smoothing = a->label_smoothing > 0 ? N * V : 0;
    const count z = a->z_weight > 0 ? N * V : 0;
    const count rows = N * (smoothing ? 5 : 0) + N * (z ? 3 : 0);
    for (int i = 0; i < 3; i++) read += tensor_traffic(c->input[i]);
    for (int j = 1; j < c->n_outputs; j++) written += tensor_traffic(c->output[j]);
    *cost = (struct cost){.n_parts = 1,
                          .part[0] = {COST_HERE, 2 * N * V * C + 4 * N * V + N + 1 + cap + smoothing + rows, read,
                                      tensor_traffic(c->output[0])}};
    if (c->n_outputs > 1)
        cost->part[cost->n_parts++] = (struct cost_part){
            TL_BACKWARD, 3 * N * V + cap + smoothing + z + (count)(c->n_outputs - 1) * 2 * N * V * C, 0, written};
}

/* The gradients that forward computed, times the gradient of the loss: in place unless the graph is retained. */
static tl_tensor *scaled(tl_gradient *g, int output) {
    tl_tensor *x = gradient_output(g, output);
    if (!x || g->retains_graph) return x ? tl_mul(x, g->grad[0]) : NULL;
    x = scope_adopt(tensor_keep(x)); /* the node drops it before it is delivered */
    return x ? tl_mul_(tl_set_purpose(x, TL_TEMPORARY), g->grad[0]) : NULL;
}

/* forward computed dx and dweight of the loss; times g */
static void linear_cross_entropy_backward(tl_gradient *g) {
    const struct attr_linear_cross_entropy *a = g->node->attr;
    if (g->creates_graph) {
        error_set(TL_ERROR_USE,
                  "derivative for the gradient of linear_cross_entropy is not implemented (need tl_linear and "
                  "tl_cross_entropy)");
        return;
    }
    if (a->gives_dx && g->needs[0]) g->result[0] = scaled(g, 1);
    if (a->gives_dweight && g->needs[1]) g->result[1] = scaled(g, a->gives_dx ? 2 : 1);
}

const tl_op op_linear_cross_entropy = {
    RECORD(KERNEL, linear_cross_entropy, 3),
    .shapes = "x (N,C), weight (V,C), targets (N): loss () [, dx, dweight]",
    .dtypes = "floats; targets i64, i32; loss f32 (f64 for f64)",
    .flops =
        "2NVC + 4NV + N + 1; backward 3NV, 2NVC per gradient; soft cap 3NV, 3NV; smoothing NV + 5N, NV; z loss 3N, NV",
    .shape = linear_cross_entropy_shape,
    .cost = linear_cross_entropy_cost,
    .backward = linear_cross_entropy_backward,
    .saves_any = TL_OUTPUT(1) | TL_OUTPUT(2)};

tl_linear_cross_entropy_options tl_linear_cross_entropy_defaults(void) {
    return (tl_linear_cross_entropy_options){.ignore_index = -100};
}

static bool options_check(const tl_linear_cross_entropy_options *o) {
    if (!(o->soft_cap >= 0 && isfinite(o->soft_cap)))
        return error_set(TL_ERROR_USE, "linear_cross_entropy: a soft cap of %g (need more than 0, or 0 for none)",
                         o->soft_cap);
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return error_set(TL_ERROR_USE, "linear_cross_entropy: label_smoothing must be between 0.0 and 1.0. Got: %g",
                         o->label_smoothing);
    return (o->z_loss >= 0 && isfinite(o->z_loss)) ||
           error_set(TL_ERROR_USE, "linear_cross_entropy: a z loss of weight %g (need 0 or more)", o->z_loss);
}

tl_tensor *tl_linear_cross_entropy(tl_tensor *x, tl_tensor *weight, tl_tensor *targets,
                                   const tl_linear_cross_entropy_options *options) {
    if (!tensor_check(x, "linear_cross_entropy") || !tensor_check(weight, "linear_cross_entropy") ||
        !tensor_check(targets, "linear_cross_entropy"))
        return NULL;
    const tl_linear_cross_entropy_options defaults = tl_linear_cross_entropy_defaults();
    if (!options) options = &defaults;
    if (!options_check(options)) return NULL;
    tl_scope scope = tl_scope_begin(); /* the gradients stay with the node alone */
    if (!scope.depth) return NULL;
    x = autocast_narrow(x);
    weight = autocast_narrow(weight);
    tl_tensor *input[3] = {x, weight, targets}, *loss = NULL;
    for (int i = 0; i < 3; i++) input[i] = tl_contiguous(input[i]);
    if (input[0] && input[1] && input[2]) {
        bool is_recording = !thread_state()->grad_off;
        struct attr_linear_cross_entropy a;
        memset(&a, 0, sizeof a);
        a.ignore_index = options->ignore_index;
        a.is_sum = options->is_sum;
        a.soft_cap = options->soft_cap;
        a.label_smoothing = options->label_smoothing;
        a.z_weight = options->z_loss;
        a.is_fast = matmul_is_fast();
        a.is_timed = fast_is_on();
        const struct head_cut cut = cut_of(input[0], input[1]);
        a.chunk_rows = cut.chunk_rows;
        a.gives_dx = is_recording && tensor_needs_grad(input[0]);
        a.gives_dweight = is_recording && tensor_needs_grad(input[1]);
        a.is_gathered = a.gives_dweight && cut.is_gathered;
        tl_call c;
        call_begin(&c, &op_linear_cross_entropy, input, 3, ATTR(a));
        loss = op_apply(&c);
    }
    return tl_scope_return(scope, loss);
}
