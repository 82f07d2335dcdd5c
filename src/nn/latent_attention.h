/* latent_attention.h: queries, keys and values by way of narrow latents (DeepSeek-V2). */
#ifndef NN_LATENT_ATTENTION_H
#define NN_LATENT_ATTENTION_H

#include "nn/layers.h"
#include "tally.h"

struct latent {
    int64_t n_heads; /* of this process */
    int64_t head_size, rope_head, value_head, rank;
    double rope_base;
    tl_rope_scaling rope_scaling;
    tl_module *q, *q_down, *q_norm; /* q_down and q_norm NULL: q reads the token itself */
    tl_module *kv_down, *kv_norm, *kv;
};

/* x (B,T,H,D) with the channels of each head in the order 0, 2, 4, ..., 1, 3, 5, ...: rotary positions turn channel i
 * and i + D/2, and here they turn neighbours. Products of queries and keys stay what they are. */
tl_tensor *neighbours_apart(tl_tensor *x);

/* Adds the layers to an attention module. */
bool latent_add(tl_module *m, struct latent *l, const tl_model_config *c, const struct make *make);
/* What scores are multiplied by. */
double latent_scale(const tl_model_config *c);

/* x (B,T,C) or (B T,C) -> q, k, v (B,T,H,D), turned by positions (B,T), or from 0 on if they are NULL; values are
 * filled up with zeros to the size of a head. */
bool latent_read(const struct latent *l, tl_tensor *x, int64_t B, int64_t T, tl_tensor *positions, tl_tensor **part);
/* x (B,T,C) -> what the heads give (B,T,H,value_head), with the latents of earlier tokens in the cache. */
tl_tensor *latent_attend(const struct latent *l, const tl_cache *cache, int64_t layer, tl_tensor *x, int64_t B,
                         int64_t T, double scale);

#endif
