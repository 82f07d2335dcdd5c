#include "train/profile.h"

#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"
#include "account/path.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

/* "h.11.attn" as "h.*.attn". */
static void pattern_of(char *to, size_t size, const char *path) {
    size_t n = 0;
    for (const char *at = path; *at && n + 1 < size; at++) {
        bool begins = at == path || at[-1] == '.';
        size_t digits = begins ? strspn(at, "0123456789") : 0;
        bool is_number = digits && (!at[digits] || at[digits] == '.');
        to[n++] = is_number ? '*' : *at;
        if (is_number) at += digits - 1;
    }
    to[n] = 0;
}

static bool row_is(const struct profile_row *row, const struct profile_row *key) {
    return row->phase == key->phase && row->dtype == key->dtype && !strcmp(row->name, key->name) &&
           !strcmp(row->module, key->module);
}

static struct profile_row key_of(const char *name, const char *module, const char *phase, int dtype) {
    struct profile_row key = {.phase = phase, .dtype = dtype};
    text_copy(key.name, sizeof key.name, name);
    text_copy(key.module, sizeof key.module, module);
    return key;
}

/* NULL: there is none. */
static struct profile_row *row_find(struct profile_list *list, const struct profile_row *key) {
    for (size_t i = 0; i < list->n; i++)
        if (row_is(&list->rows[i], key)) return &list->rows[i];
    return NULL;
}

static bool list_add(struct profile_list *list, struct profile_row key, const struct ledger_row *row) {
    struct profile_row *own = row_find(list, &key);
    if (!own) {
        if (!memory_grow((void **)&list->rows, &list->capacity, list->n, sizeof *list->rows))
            return error_memory(sizeof *list->rows, "a profile");
        own = &list->rows[list->n++];
        *own = key;
    }
    own->calls += row->calls;
    own->time_s += row->time_s;
    own->flops += (double)row->flops;
    own->bytes += (double)(row->bytes_read + row->bytes_written);
    return true;
}

/* A call may be billed to several phases, and its time is in the row that counts the call. NULL: nothing was timed,
 * as for views. */
static const struct ledger_row *timed_row(const tl_ledger *step, const struct ledger_row *row) {
    if (row->calls) return row->time_s > 0 ? row : NULL;
    for (size_t i = 0; i < step->n_rows; i++) {
        const struct ledger_row *other = &step->rows[i];
        if (other->time_s > 0 && other->key.op == row->key.op && other->key.path == row->key.path) return other;
    }
    return NULL;
}

bool profile_add(struct profile *p, const tl_ledger *step, double seconds) {
    bool ok = true;
    for (size_t i = 0; ok && i < step->n_rows; i++) {
        const struct ledger_row *row = &step->rows[i], *timed = timed_row(step, row);
        char module[sizeof p->modules.rows->name];
        if (!timed) continue;
        const char *phase = tl_phase_name((tl_phase)timed->key.phase);
        pattern_of(module, sizeof module, path_text(row->key.path));
        ok = list_add(&p->ops, key_of(row->key.op, "", phase, TL_DTYPE_COUNT), row) &&
             list_add(&p->modules, key_of(module, "", phase, TL_DTYPE_COUNT), row) &&
             list_add(&p->rows, key_of(row->key.op, module, phase, row->key.dtype), row);
    }
    p->n_steps++;
    p->step_s += seconds;
    return ok;
}

static int longest_first(const void *a, const void *b) {
    double x = ((const struct profile_row *)a)->time_s, y = ((const struct profile_row *)b)->time_s;
    return x > y ? -1 : x < y;
}

void profile_sort(struct profile *p) {
    if (p->ops.n) qsort(p->ops.rows, p->ops.n, sizeof *p->ops.rows, longest_first);
    if (p->rows.n) qsort(p->rows.rows, p->rows.n, sizeof *p->rows.rows, longest_first);
    if (p->modules.n) qsort(p->modules.rows, p->modules.n, sizeof *p->modules.rows, longest_first);
}

double profile_kernel_s(const struct profile *p) {
    double sum = 0;
    for (size_t i = 0; i < p->ops.n; i++) sum += p->ops.rows[i].time_s;
    return sum;
}

double profile_floor_s(const struct profile *p) {
    double sum = 0;
    for (size_t i = 0; i < p->ops.n; i++) sum += p->ops.rows[i].floor_s;
    return sum;
}

void profile_floor_add(struct profile *p, struct profile_row *row, double seconds) {
    const struct profile_row op = key_of(row->name, "", row->phase, TL_DTYPE_COUNT);
    const struct profile_row module = key_of(row->module, "", row->phase, TL_DTYPE_COUNT);
    row->floor_s += seconds;
    row_find(&p->ops, &op)->floor_s += seconds;
    row_find(&p->modules, &module)->floor_s += seconds;
}

static json_t *row_json(const struct profile *p, const struct profile_row *row) {
    const char *dtype = row->dtype < TL_DTYPE_COUNT ? tl_dtype_name((tl_dtype)row->dtype) : "none";
    double n = (double)p->n_steps;
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "op", row->name, "module", row->module, "phase",
                     row->phase, "dtype", dtype, "calls", (double)row->calls / n, "time_s", row->time_s / n, "flops",
                     row->flops / n, "bytes", row->bytes / n);
}

char *profile_text(const struct profile *p, const tl_device *device) {
    json_t *rows = json_array();
    bool ok = rows && p->n_steps > 0;
    for (size_t i = 0; ok && i < p->rows.n; i++) ok = json_array_append_new(rows, row_json(p, &p->rows.rows[i])) == 0;
    json_t *root = json_pack("{s:s, s:s, s:I, s:f, s:o}", "schema", "tally.profile/1", "device", tl_device_name(device),
                             "steps", (json_int_t)p->n_steps, "step_s", p->step_s / (double)p->n_steps, "rows", rows);
    char *text = root && ok ? json_print(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    if (!text) error_memory(p->rows.n * 200, "a profile");
    return text;
}

void profile_free(struct profile *p) {
    if (!p) return;
    memory_free(p->ops.rows);
    memory_free(p->modules.rows);
    memory_free(p->rows.rows);
    *p = (struct profile){0};
}
