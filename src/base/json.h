/* json.h: small JSON files from outside, whole. Headers that may be large or hostile to memory are read by scan.h instead. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/file.h"

/* The value in a file of at most `limit` bytes; a key that is there twice is refused. NULL: recorded, with line and column. */
json_t *json_read_at(struct file_place at, size_t limit);
static inline json_t *json_read(const char *path, size_t limit) { return json_read_at(file_path(path), limit); }

#endif
