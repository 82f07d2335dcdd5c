/* config_file.c: the numbers of a model as Hugging Face's config.json.
 *
 * The file is untrusted. It is at most a megabyte, and every number is checked for type and range. A key is read, or is
 * one of those known not to change a model, or is refused by its name: nothing that could change results is ignored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "nn/architecture.h"
#include "nn/config_keys.h"
#include "nn/model.h"
#include "tally.h"

#define LARGEST_FILE ((size_t)1 << 20)

/* What files leave out. */
static void complete(const struct architecture *a, tl_model_config *c) {
    if (!c->n_kv_heads) c->n_kv_heads = a->n_kv_heads ? a->n_kv_heads : c->n_heads;
    if (!c->head_size) c->head_size = a->head_size;
    if (!c->head_size) c->head_size = c->n_heads ? c->channels / c->n_heads : 0;
    if (!c->ff) c->ff = 4 * c->channels;
}

static void read_keys(struct config_reader *r, const struct architecture *a, tl_model_config *c) {
    architecture_begin(a, c);
    for (const struct key *k = a->keys; k->name; k++) config_read_key(r, k, c);
    for (const struct key *k = a->more_keys; k && k->name; k++) config_read_key(r, k, c);
    if (a->names) {
        complete(a, c);
        config_demand_truth(r, "is_encoder_decoder", false);
        if (json_object_size(config_value(r, "pruned_heads")) > 0) config_fail(r, "pruned_heads", "empty");
        if (a->has_rope) {
            config_read_rope(r, a, c);
        }
        config_read_window(r, a, c);
    }
    config_refuse_unknown(r, NULL, a->type);
}

static bool is_state_space(const char *type) {
    static const char *const types[] = {"bamba",      "falcon_h1",  "falcon_mamba",    "granitemoehybrid",
                                        "jamba",      "lfm2",       "mamba",           "mamba2",
                                        "nemotron_h", "qwen3_next", "recurrent_gemma", "rwkv",
                                        "xlstm",      "zamba",      "zamba2"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

static bool is_sparse(const char *type) {
    static const char *const types[] = {"dbrx",   "ernie4_5_moe", "glm4_moe", "granitemoe",
                                        "jetmoe", "minimax_m2",   "phimoe",   "qwen2_moe"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

static void refuse_type(struct config_reader *r, const char *type) {
    char known[400] = "";
    for (int i = 0; architecture_at(i); i++)
        if (architecture_named(architecture_at(i)->type) == architecture_at(i))
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                     architecture_at(i)->type);
    r->ok = error_set(TL_ERROR_USE, "%s: \"model_type\" is \"%.80s\"%s (known are %s)", r->path, type ? type : "?",
                      !type                  ? ""
                      : is_state_space(type) ? ", with state-space or recurrent layers, which are not here"
                      : is_sparse(type)      ? ", a mixture of experts of a kind that is not here"
                                             : "",
                      known);
}

/* ---- Models of text and images ---- */

/* Their config has one of the text model in it, which is the model here. */
static const char *text_part_of(const char *type) {
    return !strcmp(type, "gemma3") ? "gemma3_text" : !strcmp(type, "llama4") ? "llama4_text" : NULL;
}

static void read_text_part(struct config_reader *r, const char *type, tl_model_config *c) {
    static const char *const of_images[] = {
        "vision_config", "text_config",       "boi_token_index", "eoi_token_index",     "boi_token_id",
        "eoi_token_id",  "image_token_index", "image_token_id",  "mm_tokens_per_image", "initializer_range"};
    const char *name = text_part_of(type);
    json_t *text = json_object_get(r->root, "text_config"), *own = json_object_get(text, "model_type");
    for (size_t i = 0; i < sizeof of_images / sizeof *of_images; i++) config_value(r, of_images[i]);
    if (!json_is_object(text)) {
        config_fail(r, "text_config", "an object");
        return;
    }
    if (own && (!json_is_string(own) || strcmp(json_string_value(own), name) != 0)) config_fail(r, "text_config", name);
    struct config_reader inner = {r->path, text, json_object(), r->ok, 0, 0};
    if (inner.seen) read_keys(&inner, architecture_named(name), c);
    else inner.ok = error_memory(64, "a config's keys");
    json_decref(inner.seen);
    r->ok = inner.ok;
    if (r->ok && config_truth(r, "tie_word_embeddings", c->is_tied) != c->is_tied)
        config_fail(r, "tie_word_embeddings", "what \"text_config\" says");
    config_refuse_unknown(r, NULL, type);
}

static void read_family(struct config_reader *r, tl_model_config *c) {
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    const struct architecture *a = type ? architecture_named(type) : NULL;
    if (type && text_part_of(type)) read_text_part(r, type, c);
    else if (a) read_keys(r, a, c);
    else refuse_type(r, type);
}

bool tl_model_config_read(const char *path, tl_model_config *config) {
    if (!path || !config) return error_set(TL_ERROR_USE, "tl_model_config_read: got NULL");
    json_t *root = json_read(path, LARGEST_FILE);
    if (!root) return false;
    tl_model_config c = {0};
    struct config_reader r = {path, root, json_object(), true, 0, 0};
    if (!r.seen) r.ok = error_memory(64, "a config's keys");
    else if (json_is_object(root)) read_family(&r, &c);
    else r.ok = error_set(TL_ERROR_USE, "%s: a model's config is a JSON object", path);
    json_decref(r.seen);
    json_decref(root);
    if (!r.ok || !tl_model_config_check(&c)) return false;
    *config = c;
    return true;
}

/* ---- Writing ---- */

static json_t *config_json(const tl_model_config *c) {
    const struct architecture *a = architecture_of(c);
    json_t *root = json_pack("{s:[s], s:s}", "architectures", a->kind.name, "model_type", a->type);
    bool ok = root != NULL;
    for (const struct key *k = a->keys; ok && k->name; k++) ok = config_write_key(root, k, c);
    for (const struct key *k = a->more_keys; ok && k && k->name; k++) ok = config_write_key(root, k, c);
    if (ok && a->has_rope) ok = config_write_rope(root, a, c);
    if (ok && a->names) ok = config_write_window(root, a, c);
    /* some families have a default, which may be no token of this vocabulary */
    if (ok && a->names) ok = json_object_set_new(root, "pad_token_id", json_null()) == 0;
    if (ok) return root;
    json_decref(root);
    return NULL;
}

bool model_config_write_at(const tl_model_config *c, struct file_place at) {
    if (!tl_model_config_check(c)) return false;
    json_t *root = config_json(c);
    char *text = root ? json_print(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (!text) return error_memory(4096, "a config");
    bool ok = file_put_at(at, text, strlen(text));
    free(text);
    return ok;
}

bool tl_model_config_write(const tl_model_config *c, const char *path) {
    if (!path) return error_set(TL_ERROR_USE, "tl_model_config_write: got NULL instead of a path");
    return model_config_write_at(c, file_path(path));
}
