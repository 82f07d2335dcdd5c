/* trial.h: a few steps of a run on a real device, timed whole and op by op.
 *
 * The steps are the trainer's own, in a folder that is removed afterwards. The first steps run without timing inside
 * (they give the time of a step), then steps with every op timed (they give the rows). */
#ifndef PLAN_TRIAL_H
#define PLAN_TRIAL_H

#include "account/ledger.h"
#include "step/settings.h"

struct trial {
    double step_s;           /* of a step without timing inside */
    double kernel_s;         /* of its ops: the sum over the rows */
    uint64_t calls;          /* op calls of a step that run a kernel */
    struct ledger_row *rows; /* of one step */
    size_t n_rows;
    /* set by who measures them: the share of the time that this process's threads waited for a core, and the speed of
     * a fixed piece of work beside the trial */
    double waited, speed;
};

/* Both times are medians over the steps on a device of its own. Whoever shares this machine's cores only ever makes
 * them slower, for seconds at a time: there the least of ten counts.
 *
 * At least n_steps steps of each sort (at least 1), more if they are short, after a warm-up. The settings' out is not
 * used. False: recorded. */
bool trial_run(const struct settings *s, int n_steps, struct trial *trial);

/* `best` gets the lesser times of two trials of the same settings, and the lesser disturbance. False: recorded. */
bool trial_merge(struct trial *best, const struct trial *other);
void trial_free(struct trial *trial);

#endif
