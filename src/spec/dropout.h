/* dropout.h: which weights dropout keeps inside attention.
 *
 * The mask is a function of the place and is never stored. The weight of query t and key s, in head h of batch entry
 * b, is kept where word
 *      generator.index + ((b H + h) T + t) row_words(S) + s
 * of (seed, stream) is below the threshold of 1 - dropout. Every kernel of every device, forward and backward, in
 * whatever tiles it works, thus finds the same mask; it is what tl_bernoulli(B, H, T, row_words(S)) with 1 - dropout
 * draws from the same generator. Rows begin at a Philox block of four words, and so does generator.index: four keys
 * cost one block.
 */
#ifndef SPEC_DROPOUT_H
#define SPEC_DROPOUT_H

#include "base/rng_math.h"
#include "spec/attr.h"

/* Words of one query's row of the mask. */
DEVICE_FN uint64_t dropout_row_words(int64_t n_keys) { return ((uint64_t)n_keys + 3) / 4 * 4; }

/* The word of key 0 in row (b H + h) T + t; a multiple of 4. */
DEVICE_FN uint64_t dropout_row_at(tl_generator generator, int64_t row, int64_t n_keys) {
    return generator.index + (uint64_t)row * dropout_row_words(n_keys);
}

DEVICE_FN struct rng_key dropout_key(tl_generator generator) {
    struct rng_key key;
    key.seed = generator.seed;
    key.stream = generator.stream;
    return key;
}

#endif
