/* rng_math.h: the arithmetic of random numbers, one element at a time.
 *
 * Counters, not state. A value depends on (seed, stream, index) and on nothing else: the seed is the key of Philox
 * 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), the stream is the upper half of its
 * counter, and the lower half counts blocks of four 32-bit words. Any thread of any device can therefore compute any
 * element alone, and a tensor's values do not depend on who computed them.
 *
 * Layouts. Three, and each distribution names its own:
 *   narrow: element i owns word i%4 of block i/4          (u32, uniform f32, bernoulli)
 *   wide:   element i owns words 2(i%2) and 2(i%2)+1 of block i/2, low word first, as one 64-bit draw
 *           (uniform f64, integers)
 *   mask:   element i owns half i%2, low half first, of word i/2%4 of block i/8 (what dropout keeps)
 * Blocks of masks are those of Philox 4x32-7: seven rounds pass BigCrush (table 2 there), ten have a margin. Attention
 * draws a mask as large as its scores wherever it needs one, so there the arithmetic counts.
 * A normal needs two draws. Box-Muller turns a pair of draws into a pair of normals, so elements 2j and 2j+1 share
 * their two draws: the first is r cos, the second r sin. Pairs never straddle a block, so one element still needs
 * its own block only (f32: narrow layout; f64: wide layout). Different layouts over the same stream reuse the same
 * bits (masks do not): give every tensor its own stream (or index range).
 *
 * Same bits everywhere. gcc, clang and nvcc differ in two ways only: whether a*b+c is contracted to a fused
 * multiply-add, and what the math library's log and cos return. The functions below are therefore Tally's own
 * polynomials, every multiply-add is an explicit fma, no product is left where a compiler could fuse it with a later
 * addition, and what remains (+, -, *, /, square root, int-to-float) is rounded correctly by IEEE
 * 754. The square root is thus the hardware's, no polynomial. Do not compile this with -ffast-math or
 * --use_fast_math.
 *
 * The polynomials are minimax fits (Remez exchange on the reduced interval). Errors are stated in units in the last
 * place (ulp) of the result against a wider type; tests/test_rng.c measures them and fails if they grow.
 */
#ifndef TALLY_BASE_RNG_MATH_H
#define TALLY_BASE_RNG_MATH_H

#include "base/device_fn.h"
#include "base/float_bits.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Which sequence: the seed of the generator, and a stream number that is unique per tensor drawn. */
struct rng_key {
    uint64_t seed;
    uint64_t stream;
};

/* What one evaluation of Philox yields. */
struct rng_block {
    uint32_t word[4];
};

/* ---- Philox ------------------------------------------------------------------------------------------ */

#define RNG_PHILOX_ROUNDS 10
#define RNG_MASK_ROUNDS 7

/* The key of one round. */
struct rng_philox_key {
    uint32_t word[2];
};

DEVICE_FN struct rng_philox_key rng_philox_key_of(uint64_t seed) {
    struct rng_philox_key key;
    key.word[0] = (uint32_t)seed;
    key.word[1] = (uint32_t)(seed >> 32);
    return key;
}

/* Between rounds the key advances by two Weyl constants: the golden ratio and sqrt(3) - 1, as 32-bit
 * fractions. */
DEVICE_FN struct rng_philox_key rng_philox_next_key(struct rng_philox_key key) {
    key.word[0] += 0x9E3779B9u;
    key.word[1] += 0xBB67AE85u;
    return key;
}

DEVICE_FN struct rng_block rng_philox_round(struct rng_block x, struct rng_philox_key key) {
    const uint64_t product0 = (uint64_t)0xD2511F53u * x.word[0];
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * x.word[2];
    struct rng_block y;
    y.word[0] = (uint32_t)(product1 >> 32) ^ x.word[1] ^ key.word[0];
    y.word[1] = (uint32_t)product1;
    y.word[2] = (uint32_t)(product0 >> 32) ^ x.word[3] ^ key.word[1];
    y.word[3] = (uint32_t)product0;
    return y;
}

/* Philox 4x32 as published. */
DEVICE_FN struct rng_block rng_philox(struct rng_block counter, struct rng_philox_key key, int n_rounds) {
    for (int round = 0; round < n_rounds; round++) {
        counter = rng_philox_round(counter, key);
        key = rng_philox_next_key(key);
    }
    return counter;
}

DEVICE_FN struct rng_block rng_counter(struct rng_key key, uint64_t number) {
    struct rng_block counter;
    counter.word[0] = (uint32_t)number;
    counter.word[1] = (uint32_t)(number >> 32);
    counter.word[2] = (uint32_t)key.stream;
    counter.word[3] = (uint32_t)(key.stream >> 32);
    return counter;
}

/* Block `number` of the sequence, and of its masks. */
DEVICE_FN struct rng_block rng_block_at(struct rng_key key, uint64_t number) {
    return rng_philox(rng_counter(key, number), rng_philox_key_of(key.seed), RNG_PHILOX_ROUNDS);
}
DEVICE_FN struct rng_block rng_mask_block_at(struct rng_key key, uint64_t number) {
    return rng_philox(rng_counter(key, number), rng_philox_key_of(key.seed), RNG_MASK_ROUNDS);
}

/* Draw `lane` (0 or 1) of a block in the wide layout. */
DEVICE_FN uint64_t rng_wide_draw(struct rng_block block, int lane) {
    return (uint64_t)block.word[2 * lane + 1] << 32 | block.word[2 * lane];
}

/* Draw `lane` (0 .. 7) of a block in the mask's layout: 16 bits. */
DEVICE_FN uint32_t rng_mask_draw(struct rng_block block, int lane) {
    return block.word[lane / 2] >> 16 * (lane % 2) & 0xFFFFu;
}

/* ---- Helpers that keep the bits equal ---------------------------------------------------------------- */

/* A product that no later addition can absorb: adding a constant +0 inside the fma changes nothing but the
 * sign of a zero, and leaves the compiler no multiplication to contract. */
DEVICE_FN float rng_multiply_f32(float a, float b) { return fmaf(a, b, 0.0f); }

DEVICE_FN double rng_multiply_f64(double a, double b) { return fma(a, b, 0.0); }

/* ---- Logarithm ---------------------------------------------------------------------------------------
 *
 * x = 2^e (1+f) with 1+f in [sqrt(1/2), sqrt(2)), so that x near 1 has e = 0 and keeps its relative accuracy.
 * With s = f/(2+f) and z = s^2,
 *   log(1+f) = 2 atanh(s) = 2s + s z R(z) = f - s (f - z R(z)),
 * where the last form lets f, which is exact, carry the leading digits. ln 2 comes in two parts.
 */

#define RNG_SQRT_HALF_F32 0x3F3504F3u /* bits */

/* Natural logarithm of 2^e m, m from sqrt(1/2) to sqrt(2). Error at most 0.96 ulp on [2^-33, 1] (all tried). */
DEVICE_FN float rng_log_parts_f32(float m, float e) {
    const float f = m - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    float r = 0x1.31e2e4p-2f;
    r = fmaf(r, z, 0x1.995ebap-2f);
    r = fmaf(r, z, 0x1.55557ap-1f);
    const float log_1p = fmaf(-s, fmaf(-z, r, f), f);
    return fmaf(e, 0x1.62e43p-1f, fmaf(e, -0x1.05c61p-29f, log_1p));
}
DEVICE_FN float rng_log_f32(float x) {
    const uint32_t shifted = f32_bits(x) - RNG_SQRT_HALF_F32;
    return rng_log_parts_f32(f32_of_bits((shifted & 0x7FFFFFu) + RNG_SQRT_HALF_F32), (float)((int32_t)shifted >> 23));
}

/* The same for f64. Error at most 1.2 ulp on [2^-65, 1]. */
DEVICE_FN double rng_log_f64(double x) {
    const uint64_t sqrt_half = 0x3FE6A09E667F3BCDu;
    const uint64_t shifted = f64_bits(x) - sqrt_half;
    const double e = (double)((int64_t)shifted >> 52);
    const double f = f64_of_bits((shifted & 0xFFFFFFFFFFFFFu) + sqrt_half) - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double r = 0x1.2f0531606caf8p-3;
    r = fma(r, z, 0x1.39a1c01d381c7p-3);
    r = fma(r, z, 0x1.74663eadb0f8cp-3);
    r = fma(r, z, 0x1.c71c520a9c012p-3);
    r = fma(r, z, 0x1.24924941ef659p-2);
    r = fma(r, z, 0x1.999999997fdddp-2);
    r = fma(r, z, 0x1.5555555555592p-1);
    const double log_1p = fma(-s, fma(-z, r, f), f);
    return fma(e, 0x1.62e42fefa39efp-1, fma(e, 0x1.abc9e3b39803fp-56, log_1p));
}

/* ---- Cosine of a fraction of a turn ------------------------------------------------------------------
 *
 * The angle arrives as an integer fraction of a turn, so the reduction is exact: quarter turn k is the
 * nearest one, t in [-1/2, 1/2) the rest in quarter turns. cos(pi/2 (k+t)) is then +-cos(pi/2 t) or
 * +-sin(pi/2 t).
 * The sine is the cosine three quarters of a turn later, which only changes k: asking for both of one
 * angle costs no more than asking for one.
 */

enum { RNG_COS = 0, RNG_SIN = 3 }; /* quarter turns added to the angle */

DEVICE_FN float rng_cos_quarter_f32(float t) {
    const float z = t * t;
    float p = 0x1.d9f7b8p-11f;
    p = fmaf(p, z, -0x1.55c664p-6f);
    p = fmaf(p, z, 0x1.03c1dep-2f);
    p = fmaf(p, z, -0x1.3bd3ccp+0f);
    return fmaf(p, z, 1.0f);
}

DEVICE_FN float rng_sin_quarter_f32(float t) {
    const float z = t * t;
    float p = -0x1.2d9302p-8f;
    p = fmaf(p, z, 0x1.465e92p-4f);
    p = fmaf(p, z, -0x1.4abbbap-1f);
    /* pi/2 in two parts, since its rounding error would be the largest of all. */
    p = fmaf(p, z, -0x1.777a5cp-25f);
    return fmaf(t, 0x1.921fb6p+0f, rng_multiply_f32(t, p));
}

/* cos or sin of 2 pi turn / 2^32; `which` is RNG_COS or RNG_SIN. Error at most 1.4 ulp. */
DEVICE_FN float rng_wave_f32(uint32_t turn, int which) {
    const uint32_t shifted = turn + (UINT32_C(1) << 29);
    const uint32_t k = ((shifted >> 30) + (uint32_t)which) & 3;
    const int32_t rest = (int32_t)(shifted & 0x3FFFFFFFu) - (INT32_C(1) << 29);
    const float t = (float)rest * 0x1p-30f;
    /* Both, then a choice: without a branch the loop over elements can be vectorised. */
    const float sine = rng_sin_quarter_f32(t);
    const float cosine = rng_cos_quarter_f32(t);
    const float value = (k & 1) ? sine : cosine;
    return (k == 1 || k == 2) ? -value : value;
}

DEVICE_FN double rng_cos_quarter_f64(double t) {
    const double z = t * t;
    double p = 0x1.1e2f88eadd79dp-34;
    p = fma(p, z, -0x1.b6dd82a91f665p-28);
    p = fma(p, z, 0x1.f9d3856dd7e71p-22);
    p = fma(p, z, -0x1.a6d1f29f3f5c5p-16);
    p = fma(p, z, 0x1.e1f5068919cd3p-11);
    p = fma(p, z, -0x1.55d3c7e3cbfefp-6);
    p = fma(p, z, 0x1.03c1f081b5ac4p-2);
    p = fma(p, z, -0x1.3bd3cc9be45dep+0);
    return fma(p, z, 1.0);
}

DEVICE_FN double rng_sin_quarter_f64(double t) {
    const double z = t * t;
    double p = -0x1.6c58cc302f01ep-31;
    p = fma(p, z, 0x1.e8eec79c14274p-25);
    p = fma(p, z, -0x1.e3074b42c3306p-19);
    p = fma(p, z, 0x1.50783485c2d5ap-13);
    p = fma(p, z, -0x1.32d2cce62abbdp-8);
    p = fma(p, z, 0x1.466bc6775aad9p-4);
    p = fma(p, z, -0x1.4abbce625be53p-1);
    p = fma(p, z, 0x1.1a62633145c07p-54);
    return fma(t, 0x1.921fb54442d18p+0, rng_multiply_f64(t, p));
}

/* cos or sin of 2 pi turn / 2^64. Error at most 1.3 ulp. */
DEVICE_FN double rng_wave_f64(uint64_t turn, int which) {
    const uint64_t shifted = turn + (UINT64_C(1) << 61);
    const uint64_t k = ((shifted >> 62) + (uint64_t)which) & 3;
    const int64_t rest = (int64_t)(shifted & 0x3FFFFFFFFFFFFFFFu) - (INT64_C(1) << 61);
    const double t = (double)rest * 0x1p-62;
    /* Both, then a choice: without a branch the loop over elements can be vectorised. */
    const double sine = rng_sin_quarter_f64(t);
    const double cosine = rng_cos_quarter_f64(t);
    const double value = (k & 1) ? sine : cosine;
    return (k == 1 || k == 2) ? -value : value;
}

/* ---- Quantile of the normal distribution ---------------------------------------------------------------
 *
 * Wichura's algorithm AS 241 (PPND16, Applied Statistics 37, 1988): with q = p - 1/2, a ratio of polynomials in
 * r = 0.180625 - q^2 in the middle, and in r = sqrt(-log p) - 1.6 or - 5 in the tail. Its own error is about 1e-16,
 * relatively.
 */

DEVICE_FN double rng_quantile_middle(double r) {
    double above = 2.5090809287301226727e+3;
    above = fma(above, r, 3.3430575583588128105e+4);
    above = fma(above, r, 6.7265770927008700853e+4);
    above = fma(above, r, 4.5921953931549871457e+4);
    above = fma(above, r, 1.3731693765509461125e+4);
    above = fma(above, r, 1.9715909503065514427e+3);
    above = fma(above, r, 1.3314166789178437745e+2);
    above = fma(above, r, 3.3871328727963666080e0);
    double below = 5.2264952788528545610e+3;
    below = fma(below, r, 2.8729085735721942674e+4);
    below = fma(below, r, 3.9307895800092710610e+4);
    below = fma(below, r, 2.1213794301586595867e+4);
    below = fma(below, r, 5.3941960214247511077e+3);
    below = fma(below, r, 6.8718700749205790830e+2);
    below = fma(below, r, 4.2313330701600911252e+1);
    below = fma(below, r, 1.0);
    return above / below;
}

DEVICE_FN double rng_quantile_tail(double r) {
    double above = 7.74545014278341407640e-4;
    above = fma(above, r, 2.27238449892691845833e-2);
    above = fma(above, r, 2.41780725177450611770e-1);
    above = fma(above, r, 1.27045825245236838258e0);
    above = fma(above, r, 3.64784832476320460504e0);
    above = fma(above, r, 5.76949722146069140550e0);
    above = fma(above, r, 4.63033784615654529590e0);
    above = fma(above, r, 1.42343711074968357734e0);
    double below = 1.05075007164441684324e-9;
    below = fma(below, r, 5.47593808499534494600e-4);
    below = fma(below, r, 1.51986665636164571966e-2);
    below = fma(below, r, 1.48103976427480074590e-1);
    below = fma(below, r, 6.89767334985100004550e-1);
    below = fma(below, r, 1.67638483018380384940e0);
    below = fma(below, r, 2.05319162663775882187e0);
    below = fma(below, r, 1.0);
    return above / below;
}

DEVICE_FN double rng_quantile_far(double r) {
    double above = 2.01033439929228813265e-7;
    above = fma(above, r, 2.71155556874348757815e-5);
    above = fma(above, r, 1.24266094738807843860e-3);
    above = fma(above, r, 2.65321895265761230930e-2);
    above = fma(above, r, 2.96560571828504891230e-1);
    above = fma(above, r, 1.78482653991729133580e0);
    above = fma(above, r, 5.46378491116411436990e0);
    above = fma(above, r, 6.65790464350110377720e0);
    double below = 2.04426310338993978564e-15;
    below = fma(below, r, 1.42151175831644588870e-7);
    below = fma(below, r, 1.84631831751005468180e-5);
    below = fma(below, r, 7.86869131145613259100e-4);
    below = fma(below, r, 1.48753612908506148525e-2);
    below = fma(below, r, 1.36929880922735805310e-1);
    below = fma(below, r, 5.99832206555887937690e-1);
    below = fma(below, r, 1.0);
    return above / below;
}

/* The x whose standard normal distribution function is p, for p in [2^-1022, 1/2]; never above 0. Relative error at
 * most 1e-15 (tests/test_random.c). */
DEVICE_FN double rng_quantile_f64(double p) {
    const double q = p - 0.5;
    if (q >= -0.425) return rng_multiply_f64(q, rng_quantile_middle(fma(-q, q, 0.180625)));
    const double r = sqrt(-rng_log_f64(p));
    return r <= 5.0 ? -rng_quantile_tail(r - 1.6) : -rng_quantile_far(r - 5.0);
}

/* The distribution function as the inverse of the function above: the largest p in [2^-1022, 1/2] whose quantile is
 * at most x <= 0, found by bisection on the bits of p. So both have the same bits everywhere, and agree with each
 * other. */
DEVICE_FN double rng_normal_below_f64(double x) {
    uint64_t low = f64_bits(0x1p-1022), high = f64_bits(0.5);
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (rng_quantile_f64(f64_of_bits(middle)) <= x) low = middle;
        else high = middle - 1;
    }
    return f64_of_bits(low);
}

/* ---- Distributions ----------------------------------------------------------------------------------- */

/* Uniform in [0,1): the upper 24 bits of a narrow draw, all multiples of 2^-24. */
DEVICE_FN float rng_uniform_f32(uint32_t draw) { return (float)(draw >> 8) * 0x1p-24f; }

/* Uniform in [0,1): the upper 53 bits of a wide draw, all multiples of 2^-53. */
DEVICE_FN double rng_uniform_f64(uint64_t draw) { return (double)(draw >> 11) * 0x1p-53; }

/* Maps u in [0,1) to [low, low + width), with one rounding. Values above `limit`, the largest number of the result's
 * dtype in the range, become `limit`; otherwise they would round to the upper end. */
DEVICE_FN float rng_between_f32(float u, float low, float width, float limit) {
    const float x = fmaf(u, width, low);
    return x > limit ? limit : x;
}
DEVICE_FN double rng_between_f64(double u, double low, double width, double limit) {
    const double x = fma(u, width, low);
    return x > limit ? limit : x;
}

/* Radius of Box-Muller, sqrt(-2 log u), u = (draw + 1/2) / 2^32 rounded to f32; at most 6.8. */
DEVICE_FN float rng_radius_f32(uint32_t draw) {
    const float u = fmaf((float)draw, 0x1p-32f, 0x1p-33f);
    return sqrtf(-2.0f * rng_log_f32(u));
}

/* The same from 64 bits; at most 9.5. */
DEVICE_FN double rng_radius_f64(uint64_t draw) {
    const double u = fma((double)draw, 0x1p-64, 0x1p-65);
    return sqrt(-2.0 * rng_log_f64(u));
}

/* Standard normal: the first (RNG_COS) or second (RNG_SIN) of the two that a pair of draws makes. Error at
 * most 3.3 ulp (f32, 10^8 draws tried) and 3 ulp (f64, 8 10^6 tried) against the exact transform of the
 * rounded u and the angle. */
DEVICE_FN float rng_normal_f32(uint32_t radius_draw, uint32_t angle_draw, int which) {
    return rng_multiply_f32(rng_radius_f32(radius_draw), rng_wave_f32(angle_draw, which));
}

DEVICE_FN double rng_normal_f64(uint64_t radius_draw, uint64_t angle_draw, int which) {
    return rng_multiply_f64(rng_radius_f64(radius_draw), rng_wave_f64(angle_draw, which));
}

/* The number of 32-bit draws that mean "true" at probability p: p 2^32 to nearest, so the probability is
 * right to 2^-33. p outside [0,1] is clamped; NaN counts as 0. */
DEVICE_FN uint64_t rng_threshold(double p) {
    if (!(p > 0.0)) return 0;
    return p >= 1.0 ? UINT64_C(1) << 32 : (uint64_t)fma(p, 0x1p32, 0.5);
}

DEVICE_FN bool rng_bernoulli(uint32_t draw, uint64_t threshold) { return draw < threshold; }

/* The number of a mask's 16-bit draws that keep an element that dropout drops with probability p: (1 - p) 2^16 to
 * nearest, so the probability is right to 2^-17, all at p = 0 and none at 1. */
DEVICE_FN uint32_t rng_mask_threshold(double p) { return (uint32_t)fma(1.0 - p, 0x1p16, 0.5); }

DEVICE_FN bool rng_mask_keeps(uint32_t draw, uint32_t threshold) { return draw < threshold; }

/* Upper half of the 128-bit product; in 32-bit pieces, since there is no 128-bit type common to all
 * compilers. */
DEVICE_FN uint64_t rng_multiply_high(uint64_t a, uint64_t b) {
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t low = a0 * b0;
    const uint64_t middle0 = a1 * b0 + (low >> 32);
    const uint64_t middle1 = a0 * b1 + (uint32_t)middle0;
    return a1 * b1 + (middle0 >> 32) + (middle1 >> 32);
}

/* Integer in [low, high) from a wide draw, by multiply and shift. With n = high - low, each value's
 * probability differs from 1/n by less than 2^-64, that is by a relative n / 2^64: 2^-47 for a vocabulary
 * of 2^17. An empty range gives `low`. */
DEVICE_FN int64_t rng_integer(uint64_t draw, int64_t low, int64_t high) {
    const uint64_t range = high > low ? (uint64_t)high - (uint64_t)low : 0;
    return (int64_t)((uint64_t)low + rng_multiply_high(draw, range));
}

/* ---- One element by its index ------------------------------------------------------------------------ */

DEVICE_FN uint32_t rng_draw_at(struct rng_key key, uint64_t index) {
    return rng_block_at(key, index / 4).word[index % 4];
}

DEVICE_FN uint64_t rng_wide_draw_at(struct rng_key key, uint64_t index) {
    return rng_wide_draw(rng_block_at(key, index / 2), (int)(index % 2));
}

DEVICE_FN uint32_t rng_mask_draw_at(struct rng_key key, uint64_t index) {
    return rng_mask_draw(rng_mask_block_at(key, index / 8), (int)(index % 8));
}

DEVICE_FN float rng_normal_f32_at(struct rng_key key, uint64_t index) {
    const struct rng_block block = rng_block_at(key, index / 4);
    const int first = (int)(index & 2);
    return rng_normal_f32(block.word[first], block.word[first + 1], index & 1 ? RNG_SIN : RNG_COS);
}

DEVICE_FN double rng_normal_f64_at(struct rng_key key, uint64_t index) {
    const struct rng_block block = rng_block_at(key, index / 2);
    return rng_normal_f64(rng_wide_draw(block, 0), rng_wide_draw(block, 1), index & 1 ? RNG_SIN : RNG_COS);
}

#endif
