#include "train/rounds.h"

#include <string.h>

#include "account/ledger.h"
#include "base/error.h"
#include "base/memory.h"
#include "tensor/pool.h"
#include "tensor/tensor.h"

bool rounds_are_all_run;

static uint64_t place_of(const tl_tensor *x) { return x ? (uint64_t)(uintptr_t)x->storage->block : 0; }

/* The pool's layout, and which of its blocks each gradient and each sum has. */
static bool state_read(const struct trainer *t, struct pool_layout *state) {
    bool ok = pool_layout_read(t->device->pool, state);
    for (int i = 0; ok && i < t->n_parameters; i++)
        ok = pool_layout_add(state, place_of(t->parameters[i]->grad)) &&
             pool_layout_add(state, place_of(t->sums ? t->sums[i] : NULL));
    return ok || error_memory(state->n * sizeof *state->words, "the layout of a pool");
}

static bool is_same(const struct pool_layout *a, const struct pool_layout *b) {
    return a->n == b->n && !memcmp(a->words, b->words, a->n * sizeof *a->words);
}

/* A cycle is looked for as Brent does: `mark` is the state after some round, and rounds are compared with it; when as many have passed as
 * before the mark was set, the newest state becomes the mark. Two states are kept, however long the cycle. The bracket has what
 * the rounds since the mark cost. */
struct search {
    struct pool_layout mark, now;
    tl_ledger *since;
    int64_t n_since, most; /* rounds since the mark; how many until the next */
};

static bool mark_set(struct search *s) {
    const struct pool_layout before = s->mark;
    if (s->since && !tl_ledger_end(s->since)) return false;
    tl_ledger_free(s->since);
    s->mark = s->now;
    s->now = before;
    s->n_since = 0;
    s->most *= 2;
    s->since = tl_ledger_begin("rounds");
    return s->since != NULL;
}

/* After a round. `is_cycle`: everything is as it was n_since rounds ago. */
static bool search_step(struct search *s, const struct trainer *t, bool *is_cycle) {
    if (!state_read(t, &s->now)) return false;
    s->n_since++;
    *is_cycle = s->since && is_same(&s->now, &s->mark);
    if (*is_cycle) return tl_ledger_end(s->since);
    return (s->since && s->n_since < s->most) || mark_set(s);
}

static void search_end(struct search *s) {
    tl_ledger_free(s->since);
    memory_free(s->mark.words);
    memory_free(s->now.words);
}

bool rounds_run(struct trainer *t, int64_t n, bool (*round)(struct trainer *, int64_t, void *), void *context) {
    struct search search = {.most = 1};
    bool ok = true, is_cycle = false, is_watched = !device_has_data(t->device) && !rounds_are_all_run;
    for (int64_t k = 0; ok && k < n; k++) {
        ok = round(t, k, context) && (!is_watched || n - k < 3 || search_step(&search, t, &is_cycle));
        if (!ok || !is_cycle) continue;
        int64_t times = (n - 1 - k) / search.n_since; /* whole cycles; what is left of one is run */
        ok = ledger_repeat(search.since, (uint64_t)times);
        k += times * search.n_since;
        is_watched = is_cycle = false;
    }
    search_end(&search);
    return ok;
}
