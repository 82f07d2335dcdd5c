#include "base/process.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

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
