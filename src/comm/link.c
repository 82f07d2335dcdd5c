/* link.c: whether a group's messages go from device to device, or through the host.
 *
 * All ranks decide alike, since they decide from the same words: what each rank says of its device. A link needs a
 * device of its own for each rank. Ranks that share one, which NCCL refuses, send through the host, unless the
 * environment tells NCCL to allow it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/comm.h"

/* What a rank says of itself. Zeroed before it is filled, so that equal devices are equal bytes. */
struct word {
    char host[64];
    char device[LINK_DEVICE]; /* "": it has no link */
    bool may_share;
};

static void word_fill(struct word *word, tl_device *device) {
    char error[COMM_ERROR] = "";
    const char *off = getenv("TALLY_NCCL"), *host = getenv("NCCL_HOSTID");
    const char *share = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    memset(word, 0, sizeof *word);
    if (!device->functions->link || (off && !strcmp(off, "0"))) return;
    if (host && *host) snprintf(word->host, sizeof word->host, "%s", host); /* NCCL takes it for the host's name, too */
    else gethostname(word->host, sizeof word->host - 1);
    word->may_share = share && !strcmp(share, "1");
    if (!device->functions->link->device(device, word->device, error)) word->device[0] = 0;
}

static bool is_linkable(const struct word *words, int n) {
    for (int i = 0; i < n; i++) {
        if (!words[i].device[0]) return false;
        for (int k = 0; k < i && !words[i].may_share; k++)
            if (!strcmp(words[i].host, words[k].host) && !strcmp(words[i].device, words[k].device)) return false;
    }
    return true;
}

static bool link_open(tl_comm *comm, tl_device *device, char *error) {
    const struct link_functions *functions = device->functions->link;
    struct word mine, *words = memory_new((size_t)comm->size * sizeof *words);
    if (!words) return snprintf(error, COMM_ERROR, "out of memory for a link of %d ranks", comm->size), false;
    word_fill(&mine, device);
    bool ok = comm_gather(comm, &mine, words, sizeof mine, error), is_wanted = ok && is_linkable(words, comm->size);
    memory_free(words);
    char key[LINK_KEY] = "";
    if (!is_wanted) return ok;
    return (comm->rank || functions->key(key, error)) && comm_share(comm, key, LINK_KEY, error) &&
           functions->open(device, key, comm->rank, comm->size, &comm->link, error);
}

bool comm_link(tl_comm *comm, tl_device *device, bool may_open, void **link, char *error) {
    *link = NULL;
    if (comm->size == 1 || !device->functions->link) return true;
    if (!comm->link_device && may_open) {
        if (!link_open(comm, device, error)) return false;
        comm->link_device = device;
    }
    if (comm->link_device == device) *link = comm->link;
    return true;
}

void comm_link_close(tl_comm *comm) {
    if (comm->link) comm->link_device->functions->link->close(comm->link_device, comm->link);
    comm->link = NULL;
}
