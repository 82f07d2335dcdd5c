/* scalar.cu: a tensor and a number. */
#include "device/cuda/ops/elementwise.cuh"

/* The number in every compute type; a float keeps all its digits until then. */
struct number {
    double f64;
    float f32;
    int64_t i64;
    __device__ float in(float) const { return f32; }
    __device__ double in(double) const { return f64; }
    __device__ int64_t in(int64_t) const { return i64; }
};
static number number_of(tl_scalar s) {
    if (s.kind == TL_SCALAR_FLOAT) return {s.f, (float)s.f, truncate_i64(s.f)};
    return {(double)s.i, (float)s.i, s.i};
}

/* The number, rounded to a float dtype first. */
static number number_rounded(tl_scalar s, tl_dtype dtype) {
    const double x = s.kind == TL_SCALAR_FLOAT ? s.f : i64_to_f64_odd(s.i);
    float narrow;
    switch (dtype) {
    case TL_F64:
        return number_of(s);
    case TL_F32:
        narrow = s.kind == TL_SCALAR_FLOAT ? (float)s.f : (float)s.i;
        break;
    case TL_F16:
        narrow = __half2float(__half(__half_raw{(unsigned short)encode(f16_format(), x, CONVERT_NEAREST, 0)}));
        break;
    case TL_BF16:
        narrow = f32_of_bits(encode(bf16_format(), x, CONVERT_NEAREST, 0) << 16);
        break;
    case TL_F8E4M3:
        narrow = decode(f8e4m3_format(), encode(f8e4m3_format(), x, CONVERT_NEAREST, 0));
        break;
    default:
        narrow = decode(f8e5m2_format(), encode(f8e5m2_format(), x, CONVERT_NEAREST, 0));
        break;
    }
    return {(double)narrow, narrow, 0};
}

template <class F> struct f_with_number {
    F f;
    number value;
    bool is_first;
    template <class C> __device__ C operator()(C x) const { return is_first ? f(value.in(x), x) : f(x, value.in(x)); }
};

template <bool WITH_INTEGERS, class F> static bool with_number(const tl_kernel_args *args, F f) {
    const struct attr_scalar *attr = (const struct attr_scalar *)args->attr;
    f_with_number<F> g = {f, number_of(attr->value), attr->is_first};
    if (!dtype_is_float(args->out[0].dtype)) g.value.i64 = wrapped(g.value.i64, args->out[0].dtype);
    return unary<WITH_INTEGERS>(args, g);
}

/* x^2, x^1 and 1/x of floats are one operation, rounded once. */
struct f_square {
    template <class C> __device__ C operator()(C x) const { return x * x; }
};
struct f_same {
    template <class C> __device__ C operator()(C x) const { return x; }
};
struct f_inverse {
    template <class C> __device__ C operator()(C x) const { return C(1) / x; }
};
static bool power_of(const tl_kernel_args *args) {
    const struct attr_scalar *attr = (const struct attr_scalar *)args->attr;
    const double exponent = attr->value.kind == TL_SCALAR_FLOAT ? attr->value.f : (double)attr->value.i;
    const bool is_plain = !attr->is_first && dtype_is_float(args->out[0].dtype);
    if (is_plain && exponent == 2) return unary<false>(args, f_square());
    if (is_plain && exponent == 1) return unary<false>(args, f_same());
    if (is_plain && exponent == -1) return unary<false>(args, f_inverse());
    return with_number<true>(args, f_pow());
}

static bool remainder_of(const tl_kernel_args *args) {
    const struct attr_scalar *attr = (const struct attr_scalar *)args->attr;
    const tl_dtype dtype = args->out[0].dtype;
    f_with_number<f_remainder> g = {{fault_of(args)}, number_of(attr->value), attr->is_first};
    if (dtype_is_float(dtype)) g.value = number_rounded(attr->value, dtype);
    else g.value.i64 = wrapped(g.value.i64, dtype);
    return unary<true>(args, g);
}

/* Beside floats the number is rounded to their dtype; an integer x is compared with an integer exactly, and with a
 * float in f32. */
static bool comparison_with(const tl_kernel_args *args) {
    const struct attr_scalar *attr = (const struct attr_scalar *)args->attr;
    const tl_dtype x = args->in[0].dtype;
    f_with_number<f_holds> g = {holds_of(attr->relation), number_of(attr->value), attr->is_first};
    if (dtype_is_float(x)) g.value = number_rounded(attr->value, x);
    const enum compute compute = dtype_is_float(x)                     ? compute_of(x)
                                 : attr->value.kind == TL_SCALAR_FLOAT ? COMPUTE_F32
                                                                       : COMPUTE_I64;
    return unary_in<true, true>(args, compute, g);
}

/* min(max(x, low), high). A NaN stays; a bound that is NaN makes everything so. */
struct f_clamp {
    number low, high;
    bool has_min, has_max;
    template <class C> __device__ C operator()(C x) const {
        const C from = low.in(x), to = high.in(x);
        const C raised = has_min && !(x >= from) && x == x ? from : x;
        return has_max && !(raised <= to) && raised == raised ? to : raised;
    }
};

extern "C" {

bool cuda_add_scalar(const tl_kernel_args *args) { return with_number<true>(args, f_add()); }
bool cuda_sub_scalar(const tl_kernel_args *args) { return with_number<true>(args, f_sub()); }
bool cuda_mul_scalar(const tl_kernel_args *args) { return with_number<true>(args, f_mul()); }
bool cuda_div_scalar(const tl_kernel_args *args) { return with_number<false>(args, f_div()); }
bool cuda_pow_scalar(const tl_kernel_args *args) { return power_of(args); }
bool cuda_remainder_scalar(const tl_kernel_args *args) { return remainder_of(args); }
bool cuda_compare_scalar(const tl_kernel_args *args) { return comparison_with(args); }
bool cuda_clamp(const tl_kernel_args *args) {
    const struct attr_clamp *attr = (const struct attr_clamp *)args->attr;
    return unary<true>(args, f_clamp{number_of(attr->min), number_of(attr->max), attr->has_min, attr->has_max});
}

} /* extern "C" */
