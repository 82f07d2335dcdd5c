/* elementwise.cuh: the functors and the walks of elementwise.cu, scalar.cu and elementwise_compare.cu.
 *
 * An op is a functor on numbers; three walks apply it:
 *   packs    eight elements per thread with 128-bit accesses, for the dtype combinations that training uses, when the
 *            innermost axis is dense (or constant) in every operand: dense tensors and broadcast rows alike. What is
 *            left at the end of a single axis is done one by one
 *   singles  eight elements per thread, each with its own access, in long rows of any strides: f32, bf16 and f16
 *   any      one element per thread, dtypes looked up at run time: everything else
 * All compute in the same type with the same functor, so they agree to the bit.
 */
#ifndef CUDA_ELEMENTWISE_CUH
#define CUDA_ELEMENTWISE_CUH

#include "device/cuda/shared/real_math.cuh"

/* ---- Functors: f_NAME for a row NAME of spec/elementwise_list.h, from its formula ----------------------- */

/* The type in which + - * of T wrap. */
template <class T> struct wrapping { using type = T; };
template <> struct wrapping<int64_t> { using type = uint64_t; };

#define F(name) real_##name
#define W typename wrapping<T>::type
#define UNARY_FUNCTOR(name, formula)                                              \
    struct f_##name {                                                             \
        template <class T> __device__ T operator()(T x) const { return formula; } \
    };
#define BINARY_FUNCTOR(name, formula)                                                  \
    struct f_##name {                                                                  \
        template <class T> __device__ T operator()(T a, T b) const { return formula; } \
    };
#define UNARY_FUNCTOR_PLAIN UNARY_FUNCTOR
#define UNARY_FUNCTOR_TILED UNARY_FUNCTOR
#define UNARY_FUNCTOR_CPU_LOOP UNARY_FUNCTOR
#define BINARY_FUNCTOR_PLAIN BINARY_FUNCTOR
#define BINARY_FUNCTOR_TILED BINARY_FUNCTOR
#define BINARY_FUNCTOR_CPU_LOOP BINARY_FUNCTOR
#define BINARY_FUNCTOR_OWN(name, formula)
#define UNARY(name, dtypes, formula, flops, words, reads, gradient, in_place, autocast, kernel) \
    UNARY_FUNCTOR_##kernel(name, formula)
#define BINARY(name, dtypes, formula, flops, words, reads_a, rule_a, reads_b, rule_b, in_place, autocast, kernel) \
    BINARY_FUNCTOR_##kernel(name, formula)
#define SPECIAL(...)
#include "spec/elementwise_list.h"
#undef F
#undef W

/* fmod has the dividend's sign; if the divisor's differs, the divisor is added. An integer divisor of 0 is recorded
 * as a fault. */
struct f_remainder {
    struct cuda_fault *fault;
    template <class C> static __device__ C real(C a, C b, C r) {
        return r != C(0) && (r < C(0)) != (b < C(0)) ? r + b : r;
    }
    __device__ float operator()(float a, float b) const { return real(a, b, fmodf(a, b)); }
    __device__ double operator()(double a, double b) const { return real(a, b, fmod(a, b)); }
    __device__ int64_t operator()(int64_t a, int64_t b) const {
        if (b == 0) fault_raise(fault, FAULT_REMAINDER, a, 0);
        return integer_remainder(a, b);
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
/* ---- The walks ---------------------------------------------------------------------------------------- */

template <int N> struct operands { /* 0 is the output */
    void *data[N];
    tl_dtype dtype[N];
};

template <class C, class F> __global__ void __launch_bounds__(BLOCK) unary_any(geometry<2> g, operands<2> o, F f) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        store_as<C>(o.data[0], at[0], o.dtype[0], f(load_as<C>(o.data[1], at[1], o.dtype[1])));
    }
}

template <class C, class F> __global__ void __launch_bounds__(BLOCK) binary_any(geometry<3> g, operands<3> o, F f) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        const C a = load_as<C>(o.data[1], at[1], o.dtype[1]), b = load_as<C>(o.data[2], at[2], o.dtype[2]);
        store_as<C>(o.data[0], at[0], o.dtype[0], f(a, b));
    }
}

/* Eight elements of an operand from offset `at`; `constant` repeats one. */
template <class T> __device__ inline pack<T> pack_load(const void *data, int64_t at, bool constant) {
    if (!constant) return *(const pack<T> *)((const T *)data + at);
    pack<T> p;
    const T x = ((const T *)data)[at];
    for (int j = 0; j < PACK; j++) p.v[j] = x;
    return p;
}

/* The same as numbers. */
template <class T> __device__ inline void pack_widen(const void *data, int64_t at, bool constant, float (&x)[PACK]) {
    if (!constant) {
        row_load((const T *)data + at, 0).widen(x);
    } else {
        const float one = value_of<float>(((const T *)data)[at]);
        for (int j = 0; j < PACK; j++) x[j] = one;
    }
}

template <class O, class A, class F>
__global__ void __launch_bounds__(BLOCK) unary_packs(geometry<2> g, int tail, operands<2> o, F f) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        float a[PACK];
        pack_widen<A>(o.data[1], at[1], g.stride[1][g.rank - 1] == 0, a);
        for (int j = 0; j < PACK; j++) a[j] = f(a[j]);
        row_pack<O> y;
        y.narrow(a);
        row_store((O *)o.data[0] + at[0], 0, y);
    }
    if (has_tail_element(tail)) {
        int64_t at[2];
        tail_offsets(g, threadIdx.x, at);
        ((O *)o.data[0])[at[0]] = conversion<O>::from(f(value_of<float>(((const A *)o.data[1])[at[1]])));
    }
}

template <class O, class A, class B, class F>
__global__ void __launch_bounds__(BLOCK) binary_packs(geometry<3> g, int tail, operands<3> o, F f) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        float a[PACK], b[PACK];
        pack_widen<A>(o.data[1], at[1], g.stride[1][g.rank - 1] == 0, a);
        pack_widen<B>(o.data[2], at[2], g.stride[2][g.rank - 1] == 0, b);
        for (int j = 0; j < PACK; j++) a[j] = f(a[j], b[j]);
        row_pack<O> y;
        y.narrow(a);
        row_store((O *)o.data[0] + at[0], 0, y);
    }
    if (has_tail_element(tail)) {
        int64_t at[3];
        tail_offsets(g, threadIdx.x, at);
        const float a = value_of<float>(((const A *)o.data[1])[at[1]]);
        const float b = value_of<float>(((const B *)o.data[2])[at[2]]);
        ((O *)o.data[0])[at[0]] = conversion<O>::from(f(a, b));
    }
}

/* A thread's elements of one operand. */
template <int N>
__device__ inline void singles_load(const operands<N> &o, int which, const places<N> &p, float (&x)[PACK]) {
    const void *data = o.data[which];
#define LOAD_ALL(T)                                                      \
    _Pragma("unroll") for (int j = 0; j < PACK; j++) if (j < p.n) x[j] = \
        value_of<float>(((const T *)data)[p.base[which] + j * p.step[which]])
    if (o.dtype[which] == TL_F32) {
        LOAD_ALL(float);
    } else if (o.dtype[which] == TL_BF16) {
        LOAD_ALL(bf16);
    } else {
        LOAD_ALL(f16);
    }
#undef LOAD_ALL
}
template <int N>
__device__ inline void singles_store(const operands<N> &o, const places<N> &p, const float (&y)[PACK]) {
#define STORE_ALL(T)                                                                                           \
    _Pragma("unroll") for (int j = 0; j < PACK; j++) if (j < p.n)((T *)o.data[0])[p.base[0] + j * p.step[0]] = \
        conversion<T>::from(y[j])
    if (o.dtype[0] == TL_F32) {
        STORE_ALL(float);
    } else if (o.dtype[0] == TL_BF16) {
        STORE_ALL(bf16);
    } else {
        STORE_ALL(f16);
    }
#undef STORE_ALL
}

template <class F> __global__ void __launch_bounds__(BLOCK) unary_singles(singles<2> w, operands<2> o, F f) {
    FOR_EACH(i, w.n_threads) {
        const places<2> p = places_of(w, i);
        float a[PACK] = {};
        singles_load(o, 1, p, a);
        for (int j = 0; j < PACK; j++) a[j] = f(a[j]);
        singles_store(o, p, a);
    }
}

template <class F> __global__ void __launch_bounds__(BLOCK) binary_singles(singles<3> w, operands<3> o, F f) {
    FOR_EACH(i, w.n_threads) {
        const places<3> p = places_of(w, i);
        float a[PACK] = {}, b[PACK] = {};
        singles_load(o, 1, p, a);
        singles_load(o, 2, p, b);
        for (int j = 0; j < PACK; j++) a[j] = f(a[j], b[j]);
        singles_store(o, p, a);
    }
}

/* ---- Choosing a walk ---------------------------------------------------------------------------------- */

template <int N> static operands<N> operands_of(const tl_operand *const *list) {
    operands<N> o;
    for (int n = 0; n < N; n++) {
        o.data[n] = list[n]->data;
        o.dtype[n] = list[n]->dtype;
    }
    return o;
}

template <int N> static bool can_pack(const geometry<N> &g, const operands<N> &o, bool has_tail = false) {
    int element_bytes[N];
    for (int n = 0; n < N; n++) element_bytes[n] = dtype_bytes(o.dtype[n]);
    return geometry_packs<N>(g, element_bytes, o.data, has_tail);
}

/* Long rows of f32, bf16 or f16. */
template <int N> static bool can_walk_singles(const singles<N> &w, const operands<N> &o) {
    bool fits = w.n_segments > 0;
    for (int n = 0; n < N; n++) fits = fits && (o.dtype[n] == TL_F32 || o.dtype[n] == TL_BF16 || o.dtype[n] == TL_F16);
    return fits;
}

template <class O, class A, class F>
static bool unary_pack_launch(const geometry<2> &g, const operands<2> &o, F f, cudaStream_t stream) {
    const geometry<2> steps = geometry_in_packs(g);
    unary_packs<O, A, F>
        <<<blocks_for(steps.numel), BLOCK, 0, stream>>>(steps, (int)(g.numel - steps.numel * PACK), o, f);
    return true;
}

/* TRUTH: also floats with a result of bool. False: no such combination. */
template <bool TRUTH, class F>
static bool unary_try_packs(const geometry<2> &g, const operands<2> &o, F f, cudaStream_t stream) {
    const tl_dtype y = o.dtype[0], a = o.dtype[1];
    if (!can_pack(g, o, true)) return false;
    if (y == TL_F32 && a == TL_F32) return unary_pack_launch<float, float>(g, o, f, stream);
    if (y == TL_BF16 && a == TL_BF16) return unary_pack_launch<bf16, bf16>(g, o, f, stream);
    if (y == TL_F16 && a == TL_F16) return unary_pack_launch<f16, f16>(g, o, f, stream);
    if constexpr (TRUTH) {
        if (y == TL_BOOL && a == TL_F32) return unary_pack_launch<bool, float>(g, o, f, stream);
        if (y == TL_BOOL && a == TL_BF16) return unary_pack_launch<bool, bf16>(g, o, f, stream);
        if (y == TL_BOOL && a == TL_F16) return unary_pack_launch<bool, f16>(g, o, f, stream);
    }
    return false;
}

/* WITH_INTEGERS: whether the op exists for integers (its functor then takes int64_t). `compute`: the type that it
 * computes in. */
template <bool WITH_INTEGERS, bool TRUTH, class F>
static bool unary_in(const tl_kernel_args *args, enum compute compute, F f) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[2] = {&args->out[0], &args->in[0]};
    const geometry<2> g = geometry_of<2>(list);
    const operands<2> o = operands_of<2>(list);
    const cudaStream_t stream = stream_of(args);
    if (g.numel == 0 || unary_try_packs<TRUTH>(g, o, f, stream)) return true;
    const unsigned blocks = blocks_for(g.numel);
    const singles<2> w = singles_of(g);
    if (compute == COMPUTE_F64) unary_any<double, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if (compute == COMPUTE_F32 && can_walk_singles(w, o))
        unary_singles<F><<<blocks_for(w.n_threads), BLOCK, 0, stream>>>(w, o, f);
    else if (compute == COMPUTE_F32) unary_any<float, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if constexpr (WITH_INTEGERS) unary_any<int64_t, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else return cuda_refuse_dtype(args, o.dtype[0]);
    return true;
}

template <bool WITH_INTEGERS, class F> static bool unary(const tl_kernel_args *args, F f) {
    return unary_in<WITH_INTEGERS, false>(args, compute_of(args->out[0].dtype), f);
}

template <class O, class A, class B, class F>
static bool binary_pack_launch(const geometry<3> &g, const operands<3> &o, F f, cudaStream_t stream) {
    const geometry<3> steps = geometry_in_packs(g);
    binary_packs<O, A, B, F>
        <<<blocks_for(steps.numel), BLOCK, 0, stream>>>(steps, (int)(g.numel - steps.numel * PACK), o, f);
    return true;
}

/* MIXED: also the combinations of f32 and bf16 that gradient accumulation and scaling meet. False: no such
 * combination. */
template <bool MIXED, class F>
static bool binary_try_packs(const geometry<3> &g, const operands<3> &o, F f, cudaStream_t stream) {
    const tl_dtype y = o.dtype[0], a = o.dtype[1], b = o.dtype[2];
    if ((y != TL_F32 && y != TL_BF16 && y != TL_F16) || !can_pack(g, o, true)) return false;
    if (y == TL_F32 && a == TL_F32 && b == TL_F32) return binary_pack_launch<float, float, float>(g, o, f, stream);
    if (y == TL_BF16 && a == TL_BF16 && b == TL_BF16) return binary_pack_launch<bf16, bf16, bf16>(g, o, f, stream);
    if (y == TL_F16 && a == TL_F16 && b == TL_F16) return binary_pack_launch<f16, f16, f16>(g, o, f, stream);
    if constexpr (MIXED) {
        if (y == TL_F32 && a == TL_F32 && b == TL_BF16) return binary_pack_launch<float, float, bf16>(g, o, f, stream);
        if (y == TL_F32 && a == TL_BF16 && b == TL_F32) return binary_pack_launch<float, bf16, float>(g, o, f, stream);
        if (y == TL_BF16 && a == TL_BF16 && b == TL_F32) return binary_pack_launch<bf16, bf16, float>(g, o, f, stream);
        if (y == TL_F16 && a == TL_F16 && b == TL_F32) return binary_pack_launch<f16, f16, float>(g, o, f, stream);
    }
    return false;
}

template <bool WITH_INTEGERS, bool MIXED, class F>
static bool binary_in(const tl_kernel_args *args, enum compute compute, F f) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[3] = {&args->out[0], &args->in[0], &args->in[1]};
    const geometry<3> g = geometry_of<3>(list);
    const operands<3> o = operands_of<3>(list);
    const cudaStream_t stream = stream_of(args);
    if (g.numel == 0 || binary_try_packs<MIXED>(g, o, f, stream)) return true;
    const unsigned blocks = blocks_for(g.numel);
    const singles<3> w = singles_of(g);
    if (compute == COMPUTE_F64) binary_any<double, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if (compute == COMPUTE_F32 && can_walk_singles(w, o))
        binary_singles<F><<<blocks_for(w.n_threads), BLOCK, 0, stream>>>(w, o, f);
    else if (compute == COMPUTE_F32) binary_any<float, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if constexpr (WITH_INTEGERS) binary_any<int64_t, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else return cuda_refuse_dtype(args, o.dtype[0]);
    return true;
}

template <bool WITH_INTEGERS, bool MIXED, class F> static bool binary(const tl_kernel_args *args, F f) {
    return binary_in<WITH_INTEGERS, MIXED>(args, compute_of(args->out[0].dtype), f);
}

/* The type two inputs of any dtype are compared in. */
static inline enum compute compute_of_both(tl_dtype a, tl_dtype b) {
    return a == TL_F64 || b == TL_F64               ? COMPUTE_F64
           : dtype_is_float(a) || dtype_is_float(b) ? COMPUTE_F32
                                                    : COMPUTE_I64;
}

#endif
