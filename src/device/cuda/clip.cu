/* clip.cu: sums of squares over many tensors, and the factor that clips them. Nothing is read back by the host. */
#include "device/cuda/common.cuh"

/* One block per chunk, whose sum is one f64; REDUCE_CHUNK / BLOCK elements per thread, a warp's being neighbours. */
template <class C>
__global__ void __launch_bounds__(BLOCK) square_chunks(geometry<1> geo, const void *x, tl_dtype dtype, double *sums) {
    const int64_t n_chunks = (geo.numel + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    for (int64_t chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        const int64_t first = chunk * REDUCE_CHUNK;
        C sum = 0;
        for (int j = threadIdx.x; j < REDUCE_CHUNK && first + j < geo.numel; j += BLOCK) {
            int64_t at[1];
            offsets_of(geo, first + j, at);
            const C value = load_as<C>(x, at[0], dtype);
            sum += value * value;
        }
        sum = block_reduce(sum, sum_of(), C(0));
        if (threadIdx.x == 0) sums[chunk] = (double)sum;
    }
}

/* One block: every thread adds a stripe of the chunks, in order. */
__global__ void __launch_bounds__(BLOCK)
    square_total(const double *sums, int64_t n_chunks, const void *start, void *out, tl_dtype dtype) {
    double sum = 0;
    for (int64_t k = threadIdx.x; k < n_chunks; k += BLOCK) sum += sums[k];
    sum = block_reduce(sum, sum_of(), 0.0);
    if (threadIdx.x == 0) store_as<double>(out, 0, dtype, sum + (start ? load_as<double>(start, 0, dtype) : 0.0));
}

__global__ void clip_scale_one(const void *norm_data, tl_dtype dtype, float *out, double max_norm, double divisor) {
    const double norm = load_as<double>(norm_data, 0, dtype);
    const double ratio = max_norm / (norm / divisor + 1e-6);
    *out = isfinite(norm) ? (float)((ratio < 1 ? ratio : 1) / divisor) : NAN;
}

extern "C" {

bool cuda_sum_squares(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const struct attr_sum_squares *attr = (const struct attr_sum_squares *)args->attr;
    double *const sums = (double *)args->workspace;
    int64_t used = 0;
    for (int i = attr->has_start; i < args->n_in; i++) {
        const tl_operand *x = &args->in[i];
        const geometry<1> g = geometry_of<1>(&x);
        const int64_t n_chunks = (g.numel + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
        if (n_chunks == 0) continue;
        const unsigned blocks = blocks_for(n_chunks, 1);
        if (attr->dtype == TL_F64)
            square_chunks<double><<<blocks, BLOCK, 0, stream_of(args)>>>(g, x->data, x->dtype, sums + used);
        else square_chunks<float><<<blocks, BLOCK, 0, stream_of(args)>>>(g, x->data, x->dtype, sums + used);
        used += n_chunks;
    }
    square_total<<<1, BLOCK, 0, stream_of(args)>>>(sums, used, attr->has_start ? args->in[0].data : NULL,
                                                   args->out[0].data, attr->dtype);
    return true;
}

bool cuda_clip_scale(const tl_kernel_args *args) {
    const struct attr_clip_scale *attr = (const struct attr_clip_scale *)args->attr;
    clip_scale_one<<<1, 1, 0, stream_of(args)>>>(args->in[0].data, args->in[0].dtype, (float *)args->out[0].data,
                                                 attr->max_norm, attr->divisor);
    return true;
}

} /* extern "C" */
