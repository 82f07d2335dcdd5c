/* regex.h: patterns through PCRE2, with the character classes of text/unicode.h instead of its own. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regex;
/* `is_ruby`: ^ and $ match at every line, as in Oniguruma, which Hugging Face uses; otherwise at the text's ends. NULL
 * on error, which is recorded with `where` in front. */
struct regex *regex_new(const char *pattern, bool is_ruby, const char *where);
void regex_free(struct regex *r);

/* The first match in text[from..bytes), which is valid UTF-8. It may be empty, but not where the last match ended,
 * `last` (SIZE_MAX: there was none). False: none, or an error, which is recorded (a pattern that takes too many
 * steps). `data` is a place for the thread's match data, at first NULL. */
bool regex_next(const struct regex *r, void **data, const uint8_t *text, size_t bytes, size_t last, size_t *begin,
                size_t *end);
void regex_data_free(void *data); /* NULL allowed */

#endif
