/* size.h: arithmetic on sizes, in C and in CUDA. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* False on overflow. */
static inline bool size_mul(int64_t a, int64_t b, int64_t *product) { return !__builtin_mul_overflow(a, b, product); }
static inline bool size_add(int64_t a, int64_t b, int64_t *sum) { return !__builtin_add_overflow(a, b, sum); }

static inline uint64_t round_up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

#endif
