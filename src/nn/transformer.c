/* transformer.c: the families of architectures.c as trees of modules, under Hugging Face's names. Two of them:
 *
 *     GPT-2   x = wte[tokens] + wpe[0..T)              Llama   x = embed_tokens[tokens]
 *             x += attn(ln_1(x));  x += mlp(ln_2(x))           x += self_attn(input_...(x));  x += mlp(post_...(x))
 *             logits = ln_f(x) wte^T                           logits = norm(x) lm_head^T
 *
 * Others have norms behind the sub-layers, x += norm(mlp(x)), or of queries and keys, or windows.
 *
 * Every sum of the residual stream but those at a checkpoint's edge is followed by a norm, of the next sub-layer,
 * the next block or the model: sum and norm are one op, which belongs to the norm, and so are their gradients.
 *
 * Dropout, in training: of the embeddings, of the attention weights, and of what each sub-layer adds to the stream,
 * all with one probability. Hugging Face has modules for it in GPT-2, and none in Llama.
 *
 * Documents: in a row that holds several, attention stays inside each, and positions start again, so that a document
 * has the result it would have alone.
 *
 * Several processes (model_parallel.h). tp: a sub-layer is a region that it divides, by heads or by columns of the MLP,
 * and so is the head, by classes. sp: between them each rank has B T / n of the rows (B T, C), whichever these are,
 * since what is there works on single rows. cp: a row of T tokens is 2 c chunks, and rank i has chunks i and 2 c - 1
 * - i, which together see as many keys as those of any other rank. Keys and values are gathered; each of the two
 * chunks is a call of causal attention on the keys up to its own end.
 *
 * B batch, T time, C channels, H heads, Hkv heads of keys and values, D head size, F inner width of the MLP, V
 * vocabulary. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/recompute.h"
#include "base/error.h"
#include "engine/scope.h"
#include "nn/architecture.h"
#include "nn/experts.h"
#include "nn/head_parts.h"
#include "nn/kv_cache.h"
#include "nn/latent_attention.h"
#include "nn/layers.h"
#include "nn/mlp.h"
#include "nn/model.h"
#include "nn/module.h"
#include "tensor/tensor.h"

/* ---- Rows of several processes ---- */

/* x (B,T,...) of whole rows: the tokens of this rank of cp, its two chunks. */
static tl_tensor *chunks_cut(const tl_comm *cp, tl_tensor *x) {
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
    bool has_alibi, has_head_norm;
    int64_t first_head, n_all_heads;  /* of this process; of the model */
    int64_t chunk, temperature_floor; /* 0: none */
    double temperature_scale, norm_eps;
    const struct model *model; /* whose cache is used, as layer `layer` of it */
    int64_t layer, window;
};

static tl_tensor *rotate(const struct attention *a, tl_tensor *x, int64_t first) {
    if (a->family->turns_neighbours) x = neighbours_apart(x);
    if (!x) return NULL;
    tl_tensor *position = a->model->token_position;
    tl_rope_scaling scaling = a->rope_scaling;
    if (scaling.rule == TL_ROPE_LIST) { /* by the longest row that this pass, or its cache, can hold */
        const struct model *s = a->model;
        const int64_t longest = s->cache ? s->cache->capacity : tl_size(x, 1) * tl_comm_size(s->parallel.cp);
        const bool is_long = longest > scaling.original_context;
        memcpy(scaling.slower, is_long ? s->config.long_slower : s->config.short_slower, sizeof scaling.slower);
    }
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

/* ALiBi: to the score of head h and the key at place s, slope_h s / sqrt(D) is added, which is slope_h (s - t) /
 * sqrt(D) but for a constant of the row. Slopes of n heads, n a power of two: 2^(-8 i / n), i = 1 .. n; of others
 * those of the next smaller power m, and of the rest 2^(-4 i / m), i = 1, 3, ... Slopes and products are rounded to
 * bf16, as Hugging Face's library does. -> (B,H,1,S) or (H,1,S) */
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
    slopes = slopes ? tl_cast(tl_cast(slopes, TL_BF16), wide) : NULL;
    if (!place) place = tl_arange(0, 1, S, wide, device);                            /* (S) or (B,S) */
    place = place ? tl_unsqueeze(tl_unsqueeze(tl_cast(place, wide), -2), -2) : NULL; /* (1,1,S) or (B,1,1,S) */
    slopes = slopes ? tl_view(slopes, TL_SHAPE(a->n_heads, 1, 1)) : NULL;
    tl_tensor *bias = slopes && place ? tl_cast(tl_mul(slopes, place), TL_BF16) : NULL;
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
    if (!turn(a, span.length, &q, &k)) return NULL;
    tl_attention_options options = {.scale = a->scale, .window = a->window, .soft_cap = a->soft_cap};
    if (!chunk_begins(a, q, span.length, &options.first_key)) return NULL;
    if (a->has_alibi && !(options.mask = alibi_of(a, span.length + tl_size(q, 1), q))) return NULL;
    tl_tensor *o = cache_attend(cache, a->layer, span, q, k, v, options, a->has_sinks ? &lse : NULL);
    return a->has_sinks ? with_sinks(m, o, lse) : o;
}

enum { MOST_SPANS = 256 };

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
    return part[0] && part[1] && part[2] && tl_function(join_parts, NULL, NULL, &qkv, 1, part, 3);
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

static bool read_separate(const struct attention *a, tl_tensor *x, tl_tensor *all, int64_t B, int64_t T,
                          tl_tensor **part) {
    const int64_t queries[4] = {B, T, a->n_heads, a->head_size}, keys[4] = {B, T, a->n_kv_heads, a->head_size};
    part[0] = heads_of(a, a->q, a->q_norm, all, queries);
    part[1] = heads_of(a, a->k, a->k_norm, all, keys);
    part[2] = heads_of(a, a->v, NULL, all, keys);
    return parallel_drop_entered(&a->model->parallel, x, all, part, 3);
}

/* From the latents; with a cache, attention too. */
static bool read_latent(const struct attention *a, tl_tensor *x, tl_tensor *all, int64_t B, int64_t T,
                        tl_tensor **part) {
    (void)x, (void)B, (void)T;
    return latent_read(&a->latent, all, a->model->token_position, part);
}

/* x (B,T,C) -> what the heads give (B,T,H D) */
static tl_tensor *heads_forward(tl_module *m, tl_tensor *x) {
    const struct attention *a = m->state;
    int64_t B = pass_size(a, x, 0), T = pass_size(a, x, 1),
            width = a->has_latents ? a->latent.value_head : a->head_size;
    tl_tensor *all = parallel_enter(&a->model->parallel, x), *part[3], *o; /* q, k, v */
    if (!all) return NULL;
    if (a->has_latents && a->model->cache) {
        o = latent_attend(&a->latent, a->model->cache, a->layer, all, a->scale);
    } else {
        if (!(a->has_latents ? read_latent : a->family->packing ? read_packed : read_separate)(a, x, all, B, T, part))
            return NULL;
        o = attend(m, part[0], part[1], part[2]);
        if (o && width < a->head_size) o = tl_slice(o, -1, 0, width, 1); /* values were filled up */
    }
    return o ? tl_reshape(o, TL_SHAPE(B, T, a->n_heads * width)) : NULL;
}

/* x (B,T,C) -> (B,T,C) */
static tl_tensor *attention_forward(tl_module *m, tl_tensor *x) {
    const struct attention *a = m->state;
    const struct parallel *p = &a->model->parallel;
    tl_tensor *o = heads_forward(m, x);
    if (!o) return NULL;
    o = tl_module_forward(a->out, o);
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
    bool ok = tl_module_add_parameter(m, "sinks", sinks);
    return tl_scope_end(scope) && ok;
}

static tl_module *attention_new(const tl_model_config *c, const struct make *make, const struct make *residual,
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
                            .has_alibi = c->has_alibi,
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

/* ---- Blocks: attention and an MLP, with norms before or behind them ---- */

enum { ATTENTION, MLP };
struct block {
    tl_module *before[2], *layer[2], *after[2]; /* norms may be NULL */
    bool is_parallel;
};

/* The residual stream between sub-layers: x, and the last sub-layer's result, which the next norm adds to it (NULL:
 * nothing to add). References are counted, so each tensor is freed as soon as it is not needed. */
struct stream {
    tl_tensor *x, *addend;
};

static void stream_end(struct stream *s) {
    tl_drop(s->addend);
    tl_drop(s->x);
    *s = (struct stream){0};
}

/* norm(x + addend), or the sum where there is no norm; the stream continues with the sum. */
static tl_tensor *stream_norm(struct stream *s, tl_module *norm) {
    if (!s->addend) return norm ? tl_module_forward(norm, s->x) : s->x;
    tl_tensor *sum = NULL, *y = norm ? norm_forward_sum(norm, s->x, s->addend, &sum) : tl_add(s->x, s->addend);
    if (!norm && y) sum = tl_keep(y);
    stream_end(s);
    s->x = sum;
    return y;
}

/* A sub-layer between its norms. */
static bool stream_pass(struct stream *s, const struct block *b, int which) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *h = stream_norm(s, b->before[which]);
    tl_tensor *y = h ? tl_module_forward(b->layer[which], h) : NULL;
    if (y && b->after[which]) y = tl_module_forward(b->after[which], y);
    s->addend = y ? tl_keep(y) : NULL;
    return tl_scope_end(scope) && s->addend;
}

/* Attention and the MLP of the same x, each behind its norm, or both behind the first. */
static bool parallel_pass(struct stream *s, const struct block *b) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *h = stream_norm(s, b->before[ATTENTION]);
    tl_tensor *attention = h ? tl_module_forward(b->layer[ATTENTION], h) : NULL;
    if (h && b->before[MLP]) h = tl_module_forward(b->before[MLP], s->x);
    tl_tensor *mlp = h && attention ? tl_module_forward(b->layer[MLP], h) : NULL,
              *y = mlp ? tl_add(attention, mlp) : NULL;
    s->addend = y ? tl_keep(y) : NULL;
    return tl_scope_end(scope) && s->addend;
}

static bool block_pass(tl_module *m, struct stream *s) {
    const struct block *b = m->state;
    if (b->is_parallel) return parallel_pass(s, b);
    return stream_pass(s, b, ATTENTION) && stream_pass(s, b, MLP);
}

static tl_tensor *block_forward(tl_module *m, tl_tensor *x) {
    struct stream s = {.x = tl_keep(x)};
    tl_tensor *y = s.x && block_pass(m, &s) ? tl_add(s.x, s.addend) : NULL;
    stream_end(&s);
    return y;
}

static const tl_module_kind block_kind = {"DecoderLayer", block_forward, NULL, sizeof(struct block)};

static tl_module *norm_make(const tl_model_config *c, const struct make *make) {
    const struct architecture *a = architecture_of(c);
    tl_module *m = (a->norm == LAYER_NORM ? layer_norm_make : rms_norm_make)(make, c->channels, c->norm_eps);
    return m ? module_finish(m, norm_set(m, false, a->is_norm_less_one)) : NULL;
}

/* A norm of a block, if it has one of that name. */
static bool norm_add(tl_module *m, const char *name, const tl_model_config *c, const struct make *make,
                     tl_module **norm) {
    return !name || module_child(m, norm, name, norm_make(c, make));
}

/* GPT-2 starts its residual projections smaller, by the number of them, so that their sum has the scale of one. */
static tl_module *block_new(const tl_model_config *c, const struct make *make, int64_t layer) {
    const struct architecture *a = architecture_of(c);
    const struct architecture_names *names = a->names;
    struct make residual = *make;
    if (a->has_scaled_residual) residual.std /= sqrt(2.0 * (double)c->n_layers);
    tl_module *m = tl_module_new(&block_kind);
    if (!m) return NULL;
    struct block *b = m->state;
    b->is_parallel = c->is_parallel;
    bool ok = norm_add(m, names->before[0], c, make, &b->before[0]) &&
              module_child(m, &b->layer[0], names->attention, attention_new(c, make, &residual, layer)) &&
              norm_add(m, names->after[0], c, make, &b->after[0]) &&
              norm_add(m, names->before[1], c, make, &b->before[1]) &&
              module_child(m, &b->layer[1], names->mlp,
                           architecture_has_experts(c, layer) ? experts_make(c, make, &residual)
                                                              : mlp_make(c, make, &residual, c->ff)) &&
              norm_add(m, names->after[1], c, make, &b->after[1]);
    return module_finish(m, ok);
}

/* Adds what this stage of a pipeline holds. What others hold is made too, for its random numbers, and freed. */
static bool part_add(tl_module *to, const char *name, tl_module *made, bool is_here, tl_module **part) {
    *part = made && is_here ? tl_module_add(to, name, made) : NULL;
    if (made && !is_here) tl_module_free(made);
    return made && (*part || !is_here);
}

/* Whether this process has a layer; of which chunk. */
static bool layer_is_here(const struct parallel *p, int64_t layer, int *chunk) {
    for (*chunk = 0; *chunk < p->n_chunks; ++*chunk) {
        int64_t from, to;
        parallel_layers(p, *chunk, &from, &to);
        if (layer >= from && layer < to) return true;
    }
    return false;
}

static tl_module *blocks_new(const tl_model_config *c, const struct make *make) {
    const struct parallel *p = make->parallel;
    int chunk;
    tl_module *list = tl_nn_list(), *block;
    bool ok = list != NULL;
    for (int64_t l = 0; ok && l < c->n_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "%lld", (long long)l);
        ok = part_add(list, name, block_new(c, make, l), layer_is_here(p, l, &chunk), &block);
        if (ok && block && make->maker) ok = make->maker->made(make->maker->context, block);
    }
    return module_finish(list, ok);
}

/* ---- Models ---- */

/* ---- Blocks that are watched ---- */

static bool watch_enter(const struct model *s, size_t block) {
    return !s->watches || s->watches[block].enter(s->watches[block].context);
}

static void watch_back(tl_gradient *g, void *context) {
    const struct block_watch *w = context;
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy && w->back(w->context)) tl_gradient_set(g, 0, dy);
}

/* y of a block: the same, with a place in the graph that backward visits before the block. */
static tl_tensor *watch_leave(const struct model *s, size_t block, tl_tensor *y) {
    const struct block_watch *w = s->watches ? &s->watches[block] : NULL;
    if (!w || !w->leave || !y) return y;
    tl_tensor *out = y;
    bool ok = tl_function(watch_back, (void *)(uintptr_t)w, NULL, &y, 1, &out, 1) && w->leave(w->context);
    return ok ? out : NULL;
}

int model_n_blocks(const tl_module *model) { return (int)((const struct model *)model->state)->blocks->n_children; }
tl_module *model_block(const tl_module *model, int block) {
    return ((const struct model *)model->state)->blocks->children[block];
}
tl_tensor *model_head_of(const tl_module *model) {
    const struct model *s = model->state;
    return s->head && s->head != s->embedding ? tl_module_tensor(s->head, 0) : NULL;
}
int model_block_of(const tl_module *model, const tl_tensor *parameter) {
    int *last = &((struct model *)model->state)->last_block, n_blocks = model_n_blocks(model);
    for (int k = 0; k < n_blocks; k++) {
        int n = 0, block = (*last + k) % n_blocks;
        const tl_named_tensor *list = tl_module_list(model_block(model, block), &n);
        for (int i = 0; list && i < n; i++)
            if (list[i].tensor == parameter) return *last = block;
    }
    return -1;
}
void model_watch(tl_module *model, const struct block_watch *watches) {
    ((struct model *)model->state)->watches = watches;
}

/* in: x (B,T,C) [, the sums of routers] [, token_position [, document_begin]]. The first one or two go through all
 * blocks. A block that backward runs again finds those of its own pass. */
static bool run_block(void *context, int layer, tl_tensor **in, int n_in, tl_tensor **out) {
    const struct model_chunk *chunk = context;
    struct model *s = chunk->model;
    layer += chunk->first;
    tl_tensor *begin = s->document_begin, *position = s->token_position, *routing = s->routing;
    const bool has_routing = n_in > 1 && tl_rank(in[1]) == 1; /* backward may come long after the pass */
    int first = has_routing ? 2 : 1;
    s->token_position = n_in > first ? in[first] : NULL;
    s->document_begin = n_in > first + 1 ? in[first + 1] : NULL;
    s->routing = has_routing ? tl_keep(in[1]) : NULL;
    out[0] = watch_enter(s, (size_t)layer) ? tl_module_forward(s->blocks->children[layer], in[0]) : NULL;
    out[0] = watch_leave(s, (size_t)layer, out[0]);
    if (has_routing) out[1] = scope_adopt(s->routing); /* the caller's scope has it from here on */
    s->routing = routing;
    s->document_begin = begin;
    s->token_position = position;
    return out[0] && (!has_routing || out[1]);
}

/* Whether a pass ends with the norm and the head. */
static bool pass_is_last(const struct model *s) { return s->parallel.is_last && s->chunk + 1 == s->parallel.n_chunks; }

/* All blocks and the last norm, no sum of the stream apart from its norm. Without a norm: the stream. */
static tl_tensor *run_joined(const struct model *m, tl_tensor *x) {
    const tl_module *blocks = m->blocks;
    const struct model_chunk *chunk = &m->chunks[m->chunk];
    struct stream s = {.x = tl_keep(x)};
    bool ok = s.x != NULL;
    for (size_t l = (size_t)chunk->first; ok && l < (size_t)(chunk->first + chunk->n); l++) {
        tl_scope scope = module_enter(blocks->children[l]);
        ok = scope.depth && watch_enter(m, l) && block_pass(blocks->children[l], &s);
        tl_tensor *watched = ok ? watch_leave(m, l, s.addend) : NULL;
        ok = watched != NULL;
        if (ok && watched != s.addend) {
            tl_keep(watched);
            tl_drop(s.addend);
            s.addend = watched;
        }
        if (scope.depth) ok = tl_scope_end(scope) && ok;
    }
    tl_tensor *y = !ok ? NULL : pass_is_last(m) ? stream_norm(&s, m->norm) : tl_add(s.x, s.addend);
    stream_end(&s);
    return y;
}

/* x (B,T,C) of T tokens at `first`, plus the rows of wpe for them. */
static tl_tensor *add_positions(const struct model *s, tl_tensor *x, int64_t first) {
    int64_t last = first + (x ? tl_size(x, 1) : 0);
    return tl_add(x, tl_slice(tl_module_tensor(s->positions, 0), 0, first, last, 1)); /* (T,C) */
}

static tl_tensor *with_positions(const struct model *s, tl_tensor *x) {
    const tl_cache *cache = s->cache;
    tl_tensor *parts[MOST_SPANS], *position = s->token_position;
    int64_t n = cache ? cache_n_spans(cache) : 0;
    if (s->parallel.has_sp) position = parallel_rows(&s->parallel, tl_reshape(position, TL_SHAPE(-1)));
    if (position) return tl_add(x, tl_module_forward(s->positions, position)); /* (B,T,C), or (B T/n,C) */
    if (!cache) return add_positions(s, x, 0);
    for (int64_t i = 0; i < n; i++) {
        struct cache_span span = cache_span_at(cache, i);
        if (!(parts[i] = add_positions(s, cache_rows_of(cache, span, x), span.length))) return NULL;
    }
    return n == 1 ? parts[0] : tl_concat(parts, (int)n, 0);
}

/* sqrt(C), rounded to the digits of the parameters' dtype as Hugging Face's library does. */
static tl_scalar embedding_scale(const struct model *s) {
    int exponent, digits = s->dtype == TL_BF16 ? 8 : s->dtype == TL_F16 ? 11 : s->dtype == TL_F32 ? 24 : 53;
    double share = frexp(sqrt((double)s->config.channels), &exponent);
    return tl_scalar_float(ldexp(rint(ldexp(share, digits)), exponent - digits));
}

static tl_tensor *embedded(tl_module *model, tl_tensor *tokens) {
    struct model *s = model->state;
    tl_tensor *x = tl_module_forward(s->embedding, tokens);
    if (x && architecture_of(&s->config)->has_scaled_embedding) x = tl_mul_scalar(x, embedding_scale(s));
    if (s->positions) x = with_positions(s, x);
    return s->embedding_dropout ? drop_outside(&s->parallel, s->embedding_dropout, x)
                                : drop_outside_in(&s->parallel, model, s->config.dropout, x);
}

/* tokens (B,T) -> the normed result of the last block (B,T,C); with sp this rank's rows of it, (B T/n,C). A stage of a
 * pipeline begins with x of the one before it, in place of tokens, and ends with the stream unless it is the last. */
static tl_tensor *backbone(tl_module *model, tl_tensor *tokens, tl_tensor *x) {
    struct model *s = model->state;
    if (!x) x = embedded(model, tokens);
    if (!x) return NULL;
    if (s->policy == TL_CHECKPOINT_NONE) return run_joined(s, x);
    /* a checkpoint gives one tensor, so the sum at its edge is made there */
    tl_tensor *in[4] = {x, s->routing}, *out[2] = {NULL, NULL};
    int n_through = s->routing ? 2 : 1, n_in = n_through;
    if (s->token_position) in[n_in++] = s->token_position;
    if (s->document_begin) in[n_in++] = s->document_begin;
    struct model_chunk *chunk = &s->chunks[s->chunk];
    if (!checkpoint_layers(run_block, chunk, chunk->n, s->policy, s->k, in, n_in, n_through, out)) return NULL;
    if (s->routing) routing_set(s, out[1]);
    return pass_is_last(s) ? tl_module_forward(s->norm, out[0]) : out[0];
}

static bool tokens_fit(const struct model *s, tl_tensor *tokens) {
    if (!tokens) return error_set(TL_ERROR_USE, "model: got NULL instead of tokens");
    if (tl_rank(tokens) != 2)
        return error_set(TL_ERROR_USE, "model: tokens have %d axes (need (B,T))", tl_rank(tokens));
    return tl_size(tokens, 1) <= s->config.context ||
           error_set(TL_ERROR_USE, "model: %lld tokens in a row exceed the model's context of %lld",
                     (long long)tl_size(tokens, 1), (long long)s->config.context);
}

bool lm_documents_begin(tl_module *model, tl_tensor *tokens, tl_tensor *begin) {
    struct model *s = model->state;
    char a[128], b[128];
    if (!tokens_fit(s, tokens)) return false;
    tl_dtype dtype = tl_dtype_of(begin);
    if (tl_rank(begin) != 2 || tl_size(begin, 0) != tl_size(tokens, 0) || tl_size(begin, 1) != tl_size(tokens, 1) ||
        (dtype != TL_I32 && dtype != TL_I64)) {
        tl_describe(begin, a, sizeof a);
        tl_describe(tokens, b, sizeof b);
        return error_set(TL_ERROR_USE,
                         "model: the beginnings of documents are %s, for tokens %s (need i32 or i64 of the same shape)",
                         a, b);
    }
    tl_tensor *place = tl_arange(0, 1, tl_size(tokens, 1), dtype, tl_device_of(begin)); /* (T) */
    s->token_position = tl_sub(place, begin);                                           /* (B,T) */
    s->document_begin = begin;
    return s->token_position != NULL;
}

void lm_documents_end(tl_module *model) {
    struct model *s = model->state;
    s->document_begin = s->token_position = NULL;
}

/* The head's logits of x (...,C): z, or c tanh(z / c) with a soft cap. */
static tl_tensor *head_logits(const struct model *s, tl_tensor *x) {
    tl_tensor *z = x ? tl_linear(x, tl_module_tensor(s->head, 0), NULL) : NULL;
    const double cap = s->config.logit_soft_cap;
    if (!z || !(cap > 0)) return z;
    z = tl_tanh(tl_scale(z, 1 / cap));
    return z ? tl_scale(z, cap) : NULL;
}

tl_tensor *lm_logits(tl_module *model, tl_tensor *tokens) {
    const struct model *s = model->state;
    if (!model_is_whole(model, "logits") || !tokens_fit(s, tokens)) return NULL;
    return head_logits(s, backbone(model, tokens, NULL));
}

tl_tensor *lm_next(tl_module *model, tl_tensor *tokens) {
    const struct model *s = model->state;
    if (!model_is_whole(model, "logits") || !tokens_fit(s, tokens)) return NULL;
    return head_logits(s, tl_select(backbone(model, tokens, NULL), 1, -1)); /* of (B,C) */
}

static bool cache_fits(const tl_module *model, tl_tensor *tokens, const tl_cache *cache) {
    int64_t n_rows = cache->view ? cache->view->n_rows : cache->batch, longest = 0;
    if (!tokens) return error_set(TL_ERROR_USE, "model: got NULL instead of tokens");
    if (cache->model != model) return error_set(TL_ERROR_USE, "model: this cache was made for another model");
    if (tl_rank(tokens) != 2 || tl_size(tokens, 0) != n_rows || tl_size(tokens, 1) < 1) {
        char text[128];
        tl_describe(tokens, text, sizeof text);
        return error_set(TL_ERROR_USE, "model: tokens are %s (need (%lld,T), the rows of the cache)", text,
                         (long long)n_rows);
    }
    if (cache_n_spans(cache) > MOST_SPANS)
        return error_set(TL_ERROR_USE, "model: %lld rows of different lengths in one pass (need at most %d)",
                         (long long)cache_n_spans(cache), MOST_SPANS);
    for (int64_t i = 0; i < cache_n_spans(cache); i++)
        if (cache_span_at(cache, i).length > longest) longest = cache_span_at(cache, i).length;
    return longest + tl_size(tokens, 1) <= cache->capacity ||
           error_set(TL_ERROR_USE, "model: %lld tokens after the %lld in the cache exceed its capacity of %lld",
                     (long long)tl_size(tokens, 1), (long long)longest, (long long)cache->capacity);
}

/* The model holds the cache for one pass, and attention layers find it there. Its length grows once every layer has
 * the tokens; those of a view belong to the caller. */
tl_tensor *lm_extend(tl_module *model, tl_tensor *tokens, tl_cache *cache, bool only_last) {
    struct model *s = model->state;
    if (!cache_fits(model, tokens, cache)) return NULL;
    bool grad = tl_set_grad_mode(false);
    s->cache = cache;
    tl_tensor *logits = only_last ? lm_next(model, tokens) : lm_logits(model, tokens);
    s->cache = NULL;
    tl_set_grad_mode(grad);
    if (logits && !cache->view) cache->length += tl_size(tokens, 1);
    return logits;
}

/* The tokens of whole rows that this process sees, their targets, and the model's tensors about them. */
static bool pass_cut(struct model *s, tl_tensor **tokens, tl_tensor **targets) {
    const struct parallel *p = &s->parallel;
    int64_t B = tl_size(*tokens, 0), T = tl_size(*tokens, 1), n = tl_comm_size(p->cp);
    if (!*targets) return false;
    if (tl_rank(*targets) != 2 || tl_size(*targets, 0) != B || tl_size(*targets, 1) != T)
        return error_set(TL_ERROR_USE, "model: targets have another shape than the tokens (need (%lld,%lld))",
                         (long long)B, (long long)T);
    if (p->cp && T % (2 * n))
        return error_set(TL_ERROR_USE,
                         "cp: rows of %lld tokens cannot be divided among %lld processes, two parts for each (need seq "
                         "that is a multiple of %lld)",
                         (long long)T, (long long)n, (long long)(2 * n));
    if (!s->token_position) {
        tl_tensor *place = tl_arange(0, 1, T, TL_I64, tl_device_of(*tokens));
        s->token_position = place ? tl_expand(place, TL_SHAPE(B, T)) : NULL;
    }
    if (!p->cp) return s->token_position != NULL;
    *tokens = chunks_cut(p->cp, *tokens);
    *targets = chunks_cut(p->cp, *targets);
    s->token_position = s->token_position ? chunks_cut(p->cp, s->token_position) : NULL;
    if (s->document_begin && !(s->document_begin = chunks_cut(p->cp, s->document_begin))) return false;
    return *tokens && *targets && s->token_position;
}

static tl_linear_cross_entropy_options head_loss(const struct model *s, bool is_training, bool is_sum) {
    return (tl_linear_cross_entropy_options){.ignore_index = -100,
                                             .is_sum = is_sum,
                                             .soft_cap = s->config.logit_soft_cap,
                                             .label_smoothing = is_training ? s->label_smoothing : 0,
                                             .z_loss = is_training ? s->z_loss : 0};
}

/* x (N,C), targets (N): the loss where tp divides the classes, or cp the rows. The mean is over the targets of all
 * ranks of cp, times their number: the mean of the ranks' losses is then the loss. */
static tl_tensor *parallel_loss(const struct model *s, tl_tensor *x, tl_tensor *targets, bool is_training) {
    const struct parallel *p = &s->parallel;
    const tl_linear_cross_entropy_options sum = head_loss(s, is_training, true);
    tl_tensor *weight = tl_module_tensor(s->head, 0),
              *total_rows = targets ? targets_count(targets, sum.ignore_index) : NULL;
    if (total_rows && p->cp) total_rows = tl_all_reduce(total_rows, p->cp);
    if (!total_rows) return NULL;
    double share = tl_comm_size(p->cp);
    if (p->tp) {
        const tl_shard *shard = s->head->slots[0].shard;
        const struct class_part part = {shard->group, shard->from, shard->to, shard->size};
        return linear_cross_entropy_parts(x, weight, targets, &sum, &part, total_rows, share);
    }
    tl_tensor *loss = tl_linear_cross_entropy(x, weight, targets, &sum);
    return loss ? tl_mul(loss, tl_rdiv_scalar(tl_cast(total_rows, tl_dtype_of(loss)), tl_scalar_float(share))) : NULL;
}

/* The loss, or what a stage that is not the last gives to the next one. */
static tl_tensor *plain_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *x) {
    struct model *s = model->state;
    x = backbone(model, tokens, x);
    if (!pass_is_last(s)) return x;
    x = parallel_enter(&s->parallel, x);
    x = x ? tl_reshape(x, TL_SHAPE(-1, s->config.channels)) : NULL; /* (B T, C) */
    tl_tensor *flat = tl_flatten(targets, 0, -1);
    const bool is_training = tl_module_is_training(model);
    if (parallel_is_on(&s->parallel)) return x ? parallel_loss(s, x, flat, is_training) : NULL;
    const tl_linear_cross_entropy_options mean = head_loss(s, is_training, false);
    return tl_linear_cross_entropy(x, tl_module_tensor(s->head, 0), flat, &mean);
}

/* With the losses of routers. */
static tl_tensor *pass_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *x) {
    struct model *s = model->state;
    if (!routing_is_on(s, model)) return plain_loss(model, tokens, targets, x);
    tl_tensor *loss = routing_begin(s, tl_device_of(tokens)) ? plain_loss(model, tokens, targets, x) : NULL;
    if (loss) loss = routing_loss(s, loss, tl_numel(tokens));
    routing_end(s);
    return loss;
}

tl_tensor *lm_stage(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *x) {
    struct model *s = model->state;
    const struct parallel *p = &s->parallel;
    if (!tokens_fit(s, tokens)) return NULL;
    if (!p->has_sp && !p->cp) return pass_loss(model, tokens, targets, x);
    tl_tensor *begin = s->document_begin, *position = s->token_position, *loss = NULL;
    tl_generator before = parallel_draw_begin(p->cp, CP_STREAM);
    if (pass_cut(s, &tokens, &targets)) loss = pass_loss(model, tokens, targets, x);
    parallel_draw_end(before);
    s->document_begin = begin;
    s->token_position = position;
    return loss;
}

tl_tensor *lm_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets) {
    const struct model *s = model->state;
    if (s->parallel.pp) {
        error_set(TL_ERROR_USE, "model: a stage of a pipeline has no loss of its own (need tl_model_pipeline)");
        return NULL;
    }
    return lm_stage(model, tokens, targets, NULL);
}

/* With sp, rows of several sequences; with cp, parts of each. */
int lm_stage_shape(const tl_module *model, const tl_tensor *tokens, int64_t shape[3]) {
    const struct model *s = model->state;
    int64_t B = tl_size(tokens, 0), T = tl_size(tokens, 1) / tl_comm_size(s->parallel.cp), C = s->config.channels;
    if (s->parallel.has_sp) return shape[0] = B * T / tl_comm_size(s->parallel.tp), shape[1] = C, 2;
    return shape[0] = B, shape[1] = T, shape[2] = C, 3;
}

/* Only the scored rows go through the head: with a stride, or before an ending, most targets are context. */
tl_tensor *lm_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets, const int64_t *from, const int64_t *to) {
    const struct model *s = model->state;
    if (!model_is_whole(model, "the losses of single rows") || !tokens_fit(s, tokens)) return NULL;
    const tl_linear_cross_entropy_options sum = head_loss(s, false, true);
    int64_t B = tl_size(tokens, 0);
    tl_tensor *x = backbone(model, tokens, NULL), *losses = x ? tl_zeros(TL_SHAPE(B), TL_F32, tl_device_of(x)) : NULL;
    for (int64_t b = 0; losses && b < B; b++) {
        if (from[b] == to[b]) continue;
        tl_scope scope = tl_scope_begin();
        tl_tensor *rows = tl_slice(tl_select(x, 0, b), 0, from[b], to[b], 1);      /* (N,C) */
        tl_tensor *ids = tl_slice(tl_select(targets, 0, b), 0, from[b], to[b], 1); /* (N) */
        tl_tensor *loss = tl_linear_cross_entropy(rows, tl_module_tensor(s->head, 0), ids, &sum);
        bool ok = loss && tl_copy_(tl_select(losses, 0, b), loss);
        if (!scope.depth || !tl_scope_end(scope) || !ok) return NULL;
    }
    return losses;
}

/* The embedding is also the last stage's head, if it is tied. */
static bool has_embedding(const struct parallel *p, const tl_model_config *c) {
    return p->is_first || (p->is_last && c->is_tied);
}

static bool body_fill(tl_module *m, const tl_model_config *c, const struct make *make) {
    struct model *s = m->state;
    const struct parallel *p = &s->parallel;
    const struct architecture_names *names = architecture_of(c)->names;
    tl_module *body = tl_module_add(m, names->body, tl_nn_list());
    bool ok = body && part_add(body, names->embedding, embedding_make(make, c->vocabulary, c->channels, true),
                               has_embedding(p, c), &s->embedding);
    if (ok && names->positions)
        ok = part_add(body, names->positions, embedding_make(make, c->context, c->channels, false), p->is_first,
                      &s->positions);
    if (ok && names->dropout[0])
        ok = part_add(body, names->dropout[0], tl_nn_dropout(c->dropout), p->is_first, &s->embedding_dropout);
    return ok && module_child(body, &s->blocks, names->layers, blocks_new(c, make)) &&
           part_add(body, names->norm, norm_make(c, make), p->is_last, &s->norm);
}

static void chunks_fill(struct model *s) {
    int block = 0, chunk;
    for (int i = 0; i < MOST_CHUNKS; i++) s->chunks[i] = (struct model_chunk){.model = s};
    for (int64_t layer = 0; layer < s->parallel.n_layers; layer++) {
        if (!layer_is_here(&s->parallel, layer, &chunk)) continue;
        const struct block *b = s->blocks->children[block]->state;
        ((struct attention *)b->layer[ATTENTION]->state)->model = s;
        if (architecture_has_experts(&s->config, layer)) experts_set_model(b->layer[MLP], s);
        if (!s->chunks[chunk].n++) s->chunks[chunk].first = block;
        block++;
    }
}

bool lm_fill(tl_module *m, const tl_model_config *c, tl_dtype dtype, tl_device *device) {
    struct model *s = m->state;
    struct make make = {dtype, device, c->init_std, &s->parallel, s->maker};
    bool ok = body_fill(m, c, &make);
    if (ok) chunks_fill(s);
    s->dtype = dtype;
    if (ok && c->is_tied) { /* the head has no separate tensor */
        s->head = s->parallel.is_last ? s->embedding : NULL;
        return true;
    }
    return ok && part_add(m, architecture_of(c)->names->head,
                          linear_make(&make, c->channels, c->vocabulary, false, OUT), s->parallel.is_last, &s->head);
}
