/* fetch.cuh: reading before front_wait (launch_early in common.cuh).
 *
 * The assembler moves loads of constant memory (ld.global.nc, and what the compiler takes for such) behind the wait,
 * wherever they stand in the source. Loads of the kind here stay in front of it. */
#ifndef CUDA_FETCH_CUH
#define CUDA_FETCH_CUH

#include <stdint.h>

/* 16 bytes, past the L1 cache; the caller asks early_may_fetch. */
__device__ inline uint4 load_early(const void *data) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(data)
                 : "memory");
    return x;
}

/* To the L2 cache, which is the same for all: so this may be done early with memory that kernels in front write, too.
 * data and bytes are multiples of 16. From compute capability 9.0 on; elsewhere nothing. */
__device__ inline void cache_fetch(const void *data, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(data), "r"(bytes) : "memory");
#else
    (void)data, (void)bytes;
#endif
}

#endif
