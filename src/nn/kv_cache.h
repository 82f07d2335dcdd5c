/* kv_cache.h: keys and values of tokens that a model has seen. tally.h has the public interface. */
#ifndef NN_KV_CACHE_H
#define NN_KV_CACHE_H

#include "tally.h"

/* Rows of a pass that have equally many tokens in the cache, and follow each other in it: rows at .. at + n - 1 of the
 * pass are rows row .. row + n - 1 of the cache. */
struct cache_span {
    int64_t at, n, row, length;
};

/* Which rows of the cache a pass extends; all of them, and at equal lengths, where there is no view.
 *
 * A pass over one token of each row may have its lengths in device memory instead, `place` (n_rows,1) i64, which are
 * the places of the tokens: rows row .. row + n_rows - 1 of the cache, one span, of whatever lengths. Its calls are
 * then the same for every token, with as many keys, n_keys, as the longest row may need, and a mask. */
struct cache_view {
    const struct cache_span *spans;
    int64_t n_spans, n_rows;
    tl_tensor *place; /* NULL: spans have the lengths */
    int64_t n_keys;
};

struct tl_cache {
    const tl_module *model;
    int64_t batch, capacity, length; /* capacity, length: tokens of each row; with a view, its spans have the lengths */
    const struct cache_view *view;   /* during a pass over some rows; NULL otherwise */
    tl_tensor *mask, *window_mask;   /* during a pass with places: the keys that rows see (n,1,1,n_keys) */
    tl_tensor *store;                /* (L, 2, B, Hkv, capacity, D); of latents (L, 1, B, 1, capacity, rank + R) */
};

enum { MOST_SPANS = 256 }; /* that a pass attends to one by one */
/* The spans of a pass, in the order of its rows; index 0 .. cache_n_spans - 1. */
int64_t cache_n_spans(const tl_cache *cache);
struct cache_span cache_span_at(const tl_cache *cache, int64_t index);
/* x (B, ...) of a pass: the rows of a span; x itself if these are all. */
tl_tensor *cache_rows_of(const tl_cache *cache, struct cache_span span, tl_tensor *x);

/* Rotary positions that are left to the cache (rope_put in ops/ops.h). */
struct cache_turn {
    double base;
    tl_rope_scaling scaling;
};

/* Attention of q (n,T,H,D), the rows of a span, on layer `layer` of the cache and on k, v (n,T,Hkv,D), which are
 * appended to it; v NULL: the keys are the values. `turn`, in a pass with places: how q and k turn; NULL: they have
 * turned. `options` but for causal. The lengths do not change: all layers of a pass begin at the same positions. */
tl_tensor *cache_attend(const tl_cache *cache, int64_t layer, struct cache_span span, tl_tensor *q, tl_tensor *k,
                        tl_tensor *v, const struct cache_turn *turn, tl_attention_options options, tl_tensor **lse);

/* Whether a pass may have its places in device memory: not where positions of keys are numbers of their own (ALiBi),
 * and not over latents. */
bool cache_takes_places(const tl_module *model);
/* Before and after a pass with places; `window`: of the layers that have one, 0 for none. */
bool cache_places_begin(tl_cache *cache, int64_t window);
void cache_places_end(tl_cache *cache);

/* As if one more token of every row were cached: for callers that need the memory of a text, not its contents. */
void cache_pretend(tl_cache *cache);

#endif
