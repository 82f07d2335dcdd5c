/* documents.h: the documents of files: texts, lines of JSON (JSONL), and either compressed.
 *
 * A text file is one document, or several with a separator between them. A line of JSONL is a document: an object, in
 * which one field has its text. Lines are checked as JSON (base/scan.h): at most DOCUMENTS_MOST_LINE bytes, 64 levels
 * deep, UTF-8, no half surrogates; of equal keys the last counts, and NaN is a number, as in Python's json. Empty lines
 * are ignored.
 *
 * Nothing in the files is trusted. A text comes in pieces, so its length is not limited; a line is held whole.
 */
#ifndef DATA_DOCUMENTS_H
#define DATA_DOCUMENTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOCUMENTS_MOST_LINE ((size_t)256 << 20)

enum documents_format { DOCUMENTS_AUTO, DOCUMENTS_TEXT, DOCUMENTS_JSONL }; /* auto: by the ending of the name */
struct documents_options {
    enum documents_format format;
    const char *field;       /* of JSONL; NULL: "text" */
    const char *separator;   /* between the documents of a text; NULL: none; DOCUMENTS_BLANK: empty lines */
    bool skips_bad;          /* lines that are no good are counted, not errors */
    const atomic_bool *stop; /* true ends a wait for standard input, with an error; NULL: never */
};
extern const char DOCUMENTS_BLANK[];

/* ---- Which files ---- */

struct input {
    char *path;
    uint64_t bytes; /* 0 for standard input */
    int64_t changed_ns;
};
struct inputs {
    struct input *at;
    size_t n, capacity;
    uint64_t bytes;     /* of all */
    bool has_stream;    /* standard input is one of them */
    uint64_t n_ignored; /* files in folders whose names have no known ending */
};
/* Adds a file, "-", or a folder: its files with known endings (.txt, .text, .md, .jsonl, .ndjson, .json, each also
 * with .gz, .zst and .zstd), also of folders in it, in the order of their paths; hidden ones are left out. A link is
 * followed if it is the path itself, and refused in a folder. False: recorded. */
bool inputs_add(struct inputs *all, const char *path);
void inputs_free(struct inputs *all);

/* ---- Their documents ---- */

struct documents;
/* The inputs and options stay the caller's. NULL: recorded. */
struct documents *documents_new(const struct inputs *inputs, const struct documents_options *options);
void documents_free(struct documents *d); /* NULL allowed */

/* A text that grows. */
struct documents_text {
    char *at;
    size_t n, capacity;
};
bool documents_text_add(struct documents_text *text, const void *bytes, size_t n); /* false: recorded */

enum documents_part {
    DOCUMENTS_NONE, /* there are no more documents */
    DOCUMENTS_SOME, /* text was appended; the document goes on */
    DOCUMENTS_LAST, /* and this is the end of the document */
};
/* Appends the next piece of the current document, about `most` bytes; a line of JSONL whole. False: recorded, with file
 * and line. */
bool documents_next(struct documents *d, struct documents_text *to, size_t most, enum documents_part *part);

/* For other objects than documents: the next line of JSONL that is not empty, with a 0 behind it, and its number in its
 * file. The caller may change it, and has it until the next call. *line NULL: there are no more. False: recorded. */
bool documents_next_line(struct documents *d, char **line, size_t *bytes, uint64_t *number);
bool documents_is_jsonl(const char *path); /* by the ending of the name, of which .gz and .zst are no part */

/* Where the reader is. */
struct documents_position {
    size_t input;
    uint64_t documents; /* of this input that are complete */
    uint64_t bad;       /* lines that were skipped in inputs before this one */
};
struct documents_position documents_where(const struct documents *d);
/* Goes on at the beginning of the input of a position. */
void documents_seek(struct documents *d, struct documents_position at);
uint64_t documents_used(const struct documents *d); /* bytes of the files so far, for progress */
uint64_t documents_bad(const struct documents *d);  /* lines that were skipped */

/* The text of a field of one line of JSON, which is changed; line[bytes] is 0. NULL: *problem says why. */
char *documents_line(char *line, size_t bytes, const char *field, size_t *n, const char **problem, size_t *at);

#endif
