/* experts.h: a mixture of experts in the place of an MLP, and the losses of its routers. */
#ifndef NN_EXPERTS_H
#define NN_EXPERTS_H

#include "nn/layers.h"
#include "nn/model.h"

/* `residual`: as `make`, for the layer that writes to the residual stream. */
tl_module *experts_make(const tl_model_config *c, const struct make *make, const struct make *residual);
/* The model whose routing the layer adds to. */
void experts_set_model(tl_module *m, struct model *model);

/* Sums over the layers of a pass, of rows of N tokens: (2 E + 1) numbers, those of each expert's probability, how many
 * tokens took it, and the square of the logits' logarithm of the sum of exponentials. Begin before the first layer; end
 * after the pass, also after a failure. */
bool routing_begin(struct model *s, tl_device *device);
void routing_end(struct model *s);
/* Whether the losses of routers are a part of the loss. */
bool routing_is_on(const struct model *s, const tl_module *model);
/* The sums become x, a tensor that somebody else owns. */
void routing_set(struct model *s, tl_tensor *x);
/* loss + balance E sum over experts of (share of choices) (mean probability) + z mean (lse^2), as Hugging Face's
 * library computes the first and Switch Transformers the second: over all tokens of all layers, n_rows in each, and of
 * all ranks of cp. */
tl_tensor *routing_loss(const struct model *s, tl_tensor *loss, int64_t n_rows);

#endif
