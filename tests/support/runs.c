#include "support/runs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"

char base[64];

int base_ranks(void) { return tl_comm_size(tl_comm_world()); }

static bool is_first(void) { return tl_comm_rank(tl_comm_world()) == 0; }

void base_begin(void) {
    strcpy(base, "/tmp/tally-train-XXXXXX");
    if (is_first()) assert_non_null(mkdtemp(base));
    if (base_ranks() == 1) return;
    tl_scope scope = tl_scope_begin();
    tl_tensor *name = tl_from_data(base, TL_SHAPE(sizeof base), TL_U8, NULL);
    assert_true(tl_to_data(tl_broadcast(name, 0, tl_comm_world()), base, sizeof base));
    tl_scope_end(scope);
}
void base_remove(const char *name) {
    char command[256];
    assert_true(tl_comm_barrier(tl_comm_world()));
    if (!is_first()) return;
    snprintf(command, sizeof command, "rm -rf '%s/%s'", base, name);
    assert_int_equal(system(command), 0);
}
void base_end(void) {
    char command[128];
    assert_true(tl_comm_barrier(tl_comm_world()));
    if (!is_first()) return;
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    assert_int_equal(system(command), 0);
}

void set(struct settings *s, const char *name, const char *value) {
    if (!settings_set(s, name, value)) fail_msg("%s %s: %s", name, value, tl_error_message());
}

void set_path(struct settings *s, const char *name, const char *file) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", base, file);
    set(s, name, path);
}

const char *run_device(void) {
    const char *name = getenv("TALLY_TEST_DEVICE");
    return name && *name ? name : "cpu";
}

struct stop {
    int64_t at; /* steps after which the run is asked to stop; 0: never */
    volatile sig_atomic_t flag;
};
static void stop_at(void *context, const struct run_news *news) {
    struct stop *stop = context;
    if (stop->at && news->step >= stop->at) stop->flag = 1;
}

enum run_end run_until(const struct settings *s, int64_t stop_after, struct run_summary *summary) {
    struct stop stop = {stop_after, 0};
    struct run_listener listener = {.tell = stop_at, .context = &stop, .stop = &stop.flag, .lists_memory = true};
    enum run_end end = run_train(s, &listener, summary);
    free(summary->text);
    return end;
}

enum run_end train_until(const struct settings *s, int64_t stop_after, struct run_summary *summary) {
    enum run_end end = run_until(s, stop_after, summary);
    if (end == RUN_FAILED) fail_msg("the run failed: %s", tl_error_message());
    return end;
}

struct settings small_run(tl_family family, int64_t n_bytes) {
    struct settings s = settings_default();
    tl_model_config c;
    char path[128];
    assert_true(tl_model_preset(family == TL_GPT2 ? "tiny-gpt2" : family == TL_MIXTRAL ? "tiny-moe" : "tiny", &c));
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
    set(&s, "device", run_device());
    return s;
}

struct settings configuration(int i) {
    static const char *const recipes[] = {"fp32", "amp", "bf16", "bf16-lean", "fp16", "fp8", "fp4"};
    static const char *const policies[] = {"none", "every-k", "sqrt", "full", "nothing", "selective"};
    static const char *const optimizers[] = {"adamw",   "adam", "sgd",           "adagrad",
                                             "rmsprop", "muon", "schedule-free", "adafactor"};
    static const char *const accums[] = {"1", "2", "3"}, *const batches[] = {"1", "2", "5"},
                             *const seqs[] = {"8", "16", "31"};
    char name[32];
    struct settings s = small_run(i % 2 ? TL_GPT2 : TL_LLAMA, 3000);
    snprintf(name, sizeof name, "run-%d", i);
    set_path(&s, "out", name);
    set(&s, "steps", "5");
    set(&s, "eval_every", i % 3 ? "2" : "1");
    set(&s, "sample_every", i % 4 ? "0" : "3");
    set(&s, "recipe", recipes[i % 7]);
    set(&s, "checkpointing", policies[i / 2 % 6]);
    set(&s, "optimizer", optimizers[i / 3 % 8]);
    if (i / 3 % 8 == 6) set(&s, "schedule", "constant");
    if (i / 3 % 8 < 2) set(&s, "moments", i % 3 == 1 ? "bf16" : i % 3 == 2 ? "8bit" : "f32");
    if (i % 2 && i / 3 % 8 == 2) set(&s, "momentum", "0.9");
    set(&s, "accum", accums[i / 5 % 3]);
    set(&s, "batch", batches[i / 7 % 3]);
    set(&s, "seq", seqs[i / 11 % 3]);
    set(&s, "lr", "1e-3");
    if (i % 4 == 3 && i / 3 % 8 != 6) set(&s, "ema", "0.9");
    set(&s, "clip", i % 5 ? "1" : "0");
    if (i % 4 == 1 || i % 4 == 2) set(&s, "dropout", "0.1"); /* both families */
    set(&s, "top_k", i % 6 ? "0" : "5");
    if (i % 3 == 1) {
        set(&s, "document_mask", "true");
        set(&s, "document_token", "32"); /* words */
    }
    return s;
}
