/* ladder.h: a few small models of one shape, from which the loss of a larger one is predicted.
 *
 * The widest rung is the model of the settings. Narrower ones have the same layers, heads of one size, as many tokens
 * for a parameter, and a learning rate that falls as the root of the width; each has a share of the FLOPs of the next.
 * Along such a ladder loss is E + A / C^alpha, C = 6 N D: three unknowns, so four rungs or more leave a scatter to
 * judge by. */
#ifndef PLAN_LADDER_H
#define PLAN_LADDER_H

#include "plan/napkin.h"
#include "step/settings.h"

enum { LADDER_RUNGS = 12, LADDER_LEAST = 4 };

struct ladder_options {
    int64_t rungs;
    double ratio;            /* FLOPs of a rung over those of the one below */
    double tokens_per_param; /* D / N */
    double predict;          /* FLOPs of the run to predict over those of the widest rung */
};

struct ladder_rung {
    struct settings settings;         /* of its run */
    double parameters, tokens, flops; /* flops: 6 N D */
    double loss;                      /* held out; NAN: not trained yet */
};
struct ladder {
    int n;                                     /* rungs, the narrowest first */
    struct ladder_rung rung[LADDER_RUNGS + 1]; /* and, behind them, the run to predict */
};

/* False: recorded. */
bool ladder_make(struct ladder *l, const struct settings *base, const struct ladder_options *o);
/* Through the losses of the rungs; what the fit says of a run of some FLOPs. False: recorded. */
bool ladder_fit(const struct ladder *l, struct napkin_fit *fit);
double ladder_loss(const struct napkin_law *law, double noise, const void *flops); /* a napkin_quantity */

#endif
