/* bpe.h: byte-pair encoding of words, and the state of one thread that encodes. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "tally.h"
#include "text/steps.h"
#include "text/vocabulary.h"

/* A growing list of tokens. */
struct ids {
    int32_t *at;
    int64_t *offsets; /* two per token: its bytes in the text, begin .. end-1. NULL: not wanted */
    size_t n, capacity;
};

/* Words and their tokens. A short word (at most 15 bytes, 3 tokens) is a slot by itself; longer ones have theirs in an
 * arena, which is emptied when it is full. */
enum { CACHE_SHORT = 15, CACHE_IDS = 3, CACHE_LONG = 256 };
struct cache_short {
    uint64_t low, high; /* the word; its length is the last byte */
    int32_t ids[CACHE_IDS];
    uint32_t n; /* 0: empty */
};
struct cache_long {
    uint64_t hash;
    uint32_t at, length, n; /* in the arena: the ids, then the bytes */
};
struct symbol {
    int32_t id;
    uint32_t length; /* bytes of the word */
    uint32_t rank;   /* of the merge with the next one */
    uint32_t next, previous;
};

struct encoder {
    struct encoder *idle; /* the next one in the tokenizer's list */
    struct cache_short *short_words;
    struct cache_long *long_words;
    uint32_t *arena;
    size_t n_arena;
    struct symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap;
    size_t n_heap, heap_capacity;
    struct ids ids;
    struct flow flow, other, normalized; /* text between steps */
    struct unicode_pieces pieces;
    void *regex_data;
    bool is_invalid; /* the text is not UTF-8 throughout */
    uint8_t *clean;  /* what patterns see of it */
    size_t clean_capacity;
};

struct encoder *encoder_new(void); /* NULL: no memory, recorded */
/* Makes its cache, which bpe_word needs, if there is none. False: no memory, recorded. */
bool encoder_cache(struct encoder *e);
void encoder_free(struct encoder *e);

/* Makes room for n more tokens. False: no memory, recorded. */
bool ids_room(struct ids *ids, size_t n, bool has_offsets);

/* Appends the tokens of a word to e->ids; `bytes` is not 0. `end` is where readable memory ends. False: no memory, or
 * an unknown character; recorded. */
bool bpe_word(const tl_tokenizer *t, struct encoder *e, const uint8_t *word, size_t bytes, const uint8_t *end);
/* The same without the cache: the tokens and the lengths of their bytes are in e->symbols. Returns how many; -1 on
 * error. */
int64_t bpe_symbols(const tl_tokenizer *t, struct encoder *e, const uint8_t *word, size_t bytes);

#endif
