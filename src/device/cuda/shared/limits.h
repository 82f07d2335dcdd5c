/* limits.h: numbers that the CUDA kernels and their rules share. */
#ifndef DEVICE_CUDA_LIMITS_H
#define DEVICE_CUDA_LIMITS_H

#include <stdint.h>

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
/* nonzero, unique, repeat_interleave: elements of a tile, each of which is counted by itself. */
#define SELECT_TILE 4096
/* cumsum, cumprod: rows this long, if they are few, are cut into chunks, so that more than one block has work. */
#define SCAN_LONG 32768
#define SCAN_FEW 264 /* rows: two for each multiprocessor of the largest Hopper */
#define SCAN_CHUNK 8192

/* The chunks of a row; with more than one the workspace has 8 bytes for each chunk of each row. */
static inline int64_t scan_chunks(int64_t n_rows, int64_t n) {
    return n_rows < SCAN_FEW && n > SCAN_LONG ? (n + SCAN_CHUNK - 1) / SCAN_CHUNK : 1;
}

#endif
