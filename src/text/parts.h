/* parts.h: texts in parts that threads encode by themselves: texts that are long are cut where nothing sees across. */
#ifndef TEXT_PARTS_H
#define TEXT_PARTS_H

#include "text/tokenizer.h"

struct parts {
    const char **texts;
    size_t *bytes;
    bool *is_later; /* the part continues the one before it */
    size_t n, capacity;
};
/* Adds a text, which must stay where it is. is_later: its beginning was given before. False: recorded. */
bool parts_add(struct parts *p, const struct encode_plan *plan, const char *text, size_t bytes, bool is_later);
void parts_free(struct parts *p);

#endif
