/* model.c: a model of any family, made from its numbers. */
#include "nn/model.h"

#include <math.h>

#include "base/error.h"
#include "base/text.h"
#include "comm/comm.h"
#include "device/devices.h"
#include "nn/architecture.h"
#include "nn/kv_cache.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

/* Its kind's architecture; NULL: recorded. */
static const struct architecture *family_of(const tl_module *model) {
    const tl_module_kind *kind = tl_module_kind_of(model);
    for (int i = 0; architecture_at(i); i++)
        if (kind == &architecture_at(i)->kind) return architecture_at(i);
    error_set(TL_ERROR_USE, "this module is not a model (need one from tl_model_new)");
    return NULL;
}

bool model_fits(const tl_model_config *c, int n_parts, tl_dtype dtype, const tl_device *device) {
    uint64_t have = device_memory_bytes(device);
    double need = (double)tl_model_config_parameters(c) * dtype_info(dtype)->bits / 8 / n_parts;
    char a[32], b[32];
    return !have || need <= (double)have ||
           error_set(TL_ERROR_MEMORY,
                     "model: %lld parameters in %s take %s, and %s has %s (need a smaller model or another device; "
                     "`tally plan` and the device meta take any size)",
                     (long long)tl_model_config_parameters(c), tl_dtype_name(dtype), bytes_text(need, a), device->name,
                     bytes_text((double)have, b));
}

/* Stages only send to each other, which opens no link between their devices (comm.h): all of them open it here. */
static bool stages_link(const struct parallel *p, const tl_device *device) {
    void *link;
    char error[COMM_ERROR] = "";
    if (!p->pp || p->pp->is_price || !device_has_data(device)) return true;
    return comm_link(p->pp, (tl_device *)(uintptr_t)device, true, &link, error) ||
           error_set(TL_ERROR_DEVICE, "pp: %s", error);
}

static void model_end(tl_module *m) { parallel_end(&((struct model *)m->state)->parallel); }

tl_module *tl_model_new(const tl_model_config *config, tl_dtype dtype, tl_device *device) {
    return tl_model_new_parallel(config, dtype, device, NULL);
}

tl_module *tl_model_new_parallel(const tl_model_config *config, tl_dtype dtype, tl_device *device,
                                 const tl_parallel *parallel) {
    return model_new(config, dtype, device, parallel, NULL);
}

tl_module *model_new(const tl_model_config *config, tl_dtype dtype, tl_device *device, const tl_parallel *parallel,
                     const struct block_maker *maker) {
    if (!tl_model_config_check(config)) return NULL;
    if ((unsigned)dtype > TL_BF16) {
        error_set(TL_ERROR_USE, "tl_model_new: parameters cannot be %s (need f64, f32, f16 or bf16)",
                  tl_dtype_name(dtype));
        return NULL;
    }
    const tl_device *place = device_or_default(device);
    int n_parts = parallel ? tl_comm_size(parallel->tp) * tl_comm_size(parallel->pp) : 1;
    if (!place || (!maker && !model_fits(config, n_parts, dtype, place))) return NULL;
    const struct architecture *family = architecture_of(config);
    tl_module *m = tl_module_new(&family->kind);
    if (!m) return NULL;
    struct model *s = m->state;
    s->config = *config;
    s->maker = maker;
    m->end = model_end;
    if (!parallel_begin(&s->parallel, config, parallel) || !stages_link(&s->parallel, place))
        return module_finish(m, false);
    tl_phase phase = tl_set_phase(TL_OTHER);
    tl_scope scope = tl_scope_enter("model");
    bool ok = scope.depth && tl_module_set_name(m, "model") &&
              (family->names ? lm_fill : deep_linear_fill)(m, config, dtype, device);
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    tl_set_phase(phase);
    s->maker = NULL;
    return module_finish(m, ok);
}

bool model_is_whole(const tl_module *model, const char *what) {
    const struct parallel *p = &((const struct model *)model->state)->parallel;
    return (!parallel_is_on(p) && !p->pp && !p->ep) ||
           error_set(
               TL_ERROR_USE,
               "model: %s of a model that %d processes share cannot be computed yet (need a model of one process: "
               "load the weights without tp, cp, pp and ep)",
               what, tl_comm_size(p->tp) * tl_comm_size(p->cp) * tl_comm_size(p->pp) * tl_comm_size(p->ep));
}

const tl_model_config *tl_model_config_of(const tl_module *model) {
    return family_of(model) ? &((const struct model *)model->state)->config : NULL;
}

bool tl_model_set_checkpointing(tl_module *model, tl_checkpoint_policy policy, int k) {
    if (!family_of(model)) return false;
    if (policy == TL_CHECKPOINT_EVERY_K && k < 1)
        return error_set(TL_ERROR_USE, "tl_model_set_checkpointing: groups of %d layers (need at least 1)", k);
    struct model *s = model->state;
    s->policy = policy;
    s->k = k;
    return true;
}

tl_tensor *tl_model_logits(tl_module *model, tl_tensor *tokens) {
    return family_of(model) ? tl_module_forward(model, tokens) : NULL;
}

tl_tensor *tl_model_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets) {
    const struct architecture *family = family_of(model);
    if (!family) return NULL;
    tl_scope scope = tl_scope_enter(model->scope_name);
    return scope.depth ? tl_scope_return(scope, (family->names ? lm_loss : deep_linear_loss)(model, tokens, targets))
                       : NULL;
}

tl_tensor *tl_model_document_logits(tl_module *model, tl_tensor *tokens, tl_tensor *begin) {
    if (!begin) return tl_model_logits(model, tokens);
    if (!model_speaks(model)) return NULL;
    tl_scope scope = tl_scope_enter(model->scope_name);
    if (!scope.depth) return NULL;
    tl_tensor *logits = lm_documents_begin(model, tokens, begin) ? lm_logits(model, tokens) : NULL;
    lm_documents_end(model);
    return tl_scope_return(scope, logits);
}

tl_tensor *tl_model_document_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *begin) {
    if (!begin) return tl_model_loss(model, tokens, targets);
    if (!model_speaks(model)) return NULL;
    tl_scope scope = tl_scope_enter(model->scope_name);
    if (!scope.depth) return NULL;
    tl_tensor *loss = lm_documents_begin(model, tokens, begin) ? lm_loss(model, tokens, targets) : NULL;
    lm_documents_end(model);
    return tl_scope_return(scope, loss);
}

tl_tensor *model_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *begin, const int64_t *from,
                        const int64_t *to) {
    if (!model_speaks(model)) return NULL;
    tl_scope scope = tl_scope_enter(model->scope_name);
    if (!scope.depth) return NULL;
    bool ok = !begin || lm_documents_begin(model, tokens, begin);
    tl_tensor *losses = ok ? lm_losses(model, tokens, targets, from, to) : NULL;
    lm_documents_end(model);
    return tl_scope_return(scope, losses);
}

tl_tensor *model_row_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets) {
    if (!model_speaks(model)) return NULL;
    tl_scope scope = tl_scope_enter(model->scope_name);
    return scope.depth ? tl_scope_return(scope, lm_row_losses(model, tokens, targets)) : NULL;
}

bool tl_model_set_router_losses(tl_module *model, double balance, double z) {
    const struct architecture *family = family_of(model);
    if (!family) return false;
    if (!(balance >= 0 && z >= 0 && isfinite(balance) && isfinite(z)))
        return error_set(TL_ERROR_USE, "tl_model_set_router_losses: weights of %g and %g (need 0 or more)", balance, z);
    struct model *s = model->state;
    if (!family->has_experts && (balance > 0 || z > 0))
        return error_set(TL_ERROR_USE,
                         "%s has no experts: losses of routers of weight %g and %g are of nothing (need a model with "
                         "experts, or --router-aux-loss 0 --router-z-loss 0)",
                         family->kind.name, balance, z);
    if ((balance > 0 || z > 0) && s->parallel.pp)
        return error_set(TL_ERROR_USE,
                         "model: the losses of routers need those of all layers, which stages of a pipeline divide "
                         "(need --pp 1, or --router-aux-loss 0 --router-z-loss 0)");
    s->balance_weight = balance;
    s->router_z_weight = z;
    return true;
}

bool tl_model_set_head_loss(tl_module *model, double label_smoothing, double z_loss) {
    const struct architecture *family = family_of(model);
    if (!family) return false;
    if (!(label_smoothing >= 0 && label_smoothing <= 1 && z_loss >= 0 && isfinite(z_loss)))
        return error_set(TL_ERROR_USE,
                         "tl_model_set_head_loss: label smoothing of %g and a z loss of weight %g (need 0 to 1, and 0 "
                         "or more)",
                         label_smoothing, z_loss);
    if (!family->names && (label_smoothing > 0 || z_loss > 0))
        return error_set(TL_ERROR_USE, "%s has no classes: label smoothing and a z loss mean nothing (need 0)",
                         family->kind.name);
    struct model *s = model->state;
    s->label_smoothing = label_smoothing;
    s->z_loss = z_loss;
    return true;
}

bool model_speaks(const tl_module *model) {
    const struct architecture *family = family_of(model);
    return family && (family->names || error_set(TL_ERROR_USE, "%s has no next token", family->kind.name));
}

tl_tensor *tl_model_next(tl_module *model, tl_tensor *tokens, tl_cache *cache) {
    if (!model_speaks(model)) return NULL;
    tl_scope scope = tl_scope_enter(model->scope_name);
    if (!scope.depth) return NULL;
    return tl_scope_return(scope, cache ? lm_extend(model, tokens, cache, true) : lm_next(model, tokens));
}

tl_tensor *model_next_of(tl_module *model, tl_tensor *tokens, tl_cache *cache, const struct cache_view *view) {
    cache->view = view;
    tl_tensor *logits = tl_model_next(model, tokens, cache);
    cache->view = NULL;
    return logits;
}

tl_tensor *tl_model_extend(tl_module *model, tl_tensor *tokens, tl_cache *cache) {
    if (!model_speaks(model)) return NULL;
    if (!cache) {
        error_set(TL_ERROR_USE, "tl_model_extend: got NULL instead of a cache");
        return NULL;
    }
    tl_scope scope = tl_scope_enter(model->scope_name);
    return scope.depth ? tl_scope_return(scope, lm_extend(model, tokens, cache, false)) : NULL;
}
