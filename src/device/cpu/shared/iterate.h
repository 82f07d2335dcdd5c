/* iterate.h: walking operands of any strides together.
 *
 * A walk brings up to ITERATE_OPERANDS operands to one shape (stride 0 where one is broadcast) and simplifies it:
 * axes of size 1 are dropped, axes that are one axis in every operand are joined, and, where the caller allows it,
 * axes are sorted so that the first operand's smallest stride is innermost. The result is a flat range of positions 0
 * .. n-1, row-major over the remaining axes; any part of it can be walked on its own, as *runs*: one address per
 * operand, and steps of a constant number of bytes.
 *
 *      struct iterate walk;
 *      iterate_begin(&walk, out->rank, out->shape, (const tl_operand *[]){out, a, b}, 3, ITERATE_ANY_ORDER);
 *      struct iterate_run run;
 *      iterate_seek(&walk, &run, first, last);
 *      while (iterate_next(&walk, &run, 512))
 *          ... run.length elements at run.data[i], walk.step[i] bytes apart ...
 *
 * Element sizes are whole bytes here: f4 tensors are dense and never walked.
 */
#ifndef TALLY_DEVICE_CPU_ITERATE_H
#define TALLY_DEVICE_CPU_ITERATE_H

#include "tally.h"

#define ITERATE_OPERANDS 6

/* Row-major keeps the positions' order (for kernels whose result depends on it); any order may sort axes. */
enum iterate_order { ITERATE_ROW_MAJOR, ITERATE_ANY_ORDER };

struct iterate {
    int n_operands;
    int rank;  /* after simplification; at least 1 */
    int64_t n; /* positions in all */
    int64_t size[TL_MAX_RANK];
    int64_t stride[ITERATE_OPERANDS][TL_MAX_RANK]; /* in bytes */
    int64_t step[ITERATE_OPERANDS];                /* the innermost stride, in bytes */
    char *data[ITERATE_OPERANDS];
};

struct iterate_run {
    char *data[ITERATE_OPERANDS];
    int64_t length;
    int64_t position; /* of the run's first element */
    /* Private: where the next run begins. */
    int64_t next, last;
    int64_t index[TL_MAX_RANK];
    char *at[ITERATE_OPERANDS];
};

/* Prepares a walk over `shape`. Each operand lines up with it at the end; missing axes and axes of size 1 repeat. */
void iterate_begin(struct iterate *walk, int rank, const int64_t *shape, const tl_operand *const *operands,
                   int n_operands, enum iterate_order order);

/* Swaps two axes; the innermost must stay. */
void iterate_swap(struct iterate *walk, int a, int b);

/* Starts a part, positions first .. last-1. */
void iterate_seek(const struct iterate *walk, struct iterate_run *run, int64_t first, int64_t last);

/* The next run, at most max_length long; false when the part is done. */
bool iterate_next(const struct iterate *walk, struct iterate_run *run, int64_t max_length);

/* After a run that is a whole row: how many whole rows follow it along the next axis, each that axis's stride behind
 * the one before; the walk continues after them. For loops in which a call per row would cost too much. */
int64_t iterate_rows(const struct iterate *walk, struct iterate_run *run);

/* Bytes of one element; 0 for f4, which has half of one. */
int64_t iterate_element_bytes(tl_dtype dtype);

/* True when the operand is row-major without gaps (and so one run of stride 1). */
bool iterate_is_dense(const tl_operand *operand);

/* Elements of an operand. */
int64_t iterate_numel(const tl_operand *operand);

#endif
