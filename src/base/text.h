/* text.h: text from outside. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8 without control characters: what a name in a file of ours may be. */
bool text_is_name(const char *text);

/* Copies at most size-1 bytes, and never half a character. */
void text_copy(char *to, size_t size, const char *from);

#endif
