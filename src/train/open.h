/* open.h: a trained model, for inspection and generation. */
#ifndef TRAIN_OPEN_H
#define TRAIN_OPEN_H

#include "tally.h"
#include "step/recipe.h"
#include "step/settings.h"

struct opened {
    tl_module *model;            /* evaluating; NULL before and after */
    const struct recipe *recipe; /* a run's own; fp32 for other folders */
    struct settings settings;    /* a run's own; otherwise the defaults */
    bool is_run, is_bytes;       /* is_bytes: its tokens are bytes */
    int64_t step;                /* of a run's checkpoint; -1: not from a run */
    json_t *made_from;           /* see identity.h; NULL: there is no record */
    char folder[SETTING_TEXT];   /* the run's, or the model's */
    tl_dtype autocast_before;
};

enum { STEP_NEWEST = -1, STEP_BEST = -2 };

/* The model in `path`: a run's folder (its checkpoint of `step`, STEP_NEWEST or STEP_BEST), one checkpoint's folder
 * within it, a Hugging Face folder, or a GGUF file. Autocast is the recipe's from here until opened_close. False:
 * recorded, and nothing is open. */
bool opened_open(struct opened *o, const char *path, int64_t step, tl_device *device);
/* Replaces the weights by the same in another dtype, in which products are then computed whatever the recipe says.
 * False: recorded, and nothing has changed. */
bool opened_cast(struct opened *o, tl_dtype dtype);
/* Its tokenizer: the one that `name` names ("bytes", a file or a folder), or its own if that is NULL. *tokenizer NULL:
 * it has none. False: recorded. */
bool opened_tokenizer(const struct opened *o, const char *name, tl_tokenizer **tokenizer);
/* A name for the tokenizer of a run or of a Hugging Face folder, as a setting; "": it has none, or bytes. */
const char *opened_tokenizer_name(const struct opened *o, char name[SETTING_TEXT]);
void opened_close(struct opened *o);

/* Whether a path is a run's folder or one of its checkpoints. `run` receives the run's folder (or the path, if it is
 * none), *step the checkpoint's number if the path names one. A path that is too long is recorded as an error. */
bool run_split(const char *path, char run[SETTING_TEXT], int64_t *step);

#endif
