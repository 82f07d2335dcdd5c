#include "train/lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "data/token_file.h"

bool lines_open(struct lines *l, const char *path, size_t most) {
    tl_token_info info;
    *l = (struct lines){.path = path, .most = most, .file = tl_token_file_open(path, TL_TOKENS_BYTES)};
    if (!l->file || !tl_token_file_info(l->file, &info)) return lines_close(l), false;
    l->data = (const char *)token_file_data(l->file);
    l->bytes = (size_t)info.count;
    if (l->bytes >= 3 && !memcmp(l->data, "\xef\xbb\xbf", 3)) l->at = 3; /* a byte-order mark */
    return true;
}

void lines_close(struct lines *l) {
    tl_token_file_close(l->file);
    memory_free(l->line);
    *l = (struct lines){0};
}

static bool is_blank(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static bool line_copy(struct lines *l, const char *text, size_t bytes) {
    if (bytes > l->most) return lines_fail(l, "a line of %zu bytes (need at most %zu)", bytes, l->most);
    if (l->capacity < bytes + 1) {
        char *grown = memory_resize(l->line, 2 * bytes + 1);
        if (!grown) return error_memory(2 * bytes + 1, "a line of JSON");
        l->line = grown;
        l->capacity = 2 * bytes + 1;
    }
    memcpy(l->line, text, bytes);
    l->line[bytes] = 0;
    l->scan = scan_begin(l->line, bytes);
    return true;
}

bool lines_next(struct lines *l, bool *is_end) {
    while (l->at < l->bytes) {
        const char *text = l->data + l->at, *stop = memchr(text, '\n', l->bytes - l->at);
        const size_t bytes = stop ? (size_t)(stop - text) : l->bytes - l->at;
        l->at += bytes + 1;
        l->number++;
        *is_end = false;
        if (!is_blank(text, bytes)) return line_copy(l, text, bytes);
    }
    *is_end = true;
    return true;
}

bool lines_fail(const struct lines *l, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    number_vprint(text, sizeof text, format, list);
    va_end(list);
    text_trim(text, sizeof text);
    return error_set(TL_ERROR_USE, "%s:%lld: %s", l->path, (long long)l->number, text);
}

bool lines_end(struct lines *l) {
    if (!l->scan.problem) scan_end(&l->scan);
    return !l->scan.problem || lines_fail(l, "byte %td: %s", l->scan.at - l->scan.begin + 1, l->scan.problem);
}

bool lines_blame(const struct lines *l) {
    char text[400];
    const tl_status status = tl_error();
    text_copy(text, sizeof text, tl_error_message());
    tl_error_clear();
    return error_set(status, "%s:%lld: %s", l->path, (long long)l->number, text);
}
