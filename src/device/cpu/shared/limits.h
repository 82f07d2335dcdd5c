/* limits.h: numbers that the cpu's kernels and its rules share. */
#ifndef DEVICE_CPU_LIMITS_H
#define DEVICE_CPU_LIMITS_H

/* Norms: runs of rows whose weight gradients are summed apart. */
#define NORM_CHUNKS 64

#endif
