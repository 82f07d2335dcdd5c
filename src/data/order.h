/* order.h: a permutation of 0 .. n-1 without a table.
 *
 * A Feistel network permutes the numbers of 2h bits whatever its round function is: (L, R) -> (R, L ^ F(R)) can be
 * undone. F is Philox, keyed with the seed and the stream. The domain is the smallest 4^h that holds n; a result
 * outside 0 .. n-1 is permuted again until it is inside ("cycle walking": the walk follows the cycle of the larger
 * permutation and ends, at the latest, where it began), fewer than four times on average. Six rounds, since small
 * domains mix slowly.
 */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include "base/rng_math.h"

enum { ORDER_ROUNDS = 6 };

static inline uint64_t order_at(struct rng_key key, uint64_t n, uint64_t index) {
    unsigned half = 1;
    while (half < 31 && (uint64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < ORDER_ROUNDS; round++) {
            uint64_t mixed = left ^ (rng_block_at(key, round << 32 | right).word[0] & mask);
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= n);
    return index;
}

#endif
