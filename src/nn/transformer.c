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
 * all with one probability. Hugging Face has modules for it in GPT-2, and none in Llama. Where a sub-layer's result is
 * added to the stream as it is, its dropout is a part of the op that adds it: nothing else is drawn in between.
 *
 * Documents: in a row that holds several, attention stays inside each, and positions start again, so that a document
 * has the result it would have alone.
 *
 * Several processes (model_parallel.h). tp: a sub-layer is a region that it divides, by heads or by columns of the MLP,
 * and so is the head, by classes. sp: between them each rank has B T / n of the rows (B T, C), whichever these are,
 * since what is there works on single rows. cp divides rows (self_attention.c).
 *
 * B batch, T time, C channels, H heads, Hkv heads of keys and values, D head size, F inner width of the MLP, V
 * vocabulary. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/function.h"
#include "autograd/recompute.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/scope.h"
#include "nn/architecture.h"
#include "nn/self_attention.h"
#include "nn/experts.h"
#include "nn/head_parts.h"
#include "nn/kv_cache.h"
#include "nn/latent_attention.h"
#include "nn/layers.h"
#include "nn/mlp.h"
#include "nn/model.h"
#include "nn/module.h"
#include "tensor/tensor.h"

/* ---- Blocks: attention and an MLP, with norms before or behind them ---- */

enum { ATTENTION, MLP };
struct block {
    tl_module *before[2], *layer[2], *after[2]; /* norms may be NULL */
    /* The layer's forward without its dropout, which the sum behind it draws; NULL: another op reads the result. */
    tl_tensor *(*undropped[2])(tl_module *layer, tl_tensor *x, double *dropout);
    bool is_parallel;
    const struct parallel *parallel;
};

/* The residual stream between sub-layers: x, and the last sub-layer's result, which the next norm adds to it (NULL:
 * nothing to add), as much of it as dropout leaves. References are counted, so each tensor is freed as soon as it is
 * not needed. */
struct stream {
    tl_tensor *x, *addend;
    double dropout; /* 0: the addend is added as it is */
    const struct parallel *parallel;
};

static void stream_end(struct stream *s) {
    tl_drop(s->addend);
    tl_drop(s->x);
    *s = (struct stream){.parallel = s->parallel};
}

/* norm(x + addend), or the sum where there is no norm; the stream continues with the sum. */
static tl_tensor *stream_norm(struct stream *s, tl_module *norm) {
    if (!s->addend) return norm ? tl_module_forward(norm, s->x) : s->x;
    tl_generator before = draw_outside_begin(s->parallel);
    tl_tensor *sum = NULL, *y = norm ? norm_forward_sum(norm, s->x, s->addend, s->dropout, &sum)
                                     : tl_add(s->x, tl_dropout(s->addend, s->dropout));
    parallel_draw_end(before);
    if (!norm && y) sum = tl_keep(y);
    stream_end(s);
    s->x = sum;
    return y;
}

static tl_tensor *layer_forward(const struct block *b, int which, tl_tensor *x, double *dropout) {
    tl_module *layer = b->layer[which];
    if (!b->undropped[which]) return tl_module_forward(layer, x);
    tl_scope scope = module_enter(layer);
    return scope.depth ? tl_scope_return(scope, b->undropped[which](layer, x, dropout)) : NULL;
}

/* A sub-layer between its norms. */
static bool stream_pass(struct stream *s, const struct block *b, int which) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *h = stream_norm(s, b->before[which]);
    tl_tensor *y = h ? layer_forward(b, which, h, &s->dropout) : NULL;
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
    struct stream s = {.x = tl_keep(x), .parallel = ((const struct block *)m->state)->parallel};
    tl_tensor *y = s.x && block_pass(m, &s) ? stream_norm(&s, NULL) : NULL;
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
    b->parallel = make->parallel;
    const bool has_experts = architecture_has_experts(c, layer);
    if (!c->is_parallel && !names->after[0]) b->undropped[0] = attention_undropped;
    if (!c->is_parallel && !names->after[1] && !has_experts) b->undropped[1] = mlp_undropped;
    bool ok = norm_add(m, names->before[0], c, make, &b->before[0]) &&
              module_child(m, &b->layer[0], names->attention, attention_new(c, make, &residual, layer)) &&
              norm_add(m, names->after[0], c, make, &b->after[0]) &&
              norm_add(m, names->before[1], c, make, &b->before[1]) &&
              module_child(m, &b->layer[1], names->mlp,
                           has_experts ? experts_make(c, make, &residual) : mlp_make(c, make, &residual, c->ff)) &&
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
    bool ok = function_passing(watch_back, (void *)(uintptr_t)w, y, &out, 1) && w->leave(w->context);
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
    struct stream s = {.x = tl_keep(x), .parallel = &m->parallel};
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
    tl_tensor *y = ok ? stream_norm(&s, pass_is_last(m) ? m->norm : NULL) : NULL;
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
    bool grad = tl_set_grad_mode(false), ok = true;
    s->cache = cache;
    if (cache->view && cache->view->place) {
        s->token_position = cache->view->place;
        ok = cache_places_begin(cache, s->config.window);
    }
    tl_tensor *logits = !ok ? NULL : only_last ? lm_next(model, tokens) : lm_logits(model, tokens);
    cache_places_end(cache);
    s->cache = NULL;
    s->token_position = NULL;
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
    *tokens = attention_chunks(p->cp, *tokens);
    *targets = attention_chunks(p->cp, *targets);
    s->token_position = s->token_position ? attention_chunks(p->cp, s->token_position) : NULL;
    if (s->document_begin && !(s->document_begin = attention_chunks(p->cp, s->document_begin))) return false;
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

/* inputs: x (T,C), weight (V,C), targets (T) */
static bool row_loss(void *sum, tl_tensor **inputs, int n_inputs, tl_tensor **outputs, int n_outputs) {
    (void)n_inputs, (void)n_outputs;
    return (outputs[0] = tl_linear_cross_entropy(inputs[0], inputs[1], inputs[2], sum)) != NULL;
}

/* The op holds the gradients of its inputs until backward. That of a head that is trained is as large as the head, and
 * each row would have one: so it is recomputed then. */
tl_tensor *lm_row_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets) {
    struct model *s = model->state;
    if (!model_is_whole(model, "the losses of single rows") || !tokens_fit(s, tokens)) return NULL;
    tl_linear_cross_entropy_options sum = head_loss(s, false, true);
    tl_tensor *weight = tl_module_tensor(s->head, 0), *x = backbone(model, tokens, NULL);
    const int64_t B = tl_size(tokens, 0);
    tl_tensor **losses = memory_new((size_t)B * sizeof *losses);
    bool ok = x && (losses || error_memory((size_t)B * sizeof *losses, "the losses of rows"));
    for (int64_t b = 0; ok && b < B; b++) {
        tl_tensor *row = tl_select(x, 0, b), *ids = tl_select(targets, 0, b), *inputs[3] = {row, weight, ids};
        ok =
            row && ids &&
            (tl_needs_grad(weight) ? tl_checkpoint(row_loss, &sum, sizeof sum, TL_KEEP_INPUTS, inputs, 3, &losses[b], 1)
                                   : row_loss(&sum, inputs, 3, &losses[b], 1));
    }
    tl_tensor *all = ok ? tl_stack(losses, (int)B, 0) : NULL;
    memory_free(losses);
    return all;
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
    if (ok && architecture_learns_positions(c))
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
        attention_join(b->layer[ATTENTION], s);
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
