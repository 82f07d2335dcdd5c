#include "plan/group.h"

#include <stdlib.h>
#include <string.h>

#include "account/path.h"
#include "base/error.h"
#include "base/memory.h"

/* Numbers become stars, and only one name is kept below a number: a reader wants "the MLPs". */
void group_module_name(char *name, size_t size, const char *path) {
    size_t used = 0;
    int below = -1; /* names since the last number */
    if (!*path) path = "-";
    while (*path && below < 1 && used + 1 < size) {
        size_t length = strcspn(path, ".");
        bool is_number = length && strspn(path, "0123456789") == length;
        if (used) name[used++] = '.';
        used += (size_t)snprintf(name + used, size - used, "%.*s", is_number ? 1 : (int)length, is_number ? "*" : path);
        if (used >= size) used = size - 1;
        below = is_number ? 0 : below < 0 ? -1 : below + 1;
        path += length + (path[length] == '.');
    }
    name[used] = 0;
}

static struct plan_group *group_of(struct plan_groups *g, const char *name, tl_dtype dtype) {
    for (size_t i = 0; i < g->n; i++)
        if (g->group[i].dtype == dtype && !strcmp(g->group[i].name, name)) return &g->group[i];
    if (!memory_grow((void **)&g->group, &g->capacity, g->n, sizeof *g->group)) {
        error_memory(sizeof *g->group, "a plan");
        return NULL;
    }
    struct plan_group *made = &g->group[g->n++];
    *made = (struct plan_group){.dtype = dtype};
    snprintf(made->name, sizeof made->name, "%s", name);
    return made;
}

static void row_add(struct plan_group *g, const struct ledger_row *row) {
    g->calls += row->calls;
    g->flops[row->key.phase] += row->flops;
    g->bytes += row->bytes_read + row->bytes_written;
}

count group_flops(const struct plan_group *g) {
    count sum = 0;
    for (int p = 0; p < TL_PHASE_COUNT; p++) sum += g->flops[p];
    return sum;
}

uint64_t group_held(const struct plan_group *g) {
    uint64_t sum = 0;
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) sum += g->held[p];
    return sum;
}

static bool add_cells(struct plan_groups *g, const struct held_window *w) {
    for (size_t i = 0; w && i < w->n_cells; i++) {
        char name[64];
        if (!w->cells[i].bytes) continue;
        group_module_name(name, sizeof name, path_text(w->cells[i].path));
        struct plan_group *group = group_of(g, name, TL_DTYPE_COUNT);
        if (!group) return false;
        group->held[w->cells[i].purpose] += w->cells[i].bytes;
    }
    return true;
}

/* The dearest first; for modules that compute nothing, those that hold the most. */
static int order(const void *a, const void *b) {
    const struct plan_group *x = a, *y = b;
    count fx = group_flops(x), fy = group_flops(y);
    if (fx != fy) return fx < fy ? 1 : -1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    const int by_name = strcmp(x->name, y->name);
    return by_name ? by_name : (x->dtype > y->dtype) - (x->dtype < y->dtype);
}

bool groups_by_module(struct plan_groups *g, const struct price *p, enum step_kind kind) {
    const tl_ledger *l = p->kind[kind].ledger;
    *g = (struct plan_groups){0};
    for (size_t i = 0; l && i < l->n_rows; i++) {
        char name[64];
        group_module_name(name, sizeof name, path_text(l->rows[i].key.path));
        struct plan_group *group = group_of(g, name, TL_DTYPE_COUNT);
        if (!group) return false;
        row_add(group, &l->rows[i]);
    }
    if (!add_cells(g, price_window(p, p->peak_kind))) return false;
    if (g->n) qsort(g->group, g->n, sizeof *g->group, order);
    return true;
}

bool groups_by_op(struct plan_groups *g, const struct price *p, enum step_kind kind) {
    const tl_ledger *l = p->kind[kind].ledger;
    *g = (struct plan_groups){0};
    for (size_t i = 0; l && i < l->n_rows; i++) {
        struct plan_group *group = group_of(g, l->rows[i].key.op, (tl_dtype)l->rows[i].key.dtype);
        if (!group) return false;
        row_add(group, &l->rows[i]);
    }
    if (g->n) qsort(g->group, g->n, sizeof *g->group, order);
    return true;
}

void groups_free(struct plan_groups *g) {
    memory_free(g->group);
    *g = (struct plan_groups){0};
}

bool group_peak_find(const struct price *p, struct group_peak *peak) {
    const struct held_window *w = price_window(p, p->peak_kind);
    struct plan_groups g = {0};
    uint64_t most[TL_PURPOSE_COUNT] = {0};
    bool ok = w && add_cells(&g, w);
    *peak = (struct group_peak){0};
    for (int purpose = 0; ok && purpose < TL_PURPOSE_COUNT; purpose++) {
        peak->bytes[purpose] = w->peak_by_purpose[purpose];
        for (size_t i = 0; i < g.n; i++) {
            if (g.group[i].held[purpose] <= most[purpose]) continue;
            most[purpose] = g.group[i].held[purpose];
            snprintf(peak->module[purpose], sizeof peak->module[purpose], "%.47s", g.group[i].name);
        }
    }
    groups_free(&g);
    return ok;
}

tl_purpose group_peak_growth(const struct group_peak *from, const struct group_peak *to) {
    int best = 0;
    double most = -1;
    for (int i = 0; i < TL_PURPOSE_COUNT; i++) {
        double growth = (double)to->bytes[i] - (from ? (double)from->bytes[i] : 0);
        if (growth > most) most = growth, best = i;
    }
    return (tl_purpose)best;
}
