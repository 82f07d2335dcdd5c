/* head_parts.h: the head and the loss where several processes share the vocabulary. */
#ifndef NN_HEAD_PARTS_H
#define NN_HEAD_PARTS_H

#include "tally.h"

/* The classes that this process has: from .. to - 1 of `size`. */
struct class_part {
    tl_comm *group;
    int64_t from, to, size;
};

/* Which ids (...) are of other parts: bool (...). Ids that are in no part are not. */
tl_tensor *ids_elsewhere(const struct class_part *part, tl_tensor *ids);
/* Ids counted from the part's beginning; `other` for those elsewhere. */
tl_tensor *ids_local(const struct class_part *part, tl_tensor *ids, tl_tensor *is_elsewhere, int64_t other);

/* How many targets (N) are not ignored: () f32. */
tl_tensor *targets_count(tl_tensor *targets, int64_t ignore_index);

/* tl_linear_cross_entropy where weight (V_part,C) is this process's part and x and targets are the same on all: the
 * sum over rows (whatever is_sum says), times share / total_rows, where total_rows () f32 is the number of rows that
 * the mean is of. The loss is the same on all ranks, the gradient of weight is that of the part, and that of x this
 * part's share of it. */
tl_tensor *linear_cross_entropy_parts(tl_tensor *x, tl_tensor *weight, tl_tensor *targets,
                                      const tl_linear_cross_entropy_options *options, const struct class_part *part,
                                      tl_tensor *total_rows, double share);

#endif
