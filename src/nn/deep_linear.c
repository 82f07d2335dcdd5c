/* deep_linear.c: the teaching model: layers.0 ... layers.L-1, square and without bias, and a head of one output.
 * Everything about it can be computed by hand: L C^2 + C parameters, 2 B (L C^2 + C) FLOPs forward, twice that
 * backward. */
#include <stdio.h>

#include "nn/layers.h"
#include "nn/model.h"
#include "nn/module.h"

static tl_tensor *run_layer(void *context, int layer, tl_tensor *x) {
    tl_module *layers = context;
    return tl_module_forward(layers->children[layer], x);
}

/* x (B,C) -> (B) */
tl_tensor *deep_linear_logits(tl_module *model, tl_tensor *x) {
    const struct model *s = model->state;
    x = tl_checkpoint_layers(run_layer, s->blocks, (int)s->config.n_layers, s->policy, s->k, x);
    return tl_squeeze(tl_module_forward(s->head, x), -1);
}

tl_tensor *deep_linear_loss(tl_module *model, tl_tensor *x, tl_tensor *targets) {
    return tl_mse_loss(deep_linear_logits(model, x), targets, TL_REDUCE_MEAN);
}

/* Weights as PyTorch's Linear has them: of order 1/sqrt(C), so that depth and width leave the scale alone. */
bool deep_linear_fill(tl_module *m, const tl_model_config *c, tl_dtype dtype, tl_device *device) {
    struct model *s = m->state;
    struct make make = {dtype, device, -1, NULL, NULL};
    s->blocks = tl_module_add(m, "layers", tl_nn_list());
    for (int64_t l = 0; s->blocks && l < c->n_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "%lld", (long long)l);
        if (!tl_module_add(s->blocks, name, linear_make(&make, c->channels, c->channels, false, WHOLE))) return false;
    }
    s->head = s->blocks ? tl_module_add(m, "head", linear_make(&make, c->channels, 1, false, WHOLE)) : NULL;
    return s->head != NULL;
}
