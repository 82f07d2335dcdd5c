/* test_samples.c: properties of every op, checked over all samples (support/samples.c).
 *
 * Each check is one test that walks all rows and all samples and stops at the first that breaks the rule, naming op,
 * sample and dtype. TALLY_SAMPLES=softmax checks the samples of one op only, which takes a second. */
#include "support/check.h"
#include "support/samples.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/isa.h"
#include "ops/ops.h"
#include "tensor/dtype.h"

static tl_device *cpu, *meta, *h200;

/* ---- Walking ---- */

struct walk {
    const struct sample_op *op;
    const struct sample *s;
    tl_dtype dtype;
    char name[200];
};

typedef void (*check_fn)(struct walk *w);

static const tl_dtype all_dtypes[] = {TL_F64, TL_F32, TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2};

static unsigned dtypes_of(const struct sample *s) { return s->dtypes ? s->dtypes : DT_FLOATS; }

/* Runs `check` for every sample with all of `with` and none of `without`, in every dtype of the mask that it takes;
 * nothing may be left on any device after each. */
static const char *only_op(void) { return getenv("TALLY_SAMPLES"); }
static int n_skipped;   /* samples that a check does not apply to */
static int n_apart = 1; /* of so many, one is checked (walk_share) */
static int walk(check_fn check, unsigned with, unsigned without, unsigned dtypes, bool errors) {
    int n = 0, n_met = 0;
    n_skipped = 0;
    const char *only = only_op();
    for (const struct sample_op *op = sample_ops; op->name; op++)
        for (const struct sample *s = op->samples; s->text && (!only || !strcmp(only, op->name)); s++)
            for (size_t d = 0; d < sizeof all_dtypes / sizeof *all_dtypes; d++) {
                if ((s->flags & with) != with || (s->flags & without) || (s->error != NULL) != errors) continue;
                if (!(dtypes & dtypes_of(s) & DT(all_dtypes[d])) || n_met++ % n_apart) continue;
                struct walk w = {.op = op, .s = s, .dtype = all_dtypes[d]};
                snprintf(w.name, sizeof w.name, "%s, %s, %s", op->name, s->text, tl_dtype_name(w.dtype));
                tl_scope scope = tl_scope_begin();
                check(&w);
                if (tl_error() != TL_OK) fail_msg("%s: %s", w.name, tl_error_message());
                assert_true(tl_scope_end(scope));
                assert_nothing_held(w.name, cpu);
                assert_nothing_held(w.name, meta);
                assert_nothing_held(w.name, h200);
                n++;
            }
    print_message("    %d samples\n", n - n_skipped);
    assert_true(n > n_skipped || only); /* one op may have no sample for this check */
    return n;
}

/* Under a sanitizer, a fifth of the samples: for what compares the results of calls that other checks make, too. Masks
 * have up to four dtypes, or six, so that all of them have their turn. */
static int walk_share(check_fn check, unsigned with, unsigned without, unsigned dtypes) {
    n_apart = IS_SANITIZED && !only_op() ? 5 : 1;
    const int n = walk(check, with, without, dtypes, false);
    n_apart = 1;
    return n;
}

/* Inputs from the same numbers every time. */
static void inputs(struct walk *w, tl_device *device, tl_dtype dtype, bool with_grad, enum sample_layout layout,
                   tl_tensor **in) {
    tl_seed(1234);
    if (!sample_inputs(w->s, device, dtype, with_grad, layout, in))
        fail_msg("%s: inputs: %s", w->name, tl_error_message());
}

/* Copies of inputs that were drawn in LAY_DENSE. */
static void inputs_again(struct walk *w, tl_tensor **first, enum sample_layout layout, tl_tensor **in) {
    if (!sample_inputs_again(w->s, first, layout, in)) fail_msg("%s: inputs: %s", w->name, tl_error_message());
}

static int call(struct walk *w, tl_tensor **in, tl_tensor **out) {
    int n = sample_call(w->s, in, out);
    if (n == 0 || tl_error() != TL_OK) fail_msg("%s: %s", w->name, tl_error_message());
    return n;
}

/* Drawn as the inputs are, so that a seed of the same shape is the same everywhere. */
static tl_tensor *seed_for(tl_tensor *y) {
    tl_seed(99);
    return tensor_drawn(tl_rank(y), tl_shape(y), tl_dtype_of(y), tl_device_of(y));
}

static bool can_go_back(const struct sample *s, tl_tensor *y) { return (s->flags & GRAD) && tl_needs_grad(y); }

static void assert_same_bits(const char *name, const char *what, tl_tensor *a, tl_tensor *b) {
    if (!a && !b) return;
    if (!a || !b) fail_msg("%s: %s: one is missing", name, what);
    size_t n_a, n_b;
    char *x = tensor_bits(a, &n_a), *y = tensor_bits(b, &n_b);
    if (n_a != n_b) fail_msg("%s: %s: %zu bytes and %zu", name, what, n_a, n_b);
    for (size_t i = 0; i < n_a; i++)
        if (x[i] != y[i]) {
            double *u = tensor_values(a), *v = tensor_values(b);
            size_t at = i * 8 / (size_t)tl_dtype_bits(tl_dtype_of(a));
            fail_msg("%s: %s: element %zu is %.17g and %.17g", name, what, at, u[at], v[at]);
        }
    free(x), free(y);
}

/* Within `eps` of the largest finite magnitude, or of `least` when that is more. */
static void assert_close_to(const char *name, const char *what, tl_tensor *a, tl_tensor *b, double eps, double least) {
    if (!a && !b) return;
    if (!a || !b) fail_msg("%s: %s: one is missing", name, what);
    assert_int_equal(tl_numel(a), tl_numel(b));
    double *x = tensor_values(a), *y = tensor_values(b), largest = least;
    for (int64_t i = 0; i < tl_numel(a); i++) largest = fmax(largest, isinf(y[i]) ? 0 : fabs(y[i]));
    for (int64_t i = 0; i < tl_numel(a); i++)
        if (!(fabs(x[i] - y[i]) <= eps * largest) && x[i] != y[i] && !(isnan(x[i]) && isnan(y[i])))
            fail_msg("%s: %s: element %lld is %.17g, expected %.17g within %g of %g", name, what, (long long)i, x[i],
                     y[i], eps, largest);
    free(x), free(y);
}
static void assert_close(const char *name, const char *what, tl_tensor *a, tl_tensor *b, double eps) {
    assert_close_to(name, what, a, b, eps, 0);
}

/* ---- Every row is reached ---- */

static void each_sample_reaches_its_op(struct walk *w) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    inputs(w, cpu, w->dtype, true, LAY_COUNT, in);
    tl_ledger *l = tl_ledger_begin("forward");
    call(w, in, out);
    tl_ledger_end(l);
    bool reached = tl_ledger_total(l, TL_ALL, w->op->name).calls > 0;
    tl_ledger_free(l);
    if (w->s->flags & VIA_BACKWARD) {
        l = tl_ledger_begin("backward");
        assert_true(tl_backward(out[0], seed_for(out[0]), 0));
        /* a rule that adds in place needs an existing sum */
        tl_ledger_end(l);
        reached = tl_ledger_total(l, TL_BACKWARD, w->op->name).calls > 0;
        tl_ledger_free(l);
    }
    bool copies =
        w->op->id == OP_ID_copy || w->op->id == OP_ID_transfer; /* "contiguous" of a dense one, "to" where it is */
    if (!reached && !(copies && out[0] == in[0])) fail_msg("%s: the op was not called", w->name);
}
static void every_row_has_samples_that_reach_it(void **state) {
    (void)state;
    for (int i = 0; i < OP_COUNT; i++) {
        assert_string_equal(sample_ops[i].name, op_table[i]->name);
        int n = 0;
        for (const struct sample *s = sample_ops[i].samples; s->text; s++) n += !s->error;
        if (n < 3) fail_msg("%s has %d samples: too few", sample_ops[i].name, n);
    }
    walk(each_sample_reaches_its_op, 0, 0, DT(TL_F32), false);
}

/* ---- (a) meta = cpu ---- */

static void run_and_record(struct walk *w, tl_device *device, bool backward, struct record *r) {
    memset(r, 0, sizeof *r);
    tl_scope scope = tl_scope_begin();
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    tl_pool_trim(device);
    inputs(w, device, w->dtype, backward, LAY_COUNT, in);
    tl_ledger *l = tl_ledger_begin("sample");
    int n = call(w, in, out);
    for (int j = 0; j < n; j++) record_output(r, out[j]);
    if (backward && can_go_back(w->s, out[0])) {
        if (!tl_backward(out[0], seed_for(out[0]), 0)) fail_msg("%s: backward: %s", w->name, tl_error_message());
        for (int i = 0; i < sample_input_count(w->s); i++) record_output(r, tl_grad_of(in[i]));
    }
    tl_ledger_end(l);
    record_ledger(r, l, device);
    tl_ledger_free(l);
    assert_true(tl_scope_end(scope));
}

static bool with_backward;
static void meta_agrees(struct walk *w) {
    static struct record real, priced;
    run_and_record(w, cpu, with_backward, &real);
    run_and_record(w, meta, with_backward, &priced);
    const char *d = record_difference(&real, &priced);
    if (d) fail_msg("%s: cpu and meta differ: %s", w->name, d);
    assert_true(real.n_rows > 0 || w->op->id == OP_ID_copy);
    run_and_record(w, h200, with_backward, &real);
    run_and_record(w, h200, with_backward, &priced);
    d = record_difference(&real, &priced);
    if (d) fail_msg("%s: two prices of h200 differ: %s", w->name, d);
}
static void meta_equals_cpu_forward(void **state) {
    (void)state;
    with_backward = false;
    walk_share(meta_agrees, 0, CPU_ONLY, ~0u);
}
static void meta_equals_cpu_forward_and_backward(void **state) {
    (void)state;
    with_backward = true;
    walk(meta_agrees, GRAD, CPU_ONLY, ~0u, false);
}

static void meta_refuses(struct walk *w) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    inputs(w, meta, w->dtype, false, LAY_COUNT, in);
    int n = sample_call(w->s, in, out);
    if (tl_error() == TL_OK) fail_msg("%s: gave %d results on meta", w->name, n);
    if (!strstr(tl_error_message(), w->op->name) || !strstr(tl_error_message(), "meta"))
        fail_msg("%s: the refusal names neither op nor meta: %s", w->name, tl_error_message());
    tl_error_clear();
}
static void meta_refuses_what_depends_on_data_by_name(void **state) {
    (void)state;
    walk(meta_refuses, CPU_ONLY, 0, DT(TL_F32), false);
}

/* ---- (b) Gradients against four-point differences ---- */

static double projected(tl_tensor *y, const double *projection) {
    double *value = tensor_values(y);
    long double sum = 0;
    for (int64_t i = 0; i < tl_numel(y); i++) sum += (long double)value[i] * projection[i];
    free(value);
    return (double)sum;
}

/* Element offset in memory of the i-th element in row-major order, from the first. */
static int64_t element_offset(tl_tensor *x, int64_t i) {
    int64_t at = 0;
    for (int a = tl_rank(x) - 1; a >= 0; a--) {
        at += i % tl_size(x, a) * tl_stride(x, a);
        i /= tl_size(x, a);
    }
    return at;
}

/* Differences are taken at every element; under a sanitizer at some, since the same calls on other numbers touch no
 * other memory. */
enum { ELEMENT_STEP = IS_SANITIZED ? 7 : 1 };

/* f(x + step) for one element of one input, which is put back afterwards. Random ops inside restart each time. */
static double shifted(struct walk *w, tl_tensor **in, double *element, double step, const double *projection) {
    tl_scope scope = tl_scope_begin();
    bool mode = tl_set_grad_mode(false);
    double before = *element;
    tl_tensor *out[SAMPLE_OUTPUTS];
    *element += step;
    tl_seed(7);
    call(w, in, out);
    double value = projected(out[0], projection);
    *element = before;
    tl_set_grad_mode(mode);
    tl_scope_end(scope);
    return value;
}

static void gradient_agrees(struct walk *w) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    inputs(w, cpu, TL_F64, true, LAY_COUNT, in);
    tl_seed(7);
    call(w, in, out);
    if (!tl_needs_grad(out[0])) fail_msg("%s: the result needs no gradient", w->name);
    tl_tensor *seed = seed_for(out[0]);
    double *projection = tensor_values(seed);
    if (!tl_backward(out[0], seed, 0)) fail_msg("%s: %s", w->name, tl_error_message());
    const double h = 1.0 / 1024;
    for (int k = 0; k < sample_input_count(w->s); k++) {
        if (!tl_needs_grad(in[k])) continue;
        int64_t n = tl_numel(in[k]);
        double *grad = tl_grad_of(in[k]) ? tensor_values(tl_grad_of(in[k])) : calloc((size_t)n + 1, sizeof *grad);
        for (int64_t i = 0; i < n; i += ELEMENT_STEP) {
            double expected = 0, *element = (double *)tl_data(in[k]) + element_offset(in[k], i);
            for (int64_t m = 0; m < n; m++) /* elements of an expanded input share memory */
                if (element_offset(in[k], m) == element_offset(in[k], i)) expected += grad[m];
            double f[4];
            for (int p = 0; p < 4; p++) f[p] = shifted(w, in, element, (p < 2 ? p - 2 : p - 1) * h, projection);
            double numeric = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
            /* truncation h^4 f'''''/30 and rounding 2e-16 f/h */
            if (!(fabs(numeric - expected) <= 1e-7 * (1 + fabs(expected))))
                fail_msg("%s: input %d, element %lld: the rule says %.12g, differences %.12g", w->name, k, (long long)i,
                         expected, numeric);
        }
        free(grad);
    }
    free(projection);
}
static void gradients_match_four_point_differences(void **state) {
    (void)state;
    walk(gradient_agrees, GRAD, LARGE | ROUNDS, DT(TL_F64), false);
}

/* ---- Second derivatives, against four-point differences of the first ---- */

/* loss = sum of seed y^2, so that the incoming gradient depends on the inputs too; its gradients by the leaves. */
static bool first_gradients(struct walk *w, tl_tensor **in, tl_tensor **leaf, int n, unsigned flags, tl_tensor **grad) {
    tl_tensor *out[SAMPLE_OUTPUTS];
    tl_seed(7);
    call(w, in, out);
    tl_tensor *seed = seed_for(out[0]), *square = tl_mul(out[0], out[0]);
    return tl_gradients(tl_sum_all(tl_mul(seed, square)), NULL, leaf, n, flags, grad);
}

/* sum over leaves of <gradient, a fixed direction> */
static tl_tensor *directional(tl_tensor **grad, int n) {
    tl_tensor *total = NULL;
    for (int k = 0; k < n; k++) {
        if (!grad[k]) continue;
        tl_seed(100 + (uint64_t)k);
        tl_tensor *direction = tensor_drawn(tl_rank(grad[k]), tl_shape(grad[k]), TL_F64, cpu);
        tl_tensor *part = tl_sum_all(tl_mul(grad[k], direction));
        total = total ? tl_add(total, part) : part;
    }
    return total;
}

static double directional_at(struct walk *w, tl_tensor **in, tl_tensor **leaf, int n, double *element, double step) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *grad[SAMPLE_INPUTS] = {0};
    double before = *element;
    *element += step;
    if (!first_gradients(w, in, leaf, n, 0, grad)) fail_msg("%s: %s", w->name, tl_error_message());
    tl_tensor *total = directional(grad, n);
    double value = total ? tl_item(total) : 0;
    *element = before;
    tl_scope_end(scope);
    return value;
}

/* Ops whose gradient cannot be differentiated: these, and no others, say so. */
static const char *const only_once[] = {"attention", "linear_cross_entropy", "gelu_mlp", "swiglu_mlp"};
static int n_once[sizeof only_once / sizeof *only_once];

static void refusal_is_known(struct walk *w) {
    for (size_t i = 0; i < sizeof only_once / sizeof *only_once; i++)
        if (strstr(tl_error_message(), "is not implemented") && strstr(tl_error_message(), only_once[i])) {
            n_once[i]++;
            tl_error_clear();
            return;
        }
    fail_msg("%s: %s", w->name, tl_error_message());
}

static void second_agrees(struct walk *w) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *leaf[SAMPLE_INPUTS], *grad[SAMPLE_INPUTS] = {0}, *second[SAMPLE_INPUTS] = {0};
    inputs(w, cpu, TL_F64, true, LAY_COUNT, in);
    int n = 0;
    for (int k = 0; k < sample_input_count(w->s); k++)
        if (tl_needs_grad(in[k])) leaf[n++] = in[k];
    if (!first_gradients(w, in, leaf, n, TL_CREATE_GRAPH, grad)) {
        refusal_is_known(w);
        return;
    }
    tl_tensor *total = directional(grad, n);
    if (total && tl_needs_grad(total) && !tl_gradients(total, NULL, leaf, n, 0, second)) {
        refusal_is_known(w);
        return;
    }
    const double h = 1.0 / 1024;
    for (int k = 0; k < n; k++) {
        int64_t size = tl_numel(leaf[k]);
        double *value = second[k] ? tensor_values(second[k]) : calloc((size_t)size + 1, sizeof *value);
        for (int64_t i = 0; i < size; i += ELEMENT_STEP) {
            double expected = 0, *element = (double *)tl_data(leaf[k]) + element_offset(leaf[k], i), f[4];
            for (int64_t m = 0; m < size; m++) /* elements of an expanded input share memory */
                if (element_offset(leaf[k], m) == element_offset(leaf[k], i)) expected += value[m];
            for (int p = 0; p < 4; p++) f[p] = directional_at(w, in, leaf, n, element, (p < 2 ? p - 2 : p - 1) * h);
            double numeric = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
            if (!(fabs(numeric - expected) <= 1e-6 * (1 + fabs(expected))))
                fail_msg("%s: leaf %d, element %lld: the rule says %.12g, differences %.12g", w->name, k, (long long)i,
                         expected, numeric);
        }
        free(value);
    }
}
static void second_derivatives_match_differences_of_the_first(void **state) {
    (void)state;
    walk(second_agrees, GRAD, LARGE | ROUNDS, DT(TL_F64), false);
    for (size_t i = 0; i < sizeof only_once / sizeof *only_once; i++)
        if (!n_once[i] && !only_op()) fail_msg("%s has a second derivative: take it out of the list", only_once[i]);
}

/* Whether runs of this sample are compared with one another. Under a sanitizer, large ones are in one wide and one
 * narrow dtype; declared_dtypes_run has every large sample in every dtype. */
static bool is_compared(const struct walk *w) {
    return !IS_SANITIZED || !(w->s->flags & LARGE) || (DT(w->dtype) & (DT(TL_F32) | DT(TL_BF16)));
}

/* ---- (c) Layout of the inputs ---- */

static void layouts_agree(struct walk *w) {
    if (!is_compared(w)) return;
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *dense[SAMPLE_OUTPUTS], *out[SAMPLE_OUTPUTS], *grad[SAMPLE_INPUTS] = {0};
    tl_tensor *first[SAMPLE_INPUTS] = {0};
    inputs(w, cpu, w->dtype, true, LAY_DENSE, first);
    inputs_again(w, first, LAY_DENSE, in);
    tl_seed(7);
    int n = call(w, in, dense);
    bool back = can_go_back(w->s, dense[0]);
    tl_tensor *seed = back ? seed_for(dense[0]) : NULL;
    if (back) assert_true(tl_backward(dense[0], seed, 0));
    for (int i = 0; i < SAMPLE_INPUTS; i++) grad[i] = in[i] ? tl_grad_of(in[i]) : NULL;
    for (int layout = LAY_PERMUTED; layout <= LAY_REVERSED; layout++) {
        tl_tensor *in2[SAMPLE_INPUTS] = {0};
        inputs_again(w, first, (enum sample_layout)layout, in2);
        tl_seed(7);
        assert_int_equal(call(w, in2, out), n);
        if (back) assert_true(tl_backward(out[0], seed, 0));
        /* Bit-equal, with one exception. A matmul takes transposed operands as they are, and a BLAS packs and adds
         * them in another order: k rounded multiply-adds in another order differ by at most k eps of the largest
         * term; k <= 150. */
        double eps = 150 * dtype_info(w->dtype)->eps;
        for (int j = 0; j < n; j++) {
            if (w->s->flags & SUM_ORDER) assert_close(w->name, "result in another layout", out[j], dense[j], eps);
            else assert_same_bits(w->name, "result in another layout", out[j], dense[j]);
        }
        for (int i = 0; i < SAMPLE_INPUTS && back; i++) {
            if (!in2[i]) continue;
            if (w->s->flags & SUM_ORDER)
                assert_close(w->name, "gradient in another layout", tl_grad_of(in2[i]), grad[i], eps);
            else assert_same_bits(w->name, "gradient in another layout", tl_grad_of(in2[i]), grad[i]);
        }
    }
}
static void results_do_not_depend_on_strides(void **state) {
    (void)state;
    walk(layouts_agree, 0, GEOMETRY | NO_DATA, DT_FLOATS, false);
}

/* ---- (d) dtypes ---- */

/* The rule. A result of one op in a narrow dtype is computed in f32 and rounded once, so it lies within u = eps/2 of
 * the exact value, relatively; we allow twice that, 2u|y| per rounding stated by the sample, plus the arithmetic's
 * own error in f32 (sums of up to a few hundred terms that may cancel): 2^-18 of the largest result; f64 has its own
 * share. */
static void dtype_is_accurate(struct walk *w) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *in64[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS], *exact[SAMPLE_OUTPUTS];
    const bool is_f32 = (dtypes_of(w->s) & (DT(TL_F64) | DT(TL_F32))) == DT(TL_F32); /* there is no f64 */
    inputs(w, cpu, is_f32 ? TL_F32 : TL_F64, false, LAY_COUNT, in64);
    tl_seed(7);
    int n = call(w, in64, exact);
    inputs(w, cpu, w->dtype, false, LAY_COUNT, in);
    tl_seed(7);
    assert_int_equal(call(w, in, out), n);
    if (w->s->flags & ROUNDS) return; /* a cast's result has its own dtype, checked in test_dtype */
    int roundings = w->s->roundings ? w->s->roundings : 1;
    double u = dtype_info(w->dtype)->eps / 2;
    for (int j = 0; j < n; j++) {
        double *y = tensor_values(out[j]), *x = tensor_values(exact[j]), largest = 0;
        assert_int_equal(tl_numel(out[j]), tl_numel(exact[j]));
        for (int64_t i = 0; i < tl_numel(out[j]); i++)
            if (isfinite(x[i])) largest = fmax(largest, fabs(x[i]));
        for (int64_t i = 0; i < tl_numel(out[j]); i++) {
            double bound = 2 * u * (roundings > 1 ? roundings * largest : fabs(x[i])) + ldexp(largest, -18) +
                           dtype_info(w->dtype)->smallest_subnormal;
            if (!(fabs(y[i] - x[i]) <= bound) && !(y[i] == x[i]) && !(isnan(x[i]) && isnan(y[i])))
                fail_msg("%s: result %d, element %lld: %.9g, in f64 %.9g, allowed %.3g", w->name, j, (long long)i, y[i],
                         x[i], bound);
        }
        free(x), free(y);
    }
}
static void narrow_dtypes_are_within_two_roundings(void **state) {
    (void)state;
    walk_share(dtype_is_accurate, 0, NO_DATA, DT(TL_F32) | DT(TL_F16) | DT(TL_BF16));
}

/* Other dtypes run, or are refused with a message: nothing in between. */
static void dtype_runs(struct walk *w) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    inputs(w, cpu, w->dtype, true, LAY_COUNT, in);
    call(w, in, out);
    if (can_go_back(w->s, out[0])) assert_true(tl_backward(out[0], seed_for(out[0]), 0));
}
static void declared_dtypes_run(void **state) {
    (void)state;
    walk(dtype_runs, 0, 0, ~0u, false);
}

/* Dtypes that a sample does not declare: meta prices exactly the calls that cpu runs. */
static bool runs_on(const struct sample *s, tl_device *device, tl_dtype dtype, bool *has_inputs) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    tl_seed(1234);
    *has_inputs = sample_inputs(s, device, dtype, true, LAY_COUNT, in);
    bool ok = *has_inputs && sample_call(s, in, out) > 0;
    if (ok && can_go_back(s, out[0])) ok = tl_backward(out[0], tl_ones_like(out[0]), 0);
    tl_error_clear();
    tl_scope_end(scope);
    return ok;
}
static void undeclared_dtypes_are_refused_alike(void **state) {
    (void)state;
    const tl_dtype dtypes[] = {TL_F64, TL_F8E4M3, TL_F8E5M2, TL_F8E8M0, TL_F4E2M1};
    int n = 0, n_refused = 0;
    for (const struct sample_op *op = sample_ops; op->name; op++)
        for (const struct sample *s = op->samples; s->text; s++)
            for (int d = 0; d < 5; d++) {
                bool has_inputs;
                if (s->error || (s->flags & (LARGE | CPU_ONLY)) || (dtypes_of(s) & DT(dtypes[d]))) continue;
                bool on_cpu = runs_on(s, cpu, dtypes[d], &has_inputs),
                     on_meta = runs_on(s, meta, dtypes[d], &has_inputs);
                if (!has_inputs) continue;
                if (on_cpu != on_meta)
                    fail_msg("%s, %s, %s: %s on cpu, %s on meta", op->name, s->text, tl_dtype_name(dtypes[d]),
                             on_cpu ? "runs" : "is refused", on_meta ? "runs" : "is refused");
                n++;
                n_refused += !on_cpu;
            }
    print_message("    %d samples, %d refused\n", n, n_refused);
    assert_nothing_held("undeclared dtypes", cpu);
    assert_nothing_held("undeclared dtypes", meta);
}

/* ---- (e) What is saved suffices ---- */

/* Overwrites free memory with garbage. */
static void scribble(void) {
    tl_scope scope = tl_scope_begin();
    for (int i = 0; i < 24; i++) tl_full(TL_SHAPE(64 << (i % 8)), NAN, TL_F64, cpu);
    tl_scope_end(scope);
}

/* The op works on clones of the leaves, which are freed with the inner scope: only tensors that the node saved are
 * left. */
static tl_tensor *run_alone(struct walk *w, tl_tensor **leaf) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    tl_scope scope = tl_scope_begin();
    for (int i = 0; i < sample_input_count(w->s); i++) in[i] = tl_clone(leaf[i]);
    tl_seed(7);
    call(w, in, out);
    return tl_scope_return(scope, out[0]);
}

static void saved_suffices(struct walk *w) {
    tl_tensor *leaf[SAMPLE_INPUTS] = {0}, *leaf2[SAMPLE_INPUTS] = {0}, *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    inputs(w, cpu, w->dtype, true, LAY_COUNT, leaf);
    for (int i = 0; i < sample_input_count(w->s); i++) in[i] = tl_clone(leaf[i]);
    tl_seed(7);
    call(w, in, out);
    assert_true(tl_backward(out[0], seed_for(out[0]), 0));
    inputs(w, cpu, w->dtype, true, LAY_COUNT, leaf2);
    tl_tensor *y = run_alone(w, leaf2), *seed = seed_for(y);
    scribble();
    if (!tl_backward(y, seed, 0)) fail_msg("%s: %s", w->name, tl_error_message());
    for (int i = 0; i < sample_input_count(w->s); i++)
        assert_same_bits(w->name, "gradient from what was saved alone", tl_grad_of(leaf2[i]), tl_grad_of(leaf[i]));
}
static void what_a_node_saves_suffices(void **state) {
    (void)state;
    walk_share(saved_suffices, GRAD, GEOMETRY, DT(TL_F64) | DT(TL_BF16));
}

/* ---- (g) In place = out of place ---- */

static void twin_agrees(struct walk *w) {
    if (!w->s->twin) {
        n_skipped++;
        return;
    }
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *in2[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS], *twin[SAMPLE_OUTPUTS];
    inputs(w, cpu, w->dtype, true, LAY_COUNT, in);
    inputs(w, cpu, w->dtype, true, LAY_COUNT, in2);
    assert_int_equal(call(w, in, out), w->s->twin(w->s, in2, twin));
    assert_same_bits(w->name, "in place and out of place", out[0], twin[0]);
    if (!can_go_back(w->s, out[0]) || !tl_needs_grad(twin[0])) return;
    assert_true(tl_backward(out[0], seed_for(out[0]), 0));
    assert_true(tl_backward(twin[0], seed_for(twin[0]), 0));
    for (int i = 0; i < sample_input_count(w->s); i++)
        assert_same_bits(w->name, "gradients in place and out of place", tl_grad_of(in[i]), tl_grad_of(in2[i]));
}
static void in_place_equals_out_of_place(void **state) {
    (void)state;
    for (int i = 0; i < OP_COUNT; i++) { /* every op with an in-place form has a sample of it */
        bool has_twin = false;
        for (const struct sample *s = sample_ops[i].samples; s->text; s++) has_twin |= s->twin != NULL;
        bool public_form = op_table[i]->may_overwrite || i == OP_ID_assign || i == OP_ID_fill;
        if (public_form && !has_twin) fail_msg("%s has no sample of its in-place form", sample_ops[i].name);
    }
    walk(twin_agrees, 0, NO_DATA, DT_FLOATS, false);
}

/* Rows of elementwise_list.h that take tensors alone: how many. The others have attributes, which their samples
 * give. */
static const int n_operands[OP_COUNT] = {
#define UNARY(name, ...) [OP_ID_##name] = 1,
#define BINARY(name, ...) [OP_ID_##name] = 2,
#define SPECIAL(...)
#include "spec/elementwise_list.h"
};

static void every_op_that_may_overwrite_does_so_correctly(void **state) {
    (void)state;
    int n = 0;
    for (int i = 0; i < OP_COUNT; i++) {
        const tl_op *op = op_table[i];
        if (!op->may_overwrite || !n_operands[i]) continue;
        const bool is_binary = n_operands[i] == 2;
        for (int layout = LAY_DENSE; layout <= LAY_REVERSED; layout++) {
            tl_scope scope = tl_scope_begin();
            tl_seed(5);
            tl_tensor *a = tl_affine(tensor_drawn(TL_SHAPE(7, 9), TL_F32, cpu), 1, 2.5);
            tl_tensor *b = tl_affine(tensor_drawn(TL_SHAPE(7, 9), TL_F32, cpu), 1, 2.5);
            tl_tensor *x[2] = {tensor_laid_out(a, (enum sample_layout)layout), b};
            if (layout == LAY_DENSE) x[0] = tl_clone(a);
            tl_tensor *fresh = is_binary ? op_apply2(op, a, b, NULL, 0) : op_apply1(op, a, NULL, 0);
            tl_tensor *same = op_apply_in_place(op, x, is_binary ? 2 : 1, NULL, 0);
            assert_ptr_equal(same, x[0]);
            assert_same_bits(op->name, "in place", same, fresh);
            tl_scope_end(scope);
            n++;
        }
    }
    print_message("    %d calls\n", n);
    assert_nothing_held("in place", cpu);
}

/* ---- (h) Threads ---- */

static void threads_agree(struct walk *w) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *alone[SAMPLE_OUTPUTS], *out[SAMPLE_OUTPUTS], *grad[SAMPLE_INPUTS] = {0};
    tl_tensor *first[SAMPLE_INPUTS] = {0};
    int before = tl_set_threads(1);
    inputs(w, cpu, w->dtype, true, LAY_DENSE, first);
    inputs_again(w, first, LAY_COUNT, in);
    tl_seed(7);
    int n = call(w, in, alone);
    bool back = can_go_back(w->s, alone[0]);
    tl_tensor *seed = back ? seed_for(alone[0]) : NULL;
    if (back) assert_true(tl_backward(alone[0], seed, 0));
    for (int i = 0; i < SAMPLE_INPUTS; i++) grad[i] = in[i] ? tl_grad_of(in[i]) : NULL;
    const int n_threads[] = {2, 3, 8};
    for (int t = 0; t < 3; t++) {
        tl_tensor *in2[SAMPLE_INPUTS] = {0};
        tl_set_threads(n_threads[t]);
        inputs_again(w, first, LAY_COUNT, in2);
        tl_seed(7);
        assert_int_equal(call(w, in2, out), n);
        for (int j = 0; j < n && tl_device_of(out[j]) == cpu; j++)
            assert_same_bits(w->name, "result with more threads", out[j], alone[j]);
        if (back) assert_true(tl_backward(out[0], seed, 0));
        for (int i = 0; i < SAMPLE_INPUTS && back; i++)
            if (in2[i]) assert_same_bits(w->name, "gradient with more threads", tl_grad_of(in2[i]), grad[i]);
    }
    tl_set_threads(before);
}
static void results_do_not_depend_on_threads(void **state) {
    (void)state;
    walk_share(threads_agree, 0, 0, DT(TL_F32) | DT(TL_BF16));
}

/* ---- (i) Instruction sets ---- */

/* Ops whose blocks and multiply-adds depend on the instruction set: equal except for the order and number of
 * roundings. */
static const char *const product_ops[] = {"matmul",        "matmul_acc",        "matmul_parts",
                                          "matmul_blocks", "grouped_matmul",    "grouped_matmul_acc",
                                          "grouped_outer", "grouped_outer_acc", "gelu_mlp",
                                          "gelu_mlp_grad", "swiglu_mlp",        "swiglu_mlp_grad",
                                          "attention",     "attention_grad",    "linear_cross_entropy"};

/* One call with its gradients, by the kernels of one set. The gradient of the result is drawn if there is none yet.
 * True: a product was among its ops. */
static bool run_with(struct walk *w, const tl_kernel *kernels, tl_tensor **first, tl_tensor **seed, tl_tensor **out,
                     int *n, tl_tensor **grad) {
    const tl_kernel *before = cpu->kernels;
    tl_tensor *in[SAMPLE_INPUTS] = {0};
    inputs_again(w, first, LAY_COUNT, in);
    tl_ledger *l = tl_ledger_begin("run");
    cpu->kernels = kernels;
    tl_seed(7);
    *n = call(w, in, out);
    if (can_go_back(w->s, out[0])) {
        if (!*seed) *seed = seed_for(out[0]);
        assert_true(tl_backward(out[0], *seed, 0));
    }
    cpu->kernels = before;
    tl_ledger_end(l);
    bool has_product = false;
    for (size_t i = 0; i < sizeof product_ops / sizeof *product_ops; i++)
        has_product |= tl_ledger_total(l, TL_ALL, product_ops[i]).calls > 0;
    tl_ledger_free(l);
    for (int i = 0; i < SAMPLE_INPUTS; i++) grad[i] = in[i] ? tl_grad_of(in[i]) : NULL;
    return has_product;
}

/* f32 and f64 sums differ by a few roundings of their terms, which the samples' numbers make about 1; a narrow
 * result, or a sum of such, by one of the narrow dtype. */
static void assert_alike(const struct walk *w, const char *what, tl_tensor *a, tl_tensor *b, bool has_product) {
    if (!has_product || !a || !b || !dtype_is_float(tl_dtype_of(a))) {
        assert_same_bits(w->name, what, a, b);
        return;
    }
    const bool is_narrow_call = dtype_is_float(w->dtype) && tl_dtype_bits(w->dtype) < tl_dtype_bits(tl_dtype_of(a));
    const tl_dtype dtype = is_narrow_call ? w->dtype : tl_dtype_of(a);
    const bool is_narrow = tl_dtype_bits(dtype) < 32;
    assert_close_to(w->name, what, a, b, (is_narrow ? 1 : 16) * tl_finfo(dtype).eps, is_narrow ? 0 : 1);
}

static void sets_agree(struct walk *w) {
    if (!is_compared(w)) return;
    struct cpu_isa isa;
    tl_tensor *base[SAMPLE_OUTPUTS], *base_grad[SAMPLE_INPUTS], *out[SAMPLE_OUTPUTS], *grad[SAMPLE_INPUTS];
    tl_tensor *first[SAMPLE_INPUTS] = {0}, *seed = NULL;
    int n_base, n;
    assert_true(cpu_isa_at(0, &isa));
    inputs(w, cpu, w->dtype, true, LAY_DENSE, first);
    const bool has_product = run_with(w, isa.kernels, first, &seed, base, &n_base, base_grad);
    for (int i = 1; cpu_isa_at(i, &isa); i++) {
        char what[60];
        run_with(w, isa.kernels, first, &seed, out, &n, grad);
        assert_int_equal(n, n_base);
        snprintf(what, sizeof what, "result by %s and baseline", isa.name);
        for (int j = 0; j < n && tl_device_of(out[j]) == cpu; j++) assert_alike(w, what, out[j], base[j], has_product);
        snprintf(what, sizeof what, "gradient by %s and baseline", isa.name);
        for (int j = 0; j < SAMPLE_INPUTS; j++) assert_alike(w, what, grad[j], base_grad[j], has_product);
    }
}
static void instruction_sets_agree(void **state) {
    (void)state;
    struct cpu_isa isa;
    if (!cpu_isa_at(1, &isa)) skip(); /* this machine has the baseline alone */
    for (int i = 0; cpu_isa_at(i, &isa); i++) print_message("    %s\n", isa.name);
    walk(sets_agree, 0, NO_DATA, DT_ARITHMETIC, false);
}

/* ---- The words of `tally ops` ---- */

#define DT_INTEGERS (DT(TL_I64) | DT(TL_I32) | DT(TL_I16) | DT(TL_U16) | DT(TL_I8) | DT(TL_U8))
#define DT_COMPUTES (DT_ARITHMETIC | DT_INTEGERS | DT(TL_BOOL))
#define DT_COMPLEX (DT(TL_C64) | DT(TL_C128))
#define DT_ANY (DT_COMPUTES | DT(TL_F8E8M0) | DT(TL_F4E2M1))

/* The dtypes of the first operand (of the result, if there is none) by the first words of an op's `dtypes`. The
 * longest match counts. */
static const struct {
    const char *words;
    unsigned dtypes;
} dtype_words[] = {
    {"floats", DT_ARITHMETIC},
    {"x float", DT_ARITHMETIC},
    {"g float", DT_ARITHMETIC},
    {"floats but f64", DT_ARITHMETIC & ~DT(TL_F64)},
    {"floats, integers", DT_ARITHMETIC | DT_INTEGERS},
    {"integers, bool", DT_INTEGERS | DT(TL_BOOL)},
    {"floats, integers, bool", DT_COMPUTES},
    {"floats; integers and bool", DT_COMPUTES},
    {"floats; bernoulli: any that computes", DT_COMPUTES},
    {"any", DT_ANY},
    {"any, complex too", DT_ANY | DT_COMPLEX},
    /* and f4, where the call leaves pairs together */
    {"any, complex too; pairs of f4 stay whole", (DT_ANY | DT_COMPLEX) & ~DT(TL_F4E2M1)},
    {"any but f4", DT_ANY & ~DT(TL_F4E2M1)},
    {"any x but f4", DT_ANY & ~DT(TL_F4E2M1)},
    {"any for arithmetic", DT_COMPUTES},
    {"any arithmetic", DT_COMPUTES},
    {"any for arithmetic but bool", DT_COMPUTES & ~DT(TL_BOOL)},
    {"f32, f64", DT(TL_F32) | DT(TL_F64)},
    {"c64, c128", DT_COMPLEX},
    {"i64", DT(TL_I64)},
    {"i64, i32", DT(TL_I64) | DT(TL_I32)},
    {"condition bool", DT(TL_BOOL)},
    {"x f32, f16 or bf16", DT(TL_F32) | DT(TL_F16) | DT(TL_BF16)},
    {"factors f8e4m3 or f8e5m2", DT(TL_F8E4M3) | DT(TL_F8E5M2)},
    {"the dtypes of a format", DT(TL_F8E4M3) | DT(TL_F8E5M2) | DT(TL_F4E2M1) | DT(TL_U8)},
};

static unsigned dtypes_said(const char *words) {
    size_t longest = 0;
    unsigned dtypes = 0;
    for (size_t i = 0; i < sizeof dtype_words / sizeof *dtype_words; i++) {
        size_t length = strlen(dtype_words[i].words);
        if (length <= longest || strncmp(words, dtype_words[i].words, length)) continue;
        longest = length;
        dtypes = dtype_words[i].dtypes;
    }
    return dtypes;
}

/* The dtypes that the op was called with, in the calls and gradients of a sample whose float inputs are zeros of
 * `dtype`. */
static unsigned dtypes_run(const struct sample_op *op, const struct sample *s, tl_dtype dtype) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    const bool is_drawn = DT_ARITHMETIC & DT(dtype);
    unsigned seen = 0;
    tl_scope scope = tl_scope_begin();
    tl_seed(1234);
    bool ok = sample_inputs(s, cpu, is_drawn ? dtype : TL_F32, true, LAY_COUNT, in);
    for (int i = 0; ok && !is_drawn && i < sample_input_count(s); i++)
        if (s->in[i].kind <= IN_CONSTANT && s->in[i].kind != IN_STATE)
            ok = (in[i] = tl_zeros(tl_rank(in[i]), tl_shape(in[i]), dtype, cpu)) != NULL;
    tl_ledger *l = tl_ledger_begin("words");
    if (ok && sample_call(s, in, out) > 0 && can_go_back(s, out[0])) tl_backward(out[0], tl_ones_like(out[0]), 0);
    tl_error_clear();
    tl_ledger_end(l);
    for (size_t i = 0; i < l->n_rows; i++)
        if (l->rows[i].calls && !strcmp(l->rows[i].key.op, op->name) && l->rows[i].key.dtype < TL_DTYPE_COUNT)
            seen |= DT(l->rows[i].key.dtype);
    tl_ledger_free(l);
    tl_scope_end(scope);
    return seen;
}

static void words_list(unsigned dtypes, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int d = 0; d < TL_DTYPE_COUNT && used < size; d++)
        if (dtypes & DT(d)) used += (size_t)snprintf(text + used, size - used, " %s", tl_dtype_name((tl_dtype)d));
}

/* Every dtype that the words name is taken by some sample's call, and no other. */
static void dtype_words_are_what_the_rules_take(void **state) {
    (void)state;
    const char *pairs = "pairs of f4 stay whole";
    int n_wrong = 0;
    for (const struct sample_op *op = sample_ops; op->name; op++) {
        unsigned taken = 0, said = dtypes_said(op_table[op->id]->dtypes);
        bool has_floats = false;
        for (const struct sample *s = op->samples; s->text; s++)
            for (int d = 0; d < TL_DTYPE_COUNT && !s->error && !(s->flags & LARGE); d++)
                taken |= dtypes_run(op, s, (tl_dtype)d);
        for (const struct sample *s = op->samples; s->text; s++)
            has_floats |= s->in[0].kind && s->in[0].kind <= IN_CONSTANT;
        /* no float inputs: the samples' own dtypes are checked */
        if (!has_floats && !(taken & ~said) && taken) continue;
        if (strstr(op_table[op->id]->dtypes, pairs)) taken &= ~DT(TL_F4E2M1);
        if (taken == said) continue;
        char more[200], less[200];
        words_list(taken & ~said, more, sizeof more);
        words_list(said & ~taken, less, sizeof less);
        print_error("%s, \"%s\": also takes:%s; does not take:%s\n", op->name, op_table[op->id]->dtypes, more, less);
        n_wrong++;
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- Errors ---- */

static void fails_on(struct walk *w, tl_device *device) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    tl_scope scope = tl_scope_begin();
    inputs(w, device, w->dtype, false, LAY_COUNT, in);
    int n = sample_call(w->s, in, out);
    if (n || tl_error() != TL_ERROR_USE)
        fail_msg("%s on %s: %d results, error %d", w->name, tl_device_name(device), n, tl_error());
    if (!strstr(tl_error_message(), w->s->error))
        fail_msg("%s on %s: \"%s\" is not in \"%s\"", w->name, tl_device_name(device), w->s->error, tl_error_message());
    tl_error_clear();
    assert_true(tl_scope_end(scope));
}
static void fails(struct walk *w) {
    fails_on(w, cpu);
    if (!(w->s->flags & CPU_ONLY)) fails_on(w, meta);
}
static void wrong_calls_say_what_is_wrong_and_leave_nothing(void **state) {
    (void)state;
    walk(fails, 0, 0, DT(TL_F32), true);
}

static int setup(void **state) {
    (void)state;
    tl_set_error_policy(TL_RETURN);
    cpu = tl_device_find("cpu");
    meta = tl_device_find("meta");
    h200 = tl_device_find("meta:h200");
    return cpu && meta && h200 ? 0 : -1;
}

/* A failed test leaves an error, scopes and perhaps a ledger behind: the next one starts clean. */
static int start(void **state) {
    (void)state;
    tl_error_clear();
    tl_scope_reset();
    tl_set_grad_mode(true);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_row_has_samples_that_reach_it, start),
        cmocka_unit_test_setup(declared_dtypes_run, start),
        cmocka_unit_test_setup(undeclared_dtypes_are_refused_alike, start),
        cmocka_unit_test_setup(meta_equals_cpu_forward, start),
        cmocka_unit_test_setup(meta_equals_cpu_forward_and_backward, start),
        cmocka_unit_test_setup(meta_refuses_what_depends_on_data_by_name, start),
        cmocka_unit_test_setup(gradients_match_four_point_differences, start),
        cmocka_unit_test_setup(second_derivatives_match_differences_of_the_first, start),
        cmocka_unit_test_setup(results_do_not_depend_on_strides, start),
        cmocka_unit_test_setup(narrow_dtypes_are_within_two_roundings, start),
        cmocka_unit_test_setup(what_a_node_saves_suffices, start),
        cmocka_unit_test_setup(in_place_equals_out_of_place, start),
        cmocka_unit_test_setup(every_op_that_may_overwrite_does_so_correctly, start),
        cmocka_unit_test_setup(results_do_not_depend_on_threads, start),
        cmocka_unit_test_setup(instruction_sets_agree, start),
        cmocka_unit_test_setup(dtype_words_are_what_the_rules_take, start),
        cmocka_unit_test_setup(wrong_calls_say_what_is_wrong_and_leave_nothing, start),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
