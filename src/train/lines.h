/* lines.h: files with a JSON object on each line, also compressed. They are not trusted: errors name the file and the
 * line. */
#ifndef TRAIN_LINES_H
#define TRAIN_LINES_H

#include "base/scan.h"
#include "data/documents.h"
#include "tally.h"

struct lines {
    const char *path;
    size_t most; /* bytes of a line */
    struct inputs inputs;
    struct documents *documents;
    uint64_t number; /* of the line that was read last, from 1 */
    char *line;      /* it, which the scanner changes; NULL: there are no more */
    size_t bytes;
    struct scan scan;
};

/* A line of more than `most` bytes is an error. False: recorded, here and below; nothing is open. */
bool lines_open(struct lines *l, const char *path, size_t most);
void lines_close(struct lines *l);
/* Reads the next line that is not blank, and begins to scan it. */
bool lines_next(struct lines *l);
/* Ends a line whose object was scanned: nothing may follow, and what the scanner found wrong is an error. */
bool lines_end(struct lines *l);
/* Bytes of the file so far, and in all. */
double lines_used(const struct lines *l);
double lines_total(const struct lines *l);
/* Records an error of the line. Always false. */
bool lines_fail(const struct lines *l, const char *format, ...) TL_PRINTF(2, 3);
/* Puts the file and the line before the error that is recorded. Always false. */
bool lines_blame(const struct lines *l);

#endif
