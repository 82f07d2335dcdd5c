/* unpack.h: a tensor in a block-scaled format (tensor/format.h), read as f32 numbers. */
#ifndef TALLY_DEVICE_CPU_UNPACK_H
#define TALLY_DEVICE_CPU_UNPACK_H

#include "tensor/format.h"

#define UNPACK_TABLE 64

/* 18 KiB: in a thread's arena (base/scratch.h). */
struct blocks {
    const struct format_info *format;
    tl_dtype dtype; /* to which the numbers are rounded, once: f32, f16 or bf16 */
    const void *values, *scales;
    float tensor_scale;                             /* 1 where the format has none */
    _Alignas(16) float value[NF4_CODES];            /* of each code of 4 bits */
    float scale[256];                               /* of each code of 8 bits; unused where scales are f32 */
    _Alignas(64) uint8_t tables[256][UNPACK_TABLE]; /* of numbers of 4 bits, by the scale's code */
};

/* `tensor_scale` is read where the format has one. */
void blocks_begin(struct blocks *b, tl_format format, tl_dtype dtype, const void *values, const void *scales,
                  const float *tensor_scale);

/* n numbers in row-major order, from the `first` on. */
void blocks_read_f32(float *out, const struct blocks *b, int64_t first, int64_t n);

#endif
