/* random.cu: random numbers in place, permutations, categories.
 *
 * Orders come from sorting, as on the cpu (device/cpu/ops/random.c says why): a permutation is the order that sorts
 * its draws, and a sample without replacement is the order of arrival of exponential times. Draws, logarithm and
 * running sums have the bits of the CPU's, so the results do too.
 */
#include "device/cuda/shared/dropout.cuh"
#include "device/cuda/ops/elementwise.cuh"
#include "device/cuda/ops/random.cuh"
#include "device/cuda/ops/sort.cuh"

#include <type_traits>

/* Sorted by the upper halves of the draws, of which few are equal. */
struct permutation_source {
    typedef uint32_t key_type;
    struct line {};
    struct rng_key draws;
    uint64_t index;
    int64_t *out;
    __device__ uint64_t draw(int64_t i) const { return rng_wide_draw_at(draws, index + (uint64_t)i); }
    __device__ line begin(int64_t) const { return {}; }
    __device__ uint32_t key(line, int64_t i) const { return (uint32_t)(draw(i) >> 32); }
    __device__ void put(line, int64_t place, int64_t i, uint32_t) const { out[place] = i; }
};

/* Runs of equal keys, by whole draws, ties by index: the thread that has the first of a run sorts it. Meanwhile others
 * find the same key wherever they look into it. */
__global__ void __launch_bounds__(BLOCK) permutation_mend(permutation_source source, int64_t n) {
    int64_t *out = source.out;
    FOR_EACH(first, n) {
        const uint32_t key = source.key({}, out[first]);
        if (first > 0 && source.key({}, out[first - 1]) == key) continue;
        for (int64_t end = first + 1; end < n && source.key({}, out[end]) == key; end++) {
            const int64_t moved = out[end];
            const uint64_t draw = source.draw(moved);
            int64_t to = end;
            for (; to > first; to--) {
                const int64_t other = out[to - 1];
                const uint64_t before = source.draw(other);
                if (before < draw || (before == draw && other < moved)) break;
                out[to] = other;
            }
            out[to] = moved;
        }
    }
}

/* ---- dropout -------------------------------------------------------------------------------------------- */

template <class C> __global__ void __launch_bounds__(BLOCK) dropout_any(geometry<2> g, operands<2> o, dropout_draws d) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        C x[1] = {load_as<C>(o.data[1], at[1], o.dtype[1])};
        drop_unit(d, dropped_bits<1>(d, i), x);
        store_as<C>(o.data[0], at[0], o.dtype[0], x[0]);
    }
}

/* PACK elements at once; what is left behind the last pack of a single axis, one by one. */
template <class T>
__global__ void __launch_bounds__(BLOCK) dropout_packs(geometry<2> g, int tail, operands<2> o, dropout_draws d) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        pack<T> x = pack_load<T>(o.data[1], at[1], g.stride[1][g.rank - 1] == 0), y;
        float v[PACK];
        for (int j = 0; j < PACK; j++) v[j] = value_of<float>(x.v[j]);
        drop_unit(d, dropped_bits<PACK>(d, i * PACK), v);
        for (int j = 0; j < PACK; j++) y.v[j] = conversion<T>::from(v[j]);
        *(pack<T> *)((T *)o.data[0] + at[0]) = y;
    }
    if (has_tail_element(tail)) {
        int64_t at[2];
        tail_offsets(g, threadIdx.x, at);
        float x[1] = {value_of<float>(((const T *)o.data[1])[at[1]])};
        drop_unit(d, dropped_bits<1>(d, g.numel * PACK + threadIdx.x), x);
        ((T *)o.data[0])[at[0]] = conversion<T>::from(x[0]);
    }
}

template <class T>
static void dropout_pack_launch(const geometry<2> &g, const operands<2> &o, const dropout_draws &d,
                                cudaStream_t stream) {
    const geometry<2> packs = geometry_in_packs(g);
    const int tail = (int)(g.numel - packs.numel * PACK);
    dropout_packs<T><<<blocks_for(packs.numel), BLOCK, 0, stream>>>(packs, tail, o, d);
}

/* ---- multinomial ---------------------------------------------------------------------------------------- */

struct any_dtype {}; /* looked up */
struct weights {
    const void *data;
    tl_dtype dtype;
    int64_t n_rows, K, row_stride, stride;
    __device__ double at(int64_t row, int64_t k) const {
        return load_as<double>(data, row * row_stride + k * stride, dtype);
    }
    template <class T> __device__ double read(int64_t at) const {
        if constexpr (std::is_same<T, any_dtype>::value) return load_as<double>(data, at, dtype);
        else return value_of<double>(((const T *)data)[at]);
    }
};

/* A category of weight 0 arrives after all others. */
struct arrival_source {
    typedef uint64_t key_type;
    typedef int64_t line;
    weights w;
    struct rng_key draws;
    uint64_t index;
    int64_t n_samples, *out;
    __device__ int64_t begin(int64_t row) const { return row; }
    __device__ uint64_t key(int64_t row, int64_t k) const {
        const double weight = w.at(row, k);
        const double u =
            fma((double)(rng_wide_draw_at(draws, index + (uint64_t)(row * w.K + k)) >> 12), 0x1p-52, 0x1p-53);
        return weight > 0 ? f64_bits(-rng_log_f64(u) / weight)
                          : UINT64_MAX; /* positive doubles sort as their bits do */
    }
    __device__ void put(int64_t row, int64_t place, int64_t k, uint64_t) const { out[row * n_samples + place] = k; }
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

/* With replacement (attr.h says how sums are taken): a thread adds up a part, one thread of a block the parts of a row,
 * and a warp finds the part and the place in it of each sample. */
enum { PART_THREADS = 128, PART_STEP = 32 };

/* A weight, or NaN if it is invalid: so is every sum with it. */
__device__ inline double weight_checked(double weight) {
    return weight >= 0 && weight < (double)INFINITY ? weight : (double)NAN;
}

/* Lane k of a warp has part k of 32, the parts of all rows being counted together; the warp reads PART_STEP weights of
 * each of them at a time. */
template <class T>
__global__ void __launch_bounds__(PART_THREADS) weights_parts(weights w, int64_t n_parts, double *sums) {
    __shared__ double tile[PART_THREADS][PART_STEP + 1];
    const int lane = threadIdx.x % 32, warp_first = threadIdx.x - lane;
    const int64_t all = w.n_rows * n_parts, step = (int64_t)gridDim.x * PART_THREADS;
    for (int64_t first = blockIdx.x * (int64_t)PART_THREADS + warp_first; first < all; first += step) {
        const int64_t mine = first + lane, row = mine / n_parts, begin = (mine - row * n_parts) * MULTINOMIAL_PART;
        const int64_t offset = row * w.row_stride + begin * w.stride;
        const int length = mine < all ? (int)min((int64_t)MULTINOMIAL_PART, w.K - begin) : 0;
        double sum = 0;
        for (int done = 0; done < MULTINOMIAL_PART && __any_sync(0xFFFFFFFFu, done < length); done += PART_STEP) {
            const int at = done + lane;
            __syncwarp(); /* the step before has been read */
#pragma unroll 8
            for (int part = 0; part < 32; part++) {
                const int64_t from = __shfl_sync(0xFFFFFFFFu, offset, part) + at * w.stride;
                const bool is_there = at < __shfl_sync(0xFFFFFFFFu, length, part);
                tile[warp_first + part][lane] = is_there ? w.read<T>(from) : 0.0;
            }
            __syncwarp();
#pragma unroll 8
            for (int k = 0; k < PART_STEP; k++) sum += weight_checked(tile[threadIdx.x][k]);
        }
        if (mine < all) sums[mine] = sum;
    }
}

enum { CHAIN_TILE = 1024, CHAIN_STEP = 8 };

/* tile[k] becomes sum + tile[0] + ... + tile[k]; one thread. */
__device__ inline double chain(double *tile, int n, double sum) {
    int k = 0;
    for (; k + CHAIN_STEP <= n; k += CHAIN_STEP) { /* loads first: only the additions wait for each other */
        double x[CHAIN_STEP];
        for (int j = 0; j < CHAIN_STEP; j++) x[j] = tile[k + j];
        for (int j = 0; j < CHAIN_STEP; j++) tile[k + j] = sum += x[j];
    }
    for (; k < n; k++) tile[k] = sum += tile[k];
    return sum;
}

/* A block per row: sums of parts become running sums. Reports rows that cannot be drawn from; one thread counts, which
 * happens once. */
__global__ void __launch_bounds__(PART_THREADS)
    parts_chain(weights w, int64_t n_parts, double *sums, struct cuda_fault *fault) {
    __shared__ double tile[CHAIN_TILE];
    for (int64_t row = blockIdx.x; row < w.n_rows; row += gridDim.x) {
        double *part = sums + row * n_parts, whole = 0;
        for (int64_t first = 0; first < n_parts; first += CHAIN_TILE) {
            const int n = (int)min((int64_t)CHAIN_TILE, n_parts - first);
            for (int k = threadIdx.x; k < n; k += PART_THREADS) tile[k] = part[first + k];
            __syncthreads();
            if (threadIdx.x == 0) whole = chain(tile, n, whole);
            __syncthreads();
            for (int k = threadIdx.x; k < n; k += PART_THREADS) part[first + k] = tile[k];
            __syncthreads();
        }
        if (threadIdx.x != 0 || (whole > 0 && whole < (double)INFINITY)) continue;
        int64_t n_positive = 0;
        for (int64_t k = 0; whole > 0 && k < w.K; k++) n_positive += w.at(row, k) > 0;
        if (whole != whole) fault_raise(fault, FAULT_WEIGHT, row, 0);
        else fault_raise(fault, FAULT_WEIGHTS, row, n_positive);
    }
}

/* The first of n rising numbers that exceeds `target`, n if none does; by a warp, 32 of them at a time. */
__device__ inline int64_t warp_search(const double *x, int64_t n, double target) {
    const int lane = threadIdx.x % 32;
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t step = (high - low + 31) / 32, at = low + lane * step;
        const int first = __ffs((int)__ballot_sync(0xFFFFFFFFu, at < high && x[at] > target)) - 1;
        if (first < 0) {
            low += (high - low - 1) / step * step + 1; /* behind the last that was looked at */
        } else {
            high = low + first * step;
            if (first > 0) low = high - step + 1;
        }
    }
    return low;
}

/* A warp per sample. */
__global__ void __launch_bounds__(BLOCK)
    draw_samples(weights w, struct rng_key draws, uint64_t index, int64_t n_samples, int64_t n_parts,
                 const double *sums, int64_t *out) {
    const int lane = threadIdx.x % 32;
    const int64_t step = (int64_t)gridDim.x * (BLOCK / 32);
    for (int64_t sample = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32; sample < w.n_rows * n_samples;
         sample += step) {
        const int64_t row = sample / n_samples;
        const double *part_sums = sums + row * n_parts;
        const double target = rng_multiply_f64(rng_uniform_f64(rng_wide_draw_at(draws, index + (uint64_t)sample)),
                                               part_sums[n_parts - 1]);
        const int64_t part = warp_search(part_sums, n_parts, target), begin = part * MULTINOMIAL_PART;
        int64_t found = -1;
        if (part < n_parts) {
            const double below = part ? part_sums[part - 1] : 0.0;
            double within = 0;
            for (int64_t first = begin; found < 0 && first < min(begin + MULTINOMIAL_PART, w.K); first += 32) {
                const double mine = first + lane < w.K ? w.at(row, first + lane) : 0.0;
                for (int k = 0; k < 32; k++) {
                    within += __shfl_sync(0xFFFFFFFFu, mine, k);
                    if (found < 0 && below + within > target) found = first + k;
                }
            }
        } else { /* u times the whole was rounded up to it: the last weight that is not 0 */
            for (int64_t end = w.K; found < 0 && end > 0; end -= 32) {
                const int64_t at = end - 1 - lane;
                const unsigned positive = __ballot_sync(0xFFFFFFFFu, at >= 0 && w.at(row, max(at, (int64_t)0)) > 0);
                if (positive) found = end - __ffs((int)positive);
            }
        }
        if (lane == 0) out[sample] = max(found, (int64_t)0);
    }
}

static bool draw_with_replacement(const tl_kernel_args *args, const weights &w, struct rng_key draws) {
    const struct attr_multinomial *attr = (const struct attr_multinomial *)args->attr;
    const cudaStream_t stream = stream_of(args);
    const int64_t n_parts = (w.K + MULTINOMIAL_PART - 1) / MULTINOMIAL_PART, n_samples = attr->n_samples;
    double *sums = (double *)args->workspace;
    if (args->workspace_bytes < (size_t)(w.n_rows * n_parts) * sizeof *sums) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    const unsigned blocks = capped((w.n_rows * n_parts + PART_THREADS - 1) / PART_THREADS);
    if (w.dtype == TL_F32) weights_parts<float><<<blocks, PART_THREADS, 0, stream>>>(w, n_parts, sums);
    else weights_parts<any_dtype><<<blocks, PART_THREADS, 0, stream>>>(w, n_parts, sums);
    parts_chain<<<capped(w.n_rows), PART_THREADS, 0, stream>>>(w, n_parts, sums, fault_of(args));
    draw_samples<<<capped((w.n_rows * n_samples + 7) / 8), BLOCK, 0, stream>>>(
        w, draws, attr->generator.index, n_samples, n_parts, sums, (int64_t *)args->out[0].data);
    return true;
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
    const dropout_draws d = dropout_draws_of(attr->p, attr->generator);
    const cudaStream_t stream = stream_of(args);
    const tl_dtype t = o.dtype[0];
    if (g.numel == 0) return true;
    if (can_pack(g, o, true) && (t == TL_F32 || t == TL_BF16 || t == TL_F16)) {
        if (t == TL_F32) dropout_pack_launch<float>(g, o, d, stream);
        else if (t == TL_BF16) dropout_pack_launch<bf16>(g, o, d, stream);
        else dropout_pack_launch<f16>(g, o, d, stream);
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
    if (!sort_lines(args, source, 1, n, n)) return false;
    if (n > 0) permutation_mend<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(source, n);
    return true;
}

bool cuda_multinomial(const tl_kernel_args *args) {
    const struct attr_multinomial *attr = (const struct attr_multinomial *)args->attr;
    const tl_operand *p = &args->in[0];
    if (!operands_known(args)) return false;
    const int last = p->rank - 1;
    const weights w = {p->data,        p->dtype, last ? p->shape[0] : 1, p->shape[last], last ? p->stride[0] : 0,
                       p->stride[last]};
    const struct rng_key draws = {attr->generator.seed, attr->generator.stream};
    if (w.n_rows == 0) return true;
    if (attr->has_replacement) return draw_with_replacement(args, w, draws);
    weights_check<<<capped(w.n_rows), BLOCK, 0, stream_of(args)>>>(w, attr->n_samples, fault_of(args));
    const arrival_source source = {w, draws, attr->generator.index, attr->n_samples, (int64_t *)args->out[0].data};
    return sort_lines(args, source, w.n_rows, w.K, attr->n_samples);
}

} /* extern "C" */
