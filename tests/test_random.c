/* test_random.c: distributions, streams, in-place fills, permutations and categories; questions about dtypes; casts
 * with a mode. Distributions are compared with their distribution function (Kolmogorov-Smirnov) and moments with
 * fixed seeds, so each test either always passes or always fails; the bounds are those that a correct generator
 * misses once in 10^6. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng_math.h"
#include "ops/draw.h"
#include "support/samples.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

enum { N = 100000 };

/* ---- Questions about dtypes ---- */

static void one_hundred_millionth_vanishes_in_f16_and_not_in_bf16(void **state) {
    (void)state;
    tl_tensor *x = tl_full(TL_SCALAR, 1e-8, TL_F32, NULL);
    assert_true(tl_item(tl_cast(x, TL_F16)) == 0);
    expect_near(tl_item(tl_cast(x, TL_BF16)), 1e-8, 1e-8 / 256);
    assert_true(1e-8 < tl_finfo(TL_F16).smallest_subnormal / 2);
    assert_true(1e-8 > tl_finfo(TL_BF16).smallest_normal);
}

static void finfo_and_iinfo_refuse_the_other_kind(void **state) {
    (void)state;
    expect_text(tl_finfo(TL_F32).name, "float32");
    assert_true(tl_finfo(TL_F32).eps == 0x1p-23 && tl_finfo(TL_F32).resolution == 1e-6);
    expect_equal(tl_iinfo(TL_U16).max, 65535);
    expect_equal(tl_iinfo(TL_I8).min, -128);
    expect_equal(tl_finfo(TL_I32).bits, 0);
    expect_error(TL_ERROR_USE, "finfo: requires a floating point dtype, not i32 (need tl_iinfo)");
    expect_equal(tl_iinfo(TL_F16).bits, 0);
    expect_error(TL_ERROR_USE, "iinfo: requires an integer dtype, not f16 (need tl_finfo)");
    expect_equal(tl_iinfo(TL_BOOL).bits, 0);
    expect_error(TL_ERROR_USE, "iinfo: requires an integer dtype, not bool");
    expect_equal(tl_finfo(TL_DTYPE_COUNT).bits, 0);
    expect_error(TL_ERROR_USE, "not ?");
}

static void promotion_refuses_by_name(void **state) {
    (void)state;
    expect_equal(tl_promote(TL_F16, TL_BF16), TL_F32);
    expect_equal(tl_promote(TL_I64, TL_F16), TL_F16);
    expect_equal(tl_promote(TL_F8E4M3, TL_F8E4M3), TL_F8E4M3);
    expect_equal(tl_promote(TL_F8E4M3, TL_F32), TL_DTYPE_COUNT);
    expect_error(TL_ERROR_USE, "promote: there is no common dtype of f8e4m3 and f32 (need a cast of one of them)");
}

/* ---- Casts with a mode ---- */

/* The mean of N roundings of v is v within five standard errors of gap * sqrt(f (1-f) / N). */
static void check_unbiased(double v, tl_dtype dtype) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *y = tl_round_to(tl_full(TL_SHAPE(N), v, TL_F32, NULL), dtype, TL_STOCHASTIC);
    double *value = tensor_values(y), sum = 0, low = INFINITY, high = -INFINITY;
    const double exact = (float)v;
    for (int i = 0; i < N; i++) {
        sum += value[i];
        low = fmin(low, value[i]);
        high = fmax(high, value[i]);
    }
    free(value);
    if (!(low < exact && exact < high)) fail_msg("%s: %g became %g .. %g", tl_dtype_name(dtype), exact, low, high);
    const double f = (exact - low) / (high - low), error = 5 * (high - low) * sqrt(f * (1 - f) / N);
    if (fabs(sum / N - exact) > error)
        fail_msg("%s: the mean of %g is %.9g, off by more than %g", tl_dtype_name(dtype), exact, sum / N, error);
    tl_scope_end(scope);
}

static void stochastic_casts_are_unbiased(void **state) {
    (void)state;
    const tl_dtype dtypes[] = {TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2, TL_F4E2M1};
    for (int d = 0; d < 5; d++) {
        check_unbiased(1.3003, dtypes[d]);
        check_unbiased(-2.7001, dtypes[d]);
        check_unbiased(5.9999, dtypes[d]);
        check_unbiased(0.3 * tl_finfo(dtypes[d]).smallest_subnormal, dtypes[d]);
    }
}

static void saturating_casts_stay_finite(void **state) {
    (void)state;
    tl_tensor *x = check_tensor(TL_SHAPE(4), 1e9, -1e9, INFINITY, 1);
    expect_values(tl_round_to(x, TL_F8E4M3, TL_SATURATE), 448, -448, 448, 1);
    expect_values(tl_round_to(x, TL_F16, TL_SATURATE), 65504, -65504, 65504, 1);
    expect_values(tl_round_to(x, TL_F4E2M1, TL_SATURATE), 6, -6, 6, 1);
    expect_values(tl_round_to(x, TL_F16, TL_NEAREST), INFINITY, -INFINITY, INFINITY, 1);
}

static void only_stochastic_modes_take_numbers(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 32));
    tl_quantized q;
    const uint64_t before = tl_generator_get().index;
    tl_round_to(x, TL_BF16, TL_SATURATE);
    tl_quantize(x, TL_MXFP4, TL_NEAREST, &q);
    expect_equal(tl_generator_get().index, before);
    tl_round_to(x, TL_BF16, TL_STOCHASTIC);
    expect_equal(tl_generator_get().index, before + 64);
    tl_quantize(x, TL_MXFP4, TL_STOCHASTIC, &q);
    expect_equal(tl_generator_get().index, before + 128);
    expect_refused(tl_quantize(tl_reshape(x, TL_SHAPE(4, 16)), TL_MXFP4, TL_STOCHASTIC, &q), "blocks of 32");
    expect_equal(tl_generator_get().index, before + 128);
}

/* ---- The quantile ---- */

static void the_quantile_inverts_the_distribution_function(void **state) {
    (void)state;
    double worst = 0;
    for (double p = 0.5; p > 1e-300; p *= 0.987) {
        /* erfc's own error is some 1e-16; dp/p = |x| dx near x, so the relative error of x is that of p over x^2. */
        const double x = rng_quantile_f64(p), back = 0.5 * erfc(-x / sqrt(2.0));
        worst = fmax(worst, fabs(back / p - 1) / fmax(1, x * x));
    }
    if (!(worst < 1e-15)) fail_msg("the quantile is off by %g, relatively", worst);
    assert_true(rng_quantile_f64(0.5) == 0);
    expect_near(rng_quantile_f64(0.025), -1.9599639845400542, 1e-15);
    expect_near(rng_normal_below_f64(-1), 0.15865525393145705, 1e-16);
    expect_near(rng_normal_below_f64(-10), 7.619853024160527e-24, 1e-37);
    for (double p = 0.4; p > 1e-200; p *= 1e-3)
        assert_true(rng_quantile_f64(nextafter(p, 1)) >= rng_quantile_f64(p) * (1 + 1e-15));
}

/* ---- Distributions ---- */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov-Smirnov: sqrt(n) times the largest distance exceeds 2.7 with probability 2 exp(-2 2.7^2) < 10^-6. */
static void check_distribution(const char *what, tl_tensor *x, double (*below)(double, const double *),
                               const double *parameters) {
    const int64_t n = tl_numel(x);
    double *value = tensor_values(x), distance = 0;
    qsort(value, (size_t)n, sizeof *value, by_value);
    for (int64_t i = 0; i < n; i++) {
        const double F = below(value[i], parameters);
        distance = fmax(distance, fmax(F - (double)i / (double)n, (double)(i + 1) / (double)n - F));
    }
    free(value);
    if (!(distance * sqrt((double)n) < 2.7))
        fail_msg("%s: Kolmogorov-Smirnov distance %g of %lld values", what, distance, (long long)n);
}

/* Mean and variance within five standard errors; kurtosis bounds the variance's own error. */
static void check_moments(const char *what, tl_tensor *x, double mean, double variance, double fourth) {
    const int64_t n = tl_numel(x);
    double *value = tensor_values(x), sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += value[i] - mean;
        square += (value[i] - mean) * (value[i] - mean);
    }
    free(value);
    sum /= (double)n, square /= (double)n;
    if (!(fabs(sum) <= 5 * sqrt(variance / (double)n))) fail_msg("%s: the mean is off by %g", what, sum);
    if (!(fabs(square - variance) <= 5 * sqrt((fourth - variance * variance) / (double)n)))
        fail_msg("%s: the variance is %.9g, expected %.9g", what, square, variance);
}

static double phi(double x) { return 0.5 * erfc(-x / sqrt(2.0)); }
static double density(double x) { return isinf(x) ? 0 : exp(-x * x / 2) / sqrt(2 * acos(-1)); }
static double uniform_below(double x, const double *p) { return fmin(1, fmax(0, (x - p[0]) / (p[1] - p[0]))); }
static double normal_below(double x, const double *p) { return phi((x - p[0]) / p[1]); }
static double truncated_below(double x, const double *p) {
    const double a = (p[2] - p[0]) / p[1], b = (p[3] - p[0]) / p[1], z = (x - p[0]) / p[1];
    /* on the side where probabilities are small */
    return a + b > 0 ? (phi(-a) - phi(-z)) / (phi(-a) - phi(-b)) : (phi(z) - phi(a)) / (phi(b) - phi(a));
}

/* ---- The upper end of a uniform range is no result, in any dtype ---- */

static const struct {
    double low, high;
} ends[] = {{0, 1},          {-1, 0},      {-3, -1},         {0.1, 0.3}, {-2, 0x1p-14},
            {1, 1 + 0x1p-8}, {0.5, 1.125}, {-0x1p-16, 1e-7}, {0, 448},   {0, 1e30}};

/* All 2^24 numbers of [0,1) that f32 draws have, as the kernels take them. */
static void no_word_gives_the_upper_end_in_bf16(void **state) {
    (void)state;
    enum { BLOCK = 1 << 16 };
    static float plain[BLOCK], x[BLOCK];
    static uint16_t rounded[BLOCK], y[BLOCK];
    for (size_t r = 0; r < sizeof ends / sizeof *ends; r++) {
        const double low = ends[r].low, high = ends[r].high, limit = draw_limit(low, high, TL_BF16);
        const float width = (float)(high - low);
        for (uint32_t word = 0; word < 1u << 24; word += BLOCK) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                plain[i] = fmaf(rng_uniform_f32((word + i) << 8), width, (float)low);
                x[i] = rng_between_f32(rng_uniform_f32((word + i) << 8), (float)low, width, (float)limit);
            }
            convert_from_f32(rounded, TL_BF16, 1, plain, BLOCK);
            convert_from_f32(y, TL_BF16, 1, x, BLOCK);
            convert_to_f32(plain, rounded, TL_BF16, 1, BLOCK);
            convert_to_f32(x, y, TL_BF16, 1, BLOCK);
            for (uint32_t i = 0; i < BLOCK; i++) /* to nearest, unless that is the end or above */
                if (x[i] >= high || x[i] != (plain[i] >= high ? limit : plain[i]))
                    fail_msg("[%g, %g), word %u: %.9g, rounded %.9g, limit %.9g", low, high, word + i, (double)x[i],
                             (double)plain[i], limit);
        }
    }
}

static void the_last_number_below_an_end(void **state) {
    (void)state;
    static const struct {
        tl_dtype dtype;
        double high, limit;
    } known[] = {{TL_BF16, 1, 1 - 0x1p-8},  {TL_F16, 1, 1 - 0x1p-11},   {TL_F8E4M3, 1, 0.9375},
                 {TL_F8E5M2, 1, 0.875},     {TL_F32, 1, 1 - 0x1p-24},   {TL_F64, 1, 1 - 0x1p-53},
                 {TL_F16, 0, -0x1p-24},     {TL_BF16, -1, -1 - 0x1p-7}, {TL_F8E4M3, 448, 416},
                 {TL_F8E4M3, 0.3, 0.28125}, {TL_BF16, 0.3, 0.298828125}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (draw_limit(-4, known[i].high, known[i].dtype) != known[i].limit)
            fail_msg("%s below %g: %.17g", tl_dtype_name(known[i].dtype), known[i].high,
                     draw_limit(-4, known[i].high, known[i].dtype));
    assert_true(isinf(draw_limit(-4, 449, TL_F8E4M3)) && isinf(draw_limit(1, 1, TL_F32)) &&
                isinf(draw_limit(1.01, 1.02, TL_F8E5M2)));
}

static void uniform_stays_below_its_end_in_every_dtype(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t r = 0; r < sizeof ends / sizeof *ends; r++) {
            tl_scope scope = tl_scope_begin();
            double low = ends[r].low, high = ends[r].high, max = dtype_info(dtypes[d])->max;
            double limit = draw_limit(low, high, dtypes[d]);
            tl_tensor *made = tl_uniform(TL_SHAPE(1 << 15), low, high, dtypes[d], NULL);
            tl_tensor *filled = tl_uniform_(tl_empty(TL_SHAPE(1 << 15), dtypes[d], NULL), low, high);
            double top = tl_item(tl_max(tl_cast(made, TL_F64), NULL, 0, false));
            double top_filled = tl_item(tl_max(tl_cast(filled, TL_F64), NULL, 0, false));
            assert_int_equal(isinf(limit) != 0, high > max); /* all these ranges have a number of every dtype */
            if (high <= max && !(top < high && top_filled < high && limit < high && limit >= low))
                fail_msg("%s [%g, %g): %.17g, %.17g, limit %.17g", tl_dtype_name(dtypes[d]), low, high, top, top_filled,
                         limit);
            assert_true(tl_scope_end(scope));
        }
    /* a range that is one number, an empty one, and one between two numbers of the dtype */
    tl_tensor *one = tl_uniform(TL_SHAPE(100), 1, 1 + 0x1p-7, TL_BF16, NULL),
              *none = tl_uniform(TL_SHAPE(9), 2, 2, TL_BF16, NULL);
    tl_tensor *between = tl_uniform(TL_SHAPE(100), 1 + 0x1p-10, 1 + 0x1p-9, TL_BF16, NULL);
    assert_true(tl_item(tl_max(one, NULL, 0, false)) == 1 && tl_item(tl_min(one, NULL, 0, false)) == 1);
    assert_true(tl_item(tl_max(none, NULL, 0, false)) == 2 && tl_item(tl_max(between, NULL, 0, false)) == 1);
}

static void uniform_and_normal_have_their_distributions(void **state) {
    (void)state;
    const tl_dtype dtypes[] = {TL_F32, TL_F64};
    for (int d = 0; d < 2; d++) {
        tl_tensor *u = tl_uniform(TL_SHAPE(N), -1, 3, dtypes[d], NULL);
        check_distribution("uniform", u, uniform_below, (double[]){-1, 3});
        check_moments("uniform", u, 1, 16 / 12.0, 256 / 80.0); /* w^2/12, w^4/80 */
        tl_tensor *z = tl_normal(TL_SHAPE(N), 2, 0.5, dtypes[d], NULL);
        check_distribution("normal", z, normal_below, (double[]){2, 0.5});
        check_moments("normal", z, 2, 0.25, 3 * 0.0625);
    }
    tl_tensor *b = tl_bernoulli(TL_SHAPE(N), 0.3, NULL);
    check_moments("bernoulli", b, 0.3, 0.21, 0.7 * 0.0081 + 0.3 * 0.2401); /* (1-p) p^4 + p (1-p)^4 */
}

static void integers_are_equally_likely(void **state) {
    (void)state;
    enum { KINDS = 10 };
    double tally[KINDS] = {0}, chi2 = 0, *value = tensor_values(tl_integers(TL_SHAPE(N), -4, 6, TL_I64, NULL));
    for (int i = 0; i < N; i++) tally[(int)value[i] + 4]++;
    free(value);
    for (int k = 0; k < KINDS; k++) chi2 += (tally[k] - N / KINDS) * (tally[k] - N / KINDS) / (N / KINDS);
    assert_true(chi2 < 45); /* 9 degrees of freedom: P < 10^-6 */
}

static void truncated_normals_have_their_distribution_in_any_range(void **state) {
    (void)state;
    const double ranges[][4] = {
        /* mean, std, low, high */
        {0, 1, -2, 2}, {0, 0.02, -0.04, 0.04}, {1, 2, -INFINITY, 0.5}, {0, 1, 5, 6},       {0, 1, -9, -8.5},
        {0, 1, -1, 7}, {3, 0.1, 0, 3.05},      {0, 1, 0.1, 0.1001},    {0, 1, -30, -29.9}, {0, 1, -INFINITY, INFINITY}};
    const tl_dtype dtypes[] = {TL_F64, TL_F32};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
        for (int d = 0; d < 2; d++) {
            const double *p = ranges[r], a = (p[2] - p[0]) / p[1], b = (p[3] - p[0]) / p[1];
            char name[100];
            snprintf(name, sizeof name, "%s normal(%g, %g) in [%g, %g]", tl_dtype_name(dtypes[d]), p[0], p[1], p[2],
                     p[3]);
            tl_tensor *x = tl_trunc_normal(TL_SHAPE(N), p[0], p[1], p[2], p[3], dtypes[d], NULL);
            expect_ok();
            double *value = tensor_values(x);
            const double eps = tl_finfo(dtypes[d]).eps;
            for (int i = 0; i < N; i++)
                if (!(value[i] >= p[2] - eps * fabs(p[2]) && value[i] <= p[3] + eps * fabs(p[3])))
                    fail_msg("%s: element %d is %.17g", name, i, value[i]);
            free(value);
            if (dtypes[d] == TL_F64 || p[3] - p[2] > 1e-3) check_distribution(name, x, truncated_below, p);
            if (b - a < 1 || isinf(a)) continue; /* the closed form cancels in narrow ranges */
            const double Z = phi(b) - phi(a), shift = (density(a) - density(b)) / Z,
                         bump = ((isinf(a) ? 0 : a * density(a)) - (isinf(b) ? 0 : b * density(b))) / Z;
            const double variance = p[1] * p[1] * (1 + bump - shift * shift);
            if (Z > 1e-3) check_moments(name, x, p[0] + p[1] * shift, variance, 10 * variance * variance);
        }
}

/* ---- In place ---- */

static void fills_in_place_equal_creation_in_any_layout(void **state) {
    (void)state;
    const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_BF16};
    for (int d = 0; d < 3; d++)
        for (int layout = LAY_DENSE; layout <= LAY_REVERSED; layout++) {
            tl_tensor *like = tl_zeros(TL_SHAPE(7, 9, 5), dtypes[d], NULL);
            tl_tensor *x = tensor_laid_out(tl_clone(like), (enum sample_layout)layout);
            tl_seed(3);
            assert_ptr_equal(tl_uniform_(x, -1, 2), x);
            const tl_generator after = tl_generator_get();
            tl_seed(3);
            expect_same_bits(x, tl_uniform_like(like, -1, 2));
            expect_equal(tl_generator_get().index, after.index);
            tl_seed(4);
            tl_normal_(x, 1, 2);
            tl_seed(4);
            expect_same_bits(x, tl_normal_like(like, 1, 2));
            tl_seed(5);
            tl_trunc_normal_(x, 0, 1, -1, 1);
            tl_seed(5);
            expect_same_bits(x, tl_trunc_normal(TL_SHAPE(7, 9, 5), 0, 1, -1, 1, dtypes[d], NULL));
        }
    for (int d = 0; d < 3; d++) {
        tl_tensor *x = tl_zeros(TL_SHAPE(50), dtypes[d], NULL);
        tl_generator_set((tl_generator){6, 0, 8});
        tl_bernoulli_(x, 0.3);
        const tl_generator after = tl_generator_get();
        tl_generator_set((tl_generator){6, 0, 8});
        expect_same_bits(x, tl_cast(tl_bernoulli(TL_SHAPE(50), 0.3, NULL), dtypes[d]));
        expect_equal(tl_generator_get().index, after.index);
    }
    tl_seed(7);
    tl_tensor *k = tl_integers_like(tl_zeros(TL_SHAPE(5), TL_I16, NULL), 0, 100);
    tl_seed(7);
    expect_same_bits(k, tl_integers(TL_SHAPE(5), 0, 100, TL_I16, NULL));
    expect_values(tl_full_like(k, 7), 7, 7, 7, 7, 7);
}

static void fills_of_parameters_ask_for_recording_to_be_off(void **state) {
    (void)state;
    tl_tensor *w = tl_requires_grad(tl_zeros(TL_SHAPE(4), TL_F32, NULL), true);
    expect_refused(tl_normal_(w, 0, 1), "leaf");
    tl_set_grad_mode(false);
    assert_non_null(tl_normal_(w, 0, 1));
    tl_set_grad_mode(true);
}

/* ---- Streams ---- */

static double correlation(tl_tensor *a, tl_tensor *b) {
    double *x = tensor_values(a), *y = tensor_values(b), sum = 0;
    for (int i = 0; i < N; i++) sum += x[i] * y[i];
    free(x), free(y);
    return sum / N;
}

static void streams_are_independent_and_repeat(void **state) {
    (void)state;
    enum { STREAMS = 6 };
    const uint64_t streams[STREAMS] = {0, 1, 2, 3, UINT64_C(1) << 32, UINT64_MAX};
    tl_tensor *x[STREAMS];
    tl_seed(11);
    for (int s = 0; s < STREAMS; s++) {
        tl_set_stream(streams[s]);
        x[s] = tl_normal(TL_SHAPE(N), 0, 1, TL_F32, NULL);
    }
    const double limit = 5 / sqrt(N); /* a correlation of independent numbers has deviation 1/sqrt(N) */
    for (int a = 0; a < STREAMS; a++)
        for (int b = 0; b < a; b++)
            if (fabs(correlation(x[a], x[b])) > limit)
                fail_msg("streams %llu and %llu correlate: %g", (unsigned long long)streams[a],
                         (unsigned long long)streams[b], correlation(x[a], x[b]));
    for (int lag = 1; lag <= 4; lag++) { /* neighbours within one stream */
        double *v = tensor_values(x[1]), sum = 0;
        for (int i = lag; i < N; i++) sum += v[i] * v[i - lag];
        free(v);
        assert_true(fabs(sum / N) < limit);
    }
    tl_seed(11);
    const tl_generator before = tl_set_stream(2);
    expect_equal(before.stream, 0);
    expect_same_bits(tl_normal(TL_SHAPE(N), 0, 1, TL_F32, NULL), x[2]);
    tl_generator_set(before);
    expect_same_bits(tl_normal(TL_SHAPE(N), 0, 1, TL_F32, NULL), x[0]);
}

/* ---- Orders and categories ---- */

static void permutations_hold_each_number_once(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 63, 64, 65, 1000, 100003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        double *value = tensor_values(tl_permutation(n, NULL)), *seen = calloc((size_t)n + 1, sizeof *seen);
        for (int64_t i = 0; i < n; i++) seen[(int64_t)value[i]]++;
        for (int64_t i = 0; i < n; i++) assert_true(seen[i] == 1);
        free(value), free(seen);
    }
}

static void permutations_are_equally_likely(void **state) {
    (void)state;
    enum { ROUNDS_ = 24000 };
    double tally[64] = {0}, chi2 = 0;
    for (int r = 0; r < ROUNDS_; r++) {
        tl_scope scope = tl_scope_begin();
        double *v = tensor_values(tl_permutation(4, NULL));
        tally[(int)(v[0] * 16 + v[1] * 4 + v[2])]++; /* the fourth follows */
        free(v);
        tl_scope_end(scope);
    }
    int n_kinds = 0;
    for (int k = 0; k < 64; k++) {
        if (tally[k] == 0) continue;
        n_kinds++;
        chi2 += (tally[k] - ROUNDS_ / 24) * (tally[k] - ROUNDS_ / 24) / (ROUNDS_ / 24);
    }
    expect_equal(n_kinds, 24);
    assert_true(chi2 < 71); /* 23 degrees of freedom: P < 10^-6 */
}

static void categories_follow_their_weights(void **state) {
    (void)state;
    enum { K = 5 };
    const double weight[K] = {1, 0, 3, 0.5, 5.5};
    tl_tensor *p = check_from(weight, TL_F64, TL_SHAPE(K));
    double tally[K] = {0}, *value = tensor_values(tl_multinomial(p, N, true));
    for (int i = 0; i < N; i++) tally[(int)value[i]]++;
    free(value);
    assert_true(tally[1] == 0);
    for (int k = 0; k < K; k++) {
        const double q = weight[k] / 10;
        expect_near(tally[k] / N, q, 5 * sqrt(q * (1 - q) / N));
    }
}

/* Pairs drawn without replacement: P(i, j) = p_i p_j / (1 - p_i), in this order. */
static void samples_without_replacement_have_the_sequential_distribution(void **state) {
    (void)state;
    enum { K = 4, ROWS = 40000 };
    const double weight[K] = {0.1, 0.2, 0.3, 0.4};
    tl_tensor *p = tl_expand(check_from(weight, TL_F64, TL_SHAPE(1, K)), TL_SHAPE(ROWS, K));
    double tally[K][K] = {{0}}, *value = tensor_values(tl_multinomial(p, 2, false));
    for (int r = 0; r < ROWS; r++) tally[(int)value[2 * r]][(int)value[2 * r + 1]]++;
    free(value);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            const double q = i == j ? 0 : weight[i] * weight[j] / (1 - weight[i]);
            expect_near(tally[i][j] / ROWS, q, 5 * sqrt(q * (1 - q) / ROWS));
        }
}

static void too_few_positive_weights_are_refused(void **state) {
    (void)state;
    tl_tensor *p = check_tensor(TL_SHAPE(4), 1, 0, 2, 0);
    expect_refused(tl_multinomial(p, 3, false), "not enough non-negative category to sample");
    expect_values(tl_sum_all(tl_multinomial(p, 2, false)), 2);
    expect_refused(tl_multinomial(check_tensor(TL_SHAPE(2), 1, NAN), 1, true), "`inf`, `nan` or element < 0");
    expect_refused(tl_multinomial(check_tensor(TL_SHAPE(2), 1, INFINITY), 1, true), "`inf`, `nan` or element < 0");
    tl_tensor *huge = check_from((const double[]){1e308, 1e308}, TL_F64, TL_SHAPE(2));
    expect_refused(tl_multinomial(huge, 1, true), "the sum of probabilities is infinite");
    const double least = 0x1p-1074;
    expect_values(tl_multinomial(check_from((const double[]){0, least, 0}, TL_F64, TL_SHAPE(3)), 4, true), 1, 1, 1, 1);
}

/* ---- Threads ---- */

static void every_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    tl_tensor *kept[5] = {0};
    const int before = tl_set_threads(1);
    for (int n_threads = 1; n_threads <= 8; n_threads++) {
        tl_set_threads(n_threads);
        tl_seed(21);
        tl_quantized q;
        tl_tensor *x = tl_normal_(tl_transpose(tl_zeros(TL_SHAPE(96, 801), TL_F32, NULL), 0, 1), 0, 1);
        tl_tensor *t = tl_trunc_normal(TL_SHAPE(50001), 0, 1, -1, 1, TL_F32, NULL);
        tl_tensor *c = tl_round_to(x, TL_F4E2M1, TL_STOCHASTIC);
        assert_true(tl_quantize(x, TL_NVFP4, TL_STOCHASTIC, &q));
        tl_tensor *made[5] = {x, t, c, tl_dequantize(&q, TL_BF16), tl_permutation(5001, NULL)};
        for (int i = 0; i < 5; i++) {
            if (n_threads == 1) kept[i] = made[i];
            else expect_same_bits(made[i], kept[i]);
        }
    }
    tl_set_threads(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(one_hundred_millionth_vanishes_in_f16_and_not_in_bf16),
        TEST(finfo_and_iinfo_refuse_the_other_kind),
        TEST(promotion_refuses_by_name),
        TEST(stochastic_casts_are_unbiased),
        TEST(saturating_casts_stay_finite),
        TEST(only_stochastic_modes_take_numbers),
        TEST(the_quantile_inverts_the_distribution_function),
        TEST(no_word_gives_the_upper_end_in_bf16),
        TEST(the_last_number_below_an_end),
        TEST(uniform_stays_below_its_end_in_every_dtype),
        TEST(uniform_and_normal_have_their_distributions),
        TEST(integers_are_equally_likely),
        TEST(truncated_normals_have_their_distribution_in_any_range),
        TEST(fills_in_place_equal_creation_in_any_layout),
        TEST(fills_of_parameters_ask_for_recording_to_be_off),
        TEST(streams_are_independent_and_repeat),
        TEST(permutations_hold_each_number_once),
        TEST(permutations_are_equally_likely),
        TEST(categories_follow_their_weights),
        TEST(samples_without_replacement_have_the_sequential_distribution),
        TEST(too_few_positive_weights_are_refused),
        TEST(every_number_of_threads_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
