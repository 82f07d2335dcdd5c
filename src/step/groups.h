/* groups.h: which parameters a run updates by which rule: learning rate, decay, and Muon or AdamW.
 *
 * The setting `groups` is a list of PATTERN:lr=X,decay=Y with semicolons between. In a pattern `*` stands for any
 * characters; what matches is a whole name. The last pattern that matches a parameter counts. */
#ifndef STEP_GROUPS_H
#define STEP_GROUPS_H

#include <stdbool.h>

#include "step/settings.h"
#include "tally.h"

struct group {
    double lr;    /* times the run's */
    double decay; /* in place of the run's; below 0: the run's */
    int index;    /* of the pattern, counted from 1; 0: none */
};

/* The group of a name; of NULL, checks the setting alone. False: an error that quotes the part that is wrong. */
bool groups_find(const char *groups, const char *name, struct group *group);
/* Whether every pattern matches one of the names. False: an error with the first that does not. */
bool groups_all_match(const char *groups, const char *const *names, int n);

/* Muon's parameters: the matrices of the model's layers. The others have AdamW: embeddings, head and vectors. */
bool groups_has_muon(const tl_module *model, const tl_tensor *parameter);
/* How many of the trained parameters of a model that is. */
bool groups_count_muon(const struct settings *s, const tl_model_config *config, int64_t *n_muon);

#endif
