/* unpack.c: a tensor in a block-scaled format, read as f32 numbers.
 *
 * A number of 4 bits has one of 16 values, so a block has a table: 16 products value x scale, each rounded once. A code
 * then only picks from it. Vectors of the chip pick 16 bytes at a time: a table is kept as four planes, the first bytes
 * of all numbers, the second, and so on. Scales of 8 bits have 256 tables, which are made once; with f32 scales each
 * block's is made when it is read. Numbers of 8 bits are multiplied one by one.
 *
 * Products are made in f32. Of the two in NVFP4 the first is exact, which leaves one rounding. With the scales of MX,
 * powers of two, they are exact, or round (to infinity, or below the smallest normal number) as f64 would.
 */
#include "device/cpu/shared/unpack.h"
#include "base/float_bits.h"
#include "device/cpu/shared/block.h"

#include <math.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#define HAS_PICK 1
#elif defined(__SSSE3__)
#include <immintrin.h>
#define HAS_PICK 1
#else
#define HAS_PICK 0
#endif

enum { LANE = 16 };
_Static_assert((int)NF4_CODES == (int)LANE && UNPACK_TABLE == LANE * sizeof(float), "a table is a lane");

/* ---- Products, rounded once to a dtype ---- */

/* f32 bits that bf16 has too, to nearest even; NaN stays one. */
static inline uint32_t bf16_bits(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
    return (bits & 0x7FFFFFFF) > 0x7F800000 ? (bits & 0xFFFF0000u) | 0x400000 : rounded;
}

static void round_f16(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANE) {
        const int64_t length = block_min(LANE, n - i);
        uint16_t codes[LANE];
        convert_from_f32(codes, TL_F16, 1, x + i, length);
        convert_to_f32(x + i, codes, TL_F16, 1, length);
    }
}

/* The rest of a product, which f32 holds unless it is too small. */
static inline float rest_of(float a, float b, float product) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, -product);
#else
    return (float)((double)a * (double)b - (double)product);
#endif
}

/* a b to f32, so that rounding the result to fewer bits gives what a b would give: the last bit of what is not a b
 * itself is 1. */
static inline uint32_t odd_product(float a, float b) {
    const float near = a * b, rest = rest_of(a, b, near);
    const uint32_t bits = f32_bits(near), step = (f32_bits(near) ^ f32_bits(rest)) >> 31 ? ~0u : 1u;
    return bits + (rest == 0 || (bits & 1) ? 0 : step);
}

/* By f64: where rest_of could be too small for f32. */
static void scale_small(float *out, const struct blocks *b, const float *x, float scale) {
    for (int i = 0; i < LANE; i++) {
        const double product = (double)x[i] * (double)scale;
        uint16_t code;
        convert_from_f64(&code, b->dtype, 1, &product, 1);
        convert_to_f32(&out[i], &code, b->dtype, 1, 1);
    }
}

/* out = x scale [tensor_scale], LANE of them. */
static void scale_lane(float *restrict out, const struct blocks *b, const float *restrict x, float scale) {
    float inner[LANE];
    if (b->format->has_tensor_scale) {
        for (int i = 0; i < LANE; i++) inner[i] = x[i] * scale;
        x = inner;
        scale = b->tensor_scale;
    }
    if (b->dtype == TL_F32)
        for (int i = 0; i < LANE; i++) out[i] = x[i] * scale;
    else if (fabsf(scale) < 0x1p-70f) scale_small(out, b, x, scale);
    else if (b->dtype == TL_BF16)
        for (int i = 0; i < LANE; i++) out[i] = f32_of_bits(bf16_bits(odd_product(x[i], scale)));
    else {
        for (int i = 0; i < LANE; i++) out[i] = f32_of_bits(odd_product(x[i], scale));
        round_f16(out, LANE);
    }
}

/* ---- Numbers of 4 bits ---- */

/* The code of number i of a block. The first of a byte is its lower half; of NF4's, its upper. */
static inline int code_at(const uint8_t *values, int64_t i, bool has_codes) {
    return values[i / 2] >> 4 * ((i % 2) ^ has_codes) & 0xF;
}

#if HAS_PICK
typedef uint8_t bytes16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint32_t words4 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t longs2 __attribute__((vector_size(16), may_alias));

static inline bytes16 pick(bytes16 table, bytes16 at) {
#if defined(__aarch64__)
    return (bytes16)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)at);
#else
    return (bytes16)_mm_shuffle_epi8((__m128i)table, (__m128i)at);
#endif
}

/* Byte p of each of 16 numbers is planes[p]: of four numbers at a time first, then of these. */
static void planes_of(bytes16 *planes, const float *table) {
    const bytes16 turned = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    words4 four[4];
    for (int i = 0; i < 4; i++) four[i] = (words4)pick(*(const bytes16 *)(table + 4 * i), turned);
    const words4 ab_low = __builtin_shufflevector(four[0], four[1], 0, 4, 1, 5),
                 ab_high = __builtin_shufflevector(four[0], four[1], 2, 6, 3, 7),
                 cd_low = __builtin_shufflevector(four[2], four[3], 0, 4, 1, 5),
                 cd_high = __builtin_shufflevector(four[2], four[3], 2, 6, 3, 7);
    planes[0] = (bytes16)__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    planes[1] = (bytes16)__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    planes[2] = (bytes16)__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    planes[3] = (bytes16)__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#define LOW_BYTES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_BYTES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_PAIRS 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23
#define HIGH_PAIRS 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31

/* 16 numbers, from eight bytes of codes. */
static inline void pick_lane(float *out, const uint8_t *values, bool has_codes, const bytes16 *planes) {
    uint64_t pairs;
    memcpy(&pairs, values, sizeof pairs);
    const bytes16 low = (bytes16)(longs2){pairs} & 0xF, high = (bytes16)(longs2){pairs} >> 4;
    const bytes16 codes =
        has_codes ? __builtin_shufflevector(high, low, LOW_BYTES) : __builtin_shufflevector(low, high, LOW_BYTES);
    const bytes16 a = pick(planes[0], codes), b = pick(planes[1], codes), c = pick(planes[2], codes),
                  d = pick(planes[3], codes);
    const bytes16 ab_low = __builtin_shufflevector(a, b, LOW_BYTES),
                  ab_high = __builtin_shufflevector(a, b, HIGH_BYTES);
    const bytes16 cd_low = __builtin_shufflevector(c, d, LOW_BYTES),
                  cd_high = __builtin_shufflevector(c, d, HIGH_BYTES);
    *(bytes16 *)out = __builtin_shufflevector(ab_low, cd_low, LOW_PAIRS);
    *(bytes16 *)(out + 4) = __builtin_shufflevector(ab_low, cd_low, HIGH_PAIRS);
    *(bytes16 *)(out + 8) = __builtin_shufflevector(ab_high, cd_high, LOW_PAIRS);
    *(bytes16 *)(out + 12) = __builtin_shufflevector(ab_high, cd_high, HIGH_PAIRS);
}
#endif

/* The table of a scale, as it is read. */
static void table_make(uint8_t *to, const struct blocks *b, float scale) {
    _Alignas(16) float table[LANE];
    scale_lane(table, b, b->value, scale);
#if HAS_PICK
    planes_of((bytes16 *)to, table);
#else
    memcpy(to, table, sizeof table);
#endif
}

static inline float table_at(const uint8_t *table, int code) {
    uint8_t bytes[sizeof(float)];
    float x;
#if HAS_PICK
    for (int p = 0; p < 4; p++) bytes[p] = table[LANE * p + code];
#else
    memcpy(bytes, table + sizeof bytes * (size_t)code, sizeof bytes);
#endif
    memcpy(&x, bytes, sizeof x);
    return x;
}

/* Numbers i .. last - 1 of one block. */
static void read_codes(float *out, const struct blocks *b, int64_t block, int64_t i, int64_t last) {
    const uint8_t *values = (const uint8_t *)b->values + block * b->format->block / 2;
    const bool has_codes = b->format->has_codes;
    _Alignas(16) uint8_t own[UNPACK_TABLE];
    const uint8_t *table = own;
    if (b->format->scales == TL_F32) table_make(own, b, ((const float *)b->scales)[block]);
    else table = b->tables[((const uint8_t *)b->scales)[block]];
    if (i % 2 && i < last) *out++ = table_at(table, code_at(values, i++, has_codes));
#if HAS_PICK
    for (; i + LANE <= last; i += LANE, out += LANE) pick_lane(out, values + i / 2, has_codes, (const bytes16 *)table);
#endif
    for (; i < last; i++) *out++ = table_at(table, code_at(values, i, has_codes));
}

/* ---- Numbers of 8 bits ---- */

static void read_wide(float *out, const struct blocks *b, int64_t block, int64_t i, int64_t last) {
    const int64_t n = last - i;
    const float scale = b->scale[((const uint8_t *)b->scales)[block]];
    convert_to_f32(out, (const uint8_t *)b->values + block * b->format->block + i, b->format->values, 1, n);
    for (int64_t j = 0; j < n; j++) out[j] *= scale;
    const bool is_exact = scale > 0x1p-80f && scale < 0x1p80f; /* bf16 has every digit of 8-bit numbers */
    if (b->dtype == TL_BF16 && !is_exact)
        for (int64_t j = 0; j < n; j++) out[j] = f32_of_bits(bf16_bits(f32_bits(out[j])));
    else if (b->dtype == TL_F16) round_f16(out, n);
}

/* ---- All of them ---- */

static bool is_short(const struct format_info *format) { return format->has_codes || format->values == TL_F4E2M1; }

void blocks_begin(struct blocks *b, tl_format format, tl_dtype dtype, const void *values, const void *scales,
                  const float *tensor_scale) {
    static const float nf4[] = {NF4_LIST};
    const struct format_info *info = format_info(format);
    b->format = info;
    b->dtype = dtype;
    b->values = values;
    b->scales = scales;
    b->tensor_scale = info->has_tensor_scale ? *tensor_scale : 1;
    for (int code = 0; code < LANE; code++) {
        const uint8_t byte = (uint8_t)code;
        b->value[code] = info->has_codes ? nf4[code] : (float)convert_get_f64(&byte, TL_F4E2M1, 0);
    }
    for (int code = 0; code < 256 && info->scales != TL_F32; code++) {
        const uint8_t byte = (uint8_t)code;
        convert_to_f32(&b->scale[code], &byte, info->scales, 1, 1);
        if (is_short(info)) table_make(b->tables[code], b, b->scale[code]);
    }
}

void blocks_read_f32(float *out, const struct blocks *b, int64_t first, int64_t n) {
    const int64_t size = b->format->block;
    void (*const read)(float *, const struct blocks *, int64_t, int64_t, int64_t) =
        is_short(b->format) ? read_codes : read_wide;
    for (const int64_t end = first + n; first < end;) {
        const int64_t block = first / size, last = block_min((block + 1) * size, end);
        read(out, b, block, first - block * size, last - block * size);
        out += last - first;
        first = last;
    }
}
