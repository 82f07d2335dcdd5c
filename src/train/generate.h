/* generate.h: tokens that follow tokens. */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include "tally.h"

/* text (1,N) i64 has n_prompt tokens and receives N - n_prompt more, drawn one after the other with the thread's generator.
 * temperature 0 takes the likeliest; top_k > 0 draws among the k likeliest. Nothing waits for the device. */
bool generate(tl_module *model, tl_tensor *text, int64_t n_prompt, double temperature, int64_t top_k);

#endif
