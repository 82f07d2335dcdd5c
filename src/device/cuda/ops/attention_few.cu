/* attention_few.cu: attention of a few queries on many keys, as in decoding: 16 bits, heads of up to 256, whatever
 * hides or drops keys.
 *
 * The keys are cut into parts (attention_few_cut), and a block walks one part, so that a single query keeps the
 * whole GPU busy. Its 16 rows are queries of all heads that share the key head: keys and values are read once for
 * all of them. Row r of a key head is query r % T of its head r / T.
 *
 * A block's warps take 16 keys each in turns, and do not wait for each other: a warp copies its next keys and values
 * to shared memory (cp.async) while it computes. Each has its own running maximum and sum, as in attention_tiles.cu.
 * At the end the block adds up what its warps have, and few_join what the parts have, both in order: the same bits
 * each time.
 *
 *      out = sum_i 2^(top_i - top) out_i / sum_i 2^(top_i - top) sum_i        lse = top + log sum
 *
 * The workspace, of more than one part: out_i (parts, B H T, D), then top_i and sum_i (parts, B H T, 2), in f32.
 */
#include "device/cuda/ops/attention_tile.cuh"
#include "device/cuda/shared/attention_rule.h"
#include "device/cuda/shared/fetch.cuh"

enum { KEYS = 16, MOST_WARPS = FEW_KEYS / KEYS, STAGES = 2, JOIN_THREADS = 128 };
/* Wide heads take half the warps, so that a GPU with 99 KB of shared memory has room. */
template <int DP> __host__ __device__ constexpr int warps_of() { return DP > 128 ? MOST_WARPS / 2 : MOST_WARPS; }

struct few_call {
    attention_call a;
    few_cut cut;
    float *sums, *scales; /* of parts: out_i; top_i and sum_i */
};

/* What a block has: rows first_row .. of a key head, keys from .. to - 1. */
struct few_block {
    int64_t b, h_kv, first_head; /* the first of the heads that share it */
    int64_t place;               /* of its first row among B H T */
    int first_row, n_rows, part; /* n_rows: of the block */
    int from, to;
};
__device__ inline few_block block_of(const few_call &c) {
    const attention_call &a = c.a;
    const int64_t group = a.H / a.H_kv, tile = blockIdx.x / c.cut.n_parts, head = tile / c.cut.n_row_tiles;
    few_block at;
    at.part = (int)(blockIdx.x % c.cut.n_parts);
    at.b = head / a.H_kv, at.h_kv = head % a.H_kv, at.first_head = at.h_kv * group;
    at.first_row = (int)(tile % c.cut.n_row_tiles) * FEW_ROWS;
    at.n_rows = (int)min((int64_t)FEW_ROWS, group * a.T - at.first_row);
    at.place = head * group * a.T + at.first_row;
    /* the keys that any query sees: a whole number of FEW_KEYS from the part's first */
    const int64_t first = c.cut.first + at.part * c.cut.keys, seen = first_key(a, at.b, 0);
    const int64_t hidden = seen > first ? (seen - first) / FEW_KEYS * FEW_KEYS : 0;
    at.from = (int)(first + hidden);
    at.to = (int)min(first + c.cut.keys, visible_keys(a, a.T - 1));
    return at;
}

/* The block's queries into a tile; zeros behind them. A warp reads a row at a time, whatever its alignment. */
template <int DP> __device__ inline void queries_load(uint16_t *tile, const attention_call &a, const few_block &at) {
    enum { WARPS = warps_of<DP>() };
#pragma unroll
    for (int i = 0; i < FEW_ROWS / WARPS; i++) {
        const int row = i * WARPS + (int)threadIdx.x / 32, r = at.first_row + row, T = (int)a.T;
        const bool is_there = row < at.n_rows;
        const uint16_t *from = row_at(a.q, at.b, is_there ? r % T : 0, at.first_head + (is_there ? r / T : 0));
#pragma unroll
        for (int d = lane_of(); d < DP; d += 32)
            tile[row * tile_row<DP>() + d] = is_there && d < a.D ? from[d] : (uint16_t)0;
    }
}

/* The lane's two rows: the keys that they see, and where their mask begins. */
struct few_rows {
    int from[2], to[2];
    int64_t mask[2];
};
__device__ inline few_rows rows_of(const attention_call &a, const few_block &at) {
    few_rows rows;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = lane_row() + 8 * i, r = at.first_row + row;
        const bool is_there = row < at.n_rows;
        const int64_t t = is_there ? r % (int)a.T : 0, h = at.first_head + (is_there ? r / (int)a.T : 0);
        rows.from[i] = is_there ? (int)first_key(a, at.b, t) : 0;
        rows.to[i] = is_there ? (int)visible_keys(a, t) : 0;
        rows.mask[i] = at.b * a.mask_stride[0] + h * a.mask_stride[1] + t * a.mask_stride[2];
    }
    return rows;
}

/* What the mask adds to the lane's scores of KEYS keys from s on. */
template <class M>
__device__ inline void mask_rows(float (&added)[KEYS / 8][4], const attention_call &a, const few_rows &rows, int s) {
    const M *const mask = (const M *)a.mask;
    mask_read<M, KEYS>(added, mask + rows.mask[0], mask + rows.mask[1], a.mask_stride[3], mask_has_pairs<M>(a), s,
                       (int)a.S);
}
__device__ inline void mask_load(float (&added)[KEYS / 8][4], const attention_call &a, const few_rows &rows, int s) {
    if (a.mask_dtype == TL_BOOL) mask_rows<uint8_t>(added, a, rows, s);
    else if (a.mask_dtype == TL_BF16) mask_rows<bf16>(added, a, rows, s);
    else if (a.mask_dtype == TL_F16) mask_rows<f16>(added, a, rows, s);
    else mask_rows<float>(added, a, rows, s);
}

/* From products to scores in powers of two: lowest where a row does not see a key. */
__device__ inline void scores_of(float (&p)[KEYS / 8][4], const float (&added)[KEYS / 8][4], const few_rows &rows,
                                 int s, float scale) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = s + 8 * j + lane_pair() + i % 2;
            const bool is_seen = key >= rows.from[i / 2] && key < rows.to[i / 2] && added[j][i] != lowest<float>();
            p[j][i] = is_seen ? scale * p[j][i] + added[j][i] : lowest<float>();
        }
}

__device__ inline float lse_of(float top, float sum) {
    return sum == 0 ? lowest<float>() : top * (1 / LOG2_E) + log_of(sum);
}

/* The shares of the block's warps in its rows. */
struct few_shares {
    float top[MOST_WARPS][FEW_ROWS], sum[MOST_WARPS][FEW_ROWS], factor[MOST_WARPS][FEW_ROWS];
};

/* Adds up what the warps have, which lies in their rings in rows of tile_row<DP>() floats: the result of the only part,
 * or the part's share. */
template <class T, int DP>
__device__ inline void warps_join(const few_call &c, const few_block &at, few_shares &shares, const char *rings,
                                  int ring_bytes) {
    enum { WARPS = warps_of<DP>() };
    const attention_call &a = c.a;
    if (threadIdx.x < FEW_ROWS) {
        const int row = (int)threadIdx.x;
        float top = lowest<float>(), sum = 0;
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, shares.top[w][row]);
        const float shift = top == lowest<float>() ? 0 : top;
        for (int w = 0; w < WARPS; w++) sum += exp2_of(shares.top[w][row] - shift) * shares.sum[w][row];
        const bool is_whole = c.cut.n_parts == 1;
        const float growth = sum == 0 ? 0 : (float)(1 / (1 - a.dropout)) / sum;
        for (int w = 0; w < WARPS; w++)
            shares.factor[w][row] = exp2_of(shares.top[w][row] - shift) * (is_whole ? growth : 1);
        if (row < at.n_rows && is_whole) ((float *)a.lse)[at.place + row] = lse_of(top, sum);
        if (row < at.n_rows && !is_whole) {
            const int64_t place = at.part * (a.B * a.H * a.T) + at.place + row;
            c.scales[2 * place] = top, c.scales[2 * place + 1] = sum;
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < at.n_rows * DP; i += 32 * WARPS) {
        const int row = i / DP, d = i % DP, r = at.first_row + row;
        if (d >= a.D) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += shares.factor[w][row] * ((const float *)(rings + w * ring_bytes))[row * tile_row<DP>() + d];
        if (c.cut.n_parts == 1)
            row_at(a.out, at.b, r % (int)a.T, at.first_head + r / (int)a.T)[d] = rounded_bits<T>(sum);
        else c.sums[(at.part * (a.B * a.H * a.T) + at.place + row) * a.D + d] = sum;
    }
}

template <int DP> __host__ __device__ constexpr int ring_elements() { return STAGES * 2 * KEYS * tile_row<DP>(); }
template <int DP> __host__ __device__ constexpr int shared_bytes() {
    return 2 * (FEW_ROWS * tile_row<DP>() + warps_of<DP>() * ring_elements<DP>());
}

template <class T, int DP>
__global__ void __launch_bounds__(32 * warps_of<DP>()) few_parts(few_call c, tile_mask mask) {
    enum { TILE = KEYS * tile_row<DP>(), STEP = KEYS * warps_of<DP>(), HOLDS = DP <= 128 };
    extern __shared__ __align__(16) uint16_t memory[];
    __shared__ few_shares shares;
    const attention_call &a = c.a;
    const few_block at = block_of(c);
    const int warp = (int)threadIdx.x / 32, begin = at.from + warp * KEYS;
    uint16_t *const rings = memory + FEW_ROWS * tile_row<DP>(), *const ring = rings + warp * ring_elements<DP>();
    auto keys_at = [&](int i) { return ring + i % STAGES * 2 * TILE; };
    auto load = [&](int i, int s) {
        if (s < at.to) {
            tile_load<DP, KEYS, 32>(keys_at(i), a.k, at.b, s, at.h_kv, a.S, a.D);
            tile_load<DP, KEYS, 32>(keys_at(i) + TILE, a.v, at.b, s, at.h_kv, a.S, a.D);
        }
        copies_commit(); /* also of nothing: the waits count */
    };
    for (int i = 0; i < STAGES - 1; i++) load(i, begin + i * STEP);
    queries_load<DP>(memory, a, at);
    __syncthreads();
    own_rows<DP, HOLDS> q;
    q.take(memory, 0);
    const uint64_t mask_block = block_of_queries(mask, at.place);
    const few_rows rows = rows_of(a, at);
    float o[DP / 8][4] = {}, added[KEYS / 8][4] = {};
    row_softmax r = {{lowest<float>(), lowest<float>()}, {0, 0}};
    for (int i = 0, s = begin; s < at.to; i++, s += STEP) {
        load(i + STAGES - 1, s + (STAGES - 1) * STEP);
        if (a.mask) mask_load(added, a, rows, s);
        copies_wait<STAGES - 1>();
        __syncwarp();
        float p[KEYS / 8][4];
        multiply_rows<T, DP, KEYS>(p, q, keys_at(i));
        if (a.soft_cap > 0) scores_cap<T, KEYS>(p, a);
        scores_of(p, added, rows, s, score_scale(a));
        weights_of<KEYS, DP>(p, r, o, mask, mask_block, s);
        multiply_columns<T, DP, DP, KEYS>(o, p, keys_at(i) + TILE);
        __syncwarp(); /* before the tile is written again */
    }
    float *const own = (float *)ring;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = lane_row() + 8 * i;
        const float sum = row_sum(r.sum[i]);
        if (lane_pair() == 0) shares.top[warp][row] = r.top[i], shares.sum[warp][row] = sum;
#pragma unroll
        for (int j = 0; j < DP / 8; j++)
            *(float2 *)(own + row * tile_row<DP>() + 8 * j + lane_pair()) = make_float2(o[j][2 * i], o[j][2 * i + 1]);
    }
    __syncthreads();
    warps_join<T, DP>(c, at, shares, (const char *)rings, 2 * ring_elements<DP>());
}

/* ---- One query ------------------------------------------------------------------------------------------
 *
 * A part of FEW_ONE_KEYS keys, by as many threads, or, of wide heads, twice as many, without tensor cores: a kernel
 * that runs for a few microseconds spends them on fetching its own instructions, so it should have few. A thread, or
 * two neighbours, whose packs take turns, have a key: its products with the queries of GROUP heads, which lie in shared
 * memory, and its weights. Then a thread has 8 channels of the values of every 32nd or 16th key, and the block adds
 * those up in order. */
template <int DP> struct one_shape {
    enum { LANES = DP > 128 ? 2 : 1, THREADS = FEW_ONE_KEYS * LANES, WARPS = THREADS / 32 }; /* LANES: of a key */
    enum { PACKS = DP / 8, KEY_PACKS = PACKS / LANES };                                      /* of a row, of a thread */
    enum { BESIDE = THREADS / PACKS, EACH = FEW_ONE_KEYS / BESIDE }; /* values at a time, of a thread */
};

template <int DP, int GROUP> struct one_shared {
    enum { WARPS = one_shape<DP>::WARPS };
    float query[GROUP][DP], weight[GROUP][FEW_ONE_KEYS], top[GROUP][WARPS], sum[GROUP][WARPS];
    float part[WARPS][GROUP][DP];
};

template <class T> __device__ inline T bits_as(uint16_t bits) {
    T x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <class T> __device__ inline void words_widen(float (&to)[8], const uint4 &x) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 8; i++) to[i] = value_of<float>(bits_as<T>((uint16_t)(words[i / 2] >> 16 * (i % 2))));
}

/* Which of the queries see a key. */
template <int GROUP>
__device__ inline void key_seen(bool (&is_seen)[GROUP], const attention_call &a, const few_block &at, int64_t s,
                                bool is_there) {
    const bool *const mask = (const bool *)a.mask + at.b * a.mask_stride[0] + s * a.mask_stride[3];
#pragma unroll
    for (int h = 0; h < GROUP; h++)
        is_seen[h] = is_there && h < at.n_rows && (!a.mask || mask[(at.first_head + h) * a.mask_stride[1]]);
}

/* The products of a key with the queries, in powers of two; lowest for one that is not seen. */
template <class T, int DP, int GROUP>
__device__ inline void key_scores(float (&score)[GROUP], const one_shared<DP, GROUP> &shared,
                                  const uint4 (&key)[one_shape<DP>::KEY_PACKS], const bool (&is_seen)[GROUP],
                                  const attention_call &a) {
    enum { LANES = one_shape<DP>::LANES };
    float sum[GROUP] = {};
#pragma unroll
    for (int i = 0; i < one_shape<DP>::KEY_PACKS; i++) {
        const int first = 8 * (i * LANES + (int)threadIdx.x % LANES);
        float x[8];
        words_widen<T>(x, key[i]);
#pragma unroll
        for (int h = 0; h < GROUP; h++)
#pragma unroll
            for (int j = 0; j < 8; j++) sum[h] = fmaf(x[j], shared.query[h][first + j], sum[h]);
    }
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
        if (LANES == 2) sum[h] += __shfl_xor_sync(ALL_LANES, sum[h], 1);
        score[h] = is_seen[h] ? score_scale(a) * sum[h] : lowest<float>();
    }
}

/* From scores to weights, in shared memory; the maxima and sums of warps. */
template <int DP, int GROUP>
__device__ inline void key_weights(one_shared<DP, GROUP> &shared, const float (&score)[GROUP]) {
    enum { LANES = one_shape<DP>::LANES };
    const int warp = (int)threadIdx.x / 32;
    const bool is_first = threadIdx.x % LANES == 0; /* of a key's threads */
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
        const float most = warp_reduce(score[h], max_of());
        if (lane_of() == 0) shared.top[h][warp] = most;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
        float top = lowest<float>();
#pragma unroll
        for (int w = 0; w < one_shape<DP>::WARPS; w++) top = fmaxf(top, shared.top[h][w]);
        const float weight = exp2_of(score[h] - (top == lowest<float>() ? 0 : top));
        if (is_first) shared.weight[h][threadIdx.x / LANES] = weight;
        const float sum = warp_reduce(is_first ? weight : 0, sum_of());
        if (lane_of() == 0) shared.sum[h][warp] = sum;
    }
    __syncthreads();
}

/* The block's sums: the result of the only part, or the part's share. */
template <class T, int DP, int GROUP>
__device__ inline void one_end(const few_call &c, const few_block &at, const one_shared<DP, GROUP> &shared) {
    const attention_call &a = c.a;
    const bool is_whole = c.cut.n_parts == 1;
    const int64_t place = at.part * (a.B * a.H) + at.place;
    for (int i = (int)threadIdx.x; i < at.n_rows * DP; i += one_shape<DP>::THREADS) {
        const int h = i / DP, d = i % DP;
        float total = 0, sum = 0, top = lowest<float>();
#pragma unroll
        for (int w = 0; w < one_shape<DP>::WARPS; w++) {
            total += shared.part[w][h][d];
            sum += shared.sum[h][w];
            top = fmaxf(top, shared.top[h][w]);
        }
        if (d < a.D && is_whole)
            row_at(a.out, at.b, 0, at.first_head + h)[d] = rounded_bits<T>(sum == 0 ? 0 : total / sum);
        if (d < a.D && !is_whole) c.sums[(place + h) * a.D + d] = total;
        if (d == 0 && is_whole) ((float *)a.lse)[at.place + h] = lse_of(top, sum);
        if (d == 0 && !is_whole) c.scales[2 * (place + h)] = top, c.scales[2 * (place + h) + 1] = sum;
    }
}

/* As block_of, whose numbers may be larger: 64-bit divisions take longer than the rest of it. */
__device__ inline few_block one_block_of(const few_call &c) {
    const attention_call &a = c.a;
    const unsigned n_parts = (unsigned)c.cut.n_parts, n_heads = (unsigned)a.H_kv, head = blockIdx.x / n_parts;
    few_block at;
    at.part = (int)(blockIdx.x - head * n_parts);
    at.b = head / n_heads, at.h_kv = head - at.b * n_heads;
    at.n_rows = (int)((unsigned)a.H / n_heads);
    at.first_row = 0, at.first_head = at.h_kv * at.n_rows, at.place = (int64_t)head * at.n_rows;
    const int64_t first = c.cut.first + at.part * c.cut.keys, end = visible_keys(a, 0);
    at.from = (int)first_key(a, at.b, 0);
    at.to = (int)min(first + c.cut.keys, end);
    return at;
}

/* The block's keys (thread 0) and values (1) to the L2 cache, where they follow each other, as in a cache of both:
 * before front_wait, since nearly all of them were written long ago. */
__device__ inline void one_fetch(const few_call &c) {
    const attention_call &a = c.a;
    const attention_rows &rows = threadIdx.x ? a.v : a.k;
    if (threadIdx.x > 1 || rows.stride_t != a.D) return;
    const unsigned n_parts = (unsigned)c.cut.n_parts, n_heads = (unsigned)a.H_kv, head = blockIdx.x / n_parts;
    const int64_t first = c.cut.first + (blockIdx.x - head * n_parts) * c.cut.keys, n = min(c.cut.keys, a.S - first);
    cache_fetch(row_at(rows, head / n_heads, first, head % n_heads), (unsigned)(2 * n * a.D));
}

/* The values of the keys `beside`, and so on, that the thread has, its pack of each. */
template <int DP>
__device__ inline void values_load(uint4 (&value)[one_shape<DP>::EACH], const attention_call &a, const few_block &at,
                                   int64_t first) {
    typedef one_shape<DP> shape;
    const int pack = (int)threadIdx.x % shape::PACKS, beside = (int)threadIdx.x / shape::PACKS;
#pragma unroll
    for (int i = 0; i < shape::EACH; i++) {
        const int64_t k = first + beside + i * shape::BESIDE;
        const bool is_read = k < at.to && 8 * pack < a.D;
        value[i] = is_read ? ((const uint4 *)row_at(a.v, at.b, k, at.h_kv))[pack] : make_uint4(0, 0, 0, 0);
    }
}

template <class T, int DP, int GROUP> __global__ void __launch_bounds__(one_shape<DP>::THREADS) few_one(few_call c) {
    typedef one_shape<DP> shape;
    enum { PACKS = shape::PACKS, LANES = shape::LANES, HOLDS = LANES == 1 }; /* HOLDS: keys and values at once */
    __shared__ one_shared<DP, GROUP> shared;
    const attention_call &a = c.a;
    const int thread = (int)threadIdx.x, pack = thread % PACKS, beside = thread / PACKS;
    next_begin();
    one_fetch(c);
    front_wait();
    const few_block at = one_block_of(c);
    const int64_t first = c.cut.first + at.part * c.cut.keys, s = first + thread / LANES;
    const bool is_there = s >= at.from && s < at.to;
    uint4 key[shape::KEY_PACKS], value[shape::EACH];
    bool is_seen[GROUP];
    const uint4 *const from = (const uint4 *)row_at(a.k, at.b, is_there ? s : 0, at.h_kv);
#pragma unroll
    for (int i = 0; i < shape::KEY_PACKS; i++) {
        const int k = i * LANES + thread % LANES;
        key[i] = is_there && 8 * k < a.D ? from[k] : make_uint4(0, 0, 0, 0);
    }
    if (HOLDS) values_load<DP>(value, a, at, first);
    key_seen(is_seen, a, at, s, is_there);
    for (int i = thread; i < GROUP * DP; i += shape::THREADS) {
        const int h = i / DP, d = i % DP;
        const bool has = h < at.n_rows && d < a.D;
        shared.query[h][d] = has ? value_of<float>(bits_as<T>(row_at(a.q, at.b, 0, at.first_head + h)[d])) : 0.0f;
    }
    __syncthreads();
    float score[GROUP], out[GROUP][8] = {};
    key_scores<T, DP, GROUP>(score, shared, key, is_seen, a);
    if (!HOLDS) values_load<DP>(value, a, at, first); /* into the registers that had the key */
    key_weights(shared, score);
#pragma unroll
    for (int i = 0; i < shape::EACH; i++) {
        float x[8];
        words_widen<T>(x, value[i]);
#pragma unroll
        for (int h = 0; h < GROUP; h++)
#pragma unroll
            for (int j = 0; j < 8; j++) out[h][j] = fmaf(shared.weight[h][beside + i * shape::BESIDE], x[j], out[h][j]);
    }
#pragma unroll
    for (int h = 0; h < GROUP; h++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            for (int away = PACKS; away < 32; away *= 2) out[h][j] += __shfl_xor_sync(0xFFFFFFFFu, out[h][j], away);
            if (lane_of() < PACKS) shared.part[thread / 32][h][8 * pack + j] = out[h][j];
        }
    __syncthreads();
    one_end<T>(c, at, shared);
}

/* One block for each row of B H T. */
template <class T> __global__ void __launch_bounds__(JOIN_THREADS) few_join(few_call c) {
    __shared__ float factor[FEW_PARTS];
    const attention_call &a = c.a;
    const int64_t row = blockIdx.x, n_rows = a.B * a.H * a.T;
    const int n = c.cut.n_parts, lane = lane_of();
    next_begin();
    front_wait();
    const int64_t t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
    float tops[FEW_PARTS / 32], top = lowest<float>(), sum = 0;
#pragma unroll
    for (int k = 0; k < FEW_PARTS / 32; k++) {
        const int part = lane + 32 * k;
        tops[k] = part < n ? c.scales[2 * (part * n_rows + row)] : lowest<float>();
        top = fmaxf(top, tops[k]);
    }
    top = warp_reduce(top, max_of());
    const float shift = top == lowest<float>() ? 0 : top;
#pragma unroll
    for (int k = 0; k < FEW_PARTS / 32; k++) {
        const int part = lane + 32 * k;
        const float share = exp2_of(tops[k] - shift);
        if (part < n) sum += share * c.scales[2 * (part * n_rows + row) + 1];
        if (part < n && threadIdx.x < 32) factor[part] = share;
    }
    sum = warp_reduce(sum, sum_of());
    __syncthreads();
    const float growth = sum == 0 ? 0 : (float)(1 / (1 - a.dropout)) / sum;
    for (int d = (int)threadIdx.x; d < a.D; d += JOIN_THREADS) {
        float total = 0;
#pragma unroll 8
        for (int part = 0; part < n; part++) total += factor[part] * c.sums[(part * n_rows + row) * a.D + d];
        row_at(a.out, b, t, h)[d] = rounded_bits<T>(total * growth);
    }
    if (threadIdx.x == 0) ((float *)a.lse)[row] = lse_of(top, sum);
}

template <class T> static void join_launch(const tl_kernel_args *args, const few_call &c) {
    static const bool is_early = waits_for_front(few_join<T>);
    const int64_t n_rows = c.a.B * c.a.H * c.a.T;
    if (c.cut.n_parts > 1) launch_early(args, few_join<T>, is_early, (unsigned)n_rows, JOIN_THREADS, 0, c);
}

template <class T, int DP, int GROUP> static bool one_launch(const tl_kernel_args *args, const few_call &c) {
    static const bool is_early = waits_for_front(few_one<T, DP, GROUP>);
    const int64_t n_blocks = c.a.B * c.a.H_kv * c.cut.n_parts;
    launch_early(args, few_one<T, DP, GROUP>, is_early, (unsigned)n_blocks, one_shape<DP>::THREADS, 0, c);
    join_launch<T>(args, c);
    return true;
}
template <class T, int DP> static bool one_launch_grouped(const tl_kernel_args *args, const few_call &c) {
    const int64_t group = c.a.H / c.a.H_kv;
    if (group == 1) return one_launch<T, DP, 1>(args, c);
    if (group <= 4) return one_launch<T, DP, 4>(args, c);
    return one_launch<T, DP, 8>(args, c);
}

static bool are_packs(const attention_rows &rows) {
    return (uintptr_t)rows.data % 16 == 0 && (rows.stride_b | rows.stride_t | rows.stride_h) % 8 == 0;
}

/* A bool mask or none, and heads of up to 128 in whole packs; wider ones have no room for several queries. */
static bool is_one(const few_call &c) {
    const attention_call &a = c.a;
    return a.T == 1 && c.cut.keys == FEW_ONE_KEYS && a.H / a.H_kv <= (a.D <= 128 ? 8 : 1) && a.D % 8 == 0 &&
           a.dropout == 0 && a.soft_cap == 0 && (!a.mask || a.mask_dtype == TL_BOOL) && are_packs(a.k) &&
           are_packs(a.v);
}

template <class T, int DP> static bool launch(const tl_kernel_args *args, const few_call &c) {
    const attention_call &a = c.a;
    if (!shared_memory_allow(args, few_parts<T, DP>, shared_bytes<DP>())) return false;
    const int64_t n_blocks = a.B * a.H_kv * c.cut.n_row_tiles * c.cut.n_parts;
    few_parts<T, DP><<<(unsigned)n_blocks, 32 * warps_of<DP>(), shared_bytes<DP>(), stream_of(args)>>>(c, mask_of(c.a));
    join_launch<T>(args, c);
    return true;
}

/* By the head size, rounded up. */
template <class T> static bool launch_sized(const tl_kernel_args *args, const few_call &c) {
    if (is_one(c) && c.a.D > 128) return one_launch<T, 256, 1>(args, c);
    if (is_one(c)) return c.a.D <= 64 ? one_launch_grouped<T, 64>(args, c) : one_launch_grouped<T, 128>(args, c);
    if (c.a.D <= 32) return launch<T, 32>(args, c);
    if (c.a.D <= 64) return launch<T, 64>(args, c);
    if (c.a.D <= 128) return launch<T, 128>(args, c);
    return launch<T, 256>(args, c);
}

extern "C" bool attention_few_forward(const tl_kernel_args *args, const attention_call *call) {
    const attention_sizes sizes = {call->B, call->T, call->S, call->H, call->H_kv, call->D};
    few_call c = {*call, attention_few_cut(&sizes, (const attr_attention *)args->attr), NULL, NULL};
    c.sums = (float *)args->workspace;
    c.scales = c.sums + c.cut.n_parts * (call->B * call->H * call->T) * call->D;
    return call->dtype == TL_BF16 ? launch_sized<bf16>(args, c) : launch_sized<f16>(args, c);
}
