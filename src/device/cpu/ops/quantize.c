/* quantize.c: casts with a rounding mode, and block-scaled formats.
 *
 * Everything passes through f64: the inputs fit into it, scaling by a power of two is exact there, and convert()
 * then rounds once. The common case, f32 and below with such a scale and rounding to nearest, has the same bits in
 * f32. Blocks are independent, and an element's random word depends on its place alone, so threads change nothing.
 * Two f4 share a byte; blocks are even, so no byte belongs to two threads.
 */
#include "base/float_bits.h"
#include "base/rng.h"
#include "base/scratch.h"
#include "device/cpu/shared/unpack.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"
#include "tensor/format.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 512 };

static const enum convert_mode convert_mode_of[] = {
    [TL_NEAREST] = CONVERT_NEAREST, [TL_SATURATE] = CONVERT_SATURATE, [TL_STOCHASTIC] = CONVERT_STOCHASTIC};

static char *element_at(const void *data, tl_dtype dtype, int64_t index) {
    return (char *)(uintptr_t)data + index * dtype_info(dtype)->bits / 8;
}

/* Words for elements first .. first+n-1, if the mode needs any. */
static const uint32_t *words_for(uint32_t *words, tl_rounding mode, tl_generator g, int64_t first, int64_t n) {
    if (mode != TL_STOCHASTIC) return NULL;
    rng_fill_u32(words, n, (struct rng_key){g.seed, g.stream}, g.index + (uint64_t)first);
    return words;
}

/* Where the values of elements from `index` on are. */
static char *values_at(const struct format_info *format, const void *data, int64_t index) {
    return format->has_codes ? (char *)(uintptr_t)data + index / 2 : element_at(data, format->values, index);
}

/* ---- cast_mode ---------------------------------------------------------------------------------------------- */

struct cast {
    const struct attr_cast *attr;
    const tl_operand *out, *in;
    struct iterate walk; /* over in, unless that is f4 */
};

static void cast_piece(const struct cast *cast, const char *in, int64_t stride, int64_t first, int64_t n) {
    uint32_t words[CHUNK];
    const struct attr_cast *attr = cast->attr;
    convert(element_at(cast->out->data, attr->dtype, first), attr->dtype, 1, in, cast->in->dtype, stride, n,
            convert_mode_of[attr->mode], words_for(words, attr->mode, attr->generator, first, n));
}

static void cast_range(void *context, int64_t first, int64_t last) {
    const struct cast *cast = context;
    const int64_t bytes = iterate_element_bytes(cast->in->dtype);
    struct iterate_run run;
    iterate_seek(&cast->walk, &run, first, last);
    while (iterate_next(&cast->walk, &run, CHUNK))
        cast_piece(cast, run.data[0], cast->walk.step[0] / bytes, run.position, run.length);
}

static void cast_packed_range(void *context, int64_t first, int64_t last) {
    const struct cast *cast = context;
    for (int64_t i = first; i < last; i += CHUNK)
        cast_piece(cast, element_at(cast->in->data, cast->in->dtype, i), 1, i, last - i < CHUNK ? last - i : CHUNK);
}

bool cpu_cast_mode(const tl_kernel_args *args) {
    struct cast cast = {.attr = args->attr, .out = &args->out[0], .in = &args->in[0]};
    const bool is_packed = dtype_info(cast.in->dtype)->bits < 8;
    /* The grain is even, and so are rows of f4 output: pieces begin at whole bytes. */
    if (!is_packed) iterate_begin(&cast.walk, cast.in->rank, cast.in->shape, &cast.in, 1, ITERATE_ROW_MAJOR);
    parallel_for(iterate_numel(cast.in), parallel_grain(4), args->n_threads, is_packed ? cast_packed_range : cast_range,
                 &cast);
    return true;
}

/* ---- quantize ----------------------------------------------------------------------------------------------- */

struct quantize {
    const struct attr_quantize *attr;
    const struct format_info *format;
    const tl_operand *x, *values, *scales; /* fake_quantize: `values` is its result, and `scales` NULL */
    int64_t n_blocks, blocks_per_row;
    bool is_dense;       /* x */
    double *chunk_amax;  /* the workspace */
    double max;          /* the largest value */
    double tensor_scale; /* 1 where the format has none */
};

static const char *block_at(const struct quantize *q, int64_t block) {
    const tl_operand *in = q->x;
    const int last = in->rank - 1;
    if (q->is_dense) return element_at(in->data, in->dtype, block * q->format->block);
    int64_t offset = block % q->blocks_per_row * q->format->block * in->stride[last], row = block / q->blocks_per_row;
    for (int axis = last - 1; axis >= 0; axis--) {
        offset += row % in->shape[axis] * in->stride[axis];
        row /= in->shape[axis];
    }
    return element_at(in->data, in->dtype, offset);
}

/* One block of x, as f64. Returns the largest magnitude; NaN when an element is not finite. */
static double read_block(const struct quantize *q, int64_t block, double *x) {
    const int n = q->format->block;
    convert_to_f64(x, block_at(q, block), q->x->dtype, q->x->stride[q->x->rank - 1], n);
    double amax = 0;
    for (int i = 0; i < n; i++) amax = !isfinite(x[i]) || isnan(amax) ? (double)NAN : fmax(amax, fabs(x[i]));
    return amax;
}

/* The rule of format.h: writes a block's scale, returns the divisor of its elements (0: a block of zeros). */
static double make_scale(const struct quantize *q, double amax, void *to) {
    const struct format_info *format = q->format;
    double scale = amax;
    if (amax == 0) {
        scale = format->scales == TL_F8E8M0 ? 0x1p-127 : 0;
    } else if (format->scales == TL_F8E8M0 && !isnan(amax)) {
        const int exponent = ilogb(amax) - format->max_exponent;
        scale = ldexp(1, exponent < -127 ? -127 : exponent > 127 ? 127 : exponent);
    } else if (!isnan(amax)) {
        scale = fmax(amax / (q->max * q->tensor_scale), dtype_info(format->scales)->smallest_subnormal);
    }
    convert(to, format->scales, 1, &scale, TL_F64, 1, 1, CONVERT_SATURATE, NULL);
    return amax == 0 ? 0 : convert_get_f64(to, format->scales, 0) * q->tensor_scale;
}

/* f32 is enough if scales are powers of two, 2^e with the code e + 127: a quotient below 2^-126, which is inexact,
 * rounds to zero in every format. */
static bool is_exact_in_f32(const struct quantize *q) {
    return q->format->scales == TL_F8E8M0 && q->attr->mode == TL_NEAREST && dtype_compute(q->x->dtype) == TL_F32;
}

/* One block in f32: to = x / scale; returns the scale's code. An exponent field of 0 (zeros and subnormals) has the
 * lowest scale in any case. */
static uint8_t scale_block_f32(const struct quantize *q, const float *x, float *to) {
    const int n = q->format->block;
    const float max = (float)q->max;
    uint32_t largest = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t magnitude = f32_bits(x[i]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= 0x7F800000u) { /* not finite */
        memset(to, 0, (size_t)n * sizeof *to);
        return 0xFF;
    }
    const int code = (int)(largest >> 23) - q->format->max_exponent, scale = code < 0 ? 0 : code;
    const float inverse = vector_power_of_two(127 - scale);
    for (int i = 0; i < n; i++) {
        const float v = x[i] * inverse, below = v > max ? max : v;
        to[i] = below < -max ? -max : below;
    }
    return (uint8_t)scale;
}

/* As encode_block for neighbouring blocks, of CHUNK elements at most. */
static void encode_blocks_f32(const struct quantize *q, int64_t block, int n_blocks, void *values, uint8_t *scales) {
    const int n = q->format->block;
    float scaled[CHUNK], buffer[FORMAT_MAX_BLOCK];
    for (int b = 0; b < n_blocks; b++) {
        const char *at = block_at(q, block + b);
        const float *x = buffer;
        if (q->is_dense && q->x->dtype == TL_F32) x = (const float *)(const void *)at;
        else convert_to_f32(buffer, at, q->x->dtype, q->x->stride[q->x->rank - 1], n);
        scales[b] = scale_block_f32(q, x, scaled + b * n);
    }
    convert_from_f32(values, q->format->values, 1, scaled, (int64_t)n_blocks * n);
}

static const float nf4[NF4_CODES] = {NF4_LIST};

/* The number of middles between neighbouring values that are below x. */
static int nf4_code(double x) {
    int code = 0;
    for (int k = 0; k + 1 < NF4_CODES; k++) code += x > 0.5 * ((double)nf4[k] + (double)nf4[k + 1]);
    return code;
}

static void encode_codes(const struct quantize *q, int64_t block, uint8_t *values, void *scale_to) {
    double x[FORMAT_MAX_BLOCK];
    const double amax = read_block(q, block, x);
    float scale;
    convert(&scale, TL_F32, 1, &amax, TL_F64, 1, 1, CONVERT_SATURATE, NULL);
    memcpy(scale_to, &scale, sizeof scale);
    for (int i = 0; i < q->format->block; i += 2) {
        const int first = scale > 0 ? nf4_code(x[i] / (double)scale) : NF4_ZERO,
                  second = scale > 0 ? nf4_code(x[i + 1] / (double)scale) : NF4_ZERO;
        values[i / 2] = (uint8_t)(first << 4 | second);
    }
}

/* All 16 products are rounded once for the block; f64 holds them exactly. */
static void decode_codes(const struct format_info *format, const uint8_t *values, const void *scale_at, void *out,
                         tl_dtype dtype) {
    const size_t bytes = (size_t)dtype_info(dtype)->bits / 8;
    char rounded[NF4_CODES * sizeof(double)], *to = out;
    double product[NF4_CODES];
    float scale;
    memcpy(&scale, scale_at, sizeof scale);
    for (int k = 0; k < NF4_CODES; k++) product[k] = (double)nf4[k] * (double)scale;
    convert_from_f64(rounded, dtype, 1, product, NF4_CODES);
    for (int i = 0; i < format->block; i++) {
        const int code = i % 2 ? values[i / 2] & 15 : values[i / 2] >> 4;
        memcpy(to + (size_t)i * bytes, rounded + (size_t)code * bytes, bytes);
    }
}

static void encode_block(const struct quantize *q, int64_t block, void *values, void *scale_to) {
    if (q->format->has_codes) {
        encode_codes(q, block, values, scale_to);
        return;
    }
    if (is_exact_in_f32(q)) {
        encode_blocks_f32(q, block, 1, values, scale_to);
        return;
    }
    const int n = q->format->block;
    const tl_rounding mode = q->attr->mode;
    double x[FORMAT_MAX_BLOCK];
    uint32_t words[FORMAT_MAX_BLOCK];
    const double amax = read_block(q, block, x), scale = make_scale(q, amax, scale_to);
    for (int i = 0; i < n; i++) {
        const double v = scale > 0 ? x[i] / scale : isnan(amax) ? 0 : x[i]; /* zeros keep their signs */
        x[i] = fmax(-q->max, fmin(q->max, v));
    }
    convert(values, q->format->values, 1, x, TL_F64, 1, n, convert_mode_of[mode],
            words_for(words, mode, q->attr->generator, block * n, n));
}

static void decode_block(const struct format_info *format, const void *values, const void *scale_at,
                         double tensor_scale, void *out, tl_dtype dtype) {
    double x[FORMAT_MAX_BLOCK];
    if (format->has_codes) {
        decode_codes(format, values, scale_at, out, dtype);
        return;
    }
    const double scale = convert_get_f64(scale_at, format->scales, 0) * tensor_scale;
    convert_to_f64(x, values, format->values, 1, format->block);
    for (int i = 0; i < format->block; i++) x[i] *= scale;
    convert_from_f64(out, dtype, 1, x, format->block);
}

static void quantize_blocks(void *context, int64_t first, int64_t last) {
    const struct quantize *q = context;
    const struct format_info *format = q->format;
    const int together = is_exact_in_f32(q) ? CHUNK / format->block : 1;
    for (int64_t block = first; block < last; block += together) {
        void *values = values_at(format, q->values->data, block * format->block);
        void *scales = element_at(q->scales->data, format->scales, block);
        if (together == 1) encode_block(q, block, values, scales);
        else encode_blocks_f32(q, block, last - block < together ? (int)(last - block) : together, values, scales);
    }
}

/* There and back: a block's codes live on the stack. */
static void fake_blocks(void *context, int64_t first, int64_t last) {
    const struct quantize *q = context;
    const tl_operand *out = q->values;
    for (int64_t block = first; block < last; block++) {
        uint8_t values[FORMAT_MAX_BLOCK], scale[sizeof(float)];
        encode_block(q, block, values, scale);
        decode_block(q->format, values, scale, q->tensor_scale,
                     element_at(out->data, out->dtype, block * q->format->block), out->dtype);
    }
}

static void find_amax(void *context, int64_t first, int64_t last) {
    const struct quantize *q = context;
    for (int64_t chunk = first; chunk < last; chunk++) {
        double amax = 0, x[FORMAT_MAX_BLOCK];
        for (int64_t b = chunk * QUANTIZE_CHUNK; b < (chunk + 1) * QUANTIZE_CHUNK && b < q->n_blocks; b++)
            amax = fmax(amax, read_block(q, b, x)); /* fmax ignores NaN */
        q->chunk_amax[chunk] = amax;
    }
}

/* amax / (448 x 6): the largest block's scale is then the largest that the format has. */
static float find_tensor_scale(struct quantize *q, int n_threads) {
    const int64_t n_chunks = (q->n_blocks + QUANTIZE_CHUNK - 1) / QUANTIZE_CHUNK;
    parallel_for(n_chunks, 1, n_threads, find_amax, q);
    double amax = 0;
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) amax = fmax(amax, q->chunk_amax[chunk]);
    if (amax == 0) return 1;
    const double scale = fmax(amax / (dtype_info(q->format->scales)->max * q->max), 0x1p-126);
    float rounded;
    convert(&rounded, TL_F32, 1, &scale, TL_F64, 1, 1, CONVERT_SATURATE, NULL);
    return rounded;
}

static bool run_blocks(const tl_kernel_args *args, struct quantize *q, void (*blocks)(void *, int64_t, int64_t)) {
    q->format = format_info(q->attr->format);
    q->blocks_per_row = q->x->shape[q->x->rank - 1] / q->format->block;
    q->n_blocks = iterate_numel(q->x) / q->format->block;
    q->is_dense = iterate_is_dense(q->x);
    q->max = dtype_info(q->format->values)->max;
    q->chunk_amax = args->workspace;
    q->tensor_scale = 1;
    if (q->format->has_tensor_scale) {
        const float scale = find_tensor_scale(q, args->n_threads);
        if (q->scales) memcpy(args->out[2].data, &scale, sizeof scale);
        q->tensor_scale = scale;
    }
    parallel_for(q->n_blocks, parallel_grain(8 * q->format->block), args->n_threads, blocks, q);
    return true;
}

bool cpu_quantize(const tl_kernel_args *args) {
    struct quantize q = {.attr = args->attr, .x = &args->in[0], .values = &args->out[0], .scales = &args->out[1]};
    return run_blocks(args, &q, quantize_blocks);
}

bool cpu_fake_quantize(const tl_kernel_args *args) {
    struct quantize q = {.attr = args->attr, .x = &args->in[0], .values = &args->out[0]};
    return run_blocks(args, &q, fake_blocks);
}

/* ---- dequantize --------------------------------------------------------------------------------------------- */

struct dequantize {
    const struct format_info *format;
    const tl_operand *values, *scales, *out;
    double tensor_scale;
    const struct blocks *blocks; /* for f32, f16 and bf16 */
};

/* To floats of at most 32 bits. */
static void dequantize_blocks_f32(void *context, int64_t first, int64_t last) {
    const struct dequantize *d = context;
    const int n = d->format->block;
    float x[CHUNK];
    for (int64_t block = first; block < last; block += CHUNK / n) {
        const int64_t length = n * (last - block < CHUNK / n ? last - block : CHUNK / n);
        blocks_read_f32(x, d->blocks, block * n, length);
        convert_from_f32(element_at(d->out->data, d->out->dtype, block * n), d->out->dtype, 1, x, length);
    }
}

static void dequantize_blocks(void *context, int64_t first, int64_t last) {
    const struct dequantize *d = context;
    const int n = d->format->block;
    for (int64_t block = first; block < last; block++)
        decode_block(d->format, values_at(d->format, d->values->data, block * n),
                     element_at(d->scales->data, d->format->scales, block), d->tensor_scale,
                     element_at(d->out->data, d->out->dtype, block * n), d->out->dtype);
}

bool cpu_dequantize(const tl_kernel_args *args) {
    const struct attr_dequantize *attr = args->attr;
    const tl_dtype dtype = args->out[0].dtype;
    const float *tensor_scale = args->n_in == 3 ? args->in[2].data : NULL;
    const bool is_narrow = dtype == TL_F32 || dtype == TL_F16 || dtype == TL_BF16;
    struct dequantize d = {.format = format_info(attr->format),
                           .values = &args->in[0],
                           .scales = &args->in[1],
                           .out = &args->out[0],
                           .tensor_scale = tensor_scale ? (double)*tensor_scale : 1};
    SCRATCH(struct blocks, blocks);
    d.blocks = blocks;
    if (is_narrow) blocks_begin(blocks, attr->format, dtype, d.values->data, d.scales->data, tensor_scale);
    parallel_for(iterate_numel(d.scales), parallel_grain(2 * d.format->block), args->n_threads,
                 is_narrow ? dequantize_blocks_f32 : dequantize_blocks, &d);
    return true;
}
