/* plan_sheet.h: parts of the sheet of a plan, a file each. */
#ifndef CLI_PLAN_SHEET_H
#define CLI_PLAN_SHEET_H

#include <math.h>

#include "cli/plan_options.h"
#include "cli/sheet.h"
#include "plan/plan.h"

static inline bool plan_is_many(const struct plan *plan) { return plan->options.n_devices > 1; }

/* Of a step of all devices. */
static inline double plan_step_tokens(const struct plan *plan) {
    return (double)plan->price.n_tokens * (double)plan->options.layout.dp;
}

static inline const char *plan_chip_name(const struct plan *plan) {
    return plan->target.chip ? plan->target.chip->name : plan->target.name;
}

/* Seconds of an op at its peak or at memory bandwidth. */
static inline double plan_least_of(const struct plan *plan, const struct plan_group *g) {
    const struct plan_bound b = plan_bound_of(g, &plan->target.speed);
    return fmax(b.arithmetic_s, b.memory_s);
}

/* plan_sheet_run.c: model, step, device, layout. */
void plan_sheet_run(struct sheet *s, const struct plan *plan);
/* plan_sheet_cost.c: memory, what is sent, modules, FLOPs, ops, time. */
void plan_sheet_memory(struct sheet *s, const struct plan *plan);
void plan_sheet_cost(struct sheet *s, const struct plan *plan);
/* plan_sheet_growth.c: limits of growth, and more devices. */
void plan_sheet_growth(struct sheet *s, const struct plan *plan);

#endif
