/* profile.h: where the time of steps goes, by op and by module: the ledger's rows of timed steps, added up. */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H

#include <stddef.h>

#include "tally.h"

struct profile_row {
    char name[96];     /* an op; or a module's path with its numbers as "*", so that all layers are one */
    char module[96];   /* of rows by op and module; otherwise "" */
    const char *phase; /* "forward", "backward", ... */
    int dtype;         /* that rows by op and module compute in; otherwise TL_DTYPE_COUNT */
    uint64_t calls;    /* of ops that ran a kernel */
    double time_s, flops, bytes;
    double floor_s; /* the shortest time that so many FLOPs and bytes could take, if the profile has floors */
};

struct profile_list {
    struct profile_row *rows;
    size_t n, capacity;
};

struct profile {
    int64_t n_steps;
    double step_s;                    /* of all those steps, by the clock; time in no row is outside kernels */
    struct profile_list ops, modules; /* after profile_sort(): the longest first */
    struct profile_list rows;         /* by both, and by dtype */
    const char *floors;               /* whose peaks give floors; NULL: there are none */
};

/* Adds one step, which took so many seconds. The ledger must have been written while tl_set_profiling() was on.
 * False: recorded. */
bool profile_add(struct profile *p, const tl_ledger *step, double seconds);
void profile_sort(struct profile *p);
/* Billions per second; 0 for a row without time. */
static inline double profile_rate(double amount, double seconds) { return seconds > 0 ? amount / seconds / 1e9 : 0; }
/* Seconds inside kernels, and the sum of their floors. */
double profile_kernel_s(const struct profile *p);
double profile_floor_s(const struct profile *p);
/* Adds the floor of a row by op and module to it, and to those by op and by module that it is part of. */
void profile_floor_add(struct profile *p, struct profile_row *row, double seconds);
/* The rows of a step, schema tally.profile/1 (docs/training.md); free() it. NULL: recorded. */
char *profile_text(const struct profile *p, const tl_device *device);
void profile_free(struct profile *p); /* NULL allowed */

#endif
