/* chip.h: what the cpu is, and what its kernels were made with and call. */
#ifndef TALLY_DEVICE_CPU_CHIP_H
#define TALLY_DEVICE_CPU_CHIP_H

#include "tally.h"

/* device_functions.describe */
void cpu_describe(tl_device *device, char *chip, char *libraries);

#endif
