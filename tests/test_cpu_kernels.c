/* test_cpu_kernels.c: the cpu kernels called directly, with operands of every layout, against plain loops in double.
 *
 * Shapes, strides (permuted, with gaps, negative, zero), dtypes and broadcasting are drawn at random from a fixed
 * seed; each draw is run on one and on three threads and must give the same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Random operands ----------------------------------------------------------------------------------- */

static uint64_t state = 88172645463325252u;

static int64_t draw(int64_t n) /* 0 .. n-1 */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)(state >> 11) % n;
}

/* An operand with its memory: the elements may be anywhere in `memory`. */
struct box {
    tl_operand operand;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK];
    char *memory;
    size_t bytes;
};

static void box_free(struct box *box) { free(box->memory); }

/* A box of the shape; strided: axes in any order, with gaps, reversed or expanded (unless it will be written). */
static void box_new(struct box *box, tl_dtype dtype, int rank, const int64_t *shape, bool is_strided, bool may_expand) {
    int order[TL_MAX_RANK];
    for (int axis = 0; axis < rank; axis++) order[axis] = axis;
    if (is_strided)
        for (int i = rank - 1; i > 0; i--) {
            const int j = (int)draw(i + 1), other = order[i];
            order[i] = order[j];
            order[j] = other;
        }
    int64_t reach = 1, offset = 0;
    for (int i = rank - 1; i >= 0; i--) {
        const int axis = order[i];
        box->shape[axis] = shape[axis];
        if (is_strided && may_expand && draw(8) == 0) {
            box->stride[axis] = 0;
            continue;
        }
        const int64_t step = is_strided && draw(4) == 0 ? reach * 2 : reach;
        box->stride[axis] = step;
        if (is_strided && draw(4) == 0 && shape[axis] > 0) {
            box->stride[axis] = -step;
            offset += (shape[axis] - 1) * step;
        }
        reach = step * (shape[axis] > 0 ? shape[axis] : 1);
    }
    const int64_t element_bytes = dtype_info(dtype)->bits / 8;
    box->bytes = (size_t)(reach * element_bytes);
    box->memory = malloc(box->bytes);
    assert_non_null(box->memory);
    box->operand = (tl_operand){box->memory + offset * element_bytes, dtype, rank, box->shape, box->stride};
    for (int64_t i = 0; i < reach; i++) {
        if (dtype_is_float(dtype))
            convert_set_f64(box->memory, dtype, i, (double)(draw(1 << 20) - (1 << 19)) / (1 << 17));
        else
            convert_set_i64(box->memory, dtype, i,
                            dtype == TL_BOOL ? draw(2) : draw(9) - (dtype == TL_U8 || dtype == TL_U16 ? 0 : 4));
    }
}

/* Address of the element at `index` of the shape `rank` axes long, with broadcasting. */
static const void *element(const tl_operand *x, int rank, const int64_t *index) {
    int64_t at = 0;
    for (int axis = 0; axis < x->rank; axis++)
        if (x->shape[axis] != 1) at += index[axis + rank - x->rank] * x->stride[axis];
    return (const char *)x->data + at * (dtype_info(x->dtype)->bits / 8);
}

static double value_at(const tl_operand *x, int rank, const int64_t *index) {
    return convert_get_f64(element(x, rank, index), x->dtype, 0);
}

static bool next_index(int rank, const int64_t *shape, int64_t *index) {
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (++index[axis] < shape[axis]) return true;
        index[axis] = 0;
    }
    return false;
}

static double tolerance(tl_dtype dtype) {
    return dtype == TL_F64 ? 1e-13 : dtype == TL_F32 ? 4e-6 : dtype == TL_F16 ? 2e-3 : dtype == TL_BF16 ? 1e-2 : 0.0;
}

static void check_value(const char *what, tl_dtype dtype, double got, double expected) {
    const double slack = tolerance(dtype) * (fabs(expected) + 0.1);
    if (!(fabs(got - expected) <= slack) && !(isnan(got) && isnan(expected)))
        fail_msg("%s %s: got %.17g, expected %.17g", what, dtype_info(dtype)->name, got, expected);
}

static void call(tl_kernel kernel, const char *op, const tl_operand *in, int n_in, const tl_operand *out,
                 const void *attr, void *workspace, size_t workspace_bytes, int n_threads) {
    char error[200] = "";
    const tl_kernel_args args = {.op = op,
                                 .in = in,
                                 .n_in = n_in,
                                 .out = out,
                                 .n_out = 1,
                                 .attr = attr,
                                 .workspace = workspace,
                                 .workspace_bytes = workspace_bytes,
                                 .n_threads = n_threads,
                                 .error = error};
    if (!kernel(&args)) fail_msg("%s: %s", op, error);
}

static int64_t numel(int rank, const int64_t *shape) {
    int64_t n = 1;
    for (int axis = 0; axis < rank; axis++) n *= shape[axis];
    return n;
}

/* A random shape; now and then large enough for several threads, now and then empty. */
static int draw_shape(int64_t *shape) {
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 16, 33, 70};
    const int rank = (int)draw(5);
    for (int axis = 0; axis < rank; axis++)
        shape[axis] = draw(40) == 0 ? 0 : sizes[draw(rank <= 2 ? 8 : rank == 3 ? 7 : 5)];
    if (rank > 0 && draw(6) == 0) shape[draw(rank)] *= 40;
    return rank;
}

/* An input that broadcasts to the shape: leading axes dropped, others cut to 1. */
static void draw_input(struct box *box, tl_dtype dtype, int rank, const int64_t *shape) {
    int64_t own[TL_MAX_RANK];
    const int dropped = draw(3) == 0 ? (int)draw(rank + 1) : 0;
    for (int axis = dropped; axis < rank; axis++) own[axis - dropped] = draw(5) == 0 ? 1 : shape[axis];
    box_new(box, dtype, rank - dropped, own, draw(2), true);
}

/* ---- Elementwise ---------------------------------------------------------------------------------------- */

static double truth_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double truth_add(const double *v, const void *attr) {
    (void)attr;
    return v[0] + v[1];
}
static double truth_sub(const double *v, const void *attr) {
    (void)attr;
    return v[0] - v[1];
}
static double truth_mul(const double *v, const void *attr) {
    (void)attr;
    return v[0] * v[1];
}
static double truth_div(const double *v, const void *attr) {
    (void)attr;
    return v[0] / v[1];
}
static double truth_neg(const double *v, const void *attr) {
    (void)attr;
    return -v[0];
}
static double truth_exp(const double *v, const void *attr) {
    (void)attr;
    return exp(v[0]);
}
static double truth_log(const double *v, const void *attr) {
    (void)attr;
    return log(v[0]);
}
static double truth_sqrt(const double *v, const void *attr) {
    (void)attr;
    return sqrt(v[0]);
}
static double truth_tanh(const double *v, const void *attr) {
    (void)attr;
    return tanh(v[0]);
}
static double truth_sig(const double *v, const void *attr) {
    (void)attr;
    return truth_sigmoid(v[0]);
}
static double truth_relu(const double *v, const void *attr) {
    (void)attr;
    return v[0] > 0 ? v[0] : 0;
}
static double truth_silu(const double *v, const void *attr) {
    (void)attr;
    return v[0] * truth_sigmoid(v[0]);
}
static double truth_where(const double *v, const void *attr) {
    (void)attr;
    return v[0] != 0 ? v[1] : v[2];
}

static double truth_affine(const double *v, const void *attr) {
    const struct attr_affine *affine = attr;
    return v[0] * affine->scale + affine->shift;
}

static double truth_gelu(const double *v, const void *attr) {
    (void)attr;
    return 0.5 * v[0] * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (v[0] + 0.044715 * v[0] * v[0] * v[0])));
}

static double truth_gelu_grad(const double *v, const void *attr) {
    (void)attr;
    const double c = sqrt(2 / 3.14159265358979323846), x = v[0];
    const double t = tanh(c * (x + 0.044715 * x * x * x));
    return v[1] * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x));
}

static double truth_silu_grad(const double *v, const void *attr) {
    (void)attr;
    const double s = truth_sigmoid(v[0]);
    return v[1] * (s + v[0] * s * (1 - s));
}

static double truth_tanh_grad(const double *v, const void *attr) {
    (void)attr;
    return v[1] * (1 - v[0]) * (1 + v[0]);
}

static double truth_sigmoid_grad(const double *v, const void *attr) {
    (void)attr;
    return v[1] * v[0] * (1 - v[0]);
}

static double truth_compare(const double *v, const void *attr) {
    const struct attr_compare *compare = attr;
    const double a = v[0], b = v[1];
    const bool results[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
    return results[compare->relation];
}

static const struct elementwise_case {
    const char *name;
    tl_kernel kernel;
    double (*truth)(const double *v, const void *attr);
    int n_in;
    bool takes_integers;
} elementwise_cases[] = {
    {"add", cpu_add, truth_add, 2, true},
    {"sub", cpu_sub, truth_sub, 2, true},
    {"mul", cpu_mul, truth_mul, 2, true},
    {"div", cpu_div, truth_div, 2, false},
    {"affine", cpu_affine, truth_affine, 1, true},
    {"neg", cpu_neg, truth_neg, 1, true},
    {"exp", cpu_exp, truth_exp, 1, false},
    {"log", cpu_log, truth_log, 1, false},
    {"sqrt", cpu_sqrt, truth_sqrt, 1, false},
    {"tanh", cpu_tanh, truth_tanh, 1, false},
    {"sigmoid", cpu_sigmoid, truth_sig, 1, false},
    {"relu", cpu_relu, truth_relu, 1, true},
    {"gelu", cpu_gelu, truth_gelu, 1, false},
    {"gelu_grad", cpu_gelu_grad, truth_gelu_grad, 2, false},
    {"silu", cpu_silu, truth_silu, 1, false},
    {"silu_grad", cpu_silu_grad, truth_silu_grad, 2, false},
    {"tanh_grad", cpu_tanh_grad, truth_tanh_grad, 2, false},
    {"sigmoid_grad", cpu_sigmoid_grad, truth_sigmoid_grad, 2, false},
    {"compare", cpu_compare, truth_compare, 2, true},
    {"where", cpu_where, truth_where, 3, true},
};

static const tl_dtype float_dtypes[] = {TL_F64, TL_F32, TL_F32, TL_BF16, TL_F16};
static const tl_dtype signed_dtypes[] = {TL_I64, TL_I32, TL_I16, TL_I64};

static void elementwise_round(const struct elementwise_case *test) {
    int64_t shape[TL_MAX_RANK];
    const int rank = draw_shape(shape);
    const bool is_integer = test->takes_integers && draw(3) == 0;
    const tl_dtype dtype = is_integer ? signed_dtypes[draw(4)] : float_dtypes[draw(5)];
    const struct attr_affine affine = {is_integer ? 3.9 : 1.5, is_integer ? -2.5 : 0.25};
    const struct attr_affine affine_truth = {is_integer ? 3 : 1.5, is_integer ? -2 : 0.25};
    const struct attr_compare compare = {(tl_compare)draw(6)};
    const bool is_compare = test->kernel == cpu_compare;
    const void *attr = is_compare ? (const void *)&compare : &affine;
    const void *attr_truth = is_compare ? (const void *)&compare : &affine_truth;

    struct box in[3], out[2];
    tl_operand operands[3];
    for (int i = 0; i < test->n_in; i++) {
        const bool is_condition = test->kernel == cpu_where && i == 0;
        /* The other input may be of a narrower dtype that promotes to the same. */
        const tl_dtype own = is_condition            ? TL_BOOL
                             : i > 0 && draw(4) == 0 ? (is_integer        ? TL_I16
                                                        : dtype == TL_F16 ? TL_F16
                                                                          : TL_BF16)
                                                     : dtype;
        draw_input(&in[i], own, rank, shape);
        operands[i] = in[i].operand;
    }
    const tl_dtype out_dtype = is_compare ? TL_BOOL : dtype;
    const bool is_strided = draw(3) == 0;
    const uint64_t before = state;
    for (int k = 0; k < 2; k++) { /* one thread, then three */
        state = before;
        box_new(&out[k], out_dtype, rank, shape, is_strided, false);
        call(test->kernel, test->name, operands, test->n_in, &out[k].operand, attr, NULL, 0, k == 0 ? 1 : 3);
    }
    assert_memory_equal(out[0].memory, out[1].memory, out[0].bytes);

    int64_t index[TL_MAX_RANK] = {0};
    if (numel(rank, shape) > 0) do {
            double v[3];
            for (int i = 0; i < test->n_in; i++) v[i] = value_at(&operands[i], rank, index);
            check_value(test->name, out_dtype, value_at(&out[0].operand, rank, index), test->truth(v, attr_truth));
        } while (next_index(rank, shape, index));
    for (int i = 0; i < test->n_in; i++) box_free(&in[i]);
    box_free(&out[0]);
    box_free(&out[1]);
}

static void elementwise_ops_match_plain_loops_for_any_layout(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof elementwise_cases / sizeof *elementwise_cases; i++)
        for (int round = 0; round < 60; round++) elementwise_round(&elementwise_cases[i]);
}

/* x += y in place on a strided view, and x += x where both inputs and the output are one view. */
static void in_place_ops_read_before_they_write(void **unused) {
    (void)unused;
    for (int round = 0; round < 200; round++) {
        int64_t shape[TL_MAX_RANK], index[TL_MAX_RANK] = {0};
        const int rank = draw_shape(shape);
        const tl_dtype dtype = float_dtypes[draw(5)];
        struct box x, before, y;
        const uint64_t start = state;
        box_new(&x, dtype, rank, shape, draw(2) || true, false);
        state = start;
        box_new(&before, dtype, rank, shape, draw(2) || true, false);
        draw_input(&y, dtype, rank, shape);
        const bool is_self = draw(2);
        const tl_operand in[2] = {x.operand, is_self ? x.operand : y.operand};
        call(cpu_add, "add", in, 2, &x.operand, NULL, NULL, 0, 3);
        if (numel(rank, shape) > 0) do {
                const double a = value_at(&before.operand, rank, index);
                const double b = is_self ? a : value_at(&y.operand, rank, index);
                check_value("add_", dtype, value_at(&x.operand, rank, index), a + b);
            } while (next_index(rank, shape, index));
        box_free(&x);
        box_free(&before);
        box_free(&y);
    }
}

static void integer_arithmetic_wraps(void **unused) {
    (void)unused;
    const int64_t one = 1, shape = 1;
    int64_t a = INT64_MAX, b = 1, result;
    const tl_operand in[2] = {{&a, TL_I64, 1, &shape, &one}, {&b, TL_I64, 1, &shape, &one}};
    const tl_operand out = {&result, TL_I64, 1, &shape, &one};
    call(cpu_add, "add", in, 2, &out, NULL, NULL, 0, 1);
    assert_true(result == INT64_MIN);
    a = INT64_MIN;
    call(cpu_neg, "neg", in, 1, &out, NULL, NULL, 0, 1);
    assert_true(result == INT64_MIN);
}

static void functions_of_reals_refuse_integers_by_name(void **unused) {
    (void)unused;
    const int64_t one = 1;
    int64_t a = 3, result;
    const tl_operand in = {&a, TL_I64, 1, &one, &one}, out = {&result, TL_I64, 1, &one, &one};
    char error[200] = "";
    const tl_kernel_args args = {
        .op = "exp", .in = &in, .n_in = 1, .out = &out, .n_out = 1, .n_threads = 1, .error = error};
    assert_false(cpu_exp(&args));
    assert_non_null(strstr(error, "exp of i64"));
}

/* ---- Copies ----------------------------------------------------------------------------------------------- */

static const tl_dtype copy_dtypes[] = {TL_F64, TL_F32, TL_BF16, TL_F16, TL_I64, TL_I32, TL_I16, TL_U8, TL_BOOL};

static double converted(const void *from, tl_dtype from_dtype, tl_dtype to) {
    unsigned char element_bytes[8];
    convert(element_bytes, to, 1, from, from_dtype, 1, 1, CONVERT_NEAREST, NULL);
    return convert_get_f64(element_bytes, to, 0);
}

static void copies_match_plain_loops_for_any_layout(void **unused) {
    (void)unused;
    for (int round = 0; round < 1500; round++) {
        int64_t shape[TL_MAX_RANK], index[TL_MAX_RANK] = {0};
        const int rank = draw_shape(shape);
        const tl_dtype from = copy_dtypes[draw(9)], to = draw(2) ? from : copy_dtypes[draw(9)];
        const bool is_assign = draw(2);
        struct box in, out;
        draw_input(&in, from, rank, shape);
        box_new(&out, to, rank, shape, is_assign, false);
        const tl_operand operands[2] = {out.operand, in.operand};
        if (is_assign) call(cpu_assign, "assign", operands, 2, &out.operand, NULL, NULL, 0, 3);
        else call(cpu_copy, "copy", &in.operand, 1, &out.operand, NULL, NULL, 0, 3);
        if (numel(rank, shape) > 0) do {
                const double expected = converted(element(&in.operand, rank, index), from, to);
                const double got = value_at(&out.operand, rank, index);
                if (got != expected)
                    fail_msg("copy %s -> %s: got %g, expected %g", dtype_info(from)->name, dtype_info(to)->name, got,
                             expected);
            } while (next_index(rank, shape, index));
        box_free(&in);
        box_free(&out);
    }
}

static void copies_keep_the_bits_of_nan(void **unused) {
    (void)unused;
    const int64_t shape[2] = {64, 40}, swapped[2] = {1, 64}, dense[2] = {40, 1};
    uint32_t in[64 * 40], out[64 * 40];
    for (uint32_t i = 0; i < 64 * 40; i++) in[i] = 0x7F800001u + i; /* signalling NaNs */
    const tl_operand from = {in, TL_F32, 2, shape, swapped}, to = {out, TL_F32, 2, shape, dense};
    call(cpu_copy, "copy", &from, 1, &to, NULL, NULL, 0, 1);
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < 40; column++) assert_int_equal(out[row * 40 + column], in[column * 64 + row]);
}

static void f4_is_copied_both_ways(void **unused) {
    (void)unused;
    enum { N = 40000 };
    const int64_t n = N, one = 1;
    static float x[N], back[N];
    static unsigned char packed[N / 2], same[N / 2];
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.5f, -6};
    for (int i = 0; i < N; i++) x[i] = values[draw(10)];
    const tl_operand a = {x, TL_F32, 1, &n, &one}, b = {packed, TL_F4E2M1, 1, &n, &one},
                     c = {same, TL_F4E2M1, 1, &n, &one}, d = {back, TL_F32, 1, &n, &one};
    call(cpu_copy, "copy", &a, 1, &b, NULL, NULL, 0, 3);
    call(cpu_copy, "copy", &b, 1, &c, NULL, NULL, 0, 3);
    call(cpu_copy, "copy", &c, 1, &d, NULL, NULL, 0, 3);
    assert_memory_equal(x, back, sizeof x);
    call(cpu_fill, "fill", &b, 1, &b, &(struct attr_full){-1.5}, NULL, 0, 3);
    for (int i = 0; i < N; i++) assert_true(convert_get_f64(packed, TL_F4E2M1, i) == -1.5);
}

static void fill_touches_the_view_and_nothing_else(void **unused) {
    (void)unused;
    for (int round = 0; round < 200; round++) {
        int64_t shape[TL_MAX_RANK];
        const int rank = draw_shape(shape);
        const tl_dtype dtype = copy_dtypes[draw(9)];
        struct box x;
        box_new(&x, dtype, rank, shape, true, false);
        const int64_t n_elements = (int64_t)x.bytes / (dtype_info(dtype)->bits / 8);
        for (int64_t i = 0; i < n_elements; i++) convert_set_i64(x.memory, dtype, i, 0);
        call(cpu_fill, "fill", &x.operand, 1, &x.operand, &(struct attr_full){1.0}, NULL, 0, 3);
        int64_t n_set = 0;
        for (int64_t i = 0; i < n_elements; i++) n_set += convert_get_f64(x.memory, dtype, i) == 1.0;
        assert_int_equal(n_set, numel(rank, shape));
        box_free(&x);
    }
}

static void unview_adds_where_elements_meet(void **unused) {
    (void)unused;
    for (int round = 0; round < 300; round++) {
        /* Windows of `width` every `hop` over a line: they overlap when hop < width. */
        const int64_t width = 1 + draw(9), hop = draw(5), n_windows = 1 + draw(200);
        struct attr_unview attr = {.rank = 1, .offset = draw(4), .stride = {hop, 1}, .overlaps = hop < width};
        attr.shape[0] = attr.offset + (n_windows - 1) * hop + width + draw(3);
        const tl_dtype dtype = round % 3 == 0 ? TL_F64 : round % 3 == 1 ? TL_F32 : TL_I64;
        const int64_t g_shape[2] = {n_windows, width};
        struct box g, out;
        box_new(&g, dtype, 2, g_shape, true, true);
        box_new(&out, dtype, 1, attr.shape, false, false);
        call(cpu_unview, "unview", &g.operand, 1, &out.operand, &attr, NULL, 0, 3);
        double *expected = calloc((size_t)attr.shape[0], sizeof *expected);
        assert_non_null(expected);
        for (int64_t w = 0; w < n_windows; w++)
            for (int64_t i = 0; i < width; i++)
                expected[attr.offset + w * hop + i] += value_at(&g.operand, 2, (int64_t[]){w, i});
        for (int64_t i = 0; i < attr.shape[0]; i++)
            if (fabs(value_at(&out.operand, 1, &i) - expected[i]) >
                (dtype == TL_F32 ? 1e-3 + 1e-5 * fabs(expected[i]) : 1e-9))
                fail_msg("unview: got %g, expected %g", value_at(&out.operand, 1, &i), expected[i]);
        free(expected);
        box_free(&g);
        box_free(&out);
    }
}

/* ---- Reductions -------------------------------------------------------------------------------------------- */

static void reduce_round(bool is_max) {
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_F32, TL_BF16, TL_F16, TL_I64, TL_I32, TL_BOOL};
    int64_t shape[TL_MAX_RANK], out_shape[TL_MAX_RANK];
    const int rank = draw_shape(shape);
    for (int axis = 0; axis < rank && is_max; axis++) shape[axis] += shape[axis] == 0;
    const tl_dtype dtype = dtypes[draw(8)];
    const tl_dtype out_dtype = is_max || dtype_is_float(dtype) ? dtype : TL_I64;
    const struct attr_reduce attr = {.axes = (uint32_t)draw(1 << rank), .keep = true};
    for (int axis = 0; axis < rank; axis++) out_shape[axis] = attr.axes >> axis & 1 ? 1 : shape[axis];
    struct box x, dense, out[4];
    box_new(&x, dtype, rank, shape, draw(3) > 0, true);
    box_new(&dense, dtype, rank, shape, false, false);
    call(cpu_copy, "copy", &x.operand, 1, &dense.operand, NULL, NULL, 0, 1);

    /* With and without workspace, one thread and three, dense and strided: the same bits. */
    const size_t workspace_bytes = 8 * (size_t)(numel(rank, out_shape) * (numel(rank, shape) / REDUCE_CHUNK + 1));
    void *workspace = malloc(workspace_bytes + 1);
    for (int k = 0; k < 4; k++) {
        box_new(&out[k], out_dtype, rank, out_shape, false, false);
        call(is_max ? cpu_max : cpu_sum, "reduce", k & 1 ? &dense.operand : &x.operand, 1, &out[k].operand, &attr,
             k & 2 ? workspace : NULL, k & 2 ? workspace_bytes : 0, k == 0 ? 1 : 3);
        assert_memory_equal(out[0].memory, out[k].memory,
                            (size_t)numel(rank, out_shape) * (size_t)(dtype_info(out_dtype)->bits / 8));
    }
    free(workspace);

    int64_t index[TL_MAX_RANK] = {0};
    if (numel(rank, out_shape) > 0) do {
            int64_t inner[TL_MAX_RANK], inner_shape[TL_MAX_RANK] = {0}, at[TL_MAX_RANK];
            double expected = is_max ? -INFINITY : 0, size = 0;
            for (int axis = 0; axis < rank; axis++) {
                inner[axis] = 0;
                inner_shape[axis] = attr.axes >> axis & 1 ? shape[axis] : 1;
            }
            if (numel(rank, inner_shape) > 0) do {
                    for (int axis = 0; axis < rank; axis++)
                        at[axis] = attr.axes >> axis & 1 ? inner[axis] : index[axis];
                    const double v = value_at(&x.operand, rank, at);
                    expected = is_max ? (v > expected ? v : expected) : expected + v;
                    size += fabs(v);
                } while (next_index(rank, inner_shape, inner));
            const double got = value_at(&out[0].operand, rank, index);
            const double slack =
                is_max ? 0 : tolerance(out_dtype) * fabs(expected) + (dtype == TL_F64 ? 1e-15 : 1e-7) * size;
            if (!(fabs(got - expected) <= slack))
                fail_msg("reduce %s: got %.17g, expected %.17g", dtype_info(dtype)->name, got, expected);
        } while (next_index(rank, out_shape, index));
    box_free(&x);
    box_free(&dense);
    for (int k = 0; k < 4; k++) box_free(&out[k]);
}

static void reductions_give_the_same_bits_for_any_layout_and_threads(void **unused) {
    (void)unused;
    for (int round = 0; round < 500; round++) reduce_round(round % 4 == 0);
}

/* Chunks of one output spread over threads: (90000) -> scalar and (9001, 37) -> (37). */
static void long_reductions_use_chunks(void **unused) {
    (void)unused;
    const int64_t shapes[][2] = {{90000, 1}, {9001, 37}, {37, 9001}};
    for (int k = 0; k < 3; k++) {
        for (uint32_t axes = 1; axes < 4; axes++) {
            struct box x, turned, out[2];
            const int64_t *shape = shapes[k];
            const int64_t out_shape[2] = {axes & 1 ? 1 : shape[0], axes & 2 ? 1 : shape[1]};
            box_new(&x, TL_F32, 2, shape, false, false);
            box_new(&turned, TL_F32, 2, (int64_t[]){shape[1], shape[0]}, false, false);
            /* The same values with the axes the other way round in memory. */
            turned.operand.shape = shape;
            turned.operand.stride = (int64_t[]){1, shape[0]};
            const tl_operand pair[2] = {turned.operand, x.operand};
            call(cpu_assign, "assign", pair, 2, &turned.operand, NULL, NULL, 0, 2);
            const size_t bytes = 8 * (size_t)(out_shape[0] * out_shape[1] * (shape[0] * shape[1] / REDUCE_CHUNK + 1));
            void *workspace = malloc(bytes);
            const struct attr_reduce attr = {.axes = axes, .keep = true};
            for (int i = 0; i < 2; i++) box_new(&out[i], TL_F32, 2, out_shape, false, false);
            call(cpu_sum, "sum", &x.operand, 1, &out[0].operand, &attr, workspace, bytes, 3);
            call(cpu_sum, "sum", &turned.operand, 1, &out[1].operand, &attr, NULL, 0, 1);
            assert_memory_equal(out[0].memory, out[1].memory, out[0].bytes);
            free(workspace);
            box_free(&x);
            box_free(&turned);
            box_free(&out[0]);
            box_free(&out[1]);
        }
    }
}

/* Gradients of q, k and v, one after the other, on n_threads threads. */
static void attention_gradients(const int64_t n[6], const tl_attention_options *o, tl_dtype dtype, int n_threads,
                                char *bytes, size_t n_bytes) {
    tl_device *cpu = tl_device_find("cpu");
    const int before = tl_set_threads(n_threads);
    tl_seed(5);
    tl_scope scope = tl_scope_begin();
    tl_tensor *x[4] = {tl_normal(TL_SHAPE(n[0], n[1], n[3], n[5]), 0, 1, dtype, cpu),
                       tl_normal(TL_SHAPE(n[0], n[2], n[4], n[5]), 0, 1, dtype, cpu),
                       tl_normal(TL_SHAPE(n[0], n[2], n[4], n[5]), 0, 1, dtype, cpu),
                       tl_normal(TL_SHAPE(n[0], n[1], n[3], n[5]), 0, 1, dtype, cpu)};
    for (int i = 0; i < 3; i++) tl_requires_grad(x[i], true);
    tl_tensor *y = tl_attention(x[0], x[1], x[2], o, NULL);
    assert_true(tl_backward(y, x[3], 0));
    for (int i = 0; i < 3; i++) {
        const size_t own = (size_t)tl_numel(x[i]) * (size_t)tl_dtype_bits(dtype) / 8;
        assert_true(own <= n_bytes && tl_to_data(tl_grad_of(x[i]), bytes, own));
        bytes += own;
        n_bytes -= own;
    }
    assert_int_equal(n_bytes, 0);
    assert_true(tl_scope_end(scope));
    tl_set_threads(before);
}

/* With fewer heads than threads the gradient uses smaller items, which must not change the sums. */
static void attention_gives_the_same_bits_for_any_threads(void **unused) {
    (void)unused;
    const int64_t sizes[][6] = {/* B, T, S, H, Hkv, D */
                                {1, 200, 200, 1, 1, 40},
                                {1, 130, 170, 4, 2, 16},
                                {1, 70, 70, 3, 3, 300},
                                {2, 100, 37, 5, 5, 8},
                                {1, 64, 64, 12, 12, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int k = 0; k < 8; k++) {
            const int64_t *n = sizes[i];
            const tl_dtype dtype = k & 1 ? TL_BF16 : TL_F32;
            const tl_attention_options o = {
                .causal = k / 2 > 0, .window = k / 2 > 1 ? 50 : 0, .dropout = k / 2 > 2 ? 0.25 : 0};
            const size_t bytes =
                (size_t)(n[0] * n[5] * (n[1] * n[3] + 2 * n[2] * n[4])) * (size_t)tl_dtype_bits(dtype) / 8;
            char *one = malloc(bytes), *more = malloc(bytes);
            attention_gradients(n, &o, dtype, 1, one, bytes);
            for (int n_threads = 2; n_threads <= 8; n_threads++) {
                attention_gradients(n, &o, dtype, n_threads, more, bytes);
                assert_memory_equal(one, more, bytes);
            }
            free(one);
            free(more);
        }
    }
}

static void max_of_nan_is_nan(void **unused) {
    (void)unused;
    const int64_t shape[2] = {9, 33}, stride[2] = {33, 1}, column[1] = {33}, one[1] = {1}, nine[1] = {9};
    float x[9 * 33], out[33];
    for (int i = 0; i < 9 * 33; i++) x[i] = (float)i;
    x[4 * 33 + 7] = NAN;
    const tl_operand in = {x, TL_F32, 2, shape, stride};
    const tl_operand columns = {out, TL_F32, 1, column, one}, rows = {out, TL_F32, 1, nine, one};
    call(cpu_max, "max", &in, 1, &columns, &(struct attr_reduce){.axes = 1}, NULL, 0, 1);
    assert_true(isnan(out[7]) && out[8] == 8 * 33 + 8);
    call(cpu_max, "max", &in, 1, &rows, &(struct attr_reduce){.axes = 2}, NULL, 0, 1);
    assert_true(isnan(out[4]) && out[5] == 5 * 33 + 32);
}

static void softmax_and_its_gradient_match_the_formula(void **unused) {
    (void)unused;
    static const int64_t widths[] = {1, 3, 16, 17, 512, 700, 5000};
    for (int round = 0; round < 40; round++) {
        const tl_dtype dtype = float_dtypes[round % 5];
        const int64_t shape[2] = {1 + draw(20), widths[draw(7)]};
        struct box x, y, g, dx;
        box_new(&x, dtype, 2, shape, false, false);
        box_new(&y, dtype, 2, shape, false, false);
        box_new(&g, dtype, 2, shape, false, false);
        box_new(&dx, dtype, 2, shape, false, false);
        const struct attr_softmax last = {1};
        call(cpu_softmax, "softmax", &x.operand, 1, &y.operand, &last, NULL, 0, 2);
        call(cpu_softmax_grad, "softmax_grad", (tl_operand[]){y.operand, g.operand}, 2, &dx.operand, &last, NULL, 0, 2);
        for (int64_t row = 0; row < shape[0]; row++) {
            double sum = 0, dot = 0;
            for (int64_t i = 0; i < shape[1]; i++) {
                sum += exp(value_at(&x.operand, 2, (int64_t[]){row, i}));
                dot += value_at(&y.operand, 2, (int64_t[]){row, i}) * value_at(&g.operand, 2, (int64_t[]){row, i});
            }
            for (int64_t i = 0; i < shape[1]; i++) {
                const int64_t at[2] = {row, i};
                const double p = value_at(&y.operand, 2, at), truth = exp(value_at(&x.operand, 2, at)) / sum;
                check_value("softmax", dtype, p, truth);
                assert_true(fabs(p - truth) <= 2 * tolerance(dtype) * truth + 1e-7);
                check_value("softmax_grad", dtype, value_at(&dx.operand, 2, at),
                            p * (value_at(&g.operand, 2, at) - dot));
            }
        }
        box_free(&x);
        box_free(&y);
        box_free(&g);
        box_free(&dx);
    }
}

/* ---- Creation and dynamic ops ------------------------------------------------------------------------------- */

static void random_numbers_do_not_depend_on_threads_or_cuts(void **unused) {
    (void)unused;
    enum { N = 50001 };
    static double whole[N], part[N];
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_BF16, TL_I64, TL_BOOL};
    for (int kind = RANDOM_UNIFORM; kind <= RANDOM_INTEGERS; kind++)
        for (int k = 0; k < 5; k++) {
            const tl_dtype dtype = dtypes[k];
            if (dtype_is_float(dtype) != (kind == RANDOM_UNIFORM || kind == RANDOM_NORMAL)) continue;
            struct attr_random attr = {(enum random_kind)kind, {7, 3, 5}, 0.25, 2.0, 1.5, -3, 12};
            const int64_t n = N, rest = N - 123, one = 1;
            const tl_operand a = {whole, dtype, 1, &n, &one}, b = {part, dtype, 1, &rest, &one};
            const size_t bytes = (size_t)dtype_info(dtype)->bits / 8;
            call(cpu_random, "random", NULL, 0, &a, &attr, NULL, 0, 3);
            attr.generator.index += 123;
            call(cpu_random, "random", NULL, 0, &b, &attr, NULL, 0, 1);
            assert_memory_equal((char *)whole + 123 * bytes, part, (size_t)rest * bytes);
            for (int64_t i = 0; i < n && kind == RANDOM_UNIFORM; i++)
                assert_true(convert_get_f64(whole, dtype, i) >= 0.25 && convert_get_f64(whole, dtype, i) <= 1.5);
        }
}

static void arange_counts_in_wide_types(void **unused) {
    (void)unused;
    enum { N = 40000 };
    static float x[N];
    static int32_t y[N];
    const int64_t n = N, one = 1;
    const tl_operand a = {x, TL_F32, 1, &n, &one}, b = {y, TL_I32, 1, &n, &one};
    call(cpu_arange, "arange", NULL, 0, &a, &(struct attr_arange){0.1, 0.3}, NULL, 0, 3);
    call(cpu_arange, "arange", NULL, 0, &b, &(struct attr_arange){5, -2}, NULL, 0, 3);
    for (int i = 0; i < N; i++) {
        assert_true(x[i] == (float)(0.1 + i * 0.3));
        assert_int_equal(y[i], 5 - 2 * i);
    }
}

static void nonzero_lists_indices_in_row_major_order(void **unused) {
    (void)unused;
    const int64_t shape[2] = {50, 30}, stride[2] = {-1, 50}; /* a flipped transpose */
    uint8_t data[1500];
    int64_t n = 0, indices[1500 * 2];
    for (int i = 0; i < 1500; i++) n += data[i] = draw(3) == 0;
    const tl_operand x = {data + 49, TL_BOOL, 2, shape, stride};
    const int64_t out_shape[2] = {n, 2}, out_stride[2] = {2, 1};
    const tl_operand out = {indices, TL_I64, 2, out_shape, out_stride};
    call(cpu_nonzero, "nonzero", &x, 1, &out, &(struct attr_nonzero){n}, NULL, 0, 2);
    int64_t k = 0;
    for (int64_t row = 0; row < 50; row++)
        for (int64_t column = 0; column < 30; column++)
            if (data[49 - row + 50 * column]) {
                assert_int_equal(indices[2 * k], row);
                assert_int_equal(indices[2 * k + 1], column);
                k++;
            }
    assert_int_equal(k, n);
}

static void item_reads_floats_and_integers(void **unused) {
    (void)unused;
    const int64_t big = (INT64_C(1) << 60) + 1;
    double f64;
    int64_t i64;
    const tl_operand x = {(void *)(uintptr_t)&big, TL_I64, 0, NULL, NULL};
    call(cpu_item, "item", &x, 1, NULL, &(struct attr_item){&f64, &i64}, NULL, 0, 1);
    assert_true(i64 == big && f64 == 0x1p60);
}

/* ---- Functions ------------------------------------------------------------------------------------------------ */

/* The bounds vector_math.h states, on a sample of all floats (one in 257, every exponent and sign). */
static double ulps(float got, double expected) {
    if (isnan(expected)) return isnan(got) ? 0 : INFINITY;
    if ((float)expected == got) return 0;
    if (isinf((float)expected) || isinf(got)) return fabs(expected) > (double)FLT_MAX && isinf(got) ? 0 : INFINITY;
    int exponent;
    frexp(expected, &exponent);
    return fabs((double)got - expected) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

static double gelu_f64(double x) { return x * truth_sigmoid(x * (VECTOR_GELU_K0 + VECTOR_GELU_K1 * x * x)); }

/* The errors are measured on 16.7 million floats. Sanitizers look for other faults than wrong digits, and make each
 * evaluation forty times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FLOAT_STRIDE = 65537, N_POWERS = 1 << 12 };
#else
enum { FLOAT_STRIDE = 257, N_POWERS = 1 << 20 };
#endif

static void vector_functions_keep_their_stated_errors(void **unused) {
    (void)unused;
    double worst[6] = {0};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += FLOAT_STRIDE) {
        const float x = f32_of_bits((uint32_t)bits);
        const double d = x;
        const double errors[] = {ulps(vector_exp_f32(x), exp(d)),
                                 ulps(vector_log_f32(x), log(d)),
                                 ulps(vector_tanh_f32(x), tanh(d)),
                                 ulps(vector_sigmoid_f32(x), truth_sigmoid(d)),
                                 d < -86 ? 0 : ulps(vector_silu_f32(x), d * truth_sigmoid(d)),
                                 d < -5 ? 0 : ulps(vector_gelu_f32(x), gelu_f64(d))};
        for (int i = 0; i < 6; i++) worst[i] = errors[i] > worst[i] ? errors[i] : worst[i];
        if (d <= 0 && f32_bits(vector_exp_falling_f32(x)) != f32_bits(vector_exp_f32(x)))
            fail_msg("exp_falling(%a): got %a, exp gives %a", d, (double)vector_exp_falling_f32(x),
                     (double)vector_exp_f32(x));
    }
    print_message("ulp: exp %.2f log %.2f tanh %.2f sigmoid %.2f silu (x > -86) %.2f gelu (x > -5) %.2f\n", worst[0],
                  worst[1], worst[2], worst[3], worst[4], worst[5]);
    assert_true(worst[0] < 1.1 && worst[1] < 1 && worst[2] < 2.5 && worst[3] < 2.5 && worst[4] < 3.5 && worst[5] < 32);
}

static void vector_functions_have_their_limits(void **unused) {
    (void)unused;
    assert_true(vector_exp_f32(INFINITY) == INFINITY && vector_exp_f32(-INFINITY) == 0);
    assert_true(vector_log_f32(0) == -INFINITY && vector_log_f32(INFINITY) == INFINITY && isnan(vector_log_f32(-1)));
    assert_true(vector_tanh_f32(INFINITY) == 1 && vector_tanh_f32(-INFINITY) == -1 && signbit(vector_tanh_f32(-0.0f)));
    assert_true(vector_gelu_f32(-INFINITY) == 0 && vector_gelu_f32(INFINITY) == INFINITY);
    assert_true(vector_silu_f32(-INFINITY) == 0 && vector_silu_f32(INFINITY) == INFINITY);
    assert_true(vector_gelu_slope_f32(-INFINITY) == 0 && vector_gelu_slope_f32(INFINITY) == 1);
    assert_true(vector_silu_slope_f32(-INFINITY) == 0 && vector_silu_slope_f32(INFINITY) == 1);
    assert_true(isnan(vector_exp_f32(NAN)) && isnan(vector_exp_falling_f32(NAN)) && isnan(vector_log_f32(NAN)) &&
                isnan(vector_tanh_f32(NAN)));
    assert_true(isnan(vector_gelu_f32(NAN)) && isnan(vector_silu_f32(NAN)) && isnan(vector_gelu_slope_f32(NAN)));
}

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

static void note_range(void *context, int64_t first, int64_t last) {
    int64_t *lasts = context;
    lasts[first] = last;
}

static void ranges_depend_on_the_grain_alone(void **unused) {
    (void)unused;
    int64_t one[100] = {0}, many[100] = {0};
    parallel_for(95, 10, 1, note_range, one);
    parallel_for(95, 10, 4, note_range, many);
    assert_memory_equal(one, many, sizeof one);
    assert_int_equal(one[90], 95);
    parallel_for(0, 10, 4, note_range, NULL);
}

/* The bounds that vector_math.h states for exp2 and the functions of the normal distribution, likewise. */
static double truth_phi(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static double truth_gelu_erf_slope(double x) { return truth_phi(x) + x * exp(-0.5 * x * x) * 0.39894228040143267794; }
static void exp2_and_erf_keep_their_stated_errors(void **unused) {
    (void)unused;
    double worst[4] = {0};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += FLOAT_STRIDE) {
        const float x = f32_of_bits((uint32_t)bits);
        const double d = x;
        const double errors[] = {ulps(vector_exp2_f32(x), exp2(d)), ulps(vector_erf_f32(x), erf(d)),
                                 isinf(d) ? 0 : ulps(vector_gelu_erf_f32(x), d * truth_phi(d)),
                                 isinf(d) ? 0 : fabs((double)vector_gelu_erf_slope_f32(x) - truth_gelu_erf_slope(d))};
        for (int i = 0; i < 4; i++) worst[i] = errors[i] > worst[i] ? errors[i] : worst[i];
    }
    print_message("ulp: exp2 %.3f erf %.3f gelu_erf %.3f; its slope %.2e\n", worst[0], worst[1], worst[2], worst[3]);
    assert_true(worst[0] < 1.36 && worst[1] < 1.39 && worst[2] < 7.13 && worst[3] < 2e-7);
}

/* And for the functions through f64. */
static double truth_softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }
static void functions_through_f64_keep_their_stated_errors(void **unused) {
    (void)unused;
    double worst[7] = {0};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += FLOAT_STRIDE) {
        const float x = f32_of_bits((uint32_t)bits);
        const double d = x;
        const bool is_angle = vector_sin_is_easy_f32(x);
        const double errors[] = {ulps(vector_expm1_f32(x), expm1(d)),
                                 ulps(vector_log2_f32(x), log2(d)),
                                 ulps(vector_log1p_f32(x), log1p(d)),
                                 is_angle ? ulps(vector_sin_f32(x), sin(d)) : 0,
                                 is_angle ? ulps(vector_cos_f32(x), cos(d)) : 0,
                                 isfinite(d) ? ulps(vector_log1p_exp_f32(x), truth_softplus(d)) : 0,
                                 ulps(1 / vector_sqrt_f32(x), 1 / sqrt(d))};
        for (int i = 0; i < 7; i++) worst[i] = errors[i] > worst[i] ? errors[i] : worst[i];
    }
    print_message("ulp: expm1 %.3f log2 %.3f log1p %.3f sin %.3f cos %.3f softplus %.3f rsqrt %.3f\n", worst[0],
                  worst[1], worst[2], worst[3], worst[4], worst[5], worst[6]);
    for (int i = 0; i < 5; i++) assert_true(worst[i] < 0.505);
    assert_true(worst[5] < 1.5 && worst[6] < 1.5);
}

static void powers_keep_their_stated_error(void **unused) {
    (void)unused;
    double worst = 0;
    uint64_t word = 1;
    for (int i = 0; i < N_POWERS; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        const float x = i % 3 ? f32_of_bits((uint32_t)(word >> 32)) : (float)(word >> 40) * 0x1p-22f - 1;
        const float y = i % 2 ? (float)((int)(word >> 20 & 15) - 7) : (float)(word >> 12 & 4095) * 0x1p-7f - 16;
        if (!vector_pow_is_easy_f32(x, y)) continue;
        const double error = ulps(vector_pow_f32(x, y), pow(x, y));
        worst = error > worst ? error : worst;
    }
    print_message("ulp: pow %.3f\n", worst);
    assert_true(worst < 0.505);
}

static void more_functions_have_their_limits(void **unused) {
    (void)unused;
    assert_true(vector_exp2_f32(INFINITY) == INFINITY);
    assert_true(vector_exp2_f32(-INFINITY) == 0);
    assert_true(vector_expm1_f32(INFINITY) == INFINITY && vector_expm1_f32(-INFINITY) == -1);
    assert_true(signbit(vector_expm1_f32(-0.0f)) && signbit(vector_log1p_f32(-0.0f)) && signbit(vector_sin_f32(-0.0f)));
    assert_true(vector_log2_f32(0) == -INFINITY && vector_log2_f32(INFINITY) == INFINITY && isnan(vector_log2_f32(-1)));
    assert_true(vector_log1p_f32(-1) == -INFINITY && vector_log1p_f32(INFINITY) == INFINITY);
    assert_true(isnan(vector_log1p_f32(-2)) && vector_log1p_f32(1e-30f) == 1e-30f);
    assert_true(vector_erf_f32(INFINITY) == 1 && vector_erf_f32(-INFINITY) == -1 && signbit(vector_erf_f32(-0.0f)));
    assert_true(vector_gelu_erf_f32(INFINITY) == INFINITY && vector_gelu_erf_f32(-INFINITY) == 0);
    assert_true(signbit(vector_gelu_erf_f32(-INFINITY)) && signbit(vector_gelu_erf_f32(-0.0f)));
    assert_true(!signbit(vector_gelu_erf_f32(0)) && vector_erf_f32(4) == 1 && vector_exp2_f32(-149) == 0x1p-149f);
    assert_true(vector_gelu_erf_slope_f32(INFINITY) == 1 && vector_gelu_erf_slope_f32(-INFINITY) == 0);
    assert_true(vector_log1p_exp_f32(INFINITY) == INFINITY && vector_log1p_exp_f32(-INFINITY) == 0);
    assert_true(isnan(vector_exp2_f32(NAN)) && isnan(vector_expm1_f32(NAN)) && isnan(vector_log2_f32(NAN)));
    assert_true(isnan(vector_log1p_f32(NAN)) && isnan(vector_sin_f32(NAN)) && isnan(vector_erf_f32(NAN)));
    assert_true(isnan(vector_gelu_erf_f32(NAN)) && isnan(vector_gelu_erf_slope_f32(NAN)));
    assert_true(isnan(vector_log1p_exp_f32(NAN)) && isnan(vector_pow_f32(-2, 0.5f)) && vector_pow_f32(-2, 3) == -8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_ops_match_plain_loops_for_any_layout),
        cmocka_unit_test(in_place_ops_read_before_they_write),
        cmocka_unit_test(integer_arithmetic_wraps),
        cmocka_unit_test(functions_of_reals_refuse_integers_by_name),
        cmocka_unit_test(copies_match_plain_loops_for_any_layout),
        cmocka_unit_test(copies_keep_the_bits_of_nan),
        cmocka_unit_test(f4_is_copied_both_ways),
        cmocka_unit_test(fill_touches_the_view_and_nothing_else),
        cmocka_unit_test(unview_adds_where_elements_meet),
        cmocka_unit_test(reductions_give_the_same_bits_for_any_layout_and_threads),
        cmocka_unit_test(long_reductions_use_chunks),
        cmocka_unit_test(attention_gives_the_same_bits_for_any_threads),
        cmocka_unit_test(max_of_nan_is_nan),
        cmocka_unit_test(softmax_and_its_gradient_match_the_formula),
        cmocka_unit_test(random_numbers_do_not_depend_on_threads_or_cuts),
        cmocka_unit_test(arange_counts_in_wide_types),
        cmocka_unit_test(nonzero_lists_indices_in_row_major_order),
        cmocka_unit_test(item_reads_floats_and_integers),
        cmocka_unit_test(vector_functions_keep_their_stated_errors),
        cmocka_unit_test(vector_functions_have_their_limits),
        cmocka_unit_test(exp2_and_erf_keep_their_stated_errors),
        cmocka_unit_test(functions_through_f64_keep_their_stated_errors),
        cmocka_unit_test(powers_keep_their_stated_error),
        cmocka_unit_test(more_functions_have_their_limits),
        cmocka_unit_test(ranges_depend_on_the_grain_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
