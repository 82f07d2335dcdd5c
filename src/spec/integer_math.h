/* integer_math.h: formulas of elementwise ops on integers, for every device. Sums and products wrap. */
#ifndef SPEC_INTEGER_MATH_H
#define SPEC_INTEGER_MATH_H

#include <stdint.h>

#include "base/device_fn.h"

/* The lowest number is its own magnitude: negation wraps. */
DEVICE_FN int64_t integer_abs(int64_t x) { return x < 0 ? (int64_t)(0 - (uint64_t)x) : x; }

/* By squaring. A negative power of an integer is a fraction, of which 0 is left, but for 1 and -1. */
DEVICE_FN int64_t integer_pow(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    uint64_t result = 1;
    for (uint64_t b = (uint64_t)base; exponent; exponent >>= 1, b *= b)
        if (exponent & 1) result *= b;
    return (int64_t)result;
}

/* With the divisor's sign. 0 by a divisor of 0, which the caller reports. */
DEVICE_FN int64_t integer_remainder(int64_t a, int64_t divisor) {
    const int64_t r = divisor == 0 || divisor == -1 ? 0 : a % divisor;
    return r != 0 && (r < 0) != (divisor < 0) ? r + divisor : r;
}

#endif
