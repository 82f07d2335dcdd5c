/* attention_rule.h: which calls of attention cuDNN and our kernels for Hopper and for a few queries do on a GPU, and
 * the workspace that they get there.
 *
 * The workspace rule (attention.c) and the kernel that cuts the workspace up (device/cuda/ops/attention.c) both read
 * this, so that `meta` prices what runs. Only sizes and attributes decide. A call that cuDNN cannot take because of
 * its strides or addresses gets the same workspace, and our own kernels run in it.
 *
 * cuDNN's backward works on tiles of ATTENTION_TILE keys. Where the last tile is not full, it is told the lengths
 * (one i32 per batch entry for queries, and one for keys) and masks the rest of the tile: no tensor is copied. Its
 * scratch covers whole tiles all the same, so the rule rounds lengths up to whole tiles, and T queries run in the
 * same slices as the next multiple of a tile.
 */
#ifndef DEVICE_CUDA_ATTENTION_RULE_H
#define DEVICE_CUDA_ATTENTION_RULE_H

#include "base/size.h"
#include "spec/attr.h"

enum {
    ATTENTION_TILE = 128,
    ATTENTION_PART_BYTES = 256, /* parts of the workspace begin at multiples of this */
    ATTENTION_PLAN_BYTES = 256  /* what a cuDNN plan asks for itself, measured on Hopper; see docs/devices.md */
};
/* The deterministic backward may store this many bytes of scores for one key head and its queries; beyond that,
 * Tally's own kernels run. */
#define ATTENTION_SCORES_MOST ((uint64_t)1 << 30)

struct attention_sizes {
    int64_t B, T, S, H, H_kv, D;
};

/* cuDNN's attention needs compute capability 8.0; heads of more than 128 are for Hopper's engines alone. */
static inline int64_t attention_largest_head(int capability) {
    return capability < 80 ? 0 : capability / 10 == 9 ? 256 : 128;
}

/* Our cuDNN graphs have no mask, no window, no first keys, no soft cap and no gradient of lse, and causal ones need
 * as many queries as keys. cuDNN's dropout draws another mask than the cpu. */
static inline bool attention_fits_cudnn(const struct attention_sizes *s, bool is_16_bit, const struct attr_attention *a,
                                        int capability) {
    const bool has_window = a->window > 0 && a->window < s->S + s->T;
    const bool has_option = a->has_mask || a->has_first_key || a->has_lse_grad || has_window || a->dropout > 0 ||
                            a->soft_cap > 0 || (a->causal && s->T != s->S);
    const bool fits_lengths = s->T > 1 && s->S > 0 && s->T <= INT32_MAX && s->S <= INT32_MAX;
    const bool fits_heads =
        s->B > 0 && s->H > 0 && s->D > 0 && s->D % 8 == 0 && s->D <= attention_largest_head(capability);
    return is_16_bit && !has_option && fits_lengths && fits_heads;
}

static inline uint64_t attention_whole_tiles(int64_t length) { return round_up((uint64_t)length, ATTENTION_TILE); }

static inline bool attention_tells_lengths(int64_t n_keys) { return n_keys % ATTENTION_TILE != 0; }

/* Two arrays of one i32 per batch entry. */
static inline uint64_t attention_lengths_bytes(int64_t n_keys, int64_t n_batch) {
    return attention_tells_lengths(n_keys) ? 2 * round_up((uint64_t)n_batch * sizeof(int32_t), ATTENTION_PART_BYTES)
                                           : 0;
}

/* Bytes that the deterministic backward stores for n_heads query heads: the gradients of their scores, in 16 bits.
 * UINT64_MAX on overflow. */
static inline uint64_t attention_score_bytes(const struct attention_sizes *s, int64_t n_heads) {
    const uint64_t head = 2 * attention_whole_tiles(s->T) * attention_whole_tiles(s->S);
    uint64_t bytes;
    return s->T > INT32_MAX / 2 || s->S > INT32_MAX / 2 || __builtin_mul_overflow(head, (uint64_t)n_heads, &bytes)
               ? UINT64_MAX
               : bytes;
}

/* Bytes that both backward passes store for grouped heads: dk and dv of n_heads query heads, in 16 bits, before they
 * are summed. */
static inline uint64_t attention_group_bytes(const struct attention_sizes *s, int64_t n_heads) {
    return s->H == s->H_kv ? 0 : 2 * 2 * (uint64_t)(n_heads * s->D) * attention_whole_tiles(s->S);
}

/* An upper bound on the workspace of a deterministic backward plan for n_heads query heads. cuDNN 9.14 on Hopper needs
 *     256 + 2 n_heads round_up(T, 64) round_up(S, 128), and with grouped heads 4 n_heads S D more. */
static inline uint64_t attention_slice_bytes(const struct attention_sizes *s, int64_t n_heads) {
    uint64_t bytes;
    return __builtin_add_overflow(attention_score_bytes(s, n_heads),
                                  attention_group_bytes(s, n_heads) + ATTENTION_PLAN_BYTES, &bytes)
               ? UINT64_MAX
               : bytes;
}

/* ---- A few queries (ops/attention_few.cu) ---- */

/* Blocks walk parts of the keys, FEW_KEYS at a time, with FEW_ROWS rows: queries of the heads that share a key head.
 * About FEW_BLOCKS blocks in all: eight for each SM of an H100 or H200. A part of one query has FEW_ONE_KEYS or
 * more. */
enum { FEW_QUERIES = 8, FEW_ROWS = 16, FEW_KEYS = 64, FEW_BLOCKS = 1056, FEW_PARTS = 64, FEW_ONE_KEYS = 256 };

/* Fewer keys than this are for a warp without tensor cores. */
enum { ATTENTION_SMALL = 16 };

static inline bool attention_fits_few(const struct attention_sizes *s, bool is_16_bit, int capability) {
    const bool fits_lengths = s->T > 0 && s->T <= FEW_QUERIES && s->S > ATTENTION_SMALL && s->S <= 1 << 24;
    const bool fits_heads = s->B > 0 && s->H > 0 && s->D > 0 && s->D <= 256 && s->H / s->H_kv <= 1 << 16;
    return capability >= 80 && is_16_bit && fits_lengths && fits_heads && s->B * s->H <= 1 << 20;
}

/* Part i has keys first + i keys .. of the S, up to first + (i + 1) keys. Only sizes decide, so that every card adds in
 * the same order. Keys before all windows are in no part. */
struct few_cut {
    int n_parts, n_row_tiles;
    int64_t first, keys;
};
static inline struct few_cut attention_few_cut(const struct attention_sizes *s, const struct attr_attention *a) {
    const int64_t hidden = a->window > 0 && a->window < s->S ? s->S - s->T - a->window + 1 : 0;
    const int64_t first = hidden > 0 ? hidden / FEW_KEYS * FEW_KEYS : 0;
    const int64_t n_row_tiles = (s->H / s->H_kv * s->T + FEW_ROWS - 1) / FEW_ROWS;
    const int64_t n_tiles = (s->S - first + FEW_KEYS - 1) / FEW_KEYS, n = s->B * s->H_kv * n_row_tiles;
    int64_t n_parts = FEW_BLOCKS / n;
    n_parts = n_parts < 1 ? 1 : n_parts > FEW_PARTS ? (int64_t)FEW_PARTS : n_parts;
    int64_t each = (n_tiles + n_parts - 1) / n_parts;
    if (s->T == 1 && each < FEW_ONE_KEYS / FEW_KEYS) each = FEW_ONE_KEYS / FEW_KEYS;
    const struct few_cut cut = {(int)((n_tiles + each - 1) / each), (int)n_row_tiles, first, each * FEW_KEYS};
    return cut;
}

/* Of each part and row: D sums of weighted values, the largest score and the sum of the weights, in f32. */
static inline uint64_t attention_few_bytes(const struct attention_sizes *s, const struct attr_attention *a) {
    const struct few_cut cut = attention_few_cut(s, a);
    const uint64_t n_rows = (uint64_t)(s->B * s->H * s->T);
    return cut.n_parts > 1 ? (uint64_t)cut.n_parts * n_rows * (uint64_t)(s->D + 2) * sizeof(float) : 0;
}

/* ---- Our own backward on Hopper (ops/attention_hopper.cu) ---- */

/* A block per SM walks tiles of HOPPER_KEYS keys and of HOPPER_QUERIES queries, in heads padded to 64 or 128. All of it
 * follows from the shapes, so that every card adds in the same order; H100 and H200 have 132 SMs. */
enum { HOPPER_KEYS = 128, HOPPER_BLOCKS = 132 };
#define HOPPER_HEAD(D) ((D) <= 64 ? 64 : 128)
#define HOPPER_QUERIES(DP) ((DP) == 64 ? 128 : 64)

/* 16 bits, no gradient of a mask, no first keys, no soft cap; heads of up to 128 that are a multiple of 8. Whatever
 * a mask hides, every query must stand beside a key, so in causal calls and with a window there are at least as many
 * keys as queries. Scores begin at mask / scale. */
static inline bool attention_fits_hopper(const struct attention_sizes *s, bool is_16_bit,
                                         const struct attr_attention *a, int capability) {
    const bool has_option = a->has_mask_grad || (a->has_mask && !(a->scale > 0)) || a->has_first_key || a->soft_cap > 0;
    const bool sees_keys = (!a->causal && a->window <= 0) || s->S >= s->T;
    const bool fits_lengths = s->T > 0 && s->S > 0 && s->T <= 1 << 24 && s->S <= 1 << 24 && sees_keys;
    const bool fits_heads = s->B > 0 && s->H > 0 && s->D > 0 && s->D % 8 == 0 && s->D <= 128;
    return capability / 10 == 9 && is_16_bit && !has_option && fits_lengths && fits_heads && s->B * s->H <= 65535;
}

/* Two blocks share a head padded to 128, without a mask or dropout, if it has as many tiles of keys: with an H200,
 * 0.89 of the time of a block for each at S 2,048 and 0.84 at 4,096, but more below 1,024, where they wait for each
 * other more often. Heads of 64 gain 6 % at most. */
enum { HOPPER_PAIR_TILES = 16 };
static inline bool attention_suits_pairs(const struct attention_sizes *s) {
    return HOPPER_HEAD(s->D) == 128 && s->S > (HOPPER_PAIR_TILES - 1) * HOPPER_KEYS;
}

/* Whole heads fill the card round by round, with n_ranks blocks each. Those left over, if they are few, are cut into
 * parts, so that about HOPPER_BLOCKS blocks share them; a part has at least one tile of keys. */
struct hopper_cut {
    int64_t n_whole, n_cut;
    int n_ranks, n_parts;
};
static inline struct hopper_cut attention_hopper_cut(const struct attention_sizes *s, int n_ranks) {
    const int64_t n = s->B * s->H_kv, round = HOPPER_BLOCKS / n_ranks, left = n % round;
    const int64_t n_tiles = (s->S + HOPPER_KEYS - 1) / HOPPER_KEYS;
    struct hopper_cut cut = {n, 0, n_ranks, 1};
    if (left == 0 || left > round / 2 || n_tiles == 1) return cut;
    cut.n_whole = n - left, cut.n_cut = left;
    cut.n_parts = (int)(HOPPER_BLOCKS / left < n_tiles ? HOPPER_BLOCKS / left : n_tiles);
    return cut;
}
/* Whole heads that are under way at once. */
static inline int64_t attention_hopper_open(const struct hopper_cut *cut) {
    const int64_t round = HOPPER_BLOCKS / cut->n_ranks;
    return cut->n_whole < round ? cut->n_whole : round;
}

/* Floats in the slab of a whole head: dq of one query head, and dk and dv of grouped ones. */
static inline int64_t attention_hopper_slab(const struct attention_sizes *s) {
    const int64_t head = HOPPER_HEAD(s->D), n_queries = (int64_t)round_up((uint64_t)s->T, HOPPER_QUERIES(head));
    const int64_t n_keys = (int64_t)round_up((uint64_t)s->S, HOPPER_KEYS);
    return n_queries * head + (s->H > s->H_kv ? 2 * n_keys * head : 0);
}
/* And of a part: dq of every query head of its group. */
static inline int64_t attention_hopper_part_slab(const struct attention_sizes *s) {
    const int64_t head = HOPPER_HEAD(s->D), n_queries = (int64_t)round_up((uint64_t)s->T, HOPPER_QUERIES(head));
    return n_queries * head * (s->H / s->H_kv);
}

/* Before the slabs: delta, one f32 per query and head. */
static inline uint64_t attention_delta_bytes(const struct attention_sizes *s) {
    return round_up((uint64_t)(s->B * s->H * s->T) * sizeof(float), ATTENTION_PART_BYTES);
}
static inline uint64_t attention_slab_bytes(const struct attention_sizes *s, int n_ranks) {
    const struct hopper_cut cut = attention_hopper_cut(s, n_ranks);
    const uint64_t whole = (uint64_t)attention_hopper_open(&cut) * (uint64_t)attention_hopper_slab(s);
    const uint64_t parts = (uint64_t)(cut.n_cut * cut.n_parts) * (uint64_t)attention_hopper_part_slab(s);
    return sizeof(float) * (whole > parts ? whole : parts);
}
/* Room for both ways to share the heads. */
static inline uint64_t attention_hopper_bytes(const struct attention_sizes *s) {
    const uint64_t alone = attention_slab_bytes(s, 1), pairs = attention_slab_bytes(s, 2);
    return attention_delta_bytes(s) + (attention_suits_pairs(s) && pairs > alone ? pairs : alone);
}

/* Behind that, where a bias gets the sums of the packed gradient over all rows: those of every 64 rows, f32. */
enum { HOPPER_SUM_ROWS = 64 };
static inline int64_t attention_sum_tiles(const struct attention_sizes *s) {
    return s->B * ((s->T + HOPPER_SUM_ROWS - 1) / HOPPER_SUM_ROWS);
}
static inline uint64_t attention_sums_bytes(const struct attention_sizes *s) {
    return (uint64_t)(attention_sum_tiles(s) * (s->H + 2 * s->H_kv) * s->D) * sizeof(float);
}

/* Forward there: no soft cap, heads of up to 256 that are a multiple of 8, a positive scale. */
static inline bool attention_fits_hopper_forward(const struct attention_sizes *s, bool is_16_bit,
                                                 const struct attr_attention *a, int capability) {
    const bool fits_kind = is_16_bit && !(a->soft_cap > 0) && a->scale > 0;
    const bool fits_lengths = s->T > 1 && s->S > 0 && s->T <= 1 << 24 && s->S <= 1 << 24;
    const bool fits_heads = s->B * s->H <= 65535 && s->D > 0 && s->D % 8 == 0 && s->D <= 256;
    return capability / 10 == 9 && fits_kind && fits_lengths && fits_heads;
}

/* ---- The backward of heads of 129 to 256 on Hopper (ops/attention_hopper_wide.cu) ---- */

/* Two passes that need delta and nothing else. */
static inline bool attention_fits_wide(const struct attention_sizes *s, bool is_16_bit, const struct attr_attention *a,
                                       int capability) {
    const bool fits_kind = is_16_bit && !(a->soft_cap > 0) && a->scale > 0;
    const bool fits_lengths = s->T > 0 && s->S > 0 && s->T <= 1 << 24 && s->S <= 1 << 24;
    const bool fits_heads = s->B > 0 && s->B * s->H <= 65535 && s->D % 8 == 0 && s->D > 128 && s->D <= 256;
    return capability / 10 == 9 && fits_kind && fits_lengths && fits_heads;
}

/* Where cuDNN can compute it as well, its form that is not deterministic is faster; its deterministic one is not. */
static inline bool attention_goes_wide(const struct attention_sizes *s, bool is_16_bit, const struct attr_attention *a,
                                       int capability) {
    return attention_fits_wide(s, is_16_bit, a, capability) &&
           !(a->is_fast && attention_fits_cudnn(s, is_16_bit, a, capability));
}

/* ---- Heads that are no multiple of 8, on Hopper (ops/attention_pad.cu) ---- */

/* Rows are copied to the workspace, padded to a multiple of 8, and results are copied back. The copies pass over
 * memory some times, at 4 TB/s, and spare tiles at about 60 TFLOP/s: they are worth it from some 100 keys for each
 * query on, and so many queries for each key. */
enum { PADDED_LEAST = 128 };

static inline struct attention_sizes attention_padded(const struct attention_sizes *s) {
    struct attention_sizes padded = *s;
    padded.D = (int64_t)round_up((uint64_t)s->D, 8);
    return padded;
}
static inline bool attention_is_worth_padding(const struct attention_sizes *s, const struct attr_attention *a) {
    const int64_t n_keys = a->causal ? s->S - s->T / 2 : s->S; /* that a query sees, on average */
    const int64_t length = s->T > s->S ? s->T : s->S;
    return s->D % 8 != 0 && s->D < 256 && s->T >= PADDED_LEAST && n_keys >= PADDED_LEAST && length <= 1 << 24 &&
           s->B * s->H <= 65535 && s->B * s->H * length <= INT32_MAX / 32; /* eights of rows are counted in 32 bits */
}
static inline bool attention_pads_forward(const struct attention_sizes *s, bool is_16_bit,
                                          const struct attr_attention *a, int capability) {
    const struct attention_sizes padded = attention_padded(s);
    return attention_is_worth_padding(s, a) && attention_fits_hopper_forward(&padded, is_16_bit, a, capability);
}
static inline bool attention_pads_backward(const struct attention_sizes *s, bool is_16_bit,
                                           const struct attr_attention *a, int capability) {
    const struct attention_sizes padded = attention_padded(s);
    return attention_is_worth_padding(s, a) && (attention_fits_hopper(&padded, is_16_bit, a, capability) ||
                                                attention_fits_wide(&padded, is_16_bit, a, capability));
}

/* A padded tensor of n_rows rows of n_heads heads in every batch entry. */
static inline uint64_t attention_padded_bytes(const struct attention_sizes *padded, int64_t n_rows, int64_t n_heads) {
    return round_up((uint64_t)(padded->B * n_rows * n_heads * padded->D) * 2, ATTENTION_PART_BYTES);
}
/* q and out, k and v. */
static inline uint64_t attention_padded_forward_bytes(const struct attention_sizes *s) {
    const struct attention_sizes p = attention_padded(s);
    return 2 * attention_padded_bytes(&p, p.T, p.H) + 2 * attention_padded_bytes(&p, p.S, p.H_kv);
}
/* What the kernel needs by itself; behind it q, out, g and dq, and k, v, dk and dv. */
static inline uint64_t attention_padded_inner_bytes(const struct attention_sizes *padded) {
    return padded->D > 128 ? attention_delta_bytes(padded) : attention_hopper_bytes(padded);
}
static inline uint64_t attention_padded_backward_bytes(const struct attention_sizes *s) {
    const struct attention_sizes p = attention_padded(s);
    return attention_padded_inner_bytes(&p) + 4 * attention_padded_bytes(&p, p.T, p.H) +
           4 * attention_padded_bytes(&p, p.S, p.H_kv);
}

/* ---- cuDNN's backward ---- */

/* Besides the row sums. The fast form keeps dq in f32 there, of grouped heads also dk and dv. The repeatable form
 * keeps the scores of a slice of the batch there: as much as dq in f32 holds, and at least one key head with its
 * queries. Of grouped heads there is room for dk and dv of as many query heads as have their scores there. */
static inline uint64_t attention_scratch_bytes(const struct attention_sizes *s, bool is_fast) {
    const uint64_t dq = (uint64_t)(s->B * s->H * s->D) * sizeof(float) * attention_whole_tiles(s->T);
    if (is_fast) return dq + attention_group_bytes(s, s->B * s->H);
    const int64_t n_heads = s->B * s->H, group = s->H / s->H_kv;
    const uint64_t least = attention_score_bytes(s, group), one = attention_score_bytes(s, 1);
    const uint64_t room = least > dq && least <= ATTENTION_SCORES_MOST ? least : dq;
    const uint64_t n_fit = room / one < (uint64_t)n_heads ? room / one : (uint64_t)n_heads;
    return n_fit < (uint64_t)group ? room : room + attention_group_bytes(s, (int64_t)n_fit);
}

#endif
