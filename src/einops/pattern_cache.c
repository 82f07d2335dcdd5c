#include "einops/pattern_cache.h"

#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/refs.h"

static struct cached *table[CACHE_SETS][CACHE_WAYS];
static uint8_t oldest[CACHE_SETS]; /* the next to be replaced */
static lock table_lock = LOCK_INIT;

void key_add(struct cache_key *k, const void *data, size_t bytes) {
    if (k->bytes + bytes <= CACHE_KEY_BYTES) memcpy(k->text + k->bytes, data, bytes);
    k->bytes = k->bytes > CACHE_KEY_BYTES ? k->bytes : k->bytes + bytes;
}

/* Multiply and fold, eight bytes at a time: equality is decided by the bytes, so it need only spread well. */
void key_end(struct cache_key *k) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ k->bytes, word;
    if (k->bytes > CACHE_KEY_BYTES) return;
    memset(k->text + k->bytes, 0, 8); /* so that the last word is whole */
    for (size_t i = 0; i < k->bytes; i += 8) {
        memcpy(&word, k->text + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    k->hash = h;
}

/* While the process has one thread, counting needs no atomic operation (base/lock.h). */
static void count_up(struct cached *c) {
    if (__libc_single_threaded)
        atomic_store_explicit(&c->refs, atomic_load_explicit(&c->refs, memory_order_relaxed) + 1, memory_order_relaxed);
    else refs_keep(&c->refs);
}

static bool count_down(struct cached *c) {
    if (!__libc_single_threaded) return refs_drop(&c->refs);
    int n = atomic_load_explicit(&c->refs, memory_order_relaxed) - 1;
    atomic_store_explicit(&c->refs, n, memory_order_relaxed);
    return n == 0;
}

void *cache_find(const struct cache_key *k) {
    struct cached *found = NULL;
    if (k->bytes > CACHE_KEY_BYTES) return NULL;
    lock_take(&table_lock);
    struct cached **set = table[k->hash % CACHE_SETS];
    for (int i = 0; i < CACHE_WAYS && !found; i++)
        if (set[i] && set[i]->hash == k->hash && set[i]->key_bytes == k->bytes &&
            memcmp(set[i]->key, k->text, k->bytes) == 0)
            found = set[i];
    if (found) count_up(found);
    lock_release(&table_lock);
    return found;
}

void *cached_new(const struct cache_key *k, size_t bytes) {
    size_t key_bytes = k->bytes > CACHE_KEY_BYTES ? 0 : k->bytes;
    struct cached *c = memory_new(bytes + key_bytes);
    if (!c) {
        error_memory(bytes + key_bytes, "a pattern");
        return NULL;
    }
    memset(c, 0, bytes);
    atomic_init(&c->refs, 1);
    c->hash = k->hash;
    c->key_bytes = key_bytes;
    c->key = (char *)c + bytes;
    memcpy(c->key, k->text, key_bytes);
    return c;
}

void cache_keep(void *entry, const struct cache_key *k) {
    struct cached *c = entry;
    if (k->bytes > CACHE_KEY_BYTES) return;
    count_up(c);
    lock_take(&table_lock);
    size_t set = k->hash % CACHE_SETS;
    int way = oldest[set]++ % CACHE_WAYS;
    struct cached *replaced = table[set][way];
    table[set][way] = c; /* two threads may keep the same pattern twice: harmless */
    lock_release(&table_lock);
    cached_drop(replaced);
}

void cached_drop(void *entry) {
    struct cached *c = entry;
    if (c && count_down(c)) memory_free(c);
}
