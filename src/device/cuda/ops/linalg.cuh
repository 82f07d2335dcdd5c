/* linalg.cuh: matrices of a batch in scratch memory, for linalg.cu and jacobi.cu.
 *
 * A matrix is copied to a slot of the workspace, as f64 and column-major, whatever its dtype and strides, and the
 * results are rounded once when they are copied out. Slots run side by side: blockIdx.y is the slot, blockIdx.x the
 * place in its matrix. A batch of more matrices than slots runs in turns.
 */
#ifndef CUDA_LINALG_CUH
#define CUDA_LINALG_CUH

#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/linalg_rule.h"

#include <string.h>

/* The matrices under way: slot i has matrix first + i of the batch. */
struct slots {
    double *work;
    int64_t numbers, first; /* of a slot; of the batch */
    unsigned n;
};
__device__ inline double *slot_at(const slots &s, int64_t offset) { return s.work + blockIdx.y * s.numbers + offset; }
__device__ inline int64_t slot_matrix(const slots &s) { return s.first + blockIdx.y; }

/* A grid of `blocks` for each slot. */
static inline dim3 grid_of(const slots &s, int64_t blocks) {
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < (1 << 20) ? blocks : 1 << 20), s.n);
}
static inline dim3 grid_for(const slots &s, int64_t n) { return grid_of(s, (n + BLOCK - 1) / BLOCK); }

static inline int64_t matrix_count(const tl_operand *x) {
    int64_t n = 1;
    for (int axis = 0; axis < x->rank - 2; axis++) n *= x->shape[axis];
    return n;
}

/* The next matrices of n; false: there are no more. Begin with s.n = 0. */
static inline bool slots_next(slots *s, int64_t n, int64_t n_slots) {
    s->first += s->n;
    const int64_t left = n - s->first;
    s->n = (unsigned)(left < n_slots ? left : n_slots);
    return left > 0;
}

/* Writes `(Batch element 2): text`, with info for the text's '%'; false. */
static inline bool matrix_fail(const tl_kernel_args *args, int64_t index, int info, const char *text) {
    int n = 0;
    if (args->in[0].rank > 2) n = snprintf(args->error, CUDA_ERROR_BYTES, "(Batch element %lld): ", (long long)index);
    const char *at = strchr(text, '%');
    snprintf(args->error + n, (size_t)(CUDA_ERROR_BYTES - n), "%.*s%d%s", (int)(at - text), text, info, at + 1);
    return false;
}

/* An operand's matrices, by its strides. */
struct matrices {
    const void *data;
    tl_dtype dtype;
    int n_axes;
    int64_t m, n, row, column;
    int64_t size[TL_MAX_RANK], stride[TL_MAX_RANK];
};
static inline matrices matrices_of(const tl_operand *x) {
    matrices a;
    a.data = x->data;
    a.dtype = x->dtype;
    a.n_axes = x->rank - 2;
    a.m = x->shape[x->rank - 2];
    a.n = x->shape[x->rank - 1];
    a.row = x->stride[x->rank - 2];
    a.column = x->stride[x->rank - 1];
    for (int axis = 0; axis < a.n_axes; axis++) {
        a.size[axis] = x->shape[axis];
        a.stride[axis] = x->stride[axis];
    }
    return a;
}
static inline matrices transposed(matrices a) {
    const int64_t m = a.m, row = a.row;
    a.m = a.n, a.n = m;
    a.row = a.column, a.column = row;
    return a;
}
__device__ inline int64_t matrix_offset(const matrices &a, int64_t index) {
    int64_t offset = 0;
    for (int axis = a.n_axes - 1; axis >= 0; axis--) {
        offset += index % a.size[axis] * a.stride[axis];
        index /= a.size[axis];
    }
    return offset;
}

/* Which elements are read (the others are their mirror images) or written (the others are 0). */
enum part { PART_ALL, PART_LOWER, PART_UPPER };

static __global__ void matrix_read(slots s, int64_t to, matrices a, enum part part) {
    double *matrix = slot_at(s, to);
    const int64_t offset = matrix_offset(a, slot_matrix(s));
    FOR_EACH(e, a.m * a.n) {
        const int64_t j = e / a.m, i = e - j * a.m;
        const bool turns = (part == PART_LOWER && i < j) || (part == PART_UPPER && i > j);
        matrix[e] = load_as<double>(a.data, offset + (turns ? j : i) * a.row + (turns ? i : j) * a.column, a.dtype);
    }
}

/* The first m rows and n columns of a matrix of `leading` rows. info: where it is not 0, another matrix is written, the
 * one at `otherwise`. */
static __global__ void matrix_write(slots s, int64_t from, int64_t leading, void *out, tl_dtype dtype, int64_t m,
                                    int64_t n, enum part part, const int32_t *info, int64_t otherwise) {
    const int64_t first = slot_matrix(s) * m * n;
    const double *matrix = slot_at(s, info && info[slot_matrix(s)] ? otherwise : from);
    FOR_EACH(e, m * n) {
        const int64_t i = e / n, j = e - i * n;
        const bool is_zero = (part == PART_LOWER && j > i) || (part == PART_UPPER && j < i);
        store_as<double>(out, first + e, dtype, is_zero ? 0 : matrix[i + j * leading]);
    }
}

static inline void write_operand(const slots &s, int64_t from, int64_t leading, const tl_operand *x, enum part part,
                                 cudaStream_t stream) {
    const int64_t m = x->shape[x->rank - 2], n = x->shape[x->rank - 1];
    if (m && n)
        matrix_write<<<grid_for(s, m * n), BLOCK, 0, stream>>>(s, from, leading, x->data, x->dtype, m, n, part, NULL,
                                                               0);
}
static inline void read_operand(const slots &s, int64_t to, const matrices &a, enum part part, cudaStream_t stream) {
    if (a.m && a.n) matrix_read<<<grid_for(s, a.m * a.n), BLOCK, 0, stream>>>(s, to, a, part);
}

/* The identity, of m rows and n columns. */
static __global__ void identity_fill(slots s, int64_t to, int64_t m, int64_t n) {
    double *matrix = slot_at(s, to);
    FOR_EACH(e, m * n) matrix[e] = e / m == e % m;
}

/* ---- Reflections: H = 1 - tau v v^T ---- */

/* Column k of a, of m rows, below the diagonal, becomes v but for its first element, which is 1; the diagonal becomes
 * what the column is turned to, with LAPACK's sign: beta = -sign(alpha) |x|, tau = (beta - alpha) / beta. One block for
 * each slot. */
static __global__ void reflect_make(slots s, int64_t a, int64_t tau, int64_t m, int64_t k) {
    double *x = slot_at(s, a) + k * m, largest = 0, sum = 0;
    const double alpha = x[k];
    for (int64_t i = k + 1 + threadIdx.x; i < m; i += blockDim.x) largest = max_of()(fabs(x[i]), largest);
    largest = block_reduce(largest, max_of(), 0.0);
    if (largest == 0) { /* nothing to turn */
        if (threadIdx.x == 0) slot_at(s, tau)[k] = 0;
        return;
    }
    for (int64_t i = k + 1 + threadIdx.x; i < m; i += blockDim.x) sum += x[i] / largest * (x[i] / largest);
    sum = block_reduce(sum, sum_of(), 0.0);
    const double beta = -copysign(hypot(alpha, largest * sqrt(sum)), alpha);
    for (int64_t i = k + 1 + threadIdx.x; i < m; i += blockDim.x) x[i] /= alpha - beta;
    __syncthreads(); /* all have read alpha */
    if (threadIdx.x > 0) return;
    x[k] = beta;
    slot_at(s, tau)[k] = (beta - alpha) / beta;
}

/* H b for the columns of b from `first` to n, whose rows are those of a: one block for each column. */
static __global__ void reflect_apply(slots s, int64_t a, int64_t tau, int64_t m, int64_t k, int64_t b, int64_t first,
                                     int64_t n) {
    const double *v = slot_at(s, a) + k * m, factor = slot_at(s, tau)[k];
    if (factor == 0) return;
    for (int64_t j = first + blockIdx.x; j < n; j += gridDim.x) {
        double *x = slot_at(s, b) + j * m, sum = 0;
        for (int64_t i = k + threadIdx.x; i < m; i += blockDim.x) sum += i == k ? x[i] : v[i] * x[i];
        sum = factor * block_reduce(sum, sum_of(), 0.0);
        for (int64_t i = k + threadIdx.x; i < m; i += blockDim.x) x[i] -= i == k ? sum : sum * v[i];
    }
}

/* a (m,n) becomes R and, below its diagonal, the reflections. */
static inline void reflect_all(const slots &s, int64_t a, int64_t tau, int64_t m, int64_t n, cudaStream_t stream) {
    const int threads = threads_for_row(m);
    for (int64_t k = 0; k < (m < n ? m : n); k++) {
        reflect_make<<<grid_of(s, 1), threads, 0, stream>>>(s, a, tau, m, k);
        if (k + 1 < n) reflect_apply<<<grid_of(s, n - k - 1), threads, 0, stream>>>(s, a, tau, m, k, a, k + 1, n);
    }
}

/* q (m,n_q) = H_0 H_1 ... of the n columns of a: the last one first, on the identity; columns before k are still
 * its. */
static inline void reflect_back(const slots &s, int64_t a, int64_t tau, int64_t m, int64_t n, int64_t q, int64_t n_q,
                                cudaStream_t stream) {
    if (!m || !n_q) return;
    identity_fill<<<grid_for(s, m * n_q), BLOCK, 0, stream>>>(s, q, m, n_q);
    for (int64_t k = (m < n ? m : n) - 1; k >= 0; k--)
        reflect_apply<<<grid_of(s, n_q - k), threads_for_row(m), 0, stream>>>(s, a, tau, m, k, q, k, n_q);
}

#endif
