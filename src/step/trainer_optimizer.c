/* trainer_optimizer.c: the optimizer of a trainer, by parameter or by bucket, and the settings of each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "step/groups.h"
#include "step/trainer_inner.h"

static tl_optimizer_kind optimizer_kind(const struct settings *s) {
    int kind = 0;
    while (tl_optimizer_kind_name((tl_optimizer_kind)kind) &&
           strcmp(tl_optimizer_kind_name((tl_optimizer_kind)kind), settings_choice(s, "optimizer")))
        kind++;
    return (tl_optimizer_kind)kind;
}

const char *trainer_name_of(const void *context, const tl_tensor *parameter) {
    const struct trainer *t = context;
    int i = 0;
    while (t->parameters[i] != parameter) i++;
    return t->names[i];
}

static int moment_bits(const struct settings *s) {
    const char *const moments = settings_choice(s, "moments");
    return !strcmp(moments, "8bit") ? 8 : !strcmp(moments, "bf16") ? 16 : 32;
}

const char *trainer_whole_steps(const struct settings *s) {
    const tl_optimizer_kind kind = optimizer_kind(s);
    if (kind == TL_MUON) return "muon orthogonalizes whole matrices";
    if (kind == TL_ADAFACTOR) return "adafactor has means of whole rows, columns and tensors";
    return (kind == TL_ADAM || kind == TL_ADAMW) && moment_bits(s) == 8 ? "8-bit moments are blocks of whole tensors"
                                                                        : NULL;
}

bool trainer_is_by_member(const struct trainer *t) {
    return trainer_whole_steps(&t->settings) && t->buckets.mode == SHARDING_NONE;
}

bool trainer_is_schedule_free(const struct trainer *t) { return optimizer_kind(&t->settings) == TL_SCHEDULE_FREE; }

static struct group group_of(const struct trainer *t, const tl_tensor *parameter) {
    struct group group;
    const char *groups = t->settings.groups;
    bool ok = groups_find(groups, *groups ? trainer_name_of(t, parameter) : "", &group);
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

/* What the settings say of every parameter. */
static tl_optimizer_options common_options(const struct settings *s, const struct recipe *recipe) {
    tl_optimizer_options o = tl_optimizer_defaults(optimizer_kind(s));
    const bool is_muon = optimizer_kind(s) == TL_MUON;
    o.moment_bits = moment_bits(s);
    o.beta1 = s->beta1;
    o.beta2 = o.alpha = s->beta2;
    o.eps = s->eps;
    o.momentum = is_muon ? s->muon_momentum : s->momentum;
    o.nesterov = is_muon || s->nesterov;
    o.ns_steps = (int)s->muon_steps;
    o.matches_adamw = !strcmp(settings_choice(s, "muon_scale"), "rms");
    o.adamw = is_muon; /* of what muon leaves to it */
    o.ema = s->ema;
    o.has_master = recipe->has_master;
    o.stochastic = recipe->is_stochastic;
    return o;
}

static tl_optimizer_options optimizer_options(const struct trainer *t, const tl_optimizer_options *common,
                                              const tl_tensor *parameter) {
    const struct settings *s = &t->settings;
    const struct group group = group_of(t, parameter);
    tl_optimizer_options o = *common;
    o.lr = s->lr * group.lr * mup_of(t, parameter).lr;
    o.adamw = o.adamw && !groups_has_muon(t->model, parameter);
    o.weight_decay = group.decay >= 0 ? group.decay : tl_rank(parameter) >= 2 ? s->weight_decay : 0;
    return o;
}

enum holding trainer_holding(const struct trainer *t, const tl_tensor *parameter, const tl_shard *shard) {
    if (parameter == t->shared) return HOLDS_SHARED;
    if (shard && t->mesh.ep.size > 1) return HOLDS_EXPERTS; /* there is no tp beside it */
    if (t->mesh.axis[MESH_TP].size == 1) return HOLDS_PART;
    return !shard ? HOLDS_WHOLE : shard->n_copies > 1 ? HOLDS_COPY : HOLDS_PART;
}

unsigned trainer_holdings_counted(const struct trainer *t) {
    int rank = t->mesh.axis[MESH_TP].rank, n_copies = 1;
    for (int i = 0; i < t->n_parameters; i++)
        if (t->shards[i] && t->shards[i]->n_copies > 1) n_copies = t->shards[i]->n_copies;
    /* the embedding, which tp divides */
    bool counts_shared = t->mesh.axis[MESH_PP].rank == 0;
    return 1u << HOLDS_PART | 1u << HOLDS_EXPERTS | (rank == 0 ? 1u << HOLDS_WHOLE : 0) |
           (rank % n_copies == 0 ? 1u << HOLDS_COPY : 0) | (counts_shared ? 1u << HOLDS_SHARED : 0);
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
    const tl_optimizer_options common = common_options(&t->settings, t->recipe);
    bool ok = true;
    for (int i = 0; ok && i < t->buckets.n; i++) {
        const struct bucket *k = &t->buckets.at[i];
        tl_optimizer_options o = optimizer_options(t, &common, k->members[0].parameter);
        char name[32];
        uint64_t before = k->own == k->flat ? 0 : (uint64_t)(k->group->rank * k->part);
        uint64_t after = (uint64_t)k->used - before - (uint64_t)tl_numel(k->own); /* may wrap: the end is padding */
        snprintf(name, sizeof name, "bucket.%d", i);
        ok = optimizer_add_part(t->optimizer, name, k->own, &o, before, after);
    }
    return ok;
}

struct buckets_options trainer_bucket_options(const struct trainer *t) {
    const struct settings *s = &t->settings;
    return (struct buckets_options){.mode = (enum sharding)s->shard,
                                    .sums_in_f32 = s->accum > 1 && recipe_sums_in_f32(t->recipe),
                                    .overlaps = s->overlap,
                                    .across = t->mesh.across,
                                    .apart = t->mesh.experts,
                                    .apart_kind = HOLDS_EXPERTS,
                                    .late_kind = HOLDS_SHARED};
}

static bool buckets_begin(struct trainer *t) {
    const struct settings *s = &t->settings;
    int *kinds = memory_new(((size_t)t->n_parameters + 1) * sizeof *kinds);
    if (!kinds) return error_memory((size_t)t->n_parameters * sizeof *kinds, "buckets of parameters");
    for (int i = 0; i < t->n_parameters; i++) {
        kinds[i] = trainer_holding(t, t->parameters[i], t->shards[i]);
        const bool is_head = model_head_of(t->model) == t->parameters[i]; /* mup_channels gives it a learning rate */
        kinds[i] += BUCKET_GROUP * (2 * group_of(t, t->parameters[i]).index + (s->mup_channels && is_head));
    }
    const struct buckets_options o = trainer_bucket_options(t);
    bool ok = buckets_make(&t->buckets, t->model, t->parameters, kinds, t->n_parameters, &t->mesh.sharded, &o);
    memory_free(kinds);
    return ok;
}

/* Whether the ranks can divide what the optimizer works on. */
static bool division_check(const struct trainer *t) {
    const struct settings *s = &t->settings;
    if (s->noise_scale && t->mesh.size > 1)
        return error_set(TL_ERROR_USE,
                         "noise_scale: is measured by one process, and there are %d (need --noise-scale false)",
                         t->mesh.size);
    const tl_optimizer_kind kind = optimizer_kind(s);
    const char *const what = trainer_whole_steps(s), *const other = kind == TL_MUON || kind == TL_ADAFACTOR
                                                                        ? "--optimizer adamw"
                                                                        : "--moments bf16";
    if (!what) return true;
    if (t->dp.size > 1 && s->shard != SHARDING_NONE)
        return error_set(TL_ERROR_USE, "shard: %s, of which a rank of --shard %s has a part (need --shard none, or %s)",
                         what, settings_choice(s, "shard"), other);
    if (t->mesh.ep.size > 1 && moment_bits(s) == 8) /* also of the experts that Muon leaves to AdamW */
        return error_set(TL_ERROR_USE,
                         "ep: 8-bit moments are blocks of whole tensors, of which a rank of --ep %d has some experts' "
                         "(need --ep 1, or --moments bf16)",
                         t->mesh.ep.size);
    if (t->mesh.ep.size > 1 && kind == TL_ADAFACTOR)
        return error_set(TL_ERROR_USE, "ep: %s, of which a rank of --ep %d has some experts' (need --ep 1, or %s)",
                         what, t->mesh.ep.size, other);
    return t->mesh.axis[MESH_TP].size == 1 ||
           error_set(TL_ERROR_USE, "tp: %s, which tp divides (need --tp 1, or %s)", what, other);
}

bool trainer_optimizer_make(struct trainer *t) {
    const struct settings *s = &t->settings;
    bool ok = division_check(t) && parameters_list(t) && groups_all_match(s->groups, t->names, t->n_parameters);
    ok = ok && mup_init(t);
    ok = ok && (t->dp.size == 1 || buckets_begin(t));
    const bool is_alone = t->dp.size == 1 || trainer_is_by_member(t);
    const tl_optimizer_options common = common_options(s, t->recipe);
    t->optimizer = ok ? tl_optimizer_new(optimizer_kind(s)) : NULL;
    ok = t->optimizer != NULL;
    for (int i = 0; ok && is_alone && i < t->n_parameters; i++) {
        tl_optimizer_options o = optimizer_options(t, &common, t->parameters[i]);
        ok = tl_optimizer_add(t->optimizer, t->names[i], t->parameters[i], &o);
    }
    return ok && (is_alone || buckets_add(t)) && trainer_states_make(t);
}
