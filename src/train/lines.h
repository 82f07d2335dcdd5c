/* lines.h: files with a JSON object on each line. They are not trusted: errors name the file and the line. */
#ifndef TRAIN_LINES_H
#define TRAIN_LINES_H

#include "base/scan.h"
#include "tally.h"

struct lines {
    const char *path;
    size_t most;         /* bytes of a line */
    tl_token_file *file; /* its bytes */
    const char *data;
    size_t bytes, at; /* at: where the next line begins */
    int64_t number;   /* of the line that was read last, from 1 */
    char *line;       /* a copy of it, which the scanner changes */
    size_t capacity;
    struct scan scan;
};

/* A line of more than `most` bytes is an error. False: recorded, here and below; nothing is open. */
bool lines_open(struct lines *l, const char *path, size_t most);
void lines_close(struct lines *l);
/* Reads the next line that is not blank and begins to scan it; *is_end: there is none. */
bool lines_next(struct lines *l, bool *is_end);
/* Ends a line whose object was scanned: nothing may follow, and what the scanner found wrong is an error. */
bool lines_end(struct lines *l);
/* Records an error of the line. Always false. */
bool lines_fail(const struct lines *l, const char *format, ...) TL_PRINTF(2, 3);
/* Puts the file and the line before the error that is recorded. Always false. */
bool lines_blame(const struct lines *l);

#endif
