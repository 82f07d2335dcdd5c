/* kv_cache.c: a cache of keys and values, so that one more token costs one pass over them.
 *
 * Without a cache the n-th token of a text costs a forward pass over n tokens, and a text of T tokens O(T^2) of
 * them. A token's keys and values depend only on it and the tokens before it, so they are computed once and kept: L
 * layers x 2 x Hkv x D numbers per token, or L latents (latent_attention.c). The keys of a head follow each other,
 * since a token reads them head by head.
 *
 * Rows of different lengths (a view) are kept as they are, each from position 0 on. Whatever mixes tokens of a row,
 * positions and attention, runs for each span of rows of equal length; everything else runs for all rows at once. So
 * a row's sums have the order that they have without the others, and nothing is padded or masked.
 *
 * On a device that runs behind the host, a token of each row would have other shapes than the one before, so that its
 * calls could not be queued again as they are (engine/replay.h). There the lengths are in device memory, and the keys
 * behind a row's end are masked (places in kv_cache.h). */
#include "nn/kv_cache.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "nn/model.h"
#include "nn/module.h"
#include "ops/ops.h"

/* The dtype of keys and values, that of products. */
static tl_dtype product_dtype(tl_module *model) {
    tl_dtype autocast = tl_set_autocast(TL_DTYPE_COUNT);
    tl_set_autocast(autocast);
    const struct model *s = model->state;
    return autocast != TL_DTYPE_COUNT ? autocast : tl_dtype_of(tl_module_tensor(s->embedding, 0));
}

static bool store_make(tl_cache *cache, tl_module *model, const tl_model_config *c) {
    const struct model *s = model->state;
    tl_scope scope = tl_scope_enter("cache");
    if (!scope.depth) return false;
    const bool has_latents = c->kv_rank > 0;
    const int64_t heads = has_latents ? 1 : c->n_kv_heads,
                  width = has_latents ? c->kv_rank + c->rope_head : c->head_size;
    /* zeros: a key that a mask hides has the weight 0, and 0 times whatever memory holds may be NaN */
    tl_tensor *store = tl_zeros(TL_SHAPE(c->n_layers, has_latents ? 1 : 2, cache->batch, heads, cache->capacity, width),
                                product_dtype(model), tl_device_of(tl_module_tensor(s->embedding, 0)));
    cache->store = tl_keep(tl_set_purpose(store, TL_ACTIVATION));
    return tl_scope_end(scope) && cache->store;
}

tl_cache *tl_cache_new(tl_module *model, int64_t batch, int64_t capacity) {
    const tl_model_config *c = tl_model_config_of(model);
    if (!c || !model_speaks(model) || !model_is_whole(model, "a cache")) return NULL;
    if (batch < 1 || capacity < 1 || capacity > c->context) {
        error_set(
            TL_ERROR_USE,
            "tl_cache_new: %lld rows of %lld tokens (need at least one row, and 1 to %lld tokens, the model's context)",
            (long long)batch, (long long)capacity, (long long)c->context);
        return NULL;
    }
    tl_cache *cache = memory_new(sizeof *cache);
    if (!cache) {
        error_memory(sizeof *cache, "a cache");
        return NULL;
    }
    *cache = (tl_cache){.model = model, .batch = batch, .capacity = capacity};
    if (store_make(cache, model, c)) return cache;
    tl_cache_free(cache);
    return NULL;
}

void tl_cache_free(tl_cache *cache) {
    if (!cache) return;
    if (cache->store) tl_drop(cache->store);
    memory_free(cache);
}

int64_t tl_cache_length(const tl_cache *cache) { return cache ? cache->length : 0; }

bool tl_cache_cut(tl_cache *cache, int64_t length) {
    if (!cache || length < 0 || length > cache->length)
        return error_set(TL_ERROR_USE, "tl_cache_cut: %lld tokens of a cache that has %lld", (long long)length,
                         (long long)tl_cache_length(cache));
    cache->length = length;
    return true;
}

void cache_pretend(tl_cache *cache) { cache->length++; }

int64_t cache_n_spans(const tl_cache *cache) { return cache->view ? cache->view->n_spans : 1; }

struct cache_span cache_span_at(const tl_cache *cache, int64_t index) {
    return cache->view ? cache->view->spans[index] : (struct cache_span){0, cache->batch, 0, cache->length};
}

tl_tensor *cache_rows_of(const tl_cache *cache, struct cache_span span, tl_tensor *x) {
    return cache_n_spans(cache) == 1 ? x : tl_slice(x, 0, span.at, span.at + span.n, 1);
}

bool cache_takes_places(const tl_module *model) {
    const tl_model_config *c = &((const struct model *)model->state)->config;
    return c->kv_rank == 0 && c->positions != TL_POSITIONS_ALIBI;
}

/* Row i sees keys place[i] - window + 1 .. place[i]. */
bool cache_places_begin(tl_cache *cache, int64_t window) {
    tl_tensor *place = cache->view->place;
    tl_tensor *key = tl_arange(0, 1, cache->view->n_keys, TL_I64, tl_device_of(place));
    tl_tensor *is_seen = key ? tl_cmp(key, TL_LE, place) : NULL; /* (n,n_keys) */
    tl_tensor *is_near = is_seen && window ? tl_cmp(key, TL_GT, tl_add_scalar(place, tl_scalar_int(-window))) : is_seen;
    if (is_near && window) is_near = tl_logical_and(is_seen, is_near);
    cache->mask = is_seen ? tl_unsqueeze(tl_unsqueeze(is_seen, 1), 1) : NULL;
    cache->window_mask = is_near ? tl_unsqueeze(tl_unsqueeze(is_near, 1), 1) : NULL;
    return cache->mask && cache->window_mask;
}

void cache_places_end(tl_cache *cache) { cache->mask = cache->window_mask = NULL; }

/* x (n,1,Hkv,D) becomes the token at its row's place of all (n,Hkv,capacity,D). */
static bool put_at(tl_tensor *all, tl_tensor *place, tl_tensor *x) {
    if (!all || !x) return false;
    tl_tensor *index = tl_view(place, TL_SHAPE(tl_size(x, 0), 1, 1, 1));
    index = index ? tl_expand(index, TL_SHAPE(tl_size(x, 0), tl_size(x, 2), 1, tl_size(x, 3))) : NULL;
    return index && tl_scatter_(all, 2, index, tl_transpose(x, 1, 2));
}

/* cache_attend with places. */
static tl_tensor *attend_at_places(const tl_cache *cache, int64_t layer, struct cache_span span, tl_tensor *q,
                                   tl_tensor *k, tl_tensor *v, const struct cache_turn *turn,
                                   tl_attention_options options, tl_tensor **lse) {
    tl_tensor *all = tl_select(cache->store, 0, layer), *part[2], *seen[2], *place = cache->view->place;
    if (all && span.n != cache->batch) all = tl_slice(all, 1, span.row, span.row + span.n, 1); /* (2,n,Hkv,S,D) */
    for (int i = 0; i < 2; i++) {
        part[i] = all ? tl_select(all, 0, i) : NULL;
        seen[i] = part[i] ? tl_transpose(tl_slice(part[i], 2, 0, cache->view->n_keys, 1), 1, 2) : NULL;
    }
    if (!seen[0] || !seen[1]) return NULL;
    if (turn) q = rope_put(q, k, v, all, place, turn->base, &turn->scaling);
    else if (!put_at(part[0], place, k) || !put_at(part[1], place, v)) return NULL;
    options.mask = options.window ? cache->window_mask : cache->mask;
    options.window = 0;
    options.causal = false;
    return q ? tl_attention(q, seen[0], seen[1], &options, lse) : NULL;
}

/* Tokens from .. end-1 of the keys (0) or values (1) of a layer, for the rows of a span: (n, end - from, Hkv, D) */
static tl_tensor *part(const tl_cache *cache, int64_t layer, int64_t which, struct cache_span span, int64_t from,
                       int64_t end) {
    tl_tensor *all = tl_select(tl_select(cache->store, 0, layer), 0, which);
    if (span.n != cache->batch) all = tl_slice(all, 0, span.row, span.row + span.n, 1);
    return tl_transpose(tl_slice(all, 2, from, end, 1), 1, 2);
}

tl_tensor *cache_attend(const tl_cache *cache, int64_t layer, struct cache_span span, tl_tensor *q, tl_tensor *k,
                        tl_tensor *v, const struct cache_turn *turn, tl_attention_options options, tl_tensor **lse) {
    if (!q || !k) return NULL;
    if (cache->mask) return attend_at_places(cache, layer, span, q, k, v, turn, options, lse);
    int64_t T = tl_size(q, 1), from = span.length, n = from + T;
    if (!tl_copy_(part(cache, layer, 0, span, from, n), k) || (v && !tl_copy_(part(cache, layer, 1, span, from, n), v)))
        return NULL;
    tl_tensor *keys = part(cache, layer, 0, span, 0, n), *values = v ? part(cache, layer, 1, span, 0, n) : keys;
    options.causal = T > 1 || options.window; /* a single query without a window sees all keys */
    return tl_attention(q, keys, values, &options, lse);
}
