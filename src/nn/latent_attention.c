/* latent_attention.c: attention whose keys and values are made from a latent of few numbers.
 *
 *      c, k_r = split(kv_down x)        c = norm(c), k_r turned by its position, one for all heads
 *      k_h = (K_h c, k_r)               v_h = V_h c             (K_h, V_h): rows of kv
 *      q_h = (q_h's plain part, its last channels turned)       q x, or q norm(q_down x)
 *
 * A cache holds c and k_r alone, rank + R numbers of a token for all heads, and keys are never made again:
 *
 *      q_h k_h = (K_h^T q_h) c + q_h k_r,    sum p v_h = V_h (sum p c)
 *
 * so that attention has one head of keys (c, k_r), which are also its values, and H heads of queries.
 *
 * tp divides heads: each rank has its heads' rows of q and kv. The latents are the same on all ranks, which hold the
 * matrices that make them, and sum the gradients of these.
 *
 * B batch, T time, C channels, H heads, D head size, R channels of it that turn, N = D - R those that do not. */
#include "nn/latent_attention.h"

#include <math.h>

#include "nn/adapter.h"
#include "nn/kv_cache.h"
#include "nn/mlp.h"
#include "nn/module.h"

#define LATENT_EPS 1e-6 /* of both norms, whatever the file says of the others */

tl_tensor *neighbours_apart(tl_tensor *x) {
    if (!x) return NULL;
    const int64_t B = tl_size(x, 0), T = tl_size(x, 1), H = tl_size(x, 2), D = tl_size(x, 3);
    tl_tensor *pairs = tl_reshape(x, TL_SHAPE(B, T, H, D / 2, 2));
    pairs = pairs ? tl_transpose(pairs, 3, 4) : NULL;
    return pairs ? tl_reshape(pairs, TL_SHAPE(B, T, H, D)) : NULL;
}

bool latent_add(tl_module *m, struct latent *l, const tl_model_config *c, const struct make *make) {
    const int64_t C = c->channels, q = c->n_heads * c->head_size, N = c->head_size - c->rope_head;
    *l = (struct latent){.n_heads = c->n_heads / tl_comm_size(make->parallel->tp),
                         .head_size = c->head_size,
                         .rope_head = c->rope_head,
                         .value_head = c->value_head,
                         .rank = c->kv_rank,
                         .rope_base = c->rope_base,
                         .rope_scaling = c->rope_scaling};
    bool ok = true;
    if (!c->q_rank) ok = module_child(m, &l->q, "q_proj", linear_make(make, C, q, false, OUT));
    else
        ok = module_child(m, &l->q_down, "q_a_proj", linear_make(make, C, c->q_rank, false, INSIDE)) &&
             module_child(m, &l->q_norm, "q_a_layernorm", rms_norm_make(make, c->q_rank, LATENT_EPS)) &&
             norm_set(l->q_norm, true, false) &&
             module_child(m, &l->q, "q_b_proj", linear_make(make, c->q_rank, q, false, OUT));
    return ok &&
           module_child(m, &l->kv_down, "kv_a_proj_with_mqa",
                        linear_make(make, C, l->rank + l->rope_head, false, INSIDE)) &&
           module_child(m, &l->kv_norm, "kv_a_layernorm", rms_norm_make(make, l->rank, LATENT_EPS)) &&
           norm_set(l->kv_norm, true, false) &&
           module_child(m, &l->kv, "kv_b_proj",
                        linear_make(make, l->rank, c->n_heads * (N + l->value_head), false, OUT));
}

double latent_scale(const tl_model_config *c) {
    const double factor = c->rope_scaling.factor, grow = factor > 1 ? 0.1 * c->score_yarn * log(factor) + 1 : 1;
    return grow * grow / sqrt((double)c->head_size);
}

/* x (B,T,H,R) turned: by positions (B,T), or from `first` on. */
static tl_tensor *turned(const struct latent *l, tl_tensor *x, tl_tensor *positions, int64_t first) {
    x = neighbours_apart(x);
    if (!x) return NULL;
    return positions ? tl_rope_at(x, l->rope_base, positions, &l->rope_scaling)
                     : tl_rope(x, l->rope_base, first, &l->rope_scaling);
}

/* Channels from .. to - 1. */
static tl_tensor *channels(tl_tensor *x, int64_t from, int64_t to) { return x ? tl_slice(x, -1, from, to, 1) : NULL; }

/* Two tensors, joined along their channels. */
static tl_tensor *side_by_side(tl_tensor *left, tl_tensor *right) {
    tl_tensor *both[2] = {left, right};
    return left && right ? tl_concat(both, 2, -1) : NULL;
}

/* x (B,T,C) or (B T,C) -> q (B,T,H,D), not turned */
static tl_tensor *queries(const struct latent *l, tl_tensor *x, int64_t B, int64_t T) {
    tl_tensor *from = l->q_down ? tl_module_forward(l->q_norm, tl_module_forward(l->q_down, x)) : x;
    tl_tensor *q = from ? tl_module_forward(l->q, from) : NULL;
    return q ? tl_view(q, TL_SHAPE(B, T, l->n_heads, l->head_size)) : NULL;
}

/* x (B,T,C) or (B T,C) -> the latents c (B,T,rank) and the key's channels that turn (B,T,1,R), before they do */
static bool latents(const struct latent *l, tl_tensor *x, int64_t B, int64_t T, tl_tensor **c, tl_tensor **key) {
    tl_tensor *both = tl_module_forward(l->kv_down, x);
    if (both && tl_rank(both) == 2) both = tl_view(both, TL_SHAPE(B, T, l->rank + l->rope_head));
    *c = both ? tl_module_forward(l->kv_norm, channels(both, 0, l->rank)) : NULL;
    *key = both ? tl_unsqueeze(channels(both, l->rank, l->rank + l->rope_head), 2) : NULL;
    return *c && *key;
}

bool latent_read(const struct latent *l, tl_tensor *x, int64_t B, int64_t T, tl_tensor *positions, tl_tensor **part) {
    const int64_t H = l->n_heads, D = l->head_size, N = D - l->rope_head;
    tl_tensor *c, *key, *q = queries(l, x, B, T);
    if (!q || !latents(l, x, B, T, &c, &key)) return false;
    tl_tensor *query = turned(l, channels(q, N, D), positions, 0);
    part[0] = side_by_side(channels(q, 0, N), query);
    tl_tensor *kv = tl_module_forward(l->kv, c);
    kv = kv ? tl_view(kv, TL_SHAPE(B, T, H, N + l->value_head)) : NULL;
    key = turned(l, key, positions, 0);
    key = key ? tl_expand(key, TL_SHAPE(B, T, H, l->rope_head)) : NULL;
    part[1] = side_by_side(channels(kv, 0, N), key);
    part[2] = channels(kv, N, N + l->value_head);
    if (part[2] && l->value_head < D)
        part[2] = side_by_side(
            part[2], tl_zeros(TL_SHAPE(B, T, H, D - l->value_head), tl_dtype_of(part[2]), tl_device_of(part[2])));
    return part[0] && part[1] && part[2];
}

/* ---- With a cache ---- */

/* x (B,T,H,n) times each head's matrix (H,n,m) -> (B,T,H,m) */
static tl_tensor *heads_multiply(tl_tensor *x, tl_tensor *matrices) {
    if (!x || !matrices) return NULL;
    const int64_t B = tl_size(x, 0), T = tl_size(x, 1), H = tl_size(x, 2);
    tl_tensor *rows = tl_transpose(tl_reshape(x, TL_SHAPE(B * T, H, tl_size(x, 3))), 0, 1); /* (H,B T,n) */
    tl_tensor *y = rows ? tl_matmul(rows, matrices) : NULL;
    y = y ? tl_transpose(y, 0, 1) : NULL;
    return y ? tl_reshape(y, TL_SHAPE(B, T, H, tl_size(matrices, 2))) : NULL;
}

/* The matrix of keys and values (H (N + value_head),rank), with its adapter in it if it has one. */
static tl_tensor *kv_weight(const struct latent *l) {
    tl_tensor *weight = tl_module_tensor(l->kv, 0);
    if (!linear_adapter(l->kv)->a) return weight;
    tl_tensor *one = tl_eye(l->rank, l->rank, tl_dtype_of(weight), tl_device_of(weight));
    tl_tensor *columns = one ? tl_module_forward(l->kv, one) : NULL;
    return columns ? tl_contiguous(tl_transpose(columns, 0, 1)) : NULL;
}

/* The rows of a span: q (n,T,H,D), c (n,T,rank), key (n,T,1,R) -> (n,T,H,rank), sums of latents */
static tl_tensor *attend_span(const struct latent *l, const tl_cache *cache, int64_t layer, struct cache_span span,
                              tl_tensor *q, tl_tensor *c, tl_tensor *key, tl_tensor *to_latent, double scale) {
    const int64_t D = l->head_size, N = D - l->rope_head;
    q = cache_rows_of(cache, span, q);
    c = cache_rows_of(cache, span, c);
    key = cache_rows_of(cache, span, key);
    if (!q || !c || !key) return NULL;
    tl_tensor *plain = heads_multiply(channels(q, 0, N), to_latent);
    tl_tensor *query = turned(l, channels(q, N, D), NULL, span.length);
    query = side_by_side(plain, query);
    key = turned(l, key, NULL, span.length);
    tl_tensor *row = side_by_side(tl_unsqueeze(c, 2), key);
    tl_tensor *o =
        cache_attend(cache, layer, span, query, row, NULL, NULL, (tl_attention_options){.scale = scale}, NULL);
    return channels(o, 0, l->rank);
}

tl_tensor *latent_attend(const struct latent *l, const tl_cache *cache, int64_t layer, tl_tensor *x, int64_t B,
                         int64_t T, double scale) {
    const int64_t H = l->n_heads, N = l->head_size - l->rope_head, n = cache_n_spans(cache);
    tl_tensor *parts[MOST_SPANS], *c, *key, *q = queries(l, x, B, T);
    if (!q || !latents(l, x, B, T, &c, &key)) return NULL;
    tl_tensor *both = tl_view(kv_weight(l), TL_SHAPE(H, N + l->value_head, l->rank));
    tl_tensor *to_latent = both ? tl_slice(both, 1, 0, N, 1) : NULL; /* (H,N,rank) */
    tl_tensor *to_value = both ? tl_transpose(tl_slice(both, 1, N, N + l->value_head, 1), 1, 2) : NULL;
    if (!to_latent || !to_value) return NULL;
    for (int64_t i = 0; i < n; i++)
        if (!(parts[i] = attend_span(l, cache, layer, cache_span_at(cache, i), q, c, key, to_latent, scale)))
            return NULL;
    return heads_multiply(n == 1 ? parts[0] : tl_concat(parts, (int)n, 0), to_value);
}
