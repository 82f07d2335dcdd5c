/* Serving a model: bytes by hand, published speeds below their bounds, speculative decoding as published. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/serve.h"

static struct plan_target target;

static struct serve_question question(const char *model, const char *chip, double prompt, double n_new) {
    struct serve_question q = {.prompt = prompt, .n_new = n_new, .devices = 1, .target = &target};
    if (!tl_model_preset(model, &q.config) || !plan_target_find(&target, chip)) fail_msg("%s", tl_error_message());
    return q;
}

static void expect_share(const char *what, double got, double want, double tolerance) {
    if (!(fabs(got / want - 1) <= tolerance)) fail_msg("%s: %.10g, want %.10g", what, got, want);
}

static struct serve_answer price(const struct serve_question *q) {
    struct serve_answer a;
    if (!serve_price(q, &a)) fail_msg("%s", tl_error_message());
    return a;
}

/* Llama 3 8B: 32 layers, 8 heads of keys and values of 128; 6,979,321,856 weights of layers, embedding and head of
 * 525,336,576 each, 266,240 of norms. */
static void bytes_are_those_of_the_formats(void **state) {
    (void)state;
    struct serve_question q = question("llama-3-8b", "H100", 1000, 100);
    const double layers = 6979321856.0, rest = 8030261248.0 - layers;
    struct serve_answer a = price(&q);
    expect_share("bf16", a.weights_bytes, 2 * 8030261248.0, 0);
    expect_share("a token of the cache", a.cache_token_bytes, 131072, 0);
    /* 1100 tokens in 69 pages of 16 */
    expect_share("pages", a.sequence_bytes, 69 * 16 * 131072, 0);
    expect_share("waste", a.page_waste, 1 - 1100 / 1104.0, 1e-12);
    static const struct {
        const char *name;
        double weight, cache; /* bytes of a number */
    } formats[] = {{"fp8", 1, 1}, {"int8", 1, 8.25 / 8}, {"int4", 0.51953125, 5.0 / 8}, {"nvfp4", 0.5625, 0.5625}};
    for (int i = 0; i < 4; i++) {
        q.options.weights = q.options.cache = formats[i].name;
        a = price(&q);
        expect_share(formats[i].name, a.weights_bytes, layers * formats[i].weight + 2 * rest, 1e-12);
        expect_share(formats[i].name, a.cache_token_bytes, 65536 * formats[i].cache, 1e-12);
    }
    q.options.weights = "mxfp4", q.options.cache = "bf16", q.devices = 4;
    a = price(&q);
    expect_share("a quarter", a.weights_bytes, (layers * 4.25 / 8 + 2 * rest) / 4, 1e-12);
    expect_share("two heads", a.cache_token_bytes, 131072 / 4, 0);
    q.devices = 16; /* half a head cannot be */
    expect_share("one head", price(&q).cache_token_bytes, 131072 / 8, 0);
    q.devices = 5;
    expect_refused(serve_price(&q, &a), "5 devices cannot divide 32 heads");
    q.devices = 1, q.options.weights = "fp9";
    expect_refused(serve_price(&q, &a), "did you mean \"fp8\"?");
}

static void batches_are_as_large_as_memory_and_latency_allow(void **state) {
    (void)state;
    struct serve_question q = question("llama-3-8b", "H100", 2048, 512);
    q.options.latency_s = 10e-3;
    const struct serve_answer a = price(&q);
    const double limit = (double)plan_target_limit(&target), each = a.sequence_bytes + 4 * 128256;
    expect_true(a.weights_bytes + a.work_bytes + a.largest_batch * each <= limit);
    expect_true(a.weights_bytes + a.work_bytes + (a.largest_batch + 1) * each > limit);
    expect_true(a.latency_batch > 0 && a.latency_batch < a.largest_batch);
    expect_true(serve_at(&q, &a, a.latency_batch).decode_s <= 10e-3);
    expect_true(serve_at(&q, &a, a.latency_batch + 1).decode_s > 10e-3);
    /* a step at batch 1: weights of layers and head, and a cache of 2304 tokens and the new one */
    const double bytes = 2 * (6979321856.0 + 525336576.0) + 2305 * 131072.0;
    expect_share("a step", a.point[0].decode_s, bytes / 3.35e12, 1e-12);
    for (int i = 1; i < a.n_points; i++) {
        expect_true(a.point[i].decode_s > a.point[i - 1].decode_s);
        expect_true(a.point[i].tokens_per_s > a.point[i - 1].tokens_per_s);
        expect_true(a.point[i].served_per_s < a.point[i].tokens_per_s);
    }
    /* continuous batching: 512 tokens for each prompt, whatever the batch, are no faster than the prompts */
    expect_true(a.point[a.n_points - 1].served_per_s < 512 / a.prefill_s);
    q.options.price_per_hour = 3.6;
    expect_share("a million tokens", serve_at(&q, &a, 8).money, 1000 / serve_at(&q, &a, 8).served_per_s, 1e-12);
    /* small pages waste less, and larger chunks leave less for caches */
    q.options.page = 1024;
    expect_true(price(&q).page_waste > a.page_waste);
    q.options.chunk = 64, q.options.page = 16;
    expect_true(price(&q).work_bytes < a.work_bytes);
}

/* gpt-fast's README: batch 1, prompts of 5 tokens, 200 new ones; A100-80GB at 330 W. Tokens per second. */
static void no_published_speed_is_above_its_bound(void **state) {
    (void)state;
    static const struct {
        bool is_large;
        const char *weights;
        double devices, speed;
    } rows[] = {{false, "bf16", 1, 104.9},  {false, "int8", 1, 155.58}, {false, "q4_0", 1, 196.80},
                {true, "int8", 1, 19.13},   {true, "q4_0", 1, 25.25},   {false, "bf16", 2, 168.84},
                {false, "bf16", 4, 254.02}, {false, "bf16", 8, 328.43}, {true, "bf16", 2, 21.32},
                {true, "bf16", 4, 38.01},   {true, "bf16", 8, 62.50},   {true, "int8", 8, 80.44},
                {true, "q4_0", 8, 90.77}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct serve_question q = question("llama-3-70b", "A100-80", 5, 200);
        tl_model_config *c = &q.config;
        c->vocabulary = 32000; /* Llama 2 */
        if (!rows[i].is_large) c->n_layers = 32, c->channels = 4096, c->n_heads = c->n_kv_heads = 32, c->ff = 11008;
        q.devices = rows[i].devices;
        q.options.weights = rows[i].weights;
        const struct serve_answer a = price(&q);
        const double most = serve_at(&q, &a, 1).tokens_per_s;
        print_message("    Llama 2 %s, %s on %.0f: %.1f of %.1f tokens/s, %.0f %%\n", rows[i].is_large ? "70B" : "7B",
                      rows[i].weights, q.devices, rows[i].speed, most, 100 * rows[i].speed / most);
        expect_true(rows[i].speed < most && rows[i].speed > 0.15 * most);
    }
}

/* Leviathan et al. 2023, table 1: the speed-up if drafts cost nothing. */
static void drafts_yield_what_was_published(void **state) {
    (void)state;
    static const double rows[][3] = {{0.6, 2, 1.96}, {0.7, 3, 2.53}, {0.8, 2, 2.44},
                                     {0.8, 5, 3.69}, {0.9, 2, 2.71}, {0.9, 10, 6.86}};
    for (int i = 0; i < 6; i++) {
        struct serve_question q = question("llama-3-70b", "H200", 1024, 256);
        q.devices = 8;
        q.options.draft = "llama-3.2-1b";
        q.options.acceptance = rows[i][0], q.options.draft_tokens = (int64_t)rows[i][1];
        const struct serve_answer a = price(&q);
        expect_near(a.guessed, rows[i][2], 0.005);
        expect_true(a.speedup < a.guessed && a.speedup > 0.6 * a.guessed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(bytes_are_those_of_the_formats),
        TEST(batches_are_as_large_as_memory_and_latency_allow),
        TEST(no_published_speed_is_above_its_bound),
        TEST(drafts_yield_what_was_published),
    };
    return cmocka_run_group_tests_name("serve", tests, NULL, NULL);
}
