/* opening.h: what a person asks about a run before it starts: its model, data, batch, memory and arithmetic. */
#ifndef TRAIN_OPENING_H
#define TRAIN_OPENING_H

#include <jansson.h>

#include "step/settings.h"
#include "step/source.h"
#include "tally.h"

struct opening {
    const struct settings *settings; /* borrowed */
    tl_model_config config;
    int64_t n_parameters, n_trained;
    int64_t n_muon; /* of the trained ones, those that Muon updates; others have AdamW */
    int n_ranks;
    int64_t step_tokens;         /* of all ranks */
    double n_steps;              /* of the run, in whole steps: those of batch-size warm-up count for their part */
    int64_t n_train, n_held_out; /* tokens */
    int n_sets;                  /* of held-out data */
    bool are_bytes;              /* they are bytes of a text that is not tokenized yet */
    int64_t first_step;          /* steps done before: it resumes */
    double step_flops, flops;    /* of a step, and of the whole run with evaluations and samples; of all ranks */
    uint64_t held_bytes, reserved_bytes; /* peaks of one device: of tensors, and of the pool that holds them */
    uint64_t memory_bytes;               /* of the device, or the limit that was given; 0: not known */
};

/* From the price of a rank (tally.run/1). The caller gives first_step and memory_bytes afterwards. False: recorded. */
bool opening_make(struct opening *o, const struct settings *s, const tl_model_config *config,
                  const struct source *source, const json_t *price);

#endif
