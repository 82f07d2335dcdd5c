/* test_cpu_blocks.c: the cpu kernels of matmul, norm, token, attention and update, called directly, against plain
 * loops in double. Shapes, strides, dtypes and values are random, from a fixed seed. Every call is made on 1, 2, 3
 * and 8 threads, and all four must give the same bits. */
#include "support/check.h"
#include "device/cpu/shared/kernels.h"
#include "spec/attr.h"
#include "device/cpu/shared/gemm_sizes.h"
#include "device/cpu/shared/limits.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Arrays ---------------------------------------------------------------------------------------------- */

enum { MAX_ARRAYS = 16, MAX_AXES = 5 };

struct array {
    tl_dtype dtype;
    int rank;
    int64_t shape[MAX_AXES], stride[MAX_AXES], numel;
    int64_t span, origin; /* elements of the buffer; where the first element lies in it */
    char *buffer;
};

static uint64_t seed = 1;

static uint32_t random_word(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static int64_t pick(int64_t low, int64_t high) { return low + (int64_t)(random_word() % (uint64_t)(high - low + 1)); }

static double draw(void) { return (double)random_word() / 2147483648.0 * 2 - 1; }

static size_t element_bytes(tl_dtype dtype) { return (size_t)dtype_info(dtype)->bits / 8; }

static int64_t offset_of(const struct array *x, int64_t index) {
    int64_t offset = x->origin;
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        offset += index % x->shape[axis] * x->stride[axis];
        index /= x->shape[axis];
    }
    return offset;
}

static double get(const struct array *x, int64_t index) {
    return convert_get_f64(x->buffer, x->dtype, offset_of(x, index));
}

static void set(struct array *x, int64_t index, double value) {
    convert_set_f64(x->buffer, x->dtype, offset_of(x, index), value);
}

/* Axes of `order` from the outermost in memory to the innermost, `gap` elements after each row; a bit in `flip` makes
 * an axis run backwards. */
static struct array array_new(tl_dtype dtype, int rank, const int64_t *shape, const int *order, int64_t gap,
                              unsigned flip) {
    struct array x = {.dtype = dtype, .rank = rank, .numel = 1, .span = 1};
    for (int i = rank - 1; i >= 0; i--) {
        const int axis = order ? order[i] : i;
        x.shape[axis] = shape[axis];
        x.stride[axis] = x.span;
        x.span = x.span * shape[axis] + (i == rank - 1 ? gap : 0);
        x.numel *= shape[axis];
    }
    for (int axis = 0; axis < rank; axis++) {
        if (flip >> axis & 1 && shape[axis] > 0) {
            x.origin += (shape[axis] - 1) * x.stride[axis];
            x.stride[axis] = -x.stride[axis];
        }
    }
    x.buffer = calloc((size_t)x.span + 1, element_bytes(dtype));
    assert_non_null(x.buffer);
    return x;
}

static struct array dense(tl_dtype dtype, int rank, const int64_t *shape) {
    return array_new(dtype, rank, shape, NULL, 0, 0);
}

static void fill_random(struct array *x, double low, double high) {
    for (int64_t i = 0; i < x->numel; i++) {
        set(x, i, low + (draw() + 1) / 2 * (high - low));
    }
}

static struct array random_dense(tl_dtype dtype, int rank, const int64_t *shape) {
    struct array x = dense(dtype, rank, shape);
    fill_random(&x, -1, 1);
    return x;
}

static double *values(const struct array *x) {
    double *out = malloc(((size_t)x->numel + 1) * sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < x->numel; i++) {
        out[i] = get(x, i);
    }
    return out;
}

/* Half a unit in the last place of the dtype, times a few for sums. */
static double tolerance(tl_dtype dtype) {
    return dtype == TL_F64 ? 1e-11 : dtype == TL_F32 ? 3e-5 : dtype == TL_F16 ? 2e-3 : 1.6e-2;
}

static void check_close(const char *what, const struct array *x, const double *expected) {
    for (int64_t i = 0; i < x->numel; i++) {
        const double found = get(x, i), error = fabs(found - expected[i]);
        if (found != expected[i] && !(error <= tolerance(x->dtype) * (1 + fabs(expected[i])))) {
            fail_msg("%s (%s): element %lld is %.17g, expected %.17g", what, dtype_info(x->dtype)->name, (long long)i,
                     found, expected[i]);
        }
    }
}

/* ---- Calls ----------------------------------------------------------------------------------------------- */

static tl_operand operand_of(const struct array *x) {
    return (tl_operand){x->buffer + (size_t)x->origin * element_bytes(x->dtype), x->dtype, x->rank, x->shape,
                        x->stride};
}

static char last_error[200];

/* Runs a kernel once per thread count and compares the outputs' bytes. Outputs are put back before each run, so
 * in-place kernels start from the same values. */
static bool run(tl_kernel kernel, struct array *const *in, int n_in, struct array *const *out, int n_out,
                const void *attr, size_t workspace_bytes) {
    static const int thread_counts[] = {1, 2, 3, 8};
    tl_operand in_operands[MAX_ARRAYS], out_operands[MAX_ARRAYS];
    char *before[MAX_ARRAYS], *first[MAX_ARRAYS] = {0};
    for (int i = 0; i < n_in; i++) {
        in_operands[i] = operand_of(in[i]);
    }
    for (int i = 0; i < n_out; i++) {
        const size_t bytes = (size_t)out[i]->span * element_bytes(out[i]->dtype);
        out_operands[i] = operand_of(out[i]);
        before[i] = malloc(bytes + 1);
        assert_non_null(before[i]);
        memcpy(before[i], out[i]->buffer, bytes);
    }
    bool ok = true;
    for (int run_index = 0; run_index < 4 && ok; run_index++) {
        void *workspace = malloc(workspace_bytes + 1);
        assert_non_null(workspace);
        memset(workspace, 0xff, workspace_bytes);
        for (int i = 0; i < n_out; i++) {
            memcpy(out[i]->buffer, before[i], (size_t)out[i]->span * element_bytes(out[i]->dtype));
        }
        const tl_kernel_args args = {"test",    in_operands,     out_operands,
                                     n_in,      n_out,           attr,
                                     workspace, workspace_bytes, thread_counts[run_index],
                                     NULL,      last_error,      0};
        ok = kernel(&args);
        free(workspace);
        for (int i = 0; i < n_out && ok; i++) {
            const size_t bytes = (size_t)out[i]->span * element_bytes(out[i]->dtype);
            if (run_index == 0) {
                first[i] = malloc(bytes + 1);
                assert_non_null(first[i]);
                memcpy(first[i], out[i]->buffer, bytes);
            }
            assert_memory_equal(first[i], out[i]->buffer, bytes);
        }
    }
    for (int i = 0; i < n_out; i++) {
        free(before[i]);
        free(first[i]);
    }
    return ok;
}

#define ARRAYS(...) \
    ((struct array *[]){__VA_ARGS__}), (int)(sizeof((struct array *[]){__VA_ARGS__}) / sizeof(struct array *))

/* Fresh outputs hold garbage that would show. */
static struct array fresh(tl_dtype dtype, int rank, const int64_t *shape) {
    struct array x = dense(dtype, rank, shape);
    memset(x.buffer, 0xff, (size_t)x.span * element_bytes(dtype));
    return x;
}

static void drop(struct array *const *arrays, int n) {
    for (int i = 0; i < n; i++) {
        free(arrays[i]->buffer);
    }
}

static const tl_dtype float_dtypes[] = {TL_F64, TL_F32, TL_F16, TL_BF16};
static tl_dtype stats_dtype(tl_dtype dtype) { return dtype == TL_F64 ? TL_F64 : TL_F32; }

/* ---- matmul ---------------------------------------------------------------------------------------------- */

/* A matrix with one of its last two axes at stride 1, rows apart, batch axes in any order, perhaps of size 1 or
 * expanded. */
static struct array random_matrix(tl_dtype dtype, int rank, const int64_t *shape) {
    int order[MAX_AXES] = {0, 1, 2, 3};
    if (pick(0, 1)) {
        order[rank - 1] = rank - 2;
        order[rank - 2] = rank - 1;
    }
    struct array x = array_new(dtype, rank, shape, order, pick(0, 2) * 3, pick(0, 5) ? 0 : 1u << order[rank - 2]);
    fill_random(&x, -1, 1);
    for (int axis = rank - 2; axis < rank; axis++) { /* the stride of an axis of size 1 means nothing */
        if (shape[axis] == 1) {
            x.stride[axis] = pick(-5, 5);
        }
    }
    if (order[rank - 2] == rank - 2 && pick(0, 7) == 0) {
        x.stride[rank - 2] = 0;
        x.origin = 0;
    }
    return x;
}

static double *plain_matmul(const struct array *a, const struct array *b, const struct array *c, bool add, bool ta,
                            bool tb, int64_t k) {
    const int rank = c->rank;
    const int64_t m = c->shape[rank - 2], n = c->shape[rank - 1];
    double *out = values(c);
    for (int64_t i = 0; i < c->numel; i++) {
        int64_t batch = i / (m * n), a_at = a->origin, b_at = b->origin;
        for (int axis = rank - 3; axis >= 0; axis--) {
            const int64_t index = batch % c->shape[axis];
            batch /= c->shape[axis];
            a_at += a->shape[axis] == 1 ? 0 : index * a->stride[axis];
            b_at += b->shape[axis] == 1 ? 0 : index * b->stride[axis];
        }
        a_at += i / n % m * a->stride[ta ? rank - 1 : rank - 2];
        b_at += i % n * b->stride[tb ? rank - 2 : rank - 1];
        double sum = 0;
        for (int64_t p = 0; p < k; p++) {
            sum += convert_get_f64(a->buffer, a->dtype, a_at + p * a->stride[ta ? rank - 2 : rank - 1]) *
                   convert_get_f64(b->buffer, b->dtype, b_at + p * b->stride[tb ? rank - 1 : rank - 2]);
        }
        out[i] = add ? out[i] + sum : sum;
    }
    return out;
}

/* Of the batch, or of one product with all rows, whichever the kernel may choose. */
static size_t matmul_workspace(const struct array *c, int64_t k, bool is_bf16) {
    const int64_t m = c->shape[c->rank - 2], n = c->shape[c->rank - 1], n_batches = c->numel ? c->numel / (m * n) : 0;
    const struct gemm_sizes apart = {n_batches, m, n, k}, joined = {1, n_batches * m, n, k};
    const size_t bytes = gemm_workspace_bytes(&apart, is_bf16, c->dtype != TL_F32);
    const size_t joined_bytes = gemm_workspace_bytes(&joined, is_bf16, c->dtype != TL_F32);
    return bytes > joined_bytes ? bytes : joined_bytes;
}

static void check_matmul(tl_dtype dtype, int rank, int64_t m, int64_t n, int64_t k) {
    const bool ta = pick(0, 1), tb = pick(0, 1), add = pick(0, 1);
    const struct attr_matmul attr = {
        .transpose_a = ta, .transpose_b = tb, .dtype = element_bytes(dtype) == 2 && pick(0, 1) ? TL_F32 : dtype};
    int64_t a_shape[MAX_AXES], b_shape[MAX_AXES], c_shape[MAX_AXES];
    for (int axis = 0; axis < rank - 2; axis++) {
        const int64_t size = pick(1, 3), kind = pick(0, 3);
        c_shape[axis] = size;
        a_shape[axis] = kind == 1 ? 1 : size;
        b_shape[axis] = kind == 2 ? 1 : size;
    }
    a_shape[rank - 2] = ta ? k : m;
    a_shape[rank - 1] = ta ? m : k;
    b_shape[rank - 2] = tb ? n : k;
    b_shape[rank - 1] = tb ? k : n;
    c_shape[rank - 2] = m;
    c_shape[rank - 1] = n;
    struct array a = random_matrix(dtype, rank, a_shape), b = random_matrix(dtype, rank, b_shape);
    struct array c = add ? random_dense(attr.dtype, rank, c_shape) : fresh(attr.dtype, rank, c_shape);
    double *expected = plain_matmul(&a, &b, &c, add, ta, tb, k);
    const size_t workspace = matmul_workspace(&c, k, dtype == TL_BF16);
    if (add) {
        assert_true(run(cpu_matmul_acc, ARRAYS(&c, &a, &b), ARRAYS(&c), &attr, workspace));
    } else {
        assert_true(run(cpu_matmul, ARRAYS(&a, &b), ARRAYS(&c), &attr, workspace));
    }
    check_close("matmul", &c, expected);
    free(expected);
    drop(ARRAYS(&a, &b, &c));
}

static void matmul_agrees_with_plain_loops(void **state) {
    (void)state;
    for (int i = 0; i < (IS_SANITIZED ? 60 : 300); i++) {
        const int64_t largest = i % 3 == 0 ? 4 : i % 3 == 1 ? 40 : 140;
        check_matmul(float_dtypes[i % 4], (int)pick(2, 4), pick(0, largest), pick(0, largest), pick(0, largest));
    }
    for (int i = 0; i < 4; i++) {
        check_matmul(float_dtypes[i], 2, 301, 530, 411); /* several rectangles */
        check_matmul(float_dtypes[i], 2, 59, 43, 2100);  /* several blocks of terms */
    }
}

/* ---- norm ------------------------------------------------------------------------------------------------ */

/* The loss sum(g * norm(x)) in double, for finite differences and as the forward reference. */
static void plain_norm(const double *x, const double *weight, const double *bias, int64_t rows, int64_t C, double eps,
                       bool centered, double *y, double *mean, double *rstd) {
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, square = 0;
        for (int64_t c = 0; c < C; c++) {
            sum += x[r * C + c];
        }
        mean[r] = centered ? sum / (double)C : 0;
        for (int64_t c = 0; c < C; c++) {
            square += (x[r * C + c] - mean[r]) * (x[r * C + c] - mean[r]);
        }
        rstd[r] = 1 / sqrt(square / (double)C + eps);
        for (int64_t c = 0; c < C; c++) {
            y[r * C + c] = (x[r * C + c] - mean[r]) * rstd[r] * (weight ? weight[c] : 1) + (bias ? bias[c] : 0);
        }
    }
}

static void check_norm_forward(tl_dtype dtype, int64_t rows, int64_t C, bool centered, bool weighted) {
    struct array x = random_dense(dtype, 3, (int64_t[]){1, rows, C}), y = fresh(dtype, 3, x.shape);
    struct array weight = random_dense(dtype, 1, &C), bias = random_dense(dtype, 1, &C);
    struct array mean = fresh(stats_dtype(dtype), 1, &rows), rstd = fresh(stats_dtype(dtype), 1, &rows);
    const struct attr_norm attr = {.eps = 1e-5};
    struct array *out_layer[] = {&y, &mean, &rstd}, *out_rms[] = {&y, &rstd}, *in[] = {&x, &weight, &bias};
    assert_true(run(centered ? cpu_layer_norm : cpu_rms_norm, in,
                    !weighted  ? 1
                    : centered ? 3
                               : 2,
                    centered ? out_layer : out_rms, centered ? 3 : 2, &attr, 0));
    double *xs = values(&x), *ws = values(&weight), *bs = values(&bias);
    double *ys = values(&y), *means = values(&mean), *rstds = values(&rstd);
    plain_norm(xs, weighted ? ws : NULL, weighted && centered ? bs : NULL, rows, C, attr.eps, centered, ys, means,
               rstds);
    check_close("norm y", &y, ys);
    check_close("norm rstd", &rstd, rstds);
    if (centered) {
        check_close("norm mean", &mean, means);
    }
    free(xs), free(ws), free(bs), free(ys), free(means), free(rstds);
    drop(ARRAYS(&x, &y, &weight, &bias, &mean, &rstd));
}

static void check_norm_grad(tl_dtype dtype, int64_t rows, int64_t C, bool centered, bool weighted, bool gives_sums) {
    struct array x = random_dense(dtype, 2, (int64_t[]){rows, C}), g = random_dense(dtype, 2, x.shape);
    struct array weight = random_dense(dtype, 1, &C), dx = fresh(dtype, 2, x.shape);
    struct array dweight = fresh(dtype, 1, &C), dbias = fresh(dtype, 1, &C), sums = fresh(dtype, 1, &C);
    struct array mean = dense(stats_dtype(dtype), 1, &rows), rstd = dense(stats_dtype(dtype), 1, &rows);
    double *xs = values(&x), *gs = values(&g), *ws = values(&weight);
    double *dxs = values(&dx), *dws = calloc((size_t)C + 1, 8), *dbs = calloc((size_t)C + 1, 8);
    const double eps = 1e-5;
    double *ys = values(&x), *means = calloc((size_t)rows + 1, 8), *rstds = calloc((size_t)rows + 1, 8);
    plain_norm(xs, NULL, NULL, rows, C, eps, centered, ys, means, rstds); /* ys is xhat */
    for (int64_t r = 0; r < rows; r++) {
        double mean_gw = 0, mean_gwx = 0;
        for (int64_t c = 0; c < C; c++) {
            const double gw = gs[r * C + c] * (weighted ? ws[c] : 1);
            mean_gw += gw / (double)C;
            mean_gwx += gw * ys[r * C + c] / (double)C;
            dws[c] += gs[r * C + c] * ys[r * C + c];
            dbs[c] += gs[r * C + c];
        }
        for (int64_t c = 0; c < C; c++) {
            const double gw = gs[r * C + c] * (weighted ? ws[c] : 1);
            dxs[r * C + c] = rstds[r] * (gw - (centered ? mean_gw : 0) - ys[r * C + c] * mean_gwx);
        }
        set(&mean, r, means[r]);
        set(&rstd, r, rstds[r]);
    }
    struct array *in_layer[] = {&g, &x, &mean, &rstd, &weight}, *in_rms[] = {&g, &x, &rstd, &weight};
    struct array *out[4] = {&dx};
    int n_out = 1;
    if (weighted) out[n_out++] = &dweight;
    if (weighted && centered) out[n_out++] = &dbias;
    if (gives_sums) out[n_out++] = &sums;
    const size_t workspace = NORM_CHUNKS * (size_t)C * (size_t)(n_out - 1) * (dtype == TL_F64 ? 8 : 4);
    assert_true(run(centered ? cpu_layer_norm_grad : cpu_rms_norm_grad, centered ? in_layer : in_rms,
                    (centered ? 4 : 3) + weighted, out, n_out,
                    &(struct attr_norm){.eps = eps, .gives_sums = gives_sums}, workspace));
    check_close("norm dx", &dx, dxs);
    if (gives_sums) { /* of dx as it is, rounded */
        double *given = values(&dx), *column = calloc((size_t)C + 1, 8);
        for (int64_t i = 0; i < rows * C; i++) column[i % C] += given[i];
        check_close("norm sums", &sums, column);
        free(given), free(column);
    }
    if (weighted) {
        check_close("norm dweight", &dweight, dws);
        if (centered) {
            check_close("norm dbias", &dbias, dbs);
        }
    }
    free(xs), free(gs), free(ws), free(dxs), free(dws), free(dbs), free(ys), free(means), free(rstds);
    drop(ARRAYS(&x, &g, &weight, &dx, &dweight, &dbias, &sums, &mean, &rstd));
}

static void norms_agree_with_plain_loops(void **state) {
    (void)state;
    for (int i = 0; i < 48; i++) {
        const int64_t C = i % 5 == 0 ? 2500 : pick(1, 90), rows = i % 7 == 0 ? 0 : pick(1, 200);
        check_norm_forward(float_dtypes[i % 4], rows, C, i / 4 % 2, i / 8 % 2);
        check_norm_grad(float_dtypes[i % 4], rows, C, i / 4 % 2, i / 8 % 2, i / 16 % 2);
    }
}

/* Compares gradients with differences of a forward kernel's loss, sum(g * first output): an error shared with the plain
 * loops would show here. All arrays are f64; gradients[i] belongs to inputs[i]. */
static void check_differences(const char *what, tl_kernel forward, struct array **inputs, int n_in,
                              struct array **outputs, int n_out, const struct array *g, const void *attr,
                              struct array **gradients, int n_gradients) {
    const double h = 1e-6;
    for (int which = 0; which < n_gradients; which++) {
        for (int64_t i = 0; i < inputs[which]->numel; i++) {
            const double kept = get(inputs[which], i);
            double loss[2] = {0};
            for (int side = 0; side < 2; side++) {
                set(inputs[which], i, kept + (side ? h : -h));
                assert_true(run(forward, inputs, n_in, outputs, n_out, attr, 0));
                for (int64_t j = 0; j < outputs[0]->numel; j++) {
                    loss[side] += get(outputs[0], j) * get(g, j);
                }
            }
            set(inputs[which], i, kept);
            const double slope = (loss[1] - loss[0]) / (2 * h), found = get(gradients[which], i);
            if (!(fabs(slope - found) < 1e-6)) {
                fail_msg("%s: gradient %d, element %lld is %.12g, differences give %.12g", what, which, (long long)i,
                         found, slope);
            }
        }
    }
}

static void norm_gradients_agree_with_differences(void **state) {
    (void)state;
    const int64_t rows = 3, C = 7;
    const struct attr_norm attr = {.eps = 1e-5};
    struct array x = random_dense(TL_F64, 2, (int64_t[]){rows, C}), g = random_dense(TL_F64, 2, x.shape);
    struct array w = random_dense(TL_F64, 1, &C), b = random_dense(TL_F64, 1, &C), y = dense(TL_F64, 2, x.shape);
    struct array mean = dense(TL_F64, 1, &rows), rstd = dense(TL_F64, 1, &rows);
    struct array dx = fresh(TL_F64, 2, x.shape), dw = fresh(TL_F64, 1, &C), db = fresh(TL_F64, 1, &C);
    const size_t workspace = NORM_CHUNKS * (size_t)C * 2 * sizeof(double);
    assert_true(run(cpu_layer_norm, ARRAYS(&x, &w, &b), ARRAYS(&y, &mean, &rstd), &attr, 0));
    assert_true(run(cpu_layer_norm_grad, ARRAYS(&g, &x, &mean, &rstd, &w), ARRAYS(&dx, &dw, &db), &attr, workspace));
    check_differences("layer_norm", cpu_layer_norm, ARRAYS(&x, &w, &b), ARRAYS(&y, &mean, &rstd), &g, &attr,
                      ARRAYS(&dx, &dw, &db));
    assert_true(run(cpu_rms_norm, ARRAYS(&x, &w), ARRAYS(&y, &rstd), &attr, 0));
    assert_true(run(cpu_rms_norm_grad, ARRAYS(&g, &x, &rstd, &w), ARRAYS(&dx, &dw), &attr, workspace));
    check_differences("rms_norm", cpu_rms_norm, ARRAYS(&x, &w), ARRAYS(&y, &rstd), &g, &attr, ARRAYS(&dx, &dw));
    drop(ARRAYS(&x, &g, &w, &b, &y, &mean, &rstd, &dx, &dw, &db));
}

/* ---- token ----------------------------------------------------------------------------------------------- */

static struct array random_ids(tl_dtype dtype, int rank, const int64_t *shape, const int *order, unsigned flip,
                               int64_t V) {
    struct array ids = array_new(dtype, rank, shape, order, pick(0, 2), flip);
    for (int64_t i = 0; i < ids.numel; i++) {
        convert_set_i64(ids.buffer, dtype, offset_of(&ids, i), pick(0, V - 1));
    }
    return ids;
}

static void embedding_copies_and_adds_rows(void **state) {
    (void)state;
    for (int i = 0; i < 32; i++) {
        const tl_dtype dtype = float_dtypes[i % 4], id_dtype = i / 4 % 2 ? TL_I32 : TL_I64;
        const int64_t V = pick(1, 50), C = i % 5 ? pick(0, 40) : 1300, B = pick(0, 30), T = pick(1, 9), N = B * T;
        struct array weight = random_dense(dtype, 2, (int64_t[]){V, C});
        struct array ids =
            random_ids(id_dtype, 2, (int64_t[]){B, T}, i % 2 ? (int[]){1, 0} : (int[]){0, 1}, (unsigned)pick(0, 3), V);
        struct array out = fresh(dtype, 3, (int64_t[]){B, T, C}), dweight = fresh(dtype, 2, weight.shape);
        struct array flat = dense(id_dtype, 1, &N);
        double *expected = values(&out), *sums = calloc((size_t)(V * C) + 1, 8);
        const struct attr_embedding attr = {V};
        assert_true(run(cpu_embedding, ARRAYS(&weight, &ids), ARRAYS(&out), &attr, 0));
        for (int64_t n = 0; n < N; n++) {
            const int64_t id = (int64_t)get(&ids, n);
            convert_set_i64(flat.buffer, id_dtype, n, id);
            for (int64_t c = 0; c < C; c++) {
                expected[n * C + c] = get(&weight, id * C + c);
                sums[id * C + c] += expected[n * C + c];
            }
        }
        check_close("embedding", &out, expected);
        struct array g = dense(dtype, 2, (int64_t[]){N, C});
        memcpy(g.buffer, out.buffer, (size_t)(N * C) * element_bytes(dtype));
        assert_true(run(cpu_embedding_grad, ARRAYS(&g, &flat), ARRAYS(&dweight), &attr, (size_t)(V + 1 + N) * 4));
        check_close("embedding_grad", &dweight, sums);
        assert_true(
            run(cpu_embedding_acc, ARRAYS(&dweight, &g, &flat), ARRAYS(&dweight), NULL, (size_t)(V + 1 + N) * 4));
        for (int64_t e = 0; e < V * C; e++) sums[e] *= 2;
        check_close("embedding_acc", &dweight, sums);
        free(expected), free(sums);
        drop(ARRAYS(&weight, &ids, &out, &dweight, &flat, &g));
    }
}

static void ids_outside_are_refused_by_name(void **state) {
    (void)state;
    const int64_t V = 5, C = 3, N = 4;
    struct array weight = random_dense(TL_F32, 2, (int64_t[]){V, C}), ids = dense(TL_I64, 1, &N);
    struct array out = fresh(TL_F32, 2, (int64_t[]){N, C}), loss = fresh(TL_F32, 1, &N), lse = fresh(TL_F32, 1, &N);
    struct array logits = random_dense(TL_F32, 2, (int64_t[]){N, V}), dweight = fresh(TL_F32, 2, weight.shape);
    const struct attr_embedding attr = {V};
    convert_set_i64(ids.buffer, TL_I64, 2, 5);
    assert_false(run(cpu_embedding, ARRAYS(&weight, &ids), ARRAYS(&out), &attr, 0));
    assert_string_equal(last_error, "id 5 is outside [0, 5)");
    assert_false(run(cpu_embedding_grad, ARRAYS(&out, &ids), ARRAYS(&dweight), &attr, 40));
    convert_set_i64(ids.buffer, TL_I64, 2, -1);
    assert_false(run(cpu_cross_entropy, ARRAYS(&logits, &ids), ARRAYS(&loss, &lse), NULL, 0));
    assert_string_equal(last_error, "target -1 is outside [0, 5)");
    drop(ARRAYS(&weight, &ids, &out, &loss, &lse, &logits, &dweight));
}

static void cross_entropy_agrees_with_plain_loops(void **state) {
    (void)state;
    for (int i = 0; i < 24; i++) {
        const tl_dtype dtype = float_dtypes[i % 4], stats = stats_dtype(dtype);
        const int64_t V = i % 3 ? pick(1, 60) : 3000, N = pick(0, 20);
        struct array logits = dense(dtype, 2, (int64_t[]){N, V}), dlogits = fresh(dtype, 2, logits.shape);
        fill_random(&logits, -30, 30);
        struct array targets = random_ids(i % 2 ? TL_I32 : TL_I64, 1, &N, NULL, 0, V), g = random_dense(stats, 1, &N);
        struct array loss = fresh(stats, 1, &N), lse = fresh(stats, 1, &N);
        double *losses = values(&loss), *lses = values(&lse), *slopes = values(&dlogits);
        const bool is_masked = i % 8 > 3 && N > 1 && V > 1;
        if (is_masked) {
            set(&logits, V + ((int64_t)get(&targets, 1) + 1) % V, -INFINITY);
        }
        for (int64_t n = 0; n < N; n++) {
            double max = -INFINITY, sum = 0;
            for (int64_t v = 0; v < V; v++) {
                max = fmax(max, get(&logits, n * V + v));
            }
            for (int64_t v = 0; v < V; v++) {
                sum += exp(get(&logits, n * V + v) - max);
            }
            lses[n] = max + log(sum);
            losses[n] = lses[n] - get(&logits, n * V + (int64_t)get(&targets, n));
            for (int64_t v = 0; v < V; v++) {
                const double onehot = v == (int64_t)get(&targets, n);
                slopes[n * V + v] = (exp(get(&logits, n * V + v) - lses[n]) - onehot) * get(&g, n);
            }
        }
        assert_true(run(cpu_cross_entropy, ARRAYS(&logits, &targets), ARRAYS(&loss, &lse), NULL, 0));
        check_close("cross_entropy loss", &loss, losses);
        check_close("cross_entropy lse", &lse, lses);
        assert_true(run(cpu_cross_entropy_grad, ARRAYS(&g, &logits, &targets, &lse), ARRAYS(&dlogits), NULL, 0));
        check_close("cross_entropy_grad", &dlogits, slopes);
        if (dtype == TL_F64 && V <= 60 && !is_masked) { /* -inf has no differences */
            check_differences("cross_entropy", cpu_cross_entropy, ARRAYS(&logits, &targets), ARRAYS(&loss, &lse), &g,
                              NULL, ARRAYS(&dlogits));
        }
        free(losses), free(lses), free(slopes);
        drop(ARRAYS(&logits, &dlogits, &targets, &g, &loss, &lse));
    }
}

/* ---- attention ------------------------------------------------------------------------------------------- */

/* (B,T,H,D) with the last axis dense: plain, heads first, or a third of a packed (B,T,3,H,D). */
static struct array random_heads(tl_dtype dtype, int64_t B, int64_t T, int64_t H, int64_t D) {
    static const int orders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 1, 0, 3}};
    struct array x =
        array_new(dtype, 4, (int64_t[]){B, T, H, D}, orders[pick(0, 2)], pick(0, 1) * 5, pick(0, 3) ? 0 : 2);
    fill_random(&x, -1, 1);
    return x;
}

static void rope_rotates_pairs_and_turns_back(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        const tl_dtype dtype = float_dtypes[i % 4];
        const int64_t B = pick(0, 2), T = pick(1, 40), H = pick(1, 3), D = i % 5 ? 2 * pick(1, 40) : 1100;
        struct array x = random_heads(dtype, B, T, H, D), y = fresh(dtype, 4, x.shape), back = fresh(dtype, 4, x.shape);
        struct attr_rope attr = {.base = 10000, .first_position = pick(0, 1000)};
        double *expected = values(&y), *xs = values(&x);
        for (int64_t row = 0; row < B * T * H; row++) {
            for (int64_t j = 0; j < D / 2; j++) {
                const double a =
                    (double)(attr.first_position + row / H % T) * pow(attr.base, -2.0 * (double)j / (double)D);
                const double low = get(&x, row * D + j), high = get(&x, row * D + j + D / 2);
                expected[row * D + j] = low * cos(a) - high * sin(a);
                expected[row * D + j + D / 2] = high * cos(a) + low * sin(a);
            }
        }
        assert_true(run(cpu_rope, ARRAYS(&x), ARRAYS(&y), &attr, 0));
        check_close("rope", &y, expected);
        attr.inverse = true;
        assert_true(run(cpu_rope, ARRAYS(&y), ARRAYS(&back), &attr, 0));
        check_close("rope inverse", &back, xs);
        free(expected), free(xs);
        drop(ARRAYS(&x, &y, &back));
    }
}

struct plain_attention {
    double *out, *lse, *dq, *dk, *dv;
};

/* q, g (B,T,H,D), k, v (B,S,Hkv,D) as dense doubles. */
static struct plain_attention attend(const double *q, const double *k, const double *v, const double *g, int64_t B,
                                     int64_t T, int64_t S, int64_t H, int64_t H_kv, int64_t D, double scale,
                                     bool causal) {
    struct plain_attention r = {calloc((size_t)(B * T * H * D) + 1, 8), calloc((size_t)(B * H * T) + 1, 8),
                                calloc((size_t)(B * T * H * D) + 1, 8), calloc((size_t)(B * S * H_kv * D) + 1, 8),
                                calloc((size_t)(B * S * H_kv * D) + 1, 8)};
    double *p = malloc(((size_t)S + 1) * sizeof *p), *dp = malloc(((size_t)S + 1) * sizeof *dp);
    for (int64_t row = 0; row < B * T * H; row++) {
        const int64_t h = row % H, t = row / H % T, b = row / H / T, group = h / (H / H_kv);
        const int64_t n = causal ? S - T + t + 1 : S;
        const double *qr = q + row * D, *gr = g + row * D;
        double sum = 0, delta = 0;
        for (int64_t s = 0; s < n; s++) {
            const double *kr = k + ((b * S + s) * H_kv + group) * D, *vr = v + ((b * S + s) * H_kv + group) * D;
            double score = 0;
            dp[s] = 0;
            for (int64_t d = 0; d < D; d++) {
                score += qr[d] * kr[d] * scale;
                dp[s] += gr[d] * vr[d];
            }
            p[s] = exp(score);
            sum += p[s];
        }
        r.lse[(b * H + h) * T + t] = n > 0 ? log(sum) : -INFINITY;
        for (int64_t s = 0; s < n; s++) {
            p[s] /= sum;
            delta += p[s] * dp[s];
        }
        for (int64_t s = 0; s < n; s++) {
            const int64_t at = ((b * S + s) * H_kv + group) * D;
            const double ds = p[s] * (dp[s] - delta) * scale;
            for (int64_t d = 0; d < D; d++) {
                r.out[row * D + d] += p[s] * v[at + d];
                r.dq[row * D + d] += ds * k[at + d];
                r.dk[at + d] += ds * qr[d];
                r.dv[at + d] += p[s] * gr[d];
            }
        }
    }
    free(p), free(dp);
    return r;
}

static void check_attention(tl_dtype dtype, int64_t B, int64_t T, int64_t S, int64_t H, int64_t H_kv, int64_t D,
                            bool causal) {
    const struct attr_attention attr = {.scale = D ? 1.7 / sqrt((double)D) : 1, .causal = causal};
    struct array q = random_heads(dtype, B, T, H, D), k = random_heads(dtype, B, S, H_kv, D),
                 v = random_heads(dtype, B, S, H_kv, D);
    struct array g = random_dense(dtype, 4, q.shape), out = fresh(dtype, 4, q.shape);
    struct array lse = fresh(stats_dtype(dtype), 3, (int64_t[]){B, H, T});
    struct array dq = fresh(dtype, 4, q.shape), dk = fresh(dtype, 4, k.shape), dv = fresh(dtype, 4, k.shape);
    double *qs = values(&q), *ks = values(&k), *vs = values(&v), *gs = values(&g);
    const struct plain_attention r = attend(qs, ks, vs, gs, B, T, S, H, H_kv, D, attr.scale, causal);
    assert_true(run(cpu_attention, ARRAYS(&q, &k, &v), ARRAYS(&out, &lse), &attr, 0));
    check_close("attention out", &out, r.out);
    check_close("attention lse", &lse, r.lse);
    const size_t delta_bytes = (size_t)(B * H * T) * (dtype == TL_F64 ? 8 : 4);
    const size_t sums_bytes = element_bytes(dtype) == 2 ? (size_t)(B * T * H * D) * 4 : 0;
    assert_true(run(cpu_attention_grad, ARRAYS(&g, &q, &k, &v, &out, &lse), ARRAYS(&dq, &dk, &dv), &attr,
                    (delta_bytes + 63) / 64 * 64 + sums_bytes));
    check_close("attention dq", &dq, r.dq);
    check_close("attention dk", &dk, r.dk);
    check_close("attention dv", &dv, r.dv);
    free(r.out), free(r.lse), free(r.dq), free(r.dk), free(r.dv);
    free(qs), free(ks), free(vs), free(gs);
    drop(ARRAYS(&q, &k, &v, &g, &out, &lse, &dq, &dk, &dv));
}

static void attention_agrees_with_plain_loops(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        const int64_t H_kv = pick(1, 2), H = H_kv * pick(1, 3);
        const int64_t T = i % 4 ? pick(0, 30) : pick(90, 150), S = i % 3 ? T : pick(0, 160);
        check_attention(float_dtypes[pick(0, 3)], pick(0, 2), T, S, H, H_kv, pick(1, 70), pick(0, 1));
    }
    for (int i = 0; i < 4; i++) {
        check_attention(float_dtypes[i], 1, 60, 55, 2, 1, 300,
                        true); /* a head in several parts; a query without keys */
    }
}

static void attention_gradient_agrees_with_differences(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        const int64_t B = 1, T = 5, S = 4, H = 4, H_kv = 2, D = 3;
        const struct attr_attention attr = {.scale = 0.7, .causal = causal};
        struct array q = random_heads(TL_F64, B, T, H, D), k = random_heads(TL_F64, B, S, H_kv, D);
        struct array v = random_heads(TL_F64, B, S, H_kv, D), g = random_dense(TL_F64, 4, q.shape);
        struct array out = fresh(TL_F64, 4, q.shape), lse = fresh(TL_F64, 3, (int64_t[]){B, H, T});
        struct array dq = fresh(TL_F64, 4, q.shape), dk = fresh(TL_F64, 4, k.shape), dv = fresh(TL_F64, 4, k.shape);
        assert_true(run(cpu_attention, ARRAYS(&q, &k, &v), ARRAYS(&out, &lse), &attr, 0));
        assert_true(run(cpu_attention_grad, ARRAYS(&g, &q, &k, &v, &out, &lse), ARRAYS(&dq, &dk, &dv), &attr,
                        (size_t)(B * H * T) * sizeof(double) + 64));
        check_differences("attention", cpu_attention, ARRAYS(&q, &k, &v), ARRAYS(&out, &lse), &g, &attr,
                          ARRAYS(&dq, &dk, &dv));
        drop(ARRAYS(&q, &k, &v, &g, &out, &lse, &dq, &dk, &dv));
    }
}

/* ---- update ---------------------------------------------------------------------------------------------- */

static struct array random_any(tl_dtype dtype, int64_t rows, int64_t columns, double low) {
    struct array x = array_new(dtype, 2, (int64_t[]){rows, columns}, pick(0, 1) ? (int[]){1, 0} : (int[]){0, 1},
                               pick(0, 2), (unsigned)pick(0, 3));
    fill_random(&x, low, 1);
    return x;
}

static void updates_agree_with_plain_loops(void **state) {
    (void)state;
    for (int i = 0; i < 32; i++) {
        const tl_dtype dtype = float_dtypes[i % 4], state_dtype = stats_dtype(dtype);
        const int64_t rows = pick(0, 40), columns = i % 3 ? pick(1, 40) : 1500;
        struct array p = random_any(dtype, rows, columns, -1), m = random_any(state_dtype, rows, columns, -1);
        struct array g = random_any(i / 4 % 2 ? TL_F32 : dtype, rows, columns, -1),
                     v = random_any(state_dtype, rows, columns, 0);
        const tl_adam_options o = {0.01, 0.9, 0.99, 1e-8, 0.1, true, 1 + i, {0}};
        double *ps = values(&p), *ms = values(&m), *vs = values(&v), *gs = values(&g);
        for (int64_t j = 0; j < p.numel; j++) {
            ms[j] = o.beta1 * ms[j] + (1 - o.beta1) * gs[j];
            vs[j] = o.beta2 * vs[j] + (1 - o.beta2) * gs[j] * gs[j];
            ps[j] = ps[j] * (1 - o.lr * o.weight_decay) -
                    o.lr / (1 - pow(o.beta1, (double)o.step)) * ms[j] /
                        (sqrt(vs[j]) / sqrt(1 - pow(o.beta2, (double)o.step)) + o.eps);
        }
        assert_true(run(cpu_adam, ARRAYS(&p, &g, &m, &v), ARRAYS(&p, &m, &v),
                        &(struct attr_adam){.update = {.n_parameters = 1}, .options = o}, 0));
        check_close("adam p", &p, ps);
        check_close("adam m", &m, ms);
        check_close("adam v", &v, vs);
        free(ps);
        ps = values(&p);
        for (int64_t j = 0; j < p.numel; j++) {
            ps[j] -= 0.3 * gs[j];
        }
        assert_true(run(cpu_sgd_momentum, ARRAYS(&p, &g), ARRAYS(&p),
                        &(struct attr_sgd_momentum){.update = {.n_parameters = 1}, .options = {.lr = 0.3, .step = 1}},
                        0));
        check_close("sgd_momentum p", &p, ps);
        free(ps), free(ms), free(vs), free(gs);
        drop(ARRAYS(&p, &g, &m, &v));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_agrees_with_plain_loops),
        cmocka_unit_test(norms_agree_with_plain_loops),
        cmocka_unit_test(norm_gradients_agree_with_differences),
        cmocka_unit_test(embedding_copies_and_adds_rows),
        cmocka_unit_test(ids_outside_are_refused_by_name),
        cmocka_unit_test(cross_entropy_agrees_with_plain_loops),
        cmocka_unit_test(rope_rotates_pairs_and_turns_back),
        cmocka_unit_test(attention_agrees_with_plain_loops),
        cmocka_unit_test(attention_gradient_agrees_with_differences),
        cmocka_unit_test(updates_agree_with_plain_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
