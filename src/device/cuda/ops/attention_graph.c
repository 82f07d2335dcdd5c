/* attention_graph.c: attention in cuDNN's terms.
 *
 * cuDNN has no attention call: one describes matmuls, reductions and pointwise steps between tensors, and an engine
 * recognises the pattern. The order of steps and the types of the intermediates below are therefore not a matter of
 * taste; they are what cuDNN's own frontend writes, and an equivalent order falls to slower engines or none.
 *
 * Layout. cuDNN thinks (B,H,T,D); our (B,T,H,D) tensors are described so by their strides, nothing moves. K (and in
 * the backward V) is described transposed, by swapping sizes and strides. Intermediates are f32, but for what a
 * matmul takes as its left side in the type of the tensors.
 */
#include "device/cuda/ops/attention_graph.h"

#include "device/cuda/shared/attention_rule.h"

#include <string.h>

/* ---- Descriptors -------------------------------------------------------------------------------------- */

bool graph_note(struct graph *graph, cudnnStatus_t status, const char *what) {
    if (graph->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        graph->status = status;
        graph->failed_at = what;
    }
    return graph->status == CUDNN_STATUS_SUCCESS;
}

descriptor graph_new(struct graph *graph, cudnnBackendDescriptorType_t type, const char *what) {
    descriptor d = NULL;
    if (graph->status != CUDNN_STATUS_SUCCESS) return NULL;
    if (graph->n_all == GRAPH_MAX_DESCRIPTORS) {
        graph_note(graph, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
        return NULL;
    }
    if (graph_note(graph, cudnnBackendCreateDescriptor(type, &d), what)) graph->all[graph->n_all++] = d;
    return d;
}

void graph_set(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t count, const void *values, const char *what) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph_note(graph, cudnnBackendSetAttribute(d, name, type, count, values), what);
}

void graph_finalize(struct graph *graph, descriptor d, const char *what) {
    if (graph->status == CUDNN_STATUS_SUCCESS) graph_note(graph, cudnnBackendFinalize(d), what);
}

void graph_begin(struct graph *graph) {
    memset(graph, 0, sizeof *graph);
    graph->next_virtual = ID_VIRTUAL;
}

void graph_release(struct graph *graph) {
    for (int i = graph->n_all - 1; i >= 0; i--) cudnnBackendDestroyDescriptor(graph->all[i]);
    graph->n_all = 0;
}

/* ---- Tensors and steps -------------------------------------------------------------------------------- */

struct extent {
    int64_t size[4], stride[4];
};

static struct extent extent_dense(int64_t b, int64_t h, int64_t r, int64_t c) {
    return (struct extent){{b, h, r, c}, {h * r * c, r * c, c, 1}};
}

/* Rows of D as cuDNN wants them, (B,H,T,D): the strides of our (B,T,H,D), in another order. */
static struct extent extent_rows(const struct attention_rows *rows, int64_t B, int64_t H, int64_t T, int64_t D) {
    return (struct extent){{B, H, T, D}, {rows->stride_b, rows->stride_h, rows->stride_t, 1}};
}

static struct extent extent_transposed(struct extent x) {
    return (struct extent){{x.size[0], x.size[1], x.size[3], x.size[2]},
                           {x.stride[0], x.stride[1], x.stride[3], x.stride[2]}};
}

static descriptor tensor_make(struct graph *graph, int64_t id, cudnnDataType_t type, struct extent x, bool is_virtual,
                              bool is_by_value) {
    const int64_t alignment = 16;
    descriptor d = graph_new(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    graph_set(graph, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, "tensor id");
    graph_set(graph, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, "tensor type");
    graph_set(graph, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, x.size, "tensor sizes");
    graph_set(graph, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, x.stride, "tensor strides");
    graph_set(graph, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, "tensor alignment");
    if (is_virtual)
        graph_set(graph, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, "virtual tensor");
    if (is_by_value) graph_set(graph, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value, "scalar");
    graph_finalize(graph, d, "tensor");
    return d;
}

static descriptor tensor_real(struct graph *graph, enum tensor_id id, cudnnDataType_t type, struct extent x) {
    return tensor_make(graph, id, type, x, false, false);
}

/* An f32 number that is handed over with every execution. */
static descriptor tensor_scalar(struct graph *graph, enum tensor_id id) {
    return tensor_make(graph, id, CUDNN_DATA_FLOAT, extent_dense(1, 1, 1, 1), false, true);
}

static descriptor tensor_virtual(struct graph *graph, cudnnDataType_t type, struct extent x) {
    return tensor_make(graph, graph->next_virtual++, type, x, true, false);
}

static void operation_add(struct graph *graph, descriptor d, const char *what) {
    graph_finalize(graph, d, what);
    if (graph->status != CUDNN_STATUS_SUCCESS) return;
    if (graph->n_operations == GRAPH_MAX_OPERATIONS)
        graph_note(graph, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
    else graph->operations[graph->n_operations++] = d;
}

/* y = mode(x [, b [, t]]); axis: of CUDNN_POINTWISE_GEN_INDEX, else -1. */
static void step_pointwise(struct graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis,
                           descriptor x, descriptor b, descriptor t, descriptor y) {
    descriptor how = graph_new(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise");
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, "pointwise mode");
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, "pointwise type");
    if (axis >= 0) graph_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis, "pointwise axis");
    graph_finalize(graph, how, "pointwise");
    descriptor d = graph_new(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    const cudnnBackendAttributeType_t is = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    graph_set(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, is, 1, &how, "pointwise");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, is, 1, &x, "pointwise x");
    if (b) graph_set(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, is, 1, &b, "pointwise b");
    if (t) graph_set(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, is, 1, &t, "pointwise t");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, is, 1, &y, "pointwise y");
    operation_add(graph, d, "pointwise operation");
}

/* How far each axis of c = a b really goes, one number per batch entry; NULL: as far as the tensors say. */
struct reach {
    descriptor m, n, k;
};

static void step_matmul(struct graph *graph, descriptor a, descriptor b, struct reach reach, descriptor c) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    descriptor how = graph_new(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul");
    graph_set(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, "matmul type");
    graph_finalize(graph, how, "matmul");
    descriptor d = graph_new(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul");
    const cudnnBackendAttributeType_t is = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    graph_set(graph, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, is, 1, &how, "matmul");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, is, 1, &a, "matmul a");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, is, 1, &b, "matmul b");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, is, 1, &c, "matmul c");
    if (reach.m) graph_set(graph, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, is, 1, &reach.m, "matmul m");
    if (reach.n) graph_set(graph, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, is, 1, &reach.n, "matmul n");
    if (reach.k) graph_set(graph, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, is, 1, &reach.k, "matmul k");
    operation_add(graph, d, "matmul operation");
}

/* Over the axes where y has size 1 (or, for grouped heads, a divisor) and x has more. */
static void step_reduce(struct graph *graph, cudnnReduceTensorOp_t operator, descriptor x, descriptor y) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    descriptor how = graph_new(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operator, "reduction");
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, "reduction type");
    graph_finalize(graph, how, "reduction");
    descriptor d = graph_new(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction");
    const cudnnBackendAttributeType_t is = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    graph_set(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, is, 1, &how, "reduction");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, is, 1, &x, "reduction x");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, is, 1, &y, "reduction y");
    operation_add(graph, d, "reduction operation");
}

static void step_reshape(struct graph *graph, descriptor x, descriptor y) {
    descriptor d = graph_new(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x, "reshape x");
    graph_set(graph, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y, "reshape y");
    operation_add(graph, d, "reshape operation");
}

/* A new intermediate that is mode(x [, b]) in f32. */
static descriptor pointwise_f32(struct graph *graph, cudnnPointwiseMode_t mode, descriptor x, descriptor b,
                                struct extent y) {
    descriptor result = tensor_virtual(graph, CUDNN_DATA_FLOAT, y);
    step_pointwise(graph, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, result);
    return result;
}

/* The number of queries and of keys, as tensors of one i32 per batch entry. NULL where the tensors' sizes say it. */
struct lengths {
    descriptor queries, keys;
};

static descriptor index_along(struct graph *graph, descriptor score, struct extent scores, int64_t axis,
                              cudnnDataType_t compute) {
    descriptor index = tensor_virtual(graph, CUDNN_DATA_INT32, scores);
    step_pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, compute, axis, score, NULL, NULL, index);
    return index;
}

static descriptor comparison(struct graph *graph, cudnnPointwiseMode_t mode, descriptor x, descriptor b,
                             struct extent scores) {
    descriptor result = tensor_virtual(graph, CUDNN_DATA_BOOLEAN, scores);
    step_pointwise(graph, mode, CUDNN_DATA_BOOLEAN, -1, x, b, NULL, result);
    return result;
}

static descriptor score_where(struct graph *graph, descriptor is_seen, descriptor score, descriptor minus_infinity,
                              struct extent scores) {
    descriptor masked = tensor_virtual(graph, CUDNN_DATA_FLOAT, scores);
    step_pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, score, minus_infinity, is_seen, masked);
    return masked;
}

/* score where row and column are within the lengths, -inf elsewhere */
static descriptor length_mask(struct graph *graph, descriptor score, struct extent scores, struct lengths lengths) {
    descriptor row = index_along(graph, score, scores, 2, CUDNN_DATA_INT32);
    descriptor column = index_along(graph, score, scores, 3, CUDNN_DATA_INT32);
    descriptor is_query = comparison(graph, CUDNN_POINTWISE_CMP_LT, row, lengths.queries, scores);
    descriptor is_key = comparison(graph, CUDNN_POINTWISE_CMP_LT, column, lengths.keys, scores);
    descriptor is_seen = comparison(graph, CUDNN_POINTWISE_LOGICAL_AND, is_query, is_key, scores);
    return score_where(graph, is_seen, score, tensor_scalar(graph, ID_LENGTH_MINUS_INFINITY), scores);
}

/* score where row >= column, -inf elsewhere */
static descriptor causal_mask(struct graph *graph, descriptor score, struct extent scores) {
    descriptor row = index_along(graph, score, scores, 2, CUDNN_DATA_FLOAT);
    descriptor column = index_along(graph, score, scores, 3, CUDNN_DATA_FLOAT);
    descriptor is_seen = comparison(graph, CUDNN_POINTWISE_CMP_GE, row, column, scores);
    return score_where(graph, is_seen, score, tensor_scalar(graph, ID_MINUS_INFINITY), scores);
}

/* ---- The two graphs ----------------------------------------------------------------------------------- */

static cudnnDataType_t type_of(tl_dtype dtype) { return dtype == TL_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF; }

/* s = scale q k^T; lse = max + log sum exp(s - max); out = exp(s - max) / sum v */
void graph_forward(struct graph *graph, const struct attention_call *call) {
    const int64_t B = call->B, H = call->H, T = call->T, S = call->S, D = call->D;
    const cudnnDataType_t type = type_of(call->dtype);
    const struct extent scores = extent_dense(B, H, T, S), per_row = extent_dense(B, H, T, 1);
    descriptor q = tensor_real(graph, ID_Q, type, extent_rows(&call->q, B, H, T, D));
    descriptor kt = tensor_real(graph, ID_K, type, extent_transposed(extent_rows(&call->k, B, call->H_kv, S, D)));
    descriptor v = tensor_real(graph, ID_V, type, extent_rows(&call->v, B, call->H_kv, S, D));
    descriptor out = tensor_real(graph, ID_OUT, type, extent_rows(&call->out, B, H, T, D));
    descriptor lse = tensor_real(graph, ID_LSE, CUDNN_DATA_FLOAT, per_row);
    descriptor scale = tensor_scalar(graph, ID_SCALE);

    descriptor score = tensor_virtual(graph, CUDNN_DATA_FLOAT, scores);
    step_matmul(graph, q, kt, (struct reach){0}, score);
    score = pointwise_f32(graph, CUDNN_POINTWISE_MUL, score, scale, scores);
    if (call->causal) score = causal_mask(graph, score, scores);

    descriptor top = tensor_virtual(graph, CUDNN_DATA_FLOAT, per_row);
    step_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, score, top);
    descriptor below = pointwise_f32(graph, CUDNN_POINTWISE_SUB, score, top, scores);
    descriptor weight = pointwise_f32(graph, CUDNN_POINTWISE_EXP, below, NULL, scores);
    descriptor sum = tensor_virtual(graph, CUDNN_DATA_FLOAT, per_row);
    step_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, weight, sum);
    descriptor log_sum = pointwise_f32(graph, CUDNN_POINTWISE_LOG, sum, NULL, per_row);
    step_pointwise(graph, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, top, log_sum, NULL, lse);

    /* The second matmul wants its left side in the type of the tensors. */
    descriptor p = tensor_virtual(graph, type, scores);
    step_pointwise(graph, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1, weight, sum, NULL, p);
    step_matmul(graph, p, v, (struct reach){0}, out);
}

/* x^T y over queries: a (B,H,S,D) product written to `to`, or, with grouped heads, summed into it over each group. */
static void product_of_keys(struct graph *graph, const struct attention_call *call, descriptor x, descriptor y,
                            struct lengths lengths, descriptor to) {
    const struct reach reach = {.m = lengths.keys, .k = lengths.queries};
    if (call->H == call->H_kv) {
        step_matmul(graph, x, y, reach, to);
        return;
    }
    descriptor full = tensor_virtual(graph, type_of(call->dtype), extent_dense(call->B, call->H, call->S, call->D));
    step_matmul(graph, x, y, reach, full);
    step_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, full, to);
}

/* p = exp(scale q k^T - lse);  dv = p^T g;  softmax_sum = rowsum(g out);
 * ds = p (g v^T - softmax_sum) scale;  dk = ds^T q;  dq = ds k */
void graph_backward(struct graph *graph, const struct attention_call *call, bool is_fast) {
    const int64_t B = call->B, H = call->H, T = call->T, S = call->S, D = call->D;
    const cudnnDataType_t type = type_of(call->dtype);
    const struct extent scores = extent_dense(B, H, T, S), per_row = extent_dense(B, H, T, 1);
    const struct extent scores_t = {{B, H, S, T}, {H * T * S, T * S, 1, S}};
    const struct extent rows = extent_dense(B, H, T, D), keys = extent_rows(&call->k, B, call->H_kv, S, D);
    descriptor q = tensor_real(graph, ID_Q, type, extent_rows(&call->q, B, H, T, D));
    descriptor kt = tensor_real(graph, ID_K, type, extent_transposed(keys));
    descriptor vt = tensor_real(graph, ID_V, type, extent_transposed(extent_rows(&call->v, B, call->H_kv, S, D)));
    descriptor out = tensor_real(graph, ID_OUT, type, extent_rows(&call->out, B, H, T, D));
    descriptor g = tensor_real(graph, ID_G, type, extent_rows(&call->g, B, H, T, D));
    descriptor lse = tensor_real(graph, ID_LSE, CUDNN_DATA_FLOAT, per_row);
    descriptor dq = tensor_real(graph, ID_DQ, type, extent_rows(&call->dq, B, H, T, D));
    descriptor dk = tensor_real(graph, ID_DK, type, extent_rows(&call->dk, B, call->H_kv, S, D));
    descriptor dv = tensor_real(graph, ID_DV, type, extent_rows(&call->dv, B, call->H_kv, S, D));
    descriptor scale = tensor_scalar(graph, ID_SCALE);
    struct lengths lengths = {NULL, NULL};
    if (attention_tells_lengths(call->S)) {
        const struct extent per_entry = {{B, 1, 1, 1}, {1, 1, 1, 1}};
        lengths.queries = tensor_real(graph, ID_QUERY_LENGTHS, CUDNN_DATA_INT32, per_entry);
        lengths.keys = tensor_real(graph, ID_KEY_LENGTHS, CUDNN_DATA_INT32, per_entry);
    }
    const struct reach on_scores = {.m = lengths.queries, .n = lengths.keys},
                       on_queries = {.m = lengths.queries, .k = lengths.keys};

    /* The multiplication by one is where dropout's scale would be; without it no engine matches. */
    descriptor product = pointwise_f32(graph, CUDNN_POINTWISE_MUL, g, out, rows);
    descriptor row_sum = tensor_virtual(graph, CUDNN_DATA_FLOAT, per_row);
    step_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, product, row_sum);
    descriptor softmax_sum = tensor_real(graph, ID_SOFTMAX_SUM, CUDNN_DATA_FLOAT, per_row);
    descriptor one = tensor_scalar(graph, ID_ONE);
    step_pointwise(graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, row_sum, one, NULL, softmax_sum);

    descriptor score = tensor_virtual(graph, CUDNN_DATA_FLOAT, scores);
    step_matmul(graph, q, kt, on_scores, score);
    score = pointwise_f32(graph, CUDNN_POINTWISE_MUL, score, scale, scores);
    if (lengths.keys) score = length_mask(graph, score, scores, lengths);
    score = pointwise_f32(graph, CUDNN_POINTWISE_SUB, score, lse, scores);
    if (call->causal) score = causal_mask(graph, score, scores);
    descriptor p = pointwise_f32(graph, CUDNN_POINTWISE_EXP, score, NULL, scores);
    descriptor p_t = tensor_virtual(graph, type, scores_t);
    step_reshape(graph, p, p_t);
    product_of_keys(graph, call, p_t, g, lengths, dv);

    descriptor dp = tensor_virtual(graph, CUDNN_DATA_FLOAT, scores);
    step_matmul(graph, g, vt, on_scores, dp);
    descriptor ds = pointwise_f32(graph, CUDNN_POINTWISE_SUB, dp, softmax_sum, scores);
    ds = pointwise_f32(graph, CUDNN_POINTWISE_MUL, ds, p, scores);
    ds = pointwise_f32(graph, CUDNN_POINTWISE_MUL, ds, scale, scores);
    descriptor ds_t = tensor_virtual(graph, type, scores_t);
    step_reshape(graph, ds, ds_t);
    product_of_keys(graph, call, ds_t, q, lengths, dk);

    descriptor k = tensor_virtual(graph, CUDNN_DATA_FLOAT, keys);
    step_reshape(graph, kt, k);
    if (!is_fast) {
        step_matmul(graph, ds, k, on_queries, dq);
        return;
    }
    descriptor dq_sum = tensor_real(graph, ID_DQ_SUM, CUDNN_DATA_FLOAT, rows);
    step_matmul(graph, ds, k, on_queries, dq_sum);
    step_pointwise(graph, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, dq_sum, NULL, NULL, dq);
}
