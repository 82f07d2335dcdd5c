/* join.c: concat and pad: copies into windows of the output. */
#include "device/cpu/ops/copy.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "spec/attr.h"

/* The window of `out` at an offset in elements, with x's shape. */
static void copy_into(const tl_operand *out, int64_t offset, const tl_operand *x, int n_threads) {
    tl_operand window = *out;
    window.shape = x->shape;
    window.data = (char *)out->data + offset * iterate_element_bytes(out->dtype);
    copy_operand(&window, x, n_threads);
}

bool cpu_concat(const tl_kernel_args *args) {
    const struct attr_concat *attr = args->attr;
    const tl_operand *out = &args->out[0];
    int64_t at = 0;
    for (int i = 0; i < args->n_in; i++) {
        const tl_operand *x = &args->in[i];
        if (iterate_numel(x) == 0) continue;
        copy_into(out, at * out->stride[attr->axis], x, args->n_threads);
        at += x->shape[attr->axis];
    }
    return true;
}

bool cpu_pad(const tl_kernel_args *args) {
    const struct attr_pad *attr = args->attr;
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    int64_t offset = 0;
    bool is_padded = false;
    for (int axis = 0; axis < out->rank; axis++) {
        offset += attr->before[axis] * out->stride[axis];
        is_padded |= attr->before[axis] || attr->after[axis];
    }
    if (is_padded) copy_fill(out, attr->value, args->n_threads);
    if (iterate_numel(x) > 0) copy_into(out, offset, x, args->n_threads);
    return true;
}
