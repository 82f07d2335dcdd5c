/* scanner.c: seven patterns, which are one algorithm with different rules.
 *
 * All of them try, in this order: a contraction ('ll), letters with at most one character before them, numbers, a run
 * of everything else with at most one space before it, white space. They differ in the rules below. A regular
 * expression takes the first alternative that matches, with the longest repetitions and backtracking; the comments
 * say where backtracking matters. */
#include "text/scanner.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "text/unicode.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char scanner_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char scanner_r50k_pattern[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s";
const char scanner_cl100k_pattern[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|"
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s";
const char scanner_llama3_pattern[] =
    CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
const char scanner_qwen2_pattern[] = CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
const char scanner_o200k_pattern[] =
    BEFORE UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE UPPER "+" LOWER "*" CONTRACTIONS
                 "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
const char scanner_tekken_pattern[] =
    BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;

struct rules {
    bool is_gpt2;      /* letters and numbers take a space before them, and newlines are like other white space */
    bool has_case;     /* words end where capitals begin, and marks belong to letters */
    bool has_prefix;   /* a contraction is a word of its own ... */
    bool has_suffix;   /* ... or belongs to the word before it */
    bool is_end_whole; /* white space at the end of the text is one word, with its newlines */
    int n_digits;      /* numbers in a word */
    char slash;        /* '/' when slashes follow a run like newlines do */
};

static inline unsigned class_at(const uint8_t *at, const uint8_t *end, int *length) {
    if (*at < 0x80) return *length = 1, unicode_flags[0][*at];
    return unicode_class(unicode_get(at, end, length));
}

/* The end of the characters with one of `flags`. */
static inline const uint8_t *run_end(const uint8_t *at, const uint8_t *end, unsigned flags) {
    int length;
    while (at < end && class_at(at, end, &length) & flags) at += length;
    return at;
}

enum { NOT_OTHER = UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER };
static inline const uint8_t *other_end(const uint8_t *at, const uint8_t *end) {
    int length;
    while (at < end && !(class_at(at, end, &length) & NOT_OTHER)) at += length;
    return at;
}

/* The length of a contraction at `at`, or 0. Case-insensitive s is also U+017F, the long s (c5 bf). */
static inline int contraction(const uint8_t *at, const uint8_t *end, bool is_caseless) {
    const ptrdiff_t left = end - at;
    if (left < 2 || *at != '\'') return 0;
    const int fold = is_caseless ? 0x20 : 0;
    const int a = at[1] | fold, b = left > 2 ? at[2] | fold : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' || a == 'v') && b == 'e') return 3;
    if (a == 'l' && b == 'l') return 3;
    return is_caseless && left > 2 && at[1] == 0xc5 && at[2] == 0xbf ? 3 : 0;
}

/* White space from `at` on: up to the last newline, or all of it at the end of the text, or all but the last, which
 * belongs to what follows. */
static inline const uint8_t *space_end(const uint8_t *at, const uint8_t *end, struct rules r) {
    const uint8_t *newline = NULL, *last = at, *to = at;
    int length;
    while (to < end) {
        const unsigned class = class_at(to, end, &length);
        if (!(class & UNICODE_SPACE)) break;
        last = to;
        to += length;
        if (class & UNICODE_NEWLINE) newline = to;
    }
    if (to == end && (r.is_end_whole || r.is_gpt2)) return end;
    if (newline && !r.is_gpt2) return newline;
    return to == end || last == at ? to : last;
}

/* UPPER*LOWER+ or else UPPER+LOWER*, or NULL. If nothing of LOWER follows the longest UPPER*, that gives back
 * characters until the next one is of both: the word ends behind the last of those. Without any, the second form
 * takes the capitals. */
static inline const uint8_t *cased_end(const uint8_t *at, const uint8_t *end) {
    enum { UPPERS = UNICODE_UPPER | UNICODE_CASELESS | UNICODE_MARK };
    enum { LOWERS = UNICODE_LOWER | UNICODE_CASELESS | UNICODE_MARK };
    const uint8_t *both = NULL, *to = at;
    unsigned class = 0;
    int length;
    while (to < end && (class = class_at(to, end, &length)) & UPPERS) {
        to += length;
        if (class & LOWERS) both = to;
    }
    if (to < end && class & LOWERS) return run_end(to, end, LOWERS);
    return both ? both : to > at ? to : NULL;
}

/* Letters with case, and a character that may stand before them. `class` and `length` are of the first character. The
 * first form without that character comes before the second one with it, which only shows if it is a mark: the word
 * is then the mark alone. */
static inline const uint8_t *cased_word(const uint8_t *at, const uint8_t *end, unsigned class, int length) {
    if (class & (UNICODE_LETTER | UNICODE_NUMBER | UNICODE_NEWLINE)) return cased_end(at, end);
    const uint8_t *to = at + length < end ? cased_end(at + length, end) : NULL;
    if (!(class & UNICODE_MARK)) return to;
    if (!to) return at + length;
    int last;
    for (const uint8_t *c = at + length; c < to; c += last)
        if (!(class_at(c, end, &last) & UNICODE_UPPER)) return to;
    return at + length;
}

static inline const uint8_t *scan(const uint8_t *at, const uint8_t *end, struct rules r) {
    int length, next_length = 1;
    const unsigned class = class_at(at, end, &length);
    if (r.has_prefix && *at == '\'') {
        const int n = contraction(at, end, !r.is_gpt2);
        if (n) return at + n;
    }
    const uint8_t *second = at + length;
    if (r.has_case) {
        const uint8_t *to = cased_word(at, end, class, length);
        if (to) return to + (r.has_suffix ? contraction(to, end, true) : 0);
    } else if (class & UNICODE_LETTER) return run_end(second, end, UNICODE_LETTER);
    if (class & UNICODE_NUMBER) {
        if (r.is_gpt2) return run_end(second, end, UNICODE_NUMBER);
        for (int i = 1; i < r.n_digits && second < end; i++) {
            if (!(class_at(second, end, &next_length) & UNICODE_NUMBER)) break;
            second += next_length;
        }
        return second;
    }
    const unsigned next = second < end ? class_at(second, end, &next_length) : UNICODE_SPACE;
    if (r.is_gpt2 && *at == ' ') {
        if (next & UNICODE_LETTER) return run_end(second + next_length, end, UNICODE_LETTER);
        if (next & UNICODE_NUMBER) return run_end(second + next_length, end, UNICODE_NUMBER);
    }
    if (!r.is_gpt2 && !r.has_case && !(class & UNICODE_NEWLINE) && next & UNICODE_LETTER)
        return run_end(second + next_length, end, UNICODE_LETTER);
    if (!(class & UNICODE_SPACE) || (*at == ' ' && !(next & NOT_OTHER))) {
        const uint8_t *to = other_end(second, end);
        while (!r.is_gpt2 && to < end && (*to == '\r' || *to == '\n' || (r.slash && *to == r.slash))) to++;
        return to;
    }
    return space_end(at, end, r);
}

/* One body per set of rules, which the compiler specializes. */
static const uint8_t *scan_gpt2(const uint8_t *at, const uint8_t *end) {
    return scan(at, end, (struct rules){.is_gpt2 = true, .has_prefix = true});
}
static const uint8_t *scan_cl100k(const uint8_t *at, const uint8_t *end) {
    return scan(at, end, (struct rules){.has_prefix = true, .is_end_whole = true, .n_digits = 3});
}
static const uint8_t *scan_llama3(const uint8_t *at, const uint8_t *end) {
    return scan(at, end, (struct rules){.has_prefix = true, .n_digits = 3});
}
static const uint8_t *scan_qwen2(const uint8_t *at, const uint8_t *end) {
    return scan(at, end, (struct rules){.has_prefix = true, .n_digits = 1});
}
static const uint8_t *scan_o200k(const uint8_t *at, const uint8_t *end) {
    return scan(at, end, (struct rules){.has_case = true, .has_suffix = true, .n_digits = 3, .slash = '/'});
}
static const uint8_t *scan_tekken(const uint8_t *at, const uint8_t *end) {
    return scan(at, end, (struct rules){.has_case = true, .n_digits = 1, .slash = '/'});
}

/* cl100k's pattern for Oniguruma, where {1,3}+ means something else. */
static const char cl100k_oniguruma[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|"
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s";

/* Of several patterns with one scanner, Oniguruma's is the first. */
static const struct {
    const char *pattern;
    scanner_fn scan;
} known[] = {{scanner_gpt2_pattern, scan_gpt2},     {scanner_r50k_pattern, scan_gpt2},
             {cl100k_oniguruma, scan_cl100k},       {scanner_cl100k_pattern, scan_cl100k},
             {scanner_llama3_pattern, scan_llama3}, {scanner_qwen2_pattern, scan_qwen2},
             {scanner_o200k_pattern, scan_o200k},   {scanner_tekken_pattern, scan_tekken}};

scanner_fn scanner_find(const char *pattern) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(pattern, known[i].pattern)) return known[i].scan;
    return NULL;
}

scanner_fn scanner_find_ruby(const char *pattern) {
    const bool is_other = !strcmp(pattern, scanner_r50k_pattern) || !strcmp(pattern, scanner_cl100k_pattern);
    return is_other ? NULL : scanner_find(pattern);
}

const char *scanner_pattern(scanner_fn wanted) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].scan == wanted) return known[i].pattern;
    return NULL;
}

/* ---- Where to cut ---- */

static unsigned class_before(const uint8_t *text, size_t at) {
    int length;
    size_t begin = at - 1;
    while (begin > 0 && (text[begin] & 0xc0) == 0x80) begin--;
    const uint32_t c = unicode_get(text + begin, text + at, &length);
    return begin + (size_t)length == at ? unicode_class(c) : 0;
}

enum scanner_cut scanner_cut(const uint8_t *text, size_t n, size_t at) {
    int length;
    if (text[at] == ' ') {
        const bool is_cut = at + 1 < n && !(class_before(text, at) & UNICODE_SPACE) &&
                            !(class_at(text + at + 1, text + n, &length) & UNICODE_SPACE);
        return is_cut ? CUT_SPACE : CUT_NONE;
    }
    if (text[at] != '\n' && text[at] < 0xc2) return CUT_NONE;
    if (!(class_before(text, at) & UNICODE_LETTER)) return CUT_NONE;
    if (text[at] == '\n') return CUT_NEWLINE;
    return unicode_is_punctuation(unicode_get(text + at, text + n, &length)) && length > 1 ? CUT_PUNCTUATION : CUT_NONE;
}
