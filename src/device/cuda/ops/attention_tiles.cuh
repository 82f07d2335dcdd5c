/* attention_tiles.cuh: attention on tensor cores with whatever hides or drops keys: the kernels of attention_tiles.cu
 * (16 bits) and attention_tiles_f32.cu.
 *
 * A block has 64 queries (or 64 keys) and walks the other side in tiles; each of its warps has 16 rows of them. Tiles
 * that no query of the block sees are not visited. Scores exist one tile at a time, in registers.
 *
 *   forward   s = scale q k^T + mask; running maximum m and sum l per query; out = sum of p v / (l (1 - dropout))
 *   dK, dV    a block of keys, over the tiles of queries that see it: p and dp lie as (keys, queries)
 *   dQ        a block of queries, over its tiles of keys; it also writes the mask's gradient, which is ds
 *
 * with p = exp(s - lse), dp = m g v^T, ds = p (dp - delta); m is 0 or 1/(1 - dropout). Sums are in f32; p and ds are
 * rounded to the operands' dtype for the products that sum over them, as cuDNN does. No atomics: the same bits each
 * time.
 *
 * While a tile is computed, the next one is copied to shared memory (cp.async). Rows that are not aligned are copied
 * element by element, so that what is computed does not depend on it. tile_shape says what is in registers and what in
 * shared memory, and who makes what of wide heads.
 *
 * Lengths and strides of rows are in units of 16 bits (attention_tile.cuh), D too: in_units.
 *
 * shared/tensor_core.cuh says which elements of a product a lane has.
 */
#ifndef CUDA_ATTENTION_TILES_CUH
#define CUDA_ATTENTION_TILES_CUH

#include "device/cuda/ops/attention_tile.cuh"

enum { TILE = 64, WIDEST = 256 };

/* Heads of 16 bits wider than 128 leave no room in registers for a block's own rows, which stay in shared memory then;
 * dk and dv are made in two halves, by two blocks. */
template <class T, int DP> struct tile_shape {
    enum { KEYS = DP > 128 ? 32 : 64 };        /* in a tile that queries walk, forward */
    enum { BACK_KEYS = KEYS };                 /* and backward */
    enum { QUERIES = DP > 32 ? 32 : 64 };      /* in a tile that keys walk */
    enum { ROWS = TILE, HOLDS = DP <= 128 };   /* forward: queries of a block; they are in registers */
    enum { BACK_HOLDS = DP <= 64 };            /* backward: a block's own rows are */
    enum { STAGES = 2, BACK_STAGES = 2 };      /* tiles that have room at once */
    enum { ROLES = 1 };                        /* backward: warps that share 16 rows */
    enum { COLUMNS = DP > 128 ? DP / 2 : DP }; /* of dk and dv that a warp has */
    enum { QUERY_COLUMNS = DP };               /* and of dq */
    enum { BLOCKS = 1, BACK_BLOCKS = 1 };      /* of a multiprocessor, at least */
};

/* In f32, a block's own rows stay in shared memory. Forward, tiles of k and v have room once: the next k comes while v
 * is multiplied, and the other way round. Backward, two warps share 16 rows of heads wider than 128: one makes the
 * products for scores, the other those for dp, and they tell each other; one sums dv, or the left half of dq, the other
 * dk, or the right half. */
template <int DP> struct tile_shape<float, DP> {
    enum { KEYS = 32, BACK_KEYS = DP > 192 ? 16 : 32, QUERIES = BACK_KEYS };
    enum { ROWS = DP > 192 ? 2 * TILE : TILE, HOLDS = 0, BACK_HOLDS = 0 };
    enum { STAGES = 1, BACK_STAGES = DP > 96 && DP <= 128 ? 1 : 2 };
    enum { ROLES = DP > 128 ? 2 : 1, COLUMNS = DP, QUERY_COLUMNS = DP / ROLES };
    enum { BLOCKS = DP > 192 ? 1 : DP > 64 ? 2 : 3, BACK_BLOCKS = DP > 128 ? 1 : DP > 40 ? 2 : 3 };
};
/* Threads of a block, by its rows. */
__host__ __device__ constexpr int tile_threads(int rows, int roles = 1) { return rows / 16 * 32 * roles; }

/* ---- Tiles and operands ------------------------------------------------------------------------------- */

/* Units of shared memory: n_own rows of the block's own, and a ring of n tiles of the other side's, which takes the
 * place of the first once they are in registers; and the products that warps tell each other. */
template <class T, int DP> __host__ __device__ constexpr int shared_units(int n_own, int n_ring, bool holds) {
    return tile_row<units<T>() * DP>() * (holds ? (n_own > n_ring ? n_own : n_ring) : n_own + n_ring);
}
template <int N> __host__ __device__ constexpr int told_units(int roles) {
    return roles > 1 ? 2 * roles * TILE * N : 0;
}

/* c (16,N) = own (16,DP) tile^T, and c (16,COLUMNS) += p (16,N) tile (N,COLUMNS). */
template <class T, int DP, int N, class OWN>
__device__ inline void product_of_rows(float (&c)[N / 8][4], const OWN &own, const uint16_t *tile) {
    if constexpr (sizeof(T) == 4) multiply_rows_f32<DP, N>(c, own, tile);
    else multiply_rows<T, DP, N>(c, own, tile);
}
template <class T, int DP, int COLUMNS, int N>
__device__ inline void add_columns(float (&c)[COLUMNS / 8][4], const float (&p)[N / 8][4], const uint16_t *tile) {
    if constexpr (sizeof(T) == 4) multiply_columns_f32<DP, COLUMNS, N>(c, p, tile);
    else multiply_columns<T, DP, COLUMNS, N>(c, p, tile);
}

/* Where two warps share rows, each makes the products of its role, and gets the other's: p of role 0, dp of role 1. */
template <int N> __device__ inline void products_tell(float (&p)[N / 8][4], float (&dp)[N / 8][4], float *room) {
    const int warp = (int)threadIdx.x / 32, role = warp_role<TILE>(), n_pairs = TILE / 16;
    float *const own = room + warp * 16 * N + lane_of(), *const other = room + (warp ^ n_pairs) * 16 * N + lane_of();
#pragma unroll
    for (int i = 0; i < N / 2; i++) own[32 * i] = p[i / 4][i % 4];
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warp % n_pairs), "n"(64) : "memory");
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const float x = p[i / 4][i % 4], y = other[32 * i];
        p[i / 4][i % 4] = role ? y : x, dp[i / 4][i % 4] = role ? x : y;
    }
}
/* Products of the warp's rows x by tile `first`, and y by tile `second`. */
template <class T, int DP, int N, int ROLES, class OWN>
__device__ inline void two_products(float (&p)[N / 8][4], float (&dp)[N / 8][4], const OWN (&own)[2],
                                    const uint16_t *first, const uint16_t *second, float *room) {
    if constexpr (ROLES == 1) {
        product_of_rows<T, DP, N>(p, own[0], first);
        product_of_rows<T, DP, N>(dp, own[1], second);
    } else {
        product_of_rows<T, DP, N>(p, own[warp_role<TILE>()], warp_role<TILE>() ? second : first);
        products_tell<N>(p, dp, room);
    }
}

/* The warp's 16 rows, times a factor for each of the lane's two, into rows of a head from `first` on, columns from
 * `column` on. */
template <class T, int COLUMNS>
__device__ inline void rows_store(const attention_rows &rows, int64_t b, int64_t first, int64_t h, int64_t end,
                                  int64_t D, int column, const float (&c)[COLUMNS / 8][4], const float (&factor)[2]) {
    const bool has_pairs = is_aligned(rows, D, 2 * sizeof(T));
    const int n_columns = (int)D / units<T>();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t t = first + lane_row() + 8 * i;
        if (t >= end) continue;
        T *to = (T *)row_at(rows, b, t, h);
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            const int d = column + 8 * n + lane_pair();
            const unit<T, 2> two = {
                {conversion<T>::from(c[n][2 * i] * factor[i]), conversion<T>::from(c[n][2 * i + 1] * factor[i])}};
            if (has_pairs) {
                if (d < n_columns) *(unit<T, 2> *)(to + d) = two;
                continue;
            }
            if (d < n_columns) to[d] = two.v[0];
            if (d + 1 < n_columns) to[d + 1] = two.v[1];
        }
    }
}

/* ---- What sees what ----------------------------------------------------------------------------------- */

/* What the lane's two rows see: keys from .. to - 1 of a query, queries of a key. */
struct lane_sight {
    int from[2], to[2];
};
__device__ inline lane_sight sight_of_queries(const attention_call &a, int64_t b, int first) {
    lane_sight own;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = first + lane_row() + 8 * i;
        own.from[i] = t < a.T ? (int)first_key(a, b, t) : 0;
        own.to[i] = t < a.T ? (int)visible_keys(a, t) : 0;
    }
    return own;
}
__device__ inline lane_sight sight_of_keys(const attention_call &a, int64_t b, int first) {
    lane_sight own;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int s = first + lane_row() + 8 * i;
        own.from[i] = (int)first_query(a, s);
        own.to[i] = s < a.S ? (int)end_query(a, b, s) : 0;
    }
    return own;
}

/* The slope of the cap of a score, by its share of the cap. */
__device__ inline float cap_share(const attention_call &a) {
    return a.soft_cap > 0 ? 1 / ((float)a.soft_cap * LOG2_E) : 0.0f;
}
__device__ inline float cap_slope(float score, float share) { return 1 - score * share * (score * share); }

/* From products to scores in powers of two: lowest where a row of the lane does not see column `at` and what follows.
 * `is_whole`: every row of the block sees all N columns. */
template <int N>
__device__ inline void scores_hide(float (&p)[N / 8][4], const lane_sight &own, int at, float scale, bool is_whole) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int other = at + 8 * j + lane_pair() + i % 2;
            const bool is_seen = is_whole || (other >= own.from[i / 2] && other < own.to[i / 2]);
            p[j][i] = is_seen ? scale * p[j][i] : lowest<float>();
        }
}

template <int N> __device__ inline void scores_mask(float (&p)[N / 8][4], const float (&added)[N / 8][4]) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (p[j][i] != lowest<float>()) p[j][i] += added[j][i]; /* what is hidden stays so, whatever is added */
}

/* ---- Forward ------------------------------------------------------------------------------------------ */

/* Where a block of queries is, and which keys it walks. */
struct query_block {
    int64_t head, b, h, h_kv;
    int begin, first;         /* the block's first query, the warp's */
    int from, to;             /* the keys that any of them sees */
    int whole_from, whole_to; /* the keys that all of them see */
};
template <int ROWS> __device__ inline query_block query_block_of(const attention_call &a, int64_t n) {
    query_block q;
    q.head = blockIdx.x / n, q.b = q.head / a.H, q.h = q.head % a.H, q.h_kv = q.h / (a.H / a.H_kv);
    q.begin = (int)(n - 1 - blockIdx.x % n) * ROWS, q.first = q.begin + warp_row<ROWS>(); /* the longest first */
    const int64_t last = min((int64_t)q.begin + ROWS, a.T) - 1;
    q.from = (int)first_key(a, q.b, q.begin), q.to = (int)visible_keys(a, last);
    q.whole_from = (int)first_key(a, q.b, last), q.whole_to = (int)visible_keys(a, q.begin);
    return q;
}

/* Two tiles of N rows, of x and y, stage after stage. */
template <class T, int DP, int N, int STAGES, int N_THREADS> struct tile_ring {
    uint16_t *memory;
    enum { WIDTH = units<T>() * DP, UNITS = N * tile_row<WIDTH>() };
    __device__ inline uint16_t *first(int i) const { return memory + i % STAGES * 2 * UNITS; }
    __device__ inline uint16_t *second(int i) const { return first(i) + UNITS; }
    static __device__ inline void load_one(uint16_t *tile, const attention_rows &rows, int64_t b, int64_t at, int64_t h,
                                           int64_t end, int64_t D) {
        tile_load<WIDTH, N, N_THREADS, sizeof(T) == 4>(tile, rows, b, at, h, end, D);
    }
    __device__ inline void load(int i, const attention_rows &x, const attention_rows &y, int64_t b, int64_t at,
                                int64_t h, int64_t end, int64_t D) const {
        load_one(first(i), x, b, at, h, end, D);
        load_one(second(i), y, b, at, h, end, D);
        copies_commit();
    }
    /* Tile i is there, and tile i + 1 may be under way. */
    static __device__ inline void wait() {
        copies_wait<STAGES - 1>();
        __syncthreads();
    }
};

/* Tiles of k and v, one after the other, in the order in which they are waited for. Room for two stages: the next of
 * both come together. Room for one: each when the last one has been read. */
template <class T, int DP> struct forward_ring {
    typedef tile_shape<T, DP> shape;
    enum { N = shape::KEYS, STAGES = shape::STAGES };
    typedef tile_ring<T, DP, N, STAGES, tile_threads(shape::ROWS)> ring_type;
    ring_type ring;
    const attention_call &a;
    int64_t b, h;
    int to;

    __device__ inline void load_one(uint16_t *tile, const attention_rows &rows, int s) const {
        if (s < to) ring_type::load_one(tile, rows, b, s, h, a.S, a.D);
        copies_commit();
    }
    __device__ inline void load_both(int i, int s) const {
        if (s < to) ring.load(i, a.k, a.v, b, s, h, a.S, a.D);
        else copies_commit();
    }
    __device__ inline void begin(int s) const {
        if (STAGES == 2) return load_both(0, s);
        load_one(ring.first(0), a.k, s), load_one(ring.second(0), a.v, s);
    }
    __device__ inline void before(int i, int s) const {
        if (STAGES == 2) load_both(i + 1, s + N);
    }
    static __device__ inline void wait() {
        copies_wait<1>();
        __syncthreads();
    }
    __device__ inline void between(int i, int s) const {
        if (STAGES == 2) return;
        __syncthreads(); /* all have read k */
        load_one(ring.first(i + 1), a.k, s + N);
    }
    static __device__ inline void wait_again() {
        if (STAGES == 1) wait();
    }
    __device__ inline void behind(int i, int s) const {
        __syncthreads(); /* all have read v */
        if (STAGES == 1) load_one(ring.second(i + 1), a.v, s + N);
    }
};

template <class T, int DP>
__global__ void __launch_bounds__(tile_threads(tile_shape<T, DP>::ROWS), tile_shape<T, DP>::BLOCKS)
    tiles_forward(attention_call a, tile_mask mask, int64_t n) {
    typedef tile_shape<T, DP> shape;
    enum { N = shape::KEYS, ROWS = shape::ROWS, WIDTH = units<T>() * DP, OWN = ROWS * tile_row<WIDTH>() };
    extern __shared__ __align__(16) uint16_t memory[];
    const query_block at = query_block_of<ROWS>(a, n);
    const forward_ring<T, DP> tiles = {{memory + (shape::HOLDS ? 0 : OWN)}, a, at.b, at.h_kv, at.to};
    const uint64_t mask_block = block_of_queries(mask, at.head * a.T + at.first);
    const lane_sight own = sight_of_queries(a, at.b, at.first);
    own_rows<WIDTH, shape::HOLDS> q;
    tile_load<WIDTH, ROWS, tile_threads(ROWS), sizeof(T) == 4>(memory, a.q, at.b, at.begin, at.h, a.T, a.D);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    q.take(memory, warp_row<ROWS>());
    if (shape::HOLDS) __syncthreads(); /* the ring begins in the same place */
    float o[DP / 8][4] = {};
    row_softmax r = {{lowest<float>(), lowest<float>()}, {0, 0}};
    const int begin = at.from / N * N;
    tiles.begin(begin);
    for (int i = 0, s = begin; s < at.to; i++, s += N) {
        tiles.before(i, s);
        float added[N / 8][4]; /* read while the tile arrives */
        if (a.mask) mask_load<N, false>(added, a, at.b, at.h, at.first, s);
        tiles.wait();
        float p[N / 8][4];
        product_of_rows<T, DP, N>(p, q, tiles.ring.first(i));
        tiles.between(i, s);
        if (a.soft_cap > 0) scores_cap<T, N>(p, a);
        scores_hide<N>(p, own, s, score_scale(a), s >= at.whole_from && s + N <= at.whole_to);
        if (a.mask) scores_mask<N>(p, added);
        weights_of<N, DP>(p, r, o, mask, mask_block, s);
        tiles.wait_again();
        add_columns<T, DP, DP, N>(o, p, tiles.ring.second(i));
        tiles.behind(i, s);
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float total = row_sum(r.sum[i]);
        const int64_t t = at.first + lane_row() + 8 * i;
        factor[i] = total == 0 ? 0 : mask.growth / total;
        if (t < a.T && lane_pair() == 0)
            ((float *)a.lse)[at.head * a.T + t] =
                total == 0 ? lowest<float>() : r.top[i] * (1 / LOG2_E) + log_of(total);
    }
    rows_store<T, DP>(a.out, at.b, at.first, at.h, a.T, a.D, 0, o, factor);
}

/* ---- Backward ----------------------------------------------------------------------------------------- */

/* The block's own rows from `begin` on, of x and y, one tile behind the other. Held in registers, they leave their
 * place to the ring. */
template <class T, int DP, int N_THREADS, bool HOLDS>
__device__ inline void own_take(own_rows<units<T>() * DP, HOLDS> (&rows)[2], uint16_t *memory, const attention_rows &x,
                                const attention_rows &y, int64_t b, int64_t begin, int64_t h, int64_t end, int64_t D) {
    enum { WIDTH = units<T>() * DP, OWN = TILE * tile_row<WIDTH>() };
    tile_load<WIDTH, TILE, N_THREADS, sizeof(T) == 4>(memory, x, b, begin, h, end, D);
    tile_load<WIDTH, TILE, N_THREADS, sizeof(T) == 4>(memory + OWN, y, b, begin, h, end, D);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    rows[0].take(memory, warp_row<TILE>()), rows[1].take(memory + OWN, warp_row<TILE>());
    if (HOLDS) __syncthreads();
}

/* p of a score and its lse, both in powers of two. */
__device__ inline float weight_of(float score, float lse) {
    return score == lowest<float>() ? 0 : exp2_of(score - lse);
}

/* dv += p g and dk += ds q, or the warp's one. */
template <class T, int DP, int COLUMNS, int N, int ROLES>
__device__ inline void key_sums_add(float (&sums)[3 - ROLES][COLUMNS / 8][4], float (&p)[N / 8][4],
                                    const float (&ds)[N / 8][4], const uint16_t *q, const uint16_t *g) {
    if constexpr (ROLES == 1) {
        add_columns<T, DP, COLUMNS, N>(sums[0], p, g);
        add_columns<T, DP, COLUMNS, N>(sums[1], ds, q);
    } else {
        const bool has_dk = warp_role<TILE>() == 1;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) p[j][e] = has_dk ? ds[j][e] : p[j][e];
        add_columns<T, DP, COLUMNS, N>(sums[0], p, has_dk ? q : g);
    }
}

template <class T, int DP>
__global__ void __launch_bounds__(tile_threads(TILE, tile_shape<T, DP>::ROLES), tile_shape<T, DP>::BACK_BLOCKS)
    tiles_keys(attention_call a, tile_mask mask, const float *delta, int64_t n) {
    typedef tile_shape<T, DP> shape;
    enum { N = shape::QUERIES, COLUMNS = shape::COLUMNS, HOLDS = shape::BACK_HOLDS, STAGES = shape::BACK_STAGES };
    enum { ROLES = shape::ROLES, N_THREADS = tile_threads(TILE, ROLES), WIDTH = units<T>() * DP };
    enum { OWN = TILE * tile_row<WIDTH>() };
    extern __shared__ __align__(16) uint16_t memory[];
    const tile_ring<T, DP, N, STAGES, N_THREADS> ring = {memory + (HOLDS ? 0 : 2 * OWN)};
    float *const room = (float *)(memory + shared_units<T, DP>(2 * TILE, 2 * STAGES * N, HOLDS));
    const int64_t head = blockIdx.x / n, b = head / a.H_kv, h_kv = head % a.H_kv, group = a.H / a.H_kv;
    const int begin = (int)(blockIdx.x % n) * TILE, first = begin + warp_row<TILE>(); /* the longest first */
    const int64_t last = min((int64_t)begin + TILE, a.S) - 1;
    const int column = (int)blockIdx.y * COLUMNS;
    const int from = (int)first_query(a, begin) / N * N, to = (int)end_query(a, b, last);
    const int whole_from = (int)first_query(a, last), whole_to = (int)end_query(a, b, begin);
    const int n_tiles = to > from ? (to - from + N - 1) / N : 0, n_all = n_tiles * (int)group;
    const lane_sight own = sight_of_keys(a, b, first);
    own_rows<WIDTH, HOLDS> rows[2];
    own_take<T, DP, N_THREADS>(rows, memory, a.k, a.v, b, begin, h_kv, a.S, a.D);
    const float share = cap_share(a);
    float sums[3 - ROLES][COLUMNS / 8][4] = {}; /* of dv and dk, or of the warp's one */
    const auto load = [&](int i) {
        if (i < n_all) ring.load(i, a.q, a.g, b, from + i % n_tiles * N, h_kv * group + i / n_tiles, a.T, a.D);
        else copies_commit();
    };
    load(0);
    for (int i = 0; i < n_all; i++) {
        const int64_t h = h_kv * group + i / n_tiles, row = (b * a.H + h) * a.T;
        const int t0 = from + i % n_tiles * N;
        if (STAGES == 2) load(i + 1);
        float added[N / 8][4], lse[N / 8][2], own_delta[N / 8][2]; /* read while the tile arrives */
        if (a.mask) mask_load<N, true>(added, a, b, h, first, t0);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int64_t t = row + min(t0 + 8 * j + lane_pair() + e, (int)a.T - 1);
                lse[j][e] = ((const float *)a.lse)[t] * LOG2_E, own_delta[j][e] = delta[t];
            }
        ring.wait();
        float p[N / 8][4], ds[N / 8][4];
        two_products<T, DP, N, ROLES>(p, ds, rows, ring.first(i), ring.second(i), room);
        if (a.soft_cap > 0) scores_cap<T, N>(p, a);
        scores_hide<N>(p, own, t0, score_scale(a), t0 >= whole_from && t0 + N <= whole_to);
        if (a.mask) scores_mask<N>(p, added);
        const uint32_t dropped =
            dropped_keys<N, 2>(mask, block_of_keys(mask, row + t0, first), 0, INT32_MIN, INT32_MAX);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float weight = weight_of(p[j][e], lse[j][e % 2]);
                const float dp = is_dropped(dropped, j, e) ? 0 : mask.growth * ds[j][e];
                const float slope = share > 0 ? cap_slope(p[j][e], share) : 1;
                p[j][e] = is_dropped(dropped, j, e) ? 0 : weight;
                ds[j][e] = weight == 0 ? 0 : weight * (dp - own_delta[j][e % 2]) * slope;
            }
        key_sums_add<T, DP, COLUMNS, N, ROLES>(sums, p, ds, ring.first(i) + column, ring.second(i) + column);
        __syncthreads();
        if (STAGES == 1) load(i + 1);
    }
    const float scale[2] = {(float)a.scale, (float)a.scale}, growth[2] = {mask.growth, mask.growth};
    if (ROLES == 1 || warp_role<TILE>() == 0)
        rows_store<T, COLUMNS>(a.dv, b, first, h_kv, a.S, a.D, column, sums[0], growth);
    if (ROLES == 1 || warp_role<TILE>() == 1)
        rows_store<T, COLUMNS>(a.dk, b, first, h_kv, a.S, a.D, column, sums[2 - ROLES], scale);
}

/* ds of (16 queries, N keys) is the gradient of the mask there. */
template <int N>
__device__ inline void mask_gradient(const attention_call &a, const float (&ds)[N / 8][4], int64_t head, int first,
                                     int at) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t t = first + lane_row() + i / 2 * 8, s = at + 8 * j + lane_pair() + i % 2;
            if (t < a.T && s < a.S) store_as<float>(a.dmask, (head * a.T + t) * a.S + s, a.mask_dtype, ds[j][i]);
        }
}

template <class T, int DP>
__global__ void __launch_bounds__(tile_threads(TILE, tile_shape<T, DP>::ROLES), tile_shape<T, DP>::BACK_BLOCKS)
    tiles_queries(attention_call a, tile_mask mask, const float *delta, int64_t n) {
    typedef tile_shape<T, DP> shape;
    enum { N = shape::BACK_KEYS, COLUMNS = shape::QUERY_COLUMNS, HOLDS = shape::BACK_HOLDS };
    enum { STAGES = shape::BACK_STAGES, ROLES = shape::ROLES, N_THREADS = tile_threads(TILE, ROLES) };
    enum { WIDTH = units<T>() * DP, OWN = TILE * tile_row<WIDTH>() };
    extern __shared__ __align__(16) uint16_t memory[];
    const tile_ring<T, DP, N, STAGES, N_THREADS> ring = {memory + (HOLDS ? 0 : 2 * OWN)};
    float *const room = (float *)(memory + shared_units<T, DP>(2 * TILE, 2 * STAGES * N, HOLDS));
    query_block at = query_block_of<TILE>(a, n);
    if (a.dmask) at.from = 0, at.to = (int)a.S; /* its zeros are written too */
    const int64_t row = at.head * a.T + at.first;
    const uint64_t mask_block = block_of_queries(mask, row);
    const lane_sight own = sight_of_queries(a, at.b, at.first);
    const int role = warp_role<TILE>(), column = ROLES == 1 ? 0 : role * COLUMNS;
    own_rows<WIDTH, HOLDS> rows[2];
    own_take<T, DP, N_THREADS>(rows, memory, a.q, a.g, at.b, at.begin, at.h, a.T, a.D);
    const float share = cap_share(a);
    float dq[COLUMNS / 8][4] = {}, lse[2], own_delta[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool is_there = at.first + lane_row() + 8 * i < a.T;
        lse[i] = is_there ? ((const float *)a.lse)[row + lane_row() + 8 * i] * LOG2_E : 0;
        own_delta[i] = is_there ? delta[row + lane_row() + 8 * i] : 0;
    }
    const int begin = at.from / N * N;
    const auto load = [&](int i, int s) {
        if (s < at.to) ring.load(i, a.k, a.v, at.b, s, at.h_kv, a.S, a.D);
        else copies_commit();
    };
    load(0, begin);
    for (int i = 0, s = begin; s < at.to; i++, s += N) {
        if (STAGES == 2) load(i + 1, s + N);
        float added[N / 8][4]; /* read while the tile arrives */
        if (a.mask) mask_load<N, false>(added, a, at.b, at.h, at.first, s);
        ring.wait();
        float p[N / 8][4], ds[N / 8][4];
        two_products<T, DP, N, ROLES>(p, ds, rows, ring.first(i), ring.second(i), room);
        if (a.soft_cap > 0) scores_cap<T, N>(p, a);
        scores_hide<N>(p, own, s, score_scale(a), s >= at.whole_from && s + N <= at.whole_to);
        if (a.mask) scores_mask<N>(p, added);
        const uint32_t dropped = dropped_queries<N, 1>(mask, mask_block, s, 0, INT32_MAX);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float dp = is_dropped(dropped, j, e) ? 0 : mask.growth * ds[j][e];
                const float weight = weight_of(p[j][e], lse[e / 2]);
                const float slope = share > 0 ? cap_slope(p[j][e], share) : 1;
                ds[j][e] = weight == 0 ? 0 : weight * (dp - own_delta[e / 2]) * slope;
            }
        if (a.dmask && (ROLES == 1 || role == 0)) mask_gradient<N>(a, ds, at.head, at.first, s);
        add_columns<T, DP, COLUMNS, N>(dq, ds, ring.first(i) + units<T>() * column);
        __syncthreads();
        if (STAGES == 1) load(i + 1, s + N);
    }
    const float scale[2] = {(float)a.scale, (float)a.scale};
    rows_store<T, COLUMNS>(a.dq, at.b, at.first, at.h, a.T, a.D, column, dq, scale);
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static inline int64_t tiles_of(int64_t n, int rows = TILE) { return (n + rows - 1) / rows; }

/* Where the device has less shared memory than a kernel takes: refuses (f32), or is an error. */
template <class T, class KERNEL>
static inline bool tiles_memory_allow(const tl_kernel_args *args, KERNEL kernel, int bytes) {
    return sizeof(T) == 4 ? shared_memory_try(kernel, (size_t)bytes) : shared_memory_allow(args, kernel, (size_t)bytes);
}

template <class T, int DP> static bool forward_launch(const tl_kernel_args *args, const attention_call &a) {
    typedef tile_shape<T, DP> shape;
    const int64_t n = tiles_of(a.T, shape::ROWS);
    const int bytes = 2 * shared_units<T, DP>(shape::ROWS, 2 * shape::STAGES * shape::KEYS, shape::HOLDS);
    if (!tiles_memory_allow<T>(args, tiles_forward<T, DP>, bytes)) return false;
    tiles_forward<T, DP>
        <<<(unsigned)(n * a.B * a.H), tile_threads(shape::ROWS), (size_t)bytes, stream_of(args)>>>(a, mask_of(a), n);
    return true;
}

template <class T, int DP> static bool backward_launch(const tl_kernel_args *args, const attention_call &a) {
    typedef tile_shape<T, DP> shape;
    enum { STAGES = shape::BACK_STAGES, ROLES = shape::ROLES, N_THREADS = tile_threads(TILE, ROLES) };
    const int64_t n_keys = tiles_of(a.S), n_queries = tiles_of(a.T);
    const float *delta = (const float *)args->workspace;
    const int key_bytes = 2 * (shared_units<T, DP>(2 * TILE, 2 * STAGES * shape::QUERIES, shape::BACK_HOLDS) +
                               told_units<shape::QUERIES>(ROLES));
    const int query_bytes = 2 * (shared_units<T, DP>(2 * TILE, 2 * STAGES * shape::BACK_KEYS, shape::BACK_HOLDS) +
                                 told_units<shape::BACK_KEYS>(ROLES));
    if (!tiles_memory_allow<T>(args, tiles_keys<T, DP>, key_bytes) ||
        !tiles_memory_allow<T>(args, tiles_queries<T, DP>, query_bytes))
        return false;
    const dim3 key_blocks((unsigned)(n_keys * a.B * a.H_kv), DP / shape::COLUMNS);
    tiles_keys<T, DP><<<key_blocks, N_THREADS, (size_t)key_bytes, stream_of(args)>>>(a, mask_of(a), delta, n_keys);
    tiles_queries<T, DP><<<(unsigned)(n_queries * a.B * a.H), N_THREADS, (size_t)query_bytes, stream_of(args)>>>(
        a, mask_of(a), delta, n_queries);
    return true;
}

template <class T, bool BACKWARD, int DP> static bool launch(const tl_kernel_args *args, const attention_call &a) {
    return BACKWARD ? backward_launch<T, DP>(args, a) : forward_launch<T, DP>(args, a);
}

#endif
