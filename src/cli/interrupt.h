/* Ctrl-C for commands that end early with what they have. */
#ifndef TALLY_CLI_INTERRUPT_H
#define TALLY_CLI_INTERRUPT_H

#include <signal.h>

/* Becomes nonzero at the first Ctrl-C after interrupt_catch. */
extern volatile sig_atomic_t is_interrupted;

/* A second Ctrl-C, a second or more after the first, ends the process at once. An earlier one is the same request:
 * timeout(1) signals its child and then the child's whole process group. */
void interrupt_catch(void);
/* Also SIGTERM and SIGHUP, unless the program was started to ignore them (nohup): for work that can be continued. */
void interrupt_catch_all(void);
void interrupt_release(void);

#endif
