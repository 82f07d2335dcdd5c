/* ends.h: the tokens that end a text. */
#ifndef TRAIN_ENDS_H
#define TRAIN_ENDS_H

#include "tally.h"

enum { ENDS_MOST = 64 };
struct ends {
    int64_t ids[ENDS_MOST], n;
};

/* The file of a folder that says where texts end; transformers prefers it to config.json too. */
#define ENDS_FILE "generation_config.json"

/* Those of a model: of a GGUF file, or of a folder that has a tokenizer or a model. The first of these that says
 * something counts: generation_config.json, config.json ("eos_token_id": a number, a list, or null for none), and the
 * end of text of the tokenizer (may be NULL). path NULL: only the tokenizer's. False: recorded. */
bool ends_find(struct ends *e, const char *path, const tl_tokenizer *tokenizer);
/* The same from a run's folder, whose tokenizer is in a folder of its own. */
bool ends_of_model(struct ends *e, const char *folder, bool is_run, const tl_tokenizer *tokenizer);
bool ends_have(const struct ends *e, int64_t id);
/* The text of generation_config.json, with a 0 behind it; memory_free'd by the caller. NULL: no memory, recorded. */
char *ends_json(const struct ends *e);

#endif
