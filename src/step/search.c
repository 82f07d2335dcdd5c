#include "step/search.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

struct search {
    const struct search_question *q;
    struct search_point low, high; /* size 0: none is known */
    struct {
        int64_t size;
        uint64_t block_bytes;
    } seen[SEARCH_MOST];
    int n;
    bool is_whole; /* the whole run is priced at every size, not only at the end */
};

static bool look(struct search *s, int64_t size, struct search_point *point) {
    if (s->n == SEARCH_MOST) return error_set(TL_ERROR_USE, "fit: the search did not end after %d prices", s->n);
    if (!s->q->look(s->q->context, size, s->is_whole, point)) return false;
    s->seen[s->n].size = size;
    s->seen[s->n++].block_bytes = point->block_bytes;
    return true;
}

static bool place(struct search *s, int64_t size) {
    struct search_point point;
    if (!look(s, size, &point)) return false;
    if (point.fits) s->low = point;
    else s->high = point;
    return true;
}

/* From the run's own size: up by doubling while it fits, or down by halving until it does. */
static bool bracket(struct search *s) {
    const struct search_question *q = s->q;
    int64_t size = q->first - q->first % q->unit;
    if (size < q->unit) size = q->unit;
    if (!place(s, size)) return false;
    while (s->low.size && !s->high.size && s->low.size < q->most) {
        size = s->low.size * 2 <= q->most ? s->low.size * 2 : q->most - q->most % q->unit;
        if (size == s->low.size) break;
        if (!place(s, size)) return false;
    }
    while (!s->low.size && s->high.size > q->unit) {
        size = s->high.size / 2 - s->high.size / 2 % q->unit;
        if (!place(s, size < q->unit ? q->unit : size)) return false;
    }
    return true;
}

/* Bytes are nearly linear in most sizes. The first guess is where the line meets the limit, the second the neighbour
 * of a guess, and the third the middle, so that a bent line costs no more than bisection. */
static int64_t guess(const struct search *s, int round, int64_t last) {
    int64_t unit = s->q->unit, gap = (s->high.size - s->low.size) / unit;
    double limit = (double)s->q->limit_bytes, low = (double)s->low.bytes, high = (double)s->high.bytes;
    bool is_line = !s->high.is_final && high > low && limit >= low;
    if (round % 3 == 1) return last == s->low.size ? last + unit : last - unit;
    int64_t steps = (int64_t)((round % 3 == 0 && is_line ? (limit - low) / (high - low) : 0.5) * (double)gap);
    steps = steps < 1 ? 1 : steps > gap - 1 ? gap - 1 : steps;
    return s->low.size + steps * unit;
}

/* Tries the sizes above one by one, until the requests alone are too many. One that fits is the new best. */
static bool prove(struct search *s, bool *is_proven) {
    struct search_point point = s->high;
    for (int i = 0; i < s->q->n_above; i++) {
        *is_proven = point.is_final || (!point.fits && point.block_bytes > s->q->limit_bytes);
        if (*is_proven) return true;
        if (!look(s, point.size + s->q->unit, &point)) return false;
        bool is_next = s->high.size == s->low.size + s->q->unit; /* of the best so far */
        if (point.fits) s->low = point;
        else if (!is_next || s->high.size <= s->low.size) s->high = point;
    }
    return true;
}

static int by_size(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool is_monotone(struct search *s) {
    qsort(s->seen, (size_t)s->n, sizeof *s->seen, by_size);
    for (int i = 1; i < s->n; i++)
        if (s->seen[i].block_bytes < s->seen[i - 1].block_bytes) return false;
    return true;
}

static bool search(struct search *s, bool *is_proven) {
    const struct search_question *q = s->q;
    bool ok = bracket(s);
    int64_t last = 0;
    for (int round = 0; ok && s->low.size && s->high.size && s->high.size - s->low.size > q->unit; round++)
        ok = place(s, last = guess(s, round, last));
    *is_proven = true;
    return ok && (!s->high.size || prove(s, is_proven));
}

/* The whole run has the last word on the two sizes that matter. */
static bool confirm(struct search *s, bool *agrees) {
    const struct search_question *q = s->q;
    int64_t low = s->low.size, high = s->high.size;
    *agrees = true;
    if (!q->has_whole || s->is_whole) return true;
    bool ok = (!low || q->look(q->context, low, true, &s->low)) &&
              (!high || s->high.is_refused || q->look(q->context, high, true, &s->high));
    *agrees = ok && (!low || s->low.fits) && (!high || !s->high.fits);
    return ok;
}

bool search_largest(const struct search_question *q, struct search_answer *answer) {
    struct search *s = memory_new(sizeof *s);
    if (!s) return error_memory(sizeof *s, "a search");
    *answer = (struct search_answer){0};
    bool agrees = false, ok = true;
    for (int pass = 0; ok && pass < 2 && !agrees; pass++) {
        *s = (struct search){.q = q, .is_whole = pass == 1};
        ok = search(s, &answer->is_proven) && confirm(s, &agrees);
        answer->n_priced += s->n;
    }
    answer->best = s->low;
    answer->next = s->high;
    answer->is_monotone = ok && is_monotone(s);
    memory_free(s);
    return ok;
}
