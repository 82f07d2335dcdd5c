/* Whole runs, small: price = receipt, resumed = uninterrupted, accumulated = at once, learning, and what must not happen. */
#include "support/check.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "train/run.h"
#include "train/settings.h"

static char base[64];

static void base_begin(void) {
    strcpy(base, "/tmp/tally-train-XXXXXX");
    assert_non_null(mkdtemp(base));
}
static void base_end(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    assert_int_equal(system(command), 0);
}

static void set(struct settings *s, const char *name, const char *value) {
    if (!settings_set(s, name, value)) fail_msg("%s %s: %s", name, value, tl_error_message());
}

static void set_path(struct settings *s, const char *name, const char *file) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", base, file);
    set(s, name, path);
}

/* A model of 2 layers and 16 channels, and a text of so many bytes. */
static struct settings small_run(tl_family family, int64_t n_bytes) {
    struct settings s = settings_default();
    tl_model_config c;
    char path[128];
    assert_true(tl_model_preset(family == TL_GPT2 ? "tiny-gpt2" : "tiny", &c));
    c.n_layers = 2, c.n_heads = c.n_kv_heads = 2, c.channels = 16, c.head_size = 8, c.ff = 32, c.context = 32;
    snprintf(path, sizeof path, "%s/model-%s.json", base, tl_family_name(family));
    assert_true(tl_model_config_write(&c, path));
    set(&s, "model", path);
    snprintf(path, sizeof path, "%s/text-%lld", base, (long long)n_bytes);
    if (access(path, F_OK) != 0) assert_true(tl_corpus_write(path, 3, (uint64_t)n_bytes, NULL, NULL));
    assert_int_equal(truncate(path, n_bytes), 0); /* a story is not cut where it is written */
    set(&s, "data", path);
    set(&s, "steps", "12");
    set(&s, "warmup", "3");
    set(&s, "batch", "2");
    set(&s, "seq", "16");
    set(&s, "eval_every", "5");
    set(&s, "eval_batches", "2");
    set(&s, "sample_tokens", "4");
    set(&s, "save_every", "0");
    set(&s, "prompt", "A");
    set(&s, "threads", "1");
    return s;
}

struct stop {
    int64_t at; /* steps after which the run is asked to stop; 0: never */
    volatile sig_atomic_t flag;
};
static void stop_at(void *context, const struct run_news *news) {
    struct stop *stop = context;
    if (stop->at && news->step >= stop->at) stop->flag = 1;
}

static enum run_end train(const struct settings *s, int64_t stop_after, struct run_summary *summary) {
    struct stop stop = {stop_after, 0};
    struct run_listener listener = {stop_at, &stop, &stop.flag};
    enum run_end end = run_train(s, &listener, summary);
    free(summary->text);
    if (end == RUN_FAILED) fail_msg("the run failed: %s", tl_error_message());
    return end;
}

/* ---- Same bits ---- */

static void expect_same_file(const struct settings *a, const struct settings *b, const char *file) {
    char path[SETTING_TEXT + 128];
    size_t n_a, n_b;
    snprintf(path, sizeof path, "%s/%s", a->out, file);
    char *x = file_get(path, (size_t)1 << 30, &n_a);
    snprintf(path, sizeof path, "%s/%s", b->out, file);
    char *y = file_get(path, (size_t)1 << 30, &n_b);
    assert_true(x && y);
    if (n_a != n_b || memcmp(x, y, n_a)) fail_msg("%s/%s and %s/%s differ", a->out, file, b->out, file);
    memory_free(x);
    memory_free(y);
}

/* The log without what the clock says. */
static char *log_text(const struct settings *s) {
    char path[SETTING_TEXT + 16], line[4096];
    json_t *lines = json_array();
    snprintf(path, sizeof path, "%s/log.jsonl", s->out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *entry = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(entry);
        json_object_del(entry, "time");
        json_array_append_new(lines, entry);
    }
    fclose(file);
    char *text = json_dumps(lines, JSON_REAL_PRECISION(17));
    json_decref(lines);
    return text;
}

static void expect_same_run(const struct settings *a, const struct settings *b) {
    char file[96];
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "checkpoints/step-%012lld/%s", (long long)a->steps, files[i]);
        expect_same_file(a, b, file);
    }
    char *x = log_text(a), *y = log_text(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

/* 12 steps of 2 x 2 x 16 tokens over 480 of them: epochs end in between. */
static void resumed_runs_are_the_same(const char *recipe, int64_t first, int64_t every) {
    struct run_summary summary;
    struct settings whole = small_run(TL_GPT2, 600), part;
    set(&whole, "recipe", recipe);
    set(&whole, "accum", "2");
    set(&whole, "dropout", "0.1");
    set(&whole, "checkpointing", "sqrt");
    set(&whole, "val_share", "0.2");
    set_path(&whole, "out", recipe);
    expect_equal(train(&whole, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    for (int64_t stop = first; stop + 1 < whole.steps; stop += every) {
        char name[64];
        snprintf(name, sizeof name, "%s-%lld", recipe, (long long)stop);
        part = whole;
        set_path(&part, "out", name);
        expect_equal(train(&part, stop, &summary), RUN_STOPPED);
        expect_true(summary.steps == stop ||
                    summary.steps == stop + 1); /* news come a step late, but where something is due */
        expect_equal(train(&part, 0, &summary), RUN_DONE);
        expect_equal(summary.differences, 0);
        expect_text(summary.problem, "");
        expect_same_run(&whole, &part);
    }
}

static void stopping_anywhere_changes_nothing(void **state) {
    (void)state;
    base_begin();
    resumed_runs_are_the_same("fp32", 1, 1);
    base_end();
}

static void stopping_changes_nothing_in_any_recipe(void **state) {
    (void)state;
    static const char *const recipes[] = {"amp", "bf16", "bf16-lean", "fp16", "fp8", "fp4"};
    base_begin();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        resumed_runs_are_the_same(recipes[i], getenv("TALLY_SOAK") ? 2 : 4, getenv("TALLY_SOAK") ? 1 : 5);
    base_end();
}

static void a_finished_run_is_not_run_again(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    set_path(&s, "out", "run");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    double loss = summary.held_out;
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.first_step, 12);
    expect_true(isnan(summary.held_out) && isfinite(loss));
    base_end();
}

/* The stories of a folder are told again, whatever lies there. */
static void damaged_stories_are_told_again(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings whole = small_run(TL_LLAMA, 2000), part;
    set(&whole, "data", "builtin");
    set_path(&whole, "out", "whole");
    expect_equal(train(&whole, 0, &summary), RUN_DONE);
    part = whole;
    set_path(&part, "out", "part");
    expect_equal(train(&part, 5, &summary), RUN_STOPPED);
    char path[SETTING_TEXT + 16];
    snprintf(path, sizeof path, "%s/stories.txt", part.out);
    assert_true(file_put(path, "Once upon a time there was nothing.", 35));
    expect_equal(train(&part, 0, &summary), RUN_DONE);
    expect_same_file(&whole, &part, "stories.txt");
    expect_same_run(&whole, &part);
    base_end();
}

/* ---- Price = receipt ---- */

static int64_t priced(const struct settings *s, const char *kind) {
    char path[SETTING_TEXT + 16];
    snprintf(path, sizeof path, "%s/price.json", s->out);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_int_t n = json_integer_value(json_object_get(json_object_get(json_object_get(root, "kinds"), kind), "count"));
    json_decref(root);
    return n;
}

/* Looking more often, less often, and no more but at the end: the price follows. */
static void a_run_may_look_at_another_rhythm_when_it_goes_on(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    set_path(&s, "out", "run");
    set(&s, "steps", "20");
    expect_equal(train(&s, 4, &summary), RUN_STOPPED); /* every 5 steps: the news of the 4th come after the 5th */
    expect_equal(summary.steps, 5);
    expect_equal(priced(&s, "eval"), 4);
    expect_equal(priced(&s, "sample"), 1);
    set(&s, "eval_every", "2"), set(&s, "sample_every", "3"), set(&s, "save_every", "7");
    expect_equal(train(&s, 11, &summary), RUN_STOPPED);
    expect_equal(summary.steps, 12);
    expect_equal(priced(&s, "eval"), 1 + 8); /* 5; 6, 8 ... 20 */
    expect_equal(priced(&s, "sample"), 6);   /* 6, 9 ... 18 and 20 */
    set(&s, "eval_every", "0"), set(&s, "sample_every", "20");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    expect_equal(priced(&s, "eval"), 5 + 1); /* 5, 6, 8, 10, 12; 20 */
    expect_equal(priced(&s, "sample"), 4);   /* 6, 9, 12; 20 */
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    base_end();
}

static void the_price_is_the_receipt_in_every_configuration(void **state) {
    (void)state;
    static const char *const recipes[] = {"fp32", "amp", "bf16", "bf16-lean", "fp16", "fp8", "fp4"};
    static const char *const policies[] = {"none", "every-k", "sqrt", "full", "nothing", "selective"};
    static const char *const optimizers[] = {"adamw", "adam", "sgd", "adagrad", "rmsprop"};
    static const char *const accums[] = {"1", "2", "3"}, *const batches[] = {"1", "2", "5"},
                             *const seqs[] = {"8", "16", "31"};
    const char *soak = getenv("TALLY_SOAK");
    int n = soak ? 200 : 30;
    base_begin();
    for (int i = 0; i < n; i++) {
        struct run_summary summary;
        char name[32];
        struct settings s = small_run(i % 2 ? TL_GPT2 : TL_LLAMA, 3000);
        snprintf(name, sizeof name, "run-%d", i);
        set_path(&s, "out", name);
        set(&s, "steps", "5");
        set(&s, "eval_every", i % 3 ? "2" : "1");
        set(&s, "sample_every", i % 4 ? "0" : "3");
        set(&s, "recipe", recipes[i % 7]);
        set(&s, "checkpointing", policies[i / 2 % 6]);
        set(&s, "optimizer", optimizers[i / 3 % 5]);
        if (i % 2 && i / 3 % 5 == 2) set(&s, "momentum", "0.9");
        set(&s, "accum", accums[i / 5 % 3]);
        set(&s, "batch", batches[i / 7 % 3]);
        set(&s, "seq", seqs[i / 11 % 3]);
        set(&s, "lr", "1e-3");
        set(&s, "clip", i % 5 ? "1" : "0");
        if (i % 2) set(&s, "dropout", "0.1");
        set(&s, "top_k", i % 6 ? "0" : "5");
        expect_equal(train(&s, 0, &summary), RUN_DONE);
        if (summary.differences || *summary.problem)
            fail_msg("configuration %d (%s, %s, %s): %d differences; %s", i, recipes[i % 7], policies[i / 2 % 6],
                     optimizers[i / 3 % 5], summary.differences, summary.problem);
    }
    base_end();
}

/* A sample of a long text reserves more than a step of two tokens, so whoever comes first changes what the other finds. */
static void kinds_are_priced_in_the_order_of_the_run(void **state) {
    (void)state;
    static const char *const orders[][2] = {{"5", "0"}, {"0", "5"}, {"4", "7"}, {"7", "4"}, {"1", "0"}, {"0", "1"}};
    tl_model_config c;
    base_begin();
    struct settings s = small_run(TL_GPT2, 3000);
    assert_true(tl_model_config_read(s.model, &c));
    c.ff = 2048, c.context = 256; /* an activation of 160 tokens is too large for the segments of small blocks */
    assert_true(tl_model_config_write(&c, s.model));
    set(&s, "batch", "1"), set(&s, "seq", "2"), set(&s, "steps", "10"), set(&s, "sample_tokens", "160");
    for (int i = 0; i < 6; i++) {
        struct run_summary summary;
        char name[32];
        snprintf(name, sizeof name, "order-%d", i);
        set_path(&s, "out", name);
        set(&s, "sample_every", orders[i][0]);
        set(&s, "eval_every", orders[i][1]);
        expect_equal(train(&s, 0, &summary), RUN_DONE);
        if (summary.differences || *summary.problem)
            fail_msg("sample every %s, eval every %s: %d differences; %s", orders[i][0], orders[i][1],
                     summary.differences, summary.problem);
    }
    base_end();
}

/* ---- Learning ---- */

/* The same model with so many channels. */
static void widen(const struct settings *s, int64_t channels) {
    tl_model_config c;
    assert_true(tl_model_config_read(s->model, &c));
    c.channels = channels, c.head_size = channels / c.n_heads, c.ff = 3 * channels, c.context = 128;
    assert_true(tl_model_config_write(&c, s->model));
}

/* What a reader loses who knows, of every two bytes, how often each byte follows them: H(byte | two before), nats. */
static double counting_loss(void) {
    enum { N = 1 << 20 };
    static char text[N];
    static uint32_t three[128][128][128], two[128][128];
    tl_corpus_text(99, 0, text, N);
    double sum = 0;
    for (int i = 2; i < N; i++) {
        three[(int)text[i - 2]][(int)text[i - 1]][(int)text[i]]++;
        two[(int)text[i - 2]][(int)text[i - 1]]++;
    }
    for (int i = 2; i < N; i++)
        sum -= log((double)three[(int)text[i - 2]][(int)text[i - 1]][(int)text[i]] /
                   two[(int)text[i - 2]][(int)text[i - 1]]);
    return sum / (N - 2);
}

/* Two layers of 64 channels, 400 steps of 512 bytes, from scratch, on stories whose entropy is known. */
static void stories_are_learnt_beyond_counting(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    widen(&s, 64);
    set(&s, "data", "builtin");
    set_path(&s, "out", "run");
    set(&s, "steps", "400"), set(&s, "warmup", "40"), set(&s, "batch", "4"), set(&s, "seq", "128");
    set(&s, "eval_every", "0"), set(&s, "eval_batches", "32"), set(&s, "threads", "0");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    double counted = counting_loss();
    print_message("    held-out %.3f, by counting %.3f, floor %.3f\n", summary.held_out, counted, summary.floor);
    expect_near(summary.floor, tl_corpus_floor(), 0);
    expect_true(summary.held_out > summary.floor); /* nothing can be below */
    expect_true(summary.held_out < 0.95 * counted);
    base_end();
}

static void one_batch_is_learnt_by_heart(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 65); /* 4 x 16 targets, the same in every step */
    widen(&s, 32);
    set_path(&s, "out", "run");
    set(&s, "val_share", "0");
    set(&s, "batch", "4");
    set(&s, "steps", "300");
    set(&s, "lr", "1e-2");
    set(&s, "weight_decay", "0");
    set(&s, "sample_tokens", "0");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    expect_true(summary.loss < 0.01);
    base_end();
}

static void micro_batches_are_one_batch(void **state) {
    (void)state;
    struct run_summary at_once, in_parts;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000);
    set(&s, "batch", "4");
    set_path(&s, "out", "one");
    expect_equal(train(&s, 0, &at_once), RUN_DONE);
    set(&s, "batch", "1");
    set(&s, "accum", "4");
    set(&s, "eval_batches", "8"); /* the same held-out tokens */
    set_path(&s, "out", "four");
    expect_equal(train(&s, 0, &in_parts), RUN_DONE);
    expect_near(in_parts.loss, at_once.loss, 2e-6 * at_once.loss);
    expect_near(in_parts.held_out, at_once.held_out, 2e-6 * at_once.held_out);
    base_end();
}

/* The held-out losses of a run, in order. */
static int curve_read(const struct settings *s, double *curve, int most) {
    char *text = log_text(s);
    json_t *lines = json_loads(text, 0, NULL), *line;
    size_t i;
    int n = 0;
    json_array_foreach(lines, i, line) {
        const json_t *value = json_object_get(line, "held_out");
        if (value && n < most) curve[n++] = json_real_value(value);
    }
    json_decref(lines);
    free(text);
    return n;
}

/* The whole curve, at every evaluation, within a bound: what rounding of this width does to 160 steps. */
static void every_recipe_follows_fp32(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double bound; /* relative */
    } recipes[] = {{"amp", 0.01}, {"bf16", 0.01}, {"bf16-lean", 0.02}, {"fp16", 0.01}, {"fp8", 0.03}, {"fp4", 0.10}};
    enum { N = 8 };
    struct run_summary summary;
    double plain[N], other[N];
    base_begin();
    struct settings s = small_run(TL_LLAMA, 90000);
    widen(&s, 32);
    set(&s, "steps", "160"), set(&s, "warmup", "16"), set(&s, "lr", "3e-3");
    set(&s, "eval_every", "20"), set(&s, "eval_batches", "8");
    set(&s, "batch", "8"), set(&s, "seq", "64");
    set_path(&s, "out", "fp32");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    expect_equal(curve_read(&s, plain, N), N);
    print_message("    fp32       %.4f ... %.4f\n", plain[0], plain[N - 1]);
    expect_true(plain[N - 1] < 2.85); /* it learns: bytes by their frequency would give 3.3 */
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        double worst = 0;
        set(&s, "recipe", recipes[i].name);
        set_path(&s, "out", recipes[i].name);
        expect_equal(train(&s, 0, &summary), RUN_DONE);
        expect_equal(curve_read(&s, other, N), N);
        for (int k = 0; k < N; k++) worst = fmax(worst, fabs(other[k] / plain[k] - 1));
        print_message("    %-10s ends at %.4f, fp32 at %.4f; furthest apart by %.2f %%\n", recipes[i].name,
                      other[N - 1], plain[N - 1], 100 * worst);
        expect_true(worst <= recipes[i].bound);
    }
    base_end();
}

/* ---- What must not happen ---- */

static void what_is_not_finite_stops_before_the_weights(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_GPT2, 3000);
    set(&s, "lr", "1e6"); /* the second step's loss overflows */
    set(&s, "optimizer", "sgd");
    set(&s, "clip", "0");
    set(&s, "warmup", "0");
    set(&s, "schedule", "constant");
    set(&s, "sample_tokens", "0");
    set_path(&s, "out", "stop");
    expect_equal(train(&s, 0, &summary), RUN_NOT_FINITE);
    assert_non_null(strstr(summary.problem, "is not finite; the weights were not touched"));
    set(&s, "on_nonfinite", "skip");
    set_path(&s, "out", "skip");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    expect_true(summary.n_skipped > 0);
    base_end();
}

static int n_lines_with(const char *file, const char *part) {
    char path[128], *text;
    size_t bytes;
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", base, file);
    assert_non_null(text = file_get(path, 1 << 20, &bytes));
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    memory_free(text);
    return n;
}

/* Every batch overflows from some step on: the run goes back before it, three times, and does nothing there twice. */
static void rolling_back_repeats_nothing(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_GPT2, 3000);
    set(&s, "lr", "1e6"), set(&s, "optimizer", "sgd"), set(&s, "clip", "0"), set(&s, "warmup", "0");
    set(&s, "schedule", "constant"), set(&s, "sample_tokens", "0");
    set(&s, "on_nonfinite", "rollback"), set(&s, "save_every", "1"), set(&s, "eval_every", "1");
    set_path(&s, "out", "back");
    expect_equal(train(&s, 0, &summary), RUN_NOT_FINITE);
    int bad = 0;
    expect_equal(sscanf(summary.problem, "step %d:", &bad), 1);
    expect_true(bad >= 2);
    expect_equal(n_lines_with("back/log.jsonl", "\"held_out\""), bad - 1); /* one for each step that stands */
    base_end();
}

static void a_folder_has_one_run_at_a_time(void **state) {
    (void)state;
    struct run_summary summary;
    char path[128];
    tl_policy policy = tl_error_policy(TL_RETURN);
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    set_path(&s, "out", "run");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    snprintf(path, sizeof path, "%s/run/lock", base);
    int lock = open(path, O_RDWR);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    assert_non_null(strstr(tl_error_message(), "another process is training in this folder"));
    tl_error_clear();
    close(lock);
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    base_end();
    tl_error_policy(policy);
}

static void expect_failed(const struct settings *s, const char *part) {
    struct run_summary summary;
    expect_equal(run_train(s, NULL, &summary), RUN_FAILED);
    if (!strstr(tl_error_message(), part)) fail_msg("the error is \"%s\", want \"%s\"", tl_error_message(), part);
    tl_error_clear();
}

static void wrong_runs_are_refused_by_name(void **state) {
    (void)state;
    tl_policy policy = tl_error_policy(TL_RETURN);
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000), other;
    set_path(&s, "out", "run");
    expect_equal(train(&s, 0, &summary), RUN_DONE);
    other = s;
    set(&other, "lr", "0.5");
    expect_failed(&other, "begun with another lr");
    other = s, set(&other, "eval_batches", "3"); /* an evaluation would cost something else than those before it */
    expect_failed(&other, "begun with another eval_batches");
    other = s, set(&other, "seq", "33");
    expect_failed(&other, "exceed the model's context of 32");
    other = s, set(&other, "model", "gpt7");
    expect_failed(&other, "there is no model \"gpt7\"");
    other = s, set(&other, "model", "deep-linear");
    expect_failed(&other, "is no model of language");
    other = s, set(&other, "dropout", "0.5");
    expect_failed(&other, "dropout: models of the llama family have none");
    other = s, set(&other, "data", "/nonexistent"), set_path(&other, "out", "x1");
    expect_failed(&other, "/nonexistent");
    other = s, set(&other, "out", "/proc/run");
    expect_failed(&other, "/proc/run");
    other = s, set(&other, "device", "tpu"), set_path(&other, "out", "x2");
    expect_failed(&other, "tpu");
    other = s, set(&other, "warmup", "100");
    expect_failed(&other, "100 steps of warm-up");
    other = small_run(TL_LLAMA, 10), set_path(&other, "out", "x3");
    expect_failed(&other, "");
    base_end();
    tl_error_policy(policy);
}

static void settings_are_checked_by_the_table(void **state) {
    (void)state;
    struct settings s = settings_default(), back = settings_default();
    expect_refused(settings_set(&s, "bacth", "8"), "there is no setting \"bacth\", did you mean \"batch\"?");
    expect_refused(settings_set(&s, "batch", "0"), "batch: \"0\" is not a whole number from 1");
    expect_refused(settings_set(&s, "batch", "8.5"), "is not a whole number");
    expect_refused(settings_set(&s, "batch", ""), "is not a whole number");
    expect_refused(settings_set(&s, "batch", "99999999999999999999"), "is not a whole number");
    expect_refused(settings_set(&s, "lr", "nan"), "is not a number from 0");
    expect_refused(settings_set(&s, "recipe", "int8"), "is not one of fp32|amp|");
    expect_refused(settings_set(&s, "nesterov", "yes"), "is not true or false");
    set(&s, "lr", "0.1234567890123456789");
    set(&s, "recipe", "bf16-lean");
    set(&s, "prompt", "a \"quoted\" line\n");
    set(&s, "nesterov", "true");
    char *text = settings_json(&s), path[] = "/tmp/tally-settings-XXXXXX";
    int fd = mkstemp(path);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    assert_true(settings_read(&back, path));
    assert_null(settings_conflict(&s, &back));
    expect_true(back.lr == s.lr && back.nesterov && !strcmp(back.prompt, s.prompt));
    expect_text(settings_choice(&back, "recipe"), "bf16-lean");
    set(&back, "beta1", "0.5");
    expect_text(settings_conflict(&s, &back), "beta1");
    static const char *const wrong[][2] = {{"[]", "settings are a JSON object"},
                                           {"{\"lr\": \"x\"}", "\"lr\" has the wrong type (need a number)"},
                                           {"{\"batch\": 2.5}", "\"batch\" has the wrong type"},
                                           {"{\"lr\": 1, \"lr\": 2}", "duplicate"},
                                           {"{\"speed\": 1}", "there is no setting \"speed\""},
                                           {"{", ":1:1: "}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(file_put(path, wrong[i][0], strlen(wrong[i][0])));
        expect_refused(settings_read(&back, path), wrong[i][1]);
    }
    remove(path);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(settings_are_checked_by_the_table),
        TEST(stopping_anywhere_changes_nothing),
        TEST(stopping_changes_nothing_in_any_recipe),
        TEST(a_finished_run_is_not_run_again),
        TEST(damaged_stories_are_told_again),
        TEST(a_run_may_look_at_another_rhythm_when_it_goes_on),
        TEST(the_price_is_the_receipt_in_every_configuration),
        TEST(kinds_are_priced_in_the_order_of_the_run),
        TEST(one_batch_is_learnt_by_heart),
        TEST(stories_are_learnt_beyond_counting),
        TEST(micro_batches_are_one_batch),
        TEST(every_recipe_follows_fp32),
        TEST(what_is_not_finite_stops_before_the_weights),
        TEST(rolling_back_repeats_nothing),
        TEST(a_folder_has_one_run_at_a_time),
        TEST(wrong_runs_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
