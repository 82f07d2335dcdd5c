/* refs.h: reference counts.
 *
 * The last holder need not decrement: if the count is 1 and belongs to the caller, no other thread can increase it.
 * A load costs a tenth of an atomic subtraction, and most objects of an op call die this way. While the process has
 * one thread (see lock.h), no count changes atomically.
 */
#ifndef BASE_REFS_H
#define BASE_REFS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/single_threaded.h>

static inline void refs_keep(atomic_int *refs) {
    if (__libc_single_threaded)
        atomic_store_explicit(refs, atomic_load_explicit(refs, memory_order_relaxed) + 1, memory_order_relaxed);
    else atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);
}

/* True when that was the last one. */
static inline bool refs_drop(atomic_int *refs) {
    const int n = atomic_load_explicit(refs, memory_order_acquire);
    if (n == 1) return true;
    if (__libc_single_threaded) {
        atomic_store_explicit(refs, n - 1, memory_order_relaxed);
        return false;
    }
    return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

#endif
