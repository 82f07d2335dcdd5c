/* Optimizers of many parameters: settings of each, states by name, clipping, the guard, schedules, the loss scale. */
#include "support/check.h"
#include "support/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3 }; /* parameters of the small nets below: f32, bf16, f32 */

static tl_tensor *drawn(tl_dtype dtype, int64_t n, tl_device *device) {
    return tl_normal(TL_SHAPE(n), 0, 1, dtype, device);
}

/* Three parameters with gradients, the second bf16 with master copy and random rounding. */
static tl_optimizer *three(tl_optimizer_kind kind, tl_tensor *p[N], tl_device *device) {
    static const char *const names[N] = {"a.weight", "b.weight", "c"};
    tl_optimizer *o = tl_optimizer_new(kind);
    bool ok = o != NULL;
    for (int i = 0; i < N && ok; i++) {
        tl_dtype dtype = i == 1 ? TL_BF16 : TL_F32;
        p[i] = tl_requires_grad(drawn(dtype, 5 + i, device), true);
        tl_optimizer_options options = tl_optimizer_defaults(kind);
        options.momentum = i == 2 ? 0.9 : 0;
        options.centered = options.amsgrad = i == 0;
        options.has_master = options.stochastic = true;
        ok = p[i] && tl_set_grad(p[i], drawn(dtype, 5 + i, device)) && tl_optimizer_add(o, names[i], p[i], &options);
    }
    if (ok) return o;
    tl_optimizer_free(o);
    return NULL;
}

/* ---- States ---- */

static void states_are_listed_by_torchs_names(void **state) {
    (void)state;
    static const char *const names[TL_OPTIMIZER_KIND_COUNT][10] = {
        {"master.b.weight", "momentum_buffer.c"},
        {"sum.a.weight", "sum.b.weight", "master.b.weight", "sum.c"},
        {"square_avg.a.weight", "grad_avg.a.weight", "square_avg.b.weight", "master.b.weight", "square_avg.c",
         "momentum_buffer.c"},
        {"exp_avg.a.weight", "exp_avg_sq.a.weight", "max_exp_avg_sq.a.weight", "exp_avg.b.weight",
         "exp_avg_sq.b.weight", "master.b.weight", "exp_avg.c", "exp_avg_sq.c"},
        {"exp_avg.a.weight", "exp_avg_sq.a.weight", "max_exp_avg_sq.a.weight", "exp_avg.b.weight",
         "exp_avg_sq.b.weight", "master.b.weight", "exp_avg.c", "exp_avg_sq.c"},
        {"exp_avg.a.weight", "exp_avg.b.weight", "master.b.weight", "exp_avg.c"},
        {"exp_avg.a.weight", "exp_avg_sq.a.weight", "max_exp_avg_sq.a.weight", "exp_avg.b.weight",
         "exp_avg_sq.b.weight", "master.b.weight", "exp_avg.c", "exp_avg_sq.c"}, /* vectors: AdamW */
        {"z.a.weight", "exp_avg_sq.a.weight", "z.b.weight", "exp_avg_sq.b.weight", "master.b.weight", "z.c",
         "exp_avg_sq.c"},
        {"variance.a.weight", "variance.b.weight", "master.b.weight", "variance.c"}}; /* vectors */
    for (int kind = 0; kind < TL_OPTIMIZER_KIND_COUNT; kind++) {
        tl_tensor *p[N];
        tl_optimizer *o = three((tl_optimizer_kind)kind, p, NULL);
        int n, want = 0;
        while (names[kind][want]) want++;
        const tl_named_tensor *list = tl_optimizer_list(o, &n);
        expect_equal(n, want);
        for (int i = 0; i < n; i++) {
            bool is_master = strncmp(list[i].name, "master.", 7) == 0, is_z = strncmp(list[i].name, "z.", 2) == 0;
            tl_tensor *own = p[strstr(list[i].name, "a.weight") ? 0 : strstr(list[i].name, "b.weight") ? 1 : 2];
            expect_text(list[i].name, names[kind][i]);
            expect_equal(tl_dtype_of(list[i].tensor), TL_F32);
            expect_equal(tl_purpose_of(list[i].tensor), is_master ? TL_PARAMETER : TL_OPTIMIZER);
            if (is_master || is_z) expect_same_bits(list[i].tensor, tl_cast(tl_detach(own), TL_F32));
            else expect_near(tl_item(tl_sum_all(tl_mul(list[i].tensor, list[i].tensor))), 0, 0);
        }
        tl_optimizer_free(o);
    }
}

static void an_empty_optimizer_lists_nothing_and_steps(void **state) {
    (void)state;
    tl_optimizer *o = tl_optimizer_new(TL_ADAM);
    int n = 7;
    assert_non_null(tl_optimizer_list(o, &n));
    expect_equal(n, 0);
    expect_true(tl_optimizer_step(o, 1, NULL));
    expect_equal(tl_optimizer_steps(o), 1);
    tl_optimizer_free(o);
    tl_optimizer_free(NULL);
}

static void wrong_settings_are_refused_by_name(void **state) {
    (void)state;
    tl_tensor *p = tl_ones(TL_SHAPE(3), TL_F32, NULL), *q = tl_ones(TL_SHAPE(3), TL_F32, NULL);
    tl_optimizer *o = tl_optimizer_new(TL_SGD), *adam = tl_optimizer_new(TL_ADAM);
    tl_optimizer_options options = tl_optimizer_defaults(TL_SGD);
    options.lr = -1;
    expect_refused(tl_optimizer_add(o, "w", p, &options), "w: lr is -1 (need a number, 0 or more)");
    options.lr = NAN;
    expect_refused(tl_optimizer_add(o, "w", p, &options), "w: lr is nan");
    options = tl_optimizer_defaults(TL_SGD);
    options.nesterov = true;
    expect_refused(tl_optimizer_add(o, "w", p, &options), "Nesterov momentum requires a momentum and zero dampening");
    options.nesterov = false, options.beta1 = 7; /* sgd does not read it */
    expect_true(tl_optimizer_add(o, "w", p, &options));
    expect_refused(tl_optimizer_add(adam, "w", p, &options), "w: beta1 is 7 (need 0 or more, below 1)");
    options.beta1 = 0.9, options.moment_bits = 12;
    expect_refused(tl_optimizer_add(adam, "w", p, &options), "w: moment_bits is 12 (need 8, 16 or 32)");
    options.moment_bits = 8, options.amsgrad = true;
    expect_refused(tl_optimizer_add(adam, "w", p, &options), "w: amsgrad needs moments of 16 or 32 bits");
    expect_refused(tl_optimizer_add(o, "v", p, NULL), "v: this parameter was added before, as w");
    expect_refused(tl_optimizer_add(o, "w", q, NULL), "there is already a parameter w");
    expect_refused(tl_optimizer_add(o, "", q, NULL), "is not a valid name");
    expect_refused(tl_optimizer_add(o, "a\nb", q, NULL), "is not a valid name");
    expect_refused(tl_optimizer_add(o, "i", tl_ones(TL_SHAPE(2), TL_I32, NULL), NULL), "not implemented for int32");
    expect_refused(tl_optimizer_add(NULL, "w", p, NULL), "NULL instead of an optimizer");
    expect_refused(tl_optimizer_step(o, NAN, NULL), "lr_factor is nan");
    expect_refused(tl_optimizer_step(NULL, 1, NULL), "NULL instead of an optimizer");
    expect_refused(tl_optimizer_new((tl_optimizer_kind)9), "9 is not a kind");
    tl_optimizer_set_steps(o, -1);
    expect_error(TL_ERROR_USE, "-1 steps");
    tl_set_grad(p, tl_ones_like(p));
    expect_refused(tl_optimizer_step(o, 1, tl_ones(TL_SHAPE(2), TL_F32, NULL)), "scale must be one f32 number");
    expect_refused(tl_optimizer_step(o, 1, tl_ones(TL_SCALAR, TL_F64, NULL)), "scale must be one f32 number");
    expect_equal(tl_optimizer_steps(o), 0);
    tl_set_grad(p, NULL);
    tl_optimizer_free(o);
    tl_optimizer_free(adam);
}

/* ---- Steps ---- */

/* Each parameter has its own lr and decay; one without a gradient stays; the factor is common. */
static void parameters_have_settings_of_their_own(void **state) {
    (void)state;
    tl_tensor *p[3];
    static const char *const names[3] = {"x", "y", "z"};
    tl_optimizer *o = tl_optimizer_new(TL_SGD);
    for (int i = 0; i < 3; i++) {
        tl_optimizer_options options = tl_optimizer_defaults(TL_SGD);
        options.lr = i == 0 ? 0.5 : 0.25;
        options.weight_decay = i == 1 ? 2 : 0;
        p[i] = tl_requires_grad(tl_full(TL_SHAPE(2), 1, TL_F32, NULL), true);
        if (i < 2) tl_set_grad(p[i], tl_full(TL_SHAPE(2), 4, TL_F32, NULL));
        expect_true(tl_optimizer_add(o, names[i], p[i], &options));
    }
    expect_true(tl_optimizer_step(o, 0.5, NULL));
    expect_values(p[0], 1 - 0.5 * 0.5 * 4, 1 - 0.5 * 0.5 * 4);
    expect_values(p[1], 1 - 0.5 * 0.25 * (4 + 2), 1 - 0.5 * 0.25 * (4 + 2));
    expect_values(p[2], 1, 1);
    expect_values(tl_grad_of(p[0]), 4, 4); /* it stays */
    expect_equal(tl_optimizer_steps(o), 1);
    tl_optimizer_free(o);
}

/* Forty parameters of many shapes, some empty; bf16, some with master copies, among f32; two settings. */
enum { MANY = 40 };
static tl_tensor *one_of_many(int i) {
    tl_dtype dtype = i % 3 ? TL_F32 : TL_BF16;
    return i % 4 ? tl_normal(TL_SHAPE(i % 7, 1 + i % 5), 0, 1, dtype, NULL) : drawn(dtype, 8 * (i + 1), NULL);
}
static tl_optimizer_options option_of_many(tl_optimizer_kind kind, int i) {
    tl_optimizer_options o = tl_optimizer_defaults(kind);
    o.weight_decay = i % 2 ? 0.125 : 0;
    o.momentum = kind == TL_SGD || kind == TL_RMSPROP ? 0.5 : 0;
    o.centered = o.amsgrad = i % 2;
    o.has_master = i % 2 == 0;
    return o;
}

static void many_are_stepped_as_one_by_one(void **state) {
    (void)state;
    for (int kind = 0; kind < TL_OPTIMIZER_KIND_COUNT; kind++) {
        tl_tensor *p[MANY], *alone[MANY], *scale = tl_full(TL_SCALAR, 0.5, TL_F32, NULL);
        tl_optimizer *all = tl_optimizer_new((tl_optimizer_kind)kind), *own[MANY];
        for (int i = 0; i < MANY; i++) {
            char name[16];
            snprintf(name, sizeof name, "p%d", i);
            tl_optimizer_options o = option_of_many((tl_optimizer_kind)kind, i);
            p[i] = tl_requires_grad(one_of_many(i), true);
            alone[i] = tl_requires_grad(tl_clone(tl_detach(p[i])), true);
            own[i] = tl_optimizer_new((tl_optimizer_kind)kind);
            expect_true(tl_optimizer_add(all, name, p[i], &o) && tl_optimizer_add(own[i], name, alone[i], &o));
            if (i == 7) continue; /* no gradient */
            tl_tensor *g = tl_normal(tl_rank(p[i]), tl_shape(p[i]), 0, 1, tl_dtype_of(p[i]), NULL);
            expect_true(tl_set_grad(p[i], g) && tl_set_grad(alone[i], g));
        }
        for (int step = 0; step < 3; step++) {
            expect_true(tl_optimizer_step(all, 1, scale));
            for (int i = 0; i < MANY; i++) expect_true(tl_optimizer_step(own[i], 1, scale));
        }
        for (int i = 0; i < MANY; i++) {
            expect_same_bits(p[i], alone[i]);
            tl_optimizer_free(own[i]);
        }
        tl_optimizer_free(all);
    }
}

/* Parameters that share a storage cannot be one list, and are stepped separately. */
static void parts_of_one_storage_are_stepped_by_calls_of_their_own(void **state) {
    (void)state;
    tl_optimizer *o = tl_optimizer_new(TL_SGD);
    tl_tensor *both = tl_full(TL_SHAPE(4, 4), 1, TL_F32, NULL), *part[2];
    for (int i = 0; i < 2; i++) {
        part[i] = tl_requires_grad(tl_slice(both, 1, 2 * i, 2 * i + 2, 1), true);
        expect_true(tl_set_grad(part[i], tl_full(TL_SHAPE(4, 2), 1 + i, TL_F32, NULL)));
        expect_true(tl_optimizer_add(o, i ? "b" : "a", part[i], &(tl_optimizer_options){.lr = 0.25}));
    }
    tl_ledger *ledger = tl_ledger_begin("step");
    expect_true(tl_optimizer_step(o, 1, NULL));
    tl_ledger_end(ledger);
    expect_equal(tl_ledger_total(ledger, TL_UPDATE, "sgd_momentum").calls, 2);
    expect_values(tl_select(both, 0, 3), 0.75, 0.75, 0.5, 0.5);
    tl_ledger_free(ledger);
    tl_optimizer_free(o);
}

/* Forty of one setting: a call has room for 64 tensors, of which the scale is one and each parameter brings four: 15
 * at a time. The scale is read by each call. */
static void a_call_takes_as_many_parameters_as_fit(void **state) {
    (void)state;
    tl_optimizer *o = tl_optimizer_new(TL_ADAMW);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        tl_tensor *p = tl_requires_grad(drawn(TL_F32, 10, NULL), true);
        expect_true(tl_set_grad(p, drawn(TL_F32, 10, NULL)) && tl_optimizer_add(o, name, p, NULL));
    }
    tl_ledger *ledger = tl_ledger_begin("step");
    expect_true(tl_optimizer_step(o, 1, tl_full(TL_SCALAR, 1, TL_F32, NULL)));
    tl_ledger_end(ledger);
    tl_totals t = tl_ledger_total(ledger, TL_UPDATE, "adam");
    expect_equal(t.calls, 3);
    expect_count(t.flops, (13 + 1 + 1) * 10 * MANY); /* decay, the scale */
    expect_count(t.bytes_read, 4 * 40 * MANY + 3 * 4);
    expect_count(t.bytes_written, 3 * 40 * MANY);
    tl_ledger_free(ledger);
    tl_optimizer_free(o);
}

/* The states, the count of steps and the weights of averages are complete: a second optimizer that gets them
 * continues bit for bit. */
static void states_and_steps_are_all_there_is(void **state) {
    (void)state;
    for (int kind = 0; kind < TL_OPTIMIZER_KIND_COUNT; kind++) {
        tl_tensor *p[N], *q[N];
        tl_seed(5);
        tl_optimizer *o = three((tl_optimizer_kind)kind, p, NULL);
        for (int i = 0; i < 3; i++) expect_true(tl_optimizer_step(o, 1, NULL));
        tl_optimizer *again = three((tl_optimizer_kind)kind, q, NULL);
        int n, m;
        const tl_named_tensor *from = tl_optimizer_list(o, &n), *to = tl_optimizer_list(again, &m);
        expect_equal(n, m);
        bool mode = tl_set_grad_mode(false);
        for (int i = 0; i < n; i++) assert_non_null(tl_copy_(to[i].tensor, from[i].tensor));
        for (int i = 0; i < N; i++) {
            assert_non_null(tl_copy_(q[i], p[i]));
            assert_non_null(tl_copy_(tl_grad_of(q[i]), tl_grad_of(p[i])));
        }
        tl_set_grad_mode(mode);
        tl_optimizer_set_steps(again, tl_optimizer_steps(o));
        tl_optimizer_set_weights(again, tl_optimizer_get_weights(o));
        tl_generator generator = tl_generator_get();
        expect_true(tl_optimizer_step(o, 0.5, NULL));
        tl_generator_set(generator);
        expect_true(tl_optimizer_step(again, 0.5, NULL));
        for (int i = 0; i < N; i++) expect_same_bits(p[i], q[i]);
        for (int i = 0; i < n; i++) expect_same_bits(to[i].tensor, from[i].tensor);
        tl_optimizer_free(o);
        tl_optimizer_free(again);
    }
}

static void a_step_takes_no_memory(void **state) {
    (void)state;
    tl_tensor *p[N];
    tl_optimizer *o = three(TL_ADAMW, p, NULL);
    tl_fail_allocation(1, true);
    expect_true(tl_optimizer_step(o, 1, NULL));
    expect_equal(tl_fail_allocation(0, false), 0);
    tl_optimizer_free(o);
}

/* ---- Clipping and the guard ---- */

/* No bit of parameters, states and masters changes; random words are taken as usual. */
static void a_scale_that_is_not_finite_changes_nothing(void **state) {
    (void)state;
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < TL_OPTIMIZER_KIND_COUNT; kind++)
        for (int b = 0; b < 3; b++) {
            tl_tensor *p[N], *before[N], *states[20];
            tl_optimizer *o = three((tl_optimizer_kind)kind, p, NULL);
            expect_true(tl_optimizer_step(o, 1, NULL)); /* states are not all zero */
            int n;
            const tl_named_tensor *list = tl_optimizer_list(o, &n);
            for (int i = 0; i < N; i++) before[i] = tl_clone(tl_detach(p[i]));
            for (int i = 0; i < n; i++) states[i] = tl_clone(list[i].tensor);
            uint64_t index = tl_generator_get().index;
            expect_true(tl_optimizer_step(o, 1, tl_full(TL_SCALAR, bad[b], TL_F32, NULL)));
            expect_equal(tl_generator_get().index, index + 8); /* 6 elements of bf16, rounded up */
            for (int i = 0; i < N; i++) expect_same_bits(p[i], before[i]);
            for (int i = 0; i < n; i++) expect_same_bits(list[i].tensor, states[i]);
            expect_true(tl_optimizer_step(o, 1, tl_full(TL_SCALAR, 1, TL_F32, NULL))); /* and a good one does */
            expect_true(tl_at(p[0], (int64_t[]){0}) != tl_at(before[0], (int64_t[]){0}));
            tl_optimizer_free(o);
        }
}

/* A clipping factor that failed is NULL, and NULL means none: with an error pending there is no step. */
static void a_scale_that_failed_is_not_taken_for_none(void **state) {
    (void)state;
    tl_tensor *p[N];
    tl_optimizer *o = three(TL_ADAMW, p, NULL);
    tl_tensor *before = tl_clone(tl_detach(p[0])), *norm = tl_ones(TL_SHAPE(2), TL_F32, NULL);
    expect_true(!tl_optimizer_step(o, 1, tl_clip_scale(norm, 1, 1)));
    expect_error(TL_ERROR_USE, "the norm must be one f32 or f64 number");
    expect_equal(tl_optimizer_steps(o), 0);
    tl_sgd_options options = tl_sgd_defaults();
    options.update.grad_scale = tl_clip_scale(norm, 1, 1);
    expect_true(!tl_sgd_(p[0], tl_grad_of(p[0]), NULL, &options));
    expect_error(TL_ERROR_USE, "the norm must be one f32 or f64 number");
    expect_same_bits(p[0], before);
    tl_optimizer_free(o);
}

/* The kernel multiplies: scaling g by a power of two first is the same, bit for bit. */
static void a_scale_multiplies_the_gradient(void **state) {
    (void)state;
    for (int kind = 0; kind < TL_OPTIMIZER_KIND_COUNT; kind++) {
        tl_tensor *p[N], *q[N];
        tl_seed(9);
        tl_optimizer *o = three((tl_optimizer_kind)kind, p, NULL);
        tl_seed(9);
        tl_optimizer *scaled = three((tl_optimizer_kind)kind, q, NULL);
        bool mode = tl_set_grad_mode(false);
        for (int i = 0; i < N; i++) expect_true(tl_set_grad(q[i], tl_scale(tl_grad_of(q[i]), 0.125)));
        tl_set_grad_mode(mode);
        tl_tensor *scale = tl_full(TL_SCALAR, 8, TL_F32, NULL);
        for (int step = 0; step < 4; step++) {
            tl_generator generator = tl_generator_get();
            expect_true(tl_optimizer_step(o, 1, NULL));
            tl_generator_set(generator);
            expect_true(tl_optimizer_step(scaled, 1, scale));
        }
        for (int i = 0; i < N; i++) expect_same_bits(p[i], q[i]);
        tl_optimizer_free(o);
        tl_optimizer_free(scaled);
    }
}

static void the_norm_is_over_all_gradients(void **state) {
    (void)state;
    tl_tensor *p[4];
    for (int i = 0; i < 4; i++) p[i] = tl_ones(TL_SHAPE(1), i == 1 ? TL_BF16 : TL_F32, NULL);
    expect_values(tl_grad_norm(p, 4), 0); /* none has a gradient */
    tl_set_grad(p[0], tl_full(TL_SHAPE(1), 2, TL_F32, NULL));
    tl_set_grad(p[1], tl_full(TL_SHAPE(1), -3, TL_BF16, NULL));
    tl_set_grad(p[3], tl_full(TL_SHAPE(1), 6, TL_F32, NULL));
    tl_tensor *norm = tl_grad_norm(p, 4);
    expect_values(norm, 7); /* 4 + 9 + 36 */
    expect_equal(tl_dtype_of(norm), TL_F32);
    expect_true(!tl_needs_grad(norm));
    expect_refused(tl_grad_norm(p, 0), "no parameters");
    p[2] = NULL;
    expect_refused(tl_grad_norm(p, 4), "tl_grad_norm");
    for (int i = 0; i < 4; i++)
        if (p[i]) tl_set_grad(p[i], NULL);
}

/* f32 sums of 10^6 squares are right to 10^-6, whatever the order of chunks: they are added in f64. */
static void the_norm_of_a_million_is_exact_enough(void **state) {
    (void)state;
    tl_tensor *p = tl_zeros(TL_SHAPE(1000003), TL_F32, NULL);
    tl_set_grad(p, tl_normal(TL_SHAPE(1000003), 0, 1, TL_F32, NULL));
    tl_tensor *g = tl_cast(tl_grad_of(p), TL_F64);
    double want = sqrt(tl_item(tl_sum_all(tl_mul(g, g))));
    expect_near(tl_item(tl_grad_norm(&p, 1)) / want, 1, 2e-7);
    tl_set_grad(p, NULL);
}

static double scale_of(double norm, double max_norm, double divisor) {
    return tl_item(tl_clip_scale(tl_full(TL_SCALAR, norm, TL_F32, NULL), max_norm, divisor));
}

static void clipping_follows_its_formula(void **state) {
    (void)state;
    expect_near(scale_of(4, 1, 1), 1 / (4 + 1e-6), 1e-8);
    expect_near(scale_of(0.5, 1, 1), 1, 0);
    expect_near(scale_of(0, 1, 1), 1, 0);
    expect_near(scale_of(4096, 1, 1024), 1 / (4 + 1e-6) / 1024, 1e-10);
    expect_near(scale_of(512, 1, 1024), 1.0 / 1024, 0);
    expect_near(scale_of(1e30, INFINITY, 2), 0.5, 0);
    expect_true(isnan(scale_of(INFINITY, 1, 1)) && isnan(scale_of(NAN, 1, 1)) &&
                isnan(scale_of(INFINITY, INFINITY, 8)));
    expect_refused(tl_clip_scale(tl_ones(TL_SCALAR, TL_F32, NULL), -1, 1), "max_norm -1");
    expect_refused(tl_clip_scale(tl_ones(TL_SCALAR, TL_F32, NULL), 1, INFINITY), "divisor inf");
    expect_refused(tl_clip_scale(tl_ones(TL_SCALAR, TL_I64, NULL), 1, 1), "must be one f32 or f64 number");
}

/* k micro-batches whose gradients add up, divided by k, are the large batch. */
static void micro_batches_equal_the_large_batch(void **state) {
    (void)state;
    enum { K = 4, ROWS = 3 };
    tl_tensor *w[2], *x = tl_normal(TL_SHAPE(K * ROWS, 6), 0, 1, TL_F64, NULL);
    tl_tensor *start = tl_normal(TL_SHAPE(2, 6), 0, 1, TL_F64, NULL);
    for (int way = 0; way < 2; way++) {
        tl_optimizer *o = tl_optimizer_new(TL_ADAMW);
        w[way] = tl_requires_grad(tl_clone(start), true);
        expect_true(tl_optimizer_add(o, "w", w[way], NULL));
        for (int step = 0; step < 5; step++) {
            int parts = way ? K : 1;
            for (int k = 0; k < parts; k++) {
                tl_tensor *rows = tl_slice(x, 0, k * ROWS, way ? (k + 1) * ROWS : K * ROWS, 1);
                tl_tensor *y = tl_tanh(tl_linear(rows, w[way], NULL));
                expect_true(tl_backward(tl_mean_all(tl_mul(y, y)), NULL, 0));
            }
            tl_tensor *norm = tl_grad_norm(&w[way], 1);
            expect_true(tl_optimizer_step(o, 1, tl_clip_scale(norm, 0.01, parts)));
            tl_zero_grad(w[way], false);
        }
        tl_optimizer_free(o);
    }
    expect_close(w[0], w[1], 1e-8); /* the factor is an f32 number: 6e-8 of a step of 1e-3 */
}

/* ---- Schedules ---- */

static void schedules_have_their_closed_forms(void **state) {
    (void)state;
    tl_schedule s = {.warmup_steps = 9, .total_steps = 109, .decay_steps = 20, .min_factor = 0.1};
    for (int kind = 0; kind < TL_SCHEDULE_KIND_COUNT; kind++) {
        s.kind = (tl_schedule_kind)kind;
        expect_true(tl_schedule_check(&s));
        for (int64_t step = 0; step < 9; step++)
            expect_near(tl_schedule_factor(&s, step), (double)(step + 1) / 10, 1e-15);
        expect_near(tl_schedule_factor(&s, 9), 1, 0);
        for (int64_t step = 9; step < 200; step++) {
            double t = fmin(1, (double)(step - 9) / 100), u = fmin(1, fmax(0, (double)(step - 89) / 20));
            const double want[] = {1, 1 - 0.9 * t, 0.1 + 0.45 * (1 + cos(acos(-1) * t)), 1 - 0.9 * u,
                                   fmax(0.1, sqrt(9 / (double)step))};
            expect_near(tl_schedule_factor(&s, step), want[kind], 1e-14);
        }
    }
    expect_near(tl_schedule_factor(&s, 90000), 0.1, 0);
    expect_text(tl_schedule_kind_name(TL_SCHEDULE_WSD), "wsd");
    assert_null(tl_schedule_kind_name(TL_SCHEDULE_KIND_COUNT));
    /* no warm-up, nothing after it, a decay longer than the run */
    expect_near(tl_schedule_factor(&(tl_schedule){.kind = TL_SCHEDULE_COSINE, .total_steps = 10}, 0), 1, 0);
    expect_near(tl_schedule_factor(&(tl_schedule){.kind = TL_SCHEDULE_LINEAR, .min_factor = 0.5}, 0), 0.5, 0);
    expect_near(tl_schedule_factor(&(tl_schedule){TL_SCHEDULE_WSD, 0, 10, 99, 0}, 5), 0.5, 0);
    expect_near(tl_schedule_factor(&(tl_schedule){.kind = TL_SCHEDULE_INVERSE_SQRT}, 4), 0.5, 0);
}

static void wrong_schedules_are_refused(void **state) {
    (void)state;
    expect_refused(tl_schedule_check(&(tl_schedule){.kind = TL_SCHEDULE_COSINE, .warmup_steps = 5, .total_steps = 3}),
                   "5 steps of warm-up exceed the total of 3");
    expect_refused(tl_schedule_check(&(tl_schedule){.min_factor = NAN}), "min_factor is nan");
    expect_refused(tl_schedule_check(&(tl_schedule){.warmup_steps = -1}), "need 0 or more");
    expect_refused(tl_schedule_check(&(tl_schedule){.kind = (tl_schedule_kind)77}), "77 is not a kind");
    expect_true(tl_schedule_check(&(tl_schedule){.kind = TL_SCHEDULE_CONSTANT, .warmup_steps = 5}));
}

/* ---- The loss scale ---- */

static void the_scale_grows_and_falls(void **state) {
    (void)state;
    tl_scaler s = tl_scaler_defaults();
    s.scale = 1024, s.growth_interval = 3, s.max_scale = 4096;
    for (int i = 0; i < 3; i++) expect_true(tl_scaler_update(&s, 1, s.scale));
    expect_near(s.scale, 2048, 0);
    expect_true(tl_scaler_update(&s, 1, 1024)); /* about the scale before: does not count */
    expect_equal(s.n_good, 0);
    expect_true(tl_scaler_update(&s, 1, 2048));
    expect_true(!tl_scaler_update(&s, INFINITY, 2048));
    expect_near(s.scale, 1024, 0);
    expect_true(!tl_scaler_update(&s, NAN, 2048)); /* the next step was made before the scale fell: not twice */
    expect_near(s.scale, 1024, 0);
    expect_equal(s.n_skipped, 2);
    expect_equal(s.n_good, 0);
    for (int i = 0; i < 30; i++) expect_true(tl_scaler_update(&s, 1, s.scale));
    expect_near(s.scale, 4096, 0); /* no further */
    for (int i = 0; i < 30; i++) tl_scaler_update(&s, NAN, s.scale);
    expect_near(s.scale, 1, 0); /* nor further down */
    expect_refused(tl_scaler_update(NULL, 1, 1), "NULL instead of a scaler");
}

/* f16 gradients that overflow are lost without harm, and training continues with a smaller scale, read one step
 * late. */
static void an_overflow_costs_steps_and_nothing_else(void **state) {
    (void)state;
    tl_tensor *w = tl_requires_grad(tl_ones(TL_SHAPE(4), TL_F16, NULL), true), *last = NULL;
    tl_optimizer *o = tl_optimizer_new(TL_SGD);
    tl_optimizer_options options = tl_optimizer_defaults(TL_SGD);
    options.has_master = true;
    expect_true(tl_optimizer_add(o, "w", w, &options));
    tl_scaler s = tl_scaler_defaults();
    double last_scale = 0, scale[6];
    for (int step = 0; step < 6; step++) {
        scale[step] = s.scale;
        tl_tensor *loss = tl_sum_all(tl_scale(w, 1.5)); /* a gradient of 1.5 65536 is too large for f16 */
        expect_true(tl_backward(tl_scale(loss, s.scale), NULL, 0));
        tl_tensor *norm = tl_grad_norm(&w, 1);
        expect_true(tl_optimizer_step(o, 1, tl_clip_scale(norm, INFINITY, s.scale)));
        tl_zero_grad(w, false);
        double used = s.scale;
        if (last) tl_scaler_update(&s, tl_item(last), last_scale);
        last = norm, last_scale = used;
    }
    const double want[] = {65536, 65536, 32768, 32768, 32768, 32768};
    for (int i = 0; i < 6; i++) expect_near(scale[i], want[i], 0);
    expect_equal(s.n_skipped, 2);
    int n;
    tl_tensor *master = tl_optimizer_list(o, &n)[0].tensor;
    double value = 1 - 4 * 1e-3 * 1.5;
    expect_values_near(master, 1e-6, value, value, value, value);
    tl_optimizer_free(o);
}

/* ---- Prices and faults ---- */

static bool train(tl_device *device, tl_optimizer_kind kind, struct record *r) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *p[N];
    tl_seed(3);
    tl_ledger *ledger = r ? tl_ledger_begin("steps") : NULL;
    tl_optimizer *o = three(kind, p, device);
    bool ok = o != NULL;
    for (int step = 0; step < 3 && ok; step++) {
        tl_scope inside = tl_scope_enter("step");
        if (!inside.depth) {
            ok = false;
            break;
        }
        tl_tensor *norm = tl_grad_norm(p, N), *scale = norm ? tl_clip_scale(norm, 1, 2) : NULL;
        ok = scale && tl_optimizer_step(o, 0.5, scale);
        ok = tl_scope_end(inside) && ok;
    }
    if (r) {
        tl_ledger_end(ledger);
        for (int i = 0; i < N && ok; i++) record_output(r, p[i]);
        record_ledger(r, ledger, device);
        tl_ledger_free(ledger);
    }
    tl_optimizer_free(o);
    return tl_scope_end(scope) && ok;
}

static void the_price_is_the_receipt(void **state) {
    (void)state;
    static struct record on_cpu, on_meta;
    for (int kind = 0; kind < TL_OPTIMIZER_KIND_COUNT; kind++) {
        memset(&on_cpu, 0, sizeof on_cpu);
        memset(&on_meta, 0, sizeof on_meta);
        tl_pool_trim(check_cpu());
        tl_pool_trim(check_meta());
        expect_true(train(check_cpu(), (tl_optimizer_kind)kind, &on_cpu));
        expect_true(train(check_meta(), (tl_optimizer_kind)kind, &on_meta));
        const char *difference = record_difference(&on_cpu, &on_meta);
        if (difference) fail_msg("%s: %s", tl_optimizer_kind_name((tl_optimizer_kind)kind), difference);
        expect_true(on_cpu.n_rows >= 4);
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int forever = 0; forever < 2; forever++)
        for (uint64_t n = 1, asked = n; asked >= n; n++) {
            tl_fail_allocation(n, forever);
            bool ok = train(check_cpu(), TL_ADAMW, NULL);
            asked = tl_fail_allocation(0, false);
            if (!ok) expect_error(TL_ERROR_MEMORY, "out of");
            else expect_ok();
            expect_nothing_live();
            expect_true(tl_set_grad_mode(true) && tl_set_phase(TL_FORWARD) == TL_FORWARD);
            if (asked < n) expect_true(ok && n > 30);
        }
}

/* Every allocation of a step fails once: an error that says so, and nothing is left. */
static void a_failed_step_of_adafactor_is_clean(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        const tl_dtype dtype = i == 0 ? TL_F32 : i == 1 ? TL_F64 : TL_BF16, wide = i == 1 ? TL_F64 : TL_F32;
        tl_tensor *p = tl_ones(TL_SHAPE(6, 5), dtype, NULL),
                  *g = tl_transpose(tl_ones(TL_SHAPE(5, 6), dtype, NULL), 0, 1), /* the kernel has a dense copy */
                      *row = tl_zeros(TL_SHAPE(6, 1), wide, NULL), *column = tl_zeros(TL_SHAPE(1, 5), wide, NULL);
        tl_adafactor_options o = tl_adafactor_defaults();
        o.update.grad_scale = tl_full(TL_SCALAR, 0.5, TL_F32, NULL);
        o.update.master = i == 2 ? tl_ones(TL_SHAPE(6, 5), TL_F32, NULL) : NULL;
        const uint64_t before = tl_device_memory(check_cpu()).live_bytes;
        uint64_t n = 1;
        for (bool ok = false; !ok; n++) {
            tl_pool_trim(check_cpu());
            tl_fail_allocation(n, false);
            ok = tl_adafactor_(p, g, row, column, NULL, &o);
            tl_fail_allocation(0, false);
            expect_equal(tl_error(), ok ? TL_OK : TL_ERROR_MEMORY);
            tl_error_clear();
            expect_equal(tl_device_memory(check_cpu()).live_bytes, before);
        }
        expect_true(n > 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(states_are_listed_by_torchs_names),
        TEST(an_empty_optimizer_lists_nothing_and_steps),
        TEST(wrong_settings_are_refused_by_name),
        TEST(parameters_have_settings_of_their_own),
        TEST(a_failed_step_of_adafactor_is_clean),
        TEST(many_are_stepped_as_one_by_one),
        TEST(parts_of_one_storage_are_stepped_by_calls_of_their_own),
        TEST(a_call_takes_as_many_parameters_as_fit),
        TEST(states_and_steps_are_all_there_is),
        TEST(a_step_takes_no_memory),
        TEST(a_scale_that_is_not_finite_changes_nothing),
        TEST(a_scale_that_failed_is_not_taken_for_none),
        TEST(a_scale_multiplies_the_gradient),
        TEST(the_norm_is_over_all_gradients),
        TEST(the_norm_of_a_million_is_exact_enough),
        TEST(clipping_follows_its_formula),
        TEST(micro_batches_equal_the_large_batch),
        TEST(schedules_have_their_closed_forms),
        TEST(wrong_schedules_are_refused),
        TEST(the_scale_grows_and_falls),
        TEST(an_overflow_costs_steps_and_nothing_else),
        TEST(the_price_is_the_receipt),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
