/* measure.h: the loss of a model on all tokens of a file, each once. */
#ifndef TRAIN_MEASURE_H
#define TRAIN_MEASURE_H

#include "tally.h"
#include "step/source.h"

struct measured {
    double loss;      /* nats per token, over all targets */
    int64_t n_tokens; /* targets */
    double seconds;
};

/* Every target of the part once: windows of `time` tokens side by side, in batches, then the remaining windows, then
 * the rest that is shorter than a window. A window's first token sees nothing before it. most > 0: at most that many
 * full batches, and no rest. */
bool measure(tl_module *model, const struct source_part *part, int64_t batch, int64_t time, int64_t most,
             struct measured *result);

#endif
