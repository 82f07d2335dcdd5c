/* defaults.h: the settings that a run gets where none are given.
 *
 * The defaults of settings_list.h are those of the run that `tally train` makes without options: a small model, a
 * minute on two cores. Three rules fit them to the data and the model:
 *
 * Every run that makes samples: prompt is words of the data (prompt.h); if it has none, the prompt of the table.
 *
 * Every model: seq is at most the model's context.
 *
 * Models of DEFAULTS_LARGE parameters and more, for a device with a known amount of memory (0: unknown, everything
 * fits):
 *   recipe   bf16; fp16 on a GPU that does not multiply bf16 numbers
 *   seq      the model's context, at most DEFAULTS_SEQ
 *   lr       6e-4 for 124 million parameters, and less by the cube root of their number, in two digits
 *   beta1    0.9
 *   min_lr   0.1
 *   batch    as many sequences as fit, a power of two, of at most DEFAULTS_TOKENS tokens; 1 if none fit. Several ranks
 *            of dp have one each
 *   checkpointing   full, if not even one sequence fits without it and batch is not given either
 *
 * `tally plan`, `tally fit`, `tally train` and tl_train follow them, and the commands say what was chosen
 * for the model. */
#ifndef STEP_DEFAULTS_H
#define STEP_DEFAULTS_H

#include "step/settings.h"
#include "tally.h"

enum { DEFAULTS_LARGE = 50000000, DEFAULTS_SEQ = 4096, DEFAULTS_TOKENS = 8192 };

struct defaults_machine {
    tl_device *device;     /* on meta, with the rules of the run's device */
    uint64_t memory_bytes; /* that the pool may take; 0: unknown */
    int64_t n_dp;          /* ranks that divide each micro-batch; 0: not known yet, so that batch stays as it is */
};

/* The machine of the settings' own device. */
struct defaults_machine defaults_machine_of(const struct settings *s);
/* Gives settings that were not given the values that fit. Records nothing: settings that are wrong stay as they are,
 * and whoever uses them says so. */
void defaults_choose(struct settings *s, const struct defaults_machine *machine);
/* The same for using a model, instead of training it: the recipe alone. */
void defaults_choose_inference(struct settings *s, const tl_device *device);
/* Takes the values that the rules above would choose from other settings: those with which a run was started. */
void defaults_keep(struct settings *s, const struct settings *then);

#endif
