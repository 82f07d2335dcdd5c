#include "plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "nn/architecture.h"
#include "tensor/dtype.h"
#include "plan/mfu.h"
#include "step/ramp.h"
#include "step/recipe.h"
#include "step/trainer.h"
#include "step/tuning.h"

/* ---- What others call a FLOP ---- */

const struct plan_convention_info plan_conventions[PLAN_N_CONVENTIONS] = {
    {"palm", "6 N + 12 L T d per token; N counts all parameters, of experts those that a token takes"},
    {"causal", "6 N + 6 L T d per token: half of the attention is masked"},
    {"products", "matrix products in the ledger, of every dtype, forward and backward"},
    {"hardware", "everything in the ledger, including recomputation"},
};

/* d is the width of all heads together. The head's loss is billed with its product, of which 6 V C per token are
 * counted here. */
void plan_convention_flops(const struct price *p, count flops[PLAN_N_CONVENTIONS]) {
    const tl_ledger *l = p->kind[KIND_STEP].ledger;
    const tl_model_config *c = &p->config;
    count tokens = (count)p->n_tokens, six_n = (count)6 * (count)p->n_active;
    count attention = (count)c->n_layers * (count)p->settings.seq * (count)(c->n_heads * c->head_size);
    flops[PLAN_PALM] = tokens * (six_n + 12 * attention);
    flops[PLAN_CAUSAL] = tokens * (six_n + 6 * attention);
    flops[PLAN_PRODUCTS] = tokens * 6 * (count)c->vocabulary * (count)c->channels;
    flops[PLAN_HARDWARE] = 0;
    for (size_t i = 0; l && i < l->n_rows; i++) {
        const struct ledger_row *row = &l->rows[i];
        bool is_product = predict_is_product(row->key.op) && strcmp(row->key.op, "linear_cross_entropy");
        if (is_product && row->key.phase != TL_RECOMPUTE) flops[PLAN_PRODUCTS] += row->flops;
        flops[PLAN_HARDWARE] += row->flops;
    }
}

/* Seconds at the peaks over the seconds of a step, for one of the devices that divide the model. */
static double share_of(const struct plan *plan, double peak_s) {
    const struct layout *l = &plan->options.layout;
    double step_s = plan->run.step_s * (double)(l->tp * l->cp * l->pp), share = step_s > 0 ? peak_s / step_s : 0;
    return share <= 1 + 1e-9 ? fmin(share, 1) : 0;
}

double plan_share(const struct plan *plan, enum plan_convention convention) {
    if (convention == PLAN_HARDWARE) return share_of(plan, plan->time.compute_s);
    return plan->time.peak > 0 ? share_of(plan, (double)plan->convention[convention] / plan->time.peak) : 0;
}

double plan_dtype_share(const struct plan *plan, tl_dtype dtype) {
    double peak = plan->target.speed.peak[dtype];
    return peak > 0 ? share_of(plan, (double)plan->dtype_flops[dtype] / peak) : 0;
}

/* ---- The whole training ---- */

bool plan_options_complete(struct plan_options *o, const struct settings *s, const struct plan_target *target) {
    if (o->network.node == 0) o->network = network_of(target->chip);
    if (!layout_take(&o->layout, s, &o->n_devices)) return false;
    if (o->n_devices > 1 && settings_has_preference(s))
        return error_set(TL_ERROR_USE,
                         "devices: a plan for %" PRId64 " devices has no reference model, and --preference needs one "
                         "(need --devices 1; `tally train --price --dp N` prices each rank)",
                         (int64_t)o->n_devices);
    return o->n_devices == 1 || !tuning_is_partial(s) ||
           error_set(TL_ERROR_USE,
                     "devices: a plan for %" PRId64 " devices counts every parameter as trained, and this "
                     "run freezes some (need --devices 1; `tally train --price --dp N` prices each rank)",
                     (int64_t)o->n_devices);
}

/* How many whole steps batch-size warm-up takes less time than: in each stage, a step takes the share of a whole one
 * that its own ledger says; of its micro-batches, where speeds are not known. */
static double warmup_saves(const struct price *p, const struct plan_target *target, double steps) {
    const struct settings *s = &p->settings;
    const struct plan_time whole = plan_time_of(p, KIND_STEP, &target->speed);
    double saved = 0;
    for (int stage = 0; stage < ramp_stages(s); stage++) {
        const enum step_kind kind = (enum step_kind)(KIND_WARMUP + stage);
        const struct plan_time time = plan_time_of(p, kind, &target->speed);
        const bool is_known = plan_step_s(&whole) > 0 && plan_step_s(&time) > 0;
        const double share =
            is_known ? plan_step_s(&time) / plan_step_s(&whole) : (double)ramp_stage_accum(s, stage) / (double)s->accum;
        const double begin = (double)ramp_stage_begin(s, stage), end = (double)ramp_stage_begin(s, stage + 1);
        saved += fmax(fmin(end, steps) - begin, 0) * (1 - share);
    }
    return saved;
}

struct plan_run plan_run_of(const struct price *p, const struct plan_target *target, const struct plan_options *o,
                            const struct layout_estimate *e) {
    struct plan_run run = {0};
    double n = (double)o->n_devices, step_tokens = (double)o->layout.dp * (double)p->n_tokens;
    double watts = target->chip ? hardware_value(target->chip, HARDWARE_POWER) : 0;
    const struct settings *s = &p->settings;
    const double batch_tokens = step_tokens / (double)s->accum; /* of a micro-batch */
    run.steps = o->tokens > 0 ? ramp_steps_for(s, o->tokens / batch_tokens) : (double)s->steps;
    run.tokens = o->tokens > 0 ? o->tokens : (double)ramp_batches(s, s->steps) * batch_tokens;
    if (e) {
        run.step_s = e->expected_s;
        run.least_s = e->bound_s;
    } else {
        struct plan_time time = plan_time_of(p, KIND_STEP, &target->speed);
        run.step_s = plan_step_s(&time);
    }
    run.whole_steps = run.steps - warmup_saves(p, target, run.steps);
    if (run.step_s == 0) return run;
    run.days = run.whole_steps * run.step_s / DAY_S;
    run.device_hours = n * run.whole_steps * run.step_s / HOUR_S;
    run.energy_kwh = run.device_hours * watts / 1000;
    run.money = run.device_hours * o->price_per_hour;
    return run;
}

static double expected_step(const struct plan *plan, double parts) {
    const double mfu = plan->options.terms.mfu, palm = (double)plan->convention[PLAN_PALM] / parts;
    if (mfu > 0) return plan->time.peak > 0 ? palm / (mfu * plan->time.peak) : 0;
    if (plan->options.n_devices > 1) return plan->layout.expected_s;
    if (plan->time.predicted_s > 0) return plan->time.predicted_s;
    return plan->time.roofline_s / mfu_roofline_share(plan->target.chip, (double)plan->price.n_active);
}

/* A step by a given share, by measurements, or by what published runs reach; and the bill for all of them. */
static void expected_find(struct plan *plan) {
    struct plan_expectation *e = &plan->expected;
    const struct plan_options *o = &plan->options;
    const double parts = (double)(o->layout.tp * o->layout.cp * o->layout.pp), n = (double)o->n_devices;
    const double watts = plan->target.chip ? hardware_value(plan->target.chip, HARDWARE_POWER) : 0;
    const double least = o->n_devices > 1 ? plan->layout.bound_s : plan->time.bound_s;
    e->step_s = plan->time.roofline_s > 0 ? fmax(expected_step(plan, parts), least) : 0;
    if (!(e->step_s > 0)) return;
    if (plan->time.peak > 0) e->mfu = (double)plan->convention[PLAN_PALM] / parts / e->step_s / plan->time.peak;
    e->has_range = !(o->terms.mfu > 0) && !(plan->time.predicted_s > 0);
    if (e->has_range) e->row = mfu_find(plan->target.chip, (double)plan->price.n_active);
    const double n_steps = plan->run.whole_steps;
    const double s = n_steps * e->step_s, bounded = fmax(BILL_SHORTEST * s, n_steps * least);
    e->bill = bill_of(&o->terms, o->price_per_hour, watts, n, s);
    e->least = bill_of(&o->terms, o->price_per_hour, watts, n, bounded);
    e->most = bill_of(&o->terms, o->price_per_hour, watts, n, BILL_LONGEST * s);
}

/* ---- Advice ---- */

static void advise(struct plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void advise(struct plan *plan, const char *format, ...) {
    va_list arguments;
    if (plan->n_advice == (int)(sizeof plan->advice / sizeof *plan->advice)) return;
    va_start(arguments, format);
    number_vprint(plan->advice[plan->n_advice++], sizeof *plan->advice, format, arguments);
    va_end(arguments);
}

__attribute__((noinline)) static bool try_settings(const struct plan *plan, const struct settings *s,
                                                   struct fit_point *point) {
    struct fit_question q;
    return fit_begin(&q, FIT_BATCH, s, &plan->target, &plan->options) && fit_try_steps(&q, s->batch, point);
}

uint64_t plan_needed(const struct plan *plan) {
    if (plan->as) return plan->held.total;
    return plan->options.n_devices > 1 ? plan->layout.total_bytes : plan->price.reserved_bytes;
}

enum price_verdict plan_verdict(const struct plan *plan) {
    uint64_t limit = plan_target_limit(&plan->target);
    if (plan->options.n_devices == 1 && !plan->as) return plan->price.verdict;
    if (!limit) return PRICE_UNKNOWN;
    return plan_needed(plan) > limit ? PRICE_TOO_LARGE : PRICE_FITS;
}

static bool is_too_large(const struct plan *plan) { return plan_verdict(plan) == PRICE_TOO_LARGE; }

/* Of the policies that fit, the one that computes the least: they stand in that order. */
static bool advise_checkpointing(struct plan *plan) {
    static const char *const policies[] = {"none", "selective", "full", "sqrt", "nothing"};
    const struct settings *own = &plan->settings;
    bool is_large = is_too_large(plan);
    struct fit_point point;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        struct settings s = *own;
        if (!settings_set(&s, "checkpointing", policies[i])) return false;
        if (s.checkpointing == own->checkpointing && !is_large) return true; /* nothing is cheaper */
        if (s.checkpointing == own->checkpointing) continue;
        if (!try_settings(plan, &s, &point)) return false;
        if (point.limit != FIT_NOTHING) continue;
        double change = 100 * ((double)point.flops / (double)plan->total_flops - 1);
        char bytes[32];
        bytes_text((double)point.bytes, bytes);
        if (is_large)
            advise(plan, "--checkpointing %s is the cheapest that fits: %s, %+.1f %% FLOPs", policies[i], bytes,
                   change);
        else if (point.flops < plan->total_flops)
            advise(plan, "--checkpointing %s also fits, with %s, and needs %.1f %% fewer FLOPs", policies[i], bytes,
                   -change);
        return true;
    }
    return true;
}

/* The micro-batch that fits, with as many tokens in a step as before. */
static void advise_batch(struct plan *plan) {
    const struct settings *s = &plan->settings;
    const struct fit_point *best = &plan->growth[FIT_BATCH].best;
    int64_t sequences = s->batch * s->accum;
    if (!best->size || best->size == s->batch) return;
    char bytes[32];
    uint64_t limit = plan_target_limit(&plan->target);
    bytes_text((double)(best->bytes < limit ? best->bytes : limit), bytes);
    const int64_t dp = plan->options.layout.dp;
    if (best->size > s->batch && s->accum > 1) {
        int64_t most = best->size < sequences ? best->size : sequences;
        while (most > dp && (sequences % most || most % dp)) most--;
        if (most > s->batch)
            advise(plan, "--batch %" PRId64 " --accum %" PRId64 " is the same step in larger micro-batches", most,
                   sequences / most);
    } else if (best->size > s->batch)
        advise(plan, "--batch %" PRId64 " is the largest micro-batch that fits: %s", best->size, bytes);
    else {
        int64_t most = best->size;
        while (most > dp && (sequences % most || most % dp)) most--;
        advise(plan, "--batch %" PRId64 " --accum %" PRId64 " is the same step and fits", most, sequences / most);
    }
}

/* The fewest devices that hold the run if everything that is kept is sharded. */
static bool advise_devices(struct plan *plan) {
    uint64_t limit = plan_target_limit(&plan->target);
    char bytes[32];
    for (int64_t n = 2; n <= 1 << 20; n *= 2) {
        struct layout_estimate e;
        const struct layout all = {.tp = 1, .cp = 1, .dp = n, .pp = 1, .chunks = 1, .shard = SHARD_ZERO3};
        if (!layout_estimate(&e, &plan->price, &plan->target, &plan->options.network, &all, NULL)) return false;
        if (e.total_bytes > limit) continue;
        if (n > plan->options.n_devices || plan->options.layout.shard != SHARD_ZERO3)
            advise(plan, "--devices %" PRId64 " --shard zero3 --batch %" PRId64 " would hold it: %s on each (estimate)",
                   n, n * plan->price.settings.batch, bytes_text((double)e.total_bytes, bytes));
        return true;
    }
    advise(plan, "no number of devices holds it: the part that is not sharded is too large (try a smaller batch or "
                 "seq, --checkpointing, or `tally plan --layouts`)");
    return true;
}

/* A GPU's matrix units read rows of 16 bytes. On an H200 products of bf16 with a width of 5,500 took 3.7 times as
 * long as with 5,504. */
static void advise_widths(struct plan *plan) {
    const tl_model_config *c = &plan->price.config;
    const int64_t widths[] = {c->channels, architecture_expert_ff(c)}, even = 128 / dtype_info(plan->dtype)->bits;
    static const char *const names[] = {"channels", "ff"};
    if (!plan->target.device->target->capability || dtype_info(plan->dtype)->bits > 16) return;
    for (int i = 0; i < 2; i++)
        if (widths[i] % even)
            advise(plan,
                   "--%s %" PRId64 ": %" PRId64 " is not a multiple of %" PRId64
                   ", which makes products on a GPU several times slower",
                   names[i], (widths[i] + even - 1) / even * even, widths[i], even);
}

/* A step's own work stays, but sharding divides more of it; communication goes through more of the network. */
static bool scale_find(struct plan *plan) {
    uint64_t limit = plan_target_limit(&plan->target);
    struct layout_cache cache = {.n = 0};
    struct layout l = plan->options.layout;
    const struct network *net = &plan->options.network;
    for (int i = 0; i < PLAN_DOUBLINGS; i++, l.dp *= 2) {
        struct plan_scale *p = &plan->scale[i];
        *p = (struct plan_scale){.devices = plan->options.n_devices << i};
        if (!layout_estimate(&p->layout, &plan->price, &plan->target, net, &l, &cache)) return false;
        const struct layout_estimate *e = &p->layout;
        bool is_known = net->link > 0 || network_share(net) > 0;
        p->fits = p->devices == 1 ? plan->price.verdict != PRICE_TOO_LARGE : e->total_bytes <= limit;
        if (!(e->expected_s > 0) || (p->devices > 1 && !is_known))
            continue; /* nothing is known about its speed or its links */
        p->step_s = e->expected_s;
        p->tokens_per_s = (double)l.dp * (double)plan->price.n_tokens / p->step_s;
        p->efficiency = e->compute_s / e->expected_s;
        p->binds = fmax(e->sum.inside_s, e->sum.between_s) >= e->bound_s;
    }
    return true;
}

int64_t plan_scale_fits(const struct plan *plan) {
    for (int i = 0; i < PLAN_DOUBLINGS; i++)
        if (plan->scale[i].fits) return plan->scale[i].devices;
    return 0;
}
int64_t plan_scale_binds(const struct plan *plan) {
    for (int i = 0; i < PLAN_DOUBLINGS; i++)
        if (plan->scale[i].binds) return plan->scale[i].devices;
    return 0;
}

/* Settings are 8 KiB: a question has its own stack frame, which is gone when the advice prices others. */
__attribute__((noinline)) static bool grow_along(struct plan *plan, enum fit_axis axis, struct fit_point *own) {
    struct fit_question q;
    if (!fit_begin(&q, axis, &plan->settings, &plan->target, &plan->options)) return false;
    if (axis == FIT_BATCH && !fit_own(&q, &plan->price, own)) return false;
    q.n_above = 8;
    q.own = own;
    return fit_search(&q, &plan->growth[axis]);
}

static bool grow(struct plan *plan) {
    struct fit_point own;
    if (!plan_target_limit(&plan->target)) return true;
    plan->has_growth = true;
    if (!scale_find(plan)) return false;
    for (int axis = 0; axis < FIT_N_AXES; axis++)
        if (!grow_along(plan, (enum fit_axis)axis, &own)) return false;
    if (!advise_checkpointing(plan)) return false;
    advise_batch(plan);
    if (is_too_large(plan) && plan->target.chip && !advise_devices(plan)) return false;
    advise_widths(plan);
    return true;
}

/* ---- All of it ---- */

static bool derive(struct plan *plan) {
    const struct price *p = &plan->price;
    const tl_ledger *l = p->kind[KIND_STEP].ledger;
    for (size_t i = 0; i < l->n_rows; i++) {
        plan->flops[l->rows[i].key.phase] += l->rows[i].flops;
        plan->total_flops += l->rows[i].flops;
        if (l->rows[i].key.dtype < TL_DTYPE_COUNT) plan->dtype_flops[l->rows[i].key.dtype] += l->rows[i].flops;
        plan->total_bytes += l->rows[i].bytes_read + l->rows[i].bytes_written;
    }
    plan_convention_flops(p, plan->convention);
    plan->dtype = recipe_product_dtype(recipe_find(settings_choice(&p->settings, "recipe")));
    const struct plan_options *o = &plan->options;
    if (!layout_estimate(&plan->layout, p, &plan->target, &o->network, &o->layout, NULL) ||
        !layout_refine(&plan->layout, &plan->settings, &plan->target, &o->layout))
        return false;
    plan->run = plan_run_of(p, &plan->target, o, o->n_devices > 1 ? &plan->layout : NULL);
    plan->time = plan_time_of(p, KIND_STEP, &plan->target.speed);
    expected_find(plan);
    return groups_by_module(&plan->modules, p, KIND_STEP) && groups_by_op(&plan->ops, p, KIND_STEP);
}

__attribute__((noinline)) static bool price_rank(struct plan *plan) {
    struct settings rank;
    tl_model_config config;
    char weights[SETTING_TEXT], why[160];
    const struct settings *s = &plan->settings;
    const struct layout *l = &plan->options.layout;
    if (!plan_options_complete(&plan->options, s, &plan->target) || !layout_rank_settings(l, s, &rank) ||
        !settings_check(&rank) || !trainer_model(&rank, &config, weights))
        return false;
    if (layout_refusal(l, &config, s, s->accum, why)) return error_set(TL_ERROR_USE, "devices: %s", why);
    return price_sketch(&plan->price, &rank, plan->target.device, plan_target_limit(&plan->target));
}

/* What another framework would hold in Tally's place. */
static bool as_price(struct plan *plan) {
    if (!plan->options.as) return true;
    if (tuning_is_partial(&plan->settings) || settings_has_preference(&plan->settings))
        return error_set(TL_ERROR_USE, "as: what other frameworks hold is known for runs that train every parameter on "
                                       "tokens (need no --freeze, --train-only, --lora and --preference)");
    plan->as = framework_find(plan->options.as, settings_choice(&plan->settings, "recipe"));
    return plan->as &&
           framework_price(plan->as, &plan->price.config, &plan->settings, &plan->options.layout, &plan->held);
}

bool plan_make(struct plan *plan, const struct settings *s, const struct plan_target *target,
               const struct plan_options *options, bool has_growth) {
    memset(plan, 0, sizeof *plan);
    plan->options = *options;
    plan->target = *target;
    plan->settings = *s;
    if (!price_rank(plan)) return false;
    if (as_price(plan) && derive(plan) && (!has_growth || grow(plan))) return true;
    plan_free(plan);
    return false;
}

void plan_free(struct plan *plan) {
    price_free(&plan->price);
    groups_free(&plan->modules);
    groups_free(&plan->ops);
}
