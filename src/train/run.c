#include "train/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/kinds.h"
#include "train/trainer.h"

#define PATH_BYTES (SETTING_TEXT + 64)

struct run {
    struct settings settings;
    const struct run_listener *listener;
    struct run_summary *summary;
    struct source source;
    struct trainer *trainer;
    struct kinds kinds;
    FILE *log;
    long log_bytes;       /* of the log when the last checkpoint was made */
    int64_t step, n_read; /* steps done, and of how many loss and norm were read */
    int64_t best_step, last_saved, n_rollbacks;
    double best, held_out, elapsed_s; /* elapsed: before this process */
    double began_s;
    double step_s, step_flops; /* of the last step */
    int lock;                  /* of the folder; -1: not taken */
    bool has_new_rhythm;       /* evaluations or samples come more or less often than when the run was last priced */
    char text[PATH_BYTES];
};

static const char *path_of(struct run *r, const char *file) {
    snprintf(r->text, sizeof r->text, "%s/%s", r->settings.out, file);
    return r->text;
}

/* ---- When what happens. Steps are counted from 1 here: `done` of them are behind us. ---- */

static bool is_due(int64_t every, int64_t done, int64_t steps) {
    return done == steps || (every > 0 && done % every == 0);
}
static bool is_due_eval(const struct trainer *t, int64_t done) {
    return t->held_out && is_due(t->settings.eval_every, done, t->settings.steps);
}
static bool is_due_sample(const struct trainer *t, int64_t done) {
    return t->text && is_due(t->settings.sample_every, done, t->settings.steps);
}
static bool is_due_save(const struct trainer *t, int64_t done) {
    return is_due(t->settings.save_every, done, t->settings.steps);
}

/* How often after the first `done` of the run's steps. */
static int64_t n_due(int64_t every, int64_t done, int64_t steps) {
    if (done >= steps) return 0;
    return every > 0 ? steps / every - done / every + (steps % every != 0) : 1;
}

/* ---- One billed stretch ---- */

static tl_ledger *bill_begin(enum step_kind kind) { return tl_ledger_begin(kind_name(kind)); }

static bool bill_end(struct kinds *kinds, enum step_kind kind, tl_ledger *ledger, tl_device *device, bool ok) {
    if (!ledger) return false;
    ok = tl_ledger_end(ledger) && ok && kinds_add(kinds, kind, ledger, device);
    tl_ledger_free(ledger);
    return ok;
}

static bool billed_step(struct trainer *t, struct kinds *kinds, int64_t step) {
    tl_ledger *ledger = bill_begin(KIND_STEP);
    return bill_end(kinds, KIND_STEP, ledger, t->device, ledger && trainer_step(t, step));
}
static bool billed_eval(struct trainer *t, struct kinds *kinds) {
    tl_ledger *ledger = bill_begin(KIND_EVAL);
    return bill_end(kinds, KIND_EVAL, ledger, t->device, ledger && trainer_evaluate(t));
}
static bool billed_sample(struct trainer *t, struct kinds *kinds) {
    tl_ledger *ledger = bill_begin(KIND_SAMPLE);
    return bill_end(kinds, KIND_SAMPLE, ledger, t->device, ledger && trainer_sample(t));
}

/* ---- The price ---- */

/* The device that stands in for the run's own. */
static tl_device *stand_in(const struct settings *s) {
    char name[SETTING_TEXT + 8];
    if (!strcmp(s->device, "cpu")) return tl_device_find("meta");
    snprintf(name, sizeof name, "meta:%s", strncmp(s->device, "cuda", 4) ? s->device : "h200");
    return tl_device_find(name);
}

/* The first of the steps (counted from 1) after which a kind is due. */
static int64_t first_due(int64_t every, int64_t steps) { return every > 0 && every < steps ? every : steps; }

/* Steps 1 to 3, in which the pool gets its size, and then those alone after which a kind comes for the first time. The order is the
 * run's: what a kind finds reserved depends on what came before it. */
static bool price_walk(struct trainer *t, struct kinds *k) {
    const struct settings *s = &t->settings;
    bool ok = true;
    for (int64_t done = 1, next; ok && done <= s->steps; done = next) {
        const struct kind *eval = &k->kind[KIND_EVAL], *text = &k->kind[KIND_SAMPLE];
        ok = billed_step(t, k, done - 1);
        if (ok && !eval->count && is_due_eval(t, done)) ok = billed_eval(t, k);
        if (ok && !text->count && is_due_sample(t, done)) ok = billed_sample(t, k);
        int64_t to_eval = t->held_out && !eval->count ? first_due(s->eval_every, s->steps) : INT64_MAX;
        int64_t to_sample = t->text && !text->count ? first_due(s->sample_every, s->steps) : INT64_MAX;
        next = done < 3 ? done + 1 : to_eval < to_sample ? to_eval : to_sample;
    }
    return ok;
}

/* How often each kind comes: what `begun` (a run up to `done` steps, or NULL) has had, and what is due after it. How often a run looks may
 * change when it goes on. */
static void price_count(const struct trainer *t, struct kinds *k, const struct kinds *begun, int64_t done) {
    const struct settings *s = &t->settings;
    int64_t n_evals = begun ? begun->kind[KIND_EVAL].count : 0, n_samples = begun ? begun->kind[KIND_SAMPLE].count : 0;
    k->kind[KIND_STEP].count = s->steps;
    if (t->held_out) k->kind[KIND_EVAL].count = n_evals + n_due(s->eval_every, done, s->steps);
    if (t->text) k->kind[KIND_SAMPLE].count = n_samples + n_due(s->sample_every, done, s->steps);
}

static char *price_make(const struct settings *s, const struct kinds *begun, int64_t done) {
    tl_model_config config;
    char weights[SETTING_TEXT], *text = NULL;
    struct source source = {0};
    struct kinds kinds = {0};
    tl_device *device = settings_check(s) && trainer_model(s, &config, weights) ? stand_in(s) : NULL;
    bool ok = device && source_open(&source, s, config.vocabulary, true);
    struct trainer *t = ok ? trainer_new(s, &source, device) : NULL;
    if (t && price_walk(t, &kinds)) {
        price_count(t, &kinds, begun, done);
        text = kinds_text(&kinds, s);
    }
    trainer_free(t);
    kinds_free(&kinds);
    source_close(&source);
    if (device) tl_pool_trim(device);
    return text;
}

char *run_price(const struct settings *s) { return price_make(s, NULL, 0); }

/* ---- The folder ---- */

static bool file_write(struct run *r, const char *file, char *text) {
    bool ok = text && file_put(path_of(r, file), text, strlen(text));
    free(text);
    return ok;
}

/* One process at a time: two would prune each other's checkpoints. The lock goes with the process, however it ends. */
static bool lock_take(struct run *r) {
    r->lock = open(path_of(r, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (r->lock < 0) return error_set(TL_ERROR_IO, "%s: cannot be opened: %s", r->text, strerror(errno));
    return flock(r->lock, LOCK_EX | LOCK_NB) == 0 || errno == ENOLCK || errno == ENOTSUP ||
           error_set(TL_ERROR_USE, "%s: another process is training in this folder", r->settings.out);
}

/* A folder that another run has made is not this run's. */
static bool folder_begin(struct run *r) {
    struct settings before = settings_default();
    if (!file_make_folder(r->settings.out) || !lock_take(r)) return false;
    if (access(path_of(r, "config.json"), F_OK) != 0) return file_write(r, "config.json", settings_json(&r->settings));
    if (!settings_read(&before, r->text)) return false;
    const char *conflict = settings_conflict(&before, &r->settings);
    r->has_new_rhythm = before.eval_every != r->settings.eval_every || before.sample_every != r->settings.sample_every;
    return !conflict ||
           error_set(TL_ERROR_USE,
                     "%s: this run was begun with another %s (give the same to go on, or another out folder)", r->text,
                     conflict);
}

static bool log_open(struct run *r, long bytes) {
    const char *path = path_of(r, "log.jsonl");
    r->log = fopen(path, "a+");
    if (!r->log || ftruncate(fileno(r->log), bytes) != 0 || fseek(r->log, 0, SEEK_END) != 0)
        return error_set(TL_ERROR_IO, "%s: cannot be written", path);
    r->log_bytes = bytes;
    return true;
}

/* JSON has no word for what is not finite. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* What can be compared between two runs comes first; what the clock tells is under "time". */
static bool log_step(struct run *r, int64_t done, double loss, double norm, bool is_skipped) {
    struct trainer *t = r->trainer;
    if (done % r->settings.log_every != 0 && done != r->settings.steps) return true;
    json_t *line = json_pack("{s:I, s:I, s:o, s:o, s:f, s:b, s:{s:f, s:f}}", "step", (json_int_t)done, "tokens",
                             (json_int_t)(done * trainer_step_tokens(t)), "loss", number(loss), "grad_norm",
                             number(norm), "lr", trainer_lr(t, done - 1), "skipped", (int)is_skipped, "time", "step_s",
                             r->step_s, "tokens_per_s", (double)trainer_step_tokens(t) / r->step_s);
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    bool ok = text && fprintf(r->log, "%s\n", text) > 0 && fflush(r->log) == 0;
    if (!ok) error_set(TL_ERROR_IO, "%s: cannot be written", path_of(r, "log.jsonl"));
    json_decref(line);
    free(text);
    return ok;
}

static bool log_value(struct run *r, const char *name, double value) {
    char text[32] = "null";
    if (isfinite(value)) snprintf(text, sizeof text, "%.17g", value);
    bool ok = fprintf(r->log, "{\"step\":%" PRId64 ",\"%s\":%s}\n", r->step, name, text) > 0 && fflush(r->log) == 0;
    return ok || error_set(TL_ERROR_IO, "%s: cannot be written", path_of(r, "log.jsonl"));
}

/* ---- Saving and going on ---- */

static char *state_text(struct run *r) {
    json_t *kinds = kinds_json(&r->kinds), *trainer = trainer_state(r->trainer);
    double elapsed = r->elapsed_s + now_s() - r->began_s;
    json_t *root =
        kinds && trainer
            ? json_pack("{s:I, s:O, s:O, s:f, s:I, s:f, s:b, s:I, s:I}", "step", (json_int_t)r->step, "trainer",
                        trainer, "kinds", kinds, "elapsed_s", elapsed, "log_bytes", (json_int_t)ftell(r->log), "best",
                        isfinite(r->best) ? r->best : 0.0, "has_best", (int)isfinite(r->best), "best_step",
                        (json_int_t)r->best_step, "n_skipped", (json_int_t)r->summary->n_skipped)
            : NULL;
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) error_memory(4096, "a checkpoint's state");
    json_decref(root);
    json_decref(kinds);
    json_decref(trainer);
    return text;
}

static bool receipt_write(struct run *r) { return file_write(r, "receipt.json", kinds_text(&r->kinds, &r->settings)); }

static bool save(struct run *r) {
    struct checkpoint_part parts[TRAINER_PARTS];
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/checkpoints", r->settings.out);
    if (isfinite(r->held_out) && !(r->held_out >= r->best)) { /* evaluated at this very step, and the best so far */
        r->best = r->held_out;
        r->best_step = r->step;
    }
    bool ok = fsync(fileno(r->log)) == 0 || error_set(TL_ERROR_IO, "%s: cannot be synced", path_of(r, "log.jsonl"));
    char *state = ok && trainer_parts(r->trainer, parts) ? state_text(r) : NULL;
    ok = state && checkpoint_save(folder, r->step, parts, TRAINER_PARTS, state) &&
         checkpoint_prune(folder, (int)r->settings.keep, r->best_step) && receipt_write(r);
    r->last_saved = r->step;
    free(state);
    return ok;
}

static bool state_read(struct run *r, const char *text) {
    json_error_t problem;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
    json_int_t step, log_bytes, best_step, n_skipped;
    double elapsed, best;
    int has_best;
    bool ok = root && json_unpack(root, "{s:I, s:F, s:I, s:F, s:b, s:I, s:I}", "step", &step, "elapsed_s", &elapsed,
                                  "log_bytes", &log_bytes, "best", &best, "has_best", &has_best, "best_step",
                                  &best_step, "n_skipped", &n_skipped) == 0;
    if (!ok) error_set(TL_ERROR_USE, "the checkpoint's state.json is not one of a run");
    kinds_free(&r->kinds);
    ok = ok && trainer_set_state(r->trainer, json_object_get(root, "trainer")) &&
         kinds_read(&r->kinds, json_object_get(root, "kinds"));
    if (ok) {
        r->step = r->n_read = r->last_saved = step;
        r->elapsed_s = elapsed;
        r->log_bytes = (long)log_bytes;
        r->best = has_best ? best : NAN;
        r->best_step = best_step;
        r->summary->n_skipped = n_skipped;
    }
    json_decref(root);
    return ok;
}

/* Takes over the newest whole checkpoint, if there is one. */
static bool resume(struct run *r) {
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/checkpoints", r->settings.out);
    struct checkpoint *c = checkpoint_open_newest(folder);
    if (!c) return tl_error() == TL_OK;
    struct checkpoint_part parts[TRAINER_PARTS];
    bool ok = trainer_parts(r->trainer, parts);
    for (int i = 0; ok && i < TRAINER_PARTS; i++) ok = checkpoint_load(c, &parts[i]);
    ok = ok && state_read(r, checkpoint_state(c));
    checkpoint_close(c);
    return ok;
}

/* ---- The loop ---- */

static void tell(struct run *r, int64_t done, double loss, double norm, double held_out, const char *text) {
    if (!r->listener || !r->listener->tell) return;
    double done_here = (double)(r->step - r->summary->first_step), here_s = now_s() - r->began_s;
    struct run_news news = {
        .step = done,
        .steps = r->settings.steps,
        .loss = loss,
        .norm = norm,
        .lr = trainer_lr(r->trainer, done - 1),
        .step_s = r->step_s,
        .tokens_per_s = (double)trainer_step_tokens(r->trainer) / r->step_s,
        .flops_per_s = r->step_flops / r->step_s,
        .wait_share = here_s > 0 ? tl_loader_wait_s(r->trainer->loader) / here_s : 0,
        .eta_s = done_here > 0 ? here_s / done_here * (double)(r->settings.steps - r->step) : NAN,
        .peak_bytes = tl_device_memory(r->trainer->device).peak_bytes,
        .held_out = held_out,
        .text = text,
    };
    r->listener->tell(r->listener->context, &news);
}

/* What a step that is not finite leads to. True: go on. */
static bool not_finite(struct run *r, int64_t done, double loss, enum run_end *end) {
    const char *policy = settings_choice(&r->settings, "on_nonfinite");
    r->summary->n_skipped++;
    if (r->trainer->recipe->has_scaler && isfinite(loss))
        return true; /* the loss's scale was too large: it will fall */
    snprintf(r->summary->problem, sizeof r->summary->problem,
             "step %" PRId64 ": %s is not finite; the weights were not touched", done,
             isfinite(loss) ? "the gradient's norm" : "the loss");
    if (!strcmp(policy, "skip")) return true;
    if (!strcmp(policy, "rollback") && r->n_rollbacks++ < 3 && r->last_saved > 0) {
        int64_t shift = r->trainer->data_shift + done - r->last_saved; /* other batches than those that led here */
        bool ok = resume(r) && (fclose(r->log) == 0) && log_open(r, r->log_bytes);
        r->trainer->data_shift = shift;
        if (!ok) *end = RUN_FAILED;
        return ok;
    }
    *end = RUN_NOT_FINITE;
    return false;
}

/* Reads loss and norm of the steps whose results are still unread, all but the newest `n_behind`. */
static bool results_read(struct run *r, int64_t n_behind, enum run_end *end) {
    while (*end == RUN_DONE && r->n_read < r->step - n_behind) {
        double loss, norm;
        int64_t at = r->n_read++;
        if (!trainer_read(r->trainer, at, &loss, &norm)) return *end = RUN_FAILED, false;
        bool is_finite = isfinite(loss) && isfinite(norm);
        if (!log_step(r, at + 1, loss, norm, !is_finite)) return *end = RUN_FAILED, false;
        r->summary->loss = loss;
        tell(r, at + 1, loss, norm, NAN, NULL);
        if (!is_finite && !not_finite(r, at + 1, loss, end)) return false;
    }
    return *end == RUN_DONE;
}

static bool evaluate(struct run *r) {
    if (!billed_eval(r->trainer, &r->kinds) || !trainer_read_evaluation(r->trainer, &r->held_out)) return false;
    r->summary->held_out = r->held_out;
    tell(r, r->step, r->summary->loss, NAN, r->held_out, NULL);
    return log_value(r, "held_out", r->held_out);
}

static bool sample(struct run *r) {
    char *text = billed_sample(r->trainer, &r->kinds) ? trainer_read_text(r->trainer) : NULL;
    if (!text) return false;
    tell(r, r->step, r->summary->loss, NAN, NAN, text);
    free(r->summary->text);
    r->summary->text = text;
    return true;
}

/* One step and what is due after it. */
static bool advance(struct run *r, enum run_end *end) {
    struct trainer *t = r->trainer;
    double before = now_s();
    if (!billed_step(t, &r->kinds, r->step)) return *end = RUN_FAILED, false;
    r->step++;
    r->step_s = now_s() - before;
    bool eval = is_due_eval(t, r->step), text = is_due_sample(t, r->step), keep = is_due_save(t, r->step);
    int64_t done = r->step;
    if (!results_read(r, eval || text || keep ? 0 : 1, end)) return false;
    bool is_stopping = r->listener && r->listener->stop && *r->listener->stop;
    if (is_stopping && !results_read(r, 0, end)) return false; /* a checkpoint has the log of all its steps */
    if (r->step != done) return true;                          /* rolled back: what was due there has been done */
    keep = keep || is_stopping;
    r->held_out = NAN;
    bool ok = (!eval || evaluate(r)) && (!text || sample(r)) && (!keep || save(r));
    if (!ok) *end = RUN_FAILED;
    else if (is_stopping && r->step < r->settings.steps) *end = RUN_STOPPED;
    return *end == RUN_DONE;
}

static void flops_find(struct run *r) {
    const json_t *totals = json_object_get(r->kinds.kind[KIND_STEP].ledger, "totals");
    const char *flops = json_string_value(json_object_get(totals, "flops"));
    r->step_flops = flops ? strtod(flops, NULL) : 0;
}

static void summarise(struct run *r, enum run_end end) {
    struct run_summary *m = r->summary;
    double here = now_s() - r->began_s;
    int64_t tokens_here = (r->step - m->first_step) * trainer_step_tokens(r->trainer);
    flops_find(r);
    m->steps = r->step;
    m->tokens = r->step * trainer_step_tokens(r->trainer);
    m->seconds = r->elapsed_s + here;
    m->tokens_per_s = here > 0 ? (double)tokens_here / here : 0;
    m->flops = r->step_flops * (double)r->step;
    m->flops_per_s = here > 0 ? r->step_flops * (double)(r->step - m->first_step) / here : 0;
    m->wait_share = here > 0 ? tl_loader_wait_s(r->trainer->loader) / here : 0;
    m->n_parameters = tl_module_parameters(r->trainer->model);
    m->floor = r->source.is_builtin ? tl_corpus_floor() : NAN;
    const json_t *memory = json_object_get(r->kinds.kind[KIND_STEP].ledger, "memory");
    const json_t *by = json_object_get(memory, "peak_by_purpose");
    const char *peak = json_string_value(json_object_get(memory, "peak_bytes"));
    m->peak_bytes = peak ? strtoull(peak, NULL, 10) : 0;
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) {
        const char *n = json_string_value(json_object_get(by, tl_purpose_name((tl_purpose)p)));
        m->peak_by_purpose[p] = n ? strtoull(n, NULL, 10) : 0;
    }
    if (end == RUN_DONE && *r->kinds.difference) snprintf(m->problem, sizeof m->problem, "%s", r->kinds.difference);
}

/* Price against receipt, both as they lie in the folder. */
static bool verdict(struct run *r) {
    size_t bytes;
    char *price = file_get(path_of(r, "price.json"), (size_t)64 << 20, &bytes);
    char *receipt = price ? file_get(path_of(r, "receipt.json"), (size_t)64 << 20, &bytes) : NULL;
    r->summary->differences = receipt ? tl_ledger_diff(price, receipt, NULL) : -1;
    memory_free(price);
    memory_free(receipt);
    return r->summary->differences >= 0;
}

/* The folder's price counts what comes how often: with another rhythm it is made anew, for what is left. The settings are
 * written last, so that a process that dies in between leaves the work to the next. */
static bool price_again(struct run *r) {
    return !r->has_new_rhythm || (file_write(r, "price.json", price_make(&r->settings, &r->kinds, r->step)) &&
                                  file_write(r, "config.json", settings_json(&r->settings)));
}

static bool run_begin(struct run *r) {
    const struct settings *s = &r->settings;
    tl_model_config config;
    char weights[SETTING_TEXT];
    if (s->threads) tl_set_threads((int)s->threads);
    tl_device *device = settings_check(s) && trainer_model(s, &config, weights) ? tl_device_find(s->device) : NULL;
    if (!device || !folder_begin(r)) return false;
    if (access(path_of(r, "price.json"), F_OK) != 0 && !file_write(r, "price.json", run_price(s))) return false;
    if (!source_open(&r->source, s, config.vocabulary, false)) return false;
    tl_pool_trim(device); /* what this process has reserved before is not the run's */
    r->trainer = trainer_new(s, &r->source, device);
    return r->trainer && resume(r) && price_again(r) && log_open(r, r->log_bytes);
}

enum run_end run_train(const struct settings *s, const struct run_listener *listener, struct run_summary *summary) {
    struct run *r = memory_new(sizeof *r);
    if (!r) return error_memory(sizeof *r, "a run"), RUN_FAILED;
    *r = (struct run){.settings = *s,
                      .listener = listener,
                      .summary = summary,
                      .best = NAN,
                      .held_out = NAN,
                      .best_step = -1,
                      .lock = -1};
    *summary = (struct run_summary){.differences = -1, .held_out = NAN, .floor = NAN, .loss = NAN};
    enum run_end end = run_begin(r) ? RUN_DONE : RUN_FAILED;
    r->began_s = now_s();
    summary->first_step = r->step;
    while (end == RUN_DONE && r->step < s->steps)
        if (advance(r, &end) && r->step_flops == 0) flops_find(r);
    if (r->trainer && end != RUN_FAILED) summarise(r, end);
    if (end == RUN_DONE && !verdict(r)) end = RUN_FAILED;
    if (r->log && fclose(r->log) != 0 && end == RUN_DONE) end = RUN_FAILED;
    trainer_free(r->trainer);
    source_close(&r->source);
    kinds_free(&r->kinds);
    if (r->lock >= 0) close(r->lock);
    memory_free(r);
    return end;
}
