/* op_list.h: everything the system can do, one row each.
 *
 *   VIEW      another geometry of the same storage: no kernel, costs nothing
 *   KERNEL    has a kernel on every real device; a forgotten one is a link error that names it
 *   DYNAMIC   the answer depends on data: refused by name on meta
 *   TRANSFER  between devices
 *
 * A row NAME needs: a record `op_NAME` in the family's file in this folder, a kernel `cpu_NAME` in
 * device/cpu/FAMILY.c and `cuda_NAME` in device/cuda (or a line in its missing.c), and samples in
 * tests/support/samples.c. Include this file with OP(KIND, NAME) defined.
 */

/* view.c */
OP(VIEW, select)
OP(VIEW, slice)
OP(VIEW, view)
OP(VIEW, permute)
OP(VIEW, expand)
OP(VIEW, diagonal)
OP(VIEW, as_strided)

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

/* elementwise.c */
OP(KERNEL, add)
OP(KERNEL, sub)
OP(KERNEL, mul)
OP(KERNEL, div)
OP(KERNEL, affine)
OP(KERNEL, neg)
OP(KERNEL, exp)
OP(KERNEL, log)
OP(KERNEL, sqrt)
OP(KERNEL, tanh)
OP(KERNEL, sigmoid)
OP(KERNEL, relu)
OP(KERNEL, gelu)
OP(KERNEL, gelu_grad)
OP(KERNEL, silu)
OP(KERNEL, silu_grad)
OP(KERNEL, compare)
OP(KERNEL, where)

/* reduce.c */
OP(KERNEL, sum)
OP(KERNEL, max)
OP(KERNEL, softmax)
OP(KERNEL, softmax_grad)

/* matmul.c */
OP(KERNEL, matmul)
OP(KERNEL, matmul_acc)

/* norm.c */
OP(KERNEL, layer_norm)
OP(KERNEL, layer_norm_grad)
OP(KERNEL, rms_norm)
OP(KERNEL, rms_norm_grad)

/* token.c */
OP(KERNEL, embedding)
OP(KERNEL, embedding_grad)
OP(KERNEL, cross_entropy)
OP(KERNEL, cross_entropy_grad)

/* attention.c */
OP(KERNEL, rope)
OP(KERNEL, attention)
OP(KERNEL, attention_grad)

/* update.c */
OP(KERNEL, adamw)
OP(KERNEL, sgd)

/* dynamic.c */
OP(DYNAMIC, item)
OP(DYNAMIC, nonzero)

/* fused: elementwise.c, norm.c, head.c, optimizer.c */
OP(KERNEL, swiglu)
OP(KERNEL, swiglu_grad)
OP(KERNEL, add_rms_norm)
OP(KERNEL, add_rms_norm_grad)
OP(KERNEL, add_layer_norm)
OP(KERNEL, add_layer_norm_grad)
OP(KERNEL, linear_cross_entropy)
OP(KERNEL, sgd_momentum)
OP(KERNEL, adagrad)
OP(KERNEL, rmsprop)
OP(KERNEL, adam)
