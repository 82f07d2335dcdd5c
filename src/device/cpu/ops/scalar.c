/* scalar.c: a tensor and a number.
 *
 * The number is an operand of one element, broadcast, so the loops are those of two tensors. It is first converted to
 * `dtype`; the driver then converts that to the compute type.
 */
#include "device/cpu/ops/elementwise.h"
#include "device/cpu/shared/kernels.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

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
    return run_with_number(args, op, dtype_is_float(out) ? wide : out, elementwise_as_output);
}

bool cpu_add_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_add); }
bool cpu_sub_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_sub); }
bool cpu_mul_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_mul); }
bool cpu_div_scalar(const tl_kernel_args *args) { return run_scalar(args, &elementwise_div); }

/* x^2, x^1 and 1/x of floats are one operation, rounded once. */
bool cpu_pow_scalar(const tl_kernel_args *args) {
    const struct attr_scalar *attr = args->attr;
    const double exponent = attr->value.kind == TL_SCALAR_FLOAT ? attr->value.f : (double)attr->value.i;
    if (attr->is_first || !dtype_is_float(args->out[0].dtype)) return run_scalar(args, &elementwise_pow);
    if (exponent == 2) {
        const tl_operand in[2] = {args->in[0], args->in[0]};
        tl_kernel_args square = *args;
        square.in = in;
        square.n_in = 2;
        return elementwise_as_output(&square, &elementwise_mul);
    }
    if (exponent != 1 && exponent != -1) return run_scalar(args, &elementwise_pow);
    const struct attr_scalar one = {.value = {TL_SCALAR_INT, 1, 0}, .is_first = true};
    tl_kernel_args simple = *args;
    simple.attr = &one;
    return run_scalar(&simple, exponent == 1 ? &elementwise_mul : &elementwise_div);
}

static bool run_remainder(const tl_kernel_args *args, const struct elementwise *op) {
    (void)op;
    return cpu_remainder(args);
}
bool cpu_remainder_scalar(const tl_kernel_args *args) {
    return run_with_number(args, NULL, args->out[0].dtype, run_remainder);
}

/* Beside floats the number is rounded to their dtype (0.1 equals a bf16 that was set to 0.1); integers compare as
 * numbers. */
bool cpu_compare_scalar(const tl_kernel_args *args) {
    const struct attr_scalar *attr = args->attr;
    const tl_dtype x = args->in[0].dtype, other = attr->value.kind == TL_SCALAR_FLOAT ? TL_F32 : TL_I64;
    return run_with_number(args, &elementwise_compare[attr->relation], dtype_is_float(x) ? x : other,
                           elementwise_as_inputs);
}

bool cpu_clamp(const tl_kernel_args *args) { return elementwise_as_output(args, &elementwise_clamp); }
