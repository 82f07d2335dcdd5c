/* scope.h: the state of a thread: what its scopes own, where it is, how its ops are recorded and billed. */
#ifndef ENGINE_SCOPE_H
#define ENGINE_SCOPE_H

#include "tensor/tensor.h"

struct keeper;      /* engine/keeper.h */
struct leaf_list;   /* engine/graph.h */
struct ledger_list; /* account/ledger.h */

struct scope_frame {
    size_t first; /* its tensors begin here */
    uint32_t serial, path_before;
};

struct thread_state {
    tl_tensor **owned; /* of all open scopes, innermost last */
    size_t n_owned, owned_capacity;
    struct scope_frame *frames;
    size_t n_frames, frame_capacity;
    uint32_t serial;
    uint32_t path;
    tl_phase phase;
    bool grad_off;    /* zero is the default: recording */
    uint8_t autocast; /* the dtype of products, + 1; 0: off (engine/autocast.h) */
    bool is_set_up;
    tl_device *device;
    tl_generator generator;
    uint32_t draw_part, draw_others; /* this thread's part of what is drawn, and how many others have (ops/draw.h) */
    struct keeper *keeper;
    struct leaf_list *reads; /* a checkpoint's forward pass records the leaves it reads; NULL: not in a checkpoint */
    struct ledger_list *held_bills; /* calls that are part of another are billed with it; NULL: at once */
};

/* The calling thread's. Not of the initial-exec model, though that would be faster: static TLS is scarce, and
 * beside PyTorch the library would not load. */
extern _Thread_local struct thread_state thread_state_here;
void thread_state_set_up(void);
static inline struct thread_state *thread_state(void) {
    if (!thread_state_here.is_set_up) thread_state_set_up();
    return &thread_state_here;
}

/* Makes room, so that the next scope_own cannot fail. False: no memory, recorded. */
bool scope_reserve(size_t n);
/* Gives a reference to the innermost scope. */
tl_tensor *scope_own(tl_tensor *x);
/* The same with room made on the spot; drops x when there is none. NULL stays NULL. */
tl_tensor *scope_adopt(tl_tensor *x);
/* Drops the thread's tensors beyond the first n, which a failed call has given to the innermost scope. */
void scope_drop_to(size_t n);

#endif
