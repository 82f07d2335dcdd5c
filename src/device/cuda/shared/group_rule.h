/* group_rule.h: rows that are grouped by the place that they have in a table (row_groups.cuh). The workspace rules
 * (device/cuda/rules.c) and the kernels both read this. */
#ifndef DEVICE_CUDA_GROUP_RULE_H
#define DEVICE_CUDA_GROUP_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* The ends of groups, and the numbers of rows. */
static inline uint64_t group_bytes(int64_t n, int64_t size) { return (uint64_t)(size + 1 + n) * sizeof(int32_t); }

/* index_put: whether n rows that are added to a table of so many are worth it. Grouping takes five launches more than
 * looking at all rows wherever some are added, which takes as long as one for each 4,096 rows. Long groups are few,
 * and their rows are added one after the other in any case. */
#define GROUP_LEAST 20480
#define GROUP_LONG 64 /* rows of a place, on average */
static inline bool rows_are_grouped(int64_t n, int64_t size) {
    return n >= GROUP_LEAST && n <= INT32_MAX && size < INT32_MAX && n / GROUP_LONG <= size;
}

#endif
