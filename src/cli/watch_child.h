/* watch_child.h: `tally watch` as a child of `tally train --watch`. It is a process of its own, so a browser cannot
 * disturb the run, and it ends when its parent does, however that ends: its standard input is a pipe from there. */
#ifndef CLI_WATCH_CHILD_H
#define CLI_WATCH_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct watch_child {
    pid_t pid; /* 0: there is none */
    int hold;  /* the pipe's end that keeps it alive */
    char address[256];
};

/* Whether this build has a server (cmd_watch.c). False: said, by that command. */
bool watch_is_possible(const char *command);
/* Starts it and waits for its address, for a few seconds. False: it has said why, and the run goes on. port 0: any. */
bool watch_child_start(struct watch_child *w, const char *run, int64_t port);
void watch_child_end(struct watch_child *w);

#endif
