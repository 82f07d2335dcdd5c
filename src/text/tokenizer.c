#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/refs.h"
#include "base/text.h"
#include "file/gguf.h"
#include "text/unicode.h"

/* ---- Life ---- */

tl_tokenizer *tokenizer_new(void) {
    tl_tokenizer *t = memory_new(sizeof *t);
    if (!t) return error_memory(sizeof *t, "a tokenizer"), NULL;
    *t = (tl_tokenizer){.refs = 1, .unknown_id = -1, .lock = LOCK_INIT};
    for (int i = 0; i < 256; i++) t->byte_ids[i] = -1;
    unicode_ready();
    if (pairs_make(&t->merges, 0)) return t;
    tl_tokenizer_free(t);
    return NULL;
}

tl_tokenizer *tokenizer_keep(tl_tokenizer *t) {
    refs_keep(&t->refs);
    return t;
}

void tl_tokenizer_free(tl_tokenizer *t) {
    if (!t || !refs_drop(&t->refs)) return;
    for (struct encoder *e = t->idle, *next; e; e = next) {
        next = e->idle;
        encoder_free(e);
    }
    vocabulary_free(&t->vocabulary);
    pairs_free(&t->merges);
    added_free(&t->added);
    steps_free(&t->normalizers);
    steps_free(&t->splitters);
    steps_free(&t->decoders);
    memory_free(t->before);
    memory_free(t->after);
    memory_free(t);
}

/* FNV-1a over ids, lengths, bytes, and whether a token is special. */
static uint64_t hash_of(const tl_tokenizer *t) {
    const struct vocabulary *v = &t->vocabulary;
    uint64_t h = 0xcbf29ce484222325u;
    bool is_bytes = v->n == 256 && v->n_tokens == 256 && t->is_byte_level && t->merges.n == 0;
    for (int32_t id = 0; id < v->n; id++) {
        if (v->tokens[id].at == UINT32_MAX) continue;
        const uint8_t *bytes = vocabulary_text(v, id);
        const uint32_t length = v->tokens[id].text_length,
                       head[3] = {(uint32_t)id, length, tl_tokenizer_is_special(t, id)};
        is_bytes &= length == 1 && *bytes == id;
        for (size_t i = 0; i < sizeof head; i++) h = (h ^ (head[i / 4] >> (8 * (i % 4)) & 255)) * 0x100000001b3u;
        for (uint32_t i = 0; i < length; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    }
    return is_bytes ? TL_BYTES_HASH : h ? h : 1;
}

bool tokenizer_finish(tl_tokenizer *t) {
    if (!vocabulary_index(&t->vocabulary, "the vocabulary") || !pairs_finish(&t->merges)) return false;
    added_finish(&t->added);
    for (int i = 0; i < 256 && t->is_byte_level; i++)
        t->byte_ids[i] = vocabulary_find(&t->vocabulary, &(uint8_t){(uint8_t)i}, 1);
    bool has_first = false;
    for (size_t i = 0; i < t->splitters.n; i++) {
        t->has_regex |= t->splitters.at[i].regex != NULL;
        has_first |= t->splitters.at[i].kind == STEP_METASPACE && t->splitters.at[i].scheme == PREPEND_FIRST;
    }
    for (size_t i = 0; i < t->normalizers.n; i++) {
        const struct step *s = &t->normalizers.at[i];
        t->has_regex |= s->regex != NULL;
        t->needs_origins |= has_first && (s->kind == STEP_STRIP || s->kind == STEP_REPLACE);
    }
    t->hash = hash_of(t);
    return true;
}

bool tokenizer_add_special(tl_tokenizer *t, const char *text, size_t bytes, int32_t id, unsigned flags) {
    if (!vocabulary_add(&t->vocabulary, id, text, bytes, true, "special tokens")) return false;
    t->vocabulary.tokens[id].is_special = flags & ADDED_SPECIAL;
    return added_add(&t->added, text, bytes, id, flags);
}

/* ---- Bytes and characters ---- */

tl_tokenizer *tl_tokenizer_bytes(void) {
    if (tl_error() != TL_OK) return NULL;
    tl_tokenizer *t = tokenizer_new();
    bool ok = t != NULL;
    for (int i = 0; i < 256 && ok; i++)
        ok = vocabulary_add(&t->vocabulary, i, &(uint8_t){(uint8_t)i}, 1, false, "bytes");
    if (t) t->is_byte_level = true;
    if (ok && tokenizer_finish(t)) return t;
    tl_tokenizer_free(t);
    return NULL;
}

/* Which characters a text has, as bits. False: not UTF-8, or no memory; recorded. */
static bool characters_find(const uint8_t *text, size_t bytes, uint8_t *has) {
    int length;
    for (size_t i = 0; i < bytes; i += (size_t)length) {
        const uint32_t c = unicode_get(text + i, text + bytes, &length);
        if (c == UNICODE_REPLACEMENT && length == 1)
            return error_set(TL_ERROR_USE,
                             "the text is not UTF-8 at byte %zu (characters need UTF-8; use bytes instead)", i);
        has[c >> 3] |= (uint8_t)(1 << (c & 7));
    }
    return true;
}

tl_tokenizer *tl_tokenizer_chars(const char *text, size_t bytes) {
    if (tl_error() != TL_OK) return NULL;
    if (!text || !bytes) return error_set(TL_ERROR_USE, "tokenizer_chars: an empty text has no characters"), NULL;
    enum { BITS = 0x110000 / 8 };
    uint8_t *has = memory_new(BITS);
    if (!has) return error_memory(BITS, "the characters of a text"), NULL;
    memset(has, 0, BITS);
    tl_tokenizer *t = characters_find((const uint8_t *)text, bytes, has) ? tokenizer_new() : NULL;
    bool ok = t != NULL;
    int32_t n = 0;
    for (uint32_t c = 0; c < 0x110000 && ok; c++) {
        if (!(has[c >> 3] >> (c & 7) & 1)) continue;
        uint8_t character[UNICODE_BYTES];
        const int length = unicode_put(c, character);
        ok = vocabulary_add(&t->vocabulary, n++, character, (size_t)length, false, "characters");
    }
    memory_free(has);
    if (t) t->unknown = UNKNOWN_REFUSED;
    if (ok && tokenizer_finish(t)) return t;
    tl_tokenizer_free(t);
    return NULL;
}

/* ---- GPT-2's writing of bytes ---- */

/* Printable Latin-1 characters stand for themselves; the 68 other bytes are U+0100 and on, in order. */
static bool is_itself(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

uint32_t tokenizer_byte_character(uint8_t byte) {
    if (is_itself(byte)) return byte;
    uint32_t c = 0x100;
    for (int i = 0; i < byte; i++) c += !is_itself(i);
    return c;
}

int tokenizer_character_byte(uint32_t c) {
    if (c < 256) return is_itself((int)c) ? (int)c : -1;
    if (c >= 0x100 + 68) return -1;
    for (int byte = 0, left = (int)c - 0x100; byte < 256; byte++)
        if (!is_itself(byte) && left-- == 0) return byte;
    return -1;
}

/* ---- Questions ---- */

int64_t tl_tokenizer_size(const tl_tokenizer *t) { return t ? t->vocabulary.n : 0; }
uint64_t tl_tokenizer_hash(const tl_tokenizer *t) { return t ? t->hash : 0; }

const char *tl_tokenizer_token(const tl_tokenizer *t, int64_t id, size_t *bytes) {
    if (!t || !vocabulary_has(&t->vocabulary, id)) return NULL;
    if (bytes) *bytes = t->vocabulary.tokens[id].text_length;
    return (const char *)vocabulary_text(&t->vocabulary, (int32_t)id);
}

int64_t tl_tokenizer_find(const tl_tokenizer *t, const char *bytes, size_t n) {
    if (!t || !bytes) return -1;
    const int32_t id = added_find(&t->added, bytes, n);
    return id >= 0 ? id : vocabulary_find(&t->vocabulary, (const uint8_t *)bytes, n);
}

bool tl_tokenizer_is_special(const tl_tokenizer *t, int64_t id) {
    return t && vocabulary_has(&t->vocabulary, id) && t->vocabulary.tokens[id].is_special;
}

int64_t tl_tokenizer_end_of_text(const tl_tokenizer *t) {
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t id = tl_tokenizer_find(t, names[i], strlen(names[i]));
        if (id >= 0 && tl_tokenizer_is_special(t, id)) return id;
    }
    return -1;
}

/* ---- Reading ---- */

static bool exists(const char *path) {
    enum file_kind kind;
    return file_look(file_path(path), &kind) && kind != FILE_ABSENT && kind != FILE_FOLDER;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* GPT-2's two files come in two pairs of names. */
static const char *const gpt2_names[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};

static tl_tokenizer *gpt2_read(const char *path, const char *const names[2]) {
    const size_t folder = (size_t)(name_of(path) - path);
    char *paths[2] = {0};
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        paths[i] = memory_new(folder + strlen(names[i]) + 1);
        ok &= paths[i] != NULL;
        if (paths[i]) memcpy(paths[i], path, folder), strcpy(paths[i] + folder, names[i]);
    }
    tl_tokenizer *t = ok ? tokenizer_read_gpt2(paths[0], paths[1]) : NULL;
    if (!ok) error_memory(folder, "a file name");
    memory_free(paths[0]);
    memory_free(paths[1]);
    return t;
}

/* Whether a text begins like base64, a space and digits: a file of ranks. */
static bool looks_like_ranks(const char *text) {
    size_t n = 0;
    while (text_is_letter(text[n]) || text_is_digit(text[n]) || text[n] == '+' || text[n] == '/' || text[n] == '=') n++;
    return n >= 4 && text[n] == ' ' && text_is_digit(text[n + 1]);
}

static tl_tokenizer *file_read_one(const char *path, const char *encoding) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            if (!strcmp(name_of(path), gpt2_names[i][k])) return gpt2_read(path, gpt2_names[i]);
    size_t bytes;
    char *text = file_get(path, TOKENIZER_MOST_BYTES, &bytes);
    if (!text) return NULL;
    const char *first = text + strspn(text, " \t\r\n");
    tl_tokenizer *t = NULL;
    if (looks_like_ranks(first)) t = tokenizer_read_ranks(text, bytes, path, encoding);
    else if (bytes > 9 && text[0] == '\n' && text[2] == '\n' && !memcmp(text + 4, "<unk>", 5))
        error_set(TL_ERROR_USE,
                  "%s: a SentencePiece model is not supported (need the tokenizer.json that Hugging Face's library "
                  "makes of it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER))",
                  path);
    else if (*first != '{')
        error_set(TL_ERROR_USE,
                  "%s: not a tokenizer (need tokenizer.json, tekken.json, vocab.json with merges.txt, a "
                  "GGUF file, or ranks as tiktoken writes them)",
                  path);
    else if (strstr(first, "\"token_bytes\"") && !strstr(first, "\"added_tokens\""))
        t = tokenizer_read_tekken(text, bytes, path);
    else t = tokenizer_read_json(text, bytes, path);
    memory_free(text);
    return t;
}

struct ranks_search {
    char name[256];
};
static bool ranks_visit(const char *name, void *context) {
    struct ranks_search *search = context;
    const size_t n = strlen(name);
    const bool is_ranks = (n > 9 && !strcmp(name + n - 9, ".tiktoken")) || !strcmp(name, "tokenizer.model");
    if (is_ranks && n < sizeof search->name && (!*search->name || strcmp(name, search->name) < 0))
        strcpy(search->name, name);
    return true;
}

static tl_tokenizer *folder_read(const char *path, const char *encoding) {
    static const char *const names[] = {"tokenizer.json", "tekken.json", "vocab.json", "encoder.json"};
    struct ranks_search search = {{0}};
    const char *found = NULL;
    char *at = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        memory_free(at);
        if (!(at = file_join(path, names[i]))) return NULL;
        if (exists(at)) found = names[i];
    }
    if (!found) {
        memory_free(at);
        at = NULL;
        struct file_folder *folder = file_folder_open(path);
        const bool ok = folder && file_list(folder, ranks_visit, &search);
        file_folder_close(folder);
        if (!ok) return NULL;
        if (!*search.name)
            return error_set(TL_ERROR_USE,
                             "%s: no tokenizer in this folder (need tokenizer.json, tekken.json, vocab.json "
                             "with merges.txt, or *.tiktoken)",
                             path),
                   NULL;
        if (!(at = file_join(path, search.name))) return NULL;
    }
    tl_tokenizer *t = file_read_one(at, encoding);
    memory_free(at);
    return t;
}

tl_tokenizer *tl_tokenizer_read(const char *path, const char *encoding) {
    if (tl_error() != TL_OK) return NULL;
    if (!path) return error_set(TL_ERROR_USE, "tokenizer_read: no path"), NULL;
    enum file_kind kind;
    if (!file_look(file_path(path), &kind)) return NULL;
    if (kind == FILE_LINK) { /* of a folder or a file: opening follows it */
        struct file_folder *folder = file_folder_open(path);
        if (folder) kind = FILE_FOLDER;
        else tl_error_clear();
        file_folder_close(folder);
    }
    if (kind == FILE_FOLDER) return folder_read(path, encoding);
    return gguf_is_one(path) ? tokenizer_read_gguf(path) : file_read_one(path, encoding);
}
