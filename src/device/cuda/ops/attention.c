/* attention.c: attention and its gradient, by cuDNN if it can, otherwise by Tally's own kernels.
 *
 * Who does what. Forward of up to 8 queries of 16 bits, as in decoding: attention_few.cu. The gradient on compute
 * capability 9.0: attention_hopper.cu, and for heads of 129 to 256 attention_hopper_wide.cu. cuDNN: forward, and
 * backward elsewhere or, if it need not be deterministic, of wide heads: bf16 and f16, heads of a multiple of 8, rows
 * aligned to 16 bytes, causal only with T = S. device/cuda/shared/attention_rule.h has all rules. What cuDNN's graphs
 * lack, forward on 9.0: attention_hopper_forward.cu. Heads that are no multiple of 8 are copied to padded rows for
 * these (attention_pad.cu), if the call is long enough. Everything else is ours: other calls of 16 bits, and f32, with
 * heads of up to 256 on tensor cores (attention_tiles.cu), the rest (f64, wider heads, cards before 8.0) without
 * (attention_fma.cu), and up to 16 queries and keys by a warp for each (attention_own.cu).
 *
 * Lengths. Where S is no multiple of 128, the backward's last tile of keys is not full. Without explicit lengths,
 * cuDNN up to 9.15 gives wrong gradients then, and later versions can give NaN where lse is below -88, since keys
 * beyond the last one score 0 and exp(0 - lse) overflows. So every version gets explicit lengths, which lie in the
 * workspace, and masks the rest of the tile by them.
 *
 * Determinism. The fast backward gathers dQ with atomic additions in an f32 accumulator: it differs in bits from run
 * to run. Writing dQ straight from its matmul makes cuDNN choose an engine that stores the score gradients instead,
 * about 2 T S bytes per head, and repeats to the bit. That is the default; attr.is_fast asks for the fast one, which
 * is then left out where its plan does not fit the workspace.
 *
 * Bounded workspace. So that the T x S store stays a constant rather than growing with the batch, the deterministic
 * backward runs in slices of the batch (or, if one batch entry is already too much, of its heads): the largest
 * divisor of B that fits the workspace. What a slice takes is known from sizes (attention_slice_bytes), so that the
 * first plan built is the one used. The rule has room for at least one group of heads, up to 1 GiB of scores; beyond
 * that, or where no engine is deterministic, our own two-pass backward runs; it needs no T x S store at all.
 *
 * args->workspace of attention_grad is cut in this order, each part aligned to 256 bytes (b, h: of one slice):
 *     cuDNN:  softmax_sum (b,h,T) f32 | dQ accumulator (b,h,T,D) f32, fast only
 *             | lengths of queries (b) i32, of keys (b) i32, where S is no multiple of 128 | the plan's own
 *             workspace
 *     ours:   delta (B,H,T) f32 (f64) | padded heads: rows of q, out, g, dq, k, v, dk, dv
 * and of attention: the plan's own workspace, from the start; or what attention_few.cu says; or padded rows of q, k, v,
 * out.
 *
 * TALLY_CUDA_VERBOSE=1 prints every plan considered, with its workspace, on stderr.
 */
#include "device/cuda/ops/attention.h"
#include "device/cuda/ops/attention_graph.h"
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/state.h"
#include "device/cuda/shared/attention_rule.h"
#include "spec/attention_pack.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pass { FORWARD, BACKWARD_DETERMINISTIC, BACKWARD_FAST };

/* ---- Plans -------------------------------------------------------------------------------------------- */

/* The key of a plan; compared as bytes, so made from zeroed memory. */
struct key {
    int64_t B, T, S, H, H_kv, D;
    int64_t stride[8][3]; /* of q k v out g dq dk dv */
    uint64_t workspace_bytes;
    int32_t pass, dtype, is_causal, unused;
};

struct plan {
    struct key key;
    struct graph graph;                                               /* owns every descriptor, the plan's too */
    descriptor execution;                                             /* NULL: cuDNN cannot; Tally's kernels do it */
    int64_t n_batch, n_kv_heads;                                      /* of one slice */
    size_t softmax_sum_bytes, dq_sum_bytes, lengths_bytes, own_bytes; /* how the workspace is cut */
    size_t wanted_bytes; /* the whole workspace of a plan that was refused for it; 0: none was */
    struct plan *next;
};

struct attention_cache {
    cudnnHandle_t handle;
    struct plan *plans; /* some tens at most: one per layer shape */
    bool is_verbose;
    size_t version;
};

static void say(const struct attention_cache *cache, const char *format, ...) TL_PRINTF(2, 3);
static void say(const struct attention_cache *cache, const char *format, ...) {
    if (!cache->is_verbose) return;
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
}

static bool env_is_on(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

void attention_describe(char *text, size_t size) { snprintf(text, size, "cudnn %zu", cudnnGetVersion()); }

/* The cache of the stream's device; makes the cuDNN handle the first time. NULL, with the reason, if there is none. */
static struct attention_cache *cache_of(const tl_kernel_args *args) {
    struct cuda_state *state = cuda_state_of(args->stream);
    if (state->attention) return state->attention;
    struct attention_cache *cache = calloc(1, sizeof *cache);
    if (!cache) {
        snprintf(args->error, CUDA_ERROR_BYTES, "out of memory for attention plans");
        return NULL;
    }
    cache->is_verbose = env_is_on("TALLY_CUDA_VERBOSE");
    cache->version = cudnnGetVersion();
    cudnnStatus_t status = cudnnCreate(&cache->handle);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnSetStream(cache->handle, state->stream);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(args->error, CUDA_ERROR_BYTES, "cudnn: create: %s", cudnnGetErrorString(status));
        free(cache);
        return NULL;
    }
    say(cache, "tally: cudnn %zu\n", cache->version);
    return state->attention = cache;
}

/* Whether an engine says of itself that it does not repeat to the bit. */
static bool config_is_repeatable(struct graph *graph, descriptor config, int64_t *engine_index) {
    enum { MAX_NOTES = 32 };
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    int64_t n_notes = 0, count = 0;
    descriptor engine = graph_new(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    *engine_index = -1;
    if (!engine ||
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                 &engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
                                 &n_notes, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, engine_index) !=
        CUDNN_STATUS_SUCCESS)
        *engine_index = -1;
    for (int64_t i = 0; i < n_notes && i < MAX_NOTES; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    return true;
}

/* The first configuration the heuristic offers that makes a plan within the limit. *plan_bytes: its workspace, or,
 * when NULL is returned, that of the best plan that was too large (0: there was none). */
static descriptor plan_choose(struct attention_cache *cache, struct graph *graph, descriptor operation_graph,
                              bool wants_repeatable, size_t limit_bytes, size_t *plan_bytes) {
    enum { MAX_CONFIGS = 16 };
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor heuristic = graph_new(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic");
    graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &operation_graph, "heuristic graph");
    graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, "heuristic mode");
    graph_finalize(graph, heuristic, "heuristic");
    descriptor configs[MAX_CONFIGS];
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = graph_new(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "configuration");
    int64_t n_configs = 0;
    if (graph->status != CUDNN_STATUS_SUCCESS ||
        !graph_note(graph,
                    cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             MAX_CONFIGS, &n_configs, configs),
                    "heuristic results"))
        return NULL;

    for (int64_t i = 0; i < n_configs && i < MAX_CONFIGS; i++) {
        int64_t engine = -1, bytes = 0, count = 0;
        const bool is_repeatable = config_is_repeatable(graph, configs[i], &engine);
        descriptor plan = graph_new(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
        if (!plan) return NULL;
        /* A configuration that cannot be finalized is no error of the graph: the next one is tried. */
        const bool is_made =
            cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &cache->handle) ==
                CUDNN_STATUS_SUCCESS &&
            cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                     &configs[i]) == CUDNN_STATUS_SUCCESS &&
            cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
            cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                     &bytes) == CUDNN_STATUS_SUCCESS;
        say(cache, "tally:   configuration %lld of %lld: engine %lld%s, workspace %lld of %zu bytes%s\n", (long long)i,
            (long long)n_configs, (long long)engine, is_repeatable ? "" : ", not repeatable", (long long)bytes,
            limit_bytes, is_made ? "" : ", cannot be built");
        if (is_made && (is_repeatable || !wants_repeatable)) {
            if ((size_t)bytes <= limit_bytes) {
                *plan_bytes = (size_t)bytes;
                return plan;
            }
            graph->failed_at = "the workspace is too small";
            *plan_bytes = *plan_bytes ? *plan_bytes : (size_t)bytes;
        }
    }
    return NULL;
}

static size_t aligned(size_t bytes) { return round_up(bytes, ATTENTION_PART_BYTES); }

/* One slice's call: the same strides, fewer batch entries and heads. Heads are cut only when there is one batch
 * entry, so that (b,h,T) tensors such as lse, seen from the slice, are dense either way. */
static struct attention_call slice_of(const struct attention_call *call, int64_t n_batch, int64_t n_kv_heads) {
    struct attention_call slice = *call;
    slice.B = n_batch;
    slice.H = call->H / call->H_kv * n_kv_heads;
    slice.H_kv = n_kv_heads;
    return slice;
}

/* Cuts the workspace for slices of the given size. Returns the bytes before the plan's own. */
static size_t plan_cut(struct plan *plan, const struct attention_call *slice, enum pass pass) {
    const size_t n_rows = (size_t)(slice->B * slice->H * slice->T);
    plan->n_batch = slice->B;
    plan->n_kv_heads = slice->H_kv;
    plan->softmax_sum_bytes = pass == FORWARD ? 0 : aligned(n_rows * sizeof(float));
    plan->dq_sum_bytes = pass == BACKWARD_FAST ? aligned(n_rows * (size_t)slice->D * sizeof(float)) : 0;
    plan->lengths_bytes = pass == FORWARD ? 0 : attention_lengths_bytes(slice->S, slice->B);
    plan->own_bytes = plan->wanted_bytes = 0;
    return plan->softmax_sum_bytes + plan->dq_sum_bytes + plan->lengths_bytes;
}

/* Builds the plan for one slice. False: cuDNN cannot, or not within the workspace. */
static bool plan_build(struct attention_cache *cache, struct plan *plan, const struct attention_call *slice,
                       enum pass pass) {
    struct graph *graph = &plan->graph;
    graph_begin(graph);
    const size_t taken = plan_cut(plan, slice, pass);
    if (taken > plan->key.workspace_bytes) {
        plan->wanted_bytes = taken;
        say(cache, "tally:   needs %zu bytes before any plan, has %llu\n", taken,
            (unsigned long long)plan->key.workspace_bytes);
        return false;
    }

    if (pass == FORWARD) graph_forward(graph, slice);
    else graph_backward(graph, slice, pass == BACKWARD_FAST);
    descriptor operation_graph = graph_new(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
    graph_set(graph, operation_graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cache->handle, "handle");
    graph_set(graph, operation_graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->n_operations,
              graph->operations, "operations");
    graph_finalize(graph, operation_graph, "operation graph");
    if (graph->status == CUDNN_STATUS_SUCCESS)
        plan->execution = plan_choose(cache, graph, operation_graph, pass == BACKWARD_DETERMINISTIC,
                                      (size_t)plan->key.workspace_bytes - taken, &plan->own_bytes);
    if (!plan->execution) {
        plan->wanted_bytes = plan->own_bytes ? taken + plan->own_bytes : 0;
        say(cache, "tally:   no plan for slices of %lld x %lld kv heads: %s, %s\n", (long long)slice->B,
            (long long)slice->H_kv, graph->failed_at ? graph->failed_at : "no configuration",
            cudnnGetErrorString(graph->status));
        graph_release(graph);
        return false;
    }
    return true;
}

/* The next smaller slice: the next smaller divisor of B, then, of one batch entry, of H_kv. False after the
 * smallest. */
static bool slice_shrink(const struct attention_call *call, int64_t *n_batch, int64_t *n_kv_heads) {
    int64_t *n = *n_batch > 1 ? n_batch : n_kv_heads;
    const int64_t whole = *n_batch > 1 ? call->B : call->H_kv;
    if (*n <= 1) return false;
    do (*n)--;
    while (whole % *n != 0);
    return true;
}

static struct attention_sizes sizes_of(const struct attention_call *call) {
    return (struct attention_sizes){call->B, call->T, call->S, call->H, call->H_kv, call->D};
}

/* Fills in plan->execution, or leaves it NULL for our kernels. */
static void plan_fill(struct attention_cache *cache, struct plan *plan, const struct attention_call *call,
                      enum pass pass) {
    int64_t n_batch = call->B, n_kv_heads = call->H_kv;
    say(cache, "tally: attention %s %s B %lld T %lld S %lld H %lld/%lld D %lld, workspace %llu\n",
        pass == FORWARD         ? "forward"
        : pass == BACKWARD_FAST ? "fast backward"
                                : "backward",
        cuda_dtype_name(call->dtype), (long long)call->B, (long long)call->T, (long long)call->S, (long long)call->H,
        (long long)call->H_kv, (long long)call->D, (unsigned long long)plan->key.workspace_bytes);
    if (pass != BACKWARD_DETERMINISTIC) {
        plan_build(cache, plan, call, pass);
        return;
    }
    /* Sizes that cannot fit are not tried: each attempt costs a plan. */
    const struct attention_sizes sizes = sizes_of(call);
    for (int tries = 0; tries < 4;) {
        const struct attention_call slice = slice_of(call, n_batch, n_kv_heads);
        const size_t wanted = attention_slice_bytes(&sizes, slice.B * slice.H), taken = plan_cut(plan, &slice, pass);
        if (taken <= plan->key.workspace_bytes && wanted <= plan->key.workspace_bytes - taken) {
            if (plan_build(cache, plan, &slice, pass)) return;
            tries++;
        }
        if (!slice_shrink(call, &n_batch, &n_kv_heads)) break;
    }
    say(cache, "tally:   falls to the two-pass backward\n");
}

/* The plan for a call, made if need be; NULL only when there is no memory for it. */
static struct plan *plan_find(struct attention_cache *cache, const struct attention_call *call, enum pass pass,
                              size_t workspace_bytes) {
    struct key key;
    memset(&key, 0, sizeof key);
    key.B = call->B;
    key.T = call->T;
    key.S = call->S;
    key.H = call->H;
    key.H_kv = call->H_kv;
    key.D = call->D;
    key.workspace_bytes = workspace_bytes;
    key.pass = (int32_t)pass;
    key.dtype = (int32_t)call->dtype;
    key.is_causal = call->causal;
    const struct attention_rows *rows[8] = {&call->q, &call->k,  &call->v,  &call->out,
                                            &call->g, &call->dq, &call->dk, &call->dv};
    for (int i = 0; i < (pass == FORWARD ? 4 : 8); i++) {
        key.stride[i][0] = rows[i]->stride_b;
        key.stride[i][1] = rows[i]->stride_t;
        key.stride[i][2] = rows[i]->stride_h;
    }
    for (struct plan *plan = cache->plans; plan; plan = plan->next)
        if (memcmp(&plan->key, &key, sizeof key) == 0) return plan;
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan) return NULL;
    plan->key = key;
    plan_fill(cache, plan, call, pass);
    plan->next = cache->plans;
    return cache->plans = plan;
}

/* ---- Execution ---------------------------------------------------------------------------------------- */

static void *rows_from(const struct attention_rows *rows, int64_t b, int64_t h) {
    return (char *)rows->data + (b * rows->stride_b + h * rows->stride_h) * 2; /* 16-bit elements */
}

/* Runs the slice that begins at batch entry b and kv head h. */
static bool execute(struct attention_cache *cache, const struct plan *plan, const struct attention_call *call,
                    int64_t b, int64_t h_kv, const tl_kernel_args *args) {
    const int64_t h = h_kv * (call->H / call->H_kv);
    /* True infinity where cuDNN computes with it correctly. */
    float scale = (float)call->scale, minus_infinity = cache->version >= 91000 ? -INFINITY : -FLT_MAX, one = 1;
    char *softmax_sum = args->workspace, *dq_sum = softmax_sum + plan->softmax_sum_bytes;
    char *lengths = dq_sum + plan->dq_sum_bytes;
    void *own = lengths + plan->lengths_bytes;
    int64_t ids[20];
    void *data[20];
    int n = 0;
    const struct {
        enum tensor_id id;
        void *data;
        bool is_used;
    } all[] = {
        {ID_Q, rows_from(&call->q, b, h), true},
        {ID_K, rows_from(&call->k, b, h_kv), true},
        {ID_V, rows_from(&call->v, b, h_kv), true},
        {ID_OUT, rows_from(&call->out, b, h), true},
        {ID_LSE, (float *)call->lse + (b * call->H + h) * call->T, true},
        {ID_SCALE, &scale, true},
        {ID_MINUS_INFINITY, &minus_infinity, call->causal},
        {ID_G, rows_from(&call->g, b, h), plan->key.pass != FORWARD},
        {ID_DQ, rows_from(&call->dq, b, h), plan->key.pass != FORWARD},
        {ID_DK, rows_from(&call->dk, b, h_kv), plan->key.pass != FORWARD},
        {ID_DV, rows_from(&call->dv, b, h_kv), plan->key.pass != FORWARD},
        {ID_SOFTMAX_SUM, softmax_sum, plan->key.pass != FORWARD},
        {ID_ONE, &one, plan->key.pass != FORWARD},
        {ID_DQ_SUM, dq_sum, plan->key.pass == BACKWARD_FAST},
        {ID_QUERY_LENGTHS, lengths, plan->lengths_bytes > 0},
        {ID_KEY_LENGTHS, lengths + plan->lengths_bytes / 2, plan->lengths_bytes > 0},
        {ID_LENGTH_MINUS_INFINITY, &minus_infinity, plan->lengths_bytes > 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is_used) {
            ids[n] = all[i].id;
            data[n++] = all[i].data;
        }
    /* Before 9.6 the accumulator had to come zeroed; later versions do it themselves, and this costs little. */
    if (plan->dq_sum_bytes && cache->version < 90600 &&
        !cuda_check(cudaMemsetAsync(dq_sum, 0, plan->dq_sum_bytes, (cudaStream_t)args->stream), args->op, args->error))
        return false;

    struct graph pack; /* only for its error keeping */
    graph_begin(&pack);
    descriptor d = graph_new(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
    graph_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids, "ids");
    graph_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data, "pointers");
    graph_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &own, "workspace");
    graph_finalize(&pack, d, "variant pack");
    if (pack.status == CUDNN_STATUS_SUCCESS)
        graph_note(&pack, cudnnBackendExecute(cache->handle, plan->execution, d), "execute");
    graph_release(&pack);
    if (pack.status == CUDNN_STATUS_SUCCESS) return true;
    snprintf(args->error, CUDA_ERROR_BYTES, "%s: cudnn: %s: %s", args->op, pack.failed_at,
             cudnnGetErrorString(pack.status));
    return false;
}

static bool execute_slices(struct attention_cache *cache, const struct plan *plan, const struct attention_call *call,
                           const tl_kernel_args *args) {
    if (plan->lengths_bytes) { /* the same for every slice */
        char *lengths = (char *)args->workspace + plan->softmax_sum_bytes + plan->dq_sum_bytes;
        attention_lengths_write(args, (int32_t *)lengths, (int32_t *)(lengths + plan->lengths_bytes / 2), plan->n_batch,
                                call->T, call->S);
    }
    for (int64_t b = 0; b < call->B; b += plan->n_batch)
        for (int64_t h_kv = 0; h_kv < call->H_kv; h_kv += plan->n_kv_heads)
            if (!execute(cache, plan, call, b, h_kv, args)) return false;
    return true;
}

/* ---- The ops ------------------------------------------------------------------------------------------ */

static struct attention_rows rows_dense(const tl_operand *x) {
    const int64_t t = x->shape[2] * x->shape[3];
    return (struct attention_rows){x->data, x->shape[1] * t, t, x->shape[3]};
}

/* An axis of size 1 may carry any stride; it gets the one a dense tensor would have. */
static struct attention_rows rows_of(const tl_operand *x) {
    struct attention_rows rows = rows_dense(x);
    if (x->shape[0] != 1) rows.stride_b = x->stride[0];
    if (x->shape[1] != 1) rows.stride_t = x->stride[1];
    if (x->shape[2] != 1) rows.stride_h = x->stride[2];
    return rows;
}

static struct attention_call call_of(const tl_kernel_args *args, const tl_operand *q, const tl_operand *k,
                                     const tl_operand *v) {
    const struct attr_attention *attr = args->attr;
    struct attention_call call;
    memset(&call, 0, sizeof call);
    call.B = q->shape[0];
    call.T = q->shape[1];
    call.H = q->shape[2];
    call.D = q->shape[3];
    call.S = k->shape[1];
    call.H_kv = k->shape[2];
    call.scale = attr->scale;
    call.soft_cap = attr->soft_cap;
    call.causal = attr->causal;
    call.dropout = attr->dropout;
    call.generator = attr->generator;
    const int64_t all = call.S + call.T; /* farther than any key from any query */
    call.left = attr->window > 0 && attr->window < all ? attr->window - 1 : all;
    call.right = attr->causal ? 0 : call.left;
    call.dtype = q->dtype;
    call.q = rows_of(q);
    call.k = rows_of(k);
    call.v = rows_of(v);
    return call;
}

/* Every row starts at a multiple of 16 bytes, and no axis is expanded or backwards. */
static bool rows_fit_cudnn(const struct attention_rows *rows) {
    return (uintptr_t)rows->data % 16 == 0 && rows->stride_b > 0 && rows->stride_t > 0 && rows->stride_h > 0 &&
           (rows->stride_b | rows->stride_t | rows->stride_h) % 8 == 0;
}

static bool call_fits_cudnn(const struct attention_call *call, const tl_kernel_args *args, enum pass pass) {
    const struct attention_sizes sizes = sizes_of(call);
    const int capability = cuda_state_of(args->stream)->capability;
    if (!attention_fits_cudnn(&sizes, call->dtype == TL_BF16 || call->dtype == TL_F16, args->attr, capability))
        return false;
    if (!rows_fit_cudnn(&call->q) || !rows_fit_cudnn(&call->k) || !rows_fit_cudnn(&call->v) ||
        !rows_fit_cudnn(&call->out))
        return false;
    return pass == FORWARD || (rows_fit_cudnn(&call->g) && rows_fit_cudnn(&call->dq) && rows_fit_cudnn(&call->dk) &&
                               rows_fit_cudnn(&call->dv));
}

/* Masks that our kernels on tensor cores read. */
static bool mask_is_read(const struct attention_call *call) {
    return !call->mask || call->mask_dtype == TL_BOOL || call->mask_dtype == TL_BF16 || call->mask_dtype == TL_F16 ||
           call->mask_dtype == TL_F32;
}
/* Hopper's kernels count the bytes from query to query and from key to key in an int, and divide a mask by scale. */
static bool mask_fits_hopper(const struct attention_call *call) {
    const int64_t *stride = call->mask_stride, most = 1 << 28;
    return mask_is_read(call) && (!call->mask || (stride[2] > -most && stride[2] < most && stride[3] > -most &&
                                                  stride[3] < most && call->scale > 0));
}

/* TMA can read the rows. */
static bool rows_fit_hopper(const struct attention_call *call) {
    return rows_fit_cudnn(&call->q) && rows_fit_cudnn(&call->k) && rows_fit_cudnn(&call->v) &&
           rows_fit_cudnn(&call->out);
}
static bool rows_fit_hopper_backward(const struct attention_call *call) {
    return rows_fit_hopper(call) && rows_fit_cudnn(&call->g) && rows_fit_cudnn(&call->dq) &&
           rows_fit_cudnn(&call->dk) && rows_fit_cudnn(&call->dv);
}

/* A later card that runs as one of 9.0 has the workspace, but not the kernels. */
static bool call_fits_hopper(const struct attention_call *call, const tl_kernel_args *args) {
    const struct attention_sizes sizes = sizes_of(call);
    struct cuda_state *state = cuda_state_of(args->stream);
    return attention_hopper_runs(args) &&
           attention_fits_hopper(&sizes, call->dtype == TL_BF16 || call->dtype == TL_F16, args->attr,
                                 state->capability) &&
           args->workspace_bytes >= attention_hopper_bytes(&sizes) && mask_fits_hopper(call) &&
           rows_fit_hopper_backward(call);
}

/* A tile would be mostly empty: a warp per query is as fast, and does not round the weights. */
static bool is_small(const struct attention_call *call) {
    return call->T <= ATTENTION_SMALL && call->S <= ATTENTION_SMALL;
}

static bool call_fits_few(const struct attention_call *call, const tl_kernel_args *args) {
    const struct attention_sizes sizes = sizes_of(call);
    const int capability = cuda_state_of(args->stream)->capability;
    return attention_fits_few(&sizes, call->dtype == TL_BF16 || call->dtype == TL_F16, capability) &&
           mask_is_read(call) && args->workspace_bytes >= attention_few_bytes(&sizes, args->attr);
}

/* Forward. */
static bool call_fits_hopper_forward(const struct attention_call *call, const tl_kernel_args *args) {
    const struct attention_sizes sizes = sizes_of(call);
    const bool is_16_bit = call->dtype == TL_BF16 || call->dtype == TL_F16;
    return attention_fits_hopper_forward(&sizes, is_16_bit, args->attr, cuda_state_of(args->stream)->capability) &&
           attention_hopper_runs(args) && mask_fits_hopper(call) && rows_fit_hopper(call);
}

/* The gradient of heads of 129 to 256. */
static bool call_goes_wide(const struct attention_call *call, const tl_kernel_args *args) {
    const struct attention_sizes sizes = sizes_of(call);
    const int capability = cuda_state_of(args->stream)->capability;
    return !is_small(call) &&
           attention_goes_wide(&sizes, call->dtype == TL_BF16 || call->dtype == TL_F16, args->attr, capability) &&
           attention_tiles_fit(call, capability) && attention_hopper_runs(args) && rows_fit_hopper_backward(call);
}

/* ---- Padded heads ---- */

static bool call_pads(const struct attention_call *call, const tl_kernel_args *args, bool is_backward) {
    const struct attention_sizes sizes = sizes_of(call);
    const int capability = cuda_state_of(args->stream)->capability;
    const bool is_16_bit = call->dtype == TL_BF16 || call->dtype == TL_F16;
    const bool fits = is_backward ? attention_pads_backward(&sizes, is_16_bit, args->attr, capability)
                                  : attention_pads_forward(&sizes, is_16_bit, args->attr, capability);
    const uint64_t need =
        is_backward ? attention_padded_backward_bytes(&sizes) : attention_padded_forward_bytes(&sizes);
    return fits && args->workspace_bytes >= need && attention_tiles_fit(call, capability) && mask_fits_hopper(call) &&
           attention_hopper_runs(args);
}

/* Dense padded rows in the workspace; *at moves behind them. */
static struct attention_rows rows_padded(const struct attention_call *padded, int64_t n_rows, int64_t n_heads,
                                         char **at) {
    const struct attention_sizes sizes = sizes_of(padded);
    const int64_t t = n_heads * padded->D;
    const struct attention_rows rows = {*at, n_rows * t, t, padded->D};
    *at += attention_padded_bytes(&sizes, n_rows, n_heads);
    return rows;
}

static bool forward_padded(const tl_kernel_args *args, const struct attention_call *call) {
    struct attention_call padded = *call;
    char *at = args->workspace;
    padded.D = (int64_t)round_up((uint64_t)call->D, 8);
    padded.q = rows_padded(&padded, call->T, call->H, &at);
    padded.k = rows_padded(&padded, call->S, call->H_kv, &at);
    padded.v = rows_padded(&padded, call->S, call->H_kv, &at);
    padded.out = rows_padded(&padded, call->T, call->H, &at);
    const struct attention_copy in[] = {{call->q, padded.q, call->T, call->H},
                                        {call->k, padded.k, call->S, call->H_kv},
                                        {call->v, padded.v, call->S, call->H_kv}};
    const struct attention_copy out[] = {{padded.out, call->out, call->T, call->H}};
    attention_rows_copy(args, in, 3, call->B, call->D, padded.D);
    if (!attention_hopper_forward(args, &padded)) return false;
    attention_rows_copy(args, out, 1, call->B, padded.D, call->D);
    return true;
}

/* The kernel's own part of the workspace comes first. */
static bool backward_padded(const tl_kernel_args *args, const struct attention_call *call) {
    const struct attention_sizes sizes = sizes_of(call), padded_sizes = attention_padded(&sizes);
    struct attention_call padded = *call;
    char *at = (char *)args->workspace + attention_padded_inner_bytes(&padded_sizes);
    padded.D = padded_sizes.D;
    padded.q = rows_padded(&padded, call->T, call->H, &at);
    padded.out = rows_padded(&padded, call->T, call->H, &at);
    padded.g = rows_padded(&padded, call->T, call->H, &at);
    padded.dq = rows_padded(&padded, call->T, call->H, &at);
    padded.k = rows_padded(&padded, call->S, call->H_kv, &at);
    padded.v = rows_padded(&padded, call->S, call->H_kv, &at);
    padded.dk = rows_padded(&padded, call->S, call->H_kv, &at);
    padded.dv = rows_padded(&padded, call->S, call->H_kv, &at);
    const struct attention_copy in[ATTENTION_COPIES] = {{call->q, padded.q, call->T, call->H},
                                                        {call->out, padded.out, call->T, call->H},
                                                        {call->g, padded.g, call->T, call->H},
                                                        {call->k, padded.k, call->S, call->H_kv},
                                                        {call->v, padded.v, call->S, call->H_kv}};
    const struct attention_copy out[] = {{padded.dq, call->dq, call->T, call->H},
                                         {padded.dk, call->dk, call->S, call->H_kv},
                                         {padded.dv, call->dv, call->S, call->H_kv}};
    attention_rows_copy(args, in, ATTENTION_COPIES, call->B, call->D, padded.D);
    const bool is_done = padded.D > 128 ? attention_own_delta(args, &padded) && attention_wide_backward(args, &padded)
                                        : attention_hopper_backward(args, &padded);
    if (!is_done) return false;
    attention_rows_copy(args, out, 3, call->B, padded.D, call->D);
    return true;
}

/* Nothing but f32, f64, bf16 and f16, all alike. */
static bool dtypes_fit(const tl_kernel_args *args, const tl_operand *const *list, int n) {
    const tl_dtype dtype = list[0]->dtype;
    for (int i = 0; i < n; i++)
        if (list[i]->dtype != dtype) return cuda_refuse_dtype(args, list[i]->dtype);
    return dtype == TL_F64 || dtype == TL_F32 || dtype == TL_F16 || dtype == TL_BF16 || cuda_refuse_dtype(args, dtype);
}

/* Runs a plan if cuDNN has one. *is_done tells; false is an error. */
static bool try_cudnn(const tl_kernel_args *args, const struct attention_call *call, bool is_backward, bool *is_done) {
    *is_done = false;
    if (call->dtype != TL_BF16 && call->dtype != TL_F16) return true; /* the handle is not made for nothing */
    struct attention_cache *cache = cache_of(args);
    if (!cache) return false;
    const bool is_fast = ((const struct attr_attention *)args->attr)->is_fast;
    const enum pass pass = !is_backward ? FORWARD : is_fast ? BACKWARD_FAST : BACKWARD_DETERMINISTIC;
    if (!call_fits_cudnn(call, args, pass)) return true;
    const size_t workspace_bytes = args->workspace ? args->workspace_bytes : 0;
    const struct plan *plan = plan_find(cache, call, pass, workspace_bytes);
    if (pass == BACKWARD_FAST && (!plan || !plan->execution))
        plan = plan_find(cache, call, BACKWARD_DETERMINISTIC, workspace_bytes);
    if (plan && !plan->execution && plan->wanted_bytes && pass == FORWARD) {
        /* Our kernels would do it, and take longer: the workspace rule is wrong, and should be heard of. */
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: cudnn's plan needs %zu bytes of workspace, has %zu", args->op,
                 plan->wanted_bytes, workspace_bytes);
        return false;
    }
    if (!plan || !plan->execution) return true;
    *is_done = true;
    return execute_slices(cache, plan, call, args);
}

static void mask_set(struct attention_call *call, const tl_operand *mask) {
    call->mask = mask->data;
    call->mask_dtype = mask->dtype;
    for (int i = 0; i < 4; i++) call->mask_stride[i] = mask->stride[i];
}

static void first_key_set(struct attention_call *call, const tl_operand *x) {
    call->first_key = x->data;
    call->first_key_dtype = x->dtype;
    for (int i = 0; i < 2; i++) call->first_key_stride[i] = x->stride[i];
}

bool cuda_attention(const tl_kernel_args *args) {
    const struct attr_attention *attr = args->attr;
    const tl_operand *const list[4] = {&args->in[0], &args->in[1], &args->in[2], &args->out[0]};
    if (!dtypes_fit(args, list, 4)) return false;
    struct attention_call call = call_of(args, list[0], list[1], list[2]);
    call.out = rows_dense(list[3]);
    call.lse = args->out[1].data;
    if (attr->has_mask) mask_set(&call, &args->in[3]);
    if (attr->has_first_key) first_key_set(&call, &args->in[3 + attr->has_mask]);
    if (call.B == 0 || call.T == 0 || call.H == 0) return true;
    if (call_fits_few(&call, args)) return attention_few_forward(args, &call);
    bool is_done = false;
    if (call.S > 0 && call.D > 0 && !try_cudnn(args, &call, false, &is_done)) return false;
    if (is_done) return true;
    if (is_small(&call)) return attention_own_forward(args, &call);
    if (call_fits_hopper_forward(&call, args)) return attention_hopper_forward(args, &call);
    if (call_pads(&call, args, false)) return forward_padded(args, &call);
    if (attention_tiles_fit(&call, cuda_state_of(args->stream)->capability))
        return attention_tiles_forward(args, &call);
    return attention_fma_fits(&call) ? attention_fma_forward(args, &call) : attention_own_forward(args, &call);
}

/* By cuDNN, or by kernels for any card. */
static bool backward_elsewhere(const tl_kernel_args *args, const struct attention_call *call) {
    bool is_done = false;
    const bool has_any = call->B > 0 && call->T > 0 && call->S > 0 && call->H > 0 && call->D > 0;
    const bool goes_wide = has_any && call_goes_wide(call, args);
    if (has_any && !goes_wide && !try_cudnn(args, call, true, &is_done)) return false;
    if (is_done) return true;
    if (call_pads(call, args, true)) return backward_padded(args, call);
    const size_t need = attention_own_workspace(call);
    if (args->workspace_bytes < need) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s needs %zu bytes of workspace, has %zu", args->op, need,
                 args->workspace_bytes);
        return false;
    }
    if (goes_wide) return attention_own_delta(args, call) && attention_wide_backward(args, call);
    if (is_small(call)) return attention_own_backward(args, call);
    if (attention_tiles_fit(call, cuda_state_of(args->stream)->capability))
        return attention_own_delta(args, call) && attention_tiles_backward(args, call);
    return attention_fma_fits(call) ? attention_fma_backward(args, call) : attention_own_backward(args, call);
}

/* x over its first axes, to the second result. */
static bool sum_over(const tl_kernel_args *args, const tl_operand *x, uint32_t axes) {
    const struct attr_reduce over = {.axes = axes};
    tl_kernel_args sum = *args;
    sum.attr = &over;
    sum.in = x;
    sum.out = &args->out[1];
    sum.n_in = sum.n_out = 1;
    sum.workspace = NULL;
    sum.workspace_bytes = 0;
    return cuda_sum(&sum);
}
static bool packed_sum(const tl_kernel_args *args) { return sum_over(args, &args->out[0], 3); }

/* The sums of tiles of rows, as attention_hopper.cu leaves them. */
static bool tiles_sum(const tl_kernel_args *args, const struct attention_call *call) {
    const struct attention_sizes sizes = sizes_of(call);
    const int64_t width = (call->H + 2 * call->H_kv) * call->D;
    const int64_t shape[2] = {attention_sum_tiles(&sizes), width}, stride[2] = {width, 1};
    const tl_operand tiles = {.data = call->sums, .dtype = TL_F32, .rank = 2, .shape = shape, .stride = stride};
    return sum_over(args, &tiles, 1);
}

bool cuda_attention_grad(const tl_kernel_args *args) {
    const struct attr_attention *attr = args->attr;
    /* g, q, k, v, out, lse [, mask] [, first_key] [, g_lse] -> dq, dk, dv [, dmask], or the three packed */
    const tl_operand *d = args->out;
    struct attention_parts parts;
    if (attr->is_packed) {
        attention_unpack(&parts, d, args->in[1].shape[2], args->in[2].shape[2], (size_t)dtype_bytes(d->dtype));
        d = parts.part;
    }
    const tl_operand *const list[8] = {&args->in[0], &args->in[1], &args->in[2], &args->in[3],
                                       &args->in[4], &d[0],        &d[1],        &d[2]};
    if (!dtypes_fit(args, list, 8)) return false;
    struct attention_call call = call_of(args, list[1], list[2], list[3]);
    call.g = rows_dense(list[0]);
    call.out = rows_of(list[4]);
    call.lse = args->in[5].data;
    if (attr->has_mask) mask_set(&call, &args->in[6]);
    if (attr->has_first_key) first_key_set(&call, &args->in[6 + attr->has_mask]);
    if (attr->has_lse_grad) call.g_lse = args->in[args->n_in - 1].data;
    if (attr->has_mask_grad) call.dmask = args->out[3].data;
    call.dq = rows_of(list[5]);
    call.dk = rows_of(list[6]);
    call.dv = rows_of(list[7]);
    if (call_fits_hopper(&call, args)) {
        const struct attention_sizes sizes = sizes_of(&call);
        if (attr->gives_sums && !attr->has_mask && !(attr->dropout > 0))
            call.sums = (char *)args->workspace + attention_hopper_bytes(&sizes);
        if (!attention_hopper_backward(args, &call)) return false;
        return call.sums ? tiles_sum(args, &call) : !attr->gives_sums || packed_sum(args);
    }
    return backward_elsewhere(args, &call) && (!attr->gives_sums || packed_sum(args));
}
