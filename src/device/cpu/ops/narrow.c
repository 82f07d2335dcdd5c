/* narrow.c: 8-bit operands and their products, by definition. Training in 8 bits on a CPU does not use these kernels:
 * no CPU multiplies 8-bit floats faster than 16-bit ones, so training rounds to 8 bits and multiplies wider numbers
 * (nn/narrow_linear.c). */
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"
#include "spec/rows.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>

enum { CHUNK = 256, CODES = 256 };

/* ---- narrow ---- */

struct narrowing {
    const tl_operand *x; /* dense */
    tl_dtype dtype;
    int64_t n_rows, n_columns;
    float scale;
    uint8_t *rows, *transposed; /* NULL: not needed */
};

/* Some elements of x, from the one at `at` on, as f32. */
static void x_read(const struct narrowing *n, int64_t at, int64_t length, float *to) {
    const char *from = (const char *)n->x->data + at * dtype_info(n->x->dtype)->bits / 8;
    convert(to, TL_F32, 1, from, n->x->dtype, 1, length, CONVERT_NEAREST, NULL);
}

/* NaN is larger than all numbers. */
static float largest_magnitude(const struct narrowing *n) {
    float most = 0, part[CHUNK];
    const int64_t numel = n->n_rows * n->n_columns;
    for (int64_t at = 0; at < numel; at += CHUNK) {
        const int64_t length = numel - at < CHUNK ? numel - at : CHUNK;
        x_read(n, at, length, part);
        for (int64_t i = 0; i < length; i++)
            if (!(fabsf(part[i]) <= most)) most = isnan(most) ? most : fabsf(part[i]);
    }
    return most;
}

static void narrow_rows(void *context, int64_t first, int64_t last) {
    const struct narrowing *n = context;
    float part[CHUNK];
    uint8_t codes[CHUNK];
    for (int64_t row = first; row < last; row++)
        for (int64_t at = 0; at < n->n_columns; at += CHUNK) {
            const int64_t length = n->n_columns - at < CHUNK ? n->n_columns - at : CHUNK;
            x_read(n, row * n->n_columns + at, length, part);
            for (int64_t i = 0; i < length; i++) part[i] /= n->scale;
            convert(codes, n->dtype, 1, part, TL_F32, 1, length, CONVERT_SATURATE, NULL);
            for (int64_t i = 0; i < length && n->rows; i++) n->rows[row * n->n_columns + at + i] = codes[i];
            for (int64_t i = 0; i < length && n->transposed; i++) n->transposed[(at + i) * n->n_rows + row] = codes[i];
        }
}

bool cpu_narrow(const tl_kernel_args *args) {
    const struct attr_narrow *attr = args->attr;
    struct folded rows;
    const tl_operand *x = fold_operand(&rows, &args->in[0]);
    struct narrowing n = {.x = x, .dtype = attr->dtype, .n_rows = x->shape[0], .n_columns = x->shape[1]};
    if (attr->gives_rows) n.rows = args->out[0].data;
    if (attr->gives_transposed) n.transposed = args->out[attr->gives_rows].data;
    if (args->n_in > 1) {
        n.scale = *(const float *)args->in[1].data;
    } else {
        const float inverse_largest = (float)(1 / dtype_info(attr->dtype)->max);
        n.scale = largest_magnitude(&n) * inverse_largest + 1e-30f;
        *(float *)args->out[args->n_out - 1].data = n.scale;
    }
    parallel_for(n.n_rows, parallel_grain(n.n_columns * 8), args->n_threads, narrow_rows, &n);
    return true;
}

/* ---- matmul_f8 ---- */

struct product {
    const tl_operand *out, *a, *b, *bias;
    int64_t n, k;
    float a_values[CODES], b_values[CODES]; /* the values of the codes */
    float scale;
    bool adds;
};

static void values_fill(float *values, tl_dtype dtype) {
    for (int code = 0; code < CODES; code++) {
        const uint8_t byte = (uint8_t)code;
        convert(&values[code], TL_F32, 1, &byte, dtype, 1, 1, CONVERT_NEAREST, NULL);
    }
}

/* out[i][j] (+)= sum over k of a[i][k] b[j][k], times both scales, plus the bias */
static void product_rows(void *context, int64_t first, int64_t last) {
    const struct product *p = context;
    const int64_t bytes = dtype_info(p->out->dtype)->bits / 8;
    for (int64_t i = first; i < last; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const uint8_t *a = (const uint8_t *)p->a->data + i * p->k, *b = (const uint8_t *)p->b->data + j * p->k;
            char *to = (char *)p->out->data + (i * p->n + j) * bytes;
            float sum = 0, other = 0;
            for (int64_t k = 0; k < p->k; k++) sum += p->a_values[a[k]] * p->b_values[b[k]];
            if (p->adds) convert(&other, TL_F32, 1, to, p->out->dtype, 1, 1, CONVERT_NEAREST, NULL);
            else if (p->bias)
                convert(&other, TL_F32, 1, (const char *)p->bias->data + j * bytes, p->bias->dtype, 1, 1,
                        CONVERT_NEAREST, NULL);
            sum = sum * p->scale + other;
            convert(to, p->out->dtype, 1, &sum, TL_F32, 1, 1, CONVERT_NEAREST, NULL);
        }
}

/* `in`: a, b and their scales. */
static bool product_run(const tl_kernel_args *args, const tl_operand *in, const tl_operand *out, const tl_operand *bias,
                        bool adds) {
    struct folded rows;
    const tl_operand *a = fold_operand(&rows, &in[0]);
    struct product p = {.out = out, .a = a, .b = &in[1], .bias = bias, .adds = adds};
    p.n = in[1].shape[0];
    p.k = in[1].shape[1];
    p.scale = *(const float *)in[2].data * *(const float *)in[3].data;
    values_fill(p.a_values, in[0].dtype);
    values_fill(p.b_values, in[1].dtype);
    parallel_for(a->shape[0], parallel_grain(p.n * p.k), args->n_threads, product_rows, &p);
    return true;
}

bool cpu_matmul_f8(const tl_kernel_args *args) {
    return product_run(args, args->in, &args->out[0], args->n_in > 7 ? &args->in[7] : NULL, false);
}

bool cpu_matmul_f8_acc(const tl_kernel_args *args) { return product_run(args, args->in + 1, &args->in[0], NULL, true); }
