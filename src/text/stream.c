/* stream.c: a text that comes in parts. Text is held until there is a place to cut it (text/cut.c). */
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
    bool has_begun;
    uint8_t *held;
    size_t n, capacity, searched; /* searched: no cut is before this */
    int64_t base;                 /* of the held text in the whole */
};

tl_encoder *tl_encoder_new(tl_tokenizer *t, const tl_encode_options *options) {
    if (!t) return error_set(TL_ERROR_USE, "encoder_new: no tokenizer"), NULL;
    if (tl_error() != TL_OK) return NULL;
    tl_encoder *s = memory_new(sizeof *s);
    if (!s) return error_memory(sizeof *s, "an encoder"), NULL;
    *s = (tl_encoder){.t = t};
    refs_keep(&t->refs);
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
        const size_t tail = s->t->added.longest + CUT_TAIL;
        if (s->n < HELD_BYTES || s->n <= tail) continue;
        const size_t cut = encode_cut(&s->plan, s->held, s->n, s->searched);
        if (!cut) s->searched = s->n - tail;
        else if (!part_encode(s, cut, false, encoding)) return false;
    }
    return true;
}

bool tl_encoder_end(tl_encoder *s, tl_encoding *encoding) {
    if (!s || !encoding) return error_set(TL_ERROR_USE, "encoder_end: no encoder or encoding");
    if (tl_error() != TL_OK) return false;
    return part_encode(s, s->n, true, encoding);
}
