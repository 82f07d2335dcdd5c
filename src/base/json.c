#include "base/json.h"

#include "base/error.h"
#include "base/memory.h"

json_t *json_read_at(struct file_place at, size_t limit) {
    size_t bytes;
    char *text = file_get_at(at, limit, &bytes), path[FILE_TEXT];
    if (!text) return NULL;
    json_error_t problem;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    if (!root) error_set(TL_ERROR_USE, "%s:%d:%d: %s", file_text(at, path), problem.line, problem.column, problem.text);
    memory_free(text);
    return root;
}
