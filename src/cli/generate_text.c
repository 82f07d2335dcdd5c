#include "cli/generate_text.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/output.h"

bool speech_put(const struct speech *s, const char *text, size_t bytes) {
    if (!bytes) return true;
    return s->is_clean ? fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0 : output_bytes(text, bytes);
}

static bool print_to(struct speech *s, size_t end) {
    size_t from = s->n_printed, n = end > from ? end - from : 0;
    s->n_printed += n;
    return !n || !s->is_streamed || speech_put(s, s->words.text + from, n);
}

/* Where the first stop string begins in what was generated, if it ends behind byte `from`; -1: nowhere. */
static int64_t stop_find(const struct speech *s, size_t from) {
    int64_t first = -1;
    for (int i = 0; i < s->stops->n; i++) {
        const char *stop = s->stops->at[i];
        size_t n = strlen(stop), before = n < from - s->n_prompt ? n : from - s->n_prompt;
        const char *at = n ? memmem(s->words.text + from - before, s->words.n - from + before, stop, n) : NULL;
        if (at && (first < 0 || at - s->words.text < first)) first = at - s->words.text;
    }
    return first;
}

/* How many of the last bytes may be the beginning of a stop string: they are not printed yet. */
static size_t stop_begun(const struct speech *s) {
    size_t most = 0;
    for (int i = 0; i < s->stops->n; i++) {
        const char *stop = s->stops->at[i];
        size_t n = strlen(stop), room = s->words.n - s->n_prompt;
        for (size_t k = n ? n - 1 : 0; k > most; k--)
            if (k <= room && !memcmp(s->words.text + s->words.n - k, stop, k)) most = k;
    }
    return most;
}

/* What was added from byte `from` on: cleaned, searched for stop strings, printed. */
static bool words_take(struct speech *s, size_t from) {
    if (s->is_clean) tokens_clean(s->words.text + from, s->words.n - from);
    int64_t stop = stop_find(s, from);
    if (stop >= 0) {
        s->words.n = (size_t)stop;
        s->words.text[stop] = 0;
        s->is_ended = true;
    }
    return print_to(s, s->words.n - (stop < 0 ? stop_begun(s) : 0));
}

bool speech_begin(struct speech *s, const int64_t *ids, int64_t n, bool shows_prompt) {
    s->decoder = tl_decoder_new(s->tokenizer, false);
    bool ok = s->decoder != NULL;
    for (int64_t i = 0; ok && i < n; i++) ok = tokens_add(&s->words, s->tokenizer, s->decoder, ids[i]);
    if (ok && s->is_clean) tokens_clean(s->words.text, s->words.n);
    s->n_prompt = s->words.n;
    if (!shows_prompt) s->n_printed = s->words.n;
    return ok && print_to(s, s->words.n);
}

bool speech_add(struct speech *s, int64_t id) {
    size_t from = s->words.n;
    return tokens_add(&s->words, s->tokenizer, s->decoder, id) && words_take(s, from);
}

bool speech_end(struct speech *s) {
    size_t from = s->words.n;
    bool ok = s->is_ended || (tokens_end(&s->words, s->decoder) && words_take(s, from));
    return ok && print_to(s, s->words.n);
}

void speech_free(struct speech *s) {
    tl_decoder_free(s->decoder);
    memory_free(s->words.text);
    s->decoder = NULL;
    s->words = (struct tokens_words){0};
}
