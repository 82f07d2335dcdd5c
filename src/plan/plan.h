/* plan.h: conclusions from a price: where bytes and FLOPs are, the FLOPs by other conventions, the least time of a
 * step, the cost of a whole training, what limits its size, and what to change.
 *
 * Counts of one device are the ledger's, exact. Everything else is labelled: times come from a data sheet, or from
 * measurements of the machine; a training on several devices is an estimate on top of the exact count of one. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "plan/fit.h"
#include "plan/framework.h"
#include "plan/group.h"
#include "plan/layout.h"
#include "plan/mfu.h"
#include "plan/plan_target.h"

/* Useful FLOPs of a step, by various authors' rules; all but the last leave out recomputation. */
enum plan_convention { PLAN_PALM, PLAN_CAUSAL, PLAN_PRODUCTS, PLAN_HARDWARE, PLAN_N_CONVENTIONS };
struct plan_convention_info {
    const char *name, *rule;
};
extern const struct plan_convention_info plan_conventions[PLAN_N_CONVENTIONS];
void plan_convention_flops(const struct price *price, count flops[PLAN_N_CONVENTIONS]);

/* One op (and dtype) on the device, by its sheet or its measurements. 0: not known. */
struct plan_bound {
    double intensity;    /* FLOP per byte */
    double ridge;        /* peak of the op's dtype / bandwidth */
    double arithmetic_s; /* FLOPs / peak */
    double memory_s;     /* bytes / bandwidth */
};
struct plan_bound plan_bound_of(const struct plan_group *op, const struct predict_machine *m);

/* Seconds of one step of a kind on one device. 0: not known. */
struct plan_time {
    double bound_s;    /* no step can be shorter (predict.h) */
    double roofline_s; /* every op at the peak or at the memory's bandwidth, whichever is slower, one after the other */
    double predicted_s; /* by the machine's own measurements */
    double compute_s;   /* FLOPs alone, those of each dtype at its own peak */
    double peak;        /* FLOP/s of the products, each dtype at its own peak */
};
struct plan_time plan_time_of(const struct price *price, enum step_kind kind, const struct predict_machine *machine);
/* The best known time: the prediction, or the roofline. */
double plan_step_s(const struct plan_time *time);

/* The same run on more devices, each with as many sequences as before: an estimate. */
enum { PLAN_DOUBLINGS = 8 };
struct plan_scale {
    int64_t devices;
    struct layout_estimate layout;
    bool fits;
    double step_s, tokens_per_s; /* expected; 0: not known */
    double efficiency;           /* tokens/s, as a share of that without communication; 0: not known */
    bool binds;                  /* communication takes longer than computation, even if all of it overlaps */
};

/* What a training is expected to take, beside the bounds of plan_time and plan_run. step_s 0: not known. */
struct plan_expectation {
    double step_s, mfu;            /* mfu: by PaLM's rule; 0: not known */
    struct bill bill, least, most; /* nine of ten published runs lie between the last two */
    bool has_range;                /* it rests on published runs, not on a given share or on measurements */
    const struct mfu_row *row;     /* those of this chip and about this size; NULL: there are none */
};

struct plan {
    struct settings settings; /* of the run */
    struct price price;       /* of one device that has the whole model, with the sequences of one rank */
    struct plan_target target;
    struct plan_options options;
    struct plan_groups modules, ops; /* of a step; bytes that modules hold are at the peak of the run's largest kind */
    count flops[TL_PHASE_COUNT], total_flops, total_bytes, convention[PLAN_N_CONVENTIONS];
    tl_dtype dtype; /* of the recipe's products, but for those in 8 bits */
    count dtype_flops[TL_DTYPE_COUNT];
    struct plan_time time;
    struct plan_run run;
    struct plan_expectation expected;
    struct layout_estimate layout; /* on several devices */
    const struct framework *as;    /* NULL: Tally itself */
    struct framework_held held;    /* what it holds on each device */
    bool has_growth;
    struct fit_answer growth[FIT_N_AXES];
    struct plan_scale scale[PLAN_DOUBLINGS]; /* with has_growth: from n_devices on, doubled again and again */
    char advice[6][240];
    int n_advice;
};

/* `has_growth`: also search for the limits of growth, and advise. False: recorded, nothing is left behind. */
bool plan_make(struct plan *plan, const struct settings *s, const struct plan_target *target,
               const struct plan_options *options, bool has_growth);
void plan_free(struct plan *plan);

/* Bytes on each device: of another framework, if it is asked for, or the exact price of one device, or those on each of
 * several; and whether they fit. */
uint64_t plan_needed(const struct plan *plan);
enum price_verdict plan_verdict(const struct plan *plan);

/* Time at the peaks as a share of a step: of a convention's FLOPs, or of those of one dtype. At most 1: a step is never
 * shorter than its FLOPs at the peaks. 0: not known, or a convention counts more FLOPs than the step could compute. */
double plan_share(const struct plan *plan, enum plan_convention convention);
double plan_dtype_share(const struct plan *plan, tl_dtype dtype);

/* The first of the doublings that fits; the first on which communication takes longer than computation. 0: none. */
int64_t plan_scale_fits(const struct plan *plan);
int64_t plan_scale_binds(const struct plan *plan);

/* A step as a picture, SVG: its memory by purpose, op by op, and its time by op. memory_free it. NULL: recorded. */
char *plan_svg(const struct plan *plan);

/* tally.plan/1 (docs/planning.md); NULL: recorded. */
json_t *plan_json(const struct plan *plan);
json_t *plan_layout_json(const struct layout *layout, const struct layout_estimate *e);
json_t *plan_point_json(const struct fit_point *point);
json_t *plan_answer_json(const struct fit_answer *answer);

#endif
