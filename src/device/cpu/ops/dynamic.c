/* dynamic.c: item and nonzero, whose results the host needs. */
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "spec/attr.h"
#include "tensor/convert.h"

#include <stdio.h>

enum { CHUNK = 512 };

bool cpu_item(const tl_kernel_args *args) {
    const struct attr_item *attr = args->attr;
    const tl_operand *x = &args->in[0];
    if (attr->f64) *attr->f64 = convert_get_f64(x->data, x->dtype, 0);
    if (attr->i64) *attr->i64 = convert_get_i64(x->data, x->dtype, 0);
    return true;
}

/* One piece of a row of the last axis: the positions of its nonzero elements, first .. first+n-1, without a branch.
 * The test is in f64, where every nonzero value is nonzero: an int64 never rounds to zero. */
static int64_t find_places(int64_t *place, const char *x, tl_dtype dtype, int64_t stride, int64_t first, int64_t n) {
    double values[CHUNK];
    int64_t found = 0;
    convert_to_f64(values, x, dtype, stride, n);
    for (int64_t i = 0; i < n; i++) {
        place[found] = first + i;
        found += values[i] != 0.0;
    }
    return found;
}

/* Rows of indices: those of the row of x, and each position in it. */
static void write_indices(int64_t *to, const int64_t *outer, int rank, const int64_t *place, int64_t n) {
    for (int64_t i = 0; i < n; i++, to += rank) {
        for (int axis = 0; axis < rank - 1; axis++) to[axis] = outer[axis];
        to[rank - 1] = place[i];
    }
}

bool cpu_nonzero(const tl_kernel_args *args) {
    const struct attr_nonzero *attr = args->attr;
    const tl_operand *x = &args->in[0];
    int64_t *indices = args->out[0].data, found = 0; /* (n, rank) */
    struct iterate walk;
    iterate_begin(&walk, x->rank, x->shape, &x, 1, ITERATE_ROW_MAJOR);
    const int64_t stride = walk.step[0] / iterate_element_bytes(x->dtype);
    const int64_t size = x->rank ? x->shape[x->rank - 1] : 1;
    int64_t outer[TL_MAX_RANK] = {0}, place[CHUNK], in_row = 0;
    struct iterate_run run;
    iterate_seek(&walk, &run, 0, walk.n);
    while (iterate_next(&walk, &run, size - in_row < CHUNK ? size - in_row : CHUNK)) {
        const int64_t n = find_places(place, run.data[0], x->dtype, stride, in_row, run.length);
        if (x->rank > 0 && found + n <= attr->n) write_indices(indices + found * x->rank, outer, x->rank, place, n);
        found += n;
        in_row += run.length;
        if (in_row < size) continue;
        in_row = 0;
        for (int axis = x->rank - 2; axis >= 0 && ++outer[axis] == x->shape[axis]; axis--) outer[axis] = 0;
    }
    if (found != attr->n) {
        snprintf(args->error, 200, "nonzero: %lld elements were counted, %lld are there", (long long)attr->n,
                 (long long)found);
        return false;
    }
    return true;
}
