#include "comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "device/devices.h"
#include "comm/rendezvous.h"
#include "comm/watch.h"

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
static const char *launchers_plugin(void) {
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (getenv(launchers[i].size)) return launchers[i].plugin;
    return NULL;
}
static const char *plugin_name(void) {
    const char *wanted = getenv("TALLY_MPI");
    return wanted && *wanted ? wanted : launchers_plugin();
}

bool comm_is_launched(void) { return launchers_plugin() || rendezvous_is_due(); }

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

static void comm_close(tl_comm *comm) {
    comm_link_close(comm);
    comm_lock();
    if (comm->functions) comm->functions->close(comm);
    comm_unlock();
    memory_free(comm->ranks);
}

/* torchrun starts processes without MPI; MPICH can be brought up among them. */
static bool torchrun_open(tl_comm *world) {
    char why[280] = "";
    const char *size = getenv("WORLD_SIZE"), *rank = getenv("RANK"), *wanted = getenv("TALLY_MPI");
    bool is_other = wanted && *wanted && strcmp(wanted, "mpich");
    if (is_other || !plugin_load("mpich", true, why, sizeof why))
        return error_set(TL_ERROR_USE,
                         "comm_world: this is rank %.8s of %.8s by torchrun's environment, and only MPICH can be "
                         "brought up there (%.120s); `apt install libmpich-dev && make mpi`, or type `tally launch -n "
                         "%.8s -- PROGRAM` instead of torchrun, mpirun or srun on several machines",
                         rank, size, is_other ? "TALLY_MPI names another" : why, size);
    if (!rendezvous_begin()) return false;
    bool ok = plugin_open("mpich", world);
    rendezvous_end();
    return ok;
}

/* ---- Hosts ---- */

static void place_of_this_process(struct comm_place *place) {
    *place = (struct comm_place){.host = "?"};
    gethostname(place->host, sizeof place->host - 1);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && !fgets(place->boot, sizeof place->boot, f)) place->boot[0] = 0;
    if (f) fclose(f);
}

/* Every rank learns where all are, and watches them. */
static bool world_begin(tl_comm *world) {
    struct comm_place mine, *all = memory_new((size_t)world->size * sizeof *all);
    char error[COMM_ERROR] = "";
    if (!all) return error_memory((size_t)world->size * sizeof *all, "the hosts of all processes");
    place_of_this_process(&mine);
    world->places = all;
    if (!comm_gather(world, &mine, all, sizeof mine, error)) return error_set(TL_ERROR_DEVICE, "comm_world: %s", error);
    for (int i = 0, n = 0; i < world->size; i++) {
        int k = 0;
        while (k < i && (strcmp(all[k].host, all[i].host) || strcmp(all[k].boot, all[i].boot))) k++;
        all[i].number = k < i ? all[k].number : n++;
    }
    return watch_begin(world, error) || error_set(TL_ERROR_DEVICE, "comm_world: %s", error);
}

int tl_comm_host(const tl_comm *comm, int rank) {
    if (rank < 0 || rank >= tl_comm_size(comm)) return -1;
    return comm && comm->places ? comm->places[comm_world_rank(comm, rank)].number : 0;
}

/* How many of the first `n` ranks are on this process's host. */
static int neighbours(const tl_comm *comm, int n) {
    int found = 0, host = comm ? tl_comm_host(comm, comm->rank) : 0;
    for (int i = 0; i < n; i++) found += tl_comm_host(comm, i) == host;
    return found;
}
int tl_comm_local_rank(const tl_comm *comm) { return neighbours(comm, tl_comm_rank(comm)); }
int tl_comm_local_size(const tl_comm *comm) { return neighbours(comm, tl_comm_size(comm)); }

/* ---- Groups ---- */

tl_comm *tl_comm_world(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tl_comm world;
    static bool is_ready;
    pthread_mutex_lock(&lock);
    const char *plugin = is_ready || world.size ? NULL : plugin_name();
    bool is_torchrun = !is_ready && !world.size && !launchers_plugin() && rendezvous_is_due();
    bool ok = is_ready || ((is_torchrun ? torchrun_open(&world) : !plugin || plugin_open(plugin, &world)) &&
                           (world.size < 2 || world_begin(&world)));
    if (ok && !world.size) world.size = 1;
    if (ok && !is_ready && world.size > 1) devices_set_number(tl_comm_local_rank(&world));
    is_ready = ok;
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

static bool ranks_new(tl_comm *part) {
    size_t bytes = (size_t)part->size * sizeof *part->ranks;
    part->ranks = memory_new(bytes);
    return part->ranks || error_memory(bytes, "the ranks of a group");
}

/* A group through the plugin. */
static bool part_open(tl_comm *comm, int color, int key, tl_comm *part, const char *what) {
    char error[COMM_ERROR] = "";
    int mine = comm_world_rank(comm, comm->rank);
    part->places = comm->places;
    watch_enter(comm, what, 0, 0, -1);
    comm_lock();
    bool ok = comm->functions->split(comm, color, key, part, error);
    comm_unlock();
    bool has_room = !ok || ranks_new(part);
    ok = ok && has_room && comm_gather(part, &mine, part->ranks, sizeof mine, error);
    watch_leave(comm);
    if (ok) part->id = watch_group_id(comm, part->ranks, part->size);
    return ok || (has_room && error_set(TL_ERROR_DEVICE, "%s: %s", what, error));
}

tl_comm *tl_comm_split(tl_comm *comm, int color, int key) {
    if (!comm_check(comm, "comm_split")) return NULL;
    tl_comm *part = comm_new();
    if (!part || !comm->functions || part_open(comm, color, key, part, "comm_split")) return part;
    tl_comm_free(part);
    return NULL;
}

/* The place of a rank in the list, -1 for none; -2 if the list is no group. */
static int listed(const tl_comm *comm, const int *ranks, int n) {
    int place = -1;
    if (!ranks || n < 1 || n > comm->size)
        return error_set(TL_ERROR_USE, "comm_group: %d ranks of a group of %d", n, comm->size), -2;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size)
            return error_set(TL_ERROR_USE, "comm_group: rank %d (need 0 to %d)", ranks[i], comm->size - 1), -2;
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return error_set(TL_ERROR_USE, "comm_group: rank %d is listed twice", ranks[i]), -2;
        if (ranks[i] == comm->rank) place = i;
    }
    return place;
}

tl_comm *tl_comm_group(tl_comm *comm, const int *ranks, int n) {
    if (!comm) return error_set(TL_ERROR_USE, "comm_group: got NULL instead of a group of processes"), NULL;
    int place = listed(comm, ranks, n);
    tl_comm *part = place < -1 || (!comm->is_price && !comm_check(comm, "comm_group")) ? NULL : comm_new();
    if (!part) return NULL;
    bool ok = comm->functions ? part_open(comm, place < 0, place < 0 ? comm->rank : place, part, "comm_group") : true;
    if (ok && (place < 0 || !comm->functions)) { /* through the plugin, the others got a group of all others */
        comm_close(part);
        *part = (tl_comm){.rank = place, .size = n, .is_price = comm->is_price, .places = comm->places};
        ok = ranks_new(part);
        for (int i = 0; ok && i < n; i++) part->ranks[i] = comm_world_rank(comm, ranks[i]);
    }
    if (ok) return part;
    tl_comm_free(part);
    return NULL;
}

void tl_comm_free(tl_comm *comm) {
    if (!comm || comm == tl_comm_world()) return;
    comm_close(comm);
    memory_free(comm);
}

int tl_comm_rank(const tl_comm *comm) { return comm ? comm->rank : 0; }
int tl_comm_size(const tl_comm *comm) { return comm ? comm->size : 1; }

/* ---- Messages ---- */

bool comm_check(const tl_comm *comm, const char *what) {
    if (!comm) return error_set(TL_ERROR_USE, "%s: got NULL instead of a group of processes", what);
    if (comm->is_price)
        return error_set(TL_ERROR_USE, "%s: a group for a price has no other processes (need tensors on meta)", what);
    return comm->rank >= 0 ||
           error_set(TL_ERROR_USE, "%s: this process is none of the %d of the group", what, comm->size);
}

bool comm_gather(tl_comm *comm, const void *mine, void *all, size_t bytes, char *error) {
    struct message *messages = memory_new(2 * (size_t)comm->size * sizeof *messages);
    char *place = (char *)all + (size_t)comm->rank * bytes;
    int n = 0;
    if (!messages) return snprintf(error, COMM_ERROR, "out of memory for messages to %d ranks", comm->size), false;
    memcpy(place, mine, bytes);
    for (int k = 1; k < comm->size; k++) {
        int to = (comm->rank + k) % comm->size, from = (comm->rank + comm->size - k) % comm->size;
        messages[n++] = (struct message){to, true, place, bytes};
        messages[n++] = (struct message){from, false, (char *)all + (size_t)from * bytes, bytes};
    }
    bool ok = comm_exchange(comm, messages, n, error);
    memory_free(messages);
    return ok;
}

bool comm_share(tl_comm *comm, void *data, size_t bytes, char *error) {
    struct message *messages = memory_new((size_t)comm->size * sizeof *messages);
    if (!messages) return snprintf(error, COMM_ERROR, "out of memory for messages to %d ranks", comm->size), false;
    int n = 0;
    if (comm->rank) messages[n++] = (struct message){0, false, data, bytes};
    for (int r = 1; !comm->rank && r < comm->size; r++) messages[n++] = (struct message){r, true, data, bytes};
    bool ok = comm_exchange(comm, messages, n, error);
    memory_free(messages);
    return ok;
}

/* In round k every rank hears from the one 2^k before it, and so, after all rounds, has heard from all. */
bool tl_comm_barrier(tl_comm *comm) {
    char error[COMM_ERROR] = "";
    bool ok = comm_check(comm, "comm_barrier");
    if (ok) watch_enter(comm, "barrier", 0, 0, -1);
    for (int step = 1; ok && step < comm->size; step *= 2) {
        char sent = 0, received;
        const struct message both[] = {{(comm->rank + step) % comm->size, true, &sent, 1},
                                       {(comm->rank + comm->size - step) % comm->size, false, &received, 1}};
        if (!comm_exchange(comm, both, 2, error)) ok = error_set(TL_ERROR_DEVICE, "comm_barrier: %s", error);
    }
    if (ok) watch_leave(comm);
    return ok;
}

void comm_end_together(void) {
    tl_comm *world = tl_comm_world();
    if (world && world->size > 1 && tl_comm_barrier(world)) world->ends_together = true;
}
