/* matmul.h: products by cuBLASLt, for kernels of other families, and by our own kernel where there are few rows. */
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

/* out (m,n) = or += a (m,k) b^T + bias, b (n,k): of few rows (matmul_thin.cu). Rows of a and b are dense, begin at
 * multiples of 16 bytes, and have a multiple of 8 elements. */
enum { MATMUL_THIN_ROWS = 16 };
struct thin_product {
    const void *a, *b, *bias; /* bias NULL: none */
    void *out;
    int64_t m, n, k, ld_a, ld_b, ld_out;
    tl_dtype dtype, out_dtype; /* of a, b and bias, f16 or bf16; of out the same, or f32 */
    bool adds;
};
void matmul_thin(const tl_kernel_args *args, const struct thin_product *c);

#ifdef __cplusplus
}
#endif
#endif
