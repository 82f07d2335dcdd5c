#include "base/process.h"

#include <pthread.h>

static int generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void) { generation++; }
static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

int process_generation(void) {
    pthread_once(&once, watch_forks);
    return generation;
}
