#include "base/scan.h"

#include <string.h>

#include "base/text.h"

enum { SCAN_DEPTH = 64 };

struct scan scan_begin(char *buffer, size_t length) {
    return (struct scan){.begin = buffer, .at = buffer, .end = buffer + length};
}

bool scan_fail(struct scan *s, const char *problem) {
    if (!s->problem) s->problem = problem;
    return false;
}

static void space_skip(struct scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) s->at++;
}

bool scan_is_next(struct scan *s, char c) {
    if (s->problem) return false;
    space_skip(s);
    return s->at < s->end && *s->at == c;
}

static bool take(struct scan *s, char c) {
    if (!scan_is_next(s, c)) return false;
    s->at++;
    return true;
}

bool scan_open(struct scan *s, char bracket) {
    char close = bracket == '{' ? '}' : ']';
    if (!take(s, bracket)) return scan_fail(s, bracket == '{' ? "no { (need an object)" : "no [ (need an array)");
    return !take(s, close) && !s->problem;
}

bool scan_next(struct scan *s, char close) {
    if (take(s, ',')) return true;
    if (take(s, close)) return false;
    return scan_fail(s, close == '}' ? "neither , nor } after a value" : "neither , nor ] after a value");
}

/* ---- Strings ---- */

static bool hex_take(struct scan *s, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->end ? *s->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return scan_fail(s, "\\u without four hexadecimal digits");
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

/* The digits after \u. A character beyond U+FFFF is written as a surrogate pair. */
static bool code_take(struct scan *s, uint32_t *code, bool may_be_zero) {
    uint32_t low;
    if (!hex_take(s, code)) return false;
    if (*code == 0 && !may_be_zero) return scan_fail(s, "a string with the character U+0000");
    if (*code < 0xd800 || *code > 0xdfff) return true;
    bool is_pair = *code < 0xdc00 && s->end - s->at >= 2 && s->at[0] == '\\' && s->at[1] == 'u';
    if (is_pair) s->at += 2;
    if (!is_pair || !hex_take(s, &low) || low < 0xdc00 || low > 0xdfff) return scan_fail(s, "half a surrogate pair");
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static char *utf8_put(char *to, uint32_t code) {
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(first[more] | code >> (6 * more));
    while (more-- > 0) *to++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
    return to;
}

/* Decodes the escape after a backslash to `to`; NULL on a problem. The result is never longer than its escape. */
static char *escape_take(struct scan *s, char *to, bool may_be_zero) {
    static const char escaped[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char c = s->at < s->end ? *s->at++ : 0;
    const char *found = c ? strchr(escaped, c) : NULL;
    uint32_t code;
    if (found) *to++ = means[found - escaped];
    else if (c != 'u') return scan_fail(s, "an unknown escape in a string"), NULL;
    else if (!code_take(s, &code, may_be_zero)) return NULL;
    else to = utf8_put(to, code);
    return to;
}

/* Where the bytes end that stand for themselves: ASCII but controls, the quote and the backslash. Eight at a time: a
 * subtraction borrows from the next byte only where a byte was found, so the lowest mark is right. */
static char *plain_end(char *at, const char *end) {
    const uint64_t ones = 0x0101010101010101u, high = 0x80 * ones;
    for (; end - at >= 8; at += 8) {
        uint64_t x;
        memcpy(&x, at, sizeof x);
        uint64_t marks = (x | (x - 0x20 * ones) | ((x ^ '"' * ones) - ones) | ((x ^ '\\' * ones) - ones)) & high;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (marks) return at + __builtin_ctzll(marks) / 8;
#else
        if (marks) break;
#endif
    }
    while (at < end && *at >= 0x20 && *at < 0x7f && *at != '"' && *at != '\\') at++;
    return at;
}

/* The same with all of UTF-8. NULL: a problem. */
static char *run_end(struct scan *s) {
    char *at = s->at;
    uint32_t code;
    while ((at = plain_end(at, s->end)) < s->end && *at != '"' && *at != '\\') {
        int length = text_character(at, &code);
        if (length && (unsigned char)*at >= 32) {
            at += length;
            continue;
        }
        s->at = at;
        return scan_fail(s, length ? "a control character in a string" : "not UTF-8"), NULL;
    }
    return at;
}

static char *string_take(struct scan *s, bool may_be_zero, size_t *bytes) {
    if (!take(s, '"')) return scan_fail(s, "no \" (need a string)"), NULL;
    char *begin = s->at, *to = s->at;
    for (;;) {
        char *end = run_end(s);
        if (!end) return NULL;
        if (to != s->at) memmove(to, s->at, (size_t)(end - s->at));
        to += end - s->at;
        s->at = end;
        if (s->at >= s->end) return scan_fail(s, "a string without an end"), NULL;
        if (*s->at++ == '"') break;
        if (!(to = escape_take(s, to, may_be_zero))) return NULL;
    }
    *to = 0; /* at most on the closing quote */
    *bytes = (size_t)(to - begin);
    return begin;
}

char *scan_string(struct scan *s) {
    size_t bytes;
    return string_take(s, false, &bytes);
}
char *scan_text(struct scan *s, size_t *bytes) { return string_take(s, true, bytes); }

static char *colon_take(struct scan *s, char *key) {
    if (key && !take(s, ':')) return scan_fail(s, "no : after a key"), NULL;
    return key;
}

char *scan_key(struct scan *s) { return colon_take(s, scan_string(s)); }
char *scan_key_text(struct scan *s, size_t *bytes) { return colon_take(s, scan_text(s, bytes)); }

/* ---- Numbers and the rest ---- */

static bool is_digit(const struct scan *s) { return s->at < s->end && *s->at >= '0' && *s->at <= '9'; }

bool scan_size(struct scan *s, int64_t *value) {
    if (s->problem) return false;
    space_skip(s);
    if (!is_digit(s)) return scan_fail(s, "not a whole number of 0 or more");
    bool is_padded = *s->at == '0' && s->end - s->at > 1 && s->at[1] >= '0' && s->at[1] <= '9';
    if (is_padded) return scan_fail(s, "a number that begins with 0");
    for (*value = 0; is_digit(s); s->at++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *s->at - '0', value))
            return scan_fail(s, "a number beyond 2^63 - 1");
    if (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E'))
        return scan_fail(s, "a number with a fraction or exponent (need a whole one)");
    return true;
}

bool scan_word(struct scan *s, const char *word) {
    size_t length = strlen(word);
    if (!scan_is_next(s, *word) || (size_t)(s->end - s->at) < length || memcmp(s->at, word, length)) return false;
    s->at += length;
    return true;
}

static bool digits_skip(struct scan *s) {
    if (!is_digit(s)) return scan_fail(s, "a number without digits");
    while (is_digit(s)) s->at++;
    return true;
}

static bool number_skip(struct scan *s) {
    if (s->at < s->end && *s->at == '-') s->at++;
    if (!is_digit(s)) return scan_fail(s, "no value");
    if (*s->at == '0') s->at++;
    else digits_skip(s);
    if (s->at < s->end && *s->at == '.' && (s->at++, !digits_skip(s))) return false;
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-')) s->at++;
        return digits_skip(s);
    }
    return true;
}

static bool nan_skip(struct scan *s) {
    return s->may_be_nan && (scan_word(s, "NaN") || scan_word(s, "Infinity") || scan_word(s, "-Infinity"));
}

static bool value_skip(struct scan *s, int depth) {
    size_t bytes;
    if (depth == 0) return scan_fail(s, "values nested more than 64 deep");
    if (scan_is_next(s, '{'))
        for (bool more = scan_open(s, '{'); more; more = scan_next(s, '}'))
            scan_key_text(s, &bytes), value_skip(s, depth - 1);
    else if (scan_is_next(s, '['))
        for (bool more = scan_open(s, '['); more; more = scan_next(s, ']')) value_skip(s, depth - 1);
    else if (scan_is_next(s, '"')) scan_text(s, &bytes);
    else if (!scan_word(s, "null") && !scan_word(s, "true") && !scan_word(s, "false") && !nan_skip(s) && !s->problem)
        number_skip(s);
    return !s->problem;
}

bool scan_skip(struct scan *s) { return value_skip(s, SCAN_DEPTH); }

bool scan_end(struct scan *s) {
    if (s->problem) return false;
    space_skip(s);
    return s->at == s->end || scan_fail(s, "something after the end");
}
