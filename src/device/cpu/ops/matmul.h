/* matmul.h: the matrix product, for kernels that contain one. */
#ifndef TALLY_DEVICE_CPU_MATMUL_H
#define TALLY_DEVICE_CPU_MATMUL_H

#include "tally.h"

/* out = op(a) op(b), or out += with `add`; shapes and layouts as in attr.h's matmul. Dtypes may differ: sums are f32
 * (f64 for f64 out). Same bits for any n_threads. The workspace is that of gemm_workspace_bytes
 * (device/cpu/shared/gemm_sizes.h). */
void matmul_multiply(const tl_operand *out, const tl_operand *a, bool transpose_a, const tl_operand *b,
                     bool transpose_b, bool add, bool is_fast, void *workspace, int n_threads);

#endif
