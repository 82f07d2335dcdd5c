/* trainer_state.c: what checkpoints have of a trainer: tensors by file, and the rest as JSON. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ops/ops.h"
#include "step/trainer_inner.h"

/* ---- Tensors of buckets, by parameter ---- */

static bool pieces_of_states(struct trainer *t, struct portions *to, bool is_collected) {
    static const char bucket[] = "bucket."; /* states are "exp_avg.bucket.0" and so on */
    int n = 0;
    const tl_named_tensor *states = tl_optimizer_list(t->optimizer, &n);
    bool ok = states != NULL;
    for (int i = 0; ok && i < n; i++) {
        const char *name = states[i].name, *at = strstr(name, bucket);
        const struct bucket *k = &t->buckets.at[atoi(at + sizeof bucket - 1)];
        ok = (is_collected ? portions_collect : portions_add)(to, name, (size_t)(at - name), k, states[i].tensor,
                                                              trainer_name_of, t);
    }
    return ok;
}

static bool pieces_of_weights(struct trainer *t, struct portions *to, bool is_collected) {
    bool ok = true;
    for (int i = 0; ok && t->buckets.mode == SHARDING_ZERO3 && i < t->buckets.n; i++) {
        const struct bucket *k = &t->buckets.at[i];
        ok = (is_collected ? portions_collect : portions_add)(to, "", 0, k, k->own, trainer_name_of, t);
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

bool trainer_states_make(struct trainer *t) {
    if (t->dp.size == 1 || trainer_is_by_member(t))
        return (t->mesh.axis[MESH_TP].size == 1 && t->mesh.ep.size == 1) || states_divide(t);
    bool ok = pieces_of_states(t, &t->states, false) && pieces_of_weights(t, &t->weights, false);
    pieces_divide(t, &t->states);
    pieces_divide(t, &t->weights);
    return ok;
}

/* ---- Files ---- */

/* Stages of pp write what they hold; where sharding divides that among ranks, each its own part. Where tp or ep divides
 * it, too, one rank collects both. */
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
    bool is_joined = t->mesh.axis[MESH_TP].size > 1 || t->mesh.ep.size > 1;
    bool is_divided = t->buckets.mode != SHARDING_NONE;
    if (!buckets_settle(&t->buckets)) return false;
    parts[0] = (struct trainer_part){.is_others = t->mesh.experts.rank > 0, .is_joined = is_joined};
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
        if (t->shared && t->mesh.axis[MESH_PP].rank > 0) parts[i].shared = trainer_name_of(t, t->shared);
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
    json_t *state = json_pack("{s:I, s:o, s:o, s:f, s:I, s:I, s:I, s:b}", "optimizer_steps",
                              (json_int_t)tl_optimizer_steps(t->optimizer), "noise", generator_json(t->noise), "dice",
                              generator_json(t->dice), "loss_scale", t->scaler.scale, "loss_scale_steps",
                              (json_int_t)t->scaler.n_good, "overflows", (json_int_t)t->scaler.n_skipped, "data_shift",
                              (json_int_t)t->data_shift, "is_bytes", (int)t->is_bytes);
    const struct noise *noise = &t->noise_scale;
    const tl_optimizer_weights weights = tl_optimizer_get_weights(t->optimizer);
    if (state && trainer_is_schedule_free(t))
        json_object_set_new(state, "weights", json_pack("[f, f]", weights.largest, weights.sum));
    if (state && noise->n)
        json_object_set_new(state, "noise_scale",
                            json_pack("[f, f, I]", noise->square, noise->trace, (json_int_t)noise->n));
    return state;
}

static bool weights_take(struct trainer *t, const json_t *state) {
    tl_optimizer_weights w;
    if (!trainer_is_schedule_free(t)) return true;
    if (json_unpack((json_t *)(uintptr_t)state, "{s:[F, F]}", "weights", &w.largest, &w.sum) != 0 ||
        !(w.largest >= 0) || !(w.sum >= 0))
        return false;
    tl_optimizer_set_weights(t->optimizer, w);
    return true;
}

/* Absent: nothing was measured. */
static bool noise_take(struct trainer *t, const json_t *state) {
    json_t *value = json_object_get(state, "noise_scale");
    json_int_t n = 0;
    t->noise_scale = (struct noise){0};
    if (!value || !t->settings.noise_scale) return true;
    if (json_unpack(value, "[F, F, I]", &t->noise_scale.square, &t->noise_scale.trace, &n) != 0 || n < 1) return false;
    t->noise_scale.n = n;
    return true;
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
        !noise_take(t, state) || !weights_take(t, state) || steps < 0 || shift < 0 || !(scale >= 1))
        return error_set(TL_ERROR_USE, "the checkpoint's state.json is not a trainer's state");
    tl_optimizer_set_steps(t->optimizer, steps);
    t->scaler.scale = scale;
    t->scaler.n_good = n_good;
    t->scaler.n_skipped = overflows;
    t->data_shift = shift;
    return true;
}
