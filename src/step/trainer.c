#include "step/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "account/ledger.h"
#include "base/error.h"
#include "base/memory.h"
#include "nn/model.h"
#include "ops/ops.h"
#include "ops/draw.h"
#include "optim/optimizer.h"
#include "step/groups.h"
#include "step/rounds.h"
#include "step/stages.h"
#include "step/tokens.h"
#include "step/tuning.h"
#include "tensor/pool.h"

/* One stream for each use of random numbers, so that they do not affect each other. */
enum { STREAM_INIT = 1, STREAM_NOISE, STREAM_DICE };

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
    return true;
}

static bool is_model_changed(const struct settings *s) {
    return s->layers || s->channels || s->heads || s->kv_heads || s->ff || s->vocabulary || s->context;
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

static tl_optimizer_kind optimizer_kind(const struct settings *s) {
    int kind = 0;
    while (tl_optimizer_kind_name((tl_optimizer_kind)kind) &&
           strcmp(tl_optimizer_kind_name((tl_optimizer_kind)kind), settings_choice(s, "optimizer")))
        kind++;
    return (tl_optimizer_kind)kind;
}

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

static tl_checkpoint_policy policy_of(const struct settings *s) {
    static const char *const names[] = {"none", "every-k", "sqrt", "full", "nothing", "selective"};
    int i = 0;
    while (i < 5 && strcmp(names[i], settings_choice(s, "checkpointing"))) i++;
    return (tl_checkpoint_policy)i;
}

/* ---- Buckets by parameter ---- */

static const char *name_of(const void *context, const tl_tensor *parameter) {
    const struct trainer *t = context;
    int i = 0;
    while (t->parameters[i] != parameter) i++;
    return t->names[i];
}

/* Muon needs whole matrices. */
static bool is_by_member(const struct trainer *t) {
    return optimizer_kind(&t->settings) == TL_MUON && t->buckets.mode == SHARDING_NONE;
}

static struct group group_of(const struct trainer *t, const tl_tensor *parameter) {
    struct group group;
    const char *groups = t->settings.groups;
    bool ok = groups_find(groups, *groups ? name_of(t, parameter) : "", &group);
    INVARIANT(ok); /* the settings have been checked */
    return group;
}

/* Factors of the learning rate and of the initial numbers of a parameter. An embedding's inputs are single numbers,
 * whatever the width: it has none, and neither have vectors. Muon's steps by shape have the same norm at every
 * width. */
struct mup {
    double lr, init;
};
static struct mup mup_of(const struct trainer *t, const tl_tensor *parameter) {
    const struct settings *s = &t->settings;
    if (!s->mup_channels) return (struct mup){1, 1};
    const double ratio = (double)tl_model_config_of(t->model)->channels / (double)s->mup_channels;
    const bool is_hidden = tl_rank(parameter) >= 2 && model_block_of(t->model, parameter) >= 0,
               is_even = optimizer_kind(s) == TL_MUON && !strcmp(settings_choice(s, "muon_scale"), "shape") &&
                         groups_has_muon(t->model, parameter);
    if (is_hidden) return (struct mup){is_even ? 1 : 1 / ratio, 1 / sqrt(ratio)};
    return model_head_of(t->model) == parameter ? (struct mup){1 / ratio, 1 / ratio} : (struct mup){1, 1};
}

/* Weights that are read from files stay as they are. */
static bool mup_init(struct trainer *t) {
    bool ok = true, mode = tl_set_grad_mode(false);
    if (t->settings.mup_channels && tl_model_config_of(t->model)->is_tied)
        ok = error_set(TL_ERROR_USE,
                       "mup_channels: the head of %s is its embedding, which needs two scales at once (need "
                       "a model with a head of its own, or --mup-channels 0)",
                       t->settings.model);
    for (int i = 0; ok && t->is_fresh && i < t->n_parameters; i++) {
        const double factor = mup_of(t, t->parameters[i]).init;
        ok = factor == 1 || tl_affine_(tl_detach(t->parameters[i]), factor, 0);
    }
    tl_set_grad_mode(mode);
    return ok;
}

static tl_optimizer_options optimizer_options(const struct trainer *t, const tl_tensor *parameter) {
    const struct settings *s = &t->settings;
    const struct group group = group_of(t, parameter);
    tl_optimizer_options o = tl_optimizer_defaults(optimizer_kind(s));
    const bool is_muon = optimizer_kind(s) == TL_MUON;
    o.lr = s->lr * group.lr * mup_of(t, parameter).lr;
    o.narrow = !strcmp(settings_choice(s, "moments"), "bf16");
    o.beta1 = s->beta1;
    o.beta2 = o.alpha = s->beta2;
    o.eps = s->eps;
    o.momentum = is_muon ? s->muon_momentum : s->momentum;
    o.nesterov = is_muon || s->nesterov;
    o.ns_steps = (int)s->muon_steps;
    o.matches_adamw = !strcmp(settings_choice(s, "muon_scale"), "rms");
    o.adamw = is_muon && !groups_has_muon(t->model, parameter);
    o.weight_decay = group.decay >= 0 ? group.decay : tl_rank(parameter) >= 2 ? s->weight_decay : 0;
    o.has_master = t->recipe->has_master;
    o.stochastic = t->recipe->is_stochastic;
    return o;
}

static bool pieces_of_states(struct trainer *t, struct portions *to, bool is_collected) {
    static const char bucket[] = "bucket."; /* states are "exp_avg.bucket.0" and so on */
    int n = 0;
    const tl_named_tensor *states = tl_optimizer_list(t->optimizer, &n);
    bool ok = states != NULL;
    for (int i = 0; ok && i < n; i++) {
        const char *name = states[i].name, *at = strstr(name, bucket);
        const struct bucket *k = &t->buckets.at[atoi(at + sizeof bucket - 1)];
        ok = (is_collected ? portions_collect : portions_add)(to, name, (size_t)(at - name), k, states[i].tensor,
                                                              name_of, t);
    }
    return ok;
}

static bool pieces_of_weights(struct trainer *t, struct portions *to, bool is_collected) {
    bool ok = true;
    for (int i = 0; ok && t->buckets.mode == SHARDING_ZERO3 && i < t->buckets.n; i++) {
        const struct bucket *k = &t->buckets.at[i];
        ok = (is_collected ? portions_collect : portions_add)(to, "", 0, k, k->own, name_of, t);
    }
    return ok;
}

/* As the parameters that they are of. */
static void pieces_divide(const struct trainer *t, struct portions *p) {
    for (size_t i = 0; i < p->n; i++)
        for (int k = 0; k < t->n_parameters; k++)
            if (t->parameters[k] == p->of[i]) p->at[i].shard = t->shards[k];
}

bool trainer_collect(struct trainer *t, int part, struct portions *to) {
    bool ok = buckets_settle(&t->buckets);
    ok = ok && (part ? pieces_of_states(t, to, true) : pieces_of_weights(t, to, true));
    pieces_divide(t, to);
    return ok;
}

/* ---- Making one ---- */

static tl_loader *loader_new(const struct trainer *t, const struct source *source, bool is_training) {
    const struct settings *s = &t->settings;
    const struct source_part *part = is_training ? &source->train : &source->held_out;
    tl_loader_options o = tl_loader_defaults();
    o.file = part->file;
    o.first = part->first;
    o.last = part->last;
    o.batch = mesh_batch(&t->mesh, s); /* rank r of dp has the r-th share of each micro-batch's rows */
    o.world = t->mesh.axis[MESH_DP].size;
    o.rank = t->mesh.axis[MESH_DP].rank;
    o.time = s->seq;
    o.seed = settings_seed(s, s->seed_data);
    o.device = t->device;
    o.has_documents = settings_has_documents(s);
    o.is_marked = source->is_chat;
    o.document_token = source->document_token;
    o.sampling = !is_training                                        ? TL_SAMPLE_IN_ORDER
                 : !strcmp(settings_choice(s, "sampling"), "random") ? TL_SAMPLE_RANDOM
                                                                     : TL_SAMPLE_ONCE;
    return tl_loader_new(&o);
}

/* A parameter that all ranks of tp hold must be rounded alike on all of them: by the same random numbers, which come
 * after those of as many elements on each rank. */
static bool rounding_check(const struct trainer *t, const tl_model_config *c) {
    int64_t tp = t->settings.tp;
    if (t->recipe->is_stochastic && t->settings.pp > 1)
        return error_set(TL_ERROR_USE,
                         "pp: the recipe %s rounds at random, by one sequence of random numbers for all parameters, "
                         "which stages do not share (need another --recipe, such as bf16, or --pp 1)",
                         settings_choice(&t->settings, "recipe"));
    if (!t->recipe->is_stochastic || (c->vocabulary % tp == 0 && c->ff % tp == 0)) return true;
    return error_set(TL_ERROR_USE,
                     "tp: the recipe %s rounds at random, and needs parts of equal size: vocabulary %" PRId64
                     " and ff %" PRId64 " are not both multiples of %" PRId64
                     " (need --vocabulary and --ff that are, or "
                     "another --recipe)",
                     settings_choice(&t->settings, "recipe"), c->vocabulary, c->ff, tp);
}

/* How ranks of tp hold a parameter: parts, the same, or parts of which several hold the same. Two stages of pp hold the
 * one that they share, each a part or the whole of it: its gradient is summed apart from all others. */
enum holding { HOLDS_PART, HOLDS_WHOLE, HOLDS_COPY, HOLDS_SHARED };

static enum holding holding_of(const struct trainer *t, const tl_tensor *parameter, const tl_shard *shard) {
    if (parameter == t->shared) return HOLDS_SHARED;
    if (t->mesh.axis[MESH_TP].size == 1) return HOLDS_PART;
    return !shard ? HOLDS_WHOLE : shard->n_copies > 1 ? HOLDS_COPY : HOLDS_PART;
}

/* zero3: a block that was just made keeps its parts alone. */
static bool block_take(void *context, tl_module *block) {
    struct trainer *t = context;
    int n = 0, n_parameters = 0;
    const tl_named_tensor *list = tl_module_list(block, &n);
    tl_tensor **parameters = memory_new(((size_t)n + 1) * sizeof *parameters);
    int *kinds = memory_new(((size_t)n + 1) * sizeof *kinds);
    bool ok = list && ((parameters && kinds) || error_memory((size_t)n * sizeof *parameters, "a block's parameters"));
    for (int i = 0; ok && i < n; i++) {
        if (list[i].is_buffer) continue;
        kinds[n_parameters] = holding_of(t, list[i].tensor, list[i].shard);
        parameters[n_parameters++] = list[i].tensor;
    }
    ok = ok && buckets_take_block(&t->buckets, parameters, kinds, n_parameters, &t->mesh.sharded, &t->mesh.across);
    memory_free(parameters);
    memory_free(kinds);
    return ok;
}

/* lora_base: a block that was just made, so that the whole model never exists in the wide dtype. */
static bool block_narrow(void *context, tl_module *block) {
    return tuning_narrow(block, &((const struct trainer *)context)->settings);
}

static bool model_make(struct trainer *t) {
    const struct settings *s = &t->settings;
    const tl_parallel parallel = {.tp = t->mesh.axis[MESH_TP].comm,
                                  .cp = t->mesh.axis[MESH_CP].comm,
                                  .pp = t->mesh.axis[MESH_PP].comm,
                                  .has_sequence_parallel = s->sp,
                                  .pp_chunks = (int)s->pp_chunks};
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
    return tuning_begin(t->model, s);
}

static bool parameters_list(struct trainer *t) {
    int n;
    const tl_named_tensor *list = tl_module_list(t->model, &n);
    if (!list) return false;
    t->parameters = memory_new((size_t)n * sizeof *t->parameters);
    t->names = memory_new((size_t)n * sizeof *t->names);
    t->shards = memory_new((size_t)n * sizeof *t->shards);
    if (!t->parameters || !t->names || !t->shards) return error_memory((size_t)n * sizeof *t->parameters, "a trainer");
    for (int i = 0; i < n; i++) {
        if (list[i].is_buffer || !tl_needs_grad(list[i].tensor)) continue;
        t->names[t->n_parameters] = list[i].name;
        t->shards[t->n_parameters] = list[i].shard;
        t->parameters[t->n_parameters++] = list[i].tensor;
    }
    return true;
}

/* One of the optimizer's for each bucket: this rank's part, or all of it. */
static bool buckets_add(struct trainer *t) {
    bool ok = true;
    for (int i = 0; ok && i < t->buckets.n; i++) {
        const struct bucket *k = &t->buckets.at[i];
        tl_optimizer_options o = optimizer_options(t, k->members[0].parameter);
        char name[32];
        uint64_t before = k->own == k->flat ? 0 : (uint64_t)(t->mesh.sharded.rank * k->part);
        uint64_t after = (uint64_t)k->used - before - (uint64_t)tl_numel(k->own); /* may wrap: the end is padding */
        snprintf(name, sizeof name, "bucket.%d", i);
        ok = optimizer_add_part(t->optimizer, name, k->own, &o, before, after);
    }
    return ok;
}

/* Whose squares this rank counts in the norm, a bit each: what several ranks hold counts once. */
static unsigned holdings_counted(const struct trainer *t) {
    int rank = t->mesh.axis[MESH_TP].rank, n_copies = 1;
    for (int i = 0; i < t->n_parameters; i++)
        if (t->shards[i] && t->shards[i]->n_copies > 1) n_copies = t->shards[i]->n_copies;
    /* the embedding, which tp divides */
    bool counts_shared = t->mesh.axis[MESH_PP].rank == 0;
    return 1u << HOLDS_PART | (rank == 0 ? 1u << HOLDS_WHOLE : 0) | (rank % n_copies == 0 ? 1u << HOLDS_COPY : 0) |
           (counts_shared ? 1u << HOLDS_SHARED : 0);
}

static bool buckets_begin(struct trainer *t) {
    const struct settings *s = &t->settings;
    int *kinds = memory_new(((size_t)t->n_parameters + 1) * sizeof *kinds);
    if (!kinds) return error_memory((size_t)t->n_parameters * sizeof *kinds, "buckets of parameters");
    for (int i = 0; i < t->n_parameters; i++) {
        kinds[i] = holding_of(t, t->parameters[i], t->shards[i]);
        const bool is_head = model_head_of(t->model) == t->parameters[i]; /* mup_channels gives it a learning rate */
        kinds[i] += BUCKET_GROUP * (2 * group_of(t, t->parameters[i]).index + (s->mup_channels && is_head));
    }
    const struct buckets_options o = {.mode = (enum sharding)s->shard,
                                      .sums_in_f32 = s->accum > 1 && recipe_sums_in_f32(t->recipe),
                                      .overlaps = s->overlap,
                                      .across = t->mesh.across,
                                      .late_kind = HOLDS_SHARED};
    bool ok = buckets_make(&t->buckets, t->model, t->parameters, kinds, t->n_parameters, &t->mesh.sharded, &o);
    memory_free(kinds);
    return ok;
}

/* States without buckets are divided as their parameters are: "exp_avg.NAME". */
static bool states_divide(struct trainer *t) {
    int n = 0;
    const tl_named_tensor *list = tl_optimizer_list(t->optimizer, &n);
    size_t bytes = ((size_t)n + 1) * sizeof *t->divided;
    t->divided = list || !n ? memory_new(bytes) : NULL;
    if (!t->divided) return error_memory(bytes, "the optimizer's state by parameter");
    if (n) memcpy(t->divided, list, (size_t)n * sizeof *list);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < t->n_parameters; k++)
            if (!strcmp(strchr(t->divided[i].name, '.') + 1, t->names[k])) t->divided[i].shard = t->shards[k];
    return true;
}

/* The optimizer's state as checkpoints have it, where that is not the optimizer's own list. */
static bool states_make(struct trainer *t) {
    if (t->dp.size == 1 || is_by_member(t)) return t->mesh.axis[MESH_TP].size == 1 || states_divide(t);
    bool ok = pieces_of_states(t, &t->states, false) && pieces_of_weights(t, &t->weights, false);
    pieces_divide(t, &t->states);
    pieces_divide(t, &t->weights);
    return ok;
}

/* Whether the ranks can divide what the optimizer works on. */
static bool division_check(const struct trainer *t) {
    const struct settings *s = &t->settings;
    if (optimizer_kind(s) != TL_MUON) return true;
    if (t->dp.size > 1 && s->shard != SHARDING_NONE)
        return error_set(TL_ERROR_USE,
                         "shard: muon orthogonalizes whole matrices, of which a rank of --shard %s has a part (need "
                         "--shard none, or --optimizer adamw)",
                         settings_choice(s, "shard"));
    return t->mesh.axis[MESH_TP].size == 1 ||
           error_set(TL_ERROR_USE, "tp: muon orthogonalizes whole matrices, which tp divides (need --tp 1, or "
                                   "--optimizer adamw)");
}

static bool optimizer_make(struct trainer *t) {
    const struct settings *s = &t->settings;
    bool ok = division_check(t) && parameters_list(t) && groups_all_match(s->groups, t->names, t->n_parameters);
    ok = ok && mup_init(t);
    ok = ok && (t->dp.size == 1 || buckets_begin(t));
    const bool is_alone = t->dp.size == 1 || is_by_member(t);
    t->optimizer = ok ? tl_optimizer_new(optimizer_kind(s)) : NULL;
    ok = t->optimizer != NULL;
    for (int i = 0; ok && is_alone && i < t->n_parameters; i++) {
        tl_optimizer_options o = optimizer_options(t, t->parameters[i]);
        ok = tl_optimizer_add(t->optimizer, t->names[i], t->parameters[i], &o);
    }
    return ok && (is_alone || buckets_add(t)) && states_make(t);
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

/* Where steps leave results that the host reads later. Made once, so that every step holds the same bytes. */
static bool results_make(struct trainer *t) {
    tl_scope scope = tl_scope_enter("results");
    if (!scope.depth) return false;
    t->results = tl_set_purpose(tl_zeros(TL_SHAPE(5), TL_F32, t->device), TL_DATA);
    bool ok = t->results && tl_keep(t->results);
    if (ok && t->tokenizer && t->settings.sample_tokens && !trainer_is_divided(t)) ok = text_make(t);
    return tl_scope_end(scope) && ok;
}

static bool sums_make(struct trainer *t);

static struct mesh mesh_alone(void) {
    struct mesh m = {.size = 1, .reduced.size = 1, .sharded.size = 1, .across.size = 1};
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
                          .tokenizer = source->tokenizer,
                          .schedule = schedule_of(s),
                          .noise = {settings_seed(s, s->seed_dropout), STREAM_NOISE, 0},
                          .dice = {settings_seed(s, s->seed_sample), STREAM_DICE, 0},
                          .scaler = tl_scaler_defaults()};
    t->dp = t->mesh.reduced;
    t->recipe = recipe_find(settings_choice(s, "recipe"));
    bool ok = t->recipe && tl_schedule_check(&t->schedule) && model_make(t) && optimizer_make(t) && sums_make(t) &&
              results_make(t) && (t->loader = loader_new(t, source, true));
    if (ok && source->held_out.last) ok = (t->held_out = loader_new(t, source, false));
    if (ok) return t;
    trainer_free(t);
    return NULL;
}

void trainer_free(struct trainer *t) {
    if (!t) return;
    tl_loader_free(t->loader);
    tl_loader_free(t->held_out);
    if (t->text) tl_drop(t->text);
    if (t->results) tl_drop(t->results);
    portions_free(&t->states);
    portions_free(&t->weights);
    buckets_free(&t->buckets);
    tl_optimizer_free(t->optimizer);
    tl_module_free(t->model);
    memory_free(t->parameters);
    memory_free(t->names);
    memory_free(t->shards);
    memory_free(t->divided);
    memory_free(t->sums);
    memory_free(t);
}

int64_t trainer_step_tokens(const struct trainer *t) { return t->settings.accum * t->settings.batch * t->settings.seq; }

int64_t trainer_step_pairs(const struct trainer *t, int64_t step) {
    if (!trainer_counts_rows(t)) return 0;
    return settings_has_documents(&t->settings) ? t->step_pairs[step % 2] : trainer_causal_pairs(t);
}

int64_t trainer_causal_pairs(const struct trainer *t) {
    return t->settings.accum * mesh_batch(&t->mesh, &t->settings) * (t->settings.seq * (t->settings.seq + 1) / 2);
}

double trainer_lr(const struct trainer *t, int64_t step) {
    return t->settings.lr * tl_schedule_factor(&t->schedule, step);
}

/* ---- One step ---- */

/* Of the mean over micro-batches, and over ranks with equal parts of each. */
static int64_t loss_parts(const struct trainer *t) { return t->settings.accum * t->dp.size; }

/* Of a micro-batch's loss in the gradients. */
static double loss_weight(const struct trainer *t) {
    return (t->recipe->has_scaler ? t->scaler.scale : 1) / (double)loss_parts(t);
}

/* Forward and backward of one micro-batch. The loss is added to `total` (the first one replaces it), and the pairs that
 * attention uses to `pairs`. */
static bool micro_step(struct trainer *t, int64_t position, tl_tensor *total, int64_t *pairs, bool is_first) {
    bool needs_seed = t->recipe->has_scaler || loss_parts(t) > 1;
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = NULL, *targets = NULL, *begin = NULL;
    bool ok = scope.depth && tl_loader_next_documents(t->loader, position, &tokens, &targets, &begin) &&
              buckets_enter(&t->buckets);
    if (begin && device_has_data(t->device)) *pairs += tl_loader_pairs(t->loader);
    tl_dtype before = tl_set_autocast(t->recipe->autocast);
    tl_tensor *loss = ok ? tl_model_document_loss(t->model, tokens, targets, begin) : NULL; /* () f32 */
    tl_set_autocast(before);
    tl_tensor *seed = loss && needs_seed ? tl_full(TL_SCALAR, loss_weight(t), TL_F32, t->device) : NULL;
    ok = loss && (seed || !needs_seed) && tl_backward(loss, seed, 0);
    if (ok && t->buckets.mode >= SHARDING_ZERO2) ok = buckets_finish(&t->buckets);
    buckets_leave(&t->buckets);
    bool grad = tl_set_grad_mode(false);
    ok = ok && (is_first ? tl_copy_(total, loss) : tl_add_(total, loss));
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

static bool sums_make(struct trainer *t) {
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

struct micro_batches {
    int64_t position; /* of the first */
    tl_tensor *total;
    int64_t *pairs;
};

bool trainer_leaves(struct trainer *t, int64_t k) {
    t->is_left = k > 0 && t->stop && *t->stop;
    return t->is_left;
}

static bool micro_batch(struct trainer *t, int64_t k, void *context) {
    const struct micro_batches *m = context;
    return !trainer_leaves(t, k) && micro_step(t, m->position + k, m->total, m->pairs, k == 0) && tl_error() == TL_OK;
}

/* All micro-batches of a step through the stages of pp. */
static bool stages_step(struct trainer *t, const struct micro_batches *m) {
    tl_dtype before = tl_set_autocast(t->recipe->autocast);
    tl_tensor *sum = stages_run(t, t->loader, m->position, t->settings.accum, loss_weight(t), m->pairs);
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
    int64_t accum = t->settings.accum, last = accum - 1;
    struct micro_batches batches = {(step + t->data_shift) * accum, total, &t->step_pairs[step % 2]};
    *batches.pairs = 0;
    bool is_piped = stages_are_several(t);
    buckets_expect(&t->buckets, false);
    bool ok = is_piped ? stages_step(t, &batches) : rounds_run(t, last, micro_batch, &batches);
    buckets_expect(&t->buckets, true);
    ok = ok && (is_piped || micro_batch(t, last, &batches));
    ok = sums_give(t, ok);
    return ok && (accum == 1 || tl_affine_(total, 1 / (double)accum, 0)) && gradients_sum(t);
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
    unsigned counted = holdings_counted(t);
    if (t->dp.size > 1) return buckets_squares(&t->buckets, counted);
    tl_tensor **grads = memory_new(((size_t)t->n_parameters + 1) * sizeof *grads);
    int n = 0;
    if (!grads) return error_memory((size_t)t->n_parameters * sizeof *grads, "a list of gradients"), NULL;
    for (int i = 0; i < t->n_parameters; i++)
        if (counted >> holding_of(t, t->parameters[i], t->shards[i]) & 1 && tl_grad_of(t->parameters[i]))
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
    bool ok = scale && (is_alone || buckets_give(&t->buckets, is_by_member(t))) &&
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

static bool results_take(struct trainer *t, int64_t step, float values[5]) {
    char error[200] = "";
    void *fetch = t->fetch[step % 2];
    t->fetch[step % 2] = NULL;
    if (!fetch) return tl_to_data(t->results, values, 5 * sizeof *values);
    return t->device->functions->fetch_end(t->device, fetch, values, 5 * sizeof *values, error) ||
           error_set(TL_ERROR_DEVICE, "results of step %" PRId64 ": %s", step, error);
}

/* Steps repeat, and a device may make use of it. Not where each call is timed: it is queued by itself then. */
static bool repeat_begin(const struct trainer *t) {
    const struct device_functions *f = t->device->functions;
    bool begins = f->repeat_begin && !t->settings.graphs && !ledger_is_profiling;
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

bool trainer_read(struct trainer *t, int64_t step, double *loss, double *norm) {
    float values[5];
    if (!results_take(t, step, values)) return false;
    *loss = (double)values[step % 2 * 2];
    *norm = (double)values[step % 2 * 2 + 1] / t->scale_used[step % 2];
    if (t->recipe->has_scaler) tl_scaler_update(&t->scaler, *norm, t->scale_used[step % 2]);
    return true;
}

/* ---- For checkpoints ---- */

/* Stages of pp write what they hold; where sharding divides that among ranks, each its own part. Where tp divides it,
 * too, one rank collects both. */
static void files_name(struct trainer *t, const struct trainer_part parts[TRAINER_PARTS]) {
    static const char *const stems[TRAINER_PARTS] = {"model", "optimizer"};
    const struct mesh_group *pp = &t->mesh.axis[MESH_PP];
    for (int i = 0; i < TRAINER_PARTS; i++) {
        bool has_own = parts[i].is_portions && !parts[i].is_joined;
        int n = has_own ? t->mesh.sharded.size : 1, own = has_own ? t->mesh.sharded.rank : 0;
        portions_file(t->files[i], stems[i], pp->rank * n + own, pp->size * n);
    }
}

bool trainer_parts(struct trainer *t, struct trainer_part parts[TRAINER_PARTS]) {
    bool has_tp = t->mesh.axis[MESH_TP].size > 1, is_divided = t->buckets.mode != SHARDING_NONE;
    if (!buckets_settle(&t->buckets)) return false;
    parts[0] = (struct trainer_part){.is_others = t->dp.rank > 0, .is_joined = has_tp};
    parts[1] = parts[0];
    parts[0].tensors = tl_module_list(t->model, &parts[0].n);
    parts[1].tensors = tl_optimizer_list(t->optimizer, &parts[1].n);
    if (t->divided) parts[1].tensors = t->divided;
    const struct portions *portions[TRAINER_PARTS] = {t->weights.n ? &t->weights : NULL,
                                                      t->states.n ? &t->states : NULL};
    for (int i = 0; i < TRAINER_PARTS; i++) {
        if (portions[i]) parts[i].tensors = portions[i]->at, parts[i].n = (int)portions[i]->n;
        if (portions[i]) parts[i].of = portions[i]->of;
        parts[i].is_portions = portions[i] && is_divided;
        if (parts[i].is_portions) parts[i].is_others = t->mesh.across.rank > 0;
        if (t->shared && t->mesh.axis[MESH_PP].rank > 0) parts[i].shared = name_of(t, t->shared);
    }
    files_name(t, parts);
    for (int i = 0; i < TRAINER_PARTS; i++) parts[i].file = t->files[i];
    return parts[0].tensors && (parts[1].tensors || parts[1].n == 0);
}

bool trainer_part_saves(const struct trainer_part *part, int i) {
    const char *name = part->tensors[i].name;
    if (part->is_others) return false;
    if (!part->shared) return true;
    size_t length = strcspn(name, "@"), own = strlen(part->shared);
    return length < own || memcmp(name + length - own, part->shared, own) != 0;
}

bool trainer_bill_save(struct trainer *t) {
    struct trainer_part parts[TRAINER_PARTS];
    tl_phase phase = tl_set_phase(TL_OTHER);
    tl_scope scope = tl_scope_enter("save");
    bool ok = scope.depth && trainer_parts(t, parts);
    for (int i = 0; ok && i < TRAINER_PARTS; i++)
        for (int k = 0; ok && k < parts[i].n; k++)
            ok = !trainer_part_saves(&parts[i], k) || transfer_bill(parts[i].tensors[k].tensor);
    ok = scope.depth && tl_scope_end(scope) && ok;
    tl_set_phase(phase);
    return ok;
}

static json_t *generator_json(tl_generator g) {
    return json_pack("[I, I, I]", (json_int_t)g.seed, (json_int_t)g.stream, (json_int_t)g.index);
}

json_t *trainer_state(const struct trainer *t) {
    return json_pack("{s:I, s:o, s:o, s:f, s:I, s:I, s:I, s:b}", "optimizer_steps",
                     (json_int_t)tl_optimizer_steps(t->optimizer), "noise", generator_json(t->noise), "dice",
                     generator_json(t->dice), "loss_scale", t->scaler.scale, "loss_scale_steps",
                     (json_int_t)t->scaler.n_good, "overflows", (json_int_t)t->scaler.n_skipped, "data_shift",
                     (json_int_t)t->data_shift, "is_bytes", (int)t->is_bytes);
}

static bool generator_read(const json_t *state, const char *name, tl_generator *g) {
    json_int_t seed, stream, index;
    if (json_unpack((json_t *)(uintptr_t)state, "{s:[I, I, I]}", name, &seed, &stream, &index) != 0) return false;
    *g = (tl_generator){(uint64_t)seed, (uint64_t)stream, (uint64_t)index};
    return true;
}

bool trainer_set_state(struct trainer *t, const json_t *state) {
    json_int_t steps, n_good, overflows, shift;
    double scale;
    if (!generator_read(state, "noise", &t->noise) || !generator_read(state, "dice", &t->dice) ||
        json_unpack((json_t *)(uintptr_t)state, "{s:I, s:F, s:I, s:I, s:I}", "optimizer_steps", &steps, "loss_scale",
                    &scale, "loss_scale_steps", &n_good, "overflows", &overflows, "data_shift", &shift) != 0 ||
        steps < 0 || shift < 0 || !(scale >= 1))
        return error_set(TL_ERROR_USE, "the checkpoint's state.json is not a trainer's state");
    tl_optimizer_set_steps(t->optimizer, steps);
    t->scaler.scale = scale;
    t->scaler.n_good = n_good;
    t->scaler.n_skipped = overflows;
    t->data_shift = shift;
    return true;
}
