/* gemm.h: one product of two matrices with f32 sums. */
#ifndef TALLY_DEVICE_CPU_GEMM_H
#define TALLY_DEVICE_CPU_GEMM_H

#include "tally.h"

struct blocks;

/* Element (i, p) of a, or (j, p) of b^T, is i*stride + p*k_stride elements after data; p is the index that is summed
 * over. With blocks, which b alone may have, the elements are theirs, and dtype is that to which they are rounded; one
 * of the strides is 1. */
struct gemm_side {
    const void *data;
    tl_dtype dtype;
    int64_t stride, k_stride;
    const struct blocks *blocks; /* NULL: data has them */
};

/* out (m,n) = or += a b. Dtypes are any floats of at most 32 bits. */
struct gemm {
    struct gemm_side a, b;
    void *out;
    tl_dtype out_dtype;
    int64_t out_step; /* from row to row; a row is dense */
    int64_t m, n, k;
    bool add;
    bool is_fast; /* f32 operands may be split into two bf16 parts each; see TL_MATMUL_HIGH */
};

/* With the workspace of gemm_workspace_bytes (device/cpu/shared/gemm_sizes.h). Same bits for any n_threads. */
void gemm_multiply(const struct gemm *g, void *workspace, int n_threads);

/* The same on this thread, from its arena (base/scratch.h). */
void gemm_multiply_small(const struct gemm *g);

/* Whether f32 products are faster here than the library's. */
bool gemm_beats_blas(void);

#endif
