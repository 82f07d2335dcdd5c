/* dynamic.c: answers that depend on data. */
#include "device/cpu/iterate.h"
#include "device/cpu/kernels.h"
#include "ops/attr.h"
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

/* The indices of position `position` of a row-major walk over x's shape. */
static void write_indices(int64_t *indices, const tl_operand *x, int64_t position) {
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        indices[axis] = position % x->shape[axis];
        position /= x->shape[axis];
    }
}

/* Any dtype is nonzero in f64 exactly when it is nonzero: an int64 never rounds to zero. */
bool cpu_nonzero(const tl_kernel_args *args) {
    const struct attr_nonzero *attr = args->attr;
    const tl_operand *x = &args->in[0];
    int64_t *indices = args->out[0].data; /* (n, rank) */
    struct iterate walk;
    iterate_begin(&walk, x->rank, x->shape, &x, 1, ITERATE_ROW_MAJOR);
    const int64_t stride = walk.step[0] / iterate_element_bytes(x->dtype);

    int64_t found = 0;
    double values[CHUNK];
    struct iterate_run run;
    iterate_seek(&walk, &run, 0, walk.n);
    while (iterate_next(&walk, &run, CHUNK)) {
        convert_to_f64(values, run.data[0], x->dtype, stride, run.length);
        for (int64_t i = 0; i < run.length; i++) {
            if (values[i] == 0.0) continue;
            if (found < attr->n) write_indices(indices + found * x->rank, x, run.position + i);
            found++;
        }
    }
    if (found != attr->n) {
        snprintf(args->error, 200, "nonzero: %lld elements were counted, %lld are there", (long long)attr->n,
                 (long long)found);
        return false;
    }
    return true;
}
