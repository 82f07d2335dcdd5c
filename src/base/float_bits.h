/* float_bits.h: a float's bits as an integer, and back. Shared with kernels of other devices. */
#ifndef BASE_FLOAT_BITS_H
#define BASE_FLOAT_BITS_H

#include "base/device_fn.h"

#include <stdint.h>
#include <string.h>

DEVICE_FN uint32_t f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

DEVICE_FN float f32_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

DEVICE_FN uint64_t f64_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

DEVICE_FN double f64_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
