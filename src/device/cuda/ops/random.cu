/* random.cu: random numbers in place, permutations, categories.
 *
 * Orders come from sorting, as on the cpu (device/cpu/ops/random.c says why): a permutation is the order that sorts
 * its draws, and a sample without replacement is the order of arrival of exponential times. Draws, logarithm and
 * running sums have the bits of the CPU's, so the results do too. A running sum is one chain of additions: one thread
 * computes it in shared memory while the others of its block wait.
 */
#include "device/cuda/ops/elementwise.cuh"
#include "device/cuda/ops/random.cuh"
#include "device/cuda/ops/sort.cuh"

struct permutation_source {
    typedef uint64_t key_type;
    struct rng_key draws;
    uint64_t index;
    int64_t *out;
    __device__ uint64_t key(int64_t, int64_t i) const { return rng_wide_draw_at(draws, index + (uint64_t)i); }
    __device__ void put(int64_t, int64_t place, int64_t i) const { out[place] = i; }
};

/* ---- dropout -------------------------------------------------------------------------------------------- */

struct dropout_draws {
    struct rng_key key;
    uint64_t index, threshold;
    double growth; /* of what is kept */
};

template <class C> __global__ void __launch_bounds__(BLOCK) dropout_any(geometry<2> g, operands<2> o, dropout_draws d) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        const bool keeps = rng_bernoulli(rng_draw_at(d.key, d.index + (uint64_t)i), d.threshold);
        const C x = load_as<C>(o.data[1], at[1], o.dtype[1]);
        store_as<C>(o.data[0], at[0], o.dtype[0], keeps ? x * C(d.growth) : C(0));
    }
}

/* PACK elements: whole Philox blocks, since d.index is a multiple of four. */
template <class T>
__global__ void __launch_bounds__(BLOCK) dropout_packs(geometry<2> g, operands<2> o, dropout_draws d) {
    const float growth = (float)d.growth;
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        pack<T> x = pack_load<T>(o.data[1], at[1], g.stride[1][g.rank - 1] == 0), y;
#pragma unroll
        for (int k = 0; k < PACK; k += 4) {
            const rng_block block = rng_block_at(d.key, (d.index + (uint64_t)i * PACK + (uint64_t)k) / 4);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const bool keeps = rng_bernoulli(block.word[j], d.threshold);
                y.v[k + j] = conversion<T>::from(keeps ? value_of<float>(x.v[k + j]) * growth : 0.0f);
            }
        }
        *(pack<T> *)((T *)o.data[0] + at[0]) = y;
    }
}

/* ---- multinomial ---------------------------------------------------------------------------------------- */

struct weights {
    const void *data;
    tl_dtype dtype;
    int64_t n_rows, K, row_stride, stride;
    __device__ double at(int64_t row, int64_t k) const {
        return load_as<double>(data, row * row_stride + k * stride, dtype);
    }
};

/* A category of weight 0 arrives after all others. */
struct arrival_source {
    typedef uint64_t key_type;
    weights w;
    struct rng_key draws;
    uint64_t index;
    int64_t n_samples, *out;
    __device__ uint64_t key(int64_t row, int64_t k) const {
        const double weight = w.at(row, k);
        const double u =
            fma((double)(rng_wide_draw_at(draws, index + (uint64_t)(row * w.K + k)) >> 12), 0x1p-52, 0x1p-53);
        return weight > 0 ? f64_bits(-rng_log_f64(u) / weight)
                          : UINT64_MAX; /* positive doubles sort as their bits do */
    }
    __device__ void put(int64_t row, int64_t place, int64_t k) const { out[row * n_samples + place] = k; }
};

/* A block per row: reports invalid weights, and rows that cannot give n_needed different categories. */
__global__ void __launch_bounds__(BLOCK) weights_check(weights w, int64_t n_needed, struct cuda_fault *fault) {
    for (int64_t row = blockIdx.x; row < w.n_rows; row += gridDim.x) {
        int64_t n_positive = 0, n_wrong = 0;
        double sum = 0;
        for (int64_t k = threadIdx.x; k < w.K; k += blockDim.x) {
            const double weight = w.at(row, k);
            n_wrong += !(weight >= 0 && weight < (double)INFINITY);
            n_positive += weight > 0;
            sum += weight;
        }
        n_wrong = block_reduce(n_wrong, sum_of(), (int64_t)0);
        n_positive = block_reduce(n_positive, sum_of(), (int64_t)0);
        sum = block_reduce(sum, sum_of(), 0.0);
        if (threadIdx.x != 0) continue;
        if (n_wrong) fault_raise(fault, FAULT_WEIGHT, row, n_wrong);
        else if (n_positive < n_needed || !isfinite(sum)) fault_raise(fault, FAULT_WEIGHTS, row, n_positive);
    }
}

enum { TILE = 1024, STEP = 8 };

/* Running sums of a row in place: tile[k] becomes sum + tile[0] + ... + tile[k]; one thread. */
__device__ inline double chain(double *tile, int n, double sum, int64_t first, int64_t *last) {
    int k = 0;
    for (; k + STEP <= n; k += STEP) { /* loads first: only the additions wait for each other */
        double x[STEP];
        for (int j = 0; j < STEP; j++) x[j] = tile[k + j];
        for (int j = 0; j < STEP; j++) {
            if (x[j] > 0) *last = first + k + j;
            sum += x[j];
            tile[k + j] = sum;
        }
    }
    for (; k < n; k++) {
        if (tile[k] > 0) *last = first + k;
        tile[k] = sum += tile[k];
    }
    return sum;
}

/* With replacement, a block per row: the first category whose running sum exceeds u times the whole. below: (rows,
 * K). */
__global__ void __launch_bounds__(BLOCK)
    draw_rows(weights w, struct rng_key draws, uint64_t index, int64_t n_samples, double *below, int64_t *out) {
    __shared__ double tile[TILE], whole;
    __shared__ int64_t last_place;
    for (int64_t row = blockIdx.x; row < w.n_rows; row += gridDim.x) {
        double *sums = below + row * w.K, sum = 0;
        int64_t last = 0; /* however sums round, nothing of weight 0 is chosen */
        for (int64_t first = 0; first < w.K; first += TILE) {
            const int n = (int)min((int64_t)TILE, w.K - first);
            for (int k = threadIdx.x; k < n; k += blockDim.x) tile[k] = w.at(row, first + k);
            __syncthreads();
            if (threadIdx.x == 0) sum = chain(tile, n, sum, first, &last);
            __syncthreads();
            for (int k = threadIdx.x; k < n; k += blockDim.x) sums[first + k] = tile[k];
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            whole = sum;
            last_place = last;
        }
        __syncthreads();
        for (int64_t j = threadIdx.x; j < n_samples; j += blockDim.x) {
            const double target = rng_multiply_f64(
                rng_uniform_f64(rng_wide_draw_at(draws, index + (uint64_t)(row * n_samples + j))), whole);
            int64_t low = 0, high = last_place;
            while (low < high) {
                const int64_t middle = low + (high - low) / 2;
                if (sums[middle] > target) high = middle;
                else low = middle + 1;
            }
            out[row * n_samples + j] = low;
        }
        __syncthreads();
    }
}

extern "C" {

bool cuda_random_fill(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    random_operand(args, &args->out[0], *(const struct attr_random_fill *)args->attr);
    return true;
}

bool cuda_dropout(const tl_kernel_args *args) {
    const struct attr_dropout *attr = (const struct attr_dropout *)args->attr;
    if (!operands_known(args)) return false;
    const tl_operand *const list[2] = {&args->out[0], &args->in[0]};
    const geometry<2> g = geometry_of<2>(list);
    const operands<2> o = operands_of<2>(list);
    const dropout_draws d = {{attr->generator.seed, attr->generator.stream},
                             attr->generator.index,
                             rng_threshold(1 - attr->p),
                             1 / (1 - attr->p)};
    const cudaStream_t stream = stream_of(args);
    const tl_dtype t = o.dtype[0];
    if (g.numel == 0) return true;
    if (can_pack(g, o) && (t == TL_F32 || t == TL_BF16 || t == TL_F16)) {
        const geometry<2> packs = geometry_in_packs(g);
        const unsigned blocks = blocks_for(packs.numel);
        if (t == TL_F32) dropout_packs<float><<<blocks, BLOCK, 0, stream>>>(packs, o, d);
        else if (t == TL_BF16) dropout_packs<bf16><<<blocks, BLOCK, 0, stream>>>(packs, o, d);
        else dropout_packs<f16><<<blocks, BLOCK, 0, stream>>>(packs, o, d);
        return true;
    }
    if (compute_of(t) == COMPUTE_F64) dropout_any<double><<<blocks_for(g.numel), BLOCK, 0, stream>>>(g, o, d);
    else if (compute_of(t) == COMPUTE_F32) dropout_any<float><<<blocks_for(g.numel), BLOCK, 0, stream>>>(g, o, d);
    else return cuda_refuse_dtype(args, t);
    return true;
}

bool cuda_permutation(const tl_kernel_args *args) {
    const tl_generator g = ((const struct attr_permutation *)args->attr)->generator;
    const int64_t n = args->out[0].shape[0];
    const permutation_source source = {{g.seed, g.stream}, g.index, (int64_t *)args->out[0].data};
    return sort_lines(args, source, 1, n, n, 1);
}

bool cuda_multinomial(const tl_kernel_args *args) {
    const struct attr_multinomial *attr = (const struct attr_multinomial *)args->attr;
    const tl_operand *p = &args->in[0];
    if (!operands_known(args)) return false;
    const int last = p->rank - 1;
    const weights w = {p->data,        p->dtype, last ? p->shape[0] : 1, p->shape[last], last ? p->stride[0] : 0,
                       p->stride[last]};
    const struct rng_key draws = {attr->generator.seed, attr->generator.stream};
    int64_t *out = (int64_t *)args->out[0].data;
    if (w.n_rows == 0) return true;
    weights_check<<<capped(w.n_rows), BLOCK, 0, stream_of(args)>>>(w, attr->has_replacement ? 1 : attr->n_samples,
                                                                   fault_of(args));
    if (!attr->has_replacement) {
        const arrival_source source = {w, draws, attr->generator.index, attr->n_samples, out};
        const int64_t n_slots = w.n_rows < SORT_SLOTS ? w.n_rows : SORT_SLOTS;
        return sort_lines(args, source, w.n_rows, w.K, attr->n_samples, n_slots);
    }
    if (args->workspace_bytes < (size_t)(w.n_rows * w.K) * sizeof(double)) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    draw_rows<<<capped(w.n_rows), BLOCK, 0, stream_of(args)>>>(w, draws, attr->generator.index, attr->n_samples,
                                                               (double *)args->workspace, out);
    return true;
}

} /* extern "C" */
