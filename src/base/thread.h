/* thread.h: starting a thread of the library's own. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that gets no signals: those are for the program's own threads. Returns 0, or why not, as errno has
 * it. */
int thread_begin(pthread_t *thread, void *(*main)(void *), void *argument);
/* Records that a thread could not be started; `who` stands before it, "loader: " or "". Returns false. */
bool thread_refused(const char *who, int reason);

#endif
