/* matmul.h: products by cuBLASLt, for kernels of other families. */
#ifndef CUDA_MATMUL_H
#define CUDA_MATMUL_H

#include "tally.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out (m,n) = or += a (m,k) b^T (k,n) of 8-bit numbers, both with k dense. `in`: a, b and their scales; bias may be
 * NULL. */
bool matmul_f8(const tl_kernel_args *args, const tl_operand *in, const tl_operand *out, const tl_operand *bias,
               bool accumulate);

#ifdef __cplusplus
}
#endif
#endif
