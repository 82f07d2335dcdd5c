/* generate.h: text generation that can be stopped. */
#ifndef STEP_GENERATE_H
#define STEP_GENERATE_H

#include <signal.h>

#include "tally.h"

/* tl_generate until *stop is set, which a signal may do. `n_done`: tokens of the text so far, with the prompt's. */
bool generate_until(tl_module *model, tl_tensor *text, int64_t n_prompt, const tl_generate_options *options,
                    const volatile sig_atomic_t *stop, int64_t *n_done);

#endif
