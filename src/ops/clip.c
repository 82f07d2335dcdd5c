/* clip.c: the norm of many gradients, and the factor that clips them. */
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static bool sum_squares_shape(tl_call *c) {
    const struct attr_sum_squares *a = c->attr;
    for (int i = 0; i < c->n_inputs; i++)
        if (!call_needs_float(c, i)) return false;
    return call_output(c, 0, a->dtype, 0, NULL);
}

/* square, add: 2 */
static void sum_squares_cost(const tl_call *c, struct cost *cost) {
    const struct attr_sum_squares *a = c->attr;
    count flops = a->has_start;
    for (int i = a->has_start; i < c->n_inputs; i++) flops += 2 * (count)c->input[i]->numel;
    cost_traffic(c, cost, flops);
}

static uint64_t sum_squares_workspace(const tl_call *c) {
    const struct attr_sum_squares *a = c->attr;
    uint64_t chunks = 0;
    for (int i = a->has_start; i < c->n_inputs; i++)
        chunks += (uint64_t)(c->input[i]->numel / REDUCE_CHUNK + (c->input[i]->numel % REDUCE_CHUNK != 0));
    return chunks * sizeof(double);
}

const tl_op op_sum_squares = {RECORD(KERNEL, sum_squares, 1),
                              .shapes = "[scalar,] any number of any shape -> scalar",
                              .dtypes = "floats -> f32, f64 where one is f64",
                              .flops = "2n: square, add",
                              .shape = sum_squares_shape,
                              .cost = sum_squares_cost,
                              .workspace = sum_squares_workspace};

/* A call takes TL_MAX_INPUTS at most; later ones start from the sum so far. */
tl_tensor *tl_sum_squares(tl_tensor **inputs, int n) {
    struct attr_sum_squares a;
    memset(&a, 0, sizeof a);
    a.dtype = TL_F32;
    if (n < 1) {
        error_set(TL_ERROR_USE, "tl_sum_squares: there are no tensors (need at least one)");
        return NULL;
    }
    if (!error_given(inputs, "sum_squares", "a list of tensors")) return NULL;
    for (int i = 0; i < n; i++) {
        if (!tensor_check(inputs[i], "sum_squares")) return NULL;
        if (inputs[i]->dtype == TL_F64) a.dtype = TL_F64;
    }
    tl_tensor *sum = NULL;
    for (int done = 0; done < n;) {
        tl_tensor *input[TL_MAX_INPUTS];
        int m = 0;
        a.has_start = sum != NULL;
        if (sum) input[m++] = sum;
        while (m < TL_MAX_INPUTS && done < n) input[m++] = inputs[done++];
        tl_call c;
        call_begin(&c, &op_sum_squares, input, m, ATTR(a));
        sum = op_apply(&c);
        if (!sum) return NULL;
    }
    return sum;
}

static bool clip_scale_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    if ((x->dtype != TL_F32 && x->dtype != TL_F64) || x->numel != 1)
        return call_fail(c, "the norm must be one f32 or f64 number");
    return call_output(c, 0, TL_F32, 0, NULL);
}

/* divide, add, divide, compare, divide: 5 */
static void clip_scale_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 5); }

const tl_op op_clip_scale = {
    RECORD(KERNEL, clip_scale, 1), .shapes = "one element -> scalar",
    .dtypes = "f32, f64 -> f32",   .flops = "5: two divisions for the ratio, eps, minimum, divisor",
    .shape = clip_scale_shape,     .cost = clip_scale_cost};

tl_tensor *tl_clip_scale(tl_tensor *norm, double max_norm, double divisor) {
    struct attr_clip_scale a = {max_norm, divisor};
    if (!(max_norm > 0) || !(divisor > 0) || !isfinite(divisor)) {
        error_set(TL_ERROR_USE,
                  "clip_scale: max_norm %g, divisor %g (need numbers above 0; an infinite max_norm does not clip)",
                  max_norm, divisor);
        return NULL;
    }
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_tensor *scale = op_apply1(&op_clip_scale, norm, ATTR(a));
    tl_set_phase(phase);
    return scale;
}
