#include "nn/config_keys.h"

#include <string.h>

/* ---- Falcon ---- */

static void read_falcon(struct config_reader *r, tl_model_config *c) {
    bool is_new = config_truth(r, "new_decoder_architecture", false), is_single = config_truth(r, "multi_query", true);
    int64_t n_kv = config_size(r, "num_kv_heads", "n_head_kv", 0),
            n_norms = config_size(r, "num_ln_in_parallel_attn", NULL, 0);
    c->is_parallel = config_truth(r, "parallel_attn", true);
    c->has_qkv_bias = c->has_out_bias = c->has_mlp_bias = config_truth(r, "bias", false);
    c->positions = config_truth(r, "alibi", false) ? TL_POSITIONS_ALIBI : TL_POSITIONS_OWN;
    c->has_two_norms = is_new && n_norms != 1;
    c->n_kv_heads = is_new && n_kv ? n_kv : !is_new && is_single ? 1 : c->n_heads;
    if (is_new && !c->is_parallel) config_fail(r, "parallel_attn", "true, as \"new_decoder_architecture\" is");
    if (n_norms > (is_new ? 2 : 1))
        config_fail(r, "num_ln_in_parallel_attn", is_new ? "1 or 2" : "1, the only value known here");
    if (!is_new && !is_single && n_kv && n_kv != c->n_heads) config_fail(r, "num_kv_heads", "that of all heads");
}

/* One head of keys, or as many as of queries, are the same in both architectures. */
static bool write_falcon(json_t *root, const tl_model_config *c) {
    const bool is_grouped = c->n_kv_heads > 1 && c->n_kv_heads < c->n_heads, is_new = c->has_two_norms || is_grouped;
    json_t *more = json_pack("{s:b, s:b, s:I, s:I, s:b, s:b, s:b}", "new_decoder_architecture", is_new, "multi_query",
                             c->n_kv_heads == 1, "num_kv_heads", (json_int_t)c->n_kv_heads, "num_ln_in_parallel_attn",
                             (json_int_t)(c->has_two_norms ? 2 : 1), "parallel_attn", c->is_parallel, "bias",
                             c->has_qkv_bias, "alibi", c->positions == TL_POSITIONS_ALIBI);
    bool ok = more && json_object_update(root, more) == 0;
    json_decref(more);
    return ok;
}

/* ---- GPT-2 with other positions than learned ones ---- */

/* Hugging Face's GPT-2 has learned ones alone, and ignores the key; other values are Tally's. */
static const char *const positions[] = {[TL_POSITIONS_OWN] = "absolute",
                                        [TL_POSITIONS_ROTARY] = "rope",
                                        [TL_POSITIONS_ALIBI] = "alibi",
                                        [TL_POSITIONS_NONE] = "none"};

static void read_positions(struct config_reader *r, const char *key, tl_model_config *c) {
    const json_t *value = config_value(r, key);
    const char *name = json_string_value(value);
    bool is_known = !value;
    for (int i = 0; name && i <= TL_POSITIONS_NONE; i++)
        if (!strcmp(name, positions[i])) c->positions = i, is_known = true;
    if (!is_known) config_fail(r, key, "\"absolute\", \"rope\", \"alibi\" or \"none\"");
    if (c->positions == TL_POSITIONS_ROTARY) c->rope_base = config_real(r, "rope_theta", NULL, 10000);
}

static bool write_positions(json_t *root, const char *key, const tl_model_config *c) {
    if (c->positions == TL_POSITIONS_OWN) return true;
    bool ok = json_object_set_new(root, key, json_string(positions[c->positions])) == 0;
    if (c->positions != TL_POSITIONS_ROTARY) return ok;
    return ok && json_object_set_new(root, "rope_theta", json_real(c->rope_base)) == 0;
}

/* ---- Latent attention ---- */

/* A size that may be null, for none. */
static int64_t read_size_or_none(struct config_reader *r, const char *key, int64_t fallback) {
    return config_size(r, key, NULL, config_is_null(r, key) ? 0 : fallback);
}

static void read_latent(struct config_reader *r, tl_model_config *c) {
    int64_t plain = config_size(r, "qk_nope_head_dim", NULL, 128);
    c->kv_rank = config_size(r, "kv_lora_rank", NULL, 512);
    c->q_rank = read_size_or_none(r, "q_lora_rank", 1536);
    c->rope_head = config_size(r, "qk_rope_head_dim", NULL, 64);
    c->value_head = config_size(r, "v_head_dim", NULL, 128);
    c->n_kv_heads = config_size(r, "num_key_value_heads", NULL, c->n_heads);
    c->head_size = plain + c->rope_head;
    if (config_size(r, "qk_head_dim", NULL, c->head_size) != c->head_size)
        config_fail(r, "qk_head_dim", "the sum of \"qk_nope_head_dim\" and \"qk_rope_head_dim\"");
    if (config_size(r, "head_dim", NULL, c->rope_head) != c->rope_head)
        config_fail(r, "head_dim", "\"qk_rope_head_dim\"");
}

static bool write_latent(json_t *root, const tl_model_config *c) {
    json_t *more =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "kv_lora_rank", (json_int_t)c->kv_rank, "qk_rope_head_dim",
                  (json_int_t)c->rope_head, "qk_nope_head_dim", (json_int_t)(c->head_size - c->rope_head), "v_head_dim",
                  (json_int_t)c->value_head, "num_key_value_heads", (json_int_t)c->n_kv_heads, "q_lora_rank",
                  c->q_rank ? json_integer(c->q_rank) : json_null());
    bool ok = more && json_object_update(root, more) == 0;
    json_decref(more);
    return ok;
}

/* ---- Groups of experts, and layers without them ---- */

/* DeepSeek-V2 has groups if "topk_method" says so, V3 always. */
static void read_groups(struct config_reader *r, tl_model_config *c) {
    const bool is_v3 = c->family == TL_DEEPSEEK_V3;
    int64_t n = config_size(r, "n_group", NULL, is_v3 ? 8 : 0),
            n_chosen = config_size(r, "topk_group", NULL, is_v3 ? 4 : 0);
    if (!is_v3) {
        json_t *v = config_value(r, "topk_method");
        const char *method = v ? json_string_value(v) : "greedy";
        bool is_limited = method && !strcmp(method, "group_limited_greedy");
        if (!is_limited && (!method || strcmp(method, "greedy"))) config_demand_text(r, "topk_method", "greedy", NULL);
        if (!is_limited) return;
        if (!n || !n_chosen) config_fail(r, "n_group", "a number of groups, as \"topk_method\" needs");
    }
    c->n_groups = n > 1 ? n : 0; /* one group hides nothing */
    c->n_groups_chosen = n > 1 ? n_chosen : 0;
}

static bool write_groups(json_t *root, const tl_model_config *c) {
    bool ok = json_object_set_new(root, "n_group", json_integer(c->n_groups ? c->n_groups : 1)) == 0 &&
              json_object_set_new(root, "topk_group", json_integer(c->n_groups ? c->n_groups_chosen : 1)) == 0;
    if (!ok || c->family == TL_DEEPSEEK_V3) return ok;
    return json_object_set_new(root, "topk_method", json_string(c->n_groups ? "group_limited_greedy" : "greedy")) == 0;
}

/* "moe_layers" lists the layers with experts, and "interleave_moe_layer_step" says how far they stand apart. */
static void read_dense_layers(struct config_reader *r, tl_model_config *c) {
    json_t *list = config_value(r, "moe_layers"), *layer;
    int64_t step = config_size(r, "interleave_moe_layer_step", NULL, 1);
    size_t i;
    c->n_shared = 1;
    if (json_is_array(list) && json_array_size(list)) step = json_integer_value(json_array_get(list, 0)) + 1;
    c->expert_every = step > 1 ? step : 0;
    if (list && (!json_is_array(list) || (int64_t)json_array_size(list) != architecture_expert_layers(c)))
        config_fail(r, "moe_layers", "a list of each n-th layer");
    json_array_foreach(list, i, layer) {
        if (json_integer_value(layer) != ((int64_t)i + 1) * step - 1)
            config_fail(r, "moe_layers", "a list of each n-th layer");
    }
}

/* Chunks are in the layers with positions, as "layer_types" must say; temperatures in the others. */
static void read_llama4(struct config_reader *r, tl_model_config *c) {
    json_t *list = config_value(r, "layer_types"), *type, *tuned = config_value(r, "attn_temperature_tuning");
    int64_t floor = config_size(r, "floor_scale", NULL, 8192);
    double scale = config_real(r, "attn_scale", NULL, 0.1);
    bool is_tuned = !tuned || json_is_true(tuned) || json_integer_value(tuned) != 0;
    size_t i;
    c->chunk = read_size_or_none(r, "attention_chunk_size", 8192);
    if (is_tuned) c->temperature_floor = floor, c->temperature_scale = scale;
    if (list && (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers))
        config_fail(r, "layer_types", "a list of all layers");
    json_array_foreach(list, i, type) {
        const char *name = json_string_value(type);
        const char *want = architecture_has_positions(c, (int64_t)i) ? "chunked_attention" : "full_attention";
        if (!name || strcmp(name, want)) config_fail(r, "layer_types", "what \"no_rope_layers\" says of chunks");
    }
}

static bool write_llama4(json_t *root, const tl_model_config *c) {
    json_t *more =
        json_pack("{s:o, s:b, s:I, s:f}", "attention_chunk_size", c->chunk ? json_integer(c->chunk) : json_null(),
                  "attn_temperature_tuning", c->temperature_floor > 0, "floor_scale",
                  (json_int_t)(c->temperature_floor ? c->temperature_floor : 8192), "attn_scale",
                  c->temperature_floor ? c->temperature_scale : 0.1);
    bool ok = more && json_object_update(root, more) == 0;
    json_decref(more);
    return ok;
}

/* ---- Keys of a family ---- */

static bool is_empty_list(const json_t *v) { return json_is_array(v) && json_array_size(v) == 0; }

void config_read_key(struct config_reader *r, const struct key *k, tl_model_config *c) {
    void *at = (char *)c + k->at;
    switch (k->kind) {
    case KEY_SIZE:
        *(int64_t *)at = config_size(r, k->name, k->other, (int64_t)k->fallback);
        break;
    case KEY_REAL:
        *(double *)at = config_real(r, k->name, k->other, k->fallback);
        break;
    case KEY_WHOLE:
        *(double *)at = (double)config_size(r, k->name, k->other, (int64_t)k->fallback);
        break;
    case KEY_TRUTH:
        *(bool *)at = config_truth(r, k->name, k->fallback != 0);
        break;
    case KEY_BIASES:
        c->has_qkv_bias = c->has_out_bias = config_truth(r, k->name, k->fallback != 0);
        break;
    case KEY_TEXT:
        config_demand_text(r, k->name, k->text, k->also);
        break;
    case KEY_TRUE:
    case KEY_FALSE:
        config_demand_truth(r, k->name, k->kind == KEY_TRUE);
        break;
    case KEY_DROPOUT:
        config_demand_same(r, k->name, c->dropout);
        break;
    case KEY_MULTI_QUERY:
        if (config_truth(r, k->name, true)) c->n_kv_heads = 1;
        config_value(r, "num_key_value_heads"); /* says the same */
        break;
    case KEY_FIXED:
        config_demand_number(r, k->name, k->fallback);
        break;
    case KEY_EMPTY:
        if (config_value(r, k->name) && !is_empty_list(config_value(r, k->name)))
            config_fail(r, k->name, "an empty list, the only value known here");
        break;
    case KEY_COUNT:
        *(int64_t *)at = config_count(r, k->name, (int64_t)k->fallback);
        break;
    case KEY_FALCON:
        read_falcon(r, c);
        break;
    case KEY_POSITIONS:
        read_positions(r, k->name, c);
        break;
    case KEY_LATENT:
        read_latent(r, c);
        break;
    case KEY_GROUPS:
        read_groups(r, c);
        break;
    case KEY_DENSE_LAYERS:
        read_dense_layers(r, c);
        break;
    case KEY_LLAMA4:
        read_llama4(r, c);
        break;
    case KEY_CAP:
        *(double *)at = config_real(r, k->name, NULL, config_is_null(r, k->name) ? 0 : k->fallback);
        break;
    case KEY_PLAIN:
        config_read_plain(r, k, c);
        break;
    case KEY_UNUSED:
        config_value(r, k->name);
        break;
    }
}

bool config_write_key(json_t *root, const struct key *k, const tl_model_config *c) {
    const void *at = (const char *)c + k->at;
    json_t *v = NULL;
    switch (k->kind) {
    case KEY_SIZE:
        v = json_integer(*(const int64_t *)at);
        break;
    case KEY_REAL:
        v = json_real(*(const double *)at);
        break;
    case KEY_WHOLE: /* a scale of queries; 0: the size of a head */
        v = json_integer(*(const double *)at > 0 ? (json_int_t) * (const double *)at : (json_int_t)c->head_size);
        break;
    case KEY_TRUTH:
        v = json_boolean(*(const bool *)at);
        break;
    case KEY_BIASES:
        v = json_boolean(c->has_qkv_bias);
        break;
    case KEY_TEXT:
        v = json_string(k->text);
        break;
    case KEY_TRUE:
    case KEY_FALSE:
        v = json_boolean(k->kind == KEY_TRUE);
        break;
    case KEY_DROPOUT:
        v = json_real(c->dropout);
        break;
    case KEY_MULTI_QUERY:
        v = json_boolean(c->n_kv_heads == 1);
        break;
    case KEY_FIXED:
        v = k->fallback == 1 ? json_integer(1) : json_real(k->fallback);
        break;
    case KEY_EMPTY:
        v = json_array();
        break;
    case KEY_COUNT:
        v = json_integer(*(const int64_t *)at);
        break;
    case KEY_FALCON:
        return write_falcon(root, c);
    case KEY_POSITIONS:
        return write_positions(root, k->name, c);
    case KEY_LATENT:
        return write_latent(root, c);
    case KEY_GROUPS:
        return write_groups(root, c);
    case KEY_DENSE_LAYERS:
        v = json_integer(c->expert_every ? c->expert_every : 1);
        break;
    case KEY_LLAMA4:
        return write_llama4(root, c);
    case KEY_CAP:
        v = *(const double *)at > 0 ? json_real(*(const double *)at) : json_null();
        break;
    case KEY_PLAIN:
        return config_write_plain(root, k, c);
    case KEY_UNUSED:
        return true;
    }
    return json_object_set_new(root, k->name, v) == 0;
}
