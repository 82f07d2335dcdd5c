/* keeper.h: selective checkpoints.
 *
 * A keeper keeps the results of costly ops in the forward pass, in order, and in the recomputation
 * (autograd/recompute.c) hands them back to op_apply instead of running the ops again. */
#ifndef ENGINE_KEEPER_H
#define ENGINE_KEEPER_H

#include "spec/op.h"

struct kept {
    tl_tensor *tensor;
    uint64_t version; /* of its storage when it was kept */
};

struct keeper { /* thread_state()->keeper */
    struct kept *kept;
    size_t n_kept, capacity, next;
    bool is_replaying, is_last; /* is_last: these are not needed again */
};
void keeper_clear(struct keeper *k);

/* Inside a recomputation that kept this call's results: puts them into c->output and marks the call replayed. True
 * also when there is nothing to do; false: an error. */
bool keeper_replay(tl_call *c);
/* Undoes that for a call that fails afterwards. */
void keeper_replay_cancel(const tl_call *c);

/* Inside a forward pass whose costly results are to be kept: room is made before the kernel, then they are kept, or
 * not. */
bool keeper_is_recording(void);
bool keeper_prepare(const tl_call *c);
void keeper_commit(const tl_call *c);
void keeper_cancel(const tl_call *c);

#endif
