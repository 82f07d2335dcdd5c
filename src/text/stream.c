/* stream.c: a text that comes in parts.
 *
 * Text is held until there is a place in it that nothing sees across: a position where the tokens before and behind it
 * are those of the two texts by themselves. scanner_cut has the places that the well-known patterns, and splitting at
 * U+2581, allow. None of them is inside or at the edge of an added token. CUT_PUNCTUATION is not used with normalizers:
 * punctuation may turn into something else. A tokenizer with a pattern of its own gives no such promise, so its texts
 * are held whole; so are those of one that neither cuts words nor keeps merges from crossing spaces.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/refs.h"
#include "text/tokenizer.h"

/* Texts are cut when this much is held; then each part is long enough to encode at full speed. */
enum { HELD_BYTES = 64 << 10 };

struct tl_encoder {
    tl_tokenizer *t;
    struct encode_plan plan;
    struct encoder *e;
    bool may_cut, may_cut_anywhere, has_begun;
    uint8_t *held;
    size_t n, capacity, searched; /* searched: no cut is before this */
    int64_t base;                 /* of the held text in the whole */
};

static bool splits_safely(const tl_tokenizer *t) {
    bool is_cut = t->may_cut_spaces;
    for (size_t i = 0; i < t->splitters.n; i++) {
        const struct step *s = &t->splitters.at[i];
        if (s->kind == STEP_SPLIT && !s->scan) return false;
        if (s->kind == STEP_METASPACE && !s->is_split && !t->may_cut_spaces) return false;
        if (s->kind == STEP_BYTE_LEVEL && s->is_prefixed) return false;
        is_cut |= s->kind == STEP_SPLIT || s->kind == STEP_METASPACE;
    }
    for (size_t i = 0; i < t->normalizers.n; i++) {
        const struct step *s = &t->normalizers.at[i];
        const bool is_space = s->kind == STEP_REPLACE && s->pattern && s->pattern_bytes == 1 && *s->pattern == ' ';
        if (s->kind == STEP_STRIP || (s->kind == STEP_REPLACE && !is_space)) return false;
    }
    return is_cut;
}

tl_encoder *tl_encoder_new(tl_tokenizer *t, const tl_encode_options *options) {
    if (!t) return error_set(TL_ERROR_USE, "encoder_new: no tokenizer"), NULL;
    if (tl_error() != TL_OK) return NULL;
    tl_encoder *s = memory_new(sizeof *s);
    if (!s) return error_memory(sizeof *s, "an encoder"), NULL;
    *s = (tl_encoder){.t = t};
    refs_keep(&t->refs);
    s->may_cut_anywhere =
        t->merges.n == 0 && !t->splitters.n && !t->normalizers.n && !t->added.n && !t->is_unknown_fused;
    s->may_cut = s->may_cut_anywhere || splits_safely(t);
    if (encode_plan_make(&s->plan, t, options) && (s->e = encoder_take(t))) return s;
    tl_encoder_free(s);
    return NULL;
}

void tl_encoder_free(tl_encoder *s) {
    if (!s) return;
    if (s->e) encoder_put(s->t, s->e);
    encode_plan_free(&s->plan);
    memory_free(s->held);
    tl_tokenizer_free(s->t);
    memory_free(s);
}

/* ---- Where to cut ---- */

static bool is_cut(const tl_encoder *s, size_t at) {
    const enum scanner_cut cut = scanner_cut(s->held, s->n, at);
    if (cut == CUT_NONE || cut == CUT_SPACE) return cut == CUT_SPACE;
    const bool is_metaspace =
        s->t->may_cut_spaces || (s->t->splitters.n && s->t->splitters.at[0].kind == STEP_METASPACE);
    return !is_metaspace && (cut == CUT_NEWLINE || !s->t->normalizers.n);
}

/* The last place to cut, with enough text behind it to know; 0: none. */
static size_t cut_find(tl_encoder *s) {
    if (!s->may_cut) return 0;
    const size_t tail = s->t->added.longest + 16;
    if (s->n <= tail) return 0;
    for (size_t at = s->n - tail; at > s->searched && at > 0; at--) {
        if ((s->held[at] & 0xc0) == 0x80) continue;
        if ((s->may_cut_anywhere || is_cut(s, at)) && !added_is_near(&s->t->added, s->plan.modes, s->held, s->n, at))
            return at;
    }
    s->searched = s->n - tail;
    return 0;
}

/* ---- Parts ---- */

static bool encoding_put(tl_encoder *s, tl_encoding *to) {
    const struct ids *ids = &s->e->ids;
    const size_t count = (size_t)to->count + ids->n;
    int32_t *grown = memory_resize(to->ids, (count + 1) * sizeof *grown);
    if (!grown) return error_memory(count * sizeof *grown, "tokens");
    to->ids = grown;
    memcpy(to->ids + to->count, ids->at, ids->n * sizeof *grown);
    if (s->plan.has_offsets) {
        int64_t *offsets = memory_resize(to->offsets, (2 * count + 1) * sizeof *offsets);
        if (!offsets) return error_memory(2 * count * sizeof *offsets, "offsets of tokens");
        to->offsets = offsets;
        for (size_t i = 0; i < 2 * ids->n; i++) offsets[2 * (size_t)to->count + i] = ids->offsets[i] + s->base;
    }
    to->count = (int64_t)count;
    s->e->ids.n = 0;
    return true;
}

/* Encodes the first n held bytes. On failure the text is given up. */
static bool part_encode(tl_encoder *s, size_t n, bool is_last, tl_encoding *to) {
    const bool ok = (s->has_begun || encode_template(&s->plan, s->e, true, 0)) &&
                    encode_text(&s->plan, s->e, s->held, n, !s->has_begun) &&
                    (!is_last || encode_template(&s->plan, s->e, false, n)) && encoding_put(s, to);
    s->e->ids.n = 0;
    s->has_begun = ok && !is_last;
    s->base = s->has_begun ? s->base + (int64_t)n : 0;
    if (ok && s->n > n) memmove(s->held, s->held + n, s->n - n);
    s->n = ok ? s->n - n : 0;
    s->searched = 0;
    return ok;
}

bool tl_encoder_add(tl_encoder *s, const char *text, size_t bytes, tl_encoding *encoding) {
    if (!s || !encoding || (bytes && !text))
        return error_set(TL_ERROR_USE, "encoder_add: no encoder, text or encoding");
    if (tl_error() != TL_OK) return false;
    while (bytes) {
        const size_t part = bytes < 4 * HELD_BYTES ? bytes : 4 * HELD_BYTES;
        if (s->n + part > s->capacity) {
            const size_t capacity = s->capacity ? 2 * (s->n + part) : 8 * HELD_BYTES;
            uint8_t *grown = memory_resize(s->held, capacity);
            if (!grown) return error_memory(capacity, "a text");
            s->held = grown;
            s->capacity = capacity;
        }
        memcpy(s->held + s->n, text, part);
        s->n += part;
        text += part;
        bytes -= part;
        const size_t cut = s->n >= HELD_BYTES ? cut_find(s) : 0;
        if (cut && !part_encode(s, cut, false, encoding)) return false;
    }
    return true;
}

bool tl_encoder_end(tl_encoder *s, tl_encoding *encoding) {
    if (!s || !encoding) return error_set(TL_ERROR_USE, "encoder_end: no encoder or encoding");
    if (tl_error() != TL_OK) return false;
    return part_encode(s, s->n, true, encoding);
}
