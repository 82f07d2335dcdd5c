/* scratch.h: a thread's arena for what its kernels need while they run.
 *
 * Blocks of operands, sums that wait and rows that are converted lie here and not on the stack, which a program may have made small
 * (OMP_STACKSIZE, Python's threading.stack_size, ulimit -s): no frame of ours is larger than 16 KiB, which the compiler checks
 * (-Wframe-larger-than). Memory is taken and left in the order of a stack, so both cost a few instructions. Every thread that runs a
 * kernel has one arena of a fixed size, made at its first kernel and freed with the thread; as with a stack, only pages that were used
 * are there. Like the stack it is no part of the ledger: how many threads run a kernel is no part of its price. */
#ifndef BASE_SCRATCH_H
#define BASE_SCRATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { SCRATCH_BYTES = 1 << 20, SCRATCH_ALIGN = 64 };

/* Makes this thread's arena if it has none. False: no memory; nothing is recorded. After true, scratch_take cannot fail, as long as what
 * is taken at a time fits into the arena. */
bool scratch_ready(void);
/* The same for a thread that helps another one and may as well not. It comes when the scheduler wants it to, so it is no request that
 * tl_fail_allocation counts; tests refuse it by scratch_is_refused. */
bool scratch_ready_to_help(void);

/* Aligned to 64 bytes; contents undefined. More than the arena has is a broken invariant. */
void *scratch_take(size_t bytes) __attribute__((malloc, returns_nonnull, assume_aligned(64), alloc_size(1)));
/* What `place` points to was taken last. */
void scratch_leave(const void *place);
/* The most that this thread had taken at any time. */
size_t scratch_peak(void);

/* A variable, or n of them, that go at the end of the block they are declared in. */
#define SCRATCH(type, name) type *const name __attribute__((cleanup(scratch_leave))) = scratch_take(sizeof(type))
#define SCRATCH_ARRAY(type, name, n) \
    type *const name __attribute__((cleanup(scratch_leave))) = scratch_take((size_t)(n) * sizeof(type))

/* For tests: no thread gets an arena while it is set. */
extern atomic_bool scratch_is_refused;

#endif
