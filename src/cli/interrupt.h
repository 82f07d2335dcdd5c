/* Ctrl-C for commands that end early with what they have. */
#ifndef TALLY_CLI_INTERRUPT_H
#define TALLY_CLI_INTERRUPT_H

#include <signal.h>

/* Becomes nonzero at the first Ctrl-C after interrupt_catch. */
extern volatile sig_atomic_t is_interrupted;

/* A second Ctrl-C, half a second or more after the first, ends the process at once. An earlier one is the same request:
 * timeout(1) signals its child and then the child's whole process group. */
void interrupt_catch(void);
/* Also SIGTERM and SIGHUP, unless the program was started to ignore them (nohup): for work that can be continued. */
void interrupt_catch_all(void);
/* For a run that saves before it ends: also SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU, unless the program was started to
 * ignore them. The first Ctrl-C says `words` on stderr at once (NULL: nothing), since a step may take long. Only a
 * second Ctrl-C ends the process: a scheduler may repeat the others. A second call only changes the words: a signal
 * that came before it still counts. */
void interrupt_catch_run(const char *words);
void interrupt_release(void);

#endif
