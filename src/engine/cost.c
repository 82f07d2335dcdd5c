/* cost.c: the shared cost rules, and the short forms of op_apply. */
#include "engine/apply.h"

count tensor_traffic(const tl_tensor *x) {
    int64_t covered = x->is_dense ? x->numel : strides_cover(x->rank, x->shape, x->stride);
    return (uint64_t)covered * (uint64_t)dtype_info(x->dtype)->bits / 8; /* no more than the storage has */
}

void cost_free(const tl_call *c, struct cost *cost) {
    (void)c;
    *cost = (struct cost){.n_parts = 1, .part[0].phase = COST_HERE};
}

/* Whether an input before it is the same view. */
static bool is_repeated(const tl_call *c, int i) {
    for (int k = 0; k < i; k++)
        if (tensor_same_view(c->input[k], c->input[i])) return true;
    return false;
}

void cost_traffic(const tl_call *c, struct cost *cost, count flops) {
    uint64_t read = 0, written = 0;
    for (int i = 0; i < c->n_inputs; i++)
        if (!is_repeated(c, i)) read += (uint64_t)tensor_traffic(c->input[i]);
    for (int j = 0; j < c->n_outputs; j++) written += (uint64_t)tensor_traffic(c->output[j]);
    for (int i = 0; i < c->n_inputs && c->op->changes; i++)
        if (c->op->changes(c, i)) written += (uint64_t)tensor_traffic(c->input[i]);
    cost->n_parts = 1; /* the other parts are private */
    cost->part[0] = (struct cost_part){COST_HERE, flops, read, written};
    cost->transfer_bytes = cost->sent_bytes = 0;
}

tl_tensor *op_apply1(const tl_op *op, tl_tensor *a, const void *attr, size_t attr_bytes) {
    tl_call c;
    call_begin(&c, op, &a, 1, attr, attr_bytes);
    return op_apply(&c);
}

tl_tensor *op_apply2(const tl_op *op, tl_tensor *a, tl_tensor *b, const void *attr, size_t attr_bytes) {
    tl_tensor *input[2] = {a, b};
    tl_call c;
    call_begin(&c, op, input, 2, attr, attr_bytes);
    return op_apply(&c);
}

tl_tensor *op_apply_in_place(const tl_op *op, tl_tensor **input, int n_inputs, const void *attr, size_t attr_bytes) {
    tl_call c;
    call_begin(&c, op, input, n_inputs, attr, attr_bytes);
    c.in_place = true;
    return op_apply(&c);
}
