/* napkin_frontier.c: best sizes from curves, without a law of the loss.
 *
 * A valley is a parabola of log loss over log x, fitted by least squares with Huber's weights; its bottom is the
 * best x. The bottoms of several valleys lie on a power law, a line in logarithms. Intervals come from a bootstrap:
 * residuals are drawn again for parabolas, whole curves for envelopes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/rng.h"
#include "plan/napkin.h"

/* ---- A parabola ---- */

struct parabola {
    double c[3], middle; /* y = c0 + c1 t + c2 t^2, t = x - middle */
};

static double parabola_at(const struct parabola *p, double x) {
    const double t = x - p->middle;
    return p->c[0] + t * (p->c[1] + t * p->c[2]);
}

/* Cramer's rule for the normal equations of three unknowns. False: fewer than three x. */
static bool parabola_solve(const double s[5], const double r[3], double c[3]) {
    const double m[3][3] = {{s[0], s[1], s[2]}, {s[1], s[2], s[3]}, {s[2], s[3], s[4]}};
    const double minor[3] = {m[1][1] * m[2][2] - m[1][2] * m[2][1], m[1][0] * m[2][2] - m[1][2] * m[2][0],
                             m[1][0] * m[2][1] - m[1][1] * m[2][0]};
    const double whole = m[0][0] * minor[0] - m[0][1] * minor[1] + m[0][2] * minor[2];
    if (!(fabs(whole) > 1e-12 * s[0] * s[2] * s[4])) return false;
    for (int k = 0; k < 3; k++) {
        double a[3][3];
        memcpy(a, m, sizeof a);
        for (int i = 0; i < 3; i++) a[i][k] = r[i];
        c[k] = (a[0][0] * (a[1][1] * a[2][2] - a[1][2] * a[2][1]) - a[0][1] * (a[1][0] * a[2][2] - a[1][2] * a[2][0]) +
                a[0][2] * (a[1][0] * a[2][1] - a[1][1] * a[2][0])) /
               whole;
    }
    return true;
}

static int number_order(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

enum { MOST_IN_VALLEY = 256, WEIGHINGS = 20 };

/* Residuals beyond 1.345 of their scale (by the median) count by their size alone. */
static bool parabola_fit(struct parabola *p, const double *x, const double *y, int n) {
    double weight[MOST_IN_VALLEY], size[MOST_IN_VALLEY];
    memset(p, 0, sizeof *p);
    for (int i = 0; i < n; i++) p->middle += x[i] / n, weight[i] = 1;
    for (int pass = 0; pass < (n > 3 ? WEIGHINGS : 1); pass++) {
        double s[5] = {0}, r[3] = {0};
        for (int i = 0; i < n; i++) {
            const double t = x[i] - p->middle;
            double power = weight[i];
            for (int k = 0; k < 5; k++, power *= t) {
                s[k] += power;
                if (k < 3) r[k] += power * y[i];
            }
        }
        if (!parabola_solve(s, r, p->c)) return false;
        for (int i = 0; i < n; i++) size[i] = fabs(y[i] - parabola_at(p, x[i]));
        qsort(size, (size_t)n, sizeof *size, number_order);
        const double bend = 1.345 * 1.4826 * (size[(n - 1) / 2] + size[n / 2]) / 2;
        for (int i = 0; i < n; i++) {
            const double residual = fabs(y[i] - parabola_at(p, x[i]));
            weight[i] = residual > bend && bend > 0 ? bend / residual : 1;
        }
    }
    return true;
}

/* ---- Valleys ---- */

struct curve {
    double at; /* FLOPs or width, in logarithms as the rest */
    int n;
    double *x, *y, *residual; /* parts of `points` */
};
struct curves {
    struct curve curve[NAPKIN_VALLEYS];
    int n, n_points;
    double *points; /* x of all, y of all, residuals, what was drawn */
};

static bool valley_of(const struct curve *c, struct napkin_valley *v, struct parabola *p) {
    double low = INFINITY, high = -INFINITY;
    if (!parabola_fit(p, c->x, c->y, c->n)) return false;
    for (int i = 0; i < c->n; i++) {
        low = fmin(low, c->x[i]);
        high = fmax(high, c->x[i]);
    }
    const double bottom = p->middle - p->c[1] / (2 * p->c[2]);
    v->at = exp(c->at);
    v->n_runs = c->n;
    v->is_edge = !(p->c[2] > 0 && bottom >= low && bottom <= high);
    v->best = v->is_edge ? exp(p->c[1] > 0 ? low : high) : exp(bottom);
    v->least = exp(parabola_at(p, log(v->best)));
    return true;
}

/* The line through the bottoms. False: fewer than two. */
static bool line_fit(struct napkin_frontier *f) {
    double x = 0, y = 0, xx = 0, xy = 0;
    f->n_used = 0;
    for (int i = 0; i < f->n_valleys; i++) {
        const struct napkin_valley *v = &f->valley[i];
        if (v->is_edge) continue;
        f->n_used++;
        x += log(v->at), y += log(v->best);
    }
    if (f->n_used < 2) return false;
    x /= f->n_used, y /= f->n_used;
    for (int i = 0; i < f->n_valleys; i++) {
        const struct napkin_valley *v = &f->valley[i];
        if (v->is_edge) continue;
        xx += (log(v->at) - x) * (log(v->at) - x);
        xy += (log(v->at) - x) * (log(v->best) - y);
    }
    if (!(xx > 0)) return false;
    f->exponent = xy / xx;
    f->factor = exp(y - f->exponent * x);
    return true;
}

static bool valleys_find(const struct curves *all, struct napkin_frontier *f) {
    f->n_valleys = 0;
    for (int i = 0; i < all->n; i++) {
        const struct curve *c = &all->curve[i];
        struct parabola p;
        const bool ok = valley_of(c, &f->valley[f->n_valleys], &p);
        f->n_valleys += ok;
        for (int k = 0; k < c->n; k++) c->residual[k] = ok ? c->y[k] - parabola_at(&p, c->x[k]) : 0;
    }
    return line_fit(f);
}

/* Residuals of all curves, larger as parabolas have taken three degrees of freedom from each. */
static bool valleys_draw(struct curves *all, struct napkin_frontier *f) {
    const int n = all->n_points, freedom = n - 3 * all->n;
    const size_t count = (size_t)n;
    struct napkin_frontier *again = freedom > 0 ? memory_new(sizeof *again) : NULL;
    double *said = again ? memory_new(2 * count * sizeof *said) : NULL, *residual = said + count;
    int64_t *drawn = said ? memory_new(count * sizeof *drawn) : NULL;
    const bool ok = freedom <= 0 || drawn;
    double *y = all->points + count, *left = y + count;
    for (int i = 0; drawn && i < n; i++) {
        said[i] = y[i] - left[i];
        residual[i] = left[i] * sqrt(n / (double)freedom);
    }
    for (int k = 0; drawn && k < NAPKIN_DRAWS; k++) {
        rng_fill_integers(drawn, n, (struct rng_key){.seed = 2, .stream = (uint64_t)k}, 0, 0, n);
        for (int i = 0; i < n; i++) y[i] = said[i] + residual[drawn[i]];
        if (!valleys_find(all, again)) continue;
        f->draw[f->n_draws][0] = again->exponent;
        f->draw[f->n_draws++][1] = again->factor;
    }
    memory_free(drawn);
    memory_free(said);
    memory_free(again);
    return ok || error_memory(count * 4 * sizeof(double), "the bootstrap of a frontier");
}

/* ---- Curves of runs ---- */

struct sorted {
    double at, x, y;
};
static int sorted_order(const void *a, const void *b) {
    const struct sorted *p = a, *q = b;
    if (p->at != q->at) return (p->at > q->at) - (p->at < q->at);
    return (p->x > q->x) - (p->x < q->x);
}

/* Neighbours within `width` of the first of a curve belong to it; curves of fewer than three x are left out. */
static void curves_make(struct curves *all, struct sorted *s, int n, double width) {
    double *x = all->points, *y = x + n, *residual = y + n;
    qsort(s, (size_t)n, sizeof *s, sorted_order);
    for (int i = 0, end; i < n && all->n < NAPKIN_VALLEYS; i = end) {
        struct curve c = {.x = x + all->n_points, .y = y + all->n_points, .residual = residual + all->n_points};
        int n_x = 0;
        for (end = i; end < n && s[end].at <= s[i].at + width; end++) {
            bool is_new = true;
            for (int k = i; k < end; k++) is_new = is_new && fabs(s[k].x - s[end].x) > 1e-6;
            n_x += is_new;
            if (c.n == MOST_IN_VALLEY) continue;
            c.at += s[end].at;
            c.x[c.n] = s[end].x;
            c.y[c.n++] = s[end].y;
        }
        if (n_x < 3) continue;
        c.at /= c.n;
        all->curve[all->n++] = c;
        all->n_points += c.n;
    }
}

static bool runs_are_positive(const struct napkin_run *runs, int n) {
    for (int i = 0; i < n; i++)
        if (!(runs[i].parameters > 0 && runs[i].tokens > 0 && runs[i].loss > 0 && runs[i].parameters < 1e30 &&
              runs[i].tokens < 1e30 && runs[i].loss < 1e6))
            return error_set(TL_ERROR_USE, "run %d: %g, %g, loss %g (need positive numbers)", i + 1, runs[i].parameters,
                             runs[i].tokens, runs[i].loss);
    return true;
}

static bool frontier_of(const struct napkin_run *runs, int n, bool has_rates, double width, const char *what,
                        struct napkin_frontier *f) {
    const size_t count = (size_t)n + 1;
    struct curves *all = memory_new(sizeof *all);
    struct sorted *s = memory_new(count * sizeof *s);
    memset(f, 0, sizeof *f);
    if (all) memset(all, 0, sizeof *all);
    if (!runs_are_positive(runs, n)) return memory_free(all), memory_free(s), false;
    bool ok = all && s && (all->points = memory_new(3 * count * sizeof(double)));
    if (!ok) error_memory(count * sizeof *s, "the runs of a frontier");
    for (int i = 0; ok && i < n; i++) {
        const struct napkin_run *r = &runs[i];
        s[i] = (struct sorted){log(has_rates ? r->parameters : 6 * r->parameters * r->tokens),
                               log(has_rates ? r->tokens : r->parameters), log(r->loss)};
    }
    if (ok) curves_make(all, s, n, width);
    if (ok && !valleys_find(all, f))
        ok = error_set(TL_ERROR_USE, "%d of %d curves have their minimum inside (need 2 or more, each of 3 or more %s)",
                       f->n_used, f->n_valleys, what);
    if (ok) { /* its points are those of the curves now: fewer than there were runs */
        double *moved = all->points;
        const int kept = all->n_points;
        memmove(moved + kept, moved + n, (size_t)kept * sizeof *moved);
        memmove(moved + 2 * kept, moved + 2 * n, (size_t)kept * sizeof *moved);
        for (int i = 0, at = 0; i < all->n; at += all->curve[i++].n) {
            struct curve *c = &all->curve[i];
            c->x = moved + at, c->y = moved + kept + at, c->residual = moved + 2 * kept + at;
        }
        ok = valleys_draw(all, f);
    }
    if (all) memory_free(all->points);
    memory_free(all);
    memory_free(s);
    return ok;
}

bool napkin_isoflop(const struct napkin_run *runs, int n, struct napkin_frontier *f) {
    return frontier_of(runs, n, false, 0.2, "sizes of about the same FLOPs", f);
}

bool napkin_rates(const struct napkin_run *runs, int n, struct napkin_frontier *f) {
    return frontier_of(runs, n, true, 1e-9, "learning rates of one width", f);
}

/* ---- The envelope of curves of training ---- */

struct track { /* a size: runs first to first + n, by tokens */
    double size;
    int first, n;
};

static int run_order(const void *x, const void *y) {
    const struct napkin_run *a = x, *b = y;
    if (a->parameters != b->parameters) return (a->parameters > b->parameters) - (a->parameters < b->parameters);
    return (a->tokens > b->tokens) - (a->tokens < b->tokens);
}

/* Log loss at some tokens, between the points of a track; INFINITY beyond them. */
static double track_at(const struct track *t, const struct napkin_run *runs, double tokens) {
    const struct napkin_run *r = runs + t->first;
    for (int i = 0; i + 1 < t->n; i++) {
        if (tokens < r[i].tokens || tokens > r[i + 1].tokens) continue;
        const double whole = log(r[i + 1].tokens / r[i].tokens),
                     part = whole > 0 ? log(tokens / r[i].tokens) / whole : 0;
        return (1 - part) * log(r[i].loss) + part * log(r[i + 1].loss);
    }
    return INFINITY;
}

/* At budgets across those of all tracks, the size of least loss. It is at an edge if no smaller or no larger size was
 * trained that far. */
static bool envelope_find(const struct track *tracks, int n, const struct napkin_run *runs, double low, double high,
                          struct napkin_frontier *f) {
    f->n_valleys = 0;
    for (int i = 0; i < NAPKIN_VALLEYS; i++) {
        const double flops = exp(log(low) + (log(high) - log(low)) * (i + 0.5) / NAPKIN_VALLEYS);
        struct napkin_valley v = {.at = flops, .least = INFINITY};
        double smallest = INFINITY, largest = 0;
        for (int t = 0; t < n; t++) {
            const double loss = track_at(&tracks[t], runs, flops / 6 / tracks[t].size);
            if (!isfinite(loss)) continue;
            v.n_runs++;
            smallest = fmin(smallest, tracks[t].size);
            largest = fmax(largest, tracks[t].size);
            if (loss < v.least) v.least = loss, v.best = tracks[t].size;
        }
        v.is_edge = v.best == smallest || v.best == largest;
        v.least = exp(v.least);
        if (v.n_runs >= 3) f->valley[f->n_valleys++] = v;
    }
    return line_fit(f);
}

enum { MOST_TRACKS = 256 };

static int tracks_make(const struct napkin_run *runs, int n, struct track *tracks) {
    int n_tracks = 0;
    for (int i = 0; i < n; i++) {
        if (!n_tracks || tracks[n_tracks - 1].size != runs[i].parameters) {
            if (n_tracks == MOST_TRACKS) break;
            tracks[n_tracks++] = (struct track){runs[i].parameters, i, 0};
        }
        tracks[n_tracks - 1].n++;
    }
    return n_tracks;
}

static bool envelope_draw(const struct track *tracks, int n, const struct napkin_run *runs, double low, double high,
                          struct napkin_frontier *f) {
    struct napkin_frontier *again = memory_new(sizeof *again);
    for (int k = 0; again && k < NAPKIN_DRAWS; k++) {
        int64_t drawn[MOST_TRACKS];
        struct track some[MOST_TRACKS];
        rng_fill_integers(drawn, n, (struct rng_key){.seed = 3, .stream = (uint64_t)k}, 0, 0, n);
        for (int i = 0; i < n; i++) some[i] = tracks[drawn[i]];
        if (!envelope_find(some, n, runs, low, high, again)) continue;
        f->draw[f->n_draws][0] = again->exponent;
        f->draw[f->n_draws++][1] = again->factor;
    }
    memory_free(again);
    return again || error_memory(sizeof *again, "the bootstrap of a frontier");
}

bool napkin_envelope(const struct napkin_run *given, int n, struct napkin_frontier *f) {
    struct track tracks[MOST_TRACKS];
    double low = INFINITY, high = 0;
    memset(f, 0, sizeof *f);
    if (!runs_are_positive(given, n)) return false;
    struct napkin_run *runs = memory_new(((size_t)n + 1) * sizeof *runs);
    if (!runs) return error_memory((size_t)n * sizeof *runs, "the runs of a frontier");
    if (n) memcpy(runs, given, (size_t)n * sizeof *runs);
    qsort(runs, (size_t)n, sizeof *runs, run_order);
    const int n_tracks = tracks_make(runs, n, tracks);
    for (int i = 0; i < n; i++) {
        low = fmin(low, 6 * runs[i].parameters * runs[i].tokens);
        high = fmax(high, 6 * runs[i].parameters * runs[i].tokens);
    }
    bool ok = envelope_find(tracks, n_tracks, runs, low, high, f) ||
              error_set(TL_ERROR_USE,
                        "%d sizes: at no two budgets is the best size between two others (need curves of 3 or more "
                        "sizes that reach the same FLOPs)",
                        n_tracks);
    ok = ok && envelope_draw(tracks, n_tracks, runs, low, high, f);
    memory_free(runs);
    return ok;
}

/* ---- Intervals ---- */

bool napkin_frontier_range(const struct napkin_frontier *f, double at, double level, double range[2]) {
    double all[NAPKIN_DRAWS];
    if (f->n_draws < NAPKIN_DRAWS / 2) return false;
    for (int k = 0; k < f->n_draws; k++) all[k] = at > 0 ? f->draw[k][1] * pow(at, f->draw[k][0]) : f->draw[k][0];
    napkin_interval(all, f->n_draws, level, range);
    return true;
}
