/* run_save.c: saving and resuming a run, and its final files. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "nn/adapter.h"
#include "nn/model.h"
#include "tensor/timeline.h"
#include "train/run_parts.h"

const char *const *run_final_files(const struct settings *s) {
    static const char *const model[2] = {"config.json", "model.safetensors"};
    static const char *const adapter[2] = {ADAPTER_CONFIG, ADAPTER_WEIGHTS};
    return s->lora ? adapter : model;
}

bool run_log_begin(struct run *r) {
    return !run_is_first(r) || log_open(&r->log, r->folder.dir, r->log_bytes, r->event_bytes);
}

static char *state_text(struct run *r) {
    char *settings_text = settings_json(&r->settings);
    json_t *kinds = kinds_json(&r->kinds), *trainer = trainer_state(r->trainer), *made_on = origin_json(&r->origin);
    json_t *settings = settings_text ? json_parse(settings_text, NULL) : NULL;
    free(settings_text);
    double elapsed = r->elapsed_s + now_s() - r->began_s;
    json_t *root =
        kinds && trainer && settings && made_on
            ? json_pack("{s:I, s:O, s:O, s:O, s:O, s:O, s:f, s:I, s:I, s:f, s:b, s:I, s:I, s:b}", "step",
                        (json_int_t)r->step, "trainer", trainer, "kinds", kinds, "settings", settings, "made_on",
                        made_on, "made_from", r->made_from, "elapsed_s", elapsed, "log_bytes", (json_int_t)r->log_bytes,
                        "event_bytes", (json_int_t)r->event_bytes, "best", isfinite(r->best) ? r->best : 0.0,
                        "has_best", (int)isfinite(r->best), "best_step", (json_int_t)r->best_step, "n_skipped",
                        (json_int_t)r->summary->n_skipped, "owes_evaluation", (int)r->owes_evaluation)
            : NULL;
    if (root && r->early_of) json_object_set_new(root, "early_of", json_integer(r->early_of));
    char *text = root ? json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) error_memory(4096, "a checkpoint's state");
    json_decref(root);
    json_decref(kinds);
    json_decref(settings);
    json_decref(trainer);
    json_decref(made_on);
    return text;
}

/* The machine that trains it now; for a finished run, the machine of its checkpoint. */
bool run_machine_write(struct run *r) {
    struct origin there;
    json_t *json = NULL, *made_on = json_object_get(r->state, "made_on");
    if (r->step >= r->settings.steps) {
        if (!folder_json(&r->folder, RUN_MACHINE, &json)) return false;
        bool is_good = json && origin_read(&there, json);
        json_decref(json);
        if (is_good || !made_on || !origin_read(&there, made_on)) return true;
        log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, RUN_MACHINE);
    }
    json = r->step >= r->settings.steps ? json_incref(made_on) : origin_json(&r->origin);
    char *text = json ? json_print(json, JSON_INDENT(1)) : NULL;
    if (json && !text) error_memory(256, "a record of this machine");
    json_decref(json);
    return folder_put(&r->folder, RUN_MACHINE, text);
}

static bool receipt_write(struct run *r) {
    return folder_put(&r->folder, RUN_RECEIPT, kinds_text(&r->kinds, &r->settings));
}

/* The save is billed first, since the saved state counts it. It is done when the checkpoint was read back, older ones
 * were pruned, and it still exists. */
bool run_save(struct run *r, bool is_planned) {
    struct trainer_part parts[TRAINER_PARTS];
    struct checkpoints *all = &r->folder.checkpoints;
    double before = now_s();
    run_ranks_patience(r, PHASE_OTHER);
    bool ok = !is_planned || run_kind(r, KIND_SAVE);
    if (!is_planned) r->kinds.kind[KIND_SAVE].n_unplanned++;
    ok = ok && log_sync(&r->log, &r->log_bytes, &r->event_bytes);
    char *state = ok && trainer_parts(r->trainer, parts) ? state_text(r) : NULL;
    ok = run_checkpoint_write(r, parts, state);
    if (ok && run_is_first(r))
        ok = checkpoint_prune(all, (int)r->settings.keep, r->best_step, r->step) && checkpoint_check(all, r->step) &&
             receipt_write(r);
    ok = run_agree(r, ok);
    if (ok) r->last_saved = r->step;
    r->is_new_best = false;
    r->summary->times.saving_s += now_s() - before;
    timeline_span(TIMELINE_WORK, "saving", before);
    free(state);
    return ok;
}

/* The settings that a checkpoint was made with; the present ones if it has none. */
__attribute__((noinline)) bool run_settings_of(const json_t *state, const struct settings *now, struct settings *then) {
    const json_t *settings = json_object_get(state, "settings");
    *then = settings ? settings_default() : *now;
    return !settings || settings_take_json(then, "the checkpoint's state.json", settings);
}

/* Bits are only guaranteed on the machine that made the checkpoint. Older checkpoints have no record of it. */
static void origin_look(const struct run *r, const json_t *made_on) {
    struct origin then;
    char text[440];
    if (!made_on || r->step >= r->settings.steps) return;
    if (!origin_read(&then, made_on))
        log_line("checkpoint of step %" PRId64
                 " has an unreadable machine record: it resumes, but the result may not be bitwise identical",
                 r->step);
    else if (*origin_compare(&then, &r->origin, text, sizeof text))
        log_line("checkpoint of step %" PRId64
                 " resumes, but the result may not be bitwise identical: it was made with %s",
                 r->step, text);
}

/* Another number of steps: the schedule is a function of the step and of the number of steps, without state. The
 * final weights of the old end are removed. */
static bool length_change(struct run *r, int64_t before) {
    int64_t now = r->settings.steps;
    enum file_kind kind;
    char words[200];
    if (before == now || r->step >= now) return true;
    number_print(words, sizeof words,
                 "it had --steps %" PRId64 ", now --steps %" PRId64
                 ": the schedule is that of the new number, the next learning rate %.3g",
                 before, now, trainer_lr(r->trainer, r->step));
    if (!strstr(r->changes, words)) run_changes_add(r, words); /* it may have been rolled back */
    if (!run_is_first(r)) return true;
    if (!file_look(file_in(r->folder.dir, RUN_FINAL), &kind)) return false;
    if (kind != FILE_FOLDER) return true;
    struct file_folder *final = file_folder_in(r->folder.dir, RUN_FINAL, false);
    bool ok = final && file_remove(file_in(final, run_final_files(&r->settings)[1]));
    file_folder_close(final);
    return ok;
}

/* Sums of gradients depend on how many ranks add them. */
static void ranks_look(const struct run *r, const struct settings *before) {
    int64_t then = (before->dp ? before->dp : 1) * before->tp * before->cp * before->pp;
    int64_t now = (r->settings.dp ? r->settings.dp : 1) * r->settings.tp * r->settings.cp * r->settings.pp;
    if (then != now && r->step < r->settings.steps)
        log_line("checkpoint of step %" PRId64 " was made by %" PRId64 " rank%s, and %" PRId64
                 " go%s on: from here on sums are rounded differently",
                 r->step, then, then == 1 ? "" : "s", now, now == 1 ? "es" : "");
}

static bool state_read(struct run *r, const char *text) {
    struct settings before;
    json_error_t problem;
    json_t *root = json_parse(text, &problem);
    json_int_t step, log_bytes, event_bytes = 0, best_step, n_skipped;
    double elapsed, best;
    int has_best, owes_evaluation = 0;
    bool ok = root &&
              json_unpack(root, "{s:I, s:F, s:I, s?I, s:F, s:b, s:I, s:I, s?b}", "step", &step, "elapsed_s", &elapsed,
                          "log_bytes", &log_bytes, "event_bytes", &event_bytes, "best", &best, "has_best", &has_best,
                          "best_step", &best_step, "n_skipped", &n_skipped, "owes_evaluation", &owes_evaluation) == 0 &&
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
        r->owes_evaluation = owes_evaluation && r->trainer->n_held_out > 0;
        r->early_of = step < r->settings.steps ? 0 : json_integer_value(json_object_get(root, "early_of"));
        origin_look(r, json_object_get(root, "made_on"));
    }
    ok = ok && run_settings_of(root, &r->settings, &before);
    if (ok) ranks_look(r, &before);
    ok = ok && length_change(r, before.steps) && run_price_again(r, &before);
    json_decref(root);
    return ok;
}

/* Takes over a checkpoint and closes it. */
static bool resume(struct run *r, struct checkpoint *c) {
    struct trainer_part parts[TRAINER_PARTS];
    bool ok = trainer_parts(r->trainer, parts);
    for (int i = 0; ok && i < TRAINER_PARTS; i++) ok = checkpoint_load(c, &parts[i]);
    ok = ok && state_read(r, checkpoint_state(c));
    checkpoint_close(c);
    return ok;
}

/* Takes over the checkpoint that was found when the run began, and removes those that a killed process should have
 * pruned, by its rule or by the present one, whichever keeps more. */
bool run_resume_found(struct run *r) {
    struct checkpoint *c = r->found;
    int64_t keep = r->saved.keep > r->settings.keep ? r->saved.keep : r->settings.keep;
    r->found = NULL;
    if (!c) return true;
    return resume(r, c) && run_price_repair(r) &&
           (!run_is_first(r) || checkpoint_prune(&r->folder.checkpoints, (int)keep, r->best_step, r->step));
}

/* Goes back to the newest checkpoint during a run, which has saved one. */
bool run_resume_newest(struct run *r) {
    run_ranks_patience(r, PHASE_OTHER);
    struct checkpoint *c = run_is_first(r) ? checkpoint_open_newest(&r->folder.checkpoints, true) : NULL;
    int64_t step = c ? checkpoint_step(c) : -1;
    if (!c && run_is_first(r) && tl_error() == TL_OK)
        error_set(TL_ERROR_IO, "%s: no whole checkpoint is left to roll back to", r->settings.out);
    if (!run_agree(r, c || !run_is_first(r)) || !run_ranks_step(r, &step)) return checkpoint_close(c), false;
    if (!run_is_first(r)) c = checkpoint_open_verified(&r->folder.checkpoints, step);
    return run_agree(r, c && resume(r, c));
}

/* Accepted changes of inputs, settings or steps are logged and reported. */
bool run_changes_log(struct run *r) {
    if (!*r->changes || r->step >= r->settings.steps) return true;
    log_line("checkpoint of step %" PRId64 " resumes with changes: %s", r->step, r->changes);
    return log_change(&r->log, r->step, r->changes);
}

static bool final_write(struct run *r, const struct joined *whole) {
    double before = now_s();
    struct file_folder *final = file_folder_in(r->folder.dir, RUN_FINAL, true);
    tl_module *model = r->trainer->model;
    bool ok = final && (r->settings.lora ? adapter_save_in(model, whole->list, whole->n, r->settings.model, final)
                                         : model_save_in(tl_model_config_of(model), whole->list, whole->n, final));
    file_folder_close(final);
    ok = ok && folder_seal(&r->folder, RUN_FINAL, run_final_files(&r->settings), 2) && run_tokenizer_put(r, RUN_FINAL);
    r->summary->times.saving_s += now_s() - before;
    return ok;
}

/* Whether receipt.json agrees with the checkpoint. False: recorded. */
static bool receipt_look(struct run *r, bool *is_good) {
    json_t *found;
    char *text = kinds_text(&r->kinds, &r->settings);
    json_t *need = text ? json_parse(text, NULL) : NULL;
    if (text && !need) error_memory(strlen(text), "a receipt");
    bool ok = need && folder_json(&r->folder, RUN_RECEIPT, &found);
    *is_good = ok && json_equal(json_object_get(found, "kinds"), json_object_get(need, "kinds"));
    if (ok) json_decref(found);
    json_decref(need);
    free(text);
    return ok;
}

/* The final files of a finished run, rewritten if they are damaged: weights and receipt come from its checkpoint. */
static bool run_repair(struct run *r, const struct joined *whole) {
    bool has_final, has_tokenizer, has_receipt;
    if (!run_final_look(r, &has_final) || !run_tokenizer_look(r, RUN_FINAL, &has_tokenizer) ||
        !receipt_look(r, &has_receipt))
        return false;
    has_final = has_final && has_tokenizer;
    if (!has_final) log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, RUN_FINAL);
    if (!has_receipt) log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, RUN_RECEIPT);
    return (has_final || final_write(r, whole)) && (has_receipt || receipt_write(r));
}

/* Parameters, and in place of those that sharding divides what the ranks of dp have of them. */
static bool weights_list(struct run *r, struct portions *collected, tl_named_tensor **list, int *n) {
    struct trainer *t = r->trainer;
    const tl_named_tensor *own = tl_module_list(t->model, n);
    if (!own || !trainer_collect(t, 0, collected)) return false;
    *list = memory_new(((size_t)*n + 1) * sizeof **list);
    if (!*list) return error_memory((size_t)*n * sizeof **list, "a list of parameters");
    memcpy(*list, own, (size_t)*n * sizeof **list);
    for (int i = 0; i < *n; i++)
        for (size_t k = 0; k < collected->n; k++)
            if (collected->of[k] == own[i].tensor) (*list)[i].tensor = collected->at[k].tensor;
    return true;
}

/* All weights, whole and in the model's order, on the first rank: from the ranks of dp where they are divided, then of
 * tp, then of pp. */
static bool weights_gather(struct run *r, struct joined *whole) {
    const struct mesh_group *pp = &r->mesh.axis[MESH_PP];
    struct portions collected = {0};
    tl_named_tensor *list = NULL;
    int n = 0;
    bool is_near = r->mesh.experts.rank == 0; /* the first rank, and those that hold the other parts of its model */
    bool is_stage = is_near && r->mesh.axis[MESH_TP].rank == 0 && r->mesh.ep.rank == 0; /* has all parts of a stage */
    bool ok = run_agree(r, weights_list(r, &collected, &list, &n));
    ok = ok && run_agree(r, !is_near || joined_make(whole, list, n));
    if (ok && pp->size > 1)
        ok = run_agree(r, !is_stage || joined_collect(whole, model_shared_name(r->trainer->model), pp->comm));
    memory_free(list);
    portions_free(&collected);
    return ok;
}

/* The final weights for other programs, and the receipt, once every step is done: also if the process of the last
 * step could not write them. */
bool run_complete(struct run *r) {
    run_ranks_patience(r, PHASE_OTHER);
    bool was_done = r->step == r->summary->first_step;
    struct joined whole = {0};
    bool ok = run_agree(r, trainer_average(r->trainer, true)) && weights_gather(r, &whole);
    if (ok && run_is_first(r)) ok = was_done ? run_repair(r, &whole) : final_write(r, &whole) && receipt_write(r);
    joined_free(&whole);
    ok = trainer_average(r->trainer, false) && ok;
    return run_agree(r, ok && run_verdict(r));
}
