/* ledger_json.c: a ledger as a file, schema tally.ledger/1 (docs/ledger.md). Counts that may exceed 2^53 are decimal
 * strings, since a JSON number is a double to most readers. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"
#include "account/path.h"
#include "base/error.h"
#include "base/memory.h"
#include "tensor/dtype.h"

static void put_count(json_t *object, const char *key, count value) {
    char buffer[40];
    json_object_set_new(object, key, json_string(tl_count_text(count_public(value), buffer)));
}

static void put_counts(json_t *object, const struct ledger_row *row) {
    json_object_set_new(object, "calls", json_integer((json_int_t)row->calls));
    put_count(object, "flops", row->flops);
    put_count(object, "bytes_read", row->bytes_read);
    put_count(object, "bytes_written", row->bytes_written);
    put_count(object, "transfer_bytes", row->transfer_bytes);
    json_object_set_new(object, "time_s", json_real(row->time_s));
}

static const char *dtype_text(uint8_t dtype) {
    return dtype < TL_DTYPE_COUNT ? tl_dtype_name((tl_dtype)dtype) : "none";
}

static json_t *row_json(const struct ledger_row *row) {
    json_t *object = json_object();
    json_object_set_new(object, "path", json_string(path_text(row->key.path)));
    json_object_set_new(object, "op", json_string(row->key.op));
    json_object_set_new(object, "phase", json_string(tl_phase_name((tl_phase)row->key.phase)));
    json_object_set_new(object, "dtype", json_string(dtype_text(row->key.dtype)));
    json_object_set_new(object, "accumulate", json_string(dtype_text(row->key.accumulate)));
    put_counts(object, row);
    return object;
}

static json_t *cells_json(const struct held_window *w) {
    json_t *cells = json_array();
    for (size_t i = 0; i < w->n_cells; i++) {
        const struct held_cell *cell = &w->cells[i];
        if (!cell->bytes) continue;
        json_t *object = json_object();
        json_object_set_new(object, "path", json_string(path_text(cell->path)));
        json_object_set_new(object, "purpose", json_string(tl_purpose_name((tl_purpose)cell->purpose)));
        put_count(object, "bytes", cell->bytes);
        json_array_append_new(cells, object);
    }
    return cells;
}

static json_t *memory_json(const struct held_window *w) {
    json_t *memory = json_object(), *purposes = json_object();
    put_count(memory, "peak_bytes", w->peak_bytes);
    put_count(memory, "peak_allocated_bytes", w->peak_allocated_bytes);
    put_count(memory, "peak_reserved_bytes", w->peak_reserved_bytes);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        put_count(purposes, tl_purpose_name((tl_purpose)p), w->peak_by_purpose[p]);
    json_object_set_new(memory, "peak_by_purpose", purposes);
    json_object_set_new(memory, "peak_live", cells_json(w));
    return memory;
}

static json_t *rows_json(const tl_ledger *l) {
    size_t bytes = l->n_rows * sizeof *l->rows;
    struct ledger_row *sorted = memory_new(bytes);
    if (!sorted) return NULL;
    if (l->n_rows) memcpy(sorted, l->rows, bytes);
    ledger_sort(sorted, l->n_rows);
    json_t *rows = json_array();
    for (size_t i = 0; i < l->n_rows; i++) json_array_append_new(rows, row_json(&sorted[i]));
    memory_free(sorted);
    return rows;
}

static json_t *ledger_to_json(const tl_ledger *l, const tl_device *device) {
    json_t *root = json_object(), *phases = json_object(), *totals = json_object();
    json_object_set_new(root, "schema", json_string("tally.ledger/1"));
    json_object_set_new(root, "name", json_string(l->name));
    json_object_set_new(root, "device", json_string(tl_device_name(device)));
    json_object_set_new(root, "target", json_string(device ? device->target->name : "none"));
    struct ledger_row all = {0};
    for (int p = 0; p < TL_PHASE_COUNT; p++) {
        struct ledger_row sum = {0};
        for (size_t i = 0; i < l->n_rows; i++)
            if (l->rows[i].key.phase == p) ledger_row_add(&sum, &l->rows[i]);
        ledger_row_add(&all, &sum);
        json_t *phase = json_object();
        put_counts(phase, &sum);
        json_object_set_new(phases, tl_phase_name((tl_phase)p), phase);
    }
    put_counts(totals, &all);
    json_object_set_new(root, "totals", totals);
    json_object_set_new(root, "phases", phases);
    for (int i = 0; i < l->n_devices; i++)
        if (l->memory[i].device == device) json_object_set_new(root, "memory", memory_json(&l->memory[i].window));
    json_object_set_new(root, "rows", rows_json(l));
    return root;
}

char *tl_ledger_json(const tl_ledger *l, const tl_device *device) {
    if (!l) {
        error_set(TL_ERROR_USE, "tl_ledger_json: got NULL instead of a ledger");
        return NULL;
    }
    json_t *root = ledger_to_json(l, device);
    char *text = json_object_get(root, "rows") ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text) error_memory(l->n_rows * 200, "a ledger's JSON");
    return text;
}

bool tl_ledger_write(const tl_ledger *l, const tl_device *device, const char *file) {
    char *text = tl_ledger_json(l, device);
    if (!text) return false;
    FILE *f = fopen(file, "w");
    bool ok = f && fputs(text, f) >= 0 && fputc('\n', f) != EOF;
    int why = errno;
    if (f && fclose(f) != 0) {
        ok = false;
        why = errno;
    }
    free(text);
    return ok || error_set(TL_ERROR_IO, "%s: cannot write the ledger: %s", file, strerror(why));
}
