/* The dtype table: that its rows agree with each other and with the formats they describe, and the rules
 * built on it. Conversions themselves are compared with other libraries in tests/python/test_convert.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *name_of(tl_dtype dtype) { return dtype == TL_DTYPE_COUNT ? "refused" : dtype_info(dtype)->name; }

static void assert_value(const char *dtype, const char *what, double got, double want) {
    if (got != want) fail_msg("%s %s: got %a, want %a", dtype, what, got, want);
}

static void rows_are_complete(void **state) {
    (void)state;
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        const struct dtype_info *info = dtype_info((tl_dtype)d);
        assert_non_null(info);
        assert_non_null(info->name);
        assert_non_null(info->torch_name);
        assert_true((info->safetensors_name == NULL) == (d == TL_C128)); /* which the format does not have */
        assert_non_null(info->numpy_name);
        assert_int_equal(info->bits, info->dlpack_bits);
    }
    assert_null(dtype_info(TL_DTYPE_COUNT));
    assert_null(dtype_info((tl_dtype)-1));
}

/* Reads a value by its bits, so that the table is checked against the decoder. */
static double value_of_bits(tl_dtype dtype, uint64_t bits) {
    unsigned char data[8];
    for (int b = 0; b < 8; b++) data[b] = (unsigned char)(bits >> 8 * b); /* little-endian, as all our machines */
    return convert_get_f64(data, dtype, 0);
}

static void float_limits_are_those_of_the_bit_patterns(void **state) {
    (void)state;
    static const struct {
        tl_dtype dtype;
        uint64_t one, max, min, tiny, smallest_subnormal;
    } bits[] = {
        {TL_F64, 0x3FF0000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x0010000000000000, 1},
        {TL_F32, 0x3F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x00800000, 1},
        {TL_F16, 0x3C00, 0x7BFF, 0xFBFF, 0x0400, 1},
        {TL_BF16, 0x3F80, 0x7F7F, 0xFF7F, 0x0080, 1},
        {TL_F8E4M3, 0x38, 0x7E, 0xFE, 0x08, 1},
        {TL_F8E5M2, 0x3C, 0x7B, 0xFB, 0x04, 1},
        {TL_F8E8M0, 0x7F, 0xFE, 0x00, 0x00, 0},
        {TL_F4E2M1, 0x2, 0x7, 0xF, 0x2, 1},
    };
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        const tl_dtype dtype = bits[i].dtype;
        const struct dtype_info *info = dtype_info(dtype);
        assert_true(dtype_is_float(dtype));
        assert_value(info->name, "one", value_of_bits(dtype, bits[i].one), 1);
        assert_value(info->name, "eps", value_of_bits(dtype, bits[i].one + 1) - 1, info->eps);
        assert_value(info->name, "max", value_of_bits(dtype, bits[i].max), info->max);
        assert_value(info->name, "min", value_of_bits(dtype, bits[i].min), info->min);
        assert_value(info->name, "tiny", value_of_bits(dtype, bits[i].tiny), info->tiny);
        assert_value(info->name, "smallest subnormal", value_of_bits(dtype, bits[i].smallest_subnormal),
                     info->smallest_subnormal);
        const int sign_bits = dtype != TL_F8E8M0;
        assert_int_equal(sign_bits + info->exponent_bits + info->mantissa_bits, info->bits);
        assert_value(info->name, "eps of mantissa", ldexp(1, -info->mantissa_bits), info->eps);
    }
}

static void integer_limits_follow_from_bits_and_sign(void **state) {
    (void)state;
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        const struct dtype_info *info = dtype_info((tl_dtype)d);
        if (info->kind == DTYPE_SIGNED) {
            assert_int_equal(info->integer_max, INT64_MAX >> (64 - info->bits));
            assert_int_equal(info->integer_min, INT64_MIN >> (64 - info->bits));
        } else if (info->kind == DTYPE_UNSIGNED) {
            assert_int_equal(info->integer_max, (INT64_C(1) << info->bits) - 1);
            assert_int_equal(info->integer_min, 0);
        }
    }
    assert_int_equal(dtype_info(TL_BOOL)->integer_max, 1);
}

static void only_e8m0_and_f4_are_storage_only(void **state) {
    (void)state;
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        assert_int_equal(dtype_info((tl_dtype)d)->is_storage_only, d == TL_F8E8M0 || d == TL_F4E2M1);
}

static void both_names_find_the_dtype_and_others_find_none(void **state) {
    (void)state;
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        assert_int_equal(dtype_from_name(dtype_info((tl_dtype)d)->name), d);
        assert_int_equal(dtype_from_name(dtype_info((tl_dtype)d)->torch_name), d);
    }
    assert_int_equal(dtype_from_name("float8_e4m3fn"), TL_F8E4M3);
    assert_int_equal(dtype_from_name("bfloat16"), TL_BF16);
    assert_int_equal(dtype_from_name("float128"), TL_DTYPE_COUNT);
    assert_int_equal(dtype_from_name("F32"), TL_DTYPE_COUNT);
    assert_int_equal(dtype_from_name(""), TL_DTYPE_COUNT);
    assert_int_equal(dtype_from_name(NULL), TL_DTYPE_COUNT);
}

static void bytes_round_up_and_refuse_what_does_not_fit(void **state) {
    (void)state;
    size_t bytes = 99;
    assert_true(dtype_bytes(TL_F4E2M1, 7, &bytes));
    assert_int_equal(bytes, 4); /* 28 bits */
    assert_true(dtype_bytes(TL_F4E2M1, INT64_MAX, &bytes));
    assert_int_equal(bytes, (size_t)1 << 62);
    assert_true(dtype_bytes(TL_F32, 3, &bytes));
    assert_int_equal(bytes, 12);
    assert_true(dtype_bytes(TL_F64, 0, &bytes));
    assert_int_equal(bytes, 0);
    assert_true(dtype_bytes(TL_F16, INT64_MAX, &bytes));
    assert_int_equal(bytes, SIZE_MAX - 1);

    bytes = 99;
    assert_false(dtype_bytes(TL_F32, INT64_MAX, &bytes));
    assert_false(dtype_bytes(TL_F64, (INT64_C(1) << 61), &bytes));
    assert_false(dtype_bytes(TL_F32, -1, &bytes));
    assert_false(dtype_bytes(TL_DTYPE_COUNT, 1, &bytes));
    assert_int_equal(bytes, 99);
}

/* torch.promote_types of torch 2.15, upper triangle; the four narrow floats are left to the loop below.
 * Made with for a in types: print([torch.promote_types(a, b) for b in types]) where TL_DTYPE_COUNT stands
 * for a RuntimeError. */
static void promotion_follows_torch(void **state) {
    (void)state;
    enum { N_TYPES = 13, X = TL_DTYPE_COUNT };
    static const tl_dtype types[N_TYPES] = {TL_F64, TL_F32, TL_F16, TL_BF16, TL_I64, TL_I32, TL_I16,
                                            TL_U16, TL_I8,  TL_U8,  TL_BOOL, TL_C64, TL_C128};
    static const int want[N_TYPES][N_TYPES] = {
        {TL_F64, TL_F64, TL_F64, TL_F64, TL_F64, TL_F64, TL_F64, TL_F64, TL_F64, TL_F64, TL_F64, TL_C128, TL_C128},
        {0, TL_F32, TL_F32, TL_F32, TL_F32, TL_F32, TL_F32, TL_F32, TL_F32, TL_F32, TL_F32, TL_C64, TL_C128},
        {0, 0, TL_F16, TL_F32, TL_F16, TL_F16, TL_F16, TL_F16, TL_F16, TL_F16, TL_F16, TL_C64, TL_C128},
        {0, 0, 0, TL_BF16, TL_BF16, TL_BF16, TL_BF16, TL_BF16, TL_BF16, TL_BF16, TL_BF16, TL_C64, TL_C128},
        {0, 0, 0, 0, TL_I64, TL_I64, TL_I64, X, TL_I64, TL_I64, TL_I64, TL_C64, TL_C128},
        {0, 0, 0, 0, 0, TL_I32, TL_I32, X, TL_I32, TL_I32, TL_I32, TL_C64, TL_C128},
        {0, 0, 0, 0, 0, 0, TL_I16, X, TL_I16, TL_I16, TL_I16, TL_C64, TL_C128},
        {0, 0, 0, 0, 0, 0, 0, TL_U16, X, X, X, X, X},
        {0, 0, 0, 0, 0, 0, 0, 0, TL_I8, TL_I16, TL_I8, TL_C64, TL_C128},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, TL_U8, TL_U8, TL_C64, TL_C128},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TL_BOOL, TL_C64, TL_C128},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TL_C64, TL_C128},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TL_C128},
    };
    for (int a = 0; a < N_TYPES; a++) {
        for (int b = 0; b < N_TYPES; b++) {
            const tl_dtype expected = (tl_dtype)(a <= b ? want[a][b] : want[b][a]);
            const tl_dtype got = dtype_promote(types[a], types[b]);
            if (got != expected)
                fail_msg("%s with %s: got %s, want %s", name_of(types[a]), name_of(types[b]), name_of(got),
                         name_of(expected));
        }
    }
}

static void eight_and_four_bit_floats_promote_with_themselves_only(void **state) {
    (void)state;
    for (int narrow = TL_F8E4M3; narrow <= TL_F4E2M1; narrow++) {
        for (int other = 0; other < TL_DTYPE_COUNT; other++) {
            const tl_dtype want = other == narrow ? (tl_dtype)narrow : TL_DTYPE_COUNT;
            assert_string_equal(name_of(dtype_promote((tl_dtype)narrow, (tl_dtype)other)), name_of(want));
            assert_string_equal(name_of(dtype_promote((tl_dtype)other, (tl_dtype)narrow)), name_of(want));
        }
    }
    assert_int_equal(dtype_promote(TL_F32, TL_DTYPE_COUNT), TL_DTYPE_COUNT);
}

static void compute_type_holds_every_value(void **state) {
    (void)state;
    assert_int_equal(dtype_compute(TL_F64), TL_F64);
    for (int d = TL_F32; d <= TL_F4E2M1; d++) assert_int_equal(dtype_compute((tl_dtype)d), TL_F32);
    for (int d = TL_I64; d <= TL_BOOL; d++) assert_int_equal(dtype_compute((tl_dtype)d), TL_I64);
    for (int d = TL_C64; d <= TL_C128; d++) assert_int_equal(dtype_compute((tl_dtype)d), d);
    for (int d = 0; d <= TL_DTYPE_COUNT; d++)
        assert_int_equal(dtype_accumulate((tl_dtype)d), dtype_compute((tl_dtype)d));
}

static void dlpack_codes_are_those_of_its_abi(void **state) {
    (void)state;
    static const int want[TL_DTYPE_COUNT] = {
        [TL_F64] = 2,     [TL_F32] = 2,     [TL_F16] = 2,  [TL_BF16] = 4, [TL_F8E4M3] = 10, [TL_F8E5M2] = 12,
        [TL_F8E8M0] = 14, [TL_F4E2M1] = 17, [TL_I64] = 0,  [TL_I32] = 0,  [TL_I16] = 0,     [TL_U16] = 1,
        [TL_I8] = 0,      [TL_U8] = 1,      [TL_BOOL] = 6, [TL_C64] = 5,  [TL_C128] = 5,
    };
    for (int d = 0; d < TL_DTYPE_COUNT; d++) assert_int_equal(dtype_info((tl_dtype)d)->dlpack_code, want[d]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(float_limits_are_those_of_the_bit_patterns),
        cmocka_unit_test(integer_limits_follow_from_bits_and_sign),
        cmocka_unit_test(only_e8m0_and_f4_are_storage_only),
        cmocka_unit_test(both_names_find_the_dtype_and_others_find_none),
        cmocka_unit_test(bytes_round_up_and_refuse_what_does_not_fit),
        cmocka_unit_test(promotion_follows_torch),
        cmocka_unit_test(eight_and_four_bit_floats_promote_with_themselves_only),
        cmocka_unit_test(compute_type_holds_every_value),
        cmocka_unit_test(dlpack_codes_are_those_of_its_abi),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
