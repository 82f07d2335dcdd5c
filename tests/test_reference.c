/* A third device, which no file of the library mentions: it is registered, runs, is priced by meta, and serves as an
 * oracle. Every sample of every op that it has is computed by the cpu and by it, from the same bytes under the same
 * strides. */
#include "support/check.h"
#include "support/reference.h"
#include "support/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/devices.h"
#include "tensor/tensor.h"

static tl_device *reference;

/* A copy of the tensor's bytes, as a tensor of the reference with the same geometry. */
static tl_tensor *twin_of(const tl_tensor *x) {
    const int64_t n = (int64_t)(x->storage->bytes * 8 / (uint64_t)tl_dtype_bits(x->dtype));
    const size_t bytes = (size_t)x->storage->bytes;
    void *data = malloc(bytes + 1);
    assert_non_null(data);
    if (bytes) memcpy(data, x->storage->data, bytes);
    tl_tensor *all = tl_from_external(data, bytes, 1, &n, NULL, x->dtype, reference, free, data);
    return tl_as_strided(all, x->rank, x->shape, x->stride, x->offset);
}

static double tolerance(tl_dtype dtype) {
    return dtype == TL_F64 ? 1e-12 : dtype == TL_F32 ? 4e-6 : dtype == TL_F16 ? 2e-3 : dtype == TL_BF16 ? 1.6e-2 : 0;
}

/* Within eps of the largest magnitude. */
static bool is_close(tl_tensor *got, tl_tensor *want, double eps, char *why, size_t size) {
    double *a = tensor_values(got), *b = tensor_values(want), largest = 0;
    bool ok = tl_numel(got) == tl_numel(want) && tl_dtype_of(got) == tl_dtype_of(want);
    if (!ok) snprintf(why, size, "results differ in size or dtype");
    if (dtype_is_float(tl_dtype_of(want))) eps = fmax(eps, tolerance(tl_dtype_of(want)));
    for (int64_t i = 0; ok && i < tl_numel(want); i++)
        if (isfinite(b[i])) largest = fmax(largest, fabs(b[i]));
    for (int64_t i = 0; ok && i < tl_numel(want); i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) || fabs(a[i] - b[i]) <= eps * largest) continue;
        snprintf(why, size, "element %lld: cpu %.17g, reference %.17g", (long long)i, a[i], b[i]);
        ok = false;
    }
    free(a);
    free(b);
    return ok;
}

enum outcome { AGREED, ABSENT, DIFFERED };

static enum outcome compare(const struct sample *s, tl_dtype dtype, char *why, size_t size) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *twin[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS], *same[SAMPLE_OUTPUTS];
    tl_scope scope = tl_scope_begin();
    tl_seed(1234);
    enum outcome outcome = AGREED;
    bool ok = sample_inputs(s, check_cpu(), dtype, false, LAY_COUNT, in);
    for (int i = 0; ok && i < SAMPLE_INPUTS; i++) twin[i] = in[i] ? twin_of(in[i]) : NULL;
    int n = ok ? sample_call(s, in, out) : 0;
    if (tl_error() != TL_OK) fail_msg("on the cpu: %s", tl_error_message());
    int m = sample_call(s, twin, same);
    if (tl_error() != TL_OK) {
        snprintf(why, size, "%s", tl_error_message());
        outcome = strstr(why, "no kernel on reference") || strstr(why, "no reference kernel") ? ABSENT : DIFFERED;
        tl_error_clear();
    } else if (n != m) {
        snprintf(why, size, "%d results and %d", n, m);
        outcome = DIFFERED;
    }
    for (int j = 0; j < n && outcome == AGREED; j++) {
        tl_tensor *host = tl_to(tl_detach(same[j]), check_cpu());
        if (!is_close(tl_detach(out[j]), host, tolerance(dtype), why, size)) outcome = DIFFERED;
    }
    tl_scope_end(scope);
    return outcome;
}

static void the_cpu_agrees_with_plain_f64_loops(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_F16, TL_BF16};
    int n_agreed = 0, n_differed = 0, n_ops = 0, n_elementwise = 0;
    for (const struct sample_op *op = sample_ops; op->name; op++) {
        int agreed = 0;
        for (const struct sample *s = op->samples; s->text; s++)
            for (int d = 0; d < 4; d++) {
                char why[300] = "";
                const unsigned takes = s->dtypes ? s->dtypes : DT_FLOATS;
                const bool leaves = s->flags & (CPU_ONLY | NO_DATA | VIA_BACKWARD);
                if (leaves || s->error || !(takes & DT(dtypes[d])) || !reference->kernels[op->id]) continue;
                const enum outcome outcome = compare(s, dtypes[d], why, sizeof why);
                if (outcome == DIFFERED)
                    print_message("    %s, %s, %s: %s\n", op->name, s->text, tl_dtype_name(dtypes[d]), why);
                n_differed += outcome == DIFFERED;
                agreed += outcome == AGREED;
            }
        n_agreed += agreed;
        n_ops += agreed > 0;
#define UNARY(name_, ...) n_elementwise += !strcmp(op->name, #name_) && agreed > 0;
#define BINARY(name_, ...) n_elementwise += !strcmp(op->name, #name_) && agreed > 0;
#define SPECIAL(...)
#include "spec/elementwise_list.h"
    }
    print_message("    %d ops, %d of them elementwise, %d samples: %d differ\n", n_ops, n_elementwise, n_agreed,
                  n_differed);
    assert_int_equal(n_differed, 0);
    assert_true(n_ops >= 45 && n_elementwise >= 35 && n_agreed >= 400);
    assert_nothing_held("after all samples", reference);
}

static void a_registered_device_is_priced_by_meta(void **state) {
    (void)state;
    tl_device *device[2] = {reference, tl_device_find("meta:reference")};
    uint64_t peak[2];
    for (int i = 0; i < 2; i++) {
        tl_scope scope = tl_scope_begin();
        tl_ledger *ledger = tl_ledger_begin("step");
        tl_tensor *x = tl_full(TL_SHAPE(5, 7), 1.5, TL_F64, device[i]);
        tl_tensor *two = tl_full(TL_SHAPE(5), 2, TL_F64, device[i]);
        tl_tensor *product = tl_matmul(x, tl_transpose(x, 0, 1)), *y = tl_mul(product, two);
        if (i == 0) expect_values(tl_to(tl_sum(y, NULL, 0, false), check_cpu()), 5 * 5 * 7 * 1.5 * 1.5 * 2);
        tl_ledger_end(ledger);
        peak[i] = tl_ledger_peak(ledger, device[i], TL_TEMPORARY);
        tl_ledger_free(ledger);
        tl_scope_end(scope);
    }
    expect_true(peak[0] >= peak[1] && peak[1] == 8 * (35 + 5 + 25 + 25));
}

static void what_it_lacks_and_names_that_are_taken_are_refused(void **state) {
    (void)state;
    static const struct device_driver again = {.name = "reference"}, cuda = {.name = "cuda"}, meta = {.name = "meta"};
    expect_true(!device_register(&again) && !device_register(&cuda) && !device_register(&meta));
    expect_refused(tl_cumsum(tl_full(TL_SHAPE(3), 1, TL_F32, reference), 0), "no kernel on reference");
    expect_true(!tl_device_find("reference:1"));
    expect_error(TL_ERROR_DEVICE, "reference:1: no such device");
    expect_true(!tl_device_find("reference@h200"));
    expect_error(TL_ERROR_DEVICE, "the reference is itself alone");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_cpu_agrees_with_plain_f64_loops),
        TEST(a_registered_device_is_priced_by_meta),
        TEST(what_it_lacks_and_names_that_are_taken_are_refused),
    };
    reference = reference_device();
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
