#include "text/steps.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "text/bpe.h"

bool steps_add(struct steps *s, struct step step) {
    if (s->n == s->capacity && !memory_grow((void **)&s->at, &s->capacity, s->n, sizeof *s->at)) {
        steps_free(&(struct steps){.at = &step, .n = 1, .capacity = 0});
        return error_memory(sizeof step, "a step of a tokenizer");
    }
    s->at[s->n++] = step;
    return true;
}

void steps_free(struct steps *s) {
    for (size_t i = 0; i < s->n; i++) {
        regex_free(s->at[i].regex);
        memory_free(s->at[i].pattern);
        memory_free(s->at[i].with);
    }
    if (s->capacity) memory_free(s->at);
    *s = (struct steps){0};
}

/* ---- Flows ---- */

void flow_free(struct flow *f) {
    memory_free(f->buffer);
    memory_free(f->origins);
    memory_free(f->words);
}

void flow_begin(struct flow *f, const uint8_t *text, const struct span *origin, size_t bytes, size_t base) {
    f->text = text;
    f->origin = origin;
    f->n = bytes;
    f->base = base;
    f->n_words = 0;
}

bool flow_word(struct flow *f, size_t begin, size_t end) {
    if (begin == end) return true;
    if (f->n_words == f->word_capacity &&
        !memory_grow((void **)&f->words, &f->word_capacity, f->n_words, sizeof *f->words))
        return error_memory(f->n_words * sizeof *f->words, "words of a text");
    f->words[f->n_words++] = (struct span){(uint32_t)begin, (uint32_t)end};
    return true;
}

/* An empty flow to write into. */
static void flow_clear(struct flow *f, bool has_origins) {
    f->n = f->n_words = 0;
    f->has_origins = has_origins;
}

static bool flow_room(struct flow *f, size_t bytes) {
    if (f->n + bytes >= UINT32_MAX) return error_set(TL_ERROR_USE, "a normalized text of more than 4 GiB");
    if (f->n + bytes > f->capacity) {
        const size_t capacity = 2 * (f->n + bytes) + 256;
        uint8_t *grown = memory_resize(f->buffer, capacity);
        if (!grown) return error_memory(capacity, "a normalized text");
        f->buffer = grown;
        f->capacity = capacity;
    }
    if (f->has_origins && f->n + bytes > f->origin_capacity) {
        const size_t capacity = 2 * (f->n + bytes) + 256;
        struct span *grown = memory_resize(f->origins, capacity * sizeof *grown);
        if (!grown) return error_memory(capacity * sizeof *grown, "offsets of a text");
        f->origins = grown;
        f->origin_capacity = capacity;
    }
    f->text = f->buffer;
    f->origin = f->has_origins ? f->origins : NULL;
    return true;
}

/* Appends bytes that are all from one place. */
static bool flow_put(struct flow *f, const void *bytes, size_t n, struct span origin) {
    if (!flow_room(f, n)) return false;
    if (n) memcpy(f->buffer + f->n, bytes, n);
    for (size_t i = 0; f->has_origins && i < n; i++) f->origins[f->n + i] = origin;
    f->n += n;
    return true;
}

/* Appends a part of another flow, as it is. */
static bool flow_copy(struct flow *to, const struct flow *from, size_t begin, size_t end) {
    if (!flow_room(to, end - begin)) return false;
    if (end > begin) memcpy(to->buffer + to->n, from->text + begin, end - begin);
    for (size_t i = begin; to->has_origins && i < end; i++) to->origins[to->n + i - begin] = flow_origin(from, i);
    to->n += end - begin;
    return true;
}

static struct span origin_of(const struct flow *f, size_t begin, size_t end) {
    if (f->n == 0) return (struct span){(uint32_t)f->base, (uint32_t)f->base};
    if (begin >= end) return flow_origin(f, begin < f->n ? begin : f->n - 1);
    return (struct span){flow_origin(f, begin).begin, flow_origin(f, end - 1).end};
}

static size_t character_end(const uint8_t *text, size_t at, size_t end) {
    int length;
    unicode_get(text + at, text + end, &length);
    return at + (size_t)length;
}

static void flows_swap(struct encoder *e) {
    const struct flow from = e->flow;
    e->flow = e->other;
    e->other = from;
}

/* ---- Normalizers ---- */

static bool normalized_put(struct encoder *e, enum unicode_form form, size_t begin, size_t end) {
    e->pieces.n = 0;
    if (!unicode_normalize(form, e->flow.text + begin, end - begin, &e->pieces))
        return error_memory((end - begin) * sizeof *e->pieces.at, "a normalized text");
    for (size_t i = 0; i < e->pieces.n; i++) {
        const struct unicode_piece *p = &e->pieces.at[i];
        uint8_t bytes[UNICODE_BYTES] = {(uint8_t)p->c};
        const int n = p->c & UNICODE_INVALID ? 1 : unicode_put(p->c, bytes);
        const struct span origin = origin_of(&e->flow, begin + p->begin, begin + p->end);
        if (!flow_put(&e->other, bytes, (size_t)n, origin)) return false;
    }
    return true;
}

/* Only what may change is normalized: from the character before the first one that is not stable, up to the next
 * stable one. */
static bool normalize(const struct step *s, struct encoder *e, bool has_origins) {
    const uint8_t *text = e->flow.text;
    size_t done = 0, before = 0, at = 0;
    while (at < e->flow.n) {
        int length;
        if (text[at] < 0x80) {
            before = at++;
            continue;
        }
        const uint32_t c = unicode_get(text + at, text + e->flow.n, &length);
        if (unicode_is_stable(s->form, c)) {
            before = at;
            at += (size_t)length;
            continue;
        }
        if (done == 0) flow_clear(&e->other, has_origins);
        size_t end = at;
        while (end < e->flow.n && !unicode_is_stable(s->form, unicode_get(text + end, text + e->flow.n, &length)))
            end += (size_t)length;
        if (before < done) before = done;
        if (!flow_copy(&e->other, &e->flow, done, before) || !normalized_put(e, s->form, before, end)) return false;
        done = before = at = end;
    }
    if (done == 0) return true;
    if (!flow_copy(&e->other, &e->flow, done, e->flow.n)) return false;
    flows_swap(e);
    return true;
}

static bool prepend(const struct step *s, struct encoder *e, bool has_origins) {
    if (e->flow.n == 0) return true;
    flow_clear(&e->other, has_origins);
    const struct span first = origin_of(&e->flow, 0, character_end(e->flow.text, 0, e->flow.n));
    if (!flow_put(&e->other, s->with, s->with_bytes, first) || !flow_copy(&e->other, &e->flow, 0, e->flow.n))
        return false;
    flows_swap(e);
    return true;
}

/* The next match of a step's pattern in [from, end) of a text. False: none, or an error. */
static bool match_next(const struct step *s, void **data, const uint8_t *text, size_t end, size_t last, size_t *begin,
                       size_t *stop) {
    const size_t from = last == SIZE_MAX ? 0 : last;
    if (s->regex) return regex_next(s->regex, data, text, end, last, begin, stop);
    if (s->scan) {
        if (from == end) return false;
        *begin = from;
        *stop = (size_t)(s->scan(text + from, text + end) - text);
        return true;
    }
    const uint8_t *found = s->pattern_bytes ? memmem(text + from, end - from, s->pattern, s->pattern_bytes) : NULL;
    if (!found) return false;
    *begin = (size_t)(found - text);
    *stop = *begin + s->pattern_bytes;
    return true;
}

/* The text that patterns see: PCRE2 wants valid UTF-8, so bytes that are not become U+0001, which is as little a
 * letter, number or space. NULL: no memory, recorded. */
static const uint8_t *clean(const struct step *s, struct encoder *e, const uint8_t *text, size_t bytes) {
    if (!s->regex || !e->is_invalid) return text;
    if (bytes > e->clean_capacity) {
        uint8_t *grown = memory_resize(e->clean, bytes);
        if (!grown) return error_memory(bytes, "a text"), NULL;
        e->clean = grown;
        e->clean_capacity = bytes;
    }
    memcpy(e->clean, text, bytes);
    int length;
    for (size_t at = 0; at < bytes; at += (size_t)length)
        if (unicode_get(text + at, text + bytes, &length) == UNICODE_REPLACEMENT && length == 1) e->clean[at] = 1;
    return e->clean;
}

static bool replace(const struct step *s, struct encoder *e, bool has_origins) {
    size_t begin, end, done = 0, last = SIZE_MAX;
    const uint8_t *seen = clean(s, e, e->flow.text, e->flow.n);
    if (!seen) return false;
    while (match_next(s, &e->regex_data, seen, e->flow.n, last, &begin, &end)) {
        if (last == SIZE_MAX) flow_clear(&e->other, has_origins);
        if (!flow_copy(&e->other, &e->flow, done, begin) ||
            !flow_put(&e->other, s->with, s->with_bytes, origin_of(&e->flow, begin, end)))
            return false;
        done = last = end;
    }
    if (tl_error() != TL_OK) return false;
    if (last == SIZE_MAX) return true;
    if (!flow_copy(&e->other, &e->flow, done, e->flow.n)) return false;
    flows_swap(e);
    return true;
}

static bool strip(const struct step *s, struct encoder *e, bool has_origins) {
    size_t begin = 0, end = e->flow.n;
    int length;
    while (s->strips_left && begin < end &&
           unicode_class(unicode_get(e->flow.text + begin, e->flow.text + end, &length)) & UNICODE_SPACE)
        begin += (size_t)length;
    size_t kept = s->strips_right ? begin : end;
    for (size_t at = begin; at < end && s->strips_right; at += (size_t)length)
        if (!(unicode_class(unicode_get(e->flow.text + at, e->flow.text + end, &length)) & UNICODE_SPACE))
            kept = at + (size_t)length;
    if (begin == 0 && kept == end) return true;
    flow_clear(&e->other, has_origins);
    if (!flow_copy(&e->other, &e->flow, begin, kept)) return false;
    flows_swap(e);
    return true;
}

bool steps_normalize(const struct steps *s, struct encoder *e, bool has_origins, bool is_first) {
    e->other.base = e->flow.base;
    for (size_t i = 0; i < s->n; i++) {
        const struct step *step = &s->at[i];
        if (step->kind == STEP_PREPEND && !is_first && e->flow.base == 0) continue;
        bool ok = step->kind == STEP_NORMALIZE ? normalize(step, e, has_origins)
                  : step->kind == STEP_PREPEND ? prepend(step, e, has_origins)
                  : step->kind == STEP_REPLACE ? replace(step, e, has_origins)
                                               : strip(step, e, has_origins);
        if (!ok) return false;
    }
    return true;
}

/* ---- Pre-tokenizers ---- */

/* The parts of a word, matches and what is between them, put together as a behavior says. */
struct parts {
    struct flow *to;
    enum split_behavior behavior;
    struct span kept; /* a part that may still grow */
    bool has_kept, was_match;
};

static bool part_flush(struct parts *p) {
    const bool has_kept = p->has_kept;
    p->has_kept = false;
    return !has_kept || flow_word(p->to, p->kept.begin, p->kept.end);
}

static bool part_add(struct parts *p, size_t begin, size_t end, bool is_match) {
    if (p->behavior == SPLIT_REMOVED) return is_match || flow_word(p->to, begin, end);
    const bool is_joined = p->has_kept && ((p->behavior == SPLIT_CONTIGUOUS && is_match == p->was_match) ||
                                           (p->behavior == SPLIT_PREVIOUS && is_match && !p->was_match) ||
                                           (p->behavior == SPLIT_NEXT && !is_match && p->was_match));
    if (!is_joined && !part_flush(p)) return false;
    p->kept = (struct span){is_joined ? p->kept.begin : (uint32_t)begin, (uint32_t)end};
    p->has_kept = true;
    p->was_match = is_match;
    return true;
}

static bool split_word(const struct step *s, struct encoder *e, const uint8_t *text, size_t offset, size_t bytes) {
    struct parts parts = {.to = &e->other, .behavior = s->behavior};
    size_t begin, end, done = 0, last = SIZE_MAX;
    if (!(text = clean(s, e, text, bytes))) return false;
    while (match_next(s, &e->regex_data, text, bytes, last, &begin, &end)) {
        if (begin > done && !part_add(&parts, offset + done, offset + begin, s->is_inverted)) return false;
        if (!part_add(&parts, offset + begin, offset + end, !s->is_inverted)) return false;
        done = last = end;
    }
    if (tl_error() != TL_OK) return false;
    return (done == bytes || part_add(&parts, offset + done, offset + bytes, s->is_inverted)) && part_flush(&parts);
}

static bool digits_word(const struct step *s, struct encoder *e, const uint8_t *text, size_t offset, size_t bytes) {
    struct parts parts = {.to = &e->other, .behavior = s->is_single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS};
    size_t done = 0;
    int length;
    for (size_t at = 0; at < bytes; at += (size_t)length) {
        if (!unicode_is_numeric(unicode_get(text + at, text + bytes, &length))) continue;
        if (at > done && !part_add(&parts, offset + done, offset + at, false)) return false;
        done = at + (size_t)length;
        if (!part_add(&parts, offset + at, offset + done, true)) return false;
    }
    return (done == bytes || part_add(&parts, offset + done, offset + bytes, false)) && part_flush(&parts);
}

/* Writes a word into e->other, with U+2581 (or what the file says) for spaces and perhaps one before it. */
static bool metaspace_put(const struct step *s, struct encoder *e, struct span word, bool is_start) {
    const struct flow *from = &e->flow;
    const uint8_t *text = from->text;
    const bool is_marked = text[word.begin] == ' ' || (word.end - word.begin >= s->with_bytes &&
                                                       !memcmp(text + word.begin, s->with, s->with_bytes));
    const bool is_first = is_start && flow_origin(from, word.begin).begin == 0;
    if (!is_marked && (s->scheme == PREPEND_ALWAYS || (s->scheme == PREPEND_FIRST && is_first))) {
        const struct span origin = origin_of(from, word.begin, character_end(text, word.begin, word.end));
        if (!flow_put(&e->other, s->with, s->with_bytes, origin)) return false;
    }
    for (size_t done = word.begin; done < word.end;) {
        const uint8_t *space = memchr(text + done, ' ', word.end - done);
        const size_t end = space ? (size_t)(space - text) : word.end;
        if (!flow_copy(&e->other, from, done, end)) return false;
        if (space && !flow_put(&e->other, s->with, s->with_bytes, origin_of(from, end, end + 1))) return false;
        done = end + (space != NULL);
    }
    return true;
}

static bool metaspace_word(const struct step *s, struct encoder *e, struct span word, bool is_start) {
    const size_t first = e->other.n;
    if (!metaspace_put(s, e, word, is_start)) return false;
    if (!s->is_split) return flow_word(&e->other, first, e->other.n);
    struct parts parts = {.to = &e->other, .behavior = SPLIT_NEXT};
    const uint8_t *text = e->other.text;
    size_t done = first;
    for (const uint8_t *found; (found = memmem(text + done, e->other.n - done, s->with, s->with_bytes));) {
        const size_t at = (size_t)(found - text);
        if (at > done && !part_add(&parts, done, at, false)) return false;
        done = at + s->with_bytes;
        if (!part_add(&parts, at, done, true)) return false;
    }
    return (done == e->other.n || part_add(&parts, done, e->other.n, false)) && part_flush(&parts);
}

static bool prefix_word(struct encoder *e, struct span word) {
    const size_t first = e->other.n;
    const struct span origin = origin_of(&e->flow, word.begin, character_end(e->flow.text, word.begin, word.end));
    if (e->flow.text[word.begin] != ' ' && !flow_put(&e->other, " ", 1, origin)) return false;
    return flow_copy(&e->other, &e->flow, word.begin, word.end) && flow_word(&e->other, first, e->other.n);
}

/* One step over all words. The new words are e->other's; if the step changes the text, so is the new text. */
static bool step_split(const struct step *s, struct encoder *e, bool has_origins, bool is_start) {
    const bool changes = s->kind == STEP_METASPACE || s->kind == STEP_BYTE_LEVEL;
    e->other.n_words = 0;
    if (changes) flow_clear(&e->other, has_origins);
    for (size_t i = 0; i < e->flow.n_words; i++) {
        const struct span word = e->flow.words[i];
        const uint8_t *text = e->flow.text + word.begin;
        const size_t bytes = word.end - word.begin;
        const bool ok = s->kind == STEP_SPLIT       ? split_word(s, e, text, word.begin, bytes)
                        : s->kind == STEP_DIGITS    ? digits_word(s, e, text, word.begin, bytes)
                        : s->kind == STEP_METASPACE ? metaspace_word(s, e, word, is_start)
                                                    : prefix_word(e, word);
        if (!ok) return false;
    }
    if (changes) {
        flows_swap(e);
        return true;
    }
    struct flow *f = &e->flow, *o = &e->other; /* only the words change places */
    struct span *words = f->words;
    const size_t capacity = f->word_capacity;
    f->words = o->words;
    f->n_words = o->n_words;
    f->word_capacity = o->word_capacity;
    o->words = words;
    o->word_capacity = capacity;
    return true;
}

bool steps_split(const struct steps *s, struct encoder *e, bool has_origins, bool is_start) {
    e->other.base = e->flow.base;
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].kind == STEP_BYTE_LEVEL && !s->at[i].is_prefixed) continue;
        if (!step_split(&s->at[i], e, has_origins, is_start)) return false;
    }
    return true;
}
