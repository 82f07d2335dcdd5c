/* copy.cuh: copies and fills that other families use. */
#ifndef CUDA_COPY_CUH
#define CUDA_COPY_CUH

#include "device/cuda/shared/common.cuh"

/* to = from, broadcast and converted; any strides (f4: dense rows of even length). */
bool copy_operand(const tl_kernel_args *args, const tl_operand *to, const tl_operand *from);

bool fill_operand(const tl_kernel_args *args, const tl_operand *x, double value);

#endif
