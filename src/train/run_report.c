/* run_report.c: how long steps take, and the reports of a run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "device/devices.h"
#include "train/opening.h"
#include "train/past.h"
#include "train/run_parts.h"

/* The share of the machine's peak, which the settings give; NAN: it is not known. There is no fallback to another
 * machine's. */
static double share_of_peak(const struct run *r, double flops_per_s) {
    return r->settings.peak > 0 ? flops_per_s / r->settings.peak : NAN;
}

void run_tell(struct run *r, int64_t done, double loss, double norm, double held_out, const char *text) {
    if (!r->listener || !r->listener->tell || !run_is_first(r)) return;
    const struct settings *s = &r->settings;
    int64_t before = ramp_batches(s, r->summary->first_step), now = ramp_batches(s, r->step);
    double done_here = (double)(now - before), here_s = now_s() - r->began_s;
    double tokens_per_s = (double)trainer_step_tokens(r->trainer, done - 1) / r->step_s;
    double share = (double)ramp_accum(s, done - 1) / (double)s->accum; /* of a whole step */
    double flops_per_s = share * (r->step_flops > 0 ? r->step_flops : r->priced_flops) / r->step_s;
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
        .eta_s = done_here > 0 ? here_s / done_here * (double)(ramp_batches(s, s->steps) - now) : NAN,
        .peak_bytes = tl_device_memory(r->trainer->device).peak_bytes,
        .held_out = held_out,
        .margin = text ? NAN : r->trainer->rewards.margin,
        .accuracy = text ? NAN : r->trainer->rewards.accuracy,
        .bits_per_byte = run_bits_per_byte(r, held_out),
        .sets = isfinite(held_out) ? &r->summary->sets : NULL,
        .text = text,
    };
    double patience = run_ranks_patience(r, PHASE_OTHER); /* a terminal that is paused stops it */
    r->listener->tell(r->listener->context, &news);
    tl_comm_set_timeout(patience);
}

bool run_open_tell(struct run *r) {
    const tl_device *device = r->trainer->device;
    struct opening opening;
    json_t *price;
    if (!r->listener || !r->listener->open || !run_is_first(r) || r->step >= r->settings.steps) return true;
    if (!folder_json(&r->folder, RUN_PRICE, &price)) return false;
    bool ok = opening_make(&opening, &r->settings, tl_model_config_of(r->trainer->model), &r->source, price);
    opening.first_step = r->step;
    opening.memory_bytes =
        *r->settings.memory_limit ? settings_memory_limit(&r->settings) : device_memory_bytes(device);
    if (ok) r->priced_flops = opening.step_flops, r->listener->open(r->listener->context, &opening);
    json_decref(price);
    return ok;
}

/* Of a run that was done before, from its log. False: recorded. */
bool run_past_take(struct run *r) {
    struct run_summary *m = r->summary;
    struct past_log log;
    m->was_done = true;
    if (!run_is_first(r)) return true;
    if (!past_log_read(&log, r->folder.dir)) return false;
    m->loss = log.loss;
    m->held_out = log.held_out;
    m->bits_per_byte = log.bits_per_byte;
    m->sets = log.sets;
    if (!(log.step_s > 0)) return true;
    m->tokens_per_s = log.tokens_per_s;
    m->flops_per_s = r->step_flops / log.step_s;
    m->mfu = share_of_peak(r, r->palm_flops * m->tokens_per_s);
    m->hfu = share_of_peak(r, m->flops_per_s);
    return true;
}

/* Clock, power and temperature of a device that reports them, once a second. */
static const struct device_health *health_of(struct run *r) {
    const tl_device *device = r->trainer->device;
    double now = now_s();
    if (!device->functions->health || now - r->health_s < 1) return NULL;
    r->health_s = now;
    return device->functions->health(device, &r->health) ? &r->health : NULL;
}

bool run_log_step(struct run *r, int64_t done, double loss, double norm, bool is_skipped) {
    if (!run_is_first(r) || (done % r->settings.log_every != 0 && done != r->settings.steps)) return true;
    double tokens_per_s = (double)trainer_step_tokens(r->trainer, done - 1) / r->step_s;
    const struct log_step line = {.step = done,
                                  .tokens = trainer_tokens(r->trainer, done),
                                  .loss = loss,
                                  .norm = norm,
                                  .lr = trainer_lr(r->trainer, done - 1),
                                  .step_s = r->step_s,
                                  .tokens_per_s = tokens_per_s,
                                  .wait_s = r->wait_s,
                                  .comm_s = r->mesh.size > 1 ? r->step_comm.busy_s : -1,
                                  .exposed_s = r->step_comm.exposed_s,
                                  .mfu = share_of_peak(r, r->palm_flops * tokens_per_s),
                                  .is_skipped = is_skipped,
                                  .has_noise = r->settings.noise_scale,
                                  .noise_scale = noise_scale(&r->trainer->noise_scale),
                                  .margin = r->trainer->rewards.margin,
                                  .accuracy = r->trainer->rewards.accuracy,
                                  .pairs = settings_has_documents(&r->settings) ? r->step_pairs[(done - 1) % 2] : -1,
                                  .health = health_of(r)};
    return log_step(&r->log, &line);
}

/* By the device's own clock: this thread may read the results of a step long after the device has finished it. A
 * step takes from the end of the one before it to its own end, or from its beginning if something else came between. */
void run_step_time(struct run *r, int64_t at) {
    const struct step_span *span = &r->span[at % 2];
    tl_device *device = r->trainer->device;
    double seconds = device_mark_seconds(device, span->from, span->to);
    r->step_s = seconds > 0 ? seconds : span->asked_s; /* a profile may have used up the marks */
    struct run_times *t = &r->summary->times;
    bool is_first = r->n_timed++ < RUN_FIRST_STEPS;
    struct comm_times *comm = is_first ? &r->first_comm : &r->comm;
    *(is_first ? &t->first_steps_s : &t->steps_s) += r->step_s;
    *(is_first ? &r->first_tokens : &r->tokens) += trainer_step_tokens(r->trainer, at);
    r->step_comm = span->comm;
    comm->busy_s += span->comm.busy_s;
    comm->exposed_s += span->comm.exposed_s;
}

static double total_of(const struct run *r, int kind, const char *name) {
    const json_t *totals = json_object_get(r->kinds.kind[kind].ledger, "totals");
    const char *text = json_string_value(json_object_get(totals, name));
    return text ? number_parse(text, NULL) : 0;
}

static double share_of_step(const struct settings *s, int kind) {
    const int stage = kind == KIND_STEP ? ramp_stages(s) : kind - KIND_WARMUP;
    return (double)ramp_stage_accum(s, stage) / (double)s->accum;
}

/* Ranks that resumed have no ledgers of stages that were over: there a step costs its share of a whole one. */
void run_flops_find(struct run *r) {
    const struct settings *s = &r->settings;
    const int largest = kinds_largest(&r->kinds);
    r->summary->sent_bytes = total_of(r, largest, "sent_bytes");
    r->step_flops = total_of(r, largest, "flops") / share_of_step(s, largest);
    r->flops = 0;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        const struct kind *own = &r->kinds.kind[kind];
        if (!kind_is_step((enum step_kind)kind) || !own->count) continue;
        const double each = own->ledger ? total_of(r, kind, "flops") : r->step_flops * share_of_step(s, kind);
        r->flops += (double)own->count * each;
    }
    run_ranks_cost(r, &r->flops, &r->summary->sent_bytes);
    run_ranks_cost(r, &r->step_flops, &r->summary->sent_bytes);
}

/* The tokens of the steps that count for speed: all but the first two of a process, if there are more. */
static int64_t tokens_timed(struct run *r) {
    struct run_times *t = &r->summary->times;
    if (t->steps_s == 0) {
        t->steps_s = t->first_steps_s, t->first_steps_s = 0;
        r->comm = r->first_comm;
        r->tokens = r->first_tokens;
    }
    return r->tokens;
}

static void graphs_summarise(struct run_summary *m, const struct trainer *t) {
    if (t->repeat.n_calls) m->graph_share = (double)t->repeat.n_in_graphs / (double)t->repeat.n_calls;
    memcpy(m->graphs_why, t->repeat.why, sizeof m->graphs_why);
}

void run_summarise(struct run *r, enum run_end end) {
    struct run_summary *m = r->summary;
    double here = now_s() - r->began_s, n_tokens = (double)tokens_timed(r), steps_s = m->times.steps_s;
    run_flops_find(r);
    m->steps = r->step;
    m->tokens = trainer_tokens(r->trainer, r->step);
    m->seconds = r->elapsed_s + here;
    m->tokens_per_s = steps_s > 0 ? n_tokens / steps_s : 0;
    m->flops = r->flops;
    m->mfu = share_of_peak(r, r->palm_flops * m->tokens_per_s);
    m->flops_per_s =
        m->tokens_per_s * r->step_flops / (double)trainer_step_tokens(r->trainer, r->settings.batch_warmup);
    m->hfu = share_of_peak(r, m->flops_per_s);
    double all_steps_s = steps_s + m->times.first_steps_s;
    m->wait_share = all_steps_s > 0 ? tl_loader_wait_s(r->trainer->loader) / all_steps_s : 0;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        m->pairs += r->kinds.kind[kind].pairs;
        m->causal_pairs += r->kinds.kind[kind].causal_pairs;
    }
    m->noise_scale = noise_scale(&r->trainer->noise_scale);
    m->early_of = r->early_of;
    m->best = r->best;
    m->best_step = r->best_step;
    m->n_parameters = tl_model_config_parameters(tl_model_config_of(r->trainer->model)); /* of all ranks */
    m->n_trained = r->n_trained;
    m->floor = r->source.is_builtin ? tl_corpus_floor() * r->bytes_per_token : NAN;
    const json_t *memory = json_object_get(r->kinds.kind[kinds_largest(&r->kinds)].ledger, "memory");
    const json_t *by = json_object_get(memory, "peak_by_purpose");
    const char *peak = json_string_value(json_object_get(memory, "peak_bytes"));
    m->peak_bytes = peak ? strtoull(peak, NULL, 10) : 0;
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) {
        const char *n = json_string_value(json_object_get(by, tl_purpose_name((tl_purpose)p)));
        m->peak_by_purpose[p] = n ? strtoull(n, NULL, 10) : 0;
    }
    graphs_summarise(m, r->trainer);
    profile_sort(&m->profile);
    if (end == RUN_DONE && *r->kinds.difference) snprintf(m->problem, sizeof m->problem, "%s", r->kinds.difference);
}

/* PaLM's rule: 6 N for every parameter's part in forward and backward (of experts, those that a token takes), and 12
 * L T d for attention that sees all T, with d = H D. */
double run_palm_flops(const tl_model_config *c, const struct settings *s) {
    return 6 * (double)tl_model_config_active_parameters(c) +
           12 * (double)c->n_layers * (double)s->seq * (double)(c->n_heads * c->head_size);
}
