/* weights.c: a model's parameters from and to files of Hugging Face's library.
 *
 * Names in the tree are the files' names. Three things differ: GPT-2's linear weights are transposed in files (its
 * layer was called Conv1D and holds (in, out)); files of a bare model lack the first part of every name ("h.0..."
 * for "transformer.h.0..."); and the matrices of all experts are one parameter here, "experts.w1.weight" (E,out,in),
 * and one tensor each in files, "experts.0.w1.weight" and so on. A model may be split into several files with an
 * index of which tensor is in which; the names of these files are untrusted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "file/safetensors.h"
#include "nn/adapter.h"
#include "nn/architecture.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/module.h"
#include "tally.h"

#define LARGEST_INDEX ((size_t)64 << 20)
#define MAX_FILES 1000

struct weights { /* open files, and their name in messages */
    const char *path;
    int n_files;
    tl_safetensors *files[MAX_FILES];
};

static void weights_close(struct weights *w) {
    for (int i = 0; i < w->n_files; i++) tl_safetensors_close(w->files[i]);
}

/* ---- Which files ---- */

struct visit { /* of each file that has weights */
    bool (*see)(const char *path, const char *name, void *context);
    void *context;
};

/* Each file that the index's weight_map names, once. `path`: the index's. */
static bool see_mapped(const struct visit *v, const char *folder, const char *path, json_t *map) {
    const char *key;
    json_t *value, *seen = json_object();
    bool ok = seen != NULL || error_memory(64, "an index");
    json_object_foreach(map, key, value) {
        const char *name = json_string_value(value);
        if (!ok) break;
        if (!name || !*name || strchr(name, '/') || !strcmp(name, ".."))
            ok = error_set(TL_ERROR_USE, "%s: \"%s\" is not in a file beside the index", path, key);
        if (!ok || json_object_get(seen, name)) continue;
        char *file = file_join(folder, name);
        ok = file && v->see(file, name, v->context) && json_object_set_new(seen, name, json_true()) == 0;
        memory_free(file);
    }
    json_decref(seen);
    return ok;
}

static bool see_index(const struct visit *v, const char *folder, const char *path) {
    json_t *root = json_read(path, LARGEST_INDEX);
    if (!root) return false;
    json_t *map = json_object_get(root, "weight_map");
    bool ok = json_is_object(map) ? see_mapped(v, folder, path, map)
                                  : error_set(TL_ERROR_USE, "%s: has no \"weight_map\" object", path);
    json_decref(root);
    return ok;
}

static bool is_there(const char *path) {
    struct stat status;
    return stat(path, &status) == 0;
}

bool model_files(const char *path, bool (*see)(const char *path, const char *name, void *context), void *context) {
    static const char name[] = "model.safetensors";
    const struct visit v = {see, context};
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return see(path, name, context);
    char *single = file_join(path, name), *index = file_join(path, "model.safetensors.index.json");
    bool ok = single && index;
    if (ok && is_there(single)) ok = see(single, name, context);
    else if (ok && is_there(index)) ok = see_index(&v, path, index);
    else if (ok)
        ok = error_set(TL_ERROR_IO, "%s: has neither model.safetensors nor model.safetensors.index.json", path);
    memory_free(single);
    memory_free(index);
    return ok;
}

/* ---- Opening and reading them ---- */

static bool open_one(const char *path, const char *name, void *context) {
    struct weights *w = context;
    (void)name;
    if (w->n_files == MAX_FILES) return error_set(TL_ERROR_USE, "%s: names more than %d files", w->path, MAX_FILES);
    tl_safetensors *file = tl_safetensors_open(path);
    if (file) w->files[w->n_files++] = file;
    return file != NULL;
}

static tl_tensor *weights_get(struct weights *w, const char *name) {
    for (int i = 0; i < w->n_files; i++)
        if (tl_safetensors_find(w->files[i], name) >= 0) return tl_safetensors_get(w->files[i], name);
    return NULL;
}

/* GPT-2's linear layers are the only ones called c_something. */
static bool is_transposed(const tl_model_config *c, const char *name) {
    const char *dot = strrchr(name, '.'), *part = dot;
    if (!architecture_of(c)->is_transposed || !dot || strcmp(dot, ".weight")) return false;
    while (part > name && part[-1] != '.') part--;
    return part[0] == 'c' && part[1] == '_';
}

/* ---- Experts ---- */

enum { MOST_NAME = 512 };

/* How many tensors of files a parameter is. */
static int64_t n_tensors(const tl_model_config *c, const tl_named_tensor *x) {
    bool is_one = !c->n_experts || tl_rank(x->tensor) != 3 || architecture_of(c)->are_experts_packed;
    return is_one ? 1 : c->n_experts;
}

/* The name in files of the one of expert e: its number behind "experts.". */
static bool expert_name(const tl_model_config *c, const char *name, int64_t e, char text[MOST_NAME]) {
    const char *list = architecture_of(c)->names->experts, *at = strstr(name, list);
    int head = at ? (int)(at - name + (int)strlen(list)) : 0;
    int length = at ? snprintf(text, MOST_NAME, "%.*s.%lld%s", head, name, (long long)e, name + head) : MOST_NAME;
    return length < MOST_NAME || error_set(TL_ERROR_USE, "model: the name \"%.80s\" is too long for an expert's", name);
}

/* Calls `see` with each of the tensors that a parameter is in files: itself, or a part for each expert. */
static bool each_tensor(struct weights *w, const tl_model_config *c, const tl_named_tensor *to,
                        bool (*see)(struct weights *w, const tl_model_config *c, const tl_named_tensor *to)) {
    char name[MOST_NAME];
    if (n_tensors(c, to) == 1) return see(w, c, to);
    tl_shard shard = to->shard ? *to->shard : (tl_shard){0};
    const bool has_some = to->shard && shard.axis == 0; /* of the experts */
    shard.axis--;                                       /* of one expert's matrix */
    const int64_t first = has_some ? shard.from : 0, last = has_some ? shard.to : c->n_experts;
    for (int64_t e = first; e < last; e++) {
        tl_named_tensor part = *to;
        part.name = name;
        part.shard = to->shard && !has_some ? &shard : NULL;
        part.tensor = tl_select(to->tensor, 0, e - first);
        if (!part.tensor || !expert_name(c, to->name, e, name) || !see(w, c, &part)) return false;
    }
    return true;
}

/* Whether x has the shape of the whole parameter. */
static bool has_shape_of(const tl_tensor *x, const tl_named_tensor *to) {
    int64_t shape[TL_MAX_RANK];
    bool same = tl_rank(x) == tl_rank(to->tensor);
    shard_whole_shape(to->shard, to->tensor, shape);
    for (int i = 0; same && i < tl_rank(x); i++) same = tl_size(x, i) == shape[i];
    return same;
}

/* The tensor of the files for a parameter, in the shape of the whole. NULL: recorded. */
static tl_tensor *weights_find(struct weights *w, const tl_model_config *c, const tl_named_tensor *to) {
    /* its name; without the first part; and inside a model of images, older and newer */
    const char *bare = strchr(to->name, '.');
    char inside[2][MOST_NAME];
    snprintf(inside[0], MOST_NAME, "language_model.%s", to->name);
    snprintf(inside[1], MOST_NAME, "model.language_model.%s", bare ? bare + 1 : to->name);
    const char *const names[] = {to->name, bare ? bare + 1 : to->name, inside[0], inside[1]};
    tl_tensor *x = NULL;
    for (size_t i = 0; !x && i < sizeof names / sizeof *names && tl_error() == TL_OK; i++) x = weights_get(w, names[i]);
    if (tl_error() != TL_OK) return NULL;
    if (!x) return error_set(TL_ERROR_USE, "%s: has no tensor \"%s\"", w->path, to->name), NULL;
    if (is_transposed(c, to->name) && tl_rank(x) == 2) x = tl_transpose(x, 0, 1);
    if (!x || has_shape_of(x, to)) return x;
    char got[128], need[128];
    tl_describe(x, got, sizeof got);
    tl_describe(to->tensor, need, sizeof need);
    return error_set(TL_ERROR_USE, "%s: \"%s\" is %s (need %s)", w->path, to->name, got, need), NULL;
}

static bool is_found(struct weights *w, const tl_model_config *c, const tl_named_tensor *to) {
    return weights_find(w, c, to) != NULL;
}

static bool load_one(struct weights *w, const tl_model_config *c, const tl_named_tensor *to) {
    tl_tensor *x = weights_find(w, c, to);
    return x && shard_fill(to->shard, to->tensor, tl_cast(x, tl_dtype_of(to->tensor)));
}

/* A weight in blocks, from its tensor "X.weight" of files. */
static bool load_blocks(struct weights *w, const tl_model_config *c, const tl_named_tensor *to) {
    char name[MOST_NAME];
    size_t length;
    tl_named_tensor whole = *to;
    tl_module *layer = adapter_layer(to, &length);
    if (!layer) return true; /* its scales: the values bring them */
    if (snprintf(name, sizeof name, "%.*s.weight", (int)length, to->name) >= MOST_NAME)
        return error_set(TL_ERROR_USE, "model: the name \"%.80s\" is too long", to->name);
    whole.name = name;
    tl_tensor *x = weights_find(w, c, &whole);
    return x && linear_fill_blocks(layer, x);
}

/* ---- Before anything is made ---- */

static int64_t weights_numbers(const struct weights *w) {
    int64_t total = 0;
    for (int f = 0; f < w->n_files; f++) total += safetensors_numbers(w->files[f]);
    return total;
}

bool model_numbers_suffice(const tl_model_config *c, int64_t have, const char *where) {
    int64_t need = tl_model_config_parameters(c);
    return need <= have || error_set(TL_ERROR_USE,
                                     "%s: has %lld numbers, and the model of config.json takes %lld (need the weights "
                                     "of this config, or the config of these weights)",
                                     where, (long long)have, (long long)need);
}

/* On meta the model has shapes and takes no memory. */
static bool shapes_match(struct weights *w, const tl_model_config *c) {
    tl_device *meta = tl_device_find("meta");
    tl_module *model = meta ? tl_model_new(c, TL_F32, meta) : NULL;
    int n = 0;
    const tl_named_tensor *list = model ? tl_module_list(model, &n) : NULL;
    bool ok = list != NULL;
    for (int i = 0; ok && i < n; i++) {
        tl_scope scope = tl_scope_begin();
        ok = each_tensor(w, c, &list[i], is_found);
        ok = tl_scope_end(scope) && ok;
    }
    tl_module_free(model);
    return ok;
}

bool model_weights_fit(const tl_model_config *c, const char *path) {
    struct weights *w = memory_new(sizeof *w);
    if (!w) return error_memory(sizeof *w, "weights");
    w->path = path;
    w->n_files = 0;
    bool ok = model_files(path, open_one, w), mode = tl_set_grad_mode(false);
    ok = ok && model_numbers_suffice(c, weights_numbers(w), path) && shapes_match(w, c);
    tl_set_grad_mode(mode);
    weights_close(w);
    memory_free(w);
    return ok;
}

static bool has_no_adapter(const tl_module *model, const char *what) {
    return !((const struct model *)model->state)->adapter.rank ||
           error_set(TL_ERROR_USE, "%s: the model has an adapter (need tl_model_merge_adapter first)", what);
}

bool tl_model_load(tl_module *model, const char *path) {
    const tl_model_config *c = tl_model_config_of(model);
    int n = 0;
    const tl_named_tensor *list = c ? tl_module_list(model, &n) : NULL;
    if (!list || !has_no_adapter(model, "tl_model_load")) return false;
    if (!path) return error_set(TL_ERROR_USE, "tl_model_load: got NULL instead of a path");
    struct weights *w = memory_new(sizeof *w);
    if (!w) return error_memory(sizeof *w, "weights");
    w->path = path;
    w->n_files = 0;
    bool ok = model_files(path, open_one, w), mode = tl_set_grad_mode(false);
    for (int i = 0; ok && i < n; i++) {
        tl_scope scope = tl_scope_begin();
        const bool has_blocks = list[i].owner->parent && linear_blocks(list[i].owner->parent) == list[i].owner;
        ok = has_blocks ? load_blocks(w, c, &list[i]) : each_tensor(w, c, &list[i], load_one);
        ok = tl_scope_end(scope) && ok;
    }
    tl_set_grad_mode(mode);
    weights_close(w);
    memory_free(w);
    return ok;
}

/* The tensors of a file, and their names, of which those of experts are made here. */
struct saving {
    const tl_model_config *config;
    const char **names;
    tl_tensor **tensors;
    char (*made)[MOST_NAME];
    int n, n_made;
};

static bool saving_add(struct saving *s, const tl_named_tensor *x) {
    if (n_tensors(s->config, x) == 1) {
        s->names[s->n] = x->name;
        s->tensors[s->n] = is_transposed(s->config, x->name) ? tl_transpose(x->tensor, 0, 1) : x->tensor;
        return s->tensors[s->n++] != NULL;
    }
    for (int64_t e = 0; e < s->config->n_experts; e++) {
        char *name = s->made[s->n_made++];
        s->names[s->n] = name;
        s->tensors[s->n] = tl_select(x->tensor, 0, e);
        if (!expert_name(s->config, x->name, e, name) || !s->tensors[s->n++]) return false;
    }
    return true;
}

static bool save_tensors(const tl_model_config *c, const tl_named_tensor *list, int n, struct file_place at) {
    size_t total = 1, n_made = 1;
    for (int i = 0; i < n; i++) {
        size_t each = (size_t)n_tensors(c, &list[i]);
        total += each;
        if (each > 1) n_made += each;
    }
    struct saving s = {.config = c,
                       .names = memory_new(total * sizeof *s.names),
                       .tensors = memory_new(total * sizeof *s.tensors),
                       .made = memory_new(n_made * sizeof *s.made)};
    bool ok = s.names && s.tensors && s.made, mode = tl_set_grad_mode(false);
    if (!ok) error_memory(total * sizeof *s.names, "weights");
    tl_scope scope = tl_scope_begin();
    for (int i = 0; ok && i < n; i++) ok = saving_add(&s, &list[i]);
    static const char *const key = "format", *const value = "pt"; /* without it the library rejects the file */
    ok = ok && safetensors_save_at(at, s.names, s.tensors, s.n, &key, &value, 1);
    ok = tl_scope_end(scope) && ok;
    tl_set_grad_mode(mode);
    memory_free(s.names);
    memory_free(s.tensors);
    memory_free(s.made);
    return ok;
}

bool model_save_in(const tl_model_config *config, const tl_named_tensor *list, int n,
                   const struct file_folder *folder) {
    return model_config_write_at(config, file_in(folder, "config.json")) &&
           save_tensors(config, list, n, file_in(folder, "model.safetensors"));
}

static bool save(const tl_model_config *c, const tl_named_tensor *list, int n, const char *folder) {
    char *config = file_join(folder, "config.json"), *weights = file_join(folder, "model.safetensors");
    bool ok = config && weights && file_make_folder(folder) && model_config_write_at(c, file_path(config)) &&
              save_tensors(c, list, n, file_path(weights));
    memory_free(config);
    memory_free(weights);
    return ok;
}

/* Of ranks that share the model, the first one writes. */
bool tl_model_save(tl_module *model, const char *folder) {
    const tl_model_config *c = tl_model_config_of(model);
    struct joined whole = {0};
    int n = 0;
    const tl_named_tensor *list = c ? tl_module_list(model, &n) : NULL;
    if (!list || !has_no_adapter(model, "tl_model_save")) return false;
    if (!folder) return error_set(TL_ERROR_USE, "tl_model_save: got NULL instead of a folder");
    const struct parallel *p = &((const struct model *)model->state)->parallel;
    if (!p->tp && !p->pp && !p->ep) return save(c, list, n, folder);
    bool ok = joined_make(&whole, list, n), is_first = tl_comm_rank(p->tp) == 0 && tl_comm_rank(p->ep) == 0;
    if (ok && is_first) ok = joined_collect(&whole, model_shared_name(model), p->pp);
    ok = ok && (!is_first || !p->is_first || save(c, whole.list, whole.n, folder));
    joined_free(&whole);
    return ok;
}
