#include "step/buckets.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/scope.h"
#include "ops/collective.h"
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
    *to = (struct bucket_member){parameter, last->used, last, kind, NULL};
    last->n_members++;
    last->used += numel;
}

/* The block that has a parameter; -1: none. */
static int block_of(const struct buckets *b, const tl_tensor *parameter) {
    return b->model ? model_block_of(b->model, parameter) : -1;
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
        const bool is_apart = bucket_holding(k) == b->apart_kind;
        k->group = is_apart ? &b->apart : &b->group;
        k->across = is_apart ? &b->alone : &b->across;
        k->length = length_up(k->used, (int64_t)k->group->size * k->across->size * PART_UNIT);
        k->part = k->length / k->group->size;
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

/* Begins to gather a bucket's parameters: from all ranks' parts, into memory of their own (zero3) or in place. */
static bool fetch_begin(struct bucket *k) {
    const struct buckets *b = k->all;
    if (k->fetching || (b->mode == SHARDING_ZERO3 && k->flat)) return true;
    tl_scope scope = tl_scope_enter("gather");
    if (!scope.depth) return false;
    bool mode = tl_set_grad_mode(false);
    k->fetching = b->mode == SHARDING_ZERO3 ? all_gather_begin(k->own, k->group->comm, b->overlaps)
                                            : all_gather_begin_(k->flat, k->group->comm, b->overlaps);
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && k->fetching;
}

static bool fetch_end(struct bucket *k) {
    if (!k->fetching) return true;
    tl_scope scope = tl_scope_enter("gather");
    if (!scope.depth) return false;
    tl_tensor *flat = all_gather_end(k->fetching);
    k->fetching = NULL;
    bool ok = flat != NULL;
    if (ok && k->all->mode == SHARDING_ZERO3) {
        k->flat = tl_keep(tl_set_purpose(flat, TL_PARAMETER));
        for (int i = 0; i < k->n_members; i++) tensor_move_into(k->members[i].parameter, k->flat, k->members[i].at);
    }
    return tl_scope_end(scope) && ok;
}

static void bucket_release(struct bucket *k) {
    if (k->all->mode != SHARDING_ZERO3 || !k->flat) return;
    for (int i = 0; i < k->n_members; i++) tensor_move_into(k->members[i].parameter, k->all->nothing, 0);
    tl_drop(k->flat);
    k->flat = NULL;
}

/* Of a block's buckets, or of those outside of blocks. */
static bool block_each(struct buckets *b, int block, bool (*what)(struct bucket *k)) {
    bool ok = true;
    for (int i = 0; ok && i < b->n; i++)
        if (b->at[i].block == block) ok = what(&b->at[i]);
    return ok;
}

/* Its parameters are needed now, unless they are here. */
static bool block_gather(struct buckets *b, int block) {
    return (b->mode != SHARDING_ZERO3 || block_each(b, block, fetch_begin)) && block_each(b, block, fetch_end);
}

/* Its parameters are needed next. */
static bool block_prefetch(struct buckets *b, int block) {
    bool is_wanted = b->overlaps && b->mode == SHARDING_ZERO3 && block >= 0 && block < model_n_blocks(b->model);
    for (int i = 0; is_wanted && i < b->n; i++) is_wanted = b->at[i].block != block || !b->at[i].is_done;
    return !is_wanted || block_each(b, block, fetch_begin);
}

/* Forward, also where a block runs again for its gradient: then the next one may have its gradients already. */
static bool block_enter(void *context) {
    const struct bucket_block *own = context;
    return block_gather(own->all, own->block) && block_prefetch(own->all, own->block + 1);
}

/* Another micro-batch. */
static void buckets_renew(struct buckets *b) {
    for (int i = 0; i < b->n; i++) b->at[i].is_done = false;
}

static bool block_back(void *context) {
    const struct bucket_block *own = context;
    if (own->block + 1 == model_n_blocks(own->all->model)) buckets_renew(own->all);
    return block_gather(own->all, own->block) && block_prefetch(own->all, own->block - 1);
}

/* A block that runs again for its gradient is needed until then, and so is the last one, with which backward begins. */
static bool block_leave(void *context) {
    const struct bucket_block *own = context;
    struct buckets *b = own->all;
    bool is_last = b->overlaps && own->block + 1 == model_n_blocks(b->model) && !thread_state()->grad_off;
    if (thread_state()->phase == TL_RECOMPUTE || is_last) return true;
    for (int i = 0; i < b->n; i++)
        if (b->at[i].block == own->block) bucket_release(&b->at[i]);
    return true;
}

bool buckets_enter(struct buckets *b) {
    buckets_renew(b);
    bool ok = b->mode != SHARDING_ZERO3 || block_each(b, -1, fetch_begin);
    return ok && block_prefetch(b, 0) && block_each(b, -1, fetch_end);
}
void buckets_leave(struct buckets *b) {
    for (int i = 0; i < b->n; i++) {
        struct bucket *k = &b->at[i];
        if (b->mode == SHARDING_ZERO3 && k->fetching) collective_abandon(k->fetching), k->fetching = NULL; /* failed */
        bucket_release(k);
    }
}
bool buckets_settle(struct buckets *b) {
    bool ok = true;
    for (int i = 0; ok && i < b->n; i++) ok = fetch_end(&b->at[i]);
    return ok;
}

static bool blocks_watch(struct buckets *b) {
    int n = model_n_blocks(b->model);
    b->watches = memory_new((size_t)n * sizeof *b->watches);
    b->blocks = memory_new((size_t)n * sizeof *b->blocks);
    if (!b->watches || !b->blocks) return error_memory((size_t)n * sizeof *b->watches, "watches of blocks");
    for (int i = 0; i < n; i++) {
        b->blocks[i] = (struct bucket_block){b, i};
        b->watches[i] = (struct block_watch){.enter = block_enter, .context = &b->blocks[i]};
        if (b->mode == SHARDING_ZERO3) b->watches[i].leave = block_leave, b->watches[i].back = block_back;
    }
    model_watch(b->model, b->watches);
    return true;
}

/* ---- Making them ---- */

/* Whether this rank has its part already. */
static bool part_find(struct bucket *k) {
    const struct bucket_parts *early = &k->all->early;
    for (size_t i = 0; i < early->n && !k->own; i++) {
        if (early->at[i].first != k->members[0].parameter) continue;
        k->own = early->at[i].own;
        early->at[i].own = NULL;
    }
    return k->own != NULL;
}

static bool flat_make(struct bucket *k) {
    const struct buckets *b = k->all;
    const tl_tensor *first = k->members[0].parameter;
    if (part_find(k)) return true;
    k->flat = tl_set_purpose(tl_empty(TL_SHAPE(k->length), first->dtype, first->storage->device), TL_PARAMETER);
    bool ok = k->flat && tl_keep(k->flat);
    for (int i = 0; ok && i < k->n_members; i++) ok = member_move(&k->members[i], k->flat);
    ok = ok && gaps_clear(k, k->flat);
    int64_t from = k->group->rank * k->part;
    if (ok) k->own = b->mode == SHARDING_NONE ? k->flat : piece(k->flat, from, from + k->part);
    if (ok && k->own && b->mode == SHARDING_ZERO3) k->own = tl_set_purpose(tl_clone(k->own), TL_PARAMETER);
    ok = ok && k->own && tl_keep(k->own);
    if (ok) bucket_release(k);
    return ok;
}

/* ---- Sums over ranks ---- */

static tl_tensor *member_grad(const struct bucket_member *m) { return m->sum ? m->sum : tl_grad_of(m->parameter); }

static void member_forget(struct bucket_member *m) {
    if (m->sum) tl_drop(m->sum);
    m->sum = NULL;
    tl_zero_grad(m->parameter, false);
}

/* The gradients of a bucket as a vector; they are dropped. */
static tl_tensor *grads_pack(struct bucket *k) {
    const tl_tensor *first = member_grad(&k->members[0]), *p = k->members[0].parameter;
    tl_tensor *flat = tl_empty(TL_SHAPE(k->length), first ? first->dtype : p->dtype, p->storage->device);
    bool ok = flat && gaps_clear(k, flat);
    for (int i = 0; ok && i < k->n_members; i++) {
        struct bucket_member *m = &k->members[i];
        tl_tensor *grad = member_grad(m);
        tl_scope scope = tl_scope_begin();
        if (!scope.depth) return NULL;
        tl_tensor *to = piece(flat, m->at, m->at + m->parameter->numel);
        ok = to && (grad ? tl_copy_(to, tl_reshape(grad, TL_SHAPE(grad->numel))) : tl_fill_(to, 0));
        ok = tl_scope_end(scope) && ok;
        member_forget(m);
    }
    return ok ? flat : NULL;
}

static bool reduce_begin(struct bucket *k) {
    tl_scope scope = tl_scope_enter("reduce");
    if (!scope.depth) return false;
    bool mode = tl_set_grad_mode(false);
    tl_tensor *flat = grads_pack(k);
    k->reducing = flat ? reduce_scatter_begin(flat, k->group->comm, k->all->overlaps) : NULL;
    k->n_waiting = k->n_members;
    k->is_done = true;
    bucket_release(k); /* no rule reads a parameter whose gradient is complete */
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && k->reducing;
}

static bool join_begin(struct bucket *k) {
    bool mode = tl_set_grad_mode(false);
    k->joining = all_gather_begin(k->grad, k->group->comm, k->all->overlaps);
    tl_set_grad_mode(mode);
    return k->joining != NULL;
}

static bool cross_begin(struct bucket *k) {
    bool mode = tl_set_grad_mode(false);
    k->crossing = reduce_scatter_begin(k->grad, k->across->comm, k->all->overlaps);
    k->is_crossed = true;
    tl_set_grad_mode(mode);
    return k->crossing != NULL;
}

/* Part of the sum across groups, which each of them has to give the others. */
static bool cross_end(struct bucket *k) {
    tl_scope scope = tl_scope_enter("reduce");
    if (!scope.depth) return false;
    bool mode = tl_set_grad_mode(false);
    tl_tensor *part = reduce_scatter_end(k->crossing, k->across->comm);
    k->crossing = NULL;
    k->returning = part ? all_gather_begin(part, k->across->comm, k->all->overlaps) : NULL;
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && k->returning;
}

static bool return_end(struct bucket *k) {
    tl_scope scope = tl_scope_enter("reduce");
    if (!scope.depth) return false;
    tl_tensor *sum = tl_set_purpose(all_gather_end(k->returning), TL_GRADIENT);
    k->returning = NULL;
    tl_drop(k->grad);
    k->grad = sum ? tl_keep(sum) : NULL;
    return tl_scope_end(scope) && k->grad;
}

/* Adds this rank's part of the sum over ranks to what earlier micro-batches gave. */
static bool reduce_end(struct bucket *k) {
    const struct buckets *b = k->all;
    tl_scope scope = tl_scope_enter("reduce");
    if (!scope.depth) return false;
    bool mode = tl_set_grad_mode(false);
    tl_tensor *part = reduce_scatter_end(k->reducing, k->group->comm);
    k->reducing = NULL;
    bool ok = part != NULL;
    if (ok && k->grad) ok = tl_add_(k->grad, part);
    else if (ok) {
        if (b->sums_in_f32) part = tl_cast(part, TL_F32);
        k->grad = part ? tl_set_purpose(part, TL_GRADIENT) : NULL;
        ok = k->grad && tl_keep(k->grad);
    }
    if (ok && b->mode == SHARDING_NONE && bucket_holding(k) != b->late_kind) ok = join_begin(k);
    if (ok && k->across->size > 1 && b->is_last) ok = cross_begin(k);
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && ok;
}

/* All parts; this rank's is a view of them. */
static bool join_end(struct bucket *k) {
    int64_t from = k->group->rank * k->part;
    tl_scope scope = tl_scope_enter("gather");
    if (!scope.depth) return false;
    k->whole = tl_set_purpose(all_gather_end(k->joining), TL_GRADIENT);
    k->joining = NULL;
    bool ok = k->whole && tl_keep(k->whole);
    tl_drop(k->grad);
    k->grad = ok ? piece(k->whole, from, from + k->part) : NULL;
    ok = k->grad && tl_keep(k->grad);
    return tl_scope_end(scope) && ok;
}

/* Ends what is under way, and begins what follows it. */
static bool grads_advance(struct bucket *k) {
    return k->joining     ? join_end(k)
           : k->returning ? return_end(k)
           : k->crossing  ? cross_end(k)
           : k->reducing  ? reduce_end(k)
                          : true;
}
static bool grads_are_away(const struct bucket *k) { return k->joining || k->returning || k->crossing || k->reducing; }

bool buckets_finish(struct buckets *b) {
    bool ok = true, is_away = true;
    while (ok && is_away) {
        is_away = false;
        for (int i = b->n - 1; ok && i >= 0; i--) {
            ok = grads_advance(&b->at[i]);
            is_away = is_away || grads_are_away(&b->at[i]);
        }
    }
    return ok;
}

/* A bucket's gradients are complete. Those of other blocks have had a block's time to arrive, and its own of an earlier
 * micro-batch more. */
static bool bucket_reduce(struct bucket *k) {
    struct buckets *b = k->all;
    bool ok = true;
    for (int i = b->n - 1; ok && i >= 0; i--)
        if (b->at[i].block != k->block || &b->at[i] == k) ok = grads_advance(&b->at[i]);
    ok = ok && reduce_begin(k);
    while (ok && !b->overlaps && grads_are_away(k)) ok = grads_advance(k);
    return ok;
}

/* Sums of zero2 and zero3 that stages have made: none of their micro-batches is known to be the last. */
static bool buckets_cross(struct buckets *b) {
    bool ok = true;
    for (int i = b->n - 1; ok && i >= 0; i--) {
        if (b->at[i].is_crossed || b->at[i].across->size == 1) continue;
        tl_scope scope = tl_scope_enter("reduce");
        ok = scope.depth && cross_begin(&b->at[i]);
        ok = scope.depth && tl_scope_end(scope) && ok;
    }
    return ok && buckets_finish(b);
}

bool buckets_reduce(struct buckets *b) {
    bool ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int i = b->n - 1; ok && i >= 0; i--) {
        struct bucket *k = &b->at[i];
        bool is_begun = k->grad || k->reducing;
        if (!is_begun || k->n_waiting != k->n_members) ok = bucket_reduce(k); /* not reached by backward */
    }
    ok = ok && buckets_finish(b) && buckets_cross(b);
    tl_set_phase(phase);
    return ok;
}

bool buckets_share(struct buckets *b, int kind, tl_comm *stages) {
    bool ok = true, mode = tl_set_grad_mode(false);
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int i = 0; ok && i < b->n; i++) {
        if (bucket_holding(&b->at[i]) != kind) continue;
        tl_scope scope = tl_scope_enter("reduce");
        ok = scope.depth && tl_all_reduce_(b->at[i].grad, stages);
        ok = scope.depth && tl_scope_end(scope) && ok;
        if (b->mode == SHARDING_NONE) ok = ok && join_begin(&b->at[i]) && join_end(&b->at[i]);
    }
    tl_set_phase(phase);
    tl_set_grad_mode(mode);
    return ok;
}

void buckets_expect(struct buckets *b, bool is_last) { b->is_last = is_last; }

/* So that the narrow gradients of the whole model never exist at once. */
static void member_add_up(struct bucket_member *m, tl_tensor *grad) {
    bool mode = tl_set_grad_mode(false);
    if (m->sum) tl_add_(m->sum, grad);
    else m->sum = tl_keep(tl_set_purpose(tl_cast(grad, TL_F32), TL_GRADIENT));
    tl_zero_grad(m->parameter, false);
    tl_set_grad_mode(mode);
}

/* A gradient is complete; the last one of a bucket sends it. A failure shows as a recorded error. */
static void grad_arrived(tl_tensor *parameter, tl_tensor *grad, void *context) {
    struct bucket_member *m = context;
    const struct buckets *b = m->bucket->all;
    (void)parameter;
    if (b->has_member_sums) member_add_up(m, grad);
    bool is_sent = b->mode >= SHARDING_ZERO2 || (b->overlaps && b->is_last);
    if (is_sent && --m->bucket->n_waiting == 0) bucket_reduce(m->bucket);
}

/* ---- The update ---- */

tl_tensor *buckets_squares(struct buckets *b, unsigned kinds) {
    tl_tensor **grads = memory_new((size_t)b->n * sizeof *grads);
    int n = 0;
    if (!grads) return error_memory((size_t)b->n * sizeof *grads, "a list of gradients"), NULL;
    for (int i = 0; i < b->n; i++)
        if (kinds >> bucket_holding(&b->at[i]) & 1) grads[n++] = b->at[i].grad;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_tensor *sum = tl_sum_squares(grads, n);
    tl_set_phase(phase);
    memory_free(grads);
    return sum;
}

static void grads_drop(struct bucket *k) {
    if (k->grad) tl_drop(k->grad);
    if (k->whole) tl_drop(k->whole);
    k->grad = k->whole = NULL;
    k->is_crossed = false;
}

/* To its members, each the part that is its own. */
static bool members_give(struct bucket *k) {
    bool ok = true;
    for (int i = 0; ok && i < k->n_members; i++) {
        tl_tensor *p = k->members[i].parameter;
        int64_t at = k->members[i].at;
        tl_scope scope = tl_scope_begin();
        tl_tensor *grad = scope.depth ? piece(k->whole, at, at + p->numel) : NULL;
        ok = grad && tl_set_grad(p, tl_reshape(grad, p->rank, p->shape));
        ok = scope.depth && tl_scope_end(scope) && ok;
    }
    return ok;
}

bool buckets_give(struct buckets *b, bool is_by_member) {
    bool ok = true;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int i = 0; ok && i < b->n; i++) {
        struct bucket *k = &b->at[i];
        ok = is_by_member ? members_give(k) : tl_set_grad(k->own, b->mode == SHARDING_NONE ? k->whole : k->grad);
        grads_drop(k);
    }
    tl_set_phase(phase);
    return ok;
}

void buckets_take(struct buckets *b) {
    for (int i = 0; i < b->n; i++) {
        struct bucket *k = &b->at[i];
        if (k->own) tl_set_grad(k->own, NULL);
        if (k->reducing) collective_abandon(k->reducing); /* after an error */
        if (k->joining) collective_abandon(k->joining);
        if (k->crossing) collective_abandon(k->crossing);
        if (k->returning) collective_abandon(k->returning);
        k->reducing = k->joining = k->crossing = k->returning = NULL;
        grads_drop(k);
        for (int m = 0; m < k->n_members; m++)
            if (k->members[m].sum) member_forget(&k->members[m]);
        k->n_waiting = k->n_members;
    }
}

/* In the order in which the next step needs them. */
bool buckets_gather(struct buckets *b) {
    bool ok = true, is_kept = b->mode == SHARDING_ZERO1 || b->mode == SHARDING_ZERO2;
    tl_phase phase = tl_set_phase(TL_UPDATE);
    for (int block = -1; ok && is_kept && block < model_n_blocks(b->model); block++)
        ok = block_each(b, block, fetch_begin);
    if (ok && !b->overlaps) ok = buckets_settle(b);
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
        b->nothing = b->early.nothing ? b->early.nothing : tl_empty(TL_SHAPE(0), first->dtype, first->storage->device);
        ok = b->nothing && tl_keep(b->nothing);
    }
    for (int i = 0; ok && i < b->n; i++) ok = flat_make(&b->at[i]);
    tl_set_grad_mode(mode);
    return tl_scope_end(scope) && ok;
}

static bool early_add(struct bucket_parts *early, const struct bucket *k) {
    if (!memory_grow((void **)&early->at, &early->capacity, early->n, sizeof *early->at))
        return error_memory((early->n + 1) * sizeof *early->at, "buckets of parameters");
    early->at[early->n++] = (struct bucket_part){k->members[0].parameter, k->own};
    return true;
}

/* Buckets do not reach beyond a block, so those of one block can be made by themselves. */
bool buckets_take_block(struct buckets *b, tl_tensor **parameters, const int *kinds, int n,
                        const struct mesh_group *group, const struct buckets_options *options) {
    struct buckets one = {.group = *group,
                          .across = options->across,
                          .apart = options->apart,
                          .alone.size = 1,
                          .apart_kind = options->apart_kind,
                          .mode = SHARDING_ZERO3,
                          .early.nothing = b->early.nothing};
    size_t bytes = (size_t)n * (sizeof *one.at + sizeof *one.members);
    one.at = memory_new((size_t)n * sizeof *one.at);
    one.members = memory_new((size_t)n * sizeof *one.members);
    bool ok = (one.at && one.members) || error_memory(bytes, "buckets of parameters");
    if (ok) members_find(&one, parameters, kinds, n);
    ok = ok && flats_make(&one);
    for (int i = 0; ok && i < one.n; i++) {
        ok = early_add(&b->early, &one.at[i]);
        if (ok) one.at[i].own = NULL;
    }
    if (ok && !b->early.nothing) b->early.nothing = tl_keep(one.nothing);
    one.early = (struct bucket_parts){0};
    buckets_free(&one);
    return ok;
}

static void early_free(struct bucket_parts *early) {
    for (size_t i = 0; i < early->n; i++)
        if (early->at[i].own) tl_drop(early->at[i].own);
    if (early->nothing) tl_drop(early->nothing);
    memory_free(early->at);
    *early = (struct bucket_parts){0};
}

bool buckets_make(struct buckets *b, tl_module *model, tl_tensor **parameters, const int *kinds, int n,
                  const struct mesh_group *group, const struct buckets_options *options) {
    size_t bytes = (size_t)n * (sizeof *b->at + sizeof *b->members);
    enum sharding mode = options->mode;
    *b = (struct buckets){.early = b->early,
                          .group = *group,
                          .across = options->across,
                          .apart = options->apart,
                          .alone.size = 1,
                          .apart_kind = options->apart_kind,
                          .mode = mode,
                          .model = model,
                          .overlaps = options->overlaps,
                          .late_kind = options->late_kind,
                          .sums_in_f32 = options->sums_in_f32 && mode >= SHARDING_ZERO2,
                          .has_member_sums = options->sums_in_f32 && mode < SHARDING_ZERO2};
    b->at = memory_new((size_t)n * sizeof *b->at);
    b->members = memory_new((size_t)n * sizeof *b->members);
    if (!b->at || !b->members) return error_memory(bytes, "buckets of parameters");
    members_find(b, parameters, kinds, n);
    bool ok = flats_make(b) && (mode == SHARDING_NONE || blocks_watch(b));
    for (int i = 0; ok && i < n; i++)
        ok = tl_set_grad_hook(b->members[i].parameter, grad_arrived, &b->members[i], NULL);
    return ok;
}

void buckets_free(struct buckets *b) {
    if (!b->at || !b->members) b->n = 0;
    buckets_take(b);
    for (int i = 0; i < b->n; i++) {
        if (b->at[i].fetching) collective_abandon(b->at[i].fetching);
        if (b->at[i].own) tl_drop(b->at[i].own);
        if (b->at[i].flat) tl_drop(b->at[i].flat);
    }
    if (b->nothing) tl_drop(b->nothing);
    early_free(&b->early);
    if (b->watches) model_watch(b->model, NULL);
    memory_free(b->watches);
    memory_free(b->blocks);
    memory_free(b->at);
    memory_free(b->members);
    *b = (struct buckets){0};
}
