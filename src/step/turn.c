#include "step/turn.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/error.h"
#include "step/settings.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_over = PTHREAD_COND_INITIALIZER;
static struct {
    pid_t process;
    pthread_t owner;
    int depth; /* how often its owner has taken it; 0: not taken */
    bool is_run;
    char run[SETTING_TEXT];
} turn;

static bool is_free(void) { return turn.depth == 0 || turn.process != getpid(); }
static bool is_ours(void) { return !is_free() && pthread_equal(turn.owner, pthread_self()); }

bool turn_take(const char *run) {
    bool ok = true;
    char other[SETTING_TEXT] = "";
    pthread_mutex_lock(&lock);
    while (!is_free() && !is_ours() && !turn.is_run) pthread_cond_wait(&is_over, &lock);
    if (is_free()) turn.depth = 0, turn.is_run = false;
    if (turn.is_run && (run || !is_ours())) {
        ok = false;
        snprintf(other, sizeof other, "%s", turn.run);
    } else {
        turn.process = getpid();
        turn.owner = pthread_self();
        turn.depth++;
        turn.is_run = turn.is_run || run;
        if (run) snprintf(turn.run, sizeof turn.run, "%s", run);
    }
    pthread_mutex_unlock(&lock);
    return ok || error_set(TL_ERROR_USE,
                           "%.300s: this process is training that run already, and trains one at a time (wait until it "
                           "ends, or train in another process)",
                           other);
}

void turn_give(void) {
    pthread_mutex_lock(&lock);
    if (--turn.depth == 0) {
        turn.is_run = false;
        pthread_cond_broadcast(&is_over);
    }
    pthread_mutex_unlock(&lock);
}
