/* rounding.cuh: rounding at random, as tensor/convert.c does it. */
#ifndef CUDA_ROUNDING_CUH
#define CUDA_ROUNDING_CUH

#include "device/cuda/shared/common.cuh"

__device__ inline bf16 bf16_of_bits(uint32_t bits) {
    __nv_bfloat16_raw raw;
    raw.x = (unsigned short)bits;
    return bf16(raw);
}

__device__ inline bf16 rounded_bf16(double x, uint32_t word) {
    return bf16_of_bits(encode(bf16_format(), x, CONVERT_STOCHASTIC, word));
}
/* bf16 is the upper half of an f32, so the carry out of the lower half decides. NaN and numbers that might overflow
 * are rare. */
__device__ inline bf16 rounded_bf16(float x, uint32_t word) {
    const uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7FFFFFFFu) >= 0x7F7F0000u) return rounded_bf16((double)x, word);
    return bf16_of_bits((bits + (word >> 16)) >> 16);
}

template <class C> __device__ inline void store_rounded(void *data, int64_t i, tl_dtype dtype, C x, uint32_t word) {
    if (dtype == TL_BF16) ((bf16 *)data)[i] = rounded_bf16(x, word);
    else ((uint16_t *)data)[i] = (uint16_t)encode(f16_format(), (double)x, CONVERT_STOCHASTIC, word);
}

#endif
