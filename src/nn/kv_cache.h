/* kv_cache.h: keys and values of tokens that a model has seen. See tally.h for what users see. */
#ifndef NN_KV_CACHE_H
#define NN_KV_CACHE_H

#include "tally.h"

struct tl_cache {
    const tl_module *model;
    int64_t batch, capacity, length; /* tokens of each row that there is room for, and that are there */
    tl_tensor *store;                /* (L, 2, B, capacity, Hkv, D) */
};

/* Attention of q (B,T,H,D) on what layer `layer` of the cache has and on k, v (B,T,Hkv,D), which are put behind it.
 * The cache's length does not change: all layers of a pass begin at the same place. */
tl_tensor *cache_attend(const tl_cache *cache, int64_t layer, tl_tensor *q, tl_tensor *k, tl_tensor *v);

/* As if one more token of every row were there: for what asks how much memory a text takes, and not which text it
 * is. */
void cache_pretend(tl_cache *cache);

#endif
