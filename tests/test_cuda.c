/* test_cuda.c: the GPU does what the cpu does, costs what meta says, and does it again bit for bit.
 *
 * Runs over all samples (support/samples.c), forward and backward. Skipped, with a word, where there is no GPU. A sample
 * whose kernel is declared missing on cuda, or whose dtype is refused there by name, is counted and named, not failed.
 */
#include "support/samples.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static tl_device *cpu, *cuda, *h200;

#define MAX_RESULTS (SAMPLE_OUTPUTS + SAMPLE_INPUTS)

struct results { /* host copies of outputs, changed inputs and gradients */
    int n;
    double *values[MAX_RESULTS];
    void *bits[MAX_RESULTS];
    size_t bytes[MAX_RESULTS];
    int64_t numel[MAX_RESULTS];
    tl_dtype dtype[MAX_RESULTS];
    char missing[200]; /* why cuda did not run it */
};

static void results_free(struct results *r) {
    for (int i = 0; i < r->n; i++) free(r->values[i]), free(r->bits[i]);
    r->n = 0;
}

static void result_add(struct results *r, tl_tensor *x) {
    if (!x || tl_device_of(x) == h200) return;
    tl_tensor *host = tl_to(tl_detach(x), cpu);
    assert_true(r->n < MAX_RESULTS);
    r->numel[r->n] = tl_numel(x);
    r->dtype[r->n] = tl_dtype_of(x);
    r->values[r->n] = tensor_values(host);
    r->bits[r->n] = tensor_bits(host, &r->bytes[r->n]);
    r->n++;
}

/* Forward and, where there is a gradient, backward, in a bracket. False: not there on this device, see missing. */
static bool run(const struct sample *s, tl_device *device, tl_dtype dtype, struct results *r, struct record *record) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS] = {0};
    memset(r, 0, sizeof *r);
    tl_pool_trim(device);
    tl_scope scope = tl_scope_begin();
    tl_seed(1234);
    tl_ledger *ledger = tl_ledger_begin("sample");
    bool ok = sample_inputs(s, device, dtype, true, LAY_COUNT, in);
    int n = ok ? sample_call(s, in, out) : 0;
    bool back = n && tl_error() == TL_OK && (s->flags & GRAD) && tl_needs_grad(out[0]);
    if (back) {
        tl_seed(99);
        tl_tensor *seed = tensor_drawn(tl_rank(out[0]), tl_shape(out[0]), tl_dtype_of(out[0]), device);
        tl_backward(out[0], seed, 0);
    }
    tl_device_sync(device);
    tl_ledger_end(ledger);
    ok = tl_error() == TL_OK;
    if (!ok) snprintf(r->missing, sizeof r->missing, "%s", tl_error_message());
    tl_error_clear();
    if (ok && record) {
        memset(record, 0, sizeof *record);
        record_ledger(record, ledger, device);
    }
    for (int j = 0; ok && j < n; j++) result_add(r, out[j]);
    for (int i = 0; ok && i < SAMPLE_INPUTS; i++) {
        if (in[i] && (s->flags & WRITES)) result_add(r, in[i]);
        if (in[i] && back && tl_grad_of(in[i])) result_add(r, tl_grad_of(in[i]));
    }
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    return ok;
}

/* Within eps of the largest magnitude; results of different devices add in different orders. */
static bool results_close(const struct results *a, const struct results *b, double eps, char *why, size_t size) {
    if (a->n != b->n) return snprintf(why, size, "%d results and %d", a->n, b->n) < 0;
    for (int k = 0; k < a->n; k++) {
        double largest = 0;
        if (a->numel[k] != b->numel[k]) return snprintf(why, size, "result %d: other sizes", k) < 0;
        for (int64_t i = 0; i < b->numel[k]; i++)
            if (isfinite(b->values[k][i])) largest = fmax(largest, fabs(b->values[k][i]));
        for (int64_t i = 0; i < b->numel[k]; i++) {
            double x = a->values[k][i], y = b->values[k][i];
            double own = b->dtype[k] == TL_F32 && eps < 2e-5 ? 2e-5 : eps; /* integers give f32, whatever was asked for */
            bool same = x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= own * largest;
            if (!same)
                return snprintf(why, size, "result %d, element %lld: cuda %.9g, cpu %.9g (largest %.3g)", k,
                                (long long)i, x, y, largest) < 0;
        }
    }
    return true;
}

static bool is_absent(const char *message) {
    return strstr(message, "no cuda kernel") || strstr(message, "not on cuda") || strstr(message, "cuda has no") ||
           strstr(message, "depends on data") || strstr(message, "on cuda");
}

struct walk_counts {
    int samples, absent, failed;
    char absent_ops[1000];
};
typedef bool (*check_fn)(const struct sample *s, tl_dtype dtype, const char *name, struct walk_counts *counts);

static void walk(check_fn check, unsigned without) {
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_F16, TL_BF16};
    struct walk_counts counts = {0};
    if (!cuda) skip();
    for (const struct sample_op *op = sample_ops; op->name; op++)
        for (const struct sample *s = op->samples; s->text; s++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
                char name[200];
                unsigned takes = s->dtypes ? s->dtypes : DT_FLOATS;
                bool leaves = !strcmp(op->name, "transfer"); /* goes to another device: a different trip from here */
                if (leaves || s->error || (s->flags & without) || !(takes & DT(dtypes[d]))) continue;
                snprintf(name, sizeof name, "%s, %s, %s", op->name, s->text, tl_dtype_name(dtypes[d]));
                int absent = counts.absent;
                counts.samples++;
                if (!check(s, dtypes[d], name, &counts)) counts.failed++;
                if (counts.absent > absent && !strstr(counts.absent_ops, op->name))
                    snprintf(counts.absent_ops + strlen(counts.absent_ops),
                             sizeof counts.absent_ops - strlen(counts.absent_ops), " %s", op->name);
            }
    print_message("    %d samples, %d not on cuda (%s ), %d failed\n", counts.samples, counts.absent, counts.absent_ops,
                  counts.failed);
    assert_int_equal(counts.failed, 0);
    assert_nothing_held("after all samples", cuda);
}

static bool absent(const struct results *r, const char *name, struct walk_counts *counts) {
    if (!is_absent(r->missing)) {
        print_message("    %s: %s\n", name, r->missing);
        return false;
    }
    counts->absent++;
    return true;
}

static bool cuda_equals_cpu(const struct sample *s, tl_dtype dtype, const char *name, struct walk_counts *counts) {
    struct results a, b;
    char why[200] = "";
    double eps = dtype == TL_F64 ? 1e-12 : dtype == TL_F32 ? 2e-5 : dtype == TL_F16 ? 4e-3 : 3e-2;
    if (!run(s, cpu, dtype, &b, NULL)) return print_message("    %s: cpu: %s\n", name, b.missing), false;
    if (!run(s, cuda, dtype, &a, NULL)) return results_free(&b), absent(&a, name, counts);
    bool ok = results_close(&a, &b, eps, why, sizeof why);
    if (!ok) print_message("    %s: %s\n", name, why);
    results_free(&a), results_free(&b);
    return ok;
}

static bool cuda_costs_its_price(const struct sample *s, tl_dtype dtype, const char *name, struct walk_counts *counts) {
    static struct record price, receipt;
    struct results a, b;
    if (!run(s, h200, dtype, &b, &price)) return print_message("    %s: meta: %s\n", name, b.missing), false;
    if (!run(s, cuda, dtype, &a, &receipt)) return absent(&a, name, counts);
    const char *difference = record_difference(&price, &receipt);
    if (difference) print_message("    %s: %s\n", name, difference);
    results_free(&a), results_free(&b);
    return !difference;
}

static bool cuda_repeats_itself(const struct sample *s, tl_dtype dtype, const char *name, struct walk_counts *counts) {
    struct results first, again;
    if (!run(s, cuda, dtype, &first, NULL)) return absent(&first, name, counts);
    bool ok = true;
    for (int i = 0; ok && i < 5; i++) {
        ok = run(s, cuda, dtype, &again, NULL) && again.n == first.n;
        for (int k = 0; ok && k < first.n; k++)
            ok = first.bytes[k] == again.bytes[k] && !memcmp(first.bits[k], again.bits[k], first.bytes[k]);
        results_free(&again);
    }
    if (!ok) print_message("    %s: not the same bits again\n", name);
    results_free(&first);
    return ok;
}

static void results_equal_those_of_the_cpu(void **state) {
    (void)state;
    walk(cuda_equals_cpu, CPU_ONLY | NO_DATA);
}
static void receipts_equal_the_prices_of_meta(void **state) {
    (void)state;
    walk(cuda_costs_its_price, CPU_ONLY);
}
static void every_kernel_repeats_its_bits(void **state) {
    (void)state;
    walk(cuda_repeats_itself, CPU_ONLY | NO_DATA);
}

static void random_numbers_are_those_of_the_cpu(void **state) {
    (void)state;
    if (!cuda) skip();
    tl_scope scope = tl_scope_begin();
    tl_device *both[2] = {cpu, cuda};
    void *bits[2][4];
    size_t bytes[4];
    for (int d = 0; d < 2; d++) {
        tl_seed(7);
        bits[d][0] = tensor_bits(tl_to(tl_normal(TL_SHAPE(100003), 1, 2, TL_F32, both[d]), cpu), &bytes[0]);
        bits[d][1] = tensor_bits(tl_to(tl_uniform(TL_SHAPE(100003), -1, 1, TL_BF16, both[d]), cpu), &bytes[1]);
        bits[d][2] = tensor_bits(tl_to(tl_bernoulli(TL_SHAPE(100003), 0.3, both[d]), cpu), &bytes[2]);
        bits[d][3] = tensor_bits(tl_to(tl_integers(TL_SHAPE(100003), -5, 1000, TL_I64, both[d]), cpu), &bytes[3]);
    }
    for (int k = 0; k < 4; k++) {
        assert_memory_equal(bits[0][k], bits[1][k], bytes[k]);
        free(bits[0][k]), free(bits[1][k]);
    }
    tl_scope_end(scope);
}

static void a_bad_id_is_reported_and_nothing_breaks(void **state) {
    (void)state;
    if (!cuda) skip();
    tl_scope scope = tl_scope_begin();
    int64_t ids[3] = {0, 70000, 1};
    tl_tensor *w = tl_ones(TL_SHAPE(10, 4), TL_F32, cuda);
    tl_embedding(w, tl_from_data(ids, 1, (int64_t[]){3}, TL_I64, cuda));
    assert_false(tl_device_sync(cuda));
    assert_non_null(strstr(tl_error_message(), "70000"));
    tl_error_clear();
    assert_true(tl_item(tl_sum_all(w)) == 40);
    assert_int_equal(tl_error(), TL_OK);
    tl_scope_end(scope);
}

static void what_is_missing_says_so_by_name(void **state) {
    (void)state;
    if (!cuda) skip();
    tl_scope scope = tl_scope_begin();
    assert_null(tl_nonzero(tl_ones(TL_SHAPE(4), TL_F32, cuda)));
    assert_non_null(strstr(tl_error_message(), "nonzero"));
    tl_error_clear();
    tl_scope_end(scope);
}

/* The driver does not survive fork(): the child is told so, whatever it calls, and its cpu goes on. */
static void a_forked_child_is_refused_the_gpu_by_name(void **state) {
    (void)state;
    if (!cuda) skip();
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_ones(TL_SHAPE(4), TL_F32, cuda);
    pid_t child = fork();
    if (child == 0) {
        const char *want = "was opened before fork() and cannot be used in the child";
        bool ok = !tl_add(x, x) && strstr(tl_error_message(), want);
        tl_error_clear();
        ok = ok && !tl_empty(TL_SHAPE(2), TL_F32, cuda) && strstr(tl_error_message(), want);
        tl_error_clear();
        ok = ok && !tl_device_sync(cuda) && strstr(tl_error_message(), want);
        tl_error_clear();
        ok = ok && tl_item(tl_sum_all(tl_ones(TL_SHAPE(5), TL_F32, cpu))) == 5;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(tl_item(tl_sum_all(tl_add(x, x))) == 8); /* the parent notices nothing */
    tl_scope_end(scope);
}

static void count_release(void *context) { ++*(int *)context; }

/* Somebody's memory on the GPU (here: what another tensor lies in) is used in place, is not the pool's, and goes back once. */
static void external_memory_of_the_gpu_is_shared(void **state) {
    (void)state;
    if (!cuda) skip();
    int released = 0;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_arange(0, 1, 6, TL_F32, cuda);
    assert_non_null(tl_device_stream(cuda));
    assert_null(tl_device_stream(cpu));
    uint64_t live = tl_device_memory(cuda).live_bytes;
    tl_scope inner = tl_scope_begin();
    tl_tensor *y = tl_from_external_on(cuda, tl_data(x), 24, TL_SHAPE(3, 2), NULL, TL_F32, count_release, &released);
    assert_true(y && tl_device_of(y) == cuda && tl_data(y) == tl_data(x));
    assert_true(tl_device_memory(cuda).live_bytes == live);
    tl_affine_(y, 1, 1);
    assert_int_equal(released, 0);
    tl_scope_end(inner);
    assert_int_equal(released, 1);
    assert_true(tl_item(tl_sum_all(x)) == 21);
    tl_scope_end(scope);
}

int main(void) {
    tl_error_policy(TL_RETURN);
    cpu = tl_device_find("cpu");
    h200 = tl_device_find("meta:h200");
    cuda = tl_device_find("cuda");
    if (!cuda) {
        print_message("no GPU here: %s\n", tl_error_message());
        tl_error_clear();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_equal_those_of_the_cpu),
        cmocka_unit_test(receipts_equal_the_prices_of_meta),
        cmocka_unit_test(every_kernel_repeats_its_bits),
        cmocka_unit_test(random_numbers_are_those_of_the_cpu),
        cmocka_unit_test(a_bad_id_is_reported_and_nothing_breaks),
        cmocka_unit_test(what_is_missing_says_so_by_name),
        cmocka_unit_test(a_forked_child_is_refused_the_gpu_by_name),
        cmocka_unit_test(external_memory_of_the_gpu_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
