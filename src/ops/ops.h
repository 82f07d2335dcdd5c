/* ops.h: the records of all ops, and helpers that the families share. */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "base/error.h"
#include "engine/autocast.h"
#include "engine/graph.h"
#include "engine/apply.h"
#include "engine/scope.h"
#include "spec/attr.h"
#include "spec/op_id.h"

#define OP(kind, name) extern const tl_op op_##name;
#include "spec/op_list.h"
#undef OP

/* In op_list.h's order. */
extern const tl_op *const op_table[OP_COUNT];

/* The first fields of a record. */
#define RECORD(kind_, name_, n_outputs_) \
    .name = #name_, .kind = OP_##kind_, .id = OP_ID_##name_, .n_outputs = n_outputs_

/* Output j is dense. True. */
bool call_output(tl_call *c, int j, tl_dtype dtype, int rank, const int64_t *shape);
/* Output j has input i's shape (and dtype). True. */
bool call_output_like(tl_call *c, int j, int i);
/* Refuses inputs that are not floats, or floats only for storage. */
/* Why shapes do not broadcast, in PyTorch's words: at one axis, or because the result would be larger than x. Return
 * false. */
bool call_fail_clash(const tl_call *c, int rank_a, const int64_t *a, int rank_b, const int64_t *b);
bool call_fail_larger(const tl_call *c, const tl_tensor *x, int rank, const int64_t *shape);
bool call_needs_float(const tl_call *c, int i);
static inline bool call_needs_arithmetic(const tl_call *c, int i) {
    tl_dtype dtype = c->input[i]->dtype;
    return !dtype_info(dtype)->is_storage_only ||
           call_fail_need(c, "%s is for storage only", "a cast first", dtype_info(dtype)->name);
}
bool call_needs_index(const tl_call *c, int i); /* i64 or i32 */

/* For creation functions: the device, or the thread's default. */
tl_device *device_or_default(tl_device *device);
/* Calls an op without inputs, whose result has this shape. */
tl_tensor *op_create(const tl_op *op, int rank, const int64_t *shape, tl_dtype dtype, tl_device *device,
                     const void *attr, size_t attr_bytes);

/* Bills the transfer of x's bytes from the device to a file, without doing it: on meta as elsewhere. */
bool transfer_bill(const tl_tensor *x);

/* x, or a copy of it with a dense last axis, for kernels that read rows. NULL stays NULL. */
tl_tensor *with_dense_rows(tl_tensor *x);

/* f32, or f64 for f64: where statistics and sums are kept. */
static inline tl_dtype statistics_dtype(tl_dtype dtype) { return dtype == TL_F64 ? TL_F64 : TL_F32; }

/* Whether f32 products are to be fast rather than exact to the last bits (tl_set_matmul_precision). */
bool matmul_is_fast(void);

/* op(a) op(b) of matrices in a dtype of its own, added to `into` if there is one. NULL stays NULL. With `folds`, a (and
 * b, where a is transposed) may be a stack of rows. */
tl_tensor *matmul_product(tl_tensor *a, bool transpose_a, tl_tensor *b, bool transpose_b, tl_tensor *into,
                          tl_dtype dtype, bool folds);

/* Whether bits need not repeat (tl_set_fast). */
bool fast_is_on(void);

/* Whether a product of these includes the bias. */
bool matmul_takes_bias(const tl_tensor *x, const tl_tensor *weight, const tl_tensor *bias);

/* x weight^T [+ bias] with x and weight rounded to e4m3 with a scale each, and the gradient of the result to e5m2,
 * by a GPU's own 8-bit products; and whether there is one for these. */
bool linear_f8_fits(const tl_tensor *x, const tl_tensor *weight, const tl_tensor *bias);
tl_tensor *linear_f8(tl_tensor *x, tl_tensor *weight, tl_tensor *bias);

/* x W^T [+ bias] with W (n,k) in a block-scaled format, rounded to x's dtype as it is multiplied. Gradients are those
 * of x and of the bias. */
tl_tensor *linear_quantized(tl_tensor *x, const tl_quantized *weight, tl_tensor *bias);

/* x (...,k) times the transposes of two or three matrices (n_i,k), one below the other, in one op without a gradient:
 * (...,n), n the sum of all n_i; and whether that is faster than one product after the other. */
bool matmul_parts_fit(const tl_tensor *x, tl_tensor *const *weights, int n);
tl_tensor *matmul_parts(tl_tensor *x, tl_tensor *const *weights, int n);

/* The token of a cache, in one op: q (B,T,H,D) turned; k, turned, and v (B,T,Hkv,D) become tokens place (B,T) of the
 * keys and values in the cache (2,B,Hkv,S,D). As tl_rope_at otherwise; without a gradient. */
tl_tensor *rope_put(tl_tensor *q, tl_tensor *k, tl_tensor *v, tl_tensor *cache, tl_tensor *place, double base,
                    const tl_rope_scaling *scaling);

/* tl_add_layer_norm and tl_add_rms_norm of x and tl_dropout(residual), 0: the residual as it is. */
tl_tensor *add_layer_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, tl_tensor *bias, double eps,
                          double dropout, tl_tensor **sum);
tl_tensor *add_rms_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, double eps, double dropout,
                        tl_tensor **sum);

/* down(gelu(up x)) and down(silu(gate x) up x), each as one op, and whether there is one that is faster than its parts.
 * Both biases are NULL, or neither. */
bool mlp_fits(const tl_tensor *x, const tl_tensor *up, const tl_tensor *down);
tl_tensor *gelu_mlp(tl_tensor *x, tl_tensor *up, tl_tensor *up_bias, tl_tensor *down, tl_tensor *down_bias);
tl_tensor *swiglu_mlp(tl_tensor *x, tl_tensor *gate, tl_tensor *up, tl_tensor *down);

/* Pointer and size of an attribute struct, as op_apply takes them. */
#define ATTR(a) &(a), sizeof(a)

#endif
