/* ops.c: the table of records, and helpers of their rules. */
#include "ops/ops.h"

const tl_op *const op_table[OP_COUNT] = {
#define OP(kind, name) &op_##name,
#include "spec/op_list.h"
#undef OP
};

bool call_output(tl_call *c, int j, tl_dtype dtype, int rank, const int64_t *shape) {
    layout_dense(&c->out[j], dtype, rank, shape);
    return true;
}

bool call_output_like(tl_call *c, int j, int i) {
    const tl_tensor *x = c->input[i];
    return call_output(c, j, x->dtype, x->rank, x->shape);
}

bool call_fail_clash(const tl_call *c, int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
    int64_t size_a = 0, size_b = 0;
    int axis = shape_clash(rank_a, a, rank_b, b, &size_a, &size_b);
    return call_fail(c,
                     "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
                     (long long)size_a, (long long)size_b, axis);
}

bool call_fail_larger(const tl_call *c, const tl_tensor *x, int rank, const int64_t *shape) {
    char own[SHAPE_TEXT], wanted[SHAPE_TEXT];
    shape_print_spaced(own, sizeof own, x->rank, x->shape);
    shape_print_spaced(wanted, sizeof wanted, rank, shape);
    return call_fail(c, "output with shape %s doesn't match the broadcast shape %s", own, wanted);
}

bool call_needs_float(const tl_call *c, int i) {
    tl_dtype dtype = c->input[i]->dtype;
    return (dtype_is_float(dtype) && !dtype_info(dtype)->is_storage_only) ||
           call_fail_need(c, "not implemented for %s", "a floating point dtype", dtype_info(dtype)->torch_name);
}

bool call_needs_index(const tl_call *c, int i) {
    tl_dtype dtype = c->input[i]->dtype;
    return dtype == TL_I64 || dtype == TL_I32 ||
           call_fail(c, "ids must be i64 or i32, not %s", dtype_info(dtype)->name);
}

tl_device *device_or_default(tl_device *device) {
    if (device) return device;
    struct thread_state *s = thread_state();
    if (!s->device) s->device = tl_device_find("cpu");
    return s->device;
}

tl_device *tl_set_default_device(tl_device *device) {
    tl_device *before = device_or_default(NULL);
    if (device) thread_state()->device = device;
    return before;
}

tl_tensor *with_dense_rows(tl_tensor *x) {
    return x && x->rank && x->stride[x->rank - 1] != 1 && x->shape[x->rank - 1] > 1 ? tl_clone(x) : x;
}

const char *tl_version(void) { return TL_VERSION; }
