/* diff.c: do a price and a receipt tally?
 *
 * Compared exactly: every row's calls, FLOPs and bytes, and all peaks, by purpose and by path. Not compared: names, the
 * device (one of the two is meta) and times. The target must be the same: that is whose price it is.
 */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tally.h"

struct report {
    char *text;
    size_t used, capacity;
    int n_differences;
};

TL_PRINTF(2, 3) static void report_add(struct report *r, const char *format, ...) {
    char line[600];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    if (length >= (int)sizeof line) length = (int)sizeof line - 1;
    if (r->used + (size_t)length + 1 > r->capacity) {
        size_t larger = (r->capacity + (size_t)length) * 2 + 256;
        char *moved = realloc(r->text, larger);
        if (!moved) return; /* the count is still right */
        r->text = moved;
        r->capacity = larger;
    }
    memcpy(r->text + r->used, line, (size_t)length + 1);
    r->used += (size_t)length;
}

/* A count: a decimal string, or an integer. "absent" when it is not there. */
static const char *count_of(const json_t *object, const char *key, char buffer[40]) {
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_integer(value)) {
        snprintf(buffer, 40, "%lld", (long long)json_integer_value(value));
        return buffer;
    }
    return "absent";
}

static void compare(struct report *r, const char *what, const json_t *price, const json_t *receipt, const char *key) {
    char a[40], b[40];
    const char *x = count_of(price, key, a), *y = count_of(receipt, key, b);
    if (!strcmp(x, y)) return;
    if (r->n_differences++ == 0) report_add(r, "%-60s %-20s %22s %22s\n", "what", "count", "price", "receipt");
    report_add(r, "%-60s %-20s %22s %22s\n", what, key, x, y);
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "?";
}

/* The name of a row or of a cell, malloc'ed: what it is compared under. NULL without memory. */
static char *name_of(const json_t *item) {
    const char *path = text_of(item, "path");
    char *name = NULL;
    int length = json_object_get(item, "op")
                     ? asprintf(&name, "%s: %s (%s, %s/%s)", *path ? path : "-", text_of(item, "op"),
                                text_of(item, "phase"), text_of(item, "dtype"), text_of(item, "accumulate"))
                     : asprintf(&name, "%s: live at the peak, %s", *path ? path : "-", text_of(item, "purpose"));
    return length < 0 ? NULL : name;
}

/* Indexes an array by name: {name: item}. NULL without memory. */
static json_t *by_name(const json_t *array) {
    json_t *index = json_object();
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item) {
        char *name = name_of(item);
        bool ok = name && json_object_set(index, name, item) == 0;
        free(name);
        if (!ok) {
            json_decref(index);
            return NULL;
        }
    }
    return index;
}

static bool compare_lists(struct report *r, const json_t *price, const json_t *receipt, const char *const *keys) {
    json_t *a = by_name(price), *b = by_name(receipt), *item;
    const char *name;
    bool ok = a && b;
    json_object_foreach(a, name, item) for (int k = 0; keys[k]; k++)
        compare(r, name, item, json_object_get(b, name), keys[k]);
    json_object_foreach(b, name, item) if (!json_object_get(a, name)) for (int k = 0; keys[k]; k++)
        compare(r, name, NULL, item, keys[k]);
    json_decref(a);
    json_decref(b);
    return ok || error_memory(json_array_size(price), "a comparison of ledgers");
}

static json_t *ledger_load(const char *text, const char *which) {
    json_error_t why;
    json_t *root = text ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (!root) {
        error_set(TL_ERROR_USE, "the %s is not JSON: %s (line %d)", which, text ? why.text : "NULL",
                  text ? why.line : 0);
        return NULL;
    }
    if (!strcmp(text_of(root, "schema"), "tally.ledger/1") && json_is_array(json_object_get(root, "rows"))) return root;
    error_set(TL_ERROR_USE, "the %s is not a tally.ledger/1 (its schema is \"%s\")", which, text_of(root, "schema"));
    json_decref(root);
    return NULL;
}

int tl_ledger_diff(const char *price_json, const char *receipt_json, char **report) {
    static const char *const row_keys[] = {"calls", "flops", "bytes_read", "bytes_written", "transfer_bytes", NULL};
    static const char *const cell_keys[] = {"bytes", NULL};
    static const char *const memory_keys[] = {"peak_bytes", "peak_allocated_bytes", "peak_reserved_bytes", NULL};
    if (report) *report = NULL;
    json_t *price = ledger_load(price_json, "price");
    json_t *receipt = price ? ledger_load(receipt_json, "receipt") : NULL;
    if (!receipt) {
        json_decref(price);
        return -1;
    }
    struct report r = {0};
    const json_t *memory_a = json_object_get(price, "memory"), *memory_b = json_object_get(receipt, "memory");
    if (strcmp(text_of(price, "target"), text_of(receipt, "target"))) {
        r.n_differences++;
        report_add(&r, "the price is for %s, the receipt from %s\n", text_of(price, "target"),
                   text_of(receipt, "target"));
    }
    bool ok = compare_lists(&r, json_object_get(price, "rows"), json_object_get(receipt, "rows"), row_keys);
    for (int k = 0; memory_keys[k]; k++) compare(&r, "memory", memory_a, memory_b, memory_keys[k]);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        compare(&r, "memory at the peak, by purpose", json_object_get(memory_a, "peak_by_purpose"),
                json_object_get(memory_b, "peak_by_purpose"), tl_purpose_name((tl_purpose)p));
    ok = compare_lists(&r, json_object_get(memory_a, "peak_live"), json_object_get(memory_b, "peak_live"), cell_keys) &&
         ok;
    json_decref(price);
    json_decref(receipt);
    if (report) *report = r.text;
    else free(r.text);
    return ok ? r.n_differences : -1;
}
