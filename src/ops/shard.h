/* shard.h: parts of parameters that several processes share (tl_shard), made of other ops. */
#ifndef OPS_SHARD_H
#define OPS_SHARD_H

#include "tally.h"

/* Elements `from` to `to` - 1 of `size` belong to part `index` of n; parts differ by one element at most, and the first
 * ones are the longer ones. */
void shard_range(int64_t size, int n, int index, int64_t *from, int64_t *to);
/* The shape of the whole. */
void shard_whole_shape(const tl_shard *shard, const tl_tensor *part, int64_t shape[TL_MAX_RANK]);
/* The part of a whole parameter that this process holds: a view, where the axis has one block. */
tl_tensor *shard_cut(const tl_shard *shard, tl_tensor *whole);
/* The whole of a dense tensor that is divided as a parameter is, from the parts of all ranks of its group, which all
 * call it: the same bits on each. It has no gradient. Without a shard: the part itself. */
tl_tensor *shard_gather(const tl_shard *shard, tl_tensor *part);

#endif
