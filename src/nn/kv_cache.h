/* kv_cache.h: keys and values of tokens that a model has seen. tally.h has the public interface. */
#ifndef NN_KV_CACHE_H
#define NN_KV_CACHE_H

#include "tally.h"

struct tl_cache {
    const tl_module *model;
    int64_t batch, capacity, length; /* capacity, length: tokens of each row */
    tl_tensor *store;                /* (L, 2, B, capacity, Hkv, D) */
};

/* Attention of q (B,T,H,D) on layer `layer` of the cache and on k, v (B,T,Hkv,D), which are appended to it. The
 * cache's length does not change: all layers of a pass begin at the same position. */
tl_tensor *cache_attend(const tl_cache *cache, int64_t layer, tl_tensor *q, tl_tensor *k, tl_tensor *v);

/* As if one more token of every row were cached: for callers that need the memory of a text, not its contents. */
void cache_pretend(tl_cache *cache);

#endif
