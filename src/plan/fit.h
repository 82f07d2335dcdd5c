/* fit.h: the largest size that fits, by pricing sizes until one fits and the next does not.
 *
 * What the pool reserves is no smooth function of a size: segments are rounded, blocks leave gaps. But the bytes in blocks at the peak are
 * monotone in every size that is searched here, and never more than what is reserved. So the search looks for a size that fits while the
 * next one does not, and then tries every size further up until the blocks alone are too many: from there on nothing can fit. That the
 * blocks are monotone is checked on all sizes that were priced. */
#ifndef PLAN_FIT_H
#define PLAN_FIT_H

#include "plan/plan.h"

/* What stops the next size. */
enum fit_limit { FIT_NOTHING, FIT_MEMORY, FIT_DAYS, FIT_MONEY };
const char *fit_limit_name(enum fit_limit limit);

struct fit_point { /* one size that was priced */
    int64_t size;
    enum fit_limit limit;
    enum price_verdict verdict;
    uint64_t bytes, block_bytes; /* reserved, and in blocks at the peak; on several devices both are the estimate */
    int64_t n_parameters;
    double days, money; /* of the training; 0: not known */
    tl_purpose purpose; /* what most of the peak is for, whose it is, and its share */
    char module[80];
    double share;
};

struct fit_answer {
    struct fit_point best, next; /* size 0: no size fits; no size is too large */
    int n_priced;
    bool is_proven;   /* no size above `best` fits */
    bool is_monotone; /* blocks did not shrink with size in any pair that was priced */
};

struct fit_question {
    enum plan_axis axis;
    struct settings settings;
    struct price_target target;
    struct plan_options options;
    int64_t first, unit, most;  /* where to begin; sizes are multiples of unit, up to most */
    double days, money;         /* budgets; 0: none */
    double tokens_per_parameter; /* tokens of the training when options.tokens is 0; 0: as the settings say */
};

extern const char *const fit_axis_names[PLAN_N_AXES]; /* "batch", "seq", "layers", "channels" */
/* The setting of an axis, changed; the model's context grows with seq where it must. */
void fit_axis_set(struct settings *s, enum plan_axis axis, int64_t size);
/* Where the search begins, and its step, for a run: batch 1, seq 128, a layer, a group of heads. False: recorded. */
bool fit_question_begin(struct fit_question *q, enum plan_axis axis, const struct settings *s,
                        const struct price_target *target, const struct plan_options *options);
/* False: recorded. */
bool fit_search(const struct fit_question *q, struct fit_answer *answer);
/* One run against memory and budgets. */
bool fit_check(const struct fit_question *q, const struct settings *s, struct fit_point *point);

#endif
