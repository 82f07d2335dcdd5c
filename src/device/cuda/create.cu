/* create.cu: tensors from nothing: constants, ramps, random numbers.
 *
 * Random numbers come from base/rng_math.h, the very functions the cpu runs, so that an element has the same bits on
 * every device. That includes the last steps below (scale, shift, rounding): each is a plain IEEE operation or
 * an explicit fma.
 */
#include "device/cuda/common.cuh"

#include "base/rng_math.h"

__global__ void __launch_bounds__(BLOCK) full_dense(void *out, tl_dtype dtype, int64_t n, double value) {
    FOR_EACH(i, n)
    store_as<double>(out, i, dtype, value);
}

__global__ void __launch_bounds__(BLOCK) arange_float(void *out, tl_dtype dtype, int64_t n, double start, double step) {
    FOR_EACH(i, n)
    store_as<double>(out, i, dtype, __dadd_rn(start, __dmul_rn((double)i, step)));
}

__global__ void __launch_bounds__(BLOCK)
    arange_integer(void *out, tl_dtype dtype, int64_t n, int64_t start, int64_t step) {
    FOR_EACH(i, n)
    store_as<int64_t>(out, i, dtype, start + i * step);
}

/* Elements of the f64 sequence when the output is f64, of the f32 sequence otherwise. */
__global__ void __launch_bounds__(BLOCK) random_uniform(void *out, tl_dtype dtype, int64_t n, struct rng_key key,
                                                        uint64_t index, double low, double width, double limit) {
    FOR_EACH(i, n) {
        if (dtype == TL_F64)
            ((double *)out)[i] = rng_between_f64(rng_uniform_f64(rng_wide_draw_at(key, index + i)), low, width, limit);
        else
            store_as<float>(
                out, i, dtype,
                rng_between_f32(rng_uniform_f32(rng_draw_at(key, index + i)), (float)low, (float)width, (float)limit));
    }
}

__global__ void __launch_bounds__(BLOCK)
    random_normal(void *out, tl_dtype dtype, int64_t n, struct rng_key key, uint64_t index, double mean, double std) {
    FOR_EACH(i, n) {
        if (dtype == TL_F64) ((double *)out)[i] = fma(rng_normal_f64_at(key, index + i), std, mean);
        else store_as<float>(out, i, dtype, fmaf(rng_normal_f32_at(key, index + i), (float)std, (float)mean));
    }
}

__global__ void __launch_bounds__(BLOCK)
    random_bernoulli(void *out, tl_dtype dtype, int64_t n, struct rng_key key, uint64_t index, uint64_t threshold) {
    FOR_EACH(i, n)
    store_as<int64_t>(out, i, dtype, rng_bernoulli(rng_draw_at(key, index + i), threshold));
}

__global__ void __launch_bounds__(BLOCK) random_integers(void *out, tl_dtype dtype, int64_t n, struct rng_key key,
                                                         uint64_t index, int64_t low, int64_t high) {
    FOR_EACH(i, n)
    store_as<int64_t>(out, i, dtype, rng_integer(rng_wide_draw_at(key, index + i), low, high));
}

extern "C" {

bool cuda_full(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *out = &args->out[0];
    const double value = ((const struct attr_full *)args->attr)->value;
    const int64_t n = operand_numel(out);
    if (n == 0) return true;
    if (value == 0 && !signbit(value))
        return cuda_check(cudaMemsetAsync(out->data, 0, (size_t)n * dtype_bytes(out->dtype), stream_of(args)), "full",
                          args->error);
    full_dense<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(out->data, out->dtype, n, value);
    return true;
}

bool cuda_arange(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const struct attr_arange *attr = (const struct attr_arange *)args->attr;
    const tl_operand *out = &args->out[0];
    const int64_t n = operand_numel(out);
    if (n == 0) return true;
    if (dtype_is_float(out->dtype))
        arange_float<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(out->data, out->dtype, n, attr->start, attr->step);
    else
        arange_integer<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(out->data, out->dtype, n, (int64_t)attr->start,
                                                                     (int64_t)attr->step);
    return true;
}

bool cuda_random(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const struct attr_random *attr = (const struct attr_random *)args->attr;
    const tl_operand *out = &args->out[0];
    const int64_t n = operand_numel(out);
    if (n == 0) return true;
    const struct rng_key key = {attr->generator.seed, attr->generator.stream};
    const uint64_t index = attr->generator.index;
    const unsigned blocks = blocks_for(n);
    const cudaStream_t stream = stream_of(args);
    switch (attr->kind) {
    case RANDOM_UNIFORM:
        random_uniform<<<blocks, BLOCK, 0, stream>>>(out->data, out->dtype, n, key, index, attr->a, attr->b - attr->a,
                                                     attr->limit);
        break;
    case RANDOM_NORMAL:
        random_normal<<<blocks, BLOCK, 0, stream>>>(out->data, out->dtype, n, key, index, attr->a, attr->b);
        break;
    case RANDOM_BERNOULLI:
        random_bernoulli<<<blocks, BLOCK, 0, stream>>>(out->data, out->dtype, n, key, index, rng_threshold(attr->a));
        break;
    case RANDOM_INTEGERS:
        random_integers<<<blocks, BLOCK, 0, stream>>>(out->data, out->dtype, n, key, index, attr->low, attr->high);
        break;
    }
    return true;
}

} /* extern "C" */
