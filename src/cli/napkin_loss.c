/* napkin_loss.c: scaling laws through runs of one's own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/napkin_form.h"
#include "plan/napkin.h"

/* ---- loss ---- */

/* Lines of three numbers, the last one a loss; a line that begins with no number (a header, a comment, nothing) is
 * passed over. */
static int runs_read(const char *form, const char *path, const char *what, struct napkin_run *runs, int *n_runs) {
    size_t bytes;
    char *text = file_get(path, (size_t)1 << 20, &bytes), *rest = text;
    int code = text ? 0 : cli_error();
    *n_runs = 0;
    for (int line = 1; rest && !code; line++) {
        char *at = strsep(&rest, "\n"), *field, *end;
        double v[3];
        int n = 0;
        at += strspn(at, " \t\r");
        if (!strchr("0123456789.", *at) || !*at) continue;
        while (n < 3 && (field = strsep(&at, ", \t;\r"))) {
            if (!*field) continue;
            v[n] = number_parse(field, &end);
            if (*end || end == field) break;
            n++;
        }
        bool is_run = n == 3;
        for (int i = 0; is_run && i < 3; i++) is_run = v[i] > 0 && v[i] <= LARGEST_DATA;
        if (n == 3 && !is_run)
            code = asked_bad(form, "%s:%d: %s must be above 0 and at most %g", path, line, what, LARGEST_DATA);
        else if (n < 3) code = asked_bad(form, "%s:%d: a line needs three numbers: %s", path, line, what);
        else if (*n_runs == MOST_RUNS) code = asked_bad(form, "%s: more than %d runs", path, MOST_RUNS);
        else runs[(*n_runs)++] = (struct napkin_run){v[0], v[1], v[2]};
    }
    memory_free(text);
    return code;
}

int runs_get(const char *form, const struct asked *q, enum runs_kind kind, struct napkin_run **runs, int *n_runs) {
    static const char *const what[] = {"parameters, tokens and loss", "parameters, tokens and loss",
                                       "channels, learning rate and loss"};
    enum file_kind is = FILE_ABSENT;
    *n_runs = 0;
    if (!(*runs = malloc(MOST_RUNS * sizeof **runs))) return EXIT_MEMORY;
    if (file_look(file_path(q->runs), &is) && is == FILE_FOLDER)
        return runs_of_folder(q->runs, kind, *runs, n_runs) ? 0 : cli_error();
    tl_error_clear();
    return runs_read(form, q->runs, what[kind], *runs, n_runs);
}

static int run_order(const void *x, const void *y) {
    const struct napkin_run *a = x, *b = y;
    double c = a->parameters * a->tokens, d = b->parameters * b->tokens;
    return (c > d) - (c < d);
}

/* The simplest check: fit the law to all runs but the largest, and predict the largest. */
static void holdout_say(const struct asked *q, struct answer *a, const struct napkin_run *runs, int n,
                        struct napkin_fit *f) {
    const struct napkin_fit_options options = {
        .alpha = q->alpha, .beta = q->beta, .delta = q->huber, .without_draws = true};
    if (n < 4 || !napkin_fit_loss(runs, n - 1, &options, f)) {
        tl_error_clear();
        return;
    }
    const struct napkin_run *last = &runs[n - 1];
    double said = napkin_loss(&f->law, last->parameters, last->tokens);
    json_object_set_new(a->json, "holdout",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "parameters", last->parameters, "tokens", last->tokens,
                                  "predicted", said, "measured", last->loss, "relative_error", said / last->loss - 1));
    fprintf(a->text, "  %-18s the other runs predict %.4f for the largest, which has %.4f: %+.2f %%\n", "holdout", said,
            last->loss, 100 * (said / last->loss - 1));
}

/* What is said of a law, each with its interval. The context: two numbers. */
static double law_E(const struct napkin_law *l, double noise, const void *x) { return (void)noise, (void)x, l->E; }
static double law_alpha(const struct napkin_law *l, double noise, const void *x) {
    return (void)noise, (void)x, l->alpha;
}
static double law_beta(const struct napkin_law *l, double noise, const void *x) {
    return (void)noise, (void)x, l->beta;
}
static double law_share(const struct napkin_law *l, double noise, const void *x) {
    return (void)noise, (void)x, l->beta / (l->alpha + l->beta);
}
static double law_best_size(const struct napkin_law *l, double noise, const void *flops) {
    double N, D;
    napkin_optimum(l, *(const double *)flops, &N, &D);
    return (void)noise, N;
}
static double law_run(const struct napkin_law *l, double noise, const void *sizes) {
    const double *x = sizes;
    return napkin_loss(l, x[0], x[1]) * exp(noise); /* of a single run, which scatters about the law */
}

static const double interval_level = 0.95;

/* A value with the interval that holds 95 % of the bootstrap; `shown` says how it is written. */
static void value_with_range(struct answer *a, const struct napkin_fit *f, const char *name, napkin_quantity quantity,
                             const void *context, const char *shown, const char *meaning) {
    double range[2], middle = quantity(&f->law, 0, context);
    char here[32], low[32], high[32], name_of_range[48];
    snprintf(here, sizeof here, shown, middle);
    if (!napkin_fit_range(f, quantity, context, interval_level, range)) {
        answer_value(a, name, middle, "%s: %s", here, meaning);
        return;
    }
    snprintf(low, sizeof low, shown, range[0]);
    snprintf(high, sizeof high, shown, range[1]);
    answer_value(a, name, middle, "%s (95 %%: %s to %s): %s", here, low, high, meaning);
    snprintf(name_of_range, sizeof name_of_range, "%s_range", name);
    json_object_set_new(a->json, name_of_range, json_pack("[f, f]", range[0], range[1]));
}

static void prediction_say(const struct asked *q, struct answer *a, const struct napkin_fit *f, double most) {
    const double sizes[2] = {q->params, q->tokens};
    char meaning[96];
    snprintf(meaning, sizeof meaning, "one run of %.4g parameters on %.4g tokens", q->params, q->tokens);
    value_with_range(a, f, "loss", law_run, sizes, "%.4f", meaning);
    if (!f->n_draws) fprintf(a->text, "  %-18s unknown: there are as many unknowns as runs\n", "interval");
    if (q->params * q->tokens > 100 * most)
        fprintf(stderr, "tally napkin loss: this is %.0f times the compute of the largest run, far outside the data\n",
                q->params * q->tokens / most);
}

static int loss_answer(const struct asked *q, struct answer *a, struct napkin_run *runs, int n, struct napkin_fit *f) {
    const struct napkin_fit_options options = {.alpha = q->alpha, .beta = q->beta, .delta = q->huber};
    qsort(runs, (size_t)n, sizeof *runs, run_order);
    if (!napkin_fit_loss(runs, n, &options, f)) return cli_error();
    const struct napkin_law law = f->law;
    answer_formula(a, "L(N, D) = E + A / N^a + B / D^b = %.4f + %.4g / N^%.4f + %.4g / D^%.4f, through %d runs", law.E,
                   law.A, law.alpha, law.B, law.beta, n);
    json_object_set_new(a->json, "law",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "E", law.E, "A", law.A, "B", law.B, "alpha", law.alpha,
                                  "beta", law.beta));
    json_object_set_new(a->json, "runs", json_integer(n));
    answer_value(a, "rms", f->rms, "%.3f %% of the loss: distance of the runs from the law", 100 * f->rms);
    value_with_range(a, f, "E", law_E, NULL, "%.4f", "the loss that no model and no data go below");
    if (!(q->alpha > 0)) value_with_range(a, f, "alpha", law_alpha, NULL, "%.4f", "exponent of the size");
    if (!(q->beta > 0)) value_with_range(a, f, "beta", law_beta, NULL, "%.4f", "exponent of the data");
    if (law.A > 0 && law.B > 0) {
        value_with_range(a, f, "size_exponent", law_share, NULL, "%.3f", "best N grows as C to this power");
        if (q->flops > 0) {
            char meaning[64];
            snprintf(meaning, sizeof meaning, "best N for %.4g FLOPs", q->flops);
            value_with_range(a, f, "best_parameters", law_best_size, &q->flops, "%.4g", meaning);
        }
    }
    if (q->params > 0 && q->tokens > 0) prediction_say(q, a, f, runs[n - 1].parameters * runs[n - 1].tokens);
    holdout_say(q, a, runs, n, f);
    return 0;
}

/* ---- Approaches 1 and 2, and learning rates ---- */

static void valleys_say(struct answer *a, const struct napkin_frontier *f, const char *at, const char *best) {
    json_t *list = json_array();
    fprintf(a->text, "  %14s %6s %14s %10s\n", at, "runs", best, "loss");
    for (int i = 0; i < f->n_valleys; i++) {
        const struct napkin_valley *v = &f->valley[i];
        /* an envelope has many: every eighth says as much */
        if (f->n_valleys <= 16 || i % 8 == 0)
            fprintf(a->text, "  %14.4g %6d %14.4g %10.4f%s\n", v->at, v->n_runs, v->best, v->least,
                    v->is_edge ? "  at the edge: not used" : "");
        json_array_append_new(list, json_pack("{s:f, s:i, s:f, s:f, s:b}", at, v->at, "runs", v->n_runs, best, v->best,
                                              "loss", v->least, "edge", (int)v->is_edge));
    }
    json_object_set_new(a->json, "curves", list);
}

/* A value of a frontier with its interval: the exponent, or the best x at some FLOPs or width. */
static void frontier_value(struct answer *a, const struct napkin_frontier *f, const char *name, double at,
                           const char *meaning) {
    const double middle = at > 0 ? f->factor * pow(at, f->exponent) : f->exponent;
    double range[2];
    char name_of_range[48];
    if (!napkin_frontier_range(f, at, interval_level, range)) {
        answer_value(a, name, middle, "%.4g: %s", middle, meaning);
        return;
    }
    answer_value(a, name, middle, "%.4g (95 %%: %.4g to %.4g): %s", middle, range[0], range[1], meaning);
    snprintf(name_of_range, sizeof name_of_range, "%s_range", name);
    json_object_set_new(a->json, name_of_range, json_pack("[f, f]", range[0], range[1]));
}

static int frontier_answer(const struct asked *q, struct answer *a, const struct napkin_run *runs, int n) {
    static struct napkin_frontier f;
    char meaning[96];
    if (!(q->approach == 1 ? napkin_envelope(runs, n, &f) : napkin_isoflop(runs, n, &f)))
        return asked_bad("loss", "--approach %d: %s", (int)q->approach, tl_error_message());
    answer_formula(a, "N = %.4g C^%.4f through the best sizes of %d %s", f.factor, f.exponent, f.n_used,
                   q->approach == 1 ? "budgets (approach 1)" : "IsoFLOP curves (approach 2)");
    json_object_set_new(a->json, "approach", json_integer((json_int_t)q->approach));
    json_object_set_new(a->json, "runs", json_integer(n));
    valleys_say(a, &f, "flops", "parameters");
    frontier_value(a, &f, "size_exponent", 0, "best N grows as C to this power, and best D as C to the rest of 1");
    if (!(q->flops > 0)) return 0;
    snprintf(meaning, sizeof meaning, "best N for %.4g FLOPs, on %.4g tokens", q->flops,
             q->flops / 6 / (f.factor * pow(q->flops, f.exponent)));
    frontier_value(a, &f, "best_parameters", q->flops, meaning);
    return 0;
}

int form_mutransfer(const struct asked *q, struct answer *a) {
    static struct napkin_frontier f;
    struct napkin_run *runs = NULL;
    int n;
    if (!q->runs)
        return asked_lacks("mutransfer",
                           "--runs is required: a folder of runs, or lines of channels, learning rate, loss");
    int code = runs_get("mutransfer", q, RUNS_RATES, &runs, &n);
    if (!code && !napkin_rates(runs, n, &f)) code = cli_error();
    free(runs);
    if (code) return code;
    double range[2] = {f.exponent, f.exponent};
    const bool has_range = napkin_frontier_range(&f, 0, interval_level, range);
    answer_formula(a, "best learning rate = %.4g width^%.3f, through %d widths", f.factor, f.exponent, f.n_used);
    json_object_set_new(a->json, "runs", json_integer(n));
    valleys_say(a, &f, "channels", "lr");
    frontier_value(a, &f, "exponent", 0, "0: rates carry over (muP); -1: as Adam's do in the usual parametrisation");
    const char *verdict = !has_range                       ? "not known: too few runs"
                          : range[0] <= 0 && range[1] >= 0 ? "rates carry over, as far as these runs can tell"
                                                           : "rates do not carry over: scale them with the width";
    fprintf(a->text, "  %-18s %s\n", "verdict", verdict);
    answer_word(a, "verdict", verdict);
    if (q->channels > 0) frontier_value(a, &f, "lr", q->channels, "best learning rate of --channels");
    return 0;
}

/* ---- The form ---- */

int form_loss(const struct asked *q, struct answer *a) {
    if (!q->runs)
        return asked_lacks("loss",
                           "--runs is required: a folder of runs, or a file with lines of parameters, tokens, loss");
    if (q->approach != 3 && (given_has(&q->given, "--params") || q->alpha > 0 || q->beta > 0 || q->huber > 0))
        return asked_lacks("loss",
                           "--params, --tokens, --alpha, --beta and --huber are of --approach 3: the others have "
                           "no law of the loss");
    struct napkin_run *runs = NULL;
    static struct napkin_fit fit; /* large */
    int n, code = runs_get("loss", q, q->approach == 1 ? RUNS_CURVES : RUNS_FINISHED, &runs, &n);
    if (!code) code = q->approach == 3 ? loss_answer(q, a, runs, n, &fit) : frontier_answer(q, a, runs, n);
    free(runs);
    return code;
}
