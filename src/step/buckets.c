#include "step/buckets.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/scope.h"
#include "tensor/tensor.h"

/* Of a member's beginning, in elements: as many as there are random words in a block, to which an optimizer rounds
 * lengths up (spec/attr.h). Then an element is rounded at random as in a process alone. Parts begin at a cache line. */
enum { MEMBER_UNIT = 4, PART_UNIT = 64 };

/* ---- Which parameters are in which bucket ---- */

/* Those of one dtype that weight decay treats alike. */
static bool is_alike(const tl_tensor *a, const tl_tensor *b) {
    return a->dtype == b->dtype && (a->rank >= 2) == (b->rank >= 2);
}

static int64_t length_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* Adds to the last bucket, or to a new one. */
static void member_add(struct buckets *b, struct bucket_member *to, tl_tensor *parameter, int kind, bool is_new_kind,
                       int block) {
    int64_t numel = length_up(parameter->numel, MEMBER_UNIT);
    struct bucket *last = b->n ? &b->at[b->n - 1] : NULL;
    if (is_new_kind || last->block != block ||
        (last->used + numel) * dtype_info(parameter->dtype)->bits / 8 > BUCKET_BYTES) {
        last = &b->at[b->n++];
        *last = (struct bucket){.members = to, .all = b, .block = block};
    }
    *to = (struct bucket_member){parameter, last->used, last, kind};
    last->n_members++;
    last->used += numel;
}

/* The block that has a parameter; -1: none. */
static int block_of(const struct buckets *b, const tl_tensor *parameter) {
    for (int block = 0; block < model_n_blocks(b->model); block++) {
        int n = 0;
        const tl_named_tensor *list = tl_module_list(model_block(b->model, block), &n);
        for (int i = 0; list && i < n; i++)
            if (list[i].tensor == parameter) return block;
    }
    return -1;
}

/* Kinds follow each other in the order of their first parameters, as groups do in an optimizer. */
static void members_find(struct buckets *b, tl_tensor **parameters, const int *kinds, int n) {
    int n_done = 0;
    for (int first = 0; first < n; first++) {
        bool is_new = true;
        int kind = kinds ? kinds[first] : 0;
        for (int i = 0; i < first; i++)
            is_new = is_new && !(is_alike(parameters[i], parameters[first]) && (!kinds || kinds[i] == kind));
        for (int i = first; is_new && i < n; i++)
            if (is_alike(parameters[i], parameters[first]) && (!kinds || kinds[i] == kind))
                member_add(b, &b->members[n_done++], parameters[i], kind, i == first, block_of(b, parameters[i]));
    }
    for (int i = 0; i < b->n; i++) {
        struct bucket *k = &b->at[i];
        k->length = length_up(k->used, (int64_t)b->group.size * PART_UNIT);
        k->part = k->length / b->group.size;
        k->n_waiting = k->n_members;
    }
}

/* ---- Flat memory ---- */

static tl_tensor *piece(tl_tensor *flat, int64_t from, int64_t to) { return tl_slice(flat, 0, from, to, 1); }

/* Fills what no member has with zeros. */
static bool gaps_clear(const struct bucket *k, tl_tensor *flat) {
    bool ok = true;
    for (int i = 0; ok && i < k->n_members; i++) {
        int64_t from = k->members[i].at + k->members[i].parameter->numel;
        int64_t to = i + 1 < k->n_members ? k->members[i + 1].at : k->length;
        ok = from == to || tl_fill_(piece(flat, from, to), 0);
    }
    return ok;
}

static bool member_move(const struct bucket_member *m, tl_tensor *flat) {
    tl_tensor *p = m->parameter;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *to = piece(flat, m->at, m->at + p->numel), *from = tl_reshape(tl_detach(p), TL_SHAPE(p->numel));
    bool ok = to && from && tl_copy_(to, from);
    if (!tl_scope_end(scope) || !ok) return false;
    tensor_move_into(p, flat, m->at);
    return true;
}

/* ---- Parameters that are here only while they are used ---- */

static bool bucket_gather(struct bucket *k) {
    if (k->flat) return true;
    tl_scope scope = tl_scope_enter("gather");
    if (!scope.depth) return false;
    bool mode = tl_set_grad_mode(false);
    k->flat = tl_set_purpose(tl_all_gather(k->own, k->all->group.comm), TL_PARAMETER);
    bool ok = k->flat && tl_keep(k->flat);
    for (int i = 0; ok && i < k->n_members; i++) tensor_move_into(k->members[i].parameter, k->flat, k->members[i].at);
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && ok;
}

static void bucket_release(struct bucket *k) {
    if (k->all->mode != SHARDING_ZERO3 || !k->flat) return;
    for (int i = 0; i < k->n_members; i++) tensor_move_into(k->members[i].parameter, k->all->nothing, 0);
    tl_drop(k->flat);
    k->flat = NULL;
}

static bool block_gather(void *context) {
    const struct bucket_block *own = context;
    bool ok = true;
    for (int i = 0; ok && i < own->all->n; i++)
        if (own->all->at[i].block == own->block) ok = bucket_gather(&own->all->at[i]);
    return ok;
}

/* A block that runs again for its gradient is needed until then. */
static bool block_release(void *context) {
    const struct bucket_block *own = context;
    if (thread_state()->phase == TL_RECOMPUTE) return true;
    for (int i = 0; i < own->all->n; i++)
        if (own->all->at[i].block == own->block) bucket_release(&own->all->at[i]);
    return true;
}

bool buckets_enter(struct buckets *b) {
    struct bucket_block outside = {b, -1};
    return b->mode != SHARDING_ZERO3 || block_gather(&outside);
}
void buckets_leave(struct buckets *b) {
    for (int i = 0; i < b->n; i++) bucket_release(&b->at[i]);
}
static bool blocks_watch(struct buckets *b) {
    int n = model_n_blocks(b->model);
    b->watches = memory_new((size_t)n * sizeof *b->watches);
    b->blocks = memory_new((size_t)n * sizeof *b->blocks);
    if (!b->watches || !b->blocks) return error_memory((size_t)n * sizeof *b->watches, "watches of blocks");
    for (int i = 0; i < n; i++) {
        b->blocks[i] = (struct bucket_block){b, i};
        b->watches[i] = (struct block_watch){block_gather, block_release, block_gather, &b->blocks[i]};
    }
    model_watch(b->model, b->watches);
    return true;
}

/* ---- Making them ---- */

static bool flat_make(struct bucket *k) {
    const struct buckets *b = k->all;
    const tl_tensor *first = k->members[0].parameter;
    k->flat = tl_set_purpose(tl_empty(TL_SHAPE(k->length), first->dtype, first->storage->device), TL_PARAMETER);
    bool ok = k->flat && tl_keep(k->flat);
    for (int i = 0; ok && i < k->n_members; i++) ok = member_move(&k->members[i], k->flat);
    ok = ok && gaps_clear(k, k->flat);
    int64_t from = b->group.rank * k->part;
    if (ok) k->own = b->mode == SHARDING_NONE ? k->flat : piece(k->flat, from, from + k->part);
    if (ok && k->own && b->mode == SHARDING_ZERO3) k->own = tl_set_purpose(tl_clone(k->own), TL_PARAMETER);
    ok = ok && k->own && tl_keep(k->own);
    if (ok) bucket_release(k);
    return ok;
}

/* ---- Sums over ranks ---- */

/* The gradients of a bucket as a vector; they are dropped. */
static tl_tensor *grads_pack(struct bucket *k) {
    const tl_tensor *first = tl_grad_of(k->members[0].parameter), *p = k->members[0].parameter;
    tl_tensor *flat = tl_empty(TL_SHAPE(k->length), first ? first->dtype : p->dtype, p->storage->device);
    bool ok = flat && gaps_clear(k, flat);
    for (int i = 0; ok && i < k->n_members; i++) {
        tl_tensor *parameter = k->members[i].parameter, *grad = tl_grad_of(parameter);
        tl_scope scope = tl_scope_begin();
        if (!scope.depth) return NULL;
        tl_tensor *to = piece(flat, k->members[i].at, k->members[i].at + parameter->numel);
        ok = to && (grad ? tl_copy_(to, tl_reshape(grad, TL_SHAPE(grad->numel))) : tl_fill_(to, 0));
        ok = tl_scope_end(scope) && ok;
        tl_zero_grad(parameter, false);
    }
    return ok ? flat : NULL;
}

/* Adds this rank's part of the sum over ranks to what earlier micro-batches gave. */
static bool bucket_reduce(struct bucket *k) {
    const struct buckets *b = k->all;
    tl_scope scope = tl_scope_enter("reduce");
    if (!scope.depth) return false;
    bool mode = tl_set_grad_mode(false);
    tl_tensor *flat = grads_pack(k), *part = flat ? tl_reduce_scatter(flat, b->group.comm) : NULL;
    bool ok = part != NULL;
    if (ok && k->grad) ok = tl_add_(k->grad, part);
    else if (ok) {
        if (b->sums_in_f32) part = tl_cast(part, TL_F32);
        k->grad = part ? tl_set_purpose(part, TL_GRADIENT) : NULL;
        ok = k->grad && tl_keep(k->grad);
    }
    k->n_waiting = k->n_members;
    bucket_release(k); /* no rule reads a parameter whose gradient is complete */
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && ok;
}

bool buckets_reduce(struct buckets *b) {
    bool ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int i = b->n - 1; ok && i >= 0; i--) {
        const struct bucket *k = &b->at[i];
        if (!k->grad || k->n_waiting != k->n_members)
            ok = bucket_reduce(&b->at[i]); /* zero2: not reached by backward */
    }
    tl_set_phase(phase);
    return ok;
}

bool buckets_share(struct buckets *b, int kind, tl_comm *stages) {
    bool ok = true, mode = tl_set_grad_mode(false);
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int i = 0; ok && i < b->n; i++) {
        if (b->at[i].members[0].kind != kind) continue;
        tl_scope scope = tl_scope_enter("reduce");
        ok = scope.depth && tl_all_reduce_(b->at[i].grad, stages);
        ok = scope.depth && tl_scope_end(scope) && ok;
    }
    tl_set_phase(phase);
    tl_set_grad_mode(mode);
    return ok;
}

/* A gradient is complete; the last one of a bucket sends it. A failure shows as a recorded error. */
static void grad_arrived(tl_tensor *parameter, tl_tensor *grad, void *context) {
    struct bucket_member *m = context;
    (void)parameter, (void)grad;
    if (--m->bucket->n_waiting == 0) bucket_reduce(m->bucket);
}

/* ---- The update ---- */

tl_tensor *buckets_squares(struct buckets *b, unsigned kinds) {
    tl_tensor **grads = memory_new((size_t)b->n * sizeof *grads);
    int n = 0;
    if (!grads) return error_memory((size_t)b->n * sizeof *grads, "a list of gradients"), NULL;
    for (int i = 0; i < b->n; i++)
        if (kinds >> b->at[i].members[0].kind & 1) grads[n++] = b->at[i].grad;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_tensor *sum = tl_sum_squares(grads, n);
    tl_set_phase(phase);
    memory_free(grads);
    return sum;
}

bool buckets_give(struct buckets *b) {
    bool ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int i = 0; ok && i < b->n; i++) {
        struct bucket *k = &b->at[i];
        tl_scope scope = tl_scope_enter("gather");
        tl_tensor *grad = k->grad;
        if (scope.depth && b->mode == SHARDING_NONE) grad = tl_all_gather(grad, b->group.comm);
        ok = scope.depth && grad && tl_set_grad(k->own, grad);
        if (scope.depth) ok = tl_scope_end(scope) && ok;
        tl_drop(k->grad);
        k->grad = NULL;
    }
    tl_set_phase(phase);
    return ok;
}

void buckets_take(struct buckets *b) {
    for (int i = 0; i < b->n; i++) {
        if (b->at[i].own) tl_set_grad(b->at[i].own, NULL);
        if (b->at[i].grad) tl_drop(b->at[i].grad);
        b->at[i].grad = NULL;
        b->at[i].n_waiting = b->at[i].n_members;
    }
}

bool buckets_gather(struct buckets *b) {
    bool ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    bool is_kept = b->mode == SHARDING_ZERO1 || b->mode == SHARDING_ZERO2;
    for (int i = 0; ok && is_kept && i < b->n; i++) {
        tl_scope scope = tl_scope_enter("gather");
        tl_tensor *whole = scope.depth ? tl_all_gather(b->at[i].own, b->group.comm) : NULL;
        ok = whole && tl_copy_(b->at[i].flat, whole);
        if (scope.depth) ok = tl_scope_end(scope) && ok;
    }
    tl_set_phase(phase);
    return ok;
}

/* ---- All ---- */

static bool flats_make(struct buckets *b) {
    tl_scope scope = tl_scope_enter("parameters");
    if (!scope.depth) return false;
    bool mode = tl_set_grad_mode(false), ok = true;
    if (b->mode == SHARDING_ZERO3) {
        const tl_tensor *first = b->members[0].parameter;
        b->nothing = tl_empty(TL_SHAPE(0), first->dtype, first->storage->device);
        ok = b->nothing && tl_keep(b->nothing);
    }
    for (int i = 0; ok && i < b->n; i++) ok = flat_make(&b->at[i]);
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && ok;
}

bool buckets_make(struct buckets *b, tl_module *model, tl_tensor **parameters, const int *kinds, int n,
                  const struct mesh_group *group, enum sharding mode, bool sums_in_f32) {
    size_t bytes = (size_t)n * (sizeof *b->at + sizeof *b->members);
    *b = (struct buckets){
        .group = *group, .mode = mode, .model = model, .sums_in_f32 = sums_in_f32 && mode >= SHARDING_ZERO2};
    b->at = memory_new((size_t)n * sizeof *b->at);
    b->members = memory_new((size_t)n * sizeof *b->members);
    if (!b->at || !b->members) return error_memory(bytes, "buckets of parameters");
    members_find(b, parameters, kinds, n);
    bool ok = flats_make(b) && (mode != SHARDING_ZERO3 || blocks_watch(b));
    for (int i = 0; ok && mode >= SHARDING_ZERO2 && i < n; i++)
        ok = tl_set_grad_hook(b->members[i].parameter, grad_arrived, &b->members[i], NULL);
    return ok;
}

void buckets_free(struct buckets *b) {
    if (!b->at || !b->members) b->n = 0;
    buckets_take(b);
    for (int i = 0; i < b->n; i++) {
        if (b->at[i].own) tl_drop(b->at[i].own);
        if (b->at[i].flat) tl_drop(b->at[i].flat);
    }
    if (b->nothing) tl_drop(b->nothing);
    if (b->watches) model_watch(b->model, NULL);
    memory_free(b->watches);
    memory_free(b->blocks);
    memory_free(b->at);
    memory_free(b->members);
    *b = (struct buckets){0};
}
