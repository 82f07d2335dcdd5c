#include "train/lines.h"

#include <stdarg.h>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"

bool lines_open(struct lines *l, const char *path, size_t most) {
    *l = (struct lines){.path = path, .most = most};
    if (inputs_add(&l->inputs, path))
        l->documents = documents_new(&l->inputs, &(struct documents_options){.format = DOCUMENTS_JSONL});
    return l->documents || (lines_close(l), false);
}

void lines_close(struct lines *l) {
    documents_free(l->documents);
    inputs_free(&l->inputs);
    *l = (struct lines){0};
}

bool lines_next(struct lines *l) {
    if (!documents_next_line(l->documents, &l->line, &l->bytes, &l->number)) return false;
    if (!l->line) return true;
    if (l->bytes > l->most) return lines_fail(l, "a line of %zu bytes (need at most %zu)", l->bytes, l->most);
    l->scan = scan_begin(l->line, l->bytes);
    l->scan.may_be_nan = true;
    return true;
}

double lines_used(const struct lines *l) { return (double)documents_used(l->documents); }
double lines_total(const struct lines *l) { return (double)l->inputs.bytes; }

bool lines_fail(const struct lines *l, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    number_vprint(text, sizeof text, format, list);
    va_end(list);
    text_trim(text, sizeof text);
    return error_set(TL_ERROR_USE, "%s:%llu: %s", l->path, (unsigned long long)l->number, text);
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
    return error_set(status, "%s:%llu: %s", l->path, (unsigned long long)l->number, text);
}
