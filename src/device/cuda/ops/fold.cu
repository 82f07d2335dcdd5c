/* fold.cu: reductions whose partial result is more than one number, and running sums and products.
 *
 * The reduced elements of one output, in row-major order, are cut into chunks of REDUCE_CHUNK. A group of threads
 * reduces a chunk to a *state* of two numbers, in f64 (i64 for integers): a block; a warp for short or many ones; or,
 * where neighbours in memory belong to different outputs, the threads of a block that have the same column. The states
 * of an output are joined in order, many of them in a fixed tree, and the last one is finished into the result. With
 * one chunk the group finishes itself; otherwise states go through the workspace. Trees and orders depend on the shape
 * alone.
 */
#include "device/cuda/shared/limits.h"
#include "device/cuda/shared/line_pack.cuh"
#include "device/cuda/shared/prefix_scan.cuh"

union word {
    double f;
    int64_t i;
};
struct state {
    word a, b;
};
static_assert(sizeof(state) == FOLD_STATE_BYTES, "attr.h says how large a state is");

struct folding {
    const void *x;
    tl_dtype x_dtype;
    void *out[2];
    tl_dtype out_dtype[2];
    int64_t n_outputs, n_reduced, n_chunks;
    geometry<1> kept, reduced;
    state *states; /* (output, chunk), or NULL: one chunk each */
};

/* Reading an element: of a known type, or of one that is looked up (T is any_dtype). */
struct any_dtype {};
template <class T> struct is_known { static const bool value = true; };
template <> struct is_known<any_dtype> { static const bool value = false; };
template <class C, class T> __device__ inline C element_of(const folding &fold, int64_t at, T *) {
    return value_of<C>(((const T *)fold.x)[at]);
}
template <class C> __device__ inline C element_of(const folding &fold, int64_t at, any_dtype *) {
    return load_as<C>(fold.x, at, fold.x_dtype);
}

enum { READ_AHEAD = 8 };

/* The elements of one chunk: element i of n, the first of which is element `first` of its output. */
template <class C, class T> struct chunk_of {
    const folding &fold;
    int64_t base, first, n;
    __device__ C at(int64_t i) const {
        int64_t offset[1] = {(first + i) * fold.reduced.stride[0][0]};
        if (fold.reduced.rank > 1) offsets_of(fold.reduced, first + i, offset);
        return element_of<C>(fold, base + offset[0], (T *)nullptr);
    }
    /* f(element i, i) of those of one thread of a group, in order: in packs where they are a dense line, and with
     * READ_AHEAD loaded before the first is used where they lie evenly; behind the end that is the last one again. */
    template <class G, class F> __device__ void each(const G &group, F f) const {
        if constexpr (is_known<T>::value) {
            const int64_t stride = fold.reduced.stride[0][0];
            const T *const line = (const T *)fold.x + base + first * stride;
            if (fold.reduced.rank == 1 && stride == 1) {
                line_each(line, n, group.thread, group.n, [&](const line_pack<T> &p) { p.template each<C>(line, f); });
                return;
            }
            const int end = fold.reduced.rank == 1 ? (int)n : 0;
            for (int i = group.thread; i < end; i += READ_AHEAD * group.n) {
                T x[READ_AHEAD];
#pragma unroll
                for (int k = 0; k < READ_AHEAD; k++) x[k] = line[min(i + k * group.n, end - 1) * stride];
#pragma unroll
                for (int k = 0; k < READ_AHEAD; k++)
                    if (i + k * group.n < end) f(value_of<C>(x[k]), (int64_t)(i + k * group.n));
            }
            if (end) return;
        }
#pragma unroll 4
        for (int64_t i = group.thread; i < n; i += group.n) f(at(i), i);
    }
};

__device__ inline void write_real(const folding &fold, int which, int64_t output, double value) {
    store_as<double>(fold.out[which], output, fold.out_dtype[which], value);
}

/* Groups: `thread` of n, and reduce(), which gives the same result to all of them. X may be any plain struct. */
template <class X> __device__ inline X shuffle_xor(X x, int distance) {
    static_assert(sizeof(X) % 4 == 0, "in words");
    X other;
    for (int k = 0; k < (int)(sizeof(X) / 4); k++)
        ((uint32_t *)&other)[k] = __shfl_xor_sync(0xFFFFFFFFu, ((const uint32_t *)&x)[k], distance);
    return other;
}
struct warp_group {
    int thread, n;
    template <class X, class F> __device__ X reduce(X x, F f) const {
        for (int distance = 16; distance > 0; distance /= 2) x = f(x, shuffle_xor(x, distance));
        return x;
    }
};
struct block_group {
    int thread, n;
    template <class X, class F> __device__ X reduce(X x, F f) const {
        __shared__ X of_warp[32];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
        x = warp_group().reduce(x, f);
        if (n_warps == 1) return x;
        __syncthreads(); /* an earlier call may still be reading */
        if (lane == 0) of_warp[warp] = x;
        __syncthreads();
        x = of_warp[0];
        for (int w = 1; w < n_warps; w++) x = f(x, of_warp[w]);
        return x;
    }
};
enum { COLUMN_THREADS = 512, LEAST_WIDTH = 8, LEAST_COLUMNS = 32 };
struct column_group {
    int thread, n, column, width;
    template <class X, class F> __device__ X reduce(X x, F f) const {
        __shared__ X parts[COLUMN_THREADS];
        if (n == 1) return x;
        __syncthreads();
        parts[thread * width + column] = x;
        __syncthreads();
        x = parts[column];
        for (int k = 1; k < n; k++) x = f(x, parts[k * width + column]);
        return x;
    }
};

/* F: element (its type), chunk() by all threads of the group, join() and finish() by one thread. */
template <class T, class F, class G>
__device__ inline state fold_one(const folding &fold, const F &f, const G &group, int64_t output, int64_t chunk) {
    int64_t base[1];
    offsets_of(fold.kept, output, base);
    const int64_t first = chunk * REDUCE_CHUNK, n = min((int64_t)REDUCE_CHUNK, fold.n_reduced - first);
    return f.chunk(chunk_of<typename F::element, T>{fold, base[0], first, n}, group);
}
template <class F>
__device__ inline void fold_put(const folding &fold, const F &f, int64_t output, int64_t chunk, state s) {
    if (fold.states) fold.states[output * fold.n_chunks + chunk] = s;
    else f.finish(fold, output, s);
}

template <class T, class F> __global__ void __launch_bounds__(256) fold_chunks(folding fold, F f) {
    const block_group group = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t item = blockIdx.x; item < fold.n_outputs * fold.n_chunks; item += gridDim.x) {
        const int64_t output = item / fold.n_chunks, chunk = item - output * fold.n_chunks;
        const state s = fold_one<T>(fold, f, group, output, chunk);
        if (threadIdx.x == 0) fold_put(fold, f, output, chunk, s);
    }
}

template <class T, class F> __global__ void __launch_bounds__(256) fold_warps(folding fold, F f) {
    const warp_group group = {(int)threadIdx.x % 32, 32};
    const int64_t n_items = fold.n_outputs * fold.n_chunks, step = (int64_t)gridDim.x * 8;
    for (int64_t item = blockIdx.x * (int64_t)8 + threadIdx.x / 32; item < n_items; item += step) {
        const int64_t output = fold.n_chunks > 1 ? item / fold.n_chunks : item, chunk = item - output * fold.n_chunks;
        const state s = fold_one<T>(fold, f, group, output, chunk);
        if (group.thread == 0) fold_put(fold, f, output, chunk, s);
    }
}

/* `width` outputs side by side; blockIdx.y counts chunks. Columns beyond the last repeat it, and write nothing. */
template <class T, class F>
__global__ void __launch_bounds__(COLUMN_THREADS) fold_columns(folding fold, int width, F f) {
    const column_group group = {(int)threadIdx.x / width, (int)blockDim.x / width, (int)threadIdx.x % width, width};
    for (int64_t first = blockIdx.x * (int64_t)width; first < fold.n_outputs; first += gridDim.x * (int64_t)width) {
        const int64_t output = min(first + group.column, fold.n_outputs - 1);
        const state s = fold_one<T>(fold, f, group, output, blockIdx.y);
        if (group.thread == 0 && first + group.column == output) fold_put(fold, f, output, blockIdx.y, s);
    }
}

template <class F> __global__ void __launch_bounds__(BLOCK) fold_join(folding fold, F f) {
    FOR_EACH(output, fold.n_outputs) {
        const state *part = fold.states + output * fold.n_chunks;
        state total = part[0];
        for (int64_t chunk = 1; chunk < fold.n_chunks; chunk++) {
            const int64_t before = chunk * REDUCE_CHUNK;
            f.join(total, before, part[chunk], min((int64_t)REDUCE_CHUNK, fold.n_reduced - before));
        }
        f.finish(fold, output, total);
    }
}

enum { IN_ORDER = 16 }; /* states that one thread joins */

/* Many states: a block per output. Each thread joins a run of neighbours, then runs are joined in a tree. */
template <class F> __global__ void __launch_bounds__(BLOCK) fold_join_block(folding fold, F f) {
    __shared__ state states[BLOCK];
    __shared__ int64_t counts[BLOCK];
    const int64_t run = (fold.n_chunks + BLOCK - 1) / BLOCK;
    for (int64_t output = blockIdx.x; output < fold.n_outputs; output += gridDim.x) {
        const state *part = fold.states + output * fold.n_chunks;
        int64_t n = 0;
        state total = part[0];
        for (int64_t chunk = threadIdx.x * run; chunk < min(fold.n_chunks, (threadIdx.x + 1) * run); chunk++) {
            const int64_t n_part = min((int64_t)REDUCE_CHUNK, fold.n_reduced - chunk * REDUCE_CHUNK);
            if (n) f.join(total, n, part[chunk], n_part);
            else total = part[chunk];
            n += n_part;
        }
        states[threadIdx.x] = total;
        counts[threadIdx.x] = n;
        __syncthreads();
        for (int distance = 1; distance < BLOCK; distance *= 2) {
            const int other = threadIdx.x + distance;
            if (threadIdx.x % (2 * distance) == 0 && counts[other]) {
                f.join(states[threadIdx.x], counts[threadIdx.x], states[other], counts[other]);
                counts[threadIdx.x] += counts[other];
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) f.finish(fold, output, states[0]);
        __syncthreads();
    }
}

/* Threads of a block that has columns, and outputs that it has side by side: one thread each for short reductions;
 * fewer where there would be few blocks. */
static int column_threads(const folding &fold) {
    return fold.n_reduced < COLUMN_THREADS ? COLUMN_THREADS / 2 : COLUMN_THREADS;
}
static int column_width(const folding &fold) {
    if (fold.n_reduced <= 16) return column_threads(fold);
    int width = 32;
    while (width > LEAST_WIDTH && (fold.n_outputs + width - 1) / width * fold.n_chunks < 264) width /= 2;
    return width;
}

/* Chunks that are enough for a warp each: eight for each of 132 multiprocessors. The same on every card, so that the
 * bits are. A warp waits for memory and for shuffles; a block also for its warps. Elements whose dtype is looked up
 * are read one by one, and want more threads. */
enum { MANY_CHUNKS = 1056 };

template <class T, class F> static void fold_launch(const tl_kernel_args *args, const folding &fold, F f) {
    const cudaStream_t stream = stream_of(args);
    const int64_t n_items = fold.n_outputs * fold.n_chunks;
    const bool is_of_warps = fold.n_reduced <= 512 || (is_known<T>::value && n_items >= MANY_CHUNKS);
    const int64_t kept_inner = fold.kept.stride[0][fold.kept.rank - 1],
                  reduced_inner = fold.reduced.stride[0][fold.reduced.rank - 1];
    const bool side_by_side = kept_inner == 1 && reduced_inner != 1 &&
                              fold.kept.size[fold.kept.rank - 1] >= LEAST_COLUMNS && fold.n_chunks <= 65535;
    if (side_by_side || fold.n_reduced <= 16) {
        const int width = column_width(fold);
        const dim3 grid(capped((fold.n_outputs + width - 1) / width), (unsigned)fold.n_chunks);
        fold_columns<T, F><<<grid, column_threads(fold), 0, stream>>>(fold, width, f);
    } else if (is_of_warps) {
        fold_warps<T, F><<<capped((n_items + 7) / 8), 256, 0, stream>>>(fold, f);
    } else {
        fold_chunks<T, F><<<capped(n_items), 256, 0, stream>>>(fold, f);
    }
    if (fold.n_chunks > IN_ORDER) fold_join_block<F><<<capped(fold.n_outputs), BLOCK, 0, stream>>>(fold, f);
    else if (fold.states) fold_join<F><<<blocks_for(fold.n_outputs), BLOCK, 0, stream>>>(fold, f);
}

/* Whether the workspace has so many bytes; otherwise args->error says that it has not. */
static bool workspace_holds(const tl_kernel_args *args, size_t bytes) {
    if (args->workspace_bytes >= bytes) return true;
    snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op, bytes,
             args->workspace_bytes);
    return false;
}

/* False: it cannot begin (args->error says why), or there is nothing to do (is_empty). */
static bool fold_begin(folding *fold, const tl_kernel_args *args, bool *is_empty) {
    *is_empty = false;
    if (!operands_known(args)) return false;
    const tl_operand *x = &args->in[0];
    fold->x = x->data;
    fold->x_dtype = x->dtype;
    for (int j = 0; j < args->n_out && j < 2; j++) {
        fold->out[j] = args->out[j].data;
        fold->out_dtype[j] = args->out[j].dtype;
    }
    axes_split(x, ((const struct attr_reduce *)args->attr)->axes, &fold->kept, &fold->reduced);
    fold->n_outputs = fold->kept.numel;
    fold->n_reduced = fold->reduced.numel;
    fold->n_chunks = fold->n_reduced ? (fold->n_reduced + REDUCE_CHUNK - 1) / REDUCE_CHUNK : 1; /* an empty one */
    fold->states = fold->n_chunks > 1 ? (state *)args->workspace : nullptr;
    *is_empty = fold->n_outputs == 0;
    const size_t need = (size_t)(fold->n_outputs * fold->n_chunks) * sizeof(state);
    return !*is_empty && (!fold->states || workspace_holds(args, need));
}

/* Elements of any dtype. */
template <class F> static bool run_fold(const tl_kernel_args *args, F f) {
    folding fold;
    bool is_empty;
    if (!fold_begin(&fold, args, &is_empty)) return is_empty;
    fold_launch<any_dtype>(args, fold, f);
    return true;
}

/* Elements of a float dtype of at most 32 bits: its type is known, where it is a common one. */
template <class F> static bool run_fold_typed(const tl_kernel_args *args, F f) {
    folding fold;
    bool is_empty;
    if (!fold_begin(&fold, args, &is_empty)) return is_empty;
    if (fold.x_dtype == TL_F32) fold_launch<float>(args, fold, f);
    else if (fold.x_dtype == TL_BF16) fold_launch<bf16>(args, fold, f);
    else if (fold.x_dtype == TL_F16) fold_launch<f16>(args, fold, f);
    else fold_launch<any_dtype>(args, fold, f);
    return true;
}

template <class C, class T, class G, class F, class M>
__device__ inline C chunk_reduce(const chunk_of<C, T> &x, const G &group, F f, C zero, M map) {
    C part = zero;
    x.each(group, [&](C value, int64_t) { part = f(part, map(value)); });
    return group.reduce(part, f);
}

/* ---- argmax, argmin: the value, and where it is -------------------------------------------------------- */

/* The first NaN beats everything; of equal ones the first stays. */
template <class C> __device__ inline bool is_better(C x, C best) { return best == best && !(x <= best); }

/* Numbers in the reverse order: the least is the greatest of these. */
__device__ inline float turned(float x, bool turns) { return turns ? -x : x; }
__device__ inline double turned(double x, bool turns) { return turns ? -x : x; }
__device__ inline int64_t turned(int64_t x, bool turns) { return turns ? ~x : x; }

template <class C> struct worst {
    static __device__ C value() { return -(C)INFINITY; }
};
template <> struct worst<int64_t> {
    static __device__ int64_t value() { return INT64_MIN; }
};

template <class C> struct placed {
    C value;
    uint32_t place; /* in the chunk */
};
template <class C> struct better_of {
    __device__ placed<C> operator()(placed<C> a, placed<C> b) const {
        const bool b_wins = is_better(b.value, a.value), a_wins = is_better(a.value, b.value);
        return b_wins || (!a_wins && b.place < a.place) ? b : a;
    }
};

__device__ inline void word_put(word &w, double x) { w.f = x; }
__device__ inline void word_put(word &w, float x) { w.f = (double)x; }
__device__ inline void word_put(word &w, int64_t x) { w.i = x; }
template <class C> __device__ inline C word_get(word w) { return (C)w.f; }
template <> __device__ inline int64_t word_get<int64_t>(word w) { return w.i; }

template <class C> struct fold_place {
    typedef C element;
    bool wants_min;
    /* Where nothing is better than the worst number, all are equal to it, and the first place is right. */
    template <class T, class G> __device__ state chunk(const chunk_of<C, T> &x, const G &group) const {
        placed<C> best = {worst<C>::value(), 0};
        x.each(group, [&](C element, int64_t i) {
            const C value = turned(element, wants_min);
            if (is_better(value, best.value)) best = placed<C>{value, (uint32_t)i};
        });
        best = group.reduce(best, better_of<C>());
        state s;
        word_put(s.a, best.value);
        s.b.i = x.first + best.place;
        return s;
    }
    __device__ void join(state &total, int64_t, state part, int64_t) const {
        if (is_better(word_get<C>(part.a), word_get<C>(total.a))) total = part;
    }
    __device__ void finish(const folding &fold, int64_t output, state s) const {
        ((int64_t *)fold.out[0])[output] = s.b.i;
    }
};

static bool run_place(const tl_kernel_args *args, bool wants_min) {
    if (args->in[0].dtype == TL_F64) return run_fold(args, fold_place<double>{wants_min});
    if (dtype_is_float(args->in[0].dtype)) return run_fold_typed(args, fold_place<float>{wants_min});
    return run_fold(args, fold_place<int64_t>{wants_min});
}

/* ---- var: the mean, and the sum of squared distances from it (Chan's rule joins them) ------------------- */

/* With one of the elements, m, and d = x - m:  mean = m + sum d / n,  squares = sum d^2 - (sum d)^2 / n.  Since m is
 * one of them, the difference is at least sum d^2 / (n + 1), so that rounding cannot ruin it, whatever m is. For equal
 * numbers it is 0, so that their deviation is 0 and not a rounding error, by which a gradient would divide. */
struct moments {
    double sum, squares;
};
struct moments_sum {
    __device__ moments operator()(moments a, moments b) const { return {a.sum + b.sum, a.squares + b.squares}; }
};
struct fold_var {
    typedef double element;
    double correction;
    bool is_root;
    template <class T, class G> __device__ state chunk(const chunk_of<double, T> &x, const G &group) const {
        const double one = x.n ? x.at(0) : 0.0, m = isfinite(one) ? one : 0.0, n = (double)x.n;
        moments all = {0, 0};
        x.each(group, [&](double value, int64_t) {
            const double d = value - m;
            all.sum += d;
            all.squares += d * d;
        });
        all = group.reduce(all, moments_sum());
        const double left = all.sum / n, total = all.squares - left * all.sum;
        state s;
        s.a.f = m + left;
        s.b.f = total < 0 ? 0 : total;
        return s;
    }
    __device__ void join(state &total, int64_t n_total, state part, int64_t n_part) const {
        const double distance = part.a.f - total.a.f, share = (double)n_part / (double)(n_total + n_part);
        total.a.f += distance * share;
        total.b.f += part.b.f + distance * distance * ((double)n_total * share);
    }
    __device__ void finish(const folding &fold, int64_t output, state s) const {
        const double var = s.b.f / fmax((double)fold.n_reduced - correction, 0.0);
        write_real(fold, 0, output, is_root ? sqrt(var) : var);
        write_real(fold, 1, output, s.a.f);
    }
};

/* ---- norm: one sum, or the extreme magnitude ------------------------------------------------------------ */

struct magnitude_of {
    __device__ double operator()(double x) const { return fabs(x); }
};
struct power_term {
    double p;
    __device__ double operator()(double x) const {
        return p == 2 ? x * x : p == 1 ? fabs(x) : p == 0 ? (x != 0 ? 1.0 : 0.0) : pow(fabs(x), p);
    }
};
struct fold_norm {
    typedef double element;
    double p;
    template <class T, class G> __device__ state chunk(const chunk_of<double, T> &x, const G &group) const {
        state s;
        s.b.f = 0;
        if (!isinf(p)) s.a.f = chunk_reduce(x, group, sum_of(), 0.0, power_term{p});
        else if (p > 0) s.a.f = chunk_reduce(x, group, max_of(), 0.0, magnitude_of());
        else s.a.f = x.n ? chunk_reduce(x, group, min_of(), (double)INFINITY, magnitude_of()) : 0.0;
        return s;
    }
    __device__ void join(state &total, int64_t, state part, int64_t) const {
        if (!isinf(p)) total.a.f += part.a.f;
        else if (is_better(turned(part.a.f, p < 0), turned(total.a.f, p < 0))) total = part;
    }
    __device__ void finish(const folding &fold, int64_t output, state s) const {
        const bool is_plain = isinf(p) || p == 0 || p == 1;
        write_real(fold, 0, output, is_plain ? s.a.f : p == 2 ? sqrt(s.a.f) : pow(s.a.f, 1 / p));
    }
};

/* ---- logsumexp: a finite shift, and the sum of e^(x - shift) -------------------------------------------- */

/* Ignores NaN, which reappears in the sum. */
struct number_max {
    __device__ double operator()(double a, double b) const { return b > a ? b : a; }
};
struct same_as {
    __device__ double operator()(double x) const { return x; }
};
/* Of x of at most f32: exponentials in f32, which are good to its last place, and their sum in f64. */
template <class C> struct exp_term {
    double shift;
    __device__ double operator()(double x) const { return (double)exp_of((C)(x - shift)); }
};
template <class C> struct fold_logsumexp {
    typedef double element;
    template <class T, class G> __device__ state chunk(const chunk_of<double, T> &x, const G &group) const {
        const double top = chunk_reduce(x, group, number_max(), -(double)INFINITY, same_as());
        state s;
        s.a.f = isfinite(top) ? top : 0;
        s.b.f = chunk_reduce(x, group, sum_of(), 0.0, exp_term<C>{s.a.f});
        return s;
    }
    __device__ void join(state &total, int64_t, state part, int64_t) const {
        if (!isfinite(total.b.f) || !isfinite(part.b.f)) { /* infinite or NaN, whatever the shifts */
            total.b.f += part.b.f;
        } else if (total.b.f == 0) {
            total = part;
        } else if (part.b.f != 0) {
            const double shift = fmax(total.a.f, part.a.f);
            total.b.f = total.b.f * exp(total.a.f - shift) + part.b.f * exp(part.a.f - shift);
            total.a.f = shift;
        }
    }
    __device__ void finish(const folding &fold, int64_t output, state s) const {
        write_real(fold, 0, output, s.a.f + log(s.b.f));
    }
};

/* ---- Running sums and products ---------------------------------------------------------------------------
 *
 * A group of threads has a row: 8 threads a short one, a warp one of up to SCAN_BLOCK elements, a block a longer
 * one. It walks the row in tiles of SCAN_EACH neighbours for each thread, and carries the result so far from tile to
 * tile. Long rows of which there are few are cut into chunks (scan_chunks in limits.h): a chunk's result is found
 * first, and the chunk is scanned when those before it are joined. Which of these is done depends on the shape
 * alone.
 */

struct scanning {
    const void *x, *g;
    void *out;
    tl_dtype x_dtype, g_dtype, out_dtype;
    int64_t n_rows, n, n_chunks, chunk;                 /* chunk: elements of one */
    bool is_reverse, is_exclusive, is_total, has_units; /* has_units: rows are units of SCAN_EACH */
    double *carry; /* cumprod_grad: the product before each tile. Otherwise the result before each chunk, or NULL */
    __device__ int64_t place(int64_t row, int64_t at) const { return row * n + (is_reverse ? n - 1 - at : at); }
};

enum { SCAN_EACH = 8, SCAN_THREADS = 256, SCAN_TILE = SCAN_THREADS * SCAN_EACH };

/* How elements wait in shared memory: as they are, or, where the dtype is looked up, converted to C. Units of small
 * ones, if rows consist of them, go to their threads at once. */
template <class T, class C> struct scan_type {
    typedef T kept;
    enum { MAY_HAVE_UNITS = sizeof(T) <= 4 };
    static __device__ T load(const scanning &s, int64_t at) { return ((const T *)s.x)[at]; }
    static __device__ void store(const scanning &s, int64_t at, T x) { ((T *)s.out)[at] = x; }
};
template <class C> struct scan_type<any_dtype, C> {
    typedef C kept;
    enum { MAY_HAVE_UNITS = false };
    static __device__ C load(const scanning &s, int64_t at) { return load_as<C>(s.x, at, s.x_dtype); }
    static __device__ void store(const scanning &s, int64_t at, C x) { store_as<C>(s.out, at, s.out_dtype, x); }
};

template <int GROUP> __device__ inline void group_wait() {
    if (GROUP > 32) __syncthreads();
    else __syncwarp();
}

/* f of the x of all threads of the group before this one; of all of them in *total. */
template <int GROUP, class C, class F> __device__ inline C group_before(C x, F f, C neutral, C *total) {
    const int thread = threadIdx.x % GROUP;
    if (GROUP > 32) {
        __shared__ C room[32], upto[SCAN_THREADS];
        upto[thread] = block_scan(x, f, room, total);
        __syncthreads();
        return thread ? upto[thread - 1] : neutral;
    }
    const int width = GROUP < 32 ? GROUP : 32;
    for (int distance = 1; distance < width; distance *= 2) {
        const C before = __shfl_up_sync(0xFFFFFFFFu, x, distance, width);
        if (thread >= distance) x = f(before, x);
    }
    *total = __shfl_sync(0xFFFFFFFFu, x, width - 1, width);
    const C before = __shfl_up_sync(0xFFFFFFFFu, x, 1, width);
    return thread ? before : neutral;
}

/* A unit in the direction of the scan. */
template <class T> __device__ inline unit<T, SCAN_EACH> turned(unit<T, SCAN_EACH> x, bool is_reverse) {
    unit<T, SCAN_EACH> y;
#pragma unroll
    for (int k = 0; k < SCAN_EACH; k++) y.v[k] = is_reverse ? x.v[SCAN_EACH - 1 - k] : x.v[k];
    return y;
}

/* Elements go through shared memory, so that reads and writes are dense however long rows are, or in units. The groups
 * of a warp walk together: those behind the last row have no elements. */
template <class T, class C, int GROUP, class F>
__global__ void __launch_bounds__(SCAN_THREADS) scan_tiles(scanning s, F f, C neutral) {
    typedef scan_type<T, C> type;
    typedef typename type::kept kept;
    enum { ROWS = SCAN_THREADS / GROUP, TILE = GROUP * SCAN_EACH };
    __shared__ unit<kept, SCAN_EACH> tiles[SCAN_THREADS];
    const int thread = threadIdx.x % GROUP, group = threadIdx.x / GROUP;
    kept *tile = (kept *)(tiles + group * GROUP);
    const int64_t n_items = s.n_rows * s.n_chunks;
    for (int64_t first_item = blockIdx.x * (int64_t)ROWS; first_item < n_items;
         first_item += gridDim.x * (int64_t)ROWS) {
        const int64_t item = first_item + group, row = s.n_chunks > 1 ? item / s.n_chunks : item,
                      chunk = item - row * s.n_chunks;
        const bool is_there = item < n_items;
        const int64_t begin = chunk * s.chunk, end = min(s.n, begin + s.chunk);
        C before = s.carry && is_there ? ((const C *)s.carry)[item] : neutral;
        for (int64_t first = begin; first < end; first += TILE) {
            const int n = is_there ? (int)min((int64_t)TILE, end - first) : 0;
            const bool in_units = type::MAY_HAVE_UNITS && s.has_units, has_unit = thread * SCAN_EACH < n;
            const int64_t own = s.place(row, first + thread * SCAN_EACH) / SCAN_EACH; /* from either end */
            unit<kept, SCAN_EACH> mine;
            if (in_units) {
                for (int k = 0; k < SCAN_EACH; k++) mine.v[k] = conversion<kept>::from(neutral);
                if (has_unit) mine = turned(unit_load<SCAN_EACH>((const kept *)s.x, own), s.is_reverse);
            } else {
                group_wait<GROUP>(); /* the tile before has been written */
#pragma unroll
                for (int k = 0; k < SCAN_EACH; k++) {
                    const int i = thread + k * GROUP;
                    tile[i] = i < n ? type::load(s, s.place(row, first + i)) : conversion<kept>::from(neutral);
                }
                group_wait<GROUP>();
                mine = tiles[threadIdx.x];
            }
            C upto[SCAN_EACH], sum = neutral, total;
#pragma unroll
            for (int k = 0; k < SCAN_EACH; k++) upto[k] = sum = f(sum, value_of<C>(mine.v[k]));
            const C base = f(before, group_before<GROUP>(sum, f, neutral, &total));
#pragma unroll
            for (int k = 0; k < SCAN_EACH; k++) {
                const C result = !s.is_exclusive ? f(base, upto[k]) : k ? f(base, upto[k - 1]) : base;
                mine.v[k] = conversion<kept>::from(result);
            }
            before = f(before, total);
            if (in_units) {
                if (has_unit) unit_store<SCAN_EACH>((kept *)s.out, own, turned(mine, s.is_reverse));
                continue;
            }
            tiles[threadIdx.x] = mine;
            group_wait<GROUP>();
#pragma unroll
            for (int k = 0; k < SCAN_EACH; k++) {
                const int i = thread + k * GROUP;
                if (i < n) type::store(s, s.place(row, first + i), tile[i]);
            }
        }
    }
}

/* carry[item] = f of all elements of a chunk; a block each. */
template <class T, class C, class F>
__global__ void __launch_bounds__(SCAN_THREADS) scan_totals(scanning s, F f, C neutral) {
    for (int64_t item = blockIdx.x; item < s.n_rows * s.n_chunks; item += gridDim.x) {
        const int64_t row = item / s.n_chunks, begin = (item - row * s.n_chunks) * s.chunk;
        const int n = (int)min(s.chunk, s.n - begin);
        C total = neutral;
#pragma unroll 8
        for (int i = threadIdx.x; i < n; i += SCAN_THREADS)
            total = f(total, value_of<C>(scan_type<T, C>::load(s, s.place(row, begin + i))));
        total = block_reduce(total, f, neutral);
        if (threadIdx.x == 0) ((C *)s.carry)[item] = total;
    }
}

/* carry[chunk] becomes f of those before it in its row; a block per row. */
template <class C, class F> __global__ void __launch_bounds__(SCAN_THREADS) scan_carries(scanning s, F f, C neutral) {
    for (int64_t row = blockIdx.x; row < s.n_rows; row += gridDim.x) {
        C *carry = (C *)s.carry + row * s.n_chunks, so_far = neutral;
        for (int64_t first = 0; first < s.n_chunks; first += SCAN_THREADS) {
            const int64_t chunk = first + threadIdx.x;
            C total;
            const C before =
                group_before<SCAN_THREADS>(chunk < s.n_chunks ? carry[chunk] : neutral, f, neutral, &total);
            if (chunk < s.n_chunks) carry[chunk] = f(so_far, before);
            so_far = f(so_far, total);
        }
    }
}

static int64_t scan_begin(scanning *s, const tl_kernel_args *args) {
    const struct attr_scan *attr = (const struct attr_scan *)args->attr;
    const tl_operand *x = &args->in[0], *g = &args->in[args->n_in > 1];
    s->x = x->data;
    s->x_dtype = x->dtype;
    s->g = g->data;
    s->g_dtype = g->dtype;
    s->out = args->out[0].data;
    s->out_dtype = args->out[0].dtype;
    s->n = x->rank ? x->shape[x->rank - 1] : 1;
    s->n_rows = s->n ? operand_numel(x) / s->n : 0;
    s->is_reverse = attr->is_reverse;
    s->is_exclusive = attr->is_exclusive;
    s->is_total = attr->is_total;
    s->carry = (double *)args->workspace;
    return s->n_rows;
}

/* Threads for a row: whole warps, at most SCAN_BLOCK. */
static int scan_threads(int64_t n) {
    int threads = 32;
    while (threads < SCAN_BLOCK && threads < n) threads *= 2;
    return threads;
}

enum { SCAN_SHORT = 64 }; /* the longest rows of 8 threads */

template <class T, class C, class F> static void scan_launch(const tl_kernel_args *args, scanning s, F f, C neutral) {
    const cudaStream_t stream = stream_of(args);
    const int64_t n_items = s.n_rows * s.n_chunks;
    if (s.n_chunks > 1) {
        scan_totals<T, C, F><<<capped(n_items), SCAN_THREADS, 0, stream>>>(s, f, neutral);
        scan_carries<C, F><<<capped(s.n_rows), SCAN_THREADS, 0, stream>>>(s, f, neutral);
    }
    if (s.n <= SCAN_SHORT)
        scan_tiles<T, C, 8, F><<<capped((n_items + 31) / 32), SCAN_THREADS, 0, stream>>>(s, f, neutral);
    else if (s.n <= SCAN_BLOCK)
        scan_tiles<T, C, 32, F><<<capped((n_items + 7) / 8), SCAN_THREADS, 0, stream>>>(s, f, neutral);
    else scan_tiles<T, C, SCAN_THREADS, F><<<capped(n_items), SCAN_THREADS, 0, stream>>>(s, f, neutral);
}

template <class F> static bool run_scan(const tl_kernel_args *args, F f, int neutral) {
    if (!operands_known(args)) return false;
    scanning s;
    if (scan_begin(&s, args) == 0) return true;
    s.n_chunks = scan_chunks(s.n_rows, s.n);
    s.chunk = s.n_chunks > 1 ? SCAN_CHUNK : s.n;
    if (s.n_chunks == 1) s.carry = nullptr;
    else if (!workspace_holds(args, (size_t)(s.n_rows * s.n_chunks) * sizeof(double))) return false;
    const bool is_plain = s.x_dtype == s.out_dtype;
    const void *const addresses[] = {s.x, s.out};
    s.has_units = rows_are_units(SCAN_EACH, s.n, 2, addresses);
    if (is_plain && s.x_dtype == TL_F32) scan_launch<float>(args, s, f, (double)neutral);
    else if (is_plain && s.x_dtype == TL_BF16) scan_launch<bf16>(args, s, f, (double)neutral);
    else if (is_plain && s.x_dtype == TL_F16) scan_launch<f16>(args, s, f, (double)neutral);
    else if (is_plain && s.x_dtype == TL_I64) scan_launch<int64_t>(args, s, f, (int64_t)neutral);
    else if (dtype_is_float(s.out_dtype)) scan_launch<any_dtype>(args, s, f, (double)neutral);
    else scan_launch<any_dtype>(args, s, f, (int64_t)neutral);
    return true;
}

/* y = scale r + shift: how r at one place follows from r behind it. */
struct step {
    double scale, shift;
};
__device__ inline step shuffle_up(step x, int distance) {
    return {__shfl_up_sync(0xFFFFFFFFu, x.scale, distance), __shfl_up_sync(0xFFFFFFFFu, x.shift, distance)};
}
/* First `a`, then `b`. */
struct step_after {
    __device__ step operator()(step a, step b) const { return {a.scale * b.scale, b.scale * a.shift + b.shift}; }
};

__device__ inline double scan_slope(const scanning &s, int64_t row, int64_t at) {
    if (at >= s.n) return 0;
    if (!s.is_total) return load_as<double>(s.g, s.place(row, at), s.g_dtype);
    return at + 1 == s.n ? load_as<double>(s.g, row, s.g_dtype) : 0;
}

/* dx[k] = (product of x before k) r[k], r[k] = g[k] + x[k+1] r[k+1] (g[k+1] when exclusive). Tiles forwards for the
 * products before them, then backwards; in a tile, thread t handles position n_tile-1-t, so that r runs in the order
 * of the threads. */
__global__ void __launch_bounds__(SCAN_BLOCK) cumprod_grad_rows(scanning s) {
    __shared__ double room[32], product[SCAN_BLOCK + 1];
    __shared__ step step_room[32];
    const int64_t n_tiles = (s.n + blockDim.x - 1) / blockDim.x;
    for (int64_t row = blockIdx.x; row < s.n_rows; row += gridDim.x) {
        double *carry = s.carry + row * ((s.n + SCAN_BLOCK - 1) / SCAN_BLOCK);
        double before = 1;
        for (int64_t t = 0; t < n_tiles; t++) {
            const int64_t at = t * blockDim.x + threadIdx.x;
            const double x = at < s.n ? load_as<double>(s.x, s.place(row, at), s.x_dtype) : 1.0;
            double total;
            block_scan(x, product_of(), room, &total);
            if (threadIdx.x == 0) carry[t] = before;
            before *= total;
        }
        __syncthreads();
        double r_after = 0;
        for (int64_t t = n_tiles - 1; t >= 0; t--) {
            const int64_t first = t * blockDim.x, at = first + threadIdx.x;
            double total;
            const double x = at < s.n ? load_as<double>(s.x, s.place(row, at), s.x_dtype) : 1.0;
            const double here = block_scan(x, product_of(), room, &total);
            product[threadIdx.x + 1] = carry[t] * here;
            if (threadIdx.x == 0) product[0] = carry[t];
            /* Behind the row's end r is 0. */
            const int64_t k = first + blockDim.x - 1 - threadIdx.x;
            const double next = k + 1 < s.n ? load_as<double>(s.x, s.place(row, k + 1), s.x_dtype) : 0.0;
            const step mine = {next, scan_slope(s, row, s.is_exclusive ? k + 1 : k)};
            step all;
            const step so_far = block_scan(mine, step_after(), step_room, &all);
            __syncthreads();
            const double r = so_far.scale * r_after + so_far.shift;
            if (k < s.n) store_as<double>(s.out, s.place(row, k), s.out_dtype, product[k - first] * r);
            r_after = all.scale * r_after + all.shift;
            __syncthreads();
        }
    }
}

extern "C" {

bool cuda_argmax(const tl_kernel_args *args) { return run_place(args, false); }
bool cuda_argmin(const tl_kernel_args *args) { return run_place(args, true); }
bool cuda_var(const tl_kernel_args *args) {
    const struct attr_var *attr = (const struct attr_var *)args->attr;
    return run_fold_typed(args, fold_var{attr->correction, attr->is_root});
}
bool cuda_norm(const tl_kernel_args *args) {
    return run_fold(args, fold_norm{((const struct attr_vector_norm *)args->attr)->p});
}
bool cuda_logsumexp(const tl_kernel_args *args) {
    if (args->in[0].dtype == TL_F64) return run_fold(args, fold_logsumexp<double>());
    return run_fold(args, fold_logsumexp<float>());
}

bool cuda_cumsum(const tl_kernel_args *args) { return run_scan(args, sum_of(), 0); }
bool cuda_cumprod(const tl_kernel_args *args) { return run_scan(args, product_of(), 1); }
bool cuda_cumprod_grad(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    scanning s;
    if (scan_begin(&s, args) == 0) return true;
    const int64_t n_tiles = (s.n + SCAN_BLOCK - 1) / SCAN_BLOCK;
    if (!workspace_holds(args, (size_t)(s.n_rows * n_tiles) * sizeof(double))) return false;
    cumprod_grad_rows<<<capped(s.n_rows), scan_threads(s.n), 0, stream_of(args)>>>(s);
    return true;
}

} /* extern "C" */
