#include "base/process.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tally.h"

static int generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void) { generation++; }
static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

int process_generation(void) {
    pthread_once(&once, watch_forks);
    return generation;
}

uint64_t process_memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    uint64_t most;
    if (file && fscanf(file, "%" SCNu64, &most) == 1 && (bytes == 0 || most < bytes)) bytes = most;
    if (file) fclose(file);
    return bytes;
}

/* ---- Threads ---- */

static atomic_int threads_wanted;

/* Cores that this process may use: taskset and containers allow fewer than the machine has. */
static int cores_allowed(void) {
    cpu_set_t allowed;
    int n =
        sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n;
}

/* A forked child has no pool threads: it uses one thread. */
int process_threads(void) {
    static atomic_int machine;
    if (process_generation() > 0) return 1;
    int n = threads_wanted;
    if (n <= 0) n = machine;
    if (n > 0) return n;
    const char *wish = getenv("OMP_NUM_THREADS");
    n = wish ? atoi(wish) : 0;
    if (n <= 0) n = cores_allowed();
    machine = n;
    return n;
}

int tl_set_threads(int n_threads) {
    int before = process_threads();
    threads_wanted = n_threads > 0 ? n_threads : 0;
    return before;
}
