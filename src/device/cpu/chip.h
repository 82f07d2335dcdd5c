/* chip.h: the name of the CPU, and the compiler and libraries behind its kernels. */
#ifndef TALLY_DEVICE_CPU_CHIP_H
#define TALLY_DEVICE_CPU_CHIP_H

#include "tally.h"

/* device_functions.describe */
void cpu_describe(tl_device *device, char *chip, char *libraries);

#endif
