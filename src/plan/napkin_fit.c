/* napkin_fit.c: a scaling law through given runs.
 *
 * The law L = E + A / N^alpha + B / D^beta is fitted in the logarithm of the loss, by the Huber loss of the residuals:
 *     sum over runs of huber(log L(N, D) - log loss),   huber(r) = r^2 / 2 up to delta, then delta (|r| - delta / 2)
 * so that a run that went wrong counts in proportion to its distance, not to its square (Hoffmann et al. 2022 use
 * delta = 0.001). With x = log(N/N0), y = log(D/D0) at the runs' geometric mean, log L is the logarithm of a sum of
 * three exponentials,
 *     log L = log(exp(e) + exp(a - alpha x) + exp(b - beta y))
 * whose parameters have one magnitude, and whose derivatives are the shares of the three terms. Levenberg and
 * Marquardt's method goes down from many starts, with weights that make squares of the Huber loss; the best end is the
 * fit.
 *
 * Intervals come from a bootstrap of residuals: the law is fitted again to its own predictions with residuals drawn at
 * random, which keeps the runs' sizes and works for few runs too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/rng.h"
#include "plan/napkin.h"

enum { E_, A_, B_, ALPHA, BETA, N_PARAMETERS };
static const double smallest_exponent = 0.01, largest_exponent = 3, largest_log = 60;

/* One run, as the fit sees it. */
struct sight {
    double x, y, log_loss, residual; /* of the law that was evaluated last */
    double share[3];                 /* of the three terms in its loss */
};
struct problem {
    struct sight *runs;
    int n_runs;
    double alpha, beta; /* > 0: given */
    bool has_B;         /* the term of the data */
    double N0, D0, delta;
    int n_free, free[N_PARAMETERS];
};
struct point {
    double p[N_PARAMETERS], sum; /* e, a, b, alpha, beta */
};

/* Solves a system of size n in place by elimination; false when it is singular. */
static bool solve(double a[5][6], int n) {
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int r = i + 1; r < n; r++)
            if (fabs(a[r][i]) > fabs(a[best][i])) best = r;
        if (!(fabs(a[best][i]) > 1e-300)) return false;
        for (int c = 0; c <= n; c++) {
            double other = a[i][c];
            a[i][c] = a[best][c];
            a[best][c] = other;
        }
        for (int r = 0; r < n; r++) {
            double factor = a[r][i] / a[i][i];
            for (int c = i; r != i && c <= n; c++) a[r][c] -= factor * a[i][c];
        }
    }
    for (int i = 0; i < n; i++) a[i][n] /= a[i][i];
    return true;
}

/* Residuals and shares of every run under a law; the sum that is minimised. */
static double evaluate(struct problem *q, const double *p) {
    double sum = 0;
    for (int i = 0; i < q->n_runs; i++) {
        struct sight *s = &q->runs[i];
        const double term[3] = {p[E_], p[A_] - p[ALPHA] * s->x, p[B_] - p[BETA] * s->y};
        const double most = fmax(term[0], fmax(term[1], term[2]));
        double all = 0;
        for (int k = 0; k < 3; k++) all += s->share[k] = exp(term[k] - most);
        for (int k = 0; k < 3; k++) s->share[k] /= all;
        s->residual = most + log(all) - s->log_loss;
        const double r = fabs(s->residual);
        sum += r <= q->delta ? r * r / 2 : q->delta * (r - q->delta / 2);
    }
    return sum;
}

/* The normal equations of the weighted residuals, for the parameters that are free: J^T W J and -J^T W r. */
static void equations(const struct problem *q, double system[5][6]) {
    memset(system, 0, 5 * sizeof *system);
    for (int i = 0; i < q->n_runs; i++) {
        const struct sight *s = &q->runs[i];
        const double slope[N_PARAMETERS] = {s->share[E_], s->share[A_], s->share[B_], -s->share[A_] * s->x,
                                            -s->share[B_] * s->y};
        const double r = fabs(s->residual), weight = r <= q->delta ? 1 : q->delta / r;
        for (int row = 0; row < q->n_free; row++) {
            const double w = weight * slope[q->free[row]];
            for (int c = 0; c < q->n_free; c++) system[row][c] += w * slope[q->free[c]];
            system[row][q->n_free] -= w * s->residual;
        }
    }
}

/* A step with damping; parameters stay within their bounds. */
static struct point step_from(struct problem *q, const struct point *at, double system[5][6], double damping) {
    struct point next = *at;
    double damped[5][6];
    memcpy(damped, system, sizeof damped);
    for (int i = 0; i < q->n_free; i++) damped[i][i] += damping * (system[i][i] + 1e-12);
    if (!solve(damped, q->n_free)) return (struct point){.sum = INFINITY};
    for (int i = 0; i < q->n_free; i++) {
        const int k = q->free[i];
        const double low = k < ALPHA ? -largest_log : smallest_exponent,
                     high = k < ALPHA ? largest_log : largest_exponent;
        next.p[k] = fmin(fmax(next.p[k] + damped[i][q->n_free], low), high);
    }
    next.sum = evaluate(q, next.p);
    return next;
}

/* At most n_steps down, or until a few gain less than `least` of the sum. */
static struct point descend(struct problem *q, struct point at, int n_steps, double least) {
    double damping = 1e-3;
    at.sum = evaluate(q, at.p);
    for (int step = 0, n_idle = 0; step < n_steps && n_idle < 3; step++) {
        double system[5][6];
        equations(q, system); /* of the point that was evaluated last: `at` */
        struct point next = step_from(q, &at, system, damping);
        for (int tries = 0; !(next.sum < at.sum) && tries < 8; tries++) {
            damping = fmin(damping * 10, 1e12);
            next = step_from(q, &at, system, damping);
        }
        if (!(next.sum < at.sum)) break;
        n_idle = at.sum - next.sum < least * at.sum ? n_idle + 1 : 0;
        damping = fmax(damping / 5, 1e-15);
        at = next;
    }
    at.sum = evaluate(q, at.p);
    return at;
}

enum { N_BEST = 3, FIRST_STEPS = 8, ALL_STEPS = 1000 };

static int point_order(const void *x, const void *y) {
    const struct point *a = x, *b = y;
    return (a->sum > b->sum) - (a->sum < b->sum);
}

/* Starts that cover the plane of exponents and the height of E; the rest of the mean loss is divided evenly. A few
 * steps from each tell which are worth going on with. */
static struct point fit_all(struct problem *q) {
    static const double exponents[] = {0.15, 0.4, 1}, floors[] = {0.2, 0.6, 0.9};
    double mean = 0, least = INFINITY;
    for (int i = 0; i < q->n_runs; i++) {
        mean += q->runs[i].log_loss / q->n_runs;
        least = fmin(least, q->runs[i].log_loss);
    }
    struct point found[3 * 3 * 3];
    int n = 0;
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < (q->alpha > 0 ? 1 : 3); i++)
            for (int k = 0; k < (q->beta > 0 ? 1 : 3); k++) {
                const double rest = log(fmax(exp(mean) - floors[f] * exp(least), 1e-6 * exp(mean)) / 2);
                struct point start = {.p = {least + log(floors[f]), rest, q->has_B ? rest : -largest_log,
                                            q->alpha > 0 ? q->alpha : exponents[i],
                                            q->beta > 0 ? q->beta : exponents[k]}};
                found[n++] = descend(q, start, FIRST_STEPS, 0);
            }
    qsort(found, (size_t)n, sizeof *found, point_order);
    for (int i = 0; i < n && i < N_BEST; i++) found[i] = descend(q, found[i], ALL_STEPS, 1e-12);
    qsort(found, (size_t)(n < N_BEST ? n : N_BEST), sizeof *found, point_order);
    return found[0];
}

static struct napkin_law law_of(const struct problem *q, const double *p) {
    /* a term whose logarithm ran to its bound is absent */
    const double e = exp(p[E_]), a = exp(p[A_]), b = exp(p[B_]), nothing = 1e-12 * (e + a + b);
    return (struct napkin_law){e > nothing ? e : 0, a > nothing ? a * pow(q->N0, p[ALPHA]) : 0,
                               b > nothing ? b * pow(q->D0, p[BETA]) : 0, p[ALPHA], p[BETA]};
}

static int number_order(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The residuals that runs are given again: sorted, about their median, larger as the law has taken degrees of freedom
 * from them; and how far they are smoothed, by Silverman's rule for densities. */
struct scatter {
    double *residual, *said, *normal;
    int64_t *drawn;
    double width, scale;
};

static double middle_of(const double *sorted, int n) { return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2; }

static void scatter_set(struct scatter *s, const struct problem *q, int freedom) {
    const int n = q->n_runs;
    for (int i = 0; i < n; i++) {
        s->residual[i] = -q->runs[i].residual; /* measured less predicted */
        s->said[i] = q->runs[i].log_loss + q->runs[i].residual;
    }
    qsort(s->residual, (size_t)n, sizeof *s->residual, number_order);
    const double middle = middle_of(s->residual, n), growth = sqrt(n / (double)freedom);
    for (int i = 0; i < n; i++) {
        s->residual[i] = growth * (s->residual[i] - middle);
        s->normal[i] = fabs(s->residual[i]); /* for their median; drawn later */
    }
    qsort(s->normal, (size_t)n, sizeof *s->normal, number_order);
    s->width = 0.9 * 1.4826 * middle_of(s->normal, n) * pow(n, -0.2);
}

/* Residual i of a draw. */
static double scatter_at(const struct scatter *s, int i) {
    return s->scale * (s->residual[s->drawn[i]] + s->width * s->normal[i]);
}

/* How far the scatter of so few residuals may be from the true one: sqrt(f / chi^2 of f degrees), by Wilson and
 * Hilferty. With many it is 1; with two or three it gives intervals the tails of Student's t. */
static double scale_draw(double normal, int freedom) {
    const double s = 2 / (9.0 * freedom), root = fmax(1 - s + normal * sqrt(s), 0.2);
    return 1 / sqrt(root * root * root);
}

/* The law again, through its own predictions with residuals drawn at random. */
static bool bootstrap(struct problem *q, const struct point *best, struct napkin_fit *f) {
    const int n = q->n_runs, fewer = n > 2000 ? NAPKIN_DRAWS * 2000 / n : NAPKIN_DRAWS;
    const size_t bytes = ((size_t)n + 2) * sizeof(double);
    struct scatter s = {memory_new(bytes), memory_new(bytes), memory_new(bytes), memory_new(bytes), 0, 1};
    const bool ok = s.residual && s.said && s.normal && s.drawn;
    if (ok) scatter_set(&s, q, f->freedom);
    for (int k = 0; ok && k < (fewer > 100 ? fewer : 100); k++) {
        const struct rng_key key = {.seed = 1, .stream = (uint64_t)k};
        rng_fill_integers(s.drawn, n + 1, key, 0, 0, n);
        rng_fill_normal_f64(s.normal, n + 2, key, (uint64_t)n + 1);
        s.scale = scale_draw(s.normal[n + 1], f->freedom);
        for (int i = 0; i < n; i++) q->runs[i].log_loss = s.said[i] + scatter_at(&s, i);
        const struct point again = descend(q, *best, ALL_STEPS, 1e-7);
        f->draw[k] = law_of(q, again.p);
        f->noise[k] = scatter_at(&s, n);
        f->n_draws = k + 1;
    }
    memory_free(s.residual);
    memory_free(s.said);
    memory_free(s.normal);
    memory_free(s.drawn);
    return ok || error_memory(4 * bytes, "the bootstrap of a fit");
}

static bool runs_check(const struct napkin_run *runs, int n, int n_free, bool is_one_term) {
    int n_sizes = 0, n_data = 0;
    for (int i = 0; i < n; i++) {
        const struct napkin_run *r = &runs[i];
        if (!(r->parameters >= 1 && r->parameters < 1e30 && r->tokens >= 1 && r->tokens < 1e30 && r->loss > 0 &&
              r->loss < 1e6))
            return error_set(TL_ERROR_USE, "run %d: %g parameters, %g tokens, loss %g (need positive numbers)", i + 1,
                             r->parameters, r->tokens, r->loss);
        bool is_new_size = true, is_new_data = true;
        for (int k = 0; k < i; k++) {
            is_new_size = is_new_size && runs[k].parameters != r->parameters;
            is_new_data = is_new_data && runs[k].tokens != r->tokens;
        }
        n_sizes += is_new_size;
        n_data += is_new_data;
    }
    if (n < n_free)
        return error_set(TL_ERROR_USE, "%d runs cannot determine %d parameters (give more runs, or --alpha and --beta)",
                         n, n_free);
    if (n_sizes < 2 || (n_data < 2 && !is_one_term))
        return error_set(TL_ERROR_USE, "the runs have %d sizes and %d amounts of data (need 2 or more of each)",
                         n_sizes, n_data);
    return true;
}

static void sights_set(struct problem *q, const struct napkin_run *runs) {
    for (int i = 0; i < q->n_runs; i++) {
        q->N0 += log(runs[i].parameters) / q->n_runs;
        q->D0 += log(runs[i].tokens) / q->n_runs;
    }
    for (int i = 0; i < q->n_runs; i++)
        q->runs[i] = (struct sight){
            .x = log(runs[i].parameters) - q->N0, .y = log(runs[i].tokens) - q->D0, .log_loss = log(runs[i].loss)};
    q->N0 = exp(q->N0);
    q->D0 = exp(q->D0);
}

bool napkin_fit_loss(const struct napkin_run *runs, int n_runs, const struct napkin_fit_options *o,
                     struct napkin_fit *f) {
    memset(f, 0, sizeof *f);
    struct problem q = {.n_runs = n_runs, .alpha = o->alpha, .beta = o->beta, .has_B = !o->is_one_term};
    q.delta = o->delta > 0 ? o->delta : NAPKIN_DELTA;
    if (o->is_one_term) q.beta = 1;
    for (int i = 0; i < N_PARAMETERS; i++)
        if (!(i == ALPHA && q.alpha > 0) && !(i == BETA && q.beta > 0) && !(i == B_ && o->is_one_term))
            q.free[q.n_free++] = i;
    if (!runs_check(runs, n_runs, q.n_free, o->is_one_term)) return false;
    if (!(q.runs = memory_new((size_t)n_runs * sizeof *q.runs)))
        return error_memory((size_t)n_runs * sizeof *q.runs, "the runs of a fit");
    sights_set(&q, runs);
    const struct point best = fit_all(&q);
    bool ok = isfinite(best.sum) || error_set(TL_ERROR_USE, "no law of this form fits these runs");
    if (ok) {
        evaluate(&q, best.p);
        for (int i = 0; i < n_runs; i++) f->rms += q.runs[i].residual * q.runs[i].residual / n_runs;
        f->rms = sqrt(f->rms);
        f->law = law_of(&q, best.p);
        f->freedom = n_runs - q.n_free;
        ok = f->freedom <= 0 || o->without_draws || bootstrap(&q, &best, f);
    }
    memory_free(q.runs);
    return ok;
}

bool napkin_fit_range(const struct napkin_fit *f, napkin_quantity value, const void *context, double level,
                      double range[2]) {
    double all[NAPKIN_DRAWS];
    if (!f->n_draws) return false;
    for (int k = 0; k < f->n_draws; k++) all[k] = value(&f->draw[k], f->noise[k], context);
    napkin_interval(all, f->n_draws, level, range);
    return true;
}

void napkin_interval(double *draws, int n, double level, double range[2]) {
    qsort(draws, (size_t)n, sizeof *draws, number_order);
    for (int side = 0; side < 2; side++) {
        const double at = (side ? 1 + level : 1 - level) / 2 * (n - 1);
        const int below = (int)at, above = below + 1 < n ? below + 1 : below;
        range[side] = draws[below] + (at - below) * (draws[above] - draws[below]);
    }
}
