#include "train/profile.h"

#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"
#include "account/path.h"
#include "base/error.h"
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

static bool list_add(struct profile_list *list, const char *name, const char *phase, const struct ledger_row *row) {
    size_t i = 0;
    while (i < list->n && (list->rows[i].phase != phase || strcmp(list->rows[i].name, name))) i++;
    if (i == list->n) {
        if (!memory_grow((void **)&list->rows, &list->capacity, list->n, sizeof *list->rows))
            return error_memory(sizeof *list->rows, "a profile");
        list->rows[list->n] = (struct profile_row){.phase = phase};
        text_copy(list->rows[list->n++].name, sizeof list->rows->name, name);
    }
    struct profile_row *own = &list->rows[i];
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
        ok = list_add(&p->ops, row->key.op, phase, row) && list_add(&p->modules, module, phase, row);
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
    if (p->modules.n) qsort(p->modules.rows, p->modules.n, sizeof *p->modules.rows, longest_first);
}

double profile_kernel_s(const struct profile *p) {
    double sum = 0;
    for (size_t i = 0; i < p->ops.n; i++) sum += p->ops.rows[i].time_s;
    return sum;
}

void profile_free(struct profile *p) {
    if (!p) return;
    memory_free(p->ops.rows);
    memory_free(p->modules.rows);
    *p = (struct profile){0};
}
