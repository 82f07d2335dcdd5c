/* reduce.cu: sum, product, largest and smallest over any axes; softmax and log-softmax over the last.
 *
 * Sums and the like. The elements that make one output are cut, in row-major order, into chunks of REDUCE_CHUNK. Pass
 * one reduces each (output, chunk) by a group of threads in a fixed tree; pass two adds the chunk results in order.
 * No atomics: the result depends on the shape alone. There are three shapes of groups, depending on which axis is
 * contiguous:
 *   block     256 threads along the reduced elements: few, long reductions
 *   warp      32 threads likewise: short ones
 *   columns   32 outputs side by side times 16 threads each: the output's axis is the dense one (bias gradients);
 *             8 packs of outputs times 64 threads where rows are aligned
 * The workspace is one 8-byte slot per (output, chunk), output-major. Without it (and more than one chunk) each group
 * walks its output's chunks itself: same result, less parallel.
 */
#include "device/cuda/shared/common.cuh"

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

/* Reading element i of x: a known type, or one looked up (integers and 8-bit floats, whose sums are rare). */
template <class T, class C> struct load_typed {
    typedef T element;
    static const bool has_packs = sizeof(T) <= 4;
    static __device__ C at(const reduction &r, int64_t i) { return value_of<C>(((const T *)r.x)[i]); }
};
template <class C> struct load_any {
    typedef C element;
    static const bool has_packs = false;
    static __device__ C at(const reduction &r, int64_t i) { return load_as<C>(r.x, i, r.x_dtype); }
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

/* Chunks first .. last-1 of one output by one thread of a group of n: elements thread, thread + n, ... of each
 * chunk. */
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

enum { PACK_LANES = 8, PACK_ROWS = 64, AHEAD = 4 };

/* A dense matrix over its rows: a thread has a pack of outputs and every PACK_ROWS-th row of the chunk, and loads
 * AHEAD rows before it adds the first; eight threads read 128 bytes of a row. So a narrow matrix, too, gives every
 * multiprocessor work. The rows of a warp are joined by shuffles, the warps in order. */
template <class C, class T, class F>
__global__ void __launch_bounds__(PACK_LANES *PACK_ROWS) reduce_packs(reduction r, F f, C zero) {
    const int WARPS = PACK_LANES * PACK_ROWS / 32, WIDTH = PACK_LANES * PACK;
    __shared__ C parts[WARPS][WIDTH];
    const int lane = threadIdx.x % PACK_LANES, row = threadIdx.x / PACK_LANES, warp = threadIdx.x / 32;
    const bool one_chunk = r.out == nullptr;
    const int64_t stride = r.reduced.stride[0][0];
    for (int64_t group = blockIdx.x; group * WIDTH < r.n_outputs; group += gridDim.x) {
        const int64_t output = group * WIDTH + lane * PACK; /* this thread's first */
        const bool is_there = output < r.n_outputs;
        const int64_t first = one_chunk ? blockIdx.y : 0, last = one_chunk ? first + 1 : r.n_chunks;
        C total = zero; /* of output group * WIDTH + threadIdx.x */
        for (int64_t chunk = first; chunk < last; chunk++) {
            const int64_t end = min(r.n_reduced, (chunk + 1) * REDUCE_CHUNK);
            C part[PACK];
            for (int j = 0; j < PACK; j++) part[j] = zero;
            for (int64_t i = chunk * REDUCE_CHUNK + row; is_there && i < end; i += PACK_ROWS * AHEAD) {
                row_pack<T> x[AHEAD];
#pragma unroll
                for (int k = 0; k < AHEAD; k++)
                    if (i + k * PACK_ROWS < end)
                        x[k] = row_load((const T *)r.x + (i + k * PACK_ROWS) * stride + output, 0);
#pragma unroll
                for (int k = 0; k < AHEAD; k++) {
                    if (i + k * PACK_ROWS >= end) continue;
                    typename compute_type<T>::type value[PACK];
                    x[k].widen(value);
                    for (int j = 0; j < PACK; j++) part[j] = f(part[j], (C)value[j]);
                }
            }
            for (int j = 0; j < PACK; j++)
                for (int distance = 16; distance >= PACK_LANES; distance /= 2)
                    part[j] = f(part[j], __shfl_xor_sync(0xFFFFFFFFu, part[j], distance));
            __syncthreads(); /* the chunk before has been read */
            for (int j = 0; threadIdx.x % 32 < PACK_LANES && j < PACK; j++) parts[warp][lane * PACK + j] = part[j];
            __syncthreads();
            if (threadIdx.x < WIDTH) {
                C whole = parts[0][threadIdx.x];
                for (int k = 1; k < WARPS; k++) whole = f(whole, parts[k][threadIdx.x]);
                total = chunk == first ? whole : f(total, whole);
            }
        }
        const int64_t mine = group * WIDTH + threadIdx.x;
        if (threadIdx.x < WIDTH && mine < r.n_outputs) result_put(r, mine, first, total);
    }
}

/* Whether it is such a matrix: outputs side by side in whole packs, rows that begin aligned. */
template <class T> static bool columns_pack(const reduction &r) {
    return r.kept.rank == 1 && r.kept.stride[0][0] == 1 && r.n_outputs % PACK == 0 && r.reduced.rank == 1 &&
           r.n_reduced > 1 && r.reduced.stride[0][0] > 0 && r.reduced.stride[0][0] % PACK == 0 &&
           (uintptr_t)r.x % 16 == 0;
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

static void split_axes(const tl_operand *x, uint32_t axes, reduction *r) {
    axes_split(x, axes, &r->kept, &r->reduced);
    r->n_outputs = r->kept.numel;
    r->n_reduced = r->reduced.numel;
    r->n_chunks = (r->n_reduced + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
}

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
    bool is_done = false;
    if constexpr (L::has_packs)
        if (side_by_side && columns_pack<typename L::element>(r)) {
            const int64_t across = (r.n_outputs + PACK_LANES * PACK - 1) / (PACK_LANES * PACK);
            const dim3 grid(capped(across), two_passes ? (unsigned)r.n_chunks : 1);
            reduce_packs<C, typename L::element, F><<<grid, PACK_LANES * PACK_ROWS, 0, stream>>>(r, f, zero);
            is_done = true;
        }
    if (is_done) {
    } else if (side_by_side) {
        const dim3 grid(capped((r.n_outputs + 31) / 32), two_passes ? (unsigned)r.n_chunks : 1);
        reduce_columns<C, L, F><<<grid, 512, 0, stream>>>(r, f, zero);
    } else if (r.n_reduced <= 512) {
        reduce_warp<C, L, F><<<capped((r.n_outputs + 7) / 8), 256, 0, stream>>>(r, f, zero);
    } else {
        reduce_block<C, L, F><<<capped(groups), 256, 0, stream>>>(r, f, zero);
    }
    if (two_passes) reduce_finish<C, F><<<blocks_for(r.n_outputs), BLOCK, 0, stream>>>(r, out, f, zero);
}

/* W: the type in which floats other than f64 are reduced. zero: neutral for f. */
template <class W, class F> static bool reduce(const tl_kernel_args *args, F f, double zero, int64_t zero_i64) {
    if (!operands_known(args)) return false;
    const tl_operand *x = &args->in[0];
    reduction r;
    split_axes(x, ((const struct attr_reduce *)args->attr)->axes, &r);
    r.x = x->data;
    r.x_dtype = x->dtype;
    r.out_dtype = args->out[0].dtype;
    if (r.n_outputs == 0) return true;
    if (r.n_reduced == 0) r.n_chunks = 0; /* the groups then write `zero` */
    switch (x->dtype) {
    case TL_F64:
        reduce_launch<double, load_typed<double, double>>(args, r, f, zero);
        break;
    case TL_F32:
        reduce_launch<W, load_typed<float, W>>(args, r, f, (W)zero);
        break;
    case TL_BF16:
        reduce_launch<W, load_typed<bf16, W>>(args, r, f, (W)zero);
        break;
    case TL_F16:
        reduce_launch<W, load_typed<f16, W>>(args, r, f, (W)zero);
        break;
    default:
        if (dtype_is_float(x->dtype)) reduce_launch<W, load_any<W>>(args, r, f, (W)zero);
        else reduce_launch<int64_t, load_any<int64_t>>(args, r, f, zero_i64);
        break;
    }
    return true;
}

/* ---- softmax, log_softmax ------------------------------------------------------------------------------ */

/* A block per row; the later reads hit the cache. Maximum, sum of exponentials, then the quotients; or, LOG, the
 * differences (x - max) - log sum. A row of -inf has no softmax. */
template <class T, int U, bool LOG>
__global__ void __launch_bounds__(512) softmax_rows(const T *x, T *y, int64_t n_rows, int64_t n) {
    typedef typename compute_type<T>::type C;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const T *from = x + row * n;
        C top = lowest<C>();
        for (int64_t i = threadIdx.x; i < n / U; i += blockDim.x) {
            const unit<T, U> a = unit_load<U>(from, i);
            for (int j = 0; j < U; j++) top = max_of()(top, value_of<C>(a.v[j]));
        }
        top = block_reduce(top, max_of(), lowest<C>());
        const C shift = LOG && top == lowest<C>() ? C(0) : top;
        C sum = 0;
        for (int64_t i = threadIdx.x; i < n / U; i += blockDim.x) {
            const unit<T, U> a = unit_load<U>(from, i);
            for (int j = 0; j < U; j++) sum += exp_of(value_of<C>(a.v[j]) - shift);
        }
        sum = block_reduce(sum, sum_of(), C(0));
        const C log_sum = LOG ? log_of(sum) : C(0);
        for (int64_t i = threadIdx.x; i < n / U; i += blockDim.x) {
            const unit<T, U> a = unit_load<U>(from, i);
            unit<T, U> b;
            for (int j = 0; j < U; j++) {
                const C d = value_of<C>(a.v[j]) - shift;
                b.v[j] = conversion<T>::from(LOG ? d - log_sum : exp_of(d) / sum);
            }
            unit_store<U>(y + row * n, i, b);
        }
    }
}

/* dx = y (g - sum(g y)); LOG: dx = g - e^y sum(g) */
template <class T, int U, bool LOG>
__global__ void __launch_bounds__(512) softmax_grad_rows(const T *y, const T *g, T *dx, int64_t n_rows, int64_t n) {
    typedef typename compute_type<T>::type C;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const int64_t at = row * n;
        C dot = 0;
        for (int64_t i = threadIdx.x; i < n / U; i += blockDim.x) {
            const unit<T, U> a = unit_load<U>(g + at, i), b = unit_load<U>(y + at, i);
            for (int j = 0; j < U; j++) dot += LOG ? value_of<C>(a.v[j]) : value_of<C>(a.v[j]) * value_of<C>(b.v[j]);
        }
        dot = block_reduce(dot, sum_of(), C(0));
        for (int64_t i = threadIdx.x; i < n / U; i += blockDim.x) {
            const unit<T, U> a = unit_load<U>(g + at, i), b = unit_load<U>(y + at, i);
            unit<T, U> d;
            for (int j = 0; j < U; j++) {
                const C gi = value_of<C>(a.v[j]), yi = value_of<C>(b.v[j]);
                d.v[j] = conversion<T>::from(LOG ? gi - exp_of(yi) * dot : yi * (gi - dot));
            }
            unit_store<U>(dx + at, i, d);
        }
    }
}

template <class T, bool LOG> static void softmax_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    const T *x = (const T *)args->in[0].data;
    T *y = (T *)args->out[0].data;
    const void *const addresses[] = {x, y};
    if (rows_are_packs(n, 2, addresses))
        softmax_rows<T, PACK, LOG><<<capped(n_rows), threads_for_row(n / 2), 0, stream_of(args)>>>(x, y, n_rows, n);
    else softmax_rows<T, 1, LOG><<<capped(n_rows), threads_for_row(n), 0, stream_of(args)>>>(x, y, n_rows, n);
}

template <class T, bool LOG> static void softmax_grad_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    const T *y = (const T *)args->in[0].data, *g = (const T *)args->in[1].data;
    T *dx = (T *)args->out[0].data;
    const void *const addresses[] = {y, g, dx};
    const unsigned blocks = capped(n_rows);
    if (rows_are_packs(n, 3, addresses))
        softmax_grad_rows<T, PACK, LOG><<<blocks, threads_for_row(n / 2), 0, stream_of(args)>>>(y, g, dx, n_rows, n);
    else softmax_grad_rows<T, 1, LOG><<<blocks, threads_for_row(n), 0, stream_of(args)>>>(y, g, dx, n_rows, n);
}

template <class T, bool LOG, bool GRAD> static bool softmax_typed(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const int64_t n = x->rank ? x->shape[x->rank - 1] : 1, n_rows = operand_numel(x) / n;
    if (GRAD) softmax_grad_launch<T, LOG>(args, n_rows, n);
    else softmax_launch<T, LOG>(args, n_rows, n);
    return true;
}

/* All operands have one dtype. */
template <bool LOG, bool GRAD> static bool softmax(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    if (operand_numel(x) == 0) return true;
    if (args->out[0].dtype != x->dtype) return cuda_refuse_dtype(args, args->out[0].dtype);
    if (GRAD && args->in[1].dtype != x->dtype) return cuda_refuse_dtype(args, args->in[1].dtype);
    switch (x->dtype) {
    case TL_F64:
        return softmax_typed<double, LOG, GRAD>(args);
    case TL_F32:
        return softmax_typed<float, LOG, GRAD>(args);
    case TL_BF16:
        return softmax_typed<bf16, LOG, GRAD>(args);
    case TL_F16:
        return softmax_typed<f16, LOG, GRAD>(args);
    default:
        return cuda_refuse_dtype(args, x->dtype);
    }
}

extern "C" {

bool cuda_sum(const tl_kernel_args *args) { return reduce<float>(args, sum_of(), 0, 0); }
bool cuda_max(const tl_kernel_args *args) { return reduce<float>(args, max_of(), -INFINITY, INT64_MIN); }
bool cuda_min(const tl_kernel_args *args) { return reduce<float>(args, min_of(), INFINITY, INT64_MAX); }
/* Of floats in f64, rounded once. */
bool cuda_prod(const tl_kernel_args *args) { return reduce<double>(args, product_of(), 1, 1); }

bool cuda_softmax(const tl_kernel_args *args) { return softmax<false, false>(args); }
bool cuda_softmax_grad(const tl_kernel_args *args) { return softmax<false, true>(args); }
bool cuda_log_softmax(const tl_kernel_args *args) { return softmax<true, false>(args); }
bool cuda_log_softmax_grad(const tl_kernel_args *args) { return softmax<true, true>(args); }

} /* extern "C" */
