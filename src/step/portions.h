/* portions.h: what a rank has of a bucket's vector (buckets.h), by parameter, for checkpoints, which know no
 * buckets. */
#ifndef STEP_PORTIONS_H
#define STEP_PORTIONS_H

#include "step/buckets.h"
#include "tally.h"

enum { PORTIONS_FILE = 64 };

struct portions {
    tl_named_tensor
        *at; /* "exp_avg.NAME" of a whole parameter, in its shape; "exp_avg.NAME@8:24" of a part, a vector */
    const tl_tensor **of; /* the parameter that each is of, or is like */
    size_t n, capacity, of_capacity;
};

/* The file of one of n ranks that write: "stem.safetensors", or "stem-00002-of-00004.safetensors" if there are more. */
void portions_file(char file[PORTIONS_FILE], const char *stem, int index, int n);
/* Adds views of `own`, this rank's part of a vector like the bucket's, under PREFIX and the names of its parameters.
 * False: recorded. */
bool portions_add(struct portions *p, const char *prefix, size_t prefix_length, const struct bucket *k, tl_tensor *own,
                  const char *(*name_of)(const void *context, const tl_tensor *parameter), const void *context);
/* The same for the whole vector, on the first rank of the buckets' group alone and on the host, from the parts of all
 * its ranks, which all call it. Outside of ledgers. */
bool portions_collect(struct portions *p, const char *prefix, size_t prefix_length, const struct bucket *k,
                      tl_tensor *own, const char *(*name_of)(const void *context, const tl_tensor *parameter),
                      const void *context);
void portions_free(struct portions *p);

#endif
