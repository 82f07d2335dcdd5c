#ifndef DEVICE_META_DEVICE_H
#define DEVICE_META_DEVICE_H

#include "tensor/device.h"

extern const struct device_functions meta_functions;

#endif
