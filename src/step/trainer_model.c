/* trainer_model.c: the model that the settings name, and the one of a trainer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"
#include "nn/model.h"
#include "step/tokens.h"
#include "step/trainer_inner.h"
#include "step/tuning.h"

/* ---- The model of the settings ---- */

/* Another width keeps the size of heads, how many of them share keys and values, and the shape of the MLP. */
static bool width_change(const struct settings *s, tl_model_config *c) {
    int64_t group = c->n_heads / c->n_kv_heads, before = c->channels;
    if (s->channels) {
        c->channels = s->channels;
        c->ff = (int64_t)((double)c->ff / (double)before * (double)c->channels + 0.5);
        c->expert_ff = (int64_t)((double)c->expert_ff / (double)before * (double)c->channels + 0.5);
        if (!s->heads && c->channels % c->head_size)
            return error_set(TL_ERROR_USE, "channels: %" PRId64 " is not a multiple of the head size %" PRId64,
                             c->channels, c->head_size);
        if (!s->heads) c->n_heads = c->channels / c->head_size;
    }
    if (s->heads) {
        if (c->channels % s->heads)
            return error_set(TL_ERROR_USE, "heads: %" PRId64 " heads do not divide %" PRId64 " channels", s->heads,
                             c->channels);
        c->n_heads = s->heads;
        c->head_size = c->channels / s->heads;
    }
    if (s->kv_heads || (!s->channels && !s->heads)) return true;
    if (c->n_heads % group)
        return error_set(TL_ERROR_USE,
                         "kv_heads: %" PRId64 " heads cannot share keys and values by %" PRId64 " (give kv_heads)",
                         c->n_heads, group);
    c->n_kv_heads = c->n_heads / group;
    return true;
}

/* Sizes that the settings give in place of the model's own. */
static bool model_change(const struct settings *s, tl_model_config *c) {
    if (!width_change(s, c)) return false;
    if (s->layers) c->n_layers = s->layers;
    if (s->kv_heads) c->n_kv_heads = s->kv_heads;
    if (s->ff) *(c->expert_ff ? &c->expert_ff : &c->ff) = s->ff;
    if (s->vocabulary) c->vocabulary = s->vocabulary;
    if (s->context) c->context = s->context;
    if (s->positions) c->positions = s->positions; /* a tl_positions */
    if (c->positions == TL_POSITIONS_ROTARY && !(c->rope_base > 0)) c->rope_base = 10000;
    return true;
}

static bool is_model_changed(const struct settings *s) {
    return s->layers || s->channels || s->heads || s->kv_heads || s->ff || s->vocabulary || s->context || s->positions;
}

bool trainer_has_preset(const struct settings *s) {
    for (int i = 0; tl_model_preset_name(i); i++)
        if (!strcmp(tl_model_preset_name(i), s->model)) return true;
    return false;
}

/* The vocabulary of a preset is its tokenizer's, if one is named and no other size is given. */
static bool vocabulary_take(const struct settings *s, tl_model_config *c) {
    return !*s->tokenizer || s->vocabulary || !trainer_has_preset(s) || tokens_vocabulary(s, &c->vocabulary);
}

bool trainer_sizes(const struct settings *s, tl_model_config *config, char *weights) {
    struct stat info;
    char path[SETTING_TEXT + 16];
    bool is_there = stat(s->model, &info) == 0, is_folder = is_there && S_ISDIR(info.st_mode);
    bool is_preset = trainer_has_preset(s);
    snprintf(path, sizeof path, "%s%s", s->model, is_folder ? "/config.json" : "");
    snprintf(weights, SETTING_TEXT, "%s", is_folder && !is_preset ? s->model : "");
    if (is_preset || !is_there ? !tl_model_preset(s->model, config) : !tl_model_config_read(path, config)) return false;
    if (config->family == TL_DEEP_LINEAR) return error_set(TL_ERROR_USE, "model: %s is not a language model", s->model);
    if (*weights && is_model_changed(s))
        return error_set(TL_ERROR_USE,
                         "model: the weights in %s fix the model's sizes (give only its config.json to change them)",
                         s->model);
    return model_change(s, config);
}

bool trainer_model(const struct settings *s, tl_model_config *config, char *weights) {
    if (!trainer_sizes(s, config, weights) || !vocabulary_take(s, config)) return false;
    if (s->seq > config->context)
        return error_set(TL_ERROR_USE,
                         "seq: %" PRId64 " tokens exceed the model's context of %" PRId64 " (--context changes it)",
                         s->seq, config->context);
    config->dropout = s->dropout;
    return tl_model_config_check(config);
}

/* zero3: blocks keep their parts alone as soon as they are made (block_take). Files of weights fill a whole model, and
 * groups and frozen parameters are found by the names of one. */
static bool blocks_are_taken(const struct settings *s, const char *weights) {
    return !*weights && !*s->groups && !s->mup_channels && !tuning_is_partial(s);
}

bool trainer_can_hold(const struct settings *s, const tl_model_config *config, const char *weights,
                      const tl_device *device) {
    const struct recipe *recipe = recipe_find(settings_choice(s, "recipe"));
    if (!recipe || !recipe_check(recipe, device->target)) return false;
    if (!device_has_data(device)) return true;
    int64_t n_parts = s->tp * s->pp;
    if (s->shard == SHARDING_ZERO3 && blocks_are_taken(s, weights))
        n_parts *= s->shard_group ? s->shard_group : s->cp * (s->dp ? s->dp : 1);
    return (!*weights || model_weights_fit(config, weights)) &&
           (s->lora_base || model_fits(config, (int)n_parts, recipe->parameters, device));
}

static tl_checkpoint_policy policy_of(const struct settings *s) {
    static const char *const names[] = {"none", "every-k", "sqrt", "full", "nothing", "selective"};
    int i = 0;
    while (i < 5 && strcmp(names[i], settings_choice(s, "checkpointing"))) i++;
    return (tl_checkpoint_policy)i;
}

/* ---- A trainer's model ---- */

/* A parameter that all ranks of tp hold must be rounded alike on all of them: by the same random numbers, which come
 * after those of as many elements on each rank. */
static bool rounding_check(const struct trainer *t, const tl_model_config *c) {
    int64_t tp = t->settings.tp;
    if (t->recipe->is_stochastic && t->settings.pp > 1)
        return error_set(TL_ERROR_USE,
                         "pp: the recipe %s rounds at random, by one sequence of random numbers for all parameters, "
                         "which stages do not share (need another --recipe, such as bf16, or --pp 1)",
                         settings_choice(&t->settings, "recipe"));
    const int64_t expert = c->expert_ff ? c->expert_ff : c->ff;
    if (!t->recipe->is_stochastic || (c->vocabulary % tp == 0 && c->ff % tp == 0 && expert % tp == 0)) return true;
    return error_set(TL_ERROR_USE,
                     "tp: the recipe %s rounds at random, and needs parts of equal size: vocabulary %" PRId64
                     " and ff %" PRId64 " are not both multiples of %" PRId64
                     " (need --vocabulary and --ff that are, or "
                     "another --recipe)",
                     settings_choice(&t->settings, "recipe"), c->vocabulary, c->ff % tp ? c->ff : expert, tp);
}

/* zero3: a block that was just made keeps its parts alone. */
static bool block_take(void *context, tl_module *block) {
    struct trainer *t = context;
    int n = 0, n_parameters = 0;
    const tl_named_tensor *list = tl_module_list(block, &n);
    tl_tensor **parameters = memory_new(((size_t)n + 1) * sizeof *parameters);
    const tl_shard **shards = memory_new(((size_t)n + 1) * sizeof *shards);
    int *kinds = memory_new(((size_t)n + 1) * sizeof *kinds);
    bool ok = list &&
              ((parameters && shards && kinds) || error_memory((size_t)n * sizeof *parameters, "a block's parameters"));
    for (int i = 0; ok && i < n; i++) {
        if (list[i].is_buffer) continue;
        kinds[n_parameters] = trainer_holding(t, list[i].tensor, list[i].shard);
        shards[n_parameters] = list[i].shard;
        parameters[n_parameters++] = list[i].tensor;
    }
    const struct buckets_options o = trainer_bucket_options(t);
    ok = ok && trainer_divide_muon(t, parameters, shards, n_parameters, kinds);
    ok = ok && buckets_take_block(&t->buckets, parameters, kinds, n_parameters, &t->mesh.sharded, &o);
    memory_free(parameters);
    memory_free(shards);
    memory_free(kinds);
    return ok;
}

/* lora_base: a block that was just made, so that the whole model never exists in the wide dtype. */
static bool block_narrow(void *context, tl_module *block) {
    return tuning_narrow(block, &((const struct trainer *)context)->settings);
}

/* preference without adapters: the model as it is before the first step, by the same random numbers or from the same
 * files, since ranks may hold parts of the one that trains. It has no gradients. */
static bool reference_make(struct trainer *t, const tl_model_config *config, const char *weights) {
    const struct settings *s = &t->settings;
    int n = 0;
    if (!settings_has_preference(s) || s->lora) return true;
    tl_scope scope = tl_scope_enter("reference");
    if (!scope.depth) return false;
    tl_generator before = tl_generator_get();
    tl_generator_set((tl_generator){settings_seed(s, s->seed_init), STREAM_INIT, 0});
    t->reference = model_new(config, t->recipe->parameters, t->device, &(const tl_parallel){0}, NULL);
    tl_generator_set(before);
    const tl_named_tensor *list = t->reference ? tl_module_list(t->reference, &n) : NULL;
    bool ok = list != NULL;
    for (int i = 0; ok && i < n; i++) ok = list[i].is_buffer || tl_requires_grad(list[i].tensor, false);
    if (ok) linear_set_mode(t->reference, t->recipe->linear);
    if (ok && device_has_data(t->device) && *weights) ok = tl_model_load(t->reference, weights);
    return tl_scope_end(scope) && ok;
}

bool trainer_model_make(struct trainer *t) {
    const struct settings *s = &t->settings;
    const tl_parallel parallel = {.tp = t->mesh.axis[MESH_TP].comm,
                                  .cp = t->mesh.axis[MESH_CP].comm,
                                  .pp = t->mesh.axis[MESH_PP].comm,
                                  .has_sequence_parallel = s->sp,
                                  .pp_chunks = (int)s->pp_chunks,
                                  .ep = t->mesh.ep.comm,
                                  .ep_load = s->ep_load};
    tl_model_config config;
    char weights[SETTING_TEXT];
    if (!trainer_model(s, &config, weights) || !trainer_can_hold(s, &config, weights, t->device) ||
        !rounding_check(t, &config))
        return false;
    tl_generator before = tl_generator_get();
    tl_generator_set((tl_generator){settings_seed(s, s->seed_init), STREAM_INIT, 0});
    const struct block_maker maker = {s->lora_base ? block_narrow : block_take, t};
    t->is_fresh = !*weights;
    bool is_taken = s->shard == SHARDING_ZERO3 && t->dp.size > 1 && blocks_are_taken(s, weights);
    is_taken = is_taken || s->lora_base;
    t->model = model_new(&config, t->recipe->parameters, t->device, &parallel, is_taken ? &maker : NULL);
    tl_generator_set(before);
    if (!t->model || !tl_model_set_checkpointing(t->model, policy_of(s), (int)s->checkpoint_k)) return false;
    if (!tl_model_set_router_losses(t->model, s->router_aux_loss, s->router_z_loss)) return false;
    if (!tl_model_set_head_loss(t->model, s->label_smoothing, s->z_loss)) return false;
    linear_set_mode(t->model, t->recipe->linear);
    t->shared = model_shared(t->model, &t->sharers);
    if (device_has_data(t->device) && *weights && !tl_model_load(t->model, weights)) return false;
    return tuning_begin(t->model, s) && reference_make(t, &config, weights);
}
