/* scan.h: JSON from untrusted files, read in one pass without allocating.
 *
 * For headers of files that may be hostile. A tree of values takes up to seventy times the bytes of the text
 * ("{},{},..."), and jansson's parser is not safe when memory runs out within; here strings are decoded in place, in
 * the caller's buffer, and the caller keeps what it needs. After the first problem every call returns false.
 *
 *     struct scan s = scan_begin(buffer, length);          // buffer[length] is 0
 *     for (bool more = scan_open(&s, '{'); more; more = scan_next(&s, '}')) {
 *         char *key = scan_key(&s);
 *         ...one value...
 *     }
 *     scan_end(&s)
 */
#ifndef BASE_SCAN_H
#define BASE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scan {
    char *begin, *at, *end;
    const char *problem; /* NULL: none so far */
    bool may_be_nan;     /* scan_skip takes NaN, Infinity and -Infinity, which Python's json writes */
};

struct scan scan_begin(char *buffer, size_t length);

/* The bracket that opens ('{' or '['); true when something is inside. */
bool scan_open(struct scan *s, char bracket);
/* After a value: true when a comma announces another, false when `close` ended it (or there is a problem). */
bool scan_next(struct scan *s, char close);

/* A string, decoded in place and ended by a 0; valid as long as the buffer. NULL: a problem. U+0000 is one. */
char *scan_string(struct scan *s);
char *scan_key(struct scan *s); /* and its colon */
/* The same with U+0000 allowed and the length in bytes. */
char *scan_text(struct scan *s, size_t *bytes);
char *scan_key_text(struct scan *s, size_t *bytes);

/* A whole number from 0 to 2^63 - 1, without sign, fraction and exponent. */
bool scan_size(struct scan *s, int64_t *value);

bool scan_is_next(struct scan *s, char c);        /* looks, takes nothing */
bool scan_word(struct scan *s, const char *word); /* "null" and its like, if it is next */
/* Checks and skips any value; at most 64 levels deep. U+0000 is allowed: nobody keeps the strings. */
bool scan_skip(struct scan *s);
/* Nothing but white space is left. */
bool scan_end(struct scan *s);

/* Records a problem (unless there is one). Always false. */
bool scan_fail(struct scan *s, const char *problem);

#endif
