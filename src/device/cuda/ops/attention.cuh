/* attention.cuh: what both of our attention kernels ask of a call: which keys a query sees. */
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH

#include "device/cuda/ops/attention.h"

/* The keys that query t sees: from first_key to visible_keys - 1. */
__device__ inline int64_t visible_keys(const attention_call &a, int64_t t) {
    const int64_t n = a.S - a.T + t + a.right + 1;
    return n < 0 ? 0 : n < a.S ? n : a.S;
}
__device__ inline int64_t first_key(const attention_call &a, int64_t t) {
    const int64_t s = a.S - a.T + t - a.left;
    return s > 0 ? s : 0;
}

/* The queries that see key s: from first_query to end_query - 1. */
__device__ inline int64_t first_query(const attention_call &a, int64_t s) {
    const int64_t t = s - (a.S - a.T) - a.right;
    return t > 0 ? t : 0;
}
__device__ inline int64_t end_query(const attention_call &a, int64_t s) {
    const int64_t t = s - (a.S - a.T) + a.left + 1;
    return t < a.T ? t : a.T;
}

#endif
