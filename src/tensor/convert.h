/* convert.h: conversions between all dtypes, each rounded once.
 *
 * Values
 *   float -> float   to nearest, ties to even, directly: f64 -> bf16 does not pass through f32.
 *   int   -> float   likewise, directly from the integer.
 *   float -> int     truncates toward zero; out of range gives the nearest end of the range, NaN gives 0.
 *                    C leaves both undefined; NumPy and PyTorch return what the machine happens to return.
 *   int   -> int     wraps (two's complement), as PyTorch and NumPy do.
 *   any   -> bool    is != 0; NaN is true. A bool is read as 1 when its byte is not 0.
 *   A dtype to itself copies bits, in every mode.
 *
 * Overflow and NaN in a narrower float
 *   mode        f32 f16 bf16 f8e5m2   f8e4m3         f4e2m1          f8e8m0
 *   NEAREST     infinity              NaN            +-6             NaN; so are 0 and negative values
 *   SATURATE    +-max, also for an infinite source, in all formats;  0 gives 2^-127, negative values NaN
 *   What rounds to at most the largest finite value is no overflow. Positive values below 2^-127 are 2^-127
 *   in f8e8m0, whose ties go up (its significand 1 is odd). NaN stays NaN with its sign and becomes the
 *   format's quiet NaN (f16 0x7e00, bf16 0x7fc0, f8e4m3 0x7f, f8e5m2 0x7e, f8e8m0 0xff); f4, which has none,
 *   gets a zero (0x8, or 0x0 for a negative NaN).
 *
 * Peers. From f32 this is ml_dtypes bit for bit, except between 2^-127 and 2^-126 in f8e8m0, where
 *   ml_dtypes always rounds up; from f64 and i64 ml_dtypes goes through f32 and rounds twice. PyTorch
 *   agrees except in f8e4m3 overflow (recent releases saturate), in f8e8m0's zero and negative values, and
 *   in the bits of NaN.
 *
 * STOCHASTIC takes one random 32-bit word per element and picks the upper neighbour with a probability
 *   equal to the distance from the lower one: exactly so when the discarded part has at most 32 bits (always
 *   when f32 becomes a normal number of a narrower format), otherwise to 2^-32 of the gap (2^-28 for
 *   integers beyond 2^53). Representable values never change. The random word chooses between finite
 *   neighbours only: what overflows in NEAREST does the same here. Targets that are not floats, and f64, are
 *   converted as in NEAREST.
 *
 * Strides are in elements and may be negative, the source's also zero. f4 is packed two per byte, the even
 * element in the low nibble; it has stride 1 and starts at an even element; an odd last element leaves its
 * neighbour's nibble alone. Source and destination must not overlap. Nothing here can fail; dtypes must be
 * valid.
 */
#ifndef TALLY_TENSOR_CONVERT_H
#define TALLY_TENSOR_CONVERT_H

#include "tally.h"

#include <stdint.h>

enum convert_mode { CONVERT_NEAREST, CONVERT_SATURATE, CONVERT_STOCHASTIC };

/* n elements of any dtype into a contiguous array of the type kernels compute in. */
void convert_to_f32(float *out, const void *in, tl_dtype in_dtype, int64_t in_stride, int64_t n);
void convert_to_f64(double *out, const void *in, tl_dtype in_dtype, int64_t in_stride, int64_t n);
void convert_to_i64(int64_t *out, const void *in, tl_dtype in_dtype, int64_t in_stride, int64_t n);

/* And back, rounding to nearest. */
void convert_from_f32(void *out, tl_dtype out_dtype, int64_t out_stride, const float *in, int64_t n);
void convert_from_f64(void *out, tl_dtype out_dtype, int64_t out_stride, const double *in, int64_t n);
void convert_from_i64(void *out, tl_dtype out_dtype, int64_t out_stride, const int64_t *in, int64_t n);

/* Any dtype to any dtype. `random` holds n words in CONVERT_STOCHASTIC and is not read in the other modes. */
void convert(void *out, tl_dtype out_dtype, int64_t out_stride, const void *in, tl_dtype in_dtype, int64_t in_stride,
             int64_t n, enum convert_mode mode, const uint32_t *random);

/* One element of a contiguous array, for printing and for item(). Any index, for f4 too. */
double convert_get_f64(const void *data, tl_dtype dtype, int64_t index);
int64_t convert_get_i64(const void *data, tl_dtype dtype, int64_t index);
void convert_set_f64(void *data, tl_dtype dtype, int64_t index, double value);
void convert_set_i64(void *data, tl_dtype dtype, int64_t index, int64_t value);

#endif
