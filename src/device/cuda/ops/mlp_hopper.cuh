/* mlp_hopper.cuh: a product on Hopper's warpgroup tensor cores with an activation, or the slope of one, before the
 * result is written. 16-bit operands.
 *
 *      out (M,N) = a (M,K) b (K,N)
 *
 * A block computes tiles of 128 x 128, one after the other. Warp 0 fetches operands by TMA into a ring of shared
 * memory, 64 terms at a time. Warpgroups 1 and 2 take turns: one multiplies while the other works on the results of
 * the tile before, so that the tensor cores hardly ever wait for an activation. Two blocks, which have the same columns
 * of neighbouring rows, form a cluster: each fetches half of b for both.
 *
 * Results pass through panels in shared memory, 128 rows of 64 columns each, two per consumer, and are written by TMA.
 * A slope needs what the activation was applied to; warp 1 fetches it into those panels ahead of time, and the results
 * take its place. TMA fills zeros beyond a tensor and writes nothing there, so that any M is fine, and any N and K that
 * are multiples of 8.
 */
#ifndef CUDA_MLP_HOPPER_CUH
#define CUDA_MLP_HOPPER_CUH

#include "device/cuda/shared/hopper.cuh"
#include "device/cuda/shared/real_math.cuh"

enum {
    MLP_ROWS = MLP_SUMS_ROWS,
    MLP_COLUMNS = 128,
    MLP_TERMS = 64,
    MLP_STAGES = 5,
    MLP_CONSUMERS = 2,
    MLP_CLUSTER = 2
};
enum { PANEL = MLP_ROWS * PART, PANELS = 2, MLP_GROUP = 8 /* pairs of tiles, one above the other, of a walk */ };

/* What becomes of a product p:
 *      GELU        h = p + bias, y = gelu(h)
 *      GELU_SLOPE  dh = p gelu'(h), and the sums of its columns
 *      SWIGLU      p is gate and up, 64 columns each; y = silu(gate) up
 *      SWIGLU_SLOPE  dgate = p up silu'(gate), dup = p silu(gate) */
enum mlp_kind { GELU, GELU_SLOPE, SWIGLU, SWIGLU_SLOPE };

struct mlp_maps {
    CUtensorMap a, b[2];   /* b: one for each block of a cluster; they differ for SWIGLU alone */
    CUtensorMap kept[2];   /* h, or gate and up: read by a slope, else written unless is_lean */
    CUtensorMap result[2]; /* y; dh; dgate and dup */
};

struct mlp {
    int64_t n_tiles;       /* of 256 x 128 (SWIGLU: of y, 256 x 64): a cluster's */
    int n_pairs, n_across; /* tiles below each other, and side by side */
    int n_steps;           /* of MLP_TERMS terms */
    int64_t M, N;
    const void *bias; /* (N), of the operands' dtype; NULL: none */
    float *sums;      /* (tiles of 128 rows, N): of the columns of each tile's dh; NULL: not wanted */
    bool is_lean;     /* what the activation was applied to is not wanted */
};

struct __align__(1024) mlp_shared {
    uint16_t a[MLP_STAGES][MLP_ROWS * MLP_TERMS], b[MLP_STAGES][MLP_COLUMNS * MLP_TERMS];
    uint16_t panel[MLP_CONSUMERS][PANELS][PANEL];
    uint64_t full[MLP_STAGES], empty[MLP_STAGES];
    uint64_t there[MLP_CONSUMERS], gone[MLP_CONSUMERS]; /* what a slope reads, in a consumer's panels */
    float column_sums[MLP_CONSUMERS][2][MLP_COLUMNS];
};
static_assert(sizeof(mlp_shared) <= 227 << 10, "what a block may have");

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

#define PRODUCTS(type)                                                                      \
    SHARED_PRODUCT(multiply_plain, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 0) \
    SHARED_PRODUCT(multiply_turned_b, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 1)
PRODUCTS(bf16)
PRODUCTS(f16)
#undef PRODUCTS

/* ---- Clusters ------------------------------------------------------------------------------------------- */

__device__ inline int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ inline void cluster_sync() { asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory"); }
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
                 "l"(map), "r"(shared_address(barrier)), "r"(d), "r"(t), "r"(0), "h"((uint16_t)((1 << MLP_CLUSTER) - 1))
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

struct mlp_tile {
    int row, column; /* where this block's part begins */
};
/* MLP_GROUP pairs of tiles at a time, all columns: what is fetched by blocks that run at once lies in the L2 cache. */
template <int KIND> __device__ inline mlp_tile mlp_tile_at(const mlp &p, int64_t index, int rank) {
    const int64_t per_group = (int64_t)MLP_GROUP * p.n_across;
    const int group = (int)(index / per_group), rest = (int)(index % per_group);
    const int height = min((int)MLP_GROUP, p.n_pairs - group * MLP_GROUP);
    const int pair = group * MLP_GROUP + rest % height, across = rest / height;
    return {(pair * MLP_CLUSTER + rank) * MLP_ROWS, across * (KIND == SWIGLU ? PART : MLP_COLUMNS)};
}

/* One thread: the operands of all of the block's tiles. */
template <int KIND, bool TURNED> __device__ inline void mlp_fetch(mlp_shared &shared, const mlp &p, const mlp_maps &m) {
    const int rank = cluster_rank();
    ring<MLP_STAGES> at;
    for (int64_t index = blockIdx.x / MLP_CLUSTER; index < p.n_tiles; index += gridDim.x / MLP_CLUSTER) {
        const mlp_tile t = mlp_tile_at<KIND>(p, index, rank);
        const int column = KIND == SWIGLU ? t.column : t.column + rank * PART; /* of this block's half of b */
        for (int step = 0; step < p.n_steps; step++, at.next()) {
            uint64_t *const full = &shared.full[at.slot];
            const int k = step * MLP_TERMS;
            barrier_wait(&shared.empty[at.slot], at.phase ^ 1);
            barrier_expect(full, (MLP_ROWS + MLP_COLUMNS) * MLP_TERMS * 2);
            tile_fetch(shared.a[at.slot], &m.a, full, k, t.row, 0, 0);
            tile_fetch_for_all(shared.b[at.slot] + rank * PART * PART, &m.b[rank], full, TURNED ? column : k,
                               TURNED ? k : column);
        }
    }
}

/* One thread: what the slopes read, for one consumer after the other. */
template <int KIND> __device__ inline void mlp_fetch_kept(mlp_shared &shared, const mlp &p, const mlp_maps &m) {
    const int rank = cluster_rank(), n_turns = KIND == SWIGLU_SLOPE ? 2 : 1;
    int consumer = 0, phase = 0;
    for (int64_t index = blockIdx.x / MLP_CLUSTER; index < p.n_tiles; index += gridDim.x / MLP_CLUSTER) {
        const mlp_tile t = mlp_tile_at<KIND>(p, index, rank);
        for (int turn = 0; turn < n_turns; turn++) {
            const int at = (phase * n_turns + turn) & 1;
            barrier_wait(&shared.gone[consumer], at ^ 1);
            barrier_expect(&shared.there[consumer], PANELS * PANEL * 2);
            for (int i = 0; i < PANELS; i++)
                tile_fetch(shared.panel[consumer][i], &m.kept[KIND == SWIGLU_SLOPE ? i : 0], &shared.there[consumer],
                           t.column + (KIND == SWIGLU_SLOPE ? turn : i) * PART, t.row, 0, 0);
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
    asm volatile("bar.sync %0, %1;" ::"r"(FIRST_TURN + consumer), "n"(MLP_CONSUMERS * WARPGROUP) : "memory");
}
__device__ inline void turn_give(int consumer) {
    asm volatile("bar.arrive %0, %1;" ::"r"(FIRST_TURN + consumer), "n"(MLP_CONSUMERS * WARPGROUP) : "memory");
}

/* The sums of a tile: [64-row half][columns of the wgmma's layout] */
typedef float mlp_sum[MLP_ROWS / PART][MLP_COLUMNS / 2];

template <class T, bool TURNED>
__device__ inline void mlp_multiply(mlp_shared &shared, int64_t n_before, int n_steps, int consumer, mlp_sum &sum) {
    ring<MLP_STAGES> at;
    at.slot = (int)(n_before % MLP_STAGES);
    at.phase = (int)(n_before / MLP_STAGES % 2);
    ring<MLP_STAGES> before = at;
    const int thread = (int)threadIdx.x % WARPGROUP;
    turn_await(consumer);
    for (int step = 0; step < n_steps; step++, at.next()) {
        barrier_wait(&shared.full[at.slot], at.phase);
        registers_fence(sum[0]);
        registers_fence(sum[1]);
        products_begin();
        const uint64_t b = tile_operand(shared.b[at.slot], TURNED ? PART * PART * 2 : 0);
#pragma unroll
        for (int k = 0; k < MLP_TERMS / 16; k++) {
#pragma unroll
            for (int half = 0; half < MLP_ROWS / PART; half++) {
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
            if (thread < MLP_CLUSTER) barrier_arrive_at(&shared.empty[before.slot], thread);
            before.next();
        }
    }
    turn_give(1 - consumer);
    products_wait<0>();
    registers_fence(sum[0]);
    registers_fence(sum[1]);
    if (thread < MLP_CLUSTER) barrier_arrive_at(&shared.empty[before.slot], thread);
}

/* Among the threads of the consumer that calls. */
__device__ inline void consumer_sync(int consumer) {
    if (consumer == 0) warpgroup_sync<0>();
    else warpgroup_sync<1>();
}

/* The panels are complete: one thread sends them. */
__device__ inline void panels_send(mlp_shared &shared, int consumer, const CUtensorMap *first,
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

/* The sums begin with the bias. */
template <class T> __device__ inline void bias_load(const mlp &p, mlp_tile t, mlp_sum &sum) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
#pragma unroll
    for (int x = 0; x < MLP_COLUMNS / 2; x += 4) { /* 8 columns */
        const int column = t.column + 2 * x + me.column();
        float2 two = make_float2(0, 0);
        if (p.bias && column < p.N) two = widen_two<T>(*(const uint32_t *)((const T *)p.bias + column));
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < 4; i++) /* by hand: ptxas may move a conversion between the products */
                asm volatile("mov.b32 %0, %1;" : "=f"(sum[half][x + i]) : "f"(i % 2 ? two.y : two.x));
        }
    }
    registers_fence(sum[0]);
    registers_fence(sum[1]);
}

/* Rounds the first COLUMNS of the sums, in their place, and writes them to the panels if they are wanted there. */
template <class T, int COLUMNS>
__device__ inline void sums_round(mlp_shared &shared, mlp_sum &sum, int consumer, bool is_wanted) {
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

template <class T>
__device__ inline void gelu_forward(mlp_shared &shared, const mlp &p, const mlp_maps &m, mlp_sum &sum, mlp_tile t,
                                    int consumer) {
    sums_round<T, MLP_COLUMNS>(shared, sum, consumer, !p.is_lean);
    if (!p.is_lean) panels_send(shared, consumer, &m.kept[0], &m.kept[0], t.column, t.column + PART, t.row);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int x = 0; x < MLP_COLUMNS / 2; x++) sum[half][x] = short_gelu(sum[half][x]);
    if (!p.is_lean) panels_take(consumer);
    sums_round<T, MLP_COLUMNS>(shared, sum, consumer, true);
    panels_send(shared, consumer, &m.result[0], &m.result[0], t.column, t.column + PART, t.row);
}

/* Sums over the 8 lanes that have the same columns. Each lane comes with N pairs of columns and leaves with N / 8 of
 * them, pairs N/8 (lane / 4) on: in each of three rounds two lanes share the pairs that they both have. */
template <int N, int BIT, int ALL> __device__ inline void columns_share(float2 (&s)[ALL]) {
    const bool upper = threadIdx.x & BIT;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const float2 low = s[i], high = s[i + N / 2];
        s[i].x = (upper ? high.x : low.x) + __shfl_xor_sync(0xffffffffu, upper ? low.x : high.x, BIT);
        s[i].y = (upper ? high.y : low.y) + __shfl_xor_sync(0xffffffffu, upper ? low.y : high.y, BIT);
    }
    if constexpr (BIT > 4) columns_share<N / 2, BIT / 2>(s);
}

template <class T>
__device__ inline void gelu_backward(mlp_shared &shared, const mlp &p, const mlp_maps &m, mlp_sum &sum, mlp_tile t,
                                     int consumer, int phase) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    barrier_wait(&shared.there[consumer], phase);
    float2 sums[MLP_COLUMNS / 8]; /* of columns 8 j + me.column() on */
#pragma unroll
    for (int j = 0; j < MLP_COLUMNS / 16; j++) {
        sums[2 * j] = sums[2 * j + 1] = make_float2(0, 0);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t two[4];
            load_matrix(two, shared.panel[consumer][j / 4], half * PART + me.store_row(),
                        2 * (j % 4) + me.store_part());
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 h = widen_two<T>(two[i]);
                const float low = sum[half][8 * j + 2 * i], high = sum[half][8 * j + 2 * i + 1];
                const float dl = low * short_gelu_slope(h.x), dh = high * short_gelu_slope(h.y);
                sums[2 * j + i / 2].x += dl;
                sums[2 * j + i / 2].y += dh;
                two[i] = round_two(T(), dl, dh);
            }
            store_matrix(shared.panel[consumer][j / 4], half * PART + me.store_row(), 2 * (j % 4) + me.store_part(),
                         two);
        }
    }
    panels_send(shared, consumer, &m.result[0], &m.result[0], t.column, t.column + PART, t.row);
    if (p.sums) {
        columns_share<MLP_COLUMNS / 8, 16>(sums);
        const int lane = me.lane % 32, warp = me.lane / 32;
        float *const mine = shared.column_sums[consumer][warp % 2] + 8 * (lane / 4 * (MLP_COLUMNS / 64)) + me.column();
#pragma unroll
        for (int i = 0; i < MLP_COLUMNS / 64; i++)
            if (warp >= 2) *(float2 *)(mine + 8 * i) = sums[i];
        consumer_sync(consumer);
#pragma unroll
        for (int i = 0; i < MLP_COLUMNS / 64; i++)
            if (warp < 2) mine[8 * i] += sums[i].x, mine[8 * i + 1] += sums[i].y;
        consumer_sync(consumer);
        const int column = t.column + me.lane;
        if (t.row < p.M && column < p.N)
            p.sums[t.row / MLP_ROWS * p.N + column] =
                shared.column_sums[consumer][0][me.lane] + shared.column_sums[consumer][1][me.lane];
    }
    if (me.lane == 0) {
        stores_wait();
        barrier_arrive(&shared.gone[consumer]);
    }
    consumer_sync(consumer); /* column_sums may be written again */
}

template <class T>
__device__ inline void swiglu_forward(mlp_shared &shared, const mlp &p, const mlp_maps &m, mlp_sum &sum, mlp_tile t,
                                      int consumer) {
    sums_round<T, MLP_COLUMNS>(shared, sum, consumer, !p.is_lean);
    if (!p.is_lean) panels_send(shared, consumer, &m.kept[0], &m.kept[1], t.column, t.column, t.row);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int x = 0; x < PART / 2; x++)
            sum[half][x] = sum[half][x] * short_sigmoid(sum[half][x]) * sum[half][x + PART / 2];
    if (!p.is_lean) panels_take(consumer);
    sums_round<T, PART>(shared, sum, consumer, true);
    panels_send(shared, consumer, &m.result[0], nullptr, t.column, 0, t.row);
}

/* 64 columns at a time: gate and up in one panel each. */
template <class T>
__device__ inline void swiglu_backward(mlp_shared &shared, const mlp_maps &m, mlp_sum &sum, mlp_tile t, int consumer,
                                       int phase) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
#pragma unroll
    for (int turn = 0; turn < 2; turn++) {
        barrier_wait(&shared.there[consumer], (phase * 2 + turn) & 1);
#pragma unroll
        for (int j = 0; j < PART / 16; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t gates[4], ups[4];
                const int row = half * PART + me.store_row(), part = 2 * j + me.store_part();
                load_matrix(gates, shared.panel[consumer][0], row, part);
                load_matrix(ups, shared.panel[consumer][1], row, part);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *const g = &sum[half][turn * (PART / 2) + 8 * j + 2 * i];
                    const float2 gate = widen_two<T>(gates[i]), up = widen_two<T>(ups[i]);
                    const float yl = short_sigmoid(gate.x), yh = short_sigmoid(gate.y);
                    gates[i] = round_two(T(), g[0] * up.x * short_silu_slope(gate.x, yl),
                                         g[1] * up.y * short_silu_slope(gate.y, yh));
                    ups[i] = round_two(T(), g[0] * (gate.x * yl), g[1] * (gate.y * yh));
                }
                store_matrix(shared.panel[consumer][0], row, part, gates);
                store_matrix(shared.panel[consumer][1], row, part, ups);
            }
        panels_send(shared, consumer, &m.result[0], &m.result[1], t.column + turn * PART, t.column + turn * PART,
                    t.row);
        if (me.lane == 0) {
            stores_wait();
            barrier_arrive(&shared.gone[consumer]);
        }
    }
}

/* Every second tile. */
template <class T, int KIND, bool TURNED>
__device__ inline void mlp_consume(mlp_shared &shared, const mlp &p, const mlp_maps &m, int consumer) {
    const int rank = cluster_rank(), n_clusters = (int)gridDim.x / MLP_CLUSTER;
    int64_t n_before = (int64_t)consumer * p.n_steps; /* steps, of all tiles of this block */
    int phase = 0;
    if (consumer == 1) turn_give(0);
    for (int64_t index = blockIdx.x / MLP_CLUSTER + (int64_t)consumer * n_clusters; index < p.n_tiles;
         index += MLP_CONSUMERS * n_clusters, phase ^= 1, n_before += MLP_CONSUMERS * p.n_steps) {
        mlp_sum sum;
        if constexpr (KIND != GELU) memset(sum, 0, sizeof sum);
        const mlp_tile t = mlp_tile_at<KIND>(p, index, rank);
        if constexpr (KIND == GELU) bias_load<T>(p, t, sum);
        if constexpr (KIND == GELU || KIND == SWIGLU) panels_take(consumer); /* read long ago */
        mlp_multiply<T, TURNED>(shared, n_before, p.n_steps, consumer, sum);
        if constexpr (KIND == GELU) gelu_forward<T>(shared, p, m, sum, t, consumer);
        if constexpr (KIND == GELU_SLOPE) gelu_backward<T>(shared, p, m, sum, t, consumer, phase);
        if constexpr (KIND == SWIGLU) swiglu_forward<T>(shared, p, m, sum, t, consumer);
        if constexpr (KIND == SWIGLU_SLOPE) swiglu_backward<T>(shared, m, sum, t, consumer, phase);
    }
    if (threadIdx.x % WARPGROUP == 0) stores_finish();
}

#endif

template <class T, int KIND, bool TURNED>
__global__ void __cluster_dims__(MLP_CLUSTER, 1, 1) __launch_bounds__(HOPPER_THREADS, 1)
    hopper_mlp(const __grid_constant__ mlp_maps maps, const __grid_constant__ mlp p) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) char memory[];
    mlp_shared &shared = *(mlp_shared *)memory;
    const int role = (int)threadIdx.x / WARPGROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < MLP_STAGES; i++) {
            barrier_init(&shared.full[i], 1);
            barrier_init(&shared.empty[i], MLP_CLUSTER);
        }
        for (int i = 0; i < MLP_CONSUMERS; i++) {
            barrier_init(&shared.there[i], 1);
            barrier_init(&shared.gone[i], 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) mlp_fetch<KIND, TURNED>(shared, p, maps);
        if constexpr (KIND == GELU_SLOPE || KIND == SWIGLU_SLOPE)
            if (threadIdx.x == 32) mlp_fetch_kept<KIND>(shared, p, maps);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        mlp_consume<T, KIND, TURNED>(shared, p, maps, role - 1);
    }
    __syncwarp();
    cluster_sync(); /* a block must not leave while another still writes to its shared memory */
#endif
}

#endif
