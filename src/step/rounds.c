#include "step/rounds.h"

#include "account/ledger.h"
#include "base/memory.h"
#include "step/cycle.h"

bool rounds_are_all_run;

/* The ledger has the cost of the rounds since the cycle's mark. */
struct search {
    struct cycle cycle;
    struct pool_layout now;
    tl_ledger *since;
};

/* After a round. `is_cycle`: everything is as it was cycle.n_since rounds ago. */
static bool search_step(struct search *s, const struct trainer *t, bool *is_cycle) {
    enum cycle_news news = cycle_layout_read(t, &s->now) ? cycle_look(&s->cycle, &s->now) : CYCLE_FAILED;
    *is_cycle = news == CYCLE_FOUND;
    if (news == CYCLE_FAILED || news == CYCLE_NONE) return news == CYCLE_NONE;
    if (s->since && !tl_ledger_end(s->since)) return false;
    if (*is_cycle) return true;
    tl_ledger_free(s->since);
    s->since = tl_ledger_begin("rounds");
    return s->since != NULL;
}

static void search_end(struct search *s) {
    tl_ledger_free(s->since);
    memory_free(s->now.words);
    cycle_end(&s->cycle);
}

bool rounds_run(struct trainer *t, int64_t n, bool (*round)(struct trainer *, int64_t, void *), void *context) {
    struct search search = {0};
    bool ok = true, is_cycle = false, is_watched = !device_has_data(t->device) && !rounds_are_all_run;
    for (int64_t k = 0; ok && k < n; k++) {
        ok = round(t, k, context) && (!is_watched || n - k < 3 || search_step(&search, t, &is_cycle));
        if (!ok || !is_cycle) continue;
        int64_t times = (n - 1 - k) / search.cycle.n_since; /* whole cycles; the remainder is run */
        ok = ledger_repeat(search.since, (uint64_t)times);
        k += times * search.cycle.n_since;
        is_watched = is_cycle = false;
    }
    search_end(&search);
    return ok;
}
