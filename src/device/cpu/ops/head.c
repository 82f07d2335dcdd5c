/* head.c: the last product and the loss, a chunk of rows at a time; see ops/head.c.
 *
 * The chunks follow each other; inside a chunk the products and the rows are spread over threads. The chunk's size is
 * a rule of the shapes, so the order of all sums is too.
 */
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/ops/matmul.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct head {
    const tl_operand *targets;
    int64_t ignore_index, V;
    int64_t row;        /* the chunk's first */
    void *logits;       /* (rows of the chunk, V) of the compute type; later their gradient, in the same memory */
    void *gathered;     /* NULL, or (N,V) bf16: the gradient of all logits */
    bool is_rounded;    /* that is rounded to bf16 */
    void *losses;       /* (N) of the compute type */
    double scale;       /* of a row's loss in the result */
    double soft_cap;    /* of logits; 0: none */
    double smoothing;   /* of labels; 0: none, as below */
    double z_weight;    /* of the squared log-sum-exp */
    bool has_gradients; /* the logits' gradient is needed */
    void *workspace;    /* of the products */
};

#define REAL float
#define NAME(name) name##_f32
#include "device/cpu/ops/head_template.h"

#define REAL double
#define NAME(name) name##_f64
#include "device/cpu/ops/head_template.h"

/* How many rows take part; -1, and an error, when a target is no class. */
static int64_t count_rows(const tl_kernel_args *args, const tl_operand *targets, int64_t ignore_index, int64_t V) {
    int64_t n = 0;
    for (int64_t row = 0; row < targets->shape[0]; row++) {
        const int64_t target = block_integer(targets, row);
        if (target != ignore_index && (target < 0 || target >= V)) {
            snprintf(args->error, 200, "target %" PRId64 " is outside [0, %" PRId64 ")", target, V);
            return -1;
        }
        n += target != ignore_index;
    }
    return n;
}

/* A matrix of dense rows. */
struct matrix {
    tl_operand operand;
    int64_t shape[2], stride[2];
};
static void matrix_set(struct matrix *m, void *data, tl_dtype dtype, int64_t n_rows, int64_t n_columns, int64_t step) {
    m->shape[0] = n_rows;
    m->shape[1] = n_columns;
    m->stride[0] = step;
    m->stride[1] = 1;
    m->operand = (tl_operand){.data = data, .dtype = dtype, .rank = 2, .shape = m->shape, .stride = m->stride};
}

static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* dweight, from its sums in f32. */
struct rounding {
    const tl_operand *dweight;
    const float *sums;
};
static void round_sums(void *context, int64_t first, int64_t last) {
    const struct rounding *r = context;
    convert_from_f32(block_at(r->dweight->data, r->dweight->dtype, first), r->dweight->dtype, 1, r->sums + first,
                     last - first);
}

/* The backward products for the gradient of n rows of logits, from `row` on. */
static void multiply_back(const tl_kernel_args *args, const struct head *head, int64_t row, int64_t n,
                          const struct matrix *logits, const tl_operand *dx, const struct matrix *dweight) {
    const tl_operand *x = &args->in[0], *weight = &args->in[1];
    const bool is_fast = ((const struct attr_linear_cross_entropy *)args->attr)->is_fast;
    const int64_t C = x->shape[1];
    struct matrix rows, out;
    matrix_set(&rows, block_at(x->data, x->dtype, row * C), x->dtype, n, C, C);
    if (dx) {
        matrix_set(&out, block_at(dx->data, dx->dtype, row * C), dx->dtype, n, C, C);
        matmul_multiply(&out.operand, &logits->operand, false, weight, false, false, is_fast, head->workspace,
                        args->n_threads);
    }
    if (dweight)
        matmul_multiply(&dweight->operand, &logits->operand, true, &rows.operand, false, row > 0, is_fast,
                        head->workspace, args->n_threads);
}

/* Rows row .. row + n - 1: their losses, and the gradient of their logits with its products, unless these come
 * later. */
static void chunk_run(const tl_kernel_args *args, struct head *head, int64_t n, const tl_operand *dx,
                      const struct matrix *dweight) {
    const struct attr_linear_cross_entropy *attr = args->attr;
    const tl_operand *x = &args->in[0], *weight = &args->in[1];
    const int64_t C = x->shape[1], V = head->V;
    const bool f64 = dtype_compute(x->dtype) == TL_F64;
    struct matrix rows, logits;
    matrix_set(&rows, block_at(x->data, x->dtype, head->row * C), x->dtype, n, C, C);
    matrix_set(&logits, head->logits, f64 ? TL_F64 : TL_F32, n, V, V);
    matmul_multiply(&logits.operand, &rows.operand, false, weight, true, false, attr->is_fast, head->workspace,
                    args->n_threads);
    parallel_for(n, parallel_grain(8 * V), args->n_threads, f64 ? head_rows_f64 : head_rows_f32, head);
    if (head->gathered) return;
    if (head->is_rounded) matrix_set(&logits, head->logits, TL_BF16, n, V, 2 * V);
    multiply_back(args, head, head->row, n, &logits, dx, dweight);
}

bool cpu_linear_cross_entropy(const tl_kernel_args *args) {
    const struct attr_linear_cross_entropy *attr = args->attr;
    const tl_operand *x = &args->in[0], *weight = &args->in[1], *targets = &args->in[2], *loss = &args->out[0];
    const int64_t N = x->shape[0], V = weight->shape[0], C = weight->shape[1];
    const tl_dtype real = loss->dtype;
    const size_t real_bytes = real == TL_F64 ? sizeof(double) : sizeof(float);
    const int64_t n_rows = count_rows(args, targets, attr->ignore_index, V);
    if (n_rows < 0) return false;

    char *workspace = args->workspace;
    struct head head = {
        .targets = targets,
        .ignore_index = attr->ignore_index,
        .V = V,
        .logits = workspace,
        .losses = workspace + padded((size_t)(attr->chunk_rows * V) * real_bytes),
        .scale = attr->is_sum ? 1
                 : n_rows     ? 1 / (double)n_rows
                              : NAN,
        .soft_cap = attr->soft_cap,
        .smoothing = attr->label_smoothing,
        .z_weight = attr->z_weight,
        .has_gradients = args->n_out > 1,
        .is_rounded = x->dtype == TL_BF16,
    };
    head.workspace = (char *)head.losses + padded((size_t)N * real_bytes);
    if (attr->is_gathered) {
        head.gathered = head.workspace;
        head.workspace = (char *)head.workspace + padded((size_t)(N * V) * sizeof(uint16_t));
    }
    const tl_operand *dx = attr->gives_dx ? &args->out[1] : NULL;
    const tl_operand *dweight = attr->gives_dweight ? &args->out[dx ? 2 : 1] : NULL;
    struct matrix sums;
    if (dweight) {
        const bool is_direct = dweight->dtype == real || attr->is_gathered;
        matrix_set(&sums, is_direct ? dweight->data : head.workspace, is_direct ? dweight->dtype : real, V, C, C);
        if (!is_direct) head.workspace = (char *)head.workspace + padded((size_t)(V * C) * real_bytes);
        if (N == 0 && V * C > 0)
            memset(dweight->data, 0, (size_t)(V * C) * (size_t)iterate_element_bytes(dweight->dtype));
    }
    for (head.row = 0; head.row < N; head.row += attr->chunk_rows)
        chunk_run(args, &head, block_min(attr->chunk_rows, N - head.row), dx, dweight ? &sums : NULL);
    if (head.gathered) {
        struct matrix logits;
        matrix_set(&logits, head.gathered, TL_BF16, N, V, V);
        multiply_back(args, &head, 0, N, &logits, dx, dweight ? &sums : NULL);
    } else if (dweight && dweight->dtype != real && N > 0) {
        struct rounding rounding = {dweight, sums.operand.data};
        parallel_for(V * C, parallel_stream_grain(V * C, args->n_threads), args->n_threads, round_sums, &rounding);
    }

    double total = 0;
    for (int64_t row = 0; row < N; row++)
        total += real == TL_F64 ? ((const double *)head.losses)[row] : (double)((const float *)head.losses)[row];
    if (real == TL_F64) *(double *)loss->data = total * head.scale;
    else *(float *)loss->data = (float)(total * head.scale);
    return true;
}
