/* napkin_laws.c: what scaling laws say of a size, an amount of data and a budget.
 *
 * Beside the form of Hoffmann et al. 2022: Kaplan et al. 2020; data that repeats (Muennighoff et al. 2023); models that
 * are used after training (Sardana et al. 2023). */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "plan/napkin.h"

const struct napkin_law_row napkin_laws[] = {
    /* exponents with the digits of the paper's source: with 0.34 and 0.28, as printed, its own 40B would be 32B */
    {"hoffmann-2022", "Hoffmann et al. 2022, approach 3", {1.6934, 406.4, 410.7, 0.3392, 0.2849}},
    {"besiroglu-2024", "Besiroglu et al. 2024, the same runs fitted again", {1.8172, 482.01, 2085.43, 0.3478, 0.3658}},
    {"muennighoff-2023",
     "Muennighoff et al. 2023, one epoch of C4, equal exponents",
     {1.86914, 520.829, 1487.56, 0.3526596, 0.3526596}},
    {NULL, NULL, {0, 0, 0, 0, 0}},
};

double napkin_loss(const struct napkin_law *law, double N, double D) {
    return law->E + law->A * pow(N, -law->alpha) + law->B * pow(D, -law->beta);
}

/* Setting the derivative along 6 N D = C to 0:
 *     N = G (C/6)^(beta/(alpha+beta)),  G = (alpha A / (beta B))^(1/(alpha+beta)) */
void napkin_optimum(const struct napkin_law *law, double flops, double *parameters, double *tokens) {
    double sum = law->alpha + law->beta;
    double G = pow(law->alpha * law->A / (law->beta * law->B), 1 / sum);
    *parameters = G * pow(flops / 6, law->beta / sum);
    *tokens = flops / 6 / *parameters;
}

const struct napkin_law_row *napkin_law_find(const char *name) {
    const char *names[8];
    char shown[64], meant[TEXT_MEANT];
    int n = 0;
    for (; napkin_laws[n].name; n++) {
        names[n] = napkin_laws[n].name;
        if (!strcmp(names[n], name)) return &napkin_laws[n];
    }
    error_set(TL_ERROR_USE, "there is no law \"%s\"%s (`tally napkin chinchilla --flops 1e21` lists them)",
              text_show(shown, sizeof shown, name), text_meant(meant, text_nearest(name, names, n)));
    return NULL;
}

/* The argument of least value: the function has one minimum between low and high. Golden section. */
static double least_between(double (*f)(double x, const void *context), const void *context, double low, double high) {
    static const double golden = 0.6180339887498949;
    double a = high - golden * (high - low), b = low + golden * (high - low), fa = f(a, context), fb = f(b, context);
    for (int i = 0; i < 200; i++) {
        if (fa < fb) {
            high = b, b = a, fb = fa;
            fa = f(a = high - golden * (high - low), context);
        } else {
            low = a, a = b, fa = fb;
            fb = f(b = low + golden * (high - low), context);
        }
    }
    return (low + high) / 2;
}

/* ---- Kaplan et al. 2020 ---- */

/* Equation 1.5 with the exponents of their table 2; N without embeddings. */
double napkin_kaplan_loss(double N, double D) {
    static const double size = 6.4e13, data = 1.8e13, alpha = 0.076, beta = 0.103;
    return pow(pow(size / N, alpha / beta) + data / D, beta);
}

/* Their rule for training that stops early, in PFLOP/s-days: N = 1.3e9 C^0.73. */
void napkin_kaplan_optimum(double flops, double *parameters, double *tokens) {
    static const double day = 1e15 * DAY_S;
    *parameters = 1.3e9 * pow(flops / day, 0.73);
    *tokens = flops / 6 / *parameters;
}

/* ---- Data that repeats ---- */

static double worth(double unique, double repeats, double decay) {
    return unique * (1 + decay * -expm1(-repeats / decay));
}

double napkin_unique_size(const struct napkin_law *law, double unique) {
    /* N and D of the optimum are joined by C: alpha A N^-alpha = beta B D^-beta */
    return pow(law->alpha * law->A / (law->beta * law->B), 1 / law->alpha) * pow(unique, law->beta / law->alpha);
}

double napkin_worth_tokens(double tokens, double unique) {
    return tokens <= unique ? tokens : worth(unique, tokens / unique - 1, NAPKIN_REPEAT_TOKENS);
}

double napkin_repeated_loss(const struct napkin_law *law, double N, double D, double unique) {
    const double used = fmin(unique, D), most = napkin_unique_size(law, used);
    const double size = N <= most ? N : worth(most, N / most - 1, NAPKIN_REPEAT_SIZE);
    return napkin_loss(law, size, napkin_worth_tokens(D, used));
}

struct budget {
    const struct napkin_law *law;
    double flops, unique;
};
static double repeated_at(double log_size, const void *context) {
    const struct budget *b = context;
    return napkin_repeated_loss(b->law, exp(log_size), b->flops / 6 / exp(log_size), b->unique);
}

void napkin_repeated_optimum(const struct napkin_law *law, double flops, double unique, double *parameters,
                             double *tokens) {
    const struct budget b = {law, flops, unique};
    double N, D;
    napkin_optimum(law, flops, &N, &D);
    /* a model for which every token is seen once is the largest that may be best */
    const double once = flops / 6 / unique, low = log(fmin(N, once)) - 7, high = log(fmax(N, once)) + 7;
    double best = low;
    for (int i = 0; i <= 400; i++) { /* two pieces meet where repetition begins: find the lowest first */
        const double at = low + (high - low) * i / 400;
        if (repeated_at(at, &b) < repeated_at(best, &b)) best = at;
    }
    const double width = (high - low) / 400;
    *parameters = exp(least_between(repeated_at, &b, best - width, best + width));
    *tokens = flops / 6 / *parameters;
}

/* ---- Models that are used ---- */

double napkin_tokens_for(const struct napkin_law *law, double N, double loss) {
    const double rest = loss - law->E - law->A * pow(N, -law->alpha);
    return rest > 0 ? pow(law->B / rest, 1 / law->beta) : INFINITY;
}

struct lifetime {
    const struct napkin_law *law;
    double loss, used; /* tokens of inference, as dear as training's FLOPs */
};
static double lifetime_at(double log_size, const void *context) {
    const struct lifetime *l = context;
    const double N = exp(log_size);
    return log(N) + log(6 * napkin_tokens_for(l->law, N, l->loss) + 2 * l->used);
}

void napkin_lifetime_optimum(const struct napkin_law *law, double loss, double inference_tokens, double *parameters,
                             double *tokens) {
    const struct lifetime l = {law, loss, inference_tokens};
    /* no smaller model reaches this loss with any data */
    const double least = log(law->A / (loss - law->E)) / law->alpha;
    *parameters = exp(least_between(lifetime_at, &l, least + 1e-9, least + 25));
    *tokens = napkin_tokens_for(law, *parameters, loss);
}
