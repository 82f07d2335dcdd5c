/* copy.h: copies and fills of whole operands, for kernels that need them as a part. */
#ifndef TALLY_DEVICE_CPU_COPY_H
#define TALLY_DEVICE_CPU_COPY_H

#include "tally.h"

/* out = in, broadcast to out's shape and converted to its dtype. f4 operands must be dense and of one shape. */
void copy_operand(const tl_operand *out, const tl_operand *in, int n_threads);

/* Every element of out = value, rounded once. */
void copy_fill(const tl_operand *out, double value, int n_threads);

#endif
