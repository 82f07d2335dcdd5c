/* fft.c: discrete Fourier transforms along one axis.
 *
 * One op does all: y[k] = scale sum over j of x[j] e^(-+ 2 pi i j k / n). Complex numbers are pairs of f32 or f64 (see
 * complex.c). A transform of real numbers gives the n/2 + 1 numbers that determine the rest; one to real numbers takes
 * them. Transforms of several axes are made of these, in Python.
 */
#include <math.h>
#include <string.h>

#include "ops/complex.h"
#include "spec/fft.h"

/* The last axis of the inputs, without that of pairs: n numbers, or n/2 + 1 of n. */
static int64_t numbers_of(const struct attr_fft *a, bool is_half) { return is_half ? a->n / 2 + 1 : a->n; }

static bool fft_shape(tl_call *c) {
    const struct attr_fft *a = c->attr;
    const tl_tensor *x = c->input[0];
    const int pairs = a->kind != FFT_OF_REAL;
    if (x->dtype != TL_F32 && x->dtype != TL_F64)
        return call_fail_need(c, "not implemented for %s", "float32 or float64", dtype_info(x->dtype)->torch_name);
    if (x->rank <= pairs || (pairs && x->shape[x->rank - 1] != 2) || a->n < 1 || !tensor_is_dense(x) ||
        x->shape[x->rank - 1 - pairs] != numbers_of(a, a->kind == FFT_TO_REAL))
        return call_fail(c, "the axis does not have the numbers of a transform of %lld", (long long)a->n);
    int64_t shape[TL_MAX_RANK];
    int rank = x->rank - pairs;
    memcpy(shape, x->shape, (size_t)rank * sizeof *shape);
    shape[rank - 1] = numbers_of(a, a->kind == FFT_OF_REAL);
    if (a->kind != FFT_TO_REAL) shape[rank++] = 2;
    return rank <= TL_MAX_RANK ? call_output(c, 0, x->dtype, rank, shape) : call_fail(c, "it has too many axes");
}

/* Nominal: 5 n log2 n for each transform, half of it where one side is real. */
static void fft_cost(const tl_call *c, struct cost *cost) {
    const struct attr_fft *a = c->attr;
    const int64_t numel = c->output[0]->numel;
    const int64_t each = a->kind == FFT_TO_REAL ? a->n : 2 * numbers_of(a, a->kind == FFT_OF_REAL);
    const double flops = (a->kind == FFT_COMPLEX ? 5.0 : 2.5) * (double)a->n * log2((double)a->n);
    cost_traffic(c, cost, (count)(numel / each) * (count)floor(flops));
}

static uint64_t fft_workspace(const tl_call *c) {
    const struct attr_fft *a = c->attr;
    const int64_t numel = c->output[0]->numel;
    const int64_t each = a->kind == FFT_TO_REAL ? a->n : 2 * numbers_of(a, a->kind == FFT_OF_REAL);
    return numel ? (uint64_t)fft_doubles(a->n, fft_lanes(numel / each)) * sizeof(double) : 0;
}

static tl_tensor *transform(tl_tensor *x, enum fft_kind kind, int64_t n, bool inverse, double scale) {
    struct attr_fft a;
    memset(&a, 0, sizeof a);
    a.kind = kind;
    a.n = n;
    a.inverse = inverse;
    a.scale = scale;
    return op_apply1(&op_fft, tl_contiguous(x), ATTR(a));
}

/* 1 for the numbers that have no mirror image, 2 for the others; (n/2 + 1, 1), to be multiplied with pairs. */
static tl_tensor *mirror_weights(int64_t n, const tl_tensor *like) {
    tl_tensor *w = tl_full(TL_SHAPE(n / 2 + 1, 1), 2, like->dtype, like->storage->device);
    if (!w || !tl_fill_(tl_select(w, 0, 0), 1)) return NULL;
    return n % 2 || tl_fill_(tl_select(w, 0, n / 2), 1) ? w : NULL;
}

/* The transform is linear: its gradient is the transform the other way round, with the same scale.
 * Of real numbers: of g with zeros for the numbers that were left out, the real part.
 * To real numbers: every number but the first, and the middle one, was used twice. */
static void fft_backward(tl_gradient *g) {
    const struct attr_fft *a = g->node->attr;
    tl_tensor *grad = g->grad[0];
    if (a->kind == FFT_COMPLEX) {
        g->result[0] = transform(grad, FFT_COMPLEX, a->n, !a->inverse, a->scale);
    } else if (a->kind == FFT_OF_REAL) {
        int64_t before[TL_MAX_RANK] = {0}, after[TL_MAX_RANK] = {0};
        after[grad->rank - 2] = a->n - (a->n / 2 + 1);
        tl_tensor *whole = tl_pad(grad, before, after, TL_PAD_CONSTANT, 0);
        g->result[0] = tl_select(transform(whole, FFT_COMPLEX, a->n, !a->inverse, a->scale), -1, 0);
    } else {
        tl_tensor *half = transform(grad, FFT_OF_REAL, a->n, !a->inverse, a->scale);
        g->result[0] = half ? tl_mul(half, mirror_weights(a->n, half)) : NULL;
    }
}

const tl_op op_fft = {RECORD(KERNEL, fft, 1),
                      .shapes = "pairs (...,n,2) -> (...,n,2); (...,n) -> (...,n/2+1,2); (...,n/2+1,2) -> (...,n)",
                      .dtypes = "f32, f64",
                      .flops = "5 n log2 n per transform, rounded down; half of it where one side is real",
                      .shape = fft_shape,
                      .cost = fft_cost,
                      .workspace = fft_workspace,
                      .backward = fft_backward};

/* ---- Public ---- */

/* 1, 1/sqrt n or 1/n, by the direction that is to have it. */
static bool scale_of(const char *what, tl_fft_norm norm, int64_t n, bool inverse, double *scale) {
    if ((unsigned)norm > TL_FFT_FORWARD)
        return error_set(TL_ERROR_USE, "%s: no norm has the number %d", what, (int)norm);
    const bool divides = norm == (inverse ? TL_FFT_BACKWARD : TL_FFT_FORWARD);
    *scale = norm == TL_FFT_ORTHO ? 1 / sqrt((double)n) : divides ? 1 / (double)n : 1;
    return true;
}

/* x with the axis as its last one, cut to n numbers or filled up with zeros. */
static tl_tensor *axis_prepare(tl_tensor *x, int at, int64_t n) {
    x = tl_transpose(x, at, -1);
    const int last = x ? x->rank - 1 : 0;
    if (!x || x->shape[last] == n) return x;
    if (x->shape[last] > n) return tl_slice(x, -1, 0, n, 1);
    int64_t before[TL_MAX_RANK] = {0}, after[TL_MAX_RANK] = {0};
    after[last] = n - x->shape[last];
    return tl_pad(x, before, after, TL_PAD_CONSTANT, 0);
}

/* n of the result's numbers, before any of them is known to be there. */
static bool fft_check(const char *what, tl_tensor *x, int axis, int64_t *n, bool to_real, int *at) {
    if (!tensor_check(x, what)) return false;
    *at = axis_check(what, axis, x->rank);
    if (*at < 0) return false;
    if (*n <= 0) *n = to_real ? 2 * (x->shape[*at] - 1) : x->shape[*at];
    return (*n > 0 && *n <= FFT_MOST) ||
           error_set(TL_ERROR_USE, "%s: Invalid number of data points (%lld) specified", what, (long long)*n);
}

static tl_tensor *fft_complex(const char *what, tl_tensor *x, int64_t n, int axis, tl_fft_norm norm, bool inverse) {
    double scale = 1;
    int at = 0;
    if (!fft_check(what, x, axis, &n, false, &at) || !scale_of(what, norm, n, inverse, &scale)) return NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *z = tl_cast(axis_prepare(x, at, n), dtype_complex(x->dtype));
    z = tl_view_as_complex(transform(tl_view_as_real(z), FFT_COMPLEX, n, inverse, scale));
    return tl_scope_return(scope, z ? tl_transpose(z, at, -1) : NULL);
}
tl_tensor *tl_fft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm) {
    return fft_complex("fft", x, n, axis, norm, false);
}
tl_tensor *tl_ifft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm) {
    return fft_complex("ifft", x, n, axis, norm, true);
}

tl_tensor *tl_rfft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm) {
    double scale = 1;
    int at = 0;
    if (!fft_check("rfft", x, axis, &n, false, &at) || !scale_of("rfft", norm, n, false, &scale)) return NULL;
    if (dtype_is_complex(x->dtype)) {
        error_set(TL_ERROR_USE, "rfft: expects a real input tensor, but got %s", dtype_info(x->dtype)->torch_name);
        return NULL;
    }
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *real = tl_cast(axis_prepare(x, at, n), dtype_part(dtype_complex(x->dtype)));
    tl_tensor *z = tl_view_as_complex(transform(real, FFT_OF_REAL, n, false, scale));
    return tl_scope_return(scope, z ? tl_transpose(z, at, -1) : NULL);
}

tl_tensor *tl_irfft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm) {
    double scale = 1;
    int at = 0;
    if (!fft_check("irfft", x, axis, &n, true, &at) || !scale_of("irfft", norm, n, true, &scale)) return NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *z = tl_cast(axis_prepare(x, at, n / 2 + 1), dtype_complex(x->dtype));
    tl_tensor *y = transform(tl_view_as_real(z), FFT_TO_REAL, n, true, scale);
    return tl_scope_return(scope, y ? tl_transpose(y, at, -1) : NULL);
}
