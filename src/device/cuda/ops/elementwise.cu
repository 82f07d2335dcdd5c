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
template <> struct short_form<f_gelu> { using type = f_gelu_short; };
template <> struct short_form<f_gelu_grad> { using type = f_gelu_grad_short; };

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

/* ---- Special rows: those of numbers are in scalar.cu --------------------------------------------------- */

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

/* Two tensors of one dtype, or false. */
static bool compare_try_packs(const geometry<3> &g, const operands<3> &o, f_holds f, cudaStream_t stream) {
    const tl_dtype t = o.dtype[1];
    if (o.dtype[2] != t || !can_pack(g, o, true)) return false;
    if (t == TL_F32) return binary_pack_launch<bool, float, float>(g, o, f, stream);
    if (t == TL_BF16) return binary_pack_launch<bool, bf16, bf16>(g, o, f, stream);
    if (t == TL_F16) return binary_pack_launch<bool, f16, f16>(g, o, f, stream);
    return t == TL_BOOL && binary_pack_launch<bool, bool, bool>(g, o, f, stream);
}

template <class C> __global__ void __launch_bounds__(BLOCK) where_any(geometry<4> g, operands<4> o) {
    FOR_EACH(i, g.numel) {
        int64_t at[4];
        offsets_of(g, i, at);
        const int from = ((const uint8_t *)o.data[1])[at[1]] ? 2 : 3;
        store_as<C>(o.data[0], at[0], o.dtype[0], load_as<C>(o.data[from], at[from], o.dtype[from]));
    }
}

/* Both choices of the result's dtype: dropout, whose other choice is one zero. T only gives the element size. */
template <class T> __device__ inline T where_one(const operands<4> &o, const int64_t (&at)[4]) {
    const int from = ((const uint8_t *)o.data[1])[at[1]] ? 2 : 3;
    return ((const T *)o.data[from])[at[from]];
}

template <class T> __global__ void __launch_bounds__(BLOCK) where_packs(geometry<4> g, int tail, operands<4> o) {
    const int last = g.rank - 1;
    FOR_EACH(i, g.numel) {
        int64_t at[4];
        offsets_of(g, i, at);
        const pack<uint8_t> holds = pack_load<uint8_t>(o.data[1], at[1], g.stride[1][last] == 0);
        pack<T> a = pack_load<T>(o.data[2], at[2], g.stride[2][last] == 0);
        const pack<T> b = pack_load<T>(o.data[3], at[3], g.stride[3][last] == 0);
        for (int j = 0; j < PACK; j++) a.v[j] = holds.v[j] ? a.v[j] : b.v[j];
        *(pack<T> *)((T *)o.data[0] + at[0]) = a;
    }
    if (has_tail_element(tail)) {
        int64_t at[4];
        tail_offsets(g, threadIdx.x, at);
        ((T *)o.data[0])[at[0]] = where_one<T>(o, at);
    }
}

template <class T> __global__ void __launch_bounds__(BLOCK) where_singles(singles<4> w, operands<4> o) {
    FOR_EACH(i, w.n_threads) {
        const places<4> p = places_of(w, i);
        T y[PACK];
#pragma unroll
        for (int j = 0; j < PACK; j++) {
            if (j >= p.n) continue;
            const int from = ((const uint8_t *)o.data[1])[place_at(w, p, j, 1)] ? 2 : 3;
            y[j] = ((const T *)o.data[from])[from == 2 ? place_at(w, p, j, 2) : place_at(w, p, j, 3)];
        }
#pragma unroll
        for (int j = 0; j < PACK; j++)
            if (j < p.n) ((T *)o.data[0])[place_at(w, p, j, 0)] = y[j];
    }
}

template <class T> static bool where_launch(const geometry<4> &g, const operands<4> &o, cudaStream_t stream) {
    if (can_pack(g, o, true)) {
        const geometry<4> steps = geometry_in_packs(g);
        where_packs<T><<<blocks_for(steps.numel), BLOCK, 0, stream>>>(steps, (int)(g.numel - steps.numel * PACK), o);
    } else {
        const singles<4> w = singles_of(g);
        where_singles<T><<<blocks_for(w.n_threads), BLOCK, 0, stream>>>(w, o);
    }
    return true;
}

static bool where_try(const geometry<4> &g, const operands<4> &o, cudaStream_t stream) {
    const tl_dtype t = o.dtype[0];
    if (o.dtype[2] != t || o.dtype[3] != t) return false;
    switch (dtype_bytes(t)) {
    case 8:
        return where_launch<uint64_t>(g, o, stream);
    case 4:
        return where_launch<uint32_t>(g, o, stream);
    case 2:
        return where_launch<uint16_t>(g, o, stream);
    default:
        return where_launch<uint8_t>(g, o, stream);
    }
}

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

bool cuda_compare(const tl_kernel_args *args) {
    const f_holds f = holds_of(((const struct attr_compare *)args->attr)->relation);
    const tl_operand *const list[3] = {&args->out[0], &args->in[0], &args->in[1]};
    const geometry<3> g = geometry_of<3>(list);
    if (operands_known(args) && g.numel > 0 && compare_try_packs(g, operands_of<3>(list), f, stream_of(args)))
        return true;
    return binary_in<true, false>(args, compute_of_both(list[1]->dtype, list[2]->dtype), f);
}

bool cuda_where(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[4] = {&args->out[0], &args->in[0], &args->in[1], &args->in[2]};
    const geometry<4> g = geometry_of<4>(list);
    const operands<4> o = operands_of<4>(list);
    if (g.numel == 0 || where_try(g, o, stream_of(args))) return true;
    const unsigned blocks = blocks_for(g.numel);
    switch (compute_of(o.dtype[0])) {
    case COMPUTE_F64:
        where_any<double><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o);
        break;
    case COMPUTE_F32:
        where_any<float><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o);
        break;
    case COMPUTE_I64:
        where_any<int64_t><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o);
        break;
    }
    return true;
}

} /* extern "C" */
