/* swiglu.cu: the gradients of silu(gate) up, both in one pass. */
#include "device/cuda/ops/elementwise.cuh"

/* dgate = g up silu'(gate), dup = g silu(gate); operands 0 and 1 are the outputs, then gate, up, g. */
template <class C> __device__ inline void swiglu_slopes(C gate, C up, C g, C *dgate, C *dup) {
    const C y = real_sigmoid(gate);
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
