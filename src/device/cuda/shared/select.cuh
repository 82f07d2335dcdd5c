/* select.cuh: elements that satisfy a condition, numbered in order, for nonzero and unique; sums over tiles, also for
 * repeat_interleave.
 *
 * Three launches: how many each tile of SELECT_TILE elements has, the sum of these over all tiles before each, and the
 * numbers of all. The workspace has one int64 for each tile.
 *
 * A source S has: value_type value(i), which only reads; bool holds(i, value); and put(i, number, holds, held), called
 * for every element i; `number` is how many before it hold, and `held` what held_type held(i) has read for it.
 */
#ifndef CUDA_SELECT_CUH
#define CUDA_SELECT_CUH

#include "device/cuda/shared/limits.h"
#include "device/cuda/shared/prefix_scan.cuh"

enum { SELECT_THREADS = 256, SELECT_ROUNDS = SELECT_TILE / SELECT_THREADS, SELECT_AHEAD = 8 };
static_assert(SELECT_ROUNDS % SELECT_AHEAD == 0, "rounds are put SELECT_AHEAD at a time");

/* A warp has SELECT_ROUNDS times 32 neighbours; bit k of the result is lane k's. */
template <class S>
__device__ inline void select_look(const S &source, int64_t first, int64_t n, unsigned (&found)[SELECT_ROUNDS]) {
    typename S::value_type value[SELECT_ROUNDS];
    first += threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < SELECT_ROUNDS; k++) value[k] = source.value(min(first + k * 32, n - 1));
#pragma unroll
    for (int k = 0; k < SELECT_ROUNDS; k++)
        found[k] = __ballot_sync(0xFFFFFFFFu, first + k * 32 < n && source.holds(first + k * 32, value[k]));
}

template <class S> __global__ void __launch_bounds__(SELECT_THREADS) select_count(S source, int64_t n, int64_t *tiles) {
    __shared__ int of_warp[SELECT_THREADS / 32];
    const int warp = threadIdx.x / 32;
    unsigned found[SELECT_ROUNDS];
    select_look(source, blockIdx.x * (int64_t)SELECT_TILE + warp * 32 * SELECT_ROUNDS, n, found);
    int count = 0;
    for (int k = 0; k < SELECT_ROUNDS; k++) count += __popc(found[k]);
    if (threadIdx.x % 32 == 0) of_warp[warp] = count;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int k = 1; k < SELECT_THREADS / 32; k++) count += of_warp[k];
    tiles[blockIdx.x] = count;
}

enum { SCAN_EACH = 8 };

/* Counts become sums of those before; one block, whose threads have SCAN_EACH neighbours each. If there is a fault to
 * raise, their whole must be what was counted before. */
template <int UNUSED>
__global__ void __launch_bounds__(1024)
    select_scan(int64_t *tiles, int64_t n_tiles, int64_t expected, struct cuda_fault *fault) {
    __shared__ int64_t room[32];
    int64_t before = 0;
    for (int64_t base = 0; base < n_tiles; base += blockDim.x * SCAN_EACH) {
        const int64_t first = base + (int64_t)threadIdx.x * SCAN_EACH;
        int64_t counts[SCAN_EACH], count = 0, all;
#pragma unroll
        for (int k = 0; k < SCAN_EACH; k++) counts[k] = first + k < n_tiles ? tiles[first + k] : 0;
#pragma unroll
        for (int k = 0; k < SCAN_EACH; k++) count += counts[k];
        int64_t number = before + block_scan(count, sum_of(), room, &all) - count;
#pragma unroll
        for (int k = 0; k < SCAN_EACH; k++) {
            if (first + k < n_tiles) tiles[first + k] = number;
            number += counts[k];
        }
        before += all;
    }
    if (fault && before != expected && threadIdx.x == 0) fault_raise(fault, FAULT_COUNT, expected, before);
}

template <class S>
__global__ void __launch_bounds__(SELECT_THREADS) select_put(S source, int64_t n, const int64_t *tiles) {
    __shared__ int of_warp[SELECT_THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t first = blockIdx.x * (int64_t)SELECT_TILE + warp * 32 * SELECT_ROUNDS;
    unsigned found[SELECT_ROUNDS];
    select_look(source, first, n, found);
    int count = 0;
    for (int k = 0; k < SELECT_ROUNDS; k++) count += __popc(found[k]);
    if (lane == 0) of_warp[warp] = count;
    __syncthreads();
    int64_t number = tiles[blockIdx.x];
    for (int k = 0; k < warp; k++) number += of_warp[k];
#pragma unroll
    for (int base = 0; base < SELECT_ROUNDS; base += SELECT_AHEAD) {
        typename S::held_type held[SELECT_AHEAD]; /* all are on their way before the first is put */
#pragma unroll
        for (int k = 0; k < SELECT_AHEAD; k++) held[k] = source.held(min(first + (base + k) * 32 + lane, n - 1));
#pragma unroll
        for (int k = 0; k < SELECT_AHEAD; k++) {
            const unsigned here = found[base + k];
            const int64_t i = first + (base + k) * 32 + lane;
            if (i < n) source.put(i, number + __popc(here & ((1u << lane) - 1)), here >> lane & 1, held[k]);
            number += __popc(here);
        }
    }
}

/* Whether the room for one count of each tile is there. */
static inline bool tiles_fit(const tl_kernel_args *args, int64_t n_tiles, size_t bytes) {
    const size_t need = (size_t)n_tiles * sizeof(int64_t);
    if (bytes < need)
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op, need, bytes);
    return bytes >= need;
}

/* n > 0. */
template <class S>
static bool select_all(const tl_kernel_args *args, const S &source, int64_t n, int64_t expected, int64_t *tiles,
                       size_t tiles_bytes) {
    const int64_t n_tiles = (n + SELECT_TILE - 1) / SELECT_TILE;
    const cudaStream_t stream = stream_of(args);
    if (!tiles_fit(args, n_tiles, tiles_bytes)) return false;
    select_count<S><<<(unsigned)n_tiles, SELECT_THREADS, 0, stream>>>(source, n, tiles);
    select_scan<0><<<1, 1024, 0, stream>>>(tiles, n_tiles, expected, fault_of(args));
    select_put<S><<<(unsigned)n_tiles, SELECT_THREADS, 0, stream>>>(source, n, tiles);
    return true;
}

#endif
