/* ranks.h: a test program as several processes, under an MPI launcher. */
#ifndef SUPPORT_RANKS_H
#define SUPPORT_RANKS_H

#include <stdbool.h>

enum launcher { OPEN_MPI, MPICH };

/* Whether this program can start itself: the launcher starts processes, and its plugin is there, in the folder above
 * the program's. Builds with sanitizers have none. */
bool ranks_can_start(enum launcher launcher, const char *program);
/* How long processes that must come to their end may take: they hang if they take longer. They need a fraction of it
 * also on a machine that is several times busier than one with free cores. */
enum { RANKS_SECONDS = 600 };
/* The beginning of a shell command that starts n processes, with one thread each, and kills them after some seconds:
 * "OMP_NUM_THREADS=1 timeout ...". In memory that the next call writes again. */
const char *ranks_start(enum launcher launcher, int n, int seconds);
/* Starts n processes of a command line and waits for them. 0, or what system() says. */
int ranks_run(enum launcher launcher, int n, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
