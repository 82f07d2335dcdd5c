/* shape.h: layouts: which elements of a storage a tensor shows, and in what order. No storage is touched here.
 *
 *   element (i0, i1, ...) of a layout is element  offset + i0*stride[0] + i1*stride[1] + ...  of the storage
 */
#ifndef TENSOR_SHAPE_H
#define TENSOR_SHAPE_H

#include "tally.h"

struct layout {
    tl_dtype dtype;
    int rank;
    int64_t offset;
    int64_t shape[TL_MAX_RANK];
    int64_t stride[TL_MAX_RANK];
};

/* Product of sizes; false on a negative size or overflow. */
bool shape_numel(int rank, const int64_t *shape, int64_t *numel);
bool shape_equal(int rank_a, const int64_t *a, int rank_b, const int64_t *b);

/* Row-major strides. An axis of size 1 or 0 gets the stride it would have anyway. */
void shape_dense_strides(int rank, const int64_t *shape, int64_t *stride);
void layout_dense(struct layout *l, tl_dtype dtype, int rank, const int64_t *shape);
bool strides_are_dense(int rank, const int64_t *shape, const int64_t *stride);

/* The shape both operands broadcast to; false when they do not. */
bool shape_broadcast(int rank_a, const int64_t *a, int rank_b, const int64_t *b, int *rank, int64_t *shape);
/* Whether `from` broadcasts to exactly `to`. */
bool shape_broadcasts_to(int rank_from, const int64_t *from, int rank_to, const int64_t *to);

/* Why they do not broadcast: the last axis (of the longer shape) where they clash, and both sizes there. */
int shape_clash(int rank_a, const int64_t *a, int rank_b, const int64_t *b, int64_t *size_a, int64_t *size_b);

/* Axis counted from the end when negative; -1 when out of range. */
int axis_normal(int axis, int rank);
/* The same, with an error where there is no such axis. */
int axis_check(const char *what, int axis, int rank);

/* Strides that show `shape` on the elements of (old_shape, old_stride) without a copy; false when there are none.
 * Both shapes have the same numel. */
bool strides_for_view(int old_rank, const int64_t *old_shape, const int64_t *old_stride, int rank, const int64_t *shape,
                      int64_t *stride);

/* The lowest and highest storage element reached (relative to offset 0). numel must not be 0. False on overflow. */
bool strides_span(int rank, const int64_t *shape, const int64_t *stride, int64_t *low, int64_t *high);

/* How many distinct elements a layout covers, as the accounting rule has it: axes with stride 0 count once, and
 * never more than the span. */
int64_t strides_cover(int rank, const int64_t *shape, const int64_t *stride);

/* True when two index tuples may reach the same element. Exact for layouts made by view ops; a layout of
 * as_strided may be called overlapping when it is not. */
bool strides_overlap(int rank, const int64_t *shape, const int64_t *stride);

/* "[2,3]", and "[2, 3]" as PyTorch's messages have it. */
void shape_print(char *buffer, size_t size, int rank, const int64_t *shape);
void shape_print_spaced(char *buffer, size_t size, int rank, const int64_t *shape);
#define SHAPE_TEXT (TL_MAX_RANK * 22 + 3) /* bytes that hold any shape's text */

#endif
