/* repeat.h: calls that repeat are queued together, as a CUDA graph.
 *
 * Queueing a kernel takes the host several microseconds, so a small model's step takes longer to ask for than to
 * compute. Between repeat_begin and repeat_end (tensor/device.h) calls are expected to be those of an earlier pair, and
 * are taped:
 *
 *   the first time     a call is queued at once, and a copy of it is put on the tape
 *   from then on       a call that is the next one on the tape is held back. What is held back is queued when anything
 *                      else uses the stream (a copy, a fetch, an event, repeat_end): as one graph, which is captured
 *                      from the tape when it is first needed
 *   if a call differs  what is held back is queued call by call, and the rest of the tape is made anew
 *
 * A call is the next one on the tape if its kernel, its operands' dtypes, shapes and strides, and the sizes of its
 * attributes and workspace are the same. Addresses and attributes (seeds, learning rates) may differ: such a call is
 * captured alone, and its nodes in the graph get the parameters of those. There may be several graphs, of calls with
 * other addresses each (pool_order keeps them few); the one that needs the fewest changes is taken.
 *
 * So this is no second way to run an op. Every call still passes op_apply, which bills it, and every call is compared
 * before it is queued: the graph that runs has the kernels, addresses and numbers of the calls that were billed.
 *
 * All functions but those of the device need cuda_run_lock.
 */
#ifndef CUDA_REPEAT_H
#define CUDA_REPEAT_H

#include "device/cuda/shared/state.h"

/* Device functions. */
struct device_repeat;
void cuda_repeat_begin(tl_device *device);
bool cuda_repeat_end(tl_device *device, struct device_repeat *report, char *error);
bool cuda_repeat_again(tl_device *device, uint64_t again, char *error);

/* Whether a call is held back; otherwise the caller runs it now. False with *ok false: what was held back failed, and
 * `args->error` says why. */
bool repeat_holds(struct cuda_state *state, const tl_kernel_args *args, tl_kernel kernel, bool *ok);
/* The call failed that repeat_holds left to the caller: the tape ends. */
void repeat_spoil(struct cuda_state *state);
/* Queues what is held back. */
bool repeat_settle(struct cuda_state *state, char *error);

#endif
