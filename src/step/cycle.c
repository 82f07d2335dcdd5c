#include "step/cycle.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/tensor.h"

static uint64_t place_of(const tl_tensor *x) { return x ? (uint64_t)(uintptr_t)x->storage->block : 0; }

static bool places_add(const struct trainer *t, bool ok, struct pool_layout *layout) {
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

bool cycle_layout_read(const struct trainer *t, struct pool_layout *layout) {
    return places_add(t, pool_layout_read(t->device->pool, layout), layout);
}
bool cycle_blocks_read(const struct trainer *t, struct pool_layout *layout) {
    return places_add(t, pool_blocks_read(t->device->pool, layout), layout);
}

bool cycle_is_same(const struct pool_layout *a, const struct pool_layout *b) {
    return a->n == b->n && (!a->n || !memcmp(a->words, b->words, a->n * sizeof *a->words));
}

enum cycle_news cycle_look(struct cycle *c, const struct pool_layout *now) {
    c->n_since++;
    if (c->most && cycle_is_same(now, &c->mark)) return CYCLE_FOUND;
    if (c->n_since < c->most) return CYCLE_NONE;
    if (!pool_layout_copy(&c->mark, now)) {
        error_memory(now->n * sizeof *now->words, "the layout of a pool");
        return CYCLE_FAILED;
    }
    c->n_since = 0;
    c->most = c->most ? 2 * c->most : 2;
    return CYCLE_MARKED;
}

void cycle_end(struct cycle *c) {
    memory_free(c->mark.words);
    *c = (struct cycle){0};
}
