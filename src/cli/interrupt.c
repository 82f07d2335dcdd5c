#include "cli/interrupt.h"

#include <time.h>

#define SAME_REQUEST_S 1.0

volatile sig_atomic_t is_interrupted;
static struct timespec first;

/* Only async-signal-safe calls. */
static void on_interrupt(int signal_number) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!is_interrupted) {
        is_interrupted = signal_number;
        first = now;
        return;
    }
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

void interrupt_catch_all(void) {
    static const int others[] = {SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = on_interrupt};
    interrupt_catch();
    for (int i = 0; i < 2; i++) {
        struct sigaction before;
        if (sigaction(others[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(others[i], &action, NULL);
    }
}

void interrupt_release(void) { signal(SIGINT, SIG_DFL); }
