/* record.c: the ledger of a run, kept for comparison with another run. */
#include "support/samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "account/path.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

void record_output(struct record *r, tl_tensor *x) {
    if (!x || r->n_outputs == 16) return;
    int j = r->n_outputs++;
    r->output[j].dtype = tl_dtype_of(x);
    r->output[j].rank = tl_rank(x);
    r->output[j].offset = tl_offset(x);
    for (int i = 0; i < tl_rank(x); i++) {
        r->output[j].shape[i] = tl_size(x, i);
        r->output[j].stride[i] = tl_stride(x, i);
    }
}

void record_ledger(struct record *r, const tl_ledger *l, const tl_device *device) {
    if (l->n_rows > RECORD_ROWS) fail_msg("a ledger of %zu rows does not fit a record", l->n_rows);
    r->n_rows = (int)l->n_rows;
    if (l->n_rows) memcpy(r->row, l->rows, l->n_rows * sizeof *l->rows);
    ledger_sort(r->row, l->n_rows);
    r->peak = tl_ledger_peak(l, device, TL_ALL);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) r->peak_by_purpose[p] = tl_ledger_peak(l, device, p);
    r->peak_allocated = tl_ledger_peak_allocated(l, device);
    r->peak_reserved = tl_ledger_peak_reserved(l, device);
    r->memory = tl_device_memory(device);
}

static char difference[600];

static const char *differ(const char *what, unsigned long long a, unsigned long long b) {
    if (a == b) return NULL;
    snprintf(difference, sizeof difference, "%s: %llu and %llu", what, a, b);
    return difference;
}

static const char *row_differs(const struct ledger_row *a, const struct ledger_row *b) {
    char what[200];
    if (strcmp(a->key.op, b->key.op) || a->key.path != b->key.path || a->key.phase != b->key.phase ||
        a->key.dtype != b->key.dtype || a->key.accumulate != b->key.accumulate) {
        snprintf(difference, sizeof difference, "one has %s in %s of %s at '%s', the other %s in %s of %s at '%s'",
                 a->key.op, tl_phase_name(a->key.phase), tl_dtype_name(a->key.dtype), path_text(a->key.path), b->key.op,
                 tl_phase_name(b->key.phase), tl_dtype_name(b->key.dtype), path_text(b->key.path));
        return difference;
    }
    const struct {
        const char *name;
        count a, b;
    } column[] = {{"calls", a->calls, b->calls},
                  {"FLOPs", a->flops, b->flops},
                  {"bytes read", a->bytes_read, b->bytes_read},
                  {"bytes written", a->bytes_written, b->bytes_written},
                  {"transfer bytes", a->transfer_bytes, b->transfer_bytes}};
    for (int i = 0; i < 5; i++) {
        snprintf(what, sizeof what, "%s of %s in %s at '%s'", column[i].name, a->key.op, tl_phase_name(a->key.phase),
                 path_text(a->key.path));
        if (column[i].a != column[i].b)
            return differ(what, (unsigned long long)column[i].a, (unsigned long long)column[i].b);
    }
    return NULL;
}

static const char *memory_differs(const struct record *a, const struct record *b) {
    const char *d = differ("peak bytes", a->peak, b->peak);
    if (!d) d = differ("peak allocated", a->peak_allocated, b->peak_allocated);
    if (!d) d = differ("peak reserved", a->peak_reserved, b->peak_reserved);
    for (int p = 0; !d && p < TL_PURPOSE_COUNT; p++) {
        char what[60];
        snprintf(what, sizeof what, "peak bytes of purpose %s", tl_purpose_name((tl_purpose)p));
        d = differ(what, a->peak_by_purpose[p], b->peak_by_purpose[p]);
    }
    if (!d) d = differ("live bytes", a->memory.live_bytes, b->memory.live_bytes);
    if (!d) d = differ("allocated bytes", a->memory.allocated_bytes, b->memory.allocated_bytes);
    if (!d) d = differ("reserved bytes", a->memory.reserved_bytes, b->memory.reserved_bytes);
    if (!d) d = differ("live storages", a->memory.live_tensors, b->memory.live_tensors);
    return d;
}

const char *record_difference(const struct record *a, const struct record *b) {
    const char *d = differ("number of results", (unsigned)a->n_outputs, (unsigned)b->n_outputs);
    for (int j = 0; !d && j < a->n_outputs; j++) {
        d = differ("dtype", a->output[j].dtype, b->output[j].dtype);
        if (!d) d = differ("rank", (unsigned)a->output[j].rank, (unsigned)b->output[j].rank);
        if (!d) d = differ("offset", (unsigned long long)a->output[j].offset, (unsigned long long)b->output[j].offset);
        for (int i = 0; !d && i < a->output[j].rank; i++) {
            d = differ("size", (unsigned long long)a->output[j].shape[i], (unsigned long long)b->output[j].shape[i]);
            if (!d)
                d = differ("stride", (unsigned long long)a->output[j].stride[i],
                           (unsigned long long)b->output[j].stride[i]);
        }
    }
    for (int i = 0; !d && i < a->n_rows && i < b->n_rows; i++) d = row_differs(&a->row[i], &b->row[i]);
    if (!d) d = differ("rows of the ledger", (unsigned)a->n_rows, (unsigned)b->n_rows);
    return d ? d : memory_differs(a, b);
}

void assert_nothing_held(const char *what, const tl_device *device) {
    tl_memory m = tl_device_memory(device);
    if (m.live_bytes || m.live_tensors || m.allocated_bytes)
        fail_msg("%s: %s still holds %llu bytes in %llu storages (%llu allocated)", what, tl_device_name(device),
                 (unsigned long long)m.live_bytes, (unsigned long long)m.live_tensors,
                 (unsigned long long)m.allocated_bytes);
}

void *tensor_bits(tl_tensor *x, size_t *bytes) {
    *bytes = tl_bytes(x);
    void *bits = malloc(*bytes + 1);
    if (!bits || !tl_to_data(x, bits, *bytes)) fail_msg("cannot read a tensor: %s", tl_error_message());
    return bits;
}

double *tensor_values(tl_tensor *x) {
    size_t bytes;
    void *bits = tensor_bits(x, &bytes);
    double *values = malloc(((size_t)tl_numel(x) + 1) * sizeof *values);
    for (int64_t i = 0; i < tl_numel(x); i++) values[i] = convert_get_f64(bits, tl_dtype_of(x), i);
    free(bits);
    return values;
}
