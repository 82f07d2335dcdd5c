#include "support/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/devices.h"
#include "spec/attr.h"
#include "spec/op_id.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

/* ---- Operands ---- */

static int64_t numel_of(const tl_operand *x) {
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->shape[i];
    return n;
}

/* The offset of element `at` (row-major) of a result in an operand, which is broadcast to the result's shape. */
static int64_t offset_of(const tl_operand *x, const tl_operand *result, int64_t at) {
    int64_t offset = 0;
    for (int i = result->rank - 1, k = x->rank - 1; i >= 0; i--, k--) {
        const int64_t index = result->shape[i] ? at % result->shape[i] : 0;
        at /= result->shape[i] ? result->shape[i] : 1;
        if (k >= 0 && x->shape[k] != 1) offset += index * x->stride[k];
    }
    return offset;
}

static double get(const tl_operand *x, const tl_operand *result, int64_t at) {
    return convert_get_f64(x->data, x->dtype, offset_of(x, result, at));
}
static void put(const tl_operand *out, int64_t at, double value) {
    convert_set_f64(out->data, out->dtype, offset_of(out, out, at), value);
}

/* ---- Elementwise ops: one loop each, from the formula ---- */

static double real_pow(double a, double b) { return pow(a, b); }
static double real_floor(double x) { return floor(x); }
static double real_ceil(double x) { return ceil(x); }
static double real_round(double x) { return nearbyint(x); }
static double real_trunc(double x) { return trunc(x); }
static double real_abs(double x) { return fabs(x); }
static bool real_isnan(double x) { return isnan(x); }
static double real_exp(double x) { return exp(x); }
static double real_exp2(double x) { return exp2(x); }
static double real_expm1(double x) { return expm1(x); }
static double real_log(double x) { return log(x); }
static double real_log2(double x) { return log2(x); }
static double real_log1p(double x) { return log1p(x); }
static double real_sqrt(double x) { return sqrt(x); }
static double real_sin(double x) { return sin(x); }
static double real_cos(double x) { return cos(x); }
static double real_tanh(double x) { return tanh(x); }
static double real_erf(double x) { return erf(x); }
static double real_erfc(double x) { return erfc(x); }
static double real_sinh(double x) { return sinh(x); }
static double real_cosh(double x) { return cosh(x); }
static double real_atan(double x) { return atan(x); }
static double real_atan2(double y, double x) { return atan2(y, x); }
static double real_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double real_silu(double x) { return x / (1 + exp(-x)); }
static double real_silu_slope(double x) {
    const double s = real_sigmoid(x);
    return s * (1 + x * (1 - s));
}
static double real_gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double real_gelu_slope(double x) {
    const double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
static double real_gelu_erf(double x) { return 0.5 * x * (1 + erf(x * M_SQRT1_2)); }
static double real_gelu_erf_slope(double x) {
    return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}

#define T double
#define W double
#define F(name) real_##name
#define UNARY(name, dtypes, formula, ...)                      \
    static bool reference_##name(const tl_kernel_args *args) { \
        const tl_operand *out = &args->out[0];                 \
        for (int64_t i = 0, n = numel_of(out); i < n; i++) {   \
            const double x = get(&args->in[0], out, i);        \
            put(out, i, formula);                              \
        }                                                      \
        return true;                                           \
    }
#define BINARY(name, dtypes, formula, ...)                                             \
    static bool reference_##name(const tl_kernel_args *args) {                         \
        const tl_operand *out = &args->out[0];                                         \
        for (int64_t i = 0, n = numel_of(out); i < n; i++) {                           \
            const double a = get(&args->in[0], out, i), b = get(&args->in[1], out, i); \
            put(out, i, formula);                                                      \
        }                                                                              \
        return true;                                                                   \
    }
#define SPECIAL(...)
#include "spec/elementwise_list.h"

static bool reference_affine(const tl_kernel_args *args) {
    const struct attr_affine *a = args->attr;
    for (int64_t i = 0, n = numel_of(&args->out[0]); i < n; i++)
        put(&args->out[0], i, a->scale * get(&args->in[0], &args->out[0], i) + a->shift);
    return true;
}

static bool reference_where(const tl_kernel_args *args) {
    const tl_operand *out = &args->out[0];
    for (int64_t i = 0, n = numel_of(out); i < n; i++)
        put(out, i, get(&args->in[get(&args->in[0], out, i) != 0 ? 1 : 2], out, i));
    return true;
}

/* ---- Making and moving ---- */

static bool reference_full(const tl_kernel_args *args) {
    for (int64_t i = 0, n = numel_of(&args->out[0]); i < n; i++)
        put(&args->out[0], i, ((const struct attr_full *)args->attr)->value);
    return true;
}

/* Integers stay integers on the way, since they wrap where floats are clamped. */
static bool move(const tl_operand *out, const tl_operand *x) {
    for (int64_t i = 0, n = numel_of(out); i < n; i++) {
        const int64_t to = offset_of(out, out, i), from = offset_of(x, out, i);
        if (dtype_is_float(x->dtype)) put(out, i, get(x, out, i));
        else convert_set_i64(out->data, out->dtype, to, convert_get_i64(x->data, x->dtype, from));
    }
    return true;
}
static bool reference_copy(const tl_kernel_args *args) { return move(&args->out[0], &args->in[0]); }
static bool reference_assign(const tl_kernel_args *args) { return move(&args->out[0], &args->in[1]); }

/* ---- Reductions ---- */

/* Element by element of x; `at` counts the elements of the output, whose axes are those of x that are not reduced. */
static int64_t output_at(const tl_operand *x, uint32_t axes, int64_t at) {
    int64_t to = 0, step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        const int64_t index = at % x->shape[i];
        at /= x->shape[i];
        if (axes >> i & 1) continue;
        to += index * step;
        step *= x->shape[i];
    }
    return to;
}

enum reduction { SUM, MAX, MIN };

static bool reduce(const tl_kernel_args *args, enum reduction kind) {
    const struct attr_reduce *a = args->attr;
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    const int64_t n = numel_of(out);
    double *results = malloc((size_t)(n + 1) * sizeof *results);
    if (!results) return snprintf(args->error, 200, "no memory") < 0;
    for (int64_t i = 0; i < n; i++) results[i] = kind == SUM ? 0 : kind == MAX ? -INFINITY : INFINITY;
    for (int64_t i = 0, n_x = numel_of(x); i < n_x; i++) {
        double *r = &results[output_at(x, a->axes, i)], value = get(x, x, i);
        if (kind == SUM) *r += value;
        else if (isnan(value) || (kind == MAX ? value > *r : value < *r)) *r = value;
    }
    const double over = kind == SUM && a->is_mean ? (double)numel_of(x) / (double)n : 1;
    for (int64_t i = 0; i < n; i++) put(out, i, results[i] / over);
    free(results);
    return true;
}
static bool reference_sum(const tl_kernel_args *args) { return reduce(args, SUM); }
static bool reference_max(const tl_kernel_args *args) { return reduce(args, MAX); }
static bool reference_min(const tl_kernel_args *args) { return reduce(args, MIN); }

/* out = e^x / sum e^x along an axis, dense: C elements of a line, `inner` apart. */
static bool reference_softmax(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    const int axis = ((const struct attr_softmax *)args->attr)->axis;
    const int64_t C = x->shape[axis], n = numel_of(x);
    int64_t inner = 1;
    for (int i = axis + 1; i < x->rank; i++) inner *= x->shape[i];
    for (int64_t line = 0; C && line < n / C; line++) {
        const int64_t first = line / inner * inner * C + line % inner, end = first + C * inner;
        double max = -INFINITY, sum = 0;
        for (int64_t i = first; i < end; i += inner) max = fmax(max, get(x, x, i));
        for (int64_t i = first; i < end; i += inner) sum += exp(get(x, x, i) - max);
        for (int64_t i = first; i < end; i += inner) put(out, i, exp(get(x, x, i) - max) / sum);
    }
    return true;
}

/* ---- Products ---- */

/* Element (row, column) of a matrix of the stack, op(x); `batch` counts the matrices of the output. */
static double entry(const tl_operand *x, const tl_operand *out, int64_t batch, bool is_transposed, int64_t row,
                    int64_t column) {
    int64_t offset = (is_transposed ? column : row) * x->stride[x->rank - 2] +
                     (is_transposed ? row : column) * x->stride[x->rank - 1];
    for (int i = out->rank - 3; i >= 0; i--) {
        if (x->shape[i] != 1) offset += batch % out->shape[i] * x->stride[i];
        batch /= out->shape[i];
    }
    return convert_get_f64(x->data, x->dtype, offset);
}

static bool product(const tl_kernel_args *args, int first) {
    const struct attr_matmul *a = args->attr;
    const tl_operand *left = &args->in[first], *right = &args->in[first + 1], *out = &args->out[0];
    if (a->folds) return snprintf(args->error, 200, "no reference kernel for folded products") < 0;
    const int64_t m = out->shape[out->rank - 2], n = out->shape[out->rank - 1];
    const int64_t k = left->shape[left->rank - 2 + !a->transpose_a];
    for (int64_t i = 0, all = numel_of(out); i < all; i++) {
        double sum = first ? get(out, out, i) : 0;
        const int64_t row = i / n % m, column = i % n, batch = i / n / m;
        for (int64_t j = 0; j < k; j++)
            sum +=
                entry(left, out, batch, a->transpose_a, row, j) * entry(right, out, batch, a->transpose_b, j, column);
        put(out, i, sum);
    }
    return true;
}
static bool reference_matmul(const tl_kernel_args *args) { return product(args, 0); }
static bool reference_matmul_acc(const tl_kernel_args *args) { return product(args, 1); }

static const tl_kernel kernels[OP_COUNT] = {
#define UNARY(name, ...) [OP_ID_##name] = reference_##name,
#define BINARY(name, ...) [OP_ID_##name] = reference_##name,
#define SPECIAL(...)
#include "spec/elementwise_list.h"
    [OP_ID_affine] = reference_affine,
    [OP_ID_where] = reference_where,
    [OP_ID_full] = reference_full,
    [OP_ID_copy] = reference_copy,
    [OP_ID_assign] = reference_assign,
    [OP_ID_sum] = reference_sum,
    [OP_ID_max] = reference_max,
    [OP_ID_min] = reference_min,
    [OP_ID_softmax] = reference_softmax,
    [OP_ID_matmul] = reference_matmul,
    [OP_ID_matmul_acc] = reference_matmul_acc,
};

/* ---- The device ---- */

static bool segment_new(tl_device *device, uint64_t bytes, void **data, char *error) {
    (void)device;
    *data = aligned_alloc(64, (size_t)bytes);
    return *data || snprintf(error, 200, "the system has no %llu bytes", (unsigned long long)bytes) < 0;
}
static void segment_free(tl_device *device, void *data, uint64_t bytes) {
    (void)device, (void)bytes;
    free(data);
}
static bool copy(tl_device *device, void *to, const void *from, size_t bytes, enum copy_direction direction,
                 char *error) {
    (void)device, (void)direction, (void)error;
    memcpy(to, from, bytes);
    return true;
}
static bool sync(tl_device *device, char *error) {
    (void)device, (void)error;
    return true;
}
static const struct device_functions functions = {
    .segment_new = segment_new, .segment_free = segment_free, .copy = copy, .sync = sync};

/* No kernel needs a workspace beyond what op records say. */
static const struct device_rules rules = {.is_host = true};

static const struct target targets[] = {
    {.name = "reference",
     .rules = &rules,
     .align_bytes = 64,
     .small_bytes = 4096,
     .small_segment_bytes = 65536,
     .large_segment_bytes = 1 << 20,
     .huge_bytes = 1 << 19,
     .segment_align_bytes = 4096,
     .native = TARGET_NATIVE(TL_F64)},
    {.name = NULL},
};

static bool reference_open(tl_device *d, int index, const struct target *as, char *error) {
    (void)index;
    if (as && as != targets) return snprintf(error, 400, "the reference is itself alone") < 0;
    d->target = targets;
    d->functions = &functions;
    d->kernels = kernels;
    return true;
}

static const struct device_driver driver = {.name = "reference", .targets = targets, .open = reference_open};

tl_device *reference_device(void) {
    static bool is_registered;
    if (!is_registered) is_registered = device_register(&driver);
    return tl_device_find("reference");
}
