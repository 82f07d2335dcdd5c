/* devices.c: which devices there are. The only file that knows all of them.
 *
 * Devices are opened on first use and never closed. A kind of device is one row of `drivers`; meta is none of them:
 * it has no kernels, and stands in for any target of any kind.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "device/cpu/device.h"
#include "device/cuda/rules.h"
#include "device/devices.h"
#include "device/meta/device.h"
#include "tensor/pool.h"

#define MAX_DRIVERS 8
static const struct device_driver *drivers[MAX_DRIVERS + 1] = {&cpu_driver, &cuda_driver}; /* NULL after the last */

static tl_device *open_devices[DEVICES_MAX];
static int n_open;
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
void (*device_opened)(tl_device *device);

void devices_hold(void) { pthread_mutex_lock(&devices_lock); }
void devices_release(void) { pthread_mutex_unlock(&devices_lock); }
tl_device *device_at(int index) { return index >= 0 && index < n_open ? open_devices[index] : NULL; }

uint64_t device_memory_bytes(const tl_device *device) {
    uint64_t used, total = 0;
    if (device_is_host(device)) return process_memory_bytes();
    return device->functions->used && device->functions->used(device, &used, &total) ? total : 0;
}

/* ---- Kinds and targets ---- */

static const struct device_driver *driver_find(const char *name, size_t length) {
    for (int i = 0; drivers[i]; i++)
        if (!strncmp(drivers[i]->name, name, length) && !drivers[i]->name[length]) return drivers[i];
    return NULL;
}

bool device_register(const struct device_driver *driver) {
    pthread_mutex_lock(&devices_lock);
    int n = 0;
    while (drivers[n]) n++;
    bool ok = n < MAX_DRIVERS && strcmp(driver->name, "meta") && !driver_find(driver->name, strlen(driver->name));
    if (ok) drivers[n] = driver;
    pthread_mutex_unlock(&devices_lock);
    return ok;
}

const struct target *target_at(int index) {
    for (int i = 0; index >= 0 && drivers[i]; i++)
        for (const struct target *t = drivers[i]->targets; t->name; t++)
            if (index-- == 0) return t;
    return NULL;
}

const struct target *target_find(const char *name) {
    const struct target *t;
    for (int i = 0; (t = target_at(i)); i++)
        if (!strcmp(t->name, name)) return t;
    return NULL;
}

const char *tl_target_name(int index) {
    const struct target *t = target_at(index);
    return t ? t->name : NULL;
}

/* With the lock held: a card that is open may have a target that no table has. */
static const struct target *target_of_any(const char *name) {
    const struct target *t = target_find(name);
    for (int i = 0; !t && i < n_open; i++)
        if (!strcmp(open_devices[i]->target->name, name)) t = open_devices[i]->target;
    return t;
}

static bool target_fail(const char *device) {
    char known[400] = "";
    for (int i = 0; tl_target_name(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", tl_target_name(i));
    return error_set(TL_ERROR_DEVICE, "%s: no such target (there are %s)", device, known);
}

/* ---- Opening ---- */

static bool open_meta(tl_device *d, const char *name, const char *target) {
    d->functions = &meta_functions;
    d->target = target_of_any(target);
    return d->target || target_fail(name);
}

/* NAME, NAME:N, and either with @TARGET. */
static bool open_driver(tl_device *d, const struct device_driver *driver, const char *name, const char *number) {
    const char *at = strchr(number, '@');
    const struct target *as = at ? target_of_any(at + 1) : NULL;
    char error[400] = "", *end = NULL;
    long index = 0;
    errno = 0;
    if (driver->is_numbered) index = strtol(number + 1, &end, 10);
    bool is_number = driver->is_numbered ? number[0] == ':' && end != number + 1 && (!*end || end == at) && !errno
                                         : !*number || number == at;
    if (!is_number || index < 0 || index > 63)
        return error_set(TL_ERROR_DEVICE, "%s: no such device; %s devices are called %s%s", name, driver->name,
                         driver->name, driver->is_numbered ? ":0, :1, ..." : "");
    if (at && !as) return target_fail(name);
    if (!driver->open(d, (int)index, as, error)) return error_set(TL_ERROR_DEVICE, "%s: %s", name, error);
    return true;
}

/* What others call them: "GPU", "CUDA:1", "cuda1", "gpu:0"; a chip that runs are only priced for. NULL: no idea. */
static const char *device_meant(const char *name, char *near, size_t size) {
    char lower[32];
    text_copy(lower, sizeof lower, name);
    for (char *at = lower; *at; at++) *at = text_lower(*at);
    if (!strcmp(lower, "cpu") || !strcmp(lower, "host") || !strcmp(lower, "mps")) return "cpu";
    size_t n = !strncmp(lower, "cuda", 4) ? 4 : !strncmp(lower, "gpu", 3) ? 3 : !strncmp(lower, "nvidia", 6) ? 6 : 0;
    const char *number = lower + n + (lower[n] == ':' || lower[n] == '-');
    if (n && !*number) return "cuda";
    if (n && strspn(number, "0123456789") == strlen(number)) return snprintf(near, size, "cuda:%s", number), near;
    if (target_find(lower)) return snprintf(near, size, "meta:%s", lower), near;
    return NULL;
}

static bool open_by_name(tl_device *d, const char *name) {
    const struct device_driver *driver = driver_find(name, strcspn(name, ":@"));
    if (!strncmp(name, "meta:", 5)) return open_meta(d, name, name + 5);
    if (driver) return open_driver(d, driver, name, name + strlen(driver->name));
    char near[64];
    const char *meant = device_meant(name, near, sizeof near);
    return error_set(TL_ERROR_DEVICE, "%s: no such device%s%s%s; there are cpu, meta, meta:TARGET, cuda, cuda:N", name,
                     meant ? ", did you mean " : "", meant ? meant : "", meant ? "?" : "");
}

/* A device that runs as another has no more memory than that one gives a pool. */
static void limit_set(tl_device *d) {
    const struct target *t = d->target;
    if (strchr(d->name, '@') && t->memory_bytes > t->outside_bytes)
        tl_set_pool_limit(d, t->memory_bytes - t->outside_bytes);
}

/* With the lock held. */
static tl_device *device_open(const char *name) {
    if (n_open == DEVICES_MAX) {
        error_set(TL_ERROR_DEVICE, "%s: %d devices are open already", name, DEVICES_MAX);
        return NULL;
    }
    tl_device *d = memory_new(sizeof *d);
    if (!d) {
        error_memory(sizeof *d, "a device");
        return NULL;
    }
    memset(d, 0, sizeof *d);
    text_copy(d->name, sizeof d->name, name);
    if (!open_by_name(d, name) || !(d->pool = pool_new(d))) {
        if (tl_error() == TL_OK) error_memory(sizeof *d, "a pool");
        memory_free(d);
        return NULL;
    }
    d->workspace = d->target->rules->workspace;
    d->is_host = device_has_data(d) && d->target->rules->is_host;
    limit_set(d);
    open_devices[n_open++] = d;
    if (device_opened) device_opened(d);
    return d;
}

static int usual_number; /* see devices_set_number; with the lock held */

void devices_set_number(int number) {
    pthread_mutex_lock(&devices_lock);
    usual_number = number;
    pthread_mutex_unlock(&devices_lock);
}

static int number_of(const struct device_driver *driver) {
    int n = usual_number && driver->count ? driver->count() : 0;
    return n > 0 ? usual_number % n : 0;
}

/* One device has one name: "cuda" is "cuda:0", "cuda@t4" is "cuda:0@t4", "meta" is "meta:cpu". With the lock held. */
static const char *name_complete(const char *name, char *full, size_t size) {
    const size_t length = strcspn(name, ":@");
    const struct device_driver *driver = driver_find(name, length);
    if (!strcmp(name, "meta")) return "meta:cpu";
    if (!driver || !driver->is_numbered || name[length] == ':') return name;
    snprintf(full, size, "%.*s:%d%s", (int)length, name, number_of(driver), name + length);
    return full;
}

tl_device *tl_device_find(const char *name) {
    if (!name) {
        error_set(TL_ERROR_USE, "tl_device_find: got NULL instead of a name");
        return NULL;
    }
    char buffer[128];
    tl_device *found = NULL;
    pthread_mutex_lock(&devices_lock);
    const char *full = name_complete(name, buffer, sizeof buffer);
    for (int i = 0; i < n_open && !found; i++)
        if (!strcmp(open_devices[i]->name, full)) found = open_devices[i];
    if (!found) found = device_open(full);
    pthread_mutex_unlock(&devices_lock);
    return found;
}

/* The card's own target; the first of its kind where no card opens, which is no error. */
static const struct target *target_of_card(const struct device_driver *driver, const char *name) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    const bool had_error = tl_error() != TL_OK;
    const tl_device *card = tl_device_find(name);
    if (!card && !had_error) tl_error_clear();
    tl_set_error_policy(policy);
    return card ? card->target : driver->targets;
}

tl_device *device_stand_in(const char *name) {
    const char *target = strchr(name, '@');
    const struct device_driver *driver = driver_find(name, strcspn(name, ":@"));
    char meta[128];
    if (!strcmp(name, "meta") || !strncmp(name, "meta:", 5)) return tl_device_find(name);
    if (target) target++;
    else if (driver) target = driver->is_numbered ? target_of_card(driver, name)->name : driver->targets->name;
    snprintf(meta, sizeof meta, "meta:%s", target ? target : name);
    return tl_device_find(meta);
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
