/* chat.h: conversations (JSONL) as tokens that a run trains on: those of the assistant are learned, the rest is
 * context.
 *
 * A conversation is a line, an object whose "messages" are objects with "role" (system, user, assistant) and
 * "content". It becomes a document of tokens by a form: markers such as <|im_start|>, which are tokens where the
 * tokenizer has them, around names of roles and contents. Markers in a content are ordinary text.
 *
 * Packing. Windows of a run are `seq` tokens long. Conversations are put side by side into windows, none across two;
 * what is left of a window is filled with token 0, as a document of its own. The file has a token more than its
 * windows, so that the loader's windows are these.
 *
 * Marks. A token of the file is 2 id + 1 if it is learned, otherwise 2 id: the vocabulary is twice the tokenizer's,
 * and its hash another, so that nobody takes these for ids. */
#ifndef STEP_CHAT_H
#define STEP_CHAT_H

#include <jansson.h>

#include "base/file.h"
#include "data/documents.h"
#include "step/settings.h"
#include "tally.h"

struct chat_figures {
    int64_t conversations, windows, tokens, learned; /* tokens: without those that fill windows */
    int64_t cut, dropped; /* longer than a window; of these, or others, those that have nothing to learn */
};

/* The hash and the size of the vocabulary of a file of conversations. */
uint64_t chat_hash(const tl_tokenizer *tokenizer);
static inline int64_t chat_vocabulary(const tl_tokenizer *tokenizer) { return 2 * tl_tokenizer_size(tokenizer); }

/* Writes the conversations of a file of JSONL, which may be compressed, in windows of s->seq tokens. `progress` (may be
 * NULL) counts bytes of the file. False: recorded, with the line, and the file is as before. */
bool chat_write(const struct settings *s, tl_tokenizer *tokenizer, const char *path, struct file_place to,
                struct chat_figures *figures, tl_progress_fn progress, void *context);

/* ---- For preferences ---- */

/* One conversation. ids and learned are memory_free'd by chat_free, also after a failure. */
struct chat_text {
    int32_t *ids;
    bool *learned;
    size_t n, capacity;
};
void chat_free(struct chat_text *text);
bool chat_id_add(struct chat_text *to, int64_t id, bool is_learned);

/* Conversations that are being written, one after the other. */
struct chat_form;
struct chat_writing {
    const struct chat_form *form;
    tl_tokenizer *tokenizer;
    struct chat_text *to;
    struct documents_text text; /* that is not encoded yet: nothing but ordinary text between two markers */
    size_t learned_from;        /* of it; its end: nothing */
};
/* A form by its name, or by the tokenizer's markers if that is "auto". NULL: recorded. */
const struct chat_form *chat_form_find(const char *name, const tl_tokenizer *tokenizer);
/* Replaces w->to by n messages of an array, and those of another behind them (NULL: none); with `is_asked`, the
 * beginning of an answer comes last. */
bool chat_messages(struct chat_writing *w, const json_t *messages, size_t n, const json_t *more, bool is_asked);

/* Every line of a file of JSONL, which may be compressed. `take` gets each; its errors of use get the name of the
 * setting, the file and the line. `progress` (may be NULL) counts bytes of the file. */
struct chat_lines {
    const char *setting, *path;
    bool (*take)(void *context, const json_t *row);
    void *context;
    tl_progress_fn progress;
    void *progress_context;
};
bool chat_lines_read(const struct chat_lines *lines);

/* ---- For tests ---- */

bool chat_encode(const char *form, tl_tokenizer *tokenizer, const char *json, struct chat_text *to);

#endif
