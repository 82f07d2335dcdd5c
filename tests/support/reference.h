/* reference.h: a device that computes everything in plain f64 loops, one element at a time: slow, but easy to trust.
 *
 * It is the example of docs/add-a-device.md: a driver, a target, rules and kernels, registered by device_register.
 * The elementwise ops follow from their formulas in spec/elementwise_list.h; an op that has no kernel here says so
 * when it is called. */
#ifndef TESTS_SUPPORT_REFERENCE_H
#define TESTS_SUPPORT_REFERENCE_H

#include "tally.h"

/* Registers the kind "reference" on the first call, and opens the device. */
tl_device *reference_device(void);

#endif
