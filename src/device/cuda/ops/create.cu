/* create.cu: tensors from nothing: constants, ramps, random numbers. */
#include "device/cuda/ops/copy.cuh"
#include "device/cuda/ops/random.cuh"

__global__ void __launch_bounds__(BLOCK) arange_float(void *out, tl_dtype dtype, int64_t n, double start, double step) {
    FOR_EACH(i, n)
    store_as<double>(out, i, dtype, __dadd_rn(start, __dmul_rn((double)i, step)));
}

__global__ void __launch_bounds__(BLOCK)
    arange_integer(void *out, tl_dtype dtype, int64_t n, int64_t start, int64_t step) {
    FOR_EACH(i, n)
    store_as<int64_t>(out, i, dtype, start + i * step);
}

/* What random_put puts there, but a Philox block makes four: the masks of dropout. */
__global__ void __launch_bounds__(BLOCK)
    truths_in_packs(pack<uint8_t> *out, int64_t n_packs, struct rng_key key, uint64_t block, uint64_t threshold) {
    FOR_EACH(i, n_packs) {
        pack<uint8_t> y;
        for (int b = 0; b < PACK / 4; b++) {
            const struct rng_block words = rng_block_at(key, block + (uint64_t)(i * (PACK / 4) + b));
            for (int j = 0; j < 4; j++) y.v[4 * b + j] = rng_bernoulli(words.word[j], threshold);
        }
        out[i] = y;
    }
}

/* Whether the numbers are truths in whole packs, and are made. */
static bool truths_make(const tl_kernel_args *args, const struct attr_random *a) {
    const tl_operand *out = &args->out[0];
    const int64_t n = operand_numel(out);
    if (a->kind != RANDOM_BERNOULLI || out->dtype != TL_BOOL || a->generator.index % 4 != 0 || n % PACK != 0 ||
        (uintptr_t)out->data % PACK != 0)
        return false;
    const struct rng_key key = {a->generator.seed, a->generator.stream};
    if (n > 0)
        truths_in_packs<<<blocks_for(n / PACK), BLOCK, 0, stream_of(args)>>>(
            (pack<uint8_t> *)out->data, n / PACK, key, a->generator.index / 4, rng_threshold(a->a));
    return true;
}

extern "C" {

bool cuda_full(const tl_kernel_args *args) {
    const tl_operand *out = &args->out[0];
    const double value = ((const struct attr_full *)args->attr)->value;
    const int64_t n = operand_numel(out);
    const bool is_plain = out->dtype != TL_F4E2M1 && out->dtype != TL_F8E8M0; /* whole bytes, and 0 is all bits 0 */
    if (n == 0) return true;
    if (is_plain && value == 0 && !signbit(value))
        return cuda_check(cudaMemsetAsync(out->data, 0, (size_t)n * dtype_bytes(out->dtype), stream_of(args)), "full",
                          args->error);
    return fill_operand(args, out, value);
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
    struct attr_random_fill fill = {};
    fill.random = *(const struct attr_random *)args->attr;
    if (!truths_make(args, &fill.random)) random_operand(args, &args->out[0], fill);
    return true;
}

} /* extern "C" */
