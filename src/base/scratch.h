/* scratch.h: a thread's arena for the buffers of its kernels.
 *
 * Blocks of operands, partial sums and converted rows are here and not on the stack, which a program may have made
 * small (OMP_STACKSIZE, Python's threading.stack_size, ulimit -s). No frame is larger than 16 KiB; the compiler
 * checks this (-Wframe-larger-than). Memory is allocated and freed in stack order, which costs a few instructions.
 * Every thread that runs a kernel has one arena of fixed size, created at its first kernel and freed with the
 * thread; as with a stack, only touched pages take memory. Like the stack it is not in the ledger: the number of
 * threads is not part of a price. */
#ifndef BASE_SCRATCH_H
#define BASE_SCRATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { SCRATCH_BYTES = 1 << 20, SCRATCH_ALIGN = 64 };

/* Makes this thread's arena if it has none. False: no memory; nothing is recorded. After true, scratch_take cannot
 * fail, as long as what is taken at a time fits into the arena. */
bool scratch_ready(void);
/* The same for a helper thread, which is optional. Its timing depends on the scheduler, so tl_fail_allocation does
 * not count it; tests make it fail with scratch_is_refused. */
bool scratch_ready_to_help(void);

/* Aligned to 64 bytes; contents undefined. More than the arena has is a broken invariant. */
void *scratch_take(size_t bytes) __attribute__((malloc, returns_nonnull, assume_aligned(64), alloc_size(1)));
/* Frees the block allocated last, at `place`. */
void scratch_leave(const void *place);
/* The most that this thread had taken at any time. */
size_t scratch_peak(void);

/* A variable, or n of them, freed at the end of the enclosing block. */
#define SCRATCH(type, name) type *const name __attribute__((cleanup(scratch_leave))) = scratch_take(sizeof(type))
#define SCRATCH_ARRAY(type, name, n) \
    type *const name __attribute__((cleanup(scratch_leave))) = scratch_take((size_t)(n) * sizeof(type))

/* For tests: no thread gets an arena while it is set. */
extern atomic_bool scratch_is_refused;

#endif
