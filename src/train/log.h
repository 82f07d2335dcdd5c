/* log.h: a run's log.jsonl, one object per line, each beginning with the step it belongs to. What differs between two runs of the same
 * command is inside "time" alone. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include "tally.h"

struct log;

/* Opens a log, or makes it. Lines of steps after `through`, and what was cut off by a crash, are removed. NULL: recorded. */
struct log *log_open(const char *path, int64_t through);
bool log_sync(struct log *log);   /* to the disk */
void log_close(struct log *log);  /* NULL allowed */

struct log_time { /* what no two runs share */
    double step_s, elapsed_s, wait_s, tokens_per_s, flops_per_s;
};
struct log_step {
    int64_t step, tokens;
    double loss, grad_norm, lr;
    uint64_t peak_bytes;
    int64_t n_skipped; /* steps so far that changed nothing */
    struct log_time time;
};
bool log_step(struct log *log, const struct log_step *line);
bool log_held_out(struct log *log, int64_t step, double loss, bool is_best);
bool log_text(struct log *log, int64_t step, const char *key, const char *text); /* "sample", "note" */

#endif
