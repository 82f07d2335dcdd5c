/* scalar.cuh: a number of the host beside a tensor, for scalar.cu and elementwise_compare.cu. */
#ifndef CUDA_SCALAR_CUH
#define CUDA_SCALAR_CUH

#include "device/cuda/ops/elementwise.cuh"

/* The number in every compute type; a float keeps all its digits until then. */
struct number {
    double f64;
    float f32;
    int64_t i64;
    __device__ float in(float) const { return f32; }
    __device__ double in(double) const { return f64; }
    __device__ int64_t in(int64_t) const { return i64; }
};
static inline number number_of(tl_scalar s) {
    if (s.kind == TL_SCALAR_FLOAT) return {s.f, (float)s.f, truncate_i64(s.f)};
    return {(double)s.i, (float)s.i, s.i};
}

/* The number, rounded to a float dtype first. */
static inline number number_rounded(tl_scalar s, tl_dtype dtype) {
    const double x = s.kind == TL_SCALAR_FLOAT ? s.f : i64_to_f64_odd(s.i);
    float narrow;
    switch (dtype) {
    case TL_F64:
        return number_of(s);
    case TL_F32:
        narrow = s.kind == TL_SCALAR_FLOAT ? (float)s.f : (float)s.i;
        break;
    case TL_F16:
        narrow = __half2float(__half(__half_raw{(unsigned short)encode(f16_format(), x, CONVERT_NEAREST, 0)}));
        break;
    case TL_BF16:
        narrow = f32_of_bits(encode(bf16_format(), x, CONVERT_NEAREST, 0) << 16);
        break;
    case TL_F8E4M3:
        narrow = decode(f8e4m3_format(), encode(f8e4m3_format(), x, CONVERT_NEAREST, 0));
        break;
    default:
        narrow = decode(f8e5m2_format(), encode(f8e5m2_format(), x, CONVERT_NEAREST, 0));
        break;
    }
    return {(double)narrow, narrow, 0};
}

template <class F> struct f_with_number {
    F f;
    number value;
    bool is_first;
    template <class C> __device__ C operator()(C x) const { return is_first ? f(value.in(x), x) : f(x, value.in(x)); }
};

#endif
