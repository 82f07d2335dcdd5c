/* reduce.cu: sum and max over any axes, softmax over the last.
 *
 * sum. The elements that make one output are cut, in row-major order, into chunks of REDUCE_CHUNK. Pass one reduces each
 * (output, chunk) by a group of threads in a fixed tree; pass two adds the chunk results in order. No atomics: the
 * result depends on the shape alone. Three shapes of group, by where neighbours in memory lie:
 *   block     256 threads along the reduced elements: few, long reductions
 *   warp      32 threads likewise: short ones
 *   columns   32 outputs side by side times 16 threads each: the output's axis is the dense one (bias gradients)
 * The workspace is one 8-byte slot per (output, chunk), output-major. Without it (and more than one chunk) each group walks
 * its output's chunks itself: same result, less parallel.
 */
#include "device/cuda/common.cuh"

/* Where the elements are: outputs along `kept`, elements of one output along `reduced`. */
struct reduction {
    const void *x;
    void *out;   /* dense, or NULL: write slots */
    void *slots; /* (n_outputs, n_chunks) of C, 8 bytes apart */
    tl_dtype x_dtype, out_dtype;
    int64_t n_outputs, n_reduced, n_chunks;
    geometry<1> kept, reduced;
};

template <class C> __device__ inline C *slot_at(const reduction &r, int64_t output, int64_t chunk) {
    return (C *)((char *)r.slots + 8 * (output * r.n_chunks + chunk));
}

template <class C> __device__ inline void result_put(const reduction &r, int64_t output, int64_t chunk, C value) {
    if (r.out) store_as<C>(r.out, output, r.out_dtype, value);
    else *slot_at<C>(r, output, chunk) = value;
}

/* Reading element i of x: a known type, or one looked up (integers, whose sums are rare). */
template <class T, class C> struct load_typed {
    static __device__ C at(const reduction &r, int64_t i) { return value_of<C>(((const T *)r.x)[i]); }
};
struct load_integer {
    static __device__ int64_t at(const reduction &r, int64_t i) { return load_as<int64_t>(r.x, i, r.x_dtype); }
};

__device__ inline int64_t reduced_offset(const reduction &r, int64_t i) {
    if (r.reduced.rank == 1) return i * r.reduced.stride[0][0];
    int64_t at[1];
    offsets_of(r.reduced, i, at);
    return at[0];
}

__device__ inline int64_t kept_offset(const reduction &r, int64_t i) {
    int64_t at[1];
    offsets_of(r.kept, i, at);
    return at[0];
}

/* Chunks first .. last-1 of one output by one thread of a group of n: elements thread, thread + n, ... of each chunk. */
template <class C, class L, class F>
__device__ inline C chunk_part(const reduction &r, int64_t base, int64_t chunk, int thread, int n, F f, C zero) {
    const int64_t end = min(r.n_reduced, (chunk + 1) * REDUCE_CHUNK);
    C part = zero;
    for (int64_t i = chunk * REDUCE_CHUNK + thread; i < end; i += n)
        part = f(part, L::at(r, base + reduced_offset(r, i)));
    return part;
}

/* With slots a group has one chunk; without, it has all chunks of its output, in order. */
template <class C, class L, class F> __global__ void __launch_bounds__(256) reduce_block(reduction r, F f, C zero) {
    const bool one_chunk = r.out == nullptr;
    const int64_t n_groups = one_chunk ? r.n_outputs * r.n_chunks : r.n_outputs;
    for (int64_t group = blockIdx.x; group < n_groups; group += gridDim.x) {
        const int64_t output = one_chunk ? group / r.n_chunks : group;
        const int64_t first = one_chunk ? group % r.n_chunks : 0, last = one_chunk ? first + 1 : r.n_chunks;
        const int64_t base = kept_offset(r, output);
        C total = zero;
        for (int64_t chunk = first; chunk < last; chunk++) {
            const C part = chunk_part<C, L>(r, base, chunk, threadIdx.x, blockDim.x, f, zero);
            const C whole = block_reduce(part, f, zero);
            total = chunk == first ? whole : f(total, whole);
        }
        if (threadIdx.x == 0) result_put(r, output, first, total);
    }
}

/* Short reductions (one chunk): a warp each. */
template <class C, class L, class F> __global__ void __launch_bounds__(256) reduce_warp(reduction r, F f, C zero) {
    const int64_t step = (int64_t)gridDim.x * 8;
    for (int64_t output = blockIdx.x * 8 + threadIdx.x / 32; output < r.n_outputs; output += step) {
        const C part = chunk_part<C, L>(r, kept_offset(r, output), 0, threadIdx.x % 32, 32, f, zero);
        const C whole = warp_reduce(part, f);
        if (threadIdx.x % 32 == 0) result_put(r, output, 0, whole);
    }
}

/* 32 neighbouring outputs x 16 rows of threads; grid.y counts chunks. */
template <class C, class L, class F> __global__ void __launch_bounds__(512) reduce_columns(reduction r, F f, C zero) {
    __shared__ C parts[16][33];
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32;
    const bool one_chunk = r.out == nullptr;
    for (int64_t group = blockIdx.x; group * 32 < r.n_outputs; group += gridDim.x) {
        const int64_t output = group * 32 + lane;
        const bool is_there = output < r.n_outputs;
        const int64_t base = is_there ? kept_offset(r, output) : 0;
        const int64_t first = one_chunk ? blockIdx.y : 0, last = one_chunk ? first + 1 : r.n_chunks;
        C total = zero;
        for (int64_t chunk = first; chunk < last; chunk++) {
            parts[row][lane] = is_there ? chunk_part<C, L>(r, base, chunk, row, 16, f, zero) : zero;
            __syncthreads();
            for (int half = 8; half > 0; half /= 2) {
                if (row < half) parts[row][lane] = f(parts[row][lane], parts[row + half][lane]);
                __syncthreads();
            }
            total = chunk == first ? parts[0][lane] : f(total, parts[0][lane]);
            __syncthreads();
        }
        if (row == 0 && is_there) result_put(r, output, first, total);
    }
}

/* Pass two: the chunks of an output in order. */
template <class C, class F>
__global__ void __launch_bounds__(BLOCK) reduce_finish(reduction r, void *out, F f, C zero) {
    FOR_EACH(output, r.n_outputs) {
        C total = zero;
        for (int64_t chunk = 0; chunk < r.n_chunks; chunk++)
            total = chunk == 0 ? *slot_at<C>(r, output, 0) : f(total, *slot_at<C>(r, output, chunk));
        store_as<C>(out, output, r.out_dtype, total);
    }
}

/* Kept and reduced axes as operands of their own, in order. */
static void split_axes(const tl_operand *x, uint32_t axes, reduction *r) {
    int64_t shape[2][TL_MAX_RANK], stride[2][TL_MAX_RANK];
    tl_operand part[2] = {*x, *x};
    part[0].rank = part[1].rank = 0;
    for (int axis = 0; axis < x->rank; axis++) {
        const int which = (axes >> axis) & 1;
        shape[which][part[which].rank] = x->shape[axis];
        stride[which][part[which].rank++] = x->stride[axis];
    }
    for (int which = 0; which < 2; which++) {
        part[which].shape = shape[which];
        part[which].stride = stride[which];
    }
    const tl_operand *const kept[1] = {&part[0]}, *const reduced[1] = {&part[1]};
    r->kept = geometry_of<1>(kept);
    r->reduced = geometry_of<1>(reduced);
    r->n_outputs = r->kept.numel;
    r->n_reduced = r->reduced.numel;
    r->n_chunks = (r->n_reduced + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
}

static unsigned capped(int64_t blocks) { return (unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX); }

template <class C, class L, class F> static void reduce_launch(const tl_kernel_args *args, reduction r, F f, C zero) {
    const cudaStream_t stream = stream_of(args);
    void *const out = args->out[0].data;
    const int64_t slot_bytes = r.n_outputs * r.n_chunks * 8;
    const bool two_passes = r.n_chunks > 1 && args->workspace && args->workspace_bytes >= (size_t)slot_bytes;
    r.out = two_passes ? nullptr : out;
    r.slots = two_passes ? args->workspace : nullptr;
    const int64_t groups = two_passes ? r.n_outputs * r.n_chunks : r.n_outputs;
    const int64_t kept_inner = r.kept.stride[0][r.kept.rank - 1],
                  reduced_inner = r.reduced.stride[0][r.reduced.rank - 1];
    const bool side_by_side = kept_inner == 1 && reduced_inner != 1 && r.kept.size[r.kept.rank - 1] >= 16 &&
                              r.n_reduced > 1 && r.n_chunks <= 65535;
    if (side_by_side) {
        const dim3 grid(capped((r.n_outputs + 31) / 32), two_passes ? (unsigned)r.n_chunks : 1);
        reduce_columns<C, L, F><<<grid, 512, 0, stream>>>(r, f, zero);
    } else if (r.n_reduced <= 512) {
        reduce_warp<C, L, F><<<capped((r.n_outputs + 7) / 8), 256, 0, stream>>>(r, f, zero);
    } else {
        reduce_block<C, L, F><<<capped(groups), 256, 0, stream>>>(r, f, zero);
    }
    if (two_passes) reduce_finish<C, F><<<blocks_for(r.n_outputs), BLOCK, 0, stream>>>(r, out, f, zero);
}

template <class F> static bool reduce(const tl_kernel_args *args, F f, bool is_max) {
    if (!operands_known(args)) return false;
    const tl_operand *x = &args->in[0];
    reduction r;
    split_axes(x, ((const struct attr_reduce *)args->attr)->axes, &r);
    r.x = x->data;
    r.x_dtype = x->dtype;
    r.out_dtype = args->out[0].dtype;
    if (r.n_outputs == 0) return true;
    if (r.n_reduced == 0) r.n_chunks = 0; /* the groups then write `zero` */
    const float zero_f32 = is_max ? -INFINITY : 0.0f;
    switch (x->dtype) {
    case TL_F64:
        reduce_launch<double, load_typed<double, double>>(args, r, f, (double)zero_f32);
        break;
    case TL_F32:
        reduce_launch<float, load_typed<float, float>>(args, r, f, zero_f32);
        break;
    case TL_BF16:
        reduce_launch<float, load_typed<bf16, float>>(args, r, f, zero_f32);
        break;
    case TL_F16:
        reduce_launch<float, load_typed<f16, float>>(args, r, f, zero_f32);
        break;
    default:
        reduce_launch<int64_t, load_integer>(args, r, f, is_max ? INT64_MIN : (int64_t)0);
        break;
    }
    return true;
}

/* ---- softmax ------------------------------------------------------------------------------------------ */

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }

/* A block per row: maximum, sum of exponentials, then the quotients; the later reads hit the cache. */
template <class T> __global__ void softmax_rows(const T *x, T *y, int64_t n_rows, int64_t n) {
    typedef typename compute_type<T>::type C;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const T *from = x + row * n;
        T *to = y + row * n;
        C top = lowest<C>();
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) top = max_of()(top, value_of<C>(from[i]));
        top = block_reduce(top, max_of(), lowest<C>());
        C sum = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += exp_of(value_of<C>(from[i]) - top);
        sum = block_reduce(sum, sum_of(), C(0));
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            to[i] = conversion<T>::from(exp_of(value_of<C>(from[i]) - top) / sum);
    }
}

/* dx = y (g - sum(g y)) */
template <class T> __global__ void softmax_grad_rows(const T *y, const T *g, T *dx, int64_t n_rows, int64_t n) {
    typedef typename compute_type<T>::type C;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const int64_t at = row * n;
        C dot = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) dot += value_of<C>(g[at + i]) * value_of<C>(y[at + i]);
        dot = block_reduce(dot, sum_of(), C(0));
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            dx[at + i] = conversion<T>::from(value_of<C>(y[at + i]) * (value_of<C>(g[at + i]) - dot));
    }
}

template <class T> static bool softmax_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    const int threads = threads_for_row(n);
    softmax_rows<T><<<capped(n_rows), threads, 0, stream_of(args)>>>((const T *)args->in[0].data,
                                                                     (T *)args->out[0].data, n_rows, n);
    return true;
}

template <class T> static bool softmax_grad_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    if (args->in[1].dtype != args->in[0].dtype) return cuda_refuse_dtype(args, args->in[1].dtype);
    const int threads = threads_for_row(n);
    softmax_grad_rows<T><<<capped(n_rows), threads, 0, stream_of(args)>>>(
        (const T *)args->in[0].data, (const T *)args->in[1].data, (T *)args->out[0].data, n_rows, n);
    return true;
}

extern "C" {

bool cuda_sum(const tl_kernel_args *args) { return reduce(args, sum_of(), false); }
bool cuda_max(const tl_kernel_args *args) { return reduce(args, max_of(), true); }

bool cuda_softmax(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const int64_t n = x->rank ? x->shape[x->rank - 1] : 1, numel = operand_numel(x);
    if (numel == 0) return true;
    if (args->out[0].dtype != x->dtype) return cuda_refuse_dtype(args, args->out[0].dtype);
    switch (x->dtype) {
    case TL_F64:
        return softmax_launch<double>(args, numel / n, n);
    case TL_F32:
        return softmax_launch<float>(args, numel / n, n);
    case TL_BF16:
        return softmax_launch<bf16>(args, numel / n, n);
    case TL_F16:
        return softmax_launch<f16>(args, numel / n, n);
    default:
        return cuda_refuse_dtype(args, x->dtype);
    }
}

bool cuda_softmax_grad(const tl_kernel_args *args) {
    const tl_operand *y = &args->in[0];
    const int64_t n = y->rank ? y->shape[y->rank - 1] : 1, numel = operand_numel(y);
    if (numel == 0) return true;
    if (args->out[0].dtype != y->dtype) return cuda_refuse_dtype(args, args->out[0].dtype);
    switch (y->dtype) {
    case TL_F64:
        return softmax_grad_launch<double>(args, numel / n, n);
    case TL_F32:
        return softmax_grad_launch<float>(args, numel / n, n);
    case TL_BF16:
        return softmax_grad_launch<bf16>(args, numel / n, n);
    case TL_F16:
        return softmax_grad_launch<f16>(args, numel / n, n);
    default:
        return cuda_refuse_dtype(args, y->dtype);
    }
}

} /* extern "C" */
