#include "step/groups.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "nn/model.h"
#include "step/tuning.h"
#include "tensor/tensor.h"

static bool group_refuse(const char *at, size_t length) {
    return error_set(TL_ERROR_USE,
                     "groups: \"%.*s\" is not PATTERN:lr=X,decay=Y, with numbers that are 0 or more "
                     "(for example --groups \"*norm*:decay=0;*embed*:lr=0.5\")",
                     (int)(length < 80 ? length : 80), at);
}

/* "lr=X,decay=Y", either or both. */
static bool group_read(const char *at, const char *end, struct group *g) {
    while (at < end) {
        const bool is_lr = !strncmp(at, "lr=", 3), is_decay = !strncmp(at, "decay=", 6);
        const char *from = at + (is_lr ? 3 : 6);
        char *after = NULL;
        if (!is_lr && !is_decay) return false;
        const double value = number_parse(from, &after);
        if (after == from || after > end || (after < end && *after != ',')) return false;
        if (!(value >= 0) || !isfinite(value)) return false;
        *(is_lr ? &g->lr : &g->decay) = value;
        at = after + (after < end);
        if (after < end && at == end) return false; /* a comma behind the last */
    }
    return true;
}

/* One entry, which begins at `at`; the next one is behind it. */
struct entry {
    const char *at;
    size_t length, pattern; /* of all of it, of the pattern */
};
static struct entry entry_at(const char *at) {
    const size_t length = strcspn(at, ";");
    const char *colon = memchr(at, ':', length);
    return (struct entry){at, length, colon ? (size_t)(colon - at) : 0};
}
static const char *entry_next(struct entry e) { return e.at + e.length + (e.at[e.length] == ';'); }

bool groups_find(const char *groups, const char *name, struct group *group) {
    *group = (struct group){.lr = 1, .decay = -1};
    int index = 0;
    for (const char *at = groups; *at;) {
        const struct entry e = entry_at(at);
        struct group own = {.lr = 1, .decay = -1, .index = ++index};
        if (!e.pattern || e.pattern + 1 == e.length) return group_refuse(e.at, e.length);
        if (!group_read(e.at + e.pattern + 1, e.at + e.length, &own)) return group_refuse(e.at, e.length);
        if (name && text_matches(e.at, e.pattern, name)) *group = own;
        at = entry_next(e);
    }
    return true;
}

bool groups_all_match(const char *groups, const char *const *names, int n) {
    for (const char *at = groups; *at;) {
        const struct entry e = entry_at(at);
        bool is_found = false;
        for (int i = 0; i < n; i++) is_found = is_found || text_matches(e.at, e.pattern, names[i]);
        if (!is_found)
            return error_set(
                TL_ERROR_USE,
                "groups: the pattern \"%.*s\" matches no parameter (they are named like %s; `*` stands for "
                "any characters)",
                (int)(e.pattern < 80 ? e.pattern : 80), e.at, n ? names[n - 1] : "nothing");
        at = entry_next(e);
    }
    return true;
}

bool groups_has_muon(const tl_module *model, const tl_tensor *parameter) {
    return parameter->rank == 2 && model_block_of(model, parameter) >= 0;
}

bool groups_count_muon(const struct settings *s, const tl_model_config *config, int64_t *n_muon) {
    tl_module *model = tl_model_new(config, TL_F32, tl_device_find("meta"));
    int n = 0;
    const tl_named_tensor *list = model && tuning_begin(model, s) ? tl_module_list(model, &n) : NULL;
    *n_muon = 0;
    for (int i = 0; list && i < n; i++)
        if (!list[i].is_buffer && tl_needs_grad(list[i].tensor) && groups_has_muon(model, list[i].tensor))
            *n_muon += list[i].tensor->numel;
    tl_module_free(model);
    return list != NULL;
}
