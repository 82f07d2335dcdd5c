/* pattern_cache.h: a cache of parsed patterns.
 *
 * A bounded table, one per process: CACHE_SETS x CACHE_WAYS entries, each under a key of bytes. Entries are
 * reference-counted and immutable, so one thread may replace an entry while another still reads it. Keys that are too
 * long are not cached.
 */
#ifndef EINOPS_PATTERN_CACHE_H
#define EINOPS_PATTERN_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CACHE_SETS = 128, CACHE_WAYS = 4, CACHE_KEY_BYTES = 1024 };

struct cache_key {
    size_t bytes; /* more than CACHE_KEY_BYTES: too long */
    uint64_t hash;
    char text[CACHE_KEY_BYTES + 8];
};

/* The head of an entry; made by cached_new. */
struct cached {
    atomic_int refs;
    uint64_t hash;
    size_t key_bytes;
    char *key; /* behind the object, in the same block */
};

static inline void key_begin(struct cache_key *k, char kind) {
    k->text[0] = kind;
    k->bytes = 1;
}
void key_add(struct cache_key *k, const void *data, size_t bytes);
/* A rank and as many sizes: the same as key_add of each, without a call. */
static inline void key_add_shape(struct cache_key *k, int rank, const int64_t *shape) {
    const size_t bytes = ((size_t)rank + 1) * sizeof *shape;
    const int64_t first = rank;
    if (k->bytes + bytes <= CACHE_KEY_BYTES) {
        memcpy(k->text + k->bytes, &first, sizeof first);
        for (int i = 0; i < rank; i++)
            memcpy(k->text + k->bytes + ((size_t)i + 1) * sizeof *shape, &shape[i], sizeof *shape);
    }
    k->bytes = k->bytes > CACHE_KEY_BYTES ? k->bytes : k->bytes + bytes;
}
/* To be called when all is added. */
void key_end(struct cache_key *k);

/* The entry with this key, with a reference for the caller; NULL when there is none. */
void *cache_find(const struct cache_key *k);
/* A block of `bytes` that begins with struct cached, with one reference. NULL: no memory, recorded. */
void *cached_new(const struct cache_key *k, size_t bytes);
/* Puts an entry that is complete into the table; the caller keeps its reference. */
void cache_keep(void *entry, const struct cache_key *k);
void cached_drop(void *entry); /* NULL allowed */

#endif
