/* norm.cu: layer norm and RMS norm over the last axis C, and their gradients.
 *
 * Forward and dx: a block per row. Weight gradients are column sums over all rows, without atomics: rows are cut into
 * NORM_CHUNKS runs; pass one gives each (run, 32 columns or packs of them) a block of 32 x 8 threads, whose eight row
 * lanes are added in order; pass two adds the runs in order. args->workspace holds the runs, dweight's (NORM_CHUNKS,
 * C) first, then dbias's, in the compute type.
 */
#include "device/cuda/common.cuh"

__device__ inline float rsqrt_of(float x) { return 1.0f / sqrtf(x); }
__device__ inline double rsqrt_of(double x) { return 1.0 / sqrt(x); }

/* ---- Forward ------------------------------------------------------------------------------------------ */

/* y = (x - mean) rstd w + b; mean and variance in two passes, since the one-pass formula cancels. RMS: mean = 0. With a
 * residual, x is x + residual, rounded and written to sum first; a thread reads back what it wrote itself. */
template <class T, class W> struct norm_forward_rows {
    typedef typename compute_type<T>::type C;
    const T *x, *residual;
    const W *weight, *bias;
    T *sum, *y;
    C *mean, *rstd;
    int64_t n_rows, n;
    double eps;
};

template <class T, class W, bool RMS, int U>
__global__ void __launch_bounds__(512) norm_rows(norm_forward_rows<T, W> r) {
    typedef typename compute_type<T>::type C;
    const int64_t n_units = r.n / U;
    for (int64_t row = blockIdx.x; row < r.n_rows; row += gridDim.x) {
        const int64_t at = row * r.n;
        const T *from = r.residual ? r.sum + at : r.x + at;
        C total = 0;
        for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
            unit<T, U> a = unit_load<U>(r.x + at, i);
            if (r.residual) {
                const unit<T, U> b = unit_load<U>(r.residual + at, i);
                for (int j = 0; j < U; j++) a.v[j] = conversion<T>::from(value_of<C>(a.v[j]) + value_of<C>(b.v[j]));
                unit_store<U>(r.sum + at, i, a);
            }
            for (int j = 0; j < U; j++) total += RMS ? value_of<C>(a.v[j]) * value_of<C>(a.v[j]) : value_of<C>(a.v[j]);
        }
        total = block_reduce(total, sum_of(), C(0)) / C(r.n);
        const C mean = RMS ? C(0) : total;
        C variance = total;
        if (!RMS) {
            C squares = 0;
            for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
                const unit<T, U> a = unit_load<U>(from, i);
                for (int j = 0; j < U; j++) squares += (value_of<C>(a.v[j]) - mean) * (value_of<C>(a.v[j]) - mean);
            }
            variance = block_reduce(squares, sum_of(), C(0)) / C(r.n);
        }
        const C rstd = rsqrt_of(variance + C(r.eps));
        for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
            const unit<T, U> a = unit_load<U>(from, i);
            unit<W, U> w, b;
            unit<T, U> y;
            if (r.weight) w = unit_load<U>(r.weight, i);
            if (r.bias) b = unit_load<U>(r.bias, i);
            for (int j = 0; j < U; j++) {
                C value = (value_of<C>(a.v[j]) - mean) * rstd;
                if (r.weight) value *= value_of<C>(w.v[j]);
                if (r.bias) value += value_of<C>(b.v[j]);
                y.v[j] = conversion<T>::from(value);
            }
            unit_store<U>(r.y + at, i, y);
        }
        if (threadIdx.x == 0) {
            if (!RMS) r.mean[row] = mean;
            r.rstd[row] = rstd;
        }
    }
}

/* ---- Gradients ---------------------------------------------------------------------------------------- */

template <class T, class W> struct norm_backward_rows {
    typedef typename compute_type<T>::type C;
    const T *g, *g_sum, *x;
    const C *mean, *rstd;
    const W *weight;
    T *dx;
    int64_t n_rows, n;
};

/* With h = (x - mean) rstd and d = g w:  dx = rstd (d - avg(d) - h avg(d h)) [+ g_sum].  RMS has no avg(d). */
template <class T, class W, bool RMS, int U>
__global__ void __launch_bounds__(512) norm_dx_rows(norm_backward_rows<T, W> r) {
    typedef typename compute_type<T>::type C;
    const int64_t n_units = r.n / U;
    for (int64_t row = blockIdx.x; row < r.n_rows; row += gridDim.x) {
        const int64_t at = row * r.n;
        const C mean = RMS ? C(0) : r.mean[row], rstd = r.rstd[row];
        C sum_d = 0, sum_dh = 0;
        for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
            const unit<T, U> g = unit_load<U>(r.g + at, i), x = unit_load<U>(r.x + at, i);
            unit<W, U> w;
            if (r.weight) w = unit_load<U>(r.weight, i);
            for (int j = 0; j < U; j++) {
                const C d = value_of<C>(g.v[j]) * (r.weight ? value_of<C>(w.v[j]) : C(1));
                sum_d += d;
                sum_dh += d * ((value_of<C>(x.v[j]) - mean) * rstd);
            }
        }
        const C avg_d = RMS ? C(0) : block_reduce(sum_d, sum_of(), C(0)) / C(r.n);
        const C avg_dh = block_reduce(sum_dh, sum_of(), C(0)) / C(r.n);
        for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
            const unit<T, U> g = unit_load<U>(r.g + at, i), x = unit_load<U>(r.x + at, i);
            unit<W, U> w;
            unit<T, U> more, dx;
            if (r.weight) w = unit_load<U>(r.weight, i);
            if (r.g_sum) more = unit_load<U>(r.g_sum + at, i);
            for (int j = 0; j < U; j++) {
                const C d = value_of<C>(g.v[j]) * (r.weight ? value_of<C>(w.v[j]) : C(1));
                const C h = (value_of<C>(x.v[j]) - mean) * rstd;
                const C value = rstd * (d - avg_d - h * avg_dh);
                dx.v[j] = conversion<T>::from(r.g_sum ? value + value_of<C>(more.v[j]) : value);
            }
            unit_store<U>(r.dx + at, i, dx);
        }
    }
}

enum { LANES = 8, AHEAD = 4 };

/* dweight = sum over rows of g h, dbias = sum of g: the part of run blockIdx.y, for 32 units of columns. Block (32,
 * LANES): lane k takes rows k, k + LANES, ... of the run; AHEAD of them are asked for before the first is added. */
template <class T, bool RMS, int U>
__global__ void __launch_bounds__(32 * LANES)
    norm_weight_runs(const T *g, const T *x, const typename compute_type<T>::type *means,
                     const typename compute_type<T>::type *rstds, typename compute_type<T>::type *dweight_runs,
                     typename compute_type<T>::type *dbias_runs, int64_t n_rows, int64_t n) {
    typedef typename compute_type<T>::type C;
    __shared__ C parts[2][LANES][32];
    const int64_t column = blockIdx.x * (int64_t)32 + threadIdx.x; /* in units */
    const int64_t run_rows = (n_rows + NORM_CHUNKS - 1) / NORM_CHUNKS;
    const int64_t first = blockIdx.y * run_rows, last = min(n_rows, first + run_rows);
    C dweight[U], dbias[U];
    for (int j = 0; j < U; j++) dweight[j] = dbias[j] = 0;
    for (int64_t row = first + threadIdx.y; column < n / U && row < last; row += LANES * AHEAD) {
        unit<T, U> gs[AHEAD], xs[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (row + k * LANES >= last) continue;
            gs[k] = unit_load<U>(g + (row + k * LANES) * n, column);
            xs[k] = unit_load<U>(x + (row + k * LANES) * n, column);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (row + k * LANES >= last) continue;
            const C mean = RMS ? C(0) : means[row + k * LANES], rstd = rstds[row + k * LANES];
            for (int j = 0; j < U; j++) {
                const C gi = value_of<C>(gs[k].v[j]);
                dweight[j] += gi * ((value_of<C>(xs[k].v[j]) - mean) * rstd);
                dbias[j] += gi;
            }
        }
    }
    for (int j = 0; j < U; j++) {
        __syncthreads(); /* the column before has been read */
        parts[0][threadIdx.y][threadIdx.x] = dweight[j];
        parts[1][threadIdx.y][threadIdx.x] = dbias[j];
        __syncthreads();
        if (threadIdx.y != 0 || column >= n / U) continue;
        for (int lane = 1; lane < LANES; lane++) {
            dweight[j] += parts[0][lane][threadIdx.x];
            dbias[j] += parts[1][lane][threadIdx.x];
        }
        dweight_runs[blockIdx.y * n + column * U + j] = dweight[j];
        if (dbias_runs) dbias_runs[blockIdx.y * n + column * U + j] = dbias[j];
    }
}

template <class C>
__global__ void __launch_bounds__(BLOCK) norm_runs_add(const C *runs, void *out, tl_dtype dtype, int64_t n) {
    FOR_EACH(i, n) {
        C sum = runs[i];
        for (int run = 1; run < NORM_CHUNKS; run++) sum += runs[run * n + i];
        store_as<C>(out, i, dtype, sum);
    }
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

struct rows {
    int64_t n_rows, n;
};
static rows rows_of(const tl_operand *x) {
    const int64_t n = x->rank ? x->shape[x->rank - 1] : 1;
    return {n ? operand_numel(x) / n : 0, n};
}

/* Operands before and after the row's own: with a residual, x comes with it, sum before y, and g_sum after g. */
template <class T, class W, bool RMS, bool ADDS> static bool norm_forward(const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    const rows s = rows_of(&args->in[0]);
    const tl_operand *in = args->in + 1 + ADDS, *out = args->out + ADDS;
    const int n_more = args->n_in - 1 - ADDS;
    const norm_forward_rows<T, W> r = {(const T *)args->in[0].data,
                                       ADDS ? (const T *)args->in[1].data : nullptr,
                                       n_more > 0 ? (const W *)in[0].data : nullptr,
                                       n_more > 1 ? (const W *)in[1].data : nullptr,
                                       ADDS ? (T *)args->out[0].data : nullptr,
                                       (T *)out[0].data,
                                       RMS ? nullptr : (C *)out[1].data,
                                       (C *)out[RMS ? 1 : 2].data,
                                       s.n_rows,
                                       s.n,
                                       ((const struct attr_norm *)args->attr)->eps};
    if (s.n_rows == 0) return true;
    const void *const addresses[] = {r.x, r.residual, r.weight, r.bias, r.sum, r.y};
    const unsigned blocks = capped(s.n_rows);
    if (rows_are_packs(s.n, 6, addresses))
        norm_rows<T, W, RMS, PACK><<<blocks, threads_for_row(s.n / 2), 0, stream_of(args)>>>(r);
    else norm_rows<T, W, RMS, 1><<<blocks, threads_for_row(s.n), 0, stream_of(args)>>>(r);
    return true;
}

static bool workspace_has(const tl_kernel_args *args, size_t need) {
    if (args->workspace_bytes >= need) return true;
    snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op, need,
             args->workspace_bytes);
    return false;
}

template <class T, class W, bool RMS, bool ADDS> static bool norm_backward(const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    const rows s = rows_of(&args->in[0]);
    const tl_operand *in = args->in + 1 + ADDS; /* x, [mean,] rstd [, weight] */
    const int at_weight = RMS ? 2 : 3;
    const bool has_weight = args->n_in - 1 - ADDS > at_weight;
    const norm_backward_rows<T, W> r = {(const T *)args->in[0].data,
                                        ADDS ? (const T *)args->in[1].data : nullptr,
                                        (const T *)in[0].data,
                                        RMS ? nullptr : (const C *)in[1].data,
                                        (const C *)in[RMS ? 1 : 2].data,
                                        has_weight ? (const W *)in[at_weight].data : nullptr,
                                        (T *)args->out[0].data,
                                        s.n_rows,
                                        s.n};
    const cudaStream_t stream = stream_of(args);
    const void *const addresses[] = {r.g, r.g_sum, r.x, r.weight, r.dx};
    const bool packs = rows_are_packs(s.n, 5, addresses);
    if (s.n_rows > 0 && packs)
        norm_dx_rows<T, W, RMS, PACK><<<capped(s.n_rows), threads_for_row(s.n / 2), 0, stream>>>(r);
    else if (s.n_rows > 0) norm_dx_rows<T, W, RMS, 1><<<capped(s.n_rows), threads_for_row(s.n), 0, stream>>>(r);
    if (args->n_out < 2 || s.n == 0) return true;
    if (!workspace_has(args, (size_t)NORM_CHUNKS * s.n * sizeof(C) * (args->n_out - 1))) return false;
    C *dweight_runs = (C *)args->workspace;
    C *dbias_runs = args->n_out > 2 ? dweight_runs + NORM_CHUNKS * s.n : nullptr;
    const int64_t n_units = packs ? s.n / PACK : s.n;
    const dim3 grid((unsigned)((n_units + 31) / 32), NORM_CHUNKS), block(32, LANES);
    if (packs)
        norm_weight_runs<T, RMS, PACK>
            <<<grid, block, 0, stream>>>(r.g, r.x, r.mean, r.rstd, dweight_runs, dbias_runs, s.n_rows, s.n);
    else
        norm_weight_runs<T, RMS, 1>
            <<<grid, block, 0, stream>>>(r.g, r.x, r.mean, r.rstd, dweight_runs, dbias_runs, s.n_rows, s.n);
    norm_runs_add<C><<<blocks_for(s.n), BLOCK, 0, stream>>>(dweight_runs, args->out[1].data, args->out[1].dtype, s.n);
    if (dbias_runs)
        norm_runs_add<C><<<blocks_for(s.n), BLOCK, 0, stream>>>(dbias_runs, args->out[2].data, args->out[2].dtype, s.n);
    return true;
}

/* x (and g, y, dx) in one dtype; weights in the same or in f32. */
template <template <class, class> class LAUNCH>
static bool norm_dispatch(const tl_kernel_args *args, int at_x, int at_weight) {
    const tl_dtype t = args->in[at_x].dtype;
    const tl_dtype w = args->n_in > at_weight ? args->in[at_weight].dtype : t;
    if (args->out[0].dtype != t || args->in[0].dtype != t)
        return cuda_refuse_dtype(args, args->in[0].dtype != t ? args->in[0].dtype : args->out[0].dtype);
    if (t == TL_F64 && w == TL_F64) return LAUNCH<double, double>::run(args);
    if (t == TL_F32 && w == TL_F32) return LAUNCH<float, float>::run(args);
    if (t == TL_BF16 && w == TL_BF16) return LAUNCH<bf16, bf16>::run(args);
    if (t == TL_BF16 && w == TL_F32) return LAUNCH<bf16, float>::run(args);
    if (t == TL_F16 && w == TL_F16) return LAUNCH<f16, f16>::run(args);
    if (t == TL_F16 && w == TL_F32) return LAUNCH<f16, float>::run(args);
    return cuda_refuse_dtype(args, w);
}

/* Norms with a residual have their operands in one dtype too: sum and g_sum are x's. */
template <class T, class W> struct layer_forward {
    static bool run(const tl_kernel_args *args) { return norm_forward<T, W, false, false>(args); }
};
template <class T, class W> struct layer_backward {
    static bool run(const tl_kernel_args *args) { return norm_backward<T, W, false, false>(args); }
};
template <class T, class W> struct rms_forward {
    static bool run(const tl_kernel_args *args) { return norm_forward<T, W, true, false>(args); }
};
template <class T, class W> struct rms_backward {
    static bool run(const tl_kernel_args *args) { return norm_backward<T, W, true, false>(args); }
};
template <class T, class W> struct add_layer_forward {
    static bool run(const tl_kernel_args *args) { return norm_forward<T, W, false, true>(args); }
};
template <class T, class W> struct add_layer_backward {
    static bool run(const tl_kernel_args *args) { return norm_backward<T, W, false, true>(args); }
};
template <class T, class W> struct add_rms_forward {
    static bool run(const tl_kernel_args *args) { return norm_forward<T, W, true, true>(args); }
};
template <class T, class W> struct add_rms_backward {
    static bool run(const tl_kernel_args *args) { return norm_backward<T, W, true, true>(args); }
};

extern "C" {

bool cuda_layer_norm(const tl_kernel_args *args) { return norm_dispatch<layer_forward>(args, 0, 1); }
bool cuda_layer_norm_grad(const tl_kernel_args *args) { return norm_dispatch<layer_backward>(args, 1, 4); }
bool cuda_rms_norm(const tl_kernel_args *args) { return norm_dispatch<rms_forward>(args, 0, 1); }
bool cuda_rms_norm_grad(const tl_kernel_args *args) { return norm_dispatch<rms_backward>(args, 1, 3); }
bool cuda_add_layer_norm(const tl_kernel_args *args) { return norm_dispatch<add_layer_forward>(args, 1, 2); }
bool cuda_add_layer_norm_grad(const tl_kernel_args *args) { return norm_dispatch<add_layer_backward>(args, 2, 5); }
bool cuda_add_rms_norm(const tl_kernel_args *args) { return norm_dispatch<add_rms_forward>(args, 1, 2); }
bool cuda_add_rms_norm_grad(const tl_kernel_args *args) { return norm_dispatch<add_rms_backward>(args, 2, 4); }

} /* extern "C" */
