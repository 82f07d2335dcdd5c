#include "step/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "step/ramp.h"
#include "step/tokens.h"
#include "step/trainer_inner.h"

static tl_schedule schedule_of(const struct settings *s) {
    int kind = 0;
    while (tl_schedule_kind_name((tl_schedule_kind)kind) &&
           strcmp(tl_schedule_kind_name((tl_schedule_kind)kind), settings_choice(s, "schedule")))
        kind++;
    return (tl_schedule){.kind = (tl_schedule_kind)kind,
                         .warmup_steps = s->warmup >= 0 ? s->warmup : s->steps / 5,
                         .total_steps = s->steps,
                         .decay_steps = (int64_t)(s->decay_share * (double)s->steps),
                         .min_factor = s->min_lr};
}

static tl_loader *loader_new(const struct trainer *t, const struct source *source, const struct source_part *part) {
    const struct settings *s = &t->settings;
    const bool is_training = part == &source->train;
    tl_loader_options o = tl_loader_defaults();
    o.file = part->file;
    o.first = part->first;
    o.last = part->last;
    o.batch = mesh_batch(&t->mesh, s); /* rank r of dp has the r-th share of each micro-batch's rows */
    o.world = t->mesh.axis[MESH_DP].size;
    o.rank = t->mesh.axis[MESH_DP].rank;
    o.time = settings_window(s);
    o.seed = settings_seed(s, s->seed_data);
    o.device = t->device;
    o.has_documents = settings_has_documents(s);
    o.is_marked = source->has_answers;
    o.document_token = source->document_token;
    o.sampling = !is_training                                        ? TL_SAMPLE_IN_ORDER
                 : !strcmp(settings_choice(s, "sampling"), "random") ? TL_SAMPLE_RANDOM
                                                                     : TL_SAMPLE_ONCE;
    return tl_loader_new(&o);
}

/* The beginning of samples. A prompt that was chosen need not be possible with every tokenizer; one that was given must
 * be. */
static bool prompt_make(struct trainer *t, int64_t **ids) {
    const char *prompt = t->settings.prompt;
    bool is_given = settings_is_given(&t->settings, "prompt") && strcmp(prompt, settings_usual("prompt"));
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = tokens_of_prompt(t->tokenizer, prompt, false, ids, &t->n_prompt);
    tl_set_error_policy(policy);
    if (ok || tl_error() != TL_ERROR_USE) return ok;
    char why[320];
    snprintf(why, sizeof why, "%s", tl_error_message());
    tl_error_clear();
    if (is_given)
        return error_set(TL_ERROR_USE, "prompt: cannot be encoded with the run's tokenizer: %s (give another --prompt)",
                         why);
    return tokens_of_prompt(t->tokenizer, "", false, ids, &t->n_prompt);
}

static bool text_make(struct trainer *t) {
    int64_t *prompt = NULL, *ids = NULL, n = 0;
    if (!prompt_make(t, &prompt)) return false;
    n = t->n_prompt + t->settings.sample_tokens;
    ids = memory_new((size_t)n * sizeof *ids);
    if (ids) {
        memset(ids, 0, (size_t)n * sizeof *ids);
        memcpy(ids, prompt, (size_t)t->n_prompt * sizeof *ids);
        t->text = tl_set_purpose(tl_from_data(ids, TL_SHAPE(1, n), TL_I64, t->device), TL_DATA);
    } else error_memory((size_t)n * sizeof *ids, "a prompt");
    memory_free(ids);
    memory_free(prompt);
    return t->text && tl_keep(t->text);
}

static int64_t results_count(const struct trainer *t) {
    if (t->n_held_out > 1) return TRAINER_SETS + t->n_held_out - 1;
    if (settings_has_preference(&t->settings)) return TRAINER_SETS;
    return t->settings.noise_scale ? TRAINER_REWARDS : TRAINER_REWARDS - 2;
}

/* Where steps leave results that the host reads later. Made once, so that every step holds the same bytes. */
static bool results_make(struct trainer *t) {
    tl_scope scope = tl_scope_enter("results");
    if (!scope.depth) return false;
    t->results = tl_set_purpose(tl_zeros(TL_SHAPE(results_count(t)), TL_F32, t->device), TL_DATA);
    bool ok = t->results && tl_keep(t->results);
    if (ok && t->tokenizer && t->settings.sample_tokens && !trainer_is_divided(t)) ok = text_make(t);
    return tl_scope_end(scope) && ok;
}

static struct mesh mesh_alone(void) {
    struct mesh m = {
        .size = 1, .reduced.size = 1, .sharded.size = 1, .across.size = 1, .ep.size = 1, .experts.size = 1};
    for (int axis = 0; axis < MESH_AXES; axis++) m.axis[axis].size = 1;
    return m;
}

struct trainer *trainer_new(const struct settings *s, const struct source *source, tl_device *device,
                            const struct mesh *mesh) {
    struct trainer *t = memory_new(sizeof *t);
    if (!t) {
        error_memory(sizeof *t, "a trainer");
        return NULL;
    }
    tl_set_fast(s->fast); /* here, since the price is made by a trainer too */
    *t = (struct trainer){.settings = *s,
                          .device = device,
                          .mesh = mesh ? *mesh : mesh_alone(),
                          .is_bytes = source->is_bytes,
                          .n_held_out = source->n_held_out,
                          .tokenizer = source->tokenizer,
                          .schedule = schedule_of(s),
                          .noise = {settings_seed(s, s->seed_dropout), STREAM_NOISE, 0},
                          .dice = {settings_seed(s, s->seed_sample), STREAM_DICE, 0},
                          .scaler = tl_scaler_defaults(),
                          .rewards = {NAN, NAN}};
    t->dp = t->mesh.reduced;
    t->recipe = recipe_find(settings_choice(s, "recipe"));
    bool ok = t->recipe && tl_schedule_check(&t->schedule) && trainer_model_make(t) && trainer_optimizer_make(t) &&
              trainer_sums_make(t) && results_make(t) && (t->loader = loader_new(t, source, &source->train));
    for (int i = 0; ok && i < t->n_held_out; i++) ok = (t->held_out[i] = loader_new(t, source, &source->held_out[i]));
    if (ok) return t;
    trainer_free(t);
    return NULL;
}

void trainer_free(struct trainer *t) {
    if (!t) return;
    tl_loader_free(t->loader);
    for (int i = 0; i < t->n_held_out; i++) tl_loader_free(t->held_out[i]);
    if (t->text) tl_drop(t->text);
    if (t->results) tl_drop(t->results);
    portions_free(&t->states);
    portions_free(&t->weights);
    buckets_free(&t->buckets);
    tl_optimizer_free(t->optimizer);
    memory_free(t->matrices);
    memory_free(t->vectors);
    tl_module_free(t->reference);
    tl_module_free(t->model);
    memory_free(t->parameters);
    memory_free(t->names);
    memory_free(t->shards);
    memory_free(t->divided);
    memory_free(t->sums);
    memory_free(t);
}

int64_t trainer_step_tokens(const struct trainer *t, int64_t step) {
    return ramp_accum(&t->settings, step) * t->settings.batch * settings_window(&t->settings);
}

int64_t trainer_tokens(const struct trainer *t, int64_t steps) {
    return ramp_batches(&t->settings, steps) * t->settings.batch * settings_window(&t->settings);
}

int64_t trainer_step_pairs(const struct trainer *t, int64_t step) {
    if (!trainer_counts_rows(t)) return 0;
    return settings_has_documents(&t->settings) ? t->step_pairs[step % 2] : trainer_causal_pairs(t, step);
}

int64_t trainer_causal_pairs(const struct trainer *t, int64_t step) {
    const struct settings *s = &t->settings;
    return ramp_accum(s, step) * mesh_batch(&t->mesh, s) * (settings_window(s) / s->seq) * (s->seq * (s->seq + 1) / 2);
}

double trainer_lr(const struct trainer *t, int64_t step) {
    return t->settings.lr * tl_schedule_factor(&t->schedule, step);
}
