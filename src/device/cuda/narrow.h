/* narrow.h: operands of 8-bit products, made from 16-bit matrices by narrow.cu for matmul.c. */
#ifndef CUDA_NARROW_H
#define CUDA_NARROW_H

#include "device/cuda/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* (rows, columns) of 16-bit numbers of `dtype`, rows `stride` elements apart and dense; both sizes are multiples of 16 and every row begins at a
 * multiple of 16 bytes. It becomes a dense matrix of 8-bit numbers of `narrow` at `out`, transposed where `turns`. `cell` are five
 * floats on the device: the scale that 8-bit numbers are to be multiplied by comes first, the largest magnitude, as bits, last. */
struct narrow_operand {
    const void *data;
    tl_dtype dtype, narrow;
    int64_t rows, columns, stride;
    bool turns;
    void *out;
    float *cell;
};

/* Asks for the work on the stream. */
bool narrow_operand_make(const tl_kernel_args *args, const struct narrow_operand *operand);

#ifdef __cplusplus
}
#endif
#endif
