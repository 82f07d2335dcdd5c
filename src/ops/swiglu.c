/* swiglu.c: the gradients of silu(gate) up. swiglu itself is a row of elementwise_list.h, fused: silu(gate) is neither
 * written nor kept. */
#include "ops/elementwise.h"

static bool swiglu_grad_shape(tl_call *c) {
    for (int i = 0; i < 3; i++)
        if (!call_needs_float(c, i)) return false;
    return call_output_like(c, 0, 2) && call_output_like(c, 1, 2);
}

/* The same in ops, so that it can be differentiated again. */
static void swiglu_slope(tl_gradient *g) {
    tl_tensor *gate = gradient_input(g, 0), *up = gradient_input(g, 1);
    tl_tensor *s = tl_sigmoid(gate), *y = tl_mul(gate, s);
    tl_tensor *slope = tl_add(s, tl_mul(y, tl_affine(s, -1, 1)));
    if (g->needs[0]) g->result[0] = tl_mul(tl_mul(g->grad[0], up), slope);
    if (g->needs[1]) g->result[1] = tl_mul(g->grad[0], y);
}

/* s = sigmoid(gate): dgate = g up s (1 + gate (1 - s)), dup = g gate s */
void swiglu_backward(tl_gradient *g) {
    if (g->creates_graph) {
        swiglu_slope(g);
        return;
    }
    tl_tensor *input[3] = {gradient_input(g, 0), gradient_input(g, 1), g->grad[0]};
    tl_call c;
    call_begin(&c, &op_swiglu_grad, input, 3, NULL, 0);
    if (!op_apply(&c)) return;
    for (int j = 0; j < 2; j++) g->result[j] = c.output[j];
}

static void swiglu_grad_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 11 * (count)c->output[0]->numel);
}

/* s: 4; y = gate s: 1; slope s + y (1 - s): 3; g y: 1; g up slope: 2 */
const tl_op op_swiglu_grad = {RECORD(KERNEL, swiglu_grad, 2),
                              .shapes = "gate, up, g: dgate, dup like g",
                              .dtypes = "floats",
                              .flops = "11n: sigmoid 4, silu 1, slope 3, products 3",
                              .shape = swiglu_grad_shape,
                              .cost = swiglu_grad_cost,
                              .backward = gradient_missing};
