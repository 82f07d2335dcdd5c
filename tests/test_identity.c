/* The inputs of a run: changed inputs and settings are refused with both values, or accepted and logged; the same
 * contents elsewhere are the same run; another number of steps follows its rule. */
#include "support/check.h"
#include "support/runs.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "train/identity.h"
#include "train/open.h"
#include "step/price.h"
#include "train/run.h"

static void expect_done(const struct settings *s) {
    struct run_summary summary;
    expect_equal(train_until(s, 0, &summary), RUN_DONE);
    expect_equal(summary.differences, 0);
    expect_text(summary.problem, "");
}

static void expect_refusal(const struct settings *s, const char *part) {
    struct run_summary summary;
    expect_equal(run_train(s, NULL, &summary), RUN_FAILED);
    expect_equal(tl_error(), TL_ERROR_USE);
    if (!strstr(tl_error_message(), part)) fail_msg("the error is \"%s\", want \"%s\"", tl_error_message(), part);
    tl_error_clear();
}

static const char *path_in(const struct settings *s, const char *file) {
    static char path[SETTING_TEXT + 128];
    snprintf(path, sizeof path, "%s/%s", s->out, file);
    return path;
}

/* A whole file; "" where there is none. memory_free it. */
static char *text_of(const char *path, size_t *bytes) {
    if (access(path, F_OK) != 0) fail_msg("%s is not there", path);
    char *text = file_get(path, (size_t)1 << 30, bytes);
    assert_non_null(text);
    return text;
}

static void expect_same_weights(const struct settings *a, const struct settings *b) {
    char file[96];
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int i = 0; i < 2; i++) {
        size_t n_x, n_y;
        snprintf(file, sizeof file, "checkpoints/step-%012lld/%s", (long long)a->steps, files[i]);
        char *x = text_of(path_in(a, file), &n_x), *y = text_of(path_in(b, file), &n_y);
        if (n_x != n_y || memcmp(x, y, n_x)) fail_msg("%s and %s have other %s", a->out, b->out, file);
        memory_free(x);
        memory_free(y);
    }
}

static void expect_in_log(const struct settings *s, const char *part, bool is_there) {
    size_t bytes;
    char *text = text_of(path_in(s, "log.jsonl"), &bytes);
    if ((strstr(text, part) != NULL) != is_there)
        fail_msg("the log has %s\"%s\": %s", is_there ? "no " : "", part, text);
    memory_free(text);
}

/* Stopped in its middle, to be resumed. */
static struct settings stopped_run(struct settings s, const char *name) {
    struct run_summary summary;
    set_path(&s, "out", name);
    expect_equal(train_until(&s, 5, &summary), RUN_STOPPED);
    return s;
}

static void copy(const char *from, const char *to) {
    size_t bytes;
    char *text = text_of(from, &bytes);
    assert_true(file_put(to, text, bytes));
    memory_free(text);
}

static void byte_flip(const char *path, off_t at) {
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    assert_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* ---- Changed inputs ---- */

static void changed_data_is_refused(void **state) {
    (void)state;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000), other;
    char held[128];
    snprintf(held, sizeof held, "%s/held", base);
    copy(s.data, held);
    set(&s, "val_data", held);
    s = stopped_run(s, "run");
    byte_flip(s.data, 1234);
    expect_refusal(&s, "data: other contents of the same size: CRC32C (all) was ");
    byte_flip(s.data, 1234);
    assert_int_equal(truncate(s.data, 1500), 0);
    expect_refusal(&s, "data: had 2000 bytes, has 1500 (");
    assert_int_equal(truncate(s.data, 20), 0); /* too short to train with: the change is reported first */
    expect_refusal(&s, "data: had 2000 bytes, has 20 (");
    copy(held, s.data);
    byte_flip(held, 7);
    expect_refusal(&s, "val_data: other contents of the same size");
    byte_flip(held, 7);
    other = s, set(&other, "val_data", "");
    expect_refusal(&other, "val_data: was ");
    other = s, set(&other, "data", "builtin"), set(&other, "val_data", "");
    expect_refusal(&other, "data: had 2000 bytes, has ");
    expect_done(&s); /* and it is unharmed */
    expect_in_log(&s, "changed", false);
    base_end();
}

static void a_changed_model_is_refused(void **state) {
    (void)state;
    tl_model_config c, changed;
    base_begin();
    struct settings s = stopped_run(small_run(TL_LLAMA, 2000), "run"), other = s;
    assert_true(tl_model_config_read(s.model, &c));
    changed = c, changed.n_layers = 3;
    assert_true(tl_model_config_write(&changed, s.model));
    expect_refusal(&s, "model: n_layers was 2, is 3");
    changed = c, changed.norm_eps = 0.25, changed.rope_base = 5000; /* every tensor has its shape */
    assert_true(tl_model_config_write(&changed, s.model));
    expect_refusal(&s, "model: norm_eps was ");
    expect_refusal(&s, "model: rope_base was 10000, is 5000");
    assert_true(tl_model_config_write(&c, s.model));
    set(&other, "layers", "1");
    expect_refusal(&other, "model: n_layers was 2, is 1");
    set(&other, "layers", "2"); /* which it has */
    expect_done(&other);
    base_end();
}

/* A run that begins with given weights. */
static void changed_weights_are_refused(void **state) {
    (void)state;
    char path[128];
    base_begin();
    struct settings first = small_run(TL_LLAMA, 2000), s = first;
    set_path(&first, "out", "first"), set(&first, "steps", "3");
    expect_done(&first);
    set_path(&s, "model", "first/final");
    s = stopped_run(s, "run");
    snprintf(path, sizeof path, "%s/first/final/model.safetensors", base);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    byte_flip(path, status.st_size - 1);
    expect_refusal(&s, "weights/model.safetensors: other contents of the same size");
    byte_flip(path, status.st_size - 1);
    expect_done(&s);
    base_end();
}

/* The same bytes elsewhere, at another time, under another name: bit for bit the same run. */
static void the_same_contents_are_the_same_run(void **state) {
    (void)state;
    char data[128], model[128];
    base_begin();
    struct settings whole = small_run(TL_LLAMA, 2000), part;
    set_path(&whole, "out", "whole");
    expect_done(&whole);
    part = stopped_run(whole, "part");
    snprintf(data, sizeof data, "%s/moved", base);
    snprintf(model, sizeof model, "%s/model.json", base);
    copy(part.data, data), copy(part.model, model);
    set(&part, "data", data), set(&part, "model", model);
    expect_done(&part);
    expect_same_weights(&whole, &part);
    expect_in_log(&part, "changed", false);
    base_end();
}

static void accepted_changes_are_in_the_log(void **state) {
    (void)state;
    base_begin();
    struct settings s = stopped_run(small_run(TL_GPT2, 3000), "run"), plain;
    byte_flip(s.data, 100);
    set(&s, "lr", "0.001"), set(&s, "batch", "3"), set(&s, "sample_tokens", "0");
    plain = s;
    expect_refusal(&s, "started with --batch 2 --lr 0.004; you gave --batch 3 --lr 0.001 (");
    set(&s, "accept_changes", "true");
    expect_done(&s);
    expect_in_log(
        &s, "\"changed\":\"this run was started with --batch 2 --lr 0.004; you gave --batch 3 --lr 0.001; data: other",
        true);
    expect_done(&plain); /* the accepted change stays, the acceptance does not */
    byte_flip(s.data, 100);
    expect_refusal(&plain, "data: other contents");
    base_end();
}

/* A process with other settings that ended before its first save leaves a price that is not the run's.
 * */
static void a_price_of_other_settings_is_made_anew(void **state) {
    (void)state;
    char kept[128];
    struct run_summary summary;
    base_begin();
    struct settings s = stopped_run(small_run(TL_LLAMA, 2000), "run"), other = s;
    snprintf(kept, sizeof kept, "%s/kept", base);
    set(&other, "eval_every", "1"), set(&other, "sample_tokens", "9"), set_path(&other, "out", "other");
    expect_equal(train_until(&other, 5, &summary), RUN_STOPPED);
    copy(path_in(&other, "price.json"), kept);
    copy(kept, path_in(&s, "price.json"));
    expect_done(&s);
    base_end();
}

/* ---- The checkpoint knows ---- */

static void settings_are_known_without_config_json(void **state) {
    (void)state;
    struct opened o;
    base_begin();
    struct settings s = stopped_run(small_run(TL_LLAMA, 2000), "run"), other = s;
    assert_int_equal(unlink(path_in(&s, "config.json")), 0);
    set(&other, "lr", "0.5");
    expect_refusal(&other, "this run was started with --lr 0.004; you gave --lr 0.5 (");
    char model[SETTING_TEXT + 8];
    snprintf(model, sizeof model, "%s.gone", s.model);
    assert_int_equal(rename(s.model, model), 0);
    assert_true(opened_open(&o, s.out, STEP_NEWEST, NULL)); /* nor the model's file */
    expect_equal(tl_model_config_of(o.model)->n_layers, 2);
    opened_close(&o);
    assert_int_equal(rename(model, s.model), 0);
    expect_done(&s);
    assert_int_equal(access(path_in(&s, "config.json"), F_OK), 0);
    base_end();
}

/* Other held-out data cannot be measured as the run's. */
static void other_data_is_not_taken_for_the_runs(void **state) {
    (void)state;
    struct opened o;
    struct source source;
    base_begin();
    struct settings s = stopped_run(small_run(TL_LLAMA, 2000), "run");
    assert_true(opened_open(&o, s.out, STEP_NEWEST, NULL));
    for (int i = 0; i < 2; i++) {
        assert_true(source_open(&source, &o.settings, 256, false));
        if (i == 0) assert_true(identity_check_data(o.made_from, &o.settings, &source));
        else
            expect_refused(identity_check_data(o.made_from, &o.settings, &source),
                           "the run's data has changed since training: data: other contents");
        source_close(&source);
        byte_flip(s.data, 1999);
    }
    opened_close(&o);
    base_end();
}

/* ---- Another number of steps ---- */

/* Where the schedule does not depend on it, a run that was extended, after its end or before it, is the run that had
 * it from the start. */
static void an_extended_run_is_the_longer_run(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings whole = small_run(TL_GPT2, 600), part;
    set(&whole, "schedule", "constant"), set(&whole, "dropout", "0.1"), set(&whole, "accum", "2");
    set_path(&whole, "out", "whole");
    expect_done(&whole);
    static const char *const first[] = {"6", "20"}; /* 20: fewer in the end */
    for (int i = 0; i < 2; i++) {
        part = whole;
        set(&part, "steps", first[i]);
        set_path(&part, "out", first[i]);
        expect_equal(train_until(&part, i ? 7 : 0, &summary), i ? RUN_STOPPED : RUN_DONE);
        set(&part, "steps", "12");
        expect_equal(train_until(&part, 8, &summary), RUN_STOPPED);
        assert_true(access(path_in(&part, "final/model.safetensors"), F_OK) != 0); /* step 6 is no longer the end */
        expect_done(&part);
        expect_same_weights(&whole, &part);
        expect_in_log(&part,
                      i ? "\"changed\":\"it had --steps 20, now --steps 12"
                        : "{\"step\":6,\"changed\":\"it had --steps 6, now --steps 12",
                      true);
        expect_done(&part);
    }
    base_end();
}

static double lr_of(const struct settings *s, int64_t step) {
    char line[4096];
    double lr = NAN;
    FILE *file = fopen(path_in(s, "log.jsonl"), "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *entry = json_loads(line, 0, NULL);
        assert_non_null(entry);
        if (json_integer_value(json_object_get(entry, "step")) == step && json_object_get(entry, "lr"))
            lr = json_real_value(json_object_get(entry, "lr"));
        json_decref(entry);
    }
    fclose(file);
    return lr;
}

/* The learning rate is that of a run with the new number, whichever the cadences and whatever comes first after the
 * extension. */
static void the_schedule_is_that_of_the_new_steps(void **state) {
    (void)state;
    static const char *const cadences[][2] = {{"0", "7"}, {"7", "0"}, {"4", "9"}, {"9", "4"}};
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    set(&s, "batch", "1"), set(&s, "seq", "2"), set(&s, "sample_tokens", "25"); /* samples reserve more than steps */
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "run-%d", i);
        set_path(&s, "out", name);
        set(&s, "eval_every", cadences[i][0]), set(&s, "sample_every", cadences[i][1]);
        set(&s, "steps", "6");
        expect_done(&s);
        const tl_schedule before = {TL_SCHEDULE_COSINE, .warmup_steps = 3, .total_steps = 6, .min_factor = s.min_lr},
                          after = {TL_SCHEDULE_COSINE, .warmup_steps = 3, .total_steps = 15, .min_factor = s.min_lr};
        set(&s, "steps", "15");
        expect_done(&s);
        for (int64_t step = 1; step <= 15; step++)
            expect_near(lr_of(&s, step), s.lr * tl_schedule_factor(step <= 6 ? &before : &after, step - 1), 0);
    }
    set(&s, "steps", "15");
    expect_done(&s); /* done: nothing to do */
    set(&s, "steps", "14");
    expect_refusal(
        &s, "this run was started with --steps 15 and has done 15; you gave --steps 14 (need more than are done)");
    base_end();
}

/* The text stays the same, though a run of that many steps would have begun with more of it. */
static void an_extended_run_keeps_its_stories(void **state) {
    (void)state;
    struct run_summary summary;
    struct stat before, after;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    set(&s, "data", "builtin"), set(&s, "batch", "8"), set(&s, "seq", "32"), set_path(&s, "out", "run");
    set(&s, "steps", "4");
    expect_done(&s);
    assert_int_equal(stat(path_in(&s, "stories.txt"), &before), 0);
    set(&s, "steps", "100000");
    expect_equal(train_until(&s, 6, &summary), RUN_STOPPED);
    assert_int_equal(stat(path_in(&s, "stories.txt"), &after), 0);
    expect_equal(before.st_size, after.st_size);
    expect_true(source_stories(&s) > 20 * (int64_t)before.st_size);
    set(&s, "stories", "300000");
    expect_refusal(&s, "this run was started with --stories 262144; you gave --stories 300000 (");
    base_end();
}

/* ---- Files ---- */

static json_t *record_of(const struct settings *s) {
    struct source source;
    tl_model_config c;
    assert_true(tl_model_preset("tiny", &c));
    assert_true(source_open(&source, s, 65536, true));
    json_t *record = identity_new(s, &c, "", &source);
    source_close(&source);
    return record;
}

static const char *compared(const struct settings *s, const json_t *then) {
    static char text[640];
    json_t *now = record_of(s);
    assert_non_null(now);
    identity_compare(then, now, text, sizeof text);
    json_decref(now);
    return text;
}

static const char *checked(const json_t *record) {
    const json_t *file = json_object_get(json_object_get(record, "files"), "data");
    return json_string_value(json_object_get(file, "checked"));
}

/* 65 MiB, nearly all of it a hole: the ends and every change of two 256ths are found. */
static void large_files_are_sampled(void **state) {
    (void)state;
    const off_t size = (off_t)65 << 20, stratum = size / 256;
    base_begin();
    struct settings s = settings_default();
    set_path(&s, "data", "large");
    assert_true(file_put(s.data, "x", 1));
    assert_int_equal(truncate(s.data, size), 0);
    json_t *then = record_of(&s);
    expect_text(checked(then), "sample");
    expect_text(compared(&s, then), "");
    const off_t ends[] = {0, 65535, size - 65536, size - 1};
    for (int i = 0; i < 4; i++) {
        byte_flip(s.data, ends[i]);
        expect_true(strstr(compared(&s, then), "data: other contents of the same size: CRC32C (sample) was ") != NULL);
        byte_flip(s.data, ends[i]);
    }
    char *ones = memory_new((size_t)(2 * stratum));
    assert_non_null(ones);
    for (int i = 0; i < 3; i++) {
        off_t at = size / 3 * i + 70000;
        int fd = open(s.data, O_RDWR);
        memset(ones, 1, (size_t)(2 * stratum));
        assert_true(pwrite(fd, ones, (size_t)(2 * stratum), at) == 2 * stratum);
        expect_true(*compared(&s, then) != 0);
        memset(ones, 0, (size_t)(2 * stratum));
        assert_true(pwrite(fd, ones, (size_t)(2 * stratum), at) == 2 * stratum);
        expect_text(compared(&s, then), "");
        close(fd);
    }
    memory_free(ones);
    json_decref(then);
    base_end();
}

/* A token file's own checksums stand for all of its blocks: one token that is another is found, wherever it is. */
static void large_token_files_are_known_by_their_checksums(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    json_t *record[2];
    base_begin();
    int32_t *ids = memory_new(N * sizeof *ids);
    assert_non_null(ids);
    memset(ids, 0, N * sizeof *ids);
    struct settings s = settings_default();
    set_path(&s, "data", "large.tok");
    for (int i = 0; i < 2; i++) {
        tl_token_writer *w = tl_token_writer_new(s.data, 2, 1000, 0);
        for (int k = 0; k < 33; k++) {
            ids[777777] = k == 17 && i; /* one of 34 million */
            assert_true(tl_token_writer_add(w, ids, N));
        }
        assert_true(tl_token_writer_commit(w));
        assert_non_null(record[i] = record_of(&s));
        expect_text(checked(record[i]), "blocks");
    }
    char text[640];
    expect_true(strstr(identity_compare(record[0], record[1], text, sizeof text), "CRC32C (blocks) was ") != NULL);
    expect_text(identity_compare(record[0], record[0], text, sizeof text), "");
    memory_free(ids);
    for (int i = 0; i < 2; i++) json_decref(record[i]);
    base_end();
}

static int reads_fail(const char *operation, const char *path) {
    return !strcmp(operation, "read") && strstr(path, "text-") ? 5 : 0; /* EIO */
}

static void a_file_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    struct run_summary summary;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    set_path(&s, "out", "run");
    file_fault = reads_fail;
    expect_equal(run_train(&s, NULL, &summary), RUN_FAILED);
    file_fault = NULL;
    expect_error(TL_ERROR_IO, "cannot be read");
    expect_done(&s);
    base_end();
}

/* Untrusted records: whatever they hold, comparing them is safe. */
static void broken_records_are_told(void **state) {
    (void)state;
    static const char *const broken[] = {
        "{}", "[]", "5", "{\"model\": {}}", "{\"model\": 1, \"files\": {}}", "{\"model\": {}, \"files\": []}"};
    static const char *const strange[] = {"{\"model\": {\"n_layers\": [], \"family\": 7}, \"files\": {\"data\": 5}}",
                                          "{\"model\": {\"n_layers\": \"\\u001b[2J\"}, \"files\": {\"data\": "
                                          "{\"bytes\": \"x\", \"path\": \"\\u001b\"}, \"\\n\": {}}}"};
    tl_model_config c;
    char text[640];
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    json_t *now = record_of(&s);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        json_t *then = json_loads(broken[i], JSON_DECODE_ANY, NULL);
        expect_text(identity_compare(then, now, text, sizeof text), "its record of data and model cannot be read");
        expect_true(!identity_model(then, &c));
        json_decref(then);
    }
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        json_t *then = json_loads(strange[i], 0, NULL);
        identity_compare(then, now, text, sizeof text);
        expect_true(strstr(text, "model: n_layers was ") && !strchr(text, '\033') && !strchr(text, '\n'));
        expect_true(!identity_model(then, &c));
        json_decref(then);
    }
    assert_true(identity_model(now, &c));
    expect_equal(c.n_layers, 4);
    json_decref(now);
    base_end();
}

/* ---- One run at a time ---- */

struct second {
    const struct settings *settings;
    int n_asked;
    char in_thread[512], in_callback[512], price[512];
};

static void *second_train(void *context) {
    struct second *second = context;
    struct run_summary summary;
    tl_set_error_policy(TL_RETURN);
    if (run_train(second->settings, NULL, &summary) == RUN_FAILED)
        snprintf(second->in_thread, sizeof second->in_thread, "%s", tl_error_message());
    tl_error_clear();
    char *price = price_text(second->settings);
    if (!price) snprintf(second->price, sizeof second->price, "%s", tl_error_message());
    free(price);
    tl_error_clear();
    return NULL;
}

static void second_begin(void *context, const struct run_news *news) {
    struct second *second = context;
    struct run_summary summary;
    pthread_t thread;
    if (news->step != 3 || second->n_asked++) return;
    assert_int_equal(pthread_create(&thread, NULL, second_train, second), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (run_train(second->settings, NULL, &summary) == RUN_FAILED)
        snprintf(second->in_callback, sizeof second->in_callback, "%s", tl_error_message());
    tl_error_clear();
}

static void a_process_trains_one_run_at_a_time(void **state) {
    (void)state;
    static const char words[] = "/first: this process is training that run already, and trains one at a time (";
    struct run_summary summary;
    base_begin();
    struct settings first = small_run(TL_LLAMA, 2000), other = first;
    set_path(&first, "out", "first"), set_path(&other, "out", "other");
    struct second second = {.settings = &other};
    struct run_listener listener = {.tell = second_begin, .context = &second};
    expect_equal(run_train(&first, &listener, &summary), RUN_DONE);
    free(summary.text);
    expect_equal(summary.differences, 0);
    expect_true(strstr(second.in_thread, words) && strstr(second.in_callback, words) && strstr(second.price, words));
    assert_true(access(other.out, F_OK) != 0);
    expect_done(&other);
    base_end();
}

/* ---- Reading changes nothing ---- */

/* Weights that overflow: there are no probabilities to draw from. */
static void a_sample_without_probabilities_costs_no_save(void **state) {
    (void)state;
    static const char *const ways[][2] = {{"top_k", "0"}, {"top_k", "5"}, {"top_p", "0.5"}, {"temperature", "0"}};
    struct run_summary summary;
    tl_model_config c;
    base_begin();
    struct settings s = small_run(TL_LLAMA, 2000);
    assert_true(tl_model_config_read(s.model, &c));
    c.init_std = 3e38;
    assert_true(tl_model_config_write(&c, s.model));
    set(&s, "on_nonfinite", "skip");
    for (int i = 0; i < 4; i++) {
        struct settings one = s;
        set(&one, ways[i][0], ways[i][1]), set_path(&one, "out", ways[i][i % 2]);
        if (i == 1) set_path(&one, "out", "five");
        expect_equal(run_train(&one, NULL, &summary), RUN_DONE);
        expect_equal(summary.differences, 0);
        expect_text(summary.problem, "");
        expect_equal(summary.n_skipped, 12);
        expect_text(summary.text, "A????");
        free(summary.text);
        assert_int_equal(access(path_in(&one, "checkpoints/step-000000000012/manifest.json"), F_OK), 0);
    }
    base_end();
}

int main(void) {
    tl_set_error_policy(TL_RETURN);
    const struct CMUnitTest tests[] = {
        TEST(changed_data_is_refused),
        TEST(a_changed_model_is_refused),
        TEST(changed_weights_are_refused),
        TEST(the_same_contents_are_the_same_run),
        TEST(accepted_changes_are_in_the_log),
        TEST(a_price_of_other_settings_is_made_anew),
        TEST(settings_are_known_without_config_json),
        TEST(other_data_is_not_taken_for_the_runs),
        TEST(an_extended_run_is_the_longer_run),
        TEST(the_schedule_is_that_of_the_new_steps),
        TEST(an_extended_run_keeps_its_stories),
        TEST(large_files_are_sampled),
        TEST(large_token_files_are_known_by_their_checksums),
        TEST(a_file_that_cannot_be_read_is_an_error),
        TEST(broken_records_are_told),
        TEST(a_process_trains_one_run_at_a_time),
        TEST(a_sample_without_probabilities_costs_no_save),
    };
    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
