/* attention.cuh: what both of our attention kernels ask of a call: which keys a query sees. */
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH

#include "device/cuda/ops/attention.h"

__device__ inline int64_t given_first_key(const attention_call &a, int64_t b, int64_t t) {
    const int64_t at = b * a.first_key_stride[0] + t * a.first_key_stride[1];
    return a.first_key_dtype == TL_I64 ? ((const int64_t *)a.first_key)[at] : ((const int32_t *)a.first_key)[at];
}

/* The keys that query t of batch entry b sees: from first_key to visible_keys - 1. */
__device__ inline int64_t visible_keys(const attention_call &a, int64_t t) {
    const int64_t n = a.S - a.T + t + a.right + 1;
    return n < 0 ? 0 : n < a.S ? n : a.S;
}
__device__ inline int64_t first_key(const attention_call &a, int64_t b, int64_t t) {
    const int64_t s = a.S - a.T + t - a.left, least = s > 0 ? s : 0;
    if (!a.first_key) return least;
    const int64_t given = given_first_key(a, b, t), first = given > least ? given : least;
    return first < a.S ? first : a.S; /* fits an int where S does */
}

/* The queries that see key s: from first_query to end_query - 1. */
__device__ inline int64_t first_query(const attention_call &a, int64_t s) {
    const int64_t t = s - (a.S - a.T) - a.right;
    return t > 0 ? t : 0;
}
__device__ inline int64_t end_query(const attention_call &a, int64_t b, int64_t s) {
    int64_t t = 0, end = s - (a.S - a.T) + a.left + 1;
    end = end < a.T ? end : a.T;
    while (a.first_key && t < end) { /* one beyond the last whose first key is at most s */
        const int64_t middle = t + (end - t) / 2;
        if (given_first_key(a, b, middle) <= s) t = middle + 1;
        else end = middle;
    }
    return end;
}

#endif
