/* norm.cu: layer norm and RMS norm over the last axis C, and their gradients.
 *
 * Forward and dx: a block per row. Weight gradients are column sums over all rows, without atomics: rows are cut into
 * NORM_CHUNKS runs; pass one gives each (run, 32 columns) a block of 32 x 8 threads, whose eight row lanes are
 * added in order; pass two adds the runs in order. args->workspace holds the runs, dweight's (NORM_CHUNKS, C)
 * first, then dbias's, in the compute type.
 */
#include "device/cuda/common.cuh"

__device__ inline float rsqrt_of(float x) { return 1.0f / sqrtf(x); }
__device__ inline double rsqrt_of(double x) { return 1.0 / sqrt(x); }

static unsigned capped(int64_t blocks) { return (unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX); }

/* ---- Forward ------------------------------------------------------------------------------------------ */

/* y = (x - mean) rstd w + b; mean and variance in two passes, since the one-pass formula cancels. RMS: mean = 0. */
template <class T, class W, bool RMS>
__global__ void norm_rows(const T *x, const W *weight, const W *bias, T *y, typename compute_type<T>::type *mean_out,
                          typename compute_type<T>::type *rstd_out, int64_t n_rows, int64_t n, double eps) {
    typedef typename compute_type<T>::type C;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const T *from = x + row * n;
        C mean = 0;
        if (!RMS) {
            C sum = 0;
            for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += value_of<C>(from[i]);
            mean = block_reduce(sum, sum_of(), C(0)) / C(n);
        }
        C squares = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const C d = value_of<C>(from[i]) - mean;
            squares += d * d;
        }
        const C rstd = rsqrt_of(block_reduce(squares, sum_of(), C(0)) / C(n) + C(eps));
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            C value = (value_of<C>(from[i]) - mean) * rstd;
            if (weight) value *= value_of<C>(weight[i]);
            if (bias) value += value_of<C>(bias[i]);
            y[row * n + i] = conversion<T>::from(value);
        }
        if (threadIdx.x == 0) {
            if (!RMS) mean_out[row] = mean;
            rstd_out[row] = rstd;
        }
    }
}

/* ---- Gradients ---------------------------------------------------------------------------------------- */

/* With h = (x - mean) rstd and d = g w:  dx = rstd (d - avg(d) - h avg(d h)).  RMS has no avg(d). */
template <class T, class W, bool RMS>
__global__ void norm_dx_rows(const T *g, const T *x, const typename compute_type<T>::type *means,
                             const typename compute_type<T>::type *rstds, const W *weight, T *dx, int64_t n_rows,
                             int64_t n) {
    typedef typename compute_type<T>::type C;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const int64_t at = row * n;
        const C mean = RMS ? C(0) : means[row], rstd = rstds[row];
        C sum_d = 0, sum_dh = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const C d = value_of<C>(g[at + i]) * (weight ? value_of<C>(weight[i]) : C(1));
            sum_d += d;
            sum_dh += d * ((value_of<C>(x[at + i]) - mean) * rstd);
        }
        const C avg_d = RMS ? C(0) : block_reduce(sum_d, sum_of(), C(0)) / C(n);
        const C avg_dh = block_reduce(sum_dh, sum_of(), C(0)) / C(n);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const C d = value_of<C>(g[at + i]) * (weight ? value_of<C>(weight[i]) : C(1));
            const C h = (value_of<C>(x[at + i]) - mean) * rstd;
            dx[at + i] = conversion<T>::from(rstd * (d - avg_d - h * avg_dh));
        }
    }
}

enum { LANES = 8 };

/* dweight = sum over rows of g h, dbias = sum of g: the part of run blockIdx.y. Block (32, LANES). */
template <class T, bool RMS>
__global__ void __launch_bounds__(32 * LANES)
    norm_weight_runs(const T *g, const T *x, const typename compute_type<T>::type *means,
                     const typename compute_type<T>::type *rstds, typename compute_type<T>::type *dweight_runs,
                     typename compute_type<T>::type *dbias_runs, int64_t n_rows, int64_t n) {
    typedef typename compute_type<T>::type C;
    __shared__ C parts[2][LANES][33];
    const int64_t column = blockIdx.x * (int64_t)32 + threadIdx.x;
    const int64_t run_rows = (n_rows + NORM_CHUNKS - 1) / NORM_CHUNKS;
    const int64_t first = blockIdx.y * run_rows, last = min(n_rows, first + run_rows);
    C dweight = 0, dbias = 0;
    if (column < n)
        for (int64_t row = first + threadIdx.y; row < last; row += LANES) {
            const C gi = value_of<C>(g[row * n + column]);
            const C mean = RMS ? C(0) : means[row];
            dweight += gi * ((value_of<C>(x[row * n + column]) - mean) * rstds[row]);
            dbias += gi;
        }
    parts[0][threadIdx.y][threadIdx.x] = dweight;
    parts[1][threadIdx.y][threadIdx.x] = dbias;
    __syncthreads();
    if (threadIdx.y != 0 || column >= n) return;
    for (int lane = 1; lane < LANES; lane++) {
        dweight += parts[0][lane][threadIdx.x];
        dbias += parts[1][lane][threadIdx.x];
    }
    dweight_runs[blockIdx.y * n + column] = dweight;
    if (dbias_runs) dbias_runs[blockIdx.y * n + column] = dbias;
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

template <class T, class W, bool RMS> static bool norm_forward(const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    const rows r = rows_of(&args->in[0]);
    const W *weight = args->n_in > 1 ? (const W *)args->in[1].data : nullptr;
    const W *bias = args->n_in > 2 ? (const W *)args->in[2].data : nullptr;
    C *mean = RMS ? nullptr : (C *)args->out[1].data;
    C *rstd = (C *)args->out[RMS ? 1 : 2].data;
    if (r.n_rows == 0) return true;
    norm_rows<T, W, RMS><<<capped(r.n_rows), threads_for_row(r.n), 0, stream_of(args)>>>(
        (const T *)args->in[0].data, weight, bias, (T *)args->out[0].data, mean, rstd, r.n_rows, r.n,
        ((const struct attr_norm *)args->attr)->eps);
    return true;
}

template <class T, class W, bool RMS> static bool norm_backward(const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    const rows r = rows_of(&args->in[0]);
    const T *g = (const T *)args->in[0].data, *x = (const T *)args->in[1].data;
    const C *mean = RMS ? nullptr : (const C *)args->in[2].data;
    const C *rstd = (const C *)args->in[RMS ? 2 : 3].data;
    const int at_weight = RMS ? 3 : 4;
    const W *weight = args->n_in > at_weight ? (const W *)args->in[at_weight].data : nullptr;
    const cudaStream_t stream = stream_of(args);
    if (r.n_rows > 0)
        norm_dx_rows<T, W, RMS><<<capped(r.n_rows), threads_for_row(r.n), 0, stream>>>(
            g, x, mean, rstd, weight, (T *)args->out[0].data, r.n_rows, r.n);
    if (args->n_out < 2 || r.n == 0) return true;
    const size_t need = (size_t)NORM_CHUNKS * r.n * sizeof(C) * (args->n_out - 1);
    if (args->workspace_bytes < need) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op, need,
                 args->workspace_bytes);
        return false;
    }
    C *dweight_runs = (C *)args->workspace;
    C *dbias_runs = args->n_out > 2 ? dweight_runs + NORM_CHUNKS * r.n : nullptr;
    norm_weight_runs<T, RMS><<<dim3((unsigned)((r.n + 31) / 32), NORM_CHUNKS), dim3(32, LANES), 0, stream>>>(
        g, x, mean, rstd, dweight_runs, dbias_runs, r.n_rows, r.n);
    norm_runs_add<C><<<blocks_for(r.n), BLOCK, 0, stream>>>(dweight_runs, args->out[1].data, args->out[1].dtype, r.n);
    if (dbias_runs)
        norm_runs_add<C><<<blocks_for(r.n), BLOCK, 0, stream>>>(dbias_runs, args->out[2].data, args->out[2].dtype, r.n);
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

template <class T, class W> struct layer_forward {
    static bool run(const tl_kernel_args *args) { return norm_forward<T, W, false>(args); }
};
template <class T, class W> struct layer_backward {
    static bool run(const tl_kernel_args *args) { return norm_backward<T, W, false>(args); }
};
template <class T, class W> struct rms_forward {
    static bool run(const tl_kernel_args *args) { return norm_forward<T, W, true>(args); }
};
template <class T, class W> struct rms_backward {
    static bool run(const tl_kernel_args *args) { return norm_backward<T, W, true>(args); }
};

extern "C" {

bool cuda_layer_norm(const tl_kernel_args *args) { return norm_dispatch<layer_forward>(args, 0, 1); }
bool cuda_layer_norm_grad(const tl_kernel_args *args) { return norm_dispatch<layer_backward>(args, 1, 4); }
bool cuda_rms_norm(const tl_kernel_args *args) { return norm_dispatch<rms_forward>(args, 0, 1); }
bool cuda_rms_norm_grad(const tl_kernel_args *args) { return norm_dispatch<rms_backward>(args, 1, 3); }

} /* extern "C" */
