/* json.h: JSON through jansson, in bounded memory and in every locale. Headers of files that hold more than JSON are read
 * by scan.h instead.
 *
 * Text goes in and out of jansson only here: it formats and reads numbers in the locale of the calling thread
 * (base/number.h), its trees take up to eighty times the bytes of the text ("[{},{},..."), and its json_dumps loses keys
 * when memory runs out.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/file.h"

/* A file with the ledgers of a run, or with one: some eighty times those of a model with 48 layers. */
#define JSON_MOST_LEDGER ((size_t)64 << 20)
/* A tree of values may take so many times the bytes that a file of its kind may have. */
enum { JSON_TREE = 8 };

/* At least what the tree of a text takes in memory. */
size_t json_tree_bytes(const char *text, size_t bytes);

/* The value of a text, which may be as large as a ledger; a key that is there twice is refused. NULL: *problem, if it is
 * given, says why; its text is empty when memory ran out. Nothing is recorded. */
json_t *json_parse(const char *text, json_error_t *problem);

/* The value in a file of at most `limit` bytes, which takes at most JSON_TREE times as many. NULL: recorded, with line
 * and column. */
json_t *json_read_at(struct file_place at, size_t limit);
static inline json_t *json_read(const char *path, size_t limit) { return json_read_at(file_path(path), limit); }

/* As json_dumps; free it with memory_free. NULL: there is no value, or no memory, which is recorded. */
char *json_print(const json_t *value, size_t flags);

#endif
