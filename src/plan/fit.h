/* fit.h: the largest size that fits, by pricing sizes until one fits and the next does not.
 *
 * The search is that of step/search.h, along one of four sizes, within memory and budgets. */
#ifndef PLAN_FIT_H
#define PLAN_FIT_H

#include "plan/bill.h"
#include "plan/group.h"
#include "plan/layout.h"
#include "plan/plan_target.h"

enum fit_axis { FIT_BATCH, FIT_SEQ, FIT_LAYERS, FIT_CHANNELS, FIT_N_AXES };
struct plan_options {
    int64_t n_devices;                              /* 0: as many as the settings need */
    struct layout layout;                           /* schedule and chunks; the rest is the settings' */
    struct network network;                         /* node 0: the chip's usual one */
    double tokens;                                  /* of the whole training; 0: as the settings say */
    double price_per_hour;                          /* of one device; 0: not known */
    struct bill_terms terms;                        /* what else is known of those who pay */
    const char *as;                                 /* whose memory is asked for (framework.h); NULL: Tally's */
    void (*tell)(enum fit_axis axis, int64_t size); /* before each size that a search prices; NULL: nothing */
};
/* Fills in what was left open, and the layout by the settings. False: recorded. */
bool plan_options_complete(struct plan_options *o, const struct settings *s, const struct plan_target *target);

/* Seconds, money, energy of a whole training. 0: not known. */
struct plan_run {
    double tokens, steps, step_s, days, device_hours, energy_kwh, money;
    double whole_steps; /* that take as long: those of batch-size warm-up take a part of step_s */
    double least_s;     /* of a step, of which step_s is the expectation; on several devices */
};
/* `e`: on several devices; on one, NULL. */
struct plan_run plan_run_of(const struct price *price, const struct plan_target *target,
                            const struct plan_options *options, const struct layout_estimate *e);

extern const char *const fit_axis_names[FIT_N_AXES]; /* names of settings */

enum fit_limit {
    FIT_NOTHING,
    FIT_MEMORY,
    FIT_DAYS,
    FIT_MONEY,
    FIT_REFUSED
}; /* the limit that a size exceeds; refused: no such run */
const char *fit_limit_name(enum fit_limit limit);

struct fit_point { /* one size that was priced */
    int64_t size, n_parameters;
    enum fit_limit limit;
    enum price_verdict verdict;
    uint64_t bytes, block_bytes; /* reserved, and in blocks at the peak; on several devices both are the estimate */
    count flops;                 /* of a step, all phases */
    struct plan_run run;
    struct group_peak peak;
    char why[200]; /* why it is refused */
};

struct fit_question {
    enum fit_axis axis;
    struct settings settings;
    tl_model_config config; /* theirs */
    struct plan_target target;
    struct plan_options options;
    int64_t first, unit, most;   /* where to begin; sizes are multiples of unit, up to most */
    int n_above;                 /* sizes above the best that are tried one by one */
    double days, money;          /* budgets; 0: none */
    double tokens_per_parameter; /* tokens of the training per parameter; 0: options.tokens */
    const struct fit_point *own; /* of the settings as they are (fit_own); NULL: not known */
};

struct fit_answer {
    struct fit_point best, next; /* size 0: no size fits; no size is too large */
    int n_priced;
    bool is_proven;   /* no size above `best` fits */
    bool is_monotone; /* blocks did not shrink with size in any pair that was priced */
};

/* The purpose that grew most between the two, and the module with most of it. */
tl_purpose fit_growth(const struct fit_answer *answer, const char **module);

/* Where the search begins, and its steps, for a run: a sequence, 128 tokens (one below 1024), a layer, a group of
 * heads. False: recorded. */
bool fit_begin(struct fit_question *q, enum fit_axis axis, const struct settings *s, const struct plan_target *target,
               const struct plan_options *options);
/* False: recorded. */
bool fit_search(const struct fit_question *q, struct fit_answer *answer);
/* The run with one size changed, against memory and budgets. */
bool fit_try(const struct fit_question *q, int64_t size, struct fit_point *point);
bool fit_try_steps(const struct fit_question *q, int64_t size,
                   struct fit_point *point); /* without evaluations and samples */
/* The settings as they are, of which `price` is the price, with q of FIT_BATCH. Searches along all axes begin there. */
bool fit_own(const struct fit_question *q, const struct price *price, struct fit_point *point);
/* The settings with that size. */
struct settings fit_settings(const struct fit_question *q, int64_t size);

#endif
