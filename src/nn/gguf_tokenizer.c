/* gguf_tokenizer.c: a tokenizer as llama.cpp's `tokenizer.ggml.*`, model "gpt2": byte-level BPE.
 *
 * Tokens are written as GPT-2's files do, each byte as a printable character. A merge is the two tokens with a space
 * between, in the order of their ranks (text/merges.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "nn/model_gguf.h"
#include "text/tokenizer.h"

/* Texts, one after the other, each ended by a 0. */
struct texts {
    char *bytes;
    size_t used, capacity;
    size_t *at;
    size_t n, at_capacity;
    bool is_out_of_memory;
};

static void texts_bytes(struct texts *t, const char *bytes, size_t n) {
    for (size_t i = 0; i < n && !t->is_out_of_memory; i++) {
        if (!memory_grow((void **)&t->bytes, &t->capacity, t->used, 1)) t->is_out_of_memory = true;
        else t->bytes[t->used++] = bytes[i];
    }
}

static void texts_begin(struct texts *t) {
    if (!memory_grow((void **)&t->at, &t->at_capacity, t->n, sizeof *t->at)) t->is_out_of_memory = true;
    else t->at[t->n++] = t->used;
}

static void texts_end(struct texts *t) { texts_bytes(t, "", 1); }

/* A byte as a printable character: U+0021 to U+0143 have one or two bytes of UTF-8. */
static void texts_token(struct texts *t, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t c = tokenizer_byte_character((uint8_t)bytes[i]);
        char utf8[2] = {(char)(c < 128 ? c : 0xc0 | c >> 6), (char)(0x80 | (c & 63))};
        texts_bytes(t, utf8, c < 128 ? 1 : 2);
    }
}

static bool texts_put(struct texts *t, tl_gguf_writer *w, const char *key) {
    const char **pointers = t->is_out_of_memory ? NULL : memory_new(t->n * sizeof *pointers);
    bool ok = pointers || error_memory(t->used + t->n * sizeof *pointers, "the vocabulary of a GGUF file");
    for (size_t i = 0; ok && i < t->n; i++) pointers[i] = t->bytes + t->at[i];
    ok = ok && tl_gguf_writer_texts(w, key, pointers, (int64_t)t->n);
    memory_free(pointers);
    memory_free(t->bytes);
    memory_free(t->at);
    return ok;
}

/* ---- Tokens ---- */

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_UNUSED = 5 };

static bool put_tokens(tl_gguf_writer *w, const tl_tokenizer *t, int64_t vocabulary) {
    struct texts all = {0};
    int64_t *types = memory_new((size_t)vocabulary * sizeof *types);
    if (!types) return error_memory((size_t)vocabulary * sizeof *types, "the vocabulary of a GGUF file");
    for (int64_t id = 0; id < vocabulary; id++) {
        size_t n = 0;
        const char *bytes = tl_tokenizer_token(t, id, &n);
        char unused[40];
        texts_begin(&all);
        types[id] = !bytes ? TYPE_UNUSED : tl_tokenizer_is_special(t, id) ? TYPE_CONTROL : TYPE_NORMAL;
        if (types[id] == TYPE_UNUSED) {
            snprintf(unused, sizeof unused, "[PAD%lld]", (long long)id);
            texts_bytes(&all, unused, strlen(unused));
        } else if (types[id] == TYPE_CONTROL) texts_bytes(&all, bytes, n); /* special tokens are written as they are */
        else texts_token(&all, bytes, n);
        texts_end(&all);
    }
    bool ok = texts_put(&all, w, "tokenizer.ggml.tokens") &&
              tl_gguf_writer_integers(w, "tokenizer.ggml.token_type", TL_GGUF_VALUE_I32, types, vocabulary);
    memory_free(types);
    return ok;
}

/* ---- Merges ---- */

static void merge_add(struct texts *all, const tl_tokenizer *t, int32_t left, int32_t right) {
    const struct vocabulary *v = &t->vocabulary;
    texts_begin(all);
    texts_token(all, (const char *)vocabulary_bytes(v, left), v->tokens[left].length);
    texts_bytes(all, " ", 1);
    texts_token(all, (const char *)vocabulary_bytes(v, right), v->tokens[right].length);
    texts_end(all);
}

static bool put_merges(tl_gguf_writer *w, const tl_tokenizer *t) {
    struct texts all = {0};
    size_t n;
    struct merge_ids *merges = tokenizer_merges(t, &n);
    if (!merges) return false;
    for (size_t i = 0; i < n; i++) merge_add(&all, t, merges[i].a, merges[i].b);
    memory_free(merges);
    return texts_put(&all, w, "tokenizer.ggml.merges");
}

/* ---- The rest ---- */

/* llama.cpp knows the patterns that cut text into words by names. */
static const char *pre_of(const tl_tokenizer *t) {
    const struct {
        const char *pattern, *name;
    } known[] = {{scanner_gpt2_pattern, "gpt-2"},       {scanner_r50k_pattern, "gpt-2"},
                 {scanner_cl100k_pattern, "llama-bpe"}, {scanner_llama3_pattern, "llama-bpe"},
                 {scanner_qwen2_pattern, "qwen2"},      {scanner_o200k_pattern, "gpt-4o"},
                 {scanner_tekken_pattern, "tekken"}};
    scanner_fn scan = NULL;
    bool has_digits = false;
    for (size_t i = 0; i < t->splitters.n; i++) {
        if (t->splitters.at[i].scan) scan = t->splitters.at[i].scan;
        if (t->splitters.at[i].kind == STEP_DIGITS && t->splitters.at[i].is_single) has_digits = true;
    }
    if (!t->merges.n) return "gpt-2"; /* where nothing merges, cuts change nothing */
    for (size_t i = 0; scan && i < sizeof known / sizeof *known; i++)
        if (scanner_find(known[i].pattern) == scan) return !has_digits ? known[i].name : i < 2 ? "smollm" : NULL;
    return NULL;
}

static int64_t find_first(const tl_tokenizer *t, const char *const *names, int64_t fallback) {
    for (; *names; names++) {
        int64_t id = tl_tokenizer_find(t, *names, strlen(*names));
        if (id >= 0 && tl_tokenizer_is_special(t, id)) return id;
    }
    return fallback;
}

/* Where a tokenizer has no end of text, it is the byte 0, or id 0: llama.cpp would take id 11 otherwise. */
static bool put_ends(tl_gguf_writer *w, const tl_tokenizer *t) {
    static const char *const begins[] = {"<|begin_of_text|>", "<s>", "<bos>", NULL};
    int64_t end = tl_tokenizer_end_of_text(t), zero = tl_tokenizer_find(t, "", 1);
    if (end < 0) end = zero >= 0 ? zero : 0;
    int64_t begin = find_first(t, begins, end);
    return tl_gguf_writer_integer(w, "tokenizer.ggml.bos_token_id", TL_GGUF_VALUE_U32, begin) &&
           tl_gguf_writer_integer(w, "tokenizer.ggml.eos_token_id", TL_GGUF_VALUE_U32, end) &&
           tl_gguf_writer_integer(w, "tokenizer.ggml.add_bos_token", TL_GGUF_VALUE_BOOL, t->n_before > 0) &&
           tl_gguf_writer_integer(w, "tokenizer.ggml.add_eos_token", TL_GGUF_VALUE_BOOL, t->n_after > 0);
}

/* llama.cpp does not normalize: Unicode's forms (Qwen has NFC) are left out, as its own converter does; steps that
 * change ordinary text are not. */
static bool can_be_put(const tl_tokenizer *t) {
    bool ok = t->is_byte_level;
    for (size_t i = 0; i < t->normalizers.n; i++) ok = ok && t->normalizers.at[i].kind == STEP_NORMALIZE;
    return ok || error_set(TL_ERROR_USE, "gguf: this tokenizer is not byte-level BPE, the only kind that is exported "
                                         "(without a tokenizer, llama.cpp runs the model on ids)");
}

bool gguf_put_tokenizer(tl_gguf_writer *w, const tl_tokenizer *t, int64_t vocabulary, const char *pre) {
    if (!can_be_put(t)) return false;
    if (tl_tokenizer_size(t) > vocabulary)
        return error_set(TL_ERROR_USE, "gguf: the tokenizer has %lld tokens and the model %lld",
                         (long long)tl_tokenizer_size(t), (long long)vocabulary);
    if (!pre) pre = pre_of(t);
    if (!pre)
        return error_set(TL_ERROR_USE, "gguf: the tokenizer cuts text into words in a way that has no name here (say "
                                       "which of llama.cpp's tokenizer.ggml.pre it is)");
    return tl_gguf_writer_text(w, "tokenizer.ggml.model", "gpt2") &&
           tl_gguf_writer_text(w, "tokenizer.ggml.pre", pre) && put_tokens(w, t, vocabulary) && put_merges(w, t) &&
           put_ends(w, t);
}
