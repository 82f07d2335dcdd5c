/* cmd_launch.c: tally launch -n 4 train ...; see launch.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "base/process.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/options.h"

const char help_launch[] =
    "usage: tally launch -n RANKS [options] COMMAND [its options]\n"
    "       tally launch -n RANKS [options] -- PROGRAM [arguments]\n"
    "\n"
    "Starts a command of tally, or any program, as several processes on this machine that work together: the ranks. "
    "They\n"
    "are started by mpirun, of Open MPI or MPICH. Rank 0 has the terminal. Of the others, stderr is shown, each line "
    "with\n"
    "its rank. Signals go to every rank; so Ctrl-C and SIGTERM save a training run. When a rank fails, all end, and "
    "the\n"
    "exit code is that of the rank that failed first (128 + the number of the signal, if one killed it). No process\n"
    "outlives this one, even if it is killed.\n"
    "\n"
    "options, before the command:\n"
    "  -n, --ranks RANKS    how many processes\n"
    "  --max-restarts K     start all again after a failure, up to K times; `tally train` resumes from its last\n"
    "                       checkpoint. Wrong options and input (exit codes 1, 2, 5 and 6) end the launch [0]\n"
    "  --mpi NAME           openmpi or mpich [the first that is installed]\n"
    "\n"
    "OMP_NUM_THREADS is set to the cores divided by the ranks, unless it is set. On several machines use mpirun or "
    "srun:\n"
    "docs/processes.md.\n"
    "\n"
    "examples:\n"
    "  tally launch -n 2 train --out runs/two --data text.bin\n"
    "  tally launch -n 8 --max-restarts 3 train --config run.json --shard zero1\n"
    "  tally launch -n 4 -- python train.py\n";

/* ---- mpirun ---- */

/* Each MPI library with the names of its launcher, what that says of itself, and its options for one machine. */
static const struct mpi {
    const char *name, *programs[4], *says, *options[12], *packages;
} mpis[] = {
    {"openmpi",
     {"mpirun.openmpi", "mpirun", "mpiexec"},
     "Open MPI\nOpenRTE\nPRRTE",
     {"--oversubscribe", "--bind-to", "none", "--quiet"},
     "openmpi-bin libopenmpi-dev"},
    {"mpich",
     {"mpiexec.mpich", "mpiexec.hydra", "mpiexec", "mpirun"},
     "HYDRA\nMPICH",
     {"-launcher", "fork", "-bind-to", "none"},
     "mpich libmpich-dev"},
};
enum { N_MPIS = sizeof mpis / sizeof *mpis, MOST_WORDS = 24 };

/* Whether a program of this name is the launcher of this library. */
static bool is_launcher(const char *program, const char *says) {
    char command[120], text[2000], words[64], *next = NULL;
    snprintf(command, sizeof command, "%s --version 2>/dev/null", program);
    FILE *f = popen(command, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f) pclose(f);
    snprintf(words, sizeof words, "%s", says);
    for (char *word = strtok_r(words, "\n", &next); word; word = strtok_r(NULL, "\n", &next))
        if (strstr(text, word)) return true;
    return false;
}

/* The library to use, and its launcher. NULL, after words on stderr: there is none. */
static const struct mpi *mpi_find(const char *wanted, const char **program) {
    char why[300];
    bool is_named = !wanted;
    for (int i = 0; i < N_MPIS; i++) {
        if (wanted && strcmp(wanted, mpis[i].name)) continue;
        is_named = true;
        for (int k = 0; k < 4 && mpis[i].programs[k]; k++) {
            *program = mpis[i].programs[k];
            if (!is_launcher(*program, mpis[i].says)) continue;
            if (plugin_load(mpis[i].name, false, why, sizeof why)) return &mpis[i];
            fprintf(stderr,
                    "tally launch: %s is there, but not libtally_%s.so (%s); build it: `apt install %s && make mpi`\n",
                    *program, mpis[i].name, why, mpis[i].packages);
            break;
        }
    }
    if (!is_named) fprintf(stderr, "tally launch: --mpi %s: there is openmpi and mpich\n", wanted);
    else
        fprintf(stderr, "tally launch: no %s is installed here; `apt install %s && make mpi` installs it\n",
                wanted ? wanted : "MPI", mpis[wanted && !strcmp(wanted, "mpich")].packages);
    return NULL;
}

/* ---- One start of all ranks ---- */

struct rank {
    int fd; /* -1: not connected, or not any more */
    bool has_ended;
    int status;
};
struct job {
    int n, listener, signals, said; /* said: what mpirun writes */
    struct rank *ranks;
    pid_t mpirun; /* 0: it has ended */
    int n_connected, n_ended;
    int failed, status; /* the rank that failed first, or -1; and how */
    double kill_at;     /* 0: nothing is to be killed */
    bool is_killed;
    int n_interrupts;
    char last[LAUNCH_TEXT]; /* the last line of another rank: ranks often say the same */
};

static void job_signal(const struct job *j, int signal_number) {
    struct launch_packet p = {.kind = LAUNCH_SIGNAL, .value = signal_number};
    for (int r = 0; r < j->n; r++)
        if (j->ranks[r].fd >= 0) (void)!send(j->ranks[r].fd, &p, LAUNCH_HEAD, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool is_stop(int status) { return status == EXIT_AGAIN || status == EXIT_STOPPED; }

static void rank_ended(struct job *j, int rank, int status) {
    struct rank *r = &j->ranks[rank];
    if (r->has_ended) return;
    *r = (struct rank){.fd = r->fd, .has_ended = true, .status = status};
    j->n_ended++;
    if (status == 0) return;
    /* a rank that another one's failure ended is not the one that failed; nor is one that was asked to stop */
    bool is_first = j->failed < 0 || (j->status == EXIT_OTHERS && status != EXIT_OTHERS) ||
                    (is_stop(j->status) && !is_stop(status));
    if (is_first) j->failed = rank, j->status = status;
    if (!j->kill_at) j->kill_at = now_s() + (is_stop(status) ? 120 : 5); /* the others end by themselves before */
}

/* Connects a helper; rank 0 gets the launcher's own streams. */
static void helper_accept(struct job *j) {
    struct launch_packet p, answer = {.kind = LAUNCH_OUTPUT};
    struct ucred who;
    socklen_t length = sizeof who;
    int fd = accept4(j->listener, NULL, NULL, SOCK_CLOEXEC), streams[3] = {0, 1, 2};
    bool ok = fd >= 0 && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) && who.uid == geteuid() &&
              recv(fd, &p, sizeof p, 0) >= LAUNCH_HEAD && p.kind == LAUNCH_HELLO && p.value >= 0 && p.value < j->n &&
              j->ranks[p.value].fd < 0;
    if (!ok) {
        if (fd >= 0) close(fd);
        return;
    }
    union {
        char bytes[CMSG_SPACE(sizeof streams)];
        struct cmsghdr align;
    } control = {.bytes = ""};
    struct iovec data = {&answer, LAUNCH_HEAD};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
    if (p.value == 0) {
        m.msg_control = &control, m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof streams), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), streams, sizeof streams);
    }
    j->ranks[p.value].fd = fd;
    j->n_connected++;
    sendmsg(fd, &m, MSG_NOSIGNAL);
}

static void helper_read(struct job *j, int rank) {
    struct launch_packet p;
    struct rank *r = &j->ranks[rank];
    ssize_t n = recv(r->fd, &p, sizeof p, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < LAUNCH_HEAD) { /* the helper is gone, and so is its program */
        close(r->fd);
        r->fd = -1;
        rank_ended(j, rank, 128 + SIGKILL);
    } else if (p.kind == LAUNCH_EXIT) rank_ended(j, rank, p.value);
    else if (p.kind == LAUNCH_LINE) {
        int length = (int)(n - LAUNCH_HEAD);
        if (length < LAUNCH_TEXT) p.text[length] = 0;
        if (length < LAUNCH_TEXT && !strcmp(j->last, p.text)) return;
        snprintf(j->last, sizeof j->last, "%.*s", length < LAUNCH_TEXT ? length : LAUNCH_TEXT - 1, p.text);
        fprintf(stderr, "rank %d: %s\n", rank, j->last);
    }
}

/* Signals of this process. Those that end programs go to all ranks; the third Ctrl-C kills. */
static void signal_take(struct job *j) {
    struct signalfd_siginfo s;
    int status;
    if (read(j->signals, &s, sizeof s) != sizeof s) return;
    if (s.ssi_signo == SIGCHLD) {
        if (j->mpirun && waitpid(j->mpirun, &status, WNOHANG) == j->mpirun) j->mpirun = 0;
        return;
    }
    if (s.ssi_signo == SIGINT && ++j->n_interrupts >= 3) j->kill_at = now_s();
    job_signal(j, (int)s.ssi_signo);
}

static void job_kill(struct job *j, double now) {
    if (!j->kill_at || now < j->kill_at) return;
    job_signal(j, j->is_killed || j->n_interrupts >= 3 ? SIGKILL : SIGTERM);
    j->is_killed = true;
    j->kill_at = now + 3;
}

static void job_poll(struct job *j, struct pollfd *fds) {
    fds[0] = (struct pollfd){.fd = j->listener, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = j->signals, .events = POLLIN};
    for (int r = 0; r < j->n; r++) fds[2 + r] = (struct pollfd){.fd = j->ranks[r].fd, .events = POLLIN};
    double now = now_s();
    int wait_ms = j->kill_at > now ? (int)((j->kill_at - now) * 1000) + 1 : j->kill_at ? 0 : -1;
    poll(fds, (nfds_t)(2 + j->n), wait_ms);
    for (int r = 0; r < j->n; r++)
        if (fds[2 + r].fd >= 0 && fds[2 + r].revents) helper_read(j, r);
    if (fds[1].revents) signal_take(j);
    if (fds[0].revents) helper_accept(j);
    job_kill(j, now_s());
}

/* What mpirun said, if it could not start the ranks. */
static void mpirun_words(const struct job *j) {
    char text[2000];
    lseek(j->said, 0, SEEK_SET);
    for (ssize_t n; (n = read(j->said, text, sizeof text)) > 0;) fwrite(text, 1, (size_t)n, stderr);
    fprintf(stderr, "tally launch: mpirun has started %d of %d ranks\n", j->n_connected, j->n);
}

/* Lets the helpers go, and with them mpirun. */
static void job_close(struct job *j) {
    for (int r = 0; r < j->n; r++)
        if (j->ranks[r].fd >= 0) close(j->ranks[r].fd);
    for (int i = 0; j->mpirun && i < 100; i++) {
        if (waitpid(j->mpirun, NULL, WNOHANG) == j->mpirun) j->mpirun = 0;
        else usleep(i < 20 ? 10000 : 50000);
    }
    if (j->mpirun) kill(j->mpirun, SIGKILL), waitpid(j->mpirun, NULL, 0);
    close(j->listener);
    close(j->said);
}

/* An abstract socket; its name goes to the helpers by the environment. */
static int listener_new(void) {
    static int count;
    char name[64];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(name, sizeof name, "tally-launch-%d-%d-%.0f", (int)getpid(), count++, now_s());
    memcpy(at.sun_path + 1, name, strlen(name));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, length) || listen(fd, 128)) return -1;
    return setenv(LAUNCH_SOCKET, name, 1) ? -1 : fd;
}

static _Noreturn void mpirun_exec(const struct job *j, char **words, pid_t launcher) {
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(EXIT_IO);
    setpgid(0, 0); /* Ctrl-C in the terminal is for the launcher, which tells the ranks */
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(j->said, 1);
    dup2(j->said, 2);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(words[0], words);
    _exit(EXIT_IO);
}

/* Runs all ranks once. The exit code. */
static int job_run(struct job *j, char **words, struct pollfd *fds) {
    pid_t launcher = getpid();
    j->listener = listener_new();
    j->said = memfd_create("mpirun", MFD_CLOEXEC);
    j->failed = -1;
    j->mpirun = j->listener < 0 || j->said < 0 ? -1 : fork();
    if (j->mpirun == 0) mpirun_exec(j, words, launcher);
    if (j->mpirun < 0) {
        fprintf(stderr, "tally launch: no process can be started: %s\n", strerror(errno));
        return EXIT_IO;
    }
    while (j->n_ended < j->n && (j->mpirun || j->n_connected == j->n)) {
        job_poll(j, fds);
        if (!j->mpirun && !j->kill_at) j->kill_at = now_s() + 3; /* mpirun is gone */
    }
    bool has_begun = j->n_connected == j->n;
    if (!has_begun) mpirun_words(j);
    job_close(j);
    return has_begun ? j->status : EXIT_IO;
}

/* ---- The command ---- */

static void threads_divide(int64_t n) {
    char text[32];
    int64_t each = process_threads() / n;
    snprintf(text, sizeof text, "%lld", (long long)(each > 0 ? each : 1));
    setenv("OMP_NUM_THREADS", text, 0);
}

/* mpirun's words: its options, this program as a helper, and what it runs. NULL: no memory. */
static char **words_new(const struct mpi *mpi, const char *mpirun, int n, const char *self, bool is_command,
                        char **program) {
    static char count[16], slots[32];
    int n_program = 0, at = 0;
    while (program[n_program]) n_program++;
    char **words = memory_new((size_t)(MOST_WORDS + n_program) * sizeof *words);
    if (!words) return NULL;
#define WORD(w) words[at++] = (char *)(uintptr_t)(w)
    if (mpi) {
        snprintf(count, sizeof count, "%d", n);
        snprintf(slots, sizeof slots, "localhost:%d", n);
        WORD(mpirun);
        for (int i = 0; mpi->options[i]; i++) WORD(mpi->options[i]);
        if (mpi == &mpis[0] && geteuid() == 0) WORD("--allow-run-as-root");
        WORD(mpi == &mpis[0] ? "--host" : "-hosts"), WORD(mpi == &mpis[0] ? slots : "localhost");
        WORD("-n"), WORD(count);
    }
    WORD(self), WORD("launch"), WORD("--helper"), WORD("--");
    if (is_command) WORD(self);
#undef WORD
    memcpy(words + at, program, (size_t)(n_program + 1) * sizeof *words);
    return words;
}

static void status_print(char *to, size_t size, int status) {
    if (status > 128 && status < 128 + 65)
        snprintf(to, size, "was killed by signal %d (%s)", status - 128, strsignal(status - 128));
    else snprintf(to, size, "ended with exit code %d", status);
}

/* Starts all, again after failures that may pass. */
static int launch(int n, int max_restarts, char **words) {
    struct pollfd *fds = memory_new((size_t)(n + 2) * sizeof *fds);
    struct rank *ranks = memory_new((size_t)n * sizeof *ranks);
    sigset_t held;
    sigemptyset(&held);
    static const int passed[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaddset(&held, passed[i]);
    sigprocmask(SIG_BLOCK, &held, NULL);
    int result = EXIT_MEMORY, signals = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int restart = 0; fds && ranks && signals >= 0; restart++) {
        struct job j = {.n = n, .signals = signals, .ranks = ranks};
        char how[120];
        for (int r = 0; r < n; r++) ranks[r] = (struct rank){.fd = -1};
        result = job_run(&j, words, fds);
        status_print(how, sizeof how, result);
        bool may_pass = result && !is_stop(result) && result != EXIT_USAGE && result != EXIT_INPUT &&
                        result != EXIT_NUMERIC && result != EXIT_NO_FIT && !j.n_interrupts && j.n_connected == n;
        if (may_pass && restart < max_restarts)
            fprintf(stderr, "tally launch: rank %d %s; restart %d of %d\n", j.failed, how, restart + 1, max_restarts);
        else {
            if (j.failed >= 0 && !is_stop(result)) fprintf(stderr, "tally launch: rank %d %s\n", j.failed, how);
            break;
        }
    }
    memory_free(fds);
    memory_free(ranks);
    return result;
}

int cmd_launch(int argc, char **argv) {
    int64_t n = 0, max_restarts = 0;
    const char *wanted = NULL, *mpirun = NULL;
    bool is_helper = false;
    const struct option table[] = {{"--ranks", OPTION_INTEGER, &n, 1, 4096, false},
                                   {"--max-restarts", OPTION_INTEGER, &max_restarts, 0, 1000000, false},
                                   {"--mpi", OPTION_TEXT, &wanted, 0, 0, false},
                                   {"--helper", OPTION_FLAG, &is_helper, 0, 0, false},
                                   {NULL, OPTION_END, NULL, 0, 0, false}};
    int own = 1;                     /* options of the launch end at the first word, or at -- */
    static char ranks[] = "--ranks"; /* -n in full */
    while (own < argc && argv[own][0] == '-' && strcmp(argv[own], "--")) {
        if (!strcmp(argv[own], "-n")) argv[own] = ranks;
        own += 1 + (!strchr(argv[own], '=') && strcmp(argv[own], "--helper") && own + 1 < argc);
    }
    bool is_command = own < argc && strcmp(argv[own], "--") != 0;
    char **program = argv + own + !is_command;
    int code = options_read("launch", table, own, argv, NULL, 0);
    if (code) return code;
    if (own >= argc || !*program || (!n && !is_helper)) {
        fprintf(stderr, "tally launch: %s (see `tally launch --help`)\n",
                n ? "what is to be started? `tally launch -n 2 train ...`"
                  : "how many ranks? `tally launch -n 2 train ...`");
        return EXIT_USAGE;
    }
    if (is_helper) return launch_helper(program);
    const struct mpi *mpi = n > 1 ? mpi_find(wanted, &mpirun) : NULL; /* one rank needs no MPI */
    char self[4096] = "";
    if ((n > 1 && !mpi) || readlink("/proc/self/exe", self, sizeof self - 1) < 0) return EXIT_IO;
    if (mpi) setenv("TALLY_MPI", mpi->name, 1);
    threads_divide(n);
    char **words = words_new(mpi, mpirun, (int)n, self, is_command, program);
    code = words ? launch((int)n, (int)max_restarts, words) : EXIT_MEMORY;
    memory_free(words);
    return code;
}
