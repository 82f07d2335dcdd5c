/* Trees of modules: names, listing, ties, modes, replacement; and the models made of them. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tl_module *two_layers(void) {
    tl_module *m = tl_nn_sequential();
    assert_non_null(tl_module_add(m, "0", tl_nn_linear(3, 4, true, TL_F32, NULL)));
    assert_non_null(tl_module_add(m, "1", tl_nn_gelu(true)));
    assert_non_null(tl_module_add(m, "2", tl_nn_linear(4, 2, false, TL_F32, NULL)));
    return m;
}

static void parameters_are_listed_by_path_in_order(void **state) {
    (void)state;
    tl_module *m = two_layers();
    static const char *const names[] = {"0.weight", "0.bias", "2.weight"};
    int n;
    const tl_named_tensor *list = tl_module_list(m, &n);
    expect_equal(n, 3);
    for (int i = 0; i < n; i++) expect_text(list[i].name, names[i]);
    expect_equal(tl_module_parameters(m), 3 * 4 + 4 + 4 * 2);
    expect_true(tl_module_find_tensor(m, "2.weight") == list[2].tensor);
    assert_null(tl_module_find_tensor(m, "2.bias"));
    assert_null(tl_module_find_tensor(m, "7.weight"));
    expect_true(tl_module_find(m, "0") == tl_module_child(m, 0));
    expect_equal(tl_purpose_of(list[0].tensor), TL_PARAMETER);
    expect_true(tl_needs_grad(list[0].tensor));
    tl_module_free(m);
}

static void forward_bills_the_modules_path(void **state) {
    (void)state;
    tl_module *m = two_layers();
    tl_module_set_name(m, "net");
    tl_ledger *ledger = tl_ledger_begin("test");
    tl_tensor *y = tl_module_forward(m, tl_ones(TL_SHAPE(5, 3), TL_F32, NULL));
    tl_ledger_end(ledger);
    expect_shape(y, 5, 2);
    char *json = tl_ledger_json(ledger, check_cpu());
    assert_non_null(strstr(json, "\"net.0\""));
    assert_non_null(strstr(json, "\"net.1\""));
    free(json);
    tl_ledger_free(ledger);
    tl_module_free(m);
}

static void the_tree_prints_as_pytorchs(void **state) {
    (void)state;
    tl_module *m = two_layers();
    char text[512], start[8];
    static const char *const want = "Sequential(\n"
                                    "  (0): Linear(in_features=3, out_features=4, bias=True)\n"
                                    "  (1): GELU(approximate='tanh')\n"
                                    "  (2): Linear(in_features=4, out_features=2, bias=False)\n"
                                    ")";
    expect_equal(tl_module_print(m, text, sizeof text), strlen(want));
    expect_text(text, want);
    expect_equal(tl_module_print(m, start, sizeof start), strlen(want));
    expect_text(start, "Sequent");
    tl_module_free(m);
}

static void wrong_names_and_trees_are_refused(void **state) {
    (void)state;
    tl_module *m = two_layers();
    expect_refused(tl_module_add(m, "0", tl_nn_silu()), "has a \"0\" already");
    expect_refused(tl_module_add(m, "a.b", tl_nn_silu()), "is not a valid name");
    expect_refused(tl_module_add(m, "", tl_nn_silu()), "is not a valid name");
    expect_refused(tl_module_add(m, "x", NULL), "NULL instead of a module");
    expect_refused(tl_module_add(tl_module_child(m, 0), "x", tl_module_child(m, 1)), "already has a parent");
    expect_refused(tl_module_forward(tl_module_add(m, "list", tl_nn_list()), tl_ones(TL_SHAPE(1), TL_F32, NULL)),
                   "only holds other modules");
    expect_refused(tl_module_tie(m, "2.weight", "none"), "there is no parameter \"none\"");
    expect_refused(tl_module_cast(m, TL_I32), "cannot be i32");
    tl_module_free(m);
}

static void a_tied_parameter_is_one_tensor_for_good(void **state) {
    (void)state;
    tl_module *m = tl_nn_list();
    tl_module_add(m, "a", tl_nn_linear(3, 3, false, TL_F32, NULL));
    tl_module_add(m, "b", tl_nn_linear(3, 3, false, TL_F32, NULL));
    assert_true(tl_module_tie(m, "b.weight", "a.weight"));
    expect_equal(tl_module_parameters(m), 9);
    assert_true(tl_module_cast(m, TL_BF16));
    expect_true(tl_module_find_tensor(m, "a.weight") == tl_module_find_tensor(m, "b.weight"));
    expect_equal(tl_dtype_of(tl_module_find_tensor(m, "b.weight")), TL_BF16);
    expect_equal(tl_purpose_of(tl_module_find_tensor(m, "b.weight")), TL_PARAMETER);
    expect_true(tl_needs_grad(tl_module_find_tensor(m, "b.weight")));
    tl_module_free(m);
}

static void frozen_parameters_and_evaluation_mode(void **state) {
    (void)state;
    tl_module *m = tl_nn_sequential();
    tl_module_add(m, "0", tl_nn_dropout(0.5));
    tl_module_add(m, "1", tl_nn_linear(8, 8, true, TL_F32, NULL));
    tl_tensor *x = tl_ones(TL_SHAPE(4, 8), TL_F32, NULL);
    tl_module *drop = tl_module_child(m, 0);
    expect_true(tl_item(tl_min(tl_module_forward(drop, x), NULL, 0, false)) == 0);
    tl_module_train(m, false);
    expect_true(!tl_module_is_training(drop) && tl_module_forward(drop, x) == x);
    assert_true(tl_module_freeze(m, true));
    expect_true(!tl_needs_grad(tl_module_forward(m, x)));
    assert_true(tl_module_freeze(m, false));
    expect_true(tl_needs_grad(tl_module_forward(m, x)));
    tl_module_free(m);
}

/* The lesson of 1/sqrt(fan_in): the deviation of a linear layer's results does not depend on the width. With the
 * weights of PyTorch's Linear, uniform in +-1/sqrt(in), it is 1/sqrt(3) for inputs of deviation 1; with weights of
 * deviation 1 it would be sqrt(width). */
static void the_scale_of_results_does_not_depend_on_the_width(void **state) {
    (void)state;
    for (int64_t width = 64; width <= 1024; width *= 4) {
        tl_scope scope = tl_scope_begin();
        tl_module *m = tl_nn_linear(width, width, false, TL_F32, NULL);
        tl_tensor *x = tl_normal(TL_SHAPE(256, width), 0, 1, TL_F32, NULL);
        expect_near(tl_item(tl_std(tl_module_forward(m, x), NULL, 0, 1, false)), 1 / sqrt(3), 0.02);
        tl_tensor *raw = tl_matmul(x, tl_normal(TL_SHAPE(width, width), 0, 1, TL_F32, NULL));
        expect_near(tl_item(tl_std(raw, NULL, 0, 1, false)) / sqrt((double)width), 1, 0.05);
        tl_module_free(m);
        tl_scope_end(scope);
    }
}

static void initialisers_have_the_deviation_they_promise(void **state) {
    (void)state;
    tl_tensor *x = tl_empty(TL_SHAPE(400, 100), TL_F64, NULL);
    double sum = 500, in = 100, out = 400;
    expect_near(tl_item(tl_std(tl_init_xavier_uniform_(x, 2), NULL, 0, 1, false)), 2 * sqrt(2 / sum), 2e-3);
    expect_near(tl_item(tl_std(tl_init_xavier_normal_(x, 2), NULL, 0, 1, false)), 2 * sqrt(2 / sum), 2e-3);
    expect_near(tl_item(tl_std(tl_init_kaiming_uniform_(x, 0, TL_FAN_IN), NULL, 0, 1, false)), sqrt(2 / in), 2e-3);
    expect_near(tl_item(tl_std(tl_init_kaiming_normal_(x, 0, TL_FAN_OUT), NULL, 0, 1, false)), sqrt(2 / out), 2e-3);
    expect_near(tl_item(tl_max(tl_init_kaiming_uniform_(x, sqrt(5), TL_FAN_IN), NULL, 0, false)), 1 / sqrt(in), 1e-3);
    expect_refused(tl_init_xavier_normal_(tl_ones(TL_SHAPE(3), TL_F32, NULL), 1), "need two axes");
}

/* A custom kind: x * weight + offset, where the offset is a buffer, and the factor is plain data. */
static tl_tensor *shift_forward(tl_module *m, tl_tensor *x) {
    double factor = *(double *)tl_module_state(m);
    tl_tensor *y = tl_mul(x, tl_module_tensor(m, 0));
    return tl_add(tl_scale(y, factor), tl_module_tensor(m, 1));
}
static const tl_module_kind shift_kind = {"Shift", shift_forward, NULL, sizeof(double)};

static void kinds_can_be_added_from_outside(void **state) {
    (void)state;
    tl_module *m = tl_module_new(&shift_kind);
    *(double *)tl_module_state(m) = 3;
    assert_true(tl_module_add_parameter(m, "weight", tl_full(TL_SHAPE(2), 5, TL_F32, NULL)));
    assert_true(tl_module_add_buffer(m, "offset", tl_full(TL_SHAPE(2), 7, TL_F32, NULL)));
    assert_true(tl_module_add_parameter(m, "bias", NULL));
    tl_tensor *y = tl_module_forward(m, tl_ones(TL_SHAPE(2), TL_F32, NULL));
    expect_values(y, 22, 22);
    expect_true(tl_needs_grad(tl_module_tensor(m, 0)) && !tl_needs_grad(tl_module_tensor(m, 1)));
    assert_null(tl_module_tensor(m, 2));
    assert_null(tl_module_tensor(m, 3));
    int n;
    const tl_named_tensor *list = tl_module_list(m, &n);
    expect_equal(n, 2);
    expect_true(!list[0].is_buffer && list[1].is_buffer && list[0].owner == m);
    expect_equal(tl_module_parameters(m), 2);
    expect_refused(tl_module_add_parameter(m, "ids", tl_ones(TL_SHAPE(2), TL_I64, NULL)), "");
    tl_module_free(m);
}

/* ---- Models ---- */

static void presets_hold_the_published_numbers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } known[] = {{"gpt2-124m", 124439808},     {"gpt2-350m", 354823168},         {"gpt2-774m", 774030080},
                 {"gpt2-1558m", 1557611200},   {"llama-3.2-1b", 1235814400},     {"llama-3-8b", 8030261248},
                 {"llama-3-70b", 70553706496}, {"llama-3.1-405b", 405853388800}, {"qwen2.5-0.5b", 494032768},
                 {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-7b", 7615616512},       {"mistral-7b-v0.1", 7241732096},
                 {"qwen3-8b", 8190735360},     {"olmo2-7b", 7298617344},         {"smollm-135m", 134515008},
                 {"pythia-70m", 70426624},     {"pythia-12b", 11846072320},      {"phi-3-mini-4k", 3821079552},
                 {"phi-4", 14659507200},       {"gemma-2b", 2506172416},         {"gemma-7b", 8537680896},
                 {"gemma-3-270m", 268098176},  {"gemma-3-1b", 999885952},        {"starcoder-15b", 15517456384}};
    static const struct {
        const char *name;
        int64_t parameters, active;
    } experts[] = {{"mixtral-8x7b", 46702792704, 12879925248}, {"mixtral-8x22b", 140620634112, 39152031744},
                   {"qwen3-30b-a3b", 30532122624, 3353032704}, {"qwen3-235b-a22b", 235093634560, 22190763520},
                   {"olmoe-1b-7b", 6919161856, 1282017280},    {"gpt-oss-20b", 20914757184, 4187440704},
                   {"gpt-oss-120b", 116829156672, 5711982912}};
    tl_model_config c;
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        assert_true(tl_model_preset(experts[i].name, &c));
        expect_equal(tl_model_config_parameters(&c), experts[i].parameters);
        expect_equal(tl_model_config_active_parameters(&c), experts[i].active);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true(tl_model_preset(known[i].name, &c));
        expect_equal(tl_model_config_parameters(&c), known[i].parameters);
        expect_equal(tl_model_config_active_parameters(&c), known[i].parameters);
    }
    expect_refused(tl_model_preset("gpt5", &c), "there are nano, ");
}

static void the_formula_counts_what_the_tree_holds(void **state) {
    (void)state;
    for (int i = 0; tl_model_preset_name(i); i++) {
        tl_model_config c;
        assert_true(tl_model_preset(tl_model_preset_name(i), &c));
        if (tl_model_config_parameters(&c) > 20e9) c.n_layers = 2; /* more than the target's memory */
        tl_module *m = tl_model_new(&c, TL_BF16, tl_device_find("meta:h200"));
        assert_non_null(m);
        expect_equal(tl_module_parameters(m), tl_model_config_parameters(&c));
        tl_module_free(m);
    }
}

static tl_model_config small(tl_family family) {
    tl_model_config c;
    assert_true(tl_model_preset(family == TL_GPT2 ? "tiny-gpt2" : "tiny", &c));
    c.n_layers = 2, c.n_heads = 2, c.n_kv_heads = family == TL_GPT2 ? 2 : 1, c.channels = 16, c.head_size = 8;
    c.ff = 24, c.vocabulary = 11, c.context = 12;
    return c;
}

/* As nanoGPT: of the embeddings, of the weights of attention, and of what both sub-layers add. */
static void models_drop_in_training_alone(void **state) {
    (void)state;
    for (int family = TL_GPT2; family <= TL_LLAMA; family++) {
        tl_model_config c = small((tl_family)family), without = c;
        c.dropout = 0.5;
        tl_seed(4);
        tl_module *m = tl_model_new(&c, TL_F32, NULL);
        tl_seed(4);
        tl_module *plain = tl_model_new(&without, TL_F32, NULL);
        tl_tensor *tokens = tl_integers(TL_SHAPE(2, 6), 0, 11, TL_I64, NULL);
        tl_generator before = tl_generator_get();
        tl_ledger *ledger = tl_ledger_begin("training");
        tl_tensor *dropped = tl_model_logits(m, tokens);
        tl_ledger_end(ledger);
        expect_equal(tl_ledger_total(ledger, TL_FORWARD, "dropout").calls, 1); /* others are a part of sums */
        tl_ledger_free(ledger);
        /* half a word for each element that a mask has; attention's rows of 6 keys take 8 */
        const int64_t of_layers = c.n_layers * (2 * 12 * c.channels + 12 * c.n_heads * 8);
        expect_equal(tl_generator_get().index - before.index, (12 * c.channels + of_layers) / 2);
        tl_generator_set(before);
        expect_same_bits(tl_model_logits(m, tokens), dropped);
        tl_module_train(m, false);
        tl_generator_set(before);
        expect_same_bits(tl_model_logits(m, tokens), tl_model_logits(plain, tokens));
        expect_equal(tl_generator_get().index, before.index);
        tl_module_free(m);
        tl_module_free(plain);
    }
}

static void the_loss_is_that_of_the_logits(void **state) {
    (void)state;
    for (tl_family family = TL_GPT2; family <= TL_LLAMA; family++) {
        tl_model_config c = small(family);
        tl_module *m = tl_model_new(&c, TL_F64, NULL);
        tl_tensor *tokens = tl_integers(TL_SHAPE(3, 7), 0, 11, TL_I64, NULL);
        tl_tensor *targets = tl_integers(TL_SHAPE(3, 7), 0, 11, TL_I64, NULL);
        tl_tensor *logits = tl_model_logits(m, tokens), *loss = tl_model_loss(m, tokens, targets);
        expect_shape(logits, 3, 7, 11);
        tl_tensor *plain = tl_cross_entropy(tl_flatten(logits, 0, 1), tl_flatten(targets, 0, -1), NULL);
        expect_near(tl_item(loss), tl_item(plain), 1e-12);
        assert_true(tl_backward(loss, NULL, 0));
        int n;
        const tl_named_tensor *list = tl_module_list(m, &n);
        for (int i = 0; i < n; i++) assert_non_null(tl_grad_of(list[i].tensor));
        tl_module_free(m);
    }
}

static void checkpointing_leaves_every_bit_of_the_gradients(void **state) {
    (void)state;
    static const tl_checkpoint_policy policies[] = {TL_CHECKPOINT_EVERY_K, TL_CHECKPOINT_SQRT, TL_CHECKPOINT_FULL,
                                                    TL_CHECKPOINT_NOTHING, TL_CHECKPOINT_SELECTIVE};
    static const struct {
        tl_family family;
        tl_dtype dtype;
    } runs[] = {{TL_LLAMA, TL_F32}, {TL_GPT2, TL_F32}, {TL_LLAMA, TL_BF16}, {TL_GPT2, TL_BF16}, {TL_GPT2, TL_F16}};
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        tl_model_config c = small(runs[r].family);
        c.dropout = 0.1;
        tl_module *m = tl_model_new(&c, runs[r].dtype, NULL);
        tl_tensor *tokens = tl_integers(TL_SHAPE(2, 6), 0, 11, TL_I64, NULL);
        int n;
        const tl_named_tensor *list = tl_module_list(m, &n);
        tl_generator generator = tl_generator_get();
        assert_true(tl_backward(tl_model_loss(m, tokens, tokens), NULL, 0));
        tl_tensor *plain[64];
        for (int i = 0; i < n; i++) plain[i] = tl_clone(tl_grad_of(list[i].tensor));
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            tl_module_zero_grad(m, false);
            assert_true(tl_model_set_checkpointing(m, policies[p], 2));
            tl_generator_set(generator);
            assert_true(tl_backward(tl_model_loss(m, tokens, tokens), NULL, 0));
            for (int i = 0; i < n; i++) expect_same_bits(tl_grad_of(list[i].tensor), plain[i]);
        }
        expect_refused(tl_model_set_checkpointing(m, TL_CHECKPOINT_EVERY_K, 0), "groups of 0 layers");
        tl_module_free(m);
    }
}

/* ---- Documents ---- */

enum { DOCUMENT_ROWS = 2, DOCUMENT_TIME = 24 };
static const int document_lengths[DOCUMENT_ROWS][4] = {{5, 1, 11, 7}, {24, 0, 0, 0}};

/* (B,T): where each token's document begins. */
static tl_tensor *document_begins(void) {
    int32_t begin[DOCUMENT_ROWS][DOCUMENT_TIME];
    for (int b = 0; b < DOCUMENT_ROWS; b++)
        for (int d = 0, t = 0; d < 4; d++)
            for (int i = 0, first = t; i < document_lengths[b][d]; i++) begin[b][t++] = first;
    return tl_from_data(begin, TL_SHAPE(DOCUMENT_ROWS, DOCUMENT_TIME), TL_I32, NULL);
}

/* (B T): the loss at each token. */
static tl_tensor *token_losses(tl_tensor *logits, tl_tensor *targets) {
    tl_cross_entropy_options o = tl_cross_entropy_defaults();
    o.reduction = TL_REDUCE_NONE;
    return tl_cross_entropy(tl_flatten(logits, 0, 1), tl_flatten(targets, 0, -1), &o);
}

/* The losses of all documents, each in a row of its own, in the order of the packed rows. */
static tl_tensor *losses_alone(tl_module *m, tl_tensor *tokens, tl_tensor *targets) {
    tl_tensor *parts[8];
    int n = 0;
    for (int b = 0; b < DOCUMENT_ROWS; b++)
        for (int d = 0, t = 0; d < 4 && document_lengths[b][d]; t += document_lengths[b][d++]) {
            const int64_t end = t + document_lengths[b][d];
            tl_tensor *own = tl_slice(tl_slice(tokens, 0, b, b + 1, 1), 1, t, end, 1);
            tl_tensor *next = tl_slice(tl_slice(targets, 0, b, b + 1, 1), 1, t, end, 1);
            parts[n++] = token_losses(tl_model_logits(m, own), next);
        }
    return tl_concat(parts, n, 0);
}

/* Places that count from the beginning of a document: learned, turned, those of ALiBi, of chunks and temperatures. */
static tl_model_config document_config(tl_family family) {
    tl_model_config c = small(family == TL_GPT2 ? TL_GPT2 : TL_LLAMA);
    c.family = family;
    c.context = DOCUMENT_TIME;
    if (family == TL_FALCON) c.positions = TL_POSITIONS_ALIBI, c.is_parallel = true;
    if (family == TL_LLAMA4) {
        c.plain_every = 2, c.n_experts = 3, c.n_chosen = c.n_shared = 1, c.chunk = 4, c.has_head_norm = true;
        c.temperature_floor = 3, c.temperature_scale = 0.5;
    }
    return c;
}

/* Losses of every token and gradients of every parameter. */
static void packed_documents_are_as_if_alone(void **state) {
    (void)state;
    static const struct {
        tl_dtype dtype;
        double bound;
    } runs[] = {{TL_F64, 1e-14}, {TL_F32, 2e-6}};
    static const tl_family families[] = {TL_GPT2, TL_LLAMA, TL_FALCON, TL_LLAMA4};
    for (int f = 0; f < 4; f++)
        for (int r = 0; r < 2; r++) {
            tl_model_config c = document_config(families[f]);
            tl_module *m = tl_model_new(&c, runs[r].dtype, NULL);
            tl_tensor *tokens = tl_integers(TL_SHAPE(DOCUMENT_ROWS, DOCUMENT_TIME), 0, 11, TL_I64, NULL);
            tl_tensor *targets = tl_integers(TL_SHAPE(DOCUMENT_ROWS, DOCUMENT_TIME), 0, 11, TL_I64, NULL);
            tl_tensor *begin = document_begins(), *alone = losses_alone(m, tokens, targets);
            tl_tensor *packed = token_losses(tl_model_document_logits(m, tokens, begin), targets);
            expect_close(packed, alone, runs[r].bound);
            assert_true(tl_backward(tl_mean_all(alone), NULL, 0));
            int n;
            const tl_named_tensor *list = tl_module_list(m, &n);
            tl_tensor *grad[64];
            for (int i = 0; i < n; i++) grad[i] = tl_clone(tl_grad_of(list[i].tensor));
            tl_module_zero_grad(m, false);
            tl_tensor *loss = tl_model_document_loss(m, tokens, targets, begin);
            expect_near(tl_item(loss), tl_item(tl_mean_all(alone)), runs[r].bound);
            assert_true(tl_backward(loss, NULL, 0));
            for (int i = 0; i < n; i++) expect_close(tl_grad_of(list[i].tensor), grad[i], runs[r].bound);
            tl_module_free(m);
        }
}

static tl_count rope_bytes(tl_module *m, tl_tensor *tokens, tl_tensor *begin) {
    tl_ledger *ledger = tl_ledger_begin("rope");
    assert_non_null(tl_model_document_logits(m, tokens, begin));
    tl_ledger_end(ledger);
    const tl_count bytes = tl_ledger_total(ledger, TL_FORWARD, "rope").bytes_read;
    tl_ledger_free(ledger);
    return bytes;
}

/* Rotations are relative, so inside a document a common offset shows in rounding only: positions that start again are
 * seen by what is read, 4 bytes per token for q and for k of each layer. */
static void rotary_positions_start_again_in_each_document(void **state) {
    (void)state;
    tl_model_config c = small(TL_LLAMA);
    c.context = DOCUMENT_TIME;
    tl_module *m = tl_model_new(&c, TL_F32, NULL);
    tl_tensor *tokens = tl_integers(TL_SHAPE(DOCUMENT_ROWS, DOCUMENT_TIME), 0, 11, TL_I64, NULL);
    const tl_count whole = rope_bytes(m, tokens, NULL), packed = rope_bytes(m, tokens, document_begins());
    expect_equal(packed.low - whole.low, 2 * c.n_layers * DOCUMENT_ROWS * DOCUMENT_TIME * 4);
    tl_module_free(m);
}

/* Two passes before their gradients, with different documents: a block that runs again has those of its own pass. */
static void checkpoints_remember_their_documents(void **state) {
    (void)state;
    static const tl_checkpoint_policy policies[] = {TL_CHECKPOINT_NONE, TL_CHECKPOINT_EVERY_K, TL_CHECKPOINT_FULL,
                                                    TL_CHECKPOINT_NOTHING, TL_CHECKPOINT_SELECTIVE};
    for (tl_family family = TL_GPT2; family <= TL_LLAMA; family++) {
        tl_model_config c = small(family);
        c.context = DOCUMENT_TIME;
        tl_module *m = tl_model_new(&c, TL_F32, NULL);
        tl_tensor *tokens = tl_integers(TL_SHAPE(DOCUMENT_ROWS, DOCUMENT_TIME), 0, 11, TL_I64, NULL), *plain[64];
        int n;
        const tl_named_tensor *list = tl_module_list(m, &n);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            tl_module_zero_grad(m, false);
            assert_true(tl_model_set_checkpointing(m, policies[p], 2));
            tl_tensor *packed = tl_model_document_loss(m, tokens, tokens, document_begins());
            tl_tensor *whole = tl_model_loss(m, tokens, tokens);
            assert_true(tl_backward(packed, NULL, 0) && tl_backward(whole, NULL, 0));
            for (int i = 0; i < n && p == 0; i++) plain[i] = tl_clone(tl_grad_of(list[i].tensor));
            for (int i = 0; i < n; i++) expect_same_bits(tl_grad_of(list[i].tensor), plain[i]);
        }
        tl_module_free(m);
    }
}

static void documents_of_another_shape_are_refused(void **state) {
    (void)state;
    tl_model_config c = small(TL_LLAMA), linear;
    tl_module *m = tl_model_new(&c, TL_F32, NULL);
    tl_tensor *tokens = tl_integers(TL_SHAPE(2, 6), 0, 11, TL_I64, NULL);
    expect_refused(tl_model_document_logits(m, tokens, tl_zeros(TL_SHAPE(2, 5), TL_I64, NULL)),
                   "need i32 or i64 of the same shape");
    expect_refused(tl_model_document_loss(m, tokens, tokens, tl_zeros(TL_SHAPE(2, 6), TL_F32, NULL)),
                   "need i32 or i64 of the same shape");
    expect_same_bits(tl_model_document_logits(m, tokens, NULL), tl_model_logits(m, tokens));
    tl_module_free(m);
    assert_true(tl_model_preset("deep-linear", &linear));
    m = tl_model_new(&linear, TL_F32, NULL);
    expect_refused(tl_model_document_logits(m, tokens, tokens), "has no next token");
    tl_module_free(m);
}

/* Of L layers: the first norm has nothing to add, every other one is one op with the sum before it. In backward, the
 * last one's sum has no other reader, and the sum that is split first is added separately. At the edges of
 * checkpoints sums are separate ops. */
static void residual_sums_are_one_op_with_the_norm_behind_them(void **state) {
    (void)state;
    static const struct {
        tl_family family;
        const char *norm, *norm_grad, *sum, *sum_grad;
    } rows[] = {{TL_GPT2, "layer_norm", "layer_norm_grad", "add_layer_norm", "add_layer_norm_grad"},
                {TL_LLAMA, "rms_norm", "rms_norm_grad", "add_rms_norm", "add_rms_norm_grad"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        tl_model_config c = small(rows[r].family);
        tl_module *m = tl_model_new(&c, TL_F32, NULL);
        tl_tensor *tokens = tl_integers(TL_SHAPE(2, 6), 0, 11, TL_I64, NULL);
        const uint64_t L = (uint64_t)c.n_layers,
                       others = rows[r].family == TL_GPT2 ? 1 + 4 * L : 0; /* places, biases */
        for (int full = 0; full < 2; full++) {
            assert_true(tl_model_set_checkpointing(m, full ? TL_CHECKPOINT_FULL : TL_CHECKPOINT_NONE, 0));
            tl_ledger *ledger = tl_ledger_begin("norms");
            assert_true(tl_backward(tl_model_loss(m, tokens, tokens), NULL, 0));
            tl_ledger_end(ledger);
            expect_equal(tl_ledger_total(ledger, TL_FORWARD, rows[r].norm).calls, full ? L + 1 : 1);
            expect_equal(tl_ledger_total(ledger, TL_FORWARD, rows[r].sum).calls, full ? L : 2 * L);
            expect_equal(tl_ledger_total(ledger, TL_FORWARD, "add").calls, others + (full ? L : 0));
            expect_equal(tl_ledger_total(ledger, TL_BACKWARD, rows[r].norm_grad).calls, full ? L + 1 : 2);
            expect_equal(tl_ledger_total(ledger, TL_BACKWARD, rows[r].sum_grad).calls, full ? L : 2 * L - 1);
            expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "add").calls, full ? L : 1);
            tl_ledger_free(ledger);
            tl_module_zero_grad(m, false);
        }
        tl_module_free(m);
    }
}

/* Attention writes dq, dk and dv side by side, as the packed product's gradient wants them. */
static void gradients_of_packed_heads_are_not_copied(void **state) {
    (void)state;
    tl_model_config c = small(TL_GPT2);
    tl_module *m = tl_model_new(&c, TL_F32, NULL);
    tl_tensor *tokens = tl_integers(TL_SHAPE(2, 6), 0, 11, TL_I64, NULL);
    tl_ledger *ledger = tl_ledger_begin("step");
    assert_true(tl_backward(tl_model_loss(m, tokens, tokens), NULL, 0));
    tl_ledger_end(ledger);
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "attention_grad").calls, (uint64_t)c.n_layers);
    expect_equal(tl_ledger_total(ledger, TL_ALL, "concat").calls, 0);
    expect_equal(tl_ledger_total(ledger, TL_ALL, "copy").calls, 0);
    tl_ledger_free(ledger);
    tl_module_free(m);
}

/* L C^2 + C weights; 2 B (L C^2 + C) FLOPs in matmuls forward, twice that backward, less the input's gradient. */
static void the_teaching_model_costs_what_can_be_computed_by_hand(void **state) {
    (void)state;
    tl_model_config c;
    assert_true(tl_model_preset("deep-linear", &c));
    c.n_layers = 3, c.channels = 5;
    tl_module *m = tl_model_new(&c, TL_F32, NULL);
    expect_equal(tl_module_parameters(m), 3 * 5 * 5 + 5);
    tl_tensor *x = tl_normal(TL_SHAPE(4, 5), 0, 1, TL_F32, NULL), *y = tl_zeros(TL_SHAPE(4), TL_F32, NULL);
    tl_ledger *ledger = tl_ledger_begin("step");
    assert_true(tl_backward(tl_model_loss(m, x, y), NULL, 0));
    tl_ledger_end(ledger);
    const uint64_t forward = 2 * 4 * (3 * 25 + 5), first_input = 2 * 4 * 25;
    expect_count(tl_ledger_total(ledger, TL_FORWARD, "matmul").flops, forward);
    expect_count(tl_ledger_total(ledger, TL_BACKWARD, "matmul").flops, 2 * forward - first_input);
    tl_ledger_free(ledger);
    tl_module_free(m);
}

static void configs_travel_through_files(void **state) {
    (void)state;
    for (int i = 0; tl_model_preset_name(i); i++) {
        tl_model_config c, back;
        assert_true(tl_model_preset(tl_model_preset_name(i), &c));
        assert_true(tl_model_config_write(&c, "/tmp/tally-test-config.json"));
        assert_true(tl_model_config_read("/tmp/tally-test-config.json", &back));
        expect_equal(back.family, c.family);
        expect_equal(tl_model_config_parameters(&back), tl_model_config_parameters(&c));
        expect_equal(back.context, c.context);
        expect_equal(back.is_tied, c.is_tied);
        expect_true(back.rope_base == c.rope_base || c.family != TL_LLAMA);
        expect_true(back.norm_eps == c.norm_eps && back.rope_scaling.factor == c.rope_scaling.factor);
        expect_equal(back.rope_scaling.original_context, c.rope_scaling.original_context);
    }
    remove("/tmp/tally-test-config.json");
}

static void refuse_config(const char *text, const char *part) {
    const char *path = "/tmp/tally-test-bad.json";
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    tl_model_config c;
    expect_refused(tl_model_config_read(path, &c), part);
    remove(path);
}

#define LLAMA \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":8,\"intermediate_size\":9,\"vocab_size\":5"
#define SPARSE                                                                                                      \
    "\"num_hidden_layers\":2,\"hidden_size\":8,\"intermediate_size\":9,\"vocab_size\":5,\"num_attention_heads\":2," \
    "\"num_key_value_heads\":1"
#define MIXTRAL "\"model_type\":\"mixtral\"," SPARSE
#define QWEN3_MOE "\"model_type\":\"qwen3_moe\"," SPARSE
static void wrong_configs_are_refused_by_key(void **state) {
    (void)state;
    refuse_config("", "1:0: ");
    refuse_config("[]", "is a JSON object");
    refuse_config("{\"a\":1,\"a\":2}", "duplicate");
    refuse_config("{}", "\"model_type\" is \"?\"");
    refuse_config("{\"model_type\":\"mamba\"}", "\"model_type\" is \"mamba\"");
    refuse_config("{\"model_type\":7}", "\"model_type\" is \"?\"");
    refuse_config("{" LLAMA "}", "\"num_attention_heads\" is not a whole number");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2.5}", "\"num_attention_heads\" is not a whole number");
    refuse_config("{" LLAMA ",\"num_attention_heads\":-1}", "\"num_attention_heads\" is not a whole number");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"num_key_value_heads\":3}", "cannot share 3 heads");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"head_dim\":3}", "a head size of 3 is odd");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"hidden_act\":\"gelu\"}", "\"hidden_act\" is \"gelu\"");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"tie_word_embeddings\":1}", "is not true or false");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"rms_norm_eps\":\"x\"}", "\"rms_norm_eps\" is not a number");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"rope_scaling\":{\"rope_type\":\"ntk\"}}", "of type \"ntk\"");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"rope_scaling\":{\"rope_type\":\"longrope\"}}",
                  "\"short_factor\" is not a list");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"mlp_bias\":1}", "\"mlp_bias\" is not true or false");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"num_local_experts\":8}",
                  "\"num_local_experts\" is not a key");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"kv_lora_rank\":8}", "\"kv_lora_rank\" is not a key");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"sliding_window\":8}", "\"sliding_window\" is not a key");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"layer_types\":[\"sliding_attention\"]}",
                  "\"layer_types\" is not");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"rope_scaling\":{\"type\":\"linear\",\"beta_fast\":2}}",
                  "\"beta_fast\" in \"rope_scaling\" is not a key of \"linear\"");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"is_encoder_decoder\":true}", "\"is_encoder_decoder\" is not");
    refuse_config("{" LLAMA ",\"num_attention_heads\":2,\"pruned_heads\":{\"1\":[0]}}",
                  "\"pruned_heads\" is not empty");
    refuse_config("{\"model_type\":\"jamba\"}", "state-space or recurrent layers");
    refuse_config("{\"model_type\":\"dbrx\"}", "a mixture of experts of a kind that is not here");
#define FALCON \
    "\"model_type\":\"falcon\",\"num_hidden_layers\":2,\"hidden_size\":8,\"num_attention_heads\":4,\"vocab_size\":5"
    refuse_config("{" FALCON ",\"new_decoder_architecture\":true,\"parallel_attn\":false}",
                  "\"parallel_attn\" is not true");
    refuse_config("{" FALCON ",\"num_ln_in_parallel_attn\":2}", "\"num_ln_in_parallel_attn\"");
    refuse_config("{" FALCON ",\"multi_query\":false,\"num_kv_heads\":2}", "\"num_kv_heads\"");
    refuse_config("{" FALCON ",\"kv_lora_rank\":2}", "\"kv_lora_rank\" is not a key");
#define DEEPSEEK                                                                                                    \
    "\"num_hidden_layers\":2,\"hidden_size\":8,\"intermediate_size\":9,\"vocab_size\":5,\"num_attention_heads\":2," \
    "\"num_experts_per_tok\":2"
    refuse_config("{\"model_type\":\"deepseek_v2\"," DEEPSEEK ",\"topk_method\":\"noaux_tc\"}", "\"topk_method\" is");
    refuse_config("{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"head_dim\":128}", "\"head_dim\" is not");
    refuse_config("{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"n_group\":7}", "groups of");
    refuse_config("{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"rope_interleave\":false}",
                  "\"rope_interleave\" is not true");
    refuse_config("{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"quantization_config\":{\"quant_method\":\"fp8\"}}",
                  "\"quantization_config\" is not a key");
    refuse_config("{\"model_type\":\"llama4_text\",\"num_hidden_layers\":2,\"no_rope_layers\":[0,1]}",
                  "\"no_rope_layers\"");
    refuse_config("{\"model_type\":\"llama4_text\",\"num_hidden_layers\":4,\"moe_layers\":[0,3]}", "\"moe_layers\"");
    refuse_config("{\"model_type\":\"llama4_text\",\"num_hidden_layers\":2,"
                  "\"layer_types\":[\"full_attention\",\"chunked_attention\"]}",
                  "\"layer_types\"");
    refuse_config("{" MIXTRAL ",\"num_experts_per_tok\":9}", "takes 9 of 8 experts");
    refuse_config("{" MIXTRAL ",\"num_local_experts\":1025}", "takes 2 of 1025 experts (need 1 to 1024");
    refuse_config("{" MIXTRAL ",\"router_jitter_noise\":0.1}", "\"router_jitter_noise\" is not 0");
    refuse_config("{" MIXTRAL ",\"n_shared_experts\":1}", "\"n_shared_experts\" is not a key");
    refuse_config("{" QWEN3_MOE ",\"mlp_only_layers\":[0]}", "\"mlp_only_layers\" is not an empty list");
    refuse_config("{" QWEN3_MOE ",\"mlp_only_layers\":1}", "\"mlp_only_layers\" is not an empty list");
    refuse_config("{" QWEN3_MOE ",\"decoder_sparse_step\":2}", "\"decoder_sparse_step\" is not 1");
    refuse_config("{" LLAMA ",\"num_attention_heads\":9223372036854775807}", "is not a whole number from 1 to 2^40");
    refuse_config(
        "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":9223372036854775807,\"vocab_size\":5}",
        "\"n_embd\" is not a whole number from 1 to 2^40"); /* four times as much is the width within */
    refuse_config("{" LLAMA ",\"num_attention_heads\":1099511627776,\"head_dim\":1099511627776}", "are too wide");
    expect_refused(tl_model_config_parameters(&(tl_model_config){.n_heads = 1, .head_size = INT64_MAX, .ff = 1}) >= 0,
                   "wider than 2^40");
    tl_model_config c;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    expect_true(!tl_model_config_read("/nonexistent/config.json", &c));
    expect_error(TL_ERROR_IO, "/nonexistent/config.json");
    tl_set_error_policy(policy);
}

/* A module is made whole or not at all, whichever allocation fails; every one of the first 16 and ever fewer of the
 * others if `is_sparse`. */
static void survives_every_failing_allocation(tl_module *make(void), bool is_sparse) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    tl_module *m = NULL;
    uint64_t live = tl_device_memory(check_cpu()).live_bytes;
    for (uint64_t n = 1; !m; n += is_sparse ? 1 + n / 16 : 1) {
        tl_fail_allocation(n, false);
        m = make();
        tl_fail_allocation(0, false);
        expect_equal(m ? TL_OK : TL_ERROR_MEMORY, tl_error());
        tl_error_clear();
        if (!m) expect_equal(tl_device_memory(check_cpu()).live_bytes, live);
    }
    tl_set_error_policy(policy);
    tl_module_free(m);
}

static tl_module *model_make(void) {
    tl_model_config c = small(TL_GPT2);
    return tl_model_new(&c, TL_F32, NULL);
}
static tl_module *experts_model_make(void) {
    tl_model_config c = small(TL_LLAMA);
    c.family = TL_OLMOE, c.n_experts = 3, c.n_chosen = 2;
    return tl_model_new(&c, TL_F32, NULL);
}
static void making_a_model_survives_every_failing_allocation(void **state) {
    (void)state;
    survives_every_failing_allocation(model_make, true);
    survives_every_failing_allocation(experts_model_make, true);
}

/* tests/python/test_einops_layers_c.py compares more of them with the package. */
static void patterns_are_modules(void **state) {
    (void)state;
    tl_module *m = tl_nn_sequential();
    assert_non_null(tl_module_add(m, "0", tl_nn_rearrange("b (t p) c -> b t (p c)", "p=2")));
    assert_non_null(
        tl_module_add(m, "1", tl_nn_einmix("b t (g c) -> b (g d) t", "g c d", "g d", "g=2 c=3 d=5", TL_F32, NULL)));
    assert_non_null(tl_module_add(m, "2", tl_nn_reduce("b d t -> b d", "max", NULL)));
    tl_tensor *y = tl_module_forward(m, tl_ones(TL_SHAPE(4, 8, 3), TL_F32, NULL));
    expect_shape(y, 4, 10);
    expect_equal(tl_module_parameters(m), 2 * 3 * 5 + 2 * 5);
    tl_tensor *bias = tl_module_find_tensor(m, "1.bias"); /* (1,g,d,1) */
    expect_shape(bias, 1, 2, 5, 1);
    tl_module_free(m);
    expect_refused(tl_nn_einmix("b c -> b d", "c d", NULL, "c=3", TL_F32, NULL), "needs a length");
    expect_refused(tl_nn_rearrange("b c -> b", NULL), "on the left side only");
    expect_refused(tl_nn_reduce("b c -> b", "middle", NULL), "no reduction");
}

static tl_module *einmix_make(void) {
    return tl_nn_einmix("b t (g c) -> b t (g d)", "g c d", "d", "g=2 c=3 d=5", TL_F32, NULL);
}
static void making_an_einmix_survives_every_failing_allocation(void **state) {
    (void)state;
    survives_every_failing_allocation(einmix_make, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(parameters_are_listed_by_path_in_order),
        TEST(forward_bills_the_modules_path),
        TEST(the_tree_prints_as_pytorchs),
        TEST(wrong_names_and_trees_are_refused),
        TEST(a_tied_parameter_is_one_tensor_for_good),
        TEST(frozen_parameters_and_evaluation_mode),
        TEST(models_drop_in_training_alone),
        TEST(the_scale_of_results_does_not_depend_on_the_width),
        TEST(initialisers_have_the_deviation_they_promise),
        TEST(kinds_can_be_added_from_outside),
        TEST(presets_hold_the_published_numbers),
        TEST(the_formula_counts_what_the_tree_holds),
        TEST(the_loss_is_that_of_the_logits),
        TEST(checkpointing_leaves_every_bit_of_the_gradients),
        TEST(packed_documents_are_as_if_alone),
        TEST(rotary_positions_start_again_in_each_document),
        TEST(checkpoints_remember_their_documents),
        TEST(documents_of_another_shape_are_refused),
        TEST(residual_sums_are_one_op_with_the_norm_behind_them),
        TEST(gradients_of_packed_heads_are_not_copied),
        TEST(the_teaching_model_costs_what_can_be_computed_by_hand),
        TEST(configs_travel_through_files),
        TEST(wrong_configs_are_refused_by_key),
        TEST(making_a_model_survives_every_failing_allocation),
        TEST(patterns_are_modules),
        TEST(making_an_einmix_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests_name("module", tests, NULL, NULL);
}
