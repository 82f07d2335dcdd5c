/* dropout.h: which elements dropout keeps: of a tensor, and of the weights inside attention.
 *
 * A mask is a function of the place and is never stored. Element i of a tensor is kept where 16-bit draw
 *      dropout_first(generator) + i
 * of (seed, stream), in the mask's layout of base/rng_math.h, is below rng_mask_threshold(p). A block of Philox decides
 * for eight elements, and generator.index, which counts words, begins one.
 *
 * Inside attention the weight of query t and key s, in head h of batch entry b, is element
 *      ((b H + h) T + t) dropout_row_elements(S) + s.
 * Every kernel of every device, forward and backward, in whatever tiles it works, thus finds the same mask; it is what
 * tl_dropout of ones (B, H, T, dropout_row_elements(S)) keeps from the same generator. Rows begin at a block: eight
 * keys of a query cost one.
 */
#ifndef SPEC_DROPOUT_H
#define SPEC_DROPOUT_H

#include "base/rng_math.h"
#include "spec/attr.h"

/* Words that the mask of n elements takes of the generator: whole blocks. Wraps where the count does. */
DEVICE_FN uint64_t dropout_words(uint64_t n) { return n / 8 * 4 + (n % 8 ? 4 : 0); }

/* The draw of element 0: a multiple of 8, as four words hold eight draws. */
DEVICE_FN uint64_t dropout_first(tl_generator generator) { return 2 * generator.index; }

/* Elements of one query's row of the mask of attention. */
DEVICE_FN uint64_t dropout_row_elements(int64_t n_keys) { return ((uint64_t)n_keys + 7) / 8 * 8; }

/* The draw of key 0 in row (b H + h) T + t; a multiple of 8. */
DEVICE_FN uint64_t dropout_row_at(tl_generator generator, int64_t row, int64_t n_keys) {
    return dropout_first(generator) + (uint64_t)row * dropout_row_elements(n_keys);
}

DEVICE_FN struct rng_key dropout_key(tl_generator generator) {
    struct rng_key key;
    key.seed = generator.seed;
    key.stream = generator.stream;
    return key;
}

#endif
