/* real_math.cuh: the functions that formulas of spec/elementwise_list.h call, as F(exp): real_exp for float, double
 * and, where it has a meaning, int64_t. On the cpu they are those of device/cpu/shared/vector_math.h. */
#ifndef CUDA_REAL_MATH_CUH
#define CUDA_REAL_MATH_CUH

#include "device/cuda/shared/common.cuh"
#include "spec/integer_math.h"

__device__ inline float real_exp(float x) { return expf(x); }
__device__ inline double real_exp(double x) { return exp(x); }
__device__ inline float real_exp2(float x) { return exp2f(x); }
__device__ inline double real_exp2(double x) { return exp2(x); }
__device__ inline float real_expm1(float x) { return expm1f(x); }
__device__ inline double real_expm1(double x) { return expm1(x); }
__device__ inline float real_log(float x) { return logf(x); }
__device__ inline double real_log(double x) { return log(x); }
__device__ inline float real_log2(float x) { return log2f(x); }
__device__ inline double real_log2(double x) { return log2(x); }
__device__ inline float real_log1p(float x) { return log1pf(x); }
__device__ inline double real_log1p(double x) { return log1p(x); }
__device__ inline float real_sqrt(float x) { return sqrtf(x); }
__device__ inline double real_sqrt(double x) { return sqrt(x); }
__device__ inline float real_sin(float x) { return sinf(x); }
__device__ inline double real_sin(double x) { return sin(x); }
__device__ inline float real_cos(float x) { return cosf(x); }
__device__ inline double real_cos(double x) { return cos(x); }
__device__ inline float real_tanh(float x) { return tanhf(x); }
__device__ inline double real_tanh(double x) { return tanh(x); }
__device__ inline float real_erf(float x) { return erff(x); }
__device__ inline double real_erf(double x) { return erf(x); }
__device__ inline float real_erfc(float x) { return erfcf(x); }
__device__ inline double real_erfc(double x) { return erfc(x); }
__device__ inline float real_sinh(float x) { return sinhf(x); }
__device__ inline double real_sinh(double x) { return sinh(x); }
__device__ inline float real_cosh(float x) { return coshf(x); }
__device__ inline double real_cosh(double x) { return cosh(x); }
__device__ inline float real_atan(float x) { return atanf(x); }
__device__ inline double real_atan(double x) { return atan(x); }
__device__ inline float real_atan2(float y, float x) { return atan2f(y, x); }
__device__ inline double real_atan2(double y, double x) { return atan2(y, x); }

/* ---- Sign, rounding, NaN: in every compute type. ---- */

__device__ inline float real_abs(float x) { return fabsf(x); }
__device__ inline double real_abs(double x) { return fabs(x); }
__device__ inline int64_t real_abs(int64_t x) { return integer_abs(x); }
__device__ inline float real_floor(float x) { return floorf(x); }
__device__ inline double real_floor(double x) { return floor(x); }
__device__ inline int64_t real_floor(int64_t x) { return x; }
__device__ inline float real_ceil(float x) { return ceilf(x); }
__device__ inline double real_ceil(double x) { return ceil(x); }
__device__ inline int64_t real_ceil(int64_t x) { return x; }
__device__ inline float real_round(float x) { return rintf(x); }
__device__ inline double real_round(double x) { return rint(x); }
__device__ inline int64_t real_round(int64_t x) { return x; }
__device__ inline float real_trunc(float x) { return truncf(x); }
__device__ inline double real_trunc(double x) { return trunc(x); }
__device__ inline int64_t real_trunc(int64_t x) { return x; }
template <class C> __device__ inline bool real_isnan(C x) { return x != x; }

/* ---- Powers ---- */

__device__ inline float real_pow(float a, float b) { return powf(a, b); }
__device__ inline double real_pow(double a, double b) { return pow(a, b); }
__device__ inline int64_t real_pow(int64_t a, int64_t b) { return integer_pow(a, b); }

/* ---- Activations ---- */

/* 1 / (1 + e^-x), by the branch whose exponential cannot overflow. */
template <class C> __device__ inline C real_sigmoid(C x) {
    const C z = real_exp(x < C(0) ? x : -x);
    return (x < C(0) ? z : C(1)) / (C(1) + z);
}

template <class C> __device__ inline C real_silu(C x) { return x * real_sigmoid(x); }
/* silu'(x) = y (1 + x (1 - y)),  y = sigmoid(x) */
template <class C> __device__ inline C real_silu_slope(C x) {
    const C y = real_sigmoid(x);
    return y * (C(1) + x * (C(1) - y));
}

/* gelu(x) = x/2 (1 + tanh u),  u = s (x + k x^3),  s = sqrt(2/pi), k = 0.044715 */
#define GELU_S 0.79788456080286535588
#define GELU_K 0.044715
template <class C> __device__ inline C real_gelu(C x) {
    return C(0.5) * x * (C(1) + real_tanh(C(GELU_S) * (x + C(GELU_K) * x * x * x)));
}
/* gelu'(x) = (1 + tanh u)/2 + x/2 (1 - tanh^2 u) s (1 + 3k x^2) */
template <class C> __device__ inline C real_gelu_slope(C x) {
    const C t = real_tanh(C(GELU_S) * (x + C(GELU_K) * x * x * x));
    return C(0.5) * (C(1) + t) + C(0.5) * x * (C(1) - t * t) * C(GELU_S) * (C(1) + C(3 * GELU_K) * x * x);
}

/* x Phi(x) = x erfc(-x / sqrt 2) / 2;  its slope is Phi(x) + x phi(x),  phi(x) = e^(-x^2/2) / sqrt(2 pi) */
__device__ inline float real_gelu_erf(float x) { return 0.5f * x * erfcf(x * -0.70710678118654752f); }
__device__ inline double real_gelu_erf(double x) { return 0.5 * x * erfc(x * -0.70710678118654752440); }
__device__ inline float real_gelu_erf_slope(float x) {
    return 0.5f * erfcf(x * -0.70710678118654752f) + x * expf(-0.5f * x * x) * 0.39894228040143268f;
}
__device__ inline double real_gelu_erf_slope(double x) {
    return 0.5 * erfc(x * -0.70710678118654752440) + x * exp(-0.5 * x * x) * 0.39894228040143267794;
}

/* ---- Activations of 16-bit numbers ----
 *
 * By the GPU's own 2^x and 1/x, accurate to about 2^-20, in as few instructions as there can be: kernels that run at
 * the card's power limit pay for each. Infinities are limits, as they are above, except for x * 0. */

__device__ inline float short_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float short_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define LOG2_E 1.44269504088896340736

/* 1 / (1 + e^-x) */
__device__ inline float short_sigmoid(float x) { return short_reciprocal(1.0f + short_exp2(float(-LOG2_E) * x)); }
__device__ inline float short_silu(float x) { return x * short_sigmoid(x); }
/* silu'(x) = y + x y (1 - y),  y = sigmoid(x) */
__device__ inline float short_silu_slope(float x, float y) {
    const float xy = x * y;
    return fmaf(xy, 1.0f - y, y);
}

/* (1 + tanh u)/2 = y = 1/(1 + e^-2u), hence gelu(x) = x y  and  gelu'(x) = y + 2x y (1 - y) s (1 + 3k x^2) */
__device__ inline float short_gelu_gate(float x, float xx) {
    return short_reciprocal(
        1.0f + short_exp2(x * fmaf(float(-2 * LOG2_E * GELU_S * GELU_K), xx, float(-2 * LOG2_E * GELU_S))));
}
__device__ inline float short_gelu(float x) { return x * short_gelu_gate(x, x * x); }
__device__ inline float short_gelu_slope(float x) {
    const float xx = x * x, y = short_gelu_gate(x, xx), xy = x * y;
    return fmaf(fmaf(-xy, y, xy), fmaf(float(6 * GELU_S * GELU_K), xx, float(2 * GELU_S)), y);
}

#endif
