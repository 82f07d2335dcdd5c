#include "nn/adapter.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/module.h"

/* ---- Numbers ---- */

/* The scale is applied where it is cheapest, between the two. */
tl_tensor *adapter_product(const struct adapter *a, tl_tensor *x) {
    tl_tensor *y = tl_module_forward(a->a, x); /* (...,r) */
    if (y && a->scale != 1) y = tl_mul_scalar(y, tl_scalar_float(a->scale));
    return y ? tl_module_forward(a->b, y) : NULL;
}

/* W + s B A in f32. */
static tl_tensor *plain_sum(const struct adapter *a, tl_tensor *weight) {
    tl_tensor *down = tl_cast(tl_module_tensor(a->a, 0), TL_F32), *up = tl_cast(tl_module_tensor(a->b, 0), TL_F32);
    tl_tensor *product = down && up ? tl_matmul(up, down) : NULL;
    product = product ? tl_mul_scalar(product, tl_scalar_float(a->scale)) : NULL;
    return product ? tl_add(tl_cast(weight, TL_F32), product) : NULL;
}

tl_tensor *adapter_norms(tl_tensor *weight, tl_comm *columns) {
    static const int axis = 1;
    tl_tensor *norms = weight ? tl_norm(weight, 2, &axis, 1, false) : NULL;
    if (!columns || !norms) return norms;
    tl_tensor *squares = tl_square(norms);
    squares = squares ? tl_all_reduce(squares, columns) : NULL;
    return squares ? tl_sqrt(squares) : NULL;
}

tl_tensor *adapter_factor(const struct adapter *a, tl_tensor *weight, tl_tensor *magnitude, tl_dtype dtype) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    bool grad = tl_set_grad_mode(false);
    tl_dtype autocast = tl_set_autocast(TL_DTYPE_COUNT); /* norms are f32's whatever products are */
    tl_tensor *norms = adapter_norms(plain_sum(a, weight), a->columns);
    tl_set_grad_mode(grad);
    tl_tensor *factor = norms ? tl_div(tl_cast(magnitude, TL_F32), norms) : NULL;
    factor = factor ? tl_cast(factor, dtype) : NULL;
    tl_set_autocast(autocast);
    return tl_scope_return(scope, factor);
}

tl_tensor *adapter_sum(const struct adapter *a, tl_tensor *weight, tl_tensor *magnitude) {
    tl_tensor *sum = plain_sum(a, weight), *norms = sum && magnitude ? adapter_norms(sum, a->columns) : NULL;
    if (!magnitude || !norms) return magnitude ? NULL : sum;
    return tl_mul(sum, tl_unsqueeze(tl_div(tl_cast(magnitude, TL_F32), norms), 1));
}

/* ---- The layers of a model ---- */

/* The linear layers of the blocks, with their paths in the model. */
struct targets {
    struct target_layer {
        tl_module *layer;
        char *path;
    } * at;
    int n;
};

static void targets_free(struct targets *t) {
    for (int i = 0; i < t->n; i++) memory_free(t->at[i].path);
    memory_free(t->at);
    *t = (struct targets){0};
}

static bool ends_with(const char *name, size_t length, const char *end) {
    size_t n = strlen(end);
    return length > n && !memcmp(name + length - n, end, n);
}

tl_module *adapter_layer(const tl_named_tensor *x, size_t *length) {
    static const char weight[] = ".weight", blocks[] = ".weight_blocks.values";
    const size_t n = strlen(x->name);
    *length = n - (sizeof weight - 1);
    if (ends_with(x->name, n, weight)) return linear_is(x->owner) && !adapter_has(x) ? x->owner : NULL;
    *length = n - (sizeof blocks - 1);
    return ends_with(x->name, n, blocks) ? x->owner->parent : NULL;
}

static bool targets_find(struct targets *t, tl_module *model) {
    int n = 0;
    const tl_named_tensor *list = tl_module_list(model, &n);
    *t = (struct targets){.at = list ? memory_new(((size_t)n + 1) * sizeof *t->at) : NULL};
    if (!t->at) return list && error_memory((size_t)n * sizeof *t->at, "a list of layers");
    for (int i = 0; i < n; i++) {
        size_t length;
        tl_module *layer = adapter_layer(&list[i], &length);
        if (!layer || model_block_of(model, list[i].tensor) < 0) continue;
        char *path = module_text(list[i].name);
        if (!path) return targets_free(t), false;
        path[length] = 0;
        t->at[t->n++] = (struct target_layer){layer, path};
    }
    return true;
}

bool adapter_has(const tl_named_tensor *x) { return strstr(x->name, ".lora_") != NULL; }

/* An item of the targets: all of a path, or all behind a dot of it, as in PEFT. */
static bool item_matches(const char *item, size_t length, const char *path) {
    static const char all[] = "all-linear";
    if (length == sizeof all - 1 && !memcmp(item, all, length)) return true;
    bool matches = text_matches(item, length, path);
    for (const char *dot = path; !matches && (dot = strchr(dot, '.')); dot++)
        matches = text_matches(item, length, dot + 1);
    return matches;
}

static bool is_target(const char *targets, const char *path) {
    const char *item;
    for (size_t length; text_item(&targets, &item, &length);)
        if (item_matches(item, length, path)) return true;
    return false;
}

static bool targets_check(const struct targets *t, const char *targets) {
    const char *item, *at = targets;
    int n = 0;
    for (size_t length; text_item(&at, &item, &length); n++) {
        bool is_found = false;
        for (int i = 0; i < t->n; i++) is_found = is_found || item_matches(item, length, t->at[i].path);
        if (!is_found)
            return error_set(TL_ERROR_USE,
                             "adapter: the target \"%.*s\" matches no linear layer of the model's blocks (they are "
                             "named like %s; embeddings, head and experts take no adapters)",
                             (int)(length < 80 ? length : 80), item, t->n ? t->at[t->n - 1].path : "nothing");
    }
    return n > 0 || error_set(TL_ERROR_USE, "adapter: no targets (need all-linear, or names such as q_proj,v_proj)");
}

static bool options_check(tl_module *model, const tl_adapter_options *o) {
    if (!model_speaks(model)) return false;
    const struct model *s = model->state;
    if (!(o->rank >= 1 && o->rank <= 65536))
        return error_set(TL_ERROR_USE, "adapter: rank %lld (need 1 to 65536)", (long long)o->rank);
    if (!(o->alpha > 0 && isfinite(o->alpha)) || !(o->dropout >= 0 && o->dropout < 1))
        return error_set(TL_ERROR_USE, "adapter: alpha %g, dropout %g (need alpha above 0, and dropout from 0 to 1)",
                         o->alpha, o->dropout);
    if (s->adapter.rank)
        return error_set(TL_ERROR_USE, "adapter: the model has an adapter of rank %lld already",
                         (long long)s->adapter.rank);
    return !s->parallel.pp || model_is_whole(model, "adapters");
}

tl_adapter_options tl_adapter_defaults(void) {
    return (tl_adapter_options){.rank = 8, .alpha = 16, .targets = "all-linear"};
}

/* Only the adapter's parameters are trained. */
static bool rest_freeze(tl_module *model) {
    int n = 0;
    const tl_named_tensor *list = tl_module_list(model, &n);
    bool ok = list != NULL;
    for (int i = 0; ok && i < n; i++)
        if (!list[i].is_buffer && !adapter_has(&list[i])) ok = tl_requires_grad(list[i].tensor, false) != NULL;
    return ok;
}

bool adapter_add(tl_module *model, const tl_adapter_options *o, adapter_chooses is_chosen, const void *context) {
    struct targets all;
    if (!options_check(model, o) || !targets_find(&all, model)) return false;
    struct model *s = model->state;
    bool ok = !o->targets || targets_check(&all, o->targets);
    for (int i = 0; ok && i < all.n; i++)
        if (is_chosen(context, all.at[i].path)) ok = linear_adapt(all.at[i].layer, o, s->dtype);
    ok = ok && rest_freeze(model);
    for (int i = 0; !ok && i < all.n; i++) linear_unadapt(all.at[i].layer);
    if (ok) s->adapter = *o, s->adapter.targets = NULL; /* the layers themselves say it */
    targets_free(&all);
    return ok;
}

static bool is_named(const void *context, const char *path) { return is_target(context, path); }

bool tl_model_add_adapter(tl_module *model, const tl_adapter_options *options) {
    if (!options || !options->targets)
        return error_set(TL_ERROR_USE, "tl_model_add_adapter: got NULL instead of options or targets");
    return adapter_add(model, options, is_named, options->targets);
}

bool tl_model_merge_adapter(tl_module *model) {
    struct targets all;
    if (!model_speaks(model) || !targets_find(&all, model)) return false;
    bool ok = true, grad = tl_set_grad_mode(false);
    for (int i = 0; ok && i < all.n; i++) ok = linear_merge(all.at[i].layer);
    tl_set_grad_mode(grad);
    targets_free(&all);
    if (ok) ((struct model *)model->state)->adapter = (tl_adapter_options){0};
    return ok;
}

static void remove_below(tl_module *m) {
    if (linear_is(m)) linear_unadapt(m);
    else
        for (size_t i = 0; i < m->n_children; i++) remove_below(m->children[i]);
}

void adapter_remove(tl_module *model) {
    remove_below(model);
    ((struct model *)model->state)->adapter = (tl_adapter_options){0};
}

static void use_below(tl_module *m, bool on) {
    if (linear_is(m)) linear_adapter(m)->is_off = !on;
    else
        for (size_t i = 0; i < m->n_children; i++) use_below(m->children[i], on);
}

void tl_model_use_adapter(tl_module *model, bool on) {
    if (model) use_below(model, on);
}
