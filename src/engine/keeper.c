/* keeper.c: results of costly ops, kept in order and handed back in the same order. */
#include "engine/keeper.h"

#include "base/error.h"
#include "base/memory.h"
#include "engine/apply.h"
#include "engine/scope.h"

bool keeper_is_recording(void) {
    const struct keeper *k = thread_state()->keeper;
    return k && !k->is_replaying;
}

/* Stored after those that are kept, until the call has succeeded. */
bool keeper_prepare(const tl_call *c) {
    struct keeper *k = thread_state()->keeper;
    while (k->capacity < k->n_kept + (size_t)c->n_outputs)
        if (!memory_grow((void **)&k->kept, &k->capacity, k->capacity, sizeof *k->kept))
            return error_memory(k->capacity * sizeof *k->kept, "a checkpoint");
    for (int j = 0; j < c->n_outputs; j++) {
        struct kept *kept = &k->kept[k->n_kept + (size_t)j];
        kept->tensor = tensor_alias(c->output[j]);
        if (kept->tensor) continue;
        while (j-- > 0) tensor_drop(k->kept[k->n_kept + (size_t)j].tensor);
        return false;
    }
    return true;
}

void keeper_cancel(const tl_call *c) {
    const struct keeper *k = thread_state()->keeper;
    for (int j = 0; j < c->n_outputs; j++) tensor_drop(k->kept[k->n_kept + (size_t)j].tensor);
}

void keeper_commit(const tl_call *c) {
    struct keeper *k = thread_state()->keeper;
    for (int j = 0; j < c->n_outputs; j++) {
        struct kept *kept = &k->kept[k->n_kept++];
        kept->version = kept->tensor->storage->version;
        if (kept->tensor->storage->purpose == TL_TEMPORARY) storage_move(kept->tensor->storage, TL_ACTIVATION);
    }
}

bool keeper_replay(tl_call *c) {
    struct keeper *k = thread_state()->keeper;
    if (!k || !k->is_replaying) return true;
    struct kept *kept = k->kept + k->next;
    bool is_intact = true;
    for (int j = 0; j < c->n_outputs; j++) {
        tl_tensor *x = k->next + (size_t)j < k->n_kept ? kept[j].tensor : NULL;
        if (!x || !shape_equal(x->rank, x->shape, c->out[j].rank, c->out[j].shape) || x->dtype != c->out[j].dtype)
            return call_fail(c, "the function of a checkpoint did not do the same when it ran again");
        is_intact = is_intact && x->storage->version == kept[j].version;
    }
    k->next += (size_t)c->n_outputs;
    if (!is_intact) return true; /* changed in place after it was kept: the op runs again */
    for (int j = 0; j < c->n_outputs; j++) {
        c->output[j] = k->is_last ? kept[j].tensor : tensor_alias(kept[j].tensor);
        if (!c->output[j]) {
            while (j-- > 0) tensor_drop(c->output[j]);
            k->next -= (size_t)c->n_outputs;
            return false;
        }
        if (k->is_last) kept[j].tensor = NULL;
    }
    c->is_replayed = true;
    return true;
}

void keeper_replay_cancel(const tl_call *c) {
    struct keeper *k = thread_state()->keeper;
    if (!k || !k->is_replaying) return;
    k->next -= (size_t)c->n_outputs;
    for (int j = 0; c->is_replayed && j < c->n_outputs; j++) {
        if (k->is_last) k->kept[k->next + (size_t)j].tensor = c->output[j];
        else tensor_drop(c->output[j]);
    }
}

void keeper_clear(struct keeper *k) {
    for (size_t i = 0; i < k->n_kept; i++) tensor_drop(k->kept[i].tensor);
    memory_free(k->kept);
    *k = (struct keeper){0};
}
