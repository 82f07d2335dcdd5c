/* tokenizer.h: one tokenizer for all file formats.
 *
 * A text becomes tokens in this order, which is Hugging Face's; what a format lacks is empty:
 *
 *     added tokens     cut out of the text as it is, or of the normalized text         text/added.h
 *     normalizers      steps that change the text                                      text/steps.h
 *     pre-tokenizers   steps that cut it into words                                    text/steps.h, text/scanner.h
 *     BPE              merges the bytes or characters of each word into tokens         text/bpe.h
 *     template         tokens before and after the text, on request
 *
 * Readers (read_*.c) fill the struct; after tokenizer_finish nothing in it changes, so threads share it. What changes
 * during encoding is in an encoder, one per thread, which keeps a cache of words.
 *
 * Files are not trusted. A file has at most TOKENIZER_MOST_BYTES; reading it takes at most 40 times its bytes, plus
 * 16 MiB: ids may leave only small gaps (vocabulary_add), steps and patterns are few, and tables have the size that
 * they need (tests/test_bounds.c).
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdatomic.h>

#include "base/lock.h"
#include "tally.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/steps.h"
#include "text/vocabulary.h"

#define TOKENIZER_MOST_BYTES ((size_t)256 << 20)
/* A token of a file of ranks; real ones have up to 128 bytes. All its cuts are looked up. */
enum { TOKENIZER_MOST_RANKED = 1024 };
/* A text of one call; longer texts go through tl_encoder. Positions in it are 32 bits. */
#define TOKENIZER_MOST_TEXT ((size_t)1 << 30)

/* What becomes of a character that is no token. */
enum unknown { UNKNOWN_DROPPED, UNKNOWN_TOKEN, UNKNOWN_REFUSED };

struct tl_tokenizer {
    atomic_int refs;
    struct vocabulary vocabulary;
    struct pairs merges;
    bool is_byte_level;    /* the symbols that merges begin with are bytes, not characters */
    bool is_word_first;    /* a word that is a token is that token, whatever the merges say */
    bool has_fallback;     /* a character that is no token becomes its bytes (byte_ids) */
    bool is_unknown_fused; /* several unknown characters are one token */
    bool may_cut_spaces;   /* no merge crosses the beginning of a run of U+2581 */
    enum unknown unknown;
    int32_t unknown_id;
    int32_t byte_ids[256]; /* -1: none */
    struct added added;    /* special and other added tokens */
    struct steps normalizers, splitters, decoders;
    bool is_joined_by_spaces; /* decoding puts a space between tokens, as Hugging Face's does without a decoder */
    bool has_regex;           /* a normalizer or splitter has one */
    bool needs_origins;       /* splitters ask where the text begins, and normalizers move that */
    int32_t *before, *after;  /* the template */
    int n_before, n_after;
    uint64_t hash;
    lock lock; /* of `idle` */
    struct encoder *idle;
};

/* A tokenizer with an empty vocabulary and one reference. NULL: no memory, recorded. */
tl_tokenizer *tokenizer_new(void);
/* Adds the table of words to ids, byte_ids and the hash. The reader's last call. False: recorded. */
bool tokenizer_finish(tl_tokenizer *t);

/* A byte as GPT-2's files write it (a printable character), and back; -1: no byte is written so. */
uint32_t tokenizer_byte_character(uint8_t byte);
int tokenizer_character_byte(uint32_t c);
/* The text of tokenizer.json, which tl_tokenizer_save writes, with a 0 behind it; memory_free'd by the caller. NULL:
 * recorded. */
char *tokenizer_json(const tl_tokenizer *t, size_t *bytes);
/* The merges in their order, one for each token that merges make; memory_free'd by the caller. NULL: no memory,
 * recorded. */
struct merge_ids {
    int32_t a, b;
};
struct merge_ids *tokenizer_merges(const tl_tokenizer *t, size_t *n);
/* One more tl_tokenizer_free is due. */
tl_tokenizer *tokenizer_keep(tl_tokenizer *t);

/* The readers. `bytes` of `text` are the file's, which they may change; text[bytes] is 0. `path` is for messages. NULL
 * on error, which is recorded. */
tl_tokenizer *tokenizer_read_ranks(char *text, size_t bytes, const char *path, const char *encoding);
tl_tokenizer *tokenizer_read_gpt2(const char *vocabulary_path, const char *merges_path);
tl_tokenizer *tokenizer_read_json(char *text, size_t bytes, const char *path);
tl_tokenizer *tokenizer_read_gguf(const char *path);
/* Whether a path is a GGUF file with a tokenizer, of whatever kind. */
bool tokenizer_in_gguf(const char *path);
tl_tokenizer *tokenizer_read_tekken(char *text, size_t bytes, const char *path);

/* The pattern of an encoding by its name. NULL: there is none, recorded with `where` in front. */
const char *tokenizer_pattern(const char *encoding, const char *where);
/* Decodes base64 in place; returns the bytes, 0 if it is none. */
size_t tokenizer_base64(char *text, size_t bytes);
/* Adds a merge of two tokens into the one of their joined texts, as files write them. False: recorded. */
bool tokenizer_merge_add(tl_tokenizer *t, const char *a, size_t n_a, const char *b, size_t n_b, int64_t rank,
                         const char *path);
/* Turns tokens from GPT-2's writing into bytes. A token with other characters stays as it is, and no word becomes
 * it. */
void tokenizer_bytes_from_characters(tl_tokenizer *t);
/* Makes the merges of rank order: two tokens merge if their bytes together are a token, the smallest id first. */
bool tokenizer_merges_from_ranks(tl_tokenizer *t);
/* Adds a token that stands for itself: in the vocabulary, if it is not there, and among the added ones. */
bool tokenizer_add_special(tl_tokenizer *t, const char *text, size_t bytes, int32_t id, unsigned flags);

/* How a text is encoded, from tl_encode_options: what to do with each added token. */
struct encode_plan {
    const tl_tokenizer *t;
    bool has_offsets, has_template;
    bool has_origins;               /* where each byte is from is needed */
    bool may_cut, may_cut_anywhere; /* see encode_cut */
    uint8_t *modes;                 /* enum added_mode, one per added token */
};
bool encode_plan_make(struct encode_plan *plan, const tl_tokenizer *t, const tl_encode_options *options);
void encode_plan_free(struct encode_plan *plan);
/* Appends the tokens of a text (without the template) to e->ids. `is_first`: it is the beginning of the user's text.
 * False: recorded. */
bool encode_text(const struct encode_plan *plan, struct encoder *e, const uint8_t *text, size_t bytes, bool is_first);
/* Says in the plan whether texts may be cut. */
void encode_cuts(struct encode_plan *plan);
/* How much text encode_cut wants behind a place, besides the longest added token. */
enum { CUT_TAIL = 16 };
/* The last place, behind `least`, where a text that begins with these n bytes may be cut: the tokens of the two parts
 * are those of the whole. There is enough text behind the place to know. 0: there is none. */
size_t encode_cut(const struct encode_plan *plan, const uint8_t *text, size_t n, size_t least);
/* tl_tokenizer_encode on `threads` threads (0: all). is_later (NULL: none are): the text continues the one before it,
 * which was cut there; then there is no template. */
bool encode_texts(const struct encode_plan *plan, const char *const *texts, const size_t *bytes, const bool *is_later,
                  int64_t n, int threads, tl_encoding *encoding);
/* Appends the template's tokens before a text, or those behind it, which are at byte `at`. */
bool encode_template(const struct encode_plan *plan, struct encoder *e, bool is_before, size_t at);

/* An encoder of the tokenizer's idle ones, or a new one; put gives it back. NULL: no memory, recorded. */
struct encoder *encoder_take(const tl_tokenizer *t);
void encoder_put(const tl_tokenizer *t, struct encoder *e);

#endif
