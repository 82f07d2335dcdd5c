/* linalg.c: factorisations and solutions of matrices, which have no kernels on cuda: each refuses and says what to
 * do. */
#include "device/cuda/shared/kernels.h"

#include <stdio.h>

static bool refuse(const tl_kernel_args *args) {
    snprintf(args->error, 200,
             "there is no cuda kernel: move the matrix to the cpu first and the result back "
             "(x.cpu(), y.cuda(); tl_to in C)");
    return false;
}

bool cuda_cholesky(const tl_kernel_args *args) { return refuse(args); }
bool cuda_lu(const tl_kernel_args *args) { return refuse(args); }
bool cuda_swap_rows(const tl_kernel_args *args) { return refuse(args); }
bool cuda_solve_triangular(const tl_kernel_args *args) { return refuse(args); }
bool cuda_solve(const tl_kernel_args *args) { return refuse(args); }
bool cuda_inv(const tl_kernel_args *args) { return refuse(args); }
bool cuda_det(const tl_kernel_args *args) { return refuse(args); }
bool cuda_qr(const tl_kernel_args *args) { return refuse(args); }
bool cuda_eigh(const tl_kernel_args *args) { return refuse(args); }
bool cuda_svd(const tl_kernel_args *args) { return refuse(args); }
