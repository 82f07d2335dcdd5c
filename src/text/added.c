#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "text/unicode.h"

bool added_add(struct added *a, const void *text, size_t bytes, int32_t id, unsigned flags) {
    if (a->n == a->capacity && !memory_grow((void **)&a->tokens, &a->capacity, a->n, sizeof *a->tokens))
        return error_memory(a->capacity * sizeof *a->tokens, "added tokens");
    if (a->n_bytes + bytes > a->bytes_capacity) {
        const size_t capacity = 2 * (a->n_bytes + bytes) + 256;
        uint8_t *grown = memory_resize(a->bytes, capacity);
        if (!grown) return error_memory(capacity, "added tokens");
        a->bytes = grown;
        a->bytes_capacity = capacity;
    }
    memcpy(a->bytes + a->n_bytes, text, bytes);
    a->tokens[a->n++] = (struct added_token){(uint32_t)a->n_bytes, (uint32_t)bytes, id, flags};
    a->n_bytes += bytes;
    return true;
}

static int bytes_compare(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b) {
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int token_compare(const void *a, const void *b, void *context) {
    const struct added_token *x = a, *y = b;
    const uint8_t *bytes = context;
    const int order = (int)(x->flags & ADDED_NORMALIZED) - (int)(y->flags & ADDED_NORMALIZED);
    return order ? order : bytes_compare(bytes + x->at, x->length, bytes + y->at, y->length);
}

void added_finish(struct added *a) {
    if (a->n) qsort_r(a->tokens, a->n, sizeof *a->tokens, token_compare, a->bytes);
    a->only_first[0] = a->only_first[1] = -2;
    for (size_t i = 0; i < a->n; i++) {
        const int set = (a->tokens[i].flags & ADDED_NORMALIZED) != 0;
        if (!set) a->n_raw++;
        if (!a->tokens[i].length) continue;
        const int first = *added_bytes(a, i);
        a->is_first[set][first] = true;
        a->only_first[set] = a->only_first[set] == -2 || a->only_first[set] == first ? first : -1;
        if (a->tokens[i].length > a->longest) a->longest = a->tokens[i].length;
    }
}

void added_free(struct added *a) {
    memory_free(a->tokens);
    memory_free(a->bytes);
}

int32_t added_find(const struct added *a, const void *text, size_t bytes) {
    for (size_t i = 0; i < a->n; i++)
        if (a->tokens[i].length == bytes && !memcmp(added_bytes(a, i), text, bytes)) return a->tokens[i].id;
    return -1;
}

/* The longest token at text[at], among low .. high-1, which are sorted: narrows the range byte by byte. */
static size_t longest_at(const struct added *a, const uint8_t *modes, const uint8_t *text, size_t bytes, size_t at,
                         size_t low, size_t high) {
    size_t found = SIZE_MAX;
    for (size_t depth = 0; low < high; depth++) {
        /* What ends here sorts first. */
        for (; low < high && a->tokens[low].length == depth; low++)
            if (depth && modes[low] != ADDED_IS_TEXT) found = low;
        if (low == high || at + depth == bytes) break;
        const uint8_t want = text[at + depth];
        size_t begin = low, end = high;
        while (begin < end) {
            const size_t middle = (begin + end) / 2;
            if (added_bytes(a, middle)[depth] < want) begin = middle + 1;
            else end = middle;
        }
        size_t limit = high;
        end = begin;
        while (end < limit) {
            const size_t middle = (end + limit) / 2;
            if (added_bytes(a, middle)[depth] <= want) end = middle + 1;
            else limit = middle;
        }
        low = begin;
        high = end;
    }
    return found;
}

static size_t character_before(const uint8_t *text, size_t at) {
    size_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && (text[begin] & 0xc0) == 0x80) begin--;
    int length;
    unicode_get(text + begin, text + at, &length);
    return begin + (size_t)length == at ? begin : at - 1;
}

static uint32_t character_at(const uint8_t *text, size_t at, size_t end) {
    int length;
    return unicode_get(text + at, text + end, &length);
}

static bool is_single_word(const uint8_t *text, size_t bytes, size_t begin, size_t end) {
    if (begin > 0 && unicode_is_word(character_at(text, character_before(text, begin), begin))) return false;
    return end == bytes || !unicode_is_word(character_at(text, end, bytes));
}

bool added_next(const struct added *a, bool is_normalized, const uint8_t *modes, const uint8_t *text, size_t bytes,
                size_t from, size_t taken, struct added_match *match) {
    const size_t low = is_normalized ? a->n_raw : 0, high = is_normalized ? a->n : a->n_raw;
    const int only = a->only_first[is_normalized];
    if (low == high || only == -2) return false;
    for (size_t at = from; at < bytes; at++) {
        if (only >= 0) {
            const uint8_t *next = memchr(text + at, only, bytes - at);
            if (!next) return false;
            at = (size_t)(next - text);
        } else if (!a->is_first[is_normalized][text[at]]) continue;
        const size_t found = longest_at(a, modes, text, bytes, at, low, high);
        if (found == SIZE_MAX) continue;
        const struct added_token *token = &a->tokens[found];
        *match = (struct added_match){at, at + token->length, at + token->length, found};
        if (token->flags & ADDED_SINGLE_WORD && !is_single_word(text, bytes, at, match->end)) {
            at = match->end - 1; /* what was found is passed over as a whole */
            continue;
        }
        int length;
        while (token->flags & ADDED_LSTRIP && match->begin > taken) {
            const size_t before = character_before(text, match->begin);
            if (!(unicode_class(character_at(text, before, match->begin)) & UNICODE_SPACE)) break;
            match->begin = before < taken ? taken : before;
        }
        while (token->flags & ADDED_RSTRIP && match->end < bytes &&
               unicode_class(unicode_get(text + match->end, text + bytes, &length)) & UNICODE_SPACE)
            match->end += (size_t)length;
        return true;
    }
    return false;
}

bool added_is_near(const struct added *a, const uint8_t *modes, const uint8_t *text, size_t bytes, size_t at) {
    if (!a->n) return false;
    const size_t reach = a->longest + 8, from = at > reach ? at - reach : 0;
    const size_t end = at + reach < bytes ? at + reach : bytes;
    for (size_t set = 0; set < 2; set++) {
        struct added_match m;
        for (size_t next = from; added_next(a, set, modes, text, end, next, next, &m); next = m.begin + 1)
            if (m.begin <= at && at <= m.end) return true;
    }
    return false;
}
