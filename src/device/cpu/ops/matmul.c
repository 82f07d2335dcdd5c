/* matmul.c: batched products of matrices.
 *
 * `choose`, at the end, decides which path a product takes:
 *
 *   gemm     f32, f16 and bf16, alone or mixed: gemm.c, on the chip's best instructions. Large matrices one after
 *            the other, each on all threads; small ones side by side, each on one.
 *   library  f64 in a layout that CBLAS can express, and f32 where gemm.c has no kernel that beats it and the product
 *            is not of a few rows, whose bits must not depend on how many they are. The output is cut into rectangles
 *            of a fixed size, each one library call on one thread. The library's own threads stay off: there is one
 *            thread pool in this process, and the cuts, hence the bits, do not depend on its size.
 *   tiles    the rest of f64: small matrices and odd strides (matmul_f64.h).
 */
#include "base/scratch.h"
#include "device/cpu/shared/blas.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/gemm.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/ops/matmul.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/tile.h"
#include "spec/attr.h"
#include "spec/rows.h"
#include "device/cpu/shared/gemm_sizes.h"
#include "tensor/dtype.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

/* An operand as the product sees it: element (i, p) of op(a), or (j, p) of op(b)^T, is i*stride + p*k_stride elements
 * further. p is the index that is summed over. */
struct side {
    const tl_operand *operand;
    int64_t stride, k_stride;
};

struct product {
    struct side a, b;      /* (m, k) and (n, k) */
    const tl_operand *out; /* (batch..., m, n) dense */
    int n_batch_axes;
    int64_t n_batches, m, n, k;
    int64_t cut_m, cut_n, n_cut_m, n_cut_n; /* rectangles of the output */
    bool add;                               /* out += */
    bool is_fast;                           /* see attr.h */
    enum CBLAS_TRANSPOSE trans_a, trans_b;  /* library only, as are the leading dimensions */
    int64_t ld_a, ld_b;
};

/* One rectangle of one matrix of the batch. */
struct rectangle {
    const void *a, *b; /* of row i and of column j */
    int64_t i, n_i, j, n_j;
    int64_t out_at; /* element (i, j) of this batch */
};

/* Elements from the operand's first to the first of matrix `batch`; axes of size 1 repeat. */
static int64_t batch_offset(const struct product *product, const tl_operand *operand, int64_t batch) {
    int64_t offset = 0;
    for (int axis = product->n_batch_axes - 1; axis >= 0; axis--) {
        const int64_t index = batch % product->out->shape[axis];
        batch /= product->out->shape[axis];
        offset += operand->shape[axis] == 1 ? 0 : index * operand->stride[axis];
    }
    return offset;
}

static struct rectangle rectangle_at(const struct product *product, int64_t item) {
    const int64_t cut_j = item % product->n_cut_n, cut_i = item / product->n_cut_n % product->n_cut_m;
    const int64_t batch = item / product->n_cut_n / product->n_cut_m;
    struct rectangle r = {.i = cut_i * product->cut_m, .j = cut_j * product->cut_n};
    r.n_i = block_min(product->cut_m, product->m - r.i);
    r.n_j = block_min(product->cut_n, product->n - r.j);
    r.out_at = batch * product->m * product->n + r.i * product->n + r.j;

    const tl_operand *a = product->a.operand, *b = product->b.operand;
    r.a = block_at(a->data, a->dtype, batch_offset(product, a, batch) + r.i * product->a.stride);
    r.b = block_at(b->data, b->dtype, batch_offset(product, b, batch) + r.j * product->b.stride);
    return r;
}

/* ---- Library ------------------------------------------------------------------------------------------- */

/* Describes a row-major (n_rows, n_columns) matrix with these strides to CBLAS; false if CBLAS cannot express it. The
 * stride of an axis of size 1 may be anything and is replaced by one that fits. */
static bool blas_layout(int64_t n_rows, int64_t n_columns, int64_t row_stride, int64_t column_stride,
                        enum CBLAS_TRANSPOSE *transpose, int64_t *leading) {
    if (n_rows == 1) {
        row_stride = column_stride == 1 ? n_columns : 1;
    } else if (n_columns == 1) {
        column_stride = row_stride == 1 ? n_rows : 1;
    }
    const bool is_plain = column_stride == 1 && row_stride >= n_columns;
    *transpose = is_plain ? CblasNoTrans : CblasTrans;
    *leading = is_plain ? row_stride : column_stride;
    return (is_plain || (row_stride == 1 && column_stride >= n_rows)) && *leading <= INT_MAX;
}

static void library_rectangles(void *context, int64_t first, int64_t last) {
    const struct product *p = context;
    const int ld_a = (int)p->ld_a, ld_b = (int)p->ld_b, ld_out = (int)p->n, k = (int)p->k;
    for (int64_t item = first; item < last; item++) {
        const struct rectangle r = rectangle_at(p, item);
        const int n_i = (int)r.n_i, n_j = (int)r.n_j;
        if (p->out->dtype == TL_F64) {
            cblas_dgemm(CblasRowMajor, p->trans_a, p->trans_b, n_i, n_j, k, 1, r.a, ld_a, r.b, ld_b, p->add ? 1 : 0,
                        (double *)p->out->data + r.out_at, ld_out);
        } else {
            cblas_sgemm(CblasRowMajor, p->trans_a, p->trans_b, n_i, n_j, k, 1, r.a, ld_a, r.b, ld_b, p->add ? 1 : 0,
                        (float *)p->out->data + r.out_at, ld_out);
        }
    }
}

#include "device/cpu/ops/matmul_f64.h"

/* ---- gemm.c ------------------------------------------------------------------------------------------------- */

static struct gemm_side side_at(const struct product *p, const struct side *side, int64_t batch) {
    const tl_operand *x = side->operand;
    return (struct gemm_side){.data = block_at(x->data, x->dtype, batch_offset(p, x, batch)),
                              .dtype = x->dtype,
                              .stride = side->stride,
                              .k_stride = side->k_stride};
}

static struct gemm gemm_at(const struct product *p, int64_t batch) {
    return (struct gemm){.a = side_at(p, &p->a, batch),
                         .b = side_at(p, &p->b, batch),
                         .out = block_at(p->out->data, p->out->dtype, batch * p->m * p->n),
                         .out_dtype = p->out->dtype,
                         .out_step = p->n,
                         .m = p->m,
                         .n = p->n,
                         .k = p->k,
                         .add = p->add,
                         .is_fast = p->is_fast};
}

static void small_products(void *context, int64_t first, int64_t last) {
    for (int64_t batch = first; batch < last; batch++) {
        const struct gemm g = gemm_at(context, batch);
        gemm_multiply_small(&g);
    }
}

static void large_products(struct product *p, void *workspace, int n_threads) {
    for (int64_t batch = 0; batch < p->n_batches; batch++) {
        const struct gemm g = gemm_at(p, batch);
        gemm_multiply(&g, workspace, n_threads);
    }
}

/* ---- Choice ---------------------------------------------------------------------------------------------- */

/* Below this many multiply-adds per matrix a library call costs more than the product. */
enum { LIBRARY_WORK = 48 * 48 * 48 };

/* Rectangles of the library: large enough that packing stays a small part, small enough to feed many cores. */
enum { LIBRARY_M = 256, LIBRARY_N = 512 };

static bool use_library(struct product *p) {
    const tl_dtype dtype = p->out->dtype;
    if ((dtype != TL_F32 && dtype != TL_F64) || p->a.operand->dtype != dtype || p->b.operand->dtype != dtype) {
        return false;
    }
    if (dtype == TL_F32 && (gemm_beats_blas() || gemm_is_thin(p->m, p->n))) {
        return false;
    }
    if (p->k > INT_MAX || p->n > INT_MAX || p->k < 1 || (double)p->m * (double)p->n * (double)p->k < LIBRARY_WORK) {
        return false;
    }
    return blas_layout(p->m, p->k, p->a.stride, p->a.k_stride, &p->trans_a, &p->ld_a) &&
           blas_layout(p->k, p->n, p->b.k_stride, p->b.stride, &p->trans_b, &p->ld_b);
}

static void run_rectangles(struct product *p, parallel_body body, int64_t cut_m, int64_t cut_n, int n_threads) {
    p->cut_m = cut_m;
    p->cut_n = cut_n;
    p->n_cut_m = (p->m - 1) / cut_m + 1;
    p->n_cut_n = (p->n - 1) / cut_n + 1;
    const int64_t work = block_min(p->m, cut_m) * block_min(p->n, cut_n) * (p->k / 16 + 1);
    parallel_for(p->n_batches * p->n_cut_m * p->n_cut_n, parallel_grain(work), n_threads, body, p);
}

static void choose(struct product *p, void *workspace, int n_threads) {
    const struct gemm_sizes sizes = {p->n_batches, p->m, p->n, p->k};
    if (use_library(p)) {
        blas_hold_to_one_thread();
        run_rectangles(p, library_rectangles, LIBRARY_M, LIBRARY_N, n_threads);
    } else if (dtype_compute(p->out->dtype) == TL_F64) {
        run_rectangles(p, tile_rectangles, TILE_M, TILE_N, n_threads);
    } else if (gemm_is_small(&sizes) && (p->n_batches > 1 || !gemm_is_thin(p->m, p->n))) {
        parallel_for(p->n_batches, parallel_grain(p->m * p->n * (p->k / 16 + 1)), n_threads, small_products, p);
    } else {
        large_products(p, workspace, n_threads);
    }
}

void matmul_multiply(const tl_operand *out, const tl_operand *a, bool transpose_a, const tl_operand *b,
                     bool transpose_b, bool add, bool is_fast, void *workspace, int n_threads) {
    const int row = out->rank - 2, column = out->rank - 1;
    const int a_row = transpose_a ? column : row, a_k = transpose_a ? row : column;
    const int b_column = transpose_b ? row : column, b_k = transpose_b ? column : row;
    struct product p = {
        .a = {a, a->stride[a_row], a->stride[a_k]},
        .b = {b, b->stride[b_column], b->stride[b_k]},
        .out = out,
        .n_batch_axes = row,
        .n_batches = 1,
        .m = out->shape[row],
        .n = out->shape[column],
        .k = a->shape[a_k],
        .add = add,
        .is_fast = is_fast,
    };
    for (int axis = 0; axis < row; axis++) {
        p.n_batches *= out->shape[axis];
    }
    if (p.m == 0 || p.n == 0 || p.n_batches == 0) {
        return;
    }
    if (row > 0 && gemm_joins(row, out->shape, a->shape, a->stride, b->shape, p.m, p.a.stride)) {
        p.m *= p.n_batches;
        p.n_batches = 1;
    }
    if (p.m == 1) { /* the stride of an axis of size 1 may be anything */
        p.a.stride = p.a.k_stride == 1 ? p.k : 1;
    }
    if (p.n == 1) {
        p.b.stride = p.b.k_stride == 1 ? p.k : 1;
    }
    if (p.k == 0) { /* nothing is read: no address needs to be valid */
        p.a.stride = p.b.stride = 0;
    }
    choose(&p, workspace, n_threads);
}

static bool multiply(const tl_kernel_args *args, const tl_operand *a, const tl_operand *b, bool add) {
    const struct attr_matmul *attr = args->attr;
    const tl_operand *out = &args->out[0];
    struct folded folded[3];
    if (attr->folds) {
        out = fold_operand(&folded[0], out);
        a = fold_operand(&folded[1], a);
        b = fold_operand(&folded[2], b);
    }
    matmul_multiply(out, a, attr->transpose_a, b, attr->transpose_b, add, attr->is_fast, args->workspace,
                    args->n_threads);
    return true;
}

bool cpu_matmul(const tl_kernel_args *args) { return multiply(args, &args->in[0], &args->in[1], false); }

bool cpu_matmul_acc(const tl_kernel_args *args) { return multiply(args, &args->in[1], &args->in[2], true); }

/* Products write dense rows: each goes to the end of the workspace first. */
bool cpu_matmul_parts(const tl_kernel_args *args) {
    const struct attr_matmul *attr = args->attr;
    struct folded folded[2];
    const tl_operand *x = fold_operand(&folded[0], &args->in[0]), *out = fold_operand(&folded[1], &args->out[0]);
    const size_t bytes = (size_t)(dtype_info(out->dtype)->bits / 8), row = (size_t)out->shape[1] * bytes;
    char *to = out->data;
    for (int i = 1; i < args->n_in && row; i++) {
        const int64_t shape[2] = {out->shape[0], args->in[i].shape[0]}, stride[2] = {shape[1], 1};
        const size_t width = (size_t)shape[1] * bytes;
        char *const from = (char *)args->workspace + args->workspace_bytes - (size_t)shape[0] * width;
        const tl_operand part = {from, out->dtype, 2, shape, stride};
        matmul_multiply(&part, x, false, &args->in[i], true, false, attr->is_fast, args->workspace, args->n_threads);
        for (int64_t r = 0; r < shape[0]; r++) memcpy(to + (size_t)r * row, from + (size_t)r * width, width);
        to += width;
    }
    return true;
}
