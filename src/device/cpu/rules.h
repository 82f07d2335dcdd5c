/* rules.h: the CPU as a target of prices. */
#ifndef DEVICE_CPU_RULES_H
#define DEVICE_CPU_RULES_H

#include "tensor/device.h"

extern const struct target cpu_targets[]; /* the cpu's own, and a row without a name */

#endif
