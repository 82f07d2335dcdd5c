#ifndef DEVICE_CPU_DEVICE_H
#define DEVICE_CPU_DEVICE_H

#include "tensor/device.h"

extern const struct device_driver cpu_driver;

#endif
