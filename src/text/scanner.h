/* scanner.h: the well-known patterns that cut text into words, as functions over UTF-8.
 *
 * A pattern is known by its exact text. Its scanner finds the same words as a regular-expression engine with the
 * character classes of text/unicode.h, some thirty times as fast; tests/test_tokenizer.c compares them with PCRE2. */
#ifndef TEXT_SCANNER_H
#define TEXT_SCANNER_H

#include <stddef.h>
#include <stdint.h>

/* The end of the word that begins at `at` (at < end). Every character belongs to a word. */
typedef const uint8_t *(*scanner_fn)(const uint8_t *at, const uint8_t *end);

extern const char scanner_gpt2_pattern[], scanner_r50k_pattern[], scanner_cl100k_pattern[], scanner_llama3_pattern[],
    scanner_qwen2_pattern[], scanner_o200k_pattern[], scanner_tekken_pattern[];

/* The scanner of a pattern, or NULL. For Oniguruma, Hugging Face's engine, {1,3}+ and $ mean something else than for
 * tiktoken's: _ruby finds patterns without them. */
scanner_fn scanner_find(const char *pattern);
scanner_fn scanner_find_ruby(const char *pattern);
/* The pattern of a scanner as Oniguruma writes it; NULL: there is no such scanner. */
const char *scanner_pattern(scanner_fn scan);

/* Whether text[0..n) may be cut at `at` (0 < at < n): all scanners find the same words in the two parts as in the
 * whole. */
enum scanner_cut {
    CUT_NONE,
    CUT_SPACE,      /* after anything but white space, before a space that something else follows: "word| next" */
    CUT_NEWLINE,    /* after a letter, before a newline: "word|\n" */
    CUT_PUNCTUATION /* after a letter, before punctuation that is not ASCII: "字|。" */
};
enum scanner_cut scanner_cut(const uint8_t *text, size_t n, size_t at);

#endif
