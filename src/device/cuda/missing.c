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

/* fused */
MISSING(swiglu)
MISSING(swiglu_grad)
MISSING(add_rms_norm)
MISSING(add_rms_norm_grad)
MISSING(add_layer_norm)
MISSING(add_layer_norm_grad)
MISSING(linear_cross_entropy)
MISSING(sgd_momentum)
MISSING(adagrad)
MISSING(rmsprop)
MISSING(adam)
