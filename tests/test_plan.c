/* Planning: whole models against closed forms, plans against receipts, the largest size that fits against runs that
 * are refused. */
#include "support/check.h"
#include "support/runs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "plan/fit.h"
#include "plan/infer.h"
#include "plan/layouts.h"
#include "plan/plan.h"
#include "tensor/pool.h"
#include "train/run.h"

static void expect_form(const char *what, const char *model, count got, count want) {
    char a[40], b[40];
    if (got != want)
        fail_msg("%s of %s: %s, the closed form has %s", what, model, tl_count_text(count_public(got), a),
                 tl_count_text(count_public(want), b));
}

/* ---- Closed forms of whole models ---- */

static const char *const models[] = {"tiny",           "tiny-gpt2",    "small",        "gpt2-124m",  "gpt2-350m",
                                     "gpt2-774m",      "gpt2-1558m",   "llama-3.2-1b", "llama-3-8b", "llama-3-70b",
                                     "llama-3.1-405b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"};
enum { N_MODELS = sizeof models / sizeof *models };

/* Sizes of a step. Products and attention are those of a layer, of one forward pass. */
struct form {
    count n, C, F, V, L, q, kv, H; /* n tokens; q, kv: heads times their size */
    count products, attention, weights, matrices, n_tensors;
};

static struct form form_of(const tl_model_config *c, count B, count T) {
    struct form f = {.n = B * T,
                     .C = (count)c->channels,
                     .F = (count)c->ff,
                     .V = (count)c->vocabulary,
                     .L = (count)c->n_layers,
                     .q = (count)(c->n_heads * c->head_size),
                     .kv = (count)(c->n_kv_heads * c->head_size),
                     .H = (count)c->n_heads};
    bool is_gpt2 = c->family == TL_GPT2;
    count layer = is_gpt2 ? 4 * f.C * f.C + 2 * f.C * f.F : f.C * (2 * f.q + 2 * f.kv) + 3 * f.C * f.F;
    f.products = 2 * f.n * layer;
    f.attention = 2 * f.q * B * (T * (T + 1) / 2); /* of one product of two: a causal token sees those before it */
    f.matrices = f.L * layer + (c->is_tied ? 1 : 2) * f.V * f.C + (is_gpt2 ? (count)c->context * f.C : 0);
    f.n_tensors = is_gpt2 ? 12 * f.L + 4 : (c->has_qkv_bias ? 12 : 9) * f.L + (c->is_tied ? 2 : 3);
    f.weights = (count)tl_model_config_parameters(c);
    return f;
}

/* norm 7, gelu 9, a bias and a residual sum 1 each; the head's loss 4 per logit and 1 per row, and one product for
 * the mean */
static count gpt2_forward(const struct form *f) {
    count n = f->n, C = f->C, F = f->F;
    count layer = f->products + n * (5 * C + F) + 2 * 7 * n * C + 2 * f->attention + 9 * n * F + 2 * n * C;
    return f->L * layer + n * C + 7 * n * C + 2 * n * f->V * C + 4 * n * f->V + n + 1;
}

/* Products twice; sums for biases; norm 13, gelu 19; q, k, v are one tensor, whose gradients are put side by side; a
 * sum where a residual was split. Then the head (3 per logit, two products, both gradients times the loss's), the
 * places, and the tokens, which are added to the head's gradient of the tied matrix. */
static count gpt2_backward(const struct form *f) {
    count n = f->n, C = f->C, F = f->F, V = f->V;
    count layer = 2 * f->products + n * (5 * C + F) + 2 * 13 * n * C + 4 * f->attention + 19 * n * F + 2 * n * C;
    return f->L * layer + 13 * n * C + 3 * n * V + 4 * n * V * C + n * C + V * C + n * C + n * C;
}

/* norm 4, rope 3, swiglu 5, residual sums */
static count llama_forward(const struct form *f, bool has_bias) {
    count n = f->n, C = f->C;
    count layer = f->products + 2 * 4 * n * C + 3 * n * (f->q + f->kv) + 2 * f->attention + 5 * n * f->F + 2 * n * C;
    if (has_bias) layer += n * (f->q + 2 * f->kv);
    return f->L * layer + 4 * n * C + 2 * n * f->V * C + 4 * n * f->V + n + 1;
}

static count llama_backward(const struct form *f, bool has_bias) {
    count n = f->n, C = f->C, V = f->V;
    count layer =
        2 * f->products + 2 * 9 * n * C + 3 * n * (f->q + f->kv) + 4 * f->attention + 11 * n * f->F + 2 * n * C;
    if (has_bias) layer += n * (f->q + 2 * f->kv);
    return f->L * layer + 9 * n * C + 3 * n * V + 4 * n * V * C + n * C + V * C + n * C;
}

/* AdamW 13 and the scale of clipping 1 per parameter, decay 1 per element of matrices; the norm 2 per parameter and
 * a root, and a sum where the squares of more than 64 tensors are added up, 63 at a time; 5 for the scale */
static count update_form(const struct form *f) {
    count more = f->n_tensors > 64 ? (f->n_tensors - 64 + 62) / 63 : 0;
    return 14 * f->weights + f->matrices + 2 * f->weights + more + 1 + 5;
}

static bool price_on(struct price *price, const struct settings *s, const struct plan_target *target) {
    return price_make(price, s, target->device, plan_target_limit(target));
}

static void price_model(const char *model, int64_t batch, int64_t seq, struct price *price) {
    struct plan_target target;
    struct settings s = settings_default();
    set(&s, "model", model);
    set(&s, "sample_tokens", "0");
    s.batch = batch;
    s.seq = seq;
    assert_true(plan_target_find(&target, "cpu"));
    if (!price_on(price, &s, &target)) fail_msg("%s: %s", model, tl_error_message());
}

static count phase_flops(const struct price *p, int phase) {
    count sum = 0;
    const tl_ledger *l = p->kind[KIND_STEP].ledger;
    for (size_t i = 0; i < l->n_rows; i++)
        if (l->rows[i].key.phase == phase) sum += l->rows[i].flops;
    return sum;
}

static void flops_are_the_closed_form_of_every_model(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        struct price p;
        price_model(models[i], 3, 128, &p);
        const tl_model_config *c = &p.config;
        struct form f = form_of(c, 3, 128);
        bool is_gpt2 = c->family == TL_GPT2, has_bias = c->has_qkv_bias;
        expect_form("forward", models[i], phase_flops(&p, TL_FORWARD),
                    is_gpt2 ? gpt2_forward(&f) : llama_forward(&f, has_bias));
        expect_form("backward", models[i], phase_flops(&p, TL_BACKWARD),
                    is_gpt2 ? gpt2_backward(&f) : llama_backward(&f, has_bias));
        expect_form("recompute", models[i], phase_flops(&p, TL_RECOMPUTE), f.L * f.attention); /* q k^T, once more */
        expect_form("update", models[i], phase_flops(&p, TL_UPDATE), update_form(&f));
        price_free(&p);
    }
}

static void conventions_are_what_their_names_say(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        struct price p;
        count got[PLAN_N_CONVENTIONS], all = 0;
        price_model(models[i], 2, 64, &p);
        struct form f = form_of(&p.config, 2, 64);
        plan_convention_flops(&p, got);
        expect_form("palm", models[i], got[PLAN_PALM], f.n * (6 * f.weights + 12 * f.L * 64 * f.q));
        expect_form("causal", models[i], got[PLAN_CAUSAL], f.n * (6 * f.weights + 6 * f.L * 64 * f.q));
        expect_form("products", models[i], got[PLAN_PRODUCTS],
                    f.L * (3 * f.products + 6 * f.attention) + 6 * f.n * f.V * f.C);
        for (int phase = 0; phase < TL_PHASE_COUNT; phase++) all += phase_flops(&p, phase);
        expect_form("hardware", models[i], got[PLAN_HARDWARE], all);
        price_free(&p);
    }
}

/* 8-bit products are products, and no share of a peak is more than all of it. */
static void expect_shares(const char *model, const char *recipe, const struct hardware *chip, const char *seq) {
    struct settings s = settings_default();
    struct plan_target target;
    static struct plan plan;
    set(&s, "model", model);
    set(&s, "recipe", recipe);
    set(&s, "seq", seq);
    set(&s, "context", seq);
    set(&s, "sample_tokens", "0");
    assert_true(plan_target_find(&target, chip->name));
    const struct plan_options options = {.n_devices = 1};
    if (!plan_make(&plan, &s, &target, &options, false)) {
        assert_non_null(strstr(tl_error_message(), "does not (need --recipe fp16")); /* no bf16 there */
        tl_error_clear();
        return;
    }
    double sum = 0;
    for (int d = 0; d < TL_DTYPE_COUNT; d++) sum += plan_dtype_share(&plan, (tl_dtype)d);
    const bool is_known = plan.run.step_s > 0;
    for (int i = 0; i < PLAN_N_CONVENTIONS; i++) expect_true(plan_share(&plan, (enum plan_convention)i) <= 1);
    expect_true(sum <= 1 + 1e-9);
    expect_true((plan_share(&plan, PLAN_PRODUCTS) > 0) == is_known);
    expect_near(plan_share(&plan, PLAN_HARDWARE), sum, 1e-9);
    expect_true(plan.convention[PLAN_PRODUCTS] <= plan.convention[PLAN_HARDWARE]);
    plan_free(&plan);
}

static void no_share_of_a_peak_exceeds_it(void **state) {
    (void)state;
    static const char *const recipes[] = {"fp32", "bf16", "fp8", "fp4"};
    const struct hardware *chip;
    for (int i = 0; (chip = hardware_at(i)); i += 3) /* a third of them */
        for (int r = 0; r < 4; r++) expect_shares("tiny", recipes[r], chip, r == 1 ? "4096" : "256");
    const struct hardware *h100 = hardware_find("H100");
    expect_shares("qwen2.5-7b", "fp8", h100, "1024");
    expect_shares("qwen2.5-0.5b", "bf16", h100, "131072");
}

/* Four fifths of a step in fp8 and the rest in bf16 have a peak between the two. */
static void a_peak_of_two_dtypes_lies_between_them(void **state) {
    (void)state;
    struct settings s = settings_default();
    struct plan_target target;
    static struct plan plan;
    set(&s, "model", "tiny");
    set(&s, "recipe", "fp8");
    set(&s, "sample_tokens", "0");
    s.batch = 2;
    s.seq = 64;
    assert_true(plan_target_find(&target, "H100"));
    const struct plan_options options = {.n_devices = 1};
    if (!plan_make(&plan, &s, &target, &options, false)) fail_msg("%s", tl_error_message());
    const struct form f = form_of(&plan.price.config, 2, 64);
    expect_form("products in 8 bits", "tiny", plan.convention[PLAN_PRODUCTS],
                f.L * (3 * f.products + 6 * f.attention) + 6 * f.n * f.V * f.C);
    const double narrow = (double)(plan.dtype_flops[TL_F8E4M3] + plan.dtype_flops[TL_F8E5M2]);
    expect_near(narrow, (double)(f.L * 3 * f.products), 1);
    expect_true(plan.time.peak > target.speed.peak[TL_BF16] && plan.time.peak < target.speed.peak[TL_F8E4M3]);
    expect_near(plan_dtype_share(&plan, TL_F8E5M2), (double)plan.dtype_flops[TL_F8E5M2] / 1978.9e12 / plan.run.step_s,
                1e-9);
    plan_free(&plan);
}

static void parameters_are_those_that_are_published(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int64_t n;
    } known[] = {{"gpt2-124m", 124439808},    {"gpt2-350m", 354823168},     {"gpt2-774m", 774030080},
                 {"gpt2-1558m", 1557611200},  {"llama-3-8b", 8030261248},   {"llama-3-70b", 70553706496},
                 {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-7b", 7615616512}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct price p;
        price_model(known[i].model, 1, 8, &p);
        const struct held_window *w = price_window(&p, KIND_STEP);
        expect_equal(p.n_parameters, known[i].n);
        expect_equal(w->peak_by_purpose[TL_PARAMETER], 4 * known[i].n); /* f32, and nothing else is a parameter */
        expect_equal(w->peak_by_purpose[TL_OPTIMIZER], 8 * known[i].n); /* two moments */
        price_free(&p);
    }
}

static void activation_read(struct held *held, void *bytes) { *(uint64_t *)bytes = held->by_purpose[TL_ACTIVATION]; }

/* Tensors that the graph keeps for backward, f32. A layer of GPT-2: the norms' inputs, results and two statistics, q,
 * k and v in one tensor, the attention's result and one sum per row and head, the MLP before and after gelu. Llama:
 * the same without biases, q, k, v apart, one statistic, three tensors of the MLP. Then the last norm, and the
 * gradients that the head has made already. */
static count activation_form(const tl_model_config *c, const struct form *f) {
    count n = f->n, C = f->C, F = f->F;
    bool is_gpt2 = c->family == TL_GPT2;
    count stats = is_gpt2 ? 2 * n : n;
    count layer = is_gpt2 ? 8 * n * C + 2 * n * F : 4 * n * C + n * (2 * f->q + 2 * f->kv) + 3 * n * F;
    return 4 * (f->L * (layer + n * f->H + 2 * stats) + n * C + stats + n * C + f->V * C);
}

static void activations_are_the_closed_form_of_every_model(void **state) {
    (void)state;
    tl_device *meta = tl_device_find("meta");
    for (int i = 0; i < N_MODELS; i++) {
        tl_model_config c;
        uint64_t bytes;
        assert_true(tl_model_preset(models[i], &c));
        struct form f = form_of(&c, 3, 128);
        tl_module *model = tl_model_new(&c, TL_F32, meta);
        tl_scope scope = tl_scope_begin();
        tl_tensor *tokens = tl_zeros(TL_SHAPE(3, 128), TL_I64, meta),
                  *targets = tl_zeros(TL_SHAPE(3, 128), TL_I64, meta);
        expect_true(tl_set_purpose(tokens, TL_DATA) && tl_set_purpose(targets, TL_DATA));
        assert_non_null(tl_model_loss(model, tokens, targets));
        pool_account(meta->pool, activation_read, &bytes);
        expect_form("activations", models[i], bytes, activation_form(&c, &f));
        tl_scope_end(scope);
        tl_module_free(model);
    }
    tl_pool_trim(meta);
}

/* ---- Sketches; that the price is the receipt is swept in test_sweep.c ---- */

/* A sketch has the steps and every peak of the whole price. */
static void expect_sketch(int i, const struct price *whole, const struct settings *s) {
    struct price p;
    if (!price_sketch(&p, s, whole->device, whole->limit_bytes))
        fail_msg("configuration %d: %s", i, tl_error_message());
    expect_equal(p.verdict, whole->verdict);
    expect_equal(p.peak_kind, whole->peak_kind);
    expect_equal(p.held_bytes, whole->held_bytes);
    expect_equal(p.allocated_bytes, whole->allocated_bytes);
    expect_equal(p.reserved_bytes, whole->reserved_bytes);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        expect_equal(p.kind[kind].count, whole->kind[kind].count);
        expect_equal(p.kind[kind].ledger != NULL, whole->kind[kind].ledger != NULL);
        if (!p.kind[kind].ledger) continue;
        const struct held_window *a = price_window(&p, (enum step_kind)kind),
                                 *b = price_window(whole, (enum step_kind)kind);
        expect_equal(a->peak_bytes, b->peak_bytes);
        expect_equal(a->peak_allocated_bytes, b->peak_allocated_bytes);
        expect_equal(a->peak_reserved_bytes, b->peak_reserved_bytes);
        expect_true(!memcmp(a->peak_by_purpose, b->peak_by_purpose, sizeof a->peak_by_purpose));
    }
    const tl_totals x = tl_ledger_total(p.kind[KIND_STEP].ledger, TL_ALL, NULL),
                    y = tl_ledger_total(whole->kind[KIND_STEP].ledger, TL_ALL, NULL);
    expect_equal(x.calls, y.calls);
    expect_equal(x.flops.low, y.flops.low);
    price_free(&p);
}

static void a_sketch_has_the_peaks_of_the_whole_price(void **state) {
    (void)state;
    base_begin();
    for (int i = 0; i < 30; i++) {
        struct settings s = configuration(i);
        struct plan_target target;
        struct price p;
        assert_true(plan_target_find(&target, s.device));
        if (!price_on(&p, &s, &target)) fail_msg("configuration %d: %s", i, tl_error_message());
        expect_sketch(i, &p, &s);
        expect_true(p.is_steady);
        expect_equal(p.verdict, PRICE_FITS);
        price_free(&p);
    }
    base_end();
}

/* ---- A size that fits runs, and the next one is refused ---- */

/* A run of a width between the smallest and the largest size, with a memory limit between their needs. */
static bool boundary_case(int i, struct fit_question *q) {
    static const int64_t largest[FIT_N_AXES] = {400, 900, 60, 384};
    struct settings s = configuration(i * 7 + i / 4);
    enum fit_axis axis = (enum fit_axis)(i % FIT_N_AXES);
    struct plan_target target;
    struct fit_point small, large;
    struct plan_options options = {.n_devices = 1};
    set(&s, "steps", "3");
    set(&s, "eval_every", "2");
    set(&s, "channels", "32");
    set(&s, "context", "1024");
    set(&s, "layers", i % 3 ? "2" : "5");
    set(&s, "accum", i % 5 ? "1" : "2");
    set(&s, "val_share", "0.4");
    assert_true(plan_target_find(&target, run_device()));
    target.outside_bytes = 0; /* the limit below is the pool's own */
    if (!fit_begin(q, axis, &s, &target, &options)) fail_msg("case %d: %s", i, tl_error_message());
    bool is_fp4 = !strcmp(settings_choice(&s, "recipe"), "fp4"); /* in blocks of 16 */
    q->unit = axis != FIT_CHANNELS ? 1 : is_fp4 ? 16 : 8;
    q->first = axis == FIT_CHANNELS ? 32 : 2;
    q->most = largest[axis];
    if (!fit_try(q, q->unit, &small) || !fit_try(q, q->most, &large)) fail_msg("case %d: %s", i, tl_error_message());
    uint64_t between = large.bytes > small.bytes ? large.bytes - small.bytes : 0;
    q->target.memory_bytes = small.bytes + between / 17 * (uint64_t)(1 + i * 5 % 16) + (uint64_t)(i * 99991 % 2097152);
    return between > 0;
}

static enum run_end run_at(const struct fit_question *q, int64_t size, int i, const char *which) {
    struct run_summary summary;
    struct settings s = fit_settings(q, size);
    char name[48];
    snprintf(name, sizeof name, "fit-%d-%s", i, which);
    set_path(&s, "out", name);
    /* not as the setting memory_limit: the run would price itself with it, and stop before it starts */
    tl_set_pool_limit(tl_device_find(run_device()), q->target.memory_bytes);
    enum run_end end = run_train(&s, NULL, &summary);
    tl_set_pool_limit(tl_device_find(run_device()), 0);
    free(summary.text);
    return end;
}

static void what_fits_runs_and_the_next_size_does_not(void **state) {
    (void)state;
    int n = getenv("TALLY_SOAK") ? 100 : IS_SANITIZED ? 3 : 10, n_tight = 0, n_priced = 0;
    base_begin();
    for (int i = 0; i < n; i++) {
        struct fit_question q;
        struct fit_answer a;
        if (!boundary_case(i, &q)) fail_msg("case %d: no size matters", i);
        if (!fit_search(&q, &a)) fail_msg("case %d: %s", i, tl_error_message());
        expect_true(a.best.size > 0);
        expect_true(a.is_monotone);
        n_tight += a.best.verdict == PRICE_FITS_TIGHTLY;
        n_priced += a.n_priced;
        if (run_at(&q, a.best.size, i, "best") != RUN_DONE)
            fail_msg("case %d: %s %lld was said to fit: %s", i, fit_axis_names[q.axis], (long long)a.best.size,
                     tl_error_message());
        if (!a.next.size) continue;
        expect_equal(a.next.size, a.best.size + q.unit);
        if (run_at(&q, a.next.size, i, "next") != RUN_FAILED)
            fail_msg("case %d: %s %lld was said not to fit", i, fit_axis_names[q.axis], (long long)a.next.size);
        char text[64];
        snprintf(text, sizeof text, "out of memory on %s", run_device());
        expect_error(TL_ERROR_MEMORY, text);
    }
    print_message("    %d cases, %d of them fit tightly, %d prices\n", n, n_tight, n_priced);
    base_end();
}

/* ---- Several devices ---- */

/* Nothing is measured of it: nodes of 8, 100 GB/s in them and 10 between them. */
static struct network plain_network(void) {
    struct network net = network_of(NULL);
    network_override(&net, 100e9, 10e9, 8);
    return net;
}

static struct layout dp_layout(int64_t dp, int shard) {
    return (struct layout){.tp = 1, .cp = 1, .pp = 1, .chunks = 1, .dp = dp, .shard = (enum shard_mode)shard};
}

static struct layout_estimate estimate(const struct price *p, const struct plan_target *target, struct layout l) {
    struct network net = plain_network();
    struct layout_estimate e;
    if (!layout_estimate(&e, p, target, &net, &l, NULL)) fail_msg("%s", tl_error_message());
    return e;
}

/* What Tally sends beside computation hides behind the part of it that runs then. */
static void overlap_hides_what_is_sent_beside_computation(void **state) {
    (void)state;
    struct price p;
    struct plan_target target;
    assert_true(plan_target_find(&target, "H100"));
    price_model("gpt2-124m", 4, 256, &p);
    for (int mode = 0; mode < SHARD_COUNT; mode++) {
        struct layout l = dp_layout(8, mode);
        struct layout_estimate e = estimate(&p, &target, l);
        l.is_serial = true;
        struct layout_estimate serial = estimate(&p, &target, l);
        expect_near(e.hidden_s + e.exposed_s, e.axis[LAYOUT_DP].expected_s, 1e-12);
        expect_true(e.hidden_s > 0 && e.hidden_s <= LAYOUT_OVERLAP * e.axis[LAYOUT_DP].expected_s + 1e-12);
        expect_equal(serial.hidden_s, 0);
        expect_near(serial.expected_s - e.expected_s, e.hidden_s, 1e-12);
        expect_equal(serial.bound_s, e.bound_s);
    }
    /* Tally gathers keys when it needs them, and sends between stages; others' programs do it before */
    struct layout cp = dp_layout(4, SHARD_NONE);
    cp.cp = 2;
    struct layout_estimate own = estimate(&p, &target, cp);
    cp.has_rings = true;
    struct layout_estimate others = estimate(&p, &target, cp);
    expect_true(own.axis[LAYOUT_CP].expected_s > 0 && own.exposed_s >= own.axis[LAYOUT_CP].expected_s);
    expect_true(others.hidden_s > own.hidden_s);
    price_free(&p);
}

static void shards_divide_what_is_kept(void **state) {
    (void)state;
    struct price p;
    struct plan_target target;
    assert_true(plan_target_find(&target, "H100"));
    price_model("gpt2-124m", 4, 256, &p);
    uint64_t N = (uint64_t)p.n_parameters;
    double updates[SHARD_COUNT];
    for (int mode = 0; mode < SHARD_COUNT; mode++) {
        struct layout_estimate one = estimate(&p, &target, dp_layout(1, mode)),
                               e = estimate(&p, &target, dp_layout(8, mode));
        expect_equal(one.sum.inside_bytes + one.sum.between_bytes, 0);
        if (mode <= SHARD_ZERO1) expect_equal(one.total_bytes, p.reserved_bytes);
        expect_equal(e.weights_bytes, mode >= SHARD_ZERO3 ? 4 * N / 8 : 4 * N);
        expect_equal(e.gradients_bytes, mode >= SHARD_ZERO2 ? 4 * N / 8 : 4 * N);
        expect_equal(e.states_bytes, mode >= SHARD_ZERO1 ? 8 * N / 8 : 8 * N);
        /* bytes per parameter, times 7/8; the last of 12 layers is gathered once */
        static const double sent[] = {2 * 4, 4 + 4, 4 + 4, 2 * 4 - 4.0 / 12 + 4};
        expect_near(e.sum.inside_bytes, sent[mode] * (double)N * 7 / 8, (double)N * 1e-6);
        expect_equal(e.sum.between_bytes, 0);
        updates[mode] = e.roofline_s;
    }
    /* the optimizer's work is divided as well as its bytes: 7/8 of it is gone */
    double update_s = 0;
    const tl_ledger *l = p.kind[KIND_STEP].ledger;
    for (size_t i = 0; i < l->n_rows; i++)
        if (l->rows[i].key.phase == TL_UPDATE) update_s += predict_roof(&target.speed, &l->rows[i]);
    expect_true(update_s > 0);
    expect_near(updates[SHARD_NONE] - updates[SHARD_ZERO1], update_s * 7 / 8, 1e-9 * update_s);
    expect_near(updates[SHARD_ZERO1], updates[SHARD_ZERO2], 1e-12);
    price_free(&p);
}

/* Bytes by tier, and time at the speed of wires. */
static void collectives_cost_what_their_tiers_say(void **state) {
    (void)state;
    struct network net = plain_network();
    static const struct {
        enum network_algorithm algorithm;
        int64_t stride, size;
        double inside, between; /* of an all-reduce, as shares of its bytes */
    } rows[] = {
        {NETWORK_RING, 1, 8, 2 * 7.0 / 8, 0},
        /* a ring in the node, rings of each device between nodes */
        {NETWORK_RING, 1, 32, 2 * 7.0 / 8, 2 * 3.0 / 4 / 8},
        {NETWORK_RING, 8, 4, 0, 2 * 3.0 / 4}, /* one device of each node */
        {NETWORK_RING, 2, 8, 2 * 3.0 / 4, 2 * 1.0 / 2 / 4},
        {NETWORK_PAIRWISE, 1, 32, 2 * 7.0 / 32, 2 * 24.0 / 32},
        {NETWORK_PAIRWISE, 4, 2, 2 * 1.0 / 2, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct network_group g = network_group_of(&net, rows[i].stride, rows[i].size);
        struct network_cost c = network_cost(&net, rows[i].algorithm, &g, NETWORK_ALL_REDUCE, 1e9, 3);
        struct network_cost gather = network_cost(&net, rows[i].algorithm, &g, NETWORK_ALL_GATHER, 1e9, 3);
        double n = (double)rows[i].size;
        expect_near(c.inside_bytes, 3e9 * rows[i].inside, 1);
        expect_near(c.between_bytes, 3e9 * rows[i].between, 1);
        expect_near(c.inside_bytes + c.between_bytes, 3e9 * 2 * (n - 1) / n, 1); /* as the op bills them */
        expect_near(gather.inside_bytes, c.inside_bytes / 2, 1);
        expect_true(c.inside_s <= c.inside_bytes / 100e9 * 1.0001 && c.between_s <= c.between_bytes / 10e9 * 1.0001);
        expect_true(c.expected_s >= fmax(c.inside_s, c.between_s));
    }
    /* a switch that adds halves the least time, and twice the bytes never take less time */
    struct network_group node = network_group_of(&net, 1, 8);
    struct network_cost plain = network_cost(&net, NETWORK_RING, &node, NETWORK_ALL_REDUCE, 1e9, 1);
    net.adds = true;
    struct network_cost added = network_cost(&net, NETWORK_RING, &node, NETWORK_ALL_REDUCE, 1e9, 1);
    expect_near(plain.inside_s / added.inside_s, 2 * 7.0 / 8, 1e-9);
    double before = 0;
    for (double bytes = 1024; bytes < 1e12; bytes *= 2) {
        double s = network_cost(&net, NETWORK_RING, &node, NETWORK_ALL_REDUCE, bytes, 1).expected_s;
        expect_true(s > before);
        before = s;
    }
}

/* Measured bus bandwidths, in GB/s, of 8 H200 and of 4 x 8 B200 (nccl-tests). */
static void the_curve_of_sizes_is_near_the_measured_one(void **state) {
    (void)state;
    static const struct {
        const char *chip;
        int64_t size;
        double mebibytes, speed;
    } rows[] = {{"H200", 8, 4, 107},   {"H200", 8, 16, 220},   {"H200", 8, 64, 347},
                {"H200", 8, 256, 436}, {"H200", 8, 1024, 464}, {"B200", 32, 16, 64},
                {"B200", 32, 64, 157}, {"B200", 32, 256, 229}, {"B200", 32, 1024, 362}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct network net = network_of(hardware_find(rows[i].chip));
        struct network_group g = network_group_of(&net, 1, rows[i].size);
        double bytes = rows[i].mebibytes * 1048576, n = (double)rows[i].size;
        struct network_cost c = network_cost(&net, NETWORK_RING, &g, NETWORK_ALL_REDUCE, bytes, 1);
        double speed = 2 * (n - 1) / n * bytes / c.expected_s / 1e9;
        if (!(fabs(speed / rows[i].speed - 1) < 0.6))
            fail_msg("%s, %g MiB: %.0f GB/s, measured %.0f", rows[i].chip, rows[i].mebibytes, speed, rows[i].speed);
        expect_true(fmax(c.inside_s, c.between_s) <= 2 * (n - 1) / n * bytes / rows[i].speed / 1e9);
    }
}

/* What a collective takes beside its bytes does not depend on the network's speed, so the size that reaches half of it
 * does. */
static void small_tensors_take_as_long_on_every_network(void **state) {
    (void)state;
    for (double speed = 1e8; speed < 1e12; speed *= 10) {
        struct network net = network_of(hardware_find("H100"));
        network_override(&net, 0, speed, 8);
        struct network_group g = network_group_of(&net, 8, 2); /* one device in each of two nodes */
        struct network_cost small = network_cost(&net, NETWORK_RING, &g, NETWORK_ALL_GATHER, 1, 1);
        expect_near(small.expected_s, net.nic_delay / 2, 1e-3 * net.nic_delay);
        double half = net.nic_delay * NETWORK_SHARE * speed;
        struct network_cost one = network_cost(&net, NETWORK_RING, &g, NETWORK_ALL_GATHER, half, 1);
        expect_near(half / 2 / one.expected_s, NETWORK_SHARE * speed / 2, 1e-3 * speed);
    }
}

/* Every chip of the table with more than one in a machine has a network, whose speeds are possible. */
static void networks_are_complete(void **state) {
    (void)state;
    const struct network *net;
    const struct hardware *h;
    for (int i = 0; (net = network_at(i)); i++) {
        expect_true(net->name && net->source && net->node > 0 && net->nics > 0 && net->nic > 0);
        expect_true(net->link > 0 || net->node == 1);
        expect_true(net->gather <= net->link && net->reduce <= (net->adds ? 1.15 : 1) * net->link);
        expect_true(net->nic_reduce <= net->nic);
        expect_true(network_find(net->name) == net);
    }
    for (int i = 0; (h = hardware_at(i)); i++) {
        struct network own = network_of(h);
        bool is_chip = strncmp(h->name, "M", 1) || !strncmp(h->name, "MI", 2); /* not Apple's */
        if (is_chip && own.is_assumed && strcmp(h->name, "V100 PCIe 16GB") && strcmp(h->name, "V100 PCIe 32GB") &&
            strcmp(h->name, "TPU v7"))
            fail_msg("%s has no network", h->name);
        double sheet = hardware_value(h, HARDWARE_LINK) / 2;
        if (!own.is_assumed && sheet > 0 && own.link > sheet)
            fail_msg("%s: %g B/s inside a node, and its links have %g", h->name, own.link, sheet);
    }
    expect_refused(network_find("Ethernet 11G"), "did you mean");
}

/* The parts of the model on each device, and the bubble of a pipeline. */
static void layouts_divide_model_and_time(void **state) {
    (void)state;
    struct price p;
    struct plan_target target;
    assert_true(plan_target_find(&target, "H100"));
    price_model("gpt2-124m", 4, 256, &p);
    struct layout_estimate one = estimate(&p, &target, dp_layout(1, 0));
    struct layout l = dp_layout(1, 0);
    l.tp = 4;
    struct layout_estimate e = estimate(&p, &target, l);
    expect_equal(e.weights_bytes, one.weights_bytes / 4);
    expect_near(e.axis[LAYOUT_DP].inside_bytes, 0, 0);
    /* 12 layers x (2 + 2) + embedding and head, all-reduces of 4 x 256 x 768 floats, and 3 of the loss */
    double S = 4.0 * 256 * 768 * 4, loss = 3 * 4.0 * 256 * 4;
    expect_near(e.axis[LAYOUT_TP].inside_bytes, 2 * 3.0 / 4 * (50 * S + loss), 1);
    l.sp = true;
    struct layout_estimate sp = estimate(&p, &target, l);
    expect_true(sp.other_bytes < e.other_bytes && e.other_bytes < one.other_bytes);
    expect_near(sp.axis[LAYOUT_TP].inside_bytes, 3.0 / 4 * (124 * S + 2 * loss), 1);
    /* p equal stages with m micro-batches are idle for (p - 1) / (m + p - 1) of the time; v chunks are like v m
     * micro-batches, and zbv has none of it */
    l = dp_layout(1, 0);
    l.pp = 4, l.micro = 8;
    e = estimate(&p, &target, l);
    expect_near(e.bubble, 3.0 / 11, 1e-12);
    expect_near(e.in_flight, 4, 0);
    expect_near(e.axis[LAYOUT_PP].inside_bytes, 2 * 8 * S, 1);
    l.schedule = SCHEDULE_INTERLEAVED, l.chunks = 3;
    expect_near(estimate(&p, &target, l).bubble, 3.0 / 27, 1e-12);
    l.schedule = SCHEDULE_ZBV, l.chunks = 1;
    expect_near(estimate(&p, &target, l).bubble, 0, 0);
    l.schedule = SCHEDULE_ZB1P;
    double third = estimate(&p, &target, l).bubble;
    expect_true(third > 0.9 / 8.9 && third < 1.2 / 9.2);
    /* keys and values of 2 ranks that divide sequences */
    l = dp_layout(1, 0);
    l.cp = 2;
    e = estimate(&p, &target, l);
    expect_near(e.axis[LAYOUT_CP].inside_bytes, 12 * 3 * (2 * S) / 2, 1);
    expect_true(e.other_bytes < one.other_bytes);
    expect_near(e.axis[LAYOUT_DP].inside_bytes, 2.0 / 2 * 4 * (double)p.n_parameters, 1); /* cp ranks reduce too */
    price_free(&p);
}

/* The search keeps a step's tokens, and gives the fastest that fits; a refusal has a reason. */
/* The first half is the longer one, and the second makes the same calls: under a sanitizer it is enough. */
static void a_search_finds_layouts(void **state) {
    (void)state;
    struct settings s = settings_default();
    struct plan_target target;
    struct plan_options options = {.n_devices = 64};
    struct layouts all;
    set(&s, "model", "llama-3-8b");
    set(&s, "recipe", "bf16");
    set(&s, "seq", "4096");
    set(&s, "batch", "128");
    set(&s, "checkpointing", "full");
    assert_true(plan_target_find(&target, "A100"));
    if (IS_SANITIZED) all = (struct layouts){0};
    else if (!layouts_find(&all, &s, &target, &options)) fail_msg("%s", tl_error_message());
    expect_true(IS_SANITIZED || (all.n_fit > 10 && all.n > all.n_fit));
    for (int i = 0; i < all.n; i++) {
        const struct layouts_row *r = &all.rows[i];
        expect_equal(r->layout.tp * r->layout.cp * r->layout.pp * r->layout.dp, 64);
        expect_equal(r->fits, i < all.n_fit);
        expect_true(r->fits == !*r->why);
        if (r->batch) expect_equal(r->batch * r->layout.micro * r->layout.dp, 128);
        if (i && r->fits) expect_true(r->estimate.expected_s >= all.rows[i - 1].estimate.expected_s);
        if (r->fits) expect_true(r->estimate.total_bytes <= plan_target_limit(&target));
        if (r->batch) expect_true(r->estimate.expected_s >= r->estimate.bound_s);
    }
    layouts_free(&all);
    set(&s, "tp", "4");
    set(&s, "shard", "zero1");
    if (!layouts_find(&all, &s, &target, &options)) fail_msg("%s", tl_error_message());
    for (int i = 0; i < all.n; i++)
        expect_true(all.rows[i].layout.tp == 4 &&
                    (all.rows[i].layout.shard == SHARD_ZERO1 || all.rows[i].layout.dp == 1 || !all.rows[i].batch));
    layouts_free(&all);
}

/* ---- Using a model ---- */

/* A token of every sequence, at `keys` tokens. Attention without a mask: a new token sees all of them. */
static count decode_form(const tl_model_config *c, count B, count keys) {
    struct form f = form_of(c, B, 1);
    count layer = f.products + 4 * f.q * B * keys;
    if (c->family == TL_GPT2) layer += B * (5 * f.C + f.F) + 2 * 7 * B * f.C + 9 * B * f.F + 2 * B * f.C;
    else layer += 2 * 4 * B * f.C + 3 * B * (f.q + f.kv) + 5 * B * f.F + 2 * B * f.C;
    if (c->has_qkv_bias) layer += B * (f.q + 2 * f.kv);
    count rest = c->family == TL_GPT2 ? B * f.C + 7 * B * f.C : 4 * B * f.C; /* places; the last norm */
    return f.L * layer + rest + 2 * B * f.V * f.C;
}

static void a_token_costs_the_closed_form_of_every_model(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        struct infer_question q = {.settings = settings_default(), .n_new = 28};
        struct infer_answer a;
        set(&q.settings, "model", models[i]);
        q.settings.batch = 3, q.settings.seq = 100;
        assert_true(plan_target_find(&q.target, "cpu"));
        q.target.memory_bytes = 0; /* no search for batches */
        if (!infer_price(&q, &a)) fail_msg("%s: %s", models[i], tl_error_message());
        const tl_model_config *c = &a.config;
        expect_form("decode", models[i], a.first.flops, decode_form(c, 3, 101));
        expect_form("decode", models[i], a.last.flops, decode_form(c, 3, 128));
        expect_form("weights", models[i], a.weights_bytes, (count)4 * (count)tl_model_config_parameters(c));
        expect_form("cache", models[i], a.cache_bytes,
                    (count)(c->n_layers * 2 * c->n_kv_heads * c->head_size) * 4 * 3 * 128);
        expect_true(a.held_bytes >= a.weights_bytes + a.cache_bytes && a.reserved_bytes >= a.held_bytes);
        /* every weight is read once except the tokens' rows, and the cache of 127 tokens */
        count least = a.weights_bytes - (c->is_tied ? 0 : (count)c->vocabulary * (count)c->channels * 4) -
                      (c->family == TL_GPT2 ? (count)c->context * (count)c->channels * 4 : 0);
        expect_true(a.last.bytes > least + a.cache_bytes / 128 * 127);
    }
}

static void decode_turns_compute_bound_where_the_ridge_says(void **state) {
    (void)state;
    struct infer_question q = {.settings = settings_default(), .n_new = 2};
    struct infer_answer a;
    set(&q.settings, "model", "llama-3.2-1b");
    set(&q.settings, "recipe", "bf16");
    q.settings.batch = 1, q.settings.seq = 4;
    assert_true(plan_target_find(&q.target, "H200"));
    if (!infer_price(&q, &a)) fail_msg("%s", tl_error_message());
    /* 2 B N / peak >= 2 N / bandwidth, from B = ridge on; activations, which are moved too, make it more */
    double ridge = q.target.speed.peak[TL_BF16] / q.target.speed.bandwidth;
    expect_true((double)a.compute_bound_products >= ridge && (double)a.compute_bound_products < 1.5 * ridge);
    expect_true(a.compute_bound_all == 0 || a.compute_bound_all >= a.compute_bound_products);
    expect_true(a.largest_batch > 1000);
}

/* ---- Modules ---- */

static void layers_fold_into_one(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"", "-"},
                                           {"model", "model"},
                                           {"model.12", "model.*"},
                                           {"model.12.mlp.up_proj", "model.*.mlp"},
                                           {"model.transformer.ln_f", "model.transformer.ln_f"},
                                           {"model.1.a.2.b", "model.*.a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        group_module_name(name, sizeof name, cases[i][0]);
        expect_text(name, cases[i][1]);
    }
    char small[8];
    group_module_name(small, sizeof small, "a_very_long_name.12.another");
    expect_equal(strlen(small), 7);
}

static void groups_lose_nothing(void **state) {
    (void)state;
    struct price p;
    struct plan_groups modules, ops;
    price_model("tiny", 4, 64, &p);
    assert_true(groups_by_module(&modules, &p, KIND_STEP) && groups_by_op(&ops, &p, KIND_STEP));
    count by_module = 0, by_op = 0, all = 0;
    uint64_t held = 0;
    for (size_t i = 0; i < modules.n; i++)
        by_module += group_flops(&modules.group[i]), held += group_held(&modules.group[i]);
    for (size_t i = 0; i < ops.n; i++) by_op += group_flops(&ops.group[i]);
    for (int phase = 0; phase < TL_PHASE_COUNT; phase++) all += phase_flops(&p, phase);
    expect_form("by module", "tiny", by_module, all);
    expect_form("by op", "tiny", by_op, all);
    expect_equal(held, p.held_bytes);
    groups_free(&modules);
    groups_free(&ops);
    price_free(&p);
}

/* ---- Nonsense ---- */

static void expect_no_price(const char *name, const char *value, const char *message) {
    struct settings s = settings_default();
    struct plan_target target;
    struct price p;
    assert_true(plan_target_find(&target, "cpu"));
    set(&s, "model", "tiny");
    set(&s, name, value);
    expect_refused(price_on(&p, &s, &target), message);
}

static void nonsense_is_refused_with_words(void **state) {
    (void)state;
    struct plan_target target;
    struct settings s = settings_default();
    expect_no_price("heads", "7", "heads: 7 heads do not divide 128 channels");
    expect_no_price("channels", "100", "channels: 100 is not a multiple of the head size 32");
    expect_no_price("kv_heads", "3", "4 heads cannot share 3 heads of keys and values");
    expect_no_price("seq", "1000", "exceed the model's context of 512 (--context changes it)");
    expect_no_price("channels", "1099511627776", "model: ff is 3023656976384 (need 1 to 2^40)");
    expect_no_price("model", "gpt5", "there is no model \"gpt5\"");
    expect_refused(plan_target_find(&target, "H1000"), "H100");
    expect_refused(settings_set(&s, "batch", "-3"), "batch: \"-3\" is not a whole number from 1");
    expect_refused(settings_set(&s, "recipe", "bf17"), "recipe: \"bf17\" is not one of");
    s.layers = 4096, s.channels = 1 << 30; /* 2e22 parameters */
    struct price p;
    assert_true(plan_target_find(&target, "cpu"));
    expect_refused(price_on(&p, &s, &target), "model: more parameters than 2^63 - 1");
    s.layers = s.channels = 0;
    s.batch = s.seq = 1000000000;
    s.accum = 1000000;
    s.context = 1000000000;
    expect_refused(price_on(&p, &s, &target), "more than 2^63 - 1 tokens");
}

/* ---- Everything at once ---- */

/* All gradients of 2 bytes go around once and back: 2 (N - 1) / N of them, of which only a share leaves the node. */
static void doubled_devices_send_more_until_that_binds(void **state) {
    (void)state;
    struct settings s = settings_default();
    struct plan_target target;
    struct plan plan;
    set(&s, "model", "gpt2-124m");
    set(&s, "recipe", "bf16");
    set(&s, "seq", "1024");
    set(&s, "sample_tokens", "0");
    assert_true(plan_target_find(&target, "H200"));
    struct plan_options options = {.n_devices = 1, .layout = {.has_rings = true}};
    if (!plan_make(&plan, &s, &target, &options, true)) fail_msg("%s", tl_error_message());
    double G = 2.0 * (double)plan.price.n_parameters;
    int64_t binds = 0;
    for (int i = 0; i < PLAN_DOUBLINGS; i++) {
        const struct plan_scale *p = &plan.scale[i];
        const struct network_cost *sum = &p->layout.sum;
        double n = (double)(1 << i), inside = fmin(n, 8), nodes = n / inside;
        expect_equal(p->devices, 1 << i);
        expect_near(sum->inside_bytes, 2 * G * (inside - 1) / inside, 100);
        expect_near(sum->between_bytes, 2 * G * (nodes - 1) / nodes / 8, 100);
        expect_true(p->layout.bound_s >= plan.time.bound_s * 0.999 && p->step_s >= p->layout.bound_s);
        expect_near(p->tokens_per_s, n * (double)plan.price.n_tokens / p->step_s, 1);
        expect_true(p->efficiency <= 1 && (i == 0) == (p->efficiency == 1));
        expect_true(p->fits);
        if (!binds && fmax(sum->inside_s, sum->between_s) > plan.time.bound_s) binds = p->devices;
    }
    expect_equal(plan_scale_binds(&plan), binds);
    expect_equal(plan_scale_fits(&plan), 1);
    json_t *json = plan_json(&plan), *devices = json_object_get(json_object_get(json, "growth"), "devices");
    expect_true(json_is_true(json_object_get(devices, "is_estimate")));
    expect_equal(json_integer_value(json_object_get(devices, "link_binds_from")), binds);
    expect_equal(json_array_size(json_object_get(devices, "points")), PLAN_DOUBLINGS);
    json_decref(json);
    plan_free(&plan);
    if (IS_SANITIZED) return; /* the same calls again */
    /* a slow network binds */
    options.network = network_of(target.chip);
    network_override(&options.network, 1e9, 0.1e9, 4);
    if (!plan_make(&plan, &s, &target, &options, true)) fail_msg("%s", tl_error_message());
    expect_equal(plan_scale_binds(&plan), 2);
    plan_free(&plan);
    /* several sharded devices can hold what one cannot */
    set(&s, "model", "llama-3-8b");
    set(&s, "shard", "zero3");
    target.memory_bytes = (uint64_t)60 << 30;
    if (!plan_make(&plan, &s, &target, &options, true)) fail_msg("%s", tl_error_message());
    expect_true(!plan.scale[0].fits && plan_scale_fits(&plan) > 1);
    plan_free(&plan);
}

/* 1000 hours of 8 devices of 700 W and 300 W of the host each, of which 0.8 count, at 2.5 dollars */
static void a_bill_adds_up(void **state) {
    (void)state;
    const struct bill_terms terms = {.goodput = 0.8, .pue = 1.25, .carbon = 400, .host_watts = 300};
    const struct bill b = bill_of(&terms, 2.5, 700, 8, 1000 * 3600.0),
                      plain = bill_of(&(struct bill_terms){0}, 0, 0, 8, 3600);
    expect_near(b.days, 1250 / 24.0, 1e-9);
    expect_near(b.device_hours, 10000, 1e-6);
    expect_near(b.money, 25000, 1e-6);
    expect_near(b.energy_kwh, 12500, 1e-6);
    expect_near(b.co2_kg, 5000, 1e-6);
    expect_true(plain.device_hours == 8 && plain.money == 0 && plain.energy_kwh == 0 && plain.co2_kg == 0);
}

static void a_plan_is_whole_as_json(void **state) {
    (void)state;
    struct settings s = settings_default();
    struct plan_target target;
    struct plan plan;
    set(&s, "model", "gpt2-124m");
    set(&s, "recipe", "bf16");
    set(&s, "device", "H200");
    set(&s, "seq", "1024");
    set(&s, "sample_tokens", "0");
    assert_true(plan_target_find(&target, s.device));
    struct plan_options options = {.n_devices = 1, .tokens = 1e9, .price_per_hour = 2};
    if (!plan_make(&plan, &s, &target, &options, true)) fail_msg("%s", tl_error_message());
    json_t *json = plan_json(&plan);
    const char *schema = NULL, *verdict = NULL, *reserved = NULL;
    double days = 0, money = 0, bound = 0, roofline = 0;
    json_int_t best = 0, next = 0;
    expect_equal(json_unpack(json, "{s:s, s:{s:s, s:s}, s:{s:F, s:F, s:F, s:F}, s:{s:{s:{s:I}, s:{s:I}}}}", "schema",
                             &schema, "memory", "verdict", &verdict, "reserved_bytes", &reserved, "run", "days", &days,
                             "money", &money, "bound_s", &bound, "roofline_s", &roofline, "growth", "batch", "best",
                             "size", &best, "next", "size", &next),
                 0);
    expect_text(schema, "tally.plan/1");
    expect_text(verdict, "fits");
    expect_equal(strtoull(reserved, NULL, 10), plan.price.reserved_bytes);
    expect_true(bound > 0 && roofline >= bound);
    expect_near(days, ceil(1e9 / (double)plan.price.n_tokens) * roofline / 86400, 1e-9 * days);
    expect_near(money, days * 24 * 2, 1e-9 * money);
    const struct plan_expectation *e = &plan.expected;
    expect_true(e->has_range && e->least.days >= bound * plan.run.steps / 86400 && e->least.days < e->bill.days &&
                e->bill.days < e->most.days && e->bill.days > days);
    expect_near(e->bill.money, e->bill.days * 24 * 2, 1e-9 * e->bill.money);
    expect_equal(next, best + 1);
    json_decref(json);
    plan_free(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(flops_are_the_closed_form_of_every_model),
        TEST(conventions_are_what_their_names_say),
        TEST(no_share_of_a_peak_exceeds_it),
        TEST(a_peak_of_two_dtypes_lies_between_them),
        TEST(parameters_are_those_that_are_published),
        TEST(activations_are_the_closed_form_of_every_model),
        TEST(a_sketch_has_the_peaks_of_the_whole_price),
        TEST(what_fits_runs_and_the_next_size_does_not),
        TEST(shards_divide_what_is_kept),
        TEST(overlap_hides_what_is_sent_beside_computation),
        TEST(collectives_cost_what_their_tiers_say),
        TEST(the_curve_of_sizes_is_near_the_measured_one),
        TEST(small_tensors_take_as_long_on_every_network),
        TEST(networks_are_complete),
        TEST(layouts_divide_model_and_time),
        TEST(a_search_finds_layouts),
        TEST(a_token_costs_the_closed_form_of_every_model),
        TEST(decode_turns_compute_bound_where_the_ridge_says),
        TEST(layers_fold_into_one),
        TEST(groups_lose_nothing),
        TEST(nonsense_is_refused_with_words),
        TEST(a_bill_adds_up),
        TEST(a_plan_is_whole_as_json),
        TEST(doubled_devices_send_more_until_that_binds),
    };
    if (getenv("TALLY_TEST")) cmocka_set_test_filter(getenv("TALLY_TEST"));
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
