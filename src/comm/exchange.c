/* exchange.c: messages that are under way.
 *
 * MPI moves messages only while somebody calls it. So while a program computes, a thread asks for them, five thousand
 * times a second: often enough for a network, whose buffers hold more than what arrives in between, and too seldom to
 * take a core away from the program. Who waits for messages asks by itself, and more often. MPI is called by one thread
 * at a time.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "tensor/timeline.h"

struct exchange {
    tl_comm *comm;
    void *begun; /* the plugin's; NULL: done */
    bool has_failed;
    char error[COMM_ERROR];
    struct exchange *next; /* in the order in which they began */
};

enum { PAUSE_NS = 200000 };
static const double ABANDON_S = 5;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of MPI, and of all below */
static pthread_cond_t has_begun = PTHREAD_COND_INITIALIZER;
static struct exchange *first;
static bool has_thread, is_over;
static struct comm_times times;
static int n_busy;
static double busy_since;

/* ---- Seconds ---- */

static void busy_begin(double now) {
    if (n_busy++ == 0) busy_since = now;
}
static void busy_end(double now) {
    if (--n_busy) return;
    times.busy_s += now - busy_since;
    timeline_span(TIMELINE_MESSAGES, "messages under way", busy_since);
}

/* This process has waited since then. */
static void exposed_add(double before) {
    times.exposed_s += now_s() - before;
    timeline_span(TIMELINE_WAIT, "wait for messages", before);
}

struct comm_times comm_times(void) {
    pthread_mutex_lock(&lock);
    struct comm_times sum = times;
    if (n_busy) sum.busy_s += now_s() - busy_since;
    pthread_mutex_unlock(&lock);
    return sum;
}

struct comm_times comm_times_since(const struct comm_times *before) {
    struct comm_times now = comm_times();
    return (struct comm_times){now.busy_s - before->busy_s, now.exposed_s - before->exposed_s};
}

void comm_times_add(double busy_s, double exposed_s) {
    pthread_mutex_lock(&lock);
    times.busy_s += busy_s;
    times.exposed_s += exposed_s;
    pthread_mutex_unlock(&lock);
}

/* ---- Moving on, with the lock held ---- */

static void list_remove(const struct exchange *x) {
    struct exchange **at = &first;
    while (*at && *at != x) at = &(*at)->next;
    if (*at) *at = x->next;
}

static void test(struct exchange *x) {
    bool is_done = false;
    if (!x->begun) return;
    x->has_failed = !x->comm->functions->test(x->begun, &is_done, x->error);
    if (!is_done && !x->has_failed) return;
    x->begun = NULL;
    list_remove(x);
    busy_end(now_s());
}

static void *mover_run(void *unused) {
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* or pauses would be half as long again */
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!first) pthread_cond_wait(&has_begun, &lock);
        for (struct exchange *x = first, *next; x; x = next) next = x->next, test(x);
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return NULL;
}

/* No message is moved after this, so that the plugin can end MPI. */
static void mover_stop(void) {
    pthread_mutex_lock(&lock);
    is_over = true;
    first = NULL;
    pthread_mutex_unlock(&lock);
}

/* Without the thread, messages move when somebody waits for them. */
static void mover_start(void) {
    if (has_thread) return;
    has_thread = true;
    pthread_t thread;
    if (thread_begin(&thread, mover_run, NULL) == 0) pthread_detach(thread);
    atexit(mover_stop);
}

/* Waits without keeping a core from other ranks: where there are more ranks than cores, spinning takes the time of
 * those that are waited for. */
static void wait_for(struct exchange *x) {
    for (int round = 0; x->begun && !is_over; round++) {
        test(x);
        if (!x->begun || round < 200) continue;
        pthread_mutex_unlock(&lock);
        if (round < 2000) sched_yield();
        else nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        pthread_mutex_lock(&lock);
    }
}

/* ---- Calls ---- */

void comm_lock(void) { pthread_mutex_lock(&lock); }
void comm_unlock(void) { pthread_mutex_unlock(&lock); }

static bool begin(struct exchange *x, tl_comm *comm, const struct message *messages, int n, double now, char *error) {
    *x = (struct exchange){.comm = comm};
    if (n == 0) return true;
    if (!comm->functions->begin(comm, messages, n, &x->begun, error)) return false;
    busy_begin(now);
    return true;
}

static bool end(struct exchange *x, char *error) {
    wait_for(x);
    if (x->has_failed) memcpy(error, x->error, COMM_ERROR);
    return !x->has_failed;
}

bool comm_exchange(tl_comm *comm, const struct message *messages, int n, char *error) {
    struct exchange x;
    double before = now_s();
    pthread_mutex_lock(&lock);
    bool ok = begin(&x, comm, messages, n, before, error) && end(&x, error);
    exposed_add(before);
    pthread_mutex_unlock(&lock);
    return ok;
}

struct exchange *comm_begin(tl_comm *comm, const struct message *messages, int n, char *error) {
    struct exchange *x = memory_new(sizeof *x);
    if (!x) return snprintf(error, COMM_ERROR, "out of memory for messages"), NULL;
    double before = now_s();
    pthread_mutex_lock(&lock);
    bool ok = begin(x, comm, messages, n, before, error);
    if (ok && x->begun) {
        struct exchange **last = &first;
        while (*last) last = &(*last)->next;
        *last = x;
        mover_start();
        pthread_cond_signal(&has_begun);
    }
    exposed_add(before);
    pthread_mutex_unlock(&lock);
    if (ok) return x;
    memory_free(x);
    return NULL;
}

bool comm_is_done(const struct exchange *x) {
    pthread_mutex_lock(&lock);
    bool is_done = !x->begun;
    pthread_mutex_unlock(&lock);
    return is_done;
}

bool comm_abandon(struct exchange *x) {
    double before = now_s();
    bool is_done = false;
    while (!is_done && now_s() - before < ABANDON_S) {
        pthread_mutex_lock(&lock);
        test(x);
        is_done = !x->begun;
        pthread_mutex_unlock(&lock);
        if (!is_done) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    if (is_done) memory_free(x);
    return is_done;
}

bool comm_end(struct exchange *x, char *error) {
    double before = now_s();
    pthread_mutex_lock(&lock);
    bool ok = end(x, error);
    exposed_add(before);
    pthread_mutex_unlock(&lock);
    memory_free(x);
    return ok;
}
