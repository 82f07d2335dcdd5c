/* vector_math.h: exp, log, tanh and their kin for loops that compilers vectorise.
 *
 * The f32 functions are branch-free: polynomials with explicit fmaf, selects, and integer arithmetic on the bits, so a
 * plain loop over them becomes vector code, and every chip gives the same bits (-ffp-contract=off). The f64
 * functions take exp, log and tanh from libm, and share the formulas of the rest.
 *
 * Rules for all: NaN gives NaN; subnormal arguments and results are exact to the stated error, not flushed; where a
 * function has a limit at +-infinity, that limit is the result (gelu and silu of -inf are -0, where x * sigmoid(x)
 * by itself would be NaN).
 *
 * Largest errors against f64, over every third of all floats, in units in the last place of the exact result:
 *
 *      exp 1.04   log 0.95   tanh 2.47   sigmoid 2.41   silu 3.18 (x > -86)   gelu 3.11 (x > -1)
 *
 * Further out the error of the exponent's argument grows with it: gelu 33 for x > -5 (where it is below 2e-6), and less than
 * 5e-13 in absolute terms beyond; silu below -86 is good to 2^-143. The slopes are right to 2.1e-7 (absolute).
 * tests/test_cpu_kernels.c fails when they grow.
 */
#ifndef TALLY_DEVICE_CPU_VECTOR_MATH_H
#define TALLY_DEVICE_CPU_VECTOR_MATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Before a loop whose iterations do not depend on each other though its arrays may be the very same (in-place ops):
 * without it compilers check for overlap at run time and then fall back to one element at a time. */
#if defined(__clang__)
#define VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed" /* loops that call libm stay scalar, and may */
#elif defined(__GNUC__)
#define VECTOR_LOOP _Pragma("GCC ivdep")
#else
#define VECTOR_LOOP
#endif

/* How many elements a loop over the functions below should take at a time, through a local array: their chains of operations are
 * long, and only several vectors side by side fill the pipes (gcc 12 does not interleave by itself). See the maps in
 * elementwise_template.h. */
#define VECTOR_TILE 16

#if defined(__GNUC__)
#define VECTOR_INLINE static inline __attribute__((always_inline))
#else
#define VECTOR_INLINE static inline
#endif

static inline uint32_t vector_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float vector_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* condition ? yes : no, by bit masks: compilers like to make branches of ?: with a constant, and a loop with branches is no
 * vector loop any more. */
static inline float vector_select(int condition, float yes, float no) {
    const uint32_t mask = 0u - (uint32_t)condition;
    return vector_from_bits((vector_bits(yes) & mask) | (vector_bits(no) & ~mask));
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

static inline struct vector_reduced vector_reduce(float x) {
    const float shifted = fmaf(x, 0x1.715476p+0f, VECTOR_ROUNDER); /* 1 / ln 2 */
    const float n = shifted - VECTOR_ROUNDER;
    const float r = fmaf(n, 0x1.05c61p-29f, fmaf(n, -0x1.62e43p-1f, x)); /* ln 2 in two parts */
    float q = 0x1.6d725cp-10f;
    q = fmaf(q, r, 0x1.12299cp-7f);
    q = fmaf(q, r, 0x1.5554c8p-5f);
    q = fmaf(q, r, 0x1.5554aep-3f);
    q = fmaf(q, r, 0.5f);
    return (struct vector_reduced){fmaf(r * r, q, r), (int32_t)(vector_bits(shifted) - vector_bits(VECTOR_ROUNDER))};
}

/* 2^n for n in [-126, 127]; any bits for other n. */
static inline float vector_power_of_two(int32_t n) { return vector_from_bits(((uint32_t)n + 127u) << 23); }

/* The result is scaled in two steps, so that it may be subnormal or overflow; only the last step rounds. */
static inline float vector_exp_f32(float x) {
    x = vector_select(x > 89.0f, 89.0f, x);
    x = vector_select(x < -104.0f, -104.0f, x);
    const struct vector_reduced reduced = vector_reduce(x);
    const int32_t half = reduced.n >> 1;
    return (1.0f + reduced.expm1_r) * vector_power_of_two(half) * vector_power_of_two(reduced.n - half);
}

static inline double vector_exp_f64(double x) { return exp(x); }

/* ---- log -------------------------------------------------------------------------------------------------
 *
 * As rng_log_f32 in base/rng_math.h, which explains the method, plus subnormals (scaled up first) and the special cases.
 */
static inline float vector_log_f32(float x) {
    const uint32_t sqrt_half = 0x3F3504F3u;
    const float scaled = vector_select(x < FLT_MIN, x * 0x1p23f, x);
    const float scaled_by = vector_select(x < FLT_MIN, 23.0f, 0.0f);
    const uint32_t shifted = vector_bits(scaled) - sqrt_half;
    const float e = (float)((int32_t)shifted >> 23) - scaled_by;
    const float f = vector_from_bits((shifted & 0x7FFFFFu) + sqrt_half) - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    float r = 0x1.31e2e4p-2f;
    r = fmaf(r, z, 0x1.995ebap-2f);
    r = fmaf(r, z, 0x1.55557ap-1f);
    const float log_1p = fmaf(-s, fmaf(-z, r, f), f);
    float y = fmaf(e, 0x1.62e43p-1f, fmaf(e, -0x1.05c61p-29f, log_1p));
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
    const float e = vector_exp_f32(-fabsf(x));
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
    const float e = vector_exp_f32(-fabsf(x));
    const float inverse = 1.0f / (1.0f + e);
    const float s = vector_select(x >= 0.0f, 1.0f, e) * inverse;
    return fmaf(x, e * inverse * inverse, s);
}

static inline double vector_silu_slope_f64(double x) {
    x = x < -1000.0 ? -1000.0 : x;
    x = x > 1000.0 ? 1000.0 : x;
    const double e = exp(-fabs(x));
    const double inverse = 1.0 / (1.0 + e);
    const double s = (x >= 0.0 ? 1.0 : e) * inverse;
    return s + x * (e * inverse * inverse);
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
    const float e = vector_exp_f32(-fabsf(two_u));
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

#endif
