/* adafactor.cu: Adafactor's step of a parameter (the formulas are in spec/attr.h).
 *
 * Sums have a fixed order: a block has a line, whose threads' sums are added by block_reduce; a thread has a column of
 * a run of lines, and another adds the runs. So the same call gives the same bits; the CPU adds in another order. The
 * scale of g and the factor of u stay on the device: where one is not finite, threads end before they have changed
 * anything that must stay.
 */
#include "device/cuda/shared/common.cuh"

#include "base/rng_math.h"
#include "device/cuda/shared/rounding.cuh"
#include "spec/adafactor.h"

struct adafactor {
    struct adafactor_sizes sizes;
    const void *g;
    void *p, *state[2], *master; /* row and column, or the variance; master NULL: none */
    tl_dtype g_dtype, p_dtype;
    const float *scale;                          /* NULL: 1 */
    double *p_sums, *u_sums, *means, *factor;    /* of the workspace, as is */
    void *columns;                               /* sums of squares by column */
    double weight, eps1, eps2, d, largest, keep; /* largest: min(lr, 1 / sqrt(step)) */
    bool is_stochastic;
    struct rng_key key;
    uint64_t index;
};

__device__ inline double scale_of(const adafactor &a) { return a.scale ? (double)*a.scale : 1.0; }

template <class C> __device__ inline C p_load(const adafactor &a, int64_t i) {
    return a.master ? ((const C *)a.master)[i] : load_as<C>(a.p, i, a.p_dtype);
}

/* As torch.lerp. */
template <class C> __device__ inline C mixed(C from, C to, double weight) {
    return weight < 0.5 ? from + (C)weight * (to - from) : to - (to - from) * (C)(1 - weight);
}

__device__ inline float root_of(float x) { return sqrtf(x); }
__device__ inline double root_of(double x) { return sqrt(x); }

/* u over the scale. NaN stays. Of a matrix, 1 / sqrt(v) is the product of row's and column's, as on the CPU. */
template <class C> __device__ inline C update_at(const adafactor &a, int64_t line, int64_t c) {
    const C g = load_as<C>(a.g, line * a.sizes.columns + c, a.g_dtype), least = (C)(a.eps1 * a.eps1);
    if (!a.sizes.is_factored) {
        const C v = ((const C *)a.state[0])[c];
        return g / root_of(v < least ? least : v);
    }
    const int64_t matrix = line / a.sizes.rows;
    const C row = ((const C *)a.state[0])[line] / (C)a.means[matrix], most = (C)(1 / a.eps1);
    const C by = 1 / root_of(row) * ((const C *)a.columns)[matrix * a.sizes.runs * a.sizes.columns + c];
    return g * (by > most ? most : by);
}

/* ---- Squares of g and of p ------------------------------------------------------------------------------ */

/* A block per line: its moment, and the sum of p^2. Of a vector, the variance. */
template <class C> __global__ void squares_of_lines(adafactor a) {
    const double scale = scale_of(a);
    const int64_t columns = a.sizes.columns;
    if (!isfinite(scale)) return;
    for (int64_t line = blockIdx.x; line < a.sizes.lines; line += gridDim.x) {
        double total = 0, p_total = 0;
        for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
            const C g = load_as<C>(a.g, line * columns + c, a.g_dtype), p = p_load<C>(a, line * columns + c);
            total += (double)(g * g);
            p_total += (double)(p * p);
            if (a.sizes.is_factored) continue;
            C *v = (C *)a.state[0] + c;
            *v = mixed<C>(*v, g * g * (C)(scale * scale), a.weight);
        }
        total = block_reduce(total, sum_of(), 0.0);
        p_total = block_reduce(p_total, sum_of(), 0.0);
        if (threadIdx.x != 0) continue;
        a.p_sums[line] = p_total;
        if (!a.sizes.is_factored) continue;
        C *row = (C *)a.state[0] + line;
        *row = mixed<C>(*row, (C)(total / (double)columns * scale * scale), a.weight);
    }
}

/* A thread per column of a run. */
template <class C> __global__ void __launch_bounds__(BLOCK) squares_of_columns(adafactor a) {
    const int64_t columns = a.sizes.columns, runs = a.sizes.runs;
    if (!isfinite(scale_of(a))) return;
    FOR_EACH(i, a.sizes.n_matrices * runs * columns) {
        const int64_t unit = i / columns, c = i % columns, matrix = unit / runs, from = unit % runs * ADAFACTOR_RUN;
        const int64_t to = min(from + (int64_t)ADAFACTOR_RUN, a.sizes.rows);
        C total = 0;
        for (int64_t r = from; r < to; r++) {
            const C g = load_as<C>(a.g, (matrix * a.sizes.rows + r) * columns + c, a.g_dtype);
            total += g * g;
        }
        ((C *)a.columns)[i] = total;
    }
}

/* A thread per column of a matrix: its moment. One over its root replaces the first run's sum. */
template <class C> __global__ void __launch_bounds__(BLOCK) columns_finish(adafactor a) {
    const int64_t columns = a.sizes.columns, runs = a.sizes.runs;
    const double scale = scale_of(a);
    if (!isfinite(scale)) return;
    FOR_EACH(i, a.sizes.n_matrices * columns) {
        C *sums = (C *)a.columns + i / columns * runs * columns + i % columns, *column = (C *)a.state[1] + i;
        double total = 0;
        for (int64_t run = 0; run < runs; run++) total += (double)sums[run * columns];
        *column = mixed<C>(*column, (C)(total / (double)a.sizes.rows * scale * scale), a.weight);
        *sums = 1 / root_of(*column);
    }
}

/* A block per matrix: the mean of its rows' moments. NaN stays. */
template <class C> __global__ void __launch_bounds__(BLOCK) means_find(adafactor a) {
    if (!isfinite(scale_of(a))) return;
    for (int64_t m = blockIdx.x; m < a.sizes.n_matrices; m += gridDim.x) {
        double total = 0;
        for (int64_t r = threadIdx.x; r < a.sizes.rows; r += blockDim.x)
            total += (double)((const C *)a.state[0])[m * a.sizes.rows + r];
        const double mean = block_reduce(total, sum_of(), 0.0) / (double)a.sizes.rows;
        if (threadIdx.x == 0) a.means[m] = mean < a.eps1 ? a.eps1 : mean;
    }
}

/* ---- u and p -------------------------------------------------------------------------------------------- */

template <class C> __global__ void update_squares(adafactor a) {
    if (!isfinite(scale_of(a))) return;
    for (int64_t line = blockIdx.x; line < a.sizes.lines; line += gridDim.x) {
        double total = 0;
        for (int64_t c = threadIdx.x; c < a.sizes.columns; c += blockDim.x) {
            const C u = update_at<C>(a, line, c);
            total += (double)(u * u);
        }
        total = block_reduce(total, sum_of(), 0.0);
        if (threadIdx.x == 0) a.u_sums[line] = total;
    }
}

/* One block: largest max(eps2, rms(p)) scale / max(1, rms(scale u) / d). NaN stays. */
__global__ void __launch_bounds__(1024) factor_find(adafactor a) {
    const double scale = scale_of(a), numel = (double)a.sizes.numel;
    double p_total = 0, u_total = 0;
    if (!isfinite(scale)) return;
    for (int64_t line = threadIdx.x; line < a.sizes.lines; line += blockDim.x) {
        p_total += a.p_sums[line];
        u_total += a.u_sums[line];
    }
    p_total = block_reduce(p_total, sum_of(), 0.0);
    u_total = block_reduce(u_total, sum_of(), 0.0);
    if (threadIdx.x != 0) return;
    const double size = sqrt(p_total / numel), clip = scale * sqrt(u_total / numel) / a.d;
    *a.factor = a.largest * (size < a.eps2 ? a.eps2 : size) * scale / (clip < 1 ? 1 : clip);
}

template <class C> __global__ void __launch_bounds__(BLOCK) steps(adafactor a) {
    if (!isfinite(scale_of(a)) || !isfinite(*a.factor)) return;
    const C keep = (C)a.keep, factor = (C)*a.factor;
    FOR_EACH(i, a.sizes.numel) {
        const C u = update_at<C>(a, i / a.sizes.columns, i % a.sizes.columns);
        const C p = p_load<C>(a, i) * keep - factor * u;
        if (a.master) ((C *)a.master)[i] = p;
        if (a.is_stochastic) store_rounded(a.p, i, a.p_dtype, p, rng_draw_at(a.key, a.index + (uint64_t)i));
        else store_as<C>(a.p, i, a.p_dtype, p);
    }
}

/* ---- Launching -------------------------------------------------------------------------------------------- */

template <class C> static void launch(const adafactor &a, cudaStream_t stream) {
    const struct adafactor_sizes &s = a.sizes;
    const unsigned lines = capped(s.lines), threads = (unsigned)threads_for_row(s.columns);
    squares_of_lines<C><<<lines, threads, 0, stream>>>(a);
    if (s.is_factored) {
        squares_of_columns<C><<<blocks_for(s.n_matrices * s.runs * s.columns), BLOCK, 0, stream>>>(a);
        columns_finish<C><<<blocks_for(s.n_matrices * s.columns), BLOCK, 0, stream>>>(a);
        means_find<C><<<capped(s.n_matrices), BLOCK, 0, stream>>>(a);
    }
    update_squares<C><<<lines, threads, 0, stream>>>(a);
    factor_find<<<1, 1024, 0, stream>>>(a);
    steps<C><<<blocks_for(s.numel), BLOCK, 0, stream>>>(a);
}

extern "C" bool cuda_adafactor(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const struct attr_adafactor *attr = (const struct attr_adafactor *)args->attr;
    const tl_adafactor_options *o = &attr->options;
    const tl_operand *p = &args->in[0];
    adafactor a = {};
    a.sizes = adafactor_sizes_of(p->rank, p->shape);
    if (!a.sizes.numel) return true;
    const struct adafactor_room room = adafactor_room_of(&a.sizes, p->dtype == TL_F64);
    if (args->workspace_bytes < room.all) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    const int n_states = a.sizes.is_factored ? 2 : 1;
    char *workspace = (char *)args->workspace;
    a.p = p->data;
    a.p_dtype = p->dtype;
    a.g = args->in[1].data;
    a.g_dtype = args->in[1].dtype;
    for (int i = 0; i < n_states; i++) a.state[i] = args->in[2 + i].data;
    if (attr->update.has_master) a.master = args->in[2 + n_states].data;
    if (attr->update.has_scale) a.scale = (const float *)args->in[args->n_in - 1].data;
    a.p_sums = (double *)(workspace + room.p_sums);
    a.u_sums = (double *)(workspace + room.u_sums);
    a.means = (double *)(workspace + room.means);
    a.factor = (double *)(workspace + room.factor);
    a.columns = workspace + room.columns;
    a.weight = pow((double)o->step, o->beta2_decay);
    a.eps1 = attr->eps1;
    a.eps2 = o->eps2;
    a.d = o->d;
    a.largest = fmin(o->lr, 1 / sqrt((double)o->step));
    a.keep = 1 - o->lr * o->weight_decay;
    a.is_stochastic = attr->update.is_stochastic;
    a.key = {attr->update.generator.seed, attr->update.generator.stream};
    a.index = attr->update.generator.index;
    if (p->dtype == TL_F64) launch<double>(a, stream_of(args));
    else launch<float>(a, stream_of(args));
    return true;
}
