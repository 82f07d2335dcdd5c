/* copy_tiles.h: copies that permute axes. See copy_tiles.c. */
#ifndef TALLY_DEVICE_CPU_COPY_TILES_H
#define TALLY_DEVICE_CPU_COPY_TILES_H

#include "device/cpu/shared/iterate.h"

/* Copies a walk over (out, in) whose operands are contiguous along different axes. Does nothing and returns false if
 * tiles do not help: rows are long anyway, or too short, or one of the two has gaps everywhere. */
bool copy_tiles(const struct iterate *walk, tl_dtype out_dtype, tl_dtype in_dtype, int n_threads);

#endif
