/* learning.h: a tokenizer that is learned from the data before the work begins (--tokenizer train:N), with its progress
 * on stderr. */
#ifndef CLI_LEARNING_H
#define CLI_LEARNING_H

#include "cli/progress.h"
#include "step/tokens.h"

/* A tl_bpe_progress_fn; the context is a struct progress. The words of the text are counted, then merges are made.
 * False after Ctrl-C. learning_hear shows nothing. */
bool learning_tell(bool is_merging, uint64_t done, uint64_t total, void *progress);
bool learning_hear(bool is_merging, uint64_t done, uint64_t total, void *progress);
/* tokens_ready (step/tokens.h) for a command that only prices: Ctrl-C ends it. 0, or the exit code after a message. */
int learning_ready(const char *command, struct settings *s, tl_tokenizer **made);

#endif
