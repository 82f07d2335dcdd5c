/* elementwise.cu: one result per element. The functors and the walks are elementwise.cuh's; here are the kernels,
 * which follow from the rows of spec/elementwise_list.h, except for the special ones. */
#include "device/cuda/ops/elementwise.cuh"

#include <type_traits>

/* ---- A separate functor for 16-bit numbers ---------------------------------------------------------- */

template <class F> struct short_form { using type = F; };

struct f_gelu_short : f_gelu {
    using f_gelu::operator();
    __device__ float operator()(float x) const { return short_gelu(x); }
};
struct f_gelu_grad_short : f_gelu_grad {
    using f_gelu_grad::operator();
    __device__ float operator()(float x, float g) const { return g * short_gelu_slope(x); }
};
struct f_silu_short : f_silu {
    using f_silu::operator();
    __device__ float operator()(float x) const { return short_silu(x); }
};
struct f_silu_grad_short : f_silu_grad {
    using f_silu_grad::operator();
    __device__ float operator()(float x, float g) const { return g * short_silu_slope(x, short_sigmoid(x)); }
};
struct f_swiglu_short : f_swiglu {
    using f_swiglu::operator();
    __device__ float operator()(float gate, float up) const { return up * short_silu(gate); }
};
template <> struct short_form<f_gelu> { using type = f_gelu_short; };
template <> struct short_form<f_gelu_grad> { using type = f_gelu_grad_short; };
template <> struct short_form<f_silu> { using type = f_silu_short; };
template <> struct short_form<f_silu_grad> { using type = f_silu_grad_short; };
template <> struct short_form<f_swiglu> { using type = f_swiglu_short; };

/* ---- How each class runs --------------------------------------------------------------------------- */

template <class F> static bool is_short(const tl_kernel_args *args) {
    return !std::is_same<typename short_form<F>::type, F>::value && dtype_bytes(args->out[0].dtype) == 2;
}
/* Computed in the type of the result. MIXED: see binary_try_packs. */
template <bool WITH_INTEGERS, class F> static bool one_as_output(const tl_kernel_args *args) {
    if (is_short<F>(args)) return unary<WITH_INTEGERS>(args, typename short_form<F>::type());
    return unary<WITH_INTEGERS>(args, F());
}
template <bool WITH_INTEGERS, bool MIXED, class F> static bool two_as_output(const tl_kernel_args *args) {
    if (is_short<F>(args)) return binary<WITH_INTEGERS, MIXED>(args, typename short_form<F>::type());
    return binary<WITH_INTEGERS, MIXED>(args, F());
}

template <class F> struct f_wrapped {
    F f;
    bool wraps_a, wraps_b;
    tl_dtype dtype;
    template <class C> __device__ C operator()(C a, C b) const { return f(a, b); }
    __device__ int64_t operator()(int64_t a, int64_t b) const {
        return f(wraps_a ? wrapped(a, dtype) : a, wraps_b ? wrapped(b, dtype) : b);
    }
};

template <class F> static bool binary_wrapped(const tl_kernel_args *args, F f) {
    const tl_dtype dtype = args->out[0].dtype;
    const f_wrapped<F> wrapping = {f, args->in[0].rank == 0 && args->in[0].dtype != dtype,
                                   args->in[1].rank == 0 && args->in[1].dtype != dtype, dtype};
    return binary<true, false>(args, wrapping);
}

/* Truth, 0 or 1: computed in the type of the inputs. */
template <class F> static bool truth_of(const tl_kernel_args *args) {
    return unary_in<true, true>(args, compute_of(args->in[0].dtype), F());
}
template <class F> static bool truth_of_both(const tl_kernel_args *args) {
    return binary_in<true, false>(args, compute_of_both(args->in[0].dtype, args->in[1].dtype), F());
}

#define RUN_REAL(F) one_as_output<false, F>(args)
#define RUN_FLOAT(F) one_as_output<false, F>(args)
#define RUN_NUMBER(F) one_as_output<true, F>(args)
#define RUN_SIGNED(F) one_as_output<true, F>(args)
#define RUN_ANY(F) one_as_output<true, F>(args)
#define RUN_TRUTH(F) truth_of<F>(args)
#define RUN_ANY_PAIR(F) two_as_output<true, true, F>(args) /* sums and products have two dtypes in training */
#define RUN_SIGNED_PAIR(F) two_as_output<true, false, F>(args)
#define RUN_QUOTIENT(F) two_as_output<false, false, F>(args)
#define RUN_NUMBER_PAIR(F) binary_wrapped(args, F())
#define RUN_EXTREME(F) binary_wrapped(args, F())
#define RUN_LOGIC(F) truth_of_both<F>(args)
#define RUN_FLOAT_PAIR(F) two_as_output<false, false, F>(args)
#define RUN_SLOPE(F) two_as_output<false, false, F>(args)
#define RUN_BITS_PAIR(F) binary_wrapped(args, F())

/* ---- The rows ----------------------------------------------------------------------------------------- */

extern "C" {

#define KERNEL_PLAIN(name, run) \
    bool cuda_##name(const tl_kernel_args *args) { return run(f_##name); }
#define KERNEL_TILED KERNEL_PLAIN
#define KERNEL_CPU_LOOP KERNEL_PLAIN
#define KERNEL_OWN(name, run)
#define UNARY(name, dtypes, formula, flops, words, reads, gradient, in_place, autocast, kernel) \
    KERNEL_##kernel(name, RUN_##dtypes)
#define BINARY(name, dtypes, formula, flops, words, reads_a, rule_a, reads_b, rule_b, in_place, autocast, kernel) \
    KERNEL_##kernel(name, RUN_##dtypes)
#define SPECIAL(...)
#include "spec/elementwise_list.h"

bool cuda_remainder(const tl_kernel_args *args) { return binary_wrapped(args, f_remainder{fault_of(args)}); }

} /* extern "C" */

/* ---- Special rows: those of numbers are in scalar.cu, comparisons in elementwise_compare.cu -------------- */

/* Two roundings, even where the compiler would fuse them; without a shift -0 stays -0. */
struct f_affine {
    double scale, shift;
    __device__ float operator()(float x) const {
        const float y = __fmul_rn(x, (float)scale);
        return (float)shift == 0 ? y : __fadd_rn(y, (float)shift);
    }
    __device__ double operator()(double x) const {
        const double y = __dmul_rn(x, scale);
        return shift == 0 ? y : __dadd_rn(y, shift);
    }
    __device__ int64_t operator()(int64_t x) const { return x * (int64_t)scale + (int64_t)shift; }
};

struct f_leaky_relu {
    double slope;
    template <class C> __device__ C operator()(C x) const { return x > C(0) ? x : x * C(slope); }
};

/* log(1 + e^z) = max(z, 0) + log(1 + e^-|z|) */
__device__ inline float log1p_exp(float z) { return fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z))); }
__device__ inline double log1p_exp(double z) { return fmax(z, 0.0) + log1p(exp(-fabs(z))); }
struct f_softplus {
    double beta, threshold;
    template <class C> __device__ C operator()(C x) const {
        const C z = x * C(beta);
        return z > C(threshold) ? x : z != z ? z : log1p_exp(z) / C(beta);
    }
};

extern "C" {

bool cuda_affine(const tl_kernel_args *args) {
    const struct attr_affine *attr = (const struct attr_affine *)args->attr;
    return unary<true>(args, f_affine{attr->scale, attr->shift});
}

bool cuda_leaky_relu(const tl_kernel_args *args) {
    return unary<false>(args, f_leaky_relu{((const struct attr_leaky_relu *)args->attr)->slope});
}

bool cuda_softplus(const tl_kernel_args *args) {
    const struct attr_softplus *attr = (const struct attr_softplus *)args->attr;
    return unary<false>(args, f_softplus{attr->beta, attr->threshold});
}

} /* extern "C" */
