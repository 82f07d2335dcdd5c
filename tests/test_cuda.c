/* test_cuda.c: the GPU gives the CPU's results at meta's price, and repeats them bit for bit.
 *
 * Runs over all samples (support/samples.c), forward and backward. Without a GPU the tests are skipped, with a
 * message. A sample whose dtype the GPU refuses is counted and listed, and does not fail. TALLY_TEST_OP=norm walks
 * only the ops with that in their names (!norm: only the others), TALLY_TEST_DTYPE=f32,f64 only these dtypes,
 * TALLY_TEST_PART=2/8 every eighth sample from the second on; TALLY_TEST=NAME runs only the tests of that name ('*'
 * stands for anything).
 */
#include "ops/ops.h"
#include "step/generate.h"
#include "support/samples.h"

#include "base/rng_math.h"
#include "tensor/convert.h"
#include "tensor/device.h"
#include "tensor/format.h"

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

/* Forward and, where there is a gradient, backward, in a ledger. False: not available on this device, see missing. */
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

/* Within eps of the largest magnitude; results of different devices add in different orders. The worst element is
 * named. least[k]: the magnitude of result k is taken to be at least this; NULL: as it is. */
static bool results_close(const struct results *a, const struct results *b, double eps, const double *least, char *why,
                          size_t size) {
    bool ok = true;
    double worst = 0;
    if (a->n != b->n) return snprintf(why, size, "%d results and %d", a->n, b->n) < 0;
    for (int k = 0; k < a->n; k++) {
        double largest = least ? least[k] : 0,
               own = b->dtype[k] == TL_F32 && eps < 2e-5 ? 2e-5 : eps; /* integers give f32 in every run */
        if (a->numel[k] != b->numel[k]) return snprintf(why, size, "result %d: other sizes", k) < 0;
        for (int64_t i = 0; i < b->numel[k]; i++)
            if (isfinite(b->values[k][i])) largest = fmax(largest, fabs(b->values[k][i]));
        int64_t n_wrong = 0;
        for (int64_t i = 0; i < b->numel[k]; i++) {
            double x = a->values[k][i], y = b->values[k][i], error = fabs(x - y) / largest;
            if (x == y || (isnan(x) && isnan(y)) || error <= own) continue;
            n_wrong++;
            if (!(error > worst) && !ok) continue; /* NaN counts once */
            worst = error;
            ok = false;
            snprintf(why, size, "result %d[%lld]: cuda %.9g, cpu %.9g, error %.2g of the largest, %.3g", k,
                     (long long)i, x, y, error, largest);
        }
        size_t used = strlen(why);
        if (n_wrong && used < size)
            snprintf(why + used, size - used, "; %lld of %lld wrong", (long long)n_wrong, (long long)b->numel[k]);
    }
    return ok;
}

static bool is_absent(const char *message) {
    return strstr(message, "no cuda kernel") || strstr(message, "depends on data");
}

struct walk_counts {
    int samples, absent, failed;
    char absent_ops[4000];
};
typedef bool (*check_fn)(const struct sample *s, tl_dtype dtype, const char *name, struct walk_counts *counts);

/* Whether the i-th sample belongs to the part that TALLY_TEST_PART selects. */
static bool is_of_part(int i) {
    const char *text = getenv("TALLY_TEST_PART");
    int part = 1, n_parts = 1;
    if (text && (sscanf(text, "%d/%d", &part, &n_parts) != 2 || n_parts < 1)) fail_msg("TALLY_TEST_PART=%s", text);
    return i % n_parts == part - 1;
}

static bool is_asked_for(const char *op) {
    const char *only = getenv("TALLY_TEST_OP");
    return !only || (*only == '!' ? !strstr(op, only + 1) : strstr(op, only) != NULL);
}

static bool is_asked_for_dtype(tl_dtype dtype) {
    const char *only = getenv("TALLY_TEST_DTYPE"), *name = tl_dtype_name(dtype);
    if (!only) return true;
    for (const char *at = only; (at = strstr(at, name)); at++) { /* a whole name: bf16 is not f16 */
        const char end = at[strlen(name)];
        if ((at == only || at[-1] == ',') && (!end || end == ',')) return true;
    }
    return false;
}

static void walk(check_fn check, unsigned without) {
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2};
    struct walk_counts counts = {0};
    if (!cuda) skip();
    int n_met = 0;
    for (const struct sample_op *op = sample_ops; op->name; op++)
        for (const struct sample *s = op->samples; s->text && is_asked_for(op->name); s++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
                char name[200];
                unsigned takes = s->dtypes ? s->dtypes : DT_FLOATS;
                bool leaves = !strcmp(op->name, "transfer"); /* goes to another device: another transfer from here */
                if (leaves || s->error || (s->flags & without) || !(takes & DT(dtypes[d]))) continue;
                if (!is_asked_for_dtype(dtypes[d]) || !is_of_part(n_met++)) continue;
                snprintf(name, sizeof name, "%s, %s, %s", op->name, s->text, tl_dtype_name(dtypes[d]));
                int absent = counts.absent;
                counts.samples++;
                if (!check(s, dtypes[d], name, &counts)) counts.failed++;
                char own[80];
                snprintf(own, sizeof own, " %s:%s", op->name, tl_dtype_name(dtypes[d]));
                if (counts.absent > absent && !strstr(counts.absent_ops, own))
                    snprintf(counts.absent_ops + strlen(counts.absent_ops),
                             sizeof counts.absent_ops - strlen(counts.absent_ops), "%s", own);
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

static double largest_magnitude(const struct results *r, int k) {
    double largest = 0;
    for (int64_t i = 0; i < r->numel[k]; i++)
        if (isfinite(r->values[k][i])) largest = fmax(largest, fabs(r->values[k][i]));
    return largest;
}

/* Infinite where one of the two is NaN and the other is not. */
static double largest_error(const struct results *r, const struct results *exact, int k) {
    double most = 0;
    for (int64_t i = 0; i < exact->numel[k]; i++) {
        const double x = r->values[k][i], y = exact->values[k][i], error = fabs(x - y);
        if (x == y || (isnan(x) && isnan(y))) continue;
        most = isnan(error) ? INFINITY : fmax(most, error);
    }
    return most;
}

/* In 16 bits cuda may be twice as far from the exact result (f64 on cpu, of the same inputs: samples are exact in 16
 * bits) as cpu is, which computes in f32 and rounds at the end; or as one rounding of the largest element, where cpu
 * was lucky. */
static bool within_twice_the_error(const struct results *cuda_has, const struct results *cpu_has,
                                   const struct results *exact, double rounding, char *why, size_t size) {
    for (int k = 0; k < exact->n; k++) {
        double largest = largest_magnitude(exact, k);
        double own = largest_error(cuda_has, exact, k), other = largest_error(cpu_has, exact, k);
        if (own > 2 * fmax(other, rounding * largest))
            return snprintf(why, size, "result %d of up to %.4g: error %.3g on cuda, %.3g on cpu", k, largest, own,
                            other) < 0;
    }
    return true;
}

static bool holds_16_bits(const struct sample *s, tl_dtype dtype, const char *name, const struct results *cuda_has,
                          const struct results *cpu_has, char *why, size_t size) {
    struct results exact;
    unsigned takes = s->dtypes ? s->dtypes : DT_FLOATS;
    bool is_16 = dtype == TL_F16 || dtype == TL_BF16, is_rounded = (s->flags & ROUNDS) || !(takes & DT(TL_F64));
    /* Its logits have 16 bits on cuda and not on cpu; the_head_is_as_exact_as_its_parts holds what comes of that. */
    if (!is_16 || is_rounded || !strncmp(name, "linear_cross_entropy", 20)) return true;
    if (!run(s, cpu, TL_F64, &exact, NULL)) return snprintf(why, size, "f64: %.150s", exact.missing) < 0;
    bool ok = exact.n == cuda_has->n &&
              within_twice_the_error(cuda_has, cpu_has, &exact, dtype == TL_F16 ? 0x1p-11 : 0x1p-8, why, size);
    results_free(&exact);
    return ok;
}

static bool cuda_equals_cpu(const struct sample *s, tl_dtype dtype, const char *name, struct walk_counts *counts) {
    struct results a, b;
    char why[200] = "";
    double eps = dtype == TL_F64      ? 1e-12
                 : dtype == TL_F32    ? 2e-5
                 : dtype == TL_F16    ? 4e-3
                 : dtype == TL_BF16   ? 3e-2
                 : dtype == TL_F8E4M3 ? 0.125 /* a result on the other side of a tie */
                                      : 0.25;
    if (!strncmp(name, "linear_cross_entropy", 20) && (dtype == TL_F16 || dtype == TL_BF16)) eps *= 2; /* see above */
    if (!run(s, cpu, dtype, &b, NULL)) return print_message("    %s: cpu: %s\n", name, b.missing), false;
    if (!run(s, cuda, dtype, &a, NULL)) return results_free(&b), absent(&a, name, counts);
    bool ok =
        results_close(&a, &b, eps, NULL, why, sizeof why) && holds_16_bits(s, dtype, name, &a, &b, why, sizeof why);
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
    for (int i = 0; ok && i < 2; i++) {
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

/* The same program on both devices: the bits of everything it `gives` are the same. */
struct both {
    int n, device;
    void *bits[128];
    size_t bytes[128];
    char differs[400];
};
static void give(struct both *both, tl_tensor *x, const char *name) {
    size_t bytes = 0;
    int at = both->n++;
    assert_true(at < 128);
    void *bits = x ? tensor_bits(tl_to(tl_detach(x), cpu), &bytes) : NULL;
    if (!x) snprintf(both->differs, sizeof both->differs, "%s: %s", name, tl_error_message());
    if (both->device == 0) {
        both->bits[at] = bits;
        both->bytes[at] = bytes;
        return;
    }
    bool same = bits && both->bits[at] && bytes == both->bytes[at] && !memcmp(bits, both->bits[at], bytes);
    size_t used = strlen(both->differs);
    if (!same) {
        size_t first = 0;
        while (bits && both->bits[at] && first < bytes && ((char *)bits)[first] == ((char *)both->bits[at])[first])
            first++;
        snprintf(both->differs + used, sizeof both->differs - used, " %s (byte %zu of %zu)", name, first, bytes);
    }
    free(bits);
    free(both->bits[at]);
}
static void on_both(void (*program)(struct both *both, tl_device *device)) {
    struct both both = {0};
    tl_device *devices[2] = {cpu, cuda};
    if (!cuda) skip();
    for (both.device = 0; both.device < 2; both.device++) {
        both.n = 0;
        tl_seed(7);
        tl_scope scope = tl_scope_begin();
        program(&both, devices[both.device]);
        tl_scope_end(scope);
        if (tl_error() != TL_OK)
            print_message("    %s: %s\n", tl_device_name(devices[both.device]), tl_error_message());
        assert_int_equal(tl_error(), TL_OK);
    }
    if (*both.differs) print_message("    not the cpu's bits:%s\n", both.differs);
    assert_int_equal(*both.differs, 0);
}

static void draw_everything(struct both *both, tl_device *device) {
    give(both, tl_normal(TL_SHAPE(100003), 1, 2, TL_F32, device), "normal f32");
    give(both, tl_normal(TL_SHAPE(1003), 1, 2, TL_F64, device), "normal f64");
    give(both, tl_uniform(TL_SHAPE(100003), -1, 1, TL_BF16, device), "uniform bf16");
    give(both, tl_uniform(TL_SHAPE(1003), -1, 1, TL_F8E4M3, device), "uniform f8e4m3");
    give(both, tl_bernoulli(TL_SHAPE(100003), 0.3, device), "bernoulli");
    give(both, tl_bernoulli(TL_SHAPE(50, 2000), 0.3, device), "bernoulli in packs");
    give(both, tl_integers(TL_SHAPE(100003), -5, 1000, TL_I64, device), "integers");
    tl_tensor *x = tl_zeros(TL_SHAPE(301, 70), TL_F32, device), *y = tl_zeros(TL_SHAPE(70, 31), TL_F64, device);
    give(both, tl_normal_(tl_transpose(x, 0, 1), 0, 1), "normal_ of a transpose");
    give(both, tl_trunc_normal_(x, 0.5, 2, -1, 1.5), "trunc_normal_ f32");
    give(both, tl_trunc_normal_(y, 3, 1, 3.5, 6), "trunc_normal_ f64");
    give(both, tl_uniform_(y, 2, 3), "uniform_ f64");
    give(both, tl_permutation(7, device), "permutation of 7");
    give(both, tl_permutation(2048, device), "permutation of 2048");
    give(both, tl_permutation(100003, device), "permutation of 100003");
    tl_tensor *p = tl_uniform(TL_SHAPE(19, 5003), 0, 1, TL_F32, device),
              *few = tl_uniform(TL_SHAPE(40, 50), 0, 1, TL_F64, device);
    tl_tensor *zero = tl_zeros(TL_SHAPE(19, 100), TL_F32, device);
    tl_copy_(tl_slice(p, 1, 300, 400, 1), zero);
    give(both, tl_multinomial(p, 100, true), "multinomial of 5003");
    give(both, tl_multinomial(p, 100, false), "multinomial of 5003 without replacement");
    give(both, tl_multinomial(few, 7, true), "multinomial of 50");
    give(both, tl_multinomial(few, 50, false), "multinomial of 50 without replacement");
    give(both, tl_multinomial(tl_select(p, 0, 3), 1, true), "multinomial of a row");
}
/* Rows that are walked in packs, and rows that are not; the gradient drops the same elements. */
static void drop_everything(struct both *both, tl_device *device) {
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F16};
    for (int i = 0; i < 6; i++) {
        tl_tensor *x = tl_normal(TL_SHAPE(300, i < 3 ? 64 : 35), 0, 1, dtypes[i % 3], device);
        tl_tensor *y = tl_dropout(tl_requires_grad(x, true), 0.2);
        give(both, y, "dropout");
        tl_backward(tl_sum_all(tl_mul(y, y)), NULL, 0);
        give(both, tl_grad_of(x), "gradient of dropout");
    }
}

static void random_numbers_are_those_of_the_cpu(void **state) {
    (void)state;
    on_both(draw_everything);
    on_both(drop_everything);
}

/* A list has parameters that are updated in packs and others, empty ones, and random words of each. */
static void step_many(struct both *both, tl_device *device) {
    tl_optimizer *o = tl_optimizer_new(TL_ADAMW);
    tl_tensor *p[30], *scale = tl_full(TL_SCALAR, 0.5, TL_F32, device);
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        tl_optimizer_options options = tl_optimizer_defaults(TL_ADAMW);
        options.weight_decay = i % 2 ? 0.125 : 0;
        options.has_master = i % 2 == 0;
        options.stochastic = i % 2;
        const tl_dtype dtype = i % 7 == 6 ? TL_F16 : i % 3 ? TL_BF16 : TL_F32;
        const int64_t n = i % 4 == 3 ? i % 8 : i % 5 == 4 ? 40003 : 8 * i * i;
        p[i] = tl_requires_grad(tl_normal(TL_SHAPE(n), 0, 1, dtype, device), true);
        assert_true(tl_set_grad(p[i], tl_normal(TL_SHAPE(n), 0, 1, dtype, device)));
        assert_true(tl_optimizer_add(o, name, p[i], &options));
    }
    for (int step = 0; step < 3; step++) assert_true(tl_optimizer_step(o, 1, scale));
    for (int i = 0; i < 30; i++) give(both, p[i], "a parameter");
    tl_optimizer_free(o);
}
static void many_parameters_step_as_on_the_cpu(void **state) {
    (void)state;
    on_both(step_many);
}

static void quantize_one(struct both *both, tl_tensor *x, const char *name) {
    static const char *const modes[] = {"nearest", "saturate", "stochastic"};
    for (int format = 0; format < TL_FORMAT_COUNT; format++) {
        tl_rounding mode = (tl_rounding)(format % 3);
        char text[80];
        tl_quantized q;
        assert_true(tl_quantize(x, (tl_format)format, mode, &q));
        snprintf(text, sizeof text, "%s, format %d, %s", name, format, modes[mode]);
        give(both, q.values, text);
        give(both, q.scales, text);
        if (q.tensor_scale) give(both, q.tensor_scale, text);
        give(both, tl_dequantize(&q, TL_BF16), text);
        give(both, tl_fake_quantize(x, (tl_format)format, (tl_rounding)((format + 2) % 3)), text);
    }
}
/* Numbers of every size, with blocks of zeros and of infinities. Made by the cpu: exp has other last bits elsewhere. */
static tl_tensor *wild_numbers(tl_device *device) {
    tl_tensor *x = tl_exp(tl_scale(tl_normal(TL_SHAPE(64, 64), 0, 1, TL_F64, cpu), 30));
    tl_fill_(tl_slice(x, 0, 3, 5, 1), INFINITY);
    tl_fill_(tl_slice(x, 0, 7, 8, 1), 0);
    return tl_to(x, device);
}
static void quantize_normal(struct both *both, tl_device *device) {
    quantize_one(both, tl_normal(TL_SHAPE(37, 128), 0, 3, TL_F32, device), "normal");
}
static void quantize_wild(struct both *both, tl_device *device) { quantize_one(both, wild_numbers(device), "wild"); }
static void cast_everything(struct both *both, tl_device *device) {
    tl_tensor *wild = wild_numbers(device), *i = tl_integers(TL_SHAPE(500), -1000000, 1000000, TL_I64, device);
    char name[80];
    for (int d = TL_F32; d <= TL_F4E2M1; d++)
        for (int mode = 1; mode < 3; mode++) {
            snprintf(name, sizeof name, "cast to %s, mode %d", tl_dtype_name((tl_dtype)d), mode);
            give(both, tl_round_to(wild, (tl_dtype)d, (tl_rounding)mode), name);
        }
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        snprintf(name, sizeof name, "integers as %s", tl_dtype_name((tl_dtype)d));
        give(both, tl_cast(i, (tl_dtype)d), name);
        snprintf(name, sizeof name, "floats as %s, and back", tl_dtype_name((tl_dtype)d));
        give(both, tl_cast(tl_cast(tl_slice(wild, 0, 8, 40, 1), (tl_dtype)d), TL_F32), name);
    }
    give(both, tl_contiguous(tl_cast(tl_transpose(wild, 0, 1), TL_F8E5M2)), "a transpose as f8e5m2");
}
static void quantized_bits_are_those_of_the_cpu(void **state) {
    (void)state;
    on_both(quantize_normal);
    on_both(quantize_wild);
    on_both(cast_everything);
}

/* Numbers on both sides of where another code begins, in f32, and numbers of any bits. The words of rounding at random
 * are known, so numbers can be where these decide. */
enum wild_kind { WILD_BITS, WILD_NEAR, WILD_NEAR_AT_RANDOM, WILD_KINDS };
enum wild_size { WILD_SMALL, WILD_USUAL, WILD_LARGE, WILD_SIZES };
static struct {
    tl_dtype dtype;
    enum wild_kind kind;
    enum wild_size size;
    uint64_t drawn;
} wild;
static const tl_generator wild_generator = {7, 3, 64};

/* Both devices draw the same. */
static void wild_begin(void) { wild.drawn = (uint64_t)(wild.kind * WILD_SIZES + wild.size) << 32; }
static uint32_t wild_word(void) { return rng_draw_at((struct rng_key){11, 5}, wild.drawn++); }
static double wild_between(double low, double high) { return low + wild_word() * 0x1p-32 * (high - low); }
static float a_bit_off(double x) {
    float y = (float)x;
    int steps = (int)(wild_word() % 7) - 3;
    for (int i = 0; i < abs(steps); i++) y = nextafterf(y, steps > 0 ? INFINITY : 0);
    return y;
}

/* The value that lies `place` codes above 0, between two of them where that is no integer. */
static double at_place(tl_dtype dtype, double place) {
    const uint16_t code[2] = {(uint16_t)place, (uint16_t)(place + 1)};
    const double low = convert_get_f64(&code[0], dtype, 0), high = convert_get_f64(&code[1], dtype, 0);
    return low + (place - floor(place)) * (high - low);
}
/* Half way between two codes, and where element i is rounded up. */
static double middle_place(uint32_t n_codes) { return wild_word() % (n_codes - 1) + 0.5; }
static double turning_place(uint32_t n_codes, int64_t i) {
    const struct rng_key key = {wild_generator.seed, wild_generator.stream};
    const double middle = middle_place(n_codes);
    if (wild.kind != WILD_NEAR_AT_RANDOM) return middle;
    return middle + 0.5 - rng_draw_at(key, wild_generator.index + (uint64_t)i) * 0x1p-32;
}
static uint32_t codes_of(tl_dtype dtype) {
    return dtype == TL_F8E4M3 ? 0x7F : dtype == TL_F8E5M2 ? 0x7C : dtype == TL_F4E2M1 ? 8 : 0x7C00; /* finite */
}

/* What the elements of a block are divided by whose largest is `largest`; whole: of the tensor. */
static double divisor_of(const struct format_info *format, double largest, double whole) {
    uint8_t code;
    if (format->has_codes) return largest;
    if (!format->has_tensor_scale) return ldexp(1, (int)fmax(-127, ilogb(largest) - format->max_exponent));
    convert_set_f64(&code, TL_F8E4M3, 0, fmax(largest / (6 * whole), 0x1p-9));
    return convert_get_f64(&code, TL_F8E4M3, 0) * whole;
}
static void near_block(float *x, const struct format_info *format, double most, int64_t first) {
    static const float nf4[NF4_CODES] = {NF4_LIST};
    const double whole = format->has_tensor_scale ? (double)(float)fmax(most / (448 * 6), 0x1p-126) : 1;
    float largest = (float)(most * exp2(wild_between(-20, 0)));
    if (format->has_tensor_scale && wild_word() % 2)
        largest = a_bit_off(6 * whole * at_place(TL_F8E4M3, middle_place(0x7F)));
    if (first == 0 || largest > most) largest = (float)most;
    const double by = divisor_of(format, largest, whole);
    for (int i = 0; i < format->block; i++) {
        const uint32_t k = wild_word() % (NF4_CODES - 1);
        const double turn = format->has_codes
                                ? 0.5 * ((double)nf4[k] + (double)nf4[k + 1])
                                : at_place(format->values, turning_place(codes_of(format->values), first + i));
        const float near = a_bit_off(turn * by), held = near > largest ? largest : near;
        x[i] = i == 0 ? largest : wild_word() % 2 ? -held : held;
    }
    if (first && wild_word() % 8 == 0) memset(x, 0, (size_t)format->block * sizeof *x);
}

/* n elements of wild.dtype; NaN of f16 are positive, since the GPU widens them so. */
static tl_tensor *wild_bits(int64_t n) {
    const size_t size = wild.dtype == TL_F32 ? 4 : 2;
    char *bits = malloc((size_t)n * size);
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = wild_word();
        if (i / 64 % 2 && wild.dtype == TL_F16) word &= 0xBFFF; /* blocks of finite numbers */
        if (wild.dtype == TL_F16 && (word & 0x7C00) == 0x7C00) word &= 0x7FFF;
        memcpy(bits + (size_t)i * size, &word, size);
    }
    tl_tensor *x = tl_from_data(bits, 1, &n, wild.dtype, cpu);
    free(bits);
    return x;
}
static tl_tensor *wild_row(const struct format_info *format, int64_t n) {
    if (wild.kind == WILD_BITS) return wild_bits(n);
    float *numbers = malloc((size_t)n * sizeof *numbers);
    static const int exponents[WILD_SIZES][2] = {{-137, -120}, {-8, 4}, {100, 113}};
    const int *exponent = exponents[wild.dtype == TL_F16 ? WILD_USUAL : wild.size];
    const double size = exp2(floor(wild_between(exponent[0], exponent[1])));
    const double most = (double)(float)(size * (wild_word() % 2 ? 2688 : wild_between(1, 2)));
    for (int64_t i = 0; i < n; i += format->block) near_block(numbers + i, format, most, i);
    tl_tensor *x = tl_cast(tl_from_data(numbers, 1, &n, TL_F32, cpu), wild.dtype);
    free(numbers);
    return x;
}
/* The same numbers in rows: dense, one element behind where a pack may begin, or beside each other. */
static tl_tensor *wild_view(tl_tensor *row, int64_t columns, int kind, tl_device *device) {
    tl_tensor *x = tl_to(tl_reshape(row, TL_SHAPE(-1, columns)), device);
    tl_tensor *wide = tl_zeros(TL_SHAPE(tl_size(x, 0), columns + 1), wild.dtype, device),
              *part = tl_slice(wide, 1, 1, TL_END, 1);
    if (kind == 0) return x;
    if (kind == 2) return tl_transpose(tl_contiguous(tl_transpose(x, 0, 1)), 0, 1);
    return tl_copy_(part, x), part;
}

static void quantize_wild_packs(struct both *both, tl_device *device) {
    char text[100];
    wild_begin();
    for (int f = 0; f < TL_FORMAT_COUNT; f++) {
        const struct format_info *format = format_info((tl_format)f);
        tl_tensor *row = wild_row(format, 20 * 448);
        for (int mode = 0; mode < (format->has_codes ? 2 : 3); mode++) {
            tl_quantized q;
            tl_tensor *x = wild_view(row, 448, (f + mode) % 3, device);
            snprintf(text, sizeof text, "%s from %s, kind %d of size %d, mode %d", format->name,
                     tl_dtype_name(wild.dtype), wild.kind, wild.size, mode);
            tl_generator_set(wild_generator);
            assert_true(tl_quantize(x, (tl_format)f, (tl_rounding)mode, &q));
            give(both, q.values, text);
            give(both, q.scales, text);
            if (q.tensor_scale) give(both, q.tensor_scale, text);
            tl_generator_set(wild_generator);
            give(both, tl_fake_quantize(x, (tl_format)f, (tl_rounding)mode), text);
        }
    }
}

/* Numbers of another dtype near its codes. */
static tl_tensor *near_codes(tl_dtype dtype, int64_t n) {
    float *numbers = malloc((size_t)n * sizeof *numbers);
    for (int64_t i = 0; i < n; i++) {
        const float near = a_bit_off(at_place(dtype, turning_place(codes_of(dtype), i)));
        numbers[i] = wild_word() % 2 ? -near : near;
    }
    tl_tensor *x = tl_cast(tl_from_data(numbers, 1, &n, TL_F32, cpu), wild.dtype);
    free(numbers);
    return x;
}
static void cast_wild_packs(struct both *both, tl_device *device) {
    static const tl_dtype to[] = {TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2, TL_F8E8M0, TL_F4E2M1};
    char text[100];
    wild_begin();
    for (int i = 0; i < 6; i++)
        for (int mode = TL_NEAREST; mode <= TL_STOCHASTIC; mode++) {
            if (mode == TL_NEAREST && i < 2) continue; /* their NaN are the GPU's */
            const bool is_near = wild.kind != WILD_BITS && to[i] != TL_F8E8M0;
            tl_tensor *row = is_near ? near_codes(to[i], 13 * 176) : wild_bits(13 * 176);
            tl_tensor *views[] = {wild_view(row, 176, 0, device), wild_view(row, 176, 1, device),
                                  wild_view(row, 176, 2, device), wild_view(row, 26, 1, device),
                                  tl_slice(tl_to(row, device), 0, 0, 1006, 1)}; /* a pack and a part */
            snprintf(text, sizeof text, "%s to %s, kind %d, mode %d", tl_dtype_name(wild.dtype), tl_dtype_name(to[i]),
                     wild.kind, mode);
            for (int view = 0; view < 5; view++) {
                tl_generator_set(wild_generator);
                give(both, tl_round_to(views[view], to[i], (tl_rounding)mode), text);
            }
        }
}

/* Any codes and scales; the first blocks have all codes of 4 bits, and the scales 1.625 and 2^-9. Of a product of
 * two NaN the sign is either's, so no scale of 8-bit values is NaN. */
static tl_tensor *wild_codes(tl_dtype dtype, int64_t rows, int64_t columns, tl_device *device) {
    const int64_t n = rows * columns;
    uint32_t *words = malloc((size_t)n * sizeof *words);
    for (int64_t i = 0; i < n; i++) {
        words[i] = wild_word();
        if (dtype == TL_F8E8M0) words[i] &= 0xFEFEFEFE;
        if (dtype == TL_F4E2M1 && i < 8) words[i] = i % 2 ? 0xFEDCBA98 : 0x76543210;
        if (dtype == TL_F8E4M3 && i == 0) words[i] = 0x81BD013D;
        const bool is_finite = (words[i] & 0x7F800000) != 0x7F800000;
        if (dtype == TL_F32 && !is_finite) words[i] = 0x7FC00000; /* the only NaN that quantize makes */
    }
    tl_tensor *x = tl_from_data(words, TL_SHAPE(rows, columns), dtype, device);
    free(words);
    return x;
}
/* All codes of 8 and 4 bits as wider floats: packs, with a part behind them, and rows that begin anywhere. */
static void widen_wild_packs(struct both *both, tl_device *device) {
    static const tl_dtype to[] = {TL_F32, TL_F16, TL_BF16};
    char text[100];
    wild_begin();
    for (int d = TL_F8E4M3; d <= TL_F4E2M1; d++) {
        const bool is_f4 = d == TL_F4E2M1; /* has no other strides */
        tl_tensor *x = wild_codes((tl_dtype)d, 20, 448, device), *row = tl_reshape(x, TL_SHAPE(-1));
        tl_tensor *views[] = {x,
                              tl_slice(x, 1, 0, 440, 1),
                              tl_slice(row, 0, 0, 1006, 1),
                              tl_slice(row, 0, 2, 8920, 1),
                              is_f4 ? x : tl_transpose(x, 0, 1),
                              is_f4 ? x : tl_expand(tl_slice(x, 0, 3, 4, 1), TL_SHAPE(5, 448))};
        for (int i = 0; i < 3; i++)
            for (int view = 0; view < 6; view++) {
                snprintf(text, sizeof text, "%s to %s, view %d", tl_dtype_name((tl_dtype)d), tl_dtype_name(to[i]),
                         view);
                give(both, tl_cast(views[view], to[i]), text);
            }
    }
}
static void dequantize_wild_packs(struct both *both, tl_device *device) {
    static const tl_dtype to[] = {TL_F64, TL_F32, TL_F16, TL_BF16, TL_F8E4M3};
    /* A product is a bit more than half way between two numbers of bf16: 1.5 x 2^-9 t, a bit more than 2^-134, where
     * f32 has no bits for the rest, and 3 x 1.625 t, a bit more than 1 + 2^-8; and of f16, 1 + 2^-11. */
    static const float sizes[WILD_SIZES] = {0x1.555556p-126f, 0x1.a5be5cp-3f, 0x1.a44ec6p-3f};
    char text[100];
    wild_begin();
    for (int f = 0; f < TL_FORMAT_COUNT; f++) {
        const struct format_info *format = format_info((tl_format)f);
        const tl_quantized q = {(tl_format)f, wild_codes(format->values, 20, format->has_codes ? 224 : 448, device),
                                wild_codes(format->scales, 20, 448 / format->block, device),
                                format->has_tensor_scale ? tl_full(TL_SCALAR, sizes[wild.size], TL_F32, device) : NULL};
        for (int i = 0; i < 5; i++) {
            snprintf(text, sizeof text, "%s to %s, size %d", format->name, tl_dtype_name(to[i]), wild.size);
            give(both, tl_dequantize(&q, to[i]), text);
        }
    }
}

static void packs_are_quantized_to_the_bits_of_the_cpu(void **state) {
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F16};
    (void)state;
    for (int i = 0; i < WILD_KINDS * WILD_SIZES; i++) {
        wild.kind = (enum wild_kind)(i % WILD_KINDS);
        wild.size = (enum wild_size)(i / WILD_KINDS);
        if (wild.kind == WILD_BITS) on_both(dequantize_wild_packs);
        if (i == 0) on_both(widen_wild_packs);
        for (int d = 0; d < 3; d++) {
            wild.dtype = dtypes[d];
            on_both(quantize_wild_packs);
            on_both(cast_wild_packs);
        }
    }
}

/* Larger than the samples: several runs of a sort, several chunks, places shared by many elements. */
/* Many values for few places, in lines and in rows; and sums of integers. */
static void write_many(struct both *both, tl_device *device, tl_tensor *id) {
    give(both, tl_bincount(id, 300, NULL), "bincount");
    give(both, tl_bincount(tl_integers(TL_SHAPE(50001), 0, 40000, TL_I64, device), 40000, NULL), "bincount, many bins");
    tl_tensor *lines = tl_normal(TL_SHAPE(7, 3001), 0, 1, TL_BF16, device);
    tl_tensor *places = tl_integers(TL_SHAPE(7, 3001), 0, 1500, TL_I64, device);
    give(both, tl_scatter_add(lines, 1, places, lines), "scatter_add of lines");
    give(both, tl_scatter(lines, 1, places, lines), "scatter of lines");
    tl_tensor *rows = tl_normal(TL_SHAPE(900, 333), 0, 1, TL_BF16, device);
    tl_tensor *numbers = tl_integers(TL_SHAPE(900), 0, 40, TL_I64, device);
    give(both, tl_index_add(tl_zeros(TL_SHAPE(40, 333), TL_BF16, device), 0, numbers, rows, 1), "index_add of rows");
    tl_tensor *few = tl_slice(numbers, 0, 0, 300, 1), *first = tl_slice(rows, 0, 0, 300, 1);
    give(both, tl_index_add(tl_zeros(TL_SHAPE(40, 333), TL_BF16, device), 0, few, first, 1), "index_add of 300 rows");
    give(both, tl_index_put(rows, (int[]){0}, &few, 1, first, false), "index_put of 300 rows");
    give(both, tl_index_put(rows, (int[]){0}, &numbers, 1, rows, false), "index_put of 900 rows");
}

/* Lines of thousands: in parts, with an index of their own or one for all. */
static void index_lines(struct both *both, tl_device *device) {
    tl_tensor *x = tl_normal(TL_SHAPE(3, 20001), 0, 1, TL_F32, device);
    tl_tensor *places = tl_integers(TL_SHAPE(3, 20001), 0, 20001, TL_I64, device);
    give(both, tl_scatter_add(x, 1, places, x), "scatter_add of three long lines");
    give(both, tl_scatter_add_(tl_clone(x), 1, places, x), "the same in place");
    tl_tensor *lines = tl_normal(TL_SHAPE(300, 3001), 0, 1, TL_BF16, device);
    tl_tensor *columns = tl_integers(TL_SHAPE(1500), 0, 3001, TL_I32, device);
    tl_tensor *chosen = tl_index_select(lines, 1, columns);
    give(both, chosen, "index_select of columns");
    give(both, tl_index_add(lines, 1, columns, chosen, 1), "index_add of columns");
    give(both, tl_gather(x, 1, places), "gather of long lines");
    give(both, tl_gather(lines, 1, tl_expand(columns, TL_SHAPE(300, 1500))), "gather of many lines");
    tl_tensor *many = tl_normal(TL_SHAPE(1301, 2365), 0, 1, TL_F32, device);
    tl_tensor *some = tl_integers(TL_SHAPE(1086), 0, 2365, TL_I64, device);
    give(both, tl_index_select(many, 1, some), "index_select of columns, several lines for each block");
    tl_tensor *three = tl_slice(many, 1, 0, 3, 1), *five = tl_integers(TL_SHAPE(5), 0, 3, TL_I64, device);
    give(both, tl_index_add_(tl_clone(three), 1, five, tl_slice(many, 1, 3, 8, 1), 1), "index_add of few columns");
    const int axis = 0; /* 1,301 rows, of which many are put more than once */
    tl_tensor *rows = tl_integers(TL_SHAPE(1300), 0, 1301, TL_I64, device), *put = tl_slice(many, 1, 0, 333, 1);
    give(both, tl_index_put(put, &axis, &rows, 1, tl_slice(put, 0, 0, 1300, 1), false), "index_put of many rows");
    give(both, tl_index_put_(tl_clone(put), &axis, &rows, 1, tl_slice(put, 0, 1, 1301, 1), false), "the same in place");
}

/* Sums of rows that get thousands: one strip of them, several or more than there are multiprocessors, of whole lanes
 * and others; rows that get none, several or a whole tile of slots; several tiles. */
static void add_to_rows(struct both *both, tl_device *device) {
    static const struct {
        int64_t rows, columns, n, n_places;
    } cases[] = {{1776, 39, 4720, 1776}, {300, 150, 9001, 1},      {40, 333, 1500, 40},
                 {5, 64, 2000, 3},       {20001, 33, 4500, 20001}, {70, 9001, 40, 70}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char name[64];
        snprintf(name, sizeof name, "index_add of %d to %dx%d", (int)cases[k].n, (int)cases[k].rows,
                 (int)cases[k].columns);
        for (int d = TL_F32; d <= TL_BF16; d++) {
            tl_tensor *x = tl_normal(TL_SHAPE(cases[k].rows, cases[k].columns), 0, 1, (tl_dtype)d, device);
            tl_tensor *source = tl_normal(TL_SHAPE(cases[k].n, cases[k].columns), 0, 1, (tl_dtype)d, device);
            tl_tensor *ids = tl_integers(TL_SHAPE(cases[k].n), 0, cases[k].n_places, k % 2 ? TL_I32 : TL_I64, device);
            give(both, tl_index_add(x, 0, ids, source, 1), name);
            tl_tensor *of_each = tl_expand(tl_unsqueeze(ids, 1), TL_SHAPE(cases[k].n, cases[k].columns));
            give(both, tl_scatter_add_(x, 0, of_each, source), "the same by scatter_add_");
        }
    }
    tl_tensor *x = tl_normal(TL_SHAPE(3, 500, 40), 0, 1, TL_F32, device), *turned = tl_transpose(x, 0, 1);
    tl_tensor *source = tl_normal(TL_SHAPE(3, 2500, 40), 0, 1, TL_F32, device);
    tl_tensor *ids = tl_integers(TL_SHAPE(2500), 0, 500, TL_I64, device);
    give(both, tl_index_add(x, 1, ids, source, 1), "index_add along the axis in the middle");
    give(both, tl_index_add(turned, 0, ids, tl_transpose(source, 0, 1), 1), "the same along the first");
}

/* Sums of very many rows: grouped by place, in units of 16 bytes and one by one, of one part of columns and of two.
 * Groups of few, of many, and of more than a block sorts; places without any; fewer places than are grouped. Ids count
 * from the end, and are apart. */
static void add_in_groups(struct both *both, tl_device *device) {
    static const struct {
        tl_dtype dtype;
        int64_t rows, columns, n, n_places;
    } cases[] = {{TL_F64, 3001, 40, 20480, 3001}, {TL_F16, 20001, 33, 20483, 20001}, {TL_BF16, 320, 264, 20480, 300},
                 {TL_F32, 330, 132, 20500, 3},    {TL_F32, 5000, 33, 20480, 2500},   {TL_F32, 319, 32, 20480, 319}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char name[64];
        snprintf(name, sizeof name, "index_add of %d to %dx%d", (int)cases[k].n, (int)cases[k].rows,
                 (int)cases[k].columns);
        tl_tensor *x = tl_normal(TL_SHAPE(cases[k].rows, cases[k].columns), 0, 1, cases[k].dtype, device);
        tl_tensor *source = tl_normal(TL_SHAPE(cases[k].n, cases[k].columns), 0, 1, cases[k].dtype, device);
        tl_tensor *ids = tl_integers(TL_SHAPE(cases[k].n), 0, cases[k].n_places, k % 2 ? TL_I32 : TL_I64, device);
        give(both, tl_index_add(x, 0, ids, source, 1), name);
        give(both, tl_index_add_(x, 0, ids, source, 1), "the same in place");
    }
    tl_tensor *wide = tl_normal(TL_SHAPE(2000, 50), 0, 1, TL_BF16, device), *x = tl_slice(wide, 1, 1, 33, 1);
    tl_tensor *ids = tl_integers(TL_SHAPE(41000), -2000, 2000, TL_I64, device), *apart = tl_slice(ids, 0, 0, 41000, 2);
    tl_tensor *source = tl_normal(TL_SHAPE(20500, 32), 0, 1, TL_BF16, device);
    give(both, tl_index_put(x, (int[]){0}, &apart, 1, source, true), "index_put, from the end");
    give(both, tl_index_put_(x, (int[]){0}, &apart, 1, tl_slice(source, 0, 0, 1, 1), true), "the same row for all");
}

/* Sums of 16 bits in place, where few of many rows or columns get any: of one slot and of several; in all sizes. */
static void add_few(struct both *both, tl_device *device) {
    static const struct {
        int64_t rows, columns;
        int n, axis, n_places;
    } cases[] = {{203, 373, 6, 1, 373}, {900, 373, 150, 1, 40},  {5, 5001, 1, 1, 5001},
                 {203, 77, 40, 0, 203}, {3001, 300, 1000, 0, 9}, {3000, 8, 70, 0, 3000}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const bool is_of_rows = cases[k].axis == 0;
        const int64_t n = cases[k].n;
        char name[64];
        snprintf(name, sizeof name, "index_add_ of %d of %d along axis %d", (int)n,
                 (int)(is_of_rows ? cases[k].rows : cases[k].columns), cases[k].axis);
        tl_tensor *x = tl_normal(TL_SHAPE(cases[k].rows, cases[k].columns), 0, 1, k % 2 ? TL_F16 : TL_BF16, device);
        tl_tensor *source = tl_normal(TL_SHAPE(is_of_rows ? n : cases[k].rows, is_of_rows ? cases[k].columns : n), 0, 1,
                                      tl_dtype_of(x), device);
        tl_tensor *ids = tl_integers(TL_SHAPE(n), 0, cases[k].n_places, k % 3 ? TL_I64 : TL_I32, device);
        give(both, tl_index_add_(x, cases[k].axis, ids, source, 1), name);
    }
    tl_tensor *sorted, *indices;
    for (int d = TL_F64; d <= TL_BF16; d++) {
        assert_true(
            tl_sort(tl_cast(tl_normal(TL_SHAPE(37), 0, 1, TL_F32, device), (tl_dtype)d), 0, false, &sorted, &indices));
        give(both, tl_searchsorted(sorted, tl_cast(tl_normal(TL_SHAPE(900), 0, 1, TL_F32, device), (tl_dtype)d), d % 2),
             "searchsorted in 37 numbers");
    }
}

/* Lines in parts whose slots are listed: all types, cells for each place and by hash, one list and many. */
static void long_lines(struct both *both, tl_device *device) {
    static const struct {
        int64_t n_lines, n;
        tl_dtype dtype, index;
    } cases[] = {{2, 40001, TL_F32, TL_I64},  {64, 8400, TL_BF16, TL_I64}, {70, 20001, TL_F32, TL_I32},
                 {40, 13001, TL_F64, TL_I64}, {5, 7001, TL_F16, TL_I32},   {1, 300001, TL_F32, TL_I64}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t n_lines = cases[k].n_lines, n = cases[k].n;
        char name[64];
        snprintf(name, sizeof name, "scatter_add, %d lines of %d, %s", (int)n_lines, (int)n,
                 tl_dtype_name(cases[k].dtype));
        tl_tensor *x = tl_cast(tl_normal(TL_SHAPE(n_lines, n), 0, 1, TL_F32, device), cases[k].dtype);
        tl_tensor *places = tl_integers(TL_SHAPE(n_lines, n), 0, n, cases[k].index, device);
        give(both, tl_scatter_add(x, 1, places, x), name);
    }
    tl_tensor *x = tl_normal(TL_SHAPE(2, 9001), 0, 1, TL_F32, device);
    tl_tensor *few = tl_integers(TL_SHAPE(2, 9001), 4000, 4003, TL_I64, device);
    give(both, tl_scatter_add(x, 1, few, x), "scatter_add of many values for few places of a long line");
    tl_tensor *apart = tl_transpose(tl_contiguous(tl_transpose(x, 0, 1)), 0, 1);
    tl_tensor *ids = tl_transpose(tl_integers(TL_SHAPE(9001, 2), 0, 9001, TL_I64, device), 0, 1);
    give(both, tl_scatter_add(x, 1, ids, apart), "scatter_add of strided long lines");
}

static void order_everything(struct both *both, tl_device *device) {
    tl_tensor *values, *indices, *counts;
    tl_tensor *x = tl_cast(tl_integers(TL_SHAPE(20, 9001), -3000, 3000, TL_I64, device), TL_F32);
    for (int k = 0; k < 2; k++) {
        assert_true(tl_sort(x, 1, k, &values, &indices));
        give(both, values, "sorted values");
        give(both, indices, "sorted indices");
    }
    assert_true(tl_sort(tl_cast(x, TL_BF16), 0, false, &values, &indices));
    give(both, indices, "sorted along axis 0");
    for (int k = 0; k < 2; k++) { /* keys whose high digits, or all of them, are the same */
        tl_tensor *alike = tl_integers(TL_SHAPE(2, 9001), 5, k ? 6 : 70000, TL_I64, device);
        assert_true(tl_sort(alike, 1, k, &values, &indices));
        give(both, values, "sorted values whose digits are alike");
        give(both, indices, "sorted indices of those");
        assert_true(tl_unique(alike, &values, &indices, &counts));
        give(both, values, "unique values of those");
        give(both, indices, "unique inverse of those");
        give(both, counts, "unique counts of those");
    }
    assert_true(tl_topk(x, 10, 1, true, &values, &indices));
    give(both, indices, "topk");
    tl_tensor *i = tl_cast(tl_select(x, 0, 0), TL_I64);
    assert_true(tl_unique(i, &values, &indices, &counts));
    give(both, values, "unique values");
    give(both, indices, "unique inverse");
    give(both, counts, "unique counts");
    give(both, tl_nonzero(tl_cmp_scalar(x, TL_GT, tl_scalar_int(2500))), "nonzero");
    give(both, tl_searchsorted(values, tl_integers(TL_SHAPE(1000), -4000, 4000, TL_I64, device), true), "searchsorted");
    tl_tensor *id = tl_integers(TL_SHAPE(50000), 0, 300, TL_I64, device);
    tl_tensor *g = tl_normal(TL_SHAPE(50000), 0, 1, TL_F32, device),
              *wide = tl_normal(TL_SHAPE(5000, 24), 0, 1, TL_BF16, device);
    give(both, tl_scatter_add(tl_zeros(TL_SHAPE(300), TL_F32, device), 0, id, g), "scatter_add");
    give(both, tl_scatter(tl_zeros(TL_SHAPE(300), TL_F32, device), 0, id, g), "scatter");
    give(both,
         tl_scatter_add(tl_zeros(TL_SHAPE(300, 24), TL_BF16, device), 0,
                        tl_expand(tl_unsqueeze(tl_slice(id, 0, 0, 5000, 1), 1), TL_SHAPE(5000, 24)), wide),
         "scatter_add bf16");
    give(both, tl_argmax(x, NULL, 0, false), "argmax of all");
    write_many(both, device, id);
    assert_true(tl_topk(tl_cast(x, TL_BF16), 100, 1, false, &values, &indices));
    give(both, values, "smallest of equal ones");
    give(both, indices, "their indices");
    give(both, tl_masked_select(x, tl_cmp_scalar(x, TL_LT, tl_scalar_int(-1))), "masked_select");
    give(both, tl_flip(tl_slice(x, 1, 3, TL_END, 1), (int[]){0, 1}, 2), "flip");
    give(both, tl_mul(tl_slice(x, 1, 1, TL_END, 1), tl_slice(x, 1, 0, -1, 1)), "product of rows that are not aligned");
    give(both, tl_concat((tl_tensor *[]){tl_cast(x, TL_BF16), tl_cast(x, TL_BF16)}, 2, 1), "concat of odd rows");
    give(both, tl_argmin(x, (int[]){0}, 1, false), "argmin along axis 0");
    give(both, tl_min(x, NULL, 0, false), "min of all");
    give(both, tl_max(tl_transpose(x, 0, 1), (int[]){0}, 1, false), "max along axis 0");
    give(both, tl_cumsum(i, 0), "cumsum of integers");
}

/* Counts of several tiles, whose elements fill a part of the result, many or none: few and many of 0, one that is
 * huge, one for all; i32, and strided. */
static void repeat_by_counts(struct both *both, tl_device *device) {
    static const struct {
        int64_t n, low, high, step, huge;
        tl_dtype dtype;
    } cases[] = {{1, 0, 4, 1, 0, TL_I64},        {31, 0, 2, 1, 0, TL_I32},       {4096, 1, 2, 1, 0, TL_I64},
                 {4097, 0, 4, 2, 5000, TL_I64},  {5000, 0, 1, 1, 0, TL_I32},     {9001, 0, 1, 3, 50001, TL_I64},
                 {10001, 0, 9, 1, 8192, TL_I32}, {300, 0, 200, 3, 4096, TL_I32}, {12289, -300, 2, 1, 0, TL_I64},
                 {40, 0, 3000, 2, 0, TL_I64},    {8192, 0, 3, 1, 20000, TL_I64}, {20001, -80, 60, 2, 70000, TL_I32}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t n = cases[k].n, step = cases[k].step;
        char name[64];
        tl_tensor *counts = tl_integers(TL_SHAPE(n * step), cases[k].low, cases[k].high, cases[k].dtype, device);
        counts = tl_slice(tl_relu(counts), 0, step - 1, TL_END, step); /* those below 0 become 0 */
        if (cases[k].huge) tl_fill_(tl_slice(counts, 0, n / 3, n / 3 + 1, 1), (double)cases[k].huge);
        snprintf(name, sizeof name, "repeat_interleave of %d, %d apart", (int)n, (int)step);
        give(both, tl_repeat_counts(tl_arange(0, 1, n, TL_I32, device), 0, counts), name);
    }
    give(both, tl_repeat_counts(tl_arange(0, 1, 5000, TL_I32, device), 0, tl_full(TL_SCALAR, 3, TL_I64, device)),
         "repeat_interleave by one count for all");
}
/* Numbers for a sort: few or many different ones; among floats NaN, infinities and both zeros. */
static tl_tensor *to_sort(int64_t n, int64_t m, int64_t n_values, tl_dtype dtype, tl_device *device) {
    static uint64_t word;
    const bool is_float = dtype < TL_I64;
    double *x = malloc((size_t)(n * m) * sizeof *x);
    assert_non_null(x);
    word = (uint64_t)(n * 1000003 + m * 101 + n_values + (int)dtype);
    for (int64_t i = 0; i < n * m; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        const int64_t value = (int64_t)((word >> 33) % (uint64_t)n_values) - n_values / 2;
        const unsigned special = (unsigned)(word >> 20) % 64;
        x[i] = is_float ? (double)value * 0.37 : (double)value;
        if (is_float && special < 4) x[i] = (double[]){NAN, -0.0, 0.0, -INFINITY}[special];
    }
    tl_tensor *wide = tl_from_data(x, 2, ((int64_t[]){n, m}), TL_F64, cpu);
    free(x);
    return tl_to(tl_cast(wide, dtype), device);
}

/* Lines of n elements beside m others: columns of x and of the results, of either, or of neither; a column in three
 * axes, of every other element, or backwards. k: as many first places. */
enum sort_layout { OF_BOTH, OF_X, OF_RESULTS, IN_THREE, EVERY_OTHER, BACKWARDS };
static void sort_lines_of(struct both *both, tl_device *device, tl_dtype dtype, int64_t n, int64_t m, int64_t k,
                          enum sort_layout layout, int64_t n_values) {
    const bool is_turned = layout == OF_RESULTS, has_more = layout == EVERY_OTHER;
    tl_tensor *x = to_sort(is_turned ? m : n, is_turned ? n : has_more ? 2 * m : m, n_values, dtype, device);
    tl_tensor *values, *indices;
    int axis = 0;
    if (layout == OF_X || layout == OF_RESULTS) x = tl_transpose(x, 0, 1);
    if (layout == OF_X) axis = 1;
    if (layout == IN_THREE && m % 2 == 0) {
        x = tl_transpose(tl_view(x, TL_SHAPE(n, 2, m / 2)), 0, 1);
        axis = 1;
    }
    if (has_more) x = tl_slice(x, 1, 1, TL_END, 2);
    if (layout == BACKWARDS) x = tl_flip(x, &axis, 1);
    char name[80];
    snprintf(name, sizeof name, "%s: %d of %d lines of %d, layout %d", tl_dtype_name(dtype), (int)k, (int)m, (int)n,
             (int)layout);
    assert_true(k ? tl_topk(x, k, axis, k % 2, &values, &indices) : tl_sort(x, axis, n % 2, &values, &indices));
    give(both, values, name);
    give(both, indices, name);
}

static void sort_long_columns(struct both *both, tl_device *device) {
    static const struct {
        tl_dtype dtype;
        int64_t n, m, k, n_values;
        enum sort_layout layout;
    } cases[] = {
        {TL_F32, 3073, 41, 0, 1 << 30, OF_BOTH},    {TL_F32, 3074, 9, 0, 40, OF_X},
        {TL_F32, 4001, 10, 0, 1 << 20, OF_RESULTS}, {TL_BF16, 3145, 32, 0, 1 << 20, OF_BOTH},
        {TL_BF16, 3333, 10, 0, 3000, OF_X},         {TL_F16, 6401, 9, 0, 900, OF_RESULTS},
        {TL_F64, 3200, 12, 0, 1 << 30, OF_BOTH},    {TL_F64, 3111, 8, 0, 5, OF_RESULTS},
        {TL_I64, 3100, 18, 0, 1 << 30, IN_THREE},   {TL_I64, 3500, 10, 0, 1, OF_BOTH},
        {TL_I64, 3079, 8, 0, 200, OF_RESULTS},      {TL_I32, 6999, 8, 0, 1 << 30, EVERY_OTHER},
        {TL_I16, 3300, 13, 0, 60000, BACKWARDS},    {TL_U8, 3073, 8, 0, 100, OF_BOTH},
        {TL_BOOL, 3500, 22, 0, 2, IN_THREE},        {TL_BF16, 3500, 10, 0, 1, OF_BOTH},
        {TL_BF16, 3500, 10, 0, 1, OF_RESULTS},      {TL_F32, 3500, 10, 0, 1, OF_RESULTS},
        {TL_F8E4M3, 3400, 8, 0, 100, OF_BOTH},      {TL_F32, 5000, 11, 1300, 1 << 30, OF_BOTH},
        {TL_F64, 3200, 8, 801, 1 << 30, OF_BOTH},   {TL_BF16, 4000, 14, 1001, 77, OF_X},
        {TL_F32, 3500, 7, 0, 1 << 30, OF_BOTH},     {TL_U16, 10007, 1, 0, 60000, EVERY_OTHER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        sort_lines_of(both, device, cases[i].dtype, cases[i].n, cases[i].m, cases[i].k, cases[i].layout,
                      cases[i].n_values);
}
static void sort_short_columns(struct both *both, tl_device *device) {
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_I32, TL_F16, TL_U8, TL_I64, TL_BOOL, TL_F64};
    static const int64_t lengths[] = {1, 2, 9, 31, 32, 64, 100, 127, 128, 129, 200, 256, 257, 300, 500, 511, 512, 513};
    for (int i = 0; i < 27; i++) {
        const int64_t n = lengths[i * 7 % 18], m = 1 + i * 29 % 70, k = i % 4 == 3 ? (n + 1) / 2 : 0;
        sort_lines_of(both, device, dtypes[i % 8], n, m, k, (enum sort_layout)(i * 5 % 6), i % 3 ? 1 << 30 : 30);
    }
    for (int i = 0; i < 5; i++) /* enough lines for groups of 8 in each layout */
        sort_lines_of(both, device, dtypes[i], 40 + 110 * i, 67 - i, 0, i % 2 ? OF_RESULTS : OF_BOTH, 1 << 20);
}

static void columns_are_sorted_as_on_the_cpu(void **state) {
    (void)state;
    on_both(sort_short_columns);
    on_both(sort_long_columns);
}

static void counts_repeat_as_on_the_cpu(void **state) {
    (void)state;
    on_both(repeat_by_counts);
}

/* Running sums of whole numbers, which all orders of f64 have exactly, from both ends: rows of units, which groups of 8
 * threads, warps, blocks and several blocks have, some partly; rows that are not; in place. */
static void sum_rows(struct both *both, tl_device *device) {
    static const int64_t lengths[] = {24, 64, 65, 72, 1000, 1024, 1032, 4104, 4105, 40008};
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F16, TL_I32};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int d = 0; d < 4; d++) {
            char name[64];
            snprintf(name, sizeof name, "cumsum of rows of %d, %s", (int)lengths[k], tl_dtype_name(dtypes[d]));
            tl_tensor *x = tl_cast(tl_integers(TL_SHAPE(3, lengths[k]), -9, 9, TL_I64, device), dtypes[d]);
            if (dtypes[d] != TL_I32) {
                tl_tensor *g = tl_clone(x), *leaf = tl_requires_grad(tl_detach(x), true);
                assert_true(tl_backward(tl_cumsum(leaf, 1), g, 0));
                give(both, tl_grad_of(leaf), name);
            }
            give(both, tl_cumsum_(x, 1), name);
        }
}

static void orders_are_those_of_the_cpu(void **state) {
    (void)state;
    on_both(order_everything);
    on_both(index_lines);
    on_both(long_lines);
    on_both(add_few);
    on_both(add_to_rows);
    on_both(add_in_groups);
    on_both(sum_rows);
}

/* The loss in chunks, with rows left out, against the CPU; sums have different orders. */
static double head_difference(tl_dtype dtype, int64_t N, int64_t V, int64_t C, bool is_sum) {
    double *values[2][3], worst = 0;
    tl_device *devices[2] = {cpu, cuda};
    for (int d = 0; d < 2; d++) {
        tl_scope scope = tl_scope_begin();
        tl_seed(11);
        tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(N, C), 0, 1, dtype, devices[d]), true);
        tl_tensor *w = tl_requires_grad(tl_normal(TL_SHAPE(V, C), 0, 0.3, dtype, devices[d]), true);
        tl_tensor *targets = tl_integers(TL_SHAPE(N), 0, V, TL_I64, devices[d]);
        tl_fill_(tl_slice(targets, 0, 1, TL_END, 5), -100);
        tl_linear_cross_entropy_options o = tl_linear_cross_entropy_defaults();
        o.is_sum = is_sum;
        tl_tensor *loss = tl_linear_cross_entropy(x, w, targets, &o);
        assert_true(loss && tl_backward(loss, NULL, 0));
        tl_tensor *all[3] = {loss, tl_grad_of(x), tl_grad_of(w)};
        for (int k = 0; k < 3; k++) values[d][k] = tensor_values(tl_to(tl_detach(all[k]), cpu));
        tl_scope_end(scope);
    }
    int64_t numel[3] = {1, N * C, V * C};
    for (int k = 0; k < 3; k++) {
        double largest = 0, error = 0;
        for (int64_t i = 0; i < numel[k]; i++) {
            largest = fmax(largest, fabs(values[0][k][i]));
            double e = fabs(values[0][k][i] - values[1][k][i]);
            if (!(e <= error)) error = e;
        }
        if (!(error / largest <= worst)) worst = error / largest;
        free(values[0][k]), free(values[1][k]);
    }
    return worst;
}
static void losses_in_chunks_are_those_of_the_cpu(void **state) {
    (void)state;
    if (!cuda) skip();
    static const struct {
        tl_dtype dtype;
        double limit;
    } rows[] = {{TL_F64, 1e-12}, {TL_F32, 2e-5}, {TL_F16, 4e-3}, {TL_BF16, 3e-2}};
    bool ok = true;
    for (int i = 0; i < 4; i++)
        for (int is_sum = 0; is_sum < 2; is_sum++)
            for (int odd = 0; odd < 2;
                 odd++) { /* 80000 logits: 832 rows of f64 to a chunk on cuda, 1536 of f32, 3328 of 16 bits */
                double error = head_difference(rows[i].dtype, 4000, odd ? 80001 : 80000, 8, is_sum);
                if (error <= rows[i].limit) continue;
                print_message("    head %s, sum %d, odd %d: error %.3g\n", tl_dtype_name(rows[i].dtype), is_sum, odd,
                              error);
                ok = false;
            }
    assert_true(ok);
}

/* ---- The head in 16 bits: not more than twice as far from f64 as a product and a loss of that dtype are ---- */

enum head_form { HEAD_F64, HEAD_PARTS, HEAD_FUSED };

/* Few rows; enough for kernels with exponentials; logits so far above those of the targets that these overflow. */
static const struct head_case {
    int64_t N, V, C;
    double scale;
} head_cases[] = {{192, 997, 64, 0.3}, {4200, 4099, 72, 0.3}, {4200, 4099, 72, 8}};

static void head_gradients(const struct head_case *h, enum head_form form, tl_dtype dtype, struct results *r) {
    tl_scope scope = tl_scope_begin();
    tl_device *device = form == HEAD_FUSED ? cuda : cpu;
    tl_seed(77);
    tl_tensor *x = tl_normal(TL_SHAPE(h->N, h->C), 0, 1, dtype, cpu),
              *w = tl_normal(TL_SHAPE(h->V, h->C), 0, h->scale, dtype, cpu);
    tl_tensor *targets = tl_integers(TL_SHAPE(h->N), 0, h->V, TL_I64, cpu);
    tl_fill_(tl_slice(targets, 0, 150, 190, 1), -100);
    targets = tl_to(targets, device);
    tl_dtype used = form == HEAD_F64 ? TL_F64 : dtype;
    x = tl_requires_grad(tl_detach(tl_cast(tl_to(x, device), used)), true);
    w = tl_requires_grad(tl_detach(tl_cast(tl_to(w, device), used)), true);
    tl_cross_entropy_options ignores = tl_cross_entropy_defaults();
    ignores.ignore_index = -100;
    tl_tensor *loss = form == HEAD_PARTS ? tl_cross_entropy(tl_linear(x, w, NULL), targets, &ignores)
                                         : tl_linear_cross_entropy(x, w, targets, NULL);
    tl_backward(loss, NULL, 0);
    result_add(r, tl_grad_of(x));
    result_add(r, tl_grad_of(w));
    result_add(r, loss);
    assert_int_equal(tl_error(), TL_OK);
    tl_scope_end(scope);
}

/* root of the sum of (a - b)^2 of result k; NULL: 0 */
static double apart(const struct results *a, const struct results *b, int k) {
    double sum = 0;
    for (int64_t i = 0; i < a->numel[k]; i++) sum += pow(a->values[k][i] - (b ? b->values[k][i] : 0), 2);
    return sqrt(sum);
}

static double distance(const struct results *a, const struct results *b, int k) {
    return apart(a, b, k) / apart(b, NULL, k);
}

static void the_head_is_as_exact_as_its_parts(void **state) {
    (void)state;
    if (!cuda) skip();
    static const char *const names[] = {"dx", "dweight", "loss"};
    bool ok = true;
    for (int i = 0; i < 2 * (int)(sizeof head_cases / sizeof *head_cases); i++) {
        const struct head_case *h = &head_cases[i / 2];
        const tl_dtype dtype = i % 2 ? TL_F16 : TL_BF16;
        struct results exact = {0}, parts = {0}, fused = {0}, again = {0};
        head_gradients(h, HEAD_F64, dtype, &exact);
        head_gradients(h, HEAD_PARTS, dtype, &parts);
        head_gradients(h, HEAD_FUSED, dtype, &fused);
        head_gradients(h, HEAD_FUSED, dtype, &again);
        for (int k = 0; k < 3; k++) {
            double own = distance(&fused, &exact, k), theirs = distance(&parts, &exact, k);
            print_message("    %lld rows, %s of %s: %.2g from f64, its parts %.2g\n", (long long)h->N, names[k],
                          tl_dtype_name(dtype), own, theirs);
            ok = ok && own <= 2 * theirs && apart(&fused, &again, k) == 0;
        }
        results_free(&exact), results_free(&parts), results_free(&fused), results_free(&again);
    }
    assert_true(ok);
}

/* ---- Weights in blocks that are multiplied in parts, and rows that are not aligned ---- */

struct block_case {
    tl_dtype dtype;
    int64_t n_rows, n_out, n_in;
    bool is_shifted; /* x begins at an odd element */
};
static const struct block_case block_cases[] = {{TL_BF16, 40, 9232, 4096, false}, {TL_F32, 24, 4096, 4160, false},
                                                {TL_F16, 33, 4112, 8192, false},  {TL_BF16, 1, 4096, 4096, false},
                                                {TL_BF16, 3, 1040, 2048, true},   {TL_F32, 8, 1040, 2048, true}};

/* y and dx: by reading the blocks, or by the weight that dequantize makes of them, exactly or in the same dtype. */
enum { BLOCKS_READ, BLOCKS_UNPACKED, BLOCKS_EXACT };
static void block_results(const struct block_case *b, tl_format format, int way, struct results *r) {
    const tl_dtype dtype = way == BLOCKS_EXACT ? TL_F64 : b->dtype;
    const bool has_bias = tl_dtype_bits(b->dtype) == 16;
    tl_scope scope = tl_scope_begin();
    tl_quantized q;
    tl_seed(79);
    tl_tensor *w = tl_normal(TL_SHAPE(b->n_out, b->n_in), 0, 1, TL_F32, cuda);
    tl_tensor *flat = tl_cast(tl_normal(TL_SHAPE(b->n_rows * b->n_in + b->is_shifted), 0, 1, b->dtype, cuda), dtype);
    tl_tensor *bias = tl_cast(tl_normal(TL_SHAPE(b->n_out), 0, 1, b->dtype, cuda), dtype);
    tl_tensor *g = tl_cast(tl_normal(TL_SHAPE(b->n_rows, b->n_out), 0, 1, b->dtype, cuda), dtype);
    assert_true(tl_quantize(w, format, TL_NEAREST, &q));
    tl_tensor *x = tl_reshape(tl_slice(flat, 0, b->is_shifted, TL_END, 1), TL_SHAPE(b->n_rows, b->n_in));
    tl_requires_grad(x = tl_detach(x), true);
    tl_tensor *y;
    if (way == BLOCKS_READ) y = linear_quantized(x, &q, has_bias ? bias : NULL);
    else y = tl_linear(x, tl_cast(tl_dequantize(&q, b->dtype), dtype), has_bias ? bias : NULL);
    tl_backward(y, g, 0);
    result_add(r, y);
    result_add(r, tl_grad_of(x));
    assert_int_equal(tl_error(), TL_OK);
    tl_scope_end(scope);
}

static void weights_in_blocks_are_multiplied_in_parts(void **state) {
    (void)state;
    static const tl_format formats[] = {TL_NF4, TL_NVFP4, TL_MXFP4, TL_MXFP8_E4M3, TL_MXFP8_E5M2};
    if (!cuda) skip();
    bool ok = true;
    for (size_t i = 0; i < sizeof block_cases / sizeof *block_cases; i++)
        for (int f = 0; f < 5; f++) {
            struct results exact = {0}, unpacked = {0}, read = {0}, again = {0};
            block_results(&block_cases[i], formats[f], BLOCKS_EXACT, &exact);
            block_results(&block_cases[i], formats[f], BLOCKS_UNPACKED, &unpacked);
            block_results(&block_cases[i], formats[f], BLOCKS_READ, &read);
            block_results(&block_cases[i], formats[f], BLOCKS_READ, &again);
            for (int k = 0; k < 2; k++) {
                const double own = distance(&read, &exact, k), theirs = distance(&unpacked, &exact, k);
                const bool holds = own <= 2 * theirs && apart(&read, &again, k) == 0;
                if (!holds)
                    print_message("    case %zu, %s, %s: %.2g from f64, unpacked %.2g\n", i, tl_format_name(formats[f]),
                                  k ? "dx" : "y", own, theirs);
                ok = ok && holds;
            }
            results_free(&exact), results_free(&unpacked), results_free(&read), results_free(&again);
        }
    assert_true(ok);
}

/* ---- MLPs as one op, with several tiles for each block: the same rule for the result and all gradients ---- */

static void mlp_results(bool is_gated, bool is_joined, tl_dtype drawn_as, tl_dtype dtype, struct results *r) {
    enum { X, UP, DOWN, UP_BIAS, DOWN_BIAS, GATE = UP_BIAS, N_IN = 5 };
    static const int64_t shapes[N_IN][2] = {{4200, 264}, {1032, 264}, {136, 1032}, {1032, 264}, {136, 1}};
    tl_scope scope = tl_scope_begin();
    tl_tensor *in[N_IN];
    tl_seed(78);
    for (int i = 0; i < N_IN; i++) {
        const bool is_bias = i >= UP_BIAS && !(is_gated && i == GATE);
        tl_tensor *drawn = tl_normal(is_bias ? 1 : 2, shapes[i], 0, i == X ? 1 : 0.1, drawn_as, cpu);
        in[i] = tl_requires_grad(tl_detach(tl_cast(tl_to(drawn, cuda), dtype)), true);
    }
    tl_tensor *y;
    if (is_gated)
        y = is_joined ? swiglu_mlp(in[X], in[GATE], in[UP], in[DOWN])
                      : tl_linear(tl_swiglu(tl_linear(in[X], in[GATE], NULL), tl_linear(in[X], in[UP], NULL)), in[DOWN],
                                  NULL);
    else
        y = is_joined ? gelu_mlp(in[X], in[UP], in[UP_BIAS], in[DOWN], in[DOWN_BIAS])
                      : tl_linear(tl_gelu(tl_linear(in[X], in[UP], in[UP_BIAS])), in[DOWN], in[DOWN_BIAS]);
    tl_tensor *seed = tl_cast(tl_to(tl_normal(TL_SHAPE(4200, 136), 0, 1, TL_BF16, cpu), cuda), dtype);
    tl_backward(y, seed, 0);
    result_add(r, y);
    for (int i = 0; i < N_IN - is_gated; i++) result_add(r, tl_grad_of(in[i]));
    assert_int_equal(tl_error(), TL_OK);
    tl_scope_end(scope);
}

static void joined_layers_are_as_exact_as_their_parts(void **state) {
    (void)state;
    if (!cuda) skip();
    for (int is_f16 = 0; is_f16 < 2; is_f16++)
        for (int is_gated = 0; is_gated < 2; is_gated++) {
            const tl_dtype dtype = is_f16 ? TL_F16 : TL_BF16;
            struct results exact = {0}, parts = {0}, joined = {0}, again = {0};
            mlp_results(is_gated, false, dtype, TL_F64, &exact);
            mlp_results(is_gated, false, dtype, dtype, &parts);
            mlp_results(is_gated, true, dtype, dtype, &joined);
            mlp_results(is_gated, true, dtype, dtype, &again);
            for (int k = 0; k < exact.n; k++) {
                double own = distance(&joined, &exact, k), theirs = distance(&parts, &exact, k);
                print_message("    %s %s, result %d: %.2g from f64, its parts %.2g\n", is_gated ? "swiglu" : "gelu",
                              tl_dtype_name(dtype), k, own, theirs);
                assert_true(own <= 1.1 * theirs);
                assert_true(apart(&joined, &again, k) == 0);
            }
            results_free(&exact), results_free(&parts), results_free(&joined), results_free(&again);
        }
}

/* ---- Biases whose gradients are summed where the gradient is computed: 192 heads, more than a card has
 * multiprocessors, in rows that are no whole number of tiles ---- */

static void bias_gradients(bool has_sums, struct results *r, uint64_t *n_sums) {
    static struct device_rules rules;
    static struct target target;
    const struct target *own = cuda->target;
    rules = *own->rules;
    if (!has_sums) rules.sums = NULL;
    target = *own;
    target.rules = &rules;
    cuda->target = &target;
    tl_model_config c;
    assert_true(tl_model_preset("tiny-gpt2", &c));
    c.n_layers = 2, c.n_heads = c.n_kv_heads = 12, c.channels = 768, c.head_size = 64;
    c.ff = 3072, c.vocabulary = 64, c.context = 384, c.dropout = 0;
    tl_scope scope = tl_scope_begin();
    tl_seed(79);
    tl_module *m = tl_model_new(&c, TL_BF16, cuda);
    tl_tensor *tokens = tl_to(tl_integers(TL_SHAPE(16, 360), 0, 64, TL_I64, cpu), cuda);
    tl_ledger *l = tl_ledger_begin("step");
    assert_true(tl_backward(tl_model_loss(m, tokens, tokens), NULL, 0));
    tl_ledger_end(l);
    *n_sums = tl_ledger_total(l, TL_BACKWARD, "sum").calls;
    tl_ledger_free(l);
    int n = 0;
    const tl_named_tensor *list = tl_module_list(m, &n);
    for (int i = 0; i < n; i++)
        if (strstr(list[i].name, "c_attn.bias") || strstr(list[i].name, "c_proj.bias"))
            result_add(r, tl_grad_of(list[i].tensor));
    tl_module_free(m);
    tl_scope_end(scope);
    cuda->target = own;
}

static void biases_get_the_sums_of_their_gradients(void **state) {
    (void)state;
    if (!cuda) skip();
    struct results apart_from = {0}, joined = {0}, again = {0};
    uint64_t n_apart, n_joined;
    bias_gradients(false, &apart_from, &n_apart);
    bias_gradients(true, &joined, &n_joined);
    bias_gradients(true, &again, &n_joined);
    print_message("    sums: %llu, of these beside other gradients %llu\n", (unsigned long long)n_apart,
                  (unsigned long long)(n_apart - n_joined));
    assert_true(n_joined < n_apart && joined.n == 6);
    for (int k = 0; k < joined.n; k++) {
        double off = distance(&joined, &apart_from, k);
        print_message("    bias %d: %.2g from that of a sum apart\n", k, off);
        assert_true(off <= 0x1p-8); /* both are rounded once */
        assert_true(apart(&joined, &again, k) == 0);
    }
    results_free(&apart_from), results_free(&joined), results_free(&again);
}

/* ---- Attention of any length ---- */

struct attention_case {
    int64_t B, T, S, H, H_kv, D;
    bool causal, is_low; /* is_low: scores around -200, so that e^-lse is beyond f32 */
    double dropout;
    int64_t window;
    /* bool (B,1,T,S); the same, where some queries see nothing; (1,H,T,S), which has a gradient; the same without; f32
     * (B,1,1,S) */
    enum { NO_MASK, HIDING_MASK, BLIND_MASK, ADDED_MASK, CONSTANT_MASK, PADDING_MASK } mask;
    bool is_spread; /* rows of q, k and v that are not aligned */
};
enum { ATTENTION_IN = 5, ATTENTION_MASK = 4 };

/* True at random, and where query and key have the same place, so that no query sees nothing. */
static tl_tensor *hiding_mask(const struct attention_case *c) {
    tl_tensor *own = tl_ones(TL_SHAPE(c->T, c->S), TL_F32, cpu);
    own = tl_tril(tl_triu(own, c->S - c->T), c->S - c->T);
    tl_tensor *kept = tl_cast(tl_bernoulli(TL_SHAPE(c->B, 1, c->T, c->S), 0.7, cpu), TL_F32);
    return tl_cmp_scalar(tl_add(kept, own), TL_GT, tl_scalar_int(0));
}

/* The same, but every fifth query sees nothing. */
static tl_tensor *blind_mask(const struct attention_case *c) {
    tl_tensor *turn = tl_remainder_scalar(tl_arange(0, 1, c->T, TL_F32, cpu), tl_scalar_int(5));
    tl_tensor *sees = tl_cmp_scalar(tl_reshape(turn, TL_SHAPE(c->T, 1)), TL_NE, tl_scalar_int(3));
    return tl_logical_and(hiding_mask(c), sees);
}

static tl_tensor *mask_draw(const struct attention_case *c, tl_dtype dtype) {
    switch (c->mask) {
    case HIDING_MASK:
        return hiding_mask(c);
    case BLIND_MASK:
        return blind_mask(c);
    case ADDED_MASK:
    case CONSTANT_MASK:
        return tl_normal(TL_SHAPE(1, c->H, c->T, c->S), 0, 1, dtype, cpu);
    case PADDING_MASK:
        return tl_normal(TL_SHAPE(c->B, 1, 1, c->S), 0, 1, TL_F32, cpu);
    default:
        return NULL;
    }
}

/* q, k, v, the gradient of the output, and the mask, or NULL. */
static void attention_draws(const struct attention_case *c, tl_dtype dtype, tl_tensor *in[ATTENTION_IN]) {
    const int64_t q_shape[4] = {c->B, c->T, c->H, c->D}, k_shape[4] = {c->B, c->S, c->H_kv, c->D};
    const double middle = c->is_low ? 5 : 0;
    tl_seed(31);
    in[0] = tl_normal(4, q_shape, middle, 1, dtype, cpu);
    in[1] = tl_normal(4, k_shape, -middle, 1, dtype, cpu);
    in[2] = tl_normal(4, k_shape, 0, 1, dtype, cpu);
    in[3] = tl_normal(4, q_shape, 0, 1, dtype, cpu);
    in[ATTENTION_MASK] = mask_draw(c, dtype);
}

/* The same numbers in rows that are one element longer. */
static tl_tensor *spread_rows(tl_tensor *x) {
    int64_t shape[4];
    memcpy(shape, tl_shape(x), sizeof shape);
    shape[3]++;
    tl_tensor *wide = tl_zeros(4, shape, tl_dtype_of(x), tl_device_of(x)),
              *part = tl_slice(wide, 3, 0, shape[3] - 1, 1);
    tl_copy_(part, x);
    return part;
}

/* Forward and backward of the same draws, made wider where `dtype` is f64. */
static bool attention_run(const struct attention_case *c, tl_device *device, tl_dtype dtype, tl_dtype drawn_in,
                          struct results *r, struct record *record) {
    memset(r, 0, sizeof *r);
    tl_pool_trim(device);
    tl_scope scope = tl_scope_begin();
    tl_tensor *in[ATTENTION_IN];
    attention_draws(c, drawn_in, in);
    for (int i = 0; i < ATTENTION_IN; i++) {
        if (!in[i]) continue;
        const bool has_grad = i < 3 || (i == ATTENTION_MASK && c->mask == ADDED_MASK);
        tl_tensor *wide = tl_dtype_of(in[i]) == drawn_in ? tl_cast(in[i], dtype) : in[i];
        in[i] = device == h200 ? tl_empty(4, tl_shape(wide), tl_dtype_of(wide), h200) : tl_to(wide, device);
        if (c->is_spread && i < 3) in[i] = spread_rows(in[i]);
        in[i] = tl_requires_grad(tl_detach(in[i]), has_grad);
    }
    tl_device_sync(device);
    tl_ledger *ledger = tl_ledger_begin("attention");
    const tl_attention_options options = {
        .causal = c->causal, .dropout = c->dropout, .window = c->window, .mask = in[ATTENTION_MASK]};
    tl_tensor *out = tl_attention(in[0], in[1], in[2], &options, NULL);
    tl_backward(out, in[3], 0);
    tl_device_sync(device);
    tl_ledger_end(ledger);
    const bool ok = tl_error() == TL_OK;
    if (!ok) snprintf(r->missing, sizeof r->missing, "%s", tl_error_message());
    tl_error_clear();
    if (ok && record) {
        memset(record, 0, sizeof *record);
        record_ledger(record, ledger, device);
    }
    if (ok) result_add(r, out);
    for (int i = 0; ok && i < 3; i++) result_add(r, tl_grad_of(in[i]));
    if (ok && c->mask == ADDED_MASK) result_add(r, tl_grad_of(in[ATTENTION_MASK]));
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    return ok;
}

static bool results_same_bits(const struct results *a, const struct results *b) {
    bool same = a->n == b->n;
    for (int k = 0; same && k < a->n; k++)
        same = a->bytes[k] == b->bytes[k] && !memcmp(a->bits[k], b->bits[k], a->bytes[k]);
    return same;
}

/* ---- How exact attention of 16 bits can be ----
 *
 * On matrix units p and ds = p (g v^T - delta) are rounded to 16 bits before they are multiplied, and so are out
 * (from which delta = rowsum(g out) is made), the results, and, with grouped heads, dk and dv of each query head.
 * One rounding of x errs by at most u |x|, in the root mean square by about sqrt(r) |x| with r = u^2 / 6. Errors of
 * different roundings are independent: their squares add up. With squares taken element by element, E2 is the
 * expected square of an error:
 *
 *     E2(out)   = r (out^2 + p^2 v^2)
 *     E2(delta) = rowsum(g^2 E2(out))
 *     E2(dq)    = r (dq^2 + scale^2 ds^2 k^2) + scale^2 E2(delta) (p k)^2           one delta for all keys
 *     E2(dk)    = r (dk^2 + scale^2 (ds^2)^T q^2) + scale^2 (p^2 E2(delta))^T q^2   grouped: r dk^2 of each head
 *     E2(dv)    = r (dv^2 + (p^2)^T g^2)                                            grouped: alike
 *
 * With dropout, p is what dropout leaves of the weights in the formulas of out and dv, and the weights themselves in
 * the others.
 *
 * These errors scale with the terms, not with the sum. Where softmax has one key, dq and dk are 0, and what is left
 * of them are rounding errors. Where q and k are far from 0 with weights on few keys, delta's error weighs most, and
 * all elements of a head share it: the largest error, or its size beside the cpu's, is then that of one or two draws.
 * Emulated on a cpu with these roundings and sums in f32, cuDNN's errors come out the same. */

struct expected_error {
    double total[4], largest[4]; /* of out, dq, dk, dv: of all elements, as a root of squares; of one element */
    double unit;
};

static tl_tensor *pair(const char *pattern, tl_tensor *a, tl_tensor *b) { return tl_einsum(pattern, TL_TENSORS(a, b)); }
static tl_tensor *key_rows(tl_tensor *scores, tl_tensor *x) {
    return pair("b k g t s, b t k g d -> b s k g d", scores, x);
}
static tl_tensor *query_rows(tl_tensor *scores, tl_tensor *x) {
    return pair("b k g t s, b s k d -> b t k g d", scores, x);
}
static tl_tensor *scores_of(tl_tensor *x, tl_tensor *y) { return pair("b t k g d, b s k d -> b k g t s", x, y); }
static tl_tensor *of_groups(tl_tensor *x) { return tl_einsum("b s k g d -> b s k d", &x, 1); }

static tl_tensor *is_positive(tl_tensor *x) { return tl_cmp_scalar(x, TL_GT, tl_scalar_int(0)); }

static tl_tensor *weights_of(const struct attention_case *c, tl_tensor *scores, tl_tensor *mask) {
    const int64_t offset = c->S - c->T, ahead = c->causal ? 1 : c->window;
    tl_tensor *all = tl_ones(TL_SHAPE(c->T, c->S), TL_F64, cpu);
    if (ahead) scores = tl_masked_fill(scores, is_positive(tl_triu(all, offset + ahead)), -INFINITY);
    if (c->window) scores = tl_masked_fill(scores, is_positive(tl_tril(all, offset - c->window)), -INFINITY);
    if (c->mask == ADDED_MASK || c->mask == CONSTANT_MASK)
        scores = tl_add(scores, tl_reshape(tl_cast(mask, TL_F64), TL_SHAPE(1, c->H_kv, c->H / c->H_kv, c->T, c->S)));
    if (c->mask == PADDING_MASK) scores = tl_add(scores, tl_unsqueeze(tl_cast(mask, TL_F64), 1));
    if (c->mask != HIDING_MASK && c->mask != BLIND_MASK) return tl_softmax(scores, -1);
    tl_tensor *sees = tl_unsqueeze(mask, 1); /* not -inf: a query that sees nothing has weights of 0 */
    return tl_mul(tl_softmax(tl_masked_fill(scores, tl_logical_not(sees), -1e30), -1), tl_cast(sees, TL_F64));
}

/* What dropout makes of weights (b,k,g,t,s), with the mask that a call behind attention_draws has. */
static tl_tensor *dropped(const struct attention_case *c, tl_tensor *mask, tl_tensor *weights) {
    return c->dropout > 0 ? tl_mul(weights, mask) : weights;
}
static tl_tensor *mask_drawn(const struct attention_case *c) {
    tl_tensor *ones = tl_ones(TL_SHAPE(c->B, c->H, c->T, (c->S + 7) / 8 * 8), TL_F64, cpu);
    tl_tensor *mask = tl_slice(tl_dropout(ones, c->dropout), 3, 0, c->S, 1);
    return tl_reshape(mask, TL_SHAPE(c->B, c->H_kv, c->H / c->H_kv, c->T, c->S));
}

/* The squares of a result, r times; of grouped heads, those of each query head before they are added up, too. */
static tl_tensor *rounded(const struct attention_case *c, tl_tensor *by_head, double r) {
    tl_tensor *once = tl_square(of_groups(by_head));
    return tl_scale(c->H == c->H_kv ? once : tl_add(once, of_groups(tl_square(by_head))), r);
}

static struct expected_error attention_expected_error(const struct attention_case *c, tl_dtype dtype) {
    struct expected_error e = {.unit = dtype == TL_F16 ? 0x1p-11 : 0x1p-8};
    const double r = e.unit * e.unit / 6, scale2 = 1.0 / (double)c->D;
    const int64_t q_shape[5] = {c->B, c->T, c->H_kv, c->H / c->H_kv, c->D};
    tl_scope scope = tl_scope_begin();
    tl_tensor *in[ATTENTION_IN];
    attention_draws(c, dtype, in);
    tl_tensor *mask = mask_drawn(c);
    for (int i = 0; i < 4; i++) in[i] = tl_cast(in[i], TL_F64);
    tl_tensor *q = tl_reshape(in[0], 5, q_shape), *k = in[1], *v = in[2], *g = tl_reshape(in[3], 5, q_shape);
    tl_tensor *p = weights_of(c, tl_scale(scores_of(q, k), sqrt(scale2)), in[ATTENTION_MASK]), *p2 = tl_square(p);
    tl_tensor *kept = dropped(c, mask, p), *kept2 = tl_square(kept);
    tl_tensor *out = query_rows(kept, v), *delta = pair("b t k g d, b t k g d -> b k g t", g, out);
    tl_tensor *dp = dropped(c, mask, scores_of(g, v));
    tl_tensor *ds = tl_scale(tl_mul(p, tl_sub(dp, tl_unsqueeze(delta, 4))), sqrt(scale2));
    tl_tensor *ds2 = tl_scale(tl_square(ds), r);

    tl_tensor *out_error = tl_scale(tl_add(tl_square(out), query_rows(kept2, tl_square(v))), r);
    tl_tensor *delta_error = tl_scale(pair("b t k g d, b t k g d -> b k g t", tl_square(g), out_error), scale2);
    tl_tensor *dq_error = tl_add(tl_scale(tl_square(query_rows(ds, k)), r), query_rows(ds2, tl_square(k)));
    dq_error = tl_add(dq_error, pair("b k g t, b t k g d -> b t k g d", delta_error, tl_square(query_rows(p, k))));
    tl_tensor *ds_error = tl_add(ds2, tl_mul(p2, tl_unsqueeze(delta_error, 4)));
    tl_tensor *dk_error = tl_add(rounded(c, key_rows(ds, q), r), of_groups(key_rows(ds_error, tl_square(q))));
    tl_tensor *dv_error =
        tl_add(rounded(c, key_rows(kept, g), r), of_groups(key_rows(tl_scale(kept2, r), tl_square(g))));

    tl_tensor *all[4] = {out_error, dq_error, dk_error, dv_error};
    for (int i = 0; i < 4; i++) {
        e.total[i] = sqrt(tl_item(tl_sum_all(all[i])));
        e.largest[i] = sqrt(tl_item(tl_max(all[i], NULL, 0, false)));
    }
    if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
    tl_scope_end(scope);
    return e;
}

/* At most twice the error that is expected of 16 bits. */
static bool is_as_exact_as_expected(const struct results *r, const struct results *exact,
                                    const struct expected_error *expected, const char *device, char *why, size_t size) {
    static const char *const names[4] = {"out", "dq", "dk", "dv"};
    for (int k = 0; k < 4; k++) {
        const double error = apart(r, exact, k);
        if (!(error <= 2 * expected->total[k]))
            return snprintf(why, size, "%s of norm %.4g: error %.3g on %s, %.3g expected of 16 bits", names[k],
                            apart(exact, NULL, k), error, device, expected->total[k]) < 0;
    }
    return true;
}

struct attention_reference {
    struct results cpu, exact;
    struct expected_error expected;
    double least[5]; /* of results that are 0 in exact arithmetic: the magnitude of what is added up. Else 0 */
};

static void attention_reference_make(const struct attention_case *c, tl_dtype dtype, struct attention_reference *r) {
    assert_true(attention_run(c, cpu, dtype, dtype, &r->cpu, NULL) &&
                attention_run(c, cpu, TL_F64, dtype, &r->exact, NULL));
    r->expected = attention_expected_error(c, dtype);
    for (int k = 0; k < 4; k++) {
        const double terms = r->expected.largest[k] / r->expected.unit;
        r->least[k] = largest_magnitude(&r->exact, k) < 1e-9 * terms ? terms : 0;
    }
    /* the mask's gradient is ds, of which dq = scale ds k is a sum: where that is 0, it is too */
    r->least[4] = r->least[1] * sqrt((double)c->D);
}

/* Whether a call costs its price, and, unless again is NULL, has the same bits when it is run again. */
static bool call_costs_and_repeats(const struct record *price, const struct record *receipt, const struct results *has,
                                   const struct results *again, char *why, size_t size) {
    const char *difference = record_difference(price, receipt);
    if (difference) return snprintf(why, size, "price and receipt: %.250s", difference) < 0;
    if (again && !results_same_bits(has, again)) return snprintf(why, size, "other bits again") < 0;
    return true;
}

/* At the price of meta, near the cpu's and the exact results, and, unless it is fast, with the same bits again. */
static bool attention_holds(const struct attention_case *c, tl_dtype dtype, bool is_fast,
                            const struct attention_reference *r, char *why, size_t size) {
    static struct record price, receipt;
    struct results has = {0}, again = {0}, none = {0};
    const bool before = tl_set_fast(is_fast);
    bool ok = attention_run(c, cuda, dtype, dtype, &has, &receipt) &&
              attention_run(c, cuda, dtype, dtype, &again, NULL) && attention_run(c, h200, dtype, dtype, &none, &price);
    tl_set_fast(before);
    if (!ok) snprintf(why, size, "%.90s%.90s%.90s", has.missing, again.missing, none.missing);
    ok = ok && results_close(&has, &r->cpu, dtype == TL_F16 ? 4e-3 : 3e-2, r->least, why, size) &&
         is_as_exact_as_expected(&has, &r->exact, &r->expected, "cuda", why, size);
    ok = ok && call_costs_and_repeats(&price, &receipt, &has, is_fast ? NULL : &again, why, size);
    results_free(&has), results_free(&again);
    return ok;
}

/* How many of the two modes failed. */
static int attention_failures(const struct attention_case *c, tl_dtype dtype) {
    struct attention_reference reference;
    attention_reference_make(c, dtype, &reference);
    int failed = 0;
    for (int is_fast = 0; is_fast < 2; is_fast++) {
        char why[300] = "";
        if (is_as_exact_as_expected(&reference.cpu, &reference.exact, &reference.expected, "cpu", why, sizeof why) &&
            attention_holds(c, dtype, is_fast, &reference, why, sizeof why))
            continue;
        failed++;
        print_message("    %s%s, B %d, T %d, S %d, H %d/%d, D %d%s%s, dropout %g, window %d, mask %d: %s\n",
                      tl_dtype_name(dtype), is_fast ? ", fast" : "", (int)c->B, (int)c->T, (int)c->S, (int)c->H,
                      (int)c->H_kv, (int)c->D, c->causal ? ", causal" : "", c->is_low ? ", low" : "", c->dropout,
                      (int)c->window, (int)c->mask, why);
    }
    results_free(&reference.cpu), results_free(&reference.exact);
    return failed;
}

/* Lengths on both sides of a tile's end, by cuDNN and by our kernels. Runs on the cpu and new plans take time, so long
 * lengths and f16 take the first cases only. */
static void attention_of_any_length_is_right_and_at_its_price(void **state) {
    (void)state;
    if (!cuda) skip();
    static const int64_t lengths[] = {1, 7, 64, 100, 127, 129, 200, 300, 960, 1000, 1023, 1024, 1025};
    enum { N = sizeof lengths / sizeof *lengths, N_FIRST = 6 };
    int failed = 0, n = 0, n_met = 0;
    for (int i = 0; i < N; i++) {
        const int64_t T = lengths[i], other = lengths[(i + 3) % N];
        const bool is_long = T >= 960;
        const struct attention_case cases[] = {
            {2, T, T, 2, 2, 64, .causal = true},
            {1, T, T, 4, 2, 128, .causal = true},
            {1, T, T, 2, 2, 64, .is_low = true},
            {1, T, T, 2, 2, 64, .causal = true, .is_low = true},
            /* the first ones end here */
            {2, T, other, 2, 1, 64, .causal = false},
            {2, T, T, 2, 2, 64, .causal = true, .dropout = 0.2},
            {2, T, T, 2, 2, 64, .causal = false},
            {1, T, other, 2, 2, 32, .causal = false},
            {1, T, T, 2, 2, 80, .causal = true},
            {1, T, T + 5, 2, 2, 64, .causal = true},
            {1, T, T, 2, 1, 20, .causal = true},
            /* as many key heads as half an H200 has SMs, and one more than all */
            {10, T, T, 14, 7, 40, .causal = true},
            {19, T, T, 7, 7, 64, .causal = true},
            {1, T, T, 4, 2, 128, .causal = true, .dropout = 0.1},
            {1, T, other, 2, 1, 32, .is_low = true, .dropout = 0.5},
            {1, T, T + 5, 2, 2, 96, .causal = true, .dropout = 0.3},
            {1, T, T, 2, 1, 20, .causal = true, .dropout = 0.3},
            /* more is dropped than kept, which is compared the other way round */
            {1, T, T, 2, 2, 64, .causal = true, .dropout = 0.7},
            {1, T, other, 2, 1, 24, .dropout = 0.6, .mask = ADDED_MASK},
            /* on tensor cores, whatever hides keys */
            {2, T, T, 2, 1, 64, .causal = true, .window = 30},
            {1, T, other + T, 2, 2, 64, .window = 70},
            {2, T, T, 4, 2, 64, .mask = HIDING_MASK},
            {1, T, T, 2, 2, 96, .causal = true, .mask = ADDED_MASK},
            {1, T, other, 2, 1, 24, .dropout = 0.2, .mask = ADDED_MASK},
            {1, T, T, 2, 1, 256, .causal = true, .window = 100},
            {1, T, T, 2, 1, 200, .causal = true, .dropout = 0.1, .mask = HIDING_MASK},
            {1, T, other, 2, 2, 160, .mask = ADDED_MASK},
            {1, T, T, 2, 2, 37, .causal = true},
            {1, T, T, 2, 2, 129, .causal = true, .dropout = 0.2},
            {1, T, T, 2, 1, 64, .causal = true, .is_spread = true},
            {1, T, T, 2, 1, 256, .causal = true, .window = 90, .mask = HIDING_MASK, .is_spread = true},
            /* masks without a gradient, on Hopper's own kernels */
            {2, T, T, 4, 2, 64, .mask = BLIND_MASK},
            {1, T, other, 2, 1, 128, .dropout = 0.2, .mask = BLIND_MASK},
            {1, T, T, 2, 2, 256, .mask = BLIND_MASK},
            {1, T, T + 5, 2, 2, 40, .causal = true, .mask = CONSTANT_MASK},
            {2, T, other, 2, 2, 80, .mask = CONSTANT_MASK},
            {2, T, T, 4, 2, 96, .causal = true, .dropout = 0.1, .mask = PADDING_MASK},
            {2, T, other, 2, 1, 192, .mask = PADDING_MASK},
            {19, T, T, 7, 7, 64, .causal = true, .mask = PADDING_MASK},
            /* heads that are no multiple of 8, which are padded where that is worth it */
            {2, T, T, 2, 2, 12, .causal = true},
            {1, T, other, 2, 1, 36, .dropout = 0.2},
            {1, T, T, 2, 2, 50, .causal = true, .is_spread = true},
            {2, T, T + 5, 4, 2, 100, .causal = true, .dropout = 0.1},
            {1, T, T, 2, 2, 130, .causal = true, .window = 200},
            {1, T, other + T, 2, 1, 250, .mask = ADDED_MASK},
            {1, T, T, 2, 2, 251, .causal = true, .mask = HIDING_MASK},
            /* heads of more than 128, with what cuDNN lacks */
            {2, T, T, 4, 2, 256, .mask = HIDING_MASK},
            {1, T, other, 4, 1, 192, .dropout = 0.2, .mask = ADDED_MASK},
            {2, T, T + 5, 2, 2, 256, .causal = true, .is_low = true, .dropout = 0.3},
            {1, T, T, 2, 2, 136, .window = 30},
            /* one query, whose keys are parts of blocks */
            {2, 1, T, 3, 3, 192, .causal = false},
            {1, 1, 3 * T, 2, 2, 256, .mask = HIDING_MASK},
            {1, 1, 5 * T, 4, 1, 128, .window = 280},
        };
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
            for (int is_f16 = 0; is_f16 < 2; is_f16++) {
                const tl_dtype dtype = is_f16 ? TL_F16 : TL_BF16;
                if ((k >= N_FIRST && (is_long || is_f16)) || !is_asked_for_dtype(dtype)) continue;
                if (!is_of_part(n_met++)) continue;
                failed += attention_failures(&cases[k], dtype);
                n += 2;
            }
    }
    print_message("    %d calls, %d failed\n", n, failed);
    assert_int_equal(failed, 0);
    assert_nothing_held("after attention of all lengths", cuda);
}

/* Heads that two blocks share on Hopper: 34 key heads or more, wider than 64, of 16 tiles of 128 keys or more, an odd
 * number of them, and more heads than pairs of blocks. */
static void attention_by_pairs_of_blocks_is_right(void **state) {
    (void)state;
    if (!cuda) skip();
    static const struct attention_case cases[] = {
        {1, 70, 2000, 34, 34, 128, .causal = true},
        {2, 130, 2049, 17, 17, 128, .causal = false},
        {1, 300, 2000, 34, 34, 72, .causal = true, .window = 300},
        {2, 130, 2100, 40, 20, 96, .causal = true},
        {1, 260, 1930, 34, 34, 128, .causal = true},
        {1, 100, 2000, 100, 100, 80, .causal = true},
        {1, 70, 2176, 200, 100, 128, .causal = true},
    };
    int failed = 0, n = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        if (!is_asked_for_dtype(TL_BF16) || !is_of_part((int)k)) continue;
        char why[300] = "";
        struct attention_reference reference;
        attention_reference_make(&cases[k], TL_BF16, &reference);
        n++;
        if (!attention_holds(&cases[k], TL_BF16, false, &reference, why, sizeof why)) {
            failed++;
            print_message("    T %d, S %d, H %d/%d, D %d: %s\n", (int)cases[k].T, (int)cases[k].S, (int)cases[k].H,
                          (int)cases[k].H_kv, (int)cases[k].D, why);
        }
        results_free(&reference.cpu), results_free(&reference.exact);
    }
    print_message("    %d calls, %d failed\n", n, failed);
    assert_int_equal(failed, 0);
    assert_nothing_held("after attention by pairs", cuda);
}

/* In f32 on tensor cores, by three products for one; in f64, and with heads wider than tensor cores take, by tiles of
 * multiply-adds and slices of wide heads. At the price of meta, near what the cpu computes in f64 of the same numbers,
 * and with the same bits again. */
static bool tiled_attention_holds(const struct attention_case *c, tl_dtype dtype, char *why, size_t size) {
    static struct record price, receipt;
    struct results exact = {0}, has = {0}, again = {0}, none = {0};
    const double eps = dtype == TL_F64 ? 1e-12 : dtype == TL_F32 ? 2e-5 : dtype == TL_F16 ? 4e-3 : 3e-2;
    bool ok = attention_run(c, cpu, TL_F64, dtype, &exact, NULL) &&
              attention_run(c, cuda, dtype, dtype, &has, &receipt) &&
              attention_run(c, cuda, dtype, dtype, &again, NULL) && attention_run(c, h200, dtype, dtype, &none, &price);
    if (!ok) snprintf(why, size, "%.70s%.70s%.70s%.70s", exact.missing, has.missing, again.missing, none.missing);
    ok = ok && results_close(&has, &exact, eps, NULL, why, size);
    ok = ok && call_costs_and_repeats(&price, &receipt, &has, &again, why, size);
    results_free(&exact), results_free(&has), results_free(&again);
    return ok;
}
static void attention_in_f32_and_f64_is_right(void **state) {
    (void)state;
    if (!cuda) skip();
    static const struct attention_case cases[] = {
        {1, 64, 64, 2, 2, 64, .causal = true},
        {2, 65, 65, 4, 2, 40, .causal = true, .dropout = 0.2},
        {1, 3, 130, 3, 1, 20, .mask = ADDED_MASK},
        {1, 130, 33, 2, 2, 33, .mask = ADDED_MASK, .dropout = 0.6},
        {1, 70, 150, 2, 1, 128, .causal = true, .window = 30, .is_spread = true},
        {2, 20, 90, 2, 2, 100, .mask = BLIND_MASK},
        {1, 80, 80, 2, 1, 7, .window = 9, .mask = HIDING_MASK, .dropout = 0.1},
        {1, 66, 66, 2, 2, 192, .causal = true, .mask = CONSTANT_MASK},
        {1, 140, 50, 2, 1, 160, .dropout = 0.4, .is_spread = true},
        {1, 90, 75, 2, 1, 90, .mask = ADDED_MASK},
        {1, 20, 30, 2, 2, 32, .window = 11},
        {1, 16, 100, 2, 1, 48, .dropout = 0.3},  /* forward without tensor cores */
        {1, 17, 20000, 1, 1, 7, .causal = true}, /* long sums, which may not shrink */
        {1, 40, 100, 2, 1, 256, .causal = true, .dropout = 0.3, .mask = ADDED_MASK},
        {1, 35, 70, 2, 1, 300, .mask = PADDING_MASK, .dropout = 0.2},
        {1, 17, 17, 1, 1, 1024, .causal = true, .is_spread = true},
    };
    static const tl_dtype dtypes[] = {TL_F32, TL_F64, TL_BF16, TL_F16};
    int failed = 0, n = 0, n_met = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const struct attention_case *c = &cases[k];
            char why[300] = "";
            if (!is_asked_for_dtype(dtypes[d]) || (d >= 2 && c->D <= 256) || !is_of_part(n_met++)) continue;
            n++;
            if (tiled_attention_holds(c, dtypes[d], why, sizeof why)) continue;
            failed++;
            print_message("    %s, T %d, S %d, D %d: %s\n", tl_dtype_name(dtypes[d]), (int)c->T, (int)c->S, (int)c->D,
                          why);
        }
    print_message("    %d calls, %d failed\n", n, failed);
    assert_int_equal(failed, 0);
    assert_nothing_held("after attention by tiles", cuda);
}

/* ---- Sizes that no sample has: every path of a kernel ---- */

static tl_tensor *drawn(tl_device *device, tl_dtype dtype, int rank, const int64_t *shape) {
    return tl_requires_grad(tl_detach(tl_to(tl_normal(rank, shape, 0, 1, dtype, cpu), device)), true);
}

static void seed_back(tl_tensor *y, tl_device *device) {
    tl_tensor *g = tl_to(tl_normal(tl_rank(y), tl_shape(y), 0, 1, tl_dtype_of(y), cpu), device);
    tl_backward(y, g, 0);
}

/* Rows of one warp, of two, of eight, and of none; more rows than runs; rows cut into parts; rows that are not aligned,
 * of one warp, of a few, of whole blocks, and cut into parts. */
static void norm_at(tl_device *device, tl_dtype dtype, int size, struct results *r) {
    static const int64_t sizes[][2] = {{601, 768},  {37, 1600}, {300, 4096},  {5, 8200}, {9, 771},
                                       {40001, 19}, {40, 9001}, {1001, 4095}, {7, 13001}};
    const int64_t C = sizes[size / 2][1];
    tl_tensor *x = drawn(device, dtype, 2, sizes[size / 2]), *w = drawn(device, dtype, 1, &C),
              *b = drawn(device, dtype, 1, &C);
    tl_tensor *y = size % 2 ? tl_rms_norm(x, w, 1e-5) : tl_layer_norm(x, w, b, 1e-5);
    seed_back(y, device);
    result_add(r, y);
    result_add(r, tl_grad_of(x));
    result_add(r, tl_grad_of(w));
    if (size % 2 == 0) result_add(r, tl_grad_of(b));
}

/* The same of a sum, which the loss reads too; then with dropout. */
static void add_norm_at(tl_device *device, tl_dtype dtype, int size, struct results *r) {
    static const int64_t sizes[][2] = {{601, 768}, {37, 1600},  {300, 4096}, {5, 8200},  {9, 771},    {2600, 261},
                                       {40, 9001}, {601, 4095}, {7, 13001},  {601, 384}, {37, 1600},  {30, 4104},
                                       {5, 8200},  {9, 771},    {40001, 19}, {40, 9001}, {301, 4095}, {7, 13001}};
    const int64_t C = sizes[size / 2][1];
    const double dropout = size < 18 ? 0 : 0.2;
    tl_tensor *x = drawn(device, dtype, 2, sizes[size / 2]), *other = drawn(device, dtype, 2, sizes[size / 2]);
    tl_tensor *w = drawn(device, dtype, 1, &C), *b = drawn(device, dtype, 1, &C), *sum = NULL;
    tl_tensor *y =
        size % 2 ? add_rms_norm(x, other, w, 1e-5, dropout, &sum) : add_layer_norm(x, other, w, b, 1e-5, dropout, &sum);
    seed_back(tl_add(y, sum), device);
    result_add(r, y);
    result_add(r, sum);
    result_add(r, tl_grad_of(x));
    result_add(r, tl_grad_of(other));
    result_add(r, tl_grad_of(w));
    if (size % 2 == 0) result_add(r, tl_grad_of(b));
}

/* Columns over several chunks of rows; groups of rows that are too long to be sorted; products with a bias. */
static void others_at(tl_device *device, tl_dtype dtype, int size, struct results *r) {
    if (size < 3) {
        static const int64_t sizes[][2] = {{9001, 200}, {4097, 72}, {8200, 33}},
                             unaligned[][2] = {{9001, 701}, {9001, 1301}, {20001, 13}};
        tl_tensor *x = drawn(device, dtype, 2, sizes[size]), *u = drawn(device, dtype, 2, unaligned[size]);
        result_add(r, tl_sum(x, (int[]){0}, 1, false));
        result_add(r, tl_sum(u, (int[]){0}, 1, false));
    } else if (size < 5) {
        tl_tensor *w = drawn(device, dtype, 2, size == 3 ? (int64_t[]){40, 96} : (int64_t[]){40, 35});
        tl_tensor *ids = tl_to(tl_integers(TL_SHAPE(9000), 3, 5, TL_I64, cpu), device);
        seed_back(tl_embedding(w, ids), device);
        result_add(r, tl_grad_of(w));
    } else if (size < 8) { /* many elements for each of few results, and rows that are not aligned */
        static const int64_t sizes[][2] = {{1001, 845}, {9001, 92}, {17, 70007}};
        tl_tensor *x = drawn(device, dtype, 2, sizes[size - 5]), *y = tl_softmax(x, 1);
        seed_back(y, device);
        result_add(r, y);
        result_add(r, tl_grad_of(x));
        result_add(r, tl_mean_all(x));
        for (int axis = 0; axis < 2; axis++) {
            result_add(r, tl_mean(x, &axis, 1, false));
            result_add(r, tl_var(x, &axis, 1, 1, false));
        }
        result_add(r, tl_var(x, NULL, 0, 1, false));
        result_add(r, tl_cumsum(x, 1));
    } else if (size > 8) { /* groups of several tiles, an empty one, and rows behind the last; partial tiles */
        const int64_t n = size == 9 ? 264 : 72, ends[] = {300, 300, 941, 990};
        tl_tensor *x = drawn(device, dtype, 2, (int64_t[]){1000, 200});
        tl_tensor *w = drawn(device, dtype, 3, size == 9 ? (int64_t[]){4, n, 200} : (int64_t[]){4, 200, n});
        tl_tensor *y = tl_grouped_matmul(x, w, tl_from_data(ends, TL_SHAPE(4), TL_I64, device), size == 9);
        seed_back(y, device);
        result_add(r, y);
        result_add(r, tl_grad_of(x));
        result_add(r, tl_grad_of(w));
    } else {
        tl_tensor *x = drawn(device, dtype, 3, (int64_t[]){3, 32, 64}),
                  *w = drawn(device, dtype, 2, (int64_t[]){48, 64});
        tl_tensor *b = drawn(device, dtype, 1, (int64_t[]){48}), *y = tl_linear(x, w, b);
        seed_back(y, device);
        result_add(r, y);
        result_add(r, tl_grad_of(x));
        result_add(r, tl_grad_of(w));
        result_add(r, tl_grad_of(b));
    }
}

/* Rows of lengths on both sides of those at which other kernels begin: of a warp with 4, 8, 16 and 32 elements in a
 * lane, of blocks, of packs, of what is read twice. */
static const int64_t row_lengths[] = {1,    2,    31,   33,   127,  129,  148,   255,  257,  300,
                                      511,  513,  700,  777,  896,  1023, 1025,  1500, 2047, 2049,
                                      2076, 4095, 4097, 5002, 8191, 9001, 12290, 16385};
enum { ROW_LENGTHS = sizeof row_lengths / sizeof *row_lengths };
static void rows_at(tl_device *device, tl_dtype dtype, int size, struct results *r) {
    const int64_t shape[] = {5, row_lengths[size]};
    tl_tensor *x = drawn(device, dtype, 2, shape), *y = drawn(device, dtype, 2, shape);
    tl_tensor *w = drawn(device, dtype, 1, &shape[1]), *b = drawn(device, dtype, 1, &shape[1]);
    tl_tensor *u = drawn(device, dtype, 2, shape);
    tl_tensor *of[] = {tl_softmax(x, 1), tl_log_softmax(y, 1), tl_layer_norm(u, w, b, 1e-5)};
    for (int k = 0; k < 3; k++) {
        seed_back(of[k], device);
        result_add(r, of[k]);
    }
    result_add(r, tl_grad_of(x));
    result_add(r, tl_grad_of(y));
    if (shape[1] > 2) result_add(r, tl_grad_of(u)); /* of one number it is noise, of two nearly */
    result_add(r, tl_grad_of(w));
    tl_tensor *sum = NULL; /* with dropout */
    result_add(r, add_rms_norm(tl_detach(x), tl_detach(y), tl_detach(w), 1e-5, 0.2, &sum));
    result_add(r, sum);
}
static void row_folds_at(tl_device *device, tl_dtype dtype, int size, struct results *r) {
    const int axis = 1;
    tl_tensor *x = drawn(device, dtype, 2, (int64_t[]){5, row_lengths[size]}), *values, *indices;
    result_add(r, tl_sum(x, &axis, 1, false));
    result_add(r, tl_cumsum(x, 1));
    result_add(r, tl_max(x, &axis, 1, false));
    result_add(r, tl_logsumexp(x, &axis, 1, false));
    assert_true(tl_sort(x, 1, false, &values, &indices));
    result_add(r, values);
}

static bool large_is_close(const char *name, void (*at)(tl_device *, tl_dtype, int, struct results *), tl_dtype dtype,
                           int size) {
    struct results of[2] = {{0}, {0}};
    char why[200] = "";
    for (int i = 0; i < 2; i++) {
        tl_scope scope = tl_scope_begin();
        tl_seed(5);
        at(i ? cpu : cuda, dtype, size, &of[i]);
        tl_scope_end(scope);
    }
    bool ok =
        tl_error() == TL_OK && results_close(&of[0], &of[1], dtype == TL_F32 ? 2e-5 : 3e-2, NULL, why, sizeof why);
    if (!ok) print_message("    %s, %s, size %d: %s%s\n", name, tl_dtype_name(dtype), size, why, tl_error_message());
    tl_error_clear();
    results_free(&of[0]), results_free(&of[1]);
    return ok;
}

static void large_sizes_equal_those_of_the_cpu(void **state) {
    (void)state;
    if (!cuda) skip();
    static const tl_dtype dtypes[] = {TL_BF16, TL_F32};
    int failed = 0;
    for (int d = 0; d < 2; d++) {
        for (int size = 0; size < 18; size++) failed += !large_is_close("norm", norm_at, dtypes[d], size);
        for (int size = 0; size < 36; size++) failed += !large_is_close("norm of a sum", add_norm_at, dtypes[d], size);
        for (int size = 0; size < 11; size++) failed += !large_is_close("other", others_at, dtypes[d], size);
    }
    assert_int_equal(failed, 0);
}

static void rows_of_any_length_equal_those_of_the_cpu(void **state) {
    (void)state;
    if (!cuda) skip();
    int failed = 0;
    for (int i = 0; i < 2 * ROW_LENGTHS; i++) {
        const tl_dtype dtype = i % 2 ? TL_BF16 : TL_F32;
        failed += !large_is_close("rows", rows_at, dtype, i / 2) + !large_is_close("folds", row_folds_at, dtype, i / 2);
    }
    assert_int_equal(failed, 0);
}

/* Products and their gradients twice, so that the second ones are added to the first, and one that is added from the
 * start: with the first algorithm of each, or with the fastest one timed. */
static void products_twice(tl_dtype dtype, bool is_fast, struct results *r) {
    const bool before = tl_set_fast(is_fast);
    tl_scope scope = tl_scope_begin();
    tl_seed(8);
    tl_tensor *x = drawn(cuda, dtype, 3, (int64_t[]){3, 32, 64}), *w = drawn(cuda, dtype, 2, (int64_t[]){48, 64});
    tl_tensor *b = drawn(cuda, dtype, 1, (int64_t[]){48}), *y = NULL;
    tl_tensor *ids = tl_to(tl_integers(TL_SHAPE(96), 0, 48, TL_I64, cpu), cuda);
    tl_tensor *v = drawn(cuda, dtype, 2, (int64_t[]){80, 64});
    assert_true(tl_set_grad(v, tl_ones_like(tl_detach(v))));
    seed_back(tl_linear(x, v, NULL), cuda);
    for (int turn = 0; turn < 2; turn++) {
        y = tl_linear(x, w, b);
        seed_back(y, cuda);
        tl_tensor *rows = tl_reshape(x, TL_SHAPE(96, 64));
        tl_backward(tl_linear_cross_entropy(rows, w, ids, NULL), NULL, 0);
    }
    result_add(r, y);
    result_add(r, tl_grad_of(x));
    result_add(r, tl_grad_of(w));
    result_add(r, tl_grad_of(b));
    result_add(r, tl_grad_of(v));
    tl_scope_end(scope);
    tl_set_fast(before);
}

static void timed_products_are_right(void **state) {
    (void)state;
    if (!cuda) skip();
    static const tl_dtype dtypes[] = {TL_BF16, TL_F32, TL_F64};
    for (int d = 0; d < 3; d++) {
        struct results of[2] = {{0}, {0}};
        char why[200] = "";
        for (int i = 0; i < 2; i++) products_twice(dtypes[d], i == 0, &of[i]);
        bool ok = tl_error() == TL_OK && of[0].n == 5 &&
                  results_close(&of[0], &of[1], dtypes[d] == TL_BF16 ? 3e-2 : 2e-5, NULL, why, sizeof why);
        if (!ok) print_message("    %s: %s%s\n", tl_dtype_name(dtypes[d]), why, tl_error_message());
        results_free(&of[0]), results_free(&of[1]);
        assert_true(ok);
    }
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

/* Invalid data is reported when the host waits, once, and the device continues. */
static bool tells(const char *part) {
    bool failed = !tl_device_sync(cuda) && strstr(tl_error_message(), part);
    if (!failed) print_message("    \"%s\" was not said: %s\n", part, tl_error_message());
    tl_error_clear();
    return failed && tl_device_sync(cuda);
}
static void bad_data_is_reported_when_somebody_waits(void **state) {
    (void)state;
    if (!cuda) skip();
    tl_scope scope = tl_scope_begin();
    int64_t ids[3] = {0, 7, 1}, zero[3] = {1, 0, 2};
    tl_tensor *x = tl_ones(TL_SHAPE(3), TL_F32, cuda), *id = tl_from_data(ids, 1, (int64_t[]){3}, TL_I64, cuda);
    tl_tensor *divisor = tl_from_data(zero, 1, (int64_t[]){3}, TL_I64, cuda);
    tl_gather(x, 0, id);
    bool ok = tells("gather: index 7 is outside [0, 3)");
    tl_scatter(x, 0, id, x);
    ok = tells("scatter: index 7 is outside [0, 3)") && ok;
    tl_index_put(x, (int[]){0}, &id, 1, x, false);
    ok = tells("index 7 is outside [0, 3)") && ok;
    tl_remainder(id, divisor);
    ok = tells("no remainder by 0") && ok;
    tl_repeat_counts(x, 0, tl_sub(id, tl_full(TL_SCALAR, 1, TL_I64, cuda))); /* -1, 6, 0 */
    ok = tells("repeats can not be negative: -1 at position 0") && ok;
    tl_multinomial(tl_neg(x), 1, true);
    ok = tells("element < 0") && ok;
    tl_multinomial(tl_zeros(TL_SHAPE(3), TL_F32, cuda), 1, true);
    ok = tells("invalid multinomial distribution") && ok;
    tl_linear_cross_entropy(tl_ones(TL_SHAPE(3, 2), TL_F32, cuda), tl_ones(TL_SHAPE(5, 2), TL_F32, cuda), id, NULL);
    ok = tells("linear_cross_entropy: target 7 is outside [0, 5)") && ok;
    assert_true(ok);
    tl_scope_end(scope);
}

/* As PyTorch's do. */
static bool fails(tl_tensor *result, const char *text) {
    bool ok = !result && strstr(tl_error_message(), text);
    if (!ok) print_message("    '%s', not '%s'\n", tl_error_message(), text);
    tl_error_clear();
    return ok;
}
static void a_matrix_that_cannot_be_factored_fails_its_call(void **state) {
    (void)state;
    if (!cuda) skip();
    tl_scope scope = tl_scope_begin();
    tl_tensor *ones = tl_ones(TL_SHAPE(2, 40, 40), TL_F64, cuda), *nan = tl_scale(ones, NAN);
    bool ok = fails(tl_cholesky(tl_neg(ones)), "(Batch element 0): The factorization could not be completed");
    ok = fails(tl_inv(ones), "The diagonal element 2 is zero") && ok;
    ok = fails(tl_solve(ones, ones), "(element 2 of U's diagonal is 0)") && ok;
    nan = tl_masked_fill(nan, tl_eye(40, 40, TL_BOOL, cuda), 1); /* the diagonal says nothing */
    ok = fails(tl_eigvalsh(nan, false), "too many repeated eigenvalues or is not finite") && ok;
    ok = fails(tl_svdvals(nan), "too many repeated singular values or is not finite") && ok;
    tl_swap_rows(ones, tl_full(TL_SHAPE(2, 3), 41, TL_I32, cuda), false);
    ok = tells("swap_rows: a pivot's row, counted from 0, 40 is outside [0, 40)") && ok;
    assert_true(ok);
    tl_scope_end(scope);
}

/* The driver does not survive fork(): every call in the child says so, and its CPU device still works. */
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

/* Foreign memory on the GPU (here: that of another tensor) is used in place, is not the pool's, and is released
 * once. */
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
    tl_tensor *y = tl_from_external(tl_data(x), 24, TL_SHAPE(3, 2), NULL, TL_F32, cuda, count_release, &released);
    assert_true(y && tl_device_of(y) == cuda && tl_data(y) == tl_data(x));
    assert_true(tl_device_memory(cuda).live_bytes == live);
    tl_affine_(y, 1, 1);
    assert_int_equal(released, 0);
    tl_scope_end(inner);
    assert_int_equal(released, 1);
    assert_true(tl_item(tl_sum_all(x)) == 21);
    tl_scope_end(scope);
}

enum { N_ROUNDS = 16, OTHER_ROUND = 9 };

/* Changes w by products, draws and numbers that differ from round to round, and, in the middle, by data of the host.
 * One round has a call more than the others. */
static void round_make(tl_tensor *w, int k) {
    float values[64];
    tl_scope scope = tl_scope_begin();
    for (int i = 0; i < 64; i++) values[i] = (float)(i * k % 7);
    tl_tensor *x = w;
    for (int i = 0; i < 6; i++) x = tl_dropout(tl_gelu(tl_matmul(x, w)), 0.2);
    if (k == OTHER_ROUND) x = tl_sqrt(tl_abs(x));
    x = tl_add(x, tl_from_data(values, TL_SHAPE(64), TL_F32, cuda));
    for (int i = 0; i < 6; i++) x = tl_affine(tl_softmax(x, 1), 1.0 / (k + 1), i);
    tl_add_(w, tl_affine(x, 1e-3 * k, 0));
    tl_scope_end(scope);
}

static int64_t rounds_make(bool repeats, struct results *r) {
    struct device_repeat report;
    char error[200] = "";
    int64_t n_in_graphs = 0;
    memset(r, 0, sizeof *r);
    tl_scope scope = tl_scope_begin();
    tl_seed(7);
    tl_tensor *w = tl_normal(TL_SHAPE(64, 64), 0, 0.1, TL_F32, cuda);
    for (int k = 0; k < N_ROUNDS; k++) {
        if (repeats) cuda->functions->repeat_begin(cuda);
        round_make(w, k);
        if (repeats) assert_true(cuda->functions->repeat_end(cuda, &report, error));
        if (repeats) n_in_graphs += report.n_in_graphs;
    }
    result_add(r, w);
    tl_scope_end(scope);
    return n_in_graphs;
}

static void calls_that_repeat_are_queued_together(void **state) {
    struct results one_by_one, together;
    (void)state;
    if (!cuda) skip();
    assert_true(rounds_make(false, &one_by_one) == 0);
    int64_t n_in_graphs = rounds_make(true, &together);
    assert_true(n_in_graphs > N_ROUNDS / 2 * 20);
    assert_true(one_by_one.bytes[0] == together.bytes[0]);
    assert_memory_equal(one_by_one.bits[0], together.bits[0], together.bytes[0]);
    results_free(&one_by_one);
    results_free(&together);
}

/* q k^T, k = x w^T: the second product reads as its matrix what the first, which takes a while, is still writing. */
static void a_product_waits_for_its_matrix(void **state) {
    enum { ROWS = 16, WIDE = 32768, K = 4096 };
    (void)state;
    if (!cuda) skip();
    tl_scope scope = tl_scope_begin();
    tl_tensor *w = tl_cast(tl_normal(TL_SHAPE(WIDE, K), 0, 1, TL_F32, cuda), TL_BF16);
    tl_tensor *q = tl_cast(tl_normal(TL_SHAPE(4, WIDE), 0, 1, TL_F32, cuda), TL_BF16);
    for (int round = 0; round < 4; round++) { /* another k in the same memory */
        struct results r = {0};
        tl_scope inner = tl_scope_begin();
        tl_tensor *x = tl_cast(tl_normal(TL_SHAPE(ROWS, K), 0, 1, TL_F32, cuda), TL_BF16);
        tl_tensor *k = tl_matmul(x, tl_transpose(w, 0, 1)), *at_once = tl_matmul(q, tl_transpose(k, 0, 1));
        result_add(&r, at_once); /* waits */
        result_add(&r, tl_matmul(q, tl_transpose(k, 0, 1)));
        assert_memory_equal(r.bits[0], r.bits[1], r.bytes[0]);
        results_free(&r);
        tl_scope_end(inner);
    }
    tl_scope_end(scope);
}

enum { TEXTS = 3, TEXT_STEPS = 300 };

/* Tokens of texts that grow together; `repeats`: by steps that are queued again. What 100 of the steps cost, and
 * one. */
static void texts_grow(tl_dtype dtype, bool repeats, bool is_greedy, int64_t ids[TEXT_STEPS][TEXTS], tl_totals *many,
                       tl_totals *one) {
    static const int64_t prompt[5] = {3, 1, 4, 1, 5};
    tl_model_config c;
    assert_true(tl_model_preset("tiny", &c));
    c.context = 400, c.vocabulary = 300, c.init_std = 0.2;
    tl_seed(5);
    tl_module *model = tl_model_new(&c, dtype, cuda);
    tl_session *s = tl_session_new(model, TEXTS, 400);
    assert_true(model && s);
    session_repeat(s, repeats);
    for (int i = 0; i < TEXTS; i++) {
        const tl_generate_options o = {.temperature = is_greedy || i == 1 ? 0 : 0.8, .top_k = 20, .top_p = 1};
        assert_true(tl_session_open(s, prompt, 5 - i, &o, (uint64_t)i) == i);
    }
    tl_ledger *ledger = NULL;
    for (int step = 0; step < TEXT_STEPS; step++) {
        if (step == 10 || step == 20) ledger = tl_ledger_begin("steps");
        assert_true(tl_session_step(s, ids[step]));
        if (step != 10 && step != 119) continue;
        assert_true(tl_ledger_end(ledger));
        *(step == 10 ? one : many) = tl_ledger_total(ledger, TL_ALL, NULL);
        tl_ledger_free(ledger);
    }
    tl_session_free(s);
    tl_module_free(model);
}

static void texts_are_the_same_when_steps_repeat(void **state) {
    static int64_t asked[TEXT_STEPS][TEXTS], repeated[TEXT_STEPS][TEXTS];
    tl_totals many, one;
    (void)state;
    if (!cuda) skip();
    for (int way = 0; way < 4; way++) { /* in bf16, kernels for few rows begin before those in front have ended */
        const bool is_greedy = way % 2;
        const tl_dtype dtype = way / 2 ? TL_BF16 : TL_F32;
        texts_grow(dtype, false, is_greedy, asked, &many, &one);
        texts_grow(dtype, true, is_greedy, repeated, &many, &one);
        assert_memory_equal(asked, repeated, sizeof asked);
        assert_true(many.calls == 100 * one.calls);
        assert_true(tl_count_value(many.flops) == 100 * tl_count_value(one.flops));
        assert_true(tl_count_value(many.bytes_read) == 100 * tl_count_value(one.bytes_read));
        assert_true(tl_count_value(many.bytes_written) == 100 * tl_count_value(one.bytes_written));
    }
}

int main(void) {
    tl_set_error_policy(TL_RETURN);
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
        cmocka_unit_test(many_parameters_step_as_on_the_cpu),
        cmocka_unit_test(quantized_bits_are_those_of_the_cpu),
        cmocka_unit_test(packs_are_quantized_to_the_bits_of_the_cpu),
        cmocka_unit_test(orders_are_those_of_the_cpu),
        cmocka_unit_test(counts_repeat_as_on_the_cpu),
        cmocka_unit_test(columns_are_sorted_as_on_the_cpu),
        cmocka_unit_test(losses_in_chunks_are_those_of_the_cpu),
        cmocka_unit_test(weights_in_blocks_are_multiplied_in_parts),
        cmocka_unit_test(the_head_is_as_exact_as_its_parts),
        cmocka_unit_test(joined_layers_are_as_exact_as_their_parts),
        cmocka_unit_test(biases_get_the_sums_of_their_gradients),
        cmocka_unit_test(attention_of_any_length_is_right_and_at_its_price),
        cmocka_unit_test(attention_by_pairs_of_blocks_is_right),
        cmocka_unit_test(attention_in_f32_and_f64_is_right),
        cmocka_unit_test(large_sizes_equal_those_of_the_cpu),
        cmocka_unit_test(rows_of_any_length_equal_those_of_the_cpu),
        cmocka_unit_test(timed_products_are_right),
        cmocka_unit_test(a_bad_id_is_reported_and_nothing_breaks),
        cmocka_unit_test(bad_data_is_reported_when_somebody_waits),
        cmocka_unit_test(a_matrix_that_cannot_be_factored_fails_its_call),
        cmocka_unit_test(a_forked_child_is_refused_the_gpu_by_name),
        cmocka_unit_test(external_memory_of_the_gpu_is_shared),
        cmocka_unit_test(a_product_waits_for_its_matrix),
        cmocka_unit_test(calls_that_repeat_are_queued_together),
        cmocka_unit_test(texts_are_the_same_when_steps_repeat),
    };
    if (getenv("TALLY_TEST")) cmocka_set_test_filter(getenv("TALLY_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
