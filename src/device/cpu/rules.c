/* rules.c: workspaces and layouts of the cpu's kernels. No kernel is called here, and no instruction set matters: a
 * price is the same on every machine. */
#include "device/cpu/rules.h"

#include "base/memory.h"
#include "device/cpu/shared/gemm_sizes.h"
#include "device/cpu/shared/limits.h"
#include "spec/op.h"
#include "spec/attr.h"
#include "spec/head.h"
#include "spec/op_id.h"

#define MIB ((uint64_t)1 << 20)

static uint64_t sum_bytes(tl_dtype dtype) { return dtype == TL_F64 ? 8 : 4; } /* f32, or f64 for f64 */

/* ---- Products ---- */

static int64_t rows_of(const tl_tensor *x) {
    int64_t rows = 1;
    for (int i = 0; i < x->rank - 1; i++) rows *= x->shape[i];
    return rows;
}
static int64_t matrix_size(const tl_tensor *x, bool folds, int axis) {
    return folds && axis == 0 ? rows_of(x) : x->shape[x->rank - 2 + axis];
}

/* The products that the kernel will see. */
static struct gemm_sizes product_sizes(const tl_call *c, const tl_tensor *a, const tl_tensor *b) {
    const struct attr_matmul *at = c->attr;
    const tl_tensor *out = c->output[0];
    int row = a->rank - 2 + at->transpose_a, n_axes = at->folds ? 0 : out->rank - 2;
    struct gemm_sizes s = {.n_batches = 1,
                           .m = matrix_size(a, at->folds, at->transpose_a),
                           .n = matrix_size(b, at->folds, !at->transpose_b),
                           .k = matrix_size(a, at->folds, !at->transpose_a)};
    for (int i = 0; i < n_axes; i++) s.n_batches *= out->shape[i];
    if (n_axes > 0 && gemm_joins(n_axes, out->shape, a->shape, a->stride, b->shape, s.m, a->stride[row]))
        s = (struct gemm_sizes){.n_batches = 1, .m = s.m * s.n_batches, .n = s.n, .k = s.k};
    return s;
}

/* The packed operands (gemm.h). f64 uses the BLAS, which packs in its own memory. */
static uint64_t matmul_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const int first = c->op->id == OP_ID_matmul_acc;
    const tl_tensor *a = c->input[first], *out = c->output[0];
    if (!out->numel || out->dtype == TL_F64) return 0;
    struct gemm_sizes s = product_sizes(c, a, c->input[first + 1]);
    return gemm_workspace_bytes(&s, a->dtype == TL_BF16, out->dtype != TL_F32);
}

/* The products one after the other, and room for the result of the widest. */
static uint64_t parts_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *x = c->input[0];
    uint64_t products = 0, room = 0;
    if (!c->output[0]->numel) return 0;
    for (int i = 1; i < c->n_inputs; i++) {
        const struct gemm_sizes s = {1, rows_of(x), c->input[i]->shape[0], x->shape[x->rank - 1]};
        const bool packs = s.n && x->dtype != TL_F64;
        const uint64_t bytes = packs ? gemm_workspace_bytes(&s, x->dtype == TL_BF16, x->dtype != TL_F32) : 0,
                       own = (uint64_t)(s.m * s.n) * (uint64_t)(dtype_info(x->dtype)->bits / 8);
        if (bytes > products) products = bytes;
        if (own > room) room = own;
    }
    return products + round_up(room, 64);
}

/* The same: the weight is unpacked where it is packed. */
static uint64_t blocks_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *x = c->input[0], *out = c->output[0];
    if (!out->numel) return 0;
    const struct gemm_sizes s = {1, rows_of(x), out->shape[out->rank - 1], x->shape[x->rank - 1]};
    return gemm_workspace_bytes(&s, x->dtype == TL_BF16, out->dtype != TL_F32);
}

/* That of one product of all rows, which no group exceeds. */
static uint64_t grouped_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const bool is_outer = c->op->id == OP_ID_grouped_outer || c->op->id == OP_ID_grouped_outer_acc;
    const int first = c->op->id == OP_ID_grouped_matmul_acc || c->op->id == OP_ID_grouped_outer_acc;
    const tl_tensor *a = c->input[first], *out = c->output[0];
    const int64_t n = out->shape[out->rank - 1];
    if (!out->numel || out->dtype == TL_F64) return 0;
    const struct gemm_sizes rows = {1, a->shape[0], n, a->shape[1]}, outer = {1, a->shape[1], n, a->shape[0]};
    return gemm_workspace_bytes(is_outer ? &outer : &rows, a->dtype == TL_BF16, out->dtype != TL_F32);
}

/* The products one after the other, and room for y (and u) where they are no results, or for y's gradient. */
static uint64_t mlp_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const bool is_grad = c->op->id == OP_ID_gelu_mlp_grad || c->op->id == OP_ID_swiglu_mlp_grad;
    const tl_tensor *x = c->input[0], *down = c->input[1];
    const int64_t D = down->shape[0], F = down->shape[1], C = is_grad ? D : x->shape[x->rank - 1], m = rows_of(x);
    const struct gemm_sizes first = {1, m, F, C}, second = {1, m, D, F}, back = {1, m, F, D};
    const bool is_bf16 = x->dtype == TL_BF16, is_narrow = x->dtype != TL_F32;
    const uint64_t element = (uint64_t)(dtype_info(x->dtype)->bits / 8);
    uint64_t products = 0;
    if (m && D && F && C && x->dtype != TL_F64) {
        products = gemm_workspace_bytes(is_grad ? &back : &first, is_bf16, is_narrow);
        const uint64_t other = is_grad ? 0 : gemm_workspace_bytes(&second, is_bf16, is_narrow);
        if (other > products) products = other;
    }
    const uint64_t n_rooms = is_grad ? 1 : c->n_outputs > 1 ? 0 : c->op->id == OP_ID_swiglu_mlp ? 2 : 1;
    return products + round_up(n_rooms * (uint64_t)(m * F) * element, 64);
}

/* ---- linear_cross_entropy ---- */

/* Bytes of logits that a chunk may have, unless one row is larger. Every chunk packs the whole weight twice, and
 * adds to all sums of its gradient: GPT-2's head on 1024 rows in bf16 takes 1.2 times as long with 24 MiB, and 0.95
 * times with 100. */
#define CHUNK_BYTES ((int64_t)64 << 20)

/* With few rows, the bf16 gradient of all logits takes no more memory than f32 sums of dweight. Then there is one
 * product of all rows instead of one per chunk, each of which would pack the weight and pass over all sums. */
static struct head_cut head_cut(const struct target *target, tl_dtype dtype, int64_t N, int64_t V, int64_t C) {
    (void)target;
    return (struct head_cut){.chunk_rows = head_chunk_rows(N, V * (int64_t)sum_bytes(dtype), CHUNK_BYTES, 16),
                             .is_gathered = dtype == TL_BF16 && 2 * N <= 4 * C};
}

/* The workspace of a chunk's products: logits, dx and dweight, one after the other. */
static uint64_t head_products(const tl_call *c) {
    const struct attr_linear_cross_entropy *a = c->attr;
    const tl_dtype dtype = c->input[0]->dtype;
    if (dtype == TL_F64) return 0;
    const int64_t n = a->chunk_rows, C = c->input[0]->shape[1], V = c->input[1]->shape[0];
    const int64_t n_back = a->is_gathered ? c->input[0]->shape[0] : n;
    const struct gemm_sizes logits = {1, n, V, C}, dx = {1, n_back, C, V}, dweight = {1, V, C, n_back};
    const bool is_bf16 = dtype == TL_BF16, is_narrow = dtype != TL_F32;
    uint64_t most = gemm_workspace_bytes(&logits, is_bf16, false);
    const uint64_t of_dx = a->gives_dx ? gemm_workspace_bytes(&dx, is_bf16, is_narrow) : 0;
    const uint64_t of_dweight = a->gives_dweight ? gemm_workspace_bytes(&dweight, is_bf16, a->is_gathered) : 0;
    if (of_dx > most) most = of_dx;
    return of_dweight > most ? of_dweight : most;
}

static uint64_t head_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const struct attr_linear_cross_entropy *a = c->attr;
    const tl_tensor *x = c->input[0], *w = c->input[1];
    const uint64_t N = (uint64_t)x->shape[0], V = (uint64_t)w->shape[0], C = (uint64_t)w->shape[1];
    const uint64_t element = sum_bytes(x->dtype);
    uint64_t bytes = round_up((uint64_t)a->chunk_rows * V * element, 64) + round_up(N * element, 64);
    if (a->is_gathered) bytes += round_up(N * V * 2, 64);
    else if (a->gives_dweight && dtype_info(w->dtype)->bits < 32) bytes += round_up(V * C * element, 64);
    return bytes + head_products(c);
}

/* ---- The others ---- */

/* Per-run sums of the weights' gradients, and of the columns of dx. */
static uint64_t norm_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *x = c->input[1];
    const int64_t length = x->rank ? x->shape[x->rank - 1] : 0;
    const int n_like_x = ((const struct attr_norm *)c->attr)->dropout > 0 ? 2 : 1;
    return (uint64_t)(c->n_outputs - n_like_x) * NORM_CHUNKS * (uint64_t)length * sum_bytes(x->dtype);
}

/* delta = rowsum(g out), one per query and head; then sums of dq in f32 for 16-bit dtypes. */
static uint64_t attention_grad_workspace(const tl_call *c, const struct target *target) {
    const tl_tensor *q = c->input[1];
    const uint64_t element = sum_bytes(q->dtype);
    const uint64_t delta = round_up((uint64_t)(q->shape[0] * q->shape[1] * q->shape[2]) * element, target->align_bytes);
    return delta + (dtype_info(q->dtype)->bits < 32 ? (uint64_t)q->numel * element : 0);
}

/* For SORT_SLOTS rows at a time. */
static uint64_t multinomial_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const struct attr_multinomial *a = c->attr;
    const tl_tensor *p = c->input[0];
    int64_t rows = p->rank == 2 ? p->shape[0] : 1;
    if (rows > SORT_SLOTS) rows = SORT_SLOTS;
    return (uint64_t)rows * (uint64_t)p->shape[p->rank - 1] * MULTINOMIAL_BYTES(a->has_replacement);
}

/* Lines that are not rows are copied, all inputs at once (reduce_along). */
static uint64_t softmax_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *x = c->input[0];
    int64_t inner = 1;
    for (int i = ((const struct attr_softmax *)c->attr)->axis + 1; i < x->rank; i++) inner *= x->shape[i];
    const uint64_t element = (uint64_t)(dtype_info(x->dtype)->bits / 8);
    return inner > 1 ? (uint64_t)c->n_inputs * (uint64_t)x->numel * element : 0;
}

static tl_kernel custom(const tl_op_def *def) { return def->cpu; }

static const workspace_rule workspace[OP_COUNT] = {
    [OP_ID_matmul] = matmul_workspace,
    [OP_ID_matmul_acc] = matmul_workspace,
    [OP_ID_grouped_matmul] = grouped_workspace,
    [OP_ID_grouped_matmul_acc] = grouped_workspace,
    [OP_ID_grouped_outer] = grouped_workspace,
    [OP_ID_grouped_outer_acc] = grouped_workspace,
    [OP_ID_matmul_blocks] = blocks_workspace,
    [OP_ID_matmul_parts] = parts_workspace,
    [OP_ID_gelu_mlp] = mlp_workspace,
    [OP_ID_gelu_mlp_grad] = mlp_workspace,
    [OP_ID_swiglu_mlp] = mlp_workspace,
    [OP_ID_swiglu_mlp_grad] = mlp_workspace,
    [OP_ID_linear_cross_entropy] = head_workspace,
    [OP_ID_layer_norm_grad] = norm_workspace,
    [OP_ID_rms_norm_grad] = norm_workspace,
    [OP_ID_add_layer_norm_grad] = norm_workspace,
    [OP_ID_add_rms_norm_grad] = norm_workspace,
    [OP_ID_attention_grad] = attention_grad_workspace,
    [OP_ID_multinomial] = multinomial_workspace,
    [OP_ID_softmax] = softmax_workspace,
    [OP_ID_softmax_grad] = softmax_workspace,
    [OP_ID_log_softmax] = softmax_workspace,
    [OP_ID_log_softmax_grad] = softmax_workspace,
};

static const struct device_rules rules = {.is_host = true, .workspace = workspace, .head = head_cut, .custom = custom};

const struct target cpu_targets[] = {
    /* Segments of 2 MiB multiples, so that huge pages fit. */
    {.name = "cpu",
     .rules = &rules,
     .align_bytes = 64,
     .small_bytes = MIB,
     .small_segment_bytes = 2 * MIB,
     .large_segment_bytes = 32 * MIB,
     .huge_bytes = 16 * MIB,
     .segment_align_bytes = 2 * MIB,
     .native = TARGET_NATIVE(TL_F64) | TARGET_NATIVE(TL_F32) | TARGET_NATIVE(TL_F16) | TARGET_NATIVE(TL_BF16)},
    {.name = NULL},
};
