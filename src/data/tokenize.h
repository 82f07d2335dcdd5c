/* tokenize.h: texts to files of tokens, on all threads; the work can be stopped and continued.
 *
 * While it goes on, the tokens are in OUT.partial, and OUT.partial.json says how far they go and what they were made
 * from and with. The state is written after what it speaks of is on the disk. A process that finds a state continues
 * there, after comparing inputs and settings; the files at the end are the same, byte for byte. With standard input
 * among the inputs there is no state.
 */
#ifndef DATA_TOKENIZE_H
#define DATA_TOKENIZE_H

#include "data/documents.h"
#include "data/feed.h"
#include "data/token_file.h"

enum { TOKENIZE_TRAIN, TOKENIZE_VAL, TOKENIZE_OUTPUTS };

struct tokenize_options {
    tl_tokenizer *tokenizer;
    const struct inputs *inputs;
    struct documents_options documents;
    const char *out, *val_out; /* val_out NULL: nothing is held out */
    double val_share;          /* of documents: those whose hash, with the seed, is below it */
    uint64_t seed;
    int32_t end_token; /* after each document; -1: none */
    tl_special special;
    int threads;         /* that encode; 0: all. One more reads. */
    double save_every_s; /* 0: after every batch */
    bool restart;        /* forget what an earlier process has done */
    size_t batch_bytes;  /* 0: by the threads */
    /* Called after every batch, and while waiting; false stops. NULL: never. */
    bool (*tell)(const tl_tokenize_figures *figures, void *context);
    void *context;
};

enum tokenize_end { TOKENIZE_DONE, TOKENIZE_STOPPED, TOKENIZE_FAILED };
/* STOPPED: what was done is saved (unless an input is standard input). FAILED: an error is recorded, and what was done
 * is saved if that was possible. */
enum tokenize_end tokenize_run(const struct tokenize_options *o, tl_tokenize_figures *figures);
/* Whether the work could be continued by another process. */
static inline bool tokenize_is_kept(const struct tokenize_options *o) { return !o->inputs->has_stream; }

/* Writes the tokens of one text in memory, which is not recorded as a document. Special tokens in it are ordinary text.
 * `progress` (may be NULL) counts bytes; `path` is for messages. False: recorded. */
bool tokenize_text(tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_token_writer *writer, const char *path,
                   tl_progress_fn progress, void *context);

/* ---- The state (tokenize_state.c) ---- */

struct tokenize_state {
    int64_t input, input_documents, input_bad, taken; /* the feed's position */
    int64_t documents, text_bytes, used, bad;
    int64_t longest, open_tokens; /* open_tokens: of the document that goes on */
    int64_t tokens[TOKENIZE_OUTPUTS], recorded[TOKENIZE_OUTPUTS], crc[TOKENIZE_OUTPUTS], is_begun[TOKENIZE_OUTPUTS];
    int64_t is_complete; /* only the names of the files are to be changed */
};
/* *is_there: there is one, made from and with the same. Another one is an error. */
bool tokenize_state_read(const struct tokenize_options *o, struct tokenize_state *state, bool *is_there);
bool tokenize_state_write(const struct tokenize_options *o, const struct tokenize_state *state);
bool tokenize_state_remove(const struct tokenize_options *o);

#endif
