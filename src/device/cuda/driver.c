/* driver.c: opening a GPU. The kernels are in a separate library, libtally_cuda.so, which is loaded on first use, so
 * that the same program runs with and without a GPU. This file is part of libtally. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/plugin.h"
#include "base/process.h"
#include "device/cuda/rules.h"

static bool symbol_find(void *plugin, const char *name, void *function, size_t bytes, char *error) {
    if (plugin_symbol(plugin, name, function, bytes)) return true;
    snprintf(error, 400, "libtally_cuda.so does not offer %s; build it with `make cuda`", name);
    return false;
}

/* The plugin and the library share structs, so that both must be of one version. */
static bool is_same_version(void *plugin, char *error) {
    cuda_version_fn version;
    if (!symbol_find(plugin, CUDA_VERSION_OF, &version, sizeof version, error)) return false;
    if (strcmp(version(), TL_VERSION) == 0) return true;
    snprintf(error, 400, "libtally_cuda.so is of version %.40s and this is %s: install both of one version", version(),
             TL_VERSION);
    return false;
}

/* Called with the lock of devices held: one thread at a time. */
static void *plugin_of(char *error) {
    static void *plugin;
    char why[280] = "";
    if (!plugin) plugin = plugin_load("cuda", false, why, sizeof why);
    if (!plugin)
        snprintf(error, 400,
                 "libtally_cuda.so is not there or does not load (%s); build it with `make cuda`, or install the wheel "
                 "tally-cuda",
                 why);
    return plugin && is_same_version(plugin, error) ? plugin : NULL;
}

static bool plugin_open(cuda_card_fn *card, cuda_open_fn *open, char *error) {
    void *plugin = plugin_of(error);
    return plugin && symbol_find(plugin, CUDA_CARD, card, sizeof *card, error) &&
           symbol_find(plugin, CUDA_OPEN, open, sizeof *open, error);
}

/* A card that is not in the table gets its own target, which lives as long as the process, like its device. */
struct own_target {
    struct target target;
    struct cuda_card card;
    char name[32];
};

static const struct target *target_of(const struct cuda_card *card, char *error) {
    struct own_target *own = memory_new(sizeof *own);
    if (!own) {
        snprintf(error, 400, "out of memory for the target of a card");
        return NULL;
    }
    own->card = *card;
    const struct target *t = cuda_target_of(&own->card, &own->target, own->name);
    if (t != &own->target) memory_free(own);
    return t;
}

static bool cuda_open(tl_device *d, int index, const struct target *as, char *error) {
    cuda_card_fn card_of;
    cuda_open_fn open;
    struct cuda_card card;
    if (!plugin_open(&card_of, &open, error) || !card_of(index, &card, error)) return false;
    if (card.capability < CUDA_LEAST_CAPABILITY) {
        snprintf(error, 400, "%.90s has compute capability %d.%d (need %d.%d)", card.name, card.capability / 10,
                 card.capability % 10, CUDA_LEAST_CAPABILITY / 10, CUDA_LEAST_CAPABILITY % 10);
        return false;
    }
    if (as && !cuda_card_can_be(&card, as, error)) return false;
    d->target = as ? as : target_of(&card, error);
    if (!d->target || !open(index, d, error)) {
        if (d->target && !as && d->target->origin == TARGET_DRIVER) memory_free((void *)(uintptr_t)d->target);
        return false;
    }
    d->is_lost_in_fork = true;
    d->generation = process_generation();
    return true;
}

static int cuda_count(void) {
    char error[400];
    cuda_count_fn count;
    void *plugin = plugin_of(error);
    return plugin && plugin_symbol(plugin, CUDA_COUNT, &count, sizeof count) ? count() : 0;
}

const struct device_driver cuda_driver = {
    .name = "cuda", .is_numbered = true, .targets = cuda_targets, .open = cuda_open, .count = cuda_count};
