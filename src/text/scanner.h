/* scanner.h: the well-known patterns that cut text into words, as functions over UTF-8.
 *
 * A pattern is known by its exact text. Its scanner finds the same words as a regular-expression engine with the
 * character classes of text/unicode.h, some thirty times as fast; tests/test_tokenizer.c compares them with PCRE2. */
#ifndef TEXT_SCANNER_H
#define TEXT_SCANNER_H

#include <stdint.h>

/* The end of the word that begins at `at` (at < end). Every character belongs to a word. */
typedef const uint8_t *(*scanner_fn)(const uint8_t *at, const uint8_t *end);

extern const char scanner_gpt2_pattern[], scanner_r50k_pattern[], scanner_cl100k_pattern[], scanner_llama3_pattern[],
    scanner_qwen2_pattern[], scanner_o200k_pattern[], scanner_tekken_pattern[];

/* The scanner of a pattern, or NULL. For Oniguruma, Hugging Face's engine, {1,3}+ and $ mean something else than for
 * tiktoken's: _ruby finds patterns without them. */
scanner_fn scanner_find(const char *pattern);
scanner_fn scanner_find_ruby(const char *pattern);

#endif
