/* keeper.h: what selective checkpoints ask of op_apply. */
#ifndef ENGINE_KEEPER_H
#define ENGINE_KEEPER_H

#include "spec/op.h"

/* Inside a recomputation that kept this call's results: puts them into c->output and marks the call replayed. True
 * also when there is nothing to do; false: an error. */
bool keeper_replay(tl_call *c);
/* A call that fails afterwards gives them back. */
void keeper_replay_cancel(const tl_call *c);

/* Inside a forward pass whose costly results are to be kept: room is made before the kernel, then they are kept, or
 * not. */
bool keeper_is_recording(void);
bool keeper_prepare(const tl_call *c);
void keeper_commit(const tl_call *c);
void keeper_cancel(const tl_call *c);

#endif
