#include "base/json.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"

/* Estimated from the punctuation: objects and arrays with their tables, members, elements, strings, and the bytes of
 * strings. tests/test_text.c compares it with what jansson allocates. */
size_t json_tree_bytes(const char *text, size_t bytes) {
    size_t objects = 0, arrays = 0, elements = 0, members = 0, strings = 0;
    for (size_t i = 0; i < bytes; i++) {
        objects += text[i] == '{';
        arrays += text[i] == '[';
        elements += text[i] == ',';
        members += text[i] == ':';
        strings += text[i] == '"';
        if (text[i] == '"')
            for (i++; i < bytes && text[i] != '"'; i++) i += text[i] == '\\';
    }
    size_t values = strings > members ? strings - members : 0; /* strings that are no keys */
    return 2 * bytes + 240 * objects + 144 * arrays + 64 * elements + 112 * members + 80 * values;
}

static json_t *parse(const char *text, size_t bytes, size_t most, json_error_t *problem) {
    *problem = (json_error_t){.line = -1, .column = -1};
    if (json_tree_bytes(text, bytes) > most) {
        snprintf(problem->text, sizeof problem->text, "too many values: they would take more than %zu MiB of memory",
                 most >> 20);
        return NULL;
    }
    locale_t before = number_locale_begin();
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, problem);
    number_locale_end(before);
    return root;
}

json_t *json_parse(const char *text, json_error_t *problem) {
    json_error_t unseen;
    return parse(text, strlen(text), JSON_TREE * JSON_MOST_LEDGER, problem ? problem : &unseen);
}

json_t *json_read_at(struct file_place at, size_t limit) {
    size_t bytes;
    char *text = file_get_at(at, limit, &bytes), path[FILE_TEXT];
    if (!text) return NULL;
    json_error_t problem;
    json_t *root = parse(text, bytes, JSON_TREE * limit, &problem);
    if (!root && !*problem.text) error_memory(bytes, "a file's JSON");
    else if (!root && problem.line < 0) error_set(TL_ERROR_USE, "%s: %s", file_text(at, path), problem.text);
    else if (!root)
        error_set(TL_ERROR_USE, "%s:%d:%d: %s", file_text(at, path), problem.line, problem.column, problem.text);
    memory_free(text);
    return root;
}

/* jansson writes 0.7 as 0.69999999999999996: with all 17 digits, which not every number needs. Replaces long numbers by
 * the shortest that read back as the same; they stay reals. */
static void reals_shorten(char *text) {
    char *to = text;
    for (char *at = text; *at;) {
        if (*at == '"') {
            do {
                if (*at == '\\') *to++ = *at++;
                *to++ = *at++;
            } while (*at != '"');
            *to++ = *at++;
            continue;
        }
        size_t length = strspn(at, "0123456789+-.eE"), n = 0;
        char shorter[NUMBER_TEXT];
        if (length > 16 && length < NUMBER_TEXT && memchr(at, '.', length)) {
            n = (size_t)number_shortest(shorter, number_parse(at, NULL));
            if (n >= length || !strpbrk(shorter, ".e")) n = 0;
        }
        if (!length) length = 1;
        memmove(to, n ? shorter : at, n ? n : length);
        to += n ? n : length;
        at += length;
    }
    *to = 0;
}

/* Twice: once for the size, then into memory that is large enough. */
char *json_print(const json_t *value, size_t flags) {
    locale_t before = number_locale_begin();
    size_t bytes = json_dumpb(value, NULL, 0, flags);
    char *text = bytes ? memory_new(bytes + 1) : NULL;
    bool ok = text && json_dumpb(value, text, bytes, flags) == bytes;
    number_locale_end(before);
    if (ok) text[bytes] = 0, reals_shorten(text);
    else memory_free(text), text = NULL;
    if (value && !ok) error_memory(bytes, "JSON");
    return text;
}
