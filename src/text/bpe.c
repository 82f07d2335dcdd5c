/* bpe.c: merging.
 *
 * A word of up to SHORT symbols is merged in an array: find the smallest rank, merge, move the rest up. That is
 * quadratic with a tiny constant, and faster than anything else for the words of real text. A longer word, which may
 * be a megabyte, is a linked list with a heap of its pairs: n log n. A pair in the heap is stale, and passed over, if
 * its symbol now has another rank.
 */
#include "text/bpe.h"

#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

enum { SHORT = 40, SHORT_SLOTS = 1 << 16, LONG_SLOTS = 1 << 14, ARENA = 1 << 20 };
#define NO_RANK UINT32_MAX
#define NO_SYMBOL UINT32_MAX

/* ---- Encoders ---- */

struct encoder *encoder_new(void) {
    struct encoder *e = memory_new(sizeof *e);
    if (!e) return error_memory(sizeof *e, "an encoder"), NULL;
    *e = (struct encoder){0};
    return e;
}

bool encoder_cache(struct encoder *e) {
    if (e->arena) return true;
    const size_t short_bytes = SHORT_SLOTS * sizeof *e->short_words, long_bytes = LONG_SLOTS * sizeof *e->long_words;
    if (!e->short_words) e->short_words = memory_new(short_bytes);
    if (!e->long_words) e->long_words = memory_new(long_bytes);
    if (!e->short_words || !e->long_words || !(e->arena = memory_new(ARENA * sizeof *e->arena)))
        return error_memory(short_bytes + long_bytes, "a cache of words");
    memset(e->short_words, 0, short_bytes);
    memset(e->long_words, 0, long_bytes);
    return true;
}

void encoder_free(struct encoder *e) {
    if (!e) return;
    memory_free(e->short_words);
    memory_free(e->long_words);
    memory_free(e->arena);
    memory_free(e->symbols);
    memory_free(e->heap);
    memory_free(e->ids.at);
    memory_free(e->ids.offsets);
    memory_free(e->pieces.at);
    flow_free(&e->flow);
    flow_free(&e->other);
    flow_free(&e->normalized);
    memory_free(e->clean);
    regex_data_free(e->regex_data);
    memory_free(e);
}

bool ids_room(struct ids *ids, size_t n, bool has_offsets) {
    if (ids->n + n <= ids->capacity && (!has_offsets || ids->offsets)) return true;
    size_t capacity = ids->capacity ? ids->capacity * 2 : 1024;
    while (capacity < ids->n + n) capacity *= 2;
    int32_t *at = memory_resize(ids->at, capacity * sizeof *at);
    if (!at) return error_memory(capacity * sizeof *at, "tokens");
    ids->at = at;
    if (has_offsets) {
        int64_t *offsets = memory_resize(ids->offsets, capacity * 2 * sizeof *offsets);
        if (!offsets) return error_memory(capacity * 2 * sizeof *offsets, "offsets of tokens");
        ids->offsets = offsets;
    }
    ids->capacity = capacity;
    return true;
}

/* ---- The symbols of a word ---- */

static bool symbols_room(struct encoder *e, size_t n) {
    if (n <= e->symbol_capacity) return true;
    size_t capacity = e->symbol_capacity ? e->symbol_capacity : 256;
    while (capacity < n) capacity *= 2;
    struct symbol *grown = memory_resize(e->symbols, capacity * sizeof *grown);
    if (!grown) return error_memory(capacity * sizeof *grown, "a word");
    e->symbols = grown;
    e->symbol_capacity = capacity;
    return true;
}

static bool unknown_refuse(const uint8_t *at, int length) {
    char character[UNICODE_BYTES + 1] = {0}, shown[16];
    memcpy(character, at, (size_t)length);
    return error_set(TL_ERROR_USE, "the character \"%s\" of the text is not in the vocabulary",
                     text_show(shown, sizeof shown, character));
}

/* A character (or byte) that is no token. Unknown ones may wait in *pending to be fused with the next; a byte fallback
 * does not end the wait, as in Hugging Face's. */
static bool unknown_put(const tl_tokenizer *t, struct symbol *s, size_t *n, const uint8_t *at, int length,
                        uint32_t *pending) {
    bool has_bytes = t->has_fallback;
    for (int i = 0; i < length && has_bytes; i++) has_bytes = t->byte_ids[at[i]] >= 0;
    if (has_bytes) {
        for (int i = 0; i < length; i++) s[(*n)++] = (struct symbol){.id = t->byte_ids[at[i]], .length = 1};
        return true;
    }
    if (t->unknown == UNKNOWN_REFUSED) return unknown_refuse(at, length);
    if (t->unknown == UNKNOWN_DROPPED) return true;
    if (*pending && !t->is_unknown_fused) {
        s[(*n)++] = (struct symbol){.id = t->unknown_id, .length = *pending};
        *pending = 0;
    }
    *pending += (uint32_t)length;
    return true;
}

/* False: an unknown character, recorded. e->symbols has room for `bytes`. */
static bool symbols_make(const tl_tokenizer *t, struct symbol *s, const uint8_t *word, size_t bytes, size_t *count) {
    size_t n = 0;
    uint32_t pending = 0;
    for (size_t i = 0; i < bytes;) {
        int length = 1;
        int32_t id;
        if (t->is_byte_level) id = t->byte_ids[word[i]];
        else {
            unicode_get(word + i, word + bytes, &length);
            id = vocabulary_find(&t->vocabulary, word + i, (size_t)length);
        }
        if (id < 0) {
            if (!unknown_put(t, s, &n, word + i, length, &pending)) return false;
        } else {
            if (pending) s[n++] = (struct symbol){.id = t->unknown_id, .length = pending};
            pending = 0;
            s[n++] = (struct symbol){.id = id, .length = (uint32_t)length};
        }
        i += (size_t)length;
    }
    if (pending) s[n++] = (struct symbol){.id = t->unknown_id, .length = pending};
    *count = n;
    return true;
}

/* ---- Merging ---- */

static size_t merge_short(const tl_tokenizer *t, struct symbol *s, size_t n) {
    int32_t becomes[SHORT];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct pair *p = pairs_find(&t->merges, s[i].id, s[i + 1].id);
        s[i].rank = p ? p->rank : NO_RANK;
        becomes[i] = p ? p->id : -1;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (s[i].rank < s[best].rank) best = i;
        if (s[best].rank == NO_RANK) break;
        s[best].id = becomes[best];
        s[best].length += s[best + 1].length;
        n--;
        for (size_t i = best + 1; i < n; i++) s[i] = s[i + 1], becomes[i] = becomes[i + 1];
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct pair *p = pairs_find(&t->merges, s[i].id, s[i + 1].id);
            s[i].rank = p ? p->rank : NO_RANK;
            becomes[i] = p ? p->id : -1;
        }
    }
    return n;
}

static void heap_down(uint64_t *heap, size_t n, size_t i) {
    const uint64_t value = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= value) break;
        heap[i] = heap[child];
    }
    heap[i] = value;
}

static uint64_t heap_pop(struct encoder *e) {
    const uint64_t least = e->heap[0];
    e->heap[0] = e->heap[--e->n_heap];
    if (e->n_heap) heap_down(e->heap, e->n_heap, 0);
    return least;
}

static void heap_push(struct encoder *e, uint64_t value) {
    size_t i = e->n_heap++;
    for (; i && e->heap[(i - 1) / 2] > value; i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = value;
}

/* Looks up the pair that begins at symbol i, and puts it into the heap. */
static void pair_push(const tl_tokenizer *t, struct encoder *e, uint32_t i, bool is_heap) {
    struct symbol *s = e->symbols;
    const struct pair *p = s[i].next == NO_SYMBOL ? NULL : pairs_find(&t->merges, s[i].id, s[s[i].next].id);
    s[i].rank = p ? p->rank : NO_RANK;
    if (p && is_heap) heap_push(e, (uint64_t)p->rank << 32 | i);
    else if (p) e->heap[e->n_heap++] = (uint64_t)p->rank << 32 | i;
}

static bool merge_long(const tl_tokenizer *t, struct encoder *e, size_t n) {
    struct symbol *s = e->symbols;
    if (e->heap_capacity < 3 * n) { /* every merge adds at most two pairs */
        uint64_t *grown = memory_resize(e->heap, 3 * n * sizeof *grown);
        if (!grown) return error_memory(3 * n * sizeof *grown, "a word");
        e->heap = grown;
        e->heap_capacity = 3 * n;
    }
    for (size_t i = 0; i < n; i++) {
        s[i].previous = i ? (uint32_t)i - 1 : NO_SYMBOL;
        s[i].next = i + 1 < n ? (uint32_t)i + 1 : NO_SYMBOL;
    }
    e->n_heap = 0;
    for (size_t i = 0; i < n; i++) pair_push(t, e, (uint32_t)i, false);
    for (size_t i = e->n_heap / 2; i-- > 0;) heap_down(e->heap, e->n_heap, i);
    while (e->n_heap) {
        const uint64_t top = heap_pop(e);
        const uint32_t i = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (s[i].rank != rank) continue;
        const uint32_t j = s[i].next;
        s[i].id = pairs_find(&t->merges, s[i].id, s[j].id)->id;
        s[i].length += s[j].length;
        s[i].next = s[j].next;
        s[j].rank = NO_RANK;
        if (s[i].next != NO_SYMBOL) s[s[i].next].previous = i;
        pair_push(t, e, i, true);
        if (s[i].previous != NO_SYMBOL) pair_push(t, e, s[i].previous, true);
    }
    return true;
}

int64_t bpe_symbols(const tl_tokenizer *t, struct encoder *e, const uint8_t *word, size_t bytes) {
    if (!symbols_room(e, bytes + 1)) return -1;
    size_t n;
    const int32_t whole = t->is_word_first ? vocabulary_find(&t->vocabulary, word, bytes) : -1;
    if (whole >= 0) {
        e->symbols[0] = (struct symbol){.id = whole, .length = (uint32_t)bytes};
        return 1;
    }
    if (!symbols_make(t, e->symbols, word, bytes, &n)) return -1;
    if (n <= SHORT) return (int64_t)merge_short(t, e->symbols, n);
    if (!merge_long(t, e, n)) return -1;
    size_t to = 0;
    for (uint32_t i = 0; i != NO_SYMBOL;) {
        const struct symbol s = e->symbols[i];
        e->symbols[to++] = s;
        i = s.next;
    }
    return (int64_t)to;
}

/* ---- The cache ---- */

static bool symbols_put(struct encoder *e, int64_t n) {
    if (n < 0 || !ids_room(&e->ids, (size_t)n, false)) return false;
    for (int64_t i = 0; i < n; i++) e->ids.at[e->ids.n++] = e->symbols[i].id;
    return true;
}

static bool word_put(const tl_tokenizer *t, struct encoder *e, const uint8_t *word, size_t bytes) {
    const size_t first = e->ids.n;
    const uint64_t hash = vocabulary_hash(word, bytes);
    struct cache_long *slot = &e->long_words[hash >> 20 & (LONG_SLOTS - 1)];
    if (slot->n && slot->hash == hash && slot->length == bytes && !memcmp(e->arena + slot->at + slot->n, word, bytes)) {
        if (!ids_room(&e->ids, slot->n, false)) return false;
        memcpy(e->ids.at + first, e->arena + slot->at, slot->n * sizeof *e->ids.at);
        e->ids.n += slot->n;
        return true;
    }
    if (!symbols_put(e, bpe_symbols(t, e, word, bytes))) return false;
    const size_t n = e->ids.n - first, words = n + (bytes + 3) / 4;
    if (n == 0) return true;
    if (e->n_arena + words > ARENA) {
        memset(e->long_words, 0, LONG_SLOTS * sizeof *e->long_words);
        e->n_arena = 0;
    }
    *slot = (struct cache_long){hash, (uint32_t)e->n_arena, (uint32_t)bytes, (uint32_t)n};
    memcpy(e->arena + e->n_arena, e->ids.at + first, n * sizeof *e->arena);
    memcpy(e->arena + e->n_arena + n, word, bytes);
    e->n_arena += words;
    return true;
}

bool bpe_word(const tl_tokenizer *t, struct encoder *e, const uint8_t *word, size_t bytes, const uint8_t *end) {
    if (bytes > CACHE_LONG) return symbols_put(e, bpe_symbols(t, e, word, bytes));
    if (bytes > CACHE_SHORT) return word_put(t, e, word, bytes);
    uint64_t key[2] = {0, 0};
    if (end - word >= 16) {
        memcpy(key, word, 16);
        if (bytes <= 8) key[0] &= UINT64_MAX >> (64 - 8 * bytes), key[1] = 0;
        else key[1] &= UINT64_MAX >> (128 - 8 * bytes);
    } else memcpy(key, word, bytes);
    key[1] |= (uint64_t)bytes << 56;
    uint64_t hash = (key[0] ^ key[1] * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    struct cache_short *slot = &e->short_words[hash >> 40 & (SHORT_SLOTS - 1)];
    if (e->ids.n + CACHE_IDS > e->ids.capacity && !ids_room(&e->ids, CACHE_IDS, false)) return false;
    if (slot->low == key[0] && slot->high == key[1]) {
        memcpy(e->ids.at + e->ids.n, slot->ids, sizeof slot->ids);
        e->ids.n += slot->n;
        return true;
    }
    const size_t first = e->ids.n;
    if (!word_put(t, e, word, bytes)) return false;
    const size_t n = e->ids.n - first;
    if (n == 0 || n > CACHE_IDS) return true;
    *slot = (struct cache_short){.low = key[0], .high = key[1], .n = (uint32_t)n};
    memcpy(slot->ids, e->ids.at + first, n * sizeof *slot->ids);
    return true;
}
