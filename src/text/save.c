/* save.c: tokenizers to files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

/* ---- A growing text ---- */

struct out {
    char *text;
    size_t n, capacity;
    bool has_failed; /* no memory: recorded */
};

static char *out_room(struct out *o, size_t bytes) {
    if (o->has_failed) return NULL;
    if (o->n + bytes > o->capacity) {
        const size_t capacity = 2 * (o->n + bytes) + 4096;
        char *grown = memory_resize(o->text, capacity);
        o->has_failed = !grown;
        if (!grown) return error_memory(capacity, "a tokenizer's file"), NULL;
        o->text = grown;
        o->capacity = capacity;
    }
    return o->text + o->n;
}

static void put(struct out *o, const char *text) {
    const size_t n = strlen(text);
    char *to = out_room(o, n);
    if (!to) return;
    memcpy(to, text, n);
    o->n += n;
}

static void put_number(struct out *o, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    put(o, text);
}

/* A token of bytes as GPT-2 writes it, which needs no more than two bytes for one. */
static void put_token(struct out *o, const uint8_t *bytes, size_t n, bool is_json) {
    char *to = out_room(o, 3 * n);
    if (!to) return;
    char *const begin = to;
    for (size_t i = 0; i < n; i++) {
        const uint32_t c = tokenizer_byte_character(bytes[i]);
        if (is_json && (c == '"' || c == '\\')) *to++ = '\\';
        to += unicode_put(c, (uint8_t *)to);
    }
    o->n += (size_t)(to - begin);
}

/* UTF-8 as a string of JSON, with its quotes. */
static void put_string(struct out *o, const char *text, size_t n) {
    put(o, "\"");
    for (size_t i = 0; i < n; i++) {
        char piece[8] = {text[i], 0};
        if (text[i] == '"' || text[i] == '\\') snprintf(piece, sizeof piece, "\\%c", text[i]);
        else if ((unsigned char)text[i] < 0x20) snprintf(piece, sizeof piece, "\\u%04x", text[i]);
        put(o, piece);
    }
    put(o, "\"");
}

/* ---- What files have in common ---- */

/* The vocabulary as a JSON object, in the order of ids. */
static void put_vocabulary(struct out *o, const tl_tokenizer *t) {
    const struct vocabulary *v = &t->vocabulary;
    const char *before = "{";
    for (int32_t id = 0; id < v->n; id++) {
        const struct token *token = &v->tokens[id];
        if (token->at == UINT32_MAX) continue;
        put(o, before);
        before = ",";
        if (token->is_hidden || !t->is_byte_level) put_string(o, (const char *)vocabulary_bytes(v, id), token->length);
        else {
            put(o, "\"");
            put_token(o, vocabulary_bytes(v, id), token->length, true);
            put(o, "\"");
        }
        put(o, ":");
        put_number(o, id);
    }
    put(o, "}");
}

/* No decoder but this one, which changes nothing here, and no spaces between tokens. */
static bool decodes_by(const tl_tokenizer *t, enum text_step_kind kind) {
    return !t->is_joined_by_spaces && (!t->decoders.n || (t->decoders.n == 1 && t->decoders.at[0].kind == kind));
}

/* Characters as tokens: nothing is cut, merged or replaced. */
static bool is_chars(const tl_tokenizer *t) {
    return !t->is_byte_level && !t->merges.n && !t->splitters.n && !t->normalizers.n && !t->added.n &&
           !t->has_fallback && t->unknown != UNKNOWN_TOKEN && decodes_by(t, STEP_FUSE);
}

/* The scanner's pattern, or "" if text is not cut. NULL: such a tokenizer cannot be written, recorded. */
static const char *pattern_of(const tl_tokenizer *t) {
    const struct steps *s = &t->splitters, *n = &t->normalizers;
    const bool is_split = s->n && s->at[0].kind == STEP_SPLIT && s->at[0].scan && s->at[0].behavior == SPLIT_ISOLATED &&
                          !s->at[0].is_inverted;
    const bool is_known = s->n == 0 || (s->n == 1 && is_split) ||
                          (s->n == 2 && is_split && s->at[1].kind == STEP_BYTE_LEVEL && !s->at[1].is_prefixed);
    const char *what = NULL;
    if (!t->is_byte_level && !is_chars(t)) what = "it is neither byte-level nor made of characters";
    else if (n->n > 1 || (n->n && n->at[0].kind != STEP_NORMALIZE)) what = "its normalizer is not a form of Unicode";
    else if (t->is_byte_level && !decodes_by(t, STEP_BYTE_LEVEL)) what = "its decoder is not ByteLevel";
    else if (t->has_fallback || t->unknown == UNKNOWN_TOKEN) what = "it has an unknown token or a byte fallback";
    else if (t->n_before || t->n_after) what = "it has a template";
    else if (!is_known) what = "its pattern is not one of gpt2, cl100k, o200k, llama3, qwen2 and tekken";
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.tokens[i].flags != ADDED_SPECIAL) what = "it has added tokens that are not special";
    if (!what) return s->n ? scanner_pattern(s->at[0].scan) : "";
    error_set(TL_ERROR_USE, "this tokenizer cannot be written: %s (copy the file that it was read from)", what);
    return NULL;
}

/* A special token whose text is how a file writes another token would be taken for it. */
static bool specials_check(const tl_tokenizer *t) {
    for (size_t i = 0; i < t->added.n; i++) {
        const uint8_t *text = added_bytes(&t->added, i);
        const uint32_t bytes = t->added.tokens[i].length;
        uint8_t meant[256];
        size_t n = 0;
        int length, byte = 0;
        for (uint32_t at = 0; at < bytes && byte >= 0 && n < sizeof meant; at += (uint32_t)length) {
            byte = tokenizer_character_byte(unicode_get(text + at, text + bytes, &length));
            meant[n++] = (uint8_t)byte;
        }
        const int32_t id = byte < 0 ? -1 : vocabulary_find(&t->vocabulary, meant, n);
        if (id < 0 || id == t->added.tokens[i].id) continue;
        return error_set(TL_ERROR_USE, "the special token %d is written like the token %d: give it another text",
                         t->added.tokens[i].id, id);
    }
    return true;
}

static bool file_write(struct out *o, const char *folder, const char *name) {
    char *path = o->has_failed ? NULL : file_join(folder, name);
    const bool ok = path && file_put(path, o->text, o->n);
    memory_free(path);
    memory_free(o->text);
    return ok;
}

/* ---- Formats ---- */

static void put_normalizer(struct out *o, const tl_tokenizer *t) {
    static const char *const forms[] = {
        [UNICODE_NFC] = "NFC", [UNICODE_NFD] = "NFD", [UNICODE_NFKC] = "NFKC", [UNICODE_NFKD] = "NFKD"};
    put(o, " \"normalizer\":");
    if (t->normalizers.n) {
        put(o, "{\"type\":\"");
        put(o, forms[t->normalizers.at[0].form]);
        put(o, "\"},");
    } else put(o, "null,");
}

static void put_splitters(struct out *o, const tl_tokenizer *t, const char *pattern) {
    static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,";
    const bool is_gpt2 = !strcmp(pattern, scanner_gpt2_pattern);
    if (!t->is_byte_level) {
        put(o, "\n \"pre_tokenizer\":null,\n \"post_processor\":null,\n \"decoder\":{\"type\":\"Fuse\"},\n");
        return;
    }
    put(o, "\n \"pre_tokenizer\":");
    if (*pattern && !is_gpt2) {
        put(o, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        put_string(o, pattern, strlen(pattern));
        put(o, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    put(o, byte_level);
    put(o, is_gpt2 ? "\"use_regex\":true}" : "\"use_regex\":false}");
    if (*pattern && !is_gpt2) put(o, "]}");
    put(o, ",\n \"post_processor\":null,\n \"decoder\":");
    put(o, byte_level);
    put(o, "\"use_regex\":true},\n");
}

/* The special tokens, in the order of ids. */
static void put_added(struct out *o, const tl_tokenizer *t) {
    const char *before = "\n";
    put(o, " \"added_tokens\":[");
    for (int32_t id = 0; id < t->vocabulary.n; id++) {
        if (!tl_tokenizer_is_special(t, id)) continue;
        put(o, before);
        before = ",\n";
        put(o, "  {\"id\":");
        put_number(o, id);
        put(o, ",\"content\":");
        put_string(o, (const char *)vocabulary_text(&t->vocabulary, id), t->vocabulary.tokens[id].text_length);
        put(o, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
    }
    put(o, "],\n");
}

static bool json_put(struct out *to, const tl_tokenizer *t, const char *pattern) {
    struct out o = {0};
    size_t n;
    struct merge_ids *merges = specials_check(t) ? tokenizer_merges(t, &n) : NULL;
    if (!merges) return false;
    const struct vocabulary *v = &t->vocabulary;
    put(&o, "{\"version\":\"1.0\",\n \"truncation\":null,\n \"padding\":null,\n");
    put_added(&o, t);
    put_normalizer(&o, t);
    put_splitters(&o, t, pattern);
    put(&o, " \"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
            "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":");
    put(&o, t->is_word_first ? "true" : "false");
    put(&o, ",\n  \"vocab\":");
    put_vocabulary(&o, t);
    put(&o, ",\n  \"merges\":[");
    for (size_t i = 0; i < n; i++) {
        put(&o, i ? ",[\"" : "[\"");
        put_token(&o, vocabulary_bytes(v, merges[i].a), v->tokens[merges[i].a].length, true);
        put(&o, "\",\"");
        put_token(&o, vocabulary_bytes(v, merges[i].b), v->tokens[merges[i].b].length, true);
        put(&o, "\"]");
    }
    put(&o, "]}}\n");
    memory_free(merges);
    *to = o;
    return true;
}

static bool json_save(const tl_tokenizer *t, const char *folder, const char *pattern) {
    struct out o;
    return json_put(&o, t, pattern) && file_write(&o, folder, "tokenizer.json");
}

char *tokenizer_json(const tl_tokenizer *t, size_t *bytes) {
    struct out o;
    const char *pattern = pattern_of(t);
    if (!pattern || !json_put(&o, t, pattern)) return NULL;
    char *end = out_room(&o, 1);
    if (!end) return memory_free(o.text), NULL;
    *end = 0;
    *bytes = o.n;
    return o.text;
}

static bool gpt2_save(const tl_tokenizer *t, const char *folder, const char *pattern) {
    if (strcmp(pattern, scanner_gpt2_pattern) || t->normalizers.n)
        return error_set(TL_ERROR_USE, "vocab.json and merges.txt stand for gpt2's pattern without a normalizer, which "
                                       "is not what this tokenizer has: write tokenizer.json instead");
    struct out vocabulary = {0}, lines = {0};
    size_t n;
    struct merge_ids *merges = specials_check(t) ? tokenizer_merges(t, &n) : NULL;
    if (!merges) return false;
    const struct vocabulary *v = &t->vocabulary;
    put_vocabulary(&vocabulary, t);
    put(&lines, "#version: 0.2\n");
    for (size_t i = 0; i < n; i++) {
        put_token(&lines, vocabulary_bytes(v, merges[i].a), v->tokens[merges[i].a].length, false);
        put(&lines, " ");
        put_token(&lines, vocabulary_bytes(v, merges[i].b), v->tokens[merges[i].b].length, false);
        put(&lines, "\n");
    }
    memory_free(merges);
    const bool ok = file_write(&vocabulary, folder, "vocab.json");
    return file_write(&lines, folder, "merges.txt") && ok;
}

static bool ranks_save(const tl_tokenizer *t, const char *folder, const char *pattern) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const struct vocabulary *v = &t->vocabulary;
    struct out o = {0};
    (void)pattern;
    if (!t->is_byte_level)
        return error_set(TL_ERROR_USE, "ranks are of byte-level tokens, which this tokenizer's are not: write "
                                       "tokenizer.json instead");
    for (int32_t id = 0; id < v->n; id++) {
        const struct token *token = &v->tokens[id];
        if (token->at == UINT32_MAX || token->is_hidden) continue;
        const uint8_t *bytes = vocabulary_bytes(v, id);
        for (uint32_t i = 0; i < token->length; i += 3) {
            const uint32_t left = token->length - i;
            const uint32_t x =
                (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
            put(&o, (char[]){digits[x >> 18], digits[x >> 12 & 63], left > 1 ? digits[x >> 6 & 63] : '=',
                             left > 2 ? digits[x & 63] : '=', 0});
        }
        put(&o, " ");
        put_number(&o, id);
        put(&o, "\n");
    }
    return file_write(&o, folder, "tokenizer.tiktoken");
}

bool tl_tokenizer_save(const tl_tokenizer *t, const char *folder, const char *format) {
    static const struct {
        const char *name;
        bool (*save)(const tl_tokenizer *t, const char *folder, const char *pattern);
    } formats[] = {{"json", json_save}, {"gpt2", gpt2_save}, {"ranks", ranks_save}};
    if (!t || !folder || !format) return error_set(TL_ERROR_USE, "tokenizer_save: no tokenizer, folder or format");
    if (tl_error() != TL_OK) return false;
    char shown[64];
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(format, formats[i].name)) continue;
        const char *pattern = pattern_of(t);
        return pattern && file_make_folder(folder) && formats[i].save(t, folder, pattern);
    }
    return error_set(TL_ERROR_USE, "tokenizer_save: format \"%s\" (need json, gpt2 or ranks)",
                     text_show(shown, sizeof shown, format));
}
