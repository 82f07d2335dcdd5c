#include "step/tuning.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

bool tuning_is_partial(const struct settings *s) { return *s->freeze || *s->train_only; }

bool tuning_check(const struct settings *s) {
    if (tuning_is_partial(s) && s->pp > 1)
        return error_set(TL_ERROR_USE,
                         "%s: stages of a pipeline send gradients through all layers, and some layers of this run "
                         "have none (need --pp 1)",
                         *s->freeze ? "freeze" : "train_only");
    return true;
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

bool tuning_begin(tl_module *model, const struct settings *s) {
    int n = 0, n_trained = 0;
    if (!tuning_is_partial(s)) return true;
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
