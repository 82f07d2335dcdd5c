/* train_bpe.c: byte-level BPE learned from texts.
 *
 * The distinct words (text/word_counts.h) are laid out one after the other, a slot per byte. A token is its id in the
 * slots of its first and last byte, so that its neighbours are found in one step in both directions, and merging two
 * tokens is four writes. Slots inside of tokens, and one slot between words, are -1.
 *
 * Each pair has its count and the places where it was when it came into being. A merge goes through the places of its
 * pair, skips those that other merges have changed since, and sums up the neighbours by token: pairs with the old
 * tokens lose these counts, pairs with the new token begin with them. All pairs with a new token come into being in
 * the merge that makes it, because no token can be made in two ways (every merge is applied everywhere, from left to
 * right, so the inside of a token is the same wherever it stands). So counts only fall, lists of places only shrink,
 * and a heap whose counts are too high is corrected at its top: if the count there is not the pair's any more, it is
 * put back with the right one.
 *
 * A merge that is applied to a place removes a token there, and makes at most two places of new pairs. Places are
 * therefore at most three per byte of the distinct words, over the whole training.
 */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "text/tokenizer.h"
#include "text/word_counts.h"

/* Longer tokens are not made; a file of ranks may not have them. */
enum { MOST_TOKEN = TOKENIZER_MOST_RANKED };
enum { MOST_VOCABULARY = 1 << 24 };
enum { BLOCK = 64 }; /* slots per entry of the table that finds words by place */

/* ---- Pairs ---- */

struct learned_pair {
    uint64_t key;      /* PAIR_NONE: an empty slot */
    int64_t count;     /* 0: merged, or gone */
    uint32_t *places;  /* if there are several */
    uint32_t n, place; /* if there is one */
};
struct pair_table {
    struct learned_pair *slots;
    size_t mask, n, n_live; /* n: with those that are gone */
};

static size_t table_slot(const struct pair_table *t, uint64_t key) {
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    size_t slot = (size_t)(h >> 32) & t->mask;
    while (t->slots[slot].key != PAIR_NONE && t->slots[slot].key != key) slot = (slot + 1) & t->mask;
    return slot;
}

/* Makes a table for n pairs and moves the live ones into it. */
static bool table_resize(struct pair_table *t, size_t n) {
    size_t capacity = 1024;
    while (capacity / 3 * 2 < n) capacity *= 2;
    struct pair_table to = {.mask = capacity - 1, .n = t->n_live, .n_live = t->n_live};
    to.slots = memory_new(capacity * sizeof *to.slots);
    if (!to.slots) return error_memory(capacity * sizeof *to.slots, "pairs of tokens");
    for (size_t i = 0; i < capacity; i++) to.slots[i].key = PAIR_NONE;
    for (size_t i = 0; t->slots && i <= t->mask; i++) {
        const struct learned_pair *pair = &t->slots[i];
        if (pair->key != PAIR_NONE && pair->count) to.slots[table_slot(&to, pair->key)] = *pair;
    }
    memory_free(t->slots);
    *t = to;
    return true;
}

static struct learned_pair *table_find(const struct pair_table *t, uint64_t key) {
    struct learned_pair *pair = &t->slots[table_slot(t, key)];
    return pair->key == key && pair->count ? pair : NULL;
}

static void pair_end(struct pair_table *t, struct learned_pair *pair) {
    if (pair->n > 1) memory_free(pair->places);
    pair->n = 0;
    pair->count = 0;
    t->n_live--;
}

static void table_free(struct pair_table *t) {
    for (size_t i = 0; t->slots && i <= t->mask; i++)
        if (t->slots[i].key != PAIR_NONE && t->slots[i].n > 1) memory_free(t->slots[i].places);
    memory_free(t->slots);
}

/* ---- The state of a training ---- */

struct heap_entry {
    int64_t count;
    uint64_t key;
};
/* Neighbours of the places of a merge, by token, on one side. */
struct neighbour {
    int64_t count;
    uint32_t *places, *next; /* next: where the following place goes */
    uint32_t n, place;
};
struct side {
    struct neighbour *by_token;
    int32_t *tokens; /* those that have one */
    size_t n_tokens;
    struct {
        int32_t token;
        uint32_t place;
    } * found;
    size_t n_found, found_capacity;
};
enum { LEFT, RIGHT };

struct learner {
    tl_tokenizer *t;
    int32_t *slots;
    size_t n_slots;
    uint32_t *starts, *blocks; /* the first slot of each word; the word that slot BLOCK * i is in or behind */
    int64_t *counts;
    size_t n_words;
    struct pair_table pairs;
    struct heap_entry *heap;
    size_t n_heap, heap_capacity;
    struct side sides[2];
    uint64_t *prefixes; /* the first eight bytes of each token, to compare by */
    size_t token_capacity;
    bool is_hugging_face;
    int64_t least;
};

static void learner_free(struct learner *l) {
    memory_free(l->slots);
    memory_free(l->starts);
    memory_free(l->blocks);
    memory_free(l->counts);
    table_free(&l->pairs);
    memory_free(l->heap);
    memory_free(l->prefixes);
    for (int i = 0; i < 2; i++) {
        struct side *s = &l->sides[i];
        for (size_t k = 0; k < s->n_tokens; k++)
            if (s->by_token[s->tokens[k]].n > 1) memory_free(s->by_token[s->tokens[k]].places);
        memory_free(s->by_token);
        memory_free(s->tokens);
        memory_free(s->found);
    }
}

static inline uint32_t length_of(const struct learner *l, int32_t token) {
    return l->t->vocabulary.tokens[token].length;
}

/* ---- Tokens ---- */

static bool tokens_room(struct learner *l, int32_t id) {
    if ((size_t)id < l->token_capacity) return true;
    size_t capacity = l->token_capacity ? 2 * l->token_capacity : 1024;
    while (capacity <= (size_t)id) capacity *= 2;
    uint64_t *prefixes = memory_resize(l->prefixes, capacity * sizeof *prefixes);
    if (prefixes) l->prefixes = prefixes;
    bool ok = prefixes != NULL;
    for (int i = 0; i < 2 && ok; i++) {
        struct side *s = &l->sides[i];
        struct neighbour *by_token = memory_resize(s->by_token, capacity * sizeof *by_token);
        if (by_token) s->by_token = by_token;
        int32_t *tokens = memory_resize(s->tokens, capacity * sizeof *tokens);
        if (tokens) s->tokens = tokens;
        ok = by_token && tokens;
        if (ok) memset(by_token + l->token_capacity, 0, (capacity - l->token_capacity) * sizeof *by_token);
    }
    if (!ok) return error_memory(capacity * sizeof(struct neighbour), "tokens");
    l->token_capacity = capacity;
    return true;
}

static bool token_add(struct learner *l, int32_t id, const uint8_t *bytes, size_t n) {
    if (!tokens_room(l, id) || !vocabulary_add(&l->t->vocabulary, id, bytes, n, false, "bpe")) return false;
    uint64_t prefix = 0;
    for (size_t i = 0; i < 8; i++) prefix = prefix << 8 | (i < n ? bytes[i] : 0);
    l->prefixes[id] = prefix;
    return true;
}

static int token_compare(const struct learner *l, int32_t a, int32_t b) {
    if (l->prefixes[a] != l->prefixes[b]) return l->prefixes[a] > l->prefixes[b] ? 1 : -1;
    const struct vocabulary *v = &l->t->vocabulary;
    const uint32_t n_a = length_of(l, a), n_b = length_of(l, b);
    const int order = memcmp(vocabulary_bytes(v, a), vocabulary_bytes(v, b), n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

/* ---- The heap ---- */

static bool is_before(const struct learner *l, struct heap_entry x, struct heap_entry y) {
    if (x.count != y.count) return x.count > y.count;
    if (l->is_hugging_face) return x.key < y.key;
    const int first = token_compare(l, (int32_t)(x.key >> 32), (int32_t)(y.key >> 32));
    return first ? first > 0 : token_compare(l, (int32_t)(uint32_t)x.key, (int32_t)(uint32_t)y.key) > 0;
}

static void heap_sink(struct learner *l, struct heap_entry entry) {
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < l->n_heap; at = child) {
        if (child + 1 < l->n_heap && is_before(l, l->heap[child + 1], l->heap[child])) child++;
        if (!is_before(l, l->heap[child], entry)) break;
        l->heap[at] = l->heap[child];
    }
    l->heap[at] = entry;
}

static bool heap_push(struct learner *l, struct heap_entry entry) {
    if (l->n_heap == l->heap_capacity && !memory_grow((void **)&l->heap, &l->heap_capacity, l->n_heap, sizeof *l->heap))
        return error_memory(2 * l->heap_capacity * sizeof *l->heap, "pairs of tokens");
    size_t at = l->n_heap++;
    for (; at > 0 && is_before(l, entry, l->heap[(at - 1) / 2]); at = (at - 1) / 2) l->heap[at] = l->heap[(at - 1) / 2];
    l->heap[at] = entry;
    return true;
}

/* The pair to merge next, out of the heap; NULL: none is left. */
static struct learned_pair *heap_pop(struct learner *l) {
    while (l->n_heap) {
        const struct heap_entry top = l->heap[0];
        struct learned_pair *pair = table_find(&l->pairs, top.key);
        if (pair && pair->count != top.count) {
            heap_sink(l, (struct heap_entry){pair->count, top.key});
            continue;
        }
        l->n_heap--;
        if (l->n_heap) heap_sink(l, l->heap[l->n_heap]);
        if (pair) return pair;
    }
    return NULL;
}

/* ---- From words to slots ---- */

static bool slots_make(struct learner *l, struct word_counts *w) {
    uint64_t n = 1;
    for (int i = 0; i < WORD_PARTS; i++)
        for (size_t k = 0; k < w->parts[i].n; k++) {
            const uint32_t length = w->parts[i].words[k].length;
            if (length > 1) n += length + 1, l->n_words++;
        }
    if (n >= UINT32_MAX)
        return error_set(TL_ERROR_USE, "bpe: the distinct words have %llu bytes (need less than 4 GiB)",
                         (unsigned long long)n);
    l->n_slots = n;
    l->slots = memory_new(n * sizeof *l->slots);
    l->starts = memory_new((l->n_words + 1) * sizeof *l->starts);
    l->counts = memory_new((l->n_words + 1) * sizeof *l->counts);
    l->blocks = memory_new((n / BLOCK + 1) * sizeof *l->blocks);
    if (!l->slots || !l->starts || !l->counts || !l->blocks)
        return error_memory(n * sizeof *l->slots, "the words of a text");
    uint32_t at = 1, word = 0;
    l->slots[0] = -1;
    for (int i = 0; i < WORD_PARTS; i++) {
        struct word_part *part = &w->parts[i];
        for (size_t k = 0; k < part->n; k++) {
            const struct word *from = &part->words[k];
            if (from->length < 2) continue;
            l->starts[word] = at;
            l->counts[word++] = (int64_t)from->count;
            for (uint32_t b = 0; b < from->length; b++) l->slots[at++] = l->t->byte_ids[part->bytes[from->at + b]];
            l->slots[at++] = -1;
        }
        word_part_free(part);
    }
    l->starts[word] = at;
    word = 0;
    for (size_t block = 0; block <= n / BLOCK; block++) {
        while (word + 1 < l->n_words && l->starts[word + 1] <= block * BLOCK) word++;
        l->blocks[block] = word;
    }
    return true;
}

static inline int64_t count_at(const struct learner *l, uint32_t place) {
    size_t word = l->blocks[place / BLOCK];
    while (l->starts[word + 1] <= place) word++;
    return l->counts[word];
}

/* ---- Pairs of new tokens ---- */

static bool neighbour_add(struct side *s, int32_t token, uint32_t place, int64_t count) {
    struct neighbour *n = &s->by_token[token];
    if (!n->count) {
        *n = (struct neighbour){0};
        s->tokens[s->n_tokens++] = token;
    }
    n->count += count;
    n->place++; /* how many; `n` says it when the places have memory */
    if (s->n_found == s->found_capacity &&
        !memory_grow((void **)&s->found, &s->found_capacity, s->n_found, sizeof *s->found))
        return error_memory(2 * s->found_capacity * sizeof *s->found, "places of pairs");
    s->found[s->n_found].token = token;
    s->found[s->n_found++].place = place;
    return true;
}

/* Sorts what was found into a list per neighbour, in the order of the places. */
static bool side_sort(struct side *s) {
    for (size_t i = 0; i < s->n_tokens; i++) {
        struct neighbour *n = &s->by_token[s->tokens[i]];
        const uint32_t many = n->place;
        n->next = &n->place;
        if (many > 1 && !(n->next = n->places = memory_new(many * sizeof *n->places)))
            return error_memory(many * sizeof *n->places, "places of pairs");
        n->n = many;
    }
    for (size_t i = 0; i < s->n_found; i++) *s->by_token[s->found[i].token].next++ = s->found[i].place;
    s->n_found = 0;
    return true;
}

/* Takes over the neighbour's places. */
static bool pair_put(struct learner *l, uint64_t key, struct neighbour *n) {
    struct pair_table *t = &l->pairs;
    if (n->count >= l->least &&
        length_of(l, (int32_t)(key >> 32)) + length_of(l, (int32_t)(uint32_t)key) <= MOST_TOKEN) {
        if ((!t->slots || t->n >= (t->mask + 1) / 3 * 2) && !table_resize(t, 2 * t->n_live + 1)) return false;
        if (!heap_push(l, (struct heap_entry){n->count, key})) return false;
        t->slots[table_slot(t, key)] = (struct learned_pair){key, n->count, n->places, n->n, n->place};
        t->n++;
        t->n_live++;
    } else if (n->n > 1) memory_free(n->places);
    n->n = 0;
    return true;
}

static void pair_lose(struct learner *l, uint64_t key, int64_t count) {
    struct learned_pair *pair = table_find(&l->pairs, key);
    if (pair && (pair->count -= count) < l->least) pair_end(&l->pairs, pair);
}

/* The pairs of the new token, and what those of the old ones lose. */
static bool sides_end(struct learner *l, int32_t a, int32_t b, int32_t made) {
    for (int i = 0; i < 2; i++)
        if (!side_sort(&l->sides[i])) return false;
    for (int i = 0; i < 2; i++) {
        struct side *s = &l->sides[i];
        for (size_t k = 0; k < s->n_tokens; k++) {
            const int32_t other = s->tokens[k];
            const uint64_t key = i == LEFT ? pair_key(other, made) : pair_key(made, other);
            if (!pair_put(l, key, &s->by_token[other])) return false;
        }
    }
    for (int i = 0; i < 2; i++) {
        struct side *s = &l->sides[i];
        for (size_t k = 0; k < s->n_tokens; k++) {
            const int32_t other = s->tokens[k];
            pair_lose(l, i == LEFT ? pair_key(other, a) : pair_key(b, other), s->by_token[other].count);
            s->by_token[other].count = 0;
        }
        s->n_tokens = 0;
    }
    return true;
}

static bool place_merge(struct learner *l, uint32_t place, int32_t a, int32_t b, int32_t made) {
    int32_t *slots = l->slots;
    const uint32_t middle = place + length_of(l, a);
    if (slots[place] != a || slots[middle] != b) return true; /* another merge was here */
    const uint32_t end = middle + length_of(l, b);
    const int64_t count = count_at(l, place);
    const int32_t left = slots[place - 1], right = slots[end];
    if (left >= 0 && !neighbour_add(&l->sides[LEFT], left, place - length_of(l, left), count)) return false;
    if (right >= 0 && !neighbour_add(&l->sides[RIGHT], right, place, count)) return false;
    slots[middle - 1] = slots[middle] = -1;
    slots[place] = slots[end - 1] = made;
    return true;
}

/* The pairs of bytes. */
static bool pairs_begin(struct learner *l) {
    const int32_t first = l->t->vocabulary.n - 256; /* bytes are the last 256 tokens so far */
    struct neighbour *pairs = memory_new(65536 * sizeof *pairs);
    if (!pairs) return error_memory(65536 * sizeof *pairs, "pairs of bytes");
    memset(pairs, 0, 65536 * sizeof *pairs);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t word = 0; word < l->n_words; word++)
            for (uint32_t at = l->starts[word]; l->slots[at + 1] >= 0; at++) {
                struct neighbour *n = &pairs[(l->slots[at] - first) << 8 | (l->slots[at + 1] - first)];
                if (pass) *n->next++ = at;
                else n->count += l->counts[word], n->place++;
            }
        for (int i = 0; i < 65536 && !pass; i++) {
            struct neighbour *n = &pairs[i];
            n->n = n->place;
            n->next = &n->place;
            if (n->n > 1) n->next = n->places = memory_new(n->n * sizeof *n->places);
            if (n->next) continue;
            pass = 2;
            error_memory(n->n * sizeof *n->places, "places of pairs");
            n->n = 0;
        }
    }
    bool ok = tl_error() == TL_OK;
    for (int i = 0; i < 65536; i++) {
        ok = ok && (!pairs[i].n || pair_put(l, pair_key(first + (i >> 8), first + (i & 255)), &pairs[i]));
        if (pairs[i].n > 1) memory_free(pairs[i].places);
    }
    memory_free(pairs);
    return ok;
}

/* ---- Merging ---- */

static bool pair_merge(struct learner *l, struct learned_pair *pair, int32_t made) {
    const struct vocabulary *v = &l->t->vocabulary;
    const int32_t a = (int32_t)(pair->key >> 32), b = (int32_t)(uint32_t)pair->key;
    const uint32_t n_a = length_of(l, a), n_b = length_of(l, b), n = pair->n;
    uint8_t bytes[MOST_TOKEN];
    memcpy(bytes, vocabulary_bytes(v, a), n_a);
    memcpy(bytes + n_a, vocabulary_bytes(v, b), n_b);
    if (!token_add(l, made, bytes, n_a + n_b) || !pairs_put(&l->t->merges, a, b, (uint32_t)l->t->merges.n, made, true))
        return false;
    uint32_t one = pair->place, *several = n > 1 ? pair->places : NULL;
    const uint32_t *places = several ? several : &one;
    pair->n = 0;
    pair_end(&l->pairs, pair);
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        if (i + 8 < n) __builtin_prefetch(&l->slots[places[i + 8]], 1);
        ok = place_merge(l, places[i], a, b, made);
    }
    memory_free(several);
    return ok && sides_end(l, a, b, made);
}

struct tl_bpe {
    tl_bpe_options options;
    struct word_counts words;
    uint64_t done, total; /* bytes of the files, for progress */
};

static bool merges_make(struct learner *l, const tl_bpe *bpe, int32_t first, int64_t n) {
    const tl_bpe_options *o = &bpe->options;
    for (int64_t i = 0; i < n; i++) {
        struct learned_pair *pair = heap_pop(l);
        if (!pair) break;
        if (!pair_merge(l, pair, first + (int32_t)i)) return false;
        if (i % 16 == 0 &&
            ((o->progress && !o->progress(true, (uint64_t)i, (uint64_t)n, o->context)) || stop_is_asked()))
            return error_set(TL_ERROR_USE, "bpe: stopped");
    }
    return true;
}

/* ---- The tokenizer ---- */

static bool specials_add(tl_tokenizer *t, const struct added *special, int32_t first) {
    for (int32_t k = 0; k < (int32_t)special->n; k++)
        for (size_t i = 0; i < special->n; i++)
            if (special->tokens[i].id == k &&
                !tokenizer_add_special(t, (const char *)added_bytes(special, i), special->tokens[i].length, first + k,
                                       ADDED_SPECIAL))
                return false;
    return true;
}

/* Ids as Hugging Face's trainer gives them: special tokens, bytes in the order of their characters in GPT-2's writing,
 * merges. Otherwise bytes by value, merges, special tokens: then ids are ranks as tiktoken has them. */
static bool bytes_add(struct learner *l, int32_t first) {
    int32_t id = first;
    for (uint32_t c = 0; c < 0x200; c++) {
        const int byte = l->is_hugging_face ? tokenizer_character_byte(c) : c < 256 ? (int)c : -1;
        if (byte < 0) continue;
        l->t->byte_ids[byte] = id;
        if (!token_add(l, id++, &(uint8_t){(uint8_t)byte}, 1)) return false;
    }
    return true;
}

static bool learner_run(struct learner *l, tl_bpe *bpe) {
    const struct added *special = &bpe->words.special;
    const int32_t first = l->is_hugging_face ? (int32_t)special->n : 0;
    tl_tokenizer *t = l->t;
    t->is_byte_level = true;
    return (!l->is_hugging_face || specials_add(t, special, 0)) && bytes_add(l, first) && slots_make(l, &bpe->words) &&
           pairs_begin(l) && merges_make(l, bpe, first + 256, bpe->options.vocabulary - 256 - (int64_t)special->n) &&
           (l->is_hugging_face || specials_add(t, special, t->vocabulary.n)) &&
           steps_add(&t->splitters, (struct step){.kind = STEP_SPLIT, .scan = bpe->words.scan}) && tokenizer_finish(t);
}

tl_tokenizer *tl_bpe_train(tl_bpe *bpe) {
    if (!bpe || tl_error() != TL_OK) return NULL;
    if (!bpe->words.n_words)
        return error_set(TL_ERROR_USE, "bpe: there is no word to learn from (%llu bytes of text were added)",
                         (unsigned long long)bpe->words.n_bytes),
               NULL;
    struct learner l = {.is_hugging_face = bpe->options.ties == TL_TIES_HUGGING_FACE,
                        .least = bpe->options.min_count > 1 ? bpe->options.min_count : 1};
    l.t = tokenizer_new();
    const bool ok = l.t && table_resize(&l.pairs, 1) && learner_run(&l, bpe);
    learner_free(&l);
    for (int i = 0; i < WORD_PARTS; i++) word_part_free(&bpe->words.parts[i]);
    bpe->words.n_words = bpe->words.n_bytes = 0;
    if (ok) return l.t;
    tl_tokenizer_free(l.t);
    return NULL;
}

/* ---- Texts ---- */

tl_bpe_options tl_bpe_defaults(void) {
    static const char *const special[] = {"<|endoftext|>"};
    return (tl_bpe_options){.vocabulary = 8192, .encoding = "gpt2", .special = special, .n_special = 1};
}

static bool special_add(struct word_counts *w, const char *text, int32_t id) {
    char shown[80];
    const size_t n = text ? strlen(text) : 0;
    if (n < 2 || n > 256 || !text_is_utf8(text))
        return error_set(TL_ERROR_USE, "bpe: special token \"%s\" (need 2 to 256 bytes of UTF-8)",
                         text_show(shown, sizeof shown, text ? text : ""));
    if (added_find(&w->special, text, n) >= 0)
        return error_set(TL_ERROR_USE, "bpe: special token \"%s\" is given twice",
                         text_show(shown, sizeof shown, text));
    return added_add(&w->special, text, n, id, ADDED_SPECIAL);
}

static bool bpe_begin(tl_bpe *bpe) {
    const tl_bpe_options *o = &bpe->options;
    const char *pattern = tokenizer_pattern(o->encoding ? o->encoding : "gpt2", "bpe");
    if (!pattern) return false;
    unicode_ready();
    bpe->words.scan = scanner_find(pattern);
    const int64_t least = 256 + (int64_t)o->n_special;
    if (o->n_special < 0 || (o->n_special && !o->special))
        return error_set(TL_ERROR_USE, "bpe: no special tokens given");
    if (o->vocabulary < least || o->vocabulary > MOST_VOCABULARY)
        return error_set(TL_ERROR_USE, "bpe: vocabulary %lld (need %lld, for 256 bytes and %d special token%s, to %d)",
                         (long long)o->vocabulary, (long long)least, o->n_special, o->n_special == 1 ? "" : "s",
                         MOST_VOCABULARY);
    if ((unsigned)o->ties > TL_TIES_HUGGING_FACE) return error_set(TL_ERROR_USE, "bpe: ties %d (need 0 or 1)", o->ties);
    for (int i = 0; i < o->n_special; i++)
        if (!special_add(&bpe->words, o->special[i], i)) return false;
    added_finish(&bpe->words.special);
    bpe->words.modes = memory_new((size_t)o->n_special + 1);
    if (!bpe->words.modes) return error_memory((size_t)o->n_special, "special tokens");
    memset(bpe->words.modes, ADDED_MATCHES, (size_t)o->n_special + 1);
    return true;
}

tl_bpe *tl_bpe_new(const tl_bpe_options *options) {
    if (tl_error() != TL_OK) return NULL;
    tl_bpe *bpe = memory_new(sizeof *bpe);
    if (!bpe) return error_memory(sizeof *bpe, "a trainer"), NULL;
    *bpe = (tl_bpe){.options = options ? *options : tl_bpe_defaults()};
    for (int i = 0; i < WORD_PARTS; i++) bpe->words.parts[i].lock = (lock)LOCK_INIT;
    const bool ok = bpe_begin(bpe);
    bpe->options.special = NULL; /* the caller's; copied */
    bpe->options.encoding = NULL;
    if (ok) return bpe;
    tl_bpe_free(bpe);
    return NULL;
}

void tl_bpe_free(tl_bpe *bpe) {
    if (!bpe) return;
    word_counts_free(&bpe->words);
    memory_free(bpe);
}

bool tl_bpe_add(tl_bpe *bpe, const char *text, size_t bytes) {
    if (!bpe || (bytes && !text)) return error_set(TL_ERROR_USE, "bpe_add: no trainer, or no text");
    if (tl_error() != TL_OK) return false;
    const struct word_source from = {.text = (const uint8_t *)text, .bytes = bytes};
    return !bytes || word_counts_add(&bpe->words, &from, NULL, NULL);
}

static bool bytes_tell(uint64_t done, void *context) {
    tl_bpe *bpe = context;
    const tl_bpe_options *o = &bpe->options;
    return !o->progress || o->progress(false, bpe->done + done, bpe->total, o->context);
}

bool tl_bpe_add_files(tl_bpe *bpe, const char *const *paths, int n) {
    if (!bpe || n < 0 || (n && !paths)) return error_set(TL_ERROR_USE, "bpe_add_files: no trainer, or no files");
    if (tl_error() != TL_OK) return false;
    bpe->done = bpe->total = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++) {
            size_t bytes;
            const int fd = paths[i] ? file_open(paths[i], &bytes) : -1;
            if (fd < 0) return paths[i] ? false : error_set(TL_ERROR_USE, "bpe_add_files: no path");
            const struct word_source from = {.fd = fd, .path = paths[i], .bytes = bytes};
            if (!pass) bpe->total += bytes;
            const bool ok = !pass || !bytes || word_counts_add(&bpe->words, &from, bytes_tell, bpe);
            file_close(fd);
            if (!ok) return false;
            if (pass) bpe->done += bytes;
        }
    return true;
}

tl_bpe_counts tl_bpe_count(const tl_bpe *bpe) {
    tl_bpe_counts c = {0};
    if (!bpe) return c;
    c.bytes = bpe->words.n_bytes;
    c.words = bpe->words.n_words;
    for (int i = 0; i < WORD_PARTS; i++) {
        c.distinct += bpe->words.parts[i].n;
        c.distinct_bytes += bpe->words.parts[i].n_bytes;
    }
    return c;
}

tl_tokenizer *tl_tokenizer_train(const char *const *paths, int n, const tl_bpe_options *options) {
    tl_bpe *bpe = tl_bpe_new(options);
    tl_tokenizer *t = bpe && tl_bpe_add_files(bpe, paths, n) ? tl_bpe_train(bpe) : NULL;
    tl_bpe_free(bpe);
    return t;
}
