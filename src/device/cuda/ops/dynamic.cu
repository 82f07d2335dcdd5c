/* dynamic.cu: nonzero: the indices of elements that are not 0. */
#include "device/cuda/shared/select.cuh"

/* TRUTH: x is bool and dense. */
template <bool TRUTH> struct nonzero_source {
    typedef bool value_type;
    geometry<1> g, shape; /* x, and its own axes, nothing merged */
    const void *x;
    tl_dtype dtype;
    int rank;
    int64_t n, *out;
    __device__ bool value(int64_t i) const {
        if (TRUTH) return ((const uint8_t *)x)[i] != 0;
        int64_t at[1];
        offsets_of(g, i, at);
        return load_as<double>(x, at[0], dtype) != 0;
    }
    __device__ bool holds(int64_t, bool value) const { return value; }
    __device__ void put(int64_t i, int64_t number, bool is_found) const {
        if (!is_found || number >= n) return;
        int64_t *to = out + number * rank;
        if (shape.numel <= INT32_MAX) {
            uint32_t rest = (uint32_t)i;
            for (int axis = rank - 1; axis >= 0; axis--) {
                const uint32_t next = (__umulhi(rest, shape.magic[axis]) + rest) >> shape.shift[axis];
                to[axis] = rest - next * (uint32_t)shape.size[axis];
                rest = next;
            }
            return;
        }
        for (int axis = rank - 1; axis >= 0; axis--) {
            to[axis] = i % shape.size[axis];
            i /= shape.size[axis];
        }
    }
};

template <bool TRUTH> static bool nonzero(const tl_kernel_args *args, const geometry<1> &g) {
    const tl_operand *x = &args->in[0];
    nonzero_source<TRUTH> source = {};
    source.g = g;
    source.shape.rank = source.rank = x->rank;
    source.shape.numel = g.numel;
    for (int i = 0; i < x->rank; i++) source.shape.size[i] = x->shape[i];
    geometry_divides(&source.shape);
    source.x = x->data;
    source.dtype = x->dtype;
    source.n = ((const struct attr_nonzero *)args->attr)->n;
    source.out = (int64_t *)args->out[0].data;
    return select_all(args, source, g.numel, source.n, (int64_t *)args->workspace, args->workspace_bytes);
}

extern "C" bool cuda_nonzero(const tl_kernel_args *args) {
    const tl_operand *const list[1] = {&args->in[0]};
    if (!operands_known(args)) return false;
    const geometry<1> g = geometry_of<1>(list);
    if (g.numel == 0) return true;
    const bool is_dense = g.rank == 1 && (g.numel == 1 || g.stride[0][0] == 1);
    return is_dense && list[0]->dtype == TL_BOOL ? nonzero<true>(args, g) : nonzero<false>(args, g);
}
