/* watch.c: a heartbeat, so that no rank waits for ever for one that is dead, stuck or elsewhere in the program.
 *
 * MPI does not say that a process is gone: a receiver on a cut link waits for ever, and a launcher sees only processes
 * that end. So every process has a thread, and a TCP connection from it to rank 0's (the hub). Once a second it says
 * what the process does: its step, the call it is in and for how long, and marks of its past calls. The hub answers.
 *
 *   silence      A rank that the hub has not heard for SILENCE_S, or whose connection closes without a farewell, is
 *                gone. A rank that hears nothing from the hub takes the hub to be gone, or the link to be cut.
 *   being stuck  One rank waits in a call for longer than the limit (tl_comm_set_timeout), and another is in none. The
 *                longest limit of these ranks counts: a rank that does something alone gives itself more time, and
 *                need not tell those that wait.
 *   mismatch     All ranks of a group make the same calls in the same order. Each keeps a hash of the calls that it
 *                has made on each group, which is part of the messages' tag: ranks whose calls differ wait for each
 *                other, and the hub sees both calls. Should the tags be equal by chance, or should nobody wait, the
 *                hashes tell: each rank says its own at the newest call and at the newest multiples of 16, 256, ...,
 *                so two ranks that are not at the same call have said their hash at some common one.
 *
 * In each case the hub says so in one line, tells all others, and every process ends with WATCH_EXIT: MPI has no way to
 * go on without a rank. This is the one place where the library writes and exits, since nobody is there to whom an
 * error could be returned: the threads of the program wait inside MPI.
 *
 * One hub for all is enough below some hundred ranks: it reads 3 KB from each in a second.
 *
 * TALLY_WATCH=0 in the environment switches it off (under a debugger), another number is SILENCE_S; TALLY_TIMEOUT is
 * the limit for stuck ranks, whatever the program sets.
 */
#include "comm/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/thread.h"
#include "tensor/dtype.h"

enum { GROUPS = 8, LEVELS = 5, LEVEL_STEP = 16, TEXT = 480, ADDRESSES = 8, KEY = 16, NETWORK_S = 8 };
static const double BEAT_S = 1, START_S = 20, ENDED_S = 2;
static double silence_s = 15; /* TALLY_WATCH */

/* ---- What a process says ---- */

struct mark {
    struct call call;
    uint64_t hash; /* of all calls on the group up to this one */
};
struct report {
    int64_t step;            /* -1: none */
    double since_s, limit_s; /* since it entered or left the call; how long others may wait for it */
    int32_t is_waiting, is_ended, status, n_groups;
    struct call call; /* the one it waits in, or the last */
    struct mark marks[GROUPS][LEVELS];
};

enum packet_kind { PACKET_BEAT = 1, PACKET_REPORT, PACKET_END, PACKET_SAID }; /* said: a beat; all will end soon */
struct packet {
    uint32_t kind, bytes; /* of what follows */
    union {
        struct report report;
        char text[TEXT];
    };
};
enum { PACKET_HEAD = 8 };

/* ---- State of this process ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `own` */
static struct report own = {.step = -1, .call = {.op = ""}};
static double own_since; /* when the process entered or left its last call */
static double stuck_s = 600;
static bool is_stuck_given; /* TALLY_TIMEOUT */
static tl_comm *watched;    /* the world; NULL: nothing is watched */
static pid_t watching_pid;

/* What is known of a rank, and the connection to it: at the hub of all, elsewhere of the hub alone. */
struct peer {
    int fd;
    double heard;
    bool is_known; /* has reported */
    struct report report;
    struct packet in;
    size_t n_in;
};
static struct peer *peers; /* by rank */
static bool is_said;       /* the hub has said why all will end */

/* ---- Calls ---- */

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t call_hash(uint64_t before, const struct call *c) {
    uint64_t words[3];
    memcpy(words, c->op, sizeof words);
    uint64_t h = mix(mix(mix(before, words[0]), words[1]), words[2]);
    return mix(mix(h, (uint64_t)c->count), (uint64_t)(uint32_t)c->dtype << 32 | (uint32_t)c->size);
}

/* MPI takes tags up to 32,767 at least. */
static int tag_of(uint64_t hash) { return (int)(hash % 32749); }

uint64_t watch_group_id(const tl_comm *parent, const int *ranks, int n) {
    uint64_t h = mix(parent->id, parent->n_calls);
    for (int i = 0; i < n; i++) h = mix(h, (uint64_t)ranks[i]);
    return h;
}

/* The place of a group in the report: its own, or that of the one that was used least recently. */
static struct mark *group_marks(uint64_t id) {
    int oldest = 0;
    static uint64_t used[GROUPS], now;
    now++;
    for (int i = 0; i < own.n_groups; i++) {
        if (own.marks[i][0].call.group == id) return used[i] = now, own.marks[i];
        if (used[i] < used[oldest]) oldest = i;
    }
    int at = own.n_groups < GROUPS ? own.n_groups++ : oldest;
    memset(own.marks[at], 0, sizeof own.marks[at]);
    used[at] = now;
    return own.marks[at];
}

void watch_enter(tl_comm *comm, const char *op, tl_dtype dtype, int64_t count, int peer) {
    if (!watched || !comm->functions) return;
    struct call c = {.group = comm->id,
                     .count = count,
                     .dtype = (int32_t)dtype,
                     .size = comm->size,
                     .peer = peer < 0 ? -1 : comm_world_rank(comm, peer)};
    snprintf(c.op, sizeof c.op, "%s", op);
    pthread_mutex_lock(&lock);
    if (peer < 0) {
        c.number = ++comm->n_calls;
        comm->calls_hash = call_hash(comm->calls_hash, &c);
        struct mark *marks = group_marks(comm->id);
        uint64_t every = 1;
        for (int level = 0; level < LEVELS && c.number % every == 0; level++, every *= LEVEL_STEP)
            marks[level] = (struct mark){c, comm->calls_hash};
    }
    comm->tag = tag_of(peer < 0 ? comm->calls_hash : call_hash(0, &(struct call){.count = count, .dtype = c.dtype}));
    own.call = c;
    own.is_waiting = true;
    own_since = now_s();
    pthread_mutex_unlock(&lock);
}

struct call watch_call(void) {
    pthread_mutex_lock(&lock);
    struct call last = own.call;
    pthread_mutex_unlock(&lock);
    return last;
}

void watch_wait(const tl_comm *comm, const struct call *call) {
    if (!watched || !comm->functions) return;
    pthread_mutex_lock(&lock);
    own.call = *call;
    own.is_waiting = true;
    own_since = now_s();
    pthread_mutex_unlock(&lock);
}

void watch_leave(tl_comm *comm) {
    if (!watched || !comm->functions) return;
    pthread_mutex_lock(&lock);
    comm->tag = tag_of(comm->calls_hash);
    own.is_waiting = false;
    own_since = now_s();
    pthread_mutex_unlock(&lock);
}

void tl_comm_set_step(int64_t step) {
    pthread_mutex_lock(&lock);
    own.step = step;
    pthread_mutex_unlock(&lock);
}

double tl_comm_set_timeout(double seconds) {
    pthread_mutex_lock(&lock);
    double before = stuck_s;
    if (!is_stuck_given && seconds > 0) stuck_s = seconds;
    pthread_mutex_unlock(&lock);
    return before;
}

static void report_take(struct report *r) {
    pthread_mutex_lock(&lock);
    *r = own;
    r->since_s = now_s() - own_since;
    r->limit_s = stuck_s;
    pthread_mutex_unlock(&lock);
}

/* ---- Words ---- */

struct words {
    char text[TEXT];
    size_t used;
};
static void words_add(struct words *w, const char *format, ...) TL_PRINTF(2, 3);
static void words_add(struct words *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = number_vprint(w->text + w->used, sizeof w->text - w->used, format, arguments);
    va_end(arguments);
    w->used += n < 0 ? 0 : (size_t)n;
    if (w->used >= sizeof w->text) w->used = sizeof w->text - 1;
}

static void words_rank(struct words *w, int rank) {
    words_add(w, "rank %d on %s", rank, watched->places ? watched->places[rank].host : "this host");
}

static void words_call(struct words *w, const struct call *c) {
    const struct dtype_info *info = c->dtype >= 0 && c->dtype < TL_DTYPE_COUNT ? dtype_info((tl_dtype)c->dtype) : NULL;
    if (!c->op[0]) {
        words_add(w, "no collective yet");
        return;
    }
    words_add(w, "%s", c->op);
    if (c->count > 0 && info) words_add(w, " of %lld %s", (long long)c->count, info->name);
    if (c->peer >= 0) words_add(w, " %s rank %d", !strcmp(c->op, "recv") ? "from" : "to", c->peer);
    else words_add(w, " among %d ranks (call %llu)", c->size, (unsigned long long)c->number);
}

static void words_place(struct words *w, const struct report *r) {
    if (r->step >= 0) words_add(w, " at step %lld,", (long long)r->step);
    words_add(w, r->is_waiting ? " in " : " after ");
    words_call(w, &r->call);
}

/* What a rank said a second ago, or less. */
static void words_last(struct words *w, const struct peer *p) {
    if (!p->is_known) return;
    words_add(w, "; last heard");
    words_place(w, &p->report);
}

/* ---- The end ---- */

static void packet_send(int fd, const struct packet *p) {
    if (fd >= 0) (void)!send(fd, p, PACKET_HEAD + p->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool is_normal(int status) { return status == 0 || status == 75 || status == 130; }

/* A process that ends by itself with an error keeps its exit status. */
_Noreturn static void process_end(void) { _exit(own.is_ended && !is_normal(own.status) ? own.status : WATCH_EXIT); }

static void line_say(const struct words *w) {
    char line[TEXT + 80];
    int n = snprintf(line, sizeof line, "tally: %s; all ranks end\n", w->text);
    (void)!write(STDERR_FILENO, line, (size_t)n);
}

_Noreturn static void all_end(const struct words *w) {
    struct packet p = {.kind = PACKET_END, .bytes = TEXT};
    memcpy(p.text, w->text, TEXT);
    for (int r = 0; watched->rank == 0 && r < watched->size; r++) packet_send(peers[r].fd, &p);
    if (watched->rank == 0) usleep(200000); /* others end before a launcher sees this one end */
    process_end();
}

/* One line, then every process ends. */
_Noreturn static void job_end(const struct words *w) {
    line_say(w);
    all_end(w);
}

/* The same where the network between hosts may be cut. mpirun then has a message to send when a rank ends, and waits
 * for its arrival for minutes; before, keepalive packets tell it, if it was given the options of docs/processes.md. So
 * it has a while to find out by itself. */
_Noreturn static void network_end(const struct words *w) {
    static const struct packet said = {.kind = PACKET_SAID};
    line_say(w);
    for (int i = 0; i < NETWORK_S; i++) {
        for (int r = 1; watched->rank == 0 && r < watched->size; r++) packet_send(peers[r].fd, &said);
        sleep(1);
    }
    all_end(w);
}

/* ---- What the hub concludes ---- */

_Noreturn static void judge_gone(int rank, const char *how, bool is_silent) {
    struct words w = {.used = 0};
    words_rank(&w, rank);
    words_add(&w, " %s", how);
    words_last(&w, &peers[rank]);
    if (is_silent && tl_comm_host(watched, rank)) network_end(&w);
    job_end(&w);
}

_Noreturn static void judge_mismatch(int a, int b, const struct mark *mark_a, const struct mark *mark_b, int level) {
    struct words w = {.used = 0};
    words_add(&w, "ranks do not make the same calls%s: ", level ? ", at this one or before it" : "");
    words_rank(&w, a);
    words_add(&w, " called ");
    words_call(&w, &mark_a->call);
    words_add(&w, ", ");
    words_rank(&w, b);
    words_add(&w, " called ");
    words_call(&w, &mark_b->call);
    job_end(&w);
}

static const struct mark *mark_of(const struct report *r, uint64_t group, int level) {
    for (int i = 0; i < r->n_groups; i++)
        if (r->marks[i][0].call.group == group && r->marks[i][level].call.number) return &r->marks[i][level];
    return NULL;
}

/* A report of rank `a` against what all others said. */
static void judge_calls(int a) {
    const struct report *r = &peers[a].report;
    for (int i = 0; i < r->n_groups; i++)
        for (int level = 0; level < LEVELS; level++) {
            const struct mark *mine = &r->marks[i][level], *other;
            for (int b = 0; mine->call.number && b < watched->size; b++) {
                if (b == a || !(other = mark_of(&peers[b].report, mine->call.group, level))) continue;
                if (other->call.number == mine->call.number && other->hash != mine->hash)
                    judge_mismatch(a < b ? a : b, a < b ? b : a, a < b ? mine : other, a < b ? other : mine, level);
            }
        }
}

static void judge_report(int rank) {
    const struct report *r = &peers[rank].report;
    char how[60];
    snprintf(how, sizeof how, "ended with exit status %d", r->status);
    if (r->is_ended && !is_normal(r->status)) judge_gone(rank, how, false);
    judge_calls(rank);
}

/* Two ranks that wait for each other, with another tensor each. */
static void judge_pair(int a) {
    const struct report *r = &peers[a].report;
    int b = r->call.peer;
    if (b < 0 || b >= watched->size || b == a || !peers[b].report.is_waiting || peers[b].report.call.peer != a) return;
    const struct call *other = &peers[b].report.call;
    bool is_same = other->count == r->call.count && other->dtype == r->call.dtype && strcmp(other->op, r->call.op);
    if (is_same || r->since_s < ENDED_S || peers[b].report.since_s < ENDED_S) return;
    judge_mismatch(a, b, &(struct mark){.call = r->call}, &(struct mark){.call = *other}, 0);
}

/* Rank `w` waits in a call; who of those that ended is missing there? -1: none. */
static int ended_member(int w) {
    const struct call *c = &peers[w].report.call;
    for (int r = 0; r < watched->size; r++) {
        const struct mark *last = peers[r].report.is_ended ? mark_of(&peers[r].report, c->group, 0) : NULL;
        bool is_peer = c->peer == r && peers[r].report.is_ended;
        if (is_peer || (c->peer < 0 && last && last->call.number < c->number)) return r;
    }
    return -1;
}

/* Somebody who waits elsewhere. */
static void words_other(struct words *text, const struct call *call) {
    for (int r = 0; r < watched->size; r++) {
        const struct report *other = &peers[r].report;
        const struct call *c = &other->call;
        if (!other->is_waiting || (c->group == call->group && c->number == call->number)) continue;
        words_add(text, ", ");
        words_rank(text, r);
        words_add(text, " in ");
        words_call(text, c);
        return;
    }
}

/* How long rank `w` may wait: the longest limit of its own and of those that are in no call. */
static double limit_of(int w) {
    double limit = peers[w].report.limit_s;
    for (int i = 0; i < watched->size; i++) {
        const struct report *other = &peers[i].report;
        if (peers[i].is_known && !other->is_waiting && !other->is_ended && other->limit_s > limit)
            limit = other->limit_s;
    }
    return is_stuck_given ? stuck_s : limit;
}

static void judge_waiting(int w) {
    const struct report *r = &peers[w].report;
    double limit = limit_of(w);
    int ended = r->since_s > ENDED_S ? ended_member(w) : -1, idle = -1;
    struct words text = {.used = 0};
    bool is_anyone_free = false;
    for (int i = 0; i < watched->size; i++) {
        const struct report *other = &peers[i].report;
        if (other->is_waiting || other->is_ended) continue;
        is_anyone_free = true;
        if (other->since_s > limit / 2 && (idle < 0 || other->since_s > peers[idle].report.since_s)) idle = i;
    }
    if (ended < 0 && (r->since_s < limit || (idle < 0 && is_anyone_free && r->since_s < 2 * limit))) return;
    int culprit = ended >= 0 ? ended : idle;
    if (culprit >= 0) {
        words_rank(&text, culprit);
        if (ended >= 0) words_add(&text, " has ended, with exit status %d", peers[ended].report.status);
        else words_add(&text, " is stuck: it has made no call for %.0f s", peers[idle].report.since_s);
        words_last(&text, &peers[culprit]);
        words_add(&text, "; ");
    }
    words_rank(&text, w);
    if (culprit >= 0) words_add(&text, " waits for it in ");
    else words_add(&text, " has waited for %.0f s in ", r->since_s);
    words_call(&text, &r->call);
    if (culprit < 0) words_other(&text, &r->call);
    job_end(&text);
}

static void judge_all(double now) {
    for (int r = 0; r < watched->size; r++) {
        struct peer *p = &peers[r];
        if (r && p->fd >= 0 && !p->report.is_ended && now - p->heard > silence_s) {
            char how[120];
            number_print(how, sizeof how, "has not been heard for %.0f s (it is stopped, or the network is down)",
                         now - p->heard);
            judge_gone(r, how, true);
        }
        if (!p->is_known || !p->report.is_waiting || p->report.is_ended) continue;
        judge_pair(r);
        judge_waiting(r);
    }
}

/* ---- Packets ---- */

static void hub_take(int rank, const struct packet *p) {
    struct peer *from = &peers[rank];
    if (p->kind != PACKET_REPORT) return;
    from->report = p->report;
    from->is_known = true;
    judge_report(rank);
}

/* Takes all whole packets. False: the connection is closed. */
static bool peer_read(int rank, double now) {
    struct peer *p = &peers[rank];
    for (;;) {
        size_t want = p->n_in < PACKET_HEAD ? PACKET_HEAD : PACKET_HEAD + p->in.bytes;
        if (want > sizeof p->in) return false;
        if (p->n_in == want && want >= PACKET_HEAD && p->n_in >= PACKET_HEAD + p->in.bytes) {
            p->heard = now;
            p->n_in = 0;
            if (watched->rank == 0) hub_take(rank, &p->in);
            else if (p->in.kind == PACKET_END) process_end(); /* the hub has said why */
            else if (p->in.kind == PACKET_SAID) is_said = true;
            continue;
        }
        ssize_t n = recv(p->fd, (char *)&p->in + p->n_in, want - p->n_in, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n <= 0) return false;
        p->n_in += (size_t)n;
    }
}

/* The lowest rank on this host, but for the hub's. */
static int first_here(void) {
    int here = tl_comm_host(watched, watched->rank), r = 1;
    while (r < watched->rank && tl_comm_host(watched, r) != here) r++;
    return r;
}

/* This process cannot reach the hub any more. One rank of each host says so: at once where the hub was, later
 * elsewhere, since a launcher ends all when the first one ends. */
static void hub_lost(bool is_closed, double silent_s) {
    static const useconds_t OTHERS_US = 1000000, HOST_US = 100000, SILENT_US = 3000000; /* of those that say nothing */
    struct words w = {.used = 0};
    if (own.is_ended) {
        close(peers[0].fd);
        peers[0].fd = -1;
        return;
    }
    int host = tl_comm_host(watched, watched->rank);
    if (is_said) process_end();
    if (first_here() != watched->rank) {
        if (!is_closed && host > 0) sleep(NETWORK_S);
        else usleep(SILENT_US);
        process_end();
    }
    words_rank(&w, 0);
    if (is_closed) words_add(&w, " is gone: its process was killed, or crashed");
    else words_add(&w, " has not been heard for %.0f s (it is stopped, or the network is down)", silent_s);
    report_take(&peers[watched->rank].report); /* what the hub did is not known here, but they are in step */
    peers[watched->rank].is_known = true;
    words_add(&w, "; ");
    words_rank(&w, watched->rank);
    words_add(&w, " is");
    words_place(&w, &peers[watched->rank].report);
    if (host > 0 && !is_closed) network_end(&w);
    if (host > 0) usleep(OTHERS_US + HOST_US * (useconds_t)(host < 20 ? host : 20));
    job_end(&w);
}

static void peer_closed(int rank) {
    struct peer *p = &peers[rank];
    if (watched->rank) {
        hub_lost(true, 0);
        return;
    }
    if (!p->report.is_ended) judge_gone(rank, "is gone: its process was killed, or crashed", false);
    close(p->fd);
    p->fd = -1;
}

static void beat(double now) {
    static struct packet p; /* of the one thread */
    if (watched->rank) {
        p = (struct packet){.kind = PACKET_REPORT, .bytes = sizeof p.report};
        report_take(&p.report);
        packet_send(peers[0].fd, &p);
        if (peers[0].fd >= 0 && now - peers[0].heard > silence_s) hub_lost(false, now - peers[0].heard);
        return;
    }
    p = (struct packet){.kind = PACKET_BEAT};
    for (int r = 1; r < watched->size; r++) packet_send(peers[r].fd, &p);
    report_take(&peers[0].report);
    peers[0].is_known = true;
    judge_report(0);
    judge_all(now);
}

/* A process that did not run itself (it was stopped, or the machine slept) has heard nobody, which says nothing; nor
 * was it stuck meanwhile. */
static void forgive(double now, int n, double slept_s) {
    for (int r = 0; r < n; r++) peers[r].heard = now;
    pthread_mutex_lock(&lock);
    own_since += slept_s;
    pthread_mutex_unlock(&lock);
}

static void *watch_main(void *unused) {
    struct pollfd *fds = unused;
    double next = now_s(), last = next;
    int n = watched->rank ? 1 : watched->size;
    for (;;) {
        for (int r = 0; r < n; r++) fds[r] = (struct pollfd){.fd = peers[r].fd, .events = POLLIN};
        double now = now_s();
        int wait_ms = next > now ? (int)((next - now) * 1000) + 1 : 0;
        poll(fds, (nfds_t)n, wait_ms);
        now = now_s();
        if (now - last > 3 * BEAT_S) forgive(now, watched->size, now - last);
        last = now;
        for (int r = 0; r < n; r++)
            if (fds[r].fd >= 0 && fds[r].revents && !peer_read(r, now)) peer_closed(r);
        if (now < next) continue;
        next = now + BEAT_S;
        beat(now);
    }
    return NULL;
}

/* ---- Connections ---- */

struct hub_address {
    char key[KEY]; /* who does not know it is none of ours */
    uint16_t port;
    int32_t n;
    char name[ADDRESSES][INET6_ADDRSTRLEN];
};

static int listen_on(int family, uint16_t *port) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), no = 0;
    struct sockaddr_storage at = {.ss_family = (sa_family_t)family};
    socklen_t length = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (fd >= 0 && family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, length) || listen(fd, 128) ||
        getsockname(fd, (struct sockaddr *)&at, &length)) {
        if (fd >= 0) close(fd);
        return -1;
    }
    *port = ntohs(family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port : ((struct sockaddr_in *)&at)->sin_port);
    return fd;
}

/* Where others may reach this host: all addresses of its interfaces that are up. */
static void addresses_list(struct hub_address *hub) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all)) return;
    for (struct ifaddrs *i = all; i && hub->n < ADDRESSES; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK) continue;
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)i->ifa_addr;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
        bool is_v6 = i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
        if (i->ifa_addr->sa_family != AF_INET && !is_v6) continue;
        const void *address = is_v6 ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr;
        if (inet_ntop(i->ifa_addr->sa_family, address, hub->name[hub->n], INET6_ADDRSTRLEN)) hub->n++;
    }
    freeifaddrs(all);
}

static bool ready(int fd, short events, double until) {
    double left = until - now_s();
    struct pollfd p = {.fd = fd, .events = events};
    return left > 0 && poll(&p, 1, (int)(left * 1000) + 1) > 0;
}

static bool bytes_read(int fd, void *to, size_t bytes, double until) {
    for (size_t got = 0; got < bytes;) {
        ssize_t n = ready(fd, POLLIN, until) ? recv(fd, (char *)to + got, bytes - got, MSG_DONTWAIT) : 0;
        if (n <= 0) return false;
        got += (size_t)n;
    }
    return true;
}

/* Connects to one address, and exchanges the key. -1: it is not the hub. */
static int hub_try(const struct hub_address *hub, const char *name, int rank) {
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(hub->port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(hub->port)};
    bool is_v6 = strchr(name, ':') != NULL;
    if (inet_pton(is_v6 ? AF_INET6 : AF_INET, name, is_v6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr) != 1)
        return -1;
    int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), reason = 0;
    socklen_t length = sizeof reason;
    if (fd < 0) return -1;
    struct {
        char key[KEY];
        int32_t rank;
    } hello = {.rank = rank};
    memcpy(hello.key, hub->key, KEY);
    char answer[KEY];
    double until = now_s() + 3;
    const struct sockaddr *to =
        is_v6 ? (const struct sockaddr *)(const void *)&v6 : (const struct sockaddr *)(const void *)&v4;
    bool ok = connect(fd, to, is_v6 ? sizeof v6 : sizeof v4) == 0 || errno == EINPROGRESS;
    ok = ok && ready(fd, POLLOUT, until) && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &length) && !reason;
    ok = ok && send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
    ok = ok && bytes_read(fd, answer, KEY, now_s() + START_S) && !memcmp(answer, hub->key, KEY);
    if (ok) return fd;
    close(fd);
    return -1;
}

static int hub_connect(const tl_comm *world, const struct hub_address *hub) {
    bool is_here = world->places[0].number == world->places[world->rank].number;
    int fd = is_here ? hub_try(hub, "127.0.0.1", world->rank) : -1;
    for (int i = 0; fd < 0 && i < hub->n; i++) fd = hub_try(hub, hub->name[i], world->rank);
    return fd;
}

/* The hub's part: all ranks come, in any order. */
static bool hub_accept(const tl_comm *world, int listener, const struct hub_address *hub) {
    double until = now_s() + START_S;
    for (int missing = world->size - 1; missing > 0;) {
        struct {
            char key[KEY];
            int32_t rank;
        } hello;
        int fd = ready(listener, POLLIN, until) ? accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd < 0 && now_s() > until) return false;
        if (fd < 0) continue;
        bool is_ours = bytes_read(fd, &hello, sizeof hello, now_s() + 3) && !memcmp(hello.key, hub->key, KEY) &&
                       hello.rank > 0 && hello.rank < world->size && peers[hello.rank].fd < 0;
        if (is_ours && send(fd, hub->key, KEY, MSG_NOSIGNAL) == KEY) peers[hello.rank].fd = fd, missing--;
        else close(fd);
    }
    return true;
}

/* ---- The beginning and the end of a process ---- */

/* Says farewell; runs before MPI is closed. After an error the hub has two seconds to say which rank ended, and to end
 * all others: a launcher would kill them when this process ends, and the hub could say nothing. The hub's answer ends
 * this process, in the other thread. */
static void at_exit(int status, void *unused) {
    static struct packet p = {.kind = PACKET_REPORT, .bytes = sizeof p.report};
    (void)unused;
    if (getpid() != watching_pid) return; /* a fork */
    pthread_mutex_lock(&lock);
    own.is_ended = true;
    own.is_waiting = false;
    own.status = watched->ends_together ? 0 : status; /* nobody need be told then */
    pthread_mutex_unlock(&lock);
    report_take(&p.report);
    if (watched->rank) packet_send(peers[0].fd, &p);
    if (is_normal(own.status)) return;
    fflush(NULL);
    for (int i = 0; i < 20; i++) usleep(100000);
    _exit(status);
}

static bool number_of(const char *name, double *value) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return false;
    *value = number_parse(text, &end);
    return !*end && *value >= 0;
}

/* Numbers of the environment. False: nothing is to be watched. */
static bool environment_read(void) {
    double value;
    if (number_of("TALLY_TIMEOUT", &value) && value > 0) stuck_s = value, is_stuck_given = true;
    if (!number_of("TALLY_WATCH", &value)) return true;
    if (value > 0) silence_s = value;
    return value > 0;
}

static bool peers_new(int n) {
    peers = memory_new((size_t)n * sizeof *peers);
    for (int r = 0; peers && r < n; r++) peers[r] = (struct peer){.fd = -1, .heard = now_s()};
    return peers != NULL;
}

/* All ranks are connected, or all know which is not. */
static bool all_connected(tl_comm *world, bool is_ok, char *error) {
    char mine = is_ok, *all = memory_new((size_t)world->size);
    bool ok = all && comm_gather(world, &mine, all, 1, error);
    for (int r = 1; ok && r < world->size; r++)
        if (!all[r]) {
            snprintf(error, COMM_ERROR,
                     "rank %d on %.30s cannot reach rank 0 on %.30s by TCP; open the ports between them, or set "
                     "TALLY_WATCH=0 to go without a heartbeat",
                     r, world->places[r].host, world->places[0].host);
            ok = false;
        }
    memory_free(all);
    return ok;
}

static bool connect_all(tl_comm *world, char *error) {
    struct hub_address hub = {.n = 0};
    int listener = -1;
    if (world->rank == 0) {
        listener = listen_on(AF_INET6, &hub.port);
        if (listener < 0) listener = listen_on(AF_INET, &hub.port);
        addresses_list(&hub);
        if (getrandom(hub.key, KEY, 0) != KEY) memset(hub.key, 1, KEY);
    }
    if (!comm_share(world, &hub, sizeof hub, error)) return false;
    bool ok = world->rank ? (peers[0].fd = hub_connect(world, &hub)) >= 0
                          : listener >= 0 && hub_accept(world, listener, &hub);
    if (listener >= 0) close(listener);
    return all_connected(world, ok, error);
}

bool watch_begin(tl_comm *world, char *error) {
    if (!environment_read()) return true;
    struct pollfd *fds = memory_new((size_t)world->size * sizeof *fds);
    if (!fds || !peers_new(world->size)) return snprintf(error, COMM_ERROR, "out of memory for a heartbeat"), false;
    if (!connect_all(world, error)) return false;
    forgive(now_s(), world->size, 0);
    watched = world;
    watching_pid = getpid();
    own_since = now_s();
    pthread_t thread;
    int reason = thread_begin(&thread, watch_main, fds);
    if (reason) return snprintf(error, COMM_ERROR, "no thread can be started: %s", strerror(reason)), false;
    pthread_detach(thread);
    on_exit(at_exit, NULL);
    return true;
}
