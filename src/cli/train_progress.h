/* train_progress.h: what `tally train` says before and while it trains, on stderr: the opening, a line that is
 * replaced on a terminal, plain lines elsewhere. */
#ifndef CLI_TRAIN_PROGRESS_H
#define CLI_TRAIN_PROGRESS_H

#include <stdio.h>

#include "cli/watch_child.h"
#include "train/opening.h"
#include "train/run.h"

struct train_progress {
    bool is_quiet, is_terminal;
    int64_t every;        /* steps between lines when there is no terminal */
    bool has_line;        /* an unfinished one is on the terminal */
    double shown_s;       /* when it was last replaced */
    struct run_news last; /* the newest step */
    bool is_behind;       /* the line is of an earlier one */
    double predicted_s;   /* of a step, by the machine's profile; 0: there is none */
    double seen_s;        /* of all steps from the third on, and how many they are */
    int64_t n_seen;
    bool has_page; /* --watch: from the opening on */
    int64_t page_port;
    struct watch_child page;
};

/* Mean seconds of a step, and how much longer than predicted that is; NAN: nothing was predicted or seen. */
double train_step_mean(const struct train_progress *p);
double train_drift(const struct train_progress *p);

/* For a run_listener, whose context is a struct train_progress. */
void train_progress_open(void *context, const struct opening *o);
void train_progress_tell(void *context, const struct run_news *n);
void train_progress_end(struct train_progress *p); /* ends the line, for others */
/* Starts the page of the run, unless it is there or was not asked for, and says where it is. */
void train_progress_page(struct train_progress *p, const char *run);

/* What a run is and costs, in eight lines or less of at most 80 columns. predicted_s: of a step; 0: not known. */
void opening_print(FILE *to, const struct opening *o, double predicted_s);
/* " (1.234 bits per byte)"; "" if it is not known. */
const char *sets_text(const struct run_sets *sets, char *text, size_t size); /* " (code 1.2345, web 2.3456)" */
const char *bits_text(double bits_per_byte, char *text, size_t size);

#endif
