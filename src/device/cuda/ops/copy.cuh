/* copy.cuh: copies and fills that other families use. */
#ifndef CUDA_COPY_CUH
#define CUDA_COPY_CUH

#include "device/cuda/shared/common.cuh"

/* to = from, broadcast and converted; any strides (f4: dense rows of even length). */
bool copy_operand(const tl_kernel_args *args, const tl_operand *to, const tl_operand *from);

/* x, rounded to attr.dtype as attr says, into a dense `out` (quantize.cu): in spans, if x has one of these dtypes. */
static inline bool takes_spans(tl_dtype dtype) { return dtype == TL_F32 || dtype == TL_F16 || dtype == TL_BF16; }
bool cast_operand(const tl_kernel_args *args, void *out, const tl_operand *x, const struct attr_cast &attr);

bool fill_operand(const tl_kernel_args *args, const tl_operand *x, double value);

#endif
