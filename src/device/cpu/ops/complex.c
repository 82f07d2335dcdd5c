/* complex.c: products and quotients of complex numbers, pairs side by side. Each is computed in the dtype of its
 * parts. */
#include <math.h>

#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"

/* Rows of pairs: the axis before the last, in each operand with a stride of its own, 0 where it broadcasts. */
struct task {
    const tl_kernel_args *args;
    int64_t stride[2][TL_MAX_RANK]; /* of the operands, along the result's axes but the last */
    int64_t length;                 /* of a row */
    int rank;                       /* axes of the result but the last */
    bool conjugates;
};

/* (a + ib)(c + id) = (ac - bd) + i(ad + bc)
 * The quotient is NumPy's and PyTorch's: the larger part of the divisor divides first, so that no square overflows. */
#define DEFINE(T, MAGNITUDE)                                                                               \
    static void product_##T(const T *a, const T *b, T *y, T sign) {                                        \
        const T im = sign * b[1], re = a[0] * b[0] - a[1] * im;                                            \
        y[1] = a[0] * im + a[1] * b[0];                                                                    \
        y[0] = re;                                                                                         \
    }                                                                                                      \
    static void quotient_##T(const T *a, const T *b, T *y, T sign) {                                       \
        const T re = b[0], im = sign * b[1];                                                               \
        if (MAGNITUDE(re) >= MAGNITUDE(im)) {                                                              \
            if (re == 0 && im == 0) {                                                                      \
                y[0] = a[0] / MAGNITUDE(re);                                                               \
                y[1] = a[1] / MAGNITUDE(im);                                                               \
                return;                                                                                    \
            }                                                                                              \
            const T ratio = im / re, scale = 1 / (re + im * ratio), first = (a[0] + a[1] * ratio) * scale; \
            y[1] = (a[1] - a[0] * ratio) * scale;                                                          \
            y[0] = first;                                                                                  \
        } else {                                                                                           \
            const T ratio = re / im, scale = 1 / (re * ratio + im), first = (a[0] * ratio + a[1]) * scale; \
            y[1] = (a[1] * ratio - a[0]) * scale;                                                          \
            y[0] = first;                                                                                  \
        }                                                                                                  \
    }
DEFINE(float, fabsf)
DEFINE(double, fabs)

/* Where the operands' rows start. */
static void row_begin(const struct task *t, int64_t row, int64_t *at) {
    const int64_t *shape = t->args->out[0].shape;
    at[0] = at[1] = 0;
    for (int axis = t->rank - 2; axis >= 0; axis--) {
        const int64_t i = row % shape[axis];
        row /= shape[axis];
        at[0] += i * t->stride[0][axis];
        at[1] += i * t->stride[1][axis];
    }
}

#define ROWS(T, OF)                                                                                             \
    static void rows_##OF##_##T(void *context, int64_t first, int64_t last) {                                   \
        const struct task *t = context;                                                                         \
        const T *a = t->args->in[0].data, *b = t->args->in[1].data, sign = t->conjugates ? -1 : 1;              \
        T *y = t->args->out[0].data;                                                                            \
        const int64_t step_a = t->rank ? t->stride[0][t->rank - 1] : 0,                                         \
                      step_b = t->rank ? t->stride[1][t->rank - 1] : 0;                                         \
        for (int64_t k = first, end; k < last; k = end) {                                                       \
            int64_t at[2];                                                                                      \
            end = (k / t->length + 1) * t->length < last ? (k / t->length + 1) * t->length : last;              \
            row_begin(t, k / t->length, at);                                                                    \
            const T *from_a = a + at[0] + k % t->length * step_a, *from_b = b + at[1] + k % t->length * step_b; \
            for (; k < end; k++, from_a += step_a, from_b += step_b) OF##_##T(from_a, from_b, y + 2 * k, sign); \
        }                                                                                                       \
    }
ROWS(float, product)
ROWS(double, product)
ROWS(float, quotient)
ROWS(double, quotient)

static void operand_strides(const tl_operand *x, const tl_operand *out, int64_t *stride) {
    const int extra = out->rank - x->rank;
    for (int axis = 0; axis < out->rank - 1; axis++)
        stride[axis] = axis < extra || x->shape[axis - extra] == 1 ? 0 : x->stride[axis - extra];
}

static bool run(const tl_kernel_args *args, parallel_body of_f32, parallel_body of_f64) {
    const tl_operand *out = &args->out[0];
    struct task t = {.args = args,
                     .rank = out->rank - 1,
                     .length = out->rank > 1 ? out->shape[out->rank - 2] : 1,
                     .conjugates = ((const struct attr_complex *)args->attr)->conjugates};
    int64_t n = 1;
    for (int axis = 0; axis < t.rank; axis++) n *= out->shape[axis];
    for (int i = 0; i < 2; i++) operand_strides(&args->in[i], out, t.stride[i]);
    parallel_for(n, parallel_grain(8), args->n_threads, out->dtype == TL_F64 ? of_f64 : of_f32, &t);
    return true;
}

bool cpu_complex_mul(const tl_kernel_args *args) { return run(args, rows_product_float, rows_product_double); }
bool cpu_complex_div(const tl_kernel_args *args) { return run(args, rows_quotient_float, rows_quotient_double); }
