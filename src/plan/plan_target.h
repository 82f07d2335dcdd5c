/* plan_target.h: the machine that a run is planned for: the pool's rules, how much memory there is, and its speed, as
 * far as known. */
#ifndef PLAN_PLAN_TARGET_H
#define PLAN_PLAN_TARGET_H

#include "plan/hardware.h"
#include "plan/predict.h"
#include "step/price.h"
#include "step/settings.h"
#include "tally.h"

/* The machine behind the settings' `device`. */
struct plan_target {
    char name[64];                /* as the user gave it */
    const struct hardware *chip;  /* NULL: it is in no table */
    struct predict_machine speed; /* all 0: not known */
    tl_device *device;            /* meta, with the rules of the pool */
    uint64_t memory_bytes;        /* of the device; 0: not known, and then there is no verdict */
    uint64_t outside_bytes;       /* of these, outside the pool: the driver's context and library code */
    bool has_given_peak;          /* of the products' dtype: the settings say it */
    bool has_kernels;             /* Tally runs there; otherwise its rules of memory are cuda's */
    bool is_assumed;              /* it has no target: the rules are those of the H200 */
};

/* "cpu" and "this" are this machine; "cuda" is its GPU, and an H200 where there is none; any target; any chip of the
 * hardware table. False: recorded. */
bool plan_target_find(struct plan_target *target, const char *name);
/* How sure its rules are: "measured" (price and receipt agreed on that card), "never run", "driver" (a card that is in
 * no table), "assumed" (those of another card). */
const char *plan_target_origin(const struct plan_target *target);
/* The machine's own measurements (`tally calibrate`), which must outlive the target, in place of a sheet. */
void plan_target_measured(struct plan_target *target, const struct machine *machine);
/* The settings' memory_limit and peak, where they are given, replace the device's own. */
void plan_target_override(struct plan_target *target, const struct settings *s);
/* The limit of the pool. 0: unknown. */
uint64_t plan_target_limit(const struct plan_target *target);

#endif
