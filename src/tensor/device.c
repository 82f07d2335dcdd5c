/* device.c: functions of every device. */
#include "tensor/device.h"

#include "base/error.h"
#include "base/process.h"

bool device_is_reachable(const tl_device *device) {
    return !device->is_lost_in_fork || device->generation == process_generation();
}

__attribute__((noinline, cold)) bool device_check_fork(const tl_device *device, const char *what) {
    return device_is_reachable(device) ||
           error_set(TL_ERROR_DEVICE, "%s: %s was opened before fork() and cannot be used in the child", what,
                     device->name);
}
