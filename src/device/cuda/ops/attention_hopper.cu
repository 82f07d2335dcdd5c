/* attention_hopper.cu: the gradient of attention on Hopper's warpgroup tensor cores, for 16-bit operands.
 *
 * One block, or a pair of them, has one key head of one batch entry, and walks its keys in tiles of 128; for each, it
 * walks the queries that see them. With p = exp(s - lse), dp = m g v^T, ds = p (dp - delta), a tile of keys j and a
 * tile of queries i add
 *
 *   dv_j += (m p)^T g_i    dk_j += scale ds^T q_i        dq_i += scale ds k_j
 *
 * where m is 0 or 1/(1 - dropout), and 1 without dropout. Which weights are kept is drawn again (attention.cuh) while
 * the tensor cores compute the scores. A mask is added to s (attention_hopper.cuh); a query that sees no key, whose lse
 * is -inf, has no part in any sum. The gradient of a mask is not for this kernel.
 *
 * Order. dk and dv of a tile stay in registers. dq of a tile of queries is summed in f32 in a slab of the workspace
 * that belongs to the head, one tile of keys after the other: the order of the program is the order of the sums, so
 * bits repeat. The first addend is stored, the last one meets the sum in registers and is rounded and written. With
 * grouped heads, dk and dv of the heads before the last rest in the slab as well.
 *
 * Pairs. The blocks of a pair have two neighbouring tiles of keys at a time: the first block those with numbers 0, 3,
 * 4, 7, 8, .., the second 1, 2, 5, 6, .., so that both have as much to do where queries see no key behind them. Both
 * add to the same slab, the first block before the second: each tells the other how many addends it has put there, and
 * waits with its own until those before it are there.
 *
 * Traffic. Device memory draws as much power here as the products, and power sets the clock: at T 2048 the slabs of 132
 * heads are 68 MB, more than the L2 cache holds, and q and g as much again. Pairs have half of that under way. One tile
 * of keys meets the queries from the first to the last, the next one from the last to the first, and finds those in the
 * cache that were there just now; lines of slabs are the last that the cache gives up, and those of q, k, v and g the
 * first.
 *
 * Few heads. What does not fill the card is cut into parts: part i of n has the tiles of keys i, i + n, i + 2n, ..,
 * and a slab of its own for every query head. A second kernel sums the parts of dq in order. attention_rule.h has the
 * sizes, which depend on the shapes alone.
 *
 * Sums. A bias of q, k and v gets the sums of the packed gradient over all rows. Each 64 x 64 that is written leaves
 * the sums of its columns, as rounded, at its own place in the workspace; their sum is another kernel's.
 *
 * Roles. Warpgroup 0 fetches: one warp by TMA (tiles beyond T, S or D are filled with zeros), one warp lse and delta.
 * Of a pair, its two other warps put the consumers' addends of dq into the slab. Warpgroups 1 and 2 have 64 keys each
 * and compute transposed scores (keys, queries): rounded, those are the register operands of dv and dk as they are.
 * Only ds goes through shared memory, for dq.
 *
 *   tile of scores per warpgroup     64 keys x QUERIES     128 queries for heads of up to 64, 64 for up to 128
 *   dq per warpgroup                 64 queries x 64       the second warpgroup has the other queries, or the other
 *                                                          half of the head
 */
#include "device/cuda/ops/attention_hopper.cuh"
#include "device/cuda/shared/attention_rule.h"

enum { KEYS = HOPPER_KEYS, STAGES = 2, TILE_FLOATS = 64 * 64 };

template <int DP> struct hopper_shape {
    enum { QUERIES = HOPPER_QUERIES(DP), PARTS = DP / PART, KV_STAGES = DP == 64 ? 2 : 1 };
    enum { KEY_BYTES = KEYS * DP * 2, QUERY_BYTES = QUERIES * DP * 2 };
};

struct hopper_maps {
    CUtensorMap q, k, v, g;
};

struct hopper_call {
    attention_call a;
    tile_mask mask;
    const float *delta; /* (B,H,T) */
    float *slabs;
    int64_t slab_floats;  /* whole heads: of those that share one; parts: of a unit */
    int first_head;       /* the key heads (b H_kv + h) of this launch begin here */
    int n_units, n_parts; /* a unit is a key head, or a part of one */
    int sum_tiles;        /* of a batch entry: tiles of rows whose sums are wanted */
    int64_t sum_width;    /* elements of a packed row */
};

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

/* A tile of f32 from shared memory to the slab: stored, or added to what is there. */
__device__ inline void slab_put(float *to, const float *from, bool adds, uint64_t policy) {
    if (adds)
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, "
                     "%3;" ::"l"(to),
                     "r"(shared_address(from)), "n"(TILE_FLOATS * 4), "l"(policy)
                     : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
                     "r"(shared_address(from)), "n"(TILE_FLOATS * 4), "l"(policy)
                     : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void slab_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* A count in the other block's shared memory: what this thread, or TMA for it, has written before is seen by who has
 * waited for it. */
__device__ inline void count_tell(int *count, int rank, int n) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.release.cluster.shared::cluster.u32 [there], %2;\n}" ::"r"(shared_address(count)),
                 "r"(rank), "r"(n)
                 : "memory");
}
/* Until it is n or more. */
__device__ inline void count_wait(const int *count, int n) {
    asm volatile("{\n.reg .pred done;\n.reg .s32 now;\n"
                 "again:\nld.acquire.cluster.shared::cta.s32 now, [%0];\n"
                 "setp.ge.s32 done, now, %1;\n@!done bra again;\n}" ::"r"(shared_address(count)),
                 "r"(n)
                 : "memory");
}
#endif

/* ---- What is to be done ------------------------------------------------------------------------------- */

/* A tile of keys for one query head. The warp that fetches rows writes these; the consumers, which have no registers to
 * spare, only read them. */
struct key_job {
    int64_t dq; /* in the slabs: where the sums of this head's dq begin */
    int b, h, h_kv, tile;
    int n_queries;     /* tiles of queries; below 0: there is no more */
    bool begins, ends; /* the first, the last query head of the group */
    bool rests;        /* in between, dk and dv are in the slab */
};
struct query_job {
    int tile;
    int n_before;           /* addends of the pair's other block that come before this one */
    bool is_first, is_last; /* of the tiles of keys that these queries see */
};
/* What becomes of a consumer's dq. */
struct slab_job {
    int64_t to; /* in the slabs: the first consumer's */
    int n_before;
    bool is_put, adds; /* not put: the consumer has taken the sum and written it */
    bool is_over;      /* there is no more */
};

/* What is to be put is read after the slot of its queries was given back, so it has more slots: before one is written
 * again, a consumer has waited for the put behind it. */
enum { SLAB_JOBS = 2 * STAGES };

/* ---- The block's memory ------------------------------------------------------------------------------- */

template <int DP> struct __align__(1024) hopper_shared {
    typedef hopper_shape<DP> shape;
    uint16_t k[shape::KV_STAGES][KEYS * DP], v[shape::KV_STAGES][KEYS * DP];
    uint16_t q[STAGES][shape::QUERIES * DP], g[STAGES][shape::QUERIES * DP];
    uint16_t ds[KEYS * shape::QUERIES]; /* (keys, 64 queries), once or twice */
    float dq[2][TILE_FLOATS];           /* by consumer; results are also rounded and put in order here */
    float lse[STAGES][shape::QUERIES], delta[STAGES][shape::QUERIES];
    key_job key[shape::KV_STAGES];
    query_job query[STAGES];
    slab_job slab[SLAB_JOBS];
    int n_there[2]; /* addends of the pair's other block that are in the slab, as it tells; by consumer */
    uint64_t kv_full[shape::KV_STAGES], kv_empty[shape::KV_STAGES];
    uint64_t q_full[STAGES], g_full[STAGES], rows_full[STAGES], empty[STAGES];
    uint64_t ds_full, ds_empty, dq_full[2], dq_empty[2];
};

__host__ __device__ inline int tiles_over(int64_t n, int size) { return (int)((n + size - 1) / size); }

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

/* ---- Which tiles see which ---------------------------------------------------------------------------- */

struct tile_range {
    int first, end;
    /* The nth of them, from either end. */
    __device__ inline int nth(int n, bool turned) const { return turned ? end - 1 - n : first + n; }
    /* How many of them come up to i, from either end; none where i is not among them. */
    __device__ inline int n_until(int i, bool turned) const {
        return i < first || i >= end ? 0 : turned ? end - i : i + 1 - first;
    }
};
template <int DP> __device__ inline tile_range query_tiles(const attention_call &a, int j) {
    const int queries = hopper_shape<DP>::QUERIES, offset = (int)(a.S - a.T);
    const int from = max(0, j * KEYS - offset - (int)a.right);
    const int to = min((int)a.T, j * KEYS + KEYS - offset + (int)a.left);
    return {from / queries, to > from ? (to + queries - 1) / queries : from / queries};
}
template <int DP> __device__ inline tile_range key_tiles(const attention_call &a, int i) {
    const int queries = hopper_shape<DP>::QUERIES, offset = (int)(a.S - a.T);
    const int from = max(0, i * queries + offset - (int)a.left);
    const int last = min((int)a.S - 1, min((int)a.T, (i + 1) * queries) - 1 + offset + (int)a.right);
    return {from / KEYS, last / KEYS + 1};
}

/* The jobs of a block, in order. Whole heads: the tiles of one query head after the other, so that one sum of dq is
 * open at a time. Parts: the query heads of one tile after the other, so that dk and dv stay in registers. */
template <bool PAIRS> struct job_walk {
    enum { RANKS = PAIRS ? 2 : 1 };
    int unit, h, round, rank;
    __device__ inline void begin(const hopper_call &) {
        rank = PAIRS ? cluster_rank() : 0, unit = (int)blockIdx.x / RANKS, h = 0, round = 0;
    }
    __device__ inline bool is_over(const hopper_call &c) const { return unit >= c.n_units; }
    __device__ inline int head(const hopper_call &c) const { return c.first_head + unit / c.n_parts; }
    /* Pairs begin at the last queries: of two neighbouring tiles of keys, the first may be seen by queries that do not
     * see the second, which come first in one round, last in the next, so that both blocks meet all others at once. */
    __device__ inline bool is_turned() const { return (round + RANKS) % 2 == 0; }
    __device__ inline int tile(const hopper_call &c) const {
        return PAIRS ? 2 * round + (rank ^ round % 2) : unit % c.n_parts + round * c.n_parts;
    }
    __device__ inline void next(const hopper_call &c) {
        const int group = (int)(c.a.H / c.a.H_kv), n = tiles_over(c.a.S, KEYS);
        if (c.n_parts == 1) {
            if (++round * RANKS < n) return;
            round = 0;
            if (++h < group) return;
        } else {
            if (++h < group) return;
            h = 0, round++;
            if (tile(c) < n) return;
        }
        unit += (int)gridDim.x / RANKS, h = 0, round = 0;
    }
};
/* The queries that see a tile of keys; none see one that there is not, which the last round of a pair may have. */
template <int DP> __device__ inline tile_range queries_of(const hopper_call &c, int tile) {
    return tile * KEYS < c.a.S ? query_tiles<DP>(c.a, tile) : tile_range{0, 0};
}

/* ---- Fetching ----------------------------------------------------------------------------------------- */

template <int DP, bool PAIRS>
__device__ inline void fetch_tiles(hopper_shared<DP> &shared, const hopper_maps &maps, const hopper_call &c) {
    typedef hopper_shape<DP> shape;
    const attention_call &a = c.a;
    const uint64_t policy = c.n_parts == 1 ? cache_pass() : cache_usual(); /* parts share q and g */
    ring<shape::KV_STAGES> kv;
    ring<STAGES> at;
    job_walk<PAIRS> walk;
    for (walk.begin(c); !walk.is_over(c); walk.next(c)) {
        const int b = walk.head(c) / (int)a.H_kv, h_kv = walk.head(c) % (int)a.H_kv;
        const int h = h_kv * (int)(a.H / a.H_kv) + walk.h, tile = walk.tile(c);
        const tile_range range = queries_of<DP>(c, tile);
        if (PAIRS && tile * KEYS >= a.S) continue;
        barrier_wait(&shared.kv_empty[kv.slot], kv.phase ^ 1);
        barrier_expect(&shared.kv_full[kv.slot], 2 * shape::KEY_BYTES);
        for (int part = 0; part < shape::PARTS; part++) {
            const int at_part = part * KEYS * PART, t = tile * KEYS;
            tile_fetch(&shared.k[kv.slot][at_part], &maps.k, &shared.kv_full[kv.slot], part * PART, t, h_kv, b, policy);
            tile_fetch(&shared.v[kv.slot][at_part], &maps.v, &shared.kv_full[kv.slot], part * PART, t, h_kv, b, policy);
        }
        for (int n = 0; n < range.end - range.first; n++, at.next()) {
            const int i = range.nth(n, walk.is_turned());
            barrier_wait(&shared.empty[at.slot], at.phase ^ 1);
            barrier_expect(&shared.q_full[at.slot], shape::QUERY_BYTES);
            barrier_expect(&shared.g_full[at.slot], shape::QUERY_BYTES);
            for (int part = 0; part < shape::PARTS; part++)
                tile_fetch(&shared.q[at.slot][part * shape::QUERIES * PART], &maps.q, &shared.q_full[at.slot],
                           part * PART, i * shape::QUERIES, h, b, policy);
            for (int part = 0; part < shape::PARTS; part++)
                tile_fetch(&shared.g[at.slot][part * shape::QUERIES * PART], &maps.g, &shared.g_full[at.slot],
                           part * PART, i * shape::QUERIES, h, b, policy);
        }
        kv.next();
    }
}

template <int DP, bool PAIRS>
__device__ inline key_job key_job_of(const hopper_call &c, const job_walk<PAIRS> &walk, int n_queries) {
    const int group = (int)(c.a.H / c.a.H_kv), head = walk.head(c), h_kv = head % (int)c.a.H_kv;
    const bool is_whole = c.n_parts == 1;
    const int64_t dq_floats = (int64_t)tiles_over(c.a.T, hopper_shape<DP>::QUERIES) * 2 * TILE_FLOATS;
    const int64_t slab = (is_whole ? blockIdx.x / walk.RANKS : walk.unit) * c.slab_floats;
    return {slab + (is_whole ? 0 : walk.h * dq_floats),
            head / (int)c.a.H_kv,
            h_kv * group + walk.h,
            h_kv,
            walk.tile(c),
            n_queries,
            walk.h == 0,
            walk.h == group - 1,
            is_whole && group > 1};
}
/* Of the tiles of keys that queries see, those of one round of a pair come one after the other, its first block's
 * before its second's. */
template <int DP, bool PAIRS>
__device__ inline query_job query_job_of(const hopper_call &c, const job_walk<PAIRS> &walk, int i, int n_before) {
    const tile_range keys = key_tiles<DP>(c.a, i);
    const int tile = walk.tile(c);
    if (!PAIRS) return {i, 0, (tile - keys.first) / c.n_parts == 0, c.n_parts == 1 && tile == keys.end - 1};
    const bool is_shared = (tile ^ 1) >= keys.first && (tile ^ 1) < keys.end;
    const bool is_begin = tile / 2 == keys.first / 2 && (walk.rank == 0 || !is_shared);
    const bool is_end = tile / 2 == (keys.end - 1) / 2 && (walk.rank == 1 || !is_shared);
    return {i, n_before, is_begin, is_end};
}

/* What the pair's other block has put into the slab: its queries of this round and of the one before, and how many
 * addends came before each. */
struct others_put {
    tile_range now, last;
    int n_now, n_last;
    bool now_turned, last_turned;
    __device__ inline void next_round(const tile_range &queries, bool turned) {
        last = now, n_last = n_now, last_turned = now_turned;
        n_now += now.end - now.first, now = queries, now_turned = turned;
    }
    /* Those that must be there before an addend for the queries i: the newest for these queries. */
    __device__ inline int n_before(int i, int rank) const {
        const int n = rank == 1 ? now.n_until(i, now_turned) : 0;
        return n > 0 ? n_now + n : n_last + last.n_until(i, last_turned);
    }
};

/* The jobs, and of every query lse in powers of two, and delta. Queries that see no key, and those beyond T, get an
 * infinite lse, so that every p there is 0. */
template <int DP, bool PAIRS> __device__ inline void fetch_rows(hopper_shared<DP> &shared, const hopper_call &c) {
    typedef hopper_shape<DP> shape;
    const attention_call &a = c.a;
    const int lane = (int)threadIdx.x % 32;
    ring<shape::KV_STAGES> kv;
    ring<STAGES> at;
    job_walk<PAIRS> walk;
    ring<SLAB_JOBS> slab;
    others_put others = {};
    for (walk.begin(c); !walk.is_over(c); walk.next(c)) {
        const int tile = walk.tile(c);
        const tile_range range = queries_of<DP>(c, tile);
        if (PAIRS) others.next_round(queries_of<DP>(c, tile ^ 1), walk.is_turned());
        if (PAIRS && tile * KEYS >= a.S) continue;
        const int64_t first_row = ((int64_t)walk.head(c) * (a.H / a.H_kv) + walk.h) * a.T;
        barrier_wait(&shared.kv_empty[kv.slot], kv.phase ^ 1);
        if (lane == 0) {
            shared.key[kv.slot] = key_job_of<DP>(c, walk, range.end - range.first);
            barrier_arrive(&shared.kv_full[kv.slot]);
        }
        for (int n = 0; n < range.end - range.first; n++, at.next(), slab.next()) {
            const int i = range.nth(n, walk.is_turned());
            barrier_wait(&shared.empty[at.slot], at.phase ^ 1);
#pragma unroll
            for (int k = 0; k < shape::QUERIES / 32; k++) {
                const int t = i * shape::QUERIES + 32 * k + lane;
                const float lse = t < a.T ? ((const float *)a.lse)[first_row + t] : lowest<float>();
                shared.lse[at.slot][32 * k + lane] = lse == lowest<float>() ? -lse : lse * LOG2_E;
                shared.delta[at.slot][32 * k + lane] = t < a.T ? c.delta[first_row + t] : 0;
            }
            if (lane == 0) {
                const query_job job = query_job_of<DP>(c, walk, i, PAIRS ? others.n_before(i, walk.rank) : 0);
                shared.query[at.slot] = job;
                if (PAIRS) {
                    const int64_t to = shared.key[kv.slot].dq + job.tile * (int64_t)(2 * TILE_FLOATS);
                    shared.slab[slab.slot] = {to, job.n_before, !job.is_last, !job.is_first, false};
                }
            }
            barrier_arrive(&shared.rows_full[at.slot]);
        }
        kv.next();
    }
    barrier_wait(&shared.kv_empty[kv.slot], kv.phase ^ 1);
    if (lane == 0) {
        shared.key[kv.slot].n_queries = -1;
        if (PAIRS) shared.slab[slab.slot].is_over = true;
        barrier_arrive(&shared.kv_full[kv.slot]);
        barrier_arrive(&shared.kv_full[kv.slot]);
    }
}

/* ---- Adding dq -------------------------------------------------------------------------------------------- */

/* Of a pair, one thread for each consumer. An addend is in the slab before the consumer, and the other block, hear of
 * it. */
template <int DP> __device__ inline void put_slabs(hopper_shared<DP> &shared, const hopper_call &c, int consumer) {
    const int other = cluster_rank() ^ 1;
    ring<SLAB_JOBS> at;
    for (int phase = 0, n_put = 1;; phase ^= 1, n_put++, at.next()) {
        barrier_wait(&shared.dq_full[consumer], phase);
        const slab_job job = shared.slab[at.slot];
        if (job.is_over) return;
        if (job.is_put) {
            count_wait(&shared.n_there[consumer], job.n_before);
            asm volatile("fence.proxy.async;" ::: "memory");
            slab_put(c.slabs + job.to + consumer * TILE_FLOATS, shared.dq[consumer], job.adds, cache_keep());
            slab_wait();
        }
        barrier_arrive(&shared.dq_empty[consumer]);
        count_tell(&shared.n_there[consumer], other, n_put);
    }
}

/* ---- Sums of columns ---------------------------------------------------------------------------------- */

enum { SUM_FLOATS = 4 * 64 }; /* of a tile: a row of 64 from each warp */

/* Where a tile's go: rows from `first` on of batch entry b, elements from d0 on of head h of dq, dk and dv together. */
__device__ inline float *sums_at(const hopper_call &c, int b, int first, int h, int d0) {
    return (float *)c.a.sums + (b * c.sum_tiles + first / HOPPER_SUM_ROWS) * c.sum_width + h * (int)c.a.D + d0;
}

/* The first part: the sums of a warp's own 16 rows of the tile that block_write has left in `staging`, for the columns
 * of each of its lanes; rows from n_rows on do not count. All lanes of a warp call it. */
template <class T>
__device__ inline void warp_sums(const lane_place &me, const void *staging, float *slots, int n_rows) {
    const int lane = me.lane % 32, warp = me.lane / 32, part = lane % 8;
    float sum[8] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = warp * 16 + 4 * k + lane / 8;
        const uint4 eight = *(const uint4 *)((const char *)staging + row * ROW_BYTES + ((part ^ row % 8) << 4));
        const uint32_t twos[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = unpack(T(), twos[i]);
            if (row < n_rows) sum[2 * i] += two.x, sum[2 * i + 1] += two.y;
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 8);
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 16);
    }
    if (lane >= 8) return;
    float4 *const to = (float4 *)(slots + warp * 64 + 8 * part);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
}

/* The second part, after a barrier: the warps in order. */
__device__ inline void tile_sums(const lane_place &me, const float *slots, float *to, int n_rows, int n_columns) {
    if (me.lane >= 64 || me.lane >= n_columns || n_rows <= 0) return;
    float sum = slots[me.lane];
    for (int warp = 1; warp < 4; warp++) sum += slots[warp * 64 + me.lane];
    to[me.lane] = sum;
}

/* Both, for a consumer whose tile is at the beginning of its `dq` in shared memory; behind the tile there is room
 * for two slots. A slot may be used again after another barrier. The thread's place is read anew: kept from tile to
 * tile, it and what follows from it would take registers that the products need. */
template <class T, int CONSUMER>
__device__ inline void consumer_sums(const hopper_call &c, float *tile, int slot, int b, int first, int h, int end,
                                     int d0) {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const lane_place me = {thread % WARPGROUP};
    float *const slots = tile + TILE_FLOATS / 2 + slot * SUM_FLOATS;
    warp_sums<T>(me, tile, slots, end - first);
    warpgroup_sync<CONSUMER>();
    tile_sums(me, slots, sums_at(c, b, first, h, d0), end - first, (int)c.a.D - d0);
}

/* ---- Computing ---------------------------------------------------------------------------------------- */

/* A result in a slab: thread by thread, so that a warp reads whole lines. Past the L1 cache, which TMA's additions do
 * not reach. */
template <int N> __device__ inline void slab_read(float (&c)[N], const float *slab, int lane) {
#pragma unroll
    for (int k = 0; k < N / 4; k++) {
        const float4 four = __ldcg((const float4 *)slab + k * WARPGROUP + lane);
        c[4 * k] = four.x, c[4 * k + 1] = four.y, c[4 * k + 2] = four.z, c[4 * k + 3] = four.w;
    }
}
__device__ inline void slab_add(float (&c)[32], const float *slab, int lane) {
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float4 four = __ldcg((const float4 *)slab + k * WARPGROUP + lane);
        c[4 * k] += four.x, c[4 * k + 1] += four.y, c[4 * k + 2] += four.z, c[4 * k + 3] += four.w;
    }
}
template <int N> __device__ inline void slab_write(const float (&c)[N], float *slab, int lane) {
#pragma unroll
    for (int k = 0; k < N / 4; k++)
        ((float4 *)slab)[k * WARPGROUP + lane] = make_float4(c[4 * k], c[4 * k + 1], c[4 * k + 2], c[4 * k + 3]);
}

/* A consumer's dk and dv of a tile of keys, of grouped heads: behind dq. */
template <int DP> __device__ inline float *key_slab(const hopper_call &c, const key_job &job, int consumer) {
    const int64_t dq_floats = (int64_t)tiles_over(c.a.T, hopper_shape<DP>::QUERIES) * 2 * TILE_FLOATS;
    return c.slabs + job.dq + dq_floats + (job.tile * 2 + consumer) * (int64_t)(2 * 64 * DP);
}

/* p = exp(s - lse), 0 where the query does not see the key. */
template <int QUERIES>
__device__ inline void weights_of(const lane_place &me, float (&s)[QUERIES / 2], const float *lse, float scale_log2) {
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++) {
        const float2 l = *(const float2 *)&lse[8 * n + me.column()];
        s[4 * n] = exp2_of(fmaf(s[4 * n], scale_log2, -l.x));
        s[4 * n + 1] = exp2_of(fmaf(s[4 * n + 1], scale_log2, -l.y));
        s[4 * n + 2] = exp2_of(fmaf(s[4 * n + 2], scale_log2, -l.x));
        s[4 * n + 3] = exp2_of(fmaf(s[4 * n + 3], scale_log2, -l.y));
    }
}
/* The lane's first key minus its first query of the tile is `ahead`; a key is seen where key - query is in
 * least .. most, and beyond S there are none. */
template <int QUERIES>
__device__ inline void weights_hide(const lane_place &me, float (&p)[QUERIES / 2], int key, int query, int least,
                                    int most, int n_keys) {
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int s = key + i / 2 * 8, ahead = s - (query + 8 * n + i % 2);
            if (ahead < least || ahead > most || s >= n_keys) p[4 * n + i] = 0;
        }
}
/* Which of the lane's weights of (64 keys, QUERIES queries) dropout drops, a word for 64 queries. */
template <int QUERIES> struct dropped_weights {
    uint32_t of[QUERIES / 64];
    /* Of the warp's 16 keys from `key` on, and queries from `query` on, the first of them in row `row`. A key is
     * seen where key - query is in least .. most. More than one block at once would take registers that the products
     * need. */
    __device__ inline void draw(const tile_mask &mask, int64_t row, int key, int query, int least, int most) {
        const uint64_t block = block_of_keys(mask, row, key);
#pragma unroll
        for (int i = 0; i < QUERIES / 64; i++)
            of[i] = dropped_keys<64, 1>(mask, block + 64 * i * mask.row_blocks, key - query - 64 * i, least, most);
    }
};

/* dp = m dp. */
template <int QUERIES>
__device__ inline void gradients_drop(float (&dp)[QUERIES / 2], const dropped_weights<QUERIES> &dropped, float growth) {
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[4 * n + i] = is_dropped(dropped.of[n / 8], n % 8, i) ? 0 : growth * dp[4 * n + i];
}

/* ds = p (dp - delta), in the place of dp. */
template <class T, int QUERIES>
__device__ inline void scores_of(const lane_place &me, float (&dp)[QUERIES / 2], const uint32_t (&p)[QUERIES / 16][4],
                                 const float *delta) {
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++) {
        const float2 d = *(const float2 *)&delta[8 * n + me.column()];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 two = unpack(T(), p[n / 2][n % 2 * 2 + i]);
            dp[4 * n + 2 * i] = two.x * (dp[4 * n + 2 * i] - d.x);
            dp[4 * n + 2 * i + 1] = two.y * (dp[4 * n + 2 * i + 1] - d.y);
        }
    }
}

/* Where the scores of a consumer's 64 keys and a tile of queries begin. */
template <int DP>
__device__ inline void scores_begin(float (&s)[hopper_shape<DP>::QUERIES / 2], const lane_place &me,
                                    const attention_call &a, const key_job &job, int tile, int consumer) {
    const mask_rows rows = mask_of_keys(a, job.b, job.h, job.tile * KEYS + consumer * 64 + me.row());
    mask_tile<hopper_shape<DP>::QUERIES> added;
    added.load(a, me, rows, tile * hopper_shape<DP>::QUERIES);
    added.begin(a, s);
}

template <class T, int DP, int KIND, bool SUMS, bool PAIRS, int CONSUMER>
__device__ inline void compute(hopper_shared<DP> &shared, const hopper_call &c) {
    typedef hopper_shape<DP> shape;
    enum { QUERIES = shape::QUERIES, PARTS = shape::PARTS };
    const attention_call &a = c.a;
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    const bool drops = KIND != PLAIN && c.mask.drops;
    float *const own_dq = shared.dq[CONSUMER];
    ring<shape::KV_STAGES> kv;
    ring<STAGES> at;
    int ds_phase = 0, dq_phase = 0;
    float dk[DP / 2], dv[DP / 2];
    for (;; kv.next()) {
        barrier_wait(&shared.kv_full[kv.slot], kv.phase);
        const int n_queries = warp_uniform(shared.key[kv.slot].n_queries);
        if (n_queries < 0) break;
        if (shared.key[kv.slot].begins) {
#pragma unroll
            for (int n = 0; n < DP / 2; n++) dk[n] = 0, dv[n] = 0;
        } else if (shared.key[kv.slot].rests) {
            const float *rest = key_slab<DP>(c, shared.key[kv.slot], CONSUMER);
            slab_read(dk, rest, me.lane);
            slab_read(dv, rest + 64 * DP, me.lane);
        }
        for (int n = 0; n < n_queries; n++, at.next()) {
            float s[QUERIES / 2], dp[QUERIES / 2];
            const uint64_t k_rows = tile_operand(&shared.k[kv.slot][CONSUMER * 64 * PART]);
            const uint64_t v_rows = tile_operand(&shared.v[kv.slot][CONSUMER * 64 * PART]);
            const uint64_t q_rows = tile_operand(shared.q[at.slot], QUERIES * ROW_BYTES);
            const uint64_t g_rows = tile_operand(shared.g[at.slot], QUERIES * ROW_BYTES);
            if (KIND == MASKED) {
                barrier_wait(&shared.rows_full[at.slot], at.phase);
                scores_begin<DP>(s, me, a, shared.key[kv.slot], shared.query[at.slot].tile, CONSUMER);
            }
            barrier_wait(&shared.q_full[at.slot], at.phase);
            registers_fence(s);
            products_begin();
#pragma unroll
            for (int k = 0; k < DP / 16; k++) {
                const int part = k / 4, step = k % 4 * STEP_ALONG_ROW;
                multiply_rows(T(), s, k_rows + (part * KEYS * ROW_BYTES >> 4) + step,
                              q_rows + (part * QUERIES * ROW_BYTES >> 4) + step, KIND == MASKED || k > 0);
            }
            products_commit();
            barrier_wait(&shared.g_full[at.slot], at.phase);
            registers_fence(dp);
            products_begin();
#pragma unroll
            for (int k = 0; k < DP / 16; k++) {
                const int part = k / 4, step = k % 4 * STEP_ALONG_ROW;
                multiply_rows(T(), dp, v_rows + (part * KEYS * ROW_BYTES >> 4) + step,
                              g_rows + (part * QUERIES * ROW_BYTES >> 4) + step, k > 0);
            }
            products_commit();
            barrier_wait(&shared.rows_full[at.slot], at.phase);
            dropped_weights<QUERIES> dropped;
            if (drops) {
                const int64_t head = shared.key[kv.slot].b * a.H + shared.key[kv.slot].h;
                const int query = shared.query[at.slot].tile * QUERIES, offset = (int)(a.S - a.T);
                dropped.draw(c.mask, head * a.T + query,
                             shared.key[kv.slot].tile * KEYS + CONSUMER * 64 + me.lane / 32 * 16, query,
                             offset - (int)a.left, offset + (int)a.right);
            }
            products_wait<1>();
            registers_fence(s);
            weights_of<QUERIES>(me, s, shared.lse[at.slot], (float)(a.scale * 1.4426950408889634));
            {
                const int offset = (int)(a.S - a.T), least = offset - (int)a.left, most = offset + (int)a.right;
                const int key = shared.key[kv.slot].tile * KEYS + CONSUMER * 64;
                const int query = shared.query[at.slot].tile * QUERIES;
                if (key + 63 - query > most || key - (query + QUERIES - 1) < least || key + 64 > (int)a.S)
                    weights_hide<QUERIES>(me, s, key + me.row(), query + me.column(), least, most, (int)a.S);
            }
            uint32_t p16[QUERIES / 16][4];
            operand_of<T>(p16, s);
            uint32_t kept16[KIND != PLAIN ? QUERIES / 16 : 1][4];
            if (KIND != PLAIN) {
#pragma unroll
                for (int k = 0; k < QUERIES / 16; k++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        kept16[k][i] =
                            drops ? two_kept(p16[k][i], dropped.of[k / 4], k % 4 * 2 + i / 2, i % 2) : p16[k][i];
            }
            registers_fence(dv);
            products_begin();
#pragma unroll
            for (int k = 0; k < QUERIES / 16; k++)
                multiply_registers(T(), dv, KIND != PLAIN ? kept16[k] : p16[k], g_rows + k * STEP_ALONG_ROWS, 1);
            products_commit();
            products_wait<1>();
            registers_fence(dp);
            if (drops) gradients_drop<QUERIES>(dp, dropped, c.mask.growth);
            scores_of<T, QUERIES>(me, dp, p16, shared.delta[at.slot]);
            uint32_t ds16[QUERIES / 16][4];
            operand_of<T>(ds16, dp);
            barrier_wait(&shared.ds_empty, ds_phase ^ 1);
#pragma unroll
            for (int k = 0; k < QUERIES / 16; k++)
                store_matrix(&shared.ds[k / 4 * KEYS * PART], CONSUMER * 64 + me.store_row(),
                             k % 4 * 2 + me.store_part(), ds16[k]);
            shared_publish();
            __syncwarp();
            if (me.lane % 32 == 0) barrier_arrive(&shared.ds_full);
            registers_fence(dk);
            products_begin();
#pragma unroll
            for (int k = 0; k < QUERIES / 16; k++)
                multiply_registers(T(), dk, ds16[k], q_rows + k * STEP_ALONG_ROWS, 1);
            products_commit();
            products_wait<1>();
            registers_fence(dv);

            float dq[32];
            const query_job job = shared.query[at.slot];
            float *const rest = c.slabs + shared.key[kv.slot].dq + (job.tile * 2 + CONSUMER) * (int64_t)TILE_FLOATS;
            if (PAIRS) {
                barrier_wait(&shared.dq_empty[CONSUMER], dq_phase ^ 1);
                dq_phase ^= 1;
            } else {
                if (me.lane == 0) slab_wait();
                warpgroup_sync<CONSUMER>();
            }
            barrier_wait(&shared.ds_full, ds_phase);
            registers_fence(dq);
            products_begin();
            const uint64_t ds_columns = tile_operand(&shared.ds[PARTS == 1 ? CONSUMER * KEYS * PART : 0]);
            const uint64_t k_columns = tile_operand(&shared.k[kv.slot][PARTS == 2 ? CONSUMER * KEYS * PART : 0]);
#pragma unroll
            for (int k = 0; k < KEYS / 16; k++)
                multiply_columns(T(), dq, ds_columns + k * STEP_ALONG_ROWS, k_columns + k * STEP_ALONG_ROWS, k > 0);
            products_commit();
            products_wait<1>();
            registers_fence(dk);
            if (me.lane == 0) barrier_arrive(&shared.empty[at.slot]);
            products_wait<0>();
            registers_fence(dq);
            if (me.lane == 0) barrier_arrive(&shared.ds_empty);
            ds_phase ^= 1;
            if (job.is_last && !job.is_first) {
                if (PAIRS) count_wait(&shared.n_there[CONSUMER], job.n_before);
                slab_add(dq, rest, me.lane);
            }
            if (job.is_last) {
                const int first = job.tile * QUERIES + (PARTS == 1 ? CONSUMER * 64 : 0),
                          d0 = PARTS == 2 ? CONSUMER * PART : 0;
                const int b = shared.key[kv.slot].b, h = shared.key[kv.slot].h;
                rows_write<T>(me, dq, (float)a.scale, own_dq, a.dq, b, first, h, (int)a.T, d0, (int)a.D);
                if (SUMS) consumer_sums<T, CONSUMER>(c, own_dq, 0, b, first, h, (int)a.T, d0);
            } else {
                slab_write(dq, own_dq, me.lane);
                shared_publish();
                if (!PAIRS) {
                    warpgroup_sync<CONSUMER>();
                    if (me.lane == 0)
                        slab_put(rest, own_dq, !job.is_first, c.n_parts == 1 ? cache_keep() : cache_usual());
                }
            }
            if (PAIRS) {
                __syncwarp();
                if (me.lane % 32 == 0) barrier_arrive(&shared.dq_full[CONSUMER]);
            }
        }
        const key_job job = shared.key[kv.slot];
        __syncwarp();
        warpgroup_sync<CONSUMER>();
        if (me.lane == 0) barrier_arrive(&shared.kv_empty[kv.slot]);
        if (!job.ends) {
            float *rest = key_slab<DP>(c, job, CONSUMER);
            if (job.rests) slab_write(dk, rest, me.lane), slab_write(dv, rest + 64 * DP, me.lane);
            continue;
        }
        if (PAIRS) barrier_wait(&shared.dq_empty[CONSUMER], dq_phase ^ 1);
        else {
            if (me.lane == 0) slab_wait();
            warpgroup_sync<CONSUMER>();
        }
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int first = job.tile * KEYS + CONSUMER * 64;
            rows_write<T>(me, dk + 32 * part, (float)a.scale, own_dq, a.dk, job.b, first, job.h_kv, (int)a.S,
                          part * PART, (int)a.D);
            if (SUMS)
                consumer_sums<T, CONSUMER>(c, own_dq, 0, job.b, first, (int)a.H + job.h_kv, (int)a.S, part * PART);
            rows_write<T>(me, dv + 32 * part, KIND != PLAIN ? c.mask.growth : 1, own_dq, a.dv, job.b, first, job.h_kv,
                          (int)a.S, part * PART, (int)a.D);
            if (SUMS)
                consumer_sums<T, CONSUMER>(c, own_dq, 1, job.b, first, (int)(a.H + a.H_kv) + job.h_kv, (int)a.S,
                                           part * PART);
        }
        if (PAIRS && SUMS) warpgroup_sync<CONSUMER>(); /* the last slots have been read */
    }
    if (PAIRS) {
        if (me.lane % 32 == 0) barrier_arrive(&shared.dq_full[CONSUMER]);
    } else if (me.lane == 0) slab_wait();
}
#endif

template <class T, int DP, int KIND, bool SUMS, bool PAIRS>
__global__ void __cluster_dims__(PAIRS ? 2 : 1, 1, 1) __launch_bounds__(HOPPER_THREADS, 1)
    hopper_backward(const __grid_constant__ hopper_maps maps, const __grid_constant__ hopper_call c) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) char memory[];
    hopper_shared<DP> &shared = *(hopper_shared<DP> *)memory;
    const int role = warp_uniform((int)threadIdx.x / WARPGROUP);
    if (threadIdx.x == 0) {
        for (int i = 0; i < hopper_shape<DP>::KV_STAGES; i++)
            barrier_init(&shared.kv_full[i], 2), barrier_init(&shared.kv_empty[i], 2);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&shared.q_full[i], 1);
            barrier_init(&shared.g_full[i], 1);
            barrier_init(&shared.rows_full[i], 32);
            barrier_init(&shared.empty[i], 2);
        }
        barrier_init(&shared.ds_full, 8);
        barrier_init(&shared.ds_empty, 2);
        for (int i = 0; i < 2; i++) {
            barrier_init(&shared.dq_full[i], WARPGROUP / 32), barrier_init(&shared.dq_empty[i], 1);
            shared.n_there[i] = 0;
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (PAIRS) cluster_sync();
    else __syncthreads();
    if (role == 0) {
        /* 384 threads begin with 168 registers each, which is 24 for 128 of them and 240 for the rest: with one more
         * here, the others would wait for theirs for ever. */
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        const int warp = warp_uniform((int)threadIdx.x / 32);
        if (threadIdx.x == 0) fetch_tiles<DP, PAIRS>(shared, maps, c);
        else if (warp == 1) fetch_rows<DP, PAIRS>(shared, c);
        else if (PAIRS && warp > 1 && threadIdx.x % 32 == 0) put_slabs<DP>(shared, c, warp - 2);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        if (role == 1) compute<T, DP, KIND, SUMS, PAIRS, 0>(shared, c);
        else compute<T, DP, KIND, SUMS, PAIRS, 1>(shared, c);
    }
    if (PAIRS) cluster_sync(); /* a block must not leave while the other still tells it something */
#endif
}

/* dq of heads that were cut into parts: the parts that saw each tile of queries, in order. A block has one consumer's
 * 64 x 64 of it. */
template <class T, int DP> __global__ void __launch_bounds__(WARPGROUP) hopper_gather(const hopper_call c) {
#if HAS_WARPGROUPS
    typedef hopper_shape<DP> shape;
    __shared__ __align__(1024) uint16_t staging[64 * PART];
    __shared__ __align__(16) float slots[SUM_FLOATS];
    const attention_call &a = c.a;
    const int n_tiles = tiles_over(a.T, shape::QUERIES), group = (int)(a.H / a.H_kv);
    const int consumer = (int)blockIdx.x % 2, i = (int)blockIdx.x / 2 % n_tiles;
    const int h = (int)blockIdx.x / 2 / n_tiles % group, unit = (int)blockIdx.x / 2 / n_tiles / group;
    const int head = c.first_head + unit, h_kv = head % (int)a.H_kv;
    const tile_range keys = key_tiles<DP>(a, i);
    const lane_place me = {(int)threadIdx.x};
    float dq[32];
#pragma unroll
    for (int n = 0; n < 32; n++) dq[n] = 0;
    for (int part = 0; part < c.n_parts; part++) {
        const int first = keys.first + (part + c.n_parts - keys.first % c.n_parts) % c.n_parts;
        if (first >= keys.end) continue;
        const float *slab = c.slabs + (unit * c.n_parts + part) * c.slab_floats +
                            ((h * n_tiles + i) * 2 + consumer) * (int64_t)TILE_FLOATS;
        slab_add(dq, slab, me.lane);
    }
    const int b = head / (int)a.H_kv, first = i * shape::QUERIES + (DP == 64 ? consumer * 64 : 0);
    const int d0 = DP == 64 ? 0 : consumer * PART;
    rows_write<T>(me, dq, (float)a.scale, staging, a.dq, b, first, h_kv * group + h, (int)a.T, d0, (int)a.D);
    if (!a.sums) return;
    warp_sums<T>(me, staging, slots, (int)a.T - first);
    __syncthreads();
    tile_sums(me, slots, sums_at(c, b, first, h_kv * group + h, d0), (int)a.T - first, (int)a.D - d0);
#endif
}

/* delta = rowsum(g out) - g_lse. Eight lanes have a row, 16 bytes of it at a time. Rows are taken in the order of
 * memory, head after head, and each thread loads its part of DELTA_ROWS of them before it adds. */
enum { DELTA_ROWS = 4, DELTA_THREADS = 256 };
template <class T> __global__ void __launch_bounds__(DELTA_THREADS) hopper_delta(const attention_call a, float *delta) {
    const int64_t n_rows = a.B * a.T * a.H, first = (int64_t)blockIdx.x * (DELTA_THREADS / 8 * DELTA_ROWS);
    const int d0 = (int)threadIdx.x % 8 * 8;
    int64_t place[DELTA_ROWS]; /* in delta */
    const uint16_t *g[DELTA_ROWS], *out[DELTA_ROWS];
    float sum[DELTA_ROWS] = {};
#pragma unroll
    for (int k = 0; k < DELTA_ROWS; k++) {
        const int64_t row = first + k * (DELTA_THREADS / 8) + threadIdx.x / 8, at = min(row, n_rows - 1);
        const int64_t h = at % a.H, t = at / a.H % a.T, b = at / a.H / a.T;
        place[k] = row < n_rows ? (b * a.H + h) * a.T + t : -1;
        g[k] = row_at(a.g, b, t, h), out[k] = row_at(a.out, b, t, h);
    }
    for (int d = d0; d < a.D; d += 64) {
        uint4 x[DELTA_ROWS], y[DELTA_ROWS];
#pragma unroll
        for (int k = 0; k < DELTA_ROWS; k++) x[k] = *(const uint4 *)(g[k] + d), y[k] = *(const uint4 *)(out[k] + d);
#pragma unroll
        for (int k = 0; k < DELTA_ROWS; k++) {
            const uint32_t xs[4] = {x[k].x, x[k].y, x[k].z, x[k].w}, ys[4] = {y[k].x, y[k].y, y[k].z, y[k].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 p = unpack(T(), xs[i]), q = unpack(T(), ys[i]);
                sum[k] = fmaf(p.x, q.x, sum[k]), sum[k] = fmaf(p.y, q.y, sum[k]);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < DELTA_ROWS; k++) {
#pragma unroll
        for (int distance = 4; distance > 0; distance /= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], distance);
        if (d0 == 0 && place[k] >= 0) delta[place[k]] = a.g_lse ? sum[k] - ((const float *)a.g_lse)[place[k]] : sum[k];
    }
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

/* PAIRS: of whole heads. */
template <class T, int DP, int KIND, bool SUMS, bool PAIRS>
static bool backward_launch(const tl_kernel_args *args, const attention_call &a) {
    typedef hopper_shape<DP> shape;
    const attention_sizes sizes = {a.B, a.T, a.S, a.H, a.H_kv, a.D};
    const hopper_cut cut = attention_hopper_cut(&sizes, PAIRS ? 2 : 1);
    auto *const whole = hopper_backward<T, DP, KIND, SUMS, PAIRS>, *const part =
                                                                       hopper_backward<T, DP, KIND, SUMS, false>;
    float *const delta = (float *)args->workspace;
    hopper_maps maps;
    if (!map_make(args, &maps.q, a, a.q, a.T, a.H, shape::QUERIES) ||
        !map_make(args, &maps.g, a, a.g, a.T, a.H, shape::QUERIES) ||
        !map_make(args, &maps.k, a, a.k, a.S, a.H_kv, KEYS) || !map_make(args, &maps.v, a, a.v, a.S, a.H_kv, KEYS))
        return false;
    const size_t shared_bytes = sizeof(hopper_shared<DP>);
    if (!shared_memory_allow(args, whole, shared_bytes) || !shared_memory_allow(args, part, shared_bytes)) return false;
    const int64_t block_rows = DELTA_THREADS / 8 * DELTA_ROWS, delta_blocks = tiles_over(a.B * a.T * a.H, block_rows);
    hopper_delta<T><<<capped(delta_blocks), DELTA_THREADS, 0, stream_of(args)>>>(a, delta);
    hopper_call c = {a,
                     mask_of(a),
                     delta,
                     (float *)((char *)args->workspace + attention_delta_bytes(&sizes)),
                     0,
                     0,
                     0,
                     1,
                     tiles_over(a.T, HOPPER_SUM_ROWS),
                     (a.H + 2 * a.H_kv) * a.D};
    if (cut.n_whole) {
        c.slab_floats = attention_hopper_slab(&sizes), c.n_units = (int)cut.n_whole;
        const unsigned n_blocks = (unsigned)(attention_hopper_open(&cut) * cut.n_ranks);
        whole<<<n_blocks, HOPPER_THREADS, shared_bytes, stream_of(args)>>>(maps, c);
    }
    if (cut.n_cut) {
        c.slab_floats = attention_hopper_part_slab(&sizes), c.n_parts = cut.n_parts;
        c.first_head = (int)cut.n_whole, c.n_units = (int)cut.n_cut * cut.n_parts;
        part<<<(unsigned)c.n_units, HOPPER_THREADS, shared_bytes, stream_of(args)>>>(maps, c);
        const int64_t n_tiles = tiles_over(a.T, shape::QUERIES) * cut.n_cut * (a.H / a.H_kv);
        hopper_gather<T, DP><<<(unsigned)(2 * n_tiles), WARPGROUP, 0, stream_of(args)>>>(c);
    }
    return true;
}

extern "C" bool attention_hopper_runs(const tl_kernel_args *args) {
    return runs_warpgroups(args, hopper_backward<bf16, 64, PLAIN, false, false>);
}

template <class T, int KIND, bool SUMS> static bool backward(const tl_kernel_args *args, const attention_call &a) {
    if (a.D <= 64) return backward_launch<T, 64, KIND, SUMS, false>(args, a);
    if constexpr (KIND == PLAIN)
        if (const attention_sizes sizes = {a.B, a.T, a.S, a.H, a.H_kv, a.D}; attention_suits_pairs(&sizes))
            return backward_launch<T, 128, KIND, SUMS, true>(args, a);
    return backward_launch<T, 128, KIND, SUMS, false>(args, a);
}
/* No sums with masks or dropout. */
template <class T> static bool backward_of(const tl_kernel_args *args, const attention_call &a) {
    if (a.mask) return backward<T, MASKED, false>(args, a);
    if (a.dropout > 0) return backward<T, DROPPED, false>(args, a);
    return a.sums ? backward<T, PLAIN, true>(args, a) : backward<T, PLAIN, false>(args, a);
}

extern "C" bool attention_hopper_backward(const tl_kernel_args *args, const attention_call *call) {
    return call->dtype == TL_BF16 ? backward_of<bf16>(args, *call) : backward_of<f16>(args, *call);
}
