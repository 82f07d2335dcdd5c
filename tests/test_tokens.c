/* Runs with a tokenizer: texts become tokens once, the folder carries both, and what does not agree is refused. */
#include "support/check.h"
#include "support/runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/token_file.h"
#include "step/source.h"
#include "step/tokens.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "train/open.h"

/* ---- A tokenizer of bytes and six merges, as GPT-2's files ---- */

static const char *const merges[][2] = {{"t", "h"}, {"th", "e"}, {"\xc4\xa0", "the"},
                                        {"a", "n"}, {"an", "d"}, {"i", "n"}};
enum { N_MERGES = sizeof merges / sizeof *merges, SIZE = 256 + N_MERGES };

static void gpt2_write(const char *folder, int n_merges) {
    char path[160], text[16];
    snprintf(path, sizeof path, "%s/%s", base, folder);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/%s/vocab.json", base, folder);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 256; i++) {
        text[unicode_put(tokenizer_byte_character((uint8_t)i), (uint8_t *)text)] = 0;
        fprintf(f, "%s\"%s%s\": %d", i ? ", " : "{", *text == '"' || *text == '\\' ? "\\" : "", text, i);
    }
    for (int i = 0; i < n_merges; i++) fprintf(f, ", \"%s%s\": %d", merges[i][0], merges[i][1], 256 + i);
    fprintf(f, "}\n");
    fclose(f);
    snprintf(path, sizeof path, "%s/%s/merges.txt", base, folder);
    f = fopen(path, "w");
    fprintf(f, "#version: 0.2\n");
    for (int i = 0; i < n_merges; i++) fprintf(f, "%s %s\n", merges[i][0], merges[i][1]);
    fclose(f);
}

/* A preset, so that its vocabulary follows from the tokenizer; small, and quick. */
static struct settings words_run(const char *out, const char *tokenizer) {
    struct settings s = small_run(TL_LLAMA, 3000);
    set(&s, "model", "tiny"), set(&s, "layers", "1"), set(&s, "channels", "32"), set(&s, "ff", "32");
    set(&s, "steps", "6"), set(&s, "save_every", "2"), set(&s, "val_share", "0.1");
    if (!strcmp(tokenizer, "chars") || strchr(tokenizer, ':')) set(&s, "tokenizer", tokenizer);
    else set_path(&s, "tokenizer", tokenizer);
    set_path(&s, "out", out);
    return s;
}

static char *bytes_of(const struct settings *s, const char *file, size_t *bytes) {
    char path[SETTING_TEXT + 64];
    snprintf(path, sizeof path, "%s/%s", s->out, file);
    char *data = file_get(path, 1 << 24, bytes);
    if (!data) fail_msg("%s: %s", path, tl_error_message());
    return data;
}

static void expect_same(const struct settings *a, const struct settings *b, const char *file) {
    size_t n, m;
    char *x = bytes_of(a, file, &n), *y = bytes_of(b, file, &m);
    if (n != m || memcmp(x, y, n)) fail_msg("%s differs", file);
    memory_free(x);
    memory_free(y);
}

static char lines[4096];
static void line_keep(const char *line, void *context) {
    (void)context;
    size_t n = strlen(lines);
    snprintf(lines + n, sizeof lines - n, "%s\n", line);
}
static struct run_summary train(const struct settings *s, int64_t stop_after, enum run_end want) {
    struct run_summary summary;
    *lines = 0;
    tl_set_log_hook(line_keep, NULL);
    expect_equal(train_until(s, stop_after, &summary), want);
    tl_set_log_hook(NULL, NULL);
    return summary;
}

static void expect_run_refused(const struct settings *s, const char *part) {
    struct run_summary summary;
    expect_refused(run_until(s, 0, &summary) != RUN_FAILED, part);
}

static void damage(const struct settings *s, const char *file, bool removes) {
    char path[SETTING_TEXT + 64];
    snprintf(path, sizeof path, "%s/%s", s->out, file);
    if (removes) assert_int_equal(unlink(path), 0);
    else {
        struct stat status;
        assert_int_equal(stat(path, &status), 0);
        assert_int_equal(truncate(path, status.st_size / 2), 0);
    }
}

/* ---- Runs ---- */

static void a_stopped_run_maps_its_tokens_again(void **state) {
    (void)state;
    base_begin();
    gpt2_write("words", N_MERGES);
    struct settings whole = words_run("whole", "words"), part = words_run("part", "words");
    struct run_summary summary = train(&whole, 0, RUN_DONE);
    expect_equal(summary.differences, 0);
    assert_non_null(strstr(lines, "3000 bytes are "));
    train(&part, 3, RUN_STOPPED);
    train(&part, 0, RUN_DONE);
    expect_text(lines, ""); /* nothing was tokenized */
    for (int i = 0; i < 4; i++) {
        static const char *const files[] = {"data.tok", "tokenizer/merges.txt", "final/vocab.json",
                                            "final/model.safetensors"};
        expect_same(&whole, &part, files[i]);
    }
    base_end();
}

static void damaged_tokens_and_tokenizers_are_made_again(void **state) {
    (void)state;
    static const char *const files[] = {"data.tok", "val_data.tok", "tokenizer/vocab.json"};
    base_begin();
    gpt2_write("words", N_MERGES);
    struct settings whole = words_run("whole", "words");
    set(&whole, "val_data", whole.data);
    train(&whole, 0, RUN_DONE);
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "run-%d", i);
        struct settings part = whole;
        set_path(&part, "out", name);
        train(&part, 3, RUN_STOPPED);
        damage(&part, files[i / 2], i % 2);
        train(&part, 0, RUN_DONE);
        if (!strstr(lines, "was missing or damaged: rewritten")) fail_msg("%s: \"%s\"", files[i / 2], lines);
        expect_same(&whole, &part, files[i / 2]);
        expect_same(&whole, &part, "final/model.safetensors");
    }
    damage(&whole, "final/merges.txt", true); /* of a run that is done */
    train(&whole, 0, RUN_DONE);
    assert_non_null(strstr(lines, "final was missing or damaged"));
    struct stat status;
    char path[SETTING_TEXT + 64];
    snprintf(path, sizeof path, "%s/final/merges.txt", whole.out);
    assert_int_equal(stat(path, &status), 0);
    base_end();
}

static void a_preset_has_the_vocabulary_of_its_tokenizer(void **state) {
    (void)state;
    struct opened o;
    struct settings s;
    base_begin();
    gpt2_write("words", N_MERGES);
    s = words_run("run", "words");
    train(&s, 0, RUN_DONE);
    assert_true(opened_open(&o, s.out, STEP_NEWEST, NULL));
    expect_equal(tl_model_config_of(o.model)->vocabulary, SIZE);
    tl_tokenizer *t;
    assert_true(opened_tokenizer(&o, NULL, &t)); /* the copy in the run's folder */
    expect_equal(tl_tokenizer_size(t), SIZE);
    tl_tokenizer_free(t);
    opened_close(&o);
    base_end();
}

static void bits_per_byte_compare_tokenizers(void **state) {
    (void)state;
    struct source source;
    base_begin();
    gpt2_write("words", N_MERGES);
    struct settings s = words_run("run", "words");
    set(&s, "eval_batches", "1"), set(&s, "batch", "1");
    struct run_summary summary = train(&s, 0, RUN_DONE);
    assert_true(source_open(&source, &s, SIZE, false));
    int32_t ids[16];
    size_t bytes;
    /* the 16 targets */
    assert_true(tl_token_file_read(source.held_out[0].file, ids, source.held_out[0].first + 1, 16));
    char *text = tl_tokenizer_decode(source.tokenizer, ids, 16, true, &bytes);
    expect_near(summary.bits_per_byte, summary.held_out * 16 / (double)bytes / log(2), 1e-12);
    expect_true(bytes > 16);
    free(text);
    int64_t all, targets = source.held_out[0].last - source.held_out[0].first - 1, epoch = targets / 16 * 16, twice;
    assert_true(source_bytes(&source, &source.held_out[0], 16, epoch, &all));
    assert_true(source_bytes(&source, &source.held_out[0], 16, 2 * epoch + 16, &twice)); /* windows begin again */
    expect_equal(twice, 2 * all + (int64_t)bytes);
    source_close(&source);
    struct settings plain = small_run(TL_LLAMA, 3000);
    set_path(&plain, "out", "plain");
    summary = train(&plain, 0, RUN_DONE);
    expect_near(summary.bits_per_byte, summary.held_out / log(2), 1e-12); /* bytes */
    base_end();
}

/* ---- What does not agree ---- */

static void model_and_tokenizer_must_agree(void **state) {
    (void)state;
    base_begin();
    gpt2_write("words", N_MERGES);
    struct settings s = words_run("run", "words"), small = small_run(TL_LLAMA, 3000);
    set(&s, "vocabulary", "260");
    expect_run_refused(&s, "has 262 tokens, and the model a vocabulary of 260");
    set(&s, "vocabulary", "300"); /* rounded up, as many models are */
    train(&s, 0, RUN_DONE);
    strcpy(small.tokenizer, s.tokenizer); /* a config.json has its own vocabulary */
    set_path(&small, "out", "small");
    expect_run_refused(&small, "has 262 tokens, and the model a vocabulary of 256");
    base_end();
}

static void token_files_must_be_of_the_tokenizer(void **state) {
    (void)state;
    base_begin();
    gpt2_write("words", N_MERGES), gpt2_write("fewer", N_MERGES - 1);
    struct settings s = words_run("run", "words"), other = words_run("other", "fewer");
    train(&s, 0, RUN_DONE);
    set_path(&other, "data", "run/data.tok");
    set(&other, "vocabulary", "262");
    expect_run_refused(&other, "was made with the vocabulary");
    set_path(&other, "tokenizer", "words");
    train(&other, 0, RUN_DONE);
    expect_same(&s, &other, "final/model.safetensors"); /* the same tokens, given as such */
    base_end();
}

static void another_tokenizer_or_text_is_refused_on_resuming(void **state) {
    (void)state;
    base_begin();
    gpt2_write("words", N_MERGES), gpt2_write("moved", N_MERGES), gpt2_write("fewer", N_MERGES - 1);
    struct settings s = words_run("run", "words");
    train(&s, 3, RUN_STOPPED);
    set(&s, "vocabulary", "262");
    set_path(&s, "tokenizer", "fewer");
    expect_run_refused(&s, "tokenizer: was 262 tokens");
    set_path(&s, "tokenizer", "run/tokenizer");
    expect_run_refused(&s, "lies in the run's own folder");
    set_path(&s, "tokenizer", "moved");
    FILE *f = fopen(s.data, "r+");
    int first = fgetc(f);
    rewind(f), fputc(first ^ 1, f), fclose(f);
    expect_run_refused(&s, "data: other contents of the same size");
    f = fopen(s.data, "r+");
    fputc(first, f), fclose(f);
    train(&s, 0, RUN_DONE);
    base_end();
}

static void characters_are_those_of_the_text(void **state) {
    (void)state;
    base_begin();
    struct settings s = words_run("run", "chars"), other;
    train(&s, 0, RUN_DONE);
    other = s;
    set_path(&other, "out", "other"), set(&other, "prompt", "\xe4\xb8\x96");
    expect_run_refused(&other, "prompt: cannot be encoded with the run's tokenizer");
    set(&other, "prompt", settings_usual("prompt"));
    set(&other, "data", "builtin");
    expect_run_refused(&other, "chars needs a text as data");
    set_path(&other, "data", "run/data.tok");
    expect_run_refused(&other, "chars needs a text as data, and");
    base_end();
}

static void a_run_learns_its_tokenizer_from_its_text(void **state) {
    (void)state;
    base_begin();
    struct settings s = words_run("run", "train:300"), whole = words_run("whole", "train:300"), other = s;
    train(&whole, 0, RUN_DONE);
    train(&s, 3, RUN_STOPPED);
    train(&s, 0, RUN_DONE);
    expect_same(&s, &whole, "final/model.safetensors");
    char path[SETTING_TEXT + 32];
    static const char *const folders[] = {"tokenizer", "final"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/tokenizer.json", s.out, folders[i]);
        tl_tokenizer *t = tl_tokenizer_read(path, NULL);
        expect_equal(tl_tokenizer_size(t), 300);
        tl_tokenizer_free(t);
    }
    set_path(&other, "out", "other");
    static const char *const wrong[] = {"train:", "train:256", "train:x", "train:300x", "train:99999999"};
    for (int i = 0; i < 5; i++) {
        set(&other, "tokenizer", wrong[i]);
        expect_run_refused(&other, "need train:N with N from 257 to 1000000");
    }
    set(&other, "tokenizer", "train:300"), set(&other, "data", "builtin");
    expect_run_refused(&other, "train:300 needs a text as data");
    set(&s, "tokenizer", "train:301");
    expect_run_refused(&s, "");
    base_end();
}

static int n_made(void) {
    int n = 0;
    for (const char *at = lines; (at = strstr(at, ": made from ")); at++) n++;
    return n;
}

/* Learning takes long, and prices need the tokenizer too. A run that resumes has it in its folder. */
static void a_run_makes_its_tokenizer_once(void **state) {
    (void)state;
    static const char *const names[] = {"chars", "train:300"};
    for (int i = 0; i < 2; i++) {
        base_begin();
        struct settings whole = words_run("whole", names[i]), part = words_run("part", names[i]);
        train(&whole, 0, RUN_DONE);
        expect_equal(n_made(), 1);
        train(&part, 3, RUN_STOPPED);
        expect_equal(n_made(), 1);
        train(&part, 5, RUN_STOPPED);
        expect_text(lines, ""); /* the one in its folder */
        damage(&part, "tokenizer/tokenizer.json", false);
        train(&part, 0, RUN_DONE);
        expect_equal(n_made(), 1);
        assert_non_null(strstr(lines, "tokenizer was missing or damaged: rewritten"));
        expect_same(&whole, &part, "tokenizer/tokenizer.json");
        expect_same(&whole, &part, "final/model.safetensors");
        tl_set_log_hook(line_keep, NULL);
        *lines = 0;
        char *settings = settings_json(&whole), *price = tl_train_price(settings);
        tl_set_log_hook(NULL, NULL);
        assert_non_null(price);
        expect_equal(n_made(), 1);
        free(settings), free(price);
        base_end();
    }
}

static bool stop_later(void *calls_left) { return (*(int *)calls_left)-- <= 0; }

/* The stop hook ends a run wherever it is asked, before there is a folder while the tokenizer is learned; the same call
 * without it is a run that was never stopped. */
static void a_run_can_be_stopped_before_its_first_step(void **state) {
    (void)state;
    base_begin();
    struct settings whole = words_run("whole", "train:300"), part = words_run("part", "train:300");
    train(&whole, 0, RUN_DONE);
    struct run_summary summary;
    struct stat status;
    int n_stops = 0, n_folders = 0;
    for (;; n_stops++) {
        tl_set_stop_hook(stop_later, &(int){n_stops});
        enum run_end end = train_until(&part, 0, &summary);
        if (end == RUN_DONE) break;
        expect_equal(end, RUN_STOPPED);
        expect_equal(summary.steps, 0);
        expect_equal(tl_error(), TL_OK);
        n_folders += stat(part.out, &status) == 0;
    }
    tl_set_stop_hook(NULL, NULL);
    expect_true(n_stops > 4);                          /* words, merges (twice or more), two texts */
    expect_true(n_folders > 0 && n_folders < n_stops); /* only while texts are tokenized */
    expect_same(&whole, &part, "final/model.safetensors");
    base_end();
}

/* The characters that a run has learnt are all that it takes, also when it goes on. */
static void unknown_characters_are_refused_on_resuming(void **state) {
    (void)state;
    base_begin();
    struct settings s = words_run("run", "chars");
    train(&s, 3, RUN_STOPPED);
    FILE *f = fopen(s.data, "r+");
    fputs("\xe4\xb8\x96", f), fclose(f);
    set(&s, "accept_changes", "true");
    expect_run_refused(&s, "of the text is not in the vocabulary");
    base_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_stopped_run_maps_its_tokens_again),
        TEST(damaged_tokens_and_tokenizers_are_made_again),
        TEST(a_preset_has_the_vocabulary_of_its_tokenizer),
        TEST(bits_per_byte_compare_tokenizers),
        TEST(model_and_tokenizer_must_agree),
        TEST(token_files_must_be_of_the_tokenizer),
        TEST(another_tokenizer_or_text_is_refused_on_resuming),
        TEST(characters_are_those_of_the_text),
        TEST(a_run_learns_its_tokenizer_from_its_text),
        TEST(a_run_makes_its_tokenizer_once),
        TEST(a_run_can_be_stopped_before_its_first_step),
        TEST(unknown_characters_are_refused_on_resuming),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
