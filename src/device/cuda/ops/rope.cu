/* rope.cu: rotary positions. A block per (b,t): its D/2 angles are computed once, in f64, and serve all heads. */
#include "device/cuda/shared/common.cuh"
#include "spec/rope.h"

struct rope_shape {
    int64_t T, H, half;                   /* half = D/2 */
    int64_t stride_b, stride_t, stride_h; /* of x; its last axis is dense */
    const void *positions;                /* (B,T); NULL: first_position + t */
    tl_dtype positions_dtype;
    int64_t positions_stride[2];
};

__device__ inline int64_t position_at(const rope_shape &s, const struct attr_rope &attr, int64_t b, int64_t t) {
    if (!s.positions) return attr.first_position + t;
    const int64_t at = b * s.positions_stride[0] + t * s.positions_stride[1];
    return s.positions_dtype == TL_I64 ? ((const int64_t *)s.positions)[at] : ((const int32_t *)s.positions)[at];
}

/* out[i] = x[i] cos a - x[i+half] sin a;  out[i+half] = x[i+half] cos a + x[i] sin a;
 * a = position rope_frequency(i) */
template <class T> __global__ void rope_rows(const T *x, T *out, rope_shape s, int64_t n_rows, struct attr_rope attr) {
    typedef typename compute_type<T>::type C;
    extern __shared__ double2 table[]; /* cos and sin of each angle */
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const int64_t b = row / s.T, t = row % s.T, position = position_at(s, attr, b, t);
        __syncthreads();
        for (int64_t i = threadIdx.x; i < s.half; i += blockDim.x) {
            const double angle = (double)position * rope_frequency(&attr, i, s.half);
            table[i] = make_double2(cos(angle), attr.inverse ? -sin(angle) : sin(angle));
        }
        __syncthreads();
        for (int64_t j = threadIdx.x; j < s.H * s.half; j += blockDim.x) {
            const int64_t h = j / s.half, i = j % s.half;
            const T *from = x + b * s.stride_b + t * s.stride_t + h * s.stride_h;
            T *to = out + (row * s.H + h) * 2 * s.half;
            const C c = (C)table[i].x, sn = (C)table[i].y;
            const C x0 = value_of<C>(from[i]), x1 = value_of<C>(from[i + s.half]);
            to[i] = conversion<T>::from(x0 * c - x1 * sn);
            to[i + s.half] = conversion<T>::from(x1 * c + x0 * sn);
        }
    }
}

template <class T> static bool rope_launch(const tl_kernel_args *args, rope_shape s, int64_t n_rows) {
    const struct attr_rope *attr = (const struct attr_rope *)args->attr;
    const size_t table_bytes = (size_t)s.half * sizeof(double2);
    const unsigned blocks = (unsigned)(n_rows < INT32_MAX ? n_rows : INT32_MAX);
    rope_rows<T><<<blocks, threads_for_row(s.H * s.half), table_bytes, stream_of(args)>>>(
        (const T *)args->in[0].data, (T *)args->out[0].data, s, n_rows, *attr);
    return true;
}

extern "C" bool cuda_rope(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    rope_shape s = {};
    s.T = x->shape[1];
    s.H = x->shape[2];
    s.half = x->shape[3] / 2;
    s.stride_b = x->stride[0];
    s.stride_t = x->stride[1];
    s.stride_h = x->stride[2];
    if (((const struct attr_rope *)args->attr)->has_positions) {
        const tl_operand *positions = &args->in[1];
        s.positions = positions->data;
        s.positions_dtype = positions->dtype;
        for (int i = 0; i < 2; i++) s.positions_stride[i] = positions->stride[i];
    }
    if (operand_numel(x) == 0) return true;
    if (args->out[0].dtype != x->dtype) return cuda_refuse_dtype(args, args->out[0].dtype);
    if (s.half > 2048) {
        snprintf(args->error, CUDA_ERROR_BYTES, "rope: heads of %lld are too large", (long long)(2 * s.half));
        return false;
    }
    const int64_t n_rows = x->shape[0] * s.T;
    switch (x->dtype) {
    case TL_F64:
        return rope_launch<double>(args, s, n_rows);
    case TL_F32:
        return rope_launch<float>(args, s, n_rows);
    case TL_BF16:
        return rope_launch<bf16>(args, s, n_rows);
    case TL_F16:
        return rope_launch<f16>(args, s, n_rows);
    default:
        return cuda_refuse_dtype(args, x->dtype);
    }
}
