/* measure.h: the loss of a model on tokens, each scored once.
 *
 * A text of N tokens has N - 1 targets: every token but the first. Windows of `time` tokens advance by `stride`, and a
 * window scores those of its targets that the windows before it have not scored:
 *
 *     tokens      0 1 2 3 4 5 6 7 8 9      time 4, stride 2
 *     window 0    i i i i                  scores 1 2 3 4
 *     window 1        i i i i              scores 5 6, with at least 2 tokens more of context
 *     window 2            i i i i          scores 7 8
 *     window 3                i i i        scores 9: the last window is shorter
 */
#ifndef TRAIN_MEASURE_H
#define TRAIN_MEASURE_H

#include "tally.h"
#include "step/source.h"
#include "train/score.h"

struct measure_options {
    int64_t batch, time, stride; /* stride: 1 .. time */
    int64_t most;                /* at most that many batches (measure) or documents (the others); 0: all */
    int64_t document_token;      /* the token that separates documents; -1: none is given */
    bool has_mask;               /* measure: attention stays inside documents, as in training with document_mask */
    bool has_template;           /* texts begin with the tokens that the tokenizer prescribes, which are not scored */
    bool (*each)(void *context, const struct scored *document); /* for every document; NULL: not called */
    bool (*progress)(double done, double total, void *context); /* NULL, or as in score_options */
    void *context;
};

struct measured {
    double nats, loss; /* in all, and per token */
    int64_t n_tokens;  /* scored */
    int64_t bytes;     /* that they stand for; 0: not known, and so by `measure` */
    int64_t n_documents;
    bool has_mask;
    double seconds;
};

/* A part of a file as one text. With a mask, documents begin at each document_token, or where the file says. False:
 * recorded, here and below. */
bool measure(tl_module *model, const struct source_part *part, const struct measure_options *options,
             struct measured *result);
/* Every document by itself: no context crosses from one to the next. Documents are those that a file of tokens records;
 * or it is cut before each separator (document_token), which is the context of the first token, and is not scored. A
 * text is one document.
 * `tokenizer` (NULL: not known) says how many bytes tokens stand for. */
bool measure_documents(tl_module *model, tl_tokenizer *tokenizer, const struct source_part *part,
                       const struct measure_options *options, struct measured *result);
/* The documents of a file with a JSON object on each line, whose text is the field of that name. */
bool measure_lines(tl_module *model, tl_tokenizer *tokenizer, const char *path, const char *field,
                   const struct measure_options *options, struct measured *result);

#endif
