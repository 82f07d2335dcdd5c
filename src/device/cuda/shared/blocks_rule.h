/* blocks_rule.h: how matmul_blocks makes its weight on a GPU. The workspace rule (device/cuda/rules.c) and the kernel
 * (device/cuda/ops/blocks.cu) both read this.
 *
 * A few rows, as in decoding, are multiplied by a kernel that reads values and scales, and needs no workspace.
 * Otherwise W is made in parts of about BLOCKS_PART_BYTES, each for some columns of the result, and multiplied by the
 * library: a part is small enough to stay in the caches of large GPUs, and a product with it large enough to be fast.
 */
#ifndef DEVICE_CUDA_BLOCKS_RULE_H
#define DEVICE_CUDA_BLOCKS_RULE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    BLOCKS_FEW = 8,       /* rows */
    BLOCKS_COLUMNS = 256, /* a part's are a multiple of this */
    BLOCKS_PART_BYTES = 32 << 20,
    BLOCKS_ALIGN = 512 /* bytes; the library's part of the workspace is what matmul has */
};

/* Of x W^T; gradients of so few rows take the other way. */
static inline bool blocks_are_few(int64_t n_rows, bool transpose_b) { return transpose_b && n_rows <= BLOCKS_FEW; }

/* Columns of a part, of all the result has; each is `terms` numbers of W. */
static inline int64_t blocks_part_columns(int64_t columns, int64_t terms, int64_t number_bytes) {
    const int64_t n_parts = (columns * terms * number_bytes + BLOCKS_PART_BYTES - 1) / BLOCKS_PART_BYTES;
    const int64_t even = n_parts > 0 ? (columns + n_parts - 1) / n_parts : columns;
    const int64_t part = (even + BLOCKS_COLUMNS - 1) / BLOCKS_COLUMNS * BLOCKS_COLUMNS;
    return part < columns ? part : columns;
}

static inline uint64_t blocks_part_bytes(int64_t columns, int64_t terms, int64_t number_bytes) {
    const uint64_t bytes = (uint64_t)(blocks_part_columns(columns, terms, number_bytes) * terms * number_bytes);
    return (bytes + BLOCKS_ALIGN - 1) / BLOCKS_ALIGN * BLOCKS_ALIGN;
}

#endif
