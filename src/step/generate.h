/* generate.h: text generation that can be stopped. */
#ifndef STEP_GENERATE_H
#define STEP_GENERATE_H

#include <signal.h>

#include "tally.h"

struct generate_listener {
    const volatile sig_atomic_t *stop;        /* set by a signal: end after this token; NULL: there is none */
    bool (*token)(void *context, int64_t id); /* called with every token; false ends the text; NULL: not called */
    void *context;
};

/* tl_generate of one row (B = 1) until the listener ends it. `n_done`: tokens of the text so far, with the prompt's. */
bool generate_until(tl_module *model, tl_tensor *text, int64_t n_prompt, const tl_generate_options *options,
                    const struct generate_listener *listener, int64_t *n_done);

#endif
