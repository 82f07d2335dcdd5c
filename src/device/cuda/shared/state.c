/* state.c: the opened GPUs, the one way into every kernel, and error messages. */
#include "device/cuda/shared/state.h"
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/repeat.h"

#include <dlfcn.h>
#include <stdio.h>

struct cuda_state *cuda_state_table[CUDA_MAX_DEVICES];
pthread_mutex_t cuda_run_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Errors ------------------------------------------------------------------------------------------- */

bool cuda_check(cudaError_t status, const char *what, char *error) {
    if (status == cudaSuccess) return true;
    snprintf(error, CUDA_ERROR_BYTES, "%s: %s", what, cudaGetErrorString(status));
    return false;
}

const char *cuda_dtype_name(tl_dtype dtype) {
    static const char *const names[TL_DTYPE_COUNT] = {
        [TL_F64] = "f64",       [TL_F32] = "f32",       [TL_F16] = "f16",       [TL_BF16] = "bf16",
        [TL_F8E4M3] = "f8e4m3", [TL_F8E5M2] = "f8e5m2", [TL_F8E8M0] = "f8e8m0", [TL_F4E2M1] = "f4e2m1",
        [TL_I64] = "i64",       [TL_I32] = "i32",       [TL_I16] = "i16",       [TL_U16] = "u16",
        [TL_I8] = "i8",         [TL_U8] = "u8",         [TL_BOOL] = "bool",     [TL_C64] = "c64",
        [TL_C128] = "c128",
    };
    return (unsigned)dtype < TL_DTYPE_COUNT ? names[dtype] : "?";
}

bool cuda_refuse_dtype(const tl_kernel_args *args, tl_dtype dtype) {
    snprintf(args->error, CUDA_ERROR_BYTES, "no cuda kernel for %s of %s yet", args->op, cuda_dtype_name(dtype));
    return false;
}

/* Called after the stream is synchronized. An invalid index in a kernel is an error of the whole device: later work
 * in the stream used wrong rows. */
bool cuda_fault_report(struct cuda_state *state, char *error) {
    static const char *const culprit[] = {
        [FAULT_EMBEDDING] = "embedding: id",
        [FAULT_EMBEDDING_GRAD] = "embedding_grad: id",
        [FAULT_CROSS_ENTROPY] = "cross_entropy: target",
        [FAULT_CROSS_ENTROPY_GRAD] = "cross_entropy_grad: target",
        [FAULT_HEAD] = "linear_cross_entropy: target",
        [FAULT_NLL] = "nll: target",
        [FAULT_NLL_GRAD] = "nll_grad: target",
        [FAULT_GATHER] = "gather: index",
        [FAULT_SCATTER] = "scatter: index",
        [FAULT_INDEX] = "index: index",
        [FAULT_INDEX_PUT] = "index_put: index",
        [FAULT_GROUPED] = "grouped_matmul: the end of a group, after the one before it,",
        [FAULT_PIVOT] = "swap_rows: a pivot's row, counted from 0,",
    };
    const struct cuda_fault fault = *(volatile struct cuda_fault *)state->fault;
    const long long index = (long long)fault.index, limit = (long long)fault.limit;
    if (fault.code == FAULT_NONE) return true;
    state->fault->code = FAULT_NONE;
    switch (fault.code) {
    case FAULT_REPEAT:
        snprintf(error, CUDA_ERROR_BYTES, "repeats can not be negative: %lld at position %lld", index, limit);
        break;
    case FAULT_REMAINDER:
        snprintf(error, CUDA_ERROR_BYTES, "ZeroDivisionError: an integer (%lld) has no remainder by 0", index);
        break;
    case FAULT_WEIGHT:
        snprintf(error, CUDA_ERROR_BYTES, "probability tensor contains either `inf`, `nan` or element < 0 (row %lld)",
                 index);
        break;
    case FAULT_WEIGHTS:
        snprintf(error, CUDA_ERROR_BYTES,
                 "invalid multinomial distribution (row %lld has %lld positive probabilities, or an infinite sum)",
                 index, limit);
        break;
    case FAULT_COUNT:
        snprintf(error, CUDA_ERROR_BYTES, "%lld elements were counted, others are there", index);
        break;
    default:
        snprintf(error, CUDA_ERROR_BYTES, "%s %lld is outside [0, %lld)", culprit[fault.code], index, limit);
    }
    return false;
}

const char *cuda_symbols_find(void *library, const struct cuda_symbol *symbols, size_t n) {
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        *(void **)symbols[i].place = dlsym(library, symbols[i].name);
        if (!*(void **)symbols[i].place) missing = symbols[i].name;
    }
    return missing;
}

/* ---- Entering kernels --------------------------------------------------------------------------------- */

struct cuda_state *cuda_state_of(const void *stream) {
    for (int i = 0; i < CUDA_MAX_DEVICES; i++)
        if (cuda_state_table[i] && (const void *)cuda_state_table[i]->stream == stream) return cuda_state_table[i];
    return NULL;
}

bool cuda_select(const struct cuda_state *state, char *error) {
    int current = -1;
    if (cudaGetDevice(&current) == cudaSuccess && current == state->index) return true;
    return cuda_check(cudaSetDevice(state->index), "cudaSetDevice", error);
}

void cuda_driver_function(const char *name, void *place) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
    cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    *(void **)place = found == cudaDriverEntryPointSuccess ? function : NULL;
}

static struct cuda_state *state_enter(const tl_kernel_args *args) {
    struct cuda_state *state = cuda_state_of(args->stream);
    if (!state) snprintf(args->error, CUDA_ERROR_BYTES, "%s: not a stream of an opened cuda device", args->op);
    return state && cuda_select(state, args->error) ? state : NULL;
}

/* ---- Kernels that are launched early ------------------------------------------------------------------- */

/* Layer after layer writes the same memory, which is listed once. */
static void early_add(struct cuda_early *early, const char *begin, const char *end) {
    if (early->n == EARLY_WRITES || begin == end) return;
    for (int i = 0; i < early->n; i++)
        if (early->writes[i].begin <= begin && end <= early->writes[i].end) return;
    early->writes[early->n].begin = begin;
    early->writes[early->n++].end = end;
}

void early_writes(const tl_kernel_args *args, const tl_operand *x) {
    const int64_t bytes = dtype_bytes(x->dtype);
    const char *begin = x->data, *end = begin + bytes;
    for (int i = 0; i < x->rank; i++) {
        if (!x->shape[i]) return;
        const int64_t way = (x->shape[i] - 1) * x->stride[i] * bytes;
        if (way < 0) begin += way;
        else end += way;
    }
    early_add(&cuda_state_of(args->stream)->early, begin, end);
}

static uint64_t n_launched; /* calls of early_launched; with cuda_run_lock */

void early_launched(const tl_kernel_args *args, bool is_early) {
    n_launched++;
    struct cuda_early *early = &cuda_state_of(args->stream)->early;
    if (!is_early) early->n = 0;
    for (int i = 0; i < args->n_out; i++) early_writes(args, &args->out[i]);
    early_add(early, args->workspace, (const char *)args->workspace + args->workspace_bytes);
}

bool early_may_fetch(const tl_kernel_args *args, const void *data, size_t bytes) {
    struct cuda_early *early = &cuda_state_of(args->stream)->early;
    const char *begin = data, *end = begin + bytes;
    if (early->n == EARLY_WRITES) return false;
    for (int i = 0; i < early->n; i++)
        if (begin < early->writes[i].end && early->writes[i].begin < end) return false;
    early->n_fetches++;
    return true;
}

/* ---- Running kernels ----------------------------------------------------------------------------------- */

/* The runtime keeps launch errors until they are read, so one check covers all launches. What a call writes that does
 * not use launch_early is not known, and a kernel behind it that is launched early may begin before all of it can be
 * read. */
bool kernel_enter(const tl_kernel_args *args, tl_kernel kernel) {
    const uint64_t before = n_launched;
    const bool ok = kernel(args);
    if (n_launched == before) cuda_state_of(args->stream)->early.n = EARLY_WRITES;
    const cudaError_t status = cudaGetLastError();
    return ok && cuda_check(status, args->op, args->error);
}

bool cuda_run(const tl_kernel_args *args, tl_kernel kernel) {
    struct cuda_state *state = state_enter(args);
    if (!state) return false;
    pthread_mutex_lock(&cuda_run_lock);
    bool ok = true;
    if (!repeat_holds(state, args, kernel, &ok)) {
        ok = ok && kernel_enter(args, kernel);
        if (!ok) repeat_spoil(state);
    }
    pthread_mutex_unlock(&cuda_run_lock);
    return ok;
}

bool cuda_run_waiting(const tl_kernel_args *args, tl_kernel kernel) {
    struct cuda_state *state = state_enter(args);
    if (!state) return false;
    pthread_mutex_lock(&cuda_run_lock);
    const bool ok = repeat_settle(state, args->error) && kernel_enter(args, kernel);
    pthread_mutex_unlock(&cuda_run_lock);
    return ok;
}

bool cuda_settle(struct cuda_state *state, char *error) {
    pthread_mutex_lock(&cuda_run_lock);
    const bool ok = repeat_settle(state, error);
    pthread_mutex_unlock(&cuda_run_lock);
    return ok;
}
