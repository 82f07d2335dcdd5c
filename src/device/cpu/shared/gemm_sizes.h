/* gemm_sizes.h: the block sizes of the cpu's matrix product, and the workspace that follows from them.
 *
 * A product is cut into blocks of at most GEMM_M rows, GEMM_N columns and a few hundred terms of each sum; the block
 * of both operands is packed in the workspace, by all threads together, and then multiplied. These sizes are the
 * same for every chip, so that a price made on one machine matches the receipt of another, whatever instructions
 * they have. The workspace is therefore that of the most demanding kernel, and the blocks are the same for any
 * number of threads.
 *
 * Small matrices are packed on the stack of one thread, thin ones not at all: they need no workspace.
 */
#ifndef DEVICE_CPU_GEMM_SIZES_H
#define DEVICE_CPU_GEMM_SIZES_H

#include "tally.h"

enum {
    GEMM_M = 1024,
    GEMM_N = 3072,
    GEMM_K_F32 = 768,     /* terms of a block: f32 sums of f32 products */
    GEMM_K_BF16 = 1024,   /* when both operands are bf16 */
    GEMM_MARGIN = 64,     /* rows and columns are padded to whole panels: less than this is added */
    GEMM_SLACK = 256,     /* kernels may read this many bytes beyond a panel */
    GEMM_THIN_ROWS = 8,   /* rows up to which b is read in place: what is decoded together (step/session.c) */
    GEMM_THIN_COLUMNS = 4 /* columns up to which a is */
};

/* Sizes of out (m,n) += a (m,k) b (k,n), n_batches times. */
struct gemm_sizes {
    int64_t n_batches, m, n, k;
};

/* One thread multiplies a matrix of the batch, and needs no workspace: products below 96^3 with results below 256^2,
 * and large batches of products below 512^3, which keep every thread busy with its own matrix. */
static inline bool gemm_is_small(const struct gemm_sizes *s) {
    double work = (double)s->m * (double)s->n * (double)s->k;
    return (work <= 96. * 96 * 96 && (double)s->m * (double)s->n <= 256. * 256) ||
           (s->n_batches >= 16 && work <= 512. * 512 * 512);
}

/* A vector times a matrix, or a few of them: nothing is packed. */
static inline bool gemm_is_thin(int64_t m, int64_t n) { return m <= GEMM_THIN_ROWS || n <= GEMM_THIN_COLUMNS; }

/* One matrix b for a whole batch of a whose rows follow each other evenly is a single product of more rows. */
static inline bool gemm_joins(int n_batch_axes, const int64_t *out_shape, const int64_t *a_shape,
                              const int64_t *a_stride, const int64_t *b_shape, int64_t m, int64_t row_stride) {
    int64_t expected = m * row_stride;
    for (int axis = n_batch_axes - 1; axis >= 0; axis--) {
        const int64_t size = out_shape[axis];
        if (b_shape[axis] != 1 || (size > 1 && (a_shape[axis] != size || a_stride[axis] != expected))) return false;
        expected *= size;
    }
    return true;
}

static inline uint64_t gemm_round_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static inline int64_t gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t gemm_k(bool is_bf16) { return is_bf16 ? GEMM_K_BF16 : GEMM_K_F32; }

/* One packed operand of n rows or columns, at most `limit` at a time. */
static inline uint64_t gemm_operand_bytes(int64_t n, int64_t limit, int64_t k, bool is_bf16) {
    uint64_t lines = (uint64_t)(gemm_min(n, limit) + GEMM_MARGIN);
    uint64_t terms = (uint64_t)(gemm_min(k, gemm_k(is_bf16)) + 32);
    return gemm_round_up(lines * terms * (is_bf16 ? 2 : 4) + GEMM_SLACK);
}

/* Sums of a 16-bit result whose terms come in more than one block wait in f32 for the last. */
static inline uint64_t gemm_sums_bytes(const struct gemm_sizes *s, bool is_bf16, bool is_narrow) {
    if (!is_narrow || s->k <= gemm_k(is_bf16)) return 0;
    return gemm_round_up((uint64_t)(gemm_min(s->m, GEMM_M) + GEMM_MARGIN) *
                         (uint64_t)(gemm_min(s->n, GEMM_N) + GEMM_MARGIN) * 4);
}

/* is_bf16: both operands are; is_narrow: the result has 16 bits. */
static inline uint64_t gemm_workspace_bytes(const struct gemm_sizes *s, bool is_bf16, bool is_narrow) {
    if (s->n_batches <= 0 || s->m <= 0 || s->n <= 0 || s->k <= 0 || gemm_is_small(s) || gemm_is_thin(s->m, s->n))
        return 0;
    return gemm_operand_bytes(s->n, GEMM_N, s->k, is_bf16) + gemm_operand_bytes(s->m, GEMM_M, s->k, is_bf16) +
           gemm_sums_bytes(s, is_bf16, is_narrow);
}

#endif
