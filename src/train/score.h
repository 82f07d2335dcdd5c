/* score.h: how probable a model finds texts: the cross entropy of chosen tokens, in batches.
 *
 * A text is one or more windows: tokens that go through the model at once. Windows of several texts are collected in a
 * pool, sorted by their length, and evaluated in batches whose rows are padded at the end, where causal attention does
 * not look. So short texts waste little, and the order of the results is that of the texts.
 */
#ifndef TRAIN_SCORE_H
#define TRAIN_SCORE_H

#include "tally.h"

/* A text, as whoever scores it describes it; the scorer gives it back with the result. */
struct score_text {
    int64_t index, line;               /* among the texts; in its file, 0: it has no lines */
    int64_t bytes, characters;         /* that the scored tokens stand for; 0: not known */
    int32_t choice, n_choices, answer; /* of an item with several endings */
};
struct scored {
    struct score_text text;
    int64_t n_tokens;
    double nats; /* -log of the probability of these tokens */
};

struct score_options {
    tl_module *model;
    int64_t batch;
    bool (*done)(void *context, const struct scored *text); /* every text once, in order; false ends it, recorded */
    /* After every batch; `done` of `total` are units of score_progress. False: an error, "stopped". May be NULL. */
    bool (*progress)(double done, double total, void *context);
    void *context; /* of both */
};

struct scorer;
struct scorer *scorer_new(const struct score_options *options); /* NULL: recorded */
void scorer_free(struct scorer *s);                             /* NULL allowed */

/* A text from begin to end. A window has n + 1 tokens: n go into the model, and ids[1] .. ids[n] are its targets, of
 * which all but the first `skip` are scored. begin (NULL: the window is one text): for each of the n, the place in the
 * window where its document begins. All windows of a scorer have it, or none. False: recorded. */
bool scorer_begin(struct scorer *s, const struct score_text *text);
bool scorer_window(struct scorer *s, const int32_t *ids, const int32_t *begin, int64_t n, int64_t skip);
bool scorer_end(struct scorer *s);
/* How much of the input has been given to the scorer, in any unit. */
void scorer_progress(struct scorer *s, double done, double total);
/* Evaluates what is in the pool. To be called after the last text. */
bool scorer_finish(struct scorer *s);

#endif
