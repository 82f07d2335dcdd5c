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
    const bool has_moments = kind == TL_ADAM || kind == TL_ADAMW || kind == TL_MUON; /* of what Muon leaves to AdamW */
    if (kind == TL_ADAFACTOR) return "adafactor has means of whole rows, columns and tensors";
    return has_moments && moment_bits(s) == 8 ? "8-bit moments are blocks of whole tensors" : NULL;
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

/* ---- Muon's matrices, where ranks share them ---- */

static const tl_shard *shard_of(const struct trainer *t, const tl_tensor *parameter) {
    int i = 0;
    while (t->parameters[i] != parameter) i++;
    return t->shards[i];
}

/* Room for the matrices of all parameters, and for as many vectors of them. */
static bool matrices_begin(struct trainer *t) {
    const size_t n = (size_t)t->n_parameters + 1;
    t->matrices = memory_new(n * sizeof *t->matrices);
    t->vectors = memory_new(n * sizeof *t->vectors);
    return (t->matrices && t->vectors) ||
           error_memory(n * (sizeof *t->matrices + sizeof *t->vectors), "the matrices of muon");
}

static const struct update_matrices *vector_add(struct trainer *t, struct update_matrices vector) {
    vector.at = t->matrices + t->n_matrices;
    t->n_matrices += vector.n;
    t->vectors[t->n_vectors] = vector;
    return &t->vectors[t->n_vectors++];
}

/* Of a parameter of which ranks of tp hold parts. */
static const struct update_matrices *matrix_of(struct trainer *t, tl_tensor *parameter, const tl_shard *shard) {
    t->matrices[t->n_matrices] = (struct update_matrix){.parameter = parameter, .shard = shard};
    return vector_add(t, (struct update_matrices){.n = 1});
}

/* Of a bucket; `before`: its elements in front of this rank's part. */
static const struct update_matrices *matrices_of(struct trainer *t, const struct bucket *k, int64_t before) {
    for (int i = 0; i < k->n_members; i++) {
        const struct bucket_member *m = &k->members[i];
        t->matrices[t->n_matrices + i] = (struct update_matrix){m->at, m->parameter, shard_of(t, m->parameter)};
    }
    const bool is_whole = t->buckets.mode == SHARDING_NONE || k->group->size == 1;
    return vector_add(
        t, (struct update_matrices){.n = k->n_members, .before = before, .group = is_whole ? NULL : k->group->comm});
}

bool trainer_divide_muon(const struct trainer *t, tl_tensor *const *parameters, const tl_shard *const *shards, int n,
                         int *kinds) {
    const struct settings *s = &t->settings;
    const bool matches_adamw = !strcmp(settings_choice(s, "muon_scale"), "rms");
    if (optimizer_kind(s) != TL_MUON) return true;
    double *factors = memory_new(((size_t)n + 1) * sizeof *factors);
    int n_factors = 0;
    if (!factors) return error_memory((size_t)n * sizeof *factors, "the matrices of muon");
    for (int i = 0; i < n; i++) {
        if (tl_rank(parameters[i]) != 2 || (t->model && !groups_has_muon(t->model, parameters[i]))) continue;
        int k = 0;
        factors[n_factors] = update_muon_factor(parameters[i], shards[i], matches_adamw);
        while (factors[k] != factors[n_factors]) k++;
        if (k == n_factors) n_factors++;
        kinds[i] += BUCKET_GROUP * MUON_KIND * (k + 1);
    }
    memory_free(factors);
    return true;
}

/* ---- The optimizer ---- */

/* One of the optimizer's for each parameter. */
static bool parameters_add(struct trainer *t) {
    const tl_optimizer_options common = common_options(&t->settings, t->recipe);
    const bool is_muon = optimizer_kind(&t->settings) == TL_MUON;
    bool ok = true;
    for (int i = 0; ok && i < t->n_parameters; i++) {
        tl_tensor *const p = t->parameters[i];
        tl_optimizer_options o = optimizer_options(t, &common, p);
        const bool is_part = is_muon && !o.adamw && t->shards[i];
        const struct optimizer_part part = {.matrices = is_part ? matrix_of(t, p, t->shards[i]) : NULL};
        ok = optimizer_add_part(t->optimizer, t->names[i], p, &o, &part);
    }
    return ok;
}

/* One of the optimizer's for each bucket: this rank's part, or all of it. */
static bool buckets_add(struct trainer *t) {
    const tl_optimizer_options common = common_options(&t->settings, t->recipe);
    const bool is_muon = optimizer_kind(&t->settings) == TL_MUON;
    bool ok = true;
    for (int i = 0; ok && i < t->buckets.n; i++) {
        const struct bucket *k = &t->buckets.at[i];
        tl_optimizer_options o = optimizer_options(t, &common, k->members[0].parameter);
        char name[32];
        const int64_t before = k->own == k->flat ? 0 : k->group->rank * k->part;
        const struct optimizer_part part = {
            .words_before = (uint64_t)before,
            .words_after = (uint64_t)(k->used - before - tl_numel(k->own)), /* may wrap: the end is padding */
            .matrices = is_muon && !o.adamw ? matrices_of(t, k, before) : NULL};
        snprintf(name, sizeof name, "bucket.%d", i);
        ok = optimizer_add_part(t->optimizer, name, k->own, &o, &part);
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
    bool ok = trainer_divide_muon(t, t->parameters, t->shards, t->n_parameters, kinds);
    ok = ok && buckets_make(&t->buckets, t->model, t->parameters, kinds, t->n_parameters, &t->mesh.sharded, &o);
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
    const char *const what = trainer_whole_steps(s), *const other =
                                                         kind == TL_ADAFACTOR ? "--optimizer adamw" : "--moments bf16";
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
    t->optimizer = ok && matrices_begin(t) ? tl_optimizer_new(optimizer_kind(s)) : NULL;
    return t->optimizer && (is_alone ? parameters_add(t) : buckets_add(t)) && trainer_states_make(t);
}
