/* config.c: the numbers of a model: checked, counted, and as Hugging Face's config.json.
 *
 * The file is untrusted. It is at most a megabyte, and every number is checked for type and range. A key is read, or is
 * one of those known not to change a model, or is refused by its name: nothing that could change results is ignored. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "nn/model.h"
#include "tally.h"

static const char *const names[TL_FAMILY_COUNT] = {"gpt2", "llama", "deep-linear"};
const char *tl_family_name(tl_family family) { return (unsigned)family < TL_FAMILY_COUNT ? names[family] : "?"; }

/* ---- Checks ---- */

#define LARGEST_SIZE ((int64_t)1 << 40)
#define MOST_LAYERS \
    4096 /* a layer costs a millisecond and 70 KB to price, sizes nothing; the deepest models had 1000 */
#define LARGEST_FILE ((size_t)1 << 20)

static bool size_check(const char *name, int64_t n) {
    return (n >= 1 && n <= LARGEST_SIZE) ||
           error_set(TL_ERROR_USE, "model: %s is %lld (need 1 to 2^40)", name, (long long)n);
}

static bool transformer_check(const tl_model_config *c) {
    int64_t width;
    if (!size_check("n_heads", c->n_heads) || !size_check("n_kv_heads", c->n_kv_heads) ||
        !size_check("head_size", c->head_size) || !size_check("ff", c->ff) ||
        !size_check("vocabulary", c->vocabulary) || !size_check("context", c->context))
        return false;
    if (!size_mul(c->n_heads, c->head_size, &width) || width > LARGEST_SIZE)
        return error_set(TL_ERROR_USE, "model: %lld heads of %lld are too wide (need 2^40 at most)",
                         (long long)c->n_heads, (long long)c->head_size);
    if (c->n_heads % c->n_kv_heads)
        return error_set(TL_ERROR_USE, "model: %lld heads cannot share %lld heads of keys and values evenly",
                         (long long)c->n_heads, (long long)c->n_kv_heads);
    if (c->family == TL_GPT2 && (width != c->channels || c->n_kv_heads != c->n_heads))
        return error_set(TL_ERROR_USE, "model: GPT-2's heads are its channels: %lld heads of %lld are not %lld",
                         (long long)c->n_heads, (long long)c->head_size, (long long)c->channels);
    if (c->family == TL_LLAMA && c->head_size % 2)
        return error_set(TL_ERROR_USE, "model: rotary positions turn pairs: a head size of %lld is odd",
                         (long long)c->head_size);
    if (!(c->norm_eps >= 0 && isfinite(c->norm_eps)))
        return error_set(TL_ERROR_USE, "model: norm_eps is %g (need 0 or more)", c->norm_eps);
    if (c->family == TL_LLAMA && !(c->rope_base > 1 && isfinite(c->rope_base)))
        return error_set(TL_ERROR_USE, "model: rope_base is %g (need more than 1)", c->rope_base);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return error_set(TL_ERROR_USE, "model: dropout is %g (need 0 to below 1)", c->dropout);
    return (c->init_std >= 0 && isfinite(c->init_std)) ||
           error_set(TL_ERROR_USE, "model: init_std is %g (need 0 or more)", c->init_std);
}

bool tl_model_config_check(const tl_model_config *c) {
    if (!c) return error_set(TL_ERROR_USE, "model: got NULL instead of a config");
    if ((unsigned)c->family >= TL_FAMILY_COUNT)
        return error_set(TL_ERROR_USE, "model: no family has the number %d", (int)c->family);
    if (!size_check("n_layers", c->n_layers) || !size_check("channels", c->channels)) return false;
    if (c->n_layers > MOST_LAYERS)
        return error_set(TL_ERROR_USE, "model: n_layers is %lld (need 1 to %d)", (long long)c->n_layers, MOST_LAYERS);
    if (c->family != TL_DEEP_LINEAR && !transformer_check(c)) return false;
    return tl_model_config_parameters(c) >= 0;
}

/* ---- Counting ---- */

/* Sums of products that may overflow: is_whole stays true while they do not. */
struct total {
    int64_t n;
    bool is_whole;
};
static void add(struct total *t, int64_t times, int64_t a, int64_t b) {
    int64_t product;
    t->is_whole =
        t->is_whole && size_mul(a, b, &product) && size_mul(product, times, &product) && size_add(t->n, product, &t->n);
}

/* GPT-2:  V C + T C + L (12 C^2 + 13 C) + 2 C   with F = 4 C
 * Llama:  V C (twice untied) + L ((2 H + 2 Hkv) D C + 3 F C + 2 C) + C, and with biases L (H + 2 Hkv) D
 * Deep linear: L C^2 + C */
int64_t tl_model_config_parameters(const tl_model_config *c) {
    if (!error_given(c, "model", "a config")) return -1;
    struct total t = {0, true};
    int64_t L = c->n_layers, C = c->channels, F = c->ff, q, kv;
    /* A few of them are added below before the next check for overflow. */
    bool is_small = size_mul(c->n_heads, c->head_size, &q) && size_mul(c->n_kv_heads, c->head_size, &kv) &&
                    C <= LARGEST_SIZE && F <= LARGEST_SIZE && q <= LARGEST_SIZE && kv <= LARGEST_SIZE;
    if (!is_small) return error_set(TL_ERROR_USE, "model: wider than 2^40"), -1;
    if (c->family == TL_DEEP_LINEAR) {
        add(&t, L, C, C);
        add(&t, 1, C, 1);
    } else {
        add(&t, c->is_tied ? 1 : 2, c->vocabulary, C);
    }
    if (c->family == TL_GPT2) {
        add(&t, 1, c->context, C);
        add(&t, L, C, 3 * C + C);         /* c_attn, c_proj */
        add(&t, L, C, 2 * F);             /* c_fc, c_proj */
        add(&t, L, 1, 3 * C + C + F + C); /* their biases */
        add(&t, L, C, 4);                 /* two norms */
        add(&t, 1, C, 2);
    }
    if (c->family == TL_LLAMA) {
        add(&t, L, C, 2 * q + 2 * kv);
        add(&t, L, C, 3 * F);
        add(&t, L, C, 2);
        add(&t, 1, C, 1);
        if (c->has_qkv_bias) add(&t, L, 1, q + 2 * kv);
    }
    if (t.is_whole) return t.n;
    error_set(TL_ERROR_USE, "model: more parameters than 2^63 - 1");
    return -1;
}

/* ---- Reading ---- */

struct reader {
    const char *path;
    json_t *root;
    json_t *seen; /* the keys that were asked for */
    bool ok;
};

static void fail(struct reader *r, const char *key, const char *need) {
    if (r->ok) error_set(TL_ERROR_USE, "%s: \"%s\" is not %s", r->path, key, need);
    r->ok = false;
}

/* The value of a key, which is known from here on; null counts as missing. */
static json_t *value_at(struct reader *r, const char *key) {
    json_t *v = json_object_get(r->root, key);
    if (v && json_object_set_new(r->seen, key, json_true()) != 0 && r->ok) r->ok = error_memory(64, "a config's keys");
    return v && !json_is_null(v) ? v : NULL;
}

/* A number under the first of two keys that exists (the second may be NULL); without either, the fallback, or an
 * error if that is negative. */
static json_t *value_of(struct reader *r, const char *key, const char *other) {
    json_t *v = value_at(r, key), *w = other ? value_at(r, other) : NULL;
    return v ? v : w;
}

static int64_t read_size(struct reader *r, const char *key, const char *other, int64_t fallback) {
    json_t *v = value_of(r, key, other);
    if (!v && fallback >= 0) return fallback;
    int64_t n = v && json_is_integer(v) ? (int64_t)json_integer_value(v) : 0;
    if (n >= 1 && n <= LARGEST_SIZE) return n;
    fail(r, key, "a whole number from 1 to 2^40");
    return 0;
}

static double read_real(struct reader *r, const char *key, const char *other, double fallback) {
    json_t *v = value_of(r, key, other);
    if (!v) return fallback;
    if (!json_is_number(v)) fail(r, key, "a number");
    return json_number_value(v);
}

static bool read_truth(struct reader *r, const char *key, bool fallback) {
    json_t *v = value_of(r, key, NULL);
    if (v && !json_is_boolean(v)) fail(r, key, "true or false");
    return v ? json_is_true(v) : fallback;
}

/* A key whose other values we would compute wrongly. */
static void demand_text(struct reader *r, const char *key, const char *known, const char *also) {
    json_t *v = value_of(r, key, NULL);
    const char *text = v ? json_string_value(v) : known;
    if (text && (!strcmp(text, known) || (also && !strcmp(text, also)))) return;
    if (r->ok) error_set(TL_ERROR_USE, "%s: \"%s\" is \"%s\" (need \"%s\")", r->path, key, text ? text : "?", known);
    r->ok = false;
}

static void demand_truth(struct reader *r, const char *key, bool known) {
    if (read_truth(r, key, known) != known)
        fail(r, key, known ? "true, the only value known here" : "false, the only value known here");
}

/* Keys that change no number of a model that is trained: names, tokens, generation, other tasks' heads. What begins
 * with "_" is the library's own. */
static const char *const harmless[] = {"architectures",
                                       "auto_map",
                                       "bad_words_ids",
                                       "begin_suppress_tokens",
                                       "bos_token_id",
                                       "cache_implementation",
                                       "chunk_size_feed_forward",
                                       "cls_token_id",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "dtype",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "eos_token_id",
                                       "exponential_decay_length_penalty",
                                       "finetuning_task",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "gradient_checkpointing",
                                       "id2label",
                                       "is_decoder",
                                       "is_llama_config",
                                       "label2id",
                                       "length_penalty",
                                       "mask_token_id",
                                       "max_length",
                                       "min_length",
                                       "model_type",
                                       "name_or_path",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_return_sequences",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_scores",
                                       "pad_token_id",
                                       "prefix",
                                       "pretraining_tp",
                                       "problem_type",
                                       "remove_invalid_values",
                                       "reorder_and_upcast_attn",
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
                                       "sep_token_id",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "tf_legacy_loss",
                                       "tie_encoder_decoder",
                                       "tokenizer_class",
                                       "top_k",
                                       "top_p",
                                       "torch_dtype",
                                       "torchscript",
                                       "transformers.js_config",
                                       "transformers_version",
                                       "typical_p",
                                       "unsloth_fixed",
                                       "unsloth_version",
                                       "use_bfloat16",
                                       "use_cache"};

static bool is_harmless(const char *key) {
    size_t n = sizeof harmless / sizeof *harmless;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, harmless[i])) return true;
    return key[0] == '_';
}

/* Refuses the first key that nobody asked for and that may say something about the model. `within`: the key of the
 * object, NULL for the file itself. */
static void refuse_unknown(struct reader *r, const char *within, const char *type) {
    const char *key;
    json_t *value;
    json_object_foreach(r->root, key, value) {
        if (!r->ok) return;
        if (json_is_null(value) || json_object_get(r->seen, key) || (!within && is_harmless(key))) continue;
        r->ok = error_set(TL_ERROR_USE,
                          "%s: \"%.80s\"%s%s%s is not a key of \"%s\" here and may change the model (remove it if it "
                          "does not)",
                          r->path, key, within ? " in \"" : "", within ? within : "", within ? "\"" : "", type);
    }
}

/* Layers of other kinds than the model's own. */
static void demand_full_attention(struct reader *r) {
    json_t *v = value_at(r, "layer_types"), *type;
    size_t i;
    if (v && !json_is_array(v)) fail(r, "layer_types", "a list");
    json_array_foreach(v, i, type) {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention")) fail(r, "layer_types", "\"full_attention\" everywhere");
    }
}

/* A second number that must be the first one's. */
static void demand_same(struct reader *r, const char *key, double value, const char *other) {
    char need[96];
    snprintf(need, sizeof need, "the value of \"%s\", the only one known here", other);
    if (read_real(r, key, NULL, value) != value) fail(r, key, need);
}

static void read_gpt2(struct reader *r, tl_model_config *c) {
    c->family = TL_GPT2;
    c->n_layers = read_size(r, "n_layer", "num_hidden_layers", -1);
    c->n_heads = c->n_kv_heads = read_size(r, "n_head", "num_attention_heads", -1);
    c->channels = read_size(r, "n_embd", "hidden_size", -1);
    c->ff = read_size(r, "n_inner", NULL, 4 * c->channels);
    c->context = read_size(r, "n_positions", "n_ctx", 1024);
    c->norm_eps = read_real(r, "layer_norm_epsilon", NULL, 1e-5);
    c->dropout = read_real(r, "resid_pdrop", NULL, 0.1);
    c->is_tied = read_truth(r, "tie_word_embeddings", true);
    c->head_size = c->n_heads ? c->channels / c->n_heads : 0;
    demand_text(r, "activation_function", "gelu_new", "gelu_pytorch_tanh");
    demand_truth(r, "scale_attn_weights", true);
    demand_truth(r, "scale_attn_by_inverse_layer_idx", false);
    demand_truth(r, "add_cross_attention", false);
    demand_same(r, "embd_pdrop", c->dropout, "resid_pdrop");
    demand_same(r, "attn_pdrop", c->dropout, "resid_pdrop");
}

static void read_rope_scaling(struct reader *r, tl_model_config *c) {
    json_t *v = value_of(r, "rope_scaling", "rope_parameters");
    if (!v) return;
    if (!json_is_object(v)) {
        fail(r, "rope_scaling", "an object");
        return;
    }
    struct reader inner = {r->path, v, json_object(), r->ok};
    if (!inner.seen) {
        r->ok = error_memory(64, "a config's keys");
        return;
    }
    json_t *type = value_of(&inner, "rope_type", "type");
    const char *name = type ? json_string_value(type) : "default";
    if (!value_of(r, "rope_theta", NULL)) c->rope_base = read_real(&inner, "rope_theta", NULL, 10000);
    if (name && !strcmp(name, "llama3")) {
        c->rope_scaling.low_frequency = read_real(&inner, "low_freq_factor", NULL, 1);
        c->rope_scaling.high_frequency = read_real(&inner, "high_freq_factor", NULL, 4);
        c->rope_scaling.original_context = read_size(&inner, "original_max_position_embeddings", NULL, -1);
    } else if (!name || (strcmp(name, "linear") && strcmp(name, "default"))) {
        if (inner.ok)
            error_set(TL_ERROR_USE, "%s: \"rope_scaling\" is of type \"%s\" (known are \"llama3\" and \"linear\")",
                      r->path, name ? name : "?");
        inner.ok = false;
    }
    if (name && strcmp(name, "default")) c->rope_scaling.factor = read_real(&inner, "factor", NULL, 1);
    refuse_unknown(&inner, "rope_scaling", name ? name : "?");
    json_decref(inner.seen);
    r->ok = inner.ok;
}

static void read_llama(struct reader *r, tl_model_config *c, bool is_qwen) {
    c->family = TL_LLAMA;
    c->n_layers = read_size(r, "num_hidden_layers", NULL, -1);
    c->n_heads = read_size(r, "num_attention_heads", NULL, -1);
    c->n_kv_heads = read_size(r, "num_key_value_heads", NULL, c->n_heads);
    c->channels = read_size(r, "hidden_size", NULL, -1);
    c->head_size = read_size(r, "head_dim", NULL, c->n_heads ? c->channels / c->n_heads : 0);
    c->ff = read_size(r, "intermediate_size", NULL, -1);
    c->context = read_size(r, "max_position_embeddings", NULL, 2048);
    c->norm_eps = read_real(r, "rms_norm_eps", NULL, 1e-6);
    c->rope_base = read_real(r, "rope_theta", NULL, 10000);
    c->dropout = read_real(r, "attention_dropout", NULL, 0);
    c->is_tied = read_truth(r, "tie_word_embeddings", false);
    c->has_qkv_bias = is_qwen;
    demand_text(r, "hidden_act", "silu", NULL);
    demand_truth(r, "mlp_bias", false);
    demand_truth(r, "attention_bias", is_qwen ? read_truth(r, "attention_bias", true) : false);
    demand_truth(r, "rope_interleaved", false);
    demand_full_attention(r);
    demand_truth(r, "use_sliding_window", false);
    if (is_qwen) { /* of the window that is not used */
        value_at(r, "sliding_window");
        value_at(r, "max_window_layers");
        demand_truth(r, "use_mrope", false);
    }
    read_rope_scaling(r, c);
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

static void read_family(struct reader *r, tl_model_config *c) {
    json_t *type = json_object_get(r->root, "model_type");
    const char *name = type ? json_string_value(type) : NULL;
    bool is_qwen = name && !strcmp(name, "qwen2");
    if (name && !strcmp(name, "gpt2")) read_gpt2(r, c);
    else if (name && (is_qwen || !strcmp(name, "llama"))) read_llama(r, c, is_qwen);
    else if (name && !strcmp(name, "deep-linear")) {
        c->family = TL_DEEP_LINEAR;
        c->n_layers = read_size(r, "num_hidden_layers", NULL, -1);
        c->channels = read_size(r, "hidden_size", NULL, -1);
        refuse_unknown(r, NULL, name);
        return;
    } else {
        if (r->ok)
            error_set(TL_ERROR_USE, "%s: \"model_type\" is \"%.80s\"%s (known are gpt2, llama, qwen2 and deep-linear)",
                      r->path, name ? name : "?",
                      name && is_state_space(name) ? ", with state-space or recurrent layers, which are not here" : "");
        r->ok = false;
        return;
    }
    demand_truth(r, "is_encoder_decoder", false);
    if (json_object_size(value_at(r, "pruned_heads")) > 0) fail(r, "pruned_heads", "empty");
    c->vocabulary = read_size(r, "vocab_size", NULL, -1);
    c->init_std = read_real(r, "initializer_range", NULL, 0.02);
    refuse_unknown(r, NULL, name);
}

bool tl_model_config_read(const char *path, tl_model_config *config) {
    if (!path || !config) return error_set(TL_ERROR_USE, "tl_model_config_read: got NULL");
    json_t *root = json_read(path, LARGEST_FILE);
    if (!root) return false;
    tl_model_config c = {0};
    struct reader r = {path, root, json_object(), true};
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

static json_t *gpt2_json(const tl_model_config *c) {
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:s, s:b}",
                     "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "n_layer", (json_int_t)c->n_layers,
                     "n_head", (json_int_t)c->n_heads, "n_embd", (json_int_t)c->channels, "n_inner", (json_int_t)c->ff,
                     "n_positions", (json_int_t)c->context, "n_ctx", (json_int_t)c->context, "vocab_size",
                     (json_int_t)c->vocabulary, "layer_norm_epsilon", c->norm_eps, "resid_pdrop", c->dropout,
                     "embd_pdrop", c->dropout, "attn_pdrop", c->dropout, "initializer_range", c->init_std,
                     "activation_function", "gelu_new", "tie_word_embeddings", (int)c->is_tied);
}

static json_t *llama_json(const tl_model_config *c) {
    bool is_qwen = c->has_qkv_bias;
    json_t *root =
        json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s, s:b}", "architectures",
                  is_qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM", "model_type", is_qwen ? "qwen2" : "llama",
                  "num_hidden_layers", (json_int_t)c->n_layers, "num_attention_heads", (json_int_t)c->n_heads,
                  "num_key_value_heads", (json_int_t)c->n_kv_heads, "head_dim", (json_int_t)c->head_size, "hidden_size",
                  (json_int_t)c->channels, "intermediate_size", (json_int_t)c->ff, "max_position_embeddings",
                  (json_int_t)c->context, "vocab_size", (json_int_t)c->vocabulary, "rms_norm_eps", c->norm_eps,
                  "rope_theta", c->rope_base, "attention_dropout", c->dropout, "initializer_range", c->init_std,
                  "hidden_act", "silu", "tie_word_embeddings", (int)c->is_tied);
    const tl_rope_scaling *s = &c->rope_scaling;
    json_t *scaling = NULL;
    if (s->factor != 0 && s->factor != 1)
        scaling = s->original_context
                      ? json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", s->factor,
                                  "low_freq_factor", s->low_frequency, "high_freq_factor", s->high_frequency,
                                  "original_max_position_embeddings", (json_int_t)s->original_context)
                      : json_pack("{s:s, s:f}", "rope_type", "linear", "factor", s->factor);
    if (root && scaling) json_object_set_new(root, "rope_scaling", scaling);
    return root;
}

bool model_config_write_at(const tl_model_config *c, struct file_place at) {
    if (!tl_model_config_check(c)) return false;
    json_t *root = c->family == TL_GPT2 ? gpt2_json(c)
                   : c->family == TL_LLAMA
                       ? llama_json(c)
                       : json_pack("{s:s, s:I, s:I}", "model_type", "deep-linear", "num_hidden_layers",
                                   (json_int_t)c->n_layers, "hidden_size", (json_int_t)c->channels);
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
