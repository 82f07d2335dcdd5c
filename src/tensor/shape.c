#include "tensor/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

bool shape_numel(int rank, const int64_t *shape, int64_t *numel) {
    int64_t n = 1;
    bool has_zero = false, fits = true;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) return false;
        if (shape[i] == 0) has_zero = true;
        else fits = fits && size_mul(n, shape[i], &n);
    }
    *numel = has_zero ? 0 : n;
    return fits; /* also for [0, 2^62, 2^62]: strides must be computable */
}

bool shape_equal(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
    if (rank_a != rank_b) return false;
    for (int i = 0; i < rank_a; i++)
        if (a[i] != b[i]) return false;
    return true;
}

void shape_dense_strides(int rank, const int64_t *shape, int64_t *stride) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        if (shape[i] > 1) size_mul(step, shape[i], &step); /* may wrap: callers check numel first */
    }
}

void layout_dense(struct layout *l, tl_dtype dtype, int rank, const int64_t *shape) {
    l->dtype = dtype;
    l->rank = rank;
    l->offset = 0;
    for (int i = 0; i < rank; i++) l->shape[i] = shape[i];
    shape_dense_strides(rank, l->shape, l->stride);
}

bool strides_are_dense(int rank, const int64_t *shape, const int64_t *stride) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (shape[i] == 0) return true;
        if (shape[i] == 1) continue;
        if (stride[i] != step) return false;
        step *= shape[i];
    }
    return true;
}

bool shape_broadcast(int rank_a, const int64_t *a, int rank_b, const int64_t *b, int *rank, int64_t *shape) {
    int larger = rank_a > rank_b ? rank_a : rank_b;
    for (int i = 1; i <= larger; i++) {
        int64_t size_a = i <= rank_a ? a[rank_a - i] : 1, size_b = i <= rank_b ? b[rank_b - i] : 1;
        if (size_a != size_b && size_a != 1 && size_b != 1) return false;
        shape[larger - i] = size_a == 1 ? size_b : size_a;
    }
    *rank = larger;
    return true;
}

bool shape_broadcasts_to(int rank_from, const int64_t *from, int rank_to, const int64_t *to) {
    if (rank_from > rank_to) return false;
    for (int i = 1; i <= rank_from; i++)
        if (from[rank_from - i] != to[rank_to - i] && from[rank_from - i] != 1) return false;
    return true;
}

int shape_clash(int rank_a, const int64_t *a, int rank_b, const int64_t *b, int64_t *size_a, int64_t *size_b) {
    int rank = rank_a > rank_b ? rank_a : rank_b;
    for (int back = 1; back <= rank; back++) {
        *size_a = back <= rank_a ? a[rank_a - back] : 1;
        *size_b = back <= rank_b ? b[rank_b - back] : 1;
        if (*size_a != *size_b && *size_a != 1 && *size_b != 1) return rank - back;
    }
    return -1;
}

int axis_normal(int axis, int rank) {
    if (axis < -rank || axis >= rank) return -1;
    return axis < 0 ? axis + rank : axis;
}

int axis_check(const char *what, int axis, int rank) {
    int at = axis_normal(axis, rank);
    if (at >= 0) return at;
    if (rank == 0) error_set(TL_ERROR_USE, "%s: Dimension specified as %d but tensor has no dimensions", what, axis);
    else
        error_set(TL_ERROR_USE, "%s: Dimension out of range (expected to be in range of [%d, %d], but got %d)", what,
                  -rank, rank - 1, axis);
    return -1;
}

/* The old axes are taken from the end in runs that are contiguous among themselves (stride[i] = stride[i+1] *
 * shape[i+1]). Each run must be cut exactly by new axes. This is PyTorch's rule, so that the same views exist. */
bool strides_for_view(int old_rank, const int64_t *old_shape, const int64_t *old_stride, int rank, const int64_t *shape,
                      int64_t *stride) {
    int64_t numel = 0;
    shape_numel(old_rank, old_shape, &numel);
    if (numel == 0 || old_rank == 0) {
        shape_dense_strides(rank, shape, stride);
        return true;
    }
    int new_axis = rank - 1;
    int64_t run_stride = old_stride[old_rank - 1], run = 1, taken = 1;
    for (int axis = old_rank - 1; axis >= 0; axis--) {
        run *= old_shape[axis];
        bool run_ends = axis == 0 || (old_shape[axis - 1] != 1 && old_stride[axis - 1] != run * run_stride);
        if (!run_ends) continue;
        while (new_axis >= 0 && (taken < run || shape[new_axis] == 1)) {
            stride[new_axis] = taken * run_stride;
            taken *= shape[new_axis--];
        }
        if (taken != run) return false;
        if (axis > 0) {
            run_stride = old_stride[axis - 1];
            run = taken = 1;
        }
    }
    return new_axis == -1;
}

bool strides_span(int rank, const int64_t *shape, const int64_t *stride, int64_t *low, int64_t *high) {
    *low = *high = 0;
    for (int i = 0; i < rank; i++) {
        int64_t reach;
        if (!size_mul(shape[i] - 1, stride[i], &reach)) return false;
        if (!size_add(reach < 0 ? *low : *high, reach, reach < 0 ? low : high)) return false;
    }
    return true;
}

int64_t strides_cover(int rank, const int64_t *shape, const int64_t *stride) {
    int64_t count = 1, low = 0, high = 0;
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0) return 0;
        if (stride[i] != 0) count *= shape[i];
    }
    if (strides_span(rank, shape, stride, &low, &high) && high - low + 1 < count) count = high - low + 1;
    return count;
}

bool strides_overlap(int rank, const int64_t *shape, const int64_t *stride) {
    /* Sort axes by |stride|; no overlap when each stride steps over all that the smaller ones span. */
    int order[TL_MAX_RANK], n = 0;
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0) return false;
        if (shape[i] == 1) continue;
        int at = n++;
        for (; at > 0 && llabs(stride[order[at - 1]]) > llabs(stride[i]); at--) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t reach = 0;
    for (int k = 0; k < n; k++) {
        int64_t step = llabs(stride[order[k]]);
        if (step <= reach) return true;
        reach += step * (shape[order[k]] - 1);
    }
    return false;
}

static void print_sizes(char *buffer, size_t size, int rank, const int64_t *shape, const char *comma) {
    size_t used = (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i ? comma : "", (long long)shape[i]);
    if (used < size) snprintf(buffer + used, size - used, "]");
}

void shape_print(char *buffer, size_t size, int rank, const int64_t *shape) {
    print_sizes(buffer, size, rank, shape, ",");
}

void shape_print_spaced(char *buffer, size_t size, int rank, const int64_t *shape) {
    print_sizes(buffer, size, rank, shape, ", ");
}
