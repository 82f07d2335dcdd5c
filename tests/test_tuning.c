/* Fine-tuning: what is frozen keeps its bits and costs nothing, price = receipt, resumed = uninterrupted. */
#include "support/check.h"
#include "support/runs.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "ops/ops.h"
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
    uint64_t moments = priced(&s, TL_OPTIMIZER, &n_trained);
    expect_equal(moments, 8 * n_trained);
    set(&s, "freeze", ""), set(&s, "train_only", "*q_proj*, *layers.1.mlp.*");
    moments = priced(&s, TL_OPTIMIZER, &n_trained);
    expect_equal(moments, 8 * n_trained);
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

/* A Llama whose rows are whole blocks of every format. */
static tl_model_config wide_model(void) {
    tl_model_config c;
    assert_true(tl_model_preset("tiny", &c));
    c.n_layers = 2, c.n_heads = c.n_kv_heads = 2, c.channels = 64, c.head_size = 32, c.ff = 128, c.context = 32;
    return c;
}

static void wide_model_write(void) {
    char path[128];
    const tl_model_config c = wide_model();
    snprintf(path, sizeof path, "%s/wide.json", base);
    assert_true(tl_model_config_write(&c, path));
}

/* Price = receipt, resumed = uninterrupted, the model keeps its bits, and final/ is the adapter. */
static void adapters_are_trained(tl_family family, const char *recipe, bool has_magnitude, const char *targets,
                                 const char *base_format) {
    struct run_summary summary;
    struct settings s = small_run(family, 600), part;
    char path[SETTING_TEXT + 64];
    set(&s, "recipe", recipe), set(&s, "accum", "2"), set(&s, "warmup", "1"), set(&s, "steps", "4"),
        set(&s, "save_every", "2");
    set(&s, "lora", "3"), set(&s, "lora_dropout", "0.2"), set(&s, "lora_targets", targets);
    set(&s, "dora", has_magnitude ? "true" : "false"), set(&s, "lora_base", base_format);
    if (strcmp(base_format, "none")) set_path(&s, "model", "wide.json");
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
    wide_model_write();
    adapters_are_trained(TL_LLAMA, "bf16", true, "all-linear", "nvfp4");
    adapters_are_trained(TL_LLAMA, "fp32", false, "q_proj", "nf4");
    adapters_are_trained(TL_LLAMA, "fp32", false, "all-linear", "none");
    adapters_are_trained(TL_GPT2, "bf16", true, "c_attn,*h.1.mlp.c_fc", "none");
    adapters_are_trained(TL_MIXTRAL, "fp8", false, "q_proj", "none");
    adapters_are_trained(TL_LLAMA, "amp", true, "o_proj,down_proj", "none");
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

/* ---- Frozen weights in block-scaled formats ---- */

static tl_module *adapted_model(const tl_model_config *c, tl_format format, bool has_blocks, bool has_magnitude) {
    tl_adapter_options o = tl_adapter_defaults();
    o.has_magnitude = has_magnitude;
    tl_seed(7);
    tl_module *model = tl_model_new(c, TL_F32, NULL);
    assert_non_null(model);
    bool grad = tl_set_grad_mode(false);
    for (int i = 0; i < model_n_blocks(model); i++) {
        int n = 0;
        tl_scope scope = tl_scope_begin();
        if (has_blocks) assert_true(linear_set_format(model_block(model, i), format));
        const tl_named_tensor *list = tl_module_list(model_block(model, i), &n);
        for (int k = 0; !has_blocks && k < n; k++)
            if (linear_is(list[k].owner) && tl_rank(list[k].tensor) == 2)
                assert_non_null(tl_copy_(list[k].tensor, tl_fake_quantize(list[k].tensor, format, TL_NEAREST)));
        tl_scope_end(scope);
    }
    tl_seed(8);
    assert_true(tl_model_add_adapter(model, &o));
    int n = 0;
    const tl_named_tensor *list = tl_module_list(model, &n);
    for (int i = 0; i < n; i++)
        if (strstr(list[i].name, "lora_B")) assert_non_null(tl_normal_(list[i].tensor, 0, 0.1));
    tl_set_grad_mode(grad);
    return model;
}

static tl_tensor *loss_of(tl_module *model) {
    int64_t ids[16], next[16];
    for (int i = 0; i < 16; i++) ids[i] = 7 * i % 250, next[i] = (7 * i + 7) % 250;
    return tl_model_loss(model, tl_from_data(ids, TL_SHAPE(2, 8), TL_I64, NULL),
                         tl_from_data(next, TL_SHAPE(2, 8), TL_I64, NULL));
}

/* Tally multiplies weights in blocks itself. */
static void expect_same_products(tl_tensor *a, tl_tensor *b) {
    if (check_library_multiplies()) expect_close(a, b, 1e-5);
    else expect_same_bits(a, b);
}

/* The same bits as the weights that the blocks stand for: loss, and gradients of the adapters. Merged, too. */
static void blocks_multiply_as_their_weights(void **state) {
    (void)state;
    static const tl_format formats[] = {TL_MXFP8_E4M3, TL_MXFP4, TL_NVFP4, TL_NF4};
    const tl_model_config c = wide_model();
    for (int f = 0; f < 4; f++) {
        tl_scope scope = tl_scope_begin();
        tl_module *blocks = adapted_model(&c, formats[f], true, f == 2),
                  *plain = adapted_model(&c, formats[f], false, f == 2);
        tl_tensor *a = loss_of(blocks), *b = loss_of(plain);
        assert_true(a && b && tl_backward(a, NULL, 0) && tl_backward(b, NULL, 0));
        expect_same_products(a, b);
        int n = 0, n_compared = 0;
        const tl_named_tensor *list = tl_module_list(plain, &n);
        for (int i = 0; i < n; i++) {
            tl_tensor *other = tl_module_find_tensor(blocks, list[i].name), *g = tl_grad_of(list[i].tensor);
            if (!g) continue;
            expect_true(other && tl_grad_of(other));
            expect_same_products(tl_grad_of(other), g);
            n_compared++;
        }
        expect_equal(n_compared, 2 * 7 * (f == 2 ? 3 : 2));
        assert_true(tl_model_merge_adapter(blocks) && tl_model_merge_adapter(plain));
        expect_same_products(loss_of(blocks), loss_of(plain));
        tl_module_free(blocks);
        tl_module_free(plain);
        tl_scope_end(scope);
    }
}

/* x (rows,in) times a weight in blocks, and its gradient: the bits are those of the unpacked weight, and only the
 * buffers of the product are taken for it. */
static void one_weight_in_blocks(tl_format format, tl_dtype dtype, int64_t n_rows, int64_t n_out, int64_t n_in) {
    tl_scope scope = tl_scope_begin();
    tl_seed(3);
    tl_quantized q;
    tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(n_rows, n_in), 0, 1, dtype, NULL), true);
    tl_tensor *same = tl_requires_grad(tl_clone(tl_detach(x)), true);
    tl_tensor *dy = tl_normal(TL_SHAPE(n_rows, n_out), 0, 1, dtype, NULL);
    tl_tensor *source = tl_normal(TL_SHAPE(n_out, n_in), 0, 1, TL_F32, NULL);
    assert_true(source && tl_quantize(source, format, TL_NEAREST, &q));
    tl_device *device = tl_device_of(x);
    const uint64_t before = tl_device_memory(device).live_bytes;
    tl_memory_reset_peak(device);
    tl_tensor *y = linear_quantized(x, &q, NULL);
    assert_true(y && tl_backward(y, dy, 0));
    const uint64_t bytes = (uint64_t)tl_dtype_bits(dtype) / 8, peak = tl_device_memory(device).peak_bytes - before;
    const uint64_t results = bytes * (uint64_t)(n_rows * (n_in + n_out)), weight = bytes * (uint64_t)(n_out * n_in);
    if (n_rows <= 8) expect_true(peak < results + (1 << 16));
    if (weight > 16 << 20) expect_true(peak < results + weight / 2);
    tl_tensor *wide = tl_linear(same, tl_dequantize(&q, dtype), NULL);
    assert_true(wide && same_bits(y, wide) && tl_backward(wide, dy, 0));
    expect_true(same_bits(tl_grad_of(x), tl_grad_of(same)));
    tl_scope_end(scope);
}

/* A few rows, blocks of terms and of columns with rests, and rows of one block that begin at an odd number. f32 stays
 * below what a library multiplies on old chips. */
static void products_read_weights_in_blocks(void **state) {
    (void)state;
    static const tl_format formats[] = {TL_MXFP8_E4M3, TL_MXFP8_E5M2, TL_MXFP4, TL_NVFP4, TL_NF4};
    for (int f = 0; f < 5; f++)
        for (int d = TL_F32; d <= TL_BF16; d++) {
            one_weight_in_blocks(formats[f], (tl_dtype)d, 8, 70, 1600);
            one_weight_in_blocks(formats[f], (tl_dtype)d, 9, 33, 192);
            if (d != TL_F32) one_weight_in_blocks(formats[f], (tl_dtype)d, 21, 1090, 1600);
        }
    one_weight_in_blocks(TL_NVFP4, TL_F16, 11, 60, 1552); /* three blocks of 518 terms */
    one_weight_in_blocks(TL_NF4, TL_BF16, 9, 4096, 4096);
}

/* Half a byte, and a byte for each 32 numbers or 4 for each 64. */
static void blocks_cost_their_bytes(void **state) {
    (void)state;
    int64_t n_trained;
    base_begin();
    wide_model_write();
    struct settings s = small_run(TL_LLAMA, 600);
    const tl_model_config c = wide_model();
    set_path(&s, "model", "wide.json"), set(&s, "lora", "4"), set(&s, "recipe", "bf16");
    const uint64_t wide = priced(&s, TL_PARAMETER, &n_trained);
    set(&s, "lora_base", "mxfp4");
    const uint64_t n = (uint64_t)(c.n_layers * (4 * c.channels * c.channels + 3 * c.channels * c.ff));
    expect_equal(priced(&s, TL_PARAMETER, &n_trained), wide - 2 * n + n / 2 + n / 32);
    set(&s, "lora_base", "nf4");
    expect_equal(priced(&s, TL_PARAMETER, &n_trained), wide - 2 * n + n / 2 + 4 * n / 64);
    base_end();
}

static void wrong_adapters_are_refused(void **state) {
    (void)state;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 600), wrong = s;
    set(&wrong, "dora", "true");
    expect_refused(settings_check(&wrong), "dora: has no use without --lora RANK");
    wrong = s, set(&wrong, "lora", "2"), set(&wrong, "tp", "2"), set(&wrong, "lora_base", "mxfp4");
    expect_refused(settings_check(&wrong), "lora_base: weights in blocks are not divided (need --tp 1");
    wrong = s, set(&wrong, "lora_base", "mxfp4");
    expect_refused(settings_check(&wrong), "lora_base: has no use without --lora RANK");
    set(&wrong, "lora", "2"), set(&wrong, "recipe", "fp8");
    expect_refused(settings_check(&wrong), "not fp8");
    wrong = s, set(&wrong, "lora", "2"), set(&wrong, "train_only", "*");
    expect_refused(settings_check(&wrong), "need one of both");
    base_end();
}

/* ---- Preferences ---- */

static void pairs_write(struct settings *s) {
    char path[128];
    snprintf(path, sizeof path, "%s/pairs.jsonl", base);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 12; i++)
        fprintf(file, "{\"prompt\": \"%d + %d\", \"chosen\": \" = %d\", \"rejected\": \" is unknown, %d\"}\n", i, i,
                2 * i, i);
    fclose(file);
    set_path(s, "data", "pairs.jsonl");
}

/* Price = receipt, resumed = uninterrupted: the reference is that of the first weights, whatever was trained since. */
static void preferences_are_trained(tl_family family, const char *recipe, const char *lora, const char *freeze) {
    struct run_summary summary;
    struct settings s = small_run(family, 600), part;
    pairs_write(&s);
    set(&s, "preference", "auto"), set(&s, "recipe", recipe), set(&s, "lora", lora), set(&s, "freeze", freeze);
    set(&s, "val_share", "0.2"), set(&s, "accum", "3"), set(&s, "steps", "4"), set(&s, "warmup", "1");
    set(&s, "save_every", "2"), set(&s, "dropout", "0.1");
    if (strcmp(recipe, "fp32")) set(&s, "checkpointing", "full"), set(&s, "noise_scale", "true");
    set_path(&s, "out", "pairs");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    expect_true(summary.accuracy >= 0 && summary.accuracy <= 1 && summary.held_out_accuracy >= 0);
    part = s;
    set_path(&part, "out", "part");
    expect_equal(train_until(&part, 3, &summary), RUN_STOPPED);
    expect_equal(train_until(&part, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_same_weights(&s, &part, 4);
    base_remove("part"), base_remove("pairs");
}

static void preferences_are_exact(void **state) {
    (void)state;
    base_begin();
    preferences_are_trained(TL_LLAMA, "fp32", "0", "");
    preferences_are_trained(TL_GPT2, "bf16", "0", "*h.0.*");
    preferences_are_trained(TL_LLAMA, "bf16", "3", "");
    preferences_are_trained(TL_MIXTRAL, "amp", "0", "");
    base_end();
}

/* A copy of the parameters, and nothing else; with adapters not even that. */
static void a_reference_costs_its_parameters(void **state) {
    (void)state;
    int64_t n_trained;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 600), pairs = s;
    pairs_write(&pairs), set(&pairs, "preference", "auto");
    const uint64_t before = priced(&s, TL_PARAMETER, &n_trained);
    expect_equal(priced(&pairs, TL_PARAMETER, &n_trained), 2 * before);
    expect_equal(priced(&pairs, TL_OPTIMIZER, &n_trained), 2 * before);
    set(&s, "lora", "2"), set(&pairs, "lora", "2");
    expect_equal(priced(&pairs, TL_PARAMETER, &n_trained), priced(&s, TL_PARAMETER, &n_trained));
    base_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(what_is_frozen_stays),
                                       TEST(moments_are_those_of_trained_parameters),
                                       TEST(wrong_patterns_are_refused),
                                       TEST(adapters_alone_are_trained),
                                       TEST(adapters_cost_what_they_hold),
                                       TEST(blocks_multiply_as_their_weights),
                                       TEST(products_read_weights_in_blocks),
                                       TEST(blocks_cost_their_bytes),
                                       TEST(wrong_adapters_are_refused),
                                       TEST(preferences_are_exact),
                                       TEST(a_reference_costs_its_parameters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
