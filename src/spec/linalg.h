/* linalg.h: the scratch memory of LAPACK's routines, in numbers of the matrices' dtype, for one matrix.
 *
 * LAPACK wants column-major matrices and overwrites them, so kernels copy each matrix into scratch first. The sizes are
 * those that LAPACK documents, with room for blocks of LINALG_BLOCK columns. They are not what a library says when it
 * is asked: that differs between builds, and a price must not. Integers take the room of a number.
 */
#ifndef SPEC_LINALG_H
#define SPEC_LINALG_H

#include <stdint.h>

/* Matrices of a batch are dealt to slots in turn, each with scratch of its own. */
#define LINALG_SLOTS 16
#define LINALG_BLOCK 64

/* Why a matrix cannot be factored; '%' stands for LAPACK's info. */
#define LINALG_NOT_POSITIVE                                                                                            \
    "The factorization could not be completed because the input is not positive-definite (the leading minor of order " \
    "% is not positive-definite)"
#define LINALG_ZERO_PIVOT \
    "element % of U's diagonal is zero and using it on lu_solve would result in a division by zero"
#define LINALG_NO_SOLUTION "The solver failed because the input matrix is singular (element % of U's diagonal is 0)"
#define LINALG_NO_INVERSE \
    "The diagonal element % is zero, the inversion could not be completed because the input matrix is singular"
#define LINALG_NO_END(what)                                                                                     \
    "The algorithm failed to converge because the input matrix is ill-conditioned, has too many repeated " what \
    " or is not finite (error code: %)"
#define LINALG_NOT_FINITE "input tensor should not contain infs or NaNs (element %, counted from 1, is not finite)"

static inline int64_t linalg_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t linalg_most(int64_t a, int64_t b) { return a < b ? b : a; }

/* The matrix, its pivots, and blocks of columns: n*n + n + 64n. */
static inline int64_t linalg_inv_numbers(int64_t n) { return n * n + n + LINALG_BLOCK * n; }

/* The matrix with room for the columns of Q, the reflectors' factors, and blocks of columns. */
static inline int64_t linalg_qr_numbers(int64_t m, int64_t n, int64_t n_q) {
    const int64_t columns = linalg_most(n, n_q);
    return m * columns + linalg_least(m, n) + LINALG_BLOCK * linalg_most(columns, 1);
}

/* syevd: LWORK and LIWORK */
static inline int64_t linalg_eigh_lwork(int64_t n, int vectors) { return vectors ? 1 + 6 * n + 2 * n * n : 2 * n + 1; }
static inline int64_t linalg_eigh_liwork(int64_t n, int vectors) { return vectors ? 3 + 5 * n : 1; }
static inline int64_t linalg_eigh_numbers(int64_t n, int vectors) {
    return n * n + linalg_eigh_lwork(n, vectors) + linalg_eigh_liwork(n, vectors);
}

/* geev: LWORK; the matrix, its vectors, and both parts of the values. */
static inline int64_t linalg_eig_lwork(int64_t n) { return (LINALG_BLOCK + 4) * n; }
static inline int64_t linalg_eig_numbers(int64_t n, int vectors) {
    return n * n + (vectors ? n * n : 0) + 2 * n + linalg_eig_lwork(n);
}

/* gesdd: LWORK; the integers are 8 min(m, n). */
static inline int64_t linalg_svd_lwork(int64_t m, int64_t n, int vectors) {
    const int64_t k = linalg_least(m, n);
    return (vectors ? 4 * k * k : 0) + 10 * k + (LINALG_BLOCK + 1) * (m + n);
}
static inline int64_t linalg_svd_numbers(int64_t m, int64_t n, int vectors, int full) {
    const int64_t k = linalg_least(m, n), u = full ? m : k, v = full ? n : k;
    return m * n + (vectors ? m * u + v * n : 0) + linalg_svd_lwork(m, n, vectors) + 8 * k;
}

#endif
