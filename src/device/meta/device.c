/* device.c: meta has shapes and no data. Its segments are sizes; everything that would touch bytes does nothing. */
#include "device/meta/device.h"

static bool segment_new(tl_device *device, uint64_t bytes, void **data, char *error) {
    (void)device, (void)bytes, (void)error;
    *data = NULL;
    return true;
}

static void segment_free(tl_device *device, void *data, uint64_t bytes) { (void)device, (void)data, (void)bytes; }

static bool copy(tl_device *device, void *to, const void *from, size_t bytes, enum copy_direction direction,
                 char *error) {
    (void)device, (void)to, (void)from, (void)bytes, (void)direction, (void)error;
    return true;
}

static bool sync(tl_device *device, char *error) {
    (void)device, (void)error;
    return true;
}

const struct device_functions meta_functions = {
    .segment_new = segment_new, .segment_free = segment_free, .copy = copy, .sync = sync};
