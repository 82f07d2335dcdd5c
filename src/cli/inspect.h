/* inspect.h: what `tally inspect` looks at: the tensors of one file or of several, whatever their format. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include <jansson.h>

#include "tally.h"

struct inspect_file {
    char *path;
    const char *name;            /* the last part of the path */
    tl_safetensors *safetensors; /* one of these two */
    tl_gguf *gguf;
};

/* A tensor. Text is valid as long as its file is open. */
struct inspect_row {
    const struct inspect_file *file;
    const char *name, *type;
    tl_dtype dtype; /* TL_DTYPE_COUNT: can only be listed */
    int rank;
    const int64_t *shape;
    uint64_t begin, bytes, elements;
};

struct inspected {
    const char *kind; /* "safetensors", "gguf", "checkpoint", "model" */
    int64_t step;     /* of a checkpoint, whose checksums have been compared; -1: none */
    bool has_config;  /* the folder has a config.json that is known */
    tl_model_config config;
    struct inspect_file *files;
    size_t n_files, file_capacity;
    struct inspect_row *rows;
    size_t n_rows, row_capacity;
};

/* Opens a file or folder. False: recorded, and nothing is open. */
bool inspected_open(struct inspected *all, const char *path);
void inspected_close(struct inspected *all);

/* What the data of a tensor is. Zeros if it has no elements. */
struct inspect_check {
    bool is_read; /* false: its type can only be listed */
    uint64_t n_nan, n_infinite;
    double least, most, mean_magnitude; /* of the finite ones */
};
bool inspect_check(const struct inspect_row *row, struct inspect_check *check);

/* Sums by key, sorted by it. Keys are types, or the modules that a name is in: each prefix of its path, with numbers as
 * "*", so that blocks are one. */
struct inspect_total {
    char *key;
    uint64_t tensors, elements, bytes;
};
struct inspect_totals {
    struct inspect_total *at;
    size_t n, capacity;
};
bool inspect_by_type(const struct inspected *all, struct inspect_totals *totals);
bool inspect_by_module(const struct inspected *all, struct inspect_totals *totals);
void inspect_totals_free(struct inspect_totals *totals);

#endif
