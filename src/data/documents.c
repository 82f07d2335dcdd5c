#include "data/documents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/scan.h"
#include "base/text.h"
#include "data/byte_stream.h"

const char DOCUMENTS_BLANK[] = "\n\n";
enum { BUFFER_BYTES = 256 << 10 };

/* A document's place in the lines of a file. */
struct documents {
    const struct inputs *inputs;
    struct documents_options options;
    size_t input; /* the one that is read, or the next */
    struct byte_stream *stream;
    bool is_jsonl, is_begun; /* is_begun: the current text has a byte; a text of one document also without */
    uint64_t n_documents;    /* complete ones of this input */
    uint64_t line;           /* of JSONL, from 1 */
    uint64_t bad_before, bad;
    uint64_t used_before; /* bytes of inputs before this one */
    bool is_ended;        /* the stream has no more bytes */
    char *buffer;         /* of lines, and of texts with a separator: at .. n-1 are not used yet */
    size_t at, n, capacity, searched;
};

/* ---- Names ---- */

static size_t ending_cut(const char *name, size_t n, const char *const *endings, int *found) {
    *found = -1;
    for (int i = 0; endings[i]; i++) {
        size_t length = strlen(endings[i]), k = 0;
        if (n <= length) continue;
        while (k < length && text_lower(name[n - length + k]) == endings[i][k]) k++;
        if (k < length) continue;
        *found = i;
        return n - length;
    }
    return n;
}

static const char *const packed[] = {".gz", ".zst", ".zstd", NULL};
static const char *const lines[] = {".jsonl", ".ndjson", ".json", NULL};
static const char *const texts[] = {".txt", ".text", ".md", NULL};
static const char *const foreign[] = {".parquet", NULL}; /* refused when it is read, with a hint */

bool documents_is_jsonl(const char *path) {
    int found;
    ending_cut(path, ending_cut(path, strlen(path), packed, &found), lines, &found);
    return found >= 0;
}

/* The state of another `tally tokenize` is no text. */
static const char *const own[] = {".partial.json", NULL};

static bool is_known(const char *name) {
    int a, b, c, any;
    ending_cut(name, strlen(name), own, &any);
    if (any >= 0) return false;
    size_t n = ending_cut(name, strlen(name), packed, &any);
    ending_cut(name, n, lines, &a);
    ending_cut(name, n, texts, &b);
    ending_cut(name, n, foreign, &c);
    return a >= 0 || b >= 0 || c >= 0;
}

/* ---- Inputs ---- */

static bool path_add(struct inputs *all, const char *path, bool is_stream) {
    struct input one = {0};
    if (!is_stream && !file_measure(file_path(path), &one.bytes, &one.changed_ns)) return false;
    if (!memory_grow((void **)&all->at, &all->capacity, all->n, sizeof *all->at))
        return error_memory((all->n + 1) * sizeof *all->at, "a list of files");
    size_t length = strlen(path) + 1;
    if (!(one.path = memory_new(length))) return error_memory(length, "a path");
    memcpy(one.path, path, length);
    all->at[all->n++] = one;
    all->bytes += one.bytes;
    all->has_stream |= is_stream;
    return true;
}

struct names {
    char **at;
    size_t n, capacity;
};

static bool name_add(const char *name, void *context) {
    struct names *all = context;
    size_t length = strlen(name) + 1;
    if (*name == '.') return true;
    if (!memory_grow((void **)&all->at, &all->capacity, all->n, sizeof *all->at))
        return error_memory((all->n + 1) * sizeof *all->at, "a list of files");
    char *copy = memory_new(length);
    if (!copy) return error_memory(length, "a path");
    all->at[all->n++] = memcpy(copy, name, length);
    return true;
}

static void names_free(struct names *all) {
    for (size_t i = 0; i < all->n; i++) memory_free(all->at[i]);
    memory_free(all->at);
}

static int name_compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool folder_add(struct inputs *all, const struct file_folder *folder, int depth);

static bool entry_add(struct inputs *all, const struct file_folder *folder, const char *name, int depth) {
    enum file_kind kind;
    if (!file_look(file_in(folder, name), &kind)) return false;
    if (kind == FILE_FOLDER) {
        struct file_folder *inner = file_folder_in(folder, name, false);
        bool ok = inner && folder_add(all, inner, depth - 1);
        file_folder_close(inner);
        return ok;
    }
    if (!is_known(name)) return all->n_ignored++, true;
    if (!file_expect(file_in(folder, name), FILE_REGULAR)) return false;
    char *path = file_join(folder->path, name);
    bool ok = path && path_add(all, path, false);
    memory_free(path);
    return ok;
}

/* Folders stay open on the way down, so their depth is limited. */
static bool folder_add(struct inputs *all, const struct file_folder *folder, int depth) {
    struct names names = {0};
    if (depth == 0) return error_set(TL_ERROR_USE, "%s: folders are nested too deeply (need at most 64)", folder->path);
    bool ok = file_list(folder, name_add, &names);
    if (ok && names.n) qsort(names.at, names.n, sizeof *names.at, name_compare);
    for (size_t i = 0; ok && i < names.n; i++) ok = entry_add(all, folder, names.at[i], depth);
    names_free(&names);
    return ok;
}

bool inputs_add(struct inputs *all, const char *path) {
    enum { DEPTH = 64 };
    enum file_kind kind;
    if (!strcmp(path, "-")) {
        if (all->has_stream) return error_set(TL_ERROR_USE, "standard input (-) is given twice");
        return path_add(all, path, true);
    }
    if (!file_look(file_path(path), &kind)) return false;
    if (kind == FILE_LINK) { /* of a folder or a file: opening follows it */
        struct file_folder *folder = file_folder_open(path);
        if (folder) kind = FILE_FOLDER;
        else tl_error_clear();
        file_folder_close(folder);
    }
    if (kind != FILE_FOLDER) return path_add(all, path, false);
    size_t before = all->n;
    struct file_folder *folder = file_folder_open(path);
    bool ok = folder && folder_add(all, folder, DEPTH);
    file_folder_close(folder);
    if (ok && all->n == before)
        ok = error_set(TL_ERROR_USE,
                       "%s: has no texts (need .txt, .text, .md, .jsonl, .ndjson or .json, also with .gz or .zst; name "
                       "files with other endings one by one)",
                       path);
    return ok;
}

void inputs_free(struct inputs *all) {
    for (size_t i = 0; i < all->n; i++) memory_free(all->at[i].path);
    memory_free(all->at);
    *all = (struct inputs){0};
}

/* ---- Opening ---- */

struct documents *documents_new(const struct inputs *inputs, const struct documents_options *options) {
    struct documents *d = memory_new(sizeof *d);
    if (!d) return error_memory(sizeof *d, "a reader of documents"), NULL;
    *d = (struct documents){.inputs = inputs, .options = *options};
    if (!d->options.field) d->options.field = "text";
    return d;
}

void documents_free(struct documents *d) {
    if (!d) return;
    byte_stream_close(d->stream);
    memory_free(d->buffer);
    memory_free(d);
}

static bool input_open(struct documents *d) {
    const char *path = d->inputs->at[d->input].path;
    d->stream = byte_stream_open(path, d->options.stop);
    d->is_jsonl =
        d->options.format == DOCUMENTS_JSONL || (d->options.format == DOCUMENTS_AUTO && documents_is_jsonl(path));
    d->is_begun = !d->is_jsonl && !d->options.separator;
    d->is_ended = false;
    d->n_documents = d->line = 0;
    d->at = d->n = d->searched = 0;
    return d->stream != NULL;
}

static void input_end(struct documents *d) {
    byte_stream_close(d->stream);
    d->stream = NULL;
    d->used_before += d->inputs->at[d->input].bytes;
    d->bad_before += d->bad;
    d->bad = d->n_documents = 0;
    d->input++;
}

/* ---- Buffers ---- */

bool documents_text_add(struct documents_text *text, const void *bytes, size_t n) {
    if (text->capacity - text->n < n) {
        size_t capacity = text->n + n + (text->n + n) / 2 + 4096;
        char *grown = memory_resize(text->at, capacity);
        if (!grown) return error_memory(capacity, "documents");
        text->at = grown;
        text->capacity = capacity;
    }
    if (n && bytes) memcpy(text->at + text->n, bytes, n);
    if (bytes) text->n += n;
    return true;
}

/* More bytes behind those that are not used yet, which move to the front. There is room for a 0 behind them. */
static bool buffer_fill(struct documents *d) {
    size_t held = d->n - d->at, got;
    if (d->at && held) memmove(d->buffer, d->buffer + d->at, held);
    d->searched -= d->searched < d->at ? d->searched : d->at;
    d->at = 0;
    d->n = held;
    if (d->capacity - held < BUFFER_BYTES / 2) {
        size_t capacity = d->capacity ? 2 * d->capacity : BUFFER_BYTES;
        char *grown = memory_resize(d->buffer, capacity);
        if (!grown) return error_memory(capacity, "a line");
        d->buffer = grown;
        d->capacity = capacity;
    }
    if (!byte_stream_read(d->stream, d->buffer + d->n, d->capacity - d->n - 1, &got)) return false;
    d->n += got;
    d->is_ended = got == 0;
    return true;
}

/* ---- Lines of JSON ---- */

static const char no_field[] = "no such field", no_text[] = "the field is not a string";

char *documents_line(char *line, size_t bytes, const char *field, size_t *n, const char **problem, size_t *at) {
    struct scan s = scan_begin(line, bytes);
    size_t length = strlen(field), key_bytes = 0;
    char *text = NULL;
    bool has_field = false;
    s.may_be_nan = true;
    for (bool more = scan_open(&s, '{'); more; more = scan_next(&s, '}')) {
        const char *key = scan_key_text(&s, &key_bytes);
        bool is_it = key && key_bytes == length && !memcmp(key, field, length);
        has_field |= is_it;
        if (is_it && scan_is_next(&s, '"')) text = scan_text(&s, n);
        else if (is_it) text = NULL, scan_skip(&s);
        else scan_skip(&s);
    }
    scan_end(&s);
    *at = (size_t)(s.at - s.begin);
    *problem = s.problem ? s.problem : !has_field ? no_field : !text ? no_text : NULL;
    return *problem ? NULL : text;
}

/* What is wrong with a line, after file and number. Returns whether the reader goes on. */
static bool line_bad(struct documents *d, const char *problem, size_t at) {
    const char *path = d->inputs->at[d->input].path;
    unsigned long long line = (unsigned long long)d->line;
    char field[80];
    if (d->options.skips_bad) return d->bad++, true;
    text_show(field, sizeof field, d->options.field);
    if (problem == no_field)
        return error_set(TL_ERROR_USE,
                         "%s: line %llu: has no field \"%s\" (--field NAME names another; --skip-bad skips such lines)",
                         path, line, field);
    if (problem == no_text)
        return error_set(TL_ERROR_USE, "%s: line %llu: the field \"%s\" is not a string (--skip-bad skips such lines)",
                         path, line, field);
    return error_set(TL_ERROR_USE, "%s: line %llu, column %zu: not JSON: %s (--skip-bad skips such lines)", path, line,
                     at + 1, problem);
}

/* A whole line, without its end, and a 0 behind it; NULL: no more, or an error. */
static char *line_take(struct documents *d, size_t *bytes) {
    for (;;) {
        char *from = d->buffer ? d->buffer + d->at : NULL;
        size_t from_n = d->searched > d->at ? d->searched - d->at : 0;
        char *end = from ? memchr(from + from_n, '\n', d->n - d->at - from_n) : NULL;
        d->searched = d->n;
        bool is_last = !end && d->is_ended;
        if (is_last && d->at == d->n) return NULL;
        if (is_last) end = d->buffer + d->n;
        *bytes = end ? (size_t)(end - from) : d->n - d->at;
        if (*bytes > DOCUMENTS_MOST_LINE) {
            error_set(TL_ERROR_USE, "%s: line %llu: has more than %zu bytes (--format text reads texts of any length)",
                      d->inputs->at[d->input].path, (unsigned long long)d->line + 1, DOCUMENTS_MOST_LINE);
            return NULL;
        }
        if (end) {
            *end = 0;
            d->at += *bytes + !is_last;
            d->searched = d->at;
            d->line++;
            return from;
        }
        if (!buffer_fill(d)) return NULL;
    }
}

static bool is_blank(const char *line, size_t bytes) {
    while (bytes && (*line == ' ' || *line == '\t' || *line == '\r')) line++, bytes--;
    return bytes == 0;
}

/* The next line that is not blank. */
static char *line_find(struct documents *d, size_t *bytes) {
    char *line;
    while ((line = line_take(d, bytes))) {
        if (d->line == 1 && *bytes >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) line += 3, *bytes -= 3; /* UTF-8's mark */
        if (!is_blank(line, *bytes)) return line;
    }
    return NULL;
}

static bool line_next(struct documents *d, struct documents_text *to, enum documents_part *part) {
    size_t bytes, n, at;
    const char *problem;
    for (char *line; (line = line_find(d, &bytes));) {
        char *text = documents_line(line, bytes, d->options.field, &n, &problem, &at);
        if (!text && !line_bad(d, problem, at)) return false;
        if (!text) continue;
        *part = DOCUMENTS_LAST;
        return documents_text_add(to, text, n);
    }
    *part = DOCUMENTS_NONE;
    return tl_error() == TL_OK;
}

/* ---- Texts ---- */

static bool text_next(struct documents *d, struct documents_text *to, size_t most, enum documents_part *part) {
    size_t n;
    if (!d->is_begun) return *part = DOCUMENTS_NONE, true;
    if (!documents_text_add(to, NULL, most) || !byte_stream_read(d->stream, to->at + to->n, most, &n)) return false;
    to->n += n;
    *part = n ? DOCUMENTS_SOME : DOCUMENTS_LAST;
    d->is_begun = n > 0;
    return true;
}

/* How many bytes of the buffer are before the separator, and its own bytes. Not found: how many are certain to be
 * before one, as far as can be seen. */
struct separation {
    size_t before, bytes;
    bool is_found;
};

/* An empty line: a line's end, then another. Either may have a carriage return before it. */
static struct separation blank_find(const char *text, size_t n, bool is_ended) {
    for (size_t from = 0; from < n;) {
        const char *end = memchr(text + from, '\n', n - from);
        if (!end) return (struct separation){is_ended || text[n - 1] != '\r' ? n : n - 1, 0, false};
        size_t at = (size_t)(end - text), begin = at > from && at && text[at - 1] == '\r' ? at - 1 : at;
        size_t next = at + 1 + (at + 1 < n && text[at + 1] == '\r');
        if (next >= n) return (struct separation){is_ended ? n : begin, 0, false};
        if (text[next] == '\n') return (struct separation){begin, next + 1 - begin, true};
        from = at + 1;
    }
    return (struct separation){n, 0, false};
}

static struct separation separator_find(const struct documents *d) {
    const char *text = d->buffer + d->at, *separator = d->options.separator;
    size_t n = d->n - d->at, length = strlen(separator);
    if (separator == DOCUMENTS_BLANK) return blank_find(text, n, d->is_ended);
    const char *found = n >= length ? memmem(text, n, separator, length) : NULL;
    if (found) return (struct separation){(size_t)(found - text), length, true};
    size_t held = d->is_ended ? 0 : length - 1;
    return (struct separation){n > held ? n - held : 0, 0, false};
}

/* Empty documents are left out: separators may be at both ends, and several in a row. */
static bool separated_next(struct documents *d, struct documents_text *to, size_t most, enum documents_part *part) {
    for (;;) {
        if (d->at == d->n && d->is_ended) {
            *part = d->is_begun ? DOCUMENTS_LAST : DOCUMENTS_NONE;
            d->is_begun = false;
            return true;
        }
        bool is_blank_line = d->options.separator == DOCUMENTS_BLANK;
        while (is_blank_line && !d->is_begun && d->at < d->n && (d->buffer[d->at] == '\n' || d->buffer[d->at] == '\r'))
            d->at++;
        struct separation s = d->n > d->at ? separator_find(d) : (struct separation){0};
        size_t n = s.before < most ? s.before : most;
        if (n && !documents_text_add(to, d->buffer + d->at, n)) return false;
        d->at += n;
        d->is_begun |= n > 0;
        bool is_end = s.is_found && n == s.before;
        if (is_end) d->at += s.bytes;
        if (is_end && d->is_begun) return d->is_begun = false, *part = DOCUMENTS_LAST, true;
        if (n) return *part = DOCUMENTS_SOME, true;
        if (!is_end && !d->is_ended && !buffer_fill(d)) return false;
    }
}

/* ---- All of it ---- */

bool documents_next(struct documents *d, struct documents_text *to, size_t most, enum documents_part *part) {
    for (; d->input < d->inputs->n; input_end(d)) {
        if (!d->stream && !input_open(d)) return false;
        bool ok = d->is_jsonl            ? line_next(d, to, part)
                  : d->options.separator ? separated_next(d, to, most, part)
                                         : text_next(d, to, most, part);
        if (!ok) return false;
        d->n_documents += *part == DOCUMENTS_LAST;
        if (*part != DOCUMENTS_NONE) return true;
    }
    *part = DOCUMENTS_NONE;
    return true;
}

bool documents_next_line(struct documents *d, char **line, size_t *bytes, uint64_t *number) {
    *line = NULL;
    for (; d->input < d->inputs->n; input_end(d)) {
        if (!d->stream && !input_open(d)) return false;
        if ((*line = line_find(d, bytes)) || tl_error() != TL_OK) break;
    }
    *number = d->line;
    return tl_error() == TL_OK;
}

struct documents_position documents_where(const struct documents *d) {
    return (struct documents_position){d->input, d->n_documents, d->bad_before};
}

void documents_seek(struct documents *d, struct documents_position at) {
    for (; d->input < at.input && d->input < d->inputs->n; d->input++) d->used_before += d->inputs->at[d->input].bytes;
    d->bad_before = at.bad;
}

uint64_t documents_used(const struct documents *d) {
    return d->used_before + (d->stream ? byte_stream_used(d->stream) : 0);
}
uint64_t documents_bad(const struct documents *d) { return d->bad_before + d->bad; }
