/* reduce_softmax.cu: softmax and log-softmax along an axis, and their gradients.
 *
 * Lines that are dense are rows: a warp or a block has one, and keeps it in registers unless it is too long. Lines
 * whose neighbours in memory belong to other lines are columns: a block has some side by side.
 */
#include "device/cuda/shared/line_pack.cuh"

enum { HELD_FEW = 4, HELD_BLOCK = 16, HELD_WARP = 32, HELD_WARPS = 4, HELD_PACKS = 4 };

/* ---- Rows -------------------------------------------------------------------------------------------------- */

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
            first[k] = (thread + k * n_threads) * PACK - line_shift(row);
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
            q.bits = *(const uint4 *)(gs + q.first);
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

/* Calls f with the number of elements that a lane keeps of a row of n, which a warp has: those that it has not cost as
 * much as others. */
template <int HELD> struct held_elements {
    enum { N = HELD };
};
template <class F> static void by_elements(int64_t n, F f) {
    if (n <= 32 * HELD_FEW) f(held_elements<HELD_FEW>());
    else if (n <= 64 * HELD_FEW) f(held_elements<2 * HELD_FEW>());
    else if (n <= 128 * HELD_FEW) f(held_elements<4 * HELD_FEW>());
    else f(held_elements<HELD_WARP>());
}

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
    else if (n <= 32 * HELD_WARP)
        by_elements(n, [&](auto held) {
            softmax_held<T, LOG, true, decltype(held)::N>
                <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(x, y, n_rows, (unsigned)n);
        });
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
    else if (n <= 32 * HELD_WARP)
        by_elements(n, [&](auto held) {
            softmax_grad_held<T, LOG, true, decltype(held)::N>
                <<<warp_blocks(n_rows), 32 * HELD_WARPS, 0, stream_of(args)>>>(y, g, dx, n_rows, (unsigned)n);
        });
    else if (const int threads = threads_to_hold(n))
        softmax_grad_held<T, LOG, false, HELD_BLOCK>
            <<<blocks, threads, 0, stream_of(args)>>>(y, g, dx, n_rows, (unsigned)n);
    else softmax_grad_rows<T, 1, LOG><<<blocks, threads_for_row(n), 0, stream_of(args)>>>(y, g, dx, n_rows, n);
}

/* ---- Columns -----------------------------------------------------------------------------------------------
 *
 * A dense array (outer, n, inner), over n. A block has `width` neighbouring columns, and a thread of it every
 * (COLUMN_THREADS / width)-th element of one, of which it keeps the first COLUMN_HELD; it reads the others twice,
 * COLUMN_HELD at a time.
 */
enum { COLUMN_THREADS = 512, COLUMN_HELD = 8 };

/* Blocks that a multiprocessor has registers for; f64 needs those of both. */
template <class T> constexpr int column_blocks() { return sizeof(T) < 8 ? 2 : 1; }

struct columns {
    int64_t n_outer, n, inner;
    int width;
};

/* A thread's part of a column: elements row, row + n_rows, ..., and where the column's first is. */
struct column_part {
    int64_t base, stride, n;
    int row, n_rows;
    bool is_there;
    __device__ column_part(const columns &c, int64_t group, int64_t n_groups) {
        const int64_t outer = group / n_groups, column = (group - outer * n_groups) * c.width + threadIdx.x % c.width;
        is_there = column < c.inner;
        base = outer * c.n * c.inner + min(column, c.inner - 1); /* one that does not exist repeats the last */
        stride = c.inner;
        n = c.n;
        row = threadIdx.x / c.width;
        n_rows = COLUMN_THREADS / c.width;
    }
    /* COLUMN_HELD elements from the i-th on; behind the end they are any. */
    template <class T> __device__ void load(const T *x, int64_t i, T (&v)[COLUMN_HELD]) const {
#pragma unroll
        for (int k = 0; k < COLUMN_HELD; k++) v[k] = x[base + min(i + k * n_rows, n - 1) * stride];
    }
    template <class T> __device__ void store(T *y, int64_t i, const T (&v)[COLUMN_HELD]) const {
#pragma unroll
        for (int k = 0; k < COLUMN_HELD; k++)
            if (is_there && i + k * n_rows < n) y[base + (i + k * n_rows) * stride] = v[k];
    }
    __device__ bool has(int64_t i, int k) const { return i + k * n_rows < n; }
    __device__ int64_t step() const { return (int64_t)COLUMN_HELD * n_rows; }
};

/* Joins the parts of each column, in a tree; every thread gets its column's. */
template <class X, class F> __device__ inline X column_reduce(X x, int width, const F &f) {
    __shared__ X parts[COLUMN_THREADS];
    __syncthreads(); /* an earlier call may still be reading */
    parts[threadIdx.x] = x;
    __syncthreads();
    for (int half = COLUMN_THREADS / 2; half >= width; half /= 2) {
        if ((int)threadIdx.x < half) parts[threadIdx.x] = f(parts[threadIdx.x], parts[threadIdx.x + half]);
        __syncthreads();
    }
    return parts[threadIdx.x % width];
}

/* Two sums of exponentials as one, relative to the larger maximum (line_running in line_pack.cuh). */
template <class E> struct running_join {
    template <class C> static __device__ C grown(const running<C> &r, C top) {
        const C shift = top == lowest<C>() ? C(0) : top;
        return r.top == top ? r.sum : r.sum * E::of(r.top - shift);
    }
    template <class C> __device__ running<C> operator()(const running<C> &a, const running<C> &b) const {
        const C top = max_of()(a.top, b.top);
        return {top, grown(a, top) + grown(b, top)};
    }
};

template <class T, class C>
__device__ inline running<C> running_of(const column_part &p, int64_t i, const T (&v)[COLUMN_HELD]) {
    C top = lowest<C>(), sum = 0;
#pragma unroll
    for (int k = 0; k < COLUMN_HELD; k++)
        if (p.has(i, k)) top = max_of()(top, value_of<C>(v[k]));
    const C shift = top == lowest<C>() ? C(0) : top;
#pragma unroll
    for (int k = 0; k < COLUMN_HELD; k++)
        if (p.has(i, k)) sum += row_exp<T>::of(value_of<C>(v[k]) - shift);
    return {top, sum};
}

template <class T, bool LOG>
__global__ void __launch_bounds__(COLUMN_THREADS, column_blocks<T>()) softmax_columns(const T *x, T *y, columns c) {
    typedef typename compute_type<T>::type C;
    const running_join<row_exp<T>> join;
    const int64_t n_groups = (c.inner + c.width - 1) / c.width;
    for (int64_t group = blockIdx.x; group < c.n_outer * n_groups; group += gridDim.x) {
        const column_part p(c, group, n_groups);
        T held[COLUMN_HELD];
        p.load(x, p.row, held);
        running<C> all = running_of<T, C>(p, p.row, held);
        for (int64_t i = p.row + p.step(); i < p.n; i += p.step()) {
            T v[COLUMN_HELD];
            p.load(x, i, v);
            all = join(all, running_of<T, C>(p, i, v));
        }
        all = column_reduce(all, c.width, join);
        const C shift = LOG && all.top == lowest<C>() ? C(0) : all.top;
        const C log_sum = LOG ? log_of(all.sum) : C(0), share = C(1) / all.sum;
        for (int64_t i = p.row; i < p.n; i += p.step()) {
            if (i != p.row) p.load(x, i, held);
#pragma unroll
            for (int k = 0; k < COLUMN_HELD; k++) {
                const C d = value_of<C>(held[k]) - shift;
                held[k] = conversion<T>::from(LOG ? d - log_sum : row_exp<T>::of(d) * share);
            }
            p.store(y, i, held);
        }
    }
}

template <class T, bool LOG>
__global__ void __launch_bounds__(COLUMN_THREADS, column_blocks<T>())
    softmax_grad_columns(const T *y, const T *g, T *dx, columns c) {
    typedef typename compute_type<T>::type C;
    const int64_t n_groups = (c.inner + c.width - 1) / c.width;
    for (int64_t group = blockIdx.x; group < c.n_outer * n_groups; group += gridDim.x) {
        const column_part p(c, group, n_groups);
        T ys[COLUMN_HELD], gs[COLUMN_HELD];
        C dot = 0;
        for (int64_t i = p.row; i < p.n; i += p.step()) {
            if (!LOG) p.load(y, i, ys);
            p.load(g, i, gs);
#pragma unroll
            for (int k = 0; k < COLUMN_HELD; k++)
                if (p.has(i, k)) dot += LOG ? value_of<C>(gs[k]) : value_of<C>(gs[k]) * value_of<C>(ys[k]);
        }
        dot = column_reduce(dot, c.width, sum_of());
        const bool is_kept = p.n <= p.step(); /* by all threads */
        for (int64_t i = p.row; i < p.n; i += p.step()) {
            if (LOG || !is_kept) p.load(y, i, ys);
            if (!is_kept) p.load(g, i, gs);
#pragma unroll
            for (int k = 0; k < COLUMN_HELD; k++) {
                const C gi = value_of<C>(gs[k]), yi = value_of<C>(ys[k]);
                gs[k] = conversion<T>::from(LOG ? gi - row_exp<T>::of(yi) * dot : yi * (gi - dot));
            }
            p.store(dx, i, gs);
        }
    }
}

/* Columns of a block: so many that its threads keep them, but at least as many as make accesses dense, unless there
 * are few columns or few blocks for 132 multiprocessors. The same on every card, so that the bits are. */
static int column_width(int64_t n_outer, int64_t n, int64_t inner) {
    int width = COLUMN_THREADS;
    while (width > 1 && width / 2 >= inner) width /= 2;
    while (width > 32 && (int64_t)COLUMN_THREADS / width * COLUMN_HELD < n) width /= 2;
    while (width > 1 && (int64_t)COLUMN_THREADS / width * COLUMN_HELD < n &&
           (inner + width - 1) / width * n_outer < (width > 16  ? 264
                                                    : width > 4 ? 132
                                                                : 66))
        width /= 2;
    return width;
}

template <class T, bool LOG, bool GRAD> static void columns_launch(const tl_kernel_args *args, columns c) {
    const T *x = (const T *)args->in[0].data;
    T *y = (T *)args->out[0].data;
    c.width = column_width(c.n_outer, c.n, c.inner);
    const unsigned blocks = capped(c.n_outer * ((c.inner + c.width - 1) / c.width));
    if constexpr (GRAD)
        softmax_grad_columns<T, LOG>
            <<<blocks, COLUMN_THREADS, 0, stream_of(args)>>>(x, (const T *)args->in[1].data, y, c);
    else softmax_columns<T, LOG><<<blocks, COLUMN_THREADS, 0, stream_of(args)>>>(x, y, c);
}

template <class T, bool LOG, bool GRAD> static bool softmax_typed(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const int axis = ((const struct attr_softmax *)args->attr)->axis;
    const int64_t n = x->shape[axis], n_lines = operand_numel(x) / n;
    int64_t inner = 1;
    for (int i = axis + 1; i < x->rank; i++) inner *= x->shape[i];
    if (inner > 1) columns_launch<T, LOG, GRAD>(args, {n_lines / inner, n, inner, 0});
    else if (GRAD) softmax_grad_launch<T, LOG>(args, n_lines, n);
    else softmax_launch<T, LOG>(args, n_lines, n);
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

bool cuda_softmax(const tl_kernel_args *args) { return softmax<false, false>(args); }
bool cuda_softmax_grad(const tl_kernel_args *args) { return softmax<false, true>(args); }
bool cuda_log_softmax(const tl_kernel_args *args) { return softmax<true, false>(args); }
bool cuda_log_softmax_grad(const tl_kernel_args *args) { return softmax<true, true>(args); }

} /* extern "C" */
