/* blocks.c: products with a frozen weight that stays in its block-scaled format (tensor/format.h). */
#include <string.h>

#include "ops/ops.h"
#include "tensor/format.h"

enum { X, VALUES, SCALES, TENSOR_SCALE, BIAS };

/* Of the weight W (n,k). */
struct sizes {
    int64_t n, k;
};
static struct sizes sizes_of(const tl_call *c) {
    const struct attr_matmul_blocks *at = c->attr;
    const tl_tensor *values = c->input[VALUES];
    return (struct sizes){values->shape[0], values->shape[1] * (format_info(at->format)->has_codes ? 2 : 1)};
}

/* The weight's parts have the dtypes of its format, and fit each other. */
static bool weight_fits(const tl_call *c) {
    const struct attr_matmul_blocks *at = c->attr;
    const struct format_info *format = format_info(at->format);
    const tl_tensor *values = c->input[VALUES], *scales = c->input[SCALES], *whole = c->input[TENSOR_SCALE];
    if (values->dtype != format->values || scales->dtype != format->scales)
        return call_fail(c, "%s has %s values and %s scales", format->name, tl_dtype_name(format->values),
                         tl_dtype_name(format->scales));
    if (values->rank != 2 || scales->rank != 2 || !tl_is_contiguous(values) || !tl_is_contiguous(scales))
        return call_fail(c, "the weight must be a dense matrix");
    const struct sizes s = sizes_of(c);
    if (s.k % format->block || scales->shape[0] != s.n || scales->shape[1] != s.k / format->block)
        return call_fail(c, "one scale per %d values of the last axis", format->block);
    return !format->has_tensor_scale || (whole->dtype == TL_F32 && whole->numel == 1) ||
           call_fail(c, "the tensor's scale must be an f32 scalar");
}

static bool matmul_blocks_shape(tl_call *c) {
    const struct attr_matmul_blocks *at = c->attr;
    const tl_tensor *x = c->input[X], *bias = c->n_inputs > BIAS ? c->input[BIAS] : NULL;
    int64_t shape[TL_MAX_RANK];
    if (x->dtype != TL_F32 && x->dtype != TL_F16 && x->dtype != TL_BF16)
        return call_fail_need(c, "not implemented for %s", "f32, f16 or bf16", dtype_info(x->dtype)->torch_name);
    if (!weight_fits(c)) return false;
    const struct sizes s = sizes_of(c);
    const int64_t there = at->transpose_b ? s.k : s.n, columns = at->transpose_b ? s.n : s.k;
    if (x->rank < 2 || !tl_is_contiguous(x)) return call_fail(c, "needs dense rows");
    if (x->shape[x->rank - 1] != there)
        return call_fail(c, "rows of %lld numbers and a weight of %lldx%lld cannot be multiplied",
                         (long long)x->shape[x->rank - 1], (long long)s.n, (long long)s.k);
    if (bias && (!at->transpose_b || bias->rank != 1 || bias->shape[0] != columns || bias->dtype != x->dtype))
        return call_fail(c, "the bias must have the length of a row of the result, and its dtype");
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank - 1] = columns;
    return call_output(c, 0, x->dtype, x->rank, shape);
}

/* 2mkn and mn for a bias; value x scale for each number of the weight, and scale x tensor scale for each block */
static void matmul_blocks_cost(const tl_call *c, struct cost *cost) {
    const struct attr_matmul_blocks *at = c->attr;
    const struct sizes s = sizes_of(c);
    const count m = s.n && s.k ? (uint64_t)(c->input[X]->numel / (at->transpose_b ? s.k : s.n)) : 0;
    const count n = (uint64_t)s.n, k = (uint64_t)s.k;
    const count n_scales = format_info(at->format)->has_tensor_scale ? (uint64_t)c->input[SCALES]->numel : 0;
    cost_traffic(c, cost, 2 * m * n * k + (c->n_inputs > BIAS ? m * n : 0) + n * k + n_scales);
}

/* `input` has room for all five. */
static tl_tensor *product(const struct attr_matmul_blocks *of, bool transpose_b, tl_tensor **input, int n_inputs) {
    struct attr_matmul_blocks at;
    tl_call c;
    memset(&at, 0, sizeof at); /* padding too: the graph compares and copies bytes */
    at.format = of->format;
    at.transpose_b = transpose_b;
    at.is_fast = matmul_is_fast();
    at.is_timed = fast_is_on();
    input[X] = tl_contiguous(input[X]);
    if (!input[X]) return NULL;
    call_begin(&c, &op_matmul_blocks, input, n_inputs, ATTR(at));
    return op_apply(&c);
}

/* y = x W^T + b: dx = g W, and b's is g, summed over the rows when it is delivered. y = x W: dx = g W^T. */
static void matmul_blocks_backward(tl_gradient *g) {
    const struct attr_matmul_blocks *at = g->node->attr;
    if (g->node->n_inputs > BIAS) g->result[BIAS] = g->grad[0];
    if (!g->needs[X]) return;
    tl_tensor *input[] = {g->grad[0], gradient_input(g, VALUES), gradient_input(g, SCALES),
                          gradient_input(g, TENSOR_SCALE)};
    g->result[X] = product(at, !at->transpose_b, input, BIAS);
}

const tl_op op_matmul_blocks = {
    RECORD(KERNEL, matmul_blocks, 1),
    .shapes = "x (...,k), values (n,k) or (n,k/2), scales (n,k/block), tensor_scale () [, bias (n)] -> (...,n)",
    .dtypes = "x f32, f16 or bf16, the weight's of a format; the result x's",
    .flops = "2mkn; unpacking kn, and 1 per block with a tensor scale; bias mn",
    .shape = matmul_blocks_shape,
    .cost = matmul_blocks_cost,
    .backward = matmul_blocks_backward,
    .saves = {TL_INPUT(VALUES) | TL_INPUT(SCALES) | TL_INPUT(TENSOR_SCALE)},
    .bias = SUMS_INTO(BIAS),
    .is_costly = true};

/* As matmul_takes_bias: it saves a pass over y. */
static bool takes_bias(const tl_tensor *x, const tl_tensor *values, const tl_tensor *bias) {
    const struct target *t = x->storage->device->target;
    if (!t->rules->adds_bias || x->rank < 2 || values->rank != 2 || !x->numel || !values->numel) return false;
    const int64_t n = values->shape[0], k = x->shape[x->rank - 1];
    return t->rules->adds_bias(t, x->dtype, n, k) && bias->rank == 1 && bias->shape[0] == n && bias->stride[0] == 1 &&
           bias->dtype == x->dtype && bias->storage->device == x->storage->device;
}

tl_tensor *linear_quantized(tl_tensor *x, const tl_quantized *weight, tl_tensor *bias) {
    if (!tensor_check(x, "matmul_blocks") || !tensor_check(weight->values, "matmul_blocks") ||
        !tensor_check(weight->scales, "matmul_blocks"))
        return NULL;
    const struct format_info *format = format_info(weight->format);
    if (format->has_tensor_scale && !tensor_check(weight->tensor_scale, "matmul_blocks")) return NULL;
    x = autocast_narrow(x);
    if (!x || (bias && !(bias = autocast_narrow(bias)))) return NULL;
    const bool is_vector = x->rank == 1;
    if (is_vector && !(x = tl_unsqueeze(x, 0))) return NULL;
    const bool is_inside = bias && takes_bias(x, weight->values, bias);
    tl_tensor *input[] = {x, weight->values, weight->scales,
                          format->has_tensor_scale ? weight->tensor_scale : weight->scales, bias};
    const struct attr_matmul_blocks of = {.format = weight->format};
    tl_tensor *y = product(&of, true, input, is_inside ? BIAS + 1 : BIAS);
    if (y && is_vector) y = tl_squeeze(y, 0);
    return y && bias && !is_inside ? tl_add(y, bias) : y;
}
