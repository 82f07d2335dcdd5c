/* vector_math.h: exp, log, tanh and their kin for loops that compilers vectorise.
 *
 * The f32 functions are branch-free: polynomials with explicit fmaf or none, selects, and integer arithmetic on the
 * bits, so a plain loop over them becomes vector code, and every chip gives the same bits (-ffp-contract=off). The
 * f64 functions take exp, log and tanh from libm, and share the formulas of the rest.
 *
 * Rules for all: NaN gives NaN; subnormal arguments and results are exact to the stated error, not flushed; where a
 * function has a limit at +-infinity, that limit is the result (gelu and silu of -inf are -0, where x * sigmoid(x)
 * by itself would be NaN).
 *
 * Largest errors against f64, over every third of all floats, in units in the last place of the exact result:
 *
 *      exp 1.04   log 0.95   tanh 2.47   sigmoid 2.41   silu 3.18 (x > -86)   gelu 3.11 (x > -1)
 *
 * Further out the error of the exponent's argument grows with it: gelu 33 for x > -5 (where it is below 2e-6), and
 * less than 5e-13 in absolute terms beyond; silu below -86 is good to 2^-143. The slopes are right to 2.1e-7
 * (absolute). tests/test_cpu_kernels.c fails when they grow.
 */
#ifndef TALLY_DEVICE_CPU_VECTOR_MATH_H
#define TALLY_DEVICE_CPU_VECTOR_MATH_H

#include "base/rng_math.h"
#include "spec/integer_math.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Before a loop whose iterations do not depend on each other though its arrays may be the same (in-place ops):
 * without it compilers check for overlap at run time and then fall back to one element at a time. */
#if defined(__clang__)
#define VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed" /* loops that call libm stay scalar, and may */
#elif defined(__GNUC__)
#define VECTOR_LOOP _Pragma("GCC ivdep") _Pragma("GCC unroll 4")
#else
#define VECTOR_LOOP
#endif

/* How many elements a loop over the functions below should take at a time, through a local array: their chains of
 * operations are long, and only several vectors side by side fill the pipes (gcc 12 does not interleave by itself).
 * See elementwise_map_template.h. */
#define VECTOR_TILE 16

#if defined(__GNUC__)
#define VECTOR_INLINE static inline __attribute__((always_inline))
#else
#define VECTOR_INLINE static inline
#endif

/* condition ? yes : no, by bit masks: compilers like to make branches of ?: with a constant, and a loop with
 * branches is no vector loop any more. */
static inline float vector_select(int condition, float yes, float no) {
    const uint32_t mask = 0u - (uint32_t)condition;
    return f32_of_bits((f32_bits(yes) & mask) | (f32_bits(no) & ~mask));
}

/* ---- exp -------------------------------------------------------------------------------------------------
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2 and expm1(r) = r + r^2 q(r), q a minimax polynomial (relative error 1.4e-8).
 * Adding 1.5 * 2^23 rounds to an integer and leaves that integer in the low bits.
 */
#define VECTOR_ROUNDER 0x1.8p23f

struct vector_reduced {
    float expm1_r;
    int32_t n;
};

/* expm1(r), and in the low bits of *shifted n plus what the rounder has more than VECTOR_ROUNDER. */
static inline float vector_reduce_by(float x, float rounder, uint32_t *shifted) {
    const float sum = fmaf(x, 0x1.715476p+0f, rounder); /* 1 / ln 2 */
    const float n = sum - rounder;
    const float r = fmaf(n, 0x1.05c61p-29f, fmaf(n, -0x1.62e43p-1f, x)); /* ln 2 in two parts */
    float q = 0x1.6d725cp-10f;
    q = fmaf(q, r, 0x1.12299cp-7f);
    q = fmaf(q, r, 0x1.5554c8p-5f);
    q = fmaf(q, r, 0x1.5554aep-3f);
    q = fmaf(q, r, 0.5f);
    *shifted = f32_bits(sum);
    return fmaf(r * r, q, r);
}

static inline struct vector_reduced vector_reduce(float x) {
    uint32_t shifted;
    const float expm1_r = vector_reduce_by(x, VECTOR_ROUNDER, &shifted);
    return (struct vector_reduced){expm1_r, (int32_t)(shifted - f32_bits(VECTOR_ROUNDER))};
}

/* 2^n for n in [-126, 127]; any bits for other n. */
static inline float vector_power_of_two(int32_t n) { return f32_of_bits(((uint32_t)n + 127u) << 23); }

/* The result is scaled in two steps, so that it may be subnormal or overflow; only the last step rounds. The
 * rounder's low bits hold n + 254, which is the sum of the two exponents with their biases: one is its half. */
static inline float vector_exp_f32(float x) {
    uint32_t shifted;
    x = vector_select(x > 89.0f, 89.0f, x);
    x = vector_select(x < -104.0f, -104.0f, x);
    const float expm1_r = vector_reduce_by(x, VECTOR_ROUNDER + 254.0f, &shifted);
    const uint32_t half = (shifted << 22) & 0xFF800000u;
    return (1.0f + expm1_r) * f32_of_bits(half) * f32_of_bits((shifted << 23) - half);
}

/* The same bits for x <= 0 (up to 40), in fewer steps: 2^(n + 63) is never out of range, and 2^-63 is a constant. */
static inline float vector_exp_falling_f32(float x) {
    uint32_t shifted;
    x = vector_select(x < -104.0f, -104.0f, x);
    const float expm1_r = vector_reduce_by(x, VECTOR_ROUNDER + 190.0f, &shifted);
    return (1.0f + expm1_r) * f32_of_bits(shifted << 23) * 0x1p-63f;
}

static inline double vector_exp_f64(double x) { return exp(x); }

static inline double vector_exp_falling_f64(double x) { return exp(x); }

/* ---- log -------------------------------------------------------------------------------------------------
 *
 * As rng_log_f32 in base/rng_math.h, which explains the method, plus subnormals (scaled up first) and the special
 * cases.
 */
struct vector_split_f32 {
    float e, m;
};

/* x = 2^e m with m from sqrt(1/2) to sqrt(2), for x > 0. */
static inline struct vector_split_f32 vector_split_f32(float x) {
    const float scaled = vector_select(x < FLT_MIN, x * 0x1p23f, x);
    const float scaled_by = vector_select(x < FLT_MIN, 23.0f, 0.0f);
    const uint32_t shifted = f32_bits(scaled) - RNG_SQRT_HALF_F32;
    return (struct vector_split_f32){(float)((int32_t)shifted >> 23) - scaled_by,
                                     f32_of_bits((shifted & 0x7FFFFFu) + RNG_SQRT_HALF_F32)};
}

static inline float vector_log_f32(float x) {
    const struct vector_split_f32 split = vector_split_f32(x);
    float y = rng_log_parts_f32(split.m, split.e);
    y = vector_select(x > FLT_MAX, x, y);
    y = vector_select(x == 0.0f, -INFINITY, y);
    return vector_select(x >= 0.0f, y, NAN);
}

static inline double vector_log_f64(double x) { return log(x); }

/* Correctly rounded by IEEE 754. */
static inline float vector_sqrt_f32(float x) { return sqrtf(x); }

static inline double vector_sqrt_f64(double x) { return sqrt(x); }

/* ---- tanh ------------------------------------------------------------------------------------------------
 *
 * tanh|x| = t / (t + 2) with t = expm1(2|x|) = 2^n expm1(r) + (2^n - 1): no cancellation near 0. From 9.02 on
 * it rounds to 1, so 2|x| stops at 20.
 */
static inline float vector_tanh_f32(float x) {
    float twice = 2.0f * fabsf(x);
    twice = vector_select(twice > 20.0f, 20.0f, twice);
    const struct vector_reduced reduced = vector_reduce(twice);
    const float power = vector_power_of_two(reduced.n);
    const float t = fmaf(power, reduced.expm1_r, power - 1.0f);
    return copysignf(t / (t + 2.0f), x);
}

static inline double vector_tanh_f64(double x) { return tanh(x); }

/* ---- sigmoid, and what is made of it ----------------------------------------------------------------------
 *
 * With e = exp(-|x|) nothing overflows: sigmoid(x) is 1/(1+e) or e/(1+e), and its slope s(1-s) is e/(1+e)^2 for
 * either sign.
 *
 * gelu, the tanh form: 0.5 x (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3); this form keeps its
 * digits for negative x, where 1 + tanh u cancels. 2u = x (K0 + K1 x^2), (2u)' = K0 + 3 K1 x^2, so
 * gelu'(x) = s + x s(1-s) (2u)'. The slopes are constant far outside +-20 (gelu) and +-200 (silu): x stops there,
 * which keeps infinity times zero away.
 */
#define VECTOR_GELU_K0 1.5957691216057307  /* 2 sqrt(2/pi) */
#define VECTOR_GELU_K1 0.07135481627260025 /* K0 * 0.044715 */

static inline float vector_sigmoid_f32(float x) {
    const float e = vector_exp_falling_f32(-fabsf(x));
    return vector_select(x >= 0.0f, 1.0f, e) / (1.0f + e);
}

static inline double vector_sigmoid_f64(double x) {
    const double e = exp(-fabs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

static inline float vector_silu_f32(float x) {
    x = vector_select(x < -FLT_MAX, -FLT_MAX, x);
    return x * vector_sigmoid_f32(x);
}

static inline double vector_silu_f64(double x) {
    x = x < -DBL_MAX ? -DBL_MAX : x;
    return x * vector_sigmoid_f64(x);
}

/* silu'(x) = s + x s(1-s). */
static inline float vector_silu_slope_f32(float x) {
    x = vector_select(x < -200.0f, -200.0f, x);
    x = vector_select(x > 200.0f, 200.0f, x);
    const float e = vector_exp_falling_f32(-fabsf(x));
    const float inverse = 1.0f / (1.0f + e);
    const float s = vector_select(x >= 0.0f, 1.0f, e) * inverse;
    return fmaf(x, e * inverse * inverse, s);
}

/* Both at once, with the bits of each: beyond +-200, where the slope's x stops, the exponential is what it is at
 * 104. */
static inline void vector_silu_both_f32(float x, float *silu, float *slope) {
    float near = vector_select(x < -200.0f, -200.0f, x);
    near = vector_select(near > 200.0f, 200.0f, near);
    const float e = vector_exp_falling_f32(-fabsf(near));
    const float part = vector_select(near >= 0.0f, 1.0f, e), inverse = 1.0f / (1.0f + e);
    *slope = fmaf(near, e * inverse * inverse, part * inverse);
    *silu = vector_select(x < -FLT_MAX, -FLT_MAX, x) * (part / (1.0f + e));
}

static inline double vector_silu_slope_f64(double x) {
    x = x < -1000.0 ? -1000.0 : x;
    x = x > 1000.0 ? 1000.0 : x;
    const double e = exp(-fabs(x));
    const double inverse = 1.0 / (1.0 + e);
    const double s = (x >= 0.0 ? 1.0 : e) * inverse;
    return s + x * (e * inverse * inverse);
}

static inline void vector_silu_both_f64(double x, double *silu, double *slope) {
    *slope = vector_silu_slope_f64(x);
    *silu = vector_silu_f64(x);
}

static inline float vector_gelu_f32(float x) {
    x = vector_select(x < -FLT_MAX, -FLT_MAX, x);
    return x * vector_sigmoid_f32(x * fmaf((float)VECTOR_GELU_K1, x * x, (float)VECTOR_GELU_K0));
}

static inline double vector_gelu_f64(double x) {
    x = x < -DBL_MAX ? -DBL_MAX : x;
    return x * vector_sigmoid_f64(x * (VECTOR_GELU_K0 + VECTOR_GELU_K1 * x * x));
}

static inline float vector_gelu_slope_f32(float x) {
    x = vector_select(x < -20.0f, -20.0f, x);
    x = vector_select(x > 20.0f, 20.0f, x);
    const float square = x * x;
    const float two_u = x * fmaf((float)VECTOR_GELU_K1, square, (float)VECTOR_GELU_K0);
    const float two_u_slope = fmaf((float)(3.0 * VECTOR_GELU_K1), square, (float)VECTOR_GELU_K0);
    const float e = vector_exp_falling_f32(-fabsf(two_u));
    const float inverse = 1.0f / (1.0f + e);
    const float s = vector_select(two_u >= 0.0f, 1.0f, e) * inverse;
    return fmaf(x * (e * inverse * inverse), two_u_slope, s);
}

static inline double vector_gelu_slope_f64(double x) {
    x = x < -50.0 ? -50.0 : x;
    x = x > 50.0 ? 50.0 : x;
    const double square = x * x;
    const double two_u = x * (VECTOR_GELU_K0 + VECTOR_GELU_K1 * square);
    const double two_u_slope = VECTOR_GELU_K0 + 3.0 * VECTOR_GELU_K1 * square;
    const double e = exp(-fabs(two_u));
    const double inverse = 1.0 / (1.0 + e);
    const double s = (two_u >= 0.0 ? 1.0 : e) * inverse;
    return s + x * (e * inverse * inverse) * two_u_slope;
}

/* ---- exp2, erf, and the gelu made of it -----------------------------------------------------------------------
 *
 * The polynomials are minimax fits (Remez exchange in 40 digits, on the intervals named), their coefficients then
 * rounded to f32, for erf and gelu one after the other from the constant on, the rest refitted each time.
 *
 * Largest errors in ulp, over all floats of 2^-13 to 150 in magnitude and every 31st of the rest, against libm's
 * f64:
 *
 *      exp2 1.32   erf 1.24 (a third of these floats)   gelu_erf 5.30 (x > 0), 7.12 (x < 0, down to where it is 0)
 *
 * The slope of gelu_erf is right to 2e-7 (absolute).
 */

/* 2^r - 1 for |r| <= 1/2, as r q(r) (relative error of 2^r 8e-9). */
static inline float vector_exp2m1(float r) {
    const float r2 = r * r;
    const float q_even = fmaf(fmaf(0x1.5f0896p-10f, r2, 0x1.c6af6cp-5f), r2, 0x1.62e43p-1f);
    const float q_odd = fmaf(fmaf(0x1.446c82p-13f, r2, 0x1.3b29e4p-7f), r2, 0x1.ebfbep-3f);
    return r * fmaf(r, q_odd, q_even);
}

/* The integer that `shifted`, a number plus the rounder, has in its low bits. */
static inline int32_t vector_integer(float shifted) { return (int32_t)(f32_bits(shifted) - f32_bits(VECTOR_ROUNDER)); }

static inline float vector_exp2_f32(float x) {
    x = vector_select(x > 129.0f, 129.0f, x);
    x = vector_select(x < -151.0f, -151.0f, x);
    const float shifted = x + VECTOR_ROUNDER;
    const int32_t n = vector_integer(shifted), half = n >> 1;
    const float power = 1.0f + vector_exp2m1(x - (shifted - VECTOR_ROUNDER));
    return power * vector_power_of_two(half) * vector_power_of_two(n - half);
}
static inline double vector_exp2_f64(double x) { return exp2(x); }

/* With t = |x|, below 0.9: erf(t) = t + t p(t^2) (relative error 1.5e-8). From there to 4, where erf rounds to 1:
 * erf(t) = 1 - 2^-l(t), l the polynomial nearest -log2 erfc(t) (error of erf 1.6e-9). */
static inline float vector_erf_f32(float x) {
    float t = fabsf(x);
    t = vector_select(t > 4.0f, 4.0f, t);
    const float t2 = t * t, t4 = t2 * t2;
    const float p_even = fmaf(fmaf(0x1.479c9ep-8f, t4, 0x1.ce1b86p-4f), t4, 0x1.06eba6p-3f);
    const float p_odd = fmaf(fmaf(-0x1.3ba9cep-11f, t4, -0x1.b69b96p-6f), t4, -0x1.8126ecp-2f);
    const float p = fmaf(t2, p_odd, p_even);
    const float l_even =
        fmaf(fmaf(fmaf(-0x1.2a4acp-12f, t2, -0x1.074872p-5f), t2, 0x1.d6920cp-1f), t2, 0x1.0c852ep-12f);
    const float l_odd = fmaf(fmaf(0x1.20e72ep-8f, t2, 0x1.33649p-3f), t2, 0x1.a082fcp+0f);
    const float l = fmaf(t, l_odd, l_even);
    const float shifted = VECTOR_ROUNDER - l;
    const float power = vector_power_of_two(vector_integer(shifted));
    const float large = 1.0f - fmaf(power, vector_exp2m1((VECTOR_ROUNDER - shifted) - l), power);
    return copysignf(vector_select(t < 0.9f, fmaf(t, p, t), large), x);
}
static inline double vector_erf_f64(double x) { return erf(x); }

/* The exact gelu, x Phi(x), Phi the normal distribution. With t = |x|, Phi(-t) = m(t) e^(-t^2/2), where m falls
 * slowly, from 1/2 like 1 / (t sqrt(2 pi)): m = w g(w - 1/2), w = k / (t + k), k = 93/32 (relative error 4e-8 for t
 * up to 14.6; beyond, the product is 0 in f32, and t stops at 15). With h = t Phi(-t), gelu(x) is x - h or -h:
 * nothing cancels. The slope Phi(x) + x phi(x), phi(t) = e^(-t^2/2) / sqrt(2 pi), is 1 - s or s with s = e^(-t^2/2)
 * (m(t) - t / sqrt(2 pi)). */
static inline float vector_normal_ratio(float t) {
    const float w = 2.90625f / (t + 2.90625f), v = w - 0.5f;
    const float v2 = v * v;
    float g_even = fmaf(-0x1.d62bap-6f, v2, 0x1.356936p-5f);
    g_even = fmaf(g_even, v2, -0x1.2e3604p-4f);
    g_even = fmaf(g_even, v2, 0x1.2b7cc6p-2f);
    g_even = fmaf(g_even, v2, 0x1.ff44bcp-3f);
    float g_odd = fmaf(0x1.0af1dep-5f, v2, -0x1.0379d4p-4f);
    g_odd = fmaf(g_odd, v2, 0x1.8e1234p-4f);
    g_odd = fmaf(g_odd, v2, 0x1.5e1b36p-2f);
    return w * fmaf(v, g_odd, g_even);
}

/* e^(-t^2/2) for 0 <= t <= 15. Rounding t^2 would cost 2^-24 of up to 112: so t^2 is kept in two parts, the second of
 * which is the rounding error of the first. t^2 = r - 2 n ln 2, with ln 2 in two parts likewise, and e^(-r/2) is the
 * polynomial of exp above. n is at least -163, so scaling by 2^(n + 64) and then by 2^-64 rounds once. */
static inline float vector_normal_bell(float t) {
    const float square = t * t, rest = fmaf(t, t, -square);
    const float shifted = fmaf(square, -0x1.715476p-1f, VECTOR_ROUNDER); /* 1 / (2 ln 2) */
    const float n = shifted - VECTOR_ROUNDER;
    const float r = fmaf(n, 0x1.62e4p+0f, square) + fmaf(n, 0x1.7f7d1cp-19f, rest);
    const float r2 = r * r;
    const float q_even = fmaf(fmaf(0x1.6d725cp-16f, r2, 0x1.5554c8p-9f), r2, 0.125f);
    const float q_odd = fmaf(0x1.12299cp-12f, r2, 0x1.5554aep-6f);
    const float power = 1.0f + fmaf(r2, fmaf(-r, q_odd, q_even), -0.5f * r);
    return power * vector_power_of_two(vector_integer(shifted) + 64) * 0x1p-64f;
}

static inline float vector_gelu_erf_f32(float x) {
    float t = fabsf(x);
    t = vector_select(t > 15.0f, 15.0f, t);
    return vector_select(x >= 0.0f, x, -0.0f) - t * vector_normal_ratio(t) * vector_normal_bell(t);
}
static inline double vector_gelu_erf_f64(double x) {
    x = x < -40.0 ? -40.0 : x;
    return x * 0.5 * erfc(-x * 0x1.6a09e667f3bcdp-1);
}
static inline float vector_gelu_erf_slope_f32(float x) {
    float t = fabsf(x);
    t = vector_select(t > 15.0f, 15.0f, t);
    const float s = (vector_normal_ratio(t) - 0x1.988454p-2f * t) * vector_normal_bell(t); /* 1 / sqrt(2 pi) */
    return vector_select(x >= 0.0f, 1.0f - s, s);
}
static inline double vector_gelu_erf_slope_f64(double x) {
    x = x < -40.0 ? -40.0 : x;
    x = x > 40.0 ? 40.0 : x;
    return 0.5 * erfc(-x * 0x1.6a09e667f3bcdp-1) + x * 0x1.9884533d43651p-2 * exp(-0.5 * x * x);
}

/* ---- Functions through f64 -----------------------------------------------------------------------------------
 *
 * expm1, log2, log1p, sin, cos, pow, fmod: the f32 argument is widened, the polynomial is f64, and the result is
 * rounded once. With some 34 good bits or more before that rounding, the result is nearly always the nearest float,
 * and no care is needed for cancellation or subnormals. The polynomials are Chebyshev fits, the long ones in two
 * halves (even and odd powers) that run side by side. Where fma is used here, a chip without it (x86 before 2013)
 * calls the library. Where an argument needs other means (huge angles, pow of 0 or infinity), `_is_easy_` says so,
 * and the caller takes libm for that element.
 *
 * Largest errors in ulp, over every 257th float (pow: 2^24 random pairs), against libm's f64:
 *
 *      expm1 0.50   log2 0.50   log1p 0.50   sin 0.50   cos 0.50   pow 0.50
 *
 * Beside them: log1p_exp 1.04 (its exponential is that of f32), rsqrt 1.49 (it rounds twice).
 */
static inline double vector_select_f64(int condition, double yes, double no) {
    const uint64_t mask = 0u - (uint64_t)condition;
    return f64_of_bits((f64_bits(yes) & mask) | (f64_bits(no) & ~mask));
}

/* 1.5 * 2^52: adding it rounds to an integer, which is then in the low bits. */
#define VECTOR_ROUNDER_F64 0x1.8p52

/* 2^n for the n whose low bits `shifted` has (see above), -1022 <= n <= 1023. */
static inline double vector_power_f64(double shifted) { return f64_of_bits((f64_bits(shifted) + 1023u) << 52); }

/* 2^x in f64, relative error 1e-12, for |x| <= 1000. */
static inline double vector_near_exp2(double x) {
    const double shifted = x + VECTOR_ROUNDER_F64;
    const double r = x - (shifted - VECTOR_ROUNDER_F64);
    const double r2 = r * r;
    double p_even = 0x1.63d136366db24p-20;
    p_even = p_even * r2 + 0x1.4308ac85aa947p-13;
    p_even = p_even * r2 + 0x1.3b2ab7181b755p-7;
    p_even = p_even * r2 + 0x1.ebfbdff823cedp-3;
    p_even = p_even * r2 + 1.0;
    double p_odd = 0x1.00dc4a532fb8ep-16;
    p_odd = p_odd * r2 + 0x1.5d8745a728441p-10;
    p_odd = p_odd * r2 + 0x1.c6b08dd6fd234p-5;
    p_odd = p_odd * r2 + 0x1.62e42fef84cf0p-1;
    const double p = p_even + r * p_odd;
    return p * vector_power_f64(shifted);
}

/* The same; beyond +-400 the ends, which are 0 and infinity in f32. */
static inline double vector_wide_exp2(double x) {
    x = vector_select_f64(x > 400.0, 400.0, x);
    return vector_near_exp2(vector_select_f64(x < -400.0, -400.0, x));
}

/* expm1(x) = 2^n expm1(r) + (2^n - 1), as for tanh above. */
static inline float vector_expm1_f32(float x) {
    double wide = x;
    wide = vector_select_f64(wide > 100.0, 100.0, wide);
    wide = vector_select_f64(wide < -100.0, -100.0, wide);
    const double shifted = wide * 0x1.71547652b82fep+0 + VECTOR_ROUNDER_F64; /* 1 / ln 2 */
    const double n = shifted - VECTOR_ROUNDER_F64;
    const double r = (wide - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; /* ln 2 in two parts */
    double q = 0x1.72ad3ae3ed777p-19;
    q = q * r + 0x1.a136b06babd51p-16;
    q = q * r + 0x1.a019c3721fb3ep-13;
    q = q * r + 0x1.6c166be75a859p-10;
    q = q * r + 0x1.111111170ad56p-7;
    q = q * r + 0x1.55555565c559fp-5;
    q = q * r + 0x1.5555555554f97p-3;
    q = q * r + 0x1.fffffffffe069p-2;
    const double power = vector_power_f64(shifted);
    const float y = (float)(power * (r * r * q + r) + (power - 1.0));
    return vector_select(x == 0.0f, x, y); /* -0 stays -0 */
}
static inline double vector_expm1_f64(double x) { return expm1(x); }

/* x = 2^e m, m in [sqrt(1/2), sqrt(2)), for positive, normal, finite x. */
struct vector_split {
    double e, m;
};
static inline struct vector_split vector_split_f64(double x) {
    const uint64_t sqrt_half = 0x3FE6A09E667F3BCDu;
    const uint64_t shifted = f64_bits(x) - sqrt_half;
    const double m = f64_of_bits((shifted & 0xFFFFFFFFFFFFFu) + sqrt_half);
    /* the exponent as a double, by way of bits: conversions from int64 are no vector instruction everywhere */
    const uint64_t biased = (shifted >> 52) + 1024u; /* modulo 4096: e + 1024 */
    return (struct vector_split){f64_of_bits((biased & 0xFFFu) | 0x4330000000000000u) - 0x1p52 - 1024.0, m};
}

/* ln x in f64, relative error 1e-15: ln m = 2 atanh(s), s = (m - 1) / (m + 1). */
struct vector_log {
    double e, ln_m;
};
static inline struct vector_log vector_wide_log(double x) {
    const struct vector_split split = vector_split_f64(x);
    const double e = split.e, m = split.m;
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0x1.2f4e5bc67e798p-3;
    p = p * z + 0x1.3999ab33ca2e3p-3;
    p = p * z + 0x1.74669a1004d6ep-3;
    p = p * z + 0x1.c71c4ffcc4142p-3;
    p = p * z + 0x1.2492494518370p-2;
    p = p * z + 0x1.999999997ae5dp-2;
    p = p * z + 0x1.55555555555aep-1;
    p = p * z + 2.0;
    return (struct vector_log){e, s * p};
}

/* The results of log2 and log1p for arguments without a logarithm: -inf at 0, NaN below, infinity and NaN
 * themselves. */
static inline float vector_log_limits(float x, float y) {
    y = vector_select(x > FLT_MAX, x, y);
    y = vector_select(x == 0.0f, -INFINITY, y);
    return vector_select(x >= 0.0f, y, NAN);
}

/* e + log2(1 + f) for f from sqrt(1/2) - 1 to sqrt(2) - 1: log2(1 + f) = f p(f) (relative error 2e-11), since a
 * division takes longer. */
static inline double vector_near_log2(double e, double f) {
    const double f2 = f * f;
    double p_even = 0x1.3ce875dddd162p-4;
    p_even = fma(p_even, f2, 0x1.287223a34dc92p-3);
    p_even = fma(p_even, f2, 0x1.45290cc436175p-3);
    p_even = fma(p_even, f2, 0x1.a63f45499e91ep-3);
    p_even = fma(p_even, f2, 0x1.277651f8b1ff8p-2);
    p_even = fma(p_even, f2, 0x1.ec709ebb9e405p-2);
    p_even = fma(p_even, f2, 0x1.71547652a1e83p+0);
    double p_odd = -0x1.2489328fe7029p-3;
    p_odd = fma(p_odd, f2, -0x1.252f3448cf073p-3);
    p_odd = fma(p_odd, f2, -0x1.71416ff2fdab7p-3);
    p_odd = fma(p_odd, f2, -0x1.ec72b5aefa9c0p-3);
    p_odd = fma(p_odd, f2, -0x1.7154709748ccap-2);
    p_odd = fma(p_odd, f2, -0x1.715476565d702p-1);
    return fma(f, fma(f, p_odd, p_even), e);
}

/* x = 2^e (1 + f), as in vector_log_f32 above. */
static inline float vector_log2_f32(float x) {
    const struct vector_split_f32 split = vector_split_f32(x);
    const float e = split.e, f = split.m - 1.0f;
    return vector_log_limits(x, (float)vector_near_log2(e, f));
}
static inline double vector_log2_f64(double x) { return log2(x); }

/* ln u with u = 1 + x, which is exact for 2^-18 <= |x| <= 2^29 and as good as that above; below, x - x^2 / 2
 * (relative error 5e-12). */
static inline float vector_log1p_f32(float x) {
    const double u = 1.0 + x;
    const struct vector_split split = vector_split_f64(u);
    const float far = (float)(vector_near_log2(split.e, split.m - 1.0) * 0x1.62e42fefa39efp-1);
    const float near = fmaf(-0.5f * x, x, x); /* -0 stays -0 */
    return vector_select(fabsf(x) < 0x1p-18f, near, vector_log_limits((float)u, far));
}
static inline double vector_log1p_f64(double x) { return log1p(x); }

/* x = n pi/2 + r, |r| <= pi/4. pi/2 is in two parts; the first fma is exact, since |n| < 2^20 and so n times the
 * first part ends where doubles below 1 do. n modulo 4 says which of +-sin r, +-cos r it is. */
static inline int vector_sin_is_easy_f32(float x) { return fabsf(x) <= 1.6e6f; }
static inline int vector_sin_is_easy_f64(double x) { return (void)x, 1; }

static inline float vector_sin_cos(double x, uint64_t quarter_turns) {
    const double shifted = fma(x, 0x1.45f306dc9c883p-1, VECTOR_ROUNDER_F64);
    const double n = shifted - VECTOR_ROUNDER_F64;
    const double r = fma(n, -0x1.1a62633145c07p-54, fma(n, -0x1.921fb54442d18p+0, x));
    const double z = r * r;
    double s = 0x1.6cb0654a850c5p-19;
    s = fma(s, z, -0x1.a00ec5f5fab0ap-13);
    s = fma(s, z, 0x1.11110716ea745p-7);
    s = fma(s, z, -0x1.55555548e0cffp-3);
    s = fma(s, z, 0x1.fffffffff5fcdp-1);
    double c = 0x1.98e77c5b035acp-16;
    c = fma(c, z, -0x1.6c06e9c8594cap-10);
    c = fma(c, z, 0x1.555538a12c9f4p-5);
    c = fma(c, z, -0x1.ffffffb656b2ap-2);
    c = fma(c, z, 0x1.ffffffff84a2fp-1);
    const uint64_t turns = f64_bits(shifted) + quarter_turns, is_cos = 0u - (turns & 1u);
    const uint64_t y = (f64_bits(c) & is_cos) | (f64_bits(s * r) & ~is_cos);
    return (float)f64_of_bits(y ^ ((turns & 2u) << 62));
}
static inline float vector_sin_f32(float x) { return vector_sin_cos(x, 0); }
static inline float vector_cos_f32(float x) { return vector_sin_cos(x, 1); }
static inline double vector_sin_f64(double x) { return sin(x); }
static inline double vector_cos_f64(double x) { return cos(x); }

/* Rare enough to be left to libm: in f32 the f64 result, rounded. */
static inline float vector_erfc_f32(float x) { return (float)erfc(x); }
static inline double vector_erfc_f64(double x) { return erfc(x); }
static inline float vector_sinh_f32(float x) { return (float)sinh(x); }
static inline double vector_sinh_f64(double x) { return sinh(x); }
static inline float vector_cosh_f32(float x) { return (float)cosh(x); }
static inline double vector_cosh_f64(double x) { return cosh(x); }
static inline float vector_atan_f32(float x) { return (float)atan(x); }
static inline double vector_atan_f64(double x) { return atan(x); }
static inline float vector_atan2_f32(float y, float x) { return (float)atan2(y, x); }
static inline double vector_atan2_f64(double y, double x) { return atan2(y, x); }

/* x^y = 2^(y log2 |x|), negative for a negative x and odd y, NaN where x is negative and y no integer. */
static inline int vector_pow_is_easy_f32(float x, float y) {
    return (x != 0.0f) & (fabsf(x) <= FLT_MAX) & (fabsf(y) <= FLT_MAX);
}
static inline int vector_pow_is_easy_f64(double x, double y) { return (void)x, (void)y, 0; }

static inline float vector_pow_f32(float x, float y) {
    const struct vector_log l = vector_wide_log(fabs((double)x));
    const double log2_x = l.e + l.ln_m * 0x1.71547652b82fep+0;
    const float power = (float)vector_wide_exp2(y * log2_x);
    const float half = 0.5f * y;
    const float is_odd = vector_select(rintf(half) == half, power, -power);
    const float signed_power = vector_select(rintf(y) == y, is_odd, NAN);
    return vector_select(x < 0.0f, signed_power, power);
}
static inline double vector_pow_f64(double x, double y) { return pow(x, y); }

/* log1p(e^-|x|) in f64, as good as f32 needs it: e = e^-|x| as vector_exp_falling_f32 makes it, but added up and
 * scaled in f64; log1p(e) = e p(e - 1/2), p a minimax polynomial on [0, 1] (relative error 5e-09). */
static inline double vector_near_log1p_exp_falling(float x) {
    uint32_t shifted;
    x = -fabsf(x);
    x = vector_select(x < -104.0f, -104.0f, x);
    const double expm1_r = vector_reduce_by(x, VECTOR_ROUNDER + 190.0f, &shifted);
    const double e = (1.0 + expm1_r) * (f32_of_bits(shifted << 23) * 0x1p-63), v = e - 0.5, v2 = v * v;
    double p_even = 0x1.5848770ec4da3p-8;
    p_even = fma(p_even, v2, 0x1.7b53d30b5f356p-7);
    p_even = fma(p_even, v2, 0x1.2c1e274d3ceb8p-5);
    p_even = fma(p_even, v2, 0x1.0f954f39ef98cp-3);
    p_even = fma(p_even, v2, 0x1.9f323eec8307fp-1);
    double p_odd = -0x1.a93448f9ff94ap-9;
    p_odd = fma(p_odd, v2, -0x1.ba5c7cb19bcd6p-8);
    p_odd = fma(p_odd, v2, -0x1.510615c590226p-6);
    p_odd = fma(p_odd, v2, -0x1.153fb2352694ep-4);
    p_odd = fma(p_odd, v2, -0x1.2773a69e6cd7ap-2);
    return e * fma(v, p_odd, p_even);
}
static inline float vector_log1p_exp_falling_f32(float x) { return (float)vector_near_log1p_exp_falling(x); }
static inline double vector_log1p_exp_falling_f64(double x) { return log1p(exp(-fabs(x))); }

/* max(x, 0); 0 for NaN. */
static inline float vector_positive_f32(float x) { return vector_select(x > 0.0f, x, 0.0f); }
static inline double vector_positive_f64(double x) { return x > 0.0 ? x : 0.0; }

/* softplus: log1p(e^x) = max(x, 0) + log1p(e^-|x|) */
static inline float vector_log1p_exp_f32(float x) {
    return (float)((double)vector_positive_f32(x) + vector_near_log1p_exp_falling(x));
}
static inline double vector_log1p_exp_f64(double x) { return vector_positive_f64(x) + vector_log1p_exp_falling_f64(x); }

/* fmod, exact: a - n b with n = trunc(a / b). Below 2^24 the quotient of two floats is at least 2^-48 of itself away
 * from an integer it is not, so its f64 rounding does not reach that integer; n b has 48 bits. A result 0 has a's
 * sign. */
static inline int vector_fmod_is_easy_f32(float a, float b) {
    return (fabsf(a) < 0x1p24f * fabsf(b)) & (fabsf(a) <= FLT_MAX) & (fabsf(b) <= FLT_MAX);
}
static inline int vector_fmod_is_easy_f64(double a, double b) { return (void)a, (void)b, 0; }

static inline float vector_fmod_f32(float a, float b) {
    const double wide_a = a, wide_b = b;
    return copysignf((float)(wide_a - trunc(wide_a / wide_b) * wide_b), a);
}
static inline double vector_fmod_f64(double a, double b) { return fmod(a, b); }

/* ---- Sign, rounding, NaN: in every compute type ---------------------------------------------------------------- */

static inline float vector_abs_f32(float x) { return fabsf(x); }
static inline double vector_abs_f64(double x) { return fabs(x); }
static inline int64_t vector_abs_i64(int64_t x) { return integer_abs(x); }

static inline float vector_floor_f32(float x) { return floorf(x); }
static inline double vector_floor_f64(double x) { return floor(x); }
static inline int64_t vector_floor_i64(int64_t x) { return x; }

static inline float vector_ceil_f32(float x) { return ceilf(x); }
static inline double vector_ceil_f64(double x) { return ceil(x); }
static inline int64_t vector_ceil_i64(int64_t x) { return x; }

/* Ties go to even: the machine's default rounding mode, which is never changed here. */
static inline float vector_round_f32(float x) { return rintf(x); }
static inline double vector_round_f64(double x) { return rint(x); }
static inline int64_t vector_round_i64(int64_t x) { return x; }

static inline float vector_trunc_f32(float x) { return truncf(x); }
static inline double vector_trunc_f64(double x) { return trunc(x); }
static inline int64_t vector_trunc_i64(int64_t x) { return x; }

static inline int vector_isnan_f32(float x) { return x != x; }
static inline int vector_isnan_f64(double x) { return x != x; }
static inline int vector_isnan_i64(int64_t x) { return (void)x, 0; }

#endif
