/* config_positions.c: what a config.json says about positions: rotary ones, windows, layers without any. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "nn/config_keys.h"

/* ---- Rotary positions ---- */

static void read_yarn(struct config_reader *r, tl_rope_scaling *s) {
    double all = config_real(r, "mscale_all_dim", NULL, 0), some = config_real(r, "mscale", NULL, 0),
           f = log(s->factor);
    s->rule = config_truth(r, "truncate", true) ? TL_ROPE_YARN : TL_ROPE_YARN_EXACT;
    s->low_frequency = config_real(r, "beta_slow", NULL, 1);
    s->high_frequency = config_real(r, "beta_fast", NULL, 32);
    if (!(s->factor > 1)) config_fail(r, "factor", "more than 1");
    r->score_yarn = all;
    s->magnitude = some != 0 && all != 0 ? (0.1 * some * f + 1) / (0.1 * all * f + 1) : 0.1 * f + 1;
    s->magnitude = config_real(r, "attention_factor", NULL, s->magnitude);
}

/* A list of a number above 0 for each pair, of which there are as many as config_check finds. */
static void read_list(struct config_reader *r, const char *key, float list[64]) {
    json_t *values = config_value(r, key), *value;
    size_t i;
    if (!json_is_array(values) || !json_array_size(values) || json_array_size(values) > 64)
        config_fail(r, key, "a list of 1 to 64");
    json_array_foreach(values, i, value) {
        if (!(json_number_value(value) > 0)) config_fail(r, key, "of numbers above 0");
        if (i < 64) list[i] = (float)json_number_value(value);
    }
}

/* longrope: the frequencies of pairs are divided by one list up to the original context, and by another beyond. With
 * f = context / original, what is turned grows by sqrt(1 + log f / log original). */
static void read_lists(struct config_reader *r, tl_rope_scaling *s, tl_model_config *c) {
    s->rule = TL_ROPE_LIST;
    s->original_context = config_size(r, "original_max_position_embeddings", NULL,
                                      r->original_context ? r->original_context : c->context);
    s->factor = config_real(r, "factor", NULL, (double)c->context / (double)s->original_context);
    const double grow = s->factor > 1 ? sqrt(1 + log(s->factor) / log((double)s->original_context)) : 1;
    s->magnitude = config_real(r, "attention_factor", NULL, grow);
    s->factor = s->factor > 1 ? s->factor : 2; /* another number means no scaling */
    read_list(r, "short_factor", c->short_slower);
    read_list(r, "long_factor", c->long_slower);
}

/* The rule by its name, and its numbers. */
static void read_scaling(struct config_reader *r, const char *name, tl_rope_scaling *s, tl_model_config *c) {
    bool is_llama3 = !strcmp(name, "llama3"), is_yarn = !strcmp(name, "yarn"), is_dynamic = !strcmp(name, "dynamic");
    if (!strcmp(name, "default")) return;
    if (!strcmp(name, "longrope") || !strcmp(name, "su")) {
        read_lists(r, s, c);
        return;
    }
    if (!is_llama3 && !is_yarn && !is_dynamic && strcmp(name, "linear")) {
        if (r->ok)
            error_set(
                TL_ERROR_USE,
                "%s: \"rope_scaling\" is of type \"%.40s\" (known are linear, dynamic, llama3, yarn and longrope)",
                r->path, name);
        r->ok = false;
        return;
    }
    s->factor = config_real(r, "factor", NULL, 1);
    if (is_dynamic) s->rule = TL_ROPE_DYNAMIC;
    if (is_llama3) {
        s->low_frequency = config_real(r, "low_freq_factor", NULL, 1);
        s->high_frequency = config_real(r, "high_freq_factor", NULL, 4);
    }
    if (is_llama3 || is_yarn) s->original_context = config_size(r, "original_max_position_embeddings", NULL, -1);
    else config_value(r, "original_max_position_embeddings");
    if (is_yarn) read_yarn(r, s);
}

/* An object of a rule, of the layers of one type if it holds several. */
static void read_rope_object(struct config_reader *r, json_t *object, tl_model_config *c, double *base, double *share,
                             bool is_scaled) {
    struct config_reader inner = {r->path, object, json_object(), r->ok, 0, 0};
    if (!inner.seen) {
        r->ok = error_memory(64, "a config's keys");
        return;
    }
    inner.original_context = json_integer_value(json_object_get(r->root, "original_max_position_embeddings"));
    if (inner.original_context < 0 || inner.original_context > LARGEST_SIZE) inner.original_context = 0;
    json_t *type = config_value_of(&inner, "rope_type", "type");
    const char *name = type ? json_string_value(type) : "default";
    *base = config_real(&inner, "rope_theta", NULL, *base);
    *share = config_real(&inner, "partial_rotary_factor", NULL, *share);
    if (is_scaled) read_scaling(&inner, name ? name : "?", &c->rope_scaling, c);
    else if (!name || strcmp(name, "default")) config_fail(&inner, "rope_type", "\"default\" in layers with a window");
    config_refuse_unknown(&inner, "rope_scaling", name ? name : "?");
    if (architecture_of(c)->has_latents) c->score_yarn = inner.score_yarn;
    json_decref(inner.seen);
    r->ok = inner.ok;
}

void config_read_rope(struct config_reader *r, const struct architecture *a, tl_model_config *c) {
    json_t *v = config_value_of(r, "rope_scaling", "rope_parameters"), *all = json_object_get(v, "full_attention");
    double share = a->rope_share > 0 ? a->rope_share : 1;
    c->rope_base = config_real(r, a->rope_base_key, "rope_theta", a->rope_base > 0 ? a->rope_base : 10000);
    share = config_real(r, a->rope_share_key, "partial_rotary_factor", share);
    if (a->window_rope_base > 0)
        c->window_rope_base = config_real(r, "rope_local_base_freq", NULL, a->window_rope_base);
    if (v && !json_is_object(v)) config_fail(r, "rope_scaling", "an object");
    if (r->ok && json_is_object(all) && a->window_rope_base > 0) {
        json_t *window = json_object_get(v, "sliding_attention");
        double ignored = 1;
        read_rope_object(r, all, c, &c->rope_base, &share, true);
        if (json_is_object(window)) read_rope_object(r, window, c, &c->window_rope_base, &ignored, false);
    } else if (r->ok && v) {
        read_rope_object(r, v, c, &c->rope_base, &share, true);
    }
    if (a->has_latents && share != 1) config_fail(r, a->rope_share_key, "1: \"qk_rope_head_dim\" says what turns");
    if (!(share > 0 && share <= 1)) config_fail(r, a->rope_share_key, "a share of the channels, above 0 and up to 1");
    else if (share < 1) c->rope_scaling.size = (int64_t)((double)c->head_size * share);
}

/* The share whose part of the channels is this many: Hugging Face's library cuts off what is behind the point. */
static double share_of(int64_t size, int64_t D) {
    double share = (double)size / (double)D;
    return (int64_t)((double)D * share) == size ? share : nextafter(share, 1);
}

static json_t *list_json(const float list[64], int64_t n) {
    json_t *values = json_array();
    for (int64_t i = 0; i < n && i < 64; i++) json_array_append_new(values, json_real((double)list[i]));
    return values;
}

static json_t *scaling_json(const tl_model_config *c) {
    const tl_rope_scaling *s = &c->rope_scaling;
    const double score_yarn = c->score_yarn;
    const int64_t n_pairs = (s->size ? s->size : c->head_size) / 2;
    if (s->rule == TL_ROPE_LIST)
        return json_pack("{s:s, s:o, s:o, s:f, s:f, s:I}", "rope_type", "longrope", "short_factor",
                         list_json(c->short_slower, n_pairs), "long_factor", list_json(c->long_slower, n_pairs),
                         "factor", s->factor, "attention_factor", s->magnitude, "original_max_position_embeddings",
                         (json_int_t)s->original_context);
    if (s->rule == TL_ROPE_DYNAMIC) return json_pack("{s:s, s:f}", "rope_type", "dynamic", "factor", s->factor);
    if (s->rule == TL_ROPE_YARN || s->rule == TL_ROPE_YARN_EXACT)
        return json_pack("{s:s, s:b, s:f, s:f, s:f, s:f, s:I, s:f}", "rope_type", "yarn", "truncate",
                         s->rule == TL_ROPE_YARN, "factor", s->factor, "beta_slow", s->low_frequency, "beta_fast",
                         s->high_frequency, "attention_factor", s->magnitude, "original_max_position_embeddings",
                         (json_int_t)s->original_context, "mscale_all_dim", score_yarn);
    if (!s->original_context) return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", s->factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", s->factor, "low_freq_factor",
                     s->low_frequency, "high_freq_factor", s->high_frequency, "original_max_position_embeddings",
                     (json_int_t)s->original_context);
}

bool config_write_rope(json_t *root, const struct architecture *a, const tl_model_config *c) {
    const tl_rope_scaling *s = &c->rope_scaling;
    double share = s->size ? share_of(s->size, c->head_size) : 1;
    bool ok = json_object_set_new(root, a->rope_base_key, json_real(c->rope_base)) == 0;
    if (ok && (s->size || a->rope_share > 0)) ok = json_object_set_new(root, a->rope_share_key, json_real(share)) == 0;
    if (ok && c->window_rope_base > 0)
        ok = json_object_set_new(root, "rope_local_base_freq", json_real(c->window_rope_base)) == 0;
    if (ok && s->rule == TL_ROPE_LIST)
        ok = json_object_set_new(root, "original_max_position_embeddings", json_integer(s->original_context)) == 0;
    return ok && (s->factor == 0 || s->factor == 1 || json_object_set_new(root, "rope_scaling", scaling_json(c)) == 0);
}

/* ---- Windows ---- */

/* The list that files have beside or instead of numbers: the first layer with a window, and the first without one
 * behind it, from 1; 0: none. */
static void read_layer_types(struct config_reader *r, json_t *list, int64_t *from, int64_t *first_full) {
    json_t *type;
    size_t i;
    *from = *first_full = 0;
    bool has_window = false;
    json_array_foreach(list, i, type) {
        const char *name = json_string_value(type);
        bool is_window = name && !strcmp(name, "sliding_attention");
        if (!is_window && (!name || strcmp(name, "full_attention")))
            config_fail(r, "layer_types", "of \"full_attention\" and \"sliding_attention\" alone");
        if (is_window && !has_window) *from = (int64_t)i;
        if (has_window && !is_window && !*first_full) *first_full = (int64_t)i + 1;
        has_window = has_window || is_window;
    }
}

/* Whether the list says of every layer what the config does. */
static void demand_layer_types(struct config_reader *r, json_t *list, const tl_model_config *c) {
    json_t *type;
    size_t i;
    if (list && !json_is_array(list)) config_fail(r, "layer_types", "a list");
    if (list && json_array_size(list) != (size_t)c->n_layers) config_fail(r, "layer_types", "a list of all layers");
    json_array_foreach(list, i, type) {
        const char *name = json_string_value(type);
        bool has_window = architecture_has_window(c, (int64_t)i);
        if (!name || strcmp(name, has_window ? "sliding_attention" : "full_attention"))
            config_fail(r, "layer_types", "what the other keys say of windows");
    }
}

void config_read_window(struct config_reader *r, const struct architecture *a, tl_model_config *c) {
    if (c->family == TL_LLAMA4) return; /* it has chunks */
    json_t *list = config_value(r, "layer_types");
    int64_t from, first_full;
    bool is_used = a->window == WINDOW_ALL || a->window == WINDOW_EVERY;
    if (a->window == WINDOW_FROM || a->window == WINDOW_NEVER)
        is_used = config_truth(r, "use_sliding_window", false) && a->window == WINDOW_FROM;
    if (a->window == WINDOW_NEVER) config_demand_truth(r, "use_sliding_window", false);
    read_layer_types(r, list, &from, &first_full);
    if (a->window != WINDOW_NEVER)
        c->window = config_size(r, "sliding_window", NULL, config_is_null(r, "sliding_window") ? 0 : a->window_keys);
    if (a->window == WINDOW_FROM) c->window_from = config_count(r, "max_window_layers", list ? from : c->n_layers);
    if (a->window == WINDOW_EVERY)
        c->window_every = config_size(r, "sliding_window_pattern", list ? NULL : "_sliding_window_pattern",
                                      list ? first_full : a->window_every);
    if (!is_used) c->window = 0;
    if (!c->window) c->window_from = c->window_every = 0;
    demand_layer_types(r, list, c);
}

bool config_write_window(json_t *root, const struct architecture *a, const tl_model_config *c) {
    if (a->window == WINDOW_NEVER) return true;
    bool ok = json_object_set_new(root, "sliding_window", c->window ? json_integer(c->window) : json_null()) == 0;
    if (a->window == WINDOW_FROM)
        ok =
            ok && json_object_set_new(root, "use_sliding_window", json_boolean(c->window)) == 0 &&
            json_object_set_new(root, "max_window_layers", json_integer(c->window ? c->window_from : c->n_layers)) == 0;
    if (a->window != WINDOW_EVERY) return ok;
    json_t *list = json_array();
    for (int64_t i = 0; ok && i < c->n_layers; i++)
        ok = json_array_append_new(
                 list, json_string(architecture_has_window(c, i) ? "sliding_attention" : "full_attention")) == 0;
    return json_object_set_new(root, "layer_types", list) == 0 && ok;
}

/* ---- Layers without positions ---- */

/* A list with 1 for each layer that has positions, and 0 for each n-th, which has none; the file may have n alone. */
void config_read_plain(struct config_reader *r, const struct key *k, tl_model_config *c) {
    json_t *list = config_value(r, k->name), *has;
    size_t i;
    c->plain_every = config_size(r, "no_rope_layer_interval", NULL, architecture_of(c)->plain_every);
    if (!list || (json_is_array(list) && json_array_size(list) == 0)) return;
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers)
        config_fail(r, k->name, "a list of all layers");
    c->plain_every = 0;
    json_array_foreach(list, i, has) {
        if (!c->plain_every && json_integer_value(has) == 0) c->plain_every = (int64_t)i + 1;
    }
    json_array_foreach(list, i, has) {
        bool is_plain = c->plain_every && ((int64_t)i + 1) % c->plain_every == 0;
        if (!json_is_integer(has) || json_integer_value(has) != !is_plain)
            config_fail(r, k->name, "0 for each n-th layer");
    }
}

bool config_write_plain(json_t *root, const struct key *k, const tl_model_config *c) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int64_t i = 0; ok && i < c->n_layers; i++)
        ok = json_array_append_new(list, json_integer(architecture_has_positions(c, i))) == 0;
    return json_object_set_new(root, k->name, list) == 0 && ok;
}
