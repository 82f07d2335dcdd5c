/* linalg_rule.h: the scratch memory of Fourier transforms and factorisations: what the rules price and the kernels lay
 * out. It is all f64, for both dtypes. */
#ifndef CUDA_LINALG_RULE_H
#define CUDA_LINALG_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "spec/fft.h"

/* Complex numbers of all transforms that run side by side, unless one has more. */
#define FFT_NUMBERS ((int64_t)1 << 20)

static inline int64_t fft_lanes_cuda(int64_t n, int64_t n_transforms) {
    const int64_t most = FFT_NUMBERS / fft_inner(n);
    return n_transforms < most ? n_transforms : most > 1 ? most : 1;
}

/* Matrices of a batch that are factored side by side, in slots: as many as fit into MATRIX_NUMBERS, unless one does
 * not. MATRIX_SLOTS: a grid may not have many more rows. */
#define MATRIX_NUMBERS ((int64_t)1 << 22)
#define MATRIX_SLOTS 32768

static inline int64_t matrix_slots(int64_t n_matrices, int64_t numbers) {
    int64_t most = numbers > 0 ? MATRIX_NUMBERS / numbers : MATRIX_SLOTS;
    if (most > MATRIX_SLOTS) most = MATRIX_SLOTS;
    return n_matrices < most ? n_matrices : most > 1 ? most : 1;
}

/* Where the parts of a slot begin, in numbers, and the numbers of all; a part that a call does not use is empty. */
struct matrix_room {
    int64_t second;                     /* behind a copy of the matrix: its sides, the inverse, the vectors */
    int64_t tau;                        /* factors of reflections */
    int64_t q;                          /* orthogonal columns */
    int64_t values, order, turns, left; /* of jacobi.cu */
    int64_t all;
};

/* A matrix alone: cholesky, lu, det. */
static inline struct matrix_room room_factor(int64_t m, int64_t n) {
    struct matrix_room r = {0, 0, 0, 0, 0, 0, 0, 0};
    r.all = m * n;
    return r;
}

/* solve_triangular, solve */
static inline struct matrix_room room_sides(int64_t n, int64_t k) {
    struct matrix_room r = room_factor(n, n);
    r.second = r.all;
    r.all += n * k;
    return r;
}

/* inv: the sides are the identity; the pivots have the room of numbers. */
static inline struct matrix_room room_inv(int64_t n) {
    struct matrix_room r = room_sides(n, n);
    r.order = r.all;
    r.all += n;
    return r;
}

static inline struct matrix_room room_qr(int64_t m, int64_t n, int64_t n_q) {
    struct matrix_room r = room_factor(m, n);
    r.tau = r.all;
    r.q = r.tau + (m < n ? m : n);
    r.all = r.q + m * n_q;
    return r;
}

/* Jacobi's methods begin with one exponent for each slot, by which the matrix is scaled. eigh: the matrix, its vectors,
 * values and their order, and four numbers for each of the pairs that are turned at once. */
static inline struct matrix_room room_eigh(int64_t n, bool vectors) {
    struct matrix_room r = room_factor(n, n);
    r.second = 1 + r.all;
    r.values = r.second + (vectors ? n * n : 0);
    r.order = r.values + n;
    r.turns = r.order + n;
    r.all = r.turns + 4 * ((n + 1) / 2);
    return r;
}

/* svd, of a matrix of p rows and k <= p columns, which may be the transpose: its columns, the right vectors, values and
 * their order, the left vectors and, to complete them to n_q, reflections. */
static inline struct matrix_room room_svd(int64_t p, int64_t k, int64_t n_q, bool vectors) {
    struct matrix_room r = room_factor(p, k);
    r.second = 1 + r.all;
    r.values = r.second + (vectors ? k * k : 0);
    r.order = r.values + k;
    r.left = r.order + k;
    r.tau = r.left + (vectors ? p * k : 0);
    r.q = r.tau + (vectors ? k : 0);
    r.all = r.q + (vectors ? p * n_q : 0);
    return r;
}

/* Behind the slots of eigh and svd: whether anything was turned, and the first matrix that failed. */
enum { JACOBI_WORDS = 2 };

#endif
