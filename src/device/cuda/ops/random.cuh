/* random.cuh: an element of a random tensor.
 *
 * Random numbers come from base/rng_math.h, the same functions that the CPU runs, so that an element has the same
 * bits on every device. That includes the last steps below (scale, shift, rounding): each is a plain IEEE operation
 * or an explicit fma.
 */
#ifndef CUDA_RANDOM_CUH
#define CUDA_RANDOM_CUH

#include "device/cuda/shared/common.cuh"

#include "base/rng_math.h"

/* The quantile is written for the lower half; see device/cpu/ops/random.c. */
__device__ inline double random_quantile(double p) { return p <= 0.5 ? rng_quantile_f64(p) : -rng_quantile_f64(1 - p); }

/* a + b z clamped to [low, high], z the quantile of the middle of the draw's interval: neither 0 nor 1. */
__device__ inline double random_truncated(const struct attr_random_fill &fill, struct rng_key key, uint64_t index,
                                          bool is_wide) {
    const double u = is_wide ? fma((double)(rng_wide_draw_at(key, index) >> 12), 0x1p-52, 0x1p-53)
                             : fma((double)rng_draw_at(key, index), 0x1p-32, 0x1p-33);
    const double z = random_quantile(fma(u, fill.p_high - fill.p_low, fill.p_low));
    const double x = fma(fill.is_mirrored ? -z : z, fill.random.b, fill.random.a);
    return fmax(fill.low, fmin(fill.high, x));
}

/* Element i goes to place `at`. Of the f64 sequence when the output is f64, of the f32 sequence otherwise. */
__device__ inline void random_put(const struct attr_random_fill &fill, void *out, int64_t at, tl_dtype dtype,
                                  int64_t i) {
    const struct attr_random &a = fill.random;
    const struct rng_key key = {a.generator.seed, a.generator.stream};
    const uint64_t index = a.generator.index + (uint64_t)i;
    const bool is_wide = dtype == TL_F64;
    if (fill.is_truncated) {
        store_as<double>(out, at, dtype, random_truncated(fill, key, index, is_wide));
    } else if (a.kind == RANDOM_UNIFORM && is_wide) {
        ((double *)out)[at] =
            rng_between_f64(rng_uniform_f64(rng_wide_draw_at(key, index)), a.a, __dsub_rn(a.b, a.a), a.limit);
    } else if (a.kind == RANDOM_UNIFORM) {
        const float width = (float)__dsub_rn(a.b, a.a);
        store_as<float>(out, at, dtype,
                        rng_between_f32(rng_uniform_f32(rng_draw_at(key, index)), (float)a.a, width, (float)a.limit));
    } else if (a.kind == RANDOM_NORMAL && is_wide) {
        ((double *)out)[at] = fma(rng_normal_f64_at(key, index), a.b, a.a);
    } else if (a.kind == RANDOM_NORMAL) {
        store_as<float>(out, at, dtype, fmaf(rng_normal_f32_at(key, index), (float)a.b, (float)a.a));
    } else if (a.kind == RANDOM_BERNOULLI) {
        store_as<int64_t>(out, at, dtype, rng_bernoulli(rng_draw_at(key, index), rng_threshold(a.a)));
    } else {
        store_as<int64_t>(out, at, dtype, rng_integer(rng_wide_draw_at(key, index), a.low, a.high));
    }
}

template <int UNUSED>
__global__ void __launch_bounds__(BLOCK)
    random_any(geometry<1> g, void *out, tl_dtype dtype, struct attr_random_fill fill) {
    FOR_EACH(i, g.numel) {
        int64_t at[1];
        offsets_of(g, i, at);
        random_put(fill, out, at[0], dtype, i);
    }
}

/* Every element of x, in row-major order. */
static inline void random_operand(const tl_kernel_args *args, const tl_operand *x,
                                  const struct attr_random_fill &fill) {
    const tl_operand *const list[1] = {x};
    const geometry<1> g = geometry_of<1>(list);
    if (g.numel == 0) return;
    random_any<0><<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>(g, x->data, x->dtype, fill);
}

#endif
