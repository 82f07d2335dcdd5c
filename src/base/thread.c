#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

int thread_begin(pthread_t *thread, void *(*main)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int reason = memory_fault() ? ENOMEM : pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reason;
}

bool thread_refused(const char *who, int reason) {
    if (reason == ENOMEM) return error_set(TL_ERROR_MEMORY, "%sno thread can be started: %s", who, strerror(reason));
    return error_set(TL_ERROR_SYSTEM, "%sno thread can be started: %s (`ulimit -u` shows the limit)", who,
                     strerror(reason));
}
