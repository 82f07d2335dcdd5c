/* mlp.c: the ops of an MLP, one part after the other. Models on the cpu use the parts themselves: here nothing is
 * gained by joining them. */
#include "base/memory.h"
#include "device/cpu/ops/matmul.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "spec/attr.h"

/* Rows (n,width) of a stack, or of a dense array. */
struct rows {
    int64_t shape[2], stride[2];
    tl_operand operand;
};
static tl_operand *rows_of(struct rows *r, void *data, tl_dtype dtype, int64_t n, int64_t width) {
    *r = (struct rows){.shape = {n, width}, .stride = {width, 1}};
    r->operand = (tl_operand){data, dtype, 2, r->shape, r->stride};
    return &r->operand;
}
static int64_t row_count(const tl_operand *x) {
    int64_t n = 1;
    for (int i = 0; i < x->rank - 1; i++) n *= x->shape[i];
    return n;
}
static int64_t row_width(const tl_operand *x) { return x->shape[x->rank - 1]; }
static tl_operand *stack(struct rows *r, const tl_operand *x) {
    return rows_of(r, x->data, x->dtype, row_count(x), row_width(x));
}

/* out = op(a, b [, c]) [, out2] by another kernel. */
static bool apply(const tl_kernel_args *args, tl_kernel kernel, const tl_operand *out, int n_out, const tl_operand *in,
                  int n_in, const void *attr, size_t attr_bytes) {
    tl_kernel_args part = *args;
    part.in = in;
    part.n_in = n_in;
    part.out = out;
    part.n_out = n_out;
    part.attr = attr;
    part.attr_bytes = attr_bytes;
    part.workspace = NULL;
    part.workspace_bytes = 0;
    return kernel(&part);
}

static void multiply(const tl_kernel_args *args, const tl_operand *out, const tl_operand *a, const tl_operand *b,
                     bool transpose_b) {
    const struct attr_mlp *attr = args->attr;
    matmul_multiply(out, a, false, b, transpose_b, false, attr->is_fast, args->workspace, args->n_threads);
}

static bool bias_add(const tl_kernel_args *args, const tl_operand *rows, const tl_operand *bias) {
    const int64_t repeated[2] = {0, 1};
    const tl_operand in[2] = {*rows, {bias->data, bias->dtype, 2, rows->shape, repeated}};
    return apply(args, cpu_add, rows, 1, in, 2, NULL, 0);
}

/* y, or its gradient, behind what the products need. */
static void *room_for(const tl_kernel_args *args, int64_t n, tl_dtype dtype) {
    const size_t bytes = (size_t)round_up((uint64_t)(n * (dtype_info(dtype)->bits / 8)), 64);
    return (char *)args->workspace + (args->workspace_bytes - bytes);
}

bool cpu_gelu_mlp(const tl_kernel_args *args) {
    enum { X, DOWN, UP, UP_BIAS, DOWN_BIAS };
    struct rows of_x, of_out, of_h, of_y;
    const tl_operand *x = stack(&of_x, &args->in[X]), *out = stack(&of_out, &args->out[0]);
    const int64_t n = x->shape[0], F = args->in[UP].shape[0];
    const tl_dtype dtype = x->dtype;
    const bool keeps = args->n_out > 1, has_biases = args->n_in > UP_BIAS;
    if (n == 0) return true;
    const tl_operand *y = rows_of(&of_y, keeps ? args->out[1].data : room_for(args, n * F, dtype), dtype, n, F);
    const tl_operand *h = rows_of(&of_h, keeps ? args->out[2].data : y->data, dtype, n, F);
    multiply(args, h, x, &args->in[UP], true);
    if (has_biases && !bias_add(args, h, &args->in[UP_BIAS])) return false;
    if (!apply(args, cpu_gelu, y, 1, h, 1, NULL, 0)) return false;
    multiply(args, out, y, &args->in[DOWN], true);
    return !has_biases || bias_add(args, out, &args->in[DOWN_BIAS]);
}

bool cpu_swiglu_mlp(const tl_kernel_args *args) {
    enum { X, DOWN, UP, GATE };
    struct rows of_x, of_out, of_part[3];
    const tl_operand *x = stack(&of_x, &args->in[X]), *out = stack(&of_out, &args->out[0]);
    const int64_t n = x->shape[0], F = args->in[UP].shape[0];
    const tl_dtype dtype = x->dtype;
    const bool keeps = args->n_out > 1;
    if (n == 0) return true;
    /* y, u and z; if none is kept, y takes z's place, and u is the room behind it */
    void *const room = keeps ? NULL : room_for(args, 2 * n * F, dtype);
    const tl_operand *y = rows_of(&of_part[0], keeps ? args->out[1].data : room, dtype, n, F);
    const tl_operand *u = rows_of(&of_part[1], keeps ? args->out[2].data : block_at(room, dtype, n * F), dtype, n, F);
    const tl_operand *z = rows_of(&of_part[2], keeps ? args->out[3].data : room, dtype, n, F);
    multiply(args, u, x, &args->in[UP], true);
    multiply(args, z, x, &args->in[GATE], true);
    const tl_operand in[2] = {*z, *u};
    if (!apply(args, cpu_swiglu, y, 1, in, 2, NULL, 0)) return false;
    multiply(args, out, y, &args->in[DOWN], true);
    return true;
}

bool cpu_gelu_mlp_grad(const tl_kernel_args *args) {
    enum { G, DOWN, H };
    struct rows of_g, of_h, of_dy;
    const tl_operand *g = stack(&of_g, &args->in[G]), *h = stack(&of_h, &args->in[H]);
    const int64_t n = h->shape[0], F = h->shape[1];
    if (n > 0 && F > 0) {
        const tl_operand *dy = rows_of(&of_dy, room_for(args, n * F, h->dtype), h->dtype, n, F);
        multiply(args, dy, g, &args->in[DOWN], false);
        const tl_operand in[2] = {*h, *dy};
        if (!apply(args, cpu_gelu_grad, h, 1, in, 2, NULL, 0)) return false;
    }
    if (args->n_out == 1) return true;
    const struct attr_reduce over = {.axes = 1, .is_wide = true};
    return apply(args, cpu_sum, &args->out[1], 1, h, 1, &over, sizeof over);
}

bool cpu_swiglu_mlp_grad(const tl_kernel_args *args) {
    enum { G, DOWN, U, Z };
    struct rows of_g, of_u, of_z, of_dy;
    const tl_operand *g = stack(&of_g, &args->in[G]), *u = stack(&of_u, &args->in[U]), *z = stack(&of_z, &args->in[Z]);
    const int64_t n = u->shape[0], F = u->shape[1];
    if (n == 0 || F == 0) return true;
    const tl_operand *dy = rows_of(&of_dy, room_for(args, n * F, u->dtype), u->dtype, n, F);
    multiply(args, dy, g, &args->in[DOWN], false);
    const tl_operand in[3] = {*z, *u, *dy}, out[2] = {*z, *u};
    return apply(args, cpu_swiglu_grad, out, 2, in, 3, NULL, 0);
}
