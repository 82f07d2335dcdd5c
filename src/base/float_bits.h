/* float_bits.h: a float's bits as an integer, and back. Shared with kernels of other devices. */
#ifndef BASE_FLOAT_BITS_H
#define BASE_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FLOAT_BITS_FN static inline __host__ __device__
#else
#define FLOAT_BITS_FN static inline
#endif

FLOAT_BITS_FN uint32_t f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FLOAT_BITS_FN float f32_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FLOAT_BITS_FN uint64_t f64_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FLOAT_BITS_FN double f64_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
