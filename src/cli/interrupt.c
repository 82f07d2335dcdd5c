#include "cli/interrupt.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAME_REQUEST_S 0.5

volatile sig_atomic_t is_interrupted;
static struct timespec first;
static const char *told; /* at the first Ctrl-C */
static bool only_interrupts_end;

/* Only async-signal-safe calls. */
static void on_interrupt(int signal_number) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!is_interrupted) {
        is_interrupted = signal_number;
        first = now;
        if (told && signal_number == SIGINT) (void)!write(STDERR_FILENO, told, strlen(told));
        return;
    }
    if (only_interrupts_end && signal_number != SIGINT) return;
    double since_s = (double)(now.tv_sec - first.tv_sec) + 1e-9 * (double)(now.tv_nsec - first.tv_nsec);
    if (since_s < SAME_REQUEST_S) return;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void interrupt_catch(void) {
    const struct sigaction action = {.sa_handler = on_interrupt};
    is_interrupted = 0;
    sigaction(SIGINT, &action, NULL);
}

/* What the program was started to ignore (nohup) it ignores. */
static void catch_unless_ignored(const int *signals, int n, int flags) {
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = flags};
    for (int i = 0; i < n; i++) {
        struct sigaction before;
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

void interrupt_catch_all(void) {
    static const int others[] = {SIGTERM, SIGHUP};
    interrupt_catch();
    catch_unless_ignored(others, 2, 0);
}

void interrupt_catch_run(const char *words) {
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU};
    told = words;
    only_interrupts_end = true;
    catch_unless_ignored(caught, 5, SA_RESTART);
}

/* After a Ctrl-C the program is about to end and says so: the handler stays, so that more of the same request do not
 * cut that off. */
void interrupt_release(void) {
    if (!is_interrupted) signal(SIGINT, SIG_DFL);
}
