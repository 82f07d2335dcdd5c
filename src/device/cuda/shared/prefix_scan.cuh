/* prefix_scan.cuh: running results inside a block, in one fixed order. */
#ifndef CUDA_PREFIX_SCAN_CUH
#define CUDA_PREFIX_SCAN_CUH

#include "device/cuda/shared/common.cuh"

__device__ inline double shuffle_up(double x, int distance) { return __shfl_up_sync(0xFFFFFFFFu, x, distance); }
__device__ inline int64_t shuffle_up(int64_t x, int distance) { return __shfl_up_sync(0xFFFFFFFFu, x, distance); }

/* Thread t of a block (whole warps, at most 32) gets f(x of thread 0, ..., x of thread t); every thread gets the
 * whole in *total. f(earlier, later) need not commute. `room` is shared memory for 32. */
template <class X, class F> __device__ inline X block_scan(X x, F f, X *room, X *total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = (blockDim.x + 31) / 32;
    for (int distance = 1; distance < 32; distance *= 2) {
        const X before = shuffle_up(x, distance);
        if (lane >= distance) x = f(before, x);
    }
    __syncthreads(); /* an earlier call may still be reading */
    if (lane == 31) room[warp] = x;
    __syncthreads();
    X below = room[0], all = room[0];
    for (int w = 1; w < n_warps; w++) {
        if (w == warp) below = all;
        all = f(all, room[w]);
    }
    *total = all;
    return warp > 0 ? f(below, x) : x;
}

#endif
