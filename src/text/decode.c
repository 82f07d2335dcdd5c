/* decode.c: from tokens to text, at once and token by token. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/refs.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

/* ---- Lists of texts ---- */

static bool bytes_room(struct pieces *p, size_t n) {
    if (p->n_bytes + n + 1 <= p->capacity) return true;
    if (p->n_bytes + n >= UINT32_MAX) return error_set(TL_ERROR_USE, "a decoded text of more than 4 GiB");
    const size_t capacity = 2 * (p->n_bytes + n) + 64;
    uint8_t *grown = memory_resize(p->bytes, capacity);
    if (!grown) return error_memory(capacity, "a decoded text");
    p->bytes = grown;
    p->capacity = capacity;
    return true;
}

static bool bytes_put(struct pieces *p, const void *bytes, size_t n) {
    if (!bytes_room(p, n)) return false;
    if (n) memcpy(p->bytes + p->n_bytes, bytes, n);
    p->n_bytes += n;
    return true;
}

/* Ends the piece of the bytes since the last one. */
static bool piece_end(struct pieces *p) {
    if (p->n == p->end_capacity && !memory_grow((void **)&p->ends, &p->end_capacity, p->n, sizeof *p->ends))
        return error_memory(p->n * sizeof *p->ends, "decoded tokens");
    p->ends[p->n++] = (uint32_t)p->n_bytes;
    return true;
}

bool pieces_add(struct pieces *p, const void *bytes, size_t n) { return bytes_put(p, bytes, n) && piece_end(p); }

void pieces_free(struct pieces *p) {
    memory_free(p->bytes);
    memory_free(p->ends);
}

/* ---- Steps over one piece ---- */

/* The byte that a piece like <0x0A> is; -1: it is none. */
static int fallback_byte(const uint8_t *piece, size_t n) {
    if (n != 6 || memcmp(piece, "<0x", 3) || piece[5] != '>') return -1;
    int byte = 0;
    for (int i = 3; i < 5; i++) {
        const int c = piece[i] | 0x20, digit = c >= '0' && c <= '9'   ? c - '0'
                                               : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                                      : -1;
        if (digit < 0 || (piece[i] == 0x10)) return -1;
        byte = byte << 4 | digit;
    }
    return byte;
}

static bool replace_put(const struct step *s, struct pieces *to, const uint8_t *piece, size_t n) {
    size_t done = 0, begin, end, last = SIZE_MAX;
    if (s->regex) {
        void *data = NULL;
        bool ok = true;
        while (ok && regex_next(s->regex, &data, piece, n, last, &begin, &end)) {
            ok = bytes_put(to, piece + done, begin - done) && bytes_put(to, s->with, s->with_bytes);
            done = last = end;
        }
        regex_data_free(data);
        if (!ok || tl_error() != TL_OK) return false;
    } else {
        for (const uint8_t *f;
             s->pattern_bytes && (f = memmem(piece + done, n - done, s->pattern, s->pattern_bytes));) {
            begin = (size_t)(f - piece);
            if (!bytes_put(to, piece + done, begin - done) || !bytes_put(to, s->with, s->with_bytes)) return false;
            done = begin + s->pattern_bytes;
        }
    }
    return bytes_put(to, piece + done, n - done);
}

static bool metaspace_decode(const struct step *s, struct pieces *to, const uint8_t *piece, size_t n, bool is_first) {
    const char *space = is_first && s->scheme != PREPEND_NEVER ? "" : " ";
    const struct step back = {
        .pattern = s->with, .pattern_bytes = s->with_bytes, .with = (char *)space, .with_bytes = strlen(space)};
    return replace_put(&back, to, piece, n);
}

static bool strip_put(const struct step *s, struct pieces *to, const uint8_t *piece, size_t n) {
    size_t begin = 0;
    for (int64_t i = 0; i < s->start && n - begin >= s->with_bytes && !memcmp(piece + begin, s->with, s->with_bytes);
         i++)
        begin += s->with_bytes;
    for (int64_t i = 0;
         i < s->stop && n - begin >= s->with_bytes && !memcmp(piece + n - s->with_bytes, s->with, s->with_bytes); i++)
        n -= s->with_bytes;
    return bytes_put(to, piece + begin, n - begin);
}

/* ---- Steps over all pieces ---- */

static bool is_valid(const uint8_t *text, size_t n) {
    int length;
    for (size_t i = 0; i < n; i += (size_t)length)
        if (unicode_get(text + i, text + n, &length) == UNICODE_REPLACEMENT && length == 1) return false;
    return true;
}

/* A run of byte tokens, bytes[begin..]: one piece if it is UTF-8, or as many U+FFFD as it has bytes. */
static bool fallback_flush(struct pieces *to, size_t begin) {
    const size_t n = to->n_bytes - begin;
    if (n == 0) return true;
    if (is_valid(to->bytes + begin, n)) return piece_end(to);
    to->n_bytes = begin;
    for (size_t i = 0; i < n; i++)
        if (!pieces_add(to, "\xef\xbf\xbd", 3)) return false;
    return true;
}

static bool fallback_decode(const struct pieces *from, struct pieces *to) {
    size_t begin = 0, run = 0;
    for (size_t i = 0; i < from->n; begin = from->ends[i++]) {
        const uint8_t *piece = from->bytes + begin;
        const int byte = fallback_byte(piece, from->ends[i] - begin);
        if (byte >= 0) {
            const uint8_t value = (uint8_t)byte;
            if (!bytes_put(to, &value, 1)) return false;
            continue;
        }
        if (!fallback_flush(to, run) || !pieces_add(to, piece, from->ends[i] - begin)) return false;
        run = to->n_bytes;
    }
    return fallback_flush(to, run);
}

static bool step_decode(const struct step *s, const struct pieces *from, struct pieces *to) {
    if (s->kind == STEP_BYTE_FALLBACK) return fallback_decode(from, to);
    size_t begin = 0;
    for (size_t i = 0; i < from->n; begin = from->ends[i++]) {
        const uint8_t *piece = from->bytes + begin;
        const size_t n = from->ends[i] - begin;
        const bool ok = s->kind == STEP_REPLACE     ? replace_put(s, to, piece, n)
                        : s->kind == STEP_METASPACE ? metaspace_decode(s, to, piece, n, i == 0)
                        : s->kind == STEP_STRIP     ? strip_put(s, to, piece, n)
                                                    : bytes_put(to, piece, n);
        const bool is_fused = s->kind == STEP_FUSE || s->kind == STEP_BYTE_LEVEL;
        if (!ok || (!is_fused && !piece_end(to))) return false;
    }
    return (s->kind != STEP_FUSE && s->kind != STEP_BYTE_LEVEL) || piece_end(to);
}

bool steps_decode(const struct steps *s, struct pieces *p) {
    for (size_t i = 0; i < s->n; i++) {
        struct pieces to = {0};
        if (!step_decode(&s->at[i], p, &to)) {
            pieces_free(&to);
            return false;
        }
        pieces_free(p);
        *p = to;
    }
    return true;
}

static bool ids_check(const tl_tokenizer *t, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!vocabulary_has(&t->vocabulary, ids[i]))
            return error_set(TL_ERROR_USE, "no token has the id %d, the %lldth of these (the vocabulary has %d ids)",
                             (int)ids[i], (long long)i + 1, (int)t->vocabulary.n);
    return true;
}

char *tl_tokenizer_decode(tl_tokenizer *t, const int32_t *ids, int64_t n, bool skips_special, size_t *bytes) {
    if (!t || !bytes || n < 0 || (n && !ids)) {
        error_set(TL_ERROR_USE, "tokenizer_decode: no tokenizer, no ids, or no place for the length");
        return NULL;
    }
    if (tl_error() != TL_OK || !ids_check(t, ids, n)) return NULL;
    struct pieces p = {0};
    bool ok = bytes_room(&p, 16);
    const bool is_joined = t->is_joined_by_spaces;
    for (int64_t i = 0; i < n && ok; i++) {
        if (skips_special && tl_tokenizer_is_special(t, ids[i])) continue;
        ok = (!is_joined || p.n_bytes == 0 || bytes_put(&p, " ", 1)) &&
             bytes_put(&p, vocabulary_text(&t->vocabulary, ids[i]), t->vocabulary.tokens[ids[i]].text_length) &&
             (t->decoders.n == 0 || piece_end(&p));
    }
    ok = ok && steps_decode(&t->decoders, &p) && bytes_room(&p, 1);
    memory_free(p.ends);
    if (!ok) return memory_free(p.bytes), NULL;
    p.bytes[p.n_bytes] = 0;
    *bytes = p.n_bytes;
    return (char *)p.bytes;
}

/* ---- Token by token ---- */

struct tl_decoder {
    tl_tokenizer *t;
    bool skips_special, is_started;
    int64_t n_strip;    /* characters that may still be removed from the beginning of the whole text */
    struct pieces held; /* bytes that are not given out yet */
    struct pieces piece[2];
    struct pieces out;
};

static int64_t strips_at_start(const struct steps *s, const struct step **strip) {
    bool is_fused = false;
    for (size_t i = 0; i < s->n; i++) {
        is_fused |= s->at[i].kind == STEP_FUSE;
        if (s->at[i].kind == STEP_STRIP && is_fused) return *strip = &s->at[i], s->at[i].start;
    }
    return 0;
}

static void decoder_restart(tl_decoder *d) {
    const struct step *strip;
    d->is_started = false;
    d->held.n_bytes = 0;
    d->n_strip = strips_at_start(&d->t->decoders, &strip);
}

tl_decoder *tl_decoder_new(tl_tokenizer *t, bool skips_special) {
    if (!t) return error_set(TL_ERROR_USE, "decoder_new: no tokenizer"), NULL;
    tl_decoder *d = memory_new(sizeof *d);
    if (!d) return error_memory(sizeof *d, "a decoder"), NULL;
    refs_keep(&t->refs);
    *d = (tl_decoder){.t = t, .skips_special = skips_special};
    decoder_restart(d);
    return d;
}

void tl_decoder_free(tl_decoder *d) {
    if (!d) return;
    pieces_free(&d->held);
    pieces_free(&d->piece[0]);
    pieces_free(&d->piece[1]);
    pieces_free(&d->out);
    tl_tokenizer_free(d->t);
    memory_free(d);
}

/* The steps before the texts are fused, for one token, into d->piece[0]. */
static bool token_decode(tl_decoder *d, int32_t id) {
    const tl_tokenizer *t = d->t;
    struct pieces *p = &d->piece[0], *next = &d->piece[1];
    p->n_bytes = 0;
    if (t->is_joined_by_spaces && d->is_started && !bytes_put(p, " ", 1)) return false;
    if (!bytes_put(p, vocabulary_text(&t->vocabulary, id), t->vocabulary.tokens[id].text_length)) return false;
    for (size_t i = 0; i < t->decoders.n && t->decoders.at[i].kind != STEP_FUSE; i++) {
        const struct step *s = &t->decoders.at[i];
        const int byte = s->kind == STEP_BYTE_FALLBACK ? fallback_byte(p->bytes, p->n_bytes) : -1;
        next->n_bytes = 0;
        const uint8_t value = (uint8_t)byte;
        const bool ok = byte >= 0                   ? bytes_put(next, &value, 1)
                        : s->kind == STEP_REPLACE   ? replace_put(s, next, p->bytes, p->n_bytes)
                        : s->kind == STEP_METASPACE ? metaspace_decode(s, next, p->bytes, p->n_bytes, !d->is_started)
                        : s->kind == STEP_STRIP     ? strip_put(s, next, p->bytes, p->n_bytes)
                                                    : bytes_put(next, p->bytes, p->n_bytes);
        if (!ok) return false;
        const struct pieces swapped = *p;
        *p = *next;
        *next = swapped;
    }
    d->is_started = true;
    return true;
}

/* How many bytes at the end may be the beginning of a character. */
static size_t incomplete(const uint8_t *text, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const uint8_t c = text[n - back];
        if ((c & 0xc0) == 0x80) continue;
        const size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        return c < 0xf5 && need > back ? back : 0;
    }
    return 0;
}

/* Gives out n held bytes. Byte tokens that are not UTF-8 become U+FFFD, if the tokenizer's decoder does that. */
static const char *held_give(tl_decoder *d, size_t n, size_t *bytes) {
    struct pieces *h = &d->held, *o = &d->out;
    o->n_bytes = 0;
    const struct step *strip = NULL;
    size_t begin = 0;
    strips_at_start(&d->t->decoders, &strip);
    while (d->n_strip > 0 && n - begin >= strip->with_bytes &&
           !memcmp(h->bytes + begin, strip->with, strip->with_bytes)) {
        begin += strip->with_bytes;
        d->n_strip--;
    }
    if (begin < n) d->n_strip = 0;
    int length;
    for (size_t at = begin; at < n; at += (size_t)length) {
        const bool is_bad = unicode_get(h->bytes + at, h->bytes + n, &length) == UNICODE_REPLACEMENT && length == 1;
        const bool ok = is_bad && d->t->has_fallback ? bytes_put(o, "\xef\xbf\xbd", 3)
                                                     : bytes_put(o, h->bytes + at, (size_t)length);
        if (!ok) return NULL;
    }
    if (!bytes_room(o, 1)) return NULL;
    if (n) memmove(h->bytes, h->bytes + n, h->n_bytes - n);
    h->n_bytes -= n;
    o->bytes[o->n_bytes] = 0;
    if (bytes) *bytes = o->n_bytes;
    return (const char *)o->bytes;
}

const char *tl_decoder_add(tl_decoder *d, const int32_t *ids, int64_t n, size_t *bytes) {
    if (!d || n < 0 || (n && !ids)) return error_set(TL_ERROR_USE, "decoder_add: no decoder, or no ids"), NULL;
    if (tl_error() != TL_OK || !ids_check(d->t, ids, n)) return NULL;
    for (int64_t i = 0; i < n; i++) {
        if (d->skips_special && tl_tokenizer_is_special(d->t, ids[i])) continue;
        if (!token_decode(d, ids[i]) || !bytes_put(&d->held, d->piece[0].bytes, d->piece[0].n_bytes)) return NULL;
    }
    return held_give(d, d->held.n_bytes - incomplete(d->held.bytes, d->held.n_bytes), bytes);
}

const char *tl_decoder_end(tl_decoder *d, size_t *bytes) {
    if (!d) return error_set(TL_ERROR_USE, "decoder_end: no decoder"), NULL;
    if (tl_error() != TL_OK) return NULL;
    const char *text = held_give(d, d->held.n_bytes, bytes);
    if (text) decoder_restart(d);
    return text;
}
