#include "train/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/log.h"
#include "train/trainer.h"

enum { MOST_ROLLBACKS = 3 }; /* to one checkpoint */
#define ROOM (SETTING_TEXT + 32)

struct run {
    struct settings settings;
    struct source source;
    struct trainer *trainer;
    struct kinds price, receipt;
    struct log *log;
    const struct run_watch *watch;
    struct run_summary *summary;
    char checkpoints[ROOM];
    int lock;

    int64_t step, n_read, saved_step; /* made; made and read; of the newest checkpoint, -1: none */
    int64_t n_skipped, n_rollbacks, rolled_back_to;
    double best_loss, held_out_loss, loss;
    int64_t best_step;
    double elapsed_before_s, start_s;
    double step_start_s[2]; /* of an even step, of an odd step */
    uint64_t peak_bytes[2];
    double step_flops;
    bool is_numerical;   /* something was not finite, and the run stops for it */
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *path_in(const struct run *r, const char *file, char path[ROOM]) {
    snprintf(path, ROOM, "%s/%s", r->settings.out, file);
    return path;
}

TL_PRINTF(2, 3) static void note(const struct run *r, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (r->watch && r->watch->note) r->watch->note(line, r->watch->context);
}

/* ---- What is due after a step ---- */

static bool is_due(int64_t every, int64_t step, int64_t steps) {
    return step == steps || (every > 0 && step % every == 0);
}
static int64_t times_due(int64_t every, int64_t steps) {
    return every > 0 ? steps / every + (steps % every != 0) : 1;
}

static int64_t interval_of(const struct settings *s, enum step_kind kind) {
    return kind == KIND_EVAL ? s->eval_every : kind == KIND_SAMPLE ? s->sample_every : s->save_every;
}

static bool has_kind(const struct trainer *t, enum step_kind kind) {
    return kind == KIND_EVAL ? t->held_out != NULL : kind == KIND_SAMPLE ? t->text != NULL : true;
}

/* One step of a kind in a bracket of its own. A save costs the device nothing: it reads what is there. */
static bool take(struct trainer *t, struct kinds *kinds, enum step_kind kind, int64_t step) {
    tl_ledger *ledger = tl_ledger_begin(kind_name(kind));
    if (!ledger) return false;
    bool ok = kind == KIND_STEP     ? trainer_step(t, step)
              : kind == KIND_EVAL   ? trainer_evaluate(t)
              : kind == KIND_SAMPLE ? trainer_sample(t)
                                    : true;
    ok = tl_ledger_end(ledger) && ok && kinds_add(kinds, kind, ledger, t->device);
    tl_ledger_free(ledger);
    return ok;
}

/* ---- The price: the same trainer on meta ---- */

/* cpu is priced by the meta that stands for this machine, cuda by the one that stands for its target. */
static tl_device *meta_of(const char *device) {
    if (!strncmp(device, "meta", 4)) return tl_device_find(device);
    return tl_device_find(strncmp(device, "cuda", 4) ? "meta" : "meta:h200");
}

/* Steps 1, 2 and 3, and after them only those after which a kind comes for the first time, in the order of the run: what the pool has
 * reserved by then is then the same. */
static bool price_steps(struct trainer *t, struct kinds *price) {
    const struct settings *s = &t->settings;
    int64_t step = 0;
    while (step < s->steps) {
        if (!take(t, price, KIND_STEP, step)) return false;
        step++;
        int64_t next = step < 3 ? step + 1 : s->steps + 1;
        for (int kind = KIND_EVAL; kind < KIND_COUNT; kind++) {
            int64_t every = interval_of(s, kind), first = every > 0 && every < s->steps ? every : s->steps;
            if (!has_kind(t, kind) || price->kind[kind].count) continue;
            if (is_due(every, step, s->steps)) {
                if (!take(t, price, kind, step)) return false;
            } else if (first < next) next = first;
        }
        step = next - 1;
    }
    price->kind[KIND_STEP].count = s->steps;
    for (int kind = KIND_EVAL; kind < KIND_COUNT; kind++)
        if (has_kind(t, kind)) price->kind[kind].count = times_due(interval_of(s, kind), s->steps);
    return true;
}

static bool price_make(const struct settings *s, const struct source *source, struct kinds *price, int64_t *parameters) {
    tl_device *meta = meta_of(s->device);
    if (!meta) return false;
    tl_pool_trim(meta);
    struct trainer *t = trainer_new(s, source, meta);
    if (t && parameters) *parameters = tl_module_parameters(t->model);
    bool ok = t && price_steps(t, price);
    trainer_free(t);
    if (ok && *price->difference) ok = error_set(TL_ERROR_USE, "no price can be made: %s", price->difference);
    return ok;
}

bool run_price(const struct settings *s, struct kinds *price, int64_t *parameters) {
    tl_model_config config;
    struct source source;
    char weights[SETTING_TEXT];
    memset(price, 0, sizeof *price);
    if (!trainer_model(s, &config, weights) || !source_open(&source, s, config.vocabulary, true)) return false;
    bool ok = price_make(s, &source, price, parameters);
    source_close(&source);
    return ok;
}

/* ---- Files ---- */

static bool text_write(const struct run *r, const char *file, char *text) {
    char path[ROOM];
    bool ok = text && file_put(path_in(r, file, path), text, strlen(text));
    free(text);
    return ok;
}

/* One process at a time. */
static bool lock_take(struct run *r) {
    char path[ROOM];
    r->lock = open(path_in(r, "lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (r->lock < 0) return error_set(TL_ERROR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    return flock(r->lock, LOCK_EX | LOCK_NB) == 0 ||
           error_set(TL_ERROR_USE, "%s: another process is training in this folder", r->settings.out);
}

/* A folder with other settings is another run's. */
static bool settings_keep(struct run *r) {
    char path[ROOM];
    if (access(path_in(r, "settings.json", path), F_OK) == 0) {
        struct settings before = settings_default();
        if (!settings_read(&before, path)) return false;
        const char *conflict = settings_conflict(&before, &r->settings);
        if (conflict)
            return error_set(TL_ERROR_USE, "%s: was begun with another %s; take another folder (--out), or the same %s",
                             r->settings.out, conflict, conflict);
    }
    return text_write(r, "settings.json", settings_json(&r->settings));
}

static json_t *real_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static double real_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double elapsed_s(const struct run *r) { return r->elapsed_before_s + now_s() - r->start_s; }

static char *state_text(struct run *r) {
    json_t *trainer = trainer_state(r->trainer), *kinds = kinds_json(&r->receipt);
    json_t *root = json_pack("{s:s, s:I, s:o, s:o, s:I, s:o, s:o, s:o, s:I, s:f}", "schema", "tally.state/1", "step",
                             (json_int_t)r->step, "trainer", trainer, "kinds", kinds, "skipped",
                             (json_int_t)r->n_skipped, "loss", real_or_null(r->loss), "held_out_loss",
                             real_or_null(r->held_out_loss), "best_loss", real_or_null(r->best_loss), "best_step",
                             (json_int_t)r->best_step, "elapsed_s", elapsed_s(r));
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) error_memory(4096, "a checkpoint's state");
    json_decref(root);
    return text;
}

static bool save(struct run *r) {
    struct checkpoint_part parts[TRAINER_PARTS];
    char *state = trainer_parts(r->trainer, parts) && log_sync(r->log) ? state_text(r) : NULL;
    tl_ledger *ledger = state ? tl_ledger_begin("save") : NULL;
    bool ok = ledger && checkpoint_save(r->checkpoints, r->step, parts, TRAINER_PARTS, state);
    if (ledger) ok = tl_ledger_end(ledger) && ok;
    if (ok && tl_ledger_total(ledger, TL_ALL, NULL).calls) /* the price says none */
        ok = error_set(TL_ERROR_USE, "a save has run ops that its price does not have");
    tl_ledger_free(ledger);
    free(state);
    if (ok) r->saved_step = r->step;
    return ok && checkpoint_prune(r->checkpoints, (int)r->settings.keep, r->best_step);
}

static bool state_read(struct run *r, const char *text) {
    json_t *root = json_loads(text, 0, NULL);
    json_int_t step = 0, skipped = 0, best_step = 0;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    bool ok = schema && !strcmp(schema, "tally.state/1") &&
              json_unpack(root, "{s:I, s:I, s:I}", "step", &step, "skipped", &skipped, "best_step", &best_step) == 0 &&
              step >= 0;
    if (!ok) error_set(TL_ERROR_USE, "%s: state.json is not a tally.state/1", r->checkpoints);
    struct kinds kinds;
    ok = ok && trainer_set_state(r->trainer, json_object_get(root, "trainer")) &&
         kinds_read(&kinds, json_object_get(root, "kinds"));
    if (ok) {
        kinds_free(&r->receipt);
        r->receipt = kinds;
        r->step = r->n_read = r->saved_step = step;
        r->n_skipped = skipped;
        r->best_step = best_step;
        r->loss = real_of(root, "loss");
        r->held_out_loss = real_of(root, "held_out_loss");
        r->best_loss = real_of(root, "best_loss");
        r->elapsed_before_s = real_of(root, "elapsed_s");
        r->start_s = now_s();
    }
    json_decref(root);
    return ok;
}

/* Puts everything back as it was when `step` was saved. */
static bool load(struct run *r, int64_t step) {
    struct checkpoint_part parts[TRAINER_PARTS];
    struct checkpoint *c = checkpoint_open(r->checkpoints, step);
    bool ok = c && trainer_parts(r->trainer, parts);
    for (int i = 0; ok && i < TRAINER_PARTS; i++) ok = checkpoint_load(c, &parts[i]);
    ok = ok && state_read(r, checkpoint_state(c));
    checkpoint_close(c);
    return ok;
}

/* The log after a load, without what came later. */
static bool log_begin(struct run *r) {
    char path[ROOM];
    log_close(r->log);
    r->log = log_open(path_in(r, "log.jsonl", path), r->step);
    return r->log != NULL;
}

/* ---- After a step ---- */

/* Back to the newest checkpoint, and on with the batches after the one that failed. */
static bool roll_back(struct run *r, int64_t bad_step) {
    int64_t to = r->saved_step, next_batch = bad_step + 1 + r->trainer->data_shift;
    r->n_rollbacks = to == r->rolled_back_to ? r->n_rollbacks + 1 : 1;
    r->rolled_back_to = to;
    if (to < 0 || r->n_rollbacks > MOST_ROLLBACKS) {
        r->is_numerical = true;
        snprintf(r->summary->why + strlen(r->summary->why), sizeof r->summary->why - strlen(r->summary->why), " (%s)",
                 to < 0 ? "there is no checkpoint to go back to" : "and again after going back");
        return true;
    }
    if (!load(r, to) || !log_begin(r)) return false;
    r->trainer->data_shift = next_batch - to;
    note(r, "went back to step %" PRId64 ": %s", to, r->summary->why);
    return true;
}

static bool not_finite(struct run *r, int64_t step, double loss) {
    const char *way = settings_choice(&r->settings, "on_nonfinite");
    snprintf(r->summary->why, sizeof r->summary->why, "step %" PRId64 ": the %s is not finite; the weights are as before it",
             step + 1, isfinite(loss) ? "gradient" : "loss");
    if (!strcmp(way, "rollback")) return roll_back(r, step);
    r->n_skipped++;
    r->is_numerical = !strcmp(way, "stop");
    if (!r->is_numerical) note(r, "%s", r->summary->why);
    return true;
}

static void show(const struct run *r, const struct log_step *line) {
    const struct settings *s = &r->settings;
    if (!r->watch || !r->watch->step) return;
    double here_s = now_s() - r->start_s;
    int64_t made = line->step - r->summary->first_step;
    struct run_progress p = {line->step,
                             s->steps,
                             line->tokens,
                             line->loss,
                             line->grad_norm,
                             line->lr,
                             line->time.tokens_per_s,
                             line->time.flops_per_s,
                             line->time.elapsed_s,
                             made > 0 ? here_s / (double)made * (double)(s->steps - line->step) : NAN,
                             here_s > 0 ? line->time.wait_s / here_s : 0,
                             line->peak_bytes};
    r->watch->step(&p, r->watch->context);
}

/* Reads what the last step left, writes its line, and looks whether all is finite. */
static bool read_step(struct run *r, double end_s) {
    int64_t step = r->n_read++;
    double loss, norm, step_s = end_s - r->step_start_s[step % 2];
    if (!trainer_read(r->trainer, step, &loss, &norm)) return false;
    bool has_overflown = r->trainer->recipe->has_scaler && isfinite(loss) && !isfinite(norm);
    if (has_overflown) r->n_skipped++;
    else if ((!isfinite(loss) || !isfinite(norm)) && !not_finite(r, step, loss)) return false;
    if (r->n_read <= step) return true; /* rolled back: this step never was */
    r->loss = loss;
    if (!is_due(r->settings.log_every, step + 1, r->settings.steps)) return true;
    double tokens = (double)trainer_step_tokens(r->trainer);
    struct log_step line = {.step = step + 1,
                            .tokens = (step + 1) * trainer_step_tokens(r->trainer),
                            .loss = loss,
                            .grad_norm = norm,
                            .lr = trainer_lr(r->trainer, step),
                            .peak_bytes = r->peak_bytes[step % 2],
                            .n_skipped = r->n_skipped,
                            .time = {step_s, elapsed_s(r), tl_loader_wait_s(r->trainer->loader), tokens / step_s,
                                     r->step_flops / step_s}};
    show(r, &line);
    return log_step(r->log, &line);
}

static bool evaluate(struct run *r) {
    double loss;
    if (!take(r->trainer, &r->receipt, KIND_EVAL, r->step) || !trainer_read_evaluation(r->trainer, &loss)) return false;
    bool is_best = isfinite(loss) && !(r->best_loss <= loss); /* the first one is, too */
    r->held_out_loss = loss;
    if (is_best) r->best_loss = loss, r->best_step = r->step;
    note(r, "step %" PRId64 ": held-out loss %.4f%s", r->step, loss, is_best ? ", the best so far" : "");
    return log_held_out(r->log, r->step, loss, is_best);
}

static bool sample(struct run *r) {
    if (!take(r->trainer, &r->receipt, KIND_SAMPLE, r->step)) return false;
    char *text = trainer_read_text(r->trainer);
    bool ok = text && log_text(r->log, r->step, "sample", text);
    if (r->settings.sample_every && ok) note(r, "step %" PRId64 ": %s", r->step, text);
    memory_free(r->summary->sample);
    r->summary->sample = text;
    return ok;
}

/* Evaluation, sample and save, where they are due. */
static bool look_and_keep(struct run *r) {
    const struct settings *s = &r->settings;
    int64_t step = r->step;
    bool ok = true;
    for (int kind = KIND_EVAL; ok && kind < KIND_COUNT; kind++) {
        if (!has_kind(r->trainer, kind) || !is_due(interval_of(s, kind), step, s->steps)) continue;
        if (r->n_read < step) ok = read_step(r, now_s());
        if (r->is_numerical || r->step != step || !ok) return ok; /* stopped, or rolled back */
        if (kind == KIND_SAVE) ok = take(r->trainer, &r->receipt, kind, step) && save(r);
        else ok = kind == KIND_EVAL ? evaluate(r) : sample(r);
    }
    return ok;
}

static bool make_step(struct run *r) {
    int64_t step = r->step;
    r->step_start_s[step % 2] = now_s();
    if (!take(r->trainer, &r->receipt, KIND_STEP, step)) return false;
    r->peak_bytes[step % 2] = r->receipt.last_peak_bytes;
    r->step_flops = r->receipt.last_flops;
    r->step++;
    return r->n_read >= step || read_step(r, r->step_start_s[step % 2]); /* the one before */
}

/* ---- From the first to the last ---- */

static bool wants_to_stop(const struct run *r) {
    return r->watch && r->watch->is_over && r->watch->is_over(r->step, r->watch->context);
}

static enum run_end loop(struct run *r) {
    bool ok = true;
    while (ok && !r->is_numerical && r->step < r->settings.steps) {
        ok = make_step(r) && (r->is_numerical || look_and_keep(r));
        if (!ok || r->is_numerical || r->step == r->settings.steps || !wants_to_stop(r)) continue;
        if (r->n_read < r->step) ok = read_step(r, now_s());
        if (r->is_numerical || !ok) continue;
        return r->saved_step == r->step || save(r) ? RUN_SAVED : RUN_FAILED;
    }
    return !ok ? RUN_FAILED : r->is_numerical ? RUN_NUMERICAL : RUN_DONE;
}

static bool trainer_begin(struct run *r) {
    tl_device *device = tl_device_find(r->settings.device);
    if (!device) return false;
    tl_set_threads((int)r->settings.threads);
    tl_pool_trim(device);
    r->trainer = trainer_new(&r->settings, &r->source, device);
    if (!r->trainer) return false;
    int64_t newest = checkpoint_newest(r->checkpoints);
    if (newest < 0) return tl_error() == TL_OK;
    note(r, "going on from step %" PRId64, newest);
    return load(r, newest);
}

static bool begin(struct run *r) {
    tl_model_config config;
    char weights[SETTING_TEXT], path[ROOM];
    const struct settings *s = &r->settings;
    path_in(r, "checkpoints", r->checkpoints);
    return trainer_model(s, &config, weights) && file_make_folder(s->out) && lock_take(r) && settings_keep(r) &&
           tl_model_config_write(&config, path_in(r, "model.json", path)) &&
           source_open(&r->source, s, config.vocabulary, false) &&
           price_make(s, &r->source, &r->price, &r->summary->parameters) &&
           text_write(r, "price.json", kinds_text(&r->price, s)) && trainer_begin(r) && log_begin(r);
}

static double count_in(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? strtod(text, NULL) : 0;
}

static void summarise(struct run *r) {
    struct run_summary *s = r->summary;
    const json_t *memory = json_object_get(r->receipt.kind[KIND_STEP].ledger, "memory");
    const json_t *purposes = json_object_get(memory, "peak_by_purpose");
    s->step = r->step;
    s->tokens = r->step * trainer_step_tokens(r->trainer);
    s->n_skipped = r->n_skipped;
    s->elapsed_s = elapsed_s(r);
    s->here_s = now_s() - r->start_s;
    s->loss = r->loss;
    s->held_out_loss = r->held_out_loss;
    s->best_loss = r->best_loss;
    s->best_step = r->best_step;
    s->floor = r->source.is_builtin ? tl_corpus_floor() : NAN;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        s->flops += (double)r->receipt.kind[kind].count *
                    count_in(json_object_get(r->receipt.kind[kind].ledger, "totals"), "flops");
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        s->peak[p] = (uint64_t)count_in(purposes, tl_purpose_name((tl_purpose)p));
    s->peak_bytes = (uint64_t)count_in(memory, "peak_bytes");
    s->peak_reserved_bytes = (uint64_t)count_in(memory, "peak_reserved_bytes");
}

/* Receipt, weights, and whether the receipt is what the price said. */
static bool finish(struct run *r, bool is_done) {
    char path[ROOM];
    char *price = kinds_text(&r->price, &r->settings), *receipt = price ? kinds_text(&r->receipt, &r->settings) : NULL;
    bool ok = receipt && file_put(path_in(r, "receipt.json", path), receipt, strlen(receipt));
    if (ok && is_done) {
        r->summary->n_differences = tl_ledger_diff(price, receipt, &r->summary->differences);
        ok = r->summary->n_differences >= 0 && tl_model_save(r->trainer->model, path_in(r, "model", path));
    }
    free(price);
    free(receipt);
    if (*r->receipt.difference) note(r, "the tally is broken: %s", r->receipt.difference);
    if (*r->receipt.difference && is_done) r->summary->n_differences++;
    return ok;
}

void run_summary_free(struct run_summary *s) {
    memory_free(s->sample);
    free(s->differences);
    s->sample = s->differences = NULL;
}

enum run_end run(const struct settings *s, const struct run_watch *watch, struct run_summary *summary) {
    struct run r = {.settings = *s,
                    .watch = watch,
                    .summary = summary,
                    .lock = -1,
                    .saved_step = -1,
                    .rolled_back_to = -1,
                    .best_step = -1,
                    .best_loss = NAN,
                    .held_out_loss = NAN,
                    .loss = NAN,
                    .start_s = now_s()};
    *summary = (struct run_summary){.n_differences = -1};
    enum run_end end = RUN_FAILED;
    if (begin(&r)) {
        r.start_s = now_s(); /* pricing is not training */
        summary->first_step = r.step;
        end = loop(&r);
        summarise(&r);
        if (end != RUN_FAILED && !finish(&r, end == RUN_DONE)) end = RUN_FAILED;
    }
    log_close(r.log);
    trainer_free(r.trainer);
    source_close(&r.source);
    kinds_free(&r.price);
    kinds_free(&r.receipt);
    if (r.lock >= 0) close(r.lock);
    return end;
}
