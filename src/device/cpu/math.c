/* math.c: elementary functions, rounding, remainders, extremes, truth values; and the ops that take a number beside a
 * tensor. The driver is elementwise.c's; here are the loops. */
#include "device/cpu/elementwise.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vector_math.h"
#include "ops/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <stdatomic.h>
#include <stdio.h>

/* ---- The loops, once per compute type ----------------------------------------------------------------------- */

enum { PIECE = 256 }; /* elements that are looked at together, before: whether all of them are easy */

/* A number of ours as a double: f32 rounds it once more. */
static double real_of(tl_scalar s) { return s.kind == TL_SCALAR_FLOAT ? s.f : (double)s.i; }

#define T float
#define NAME(name) name##_f32
#define REAL(name) name##f
#define SCALAR(s) ((float)real_of(s))
#define ABS(x) fabsf(x)
#define SELECT vector_select
#define IS_NAN(x) ((x) != (x))
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#define IS_FLOAT 1
#include "device/cpu/math_template.h"

#define T double
#define NAME(name) name##_f64
#define REAL(name) name
#define SCALAR(s) real_of(s)
#define ABS(x) fabs(x)
#define SELECT vector_select_f64
#define IS_NAN(x) ((x) != (x))
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#define IS_FLOAT 1
#include "device/cpu/math_template.h"

/* The lowest number is its own magnitude: negation wraps. */
#define T int64_t
#define NAME(name) name##_i64
#define SCALAR(s) ((s).i)
#define IS_NAN(x) ((void)(x), 0)
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#define ABS(x) ((x) < 0 ? (int64_t)(0 - (uint64_t)(x)) : (x))
#define IS_FLOAT 0
#include "device/cpu/math_template.h"

/* Integers: rounding leaves them alone. */
static void same_i64(int64_t *out, const int64_t *const *in, int64_t n, const void *attr) {
    (void)attr;
    for (int64_t i = 0; i < n; i++) out[i] = in[0][i];
}

/* By squaring, wrapping. A negative power of an integer is a fraction, of which 0 is left, but for 1 and -1. */
static int64_t power(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    uint64_t result = 1;
    for (uint64_t b = (uint64_t)base; exponent; exponent >>= 1, b *= b)
        if (exponent & 1) result *= b;
    return (int64_t)result;
}
static void pow_i64(int64_t *out, const int64_t *const *in, int64_t n, const void *attr) {
    (void)attr;
    const int64_t *a = in[0], *b = in[1];
    for (int64_t i = 0; i < n; i++) out[i] = power(a[i], b[i]);
}

/* attr is a flag that a divisor was 0: such an element is 0, and the call fails afterwards. */
static void remainder_i64(int64_t *out, const int64_t *const *in, int64_t n, const void *attr) {
    const int64_t *a = in[0], *b = in[1];
    for (int64_t i = 0; i < n; i++) {
        const int64_t divisor = b[i];
        if (divisor == 0) atomic_store_explicit((atomic_bool *)(uintptr_t)attr, true, memory_order_relaxed);
        const int64_t r = divisor == 0 || divisor == -1 ? 0 : a[i] % divisor;
        out[i] = r != 0 && (r < 0) != (divisor < 0) ? r + divisor : r;
    }
}

/* ---- The ops ------------------------------------------------------------------------------------------------ */

static bool run_as_output(const tl_kernel_args *args, const struct elementwise *op) {
    return elementwise_run(args, op, dtype_compute(args->out[0].dtype));
}

/* A scalar tensor may be of a wider integer dtype than the result: it wraps first, as in PyTorch, where that makes a difference
 * (in sums and products it does not). */
static bool run_wrapped(const tl_kernel_args *args, const struct elementwise *op) {
    const tl_dtype dtype = args->out[0].dtype;
    _Alignas(8) char element[2][8];
    tl_operand in[2] = {args->in[0], args->in[1]};
    for (int i = 0; i < 2 && !dtype_is_float(dtype); i++) {
        if (in[i].rank > 0 || in[i].dtype == dtype) continue;
        convert(element[i], dtype, 1, in[i].data, in[i].dtype, 1, 1, CONVERT_NEAREST, NULL);
        in[i].data = element[i];
        in[i].dtype = dtype;
    }
    tl_kernel_args wrapped = *args;
    wrapped.in = in;
    return run_as_output(&wrapped, op);
}

/* Truth of an input: in the input's own type. */
static bool run_as_input(const tl_kernel_args *args, const struct elementwise *op) {
    return elementwise_run(args, op, dtype_compute(args->in[0].dtype));
}
static bool run_as_inputs(const tl_kernel_args *args, const struct elementwise *op) {
    return elementwise_run(args, op, elementwise_compute(args->in[0].dtype, args->in[1].dtype));
}

static const struct elementwise op_exp2 = {exp2_f32, exp2_f64, NULL};
static const struct elementwise op_expm1 = {expm1_f32, expm1_f64, NULL};
static const struct elementwise op_log1p = {log1p_f32, log1p_f64, NULL};
static const struct elementwise op_log2 = {log2_f32, log2_f64, NULL};
static const struct elementwise op_rsqrt = {rsqrt_f32, rsqrt_f64, NULL};
static const struct elementwise op_sin = {sin_f32, sin_f64, NULL};
static const struct elementwise op_cos = {cos_f32, cos_f64, NULL};
static const struct elementwise op_erf = {erf_f32, erf_f64, NULL};
static const struct elementwise op_abs = {abs_f32, abs_f64, abs_i64};
static const struct elementwise op_sign = {sign_f32, sign_f64, sign_i64};
static const struct elementwise op_floor = {floor_f32, floor_f64, same_i64};
static const struct elementwise op_ceil = {ceil_f32, ceil_f64, same_i64};
static const struct elementwise op_round = {round_f32, round_f64, same_i64};
static const struct elementwise op_trunc = {trunc_f32, trunc_f64, same_i64};
const struct elementwise elementwise_pow = {pow_f32, pow_f64, pow_i64};
const struct elementwise elementwise_remainder = {remainder_f32, remainder_f64, remainder_i64};
static const struct elementwise op_minimum = {minimum_f32, minimum_f64, minimum_i64};
static const struct elementwise op_maximum = {maximum_f32, maximum_f64, maximum_i64};
static const struct elementwise op_logical_and = {logical_and_f32, logical_and_f64, logical_and_i64};
static const struct elementwise op_logical_or = {logical_or_f32, logical_or_f64, logical_or_i64};
static const struct elementwise op_logical_xor = {logical_xor_f32, logical_xor_f64, logical_xor_i64};
static const struct elementwise op_logical_not = {logical_not_f32, logical_not_f64, logical_not_i64};
static const struct elementwise op_isnan = {isnan_f32, isnan_f64, isnan_i64};
static const struct elementwise op_isfinite = {isfinite_f32, isfinite_f64, isfinite_i64};
static const struct elementwise op_leaky_relu = {leaky_relu_f32, leaky_relu_f64, NULL};
static const struct elementwise op_gelu_erf = {gelu_erf_f32, gelu_erf_f64, NULL};
static const struct elementwise op_gelu_erf_grad = {gelu_erf_grad_f32, gelu_erf_grad_f64, NULL};
static const struct elementwise op_softplus = {softplus_f32, softplus_f64, NULL};
static const struct elementwise op_clamp = {clamp_f32, clamp_f64, clamp_i64};

bool cpu_exp2(const tl_kernel_args *args) { return run_as_output(args, &op_exp2); }
bool cpu_expm1(const tl_kernel_args *args) { return run_as_output(args, &op_expm1); }
bool cpu_log1p(const tl_kernel_args *args) { return run_as_output(args, &op_log1p); }
bool cpu_log2(const tl_kernel_args *args) { return run_as_output(args, &op_log2); }
bool cpu_rsqrt(const tl_kernel_args *args) { return run_as_output(args, &op_rsqrt); }
bool cpu_sin(const tl_kernel_args *args) { return run_as_output(args, &op_sin); }
bool cpu_cos(const tl_kernel_args *args) { return run_as_output(args, &op_cos); }
bool cpu_erf(const tl_kernel_args *args) { return run_as_output(args, &op_erf); }
bool cpu_abs(const tl_kernel_args *args) { return run_as_output(args, &op_abs); }
bool cpu_sign(const tl_kernel_args *args) { return run_as_output(args, &op_sign); }
bool cpu_floor(const tl_kernel_args *args) { return run_as_output(args, &op_floor); }
bool cpu_ceil(const tl_kernel_args *args) { return run_as_output(args, &op_ceil); }
bool cpu_round(const tl_kernel_args *args) { return run_as_output(args, &op_round); }
bool cpu_trunc(const tl_kernel_args *args) { return run_as_output(args, &op_trunc); }
bool cpu_pow(const tl_kernel_args *args) { return run_wrapped(args, &elementwise_pow); }
bool cpu_minimum(const tl_kernel_args *args) { return run_wrapped(args, &op_minimum); }
bool cpu_maximum(const tl_kernel_args *args) { return run_wrapped(args, &op_maximum); }
bool cpu_logical_and(const tl_kernel_args *args) { return run_as_inputs(args, &op_logical_and); }
bool cpu_logical_or(const tl_kernel_args *args) { return run_as_inputs(args, &op_logical_or); }
bool cpu_logical_xor(const tl_kernel_args *args) { return run_as_inputs(args, &op_logical_xor); }
bool cpu_logical_not(const tl_kernel_args *args) { return run_as_input(args, &op_logical_not); }
bool cpu_isnan(const tl_kernel_args *args) { return run_as_input(args, &op_isnan); }
bool cpu_isfinite(const tl_kernel_args *args) { return run_as_input(args, &op_isfinite); }
bool cpu_leaky_relu(const tl_kernel_args *args) { return run_as_output(args, &op_leaky_relu); }
bool cpu_gelu_erf(const tl_kernel_args *args) { return run_as_output(args, &op_gelu_erf); }
bool cpu_gelu_erf_grad(const tl_kernel_args *args) { return run_as_output(args, &op_gelu_erf_grad); }
bool cpu_softplus(const tl_kernel_args *args) { return run_as_output(args, &op_softplus); }
bool cpu_clamp(const tl_kernel_args *args) { return run_as_output(args, &op_clamp); }

static bool remainder_run(const tl_kernel_args *args) {
    atomic_bool has_zero = false;
    tl_kernel_args flagged = *args;
    flagged.attr = &has_zero;
    if (!run_wrapped(&flagged, &elementwise_remainder)) return false;
    if (!atomic_load(&has_zero)) return true;
    snprintf(args->error, 200, "ZeroDivisionError: an integer has no remainder by 0");
    return false;
}
bool cpu_remainder(const tl_kernel_args *args) { return remainder_run(args); }

/* ---- A tensor and a number ----------------------------------------------------------------------------------
 *
 * The number is an operand of one element, repeated: so the loops are those of two tensors. `dtype` is what the number is
 * brought to first; the driver then takes it to the compute type.
 */
typedef bool (*pair_run)(const tl_kernel_args *args, const struct elementwise *op);

static bool run_with_number(const tl_kernel_args *args, const struct elementwise *op, tl_dtype dtype, pair_run run) {
    const struct attr_scalar *attr = args->attr;
    _Alignas(8) char element[8];
    if (attr->value.kind == TL_SCALAR_FLOAT) convert_set_f64(element, dtype, 0, attr->value.f);
    else convert_set_i64(element, dtype, 0, attr->value.i);
    const tl_operand number = {.data = element, .dtype = dtype};
    const tl_operand in[2] = {attr->is_first ? number : args->in[0], attr->is_first ? args->in[0] : number};
    tl_kernel_args pair = *args;
    pair.in = in;
    pair.n_in = 2;
    return run(&pair, op);
}

/* Integers wrap to the result's dtype; beside floats a number keeps all its digits. */
static bool run_scalar(const tl_kernel_args *args, const struct elementwise *op) {
    const struct attr_scalar *attr = args->attr;
    const tl_dtype out = args->out[0].dtype, wide = attr->value.kind == TL_SCALAR_FLOAT ? TL_F64 : TL_I64;
    return run_with_number(args, op, dtype_is_float(out) ? wide : out, run_as_output);
}

bool cpu_add_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_add); }
bool cpu_sub_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_sub); }
bool cpu_mul_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_mul); }
bool cpu_div_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_div); }

/* x^2, x^1 and 1/x of floats are one operation, rounded once. */
bool cpu_pow_scalar(const tl_kernel_args *args) {
    const struct attr_scalar *attr = args->attr;
    const double exponent = real_of(attr->value);
    if (attr->is_first || !dtype_is_float(args->out[0].dtype)) return run_scalar(args, &elementwise_pow);
    if (exponent == 2) {
        const tl_operand in[2] = {args->in[0], args->in[0]};
        tl_kernel_args square = *args;
        square.in = in;
        square.n_in = 2;
        return run_as_output(&square, &elementwise_mul);
    }
    if (exponent != 1 && exponent != -1) return run_scalar(args, &elementwise_pow);
    const struct attr_scalar one = {.value = {TL_SCALAR_INT, 1, 0}, .is_first = true};
    tl_kernel_args simple = *args;
    simple.attr = &one;
    return run_scalar(&simple, exponent == 1 ? &elementwise_mul : &elementwise_div);
}

static bool run_remainder(const tl_kernel_args *args, const struct elementwise *op) {
    (void)op;
    return remainder_run(args);
}
bool cpu_remainder_scalar(const tl_kernel_args *args) {
    return run_with_number(args, NULL, args->out[0].dtype, run_remainder);
}

/* Beside floats the number is rounded to their dtype (0.1 equals a bf16 that was set to 0.1); integers compare as numbers. */
bool cpu_compare_scalar(const tl_kernel_args *args) {
    const struct attr_scalar *attr = args->attr;
    const tl_dtype x = args->in[0].dtype, other = attr->value.kind == TL_SCALAR_FLOAT ? TL_F32 : TL_I64;
    return run_with_number(args, &elementwise_compare[attr->relation], dtype_is_float(x) ? x : other, run_as_inputs);
}
