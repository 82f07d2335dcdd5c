/* text.h: text from outside. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the character that begins at `text`, and its code point; 0 when it is not well-formed UTF-8 (overlong,
 * surrogate, beyond U+10FFFF, cut off by the end of the text). */
int text_character(const char *text, uint32_t *code_point);

/* ASCII letters and digits, in every locale; those of <ctype.h> depend on it. */
static inline bool text_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool text_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline char text_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
static inline char text_upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }

/* Characters that control a terminal: control characters (C0, DEL and C1, which some terminals obey like ESC), line
 * separators, and bidirectional overrides (U+202A to 202E, 2066 to 2069). */
bool text_is_control(uint32_t code_point);

/* Well-formed UTF-8 without control characters: a valid name in Tally's files. */
bool text_is_name(const char *text);

/* Well-formed UTF-8. */
bool text_is_utf8(const char *text);

/* For messages and tables: foreign text with control characters as \n or \u001b and invalid UTF-8 as \xff, cut with
 * "..." if it does not fit. Printable characters stay as they are. */
const char *text_show(char *buffer, size_t size, const char *text);
/* Writes the character at `text` (which may be 0) as text_show does; returns how many bytes it had. */
enum { TEXT_PIECE = 8 };
int text_piece(char piece[TEXT_PIECE], const char *text);

/* Removes an incomplete character at the end, left by printing into a buffer of `size`. */
void text_trim(char *text, size_t size);

/* Copies at most size-1 bytes, and never half a character. */
void text_copy(char *to, size_t size, const char *from);

/* "500", "10MB" (10^7), "2GiB", "1.5kB": a number of bytes of at least 1. False if it is not one. */
bool text_size(const char *text, uint64_t *bytes);

/* Numbers as people write them, into a buffer of 32, which is returned.
 *   bytes_text    "12.30 MiB"
 *   count_text    "4.560 G" (10^9)
 *   grouped_text  "8,030,261,248"
 *   amount_text   "143.9", "22,160", "25.8 million": four digits below a million, three above
 *   dollars_text  "$4.32", "$66,470", "$1.2 million"
 *   duration_text "1.2 s", "3.4 h", "12 days" */
const char *bytes_text(double bytes, char *buffer);
const char *count_text(double value, char *buffer);
const char *grouped_text(uint64_t n, char *buffer);
const char *amount_text(double value, char *buffer);
const char *dollars_text(double value, char *buffer);
const char *duration_text(double s, char *buffer);

/* The next of "one|two|three" between *at and end, which it then stands behind. False: there are no more. */
bool text_choice(const char **at, const char *end, const char **choice, size_t *length);
/* Whether a pattern of some length matches all of a text; `*` stands for any characters. */
bool text_matches(const char *pattern, size_t length, const char *text);
/* The next of "one,two,three", without blanks around it. False: there are no more. */
bool text_item(const char **at, const char **item, size_t *length);
/* Whether one of several patterns, with commas between, matches. */
bool text_matches_any(const char *patterns, const char *text);
/* A character of a text in a shell's single quotes: a quote ends them, and begins them again after one of its own. */
struct text_quoted {
    char at[5];
};
struct text_quoted text_quoted(char c);

/* The known word nearest to `word`, or NULL when none is near. */
const char *text_nearest(const char *word, const char *const *known, int n_known);
/* The hint after an unknown word: `, did you mean "near"?`, without quotes for a flag (--near); "" for
 * NULL. */
enum { TEXT_MEANT = 96 };
const char *text_meant(char buffer[TEXT_MEANT], const char *near);

#endif
