/* timeline.h: the optional list of what a process does and when: op calls, waiting, messages, saving. `tally train
 * --trace` writes it as a file (train/trace.h).
 *
 * While timeline_is_on, those who know what happens add a record; any thread may. Times of the host are nanoseconds of
 * the monotonic clock. A call has two spans: the host's, in which it was launched, and its device's, between two marks
 * (tensor/device.h). Marks become times of the host's clock while they are still kept, by their distance from the mark
 * before them; the first one is made when the device is idle. Marks of the host's own device are such times already.
 *
 * A list holds at most TIMELINE_MOST records until it is taken; what does not fit is counted. */
#ifndef TENSOR_TIMELINE_H
#define TENSOR_TIMELINE_H

#include "tensor/device.h"

enum { TIMELINE_MOST = 1 << 18, TIMELINE_TEXT = 104 };

enum timeline_kind {
    TIMELINE_OP,
    TIMELINE_WAIT,     /* of the thread that trains: for data, for messages */
    TIMELINE_WORK,     /* of that thread, besides ops: evaluation, saving */
    TIMELINE_MESSAGES, /* to and from other ranks, beside what that thread does */
};

struct timeline_record {
    enum timeline_kind kind;
    const char *name;       /* stays: an op's, or a literal */
    int64_t from_ns, to_ns; /* on the host */
    /* Of an op: on its device. From marks, which timeline_take replaces by times. */
    tl_device *device;
    int64_t began, ended;
    uint32_t path;
    uint8_t phase, dtype;
    char shapes[TIMELINE_TEXT]; /* "(8, 64) x (64, 256) -> (8, 256)"; "": it has none */
    uint64_t flops, bytes;
    const tl_device *holder;         /* of its results */
    uint64_t held[TL_PURPOSE_COUNT]; /* there, with the call's results and workspace */
};

extern bool timeline_is_on; /* the only cost when off is to look at it */

int64_t timeline_now(void); /* nanoseconds */
/* Starts, with an empty list. The device must be idle. False: no memory, recorded. */
bool timeline_begin(tl_device *device);
void timeline_add(const struct timeline_record *record);
/* A span from then (base/clock.h) until now. */
void timeline_span(enum timeline_kind kind, const char *name, double from_s);
/* What was added since the last call, *n records; they are valid until the next one is added. Waits for the device.
 * *n_lost: those that did not fit, or whose marks were lost. */
const struct timeline_record *timeline_take(size_t *n, uint64_t *n_lost);
void timeline_end(void); /* stops, and frees the list */

#endif
