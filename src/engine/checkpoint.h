/* checkpoint.h: what selective checkpoints ask of op_apply. */
#ifndef ENGINE_CHECKPOINT_H
#define ENGINE_CHECKPOINT_H

#include "engine/op.h"

/* Inside a recomputation that kept this call's results: puts them into c->output and marks the call replayed. True
 * also when there is nothing to do; false: an error. */
bool keeper_replay(tl_call *c);
/* Inside a forward pass whose costly results are to be kept: keeps them. */
bool keeper_record(tl_call *c);

#endif
