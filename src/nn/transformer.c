/* transformer.c: the GPT-2 and Llama families as trees of modules, under Hugging Face's names.
 *
 *     GPT-2   x = wte[tokens] + wpe[0..T)              Llama   x = embed_tokens[tokens]
 *             x += attn(ln_1(x));  x += mlp(ln_2(x))           x += self_attn(input_...(x));  x += mlp(post_...(x))
 *             logits = ln_f(x) wte^T                           logits = norm(x) lm_head^T
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
 * B batch, T time, C channels, H heads, Hkv heads of keys and values, D head size, F inner width of the MLP, V
 * vocabulary. */
#include <math.h>
#include <stdio.h>

#include "autograd/recompute.h"
#include "base/error.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/module.h"

/* ---- Attention ---- */

struct attention {
    int64_t n_heads, n_kv_heads, head_size;
    bool has_rope;
    double rope_base, dropout;
    tl_rope_scaling rope_scaling;
    const struct model *model; /* whose cache is used, as layer `layer` of it */
    int64_t layer;
};

static tl_tensor *rotate(const struct attention *a, tl_tensor *x, int64_t first) {
    tl_tensor *position = a->model->token_position;
    return position ? tl_rope_at(x, a->rope_base, position, &a->rope_scaling)
                    : tl_rope(x, a->rope_base, first, &a->rope_scaling);
}

/* q and k turned by their positions, the model's or from `first` on; GPT-2 has none here. */
static bool turn(const struct attention *a, int64_t first, tl_tensor **q, tl_tensor **k) {
    if (!a->has_rope) return true;
    *q = rotate(a, *q, first);
    *k = rotate(a, *k, first);
    return *q && *k;
}

/* One span of a pass over the cache: inference, which has no dropout. */
static tl_tensor *attend_span(const struct attention *a, struct cache_span span, tl_tensor *q, tl_tensor *k,
                              tl_tensor *v) {
    const tl_cache *cache = a->model->cache;
    q = cache_rows_of(cache, span, q);
    k = cache_rows_of(cache, span, k);
    v = cache_rows_of(cache, span, v);
    return turn(a, span.length, &q, &k) ? cache_attend(cache, a->layer, span, q, k, v) : NULL;
}

enum { MOST_SPANS = 256 };

static tl_tensor *attend_cached(const struct attention *a, tl_tensor *q, tl_tensor *k, tl_tensor *v) {
    const tl_cache *cache = a->model->cache;
    tl_tensor *parts[MOST_SPANS];
    int64_t n = cache_n_spans(cache);
    for (int64_t i = 0; i < n; i++)
        if (!(parts[i] = attend_span(a, cache_span_at(cache, i), q, k, v))) return NULL;
    return n == 1 ? parts[0] : tl_concat(parts, (int)n, 0);
}

/* Causal attention of q (B,T,H,D) on k, v (B,T,Hkv,D), and on cached ones before them. */
static tl_tensor *attend(const tl_module *m, tl_tensor *q, tl_tensor *k, tl_tensor *v) {
    const struct attention *a = m->state;
    if (a->model->cache) return attend_cached(a, q, k, v);
    const tl_attention_options options = {
        .causal = true, .dropout = tl_module_is_training(m) ? a->dropout : 0, .first_key = a->model->document_begin};
    return turn(a, 0, &q, &k) ? tl_attention(q, k, v, &options, NULL) : NULL;
}

enum { C_ATTN, C_PROJ, RESID_DROPOUT };
enum { Q_PROJ, K_PROJ, V_PROJ, O_PROJ };

/* The gradients of q, k and v, side by side again: one copy, where three separate gradients would each be added to
 * zeros of the whole. */
static void join_parts(tl_gradient *g, void *context) {
    (void)context;
    tl_tensor *part[3], *any = NULL;
    for (int j = 0; j < 3; j++) {
        part[j] = tl_gradient_of_output(g, j);
        if (part[j]) any = part[j];
    }
    for (int j = 0; j < 3; j++)
        if (!part[j] && any) part[j] = tl_zeros_like(any);
    if (any) tl_gradient_set(g, 0, tl_stack(part, 3, 2));
}

/* q, k, v (B,T,H,D): views of qkv (B,T,3,H,D). */
static bool split_parts(tl_tensor *qkv, tl_tensor **part) {
    bool grad = tl_set_grad_mode(false);
    for (int j = 0; j < 3; j++) part[j] = tl_select(qkv, 2, j);
    tl_set_grad_mode(grad);
    return part[0] && part[1] && part[2] && tl_function(join_parts, NULL, NULL, &qkv, 1, part, 3);
}

/* x (B,T,C) -> (B,T,C). q, k and v are read from one packed product, by strides. */
static tl_tensor *gpt2_attention_forward(tl_module *m, tl_tensor *x) {
    const struct attention *a = m->state;
    int64_t B = tl_size(x, 0), T = tl_size(x, 1), H = a->n_heads, D = a->head_size;
    tl_tensor *packed = tl_module_forward(m->children[C_ATTN], x), *part[3];
    tl_tensor *qkv = tl_view(packed, TL_SHAPE(B, T, 3, H, D));
    if (!split_parts(qkv, part)) return NULL;
    tl_tensor *o = tl_view(attend(m, part[0], part[1], part[2]), TL_SHAPE(B, T, H * D));
    return tl_module_forward(m->children[RESID_DROPOUT], tl_module_forward(m->children[C_PROJ], o));
}

static tl_tensor *heads_of(tl_module *projection, tl_tensor *x, int64_t n_heads, int64_t D) {
    tl_tensor *y = tl_module_forward(projection, x);
    return tl_view(y, TL_SHAPE(tl_size(x, 0), tl_size(x, 1), n_heads, D)); /* (B,T,heads,D) */
}

static tl_tensor *llama_attention_forward(tl_module *m, tl_tensor *x) {
    const struct attention *a = m->state;
    int64_t H = a->n_heads, kv = a->n_kv_heads, D = a->head_size;
    tl_tensor *q = heads_of(m->children[Q_PROJ], x, H, D), *k = heads_of(m->children[K_PROJ], x, kv, D);
    tl_tensor *v = heads_of(m->children[V_PROJ], x, kv, D);
    tl_tensor *o = tl_view(attend(m, q, k, v), TL_SHAPE(tl_size(x, 0), tl_size(x, 1), H * D));
    return dropout_in(m, a->dropout, tl_module_forward(m->children[O_PROJ], o));
}

static const tl_module_kind gpt2_attention_kind = {"GPT2Attention", gpt2_attention_forward, NULL,
                                                   sizeof(struct attention)};
static const tl_module_kind llama_attention_kind = {"LlamaAttention", llama_attention_forward, NULL,
                                                    sizeof(struct attention)};

static tl_module *attention_new(const tl_module_kind *kind, const tl_model_config *c) {
    tl_module *m = tl_module_new(kind);
    if (m)
        *(struct attention *)m->state = (struct attention){.n_heads = c->n_heads,
                                                           .n_kv_heads = c->n_kv_heads,
                                                           .head_size = c->head_size,
                                                           .has_rope = c->family == TL_LLAMA,
                                                           .rope_base = c->rope_base,
                                                           .dropout = c->dropout,
                                                           .rope_scaling = c->rope_scaling};
    return m;
}

static tl_module *gpt2_attention_new(const tl_model_config *c, const struct make *make, const struct make *residual) {
    tl_module *m = attention_new(&gpt2_attention_kind, c);
    bool ok = m && tl_module_add(m, "c_attn", linear_make(make, c->channels, 3 * c->channels, true)) &&
              tl_module_add(m, "c_proj", linear_make(residual, c->channels, c->channels, true)) &&
              tl_module_add(m, "resid_dropout", tl_nn_dropout(c->dropout));
    return module_finish(m, ok);
}

static tl_module *llama_attention_new(const tl_model_config *c, const struct make *make) {
    int64_t q = c->n_heads * c->head_size, kv = c->n_kv_heads * c->head_size;
    tl_module *m = attention_new(&llama_attention_kind, c);
    bool ok = m && tl_module_add(m, "q_proj", linear_make(make, c->channels, q, c->has_qkv_bias)) &&
              tl_module_add(m, "k_proj", linear_make(make, c->channels, kv, c->has_qkv_bias)) &&
              tl_module_add(m, "v_proj", linear_make(make, c->channels, kv, c->has_qkv_bias)) &&
              tl_module_add(m, "o_proj", linear_make(make, q, c->channels, false));
    return module_finish(m, ok);
}

/* ---- MLP ---- */

enum { C_FC, MLP_PROJ, MLP_DROPOUT };
enum { GATE_PROJ, UP_PROJ, DOWN_PROJ };

static tl_tensor *gpt2_mlp_forward(tl_module *m, tl_tensor *x) {
    tl_tensor *h = tl_gelu(tl_module_forward(m->children[C_FC], x)); /* (B,T,F) */
    return tl_module_forward(m->children[MLP_DROPOUT], tl_module_forward(m->children[MLP_PROJ], h));
}

static tl_tensor *llama_mlp_forward(tl_module *m, tl_tensor *x) {
    tl_tensor *gate = tl_module_forward(m->children[GATE_PROJ], x); /* (B,T,F) */
    tl_tensor *up = tl_module_forward(m->children[UP_PROJ], x);
    return dropout_in(m, *(double *)m->state, tl_module_forward(m->children[DOWN_PROJ], tl_swiglu(gate, up)));
}

static const tl_module_kind gpt2_mlp_kind = {"GPT2MLP", gpt2_mlp_forward, NULL, 0};
static const tl_module_kind llama_mlp_kind = {"LlamaMLP", llama_mlp_forward, NULL, sizeof(double)};

static tl_module *gpt2_mlp_new(const tl_model_config *c, const struct make *make, const struct make *residual) {
    tl_module *m = tl_module_new(&gpt2_mlp_kind);
    bool ok = m && tl_module_add(m, "c_fc", linear_make(make, c->channels, c->ff, true)) &&
              tl_module_add(m, "c_proj", linear_make(residual, c->ff, c->channels, true)) &&
              tl_module_add(m, "dropout", tl_nn_dropout(c->dropout));
    return module_finish(m, ok);
}

static tl_module *llama_mlp_new(const tl_model_config *c, const struct make *make) {
    tl_module *m = tl_module_new(&llama_mlp_kind);
    if (m) *(double *)m->state = c->dropout;
    bool ok = m && tl_module_add(m, "gate_proj", linear_make(make, c->channels, c->ff, false)) &&
              tl_module_add(m, "up_proj", linear_make(make, c->channels, c->ff, false)) &&
              tl_module_add(m, "down_proj", linear_make(make, c->ff, c->channels, false));
    return module_finish(m, ok);
}

/* ---- Blocks: norm, attention, norm, MLP, in this order in both families ---- */

enum { NORM1, ATTENTION, NORM2, MLP };

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

/* norm(x + addend); the stream continues with the sum. */
static tl_tensor *stream_norm(struct stream *s, tl_module *norm) {
    if (!s->addend) return tl_module_forward(norm, s->x);
    tl_tensor *sum, *y = norm_forward_sum(norm, s->x, s->addend, &sum);
    stream_end(s);
    s->x = sum;
    return y;
}

/* A norm and the sub-layer after it. */
static bool stream_pass(struct stream *s, tl_module *norm, tl_module *layer) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *h = stream_norm(s, norm);
    tl_tensor *y = h ? tl_module_forward(layer, h) : NULL;
    s->addend = y ? tl_keep(y) : NULL;
    return tl_scope_end(scope) && s->addend;
}

static bool block_pass(tl_module *m, struct stream *s) {
    return stream_pass(s, m->children[NORM1], m->children[ATTENTION]) &&
           stream_pass(s, m->children[NORM2], m->children[MLP]);
}

static tl_tensor *block_forward(tl_module *m, tl_tensor *x) {
    struct stream s = {.x = tl_keep(x)};
    tl_tensor *y = s.x && block_pass(m, &s) ? tl_add(s.x, s.addend) : NULL;
    stream_end(&s);
    return y;
}

static const tl_module_kind gpt2_block_kind = {"GPT2Block", block_forward, NULL, 0};
static const tl_module_kind llama_block_kind = {"LlamaDecoderLayer", block_forward, NULL, 0};

/* GPT-2 starts its residual projections smaller, by the number of them, so that their sum has the scale of one. */
static tl_module *gpt2_block_new(const tl_model_config *c, const struct make *make) {
    struct make residual = *make;
    residual.std /= sqrt(2.0 * (double)c->n_layers);
    tl_module *m = tl_module_new(&gpt2_block_kind);
    bool ok = m &&
              tl_module_add(m, "ln_1", tl_nn_layer_norm(c->channels, c->norm_eps, true, make->dtype, make->device)) &&
              tl_module_add(m, "attn", gpt2_attention_new(c, make, &residual)) &&
              tl_module_add(m, "ln_2", tl_nn_layer_norm(c->channels, c->norm_eps, true, make->dtype, make->device)) &&
              tl_module_add(m, "mlp", gpt2_mlp_new(c, make, &residual));
    return module_finish(m, ok);
}

static tl_module *llama_block_new(const tl_model_config *c, const struct make *make) {
    tl_module *m = tl_module_new(&llama_block_kind);
    bool ok =
        m && tl_module_add(m, "input_layernorm", tl_nn_rms_norm(c->channels, c->norm_eps, make->dtype, make->device)) &&
        tl_module_add(m, "self_attn", llama_attention_new(c, make)) &&
        tl_module_add(m, "post_attention_layernorm",
                      tl_nn_rms_norm(c->channels, c->norm_eps, make->dtype, make->device)) &&
        tl_module_add(m, "mlp", llama_mlp_new(c, make));
    return module_finish(m, ok);
}

static tl_module *blocks_new(const tl_model_config *c, const struct make *make) {
    tl_module *list = tl_nn_list();
    bool ok = list != NULL;
    for (int64_t l = 0; ok && l < c->n_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "%lld", (long long)l);
        tl_module *block = c->family == TL_GPT2 ? gpt2_block_new(c, make) : llama_block_new(c, make);
        ok = tl_module_add(list, name, block) != NULL;
    }
    return module_finish(list, ok);
}

/* ---- Models ---- */

/* in: x (B,T,C) [, document_begin, token_position]. A block that backward runs again finds those of its own pass. */
static tl_tensor *run_block(void *context, int layer, tl_tensor **in, int n_in) {
    struct model *s = context;
    tl_tensor *begin = s->document_begin, *position = s->token_position;
    s->document_begin = n_in > 1 ? in[1] : NULL;
    s->token_position = n_in > 1 ? in[2] : NULL;
    tl_tensor *y = tl_module_forward(s->blocks->children[layer], in[0]);
    s->document_begin = begin;
    s->token_position = position;
    return y;
}

/* All blocks and the last norm, no sum of the stream apart from its norm. */
static tl_tensor *run_joined(tl_module *blocks, tl_module *norm, tl_tensor *x) {
    struct stream s = {.x = tl_keep(x)};
    bool ok = s.x != NULL;
    for (size_t l = 0; ok && l < blocks->n_children; l++) {
        tl_scope scope = module_enter(blocks->children[l]);
        ok = scope.depth && block_pass(blocks->children[l], &s);
        if (scope.depth) ok = tl_scope_end(scope) && ok;
    }
    tl_tensor *y = ok ? stream_norm(&s, norm) : NULL;
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
    tl_tensor *parts[MOST_SPANS];
    int64_t n = cache ? cache_n_spans(cache) : 0;
    if (s->token_position) return tl_add(x, tl_module_forward(s->positions, s->token_position)); /* (B,T,C) */
    if (!cache) return add_positions(s, x, 0);
    for (int64_t i = 0; i < n; i++) {
        struct cache_span span = cache_span_at(cache, i);
        if (!(parts[i] = add_positions(s, cache_rows_of(cache, span, x), span.length))) return NULL;
    }
    return n == 1 ? parts[0] : tl_concat(parts, (int)n, 0);
}

/* tokens (B,T) -> the normed result of the last block (B,T,C). */
static tl_tensor *backbone(tl_module *model, tl_tensor *tokens) {
    struct model *s = model->state;
    tl_tensor *x = tl_module_forward(s->embedding, tokens);
    if (s->positions) x = tl_module_forward(s->embedding_dropout, with_positions(s, x));
    else x = dropout_in(model, s->config.dropout, x);
    if (!x) return NULL;
    if (s->policy == TL_CHECKPOINT_NONE) return run_joined(s->blocks, s->norm, x);
    /* a checkpoint gives one tensor, so the sum at its edge is made there */
    tl_tensor *in[3] = {x, s->document_begin, s->token_position};
    x = checkpoint_layers(run_block, s, (int)s->config.n_layers, s->policy, s->k, in, s->document_begin ? 3 : 1);
    return tl_module_forward(s->norm, x);
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

tl_tensor *lm_logits(tl_module *model, tl_tensor *tokens) {
    const struct model *s = model->state;
    if (!tokens_fit(s, tokens)) return NULL;
    tl_tensor *x = backbone(model, tokens);
    return tl_linear(x, tl_module_tensor(s->head, 0), NULL);
}

tl_tensor *lm_next(tl_module *model, tl_tensor *tokens) {
    const struct model *s = model->state;
    if (!tokens_fit(s, tokens)) return NULL;
    tl_tensor *x = tl_select(backbone(model, tokens), 1, -1); /* (B,C) */
    return tl_linear(x, tl_module_tensor(s->head, 0), NULL);
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

tl_tensor *lm_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets) {
    const struct model *s = model->state;
    if (!tokens_fit(s, tokens)) return NULL;
    tl_tensor *x = backbone(model, tokens);
    x = tl_flatten(x, 0, 1); /* (B T, C) */
    tl_tensor *flat = tl_flatten(targets, 0, -1);
    return tl_linear_cross_entropy(x, tl_module_tensor(s->head, 0), flat, NULL);
}

/* Only the scored rows go through the head: with a stride, or before an ending, most targets are context. */
tl_tensor *lm_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets, const int64_t *from, const int64_t *to) {
    const struct model *s = model->state;
    if (!tokens_fit(s, tokens)) return NULL;
    const tl_linear_cross_entropy_options sum = {.ignore_index = -100, .is_sum = true};
    int64_t B = tl_size(tokens, 0);
    tl_tensor *x = backbone(model, tokens), *losses = x ? tl_zeros(TL_SHAPE(B), TL_F32, tl_device_of(x)) : NULL;
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

static bool gpt2_fill(tl_module *m, const tl_model_config *c, const struct make *make) {
    struct model *s = m->state;
    tl_module *body = tl_module_add(m, "transformer", tl_nn_list());
    s->embedding = body ? tl_module_add(body, "wte", embedding_make(make, c->vocabulary, c->channels)) : NULL;
    s->positions = s->embedding ? tl_module_add(body, "wpe", embedding_make(make, c->context, c->channels)) : NULL;
    s->embedding_dropout = s->positions ? tl_module_add(body, "drop", tl_nn_dropout(c->dropout)) : NULL;
    s->blocks = s->embedding_dropout ? tl_module_add(body, "h", blocks_new(c, make)) : NULL;
    s->norm = s->blocks ? tl_module_add(body, "ln_f",
                                        tl_nn_layer_norm(c->channels, c->norm_eps, true, make->dtype, make->device))
                        : NULL;
    return s->norm != NULL;
}

static bool llama_fill(tl_module *m, const tl_model_config *c, const struct make *make) {
    struct model *s = m->state;
    tl_module *body = tl_module_add(m, "model", tl_nn_list());
    s->embedding = body ? tl_module_add(body, "embed_tokens", embedding_make(make, c->vocabulary, c->channels)) : NULL;
    s->blocks = s->embedding ? tl_module_add(body, "layers", blocks_new(c, make)) : NULL;
    s->norm = s->blocks
                  ? tl_module_add(body, "norm", tl_nn_rms_norm(c->channels, c->norm_eps, make->dtype, make->device))
                  : NULL;
    return s->norm != NULL;
}

bool lm_fill(tl_module *m, const tl_model_config *c, tl_dtype dtype, tl_device *device) {
    struct model *s = m->state;
    struct make make = {dtype, device, c->init_std};
    bool ok = c->family == TL_GPT2 ? gpt2_fill(m, c, &make) : llama_fill(m, c, &make);
    for (int64_t l = 0; ok && l < c->n_layers; l++) {
        struct attention *a = s->blocks->children[l]->children[ATTENTION]->state;
        a->model = s;
        a->layer = l;
    }
    if (ok && c->is_tied) { /* the head has no separate tensor */
        s->head = s->embedding;
        return true;
    }
    s->head = ok ? tl_module_add(m, "lm_head", linear_make(&make, c->channels, c->vocabulary, false)) : NULL;
    return s->head != NULL;
}
