/* op_list.h: everything the system can do, one row each.
 *
 *   VIEW      another geometry of the same storage: no kernel, costs nothing
 *   KERNEL    has a kernel on every real device; a forgotten one is a link error that names it
 *   DYNAMIC   the result depends on data: an error on meta
 *   TRANSFER  between devices or processes: no kernel, a function that copies or sends
 *
 * A row NAME below the line of FAMILY.c needs: a record `op_NAME` in ops/FAMILY.c, a kernel `cpu_NAME` in
 * device/cpu/ops/FAMILY.c and `cuda_NAME` in device/cuda/ops/FAMILY.cu (or a file FAMILY_MORE beside it), and samples in
 * tests/support/samples.c. tools/check_places checks the places. Include this file with OP(KIND, NAME) defined.
 */

/* view.c */
OP(VIEW, select)
OP(VIEW, slice)
OP(VIEW, view)
OP(VIEW, permute)
OP(VIEW, expand)
OP(VIEW, diagonal)
OP(VIEW, as_strided)

/* complex.c */
OP(VIEW, view_as_real)
OP(VIEW, view_as_complex)
OP(KERNEL, complex_mul)
OP(KERNEL, complex_div)

/* fft.c */
OP(KERNEL, fft)

/* create.c */
OP(KERNEL, full)
OP(KERNEL, arange)
OP(KERNEL, random)

/* copy.c */
OP(KERNEL, copy)
OP(KERNEL, assign)
OP(KERNEL, fill)
OP(KERNEL, unview)
OP(TRANSFER, transfer)

/* collective.c */
OP(TRANSFER, all_gather)
OP(TRANSFER, all_to_all)
OP(TRANSFER, broadcast)
OP(TRANSFER, send)
OP(TRANSFER, recv)
OP(TRANSFER, send_recv)

/* The elementwise ops have a list of their own. */
#define UNARY(name, ...) OP(KERNEL, name)
#define BINARY(name, ...) OP(KERNEL, name)
#define SPECIAL(name, ...) OP(KERNEL, name)
#include "spec/elementwise_list.h"

/* swiglu.c */
OP(KERNEL, swiglu_grad)

/* reduce.c */
OP(KERNEL, sum)
OP(KERNEL, max)
OP(KERNEL, min)
OP(KERNEL, prod)
OP(KERNEL, extreme_grad)
OP(KERNEL, softmax)
OP(KERNEL, softmax_grad)
OP(KERNEL, log_softmax)
OP(KERNEL, log_softmax_grad)

/* fold.c */
OP(KERNEL, argmax)
OP(KERNEL, argmin)
OP(KERNEL, var)
OP(KERNEL, norm)
OP(KERNEL, logsumexp)
OP(KERNEL, cumsum)
OP(KERNEL, cumprod)
OP(KERNEL, cumprod_grad)

/* matmul.c */
OP(KERNEL, matmul)
OP(KERNEL, matmul_acc)
OP(KERNEL, matmul_parts)

/* grouped.c */
OP(KERNEL, grouped_matmul)
OP(KERNEL, grouped_matmul_acc)
OP(KERNEL, grouped_outer)
OP(KERNEL, grouped_outer_acc)

/* linalg.c */
OP(KERNEL, cholesky)
OP(KERNEL, lu)
OP(KERNEL, swap_rows)
OP(KERNEL, solve_triangular)
OP(KERNEL, solve)
OP(KERNEL, inv)
OP(KERNEL, det)
OP(KERNEL, qr)
OP(KERNEL, eigh)
OP(KERNEL, eig)
OP(KERNEL, svd)

/* narrow.c */
OP(KERNEL, narrow)
OP(KERNEL, matmul_f8)
OP(KERNEL, matmul_f8_acc)

/* blocks.c */
OP(KERNEL, matmul_blocks)

/* mlp.c */
OP(KERNEL, gelu_mlp)
OP(KERNEL, gelu_mlp_grad)
OP(KERNEL, swiglu_mlp)
OP(KERNEL, swiglu_mlp_grad)

/* norm.c */
OP(KERNEL, layer_norm)
OP(KERNEL, layer_norm_grad)
OP(KERNEL, rms_norm)
OP(KERNEL, rms_norm_grad)
OP(KERNEL, add_rms_norm)
OP(KERNEL, add_rms_norm_grad)
OP(KERNEL, add_layer_norm)
OP(KERNEL, add_layer_norm_grad)

/* token.c */
OP(KERNEL, embedding)
OP(KERNEL, embedding_grad)
OP(KERNEL, embedding_acc)
OP(KERNEL, cross_entropy)
OP(KERNEL, cross_entropy_grad)

/* rope.c */
OP(KERNEL, rope)
OP(KERNEL, rope_put)

/* attention.c */
OP(KERNEL, attention)
OP(KERNEL, attention_grad)

/* head.c */
OP(KERNEL, linear_cross_entropy)

/* loss.c */
OP(KERNEL, nll)
OP(KERNEL, nll_grad)
OP(KERNEL, bce)

/* index.c */
OP(KERNEL, gather)
OP(KERNEL, scatter)
OP(KERNEL, scatter_add)
OP(KERNEL, index)
OP(KERNEL, index_put)
OP(DYNAMIC, repeat_interleave)

/* join.c */
OP(KERNEL, concat)
OP(KERNEL, pad)

/* sort.c */
OP(KERNEL, sort)
OP(KERNEL, searchsorted)
OP(DYNAMIC, unique)

/* dynamic.c */
OP(DYNAMIC, item)
OP(DYNAMIC, nonzero)

/* quantize.c */
OP(KERNEL, cast_mode)
OP(KERNEL, quantize)
OP(KERNEL, fake_quantize)
OP(KERNEL, dequantize)

/* random.c */
OP(KERNEL, random_fill)
OP(KERNEL, dropout)
OP(KERNEL, permutation)
OP(KERNEL, multinomial)

/* update.c */
OP(KERNEL, sgd_momentum)
OP(KERNEL, adagrad)
OP(KERNEL, rmsprop)
OP(KERNEL, adam)
OP(KERNEL, adam_8bit)
OP(KERNEL, lion)
OP(KERNEL, muon_momentum)
OP(KERNEL, ema)
OP(KERNEL, schedule_free)

/* adafactor.c */
OP(KERNEL, adafactor)

/* clip.c */
OP(KERNEL, sum_squares)
OP(KERNEL, clip_scale)
