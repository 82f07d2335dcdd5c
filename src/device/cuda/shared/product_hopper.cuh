/* product_hopper.cuh: a product on Hopper's warpgroup tensor cores that does something with its results before they are
 * written. 16-bit operands.
 *
 *      out (M,N) = a (M,K) b (K,N)
 *
 * A block computes tiles of 128 x 128, one after the other. Warp 0 fetches operands by TMA into a ring of shared
 * memory, 64 terms at a time. Warpgroups 1 and 2 take turns: one multiplies while the other works on the results of
 * the tile before, so that the tensor cores hardly ever wait for that work. Two blocks, which have the same columns of
 * neighbouring rows, form a cluster: each fetches half of b for both.
 *
 * Results pass through panels in shared memory, 128 rows of 64 columns each, two per consumer, and are written by TMA.
 * Where the work needs more than the product, warp 1 fetches it into those panels ahead of time, and the results take
 * its place. TMA fills zeros beyond a tensor and writes nothing there, so that any M is fine, and any N and K that are
 * multiples of 8.
 *
 * What becomes of a tile is a class USE:
 *      T               the operands' type
 *      parts           what it needs: tensors, in a struct that the kernel is given
 *      COLUMNS         of the result in a tile: TILE_COLUMNS, or half of them, where two halves of b are combined
 *      N_FETCHES       how often it reads a pair of panels for each tile
 *      fetch()         one thread: orders such a pair
 *      begin()         the sums to start from
 *      finish()        what to do with them
 */
#ifndef CUDA_PRODUCT_HOPPER_CUH
#define CUDA_PRODUCT_HOPPER_CUH

#include "device/cuda/shared/operand_rows.cuh"
#include "device/cuda/shared/hopper.cuh"

#include <limits.h>

enum {
    TILE_ROWS = MLP_SUMS_ROWS,
    TILE_COLUMNS = 128,
    TILE_TERMS = 64,
    TILE_STAGES = 5,
    TILE_CONSUMERS = 2,
    TILE_CLUSTER = 2,
    PAIR_ROWS = TILE_CLUSTER * TILE_ROWS
};
enum { PANEL = TILE_ROWS * PART, PANELS = 2, TILE_GROUP = 8 /* pairs of tiles, one above the other, of a walk */ };

struct product {
    CUtensorMap a, b[2];   /* b: one for each block of a cluster, if two matrices are combined */
    int n_tiles;           /* of a cluster: PAIR_ROWS x COLUMNS */
    int n_pairs, n_across; /* tiles below each other, and side by side */
    int n_steps;           /* of TILE_TERMS terms */
    int64_t M, N;
    const int *pairs; /* in device memory: how many pairs of tiles to compute, and which; NULL: all */
};

struct __align__(1024) product_shared {
    uint16_t a[TILE_STAGES][TILE_ROWS * TILE_TERMS], b[TILE_STAGES][TILE_COLUMNS * TILE_TERMS];
    uint16_t panel[TILE_CONSUMERS][PANELS][PANEL];
    uint64_t full[TILE_STAGES], empty[TILE_STAGES];
    uint64_t there[TILE_CONSUMERS], gone[TILE_CONSUMERS]; /* what was fetched, in a consumer's panels */
    float column_sums[TILE_CONSUMERS][2][TILE_COLUMNS];
};
static_assert(sizeof(product_shared) <= 227 << 10, "what a block may have");

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

#define PRODUCTS(type)                                                                      \
    SHARED_PRODUCT(multiply_plain, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 0) \
    SHARED_PRODUCT(multiply_turned_b, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 1)
PRODUCTS(bf16)
PRODUCTS(f16)
#undef PRODUCTS

/* ---- Clusters ------------------------------------------------------------------------------------------- */

/* Arrives at the barrier of that block of the cluster. Tensor cores have read what it frees, so that nothing of this
 * thread's own has to be seen there first: a release at the cluster's scope would wait for all of its writes. */
__device__ inline void barrier_arrive_at(uint64_t *barrier, int rank) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(barrier)),
                 "r"(rank)
                 : "memory");
}
/* A tile for all blocks of the cluster, to the same place in each. */
__device__ inline void tile_fetch_for_all(void *to, const CUtensorMap *map, uint64_t *barrier, int d, int t) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3,%4,%5,%5}], [%2], %6;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(d), "r"(t), "r"(0),
                 "h"((uint16_t)((1 << TILE_CLUSTER) - 1))
                 : "memory");
}
__device__ inline void tile_store(const CUtensorMap *map, const void *from, int d, int t) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%4}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(d), "r"(t), "r"(0)
                 : "memory");
}
__device__ inline void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* Until shared memory has been read. */
__device__ inline void stores_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void stores_finish() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* 16 rows of 16 of a swizzled tile, as store_matrix wrote them. */
__device__ inline void load_matrix(uint32_t (&a)[4], const void *tile, int row, int part) {
    const uint32_t from = shared_address(tile) + (uint32_t)(row * ROW_BYTES + ((part ^ row % 8) << 4));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(from));
}

/* ---- Tiles and their operands --------------------------------------------------------------------------- */

struct product_tile {
    int row, column; /* where this block's part begins */
};
/* How many tiles there are, and how many below each other. */
struct product_walk {
    int n_tiles, n_pairs;
    __device__ inline explicit product_walk(const product &p) : n_pairs(p.pairs ? p.pairs[0] : p.n_pairs) {
        n_tiles = p.pairs ? n_pairs * p.n_across : p.n_tiles;
    }
};
/* TILE_GROUP pairs of tiles at a time, all columns: what is fetched by blocks that run at once lies in the L2 cache. */
template <class USE>
__device__ inline product_tile product_tile_at(const product &p, const product_walk &w, int index, int rank) {
    const int per_group = TILE_GROUP * p.n_across, group = index / per_group, rest = index % per_group;
    const int height = min((int)TILE_GROUP, w.n_pairs - group * TILE_GROUP);
    const int nth = group * TILE_GROUP + rest % height, pair = p.pairs ? p.pairs[1 + nth] : nth, across = rest / height;
    return {(pair * TILE_CLUSTER + rank) * TILE_ROWS, across * USE::COLUMNS};
}

/* One thread: the operands of all of the block's tiles. */
template <class USE, bool TURNED> __device__ inline void operands_fetch(product_shared &shared, const product &p) {
    const int rank = cluster_rank();
    const product_walk w(p);
    ring<TILE_STAGES> at;
    for (int index = blockIdx.x / TILE_CLUSTER; index < w.n_tiles; index += gridDim.x / TILE_CLUSTER) {
        const product_tile t = product_tile_at<USE>(p, w, index, rank);
        const int column = USE::COLUMNS == PART ? t.column : t.column + rank * PART; /* of this block's half of b */
        for (int step = 0; step < p.n_steps; step++, at.next()) {
            uint64_t *const full = &shared.full[at.slot];
            const int k = step * TILE_TERMS;
            barrier_wait(&shared.empty[at.slot], at.phase ^ 1);
            barrier_expect(full, (TILE_ROWS + TILE_COLUMNS) * TILE_TERMS * 2);
            tile_fetch(shared.a[at.slot], &p.a, full, k, t.row, 0, 0);
            tile_fetch_for_all(shared.b[at.slot] + rank * PART * PART, &p.b[rank], full, TURNED ? column : k,
                               TURNED ? k : column);
        }
    }
}

/* One thread: what else the work needs, for one consumer after the other. */
template <class USE>
__device__ inline void panels_fetch(product_shared &shared, const product &p, const typename USE::parts &u) {
    const int rank = cluster_rank();
    const product_walk w(p);
    int consumer = 0, phase = 0;
    for (int index = blockIdx.x / TILE_CLUSTER; index < w.n_tiles; index += gridDim.x / TILE_CLUSTER) {
        const product_tile t = product_tile_at<USE>(p, w, index, rank);
        for (int turn = 0; turn < USE::N_FETCHES; turn++) {
            const int at = (phase * USE::N_FETCHES + turn) & 1;
            barrier_wait(&shared.gone[consumer], at ^ 1);
            barrier_expect(&shared.there[consumer], PANELS * PANEL * 2);
            USE::fetch(shared, u, t, consumer, turn);
        }
        consumer ^= 1;
        if (consumer == 0) phase++;
    }
}

/* ---- A consumer's work ---------------------------------------------------------------------------------- */

template <class T> __device__ inline float2 widen_two(uint32_t two);
template <> __device__ inline float2 widen_two<bf16>(uint32_t two) {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}
template <> __device__ inline float2 widen_two<f16>(uint32_t two) { return __half22float2(*(const __half2 *)&two); }

/* Consumers multiply in turns: a barrier's phase tells only whether a slot was filled an even or an odd number of
 * times, so that neither may wait for a slot before the other has seen all that came before. */
enum { FIRST_TURN = 3 }; /* the hardware's barriers 0 to 2 are taken */
__device__ inline void turn_await(int consumer) {
    asm volatile("bar.sync %0, %1;" ::"r"(FIRST_TURN + consumer), "n"(TILE_CONSUMERS * WARPGROUP) : "memory");
}
__device__ inline void turn_give(int consumer) {
    asm volatile("bar.arrive %0, %1;" ::"r"(FIRST_TURN + consumer), "n"(TILE_CONSUMERS * WARPGROUP) : "memory");
}

/* The sums of a tile: [64-row half][columns of the wgmma's layout] */
typedef float tile_sum[TILE_ROWS / PART][TILE_COLUMNS / 2];

/* `at` is the first step's slot, and then the one behind the last. */
template <class T, bool TURNED>
__device__ inline void tile_multiply(product_shared &shared, ring<TILE_STAGES> &at, int n_steps, int consumer,
                                     tile_sum &sum) {
    ring<TILE_STAGES> before = at;
    const int thread = (int)threadIdx.x % WARPGROUP;
    turn_await(consumer);
    for (int step = 0; step < n_steps; step++, at.next()) {
        barrier_wait(&shared.full[at.slot], at.phase);
        registers_fence(sum[0]);
        registers_fence(sum[1]);
        products_begin();
        const uint64_t b = tile_operand(shared.b[at.slot], TURNED ? PART * PART * 2 : 0);
#pragma unroll
        for (int k = 0; k < TILE_TERMS / 16; k++) {
#pragma unroll
            for (int half = 0; half < TILE_ROWS / PART; half++) {
                const uint64_t x = tile_operand(shared.a[at.slot] + half * PART * PART) + k * STEP_ALONG_ROW;
                const uint64_t y = b + k * (TURNED ? STEP_ALONG_ROWS : STEP_ALONG_ROW);
                if constexpr (TURNED) multiply_turned_b(T(), sum[half], x, y, 1);
                else multiply_plain(T(), sum[half], x, y, 1);
            }
        }
        products_commit();
        registers_fence(sum[0]);
        registers_fence(sum[1]);
        products_wait<1>(); /* the step before has left its slot */
        if (step > 0) {
            if (thread < TILE_CLUSTER) barrier_arrive_at(&shared.empty[before.slot], thread);
            before.next();
        }
    }
    turn_give(1 - consumer);
    products_wait<0>();
    registers_fence(sum[0]);
    registers_fence(sum[1]);
    if (thread < TILE_CLUSTER) barrier_arrive_at(&shared.empty[before.slot], thread);
}

/* Among the threads of the consumer that calls. */
__device__ inline void consumer_sync(int consumer) {
    if (consumer == 0) warpgroup_sync<0>();
    else warpgroup_sync<1>();
}

/* The panels are complete: one thread sends them. */
__device__ inline void panels_send(product_shared &shared, int consumer, const CUtensorMap *first,
                                   const CUtensorMap *second, int first_column, int second_column, int row) {
    shared_publish();
    consumer_sync(consumer);
    if (threadIdx.x % WARPGROUP != 0) return;
    tile_store(first, shared.panel[consumer][0], first_column, row);
    if (second) tile_store(second, shared.panel[consumer][1], second_column, row);
    stores_commit();
}
/* They may be written again. */
__device__ inline void panels_take(int consumer) {
    if (threadIdx.x % WARPGROUP == 0) stores_wait();
    consumer_sync(consumer);
}

/* Rounds the first COLUMNS of the sums, in their place, and writes them to the panels if they are wanted there. */
template <class T, int COLUMNS>
__device__ inline void sums_round(product_shared &shared, tile_sum &sum, int consumer, bool is_wanted) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
#pragma unroll
    for (int j = 0; j < COLUMNS / 16; j++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t two[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *const pair = &sum[half][8 * j + 2 * i];
                two[i] = round_two(T(), pair[0], pair[1]);
                const float2 rounded = widen_two<T>(two[i]);
                pair[0] = rounded.x, pair[1] = rounded.y;
            }
            if (is_wanted)
                store_matrix(shared.panel[consumer][j / 4], half * PART + me.store_row(), 2 * (j % 4) + me.store_part(),
                             two);
        }
}

/* Every second tile. */
template <class USE, bool TURNED>
__device__ inline void product_consume(product_shared &shared, const product &p, const typename USE::parts &u,
                                       int consumer) {
    const int rank = cluster_rank(), n_clusters = (int)gridDim.x / TILE_CLUSTER;
    const product_walk w(p);
    ring<TILE_STAGES> at;
    int phase = 0;
    if (consumer == 1) turn_give(0), at.skip(p.n_steps);
    for (int index = blockIdx.x / TILE_CLUSTER + consumer * n_clusters; index < w.n_tiles;
         index += TILE_CONSUMERS * n_clusters, phase ^= 1, at.skip(p.n_steps)) {
        tile_sum sum;
        const product_tile t = product_tile_at<USE>(p, w, index, rank);
        USE::begin(p, u, t, sum);
        if constexpr (USE::N_FETCHES == 0) panels_take(consumer); /* read long ago */
        tile_multiply<typename USE::T, TURNED>(shared, at, p.n_steps, consumer, sum);
        USE::finish(shared, p, u, sum, t, consumer, phase);
    }
    if (threadIdx.x % WARPGROUP == 0) stores_finish();
}

#endif

template <class USE, bool TURNED>
__global__ void __cluster_dims__(TILE_CLUSTER, 1, 1) __launch_bounds__(HOPPER_THREADS, 1)
    hopper_product(const __grid_constant__ product p, const __grid_constant__ typename USE::parts u) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) char memory[];
    product_shared &shared = *(product_shared *)memory;
    const int role = warp_uniform((int)threadIdx.x / WARPGROUP);
    if (threadIdx.x == 0) {
        for (int i = 0; i < TILE_STAGES; i++) {
            barrier_init(&shared.full[i], 1);
            barrier_init(&shared.empty[i], TILE_CLUSTER);
        }
        for (int i = 0; i < TILE_CONSUMERS; i++) {
            barrier_init(&shared.there[i], 1);
            barrier_init(&shared.gone[i], 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) operands_fetch<USE, TURNED>(shared, p);
        if constexpr (USE::N_FETCHES > 0)
            if (threadIdx.x == 32) panels_fetch<USE>(shared, p, u);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        product_consume<USE, TURNED>(shared, p, u, role - 1);
    }
    __syncwarp();
    cluster_sync(); /* a block must not leave while another still writes to its shared memory */
#endif
}

/* What most uses have in common: sums begin with nothing. */
template <class TYPE, class PARTS, int WIDTH, int FETCHES> struct product_use {
    typedef TYPE T;
    typedef PARTS parts;
    enum { COLUMNS = WIDTH, N_FETCHES = FETCHES };
#if HAS_WARPGROUPS
    static __device__ inline void begin(const product &, const PARTS &, product_tile, tile_sum &sum) {
        memset(sum, 0, sizeof sum);
    }
#endif
};

/* ---- Launching ---------------------------------------------------------------------------------------- */

static bool map_rows(const tl_kernel_args *args, CUtensorMap *map, const rows &r, int tile) {
    const int64_t apart = r.stride[0], all = r.shape[0] * apart;
    return map_encode(args, map, r.operand.dtype, r.operand.data, {r.shape[1], r.shape[0], 1, 1}, {apart, all, all},
                      tile);
}

/* TMA reads rows of a multiple of 16 bytes, at addresses that are one, and counts them in 32 bits. */
static bool rows_fit_map(const void *data, int64_t n_rows, int64_t width) {
    return (uintptr_t)data % 16 == 0 && width > 0 && width % 8 == 0 && n_rows < INT_MAX;
}

template <class USE, bool TURNED>
static bool product_launch(const tl_kernel_args *args, product &p, const typename USE::parts &u, int64_t K) {
    p.n_pairs = (int)((p.M + PAIR_ROWS - 1) / PAIR_ROWS);
    p.n_across = (int)((p.N + USE::COLUMNS - 1) / USE::COLUMNS);
    p.n_tiles = p.n_pairs * p.n_across; /* 2^31 of them would have 2^46 results */
    p.n_steps = (int)((K + TILE_TERMS - 1) / TILE_TERMS);
    auto kernel = hopper_product<USE, TURNED>;
    if (!shared_memory_allow(args, kernel, sizeof(product_shared))) return false;
    const int most = cuda_state_of(args->stream)->n_multiprocessors / TILE_CLUSTER;
    const unsigned blocks = (unsigned)(TILE_CLUSTER * (p.n_tiles < most ? p.n_tiles : most));
    kernel<<<blocks, HOPPER_THREADS, sizeof(product_shared), stream_of(args)>>>(p, u);
    return true;
}

/* ---- Sums ---------------------------------------------------------------------------------------------- */

/* sums[j] = the sum of partial (n_rows, N)'s column j: 32 columns for each block, their rows in 8 runs. `gate`: nothing
 * to do if it is 0; NULL: none. */
template <class T>
static __global__ void __launch_bounds__(256)
    partial_sums(const float *partial, T *sums, int64_t n_rows, int64_t N, const int *gate) {
    __shared__ float runs[8][32];
    front_wait();
    if (gate && *gate == 0) return;
    const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x % 32;
    const int run = threadIdx.x / 32;
    float sum = 0;
#pragma unroll 8
    for (int64_t i = run; column < N && i < n_rows; i += 8) sum += partial[i * N + column];
    runs[run][threadIdx.x % 32] = sum;
    __syncthreads();
    if (run != 0 || column >= N) return;
    for (int i = 1; i < 8; i++) sum += runs[i][threadIdx.x];
    sums[column] = conversion<T>::from(sum);
}

#endif
