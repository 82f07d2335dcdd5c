/* dtype.c: the dtype table, the promotion rule, and what programs ask about dtypes. */
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* Codes of DLPack's DLDataTypeCode, fixed by its ABI. */
enum {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_COMPLEX = 5,
    DLPACK_BOOL = 6,
    DLPACK_F8E4M3FN = 10,
    DLPACK_F8E5M2 = 12,
    DLPACK_F8E8M0FNU = 14,
    DLPACK_F4E2M1FN = 17
};

/* The same four or five lines a row, which the formatter would make sixteen. */
/* clang-format off */
const struct dtype_info dtype_table[TL_DTYPE_COUNT] = {
    [TL_F64] = {
        .name = "f64", .scalar_name = "Double", .torch_name = "float64", .safetensors_name = "F64",
        .numpy_name = "float64",
        .bits = 64, .kind = DTYPE_FLOAT, .exponent_bits = 11, .mantissa_bits = 52,
        .max = 0x1.fffffffffffffp1023, .min = -0x1.fffffffffffffp1023, .eps = 0x1p-52, .tiny = 0x1p-1022,
        .smallest_subnormal = 0x1p-1074, .dlpack_code = DLPACK_FLOAT, .dlpack_bits = 64,
    },
    [TL_F32] = {
        .name = "f32", .scalar_name = "Float", .torch_name = "float32", .safetensors_name = "F32",
        .numpy_name = "float32",
        .bits = 32, .kind = DTYPE_FLOAT, .exponent_bits = 8, .mantissa_bits = 23,
        .max = 0x1.fffffep127, .min = -0x1.fffffep127, .eps = 0x1p-23, .tiny = 0x1p-126,
        .smallest_subnormal = 0x1p-149, .dlpack_code = DLPACK_FLOAT, .dlpack_bits = 32,
    },
    [TL_F16] = {
        .name = "f16", .scalar_name = "Half", .torch_name = "float16", .safetensors_name = "F16",
        .numpy_name = "float16",
        .bits = 16, .kind = DTYPE_FLOAT, .exponent_bits = 5, .mantissa_bits = 10,
        .max = 65504, .min = -65504, .eps = 0x1p-10, .tiny = 0x1p-14,
        .smallest_subnormal = 0x1p-24, .dlpack_code = DLPACK_FLOAT, .dlpack_bits = 16,
    },
    [TL_BF16] = {
        .name = "bf16", .scalar_name = "BFloat16", .torch_name = "bfloat16", .safetensors_name = "BF16",
        .numpy_name = "bfloat16",
        .bits = 16, .kind = DTYPE_FLOAT, .exponent_bits = 8, .mantissa_bits = 7,
        .max = 0x1.fep127, .min = -0x1.fep127, .eps = 0x1p-7, .tiny = 0x1p-126,
        .smallest_subnormal = 0x1p-133, .dlpack_code = DLPACK_BFLOAT, .dlpack_bits = 16,
    },
    /* OCP E4M3: no infinity, the codes 0x7f and 0xff alone are NaN, so the range reaches 448. */
    [TL_F8E4M3] = {
        .name = "f8e4m3", .scalar_name = "Float8_e4m3fn", .torch_name = "float8_e4m3fn", .safetensors_name = "F8_E4M3",
        .numpy_name = "float8_e4m3fn",
        .bits = 8, .kind = DTYPE_FLOAT, .exponent_bits = 4, .mantissa_bits = 3,
        .max = 448, .min = -448, .eps = 0x1p-3, .tiny = 0x1p-6,
        .smallest_subnormal = 0x1p-9, .dlpack_code = DLPACK_F8E4M3FN, .dlpack_bits = 8,
    },
    /* OCP E5M2: infinities and NaN as in IEEE 754. */
    [TL_F8E5M2] = {
        .name = "f8e5m2", .scalar_name = "Float8_e5m2", .torch_name = "float8_e5m2", .safetensors_name = "F8_E5M2",
        .numpy_name = "float8_e5m2",
        .bits = 8, .kind = DTYPE_FLOAT, .exponent_bits = 5, .mantissa_bits = 2,
        .max = 57344, .min = -57344, .eps = 0x1p-2, .tiny = 0x1p-14,
        .smallest_subnormal = 0x1p-16, .dlpack_code = DLPACK_F8E5M2, .dlpack_bits = 8,
    },
    /* OCP E8M0: powers of two, for block scales; no sign, no zero, 0xff is NaN. */
    [TL_F8E8M0] = {
        .name = "f8e8m0", .scalar_name = "Float8_e8m0fnu", .torch_name = "float8_e8m0fnu",
        .safetensors_name = "F8_E8M0",
        .numpy_name = "float8_e8m0fnu",
        .bits = 8, .kind = DTYPE_FLOAT, .is_storage_only = true, .exponent_bits = 8, .mantissa_bits = 0,
        .max = 0x1p127, .min = 0x1p-127, .eps = 1, .tiny = 0x1p-127,
        .smallest_subnormal = 0x1p-127, .dlpack_code = DLPACK_F8E8M0FNU, .dlpack_bits = 8,
    },
    /* OCP E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives; neither infinity nor NaN. */
    [TL_F4E2M1] = {
        .name = "f4e2m1", .scalar_name = "Float4_e2m1fn_x2", .torch_name = "float4_e2m1fn_x2", .safetensors_name = "F4",
        .numpy_name = "float4_e2m1fn",
        .bits = 4, .kind = DTYPE_FLOAT, .is_storage_only = true, .exponent_bits = 2, .mantissa_bits = 1,
        .max = 6, .min = -6, .eps = 0.5, .tiny = 1,
        .smallest_subnormal = 0.5, .dlpack_code = DLPACK_F4E2M1FN, .dlpack_bits = 4,
    },
    [TL_I64] = {
        .name = "i64", .scalar_name = "Long", .torch_name = "int64", .safetensors_name = "I64", .numpy_name = "int64",
        .bits = 64, .kind = DTYPE_SIGNED, .integer_min = INT64_MIN, .integer_max = INT64_MAX,
        .dlpack_code = DLPACK_INT, .dlpack_bits = 64,
    },
    [TL_I32] = {
        .name = "i32", .scalar_name = "Int", .torch_name = "int32", .safetensors_name = "I32", .numpy_name = "int32",
        .bits = 32, .kind = DTYPE_SIGNED, .integer_min = INT32_MIN, .integer_max = INT32_MAX,
        .dlpack_code = DLPACK_INT, .dlpack_bits = 32,
    },
    [TL_I16] = {
        .name = "i16", .scalar_name = "Short", .torch_name = "int16", .safetensors_name = "I16", .numpy_name = "int16",
        .bits = 16, .kind = DTYPE_SIGNED, .integer_min = INT16_MIN, .integer_max = INT16_MAX,
        .dlpack_code = DLPACK_INT, .dlpack_bits = 16,
    },
    [TL_U16] = {
        .name = "u16", .scalar_name = "UInt16", .torch_name = "uint16", .safetensors_name = "U16",
        .numpy_name = "uint16",
        .bits = 16, .kind = DTYPE_UNSIGNED, .integer_min = 0, .integer_max = UINT16_MAX,
        .dlpack_code = DLPACK_UINT, .dlpack_bits = 16,
    },
    [TL_I8] = {
        .name = "i8", .scalar_name = "Char", .torch_name = "int8", .safetensors_name = "I8", .numpy_name = "int8",
        .bits = 8, .kind = DTYPE_SIGNED, .integer_min = INT8_MIN, .integer_max = INT8_MAX,
        .dlpack_code = DLPACK_INT, .dlpack_bits = 8,
    },
    [TL_U8] = {
        .name = "u8", .scalar_name = "Byte", .torch_name = "uint8", .safetensors_name = "U8", .numpy_name = "uint8",
        .bits = 8, .kind = DTYPE_UNSIGNED, .integer_min = 0, .integer_max = UINT8_MAX,
        .dlpack_code = DLPACK_UINT, .dlpack_bits = 8,
    },
    [TL_BOOL] = {
        .name = "bool", .scalar_name = "Bool", .torch_name = "bool", .safetensors_name = "BOOL", .numpy_name = "bool",
        .bits = 8, .kind = DTYPE_BOOL, .integer_min = 0, .integer_max = 1,
        .dlpack_code = DLPACK_BOOL, .dlpack_bits = 8,
    },
    /* Two f32, two f64: the real part, then the imaginary part. */
    [TL_C64] = {
        .name = "c64", .scalar_name = "ComplexFloat", .torch_name = "complex64", .safetensors_name = "C64",
        .numpy_name = "complex64",
        .bits = 64, .kind = DTYPE_COMPLEX, .dlpack_code = DLPACK_COMPLEX, .dlpack_bits = 64,
    },
    [TL_C128] = {
        .name = "c128", .scalar_name = "ComplexDouble", .torch_name = "complex128", .safetensors_name = NULL,
        .numpy_name = "complex128",
        .bits = 128, .kind = DTYPE_COMPLEX, .dlpack_code = DLPACK_COMPLEX, .dlpack_bits = 128,
    },
};
/* clang-format on */

tl_dtype dtype_from_name(const char *name) {
    for (int d = 0; name && d < TL_DTYPE_COUNT; d++)
        if (strcmp(name, dtype_table[d].name) == 0 || strcmp(name, dtype_table[d].torch_name) == 0) return (tl_dtype)d;
    return TL_DTYPE_COUNT;
}

bool dtype_bytes(tl_dtype dtype, int64_t numel, uint64_t *bytes) {
    const struct dtype_info *info = dtype_info(dtype);
    if (!info || numel < 0) return false;
    const uint64_t count = (uint64_t)numel;
    const uint64_t whole_bytes = (uint64_t)info->bits / 8;
    if (whole_bytes > 0 && count > UINT64_MAX / whole_bytes) return false;
    /* The one dtype below a byte halves its count; the division comes first, so nothing overflows. */
    *bytes = whole_bytes > 0 ? count * whole_bytes : count / 2 + count % 2;
    return true;
}

/* ---- Promotion ---------------------------------------------------------------------------------------
 *
 * torch's lattice in two numbers per dtype, category and bits. Categories order bool < integers < floats < complex
 * numbers, and the higher one decides alone (i64 + f16 is f16), but for f64 and c64, which give c128. Inside a
 * category the result is the smallest member that holds both, which is the larger of the two except for the pairs
 * that overlap: {f16, bf16} -> f32 and {i8, u8} -> i16. The types torch does not promote are refused before all
 * that.
 */

enum promotion { PROMOTES, ONLY_WITH_FLOATS, ONLY_WITH_ITSELF };

static enum promotion promotion_of(tl_dtype dtype) {
    static const enum promotion rule[TL_DTYPE_COUNT] = {
        [TL_F8E4M3] = ONLY_WITH_ITSELF, [TL_F8E5M2] = ONLY_WITH_ITSELF, [TL_F8E8M0] = ONLY_WITH_ITSELF,
        [TL_F4E2M1] = ONLY_WITH_ITSELF, [TL_U16] = ONLY_WITH_FLOATS,
    };
    return rule[dtype];
}

static int category_of(tl_dtype dtype) {
    static const int category[] = {
        [DTYPE_BOOL] = 0, [DTYPE_UNSIGNED] = 1, [DTYPE_SIGNED] = 1, [DTYPE_FLOAT] = 2, [DTYPE_COMPLEX] = 3};
    return category[dtype_table[dtype].kind];
}

static bool is_refused(tl_dtype a, tl_dtype b) {
    const enum promotion rule = promotion_of(a);
    return rule == ONLY_WITH_ITSELF || (rule == ONLY_WITH_FLOATS && !dtype_is_float(b));
}

tl_dtype dtype_promote(tl_dtype a, tl_dtype b) {
    if (!dtype_info(a) || !dtype_info(b)) return TL_DTYPE_COUNT;
    if (a == b) return a;
    if (is_refused(a, b) || is_refused(b, a)) return TL_DTYPE_COUNT;
    if (dtype_is_complex(a) != dtype_is_complex(b) && (a == TL_F64 || b == TL_F64)) return TL_C128;
    if (category_of(a) != category_of(b)) return category_of(a) > category_of(b) ? a : b;
    if (dtype_table[a].bits != dtype_table[b].bits) return dtype_table[a].bits > dtype_table[b].bits ? a : b;
    return dtype_is_float(a) ? TL_F32 : TL_I16;
}

tl_dtype dtype_compute(tl_dtype dtype) {
    if (!dtype_info(dtype)) return TL_DTYPE_COUNT;
    if (dtype == TL_F64 || dtype_is_complex(dtype)) return dtype;
    return dtype_is_float(dtype) ? TL_F32 : TL_I64;
}

tl_dtype dtype_accumulate(tl_dtype dtype) { return dtype_compute(dtype); }

/* ---- Public ---- */

const char *tl_dtype_name(tl_dtype dtype) { return dtype_info(dtype) ? dtype_info(dtype)->name : "?"; }
int tl_dtype_bits(tl_dtype dtype) { return dtype_info(dtype) ? dtype_info(dtype)->bits : 0; }

tl_float_info tl_finfo(tl_dtype dtype) {
    tl_float_info answer;
    memset(&answer, 0, sizeof answer);
    const struct dtype_info *info = dtype_info(dtype);
    if (!info || info->kind != DTYPE_FLOAT) {
        error_set(TL_ERROR_USE, "finfo: requires a floating point dtype, not %s (need %s)", tl_dtype_name(dtype),
                  dtype_is_complex(dtype) ? "that of its parts" : "tl_iinfo");
        return answer;
    }
    /* The decimal digits that survive the way there and back; a table, since pow() need not be exact. */
    static const double resolution[] = {1,    1e-1, 1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,
                                        1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15};
    answer.name = info->torch_name;
    answer.bits = info->bits;
    answer.eps = info->eps;
    answer.max = info->max;
    answer.min = info->min;
    answer.tiny = answer.smallest_normal = info->tiny;
    answer.smallest_subnormal = info->smallest_subnormal;
    answer.resolution = resolution[(int)floor(info->mantissa_bits * log10(2))];
    return answer;
}

tl_integer_info tl_iinfo(tl_dtype dtype) {
    tl_integer_info answer;
    memset(&answer, 0, sizeof answer);
    const struct dtype_info *info = dtype_info(dtype);
    if (!info || dtype_has_gradient(dtype) || info->kind == DTYPE_BOOL) {
        error_set(TL_ERROR_USE, "iinfo: requires an integer dtype, not %s%s", tl_dtype_name(dtype),
                  info && info->kind == DTYPE_FLOAT ? " (need tl_finfo)" : "");
        return answer;
    }
    answer.name = info->torch_name;
    answer.bits = info->bits;
    answer.min = info->integer_min;
    answer.max = info->integer_max;
    return answer;
}

tl_dtype tl_promote(tl_dtype a, tl_dtype b) {
    tl_dtype both = dtype_promote(a, b);
    if (both == TL_DTYPE_COUNT)
        error_set(TL_ERROR_USE, "promote: there is no common dtype of %s and %s (need a cast of one of them)",
                  tl_dtype_name(a), tl_dtype_name(b));
    return both;
}
