/* block.h: rows of any float dtype, read and written a block at a time in the type that kernels compute in.
 *
 * A row in the compute type is used in place; a row of another dtype passes through a buffer of BLOCK elements on the
 * caller's stack. Kernels are thus written once per compute type, over blocks.
 *
 * Sums of a block run in BLOCK_LANES interleaved partial sums, added up pairwise at the end: the order is
 * fixed by the row alone, and the compiler can keep the lanes in vector registers.
 */
#ifndef TALLY_DEVICE_CPU_BLOCK_H
#define TALLY_DEVICE_CPU_BLOCK_H

#include "tally.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 1024
#define BLOCK_LANES 16

/* Address of element `index` of an array of whole-byte elements. */
static inline void *block_at(const void *data, tl_dtype dtype, int64_t index) {
    return (char *)(uintptr_t)data + index * (dtype_info(dtype)->bits / 8);
}

static inline int64_t block_min(int64_t a, int64_t b) { return a < b ? a : b; }

/* Element `index` of an operand of i64 or i32. */
static inline int64_t block_integer(const tl_operand *x, int64_t index) {
    return x->dtype == TL_I64 ? ((const int64_t *)x->data)[index] : ((const int32_t *)x->data)[index];
}

/* Elements [first, first + n) of an array: in place when they are f32, else converted into `buffer`. */
static inline const float *block_read_f32(float *buffer, const void *data, tl_dtype dtype, int64_t first, int64_t n) {
    if (dtype == TL_F32) {
        return (const float *)data + first;
    }
    convert_to_f32(buffer, block_at(data, dtype, first), dtype, 1, n);
    return buffer;
}

static inline const double *block_read_f64(double *buffer, const void *data, tl_dtype dtype, int64_t first, int64_t n) {
    if (dtype == TL_F64) {
        return (const double *)data + first;
    }
    convert_to_f64(buffer, block_at(data, dtype, first), dtype, 1, n);
    return buffer;
}

/* Where to compute a result: in the array itself when the type is the same, else in `buffer`. block_write_* then
 * rounds the values into the array, unless they are there already. */
static inline float *block_place_f32(float *buffer, void *data, tl_dtype dtype, int64_t first) {
    return dtype == TL_F32 ? (float *)data + first : buffer;
}

static inline double *block_place_f64(double *buffer, void *data, tl_dtype dtype, int64_t first) {
    return dtype == TL_F64 ? (double *)data + first : buffer;
}

static inline void block_write_f32(const float *values, void *data, tl_dtype dtype, int64_t first, int64_t n) {
    if (dtype == TL_F32) {
        if (values != (const float *)data + first) {
            memcpy((float *)data + first, values, (size_t)n * sizeof *values);
        }
    } else {
        convert_from_f32(block_at(data, dtype, first), dtype, 1, values, n);
    }
}

static inline void block_write_f64(const double *values, void *data, tl_dtype dtype, int64_t first, int64_t n) {
    if (dtype == TL_F64) {
        if (values != (const double *)data + first) {
            memcpy((double *)data + first, values, (size_t)n * sizeof *values);
        }
    } else {
        convert_from_f64(block_at(data, dtype, first), dtype, 1, values, n);
    }
}

static inline float block_total_f32(float lane[BLOCK_LANES]) {
    for (int width = BLOCK_LANES / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) {
            lane[j] += lane[j + width];
        }
    }
    return lane[0];
}

static inline double block_total_f64(double lane[BLOCK_LANES]) {
    for (int width = BLOCK_LANES / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) {
            lane[j] += lane[j + width];
        }
    }
    return lane[0];
}

/* Number of rows of a (..., C) operand: elements of all axes but the last. */
static inline int64_t block_rows(const tl_operand *x) {
    int64_t n = 1;
    for (int i = 0; i + 1 < x->rank; i++) {
        n *= x->shape[i];
    }
    return n;
}

/* Elements from the first of a (B,T,H,D) operand to row (b, t, h). */
static inline int64_t block_row_at(const tl_operand *x, int64_t b, int64_t t, int64_t h) {
    return b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

#endif
