#include "step/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "step/source.h"
#include "step/tokens.h"

#define STORY_UNSEEN ((uint64_t)1 << 63)
enum { WINDOW_TOKENS = 8192 };

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
static bool is_stop(char c) { return c && strchr(",;:.!?", c); }

/* Bytes of the whole word at `text`, of at most `room`; 0: it is longer, or not text. */
static size_t word_length(const char *text, size_t room) {
    size_t n = 0;
    while (text[n] && !is_blank(text[n])) {
        uint32_t code;
        int bytes = text_character(text + n, &code);
        if (!bytes || text_is_control(code) || n + (size_t)bytes > room) return 0;
        n += (size_t)bytes;
    }
    return n;
}

/* The beginning of a word that is too long, in whole characters: languages without blanks. */
static size_t characters_length(const char *text, size_t room) {
    size_t n = 0;
    uint32_t code;
    for (int bytes; !is_blank(text[n]) && (bytes = text_character(text + n, &code)); n += (size_t)bytes)
        if (!code || text_is_control(code) || n + (size_t)bytes > room) break;
    return n;
}

/* The words at the beginning of a text, up to the end of their line. A stop behind the last is left to the model. */
static bool words_cut(const char *text, char words[PROMPT_BYTES + 1]) {
    size_t end = 0, at = 0;
    while (is_blank(*text)) text++;
    for (int i = 0; i < PROMPT_WORDS && at < PROMPT_BYTES; i++) {
        size_t n = word_length(text + at, PROMPT_BYTES - at);
        if (!n) break;
        end = at + n;
        for (at = end; text[at] == ' ';) at++;
    }
    if (!end) end = characters_length(text, PROMPT_BYTES);
    for (size_t n = end; n && is_stop(text[n - 1]);)
        if (--n) end = n;
    memcpy(words, text, end);
    words[end] = 0;
    return end > 0;
}

/* Where a document seems to begin in a text that was cut anywhere. */
static const char *document_guess(const char *text) {
    static const char *const breaks[] = {"\n\n", "\r\n\r\n", "\n", " "};
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        const char *at = strstr(text, breaks[i]);
        while (at && is_blank(*at)) at++;
        if (at && *at) return at;
    }
    uint32_t code;
    while (*text && !text_character(text, &code)) text++; /* the rest of a character that was cut */
    return text;
}

/* Cuts the words out of n tokens. is_begin: the first one begins a document. */
static bool tokens_cut(tl_tokenizer *tokenizer, const int32_t *ids, int64_t n, bool is_begin,
                       char words[PROMPT_BYTES + 1]) {
    size_t bytes;
    char *text = tl_tokenizer_decode(tokenizer, ids, n, true, &bytes);
    for (size_t i = 0; text && i < bytes; i++)
        if (!text[i]) text[i] = '\1'; /* a text ends at a 0 */
    bool ok = text && words_cut(is_begin ? text : document_guess(text), words);
    free(text);
    return ok;
}

/* The first document at or behind a token, as the file records it. -1: none. */
static int64_t document_find(const tl_token_file *file, const tl_token_info *info, int64_t from) {
    if (from == 0) return 0;
    if (!info->documents) return -1;
    int64_t begin = tl_token_file_document_begin(file, tl_token_file_document_at(file, from - 1) + 1);
    return begin < info->count ? begin : -1;
}

static bool window_cut(tl_token_file *file, const tl_token_info *info, tl_tokenizer *tokenizer, int64_t from,
                       int64_t document_token, char words[PROMPT_BYTES + 1]) {
    int32_t *ids = memory_new(WINDOW_TOKENS * sizeof *ids);
    int64_t begin = document_find(file, info, from), at = 0;
    if (begin >= 0) from = begin;
    int64_t n = info->count - from < WINDOW_TOKENS ? info->count - from : WINDOW_TOKENS;
    bool ok = ids && tl_token_file_read(file, ids, from, n);
    while (ok && begin < 0 && at < n && ids[at] != document_token) at++;
    if (at == n) at = 0;
    else begin = from + at;
    ok = ok && tokens_cut(tokenizer, ids + at, n - at, begin >= 0, words);
    memory_free(ids);
    return ok;
}

/* The tokenizer of a file's tokens, also of a text's. NULL: not known, or recorded. */
static tl_tokenizer *tokenizer_of(const tl_token_info *info, const struct settings *s) {
    tl_tokenizer *t = NULL;
    if (info->format == TL_TOKENS_BYTES) return tl_tokenizer_bytes();
    if (!tokens_open(s, 0, &t) || t) return t;
    return info->vocabulary_hash == TL_BYTES_HASH ? tl_tokenizer_bytes() : NULL;
}

static bool file_cut(const struct settings *s, char words[PROMPT_BYTES + 1]) {
    struct sets sets;
    tl_token_info info;
    if (!sets_read(&sets, s->val_data)) return false;
    bool is_apart = sets.n > 0;
    tl_token_file *file = tl_token_file_open(is_apart ? sets.path[0] : s->data, TL_TOKENS_AUTO);
    tl_tokenizer *tokenizer = file && tl_token_file_info(file, &info) ? tokenizer_of(&info, s) : NULL;
    int64_t held = tokenizer && !is_apart ? (int64_t)(s->val_share * (double)info.count) : 0;
    int64_t token = tokenizer && info.format != TL_TOKENS_BYTES ? s->document_token : -1;
    bool ok = tokenizer && window_cut(file, &info, tokenizer, held ? info.count - held : 0, token, words);
    tl_tokenizer_free(tokenizer);
    tl_token_file_close(file);
    return ok;
}

bool prompt_of_data(const struct settings *s, char words[PROMPT_BYTES + 1]) {
    if (settings_has_answers(s)) return false; /* lines of JSON are no words */
    char story[4 * PROMPT_BYTES];
    if (!source_is_builtin(s)) return file_cut(s, words);
    tl_corpus_story(settings_seed(s, s->seed_data), STORY_UNSEEN, story, sizeof story, NULL);
    return words_cut(story, words);
}
