/* rendezvous.c: MPI among processes that torchrun has started, each knowing no more than RANK, WORLD_SIZE and where
 * rank 0 is: MASTER_ADDR and MASTER_PORT.
 *
 * An MPI launcher does two things: it starts processes, and it keeps a table through which they tell each other their
 * addresses (PMI). torchrun has done the first; rank 0 does the second, in a thread. It speaks PMI-1, lines of text
 * that MPICH's MPI_Init sends to the address in PMI_PORT. Messages between ranks travel as always. Open MPI cannot be
 * brought up like this: it wants a PMIx server.
 *
 * torchrun's own agent often listens on MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE); then it is the port after it.
 */
#include "comm/rendezvous.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tally.h"

enum { LINE = 2048, KEY = 64, VALUE = 1024 };
static const double START_S = 300, END_S = 5;

static struct {
    int rank, size, local, port;
    const char *host;
} job;

/* ---- torchrun's environment ---- */

static int number_of(const char *name, int otherwise) {
    const char *text = getenv(name);
    char *end;
    long value = text ? strtol(text, &end, 10) : otherwise;
    return text && (*end || value < 0 || value > 1 << 24) ? otherwise : (int)value;
}

bool rendezvous_is_due(void) {
    return getenv("MASTER_ADDR") && number_of("RANK", -1) >= 0 && number_of("WORLD_SIZE", 0) > 1;
}

static bool job_read(void) {
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    job.rank = number_of("RANK", -1);
    job.size = number_of("WORLD_SIZE", 0);
    job.local = number_of("LOCAL_WORLD_SIZE", 0);
    job.port = number_of("MASTER_PORT", 0) + (agent && !strcmp(agent, "True"));
    job.host = getenv("MASTER_ADDR");
    if (job.rank < job.size && job.port > 0 && job.port < 65536) return true;
    return error_set(TL_ERROR_USE,
                     "comm_world: RANK=%d WORLD_SIZE=%d MASTER_PORT=%d (need a rank below the size, and a free port of "
                     "rank 0's machine)",
                     job.rank, job.size, number_of("MASTER_PORT", 0));
}

/* ---- The table: rank 0's thread ---- */

struct client {
    int fd; /* -1: not there, or gone */
    bool is_rank;
    size_t n;
    char line[LINE];
};
struct entry {
    char key[KEY], value[VALUE];
};
static struct {
    int listener, n_clients, n_ranks, n_gone, n_waiting; /* ranks that have come, have gone, wait at a barrier */
    struct client *clients;
    struct entry *entries;
    size_t n_entries, capacity;
    pthread_mutex_t lock; /* of n_gone */
} table = {.listener = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* The value of a word "name=value" of a line, "" if there is none. */
static const char *word(const char *line, const char *name, char *value, size_t size) {
    size_t length = strlen(name), n;
    *value = 0;
    for (const char *at = line; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (strncmp(at, name, length) || at[length] != '=') continue;
        n = strcspn(at + length + 1, " ");
        if (n < size) memcpy(value, at + length + 1, n), value[n] = 0;
        break;
    }
    return value;
}

static void answer(int fd, const char *text) { (void)!send(fd, text, strlen(text), MSG_NOSIGNAL); }

static struct entry *entry_find(const char *key) {
    for (size_t i = 0; i < table.n_entries; i++)
        if (!strcmp(table.entries[i].key, key)) return &table.entries[i];
    return NULL;
}

static void entry_put(int fd, const char *line) {
    char key[KEY], value[VALUE];
    bool ok = *word(line, "key", key, sizeof key) && *word(line, "value", value, sizeof value) &&
              memory_grow((void **)&table.entries, &table.capacity, table.n_entries + 1, sizeof *table.entries);
    if (ok) {
        struct entry *e = &table.entries[table.n_entries++];
        memcpy(e->key, key, sizeof key);
        memcpy(e->value, value, sizeof value);
    }
    answer(fd, ok ? "cmd=put_result rc=0 msg=success\n" : "cmd=put_result rc=-1 msg=no_room\n");
}

/* Which ranks share a machine: torchrun numbers them one machine after another. */
static bool mapping_print(char value[VALUE]) {
    if (job.local < 1 || job.size % job.local) return false;
    snprintf(value, VALUE, "(vector,(0,%d,%d))", job.size / job.local, job.local);
    return true;
}

static void entry_get(int fd, const char *line) {
    char key[KEY], text[VALUE + 80], mapping[VALUE];
    const struct entry *e = entry_find(word(line, "key", key, sizeof key));
    const char *value = e ? e->value : !strcmp(key, "PMI_process_mapping") && mapping_print(mapping) ? mapping : NULL;
    if (value) snprintf(text, sizeof text, "cmd=get_result rc=0 msg=success value=%s\n", value);
    answer(fd, value ? text : "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
}

static void rank_come(struct client *c, const char *line) {
    char id[16], text[160];
    c->is_rank = true;
    table.n_ranks++;
    snprintf(text, sizeof text, "cmd=initack rc=0\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n", job.size,
             atoi(word(line, "pmiid", id, sizeof id)));
    answer(c->fd, text);
}

static void barrier_come(void) {
    if (++table.n_waiting < job.size) return;
    table.n_waiting = 0;
    for (int i = 0; i < table.n_clients; i++)
        if (table.clients[i].is_rank && table.clients[i].fd >= 0) answer(table.clients[i].fd, "cmd=barrier_out rc=0\n");
}

static void line_take(struct client *c, const char *line) {
    char command[32], text[80];
    word(line, "cmd", command, sizeof command);
    snprintf(text, sizeof text, "cmd=universe_size rc=0 size=%d\n", job.size);
    if (!strcmp(command, "initack")) rank_come(c, line);
    else if (!strcmp(command, "init")) answer(c->fd, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (!strcmp(command, "get_maxes")) answer(c->fd, "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024\n");
    else if (!strcmp(command, "get_appnum")) answer(c->fd, "cmd=appnum appnum=0\n");
    else if (!strcmp(command, "get_universe_size")) answer(c->fd, text);
    else if (!strcmp(command, "get_my_kvsname")) answer(c->fd, "cmd=my_kvsname kvsname=tally\n");
    else if (!strcmp(command, "put")) entry_put(c->fd, line);
    else if (!strcmp(command, "get")) entry_get(c->fd, line);
    else if (!strcmp(command, "barrier_in")) barrier_come();
    else if (!strcmp(command, "finalize")) answer(c->fd, "cmd=finalize_ack rc=0\n");
}

static void client_close(struct client *c) {
    close(c->fd);
    c->fd = -1;
    pthread_mutex_lock(&table.lock);
    table.n_gone += c->is_rank;
    pthread_mutex_unlock(&table.lock);
}

static void client_read(struct client *c) {
    ssize_t got = recv(c->fd, c->line + c->n, LINE - 1 - c->n, 0);
    if (got <= 0) {
        client_close(c);
        return;
    }
    c->n += (size_t)got;
    c->line[c->n] = 0;
    for (char *end; (end = strchr(c->line, '\n'));) {
        *end = 0;
        line_take(c, c->line);
        c->n -= (size_t)(end + 1 - c->line);
        memmove(c->line, end + 1, c->n + 1);
    }
    if (c->n >= LINE - 1) client_close(c); /* no rank says such a long line */
}

static void client_accept(void) {
    int fd = accept4(table.listener, NULL, NULL, SOCK_CLOEXEC), i = 0;
    while (i < table.n_clients && table.clients[i].fd >= 0) i++;
    if (fd >= 0 && i < table.n_clients && !table.clients[i].is_rank) table.clients[i] = (struct client){.fd = fd};
    else if (fd >= 0) close(fd);
}

static void *table_main(void *fds_given) {
    struct pollfd *fds = fds_given;
    while (table.n_gone < job.size) {
        for (int i = 0; i < table.n_clients; i++) fds[i] = (struct pollfd){.fd = table.clients[i].fd, .events = POLLIN};
        fds[table.n_clients] = (struct pollfd){.fd = table.listener, .events = POLLIN};
        poll(fds, (nfds_t)table.n_clients + 1, -1);
        for (int i = 0; i < table.n_clients; i++)
            if (fds[i].fd >= 0 && fds[i].revents) client_read(&table.clients[i]);
        if (fds[table.n_clients].revents) client_accept();
    }
    return NULL;
}

/* The other ranks say goodbye to the table after rank 0's MPI has ended. */
static void at_exit(int status, void *unused) {
    bool is_over = false;
    (void)status, (void)unused;
    for (double until = now_s() + END_S; !is_over && now_s() < until; usleep(5000)) {
        pthread_mutex_lock(&table.lock);
        is_over = table.n_gone >= job.size;
        pthread_mutex_unlock(&table.lock);
    }
}

/* ---- Meeting ---- */

static struct addrinfo *addresses(void) {
    struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", job.port);
    if (getaddrinfo(job.host, port, &wanted, &found)) return NULL;
    return found;
}

/* On the address that the others are given, not on all; on all where it is another machine's name for this one. */
static int listen_at(const struct addrinfo *at) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_port = ((const struct sockaddr_in *)(const void *)at->ai_addr)->sin_port};
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if ((!bind(fd, at->ai_addr, at->ai_addrlen) || !bind(fd, (struct sockaddr *)&any, sizeof any)) && !listen(fd, 512))
        return fd;
    close(fd);
    return -1;
}

static bool table_begin(const struct addrinfo *at) {
    pthread_t thread;
    table.n_clients = 3 * job.size; /* ranks look whether the port is open before they come */
    table.clients = memory_new((size_t)table.n_clients * sizeof *table.clients);
    struct pollfd *fds = memory_new((size_t)(table.n_clients + 1) * sizeof *fds);
    if (!table.clients || !fds) return error_memory((size_t)table.n_clients * sizeof *table.clients, "a rendezvous");
    for (int i = 0; i < table.n_clients; i++) table.clients[i] = (struct client){.fd = -1};
    table.listener = listen_at(at);
    if (table.listener < 0)
        return error_set(TL_ERROR_DEVICE,
                         "comm_world: rank 0 cannot listen on %.60s:%d: the port is taken (torchrun --master-port "
                         "chooses another one)",
                         job.host, job.port);
    if (thread_begin(&thread, table_main, fds))
        return error_set(TL_ERROR_SYSTEM, "comm_world: no thread can be started for the rendezvous");
    pthread_detach(thread);
    on_exit(at_exit, NULL); /* before MPI's own, so it runs after that */
    return true;
}

/* Until rank 0 listens. */
static bool table_await(const struct addrinfo *at) {
    for (double until = now_s() + START_S; now_s() < until; usleep(50000)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool ok = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0;
        if (fd >= 0) close(fd);
        if (ok) return true;
    }
    return error_set(TL_ERROR_DEVICE,
                     "comm_world: rank %d has waited for %.0f s for rank 0 at %.60s:%d (is it started, and is the port "
                     "open?)",
                     job.rank, START_S, job.host, job.port);
}

bool rendezvous_begin(void) {
    char text[160];
    if (!job_read()) return false;
    struct addrinfo *at = addresses();
    if (!at) return error_set(TL_ERROR_USE, "comm_world: MASTER_ADDR=%.60s has no IPv4 address", job.host);
    bool ok = job.rank ? table_await(at) : table_begin(at);
    freeaddrinfo(at);
    snprintf(text, sizeof text, "%.120s:%d", job.host, job.port);
    setenv("PMI_PORT", text, 1);
    snprintf(text, sizeof text, "%d", job.rank);
    setenv("PMI_ID", text, 1);
    return ok;
}

void rendezvous_end(void) {
    unsetenv("PMI_PORT");
    unsetenv("PMI_ID");
}
