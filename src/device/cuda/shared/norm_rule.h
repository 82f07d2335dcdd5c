/* norm_rule.h: how the gradient of a norm cuts rows that no team of threads keeps in registers (norm.cu). */
#ifndef DEVICE_CUDA_NORM_RULE_H
#define DEVICE_CUDA_NORM_RULE_H

#include <stdint.h>

#define NORM_SUM_WARPS 4224 /* that sum rows at once: 32 for each multiprocessor of the largest Hopper */
#define NORM_PART 1024      /* the fewest elements of a part */
#define NORM_PARTS 256      /* the most parts of a row */

/* Parts of a row whose sums are taken apart: enough of them to occupy the device. The workspace has two sums for each
 * part of each row. */
static inline int64_t norm_parts(int64_t n_rows, int64_t n) {
    if (n_rows == 0 || n == 0) return 0;
    int64_t parts = NORM_SUM_WARPS / n_rows;
    if (parts > n / NORM_PART) parts = n / NORM_PART;
    if (parts > NORM_PARTS) parts = NORM_PARTS;
    return parts > 1 ? parts : 1;
}

#endif
