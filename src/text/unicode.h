/* unicode.h: classes of characters and normalization, by tables that are pinned to the reference programs' versions of
 * Unicode (tools/make_unicode), so that tokens do not depend on a library of the system. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the patterns of tokenizers ask of a character. */
enum {
    UNICODE_UPPER = 1,    /* Lu, Lt */
    UNICODE_LOWER = 2,    /* Ll */
    UNICODE_CASELESS = 4, /* Lm, Lo */
    UNICODE_MARK = 8,
    UNICODE_NUMBER = 16,
    UNICODE_SPACE = 32,   /* White_Space */
    UNICODE_NEWLINE = 64, /* \r and \n */
    UNICODE_LETTER = UNICODE_UPPER | UNICODE_LOWER | UNICODE_CASELESS
};

/* The tables behind the functions below; call it before them. Cheap after the first time. */
void unicode_ready(void);

extern uint16_t unicode_block[0x110000 >> 8];
extern uint8_t unicode_flags[][256];
static inline unsigned unicode_class(uint32_t c) { return unicode_flags[unicode_block[c >> 8]][c & 255]; }
/* Punctuation and symbols (P, S); numbers as Rust's standard library has them; \w of regular expressions. */
bool unicode_is_punctuation(uint32_t c);
bool unicode_is_numeric(uint32_t c);
bool unicode_is_word(uint32_t c);

/* The character at `at` of text that ends at `end` (at < end), and its length. A byte that begins no well-formed
 * character is U+FFFD of length 1: punctuation of its own to every pattern. */
enum { UNICODE_REPLACEMENT = 0xfffd };
static inline uint32_t unicode_get(const uint8_t *at, const uint8_t *end, int *length) {
    const uint32_t a = at[0];
    const size_t left = (size_t)(end - at);
    *length = 1;
    if (a < 0x80) return a;
    if (a < 0xc2 || left < 2 || (at[1] & 0xc0) != 0x80) return UNICODE_REPLACEMENT;
    if (a < 0xe0) return *length = 2, (a & 0x1f) << 6 | (at[1] & 0x3f);
    if (left < 3 || (at[2] & 0xc0) != 0x80) return UNICODE_REPLACEMENT;
    if (a < 0xf0) {
        const uint32_t c = (a & 0xf) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3f);
        if (c < 0x800 || (c >= 0xd800 && c < 0xe000)) return UNICODE_REPLACEMENT;
        return *length = 3, c;
    }
    if (a > 0xf4 || left < 4 || (at[3] & 0xc0) != 0x80) return UNICODE_REPLACEMENT;
    const uint32_t c = (a & 7) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3f);
    if (c < 0x10000 || c > 0x10ffff) return UNICODE_REPLACEMENT;
    return *length = 4, c;
}
/* Writes a character as UTF-8; returns its length. */
enum { UNICODE_BYTES = 4 };
int unicode_put(uint32_t c, uint8_t to[UNICODE_BYTES]);

/* The ranges of characters of a class, in order, for patterns: a general category ("L", "Lu"), "s", "d", "w", or "r",
 * which is \w in Oniguruma. Calls
 * `range` for each. False if there is no such class. */
bool unicode_ranges(const char *name, size_t length, void (*range)(uint32_t first, uint32_t last, void *context),
                    void *context);

/* ---- Normalization ---- */

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };
/* Whether a character stays as it is in a form, and joins nothing before it. A text of such characters is
 * normalized. */
bool unicode_is_stable(enum unicode_form form, uint32_t c);
/* One character of a normalized text, and the bytes begin .. end-1 of the text that it is from. An invalid byte is
 * 0x80000000 | byte: it stays as it is and joins nothing. */
#define UNICODE_INVALID 0x80000000u
struct unicode_piece {
    uint32_t c, begin, end;
};
/* Appends the normalized form of `text` to a growing array. False: no memory; nothing is recorded. */
struct unicode_pieces {
    struct unicode_piece *at;
    size_t n, capacity;
};
bool unicode_normalize(enum unicode_form form, const uint8_t *text, size_t bytes, struct unicode_pieces *to);

#endif
