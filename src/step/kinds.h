/* kinds.h: the cost of each kind of step, once, and how often it came: the price of a run, or its receipt.
 *
 * A run of a million steps has four kinds, and one more for each stage of batch-size warm-up. The ledger of the
 * second step of a process is kept (in the first one pools still grow), and of every other kind the first; each
 * later one must have the same totals and peaks, which follow from the requests alone, or the run reports it; with
 * experts on several ranks the same calls. The pool's reserved bytes are in the ledger that is kept, but not
 * compared: they depend on what ran between. */
#ifndef STEP_KINDS_H
#define STEP_KINDS_H

#include <jansson.h>

#include "tally.h"
#include "step/ramp.h"
#include "step/settings.h"

/* KIND_WARMUP and those after it are the steps of one stage of batch-size warm-up each (ramp.h). */
enum step_kind { KIND_STEP, KIND_EVAL, KIND_SAMPLE, KIND_SAVE, KIND_WARMUP, KIND_COUNT = KIND_WARMUP + RAMP_STAGES };
static inline bool kind_is_step(enum step_kind kind) { return kind == KIND_STEP || kind >= KIND_WARMUP; }
enum step_kind kind_of_step(const struct settings *s, int64_t step); /* counted from 0 */
/* How often a kind comes after `from` of a run's `steps` steps. What is due every 0 steps comes at the end only. */
int64_t kind_n_due(const struct settings *s, enum step_kind kind, int64_t from, int64_t steps);

struct kind_sum { /* of a ledger, without times */
    tl_count flops[TL_PHASE_COUNT], bytes_read[TL_PHASE_COUNT], bytes_written[TL_PHASE_COUNT], transfer_bytes;
    uint64_t calls[TL_PHASE_COUNT];
    uint64_t peak[TL_PURPOSE_COUNT], peak_bytes, peak_allocated_bytes;
};

struct kind {
    int64_t count;  /* in the whole run */
    int64_t n_here; /* in this process */
    /* Unplanned saves: at a new best loss, or when the run was stopped. Not in count, not compared. */
    int64_t n_unplanned;
    json_t *ledger; /* tally.ledger/1; NULL: none yet */
    double seconds; /* that `n_timed` of them took; the mean is in the file and is not compared */
    int64_t n_timed;
    /* Of steps with document_mask: pairs of query and key that attention used, in each layer and head, and those of
     * whole causal rows, which the ledger has. In the file, and not compared: they depend on the data. */
    int64_t pairs, causal_pairs;
    bool is_forgotten; /* the ledger must come from this process, whatever came before */
    struct kind_sum sum;
};

struct kinds {
    struct kind kind[KIND_COUNT];
    char difference[200]; /* the first that was found; "": none */
};

const char *kind_name(enum step_kind kind);
/* Adds a ledger that has ended. False: recorded; a difference is no error. */
bool kinds_add(struct kinds *k, enum step_kind kind, const tl_ledger *ledger, const tl_device *device);
void kinds_time(struct kinds *k, enum step_kind kind, double seconds); /* of one with nothing else beside it */
void kinds_pairs(struct kinds *k, enum step_kind kind, int64_t pairs, int64_t causal_pairs); /* of one step */
void kinds_forget(struct kinds *k); /* the ledgers, not the counts: the next ones are kept */
void kinds_free(struct kinds *k);

/* The kind of the largest steps that came, or KIND_STEP. */
enum step_kind kinds_largest(const struct kinds *k);

/* {"step": {"count": N, "ledger": {...}}, ...} without kinds that never came; and back. */
json_t *kinds_json(const struct kinds *k);
bool kinds_read(struct kinds *k, const json_t *json);
/* The whole file, schema tally.run/1. free() it; NULL: recorded. */
char *kinds_text(const struct kinds *k, const struct settings *s);

#endif
