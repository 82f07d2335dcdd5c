#include "step/search.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

struct search {
    const struct search_question *q;
    struct search_point low, high; /* size 0: none is known */
    struct {
        int64_t size;
        uint64_t block_bytes, bytes; /* bytes 0: not known, or not what decided */
    } seen[SEARCH_MOST];
    int n;
};

static bool look(struct search *s, int64_t size, struct search_point *point) {
    if (s->n == SEARCH_MOST) return error_set(TL_ERROR_USE, "fit: the search did not end after %d prices", s->n);
    if (!s->q->look(s->q->context, size, point)) return false;
    s->seen[s->n].size = size;
    s->seen[s->n].block_bytes = point->block_bytes;
    s->seen[s->n++].bytes = point->is_final ? 0 : point->bytes;
    return true;
}

/* Where a size fits only because the pool returns what it does not use, its bytes say nothing about the next. There
 * sizes are only found to fit or not, without their bytes. */
static bool place(struct search *s, int64_t size) {
    const struct search_question *q = s->q;
    const bool is_tight = s->low.size && (!s->low.block_bytes || s->low.bytes > q->limit_bytes);
    struct search_point point;
    if (!(is_tight && q->fits ? q->fits(q->context, size, &point) : look(s, size, &point))) return false;
    if (point.fits) s->low = point;
    else s->high = point;
    return true;
}

/* A size that was only found to fit, or not, is looked at after all. */
static bool complete(struct search *s, struct search_point *point) {
    return !point->size || point->block_bytes || look(s, point->size, point);
}

/* ---- Where the bytes meet the limit ---- */

/* Requests by size, through the points nearest the limit: in proportion to the size through one, a line through two,
 * and a parabola through three, in Newton's form: y = y0 + y01 (x - x0) + y012 (x - x0)(x - x1). Requests of
 * batches, sequences and layers grow along lines, those of widths along parabolas; none bends down. Reserved bytes
 * are rounded, and taken to be as much more than the requests as at the nearest point. */
struct curve {
    double x[3], y0, y01, y012;
    double limit; /* of requests */
};

/* The three known points whose reserved bytes are nearest the limit. */
static int nearest(const struct search *s, int at[3]) {
    const double limit = (double)s->q->limit_bytes;
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (!s->seen[i].bytes) continue;
        const double apart = fabs((double)s->seen[i].bytes - limit);
        int k = n < 3 ? n++ : 3;
        for (; k > 0 && apart < fabs((double)s->seen[at[k - 1]].bytes - limit); k--)
            if (k < 3) at[k] = at[k - 1];
        if (k < 3) at[k] = i;
    }
    return n;
}

static bool curve_find(const struct search *s, struct curve *c) {
    int at[3];
    double y[3];
    const int n = s->q->limit_bytes ? nearest(s, at) : 0;
    if (!n) return false;
    for (int i = 0; i < n; i++) c->x[i] = (double)s->seen[at[i]].size, y[i] = (double)s->seen[at[i]].block_bytes;
    c->y0 = y[0];
    c->y01 = n > 1 ? (y[1] - y[0]) / (c->x[1] - c->x[0]) : y[0] / c->x[0];
    c->y012 = n > 2 ? fmax(((y[2] - y[1]) / (c->x[2] - c->x[1]) - c->y01) / (c->x[2] - c->x[0]), 0) : 0;
    if (n < 2) c->x[1] = c->x[0];
    c->limit = (double)s->q->limit_bytes * (y[0] / (double)s->seen[at[0]].bytes);
    return true;
}

static double curve_at(const struct curve *c, double x) {
    return c->y0 + (c->y01 + c->y012 * (x - c->x[1])) * (x - c->x[0]);
}

/* The largest size from `from` to `to`, of those that differ from `from` by whole units, at which the curve is within
 * the limit; `from`, if it is within the limit nowhere. False: nothing is known. */
static bool meeting(const struct search *s, int64_t from, int64_t to, int64_t *size) {
    struct curve curve;
    if (!curve_find(s, &curve)) return false;
    int64_t low = 0, high = (to - from) / s->q->unit + 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        bool fits = curve_at(&curve, (double)(from + middle * s->q->unit)) <= curve.limit;
        *(fits ? &low : &high) = middle;
    }
    *size = from + low * s->q->unit;
    return true;
}

/* From the run's own size to where the curve meets the limit: up while it fits, or down until it does. Where the curve
 * moves by less, strides double. Without a curve sizes double, or halve. */
enum { MOST_TIMES = 16 };
static bool bracket_above(struct search *s) {
    const struct search_question *q = s->q;
    const int64_t most = q->most - q->most % q->unit;
    int64_t stride = q->unit, size;
    while (s->low.size && !s->high.size && s->low.size < most) {
        const int64_t low = s->low.size, to = low < most / MOST_TIMES ? low * MOST_TIMES : most;
        if (!meeting(s, low, to, &size)) size = low > most / 2 ? most : 2 * low;
        if (size < low + stride) size = low + stride, stride *= 2;
        if (!place(s, size < most ? size : most)) return false;
    }
    return true;
}
static bool bracket_below(struct search *s) {
    const int64_t unit = s->q->unit;
    int64_t stride = unit, size;
    while (!s->low.size && s->high.size > unit) {
        const int64_t high = s->high.size;
        if (!meeting(s, unit, high, &size)) size = high / 2 - high / 2 % unit;
        if (size > high - stride) size = high - stride, stride *= 2;
        if (!place(s, size < unit ? unit : size)) return false;
    }
    return true;
}
static bool bracket(struct search *s) {
    int64_t size = s->q->first - s->q->first % s->q->unit;
    return place(s, size < s->q->unit ? s->q->unit : size) && bracket_above(s) && bracket_below(s);
}

/* Where the curve meets the limit, then the neighbour of that; the same once more with what was learnt; then the
 * middle, so that a bent curve costs little more than bisection. */
static int64_t guess(const struct search *s, int round, int64_t last) {
    const int64_t unit = s->q->unit, low = s->low.size, high = s->high.size;
    const bool is_curve = !s->high.is_final && s->low.block_bytes && s->low.bytes <= s->q->limit_bytes;
    int64_t size;
    if (is_curve && round % 5 % 2 == 1) return last == low ? last + unit : last - unit;
    if (!is_curve || round % 5 == 4 || !meeting(s, low, high, &size)) size = low + (high - low) / unit / 2 * unit;
    return size < low + unit ? low + unit : size > high - unit ? high - unit : size;
}

/* How many units above `high` the requests alone are expected to be too many. */
static int64_t hopeless_above(const struct search *s) {
    const struct search_question *q = s->q;
    struct curve curve;
    if (!curve_find(s, &curve)) return 0;
    int64_t low = -1, high = (q->most - s->high.size) / q->unit + 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        bool fits = curve_at(&curve, (double)(s->high.size + middle * q->unit)) <= (double)q->limit_bytes;
        *(fits ? &low : &high) = middle;
    }
    return high;
}

/* Gaps between blocks come and go with size, so that larger sizes may fit again. A few of those whose requests are few
 * enough are tried, the largest first. One that fits is the new `low`, below the last that does not. */
static bool probe(struct search *s, bool *is_found) {
    static const double shares[] = {0.75, 0.5, 0.25, 0.125, 0.0625, 0.03125};
    const struct search_question *q = s->q;
    const int64_t n = hopeless_above(s), first = s->high.size;
    struct search_point above = {.size = first + n * q->unit};
    *is_found = false;
    for (size_t k = 0; q->fits && !s->high.is_final && k < sizeof shares / sizeof *shares && !*is_found; k++) {
        const int64_t units = (int64_t)(shares[k] * (double)n);
        struct search_point point;
        if (units <= q->n_above) break; /* those are tried one by one */
        if (!q->fits(q->context, first + units * q->unit, &point)) return false;
        *is_found = point.fits;
        if (*is_found) s->low = point, s->high = above;
        above = point;
    }
    return true;
}

/* Tries the sizes above one by one, until the requests alone are too many. One that fits is the new best, above which
 * the trials begin again. Whether one fits is found sooner than what it requests, which is looked at only where it can
 * end the search. */
static bool prove(struct search *s, bool *is_proven) {
    const struct search_question *q = s->q;
    const int64_t hopeless = s->high.size + hopeless_above(s) * q->unit;
    struct search_point point = s->high;
    for (int i = 0; i < q->n_above || s->high.size <= s->low.size; i++) {
        const int64_t size = point.size + q->unit;
        *is_proven = point.is_final || (!point.fits && (point.block_bytes > q->limit_bytes || size > q->most));
        if (*is_proven || size > q->most) break;
        if (!(q->fits && size < hopeless ? q->fits(q->context, size, &point) : look(s, size, &point))) return false;
        if (point.fits) s->low = point;
        else if (s->high.size <= s->low.size) s->high = point;
        if (point.fits && s->n < SEARCH_MOST / 2) i = -1;
    }
    /* all sizes up to the largest have been tried */
    if (s->high.size <= s->low.size) s->high = (struct search_point){0};
    return complete(s, &s->low) && complete(s, &s->high);
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

/* Until a size fits and the next does not. */
static bool narrow(struct search *s) {
    bool ok = true;
    int64_t last = 0;
    for (int round = 0; ok && s->low.size && s->high.size && s->high.size - s->low.size > s->q->unit; round++)
        ok = place(s, last = guess(s, round, last));
    return ok && complete(s, &s->low) && complete(s, &s->high);
}

static bool search(struct search *s, bool *is_proven) {
    bool ok = bracket(s) && narrow(s), is_found = s->low.size && s->high.size;
    while (ok && is_found) ok = probe(s, &is_found) && (!is_found || narrow(s));
    *is_proven = true;
    return ok && (!s->high.size || prove(s, is_proven));
}

bool search_largest(const struct search_question *q, struct search_answer *answer) {
    struct search *s = memory_new(sizeof *s);
    if (!s) return error_memory(sizeof *s, "a search");
    *s = (struct search){.q = q};
    *answer = (struct search_answer){0};
    bool ok = search(s, &answer->is_proven);
    answer->n_priced = s->n;
    answer->best = s->low;
    answer->next = s->high;
    answer->is_monotone = ok && is_monotone(s);
    memory_free(s);
    return ok;
}
