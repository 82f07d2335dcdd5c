/* read_gguf.c: the tokenizer in the metadata of a GGUF file, `tokenizer.ggml.*`, of llama.cpp's model "gpt2":
 * byte-level BPE. nn/gguf_tokenizer.c writes it. The file is not trusted; file/gguf_header.c has checked its form. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/gguf.h"
#include "text/tokenizer.h"

static const char MODEL[] = "tokenizer.ggml.model", PRE[] = "tokenizer.ggml.pre", TOKENS[] = "tokenizer.ggml.tokens",
                  TYPES[] = "tokenizer.ggml.token_type", MERGES[] = "tokenizer.ggml.merges";

/* llama.cpp's names of how text is cut into words. Its "llama-bpe" and "tekken" take a word that is a token as that
 * token, whatever the merges say, and "llama-bpe" begins every text with <|begin_of_text|> unless the file says
 * otherwise. */
static const struct pre {
    const char *name, *pattern;
    bool has_digits, is_word_first, has_begin;
} pres[] = {
    {"gpt-2", scanner_gpt2_pattern, false, false, false},    {"llama-bpe", scanner_llama3_pattern, false, true, true},
    {"llama-v3", scanner_llama3_pattern, false, true, true}, {"llama3", scanner_llama3_pattern, false, true, true},
    {"qwen2", scanner_qwen2_pattern, false, false, false},   {"gpt-4o", scanner_o200k_pattern, false, false, false},
    {"tekken", scanner_tekken_pattern, false, true, true},   {"smollm", scanner_gpt2_pattern, true, false, false}};

static const struct pre *pre_find(const tl_gguf *file, const char *path) {
    const char *name = tl_gguf_text(file, PRE, 0);
    for (size_t i = 0; name && i < sizeof pres / sizeof *pres; i++)
        if (!strcmp(pres[i].name, name)) return &pres[i];
    error_set(TL_ERROR_USE,
              "%s: %s is \"%s\" (known are gpt-2, llama-bpe, qwen2, gpt-4o, tekken and smollm; --tokenizer names "
              "another tokenizer)",
              path, PRE, name ? name : "missing");
    return NULL;
}

/* ---- Tokens ---- */

enum { TYPE_CONTROL = 3, TYPE_ADDED = 4, TYPE_UNUSED = 5 };

static int64_t type_of(const tl_gguf *file, int64_t id) {
    int64_t type = 1;
    tl_gguf_value value;
    if (tl_gguf_metadata(file, TYPES, &value) && id < value.count) tl_gguf_integer(file, TYPES, id, &type);
    return type;
}

/* Tokens of words, or those that stand for themselves: these come once GPT-2's writing of the others is undone. */
static bool tokens_read(tl_tokenizer *t, const tl_gguf *file, const char *path, int64_t n, bool are_added) {
    for (int64_t id = 0; id < n; id++) {
        int64_t type = type_of(file, id);
        bool is_added = type == TYPE_CONTROL || type == TYPE_ADDED;
        const char *text = tl_gguf_text(file, TOKENS, id);
        if (!text || !text_is_utf8(text))
            return error_set(TL_ERROR_USE, "%s: %s[%lld] is not UTF-8 text", path, TOKENS, (long long)id);
        if (type == TYPE_UNUSED || is_added != are_added) continue;
        if (are_added && added_find(&t->added, text, strlen(text)) >= 0)
            return error_set(TL_ERROR_USE, "%s: %s[%lld] is the text of another special token", path, TOKENS,
                             (long long)id);
        if (!(are_added
                  ? tokenizer_add_special(t, text, strlen(text), (int32_t)id, type == TYPE_CONTROL ? ADDED_SPECIAL : 0)
                  : vocabulary_add(&t->vocabulary, id, text, strlen(text), false, path)))
            return false;
    }
    return true;
}

static bool merges_read(tl_tokenizer *t, const tl_gguf *file, const char *path) {
    tl_gguf_value value;
    if (!tl_gguf_metadata(file, MERGES, &value)) return true;
    for (int64_t i = 0; i < value.count; i++) {
        const char *merge = tl_gguf_text(file, MERGES, i), *space = merge ? strchr(merge, ' ') : NULL;
        if (!space || strchr(space + 1, ' '))
            return error_set(TL_ERROR_USE, "%s: %s[%lld] is not two tokens with a space between them", path, MERGES,
                             (long long)i);
        if (!tokenizer_merge_add(t, merge, (size_t)(space - merge), space + 1, strlen(space + 1), i, path))
            return false;
    }
    return true;
}

/* ---- The rest ---- */

/* A token before or behind every text that is encoded with its template. */
static bool template_read(const tl_gguf *file, const char *path, const char *flag, bool is_default, const char *key,
                          const tl_tokenizer *t, int32_t **to, int *n) {
    int64_t is_on = is_default, id = -1;
    tl_gguf_integer(file, flag, 0, &is_on);
    if (!is_on || !tl_gguf_integer(file, key, 0, &id)) return true;
    if (!vocabulary_has(&t->vocabulary, id))
        return error_set(TL_ERROR_USE, "%s: %s is %lld, and no token has this id", path, key, (long long)id);
    if (!(*to = memory_new(sizeof **to))) return error_memory(sizeof **to, "a tokenizer");
    **to = (int32_t)id;
    *n = 1;
    return true;
}

static bool splitters_add(tl_tokenizer *t, const struct pre *pre) {
    return (!pre->has_digits || steps_add(&t->splitters, (struct step){.kind = STEP_DIGITS, .is_single = true})) &&
           steps_add(&t->splitters, (struct step){.kind = STEP_SPLIT, .scan = scanner_find(pre->pattern)});
}

static bool tokenizer_fill(tl_tokenizer *t, const tl_gguf *file, const char *path) {
    tl_gguf_value tokens;
    const struct pre *pre = pre_find(file, path);
    if (!pre) return false;
    if (!tl_gguf_metadata(file, TOKENS, &tokens)) return error_set(TL_ERROR_USE, "%s: has no %s", path, TOKENS);
    t->is_byte_level = true;
    t->is_word_first = pre->is_word_first;
    if (!tokens_read(t, file, path, tokens.count, false) || !vocabulary_index(&t->vocabulary, path) ||
        !merges_read(t, file, path))
        return false;
    tokenizer_bytes_from_characters(t);
    return tokens_read(t, file, path, tokens.count, true) &&
           template_read(file, path, "tokenizer.ggml.add_bos_token", pre->has_begin, "tokenizer.ggml.bos_token_id", t,
                         &t->before, &t->n_before) &&
           template_read(file, path, "tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id", t, &t->after,
                         &t->n_after) &&
           splitters_add(t, pre) && tokenizer_finish(t);
}

bool tokenizer_in_gguf(const char *path) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    tl_gguf *file = gguf_is_one(path) ? tl_gguf_open(path) : NULL;
    const char *model = file ? tl_gguf_text(file, MODEL, 0) : NULL;
    bool has = model && strcmp(model, "no_vocab") && strcmp(model, "none");
    tl_gguf_close(file);
    if (!file) tl_error_clear();
    tl_set_error_policy(policy);
    return has;
}

tl_tokenizer *tokenizer_read_gguf(const char *path) {
    tl_gguf *file = tl_gguf_open(path);
    const char *model = file ? tl_gguf_text(file, MODEL, 0) : NULL;
    tl_tokenizer *t = NULL;
    if (file && !model) error_set(TL_ERROR_USE, "%s: has no tokenizer (need %s)", path, MODEL);
    else if (file && strcmp(model, "gpt2"))
        error_set(TL_ERROR_USE,
                  "%s: %s is \"%s\" (known is gpt2, byte-level BPE; --tokenizer names another tokenizer, such as the "
                  "tokenizer.json that belongs to the model)",
                  path, MODEL, model);
    else t = file ? tokenizer_new() : NULL;
    bool ok = t && tokenizer_fill(t, file, path);
    tl_gguf_close(file);
    if (ok) return t;
    tl_tokenizer_free(t);
    return NULL;
}
