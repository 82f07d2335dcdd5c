/* run_parts.h: a run while it runs, for the files that are parts of it: run.c has the loop, run_folder.c the folder
 * at the start, run_tokens.c the tokenizer and the tokens of texts, run_price.c the price in it and the verdict,
 * run_save.c checkpoints and the final files, run_report.c times and reports. */
#ifndef TRAIN_RUN_PARTS_H
#define TRAIN_RUN_PARTS_H

#include "comm/comm.h"
#include "step/kinds.h"
#include "step/mesh.h"
#include "step/source.h"
#include "step/trainer.h"
#include "step/walk.h"
#include "tensor/device.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/log.h"
#include "train/origin.h"
#include "train/run.h"
#include "train/tokenizer_files.h"
#include "train/trace.h"

#define RUN_CONFIG "config.json"
#define RUN_PRICE "price.json"
#define RUN_RECEIPT "receipt.json"
#define RUN_MACHINE "machine.json"
#define RUN_MEMORY "memory.json"
#define RUN_PROFILE "profile.json"
#define RUN_RANKS_FILE "ranks.json"
#define RUN_FINAL "final"
const char *const *run_final_files(const struct settings *s); /* two */

enum { RUN_CHANGES_TEXT = 640 }; /* leaves room for the rest of an error */
enum { RUN_FIRST_STEPS = 2 };    /* of a process: they are slower */

struct run {
    struct settings settings, saved; /* saved: of the checkpoint that it resumes from */
    struct mesh mesh;                /* the processes that train it; only the first rank writes and tells */
    char *price;                     /* of a rank other than the first, whose price is in the folder */
    double timeout_before_s;         /* of waiting for other ranks, before the run */
    const struct run_listener *listener;
    struct run_summary *summary;
    struct source source;
    struct tokenizer_files tokenizer;
    tl_tokenizer *made;     /* that settings.ready points at; NULL: it is the caller's, or there is none */
    double bytes_per_token; /* of the evaluations' targets; NAN: not known */
    struct origin origin;
    struct trainer *trainer;
    struct kinds kinds;
    struct log log;
    int64_t log_bytes, event_bytes; /* of the log when the last checkpoint was made */
    int64_t step, n_read;           /* steps done, and steps whose loss and norm were read */
    int64_t best_step, last_saved, n_rollbacks;
    int64_t early_of;                 /* as in the summary */
    double best, held_out, elapsed_s; /* elapsed: before this process */
    double began_s, health_s;         /* health_s: when the device's health was last read */
    struct device_health health;
    double step_s;                                 /* of the last step that was read */
    double step_flops;                             /* of a whole step; in batch-size warm-up from the steps so far */
    double flops;                                  /* of all steps so far */
    double priced_flops;                           /* of a step, by the price: until the first receipt */
    struct comm_times step_comm, first_comm, comm; /* of that step, of the first two, of the others */
    int64_t step_pairs[2];                         /* as the trainer's, of all ranks */
    struct step_span {
        int64_t from, to; /* marks of the device (tensor/device.h) */
        double asked_s;   /* that this thread took to launch it */
        struct comm_times comm;
    } span[2];                    /* of the steps that are not read yet, by their number */
    int64_t n_timed;              /* steps of this process that were read; also those that were rolled back */
    int64_t first_tokens, tokens; /* of the first two of them, of the others */
    int64_t last_mark;            /* the end of the step before, if nothing came between; 0: something did */
    double step_began_s;          /* if nothing else ran beside it; 0: something did */
    double palm_flops;            /* of a token, by PaLM's rule */
    int64_t n_trained;            /* parameters, of all ranks */
    bool is_new_best;             /* the last evaluation was */
    bool owes_evaluation;         /* the one due after the last step was left when the run was stopped */
    double wait_s, waited_s;      /* for data: in the last step, and in all of this process */
    struct folder folder;
    struct checkpoint *found; /* the newest whole one, until it is resumed from */
    json_t *state;            /* its state; NULL: there is none */
    bool needs_price;         /* price.json was damaged */
    json_t *made_from;        /* see identity.h */
    bool accepts_changes;
    bool lists_memory;              /* of the second step of this process: on until that has ended */
    struct trace *trace;            /* NULL: none, or it is over */
    bool was_stopped;               /* while its texts were tokenized */
    char changes[RUN_CHANGES_TEXT]; /* of the run's identity, accepted, and of its length; "": none */
};

/* ---- run_folder.c ---- */

/* Opens the folder and the newest whole checkpoint, and settles the run's settings. A folder that another run has
 * made is not this run's. False: recorded, here and below. */
bool run_folder_begin(struct run *r);
/* Opens the data and compares all inputs of the run with the checkpoint's. `weights`: the folder of the first
 * weights, or "". */
bool run_inputs_open(struct run *r, const tl_model_config *config, const char *weights);
bool run_final_look(struct run *r, bool *is_whole); /* the weights in final/ */
void run_changes_add(struct run *r, const char *words);

/* ---- run_tokens.c ---- */

bool run_tokens_take(struct run *r);     /* tokenizes texts, and keeps the tokenizer's files in the folder */
bool run_tokenizer_begin(struct run *r); /* run_tokenizer_ready, until the listener asks to stop */
/* Writes the tokenizer's files to a folder of the run's, and whether they are still what was written. */
bool run_tokenizer_put(struct run *r, const char *in);
bool run_tokenizer_look(struct run *r, const char *in, bool *is_whole);
double run_bits_per_byte(const struct run *r, double loss); /* of an evaluation; NAN: not known */

/* ---- run_price.c ---- */

bool run_price_begin(struct run *r); /* first: a run that does not fit is reported before the first step */
bool run_memory_suffices(struct run *r, tl_device *device);
bool run_price_again(struct run *r, const struct settings *before); /* when it resumes; before: when it was saved */
bool run_price_repair(struct run *r);
/* Of a run that ends now, after fewer steps than the `before` that it was priced for. */
bool run_price_shorten(struct run *r, int64_t before);
bool run_verdict(struct run *r); /* compares price and receipt: the first rank's from the folder */

/* ---- run_save.c ---- */

bool run_log_begin(struct run *r);
bool run_changes_log(struct run *r);
bool run_machine_write(struct run *r);
bool run_save(struct run *r, bool is_planned);
/* The settings that a checkpoint was made with; the present ones if it has none. */
bool run_settings_of(const json_t *state, const struct settings *now, struct settings *then);
bool run_resume_found(struct run *r);  /* from the checkpoint found when the run began, if any */
bool run_resume_newest(struct run *r); /* in the middle of a run */
bool run_complete(struct run *r);      /* once every step is done: the final weights, the receipt, the verdict */

/* ---- run_ranks.c: several processes, all of which call these; a process alone finds nothing to do ---- */

/* Whether all ranks are `ok`. Otherwise an error is recorded on all of them, that of the first rank that has one; or
 * was_stopped is set. */
bool run_agree(struct run *r, bool ok);
/* How long other ranks wait for this one until it counts as stuck. In a step: ten steps, as those that this process
 * made predict them, and at least 30 s. Elsewhere a rank may have something to do alone: an hour. Before the first
 * step, when texts are tokenized, as long as it takes. */
enum run_phase { PHASE_BEGINS, PHASE_STEP, PHASE_OTHER };
double run_ranks_patience(const struct run *r, enum run_phase phase); /* returns what it was */
bool run_ranks_compare(struct run *r);                                /* the settings, as they were given */
/* Once the first rank has opened folder and inputs: the others open the same, and compare their inputs with its. */
bool run_ranks_begin(struct run *r, const tl_model_config *config, const char *weights);
bool run_ranks_sum(const struct run *r, int64_t *number); /* over all ranks, in place */
bool run_ranks_step(const struct run *r, int64_t *step);  /* the first rank's number, on all */
/* Of a step: the FLOPs of all ranks, and the bytes that the rank sends which sends the most. */
bool run_ranks_cost(const struct run *r, double *flops, double *sent_bytes);
bool run_checkpoint_write(struct run *r, struct trainer_part *parts, const char *state);
bool run_ranks_price(struct run *r, bool is_resumed); /* of this rank, unless it is the first */
bool run_ranks_finish(struct run *r);                 /* puts what other ranks found into the summary */

static inline bool run_is_first(const struct run *r) { return r->mesh.rank == 0; }

/* ---- run_report.c ---- */

/* `norm`, `held_out`: NAN if there is none; `text`: NULL if there is none. */
void run_tell(struct run *r, int64_t done, double loss, double norm, double held_out, const char *text);
bool run_log_step(struct run *r, int64_t done, double loss, double norm, bool is_skipped);
void run_step_time(struct run *r, int64_t at); /* of a step whose results have been read */
void run_flops_find(struct run *r);            /* of a step, once one is in the receipt */
void run_summarise(struct run *r, enum run_end end);
bool run_open_tell(struct run *r); /* before the first step */
bool run_past_take(struct run *r); /* the summary of a run that has no step left to do */
double run_palm_flops(const tl_model_config *c, const struct settings *s); /* of a token */

/* Runs a kind of step and bills it to the receipt. */
static inline bool run_kind(struct run *r, enum step_kind kind) {
    return walk_kind(r->trainer, kind, r->step, &(struct walker){walk_bill_kinds, &r->kinds});
}

#endif
