/* convert_round.h: the one encoder of floats narrower than f64, from the bits of an f64: rounding, overflow and NaN, as
 * convert.h states them; the decoder of 8-bit and 4-bit floats; and the ways between floats and integers. Shared with
 * kernels of other devices, which must give the same bits. */
#ifndef TALLY_TENSOR_CONVERT_ROUND_H
#define TALLY_TENSOR_CONVERT_ROUND_H

#include "base/device_fn.h"
#include "base/float_bits.h"
#include "tensor/convert.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define F64_INFINITY 0x7FF0000000000000u
#define F32_INFINITY 0x7F800000u

/* ---- Between floats and integers ---- */

DEVICE_FN double clamp_f64(double x, double low, double high) {
    const double above = x > low ? x : low;
    const double clamped = above < high ? above : high;
    return x == x ? clamped : 0.0;
}

DEVICE_FN int64_t truncate_i64(double x) {
    if (x >= 0x1p63) return INT64_MAX;
    if (x <= -0x1p63) return INT64_MIN;
    return x == x ? (int64_t)x : 0;
}

/* Rounded to odd, see convert.c. The sticky bit is bit 11: of 64 bits, 53 remain. */
DEVICE_FN double i64_to_f64_odd(int64_t value) {
    const uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const uint64_t sticky = (magnitude & 0x7FF) ? 0x800 : 0;
    const bool is_exact = magnitude < UINT64_C(1) << 53;
    const double rounded = (double)(is_exact ? magnitude : (magnitude & ~UINT64_C(0x7FF)) | sticky);
    return value < 0 ? -rounded : rounded;
}

/* An f64 as f32, rounded to odd: a narrower float that is then rounded from it is as if rounded at once, since f32
 * has two bits more than any of them, at every size. The nearest f32, one back where that is too far from 0, and odd
 * where it is not exact. */
DEVICE_FN float f64_to_f32_odd(double x) {
    const float near = (float)x;
    const uint64_t bits = f64_bits(x), back = f64_bits((double)near);
    const uint32_t is_beyond = (back << 1) > (bits << 1), is_inexact = back != bits;
    return f32_of_bits((f32_bits(near) - is_beyond) | is_inexact);
}

/* ---- Narrow floats ---- */

/* condition ? a : b, by a mask. Compilers turn a choice that involves a float operation, which might trap,
 * into a branch, and then no longer vectorise the loop around it. */
DEVICE_FN uint32_t choose(bool condition, uint32_t a, uint32_t b) {
    const uint32_t mask = 0u - (uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

struct float_format {
    int mantissa_bits;
    int bias;
    uint32_t sign_bit;
    uint32_t max_code;      /* largest finite magnitude */
    uint32_t infinity_code; /* 0 where there is none */
    uint32_t overflow_code; /* what NEAREST makes of a larger magnitude */
    uint32_t nan_code;      /* of a positive NaN; the sign bit is flipped for a negative one */
};

/* Functions, not tables: code of another device does not see the host's constants. */
DEVICE_FN struct float_format f16_format(void) {
    const struct float_format format = {10, 15, 0x8000, 0x7BFF, 0x7C00, 0x7C00, 0x7E00};
    return format;
}

DEVICE_FN struct float_format bf16_format(void) {
    const struct float_format format = {7, 127, 0x8000, 0x7F7F, 0x7F80, 0x7F80, 0x7FC0};
    return format;
}

DEVICE_FN struct float_format f32_format(void) {
    const struct float_format format = {23, 127, 0x80000000u, 0x7F7FFFFF, 0x7F800000, 0x7F800000, 0x7FC00000};
    return format;
}

DEVICE_FN struct float_format f8e4m3_format(void) {
    const struct float_format format = {3, 7, 0x80, 0x7E, 0, 0x7F, 0x7F};
    return format;
}

DEVICE_FN struct float_format f8e5m2_format(void) {
    const struct float_format format = {2, 15, 0x80, 0x7B, 0x7C, 0x7C, 0x7E};
    return format;
}

DEVICE_FN struct float_format f4e2m1_format(void) {
    const struct float_format format = {1, 1, 0x8, 0x7, 0, 0x7, 0x8};
    return format;
}

/* Exact, for formats of at most 8 bits, and free of branches. */
DEVICE_FN float decode(struct float_format format, uint32_t code) {
    const int m = format.mantissa_bits;
    const uint32_t magnitude = code & (format.sign_bit - 1);
    const float unit = f32_of_bits((uint32_t)(128 - format.bias - m) << 23); /* smallest subnormal */
    const uint32_t subnormal = f32_bits((float)magnitude * unit);
    const uint32_t normal = (magnitude << (23 - m)) + ((uint32_t)(127 - format.bias) << 23);
    const uint32_t special = magnitude == format.infinity_code ? F32_INFINITY : 0x7FC00000u;
    const uint32_t finite = choose(magnitude < 1u << m, subnormal, normal);
    const uint32_t bits = choose(magnitude > format.max_code, special, finite);
    return f32_of_bits(bits | choose((code & format.sign_bit) != 0, 0x80000000u, 0));
}

/* Does the discarded part `rest` (in units of 2^-shift of the last kept place) round up? */
DEVICE_FN bool rounds_up_stochastic(uint64_t rest, int shift, uint32_t random) {
    const uint64_t probability = shift <= 32 ? rest << (32 - shift) : rest >> (shift - 32); /* times 2^32 */
    return (probability + random) >> 32 != 0;
}

/* The code of a finite or infinite magnitude (bits of a non-negative f64), as if the exponent had no upper
 * end. Kept bits include the implicit one, so a carry out of the mantissa moves into the exponent by
 * itself, and subnormals are only a larger shift. */
DEVICE_FN uint64_t round_stochastic(struct float_format format, uint64_t magnitude, uint32_t random) {
    const int source_exponent = (int)(magnitude >> 52);
    const int exponent = source_exponent - 1023 + format.bias; /* in the target; normal there from 1 on */
    const bool is_subnormal = exponent < 1;
    uint64_t significand = (magnitude & 0xFFFFFFFFFFFFFu) | (uint64_t)(source_exponent != 0) << 52;
    int shift = 52 - format.mantissa_bits + (is_subnormal ? 1 - exponent : 0);
    if (shift > 63) { /* below 2^-10 of the smallest subnormal; what falls off is below 2^-63 of it */
        significand >>= shift - 63 < 63 ? shift - 63 : 63;
        shift = 63;
    }
    const uint64_t kept = significand >> shift;
    const uint64_t rest = significand & ((UINT64_C(1) << shift) - 1);
    const bool up = rounds_up_stochastic(rest, shift, random);
    const uint64_t binade = is_subnormal ? 0 : (uint64_t)(exponent - 1) << format.mantissa_bits;
    return binade + kept + up;
}

/* The same, to nearest and free of branches: a normal result is the upper bits, rounded by an addition below them;
 * for a subnormal one, adding 2^52 times the smallest subnormal leaves the rounded multiple in the low bits. */
DEVICE_FN uint64_t round_nearest(struct float_format format, uint64_t magnitude) {
    const int m = format.mantissa_bits, shift = 52 - m;
    const uint64_t rebased = magnitude - ((uint64_t)(1023 - format.bias) << 52);
    const uint64_t normal = (rebased + ((UINT64_C(1) << (shift - 1)) - 1) + (rebased >> shift & 1)) >> shift;
    const uint64_t adder = (uint64_t)(1024 - format.bias - m + 52) << 52;
    const uint64_t subnormal = f64_bits(f64_of_bits(magnitude) + f64_of_bits(adder)) - adder;
    const uint64_t mask = 0u - (uint64_t)(magnitude < (uint64_t)(1024 - format.bias) << 52);
    return (subnormal & mask) | (normal & ~mask);
}

DEVICE_FN uint32_t encode(struct float_format format, double value, enum convert_mode mode, uint32_t random) {
    const uint64_t bits = f64_bits(value);
    const uint64_t magnitude = bits & ~(UINT64_C(1) << 63);
    const uint32_t sign = choose(bits >> 63 != 0, format.sign_bit, 0);
    const uint32_t end = mode == CONVERT_SATURATE ? format.max_code : format.overflow_code;
    const uint64_t nearest = round_nearest(format, magnitude);
    const bool overflows = nearest > format.max_code;
    uint64_t code = nearest;
    if (mode == CONVERT_STOCHASTIC && magnitude <= F64_INFINITY) code = round_stochastic(format, magnitude, random);
    const uint32_t finite = choose(code > format.max_code, format.max_code, (uint32_t)code);
    return choose(magnitude > F64_INFINITY, format.nan_code ^ sign, choose(overflows, end, finite) | sign);
}

/* ---- f8e8m0: an exponent and nothing else ---- */

enum { E8M0_MAX = 0xFE, E8M0_NAN = 0xFF };

DEVICE_FN float f8e8m0_to_f32(uint8_t code) {
    const uint32_t finite = code == 0 ? 0x00400000u : (uint32_t)code << 23; /* 2^-127 is subnormal in f32 */
    return f32_of_bits(code == E8M0_NAN ? 0x7FC00000u : finite);
}

DEVICE_FN uint8_t f8e8m0_encode(double value, enum convert_mode mode, uint32_t random) {
    if (value == 0) return mode == CONVERT_SATURATE ? 0 : E8M0_NAN;
    if (!(value > 0)) return E8M0_NAN;
    const uint64_t fraction = f64_bits(value) & 0xFFFFFFFFFFFFFu;
    const int exponent = (int)(f64_bits(value) >> 52) - 1023 + 127;
    const int nearest = exponent + (fraction >= UINT64_C(1) << 51);
    if (nearest > E8M0_MAX) return mode == CONVERT_SATURATE ? E8M0_MAX : E8M0_NAN;
    const int stochastic = exponent + rounds_up_stochastic(fraction, 52, random);
    const int code = mode == CONVERT_STOCHASTIC ? stochastic : nearest;
    return (uint8_t)(code < 0 ? 0 : code > E8M0_MAX ? E8M0_MAX : code);
}

#endif
