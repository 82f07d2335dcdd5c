#include "train/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "device/devices.h"
#include "nn/model.h"
#include "tensor/device.h"
#include "train/advice.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/identity.h"
#include "train/kinds.h"
#include "train/log.h"
#include "train/origin.h"
#include "train/trainer.h"
#include "train/turn.h"

enum { CHANGES_TEXT = 640 }; /* leaves room for the rest of an error */
enum { FIRST_STEPS = 2 };    /* of a process: they are slower */

struct run {
    struct settings settings, saved; /* saved: of the checkpoint that it goes on from */
    const struct run_listener *listener;
    struct run_summary *summary;
    struct source source;
    struct origin origin;
    struct trainer *trainer;
    struct kinds kinds;
    struct log log;
    int64_t log_bytes, event_bytes; /* of the log when the last checkpoint was made */
    int64_t step, n_read;           /* steps done, and of how many loss and norm were read */
    int64_t best_step, last_saved, n_rollbacks;
    double best, held_out, elapsed_s; /* elapsed: before this process */
    double began_s, health_s;         /* health_s: when the device was asked last */
    struct device_health health;
    double step_s, step_flops; /* of the last step that was read */
    struct step_span {
        int64_t from, to; /* marks of the device (tensor/device.h) */
        double asked_s;   /* that this thread took to ask for it */
    } span[2];            /* of the steps that are not read yet, by their number */
    int64_t n_timed;      /* steps of this process that were read; also those that were rolled back */
    int64_t last_mark;    /* the end of the step before, if nothing came between; 0: something did */
    double step_began_s;  /* when it had nothing else beside it; 0: it had */
    double palm_flops;           /* of a token, by PaLM's rule */
    bool is_new_best;            /* the last evaluation was */
    double wait_s, waited_s;     /* for data: in the last step, and in all of this process */
    struct folder folder;
    struct checkpoint *found; /* the newest whole one, until it is resumed from */
    json_t *state;            /* its state; NULL: there is none */
    bool needs_price;         /* price.json was damaged */
    json_t *made_from;        /* see identity.h */
    bool accepts_changes;
    char changes[CHANGES_TEXT]; /* of the run's identity, accepted, and of its length; "": none */
};

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

/* How often after step `from`, until the end. */
static int64_t n_due(int64_t every, int64_t from, int64_t steps) {
    if (from >= steps) return 0;
    return every > 0 ? steps / every - from / every + (steps % every != 0) : 1;
}
static void counts_due(const struct trainer *t, int64_t from, int64_t counts[KIND_COUNT]) {
    const struct settings *s = &t->settings;
    counts[KIND_STEP] = s->steps - from;
    counts[KIND_EVAL] = t->held_out ? n_due(s->eval_every, from, s->steps) : 0;
    counts[KIND_SAMPLE] = t->text ? n_due(s->sample_every, from, s->steps) : 0;
    counts[KIND_SAVE] = n_due(s->save_every, from, s->steps);
}

/* ---- One billed stretch ---- */

static bool bill_end(const struct run_walker *w, enum step_kind kind, tl_ledger *ledger, tl_device *device, bool ok) {
    if (!ledger) return false;
    if (tl_ledger_end(ledger) && ok) return w->bill(w->context, kind, ledger, device);
    tl_ledger_free(ledger);
    return false;
}

static bool billed_step(struct trainer *t, const struct run_walker *w, int64_t step) {
    tl_ledger *ledger = tl_ledger_begin(kind_name(KIND_STEP));
    return bill_end(w, KIND_STEP, ledger, t->device, ledger && trainer_step(t, step));
}
static bool billed_eval(struct trainer *t, const struct run_walker *w) {
    tl_ledger *ledger = tl_ledger_begin(kind_name(KIND_EVAL));
    return bill_end(w, KIND_EVAL, ledger, t->device, ledger && trainer_evaluate(t));
}
static bool billed_sample(struct trainer *t, const struct run_walker *w) {
    tl_ledger *ledger = tl_ledger_begin(kind_name(KIND_SAMPLE));
    return bill_end(w, KIND_SAMPLE, ledger, t->device, ledger && trainer_sample(t));
}

static bool billed_save(struct trainer *t, const struct run_walker *w) {
    tl_ledger *ledger = tl_ledger_begin(kind_name(KIND_SAVE));
    return bill_end(w, KIND_SAVE, ledger, t->device, ledger && trainer_bill_save(t));
}

static bool bill_kinds(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device) {
    bool ok = kinds_add(context, kind, ledger, device);
    tl_ledger_free(ledger);
    return ok;
}

/* ---- The price ---- */

/* The device that stands in for the run's own; meta for itself. */
tl_device *run_stand_in(const struct settings *s) { return device_stand_in(s->device); }

/* The first step behind `from` after which a kind is due. */
static int64_t first_due(int64_t every, int64_t from, int64_t steps) {
    return every > 0 && every < steps - from / every * every ? (from / every + 1) * every : steps;
}

/* Three steps from `from` on, in which the pool gets its size, and then those alone after which a kind comes for the
 * first time. The order is the run's: what a kind finds reserved depends on what came before it. */
static bool trainer_walk(struct trainer *t, const struct run_walker *w, int64_t from, int64_t counts[KIND_COUNT]) {
    const struct settings *s = &t->settings;
    bool ok = true, no_eval = t->held_out != NULL, no_text = t->text != NULL, no_save = true; /* no ...: not yet */
    for (int64_t done = from + 1, next; ok && done <= s->steps; done = next) {
        bool eval = no_eval && is_due_eval(t, done), text = no_text && is_due_sample(t, done);
        bool save = no_save && is_due_save(t, done);
        ok = billed_step(t, w, done - 1) && (!eval || billed_eval(t, w)) && (!text || billed_sample(t, w)) &&
             (!save || billed_save(t, w));
        no_eval = no_eval && !eval;
        no_text = no_text && !text;
        no_save = no_save && !save;
        int64_t to_eval = no_eval ? first_due(s->eval_every, from, s->steps) : INT64_MAX;
        int64_t to_sample = no_text ? first_due(s->sample_every, from, s->steps) : INT64_MAX;
        int64_t to_save = no_save ? first_due(s->save_every, from, s->steps) : INT64_MAX;
        int64_t soonest = to_eval < to_sample ? to_eval : to_sample;
        next = done < from + 3 ? done + 1 : soonest < to_save ? soonest : to_save;
    }
    counts_due(t, 0, counts);
    return ok;
}

static bool walk(const struct settings *s, tl_device *device, const struct run_walker *w, bool is_sketch, int64_t from,
                 int64_t counts[KIND_COUNT]) {
    tl_model_config config;
    char weights[SETTING_TEXT];
    struct source source = {0};
    if (!turn_take(NULL)) return false;
    bool ok = device && settings_check(s) && trainer_model(s, &config, weights) &&
              source_open(&source, s, config.vocabulary, true);
    if (device) tl_pool_trim(device); /* what others have reserved is not the run's */
    if (ok) tl_pool_limit(device, settings_memory_limit(s));
    struct trainer *t = ok ? trainer_new(s, &source, device) : NULL;
    if (t) t->is_sketch = is_sketch;
    ok = t && trainer_walk(t, w, from, counts);
    trainer_free(t);
    source_close(&source);
    if (device) tl_pool_trim(device);
    if (device) tl_pool_limit(device, 0);
    turn_give();
    return ok;
}

bool run_walk(const struct settings *s, tl_device *device, const struct run_walker *w, int64_t counts[KIND_COUNT]) {
    return walk(s, device, w, false, 0, counts);
}
bool run_sketch(const struct settings *s, tl_device *device, const struct run_walker *w, int64_t counts[KIND_COUNT]) {
    return walk(s, device, w, true, 0, counts);
}

/* `before` of each kind are behind a run that goes on after `from` steps. Ledgers are those of a process that begins
 * after `walked` steps. */
static char *price_text(const struct settings *s, const struct kinds *before, int64_t from, tl_device *device,
                        int64_t walked) {
    struct kinds kinds = {0};
    struct run_walker walker = {bill_kinds, &kinds};
    int64_t counts[KIND_COUNT];
    char *text = NULL;
    if (device && walk(s, device, &walker, false, walked, counts)) {
        int64_t every[] = {1, s->eval_every, s->sample_every, s->save_every};
        for (int i = 0; i < KIND_COUNT; i++) {
            int64_t behind = before ? before->kind[i].count : 0;
            kinds.kind[i].count = behind + (counts[i] ? n_due(every[i], from, s->steps) : 0);
        }
        text = kinds_text(&kinds, s);
    }
    kinds_free(&kinds);
    return text;
}

char *run_price_on(const struct settings *s, tl_device *device) { return price_text(s, NULL, 0, device, 0); }

char *run_price(const struct settings *s) {
    char *text = run_price_on(s, run_stand_in(s));
    if (!text && tl_error() == TL_ERROR_MEMORY) advice_add(s, run_stand_in(s));
    return text;
}

/* ---- The folder ---- */

static const char CONFIG[] = "config.json", PRICE[] = "price.json", RECEIPT[] = "receipt.json",
                  MACHINE[] = "machine.json", FINAL[] = "final";
static const char *const FINAL_FILES[] = {"config.json", "model.safetensors"};

static bool settings_of(const json_t *state, const struct settings *now, struct settings *then);

/* The run's weights as others read them, whole as they were written. False: recorded. */
static bool final_look(struct run *r, bool *is_whole) {
    *is_whole = true;
    for (int i = 0; i < 2; i++) {
        enum folder_state state;
        if (!folder_look(&r->folder, FINAL, FINAL_FILES[i], &state)) return false;
        *is_whole = *is_whole && state == FOLDER_WHOLE;
    }
    return true;
}

/* What depends on the settings and is made once. A run that has no checkpoint has nothing to lose, unless it is done.
 * */
static bool folder_renew(struct run *r) {
    bool is_done;
    if (!final_look(r, &is_done)) return false;
    if (is_done)
        return error_set(TL_ERROR_USE,
                         "%s: this run is done and its weights are whole in final/, but no checkpoint is left that it "
                         "could go on from (remove final/ to train again from step 0, or give another out folder)",
                         r->settings.out);
    return folder_remove(&r->folder, PRICE) && folder_remove(&r->folder, RECEIPT) &&
           folder_remove(&r->folder, SOURCE_STORIES) && folder_put(&r->folder, CONFIG, settings_json(&r->settings));
}

/* The settings in config.json; is_there false: it is missing or damaged. False: recorded. */
static bool config_read(struct run *r, struct settings *s, bool *is_there) {
    tl_policy policy = tl_error_policy(TL_RETURN);
    *s = settings_default();
    *is_there = settings_read_at(s, file_in(r->folder.dir, CONFIG));
    tl_error_policy(policy);
    if (*is_there) return true;
    if (tl_error() == TL_ERROR_MEMORY) return false;
    tl_error_clear();
    return true;
}

static void changes_add(struct run *r, const char *words) {
    size_t n = strlen(r->changes);
    if (n && n + 3 < sizeof r->changes) memcpy(r->changes + n, "; ", 3), n += 2;
    text_copy(r->changes + n, sizeof r->changes - n, words);
}

/* What differs from what the run was started with ends it, unless it was said that it may. */
static bool changes_allow(struct run *r, const char *words) {
    if (!*words) return true;
    if (!r->accepts_changes)
        return error_set(
            TL_ERROR_USE,
            "%.200s: %s (give the same to resume, another --out to start a new run, or --accept-changes to "
            "go on all the same)",
            r->settings.out, words);
    changes_add(r, words);
    return true;
}

/* The size of the built-in stories is that which the run began with, `then`, whatever steps it has now. */
static void stories_settle(struct run *r, const struct settings *then) {
    struct settings *now = &r->settings;
    if (source_is_builtin(now) && !now->stories) now->stories = source_stories(source_is_builtin(then) ? then : now);
}

/* The settings against those that the run was started with, and saved with last. */
__attribute__((noinline)) static bool settings_resume(struct run *r) {
    struct settings then = r->saved, given;
    char words[CHANGES_TEXT];
    int64_t done = r->found ? checkpoint_step(r->found) : 0;
    bool both = source_is_builtin(&then) && source_is_builtin(&r->settings);
    if (both) then.stories = source_stories(&then); /* older checkpoints do not say */
    stories_settle(r, &then);
    given = r->settings;
    if (!both) given.stories = then.stories; /* the data is compared, and says it all */
    bool by_name = !json_object_get(r->state, "made_from");
    if (!changes_allow(r, settings_conflict(&then, &given, by_name, words, sizeof words))) return false;
    return given.steps == then.steps || given.steps > done ||
           error_set(TL_ERROR_USE,
                     "%.200s: this run was started with --steps %" PRId64 " and has done %" PRId64
                     "; you gave --steps %" PRId64 " (need more than are done)",
                     given.out, then.steps, done, given.steps);
}

/* A checkpoint knows the settings that it was made with; config.json says the same, or is written again. */
__attribute__((noinline)) static bool config_check(struct run *r) {
    struct settings config;
    char words[CHANGES_TEXT];
    bool has_config, has_state = json_object_get(r->state, "settings") != NULL;
    if (!config_read(r, &config, &has_config)) return false;
    if (!has_state && has_config) r->saved = config;
    if (!settings_resume(r)) return false;
    if (!has_state && !has_config) return true; /* only what is given now is known */
    if (has_config && !*settings_conflict(&r->saved, &config, false, words, sizeof words)) return true;
    log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, CONFIG);
    return folder_put(&r->folder, CONFIG, settings_json(&r->saved));
}

/* Opens the newest whole checkpoint; where there is none any more, the run begins again. */
static bool newest_find(struct run *r) {
    r->found = checkpoint_open_newest(&r->folder.checkpoints, true);
    if (!r->found && tl_error() != TL_OK) return false;
    r->state = r->found ? json_parse(checkpoint_state(r->found), NULL) : NULL;
    if (!settings_of(r->state, &r->settings, &r->saved) || !config_check(r)) return false;
    if (r->found) return true;
    *r->changes = 0; /* there is nothing that they could change */
    if (!folder_renew(r)) return false;
    log_line("run: no whole checkpoint is left in %s: training starts again at step 0", r->settings.out);
    return true;
}

/* A folder that another run has made is not this run's. */
static bool folder_begin(struct run *r) {
    struct settings before;
    bool is_begun, has_config;
    if (!folder_open(&r->folder, &r->settings) || !checkpoint_any(&r->folder.checkpoints, &is_begun)) return false;
    if (is_begun) return newest_find(r);
    bool is_done;
    stories_settle(r, &r->settings);
    if (!config_read(r, &before, &has_config) || !final_look(r, &is_done)) return false;
    return (has_config && !is_done && settings_are_same(&before, &r->settings)) || folder_renew(r);
}

static bool price_write(struct run *r, char *text) {
    static const char *const names[] = {PRICE};
    return folder_put(&r->folder, PRICE, text) && folder_seal(&r->folder, NULL, names, 1);
}

/* Whether price.json is one, and the one that was written. */
static bool price_look(struct run *r, bool *is_good) {
    enum folder_state state;
    json_t *price = NULL;
    if (!folder_look(&r->folder, NULL, PRICE, &state) || !folder_json(&r->folder, PRICE, &price)) return false;
    const char *schema = json_string_value(json_object_get(price, "schema"));
    *is_good = state != FOLDER_DAMAGED && schema && !strcmp(schema, "tally.run/1");
    json_decref(price);
    return true;
}

/* The price is made before anything else: what does not fit is told before the first step. */
static bool price_begin(struct run *r) {
    bool is_good;
    if (!price_look(r, &is_good)) return false;
    if (is_good && !*r->settings.memory_limit) return true;
    char *price = run_price(&r->settings);
    r->needs_price = r->found && !is_good;
    if (price && is_good) return free(price), true;
    return price && price_write(r, price);
}

/* The most that any kind of step reserves, by the price in the folder. */
static bool price_peak(struct run *r, uint64_t *most) {
    json_t *price = NULL, *kind;
    const char *name;
    if (!folder_json(&r->folder, PRICE, &price)) return false;
    *most = 0;
    json_object_foreach(json_object_get(price, "kinds"), name, kind) {
        const json_t *memory = json_object_get(json_object_get(kind, "ledger"), "memory");
        const char *text = json_string_value(json_object_get(memory, "peak_reserved_bytes"));
        uint64_t bytes = text ? strtoull(text, NULL, 10) : 0;
        if (bytes > *most) *most = bytes;
    }
    json_decref(price);
    return true;
}

/* Without a limit that was given, what the device has is one. A pool that is refused gives back what it does not use and asks again, so
 * whether a price above that fits is found by pricing under it. */
__attribute__((noinline)) static bool memory_suffices(struct run *r, tl_device *device) {
    uint64_t have = device_memory_bytes(device), need;
    if (*r->settings.memory_limit || !have) return true;
    if (!price_peak(r, &need) || need <= have) return tl_error() == TL_OK;
    struct settings limited = r->settings;
    snprintf(limited.memory_limit, sizeof limited.memory_limit, "%" PRIu64, have);
    char *price = run_price(&limited);
    free(price);
    return price != NULL;
}

/* Whether the price in the folder is that of these settings: a process that was given others may have ended before its
 * first save. False: recorded. */
__attribute__((noinline)) static bool price_is_ours(struct run *r, bool *is) {
    struct settings priced = settings_default();
    json_t *price;
    if (!folder_json(&r->folder, PRICE, &price)) return false;
    tl_policy policy = tl_error_policy(TL_RETURN);
    *is = settings_take_json(&priced, PRICE, json_object_get(price, "settings")) &&
          settings_cost_same(&priced, &r->settings);
    tl_error_policy(policy);
    json_decref(price);
    if (tl_error() == TL_ERROR_MEMORY) return false;
    tl_error_clear();
    return true;
}

/* A run that resumes with settings that cost something else keeps what was counted, and is priced anew for the rest;
 * the ledgers are those from now on. `before`: when it was saved. */
static bool price_again(struct run *r, const struct settings *before) {
    const struct settings *s = &r->settings;
    bool is_ours;
    if (r->step == s->steps) return true;
    if (!price_is_ours(r, &is_ours)) return false;
    if (settings_cost_same(before, s) && !*r->changes && is_ours) return true;
    kinds_forget(&r->kinds);
    return price_write(r, price_text(s, &r->kinds, r->step, run_stand_in(s), r->step)) &&
           folder_put(&r->folder, CONFIG, settings_json(s));
}

/* A price that was damaged, from what is counted in the checkpoint: of a run that is done, by the settings that it had.
 * */
static bool price_repair(struct run *r) {
    const struct settings *s = r->step == r->settings.steps ? &r->saved : &r->settings;
    if (!r->needs_price) return true;
    log_line("run: %s/%s was missing or damaged: the run is priced again", r->settings.out, PRICE);
    return price_write(r, price_text(s, &r->kinds, r->step, run_stand_in(s), 0));
}

/* ---- Saving and going on ---- */

static bool log_begin(struct run *r) { return log_open(&r->log, r->folder.dir, r->log_bytes, r->event_bytes); }

static char *state_text(struct run *r) {
    char *settings_text = settings_json(&r->settings);
    json_t *kinds = kinds_json(&r->kinds), *trainer = trainer_state(r->trainer), *made_on = origin_json(&r->origin);
    json_t *settings = settings_text ? json_parse(settings_text, NULL) : NULL;
    free(settings_text);
    double elapsed = r->elapsed_s + now_s() - r->began_s;
    json_t *root = kinds && trainer && settings && made_on
                       ? json_pack("{s:I, s:O, s:O, s:O, s:O, s:O, s:f, s:I, s:I, s:f, s:b, s:I, s:I}", "step",
                                   (json_int_t)r->step, "trainer", trainer, "kinds", kinds, "settings", settings,
                                   "made_on", made_on, "made_from", r->made_from, "elapsed_s", elapsed, "log_bytes",
                                   (json_int_t)r->log_bytes, "event_bytes", (json_int_t)r->event_bytes, "best",
                                   isfinite(r->best) ? r->best : 0.0, "has_best", (int)isfinite(r->best), "best_step",
                                   (json_int_t)r->best_step, "n_skipped", (json_int_t)r->summary->n_skipped)
                       : NULL;
    char *text = root ? json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) error_memory(4096, "a checkpoint's state");
    json_decref(root);
    json_decref(kinds);
    json_decref(settings);
    json_decref(trainer);
    json_decref(made_on);
    return text;
}

/* Where it is trained now; a run that is done was trained where its checkpoint says. */
static bool machine_write(struct run *r) {
    struct origin there;
    json_t *json = NULL, *made_on = json_object_get(r->state, "made_on");
    if (r->step >= r->settings.steps) {
        if (!folder_json(&r->folder, MACHINE, &json)) return false;
        bool is_good = json && origin_read(&there, json);
        json_decref(json);
        if (is_good || !made_on || !origin_read(&there, made_on)) return true;
        log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, MACHINE);
    }
    json = r->step >= r->settings.steps ? json_incref(made_on) : origin_json(&r->origin);
    char *text = json ? json_print(json, JSON_INDENT(1)) : NULL;
    if (json && !text) error_memory(256, "a record of this machine");
    json_decref(json);
    return folder_put(&r->folder, MACHINE, text);
}

static bool receipt_write(struct run *r) {
    return folder_put(&r->folder, RECEIPT, kinds_text(&r->kinds, &r->settings));
}

/* It is billed first: the state that is saved counts this save, which is made when the state is. It is saved when it
 * was read back, older ones were pruned, and it is still there. */
static bool save(struct run *r, bool is_planned) {
    struct checkpoint_part parts[TRAINER_PARTS];
    struct checkpoints *all = &r->folder.checkpoints;
    double before = now_s();
    bool ok = !is_planned || billed_save(r->trainer, &(struct run_walker){bill_kinds, &r->kinds});
    if (!is_planned) r->kinds.kind[KIND_SAVE].n_unplanned++;
    ok = ok && log_sync(&r->log, &r->log_bytes, &r->event_bytes);
    char *state = ok && trainer_parts(r->trainer, parts) ? state_text(r) : NULL;
    ok = state && checkpoint_save(all, r->step, parts, TRAINER_PARTS, state) &&
         checkpoint_prune(all, (int)r->settings.keep, r->best_step, r->step) && checkpoint_check(all, r->step) &&
         receipt_write(r);
    if (ok) r->last_saved = r->step;
    r->is_new_best = false;
    r->summary->times.saving_s += now_s() - before;
    free(state);
    return ok;
}

/* The settings that a checkpoint was made with; those of now where it does not say. */
__attribute__((noinline)) static bool settings_of(const json_t *state, const struct settings *now,
                                                  struct settings *then) {
    const json_t *settings = json_object_get(state, "settings");
    *then = settings ? settings_default() : *now;
    return !settings || settings_take_json(then, "the checkpoint's state.json", settings);
}

/* The bits are promised for the machine that made the checkpoint. Those of before there was a record say nothing. */
static void origin_look(const struct run *r, const json_t *made_on) {
    struct origin then;
    char text[440];
    if (!made_on || r->step >= r->settings.steps) return;
    if (!origin_read(&then, made_on))
        log_line("checkpoint of step %" PRId64
                 " has an unreadable machine record: it resumes, but the result may not be bitwise identical",
                 r->step);
    else if (*origin_compare(&then, &r->origin, text, sizeof text))
        log_line("checkpoint of step %" PRId64 " resumes, but the result may not be bitwise identical: it was made with %s", r->step, text);
}

/* Another number of steps: the schedule is a function of the step and of how many there are, and remembers nothing.
 * The weights of an end that is none any more go. */
static bool length_change(struct run *r, int64_t before) {
    int64_t now = r->settings.steps;
    enum file_kind kind;
    char words[128];
    if (before == now || r->step >= now) return true;
    number_print(words, sizeof words, "steps was %" PRId64 ", is %" PRId64 ": the next learning rate is %.3g", before,
                 now, trainer_lr(r->trainer, r->step));
    if (!strstr(r->changes, words)) changes_add(r, words); /* it may have been rolled back */
    if (!file_look(file_in(r->folder.dir, FINAL), &kind)) return false;
    if (kind != FILE_FOLDER) return true;
    struct file_folder *final = file_folder_in(r->folder.dir, FINAL, false);
    bool ok = final && file_remove(file_in(final, FINAL_FILES[1]));
    file_folder_close(final);
    return ok;
}

static bool state_read(struct run *r, const char *text) {
    struct settings before;
    json_error_t problem;
    json_t *root = json_parse(text, &problem);
    json_int_t step, log_bytes, event_bytes = 0, best_step, n_skipped;
    double elapsed, best;
    int has_best;
    bool ok = root &&
              json_unpack(root, "{s:I, s:F, s:I, s?I, s:F, s:b, s:I, s:I}", "step", &step, "elapsed_s", &elapsed,
                          "log_bytes", &log_bytes, "event_bytes", &event_bytes, "best", &best, "has_best", &has_best,
                          "best_step", &best_step, "n_skipped", &n_skipped) == 0 &&
              step >= 0 && log_bytes >= 0 && event_bytes >= 0;
    if (!ok) error_set(TL_ERROR_USE, "the checkpoint's state.json is not a run's state");
    kinds_free(&r->kinds);
    ok = ok && trainer_set_state(r->trainer, json_object_get(root, "trainer")) &&
         kinds_read(&r->kinds, json_object_get(root, "kinds"));
    if (ok) {
        r->step = r->n_read = r->last_saved = step;
        r->elapsed_s = elapsed;
        r->log_bytes = log_bytes;
        r->event_bytes = event_bytes;
        r->best = has_best ? best : NAN;
        r->best_step = best_step;
        r->summary->n_skipped = n_skipped;
        origin_look(r, json_object_get(root, "made_on"));
    }
    ok = ok && settings_of(root, &r->settings, &before) && length_change(r, before.steps) && price_again(r, &before);
    json_decref(root);
    return ok;
}

/* Takes over a checkpoint and closes it. */
static bool resume(struct run *r, struct checkpoint *c) {
    struct checkpoint_part parts[TRAINER_PARTS];
    bool ok = trainer_parts(r->trainer, parts);
    for (int i = 0; ok && i < TRAINER_PARTS; i++) ok = checkpoint_load(c, &parts[i]);
    ok = ok && state_read(r, checkpoint_state(c));
    checkpoint_close(c);
    return ok;
}

/* Takes over the checkpoint that was found when the run began, and removes those that a killed process should have
 * pruned, by the rule that it had or by that of now, whichever keeps more. */
static bool resume_found(struct run *r) {
    struct checkpoint *c = r->found;
    int64_t keep = r->saved.keep > r->settings.keep ? r->saved.keep : r->settings.keep;
    r->found = NULL;
    return !c || (resume(r, c) && price_repair(r) &&
                  checkpoint_prune(&r->folder.checkpoints, (int)keep, r->best_step, r->step));
}

/* Goes back to the newest checkpoint in the middle of a run, which has saved one. */
static bool resume_newest(struct run *r) {
    struct checkpoint *c = checkpoint_open_newest(&r->folder.checkpoints, true);
    if (!c && tl_error() == TL_OK)
        error_set(TL_ERROR_IO, "%s: no whole checkpoint is left to roll back to", r->settings.out);
    return c && resume(r, c);
}

/* What was told to go on with other inputs, settings or steps is in the log, and a line says it. */
static bool changes_log(struct run *r) {
    if (!*r->changes || r->step >= r->settings.steps) return true;
    log_line("checkpoint of step %" PRId64 " resumes with changes: %s", r->step, r->changes);
    return log_change(&r->log, r->step, r->changes);
}

/* ---- What it is made from ---- */

static bool inputs_check(struct run *r) {
    char words[CHANGES_TEXT];
    const json_t *then = json_object_get(r->state, "made_from");
    if (then) return changes_allow(r, identity_compare(then, r->made_from, words, sizeof words));
    if (checkpoint_step(r->found) < r->settings.steps)
        log_line("checkpoint of step %" PRId64
                 " has no record of data and model: it resumes without comparing them",
                 checkpoint_step(r->found));
    return true;
}

static bool inputs_open(struct run *r, const tl_model_config *config, const char *weights) {
    if (!source_open_in(&r->source, &r->settings, config->vocabulary, r->folder.dir)) return false;
    r->made_from = identity_new(&r->settings, config, weights, &r->source);
    return r->made_from && (!r->found || inputs_check(r));
}

/* ---- The loop ---- */

/* Of the machine's peak, as the settings give it; NAN: it is not known. Nothing falls back to another machine's. */
static double share_of_peak(const struct run *r, double flops_per_s) {
    return r->settings.peak > 0 ? flops_per_s / r->settings.peak : NAN;
}

static void tell(struct run *r, int64_t done, double loss, double norm, double held_out, const char *text) {
    if (!r->listener || !r->listener->tell) return;
    double done_here = (double)(r->step - r->summary->first_step), here_s = now_s() - r->began_s;
    double tokens_per_s = (double)trainer_step_tokens(r->trainer) / r->step_s, flops_per_s = r->step_flops / r->step_s;
    struct run_news news = {
        .step = done,
        .steps = r->settings.steps,
        .loss = loss,
        .norm = norm,
        .lr = trainer_lr(r->trainer, done - 1),
        .step_s = r->step_s,
        .tokens_per_s = tokens_per_s,
        .flops_per_s = flops_per_s,
        .mfu = share_of_peak(r, r->palm_flops * tokens_per_s),
        .hfu = share_of_peak(r, flops_per_s),
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
    if (!strcmp(policy, "skip")) return true;
    if (!strcmp(policy, "rollback") && r->n_rollbacks++ < 3 && r->last_saved > 0) {
        int64_t shift = r->trainer->data_shift + done - r->last_saved; /* other batches than those that led here */
        bool ok = resume_newest(r) && log_close(&r->log) && log_begin(r);
        r->trainer->data_shift = shift;
        if (!ok) *end = RUN_FAILED;
        return ok;
    }
    snprintf(r->summary->problem, sizeof r->summary->problem,
             "step %" PRId64 ": %s is not finite; the weights were not touched", done,
             isfinite(loss) ? "the gradient's norm" : "the loss");
    *end = RUN_NOT_FINITE;
    return false;
}

/* Clock, power and heat of a device that knows them, once a second. */
static const struct device_health *health_of(struct run *r) {
    const tl_device *device = r->trainer->device;
    double now = now_s();
    if (!device->functions->health || now - r->health_s < 1) return NULL;
    r->health_s = now;
    return device->functions->health(device, &r->health) ? &r->health : NULL;
}

static bool step_log(struct run *r, int64_t done, double loss, double norm, bool is_skipped) {
    if (done % r->settings.log_every != 0 && done != r->settings.steps) return true;
    int64_t tokens = trainer_step_tokens(r->trainer);
    double tokens_per_s = (double)tokens / r->step_s;
    const struct log_step line = {.step = done,
                                  .tokens = done * tokens,
                                  .loss = loss,
                                  .norm = norm,
                                  .lr = trainer_lr(r->trainer, done - 1),
                                  .step_s = r->step_s,
                                  .tokens_per_s = tokens_per_s,
                                  .wait_s = r->wait_s,
                                  .mfu = share_of_peak(r, r->palm_flops * tokens_per_s),
                                  .is_skipped = is_skipped,
                                  .health = health_of(r)};
    return log_step(&r->log, &line);
}

/* By the device's own clock: this thread may read the results of a step long after the device has finished it. A step takes from the end of the one
 * before it to its own end, or from its beginning where something else came between. */
static void step_time(struct run *r, int64_t at) {
    const struct step_span *span = &r->span[at % 2];
    tl_device *device = r->trainer->device;
    double seconds = device_mark_seconds(device, span->from, span->to);
    r->step_s = seconds > 0 ? seconds : span->asked_s; /* a profile may have used up the marks */
    struct run_times *t = &r->summary->times;
    *(r->n_timed++ < FIRST_STEPS ? &t->first_steps_s : &t->steps_s) += r->step_s;
}

/* Reads loss and norm of the steps whose results are still unread, all but the newest `n_behind`. */
static bool results_read(struct run *r, int64_t n_behind, enum run_end *end) {
    while (*end == RUN_DONE && r->n_read < r->step - n_behind) {
        double loss, norm;
        int64_t at = r->n_read++;
        if (!trainer_read(r->trainer, at, &loss, &norm)) return *end = RUN_FAILED, false;
        step_time(r, at);
        bool is_finite = isfinite(loss) && isfinite(norm);
        if (!step_log(r, at + 1, loss, norm, !is_finite)) return *end = RUN_FAILED, false;
        r->summary->loss = loss;
        tell(r, at + 1, loss, norm, NAN, NULL);
        if (!is_finite && !not_finite(r, at + 1, loss, end)) return false;
    }
    return *end == RUN_DONE;
}

static bool evaluate(struct run *r) {
    double before = now_s();
    if (!billed_eval(r->trainer, &(struct run_walker){bill_kinds, &r->kinds}) ||
        !trainer_read_evaluation(r->trainer, &r->held_out))
        return false;
    r->summary->held_out = r->held_out;
    if (isfinite(r->held_out) && !(r->held_out >= r->best)) {
        r->best = r->held_out;
        r->best_step = r->step;
        r->is_new_best = true;
    }
    double seconds = now_s() - before;
    r->summary->times.evaluation_s += seconds;
    tell(r, r->step, r->summary->loss, NAN, r->held_out, NULL);
    return log_held_out(&r->log, r->step, r->held_out, seconds);
}

static bool sample(struct run *r) {
    double before = now_s();
    bool ok = billed_sample(r->trainer, &(struct run_walker){bill_kinds, &r->kinds});
    char *text = ok ? trainer_read_text(r->trainer) : NULL;
    if (!text) return false;
    r->summary->times.sampling_s += now_s() - before;
    tell(r, r->step, r->summary->loss, NAN, NAN, text);
    free(r->summary->text);
    r->summary->text = text;
    return log_text(&r->log, r->step, text);
}

static bool plain_step(struct run *r) {
    return billed_step(r->trainer, &(struct run_walker){bill_kinds, &r->kinds}, r->step);
}

/* A step whose ops are timed, and itself, by marks: the device may still be at the step before when this thread begins. The bracket around the step's
 * own gets the same rows, so the receipt knows nothing of it. */
static bool timed_step(struct run *r) {
    tl_device *device = r->trainer->device;
    tl_ledger *around = tl_ledger_begin("profile");
    if (!around) return false;
    double before = now_s();
    int64_t from = device_mark(device);
    bool was_on = tl_profile(true), ok = plain_step(r);
    tl_profile(was_on);
    double seconds = device_mark_seconds(device, from, device_mark(device));
    if (!(seconds > 0)) seconds = now_s() - before; /* more ops than marks are kept */
    ok = tl_ledger_end(around) && ok && profile_add(&r->summary->profile, around, seconds);
    tl_ledger_free(around);
    return ok;
}

static bool is_timed(const struct run *r) {
    int64_t n_before = r->step - r->summary->first_step - 2; /* pools grow in a process's first steps */
    return r->listener && n_before >= 0 && n_before < r->listener->profile_steps;
}

/* One step and what is due after it. */
static bool advance(struct run *r, enum run_end *end) {
    struct trainer *t = r->trainer;
    double before = now_s();
    struct step_span *span = &r->span[r->step % 2];
    bool has_timers = is_timed(r);
    span->from = r->last_mark ? r->last_mark : device_mark(t->device);
    /* from one step's begin to the next one's, so that what the device still does is in it */
    if (r->step_began_s > 0) kinds_time(&r->kinds, KIND_STEP, before - r->step_began_s);
    r->step_began_s = 0;
    if (!(has_timers ? timed_step(r) : plain_step(r))) return *end = RUN_FAILED, false;
    span->to = r->last_mark = device_mark(t->device);
    span->asked_s = now_s() - before;
    r->step++;
    r->wait_s = tl_loader_wait_s(t->loader) - r->waited_s;
    r->waited_s += r->wait_s;
    bool eval = is_due_eval(t, r->step), text = is_due_sample(t, r->step), keep = is_due_save(t, r->step);
    int64_t done = r->step;
    if (!results_read(r, eval || text || keep ? 0 : 1, end)) return false;
    bool is_stopping = r->listener && r->listener->stop && *r->listener->stop;
    if (is_stopping && !results_read(r, 0, end)) return false; /* a checkpoint has the log of all its steps */
    if (r->step != done) return r->last_mark = 0, true;        /* rolled back: what was due there has been done */
    r->held_out = NAN;
    bool is_plain = !eval && !text && !keep && !has_timers && r->step > r->summary->first_step + 2;
    r->step_began_s = is_plain ? before : 0;
    bool ok = (!eval || evaluate(r)) && (!text || sample(r));
    bool keep_now = keep || is_stopping || (r->is_new_best && r->settings.save_best);
    ok = ok && (!keep_now || save(r, keep));
    if (eval || text || keep_now) r->last_mark = 0;
    if (!ok) *end = RUN_FAILED;
    else if (is_stopping && r->step < r->settings.steps) *end = RUN_STOPPED;
    return *end == RUN_DONE;
}

static void flops_find(struct run *r) {
    const json_t *totals = json_object_get(r->kinds.kind[KIND_STEP].ledger, "totals");
    const char *flops = json_string_value(json_object_get(totals, "flops"));
    r->step_flops = flops ? number_parse(flops, NULL) : 0;
}

/* The steps that speeds are of: all but the first two of a process, if there are more. */
static int64_t steps_timed(struct run *r) {
    struct run_times *t = &r->summary->times;
    if (t->steps_s == 0) t->steps_s = t->first_steps_s, t->first_steps_s = 0;
    return r->n_timed - (t->first_steps_s > 0 ? FIRST_STEPS : 0);
}

static void summarise(struct run *r, enum run_end end) {
    struct run_summary *m = r->summary;
    double here = now_s() - r->began_s, n_timed = (double)steps_timed(r), steps_s = m->times.steps_s;
    flops_find(r);
    m->steps = r->step;
    m->tokens = r->step * trainer_step_tokens(r->trainer);
    m->seconds = r->elapsed_s + here;
    m->tokens_per_s = steps_s > 0 ? n_timed * (double)trainer_step_tokens(r->trainer) / steps_s : 0;
    m->flops = r->step_flops * (double)r->step;
    m->mfu = share_of_peak(r, r->palm_flops * m->tokens_per_s);
    m->flops_per_s = steps_s > 0 ? r->step_flops * n_timed / steps_s : 0;
    m->hfu = share_of_peak(r, m->flops_per_s);
    double all_steps_s = steps_s + m->times.first_steps_s;
    m->wait_share = all_steps_s > 0 ? tl_loader_wait_s(r->trainer->loader) / all_steps_s : 0;
    m->best = r->best;
    m->best_step = r->best_step;
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
    profile_sort(&m->profile);
    if (end == RUN_DONE && *r->kinds.difference) snprintf(m->problem, sizeof m->problem, "%s", r->kinds.difference);
}

/* The receipt's memory is not the run's alone when the process holds tensors of its own beside it: then the price's stands in for it. */
static char *without_memory(const char *receipt_text, const char *price_json) {
    json_t *receipt = json_parse(receipt_text, NULL), *price = json_parse(price_json, NULL), *kind;
    const char *name;
    json_object_foreach(json_object_get(receipt, "kinds"), name, kind) {
        json_t *other = json_object_get(json_object_get(json_object_get(price, "kinds"), name), "ledger");
        json_t *memory = json_object_get(other, "memory");
        if (memory) json_object_set(json_object_get(kind, "ledger"), "memory", memory);
    }
    char *text = receipt ? json_print(receipt, 0) : NULL;
    if (!text) error_memory(strlen(receipt_text), "a comparison of ledgers");
    json_decref(receipt);
    json_decref(price);
    return text;
}

/* Price against receipt, both as they lie in the folder. */
static bool verdict(struct run *r) {
    size_t bytes;
    char *price = file_get_at(file_in(r->folder.dir, PRICE), JSON_MOST_LEDGER, &bytes);
    char *receipt = price ? file_get_at(file_in(r->folder.dir, RECEIPT), JSON_MOST_LEDGER, &bytes) : NULL;
    char *compared = receipt && r->summary->foreign_bytes ? without_memory(receipt, price) : NULL;
    bool ok = receipt && (compared || !r->summary->foreign_bytes);
    r->summary->differences = ok ? tl_ledger_diff(price, compared ? compared : receipt, NULL) : -1;
    memory_free(price);
    memory_free(receipt);
    free(compared);
    return r->summary->differences >= 0;
}

/* PaLM's rule: 6 N for every parameter's part in forward and backward, and 12 L T d for attention that sees all T, with d = H D. */
static double palm_flops(const tl_model_config *c, const struct settings *s) {
    return 6 * (double)tl_model_config_parameters(c) +
           12 * (double)c->n_layers * (double)s->seq * (double)(c->n_heads * c->head_size);
}

static bool run_begin(struct run *r) {
    const struct settings *s = &r->settings;
    tl_model_config config;
    char weights[SETTING_TEXT];
    if (s->threads) tl_set_threads((int)s->threads);
    tl_set_matmul_precision((tl_matmul_precision)s->matmul_precision); /* the choices have its order */
    tl_device *device = settings_check(s) && trainer_model(s, &config, weights) ? tl_device_find(s->device) : NULL;
    if (device && !device_has_data(device))
        return error_set(TL_ERROR_USE, "device: %s has no data to train with (use `tally plan` to price a run)",
                         s->device);
    if (!device || !trainer_can_hold(s, &config, weights, device) || !folder_begin(r)) return false;
    bool ok = r->found ? inputs_open(r, &config, weights) && price_begin(r)
                       : price_begin(r) && inputs_open(r, &config, weights);
    if (!ok || !memory_suffices(r, device)) return false;
    r->palm_flops = palm_flops(&config, s);
    tl_pool_trim(device); /* what this process has reserved before is not the run's */
    r->summary->foreign_bytes = tl_device_memory(device).live_bytes;
    if (*s->memory_limit) tl_pool_limit(device, settings_memory_limit(s));
    r->trainer = trainer_new(s, &r->source, device);
    if (!r->trainer && tl_error() == TL_ERROR_MEMORY) advice_add(s, device);
    r->origin = origin_here(device);
    return r->trainer && resume_found(r) && log_begin(r) && changes_log(r) && machine_write(r);
}

static bool final_write(struct run *r) {
    double before = now_s();
    struct file_folder *final = file_folder_in(r->folder.dir, FINAL, true);
    bool ok = final && model_save_in(r->trainer->model, final);
    file_folder_close(final);
    ok = ok && folder_seal(&r->folder, FINAL, FINAL_FILES, 2);
    r->summary->times.saving_s += now_s() - before;
    return ok;
}

/* Whether receipt.json says what the checkpoint says. False: recorded. */
static bool receipt_look(struct run *r, bool *is_good) {
    json_t *found;
    char *text = kinds_text(&r->kinds, &r->settings);
    json_t *need = text ? json_parse(text, NULL) : NULL;
    if (text && !need) error_memory(strlen(text), "a receipt");
    bool ok = need && folder_json(&r->folder, RECEIPT, &found);
    *is_good = ok && json_equal(json_object_get(found, "kinds"), json_object_get(need, "kinds"));
    if (ok) json_decref(found);
    json_decref(need);
    free(text);
    return ok;
}

/* What a run that is done has left, and writes again where it is damaged: the weights and the receipt are those of its
 * checkpoint. */
static bool run_repair(struct run *r) {
    bool has_final, has_receipt;
    if (!final_look(r, &has_final) || !receipt_look(r, &has_receipt)) return false;
    if (!has_final) log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, FINAL);
    if (!has_receipt) log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, RECEIPT);
    return (has_final || final_write(r)) && (has_receipt || receipt_write(r));
}

/* The weights as others read them, and the receipt, once every step is done: also when the process that did the last step could not. */
static bool run_complete(struct run *r) {
    bool was_done = r->step == r->summary->first_step;
    return (was_done ? run_repair(r) : final_write(r) && receipt_write(r)) && verdict(r);
}

static void run_free(struct run *r) {
    trainer_free(r->trainer);
    source_close(&r->source);
    kinds_free(&r->kinds);
    if (*r->settings.memory_limit && tl_device_find(r->settings.device))
        tl_pool_limit(tl_device_find(r->settings.device), 0);
    checkpoint_close(r->found);
    json_decref(r->state);
    json_decref(r->made_from);
    folder_close(&r->folder);
    memory_free(r);
}

static enum run_end train(const struct settings *s, const struct run_listener *listener, struct run_summary *summary) {
    struct run *r = memory_new(sizeof *r);
    if (!r) return error_memory(sizeof *r, "a run"), RUN_FAILED;
    memset(r, 0, sizeof *r); /* too large to be built on the stack first */
    r->settings = *s;
    r->listener = listener;
    r->summary = summary;
    r->best = r->held_out = NAN;
    r->best_step = r->folder.lock = -1;
    r->began_s = now_s();
    r->accepts_changes = s->accept_changes;
    r->settings.accept_changes = false; /* for this call, not for the run */
    enum run_end end = run_begin(r) ? RUN_DONE : RUN_FAILED;
    summary->times.start_s = now_s() - r->began_s;
    r->began_s += summary->times.start_s;
    summary->first_step = r->step;
    while (end == RUN_DONE && r->step < s->steps)
        if (advance(r, &end) && r->step_flops == 0) flops_find(r);
    if (end == RUN_FAILED && r->trainer && tl_error() == TL_ERROR_MEMORY) advice_add(s, r->trainer->device);
    if (r->trainer && end != RUN_FAILED) summarise(r, end);
    if (end == RUN_DONE && !run_complete(r)) end = RUN_FAILED;
    if (!log_close(&r->log) && end == RUN_DONE) end = RUN_FAILED;
    run_free(r);
    return end;
}

enum run_end run_train(const struct settings *s, const struct run_listener *listener, struct run_summary *summary) {
    *summary = (struct run_summary){.differences = -1,
                                    .held_out = NAN,
                                    .floor = NAN,
                                    .loss = NAN,
                                    .mfu = NAN,
                                    .hfu = NAN,
                                    .best = NAN,
                                    .best_step = -1};
    if (!turn_take(s->out)) return RUN_FAILED;
    enum run_end end = train(s, listener, summary);
    turn_give();
    return end;
}
