#include "comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/plugin.h"

/* ---- Which launcher, and which plugin ---- */

/* A launcher tells its processes how many they are. Each MPI library has a plugin of its own, since their binary
 * interfaces differ. */
static const struct launcher {
    const char *size; /* environment variable */
    const char *plugin;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "openmpi"},
    {"MPI_LOCALNRANKS", "mpich"}, /* MPICH's and Intel's mpiexec */
    {"PMI_SIZE", "mpich"},
    {"PMIX_RANK", "openmpi"}, /* srun --mpi=pmix */
};
enum { N_LAUNCHERS = sizeof launchers / sizeof *launchers };

/* NULL: this process was not launched together with others. */
static const char *plugin_name(void) {
    const char *wanted = getenv("TALLY_MPI");
    if (wanted && *wanted) return wanted;
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (getenv(launchers[i].size)) return launchers[i].plugin;
    return NULL;
}

static bool plugin_open(const char *name, tl_comm *world) {
    char why[280] = "", error[COMM_ERROR] = "";
    comm_open_fn open = NULL;
    void *plugin = plugin_load(name, true, why, sizeof why); /* Open MPI loads parts of itself that need its symbols */
    if (!plugin || !plugin_symbol(plugin, COMM_OPEN, &open, sizeof open))
        return error_set(TL_ERROR_DEVICE,
                         "comm_world: this process was started by an MPI launcher, and libtally_%.32s.so is not there "
                         "or does not load (%s); build it with `make mpi`",
                         name, why);
    return open(world, error) || error_set(TL_ERROR_DEVICE, "comm_world: %s", error);
}

/* ---- Groups ---- */

tl_comm *tl_comm_world(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tl_comm world;
    pthread_mutex_lock(&lock);
    const char *plugin = world.size ? NULL : plugin_name();
    bool ok = !plugin || plugin_open(plugin, &world);
    if (ok && !world.size) world.size = 1;
    pthread_mutex_unlock(&lock);
    return ok ? &world : NULL;
}

static tl_comm *comm_new(void) {
    tl_comm *comm = memory_new(sizeof *comm);
    if (!comm) return error_memory(sizeof *comm, "a group of processes"), NULL;
    *comm = (tl_comm){.size = 1};
    return comm;
}

tl_comm *tl_comm_price(int rank, int size) {
    if (size < 1 || rank < 0 || rank >= size) {
        error_set(TL_ERROR_USE, "comm_price: rank %d of %d (need 0 to size - 1)", rank, size);
        return NULL;
    }
    tl_comm *comm = comm_new();
    if (comm) *comm = (tl_comm){.rank = rank, .size = size, .is_price = true};
    return comm;
}

tl_comm *tl_comm_split(tl_comm *comm, int color, int key) {
    char error[COMM_ERROR] = "";
    if (!comm_check(comm, "comm_split")) return NULL;
    tl_comm *part = comm_new();
    if (!part || !comm->functions) return part;
    if (comm->functions->split(comm, color, key, part, error)) return part;
    memory_free(part);
    error_set(TL_ERROR_DEVICE, "comm_split: %s", error);
    return NULL;
}

void tl_comm_free(tl_comm *comm) {
    if (!comm || comm == tl_comm_world()) return;
    comm_link_close(comm);
    if (comm->functions) comm->functions->close(comm);
    memory_free(comm);
}

int tl_comm_rank(const tl_comm *comm) { return comm ? comm->rank : 0; }
int tl_comm_size(const tl_comm *comm) { return comm ? comm->size : 1; }

/* ---- Messages ---- */

bool comm_check(const tl_comm *comm, const char *what) {
    if (!comm) return error_set(TL_ERROR_USE, "%s: got NULL instead of a group of processes", what);
    if (comm->is_price)
        return error_set(TL_ERROR_USE, "%s: a group for a price has no other processes (need tensors on meta)", what);
    return true;
}

bool comm_exchange(tl_comm *comm, const struct message *messages, int n, char *error) {
    return n == 0 || comm->functions->exchange(comm, messages, n, error);
}

/* In round k every rank hears from the one 2^k before it, and so, after all rounds, has heard from all. */
bool tl_comm_barrier(tl_comm *comm) {
    char error[COMM_ERROR] = "";
    bool ok = comm_check(comm, "comm_barrier");
    for (int step = 1; ok && step < comm->size; step *= 2) {
        char sent = 0, received;
        const struct message both[] = {{(comm->rank + step) % comm->size, true, &sent, 1},
                                       {(comm->rank + comm->size - step) % comm->size, false, &received, 1}};
        if (!comm_exchange(comm, both, 2, error)) ok = error_set(TL_ERROR_DEVICE, "comm_barrier: %s", error);
    }
    return ok;
}
