/* memory.c: host memory with a switch that makes the n-th request fail.
 *
 * The switch counts every request of the library (host objects here, pool blocks and device segments through
 * memory_fault), so that a test can make each of them fail.
 */
#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tally.h"

atomic_bool memory_is_armed;
static _Atomic uint64_t asked, fail_at;
static atomic_bool fail_forever;

bool memory_fault_due(void) {
    uint64_t number = atomic_fetch_add(&asked, 1) + 1;
    uint64_t at = atomic_load(&fail_at);
    return at != 0 && (number == at || (number > at && atomic_load(&fail_forever)));
}

uint64_t tl_fail_allocation(uint64_t n, bool forever) {
    uint64_t before = atomic_exchange(&asked, 0);
    atomic_store(&fail_at, n);
    atomic_store(&fail_forever, forever);
    atomic_store(&memory_is_armed, n != 0);
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

/* ---- Recycling ---- */

/* Sanitizers must see every object come and go. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void *memory_take(size_t bytes) { return memory_new(bytes); }
void memory_put(void *p, size_t bytes) {
    (void)bytes;
    free(p);
}
#else
#define CLASS_BYTES 64
#define CLASSES 9 /* up to 512 bytes */
#define CLASS_KEEPS 256

struct spare {
    struct spare *next;
};
struct recycler {
    struct spare *first[CLASSES];
    int count[CLASSES];
    bool is_set_up;
};
static _Thread_local struct recycler recycler;
static pthread_key_t recycler_key;
static pthread_once_t recycler_once = PTHREAD_ONCE_INIT;

static void recycler_empty(void *p) {
    struct recycler *r = p;
    for (int c = 0; c < CLASSES; c++) {
        for (struct spare *s = r->first[c], *next; s; s = next) {
            next = s->next;
            free(s);
        }
        r->first[c] = NULL;
        r->count[c] = CLASS_KEEPS; /* the thread is ending: keep no more */
    }
}

static void recycler_setup(void) { pthread_key_create(&recycler_key, recycler_empty); }

void *memory_take(size_t bytes) {
    size_t c = (bytes + CLASS_BYTES - 1) / CLASS_BYTES;
    if (c >= CLASSES) return memory_new(bytes);
    if (memory_fault()) return NULL;
    struct recycler *r = &recycler;
    struct spare *s = r->first[c];
    if (!s) return malloc(c * CLASS_BYTES);
    r->first[c] = s->next;
    r->count[c]--;
    return s;
}

void memory_put(void *p, size_t bytes) {
    size_t c = (bytes + CLASS_BYTES - 1) / CLASS_BYTES;
    struct recycler *r = &recycler;
    if (!p || c >= CLASSES || r->count[c] >= CLASS_KEEPS) {
        free(p);
        return;
    }
    if (!r->is_set_up) {
        pthread_once(&recycler_once, recycler_setup);
        pthread_setspecific(recycler_key, r);
        r->is_set_up = true;
    }
    struct spare *s = p;
    s->next = r->first[c];
    r->first[c] = s;
    r->count[c]++;
}
#endif

bool memory_grow(void **array, size_t *capacity, size_t count, size_t element_bytes) {
    if (count < *capacity) return true;
    size_t larger = *capacity ? *capacity * 2 : 64;
    void *moved = memory_resize(*array, larger * element_bytes);
    if (!moved) return false;
    *array = moved;
    *capacity = larger;
    return true;
}
