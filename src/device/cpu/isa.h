/* isa.h: which instruction set the cpu's kernels use. */
#ifndef TALLY_DEVICE_CPU_ISA_H
#define TALLY_DEVICE_CPU_ISA_H

#include "tally.h"

/* Capability bits of Arm cores, from the kernel's interface (AT_HWCAP, AT_HWCAP2); older C libraries lack some of
 * the names. */
enum { CAP_ASIMDHP = 1 << 10, CAP_ASIMDDP = 1 << 20, CAP2_BF16 = 1 << 14 };

struct cpu_isa {
    const char *name;
    const tl_kernel *kernels; /* by op id */
};

/* Set number `index` of those that this machine supports and this library was built with, least capable first; 0 is
 * "baseline". False beyond the last. */
bool cpu_isa_at(int index, struct cpu_isa *isa);

/* The set named `wish`, or the most capable one if wish is NULL or empty. False, with the reason in error (200
 * bytes), if this machine or this library does not have it. */
bool cpu_isa_choose(const char *wish, struct cpu_isa *isa, char *error);

#endif
