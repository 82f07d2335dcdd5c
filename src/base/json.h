/* json.h: JSON through jansson, in bounded memory and in every locale. Headers of files that contain more than JSON
 * are read by scan.h instead.
 *
 * All text passes to and from jansson here, because jansson formats and reads numbers in the thread's locale
 * (base/number.h), its trees take up to eighty times the bytes of the text ("[{},{},..."), and its json_dumps loses
 * keys when memory runs out.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/file.h"

/* A file with one or more ledgers: about eighty times the ledgers of a model with 48 layers. */
#define JSON_MOST_LEDGER ((size_t)64 << 20)
/* The limit of a tree's memory, as a multiple of the limit of its file. */
enum { JSON_TREE = 8 };

/* An upper bound on the memory of the tree of a text. */
size_t json_tree_bytes(const char *text, size_t bytes);

/* Parses a text, at most as large as a ledger; duplicate keys are errors. If NULL, *problem (if given) says why; its
 * text is empty if memory ran out. Nothing is recorded. */
json_t *json_parse(const char *text, json_error_t *problem);

/* Parses a file of at most `limit` bytes, whose tree takes at most JSON_TREE times as many. NULL on error, which is
 * recorded with line and column. */
json_t *json_read_at(struct file_place at, size_t limit);
static inline json_t *json_read(const char *path, size_t limit) { return json_read_at(file_path(path), limit); }

/* Like json_dumps; free it with memory_free. NULL if there is no value, or no memory, which is recorded. */
char *json_print(const json_t *value, size_t flags);

#endif
