/* text.h: text from outside. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8 without control characters: what a name in a file of ours may be. */
bool text_is_name(const char *text);

/* Well-formed UTF-8. */
bool text_is_utf8(const char *text);

/* Length of the character at `s` (which a 0 ends); 0 when it is not well-formed UTF-8. */
int text_character(const char *s);

/* For messages and tables: the text with control characters as \n or \u001b, cut with "..." where it does not fit. */
const char *text_show(char *buffer, size_t size, const char *text);

/* Copies at most size-1 bytes, and never half a character. */
void text_copy(char *to, size_t size, const char *from);

#endif
