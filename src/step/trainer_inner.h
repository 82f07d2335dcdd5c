/* trainer_inner.h: for the files that are parts of a trainer: trainer.c makes it, trainer_model.c has its model,
 * trainer_optimizer.c the optimizer and its groups of parameters, trainer_step.c one step, trainer_state.c what
 * checkpoints have of it. */
#ifndef STEP_TRAINER_INNER_H
#define STEP_TRAINER_INNER_H

#include "step/trainer.h"

/* One stream for each use of random numbers, so that they do not affect each other. */
enum { STREAM_INIT = 1, STREAM_NOISE, STREAM_DICE };

/* ---- trainer_model.c ---- */

bool trainer_model_make(struct trainer *t);

/* ---- trainer_optimizer.c ---- */

/* How ranks of tp hold a parameter: parts, the same, or parts of which several hold the same. Two stages of pp hold the
 * one that they share, each a part or the whole of it: its gradient is summed apart from all others. Experts that ep
 * divides have other ranks than other parameters. */
enum holding { HOLDS_PART, HOLDS_WHOLE, HOLDS_COPY, HOLDS_SHARED, HOLDS_EXPERTS };
enum holding trainer_holding(const struct trainer *t, const tl_tensor *parameter, const tl_shard *shard);
/* Whose squares this rank counts in the norm, a bit each: what several ranks hold counts once. */
unsigned trainer_holdings_counted(const struct trainer *t);
/* Muon: adds to the kinds of parameters (buckets.h), so that those of one kind are all AdamW's, or all matrices with
 * one factor of the learning rate. While the model is made, the parameters are those of a block. */
enum { MUON_KIND = 4096 };
bool trainer_divide_muon(const struct trainer *t, tl_tensor *const *parameters, const tl_shard *const *shards, int n,
                         int *kinds);
struct buckets_options trainer_bucket_options(const struct trainer *t);
const char *trainer_name_of(const void *trainer, const tl_tensor *parameter); /* one of the trainer's */
bool trainer_is_by_member(const struct trainer *t); /* the optimizer has whole parameters, whatever buckets there are */
bool trainer_is_schedule_free(const struct trainer *t);
bool trainer_optimizer_make(struct trainer *t);

/* ---- trainer_step.c ---- */

bool trainer_sums_make(struct trainer *t); /* of gradients over micro-batches */
/* The loss of a batch: () f32. `rewards`: as for preference_loss; NULL without preference. */
tl_tensor *trainer_loss(struct trainer *t, tl_tensor *tokens, tl_tensor *targets, tl_tensor *begin, tl_tensor *rewards,
                        bool is_first);
/* Where the rewards of an even step, an odd one or (2) an evaluation are: (2) f32; NULL: there are none, or
 * recorded. */
tl_tensor *trainer_rewards_at(struct trainer *t, int64_t place);
/* The mean of rewards that were added over n batches, and over ranks. NULL: there are none. */
bool trainer_rewards_mean(struct trainer *t, tl_tensor *rewards, int64_t n);
void trainer_rewards_take(struct trainer *t, const float values[TRAINER_RESULTS], int64_t place);

/* ---- trainer_state.c ---- */

/* The optimizer's state as checkpoints have it, where that is not the optimizer's own list. */
bool trainer_states_make(struct trainer *t);

#endif
