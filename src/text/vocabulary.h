/* vocabulary.h: ids, their bytes, and the way back. */
#ifndef TEXT_VOCABULARY_H
#define TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct token {
    uint32_t at, length;           /* in `bytes`; at UINT32_MAX: no token has this id */
    uint32_t text_at, text_length; /* what it decodes to; differs for added tokens that are normalized */
    bool is_hidden;                /* words do not become it: an added token that is not part of the model */
    bool is_special;
};

struct vocabulary {
    struct token *tokens;
    int32_t n; /* ids are smaller */
    int32_t n_tokens;
    int64_t most; /* ids that a file of its size may have, in any order (vocabulary_limit) */
    uint8_t *bytes;
    size_t capacity, n_bytes, bytes_capacity;
    uint32_t *slots; /* id + 1; 0: empty */
    size_t mask;
};

/* Adds a token. False: the id is negative, taken, or beyond both limits, so that few bytes cannot ask for much
 * memory: VOCABULARY_GAP ids for each token so far, and those of vocabulary_limit; or memory is short. Recorded,
 * with `where` (a file's name) in front. */
enum { VOCABULARY_GAP = 16, VOCABULARY_SLACK = 1 << 18 };
bool vocabulary_add(struct vocabulary *v, int64_t id, const void *bytes, size_t length, bool is_hidden,
                    const char *where);
/* For files that list ids in any order: half as many ids as the file has bytes; a token has at least six. */
static inline void vocabulary_limit(struct vocabulary *v, size_t file_bytes) { v->most = (int64_t)(file_bytes / 2); }
/* Sets what a token decodes to. False: no memory, recorded. */
bool vocabulary_set_text(struct vocabulary *v, int32_t id, const void *bytes, size_t length);
/* Makes the table for vocabulary_find. Two tokens with the same bytes are an error (unless one is hidden), recorded. */
bool vocabulary_index(struct vocabulary *v, const char *where);
void vocabulary_free(struct vocabulary *v);

static inline bool vocabulary_has(const struct vocabulary *v, int64_t id) {
    return id >= 0 && id < v->n && v->tokens[id].at != UINT32_MAX;
}
static inline const uint8_t *vocabulary_bytes(const struct vocabulary *v, int32_t id) {
    return v->bytes + v->tokens[id].at;
}
static inline const uint8_t *vocabulary_text(const struct vocabulary *v, int32_t id) {
    return v->bytes + v->tokens[id].text_at;
}

static inline uint64_t vocabulary_mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}
static inline uint64_t vocabulary_hash(const uint8_t *bytes, size_t length) {
    uint64_t h = length, x;
    for (; length >= 8; bytes += 8, length -= 8) {
        memcpy(&x, bytes, 8);
        h = vocabulary_mix(h, x);
    }
    x = 0;
    for (size_t i = 0; i < length; i++) x |= (uint64_t)bytes[i] << (8 * i);
    return vocabulary_mix(h, x);
}
/* The id of a token that is not hidden; -1: none. */
static inline int32_t vocabulary_find(const struct vocabulary *v, const uint8_t *bytes, size_t length) {
    if (!v->slots) return -1;
    for (size_t slot = vocabulary_hash(bytes, length) & v->mask; v->slots[slot]; slot = (slot + 1) & v->mask) {
        const int32_t id = (int32_t)(v->slots[slot] - 1);
        if (v->tokens[id].length == length && !memcmp(vocabulary_bytes(v, id), bytes, length)) return id;
    }
    return -1;
}

/* ---- Merges ---- */

/* Two neighbours, their rank, and what they become. Smaller ranks merge first. */
struct pair {
    uint64_t key; /* PAIR_NONE: an empty slot */
    uint32_t rank;
    int32_t id;
};
#define PAIR_NONE UINT64_MAX
struct pairs {
    struct pair *slots;
    size_t mask, n;
    uint64_t *filter; /* after pairs_finish: a bit per hash. Most lookups find nothing, and this fits into a cache */
    size_t filter_mask;
};
static inline uint64_t pair_key(int32_t a, int32_t b) { return (uint64_t)(uint32_t)a << 32 | (uint32_t)b; }
static inline uint64_t pair_hash(uint64_t key) {
    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    return key ^ key >> 29;
}
/* NULL: these do not merge. */
static inline const struct pair *pairs_find(const struct pairs *p, int32_t a, int32_t b) {
    const uint64_t key = pair_key(a, b), hash = pair_hash(key);
    const size_t bit = hash >> 32 & p->filter_mask;
    if (p->filter && !(p->filter[bit >> 6] >> (bit & 63) & 1)) return NULL;
    for (size_t slot = hash & p->mask; p->slots[slot].key != PAIR_NONE; slot = (slot + 1) & p->mask)
        if (p->slots[slot].key == key) return &p->slots[slot];
    return NULL;
}
/* Room for n pairs. False: no memory, recorded. */
bool pairs_make(struct pairs *p, size_t n);
/* Adds a pair, growing the table as needed; one that is there keeps its rank if `is_first`, or gets the new one.
 * False: no memory, recorded. */
bool pairs_put(struct pairs *p, int32_t a, int32_t b, uint32_t rank, int32_t id, bool is_first);
/* Makes the filter; then nothing is added. False: no memory, recorded. */
bool pairs_finish(struct pairs *p);
void pairs_free(struct pairs *p);

#endif
