#include "base/scratch.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/poison.h"

struct arena {
    char *memory, *base; /* as it was got, and aligned */
    size_t used, peak;
};

static _Thread_local struct arena arena;
static pthread_key_t arena_key;
static pthread_once_t arena_once = PTHREAD_ONCE_INIT;
atomic_bool scratch_is_refused;

static void arena_free(void *memory) {
    UNPOISON(memory, SCRATCH_BYTES + SCRATCH_ALIGN);
    memory_free(memory);
    arena = (struct arena){0}; /* what ends after us may still run a kernel */
}

static void arena_setup(void) { pthread_key_create(&arena_key, arena_free); }

__attribute__((noinline, cold)) static bool arena_make(struct arena *a) {
    if (atomic_load_explicit(&scratch_is_refused, memory_order_relaxed)) return false;
    a->memory = malloc(SCRATCH_BYTES + SCRATCH_ALIGN);
    if (!a->memory) return false;
    a->base = (char *)(((uintptr_t)a->memory + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN);
    pthread_once(&arena_once, arena_setup);
    pthread_setspecific(arena_key, a->memory);
    POISON(a->base, SCRATCH_BYTES);
    return true;
}

bool scratch_ready(void) { return arena.base || (!memory_fault() && arena_make(&arena)); }
bool scratch_ready_to_help(void) { return arena.base || arena_make(&arena); }

void *scratch_take(size_t bytes) {
    struct arena *a = &arena;
    size_t rounded = round_up(bytes, SCRATCH_ALIGN) + POISON_GAP;
    INVARIANT((a->base || arena_make(a)) && rounded <= SCRATCH_BYTES - a->used);
    char *taken = a->base + a->used;
    a->used += rounded;
    if (a->used > a->peak) a->peak = a->used;
    UNPOISON(taken, bytes);
    return taken;
}

void scratch_leave(const void *place) {
    struct arena *a = &arena;
    char *taken;
    memcpy(&taken, place, sizeof taken);
    POISON(taken, (size_t)(a->base + a->used - taken));
    a->used = (size_t)(taken - a->base);
}

size_t scratch_peak(void) { return arena.peak; }
