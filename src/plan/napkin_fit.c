/* napkin_fit.c: a scaling law through given runs.
 *
 * For given exponents the law is linear in E, A and B, so these are solved for (none may be negative: all subsets of
 * terms are tried), and only the two exponents are searched: a grid that cannot miss the valley, then a simplex that
 * runs down it. It minimises the sum of squared relative residuals. Terms are measured at the runs' geometric mean, A
 * (N/N0)^-alpha: their columns then have one magnitude, while A alone is of order N^alpha. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "plan/napkin.h"

enum { E_, A_, B_, ALPHA, BETA, N_PARAMETERS };
static const double smallest_exponent = 0.01, largest_exponent = 3;

struct problem {
    const struct napkin_run *runs;
    int n_runs;
    double alpha, beta; /* > 0: given */
    double N0, D0;
};
struct point { /* E, A N0^-alpha, B D0^-beta, alpha, beta */
    double p[N_PARAMETERS], sum;
};

/* Solves a symmetric positive system of size n in place by elimination; false when it is singular. */
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

static void terms(const struct problem *q, const struct napkin_run *r, double alpha, double beta, double term[3]) {
    term[E_] = 1;
    term[A_] = pow(r->parameters / q->N0, -alpha);
    term[B_] = pow(r->tokens / q->D0, -beta);
}

static double residuals(const struct problem *q, const double *p) {
    double sum = 0, term[3];
    for (int i = 0; i < q->n_runs; i++) {
        terms(q, &q->runs[i], p[ALPHA], p[BETA], term);
        double r = (p[E_] + p[A_] * term[A_] + p[B_] * term[B_]) / q->runs[i].loss - 1;
        sum += r * r;
    }
    return sum;
}

/* The best E, A, B of one subset of terms; false when they cannot be told apart or one is negative. */
static bool linear_subset(const struct problem *q, int subset, struct point *at) {
    int which[3], n = 0;
    double system[5][6] = {{0}}, term[3];
    for (int k = 0; k < 3; k++)
        if (subset >> k & 1) which[n++] = k;
    for (int i = 0; i < q->n_runs; i++) {
        terms(q, &q->runs[i], at->p[ALPHA], at->p[BETA], term);
        double w = 1 / q->runs[i].loss;
        for (int r = 0; r < n; r++) {
            for (int c = 0; c < n; c++) system[r][c] += term[which[r]] * w * term[which[c]] * w;
            system[r][n] += term[which[r]] * w;
        }
    }
    if (!solve(system, n)) return false;
    at->p[E_] = at->p[A_] = at->p[B_] = 0;
    for (int k = 0; k < n; k++) {
        at->p[which[k]] = system[k][n];
        if (!(system[k][n] >= 0)) return false;
    }
    at->sum = residuals(q, at->p);
    return true;
}

static struct point best_at(const struct problem *q, double alpha, double beta) {
    struct point best = {.p = {[ALPHA] = alpha, [BETA] = beta}, .sum = INFINITY};
    if (!(alpha >= smallest_exponent && alpha <= largest_exponent && beta >= smallest_exponent &&
          beta <= largest_exponent))
        return best;
    for (int subset = 7; subset >= 1; subset--) {
        struct point at = {.p = {[ALPHA] = alpha, [BETA] = beta}, .sum = INFINITY};
        if (linear_subset(q, subset, &at) && at.sum < best.sum) best = at;
    }
    return best;
}

static struct point grid(const struct problem *q) {
    struct point best = {.sum = INFINITY};
    enum { N = 48 };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            double alpha = q->alpha > 0 ? q->alpha : 0.02 * pow(100, i / (double)(N - 1));
            double beta = q->beta > 0 ? q->beta : 0.02 * pow(100, k / (double)(N - 1));
            struct point at = best_at(q, alpha, beta);
            if (at.sum < best.sum) best = at;
            if (q->beta > 0) break;
        }
    return best;
}

/* A simplex of three points in (log alpha, log beta); a given exponent is not moved. */
static struct point descend(const struct problem *q, struct point start) {
    struct point s[3] = {start, start, start};
    s[1] = best_at(q, q->alpha > 0 ? q->alpha : start.p[ALPHA] * 1.05, start.p[BETA]);
    s[2] = best_at(q, start.p[ALPHA], q->beta > 0 ? q->beta : start.p[BETA] * 1.05);
    for (int step = 0; step < 600; step++) {
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 2; k++)
                if (s[k + 1].sum < s[k].sum) {
                    struct point other = s[k];
                    s[k] = s[k + 1];
                    s[k + 1] = other;
                }
        double a = sqrt(s[0].p[ALPHA] * s[1].p[ALPHA]), b = sqrt(s[0].p[BETA] * s[1].p[BETA]);
        static const double moves[] = {-1, -2, -0.5, 0.5};
        struct point tried = {.sum = INFINITY};
        for (int m = 0; m < 4; m++) { /* reflect, reach further, contract outside, inside */
            struct point at = best_at(q, a * pow(s[2].p[ALPHA] / a, moves[m]), b * pow(s[2].p[BETA] / b, moves[m]));
            if (at.sum < tried.sum) tried = at;
        }
        if (tried.sum < s[2].sum) s[2] = tried;
        else
            for (int i = 1; i < 3; i++)
                s[i] = best_at(q, sqrt(s[0].p[ALPHA] * s[i].p[ALPHA]), sqrt(s[0].p[BETA] * s[i].p[BETA]));
    }
    return s[0].sum <= s[1].sum ? s[0] : s[1];
}

/* The derivative of the predicted loss by each parameter. */
static void gradient(const struct napkin_fit *f, double parameters, double tokens, double g[N_PARAMETERS]) {
    double x = log(parameters / f->parameters), y = log(tokens / f->tokens);
    double a = f->law.A * pow(f->parameters, -f->law.alpha), b = f->law.B * pow(f->tokens, -f->law.beta);
    g[E_] = 1;
    g[A_] = exp(-f->law.alpha * x);
    g[B_] = exp(-f->law.beta * y);
    g[ALPHA] = -a * x * g[A_];
    g[BETA] = -b * y * g[B_];
}

/* sigma^2 (J^T J)^-1, column by column. */
static bool covariance_find(const struct problem *q, struct napkin_fit *f, double sum) {
    double normal[5][5] = {{0}}, g[N_PARAMETERS];
    for (int i = 0; i < q->n_runs; i++) {
        gradient(f, q->runs[i].parameters, q->runs[i].tokens, g);
        for (int r = 0; r < f->n_free; r++)
            for (int c = 0; c < f->n_free; c++)
                normal[r][c] += g[f->free[r]] * g[f->free[c]] / (q->runs[i].loss * q->runs[i].loss);
    }
    for (int column = 0; column < f->n_free; column++) {
        double system[5][6] = {{0}};
        for (int r = 0; r < f->n_free; r++) {
            memcpy(system[r], normal[r], sizeof normal[r]);
            system[r][f->n_free] = r == column;
        }
        if (!solve(system, f->n_free)) return false;
        for (int r = 0; r < f->n_free; r++) f->covariance[r][column] = system[r][f->n_free] * sum / f->freedom;
    }
    return true;
}

static bool runs_check(const struct napkin_run *runs, int n, int n_free) {
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
    if (n_sizes < 2 || n_data < 2)
        return error_set(TL_ERROR_USE, "the runs have %d sizes and %d amounts of data (need 2 or more of each)",
                         n_sizes, n_data);
    return true;
}

bool napkin_fit_loss(const struct napkin_run *runs, int n_runs, double alpha, double beta, struct napkin_fit *f) {
    memset(f, 0, sizeof *f);
    for (int i = 0; i < N_PARAMETERS; i++)
        if (!(i == ALPHA && alpha > 0) && !(i == BETA && beta > 0)) f->free[f->n_free++] = i;
    if (!runs_check(runs, n_runs, f->n_free)) return false;
    struct problem q = {runs, n_runs, alpha, beta, 0, 0};
    for (int i = 0; i < n_runs; i++) {
        q.N0 += log(runs[i].parameters) / n_runs;
        q.D0 += log(runs[i].tokens) / n_runs;
    }
    q.N0 = exp(q.N0);
    q.D0 = exp(q.D0);
    struct point best = descend(&q, descend(&q, grid(&q))); /* twice: a simplex may have collapsed */
    if (!isfinite(best.sum)) return error_set(TL_ERROR_USE, "no law of this form fits these runs");
    f->law = (struct napkin_law){best.p[E_], best.p[A_] * pow(q.N0, best.p[ALPHA]),
                                 best.p[B_] * pow(q.D0, best.p[BETA]), best.p[ALPHA], best.p[BETA]};
    f->parameters = q.N0;
    f->tokens = q.D0;
    f->rms = sqrt(best.sum / n_runs);
    f->freedom = n_runs - f->n_free;
    if (f->freedom > 0 && !covariance_find(&q, f, best.sum)) f->freedom = 0;
    return true;
}

double napkin_fit_error(const struct napkin_fit *f, double parameters, double tokens) {
    double g[N_PARAMETERS], variance = 0;
    if (f->freedom <= 0) return NAN;
    gradient(f, parameters, tokens, g);
    for (int r = 0; r < f->n_free; r++)
        for (int c = 0; c < f->n_free; c++) variance += g[f->free[r]] * g[f->free[c]] * f->covariance[r][c];
    /* the scatter of a single run is added to the uncertainty of the law */
    double loss = napkin_loss(&f->law, parameters, tokens);
    double n_runs = f->freedom + f->n_free, scatter = f->rms * f->rms * n_runs / f->freedom * loss * loss;
    return sqrt(fmax(variance, 0) + scatter);
}
