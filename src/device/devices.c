/* devices.c: which devices there are. The only file that knows all of them.
 *
 * Devices are opened on first use and never closed. cuda lives in a library of its own, which is looked for when
 * somebody asks for it, so that the same program runs with and without a GPU.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "device/cpu/device.h"
#include "device/cpu/isa.h"
#include "device/meta/device.h"
#include "tensor/pool.h"

#define MAX_DEVICES 32

static tl_device *open_devices[MAX_DEVICES];
static int n_open;
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

void devices_hold(void) { pthread_mutex_lock(&devices_lock); }
void devices_release(void) { pthread_mutex_unlock(&devices_lock); }
tl_device *device_at(int index) { return index >= 0 && index < n_open ? open_devices[index] : NULL; }

bool device_check_cuda(const tl_device *device, const char *what) {
    return device->generation == process_generation() ||
           error_set(TL_ERROR_DEVICE, "%s: %s was opened before fork() and cannot be used in the child", what,
                     device->name);
}

uint64_t device_memory_bytes(const tl_device *device) {
    uint64_t used, total = 0;
    if (device->kind == DEVICE_CPU) return process_memory_bytes();
    return device->functions->used && device->functions->used(device, &used, &total) ? total : 0;
}

/* ---- Opening ---- */

static bool open_cpu(tl_device *d) {
    d->kind = DEVICE_CPU;
    d->target = target_find("cpu");
    d->functions = &cpu_functions;
    struct cpu_isa isa;
    char why[200];
    if (!cpu_isa_choose(getenv("TALLY_ISA"), &isa, why)) return error_set(TL_ERROR_DEVICE, "cpu: %s", why);
    d->kernels = isa.kernels;
    d->isa = isa.name;
    return true;
}

static bool open_meta(tl_device *d, const char *target) {
    d->kind = DEVICE_META;
    d->functions = &meta_functions;
    d->target = target_find(target);
    if (d->target) return true;
    char known[200] = "";
    for (int i = 0; tl_target_name(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", tl_target_name(i));
    return error_set(TL_ERROR_DEVICE, "meta:%s: no such target; there are: %s", target, known);
}

/* The plugin lies beside the library, or where the loader looks. */
static void *plugin_open(char *why, size_t size) {
    char path[4096];
    Dl_info info;
    void *plugin = NULL;
    if (dladdr((void *)(uintptr_t)plugin_open, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        int n = snprintf(path, sizeof path, "%.*slibtally_cuda.so", slash ? (int)(slash - info.dli_fname + 1) : 0,
                         info.dli_fname);
        if (slash && n < (int)sizeof path) plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!plugin) plugin = dlopen("libtally_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!plugin) snprintf(why, size, "%s", dlerror());
    return plugin;
}

static bool open_cuda(tl_device *d, int index) {
    static void *plugin;
    char why[400] = "";
    if (!plugin) plugin = plugin_open(why, sizeof why);
    if (!plugin)
        return error_set(TL_ERROR_DEVICE,
                         "cuda: libtally_cuda.so is not there or does not load (%s); build it with `make cuda`", why);
    device_open_fn open = NULL;
    void *symbol = dlsym(plugin, CUDA_DEVICE_OPEN);
    memcpy(&open, &symbol, sizeof open); /* ISO C has no cast from object to function pointer */
    if (!open) return error_set(TL_ERROR_DEVICE, "cuda: libtally_cuda.so does not offer " CUDA_DEVICE_OPEN);
    if (!open(index, d, why)) return error_set(TL_ERROR_DEVICE, "cuda:%d: %s", index, why);
    d->kind = DEVICE_CUDA;
    d->generation = process_generation();
    if (!d->target) d->target = target_find("h200");
    return true;
}

static bool open_by_name(tl_device *d, const char *name) {
    if (!strcmp(name, "cpu")) return open_cpu(d);
    if (!strcmp(name, "meta:cpu")) return open_meta(d, "cpu");
    if (!strncmp(name, "meta:", 5)) return open_meta(d, name + 5);
    if (!strncmp(name, "cuda:", 5) && name[5]) {
        char *end;
        errno = 0;
        long index = strtol(name + 5, &end, 10);
        if (!*end && !errno && index >= 0 && index < 64) return open_cuda(d, (int)index);
    }
    return error_set(TL_ERROR_DEVICE, "%s: no such device; there are cpu, meta, meta:TARGET, cuda, cuda:N", name);
}

/* With the lock held. */
static tl_device *device_open(const char *name) {
    if (n_open == MAX_DEVICES) {
        error_set(TL_ERROR_DEVICE, "%s: %d devices are open already", name, MAX_DEVICES);
        return NULL;
    }
    tl_device *d = memory_new(sizeof *d);
    if (!d) {
        error_memory(sizeof *d, "a device");
        return NULL;
    }
    memset(d, 0, sizeof *d);
    snprintf(d->name, sizeof d->name, "%s", name);
    if (!open_by_name(d, name) || !(d->pool = pool_new(d))) {
        if (tl_error() == TL_OK) error_memory(sizeof *d, "a pool");
        memory_free(d);
        return NULL;
    }
    snprintf(d->name, sizeof d->name, "%s", name);
    open_devices[n_open++] = d;
    if (device_opened) device_opened(d);
    return d;
}

tl_device *tl_device_find(const char *name) {
    if (!name) {
        error_set(TL_ERROR_USE, "tl_device_find: got NULL instead of a name");
        return NULL;
    }
    const char *full = !strcmp(name, "meta") ? "meta:cpu" : !strcmp(name, "cuda") ? "cuda:0" : name;
    pthread_mutex_lock(&devices_lock);
    tl_device *found = NULL;
    for (int i = 0; i < n_open && !found; i++)
        if (!strcmp(open_devices[i]->name, full)) found = open_devices[i];
    if (!found) found = device_open(full);
    pthread_mutex_unlock(&devices_lock);
    return found;
}

const char *tl_device_name(const tl_device *device) { return device ? device->name : "NULL"; }

bool tl_device_sync(tl_device *device) {
    char error[200] = "";
    if (!device) return error_set(TL_ERROR_USE, "tl_device_sync: got NULL instead of a device");
    if (!device_check(device, "tl_device_sync")) return false;
    return device->functions->sync(device, error) || error_set(TL_ERROR_DEVICE, "%s: %s", device->name, error);
}

void *tl_device_stream(const tl_device *device) {
    if (!device) error_set(TL_ERROR_USE, "tl_device_stream: got NULL instead of a device");
    return device ? device->stream : NULL;
}
