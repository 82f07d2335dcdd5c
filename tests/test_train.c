/* Whole runs, small: price = receipt, resumed = uninterrupted, accumulated = at once, learning, and what must not
 * happen. */
#include "support/check.h"
#include "support/runs.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "train/checkpoint.h"
#include "train/measure.h"
#include "train/open.h"
#include "step/noise.h"
#include "step/ramp.h"
#include "step/rounds.h"
#include "step/price.h"
#include "train/run.h"
#include "tensor/device.h"
#include "step/settings.h"

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

/* The log without times. */
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
    const bool has_experts = !strcmp(recipe, "amp") || !strcmp(recipe, "bf16");
    struct settings whole = small_run(has_experts ? TL_MIXTRAL : TL_GPT2, 600), part;
    set(&whole, "recipe", recipe);
    if (has_experts) set(&whole, "router_aux_loss", "0.01"), set(&whole, "router_z_loss", "0.001");
    set(&whole, "label_smoothing", "0.1"), set(&whole, "z_loss", "0.001");
    set(&whole, "accum", "2");
    if (!strcmp(recipe, "fp32")) set(&whole, "accum", "3"), set(&whole, "batch_warmup", "5");
    set(&whole, "ema", "0.75"), set(&whole, "noise_scale", "true");
    set(&whole, "dropout", "0.1");
    set(&whole, "checkpointing", "sqrt");
    set(&whole, "val_share", "0.2");
    if (strcmp(recipe, "fp32")) {
        set(&whole, "document_mask", "true");
        set(&whole, "document_token", "32");
    }
    set_path(&whole, "out", recipe);
    expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    const int64_t pairs = summary.pairs;
    expect_equal(summary.causal_pairs, whole.document_mask ? 12 * 2 * 2 * (16 * 17 / 2) : 0);
    expect_equal(pairs > 0 && pairs < summary.causal_pairs, whole.document_mask);
    for (int64_t stop = first; stop + 1 < whole.steps; stop += every) {
        char name[64];
        snprintf(name, sizeof name, "%s-%lld", recipe, (long long)stop);
        part = whole;
        set_path(&part, "out", name);
        expect_equal(train_until(&part, stop, &summary), RUN_STOPPED);
        expect_true(summary.steps == stop ||
                    summary.steps == stop + 1); /* news come a step late, unless something is due */
        expect_equal(train_until(&part, 0, &summary), RUN_DONE);
        expect_equal(summary.differences, 0);
        expect_text(summary.problem, "");
        expect_equal(summary.pairs, pairs);
        expect_same_run(&whole, &part);
    }
}

/* At this learning rate the loss only grows: the first evaluation is the best. The evaluations after steps 2, 4 and
 * 6 are the last; steps, samples and saves are those of a run of 6 steps. */
static void a_run_ends_early_when_it_does_not_improve(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings whole = small_run(TL_LLAMA, 600), part;
    set(&whole, "steps", "40"), set(&whole, "eval_every", "2"), set(&whole, "sample_every", "4");
    set(&whole, "save_every", "5"), set(&whole, "val_share", "0.2"), set(&whole, "lr", "30"), set(&whole, "clip", "0");
    set(&whole, "warmup", "0"), set(&whole, "early_stop", "2");
    set_path(&whole, "out", "early");
    expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
    expect_equal(summary.steps, 6);
    expect_equal(summary.early_of, 40);
    expect_equal(summary.best_step, 2);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    part = whole;
    set_path(&part, "out", "early-resumed");
    expect_equal(train_until(&part, 3, &summary), RUN_STOPPED);
    expect_equal(train_until(&part, 0, &summary), RUN_DONE);
    expect_equal(summary.steps, 6);
    expect_equal(summary.differences, 0);
    whole.steps = part.steps = 6;
    expect_same_run(&whole, &part);
    whole.steps = 40; /* the same command: it is finished */
    expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
    expect_equal(summary.was_done, true);
    expect_equal(summary.early_of, 40);
    whole.early_stop = 0; /* without it, the run goes on */
    expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
    expect_equal(summary.steps, 40);
    expect_equal(summary.differences, 0);
    base_end();
}

/* The gradient of the first micro-batch is that of a run with one micro-batch in a step. */
static void the_noise_scale_is_that_of_two_gradients(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings large = small_run(TL_LLAMA, 600), small;
    set(&large, "steps", "1"), set(&large, "warmup", "0");
    small = large;
    set(&large, "accum", "4"), set(&large, "noise_scale", "true");
    double norm[2];
    for (int i = 0; i < 2; i++) {
        struct settings *s = i ? &large : &small;
        set_path(s, "out", i ? "large" : "small");
        expect_equal(train_until(s, 0, &summary), RUN_DONE);
        char *log = log_text(s), *at = strstr(log, "\"grad_norm\": ");
        norm[i] = number_parse(at + strlen("\"grad_norm\": "), NULL);
        free(log);
    }
    const double b = (double)(small.batch * small.seq), B = 4 * b, g = norm[0] * norm[0], G = norm[1] * norm[1];
    const double expected = (g - G) / (1 / b - 1 / B) / ((B * G - b * g) / (B - b));
    expect_true(expected > 0);
    expect_true(fabs(summary.noise_scale / expected - 1) < 1e-5);
    base_end();
}

/* Estimates of |G|^2 and S with known means, of which the first has the wrong sign. */
static void the_noise_scale_is_known_once_its_averages_are_positive(void **state) {
    (void)state;
    struct noise noise = {0};
    noise_add(&noise, 5, 1, 1, 4); /* |G|^2 = (4 - 5) / 3, S = 4 / (3/4) */
    expect_true(isnan(noise_scale(&noise)));
    noise_add(&noise, 5, 2, 1, 4); /* 1 and 4: the means are 1/3 and 14/3 */
    expect_true(fabs(noise_scale(&noise) - 14) < 1e-9);
    for (int i = 0; i < 2000; i++) noise_add(&noise, 5, 2, 1, 4);
    expect_true(fabs(noise_scale(&noise) - 4) < 1e-6);
}

/* Two steps of one micro-batch, two of two, two of three: in the order of a run that has one in every step. */
static void batch_warmup_begins_with_few_micro_batches(void **state) {
    (void)state;
    static const int64_t tokens[] = {1, 2, 4, 6, 9, 12}, accum[] = {1, 1, 2, 2, 3, 3};
    struct run_summary summary;
    double curve[2][6];
    base_begin();
    struct settings one = small_run(TL_LLAMA, 600), many;
    set(&one, "steps", "6"), set(&one, "warmup", "0"), set(&one, "schedule", "constant");
    many = one;
    set(&many, "accum", "3"), set(&many, "batch_warmup", "4");
    for (int i = 0; i < 2; i++) {
        struct settings *s = i ? &many : &one;
        set_path(s, "out", i ? "many" : "one");
        expect_equal(train_until(s, 0, &summary), RUN_DONE);
        expect_equal(summary.differences, 0);
        char *log = log_text(s), *at = log;
        for (int k = 0; k < 6; k++, at++) {
            at = strstr(at, "\"tokens\": ");
            assert_non_null(at);
            expect_equal(atoi(at + strlen("\"tokens\": ")), (i ? tokens[k] : k + 1) * s->batch * s->seq);
            curve[i][k] = number_parse(strstr(at, "\"loss\": ") + strlen("\"loss\": "), NULL);
        }
        free(log);
    }
    expect_true(curve[0][0] == curve[1][0] && curve[0][1] == curve[1][1]);
    expect_true(curve[0][2] != curve[1][2]);
    for (int k = 0; k < 6; k++) expect_equal(ramp_accum(&many, k), accum[k]);
    for (int k = 0; k <= 6; k++) expect_equal(ramp_batches(&many, k), k ? tokens[k - 1] : 0);
    expect_equal((int64_t)ramp_steps_for(&many, 12), 6);
    expect_equal((int64_t)ramp_steps_for(&many, 5), 4);
    expect_equal(summary.tokens, 12 * many.batch * many.seq);
    set(&many, "accum", "64"), set(&many, "batch_warmup", "700"); /* 1, 10, 19, 28, 37, 46, 55 in 100 steps each */
    expect_equal(ramp_accum(&many, 99), 1);
    expect_equal(ramp_accum(&many, 600), 55);
    expect_equal(ramp_batches(&many, 701), 100 * (1 + 10 + 19 + 28 + 37 + 46 + 55) + 64);
    base_end();
}

static void text_write(const char *name, int seed) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", base, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 300; i++) fputc('a' + (i * i + seed * i) % 23, file);
    fclose(file);
}

/* Each set has the loss that it has alone, whatever the others are; all are priced, and a resume changes none. */
static void sets_of_held_out_data_have_their_own_losses(void **state) {
    (void)state;
    static const char *const names[] = {"one", "two", "three"};
    struct run_summary all, alone;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 600), part;
    set(&s, "steps", "4"), set(&s, "eval_every", "2"), set(&s, "save_every", "2"), set(&s, "eval_batches", "3");
    part = s;
    for (int i = 0; i < 3; i++) {
        char flag[192];
        text_write(names[i], i);
        snprintf(flag, sizeof flag, "%s=%s/%s", names[i], base, names[i]);
        assert_true(settings_set_flag(&s, "val_data", flag));
    }
    set_path(&s, "out", "sets");
    expect_equal(train_until(&s, 2, &all), RUN_STOPPED);
    expect_equal(train_until(&s, 0, &all), RUN_DONE);
    expect_equal(all.differences, 0);
    expect_equal(all.sets.n, 3);
    expect_true(all.held_out == all.sets.at[0].loss);
    for (int i = 0; i < 3; i++) {
        set_path(&part, "val_data", names[i]), set_path(&part, "out", "alone");
        expect_equal(train_until(&part, 0, &alone), RUN_DONE);
        expect_text(all.sets.at[i].name, names[i]);
        expect_true(alone.held_out == all.sets.at[i].loss);
        expect_equal(alone.sets.n, 0);
        base_remove("alone");
    }
    expect_true(all.sets.at[0].loss != all.sets.at[1].loss);
    text_write("two", 9);
    expect_refused(run_until(&s, 0, &all) == RUN_DONE, "val_data/two: other contents");
    static const char *const wrong[][2] = {{"a=", "is not a set"},
                                           {"a=x,b", "is not a set"},
                                           {"a=x,a=y", "two sets are called"},
                                           {"a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9", "more than 8"},
                                           {"a2345678901234567890123456789012=x", "at most 31"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        set(&part, "val_data", wrong[i][0]);
        expect_refused(settings_check(&part), wrong[i][1]);
    }
    base_end();
}

static void stopping_anywhere_changes_nothing(void **state) {
    (void)state;
    base_begin();
    resumed_runs_are_the_same("fp32", 1, 1);
    base_end();
}

/* A stop leaves a step between micro-batches and an evaluation between batches, however many are to come; the step is
 * done again when the run resumes, and so is the evaluation. */
static void a_stop_does_not_wait_for_what_is_long(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings whole = small_run(TL_LLAMA, 600), part;
    set(&whole, "accum", "3"), set(&whole, "dropout", "0.1"), set(&whole, "eval_batches", "3");
    set(&whole, "steps", "4"), set(&whole, "eval_every", "2"), set(&whole, "val_share", "0.2");
    set_path(&whole, "out", "whole");
    expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
    part = whole;
    set_path(&part, "out", "part");
    volatile sig_atomic_t at_once = 1;
    const struct run_listener listener = {.stop = &at_once};
    expect_equal(run_train(&part, &listener, &summary), RUN_STOPPED);
    free(summary.text);
    expect_equal(summary.steps, 0);
    for (int64_t at = 2; at <= 4; at += 2) { /* after the last step, too */
        expect_equal(train_until(&part, at, &summary), RUN_STOPPED);
        expect_equal(summary.steps, at);
        expect_equal(isnan(summary.held_out), at == 2); /* the second time, the first evaluation was made up for */
    }
    expect_equal(train_until(&part, 0, &summary), RUN_DONE);
    expect_true(isfinite(summary.held_out));
    expect_equal(summary.differences, 0);
    expect_same_run(&whole, &part);
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
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    double loss = summary.loss, held_out = summary.held_out;
    expect_true(!summary.was_done && isfinite(loss) && isfinite(held_out));
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.first_step, 12);
    expect_true(summary.was_done && summary.loss == loss && summary.held_out == held_out);
    expect_true(summary.tokens_per_s > 0 && summary.times.steps_s == 0);
    base_end();
}

/* ---- Documents ---- */

static json_t *receipt_of(const struct settings *s) {
    char path[SETTING_TEXT + 16];
    snprintf(path, sizeof path, "%s/receipt.json", s->out);
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

/* With documents of a word each, the pairs that are used are counted from the data here, and the receipt has them. With
 * a token that never comes, every window is one document: no bit differs from a run without the mask. */
static void documents_are_counted_and_cost_no_bit(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    for (tl_family family = TL_GPT2; family <= TL_LLAMA; family++) {
        struct settings plain = small_run(family, 900), whole, words;
        plain.batch = 1; /* GPT-2's gradient of positions is summed over rows in another way */
        set_path(&plain, "out", "plain");
        whole = words = plain;
        set(&whole, "document_mask", "true");
        set(&whole, "document_token", "0");
        set_path(&whole, "out", "whole");
        set(&words, "document_mask", "true");
        set(&words, "document_token", "32");
        set_path(&words, "out", "words");
        expect_equal(train_until(&plain, 0, &summary), RUN_DONE);
        expect_equal(summary.causal_pairs, 0);
        expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
        expect_equal(summary.pairs, 12 * (16 * 17 / 2));
        expect_equal(summary.causal_pairs, summary.pairs);
        if (!strcmp(run_device(), "cpu")) {
            expect_same_file(&plain, &whole, "checkpoints/step-000000000012/model.safetensors");
            expect_same_file(&plain, &whole, "checkpoints/step-000000000012/optimizer.safetensors");
        }
        expect_equal(train_until(&words, 0, &summary), RUN_DONE);
        expect_equal(summary.differences, 0);

        tl_token_file *text = tl_token_file_open(words.data, TL_TOKENS_BYTES);
        tl_loader_options o = tl_loader_defaults();
        o.file = text;
        o.last = 900 - (int64_t)(words.val_share * 900);
        o.time = 16;
        o.device = check_meta(); /* where only */
        tl_loader *l = tl_loader_new(&o);
        int64_t pairs = 0;
        for (int64_t step = 0; step < 12; step++) {
            int32_t ids[16];
            assert_true(tl_token_file_read(text, ids, tl_loader_where(l, step, 0, NULL), 16));
            for (int t = 0, length = 0; t < 16; t++) pairs += length = ids[t] == ' ' ? 1 : length + 1;
        }
        tl_loader_free(l);
        tl_token_file_close(text);
        expect_equal(summary.pairs, pairs);
        json_t *receipt = receipt_of(&words), *kinds = json_object_get(receipt, "kinds");
        const json_t *attention = json_object_get(json_object_get(kinds, "step"), "attention");
        expect_equal(json_integer_value(json_object_get(attention, "pairs")), pairs);
        expect_equal(json_integer_value(json_object_get(attention, "causal_pairs")), 12 * (16 * 17 / 2));
        json_decref(receipt);
        base_end();
        base_begin();
    }
    base_end();
}

/* The stories in a folder are compared with the built-in ones. */
static void damaged_stories_are_told_again(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings whole = small_run(TL_LLAMA, 2000), part;
    set(&whole, "data", "builtin");
    set_path(&whole, "out", "whole");
    expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
    part = whole;
    set_path(&part, "out", "part");
    expect_equal(train_until(&part, 5, &summary), RUN_STOPPED);
    char path[SETTING_TEXT + 16];
    snprintf(path, sizeof path, "%s/stories.txt", part.out);
    assert_true(file_put(path, "Once upon a time there was nothing.", 35));
    expect_equal(train_until(&part, 0, &summary), RUN_DONE);
    expect_same_file(&whole, &part, "stories.txt");
    expect_same_run(&whole, &part);
    base_end();
}

/* ---- Where it was made ---- */

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

static char log_lines[1024]; /* of the log */
static void line_keep(const char *line, void *context) {
    (void)context;
    snprintf(log_lines + strlen(log_lines), sizeof log_lines - strlen(log_lines), "%s\n", line);
}

/* Saves a run's only checkpoint again, with this value (a JSON text; NULL: none) as a key of its state, or of the
 * state's record. */
static void state_change(const struct settings *s, const char *record, const char *key, const char *value) {
    char path[SETTING_TEXT + 96];
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    tl_named_tensor tensors[2][64];
    tl_safetensors *opened[2];
    struct trainer_part parts[2];
    struct file_folder *run = file_folder_open(s->out);
    struct checkpoints all;
    assert_true(run && checkpoints_open(&all, run, false));
    struct checkpoint *c = checkpoint_open_newest(&all, false);
    assert_non_null(c);
    json_t *state = json_loads(checkpoint_state(c), 0, NULL), *at = record ? json_object_get(state, record) : state;
    if (value) json_object_set_new(at, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else json_object_del(at, key);
    char *text = json_dumps(state, JSON_REAL_PRECISION(17));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/step-%012lld/%s", all.folder->path, (long long)checkpoint_step(c), files[i]);
        assert_non_null(opened[i] = tl_safetensors_open(path));
        parts[i] = (struct trainer_part){.file = files[i], .tensors = tensors[i], .n = tl_safetensors_count(opened[i])};
        assert_true(parts[i].n <= 64);
        for (int t = 0; t < parts[i].n; t++) {
            const char *name = tl_safetensors_name(opened[i], t);
            tensors[i][t] = (tl_named_tensor){.name = name, .tensor = tl_safetensors_get(opened[i], name)};
        }
    }
    assert_true(checkpoint_save(&all, checkpoint_step(c), parts, 2, text));
    for (int i = 0; i < 2; i++) tl_safetensors_close(opened[i]);
    free(text);
    json_decref(state);
    checkpoint_close(c);
    checkpoints_close(&all);
    file_folder_close(run);
}

/* A run that resumes warns about another chip, instruction set or library, and about an unreadable record, but not
 * about threads, old checkpoints or the same machine. In each case it continues, here to the same bits. */
static void a_checkpoint_says_where_it_was_made(void **state) {
    (void)state;
    static const char other[] = " resumes, but the result may not be bitwise identical: it was made with ",
                      broken[] = " has an unreadable machine record: ";
    static const struct {
        const char *record, *key, *value, *line, *part; /* the change, and the line that it causes */
    } cases[] = {
        {"made_on", "chip", "\"Abacus-1\"", other, "chip Abacus-1 (here "},
        {"made_on", "isa", "\"beads\"", other, "instruction set beads (here "},
        {"made_on", "isa", "\"\"", other, "instruction set none (here "},
        {"made_on", "libraries", "\"libbeads 7\"", other, "libraries libbeads 7 (here "},
        {"made_on", "device", "\"cuda\"", other, "device cuda (here cpu)\n"},
        {"made_on", "version", "\"0.0.0\"", other, "Tally 0.0.0 (here "},
        {"made_on", "threads", "4096", "", ""},
        {"made_on", "new_key", "[]", "", ""},
        {NULL, "made_on", NULL, "", ""},
        {NULL, "made_from", NULL, " has no record of data and model: ", "without comparing them"},
        {NULL, "made_on", "5", broken, ""},
        {NULL, "made_on", "[]", broken, ""},
        {NULL, "made_on", "{}", broken, ""},
        {"made_on", "threads", "-1", broken, ""},
        {"made_on", "chip", "7", broken, ""},
        {"made_on", "chip", "\"a\\nb\"", broken, ""},
        {"made_on", "chip",
         "\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"",
         broken, ""}};
    struct run_summary summary;
    base_begin();
    struct settings whole = small_run(TL_LLAMA, 2000), part;
    set(&whole, "sample_tokens", "0");
    set_path(&whole, "out", "whole");
    expect_equal(train_until(&whole, 0, &summary), RUN_DONE);
    tl_set_log_hook(line_keep, NULL);
    for (int i = -1; i < (int)(sizeof cases / sizeof *cases); i++) { /* -1: as it is */
        char name[32];
        snprintf(name, sizeof name, "part-%d", i);
        part = whole;
        set_path(&part, "out", name);
        expect_equal(train_until(&part, 5, &summary), RUN_STOPPED);
        if (i >= 0) state_change(&part, cases[i].record, cases[i].key, cases[i].value);
        *log_lines = 0;
        expect_equal(train_until(&part, 0, &summary), RUN_DONE);
        const char *line = i < 0 ? "" : cases[i].line, *in = i < 0 ? "" : cases[i].part;
        if (!*line
                ? *log_lines
                : (strncmp(log_lines, "checkpoint of step ", 19) || !strstr(log_lines, line) || !strstr(log_lines, in)))
            fail_msg("case %d: the log has \"%s\" (need \"%s...%s\")", i, log_lines, line, in);
        expect_same_run(&whole, &part);
        *log_lines = 0;
        expect_equal(train_until(&part, 0, &summary), RUN_DONE); /* it is done: nothing resumes */
        expect_text(log_lines, "");
    }
    tl_set_log_hook(NULL, NULL);
    expect_same_file(&whole, &part, "machine.json");
    expect_equal(n_lines_with("whole/machine.json", "\"isa\""), 1);
    base_end();
}

/* ---- Price = receipt; random configurations are swept in test_sweep.c ---- */

/* A sample of a long text reserves more than a step of two tokens, so the order of the two changes what each finds
 * free. */
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
        expect_equal(train_until(&s, 0, &summary), RUN_DONE);
        if (summary.differences || *summary.problem)
            fail_msg("sample every %s, eval every %s: %d differences; %s", orders[i][0], orders[i][1],
                     summary.differences, summary.problem);
    }
    base_end();
}

/* ---- Learning ---- */

/* The same model with this many channels. */
static void widen(const struct settings *s, int64_t channels) {
    tl_model_config c;
    assert_true(tl_model_config_read(s->model, &c));
    c.channels = channels, c.head_size = channels / c.n_heads, c.ff = 3 * channels, c.context = 128;
    assert_true(tl_model_config_write(&c, s->model));
}

/* The loss of a model that knows how often each byte follows every two bytes: H(byte | two before), nats. */
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
/* Tests of learning take minutes under sanitizers, which find what they can find in the other runs: those train every
 * recipe, too. */
static void skip_learning_under_sanitizers(void) {
#if defined(__SANITIZE_ADDRESS__)
    skip();
#endif
}

static void stories_are_learnt_beyond_counting(void **state) {
    (void)state;
    skip_learning_under_sanitizers();
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    widen(&s, 64);
    set(&s, "data", "builtin");
    set_path(&s, "out", "run");
    set(&s, "steps", "400"), set(&s, "warmup", "40"), set(&s, "batch", "4"), set(&s, "seq", "128");
    set(&s, "eval_every", "0"), set(&s, "eval_batches", "32"), set(&s, "threads", "0");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
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
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
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
    expect_equal(train_until(&s, 0, &at_once), RUN_DONE);
    set(&s, "batch", "1");
    set(&s, "accum", "4");
    set(&s, "eval_batches", "8"); /* the same held-out tokens */
    set_path(&s, "out", "four");
    expect_equal(train_until(&s, 0, &in_parts), RUN_DONE);
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

/* The whole curve, at every evaluation, within the effect of this rounding on 160 steps. */
static void every_recipe_follows_fp32(void **state) {
    (void)state;
    skip_learning_under_sanitizers();
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
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(curve_read(&s, plain, N), N);
    print_message("    fp32       %.4f ... %.4f\n", plain[0], plain[N - 1]);
    expect_true(plain[N - 1] < 2.85); /* it learns: bytes by their frequency would give 3.3 */
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        double worst = 0;
        set(&s, "recipe", recipes[i].name);
        set_path(&s, "out", recipes[i].name);
        expect_equal(train_until(&s, 0, &summary), RUN_DONE);
        expect_equal(curve_read(&s, other, N), N);
        for (int k = 0; k < N; k++) worst = fmax(worst, fabs(other[k] / plain[k] - 1));
        print_message("    %-10s ends at %.4f, fp32 at %.4f; furthest apart by %.2f %%\n", recipes[i].name,
                      other[N - 1], plain[N - 1], 100 * worst);
        expect_true(worst <= recipes[i].bound);
    }
    base_end();
}

/* ---- What a run leaves behind ---- */

static json_t *json_of(const struct settings *s, const char *file) {
    char path[SETTING_TEXT + 64];
    snprintf(path, sizeof path, "%s/%s", s->out, file);
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static bool has_file(const struct settings *s, const char *file) {
    char path[SETTING_TEXT + 64];
    snprintf(path, sizeof path, "%s/%s", s->out, file);
    return access(path, F_OK) == 0;
}

/* 12 steps, every 5: saves after 5, 10 and 12. Each writes every byte of parameters and moments. */
static void saves_are_priced_and_counted(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000);
    set(&s, "save_every", "5"), set(&s, "save_best", "false");
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    json_t *receipt = json_of(&s, "receipt.json");
    json_t *save = json_object_get(json_object_get(receipt, "kinds"), "save");
    expect_equal(json_integer_value(json_object_get(save, "count")), 3);
    assert_null(json_object_get(save, "unplanned"));
    json_t *totals = json_object_get(json_object_get(save, "ledger"), "totals");
    char want[32];
    snprintf(want, sizeof want, "%lld", (long long)summary.n_parameters * 4 * 3);
    expect_text(json_string_value(json_object_get(totals, "bytes_read")), want);
    json_decref(receipt);
    base_end();
}

static void looking_at_other_times_after_a_stop_is_counted(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_GPT2, 3000);
    set(&s, "save_every", "2"), set(&s, "sample_every", "4");
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 7, &summary), RUN_STOPPED);
    set(&s, "eval_every", "3"), set(&s, "save_every", "5"), set(&s, "sample_every", "0"), set(&s, "eval_batches", "3");
    set(&s, "prompt", "Another"), set(&s, "temperature", "0");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE); /* and when it is asked again */
    expect_equal(summary.differences, 0);
    base_end();
}

static double loss_on(const char *folder, int64_t step, const struct settings *s) {
    struct opened o;
    struct source source;
    struct measured m;
    assert_true(opened_open(&o, folder, step, NULL));
    assert_true(source_open(&source, s, 256, false));
    assert_true(
        measure(o.model, &source.held_out[0],
                &(struct measure_options){
                    .batch = s->batch, .time = s->seq, .stride = s->seq, .most = s->eval_batches, .document_token = -1},
                &m));
    source_close(&source);
    opened_close(&o);
    return m.loss;
}

/* The learning rate is so large that the loss rises again: the best step is one of the first, and no save is due
 * there. */
static void the_best_step_is_saved_wherever_it_is(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000);
    set(&s, "eval_every", "1"), set(&s, "keep", "1"), set(&s, "lr", "1"), set(&s, "schedule", "constant");
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_true(summary.best_step > 0 && summary.best_step < 12 && summary.best < summary.held_out);
    expect_near(loss_on(s.out, STEP_BEST, &s), summary.best, 1e-6 * summary.best);
    expect_near(loss_on(s.out, STEP_NEWEST, &s), summary.held_out, 1e-6 * summary.held_out);
    expect_near(loss_on(s.out, summary.best_step, &s), summary.best, 1e-6 * summary.best);
    char folder[SETTING_TEXT + 64];
    snprintf(folder, sizeof folder, "%s/final", s.out);
    expect_near(loss_on(folder, STEP_NEWEST, &s), summary.held_out, 1e-6 * summary.held_out);
    base_end();
}

static void the_last_weights_are_there_for_others(void **state) {
    (void)state;
    struct run_summary summary;
    char path[SETTING_TEXT + 64];
    base_begin();
    struct settings s = small_run(TL_GPT2, 3000);
    set(&s, "recipe", "bf16");
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 5, &summary), RUN_STOPPED);
    expect_true(!has_file(&s, "final")); /* only for runs trained to the end */
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_true(has_file(&s, "final/config.json") && has_file(&s, "final/model.safetensors"));
    snprintf(path, sizeof path, "%s/final/model.safetensors", s.out);
    assert_int_equal(remove(path), 0); /* as when the process died just before */
    snprintf(path, sizeof path, "%s/receipt.json", s.out);
    assert_int_equal(remove(path), 0);
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_true(has_file(&s, "final/model.safetensors") && has_file(&s, "receipt.json"));
    expect_equal(summary.differences, 0);
    base_end();
}

static void file_make(const struct settings *s, const char *file) {
    char path[SETTING_TEXT + 64];
    snprintf(path, sizeof path, "%s/%s", s->out, file);
    assert_true(file_put(path, "x", 1));
}

static void file_take_away(const struct settings *s, const char *file) {
    char path[SETTING_TEXT + 64];
    snprintf(path, sizeof path, "%s/%s", s->out, file);
    assert_int_equal(remove(path), 0);
}

static void what_a_killed_process_left_is_swept_away(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000);
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    static const char *const dead[] = {".tally-123-4.tmp", "final/.tally-99999-0.tmp",
                                       "checkpoints/step-000000000012/.tally-7-12.tmp"};
    static const char *const others[] = {".tally-x.tmp", "tally-1-2.tmp", ".tally-1-2.tmp.old", "notes.tmp"};
    static const char *const marks[] = {NULL, "lock", "run.json"}; /* either of them shows that a run was here */
    for (int m = 0; m < 3; m++) {
        if (marks[m]) file_take_away(&s, marks[m]);
        for (int i = 0; i < 3; i++) file_make(&s, dead[i]);
        for (int i = 0; i < 4; i++) file_make(&s, others[i]);
        expect_equal(train_until(&s, 0, &summary), RUN_DONE);
        for (int i = 0; i < 3; i++) expect_true(!has_file(&s, dead[i]));
        for (int i = 0; i < 4; i++) expect_true(has_file(&s, others[i]));
    }
    base_end();
}

/* ---- Memory ---- */

/* Narrow gradients go into their f32 sums one by one: 4 bytes per parameter, and never 2 more for all of them. */
static void narrow_gradients_do_not_pile_up(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000);
    set(&s, "batch", "1"), set(&s, "seq", "2"), set(&s, "recipe", "bf16"), set(&s, "accum", "2");
    set(&s, "sample_tokens", "0");
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    uint64_t n = (uint64_t)summary.n_parameters, gradients = summary.peak_by_purpose[TL_GRADIENT];
    if (!(gradients >= 4 * n && gradients < 5 * n))
        fail_msg("%llu bytes of gradients at the peak, for %llu parameters", (unsigned long long)gradients,
                 (unsigned long long)n);
    base_end();
}

static int64_t advised_batch(const char *message) {
    const char *at = strstr(message, "it fits with --batch ");
    return at ? atoll(at + strlen("it fits with --batch ")) : 0;
}

static void what_does_not_fit_is_told_before_the_first_step(void **state) {
    (void)state;
    struct run_summary summary;
    char text[32];
    base_begin();
    struct settings s = small_run(TL_LLAMA, 30000);
    set(&s, "batch", "1600"), set(&s, "seq", "32"), set(&s, "val_share", "0"), set(&s, "sample_tokens", "0");
    set(&s, "memory_limit", "130MiB");
    set_path(&s, "out", "too-much");
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    expect_equal(tl_error(), TL_ERROR_MEMORY);
    const char *message = tl_error_message();
    if (!strstr(message, "this run needs") || !strstr(message, "may use 130.00 MiB") ||
        !strstr(message, "bytes asked") || !strstr(message, "activation") || !strstr(message, "--checkpointing"))
        fail_msg("the message is: %s", message);
    expect_true(!has_file(&s, "log.jsonl"));
    int64_t batch = advised_batch(message);
    tl_error_clear();
    expect_true(batch > 0 && batch < 1600);
    /* it fits, and one more does not */
    snprintf(text, sizeof text, "%lld", (long long)batch);
    set(&s, "batch", text), set(&s, "steps", "3"), set_path(&s, "out", "fits");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    snprintf(text, sizeof text, "%lld", (long long)batch + 1);
    set(&s, "batch", text), set_path(&s, "out", "one-more");
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    expect_equal(tl_error(), TL_ERROR_MEMORY);
    tl_error_clear();
    set(&s, "memory_limit", "a lot");
    expect_refused(price_text(&s), "memory_limit: \"a lot\" is not a number of bytes");
    base_end();
}

/* The machine has less memory than was known: the run fails on the way, and suggests settings that fit. */
static void memory_that_ends_on_the_way_is_told_too(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 30000);
    set(&s, "batch", "400"), set(&s, "seq", "32"), set(&s, "val_share", "0"), set(&s, "sample_tokens", "0");
    set_path(&s, "out", "run");
    tl_pool_trim(check_cpu());
    tl_set_pool_limit(check_cpu(), (size_t)30 << 20);
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    tl_set_pool_limit(check_cpu(), 0);
    expect_equal(tl_error(), TL_ERROR_MEMORY);
    const char *message = tl_error_message();
    if (!strstr(message, "out of memory on cpu") || !advised_batch(message)) fail_msg("the message is: %s", message);
    tl_error_clear();
    base_end();
}

/* Whichever allocation fails, the run ends with an error, nothing is left behind, and the same command can be given
 * again. */
static void a_run_survives_every_allocation_that_fails(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 1000);
    set(&s, "steps", "3"), set(&s, "warmup", "1"), set(&s, "eval_every", "1"), set(&s, "sample_tokens", "2");
    set(&s, "recipe", "bf16"), set(&s, "accum", "2");
    set_path(&s, "out", "whole");
    tl_fail_allocation((uint64_t)1 << 60, false); /* only counts */
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    uint64_t total = tl_fail_allocation(0, false);
    expect_true(total > 1000);
    int n_runs = getenv("TALLY_SOAK") ? 2000 : 60, n_failed = 0;
    for (int i = 0; i < n_runs; i++) {
        char name[32];
        snprintf(name, sizeof name, "run-%d", i);
        set_path(&s, "out", name);
        tl_pool_trim(check_cpu());
        uint64_t n = i < 20 ? (uint64_t)i + 1 : (uint64_t)i * 2654435761u % total + 1;
        tl_fail_allocation(n, false);
        enum run_end end = run_train(&s, NULL, &summary);
        tl_fail_allocation(0, false);
        free(summary.text);
        n_failed += end == RUN_FAILED;
        if ((end == RUN_FAILED) != (tl_error() == TL_ERROR_MEMORY))
            fail_msg("allocation %llu of %llu: end %d and \"%s\"", (unsigned long long)n, (unsigned long long)total,
                     (int)end, tl_error_message());
        tl_error_clear();
        check_nothing_live(__FILE__, __LINE__);
        if (i % 10 == 0) expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    }
    print_message("    %d of %d runs failed, for one of %llu allocations\n", n_failed, n_runs,
                  (unsigned long long)total);
    expect_true(n_failed > n_runs / 2);
    base_end();
}

static void utilisation_is_a_share_of_the_peak(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000);
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_true(isnan(summary.mfu) && isnan(summary.hfu)); /* the peak of the machine is not known */
    set(&s, "peak", "1e12"), set_path(&s, "out", "other");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    double palm = 6 * (double)summary.n_parameters + 12.0 * 2 * 16 * 16; /* N, and 12 L T d */
    expect_near(summary.mfu, palm * summary.tokens_per_s / 1e12, 1e-12);
    expect_near(summary.hfu, summary.flops_per_s / 1e12, 1e-12);
    base_end();
}

/* A device whose every step takes two seconds by its own clock, and the first two five: however long this thread
 * takes for other work, and whenever it reads the results. */
static int64_t slow_marks;
static int64_t slow_mark(tl_device *device) {
    (void)device;
    return ++slow_marks;
}
static double slow_mark_seconds(tl_device *device, int64_t from, int64_t to) {
    (void)device, (void)from;
    return to <= 3 ? 5 : 2; /* marks 1 and 2 are those of the first step, 3 ends the second */
}

struct speeds {
    int n_steps, n_wrong;
};
static void speeds_note(void *context, const struct run_news *news) {
    struct speeds *speeds = context;
    if (news->text || isfinite(news->held_out)) return;
    speeds->n_steps++;
    if (news->step_s != (news->step <= 2 ? 5 : 2)) speeds->n_wrong++;
}

static void speed_is_that_of_the_steps_by_the_devices_clock(void **state) {
    (void)state;
    struct run_summary summary;
    struct speeds speeds = {0, 0};
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000); /* 12 steps of 2 x 16 tokens, three evaluations */
    set_path(&s, "out", "run"), set(&s, "save_every", "4");
    tl_device *device = tl_device_find(s.device);
    const struct device_functions *own = device->functions;
    struct device_functions slow = *own;
    slow.mark = slow_mark, slow.mark_seconds = slow_mark_seconds;
    slow_marks = 0;
    device->functions = &slow;
    struct run_listener listener = {.tell = speeds_note, .context = &speeds};
    enum run_end end = run_train(&s, &listener, &summary);
    device->functions = own;
    free(summary.text);
    expect_equal(end, RUN_DONE);
    expect_equal(speeds.n_steps, 12);
    expect_equal(speeds.n_wrong, 0);
    expect_near(summary.times.first_steps_s, 10, 1e-12);
    expect_near(summary.times.steps_s, 20, 1e-12);
    expect_near(summary.tokens_per_s, 16, 1e-12); /* 32 tokens in two seconds */
    expect_near(summary.flops_per_s, summary.flops / 12 / 2, 1e-6 * summary.flops_per_s);
    const struct run_times *t = &summary.times;
    expect_true(t->start_s > 0 && t->evaluation_s > 0 && t->sampling_s > 0 && t->saving_s > 0);
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
    expect_equal(train_until(&s, 0, &summary), RUN_NOT_FINITE);
    assert_non_null(strstr(summary.problem, "is not finite; the weights were not touched"));
    set(&s, "on_nonfinite", "skip");
    set_path(&s, "out", "skip");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_true(summary.n_skipped > 0);
    base_end();
}

/* Every batch overflows from some step on: the run goes back three times, and logs and saves nothing twice. */
static void rolling_back_repeats_nothing(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_GPT2, 3000);
    set(&s, "lr", "1e6"), set(&s, "optimizer", "sgd"), set(&s, "clip", "0"), set(&s, "warmup", "0");
    set(&s, "schedule", "constant"), set(&s, "sample_tokens", "0");
    set(&s, "on_nonfinite", "rollback"), set(&s, "save_every", "1"), set(&s, "eval_every", "1");
    set_path(&s, "out", "back");
    expect_equal(train_until(&s, 0, &summary), RUN_NOT_FINITE);
    int bad = 0;
    expect_equal(sscanf(summary.problem, "step %d:", &bad), 1);
    expect_true(bad >= 2);
    expect_equal(n_lines_with("back/log.jsonl", "\"held_out\""), bad - 1); /* one for each step that stands */
    base_end();
}

/* After an error that suggests a change you can make it: a run that was never saved may restart in its folder. */
static void a_run_that_never_began_may_be_given_other_settings(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 3000);
    set_path(&s, "out", "run");
    set(&s, "memory_limit", "1MiB");
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    expect_equal(tl_error(), TL_ERROR_MEMORY);
    tl_error_clear();
    set(&s, "memory_limit", ""), set(&s, "batch", "1"), set(&s, "steps", "5"), set(&s, "data", "builtin");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    set(&s, "batch", "2");
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    expect_error(TL_ERROR_USE, "this run was started with --batch 1; you gave --batch 2 (");
    base_end();
}

static void a_folder_has_one_run_at_a_time(void **state) {
    (void)state;
    struct run_summary summary;
    char path[128];
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    snprintf(path, sizeof path, "%s/run/lock", base);
    int lock = open(path, O_RDWR);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    assert_non_null(strstr(tl_error_message(), "another process is training in this folder"));
    tl_error_clear();
    close(lock);
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    base_end();
    tl_set_error_policy(policy);
}

static void expect_failed(const struct settings *s, const char *part) {
    struct run_summary summary;
    expect_equal(run_train(s, NULL, &summary), RUN_FAILED);
    if (!strstr(tl_error_message(), part)) fail_msg("the error is \"%s\", want \"%s\"", tl_error_message(), part);
    tl_error_clear();
}

static void wrong_runs_are_refused_by_name(void **state) {
    (void)state;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000), other;
    set_path(&s, "out", "run");
    expect_equal(train_until(&s, 0, &summary), RUN_DONE);
    other = s;
    set(&other, "lr", "0.5");
    expect_failed(&other, "this run was started with --lr 0.004; you gave --lr 0.5 (");
    other = s, set(&other, "seq", "33");
    expect_failed(&other, "exceed the model's context of 32");
    other = s, set(&other, "optimizer", "lion"), set(&other, "moments", "bf16");
    expect_failed(&other, "the optimizer lion has no moments");
    other = s, set(&other, "model", "gpt7");
    expect_failed(&other, "there is no model \"gpt7\"");
    other = s, set(&other, "model", "deep-linear");
    expect_failed(&other, "is not a language model");
    other = s, set(&other, "dropout", "0.5");
    expect_failed(&other, "this run was started with --dropout 0; you gave --dropout 0.5 (");
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
    tl_set_error_policy(policy);
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
    char words[256];
    expect_text(settings_conflict(&s, &back, true, words, sizeof words), "");
    expect_true(back.lr == s.lr && back.nesterov && !strcmp(back.prompt, s.prompt));
    expect_text(settings_choice(&back, "recipe"), "bf16-lean");
    set(&back, "beta1", "0.5");
    expect_text(settings_conflict(&s, &back, true, words, sizeof words),
                "this run was started with --beta1 0.7; you gave --beta1 0.5");
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

/* ---- Time ---- */

/* Except for times. */
static void expect_same_receipt(const struct settings *a, const struct settings *b) {
    json_t *x = json_of(a, "receipt.json"), *y = json_of(b, "receipt.json"), *kind;
    const char *name;
    json_object_foreach(json_object_get(x, "kinds"), name, kind) json_object_del(kind, "time");
    json_object_foreach(json_object_get(y, "kinds"), name, kind) json_object_del(kind, "time");
    expect_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

static void profiling_changes_no_count(void **state) {
    (void)state;
    base_begin();
    struct settings plain = small_run(TL_GPT2, 4000), timed;
    struct run_summary summary;
    timed = plain;
    set_path(&plain, "out", "run");
    expect_equal(train_until(&plain, 0, &summary), RUN_DONE);
    expect_equal(summary.profile.n_steps, 0);
    char aside[128], own[128];
    snprintf(own, sizeof own, "%s/run", base);
    snprintf(aside, sizeof aside, "%s/plain", base);
    assert_int_equal(rename(own, aside), 0); /* receipts name their folder */
    set_path(&timed, "out", "run");
    struct run_listener listener = {.profile_steps = 4};
    expect_equal(run_train(&timed, &listener, &summary), RUN_DONE);
    free(summary.text);
    expect_equal(summary.differences, 0);
    snprintf(plain.out, sizeof plain.out, "%s", aside);
    expect_same_receipt(&plain, &timed);
    expect_same_run(&plain, &timed);

    struct profile *p = &summary.profile;
    expect_equal(p->n_steps, 4);
    double by_module = 0, flops = 0, floor_s = 0;
    for (size_t i = 0; i < p->rows.n; i++) profile_floor_add(p, &p->rows.rows[i], (double)(i + 1));
    for (size_t i = 0; i < p->modules.n; i++) floor_s += p->modules.rows[i].floor_s;
    expect_true(floor_s == (double)(p->rows.n * (p->rows.n + 1) / 2) && floor_s == profile_floor_s(p));
    for (size_t i = 0; i < p->modules.n; i++) by_module += p->modules.rows[i].time_s;
    for (size_t i = 0; i < p->ops.n; i++) flops += p->ops.rows[i].flops;
    expect_true(profile_kernel_s(p) > 0 && profile_kernel_s(p) <= p->step_s);
    expect_true(fabs(by_module - profile_kernel_s(p)) <= 1e-9 * by_module);
    expect_true(flops == 4 * summary.flops / (double)summary.steps); /* of every phase, whichever row has the time */
    for (size_t i = 1; i < p->ops.n; i++) expect_true(p->ops.rows[i].time_s <= p->ops.rows[i - 1].time_s);
    bool has_layers = false;
    for (size_t i = 0; i < p->modules.n; i++)
        has_layers = has_layers || !strcmp(p->modules.rows[i].name, "model.*.attn.c_attn");
    expect_true(has_layers);
    profile_free(&summary.profile);
    base_end();
}

struct faults {
    long at_10, at_20;
};
static void count_faults(void *context, const struct run_news *news) {
    struct faults *f = context;
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    if (news->step == 10) f->at_10 = usage.ru_minflt;
    if (news->step == 20) f->at_20 = usage.ru_minflt;
}

/* From the log of steps 11 to 20. */
static double wait_share(const struct settings *s) {
    char path[SETTING_TEXT + 16], line[4096];
    double wait = 0, all = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", s->out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 1; fgets(line, sizeof line, file); i++) {
        json_t *entry = json_loads(line, 0, NULL), *time = json_object_get(entry, "time");
        if (i > 10 && i <= 20) {
            assert_true(json_is_real(json_object_get(time, "wait_s")));
            wait += json_real_value(json_object_get(time, "wait_s"));
            all += json_real_value(json_object_get(time, "step_s"));
        }
        json_decref(entry);
    }
    fclose(file);
    return wait / all;
}

/* A page fault costs as much as a small op, and returning memory each step causes hundreds of them. Usually there are
 * none; four in ten steps are allowed, for a buffer of the C library that grows. */
static void steps_touch_no_fresh_memory_and_do_not_wait(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* it does not reuse freed memory, and its shadow memory faults too */
#endif
    static const char *const recipes[] = {"fp32", "bf16", "amp"};
    base_begin();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct settings s = small_run(TL_GPT2, 200000);
        struct run_summary summary;
        struct faults faults = {0};
        struct run_listener listener = {.tell = count_faults, .context = &faults};
        set(&s, "model", "tiny-gpt2");
        set(&s, "recipe", recipes[i]);
        set(&s, "steps", "24");
        set(&s, "seq", "64");
        set(&s, "batch", "4");
        set(&s, "eval_every", "0");
        set(&s, "threads", "2");
        set_path(&s, "out", recipes[i]);
        expect_equal(run_train(&s, &listener, &summary), RUN_DONE);
        free(summary.text);
        printf("    %s: %ld page faults in 10 steps, %.3f %% waiting\n", recipes[i], faults.at_20 - faults.at_10,
               100 * wait_share(&s));
        expect_true(faults.at_10 > 0 && faults.at_20 - faults.at_10 <= 4);
        expect_true(wait_share(&s) < 0.01);
    }
    base_end();
}

/* ---- Rounds that are billed and not run ---- */

static int pick(uint64_t *seed, int n) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((*seed >> 33) % (uint64_t)n);
}

/* To the last byte, FLOP and call, over recipes, checkpoints, optimizers, devices and numbers of rounds. */
static void skipped_rounds_cost_what_rounds_cost(void **state) {
    (void)state;
    static const char *const recipes[] = {"fp32", "amp", "bf16", "bf16-lean", "fp16", "fp8", "fp4"};
    static const char *const policies[] = {"none", "full", "sqrt", "nothing", "selective", "every-k"};
    static const char *const optimizers[] = {"adamw", "sgd", "rmsprop"}, *const devices[] = {"cpu", "cuda"};
    uint64_t seed = 7;
    for (int i = 0; i < 24; i++) {
        struct settings s = settings_default();
        char number[16];
        static const char *const models[] = {"nano", "tiny-gpt2", "tiny-moe"};
        set(&s, "model", models[pick(&seed, 3)]);
        set(&s, "recipe", recipes[i % 7]);
        set(&s, "checkpointing", policies[pick(&seed, 6)]);
        set(&s, "optimizer", optimizers[pick(&seed, 3)]);
        set(&s, "device", devices[pick(&seed, 2)]);
        set(&s, "seq", pick(&seed, 2) ? "31" : "16");
        s.layers = 1 + pick(&seed, 3);
        s.batch = 1 + pick(&seed, 3);
        s.eval_batches = 1 + pick(&seed, 20);
        snprintf(number, sizeof number, "%d", 1 + pick(&seed, 40));
        set(&s, "accum", number);
        set(&s, "steps", "4");
        set(&s, "warmup", "1");
        set(&s, "sample_tokens", "3");
        char *quick = price_text(&s);
        rounds_are_all_run = true;
        char *all = price_text(&s);
        rounds_are_all_run = false;
        if (!quick || !all) fail_msg("no price: %s", tl_error_message());
        if (strcmp(quick, all))
            fail_msg("accum %s, recipe %s, checkpointing %s: the prices differ", number, recipes[i % 7],
                     settings_choice(&s, "checkpointing"));
        free(quick);
        free(all);
    }
}

/* Ten rounds or a million: the same number of requests, and a hundred thousand times the calls. */
static void a_million_rounds_are_priced_as_fast_as_ten(void **state) {
    (void)state;
    double calls[2];
    for (int i = 0; i < 2; i++) {
        struct settings s = settings_default();
        set(&s, "accum", i ? "1000000" : "10");
        set(&s, "eval_batches", i ? "1000000000" : "10");
        set(&s, "sample_tokens", "0");
        char *price = price_text(&s);
        json_t *root = price ? json_loads(price, 0, NULL) : NULL;
        const json_t *step = json_object_get(json_object_get(root, "kinds"), "step");
        const char *text =
            json_string_value(json_object_get(json_object_get(json_object_get(step, "ledger"), "totals"), "flops"));
        if (!text) fail_msg("no price: %s", tl_error_message());
        calls[i] = strtod(text, NULL);
        json_decref(root);
        free(price);
    }
    expect_near(calls[1] / calls[0], 1e5, 1e2); /* the update is in both once */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(skipped_rounds_cost_what_rounds_cost),
        TEST(a_million_rounds_are_priced_as_fast_as_ten),
        TEST(settings_are_checked_by_the_table),
        TEST(stopping_anywhere_changes_nothing),
        TEST(a_stop_does_not_wait_for_what_is_long),
        TEST(stopping_changes_nothing_in_any_recipe),
        TEST(a_finished_run_is_not_run_again),
        TEST(documents_are_counted_and_cost_no_bit),
        TEST(damaged_stories_are_told_again),
        TEST(a_checkpoint_says_where_it_was_made),
        TEST(kinds_are_priced_in_the_order_of_the_run),
        TEST(one_batch_is_learnt_by_heart),
        TEST(stories_are_learnt_beyond_counting),
        TEST(micro_batches_are_one_batch),
        TEST(every_recipe_follows_fp32),
        TEST(saves_are_priced_and_counted),
        TEST(looking_at_other_times_after_a_stop_is_counted),
        TEST(the_best_step_is_saved_wherever_it_is),
        TEST(the_last_weights_are_there_for_others),
        TEST(what_a_killed_process_left_is_swept_away),
        TEST(narrow_gradients_do_not_pile_up),
        TEST(what_does_not_fit_is_told_before_the_first_step),
        TEST(memory_that_ends_on_the_way_is_told_too),
        TEST(a_run_survives_every_allocation_that_fails),
        TEST(utilisation_is_a_share_of_the_peak),
        TEST(speed_is_that_of_the_steps_by_the_devices_clock),
        TEST(what_is_not_finite_stops_before_the_weights),
        TEST(rolling_back_repeats_nothing),
        TEST(a_run_ends_early_when_it_does_not_improve),
        TEST(the_noise_scale_is_that_of_two_gradients),
        TEST(the_noise_scale_is_known_once_its_averages_are_positive),
        TEST(batch_warmup_begins_with_few_micro_batches),
        TEST(sets_of_held_out_data_have_their_own_losses),
        TEST(a_run_that_never_began_may_be_given_other_settings),
        TEST(a_folder_has_one_run_at_a_time),
        TEST(wrong_runs_are_refused_by_name),
        TEST(profiling_changes_no_count),
        TEST(steps_touch_no_fresh_memory_and_do_not_wait),
    };
    return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
