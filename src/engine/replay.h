/* replay.h: a pass that was asked for before, without asking for its calls again.
 *
 * Asking for a call takes the host microseconds, and a token of a language model has hundreds of calls, whose kernels
 * take no longer. A pass that would make the same calls on the same memory is therefore queued as a whole: the graph
 * that the device made of it (repeat_begin in tensor/device.h) is launched again, and billed what it was billed then.
 *
 * This is the one way past op_apply. It is taken only if
 *
 *   - the last time every call passed op_apply, and was compared with what the graph has for it;
 *   - the pool has the same blocks as when that pass began, so that the same requests would get the same addresses;
 *   - no ledger was opened or ended since then, and no peak restarted: the pass would raise no peak that it did not
 *     raise then;
 *   - nothing is on that looks at single calls: a profile, a timeline, a list of allocations.
 *
 * Every 100th time the pass is asked for all the same, and must cost what it cost before. The caller answers for what
 * is left: that the pass depends on `key` and on the contents of tensors that live on, and on nothing else. */
#ifndef ENGINE_REPLAY_H
#define ENGINE_REPLAY_H

#include "tensor/device.h"
#include "tensor/pool.h"

struct replay {
    tl_device *device;
    uint64_t key, graph;       /* graph: the device's number for it; 0: there is none */
    struct pool_layout blocks; /* when the pass began */
    tl_ledger *bill, *before;  /* of the pass; before: while one is asked for, what it must cost */
    uint64_t n_turns, peak_bytes;
    uint32_t path; /* of the caller */
    int n_left;    /* until it is asked for all the same */
    bool is_begun;
};

enum replay_state { REPLAY_FAILED, REPLAY_DONE, REPLAY_ASK };

/* REPLAY_DONE: the pass has been queued and billed. REPLAY_ASK: the caller makes the calls, and then calls replay_end
 * with whether they succeeded, which it returns. REPLAY_FAILED: recorded. */
enum replay_state replay_begin(struct replay *r, tl_device *device, uint64_t key);
bool replay_end(struct replay *r, bool ok);
void replay_free(struct replay *r);

#endif
