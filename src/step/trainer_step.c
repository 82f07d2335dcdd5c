/* trainer_step.c: one step: micro-batches, gradients, the update, and what the host reads of it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "account/ledger.h"
#include "base/error.h"
#include "base/memory.h"
#include "ops/draw.h"
#include "step/preference.h"
#include "step/ramp.h"
#include "step/rounds.h"
#include "step/stages.h"
#include "step/trainer_inner.h"
#include "tensor/pool.h"

/* Of the mean over micro-batches, and over ranks with equal parts of each. */
static int64_t loss_parts(const struct trainer *t) { return t->accum * t->dp.size; }

/* Of a micro-batch's loss in the gradients. */
static double loss_weight(const struct trainer *t) {
    return (t->recipe->has_scaler ? t->scaler.scale : 1) / (double)loss_parts(t);
}

/* ---- The loss of a batch ---- */

tl_tensor *trainer_rewards_at(struct trainer *t, int64_t place) {
    const int64_t at = TRAINER_REWARDS + 2 * place;
    return settings_has_preference(&t->settings) ? tl_slice(t->results, 0, at, at + 2, 1) : NULL;
}

bool trainer_rewards_mean(struct trainer *t, tl_tensor *rewards, int64_t n) {
    const int64_t parts = n * t->mesh.size;
    return !rewards || (trainer_sum(t, rewards) && (parts == 1 || tl_affine_(rewards, 1 / (double)parts, 0)));
}

void trainer_rewards_take(struct trainer *t, const float values[TRAINER_RESULTS], int64_t place) {
    const float *at = values + TRAINER_REWARDS + 2 * place;
    t->rewards = (struct trainer_rewards){NAN, NAN};
    if (settings_has_preference(&t->settings)) t->rewards = (struct trainer_rewards){(double)at[0], (double)at[1]};
}

tl_tensor *trainer_loss(struct trainer *t, tl_tensor *tokens, tl_tensor *targets, tl_tensor *begin, tl_tensor *rewards,
                        bool is_first) {
    if (settings_has_preference(&t->settings)) return preference_loss(t, tokens, targets, rewards, is_first);
    return tl_model_document_loss(t->model, tokens, targets, begin);
}

/* ---- Micro-batches ---- */

struct micro_batches {
    int64_t position; /* of the first */
    tl_tensor *total, *rewards;
    int64_t *pairs;
    tl_tensor *first; /* () f32 that gets the square of the first one's gradient; NULL: it is not wanted */
};

/* Forward and backward of micro-batch k. The loss is added to `total` (the first one replaces it), the rewards to
 * theirs, and the pairs that attention uses to `pairs`. */
static bool micro_step(struct trainer *t, int64_t k, const struct micro_batches *m) {
    bool needs_seed = t->recipe->has_scaler || loss_parts(t) > 1;
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = NULL, *targets = NULL, *begin = NULL;
    bool ok = scope.depth && tl_loader_next_documents(t->loader, m->position + k, &tokens, &targets, &begin) &&
              buckets_enter(&t->buckets);
    if (begin && device_has_data(t->device)) *m->pairs += tl_loader_pairs(t->loader);
    tl_dtype before = tl_set_autocast(t->recipe->autocast);
    tl_tensor *loss = ok ? trainer_loss(t, tokens, targets, begin, m->rewards, k == 0) : NULL; /* () f32 */
    tl_set_autocast(before);
    tl_tensor *seed = loss && needs_seed ? tl_full(TL_SCALAR, loss_weight(t), TL_F32, t->device) : NULL;
    ok = loss && (seed || !needs_seed) && tl_backward(loss, seed, 0);
    if (ok && t->buckets.mode >= SHARDING_ZERO2) ok = buckets_finish(&t->buckets);
    buckets_leave(&t->buckets);
    bool grad = tl_set_grad_mode(false);
    ok = ok && (k == 0 ? tl_copy_(m->total, loss) : tl_add_(m->total, loss));
    tl_set_grad_mode(grad);
    return scope.depth && tl_scope_end(scope) && ok;
}

/* Called when a narrow gradient is complete: adds it to its f32 sum and drops it, so that the narrow gradients of the
 * whole model never exist at once. A failure here shows as a recorded error. */
static void sum_add(tl_tensor *parameter, tl_tensor *g, void *context) {
    tl_tensor **sum = context;
    bool grad = tl_set_grad_mode(false);
    if (*sum) tl_add_(*sum, g);
    else *sum = tl_keep(tl_set_purpose(tl_cast(g, TL_F32), TL_GRADIENT));
    tl_zero_grad(parameter, false);
    tl_set_grad_mode(grad);
}

bool trainer_sums_make(struct trainer *t) {
    size_t bytes = (size_t)t->n_parameters * sizeof *t->sums;
    if (t->settings.accum == 1 || !recipe_sums_in_f32(t->recipe) || t->dp.size > 1) return true; /* buckets have them */
    t->sums = memory_new(bytes);
    if (!t->sums) return error_memory(bytes, "sums of gradients");
    memset(t->sums, 0, bytes);
    bool ok = true;
    for (int i = 0; ok && i < t->n_parameters; i++) ok = tl_set_grad_hook(t->parameters[i], sum_add, &t->sums[i], NULL);
    return ok;
}

/* The sums become the gradients; without `ok` they are only dropped. */
static bool sums_give(struct trainer *t, bool ok) {
    for (int i = 0; t->sums && i < t->n_parameters; i++) {
        if (!t->sums[i]) continue;
        ok = ok && tl_set_grad(t->parameters[i], t->sums[i]);
        tl_drop(t->sums[i]);
        t->sums[i] = NULL;
    }
    return ok;
}

bool trainer_leaves(struct trainer *t, int64_t k) {
    t->is_left = k > 0 && t->stop && *t->stop;
    return t->is_left;
}

/* noise_scale: the sum of squares of the gradients so far, which are those of one micro-batch. */
static bool first_measure(struct trainer *t, tl_tensor *to) {
    tl_tensor **grads = memory_new(((size_t)t->n_parameters + 1) * sizeof *grads);
    if (!grads) return error_memory((size_t)t->n_parameters * sizeof *grads, "a list of gradients");
    int n = 0;
    for (int i = 0; i < t->n_parameters; i++) {
        tl_tensor *grad = t->sums ? t->sums[i] : tl_grad_of(t->parameters[i]);
        if (grad) grads[n++] = grad;
    }
    tl_phase phase = tl_set_phase(TL_UPDATE);
    bool grad_mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    bool ok = scope.depth && tl_copy_(to, tl_sum_squares(grads, n));
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    tl_set_grad_mode(grad_mode);
    tl_set_phase(phase);
    memory_free(grads);
    return ok;
}

static bool micro_batch(struct trainer *t, int64_t k, void *context) {
    const struct micro_batches *m = context;
    return !trainer_leaves(t, k) && micro_step(t, k, m) && (k || !m->first || first_measure(t, m->first)) &&
           tl_error() == TL_OK;
}

/* All micro-batches of a step through the stages of pp. */
static bool stages_step(struct trainer *t, const struct micro_batches *m) {
    tl_dtype before = tl_set_autocast(t->recipe->autocast);
    tl_tensor *sum = stages_run(t, t->loader, m->position, t->accum, loss_weight(t), m->pairs);
    tl_set_autocast(before);
    bool grad = tl_set_grad_mode(false), ok = sum && tl_copy_(m->total, sum);
    tl_set_grad_mode(grad);
    return ok;
}

/* Over the ranks that see other tokens, and over the stages that share a parameter. */
static bool gradients_sum(struct trainer *t) {
    if (t->dp.size == 1) return tl_model_share_tied(t->model);
    return buckets_reduce(&t->buckets) && (!t->shared || buckets_share(&t->buckets, HOLDS_SHARED, t->sharers));
}

/* The last micro-batch is not like the others: gradients are sent. */
static bool gradients_make(struct trainer *t, int64_t step, tl_tensor *total) {
    int64_t accum = t->accum, last = accum - 1;
    struct micro_batches batches = {.position = ramp_batches(&t->settings, step + t->data_shift),
                                    .total = total,
                                    .rewards = trainer_rewards_at(t, step % 2),
                                    .pairs = &t->step_pairs[step % 2]};
    *batches.pairs = 0;
    if (t->settings.noise_scale && accum > 1 && !(batches.first = tl_select(t->results, 0, 5 + step % 2))) return false;
    bool is_piped = stages_are_several(t);
    buckets_expect(&t->buckets, false);
    bool ok = is_piped ? stages_step(t, &batches) : rounds_run(t, last, micro_batch, &batches);
    buckets_expect(&t->buckets, true);
    ok = ok && (is_piped || micro_batch(t, last, &batches));
    ok = sums_give(t, ok);
    return ok && (accum == 1 || tl_affine_(total, 1 / (double)accum, 0)) &&
           trainer_rewards_mean(t, batches.rewards, accum) && gradients_sum(t);
}

bool trainer_sum(const struct trainer *t, tl_tensor *values) {
    if (t->mesh.size == 1) return true;
    tl_tensor *all = tl_all_gather(values, t->mesh.world);
    all = all ? tl_reshape(all, TL_SHAPE(t->mesh.size, values->numel)) : NULL;
    tl_tensor *sum = all ? tl_sum(all, (int[]){0}, 1, false) : NULL;
    return sum && tl_copy_(values, sum);
}

/* The sum of squares of the gradients that this rank counts: () f32. */
static tl_tensor *squares(struct trainer *t) {
    unsigned counted = trainer_holdings_counted(t);
    if (t->dp.size > 1) return buckets_squares(&t->buckets, counted);
    tl_tensor **grads = memory_new(((size_t)t->n_parameters + 1) * sizeof *grads);
    int n = 0;
    if (!grads) return error_memory((size_t)t->n_parameters * sizeof *grads, "a list of gradients"), NULL;
    for (int i = 0; i < t->n_parameters; i++)
        if (counted >> trainer_holding(t, t->parameters[i], t->shards[i]) & 1 && tl_grad_of(t->parameters[i]))
            grads[n++] = tl_grad_of(t->parameters[i]);
    tl_tensor *sum = tl_sum_squares(grads, n);
    memory_free(grads);
    return sum;
}

/* The norm over all ranks' parts: their squares and their losses are exchanged together. Ranks of tp have the same
 * loss. Every rank has the same bits, and so does what ranks decide by them: a gradient of one rank that is not
 * finite is so on all. */
static tl_tensor *norm_of_all(struct trainer *t, tl_tensor *both) {
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_tensor *total = tl_select(both, 0, 0), *norm = tl_select(both, 0, 1);
    bool ok = total && norm && tl_copy_(norm, squares(t)) && trainer_sum(t, both) &&
              tl_affine_(total, 1 / (double)t->mesh.size, 0);
    int n_groups = t->mesh.across.size; /* that hold the same parts, and have counted them */
    ok = ok && (n_groups == 1 || tl_affine_(norm, 1 / (double)n_groups, 0)) && tl_sqrt_(norm);
    tl_set_phase(phase);
    return ok ? norm : NULL;
}

/* Norm, clipping, unscaling and the check for non-finite gradients are one number on the device. */
static bool update(struct trainer *t, int64_t step, tl_tensor *both) {
    const struct settings *s = &t->settings;
    double divisor = t->recipe->has_scaler ? t->scaler.scale : 1;
    bool is_alone = t->dp.size == 1;
    bool is_one = t->mesh.size == 1;
    tl_tensor *norm = is_one ? tl_grad_norm(t->parameters, t->n_parameters) : norm_of_all(t, both);
    tl_tensor *scale = tl_clip_scale(norm, s->clip > 0 ? s->clip : INFINITY, divisor);
    bool ok = scale && (is_alone || buckets_give(&t->buckets, trainer_is_by_member(t))) &&
              tl_optimizer_step(t->optimizer, tl_schedule_factor(&t->schedule, step), scale);
    if (!is_alone) buckets_take(&t->buckets);
    if (is_one) return ok && tl_copy_(tl_select(both, 0, 1), norm);
    return ok && (is_alone || buckets_gather(&t->buckets));
}

/* A device that runs behind the host can send results while the next step is already queued. */
static bool results_send(struct trainer *t, int64_t step) {
    char error[200] = "";
    t->fetch[step % 2] = NULL;
    if (!device_runs_ahead(t->device)) return true;
    t->fetch[step % 2] =
        t->device->functions->fetch_begin(t->device, tensor_data(t->results), tl_bytes(t->results), error);
    return t->fetch[step % 2] || error_set(TL_ERROR_DEVICE, "results of step %" PRId64 ": %s", step, error);
}

static bool results_take(struct trainer *t, int64_t step, float values[TRAINER_RESULTS]) {
    char error[200] = "";
    void *fetch = t->fetch[step % 2];
    size_t bytes = (size_t)tl_numel(t->results) * sizeof *values;
    t->fetch[step % 2] = NULL;
    if (!fetch) return tl_to_data(t->results, values, bytes);
    return t->device->functions->fetch_end(t->device, fetch, values, bytes, error) ||
           error_set(TL_ERROR_DEVICE, "results of step %" PRId64 ": %s", step, error);
}

/* Steps repeat, and a device may make use of it. Not where each call is timed: it is queued by itself then; nor where
 * experts are given other numbers of rows in each. */
static bool repeat_begin(const struct trainer *t) {
    const struct device_functions *f = t->device->functions;
    bool begins = f->repeat_begin && !t->settings.graphs && !ledger_is_profiling && t->mesh.ep.size == 1;
    if (begins) f->repeat_begin(t->device);
    return begins;
}

static bool repeat_end(struct trainer *t, bool has_begun, int64_t step) {
    char error[200] = "";
    struct device_repeat report;
    if (!has_begun) return true;
    bool ok = t->device->functions->repeat_end(t->device, &report, error);
    t->repeat.n_calls += report.n_calls;
    t->repeat.n_in_graphs += report.n_in_graphs;
    if (*report.why) memcpy(t->repeat.why, report.why, sizeof report.why);
    return ok || error_set(TL_ERROR_DEVICE, "step %" PRId64 ": %s", step, error);
}

bool trainer_step(struct trainer *t, int64_t step) {
    pool_order(t->device->pool);
    t->accum = ramp_accum(&t->settings, step);
    bool is_repeated = repeat_begin(t);
    tl_generator before = tl_generator_get();
    tl_generator_set(t->noise);
    tl_scope scope = tl_scope_begin();
    draw_set_part(t->mesh.axis[MESH_DP].rank, t->mesh.axis[MESH_DP].size);
    int64_t at = step % 2 * 2;
    tl_tensor *total = tl_select(t->results, 0, at), *both = tl_slice(t->results, 0, at, at + 2, 1);
    t->scale_used[step % 2] = t->recipe->has_scaler ? t->scaler.scale : 1;
    bool ok = total && both && gradients_make(t, step, total);
    bool grad = tl_set_grad_mode(false);
    ok = ok && update(t, step, both) && results_send(t, step);
    tl_set_grad_mode(grad);
    draw_set_part(0, 1);
    tl_module_zero_grad(t->model, false);
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    ok = repeat_end(t, is_repeated, step) && ok;
    if (!t->is_left) t->noise = tl_generator_get();
    tl_generator_set(before);
    return ok;
}

/* The gradient of the first micro-batch has its weight of the mean over micro-batches. */
static void noise_read(struct trainer *t, int64_t step, double first_square, double norm, double scale) {
    const double accum = (double)ramp_accum(&t->settings, step),
                 tokens = (double)(t->settings.batch * settings_window(&t->settings));
    if (accum < 2) return; /* nothing to compare with, in batch-size warm-up */
    noise_add(&t->noise_scale, first_square * accum * accum / (scale * scale), norm * norm, tokens, accum * tokens);
}

bool trainer_read(struct trainer *t, int64_t step, double *loss, double *norm) {
    float values[TRAINER_RESULTS];
    if (!results_take(t, step, values)) return false;
    *loss = (double)values[step % 2 * 2];
    *norm = (double)values[step % 2 * 2 + 1] / t->scale_used[step % 2];
    trainer_rewards_take(t, values, step % 2);
    if (t->settings.noise_scale) noise_read(t, step, (double)values[5 + step % 2], *norm, t->scale_used[step % 2]);
    if (t->recipe->has_scaler) tl_scaler_update(&t->scaler, *norm, t->scale_used[step % 2]);
    return true;
}

/* Ranks that hold parts of parameters exchange them, as after an update. */
bool trainer_average(struct trainer *t, bool is_averaged) {
    if (t->settings.ema == 0 && !trainer_is_schedule_free(t)) return true;
    const bool has_buckets = t->dp.size > 1 && !trainer_is_by_member(t);
    tl_phase phase = tl_set_phase(TL_OTHER);
    tl_scope scope = tl_scope_enter("average");
    bool ok = scope.depth && (!has_buckets || buckets_settle(&t->buckets)) &&
              tl_optimizer_average(t->optimizer, is_averaged) && (!has_buckets || buckets_gather(&t->buckets));
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    tl_set_phase(phase);
    return ok;
}
