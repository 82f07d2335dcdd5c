/* added.h: tokens that are found in the text before anything else happens to it, as one piece. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The properties of Hugging Face's added tokens. */
enum {
    ADDED_SPECIAL = 1,    /* control tokens: refused in a text unless they are allowed */
    ADDED_NORMALIZED = 2, /* found in the normalized text */
    ADDED_LSTRIP = 4,     /* with the white space before it */
    ADDED_RSTRIP = 8,     /* and behind it */
    ADDED_SINGLE_WORD = 16
};
struct added_token {
    uint32_t at, length; /* in `bytes`; of a normalized one: its normalized text */
    int32_t id;
    unsigned flags;
};
/* Tokens in the order of their bytes, the normalized ones behind the others. */
struct added {
    struct added_token *tokens;
    size_t n, n_raw, capacity; /* n_raw: those that are not normalized */
    uint8_t *bytes;
    size_t n_bytes, bytes_capacity;
    bool is_first[2][256]; /* by the first byte, of raw and normalized ones */
    int only_first[2];     /* that byte if there is one only; -1: several; -2: no tokens */
    size_t longest;
};

bool added_add(struct added *a, const void *text, size_t bytes, int32_t id, unsigned flags); /* false: recorded */
/* Sorts; then nothing is added. */
void added_finish(struct added *a);
void added_free(struct added *a);
/* The id of an added token by its text; -1: none. */
int32_t added_find(const struct added *a, const void *text, size_t bytes);
static inline const uint8_t *added_bytes(const struct added *a, size_t i) { return a->bytes + a->tokens[i].at; }

/* What a call does with a token. */
enum added_mode { ADDED_MATCHES, ADDED_IS_TEXT, ADDED_IS_REFUSED };

/* The next match in text[from..bytes): the leftmost, and there the longest. False: none. */
struct added_match {
    size_t begin, end; /* with the white space that belongs to it */
    size_t found_end;  /* where the search goes on */
    size_t token;      /* its index */
};
bool added_next(const struct added *a, bool is_normalized, const uint8_t *modes, const uint8_t *text, size_t bytes,
                size_t from, size_t taken, struct added_match *match);
/* Whether a token, with the white space that belongs to it, covers or touches a place. */
bool added_is_near(const struct added *a, const uint8_t *modes, const uint8_t *text, size_t bytes, size_t at);

#endif
