/* comm.h: groups of processes, and messages between them.
 *
 * A group has `size` processes, its ranks. Messages are carried by a plugin (mpi.c), which is loaded when a launcher
 * has started more than one process; a process alone needs none. A group for a price has a rank and a size but no other
 * processes: ops on meta ask it for both and send nothing, so that one process prices every rank.
 *
 * Which messages a collective op sends is decided above (ops/collective.c), not by the library that carries them: the
 * bytes that each rank sends, and the order of additions, then do not depend on that library.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "tally.h"
#include "tensor/device.h"

enum { COMM_ERROR = 200 }; /* bytes of an error text */

struct comm_functions {
    const char *name; /* of the library that carries messages: "Open MPI" */
    /* Begins to send and receive all of these, in host memory, at once. Two messages between the same two ranks arrive
     * in their order. *begun receives what `test` asks for. False: why is in `error`. */
    bool (*begin)(tl_comm *comm, const struct message *messages, int n, void **begun, char *error);
    /* Moves all messages of the process on. Once *is_done, or if it fails, `begun` is freed. */
    bool (*test)(void *begun, bool *is_done, char *error);
    /* Fills in a group of the ranks that give the same color, ordered by key. All ranks call it. */
    bool (*split)(tl_comm *comm, int color, int key, tl_comm *part, char *error);
    void (*close)(tl_comm *comm);
};

struct tl_comm {
    int rank, size;                         /* rank -1: this process is none of the group's */
    bool is_price;                          /* its other ranks do not exist */
    const struct comm_functions *functions; /* NULL: there is nobody to send to */
    void *own;                              /* the plugin's */
    int *ranks;                             /* the world's ranks of all, or NULL: they are their own numbers */
    const struct comm_place *places;        /* by rank of the world; NULL: all on one host */
    uint64_t id, n_calls, calls_hash;       /* of the collectives that this process has called; watch.c */
    int tag;                                /* of messages: those of another collective do not match */
    bool ends_together;                     /* the world: all ranks know that they end now, with any exit status */
    /* Between the devices of the ranks; link.c */
    tl_device *link_device; /* NULL: not asked for yet */
    void *link;             /* NULL: messages go through the host */
};

/* Where a rank of the world runs. */
struct comm_place {
    char host[64];
    char boot[40]; /* differs between machines of the same name */
    int number;    /* hosts are numbered by their first rank */
};

/* What a rank is in the world. */
static inline int comm_world_rank(const tl_comm *comm, int rank) { return comm->ranks ? comm->ranks[rank] : rank; }

/* What the plugin exports: fills in the group of all processes that were launched together. */
#define COMM_OPEN "tally_comm_open"
typedef bool (*comm_open_fn)(tl_comm *world, char *error);

/* ---- Messages (exchange.c); those to the own rank are not allowed. False: why is in `error`. ---- */

bool comm_exchange(tl_comm *comm, const struct message *messages, int n, char *error);
/* The same in two calls. In between, a thread moves the messages on, and nobody touches their memory. comm_end waits
 * until all are done, and frees it; so it does after an error, too. NULL: why is in `error`. */
struct exchange *comm_begin(tl_comm *comm, const struct message *messages, int n, char *error);
bool comm_end(struct exchange *x, char *error);
bool comm_is_done(const struct exchange *x); /* comm_end will not wait */
/* After an error elsewhere: waits for a few seconds. False: some rank does not take part, and the memory of the
 * messages can never be freed. */
bool comm_abandon(struct exchange *x);

/* Around every other call of the plugin. */
void comm_lock(void);
void comm_unlock(void);

/* Seconds of this process: in which messages were under way, and, of these, in which it waited for them. */
struct comm_times {
    double busy_s, exposed_s;
};
struct comm_times comm_times(void);
struct comm_times comm_times_since(const struct comm_times *before);
void comm_times_add(double busy_s, double exposed_s); /* by a link, whose messages do not pass here */

/* The same bytes of every rank, one after another, in `all`. */
bool comm_gather(tl_comm *comm, const void *mine, void *all, size_t bytes, char *error);
/* Rank 0's bytes, on every rank. */
bool comm_share(tl_comm *comm, void *data, size_t bytes, char *error);
/* The link between the devices of all ranks, opened when all ranks first ask for it together; others, who do not open
 * it, get what was opened before. NULL in *link: there is none, so messages go through the host. False: why is in
 * `error`. */
bool comm_link(tl_comm *comm, tl_device *device, bool may_open, void **link, char *error);
void comm_link_close(tl_comm *comm);
/* Whether a launcher has started this process, perhaps with others. Loads nothing. */
bool comm_is_launched(void);
/* All ranks of the world call it before they end with an error that they all know of: then none of them is taken for
 * one that failed alone. */
void comm_end_together(void);
/* Whether ops on tensors with data can use the group; false: recorded, with the caller's name. */
bool comm_check(const tl_comm *comm, const char *what);

#endif
