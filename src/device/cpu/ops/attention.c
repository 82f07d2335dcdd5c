/* attention.c: attention without a T x S matrix.
 *
 * Flash attention on a CPU. Queries and keys are cut into blocks; the scores of one block of queries with one block
 * of keys live on the stack, and so do the running sums:
 *
 *   forward   For one block of queries, over blocks of keys: scores s = scale q k^T; the running maximum m grows;
 *             earlier sums are rescaled by exp(m_old - m_new); then l += sum exp(s - m), o += exp(s - m) v. At the
 *             end out = o / l and lse = m + log l.
 *   backward  With lse the weights come back without a running maximum: p = exp(s - lse). Then
 *                 dv = p^T g      dp = g v^T      ds = p * (dp - delta)      dq = scale ds k      dk = scale ds^T q
 *             where delta = rowsum(g * out) = rowsum(p * dp). Blocks of keys are the outer loop: dk and dv of a
 *             block are finished on the stack, dq grows in memory.
 *
 * Causal: blocks beyond the diagonal are skipped, which saves half of the work. So are blocks wholly outside a window
 * and, inside a block, tiles in which no query sees a key. A mask is read block by block and added to the scores;
 * false is -inf. The gradient of lse reaches a score as p g_lse, so it is subtracted from delta. The gradient of an
 * added mask is ds, written block by block.
 *
 * A tensor of first keys (first_key) hides the keys before each query's own first one, as a bool mask would, with the
 * same bits. Since first keys do not decrease, the keys that some of a run of queries see still begin with those of the
 * first query and end with those of the last, and blocks and tiles before them are skipped: attention inside documents
 * takes the time of its documents. Unlike a window, first keys may leave a query without any key between two that see
 * some; the tiles of such gaps are computed, and hidden.
 *
 * Dropout zeroes weights after the softmax: sums and lse are those of all weights, and out grows by 1/(1 - dropout) at
 * its end. Backward, with m = 0 or 1/(1 - dropout) for each weight, p becomes m p for dv, and dp becomes m dp. The mask
 * is computed row by row wherever weights are (spec/dropout.h).
 *
 * A soft cap c turns a score s into c tanh(s / c) before the mask; backward, ds grows by its slope 1 - tanh(s / c)^2
 * before it meets q and k, and after the mask's gradient was taken.
 *
 * A single query per row, as when text is generated, is a product with few rows (attention_decode.h).
 *
 * The stack is bounded, the head size D is not: products that sum over D run in parts of it, and an output wider
 * than one part is made part by part, recomputing the scores for each. Heads up to HEAD_PART_BYTES / 4 (f32) need one
 * part and pay nothing.
 *
 * Threads. Forward: an item is one block of queries of one head. Backward: an item is one kv head with all its query
 * heads, walked in a fixed order, so no two threads add to the same numbers and the sums' order is fixed. Where
 * there are too few such heads, dk and dv are made by blocks of keys and then dq by blocks of queries, in the same
 * order of sums.
 */
#include "base/rng.h"
#include "base/scratch.h"
#include "device/cpu/ops/attention_tile.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/gemm.h"
#include "device/cpu/shared/gemm_sizes.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attention_pack.h"
#include "spec/attr.h"
#include "spec/dropout.h"
#include "tensor/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Queries and keys in a block: a multiple of the sides of every tile. A thread needs about 130 KiB of stack forward
 * and 330 KiB backward. */
enum { ROWS = 64, HEAD_PART_BYTES = 512, ERROR_BYTES = 200 };

struct attention {
    const tl_operand *q, *k, *v, *out, *lse, *g, *dq, *dk, *dv, *dmask; /* dmask NULL if it is not needed */
    int64_t B, T, S, H, H_kv, D;
    double scale, soft_cap;
    int64_t left, right;                        /* how far a query sees */
    const tl_operand *mask, *first_key, *g_lse; /* NULL where absent */
    double dropout, growth;                     /* of the weights that dropout keeps; 1 without */
    tl_generator generator;
    void *delta;        /* backward: (B,H,T) of the compute type */
    tl_operand dq_sums; /* backward: (B,T,H,D) of the compute type: dq itself, or dense f32 in the workspace */
};

/* Query t is aligned with key S - T + t, and sees `left` keys before it and `right` after it. */
static int64_t beside(const struct attention *attention, int64_t t) { return attention->S - attention->T + t; }

/* One beyond the last key that query t sees. */
static int64_t visible_keys(const struct attention *attention, int64_t t) {
    const int64_t n = beside(attention, t) + attention->right + 1;
    return n < 0 ? 0 : n < attention->S ? n : attention->S;
}

static int64_t given_first_key(const struct attention *attention, int64_t b, int64_t t) {
    const tl_operand *x = attention->first_key;
    return block_integer(x, b * x->stride[0] + t * x->stride[1]);
}

/* The first key that query t of batch entry b sees; may be S or more. */
static int64_t first_key(const struct attention *attention, int64_t b, int64_t t) {
    const int64_t s = beside(attention, t) - attention->left, least = s > 0 ? s : 0;
    const int64_t given = attention->first_key ? given_first_key(attention, b, t) : 0;
    return given > least ? given : least;
}

/* One beyond the last of the queries t .. end - 1 whose first key is at most s. */
static int64_t end_by_first_key(const struct attention *attention, int64_t b, int64_t s, int64_t t, int64_t end) {
    while (attention->first_key && t < end) {
        const int64_t middle = t + (end - t) / 2;
        if (given_first_key(attention, b, middle) <= s) t = middle + 1;
        else end = middle;
    }
    return end;
}

/* One beyond the last query that the window lets see key s. */
static int64_t end_query(const struct attention *attention, int64_t s) {
    const int64_t t = s - beside(attention, 0) + attention->left + 1;
    return t < attention->T ? t : attention->T;
}

/* The first query that sees key s; may be T or more. */
static int64_t first_query(const struct attention *attention, int64_t s) {
    const int64_t t = s - beside(attention, 0) - attention->right;
    return t > 0 ? t : 0;
}

/* ---- Visibility: ranges within spans of queries and keys, counted from their first ---- */

struct span {
    int64_t first, n;
};
struct range {
    int64_t from, to; /* to - 1 is the last; none: to <= from */
};

static int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
static int64_t blocks_of(int64_t n) { return (n + ROWS - 1) / ROWS; }
static struct span block_of(int64_t n, int64_t index) {
    return (struct span){index * ROWS, block_min(ROWS, n - index * ROWS)};
}

static struct range range_in(int64_t from, int64_t to, struct span span) {
    from -= span.first;
    to -= span.first;
    return (struct range){from > 0 ? from : 0, to < span.n ? to : span.n};
}

/* The keys of a span that some of the queries i .. i + n - 1 of batch entry b see. */
static struct range seen_keys(const struct attention *attention, int64_t b, struct span queries, int64_t i, int64_t n,
                              struct span keys) {
    const int64_t t = queries.first + i, last = queries.first + block_min(i + n, queries.n) - 1;
    return range_in(first_key(attention, b, t), visible_keys(attention, last), keys);
}

/* The queries of a span that see some of the keys i .. i + n - 1. */
static struct range seeing_queries(const struct attention *attention, int64_t b, struct span keys, int64_t i, int64_t n,
                                   struct span queries) {
    const int64_t s = keys.first + i, last = keys.first + block_min(i + n, keys.n) - 1;
    const int64_t by_window = end_query(attention, last), end = queries.first + queries.n;
    return range_in(first_query(attention, s),
                    end_by_first_key(attention, b, last, queries.first, by_window < end ? by_window : end), queries);
}

/* One beyond the last query that sees some of the keys of a span. */
static int64_t end_query_of(const struct attention *attention, int64_t b, struct span keys) {
    const int64_t last = keys.first + keys.n - 1;
    return end_by_first_key(attention, b, last, 0, end_query(attention, last));
}

/* Tiles of n that hold a range. A range that is empty because its ends passed each other inside a tile holds that tile:
 * there first keys hide what lies between, and both neighbours count on zeros. */
static struct range whole_tiles(struct range range, int64_t n) {
    const struct range tiles = {range.from / n * n, round_up(range.to, n)};
    return tiles.to <= tiles.from ? (struct range){0, 0} : tiles;
}

/* Whether dropout keeps the weights of query t and keys s .. s + n - 1. */
static void keep_row(uint8_t *keep, const struct attention *attention, int64_t b, int64_t h, int64_t t, int64_t s,
                     int64_t n) {
    const tl_generator generator = attention->generator;
    const uint64_t at = dropout_row_at(generator, (b * attention->H + h) * attention->T + t, attention->S);
    rng_fill_mask(keep, n, dropout_key(generator), at + (uint64_t)s, attention->dropout);
}

/* exp(x) of a score minus the maximum, so x is about 0 or below. 0 where the result would be subnormal, and for -inf;
 * NaN stays NaN. */
static inline float weight_f32(float x) {
    const float bounded = vector_select(x < -87.0f, -87.0f, x);
    const struct vector_reduced reduced = vector_reduce(bounded);
    const uint32_t bits = f32_bits(1.0f + reduced.expm1_r) + ((uint32_t)reduced.n << 23);
    return f32_of_bits(bits & (0u - (uint32_t) !(x < -87.0f)));
}
static inline double weight_f64(double x) { return exp(x); }

/* out (4, 4) = in^T: vector code for f32, which compilers do not generate by themselves. */
static inline void turn_quad_f32(const float *in, int64_t step, float *out) {
    typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
    const quad a = *(const quad *)in, b = *(const quad *)(in + step);
    const quad c = *(const quad *)(in + 2 * step), d = *(const quad *)(in + 3 * step);
    const quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(quad *)out = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(quad *)(out + ROWS) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(quad *)(out + 2 * ROWS) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(quad *)(out + 3 * ROWS) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}
static inline void turn_quad_f64(const double *in, int64_t step, double *out) {
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 4; i++) out[j * ROWS + i] = in[i * step + j];
    }
}

#define TYPE_f32 TL_F32
#define TYPE_f64 TL_F64

#define REAL float
#define NAME(name) name##_f32
#define TILE_N TILE_N_F32
#include "device/cpu/ops/attention_template.h"

#define REAL double
#define NAME(name) name##_f64
#define TILE_N TILE_N_F64
#include "device/cpu/ops/attention_template.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "device/cpu/ops/attention_bf16.h"
#endif

#include "device/cpu/ops/attention_decode.h"

/* How a dtype is computed: the bodies of each parallel_for. */
struct way {
    parallel_body forward_blocks, backward_heads, backward_begins, backward_key_blocks, backward_query_blocks;
};
static const struct way way_f32 = {forward_blocks_f32, backward_heads_f32, backward_begins_f32, backward_key_blocks_f32,
                                   backward_query_blocks_f32};
static const struct way way_f64 = {forward_blocks_f64, backward_heads_f64, backward_begins_f64, backward_key_blocks_f64,
                                   backward_query_blocks_f64};
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
static const struct way way_bf16 = {forward_blocks_bf16, backward_heads_bf16, backward_begins_f32,
                                    backward_key_blocks_bf16, backward_query_blocks_bf16};
#endif

static bool is_f64(const tl_operand *x) { return dtype_compute(x->dtype) == TL_F64; }

static const struct way *way_of(const struct attention *attention) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (takes_bf16(attention)) return &way_bf16;
#endif
    return is_f64(attention->q) ? &way_f64 : &way_f32;
}

static void read_attributes(struct attention *attention, const struct attr_attention *attr) {
    const tl_operand *q = attention->q, *k = attention->k;
    attention->B = q->shape[0];
    attention->T = q->shape[1];
    attention->H = q->shape[2];
    attention->D = q->shape[3];
    attention->S = k->shape[1];
    attention->H_kv = k->shape[2];
    const int64_t all = attention->S + attention->T; /* farther than any key from any query */
    attention->left = attr->window > 0 && attr->window < all ? attr->window - 1 : all;
    attention->right = attr->causal ? 0 : attention->left;
    attention->scale = attr->scale;
    attention->soft_cap = attr->soft_cap;
    attention->dropout = attr->dropout;
    attention->growth = 1 / (1 - attr->dropout);
    attention->generator = attr->generator;
}

/* The blocks that are skipped rely on it. */
static bool first_keys_rise(const struct attention *attention, const tl_kernel_args *args) {
    for (int64_t b = 0; attention->first_key && b < attention->B; b++) {
        for (int64_t t = 1; t < attention->T; t++) {
            const int64_t before = given_first_key(attention, b, t - 1), here = given_first_key(attention, b, t);
            if (here >= before) continue;
            snprintf(args->error, ERROR_BYTES,
                     "first_key falls from %" PRId64 " to %" PRId64 " at query %" PRId64 " of row %" PRId64
                     " (need values that do not decrease)",
                     before, here, t, b);
            return false;
        }
    }
    return true;
}

bool cpu_attention(const tl_kernel_args *args) {
    const struct attr_attention *attr = args->attr;
    struct attention attention = {
        .q = &args->in[0],
        .k = &args->in[1],
        .v = &args->in[2],
        .out = &args->out[0],
        .lse = &args->out[1],
        .mask = attr->has_mask ? &args->in[3] : NULL,
        .first_key = attr->has_first_key ? &args->in[3 + attr->has_mask] : NULL,
    };
    read_attributes(&attention, attr);
    if (!first_keys_rise(&attention, args)) return false;
    if (is_decode(&attention)) {
        const int64_t work = block_min(attention.H / attention.H_kv, DECODE_HEADS) * attention.S * attention.D / 4;
        parallel_for(attention.B * attention.H_kv * decode_groups(&attention), parallel_grain(work), args->n_threads,
                     decode_range, &attention);
        return true;
    }
    parallel_for(attention.B * attention.H * blocks_of(attention.T), 1, args->n_threads,
                 way_of(&attention)->forward_blocks, &attention);
    return true;
}

/* Items are whole heads if there are enough to keep the threads busy. Smaller items compute seven products where
 * whole heads need five. The bits are the same. */
static void backward(struct attention *attention, int n_threads) {
    const struct way *way = way_of(attention);
    const int64_t n_heads = attention->B * attention->H_kv, rounds = (n_heads + n_threads - 1) / n_threads;
    if (rounds * 5 * n_threads <= n_heads * 7 || attention->D == 0) {
        parallel_for(n_heads, 1, n_threads, way->backward_heads, attention);
        return;
    }
    const int64_t n_keys = n_heads * blocks_of(attention->S);
    const int64_t n_queries = attention->B * attention->H * blocks_of(attention->T);
    parallel_for(attention->B * attention->H, 1, n_threads, way->backward_begins, attention);
    parallel_for(n_keys, 1, n_threads, way->backward_key_blocks, attention);
    parallel_for(n_queries, 1, n_threads, way->backward_query_blocks, attention);
}

/* The sums of the packed result over B and T. */
static bool packed_sums(const tl_kernel_args *args) {
    const struct attr_reduce over = {.axes = 3};
    tl_kernel_args sum = *args;
    sum.attr = &over;
    sum.in = &args->out[0];
    sum.out = &args->out[1];
    sum.n_in = sum.n_out = 1;
    sum.workspace = NULL;
    sum.workspace_bytes = 0;
    return cpu_sum(&sum);
}

bool cpu_attention_grad(const tl_kernel_args *args) {
    const struct attr_attention *attr = args->attr;
    const tl_operand *q = &args->in[1], *d = args->out; /* dq, dk, dv */
    struct attention_parts parts;
    if (attr->is_packed) {
        attention_unpack(&parts, d, q->shape[2], args->in[2].shape[2], (size_t)dtype_info(q->dtype)->bits / 8);
        d = parts.part;
    }
    struct attention attention = {
        .g = &args->in[0],
        .q = q,
        .k = &args->in[2],
        .v = &args->in[3],
        .out = &args->in[4],
        .lse = &args->in[5],
        .dq = &d[0],
        .dk = &d[1],
        .dv = &d[2],
        .dmask = attr->has_mask_grad ? &args->out[3] : NULL,
        .mask = attr->has_mask ? &args->in[6] : NULL,
        .first_key = attr->has_first_key ? &args->in[6 + attr->has_mask] : NULL,
        .g_lse = attr->has_lse_grad ? &args->in[args->n_in - 1] : NULL,
    };
    read_attributes(&attention, attr);
    if (!first_keys_rise(&attention, args)) return false;
    const size_t real_bytes = is_f64(q) ? sizeof(double) : sizeof(float);
    const size_t delta_bytes = (size_t)(attention.B * attention.H * attention.T) * real_bytes;
    const int64_t row = attention.H * attention.D, dense[4] = {attention.T * row, row, attention.D, 1};
    attention.delta = args->workspace;
    attention.dq_sums = d[0];
    if (q->dtype != TL_F32 && q->dtype != TL_F64) {
        attention.dq_sums.data = (char *)args->workspace + (delta_bytes + 63) / 64 * 64;
        attention.dq_sums.stride = dense;
    }
    backward(&attention, args->n_threads > 1 ? args->n_threads : 1);
    return !attr->gives_sums || packed_sums(args);
}
