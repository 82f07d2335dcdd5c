/* scalar.cu: a tensor and a number. Comparisons are in elementwise_compare.cu. */
#include "device/cuda/ops/scalar.cuh"

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
bool cuda_clamp(const tl_kernel_args *args) {
    const struct attr_clamp *attr = (const struct attr_clamp *)args->attr;
    return unary<true>(args, f_clamp{number_of(attr->min), number_of(attr->max), attr->has_min, attr->has_max});
}

} /* extern "C" */
