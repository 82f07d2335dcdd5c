/* napkin.h: closed forms: estimates of a training run on the back of a napkin, before anything is counted.
 *
 * These are other people's rules, written down so that their figures can be reproduced and compared. Tally's own
 * figures come from the ledger (docs/accounting.md). All numbers are doubles; sizes come from checked inputs. */
#ifndef PLAN_NAPKIN_H
#define PLAN_NAPKIN_H

#include "tally.h"

/* ---- FLOPs of a model, by every convention ---- */

struct napkin_model {
    double parameters;      /* N: all of them */
    double matmul;          /* those that multiply a token: layers and head, no biases, norms, embeddings */
    double embedding, head; /* V C each; the same weights when tied */
    bool is_tied;
    double layers, channels, attention, vocabulary; /* attention: heads x head size */
};
struct napkin_model napkin_model_of(const tl_model_config *config);
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
#define NAPKIN_DAY 86400.0

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

struct napkin_run {
    double parameters, tokens, loss;
};
struct napkin_fit_options {
    double alpha, beta; /* positive: kept; 0: found */
    double delta;       /* of the Huber loss, in log loss; 0: NAPKIN_DELTA */
    bool without_draws; /* no intervals are asked for */
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

/* ---- Runs and thresholds to compare with ---- */

struct napkin_reference {
    const char *name;
    double flops;
    const char *source;
    bool is_estimate;
};
extern const struct napkin_reference napkin_references[]; /* by FLOPs, rising; ends with a row without a name */

#endif
