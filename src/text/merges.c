/* merges.c: the merges of a tokenizer as the list that files have: GPT-2's, tokenizer.json, GGUF.
 *
 * Files of ranks (tiktoken's, tekken) have no such list, only an order of tokens: any two tokens merge that are one
 * together, and all pairs that make a token have its rank. Of these the list has the pair that the token is really made
 * by. Nothing else is needed: as long as no merge crosses the ends of a token, those inside happen in the same order as
 * if its bytes stood alone, so wherever the token comes about, the last two symbols are that pair.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "text/tokenizer.h"

static int by_rank(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The last two symbols before a token is made of its bytes. False: it never is. */
static bool halves_of(const tl_tokenizer *t, int32_t id, struct merge_ids *halves) {
    int32_t symbols[TOKENIZER_MOST_RANKED];
    uint32_t ranks[TOKENIZER_MOST_RANKED];
    size_t n = t->vocabulary.tokens[id].length;
    const uint8_t *bytes = vocabulary_bytes(&t->vocabulary, id);
    if (n < 2 || n > TOKENIZER_MOST_RANKED) return false;
    for (size_t i = 0; i < n; i++) symbols[i] = t->byte_ids[bytes[i]];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct pair *p = pairs_find(&t->merges, symbols[i], symbols[i + 1]);
        ranks[i] = p ? p->rank : UINT32_MAX;
    }
    while (n > 2) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == UINT32_MAX) return false;
        symbols[best] = pairs_find(&t->merges, symbols[best], symbols[best + 1])->id;
        n--;
        memmove(symbols + best + 1, symbols + best + 2, (n - best - 1) * sizeof *symbols);
        memmove(ranks + best + 1, ranks + best + 2, (n - best - 1) * sizeof *ranks);
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct pair *p = pairs_find(&t->merges, symbols[i], symbols[i + 1]);
            ranks[i] = p ? p->rank : UINT32_MAX;
        }
    }
    const struct pair *last = pairs_find(&t->merges, symbols[0], symbols[1]);
    *halves = (struct merge_ids){symbols[0], symbols[1]};
    return last && last->id == id;
}

struct merge_ids *tokenizer_merges(const tl_tokenizer *t, size_t *n) {
    const size_t most = t->merges.n + 1, slots = t->merges.slots ? t->merges.mask + 1 : 0;
    struct pair *sorted = memory_new(most * sizeof *sorted);
    struct merge_ids *list = sorted ? memory_new(most * sizeof *list) : NULL;
    size_t found = 0;
    *n = 0;
    if (!list) error_memory(most * (sizeof *sorted + sizeof *list), "the merges of a tokenizer");
    for (size_t i = 0; list && i < slots; i++)
        if (t->merges.slots[i].key != PAIR_NONE) sorted[found++] = t->merges.slots[i];
    if (found) qsort(sorted, found, sizeof *sorted, by_rank);
    for (size_t i = 0, end; i < found; i = end) {
        for (end = i + 1; end < found && sorted[end].rank == sorted[i].rank;) end++;
        struct merge_ids merge = {(int32_t)(sorted[i].key >> 32), (int32_t)(uint32_t)sorted[i].key};
        if (end == i + 1 || halves_of(t, sorted[i].id, &merge)) list[(*n)++] = merge;
    }
    memory_free(sorted);
    return list;
}
