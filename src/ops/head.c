/* head.c: the last product and the loss in one op, so that the logits never exist as a whole.
 *
 * Logits (N,V) are by far the largest tensor of a language model, and they live through the peak: made by the
 * last product, kept for backward, and joined there by their own gradient. The loss is a sum over rows, so rows can be
 * taken in chunks: logits of a chunk, their loss, the gradient of the logits in their place, and from it the chunk's part of
 * dx and dweight. What is left over is dx and dweight, which backward multiplies by the gradient of the loss.
 *
 * The gradients are backward's work done early. They are billed to backward, and done only where somebody can ask for them.
 */
#include <string.h>

#include "base/memory.h"
#include "spec/gemm.h"
#include "ops/ops.h"

/* Bytes of logits that a chunk may have, unless one row is larger. Every chunk lays the whole weight out anew, twice, and adds to
 * all the sums of its gradient: on a cpu GPT-2's head on 1024 rows in bf16 takes 1.2 times as long with 24 MiB, and 0.95 times with 100. A GPU
 * adds to 150 MB of such sums in a chunk of GPT-2's, while its products want thousands of rows. */
#define CHUNK_BYTES ((int64_t)64 << 20)
#define CHUNK_BYTES_CUDA ((int64_t)512 << 20)

/* A row of logits as it lies in the workspace: how many elements, and the bytes of one. */
static int64_t row_elements(int64_t V, const struct target *target) {
    return (int64_t)round_up((size_t)V, target->kind == DEVICE_CUDA ? HEAD_ALIGN : 1);
}
static int64_t logit_bytes(tl_dtype dtype, const struct target *target) {
    return target->kind == DEVICE_CUDA && dtype_info(dtype)->bits < 32 ? 2 : statistics_dtype(dtype) == TL_F64 ? 8 : 4;
}

/* As few chunks as fit, of one size. */
static int64_t chunk_rows(int64_t N, int64_t V, tl_dtype dtype, const struct target *target) {
    int64_t row_bytes = row_elements(V, target) * logit_bytes(dtype, target);
    int64_t wanted = target->kind == DEVICE_CUDA ? CHUNK_BYTES_CUDA : CHUNK_BYTES;
    int64_t most = row_bytes && row_bytes < wanted ? wanted / row_bytes : 1;
    if (most >= N) return N > 0 ? N : 1;
    int64_t even = most >= 64 ? 16 : 1; /* products like even sizes */
    if (target->kind == DEVICE_CUDA && most >= 1024) even = 256;
    most = most / even * even;
    int64_t n_chunks = (N - 1) / most + 1;
    return ((N - 1) / n_chunks / even + 1) * even;
}

/* Of few rows the bf16 gradient of all logits takes no more than f32 sums of dweight do: then there is one product of all rows in
 * place of one for each chunk, which would lay the weight out anew and go through all the sums. */
static bool is_gathered(int64_t N, int64_t C, tl_dtype dtype, const struct target *target) {
    return target->kind == DEVICE_CPU && dtype == TL_BF16 && 2 * N <= 4 * C;
}

static bool linear_cross_entropy_shape(tl_call *c) {
    const struct attr_linear_cross_entropy *a = c->attr;
    const tl_tensor *x = c->input[0], *w = c->input[1], *targets = c->input[2];
    if (!call_needs_float(c, 0) || !call_needs_float(c, 1) || !call_needs_index(c, 2)) return false;
    if (x->rank != 2 || w->rank != 2 || x->shape[1] != w->shape[1])
        return call_fail_need(c, "inner sizes differ", "x [N,C], weight [V,C] and targets [N]");
    if (targets->rank != 1 || targets->shape[0] != x->shape[0])
        return call_fail_need(c, "one target per row", "x [N,C], weight [V,C] and targets [N]");
    if (x->dtype != w->dtype) return call_fail_need(c, "x and weight have different dtypes", "a cast");
    int j = 0;
    call_output(c, j++, statistics_dtype(x->dtype), 0, NULL);
    if (a->gives_dx) call_output_like(c, j++, 0);
    if (a->gives_dweight) call_output_like(c, j++, 1);
    c->n_outputs = j;
    return true;
}

/* Forward: the product 2NVC, per logit max, subtract, exp, sum, per row one addition, and the mean's product. Backward: per logit
 * subtract, exp, times the scale, and one product for each gradient. */
static void linear_cross_entropy_cost(const tl_call *c, struct cost *cost) {
    count N = (count)c->input[0]->shape[0], C = (count)c->input[0]->shape[1], V = (count)c->input[1]->shape[0];
    count read = 0, written = 0;
    for (int i = 0; i < 3; i++) read += tensor_traffic(c->input[i]);
    for (int j = 1; j < c->n_outputs; j++) written += tensor_traffic(c->output[j]);
    *cost = (struct cost){
        .n_parts = 1, .part[0] = {COST_HERE, 2 * N * V * C + 4 * N * V + N + 1, read, tensor_traffic(c->output[0])}};
    if (c->n_outputs > 1)
        cost->part[cost->n_parts++] =
            (struct cost_part){TL_BACKWARD, 3 * N * V + (count)(c->n_outputs - 1) * 2 * N * V * C, 0, written};
}

/* What the products of a chunk need: logits, dx and dweight, one after the other. */
static size_t product_workspace(const tl_call *c, const struct target *target) {
    const struct attr_linear_cross_entropy *a = c->attr;
    const tl_dtype dtype = c->input[0]->dtype;
    if (target->kind == DEVICE_CUDA || dtype == TL_F64) return target->gemm_workspace_bytes;
    const int64_t n = a->chunk_rows, C = c->input[0]->shape[1], V = c->input[1]->shape[0];
    const int64_t n_back = a->is_gathered ? c->input[0]->shape[0] : n;
    const struct gemm_sizes logits = {1, n, V, C}, dx = {1, n_back, C, V}, dweight = {1, V, C, n_back};
    const bool is_bf16 = dtype == TL_BF16, is_narrow = dtype != TL_F32;
    size_t most = gemm_workspace_bytes(&logits, is_bf16, false);
    const size_t of_dx = a->gives_dx ? gemm_workspace_bytes(&dx, is_bf16, is_narrow) : 0;
    const size_t of_dweight = a->gives_dweight ? gemm_workspace_bytes(&dweight, is_bf16, a->is_gathered) : 0;
    if (of_dx > most) most = of_dx;
    return of_dweight > most ? of_dweight : most;
}

static size_t linear_cross_entropy_workspace(const tl_call *c, const struct target *target) {
    const struct attr_linear_cross_entropy *a = c->attr;
    const tl_tensor *x = c->input[0], *w = c->input[1];
    const size_t V = (size_t)w->shape[0], C = (size_t)w->shape[1];
    const size_t row = (size_t)row_elements(w->shape[0], target),
                 element = statistics_dtype(x->dtype) == TL_F64 ? 8 : 4;
    const bool is_narrow = dtype_info(w->dtype)->bits < 32;
    size_t bytes = round_up((size_t)a->chunk_rows * row * (size_t)logit_bytes(x->dtype, target), 64);
    bytes += round_up((size_t)x->shape[0] * element, 64);
    if (a->is_gathered) bytes += round_up((size_t)x->shape[0] * row * 2, 64);
    else if (a->gives_dweight && is_narrow) bytes += round_up(row * C * element, 64);
    if (is_narrow && row != V) bytes += round_up(row * C * 2, 64); /* the longer weight */
    return bytes + product_workspace(c, target);
}

/* What forward left, times the gradient of the loss: in place where nobody will come again. */
static tl_tensor *scaled(tl_gradient *g, int output) {
    tl_tensor *x = gradient_output(g, output);
    if (!x || g->retains_graph) return x ? tl_mul(x, g->grad[0]) : NULL;
    x = scope_adopt(tensor_keep(x)); /* the node lets go of it before it is delivered */
    return x ? tl_mul_(tl_set_purpose(x, TL_TEMPORARY), g->grad[0]) : NULL;
}

/* dx and dweight of the loss are there; times g */
static void linear_cross_entropy_backward(tl_gradient *g) {
    const struct attr_linear_cross_entropy *a = g->node->attr;
    if (g->creates_graph) {
        error_set(TL_ERROR_USE,
                  "derivative for the gradient of linear_cross_entropy is not implemented (need tl_linear and "
                  "tl_cross_entropy)");
        return;
    }
    if (a->gives_dx && g->needs[0]) g->result[0] = scaled(g, 1);
    if (a->gives_dweight && g->needs[1]) g->result[1] = scaled(g, a->gives_dx ? 2 : 1);
}

const tl_op op_linear_cross_entropy = {RECORD(KERNEL, linear_cross_entropy, 3),
                                       .shapes = "x (N,C), weight (V,C), targets (N): loss () [, dx, dweight]",
                                       .dtypes = "floats; targets i64, i32; loss f32 (f64 for f64)",
                                       .flops = "2NVC + 4NV + N + 1; in phase backward 3NV and 2NVC per gradient",
                                       .shape = linear_cross_entropy_shape,
                                       .cost = linear_cross_entropy_cost,
                                       .workspace = linear_cross_entropy_workspace,
                                       .backward = linear_cross_entropy_backward,
                                       .saves_any = TL_OUTPUT(1) | TL_OUTPUT(2)};

tl_linear_cross_entropy_options tl_linear_cross_entropy_defaults(void) {
    return (tl_linear_cross_entropy_options){.ignore_index = -100};
}

tl_tensor *tl_linear_cross_entropy(tl_tensor *x, tl_tensor *weight, tl_tensor *targets,
                                   const tl_linear_cross_entropy_options *options) {
    if (!tensor_check(x, "linear_cross_entropy") || !tensor_check(weight, "linear_cross_entropy") ||
        !tensor_check(targets, "linear_cross_entropy"))
        return NULL;
    const tl_linear_cross_entropy_options defaults = tl_linear_cross_entropy_defaults();
    if (!options) options = &defaults;
    tl_scope scope = tl_scope_begin(); /* the gradients stay with the node alone */
    if (!scope.depth) return NULL;
    x = autocast_narrow(x);
    weight = autocast_narrow(weight);
    tl_tensor *input[3] = {x, weight, targets}, *loss = NULL;
    for (int i = 0; i < 3; i++) input[i] = tl_contiguous(input[i]);
    if (input[0] && input[1] && input[2]) {
        bool is_recording = !thread_state()->grad_off;
        struct attr_linear_cross_entropy a;
        memset(&a, 0, sizeof a);
        a.ignore_index = options->ignore_index;
        a.is_sum = options->is_sum;
        a.is_fast = matmul_is_fast();
        a.is_timed = fast_is_on();
        a.chunk_rows = x->rank == 2 && weight->rank == 2
                           ? chunk_rows(x->shape[0], weight->shape[0], input[0]->dtype, x->storage->device->target)
                           : 1;
        a.gives_dx = is_recording && tensor_needs_grad(input[0]);
        a.gives_dweight = is_recording && tensor_needs_grad(input[1]);
        a.is_gathered = a.gives_dweight && x->rank == 2 &&
                        is_gathered(x->shape[0], x->shape[1], input[0]->dtype, x->storage->device->target);
        tl_call c;
        call_begin(&c, &op_linear_cross_entropy, input, 3, ATTR(a));
        loss = op_apply(&c);
    }
    return tl_scope_return(scope, loss);
}
