/* mlp_hopper.cuh: products that apply an activation, or the slope of one, before they write (product_hopper.cuh).
 *
 * What becomes of a product p:
 *      gelu_use          h = p + bias, y = gelu(h)
 *      gelu_slope_use    dh = p gelu'(h), and the sums of its columns
 *      swiglu_use        p is gate and up, 64 columns each; y = silu(gate) up
 *      swiglu_slope_use  dgate = p up silu'(gate), dup = p silu(gate)
 */
#ifndef CUDA_MLP_HOPPER_CUH
#define CUDA_MLP_HOPPER_CUH

#include "device/cuda/shared/product_hopper.cuh"
#include "device/cuda/shared/real_math.cuh"

struct mlp_parts {
    CUtensorMap kept[2];   /* h, or gate and up: read by a slope, else written unless is_lean */
    CUtensorMap result[2]; /* y; dh; dgate and dup */
    const void *bias;      /* (N), of the operands' dtype; NULL: none */
    float *sums;           /* (tiles of 128 rows, N): of the columns of each tile's dh; NULL: not wanted */
    bool is_lean;          /* what the activation was applied to is not wanted */
};

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

/* The sums begin with the bias. All of it is asked for before any of it is used; beyond the last column the sums begin
 * with whatever is before it, since nobody reads them. */
template <class T>
__device__ inline void bias_load(const product &p, const mlp_parts &u, product_tile t, tile_sum &sum) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    uint32_t twos[TILE_COLUMNS / 8] = {};
    if (u.bias) {
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS / 8; j++)
            twos[j] = *(const uint32_t *)((const T *)u.bias + min(t.column + 8 * j + me.column(), (int)p.N - 2));
    }
#pragma unroll
    for (int j = 0; j < TILE_COLUMNS / 8; j++) {
        const float2 two = widen_two<T>(twos[j]);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < 4; i++) /* by hand: ptxas may move a conversion between the products */
                asm volatile("mov.b32 %0, %1;" : "=f"(sum[half][4 * j + i]) : "f"(i % 2 ? two.y : two.x));
    }
    registers_fence(sum[0]);
    registers_fence(sum[1]);
}

template <class T>
__device__ inline void gelu_forward(product_shared &shared, const mlp_parts &u, tile_sum &sum, product_tile t,
                                    int consumer) {
    sums_round<T, TILE_COLUMNS>(shared, sum, consumer, !u.is_lean);
    if (!u.is_lean) panels_send(shared, consumer, &u.kept[0], &u.kept[0], t.column, t.column + PART, t.row);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int x = 0; x < TILE_COLUMNS / 2; x++) sum[half][x] = short_gelu(sum[half][x]);
    if (!u.is_lean) panels_take(consumer);
    sums_round<T, TILE_COLUMNS>(shared, sum, consumer, true);
    panels_send(shared, consumer, &u.result[0], &u.result[0], t.column, t.column + PART, t.row);
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
__device__ inline void gelu_backward(product_shared &shared, const product &p, const mlp_parts &u, tile_sum &sum,
                                     product_tile t, int consumer, int phase) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    barrier_wait(&shared.there[consumer], phase);
    float2 sums[TILE_COLUMNS / 8] = {};      /* of columns 8 j + me.column() on */
    enum { BLOCKS = TILE_COLUMNS / 16 * 2 }; /* of 16 columns of half of the rows */
    uint32_t hs[2][4];                       /* of this block, and of the next: read while this one is worked on */
    load_matrix(hs[0], shared.panel[consumer][0], me.store_row(), me.store_part());
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const int j = b / 2, half = b % 2, next = b + 1;
        if (next < BLOCKS)
            load_matrix(hs[next % 2], shared.panel[consumer][next / 8], next % 2 * PART + me.store_row(),
                        2 * (next / 2 % 4) + me.store_part());
        uint32_t(&two)[4] = hs[b % 2];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 h = widen_two<T>(two[i]);
            const float low = sum[half][8 * j + 2 * i], high = sum[half][8 * j + 2 * i + 1];
            const float dl = low * short_gelu_slope(h.x), dh = high * short_gelu_slope(h.y);
            sums[2 * j + i / 2].x += dl;
            sums[2 * j + i / 2].y += dh;
            two[i] = round_two(T(), dl, dh);
        }
        store_matrix(shared.panel[consumer][j / 4], half * PART + me.store_row(), 2 * (j % 4) + me.store_part(), two);
    }
    panels_send(shared, consumer, &u.result[0], &u.result[0], t.column, t.column + PART, t.row);
    if (u.sums) {
        columns_share<TILE_COLUMNS / 8, 16>(sums);
        const int lane = me.lane % 32, warp = me.lane / 32;
        float *const mine = shared.column_sums[consumer][warp % 2] + 8 * (lane / 4 * (TILE_COLUMNS / 64)) + me.column();
#pragma unroll
        for (int i = 0; i < TILE_COLUMNS / 64; i++)
            if (warp >= 2) *(float2 *)(mine + 8 * i) = sums[i];
        consumer_sync(consumer);
#pragma unroll
        for (int i = 0; i < TILE_COLUMNS / 64; i++)
            if (warp < 2) mine[8 * i] += sums[i].x, mine[8 * i + 1] += sums[i].y;
        consumer_sync(consumer);
        const int column = t.column + me.lane;
        if (t.row < p.M && column < p.N)
            u.sums[t.row / TILE_ROWS * p.N + column] =
                shared.column_sums[consumer][0][me.lane] + shared.column_sums[consumer][1][me.lane];
    }
    if (me.lane == 0) {
        stores_wait();
        barrier_arrive(&shared.gone[consumer]);
    }
    consumer_sync(consumer); /* column_sums may be written again */
}

template <class T>
__device__ inline void swiglu_forward(product_shared &shared, const mlp_parts &u, tile_sum &sum, product_tile t,
                                      int consumer) {
    sums_round<T, TILE_COLUMNS>(shared, sum, consumer, !u.is_lean);
    if (!u.is_lean) panels_send(shared, consumer, &u.kept[0], &u.kept[1], t.column, t.column, t.row);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int x = 0; x < PART / 2; x++)
            sum[half][x] = sum[half][x] * short_sigmoid(sum[half][x]) * sum[half][x + PART / 2];
    if (!u.is_lean) panels_take(consumer);
    sums_round<T, PART>(shared, sum, consumer, true);
    panels_send(shared, consumer, &u.result[0], nullptr, t.column, 0, t.row);
}

/* 64 columns at a time: gate and up in one panel each. */
template <class T>
__device__ inline void swiglu_backward(product_shared &shared, const mlp_parts &u, tile_sum &sum, product_tile t,
                                       int consumer, int phase) {
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
#pragma unroll
    for (int turn = 0; turn < 2; turn++) {
        barrier_wait(&shared.there[consumer], (phase * 2 + turn) & 1);
        enum { BLOCKS = PART / 16 * 2 };         /* of 16 columns of half of the rows */
        uint32_t all_gates[2][4], all_ups[2][4]; /* of this block and of the next */
        auto load = [&](int b) {
            const int row = b % 2 * PART + me.store_row(), part = 2 * (b / 2) + me.store_part();
            load_matrix(all_gates[b % 2], shared.panel[consumer][0], row, part);
            load_matrix(all_ups[b % 2], shared.panel[consumer][1], row, part);
        };
        load(0);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const int j = b / 2, half = b % 2, row = half * PART + me.store_row(), part = 2 * j + me.store_part();
            if (b + 1 < BLOCKS) load(b + 1);
            uint32_t(&gates)[4] = all_gates[half], (&ups)[4] = all_ups[half];
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
        panels_send(shared, consumer, &u.result[0], &u.result[1], t.column + turn * PART, t.column + turn * PART,
                    t.row);
        if (me.lane == 0) {
            stores_wait();
            barrier_arrive(&shared.gone[consumer]);
        }
    }
}

#endif

/* ---- Uses ---------------------------------------------------------------------------------------------- */

template <class TYPE, int WIDTH, int FETCHES> using mlp_use = product_use<TYPE, mlp_parts, WIDTH, FETCHES>;

template <class TYPE> struct gelu_use : mlp_use<TYPE, TILE_COLUMNS, 0> {
#if HAS_WARPGROUPS
    static __device__ inline void begin(const product &p, const mlp_parts &u, product_tile t, tile_sum &sum) {
        bias_load<TYPE>(p, u, t, sum);
    }
    static __device__ inline void finish(product_shared &shared, const product &, const mlp_parts &u, tile_sum &sum,
                                         product_tile t, int consumer, int) {
        gelu_forward<TYPE>(shared, u, sum, t, consumer);
    }
#endif
};
template <class TYPE> struct gelu_slope_use : mlp_use<TYPE, TILE_COLUMNS, 1> {
#if HAS_WARPGROUPS
    static __device__ inline void fetch(product_shared &shared, const mlp_parts &u, product_tile t, int consumer, int) {
        for (int i = 0; i < PANELS; i++)
            tile_fetch(shared.panel[consumer][i], &u.kept[0], &shared.there[consumer], t.column + i * PART, t.row, 0,
                       0);
    }
    static __device__ inline void finish(product_shared &shared, const product &p, const mlp_parts &u, tile_sum &sum,
                                         product_tile t, int consumer, int phase) {
        gelu_backward<TYPE>(shared, p, u, sum, t, consumer, phase);
    }
#endif
};
template <class TYPE> struct swiglu_use : mlp_use<TYPE, PART, 0> {
#if HAS_WARPGROUPS
    static __device__ inline void finish(product_shared &shared, const product &, const mlp_parts &u, tile_sum &sum,
                                         product_tile t, int consumer, int) {
        swiglu_forward<TYPE>(shared, u, sum, t, consumer);
    }
#endif
};
template <class TYPE> struct swiglu_slope_use : mlp_use<TYPE, TILE_COLUMNS, 2> {
#if HAS_WARPGROUPS
    static __device__ inline void fetch(product_shared &shared, const mlp_parts &u, product_tile t, int consumer,
                                        int turn) {
        for (int i = 0; i < PANELS; i++)
            tile_fetch(shared.panel[consumer][i], &u.kept[i], &shared.there[consumer], t.column + turn * PART, t.row, 0,
                       0);
    }
    static __device__ inline void finish(product_shared &shared, const product &, const mlp_parts &u, tile_sum &sum,
                                         product_tile t, int consumer, int phase) {
        swiglu_backward<TYPE>(shared, u, sum, t, consumer, phase);
    }
#endif
};

#endif
