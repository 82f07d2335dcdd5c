/* line_pack.cuh: dense lines of numbers, from wherever they begin, in 16 bytes at a time. */
#ifndef CUDA_LINE_PACK_CUH
#define CUDA_LINE_PACK_CUH

#include "device/cuda/shared/common.cuh"

enum { PACKS_AHEAD = 4 }; /* packs that a thread fetches before it uses the first */

/* The place of a line's first element in its 16 bytes of memory. */
template <class T> __device__ inline int line_shift(const T *line) { return (int)((uintptr_t)line % 16 / sizeof(T)); }

/* The 16 bytes of memory that hold elements first .. first + N - 1 of a line; of these the line has those from 0 to
 * n - 1. first may be negative: lines begin anywhere. What is not the line's is read with it, since a block of memory
 * consists of such packs, and left out: reading a few elements one after the other takes longer. */
template <class T> struct line_pack {
    enum { N = 16 / sizeof(T) };
    uint4 bits;
    int64_t first, n;

    __device__ bool is_whole() const { return first >= 0 && first + N <= n; }
    __device__ bool has(int j) const { return (uint64_t)(first + j) < (uint64_t)n; }
    /* Pack i of a line; nothing, where the line has none of it. */
    __device__ void fetch(const T *line, int64_t n_line, int64_t i) {
        first = i * N - line_shift(line);
        n = n_line;
        if (max(first, (int64_t)0) < n) bits = *(const uint4 *)(line + first);
    }
    template <class C> __device__ C whole_at(int j) const {
        T x[N];
        memcpy(x, &bits, sizeof x);
        return value_of<C>(x[j]);
    }
    template <class C> __device__ C at(const T *, int j, C rest) const {
        return is_whole() || has(j) ? whole_at<C>(j) : rest;
    }
    /* f(value, place in the line) of each element that the line has, in order. */
    template <class C, class F> __device__ void each(const T *, F f) const {
        const bool all = is_whole();
#pragma unroll
        for (int j = 0; j < N; j++)
            if (all || has(j)) f(whole_at<C>(j), first + j);
    }
};
template <class T> __device__ inline int64_t line_packs(const T *line, int64_t n) {
    return (line_shift(line) + n + line_pack<T>::N - 1) / line_pack<T>::N;
}

/* f of each pack of a line that is one thread's, of n_threads. */
template <class T, class F> __device__ inline void line_each(const T *line, int64_t n, int thread, int n_threads, F f) {
    const int64_t n_packs = line_packs(line, n);
    for (int64_t i = thread; i < n_packs; i += PACKS_AHEAD * n_threads) {
        line_pack<T> x[PACKS_AHEAD];
#pragma unroll
        for (int k = 0; k < PACKS_AHEAD; k++) x[k].fetch(line, n, i + k * n_threads);
#pragma unroll
        for (int k = 0; k < PACKS_AHEAD; k++)
            if (i + k * n_threads < n_packs) f(x[k]);
    }
}

/* v becomes the elements of another line at the places of pack x; both lines begin at the same place of a pack. */
template <class T> __device__ inline void line_put(T *line, const line_pack<T> &x, const T (&v)[line_pack<T>::N]) {
    if (x.is_whole()) {
        uint4 bits;
        memcpy(&bits, v, sizeof bits);
        *(uint4 *)(line + x.first) = bits;
        return;
    }
#pragma unroll
    for (int j = 0; j < line_pack<T>::N; j++)
        if (x.has(j)) line[x.first + j] = v[j];
}

/* The largest of a line and, relative to it, the sum of exponentials (E::of), by a block that reads the line once: the
 * sum grows with the maximum so far. Every thread gets both. Of a line of -inf the sum is 0. */
template <class E, class T, class C = typename compute_type<T>::type>
__device__ inline running<C> line_running(const T *line, int64_t n) {
    enum { N = line_pack<T>::N };
    C own = lowest<C>(), part = 0;
    line_each(line, n, threadIdx.x, blockDim.x, [&](const line_pack<T> &p) {
        C v[N], top = own;
#pragma unroll
        for (int j = 0; j < N; j++) top = max_of()(top, v[j] = p.template at<C>(line, j, lowest<C>()));
        const C shift = top == lowest<C>() ? C(0) : top;
        part *= own == top ? C(1) : E::of(own - shift);
        own = top;
#pragma unroll
        for (int j = 0; j < N; j++) part += E::of(v[j] - shift);
    });
    const C top = block_reduce(own, max_of(), lowest<C>());
    const C shift = top == lowest<C>() ? C(0) : top;
    part *= own == top ? C(1) : E::of(own - shift);
    return {top, block_reduce(part, sum_of(), C(0))};
}

/* Whether all arrays begin at the same place of a pack. */
static inline bool rows_shift_alike(int n_addresses, const void *const *addresses) {
    uintptr_t apart = 0;
    for (int i = 1; i < n_addresses; i++) apart |= (uintptr_t)addresses[i] - (uintptr_t)addresses[0];
    return apart % 16 == 0;
}

#endif
