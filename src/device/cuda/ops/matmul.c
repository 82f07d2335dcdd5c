/* matmul.c: matrix products by cuBLASLt.
 *
 * Row-major by column-major. cuBLASLt is column-major. A row-major (m,n) matrix is, byte for byte, a column-major
 * (n,m) one, its transpose; so out = A B is computed as out^T = B^T A^T: our b becomes cuBLASLt's A, our a its B.
 *
 * Plans. Descriptors, layouts and the algorithm are made once per distinct call (dtypes, sizes, strides, alignment
 * of the addresses, workspace) and kept for the life of the process. The algorithm is the first the heuristic offers
 * that fits args->workspace_bytes, unless its tiles are ours. Split-K is allowed only with its partial sums in the
 * workspace, added in a fixed order (COMPUTE_TYPE); in-place schemes add in the output's dtype and are left out. So the
 * same call on the same chip and library gives the same bits.
 *
 * Tiles. On Hopper, products of 16-bit matrices use tiles of our choice where these fit the result (tile_choose).
 *
 * Trials. With attr.is_timed the first call of a plan runs every candidate on its own operands and keeps the fastest;
 * another run may choose another. A product that adds to its result must not run twice. It takes the algorithm of the
 * same product without adding, if that was timed; otherwise candidates add to the workspace, and if that has no room,
 * the first is taken. 16-bit products on Hopper have no trials: what is fastest in such a burst need not be so at the
 * power limit, and no step of four models became shorter.
 *
 * A bias goes into the epilogue: one number per column of ours, which is one per row of cuBLASLt's D.
 *
 * Batches. Batch axes that both inputs walk with one stride each become one strided batch; where they do not, the
 * innermost run that does is the batch and the rest is a loop of calls. A batch that shares b and whose a is one
 * tall matrix is one product with more rows.
 */
#include "device/cuda/ops/matmul.h"
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/state.h"
#include "spec/attr.h"
#include "spec/rows.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plans -------------------------------------------------------------------------------------------- */

/* The key of a plan. Compared as bytes, so made from zeroed memory. Sizes and strides are cuBLASLt's: op(A) is (m,k),
 * op(B) is (k,n), C and D are (m,n), all column-major. */
struct key {
    int64_t m, n, k;
    int64_t ld_a, ld_b, ld_c;
    int64_t batch, stride_a, stride_b, stride_c;
    uint64_t workspace_bytes;
    int32_t in_type, out_type;         /* cudaDataType; in_type is A's */
    int32_t transpose_a, transpose_b;  /* cublasOperation_t */
    int32_t align_a, align_b, align_c; /* bytes, a power of two */
    int32_t accumulate;                /* beta = 1 */
    int32_t has_bias;                  /* one number per row of D, added in the epilogue */
    int32_t in_type_b;
    int32_t is_timed; /* the algorithm was, or is to be, found by a trial */
    int32_t padding;  /* none that the compiler makes */
};

/* The operands of one call, in cuBLASLt's order. */
struct operands {
    const void *a, *b;
    void *c;
    void *workspace;
    cudaStream_t stream;
};

struct plan {
    struct key key;
    bool is_used;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

/* Open addressing; grown at half full. A run has some tens of plans. */
struct matmul_cache {
    cublasLtHandle_t handle;
    int capability, n_multiprocessors;
    struct plan *plans;
    size_t n_slots, n_plans;
};

static bool check(cublasStatus_t status, const char *what, char *error) {
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    snprintf(error, CUDA_ERROR_BYTES, "cublasLt: %s: %s", what, cublasLtGetStatusString(status));
    return false;
}

struct matmul_cache *matmul_cache_new(int capability, int n_multiprocessors, char *error) {
    struct matmul_cache *cache = calloc(1, sizeof *cache);
    if (cache) cache->plans = calloc(cache->n_slots = 256, sizeof *cache->plans);
    if (!cache || !cache->plans) {
        snprintf(error, CUDA_ERROR_BYTES, "out of memory for matmul plans");
        free(cache);
        return NULL;
    }
    if (!check(cublasLtCreate(&cache->handle), "create", error)) {
        free(cache->plans);
        free(cache);
        return NULL;
    }
    cache->capability = capability;
    cache->n_multiprocessors = n_multiprocessors;
    return cache;
}

static uint64_t key_hash(const struct key *key) {
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

/* The slot that holds the key, or the free one where it belongs. */
static struct plan *plan_slot(struct plan *plans, size_t n_slots, const struct key *key) {
    size_t i = key_hash(key) % n_slots;
    while (plans[i].is_used && memcmp(&plans[i].key, key, sizeof *key) != 0) i = (i + 1) % n_slots;
    return &plans[i];
}

static bool cache_grow(struct matmul_cache *cache, char *error) {
    const size_t n_slots = cache->n_slots * 2;
    struct plan *plans = calloc(n_slots, sizeof *plans);
    if (!plans) {
        snprintf(error, CUDA_ERROR_BYTES, "out of memory for matmul plans");
        return false;
    }
    for (size_t i = 0; i < cache->n_slots; i++)
        if (cache->plans[i].is_used) *plan_slot(plans, n_slots, &cache->plans[i].key) = cache->plans[i];
    free(cache->plans);
    cache->plans = plans;
    cache->n_slots = n_slots;
    return true;
}

static void plan_release(struct plan *plan) {
    if (plan->operation) cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a) cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c) cublasLtMatrixLayoutDestroy(plan->c);
    memset(plan, 0, sizeof *plan);
}

static bool layout_new(cublasLtMatrixLayout_t *layout, int type, int64_t rows, int64_t columns, int64_t ld,
                       int64_t batch, int64_t stride, char *error) {
    const int32_t count = (int32_t)batch;
    return check(cublasLtMatrixLayoutCreate(layout, (cudaDataType)type, (uint64_t)rows, (uint64_t)columns, ld),
                 "layout", error) &&
           check(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                 "layout", error) &&
           check(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                  sizeof stride),
                 "layout", error);
}

/* The optional operands of a call, NULL if absent: a bias; scales of 8-bit matrices A and B, one float each on the
 * device. */
struct extras {
    const void *bias, *scale_a, *scale_b;
};

/* The heuristic sees that they exist; each call sets its own addresses. Gradients (e5m2) are summed at full
 * precision. */
static bool operation_set_extras(cublasLtMatmulDesc_t operation, const struct key *key, const struct extras *extras,
                                 char *error) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int8_t fast_accum = key->in_type == CUDA_R_8F_E4M3 && key->in_type_b == CUDA_R_8F_E4M3;
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
        bool is_there;
    } list[] = {
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, extras->bias != NULL},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &extras->bias, sizeof extras->bias, extras->bias != NULL},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &extras->scale_a, sizeof extras->scale_a, extras->scale_a != NULL},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &extras->scale_b, sizeof extras->scale_b, extras->scale_b != NULL},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast_accum, sizeof fast_accum, extras->scale_a != NULL},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].is_there &&
            !check(cublasLtMatmulDescSetAttribute(operation, list[i].name, list[i].value, list[i].bytes),
                   "bias and scales", error))
            return false;
    return true;
}

static bool operation_new(cublasLtMatmulDesc_t *operation, const struct key *key, char *error) {
    /* COMPUTE_32F on f32 inputs is full f32, not TF32. */
    const bool is_f64 = key->in_type == CUDA_R_64F;
    const cublasOperation_t transpose_a = (cublasOperation_t)key->transpose_a;
    const cublasOperation_t transpose_b = (cublasOperation_t)key->transpose_b;
    return check(cublasLtMatmulDescCreate(operation, is_f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                          is_f64 ? CUDA_R_64F : CUDA_R_32F),
                 "operation", error) &&
           check(cublasLtMatmulDescSetAttribute(*operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a,
                                                sizeof transpose_a),
                 "operation", error) &&
           check(cublasLtMatmulDescSetAttribute(*operation, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b,
                                                sizeof transpose_b),
                 "operation", error);
}

static bool preference_fill(cublasLtMatmulPreference_t preference, const struct key *key, char *error) {
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* besides none */
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t value;
    } numbers[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->align_c},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!check(
                cublasLtMatmulPreferenceSetAttribute(preference, numbers[i].name, &numbers[i].value, sizeof(uint32_t)),
                "preference", error))
            return false;
    return check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &key->workspace_bytes, sizeof key->workspace_bytes),
                 "preference", error);
}

static bool plan_multiply(const struct matmul_cache *cache, const struct plan *plan,
                          const cublasLtMatmulAlgo_t *algorithm, const struct operands *o, char *error) {
    /* alpha and beta have the scale type: f32 unless the matrices are f64. */
    const struct key *key = &plan->key;
    const double alpha_f64 = 1, beta_f64 = key->accumulate;
    const float alpha_f32 = 1, beta_f32 = (float)key->accumulate;
    const bool is_f64 = key->in_type == CUDA_R_64F;
    return check(cublasLtMatmul(cache->handle, plan->operation, is_f64 ? (const void *)&alpha_f64 : &alpha_f32, o->a,
                                plan->a, o->b, plan->b, is_f64 ? (const void *)&beta_f64 : &beta_f32, o->c, plan->c,
                                o->c, plan->c, algorithm, o->workspace, (size_t)key->workspace_bytes, o->stream),
                 "matmul", error);
}

enum { CANDIDATES = 8, TRIAL_RUNS = 4 };

/* Milliseconds of one run after a warm-up; negative if it does not run, which is not an error here. */
static float trial_time(const struct matmul_cache *cache, const struct plan *plan,
                        const cublasLtMatmulAlgo_t *algorithm, const struct operands *o, const cudaEvent_t *event) {
    char ignored[CUDA_ERROR_BYTES];
    float ms = -1;
    bool ok = plan_multiply(cache, plan, algorithm, o, ignored) && cudaEventRecord(event[0], o->stream) == cudaSuccess;
    for (int i = 0; ok && i < TRIAL_RUNS; i++) ok = plan_multiply(cache, plan, algorithm, o, ignored);
    ok = ok && cudaEventRecord(event[1], o->stream) == cudaSuccess && cudaEventSynchronize(event[1]) == cudaSuccess &&
         cudaEventElapsedTime(&ms, event[0], event[1]) == cudaSuccess;
    return ok ? ms / TRIAL_RUNS : -1;
}

/* Bytes from the first element of the result to the last. */
static uint64_t result_bytes(const struct key *key) {
    const int64_t element = key->out_type == CUDA_R_64F ? 8 : key->out_type == CUDA_R_32F ? 4 : 2;
    return (uint64_t)(((key->batch - 1) * key->stride_c + (key->n - 1) * key->ld_c + key->m) * element);
}

/* The fastest of n candidates, which are in the order of the heuristic. */
static int trial_run(const struct matmul_cache *cache, const struct plan *plan,
                     const cublasLtMatmulHeuristicResult_t *candidates, int n, struct operands o) {
    uint64_t limit = plan->key.workspace_bytes;
    if (plan->key.accumulate) { /* into the end of the workspace, as well aligned as the result */
        const uint64_t own = (result_bytes(&plan->key) + 255) / 256 * 256;
        if (own > limit) return 0;
        limit = (limit - own) / 256 * 256;
        o.c = (char *)o.workspace + limit;
    }
    cudaEvent_t event[2];
    if (cudaEventCreate(&event[0]) != cudaSuccess) return 0;
    if (cudaEventCreate(&event[1]) != cudaSuccess) {
        cudaEventDestroy(event[0]);
        return 0;
    }
    int best = 0;
    float best_ms = -1;
    for (int turn = 0; turn < 2 * n; turn++) { /* two rounds: the clock may still be rising in the first */
        const int i = turn % n;
        if (candidates[i].workspaceSize > limit) continue;
        const float ms = trial_time(cache, plan, &candidates[i].algo, &o, event);
        if (ms < 0 || (best_ms >= 0 && ms >= best_ms)) continue;
        best = i;
        best_ms = ms;
    }
    cudaEventDestroy(event[0]);
    cudaEventDestroy(event[1]);
    (void)cudaGetLastError(); /* a candidate that did not run */
    return best;
}

/* The algorithms that fit, the heuristic's first choice first; their number, -1 on error. */
static int candidates_find(const struct matmul_cache *cache, const struct plan *plan,
                           cublasLtMatmulHeuristicResult_t *candidates, char *error) {
    cublasLtMatmulPreference_t preference;
    if (!check(cublasLtMatmulPreferenceCreate(&preference), "preference", error)) return -1;
    int n_results = 0, n = 0;
    const bool ok = preference_fill(preference, &plan->key, error) &&
                    check(cublasLtMatmulAlgoGetHeuristic(cache->handle, plan->operation, plan->a, plan->b, plan->c,
                                                         plan->c, preference, CANDIDATES, candidates, &n_results),
                          "heuristic", error);
    cublasLtMatmulPreferenceDestroy(preference);
    if (!ok) return -1;
    for (int i = 0; i < n_results; i++)
        if (candidates[i].state == CUBLAS_STATUS_SUCCESS && candidates[i].workspaceSize <= plan->key.workspace_bytes)
            candidates[n++] = candidates[i];
    return n;
}

/* Tiles of our choice for 16-bit products on Hopper. A training step holds the card at its power limit, where the
 * clock falls by a fifth and the tile with the shortest burst is not the fastest. Timed for 0.25 s each, after 0.12 s
 * of the same (H200, outputs and input gradients of 8 linear layers):
 *
 *   k up to 1024   two warpgroups take turns at small tiles, so that one multiplies while the other writes: 0.88 to
 *                  1.03 of the time of the heuristic's choice (256 x 128 or 192 x 192, which both share)
 *   longer k       256 x 128: 0.95 to 1.00 of the time of 192 x 192, which the heuristic prefers for wide results
 *
 * Weights' gradients, whose k is the tokens and whose results are small, are left to the heuristic: it splits k. The
 * numbers are cuBLASLt's: m is our columns, n our rows. */
enum { HOPPER_ALGORITHM = 66, SHORT_K = 1024 };
static const struct tile {
    int id, custom_option, m, n;
    uint16_t cluster;
    int cluster_m, cluster_n;
    bool is_for_short_k;
} tiles[] = {
    {CUBLASLT_MATMUL_TILE_128x128, 3, 128, 128, CUBLASLT_CLUSTER_SHAPE_1x2x1, 1, 2, true},
    {CUBLASLT_MATMUL_TILE_128x160, 1, 128, 160, CUBLASLT_CLUSTER_SHAPE_2x1x1, 2, 1, true},
    {CUBLASLT_MATMUL_TILE_256x128, 7, 256, 128, CUBLASLT_CLUSTER_SHAPE_1x2x1, 1, 2, false},
    {CUBLASLT_MATMUL_TILE_320x128, 7, 320, 128, CUBLASLT_CLUSTER_SHAPE_1x2x1, 1, 2, false},
};

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/* What a GPU computes, in whole tiles, clusters and waves, over what the product needs. */
static double tile_waste(const struct tile *t, const struct key *key, int n_multiprocessors) {
    const int64_t across = round_up((key->m + t->m - 1) / t->m, t->cluster_m);
    const int64_t down = round_up((key->n + t->n - 1) / t->n, t->cluster_n);
    return (double)round_up(across * down, n_multiprocessors) * t->m * t->n / ((double)key->m * (double)key->n);
}

static bool is_16_bit_on_hopper(const struct matmul_cache *cache, const struct key *key) {
    return cache->capability / 10 == 9 && (key->in_type == CUDA_R_16BF || key->in_type == CUDA_R_16F);
}

/* The tile that wastes least; NULL where all waste much, as of small results. */
static const struct tile *tile_choose(const struct matmul_cache *cache, const struct key *key) {
    const struct tile *best = NULL;
    double least = 1.25;
    const bool sums_rows = key->transpose_a == CUBLAS_OP_N && key->transpose_b == CUBLAS_OP_T;
    if (!is_16_bit_on_hopper(cache, key) || key->batch != 1 || sums_rows) return NULL;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        if (tiles[i].is_for_short_k != (key->k <= SHORT_K)) continue;
        const double waste = tile_waste(&tiles[i], key, cache->n_multiprocessors);
        if (waste >= least) continue;
        least = waste;
        best = &tiles[i];
    }
    return best;
}

/* The algorithm with that tile; false if this cuBLASLt does not have it, or not for these operands. */
static bool tile_algorithm(const struct matmul_cache *cache, const struct plan *plan, const struct tile *t,
                           cublasLtMatmulHeuristicResult_t *result) {
    const cudaDataType in = (cudaDataType)plan->key.in_type, out = (cudaDataType)plan->key.out_type;
    const int stages = CUBLASLT_MATMUL_STAGES_64xAUTO, n_splits = 1;
    cublasLtMatmulAlgo_t algo;
    if (cublasLtMatmulAlgoInit(cache->handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, out, out, HOPPER_ALGORITHM,
                               &algo) != CUBLAS_STATUS_SUCCESS)
        return false;
    const struct {
        cublasLtMatmulAlgoConfigAttributes_t name;
        const void *value;
        size_t bytes;
    } list[] = {
        {CUBLASLT_ALGO_CONFIG_TILE_ID, &t->id, sizeof t->id},
        {CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, sizeof stages},
        {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n_splits, sizeof n_splits},
        {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &t->custom_option, sizeof t->custom_option},
        {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &t->cluster, sizeof t->cluster},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (cublasLtMatmulAlgoConfigSetAttribute(&algo, list[i].name, list[i].value, list[i].bytes) !=
            CUBLAS_STATUS_SUCCESS)
            return false;
    memset(result, 0, sizeof *result);
    if (cublasLtMatmulAlgoCheck(cache->handle, plan->operation, plan->a, plan->b, plan->c, plan->c, &algo, result) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    result->algo = algo;
    return result->workspaceSize <= plan->key.workspace_bytes;
}

/* The algorithm with the tile of our choice, if there is one, or the heuristic's. */
static int candidates_list(const struct matmul_cache *cache, const struct plan *plan,
                           cublasLtMatmulHeuristicResult_t *candidates, char *error) {
    const struct tile *t = tile_choose(cache, &plan->key);
    return t && tile_algorithm(cache, plan, t, candidates) ? 1 : candidates_find(cache, plan, candidates, error);
}

/* The same product without adding, if it was timed; NULL otherwise. */
static const struct plan *plan_without_adding(const struct matmul_cache *cache, const struct key *key) {
    struct key plain = *key;
    plain.accumulate = 0;
    const struct plan *plan = plan_slot(cache->plans, cache->n_slots, &plain);
    return plan->is_used ? plan : NULL;
}

static bool algorithm_choose(struct matmul_cache *cache, struct plan *plan, const struct operands *o, char *error) {
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES];
    const struct key *key = &plan->key;
    const bool is_tried = key->is_timed && !is_16_bit_on_hopper(cache, key);
    const struct plan *same = is_tried && key->accumulate ? plan_without_adding(cache, key) : NULL;
    if (same) {
        plan->algorithm = same->algorithm;
        return true;
    }
    const int n = candidates_list(cache, plan, candidates, error);
    if (n < 0) return false;
    if (n == 0) {
        snprintf(error, CUDA_ERROR_BYTES,
                 "cublasLt has no algorithm for m %lld, n %lld, k %lld, batch %lld within %llu bytes",
                 (long long)key->m, (long long)key->n, (long long)key->k, (long long)key->batch,
                 (unsigned long long)key->workspace_bytes);
        return false;
    }
    const int best = is_tried && n > 1 ? trial_run(cache, plan, candidates, n, *o) : 0;
    plan->algorithm = candidates[best].algo;
    return true;
}

static bool plan_fill(struct matmul_cache *cache, struct plan *plan, const struct key *key, const struct extras *extras,
                      const struct operands *o, char *error) {
    plan->key = *key;
    const bool ta = key->transpose_a == CUBLAS_OP_T, tb = key->transpose_b == CUBLAS_OP_T;
    return operation_new(&plan->operation, key, error) && operation_set_extras(plan->operation, key, extras, error) &&
           layout_new(&plan->a, key->in_type, ta ? key->k : key->m, ta ? key->m : key->k, key->ld_a, key->batch,
                      key->stride_a, error) &&
           layout_new(&plan->b, key->in_type_b, tb ? key->n : key->k, tb ? key->k : key->n, key->ld_b, key->batch,
                      key->stride_b, error) &&
           layout_new(&plan->c, key->out_type, key->m, key->n, key->ld_c, key->batch, key->stride_c, error) &&
           algorithm_choose(cache, plan, o, error);
}

/* The plan for a key, made if need be. The pointer is good until the next call. */
static const struct plan *plan_find(struct matmul_cache *cache, const struct key *key, const struct extras *extras,
                                    const struct operands *o, char *error) {
    struct plan *plan = plan_slot(cache->plans, cache->n_slots, key);
    if (plan->is_used) return plan;
    if (cache->n_plans * 2 >= cache->n_slots) {
        if (!cache_grow(cache, error)) return NULL;
        plan = plan_slot(cache->plans, cache->n_slots, key);
    }
    if (!plan_fill(cache, plan, key, extras, o, error)) {
        plan_release(plan);
        return NULL;
    }
    plan->is_used = true;
    cache->n_plans++;
    return plan;
}

/* ---- From operands to a key --------------------------------------------------------------------------- */

/* One input as cuBLASLt sees it: op(storage) is the transpose of our matrix. */
struct side {
    cublasOperation_t operation;
    int64_t ld;
};

/* Our matrix has `rows` x `columns`, after the attribute's transposition. Row-major storage is its transpose
 * already. */
static bool side_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride, struct side *side) {
    const bool is_row_major = column_stride == 1 || columns == 1;
    const bool is_column_major = row_stride == 1 || rows == 1;
    if (is_row_major && (rows == 1 || row_stride >= columns)) {
        side->operation = CUBLAS_OP_N;
        side->ld = rows == 1 ? columns : row_stride;
        return true;
    }
    if (is_column_major && (columns == 1 || column_stride >= rows)) {
        side->operation = CUBLAS_OP_T;
        side->ld = columns == 1 ? rows : column_stride;
        return true;
    }
    return false;
}

/* The batch axes of one call: sizes, and strides of a and b in elements; out is dense. Merged where both allow it. */
struct batch_axes {
    int rank;
    int64_t size[TL_MAX_RANK], stride_a[TL_MAX_RANK], stride_b[TL_MAX_RANK];
};

static void batch_fill(struct batch_axes *axes, const tl_operand *out, const tl_operand *a, const tl_operand *b) {
    axes->rank = 0;
    for (int i = 0; i < out->rank - 2; i++) {
        const int64_t size = out->shape[i];
        const int64_t stride_a = a->shape[i] == 1 ? 0 : a->stride[i], stride_b = b->shape[i] == 1 ? 0 : b->stride[i];
        if (size == 1) continue;
        const int last = axes->rank - 1;
        if (last >= 0 && axes->stride_a[last] == stride_a * size && axes->stride_b[last] == stride_b * size) {
            axes->size[last] *= size;
            axes->stride_a[last] = stride_a;
            axes->stride_b[last] = stride_b;
        } else {
            axes->size[axes->rank] = size;
            axes->stride_a[axes->rank] = stride_a;
            axes->stride_b[axes->rank++] = stride_b;
        }
    }
}

static int type_of(tl_dtype dtype) {
    switch (dtype) {
    case TL_F64:
        return CUDA_R_64F;
    case TL_F32:
        return CUDA_R_32F;
    case TL_F16:
        return CUDA_R_16F;
    case TL_BF16:
        return CUDA_R_16BF;
    default:
        return -1;
    }
}

static int64_t bytes_of(tl_dtype dtype) { return dtype == TL_F64 ? 8 : dtype == TL_F32 ? 4 : 2; }

/* The largest power of two, up to 256, that divides the address of every matrix of the batch. */
static int32_t alignment_of(const void *data, int64_t batch_step_bytes) {
    const uintptr_t addresses = (uintptr_t)data | (uintptr_t)batch_step_bytes;
    int32_t align = 256;
    while (addresses % (uintptr_t)align != 0) align /= 2;
    return align;
}

static bool run_plan(const tl_kernel_args *args, struct key *key, void *out, const void *a, const void *b,
                     const struct extras *extras) {
    struct matmul_cache *cache = cuda_state_of(args->stream)->matmul;
    const int64_t in_bytes = bytes_of(args->in[args->n_in - 1].dtype), out_bytes = bytes_of(args->out[0].dtype);
    key->align_a = alignment_of(b, key->stride_a * in_bytes);
    key->align_b = alignment_of(a, key->stride_b * in_bytes);
    key->align_c = alignment_of(out, key->stride_c * out_bytes);
    const struct operands o = {b, a, out, args->workspace, (cudaStream_t)args->stream};
    const struct plan *plan = plan_find(cache, key, extras, &o, args->error);
    return plan && operation_set_extras(plan->operation, key, extras, args->error) &&
           plan_multiply(cache, plan, &plan->algorithm, &o, args->error);
}

/* Runs the innermost batch axis (or one matrix) as one call, and every combination of the others in a loop. */
static bool run_batches(const tl_kernel_args *args, struct key *key, const struct batch_axes *axes,
                        const tl_operand *out, const tl_operand *a, const tl_operand *b, const tl_operand *bias) {
    const int64_t matrix = key->m * key->n; /* elements of one result */
    const int inner = axes->rank - 1;
    /* cuBLASLt needs strides that are not negative. */
    const bool has_batch = inner >= 0 && axes->stride_a[inner] >= 0 && axes->stride_b[inner] >= 0;
    const int n_outer = has_batch ? inner : axes->rank;
    key->batch = has_batch ? axes->size[inner] : 1;
    key->stride_a = has_batch ? axes->stride_b[inner] : 0;
    key->stride_b = has_batch ? axes->stride_a[inner] : 0;
    key->stride_c = has_batch ? matrix : 0;

    const struct extras extras = {.bias = bias ? bias->data : NULL};
    int64_t n_calls = 1;
    for (int i = 0; i < n_outer; i++) n_calls *= axes->size[i];
    for (int64_t call = 0; call < n_calls; call++) {
        int64_t rest = call, at_a = 0, at_b = 0;
        for (int i = n_outer - 1; i >= 0; i--) {
            at_a += rest % axes->size[i] * axes->stride_a[i];
            at_b += rest % axes->size[i] * axes->stride_b[i];
            rest /= axes->size[i];
        }
        if (!run_plan(args, key, (char *)out->data + call * key->batch * matrix * bytes_of(out->dtype),
                      (const char *)a->data + at_a * bytes_of(a->dtype),
                      (const char *)b->data + at_b * bytes_of(b->dtype), &extras))
            return false;
    }
    return true;
}

/* ---- Few rows ----------------------------------------------------------------------------------------- */

static bool is_aligned(const void *data, int64_t ld) { return (uintptr_t)data % 16 == 0 && ld % 8 == 0; }
static bool is_thin(const tl_kernel_args *args, int64_t m, tl_dtype dtype) {
    return m <= MATMUL_THIN_ROWS && (dtype == TL_BF16 || dtype == TL_F16) &&
           cuda_state_of(args->stream)->capability >= 80;
}

/* Whether our own kernel multiplies; if so, it has been queued. The library's kernels for few rows reach half of the
 * memory's bandwidth, and their bits depend on the number of rows. */
static bool multiply_thin(const tl_kernel_args *args, const struct key *key, const tl_operand *out, const tl_operand *a,
                          const tl_operand *b, const tl_operand *bias) {
    const bool fits_out = key->out_type == CUDA_R_32F || key->out_type == key->in_type;
    const bool is_dense = key->transpose_a == CUBLAS_OP_T && key->transpose_b == CUBLAS_OP_N;
    if (!is_thin(args, key->n, a->dtype) || !fits_out || !is_dense || key->k % 8) return false;
    const int64_t ld_a = key->n == 1 ? 0 : key->ld_b;
    if (!is_aligned(a->data, ld_a) || !is_aligned(b->data, key->ld_a)) return false;
    const struct thin_product product = {.a = a->data,
                                         .b = {{b->data, key->m}},
                                         .n_b = 1,
                                         .bias = bias ? bias->data : NULL,
                                         .out = out->data,
                                         .m = key->n,
                                         .k = key->k,
                                         .ld_a = ld_a,
                                         .ld_b = key->ld_a,
                                         .ld_out = key->ld_c,
                                         .dtype = a->dtype,
                                         .out_dtype = out->dtype,
                                         .adds = key->accumulate};
    matmul_thin(args, &product);
    return true;
}

/* ---- The ops ------------------------------------------------------------------------------------------ */

/* An empty sum: zeros, or nothing to add. Rows of a plain matrix may have gaps. */
static bool multiply_nothing(const tl_kernel_args *args, const tl_operand *out, int64_t numel, bool accumulate) {
    if (accumulate || numel == 0) return true;
    const int64_t columns = out->shape[out->rank - 1], bytes = bytes_of(out->dtype);
    const int64_t apart = out->rank == 2 && out->shape[0] > 1 ? out->stride[0] : columns;
    return cuda_check(cudaMemset2DAsync(out->data, (size_t)(apart * bytes), 0, (size_t)(columns * bytes),
                                        (size_t)(numel / columns), (cudaStream_t)args->stream),
                      args->op, args->error);
}

static bool multiply(const tl_kernel_args *args, const tl_operand *out, const tl_operand *a, const tl_operand *b,
                     const tl_operand *bias, bool accumulate) {
    const struct attr_matmul *attr = args->attr;
    struct folded folded[3];
    if (attr->folds) {
        out = fold_operand(&folded[0], out);
        a = fold_operand(&folded[1], a);
        b = fold_operand(&folded[2], b);
    }
    const int r = out->rank - 1; /* the last axis */
    if (type_of(a->dtype) < 0 || type_of(out->dtype) < 0)
        return cuda_refuse_dtype(args, type_of(a->dtype) < 0 ? a->dtype : out->dtype);
    if (a->dtype != b->dtype) return cuda_refuse_dtype(args, b->dtype);

    /* Rows and columns of op(a), op(b). */
    const int a_row = attr->transpose_a ? r : r - 1, a_column = attr->transpose_a ? r - 1 : r;
    const int b_row = attr->transpose_b ? r : r - 1, b_column = attr->transpose_b ? r - 1 : r;
    int64_t m = out->shape[r - 1];
    const int64_t n = out->shape[r], k = a->shape[a_column];
    int64_t numel = 1;
    for (int i = 0; i <= r; i++) numel *= out->shape[i];
    if (numel == 0 || k == 0) return multiply_nothing(args, out, numel, accumulate);

    struct side side_a, side_b;
    if (!side_of(m, k, a->stride[a_row], a->stride[a_column], &side_a) ||
        !side_of(k, n, b->stride[b_row], b->stride[b_column], &side_b)) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: a matrix whose rows overlap or run backwards", args->op);
        return false;
    }
    struct batch_axes axes;
    batch_fill(&axes, out, a, b);
    const bool is_tall =
        axes.rank == 1 && axes.stride_b[0] == 0 && side_a.operation == CUBLAS_OP_N && axes.stride_a[0] == m * side_a.ld;
    if (is_tall) {
        m *= axes.size[0];
        axes.rank = 0;
    }

    struct key key;
    memset(&key, 0, sizeof key);
    key.m = n;
    key.n = m;
    key.k = k;
    key.ld_a = side_b.ld;
    key.ld_b = side_a.ld;
    key.ld_c = out->shape[r - 1] > 1 ? out->stride[r - 1]
                                     : n; /* rows of a plain matrix may have gaps; of a batch they are dense */
    key.transpose_a = side_b.operation;
    key.transpose_b = side_a.operation;
    key.in_type = key.in_type_b = type_of(a->dtype);
    key.out_type = type_of(out->dtype);
    key.workspace_bytes = args->workspace ? args->workspace_bytes : 0;
    key.accumulate = accumulate;
    key.has_bias = bias != NULL;
    key.is_timed = attr->is_timed;
    if (axes.rank == 0 && multiply_thin(args, &key, out, a, b, bias)) return true;
    return run_batches(args, &key, &axes, out, a, b, bias);
}

bool cuda_matmul(const tl_kernel_args *args) {
    return multiply(args, &args->out[0], &args->in[0], &args->in[1], args->n_in > 2 ? &args->in[2] : NULL, false);
}

/* Of few rows in one kernel; otherwise, and where rows do not begin at multiples of 16 bytes, one after the other. */
static bool parts_thin(const tl_kernel_args *args, int64_t m, int64_t n) {
    const tl_operand *x = &args->in[0];
    const int64_t k = x->shape[x->rank - 1];
    struct thin_product product = {.a = x->data,
                                   .out = args->out[0].data,
                                   .m = m,
                                   .k = k,
                                   .ld_a = k,
                                   .ld_b = k,
                                   .ld_out = n,
                                   .dtype = x->dtype,
                                   .out_dtype = x->dtype};
    bool fits = is_thin(args, m, x->dtype) && is_aligned(x->data, k);
    for (int i = 1; i < args->n_in; i++) {
        fits = fits && is_aligned(args->in[i].data, k);
        if (args->in[i].shape[0])
            product.b[product.n_b++] = (struct thin_matrix){args->in[i].data, args->in[i].shape[0]};
    }
    if (fits) matmul_thin(args, &product);
    return fits;
}

bool cuda_matmul_parts(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    const int64_t n = out->shape[out->rank - 1], k = x->shape[x->rank - 1];
    int64_t m = 1, at = 0;
    for (int i = 0; i < x->rank - 1; i++) m *= x->shape[i];
    if (m * n == 0) return true;
    if (k && parts_thin(args, m, n)) return true;
    for (int i = 1; i < args->n_in; i++) {
        const int64_t shape[2] = {m, args->in[i].shape[0]}, stride[2] = {n, 1}, rows[2] = {m, k}, apart[2] = {k, 1};
        const tl_operand part = {(char *)out->data + at * bytes_of(out->dtype), out->dtype, 2, shape, stride};
        const tl_operand a = {x->data, x->dtype, 2, rows, apart};
        if (!multiply(args, &part, &a, &args->in[i], NULL, false)) return false;
        at += shape[1];
    }
    return true;
}

bool cuda_matmul_acc(const tl_kernel_args *args) {
    const bool ok = multiply(args, &args->in[0], &args->in[1], &args->in[2], NULL, true);
    early_writes(args, &args->in[0]);
    return ok;
}

/* ---- Products of 8-bit numbers ------------------------------------------------------------------------- */

static int32_t f8_type(tl_dtype dtype) { return dtype == TL_F8E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3; }

/* k is dense, as cuBLASLt requires for 8-bit numbers: it sees b^T and a as A^T and B. */
bool matmul_f8(const tl_kernel_args *args, const tl_operand *in, const tl_operand *out, const tl_operand *bias,
               bool accumulate) {
    const struct attr_matmul_f8 *attr = args->attr;
    const tl_operand *a = &in[0], *b = &in[1];
    int64_t m = 1;
    for (int i = 0; i < a->rank - 1; i++) m *= a->shape[i];
    const int64_t n = b->shape[0], k = b->shape[1];
    if (m * n == 0 || k == 0) return multiply_nothing(args, out, m * n, accumulate);
    if (m % 16 || n % 16 || k % 16) {
        snprintf(args->error, CUDA_ERROR_BYTES,
                 "%s: 8-bit products need sizes of a multiple of 16 (m %lld, k %lld, n %lld)", args->op, (long long)m,
                 (long long)k, (long long)n);
        return false;
    }
    struct key key;
    memset(&key, 0, sizeof key);
    key.m = n;
    key.n = m;
    key.k = k;
    key.ld_a = key.ld_b = k;
    key.ld_c = n;
    key.batch = 1;
    key.transpose_a = CUBLAS_OP_T;
    key.transpose_b = CUBLAS_OP_N;
    key.in_type = f8_type(b->dtype);
    key.in_type_b = f8_type(a->dtype);
    key.out_type = type_of(out->dtype);
    key.workspace_bytes = args->workspace ? args->workspace_bytes : 0;
    key.accumulate = accumulate;
    key.has_bias = bias != NULL;
    key.is_timed = attr->is_timed;
    const struct extras extras = {bias ? bias->data : NULL, in[3].data, in[2].data};
    return run_plan(args, &key, out->data, a->data, b->data, &extras);
}
