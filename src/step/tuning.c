#include "step/tuning.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "nn/adapter.h"
#include "nn/layers.h"

bool tuning_is_partial(const struct settings *s) { return *s->freeze || *s->train_only || s->lora; }

/* The setting that makes it so. */
static const char *reason_of(const struct settings *s) {
    return s->lora ? "lora" : *s->freeze ? "freeze" : "train_only";
}

/* The folder decides about everything but dropout. */
static bool adapter_check(const struct settings *s) {
    tl_adapter_options o;
    if (!adapter_read(s->adapter, &o)) return false;
    const double alpha = s->lora_alpha > 0 ? s->lora_alpha : 2 * (double)s->lora;
    const char *other = s->lora != o.rank                                         ? "lora"
                        : alpha != o.alpha                                        ? "lora_alpha"
                        : s->dora != o.has_magnitude                              ? "dora"
                        : strcmp(s->lora_targets, settings_usual("lora_targets")) ? "lora_targets"
                                                                                  : NULL;
    return !other || error_set(TL_ERROR_USE,
                               "%s: the adapter in %s has rank %" PRId64 ", alpha %g, %s, and layers of its own "
                               "(need --adapter alone)",
                               other, s->adapter, o.rank, o.alpha, o.has_magnitude ? "DoRA" : "no DoRA");
}

static bool lora_check(const struct settings *s) {
    if (*s->adapter && !adapter_check(s)) return false;
    if (!s->lora) {
        const char *unused = s->lora_alpha > 0                                         ? "lora_alpha"
                             : s->lora_dropout > 0                                     ? "lora_dropout"
                             : s->lora_base                                            ? "lora_base"
                             : s->dora                                                 ? "dora"
                             : strcmp(s->lora_targets, settings_usual("lora_targets")) ? "lora_targets"
                                                                                       : NULL;
        return !unused || error_set(TL_ERROR_USE, "%s: has no use without --lora RANK", unused);
    }
    if (*s->freeze || *s->train_only)
        return error_set(TL_ERROR_USE, "%s: --lora freezes the whole model and trains its adapters (need one of both)",
                         *s->freeze ? "freeze" : "train_only");
    static const char *const narrow[] = {"amp", "fp8", "fp4"}; /* they convert the operands of products themselves */
    for (int i = 0; s->lora_base && i < 3; i++)
        if (!strcmp(settings_choice(s, "recipe"), narrow[i]))
            return error_set(TL_ERROR_USE,
                             "lora_base: weights in blocks are multiplied in the parameters' dtype (need "
                             "--recipe bf16, bf16-lean, fp16 or fp32, not %s)",
                             narrow[i]);
    return !s->lora_base || s->tp == 1 ||
           error_set(TL_ERROR_USE, "lora_base: weights in blocks are not divided (need --tp 1, or no --lora-base)");
}

bool tuning_check(const struct settings *s) {
    if (tuning_is_partial(s) && s->pp > 1)
        return error_set(TL_ERROR_USE,
                         "%s: stages of a pipeline send gradients through all layers, and some layers of this run "
                         "have none (need --pp 1)",
                         reason_of(s));
    return lora_check(s);
}

/* Whether each pattern of a setting matches a name of the list. */
static bool patterns_match(const char *setting, const char *patterns, const tl_named_tensor *list, int n) {
    const char *item;
    for (size_t length; text_item(&patterns, &item, &length);) {
        bool is_found = false;
        for (int i = 0; i < n; i++)
            is_found = is_found || (!list[i].is_buffer && text_matches(item, length, list[i].name));
        if (!is_found)
            return error_set(TL_ERROR_USE,
                             "%s: the pattern \"%.*s\" matches no parameter (they are named like %s; `*` stands for "
                             "any characters)",
                             setting, (int)(length < 80 ? length : 80), item, n ? list[n - 1].name : "nothing");
    }
    return true;
}

static bool is_trained(const struct settings *s, const char *name) {
    return (!*s->train_only || text_matches_any(s->train_only, name)) && !text_matches_any(s->freeze, name);
}

/* Numbers of their own, so that the model's are those of a run without adapters. */
enum { STREAM_ADAPTER = 4 };

bool tuning_narrow(tl_module *part, const struct settings *s) {
    static const tl_format formats[] = {TL_FORMAT_COUNT, TL_MXFP8_E4M3, TL_MXFP4, TL_NVFP4, TL_NF4};
    return !s->lora_base || linear_set_format(part, formats[s->lora_base]);
}

bool tuning_adapt(tl_module *model, const struct settings *s) {
    if (!s->lora) return true;
    const tl_adapter_options options = {s->lora, s->lora_alpha > 0 ? s->lora_alpha : 2 * (double)s->lora,
                                        s->lora_dropout, s->dora, s->lora_targets};
    tl_generator before = tl_generator_get();
    tl_generator_set((tl_generator){settings_seed(s, s->seed_init), STREAM_ADAPTER, 0});
    bool ok = *s->adapter ? adapter_load(model, s->adapter, s->lora_dropout) : tl_model_add_adapter(model, &options);
    tl_generator_set(before);
    return ok;
}

bool tuning_begin(tl_module *model, const struct settings *s) {
    int n = 0, n_trained = 0;
    if (!tuning_is_partial(s)) return true;
    if (s->lora) return tuning_adapt(model, s);
    const tl_named_tensor *list = tl_module_list(model, &n);
    bool ok =
        list && patterns_match("freeze", s->freeze, list, n) && patterns_match("train_only", s->train_only, list, n);
    for (int i = 0; ok && i < n; i++) {
        if (list[i].is_buffer) continue;
        if (is_trained(s, list[i].name)) n_trained++;
        else ok = tl_requires_grad(list[i].tensor, false) != NULL;
    }
    return ok && (n_trained || error_set(TL_ERROR_USE, "freeze: no parameter of %s is left to train", s->model));
}

bool tuning_count(const struct settings *s, const tl_model_config *config, int64_t *n_trained) {
    *n_trained = tl_model_config_parameters(config);
    if (!tuning_is_partial(s)) return true;
    tl_module *model = tl_model_new(config, TL_F32, tl_device_find("meta"));
    int n = 0;
    const tl_named_tensor *list = model && tuning_begin(model, s) ? tl_module_list(model, &n) : NULL;
    *n_trained = 0;
    for (int i = 0; list && i < n; i++)
        if (!list[i].is_buffer && tl_needs_grad(list[i].tensor)) *n_trained += tl_numel(list[i].tensor);
    tl_module_free(model);
    return list != NULL;
}
