/* target.c: the machines that `meta` can stand in for. */
#include <string.h>

#include "tensor/device.h"

#define MIB ((size_t)1 << 20)

void (*device_opened)(tl_device *device);

const struct target target_table[] = {
    /* Segments of 2 MiB multiples, so that huge pages fit. */
    {.name = "cpu",
     .kind = DEVICE_CPU,
     .align_bytes = 64,
     .small_bytes = MIB,
     .small_segment_bytes = 2 * MIB,
     .large_segment_bytes = 32 * MIB,
     .huge_bytes = 16 * MIB,
     .segment_align_bytes = 2 * MIB},
    /* 512-byte blocks as CUDA code expects. 150109880320 bytes by the driver, of which the first 754 MB are the
     * context and the libraries (see docs/devices.md); cuBLASLt asks for 32 MiB on Hopper. */
    {.name = "h200",
     .kind = DEVICE_CUDA,
     .align_bytes = 512,
     .small_bytes = MIB,
     .small_segment_bytes = 2 * MIB,
     .large_segment_bytes = 32 * MIB,
     .huge_bytes = 16 * MIB,
     .segment_align_bytes = 2 * MIB,
     .memory_bytes = 150109880320u,
     .gemm_workspace_bytes = 32 * MIB},
    {.name = NULL},
};

const struct target *target_find(const char *name) {
    for (const struct target *t = target_table; t->name; t++)
        if (!strcmp(t->name, name)) return t;
    return NULL;
}

const char *tl_target_name(int index) {
    for (int i = 0; i < index; i++)
        if (!target_table[i].name) return NULL;
    return index < 0 ? NULL : target_table[index].name;
}
