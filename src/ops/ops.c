/* ops.c: the table of records, and what their rules share. */
#include "ops/ops.h"

const tl_op *const op_table[OP_COUNT] = {
#define OP(kind, name) &op_##name,
#include "ops/op_list.h"
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

bool call_needs_float(const tl_call *c, int i) {
    tl_dtype dtype = c->input[i]->dtype;
    return (dtype_is_float(dtype) && !dtype_info(dtype)->is_storage_only) ||
           call_fail(c, "not implemented for %s (need a floating point dtype)", dtype_info(dtype)->torch_name);
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

tl_device *tl_default_device(tl_device *device) {
    tl_device *before = device_or_default(NULL);
    if (device) thread_state()->device = device;
    return before;
}

const char *tl_version(void) { return TL_VERSION; }
const char *tl_dtype_name(tl_dtype dtype) { return dtype_info(dtype) ? dtype_info(dtype)->name : "?"; }
int tl_dtype_bits(tl_dtype dtype) { return dtype_info(dtype) ? dtype_info(dtype)->bits : 0; }
