/* narrow_linear.c: linear layers whose products see 8- or 4-bit numbers, emulated: operands are rounded to values of
 * the narrow format and multiplied as usual, so that the rounding is real and the speed is not. fp8 on CUDA is not
 * emulated if its sizes are multiples of 16: those products are of 8-bit numbers (ops/narrow.c).
 *
 *      fp8   x and w in e4m3, the gradient of y in e5m2, each with one scale for the tensor, amax / largest
 *      fp4   x and w in NVFP4, to nearest; the gradient of y too, rounded at random, without which its mean would drift
 *
 * Gradients pass the rounding of x and w straight through. */
#include "nn/layers.h"
#include "nn/module.h"
#include "ops/ops.h"

/* round(x / s) s with s = amax / largest; a tensor of zeros stays zero. Computed in f32, so that it is rounded once. */
static tl_tensor *round_f8(tl_tensor *x, tl_dtype narrow) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *amax = tl_cast(tl_max(tl_abs(x), NULL, 0, false), TL_F32);
    tl_tensor *s = tl_affine(amax, 1 / tl_finfo(narrow).max, 1e-30);
    tl_tensor *q = tl_round_to(tl_div(tl_cast(x, TL_F32), s), narrow, TL_SATURATE);
    tl_tensor *y = tl_mul_(tl_cast(q, TL_F32), s);
    return tl_scope_return(scope, tl_cast(y, tl_dtype_of(x)));
}

static tl_tensor *round_operand(tl_tensor *x, enum linear_mode mode) {
    return mode == LINEAR_FP8 ? round_f8(x, TL_F8E4M3) : tl_fake_quantize(x, TL_NVFP4, TL_NEAREST);
}

static tl_tensor *round_gradient(tl_tensor *g, enum linear_mode mode) {
    return mode == LINEAR_FP8 ? round_f8(g, TL_F8E5M2) : tl_fake_quantize(g, TL_NVFP4, TL_STOCHASTIC);
}

/* dx = dy */
static void pass_through(tl_gradient *g, void *context) {
    (void)context;
    tl_gradient_set(g, 0, tl_gradient_of_output(g, 0));
}

/* dx = round(dy) */
static void pass_rounded(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy) tl_gradient_set(g, 0, round_gradient(dy, *(const enum linear_mode *)context));
}

static tl_tensor *operand(tl_tensor *x, enum linear_mode mode) {
    bool grad = tl_set_grad_mode(false);
    tl_tensor *y = round_operand(x, mode);
    tl_set_grad_mode(grad);
    return y && tl_function(pass_through, NULL, NULL, &x, 1, &y, 1) ? y : NULL;
}

tl_tensor *linear_narrow(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, enum linear_mode mode) {
    if (mode == LINEAR_FP8 && x && linear_f8_fits(x, weight, bias)) return linear_f8(x, weight, bias);
    static enum linear_mode modes[] = {LINEAR_PLAIN, LINEAR_FP8, LINEAR_FP4}; /* contexts that outlive every graph */
    tl_tensor *xq = operand(x, mode), *wq = operand(weight, mode);
    tl_tensor *y = tl_linear(xq, wq, bias), *out = tl_detach(y);
    return out && tl_function(pass_rounded, &modes[mode], NULL, &y, 1, &out, 1) ? out : NULL;
}
