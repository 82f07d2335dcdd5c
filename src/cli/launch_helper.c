/* launch_helper.c: the helper beside one rank; see launch.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch.h"

static int launcher = -1; /* the socket */

static void say(enum launch_kind kind, int value, const char *text, size_t length) {
    struct launch_packet p = {.kind = (int32_t)kind, .value = value};
    memcpy(p.text, text, length);
    (void)!send(launcher, &p, LAUNCH_HEAD + length, MSG_NOSIGNAL);
}

static bool launcher_connect(void) {
    const char *name = getenv(LAUNCH_SOCKET);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (!name || strlen(name) + 1 > sizeof at.sun_path) return false;
    memcpy(at.sun_path + 1, name, strlen(name)); /* an abstract name: no file */
    launcher = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    return launcher >= 0 && connect(launcher, (struct sockaddr *)&at, length) == 0;
}

static int rank_of_environment(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return 0;
}

/* The launcher's stdin, stdout and stderr, for rank 0; n is how many came. */
static bool streams_take(int fds[3], int *n) {
    struct launch_packet p;
    union {
        char bytes[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec data = {&p, sizeof p};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    *n = 0;
    if (recvmsg(launcher, &m, MSG_CMSG_CLOEXEC) < LAUNCH_HEAD) return false;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(3 * sizeof(int)))
        memcpy(fds, CMSG_DATA(c), 3 * sizeof(int)), *n = 3;
    return true;
}

static _Noreturn void program_run(char **program, const int fds[3], pid_t helper) {
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != helper) _exit(EXIT_IO);
    for (int i = 0; i < 3; i++) dup2(fds[i], i);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGXFSZ, SIG_DFL);
    unsetenv(LAUNCH_SOCKET);
    execvp(program[0], program);
    fprintf(stderr, "tally launch: %s: %s\n", program[0], strerror(errno));
    _exit(EXIT_IO);
}

/* Lines of the program's stderr; a long one is cut into several. False at the end. */
static bool lines_pass(int fd) {
    static char held[LAUNCH_TEXT];
    static size_t n;
    ssize_t got = read(fd, held + n, sizeof held - n);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
        if (n) say(LAUNCH_LINE, 0, held, n);
        return false;
    }
    n += (size_t)got;
    for (char *end; n && ((end = memchr(held, '\n', n)) || n == sizeof held);) {
        size_t length = end ? (size_t)(end - held) : n, taken = end ? length + 1 : n;
        say(LAUNCH_LINE, 0, held, length);
        n -= taken;
        memmove(held, held + taken, n);
    }
    return true;
}

/* Passes signals on, until the program ends. Its status; -1 if the launcher is gone. */
static int program_watch(pid_t program, int lines, int child_ends) {
    struct pollfd fds[] = {
        {.fd = launcher, .events = POLLIN}, {.fd = child_ends, .events = POLLIN}, {.fd = lines, .events = POLLIN}};
    for (;;) {
        struct launch_packet p;
        int status;
        poll(fds, 3, -1);
        if (fds[2].revents && !lines_pass(lines)) fds[2].fd = -1;
        if (fds[0].revents) {
            if (recv(launcher, &p, sizeof p, 0) < LAUNCH_HEAD) return -1;
            if (p.kind == LAUNCH_SIGNAL) kill(program, p.value);
        }
        if (!fds[1].revents || waitpid(program, &status, WNOHANG) != program) continue;
        fcntl(lines, F_SETFL, O_NONBLOCK); /* what it said last; a process of its own may hold the pipe open */
        for (int i = 0; i < 1000 && fds[2].fd >= 0 && poll(&fds[2], 1, 0) > 0; i++)
            if (!lines_pass(lines)) fds[2].fd = -1;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

int launch_helper(char **program) {
    int fds[3] = {-1, -1, -1}, lines[2] = {-1, -1}, n;
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    sigaddset(&held, SIGTERM); /* mpirun's way to end ranks, after which it kills; the launcher is asked first */
    sigaddset(&held, SIGINT);
    sigprocmask(SIG_BLOCK, &held, NULL);
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    int child_ends = signalfd(-1, &held, SFD_CLOEXEC);
    if (!launcher_connect()) return EXIT_IO;
    say(LAUNCH_HELLO, rank_of_environment(), "", 0);
    if (!streams_take(fds, &n)) return EXIT_IO;
    if (n < 3) { /* only what it says on stderr goes on */
        fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        fds[1] = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (pipe2(lines, O_CLOEXEC)) return EXIT_IO;
        fds[2] = lines[1];
    }
    pid_t helper = getpid(), child = fork();
    if (child == 0) program_run(program, fds, helper);
    for (int i = 0; i < 3; i++) close(fds[i]);
    int status = child < 0 ? EXIT_IO : program_watch(child, lines[0], child_ends);
    if (status < 0) return kill(child, SIGKILL), EXIT_IO;
    say(LAUNCH_EXIT, status, "", 0);
    struct launch_packet p;
    while (recv(launcher, &p, sizeof p, 0) > 0) {
    } /* mpirun would end all others if this process ended now */
    return 0;
}
