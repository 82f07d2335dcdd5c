#include "train/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/comm.h"
#include "step/advice.h"
#include "step/tokens.h"
#include "step/tuning.h"
#include "step/turn.h"
#include "tensor/timeline.h"
#include "train/run_parts.h"

/* Handles a step that is not finite. True: continue. */
static bool not_finite(struct run *r, int64_t done, double loss, enum run_end *end) {
    const char *policy = settings_choice(&r->settings, "on_nonfinite");
    r->summary->n_skipped++;
    if (r->trainer->recipe->has_scaler && isfinite(loss))
        return true; /* the loss scale was too large; it will shrink */
    if (!strcmp(policy, "skip")) return true;
    if (!strcmp(policy, "rollback") && r->n_rollbacks++ < 3 && r->last_saved > 0) {
        int64_t shift = r->trainer->data_shift + done - r->last_saved; /* other batches than those that led here */
        bool ok = run_resume_newest(r) && log_close(&r->log) && run_log_begin(r);
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

/* Reads loss and norm of all steps whose results are unread, except the newest `n_behind`. */
static bool results_read(struct run *r, int64_t n_behind, enum run_end *end) {
    while (*end == RUN_DONE && r->n_read < r->step - n_behind) {
        double loss, norm;
        int64_t at = r->n_read++;
        if (!trainer_read(r->trainer, at, &loss, &norm)) return *end = RUN_FAILED, false;
        run_step_time(r, at);
        bool is_finite = isfinite(loss) && isfinite(norm);
        if (!run_log_step(r, at + 1, loss, norm, !is_finite)) return *end = RUN_FAILED, false;
        r->summary->loss = loss;
        r->summary->margin = r->trainer->rewards.margin;
        r->summary->accuracy = r->trainer->rewards.accuracy;
        run_tell(r, at + 1, loss, norm, NAN, NULL);
        if (!is_finite && !not_finite(r, at + 1, loss, end)) return false;
    }
    return *end == RUN_DONE;
}

static void sets_take(struct run *r) {
    struct run_sets *sets = &r->summary->sets;
    *sets = (struct run_sets){0};
    for (int i = 0; i < r->source.n_held_out && *r->source.held_out_name[i]; i++, sets->n++) {
        text_copy(sets->at[i].name, SETS_NAME, r->source.held_out_name[i]);
        sets->at[i].loss = r->trainer->held_out_loss[i];
    }
}

static bool evaluate(struct run *r) {
    double before = now_s();
    run_ranks_patience(r, PHASE_OTHER);
    bool is_done = run_kind(r, KIND_EVAL);
    r->owes_evaluation = !is_done && r->trainer->is_left;
    if (r->owes_evaluation) return true;
    if (!is_done || !trainer_read_evaluation(r->trainer, &r->held_out)) return false;
    r->summary->held_out = r->held_out;
    sets_take(r);
    r->summary->held_out_accuracy = r->trainer->rewards.accuracy;
    if (isfinite(r->held_out) && !(r->held_out >= r->best)) {
        r->best = r->held_out;
        r->best_step = r->step;
        r->is_new_best = true;
    }
    double seconds = now_s() - before;
    timeline_span(TIMELINE_WORK, "evaluation", before);
    r->summary->times.evaluation_s += seconds;
    r->summary->bits_per_byte = run_bits_per_byte(r, r->held_out);
    run_tell(r, r->step, r->summary->loss, NAN, r->held_out, NULL);
    const struct log_evaluation e = {.step = r->step,
                                     .loss = r->held_out,
                                     .bits_per_byte = r->summary->bits_per_byte,
                                     .seconds = seconds,
                                     .sets = &r->summary->sets,
                                     .margin = r->trainer->rewards.margin,
                                     .accuracy = r->trainer->rewards.accuracy};
    return log_held_out(&r->log, &e);
}

static bool sample(struct run *r) {
    double before = now_s();
    run_ranks_patience(r, PHASE_OTHER);
    bool ok = run_kind(r, KIND_SAMPLE);
    char *text = ok ? trainer_read_text(r->trainer) : NULL;
    if (!text) return false;
    r->summary->times.sampling_s += now_s() - before;
    timeline_span(TIMELINE_WORK, "sampling", before);
    run_tell(r, r->step, r->summary->loss, NAN, NAN, text);
    free(r->summary->text);
    r->summary->text = text;
    return log_text(&r->log, r->step, text);
}

static bool is_profiled(const struct run *r) {
    int64_t n_before = r->step - r->summary->first_step - RUN_FIRST_STEPS; /* pools grow in a process's first steps */
    return r->listener && n_before >= 0 && n_before < r->listener->profile_steps;
}

static void lists_end(struct run *r) {
    if (r->lists_memory) tl_set_memory_events(false);
    r->lists_memory = false;
}

/* The step whose ledger is the receipt's, with the list of its allocations. A run does not fail for the lack of it. */
static bool listed_step(struct run *r) {
    tl_ledger *around = tl_ledger_begin("memory");
    bool ok = around && run_kind(r, kind_of_step(&r->settings, r->step)), has_ended = around && tl_ledger_end(around);
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    double before = now_s();
    if (ok && has_ended && !folder_put(&r->folder, RUN_MEMORY, tl_ledger_memory_json(around, r->trainer->device)))
        tl_error_clear();
    timeline_span(TIMELINE_WORK, "write memory.json", before);
    tl_set_error_policy(policy);
    tl_ledger_free(around);
    lists_end(r);
    return ok && has_ended;
}

static bool is_listed(const struct run *r) { return r->lists_memory && r->step == r->summary->first_step + 1; }

/* Seconds for which the device waits before a profiled step, so that all of it is queued by then: queueing each call by
 * itself, between marks, takes some times as long as the step before took; and queues are not endless. */
static double profile_delay(const struct run *r) { return fmin(5 * r->span[(r->step + 1) % 2].asked_s, 0.02); }

/* A step whose ops are timed, and itself, by marks: the device may still be at the step before when this thread
 * begins. The ledger around the step's own gets the same rows, so the receipt does not show it. */
static bool timed_step(struct run *r) {
    tl_device *device = r->trainer->device;
    tl_ledger *around = tl_ledger_begin("profile");
    if (!around) return false;
    double before = now_s();
    int64_t from = device_mark(device);
    bool was_on = tl_set_profiling(true),
         ok = is_listed(r) ? listed_step(r) : run_kind(r, kind_of_step(&r->settings, r->step));
    tl_set_profiling(was_on);
    if (trace_has(r->trace, r->step + 1)) trace_step(r->trace, r->step + 1, before);
    double seconds = device_mark_seconds(device, from, device_mark(device));
    if (!(seconds > 0)) seconds = now_s() - before; /* more ops than marks are kept */
    ok = tl_ledger_end(around) && ok && (!is_profiled(r) || profile_add(&r->summary->profile, around, seconds));
    tl_ledger_free(around);
    return ok;
}

/* A step that was left is as if it had never begun. */
static bool step_left(struct run *r, enum run_end *end) {
    if (!r->trainer->is_left) return *end = RUN_FAILED, false;
    if (results_read(r, 0, end)) *end = r->last_saved == r->step || run_save(r, false) ? RUN_STOPPED : RUN_FAILED;
    return false;
}

/* The run's evaluations up to here that have not improved on the best one are early_stop. Batch-size warm-up is over
 * first: price and settings are those of a run that has whole steps. */
static bool is_over(const struct run *r) {
    const struct settings *s = &r->settings;
    return s->early_stop && r->best_step >= 0 && r->step < s->steps && r->step > s->batch_warmup &&
           (r->step - r->best_step) / s->eval_every >= s->early_stop;
}

/* Makes this step the run's last: what is due at the end of a run is due now. */
static bool end_early(struct run *r) {
    const int64_t before = r->settings.steps;
    r->early_of = before;
    r->settings.steps = r->trainer->settings.steps = r->step;
    log_line("run: ends after step %" PRId64 " of %" PRId64
             ": the held-out loss is not below %.4f, that of step %" PRId64 ", after %" PRId64 " evaluations",
             r->step, before, r->best, r->best_step, r->settings.early_stop);
    return run_agree(r, run_price_shorten(r, before));
}

/* What is due after a step, in this order. A run that is stopped while it evaluates does the rest when it resumes. */
static bool after_step(struct run *r, bool eval, bool text, bool keep, bool is_stopping, enum run_end *end) {
    bool ok = !eval || evaluate(r);
    if (ok && eval && !r->owes_evaluation && is_over(r)) {
        ok = end_early(r);
        text = walk_is_due(r->trainer, KIND_SAMPLE, r->step);
        keep = true;
    }
    ok = ok && (!text || r->owes_evaluation || sample(r));
    is_stopping = is_stopping || r->owes_evaluation;
    bool keep_now = keep || is_stopping || (r->is_new_best && r->settings.save_best);
    ok = ok && (!keep_now || run_save(r, keep));
    if (eval || text || keep_now) r->last_mark = 0;
    if (!ok) *end = RUN_FAILED;
    else if (is_stopping && (r->step < r->settings.steps || r->owes_evaluation)) *end = RUN_STOPPED;
    return *end == RUN_DONE;
}

/* The evaluation that was left when the run was stopped, and the sample after it. */
static bool pay_evaluation(struct run *r, enum run_end *end) {
    return after_step(r, true, walk_is_due(r->trainer, KIND_SAMPLE, r->step), false, false, end);
}

/* Of a step that was just made. */
static bool pairs_note(struct run *r) {
    int64_t pairs = trainer_step_pairs(r->trainer, r->step);
    if (!settings_has_documents(&r->settings)) return true;
    if (!run_ranks_sum(r, &pairs)) return false;
    r->step_pairs[r->step % 2] = pairs;
    kinds_pairs(&r->kinds, kind_of_step(&r->settings, r->step), pairs,
                trainer_causal_pairs(r->trainer, r->step) * r->mesh.axis[MESH_DP].size);
    return true;
}

/* Whether the run, on any rank, is asked to save and end. */
static bool stop_look(const struct run *r, bool *is_asked) {
    int64_t n_asked = r->listener && r->listener->stop && *r->listener->stop;
    bool ok = run_ranks_sum(r, &n_asked);
    *is_asked = n_asked > 0;
    return ok;
}

/* Opened before the first step: a file that cannot be made is told then. */
static bool trace_begin(struct run *r) {
    const struct run_listener *l = r->listener;
    if (!l || !l->trace || r->step >= r->settings.steps) return true;
    int64_t first = l->trace_from ? l->trace_from : r->step + RUN_FIRST_STEPS + 1;
    r->trace = trace_new(l->trace, first, l->trace_from ? l->trace_to : first + 2, &r->mesh, r->trainer->device);
    return r->trace != NULL;
}

/* One step and everything due after it. */
static bool step_and_rest(struct run *r, enum run_end *end) {
    struct trainer *t = r->trainer;
    double before = now_s();
    struct comm_times comm = comm_times();
    struct step_span *span = &r->span[r->step % 2];
    bool has_timers = is_profiled(r) || trace_has(r->trace, r->step + 1);
    tl_comm_set_step(r->step + 1);
    run_ranks_patience(r, PHASE_STEP);
    if (is_profiled(r) && device_delay(t->device, profile_delay(r))) r->last_mark = 0;
    span->from = r->last_mark ? r->last_mark : device_mark(t->device);
    /* from the start of one step to the start of the next, so that work still on the device is included */
    if (r->step_began_s > 0) kinds_time(&r->kinds, kind_of_step(&r->settings, r->step - 1), before - r->step_began_s);
    r->step_began_s = 0;
    if (!(has_timers     ? timed_step(r)
          : is_listed(r) ? listed_step(r)
                         : run_kind(r, kind_of_step(&r->settings, r->step))))
        return step_left(r, end);
    if (!pairs_note(r)) return *end = RUN_FAILED, false;
    span->to = r->last_mark = device_mark(t->device);
    span->asked_s = now_s() - before;
    span->comm = comm_times_since(&comm);
    r->step++;
    r->wait_s = tl_loader_wait_s(t->loader) - r->waited_s;
    r->waited_s += r->wait_s;
    bool is_stopping, eval = walk_is_due(t, KIND_EVAL, r->step), text = walk_is_due(t, KIND_SAMPLE, r->step),
                      keep = walk_is_due(t, KIND_SAVE, r->step);
    int64_t done = r->step;
    if (!results_read(r, eval || text || keep ? 0 : 1, end)) return false;
    if (!stop_look(r, &is_stopping)) return *end = RUN_FAILED, false;
    if (is_stopping && !results_read(r, 0, end)) return false; /* a checkpoint has the log of all its steps */
    if (r->step != done) return r->last_mark = 0, true;        /* rolled back: already done */
    r->held_out = NAN;
    bool is_plain = !eval && !text && !keep && !has_timers && r->step > r->summary->first_step + 2;
    r->step_began_s = is_plain ? before : 0;
    return after_step(r, eval, text, keep, is_stopping, end);
}

/* The same, in the trace if it is to be there. */
static bool advance(struct run *r, enum run_end *end) {
    if (!trace_has(r->trace, r->step + 1)) return step_and_rest(r, end);
    int64_t step = r->step + 1;
    if (!trace_step_begin(r->trace)) return *end = RUN_FAILED, false;
    bool ok = step_and_rest(r, end);
    if (*end != RUN_FAILED && !trace_step_end(r->trace)) *end = RUN_FAILED, ok = false; /* others may not have failed */
    if (!ok || !trace_has(r->trace, step + 1)) trace_free(r->trace), r->trace = NULL;
    return ok;
}

/* The processes of the run. What the settings leave open is settled, so that a price says how many they are. */
static bool mesh_begin(struct run *r) {
    tl_comm *world = tl_comm_world();
    if (!world) return false;
    r->mesh = (struct mesh){.world = world, .rank = tl_comm_rank(world), .size = tl_comm_size(world)};
    r->summary->rank = r->mesh.rank;
    r->summary->n_ranks = r->mesh.size;
    r->timeout_before_s = run_ranks_patience(r, PHASE_BEGINS);
    if (!run_ranks_compare(r) || !run_agree(r, mesh_open(&r->mesh, &r->settings))) return false;
    if (r->mesh.size > 1) r->settings.dp = r->mesh.axis[MESH_DP].size;
    return true;
}

/* What needs no folder. */
static tl_device *device_begin(struct run *r, tl_model_config *config, char weights[SETTING_TEXT]) {
    const struct settings *s = &r->settings;
    if (!run_tokenizer_begin(r) || !tokens_settle(&r->settings)) return NULL;
    if (s->threads) tl_set_threads((int)s->threads);
    tl_set_matmul_precision((tl_matmul_precision)s->matmul_precision); /* the choices have its order */
    tl_device *device = settings_check(s) && trainer_model(s, config, weights) ? tl_device_find(s->device) : NULL;
    if (device && !device_has_data(device))
        return error_set(TL_ERROR_USE, "device: %s has no data to train with (use `tally plan` to price a run)",
                         s->device),
               NULL;
    if (device && settings_has_preference(s) && source_is_builtin(s))
        return error_set(TL_ERROR_USE, "preference: the built-in stories have no pairs of answers (need --data "
                                       "FILE.jsonl)"),
               NULL;
    return device && trainer_can_hold(s, config, weights, device) ? device : NULL;
}

/* The folder and everything in it: of the first rank. */
static bool folder_begin(struct run *r, tl_device *device, const tl_model_config *config, const char *weights) {
    if (!run_folder_begin(r)) return false;
    bool ok = r->found ? run_inputs_open(r, config, weights) && run_price_begin(r)
                       : run_price_begin(r) && run_inputs_open(r, config, weights);
    return ok && run_memory_suffices(r, device);
}

/* A divided model gives no logits. */
static void sampling_look(const struct run *r) {
    const struct settings *s = &r->settings;
    if (run_is_first(r) && trainer_is_divided(r->trainer) && s->sample_tokens && r->trainer->tokenizer &&
        r->step < s->steps)
        log_line("run: no text is sampled, since ranks divide the model or its sequences (when it has ended: tally "
                 "generate --model %s; --sample-tokens 0 asks for none)",
                 s->out);
}

static bool trainer_begin(struct run *r, tl_device *device) {
    const struct settings *s = &r->settings;
    tl_pool_trim(device); /* memory that the process reserved before is not the run's */
    r->summary->foreign_bytes = tl_device_memory(device).live_bytes;
    if (*s->memory_limit) tl_set_pool_limit(device, settings_memory_limit(s));
    r->lists_memory = r->listener && r->listener->lists_memory && run_is_first(r) && !r->summary->foreign_bytes;
    if (r->lists_memory && tl_set_memory_events(true)) r->lists_memory = false; /* the caller's own list goes on */
    r->trainer = trainer_new(s, &r->source, device, &r->mesh);
    if (!r->trainer && tl_error() == TL_ERROR_MEMORY) advice_add(s, device);
    /* one of several processes cannot leave alone: the others would wait for it */
    if (r->trainer && r->listener && r->mesh.size == 1) r->trainer->stop = r->listener->stop;
    r->origin = origin_here(device);
    if (!r->trainer || !run_resume_found(r)) return false;
    sampling_look(r);
    return !run_is_first(r) || (run_log_begin(r) && run_changes_log(r) && run_machine_write(r));
}

static bool run_begin(struct run *r) {
    tl_model_config config;
    char weights[SETTING_TEXT];
    if (!mesh_begin(r)) return false;
    tl_device *device = device_begin(r, &config, weights);
    if (!run_agree(r, device != NULL)) return false;
    if (!run_agree(r, !run_is_first(r) || folder_begin(r, device, &config, weights))) return false;
    if (!run_ranks_begin(r, &config, weights) || !run_agree(r, r->found || run_ranks_price(r, false))) return false;
    r->palm_flops = run_palm_flops(&config, &r->settings);
    return run_agree(r, tuning_count(&r->settings, &config, &r->n_trained) && trainer_begin(r, device));
}

static void run_free(struct run *r) {
    trace_free(r->trace);
    lists_end(r);
    trainer_free(r->trainer);
    tokenizer_files_free(&r->tokenizer);
    source_close(&r->source);
    tl_tokenizer_free(r->made);
    kinds_free(&r->kinds);
    if (*r->settings.memory_limit && tl_device_find(r->settings.device))
        tl_set_pool_limit(tl_device_find(r->settings.device), 0);
    checkpoint_close(r->found);
    json_decref(r->state);
    json_decref(r->made_from);
    folder_close(&r->folder);
    tl_comm_set_timeout(r->timeout_before_s);
    mesh_close(&r->mesh);
    free(r->price);
    memory_free(r);
}

/* Stopped while texts were tokenized: nothing is lost that a checkpoint has, and the same command begins there
 * again. */
static enum run_end stopped_early(struct run *r) {
    tl_error_clear();
    r->summary->steps = r->found ? checkpoint_step(r->found) : 0;
    return RUN_STOPPED;
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
    r->bytes_per_token = NAN;
    r->accepts_changes = s->accept_changes;
    r->settings.accept_changes = false; /* for this call, not for the run */
    enum run_end end = run_begin(r) ? RUN_DONE : r->was_stopped ? stopped_early(r) : RUN_FAILED;
    summary->times.start_s = now_s() - r->began_s;
    r->began_s += summary->times.start_s;
    summary->first_step = r->step;
    bool was_done = end == RUN_DONE && r->step >= r->settings.steps && !r->owes_evaluation;
    if (end == RUN_DONE && !(run_agree(r, trace_begin(r)) && run_open_tell(r))) end = RUN_FAILED;
    if (end == RUN_DONE && r->owes_evaluation) pay_evaluation(r, &end);
    while (end == RUN_DONE && r->step < r->settings.steps)
        if (advance(r, &end) && r->step_flops == 0) run_flops_find(r);
    if (end == RUN_FAILED && r->trainer && tl_error() == TL_ERROR_MEMORY) advice_add(s, r->trainer->device);
    if (r->trainer && end != RUN_FAILED) run_summarise(r, end);
    if (end == RUN_DONE && was_done && !run_past_take(r)) end = RUN_FAILED;
    if (r->trainer && end != RUN_FAILED && run_is_first(r) && summary->profile.n_steps &&
        !folder_put(&r->folder, RUN_PROFILE, profile_text(&summary->profile, r->trainer->device)))
        end = RUN_FAILED;
    if (end == RUN_DONE && !run_complete(r)) end = RUN_FAILED;
    if (!log_close(&r->log) && end == RUN_DONE) end = RUN_FAILED;
    if ((end == RUN_DONE || (end == RUN_STOPPED && r->trainer)) && !run_ranks_finish(r)) end = RUN_FAILED;
    if (end != RUN_FAILED) summary->is_told = true; /* ranks agree on every other end */
    run_free(r);
    return end;
}

struct run_summary run_summary_empty(void) {
    return (struct run_summary){.differences = -1,
                                .held_out = NAN,
                                .bits_per_byte = NAN,
                                .floor = NAN,
                                .loss = NAN,
                                .mfu = NAN,
                                .graph_share = NAN,
                                .hfu = NAN,
                                .noise_scale = NAN,
                                .margin = NAN,
                                .accuracy = NAN,
                                .held_out_accuracy = NAN,
                                .best = NAN,
                                .best_step = -1};
}

enum run_end run_train(const struct settings *s, const struct run_listener *listener, struct run_summary *summary) {
    *summary = run_summary_empty();
    if (!turn_take(s->out)) return RUN_FAILED;
    enum run_end end = train(s, listener, summary);
    turn_give();
    return end;
}
