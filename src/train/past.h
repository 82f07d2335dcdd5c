/* past.h: how far a run has come, from the files in its folder: its weights are not opened, and nothing is changed. */
#ifndef TRAIN_PAST_H
#define TRAIN_PAST_H

#include "base/file.h"
#include "step/settings.h"
#include "train/run.h"

/* The end of a log (log.h). */
struct past_log {
    int64_t step, tokens;           /* of the last line of a step; 0: there is none */
    double loss;                    /* of that step; NAN: not known, here and below */
    double held_out, bits_per_byte; /* of the last evaluation */
    struct run_sets sets;           /* of it */
    double best;                    /* the lowest held-out loss of the part that was read */
    double tokens_per_s, step_s;    /* means of the last steps, without the first two of the run */
};
/* Reads the last lines, and as many more as are needed to find an evaluation. False: recorded. */
bool past_log_read(struct past_log *l, const struct file_folder *folder);
/* The loss at a step: the mean of the lines of up to `n` steps that end there. NAN: the log does not have it. */
bool past_loss_at(const struct file_folder *folder, int64_t step, int64_t n, double *loss);

enum past_state { PAST_RUNNING, PAST_FINISHED, PAST_STOPPED, PAST_UNSTARTED };
const char *past_state_text(enum past_state state);

struct past {
    struct settings settings; /* of config.json */
    enum past_state state;
    struct past_log log;
    int64_t changed_ns; /* when its log was last written to */
};
/* Whether a folder has the record of a run (run.json). */
bool past_is_run(const struct file_folder *folder);
/* False: recorded. */
bool past_read(struct past *p, const struct file_folder *folder);

#endif
