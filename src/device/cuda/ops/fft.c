/* fft.c: Fourier transforms, which have no kernel on cuda: they refuse and say what to do. */
#include "device/cuda/shared/kernels.h"

#include <stdio.h>

bool cuda_fft(const tl_kernel_args *args) {
    snprintf(args->error, 200,
             "there is no cuda kernel: move the tensor to the cpu first and the result back (x.cpu(), y.cuda(); tl_to "
             "in C)");
    return false;
}
