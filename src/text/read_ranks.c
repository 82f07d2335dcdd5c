/* read_ranks.c: tiktoken's files of ranks, "base64 rank" per line, and the encodings they belong to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "text/tokenizer.h"

struct special {
    const char *text;
    int32_t id;
};
#define END_OF_TEXT "<|endoftext|>"
static const struct special specials_gpt2[] = {{END_OF_TEXT, 50256}, {NULL, 0}};
static const struct special specials_edit[] = {
    {END_OF_TEXT, 50256}, {"<|fim_prefix|>", 50281}, {"<|fim_middle|>", 50282}, {"<|fim_suffix|>", 50283}, {NULL, 0}};
static const struct special specials_cl100k[] = {{END_OF_TEXT, 100257},       {"<|fim_prefix|>", 100258},
                                                 {"<|fim_middle|>", 100259},  {"<|fim_suffix|>", 100260},
                                                 {"<|endofprompt|>", 100276}, {NULL, 0}};
static const struct special specials_o200k[] = {{END_OF_TEXT, 199999}, {"<|endofprompt|>", 200018}, {NULL, 0}};
static const struct special specials_qwen[] = {
    {END_OF_TEXT, 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}, {NULL, 0}};
static const struct special specials_llama3[] = {{"<|begin_of_text|>", 128000},
                                                 {"<|end_of_text|>", 128001},
                                                 {"<|reserved_special_token_0|>", 128002},
                                                 {"<|reserved_special_token_1|>", 128003},
                                                 {"<|finetune_right_pad_id|>", 128004},
                                                 {"<|step_id|>", 128005},
                                                 {"<|start_header_id|>", 128006},
                                                 {"<|end_header_id|>", 128007},
                                                 {"<|eom_id|>", 128008},
                                                 {"<|eot_id|>", 128009},
                                                 {"<|python_tag|>", 128010},
                                                 {"<|image|>", 128011},
                                                 {NULL, 0}};

/* The names are tiktoken's, where it has the encoding. An encoding with `n_ranks` is recognized by that number. */
static const struct encoding {
    const char *name, *pattern;
    int32_t n_ranks;
    const struct special *specials;
    bool is_nfc;                             /* text is normalized first, as Qwen's own tokenizer does */
    const char *numbered;                    /* more special tokens, with a number in them ... */
    int32_t number, numbered_id, n_numbered; /* ... which begins here, as does the id */
} encodings[] = {{"r50k_base", scanner_r50k_pattern, 50256, specials_gpt2, .n_numbered = 0},
                 {"gpt2", scanner_r50k_pattern, 50256, specials_gpt2, .n_numbered = 0},
                 {"p50k_base", scanner_r50k_pattern, 50280, specials_gpt2, .n_numbered = 0},
                 {"p50k_edit", scanner_r50k_pattern, 50280, specials_edit, .n_numbered = 0},
                 {"cl100k_base", scanner_cl100k_pattern, 100256, specials_cl100k, .n_numbered = 0},
                 {"o200k_base", scanner_o200k_pattern, 199998, specials_o200k, .n_numbered = 0},
                 {"qwen", scanner_qwen2_pattern, 151643, specials_qwen, true, "<|extra_%d|>", 0, 151646, 205},
                 {"llama3", scanner_llama3_pattern, 128000, specials_llama3, false, "<|reserved_special_token_%d|>", 2,
                  128012, 244}};
enum { N_ENCODINGS = sizeof encodings / sizeof *encodings };

const char *tl_tokenizer_encoding(int index) {
    return index >= 0 && index < N_ENCODINGS ? encodings[index].name : NULL;
}

static const struct encoding *encoding_find(const char *name, int32_t n_ranks, const char *path) {
    const char *names[N_ENCODINGS];
    char meant[TEXT_MEANT];
    for (int i = 0; i < N_ENCODINGS; i++) {
        names[i] = encodings[i].name;
        /* "cl100k" is "cl100k_base" */
        const size_t n = strlen(encodings[i].name) - (strstr(encodings[i].name, "_base") ? strlen("_base") : 0);
        const bool is_named = name && (!strcmp(name, names[i]) || (strlen(name) == n && !memcmp(name, names[i], n)));
        if (name ? is_named : encodings[i].n_ranks == n_ranks) return &encodings[i];
    }
    if (name)
        error_set(TL_ERROR_USE,
                  "%s: there is no encoding \"%s\"%s (need gpt2, r50k_base, p50k_base, p50k_edit, "
                  "cl100k_base, o200k_base, qwen or llama3)",
                  path, name, text_meant(meant, text_nearest(name, names, N_ENCODINGS)));
    else
        error_set(TL_ERROR_USE,
                  "%s: %d ranks belong to no known encoding: say which one (gpt2, r50k_base, p50k_base, "
                  "p50k_edit, cl100k_base, o200k_base, qwen or llama3)",
                  path, n_ranks);
    return NULL;
}

const char *tokenizer_pattern(const char *encoding, const char *where) {
    const struct encoding *e = encoding_find(encoding, 0, where);
    return e ? e->pattern : NULL;
}

/* ---- The file ---- */

size_t tokenizer_base64(char *text, size_t bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = bytes, to = 0;
    if (bytes == 0 || bytes % 4) return 0;
    while (n > bytes - 2 && text[n - 1] == '=') n--;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) return 0;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4) text[to++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    return to;
}

/* One line, "base64 rank". Returns what is behind it; NULL on error, recorded. */
static char *line_read(tl_tokenizer *t, char *line, char *end, const char *path, int64_t number) {
    char *stop = memchr(line, '\n', (size_t)(end - line)), *next = stop ? stop + 1 : end;
    if (!stop) stop = end;
    while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ')) stop--;
    if (stop == line) return next;
    char *space = memchr(line, ' ', (size_t)(stop - line));
    int64_t rank = 0;
    char *digit = space ? space + 1 : stop;
    while (digit < stop && text_is_digit(*digit) && rank < INT32_MAX) rank = 10 * rank + (*digit++ - '0');
    const size_t bytes = space ? tokenizer_base64(line, (size_t)(space - line)) : 0;
    if (!bytes || digit != stop || digit == space + 1) {
        error_set(TL_ERROR_USE, "%s:%lld: not a token in base64, a space and a rank", path, (long long)number);
        return NULL;
    }
    return vocabulary_add(&t->vocabulary, rank, line, bytes, false, path) ? next : NULL;
}

/* Every cut of every token into two tokens is a merge; *n counts them, and they are put into the table, or only
 * counted. */
static bool cuts_take(tl_tokenizer *t, bool is_count, size_t *n) {
    const struct vocabulary *v = &t->vocabulary;
    *n = 0;
    for (int32_t id = 0; id < v->n; id++) {
        const struct token *token = &v->tokens[id];
        if (token->at == UINT32_MAX || token->is_hidden) continue;
        const uint8_t *bytes = vocabulary_bytes(v, id);
        if (token->length > TOKENIZER_MOST_RANKED)
            return error_set(TL_ERROR_USE, "token %d has %u bytes (need at most %d)", id, token->length,
                             TOKENIZER_MOST_RANKED);
        for (uint32_t cut = 1; cut < token->length; cut++) {
            const int32_t a = vocabulary_find(v, bytes, cut);
            const int32_t b = a < 0 ? -1 : vocabulary_find(v, bytes + cut, token->length - cut);
            *n += b >= 0;
            if (b >= 0 && !is_count && !pairs_put(&t->merges, a, b, (uint32_t)id, id, true)) return false;
        }
    }
    return true;
}

/* A table that grows needs half its memory again, so it gets its size first. */
bool tokenizer_merges_from_ranks(tl_tokenizer *t) {
    struct vocabulary *v = &t->vocabulary;
    size_t n;
    if (!vocabulary_index(v, "the vocabulary") || !cuts_take(t, true, &n) || !pairs_make(&t->merges, n) ||
        !cuts_take(t, false, &n))
        return false;
    for (int i = 0; i < 256; i++)
        if (vocabulary_find(v, &(uint8_t){(uint8_t)i}, 1) < 0)
            return error_set(TL_ERROR_USE, "no token is the byte %d (need all 256)", i);
    return true;
}

static bool specials_add(tl_tokenizer *t, const struct encoding *e) {
    for (const struct special *s = e->specials; s->text; s++)
        if (!tokenizer_add_special(t, s->text, strlen(s->text), s->id, ADDED_SPECIAL)) return false;
    for (int32_t i = 0; i < e->n_numbered; i++) {
        char text[64];
        const int n = snprintf(text, sizeof text, e->numbered, e->number + i);
        if (!tokenizer_add_special(t, text, (size_t)n, e->numbered_id + i, ADDED_SPECIAL)) return false;
    }
    return true;
}

tl_tokenizer *tokenizer_read_ranks(char *text, size_t bytes, const char *path, const char *encoding) {
    tl_tokenizer *t = tokenizer_new();
    if (!t) return NULL;
    t->is_byte_level = t->is_word_first = true;
    char *at = text;
    for (int64_t number = 1; at && at < text + bytes; number++) at = line_read(t, at, text + bytes, path, number);
    const struct encoding *e = at ? encoding_find(encoding, t->vocabulary.n_tokens, path) : NULL;
    bool ok = e && tokenizer_merges_from_ranks(t) && specials_add(t, e) &&
              (!e->is_nfc || steps_add(&t->normalizers, (struct step){.kind = STEP_NORMALIZE, .form = UNICODE_NFC})) &&
              steps_add(&t->splitters, (struct step){.kind = STEP_SPLIT, .scan = scanner_find(e->pattern)}) &&
              tokenizer_finish(t);
    if (ok) return t;
    tl_tokenizer_free(t);
    return NULL;
}
