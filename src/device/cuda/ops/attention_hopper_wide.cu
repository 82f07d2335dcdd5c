/* attention_hopper_wide.cu: the gradient of attention for heads of 129 to 256 on Hopper's warpgroup tensor cores, for
 * 16-bit operands, with all that can hide or drop a key: causal masks, windows, first keys, masks, dropout.
 *
 * dk and dv of 64 keys fill the registers of two warpgroups, and leave none for dq. So there are two passes, each with
 * its own scores: seven products instead of five, and no sums outside of registers. With p = exp(s - lse),
 * dp = m g v^T and ds = p (dp - delta), where m is 0 or 1/(1 - dropout):
 *
 *   keys      dv_j = sum over i of (m p)^T g_i    dk_j = scale sum over i of ds^T q_i     a block has 64 keys j
 *   queries   dq_i = scale sum over j of ds k_j                                          a block has 128 queries i
 *
 * Keys. Both consumers have the same 64 keys, and walk the queries that see any of them, 64 at a time. Scores are
 * transposed (keys, queries): rounded, they are the register operands of dv and dk as they are.
 *
 *   consumer 0   s = k q^T, p, dv += (m p)^T g        gives p and what dropout drops to
 *   consumer 1   dp = v g^T, ds, dk += ds^T q         through shared memory, thread to thread
 *
 * Queries. Each consumer has 64 of the block's queries, and walks 64 keys at a time.
 *
 * A mask is where the sum of a score's products begins, in units of the scale: it takes no registers of its own, and
 * is read while the last product of the tile before runs.
 *
 * Warpgroup 0 fetches: one warp by TMA (tiles beyond T, S or D are filled with zeros), in the keys' pass another one
 * lse and delta. Sums follow the program's order and no other block adds to them: the same bits each time.
 */
#include "device/cuda/ops/attention_hopper.cuh"
#include "device/cuda/ops/attention_tile.cuh"
#include "device/cuda/shared/attention_rule.h"

enum { TILE = 64, STAGES = 2, GIVEN = 2, CONSUMER_WARPS = 4 };

template <int DP> struct wide_shape {
    enum { PARTS = DP / PART, TILE_ELEMENTS = TILE * DP, TILE_BYTES = 2 * TILE_ELEMENTS };
    enum { COLUMNS = DP == 256 ? 128 : 64, PRODUCTS = DP / COLUMNS }; /* a sum is made by so many products */
};

struct wide_maps {
    CUtensorMap q, k, v, g; /* in tiles of 64 rows */
};
struct wide_call {
    attention_call a;
    tile_mask mask;
    const float *delta; /* (B,H,T) */
    int n;              /* blocks of a head */
};

/* ---- The blocks' memory ------------------------------------------------------------------------------- */

template <int DP> struct __align__(1024) keys_shared {
    typedef wide_shape<DP> shape;
    uint16_t k[shape::TILE_ELEMENTS], v[shape::TILE_ELEMENTS]; /* in the end, dv and dk are put in order here */
    uint16_t q[STAGES][shape::TILE_ELEMENTS], g[STAGES][shape::TILE_ELEMENTS];
    uint4 weights[GIVEN][TILE / 16][WARPGROUP]; /* p, by the threads' registers */
    uint32_t dropped[GIVEN][WARPGROUP];
    float lse[STAGES][TILE], delta[STAGES][TILE];
    uint64_t k_full, v_full, q_full[STAGES], g_full[STAGES], rows_full[STAGES], empty[STAGES];
    uint64_t given_full[GIVEN], given_empty[GIVEN];
};
template <int DP> struct __align__(1024) queries_shared {
    typedef wide_shape<DP> shape;
    uint16_t q[2 * shape::TILE_ELEMENTS], g[2 * shape::TILE_ELEMENTS]; /* of each part: 128 rows */
    uint16_t k[STAGES][shape::TILE_ELEMENTS], v[shape::TILE_ELEMENTS];
    uint64_t own_full, k_full[STAGES], k_empty[STAGES], v_full, v_empty;
};

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

/* ---- What both passes share --------------------------------------------------------------------------- */

template <int DP>
__device__ inline void tile_fetch_parts(uint16_t *to, int part_rows, const CUtensorMap *map, uint64_t *barrier, int t,
                                        int h, int b) {
    for (int part = 0; part < wide_shape<DP>::PARTS; part++)
        tile_fetch(to + part * part_rows * PART, map, barrier, part * PART, t, h, b);
}

/* c (64,64) = or += x y^T, over all parts of the head; parts of x have x_rows rows. */
template <class T, int DP>
__device__ inline void scores_multiply(float (&c)[TILE / 2], uint64_t x, int x_rows, uint64_t y, bool adds) {
    registers_fence(c);
    products_begin();
#pragma unroll
    for (int k = 0; k < DP / 16; k++) {
        const int part = k / 4, step = k % 4 * STEP_ALONG_ROW;
        multiply_rows(T(), c, x + (part * x_rows * ROW_BYTES >> 4) + step, y + (part * TILE * ROW_BYTES >> 4) + step,
                      k > 0 || adds);
    }
    products_commit();
}

/* A sum of (64,DP) in registers. */
template <int DP> struct wide_sum {
    typedef wide_shape<DP> shape;
    float c[shape::PRODUCTS][shape::COLUMNS / 2];
    __device__ inline void clear() {
#pragma unroll
        for (int j = 0; j < shape::PRODUCTS; j++)
#pragma unroll
            for (int n = 0; n < shape::COLUMNS / 2; n++) c[j][n] = 0;
    }
    __device__ inline void fence() {
#pragma unroll
        for (int j = 0; j < shape::PRODUCTS; j++) registers_fence(c[j]);
    }
    /* += x (64,64) rows (64,DP) */
    template <class T> __device__ inline void add(const uint32_t (&x)[TILE / 16][4], const uint16_t *rows) {
        fence();
        products_begin();
#pragma unroll
        for (int j = 0; j < shape::PRODUCTS; j++) {
            const uint64_t columns = tile_operand(rows + j * shape::COLUMNS * TILE, TILE * ROW_BYTES);
#pragma unroll
            for (int k = 0; k < TILE / 16; k++) multiply_registers(T(), c[j], x[k], columns + k * STEP_ALONG_ROWS, 1);
        }
        products_commit();
    }
    /* Times a factor, rounded, to 64 rows of a head. Each part has its own staging, part_rows rows from the last. */
    template <class T>
    __device__ inline void write(const lane_place &me, float factor, uint16_t *staging, int part_rows,
                                 const attention_rows &rows, int b, int first, int h, int end, int D) const {
#pragma unroll
        for (int part = 0; part < shape::PARTS; part++)
            rows_write<T>(me, &c[part * PART / shape::COLUMNS][part * PART % shape::COLUMNS / 2], factor,
                          staging + part * part_rows * PART, rows, b, first, h, end, part * PART, D);
    }
};

/* The warp is done with what a barrier guards. */
__device__ inline void warp_arrive(const lane_place &me, uint64_t *barrier) {
    __syncwarp();
    if (me.lane % 32 == 0) barrier_arrive(barrier);
}

/* What the mask adds to (64,64) scores, in units of the scale. `first`: the warp's first row. */
template <bool KEYS_FIRST>
__device__ inline void scores_begin(float (&s)[TILE / 2], const attention_call &a, int b, int h, int first, int at,
                                    float unit) {
    float added[TILE / 8][4];
    mask_load<TILE, KEYS_FIRST>(added, a, b, h, first, at);
#pragma unroll
    for (int n = 0; n < TILE / 2; n++) s[n] = added[n / 4][n % 4] * unit;
}

/* lse in powers of two, such that p of a row that sees nothing is 0. */
__device__ inline float lse_of(float lse) { return lse == lowest<float>() ? -lowest<float>() : lse * LOG2_E; }

/* The columns from .. to - 1 that the lane's two rows see, and hiding the others among 64 from `at` on. */
struct row_sight {
    int from[2], to[2];
    __device__ inline void hide(const lane_place &me, float (&p)[TILE / 2], int at) const {
#pragma unroll
        for (int n = 0; n < TILE / 2; n++) {
            const int other = at + n / 4 * 8 + me.column() + n % 2;
            if (other < from[n / 2 % 2] || other >= to[n / 2 % 2]) p[n] = 0;
        }
    }
};

/* ---- Keys --------------------------------------------------------------------------------------------- */

/* Where a block of keys is, and which queries it walks, head after head of its group. */
struct key_block {
    int b, h_kv, group, begin; /* begin: the first key */
    int from, n_tiles, n_all;  /* from: the first query */
    int whole_from, whole_to;  /* the queries that see all of the keys */
};
__device__ inline key_block key_block_of(const wide_call &c) {
    const attention_call &a = c.a;
    const int head = (int)blockIdx.x / c.n;
    key_block at;
    at.b = head / (int)a.H_kv, at.h_kv = head % (int)a.H_kv, at.group = (int)(a.H / a.H_kv);
    at.begin = (int)blockIdx.x % c.n * TILE; /* the longest first */
    const int64_t last = min((int64_t)at.begin + TILE, a.S) - 1;
    const int to = (int)end_query(a, at.b, last);
    at.from = (int)first_query(a, at.begin) / TILE * TILE;
    at.n_tiles = to > at.from ? (to - at.from + TILE - 1) / TILE : 0;
    at.n_all = at.n_tiles * at.group;
    at.whole_from = (int)first_query(a, last), at.whole_to = (int)end_query(a, at.b, at.begin);
    return at;
}
/* A tile of queries: of head h, from t on. */
struct query_walk {
    int h, i, t;
    __device__ inline explicit query_walk(const key_block &at) : h(at.h_kv * at.group), i(0), t(at.from) {}
    __device__ inline void next(const key_block &at) {
        t += TILE;
        if (++i == at.n_tiles) i = 0, t = at.from, h++;
    }
};

template <int DP>
__device__ inline void keys_fetch(keys_shared<DP> &shared, const wide_maps &maps, const key_block &at) {
    typedef wide_shape<DP> shape;
    ring<STAGES> slot;
    query_walk walk(at);
    for (int n = 0; n < at.n_all; n++, slot.next(), walk.next(at)) {
        barrier_wait(&shared.empty[slot.slot], slot.phase ^ 1);
        if (n == 0) {
            barrier_expect(&shared.k_full, shape::TILE_BYTES);
            tile_fetch_parts<DP>(shared.k, TILE, &maps.k, &shared.k_full, at.begin, at.h_kv, at.b);
        }
        barrier_expect(&shared.q_full[slot.slot], shape::TILE_BYTES);
        tile_fetch_parts<DP>(shared.q[slot.slot], TILE, &maps.q, &shared.q_full[slot.slot], walk.t, walk.h, at.b);
        if (n == 0) {
            barrier_expect(&shared.v_full, shape::TILE_BYTES);
            tile_fetch_parts<DP>(shared.v, TILE, &maps.v, &shared.v_full, at.begin, at.h_kv, at.b);
        }
        barrier_expect(&shared.g_full[slot.slot], shape::TILE_BYTES);
        tile_fetch_parts<DP>(shared.g[slot.slot], TILE, &maps.g, &shared.g_full[slot.slot], walk.t, walk.h, at.b);
    }
}

template <int DP>
__device__ inline void keys_fetch_rows(keys_shared<DP> &shared, const wide_call &c, const key_block &at) {
    const attention_call &a = c.a;
    const int lane = (int)threadIdx.x % 32;
    ring<STAGES> slot;
    query_walk walk(at);
    for (int n = 0; n < at.n_all; n++, slot.next(), walk.next(at)) {
        const int64_t first_row = (at.b * a.H + walk.h) * a.T;
        barrier_wait(&shared.empty[slot.slot], slot.phase ^ 1);
#pragma unroll
        for (int k = 0; k < TILE / 32; k++) {
            const int t = walk.t + 32 * k + lane;
            const float lse = t < a.T ? ((const float *)a.lse)[first_row + t] : lowest<float>();
            shared.lse[slot.slot][32 * k + lane] = lse_of(lse);
            shared.delta[slot.slot][32 * k + lane] = t < a.T ? c.delta[first_row + t] : 0;
        }
        barrier_arrive(&shared.rows_full[slot.slot]);
    }
}

/* Consumer 0: p and dv. */
template <class T, int DP>
__device__ inline void keys_weights(keys_shared<DP> &shared, const wide_call &c, const key_block &at) {
    const attention_call &a = c.a;
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    const int first = at.begin + me.lane / 32 * 16; /* the warp's first key */
    const float scale_log2 = (float)(a.scale * 1.4426950408889634), unit = 1 / scale_log2;
    row_sight own;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int s = at.begin + me.row() + 8 * i;
        own.from[i] = (int)first_query(a, s), own.to[i] = s < a.S ? (int)end_query(a, at.b, s) : 0;
    }
    wide_sum<DP> dv;
    float s[TILE / 2];
    ring<STAGES> slot;
    ring<GIVEN> given;
    query_walk walk(at);
    dv.clear();
    if (a.mask && at.n_all) scores_begin<true>(s, a, at.b, walk.h, first, walk.t, unit);
    if (at.n_all) barrier_wait(&shared.k_full, 0);
    for (int n = 0; n < at.n_all; n++, slot.next(), given.next()) {
        barrier_wait(&shared.q_full[slot.slot], slot.phase);
        scores_multiply<T, DP>(s, tile_operand(shared.k), TILE, tile_operand(shared.q[slot.slot]), a.mask != NULL);
        const int64_t row = (at.b * a.H + walk.h) * a.T + walk.t;
        const uint32_t dropped =
            dropped_keys<TILE, 1>(c.mask, block_of_keys(c.mask, row, first), 0, INT32_MIN, INT32_MAX);
        barrier_wait(&shared.rows_full[slot.slot], slot.phase);
        products_wait<0>();
        registers_fence(s);
#pragma unroll
        for (int i = 0; i < TILE / 8; i++) {
            const float2 lse = *(const float2 *)&shared.lse[slot.slot][8 * i + me.column()];
#pragma unroll
            for (int e = 0; e < 4; e++) s[4 * i + e] = exp2_of(fmaf(s[4 * i + e], scale_log2, e % 2 ? -lse.y : -lse.x));
        }
        if (walk.t < at.whole_from || walk.t + TILE > at.whole_to) own.hide(me, s, walk.t);
        uint32_t p[TILE / 16][4];
        operand_of<T>(p, s);
        barrier_wait(&shared.given_empty[given.slot], given.phase ^ 1);
#pragma unroll
        for (int k = 0; k < TILE / 16; k++)
            shared.weights[given.slot][k][me.lane] = make_uint4(p[k][0], p[k][1], p[k][2], p[k][3]);
        shared.dropped[given.slot][me.lane] = dropped;
        warp_arrive(me, &shared.given_full[given.slot]);
        if (c.mask.drops) {
#pragma unroll
            for (int k = 0; k < TILE / 16; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) p[k][i] = two_kept(p[k][i], dropped, 2 * k + i / 2, i % 2);
        }
        barrier_wait(&shared.g_full[slot.slot], slot.phase);
        dv.template add<T>(p, shared.g[slot.slot]);
        walk.next(at);
        if (a.mask && n + 1 < at.n_all) scores_begin<true>(s, a, at.b, walk.h, first, walk.t, unit);
        products_wait<0>();
        dv.fence();
        warp_arrive(me, &shared.empty[slot.slot]);
    }
    warpgroup_sync<0>();
    dv.template write<T>(me, c.mask.growth, shared.k, TILE, a.dv, at.b, at.begin, at.h_kv, (int)a.S, (int)a.D);
}

/* Consumer 1: ds and dk. */
template <class T, int DP>
__device__ inline void keys_gradients(keys_shared<DP> &shared, const wide_call &c, const key_block &at) {
    const attention_call &a = c.a;
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    wide_sum<DP> dk;
    float dp[TILE / 2];
    ring<STAGES> slot;
    ring<GIVEN> given;
    dk.clear();
    if (at.n_all) barrier_wait(&shared.v_full, 0);
    for (int n = 0; n < at.n_all; n++, slot.next(), given.next()) {
        barrier_wait(&shared.g_full[slot.slot], slot.phase);
        scores_multiply<T, DP>(dp, tile_operand(shared.v), TILE, tile_operand(shared.g[slot.slot]), false);
        barrier_wait(&shared.rows_full[slot.slot], slot.phase);
        barrier_wait(&shared.given_full[given.slot], given.phase);
        uint32_t x[TILE / 16][4]; /* p, then ds */
#pragma unroll
        for (int k = 0; k < TILE / 16; k++) {
            const uint4 four = shared.weights[given.slot][k][me.lane];
            x[k][0] = four.x, x[k][1] = four.y, x[k][2] = four.z, x[k][3] = four.w;
        }
        const uint32_t dropped = shared.dropped[given.slot][me.lane];
        warp_arrive(me, &shared.given_empty[given.slot]);
        products_wait<0>();
        registers_fence(dp);
        if (c.mask.drops) {
#pragma unroll
            for (int i = 0; i < TILE / 2; i++) dp[i] = is_dropped(dropped, i / 4, i % 4) ? 0 : c.mask.growth * dp[i];
        }
#pragma unroll
        for (int i = 0; i < TILE / 8; i++) {
            const float2 delta = *(const float2 *)&shared.delta[slot.slot][8 * i + me.column()];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint32_t &two = x[i / 2][i % 2 * 2 + e];
                const float2 p = unpack(T(), two);
                two = round_two(T(), p.x * (dp[4 * i + 2 * e] - delta.x), p.y * (dp[4 * i + 2 * e + 1] - delta.y));
            }
        }
        barrier_wait(&shared.q_full[slot.slot], slot.phase);
        dk.template add<T>(x, shared.q[slot.slot]);
        products_wait<0>();
        dk.fence();
        warp_arrive(me, &shared.empty[slot.slot]);
    }
    warpgroup_sync<1>();
    dk.template write<T>(me, (float)a.scale, shared.v, TILE, a.dk, at.b, at.begin, at.h_kv, (int)a.S, (int)a.D);
}

/* ---- Queries ------------------------------------------------------------------------------------------ */

/* Where a block of queries is, and which tiles of keys it walks. */
struct query_block {
    int b, h, h_kv, begin; /* begin: the first query */
    int first_tile, n_tiles;
};
__device__ inline query_block query_block_of(const wide_call &c) {
    const attention_call &a = c.a;
    const int head = (int)blockIdx.x / c.n;
    query_block at;
    at.b = head / (int)a.H, at.h = head % (int)a.H, at.h_kv = at.h / (int)(a.H / a.H_kv);
    at.begin = (c.n - 1 - (int)blockIdx.x % c.n) * 2 * TILE; /* the longest first */
    const int64_t last = min((int64_t)at.begin + 2 * TILE, a.T) - 1;
    const int from = a.dmask ? 0 : (int)first_key(a, at.b, at.begin); /* the mask's gradient has its zeros too */
    const int to = a.dmask ? (int)a.S : (int)visible_keys(a, last);
    at.first_tile = from / TILE, at.n_tiles = to > from ? (to - 1) / TILE + 1 - at.first_tile : 0;
    return at;
}

template <int DP>
__device__ inline void queries_fetch(queries_shared<DP> &shared, const wide_maps &maps, const query_block &at) {
    typedef wide_shape<DP> shape;
    if (at.n_tiles == 0) return;
    barrier_expect(&shared.own_full, 4 * shape::TILE_BYTES);
    for (int half = 0; half < 2; half++) {
        const int t = at.begin + half * TILE, rows = half * TILE * PART;
        tile_fetch_parts<DP>(shared.q + rows, 2 * TILE, &maps.q, &shared.own_full, t, at.h, at.b);
        tile_fetch_parts<DP>(shared.g + rows, 2 * TILE, &maps.g, &shared.own_full, t, at.h, at.b);
    }
    ring<STAGES> slot;
    for (int j = 0; j < at.n_tiles; j++, slot.next()) {
        const int s = (at.first_tile + j) * TILE;
        barrier_wait(&shared.k_empty[slot.slot], slot.phase ^ 1);
        barrier_expect(&shared.k_full[slot.slot], shape::TILE_BYTES);
        tile_fetch_parts<DP>(shared.k[slot.slot], TILE, &maps.k, &shared.k_full[slot.slot], s, at.h_kv, at.b);
        barrier_wait(&shared.v_empty, j % 2 ^ 1);
        barrier_expect(&shared.v_full, shape::TILE_BYTES);
        tile_fetch_parts<DP>(shared.v, TILE, &maps.v, &shared.v_full, s, at.h_kv, at.b);
    }
}

/* ds of (64 queries, 64 keys) is the gradient of the mask there. */
template <class M>
__device__ inline void mask_gradient(const attention_call &a, const lane_place &me, const float (&ds)[TILE / 2],
                                     int64_t head, int first, int at) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = first + me.row() + 8 * i, s = at + me.column();
        M *const to = (M *)a.dmask + (head * a.T + t) * a.S + s;
#pragma unroll
        for (int n = 0; n < TILE / 4; n++)
            if (t < a.T && s + n / 2 * 8 + n % 2 < a.S)
                to[n / 2 * 8 + n % 2] = conversion<M>::from(ds[n / 2 * 4 + 2 * i + n % 2]);
    }
}

template <class T, int DP, int CONSUMER>
__device__ inline void queries_compute(queries_shared<DP> &shared, const wide_call &c, const query_block &at) {
    const attention_call &a = c.a;
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    const int first = at.begin + CONSUMER * TILE, warp_first = first + me.lane / 32 * 16;
    const int64_t head = at.b * a.H + at.h;
    const float scale_log2 = (float)(a.scale * 1.4426950408889634), unit = 1 / scale_log2;
    row_sight own;
    float lse[2], delta[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = first + me.row() + 8 * i;
        const bool is_there = t < a.T;
        own.from[i] = is_there ? (int)first_key(a, at.b, t) : 0, own.to[i] = is_there ? (int)visible_keys(a, t) : 0;
        lse[i] = lse_of(is_there ? ((const float *)a.lse)[head * a.T + t] : lowest<float>());
        delta[i] = is_there ? c.delta[head * a.T + t] : 0;
    }
    const int64_t last = min((int64_t)first + TILE, a.T) - 1; /* what all 64 rows see */
    const int whole_from = (int)first_key(a, at.b, last), whole_to = (int)visible_keys(a, min((int64_t)first, last));
    wide_sum<DP> dq;
    float s[TILE / 2], dp[TILE / 2];
    ring<STAGES> slot;
    dq.clear();
    if (a.mask && at.n_tiles) scores_begin<false>(s, a, at.b, at.h, warp_first, at.first_tile * TILE, unit);
    if (at.n_tiles) barrier_wait(&shared.own_full, 0);
    for (int j = 0; j < at.n_tiles; j++, slot.next()) {
        const int s0 = (at.first_tile + j) * TILE;
        const uint64_t q_rows = tile_operand(&shared.q[CONSUMER * TILE * PART]);
        const uint64_t g_rows = tile_operand(&shared.g[CONSUMER * TILE * PART]);
        barrier_wait(&shared.k_full[slot.slot], slot.phase);
        scores_multiply<T, DP>(s, q_rows, 2 * TILE, tile_operand(shared.k[slot.slot]), a.mask != NULL);
        barrier_wait(&shared.v_full, j % 2);
        scores_multiply<T, DP>(dp, g_rows, 2 * TILE, tile_operand(shared.v), false);
        const uint64_t mask_block = block_of_queries(c.mask, head * a.T + warp_first);
        const uint32_t dropped = dropped_queries<TILE, 1>(c.mask, mask_block, s0, 0, INT32_MAX);
        products_wait<1>();
        registers_fence(s);
#pragma unroll
        for (int n = 0; n < TILE / 2; n++) s[n] = exp2_of(fmaf(s[n], scale_log2, -lse[n / 2 % 2]));
        if (s0 < whole_from || s0 + TILE > whole_to) own.hide(me, s, s0);
        products_wait<0>();
        registers_fence(dp);
        warp_arrive(me, &shared.v_empty);
        if (c.mask.drops) {
#pragma unroll
            for (int n = 0; n < TILE / 2; n++) dp[n] = is_dropped(dropped, n / 4, n % 4) ? 0 : c.mask.growth * dp[n];
        }
#pragma unroll
        for (int n = 0; n < TILE / 2; n++) dp[n] = s[n] * (dp[n] - delta[n / 2 % 2]);
        if (a.dmask && a.mask_dtype == TL_F32) mask_gradient<float>(a, me, dp, head, first, s0);
        else if (a.dmask && a.mask_dtype == TL_BF16) mask_gradient<bf16>(a, me, dp, head, first, s0);
        else if (a.dmask) mask_gradient<f16>(a, me, dp, head, first, s0);
        uint32_t ds[TILE / 16][4];
        operand_of<T>(ds, dp);
        dq.template add<T>(ds, shared.k[slot.slot]);
        if (a.mask && j + 1 < at.n_tiles) scores_begin<false>(s, a, at.b, at.h, warp_first, s0 + TILE, unit);
        products_wait<0>();
        dq.fence();
        warp_arrive(me, &shared.k_empty[slot.slot]);
    }
    warpgroup_sync<CONSUMER>();
    dq.template write<T>(me, (float)a.scale, &shared.q[CONSUMER * TILE * PART], 2 * TILE, a.dq, at.b, first, at.h,
                         (int)a.T, (int)a.D);
}
#endif

/* ---- Kernels ------------------------------------------------------------------------------------------ */

template <class T, int DP>
__global__ void __launch_bounds__(HOPPER_THREADS, 1)
    wide_keys(const __grid_constant__ wide_maps maps, const __grid_constant__ wide_call c) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) char memory[];
    keys_shared<DP> &shared = *(keys_shared<DP> *)memory;
    const int role = warp_uniform((int)threadIdx.x / WARPGROUP);
    if (threadIdx.x == 0) {
        barrier_init(&shared.k_full, 1), barrier_init(&shared.v_full, 1);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&shared.q_full[i], 1), barrier_init(&shared.g_full[i], 1);
            barrier_init(&shared.rows_full[i], 32);
            barrier_init(&shared.empty[i], 2 * CONSUMER_WARPS);
        }
        for (int i = 0; i < GIVEN; i++)
            barrier_init(&shared.given_full[i], CONSUMER_WARPS), barrier_init(&shared.given_empty[i], CONSUMER_WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const key_block at = key_block_of(c);
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) keys_fetch<DP>(shared, maps, at);
        else if (threadIdx.x / 32 == 1) keys_fetch_rows<DP>(shared, c, at);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        if (role == 1) keys_weights<T, DP>(shared, c, at);
        else keys_gradients<T, DP>(shared, c, at);
    }
#endif
}

template <class T, int DP>
__global__ void __launch_bounds__(HOPPER_THREADS, 1)
    wide_queries(const __grid_constant__ wide_maps maps, const __grid_constant__ wide_call c) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) char memory[];
    queries_shared<DP> &shared = *(queries_shared<DP> *)memory;
    const int role = warp_uniform((int)threadIdx.x / WARPGROUP);
    if (threadIdx.x == 0) {
        barrier_init(&shared.own_full, 1);
        for (int i = 0; i < STAGES; i++)
            barrier_init(&shared.k_full[i], 1), barrier_init(&shared.k_empty[i], 2 * CONSUMER_WARPS);
        barrier_init(&shared.v_full, 1), barrier_init(&shared.v_empty, 2 * CONSUMER_WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const query_block at = query_block_of(c);
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) queries_fetch<DP>(shared, maps, at);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        if (role == 1) queries_compute<T, DP, 0>(shared, c, at);
        else queries_compute<T, DP, 1>(shared, c, at);
    }
#endif
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static int blocks_over(int64_t n, int size) { return (int)((n + size - 1) / size); }

template <class T, int DP> static bool backward(const tl_kernel_args *args, const attention_call &a) {
    const size_t key_bytes = sizeof(keys_shared<DP>), query_bytes = sizeof(queries_shared<DP>);
    wide_maps maps;
    if (!map_make(args, &maps.q, a, a.q, a.T, a.H, TILE) || !map_make(args, &maps.g, a, a.g, a.T, a.H, TILE) ||
        !map_make(args, &maps.k, a, a.k, a.S, a.H_kv, TILE) || !map_make(args, &maps.v, a, a.v, a.S, a.H_kv, TILE) ||
        !shared_memory_allow(args, wide_keys<T, DP>, key_bytes) ||
        !shared_memory_allow(args, wide_queries<T, DP>, query_bytes))
        return false;
    wide_call c = {a, mask_of(a), (const float *)args->workspace, blocks_over(a.S, TILE)};
    wide_keys<T, DP><<<(unsigned)(c.n * a.B * a.H_kv), HOPPER_THREADS, key_bytes, stream_of(args)>>>(maps, c);
    c.n = blocks_over(a.T, 2 * TILE);
    wide_queries<T, DP><<<(unsigned)(c.n * a.B * a.H), HOPPER_THREADS, query_bytes, stream_of(args)>>>(maps, c);
    return true;
}

template <class T> static bool by_size(const tl_kernel_args *args, const attention_call &a) {
    return a.D <= 192 ? backward<T, 192>(args, a) : backward<T, 256>(args, a);
}

extern "C" bool attention_wide_backward(const tl_kernel_args *args, const attention_call *call) {
    return call->dtype == TL_BF16 ? by_size<bf16>(args, *call) : by_size<f16>(args, *call);
}
