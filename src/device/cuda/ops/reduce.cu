/* reduce.cu: sum, product, largest and smallest over any axes.
 *
 * Sums and the like. The elements that make one output are cut, in row-major order, into chunks: REDUCE_CHUNK elements,
 * or as many times that as leave enough groups. Pass one reduces each (output, chunk) by a group of threads in a fixed
 * tree; pass two joins the chunk results, few of them in order, many by a warp. No atomics: the result depends on the
 * shape alone. There are three shapes of groups, depending on which axis is contiguous:
 *   block     256 or 1024 threads along the reduced elements: few, long reductions
 *   warp      32 threads likewise: short ones
 *   columns   8 to 32 outputs side by side times 512 threads in all: the output's axis is the dense one (bias
 *             gradients); 8 packs of outputs times 64 threads where rows are aligned, or 2 times 256, or 1 times 512,
 *             where there would be few blocks
 * The workspace is one 8-byte slot per (output, chunk), output-major. With one chunk there is only one pass.
 */
#include "device/cuda/shared/line_pack.cuh"

/* Where the elements are: outputs along `kept`, elements of one output along `reduced`. */
struct reduction {
    const void *x;
    void *out;   /* dense, or NULL: write slots */
    void *slots; /* (n_outputs, n_chunks) of C, 8 bytes apart */
    tl_dtype x_dtype, out_dtype;
    int64_t n_outputs, n_reduced;
    int64_t chunk, n_chunks; /* elements of a chunk, chunks of an output */
    bool is_mean;            /* outputs are divided by n_reduced */
    geometry<1> kept, reduced;
};

template <class C> __device__ inline C *slot_at(const reduction &r, int64_t output, int64_t chunk) {
    return (C *)((char *)r.slots + 8 * (output * r.n_chunks + chunk));
}

template <class C> __device__ inline void output_put(const reduction &r, void *out, int64_t output, C value) {
    store_as<C>(out, output, r.out_dtype, r.is_mean ? value / (C)r.n_reduced : value);
}
template <class C> __device__ inline void result_put(const reduction &r, int64_t output, int64_t chunk, C value) {
    if (r.out) output_put<C>(r, r.out, output, value);
    else *slot_at<C>(r, output, chunk) = value;
}

/* Reading element i of x: a known type, or one looked up (integers and 8-bit floats, whose sums are rare). */
template <class T, class C> struct load_typed {
    typedef T element;
    static const bool has_packs = sizeof(T) <= 4;
    static __device__ C at(const reduction &r, int64_t i) { return value_of<C>(((const T *)r.x)[i]); }
};
struct load_truth {
    typedef bool element;
    static const bool has_packs = false;
    static __device__ int64_t at(const reduction &r, int64_t i) { return ((const uint8_t *)r.x)[i] != 0; }
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

enum { READ_AHEAD = 8 };

/* One thread's part of a chunk, of a group of n: elements thread, thread + n, ... READ_AHEAD of them are loaded before
 * the first is added; behind the end they are the last one, so that no load waits for a branch. */
template <class C, class L, class F>
__device__ inline C chunk_part(const reduction &r, int64_t base, int64_t chunk, int thread, int n, F f, C zero) {
    const int64_t end = min(r.n_reduced, (chunk + 1) * r.chunk), stride = r.reduced.stride[0][0];
    int64_t i = chunk * r.chunk + thread;
    C part = zero;
    for (; r.reduced.rank == 1 && i < end; i += READ_AHEAD * n) {
        C x[READ_AHEAD];
#pragma unroll
        for (int k = 0; k < READ_AHEAD; k++) x[k] = L::at(r, base + min(i + k * n, end - 1) * stride);
#pragma unroll
        for (int k = 0; k < READ_AHEAD; k++)
            if (i + k * n < end) part = f(part, x[k]);
    }
    for (; i < end; i += n) part = f(part, L::at(r, base + reduced_offset(r, i)));
    return part;
}

/* The same of a dense line, in packs. */
template <class C, class T, class F>
__device__ inline C chunk_packs(const reduction &r, const T *line, int64_t chunk, int thread, int n, F f, C zero) {
    const T *const from = line + chunk * r.chunk;
    C part = zero;
    line_each(from, min(r.n_reduced - chunk * r.chunk, r.chunk), thread, n, [&](const line_pack<T> &x) {
        x.template each<C>(from, [&](C value, int64_t) { part = f(part, value); });
    });
    return part;
}

/* A thread's part of a chunk, of a group of n. */
template <class C, class L, class F>
__device__ inline C part_of(const reduction &r, int64_t base, int64_t chunk, int thread, int n, F f, C zero) {
    if constexpr (L::has_packs)
        if (r.reduced.rank == 1 && r.reduced.stride[0][0] == 1)
            return chunk_packs<C, typename L::element>(r, (const typename L::element *)r.x + base, chunk, thread, n, f,
                                                       zero);
    return chunk_part<C, L>(r, base, chunk, thread, n, f, zero);
}

template <class C, class L, class F> __global__ void __launch_bounds__(1024) reduce_block(reduction r, F f, C zero) {
    for (int64_t group = blockIdx.x; group < r.n_outputs * r.n_chunks; group += gridDim.x) {
        const int64_t output = group / r.n_chunks, chunk = group % r.n_chunks, base = kept_offset(r, output);
        const C part = part_of<C, L>(r, base, chunk, threadIdx.x, blockDim.x, f, zero);
        const C whole = block_reduce(part, f, zero);
        if (threadIdx.x == 0) result_put(r, output, chunk, whole);
    }
}

/* Short reductions (one chunk): a warp each. */
template <class C, class L, class F> __global__ void __launch_bounds__(256) reduce_warp(reduction r, F f, C zero) {
    const int64_t step = (int64_t)gridDim.x * 8;
    for (int64_t output = blockIdx.x * 8 + threadIdx.x / 32; output < r.n_outputs; output += step) {
        const C part = part_of<C, L>(r, kept_offset(r, output), 0, threadIdx.x % 32, 32, f, zero);
        const C whole = warp_reduce(part, f);
        if (threadIdx.x % 32 == 0) result_put(r, output, 0, whole);
    }
}

enum { COLUMN_THREADS = 512, LEAST_WIDTH = 8 };

/* `width` neighbouring outputs, and as many rows of threads as that leaves; blockIdx.y counts chunks. */
template <class C, class L, class F>
__global__ void __launch_bounds__(COLUMN_THREADS) reduce_columns(reduction r, int width, F f, C zero) {
    __shared__ C parts[COLUMN_THREADS + COLUMN_THREADS / LEAST_WIDTH];
    const int lane = threadIdx.x % width, row = threadIdx.x / width, n_rows = COLUMN_THREADS / width;
    C *const mine = parts + row * (width + 1) + lane;
    for (int64_t group = blockIdx.x; group * width < r.n_outputs; group += gridDim.x) {
        const int64_t output = group * width + lane;
        const bool is_there = output < r.n_outputs;
        const int64_t base = is_there ? kept_offset(r, output) : 0;
        *mine = is_there ? chunk_part<C, L>(r, base, blockIdx.y, row, n_rows, f, zero) : zero;
        __syncthreads();
        for (int half = n_rows / 2; half > 0; half /= 2) {
            if (row < half) *mine = f(*mine, mine[half * (width + 1)]);
            __syncthreads();
        }
        if (row == 0 && is_there) result_put(r, output, blockIdx.y, *mine);
        __syncthreads();
    }
}

enum { PACK_THREADS = 512, PACK_LANES = 8, AHEAD = 4 };

/* A dense matrix over its rows: a thread has a pack of outputs and every PACK_ROWS-th row of the chunk, and loads
 * AHEAD rows before it adds the first; LANES threads read neighbouring packs of a row. So a narrow matrix, too, gives
 * every multiprocessor work. The rows of a warp are joined by shuffles, the warps in order. */
template <class C, class T, class F, int LANES>
__global__ void __launch_bounds__(PACK_THREADS) reduce_packs(reduction r, F f, C zero) {
    enum { PACK_LANES = LANES, PACK_ROWS = PACK_THREADS / LANES };
    const int WARPS = PACK_THREADS / 32, WIDTH = PACK_LANES * PACK;
    __shared__ C parts[WARPS][WIDTH];
    const int lane = threadIdx.x % PACK_LANES, row = threadIdx.x / PACK_LANES, warp = threadIdx.x / 32;
    const int64_t stride = r.reduced.stride[0][0], end = min(r.n_reduced, (blockIdx.y + 1) * r.chunk);
    if (!r.out) next_begin(); /* reduce_finish, which waits */
    for (int64_t group = blockIdx.x; group * WIDTH < r.n_outputs; group += gridDim.x) {
        const int64_t output = group * WIDTH + lane * PACK; /* this thread's first */
        const bool is_there = output < r.n_outputs;
        C part[PACK];
        for (int j = 0; j < PACK; j++) part[j] = zero;
        for (int64_t i = blockIdx.y * r.chunk + row; is_there && i < end; i += PACK_ROWS * AHEAD) {
            row_pack<T> x[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (i + k * PACK_ROWS < end) x[k] = row_load((const T *)r.x + (i + k * PACK_ROWS) * stride + output, 0);
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
        __syncthreads(); /* the group before has been read */
        for (int j = 0; threadIdx.x % 32 < PACK_LANES && j < PACK; j++) parts[warp][lane * PACK + j] = part[j];
        __syncthreads();
        const int64_t mine = group * WIDTH + threadIdx.x;
        if ((int)threadIdx.x >= WIDTH || mine >= r.n_outputs) continue;
        C whole = parts[0][threadIdx.x];
        for (int k = 1; k < WARPS; k++) whole = f(whole, parts[k][threadIdx.x]);
        result_put(r, mine, blockIdx.y, whole);
    }
}

/* Whether it is such a matrix: outputs side by side in whole packs, rows that begin aligned. */
template <class T> static bool columns_pack(const reduction &r) {
    return r.kept.rank == 1 && r.kept.stride[0][0] == 1 && r.n_outputs % PACK == 0 && r.reduced.rank == 1 &&
           r.n_reduced > 1 && r.reduced.stride[0][0] > 0 && r.reduced.stride[0][0] % PACK == 0 &&
           (uintptr_t)r.x % 16 == 0;
}

enum { IN_ORDER = 16 }; /* chunk results that one thread joins */

/* Pass two: the chunk results of an output, by one thread in order or by a warp. */
template <class C, class F>
__global__ void __launch_bounds__(BLOCK) reduce_finish(reduction r, void *out, F f, C zero) {
    front_wait();
    FOR_EACH(output, r.n_outputs) {
        C total = *slot_at<C>(r, output, 0);
#pragma unroll 4
        for (int64_t chunk = 1; chunk < r.n_chunks; chunk++) total = f(total, *slot_at<C>(r, output, chunk));
        output_put<C>(r, out, output, total);
    }
}

template <class C, class F>
__global__ void __launch_bounds__(BLOCK) reduce_finish_warp(reduction r, void *out, F f, C zero) {
    const int64_t step = (int64_t)gridDim.x * (BLOCK / 32);
    front_wait();
    for (int64_t output = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; output < r.n_outputs; output += step) {
        C part = zero;
#pragma unroll 8
        for (int64_t chunk = threadIdx.x % 32; chunk < r.n_chunks; chunk += 32)
            part = f(part, *slot_at<C>(r, output, chunk));
        part = warp_reduce(part, f);
        if (threadIdx.x % 32 == 0) output_put<C>(r, out, output, part);
    }
}

static void split_axes(const tl_operand *x, uint32_t axes, reduction *r) {
    axes_split(x, axes, &r->kept, &r->reduced);
    r->n_outputs = r->kept.numel;
    r->n_reduced = r->reduced.numel;
}

/* How many blocks a reduction is cut into, if it is long enough: eight for each of 132 multiprocessors. The same on
 * every card, so that the bits are. */
enum { GROUPS_WANTED = 1056, FEW_GROUPS = 264, ONE_BLOCK = 32768 /* elements that a block takes alone */ };

/* Cuts every output into chunks, of which `n_across` groups take one each. */
static void cut_chunks(reduction *r, const tl_kernel_args *args, int64_t n_across) {
    const int64_t most = (r->n_reduced + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    const int64_t want = (GROUPS_WANTED + n_across - 1) / n_across, n = want < most ? want : most;
    const bool has_slots = args->workspace && args->workspace_bytes >= (size_t)(r->n_outputs * most * 8);
    const int64_t each = n > 1 && has_slots ? (most + n - 1) / n : most;
    r->chunk = each * REDUCE_CHUNK;
    r->n_chunks = each > 0 ? (most + each - 1) / each : 1; /* of no elements: one, which is `zero` */
    r->out = r->n_chunks > 1 ? nullptr : args->out[0].data;
    r->slots = r->n_chunks > 1 ? args->workspace : nullptr;
}

/* Outputs that a block of reduce_columns has side by side: fewer where there would be few blocks. */
static int column_width(const reduction &r) {
    const int64_t n_chunks = (r.n_reduced + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    int width = 32;
    while (width > LEAST_WIDTH && (r.n_outputs + width - 1) / width * n_chunks < FEW_GROUPS) width /= 2;
    return width;
}

template <class C, class T, class F, int LANES>
static void packs_launch(const tl_kernel_args *args, reduction *r, F f, C zero) {
    const int64_t across = (r->n_outputs + LANES * PACK - 1) / (LANES * PACK);
    cut_chunks(r, args, across);
    const dim3 grid(capped(across), (unsigned)r->n_chunks);
    reduce_packs<C, T, F, LANES><<<grid, PACK_THREADS, 0, stream_of(args)>>>(*r, f, zero);
}

/* Whether blocks of so many packs side by side, one for each chunk, leave multiprocessors without work. */
static bool packs_are_few(const reduction &r, int lanes) {
    const int64_t n_chunks = (r.n_reduced + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    return (r.n_outputs + lanes * PACK - 1) / (lanes * PACK) * n_chunks < FEW_GROUPS / 2;
}

template <class C, class F> static void finish_launch(const tl_kernel_args *args, const reduction &r, F f, C zero) {
    static const bool is_early = waits_for_front(reduce_finish<C, F>),
                      is_early_warp = waits_for_front(reduce_finish_warp<C, F>);
    void *const out = args->out[0].data;
    if (r.n_chunks > IN_ORDER)
        launch_early(args, reduce_finish_warp<C, F>, is_early_warp, blocks_for(r.n_outputs, BLOCK / 32), BLOCK, 0, r,
                     out, f, zero);
    else if (r.n_chunks > 1)
        launch_early(args, reduce_finish<C, F>, is_early, blocks_for(r.n_outputs), BLOCK, 0, r, out, f, zero);
}

template <class C, class L, class F> static void reduce_launch(const tl_kernel_args *args, reduction r, F f, C zero) {
    const cudaStream_t stream = stream_of(args);
    const int64_t kept_inner = r.kept.stride[0][r.kept.rank - 1],
                  reduced_inner = r.reduced.stride[0][r.reduced.rank - 1];
    const bool side_by_side =
        kept_inner == 1 && reduced_inner != 1 && r.kept.size[r.kept.rank - 1] >= LEAST_WIDTH && r.n_reduced > 1;
    bool packs = false;
    if constexpr (L::has_packs) packs = side_by_side && columns_pack<typename L::element>(r);
    if (packs) {
        if constexpr (L::has_packs) {
            if (packs_are_few(r, 2)) packs_launch<C, typename L::element, F, 1>(args, &r, f, zero);
            else if (packs_are_few(r, PACK_LANES)) packs_launch<C, typename L::element, F, 2>(args, &r, f, zero);
            else packs_launch<C, typename L::element, F, PACK_LANES>(args, &r, f, zero);
        }
    } else if (side_by_side) {
        const int width = column_width(r);
        const int64_t across = (r.n_outputs + width - 1) / width;
        cut_chunks(&r, args, across);
        const dim3 grid(capped(across), (unsigned)r.n_chunks);
        reduce_columns<C, L, F><<<grid, COLUMN_THREADS, 0, stream>>>(r, width, f, zero);
    } else if (r.n_reduced <= (r.n_outputs < GROUPS_WANTED ? 512 : REDUCE_CHUNK)) {
        cut_chunks(&r, args, r.n_outputs);
        reduce_warp<C, L, F><<<capped((r.n_outputs + 7) / 8), 256, 0, stream>>>(r, f, zero);
    } else {
        const bool is_alone = r.n_reduced <= ONE_BLOCK;
        cut_chunks(&r, args, is_alone ? (int64_t)GROUPS_WANTED : r.n_outputs);
        const int threads = is_alone && r.n_reduced > REDUCE_CHUNK && r.n_outputs < FEW_GROUPS ? 1024 : 256;
        reduce_block<C, L, F><<<capped(r.n_outputs * r.n_chunks), threads, 0, stream>>>(r, f, zero);
    }
    finish_launch(args, r, f, zero);
}

/* W: the type in which floats other than f64 are reduced. zero: neutral for f. */
template <class W, class F> static bool reduce(const tl_kernel_args *args, F f, double zero, int64_t zero_i64) {
    if (!operands_known(args)) return false;
    const tl_operand *x = &args->in[0];
    reduction r;
    const struct attr_reduce *attr = (const struct attr_reduce *)args->attr;
    split_axes(x, attr->axes, &r);
    r.is_mean = attr->is_mean;
    r.x = x->data;
    r.x_dtype = x->dtype;
    r.out_dtype = args->out[0].dtype;
    if (r.n_outputs == 0) return true;
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
    case TL_BOOL:
        reduce_launch<int64_t, load_truth>(args, r, f, zero_i64);
        break;
    case TL_I64:
        reduce_launch<int64_t, load_typed<int64_t, int64_t>>(args, r, f, zero_i64);
        break;
    default:
        if (dtype_is_float(x->dtype)) reduce_launch<W, load_any<W>>(args, r, f, (W)zero);
        else reduce_launch<int64_t, load_any<int64_t>>(args, r, f, zero_i64);
        break;
    }
    return true;
}

extern "C" {

bool cuda_sum(const tl_kernel_args *args) { return reduce<float>(args, sum_of(), 0, 0); }
bool cuda_max(const tl_kernel_args *args) { return reduce<float>(args, max_of(), -INFINITY, INT64_MIN); }
bool cuda_min(const tl_kernel_args *args) { return reduce<float>(args, min_of(), INFINITY, INT64_MAX); }
/* Of floats in f64, rounded once. */
bool cuda_prod(const tl_kernel_args *args) { return reduce<double>(args, product_of(), 1, 1); }

} /* extern "C" */
