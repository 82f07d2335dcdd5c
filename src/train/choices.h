/* choices.h: multiple choice in HellaSwag's form: which of several endings of a context does a model find most
 * probable?
 *
 * An item is a line of JSON: {"ctx": "...", "endings": ["...", ...], "label": 3}. The names "context", "choices" and
 * "answer" are accepted too, and ctx_a with ctx_b in place of ctx; the label is a number or a string of digits.
 *
 * Context and ending are joined by a space and encoded together, as lm-evaluation-harness does: the ending's tokens are
 * those behind the first n, where n is the number of tokens of the context without white space at its end. A context
 * that is too long for the model loses its beginning.
 */
#ifndef TRAIN_CHOICES_H
#define TRAIN_CHOICES_H

#include "tally.h"
#include "train/score.h"

/* How the log probability of an ending is compared with those of the others. */
enum choice_rule {
    CHOICE_SUM,       /* as it is: lm-evaluation-harness's acc */
    CHOICE_CHARACTER, /* per character of the ending: its acc_norm */
    CHOICE_BYTE,      /* per byte: its acc_bytes */
    CHOICE_TOKEN,     /* per token: acc_norm of llm.c and build-nanogpt */
    CHOICE_RULES
};
enum { CHOICES_MOST = 64 };

struct choice_item {
    int64_t index, line;
    int n, answer;
    struct scored endings[CHOICES_MOST];
    int chosen[CHOICE_RULES]; /* by each rule; the first of equals */
};

struct choices_options {
    tl_module *model;
    tl_tokenizer *tokenizer;
    int64_t batch, time; /* endings at once, and the most tokens of context */
    int64_t most;        /* items; 0: all */
    bool has_template;   /* contexts begin with the tokens that the tokenizer prescribes, such as <s> */
    bool is_harness;     /* texts are prepared as lm-evaluation-harness's task hellaswag prepares them */
    bool (*each)(void *context, const struct choice_item *item); /* NULL: not called */
    bool (*progress)(double done, double total, void *context);  /* NULL, or as in score_options */
    void *context;
};
struct choices_result {
    int64_t n_items, n_right[CHOICE_RULES], n_tokens; /* n_tokens: of endings */
    double seconds;
};

/* Reads all items, without a model: a mistake in the last line should not come to light after an hour. False:
 * recorded with file and line, here and below. */
bool choices_check(const char *path, bool is_harness, int64_t most);
bool choices_score(const char *path, const struct choices_options *options, struct choices_result *result);

#endif
