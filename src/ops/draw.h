/* draw.h: taking numbers from the thread's generator, for ops that use some.
 *
 * The generator counts 32-bit words. A draw is one word (narrow) or a pair (wide), and every op starts a new Philox
 * block of four, so that no word is ever used twice. The generator moves only when the op has succeeded.
 */
#ifndef OPS_DRAW_H
#define OPS_DRAW_H

#include "engine/scope.h"

/* The generator with its index counted in draws of `words` words, at the beginning of a block. */
static inline tl_generator draw_begin(uint64_t words) {
    tl_generator g = thread_state()->generator;
    g.index = (g.index + 3) / 4 * 4 / words;
    return g;
}

/* Moves the thread's generator behind n draws. */
static inline void draw_end(tl_generator from, uint64_t words, int64_t n) {
    thread_state()->generator.index = (from.index * words + (uint64_t)n * words + 3) / 4 * 4;
}

#endif
