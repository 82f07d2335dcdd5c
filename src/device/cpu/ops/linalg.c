/* linalg.c: factorisations and solutions of matrices, by LAPACK.
 *
 * LAPACK is called through its Fortran interface, which every build of it has: column-major matrices, everything by
 * address, and behind the arguments the length of each text. A matrix is copied into scratch, whatever its strides, and
 * the results are copied out. One matrix is one thread's work; the matrices of a batch run side by side. LAPACK's
 * library prints and stops when an argument is not valid, so the shape rules let none pass.
 *
 * A build without LAPACK has swap_rows and solve_triangular, which need only the BLAS; the others refuse.
 */
#include "device/cpu/shared/blas.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"
#include "spec/linalg.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Batches ---- */

/* One matrix: returns LAPACK's info. */
typedef int (*matrix_body)(const tl_kernel_args *args, int64_t index, void *work);

struct batch {
    const tl_kernel_args *args;
    matrix_body body;
    int64_t n_matrices, n_slots;
    struct failure {
        int64_t index;
        int info;
    } first[LINALG_SLOTS]; /* of each slot; info 0: none */
};

/* Elements from the operand's first to the first of part `index` of the batch; the part's own axes are the last. */
static int64_t part_offset(const tl_operand *x, int n_own_axes, int64_t index) {
    int64_t offset = 0;
    for (int axis = x->rank - n_own_axes - 1; axis >= 0; axis--) {
        offset += index % x->shape[axis] * x->stride[axis];
        index /= x->shape[axis];
    }
    return offset;
}

static int64_t rows_of(const tl_operand *x) { return x->shape[x->rank - 2]; }
static int64_t columns_of(const tl_operand *x) { return x->shape[x->rank - 1]; }

static void run_slots(void *context, int64_t first, int64_t last) {
    struct batch *b = context;
    const size_t bytes = b->n_slots ? b->args->workspace_bytes / (size_t)b->n_slots : 0;
    for (int64_t slot = first; slot < last; slot++)
        for (int64_t i = slot; i < b->n_matrices; i += b->n_slots) {
            const int info = b->body(b->args, i, (char *)b->args->workspace + (size_t)slot * bytes);
            if (info && !b->first[slot].info) b->first[slot] = (struct failure){i, info};
        }
}

/* The first matrix of the batch that failed. */
static struct failure batch_run(const tl_kernel_args *args, matrix_body body) {
    struct batch b = {.args = args, .body = body, .n_matrices = 1};
    struct failure found = {0};
    for (int axis = 0; axis < args->in[0].rank - 2; axis++) b.n_matrices *= args->in[0].shape[axis];
    b.n_slots = block_min(b.n_matrices, LINALG_SLOTS);
    blas_hold_to_one_thread();
    parallel_for(b.n_slots, 1, args->n_threads, run_slots, &b);
    for (int64_t slot = 0; slot < b.n_slots; slot++)
        if (b.first[slot].info && (!found.info || b.first[slot].index < found.index)) found = b.first[slot];
    return found;
}

/* Writes `(Batch element 2): text`, with info in the text; false. */
static bool fail(const tl_kernel_args *args, struct failure f, const char *text) {
    int n = 0;
    if (args->in[0].rank > 2) n = snprintf(args->error, 200, "(Batch element %lld): ", (long long)f.index);
    const char *at = strchr(text, '%');
    snprintf(args->error + n, (size_t)(200 - n), "%.*s%d%s", (int)(at - text), text, f.info, at + 1);
    return false;
}

/* ---- Rows ---- */

/* Swaps of rows i and pivots[i] - 1, the last first for P and the first first for its inverse; on a dense copy. */
static int swap_one(const tl_kernel_args *args, int64_t index, void *work) {
    (void)work;
    const tl_operand *x = &args->in[0], *p = &args->in[1], *y = &args->out[0];
    const bool inverse = ((const struct attr_swap *)args->attr)->inverse;
    const int64_t m = rows_of(x), k = columns_of(x), n = columns_of(p), bytes = dtype_info(x->dtype)->bits / 8;
    const int32_t *pivots = (const int32_t *)p->data + part_offset(p, 1, index);
    const char *from = block_at(x->data, x->dtype, part_offset(x, 2, index));
    char *to = block_at(y->data, y->dtype, index * m * k);
    const int64_t row = x->stride[x->rank - 2] * bytes, column = x->stride[x->rank - 1] * bytes;
    for (int64_t i = 0; i < n; i++) {
        const int32_t pivot = pivots[i * p->stride[p->rank - 1]];
        if (pivot < 1 || pivot > m) return (int)i + 1;
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++) memcpy(to + (i * k + j) * bytes, from + i * row + j * column, (size_t)bytes);
    for (int64_t s = 0; s < n; s++) {
        const int64_t i = inverse ? s : n - 1 - s, other = pivots[i * p->stride[p->rank - 1]] - 1;
        char *a = to + i * k * bytes, *b = to + other * k * bytes;
        for (int64_t at = 0; other != i && at < k * bytes; at++) {
            const char kept = a[at];
            a[at] = b[at];
            b[at] = kept;
        }
    }
    return 0;
}

bool cpu_swap_rows(const tl_kernel_args *args) {
    const struct failure f = batch_run(args, swap_one);
    return !f.info || fail(args, f, "pivot % is not a row of the matrix (rows count from 1)");
}

/* ---- LAPACK ---- */

#ifdef TALLY_LAPACK
static void write_info(const tl_operand *info, int64_t index, int value) { ((int32_t *)info->data)[index] = value; }

#define PROTOTYPES(c, real)                                                                                            \
    void c##potrf_(const char *uplo, const int *n, real *a, const int *lda, int *info, size_t);                        \
    void c##getrf_(const int *m, const int *n, real *a, const int *lda, int *pivots, int *info);                       \
    void c##getrs_(const char *trans, const int *n, const int *nrhs, const real *a, const int *lda, const int *pivots, \
                   real *b, const int *ldb, int *info, size_t);                                                        \
    void c##getri_(const int *n, real *a, const int *lda, const int *pivots, real *work, const int *lwork, int *info); \
    void c##geqrf_(const int *m, const int *n, real *a, const int *lda, real *tau, real *work, const int *lwork,       \
                   int *info);                                                                                         \
    void c##orgqr_(const int *m, const int *n, const int *k, real *a, const int *lda, const real *tau, real *work,     \
                   const int *lwork, int *info);                                                                       \
    void c##syevd_(const char *jobz, const char *uplo, const int *n, real *a, const int *lda, real *w, real *work,     \
                   const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t);                        \
    void c##geev_(const char *jobvl, const char *jobvr, const int *n, real *a, const int *lda, real *wr, real *wi,     \
                  real *vl, const int *ldvl, real *vr, const int *ldvr, real *work, const int *lwork, int *info,       \
                  size_t, size_t);                                                                                     \
    void c##gesdd_(const char *jobz, const int *m, const int *n, real *a, const int *lda, real *s, real *u,            \
                   const int *ldu, real *vt, const int *ldvt, real *work, const int *lwork, int *iwork, int *info,     \
                   size_t)
PROTOTYPES(s, float);
PROTOTYPES(d, double);
#undef PROTOTYPES
#endif

#define REAL float
#define NAME(name) name##_f32
#define LAPACK(name) s##name##_
#define TRSM cblas_strsm
#define MAGNITUDE fabsf
#define LOGARITHM logf
#include "device/cpu/ops/linalg_template.h"

#define REAL double
#define NAME(name) name##_f64
#define LAPACK(name) d##name##_
#define TRSM cblas_dtrsm
#define MAGNITUDE fabs
#define LOGARITHM log
#include "device/cpu/ops/linalg_template.h"

#define FOR_DTYPE(args, name) ((args)->in[0].dtype == TL_F64 ? name##_f64 : name##_f32)

bool cpu_solve_triangular(const tl_kernel_args *args) {
    batch_run(args, FOR_DTYPE(args, triangular));
    return true;
}

#ifdef TALLY_LAPACK

static bool checks(const tl_kernel_args *args) { return ((const struct attr_factor *)args->attr)->checks; }

bool cpu_cholesky(const tl_kernel_args *args) {
    const struct failure f = batch_run(args, FOR_DTYPE(args, cholesky));
    return !f.info || !checks(args) || fail(args, f, LINALG_NOT_POSITIVE);
}

bool cpu_lu(const tl_kernel_args *args) {
    const struct failure f = batch_run(args, FOR_DTYPE(args, lu));
    return !f.info || !checks(args) || fail(args, f, LINALG_ZERO_PIVOT);
}

bool cpu_solve(const tl_kernel_args *args) {
    const struct failure f = batch_run(args, FOR_DTYPE(args, solve));
    return !f.info || !checks(args) || fail(args, f, LINALG_NO_SOLUTION);
}

bool cpu_inv(const tl_kernel_args *args) {
    const struct failure f = batch_run(args, FOR_DTYPE(args, inv));
    return !f.info || !checks(args) || fail(args, f, LINALG_NO_INVERSE);
}

bool cpu_det(const tl_kernel_args *args) {
    batch_run(args, FOR_DTYPE(args, det));
    return true;
}

bool cpu_qr(const tl_kernel_args *args) {
    batch_run(args, FOR_DTYPE(args, qr));
    return true;
}

bool cpu_eigh(const tl_kernel_args *args) {
    const struct failure f = batch_run(args, FOR_DTYPE(args, eigh));
    return !f.info || fail(args, f, LINALG_NO_END("eigenvalues"));
}

bool cpu_eig(const tl_kernel_args *args) {
    struct failure f = batch_run(args, FOR_DTYPE(args, eig));
    const bool is_finite = f.info >= 0;
    if (!is_finite) f.info = -f.info;
    return !f.info || fail(args, f, is_finite ? LINALG_NO_END("eigenvalues") : LINALG_NOT_FINITE);
}

bool cpu_svd(const tl_kernel_args *args) {
    const struct failure f = batch_run(args, FOR_DTYPE(args, svd));
    return !f.info || fail(args, f, LINALG_NO_END("singular values"));
}

#else

static bool refuse(const tl_kernel_args *args) {
    snprintf(args->error, 200,
             "this build of Tally has no LAPACK: install it (Debian, Ubuntu: apt install "
             "liblapack-dev) and build again");
    return false;
}
bool cpu_cholesky(const tl_kernel_args *args) { return refuse(args); }
bool cpu_lu(const tl_kernel_args *args) { return refuse(args); }
bool cpu_solve(const tl_kernel_args *args) { return refuse(args); }
bool cpu_inv(const tl_kernel_args *args) { return refuse(args); }
bool cpu_det(const tl_kernel_args *args) { return refuse(args); }
bool cpu_qr(const tl_kernel_args *args) { return refuse(args); }
bool cpu_eigh(const tl_kernel_args *args) { return refuse(args); }
bool cpu_eig(const tl_kernel_args *args) { return refuse(args); }
bool cpu_svd(const tl_kernel_args *args) { return refuse(args); }

#endif
