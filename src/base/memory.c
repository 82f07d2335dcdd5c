/* memory.c: host memory with a switch that makes the n-th request fail.
 *
 * The switch counts every request of the library alike (host objects here, pool blocks and device segments
 * through memory_fault), so that a test can walk through all of them.
 */
#include "base/memory.h"

#include <stdatomic.h>

#include "tally.h"

static atomic_bool armed;              /* read on every request: the only cost when off */
static _Atomic uint64_t asked, fail_at;
static atomic_bool fail_forever;

bool memory_fault(void) {
    if (!atomic_load_explicit(&armed, memory_order_relaxed)) return false;
    uint64_t number = atomic_fetch_add(&asked, 1) + 1;
    uint64_t at = atomic_load(&fail_at);
    return at != 0 && (number == at || (number > at && atomic_load(&fail_forever)));
}

uint64_t tl_fail_allocation(uint64_t n, bool forever) {
    uint64_t before = atomic_exchange(&asked, 0);
    atomic_store(&fail_at, n);
    atomic_store(&fail_forever, forever);
    atomic_store(&armed, n != 0);
    return before;
}

void *memory_new(size_t bytes) {
    if (memory_fault()) return NULL;
    return malloc(bytes ? bytes : 1);
}

void *memory_resize(void *old, size_t bytes) {
    if (memory_fault()) return NULL;
    return realloc(old, bytes ? bytes : 1);
}

bool memory_grow(void **array, size_t *capacity, size_t count, size_t element_bytes) {
    if (count < *capacity) return true;
    size_t larger = *capacity ? *capacity * 2 : 64;
    void *moved = memory_resize(*array, larger * element_bytes);
    if (!moved) return false;
    *array = moved;
    *capacity = larger;
    return true;
}
