/* lock.h: a spin lock for sections of a few nanoseconds (pool, ledger), where a mutex would cost more than the work.
 *
 * No lock is taken while the process has one thread, as glibc reports; locks would otherwise take a third of the
 * time of a small op.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/single_threaded.h>

typedef struct lock {
    atomic_flag flag;
    bool is_taken; /* by the thread inside; false when it came in alone */
} lock;
#define LOCK_INIT \
    { ATOMIC_FLAG_INIT, false }

static inline void lock_take(lock *l) {
    if (__libc_single_threaded) return;
    for (int spins = 0; atomic_flag_test_and_set_explicit(&l->flag, memory_order_acquire); spins++)
        if (spins >= 64) sched_yield();
    l->is_taken = true;
}

static inline void lock_release(lock *l) {
    if (!l->is_taken) return;
    l->is_taken = false;
    atomic_flag_clear_explicit(&l->flag, memory_order_release);
}

#endif
