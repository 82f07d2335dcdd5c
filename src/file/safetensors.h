/* safetensors.h: the header of a safetensors file, read and checked (docs/files.md has the rules). */
#ifndef FILE_SAFETENSORS_H
#define FILE_SAFETENSORS_H

#include "base/file.h"
#include "tally.h"

#define SAFETENSORS_HEADER_MAX 100000000 /* bytes; the reference's limit for readers and writers */
#define SAFETENSORS_METADATA "__metadata__"

/* The format's element types, in the order of the reference: a file has its last ones first, so that wide elements come
 * first and all are aligned. Types that Tally lacks can be listed but not read. */
struct safetensors_type {
    const char *name;
    int bits;
};
extern const struct safetensors_type safetensors_types[];
extern const int n_safetensors_types;
const struct safetensors_type *safetensors_type_named(const char *name); /* NULL: none */
const struct safetensors_type *safetensors_type_of(tl_dtype dtype);      /* NULL: the format has none */
tl_dtype safetensors_dtype(const struct safetensors_type *type);         /* TL_DTYPE_COUNT: not supported */

struct header_entry {
    const char *name; /* in the header's text, as are all strings here */
    const struct safetensors_type *type;
    size_t first_size; /* of `rank` ones in the header's sizes */
    int rank;
    size_t begin, end; /* bytes of the data */
};

struct header_pair {
    const char *key, *value;
};

struct header {
    char *text; /* the JSON; its strings are decoded where they stand */
    struct header_entry *entries;
    struct header_entry **by_name; /* sorted, for looking up */
    int64_t *sizes;
    struct header_pair *pairs; /* metadata, sorted by key */
    size_t n_entries, n_sizes, n_pairs;
    size_t entry_capacity, size_capacity, pair_capacity;
};

/* Reads h->text (`length` bytes and a 0) into the rest of h: entries in the order of their data, which must be exactly
 * `data_bytes`. False, recorded with the name of the file, when any rule is broken. */
bool header_read(struct header *h, const char *path, size_t length, size_t data_bytes);
/* The `rank` sizes of an entry; NULL for a scalar. */
const int64_t *header_shape(const struct header *h, const struct header_entry *e);
void header_free(struct header *h);

/* How many numbers all tensors of a file have. */
int64_t safetensors_numbers(const tl_safetensors *file);

/* tl_safetensors_open and tl_safetensors_save for a file in an open folder. */
tl_safetensors *safetensors_open_at(struct file_place at);
bool safetensors_save_at(struct file_place at, const char *const *names, tl_tensor *const *tensors, int n,
                         const char *const *keys, const char *const *values, int n_metadata);

#endif
