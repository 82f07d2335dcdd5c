/* Random numbers: Philox as published, values that depend on nothing but (seed, stream, index), transforms
 * within their stated errors, and distributions that have the moments they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct rng_key key = {UINT64_C(0x123456789ABCDEF0), 7};

/* Fails with both values in the message, where cmocka has no assertion for doubles that prints them. */
static void assert_near(const char *what, double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: got %.17g, want %.17g within %g", what, got, want, tolerance);
}

static void assert_at_most(const char *what, double got, double limit) {
    if (!(got <= limit)) fail_msg("%s: got %.17g, want at most %g", what, got, limit);
}

/* ---- Philox ------------------------------------------------------------------------------------------ */

/* The known answers that Random123 ships for philox4x32, 10 and 7 rounds. */
static void philox_gives_the_published_words(void **state) {
    (void)state;
    static const struct {
        struct rng_block counter;
        struct rng_philox_key key;
        uint32_t want[4], want_of_seven[4];
    } cases[] = {
        {{{0, 0, 0, 0}},
         {{0, 0}},
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
         {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {{0xffffffff, 0xffffffff}},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
         {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xa4093822, 0x299f31d0}},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct rng_block got = rng_philox(cases[c].counter, cases[c].key, RNG_PHILOX_ROUNDS);
        const struct rng_block got_of_seven = rng_philox(cases[c].counter, cases[c].key, RNG_MASK_ROUNDS);
        for (int w = 0; w < 4; w++) {
            assert_int_equal(got.word[w], cases[c].want[w]);
            assert_int_equal(got_of_seven.word[w], cases[c].want_of_seven[w]);
        }
    }
}

static void block_counter_holds_number_then_stream_and_key_holds_seed(void **state) {
    (void)state;
    const struct rng_key digits_of_pi = {UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e)};
    const struct rng_block got = rng_block_at(digits_of_pi, UINT64_C(0x85a308d3243f6a88));
    assert_int_equal(got.word[0], 0xd16cfe09);
    assert_int_equal(got.word[3], 0x24126ea1);
    const struct rng_block of_mask = rng_mask_block_at(digits_of_pi, UINT64_C(0x85a308d3243f6a88));
    assert_int_equal(of_mask.word[0], 0x4dfccaba);
    assert_int_equal(of_mask.word[3], 0xb6b5242a);
}

/* Element i of a mask: half i % 2, low half first, of word i / 2 % 4 of block i / 8. */
static void masks_draw_sixteen_bits_of_a_block_of_eight(void **state) {
    (void)state;
    const uint64_t number = UINT64_C(0x123456789ABCDEF);
    const struct rng_block block = rng_mask_block_at(key, number);
    for (int i = 0; i < 8; i++)
        assert_int_equal(rng_mask_draw_at(key, 8 * number + (uint64_t)i),
                         i % 2 ? block.word[i / 2] >> 16 : block.word[i / 2] & 0xffff);
}

/* ---- Fills ------------------------------------------------------------------------------------------- */

enum { N = 1500 };

static void fills_equal_the_element_functions(void **state) {
    (void)state;
    static uint32_t u32[N];
    static float f32[N];
    static double f64[N];
    static int64_t i64[N];
    static uint8_t u8[N];
    const uint64_t first = UINT64_C(0xFFFFFFFFF) - 3; /* unaligned, and the block number crosses 32 bits */

    rng_fill_u32(u32, N, key, first);
    for (int i = 0; i < N; i++) assert_int_equal(u32[i], rng_draw_at(key, first + (uint64_t)i));
    rng_fill_uniform_f32(f32, N, key, first);
    for (int i = 0; i < N; i++) assert_near("uniform f32", f32[i], rng_uniform_f32(u32[i]), 0);
    rng_fill_normal_f32(f32, N, key, first);
    for (int i = 0; i < N; i++) assert_near("normal f32", f32[i], rng_normal_f32_at(key, first + (uint64_t)i), 0);
    rng_fill_uniform_f64(f64, N, key, first);
    for (int i = 0; i < N; i++)
        assert_near("uniform f64", f64[i], rng_uniform_f64(rng_wide_draw_at(key, first + (uint64_t)i)), 0);
    rng_fill_normal_f64(f64, N, key, first);
    for (int i = 0; i < N; i++) assert_near("normal f64", f64[i], rng_normal_f64_at(key, first + (uint64_t)i), 0);
    rng_fill_bernoulli(u8, N, key, first, 0.3);
    for (int i = 0; i < N; i++) assert_int_equal(u8[i], u32[i] < 0.3 * 0x1p32);
    rng_fill_mask(u8, N, key, first, 0.3);
    for (int i = 0; i < N; i++) assert_int_equal(u8[i], rng_mask_draw_at(key, first + (uint64_t)i) < 0.7 * 0x1p16);
    rng_fill_integers(i64, N, key, first, -10, 1000);
    for (int i = 0; i < N; i++)
        assert_int_equal(i64[i], rng_integer(rng_wide_draw_at(key, first + (uint64_t)i), -10, 1000));
}

static void values_do_not_depend_on_how_a_range_is_cut(void **state) {
    (void)state;
    static float whole_f32[N], cut_f32[N];
    static double whole_f64[N], cut_f64[N];
    rng_fill_normal_f32(whole_f32, N, key, 5);
    rng_fill_normal_f64(whole_f64, N, key, 5);
    for (int64_t at = 0, length = 1; at < N; at += length, length = length % 13 + 1) {
        const int64_t n = at + length < N ? length : N - at;
        rng_fill_normal_f32(cut_f32 + at, n, key, 5 + (uint64_t)at);
        rng_fill_normal_f64(cut_f64 + at, n, key, 5 + (uint64_t)at);
    }
    assert_memory_equal(whole_f32, cut_f32, sizeof whole_f32);
    assert_memory_equal(whole_f64, cut_f64, sizeof whole_f64);
}

static void fill_writes_exactly_n_elements(void **state) {
    (void)state;
    for (int64_t n = -1; n < 12; n++) {
        uint8_t out[16];
        memset(out, 0xAA, sizeof out);
        rng_fill_bernoulli(out, n, key, 2, 1.0);
        for (int64_t i = 0; i < 16; i++) assert_int_equal(out[i], i < n ? 1 : 0xAA);
        memset(out, 0xAA, sizeof out);
        rng_fill_mask(out, n, key, 5, 0);
        for (int64_t i = 0; i < 16; i++) assert_int_equal(out[i], i < n ? 1 : 0xAA);
    }
}

static void seed_and_stream_both_change_every_word(void **state) {
    (void)state;
    static uint32_t a[N], b[N];
    const struct rng_key others[] = {{key.seed + 1, key.stream},
                                     {key.seed, key.stream + 1},
                                     {key.seed ^ UINT64_C(1) << 63, key.stream},
                                     {key.seed, key.stream ^ UINT64_C(1) << 63}};
    rng_fill_u32(a, N, key, 0);
    for (int k = 0; k < 4; k++) {
        int n_equal = 0;
        rng_fill_u32(b, N, others[k], 0);
        for (int i = 0; i < N; i++) n_equal += a[i] == b[i];
        assert_int_equal(n_equal, 0);
    }
}

/* Any compiler, machine and optimisation must give these bits; a change to them changes every seeded run. */
static uint32_t checksum(const void *data, size_t n_bytes) {
    const unsigned char *byte = data;
    uint32_t sum = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < n_bytes; i++) sum = (sum ^ byte[i]) * 16777619u;
    return sum;
}

static void bits_are_the_same_everywhere(void **state) {
    (void)state;
    enum { MANY = 1 << 17 };
    double *out = malloc(MANY * sizeof *out);
    assert_non_null(out);
    rng_fill_normal_f32((float *)out, MANY, key, 0);
    assert_int_equal(checksum(out, MANY * sizeof(float)), 0xE71E79CC);
    rng_fill_normal_f64(out, MANY, key, 0);
    assert_int_equal(checksum(out, MANY * sizeof(double)), 0x32654954);
    rng_fill_uniform_f64(out, MANY, key, 0);
    assert_int_equal(checksum(out, MANY * sizeof(double)), 0x2CE44F18);
    rng_fill_integers((int64_t *)out, MANY, key, 0, INT64_MIN, INT64_MAX);
    assert_int_equal(checksum(out, MANY * sizeof(int64_t)), 0x9F309A1B);
    rng_fill_mask((uint8_t *)out, MANY, key, 0, 0.1);
    assert_int_equal(checksum(out, MANY), 0x74D0F733);
    free(out);
}

/* ---- Accuracy ---------------------------------------------------------------------------------------- */

/* Distance in units in the last place of a result with `digits` mantissa bits. */
static double ulps(double got, long double want, int digits) {
    int exponent;
    if (want == 0) return got == 0 ? 0 : INFINITY;
    frexpl(want, &exponent);
    return (double)(fabsl((long double)got - want) / ldexpl(1, exponent - digits));
}

/* cos(2 pi turn / 2^64), reduced to an eighth of a turn first, so that long double loses nothing near zeros.
 */
static long double exact_cos(uint64_t turn) {
    const long double half_pi = 1.57079632679489661923132169163975144L;
    const uint64_t quarter = turn >> 62;
    const uint64_t rest = turn & ((UINT64_C(1) << 62) - 1), complement = (UINT64_C(1) << 62) - rest;
    const bool is_lower = rest < UINT64_C(1) << 61;
    const long double angle = half_pi * ldexpl((long double)(is_lower ? rest : complement), -62);
    const long double cosine = is_lower ? cosl(angle) : sinl(angle);
    const long double sine = is_lower ? sinl(angle) : cosl(angle);
    const long double value[4] = {cosine, -sine, -cosine, sine};
    return value[quarter];
}

/* A 64-bit draw that is uniform, tiny, or close to all ones, by turns: transforms are hardest at the ends. */
static uint64_t hard_draw(uint64_t i, uint64_t stream) {
    const struct rng_block block = rng_block_at((struct rng_key){11, stream}, i);
    const uint64_t draw = rng_wide_draw(block, 0);
    const int shift = (int)(block.word[2] % 64);
    return i % 3 == 0 ? draw : i % 3 == 1 ? draw >> shift : ~(draw >> shift);
}

enum { N_HARD = 200000 };

static void log_is_within_its_stated_error(void **state) {
    (void)state;
    double worst_f32 = 0, worst_f64 = 0;
    for (uint64_t i = 0; i < N_HARD; i++) {
        const uint64_t draw = hard_draw(i, 0);
        const float x = fmaf((float)(uint32_t)(draw >> 32), 0x1p-32f, 0x1p-33f);
        const double y = fma((double)draw, 0x1p-64, 0x1p-65);
        worst_f32 = fmax(worst_f32, ulps((double)rng_log_f32(x), logl((long double)x), FLT_MANT_DIG));
        worst_f64 = fmax(worst_f64, ulps(rng_log_f64(y), logl((long double)y), DBL_MANT_DIG));
    }
    assert_at_most("log f32 ulp", worst_f32, 0.96);
    assert_at_most("log f64 ulp", worst_f64, 1.2);
}

static void cos_and_sin_are_within_their_stated_error(void **state) {
    (void)state;
    double worst_f32 = 0, worst_f64 = 0;
    for (uint64_t i = 0; i < N_HARD; i++) {
        const uint64_t turn = hard_draw(i, 1) + (i % 4 << 62);
        const uint32_t turn32 = (uint32_t)(turn >> 32);
        const uint64_t later = UINT64_C(3) << 62;
        worst_f32 = fmax(worst_f32,
                         ulps((double)rng_wave_f32(turn32, RNG_COS), exact_cos((uint64_t)turn32 << 32), FLT_MANT_DIG));
        worst_f32 = fmax(worst_f32, ulps((double)rng_wave_f32(turn32, RNG_SIN),
                                         exact_cos(((uint64_t)turn32 << 32) + later), FLT_MANT_DIG));
        worst_f64 = fmax(worst_f64, ulps(rng_wave_f64(turn, RNG_COS), exact_cos(turn), DBL_MANT_DIG));
        worst_f64 = fmax(worst_f64, ulps(rng_wave_f64(turn, RNG_SIN), exact_cos(turn + later), DBL_MANT_DIG));
    }
    assert_at_most("cos f32 ulp", worst_f32, 1.4);
    assert_at_most("cos f64 ulp", worst_f64, 1.3);
}

static void normals_are_within_their_stated_error(void **state) {
    (void)state;
    double worst_f32 = 0, worst_f64 = 0;
    for (uint64_t i = 0; i < N_HARD; i++) {
        const uint64_t draw = hard_draw(i, 2), turn = hard_draw(i / 3, 3);
        const uint32_t draw32 = (uint32_t)(draw >> 32), turn32 = (uint32_t)(turn >> 32);
        const long double u32 = (long double)fmaf((float)draw32, 0x1p-32f, 0x1p-33f);
        const long double u64 = (long double)fma((double)draw, 0x1p-64, 0x1p-65);
        const long double want_f32 = sqrtl(-2 * logl(u32)) * exact_cos((uint64_t)turn32 << 32);
        const long double want_f64 = sqrtl(-2 * logl(u64)) * exact_cos(turn);
        worst_f32 = fmax(worst_f32, ulps((double)rng_normal_f32(draw32, turn32, RNG_COS), want_f32, FLT_MANT_DIG));
        worst_f64 = fmax(worst_f64, ulps(rng_normal_f64(draw, turn, RNG_COS), want_f64, DBL_MANT_DIG));
    }
    assert_at_most("normal f32 ulp", worst_f32, 3.3);
    assert_at_most("normal f64 ulp", worst_f64, 3.0);
}

static void extreme_draws_give_finite_values(void **state) {
    (void)state;
    assert_near("uniform f32 top", (double)rng_uniform_f32(UINT32_MAX), 1 - 0x1p-24, 0);
    assert_near("uniform f64 top", rng_uniform_f64(UINT64_MAX), 1 - 0x1p-53, 0);
    assert_near("radius f32 of 0", (double)rng_radius_f32(0), sqrt(66 * log(2)), 1e-6);
    assert_near("radius f64 of 0", rng_radius_f64(0), sqrt(130 * log(2)), 1e-14);
    assert_near("radius f32 of all ones", (double)rng_radius_f32(UINT32_MAX), 0, 0);
    assert_near("radius f64 of all ones", rng_radius_f64(UINT64_MAX), 0, 0);
}

/* ---- Distributions ----------------------------------------------------------------------------------- */

enum { N_SAMPLES = 1 << 20 };

/* Mean of the k-th powers, k = 1..4; standard errors below are those of N_SAMPLES independent draws. */
static void moments(const double *x, double moment[5]) {
    memset(moment, 0, 5 * sizeof *moment);
    for (int i = 0; i < N_SAMPLES; i++)
        for (int k = 1; k <= 4; k++) moment[k] += pow(x[i], k) / N_SAMPLES;
}

static void check_normal(const double *x) {
    double moment[5], neighbour = 0;
    moments(x, moment);
    for (int i = 0; i + 1 < N_SAMPLES; i++) neighbour += x[i] * x[i + 1] / N_SAMPLES;
    assert_near("mean", moment[1], 0, 5 * sqrt(1.0 / N_SAMPLES));
    assert_near("second moment", moment[2], 1, 5 * sqrt(2.0 / N_SAMPLES));
    assert_near("third moment", moment[3], 0, 5 * sqrt(15.0 / N_SAMPLES));
    assert_near("fourth moment", moment[4], 3, 5 * sqrt(96.0 / N_SAMPLES));
    assert_near("correlation of neighbours", neighbour, 0, 5 * sqrt(1.0 / N_SAMPLES));
}

static void normals_have_the_moments_of_a_normal(void **state) {
    (void)state;
    double *x = malloc(N_SAMPLES * sizeof *x);
    float *narrow = malloc(N_SAMPLES * sizeof *narrow);
    assert_non_null(x);
    assert_non_null(narrow);
    rng_fill_normal_f64(x, N_SAMPLES, key, 0);
    check_normal(x);
    rng_fill_normal_f32(narrow, N_SAMPLES, key, 0);
    for (int i = 0; i < N_SAMPLES; i++) x[i] = (double)narrow[i];
    check_normal(x);
    free(narrow);
    free(x);
}

static void uniforms_fill_their_interval_evenly(void **state) {
    (void)state;
    double *x = malloc(N_SAMPLES * sizeof *x);
    float *narrow = malloc(N_SAMPLES * sizeof *narrow);
    int count[2][64] = {0};
    assert_non_null(x);
    assert_non_null(narrow);
    rng_fill_uniform_f64(x, N_SAMPLES, key, 0);
    rng_fill_uniform_f32(narrow, N_SAMPLES, key, 0);
    for (int i = 0; i < N_SAMPLES; i++) {
        assert_true(x[i] >= 0 && x[i] < 1 && narrow[i] >= 0 && narrow[i] < 1);
        count[0][(int)(64 * x[i])]++;
        count[1][(int)(64 * narrow[i])]++;
    }
    for (int d = 0; d < 2; d++) {
        double chi_squared = 0;
        for (int bin = 0; bin < 64; bin++) chi_squared += pow(count[d][bin] - N_SAMPLES / 64.0, 2) / (N_SAMPLES / 64.0);
        assert_near("chi-squared of 63 degrees", chi_squared, 63, 5 * sqrt(2 * 63.0));
    }
    free(narrow);
    free(x);
}

static void bernoulli_has_its_probability_and_its_ends_are_certain(void **state) {
    (void)state;
    static const double p[] = {-1, 0, 1e-3, 0.1, 0.5, 0.999, 1, 2, NAN};
    static const double want[] = {0, 0, 1e-3, 0.1, 0.5, 0.999, 1, 1, 0};
    uint8_t *out = malloc(N_SAMPLES);
    assert_non_null(out);
    for (size_t c = 0; c < sizeof p / sizeof *p; c++) {
        int64_t n_true = 0;
        rng_fill_bernoulli(out, N_SAMPLES, key, 0, p[c]);
        for (int i = 0; i < N_SAMPLES; i++) n_true += out[i];
        assert_near("share of ones", (double)n_true / N_SAMPLES, want[c],
                    5 * sqrt(want[c] * (1 - want[c]) / N_SAMPLES));
    }
    free(out);
}

/* To the nearest of 2^16 shares, and neither neighbours nor the elements of different blocks know of each other. */
static void masks_keep_their_share_independently(void **state) {
    (void)state;
    static const struct {
        double p;
        uint32_t kept; /* of 2^16 */
    } cases[] = {{0, 65536},   {1e-9, 65536}, {0x1p-17, 65536}, {0x1.8p-17, 65535}, {1e-3, 65470}, {0.1, 58982},
                 {0.2, 52429}, {0.5, 32768},  {0.9, 6554},      {0.999, 66},        {1, 0}};
    static const int lags[] = {1, 2, 3, 4, 7, 8, 9, 16, 1024};
    uint8_t *out = malloc(N_SAMPLES);
    assert_non_null(out);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        assert_int_equal(rng_mask_threshold(cases[c].p), cases[c].kept);
        const double share = cases[c].kept / 0x1p16, variance = share * (1 - share);
        int64_t n_kept = 0;
        rng_fill_mask(out, N_SAMPLES, key, 0, cases[c].p);
        for (int i = 0; i < N_SAMPLES; i++) n_kept += out[i];
        assert_near("share of what is kept", (double)n_kept / N_SAMPLES, share, 5 * sqrt(variance / N_SAMPLES));
        for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
            double together = 0;
            for (int i = 0; i + lags[l] < N_SAMPLES; i++) together += (out[i] - share) * (out[i + lags[l]] - share);
            assert_near("covariance", together / N_SAMPLES, 0, 5 * variance / sqrt(N_SAMPLES));
        }
    }
    free(out);
}

static void integers_stay_in_range_and_reach_both_ends(void **state) {
    (void)state;
    enum { MANY = 1 << 16 };
    static int64_t out[MANY];
    int count[7] = {0};
    rng_fill_integers(out, MANY, key, 0, -3, 4);
    for (int i = 0; i < MANY; i++) {
        assert_in_range((uintmax_t)(out[i] + 3), 0, 6);
        count[out[i] + 3]++;
    }
    for (int v = 0; v < 7; v++) assert_near("count of one value", count[v], MANY / 7.0, 5 * sqrt(MANY / 7.0));
    assert_int_equal(rng_integer(0, INT64_MIN, INT64_MAX), INT64_MIN);
    assert_int_equal(rng_integer(UINT64_MAX, INT64_MIN, INT64_MAX), INT64_MAX - 1);
    assert_int_equal(rng_integer(UINT64_MAX, 5, 6), 5);
    assert_int_equal(rng_integer(UINT64_MAX, 5, 5), 5);
}

static void high_product_is_exact(void **state) {
    (void)state;
    assert_int_equal(rng_multiply_high(UINT64_MAX, UINT64_MAX), UINT64_MAX - 1);
    assert_int_equal(rng_multiply_high(UINT64_C(1) << 63, 6), 3);
    assert_int_equal(rng_multiply_high(UINT64_C(0x123456789ABCDEF0), UINT64_C(0xFEDCBA9876543210)),
                     UINT64_C(0x121FA00AD77D7422));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(block_counter_holds_number_then_stream_and_key_holds_seed),
        cmocka_unit_test(masks_draw_sixteen_bits_of_a_block_of_eight),
        cmocka_unit_test(fills_equal_the_element_functions),
        cmocka_unit_test(values_do_not_depend_on_how_a_range_is_cut),
        cmocka_unit_test(fill_writes_exactly_n_elements),
        cmocka_unit_test(seed_and_stream_both_change_every_word),
        cmocka_unit_test(bits_are_the_same_everywhere),
        cmocka_unit_test(log_is_within_its_stated_error),
        cmocka_unit_test(cos_and_sin_are_within_their_stated_error),
        cmocka_unit_test(normals_are_within_their_stated_error),
        cmocka_unit_test(extreme_draws_give_finite_values),
        cmocka_unit_test(normals_have_the_moments_of_a_normal),
        cmocka_unit_test(uniforms_fill_their_interval_evenly),
        cmocka_unit_test(bernoulli_has_its_probability_and_its_ends_are_certain),
        cmocka_unit_test(masks_keep_their_share_independently),
        cmocka_unit_test(integers_stay_in_range_and_reach_both_ends),
        cmocka_unit_test(high_product_is_exact),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
