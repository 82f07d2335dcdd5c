#include "text/vocabulary.h"

#include "base/error.h"
#include "base/memory.h"

static bool bytes_put(struct vocabulary *v, const void *bytes, size_t length, uint32_t *at) {
    if (v->n_bytes + length >= UINT32_MAX) return error_set(TL_ERROR_USE, "a vocabulary of more than 4 GiB");
    if (!v->bytes || v->n_bytes + length > v->bytes_capacity) {
        size_t capacity = v->bytes_capacity * 2 < 4096 ? 4096 : v->bytes_capacity * 2;
        while (capacity < v->n_bytes + length) capacity *= 2;
        uint8_t *grown = memory_resize(v->bytes, capacity);
        if (!grown) return error_memory(capacity, "a vocabulary");
        v->bytes = grown;
        v->bytes_capacity = capacity;
    }
    if (length) memcpy(v->bytes + v->n_bytes, bytes, length);
    *at = (uint32_t)v->n_bytes;
    v->n_bytes += length;
    return true;
}

static bool ids_room(struct vocabulary *v, int32_t n) {
    if ((size_t)n > v->capacity) {
        size_t capacity = v->capacity * 2 < 1024 ? 1024 : v->capacity * 2;
        while (capacity < (size_t)n) capacity *= 2;
        struct token *grown = memory_resize(v->tokens, capacity * sizeof *grown);
        if (!grown) return error_memory(capacity * sizeof *grown, "a vocabulary");
        v->tokens = grown;
        v->capacity = capacity;
    }
    for (; v->n < n; v->n++) v->tokens[v->n] = (struct token){.at = UINT32_MAX};
    return true;
}

bool vocabulary_add(struct vocabulary *v, int64_t id, const void *bytes, size_t length, bool is_hidden,
                    const char *where) {
    const int64_t gaps = (int64_t)v->n_tokens * VOCABULARY_GAP + VOCABULARY_SLACK,
                  most = v->most > gaps ? v->most : gaps;
    if (id < 0 || id > INT32_MAX / 2 || (id >= v->n && id > most))
        return error_set(TL_ERROR_USE, "%s: token id %lld is out of range (need 0 to %lld after %d tokens)", where,
                         (long long)id, (long long)most, v->n_tokens);
    if (!ids_room(v, v->n > (int32_t)id + 1 ? v->n : (int32_t)id + 1)) return false;
    struct token *token = &v->tokens[id];
    if (token->at != UINT32_MAX)
        return error_set(TL_ERROR_USE, "%s: two tokens have the id %lld", where, (long long)id);
    if (!bytes_put(v, bytes, length, &token->at)) return false;
    token->text_at = token->at;
    token->length = token->text_length = (uint32_t)length;
    token->is_hidden = is_hidden;
    v->n_tokens++;
    return true;
}

bool vocabulary_set_text(struct vocabulary *v, int32_t id, const void *bytes, size_t length) {
    if (!bytes_put(v, bytes, length, &v->tokens[id].text_at)) return false;
    v->tokens[id].text_length = (uint32_t)length;
    return true;
}

bool vocabulary_index(struct vocabulary *v, const char *where) {
    size_t n = 16;
    while (n < (size_t)v->n_tokens * 2) n *= 2;
    uint32_t *slots = memory_new(n * sizeof *slots);
    if (!slots) return error_memory(n * sizeof *slots, "a vocabulary");
    memset(slots, 0, n * sizeof *slots);
    memory_free(v->slots);
    v->slots = slots;
    v->mask = n - 1;
    for (int32_t id = 0; id < v->n; id++) {
        const struct token *token = &v->tokens[id];
        if (token->at == UINT32_MAX || token->is_hidden) continue;
        const uint8_t *bytes = vocabulary_bytes(v, id);
        const int32_t twin = vocabulary_find(v, bytes, token->length);
        if (twin >= 0) return error_set(TL_ERROR_USE, "%s: tokens %d and %d are the same bytes", where, twin, id);
        size_t slot = vocabulary_hash(bytes, token->length) & v->mask;
        while (v->slots[slot]) slot = (slot + 1) & v->mask;
        v->slots[slot] = (uint32_t)id + 1;
    }
    return true;
}

void vocabulary_free(struct vocabulary *v) {
    memory_free(v->tokens);
    memory_free(v->bytes);
    memory_free(v->slots);
}

/* ---- Merges ---- */

static bool pairs_resize(struct pairs *p, size_t n) {
    struct pairs grown = {.mask = n - 1, .n = p->n};
    grown.slots = memory_new(n * sizeof *grown.slots);
    if (!grown.slots) return error_memory(n * sizeof *grown.slots, "merges");
    memset(grown.slots, 0xff, n * sizeof *grown.slots);
    for (size_t i = 0; p->slots && i <= p->mask; i++) {
        if (p->slots[i].key == PAIR_NONE) continue;
        size_t slot = pair_hash(p->slots[i].key) & grown.mask;
        while (grown.slots[slot].key != PAIR_NONE) slot = (slot + 1) & grown.mask;
        grown.slots[slot] = p->slots[i];
    }
    memory_free(p->slots);
    *p = grown;
    return true;
}

/* Real vocabularies have up to half a million pairs, in tables that are at most half full. Tables of hostile files may
 * be fuller, so that their memory stays within what tokenizer.h promises. */
static bool is_full(size_t n, size_t slots) { return slots >> 21 ? 5 * n > 4 * slots : 2 * n >= slots; }

bool pairs_make(struct pairs *p, size_t n) {
    size_t slots = 16;
    while (is_full(n, slots)) slots *= 2;
    return pairs_resize(p, slots);
}

bool pairs_put(struct pairs *p, int32_t a, int32_t b, uint32_t rank, int32_t id, bool is_first) {
    if (is_full(p->n + 1, p->mask + 1) && !pairs_resize(p, 2 * (p->mask + 1))) return false;
    const uint64_t key = pair_key(a, b);
    size_t slot = pair_hash(key) & p->mask;
    while (p->slots[slot].key != PAIR_NONE && p->slots[slot].key != key) slot = (slot + 1) & p->mask;
    const bool is_new = p->slots[slot].key == PAIR_NONE;
    if (is_new || !is_first) p->slots[slot] = (struct pair){key, rank, id};
    p->n += is_new;
    return true;
}

/* Eight to sixteen bits per pair, at most 2 MiB. */
bool pairs_finish(struct pairs *p) {
    size_t bits = 1024;
    while (bits < 8 * p->n && bits < (size_t)1 << 24) bits *= 2;
    if (!(p->filter = memory_new(bits / 8))) return error_memory(bits / 8, "merges");
    memset(p->filter, 0, bits / 8);
    p->filter_mask = bits - 1;
    for (size_t i = 0; i <= p->mask; i++) {
        const size_t bit = pair_hash(p->slots[i].key) >> 32 & p->filter_mask;
        if (p->slots[i].key != PAIR_NONE) p->filter[bit >> 6] |= (uint64_t)1 << (bit & 63);
    }
    return true;
}

void pairs_free(struct pairs *p) {
    memory_free(p->slots);
    memory_free(p->filter);
}
