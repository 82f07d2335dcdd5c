#include "step/cycle.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/tensor.h"

static uint64_t place_of(const tl_tensor *x) { return x ? (uint64_t)(uintptr_t)x->storage->block : 0; }

static bool layout_read(const struct trainer *t, struct pool_layout *layout) {
    bool ok = pool_layout_read(t->device->pool, layout);
    for (int i = 0; ok && i < t->n_parameters; i++)
        ok = pool_layout_add(layout, place_of(t->parameters[i]->grad)) &&
             pool_layout_add(layout, place_of(t->sums ? t->sums[i] : NULL));
    for (int i = 0; ok && i < t->buckets.n; i++) {
        const struct bucket *k = &t->buckets.at[i];
        ok = pool_layout_add(layout, place_of(k->grad));
        for (int m = 0; ok && m < k->n_members; m++) ok = pool_layout_add(layout, place_of(k->members[m].sum));
    }
    return ok || error_memory(layout->n * sizeof *layout->words, "the layout of a pool");
}

static bool is_same(const struct pool_layout *a, const struct pool_layout *b) {
    return a->n == b->n && !memcmp(a->words, b->words, a->n * sizeof *a->words);
}

enum cycle_news cycle_look(struct cycle *c, const struct trainer *t) {
    if (!layout_read(t, &c->now)) return CYCLE_FAILED;
    c->n_since++;
    if (c->most && is_same(&c->now, &c->mark)) return CYCLE_FOUND;
    if (c->n_since < c->most) return CYCLE_NONE;
    const struct pool_layout before = c->mark;
    c->mark = c->now;
    c->now = before;
    c->n_since = 0;
    c->most = c->most ? 2 * c->most : 2;
    return CYCLE_MARKED;
}

void cycle_end(struct cycle *c) {
    memory_free(c->mark.words);
    memory_free(c->now.words);
    *c = (struct cycle){0};
}
