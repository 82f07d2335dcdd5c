/* schedule.c: the learning rate of a step, as a share of its peak: a function of the step alone, so that a run that
 * resumes needs no state. */
#include <math.h>

#include "base/error.h"

static const char *const names[TL_SCHEDULE_KIND_COUNT] = {"constant", "linear", "cosine", "wsd", "inverse-sqrt"};

const char *tl_schedule_kind_name(tl_schedule_kind kind) {
    return (unsigned)kind < TL_SCHEDULE_KIND_COUNT ? names[kind] : NULL;
}

bool tl_schedule_check(const tl_schedule *s) {
    if (!s) return error_set(TL_ERROR_USE, "tl_schedule_check: got NULL instead of a schedule");
    if ((unsigned)s->kind >= TL_SCHEDULE_KIND_COUNT)
        return error_set(TL_ERROR_USE, "schedule: %d is not a kind", (int)s->kind);
    if (s->warmup_steps < 0 || s->total_steps < 0 || s->decay_steps < 0)
        return error_set(TL_ERROR_USE,
                         "schedule: steps are %lld for warm-up, %lld for decay, %lld in all (need 0 or more)",
                         (long long)s->warmup_steps, (long long)s->decay_steps, (long long)s->total_steps);
    if (!(s->min_factor >= 0 && s->min_factor <= 1))
        return error_set(TL_ERROR_USE, "schedule: min_factor is %g (need 0 to 1)", s->min_factor);
    bool has_end = s->kind == TL_SCHEDULE_LINEAR || s->kind == TL_SCHEDULE_COSINE || s->kind == TL_SCHEDULE_WSD;
    if (has_end && s->warmup_steps > s->total_steps)
        return error_set(TL_ERROR_USE, "schedule: %lld steps of warm-up exceed the total of %lld",
                         (long long)s->warmup_steps, (long long)s->total_steps);
    return true;
}

/* The position of x between first (0) and last (1). */
static double share(int64_t x, int64_t first, int64_t last) {
    if (x >= last) return 1;
    return x <= first ? 0 : (double)(x - first) / (double)(last - first);
}

/* With w steps of warm-up, n in all, d of decay, least factor a; s counts from 0:
 *   s < w         (s + 1) / (w + 1): never 0, and 1 at s = w
 *   linear        1 - (1-a) t                        t = (s-w) / (n-w), at most 1
 *   cosine        a + (1-a) (1 + cos(pi t)) / 2
 *   wsd           1 - (1-a) u                        u = (s-(n-d)) / d, from 0 to 1; the plateau begins after warm-up
 *   inverse-sqrt  max(a, sqrt(w' / s'))              w' = max(w, 1), s' = max(s, w')
 */
double tl_schedule_factor(const tl_schedule *s, int64_t step) {
    if (!error_given(s, "tl_schedule_factor", "a schedule")) return 0;
    const double fall = 1 - s->min_factor;
    const int64_t w = s->warmup_steps, n = s->total_steps;
    if (step < 0) step = 0;
    if (step < w) return (double)(step + 1) / (double)(w + 1);
    switch (s->kind) {
    case TL_SCHEDULE_LINEAR:
        return 1 - fall * share(step, w, n);
    case TL_SCHEDULE_COSINE:
        return s->min_factor + fall * (1 + cos(3.14159265358979323846 * share(step, w, n))) / 2;
    case TL_SCHEDULE_WSD:
        return 1 - fall * share(step, n - s->decay_steps > w ? n - s->decay_steps : w, n);
    case TL_SCHEDULE_INVERSE_SQRT: {
        const double from = w > 1 ? (double)w : 1, now = (double)step > from ? (double)step : from;
        const double factor = sqrt(from / now);
        return factor > s->min_factor ? factor : s->min_factor;
    }
    default:
        return 1;
    }
}
