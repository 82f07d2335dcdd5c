/* ranks.h: a test program as several processes, under an MPI launcher. */
#ifndef SUPPORT_RANKS_H
#define SUPPORT_RANKS_H

#include <stdbool.h>

enum launcher { OPEN_MPI, MPICH };

/* Whether this program can start itself: the launcher starts processes, and its plugin is there, in the folder above
 * the program's. Builds with sanitizers have none. */
bool ranks_can_start(enum launcher launcher, const char *program);
/* The beginning of a shell command that starts n processes, with one thread each: "OMP_NUM_THREADS=1 timeout ...". The
 * option of timeout(1) says how long they may take. In memory that the next call writes again. */
const char *ranks_start(enum launcher launcher, int n, const char *timeout);
/* Starts n processes of a command line and waits for them. 0, or what system() says. */
int ranks_run(enum launcher launcher, int n, const char *timeout, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
