/* operand_rows.cuh: matrices as operands of kernels that other kernels call. */
#ifndef CUDA_OPERAND_ROWS_CUH
#define CUDA_OPERAND_ROWS_CUH

#include "device/cuda/shared/common.cuh"

/* A matrix whose rows are `apart` elements apart. */
struct rows {
    tl_operand operand;
    int64_t shape[2], stride[2];
};
static inline void rows_set_apart(rows *r, void *data, tl_dtype dtype, int64_t n, int64_t width, int64_t apart) {
    r->shape[0] = n;
    r->shape[1] = width;
    r->stride[0] = apart;
    r->stride[1] = 1;
    r->operand.data = data;
    r->operand.dtype = dtype;
    r->operand.rank = 2;
    r->operand.shape = r->shape;
    r->operand.stride = r->stride;
}
static inline void rows_set(rows *r, void *data, tl_dtype dtype, int64_t n, int64_t width) {
    rows_set_apart(r, data, dtype, n, width, width);
}

#endif
