/* rules.h: GPUs as targets of prices, and how one is opened. No CUDA header is needed: rules.c, targets.c and
 * driver.c are part of the library, not of the plugin. */
#ifndef DEVICE_CUDA_RULES_H
#define DEVICE_CUDA_RULES_H

#include "tensor/device.h"

extern const struct device_rules cuda_rules;

/* The GPUs that have a name here; the last row has none. */
extern const struct target cuda_targets[];

/* Compute capability (90 for 9.0) that release builds begin with. */
#define CUDA_LEAST_CAPABILITY 75

/* Properties that follow from the compute capability alone. */
uint32_t cuda_native(int capability);
uint64_t cuda_gemm_workspace_bytes(int capability);

/* A card as the driver reports it. */
struct cuda_card {
    char name[96];
    int capability;
    uint64_t memory_bytes;
};
/* The row of the table for a card; where there is none, `own` and `own_name` (32 bytes) are filled from the driver's
 * data. */
const struct target *cuda_target_of(const struct cuda_card *card, struct target *own, char *own_name);
/* Whether a card can run as if it were the target: it has the memory, and computes natively what the target does.
 * False: why is in `error` (400 bytes). */
bool cuda_card_can_be(const struct cuda_card *card, const struct target *target, char *error);

/* The plugin's entry points (libtally_cuda.so). tally_cuda_card says what device number `index` is; tally_cuda_open
 * fills `device`, whose target is set. False: why is in `error` (200 bytes). */
typedef bool (*cuda_card_fn)(int index, struct cuda_card *card, char *error);
typedef bool (*cuda_open_fn)(int index, tl_device *device, char *error);
typedef int (*cuda_count_fn)(void);           /* cards; 0: none, or not known */
typedef const char *(*cuda_version_fn)(void); /* TL_VERSION of its sources: the library opens no other */
#define CUDA_VERSION_OF "tally_cuda_version"
#define CUDA_COUNT "tally_cuda_count"
#define CUDA_CARD "tally_cuda_card"
#define CUDA_OPEN "tally_cuda_open"

extern const struct device_driver cuda_driver;

#endif
