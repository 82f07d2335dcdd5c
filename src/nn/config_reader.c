#include "nn/config_reader.h"

#include <string.h>

#include "base/error.h"
#include "base/number.h"

void config_fail(struct config_reader *r, const char *key, const char *need) {
    if (r->ok) error_set(TL_ERROR_USE, "%s: \"%s\" is not %s", r->path, key, need);
    r->ok = false;
}

/* The value of a key, which is known from here on; null counts as missing. */
json_t *config_value(struct config_reader *r, const char *key) {
    json_t *v = json_object_get(r->root, key);
    if (v && json_object_set_new(r->seen, key, json_true()) != 0 && r->ok) r->ok = error_memory(64, "a config's keys");
    return v && !json_is_null(v) ? v : NULL;
}

/* A number under the first of two keys that exists (the second may be NULL); without either, the fallback, or an
 * error if that is negative. */
json_t *config_value_of(struct config_reader *r, const char *key, const char *other) {
    json_t *v = config_value(r, key), *w = other ? config_value(r, other) : NULL;
    return v ? v : w;
}

int64_t config_size(struct config_reader *r, const char *key, const char *other, int64_t fallback) {
    json_t *v = config_value_of(r, key, other);
    if (!v && fallback >= 0) return fallback;
    int64_t n = v && json_is_integer(v) ? (int64_t)json_integer_value(v) : 0;
    if (n >= 1 && n <= LARGEST_SIZE) return n;
    config_fail(r, key, "a whole number from 1 to 2^40");
    return 0;
}

/* A whole number that may be 0. */
int64_t config_count(struct config_reader *r, const char *key, int64_t fallback) {
    json_t *v = config_value(r, key);
    int64_t n = v && json_is_integer(v) ? (int64_t)json_integer_value(v) : v ? -1 : fallback;
    if (n < 0 || n > LARGEST_SIZE) config_fail(r, key, "a whole number from 0 to 2^40");
    return n;
}

/* Whether the file has the key, and says null. */
bool config_is_null(struct config_reader *r, const char *key) { return json_is_null(json_object_get(r->root, key)); }

double config_real(struct config_reader *r, const char *key, const char *other, double fallback) {
    json_t *v = config_value_of(r, key, other);
    if (!v) return fallback;
    if (!json_is_number(v)) config_fail(r, key, "a number");
    return json_number_value(v);
}

bool config_truth(struct config_reader *r, const char *key, bool fallback) {
    json_t *v = config_value_of(r, key, NULL);
    if (v && !json_is_boolean(v)) config_fail(r, key, "true or false");
    return v ? json_is_true(v) : fallback;
}

/* A key whose other values we would compute wrongly. */
void config_demand_text(struct config_reader *r, const char *key, const char *known, const char *also) {
    json_t *v = config_value_of(r, key, NULL);
    const char *text = v ? json_string_value(v) : known;
    if (text && (!strcmp(text, known) || (also && !strcmp(text, also)))) return;
    if (r->ok) error_set(TL_ERROR_USE, "%s: \"%s\" is \"%s\" (need \"%s\")", r->path, key, text ? text : "?", known);
    r->ok = false;
}

void config_demand_truth(struct config_reader *r, const char *key, bool known) {
    if (config_truth(r, key, known) != known)
        config_fail(r, key, known ? "true, the only value known here" : "false, the only value known here");
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
void config_refuse_unknown(struct config_reader *r, const char *within, const char *type) {
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

void config_demand_number(struct config_reader *r, const char *key, double known) {
    char need[80];
    number_print(need, sizeof need, "%g, the only value known here", known);
    if (config_real(r, key, NULL, known) != known) config_fail(r, key, need);
}

/* Another probability of dropout, which must be the first one's. */
void config_demand_same(struct config_reader *r, const char *key, double value) {
    if (config_real(r, key, NULL, value) != value)
        config_fail(r, key, "the model's other dropout, the only value known here");
}
