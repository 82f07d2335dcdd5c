/* source.h: the tokens of a run: training data and held-out data. */
#ifndef STEP_SOURCE_H
#define STEP_SOURCE_H

#include "base/file.h"
#include "tally.h"
#include "step/chat.h"
#include "step/sets.h"
#include "step/settings.h"

struct source_part {
    tl_token_file *file;      /* NULL: none is needed, for a price; or see source_tokenize */
    tl_token_file *text;      /* the text that the tokens of `file` are made of; NULL: the file was given as it is */
    int64_t first, last;      /* tokens first .. last-1; none: both 0 */
    struct chat_figures chat; /* of conversations that were written now */
};

struct source {
    struct source_part train, held_out[SETS_MOST];
    int n_held_out;                           /* 0: nothing is held out */
    char held_out_name[SETS_MOST][SETS_NAME]; /* "": it has none */
    tl_tokenizer *tokenizer;                  /* NULL: not known */
    bool is_named;             /* the settings name the tokenizer: files of tokens are compared with it */
    bool is_builtin, is_bytes; /* is_bytes: tokens are bytes of text */
    bool has_answers;          /* its files have marks of what is learned (chat.h) */
    bool has_pairs;            /* of answers: windows are two sequences (preference.h) */
    int64_t document_token;    /* documents begin at tokens of this id; -1: where the files' tables say */
};

/* Bytes of built-in stories: as the settings say, or enough that a run of that many steps sees none twice, within
 * bounds. A function of the settings alone. */
int64_t source_stories(const struct settings *s);
/* Opens the files and the tokenizer that the settings name, for a model with that vocabulary. The built-in stories, and
 * the tokens of texts, are written to temporary files that are deleted when they are closed; with is_price they are
 * only counted, a text's bytes in place of its tokens. False: recorded, and nothing is open. */
bool source_open(struct source *source, const struct settings *s, int64_t vocabulary, bool is_price);
/* The same for a run: the built-in stories are a file of its folder, where they are written if they are missing or
 * damaged. Texts are not tokenized yet. */
#define SOURCE_STORIES "stories.txt"
bool source_open_in(struct source *source, const struct settings *s, int64_t vocabulary,
                    const struct file_folder *folder);
/* The parts: data, and the sets of held-out data; and the names of their tokens' files. NULL: there is none. */
enum { SOURCE_PARTS = 1 + SETS_MOST };
#define SOURCE_TOKENS(ROW) \
    ROW("data.tok")        \
    ROW("val_data.tok")    \
    ROW("val_data-2.tok")  \
    ROW("val_data-3.tok")  \
    ROW("val_data-4.tok")  \
    ROW("val_data-5.tok")  \
    ROW("val_data-6.tok")  \
    ROW("val_data-7.tok")  \
    ROW("val_data-8.tok")
struct source_part *source_part_at(struct source *source, int i);
const char *source_tokens_name(int i);
/* Opens the tokens of texts, files of the run's folder. Those whose place in `is_there` is false are written first. A
 * part without text is left as it is. `progress` (may be NULL) counts bytes of a text. */
bool source_tokenize(struct source *source, const struct settings *s, const struct file_folder *folder,
                     const bool is_there[SOURCE_PARTS], tl_progress_fn progress, void *context);
/* Bytes of text that n targets of a part stand for, from its second token on, which is the first target; windows of
 * `time` tokens begin again after the last one. 0: not known. False: recorded. */
bool source_bytes(const struct source *source, const struct source_part *part, int64_t time, int64_t n, int64_t *bytes);
bool source_is_builtin(const struct settings *s);
void source_close(struct source *source);

#endif
