/* self_attention.h: the attention of a transformer's block, as a module. */
#ifndef NN_SELF_ATTENTION_H
#define NN_SELF_ATTENTION_H

#include "nn/model.h"

struct make;
struct model;

/* Of layer `layer` of a model, under the family's names; `residual`: how the product that ends it is made. NULL:
 * recorded. */
tl_module *attention_new(const tl_model_config *c, const struct make *make, const struct make *residual, int64_t layer);
/* Its result before dropout, whose probability now is *dropout. */
tl_tensor *attention_undropped(tl_module *attention, tl_tensor *x, double *dropout);
/* Its model, whose cache and documents it uses. */
void attention_join(tl_module *attention, const struct model *model);
/* x (B,T,...) of whole rows: the tokens of this rank of cp, its two chunks. */
tl_tensor *attention_chunks(const tl_comm *cp, tl_tensor *x);

#endif
