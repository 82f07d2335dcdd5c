/* embedding_rule.h: how the gradient of a table of few rows is summed (token.cu). */
#ifndef DEVICE_CUDA_EMBEDDING_RULE_H
#define DEVICE_CUDA_EMBEDDING_RULE_H

#include <stdbool.h>
#include <stdint.h>

#define TABLE_FEW 512    /* the most rows of such a table */
#define TABLE_CHUNK 2048 /* rows of g that a block groups at a time */
#define TABLE_STRIP 32   /* columns of a block */
#define TABLE_BLOCKS 264 /* two for each multiprocessor of the largest Hopper */

static inline int64_t table_chunks(int64_t n) { return (n + TABLE_CHUNK - 1) / TABLE_CHUNK; }
static inline int64_t table_strips(int64_t n_columns) { return (n_columns + TABLE_STRIP - 1) / TABLE_STRIP; }

/* Parts of g whose sums are taken apart: as many as occupy the device. */
static inline int64_t table_parts(int64_t n, int64_t n_columns) {
    const int64_t strips = table_strips(n_columns), most = strips ? (TABLE_BLOCKS + strips - 1) / strips : 1;
    return table_chunks(n) < most ? table_chunks(n) : most;
}

/* More than one chunk: the workspace has an f32 table for each part. */
static inline uint64_t table_bytes(int64_t n, int64_t V, int64_t n_columns, bool is_f64) {
    if (is_f64 || V > TABLE_FEW || table_chunks(n) < 2) return 0;
    return (uint64_t)(table_parts(n, n_columns) * V * n_columns) * sizeof(float);
}

#endif
