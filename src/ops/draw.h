/* draw.h: taking numbers from the thread's generator, for ops that need some; the upper end of uniform draws.
 *
 * The generator counts 32-bit words. A draw is one word (narrow), a pair (wide) or a half (dropout, which counts words
 * itself: spec/dropout.h), and every op starts a new Philox block of four, so that no word is ever used twice. The
 * generator moves only when the op has succeeded.
 */
#ifndef OPS_DRAW_H
#define OPS_DRAW_H

#include <math.h>

#include "engine/scope.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

/* The generator with its index counted in draws of `words` words, at the beginning of a block. */
static inline tl_generator draw_begin(uint64_t words) {
    tl_generator g = thread_state()->generator;
    g.index = (g.index + 3) / 4 * 4 / words;
    return g;
}

/* Moves the thread's generator past n draws. */
static inline void draw_end(tl_generator from, uint64_t words, int64_t n) {
    thread_state()->generator.index = (from.index * words + (uint64_t)n * words + 3) / 4 * 4;
}

/* ---- Tensors whose first axis is divided among processes ----
 *
 * Part p of an axis that is cut into equal parts draws what its elements would draw in the whole: as long as the
 * draws of a part fill blocks of four words (eight elements of dropout), each element gets the same number however
 * many parts there are, and the generator of every part moves past all of them. */

static inline void draw_set_part(int part, int n_parts) {
    thread_state()->draw_part = (uint32_t)part;
    thread_state()->draw_others = (uint32_t)n_parts - 1;
}

static inline uint64_t draw_part_words(uint64_t words, int64_t n) { return ((uint64_t)n * words + 3) / 4 * 4; }

/* As draw_begin, for the n draws of this part. */
static inline tl_generator draw_part_begin(uint64_t words, int64_t n) {
    tl_generator g = draw_begin(words);
    g.index += thread_state()->draw_part * draw_part_words(words, n) / words;
    return g;
}

/* Moves the thread's generator past n draws of each part. */
static inline void draw_part_end(uint64_t words, int64_t n) {
    struct thread_state *s = thread_state();
    s->generator.index = (s->generator.index + 3) / 4 * 4 + (1 + (uint64_t)s->draw_others) * draw_part_words(words, n);
}

/* The next smaller number of a dtype, all of which are a sign and a magnitude; x is one of them. */
static inline double draw_next_below(double x, tl_dtype dtype) {
    uint64_t bits = 0;
    if (x == 0) return -dtype_info(dtype)->smallest_subnormal;
    convert_from_f64(&bits, dtype, 1, &x, 1);
    if (x > 0) bits--;
    else bits++;
    return convert_get_f64(&bits, dtype, 0);
}

/* The largest number of the dtype below `high`: a uniform draw that would be rounded up to high, or above, becomes
 * this one. Infinity where [low, high) has no number of the dtype, or high is beyond its range. */
static inline double draw_limit(double low, double high, tl_dtype dtype) {
    if (!(low < high) || !(high <= dtype_info(dtype)->max)) return INFINITY;
    uint64_t bits = 0;
    convert_from_f64(&bits, dtype, 1, &high, 1);
    double limit = convert_get_f64(&bits, dtype, 0);
    if (limit >= high) limit = draw_next_below(limit, dtype);
    return limit >= low ? limit : INFINITY;
}

#endif
