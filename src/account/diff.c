/* diff.c: do a price and a receipt tally?
 *
 * Compared exactly: every row's calls, FLOPs and bytes, and all peaks, by purpose and by path. Not compared: names, the
 * device (one of the two is meta) and times. The target must be the same: that is whose price it is.
 * Of two runs: how often each kind of step came, and the ledger of one of each.
 *
 * Experts on several ranks are given as many rows as the data sends them, and a price takes for granted that these are
 * spread evenly. Rows of paths with a part LEDGER_LOAD then have other FLOPs and bytes, and memory has other peaks; the
 * report says so, with the sums of both, and they are not differences. Calls are compared there too.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/load.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "tally.h"

static const char *const row_texts[] = {"path", "op", "phase", "dtype", "accumulate", NULL};
static const char *const row_counts[] = {"calls",          "flops",      "bytes_read", "bytes_written",
                                         "transfer_bytes", "sent_bytes", NULL};
static const char optional_count[] = "sent_bytes"; /* absent: 0 */
static const char *const cell_texts[] = {"path", "purpose", NULL};
static const char *const cell_counts[] = {"bytes", NULL};
static const char *const peaks[] = {"peak_bytes", "peak_allocated_bytes", "peak_reserved_bytes", NULL};

/* ---- Reading ---- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "?";
}

/* A count is a decimal string as tl_count_text writes it, or an integer. */
static bool is_count(const json_t *value) {
    if (json_is_integer(value)) return json_integer_value(value) >= 0;
    const char *text = json_string_value(value);
    size_t n = text ? strlen(text) : 0;
    return n >= 1 && n <= 39 && strspn(text, "0123456789") == n && (*text != '0' || n == 1);
}

/* The first field that is missing or of another type; NULL when all are well. */
static const char *bad_field(const json_t *object, const char *const *texts, const char *const *counts) {
    for (; texts && *texts; texts++)
        if (!json_is_string(json_object_get(object, *texts))) return *texts;
    for (; *counts; counts++)
        if (!is_count(json_object_get(object, *counts)) &&
            (strcmp(*counts, optional_count) || json_object_get(object, *counts)))
            return *counts;
    return NULL;
}

static bool list_check(const json_t *list, const char *name, const char *const *texts, const char *const *counts,
                       const char *which) {
    size_t i;
    json_t *item;
    if (!json_is_array(list)) return error_set(TL_ERROR_USE, "the %s: \"%s\" is not an array", which, name);
    json_array_foreach(list, i, item) {
        const char *bad = bad_field(item, texts, counts);
        if (bad) return error_set(TL_ERROR_USE, "the %s: %s[%zu] has no valid \"%s\"", which, name, i, bad);
    }
    return true;
}

static bool ledger_check(const json_t *root, const char *which) {
    if (strcmp(text_of(root, "schema"), "tally.ledger/1"))
        return error_set(TL_ERROR_USE, "the %s is not a tally.ledger/1 (its schema is \"%.100s\")", which,
                         text_of(root, "schema"));
    if (!json_is_string(json_object_get(root, "target")))
        return error_set(TL_ERROR_USE, "the %s has no valid \"target\"", which);
    if (!list_check(json_object_get(root, "rows"), "rows", row_texts, row_counts, which)) return false;
    const json_t *memory = json_object_get(root, "memory");
    if (!memory) return true;
    const char *purposes[TL_PURPOSE_COUNT + 1] = {NULL};
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) purposes[p] = tl_purpose_name((tl_purpose)p);
    const char *bad = bad_field(memory, NULL, peaks);
    if (!bad) bad = bad_field(json_object_get(memory, "peak_by_purpose"), NULL, purposes);
    if (bad) return error_set(TL_ERROR_USE, "the %s: memory has no valid \"%s\"", which, bad);
    return list_check(json_object_get(memory, "peak_live"), "peak_live", cell_texts, cell_counts, which);
}

static bool is_run(const json_t *root) { return !strcmp(text_of(root, "schema"), "tally.run/1"); }

/* A run has one ledger for each kind of step, and how often it came. The ledger is null if the kind was over when the
 * run was resumed, and the rest was priced again. */
static bool run_check(const json_t *root, const char *which) {
    json_t *kinds = json_object_get(root, "kinds"), *kind;
    const char *name;
    if (!json_is_object(kinds)) return error_set(TL_ERROR_USE, "the %s: \"kinds\" is not an object", which);
    json_object_foreach(kinds, name, kind) {
        if (bad_field(kind, NULL, (const char *const[]){"count", NULL}))
            return error_set(TL_ERROR_USE, "the %s: kind \"%.100s\" has no valid \"count\"", which, name);
        const json_t *ledger = json_object_get(kind, "ledger");
        if (!json_is_null(ledger) && !ledger_check(ledger, which)) return false;
    }
    return true;
}

static json_t *ledger_load(const char *text, const char *which) {
    json_error_t why = {.line = 0};
    json_t *root = text ? json_parse(text, &why) : NULL;
    if (root && (is_run(root) ? run_check : ledger_check)(root, which)) return root;
    if (!text) error_set(TL_ERROR_USE, "the %s is not JSON: got NULL instead of a text", which);
    else if (!root && !*why.text)
        error_memory(strlen(text), "a ledger's JSON"); /* jansson is silent about memory alone */
    else if (!root && why.line < 0) error_set(TL_ERROR_USE, "the %s has %s", which, why.text);
    else if (!root) error_set(TL_ERROR_USE, "the %s is not JSON: %s (line %d)", which, why.text, why.line);
    json_decref(root);
    return NULL;
}

/* ---- Comparing ---- */

struct report {
    char *text;
    size_t used, capacity;
    int n_differences;
    bool is_wanted, lacks_memory;
    bool has_load; /* rows by load differ: then so may memory */
    struct load {
        int n;                             /* counts that differ by it */
        double flops[2], sent[2], peak[2]; /* of such rows; price and receipt */
    } load;
};

TL_PRINTF(2, 3) static void report_add(struct report *r, const char *format, ...) {
    va_list arguments, again;
    if (!r->is_wanted || r->lacks_memory) return;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = number_vprint(NULL, 0, format, arguments);
    size_t needed = r->used + (size_t)(length > 0 ? length : 0) + 1;
    if (needed > r->capacity) {
        char *moved = memory_resize(r->text, 2 * needed + 256);
        r->lacks_memory = !moved;
        if (moved) r->text = moved, r->capacity = 2 * needed + 256;
    }
    if (!r->lacks_memory) number_vprint(r->text + r->used, r->capacity - r->used, format, again);
    if (!r->lacks_memory) r->used = needed - 1;
    va_end(again);
    va_end(arguments);
}

/* Text from a file, of any length, with what a terminal would obey made visible. */
static void report_foreign(struct report *r, const char *text) {
    char piece[TEXT_PIECE];
    while (r->is_wanted && !r->lacks_memory && *text) {
        text += text_piece(piece, text);
        report_add(r, "%s", piece);
    }
}

static const char *count_of(const json_t *object, const char *key, char buffer[40]) {
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value)) return json_string_value(value);
    if (!value && !strcmp(key, optional_count)) return "0";
    if (!json_is_integer(value)) return "absent";
    snprintf(buffer, 40, "%lld", (long long)json_integer_value(value));
    return buffer;
}

/* The report's name of a row or a cell, or `what` if there is none. The path may be of any length. */
static void name_add(struct report *r, const char *what, const json_t *item) {
    size_t start = r->used;
    static const char *const row[] = {": ", "op", " (", "phase", ", ", "dtype", "/", "accumulate", ")", NULL};
    static const char *const cell[] = {": live at the peak, ", "purpose", NULL};
    const char *const *parts = json_object_get(item, "op") ? row : cell; /* words and keys in turn */
    report_foreign(r, !item ? what : *text_of(item, "path") ? text_of(item, "path") : "-");
    for (int i = 0; item && parts[i]; i++) report_foreign(r, i % 2 ? text_of(item, parts[i]) : parts[i]);
    report_add(r, "%*s", r->used - start < 60 ? (int)(60 - (r->used - start)) : 0, "");
}

/* by_load: what the rows of experts may change. */
static void compare(struct report *r, const char *what, const json_t *price, const json_t *receipt,
                    const char *const *keys, bool by_load) {
    for (; *keys; keys++) {
        char a[40], b[40];
        const char *x = count_of(price, *keys, a), *y = count_of(receipt, *keys, b);
        if (!strcmp(x, y)) continue;
        if (by_load && strcmp(*keys, "calls")) {
            r->load.n++;
            continue;
        }
        if (r->n_differences++ == 0) report_add(r, "%-60s %-20s %22s %22s\n", "what", "count", "price", "receipt");
        name_add(r, what, what ? NULL : price ? price : receipt);
        report_add(r, " %-20s %22s %22s\n", *keys, x, y);
    }
}

/* Indexes an array by the keys of its items: their texts, each on a separate line. NULL and an error if two keys are
 * equal, or without memory. */
static json_t *index_of(const json_t *array, const char *const *texts, const char *which) {
    json_t *index = json_object();
    bool ok = index != NULL;
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item) {
        size_t bytes = 1, used = 0;
        for (int k = 0; texts[k]; k++) bytes += strlen(text_of(item, texts[k])) + 1;
        char *key = ok ? memory_new(bytes) : NULL;
        for (int k = 0; key && texts[k]; k++)
            used += (size_t)snprintf(key + used, bytes - used, "%s\n", text_of(item, texts[k]));
        if (key && json_object_get(index, key))
            ok = error_set(TL_ERROR_USE, "the %s has two entries of one name: %.200s, %.100s", which,
                           text_of(item, texts[0]), text_of(item, texts[1]));
        else ok = key && json_object_set(index, key, item) == 0;
        memory_free(key);
        if (!ok) break;
    }
    if (ok) return index;
    json_decref(index);
    error_memory(json_array_size(array), "a comparison of ledgers"); /* unless an error is pending */
    return NULL;
}

/* Whether a row, of which there may be none, is of experts' rows. */
static bool row_has_load(const json_t *row) { return row && path_has_load(text_of(row, "path")); }

/* is_memory: cells at a peak, which may be another one. */
static bool compare_lists(struct report *r, const json_t *price, const json_t *receipt, const char *const *texts,
                          const char *const *counts, bool is_memory) {
    json_t *a = index_of(price, texts, "price"), *b = a ? index_of(receipt, texts, "receipt") : NULL, *item;
    const char *key;
    if (b) {
        json_object_foreach(a, key, item) {
            const json_t *other = json_object_get(b, key);
            compare(r, NULL, item, other, counts, is_memory ? r->has_load : row_has_load(item));
        }
        json_object_foreach(b, key, item) if (!json_object_get(a, key))
            compare(r, NULL, NULL, item, counts, is_memory && r->has_load);
    }
    json_decref(a);
    json_decref(b);
    return b != NULL;
}

static double number_of(const json_t *object, const char *key) {
    char buffer[40];
    return number_parse(count_of(object, key, buffer), NULL); /* "absent" is 0 */
}

/* Adds up the rows by load of one side. */
static void load_add(struct load *load, const json_t *ledger, int side) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(ledger, "rows"), i, row) {
        if (!row_has_load(row)) continue;
        load->flops[side] += number_of(row, "flops");
        load->sent[side] += number_of(row, "sent_bytes");
    }
    const double peak = number_of(json_object_get(ledger, "memory"), "peak_bytes");
    if (peak > load->peak[side]) load->peak[side] = peak;
}

static void loads_find(struct report *r, const json_t *price, const json_t *receipt) {
    load_add(&r->load, price, 0);
    load_add(&r->load, receipt, 1);
    r->has_load =
        r->has_load || r->load.flops[0] != r->load.flops[1] || r->load.sent[0] != r->load.sent[1]; /* of any kind */
}

static void load_say(struct report *r) {
    const struct load *l = &r->load;
    if (!l->n) return;
    report_add(r,
               "%d counts differ by the load of experts: a price has rows of tokens spread evenly over the ranks of "
               "--ep, times --ep-load; a receipt has those that came\n"
               "  price    %.6g FLOPs and %.6g bytes sent by these rows, %.6g bytes of memory at the peak\n"
               "  receipt  %.6g FLOPs and %.6g bytes sent by these rows, %.6g bytes of memory at the peak\n",
               l->n, l->flops[0], l->sent[0], l->peak[0], l->flops[1], l->sent[1], l->peak[1]);
}

static bool ledgers_compare(struct report *r, const json_t *price, const json_t *receipt) {
    const json_t *memory_a = json_object_get(price, "memory"), *memory_b = json_object_get(receipt, "memory");
    const char *purposes[TL_PURPOSE_COUNT + 1] = {NULL};
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) purposes[p] = tl_purpose_name((tl_purpose)p);
    if (strcmp(text_of(price, "target"), text_of(receipt, "target"))) {
        report_add(r, "the price is for ");
        report_foreign(r, text_of(price, "target"));
        report_add(r, ", the receipt from ");
        report_foreign(r, text_of(receipt, "target"));
        report_add(r, "\n");
        report_add(r, "%-60s %-20s %22s %22s\n", "what", "count", "price", "receipt");
        r->n_differences++;
    }
    if (!compare_lists(r, json_object_get(price, "rows"), json_object_get(receipt, "rows"), row_texts, row_counts,
                       false))
        return false;
    compare(r, "memory", memory_a, memory_b, peaks, r->has_load);
    compare(r, "memory at the peak, by purpose", json_object_get(memory_a, "peak_by_purpose"),
            json_object_get(memory_b, "peak_by_purpose"), purposes, r->has_load);
    if (!compare_lists(r, json_object_get(memory_a, "peak_live"), json_object_get(memory_b, "peak_live"), cell_texts,
                       cell_counts, true))
        return false;
    return !r->lacks_memory || error_memory(r->used, "a report of differences");
}

/* Kind by kind; the lines after a kind's name describe one step of it. */
static bool runs_compare(struct report *r, const json_t *price, const json_t *receipt) {
    json_t *kinds_a = json_object_get(price, "kinds"), *kinds_b = json_object_get(receipt, "kinds"), *kind;
    static const char *const counts[] = {"count", NULL};
    const char *name;
    char what[64], shown[44];
    json_object_foreach(kinds_a, name, kind) {
        const json_t *other = json_object_get(kinds_b, name);
        if (other) loads_find(r, json_object_get(kind, "ledger"), json_object_get(other, "ledger"));
    }
    json_object_foreach(kinds_a, name, kind) {
        const json_t *other = json_object_get(kinds_b, name);
        snprintf(what, sizeof what, "steps of kind %s", text_show(shown, sizeof shown, name));
        compare(r, what, kind, other, counts, false);
        const json_t *ledger_a = json_object_get(kind, "ledger"), *ledger_b = json_object_get(other, "ledger");
        const bool lacks_a = !json_is_object(ledger_a), lacks_b = !json_is_object(ledger_b);
        if (!other || (lacks_a && lacks_b)) continue;
        if (lacks_a || lacks_b) {
            report_add(r, "%s: only the %s has a ledger\n", what, lacks_a ? "receipt" : "price");
            r->n_differences++;
            continue;
        }
        int before = r->n_differences;
        if (!ledgers_compare(r, ledger_a, ledger_b)) return false;
        if (r->n_differences > before)
            report_add(r, "%d of these in each step of kind %s\n", r->n_differences - before,
                       text_show(shown, sizeof shown, name));
    }
    json_object_foreach(kinds_b, name, kind) {
        snprintf(what, sizeof what, "steps of kind %s", text_show(shown, sizeof shown, name));
        if (!json_object_get(kinds_a, name)) compare(r, what, NULL, kind, counts, false);
    }
    return !r->lacks_memory || error_memory(r->used, "a report of differences");
}

static bool roots_compare(struct report *r, const json_t *price, const json_t *receipt) {
    if (is_run(price) != is_run(receipt))
        return error_set(TL_ERROR_USE,
                         "the %s is of a whole run (tally.run/1), the other of one stretch (tally.ledger/1)",
                         is_run(price) ? "price" : "receipt");
    if (is_run(price)) return runs_compare(r, price, receipt);
    loads_find(r, price, receipt);
    return ledgers_compare(r, price, receipt);
}

int tl_ledger_diff(const char *price_json, const char *receipt_json, char **report) {
    if (report) *report = NULL;
    json_t *price = ledger_load(price_json, "price"), *receipt = price ? ledger_load(receipt_json, "receipt") : NULL;
    struct report r = {.is_wanted = report != NULL};
    bool ok = receipt && roots_compare(&r, price, receipt);
    if (ok) load_say(&r);
    if (ok && r.lacks_memory) ok = error_memory(r.used, "a report of differences");
    json_decref(price);
    json_decref(receipt);
    if (report && ok) *report = r.text;
    else free(r.text);
    return ok ? r.n_differences : -1;
}
