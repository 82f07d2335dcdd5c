/* format.h: block-scaled formats, one row each, and the rule by which a block is made.
 *
 * A block is `block` consecutive elements of the last axis that share a scale; an element is value x scale, in NVFP4
 * also x the tensor's scale t. With amax the largest magnitude of a block and emax the exponent of the largest
 * value:
 *
 *   MX     scale = 2^(floor(log2 amax) - emax), held to 2^-127 .. 2^127 (OCP Microscaling Formats 1.0, section 6.3).
 *          The scaled amax lies in [2^emax, 2^(emax+1)), whose upper end no value reaches: it saturates.
 *   NVFP4  t = amax of the tensor / (448 x 6) in f32, so that the largest block scale is f8e4m3's largest value.
 *          scale = amax / (6 t) to nearest, but at least 2^-9, its smallest positive value: a block of small numbers
 *          keeps what it can. t is at least 2^-126, where f32 still has all its digits, and 1 for a tensor of zeros.
 *
 *   NF4    scale = amax in f32. A value is one of 16 numbers, NF4_LIST (Dettmers et al. 2023, "QLoRA"), and its code is
 *          that of the nearest one to x / scale; of two equally near, the lower. A byte has two codes, the first
 *          element's in its upper half, as in bitsandbytes: the values are u8, half as many as elements.
 *
 * Then value = x / scale (/ t), held to the largest value and rounded once. The divisions are done in f64, where
 * those by a power of two and the product of the two scales are exact.
 *
 * Zeros: a block of zeros has zero values and the smallest scale (2^-127; 0 in NVFP4 and NF4). Not finite: a block
 * with an infinity or a NaN gets zero values and a NaN scale, so that all of it is NaN again; t is taken over the
 * other blocks.
 */
#ifndef TALLY_TENSOR_FORMAT_H
#define TALLY_TENSOR_FORMAT_H

#include "tally.h"

#define FORMAT_MAX_BLOCK 64

struct format_info {
    const char *name;
    tl_dtype values, scales;
    int block;
    int max_exponent; /* floor(log2) of the largest value */
    bool has_tensor_scale;
    bool has_codes; /* two in each of `values`, of a table of 16 */
};

/* Initialisers of NF4's table: quantiles of the normal distribution, by f32 numbers. */
enum { NF4_CODES = 16, NF4_ZERO = 7 };
#define NF4_LIST                                                                                                    \
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,                \
        -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,             \
        0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, \
        1.0f

/* ROW(number, name, values, scales, block, max_exponent, has_tensor_scale, has_codes) for each: kernels of other
 * devices have tables too. */
#define FORMAT_LIST(ROW)                                                         \
    ROW(TL_MXFP8_E4M3, "mxfp8_e4m3", TL_F8E4M3, TL_F8E8M0, 32, 8, false, false)  \
    ROW(TL_MXFP8_E5M2, "mxfp8_e5m2", TL_F8E5M2, TL_F8E8M0, 32, 15, false, false) \
    ROW(TL_MXFP4, "mxfp4", TL_F4E2M1, TL_F8E8M0, 32, 2, false, false)            \
    ROW(TL_NVFP4, "nvfp4", TL_F4E2M1, TL_F8E4M3, 16, 2, true, false)             \
    ROW(TL_NF4, "nf4", TL_U8, TL_F32, 64, 0, false, true)

/* The row of a format; NULL for what is none. */
const struct format_info *format_info(tl_format format);

#endif
