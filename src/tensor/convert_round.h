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
CONVERT_FN bool rounds_up_nearest(uint64_t kept, uint64_t rest, int shift) {
    const uint64_t half = UINT64_C(1) << (shift - 1);
    return rest > half || (rest == half && (kept & 1));
}

CONVERT_FN bool rounds_up_stochastic(uint64_t rest, int shift, uint32_t random) {
    const uint64_t probability = shift <= 32 ? rest << (32 - shift) : rest >> (shift - 32); /* times 2^32 */
    return (probability + random) >> 32 != 0;
}

/* The code of a finite or infinite magnitude (bits of a non-negative f64), as if the exponent had no upper
 * end. Kept bits include the implicit one, so a carry out of the mantissa moves into the exponent by
 * itself, and subnormals are only a larger shift. */
CONVERT_FN uint64_t round_magnitude(struct float_format format, uint64_t magnitude, bool is_stochastic,
                                    uint32_t random) {
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
    const bool up = is_stochastic ? rounds_up_stochastic(rest, shift, random) : rounds_up_nearest(kept, rest, shift);
    const uint64_t binade = is_subnormal ? 0 : (uint64_t)(exponent - 1) << format.mantissa_bits;
    return binade + kept + up;
}

CONVERT_FN uint32_t encode(struct float_format format, double value, enum convert_mode mode, uint32_t random) {
    const uint64_t bits = f64_bits(value);
    const uint64_t magnitude = bits & ~(UINT64_C(1) << 63);
    const uint32_t sign = bits >> 63 ? format.sign_bit : 0;
    if (magnitude > F64_INFINITY) return format.nan_code ^ sign;
    uint64_t code = round_magnitude(format, magnitude, false, 0);
    if (code > format.max_code) return (mode == CONVERT_SATURATE ? format.max_code : format.overflow_code) | sign;
    if (mode == CONVERT_STOCHASTIC) code = round_magnitude(format, magnitude, true, random);
    return (code > format.max_code ? format.max_code : (uint32_t)code) | sign;
}

#endif
