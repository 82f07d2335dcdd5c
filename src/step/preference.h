/* preference.h: training on pairs of answers of which one is preferred, by direct preference optimization (DPO,
 * Rafailov et al. 2023). With the log-probabilities of whole answers, those of the model that trains and of the
 * reference, which is the model as it was at first,
 *
 *     margin = beta ((log p(chosen) - log p(rejected)) - (log p_ref(chosen) - log p_ref(rejected)))
 *     loss   = -log sigmoid(margin), the mean over pairs
 *
 * The reference is the model itself with its adapters off (lora), or a frozen copy of it.
 *
 * Data. A pair is a line of JSONL: an object with "prompt", "chosen" and "rejected", all texts or all arrays of
 * messages (chat.h). Arrays without a prompt of their kind begin with it: the messages that both have in common. The
 * answer begins where the tokens of prompt and answer are no longer those of the prompt, as in TRL. A pair is two
 * sequences of `seq` tokens, filled up with token 0; both are one window of the loader, so that a pair stays together.
 * Tokens have the marks of chat.h: those of the answer count. */
#ifndef STEP_PREFERENCE_H
#define STEP_PREFERENCE_H

#include "base/file.h"
#include "step/chat.h"
#include "step/settings.h"
#include "tally.h"

struct trainer;

/* Whether the settings agree with each other. False: recorded, here and below. */
bool preference_check(const struct settings *s);
/* chat_write for pairs. Of the figures, a conversation is a pair. */
bool preference_write(const struct settings *s, tl_tokenizer *tokenizer, const char *path, struct file_place to,
                      struct chat_figures *figures, tl_progress_fn progress, void *context);

/* The loss () f32 of a batch of windows, tokens and targets (B,2 seq). The mean margin, and the share of pairs whose
 * margin is above 0, become `rewards` (2) f32 (NULL: they are not wanted); those of a batch that is not the first
 * are added. */
tl_tensor *preference_loss(struct trainer *t, tl_tensor *tokens, tl_tensor *targets, tl_tensor *rewards, bool is_first);

#endif
