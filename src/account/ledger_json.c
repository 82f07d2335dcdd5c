/* ledger_json.c: a ledger as a file, schema tally.ledger/1 (docs/ledger.md). Counts that may exceed 2^53 are decimal
 * strings, since a JSON number is a double to most readers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"
#include "account/path.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "tensor/dtype.h"

/* Every value goes in through these two, which take it over. `ok` turns false, for good, when there is no memory: a
 * ledger that lacks a row must not be mistaken for a whole one. */
static void put(json_t *object, const char *key, json_t *value, bool *ok) {
    if (json_object_set_new(object, key, value) != 0) *ok = false;
}
static void append(json_t *array, json_t *value, bool *ok) {
    if (json_array_append_new(array, value) != 0) *ok = false;
}

static void put_text(json_t *object, const char *key, const char *text, bool *ok) {
    put(object, key, json_string(text), ok);
}

static void put_count(json_t *object, const char *key, count value, bool *ok) {
    char buffer[40];
    put_text(object, key, tl_count_text(count_public(value), buffer), ok);
}

static void put_counts(json_t *object, const struct ledger_row *row, bool *ok) {
    put(object, "calls", json_integer((json_int_t)row->calls), ok);
    put_count(object, "flops", row->flops, ok);
    put_count(object, "bytes_read", row->bytes_read, ok);
    put_count(object, "bytes_written", row->bytes_written, ok);
    put_count(object, "transfer_bytes", row->transfer_bytes, ok);
    if (row->sent_bytes) put_count(object, "sent_bytes", row->sent_bytes, ok); /* absent: 0 */
    put(object, "time_s", json_real(row->time_s), ok);
}

static const char *dtype_text(uint8_t dtype) {
    return dtype < TL_DTYPE_COUNT ? tl_dtype_name((tl_dtype)dtype) : "none";
}

static json_t *row_json(const struct ledger_row *row, bool *ok) {
    json_t *object = json_object();
    put_text(object, "path", path_text(row->key.path), ok);
    put_text(object, "op", row->key.op, ok);
    put_text(object, "phase", tl_phase_name((tl_phase)row->key.phase), ok);
    put_text(object, "dtype", dtype_text(row->key.dtype), ok);
    put_text(object, "accumulate", dtype_text(row->key.accumulate), ok);
    put_counts(object, row, ok);
    return object;
}

static int cell_order(const void *a, const void *b) {
    const struct held_cell *x = a, *y = b;
    int order = strcmp(path_text(x->path), path_text(y->path));
    return order ? order : (int)x->purpose - (int)y->purpose;
}

/* A copy, to be sorted; NULL without memory. */
static void *copy_of(const void *items, size_t bytes, bool *ok) {
    void *copy = memory_new(bytes);
    if (!copy) *ok = false;
    else if (bytes) memcpy(copy, items, bytes);
    return copy;
}

/* Two scopes "a" and "b" make the path that one scope "a.b" makes, and two ops may have one name: what reads the
 * same is one cell, and one row. */
static json_t *cells_json(const struct held_window *w, bool *ok) {
    size_t n = w->cells ? w->n_cells : 0;
    struct held_cell *cells = copy_of(w->cells, n * sizeof *cells, ok);
    if (cells) qsort(cells, n, sizeof *cells, cell_order);
    json_t *array = json_array();
    for (size_t i = 0; cells && i < n; i++) {
        struct held_cell *cell = &cells[i];
        if (i + 1 < n && !cell_order(cell, cell + 1)) {
            cell[1].bytes += cell->bytes;
            continue;
        }
        if (!cell->bytes) continue;
        json_t *object = json_object();
        put_text(object, "path", path_text(cell->path), ok);
        put_text(object, "purpose", tl_purpose_name((tl_purpose)cell->purpose), ok);
        put_count(object, "bytes", cell->bytes, ok);
        append(array, object, ok);
    }
    memory_free(cells);
    return array;
}

static json_t *memory_json(const struct held_window *w, bool *ok) {
    json_t *memory = json_object(), *purposes = json_object();
    put_count(memory, "peak_bytes", w->peak_bytes, ok);
    put_count(memory, "peak_allocated_bytes", w->peak_allocated_bytes, ok);
    put_count(memory, "peak_reserved_bytes", w->peak_reserved_bytes, ok);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        put_count(purposes, tl_purpose_name((tl_purpose)p), w->peak_by_purpose[p], ok);
    put(memory, "peak_by_purpose", purposes, ok);
    put(memory, "peak_live", cells_json(w, ok), ok);
    return memory;
}

static json_t *rows_json(const tl_ledger *l, bool *ok) {
    struct ledger_row *rows = copy_of(l->rows, l->n_rows * sizeof *rows, ok);
    if (rows) ledger_sort(rows, l->n_rows);
    json_t *array = json_array();
    for (size_t i = 0; rows && i < l->n_rows; i++) {
        if (i + 1 < l->n_rows && !ledger_row_order(&rows[i], &rows[i + 1])) ledger_row_add(&rows[i + 1], &rows[i]);
        else append(array, row_json(&rows[i], ok), ok);
    }
    memory_free(rows);
    return array;
}

static json_t *ledger_to_json(const tl_ledger *l, const tl_device *device, bool *ok) {
    json_t *root = json_object(), *phases = json_object(), *totals = json_object();
    put_text(root, "schema", "tally.ledger/1", ok);
    put_text(root, "name", l->name, ok);
    put_text(root, "device", device ? tl_device_name(device) : "none", ok);
    put_text(root, "target", device ? device->target->name : "none", ok);
    struct ledger_row all = {0};
    for (int p = 0; p < TL_PHASE_COUNT; p++) {
        struct ledger_row sum = {0};
        for (size_t i = 0; i < l->n_rows; i++)
            if (l->rows[i].key.phase == p) ledger_row_add(&sum, &l->rows[i]);
        ledger_row_add(&all, &sum);
        json_t *phase = json_object();
        put_counts(phase, &sum, ok);
        put(phases, tl_phase_name((tl_phase)p), phase, ok);
    }
    put_counts(totals, &all, ok);
    put(root, "totals", totals, ok);
    put(root, "phases", phases, ok);
    for (int i = 0; i < l->n_devices; i++)
        if (l->memory[i].device == device) put(root, "memory", memory_json(&l->memory[i].window, ok), ok);
    put(root, "rows", rows_json(l, ok), ok);
    return root;
}

char *tl_ledger_json(const tl_ledger *l, const tl_device *device) {
    if (!l) {
        error_set(TL_ERROR_USE, "tl_ledger_json: got NULL instead of a ledger");
        return NULL;
    }
    bool ok = true;
    json_t *root = ledger_to_json(l, device, &ok);
    char *text = ok ? json_print(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text) error_memory(l->n_rows * 200, "a ledger's JSON");
    return text;
}

bool tl_ledger_write(const tl_ledger *l, const tl_device *device, const char *file) {
    if (!file) return error_set(TL_ERROR_USE, "tl_ledger_write: got NULL instead of a file's name");
    char *text = tl_ledger_json(l, device);
    if (!text) return false;
    char *line = memory_resize(text, strlen(text) + 2);
    if (line) text = strcat(line, "\n");
    bool ok = line ? file_put(file, text, strlen(text)) : error_memory(strlen(text), "a ledger's JSON");
    memory_free(text);
    return ok;
}
