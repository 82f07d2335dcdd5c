/* tokens.h: the tokenizer of a run, and texts as files of tokens. */
#ifndef STEP_TOKENS_H
#define STEP_TOKENS_H

#include "base/file.h"
#include "step/settings.h"
#include "tally.h"

/* Fills in what follows from other settings: the tokenizer in the model's folder, if there is one and none is named,
 * and the vocabulary of a preset, which is the tokenizer's. */
bool tokens_settle(struct settings *s);
/* The tokenizer that the settings name; *tokenizer NULL: none is named. Its size is compared with the model's
 * vocabulary (0: with none). False: recorded. */
bool tokens_open(const struct settings *s, int64_t vocabulary, tl_tokenizer **tokenizer);
/* Learning a tokenizer from a text takes long: told how far it is, and may say false to stop it. */
struct tokens_listener {
    tl_bpe_progress_fn progress;
    void *context;
};
/* Makes the tokenizer that is to be made from the data ("chars", "train:N"), unless s->ready is it already: learning
 * takes long, and prices and the run itself all need it. *made: what to free when no copy of the settings is left, or
 * NULL. The listener may be NULL. False: recorded. */
bool tokens_ready(struct settings *s, tl_tokenizer **made, const struct tokens_listener *listener);
/* The vocabulary that a model needs for the tokenizer that the settings name. False: recorded. */
bool tokens_vocabulary(const struct settings *s, int64_t *n);
/* "bytes", or a tokenizer's file or folder. NULL: recorded. */
tl_tokenizer *tokens_named(const char *name);
/* Whether the settings name a tokenizer whose tokens are not bytes, so that texts have to be tokenized. */
bool tokens_are_named(const struct settings *s);
/* Whether texts become a file of tokens of the run's. */
bool tokens_are_written(const struct settings *s);
/* Whether it is made from the data: "chars", or "train:N". */
bool tokens_are_made(const struct settings *s);
/* Whether a folder has a file of this name that belongs to a tokenizer, and whether it has any. */
bool tokens_is_file(const char *name);
bool tokens_in_folder(const char *folder);

/* Writes the tokens of a text, which is open as bytes. Special tokens in it are ordinary text. `progress` (may be NULL)
 * counts bytes of the text. False: recorded, and the file is as before. */
bool tokens_write(tl_tokenizer *tokenizer, tl_token_file *text, struct file_place to, tl_progress_fn progress,
                  void *context);
/* How many bytes of text n ids stand for, or tokens from .. from + n - 1 of a file; special tokens stand for none. */
bool tokens_bytes(tl_tokenizer *tokenizer, const int32_t *ids, int64_t n, int64_t *bytes);
bool tokens_count_bytes(tl_tokenizer *tokenizer, tl_token_file *file, int64_t from, int64_t n, int64_t *bytes);

/* The tokens of a prompt; *ids is memory_free'd by the caller. A template puts the tokens before and after it that the
 * tokenizer's file prescribes. At least one token: of an empty prompt, a line's end or token 0. False: recorded. */
bool tokens_of_prompt(tl_tokenizer *tokenizer, const char *prompt, bool has_template, int64_t **ids, int64_t *n);
/* A text that grows token by token; memory_free its text. Never half a character, until
 * the end. Ids that the tokenizer does not have are "?": a model's vocabulary may be larger. False: recorded. */
struct tokens_words {
    char *text;
    size_t n, capacity;
};
bool tokens_add(struct tokens_words *w, tl_tokenizer *tokenizer, tl_decoder *decoder, int64_t id);
bool tokens_end(struct tokens_words *w, tl_decoder *decoder);
/* Replaces invalid UTF-8, and control characters except newlines and tabs, by "?". text[bytes] is 0. */
void tokens_clean(char *text, size_t bytes);
/* Tokens as UTF-8 text, malloc'ed: invalid UTF-8, and control characters except newlines and tabs, become "?". NULL:
 * recorded. */
char *tokens_text(tl_tokenizer *tokenizer, const int64_t *ids, int64_t n);

#endif
