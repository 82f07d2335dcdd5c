/* growing.h: a text that grows as it is written. Without memory it stays as it is and is_broken; the caller looks once,
 * at the end. */
#ifndef BASE_GROWING_H
#define BASE_GROWING_H

#include <stdbool.h>
#include <stddef.h>

#include "tally.h"

struct growing {
    char *at; /* ends with a 0; memory_free it. NULL: nothing was written */
    size_t n, room;
    bool is_broken;
};

void growing_put(struct growing *g, const char *data, size_t n);
void growing_text(struct growing *g, const char *text);
void growing_print(struct growing *g, const char *format, ...) TL_PRINTF(2, 3);
void growing_html(struct growing *g, const char *text); /* < > & " as entities */
void growing_json(struct growing *g, const char *text); /* in quotes; what is not UTF-8 is escaped as text_show does */

#endif
