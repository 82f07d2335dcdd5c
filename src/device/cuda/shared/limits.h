/* limits.h: numbers that the CUDA kernels and their rules share. */
#ifndef DEVICE_CUDA_LIMITS_H
#define DEVICE_CUDA_LIMITS_H

/* Norms: the most runs of rows whose weight gradients are summed apart, three for each multiprocessor of the largest
 * Hopper. */
#define NORM_RUNS 396
/* Norms: the longest rows that a team of threads keeps in registers. */
#define NORM_TEAM_LENGTH 8192
/* Products of so few rows read their matrix with a kernel of its own (matmul_thin.cu). */
#define MATMUL_THIN_ROWS 16
/* linear_cross_entropy: elements of a row of logits are a multiple of this. */
#define HEAD_ALIGN 64
/* narrow: room for the largest magnitude. */
#define NARROW_BYTES 256
/* nonzero, unique: elements of a tile, each of which is counted by itself. */
#define SELECT_TILE 4096

#endif
