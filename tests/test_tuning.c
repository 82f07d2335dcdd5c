/* Fine-tuning: what is frozen keeps its bits and costs nothing, price = receipt, resumed = uninterrupted. */
#include "support/check.h"
#include "support/runs.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "step/price.h"
#include "step/tuning.h"
#include "train/run.h"

/* ---- Files of runs ---- */

static tl_safetensors *file_of(const struct settings *s, int64_t step, const char *name) {
    char path[SETTING_TEXT + 96];
    snprintf(path, sizeof path, "%s/checkpoints/step-%012lld/%s", s->out, (long long)step, name);
    tl_safetensors *file = tl_safetensors_open(path);
    assert_non_null(file);
    return file;
}

static bool same_bits(tl_tensor *a, tl_tensor *b) {
    return tl_bytes(a) == tl_bytes(b) && !memcmp(tl_data(a), tl_data(b), tl_bytes(a));
}

/* Whether a tensor of the checkpoints of two steps, or of two runs, is the same. */
static bool is_kept(const struct settings *a, int64_t step_a, const struct settings *b, int64_t step_b,
                    const char *name) {
    tl_scope scope = tl_scope_begin();
    tl_safetensors *x = file_of(a, step_a, "model.safetensors"), *y = file_of(b, step_b, "model.safetensors");
    bool same = same_bits(tl_safetensors_get(x, name), tl_safetensors_get(y, name));
    tl_safetensors_close(x);
    tl_safetensors_close(y);
    tl_scope_end(scope);
    return same;
}

static void expect_same_weights(const struct settings *a, const struct settings *b, int64_t step) {
    tl_safetensors *x = file_of(a, step, "model.safetensors");
    const int n = tl_safetensors_count(x);
    expect_true(n > 0);
    for (int i = 0; i < n; i++) expect_true(is_kept(a, step, b, step, tl_safetensors_name(x, i)));
    tl_safetensors_close(x);
}

/* ---- Frozen parameters ---- */

/* The run with a number of steps, and the one after half of them: what is frozen has the same bits, what is trained
 * has others, and the optimizer knows nothing of what is frozen. */
static void frozen_parameters_stay(tl_family family, const char *recipe, const char *setting, const char *patterns) {
    struct run_summary summary;
    struct settings s = small_run(family, 600), part;
    set(&s, "recipe", recipe), set(&s, "dropout", "0.1"), set(&s, "accum", "2"), set(&s, "warmup", "1"),
        set(&s, "steps", "4");
    set(&s, setting, patterns), set(&s, "save_every", "2");
    if (strcmp(recipe, "fp32")) set(&s, "checkpointing", "full");
    set_path(&s, "out", setting);
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    tl_safetensors *weights = file_of(&s, 2, "model.safetensors"), *states = file_of(&s, 2, "optimizer.safetensors");
    int64_t n_trained = 0;
    for (int i = 0; i < tl_safetensors_count(weights); i++) {
        const char *name = tl_safetensors_name(weights, i);
        bool is_frozen = text_matches_any(patterns, name) == !strcmp(setting, "freeze");
        char state[160];
        snprintf(state, sizeof state, "exp_avg.%s", name);
        expect_equal(is_kept(&s, 2, &s, 4, name), is_frozen);
        expect_equal(tl_safetensors_find(states, state) >= 0, !is_frozen);
        tl_scope scope = tl_scope_begin();
        if (!is_frozen) n_trained += tl_numel(tl_safetensors_get(weights, name));
        tl_scope_end(scope);
    }
    tl_safetensors_close(weights);
    tl_safetensors_close(states);
    expect_equal(summary.n_trained, n_trained);
    expect_true(n_trained < summary.n_parameters);
    part = s;
    set_path(&part, "out", "part");
    expect_equal(train_until(&part, 1, &summary), RUN_STOPPED);
    expect_equal(train_until(&part, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_same_weights(&s, &part, 4);
    base_remove("part"), base_remove(setting);
}

static void what_is_frozen_stays(void **state) {
    (void)state;
    base_begin();
    frozen_parameters_stay(TL_LLAMA, "fp32", "freeze", "*embed*,*layers.0.*");
    frozen_parameters_stay(TL_LLAMA, "bf16", "train_only", "*norm*");
    frozen_parameters_stay(TL_GPT2, "bf16-lean", "freeze", "*.weight");
    frozen_parameters_stay(TL_MIXTRAL, "amp", "train_only", "*gate*");
    base_end();
}

/* Bytes of a purpose at the peak of a priced step. */
static uint64_t priced(const struct settings *s, tl_purpose purpose, int64_t *n_trained) {
    struct price p;
    assert_true(price_make(&p, s, tl_device_find("meta"), 0));
    uint64_t bytes = price_window(&p, KIND_STEP)->peak_by_purpose[purpose];
    *n_trained = p.n_trained;
    price_free(&p);
    return bytes;
}

/* AdamW's two moments in f32, and nothing for what is frozen. */
static void moments_are_those_of_trained_parameters(void **state) {
    (void)state;
    int64_t n_trained;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 600);
    set(&s, "freeze", "*layers.1.*");
    expect_equal(priced(&s, TL_OPTIMIZER, &n_trained), 8 * n_trained);
    set(&s, "freeze", ""), set(&s, "train_only", "*q_proj*, *layers.1.mlp.*");
    expect_equal(priced(&s, TL_OPTIMIZER, &n_trained), 8 * n_trained);
    expect_equal(n_trained, 2 * 16 * 16 + 3 * 16 * 32);
    base_end();
}

static void wrong_patterns_are_refused(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 600), wrong = s;
    set_path(&wrong, "out", "wrong");
    set(&wrong, "freeze", "*");
    expect_refused(run_until(&wrong, 0, &summary) == RUN_DONE, "no parameter of");
    set(&wrong, "freeze", "*norm*,*nrom*");
    expect_refused(run_until(&wrong, 0, &summary) == RUN_DONE, "freeze: the pattern \"*nrom*\" matches no parameter");
    set(&wrong, "freeze", ""), set(&wrong, "train_only", "x");
    expect_refused(run_until(&wrong, 0, &summary) == RUN_DONE, "train_only: the pattern \"x\" matches no parameter");
    set(&wrong, "train_only", "*norm*"), set(&wrong, "pp", "2");
    expect_refused(tuning_check(&wrong), "need --pp 1");
    base_end();
}

/* ---- Adapters ---- */

/* Price = receipt, resumed = uninterrupted, the model keeps its bits, and final/ is the adapter. */
static void adapters_are_trained(tl_family family, const char *recipe, bool has_magnitude, const char *targets) {
    struct run_summary summary;
    struct settings s = small_run(family, 600), part;
    char path[SETTING_TEXT + 64];
    set(&s, "recipe", recipe), set(&s, "accum", "2"), set(&s, "warmup", "1"), set(&s, "steps", "4"),
        set(&s, "save_every", "2");
    set(&s, "lora", "3"), set(&s, "lora_dropout", "0.2"), set(&s, "lora_targets", targets);
    set(&s, "dora", has_magnitude ? "true" : "false");
    if (strcmp(recipe, "fp32")) set(&s, "checkpointing", "full");
    set_path(&s, "out", "lora");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    expect_equal(run_until(&s, 0, &summary), RUN_DONE); /* a finished run finds its files whole */
    tl_safetensors *weights = file_of(&s, 2, "model.safetensors");
    int64_t n_trained = 0;
    int n_adapters = 0;
    for (int i = 0; i < tl_safetensors_count(weights); i++) {
        const char *name = tl_safetensors_name(weights, i);
        bool is_adapter = strstr(name, ".lora_") != NULL;
        expect_equal(is_kept(&s, 2, &s, 4, name), !is_adapter);
        tl_scope scope = tl_scope_begin();
        if (is_adapter) n_trained += tl_numel(tl_safetensors_get(weights, name)), n_adapters++;
        tl_scope_end(scope);
    }
    tl_safetensors_close(weights);
    expect_equal(summary.n_trained, n_trained);
    snprintf(path, sizeof path, "%s/final/adapter_model.safetensors", s.out);
    weights = tl_safetensors_open(path);
    assert_non_null(weights);
    expect_equal(tl_safetensors_count(weights), n_adapters);
    tl_safetensors_close(weights);
    part = s;
    set_path(&part, "out", "part");
    expect_equal(train_until(&part, 1, &summary), RUN_STOPPED);
    expect_equal(train_until(&part, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_same_weights(&s, &part, 4);
    base_remove("part"), base_remove("lora");
}

static void adapters_alone_are_trained(void **state) {
    (void)state;
    base_begin();
    adapters_are_trained(TL_LLAMA, "fp32", false, "all-linear");
    adapters_are_trained(TL_GPT2, "bf16", true, "c_attn,*h.1.mlp.c_fc");
    adapters_are_trained(TL_MIXTRAL, "fp8", false, "q_proj");
    adapters_are_trained(TL_LLAMA, "amp", true, "o_proj,down_proj");
    base_end();
}

/* A (r,in) and B (out,r), their two moments, and no others. */
static void adapters_cost_what_they_hold(void **state) {
    (void)state;
    int64_t n_trained, n_parameters;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 600);
    const uint64_t before = priced(&s, TL_PARAMETER, &n_parameters);
    set(&s, "lora", "5"), set(&s, "lora_targets", "q_proj,up_proj");
    const uint64_t with = priced(&s, TL_PARAMETER, &n_trained);
    expect_equal(n_trained, 2 * 5 * (16 + 16 + 16 + 32));
    expect_equal(with - before, 4 * n_trained);
    expect_equal(priced(&s, TL_OPTIMIZER, &n_trained), 8 * n_trained);
    base_end();
}

static void wrong_adapters_are_refused(void **state) {
    (void)state;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 600), wrong = s;
    set(&wrong, "dora", "true");
    expect_refused(settings_check(&wrong), "dora: has no use without --lora RANK");
    wrong = s, set(&wrong, "lora", "2"), set(&wrong, "tp", "2");
    expect_refused(settings_check(&wrong), "adapters are not divided");
    wrong = s, set(&wrong, "lora", "2"), set(&wrong, "train_only", "*");
    expect_refused(settings_check(&wrong), "need one of both");
    base_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_frozen_stays),         TEST(moments_are_those_of_trained_parameters),
        TEST(wrong_patterns_are_refused),   TEST(adapters_alone_are_trained),
        TEST(adapters_cost_what_they_hold), TEST(wrong_adapters_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
