/* gguf.h: the header of a GGUF file, read and checked (docs/files.md has the rules). */
#ifndef FILE_GGUF_H
#define FILE_GGUF_H

#include "base/file.h"
#include "tally.h"

#define GGUF_HEADER_MAX 100000000 /* bytes; the largest vocabularies take some 20 MB */
#define GGUF_ALIGNMENT 32         /* of the data, when the file says nothing else */
#define GGUF_ALIGNMENT_MAX (1 << 20)
#define GGUF_ALIGNMENT_KEY "general.alignment"
#define GGUF_MAX_RANK 4
#define GGUF_Q8_BLOCK 32 /* elements of a block of Q8_0: an f16 scale, then as many i8 */
#define GGUF_Q8_BYTES 34

/* The types of tensors, by the format's numbers: `block` elements of the last axis take `bytes`. dtype is what
 * tl_gguf_get gives, TL_DTYPE_COUNT for types that can be listed only. */
struct gguf_type {
    uint32_t number;
    const char *name;
    int block, bytes;
    tl_dtype dtype;
};
extern const struct gguf_type gguf_types[];
extern const int n_gguf_types;
const struct gguf_type *gguf_type_numbered(uint32_t number); /* NULL: none */

/* Bytes of one value of a kind; 0 for text and arrays. -1: no kind has this number. */
int gguf_kind_bytes(uint32_t kind);

struct gguf_entry {
    const char *name; /* in the header's bytes */
    const struct gguf_type *type;
    int rank;
    int64_t shape[GGUF_MAX_RANK]; /* outermost axis first; the file has it the other way round */
    size_t begin, bytes;          /* of the data */
};

struct gguf_pair {
    const char *key;
    uint32_t kind; /* of an array: of its elements */
    bool is_array;
    int64_t count;            /* 1 if it is no array */
    unsigned char *data;      /* numbers as they stand in the file, unaligned */
    const char *const *texts; /* of kind text, once gguf_header_read is through */
};

struct gguf_header {
    unsigned char *bytes; /* the file from its beginning; strings are moved to end with a 0 */
    struct gguf_entry *entries;
    struct gguf_entry **by_name; /* sorted, for looking up */
    struct gguf_pair *pairs;     /* in the order of the file */
    struct gguf_pair **by_key;
    const char **texts; /* of all pairs */
    size_t n_entries, n_pairs, entry_capacity, pair_capacity;
    size_t end;       /* where the header ends */
    size_t begin;     /* where the data begins */
    size_t alignment; /* of the data and of every tensor in it */
};

/* Reads the header of an open file of `bytes` bytes and checks every rule. False: recorded with the file's name. */
bool gguf_header_read(struct gguf_header *h, int fd, const char *path, size_t bytes);
void gguf_header_free(struct gguf_header *h);
const struct gguf_pair *gguf_pair_named(const struct gguf_header *h, const char *key); /* NULL: none */

/* Blocks of Q8_0: scale = max|x| / 127, value = x / scale rounded to nearest, halves away from zero; n is a multiple of
 * GGUF_Q8_BLOCK. The arithmetic is ggml's, bit for bit. */
void gguf_q8_encode(unsigned char *to, const float *from, int64_t n);
void gguf_q8_decode(float *to, const unsigned char *from, int64_t n);

/* tl_gguf_writer_tensor for a tensor whose elements, row-major, are to have another shape in the file. */
bool gguf_writer_tensor_as(tl_gguf_writer *w, const char *name, tl_tensor *x, tl_gguf_type type, int rank,
                           const int64_t *shape);
/* How many numbers all tensors of a file have. */
int64_t gguf_numbers(const tl_gguf *file);
/* Whether a file begins as a GGUF file does; false also if it cannot be read, which is not recorded. */
bool gguf_is_one(const char *path);

#endif
