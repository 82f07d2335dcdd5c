#include "cli/watch_child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "step/settings.h"

extern char **environ;
static const double PATIENCE_S = 10;

/* Its own process group: Ctrl-C is for the run, which saves first. */
static int spawn(struct watch_child *w, const char *run, int64_t port, int in, int out) {
    char number[24], folder[SETTING_TEXT + 2];
    snprintf(number, sizeof number, "%" PRId64, port);
    snprintf(folder, sizeof folder, "%s%s", *run == '-' ? "./" : "", run); /* no option */
    char *const arguments[] = {(char *)"tally",  (char *)"watch", folder, (char *)"--until-eof",
                               (char *)"--port", number,          NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigfillset(&defaults);
    if (posix_spawn_file_actions_init(&actions)) return ENOMEM;
    if (posix_spawnattr_init(&attributes)) return posix_spawn_file_actions_destroy(&actions), ENOMEM;
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    int problem = posix_spawn(&w->pid, "/proc/self/exe", &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (problem) w->pid = 0;
    return problem;
}

/* The first line. */
static bool address_read(struct watch_child *w, int from) {
    size_t n = 0;
    double end = now_s() + PATIENCE_S;
    while (n + 1 < sizeof w->address) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        int left_ms = (int)(1e3 * (end - now_s()));
        if (left_ms <= 0 || (poll(&ready, 1, left_ms) < 0 && errno != EINTR)) break;
        if (!(ready.revents & (POLLIN | POLLHUP))) continue;
        ssize_t got = read(from, w->address + n, 1);
        if (got <= 0) break;
        if (w->address[n] == '\n') return w->address[n] = 0, true;
        n++;
    }
    return false;
}

bool watch_child_start(struct watch_child *w, const char *run, int64_t port) {
    int in[2], out[2];
    *w = (struct watch_child){.hold = -1};
    if (pipe2(in, O_CLOEXEC)) return false;
    if (pipe2(out, O_CLOEXEC)) return close(in[0]), close(in[1]), false;
    int problem = spawn(w, run, port, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    w->hold = in[1];
    bool ok = !problem && address_read(w, out[0]);
    close(out[0]);
    if (problem) fprintf(stderr, "tally train: --watch: the page cannot be served: %s\n", strerror(problem));
    if (!ok) watch_child_end(w);
    return ok;
}

void watch_child_end(struct watch_child *w) {
    if (w->hold >= 0) close(w->hold);
    w->hold = -1;
    if (w->pid > 0)
        while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
    w->pid = 0;
}
