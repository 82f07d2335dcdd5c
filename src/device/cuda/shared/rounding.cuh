/* rounding.cuh: rounding to narrow floats, to nearest and at random, as tensor/convert.c does it. */
#ifndef CUDA_ROUNDING_CUH
#define CUDA_ROUNDING_CUH

#include "device/cuda/shared/common.cuh"

/* ---- A float's place among the codes of a narrower format ----------------------------------------------- */

template <tl_dtype D> __device__ inline struct float_format narrow_format() {
    return D == TL_F16      ? f16_format()
           : D == TL_BF16   ? bf16_format()
           : D == TL_F8E4M3 ? f8e4m3_format()
           : D == TL_F8E5M2 ? f8e5m2_format()
                            : f4e2m1_format();
}

/* Codes of finite magnitudes are consecutive, as the magnitudes are. With u the distance of the codes next to |x|,
 *
 *      place(x) = code + (|x| - value(code)) / u,   code: that of the largest value which is not above |x|,
 *
 * in units of 2^-32, what is below them cut off, for a finite f32 up to the format's largest. Rounding adds and then
 * cuts off the lower 32 bits: at random it adds the word, to nearest a half, or a bit less where the code is even.
 * For that the place is exact wherever it is half way: u has at most 32 bits below it down to |x| = u / 2. */
__device__ inline uint64_t code_place(struct float_format format, uint32_t magnitude) {
    const int m = format.mantissa_bits, smallest = 128 - format.bias; /* the exponent of its first normal number */
    int exponent = (int)(magnitude >> 23);
    uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    if (smallest == 1 && exponent == 0) { /* bf16 has subnormal f32; of these, nothing reaches other formats */
        exponent = 1;
        significand = magnitude;
    }
    const int above = max(exponent - smallest, 0), shift = min(23 - m + above + smallest - exponent, 63);
    return ((uint64_t)above << (32 + m)) + (((uint64_t)significand << 32) >> shift);
}
__device__ inline uint32_t half_of(uint64_t place) { return 0x7FFFFFFFu + ((uint32_t)(place >> 32) & 1); }

/* Bits of f32: a format's largest magnitude, and the smallest that may be rounded to more, half way to the next
 * code. */
__device__ inline uint32_t largest_magnitude(struct float_format format) {
    return (format.max_code << (23 - format.mantissa_bits)) + ((uint32_t)(127 - format.bias) << 23);
}
__device__ inline uint32_t overflowing_magnitude(struct float_format format) {
    return largest_magnitude(format) + (1u << (22 - format.mantissa_bits));
}

/* The reverse for a finite code: its bits as those of an f32 whose exponent is 127 - bias too small, which the product
 * corrects, for subnormal numbers too. */
__device__ inline float code_value(struct float_format format, uint32_t code) {
    const uint32_t magnitude = (code & (format.sign_bit - 1)) << (23 - format.mantissa_bits);
    const uint32_t sign = code & format.sign_bit ? 0x80000000u : 0;
    return __uint_as_float(sign | magnitude) * __uint_as_float((uint32_t)(254 - format.bias) << 23);
}

/* ---- Any code ---------------------------------------------------------------------------------------------- */

/* The bits of an f32 that any code stands for, as `decode` has them; also those of f8e8m0. */
template <tl_dtype D> __device__ inline uint32_t code_bits(uint32_t code) {
    if (D == TL_F8E8M0) return f32_bits(f8e8m0_to_f32((uint8_t)code));
    const struct float_format format = narrow_format<D>();
    const uint32_t magnitude = code & (format.sign_bit - 1);
    const uint32_t special = magnitude == format.infinity_code ? F32_INFINITY : f32_format().nan_code;
    const uint32_t bits = magnitude > format.max_code ? special : __float_as_uint(code_value(format, magnitude));
    return bits | (code & format.sign_bit ? f32_format().sign_bit : 0);
}

__device__ inline bf16 bf16_of_bits(uint32_t bits) {
    __nv_bfloat16_raw raw;
    raw.x = (unsigned short)bits;
    return bf16(raw);
}

/* The cpu's NaN, which is not the GPU's. */
__device__ inline void set_nan(float &x, bool is_negative) {
    x = __uint_as_float(f32_format().nan_code | (is_negative ? f32_format().sign_bit : 0));
}
__device__ inline void set_nan(bf16 &x, bool is_negative) {
    x = bf16_of_bits(bf16_format().nan_code | (is_negative ? bf16_format().sign_bit : 0));
}
__device__ inline void set_nan(f16 &x, bool is_negative) {
    __half_raw raw;
    raw.x = (unsigned short)(f16_format().nan_code | (is_negative ? f16_format().sign_bit : 0));
    x = f16(raw);
}

/* ---- At random ------------------------------------------------------------------------------------------- */

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
