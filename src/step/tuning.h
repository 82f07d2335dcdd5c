/* tuning.h: what a run trains of a model: all of it, some parameters, by name, or adapters beside it. Others are
 * frozen: they have no gradients and no optimizer state, and the same bits after the run. */
#ifndef STEP_TUNING_H
#define STEP_TUNING_H

#include <stdbool.h>

#include "step/settings.h"
#include "tally.h"

/* Whether some parameters of the model are frozen. */
bool tuning_is_partial(const struct settings *s);
/* Whether the settings agree with each other. False: recorded, here and below. */
bool tuning_check(const struct settings *s);
/* Freezes parameters of a model that has its weights, or adds adapters, by random numbers of their own. */
bool tuning_begin(tl_module *model, const struct settings *s);
/* Keeps the weights of linear layers of a block of the model in the format of lora_base, if there is one. */
bool tuning_narrow(tl_module *part, const struct settings *s);
/* Adds the adapters alone. */
bool tuning_adapt(tl_module *model, const struct settings *s);
/* How many numbers of a model with this config are trained. */
bool tuning_count(const struct settings *s, const tl_model_config *config, int64_t *n_trained);

#endif
