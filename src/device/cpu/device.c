/* device.c: segments of host memory, in huge pages where the system has them: touching fresh 4 KiB pages costs ten
 * times as much, and a pool that keeps its segments pays once. */
#include "device/cpu/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "device/cpu/chip.h"
#include "device/cpu/isa.h"
#include "device/cpu/probe.h"
#include "device/cpu/rules.h"

static bool segment_new(tl_device *device, uint64_t bytes, void **data, char *error) {
    (void)device;
    void *p = bytes > SIZE_MAX ? MAP_FAILED
                               : mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        snprintf(error, 200, "the system has no %" PRIu64 " bytes", bytes);
        return false;
    }
    madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* a hint: without huge pages only speed is lost */
    *data = p;
    return true;
}

static void segment_free(tl_device *device, void *data, uint64_t bytes) {
    (void)device;
    munmap(data, (size_t)bytes);
}

static bool copy(tl_device *device, void *to, const void *from, size_t bytes, enum copy_direction direction,
                 char *error) {
    (void)device, (void)direction, (void)error;
    memcpy(to, from, bytes);
    return true;
}

static bool sync(tl_device *device, char *error) {
    (void)device, (void)error;
    return true;
}

/* A mark is the time in nanoseconds: an op has run when its call returns. */
static int64_t mark(tl_device *device) {
    (void)device;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double mark_seconds(tl_device *device, int64_t from, int64_t to) {
    (void)device;
    return 1e-9 * (double)(to - from);
}

static const struct device_functions functions = {.segment_new = segment_new,
                                                  .segment_free = segment_free,
                                                  .copy = copy,
                                                  .sync = sync,
                                                  .mark = mark,
                                                  .mark_seconds = mark_seconds,
                                                  .peak = cpu_peak,
                                                  .clock = cpu_clock,
                                                  .describe = cpu_describe};

static bool cpu_open(tl_device *d, int index, const struct target *as, char *error) {
    struct cpu_isa isa;
    (void)index;
    if (as && as != cpu_targets) {
        snprintf(error, 400, "this machine's cpu cannot run as %.40s", as->name);
        return false;
    }
    if (!cpu_isa_choose(getenv("TALLY_ISA"), &isa, error)) return false;
    d->target = cpu_targets;
    d->functions = &functions;
    d->kernels = isa.kernels;
    d->isa = isa.name;
    return true;
}

const struct device_driver cpu_driver = {.name = "cpu", .targets = cpu_targets, .open = cpu_open};
