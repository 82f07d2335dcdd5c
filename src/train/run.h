/* run.h: a run from its first step to its last, in one folder:
 *
 *      settings.json      what was asked, resolved; `tally train --config` reads it
 *      model.json         the model's config.json, as Hugging Face's library has it
 *      price.json         what the run will cost, by kind of step (tally.run/1), counted on meta before it starts
 *      receipt.json       what it did cost
 *      log.jsonl          loss, gradient norm, learning rate, speed, memory of every logged step; evaluations; samples
 *      checkpoints/       the newest, and the best
 *      model/             the last weights, as Hugging Face's library reads them
 *      stories.txt        the built-in data, where it is used
 *
 * The same command run again goes on from the newest checkpoint that is whole, and ends with the bits that a run without
 * interruption would have. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "tally.h"
#include "train/kinds.h"
#include "train/settings.h"

enum run_end {
    RUN_FAILED,    /* an error is recorded */
    RUN_DONE,      /* all steps are made */
    RUN_SAVED,     /* stopped between two steps and saved: to be run again */
    RUN_NUMERICAL, /* something was not finite; `why` says what */
};

struct run_progress {
    int64_t step, steps, tokens; /* made so far; in all; seen so far */
    double loss, grad_norm, lr, tokens_per_s, flops_per_s, elapsed_s, eta_s;
    double wait_share; /* of the time, spent waiting for data */
    uint64_t peak_bytes;
};

/* Who watches. Every function may be NULL. */
struct run_watch {
    void (*step)(const struct run_progress *p, void *context); /* every logged step */
    void (*note)(const char *line, void *context);             /* everything else worth a line */
    bool (*is_over)(int64_t step, void *context);              /* asked between steps: stop and save? */
    void *context;
};

struct run_summary {
    int64_t first_step, step, tokens, n_skipped; /* first_step: where this process began */
    double elapsed_s, here_s;                    /* of the whole run; of this process */
    double loss, held_out_loss, best_loss;       /* NaN: none */
    int64_t best_step;
    double floor;                                /* the smallest loss that data allows; NaN: not known */
    double flops;                                /* of all steps so far */
    uint64_t peak[TL_PURPOSE_COUNT], peak_bytes, peak_reserved_bytes; /* of a step */
    int64_t parameters;
    char *sample;      /* NULL: none */
    int n_differences; /* between price and receipt; -1: not compared, the run goes on */
    char *differences; /* a table of them, or NULL */
    char why[200];
};
void run_summary_free(struct run_summary *s);

/* Settings must have been checked (settings_check). */
enum run_end run(const struct settings *s, const struct run_watch *watch, struct run_summary *summary);

/* The price alone, written nowhere. False: recorded. */
bool run_price(const struct settings *s, struct kinds *price, int64_t *parameters);

#endif
