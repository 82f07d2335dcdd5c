/* reduce.cu: sum, product, largest and smallest over any axes; softmax and log-softmax over the last.
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

enum { HELD_FEW = 4, HELD_BLOCK = 16, HELD_WARP = 32, HELD_WARPS = 4, HELD_PACKS = 4 };

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

/* Rows that do not consist of packs: a block per row, or a warp (WARP: four to a block), reads it once and keeps HELD
 * elements in each thread. */
template <bool WARP> struct row_group {
    unsigned thread, n;
    int64_t first, step; /* rows */
    __device__ row_group()
        : thread(WARP ? threadIdx.x % 32 : threadIdx.x), n(WARP ? 32 : blockDim.x),
          first(WARP ? blockIdx.x * (int64_t)HELD_WARPS + threadIdx.x / 32 : blockIdx.x),
          step(WARP ? gridDim.x * (int64_t)HELD_WARPS : gridDim.x) {}
    template <class C, class F> __device__ C reduce(C x, F f, C zero) const {
        return WARP ? warp_reduce(x, f) : block_reduce(x, f, zero);
    }
};

/* The GPU's own exponential is exact enough for 16 bits. */
template <class T> struct row_exp {
    template <class C> static __device__ C of(C x) { return exp_of(x); }
};
template <> struct row_exp<bf16> {
    static __device__ float of(float x) { return __expf(x); }
};
template <> struct row_exp<f16> : row_exp<bf16> {};

template <class T, bool LOG, bool WARP, int HELD>
__global__ void __launch_bounds__(WARP ? 32 * HELD_WARPS : 512)
    softmax_held(const T *x, T *y, int64_t n_rows, unsigned n) {
    typedef typename compute_type<T>::type C;
    const row_group<WARP> group;
    for (int64_t row = group.first; row < n_rows; row += group.step) {
        const T *from = x + row * n;
        T held[HELD];
        C v[HELD], top = lowest<C>(), sum = 0;
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (group.thread + k * group.n < n) held[k] = from[group.thread + k * group.n];
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (group.thread + k * group.n >= n) continue;
            v[k] = value_of<C>(held[k]);
            top = max_of()(top, v[k]);
        }
        top = group.reduce(top, max_of(), lowest<C>());
        const C shift = LOG && top == lowest<C>() ? C(0) : top;
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (group.thread + k * group.n >= n) continue;
            const C e = row_exp<T>::of(v[k] - shift);
            sum += e;
            if (!LOG) v[k] = e;
        }
        sum = group.reduce(sum, sum_of(), C(0));
        const C log_sum = LOG ? log_of(sum) : C(0), share = C(1) / sum;
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (group.thread + k * group.n < n)
                y[row * n + group.thread + k * group.n] =
                    conversion<T>::from(LOG ? (v[k] - shift) - log_sum : v[k] * share);
    }
}

/* Rows in 16 bits of any length, which begin anywhere in a pack: the packs of memory that a row touches, of which the
 * first and the last may be shared with other rows. A thread keeps HELD of them; what is not the row's is `rest`. */
template <class T> __device__ inline int row_shift(const T *row) { return (int)((uintptr_t)row % 16 / sizeof(T)); }

template <int HELD> struct shifted_packs {
    float v[HELD][PACK];
    int first[HELD], n; /* elements of the row: each pack's first, which may be negative, and of all */

    __device__ bool is_whole(int k) const { return first[k] >= 0 && first[k] + PACK <= n; }
    __device__ bool has(int k, int j) const { return (unsigned)(first[k] + j) < (unsigned)n; }
    template <class T> __device__ void load(const T *row, int n_row, int thread, int n_threads, float rest) {
        row_pack<T> packs[HELD];
        n = n_row;
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            first[k] = (thread + k * n_threads) * PACK - row_shift(row);
            if (is_whole(k)) packs[k] = row_load(row + first[k], 0);
        }
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (is_whole(k)) packs[k].widen(v[k]);
            else
#pragma unroll
                for (int j = 0; j < PACK; j++) v[k][j] = has(k, j) ? value_of<float>(row[first[k] + j]) : rest;
        }
    }
    template <class T> __device__ void store(T *row) const {
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (is_whole(k)) {
                row_pack<T> pack;
                pack.narrow(v[k]);
                row_store(row + first[k], 0, pack);
            } else {
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    if (has(k, j)) row[first[k] + j] = conversion<T>::from(v[k][j]);
            }
        }
    }
};
#define EACH_HELD(k, j) \
    _Pragma("unroll") for (int k = 0; k < HELD; k++) _Pragma("unroll") for (int j = 0; j < PACK; j++)

template <class T, bool LOG, bool WARP, int HELD>
__global__ void __launch_bounds__(WARP ? 32 * HELD_WARPS : 512)
    softmax_shifted(const T *x, T *y, int64_t n_rows, unsigned n) {
    const row_group<WARP> group;
    for (int64_t row = group.first; row < n_rows; row += group.step) {
        shifted_packs<HELD> p;
        float top = lowest<float>(), sum = 0;
        p.load(x + row * n, (int)n, (int)group.thread, (int)group.n, lowest<float>());
        EACH_HELD(k, j) top = max_of()(top, p.v[k][j]);
        top = group.reduce(top, max_of(), lowest<float>());
        const float shift = LOG && top == lowest<float>() ? 0.0f : top;
        EACH_HELD(k, j) {
            const float e = row_exp<T>::of(p.v[k][j] - shift);
            sum += e;
            if (!LOG) p.v[k][j] = e;
        }
        sum = group.reduce(sum, sum_of(), 0.0f);
        const float log_sum = LOG ? log_of(sum) : 0.0f, share = 1.0f / sum;
        EACH_HELD(k, j) p.v[k][j] = LOG ? (p.v[k][j] - shift) - log_sum : p.v[k][j] * share;
        p.store(y + row * n);
    }
}

template <class T, bool LOG, bool WARP, int HELD>
__global__ void __launch_bounds__(WARP ? 32 * HELD_WARPS : 512)
    softmax_grad_shifted(const T *y, const T *g, T *dx, int64_t n_rows, unsigned n) {
    const row_group<WARP> group;
    for (int64_t row = group.first; row < n_rows; row += group.step) {
        shifted_packs<HELD> ys, gs;
        float dot = 0;
        ys.load(y + row * n, (int)n, (int)group.thread, (int)group.n, 0.0f);
        gs.load(g + row * n, (int)n, (int)group.thread, (int)group.n, 0.0f);
        EACH_HELD(k, j) dot += LOG ? gs.v[k][j] : gs.v[k][j] * ys.v[k][j];
        dot = group.reduce(dot, sum_of(), 0.0f);
        EACH_HELD(k, j)
        gs.v[k][j] = LOG ? gs.v[k][j] - row_exp<T>::of(ys.v[k][j]) * dot : ys.v[k][j] * (gs.v[k][j] - dot);
        gs.store(dx + row * n);
    }
}

/* Longer rows, from wherever they begin: a block for each reads it twice, first for the maximum and the sum, which
 * grows with the maximum so far. */
enum { LONG_THREADS = 512 };

template <class T, bool LOG>
__global__ void __launch_bounds__(LONG_THREADS) softmax_long(const T *x, T *y, int64_t n_rows, int64_t n) {
    enum { N = line_pack<T>::N };
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const T *const from = x + row * n;
        const running<float> all = line_running<row_exp<T>>(from, n);
        const float shift = LOG && all.top == lowest<float>() ? 0.0f : all.top, sum = all.sum;
        const float log_sum = LOG ? log_of(sum) : 0.0f, share = 1.0f / sum;
        line_each(from, n, threadIdx.x, blockDim.x, [&](const line_pack<T> &p) {
            T out[N];
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float d = p.template at<float>(from, j, 0.0f) - shift;
                out[j] = conversion<T>::from(LOG ? d - log_sum : row_exp<T>::of(d) * share);
            }
            line_put(y + row * n, p, out);
        });
    }
}

template <class T, bool LOG>
__global__ void __launch_bounds__(LONG_THREADS)
    softmax_grad_long(const T *y, const T *g, T *dx, int64_t n_rows, int64_t n) {
    enum { N = line_pack<T>::N };
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const T *const ys = y + row * n, *const gs = g + row * n;
        float dot = 0;
        line_each(gs, n, threadIdx.x, blockDim.x, [&](const line_pack<T> &p) {
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float gi = p.template at<float>(gs, j, 0.0f);
                dot += LOG || !p.has(j) ? gi : gi * value_of<float>(ys[p.first + j]);
            }
        });
        dot = block_reduce(dot, sum_of(), 0.0f);
        line_each(ys, n, threadIdx.x, blockDim.x, [&](const line_pack<T> &p) {
            line_pack<T> q;
            T out[N];
            q = p;
            if (q.is_whole()) q.bits = *(const uint4 *)(gs + q.first);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float yi = p.template at<float>(ys, j, 0.0f), gi = q.template at<float>(gs, j, 0.0f);
                out[j] = conversion<T>::from(LOG ? gi - row_exp<T>::of(yi) * dot : yi * (gi - dot));
            }
            line_put(dx + row * n, p, out);
        });
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

/* The same for the gradient. */
template <class T, bool LOG, bool WARP, int HELD>
__global__ void __launch_bounds__(WARP ? 32 * HELD_WARPS : 512)
    softmax_grad_held(const T *y, const T *g, T *dx, int64_t n_rows, unsigned n) {
    typedef typename compute_type<T>::type C;
    const row_group<WARP> group;
    for (int64_t row = group.first; row < n_rows; row += group.step) {
        const int64_t at = row * n;
        T gs[HELD], ys[HELD];
        C dot = 0;
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (group.thread + k * group.n >= n) continue;
            gs[k] = g[at + group.thread + k * group.n];
            ys[k] = y[at + group.thread + k * group.n];
        }
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (group.thread + k * group.n < n)
                dot += LOG ? value_of<C>(gs[k]) : value_of<C>(gs[k]) * value_of<C>(ys[k]);
        dot = group.reduce(dot, sum_of(), C(0));
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (group.thread + k * group.n >= n) continue;
            const C gi = value_of<C>(gs[k]), yi = value_of<C>(ys[k]);
            dx[at + group.thread + k * group.n] =
                conversion<T>::from(LOG ? gi - row_exp<T>::of(yi) * dot : yi * (gi - dot));
        }
    }
}

/* Threads that keep a row of n, HELD_BLOCK elements each: a power of two, or 0 where 512 are too few. */
static int threads_to_hold(int64_t n) {
    int threads = 32;
    while (threads <= 512 && (int64_t)threads * HELD_BLOCK < n) threads *= 2;
    return threads <= 512 ? threads : 0;
}
static unsigned warp_blocks(int64_t n_rows) { return capped((n_rows + HELD_WARPS - 1) / HELD_WARPS); }

/* Rows in 16 bits that threads keep in packs; and rows that are longer than threads keep, which are read twice. */
static bool shifted_holds(int64_t n) { return n > HELD_FEW * 32 && n <= (HELD_PACKS * 512 - 1) * PACK; }
template <class T> static bool is_long(int64_t n) {
    return n > (sizeof(T) == 2 ? HELD_PACKS * PACK : HELD_BLOCK) * 512 - PACK;
}
/* Threads that keep a row of n, HELD_PACKS packs each. */
static int threads_to_shift(int64_t n) {
    int threads = 32;
    while ((int64_t)threads * HELD_PACKS * PACK < n + PACK) threads *= 2;
    return threads;
}

template <class T, bool LOG> static void shifted_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    const T *x = (const T *)args->in[0].data;
    T *y = (T *)args->out[0].data;
    const int threads = threads_to_shift(n);
    if (threads == 32)
        softmax_shifted<T, LOG, true, HELD_PACKS>
            <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(x, y, n_rows, (unsigned)n);
    else
        softmax_shifted<T, LOG, false, HELD_PACKS>
            <<<capped(n_rows), threads, 0, stream_of(args)>>>(x, y, n_rows, (unsigned)n);
}
template <class T, bool LOG> static void shifted_grad_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    const T *y = (const T *)args->in[0].data, *g = (const T *)args->in[1].data;
    T *dx = (T *)args->out[0].data;
    const int threads = threads_to_shift(n);
    if (threads == 32)
        softmax_grad_shifted<T, LOG, true, HELD_PACKS>
            <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(y, g, dx, n_rows, (unsigned)n);
    else
        softmax_grad_shifted<T, LOG, false, HELD_PACKS>
            <<<capped(n_rows), threads, 0, stream_of(args)>>>(y, g, dx, n_rows, (unsigned)n);
}

template <class T, bool LOG> static void softmax_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    const T *x = (const T *)args->in[0].data;
    T *y = (T *)args->out[0].data;
    const void *const addresses[] = {x, y};
    if constexpr (sizeof(T) <= 4)
        if (rows_shift_alike(2, addresses) && is_long<T>(n)) {
            softmax_long<T, LOG><<<capped(n_rows), LONG_THREADS, 0, stream_of(args)>>>(x, y, n_rows, n);
            return;
        }
    if constexpr (sizeof(T) == 2)
        if (rows_shift_alike(2, addresses) && shifted_holds(n)) return shifted_launch<T, LOG>(args, n_rows, n);
    if (rows_are_packs(n, 2, addresses))
        softmax_rows<T, PACK, LOG><<<capped(n_rows), threads_for_row(n / 2), 0, stream_of(args)>>>(x, y, n_rows, n);
    else if (n <= 32 * HELD_FEW)
        softmax_held<T, LOG, true, HELD_FEW>
            <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(x, y, n_rows, (unsigned)n);
    else if (n <= 32 * HELD_WARP)
        softmax_held<T, LOG, true, HELD_WARP>
            <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(x, y, n_rows, (unsigned)n);
    else if (const int threads = threads_to_hold(n))
        softmax_held<T, LOG, false, HELD_BLOCK>
            <<<capped(n_rows), threads, 0, stream_of(args)>>>(x, y, n_rows, (unsigned)n);
    else softmax_rows<T, 1, LOG><<<capped(n_rows), threads_for_row(n), 0, stream_of(args)>>>(x, y, n_rows, n);
}

template <class T, bool LOG> static void softmax_grad_launch(const tl_kernel_args *args, int64_t n_rows, int64_t n) {
    const T *y = (const T *)args->in[0].data, *g = (const T *)args->in[1].data;
    T *dx = (T *)args->out[0].data;
    const void *const addresses[] = {y, g, dx};
    const unsigned blocks = capped(n_rows);
    if constexpr (sizeof(T) <= 4)
        if (rows_shift_alike(3, addresses) && is_long<T>(n)) {
            softmax_grad_long<T, LOG><<<blocks, LONG_THREADS, 0, stream_of(args)>>>(y, g, dx, n_rows, n);
            return;
        }
    if constexpr (sizeof(T) == 2)
        if (rows_shift_alike(3, addresses) && shifted_holds(n)) return shifted_grad_launch<T, LOG>(args, n_rows, n);
    if (rows_are_packs(n, 3, addresses))
        softmax_grad_rows<T, PACK, LOG><<<blocks, threads_for_row(n / 2), 0, stream_of(args)>>>(y, g, dx, n_rows, n);
    else if (n <= 32 * HELD_FEW)
        softmax_grad_held<T, LOG, true, HELD_FEW>
            <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(y, g, dx, n_rows, (unsigned)n);
    else if (n <= 32 * HELD_WARP)
        softmax_grad_held<T, LOG, true, HELD_WARP>
            <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(y, g, dx, n_rows, (unsigned)n);
    else if (const int threads = threads_to_hold(n))
        softmax_grad_held<T, LOG, false, HELD_BLOCK>
            <<<blocks, threads, 0, stream_of(args)>>>(y, g, dx, n_rows, (unsigned)n);
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
