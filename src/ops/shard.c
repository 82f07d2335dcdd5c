#include "ops/shard.h"

#include <string.h>

#include "engine/scope.h"
#include "tensor/tensor.h"

void shard_range(int64_t size, int n, int index, int64_t *from, int64_t *to) {
    int64_t each = size / n, more = size % n;
    *from = each * index + (index < more ? index : more);
    *to = *from + each + (index < more);
}

void shard_whole_shape(const tl_shard *s, const tl_tensor *part, int64_t shape[TL_MAX_RANK]) {
    memcpy(shape, part->shape, (size_t)part->rank * sizeof *shape);
    if (s) shape[s->axis] = s->n_blocks * s->size;
}

/* x with its axis as two, (blocks, elements of a block), in front of the others: (blocks, elements, ...); and back. */
static tl_tensor *axis_unfold(const tl_shard *s, tl_tensor *x) {
    if (!x) return NULL;
    int64_t shape[TL_MAX_RANK + 1];
    int n = 0;
    for (int i = 0; i < x->rank; i++) {
        if (i == s->axis) shape[n++] = s->n_blocks;
        shape[n++] = i == s->axis ? x->shape[i] / s->n_blocks : x->shape[i];
    }
    return tl_view(x, n, shape);
}
static tl_tensor *axis_fold(const tl_shard *s, tl_tensor *x) {
    if (!x) return NULL;
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < x->rank - 1; i++)
        shape[i] = i < s->axis ? x->shape[i] : i > s->axis ? x->shape[i + 1] : x->shape[i] * x->shape[i + 1];
    return tl_reshape(x, x->rank - 1, shape);
}

tl_tensor *shard_cut(const tl_shard *s, tl_tensor *whole) {
    if (!s || !whole) return whole;
    return axis_fold(s, tl_slice(axis_unfold(s, whole), s->axis + 1, s->from, s->to, 1));
}

/* All parts, one after another, each as long as the longest: (ranks, ..., blocks, elements, ...). */
static tl_tensor *parts_gather(const tl_shard *s, tl_tensor *part, int64_t longest) {
    const int64_t zeros[TL_MAX_RANK] = {0};
    int64_t after[TL_MAX_RANK] = {0}, shape[TL_MAX_RANK + 1] = {tl_comm_size(s->group)};
    tl_tensor *x = axis_unfold(s, part);
    if (!x) return NULL;
    after[s->axis + 1] = longest - x->shape[s->axis + 1];
    if (after[s->axis + 1]) x = tl_pad(x, zeros, after, TL_PAD_CONSTANT, 0);
    if (!x) return NULL;
    const int rank = x->rank;
    memcpy(shape + 1, x->shape, (size_t)rank * sizeof *shape);
    x = tl_all_gather(x, s->group);
    return x ? tl_view(x, rank + 1, shape) : NULL;
}

/* Puts part `index` where it belongs in `whole`, whose axis is unfolded. */
static bool part_put(const tl_shard *s, tl_tensor *whole, tl_tensor *parts, int index) {
    int64_t from, to;
    shard_range(s->size, tl_comm_size(s->group) / s->n_copies, index, &from, &to);
    tl_tensor *place = tl_slice(whole, s->axis + 1, from, to, 1);
    tl_tensor *part = place ? tl_select(parts, 0, index * s->n_copies) : NULL;
    part = part ? tl_slice(part, s->axis + 1, 0, to - from, 1) : NULL;
    return part && tl_copy_(place, part);
}

tl_tensor *shard_gather(const tl_shard *s, tl_tensor *part) {
    if (!s || !part) return part;
    const int n = tl_comm_size(s->group) / s->n_copies;
    int64_t shape[TL_MAX_RANK];
    shard_whole_shape(s, part, shape);
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    bool mode = tl_set_grad_mode(false);
    tl_tensor *whole = parts_gather(s, part, (s->size + n - 1) / n);
    if (whole && s->axis == 0 && s->n_blocks == 1 && s->n_copies == 1 && s->size % n == 0) {
        whole = tl_view(whole, part->rank, shape); /* they lie there as the whole has them */
    } else if (whole) {
        tl_tensor *parts = whole;
        whole = tl_empty(part->rank, shape, part->dtype, part->storage->device);
        tl_tensor *unfolded = axis_unfold(s, whole);
        for (int i = 0; unfolded && i < n; i++)
            if (!part_put(s, unfolded, parts, i)) unfolded = NULL;
        if (!unfolded) whole = NULL;
    }
    tl_set_grad_mode(mode);
    return tl_scope_return(scope, whole);
}
