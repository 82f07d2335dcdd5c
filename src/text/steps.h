/* steps.h: normalizers, pre-tokenizers and decoders: Hugging Face's, as far as they are known here. */
#ifndef TEXT_STEPS_H
#define TEXT_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/regex.h"
#include "text/scanner.h"
#include "text/unicode.h"

enum text_step_kind {
    STEP_NORMALIZE,     /* to `form` */
    STEP_PREPEND,       /* `with` before the text, unless that is empty */
    STEP_REPLACE,       /* `pattern` (or `regex`) by `with` */
    STEP_STRIP,         /* normalizer: white space at the ends; decoder: `start` and `stop` times `with` */
    STEP_SPLIT,         /* at matches of a pattern */
    STEP_DIGITS,        /* at numbers */
    STEP_METASPACE,     /* spaces become `with`, which begins words; as a decoder, the way back */
    STEP_BYTE_LEVEL,    /* pre-tokenizer: a space before the text if it has none */
    STEP_BYTE_FALLBACK, /* decoder: <0x0A> is a byte */
    STEP_FUSE,          /* decoder: all tokens are one text */
};
enum split_behavior { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_CONTIGUOUS, SPLIT_PREVIOUS, SPLIT_NEXT };
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct step {
    enum text_step_kind kind;
    enum unicode_form form;
    enum split_behavior behavior;
    enum prepend_scheme scheme;
    bool is_inverted, is_single; /* split: what does not match is the match; digits: each by itself */
    bool is_split;               /* metaspace: also cuts */
    bool is_prefixed;            /* byte level: a space before the text */
    bool strips_left, strips_right;
    int64_t start, stop;
    scanner_fn scan; /* of a split: at most one of these three */
    struct regex *regex;
    char *pattern, *with; /* texts, NULL where there is none */
    size_t pattern_bytes, with_bytes;
};
struct steps {
    struct step *at;
    size_t n, capacity;
};
/* Appends a copy, whose texts and regex it then owns; on failure (no memory, recorded) they are freed. */
bool steps_add(struct steps *s, struct step step);
void steps_free(struct steps *s);

/* ---- Text between steps ---- */

struct span {
    uint32_t begin, end;
};
struct flow {
    const uint8_t *text;       /* the user's text, `buffer`, or a part of another flow's */
    const struct span *origin; /* per byte: the bytes of the user's text that it is from. NULL: byte i is base + i */
    size_t n, base;
    uint8_t *buffer;
    struct span *origins;
    size_t capacity, origin_capacity;
    bool has_origins; /* of a flow that is written: fill `origins` */
    struct span *words;
    size_t n_words, word_capacity;
};
void flow_free(struct flow *f);
/* The flow of a text that is already there. */
void flow_begin(struct flow *f, const uint8_t *text, const struct span *origin, size_t bytes, size_t base);
bool flow_word(struct flow *f, size_t begin, size_t end); /* appends a word; false: no memory, recorded */
static inline struct span flow_origin(const struct flow *f, size_t i) {
    return f->origin ? f->origin[i] : (struct span){(uint32_t)(f->base + i), (uint32_t)(f->base + i + 1)};
}

/* What steps work with, besides the text: a second flow, pieces and match data. */
struct encoder;
/* Normalizes e->flow. `has_origins`: they are kept. `is_first`: it is not the continuation of a text that was cut.
 * False: recorded. */
bool steps_normalize(const struct steps *s, struct encoder *e, bool has_origins, bool is_first);
/* Cuts e->flow.words further. `is_start`: byte 0 of the user's text is the beginning of it. False: recorded. */
bool steps_split(const struct steps *s, struct encoder *e, bool has_origins, bool is_start);

/* Decoding: a list of texts, of which step by step a new one is made. */
struct pieces {
    uint8_t *bytes;
    size_t n_bytes, capacity;
    uint32_t *ends;
    size_t n, end_capacity;
};
bool pieces_add(struct pieces *p, const void *bytes, size_t n); /* a piece; false: no memory, recorded */
void pieces_free(struct pieces *p);
bool steps_decode(const struct steps *s, struct pieces *p); /* false: recorded */

#endif
