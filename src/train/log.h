/* log.h: the logs of a run: log.jsonl for programs, and an event file for TensorBoard.
 *
 * Both are appended to. A checkpoint records their lengths, and a resumed run truncates them there, so that no step
 * appears twice. A log that was cut or overwritten is reported and truncated after its last whole line or record:
 * lost lines are not recreated, and the rest stays readable. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"

#define LOG_LINES "log.jsonl"
#define LOG_EVENTS "events.out.tfevents.tally" /* TensorBoard looks for "tfevents" */

struct device_health;
struct run_sets;
struct log_step { /* the values of a step after its results have been read */
    int64_t step, tokens;
    double loss, norm, lr, step_s, tokens_per_s, wait_s, mfu; /* wait: for data; mfu: NAN where no peak is known */
    double comm_s, exposed_s; /* messages were under way, and of this, the step waited; comm_s -1: a process alone */
    bool is_skipped;
    bool has_noise;                     /* noise_scale is measured */
    double noise_scale;                 /* in tokens; NAN: not known yet */
    double margin, accuracy;            /* rewards of a step, with preference; otherwise NAN */
    int64_t pairs;                      /* of query and key that attention used, with document_mask; otherwise -1 */
    const struct device_health *health; /* NULL: unknown, or read a moment ago */
};

struct log_evaluation {
    int64_t step;
    double loss, bits_per_byte, seconds; /* bits_per_byte: NAN if it is not known; seconds: that the evaluation took */
    double margin, accuracy;             /* as of a step */
    const struct run_sets *sets;
};

struct log {
    const struct file_folder *folder;
    FILE *lines, *events;
};

/* Opens both and truncates them to these lengths, or to less where they are damaged. False: recorded, and nothing is
 * open.
 * */
bool log_open(struct log *l, const struct file_folder *folder, int64_t line_bytes, int64_t event_bytes);
bool log_close(struct log *l);
/* A log that is not open takes everything and writes nothing: one rank of several writes. */
/* Syncs the files and returns their lengths. */
bool log_sync(struct log *l, int64_t *line_bytes, int64_t *event_bytes);

bool log_step(struct log *l, const struct log_step *s);
bool log_held_out(struct log *l, const struct log_evaluation *e);
bool log_change(struct log *l, int64_t step, const char *words); /* a change from this step on; only in log.jsonl */
bool log_text(struct log *l, int64_t step, const char *text);    /* a sample */

#endif
