/* update.cu: optimizer steps, in place, one pass over parameter, gradient and state. */
#include "device/cuda/common.cuh"

/* What a step needs besides tensors, computed once in f64. C is the arithmetic's type. */
template <class C> struct adamw_numbers {
    C keep;         /* 1 - lr weight_decay */
    C beta1, rest1; /* beta, 1 - beta */
    C beta2, rest2;
    C rate;         /* lr / (1 - beta1^step) */
    C inverse_root; /* 1 / sqrt(1 - beta2^step) */
    C eps;
};

template <class C> static adamw_numbers<C> numbers_of(const tl_adamw_options *o) {
    adamw_numbers<C> n;
    n.keep = (C)(1 - o->lr * o->weight_decay);
    n.beta1 = (C)o->beta1;
    n.rest1 = (C)(1 - o->beta1);
    n.beta2 = (C)o->beta2;
    n.rest2 = (C)(1 - o->beta2);
    n.rate = (C)(o->lr / (1 - pow(o->beta1, (double)o->step)));
    n.inverse_root = (C)(1 / sqrt(1 - pow(o->beta2, (double)o->step)));
    n.eps = (C)o->eps;
    return n;
}

__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }

/* One element: p, m, v are changed. */
template <class C> __device__ inline void adamw_step(const adamw_numbers<C> &n, C &p, C g, C &m, C &v) {
    m = n.beta1 * m + n.rest1 * g;
    v = n.beta2 * v + n.rest2 * (g * g);
    p = p * n.keep - n.rate * m / (sqrt_of(v) * n.inverse_root + n.eps);
}

struct adamw_operands { /* p, g, m, v */
    void *data[4];
    tl_dtype dtype[4];
};

template <class C>
__global__ void __launch_bounds__(BLOCK) adamw_any(geometry<4> geo, adamw_operands o, adamw_numbers<C> n) {
    FOR_EACH(i, geo.numel) {
        int64_t at[4];
        offsets_of(geo, i, at);
        C p = load_as<C>(o.data[0], at[0], o.dtype[0]), g = load_as<C>(o.data[1], at[1], o.dtype[1]);
        C m = load_as<C>(o.data[2], at[2], o.dtype[2]), v = load_as<C>(o.data[3], at[3], o.dtype[3]);
        adamw_step(n, p, g, m, v);
        store_as<C>(o.data[0], at[0], o.dtype[0], p);
        store_as<C>(o.data[2], at[2], o.dtype[2], m);
        store_as<C>(o.data[3], at[3], o.dtype[3], v);
    }
}

/* The dense case: eight elements per thread; moments f32, P and G as the recipe has them. */
template <class P, class G>
__global__ void __launch_bounds__(BLOCK)
    adamw_packs(int64_t n_packs, P *p_data, const G *g_data, float *m_data, float *v_data, adamw_numbers<float> n) {
    FOR_EACH(i, n_packs) {
        pack<P> p = ((pack<P> *)p_data)[i];
        const pack<G> g = ((const pack<G> *)g_data)[i];
        pack<float> m = ((pack<float> *)m_data)[i], v = ((pack<float> *)v_data)[i];
        for (int j = 0; j < PACK; j++) {
            float x = value_of<float>(p.v[j]);
            adamw_step(n, x, value_of<float>(g.v[j]), m.v[j], v.v[j]);
            p.v[j] = conversion<P>::from(x);
        }
        ((pack<P> *)p_data)[i] = p;
        ((pack<float> *)m_data)[i] = m;
        ((pack<float> *)v_data)[i] = v;
    }
}

template <class P, class G>
static bool adamw_packs_launch(const adamw_operands &o, int64_t numel, const adamw_numbers<float> &n,
                               cudaStream_t stream) {
    adamw_packs<P, G><<<blocks_for(numel / PACK), BLOCK, 0, stream>>>(
        numel / PACK, (P *)o.data[0], (const G *)o.data[1], (float *)o.data[2], (float *)o.data[3], n);
    return true;
}

static bool adamw_try_packs(const geometry<4> &g, const adamw_operands &o, const tl_adamw_options *options,
                            cudaStream_t stream) {
    int element_bytes[4];
    for (int i = 0; i < 4; i++) element_bytes[i] = dtype_bytes(o.dtype[i]);
    if (o.dtype[2] != TL_F32 || o.dtype[3] != TL_F32 || g.rank != 1 || g.stride[1][0] != 1 || g.stride[2][0] != 1 ||
        g.stride[3][0] != 1 || !geometry_packs<4>(g, element_bytes, o.data))
        return false;
    const adamw_numbers<float> n = numbers_of<float>(options);
    const tl_dtype p = o.dtype[0], d = o.dtype[1];
    if (p == TL_F32 && d == TL_F32) return adamw_packs_launch<float, float>(o, g.numel, n, stream);
    if (p == TL_F32 && d == TL_BF16) return adamw_packs_launch<float, bf16>(o, g.numel, n, stream);
    if (p == TL_BF16 && d == TL_BF16) return adamw_packs_launch<bf16, bf16>(o, g.numel, n, stream);
    if (p == TL_BF16 && d == TL_F32) return adamw_packs_launch<bf16, float>(o, g.numel, n, stream);
    return false;
}

/* p -= lr g */
template <class C>
__global__ void __launch_bounds__(BLOCK)
    sgd_any(geometry<2> geo, void *p, tl_dtype p_dtype, const void *g, tl_dtype g_dtype, C lr) {
    FOR_EACH(i, geo.numel) {
        int64_t at[2];
        offsets_of(geo, i, at);
        store_as<C>(p, at[0], p_dtype, load_as<C>(p, at[0], p_dtype) - lr * load_as<C>(g, at[1], g_dtype));
    }
}

extern "C" {

bool cuda_adamw(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[4] = {&args->in[0], &args->in[1], &args->in[2], &args->in[3]};
    const geometry<4> g = geometry_of<4>(list);
    const tl_adamw_options *options = &((const struct attr_adamw *)args->attr)->options;
    adamw_operands o;
    for (int i = 0; i < 4; i++) {
        o.data[i] = list[i]->data;
        o.dtype[i] = list[i]->dtype;
    }
    if (g.numel == 0 || adamw_try_packs(g, o, options, stream_of(args))) return true;
    const unsigned blocks = blocks_for(g.numel);
    if (o.dtype[0] == TL_F64)
        adamw_any<double><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, numbers_of<double>(options));
    else adamw_any<float><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o, numbers_of<float>(options));
    return true;
}

bool cuda_sgd(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *p = &args->in[0], *d = &args->in[1];
    const tl_operand *const list[2] = {p, d};
    const geometry<2> g = geometry_of<2>(list);
    const double lr = ((const struct attr_sgd *)args->attr)->lr;
    if (g.numel == 0) return true;
    const unsigned blocks = blocks_for(g.numel);
    if (p->dtype == TL_F64)
        sgd_any<double><<<blocks, BLOCK, 0, stream_of(args)>>>(g, p->data, p->dtype, d->data, d->dtype, lr);
    else sgd_any<float><<<blocks, BLOCK, 0, stream_of(args)>>>(g, p->data, p->dtype, d->data, d->dtype, (float)lr);
    return true;
}

} /* extern "C" */
