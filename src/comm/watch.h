/* watch.h: whether all processes of a launch are alive, in step, and calling the same collectives. */
#ifndef COMM_WATCH_H
#define COMM_WATCH_H

#include "comm/comm.h"

/* How a process ends that another one's failure ends; `tally --help` says it in words. */
enum { WATCH_EXIT = 7 };

/* A call that waits for other ranks. */
struct call {
    char op[24];
    uint64_t group, number;
    int64_t count;
    int32_t dtype, size, peer; /* of a pair: the world's rank; -1 */
};

/* Begins to watch; all ranks of the world call it, after their places are known. False: why is in `error`. */
bool watch_begin(tl_comm *world, char *error);

/* Around every call that waits for other ranks. All ranks of the group make it alike, unless it has a peer: then it is
 * between two ranks. peer -1: none. */
void watch_enter(tl_comm *comm, const char *op, tl_dtype dtype, int64_t count, int peer);
void watch_leave(tl_comm *comm);
/* The call that was entered last; and to wait, after other calls, for what it has begun, until watch_leave. */
struct call watch_call(void);
void watch_wait(const tl_comm *comm, const struct call *call);

/* A number that all members of a new group share, and that no other group has. All ranks of its parent call it. */
uint64_t watch_group_id(const tl_comm *parent, const int *ranks, int n);

#endif
