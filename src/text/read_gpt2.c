/* read_gpt2.c: GPT-2's vocab.json (or encoder.json) and merges.txt (or vocab.bpe). */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/scan.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

/* vocab.json: {"token": id, ...}. */
static bool vocabulary_read(tl_tokenizer *t, char *text, size_t bytes, const char *path) {
    struct scan s = scan_begin(text, bytes);
    for (bool more = scan_open(&s, '{'); more; more = scan_next(&s, '}')) {
        const char *token = scan_key(&s);
        int64_t id;
        if (token && scan_size(&s, &id) && !vocabulary_add(&t->vocabulary, id, token, strlen(token), false, path))
            return false;
    }
    if (!s.problem) scan_end(&s);
    if (s.problem) return error_set(TL_ERROR_USE, "%s: byte %td: %s", path, s.at - s.begin, s.problem);
    return vocabulary_index(&t->vocabulary, path);
}

bool tokenizer_merge_add(tl_tokenizer *t, const char *a, size_t n_a, const char *b, size_t n_b, int64_t rank,
                         const char *path) {
    const struct vocabulary *v = &t->vocabulary;
    const int32_t left = vocabulary_find(v, (const uint8_t *)a, n_a),
                  right = vocabulary_find(v, (const uint8_t *)b, n_b);
    uint8_t short_text[256], *joined = n_a + n_b <= sizeof short_text ? short_text : memory_new(n_a + n_b);
    if (!joined) return error_memory(n_a + n_b, "a merge");
    memcpy(joined, a, n_a);
    memcpy(joined + n_a, b, n_b);
    const int32_t id = vocabulary_find(v, joined, n_a + n_b);
    if (joined != short_text) memory_free(joined);
    if (left < 0 || right < 0 || id < 0)
        return error_set(TL_ERROR_USE, "%s: merge %lld: %s is not in the vocabulary", path, (long long)rank + 1,
                         left < 0    ? "its first part"
                         : right < 0 ? "its second part"
                                     : "what it makes");
    return pairs_put(&t->merges, left, right, (uint32_t)rank, id, false);
}

/* merges.txt: "a b" per line, the first merge first; a line that begins with #version is a comment. */
static bool merges_read(tl_tokenizer *t, const char *text, size_t bytes, const char *path) {
    int64_t rank = 0;
    for (const char *line = text, *end = text + bytes, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > line && stop[-1] == '\r') stop--;
        if (stop == line || (line == text && stop - line >= 8 && !memcmp(line, "#version", 8))) continue;
        const char *space = memchr(line, ' ', (size_t)(stop - line));
        if (!space || memchr(space + 1, ' ', (size_t)(stop - space - 1)))
            return error_set(TL_ERROR_USE, "%s: merge %lld is not two tokens with a space between them", path,
                             (long long)rank + 1);
        if (!tokenizer_merge_add(t, line, (size_t)(space - line), space + 1, (size_t)(stop - space - 1), rank, path))
            return false;
        rank++;
    }
    return true;
}

/* Undoes GPT-2's writing in place. False: a character stands for no byte, and the text stays as it is. */
static bool bytes_undo(uint8_t *bytes, uint32_t *n) {
    size_t to = 0, at = 0;
    int length;
    for (; at < *n; at += (size_t)length)
        if (tokenizer_character_byte(unicode_get(bytes + at, bytes + *n, &length)) < 0) return false;
    for (at = 0; at < *n; at += (size_t)length)
        bytes[to++] = (uint8_t)tokenizer_character_byte(unicode_get(bytes + at, bytes + *n, &length));
    *n = (uint32_t)to;
    return true;
}

void tokenizer_bytes_from_characters(tl_tokenizer *t) {
    struct vocabulary *v = &t->vocabulary;
    for (int32_t id = 0; id < v->n; id++) {
        struct token *token = &v->tokens[id];
        if (token->at == UINT32_MAX) continue;
        const bool has_text = token->text_at != token->at;
        if (has_text) bytes_undo(v->bytes + token->text_at, &token->text_length);
        if (!bytes_undo(v->bytes + token->at, &token->length)) token->is_hidden = true; /* no word becomes it */
        if (!has_text) token->text_length = token->length;
    }
}

tl_tokenizer *tokenizer_read_gpt2(const char *vocabulary_path, const char *merges_path) {
    static const char end_of_text[] = "<|endoftext|>";
    size_t bytes, merge_bytes = 0;
    char *text = file_get(vocabulary_path, TOKENIZER_MOST_BYTES, &bytes);
    char *merges = text ? file_get(merges_path, TOKENIZER_MOST_BYTES, &merge_bytes) : NULL;
    tl_tokenizer *t = merges ? tokenizer_new() : NULL;
    if (t) vocabulary_limit(&t->vocabulary, bytes);
    bool ok = t && vocabulary_read(t, text, bytes, vocabulary_path) && merges_read(t, merges, merge_bytes, merges_path);
    memory_free(text);
    memory_free(merges);
    if (ok) {
        t->is_byte_level = true;
        const int32_t end = vocabulary_find(&t->vocabulary, (const uint8_t *)end_of_text, sizeof end_of_text - 1);
        if (end >= 0) {
            t->vocabulary.tokens[end].is_hidden = t->vocabulary.tokens[end].is_special = true;
            ok = added_add(&t->added, end_of_text, sizeof end_of_text - 1, end, ADDED_SPECIAL);
        }
    }
    if (ok) tokenizer_bytes_from_characters(t);
    ok = ok &&
         steps_add(&t->splitters, (struct step){.kind = STEP_SPLIT, .scan = scanner_find(scanner_gpt2_pattern)}) &&
         tokenizer_finish(t);
    if (ok) return t;
    tl_tokenizer_free(t);
    return NULL;
}
