/* rng.h: arrays of random numbers.
 *
 * Each call fills out[0..n) with elements first_index .. first_index + n - 1 of the sequence `key`. An
 * element depends on (seed, stream, index) alone, so a range may be cut anywhere, between threads or
 * between calls, and the values are the same. rng_math.h says what each distribution is and which bits it
 * uses; the fills return exactly what its functions return. No call can fail; n <= 0 writes nothing.
 */
#ifndef TALLY_BASE_RNG_H
#define TALLY_BASE_RNG_H

#include "base/rng_math.h"

#include <stdint.h>

/* Raw 32-bit draws (narrow layout). */
void rng_fill_u32(uint32_t *out, int64_t n, struct rng_key key, uint64_t first_index);

/* Uniform in [0,1): 24 bits (narrow layout), 53 bits (wide layout). */
void rng_fill_uniform_f32(float *out, int64_t n, struct rng_key key, uint64_t first_index);
void rng_fill_uniform_f64(double *out, int64_t n, struct rng_key key, uint64_t first_index);

/* Standard normal. */
void rng_fill_normal_f32(float *out, int64_t n, struct rng_key key, uint64_t first_index);
void rng_fill_normal_f64(double *out, int64_t n, struct rng_key key, uint64_t first_index);

/* 1 with probability p, else 0 (narrow layout). */
void rng_fill_bernoulli(uint8_t *out, int64_t n, struct rng_key key, uint64_t first_index, double p);

/* 1 where dropout of probability p keeps an element, else 0 (mask layout); p in [0, 1]. */
void rng_fill_mask(uint8_t *out, int64_t n, struct rng_key key, uint64_t first_index, double p);

/* Integers in [low, high) (wide layout); low < high. */
void rng_fill_integers(int64_t *out, int64_t n, struct rng_key key, uint64_t first_index, int64_t low, int64_t high);

#endif
