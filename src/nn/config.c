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
#include "base/number.h"
#include "nn/architecture.h"
#include "nn/model.h"
#include "tally.h"

const char *tl_family_name(tl_family family) {
    return (unsigned)family < TL_FAMILY_COUNT ? architecture_at((int)family)->type : "?";
}

/* ---- Checks ---- */

#define LARGEST_SIZE ((int64_t)1 << 40)
#define MOST_LAYERS \
    4096 /* a layer costs a millisecond and 70 KB to price, sizes nothing; the deepest models had 1000 */
#define LARGEST_FILE ((size_t)1 << 20)

static bool size_check(const char *name, int64_t n) {
    return (n >= 1 && n <= LARGEST_SIZE) ||
           error_set(TL_ERROR_USE, "model: %s is %lld (need 1 to 2^40)", name, (long long)n);
}

#define MOST_EXPERTS 1024 /* as many groups as a product takes */

/* Shared experts, groups of experts, and layers without experts. */
static bool groups_check(const tl_model_config *c, const struct architecture *a) {
    const int64_t per_group = c->n_groups ? c->n_experts / c->n_groups : c->n_experts;
    if (c->expert_from < 0 || c->expert_every < 0 || c->n_shared < 0 || c->n_shared > MOST_EXPERTS ||
        (!a->names->shared &&
         (c->expert_from || c->expert_every || c->n_shared || c->n_groups || c->routed_scale != 0)))
        return error_set(TL_ERROR_USE,
                         "model: %lld shared experts, and experts from layer %lld on in every %lld-th, are not for %s "
                         "models",
                         (long long)c->n_shared, (long long)c->expert_from, (long long)c->expert_every, a->type);
    if (c->n_groups < 0 || c->n_groups_chosen < 0 || c->n_groups_chosen > c->n_groups ||
        (c->n_groups && (c->n_experts % c->n_groups || !c->n_groups_chosen || per_group < 2 ||
                         c->n_chosen > per_group * c->n_groups_chosen)))
        return error_set(TL_ERROR_USE,
                         "model: a token takes %lld experts from %lld of %lld groups of %lld (need groups of 2 or more "
                         "that hold all experts, and as many experts in the chosen ones)",
                         (long long)c->n_chosen, (long long)c->n_groups_chosen, (long long)c->n_groups,
                         (long long)per_group);
    return (c->routed_scale >= 0 && isfinite(c->routed_scale)) ||
           error_set(TL_ERROR_USE, "model: the scale of experts' weights is %g (need 0 or more)", c->routed_scale);
}

static bool latents_check(const tl_model_config *c, const struct architecture *a) {
    if (!a->has_latents)
        return (!c->q_rank && !c->kv_rank && !c->rope_head && !c->value_head && c->score_yarn == 0) ||
               error_set(TL_ERROR_USE, "model: %s models have no latent keys: kv_rank is %lld (need 0)", a->type,
                         (long long)c->kv_rank);
    if (!size_check("kv_rank", c->kv_rank) || !size_check("rope_head", c->rope_head) ||
        !size_check("value_head", c->value_head) || (c->q_rank && !size_check("q_rank", c->q_rank)))
        return false;
    if (c->rope_head >= c->head_size || c->rope_head % 2 || c->value_head > c->head_size || c->n_kv_heads != c->n_heads)
        return error_set(
            TL_ERROR_USE,
            "model: heads of %lld, of which %lld channels turn, with values of %lld, %lld heads and %lld of "
            "keys (need an even part that turns, values that are not wider, and as many heads of keys)",
            (long long)c->head_size, (long long)c->rope_head, (long long)c->value_head, (long long)c->n_heads,
            (long long)c->n_kv_heads);
    return (c->score_yarn >= 0 && isfinite(c->score_yarn)) ||
           error_set(TL_ERROR_USE, "model: score_yarn is %g (need 0 or more)", c->score_yarn);
}

/* Falcon's and Llama 4's own numbers. */
static bool rare_check(const tl_model_config *c) {
    const bool is_falcon = c->family == TL_FALCON, is_llama4 = c->family == TL_LLAMA4;
    if (!is_falcon && (c->has_alibi || c->has_two_norms))
        return error_set(TL_ERROR_USE, "model: %s models have neither ALiBi nor two norms side by side",
                         tl_family_name(c->family));
    if (is_falcon && !c->is_parallel && (c->has_two_norms || (c->n_kv_heads != 1 && c->n_kv_heads != c->n_heads)))
        return error_set(TL_ERROR_USE,
                         "model: falcon models with two norms or %lld of %lld heads of keys have attention beside the "
                         "MLP",
                         (long long)c->n_kv_heads, (long long)c->n_heads);
    if (!is_llama4 && (c->chunk || c->temperature_floor || c->temperature_scale != 0 || c->has_head_norm))
        return error_set(TL_ERROR_USE, "model: %s models have no chunks, temperatures and norms without weights",
                         tl_family_name(c->family));
    return (c->chunk >= 0 && c->temperature_floor >= 0 && isfinite(c->temperature_scale)) ||
           error_set(TL_ERROR_USE, "model: chunk is %lld, temperature_floor %lld (need 0 or more)", (long long)c->chunk,
                     (long long)c->temperature_floor);
}

static bool experts_check(const tl_model_config *c, const struct architecture *a) {
    if (!a->has_experts)
        return (!c->n_experts && !c->n_chosen && !c->expert_ff && !c->n_shared && !c->n_groups && !c->expert_from &&
                !c->expert_every) ||
               error_set(TL_ERROR_USE, "model: %s models have no experts: n_experts is %lld (need 0)", a->type,
                         (long long)c->n_experts);
    if (c->n_experts < 1 || c->n_experts > MOST_EXPERTS || c->n_chosen < 1 || c->n_chosen > c->n_experts)
        return error_set(TL_ERROR_USE,
                         "model: a token takes %lld of %lld experts (need 1 to %d, and not more than all)",
                         (long long)c->n_chosen, (long long)c->n_experts, MOST_EXPERTS);
    if (a->are_experts_clamped ? !(c->gate_limit > 0 && isfinite(c->gate_limit)) : c->gate_limit != 0)
        return error_set(TL_ERROR_USE, "model: the limit of gates is %g (need %s)", c->gate_limit,
                         a->are_experts_clamped ? "more than 0" : "0");
    if (!groups_check(c, a)) return false;
    if (a->is_choice_normed && !c->is_choice_normed)
        return error_set(TL_ERROR_USE, "model: %s models divide the weights of experts by their sum", a->type);
    return !c->expert_ff || size_check("expert_ff", c->expert_ff);
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
    const struct architecture *a = architecture_of(c);
    if (a->are_heads_channels && (width != c->channels || (a->packing == PACKED_PARTS && c->n_kv_heads != c->n_heads)))
        return error_set(TL_ERROR_USE,
                         "model: the heads of %s models are their channels: %lld heads of %lld are not %lld", a->type,
                         (long long)c->n_heads, (long long)c->head_size, (long long)c->channels);
    int64_t turned = c->rope_scaling.size ? c->rope_scaling.size : c->head_size;
    if (a->has_rope && (turned % 2 || turned < 0 || turned > c->head_size))
        return error_set(TL_ERROR_USE, "model: rotary positions turn pairs: %s of %lld is odd%s",
                         c->rope_scaling.size ? "a part" : "a head size", (long long)turned,
                         turned % 2 ? "" : ", or not a part of a head");
    for (int64_t i = 0; c->rope_scaling.rule == TL_ROPE_LIST && i < turned / 2; i++)
        if (turned > 128 || !(c->short_slower[i] > 0 && c->long_slower[i] > 0))
            return error_set(
                TL_ERROR_USE,
                "model: the lists of longrope have no number above 0 for pair %lld of %lld (need all of at "
                "most 64)",
                (long long)i, (long long)turned / 2);
    if (c->is_parallel && a->names->after[0])
        return error_set(TL_ERROR_USE, "model: %s models have norms behind attention, and cannot be parallel", a->type);
    if (!(c->window_rope_base >= 0 && isfinite(c->window_rope_base) && c->query_scale >= 0 && isfinite(c->query_scale)))
        return error_set(TL_ERROR_USE, "model: window_rope_base is %g, query_scale %g (need 0 or more)",
                         c->window_rope_base, c->query_scale);
    if (c->window < 0 || c->window_from < 0 || c->window_every < 0 || (c->window && a->window == WINDOW_NEVER))
        return error_set(TL_ERROR_USE, "model: %s models have no window of %lld keys, from layer %lld, every %lld",
                         a->type, (long long)c->window, (long long)c->window_from, (long long)c->window_every);
    if (!experts_check(c, a) || !latents_check(c, a) || !rare_check(c)) return false;
    if (!(c->attention_soft_cap >= 0 && isfinite(c->attention_soft_cap) && c->logit_soft_cap >= 0 &&
          isfinite(c->logit_soft_cap)))
        return error_set(TL_ERROR_USE, "model: soft caps are %g and %g (need more than 0, or 0 for none)",
                         c->attention_soft_cap, c->logit_soft_cap);
    if (c->plain_every < 0 || (c->plain_every && !a->plain_every))
        return error_set(TL_ERROR_USE, "model: every %lld-th layer of %s models cannot be without positions",
                         (long long)c->plain_every, a->type);
    if (!(c->norm_eps >= 0 && isfinite(c->norm_eps)))
        return error_set(TL_ERROR_USE, "model: norm_eps is %g (need 0 or more)", c->norm_eps);
    if (a->has_rope && !(c->rope_base > 1 && isfinite(c->rope_base)))
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

/* Numbers of all norms of a layer and of queries and keys. */
static int64_t norm_numbers(const tl_model_config *c, const struct architecture *a, int64_t q, int64_t kv) {
    int n = 0;
    for (int i = 0; i < 2; i++) n += (a->names->before[i] != NULL) + (a->names->after[i] != NULL);
    int64_t of_qk = a->qk_norm == QK_NORM_HEAD ? 2 * c->head_size : a->qk_norm == QK_NORM_WHOLE ? q + kv : 0;
    return n * c->channels * (a->norm == LAYER_NORM ? 2 : 1) + of_qk;
}

/* Matrices of attention: 2 (H + Hkv) D C; with latents those of q by its rank, of the latents, of keys and values from
 * them, and of the result. */
static void add_attention(struct total *t, const tl_model_config *c, int64_t q, int64_t kv) {
    const int64_t L = c->n_layers, C = c->channels;
    if (!c->kv_rank) {
        add(t, L, C, 2 * q + 2 * kv);
        return;
    }
    if (c->q_rank) add(t, L, c->q_rank, C + 1 + q); /* with a norm */
    else add(t, L, C, q);
    add(t, L, C, c->kv_rank + c->rope_head);
    add(t, L, c->kv_rank, 1);
    int64_t width;
    t->is_whole = t->is_whole && size_mul(c->n_heads, c->head_size - c->rope_head + c->value_head, &width);
    if (t->is_whole) add(t, L, c->kv_rank, width);
    if (t->is_whole) add(t, L, C, c->n_heads * c->value_head);
}

/* Of the layers with experts: n of them, those for all tokens, and a router, E C. */
static void add_experts(struct total *t, const tl_model_config *c, const struct architecture *a, int64_t n_experts) {
    const int64_t L = architecture_expert_layers(c), C = c->channels, width = architecture_expert_ff(c);
    int64_t n;
    t->is_whole = t->is_whole && size_mul(L, n_experts + c->n_shared, &n);
    if (t->is_whole) add(t, n, C, 3 * width);
    if (t->is_whole && a->are_experts_clamped) add(t, n, 1, 2 * width + C); /* biases */
    add(t, L, C + (a->are_experts_clamped ? 1 : 0), c->n_experts);
}

/* V C (twice untied) [+ T C of learned positions] + L ((2 H + 2 Hkv) D C + 2 or 3 F C + biases + norms) + a norm. */
static void add_transformer(struct total *t, const tl_model_config *c, int64_t q, int64_t kv, int64_t n_experts) {
    const struct architecture *a = architecture_of(c);
    int64_t L = c->n_layers, C = c->channels, F = c->ff;
    bool all = a->has_biases;
    add(t, c->is_tied ? 1 : 2, c->vocabulary, C);
    if (a->names->positions) add(t, 1, c->context, C);
    add_attention(t, c, q, kv);
    if (a->has_experts) add_experts(t, c, a, n_experts);
    add(t, L - architecture_expert_layers(c), C, (a->is_gated ? 3 : 2) * F);
    if (a->has_sinks) add(t, L, 1, c->n_heads);
    if (all || c->has_qkv_bias) add(t, L, 1, q + 2 * kv);
    if (all || c->has_out_bias) add(t, L, 1, C);
    if (all || c->has_mlp_bias) add(t, L, 1, (a->is_gated ? 2 : 1) * F + C);
    add(t, L, 1, norm_numbers(c, a, q, kv));
    add(t, 1, C, a->norm == LAYER_NORM ? 2 : 1);
}

/* Deep linear: L C^2 + C. Of the experts, all or those that a token takes. */
static int64_t parameters(const tl_model_config *c, bool is_active) {
    if (!error_given(c, "model", "a config")) return -1;
    struct total t = {0, true};
    int64_t C = c->channels, q, kv;
    /* A few of them are added below before the next check for overflow. */
    bool is_small = (unsigned)c->family < TL_FAMILY_COUNT && size_mul(c->n_heads, c->head_size, &q) &&
                    size_mul(c->n_kv_heads, c->head_size, &kv) && C <= LARGEST_SIZE && c->ff <= LARGEST_SIZE &&
                    c->expert_ff <= LARGEST_SIZE && q <= LARGEST_SIZE && kv <= LARGEST_SIZE &&
                    c->n_layers <= MOST_LAYERS && c->q_rank <= LARGEST_SIZE && c->kv_rank <= LARGEST_SIZE;
    if (!is_small) return error_set(TL_ERROR_USE, "model: wider than 2^40"), -1;
    if (c->family == TL_DEEP_LINEAR) {
        add(&t, c->n_layers, C, C);
        add(&t, 1, C, 1);
    } else {
        add_transformer(&t, c, q, kv, is_active ? c->n_chosen : c->n_experts);
    }
    if (t.is_whole) return t.n;
    error_set(TL_ERROR_USE, "model: more parameters than 2^63 - 1");
    return -1;
}

int64_t tl_model_config_parameters(const tl_model_config *c) { return parameters(c, false); }
int64_t tl_model_config_active_parameters(const tl_model_config *c) { return parameters(c, true); }

/* ---- Reading ---- */

struct reader {
    const char *path;
    json_t *root;
    json_t *seen; /* the keys that were asked for */
    bool ok;
    double score_yarn;        /* "mscale_all_dim" of the last rule that was read */
    int64_t original_context; /* of the file, outside of rules; 0: it does not say */
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

/* A whole number that may be 0. */
static int64_t read_count(struct reader *r, const char *key, int64_t fallback) {
    json_t *v = value_at(r, key);
    int64_t n = v && json_is_integer(v) ? (int64_t)json_integer_value(v) : v ? -1 : fallback;
    if (n < 0 || n > LARGEST_SIZE) fail(r, key, "a whole number from 0 to 2^40");
    return n;
}

/* Whether the file has the key, and says null. */
static bool is_null(struct reader *r, const char *key) { return json_is_null(json_object_get(r->root, key)); }

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
                                       "classifier_dropout",
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

static void demand_number(struct reader *r, const char *key, double known) {
    char need[80];
    number_print(need, sizeof need, "%g, the only value known here", known);
    if (read_real(r, key, NULL, known) != known) fail(r, key, need);
}

/* Another probability of dropout, which must be the first one's. */
static void demand_same(struct reader *r, const char *key, double value) {
    if (read_real(r, key, NULL, value) != value) fail(r, key, "the model's other dropout, the only value known here");
}

/* ---- Rotary positions ---- */

static void read_yarn(struct reader *r, tl_rope_scaling *s) {
    double all = read_real(r, "mscale_all_dim", NULL, 0), some = read_real(r, "mscale", NULL, 0), f = log(s->factor);
    s->rule = read_truth(r, "truncate", true) ? TL_ROPE_YARN : TL_ROPE_YARN_EXACT;
    s->low_frequency = read_real(r, "beta_slow", NULL, 1);
    s->high_frequency = read_real(r, "beta_fast", NULL, 32);
    if (!(s->factor > 1)) fail(r, "factor", "more than 1");
    r->score_yarn = all;
    s->magnitude = some != 0 && all != 0 ? (0.1 * some * f + 1) / (0.1 * all * f + 1) : 0.1 * f + 1;
    s->magnitude = read_real(r, "attention_factor", NULL, s->magnitude);
}

/* A list of a number above 0 for each pair, of which there are as many as config_check finds. */
static void read_list(struct reader *r, const char *key, float list[64]) {
    json_t *values = value_at(r, key), *value;
    size_t i;
    if (!json_is_array(values) || !json_array_size(values) || json_array_size(values) > 64)
        fail(r, key, "a list of 1 to 64");
    json_array_foreach(values, i, value) {
        if (!(json_number_value(value) > 0)) fail(r, key, "of numbers above 0");
        if (i < 64) list[i] = (float)json_number_value(value);
    }
}

/* longrope: the frequencies of pairs are divided by one list up to the original context, and by another beyond. With
 * f = context / original, what is turned grows by sqrt(1 + log f / log original). */
static void read_lists(struct reader *r, tl_rope_scaling *s, tl_model_config *c) {
    s->rule = TL_ROPE_LIST;
    s->original_context =
        read_size(r, "original_max_position_embeddings", NULL, r->original_context ? r->original_context : c->context);
    s->factor = read_real(r, "factor", NULL, (double)c->context / (double)s->original_context);
    const double grow = s->factor > 1 ? sqrt(1 + log(s->factor) / log((double)s->original_context)) : 1;
    s->magnitude = read_real(r, "attention_factor", NULL, grow);
    s->factor = s->factor > 1 ? s->factor : 2; /* another number means no scaling */
    read_list(r, "short_factor", c->short_slower);
    read_list(r, "long_factor", c->long_slower);
}

/* The rule by its name, and its numbers. */
static void read_scaling(struct reader *r, const char *name, tl_rope_scaling *s, tl_model_config *c) {
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
    s->factor = read_real(r, "factor", NULL, 1);
    if (is_dynamic) s->rule = TL_ROPE_DYNAMIC;
    if (is_llama3) {
        s->low_frequency = read_real(r, "low_freq_factor", NULL, 1);
        s->high_frequency = read_real(r, "high_freq_factor", NULL, 4);
    }
    if (is_llama3 || is_yarn) s->original_context = read_size(r, "original_max_position_embeddings", NULL, -1);
    else value_at(r, "original_max_position_embeddings");
    if (is_yarn) read_yarn(r, s);
}

/* An object of a rule, of the layers of one type if it holds several. */
static void read_rope_object(struct reader *r, json_t *object, tl_model_config *c, double *base, double *share,
                             bool is_scaled) {
    struct reader inner = {r->path, object, json_object(), r->ok, 0, 0};
    if (!inner.seen) {
        r->ok = error_memory(64, "a config's keys");
        return;
    }
    inner.original_context = json_integer_value(json_object_get(r->root, "original_max_position_embeddings"));
    if (inner.original_context < 0 || inner.original_context > LARGEST_SIZE) inner.original_context = 0;
    json_t *type = value_of(&inner, "rope_type", "type");
    const char *name = type ? json_string_value(type) : "default";
    *base = read_real(&inner, "rope_theta", NULL, *base);
    *share = read_real(&inner, "partial_rotary_factor", NULL, *share);
    if (is_scaled) read_scaling(&inner, name ? name : "?", &c->rope_scaling, c);
    else if (!name || strcmp(name, "default")) fail(&inner, "rope_type", "\"default\" in layers with a window");
    refuse_unknown(&inner, "rope_scaling", name ? name : "?");
    if (architecture_of(c)->has_latents) c->score_yarn = inner.score_yarn;
    json_decref(inner.seen);
    r->ok = inner.ok;
}

static void read_rope(struct reader *r, const struct architecture *a, tl_model_config *c) {
    json_t *v = value_of(r, "rope_scaling", "rope_parameters"), *all = json_object_get(v, "full_attention");
    double share = a->rope_share > 0 ? a->rope_share : 1;
    c->rope_base = read_real(r, a->rope_base_key, "rope_theta", a->rope_base > 0 ? a->rope_base : 10000);
    share = read_real(r, a->rope_share_key, "partial_rotary_factor", share);
    if (a->window_rope_base > 0) c->window_rope_base = read_real(r, "rope_local_base_freq", NULL, a->window_rope_base);
    if (v && !json_is_object(v)) fail(r, "rope_scaling", "an object");
    if (r->ok && json_is_object(all) && a->window_rope_base > 0) {
        json_t *window = json_object_get(v, "sliding_attention");
        double ignored = 1;
        read_rope_object(r, all, c, &c->rope_base, &share, true);
        if (json_is_object(window)) read_rope_object(r, window, c, &c->window_rope_base, &ignored, false);
    } else if (r->ok && v) {
        read_rope_object(r, v, c, &c->rope_base, &share, true);
    }
    if (a->has_latents && share != 1) fail(r, a->rope_share_key, "1: \"qk_rope_head_dim\" says what turns");
    if (!(share > 0 && share <= 1)) fail(r, a->rope_share_key, "a share of the channels, above 0 and up to 1");
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

static bool write_rope(json_t *root, const struct architecture *a, const tl_model_config *c) {
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
static void read_layer_types(struct reader *r, json_t *list, int64_t *from, int64_t *first_full) {
    json_t *type;
    size_t i;
    *from = *first_full = 0;
    bool has_window = false;
    json_array_foreach(list, i, type) {
        const char *name = json_string_value(type);
        bool is_window = name && !strcmp(name, "sliding_attention");
        if (!is_window && (!name || strcmp(name, "full_attention")))
            fail(r, "layer_types", "of \"full_attention\" and \"sliding_attention\" alone");
        if (is_window && !has_window) *from = (int64_t)i;
        if (has_window && !is_window && !*first_full) *first_full = (int64_t)i + 1;
        has_window = has_window || is_window;
    }
}

/* Whether the list says of every layer what the config does. */
static void demand_layer_types(struct reader *r, json_t *list, const tl_model_config *c) {
    json_t *type;
    size_t i;
    if (list && !json_is_array(list)) fail(r, "layer_types", "a list");
    if (list && json_array_size(list) != (size_t)c->n_layers) fail(r, "layer_types", "a list of all layers");
    json_array_foreach(list, i, type) {
        const char *name = json_string_value(type);
        bool has_window = architecture_has_window(c, (int64_t)i);
        if (!name || strcmp(name, has_window ? "sliding_attention" : "full_attention"))
            fail(r, "layer_types", "what the other keys say of windows");
    }
}

static void read_window(struct reader *r, const struct architecture *a, tl_model_config *c) {
    if (c->family == TL_LLAMA4) return; /* it has chunks */
    json_t *list = value_at(r, "layer_types");
    int64_t from, first_full;
    bool is_used = a->window == WINDOW_ALL || a->window == WINDOW_EVERY;
    if (a->window == WINDOW_FROM || a->window == WINDOW_NEVER)
        is_used = read_truth(r, "use_sliding_window", false) && a->window == WINDOW_FROM;
    if (a->window == WINDOW_NEVER) demand_truth(r, "use_sliding_window", false);
    read_layer_types(r, list, &from, &first_full);
    if (a->window != WINDOW_NEVER)
        c->window = read_size(r, "sliding_window", NULL, is_null(r, "sliding_window") ? 0 : a->window_keys);
    if (a->window == WINDOW_FROM) c->window_from = read_count(r, "max_window_layers", list ? from : c->n_layers);
    if (a->window == WINDOW_EVERY)
        c->window_every = read_size(r, "sliding_window_pattern", list ? NULL : "_sliding_window_pattern",
                                    list ? first_full : a->window_every);
    if (!is_used) c->window = 0;
    if (!c->window) c->window_from = c->window_every = 0;
    demand_layer_types(r, list, c);
}

static bool write_window(json_t *root, const struct architecture *a, const tl_model_config *c) {
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
static void read_plain(struct reader *r, const struct key *k, tl_model_config *c) {
    json_t *list = value_at(r, k->name), *has;
    size_t i;
    c->plain_every = read_size(r, "no_rope_layer_interval", NULL, architecture_of(c)->plain_every);
    if (!list || (json_is_array(list) && json_array_size(list) == 0)) return;
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers) fail(r, k->name, "a list of all layers");
    c->plain_every = 0;
    json_array_foreach(list, i, has) {
        if (!c->plain_every && json_integer_value(has) == 0) c->plain_every = (int64_t)i + 1;
    }
    json_array_foreach(list, i, has) {
        bool is_plain = c->plain_every && ((int64_t)i + 1) % c->plain_every == 0;
        if (!json_is_integer(has) || json_integer_value(has) != !is_plain) fail(r, k->name, "0 for each n-th layer");
    }
}

static bool write_plain(json_t *root, const struct key *k, const tl_model_config *c) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int64_t i = 0; ok && i < c->n_layers; i++)
        ok = json_array_append_new(list, json_integer(architecture_has_positions(c, i))) == 0;
    return json_object_set_new(root, k->name, list) == 0 && ok;
}

/* ---- Falcon ---- */

static void read_falcon(struct reader *r, tl_model_config *c) {
    bool is_new = read_truth(r, "new_decoder_architecture", false), is_single = read_truth(r, "multi_query", true);
    int64_t n_kv = read_size(r, "num_kv_heads", "n_head_kv", 0),
            n_norms = read_size(r, "num_ln_in_parallel_attn", NULL, 0);
    c->is_parallel = read_truth(r, "parallel_attn", true);
    c->has_qkv_bias = c->has_out_bias = c->has_mlp_bias = read_truth(r, "bias", false);
    c->has_alibi = read_truth(r, "alibi", false);
    c->has_two_norms = is_new && n_norms != 1;
    c->n_kv_heads = is_new && n_kv ? n_kv : !is_new && is_single ? 1 : c->n_heads;
    if (is_new && !c->is_parallel) fail(r, "parallel_attn", "true, as \"new_decoder_architecture\" is");
    if (n_norms > (is_new ? 2 : 1))
        fail(r, "num_ln_in_parallel_attn", is_new ? "1 or 2" : "1, the only value known here");
    if (!is_new && !is_single && n_kv && n_kv != c->n_heads) fail(r, "num_kv_heads", "that of all heads");
}

/* One head of keys, or as many as of queries, are the same in both architectures. */
static bool write_falcon(json_t *root, const tl_model_config *c) {
    const bool is_grouped = c->n_kv_heads > 1 && c->n_kv_heads < c->n_heads, is_new = c->has_two_norms || is_grouped;
    json_t *more = json_pack("{s:b, s:b, s:I, s:I, s:b, s:b, s:b}", "new_decoder_architecture", is_new, "multi_query",
                             c->n_kv_heads == 1, "num_kv_heads", (json_int_t)c->n_kv_heads, "num_ln_in_parallel_attn",
                             (json_int_t)(c->has_two_norms ? 2 : 1), "parallel_attn", c->is_parallel, "bias",
                             c->has_qkv_bias, "alibi", c->has_alibi);
    bool ok = more && json_object_update(root, more) == 0;
    json_decref(more);
    return ok;
}

/* ---- Latent attention ---- */

/* A size that may be null, for none. */
static int64_t read_size_or_none(struct reader *r, const char *key, int64_t fallback) {
    return read_size(r, key, NULL, is_null(r, key) ? 0 : fallback);
}

static void read_latent(struct reader *r, tl_model_config *c) {
    int64_t plain = read_size(r, "qk_nope_head_dim", NULL, 128);
    c->kv_rank = read_size(r, "kv_lora_rank", NULL, 512);
    c->q_rank = read_size_or_none(r, "q_lora_rank", 1536);
    c->rope_head = read_size(r, "qk_rope_head_dim", NULL, 64);
    c->value_head = read_size(r, "v_head_dim", NULL, 128);
    c->n_kv_heads = read_size(r, "num_key_value_heads", NULL, c->n_heads);
    c->head_size = plain + c->rope_head;
    if (read_size(r, "qk_head_dim", NULL, c->head_size) != c->head_size)
        fail(r, "qk_head_dim", "the sum of \"qk_nope_head_dim\" and \"qk_rope_head_dim\"");
    if (read_size(r, "head_dim", NULL, c->rope_head) != c->rope_head) fail(r, "head_dim", "\"qk_rope_head_dim\"");
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
static void read_groups(struct reader *r, tl_model_config *c) {
    const bool is_v3 = c->family == TL_DEEPSEEK_V3;
    int64_t n = read_size(r, "n_group", NULL, is_v3 ? 8 : 0),
            n_chosen = read_size(r, "topk_group", NULL, is_v3 ? 4 : 0);
    if (!is_v3) {
        json_t *v = value_at(r, "topk_method");
        const char *method = v ? json_string_value(v) : "greedy";
        bool is_limited = method && !strcmp(method, "group_limited_greedy");
        if (!is_limited && (!method || strcmp(method, "greedy"))) demand_text(r, "topk_method", "greedy", NULL);
        if (!is_limited) return;
        if (!n || !n_chosen) fail(r, "n_group", "a number of groups, as \"topk_method\" needs");
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
static void read_dense_layers(struct reader *r, tl_model_config *c) {
    json_t *list = value_at(r, "moe_layers"), *layer;
    int64_t step = read_size(r, "interleave_moe_layer_step", NULL, 1);
    size_t i;
    c->n_shared = 1;
    if (json_is_array(list) && json_array_size(list)) step = json_integer_value(json_array_get(list, 0)) + 1;
    c->expert_every = step > 1 ? step : 0;
    if (list && (!json_is_array(list) || (int64_t)json_array_size(list) != architecture_expert_layers(c)))
        fail(r, "moe_layers", "a list of each n-th layer");
    json_array_foreach(list, i, layer) {
        if (json_integer_value(layer) != ((int64_t)i + 1) * step - 1)
            fail(r, "moe_layers", "a list of each n-th layer");
    }
}

/* Chunks are in the layers with positions, as "layer_types" must say; temperatures in the others. */
static void read_llama4(struct reader *r, tl_model_config *c) {
    json_t *list = value_at(r, "layer_types"), *type, *tuned = value_at(r, "attn_temperature_tuning");
    int64_t floor = read_size(r, "floor_scale", NULL, 8192);
    double scale = read_real(r, "attn_scale", NULL, 0.1);
    bool is_tuned = !tuned || json_is_true(tuned) || json_integer_value(tuned) != 0;
    size_t i;
    c->chunk = read_size_or_none(r, "attention_chunk_size", 8192);
    if (is_tuned) c->temperature_floor = floor, c->temperature_scale = scale;
    if (list && (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers))
        fail(r, "layer_types", "a list of all layers");
    json_array_foreach(list, i, type) {
        const char *name = json_string_value(type);
        const char *want = architecture_has_positions(c, (int64_t)i) ? "chunked_attention" : "full_attention";
        if (!name || strcmp(name, want)) fail(r, "layer_types", "what \"no_rope_layers\" says of chunks");
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

static void read_key(struct reader *r, const struct key *k, tl_model_config *c) {
    void *at = (char *)c + k->at;
    switch (k->kind) {
    case KEY_SIZE:
        *(int64_t *)at = read_size(r, k->name, k->other, (int64_t)k->fallback);
        break;
    case KEY_REAL:
        *(double *)at = read_real(r, k->name, k->other, k->fallback);
        break;
    case KEY_WHOLE:
        *(double *)at = (double)read_size(r, k->name, k->other, (int64_t)k->fallback);
        break;
    case KEY_TRUTH:
        *(bool *)at = read_truth(r, k->name, k->fallback != 0);
        break;
    case KEY_BIASES:
        c->has_qkv_bias = c->has_out_bias = read_truth(r, k->name, k->fallback != 0);
        break;
    case KEY_TEXT:
        demand_text(r, k->name, k->text, k->also);
        break;
    case KEY_TRUE:
    case KEY_FALSE:
        demand_truth(r, k->name, k->kind == KEY_TRUE);
        break;
    case KEY_DROPOUT:
        demand_same(r, k->name, c->dropout);
        break;
    case KEY_MULTI_QUERY:
        if (read_truth(r, k->name, true)) c->n_kv_heads = 1;
        value_at(r, "num_key_value_heads"); /* says the same */
        break;
    case KEY_FIXED:
        demand_number(r, k->name, k->fallback);
        break;
    case KEY_EMPTY:
        if (value_at(r, k->name) && !is_empty_list(value_at(r, k->name)))
            fail(r, k->name, "an empty list, the only value known here");
        break;
    case KEY_COUNT:
        *(int64_t *)at = read_count(r, k->name, (int64_t)k->fallback);
        break;
    case KEY_FALCON:
        read_falcon(r, c);
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
        *(double *)at = read_real(r, k->name, NULL, is_null(r, k->name) ? 0 : k->fallback);
        break;
    case KEY_PLAIN:
        read_plain(r, k, c);
        break;
    case KEY_UNUSED:
        value_at(r, k->name);
        break;
    }
}

static bool write_key(json_t *root, const struct key *k, const tl_model_config *c) {
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
        return write_plain(root, k, c);
    case KEY_UNUSED:
        return true;
    }
    return json_object_set_new(root, k->name, v) == 0;
}

/* What files leave out. */
static void complete(const struct architecture *a, tl_model_config *c) {
    if (!c->n_kv_heads) c->n_kv_heads = a->n_kv_heads ? a->n_kv_heads : c->n_heads;
    if (!c->head_size) c->head_size = a->head_size;
    if (!c->head_size) c->head_size = c->n_heads ? c->channels / c->n_heads : 0;
    if (!c->ff) c->ff = 4 * c->channels;
}

static void read_keys(struct reader *r, const struct architecture *a, tl_model_config *c) {
    architecture_begin(a, c);
    for (const struct key *k = a->keys; k->name; k++) read_key(r, k, c);
    for (const struct key *k = a->more_keys; k && k->name; k++) read_key(r, k, c);
    if (a->names) {
        complete(a, c);
        demand_truth(r, "is_encoder_decoder", false);
        if (json_object_size(value_at(r, "pruned_heads")) > 0) fail(r, "pruned_heads", "empty");
        if (a->has_rope) {
            read_rope(r, a, c);
        }
        read_window(r, a, c);
    }
    refuse_unknown(r, NULL, a->type);
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

static void refuse_type(struct reader *r, const char *type) {
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

static void read_text_part(struct reader *r, const char *type, tl_model_config *c) {
    static const char *const of_images[] = {
        "vision_config", "text_config",       "boi_token_index", "eoi_token_index",     "boi_token_id",
        "eoi_token_id",  "image_token_index", "image_token_id",  "mm_tokens_per_image", "initializer_range"};
    const char *name = text_part_of(type);
    json_t *text = json_object_get(r->root, "text_config"), *own = json_object_get(text, "model_type");
    for (size_t i = 0; i < sizeof of_images / sizeof *of_images; i++) value_at(r, of_images[i]);
    if (!json_is_object(text)) {
        fail(r, "text_config", "an object");
        return;
    }
    if (own && (!json_is_string(own) || strcmp(json_string_value(own), name) != 0)) fail(r, "text_config", name);
    struct reader inner = {r->path, text, json_object(), r->ok, 0, 0};
    if (inner.seen) read_keys(&inner, architecture_named(name), c);
    else inner.ok = error_memory(64, "a config's keys");
    json_decref(inner.seen);
    r->ok = inner.ok;
    if (r->ok && read_truth(r, "tie_word_embeddings", c->is_tied) != c->is_tied)
        fail(r, "tie_word_embeddings", "what \"text_config\" says");
    refuse_unknown(r, NULL, type);
}

static void read_family(struct reader *r, tl_model_config *c) {
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
    struct reader r = {path, root, json_object(), true, 0, 0};
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
    for (const struct key *k = a->keys; ok && k->name; k++) ok = write_key(root, k, c);
    for (const struct key *k = a->more_keys; ok && k && k->name; k++) ok = write_key(root, k, c);
    if (ok && a->has_rope) ok = write_rope(root, a, c);
    if (ok && a->names) ok = write_window(root, a, c);
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
