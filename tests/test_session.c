/* Texts that grow together: each is the same alone, with a cache and without, whatever it is drawn with. */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include "nn/kv_cache.h"
#include "step/generate.h"

enum { V = 50, CONTEXT = 24, MOST = 64 };

/* Tied and untied heads, grouped heads, biases, scaled rotary positions: everything that config.json can say. */
enum { GPT2, GPT2_UNTIED, LLAMA, LLAMA3, LINEAR_ROPE, QWEN2, N_KINDS };
static const char *const kinds[N_KINDS] = {"gpt2", "gpt2, untied", "llama", "llama 3's rope", "linear rope", "qwen2"};

static tl_module *model_make(int kind, tl_dtype dtype) {
    tl_model_config c;
    bool is_gpt2 = kind <= GPT2_UNTIED;
    assert_true(tl_model_preset(is_gpt2 ? "tiny-gpt2" : "tiny", &c));
    c.n_layers = 2, c.n_heads = 4, c.n_kv_heads = is_gpt2 ? 4 : 2, c.channels = 32, c.head_size = 8, c.ff = 48;
    c.vocabulary = V, c.context = CONTEXT, c.init_std = 0.3; /* large, so that attention is not even */
    c.is_tied = kind == GPT2 || kind == QWEN2;
    c.has_qkv_bias = kind == QWEN2;
    if (kind == LLAMA3)
        c.rope_scaling = (tl_rope_scaling){.factor = 4, .low_frequency = 1, .high_frequency = 4, .original_context = 8};
    if (kind == LINEAR_ROPE) c.rope_scaling = (tl_rope_scaling){.factor = 3};
    tl_seed(5);
    tl_module *model = tl_model_new(&c, dtype, NULL);
    assert_non_null(model);
    tl_module_train(model, false);
    return model;
}

/* Every way to draw a token. */
static const tl_generate_options draws[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 0, .top_p = 1, .repetition_penalty = 1.5},
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.7, .top_k = 5, .top_p = 1},
    {.temperature = 1.3, .top_p = 0.8},
    {.temperature = 1, .top_p = 1, .min_p = 0.1},
    {.temperature = 0.9, .top_k = 20, .top_p = 0.9, .min_p = 0.02, .repetition_penalty = 1.2},
};
enum { N_DRAWS = sizeof draws / sizeof *draws };

/* Prompts of all lengths, up to more than the context. */
static int64_t prompt_of(int64_t i, int64_t *ids) {
    static const int64_t lengths[8] = {5, 1, 11, 5, CONTEXT - 1, 2, CONTEXT + 7, CONTEXT};
    int64_t n = lengths[i % 8];
    for (int64_t k = 0; k < n; k++) ids[k] = (k * 7 + i * 13 + 3) % V;
    return n;
}

static bool has_places; /* in device memory, as on a GPU */

/* Texts first .. first + n - 1 with `more` tokens each, `rows` at a time, into texts[i]. */
static void generate(tl_module *model, int64_t first, int64_t n, int64_t rows, int64_t more, int64_t texts[][MOST]) {
    tl_session *s = tl_session_new(model, rows, CONTEXT);
    session_repeat(s, has_places);
    int64_t text_of[8], length[8] = {0}, begun = 0, done = 0, tokens[8];
    for (int64_t r = 0; r < 8; r++) text_of[r] = -1;
    while (done < n) {
        for (int64_t r = 0; r < rows && begun < n; r++) {
            if (text_of[r] >= 0) continue;
            int64_t i = first + begun, n_prompt = prompt_of(i, texts[i]);
            expect_equal(tl_session_open(s, texts[i], n_prompt, &draws[i % N_DRAWS], (uint64_t)(100 + i)), r);
            text_of[r] = i, length[r] = n_prompt, begun++;
        }
        assert_true(tl_session_step(s, tokens));
        for (int64_t r = 0; r < rows; r++) {
            int64_t i = text_of[r], ids[MOST];
            expect_equal(tokens[r] < 0, i < 0);
            if (i < 0) continue;
            texts[i][length[r]++] = tokens[r];
            expect_equal(tl_session_length(s, r), length[r]);
            if (length[r] < prompt_of(i, ids) + more - i % 3) continue; /* they end at different times */
            assert_true(tl_session_close(s, r));
            text_of[r] = -1, done++;
        }
    }
    tl_session_free(s);
}

static void a_text_has_the_same_bits_alone_and_among_others(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16};
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int d = 0; d < 2; d++) {
            tl_module *model = model_make(kind, dtypes[d]);
            static int64_t alone[16][MOST], together[16][MOST];
            memset(alone, 0, sizeof alone);
            memset(together, 0, sizeof together);
            for (int64_t i = 0; i < 16; i++) generate(model, i, 1, 1, 12, alone);
            generate(model, 0, 16, kind % 2 ? 3 : 8, 12, together); /* rows are used again */
            for (int64_t i = 0; i < 16; i++)
                if (memcmp(alone[i], together[i], sizeof alone[i]))
                    fail_msg("%s, %s: text %lld differs", kinds[kind], tl_dtype_name(dtypes[d]), (long long)i);
            tl_module_free(model);
        }
}

/* Without a cache: a pass over the whole text for every token. f64 tells a wrong position from rounding. */
static void texts_are_the_same_without_a_cache(void **state) {
    (void)state;
    enum { MORE = 10 };
    for (int kind = 0; kind < N_KINDS; kind++) {
        tl_module *model = model_make(kind, TL_F64);
        static int64_t texts[14][MOST], placed[14][MOST];
        generate(model, 0, 14, 8, MORE, texts);
        has_places = true;
        generate(model, 0, 14, 8, MORE, placed);
        has_places = false;
        expect_true(memcmp(texts, placed, sizeof texts) == 0);
        for (int64_t i = 0; i < 14; i++) {
            int64_t ids[MOST], n = prompt_of(i, ids), first = n > CONTEXT ? n - CONTEXT * 3 / 4 : 0;
            int64_t end = n + MORE - i % 3;
            tl_seed((uint64_t)(100 + i));
            for (; n < end; n++) {
                if (n - first > CONTEXT) first = n - CONTEXT * 3 / 4; /* as when the cache is full */
                tl_scope scope = tl_scope_begin();
                tl_tensor *all = tl_from_data(ids, TL_SHAPE(1, n), TL_I64, NULL);
                tl_tensor *logits = tl_model_next(model, tl_slice(all, 1, first, n, 1), NULL);
                ids[n] = tl_item_int(generate_draw(logits, all, &draws[i % N_DRAWS], false));
                if (ids[n] != texts[i][n])
                    fail_msg("%s, text %lld, token %lld: %lld without a cache, %lld with", kinds[kind], (long long)i,
                             (long long)n, (long long)ids[n], (long long)texts[i][n]);
                tl_scope_end(scope);
            }
        }
        tl_module_free(model);
    }
}

static void a_session_draws_what_tl_generate_draws(void **state) {
    (void)state;
    tl_module *model = model_make(LLAMA, TL_F32);
    for (int d = 0; d < N_DRAWS; d++) {
        enum { N = 40, PROMPT = 5 };
        int64_t ids[N] = {0}, other[N], token;
        for (int64_t k = 0; k < PROMPT; k++) ids[k] = other[k] = k * 3;
        tl_scope scope = tl_scope_begin();
        tl_tensor *text = tl_from_data(ids, TL_SHAPE(1, N), TL_I64, NULL);
        tl_seed(9);
        assert_true(tl_generate(model, text, PROMPT, &draws[d]));
        assert_true(tl_to_data(text, ids, sizeof ids));
        tl_session *s = tl_session_new(model, 1, CONTEXT);
        tl_seed(4); /* the thread's own numbers are neither used nor moved */
        tl_generator before = tl_generator_get();
        assert_true(tl_session_open(s, other, PROMPT, &draws[d], 9) == 0);
        for (int64_t n = PROMPT; n < N; n++) {
            assert_true(tl_session_step(s, &token));
            other[n] = token;
        }
        expect_true(tl_generator_get().index == before.index && tl_generator_get().seed == before.seed);
        assert_memory_equal(ids, other, sizeof ids);
        tl_session_free(s);
        tl_scope_end(scope);
    }
    tl_module_free(model);
}

/* A text that was extended, or cut, continues as if it had been the prompt. */
static void texts_can_be_extended_and_cut(void **state) {
    (void)state;
    const tl_generate_options greedy = {.temperature = 0, .top_p = 1};
    for (int kind = 0; kind < N_KINDS; kind++) {
        tl_module *model = model_make(kind, TL_F64);
        tl_session *s = tl_session_new(model, 1, CONTEXT), *whole = tl_session_new(model, 1, CONTEXT);
        int64_t ids[MOST], n = 4, token, want;
        for (int64_t k = 0; k < n; k++) ids[k] = k * 5 + 1;
        assert_true(tl_session_open(s, ids, n, &greedy, 1) == 0);
        for (int k = 0; k < 5; k++) assert_true(tl_session_step(s, &ids[n++]));
        for (int turn = 0; turn < 5; turn++) { /* beyond the context too */
            const int64_t typed[3] = {7, 8 + turn, 9};
            assert_true(tl_session_append(s, 0, typed, 3));
            memcpy(ids + n, typed, sizeof typed), n += 3;
            assert_true(tl_session_step(s, &token));
            assert_true(tl_session_step(s, &token));
            n += 1, ids[n - 1] = -1;
            assert_true(tl_session_cut(s, 0, n - 1)); /* both of them, and what is left is read again */
            n -= 1;
            if (n < CONTEXT) { /* later it has begun anew meanwhile */
                assert_true(tl_session_open(whole, ids, n, &greedy, 1) == 0);
                assert_true(tl_session_step(whole, &want));
                assert_true(tl_session_close(whole, 0));
            } else want = -1;
            assert_true(tl_session_step(s, &token));
            if (want >= 0) expect_equal(token, want);
            ids[n++] = token;
            expect_equal(tl_session_length(s, 0), n);
        }
        tl_session_free(s);
        tl_session_free(whole);
        tl_module_free(model);
    }
}

static void wrong_use_is_refused_and_changes_nothing(void **state) {
    (void)state;
    tl_module *model = model_make(LLAMA, TL_F32);
    tl_session *s = tl_session_new(model, 2, CONTEXT);
    int64_t ids[4] = {1, 2, 3, 4}, bad[2] = {1, V}, tokens[2];
    const tl_generate_options greedy = {.temperature = 0, .top_p = 1}, wrong = {.temperature = -1, .top_p = 1};
    expect_refused(tl_session_new(model, 0, 4), "0 texts (need 1 to 256)");
    expect_refused(tl_session_new(model, 257, 4), "need 1 to 256");
    expect_refused(tl_session_new(model, 1, CONTEXT + 1), "1 to 24 tokens");
    expect_refused(tl_session_open(s, ids, 0, NULL, 1) == 0, "at least one token");
    expect_refused(tl_session_open(s, bad, 2, NULL, 1) == 0, "token 1 of the text is 50 (need 0 to 49)");
    expect_refused(tl_session_open(s, ids, 4, &wrong, 1) == 0, "temperature -1");
    assert_true(tl_session_open(s, ids, 4, &greedy, 1) == 0 && tl_session_open(s, ids, 2, &greedy, 1) == 1);
    expect_refused(tl_session_open(s, ids, 4, NULL, 1) == 0, "all 2 rows have a text");
    expect_refused(tl_session_append(s, 0, bad, 2), "token 5 of the text is 50");
    expect_equal(tl_session_length(s, 0), 4);
    expect_refused(tl_session_cut(s, 0, 0), "0 tokens of a text that has 4");
    expect_refused(tl_session_cut(s, 0, 5), "5 tokens of a text that has 4");
    expect_refused(tl_session_close(s, 2), "no text in row 2");
    assert_true(tl_session_close(s, 1));
    expect_refused(tl_session_append(s, 1, ids, 1), "no text in row 1");
    assert_true(tl_session_step(s, tokens));
    expect_true(tokens[0] >= 0);
    expect_equal(tokens[1], -1);
    tl_session_free(s);
    tl_module_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_text_has_the_same_bits_alone_and_among_others), TEST(texts_are_the_same_without_a_cache),
        TEST(a_session_draws_what_tl_generate_draws),          TEST(texts_can_be_extended_and_cut),
        TEST(wrong_use_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
