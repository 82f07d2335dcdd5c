/* memory.h: the only way to allocate host memory; tests can make every allocation fail. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/size.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* True if a test makes this allocation fail. */
extern atomic_bool memory_is_armed; /* read on every request: the only cost when off */
bool memory_fault_due(void);
static inline bool memory_fault(void) {
    return atomic_load_explicit(&memory_is_armed, memory_order_relaxed) && memory_fault_due();
}

/* NULL if there is no memory (or a fault is injected); the caller reports it. The contents are undefined. */
void *memory_new(size_t bytes);
void *memory_resize(void *old, size_t bytes); /* on NULL the old one stays */
static inline void memory_free(void *p) { free(p); }

/* For small objects that come and go with every op: recycled per thread, a few nanoseconds instead of malloc's
 * thirty. memory_put takes the size memory_take was given. */
void *memory_take(size_t bytes);
void memory_put(void *p, size_t bytes);

/* Makes room for one more element in a growing array; false when there is no memory. */
bool memory_grow(void **array, size_t *capacity, size_t count, size_t element_bytes);

#endif
