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
