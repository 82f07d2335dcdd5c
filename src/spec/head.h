/* head.h: how the rules of devices cut linear_cross_entropy into chunks of rows. */
#ifndef SPEC_HEAD_H
#define SPEC_HEAD_H

#include <stdint.h>

/* As few chunks as fit into `wanted` bytes, all of one size, unless one row is larger. Products like even sizes:
 * from 64 rows on a chunk has a multiple of 16, from 1024 on a multiple of `even`. */
static inline int64_t head_chunk_rows(int64_t n_rows, int64_t row_bytes, int64_t wanted, int64_t even) {
    int64_t most = row_bytes && row_bytes < wanted ? wanted / row_bytes : 1;
    if (most >= n_rows) return n_rows > 0 ? n_rows : 1;
    if (most < 1024) even = most >= 64 ? 16 : 1;
    most = most / even * even;
    int64_t n_chunks = (n_rows - 1) / most + 1;
    return ((n_rows - 1) / n_chunks / even + 1) * even;
}

#endif
