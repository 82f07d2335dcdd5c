/* head_hopper.cu: linear_cross_entropy of bf16 rows on Hopper, without a pass over the logits.
 *
 * Of a row of logits z with target t, loss and gradient are
 *
 *      loss = lse(z) - z_t,    dz = softmax(z) - onehot(t),    lse(z) = s + log sum_j e^(z_j - s)   for any shift s
 *
 * The product that computes z writes e_j = e^(z_j - s) in its place, in bf16, which has the range of f32, and sums of
 * rows before they are rounded. Let E be the sum of a row. Then dz = (e - E onehot(t)) / E: one element of a row of e
 * changes, and the division by E comes later: dx = dz weight = (e - ...) weight / E, row by row, and for
 * dweight = dz^T x the rows of x are divided instead. So the logits' gradient needs no pass of its own, neither its
 * bytes nor its power.
 *
 * The shift is z_t, computed first by a kernel of its own, since E is then at least 1 and nothing that matters
 * vanishes. It overflows if a row's largest logit is far above that of its target. Such rows are looked for: where E is
 * more than OVERFLOW, the two tiles that have the row are computed again, first for the largest logits, which become
 * the shifts. The kernels for that are always queued, and end at once if there are no such rows.
 */
#include "device/cuda/ops/head.cuh"
#include "device/cuda/shared/product_hopper.cuh"
#include "device/cuda/shared/real_math.cuh"

/* ---- Products ------------------------------------------------------------------------------------------ */

static_assert((int)HEAD_TILE == (int)TILE_COLUMNS && (int)HEAD_PAIR == (int)PAIR_ROWS, "the rule and the kernel agree");

struct head_parts {
    CUtensorMap result; /* e (M, V rounded up), zeros from column V on */
    const float *shift; /* (M) */
    float *rows;        /* (tiles side by side, M): sums, or largest logits, of a tile's rows */
    bool is_lean;       /* e is not wanted */
};

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

/* each(half, which of the thread's two rows there, column, sum) for all sums of a thread. */
template <class EACH> __device__ inline void each_sum(product_tile t, tile_sum &sum, EACH each) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int x = 0; x < TILE_COLUMNS / 2; x++)
            each(half, x / 2 % 2, t.column + x / 4 * 8 + me.column() + x % 2, sum[half][x]);
}

/* One number for each of the tile's rows, of which four lanes have a part each. */
template <class JOIN>
__device__ inline void rows_write(const product &p, const head_parts &u, product_tile t, float (&part)[2][2],
                                  JOIN join) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float all = part[half][i];
            all = join(all, __shfl_xor_sync(0xffffffffu, all, 1));
            all = join(all, __shfl_xor_sync(0xffffffffu, all, 2));
            const int row = t.row + half * PART + me.row() + 8 * i;
            if (me.lane % 4 == 0 && row < p.M) u.rows[(int64_t)(t.column / TILE_COLUMNS) * p.M + row] = all;
        }
}

template <class T>
__device__ inline void exponentials(product_shared &shared, const product &p, const head_parts &u, tile_sum &sum,
                                    product_tile t, int consumer) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    float offset[2][2], all[2][2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = t.row + half * PART + me.row() + 8 * i;
            offset[half][i] = row < p.M ? float(-LOG2_E) * u.shift[row] : 0.0f;
        }
    each_sum(t, sum, [&](int half, int i, int, float &z) {
        z = short_exp2(fmaf(z, float(LOG2_E), offset[half][i]));
        all[half][i] += z;
    });
    if (t.column + TILE_COLUMNS > p.N) { /* again, without the columns beyond */
        memset(all, 0, sizeof all);
        each_sum(t, sum, [&](int half, int i, int column, float &e) {
            if (column >= p.N) e = 0;
            all[half][i] += e;
        });
    }
    if (!u.is_lean) {
        sums_round<T, TILE_COLUMNS>(shared, sum, consumer, true);
        panels_send(shared, consumer, &u.result, &u.result, t.column, t.column + PART, t.row);
    }
    rows_write(p, u, t, all, [](float a, float b) { return a + b; });
}

__device__ inline void tops(const product &p, const head_parts &u, tile_sum &sum, product_tile t) {
    float all[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    each_sum(t, sum, [&](int half, int i, int column, float &z) {
        if (column < p.N) all[half][i] = fmaxf(all[half][i], z);
    });
    rows_write(p, u, t, all, [](float a, float b) { return fmaxf(a, b); });
}

#endif

template <class TYPE> using head_use = product_use<TYPE, head_parts, TILE_COLUMNS, 0>;

template <class TYPE> struct exponentials_use : head_use<TYPE> {
#if HAS_WARPGROUPS
    static __device__ inline void finish(product_shared &shared, const product &p, const head_parts &u, tile_sum &sum,
                                         product_tile t, int consumer, int) {
        exponentials<TYPE>(shared, p, u, sum, t, consumer);
    }
#endif
};
template <class TYPE> struct tops_use : head_use<TYPE> {
#if HAS_WARPGROUPS
    static __device__ inline void finish(product_shared &, const product &p, const head_parts &u, tile_sum &sum,
                                         product_tile t, int, int) {
        tops(p, u, sum, t);
    }
#endif
};

/* ---- Rows ---------------------------------------------------------------------------------------------- */

#define OVERFLOW 0x1p57f /* about e^40 */
#define NO_ROW 1e30f     /* a shift with which all exponentials are 0: the row does not count */

__device__ inline row_pack<bf16> pack_times(row_pack<bf16> p, float factor) {
    float a[PACK];
    p.widen(a);
#pragma unroll
    for (int j = 0; j < PACK; j++) a[j] *= factor;
    p.narrow(a);
    return p;
}

/* A warp for each row: the logit of its target. */
__global__ void __launch_bounds__(BLOCK)
    head_targets(const __grid_constant__ head_chunk c, const bf16 *x, int64_t first, int64_t n) {
    const int lane = threadIdx.x % 32;
    for (int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / 32; i < n; i += (int64_t)gridDim.x * (BLOCK / 32)) {
        const int64_t target = id_at(c.h.targets, c.h.targets_dtype, first + i);
        const bool counts = target_counts(target, c.h.ignore_index, c.h.V);
        float sum = 0;
        for (int64_t k = lane; counts && k < c.width / PACK; k += 32) {
            float a[PACK], b[PACK];
            row_load(x + i * c.width, k).widen(a);
            row_load(c.weight + target * c.width, k).widen(b);
#pragma unroll
            for (int j = 0; j < PACK; j++) sum = fmaf(a[j], b[j], sum);
        }
        sum = warp_reduce(sum, sum_of());
        if (lane == 0) c.target[i] = sum, c.shift[i] = counts ? sum : NO_ROW;
    }
}

/* One block: the pairs of tiles with rows that overflow. A warp for each pair. */
__global__ void __launch_bounds__(1024) head_overflows(const __grid_constant__ head_chunk c, int64_t n) {
    __shared__ int is_listed[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int count = 0;
    for (int64_t first = 0; first * PAIR_ROWS < n; first += 32) {
        bool overflows = false;
        for (int64_t i = (first + warp) * PAIR_ROWS + lane; i < n && i < (first + warp + 1) * PAIR_ROWS; i += 32)
            overflows |= c.total[i] > OVERFLOW;
        overflows = __any_sync(0xffffffffu, overflows);
        if (lane == 0) is_listed[warp] = overflows;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int k = 0; k < 32; k++)
                if (is_listed[k]) c.pairs[1 + count++] = (int)first + k;
        __syncthreads();
    }
    if (threadIdx.x == 0) c.pairs[0] = count;
}

/* A block for each of those pairs: the largest logits of its rows. */
__global__ void __launch_bounds__(PAIR_ROWS)
    head_shifts(const __grid_constant__ head_chunk c, int64_t n_across, int64_t n) {
    for (int k = blockIdx.x; k < c.pairs[0]; k += gridDim.x) {
        const int64_t i = (int64_t)c.pairs[1 + k] * PAIR_ROWS + threadIdx.x;
        if (i >= n || c.shift[i] == NO_ROW) continue;
        float top = -INFINITY;
        for (int64_t j = 0; j < n_across; j++) top = fmaxf(top, c.partial[j * n + i]);
        c.shift[i] = top;
    }
}

/* A warp for each row: its loss, its factor, the target's element of e, and the row of x times the factor. */
__global__ void __launch_bounds__(BLOCK)
    head_rows_finish(const __grid_constant__ head_chunk c, const bf16 *x, int64_t first, int64_t n) {
    const int lane = threadIdx.x % 32;
    for (int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / 32; i < n; i += (int64_t)gridDim.x * (BLOCK / 32)) {
        const bool counts = c.shift[i] != NO_ROW;
        const float total = c.total[i], above = c.target[i] - c.shift[i];
        if (lane == 0) c.h.losses[first + i] = counts ? logf(total) - above : 0.0f;
        if (!c.h.has_gradients) continue;
        const float factor = counts ? *c.h.scale / total : 0.0f;
        if (lane == 0) {
            const int64_t target = id_at(c.h.targets, c.h.targets_dtype, first + i);
            c.factor[i] = factor;
            if (counts) c.e[i * c.h.pitch + target] = conversion<bf16>::from(expf(above) - total);
        }
        for (int64_t k = lane; c.scaled && k < c.width / PACK; k += 32)
            row_store(c.scaled + i * c.width, k, pack_times(row_load(x + i * c.width, k), factor));
    }
}

__global__ void __launch_bounds__(BLOCK) head_factors(const __grid_constant__ head_chunk c, bf16 *dx, int64_t n) {
    const int64_t n_packs = c.width / PACK;
    FOR_EACH(k, n * n_packs) row_store(dx, k, pack_times(row_load(dx, k), c.factor[k / n_packs]));
}

/* ---- A chunk ------------------------------------------------------------------------------------------- */

bool head_runs_on_hopper(const tl_kernel_args *args) {
    for (int i = 0; i < 2; i++)
        if (!rows_fit_map(args->in[i].data, args->in[i].shape[0], args->in[i].shape[1])) return false;
    return runs_warpgroups(args, hopper_product<exponentials_use<bf16>, false>);
}

bool head_exponentials(const tl_kernel_args *args, const struct head_chunk *c, const bf16 *x, int64_t first,
                       int64_t n) {
    const cudaStream_t stream = stream_of(args);
    const unsigned by_rows = blocks_for(n * 32), by_sums = (unsigned)((n + 31) / 32);
    rows of_x, of_weight, of_e;
    rows_set(&of_x, (void *)x, TL_BF16, n, c->width);
    rows_set(&of_weight, (void *)c->weight, TL_BF16, c->h.V, c->width);
    rows_set(&of_e, c->e, TL_BF16, n, c->h.pitch);
    product p = {};
    head_parts parts = {};
    p.M = n;
    p.N = c->h.V;
    parts.shift = c->shift;
    parts.rows = c->partial;
    parts.is_lean = !c->h.has_gradients;
    if (!map_rows(args, &p.a, of_x, TILE_ROWS) || !map_rows(args, &p.b[0], of_weight, PART) ||
        !map_rows(args, &p.b[1], of_weight, PART) || !map_rows(args, &parts.result, of_e, TILE_ROWS))
        return false;
    head_targets<<<by_rows, BLOCK, 0, stream>>>(*c, x, first, n);
    if (!product_launch<exponentials_use<bf16>, false>(args, p, parts, c->width)) return false;
    partial_sums<<<by_sums, 256, 0, stream>>>(c->partial, c->total, p.n_across, n, nullptr);
    head_overflows<<<1, 1024, 0, stream>>>(*c, n);
    p.pairs = c->pairs;
    if (!product_launch<tops_use<bf16>, false>(args, p, parts, c->width)) return false;
    head_shifts<<<blocks_for(n, PAIR_ROWS), PAIR_ROWS, 0, stream>>>(*c, p.n_across, n);
    if (!product_launch<exponentials_use<bf16>, false>(args, p, parts, c->width)) return false;
    partial_sums<<<by_sums, 256, 0, stream>>>(c->partial, c->total, p.n_across, n, c->pairs);
    head_rows_finish<<<by_rows, BLOCK, 0, stream>>>(*c, x, first, n);
    return true;
}

void head_apply_factors(const tl_kernel_args *args, const struct head_chunk *c, bf16 *dx, int64_t n) {
    head_factors<<<blocks_for(n * c->width / PACK), BLOCK, 0, stream_of(args)>>>(*c, dx, n);
}
