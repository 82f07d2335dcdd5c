/* parallel.c: fixed ranges over OpenMP.
 *
 * Every thread has a share of neighbouring ranges and takes them in turn. So it walks through memory in one
 * direction, and its caches still hold data of the previous call. A thread that is done helps the others: on a shared
 * machine the slowest core would otherwise set the pace. Which thread runs a range does not affect its result.
 *
 * Scratch. Bodies take memory from their thread's arena (base/scratch.h). It is made here where a thread has none;
 * without memory for it the thread takes no range. The calling thread's is made before any kernel, where an op can
 * still fail (engine/apply.c).
 *
 * Fork. OpenMP's worker threads do not exist in a forked child, and libgomp waits for them forever. So the first use
 * registers a handler, and a child that came after it never asks OpenMP for threads.
 *
 * Refusal. libgomp ends the process, the host's too, when the system refuses it a thread. So before a thread's team
 * becomes larger than it ever was, as many threads are started and ended here; if that fails, the team is as large as
 * the system allows, and the results are the same.
 */
#include "device/cpu/shared/parallel.h"

#include "base/scratch.h"

#include <stdbool.h>

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#endif

enum { GRAIN_WORK = 16384, STREAMS_A_THREAD = 2 };

int64_t parallel_grain(int64_t item_work) {
    return item_work >= GRAIN_WORK ? 1 : GRAIN_WORK / (item_work < 1 ? 1 : item_work);
}

int64_t parallel_stream_grain(int64_t n_items, int n_threads) {
    const int64_t streams = (n_threads < 1 ? 1 : n_threads) * (int64_t)STREAMS_A_THREAD;
    return n_items / GRAIN_WORK <= streams ? GRAIN_WORK : n_items / streams / GRAIN_WORK * GRAIN_WORK;
}

static void run_range(int64_t n_items, int64_t grain, int64_t range, parallel_body body, void *context) {
    const int64_t first = range * grain;
    body(context, first, n_items - first < grain ? n_items : first + grain);
}

#ifdef _OPENMP
static bool is_forked_child; /* written only in the child, while it has one thread */

static void note_fork(void) { is_forked_child = true; }

static void watch_fork(void) { pthread_atfork(NULL, NULL, note_fork); }

static bool may_use_threads(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_fork);
    return !is_forked_child && !omp_in_parallel();
}
#endif

#ifdef _OPENMP
struct trial {
    pthread_mutex_t wait; /* held by the caller, so that all exist at once */
};

static void *trial_main(void *context) {
    struct trial *t = context;
    pthread_mutex_lock(&t->wait);
    pthread_mutex_unlock(&t->wait);
    return NULL;
}

/* How many threads the system starts beside this one, at most `n`; *reason: why not more. */
static int trial_run(int n, int *reason) {
    enum { MOST = 1024 };
    pthread_t threads[MOST];
    struct trial t = {PTHREAD_MUTEX_INITIALIZER};
    int started = 0;
    *reason = 0;
    if (n > MOST) n = MOST;
    pthread_mutex_lock(&t.wait);
    while (started < n && !(*reason = pthread_create(&threads[started], NULL, trial_main, &t))) started++;
    pthread_mutex_unlock(&t.wait);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* a thread that has ended still counts for a moment */
    return started;
}

/* The team size of this thread, at most `team`: each calling thread has its own workers. */
static int team_allowed(int team) {
    static _Thread_local int allowed = 1,
                             refused = 1 << 30; /* teams of this size work; those from `refused` on do not */
    if (team > allowed && allowed + 1 < refused) {
        int reason, wanted = team < refused ? team : refused - 1;
        allowed = 1 + trial_run(wanted - 1, &reason);
        if (allowed < wanted) refused = allowed + 1;
        if (reason)
            log_line("threads: the system starts %d of %d (%s): these do the work (`ulimit -u`)", allowed, wanted,
                     strerror(reason));
    }
    return team < allowed ? team : allowed;
}

enum { MOST_SHARES = 64 };
struct share {
    _Alignas(64) atomic_llong next; /* a separate cache line: threads access it all the time */
    long long end;
};

static void run_shares(int64_t n_items, int64_t grain, int64_t n_ranges, int team, parallel_body body, void *context) {
    struct share shares[MOST_SHARES];
    const int n = team < MOST_SHARES ? team : MOST_SHARES;
    for (int i = 0; i < n; i++) {
        atomic_init(&shares[i].next, n_ranges * i / n);
        shares[i].end = n_ranges * (i + 1) / n;
    }
#pragma omp parallel num_threads(team)
    if (omp_get_thread_num() == 0 || scratch_ready_to_help()) { /* the others take over the share of one that cannot */
        const int mine = omp_get_thread_num();
        for (int k = 0; k < n; k++) {
            struct share *share = &shares[(mine + k) % n];
            long long range;
            while ((range = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end)
                run_range(n_items, grain, range, body, context);
        }
    }
}
#endif

void parallel_for(int64_t n_items, int64_t grain, int n_threads, parallel_body body, void *context) {
    if (n_items <= 0) return;
    const int64_t n_ranges = (n_items - 1) / grain + 1;

#ifdef _OPENMP
    if (n_threads > 1 && n_ranges > 1 && may_use_threads()) {
        const int most = team_allowed(n_threads), team = n_ranges < most ? (int)n_ranges : most;
        if (team > 1) {
            run_shares(n_items, grain, n_ranges, team, body, context);
            return;
        }
    }
#else
    (void)n_threads;
#endif

    for (int64_t range = 0; range < n_ranges; range++) run_range(n_items, grain, range, body, context);
}
