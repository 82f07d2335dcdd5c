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
