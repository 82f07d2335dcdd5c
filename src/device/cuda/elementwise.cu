/* elementwise.cu: one result per element: arithmetic and activations. math.cu has the other functions. */
#include "device/cuda/elementwise.cuh"

/* ---- The functors ------------------------------------------------------------------------------------- */

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
/* The same for 16-bit numbers, by the card's own exponential, right to 2^-20 or so:  (1 + tanh u)/2 = y = 1/(1 + e^-2u), hence
 * gelu(x) = x y  and  gelu'(x) = y + 2x y (1 - y) s (1 + 3k x^2). */
__device__ inline float gelu_gate(float x) {
    return __fdividef(1.0f, 1.0f + __expf(float(-2 * GELU_S) * fmaf(float(GELU_K) * x * x, x, x)));
}
struct f_gelu_short : f_gelu {
    using f_gelu::operator();
    __device__ float operator()(float x) const { return x * gelu_gate(x); }
};
struct f_gelu_grad_short : f_gelu_grad {
    using f_gelu_grad::operator();
    __device__ float operator()(float x, float g) const {
        const float y = gelu_gate(x);
        const float inner = float(2 * GELU_S) * fmaf(float(3 * GELU_K) * x, x, 1.0f);
        return g * fmaf(x * y * (1.0f - y), inner, y);
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
bool cuda_gelu(const tl_kernel_args *args) {
    return dtype_bytes(args->out[0].dtype) == 2 ? unary<false>(args, f_gelu_short()) : unary<false>(args, f_gelu());
}
bool cuda_silu(const tl_kernel_args *args) { return unary<false>(args, f_silu()); }
bool cuda_gelu_grad(const tl_kernel_args *args) {
    return dtype_bytes(args->out[0].dtype) == 2 ? binary<false, false>(args, f_gelu_grad_short())
                                                : binary<false, false>(args, f_gelu_grad());
}
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
        for (int k = 0; k < 3; k++) x[k] = pack_load<T>(o.data[2 + k], at[2 + k], g.stride[2 + k][g.rank - 1] == 0);
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
    switch (compute_of_both(o.dtype[1], o.dtype[2])) {
    case COMPUTE_F64:
        compare_any<double><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, relation);
        break;
    case COMPUTE_F32:
        compare_any<float><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, relation);
        break;
    case COMPUTE_I64:
        compare_any<int64_t><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, relation);
        break;
    }
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
