/* adapter_file.c: adapters from and to folders of PEFT.
 *
 * The tensors are named as in the model, behind "base_model.model."; they say which layers have adapters, so what the
 * configuration says of its targets is not read. Of the other keys, those that change numbers are used or must have
 * the value that changes nothing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "file/safetensors.h"
#include "nn/adapter.h"
#include "nn/architecture.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/module.h"
#include "tensor/device.h"

#define PREFIX "base_model.model."
enum { MOST_NAME = 512 };
#define LARGEST_CONFIG ((size_t)1 << 20)

/* ---- Writing ---- */

/* The layer of "a.b.lora_A.weight": "a.b", and its last part "b". */
static size_t layer_length(const char *name) { return (size_t)(strstr(name, ".lora_") - name); }
static size_t last_part(const char *name, size_t length) {
    size_t at = length;
    while (at > 0 && name[at - 1] != '.') at--;
    return at;
}

/* Whether all linear layers of the blocks with this last part have adapters. */
static bool part_is_whole(const tl_named_tensor *list, int n, const char *part, size_t length) {
    for (int i = 0; i < n; i++) {
        size_t own;
        tl_module *layer = adapter_layer(&list[i], &own);
        if (!layer) continue;
        size_t at = last_part(list[i].name, own);
        if (own - at == length && !memcmp(list[i].name + at, part, length) && !linear_adapter(layer)->a) return false;
    }
    return true;
}

static bool has_text(const json_t *array, const char *text, size_t length) {
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *own = json_string_value(json_array_get(array, i));
        if (own && strlen(own) == length && !memcmp(own, text, length)) return true;
    }
    return false;
}

/* Last parts of names where they say it all, otherwise whole names. */
static json_t *targets_json(const tl_named_tensor *list, int n) {
    json_t *parts = json_array();
    bool ok = parts != NULL;
    for (int i = 0; ok && i < n; i++) {
        if (!adapter_has(&list[i])) continue;
        size_t length = layer_length(list[i].name), at = last_part(list[i].name, length);
        if (!part_is_whole(list, n, list[i].name + at, length - at)) at = 0;
        if (has_text(parts, list[i].name + at, length - at)) continue;
        ok = json_array_append_new(parts, json_stringn(list[i].name + at, length - at)) == 0;
    }
    if (ok) return parts;
    json_decref(parts);
    return NULL;
}

static char *config_text(tl_module *model, const char *base) {
    int n = 0;
    const struct model *s = model->state;
    const tl_adapter_options *o = &s->adapter;
    const tl_named_tensor *list = tl_module_list(model, &n);
    json_t *targets = list ? targets_json(list, n) : NULL;
    json_t *alpha =
        o->alpha == floor(o->alpha) && o->alpha < 1e15 ? json_integer((json_int_t)o->alpha) : json_real(o->alpha);
    json_t *root =
        targets && alpha
            ? json_pack("{s:s, s:s, s:s?, s:I, s:O, s:f, s:O, s:b, s:s, s:b, s:b, s:b, s:b, s:n, s:{}, s:{}}",
                        "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r",
                        (json_int_t)o->rank, "lora_alpha", alpha, "lora_dropout", o->dropout, "target_modules", targets,
                        "fan_in_fan_out", (int)architecture_of(&s->config)->is_transposed, "bias", "none", "use_dora",
                        (int)o->has_magnitude, "use_rslora", 0, "inference_mode", 1, "init_lora_weights", 1,
                        "modules_to_save", "rank_pattern", "alpha_pattern")
            : NULL;
    char *text = root ? json_print(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    if (!text && tl_error() == TL_OK) error_memory(1024, "an adapter's configuration");
    json_decref(root);
    json_decref(targets);
    json_decref(alpha);
    return text;
}

static bool weights_write(const tl_named_tensor *list, int n, struct file_place at) {
    static const char *const key = "format", *const value = "pt";
    const char **names = memory_new(((size_t)n + 1) * sizeof *names);
    tl_tensor **tensors = memory_new(((size_t)n + 1) * sizeof *tensors);
    char(*made)[MOST_NAME] = memory_new(((size_t)n + 1) * sizeof *made);
    bool ok = names && tensors && made;
    int n_own = 0;
    if (!ok) error_memory((size_t)n * sizeof *made, "an adapter's names");
    for (int i = 0; ok && i < n; i++) {
        if (!adapter_has(&list[i])) continue;
        ok = snprintf(made[n_own], MOST_NAME, PREFIX "%s", list[i].name) < MOST_NAME ||
             error_set(TL_ERROR_USE, "adapter: the name \"%.80s\" is too long", list[i].name);
        names[n_own] = made[n_own];
        tensors[n_own++] = list[i].tensor;
    }
    ok = ok && safetensors_save_at(at, names, tensors, n_own, &key, &value, 1);
    memory_free(names);
    memory_free(tensors);
    memory_free(made);
    return ok;
}

static bool save(tl_module *model, const tl_named_tensor *list, int n, const char *base, struct file_place config,
                 struct file_place weights) {
    char *text = config_text(model, base);
    bool ok = text && file_put_at(config, text, strlen(text)) && weights_write(list, n, weights);
    memory_free(text);
    return ok;
}

bool adapter_save_in(tl_module *model, const tl_named_tensor *list, int n, const char *base,
                     const struct file_folder *folder) {
    return save(model, list, n, base, file_in(folder, ADAPTER_CONFIG), file_in(folder, ADAPTER_WEIGHTS));
}

bool tl_model_save_adapter(tl_module *model, const char *folder, const char *base) {
    int n = 0;
    if (!model_speaks(model)) return false;
    if (!folder) return error_set(TL_ERROR_USE, "tl_model_save_adapter: got NULL instead of a folder");
    if (!((const struct model *)model->state)->adapter.rank)
        return error_set(TL_ERROR_USE, "adapter: the model has none to save (need tl_model_add_adapter)");
    const tl_named_tensor *list = tl_module_list(model, &n);
    const tl_comm *tp = ((const struct model *)model->state)->parallel.tp;
    struct joined whole = {0};
    char *config = file_join(folder, ADAPTER_CONFIG), *weights = file_join(folder, ADAPTER_WEIGHTS);
    bool ok = list && config && weights && (!tp || joined_make(&whole, list, n));
    if (ok && tl_comm_rank(tp) == 0) /* of ranks that share the model, the first one writes */
        ok = file_make_folder(folder) &&
             save(model, tp ? whole.list : list, n, base, file_path(config), file_path(weights));
    if (tp) joined_free(&whole);
    memory_free(config);
    memory_free(weights);
    return ok;
}

/* ---- Reading ---- */

/* Keys that are used, and keys that say nothing about numbers, or only which layers: the tensors say that. */
static const char *const known_keys[] = {"peft_type",
                                         "task_type",
                                         "r",
                                         "lora_alpha",
                                         "lora_dropout",
                                         "use_dora",
                                         "fan_in_fan_out",
                                         "base_model_name_or_path",
                                         "revision",
                                         "auto_mapping",
                                         "inference_mode",
                                         "init_lora_weights",
                                         "target_modules",
                                         "exclude_modules",
                                         "layers_to_transform",
                                         "layers_pattern",
                                         "megatron_core",
                                         "megatron_config",
                                         "qalora_group_size",
                                         "peft_version",
                                         "ensure_weight_tying",
                                         "runtime_config",
                                         "loftq_config",
                                         "eva_config",
                                         "corda_config"};

static bool is_nothing(const json_t *value) {
    return json_is_null(value) || json_is_false(value) || (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_string(value) && !strcmp(json_string_value(value), "none"));
}

static bool keys_check(const char *path, json_t *root) {
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
            is_known = is_known || !strcmp(known_keys[i], key);
        if (!is_known && !is_nothing(value))
            return error_set(TL_ERROR_USE,
                             "%s: \"%.80s\" has a value that Tally does not know (need null, false or none)", path,
                             key);
    }
    return true;
}

static bool config_take(const char *path, json_t *root, tl_adapter_options *o) {
    json_int_t rank = 0;
    json_error_t problem;
    double alpha = 0, dropout = 0;
    int has_magnitude = 0;
    const char *kind = "";
    *o = (tl_adapter_options){0};
    if (!json_is_object(root)) return error_set(TL_ERROR_USE, "%s: is not a JSON object", path);
    if (json_unpack_ex(root, &problem, 0, "{s:s, s:I, s:F, s?F, s?b}", "peft_type", &kind, "r", &rank, "lora_alpha",
                       &alpha, "lora_dropout", &dropout, "use_dora", &has_magnitude) != 0)
        return error_set(TL_ERROR_USE, "%s: %.120s (need peft_type, r and lora_alpha of a LoRA adapter)", path,
                         problem.text);
    if (strcmp(kind, "LORA") != 0) return error_set(TL_ERROR_USE, "%s: peft_type is \"%.40s\" (need LORA)", path, kind);
    *o = (tl_adapter_options){rank, alpha, dropout, has_magnitude, NULL};
    return keys_check(path, root);
}

static json_t *config_read(const char *folder) {
    char *path = file_join(folder, ADAPTER_CONFIG);
    json_t *root = path ? json_read(path, LARGEST_CONFIG) : NULL;
    memory_free(path);
    return root;
}

bool adapter_base(const char *folder, char *base, size_t size) {
    json_t *root = config_read(folder);
    const char *named = json_string_value(json_object_get(root, "base_model_name_or_path"));
    bool ok = root && (named || error_set(TL_ERROR_USE, "%s: %s does not name its base model", folder, ADAPTER_CONFIG));
    if (ok && strlen(named) >= size) ok = error_set(TL_ERROR_USE, "%s: the name of its base model is too long", folder);
    if (ok) snprintf(base, size, "%s", named);
    json_decref(root);
    return ok;
}

static bool is_in_file(const void *context, const char *path) {
    char name[MOST_NAME];
    return snprintf(name, sizeof name, PREFIX "%s.lora_A.weight", path) < MOST_NAME &&
           tl_safetensors_find(context, name) >= 0;
}

/* One parameter of the adapter, from the file. */
static bool tensor_fill(tl_safetensors *file, const char *path, const tl_named_tensor *to) {
    char name[MOST_NAME], got[128], need[128];
    if (snprintf(name, sizeof name, PREFIX "%s", to->name) >= MOST_NAME || tl_safetensors_find(file, name) < 0)
        return error_set(TL_ERROR_USE, "%s: has no tensor \"" PREFIX "%.160s\"", path, to->name);
    tl_tensor *x = tl_safetensors_get(file, name);
    int64_t shape[TL_MAX_RANK];
    bool same = x && tl_rank(x) == tl_rank(to->tensor);
    shard_whole_shape(to->shard, to->tensor, shape);
    for (int i = 0; same && i < tl_rank(x); i++) same = tl_size(x, i) == shape[i];
    if (x && !same) {
        tl_describe(x, got, sizeof got);
        tl_describe(to->tensor, need, sizeof need);
        return error_set(TL_ERROR_USE, "%s: \"%.160s\" is %s (need %s)", path, name, got, need);
    }
    if (x && !device_has_data(tl_device_of(to->tensor))) return true;
    return x && shard_fill(to->shard, to->tensor, tl_cast(x, tl_dtype_of(to->tensor)));
}

/* The first tensor of the file that is none of the model's adapter. */
static bool all_are_used(tl_safetensors *file, const char *path, tl_module *model, int n_used) {
    for (int i = 0; n_used != tl_safetensors_count(file) && i < tl_safetensors_count(file); i++) {
        const char *name = tl_safetensors_name(file, i);
        const size_t prefix = sizeof PREFIX - 1;
        bool has_prefix = !strncmp(name, PREFIX, prefix);
        if (!has_prefix || !tl_module_find_tensor(model, name + prefix) || !strstr(name, ".lora_"))
            return error_set(TL_ERROR_USE, "%s: \"%.200s\" is of no linear layer of the model's blocks", path, name);
    }
    return true;
}

static bool tensors_load(tl_module *model, tl_safetensors *file, const char *path) {
    int n = 0, n_used = 0;
    const tl_named_tensor *list = tl_module_list(model, &n);
    bool ok = list != NULL, grad = tl_set_grad_mode(false);
    for (int i = 0; ok && i < n; i++) {
        if (!adapter_has(&list[i])) continue;
        tl_scope scope = tl_scope_begin();
        ok = scope.depth && tensor_fill(file, path, &list[i]);
        if (scope.depth) ok = tl_scope_end(scope) && ok;
        n_used++;
    }
    tl_set_grad_mode(grad);
    if (ok && !n_used)
        ok = error_set(TL_ERROR_USE, "%s: has no adapter of a layer of this model (need names like " PREFIX "%.120s)",
                       path, n ? list[n - 1].name : "");
    return ok && all_are_used(file, path, model, n_used);
}

bool adapter_read(const char *folder, tl_adapter_options *options) {
    json_t *root = config_read(folder);
    bool ok = root && config_take(folder, root, options);
    json_decref(root);
    return ok;
}

/* `dropout` below 0: the file's. */
static bool load(tl_module *model, const char *folder, double dropout) {
    tl_adapter_options o;
    char *path = adapter_read(folder, &o) ? file_join(folder, ADAPTER_WEIGHTS) : NULL;
    tl_safetensors *file = path ? tl_safetensors_open(path) : NULL;
    if (dropout >= 0) o.dropout = dropout;
    bool ok = file && adapter_add(model, &o, is_in_file, file);
    bool is_filled = ok && tensors_load(model, file, path);
    if (ok && !is_filled) adapter_remove(model);
    tl_safetensors_close(file);
    memory_free(path);
    return is_filled;
}

bool adapter_load(tl_module *model, const char *folder, double dropout) { return load(model, folder, dropout); }

bool tl_model_load_adapter(tl_module *model, const char *folder) {
    if (!model_speaks(model)) return false;
    if (!folder) return error_set(TL_ERROR_USE, "tl_model_load_adapter: got NULL instead of a folder");
    return load(model, folder, -1);
}
