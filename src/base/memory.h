/* memory.h: the one way to take host memory, where every allocation may be made to fail. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* True when this allocation is the one that a test wants to fail. */
bool memory_fault(void);

/* NULL when there is no memory (or a fault is due); the caller reports it. Contents undefined. */
void *memory_new(size_t bytes);
void *memory_resize(void *old, size_t bytes); /* on NULL the old one stays */
static inline void memory_free(void *p) { free(p); }

/* Makes room for one more element in a growing array; false when there is no memory. */
bool memory_grow(void **array, size_t *capacity, size_t count, size_t element_bytes);

/* Checked arithmetic on sizes: false on overflow. */
static inline bool size_mul(int64_t a, int64_t b, int64_t *product) { return !__builtin_mul_overflow(a, b, product); }
static inline bool size_add(int64_t a, int64_t b, int64_t *sum) { return !__builtin_add_overflow(a, b, sum); }
static inline size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

#endif
