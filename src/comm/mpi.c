/* mpi.c: messages through MPI. Built as a plugin, once for each MPI library that is installed, and loaded by comm.c
 * where a launcher has started several processes. It uses point-to-point messages only. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"

/* Counts are int in MPI, so a long message is several. */
enum { MOST_BYTES = 1 << 30 };

static bool fail(int code, const char *what, char *error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    snprintf(error, COMM_ERROR, "%s: %.150s", what, text);
    return false;
}

/* ---- Messages ---- */

static int parts_of(const struct message *m) {
    return (int)(m->bytes / MOST_BYTES) + (m->bytes % MOST_BYTES != 0 || m->bytes == 0);
}

static int part_begin(MPI_Comm comm, int tag, const struct message *m, int part, MPI_Request *request) {
    size_t from = (size_t)part * MOST_BYTES, left = m->bytes - from;
    int bytes = (int)(left < MOST_BYTES ? left : MOST_BYTES);
    char *data = (char *)m->data + from;
    return m->is_sent ? MPI_Isend(data, bytes, MPI_BYTE, m->peer, tag, comm, request)
                      : MPI_Irecv(data, bytes, MPI_BYTE, m->peer, tag, comm, request);
}

struct begun {
    int n;
    MPI_Request requests[];
};

static bool mpi_begin(tl_comm *comm, const struct message *messages, int n, void **begun, char *error) {
    MPI_Comm own = *(MPI_Comm *)comm->own;
    size_t total = 0;
    for (int i = 0; i < n; i++) total += (size_t)parts_of(&messages[i]);
    struct begun *b = malloc(sizeof *b + total * sizeof *b->requests);
    if (!b) return snprintf(error, COMM_ERROR, "out of memory for %zu messages", total), false;
    int code = MPI_SUCCESS;
    b->n = 0;
    for (int sends = 0; sends < 2; sends++) /* what is expected first: a message that finds its place is not copied */
        for (int i = 0; i < n; i++)
            for (int k = 0; code == MPI_SUCCESS && messages[i].is_sent == sends && k < parts_of(&messages[i]); k++)
                code = part_begin(own, comm->tag, &messages[i], k, &b->requests[b->n++]);
    *begun = b;
    if (code == MPI_SUCCESS) return true;
    free(b);
    return fail(code, "a message", error);
}

static bool mpi_test(void *begun, bool *is_done, char *error) {
    struct begun *b = begun;
    int all = 0, code = MPI_Testall(b->n, b->requests, &all, MPI_STATUSES_IGNORE);
    *is_done = all;
    if (code == MPI_SUCCESS && !all) return true;
    free(b);
    return code == MPI_SUCCESS || fail(code, "a message", error);
}

/* ---- Groups ---- */

static const struct comm_functions functions;

static bool comm_fill(tl_comm *comm, MPI_Comm mpi, char *error) {
    MPI_Comm *own = malloc(sizeof *own);
    if (!own) return snprintf(error, COMM_ERROR, "out of memory"), false;
    *own = mpi;
    MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    MPI_Comm_rank(mpi, &comm->rank);
    MPI_Comm_size(mpi, &comm->size);
    comm->functions = &functions;
    comm->own = own;
    return true;
}

static bool mpi_split(tl_comm *comm, int color, int key, tl_comm *part, char *error) {
    MPI_Comm mpi;
    int code = MPI_Comm_split(*(MPI_Comm *)comm->own, color, key, &mpi);
    return code == MPI_SUCCESS ? comm_fill(part, mpi, error) : fail(code, "MPI_Comm_split", error);
}

static void mpi_close(tl_comm *comm) {
    MPI_Comm_free(comm->own);
    free(comm->own);
}

static const struct comm_functions functions = {"MPI", mpi_begin, mpi_test, mpi_split, mpi_close};

/* MPI_Finalize need not wait for all ranks, and this process has a part in their heartbeat until they end too. */
static void finalize(void) {
    MPI_Request all;
    int is_done = 0, code = MPI_Ibarrier(MPI_COMM_WORLD, &all);
    while (code == MPI_SUCCESS && !is_done) {
        code = MPI_Test(&all, &is_done, MPI_STATUS_IGNORE);
        if (!is_done) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    MPI_Finalize();
}

static const tl_comm *opened; /* the world */

/* A rank that ends for a reason of its own ends the others instead, which would otherwise wait for its messages. 75 and
 * 130: all ranks were asked to stop. */
static void at_exit(int status, void *unused) {
    int is_over;
    (void)unused;
    MPI_Finalized(&is_over);
    if (is_over) return;
    if (status == 0 || status == 75 || status == 130 || opened->ends_together) finalize();
    else MPI_Abort(MPI_COMM_WORLD, status);
}

bool tally_comm_open(tl_comm *world, char *error);
__attribute__((visibility("default"))) bool tally_comm_open(tl_comm *world, char *error) {
    int is_begun, given;
    MPI_Initialized(&is_begun);
    if (!is_begun) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
        if (code != MPI_SUCCESS) return fail(code, "MPI_Init", error);
        opened = world;
        on_exit(at_exit, NULL);
    }
    return comm_fill(world, MPI_COMM_WORLD, error);
}
