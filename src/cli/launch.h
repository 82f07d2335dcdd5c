/* launch.h: what `tally launch` and its helpers, one beside each rank, say to each other.
 *
 *     tally launch ---- mpirun ---- helper of rank 0 ---- the program
 *          \                \------ helper of rank 1 ---- the program
 *           \---- a socket to every helper
 *
 * mpirun starts the helpers, since it knows how to bring its MPI library up. All else goes over the socket, so it is
 * the same for every library: the program's output and exit status, and signals. A helper that loses the launcher
 * kills its program, and the kernel kills the program of a helper that dies, so nothing outlives the launcher.
 */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include <stdint.h>

#define LAUNCH_SOCKET "TALLY_LAUNCH" /* environment variable: the name of the socket */

enum launch_kind {
    LAUNCH_HELLO,  /* helper: value is the rank */
    LAUNCH_LINE,   /* helper: a line of the program's stderr */
    LAUNCH_EXIT,   /* helper: value is the exit status, 128 + the signal's number after a signal */
    LAUNCH_SIGNAL, /* launcher: value is a signal for the program */
    LAUNCH_OUTPUT, /* launcher: value is 1, and stdin, stdout and stderr come with it, or 0: this rank has none */
};
enum { LAUNCH_TEXT = 2000 };
struct launch_packet {
    int32_t kind, value;
    char text[LAUNCH_TEXT];
};
enum { LAUNCH_HEAD = 8 };

/* The helper: runs a program, and says what becomes of it. Returns the exit code. */
int launch_helper(char **program);

#endif
