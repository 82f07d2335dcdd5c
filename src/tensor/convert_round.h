/* convert_round.h: the one encoder of floats narrower than f64, from the bits of an f64: rounding, overflow and NaN, as
 * convert.h states them. Shared with kernels of other devices, which must give the same bits. */
#ifndef TALLY_TENSOR_CONVERT_ROUND_H
#define TALLY_TENSOR_CONVERT_ROUND_H

#include "tensor/convert.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CONVERT_FN static inline __host__ __device__
#else
#define CONVERT_FN static inline
#endif

#define F64_INFINITY 0x7FF0000000000000u

CONVERT_FN uint64_t f64_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

CONVERT_FN double f64_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* condition ? a : b, by a mask. Compilers turn a choice that involves a float operation, which might trap,
 * into a branch, and then no longer vectorise the loop around it. */
CONVERT_FN uint32_t choose(bool condition, uint32_t a, uint32_t b) {
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
CONVERT_FN struct float_format f16_format(void) {
    const struct float_format format = {10, 15, 0x8000, 0x7BFF, 0x7C00, 0x7C00, 0x7E00};
    return format;
}

CONVERT_FN struct float_format bf16_format(void) {
    const struct float_format format = {7, 127, 0x8000, 0x7F7F, 0x7F80, 0x7F80, 0x7FC0};
    return format;
}

/* Does the discarded part `rest` (in units of 2^-shift of the last kept place) round up? */
CONVERT_FN bool rounds_up_stochastic(uint64_t rest, int shift, uint32_t random) {
    const uint64_t probability = shift <= 32 ? rest << (32 - shift) : rest >> (shift - 32); /* times 2^32 */
    return (probability + random) >> 32 != 0;
}

/* The code of a finite or infinite magnitude (bits of a non-negative f64), as if the exponent had no upper
 * end. Kept bits include the implicit one, so a carry out of the mantissa moves into the exponent by
 * itself, and subnormals are only a larger shift. */
CONVERT_FN uint64_t round_stochastic(struct float_format format, uint64_t magnitude, uint32_t random) {
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

/* The same, to nearest and free of branches: a normal result is the upper bits, rounded by an addition below them; for a
 * subnormal one, adding 2^52 times the smallest subnormal leaves the rounded multiple in the low bits. */
CONVERT_FN uint64_t round_nearest(struct float_format format, uint64_t magnitude) {
    const int m = format.mantissa_bits, shift = 52 - m;
    const uint64_t rebased = magnitude - ((uint64_t)(1023 - format.bias) << 52);
    const uint64_t normal = (rebased + ((UINT64_C(1) << (shift - 1)) - 1) + (rebased >> shift & 1)) >> shift;
    const uint64_t adder = (uint64_t)(1024 - format.bias - m + 52) << 52;
    const uint64_t subnormal = f64_bits(f64_of_bits(magnitude) + f64_of_bits(adder)) - adder;
    const uint64_t mask = 0u - (uint64_t)(magnitude < (uint64_t)(1024 - format.bias) << 52);
    return (subnormal & mask) | (normal & ~mask);
}

CONVERT_FN uint32_t encode(struct float_format format, double value, enum convert_mode mode, uint32_t random) {
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

#endif
