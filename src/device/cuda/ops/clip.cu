/* clip.cu: sums of squares over many tensors, and the factor that clips them. Nothing is read back by the host. */
#include "device/cuda/shared/common.cuh"

/* One block per chunk, whose sum is one f64; REDUCE_CHUNK / BLOCK elements per thread; a warp reads neighbours. */
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

/* The same for dense tensors of one dtype, as many as fit in a launch: gradients are many and small. A thread has two
 * packs of a chunk. */
enum { LIST = 64 };
struct square_list {
    int n;
    int64_t n_chunks; /* of all */
    const void *x[LIST];
    int64_t numel[LIST], first_chunk[LIST];
    double *sums[LIST];
};
template <class T> __global__ void __launch_bounds__(BLOCK) square_lists(square_list list) {
    typedef typename compute_type<T>::type C;
    for (int64_t chunk = blockIdx.x; chunk < list.n_chunks; chunk += gridDim.x) {
        const int which = chunk_owner(list.first_chunk, list.n, chunk);
        const int64_t own = chunk - list.first_chunk[which], first = own * REDUCE_CHUNK;
        const int64_t n = min((int64_t)REDUCE_CHUNK, list.numel[which] - first);
        const T *x = (const T *)list.x[which] + first;
        C sum = 0;
#pragma unroll
        for (int k = 0; k < REDUCE_CHUNK / (BLOCK * PACK); k++) {
            const int at = (k * BLOCK + (int)threadIdx.x) * PACK;
            if (at + PACK <= n) {
                C value[PACK];
                row_load(x, at / PACK).widen(value);
                for (int j = 0; j < PACK; j++) sum += value[j] * value[j];
            } else {
                for (int i = at; i < n; i++) sum += value_of<C>(x[i]) * value_of<C>(x[i]);
            }
        }
        sum = block_reduce(sum, sum_of(), C(0));
        if (threadIdx.x == 0) list.sums[which][own] = (double)sum;
    }
}

static void list_run(square_list *list, tl_dtype dtype, cudaStream_t stream) {
    if (list->n == 0) return;
    const unsigned blocks = blocks_for(list->n_chunks, 1);
    if (dtype == TL_F32) square_lists<float><<<blocks, BLOCK, 0, stream>>>(*list);
    else if (dtype == TL_BF16) square_lists<bf16><<<blocks, BLOCK, 0, stream>>>(*list);
    else square_lists<f16><<<blocks, BLOCK, 0, stream>>>(*list);
    list->n = 0;
    list->n_chunks = 0;
}

static void list_add(square_list *list, const tl_operand *x, int64_t numel, int64_t n_chunks, double *sums) {
    list->x[list->n] = x->data;
    list->numel[list->n] = numel;
    list->first_chunk[list->n] = list->n_chunks;
    list->sums[list->n++] = sums;
    list->n_chunks += n_chunks;
}

/* One block: every thread adds a stripe of the chunks, in order. */
__global__ void __launch_bounds__(1024)
    square_total(const double *sums, int64_t n_chunks, const void *start, void *out, tl_dtype dtype) {
    double sum = 0;
    for (int64_t k = threadIdx.x; k < n_chunks; k += blockDim.x) sum += sums[k];
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
    const cudaStream_t stream = stream_of(args);
    int64_t used = 0;
    square_list list;
    list.n = 0;
    list.n_chunks = 0;
    tl_dtype listed = TL_F32;
    for (int i = attr->has_start; i < args->n_in; i++) {
        const tl_operand *x = &args->in[i];
        const geometry<1> g = geometry_of<1>(&x);
        const int64_t n_chunks = (g.numel + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
        const bool is_dense = g.rank == 1 && g.stride[0][0] == 1 && (uintptr_t)x->data % 16 == 0;
        if (n_chunks == 0) continue;
        if (attr->dtype == TL_F64) {
            square_chunks<double><<<blocks_for(n_chunks, 1), BLOCK, 0, stream>>>(g, x->data, x->dtype, sums + used);
        } else if (is_dense && (x->dtype == TL_F32 || x->dtype == TL_BF16 || x->dtype == TL_F16)) {
            if (list.n == LIST || x->dtype != listed) list_run(&list, listed, stream);
            listed = x->dtype;
            list_add(&list, x, g.numel, n_chunks, sums + used);
        } else {
            square_chunks<float><<<blocks_for(n_chunks, 1), BLOCK, 0, stream>>>(g, x->data, x->dtype, sums + used);
        }
        used += n_chunks;
    }
    list_run(&list, listed, stream);
    square_total<<<1, 1024, 0, stream>>>(sums, used, attr->has_start ? args->in[0].data : NULL, args->out[0].data,
                                         attr->dtype);
    return true;
}

bool cuda_clip_scale(const tl_kernel_args *args) {
    const struct attr_clip_scale *attr = (const struct attr_clip_scale *)args->attr;
    clip_scale_one<<<1, 1, 0, stream_of(args)>>>(args->in[0].data, args->in[0].dtype, (float *)args->out[0].data,
                                                 attr->max_norm, attr->divisor);
    return true;
}

} /* extern "C" */
