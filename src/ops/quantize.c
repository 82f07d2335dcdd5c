/* quantize.c: casts with a rounding mode, and block-scaled formats (tensor/format.h has their rule). */
#include <string.h>

#include "ops/draw.h"
#include "ops/ops.h"
#include "tensor/format.h"

/* ---- cast_mode: out = x, dense, of attr.dtype, rounded as attr.mode says ---- */

static bool cast_mode_shape(tl_call *c) {
    const struct attr_cast *a = c->attr;
    const tl_tensor *x = c->input[0];
    if (dtype_info(a->dtype)->bits < 8 && (x->rank == 0 || x->shape[x->rank - 1] % 2))
        return call_fail_need(c, "two %s share a byte", "a last axis of even length", tl_dtype_name(a->dtype));
    return call_output(c, 0, a->dtype, x->rank, x->shape);
}
static void cast_mode_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }
/* dx = dout, in x's dtype (the graph casts): rounding is treated as the identity */
static void cast_mode_backward(tl_gradient *g) { g->result[0] = g->grad[0]; }
const tl_op op_cast_mode = {RECORD(KERNEL, cast_mode, 1),
                            .shape = cast_mode_shape,
                            .cost = cast_mode_cost,
                            .backward = cast_mode_backward,
                            .shapes = "x (...) -> (...)",
                            .dtypes = "any to any",
                            .flops = "0"};

static bool mode_check(const char *what, tl_rounding mode) {
    return (unsigned)mode <= TL_STOCHASTIC ||
           error_set(TL_ERROR_USE, "%s: no rounding mode has the number %d", what, (int)mode);
}

tl_tensor *tl_round_to(tl_tensor *x, tl_dtype dtype, tl_rounding mode) {
    if (!tensor_check(x, "cast_mode") || !mode_check("cast_mode", mode)) return NULL;
    if (mode == TL_NEAREST || !dtype_info(dtype) || x->dtype == dtype || dtype_is_complex(dtype))
        return tl_cast(x, dtype);
    if (dtype_info(x->dtype)->bits < 8 && !(x = tl_contiguous(x))) return NULL;
    struct attr_cast a;
    memset(&a, 0, sizeof a);
    a.dtype = dtype;
    a.mode = mode;
    a.generator = draw_part_begin(1, x->numel);
    tl_tensor *y = op_apply1(&op_cast_mode, x, ATTR(a));
    if (y && mode == TL_STOCHASTIC) draw_part_end(1, y->numel);
    return y;
}

/* ---- quantize: x -> values, scales [, tensor_scale] ---- */

/* x's shape, with half of the last axis where two values share an element. */
static void values_shape(const struct format_info *format, int rank, const int64_t *shape, int64_t *values) {
    memcpy(values, shape, (size_t)rank * sizeof *shape);
    if (format->has_codes) values[rank - 1] /= 2;
}

/* x's shape with the last axis counted in blocks. */
static void scales_shape(const struct format_info *format, int rank, const int64_t *shape, int64_t *scales) {
    memcpy(scales, shape, (size_t)rank * sizeof *shape);
    scales[rank - 1] /= format->block;
}

static const struct format_info *format_of(const tl_call *c) {
    return format_info(((const struct attr_quantize *)c->attr)->format);
}

static bool has_blocks(const tl_call *c) {
    const struct format_info *format = format_of(c);
    const tl_tensor *x = c->input[0];
    if (!call_needs_float(c, 0)) return false;
    if (x->rank == 0)
        return call_fail_need(c, "a scalar has no blocks", "a last axis of a multiple of %d", format->block);
    if (x->shape[x->rank - 1] % format->block)
        return call_fail_need(c, "the last axis has %lld elements, %s has blocks of %d",
                              "a multiple: pad it with zeros, or make another axis the last",
                              (long long)x->shape[x->rank - 1], format->name, format->block);
    return true;
}

static bool quantize_shape(tl_call *c) {
    const struct format_info *format = format_of(c);
    const tl_tensor *x = c->input[0];
    int64_t scales[TL_MAX_RANK], values[TL_MAX_RANK];
    if (!has_blocks(c)) return false;
    values_shape(format, x->rank, x->shape, values);
    scales_shape(format, x->rank, x->shape, scales);
    c->n_outputs = format->has_tensor_scale ? 3 : 2;
    return call_output(c, 0, format->values, x->rank, values) && call_output(c, 1, format->scales, x->rank, scales) &&
           (c->n_outputs == 2 || call_output(c, 2, TL_F32, 0, NULL));
}
/* the largest of the block and a division for each element; the largest of the tensor, if it is needed */
static void quantize_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, (count)c->n_outputs * (uint64_t)c->input[0]->numel);
}
static uint64_t quantize_workspace(const tl_call *c) {
    const int64_t n_blocks = format_of(c)->has_tensor_scale ? c->input[0]->numel / format_of(c)->block : 0;
    return (uint64_t)((n_blocks + QUANTIZE_CHUNK - 1) / QUANTIZE_CHUNK) * sizeof(double);
}
const tl_op op_quantize = {RECORD(KERNEL, quantize, 3),
                           .shape = quantize_shape,
                           .cost = quantize_cost,
                           .workspace = quantize_workspace,
                           .shapes =
                               "x (...,C) -> values (...,C) or (...,C/2), scales (...,C/block) [, tensor_scale ()]",
                           .dtypes = "floats to f8e4m3, f8e5m2, f4e2m1 or u8, with f8e8m0, f8e4m3 or f32 scales",
                           .flops = "2 per element, 3 with a tensor scale"};

static bool format_check(const char *what, tl_format format) {
    return format_info(format) || error_set(TL_ERROR_USE, "%s: no format has the number %d", what, (int)format);
}

/* The call of quantize or fake_quantize; numbers are taken from the generator once it has succeeded. */
static bool quantize_apply(tl_call *c, const tl_op *op, tl_tensor **x, tl_format format, tl_rounding mode) {
    if (!tensor_check(*x, op->name) || !mode_check(op->name, mode) || !format_check(op->name, format)) return false;
    if (format_info(format)->has_codes && mode == TL_STOCHASTIC)
        return error_set(TL_ERROR_USE, "%s: %s is rounded to nearest (need TL_NEAREST)", op->name,
                         format_info(format)->name);
    struct attr_quantize a;
    memset(&a, 0, sizeof a);
    a.format = format;
    a.mode = mode;
    a.generator = draw_part_begin(1, (*x)->numel);
    call_begin(c, op, x, 1, ATTR(a));
    if (!op_apply(c)) return false;
    if (mode == TL_STOCHASTIC) draw_part_end(1, (*x)->numel);
    return true;
}

bool tl_quantize(tl_tensor *x, tl_format format, tl_rounding mode, tl_quantized *quantized) {
    tl_call c;
    if (!error_given(quantized, "quantize", "a place for the result")) return false;
    memset(quantized, 0, sizeof *quantized);
    if (!quantize_apply(&c, &op_quantize, &x, format, mode)) return false;
    *quantized = (tl_quantized){format, c.output[0], c.output[1], c.n_outputs == 3 ? c.output[2] : NULL};
    return true;
}

/* ---- fake_quantize: dequantize(quantize(x)) in x's dtype; codes and scales are not kept ---- */

static bool fake_quantize_shape(tl_call *c) { return has_blocks(c) && call_output_like(c, 0, 0); }
/* quantize's and dequantize's: the largest of the block (and of the tensor), a division, a product; scale x tensor
 * scale */
static void fake_quantize_cost(const tl_call *c, struct cost *cost) {
    const count n = (uint64_t)c->input[0]->numel;
    const bool has_tensor_scale = format_of(c)->has_tensor_scale;
    cost_traffic(c, cost, has_tensor_scale ? 4 * n + n / (uint64_t)format_of(c)->block : 3 * n);
}
/* dx = dout: rounding is treated as the identity */
static void fake_quantize_backward(tl_gradient *g) { g->result[0] = g->grad[0]; }
const tl_op op_fake_quantize = {RECORD(KERNEL, fake_quantize, 1),
                                .shape = fake_quantize_shape,
                                .cost = fake_quantize_cost,
                                .workspace = quantize_workspace,
                                .backward = fake_quantize_backward,
                                .shapes = "x (...,C), C a multiple of the block -> like x",
                                .dtypes = "floats",
                                .flops = "3n; with a tensor scale 4n, and 1 per block"};

tl_tensor *tl_fake_quantize(tl_tensor *x, tl_format format, tl_rounding mode) {
    tl_call c;
    return quantize_apply(&c, &op_fake_quantize, &x, format, mode) ? c.output[0] : NULL;
}

/* ---- dequantize: values, scales [, tensor_scale] -> out of attr.dtype ---- */

static bool dequantize_shape(tl_call *c) {
    const struct attr_dequantize *a = c->attr;
    const struct format_info *format = format_info(a->format);
    const tl_tensor *values = c->input[0], *scales = c->input[1];
    int64_t wanted[TL_MAX_RANK], wide[TL_MAX_RANK];
    if (values->dtype != format->values || scales->dtype != format->scales)
        return call_fail(c, "%s has %s values and %s scales", format->name, tl_dtype_name(format->values),
                         tl_dtype_name(format->scales));
    const int rank = values->rank, per_value = format->has_codes ? 2 : 1;
    if (rank == 0 || values->shape[rank - 1] % (format->block / per_value))
        return call_fail(c, "the last axis must be a multiple of %d", format->block / per_value);
    memcpy(wide, values->shape, (size_t)rank * sizeof *wide);
    wide[rank - 1] *= per_value;
    scales_shape(format, rank, wide, wanted);
    if (!shape_equal(scales->rank, scales->shape, rank, wanted))
        return call_fail(c, "one scale per %d values of the last axis", format->block);
    if (c->n_inputs == 3 && (c->input[2]->dtype != TL_F32 || c->input[2]->rank != 0))
        return call_fail(c, "the tensor's scale must be an f32 scalar");
    return call_output(c, 0, a->dtype, rank, wide);
}
/* value x scale; with a tensor scale, scale x tensor scale first, once per block */
static void dequantize_cost(const tl_call *c, struct cost *cost) {
    const struct attr_dequantize *a = c->attr;
    const count n = (uint64_t)c->input[0]->numel * (format_info(a->format)->has_codes ? 2 : 1);
    cost_traffic(c, cost, n + (c->n_inputs == 3 ? (count)(uint64_t)c->input[1]->numel : 0));
}
const tl_op op_dequantize = {RECORD(KERNEL, dequantize, 1),
                             .shape = dequantize_shape,
                             .cost = dequantize_cost,
                             .shapes =
                                 "values (...,C) or (...,C/2), scales (...,C/block) [, tensor_scale ()] -> (...,C)",
                             .dtypes = "the dtypes of a format to f64, f32, f16, bf16, f8e4m3, f8e5m2",
                             .flops = "1 per element, and 1 per block with a tensor scale"};

tl_tensor *tl_dequantize(const tl_quantized *quantized, tl_dtype dtype) {
    if (!error_given(quantized, "dequantize", "quantized values")) return NULL;
    if (!format_check("dequantize", quantized->format)) return NULL;
    if (!dtype_is_float(dtype) || dtype_info(dtype)->is_storage_only) {
        error_set(TL_ERROR_USE, "dequantize: needs a floating point dtype to compute with, not %s",
                  tl_dtype_name(dtype));
        return NULL;
    }
    const bool has_tensor_scale = format_info(quantized->format)->has_tensor_scale;
    if (!tensor_check(quantized->values, "dequantize") || !tensor_check(quantized->scales, "dequantize") ||
        (has_tensor_scale && !tensor_check(quantized->tensor_scale, "dequantize")))
        return NULL;
    struct attr_dequantize a = {quantized->format, dtype};
    tl_tensor *input[3] = {tl_contiguous(quantized->values), NULL, quantized->tensor_scale};
    input[1] = tl_contiguous(quantized->scales);
    if (!input[0] || !input[1]) return NULL;
    tl_call c;
    call_begin(&c, &op_dequantize, input, has_tensor_scale ? 3 : 2, ATTR(a));
    return op_apply(&c);
}
