/* clock.h: a monotonic clock in seconds, for measuring durations; hours and days in seconds. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <time.h>

#define HOUR_S 3600.0
#define DAY_S (24 * HOUR_S)

static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
