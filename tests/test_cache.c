/* The cache of keys and values: the same logits as without it, however the tokens are split, and the bytes that meta
 * predicts. */
#include "nn/kv_cache.h"
#include "nn/model.h"
#include "support/check.h"

#include <math.h>
#include <string.h>

enum { V = 50, CONTEXT = 24 };

/* What a family has beyond the sizes of all. */
static void config_fill(tl_model_config *c, tl_family family) {
    c->family = family;
    if (family == TL_GPT_OSS) {
        c->has_qkv_bias = c->has_out_bias = c->is_choice_normed = true;
        c->window = 4, c->window_every = 2, c->n_experts = 4, c->n_chosen = 2, c->gate_limit = 1;
    }
    if (family == TL_GEMMA2) c->window = 4, c->window_every = 2, c->attention_soft_cap = 2, c->logit_soft_cap = 3;
    if (family == TL_FALCON) c->positions = TL_POSITIONS_ALIBI, c->n_kv_heads = 1;
    if (family == TL_LLAMA4) {
        c->plain_every = 2, c->n_experts = 4, c->n_chosen = 1, c->n_shared = 1, c->expert_every = 2, c->chunk = 4;
        c->temperature_floor = 3, c->temperature_scale = 0.5, c->has_head_norm = true;
    }
    if (family == TL_DEEPSEEK_V2 || family == TL_DEEPSEEK_V3) {
        c->n_kv_heads = 4, c->kv_rank = 12, c->rope_head = 4, c->value_head = 6, c->n_experts = 8, c->n_chosen = 3;
        c->expert_ff = 16, c->n_shared = 2, c->expert_from = 1, c->n_groups = 4, c->n_groups_chosen = 2;
        c->q_rank = family == TL_DEEPSEEK_V3 ? 10 : 0, c->score_yarn = 1;
    }
}

/* Grouped heads with rotary positions; learned positions with a bias everywhere; windows, sinks and experts; and what
 * else changes what a query sees or a cache holds. */
static tl_module *model_make(tl_family family, tl_dtype dtype, tl_device *device) {
    tl_model_config c;
    assert_true(tl_model_preset(family == TL_GPT2 ? "tiny-gpt2" : "tiny", &c));
    c.n_layers = 3, c.n_heads = 4, c.n_kv_heads = family == TL_GPT2 ? 4 : 2, c.channels = 32, c.head_size = 8,
    c.ff = 48;
    c.vocabulary = V, c.context = CONTEXT, c.init_std = 0.3; /* large, so that attention is not even */
    config_fill(&c, family);
    tl_seed(5);
    tl_module *model = tl_model_new(&c, dtype, device);
    assert_non_null(model);
    return model;
}

static tl_tensor *tokens_make(int64_t B, int64_t T) {
    tl_seed(9);
    return tl_integers(TL_SHAPE(B, T), 0, V, TL_I64, NULL);
}

static double largest_difference(tl_tensor *a, tl_tensor *b) {
    tl_tensor *d = tl_abs(tl_sub(tl_cast(a, TL_F64), tl_cast(b, TL_F64)));
    return tl_item(tl_max(d, NULL, 0, false));
}

/* The text goes in as pieces of these sizes; after each, its logits must be those of the whole text at these places. */
static void expect_same(tl_family family, tl_dtype dtype, int64_t B, const int64_t *pieces, int n, double bound) {
    int64_t T = 0, at = 0;
    for (int i = 0; i < n; i++) T += pieces[i];
    tl_module *model = model_make(family, dtype, NULL);
    tl_module_train(model, false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = tokens_make(B, T), *whole = tl_model_logits(model, tokens);
    double size = tl_item(tl_max(tl_abs(tl_cast(whole, TL_F64)), NULL, 0, false));
    tl_cache *cache = tl_cache_new(model, B, T);
    for (int i = 0; i < n; i++) {
        tl_tensor *piece = tl_slice(tokens, 1, at, at + pieces[i], 1),
                  *want = tl_slice(whole, 1, at, at + pieces[i], 1);
        double d = largest_difference(tl_model_extend(model, piece, cache), want);
        at += pieces[i];
        expect_equal(tl_cache_length(cache), at);
        if (!(d <= bound * size))
            fail_msg("%s %s, B %lld, piece %d: logits differ by %g of %g", tl_family_name(family), tl_dtype_name(dtype),
                     (long long)B, i, d, size);
    }
    tl_cache_free(cache);
    tl_scope_end(scope);
    tl_module_free(model);
}

/* Tokens one by one, with their places in device memory; row b is b tokens behind row 0, and waits at its first. */
static void expect_same_at_places(tl_family family, int64_t B) {
    enum { T = 12 };
    tl_module *model = model_make(family, TL_F64, NULL);
    tl_module_train(model, false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = tokens_make(B, T), *whole = tl_model_logits(model, tokens);
    tl_cache *cache = tl_cache_new(model, B, CONTEXT);
    const bool has_none = family == TL_FALCON || family == TL_DEEPSEEK_V2 || family == TL_DEEPSEEK_V3;
    expect_true(cache_takes_places(model) != has_none);
    for (int64_t t = 0; !has_none && t < T; t++) {
        int64_t places[4];
        for (int64_t b = 0; b < B; b++) places[b] = t < b ? 0 : t - b;
        const struct cache_span span = {.n = B, .length = T + 1};
        const struct cache_view view = {&span, 1, B, .place = tl_from_data(places, TL_SHAPE(B, 1), TL_I64, NULL),
                                        .n_keys = T + 2};
        tl_tensor *logits = model_next_of(model, tl_gather(tokens, 1, view.place), cache, &view);
        assert_non_null(logits);
        for (int64_t b = 0; b < B; b++) {
            double d = largest_difference(tl_select(logits, 0, b), tl_select(tl_select(whole, 0, b), 0, places[b]));
            if (!(d <= 1e-12))
                fail_msg("%s, row %lld, token %lld: %g", tl_family_name(family), (long long)b, (long long)places[b], d);
        }
    }
    tl_cache_free(cache);
    tl_scope_end(scope);
    tl_module_free(model);
}

static void cached_logits_are_the_same_however_the_tokens_come(void **state) {
    (void)state;
    static const int64_t one_by_one[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, prompt[] = {7, 1, 1, 1, 1},
                         at_once[] = {12}, in_parts[] = {5, 3, 1, 6, 1};
    static const tl_family families[] = {TL_GPT2,   TL_LLAMA,       TL_GPT_OSS,     TL_GEMMA2,
                                         TL_FALCON, TL_DEEPSEEK_V2, TL_DEEPSEEK_V3, TL_LLAMA4};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int64_t B = 1; B <= 3; B += 2) {
            tl_family family = families[f];
            /* f64 tells a wrong position or mask from rounding; f32 is what runs */
            expect_same(family, TL_F64, B, one_by_one, 12, 1e-13);
            expect_same(family, TL_F64, B, prompt, 5, 1e-13);
            expect_same(family, TL_F64, B, at_once, 1, 1e-13);
            expect_same(family, TL_F64, B, in_parts, 5, 1e-13);
            expect_same_at_places(family, B);
            if (f > 1) continue; /* rounding may change a choice of experts */
            const double rounding = check_library_multiplies() ? 1e-5 : 2e-6;
            expect_same(family, TL_F32, B, prompt, 5, rounding);
            expect_same(family, TL_F32, B, in_parts, 5, rounding);
            expect_same(family, TL_BF16, B, in_parts, 5, 0.05);
        }
}

static void the_next_token_is_the_last_of_the_logits(void **state) {
    (void)state;
    tl_module *model = model_make(TL_LLAMA, TL_F64, NULL);
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = tokens_make(2, 9), *want = tl_select(tl_model_logits(model, tokens), 1, -1);
    tl_cache *cache = tl_cache_new(model, 2, 9);
    expect_near(largest_difference(tl_model_next(model, tokens, NULL), want), 0, 1e-12);
    expect_near(largest_difference(tl_model_next(model, tokens, cache), want), 0, 1e-12);
    /* cut back, the same tokens give the same again */
    assert_true(tl_cache_cut(cache, 4));
    expect_near(largest_difference(tl_model_next(model, tl_slice(tokens, 1, 4, 9, 1), cache), want), 0, 1e-12);
    tl_cache_free(cache);
    tl_scope_end(scope);
    tl_module_free(model);
}

/* L x 2 x B x capacity x Hkv x D numbers, and nothing more per token but what a pass of one token holds. */
static void the_cache_is_in_the_ledger_and_meta_prices_it(void **state) {
    (void)state;
    uint64_t peak[2] = {0}, held[2] = {0};
    tl_count flops[2];
    for (int i = 0; i < 2; i++) {
        tl_device *device = tl_device_find(i ? "meta" : "cpu");
        tl_module *model = model_make(TL_LLAMA, TL_F32, device);
        tl_ledger *ledger = tl_ledger_begin("decode");
        tl_scope scope = tl_scope_begin();
        uint64_t before = tl_device_memory(device).live_bytes;
        tl_cache *cache = tl_cache_new(model, 2, 20);
        held[i] = tl_device_memory(device).live_bytes - before;
        tl_tensor *tokens = tl_zeros(TL_SHAPE(2, 20), TL_I64, device);
        assert_non_null(tl_model_next(model, tl_slice(tokens, 1, 0, 15, 1), cache));
        for (int64_t t = 15; t < 20; t++)
            assert_non_null(tl_model_next(model, tl_slice(tokens, 1, t, t + 1, 1), cache));
        tl_cache_free(cache);
        tl_scope_end(scope);
        assert_true(tl_ledger_end(ledger));
        peak[i] = tl_ledger_peak(ledger, device, TL_ALL);
        flops[i] = tl_ledger_total(ledger, TL_ALL, NULL).flops;
        expect_true(tl_ledger_peak(ledger, device, TL_ACTIVATION) >= held[i]);
        tl_ledger_free(ledger);
        tl_module_free(model);
    }
    expect_equal(held[0], 3 * 2 * 2 * 20 * 2 * 8 * 4);
    expect_equal(held[0], held[1]);
    expect_equal(peak[0], peak[1]);
    expect_equal(flops[0].low, flops[1].low);
}

/* One more token after n of them: attention on n + 1 keys, and everything else as for one token alone. */
static void one_more_token_costs_one_pass_over_the_cache(void **state) {
    (void)state;
    tl_device *device = tl_device_find("meta");
    tl_module *model = model_make(TL_GPT2, TL_F32, device);
    uint64_t flops[2];
    for (int i = 0; i < 2; i++) {
        int64_t n = i ? 20 : 10;
        tl_scope scope = tl_scope_begin();
        tl_cache *cache = tl_cache_new(model, 1, 24);
        tl_tensor *tokens = tl_zeros(TL_SHAPE(1, 24), TL_I64, device);
        assert_non_null(tl_model_next(model, tl_slice(tokens, 1, 0, n, 1), cache));
        tl_ledger *ledger = tl_ledger_begin("token");
        assert_non_null(tl_model_next(model, tl_slice(tokens, 1, n, n + 1, 1), cache));
        assert_true(tl_ledger_end(ledger));
        flops[i] = tl_ledger_total(ledger, TL_ALL, NULL).flops.low;
        tl_ledger_free(ledger);
        tl_cache_free(cache);
        tl_scope_end(scope);
    }
    expect_equal(flops[1] - flops[0], 10 * 3 * 4 * 4 * 8); /* 10 keys more: L x 4 H D each */
    tl_module_free(model);
}

static void wrong_use_is_refused_and_changes_nothing(void **state) {
    (void)state;
    tl_module *model = model_make(TL_LLAMA, TL_F32, NULL), *other = model_make(TL_LLAMA, TL_F32, NULL);
    tl_scope scope = tl_scope_begin();
    tl_cache *cache = tl_cache_new(model, 2, 10);
    tl_tensor *tokens = tokens_make(2, 8);
    expect_refused(tl_cache_new(model, 2, CONTEXT + 1), "1 to 24 tokens, the model's context");
    expect_refused(tl_cache_new(model, 0, 5), "need at least one row");
    expect_refused(tl_model_next(other, tokens, cache), "made for another model");
    expect_refused(tl_model_next(model, tokens_make(1, 3), cache), "need (2,T), the rows of the cache");
    assert_non_null(tl_model_next(model, tokens, cache));
    expect_refused(tl_model_next(model, tokens, cache), "8 tokens after the 8 in the cache exceed its capacity of 10");
    expect_refused(tl_model_extend(model, tokens, NULL), "instead of a cache");
    expect_refused(tl_cache_cut(cache, 9), "9 tokens of a cache that has 8");
    expect_equal(tl_cache_length(cache), 8);
    tl_cache_free(cache);
    tl_scope_end(scope);
    tl_module_free(model);
    tl_module_free(other);
}

/* ---- Generation ---- */

static void generate(tl_module *model, int64_t B, int64_t n_prompt, int64_t N, tl_generate_options o, int64_t *ids) {
    for (int64_t i = 0; i < B * N; i++) ids[i] = (i * 7 + 3) % V;
    tl_scope scope = tl_scope_begin();
    tl_tensor *text = tl_from_data(ids, TL_SHAPE(B, N), TL_I64, NULL);
    tl_seed(77);
    assert_true(tl_generate(model, text, n_prompt, &o));
    assert_true(tl_to_data(text, ids, (size_t)(B * N) * sizeof *ids));
    tl_scope_end(scope);
}

/* Without a cache: the argmax of a pass over the whole text, token by token. */
static void the_likeliest_tokens_are_those_of_the_whole_text(void **state) {
    (void)state;
    for (int f = 0; f < 2; f++) {
        tl_module *model = model_make(f ? TL_LLAMA : TL_GPT2, TL_F64, NULL);
        int64_t ids[2 * 20], *row = ids;
        generate(model, 2, 5, 20, (tl_generate_options){.temperature = 0, .top_p = 1}, ids);
        for (int64_t n = 5; n < 20; n++) {
            tl_scope scope = tl_scope_begin();
            tl_tensor *all = tl_from_data(row, TL_SHAPE(2, 20), TL_I64, NULL), *seen = tl_slice(all, 1, 0, n, 1);
            tl_tensor *want = tl_argmax(tl_select(tl_model_logits(model, seen), 1, -1), (int[]){1}, 1, false);
            for (int64_t b = 0; b < 2; b++) expect_equal(ids[b * 20 + n], (int64_t)tl_at(want, &b));
            tl_scope_end(scope);
        }
        tl_module_free(model);
    }
}

static void a_text_may_be_longer_than_the_context(void **state) {
    (void)state;
    tl_module *model = model_make(TL_GPT2, TL_F32, NULL);
    int64_t a[CONTEXT * 4], b[CONTEXT * 4];
    tl_generate_options o = {.temperature = 1, .top_p = 1};
    generate(model, 1, 1, CONTEXT * 4, o, a);
    generate(model, 1, 1, CONTEXT * 4, o, b);
    assert_memory_equal(a, b, sizeof a);                /* the same seed, the same text */
    generate(model, 1, CONTEXT * 3, CONTEXT * 4, o, b); /* a prompt that is longer than the context */
    for (int i = 0; i < CONTEXT * 4; i++) expect_true(b[i] >= 0 && b[i] < V);
    /* after the cache is full, the text continues from its last three quarters */
    o.temperature = 0;
    generate(model, 1, CONTEXT + 1, CONTEXT + 2, o, b);
    tl_scope scope = tl_scope_begin();
    tl_tensor *seen = tl_from_data(b + CONTEXT + 1 - CONTEXT * 3 / 4, TL_SHAPE(1, CONTEXT * 3 / 4), TL_I64, NULL);
    expect_equal(b[CONTEXT + 1], tl_item_int(tl_argmax(tl_model_next(model, seen, NULL), (int[]){1}, 1, false)));
    tl_scope_end(scope);
    tl_module_free(model);
}

/* Logits are log of these shares: nucleus and k cut where they say. */
static void top_k_and_top_p_cut_the_tail(void **state) {
    (void)state;
    tl_module *model = model_make(TL_LLAMA, TL_F32, NULL);
    int64_t ids[400];
    static const struct {
        int64_t top_k;
        double top_p;
    } cases[] = {{1, 1}, {3, 1}, {0, 0.5}, {0, 1e-9}, {5, 0.6}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        generate(model, 100, 3, 4,
                 (tl_generate_options){.temperature = 1, .top_k = cases[c].top_k, .top_p = cases[c].top_p}, ids);
        tl_scope scope = tl_scope_begin();
        for (int64_t b = 0; b < 100; b++) {
            float p[V];
            tl_tensor *logits = tl_model_next(model, tl_from_data(ids + b * 4, TL_SHAPE(1, 3), TL_I64, NULL), NULL);
            assert_true(tl_to_data(tl_softmax(logits, -1), p, sizeof p));
            int64_t n_larger = 0, drawn = ids[b * 4 + 3];
            double before = 0, among = 0;
            for (int v = 0; v < V; v++)
                if (p[v] > p[drawn]) n_larger++, before += (double)p[v];
            if (cases[c].top_k) expect_true(n_larger < cases[c].top_k);
            for (int v = 0; v < V; v++) { /* the share of the k likeliest, of which top_p is taken */
                int64_t rank = 0;
                for (int w = 0; w < V; w++) rank += p[w] > p[v];
                if (!cases[c].top_k || rank < cases[c].top_k) among += (double)p[v];
            }
            if (cases[c].top_p < 1) expect_true(n_larger == 0 || before / among < cases[c].top_p + 1e-5);
        }
        tl_scope_end(scope);
    }
    tl_module_free(model);
}

static void min_p_cuts_unlikely_tokens(void **state) {
    (void)state;
    tl_module *model = model_make(TL_LLAMA, TL_F32, NULL);
    int64_t ids[400];
    static const int64_t ks[] = {0, V - 1}; /* with and without the sorted way */
    for (int c = 0; c < 2; c++) {
        tl_generate_options o = {.temperature = 1, .top_k = ks[c], .top_p = 1, .min_p = 0.95};
        generate(model, 100, 3, 4, o, ids);
        tl_scope scope = tl_scope_begin();
        for (int64_t b = 0; b < 100; b++) {
            float p[V], most = 0;
            tl_tensor *logits = tl_model_next(model, tl_from_data(ids + b * 4, TL_SHAPE(1, 3), TL_I64, NULL), NULL);
            assert_true(tl_to_data(tl_softmax(logits, -1), p, sizeof p));
            for (int v = 0; v < V; v++) most = p[v] > most ? p[v] : most;
            expect_true((double)p[ids[b * 4 + 3]] >= 0.95 * (double)most * (1 - 1e-6));
        }
        tl_scope_end(scope);
    }
    tl_module_free(model);
}

/* As transformers has it: positive logits of tokens seen are divided, negative ones multiplied. */
static void repeated_tokens_are_penalized(void **state) {
    (void)state;
    enum { N = 12 };
    tl_module *model = model_make(TL_LLAMA, TL_F32, NULL);
    int64_t ids[N], plain[N];
    generate(model, 1, 3, N, (tl_generate_options){.temperature = 0, .top_p = 1}, plain);
    generate(model, 1, 3, N, (tl_generate_options){.temperature = 0, .top_p = 1, .repetition_penalty = 3}, ids);
    assert_memory_not_equal(ids, plain, sizeof ids);
    for (int64_t n = 3; n < N; n++) {
        float x[V];
        bool is_seen[V] = {false};
        int64_t best = 0;
        tl_scope scope = tl_scope_begin();
        tl_tensor *seen = tl_from_data(ids, TL_SHAPE(1, n), TL_I64, NULL);
        assert_true(tl_to_data(tl_model_next(model, seen, NULL), x, sizeof x));
        tl_scope_end(scope);
        for (int64_t i = 0; i < n; i++) is_seen[ids[i]] = true;
        for (int v = 0; v < V; v++) {
            if (is_seen[v]) x[v] = x[v] < 0 ? x[v] * 3 : x[v] / 3;
            if (x[v] > x[best]) best = v;
        }
        expect_equal(ids[n], best);
    }
    tl_module_free(model);
}

/* What rows draw does not depend on which of them have ended. */
static void rows_end_on_their_own_and_are_filled_up(void **state) {
    (void)state;
    tl_module *model = model_make(TL_LLAMA, TL_F32, NULL);
    enum { B = 3, N = 40, PROMPT = 4 };
    int64_t whole[B * N], ids[B * N];
    generate(model, B, PROMPT, N, (tl_generate_options){.temperature = 1, .top_p = 1}, whole);
    for (int n_ends = 1; n_ends <= 3; n_ends++) {
        const int64_t ends[3] = {whole[PROMPT + 6], whole[N + PROMPT + 2], whole[2 * N + PROMPT + 9]};
        generate(model, B, PROMPT, N,
                 (tl_generate_options){.temperature = 1, .top_p = 1, .ends = ends, .n_ends = n_ends}, ids);
        for (int64_t b = 0, end = -1; b < B; b++, end = -1)
            for (int64_t n = 0; n < N; n++) {
                expect_equal(ids[b * N + n], end >= 0 ? end : whole[b * N + n]);
                for (int k = 0; k < n_ends && n >= PROMPT && end < 0; k++)
                    if (ids[b * N + n] == ends[k]) end = ends[k];
            }
    }
    tl_module_free(model);
}

static void wrong_requests_are_refused(void **state) {
    (void)state;
    tl_module *model = model_make(TL_LLAMA, TL_F32, NULL);
    tl_scope scope = tl_scope_begin();
    tl_tensor *text = tokens_make(1, 8);
    expect_refused(tl_generate(model, text, 0, NULL), "a prompt of 0 tokens");
    expect_refused(tl_generate(model, text, 9, NULL), "in a text of 8");
    expect_refused(tl_generate(model, tl_cast(text, TL_I32), 1, NULL), "is not (B,N) of i64");
    expect_refused(tl_generate(model, text, 1, &(tl_generate_options){.temperature = 1}), "above 0 to 1");
    expect_refused(tl_generate(model, text, 1, &(tl_generate_options){.temperature = -1, .top_p = 1}),
                   "temperature -1");
    expect_refused(tl_generate(model, text, 1, &(tl_generate_options){.top_p = 1, .min_p = 1}), "min_p 1");
    expect_refused(tl_generate(model, text, 1, &(tl_generate_options){.top_p = 1, .repetition_penalty = -1}),
                   "repetition_penalty -1");
    expect_refused(tl_generate(model, text, 1, &(tl_generate_options){.top_p = 1, .n_ends = 2}), "2 ends at");
    tl_scope_end(scope);
    tl_module_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(cached_logits_are_the_same_however_the_tokens_come),
        TEST(the_next_token_is_the_last_of_the_logits),
        TEST(the_cache_is_in_the_ledger_and_meta_prices_it),
        TEST(one_more_token_costs_one_pass_over_the_cache),
        TEST(wrong_use_is_refused_and_changes_nothing),
        TEST(the_likeliest_tokens_are_those_of_the_whole_text),
        TEST(a_text_may_be_longer_than_the_context),
        TEST(top_k_and_top_p_cut_the_tail),
        TEST(min_p_cuts_unlikely_tokens),
        TEST(repeated_tokens_are_penalized),
        TEST(rows_end_on_their_own_and_are_filled_up),
        TEST(wrong_requests_are_refused),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
