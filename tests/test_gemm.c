/* test_gemm.c: matrix products against plain loops in double, on sizes around every edge of the blocks of gemm.c.
 *
 * TALLY_ISA=name build/tests/test_gemm runs it on the kernels of another instruction set. Each product is computed in
 * every layout (either operand transposed, rows with gaps), into its own dtype and into f32, fresh and accumulated,
 * and on one to eight threads, which must agree to the last bit.
 *
 * Bounds. In f32 a sum of k products is off by at most some eps sqrt(k) of the sum of their absolute values, unless
 * it is wrong; a forgotten term would be 1/k of it. Splitting each factor into two bf16 numbers (TL_MATMUL_HIGH)
 * leaves 2^-16 of each product.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spec/attr.h"
#include "ops/ops.h"
#include "support/check.h"
#include "tensor/convert.h"
#include "tensor/tensor.h"

/* A matrix of n_rows rows, `gap` numbers apart, whose first column is the `skip`th of them: elements of `base`, an
 * (n_rows, skip + n_columns + gap) matrix. The transpose of an (n_columns, n_rows) one when is_turned. */
static tl_tensor *matrix(int64_t n_rows, int64_t n_columns, bool is_turned, int64_t skip, int64_t gap, tl_dtype dtype) {
    const int64_t rows = is_turned ? n_columns : n_rows, columns = is_turned ? n_rows : n_columns;
    tl_tensor *base = tl_cast(tl_uniform(TL_SHAPE(rows, skip + columns + gap), -1, 1, TL_F32, NULL), dtype);
    tl_tensor *x = tl_slice(base, 1, skip, skip + columns, 1);
    return is_turned ? tl_transpose(x, 0, 1) : x;
}

static double at(const tl_tensor *x, int64_t i, int64_t j) {
    return convert_get_f64(tensor_data(x), x->dtype, i * x->stride[0] + j * x->stride[1]);
}

/* op(a) op(b) in `dtype`, or added to a copy of `sum`. */
static tl_tensor *product(tl_tensor *a, tl_tensor *b, tl_tensor *sum, tl_dtype dtype, bool is_fast) {
    struct attr_matmul at;
    memset(&at, 0, sizeof at);
    at.dtype = dtype;
    at.is_fast = is_fast;
    tl_tensor *input[3] = {sum ? tl_clone(sum) : NULL, a, b};
    tl_call c;
    call_begin(&c, sum ? &op_matmul_acc : &op_matmul, sum ? input : input + 1, sum ? 3 : 2, &at, sizeof at);
    return op_apply(&c);
}

/* (n_rows, n_columns) numbers, row after row; of the transpose when is_turned. To be freed. */
static double *numbers(const tl_tensor *x, bool is_turned) {
    const int64_t n_rows = x->shape[is_turned], n_columns = x->shape[!is_turned];
    double *values = malloc((size_t)(n_rows * n_columns) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_columns; j++) values[i * n_columns + j] = is_turned ? at(x, j, i) : at(x, i, j);
    return values;
}

static void check_product(tl_tensor *a, tl_tensor *b, tl_tensor *sum, tl_tensor *out, double slack) {
    const int64_t m = a->shape[0], k = a->shape[1], n = b->shape[1];
    const double rounding = out->dtype == TL_BF16 ? 0x1p-8 : out->dtype == TL_F16 ? 0x1p-11 : 0x1p-24;
    double *rows = numbers(a, false), *columns = numbers(b, true);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            if (IS_SANITIZED && (i * n + j) % 37) continue; /* the plain loops would take most of the time */
            double want = 0, size = 0;
            for (int64_t p = 0; p < k; p++) {
                const double term = rows[i * k + p] * columns[j * k + p];
                want += term;
                size += fabs(term);
            }
            if (sum) want += at(sum, i, j);
            const double error = fabs(at(out, i, j) - want);
            const double bound = size * (4 * sqrt((double)k + 1) * 0x1p-24 + slack) + rounding * fabs(want) + 0x1p-24;
            if (!(error <= bound))
                fail_msg("(%lld,%lld) x (%lld,%lld) %s -> %s: element (%lld,%lld) is %.9g and not %.9g: off by %.3g, "
                         "allowed %.3g",
                         (long long)m, (long long)k, (long long)k, (long long)n, tl_dtype_name(a->dtype),
                         tl_dtype_name(out->dtype), (long long)i, (long long)j, at(out, i, j), want, error, bound);
        }
    }
    free(rows);
    free(columns);
}

/* One size in one layout, on all thread counts. */
static void check_size(int64_t m, int64_t n, int64_t k, int layout, tl_dtype dtype, bool adds, bool is_wide,
                       bool is_fast) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *a = matrix(m, k, layout & 1, layout >> 2 & 1 ? 3 : 0, layout >> 2 & 1 ? 5 : 0, dtype);
    tl_tensor *b = matrix(k, n, layout & 2, layout >> 3 & 1 ? 1 : 0, layout >> 3 & 1 ? 2 : 0, dtype);
    const tl_dtype out_dtype = is_wide ? TL_F32 : dtype;
    tl_tensor *sum = adds ? tl_cast(tl_uniform(TL_SHAPE(m, n), -1, 1, TL_F32, NULL), out_dtype) : NULL;
    tl_set_threads(1);
    tl_tensor *out = product(a, b, sum, out_dtype, is_fast);
    expect_ok();
    check_product(a, b, sum, out, is_fast ? 0x1p-15 : 0);
    for (int threads = 2; threads <= 8; threads += threads == 3 ? 5 : 1) {
        tl_set_threads(threads);
        expect_same_bits(product(a, b, sum, out_dtype, is_fast), out);
    }
    tl_set_threads(0);
    tl_scope_end(scope);
}

static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F16};

static uint64_t random_state = 1;
static int64_t pick(int64_t from, int64_t to) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return from + (int64_t)(random_state >> 33) % (to - from + 1);
}

static void small_sizes_agree_with_plain_loops(void **state) {
    (void)state;
    for (int64_t m = 1; m <= 40; m += m < 18 ? 1 : 7)
        for (int64_t n = 1; n <= 50; n += n < 18 ? 3 : 11)
            for (int i = 0; i < 3; i++)
                check_size(m, n, pick(1, 40), (int)pick(0, 15), dtypes[i], pick(0, 1), pick(0, 1), false);
}

static void sizes_at_the_edges_of_blocks_agree_with_plain_loops(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{97, 97, 97},    {128, 96, 192}, {129, 193, 193},
                                       {96, 192, 200},  {5, 700, 500},  {700, 5, 500}, /* slices, runs */
                                       {61, 75, 767},   {61, 75, 768},  {61, 75, 769},
                                       {61, 75, 1025},  {20, 30, 2500}, /* blocks of terms */
                                       {1025, 30, 40},  {2100, 20, 30}, {30, 3073, 12},
                                       {1030, 3080, 2}, {1, 900, 900},  {900, 3, 900}, /* of the output */
                                       {200, 200, 1},   {37, 41, 3},    {64, 64, 4096}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int i = 0; i < 3; i++)
            for (int layout = 0; layout < 4; layout++)
                check_size(sizes[s][0], sizes[s][1], sizes[s][2], layout + 4 * (int)pick(0, 3), dtypes[i], pick(0, 1),
                           pick(0, 1), false);
}

static void two_bf16_parts_come_close_to_f32(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{9, 13, 5},    {40, 50, 60},   {97, 101, 97},
                                       {61, 75, 769}, {1025, 30, 40}, {130, 130, 384}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int layout = 0; layout < 16; layout++)
            check_size(sizes[s][0], sizes[s][1], sizes[s][2], layout, TL_F32, layout & 1, true, true);
}

static void precision_is_a_setting_of_the_process(void **state) {
    (void)state;
    expect_equal(tl_set_matmul_precision(TL_MATMUL_HIGH), TL_MATMUL_HIGHEST);
    tl_tensor *a = tl_uniform(TL_SHAPE(130, 140), -1, 1, TL_F32, NULL),
              *b = tl_uniform(TL_SHAPE(140, 150), -1, 1, TL_F32, NULL);
    tl_tensor *high = tl_matmul(a, b);
    expect_equal(tl_set_matmul_precision(TL_MATMUL_HIGHEST), TL_MATMUL_HIGH);
    tl_tensor *highest = tl_matmul(a, b);
    expect_same_bits(high, product(a, b, NULL, TL_F32, true));
    expect_same_bits(highest, product(a, b, NULL, TL_F32, false));
}

/* Infinity and NaN reach exactly the row and column they belong to. The second part of an infinity is NaN. */
static void what_is_not_finite_spreads_along_its_row_and_column(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        const tl_dtype dtype = dtypes[i % 3];
        tl_tensor *a = tl_ones(TL_SHAPE(70, 90), dtype, NULL), *b = tl_ones(TL_SHAPE(90, 110), dtype, NULL);
        convert_set_f64(tensor_data(a), dtype, 17 * 90 + 89, INFINITY);
        convert_set_f64(tensor_data(b), dtype, 30 * 110 + 101, NAN);
        tl_tensor *out = product(a, b, NULL, dtype, i >= 3);
        for (int64_t r = 0; r < 70; r++)
            for (int64_t c = 0; c < 110; c++) {
                const double got = at(out, r, c);
                const bool may_be_nan = i >= 3 && dtype == TL_F32;
                if (c == 101 ? !isnan(got) : r == 17 ? !isinf(got) && !(may_be_nan && isnan(got)) : got != 90)
                    fail_msg("%s: element (%lld,%lld) is %g", tl_dtype_name(dtype), (long long)r, (long long)c, got);
            }
    }
}

static void batches_give_the_bits_of_their_matrices(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {{3, 20, 30, 40}, {20, 50, 60, 70}, {2, 130, 140, 150}, {5, 1, 40, 50}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int i = 0; i < 3; i++) {
            const int64_t *z = sizes[s];
            tl_tensor *a = tl_cast(tl_uniform(TL_SHAPE(z[0], z[1], z[3]), -1, 1, TL_F32, NULL), dtypes[i]);
            tl_tensor *b = tl_cast(tl_uniform(TL_SHAPE(z[0], z[3], z[2]), -1, 1, TL_F32, NULL), dtypes[i]);
            tl_tensor *out = tl_matmul(a, b);
            for (int64_t batch = 0; batch < z[0]; batch++)
                expect_same_bits(tl_contiguous(tl_select(out, 0, batch)),
                                 tl_matmul(tl_select(a, 0, batch), tl_select(b, 0, batch)));
        }
}

/* Up to eight rows: texts that are generated together depend on it (step/session.c). */
static void a_row_has_the_same_bits_alone_and_among_eight(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{70, 1100}, {64, 4100}, {200, 64}, {131, 33}, {3, 40}}; /* n, k */
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int i = 0; i < 3; i++)
            for (int is_turned = 0; is_turned < 2; is_turned++) {
                const int64_t n = sizes[s][0], k = sizes[s][1];
                tl_tensor *a = tl_cast(tl_uniform(TL_SHAPE(8, k), -1, 1, TL_F32, NULL), dtypes[i]);
                tl_tensor *b = tl_cast(tl_uniform(TL_SHAPE(n, k), -1, 1, TL_F32, NULL), dtypes[i]);
                tl_tensor *right = is_turned ? tl_contiguous(tl_transpose(b, 0, 1)) : tl_transpose(b, 0, 1);
                tl_tensor *all = tl_matmul(a, right);
                for (int64_t m = 1; m < 8; m += m == 1 ? 1 : 3)
                    for (int64_t r = 0; r + m <= 8; r++)
                        expect_same_bits(tl_matmul(tl_slice(a, 0, r, r + m, 1), right),
                                         tl_contiguous(tl_slice(all, 0, r, r + m, 1)));
                tl_scope_reset();
            }
}

/* Peak and workspace on cpu and on meta, for every kind of product. */
static void price_and_receipt_agree_on_the_workspace(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {{1, 8, 8, 8},       {1, 200, 300, 400}, {1, 1100, 70, 1100}, {1, 1, 900, 900},
                                       {20, 90, 100, 110}, {2, 100, 110, 120}, {1, 40, 3100, 2000}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int i = 0; i < 3; i++) {
            uint64_t peak[2], workspace[2];
            for (int real = 0; real < 2; real++) {
                tl_device *device = real ? check_cpu() : check_meta();
                tl_tensor *a = tl_zeros(TL_SHAPE(sizes[s][0], sizes[s][1], sizes[s][3]), dtypes[i], device);
                tl_tensor *b = tl_zeros(TL_SHAPE(sizes[s][0], sizes[s][3], sizes[s][2]), dtypes[i], device);
                tl_ledger *ledger = tl_ledger_begin("product");
                tl_matmul(a, b);
                tl_ledger_end(ledger);
                peak[real] = tl_ledger_peak(ledger, device, TL_ALL);
                workspace[real] = tl_ledger_peak(ledger, device, TL_WORKSPACE);
                tl_ledger_free(ledger);
                tl_scope_reset();
            }
            expect_equal(peak[1], peak[0]);
            expect_equal(workspace[1], workspace[0]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(small_sizes_agree_with_plain_loops),
        TEST(sizes_at_the_edges_of_blocks_agree_with_plain_loops),
        TEST(two_bf16_parts_come_close_to_f32),
        TEST(precision_is_a_setting_of_the_process),
        TEST(what_is_not_finite_spreads_along_its_row_and_column),
        TEST(batches_give_the_bits_of_their_matrices),
        TEST(a_row_has_the_same_bits_alone_and_among_eight),
        TEST(price_and_receipt_agree_on_the_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
