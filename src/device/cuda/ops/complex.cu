/* complex.cu: products and quotients of complex numbers, pairs side by side. */
#include "device/cuda/shared/common.cuh"
#include "spec/attr.h"

/* (a + ib)(c + id) = (ac - bd) + i(ad + bc) */
struct complex_product {
    template <class T> __device__ static void run(const T *a, T re, T im, T *y) {
        const T first = a[0] * re - a[1] * im, second = a[0] * im + a[1] * re;
        y[0] = first;
        y[1] = second;
    }
};

/* NumPy's and PyTorch's: the larger part of the divisor divides first, so that no square overflows. */
struct complex_quotient {
    template <class T> __device__ static void run(const T *a, T re, T im, T *y) {
        const T size_re = fabs(re), size_im = fabs(im), x = a[0], z = a[1];
        if (re == 0 && im == 0) {
            y[0] = x / size_re;
            y[1] = z / size_im;
        } else if (size_re >= size_im) {
            const T ratio = im / re, scale = T(1) / (re + im * ratio);
            y[0] = (x + z * ratio) * scale;
            y[1] = (z - x * ratio) * scale;
        } else {
            const T ratio = re / im, scale = T(1) / (re * ratio + im);
            y[0] = (x * ratio + z) * scale;
            y[1] = (z * ratio - x) * scale;
        }
    }
};

/* The geometry is that of the numbers, without the axis of their parts. */
template <class OF, class T>
__global__ void __launch_bounds__(BLOCK) pairs_each(geometry<3> g, const T *a, const T *b, T *y, T sign) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        OF::run(a + at[1], b[at[2]], sign * b[at[2] + 1], y + at[0]);
    }
}

template <class OF, class T> static void pairs_launch(const tl_kernel_args *args, const geometry<3> &g) {
    const bool conjugates = ((const struct attr_complex *)args->attr)->conjugates;
    pairs_each<OF, T><<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>(
        g, (const T *)args->in[0].data, (const T *)args->in[1].data, (T *)args->out[0].data, T(conjugates ? -1 : 1));
}

template <class OF> static bool pairs_run(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    tl_operand numbers[3] = {args->out[0], args->in[0], args->in[1]};
    for (int i = 0; i < 3; i++) numbers[i].rank--;
    const tl_operand *const list[3] = {&numbers[0], &numbers[1], &numbers[2]};
    const geometry<3> g = geometry_of<3>(list);
    if (g.numel == 0) return true;
    if (args->out[0].dtype == TL_F64) pairs_launch<OF, double>(args, g);
    else pairs_launch<OF, float>(args, g);
    return true;
}

extern "C" bool cuda_complex_mul(const tl_kernel_args *args) { return pairs_run<complex_product>(args); }
extern "C" bool cuda_complex_div(const tl_kernel_args *args) { return pairs_run<complex_quotient>(args); }
