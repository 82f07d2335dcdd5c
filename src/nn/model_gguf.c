/* model_gguf.c: models to and from GGUF files, in the form that llama.cpp runs.
 *
 * Names are translated part by part (the table below). Two things differ from Hugging Face's files. GPT-2's linear
 * weights are (out, in), as in our tree. And llama.cpp's rotary positions turn neighbours (0,1), (2,3), ... where ours,
 * as Hugging Face's, turn halves (0, D/2), (1, D/2 + 1), ...: the rows of each head of q and k are interleaved. That is
 * so for the architecture llama, which Mistral models without a window have too; llama.cpp turns halves for the others.
 *
 * Matrices have the type that is asked for; vectors and the learned positions stay f32, as in llama.cpp's converter,
 * and a matrix whose rows are not multiples of 32 is f16 in a file of Q8_0.
 */
#include "nn/model_gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "nn/model.h"
#include "nn/module.h"

/* ---- Names ---- */

/* A part of a name, in our tree and in the file. Those of a block follow "transformer.h.N." and "model.layers.N.", and
 * "blk.N." in the file. */
struct part {
    const char *ours, *theirs;
};
static const struct part gpt2_parts[] = {{"transformer.wte", "token_embd"},
                                         {"transformer.wpe", "position_embd"},
                                         {"transformer.ln_f", "output_norm"},
                                         {"lm_head", "output"},
                                         {"ln_1", "attn_norm"},
                                         {"attn.c_attn", "attn_qkv"},
                                         {"attn.c_proj", "attn_output"},
                                         {"ln_2", "ffn_norm"},
                                         {"mlp.c_fc", "ffn_up"},
                                         {"mlp.c_proj", "ffn_down"},
                                         {0}};
static const struct part llama_parts[] = {{"model.embed_tokens", "token_embd"},
                                          {"model.norm", "output_norm"},
                                          {"lm_head", "output"},
                                          {"input_layernorm", "attn_norm"},
                                          {"self_attn.q_proj", "attn_q"},
                                          {"self_attn.k_proj", "attn_k"},
                                          {"self_attn.v_proj", "attn_v"},
                                          {"self_attn.q_norm", "attn_q_norm"},
                                          {"self_attn.k_norm", "attn_k_norm"},
                                          {"self_attn.o_proj", "attn_output"},
                                          {"post_attention_layernorm", "ffn_norm"},
                                          {"mlp.gate_proj", "ffn_gate"},
                                          {"mlp.up_proj", "ffn_up"},
                                          {"mlp.down_proj", "ffn_down"},
                                          {0}};

static const struct part olmo2_norms[] = {
    {"post_attention_layernorm", "post_attention_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"}, {0}};

/* An architecture of llama.cpp. Files are read as the first family that it has. `norms` come before `parts`. */
struct form {
    const char *arch;
    tl_family family;
    bool has_qkv_bias, turns_neighbours;
    const char *prefix; /* of a block */
    const struct part *parts, *norms;
};
static const struct form forms[] = {
    {"gpt2", TL_GPT2, false, false, "transformer.h.", gpt2_parts, NULL},
    {"llama", TL_LLAMA, false, true, "model.layers.", llama_parts, NULL},
    {"qwen2", TL_LLAMA, true, false, "model.layers.", llama_parts, NULL},
    {"llama", TL_MISTRAL, false, true, "model.layers.", llama_parts, NULL},
    {"qwen3", TL_QWEN3, false, false, "model.layers.", llama_parts, NULL},
    {"olmo2", TL_OLMO2, false, false, "model.layers.", llama_parts, olmo2_norms},
};
enum { N_FORMS = sizeof forms / sizeof *forms };
#define FORMS_TEXT "gpt2, llama, qwen2, qwen3 and olmo2"

/* Which a model of this config is written as; NULL: it has none. */
static const struct form *form_of(const tl_model_config *c) {
    const bool has_qkv_bias = c->has_qkv_bias && c->family != TL_GPT2;
    for (int i = 0; i < N_FORMS; i++)
        if (forms[i].family == c->family && forms[i].has_qkv_bias == has_qkv_bias) return &forms[i];
    return NULL;
}

static const struct form *form_named(const char *arch) {
    for (int i = 0; arch && i < N_FORMS; i++)
        if (!strcmp(forms[i].arch, arch)) return &forms[i];
    return NULL;
}

enum { NAME = 128 };

static const char *part_find(const struct part *parts, const char *ours, size_t length) {
    for (; parts && parts->ours; parts++)
        if (strlen(parts->ours) == length && !strncmp(parts->ours, ours, length)) return parts->theirs;
    return NULL;
}

/* "transformer.h.3.attn.c_proj.bias" -> "blk.3.attn_output.bias" */
static bool name_print(char name[NAME], const tl_model_config *c, const char *ours) {
    const struct form *form = form_of(c);
    const char *rest = ours, *kind = strrchr(ours, '.'), *theirs = NULL;
    int block = -1, taken = 0;
    if (!strncmp(ours, form->prefix, strlen(form->prefix)) &&
        sscanf(ours + strlen(form->prefix), "%d.%n", &block, &taken) == 1)
        rest = ours + strlen(form->prefix) + taken;
    if (kind && kind > rest) theirs = part_find(form->norms, rest, (size_t)(kind - rest));
    if (kind && kind > rest && !theirs) theirs = part_find(form->parts, rest, (size_t)(kind - rest));
    if (!theirs) return error_set(TL_ERROR_USE, "gguf: the parameter \"%s\" has no name in GGUF", ours);
    if (block < 0) snprintf(name, NAME, "%s%s", theirs, kind);
    else snprintf(name, NAME, "blk.%d.%s%s", block, theirs, kind);
    return true;
}

/* The heads whose rows are interleaved; 0: those of this tensor are not. */
static int64_t turned_heads(const tl_model_config *c, const char *ours) {
    if (!form_of(c)->turns_neighbours) return 0;
    return strstr(ours, ".q_proj.") ? c->n_heads : strstr(ours, ".k_proj.") ? c->n_kv_heads : 0;
}

/* ---- Writing ---- */

static bool put_size(tl_gguf_writer *w, const char *arch, const char *name, int64_t value) {
    char key[NAME];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    return tl_gguf_writer_integer(w, key, TL_GGUF_VALUE_U32, value);
}

static bool put_real(tl_gguf_writer *w, const char *arch, const char *name, double value) {
    char key[NAME];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    return tl_gguf_writer_number(w, key, TL_GGUF_VALUE_F32, value);
}

/* Llama 3's scaling is a tensor in GGUF, from which its numbers cannot be had again; these keys are ours. */
static const char *const scaling_keys[] = {"tally.rope_scaling.factor", "tally.rope_scaling.low_frequency",
                                           "tally.rope_scaling.high_frequency", "tally.rope_scaling.original_context"};

static bool put_rope(tl_gguf_writer *w, const tl_model_config *c, const char *arch) {
    const tl_rope_scaling *s = &c->rope_scaling;
    if (!put_size(w, arch, "rope.dimension_count", c->head_size) || !put_real(w, arch, "rope.freq_base", c->rope_base))
        return false;
    if (s->factor == 0 || s->factor == 1) return true;
    char key[NAME];
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    if (!s->original_context)
        return tl_gguf_writer_text(w, key, "linear") && put_real(w, arch, "rope.scaling.factor", s->factor);
    return tl_gguf_writer_number(w, scaling_keys[0], TL_GGUF_VALUE_F64, s->factor) &&
           tl_gguf_writer_number(w, scaling_keys[1], TL_GGUF_VALUE_F64, s->low_frequency) &&
           tl_gguf_writer_number(w, scaling_keys[2], TL_GGUF_VALUE_F64, s->high_frequency) &&
           tl_gguf_writer_integer(w, scaling_keys[3], TL_GGUF_VALUE_U64, s->original_context);
}

static bool put_config(tl_gguf_writer *w, const tl_model_config *c, tl_gguf_type type) {
    static const int file_types[] = {[TL_GGUF_F32] = 0, [TL_GGUF_F16] = 1, [TL_GGUF_BF16] = 32, [TL_GGUF_Q8_0] = 7};
    const char *arch = form_of(c)->arch;
    bool ok = tl_gguf_writer_text(w, "general.architecture", arch) && tl_gguf_writer_text(w, "general.type", "model") &&
              tl_gguf_writer_integer(w, "general.file_type", TL_GGUF_VALUE_U32, file_types[type]) &&
              tl_gguf_writer_integer(w, "general.quantization_version", TL_GGUF_VALUE_U32, 2) &&
              tl_gguf_writer_integer(w, GGUF_ALIGNMENT_KEY, TL_GGUF_VALUE_U32, GGUF_ALIGNMENT) &&
              put_size(w, arch, "block_count", c->n_layers) && put_size(w, arch, "context_length", c->context) &&
              put_size(w, arch, "embedding_length", c->channels) && put_size(w, arch, "feed_forward_length", c->ff) &&
              put_size(w, arch, "attention.head_count", c->n_heads) && put_size(w, arch, "vocab_size", c->vocabulary);
    if (!ok || c->family == TL_GPT2) return ok && put_real(w, arch, "attention.layer_norm_epsilon", c->norm_eps);
    return put_size(w, arch, "attention.head_count_kv", c->n_kv_heads) &&
           put_size(w, arch, "attention.key_length", c->head_size) &&
           put_size(w, arch, "attention.value_length", c->head_size) &&
           put_real(w, arch, "attention.layer_norm_rms_epsilon", c->norm_eps) && put_rope(w, c, arch);
}

static tl_gguf_type type_for(tl_tensor *x, const char *name, tl_gguf_type type) {
    if (tl_rank(x) < 2 || !strncmp(name, "position_embd", 13)) return TL_GGUF_F32;
    return type == TL_GGUF_Q8_0 && tl_size(x, tl_rank(x) - 1) % GGUF_Q8_BLOCK ? TL_GGUF_F16 : type;
}

/* (H D, ...) as (H, D/2, 2, ...): the halves of each head side by side. */
static tl_tensor *interleaved(tl_tensor *x, int64_t heads) {
    int64_t half = tl_size(x, 0) / heads / 2;
    if (tl_rank(x) == 1) return tl_transpose(tl_reshape(x, TL_SHAPE(heads, 2, half)), 1, 2);
    return tl_transpose(tl_reshape(x, TL_SHAPE(heads, 2, half, tl_size(x, 1))), 1, 2);
}

static bool put_tensor(tl_gguf_writer *w, const tl_model_config *c, const tl_named_tensor *from, tl_gguf_type type) {
    char name[NAME];
    int64_t heads = turned_heads(c, from->name), shape[TL_MAX_RANK];
    tl_tensor *x = from->tensor;
    if (!name_print(name, c, from->name)) return false;
    for (int i = 0; i < tl_rank(x); i++) shape[i] = tl_size(x, i);
    tl_tensor *view = heads ? interleaved(x, heads) : x;
    return view && gguf_writer_tensor_as(w, name, view, type_for(x, name, type), tl_rank(x), shape);
}

/* What the frequencies of Llama 3's scaling are divided by, per pair. */
static tl_tensor *rope_factors(const tl_model_config *c) {
    const tl_rope_scaling *s = &c->rope_scaling;
    const double pi = 3.14159265358979323846, original = (double)s->original_context;
    tl_tensor *factors = tl_empty(TL_SHAPE(c->head_size / 2), TL_F32, tl_device_find("cpu"));
    float *to = factors ? tl_data(factors) : NULL;
    for (int64_t i = 0; to && i < c->head_size / 2; i++) {
        double length = 2 * pi * pow(c->rope_base, 2 * (double)i / (double)c->head_size), turns = original / length;
        double smooth = (turns - s->low_frequency) / (s->high_frequency - s->low_frequency);
        if (turns > s->high_frequency) to[i] = 1;
        else if (turns < s->low_frequency) to[i] = (float)s->factor;
        else to[i] = (float)(1 / ((1 - smooth) / s->factor + smooth));
    }
    return factors;
}

static bool has_factors(const tl_model_config *c) {
    return c->family != TL_GPT2 && c->rope_scaling.original_context && c->rope_scaling.factor > 1;
}

static bool put_tensors(tl_gguf_writer *w, tl_module *model, const tl_model_config *c, tl_gguf_type type) {
    int n = 0;
    const tl_named_tensor *list = tl_module_list(model, &n);
    bool ok = list != NULL;
    if (ok && has_factors(c)) ok = tl_gguf_writer_tensor(w, "rope_freqs.weight", rope_factors(c), TL_GGUF_F32);
    for (int i = 0; ok && i < n; i++) ok = put_tensor(w, c, &list[i], type);
    return ok;
}

bool tl_model_export_gguf(tl_module *model, const char *path, tl_gguf_type type, const tl_tokenizer *tokenizer,
                          const char *pre) {
    const tl_model_config *c = tl_model_config_of(model);
    if (!c) return false;
    if (!path) return error_set(TL_ERROR_USE, "tl_model_export_gguf: got NULL instead of a path");
    if (c->family == TL_DEEP_LINEAR)
        return error_set(TL_ERROR_USE, "tl_model_export_gguf: llama.cpp has no deep linear model");
    const struct form *form = form_of(c);
    /* files of qwen3 and olmo2 have no place for factors of rotary positions */
    if (!form || c->has_out_bias || c->has_mlp_bias || c->window || c->rope_scaling.rule || c->rope_scaling.size ||
        c->is_parallel || c->positions || (has_factors(c) && (c->family == TL_QWEN3 || c->family == TL_OLMO2)))
        return error_set(
            TL_ERROR_USE,
            "tl_model_export_gguf: %s models of this form cannot be written as GGUF yet (known are " FORMS_TEXT
            ", and mistral, without windows)",
            tl_family_name(c->family));
    if ((unsigned)type > TL_GGUF_Q8_0) return error_set(TL_ERROR_USE, "tl_model_export_gguf: no type is %d", (int)type);
    tl_gguf_writer *w = tl_gguf_writer_new();
    if (!w) return false;
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    bool ok = put_config(w, c, type);
    ok = ok && (tokenizer ? gguf_put_tokenizer(w, tokenizer, c->vocabulary, pre)
                          : tl_gguf_writer_text(w, "tokenizer.ggml.model", "no_vocab"));
    ok = ok && put_tensors(w, model, c, type) && tl_gguf_writer_save(w, path);
    ok = tl_scope_end(scope) && ok;
    tl_set_grad_mode(mode);
    tl_gguf_writer_free(w);
    return ok;
}

/* ---- Reading ---- */

struct reader {
    const tl_gguf *file;
    const char *path, *arch;
    bool ok;
};

static int64_t get_size(struct reader *r, const char *name, int64_t fallback) {
    char key[NAME];
    int64_t value = fallback;
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    bool is_there = tl_gguf_integer(r->file, key, 0, &value);
    if (r->ok && (value < 1 || value > (int64_t)1 << 40 || (!is_there && tl_gguf_metadata(r->file, key, NULL))))
        r->ok = error_set(TL_ERROR_USE, "%s: \"%s\" is not a whole number from 1 to 2^40", r->path, key);
    return value;
}

static double get_real(struct reader *r, const char *name, double fallback) {
    char key[NAME];
    double value = fallback;
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    if (!tl_gguf_number(r->file, key, 0, &value) && tl_gguf_metadata(r->file, key, NULL) && r->ok)
        r->ok = error_set(TL_ERROR_USE, "%s: \"%s\" is not a number", r->path, key);
    return value;
}

static void get_rope(struct reader *r, tl_model_config *c) {
    char key[NAME];
    tl_rope_scaling *s = &c->rope_scaling;
    int64_t turned = get_size(r, "rope.dimension_count", c->head_size);
    c->rope_base = get_real(r, "rope.freq_base", 10000);
    if (r->ok && turned != c->head_size)
        r->ok = error_set(TL_ERROR_USE, "%s: rotary positions turn %lld of %lld dimensions of a head (need all)",
                          r->path, (long long)turned, (long long)c->head_size);
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->arch);
    const char *type = tl_gguf_text(r->file, key, 0);
    if (type && !strcmp(type, "linear")) s->factor = get_real(r, "rope.scaling.factor", 1);
    else if (r->ok && type && strcmp(type, "none"))
        r->ok = error_set(TL_ERROR_USE, "%s: \"%s\" is \"%.40s\" (known is \"linear\")", r->path, key, type);
    if (tl_gguf_find(r->file, "rope_freqs.weight") < 0) return;
    bool is_ours = tl_gguf_number(r->file, scaling_keys[0], 0, &s->factor) &&
                   tl_gguf_number(r->file, scaling_keys[1], 0, &s->low_frequency) &&
                   tl_gguf_number(r->file, scaling_keys[2], 0, &s->high_frequency) &&
                   tl_gguf_integer(r->file, scaling_keys[3], 0, &s->original_context);
    if (r->ok && !is_ours)
        r->ok =
            error_set(TL_ERROR_USE,
                      "%s: has rope_freqs.weight, a scaling of rotary positions, without the numbers it was made of "
                      "(open the Hugging Face folder of this model instead)",
                      r->path);
}

/* The rows of token_embd.weight; -1: there is none. */
static int64_t vocabulary_of(const tl_gguf *file) {
    tl_gguf_info info;
    bool ok = tl_gguf_info_at(file, tl_gguf_find(file, "token_embd.weight"), &info) && info.rank == 2;
    return ok ? info.shape[0] : -1;
}

static void get_config(struct reader *r, tl_model_config *c) {
    const struct form *form = form_named(r->arch);
    const bool is_gpt2 = form->family == TL_GPT2;
    c->family = form->family;
    c->has_qkv_bias = form->has_qkv_bias;
    c->n_layers = get_size(r, "block_count", -1);
    c->n_heads = get_size(r, "attention.head_count", -1);
    c->n_kv_heads = get_size(r, "attention.head_count_kv", c->n_heads);
    c->channels = get_size(r, "embedding_length", -1);
    c->ff = get_size(r, "feed_forward_length", -1);
    c->context = get_size(r, "context_length", -1);
    if (!r->ok) return;
    c->head_size = get_size(r, "attention.key_length", c->channels / c->n_heads);
    c->norm_eps = get_real(r, is_gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5);
    c->is_tied = tl_gguf_find(r->file, "output.weight") < 0;
    c->init_std = 0.02;
    c->vocabulary = vocabulary_of(r->file);
    if (!is_gpt2) get_rope(r, c);
    if (r->ok && c->vocabulary < 0) r->ok = error_set(TL_ERROR_USE, "%s: has no matrix \"token_embd.weight\"", r->path);
}

bool model_gguf_config(const tl_gguf *file, const char *path, tl_model_config *config) {
    const char *arch = tl_gguf_text(file, "general.architecture", 0);
    tl_model_config c = {0};
    if (!form_named(arch))
        return error_set(TL_ERROR_USE, "%s: general.architecture is \"%.40s\" (known are " FORMS_TEXT ")", path,
                         arch ? arch : "");
    struct reader r = {file, path, arch, true};
    get_config(&r, &c);
    if (!r.ok || !tl_model_config_check(&c) || !model_numbers_suffice(&c, gguf_numbers(file), path)) return false;
    *config = c;
    return true;
}

static tl_tensor *uninterleaved(tl_tensor *x, int64_t heads) {
    int64_t rows = tl_size(x, 0), half = rows / heads / 2;
    if (tl_rank(x) == 1) return tl_reshape(tl_transpose(tl_reshape(x, TL_SHAPE(heads, half, 2)), 1, 2), TL_SHAPE(rows));
    int64_t columns = tl_size(x, 1);
    tl_tensor *view = tl_transpose(tl_reshape(x, TL_SHAPE(heads, half, 2, columns)), 1, 2);
    return tl_reshape(view, TL_SHAPE(rows, columns));
}

static bool load_one(tl_gguf *file, const char *path, const tl_model_config *c, const tl_named_tensor *to) {
    char name[NAME], got[128], need[128];
    if (!name_print(name, c, to->name)) return false;
    if (tl_gguf_find(file, name) < 0) return error_set(TL_ERROR_USE, "%s: has no tensor \"%s\"", path, name);
    tl_tensor *x = tl_gguf_get(file, name);
    if (!x) return false;
    bool same = tl_rank(x) == tl_rank(to->tensor);
    for (int i = 0; same && i < tl_rank(x); i++) same = tl_size(x, i) == tl_size(to->tensor, i);
    tl_describe(x, got, sizeof got);
    tl_describe(to->tensor, need, sizeof need);
    if (!same) return error_set(TL_ERROR_USE, "%s: \"%s\" is %s (need %s)", path, name, got, need);
    int64_t heads = turned_heads(c, to->name);
    if (heads) x = uninterleaved(x, heads);
    return x && tl_copy_(to->tensor, tl_to(tl_cast(x, tl_dtype_of(to->tensor)), tl_device_of(to->tensor))) != NULL;
}

bool model_gguf_load(tl_module *model, tl_gguf *file, const char *path) {
    const tl_model_config *c = tl_model_config_of(model);
    int n = 0;
    const tl_named_tensor *list = c ? tl_module_list(model, &n) : NULL;
    bool ok = list != NULL, mode = tl_set_grad_mode(false);
    for (int i = 0; ok && i < n; i++) {
        tl_scope scope = tl_scope_begin();
        ok = load_one(file, path, c, &list[i]);
        ok = tl_scope_end(scope) && ok;
    }
    tl_set_grad_mode(mode);
    return ok;
}
