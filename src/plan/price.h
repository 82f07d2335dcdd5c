/* price.h: what a run costs on a machine, found by running the trainer's own loop on meta under that machine's rules of memory.
 *
 * Nothing here knows what a model is: bytes and FLOPs are those of the ledger. What is derived from them is in plan.h. */
#ifndef PLAN_PRICE_H
#define PLAN_PRICE_H

#include "plan/hardware.h"
#include "account/ledger.h"
#include "plan/predict.h"
#include "tally.h"
#include "train/run.h"
#include "train/settings.h"

/* What stands in the settings' place of `device`: the pool's rules, and how much there is to give. */
struct price_target {
    char name[64];                /* as it was asked for */
    const struct hardware *chip;  /* NULL: it is in no table */
    struct predict_machine speed; /* all 0: nothing is known of it */
    tl_device *device;            /* meta, with the rules of the pool */
    uint64_t memory_bytes;        /* of the device; 0: not known, and then there is no verdict */
    uint64_t outside_bytes;       /* of these, what is never the pool's: the driver's context and library code */
    bool has_given_peak;          /* of the products' dtype: the settings say it */
    bool has_kernels;             /* Tally runs there; otherwise its rules of memory are cuda's */
    bool is_assumed;              /* it has no target of its own: the rules are those of the H200 */
};

/* "cpu" and "this" are this machine; "cuda" is its GPU, and an H200 where there is none; any target; any chip of the
 * hardware table. False: recorded. */
bool price_target_find(struct price_target *target, const char *name);
/* How sure its rules are: "measured" (price and receipt agreed on that card), "never run", "driver" (a card that is in no
 * table), "assumed" (those of another card). */
const char *price_target_origin(const struct price_target *target);
/* The machine's own measurements (`tally calibrate`), which must outlive the target, in place of a sheet. */
void price_target_measured(struct price_target *target, const struct machine *machine);
/* The settings' memory_limit and peak, where they are given, stand in the place of the device's own. */
void price_target_override(struct price_target *target, const struct settings *s);
/* What the pool may reserve. 0: not known. */
uint64_t price_target_limit(const struct price_target *target);

enum price_verdict {
    PRICE_FITS,
    PRICE_FITS_TIGHTLY, /* the pool must give unused segments back to the device on the way */
    PRICE_TOO_LARGE,
    PRICE_UNKNOWN /* nobody knows how much memory there is */
};

struct price_kind {
    tl_ledger *ledger; /* of the second step; of the first one of every other kind; NULL: it never comes */
    int64_t count;     /* in the whole run */
};

struct price {
    struct settings settings;
    struct price_target target;
    tl_model_config config;
    int64_t n_parameters;
    int64_t n_tokens; /* of a step */
    struct price_kind kind[KIND_COUNT];
    uint64_t held_bytes, allocated_bytes, reserved_bytes; /* the most of the whole run */
    enum step_kind peak_kind;                             /* the kind that holds the most */
    enum price_verdict verdict;
    bool is_steady; /* steps 2 and 3 cost the same */
};

/* False: recorded, and nothing is left behind. A run that does not fit is priced all the same. */
bool price_make(struct price *price, const struct settings *s, const struct price_target *target);
/* The same with a fifth of the work: steps, peaks and verdict are exact, the counts of evaluations and samples are too low (run_sketch). */
bool price_sketch(struct price *price, const struct settings *s, const struct price_target *target);
void price_free(struct price *price);

const char *price_verdict_text(enum price_verdict verdict);

/* What was live at the peak: cells of (path, purpose) of a price's own device. */
const struct held_window *price_window(const struct price *price, enum step_kind kind);

#endif
