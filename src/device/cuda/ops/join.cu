/* join.cu: concat and pad: copies into windows of the output. */
#include "device/cuda/ops/copy.cuh"

/* The window of `out` at an offset in elements, with x's shape. */
static bool copy_into(const tl_kernel_args *args, int64_t offset, const tl_operand *x) {
    tl_operand window = args->out[0];
    window.shape = x->shape;
    window.data = (char *)window.data + offset * dtype_bytes(window.dtype);
    return copy_operand(args, &window, x);
}

extern "C" {

bool cuda_concat(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const int axis = ((const struct attr_concat *)args->attr)->axis;
    int64_t at = 0;
    for (int i = 0; i < args->n_in; i++) {
        const tl_operand *x = &args->in[i];
        if (operand_numel(x) == 0) continue;
        if (!copy_into(args, at * args->out[0].stride[axis], x)) return false;
        at += x->shape[axis];
    }
    return true;
}

bool cuda_pad(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const struct attr_pad *attr = (const struct attr_pad *)args->attr;
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    int64_t offset = 0;
    bool is_padded = false;
    for (int axis = 0; axis < out->rank; axis++) {
        offset += attr->before[axis] * out->stride[axis];
        is_padded = is_padded || attr->before[axis] || attr->after[axis];
    }
    if (is_padded && !fill_operand(args, out, attr->value)) return false;
    return operand_numel(x) == 0 || copy_into(args, offset, x);
}

} /* extern "C" */
