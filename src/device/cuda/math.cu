/* math.cu: elementary functions, rounding, remainders, extremes, truth values; and the ops that take a number beside
 * a tensor. The walks are elementwise.cuh's; here are the functors. */
#include "device/cuda/elementwise.cuh"

/* ---- Functions of real numbers ------------------------------------------------------------------------ */

#define REAL_FUNCTOR(name, f32, f64)                                 \
    struct f_##name {                                                \
        __device__ float operator()(float x) const { return f32; }   \
        __device__ double operator()(double x) const { return f64; } \
    };
REAL_FUNCTOR(exp2, exp2f(x), exp2(x))
REAL_FUNCTOR(expm1, expm1f(x), expm1(x))
REAL_FUNCTOR(log1p, log1pf(x), log1p(x))
REAL_FUNCTOR(log2, log2f(x), log2(x))
REAL_FUNCTOR(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))
REAL_FUNCTOR(sin, sinf(x), sin(x))
REAL_FUNCTOR(cos, cosf(x), cos(x))
REAL_FUNCTOR(erf, erff(x), erf(x))
/* x Phi(x) = x erfc(-x / sqrt 2) / 2 */
REAL_FUNCTOR(gelu_erf, 0.5f * x * erfcf(x * -0.70710678118654752f), 0.5 * x * erfc(x * -0.70710678118654752440))

/* g (Phi(x) + x phi(x)),  phi(x) = e^(-x^2/2) / sqrt(2 pi) */
struct f_gelu_erf_grad {
    __device__ float operator()(float x, float g) const {
        return g * (0.5f * erfcf(x * -0.70710678118654752f) + x * expf(-0.5f * x * x) * 0.39894228040143268f);
    }
    __device__ double operator()(double x, double g) const {
        return g * (0.5 * erfc(x * -0.70710678118654752440) + x * exp(-0.5 * x * x) * 0.39894228040143267794);
    }
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

/* ---- Sign and rounding: integers stay what they are --------------------------------------------------- */

#define ROUNDING_FUNCTOR(name, f32, f64)                             \
    struct f_##name {                                                \
        __device__ float operator()(float x) const { return f32; }   \
        __device__ double operator()(double x) const { return f64; } \
        __device__ int64_t operator()(int64_t x) const { return x; } \
    };
ROUNDING_FUNCTOR(floor, floorf(x), floor(x))
ROUNDING_FUNCTOR(ceil, ceilf(x), ceil(x))
ROUNDING_FUNCTOR(round, rintf(x), rint(x))
ROUNDING_FUNCTOR(trunc, truncf(x), trunc(x))

/* The lowest integer is its own magnitude: negation wraps. */
struct f_abs {
    __device__ float operator()(float x) const { return fabsf(x); }
    __device__ double operator()(double x) const { return fabs(x); }
    __device__ int64_t operator()(int64_t x) const { return x < 0 ? (int64_t)(0 - (uint64_t)x) : x; }
};
struct f_sign {
    template <class C> __device__ C operator()(C x) const { return C((x > C(0)) - (x < C(0))); }
};

/* ---- Two numbers -------------------------------------------------------------------------------------- */

/* Integers by squaring, wrapping. A negative power of an integer is a fraction, of which 0 is left, but for 1 and
 * -1. */
struct f_pow {
    __device__ float operator()(float a, float b) const { return powf(a, b); }
    __device__ double operator()(double a, double b) const { return pow(a, b); }
    __device__ int64_t operator()(int64_t base, int64_t exponent) const {
        if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
        uint64_t result = 1;
        for (uint64_t b = (uint64_t)base; exponent; exponent >>= 1, b *= b)
            if (exponent & 1) result *= b;
        return (int64_t)result;
    }
};

/* fmod has the dividend's sign; where that is not the divisor's, one divisor more. An integer divisor that is 0 is
 * noted. */
struct f_remainder {
    struct cuda_fault *fault;
    template <class C> static __device__ C real(C a, C b, C r) {
        return r != C(0) && (r < C(0)) != (b < C(0)) ? r + b : r;
    }
    __device__ float operator()(float a, float b) const { return real(a, b, fmodf(a, b)); }
    __device__ double operator()(double a, double b) const { return real(a, b, fmod(a, b)); }
    __device__ int64_t operator()(int64_t a, int64_t b) const {
        if (b == 0) fault_raise(fault, FAULT_REMAINDER, a, 0);
        const int64_t r = b == 0 || b == -1 ? 0 : a % b;
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
};

/* Scalar tensors may be of a wider integer dtype than the result: they wrap first, as in PyTorch. */
static inline __host__ __device__ int64_t wrapped(int64_t x, tl_dtype dtype) {
    switch (dtype) {
    case TL_I32:
        return (int32_t)x;
    case TL_I16:
        return (int16_t)x;
    case TL_U16:
        return (uint16_t)x;
    case TL_I8:
        return (int8_t)x;
    case TL_U8:
        return (uint8_t)x;
    case TL_BOOL:
        return x != 0;
    default:
        return x;
    }
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

/* ---- Truth: computed in the type of what is looked at, 0 or 1 ------------------------------------------ */

struct f_logical_and {
    template <class C> __device__ C operator()(C a, C b) const { return C(a != C(0) && b != C(0)); }
};
struct f_logical_or {
    template <class C> __device__ C operator()(C a, C b) const { return C(a != C(0) || b != C(0)); }
};
struct f_logical_xor {
    template <class C> __device__ C operator()(C a, C b) const { return C((a != C(0)) != (b != C(0))); }
};
struct f_logical_not {
    template <class C> __device__ C operator()(C x) const { return C(x == C(0)); }
};
struct f_isnan {
    template <class C> __device__ C operator()(C x) const { return C(x != x); }
};
/* x - x is 0 for every finite number, NaN for the rest. */
struct f_isfinite {
    template <class C> __device__ C operator()(C x) const { return C(x - x == C(0)); }
};

template <class F> static bool truth_of_both(const tl_kernel_args *args, F f) {
    return binary_in<true, false>(args, compute_of_both(args->in[0].dtype, args->in[1].dtype), f);
}
template <class F> static bool truth_of(const tl_kernel_args *args, F f) {
    return unary_in<true>(args, compute_of(args->in[0].dtype), f);
}

/* ---- A tensor and a number ---------------------------------------------------------------------------- */

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

struct f_holds {
    tl_compare relation;
    template <class C> __device__ C operator()(C a, C b) const { return C(holds(a, relation, b)); }
};
/* Beside floats the number is rounded to their dtype; an integer x meets an integer as a number, and a float in f32. */
static bool comparison_with(const tl_kernel_args *args) {
    const struct attr_scalar *attr = (const struct attr_scalar *)args->attr;
    const tl_dtype x = args->in[0].dtype;
    f_with_number<f_holds> g = {{attr->relation}, number_of(attr->value), attr->is_first};
    if (dtype_is_float(x)) g.value = number_rounded(attr->value, x);
    const enum compute compute = dtype_is_float(x)                     ? compute_of(x)
                                 : attr->value.kind == TL_SCALAR_FLOAT ? COMPUTE_F32
                                                                       : COMPUTE_I64;
    return unary_in<true>(args, compute, g);
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

bool cuda_exp2(const tl_kernel_args *args) { return unary<false>(args, f_exp2()); }
bool cuda_expm1(const tl_kernel_args *args) { return unary<false>(args, f_expm1()); }
bool cuda_log1p(const tl_kernel_args *args) { return unary<false>(args, f_log1p()); }
bool cuda_log2(const tl_kernel_args *args) { return unary<false>(args, f_log2()); }
bool cuda_rsqrt(const tl_kernel_args *args) { return unary<false>(args, f_rsqrt()); }
bool cuda_sin(const tl_kernel_args *args) { return unary<false>(args, f_sin()); }
bool cuda_cos(const tl_kernel_args *args) { return unary<false>(args, f_cos()); }
bool cuda_erf(const tl_kernel_args *args) { return unary<false>(args, f_erf()); }
bool cuda_abs(const tl_kernel_args *args) { return unary<true>(args, f_abs()); }
bool cuda_sign(const tl_kernel_args *args) { return unary<true>(args, f_sign()); }
bool cuda_floor(const tl_kernel_args *args) { return unary<true>(args, f_floor()); }
bool cuda_ceil(const tl_kernel_args *args) { return unary<true>(args, f_ceil()); }
bool cuda_round(const tl_kernel_args *args) { return unary<true>(args, f_round()); }
bool cuda_trunc(const tl_kernel_args *args) { return unary<true>(args, f_trunc()); }
bool cuda_pow(const tl_kernel_args *args) { return binary_wrapped(args, f_pow()); }
bool cuda_remainder(const tl_kernel_args *args) { return binary_wrapped(args, f_remainder{fault_of(args)}); }
bool cuda_minimum(const tl_kernel_args *args) { return binary_wrapped(args, min_of()); }
bool cuda_maximum(const tl_kernel_args *args) { return binary_wrapped(args, max_of()); }
bool cuda_logical_and(const tl_kernel_args *args) { return truth_of_both(args, f_logical_and()); }
bool cuda_logical_or(const tl_kernel_args *args) { return truth_of_both(args, f_logical_or()); }
bool cuda_logical_xor(const tl_kernel_args *args) { return truth_of_both(args, f_logical_xor()); }
bool cuda_logical_not(const tl_kernel_args *args) { return truth_of(args, f_logical_not()); }
bool cuda_isnan(const tl_kernel_args *args) { return truth_of(args, f_isnan()); }
bool cuda_isfinite(const tl_kernel_args *args) { return truth_of(args, f_isfinite()); }
bool cuda_leaky_relu(const tl_kernel_args *args) {
    return unary<false>(args, f_leaky_relu{((const struct attr_leaky_relu *)args->attr)->slope});
}
bool cuda_gelu_erf(const tl_kernel_args *args) { return unary<false>(args, f_gelu_erf()); }
bool cuda_gelu_erf_grad(const tl_kernel_args *args) { return binary<false, false>(args, f_gelu_erf_grad()); }
bool cuda_softplus(const tl_kernel_args *args) {
    const struct attr_softplus *attr = (const struct attr_softplus *)args->attr;
    return unary<false>(args, f_softplus{attr->beta, attr->threshold});
}

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
