/* mlp.c: a transformer's MLP as one op, for devices whose products apply an activation before they write.
 *
 * As separate ops, each activation is a pass over the widest tensors of a layer, and each of its gradients is another,
 * which reads two of them. Here the first product writes h and y = gelu(h), and in backward the product g down leaves
 * the tensor core already multiplied by gelu'(h), in the place of h; the sums of its columns, which are the bias's
 * gradient, come with it. So the pass does not exist, and neither does the gradient of y.
 */
#include <string.h>

#include "engine/keeper.h"
#include "ops/ops.h"

enum { X, DOWN, UP, UP_BIAS, DOWN_BIAS, GATE = UP_BIAS }; /* inputs; swiglu has a gate where gelu has a bias */
enum { OUT, Y, H, U = H, Z };                             /* results */

static bool is_swiglu(const tl_op *op) { return op == &op_swiglu_mlp || op == &op_swiglu_mlp_grad; }

/* ---- Shapes ---- */

static bool is_matrix(const tl_tensor *x, int64_t rows, int64_t columns) {
    return x->rank == 2 && x->shape[0] == rows && x->shape[1] == columns;
}
static bool is_vector(const tl_tensor *x, int64_t length) { return x->rank == 1 && x->shape[0] == length; }

/* Dense, and of one float dtype. */
static bool inputs_agree(const tl_call *c) {
    for (int i = 0; i < c->n_inputs; i++) {
        if (!call_needs_float(c, i)) return false;
        if (c->input[i]->dtype != c->input[0]->dtype) return call_fail_need(c, "the dtypes differ", "a cast");
        if (!tl_is_contiguous(c->input[i])) return call_fail(c, "needs dense inputs");
    }
    return true;
}

static bool rows_output(tl_call *c, int j, int64_t width) {
    const tl_tensor *x = c->input[0];
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank - 1] = width;
    return call_output(c, j, x->dtype, x->rank, shape);
}

static bool mlp_shape(tl_call *c) {
    const struct attr_mlp *a = c->attr;
    const tl_tensor *x = c->input[X], *down = c->input[DOWN], *up = c->input[UP];
    const bool has_gate = is_swiglu(c->op), has_biases = !has_gate && c->n_inputs > UP_BIAS;
    if (!inputs_agree(c)) return false;
    const char *const need = has_gate ? "x [...,C], down [D,F], up [F,C] and gate [F,C]"
                                      : "x [...,C], down [D,F], up [F,C], and biases [F] and [D]";
    if (x->rank < 2 || down->rank != 2) return call_fail_need(c, "the sizes do not fit", "%s", need);
    const int64_t C = x->shape[x->rank - 1], D = down->shape[0], F = down->shape[1];
    if (!is_matrix(up, F, C) || (has_gate && !is_matrix(c->input[GATE], F, C)) ||
        (has_biases && (!is_vector(c->input[UP_BIAS], F) || !is_vector(c->input[DOWN_BIAS], D))))
        return call_fail_need(c, "the sizes do not fit", "%s", need);
    c->n_outputs = a->keeps ? c->op->n_outputs : 1;
    for (int j = Y; j < c->n_outputs; j++) rows_output(c, j, F);
    return rows_output(c, OUT, D);
}

enum { G, G_DOWN, G_H, G_U = G_H, G_Z }; /* inputs of a gradient */

static bool mlp_grad_shape(tl_call *c) {
    const struct attr_mlp *a = c->attr;
    const tl_tensor *g = c->input[G], *down = c->input[G_DOWN];
    if (!inputs_agree(c)) return false;
    bool fits = g->rank >= 2 && down->rank == 2 && down->shape[0] == g->shape[g->rank - 1];
    for (int i = G_H; fits && i < c->n_inputs; i++) {
        const tl_tensor *h = c->input[i];
        fits = h->rank == g->rank && h->shape[h->rank - 1] == down->shape[1] &&
               shape_equal(g->rank - 1, g->shape, h->rank - 1, h->shape);
    }
    if (!fits) return call_fail_need(c, "the sizes do not fit", "g [...,D], down [D,F] and rows [...,F]");
    if (is_swiglu(c->op)) return true;
    c->n_outputs = a->gives_sums ? 2 : 1;
    return !a->gives_sums || call_output(c, 1, g->dtype, 1, &down->shape[1]);
}

/* ---- Costs ---- */

/* Products 2nCF (twice with a gate) and 2nFD; per inner feature gelu 9 or swiglu 5; a bias is an addition for each
 * element. n: rows. */
static void mlp_cost(const tl_call *c, struct cost *cost) {
    const bool has_gate = is_swiglu(c->op), has_biases = !has_gate && c->n_inputs > UP_BIAS;
    const tl_tensor *x = c->input[X], *up = c->input[UP], *out = c->output[OUT];
    const count C = (count)up->shape[1], F = (count)up->shape[0], rows = C ? (count)x->numel / C : 0;
    const count inner = rows * F, outer = (count)out->numel;
    const count products = 2 * inner * C * (has_gate ? 2 : 1) + 2 * outer * F;
    cost_traffic(c, cost, products + inner * (has_gate ? 5 : 9) + (has_biases ? inner + outer : 0));
}

/* The product 2nDF; per element the slope and its product, 19 for gelu and 11 for swiglu; an addition to the sums */
static void mlp_grad_cost(const tl_call *c, struct cost *cost) {
    const count n = (count)c->input[G_H]->numel, D = (count)c->input[G_DOWN]->shape[0];
    cost_traffic(c, cost, n * (2 * D + (is_swiglu(c->op) ? 11 : 19 + (c->n_outputs > 1))));
}

/* ---- Gradients ---- */

/* What forward kept, to be overwritten: a copy where it is needed again. */
static tl_tensor *kept(tl_gradient *g, int output) {
    tl_tensor *x = gradient_output(g, output);
    if (!x || g->retains_graph) return x ? tl_clone(x) : NULL;
    return scope_adopt(tensor_keep(x));
}

/* dh and the sums of its columns, or du and dz. */
static bool inner_gradients(tl_gradient *g, tl_tensor *grad, bool gives_sums, tl_tensor **results) {
    const bool has_gate = is_swiglu(g->node->op);
    struct attr_mlp a = *(const struct attr_mlp *)g->node->attr;
    a.gives_sums = gives_sums;
    tl_tensor *input[4] = {[G] = grad};
    if (!(input[G_DOWN] = gradient_input(g, DOWN)) || !(input[G_H] = kept(g, H)) ||
        (has_gate && !(input[G_Z] = kept(g, Z))))
        return false;
    tl_call c;
    call_begin(&c, has_gate ? &op_swiglu_mlp_grad : &op_gelu_mlp_grad, input, has_gate ? 4 : 3, ATTR(a));
    if (!op_apply(&c)) return false;
    for (int j = 0; j < c.n_outputs; j++) results[j] = c.output[j];
    return true;
}

/* of = grad^T rows, for a weight */
static void weight_gradient(tl_gradient *g, int weight, tl_tensor *grad, tl_tensor *rows) {
    if (g->needs[weight] && grad && rows)
        g->result[weight] =
            matmul_product(grad, true, rows, false, g->into[weight], g->node->edges[weight].dtype, rows->rank > 2);
}

/* dout = g: ddown = g^T y; dy = g down and from it dh, or du and dz; dup = dh^T x; dx = dh up, or dz gate + du up */
static void mlp_backward(tl_gradient *g) {
    const bool has_gate = is_swiglu(g->node->op), has_biases = !has_gate && g->node->n_inputs > UP_BIAS;
    const tl_dtype dtype = g->node->edges[X].dtype;
    if (g->creates_graph) {
        error_set(TL_ERROR_USE,
                  "derivative for the gradient of %s is not implemented (need tl_linear and the activation)",
                  g->node->op->name);
        return;
    }
    tl_tensor *grad = tl_contiguous(tl_cast(g->grad[0], dtype)), *d[2] = {NULL, NULL};
    if (!grad) return;
    if (g->needs[DOWN]) weight_gradient(g, DOWN, grad, gradient_output(g, Y));
    if (has_biases && g->needs[DOWN_BIAS]) g->result[DOWN_BIAS] = grad; /* summed over the rows when it is delivered */
    const bool wants_sums = has_biases && g->needs[UP_BIAS], wants_gate = has_gate && g->needs[GATE];
    if (!g->needs[X] && !g->needs[UP] && !wants_sums && !wants_gate) return;
    if (!inner_gradients(g, grad, wants_sums, d)) return;
    if (wants_sums) g->result[UP_BIAS] = d[1];
    if (g->needs[UP]) weight_gradient(g, UP, d[0], gradient_input(g, X));
    if (wants_gate) weight_gradient(g, GATE, d[1], gradient_input(g, X));
    if (!g->needs[X]) return;
    tl_tensor *dx = g->into[X];
    const bool folds = grad->rank > 2;
    if (has_gate) dx = matmul_product(d[1], false, gradient_input(g, GATE), false, dx, dtype, folds);
    if (has_gate && !dx) return;
    g->result[X] = matmul_product(d[0], false, gradient_input(g, UP), false, dx, dtype, folds);
}

const tl_op op_gelu_mlp = {RECORD(KERNEL, gelu_mlp, 3),
                           .shapes =
                               "x (...,C), down (D,F), up (F,C) [, biases (F), (D)]: out (...,D) [, y, h (...,F)]",
                           .dtypes = "floats, all alike",
                           .flops = "n rows: 2nCF + 9nF + 2nFD; biases nF + nD",
                           .shape = mlp_shape,
                           .cost = mlp_cost,
                           .backward = mlp_backward,
                           .bias = SUMS_INTO(DOWN_BIAS),
                           .saves = {[X] = TL_INPUT(DOWN) | TL_INPUT(UP) | TL_OUTPUT(H),
                                     [DOWN] = TL_OUTPUT(Y),
                                     [UP] = TL_INPUT(X) | TL_INPUT(DOWN) | TL_OUTPUT(H),
                                     [UP_BIAS] = TL_INPUT(DOWN) | TL_OUTPUT(H)}};
const tl_op op_swiglu_mlp = {
    RECORD(KERNEL, swiglu_mlp, 4),
    .shapes = "x (...,C), down (D,F), up (F,C), gate (F,C): out (...,D) [, y, u, z (...,F)]",
    .dtypes = "floats, all alike",
    .flops = "n rows: 4nCF + 5nF + 2nFD",
    .shape = mlp_shape,
    .cost = mlp_cost,
    .backward = mlp_backward,
    .saves = {[X] = TL_INPUT(DOWN) | TL_INPUT(UP) | TL_INPUT(GATE) | TL_OUTPUT(U) | TL_OUTPUT(Z),
              [DOWN] = TL_OUTPUT(Y),
              [UP] = TL_INPUT(X) | TL_INPUT(DOWN) | TL_OUTPUT(U) | TL_OUTPUT(Z),
              [GATE] = TL_INPUT(X) | TL_INPUT(DOWN) | TL_OUTPUT(U) | TL_OUTPUT(Z)}};
const tl_op op_gelu_mlp_grad = {
    RECORD(KERNEL, gelu_mlp_grad, 2), .shapes = "g (...,D), down (D,F), h (...,F): dh in h's place [, sums (F)]",
    .dtypes = "floats, all alike",    .flops = "n rows: 2nDF + 19nF; sums nF",
    .shape = mlp_grad_shape,          .cost = mlp_grad_cost,
    .overwrites = {OVERWRITES(G_H)},  .backward = gradient_missing};
const tl_op op_swiglu_mlp_grad = {RECORD(KERNEL, swiglu_mlp_grad, 2),
                                  .shapes = "g (...,D), down (D,F), u, z (...,F): du, dz in their places",
                                  .dtypes = "floats, all alike",
                                  .flops = "n rows: 2nDF + 11nF",
                                  .shape = mlp_grad_shape,
                                  .cost = mlp_grad_cost,
                                  .overwrites = {OVERWRITES(G_U), OVERWRITES(G_Z)},
                                  .backward = gradient_missing};

/* ---- Calls ---- */

/* A selective checkpoint keeps the results of products alone, and computes y again: that needs the parts. */
bool mlp_fits(const tl_tensor *x, const tl_tensor *up, const tl_tensor *down) {
    const struct target *t = x->storage->device->target;
    if (!t->rules->activates || thread_state()->keeper) return false;
    if (x->rank < 2 || up->rank != 2 || down->rank != 2 || up->shape[0] != down->shape[1]) return false;
    const int64_t C = up->shape[1], F = up->shape[0];
    const tl_dtype dtype = autocast_narrow_dtype(x);
    return dtype == autocast_narrow_dtype(up) && dtype == autocast_narrow_dtype(down) && C > 0 &&
           x->shape[x->rank - 1] == C && t->rules->activates(t, dtype, x->numel / C, C, F);
}

static tl_tensor *apply(const tl_op *op, tl_tensor **input, int n) {
    tl_scope scope = tl_scope_begin(); /* what is kept stays with the node alone */
    if (!scope.depth) return NULL;
    struct attr_mlp a;
    memset(&a, 0, sizeof a);
    a.is_fast = matmul_is_fast();
    a.is_timed = fast_is_on();
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        ok = (input[i] = tl_contiguous(autocast_narrow(input[i]))) != NULL;
        if (ok && !thread_state()->grad_off) a.keeps = a.keeps || tensor_needs_grad(input[i]);
    }
    tl_call c;
    call_begin(&c, op, input, n, ATTR(a));
    return tl_scope_return(scope, ok ? op_apply(&c) : NULL);
}

tl_tensor *gelu_mlp(tl_tensor *x, tl_tensor *up, tl_tensor *up_bias, tl_tensor *down, tl_tensor *down_bias) {
    tl_tensor *input[5] = {[X] = x, [DOWN] = down, [UP] = up, [UP_BIAS] = up_bias, [DOWN_BIAS] = down_bias};
    return apply(&op_gelu_mlp, input, up_bias ? 5 : 3);
}

tl_tensor *swiglu_mlp(tl_tensor *x, tl_tensor *gate, tl_tensor *up, tl_tensor *down) {
    tl_tensor *input[4] = {[X] = x, [DOWN] = down, [UP] = up, [GATE] = gate};
    return apply(&op_swiglu_mlp, input, 4);
}
