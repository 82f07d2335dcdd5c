/* self_attention.c: the attention of a block: heads, rotary positions, windows, sinks, and what a query sees.
 *
 * Several processes. tp divides heads. cp: a row of T tokens is 2 c chunks, and rank i has chunks i and 2 c - 1 - i,
 * which together see as many keys as those of any other rank. Keys and values are gathered; each of the two chunks is a
 * call of causal attention on the keys up to its own end.
 *
 * B batch, T time, C channels, H heads, Hkv heads of keys and values, D head size. */
#include "nn/self_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/function.h"
#include "base/error.h"
#include "engine/scope.h"
#include "nn/architecture.h"
#include "nn/kv_cache.h"
#include "nn/latent_attention.h"
#include "nn/layers.h"
#include "nn/mlp.h"
#include "nn/model.h"
#include "nn/module.h"
#include "tensor/tensor.h"
#include "ops/ops.h"

/* ---- Rows of several processes ---- */

/* x (B,T,...) of whole rows: the tokens of this rank of cp, its two chunks. */
tl_tensor *attention_chunks(const tl_comm *cp, tl_tensor *x) {
    int64_t c = tl_comm_size(cp), i = tl_comm_rank(cp), each = x ? tl_size(x, 1) / (2 * c) : 0;
    tl_tensor *both[2] = {tl_slice(x, 1, i * each, (i + 1) * each, 1), NULL};
    both[1] = tl_slice(x, 1, (2 * c - 1 - i) * each, (2 * c - i) * each, 1);
    return both[0] && both[1] ? tl_concat(both, 2, 1) : NULL;
}

/* (c,B,2,t,...) of the ranks in their order <-> (B,2c,t,...) in the order of the row: the first chunks of the ranks,
 * and the second ones backwards. */
static tl_tensor *chunks_join(tl_tensor *x) {
    static const int ranks = 1;
    tl_tensor *both[2] = {tl_transpose(tl_select(x, 2, 0), 0, 1), NULL};
    both[1] = tl_transpose(tl_select(x, 2, 1), 0, 1);
    both[1] = both[1] ? tl_flip(both[1], &ranks, 1) : NULL;
    return both[0] && both[1] ? tl_concat(both, 2, 1) : NULL;
}
static tl_tensor *chunks_deal(tl_tensor *x, int64_t c) {
    static const int ranks = 1;
    tl_tensor *both[2] = {tl_slice(x, 1, 0, c, 1), NULL};
    both[1] = tl_slice(x, 1, c, 2 * c, 1);
    both[1] = both[1] ? tl_flip(both[1], &ranks, 1) : NULL;
    tl_tensor *dealt = both[0] && both[1] ? tl_stack(both, 2, 2) : NULL; /* (B,c,2,t,...) */
    return dealt ? tl_contiguous(tl_transpose(dealt, 0, 1)) : NULL;
}

/* keys (B,T,H,D), the gradient of all: that of this rank's own, summed over the ranks' uses of them. */
static void keys_return(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (!dy) return;
    int64_t c = tl_comm_size(context), B = tl_size(dy, 0), T = tl_size(dy, 1), H = tl_size(dy, 2), D = tl_size(dy, 3);
    dy = tl_view(tl_contiguous(dy), TL_SHAPE(B, 2 * c, T / (2 * c), H * D));
    tl_tensor *dealt = dy ? tl_view(chunks_deal(dy, c), TL_SHAPE(c * B, T / c, H, D)) : NULL;
    if (dealt) tl_gradient_set(g, 0, tl_reduce_scatter(dealt, context));
}

/* Keys or values x (B,T/c,H,D) of this rank's tokens -> those of the whole rows (B,T,H,D). */
static tl_tensor *keys_gather(tl_comm *cp, tl_tensor *x) {
    if (!x) return NULL;
    int64_t c = tl_comm_size(cp), B = tl_size(x, 0), t = tl_size(x, 1), H = tl_size(x, 2), D = tl_size(x, 3);
    bool grad = tl_set_grad_mode(false);
    tl_tensor *all = tl_all_gather(x, cp);
    all = all ? chunks_join(tl_view(all, TL_SHAPE(c, B, 2, t / 2, H * D))) : NULL;
    all = all ? tl_view(all, TL_SHAPE(B, c * t, H, D)) : NULL;
    tl_set_grad_mode(grad);
    return all && tl_function(keys_return, cp, NULL, &x, 1, &all, 1) ? all : NULL;
}

/* ---- Attention ---- */

struct attention {
    const struct architecture *family;
    int64_t n_heads, n_kv_heads, head_size; /* of this process */
    double rope_base, dropout, scale;       /* of scores; 0: by the size of heads */
    double soft_cap;                        /* of scores; 0: none */
    bool has_positions;                     /* rotary ones */
    tl_rope_scaling rope_scaling;
    tl_module *q, *k, *v, *out; /* with a packing, q is of all three */
    tl_module *q_norm, *k_norm, *out_dropout;
    bool has_latents; /* of keys and values, in place of q, k and v */
    struct latent latent;
    bool has_sinks; /* the module's own parameter */
    bool has_alibi, is_falcon, has_head_norm;
    int64_t first_head, n_all_heads;  /* of this process; of the model */
    int64_t chunk, temperature_floor; /* 0: none */
    double temperature_scale, norm_eps;
    const struct model *model; /* whose cache is used, as layer `layer` of it */
    int64_t layer, window;
};

/* For T tokens of each row. */
static tl_rope_scaling scaling_of(const struct attention *a, int64_t T) {
    const struct model *s = a->model;
    tl_rope_scaling scaling = a->rope_scaling;
    if (scaling.rule == TL_ROPE_LIST) { /* by the longest row that this pass, or its cache, can hold */
        const int64_t longest = s->cache ? s->cache->capacity : T * tl_comm_size(s->parallel.cp);
        const bool is_long = longest > scaling.original_context;
        memcpy(scaling.slower, is_long ? s->config.long_slower : s->config.short_slower, sizeof scaling.slower);
    }
    return scaling;
}

static tl_tensor *rotate(const struct attention *a, tl_tensor *x, int64_t first) {
    if (a->family->turns_neighbours) x = neighbours_apart(x);
    if (!x) return NULL;
    tl_tensor *position = a->model->token_position;
    const tl_rope_scaling scaling = scaling_of(a, tl_size(x, 1));
    return position ? tl_rope_at(x, a->rope_base, position, &scaling) : tl_rope(x, a->rope_base, first, &scaling);
}

/* x (B,T,H,D) over the root of its mean square in each head. */
static tl_tensor *head_norm(const struct attention *a, tl_tensor *x) {
    return x ? tl_rms_norm(x, NULL, a->norm_eps) : NULL;
}

/* q log(1 + floor((position + 1) / floor)) scale + q: of layers without positions, where a row is long enough. */
static tl_tensor *with_temperature(const struct attention *a, tl_tensor *q, int64_t first) {
    const int64_t T = tl_size(q, 1), longest = first + T * tl_comm_size(a->model->parallel.cp);
    if (!a->temperature_floor || longest < a->temperature_floor) return q;
    const tl_dtype dtype = tl_dtype_of(q) == TL_F64 ? TL_F64 : TL_F32;
    tl_tensor *place = a->model->token_position; /* (B,T), or (T) */
    if (!place) place = tl_arange((double)first, 1, T, TL_I64, tl_device_of(q));
    place = place ? tl_add_scalar(tl_cast(place, dtype), tl_scalar_float(1)) : NULL;
    tl_tensor *steps = place ? tl_floor(tl_div_scalar(place, tl_scalar_float((double)a->temperature_floor))) : NULL;
    tl_tensor *grow = steps ? tl_scale(tl_log1p(steps), a->temperature_scale) : NULL;
    grow = grow ? tl_cast(tl_add_scalar(grow, tl_scalar_float(1)), tl_dtype_of(q)) : NULL;
    return grow ? tl_mul(q, tl_unsqueeze(tl_unsqueeze(grow, -1), -1)) : NULL;
}

/* q and k turned by their positions, the model's or from `first` on; families with learned ones, and some layers of
 * others, have none here. */
static bool turn(const struct attention *a, int64_t first, tl_tensor **q, tl_tensor **k) {
    if (!a->has_positions) return (*q = with_temperature(a, *q, first)) != NULL;
    *q = rotate(a, *q, first);
    *k = rotate(a, *k, first);
    if (a->has_head_norm) *q = head_norm(a, *q), *k = head_norm(a, *k);
    return *q && *k;
}

/* A sink is one more key, with a logit for each head and without a value: of the sum of exponentials, exp(lse), it
 * takes a part, so that results become smaller. o (B,T,H,D) exp(lse) / (exp(lse) + exp(sink)), lse (B,H,T). */
static tl_tensor *with_sinks(const tl_module *m, tl_tensor *o, tl_tensor *lse) {
    if (!o || !lse) return NULL;
    tl_tensor *sinks = tl_cast(tl_module_tensor(m, 0), tl_dtype_of(lse)), *over = tl_transpose(lse, 1, 2); /* (B,T,H) */
    over = sinks && over ? tl_sub(over, sinks) : NULL;
    tl_tensor *share = over ? tl_cast(tl_sigmoid(over), tl_dtype_of(o)) : NULL;
    return share ? tl_mul(o, tl_unsqueeze(share, -1)) : NULL;
}

/* ---- What a query sees ---- */

/* ALiBi: to the score of head h and the key at place s, slope_h s is added, which is slope_h (s - t) but for a constant
 * of the row. Slopes of n heads, n a power of two: 2^(-8 i / n), i = 1 .. n; of others
 * those of the next smaller power m, and of the rest 2^(-4 i / m), i = 1, 3, ... Falcons divide them by sqrt(D), as
 * the scores, and round slopes and products to bf16. -> (B,H,1,S) or (H,1,S) */
static tl_tensor *alibi_of(const struct attention *a, int64_t S, tl_tensor *like) {
    const tl_dtype wide = tl_dtype_of(like) == TL_F64 ? TL_F64 : TL_F32;
    tl_device *device = tl_device_of(like);
    const int64_t n = a->n_all_heads;
    int64_t m = 1;
    while (2 * m <= n) m *= 2;
    tl_tensor *part[2] = {tl_arange(8.0 / (double)m, 8.0 / (double)m, m, wide, device), NULL}, *exponents = part[0];
    if (n > m) {
        part[1] = tl_arange(4.0 / (double)m, 8.0 / (double)m, n - m, wide, device);
        exponents = part[0] && part[1] ? tl_concat(part, 2, 0) : NULL;
    }
    if (exponents) exponents = tl_slice(exponents, 0, a->first_head, a->first_head + a->n_heads, 1);
    tl_tensor *slopes = exponents ? tl_exp2(tl_neg(exponents)) : NULL, *place = a->model->token_position;
    if (a->is_falcon) slopes = slopes ? tl_cast(tl_cast(slopes, TL_BF16), wide) : NULL;
    if (!place) place = tl_arange(0, 1, S, wide, device);                            /* (S) or (B,S) */
    place = place ? tl_unsqueeze(tl_unsqueeze(tl_cast(place, wide), -2), -2) : NULL; /* (1,1,S) or (B,1,1,S) */
    slopes = slopes ? tl_view(slopes, TL_SHAPE(a->n_heads, 1, 1)) : NULL;
    tl_tensor *bias = slopes && place ? tl_mul(slopes, place) : NULL;
    if (!a->is_falcon) return bias;
    bias = bias ? tl_cast(bias, TL_BF16) : NULL;
    return bias ? tl_scale(tl_cast(bias, wide), 1 / sqrt((double)a->head_size)) : NULL;
}

/* The first key of each query's chunk, in its document: begin + place - place mod chunk. NULL without an error: all of
 * the row is one chunk. `first`: where the queries stand. */
static bool chunk_begins(const struct attention *a, tl_tensor *q, int64_t first, tl_tensor **begin) {
    const int64_t T = tl_size(q, 1), longest = first + T * tl_comm_size(a->model->parallel.cp);
    tl_tensor *place = a->model->token_position, *document = *begin;
    if (!a->chunk || !a->has_positions || longest <= a->chunk) return true;
    if (!place) place = tl_arange((double)first, 1, T, TL_I64, tl_device_of(q));
    tl_tensor *inside = place ? tl_remainder_scalar(place, tl_scalar_int(a->chunk)) : NULL;
    *begin = inside ? tl_sub(place, inside) : NULL;
    if (*begin && document) *begin = tl_add(tl_cast(*begin, tl_dtype_of(document)), document);
    return *begin != NULL;
}

/* One span of a pass over the cache: inference, which has no dropout. */
static tl_tensor *attend_span(const tl_module *m, struct cache_span span, tl_tensor *q, tl_tensor *k, tl_tensor *v) {
    const struct attention *a = m->state;
    const tl_cache *cache = a->model->cache;
    tl_tensor *lse = NULL;
    q = cache_rows_of(cache, span, q);
    k = cache_rows_of(cache, span, k);
    v = cache_rows_of(cache, span, v);
    /* what nothing but rope does to q and k can be done where k is stored */
    const bool turns_later = cache->mask && a->has_positions && !a->family->turns_neighbours && !a->has_head_norm;
    const struct cache_turn later = {a->rope_base, scaling_of(a, q ? tl_size(q, 1) : 0)};
    if (!turns_later && !turn(a, span.length, &q, &k)) return NULL;
    tl_attention_options options = {.scale = a->scale, .window = a->window, .soft_cap = a->soft_cap};
    if (!q || !chunk_begins(a, q, span.length, &options.first_key)) return NULL;
    if (a->has_alibi && !(options.mask = alibi_of(a, span.length + tl_size(q, 1), q))) return NULL;
    tl_tensor *o =
        cache_attend(cache, a->layer, span, q, k, v, turns_later ? &later : NULL, options, a->has_sinks ? &lse : NULL);
    return a->has_sinks ? with_sinks(m, o, lse) : o;
}

static tl_tensor *attend_cached(const tl_module *m, tl_tensor *q, tl_tensor *k, tl_tensor *v) {
    const tl_cache *cache = ((const struct attention *)m->state)->model->cache;
    tl_tensor *parts[MOST_SPANS];
    int64_t n = cache_n_spans(cache);
    for (int64_t i = 0; i < n; i++)
        if (!(parts[i] = attend_span(m, cache_span_at(cache, i), q, k, v))) return NULL;
    return n == 1 ? parts[0] : tl_concat(parts, (int)n, 0);
}

/* q (B,T,H,D) of this rank's two chunks, on k, v (B,cT,Hkv,D) of the whole rows. */
static tl_tensor *attend_chunks(const tl_module *m, tl_tensor *q, tl_tensor *k, tl_tensor *v,
                                tl_attention_options options) {
    const struct attention *a = m->state;
    const tl_comm *cp = a->model->parallel.cp;
    int64_t c = tl_comm_size(cp), i = tl_comm_rank(cp), each = tl_size(q, 1) / 2;
    tl_tensor *part[2], *begin = options.first_key, *lse = NULL;
    for (int half = 0; half < 2; half++) {
        int64_t last = (half ? 2 * c - i : i + 1) * each, from = half * each;
        tl_tensor *q_part = tl_slice(q, 1, from, from + each, 1), *k_part = tl_slice(k, 1, 0, last, 1);
        tl_tensor *v_part = tl_slice(v, 1, 0, last, 1);
        options.first_key = begin ? tl_slice(begin, 1, from, from + each, 1) : NULL;
        part[half] = tl_attention(q_part, k_part, v_part, &options, a->has_sinks ? &lse : NULL);
        if (a->has_sinks) part[half] = with_sinks(m, part[half], lse);
        if (!part[half]) return NULL;
    }
    return tl_concat(part, 2, 1);
}

/* Causal attention of q (B,T,H,D) on k, v (B,T,Hkv,D), and on cached ones before them. */
static tl_tensor *attend(const tl_module *m, tl_tensor *q, tl_tensor *k, tl_tensor *v) {
    const struct attention *a = m->state;
    const struct parallel *p = &a->model->parallel;
    tl_tensor *lse = NULL;
    if (a->model->cache) return attend_cached(m, q, k, v);
    tl_attention_options options = {.causal = true,
                                    .scale = a->scale,
                                    .window = a->window,
                                    .soft_cap = a->soft_cap,
                                    .dropout = tl_module_is_training(m) ? a->dropout : 0,
                                    .first_key = a->model->document_begin};
    if (!a->has_latents && !turn(a, 0, &q, &k)) return NULL;
    if (!chunk_begins(a, q, 0, &options.first_key)) return NULL;
    if (a->has_alibi && !(options.mask = alibi_of(a, tl_size(k, 1), q))) return NULL;
    if (p->cp && !((k = keys_gather(p->cp, k)) && (v = keys_gather(p->cp, v)))) return NULL;
    tl_generator before = parallel_draw_begin(options.dropout > 0 ? p->tp : NULL, TP_STREAM);
    tl_tensor *o =
        p->cp ? attend_chunks(m, q, k, v, options) : tl_attention(q, k, v, &options, a->has_sinks ? &lse : NULL);
    parallel_draw_end(before);
    return a->has_sinks && !p->cp ? with_sinks(m, o, lse) : o;
}

/* Rows and tokens of a pass whose x is (B,T,C), or (B T,C) where sp divides rows elsewhere. */
static int64_t pass_size(const struct attention *a, const tl_tensor *x, int axis) {
    return tl_size(a->model->parallel.has_sp ? a->model->token_position : x, axis);
}

/* The three (B,T,H,D) as one (B,T,3,H,D) without a copy, if they lie side by side in memory (as the gradients of
 * attention do); otherwise NULL. */
static tl_tensor *joined_already(tl_tensor **part) {
    const tl_tensor *x = part[0];
    const int64_t width = x->shape[2] * x->shape[3], stride[4] = {x->shape[1] * 3 * width, 3 * width, x->shape[3], 1};
    for (int j = 0; j < 3; j++)
        if (part[j]->requires_grad || part[j]->storage != x->storage || part[j]->offset != x->offset + j * width ||
            memcmp(part[j]->stride, stride, sizeof stride) != 0)
            return NULL;
    return tl_as_strided(part[0], TL_SHAPE(x->shape[0], x->shape[1], 3, x->shape[2], x->shape[3]),
                         (const int64_t[]){stride[0], stride[1], width, stride[2], 1}, x->offset);
}

/* The gradients of q, k and v, side by side again: no copy, or one, where three separate gradients would each be added
 * to zeros of the whole. */
static void join_parts(tl_gradient *g, void *context) {
    (void)context;
    tl_tensor *part[3], *any = NULL;
    for (int j = 0; j < 3; j++) {
        part[j] = tl_gradient_of_output(g, j);
        if (part[j]) any = part[j];
    }
    for (int j = 0; j < 3; j++)
        if (!part[j] && any) part[j] = tl_zeros_like(any);
    if (!any || !part[0] || !part[1] || !part[2]) return;
    tl_tensor *joined = joined_already(part);
    tl_gradient_set(g, 0, joined ? joined : tl_stack(part, 3, 2));
}

/* q, k, v (B,T,H,D): views of qkv (B,T,3,H,D). */
static bool split_parts(tl_tensor *qkv, tl_tensor **part) {
    bool grad = tl_set_grad_mode(false);
    for (int j = 0; j < 3; j++) part[j] = tl_select(qkv, 2, j);
    tl_set_grad_mode(grad);
    return part[0] && part[1] && part[2] && function_passing(join_parts, NULL, qkv, part, 3);
}

/* Groups of heads in a packed product, and how many of q, k and v are in each. */
static int64_t groups_of(const struct attention *a, int64_t width[3]) {
    int64_t n = a->family->packing == PACKED_PARTS ? 1 : a->n_kv_heads;
    width[0] = a->n_heads / n;
    width[1] = width[2] = a->n_kv_heads / n;
    return n;
}

/* The gradients of q, k and v (B,T,heads,D), in the groups they were read from: (B,T,groups,heads,D). */
static void join_groups(tl_gradient *g, void *context) {
    const struct attention *a = context;
    int64_t width[3], n = groups_of(a, width), B = 0, T = 0;
    tl_tensor *part[3], *any = NULL;
    for (int j = 0; j < 3; j++)
        if ((part[j] = tl_gradient_of_output(g, j))) any = part[j];
    if (!any) return;
    B = tl_size(any, 0), T = tl_size(any, 1);
    for (int j = 0; j < 3; j++) {
        const int64_t shape[5] = {B, T, n, width[j], a->head_size};
        part[j] = part[j] ? tl_reshape(part[j], 5, shape) : tl_zeros(5, shape, tl_dtype_of(any), tl_device_of(any));
        if (!part[j]) return;
    }
    tl_gradient_set(g, 0, tl_concat(part, 3, 3));
}

/* q, k, v (B,T,heads,D) of a packed product (B,T,width): views, or copies where heads do not lie at even distances. */
static bool split_groups(const struct attention *a, tl_tensor *packed, int64_t B, int64_t T, tl_tensor **part) {
    int64_t width[3], n = groups_of(a, width), D = a->head_size, at = 0;
    tl_tensor *all = tl_view(packed, TL_SHAPE(B, T, n, width[0] + width[1] + width[2], D));
    bool grad = tl_set_grad_mode(false), ok = all != NULL;
    for (int j = 0; ok && j < 3; at += width[j++]) {
        part[j] = tl_reshape(tl_slice(all, 3, at, at + width[j], 1), TL_SHAPE(B, T, n * width[j], D));
        ok = part[j] != NULL;
    }
    tl_set_grad_mode(grad);
    return ok && tl_function(join_groups, (void *)(uintptr_t)a, NULL, &all, 1, part, 3);
}

/* all (B,T,C) -> q, k, v (B,T,H,D), read from one packed product by strides. */
static bool read_packed(const struct attention *a, tl_tensor *x, tl_tensor *all, int64_t B, int64_t T,
                        tl_tensor **part) {
    tl_tensor *packed = tl_module_forward(a->q, all);
    if (!parallel_drop_entered(&a->model->parallel, x, all, &packed, 1)) return false;
    if (a->family->packing == PACKED_PARTS && a->n_heads == a->n_kv_heads)
        return split_parts(tl_view(packed, TL_SHAPE(B, T, 3, a->n_heads, a->head_size)), part);
    return split_groups(a, packed, B, T, part);
}

/* x (B,T,C) or (B T,C) -> (B,T,heads,D), normed if it has a norm, of each head or of all. */
static tl_tensor *heads_of(const struct attention *a, tl_module *projection, tl_module *norm, tl_tensor *x,
                           const int64_t shape[4]) {
    tl_tensor *y = tl_module_forward(projection, x);
    if (norm && a->family->qk_norm == QK_NORM_WHOLE) y = tl_module_forward(norm, y);
    y = tl_view(y, 4, shape);
    return norm && a->family->qk_norm == QK_NORM_HEAD ? tl_module_forward(norm, y) : y;
}

/* q, k and v of x (B,T,C) or (B T,C) in one product, where that is faster, as for a few tokens: *is_done, and views of
 * its result. False: an error. */
static bool read_joined(const struct attention *a, tl_tensor *x, int64_t B, int64_t T, tl_tensor **part,
                        bool *is_done) {
    tl_module *const projection[3] = {a->q, a->k, a->v};
    tl_tensor *weight[3], *bias[3];
    *is_done = false;
    if (a->q_norm || a->k_norm || a->model->parallel.tp) return true;
    for (int j = 0; j < 3; j++)
        if (!linear_is_plain(projection[j], &weight[j], &bias[j]) || bias[j]) return true;
    if (!matmul_parts_fit(x, weight, 3)) return true;
    *is_done = true;
    tl_tensor *y = matmul_parts(x, weight, 3);
    for (int64_t j = 0, at = 0, heads; y && j < 3; at += heads * a->head_size, j++) {
        heads = j ? a->n_kv_heads : a->n_heads;
        tl_tensor *own = tl_slice(y, -1, at, at + heads * a->head_size, 1);
        part[j] = own ? tl_view(own, TL_SHAPE(B, T, heads, a->head_size)) : NULL;
        if (!part[j]) return false;
    }
    return y != NULL;
}

static bool read_separate(const struct attention *a, tl_tensor *x, tl_tensor *all, int64_t B, int64_t T,
                          tl_tensor **part) {
    const int64_t queries[4] = {B, T, a->n_heads, a->head_size}, keys[4] = {B, T, a->n_kv_heads, a->head_size};
    bool is_done;
    if (!read_joined(a, all, B, T, part, &is_done)) return false;
    if (is_done) return true;
    part[0] = heads_of(a, a->q, a->q_norm, all, queries);
    part[1] = heads_of(a, a->k, a->k_norm, all, keys);
    part[2] = heads_of(a, a->v, NULL, all, keys);
    return parallel_drop_entered(&a->model->parallel, x, all, part, 3);
}

/* From the latents; with a cache, attention too. */
static bool read_latent(const struct attention *a, tl_tensor *x, tl_tensor *all, int64_t B, int64_t T,
                        tl_tensor **part) {
    return latent_read(&a->latent, all, B, T, a->model->token_position, part) &&
           parallel_drop_entered(&a->model->parallel, x, all, part, 3);
}

/* x (B,T,C) -> what the heads give (B,T,H D) */
static tl_tensor *heads_forward(tl_module *m, tl_tensor *x) {
    const struct attention *a = m->state;
    int64_t B = pass_size(a, x, 0), T = pass_size(a, x, 1),
            width = a->has_latents ? a->latent.value_head : a->head_size;
    tl_tensor *all = parallel_enter(&a->model->parallel, x), *part[3], *o; /* q, k, v */
    if (!all) return NULL;
    if (a->has_latents && a->model->cache) {
        o = latent_attend(&a->latent, a->model->cache, a->layer, all, B, T, a->scale);
    } else {
        if (!(a->has_latents ? read_latent : a->family->packing ? read_packed : read_separate)(a, x, all, B, T, part))
            return NULL;
        o = attend(m, part[0], part[1], part[2]);
        if (o && width < a->head_size) o = tl_slice(o, -1, 0, width, 1); /* values were filled up */
    }
    return o ? tl_reshape(o, TL_SHAPE(B, T, a->n_heads * width)) : NULL;
}

/* x (B,T,C) -> (B,T,C) */
tl_tensor *attention_undropped(tl_module *m, tl_tensor *x, double *dropout) {
    const struct attention *a = m->state;
    *dropout = a->out_dropout ? dropout_of(a->out_dropout) : dropout_now(m, a->dropout);
    tl_tensor *o = heads_forward(m, x);
    return o ? tl_module_forward(a->out, o) : NULL;
}

static tl_tensor *attention_forward(tl_module *m, tl_tensor *x) {
    const struct attention *a = m->state;
    const struct parallel *p = &a->model->parallel;
    double dropout;
    tl_tensor *o = attention_undropped(m, x, &dropout);
    if (!o) return NULL;
    return a->out_dropout ? drop_outside(p, a->out_dropout, o) : drop_outside_in(p, m, a->dropout, o);
}

static const tl_module_kind attention_kind = {"Attention", attention_forward, NULL, sizeof(struct attention)};

static bool qkv_add(tl_module *m, const tl_model_config *c, const struct make *make) {
    struct attention *a = m->state;
    const struct architecture_names *names = a->family->names;
    bool bias = a->family->has_biases || c->has_qkv_bias;
    int64_t C = c->channels, q = c->n_heads * c->head_size, kv = c->n_kv_heads * c->head_size;
    if (a->family->has_latents) return latent_add(m, &a->latent, c, make);
    enum division division = a->family->packing == PACKED_PARTS ? OUT_QKV : OUT;
    if (a->family->packing) return module_child(m, &a->q, names->q, linear_make(make, C, q + 2 * kv, bias, division));
    return module_child(m, &a->q, names->q, linear_make(make, C, q, bias, OUT)) &&
           module_child(m, &a->k, names->k, linear_make(make, C, kv, bias, OUT_KV)) &&
           module_child(m, &a->v, names->v, linear_make(make, C, kv, bias, OUT_KV));
}

/* The norms of queries and keys are inside the region that tp divides. */
static bool qk_norms_add(tl_module *m, const tl_model_config *c, const struct make *make) {
    struct attention *a = m->state;
    bool is_whole = a->family->qk_norm == QK_NORM_WHOLE;
    if (a->family->qk_norm == QK_PLAIN) return true;
    int64_t q = is_whole ? c->n_heads * c->head_size : c->head_size;
    int64_t k = is_whole ? c->n_kv_heads * c->head_size : c->head_size;
    if (!module_child(m, &a->q_norm, "q_norm", rms_norm_make(make, q, c->norm_eps)) ||
        !module_child(m, &a->k_norm, "k_norm", rms_norm_make(make, k, c->norm_eps)))
        return false;
    return norm_set(a->q_norm, true, a->family->is_norm_less_one) &&
           norm_set(a->k_norm, true, a->family->is_norm_less_one);
}

static bool sinks_add(tl_module *m, const tl_model_config *c, const struct make *make) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *sinks = tl_normal(TL_SHAPE(c->n_heads), 0, make->std, make->dtype, make->device);
    bool ok = part_add_parameter(m, make->parallel, "sinks", sinks, 0, 1);
    return tl_scope_end(scope) && ok;
}

tl_module *attention_new(const tl_model_config *c, const struct make *make, const struct make *residual,
                         int64_t layer) {
    tl_module *m = tl_module_new(&attention_kind);
    if (!m) return NULL;
    struct attention *a = m->state;
    int64_t n = tl_comm_size(make->parallel->tp);
    *a = (struct attention){.family = architecture_of(c),
                            .n_heads = c->n_heads / n,
                            .n_kv_heads = c->n_kv_heads > n ? c->n_kv_heads / n : 1,
                            .head_size = c->head_size,
                            .rope_base = c->rope_base,
                            .dropout = c->dropout,
                            .rope_scaling = c->rope_scaling,
                            .soft_cap = c->attention_soft_cap,
                            .has_positions = architecture_has_positions(c, layer),
                            .has_alibi = c->positions == TL_POSITIONS_ALIBI,
                            .is_falcon = c->family == TL_FALCON,
                            .has_latents = architecture_of(c)->has_latents,
                            .has_head_norm = c->has_head_norm,
                            .first_head = c->n_heads / n * tl_comm_rank(make->parallel->tp),
                            .n_all_heads = c->n_heads,
                            .chunk = c->chunk,
                            .temperature_floor = c->temperature_floor,
                            .temperature_scale = c->temperature_scale,
                            .norm_eps = c->norm_eps,
                            .has_sinks = architecture_of(c)->has_sinks,
                            .layer = layer,
                            .window = architecture_has_window(c, layer) ? c->window : 0};
    if (a->window && c->window_rope_base > 0) { /* a window is short: its positions are not stretched */
        a->rope_base = c->window_rope_base;
        a->rope_scaling = (tl_rope_scaling){.size = c->rope_scaling.size};
    }
    if (c->query_scale > 0) a->scale = 1 / sqrt(c->query_scale);
    if (a->family->has_latents) a->scale = latent_scale(c);
    const struct architecture_names *names = a->family->names;
    bool bias = a->family->has_biases || c->has_out_bias;
    int64_t width = c->n_heads * (c->value_head ? c->value_head : c->head_size);
    bool ok = qkv_add(m, c, make) &&
              module_child(m, &a->out, names->out, linear_make(residual, width, c->channels, bias, IN));
    ok = ok && qk_norms_add(m, c, make) && (!a->has_sinks || sinks_add(m, c, make));
    if (ok && names->dropout[1]) ok = module_child(m, &a->out_dropout, names->dropout[1], tl_nn_dropout(c->dropout));
    return module_finish(m, ok);
}

void attention_join(tl_module *attention, const struct model *model) {
    ((struct attention *)attention->state)->model = model;
}
