/* napkin.h: closed forms: estimates of a training run on the back of a napkin, before anything is counted.
 *
 * These are other people's rules, written down so that their figures can be reproduced and compared. Tally's own
 * figures come from the ledger (docs/accounting.md). All numbers are doubles; sizes come from checked inputs. */
#ifndef PLAN_NAPKIN_H
#define PLAN_NAPKIN_H

#include "tally.h"

/* ---- FLOPs of a model, by every convention ---- */

struct napkin_model {
    double parameters;      /* all of them */
    double active;          /* N: those that a token meets; of experts, the ones that it takes */
    double matmul;          /* those that multiply a token: layers and head, no biases, norms, embeddings */
    double chosen;          /* share of the experts that a token takes; 1: there are none */
    double embedding, head; /* V C each; the same weights when tied */
    bool is_tied;
    double layers, channels, attention, vocabulary; /* attention: heads x head size */
};
struct napkin_model napkin_model_of(const tl_model_config *config);
/* Weights of products that a step of so many tokens reads: of experts, those that at least one of them takes if each
 * chooses at random. */
double napkin_read(const struct napkin_model *m, double tokens);
/* A GPT of these sizes: biases, 4h, tied head, `context` learned positions. */
struct napkin_model napkin_gpt(double layers, double channels, double vocabulary, double context);

struct napkin_convention {
    const char *name, *formula, *who;
    bool is_hardware;                                          /* counts recomputation: utilisation is HFU */
    double (*flops)(const struct napkin_model *m, double seq); /* of training, per token */
};
extern const struct napkin_convention napkin_conventions[];               /* ends with a row without a name */
const struct napkin_convention *napkin_convention_find(const char *name); /* NULL: recorded */

/* ---- Time ---- */

/* Seconds for `flops` on n devices that run at `share` of `peak`. */
double napkin_seconds(double flops, double n_devices, double peak, double share);

/* ---- Bytes (Korthikanti et al. 2022): per device, of a GPT with L layers of width h and a heads ---- */

struct napkin_shape {
    double layers, channels, heads, seq, batch;
    double tensor, pipeline, interleave; /* t, p, m; interleave 0: the schedule is not interleaved */
};
enum napkin_keep { KEEP_ALL, KEEP_SEQUENCE, KEEP_SELECTIVE, KEEP_BOTH, KEEP_INPUTS, KEEP_COUNT };
extern const char *const napkin_keep_names[KEEP_COUNT];
/* Bytes of activations with nothing recomputed, with sequence parallelism, with attention recomputed, with both,
 * with block inputs alone. */
double napkin_activations(const struct napkin_shape *s, enum napkin_keep keep);
/* Bytes of parameters, gradients and optimizer: bytes_per_parameter x 12 L h^2 / (t p). */
double napkin_state(const struct napkin_shape *s, double bytes_per_parameter);

/* ---- Scaling laws: L(N, D) = E + A / N^alpha + B / D^beta ---- */

struct napkin_law {
    double E, A, B, alpha, beta;
};
struct napkin_law_row {
    const char *name, *source;
    struct napkin_law law;
};
extern const struct napkin_law_row napkin_laws[]; /* published ones; ends with a row without a name */
double napkin_loss(const struct napkin_law *law, double parameters, double tokens);
/* The size and data of least loss for a budget of 6 N D FLOPs. */
void napkin_optimum(const struct napkin_law *law, double flops, double *parameters, double *tokens);
const struct napkin_law_row *napkin_law_find(const char *name); /* NULL: recorded */

/* Kaplan et al. 2020: another form, whose sizes leave out embeddings. The optimum is that of their rule. */
double napkin_kaplan_loss(double parameters, double tokens);
void napkin_kaplan_optimum(double flops, double *parameters, double *tokens);

/* Data of which only `unique` tokens are distinct (Muennighoff et al. 2023). A token that repeats is worth less each
 * time, and so is a parameter beyond those that the unique tokens are best for: U (1 + R* (1 - exp(-R / R*))) after R
 * repetitions. */
#define NAPKIN_REPEAT_TOKENS 15.387756
#define NAPKIN_REPEAT_SIZE 5.309743
double napkin_unique_size(const struct napkin_law *law, double unique); /* the best N for these tokens, seen once */
double napkin_worth_tokens(double tokens, double unique);
double napkin_repeated_loss(const struct napkin_law *law, double parameters, double tokens, double unique);
void napkin_repeated_optimum(const struct napkin_law *law, double flops, double unique, double *parameters,
                             double *tokens);

/* The least FLOPs in all, 6 N D + 2 N inference_tokens, of a model that reaches a loss (Sardana et al. 2023). */
double napkin_tokens_for(const struct napkin_law *law, double parameters, double loss); /* INFINITY: no data does */
void napkin_lifetime_optimum(const struct napkin_law *law, double loss, double inference_tokens, double *parameters,
                             double *tokens);

struct napkin_run {
    double parameters, tokens, loss;
};
struct napkin_fit_options {
    double alpha, beta; /* positive: kept; 0: found */
    double delta;       /* of the Huber loss, in log loss; 0: NAPKIN_DELTA */
    bool without_draws; /* no intervals are asked for */
    bool is_one_term;   /* E + A / N^alpha alone: a ladder of one quantity, such as FLOPs, in place of N */
};
#define NAPKIN_DELTA 1e-3
enum { NAPKIN_DRAWS = 400 };
struct napkin_fit {
    struct napkin_law law;
    double rms;                           /* root mean square of the residuals of log loss */
    int freedom;                          /* runs less free parameters */
    int n_draws;                          /* 0: no degree of freedom is left */
    struct napkin_law draw[NAPKIN_DRAWS]; /* laws of the bootstrap */
    double noise[NAPKIN_DRAWS];           /* and a residual for each: the scatter of a single run, in log loss */
};
/* A robust fit in log loss; napkin_fit.c says how. False: recorded (too few runs, or runs that cannot tell the terms
 * apart). */
bool napkin_fit_loss(const struct napkin_run *runs, int n_runs, const struct napkin_fit_options *options,
                     struct napkin_fit *fit);
/* The interval that holds `level` of the bootstrap's values of a quantity of the law. False: there are no draws. */
typedef double (*napkin_quantity)(const struct napkin_law *law, double noise, const void *context);
bool napkin_fit_range(const struct napkin_fit *fit, napkin_quantity value, const void *context, double level,
                      double range[2]);
/* The interval that holds `level` of some values, which it sorts. */
void napkin_interval(double *draws, int n, double level, double range[2]);

/* ---- Approaches 1 and 2 of Hoffmann et al. 2022, and learning rates by width ---- */

/* A curve with a minimum: y over log x, at one value of something else. */
struct napkin_valley {
    double at, best, least; /* the curve's FLOPs or width; x of the least y; that y */
    int n_runs;
    bool is_edge; /* the least lies outside of the runs: not used */
};
enum { NAPKIN_VALLEYS = 64 };
struct napkin_frontier {
    struct napkin_valley valley[NAPKIN_VALLEYS];
    int n_valleys, n_used;
    double exponent, factor;      /* best = factor at^exponent, through those that are used */
    int n_draws;                  /* 0: too few runs for an interval */
    double draw[NAPKIN_DRAWS][2]; /* exponent and factor of the bootstrap */
};
/* Approach 2: runs of about the same FLOPs are one curve (IsoFLOP); a parabola through log loss over log N has its
 * minimum at the best size. False: recorded, here and below. */
bool napkin_isoflop(const struct napkin_run *runs, int n_runs, struct napkin_frontier *f);
/* Approach 1: runs of one size are a curve of loss over tokens; at each budget one size has the least loss. */
bool napkin_envelope(const struct napkin_run *runs, int n_runs, struct napkin_frontier *f);
/* The best learning rate of each width: `parameters` of a run is its width, `tokens` its rate. */
bool napkin_rates(const struct napkin_run *runs, int n_runs, struct napkin_frontier *f);
/* The interval of `level` of the exponent, or of the best x at some FLOPs or width (at > 0). False: no draws. */
bool napkin_frontier_range(const struct napkin_frontier *f, double at, double level, double range[2]);

/* ---- Runs and thresholds to compare with ---- */

struct napkin_reference {
    const char *name;
    double flops;
    const char *source;
    bool is_estimate;
};
extern const struct napkin_reference napkin_references[]; /* by FLOPs, rising; ends with a row without a name */

#endif
