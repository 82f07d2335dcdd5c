/* probe.h: the peak speed of the cores, measured in registers. */
#ifndef TALLY_DEVICE_CPU_PROBE_H
#define TALLY_DEVICE_CPU_PROBE_H

#include "tally.h"

/* FLOP/s of all threads together in multiply-adds of this dtype that sum in f32 (f64: in f64; f16: in f16). 0: no
 * instruction that this probe knows. */
double cpu_peak(tl_device *device, tl_dtype dtype);
/* Cycles per second of one core. 0: not known. */
double cpu_clock(tl_device *device);

#endif
