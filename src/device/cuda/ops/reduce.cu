/* reduce.cu: sum, product, largest and smallest over any axes, and the gradient of the latter two.
 *
 * Sums and the like. The elements that make one output are cut, in row-major order, into chunks: REDUCE_CHUNK elements,
 * or as many times that as leave enough groups. Pass one reduces each (output, chunk) by a group of threads in a fixed
 * tree; pass two joins the chunk results, few of them in order, many by a warp. No atomics: the result depends on the
 * shape alone. There are three shapes of groups, depending on which axis is contiguous:
 *   block     256 or 1024 threads along the reduced elements: few, long reductions
 *   warp      32 threads likewise, or 8: short ones
 *   columns   8 to 32 outputs side by side times 512 threads in all: the output's axis is the dense one (bias
 *             gradients); 8 packs of outputs times 64 threads where all are evenly apart, or fewer packs times more
 *             threads, where there would be few blocks. Rows that are not aligned are cut into even chunks, of down to
 *             half as many elements
 * The workspace is one slot per (output, chunk), output-major: it has 8 bytes for every REDUCE_CHUNK elements. With one
 * chunk there is only one pass.
 */
#include "device/cuda/shared/line_pack.cuh"

/* Where the elements are: outputs along `kept`, elements of one output along `reduced`. */
struct reduction {
    const void *x;
    void *out;   /* dense, or NULL: write slots */
    void *slots; /* (n_outputs, n_chunks) of C */
    tl_dtype x_dtype, out_dtype;
    int64_t n_outputs, n_reduced;
    int64_t chunk, n_chunks; /* elements of a chunk, chunks of an output */
    bool is_mean;            /* outputs are divided by n_reduced */
    geometry<1> kept, reduced;
};

template <class C> __device__ inline C *slot_at(const reduction &r, int64_t output, int64_t chunk) {
    return (C *)r.slots + output * r.n_chunks + chunk;
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

/* What elements are added with, where that depends on the output: a count of those that are equal to `extreme`, which
 * has the shape of the outputs. Counts are joined as sums are. */
struct ties_of {
    const void *extreme;
    template <class C> __device__ C operator()(C a, C b) const { return a + b; }
};
template <class C> struct ties_step {
    C extreme;
    __device__ C operator()(C count, C x) const { return x == extreme ? count + C(1) : count; }
};
template <class C, class F> __device__ inline F step_of(const F &f, const reduction &, int64_t) { return f; }
template <class C> __device__ inline ties_step<C> step_of(const ties_of &f, const reduction &r, int64_t output) {
    return {load_as<C>(f.extreme, output, r.x_dtype)};
}

enum { READ_AHEAD = 8 };

/* One thread's part of a chunk, of a group of n: elements thread, thread + n, ... READ_AHEAD of them are loaded before
 * the first is added; behind the end they are the last one, so that no load waits for a branch. f: step_of. */
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
        const auto step = step_of<C>(f, r, output);
        const C part = part_of<C, L>(r, base, chunk, threadIdx.x, blockDim.x, step, zero);
        const C whole = block_reduce(part, f, zero);
        if (threadIdx.x == 0) result_put(r, output, chunk, whole);
    }
}

/* Short reductions (one chunk): a warp each, or a part of one. */
template <class C, class L, class F, int LANES>
__global__ void __launch_bounds__(256) reduce_warp(reduction r, F f, C zero) {
    enum { SIDE_BY_SIDE = 32 / LANES };
    const int64_t step = (int64_t)gridDim.x * (8 * SIDE_BY_SIDE);
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / LANES, lane = threadIdx.x % LANES;
    for (int64_t first = (blockIdx.x * (int64_t)8 + warp) * SIDE_BY_SIDE; first < r.n_outputs; first += step) {
        const int64_t output = first + group;
        const bool is_there = output < r.n_outputs;
        C whole = zero;
        if (is_there) whole = part_of<C, L>(r, kept_offset(r, output), 0, lane, LANES, step_of<C>(f, r, output), zero);
        for (int distance = LANES / 2; distance > 0; distance /= 2)
            whole = f(whole, __shfl_xor_sync(0xFFFFFFFFu, whole, distance));
        if (is_there && lane == 0) result_put(r, output, 0, whole);
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
        *mine = zero;
        if (is_there) {
            const auto step = step_of<C>(f, r, output);
            *mine = chunk_part<C, L>(r, kept_offset(r, output), blockIdx.y, row, n_rows, step, zero);
        }
        __syncthreads();
        for (int half = n_rows / 2; half > 0; half /= 2) {
            if (row < half) *mine = f(*mine, mine[half * (width + 1)]);
            __syncthreads();
        }
        if (row == 0 && is_there) result_put(r, output, blockIdx.y, *mine);
        __syncthreads();
    }
}

/* Eight elements of a dense row from `first` on, which is a multiple of 16 bytes in memory and may be negative. What
 * is not the row's is read with it, as in line_pack, but nothing where a whole 16 bytes are not. */
template <class T> __device__ inline row_pack<T> row_load_shifted(const T *row, int64_t first, int64_t n) {
    enum { N = 16 / sizeof(T) };
    row_pack<T> p;
#pragma unroll
    for (int k = 0; k < PACK / N; k++)
        if (first + k * N > -N && first + k * N < n) ((uint4 *)&p)[k] = *(const uint4 *)(row + first + k * N);
    return p;
}

enum { PACK_THREADS = 512, PACK_LANES = 8, AHEAD = 4 };

/* A dense matrix over its rows: a thread has a pack of outputs and every so many rows of the chunk, and loads AHEAD
 * rows before it adds the first; LANES threads read neighbouring packs of a row. So a narrow matrix, too, gives
 * every multiprocessor work. The rows of a warp are joined by shuffles, the warps in order.
 *
 * SHIFTED: rows are not aligned. Those of a warp are a multiple of 8 apart, and so all begin at the same place of 16
 * bytes. Threads take aligned packs, which are that much to the left; a block reads a pack more than it writes, and
 * warps are joined with each at its place. */
template <class C, class T, class F, int LANES, bool SHIFTED>
__global__ void __launch_bounds__(PACK_THREADS) reduce_packs(reduction r, F f, C zero) {
    enum { ROWS = PACK_THREADS / LANES, WARPS = PACK_THREADS / 32, TILE = (SHIFTED ? LANES - 1 : LANES) * PACK };
    __shared__ C parts[WARPS][TILE];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / 32, row = warp + WARPS * (threadIdx.x % 32 / LANES);
    const int64_t stride = r.reduced.stride[0][0], end = min(r.n_reduced, (blockIdx.y + 1) * r.chunk);
    const T *const x = (const T *)r.x;
    const int shift = SHIFTED ? (int)((uintptr_t)(x + row * stride) % 16 / sizeof(T)) : 0;
    if (!r.out) next_begin(); /* reduce_finish, which waits */
    for (int64_t group = blockIdx.x; group * TILE < r.n_outputs; group += gridDim.x) {
        const int64_t first = group * TILE + lane * PACK - shift; /* this thread's outputs */
        const bool is_there = first < r.n_outputs;
        decltype(step_of<C>(f, r, first)) step[PACK];
        C part[PACK];
        for (int j = 0; j < PACK; j++) {
            step[j] = step_of<C>(f, r, max(min(first + j, r.n_outputs - 1), (int64_t)0));
            part[j] = zero;
        }
        for (int64_t i = blockIdx.y * r.chunk + row; is_there && i < end; i += ROWS * AHEAD) {
            row_pack<T> packs[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if (i + k * ROWS >= end) continue;
                const T *const from = x + (i + k * ROWS) * stride;
                packs[k] = SHIFTED ? row_load_shifted(from, first, r.n_outputs) : row_load(from + first, 0);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if (i + k * ROWS >= end) continue;
                typename compute_type<T>::type value[PACK];
                packs[k].widen(value);
                for (int j = 0; j < PACK; j++) part[j] = step[j](part[j], (C)value[j]);
            }
        }
        for (int j = 0; j < PACK; j++)
            for (int distance = 16; distance >= LANES; distance /= 2)
                part[j] = f(part[j], __shfl_xor_sync(0xFFFFFFFFu, part[j], distance));
        __syncthreads(); /* the group before has been read */
        for (int j = 0; threadIdx.x % 32 < LANES && j < PACK; j++) {
            const int place = lane * PACK + j - shift;
            if (!SHIFTED || (place >= 0 && place < TILE)) parts[warp][place] = part[j];
        }
        __syncthreads();
        const int64_t mine = group * TILE + threadIdx.x;
        if ((int)threadIdx.x >= TILE || mine >= r.n_outputs) continue;
        C whole = parts[0][threadIdx.x];
        for (int k = 1; k < WARPS; k++) whole = f(whole, parts[k][threadIdx.x]);
        result_put(r, mine, blockIdx.y, whole);
    }
}

/* Whether it is such a matrix: outputs side by side; and whether they are whole packs, in rows that begin aligned. */
static bool columns_are_dense(const reduction &r) {
    return r.kept.rank == 1 && r.kept.stride[0][0] == 1 && r.reduced.rank == 1 && r.n_reduced > 1 &&
           r.reduced.stride[0][0] > 0;
}
static bool columns_pack(const reduction &r) {
    return r.n_outputs % PACK == 0 && r.reduced.stride[0][0] % PACK == 0 && (uintptr_t)r.x % 16 == 0;
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
enum { SMALL_BYTES = 384 }; /* of a line that 8 threads take: 4 packs each, of which lines may share one */

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

/* The same of a matrix whose rows are not aligned, where few packs side by side cost most, and many chunks spare them:
 * as many as there are slots of C in 8 bytes for each REDUCE_CHUNK, all of nearly the same length. That is a multiple
 * of EVEN_ROWS, so that a thread's rows begin at one place of a pack in all chunks. */
enum { EVEN_ROWS = 64 };
template <class C> static int64_t even_chunks_most(int64_t n_reduced) {
    const int64_t least = REDUCE_CHUNK * (int64_t)sizeof(C) / 8;
    return n_reduced <= REDUCE_CHUNK ? 1 : (n_reduced + least - 1) / least;
}
template <class C> static void cut_even_chunks(reduction *r, const tl_kernel_args *args, int64_t n_across) {
    const int64_t most = even_chunks_most<C>(r->n_reduced), want = (GROUPS_WANTED + n_across - 1) / n_across;
    const bool has_slots = args->workspace && args->workspace_bytes >= (size_t)(r->n_outputs * most) * sizeof(C);
    const int64_t n = !has_slots ? 1 : want < most ? want : most, each = (r->n_reduced + n - 1) / n;
    r->chunk = (each + EVEN_ROWS - 1) / EVEN_ROWS * EVEN_ROWS;
    r->n_chunks = (r->n_reduced + r->chunk - 1) / r->chunk;
    r->out = r->n_chunks > 1 ? nullptr : args->out[0].data;
    r->slots = r->n_chunks > 1 ? args->workspace : nullptr;
}

/* Blocks of so many packs side by side. */
template <bool SHIFTED> static int64_t packs_across(const reduction &r, int lanes) {
    const int64_t tile = (SHIFTED ? lanes - 1 : lanes) * PACK;
    return (r.n_outputs + tile - 1) / tile;
}

template <class C, class T, class F, int LANES, bool SHIFTED>
static void packs_of(const tl_kernel_args *args, reduction *r, F f, C zero) {
    const int64_t across = packs_across<SHIFTED>(*r, LANES);
    if constexpr (SHIFTED) cut_even_chunks<C>(r, args, across);
    else cut_chunks(r, args, across);
    const dim3 grid(capped(across), (unsigned)r->n_chunks);
    reduce_packs<C, T, F, LANES, SHIFTED><<<grid, PACK_THREADS, 0, stream_of(args)>>>(*r, f, zero);
}

/* Whether such blocks, one for each chunk, leave multiprocessors without work. Of rows that are not aligned a block
 * reads a pack more than it sums, which is the more of what it reads the narrower it is: some may be without. */
enum { FEW_ALIGNED = FEW_GROUPS / 2, FEW_SHIFTED = 96 };
template <class C, bool SHIFTED> static bool packs_are_few(const reduction &r, int lanes) {
    const int64_t n_chunks =
        SHIFTED ? even_chunks_most<C>(r.n_reduced) : (r.n_reduced + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    return packs_across<SHIFTED>(r, lanes) * n_chunks < (SHIFTED ? FEW_SHIFTED : FEW_ALIGNED);
}

template <class C, class T, class F, bool SHIFTED>
static void packs_launch(const tl_kernel_args *args, reduction *r, F f, C zero) {
    const bool is_narrow = r->n_outputs <= 2 * PACK;
    if constexpr (!SHIFTED)
        if (packs_are_few<C, SHIFTED>(*r, 2)) return packs_of<C, T, F, 1, SHIFTED>(args, r, f, zero);
    if (!is_narrow && !packs_are_few<C, SHIFTED>(*r, PACK_LANES))
        return packs_of<C, T, F, PACK_LANES, SHIFTED>(args, r, f, zero);
    if constexpr (SHIFTED)
        if (!is_narrow && !packs_are_few<C, SHIFTED>(*r, 4)) return packs_of<C, T, F, 4, SHIFTED>(args, r, f, zero);
    packs_of<C, T, F, 2, SHIFTED>(args, r, f, zero);
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
    const bool packs = L::has_packs && side_by_side && columns_are_dense(r);
    if (packs) {
        if constexpr (L::has_packs) {
            typedef typename L::element T;
            if (columns_pack(r)) packs_launch<C, T, F, false>(args, &r, f, zero);
            else packs_launch<C, T, F, true>(args, &r, f, zero);
        }
    } else if (side_by_side) {
        const int width = column_width(r);
        const int64_t across = (r.n_outputs + width - 1) / width;
        cut_chunks(&r, args, across);
        const dim3 grid(capped(across), (unsigned)r.n_chunks);
        reduce_columns<C, L, F><<<grid, COLUMN_THREADS, 0, stream>>>(r, width, f, zero);
    } else if (r.n_reduced <= (r.n_outputs < GROUPS_WANTED ? 512 : REDUCE_CHUNK)) {
        const bool is_small = r.n_reduced * (int64_t)sizeof(typename L::element) <= SMALL_BYTES;
        cut_chunks(&r, args, r.n_outputs);
        if (is_small) reduce_warp<C, L, F, 8><<<capped((r.n_outputs + 31) / 32), 256, 0, stream>>>(r, f, zero);
        else reduce_warp<C, L, F, 32><<<capped((r.n_outputs + 7) / 8), 256, 0, stream>>>(r, f, zero);
    } else {
        const bool is_alone = r.n_reduced <= ONE_BLOCK;
        cut_chunks(&r, args, is_alone ? (int64_t)GROUPS_WANTED : r.n_outputs);
        const int threads = is_alone && r.n_reduced > REDUCE_CHUNK && r.n_outputs < FEW_GROUPS ? 1024 : 256;
        reduce_block<C, L, F><<<capped(r.n_outputs * r.n_chunks), threads, 0, stream>>>(r, f, zero);
    }
    finish_launch(args, r, f, zero);
}

static reduction reduction_of(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const struct attr_reduce *attr = (const struct attr_reduce *)args->attr;
    reduction r;
    split_axes(x, attr->axes, &r);
    r.is_mean = attr->is_mean;
    r.x = x->data;
    r.x_dtype = x->dtype;
    r.out_dtype = args->out[0].dtype;
    return r;
}

/* W: the type in which floats other than f64 are reduced. zero: neutral for f. */
template <class W, class F> static void reduce_floats(const tl_kernel_args *args, F f, double zero) {
    const reduction r = reduction_of(args);
    if (r.n_outputs == 0) return;
    if (r.x_dtype == TL_F64) reduce_launch<double, load_typed<double, double>>(args, r, f, zero);
    else if (r.x_dtype == TL_F32) reduce_launch<W, load_typed<float, W>>(args, r, f, (W)zero);
    else if (r.x_dtype == TL_BF16) reduce_launch<W, load_typed<bf16, W>>(args, r, f, (W)zero);
    else if (r.x_dtype == TL_F16) reduce_launch<W, load_typed<f16, W>>(args, r, f, (W)zero);
    else reduce_launch<W, load_any<W>>(args, r, f, (W)zero);
}

template <class W, class F> static bool reduce(const tl_kernel_args *args, F f, double zero, int64_t zero_i64) {
    if (!operands_known(args)) return false;
    const reduction r = reduction_of(args);
    if (dtype_is_float(r.x_dtype)) reduce_floats<W>(args, f, zero);
    else if (r.n_outputs == 0) return true;
    else if (r.x_dtype == TL_BOOL) reduce_launch<int64_t, load_truth>(args, r, f, zero_i64);
    else if (r.x_dtype == TL_I64) reduce_launch<int64_t, load_typed<int64_t, int64_t>>(args, r, f, zero_i64);
    else reduce_launch<int64_t, load_any<int64_t>>(args, r, f, zero_i64);
    return true;
}

/* ---- The gradient of the largest and the smallest ---------------------------------------------------------
 *
 * The elements of x that are equal to an output are counted, as sums are taken; then each gets its share:
 *   dx = (x == y ? 1 : 0) / count g,  of which there are two values for each output
 */
template <class C> struct share_of {
    C extreme, of_tie, of_other;
    __device__ C operator()(C x) const { return x == extreme ? of_tie : of_other; }
};
struct sharing {
    const void *x, *y, *g, *counts;
    void *dx;
    tl_dtype dtype;
    template <class C> __device__ share_of<C> share(int64_t output) const {
        const C count = ((const C *)counts)[output], grad = load_as<C>(g, output, dtype);
        return {load_as<C>(y, output, dtype), C(1) / count * grad, C(0) / count * grad};
    }
};

/* A thread has the pack `window` of SHARE_ROWS rows, which are n_classes apart, so that all of them begin at one place
 * of a pack; dx begins where x does. */
enum { SHARE_ROWS = 16 };
struct column_windows {
    int64_t n_rows, n, n_windows, n_classes;
};
template <class T> static column_windows column_windows_of(int64_t n_rows, int64_t n) {
    const int64_t per_pack = 16 / sizeof(T);
    int64_t n_classes = 1;
    while (n * n_classes % per_pack) n_classes *= 2;
    const int64_t most_shift = per_pack - 1; /* x may begin anywhere in a pack */
    return {n_rows, n, (n + most_shift + PACK - 1) / PACK, n_classes};
}

template <class T> __global__ void __launch_bounds__(BLOCK) share_columns(sharing s, column_windows w) {
    const int64_t rows = SHARE_ROWS * w.n_classes, n_parts = (w.n_rows + rows - 1) / rows;
    FOR_EACH(i, w.n_windows * w.n_classes * n_parts) {
        const int64_t group = i / w.n_windows, window = i - group * w.n_windows;
        const int64_t begin = group / w.n_classes * rows + group % w.n_classes;
        const T *const x = (const T *)s.x;
        const int64_t first = window * PACK - (int64_t)((uintptr_t)(x + begin * w.n) % 16 / sizeof(T));
        if (begin >= w.n_rows || first >= w.n) continue;
        share_of<float> share[PACK];
#pragma unroll
        for (int j = 0; j < PACK; j++) share[j] = s.share<float>(max(min(first + j, w.n - 1), (int64_t)0));
        const bool is_whole = first >= 0 && first + PACK <= w.n;
        for (int k = 0; k < SHARE_ROWS; k += AHEAD) {
            row_pack<T> packs[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const int64_t row = begin + (k + a) * w.n_classes;
                if (row < w.n_rows) packs[a] = row_load_shifted(x + row * w.n, first, w.n);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const int64_t row = begin + (k + a) * w.n_classes;
                if (row >= w.n_rows) break;
                T *const to = (T *)s.dx + row * w.n + first;
                float v[PACK];
                packs[a].widen(v);
#pragma unroll
                for (int j = 0; j < PACK; j++) v[j] = share[j](v[j]);
                if (is_whole) {
                    packs[a].narrow(v);
                    row_store(to, 0, packs[a]);
                } else {
#pragma unroll
                    for (int j = 0; j < PACK; j++)
                        if (first + j >= 0 && first + j < w.n) to[j] = conversion<T>::from(v[j]);
                }
            }
        }
    }
}

/* Any axes: g walks dx and the outputs. A thread has PACK neighbours, which mostly share an output. */
template <class C, class L> __global__ void __launch_bounds__(BLOCK) share_any(sharing s, reduction r, geometry<2> g) {
    FOR_EACH(i, (g.numel + PACK - 1) / PACK) {
        C x[PACK];
#pragma unroll
        for (int j = 0; j < PACK; j++) x[j] = L::at(r, min(i * PACK + j, g.numel - 1));
        int64_t output = -1;
        share_of<C> share;
#pragma unroll
        for (int j = 0; j < PACK; j++) {
            int64_t at[2];
            if (i * PACK + j >= g.numel) break;
            offsets_of(g, i * PACK + j, at);
            if (at[1] != output) share = s.share<C>(output = at[1]);
            store_as<C>(s.dx, i * PACK + j, s.dtype, share(x[j]));
        }
    }
}

template <class T> static bool share_by_columns(const tl_kernel_args *args, const sharing &s, const reduction &r) {
    if (!columns_are_dense(r) || r.reduced.stride[0][0] != r.n_outputs || r.n_outputs < LEAST_WIDTH ||
        ((uintptr_t)s.x - (uintptr_t)s.dx) % 16 != 0)
        return false;
    const column_windows w = column_windows_of<T>(r.n_reduced, r.n_outputs);
    const int64_t rows = SHARE_ROWS * w.n_classes, n_parts = (w.n_rows + rows - 1) / rows;
    share_columns<T><<<blocks_for(w.n_windows * w.n_classes * n_parts), BLOCK, 0, stream_of(args)>>>(s, w);
    return true;
}

static void share_launch(const tl_kernel_args *args, const sharing &s) {
    const tl_operand *const list[2] = {&args->out[0], &args->in[1]};
    const geometry<2> g = geometry_of<2>(list);
    const reduction r = reduction_of(args);
    const unsigned blocks = blocks_for((g.numel + PACK - 1) / PACK);
    const cudaStream_t stream = stream_of(args);
    if (s.dtype == TL_F32 && share_by_columns<float>(args, s, r)) return;
    if (s.dtype == TL_BF16 && share_by_columns<bf16>(args, s, r)) return;
    if (s.dtype == TL_F16 && share_by_columns<f16>(args, s, r)) return;
    if (s.dtype == TL_F64) share_any<double, load_typed<double, double>><<<blocks, BLOCK, 0, stream>>>(s, r, g);
    else if (s.dtype == TL_F32) share_any<float, load_typed<float, float>><<<blocks, BLOCK, 0, stream>>>(s, r, g);
    else if (s.dtype == TL_BF16) share_any<float, load_typed<bf16, float>><<<blocks, BLOCK, 0, stream>>>(s, r, g);
    else if (s.dtype == TL_F16) share_any<float, load_typed<f16, float>><<<blocks, BLOCK, 0, stream>>>(s, r, g);
    else share_any<float, load_any<float>><<<blocks, BLOCK, 0, stream>>>(s, r, g);
}

extern "C" {

bool cuda_sum(const tl_kernel_args *args) { return reduce<float>(args, sum_of(), 0, 0); }
bool cuda_max(const tl_kernel_args *args) { return reduce<float>(args, max_of(), -INFINITY, INT64_MIN); }
bool cuda_min(const tl_kernel_args *args) { return reduce<float>(args, min_of(), INFINITY, INT64_MAX); }
/* Of floats in f64, rounded once. */
bool cuda_prod(const tl_kernel_args *args) { return reduce<double>(args, product_of(), 1, 1); }

bool cuda_extreme_grad(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *y = &args->in[1];
    const size_t counts_bytes = (size_t)operand_numel(y) * sizeof(double);
    if (!operands_known(args)) return false;
    if (operand_numel(x) == 0) return true;
    if (args->workspace_bytes < counts_bytes) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op, counts_bytes,
                 args->workspace_bytes);
        return false;
    }
    tl_operand counts = *y;
    counts.data = args->workspace;
    counts.dtype = x->dtype == TL_F64 ? TL_F64 : TL_F32;
    tl_kernel_args counting = *args;
    counting.out = &counts;
    counting.workspace = (char *)args->workspace + counts_bytes;
    counting.workspace_bytes = args->workspace_bytes - counts_bytes;
    reduce_floats<float>(&counting, ties_of{y->data}, 0);
    early_writes(args, &args->out[0]); /* which the kernel that joins counts does not */
    share_launch(args, {x->data, y->data, args->in[2].data, counts.data, args->out[0].data, x->dtype});
    return true;
}

} /* extern "C" */
