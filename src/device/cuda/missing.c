/* missing.c: the ops that have no CUDA kernel yet, by name. An op leaves this list when its kernel comes. */
#include "device/cuda/kernels.h"
#include "device/cuda/state.h"

#include <stdio.h>

static bool refuse(const tl_kernel_args *args, const char *name) {
    snprintf(args->error, CUDA_ERROR_BYTES, "no cuda kernel for %s yet", name);
    return false;
}

#define MISSING(name) \
    bool cuda_##name(const tl_kernel_args *args) { return refuse(args, #name); }

MISSING(nonzero)

/* quantize.c */
MISSING(cast_mode)
MISSING(quantize)
MISSING(fake_quantize)
MISSING(dequantize)

/* random.c */
MISSING(random_fill)
MISSING(permutation)
MISSING(multinomial)

/* fold.c, loss.c */
MISSING(min)
MISSING(prod)
MISSING(argmax)
MISSING(argmin)
MISSING(var)
MISSING(norm)
MISSING(logsumexp)
MISSING(cumsum)
MISSING(cumprod)
MISSING(cumprod_grad)
MISSING(log_softmax)
MISSING(log_softmax_grad)
MISSING(nll)
MISSING(nll_grad)
MISSING(bce)

/* index.c, join.c, sort.c */
MISSING(gather)
MISSING(scatter)
MISSING(scatter_add)
MISSING(index)
MISSING(index_put)
MISSING(repeat_interleave)
MISSING(concat)
MISSING(pad)
MISSING(sort)
MISSING(searchsorted)
MISSING(unique)

/* math.c, scalar.c */
MISSING(exp2)
MISSING(expm1)
MISSING(log1p)
MISSING(log2)
MISSING(rsqrt)
MISSING(sin)
MISSING(cos)
MISSING(erf)
MISSING(abs)
MISSING(sign)
MISSING(floor)
MISSING(ceil)
MISSING(round)
MISSING(trunc)
MISSING(pow)
MISSING(remainder)
MISSING(minimum)
MISSING(maximum)
MISSING(logical_and)
MISSING(logical_or)
MISSING(logical_xor)
MISSING(logical_not)
MISSING(isnan)
MISSING(isfinite)
MISSING(leaky_relu)
MISSING(gelu_erf)
MISSING(gelu_erf_grad)
MISSING(softplus)
MISSING(add_scalar)
MISSING(sub_scalar)
MISSING(mul_scalar)
MISSING(div_scalar)
MISSING(pow_scalar)
MISSING(remainder_scalar)
MISSING(compare_scalar)
MISSING(clamp)

/* fused */
MISSING(add_rms_norm)
MISSING(add_rms_norm_grad)
MISSING(add_layer_norm)
MISSING(add_layer_norm_grad)
MISSING(linear_cross_entropy)
