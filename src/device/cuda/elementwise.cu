/* elementwise.cu: one result per element.
 *
 * An op is a functor on numbers; three walks apply it:
 *   packs   eight elements per thread with 128-bit accesses, for the dtype combinations that training uses, when the
 *           innermost axis is dense (or constant) in every operand: dense tensors and broadcast rows alike
 *   any     one element per thread, dtypes looked up at run time: everything else
 * Both compute in the same type with the same functor, so they agree to the bit.
 */
#include "device/cuda/common.cuh"

/* ---- The functors ------------------------------------------------------------------------------------- */

struct f_add {
    template <class C> __device__ C operator()(C a, C b) const { return a + b; }
};
struct f_sub {
    template <class C> __device__ C operator()(C a, C b) const { return a - b; }
};
struct f_mul {
    template <class C> __device__ C operator()(C a, C b) const { return a * b; }
};
struct f_div {
    __device__ float operator()(float a, float b) const { return a / b; }
    __device__ double operator()(double a, double b) const { return a / b; }
};

/* Two roundings, whatever the compiler thinks of fused multiply-add; without a shift -0 stays -0. */
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

struct f_neg {
    template <class C> __device__ C operator()(C x) const { return -x; }
};
/* NaN stays NaN: it is not below zero. */
struct f_relu {
    template <class C> __device__ C operator()(C x) const { return x < C(0) ? C(0) : x; }
};

/* Functors of floats only: integers are refused by their ops' rules, or read as floats. */
struct f_exp {
    __device__ float operator()(float x) const { return expf(x); }
    __device__ double operator()(double x) const { return exp(x); }
};
struct f_log {
    __device__ float operator()(float x) const { return logf(x); }
    __device__ double operator()(double x) const { return log(x); }
};
struct f_sqrt {
    __device__ float operator()(float x) const { return sqrtf(x); }
    __device__ double operator()(double x) const { return sqrt(x); }
};
struct f_tanh {
    __device__ float operator()(float x) const { return tanhf(x); }
    __device__ double operator()(double x) const { return tanh(x); }
};

/* 1 / (1 + e^-x), by the branch whose exponential cannot overflow. */
template <class C> __device__ inline C sigmoid(C x) {
    const f_exp e;
    const C z = e(x < C(0) ? x : -x);
    return (x < C(0) ? z : C(1)) / (C(1) + z);
}
struct f_sigmoid {
    template <class C> __device__ C operator()(C x) const { return sigmoid(x); }
};

/* gelu(x) = x/2 (1 + tanh u),  u = s (x + k x^3),  s = sqrt(2/pi), k = 0.044715 */
#define GELU_S 0.79788456080286535588
#define GELU_K 0.044715
struct f_gelu {
    template <class C> __device__ C operator()(C x) const {
        const f_tanh t;
        return C(0.5) * x * (C(1) + t(C(GELU_S) * (x + C(GELU_K) * x * x * x)));
    }
};
/* gelu'(x) = (1 + tanh u)/2 + x/2 (1 - tanh^2 u) s (1 + 3k x^2) */
struct f_gelu_grad {
    template <class C> __device__ C operator()(C x, C g) const {
        const f_tanh t;
        const C th = t(C(GELU_S) * (x + C(GELU_K) * x * x * x));
        const C slope =
            C(0.5) * (C(1) + th) + C(0.5) * x * (C(1) - th * th) * C(GELU_S) * (C(1) + C(3 * GELU_K) * x * x);
        return g * slope;
    }
};
struct f_silu {
    template <class C> __device__ C operator()(C x) const { return x * sigmoid(x); }
};
/* silu'(x) = y (1 + x (1 - y)),  y = sigmoid(x) */
struct f_silu_grad {
    template <class C> __device__ C operator()(C x, C g) const {
        const C y = sigmoid(x);
        return g * (y * (C(1) + x * (C(1) - y)));
    }
};

struct f_swiglu {
    template <class C> __device__ C operator()(C gate, C up) const { return gate * sigmoid(gate) * up; }
};

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

template <class O, class A, class F>
__global__ void __launch_bounds__(BLOCK) unary_packs(geometry<2> g, operands<2> o, F f) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        const pack<A> a = pack_load<A>(o.data[1], at[1], g.stride[1][g.rank - 1] == 0);
        pack<O> y;
        for (int j = 0; j < PACK; j++) y.v[j] = conversion<O>::from(f(value_of<float>(a.v[j])));
        *(pack<O> *)((O *)o.data[0] + at[0]) = y;
    }
}

template <class O, class A, class B, class F>
__global__ void __launch_bounds__(BLOCK) binary_packs(geometry<3> g, operands<3> o, F f) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        const pack<A> a = pack_load<A>(o.data[1], at[1], g.stride[1][g.rank - 1] == 0);
        const pack<B> b = pack_load<B>(o.data[2], at[2], g.stride[2][g.rank - 1] == 0);
        pack<O> y;
        for (int j = 0; j < PACK; j++)
            y.v[j] = conversion<O>::from(f(value_of<float>(a.v[j]), value_of<float>(b.v[j])));
        *(pack<O> *)((O *)o.data[0] + at[0]) = y;
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

template <int N> static bool can_pack(const geometry<N> &g, const operands<N> &o) {
    int element_bytes[N];
    for (int n = 0; n < N; n++) element_bytes[n] = dtype_bytes(o.dtype[n]);
    return geometry_packs<N>(g, element_bytes, o.data);
}

template <class T, class F>
static void unary_pack_launch(geometry<2> g, const operands<2> &o, F f, cudaStream_t stream) {
    unary_packs<T, T, F><<<blocks_for(g.numel), BLOCK, 0, stream>>>(g, o, f);
}

/* WITH_INTEGERS: whether the op exists for integers (its functor then takes int64_t). */
template <bool WITH_INTEGERS, class F> static bool unary(const tl_kernel_args *args, F f) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[2] = {&args->out[0], &args->in[0]};
    const geometry<2> g = geometry_of<2>(list);
    const operands<2> o = operands_of<2>(list);
    const cudaStream_t stream = stream_of(args);
    if (g.numel == 0) return true;
    const tl_dtype t = o.dtype[0];
    if (t == o.dtype[1] && (t == TL_F32 || t == TL_BF16 || t == TL_F16) && can_pack(g, o)) {
        const geometry<2> packs = geometry_in_packs(g);
        if (t == TL_F32) unary_pack_launch<float>(packs, o, f, stream);
        else if (t == TL_BF16) unary_pack_launch<bf16>(packs, o, f, stream);
        else unary_pack_launch<f16>(packs, o, f, stream);
        return true;
    }
    const unsigned blocks = blocks_for(g.numel);
    if (compute_of(t) == COMPUTE_F64) unary_any<double, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if (compute_of(t) == COMPUTE_F32) unary_any<float, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if constexpr (WITH_INTEGERS) unary_any<int64_t, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else return cuda_refuse_dtype(args, t);
    return true;
}

template <class O, class A, class B, class F>
static bool binary_pack_launch(const geometry<3> &g, const operands<3> &o, F f, cudaStream_t stream) {
    const geometry<3> packs = geometry_in_packs(g);
    binary_packs<O, A, B, F><<<blocks_for(packs.numel), BLOCK, 0, stream>>>(packs, o, f);
    return true;
}

/* MIXED: also the combinations of f32 and bf16 that gradient accumulation meets. False: no such combination. */
template <bool MIXED, class F>
static bool binary_try_packs(const geometry<3> &g, const operands<3> &o, F f, cudaStream_t stream) {
    const tl_dtype y = o.dtype[0], a = o.dtype[1], b = o.dtype[2];
    if ((y != TL_F32 && y != TL_BF16 && y != TL_F16) || !can_pack(g, o)) return false;
    if (y == TL_F32 && a == TL_F32 && b == TL_F32) return binary_pack_launch<float, float, float>(g, o, f, stream);
    if (y == TL_BF16 && a == TL_BF16 && b == TL_BF16) return binary_pack_launch<bf16, bf16, bf16>(g, o, f, stream);
    if (y == TL_F16 && a == TL_F16 && b == TL_F16) return binary_pack_launch<f16, f16, f16>(g, o, f, stream);
    if constexpr (MIXED) {
        if (y == TL_F32 && a == TL_F32 && b == TL_BF16) return binary_pack_launch<float, float, bf16>(g, o, f, stream);
        if (y == TL_F32 && a == TL_BF16 && b == TL_F32) return binary_pack_launch<float, bf16, float>(g, o, f, stream);
    }
    return false;
}

template <bool WITH_INTEGERS, bool MIXED, class F> static bool binary(const tl_kernel_args *args, F f) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[3] = {&args->out[0], &args->in[0], &args->in[1]};
    const geometry<3> g = geometry_of<3>(list);
    const operands<3> o = operands_of<3>(list);
    const cudaStream_t stream = stream_of(args);
    if (g.numel == 0 || binary_try_packs<MIXED>(g, o, f, stream)) return true;
    const unsigned blocks = blocks_for(g.numel);
    const tl_dtype t = o.dtype[0];
    if (compute_of(t) == COMPUTE_F64) binary_any<double, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if (compute_of(t) == COMPUTE_F32) binary_any<float, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else if constexpr (WITH_INTEGERS) binary_any<int64_t, F><<<blocks, BLOCK, 0, stream>>>(g, o, f);
    else return cuda_refuse_dtype(args, t);
    return true;
}

/* ---- The ops ------------------------------------------------------------------------------------------ */

extern "C" {

bool cuda_add(const tl_kernel_args *args) { return binary<true, true>(args, f_add()); }
bool cuda_sub(const tl_kernel_args *args) { return binary<true, false>(args, f_sub()); }
bool cuda_mul(const tl_kernel_args *args) { return binary<true, true>(args, f_mul()); }
bool cuda_div(const tl_kernel_args *args) { return binary<false, false>(args, f_div()); }

bool cuda_affine(const tl_kernel_args *args) {
    const struct attr_affine *attr = (const struct attr_affine *)args->attr;
    return unary<true>(args, f_affine{attr->scale, attr->shift});
}

bool cuda_neg(const tl_kernel_args *args) { return unary<true>(args, f_neg()); }
bool cuda_relu(const tl_kernel_args *args) { return unary<true>(args, f_relu()); }
bool cuda_exp(const tl_kernel_args *args) { return unary<false>(args, f_exp()); }
bool cuda_log(const tl_kernel_args *args) { return unary<false>(args, f_log()); }
bool cuda_sqrt(const tl_kernel_args *args) { return unary<false>(args, f_sqrt()); }
bool cuda_tanh(const tl_kernel_args *args) { return unary<false>(args, f_tanh()); }
bool cuda_sigmoid(const tl_kernel_args *args) { return unary<false>(args, f_sigmoid()); }
bool cuda_gelu(const tl_kernel_args *args) { return unary<false>(args, f_gelu()); }
bool cuda_silu(const tl_kernel_args *args) { return unary<false>(args, f_silu()); }
bool cuda_gelu_grad(const tl_kernel_args *args) { return binary<false, false>(args, f_gelu_grad()); }
bool cuda_silu_grad(const tl_kernel_args *args) { return binary<false, false>(args, f_silu_grad()); }
bool cuda_swiglu(const tl_kernel_args *args) { return binary<false, false>(args, f_swiglu()); }

} /* extern "C" */

/* ---- swiglu's gradients ------------------------------------------------------------------------------- */

/* dgate = g up silu'(gate), dup = g silu(gate); operands 0 and 1 are the outputs, then gate, up, g. */
template <class C> __device__ inline void swiglu_slopes(C gate, C up, C g, C *dgate, C *dup) {
    const C y = sigmoid(gate);
    *dgate = g * up * (y * (C(1) + gate * (C(1) - y)));
    *dup = g * (gate * y);
}

template <class C> __global__ void __launch_bounds__(BLOCK) swiglu_grad_any(geometry<5> g, operands<5> o) {
    FOR_EACH(i, g.numel) {
        int64_t at[5];
        offsets_of(g, i, at);
        C x[3], dgate, dup;
        for (int k = 0; k < 3; k++) x[k] = load_as<C>(o.data[2 + k], at[2 + k], o.dtype[2 + k]);
        swiglu_slopes(x[0], x[1], x[2], &dgate, &dup);
        store_as<C>(o.data[0], at[0], o.dtype[0], dgate);
        store_as<C>(o.data[1], at[1], o.dtype[1], dup);
    }
}

template <class T> __global__ void __launch_bounds__(BLOCK) swiglu_grad_packs(geometry<5> g, operands<5> o) {
    FOR_EACH(i, g.numel) {
        int64_t at[5];
        offsets_of(g, i, at);
        pack<T> x[3], dgate, dup;
        for (int k = 0; k < 3; k++)
            x[k] = pack_load<T>(o.data[2 + k], at[2 + k], g.stride[2 + k][g.rank - 1] == 0);
        for (int j = 0; j < PACK; j++) {
            float a, b;
            swiglu_slopes(value_of<float>(x[0].v[j]), value_of<float>(x[1].v[j]), value_of<float>(x[2].v[j]), &a, &b);
            dgate.v[j] = conversion<T>::from(a);
            dup.v[j] = conversion<T>::from(b);
        }
        *(pack<T> *)((T *)o.data[0] + at[0]) = dgate;
        *(pack<T> *)((T *)o.data[1] + at[1]) = dup;
    }
}

extern "C" bool cuda_swiglu_grad(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[5] = {&args->out[0], &args->out[1], &args->in[0], &args->in[1], &args->in[2]};
    const geometry<5> g = geometry_of<5>(list);
    const operands<5> o = operands_of<5>(list);
    const cudaStream_t stream = stream_of(args);
    if (g.numel == 0) return true;
    const tl_dtype t = o.dtype[0];
    bool one_dtype = t == TL_F32 || t == TL_BF16 || t == TL_F16;
    for (int k = 1; k < 5; k++) one_dtype = one_dtype && o.dtype[k] == t;
    if (one_dtype && can_pack(g, o)) {
        const geometry<5> packs = geometry_in_packs(g);
        const unsigned blocks = blocks_for(packs.numel);
        if (t == TL_F32) swiglu_grad_packs<float><<<blocks, BLOCK, 0, stream>>>(packs, o);
        else if (t == TL_BF16) swiglu_grad_packs<bf16><<<blocks, BLOCK, 0, stream>>>(packs, o);
        else swiglu_grad_packs<f16><<<blocks, BLOCK, 0, stream>>>(packs, o);
        return true;
    }
    const unsigned blocks = blocks_for(g.numel);
    if (compute_of(t) == COMPUTE_F64) swiglu_grad_any<double><<<blocks, BLOCK, 0, stream>>>(g, o);
    else if (compute_of(t) == COMPUTE_F32) swiglu_grad_any<float><<<blocks, BLOCK, 0, stream>>>(g, o);
    else return cuda_refuse_dtype(args, t);
    return true;
}

/* ---- compare and where -------------------------------------------------------------------------------- */

template <class C> __device__ inline bool holds(C a, tl_compare relation, C b) {
    switch (relation) {
    case TL_EQ:
        return a == b;
    case TL_NE:
        return a != b;
    case TL_LT:
        return a < b;
    case TL_LE:
        return a <= b;
    case TL_GT:
        return a > b;
    default:
        return a >= b;
    }
}

template <class C>
__global__ void __launch_bounds__(BLOCK) compare_any(geometry<3> g, operands<3> o, tl_compare relation) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        const C a = load_as<C>(o.data[1], at[1], o.dtype[1]), b = load_as<C>(o.data[2], at[2], o.dtype[2]);
        ((bool *)o.data[0])[at[0]] = holds(a, relation, b);
    }
}

template <class C> __global__ void __launch_bounds__(BLOCK) where_any(geometry<4> g, operands<4> o) {
    FOR_EACH(i, g.numel) {
        int64_t at[4];
        offsets_of(g, i, at);
        const int from = ((const uint8_t *)o.data[1])[at[1]] ? 2 : 3;
        store_as<C>(o.data[0], at[0], o.dtype[0], load_as<C>(o.data[from], at[from], o.dtype[from]));
    }
}

extern "C" {

bool cuda_compare(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_compare relation = ((const struct attr_compare *)args->attr)->relation;
    const tl_operand *const list[3] = {&args->out[0], &args->in[0], &args->in[1]};
    const geometry<3> g = geometry_of<3>(list);
    const operands<3> o = operands_of<3>(list);
    if (g.numel == 0) return true;
    const unsigned blocks = blocks_for(g.numel);
    const tl_dtype a = o.dtype[1], b = o.dtype[2];
    if (a == TL_F64 || b == TL_F64) compare_any<double><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, relation);
    else if (dtype_is_float(a) || dtype_is_float(b))
        compare_any<float><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, relation);
    else compare_any<int64_t><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, relation);
    return true;
}

bool cuda_where(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[4] = {&args->out[0], &args->in[0], &args->in[1], &args->in[2]};
    const geometry<4> g = geometry_of<4>(list);
    const operands<4> o = operands_of<4>(list);
    if (g.numel == 0) return true;
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
