/* grouped_hopper.cu: products of groups of rows on Hopper's warpgroup tensor cores, for 16-bit operands.
 *
 * A block computes tiles of 128 x 256 (or 128 x 128), one after the other. Warpgroup 0 fetches operands by TMA into a
 * ring of shared memory, 64 terms at a time, and runs ahead into the next tile; warpgroups 1 and 2 have 64 rows of the
 * result each, in registers.
 *
 * An operand lies in shared memory as in global memory. Where its terms are along rows, it is one tile of rows of 64
 * terms. Where they are along columns (TURNED), it is several tiles of 64 rows side by side, and the tensor core
 * transposes. TMA fills zeros beyond the tensor, but not beyond the group: rows of the result that belong to the next
 * group are computed and not written; terms that belong to the next group (of an outer product) are overwritten with
 * zeros before they are multiplied.
 */
#include "device/cuda/ops/grouped.cuh"
#include "device/cuda/shared/hopper.cuh"

#include <limits.h>

enum { TILE_M = 128, TILE_K = 64, TILE_ELEMENTS = PART * PART, CONSUMERS = 2 };

struct grouped_maps {
    CUtensorMap a, b;
};

template <int TILE_N> struct __align__(1024) grouped_shared {
    enum { STAGES = TILE_N > 128 ? 4 : 6 };
    uint16_t a[STAGES][TILE_M * TILE_K], b[STAGES][TILE_N * TILE_K];
    uint16_t staging[CONSUMERS][TILE_ELEMENTS];
    uint64_t full[STAGES], empty[STAGES];
    int first_tile[GROUPED_MOST + 2];
};

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

#define PRODUCTS(type)                                                                              \
    SHARED_PRODUCT(multiply_plain, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 0)         \
    SHARED_PRODUCT(multiply_turned_b, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 1)      \
    SHARED_PRODUCT(multiply_turned, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 1, 1)        \
    SHARED_PRODUCT(multiply_plain, type, 256, LIST_128, REG128(c), "%128", "%129", "%130", 0, 0)    \
    SHARED_PRODUCT(multiply_turned_b, type, 256, LIST_128, REG128(c), "%128", "%129", "%130", 0, 1) \
    SHARED_PRODUCT(multiply_turned, type, 256, LIST_128, REG128(c), "%128", "%129", "%130", 1, 1)
PRODUCTS(bf16)
PRODUCTS(f16)

/* One thread: the operands of all of the block's tiles, as slots of the ring become empty. */
template <int TILE_N, bool TURNED_A, bool TURNED_B>
__device__ inline void fetch(grouped_shared<TILE_N> &shared, const grouped &g, const grouped_maps &maps) {
    ring<grouped_shared<TILE_N>::STAGES> at;
    const int64_t n_tiles = tiles_of<TILE_M, TILE_N>(g, shared.first_tile);
    for (int64_t index = blockIdx.x; index < n_tiles; index += gridDim.x) {
        const tile t = tile_at<TILE_M, TILE_N>(g, shared.first_tile, index);
        const int first = (int)t.first, i = (int)t.i, j = (int)t.j, n_k = (int)t.n_k;
        for (int k = 0; k < n_k; k += TILE_K, at.next()) {
            uint16_t *const a = shared.a[at.slot], *const b = shared.b[at.slot];
            uint64_t *const full = &shared.full[at.slot];
            barrier_wait(&shared.empty[at.slot], at.phase ^ 1);
            barrier_expect(full, (TILE_M + TILE_N) * TILE_K * 2);
            if (TURNED_A)
                for (int part = 0; part < TILE_M / PART; part++)
                    tile_fetch(a + part * TILE_ELEMENTS, &maps.a, full, i + part * PART, first + k, 0, 0);
            else tile_fetch(a, &maps.a, full, k, first + i, 0, 0);
            if (!TURNED_B) tile_fetch(b, &maps.b, full, k, j, t.group, 0);
            else
                for (int part = 0; part < TILE_N / PART; part++)
                    tile_fetch(b + part * TILE_ELEMENTS, &maps.b, full, j + part * PART, TURNED_A ? first + k : k,
                               TURNED_A ? 0 : t.group, 0);
        }
    }
}

/* Zeros in the rows of both operands that are behind the group: all consumers together. */
template <int TILE_N> __device__ inline void clear_terms(uint16_t *a, uint16_t *b, int n_terms) {
    const int thread = (int)threadIdx.x - WARPGROUP, n_threads = CONSUMERS * WARPGROUP, per_row = PART / 8;
    const int n_clear = (TILE_K - n_terms) * per_row; /* 16-byte parts of a tile */
    for (int x = thread; x < n_clear * (TILE_M + TILE_N) / PART; x += n_threads) {
        const int part = x / n_clear, at = n_terms * per_row + x % n_clear;
        uint16_t *const of =
            part < TILE_M / PART ? a + part * TILE_ELEMENTS : b + (part - TILE_M / PART) * TILE_ELEMENTS;
        ((uint4 *)of)[at] = make_uint4(0, 0, 0, 0);
    }
    shared_publish();
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS * WARPGROUP) : "memory");
}

/* sum (64,N) = or += 64 terms, of this consumer's rows */
template <class T, bool TURNED_A, bool TURNED_B, int N>
__device__ inline void multiply_step(float (&sum)[N], const uint16_t *a, const uint16_t *b, bool adds) {
    const uint64_t of_a = tile_operand(a), of_b = tile_operand(b, TURNED_B ? TILE_ELEMENTS * 2 : 0);
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        const uint64_t x = of_a + k * (TURNED_A ? STEP_ALONG_ROWS : STEP_ALONG_ROW);
        const uint64_t y = of_b + k * (TURNED_B ? STEP_ALONG_ROWS : STEP_ALONG_ROW);
        if constexpr (TURNED_A) multiply_turned(T(), sum, x, y, adds || k > 0);
        else if constexpr (TURNED_B) multiply_turned_b(T(), sum, x, y, adds || k > 0);
        else multiply_plain(T(), sum, x, y, adds || k > 0);
    }
}

template <class T, int N>
__device__ inline void results_write(const grouped &g, const tile &t, const float (&sum)[N], int consumer,
                                     uint16_t *staging) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    const int64_t to = place_in_out(g, t) + consumer * PART * g.n;
    const int n_rows = (int)min(t.n_m - consumer * PART, (int64_t)PART), n_columns = (int)min(t.n_n, (int64_t)2 * N);
    if (g.out_dtype == TL_F32 || g.adds) {
#pragma unroll
        for (int x = 0; x < N; x += 2) {
            const int row = me.row() + x % 4 / 2 * 8, column = me.column() + x / 4 * 8;
            if (row < n_rows && column < n_columns) pair_store<T>(g, to + row * g.n + column, sum[x], sum[x + 1]);
        }
        return;
    }
#pragma unroll
    for (int part = 0; part < N / 32; part++)
        block_write<T>(me, sum + 32 * part, 1, staging, (uint16_t *)g.out + to + part * PART, g.n, n_rows,
                       n_columns - part * PART);
}

template <class T, int TILE_N, bool TURNED_A, bool TURNED_B>
__device__ inline void compute(grouped_shared<TILE_N> &shared, const grouped &g, int consumer) {
    ring<grouped_shared<TILE_N>::STAGES> at, before;
    const int64_t n_tiles = tiles_of<TILE_M, TILE_N>(g, shared.first_tile);
    const bool releases = threadIdx.x % WARPGROUP == 0;
    for (int64_t index = blockIdx.x; index < n_tiles; index += gridDim.x) {
        const tile t = tile_at<TILE_M, TILE_N>(g, shared.first_tile, index);
        const int n_k = warp_uniform((int)t.n_k);
        float sum[TILE_N / 2];
        if (n_k == 0) memset(sum, 0, sizeof sum);
        for (int k = 0; k < n_k; k += TILE_K, at.next()) {
            barrier_wait(&shared.full[at.slot], at.phase);
            if (TURNED_A && n_k - k < TILE_K) clear_terms<TILE_N>(shared.a[at.slot], shared.b[at.slot], n_k - k);
            registers_fence(sum);
            products_begin();
            multiply_step<T, TURNED_A, TURNED_B>(sum, shared.a[at.slot] + consumer * TILE_ELEMENTS, shared.b[at.slot],
                                                 k > 0);
            products_commit();
            registers_fence(sum);
            products_wait<1>(); /* the step before has left its slot */
            if (k > 0) {
                if (releases) barrier_arrive(&shared.empty[before.slot]);
                before.next();
            }
        }
        products_wait<0>();
        registers_fence(sum);
        if (n_k > 0) {
            if (releases) barrier_arrive(&shared.empty[before.slot]);
            before.next();
        }
        results_write<T>(g, t, sum, consumer, shared.staging[consumer]);
    }
}

#endif

template <class T, int TILE_N, bool TURNED_A, bool TURNED_B>
__global__ void __launch_bounds__(HOPPER_THREADS, 1)
    hopper_groups(const __grid_constant__ grouped_maps maps, const __grid_constant__ grouped g) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) char memory[];
    grouped_shared<TILE_N> &shared = *(grouped_shared<TILE_N> *)memory;
    const int role = warp_uniform((int)threadIdx.x / WARPGROUP);
    if (threadIdx.x == 0) {
        for (int i = 0; i < grouped_shared<TILE_N>::STAGES; i++) {
            barrier_init(&shared.full[i], 1);
            barrier_init(&shared.empty[i], CONSUMERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (threadIdx.x < 32) tiles_count<TILE_M>(g, shared.first_tile);
    __syncthreads();
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) fetch<TILE_N, TURNED_A, TURNED_B>(shared, g, maps);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        compute<T, TILE_N, TURNED_A, TURNED_B>(shared, g, role - 1);
    }
#endif
}

/* ---- Launches -------------------------------------------------------------------------------------------- */

template <class T, int TILE_N, bool TURNED_A, bool TURNED_B>
static bool launch(const tl_kernel_args *args, const grouped &g) {
    auto kernel = hopper_groups<T, TILE_N, TURNED_A, TURNED_B>;
    const int64_t width = g.is_outer ? g.m : g.k, all = g.N * width;
    grouped_maps maps;
    bool has_maps = map_encode(args, &maps.a, g.dtype, (void *)g.a, {width, g.N, 1, 1}, {width, all, all},
                               TURNED_A ? TILE_K : TILE_M);
    const int64_t each = g.n * g.k, total = each * g.n_groups;
    if (g.is_outer)
        has_maps = has_maps && map_encode(args, &maps.b, g.dtype, (void *)g.b, {g.n, g.N, 1, 1},
                                          {g.n, g.n * g.N, g.n * g.N}, TILE_K);
    else if (TURNED_B)
        has_maps = has_maps && map_encode(args, &maps.b, g.dtype, (void *)g.b, {g.n, g.k, g.n_groups, 1},
                                          {g.n, each, total}, TILE_K);
    else
        has_maps = has_maps && map_encode(args, &maps.b, g.dtype, (void *)g.b, {g.k, g.n, g.n_groups, 1},
                                          {g.k, each, total}, TILE_N);
    const size_t bytes = sizeof(grouped_shared<TILE_N>);
    if (!has_maps || !shared_memory_allow(args, kernel, bytes)) return false;
    kernel<<<blocks_of(args, g, TILE_M, TILE_N, 1), HOPPER_THREADS, bytes, stream_of(args)>>>(maps, g);
    return true;
}
template <class T, int TILE_N> static bool turn(const tl_kernel_args *args, const grouped &g) {
    if (g.is_outer) return launch<T, TILE_N, true, true>(args, g);
    return g.transpose_b ? launch<T, TILE_N, false, false>(args, g) : launch<T, TILE_N, false, true>(args, g);
}
template <class T> static bool choose(const tl_kernel_args *args, const grouped &g) {
    return g.n > 128 ? turn<T, 256>(args, g) : turn<T, 128>(args, g);
}

bool grouped_fits_hopper(const tl_kernel_args *args, const grouped &g) {
    return g.N <= INT_MAX && /* TMA counts rows in 32 bits */
           runs_warpgroups(args, hopper_groups<bf16, 128, false, false>);
}

bool grouped_hopper(const tl_kernel_args *args, const grouped &g) {
    return g.dtype == TL_BF16 ? choose<bf16>(args, g) : choose<f16>(args, g);
}
