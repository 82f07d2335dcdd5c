/* transformer.h: a GPT-2 or Llama style language model and one training step of it, written with tally.h alone.
 *
 * The same functions run on cpu, on cuda, or on meta, where they price the step without doing it.
 * B batch, T time, C channels, H heads, D head size, V vocabulary, L layers.
 */
#ifndef EXAMPLES_TRANSFORMER_H
#define EXAMPLES_TRANSFORMER_H

#include "tally.h"

enum family { GPT2, LLAMA };

struct transformer_config {
    enum family family;
    int n_layers, n_heads, n_kv_heads; /* n_kv_heads: Llama's grouped heads; GPT-2 has n_heads */
    int64_t channels, ff, vocabulary, batch, time;
    tl_dtype dtype; /* of parameters and activations; the optimizer's state is f32 (f64 for f64) */
    tl_checkpoint_policy policy;
    double dropout;
};

#define BLOCK_PARAMETERS 12

struct parameter {
    tl_tensor *value, *m, *v;
};

struct transformer {
    struct transformer_config config;
    struct parameter *all; /* every parameter, in a flat list for the optimizer */
    int n_all;
    tl_tensor *embedding, *positions, *norm_weight, *norm_bias, *head; /* NULL where a family has none */
    tl_tensor *(*blocks)[BLOCK_PARAMETERS];
    int64_t step;
};

/* Makes and initialises a model on a device. NULL: see tl_error_message(). */
struct transformer *transformer_new(const struct transformer_config *config, tl_device *device);
void transformer_free(struct transformer *model);
int64_t transformer_parameters(const struct transformer *model);

/* tokens, targets (B,T) i64 -> the mean loss, a scalar with its graph. */
tl_tensor *transformer_loss(struct transformer *model, tl_tensor *tokens, tl_tensor *targets);

/* Forward, backward, AdamW, gradients freed. `loss` (may be NULL) receives the loss, kept: tl_drop it. Reading its
 * value is left to the caller, outside the ledger's bracket: a price has no value to read. */
bool transformer_step(struct transformer *model, tl_tensor *tokens, tl_tensor *targets, double lr, tl_tensor **loss);

#endif
