/* convert.c: how 15 dtypes convert into each other without 225 functions and without rounding twice.
 *
 * Every dtype knows its way to and from three hub types: f32, f64, i64. Each source has a hub that holds
 * all its values exactly (dtype_compute: f32 for floats up to f32, f64, i64 for integers), so `convert`
 * loads a chunk into that hub, which cannot round, and stores from it, which rounds once.
 *
 * Narrow floats share one encoder (convert_round.h), from the bits of an f64, with the format as a constant argument:
 * one statement of rounding, overflow and NaN for all of them. f32 -> f16 and f32 -> bf16, which kernels do all
 * day, have short branch-free ways of their own, held by the tests to the same results. An i64 reaches the
 * encoder through an f64 rounded to odd: when the integer has more than 53 bits, the last bit of the f64 is
 * set if any lower bit was set, which preserves on which side of every coarser tie it lies.
 */
#include "tensor/convert.h"

#include "tensor/convert_round.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

enum hub { HUB_F32, HUB_F64, HUB_I64, HUB_COUNT };

/* The conversion functions of a dtype. Hub arrays are contiguous, the other side is strided. */
struct codec {
    void (*load[HUB_COUNT])(void *hub, const void *in, int64_t stride, int64_t n);
    void (*store[HUB_COUNT])(void *out, int64_t stride, const void *hub, int64_t n);
    void (*copy)(void *out, int64_t out_stride, const void *in, int64_t in_stride, int64_t n);
    /* From f64 in the other rounding modes; NULL where they make no difference. */
    void (*store_rounded)(void *out, int64_t stride, const double *in, int64_t n, enum convert_mode mode,
                          const uint32_t *random);
};

/* ---- f64 to f32, rounded to odd ------------------------------------------------------------------------------ */

enum { ODD_CHUNK = 64 };

/* Arm has an instruction for it. */
static inline void f64_to_f32_odd_many(float *out, const double *in, int64_t n) {
    int64_t i = 0;
#if defined(__aarch64__)
    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vcvtx_high_f32_f64(vcvtx_f32_f64(vld1q_f64(in + i)), vld1q_f64(in + i + 2)));
#endif
    for (; i < n; i++) out[i] = f64_to_f32_odd(in[i]);
}

/* ---- Narrow floats: the short way to nearest ------------------------------------------------------------- */

/* The same as encode(format, value, CONVERT_NEAREST) for formats of at most 8 bits with a sign bit on top, free of
 * branches. A normal result is the f32's upper bits, rounded by an addition below them; for a subnormal one, adding
 * 2^23 times the smallest subnormal leaves the rounded multiple in the low bits. */
static inline uint32_t encode_nearest(struct float_format format, float value) {
    const int m = format.mantissa_bits, shift = 23 - m;
    const uint32_t bits = f32_bits(value), magnitude = bits & 0x7FFFFFFFu;
    const uint32_t sign = choose(bits >> 31 != 0, format.sign_bit, 0);
    const uint32_t smallest_normal = (uint32_t)(128 - format.bias) << 23;
    const uint32_t rebased = magnitude - ((uint32_t)(127 - format.bias) << 23);
    const uint32_t normal = (rebased + ((1u << (shift - 1)) - 1) + (rebased >> shift & 1)) >> shift;
    const uint32_t adder = (uint32_t)(128 - format.bias - m + 23) << 23;
    const uint32_t subnormal = f32_bits(f32_of_bits(magnitude) + f32_of_bits(adder)) - adder;
    uint32_t code = choose(magnitude < smallest_normal, subnormal, normal);
    code = choose(code > format.max_code, format.overflow_code, code);
    if (format.overflow_code == format.nan_code) return code | sign; /* a NaN is above all finite codes, too */
    return choose(magnitude > F32_INFINITY, format.nan_code ^ sign, code | sign);
}

/* ---- f32 --------------------------------------------------------------------------------------------- */

static inline float f32_to_f32(float value) { return value; }

static inline double f32_to_f64(float value) { return (double)value; }

static inline int64_t f32_to_i64(float value) { return truncate_i64((double)value); }

static inline float f32_from_f32(float value) { return value; }

static inline float f32_from_f64(double value) { return (float)value; }

static inline float f32_from_i64(int64_t value) { return (float)value; }

static inline float f32_encode(double value, enum convert_mode mode, uint32_t random) {
    return f32_of_bits(encode(f32_format(), value, mode, random));
}

#define CONVERT_DTYPE f32
#define CONVERT_STORED float
#define CONVERT_ROUNDED
#include "tensor/convert_loops.h"

/* ---- f64 --------------------------------------------------------------------------------------------- */

static inline float f64_to_f32(double value) { return (float)value; }

static inline double f64_to_f64(double value) { return value; }

static inline int64_t f64_to_i64(double value) { return truncate_i64(value); }

static inline double f64_from_f32(float value) { return (double)value; }

static inline double f64_from_f64(double value) { return value; }

static inline double f64_from_i64(int64_t value) { return (double)value; }

#define CONVERT_DTYPE f64
#define CONVERT_STORED double
#include "tensor/convert_loops.h"

/* ---- bf16: the upper half of an f32 ------------------------------------------------------------------ */

static inline float bf16_to_f32(uint16_t code) { return f32_of_bits((uint32_t)code << 16); }

static inline uint16_t bf16_from_f32(float value) {
    const uint32_t bits = f32_bits(value);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    const uint32_t nan = (bits >> 16 & 0x8000) | 0x7FC0;
    return (uint16_t)((bits & 0x7FFFFFFF) > F32_INFINITY ? nan : rounded);
}

static inline uint16_t bf16_encode(double value, enum convert_mode mode, uint32_t random) {
    return (uint16_t)encode(bf16_format(), value, mode, random);
}

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/* The chip's own rounding, but for NaN, of which it keeps what fits: here every NaN becomes the same, with its sign. */
static inline int64_t bf16_from_f32_many(void *out, const float *in, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float32x4_t low = vld1q_f32(in + i), high = vld1q_f32(in + i + 4);
        const uint16x8_t rounded = vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
        const uint16x8_t is_number =
            vuzp1q_u16(vreinterpretq_u16_u32(vceqq_f32(low, low)), vreinterpretq_u16_u32(vceqq_f32(high, high)));
        const uint16x8_t nan = vorrq_u16(vandq_u16(rounded, vdupq_n_u16(0x8000)), vdupq_n_u16(0x7FC0));
        const uint16x8_t codes = vbslq_u16(is_number, rounded, nan);
        memcpy((unsigned char *)out + 2 * i, &codes, sizeof codes);
    }
    return i;
}
#define CONVERT_MANY
#endif

#define CONVERT_DTYPE bf16
#define CONVERT_STORED uint16_t
#include "tensor/convert_float.h"

/* ---- f16 ---------------------------------------------------------------------------------------------
 *
 * The machine's own conversion where the compiler makes a vector loop of it, branch-free bit arithmetic
 * elsewhere. Clang knows _Float16 on x86-64 from version 15 on; without F16C it would be a library call per
 * element. gcc 12 vectorises the widening only, and its scalar narrowing takes twice the time of the bit
 * arithmetic (1.9 and 0.8 ns an element on aarch64).
 */
#if defined(__aarch64__) || (defined(__F16C__) && (defined(__clang__) ? __clang_major__ >= 15 : __GNUC__ >= 12))
__extension__ typedef _Float16 half;

static inline float f16_to_f32(uint16_t code) {
    half value;
    memcpy(&value, &code, sizeof value);
    return (float)value;
}

#define HAS_HALF 1
#else
static inline float f16_to_f32(uint16_t code) {
    const uint32_t magnitude = code & 0x7FFFu;
    const uint32_t subnormal = f32_bits((float)magnitude * 0x1p-24f);
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const uint32_t special = F32_INFINITY | magnitude << 13 | (magnitude > 0x7C00 ? 0x400000u : 0);
    const uint32_t finite = choose(magnitude < 0x400, subnormal, normal);
    return f32_of_bits(choose(magnitude >= 0x7C00, special, finite) | (uint32_t)(code & 0x8000) << 16);
}

#define HAS_HALF 0
#endif

#if HAS_HALF && defined(__clang__)
static inline uint16_t f16_round(float value) {
    const half rounded = (half)value;
    uint16_t code;
    memcpy(&code, &rounded, sizeof code);
    return code;
}
#else
static inline uint16_t f16_round(float value) {
    const uint32_t bits = f32_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFF;
    /* Moving the exponent bias from 127 to 15 is a subtraction, and rounding may carry into the exponent. */
    const uint32_t normal = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    /* Next to 0.5 an f32's last place is 2^-24, f16's smallest subnormal: the addition rounds. */
    const uint32_t subnormal = f32_bits(f32_of_bits(magnitude) + 0.5f) - 0x3F000000u;
    const uint32_t finite = choose(magnitude < 0x38800000u, subnormal, normal);
    const uint32_t code = choose(magnitude >= 0x477FF000u, 0x7C00, finite); /* 65520 and more */
    return (uint16_t)(code | (bits >> 16 & 0x8000));
}
#endif

/* One NaN for all machines, where their instructions keep different parts of the payload. */
static inline uint16_t f16_from_f32(float value) {
    const uint32_t bits = f32_bits(value);
    const uint32_t nan = (bits >> 16 & 0x8000) | 0x7E00;
    return (uint16_t)choose((bits & 0x7FFFFFFF) > F32_INFINITY, nan, f16_round(value));
}

static inline uint16_t f16_encode(double value, enum convert_mode mode, uint32_t random) {
    return (uint16_t)encode(f16_format(), value, mode, random);
}

#define CONVERT_DTYPE f16
#define CONVERT_STORED uint16_t
#include "tensor/convert_float.h"

/* ---- f8e4m3, f8e5m2 ---------------------------------------------------------------------------------- */

static inline float f8e4m3_to_f32(uint8_t code) { return decode(f8e4m3_format(), code); }

static inline uint8_t f8e4m3_encode(double value, enum convert_mode mode, uint32_t random) {
    return (uint8_t)encode(f8e4m3_format(), value, mode, random);
}

static inline uint8_t f8e4m3_from_f32(float value) { return (uint8_t)encode_nearest(f8e4m3_format(), value); }

#define CONVERT_DTYPE f8e4m3
#define CONVERT_STORED uint8_t
#include "tensor/convert_float.h"

static inline float f8e5m2_to_f32(uint8_t code) { return decode(f8e5m2_format(), code); }

static inline uint8_t f8e5m2_encode(double value, enum convert_mode mode, uint32_t random) {
    return (uint8_t)encode(f8e5m2_format(), value, mode, random);
}

static inline uint8_t f8e5m2_from_f32(float value) { return (uint8_t)encode_nearest(f8e5m2_format(), value); }

#define CONVERT_DTYPE f8e5m2
#define CONVERT_STORED uint8_t
#include "tensor/convert_float.h"

/* ---- f8e8m0: an exponent and nothing else ------------------------------------------------------------ */

static inline uint8_t f8e8m0_from_f32(float value) { return f8e8m0_encode((double)value, CONVERT_NEAREST, 0); }

#define CONVERT_DTYPE f8e8m0
#define CONVERT_STORED uint8_t
#include "tensor/convert_float.h"

/* ---- f4e2m1: two to a byte --------------------------------------------------------------------------- */

static inline uint8_t f4e2m1_read(const unsigned char *data, int64_t index) {
    return data[index / 2] >> 4 * (index % 2) & 0xF;
}

static inline void f4e2m1_write(unsigned char *data, int64_t index, uint8_t code) {
    const int position = 4 * (int)(index % 2);
    data[index / 2] = (unsigned char)((data[index / 2] & 0xF0 >> position) | code << position);
}

static inline float f4e2m1_to_f32(uint8_t code) { return decode(f4e2m1_format(), code); }

static inline uint8_t f4e2m1_encode(double value, enum convert_mode mode, uint32_t random) {
    return (uint8_t)encode(f4e2m1_format(), value, mode, random);
}

static inline uint8_t f4e2m1_from_f32(float value) { return f4e2m1_encode((double)value, CONVERT_NEAREST, 0); }

#define CONVERT_DTYPE f4e2m1
#define CONVERT_STORED uint8_t
#define CONVERT_PACKED
#include "tensor/convert_float.h"

/* ---- Integers ---------------------------------------------------------------------------------------- */

#define CONVERT_DTYPE i32
#define CONVERT_STORED int32_t
#define CONVERT_MIN INT32_MIN
#define CONVERT_MAX INT32_MAX
#include "tensor/convert_integer.h"

#define CONVERT_DTYPE i16
#define CONVERT_STORED int16_t
#define CONVERT_MIN INT16_MIN
#define CONVERT_MAX INT16_MAX
#include "tensor/convert_integer.h"

#define CONVERT_DTYPE u16
#define CONVERT_STORED uint16_t
#define CONVERT_MIN 0
#define CONVERT_MAX UINT16_MAX
#include "tensor/convert_integer.h"

#define CONVERT_DTYPE i8
#define CONVERT_STORED int8_t
#define CONVERT_MIN INT8_MIN
#define CONVERT_MAX INT8_MAX
#include "tensor/convert_integer.h"

#define CONVERT_DTYPE u8
#define CONVERT_STORED uint8_t
#define CONVERT_MIN 0
#define CONVERT_MAX UINT8_MAX
#include "tensor/convert_integer.h"

/* i64 stands apart: its ends are no f64 values, so a clamp in f64 would not do. */
static inline float i64_to_f32(int64_t value) { return (float)value; }

static inline double i64_to_f64(int64_t value) { return (double)value; }

static inline int64_t i64_to_i64(int64_t value) { return value; }

static inline int64_t i64_from_f32(float value) { return truncate_i64((double)value); }

static inline int64_t i64_from_f64(double value) { return truncate_i64(value); }

static inline int64_t i64_from_i64(int64_t value) { return value; }

#define CONVERT_DTYPE i64
#define CONVERT_STORED int64_t
#include "tensor/convert_loops.h"

/* ---- bool: a byte, any of whose non-zero values is true ---------------------------------------------- */

static inline float boolean_to_f32(uint8_t value) { return value != 0 ? 1.0f : 0.0f; }

static inline double boolean_to_f64(uint8_t value) { return value != 0 ? 1.0 : 0.0; }

static inline int64_t boolean_to_i64(uint8_t value) { return value != 0; }

static inline uint8_t boolean_from_f32(float value) { return value != 0; }

static inline uint8_t boolean_from_f64(double value) { return value != 0; }

static inline uint8_t boolean_from_i64(int64_t value) { return value != 0; }

#define CONVERT_DTYPE boolean /* `bool` is a macro of <stdbool.h>, which the template would expand */
#define CONVERT_STORED uint8_t
#include "tensor/convert_loops.h"

/* ---- The table and what it serves -------------------------------------------------------------------- */

static const struct codec *const codecs[TL_DTYPE_COUNT] = {
    [TL_F64] = &f64_codec,       [TL_F32] = &f32_codec,       [TL_F16] = &f16_codec,       [TL_BF16] = &bf16_codec,
    [TL_F8E4M3] = &f8e4m3_codec, [TL_F8E5M2] = &f8e5m2_codec, [TL_F8E8M0] = &f8e8m0_codec, [TL_F4E2M1] = &f4e2m1_codec,
    [TL_I64] = &i64_codec,       [TL_I32] = &i32_codec,       [TL_I16] = &i16_codec,       [TL_U16] = &u16_codec,
    [TL_I8] = &i8_codec,         [TL_U8] = &u8_codec,         [TL_BOOL] = &boolean_codec,
};

void convert_to_f32(float *out, const void *in, tl_dtype in_dtype, int64_t in_stride, int64_t n) {
    codecs[in_dtype]->load[HUB_F32](out, in, in_stride, n);
}

void convert_to_f64(double *out, const void *in, tl_dtype in_dtype, int64_t in_stride, int64_t n) {
    codecs[in_dtype]->load[HUB_F64](out, in, in_stride, n);
}

void convert_to_i64(int64_t *out, const void *in, tl_dtype in_dtype, int64_t in_stride, int64_t n) {
    codecs[in_dtype]->load[HUB_I64](out, in, in_stride, n);
}

void convert_from_f32(void *out, tl_dtype out_dtype, int64_t out_stride, const float *in, int64_t n) {
    codecs[out_dtype]->store[HUB_F32](out, out_stride, in, n);
}

void convert_from_f64(void *out, tl_dtype out_dtype, int64_t out_stride, const double *in, int64_t n) {
    codecs[out_dtype]->store[HUB_F64](out, out_stride, in, n);
}

void convert_from_i64(void *out, tl_dtype out_dtype, int64_t out_stride, const int64_t *in, int64_t n) {
    codecs[out_dtype]->store[HUB_I64](out, out_stride, in, n);
}

/* ---- Any to any -------------------------------------------------------------------------------------- */

enum { CHUNK = 512 }; /* elements in a hub buffer; even, so that f4 chunks start on a byte */

/* How far element `index` lies behind the first, in bytes. */
static int64_t offset_bytes(tl_dtype dtype, int64_t index) { return index * dtype_info(dtype)->bits / 8; }

static enum hub exact_hub(tl_dtype dtype) {
    static const enum hub hub_of[TL_DTYPE_COUNT] = {[TL_F64] = HUB_F64, [TL_F32] = HUB_F32, [TL_I64] = HUB_I64};
    return hub_of[dtype_compute(dtype)];
}

static int64_t chunk_length(int64_t remaining) { return remaining < CHUNK ? remaining : CHUNK; }

/* True where the elements can be used as a hub's array, without a buffer. */
static bool is_array_of(tl_dtype hub, const void *data, tl_dtype dtype, int64_t stride) {
    return dtype == hub && stride == 1 && (uintptr_t)data % (uintptr_t)(dtype_info(dtype)->bits / 8) == 0;
}

static void convert_nearest(unsigned char *out, tl_dtype out_dtype, int64_t out_stride, const unsigned char *in,
                            tl_dtype in_dtype, int64_t in_stride, int64_t n) {
    const enum hub hub = exact_hub(in_dtype);
    const tl_dtype hub_dtype = dtype_compute(in_dtype);
    double buffer[CHUNK]; /* every hub type is at most as large and as aligned */
    if (is_array_of(hub_dtype, in, in_dtype, in_stride)) {
        codecs[out_dtype]->store[hub](out, out_stride, in, n);
        return;
    }
    if (is_array_of(hub_dtype, out, out_dtype, out_stride)) {
        codecs[in_dtype]->load[hub](out, in, in_stride, n);
        return;
    }
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t count = chunk_length(n - done);
        codecs[in_dtype]->load[hub](buffer, in + offset_bytes(in_dtype, done * in_stride), in_stride, count);
        codecs[out_dtype]->store[hub](out + offset_bytes(out_dtype, done * out_stride), out_stride, buffer, count);
    }
}

/* SATURATE of what f32 holds, into a float that has both signs: held to its largest value, there is no overflow to
 * round to. */
static void convert_saturated(unsigned char *out, tl_dtype out_dtype, int64_t out_stride, const unsigned char *in,
                              tl_dtype in_dtype, int64_t in_stride, int64_t n) {
    const float max = (float)dtype_info(out_dtype)->max;
    const bool is_array = is_array_of(TL_F32, in, in_dtype, in_stride);
    float buffer[CHUNK];
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t count = chunk_length(n - done);
        const void *from = in + offset_bytes(in_dtype, done * in_stride);
        const float *x = is_array ? from : buffer;
        if (!is_array) codecs[in_dtype]->load[HUB_F32](buffer, from, in_stride, count);
        for (int64_t i = 0; i < count; i++) {
            const float below = x[i] > max ? max : x[i]; /* NaN stays */
            buffer[i] = below < -max ? -max : below;
        }
        codecs[out_dtype]->store[HUB_F32](out + offset_bytes(out_dtype, done * out_stride), out_stride, buffer, count);
    }
}

/* Values as f64, exactly, or rounded to odd for large integers, which the encoder takes for exact. */
static void load_for_encoder(double *out, const unsigned char *in, tl_dtype in_dtype, int64_t in_stride, int64_t n) {
    int64_t integers[CHUNK];
    if (dtype_is_float(in_dtype)) {
        codecs[in_dtype]->load[HUB_F64](out, in, in_stride, n);
        return;
    }
    codecs[in_dtype]->load[HUB_I64](integers, in, in_stride, n);
    for (int64_t i = 0; i < n; i++) out[i] = i64_to_f64_odd(integers[i]);
}

static void convert_rounded(unsigned char *out, tl_dtype out_dtype, int64_t out_stride, const unsigned char *in,
                            tl_dtype in_dtype, int64_t in_stride, int64_t n, enum convert_mode mode,
                            const uint32_t *random) {
    double buffer[CHUNK];
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t count = chunk_length(n - done);
        load_for_encoder(buffer, in + offset_bytes(in_dtype, done * in_stride), in_dtype, in_stride, count);
        codecs[out_dtype]->store_rounded(out + offset_bytes(out_dtype, done * out_stride), out_stride, buffer, count,
                                         mode, random ? random + done : NULL);
    }
}

void convert(void *out, tl_dtype out_dtype, int64_t out_stride, const void *in, tl_dtype in_dtype, int64_t in_stride,
             int64_t n, enum convert_mode mode, const uint32_t *random) {
    if (in_dtype == out_dtype) codecs[out_dtype]->copy(out, out_stride, in, in_stride, n);
    else if (mode == CONVERT_SATURATE && exact_hub(in_dtype) == HUB_F32 && dtype_is_float(out_dtype) &&
             out_dtype != TL_F8E8M0)
        convert_saturated(out, out_dtype, out_stride, in, in_dtype, in_stride, n);
    else if (mode != CONVERT_NEAREST && codecs[out_dtype]->store_rounded)
        convert_rounded(out, out_dtype, out_stride, in, in_dtype, in_stride, n, mode, random);
    else convert_nearest(out, out_dtype, out_stride, in, in_dtype, in_stride, n);
}

/* ---- One element -------------------------------------------------------------------------------------
 *
 * An odd f4 element is reached as the second of a pair that starts on a byte; all others are pairs of one.
 */

static int64_t place_in_byte(tl_dtype dtype, int64_t index) { return dtype_info(dtype)->bits < 8 ? index % 2 : 0; }

double convert_get_f64(const void *data, tl_dtype dtype, int64_t index) {
    double pair[2];
    const int64_t place = place_in_byte(dtype, index);
    convert_to_f64(pair, (const unsigned char *)data + offset_bytes(dtype, index - place), dtype, 1, place + 1);
    return pair[place];
}

int64_t convert_get_i64(const void *data, tl_dtype dtype, int64_t index) {
    int64_t pair[2];
    const int64_t place = place_in_byte(dtype, index);
    convert_to_i64(pair, (const unsigned char *)data + offset_bytes(dtype, index - place), dtype, 1, place + 1);
    return pair[place];
}

void convert_set_f64(void *data, tl_dtype dtype, int64_t index, double value) {
    double pair[2] = {0, 0};
    const int64_t place = place_in_byte(dtype, index);
    if (place > 0) pair[0] = convert_get_f64(data, dtype, index - 1);
    pair[place] = value;
    convert_from_f64((unsigned char *)data + offset_bytes(dtype, index - place), dtype, 1, pair, place + 1);
}

void convert_set_i64(void *data, tl_dtype dtype, int64_t index, int64_t value) {
    if (place_in_byte(dtype, index) > 0)
        convert_set_f64(data, dtype, index, i64_to_f64_odd(value)); /* the neighbour need not be an integer */
    else convert_from_i64((unsigned char *)data + offset_bytes(dtype, index), dtype, 1, &value, 1);
}
