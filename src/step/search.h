/* search.h: the largest size that fits, by trying sizes until one fits and the next does not.
 *
 * The bytes that the pool reserves are no smooth function of a size: segments are rounded, blocks leave gaps. But the
 * bytes that a run requests at its peak are monotone in every size that is searched, and never exceed those reserved.
 * So the search looks for a size that fits while the next one does not, and then tries every size further up until
 * the requests alone are too many: from there on nothing can fit. That they are monotone is checked on all sizes that
 * were tried. */
#ifndef STEP_SEARCH_H
#define STEP_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

struct search_point {
    int64_t size;
    bool fits;
    bool is_final;               /* fails for a reason other than memory: no larger size can fit */
    uint64_t bytes, block_bytes; /* reserved, and requested at the peak */
};

struct search_question {
    int64_t first, unit, most; /* where to begin; sizes are multiples of unit, up to most */
    int n_above;               /* sizes above the best that are tried one by one */
    uint64_t limit_bytes;      /* 0: not known */
    /* Prices one size. False: recorded, and the search ends. */
    bool (*look)(void *context, int64_t size, struct search_point *point);
    /* Only whether a size fits, which takes less time: bytes and block_bytes may be left 0. NULL: there is only
     * look. */
    bool (*fits)(void *context, int64_t size, struct search_point *point);
    void *context;
};

struct search_answer {
    struct search_point best, next; /* size 0: no size fits; no size is too large */
    int n_priced;
    bool is_proven;   /* no size above `best` fits */
    bool is_monotone; /* requests did not shrink with size in any pair that was tried */
};

enum { SEARCH_MOST = 200 };                                                         /* sizes that are tried */
bool search_largest(const struct search_question *q, struct search_answer *answer); /* false: recorded */

#endif
