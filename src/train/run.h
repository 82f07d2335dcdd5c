/* run.h: a training run in its folder: priced, trained, logged, saved, and resumed where it stopped.
 *
 *     OUT/config.json    the settings, resolved        price.json, receipt.json   tally.run/1
 *         log.jsonl      one object per logged step    checkpoints/               see checkpoint.h
 *         events.out.tfevents.tally   for TensorBoard  final/                     the last weights, for Hugging Face
 *         tokenizer/     the files of its tokenizer    data.tok, val_data*.tok    the tokens of its texts
 *         machine.json   where it is trained (origin.h)  run.json            which of these are the run's (folder.h)
 *         memory.json    what its second step allocates  profile.json        where the time goes, if it was measured
 *         ranks.json     the times of each rank, if there are several
 *
 * The same settings and the same folder resume from the newest whole checkpoint: bit for bit on the same machine, and
 * with a line in the log if the chip, the instruction set or libraries differ from the checkpoint's. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <signal.h>

#include "tally.h"
#include "step/kinds.h"
#include "step/sets.h"
#include "train/profile.h"
#include "step/settings.h"
#include "step/tokens.h"

enum run_end {
    RUN_DONE,
    RUN_STOPPED,    /* as requested: saved, to be resumed */
    RUN_NOT_FINITE, /* loss or gradient is not finite, and the settings say stop */
    RUN_FAILED      /* see tl_error_message() */
};

/* The losses of named sets of held-out data. */
struct run_sets {
    int n;
    struct {
        char name[SETS_NAME];
        double loss;
    } at[SETS_MOST];
};

struct run_news {        /* reported to the listener after every step */
    int64_t step, steps; /* the step it is about, counted from 1, and how many there are in all */
    double loss, norm, lr, step_s, tokens_per_s, flops_per_s, wait_share, eta_s;
    double mfu,
        hfu; /* model FLOPs by PaLM's rule, and those of the ledger, as a share of the peak; NAN: no peak is known */
    uint64_t peak_bytes;
    double held_out;             /* NAN: not evaluated now */
    double margin, accuracy;     /* preference: rewards of the step, or of the held-out pairs; otherwise NAN */
    double bits_per_byte;        /* of the held-out loss; NAN: bytes are not known */
    const struct run_sets *sets; /* of the evaluation; NULL: none */
    const char *text;            /* sampled text, or NULL */
};

/* Where the time of a process went, in seconds. Speeds are those of `steps_s` alone. */
struct run_times {
    double start_s; /* until the first step: the price, the device, the checkpoint to resume from */
    /* Of the first two steps, in which pools grow and libraries load; part of steps_s when there are no more. */
    double first_steps_s;
    double steps_s; /* of the others */
    double evaluation_s, sampling_s, saving_s;
};

enum { RUN_RANKS = 64 };
struct run_summary {
    int64_t steps, tokens, first_step, n_skipped;
    bool was_done;  /* every step was done before: loss, held_out and speeds are those of the log */
    double seconds; /* of all processes, from the first step on */
    struct run_times times;
    double tokens_per_s, flops, flops_per_s, loss, held_out, floor; /* held_out, floor: NAN where there is none; nats */
    double bits_per_byte;                                           /* of held_out; NAN: not known */
    double wait_share, mfu, hfu; /* wait: of the steps' time; mfu, hfu: as in run_news */
    int64_t pairs, causal_pairs; /* with document_mask: of query and key, used and billed; otherwise 0 */
    double best;                 /* the lowest held-out loss, and its step; NAN and -1: none */
    int64_t best_step;
    int64_t early_of;     /* the steps that it was to have, where early_stop ended it; 0: it was not ended */
    double noise_scale;   /* in tokens; NAN: not measured */
    struct run_sets sets; /* of the last evaluation */
    double margin, accuracy, held_out_accuracy; /* preference: rewards of the last step and evaluation; NAN: none */
    uint64_t peak_bytes, peak_by_purpose[TL_PURPOSE_COUNT];
    int64_t n_parameters, n_trained;
    double graph_share;     /* of the calls of steps, those that were queued as graphs; NAN: the device has none */
    char graphs_why[120];   /* why not all were; "": nothing prevents it */
    uint64_t foreign_bytes; /* held on the device by the process when the run began: peaks are then not compared */
    int differences;        /* between price and receipt; -1: the run is not complete */
    int rank, n_ranks;      /* this process among those of the run; n_ranks 0: not known */
    bool is_told;           /* rank 0 knows how the run ended, and tells it: others need not */
    struct run_rank {
        double steps_s, comm_s, exposed_s; /* as times.steps_s; messages were under way; of this, steps waited */
    } ranks[RUN_RANKS];                    /* of all ranks, or of the first RUN_RANKS */
    struct run_rank mean_rank;
    int slowest_rank; /* the one that others wait for: the most time in steps that it does not wait for messages */
    double imbalance; /* how much longer that is than the ranks' mean: 0.1 is a tenth */
    /* ep: rows that the experts of the rank with the most were given, in units of an even share; the most of any rank
     * in one layer of one micro-batch. 0: experts are not divided */
    double load, load_most;
    int loaded_rank;
    double sent_bytes;      /* in a step, by the rank that sends the most */
    char problem[256];      /* where the run's steps differ, or why it ended; "": nothing */
    char *text;             /* the last sample, or NULL; free() it */
    struct profile profile; /* of the steps that were timed; profile_free() it */
};

struct opening;
struct run_listener {
    void (*tell)(void *context, const struct run_news *news); /* NULL: no reports */
    void *context;
    volatile sig_atomic_t *stop; /* becomes 1 when the run is to save and end; NULL: never */
    int64_t profile_steps;       /* how many steps are timed op by op, from this process's third on */
    /* Before the first step, unless none is left to do (opening.h); NULL: not called. */
    void (*open)(void *context, const struct opening *opening);
    bool lists_memory;            /* memory.json gets the allocations of this process's second step */
    const char *trace;            /* a file that gets what happens in some steps, and when (trace.h); NULL: none */
    int64_t trace_from, trace_to; /* those steps, counted from 1; 0: the third to the fifth of this process */
};

/* tokens_ready (step/tokens.h) for a run: one that resumes has its tokenizer in its folder. Without this call before,
 * run_train makes it. */
bool run_tokenizer_ready(struct settings *s, tl_tokenizer **made, const struct tokens_listener *listener);
/* Fits the settings that were not given to the model and the device (step/defaults.h); a run that resumes keeps those
 * that it was started with. Its tokenizer must be ready. */
void run_defaults(struct settings *s);
struct run_summary run_summary_empty(void); /* of a run that has not begun */
enum run_end run_train(const struct settings *s, const struct run_listener *listener, struct run_summary *summary);

/* News and summary as JSON objects: unknown values are left out, a loss that is not finite is null. NULL on error,
 * which is recorded. */
json_t *run_sets_json(const struct run_sets *sets); /* {"NAME": loss}; NULL: no memory, not recorded */
json_t *run_news_json(const struct run_news *n);
json_t *run_summary_json(const struct settings *s, enum run_end end, const struct run_summary *m);

#endif
