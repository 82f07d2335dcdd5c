/* matmul.h: products by cuBLASLt, for kernels of other families, and by our own kernel where there are few rows. */
#ifndef CUDA_MATMUL_H
#define CUDA_MATMUL_H

#include "device/cuda/shared/limits.h"
#include "spec/attr.h"
#include "tally.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out (m,n) = or += a (m,k) b^T (k,n) of 8-bit numbers, both with k dense. `in`: a, b and their scales; bias may be
 * NULL. */
bool matmul_f8(const tl_kernel_args *args, const tl_operand *in, const tl_operand *out, const tl_operand *bias,
               bool accumulate);

/* out (m,n) = or += a (m,k) b^T + bias, b (n,k): of few rows (matmul_thin.cu), at most
 * MATMUL_THIN_ROWS. Rows of a and b are dense, begin at multiples of 16 bytes, and have a multiple of 8 elements. b may
 * be several matrices, one below the other, that lie in different places. */
enum thin_end { THIN_PLAIN, THIN_GELU, THIN_SWIGLU }; /* gelu(a b^T + bias); silu(a b^T) (a b_up^T) */
struct thin_matrix {
    const void *data;
    int64_t n; /* rows */
};
struct thin_product {
    const void *a, *b_up, *bias; /* b_up: with THIN_SWIGLU, as the one b; bias NULL: none, as for several b */
    void *out;
    struct thin_matrix b[MATMUL_PARTS];
    int n_b;
    int64_t m, k, ld_a, ld_b, ld_out;
    tl_dtype dtype, out_dtype; /* of a, b and bias, f16 or bf16; of out the same, or without an activation f32 */
    enum thin_end end;
    bool adds;
};
void matmul_thin(const tl_kernel_args *args, const struct thin_product *c);

#ifdef __cplusplus
}
#endif
#endif
