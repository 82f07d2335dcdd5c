/* apply.h: how a call of an op happens, and what the rules of ops use.
 *
 * Every call, forward or backward, on every device, passes op_apply (apply.c). There is no other way to run a kernel,
 * which is why the ledger cannot miss one. A device may hold kernels back and queue several together (repeat_begin in
 * tensor/device.h): those of calls that have passed here, each compared with what is queued for it. What was queued in
 * this way may be queued, and billed, once more: replay.h has the rule.
 *
 * A call that fails leaves nothing: the bytes of its operands, their versions and their history, what the scopes own,
 * the generator and the ledger's counts are as before the call. (Peaks are measured, and memory that a failed call
 * held for a moment was held.) Kernels have their part in it: one that can fail checks its inputs before it writes to
 * an operand that is overwritten. Where a device runs ahead (cuda), a fault may show only after part of the result
 * was written, or at a later call: the contents are then undefined, and the version advances, so that a gradient that
 * saved the old contents reports it.
 */
#ifndef ENGINE_APPLY_H
#define ENGINE_APPLY_H

#include "spec/op.h"

/* Runs a call. Returns output 0 (all are in c->output), owned by the innermost scope; NULL on error, and then nothing
 * has changed. An op without outputs returns input 0. */
tl_tensor *op_apply(tl_call *c);

/* The common cases in one line. */
tl_tensor *op_apply1(const tl_op *op, tl_tensor *a, const void *attr, size_t attr_bytes);
tl_tensor *op_apply2(const tl_op *op, tl_tensor *a, tl_tensor *b, const void *attr, size_t attr_bytes);
tl_tensor *op_apply_in_place(const tl_op *op, tl_tensor **input, int n_inputs, const void *attr, size_t attr_bytes);

/* Records `path: op: message: operands`; returns false. */
bool call_fail(const tl_call *c, const char *format, ...) TL_PRINTF(2, 3);
/* call_fail_need(c, message, need, ...): the same with the requirement after the operands, "sizes differ: A x B (need
 * [m,k] x [k,n])". Both are literals, so the place of the operands is known at compile time; arguments are those of
 * both, in order. */
#define call_fail_need(c, message, ...) call_fail_split((c), sizeof(message) - 1, message " (need " __VA_ARGS__)
bool call_fail_split(const tl_call *c, size_t operands_at, const char *format, ...) TL_PRINTF(3, 4);

/* Cost rules. cost_traffic reads every distinct input once and writes every output once. */
void cost_free(const tl_call *c, struct cost *cost);
void cost_traffic(const tl_call *c, struct cost *cost, count flops);
count tensor_traffic(const tl_tensor *x); /* bytes a view covers */

#endif
