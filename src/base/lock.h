/* lock.h: a lock for sections of a few nanoseconds (pool, ledger), where a mutex would cost more than the work. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <sched.h>
#include <stdatomic.h>

typedef struct lock { atomic_flag held; } lock;
#define LOCK_INIT {ATOMIC_FLAG_INIT}

static inline void lock_take(lock *l) {
    for (int spins = 0; atomic_flag_test_and_set_explicit(&l->held, memory_order_acquire); spins++)
        if (spins >= 64) sched_yield();
}

static inline void lock_release(lock *l) { atomic_flag_clear_explicit(&l->held, memory_order_release); }

#endif
