/* plan_options.h: what `plan` and `fit` share: settings of a run, flags of their own, a device. */
#ifndef CLI_PLAN_OPTIONS_H
#define CLI_PLAN_OPTIONS_H

#include "cli/options.h"
#include "plan/fit.h"
#include "plan/plan.h"

#define PLAN_SWEEPS 8

struct plan_flags {
    struct settings settings;
    struct plan_options options;
    struct plan_target target;
    struct machine machine;         /* what was measured of this one */
    bool has_machine, has_hardware; /* read already */
    tl_tokenizer *made;             /* that settings.ready points at, or NULL */
    const char *shard, *hardware, *price_file;
    double link; /* GB/s */
    bool is_json, is_short, is_inference;
    int64_t n_new; /* with is_inference */
    /* fit */
    const char *what;
    double days, money, tokens_per_parameter;
    int64_t unit;
    const char *family;
    /* --sweep NAME=a,b,c */
    const char *sweep[PLAN_SWEEPS];
    int n_sweeps;
};

/* Reads the arguments of `command`: flags of `table` (which point into *f), --config FILE, --sweep, and settings. 0,
 * or the exit code. */
int plan_flags_read(struct plan_flags *f, const char *command, const struct option *table, int argc, char **argv,
                    int n_words);
/* Finds the device, with the memory that was given in its place. 0, or the exit code. */
int plan_target_read(struct plan_flags *f);
void plan_flags_free(struct plan_flags *f);

/* "1.2 s", "3.4 h", "12 days"; buffer of 32. */
const char *duration_text(double s, char *buffer);

/* The purpose and module that take the most memory in the first size that does not fit: "mostly activation in
 * model.*.mlp". */
enum { GROWTH_TEXT = 200 };
const char *growth_text(const struct fit_answer *answer, char buffer[GROWTH_TEXT]);

#endif
