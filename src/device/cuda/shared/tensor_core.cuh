/* tensor_core.cuh: what kernels on tensor cores are made of, from compute capability 8.0 on: one instruction each.
 *
 * mma.m16n8k16 multiplies A (16,16) by B (16,8). With row = lane / 4 and pair = 2 (lane % 4), a lane holds of A the
 * elements (row, pair..), (row + 8, pair..), (row, pair + 8..), (row + 8, pair + 8..), two in each register; of B
 * (pair.., row), (pair + 8.., row); and of the result (row, pair), (row, pair + 1), (row + 8, pair), (row + 8, pair
 * + 1). Two neighbouring results, rounded, thus are an A. ldmatrix reads four 8 x 8 parts of an A or of two B's at
 * once, and transposes them where a B has its sums along columns.
 *
 * mma.m16n8k8 multiplies A (16,8) by B (8,8) of 32 bits, of which tf32 has 19. With k = lane % 4, a lane holds of A
 * (row, k), (row + 8, k), (row, k + 4), (row + 8, k + 4), and of B (k, row), (k + 4, row). An 8 x 8 part of 16 bits is
 * an 8 x 4 part of 32, so ldmatrix reads these, too, but cannot transpose them.
 */
#ifndef CUDA_TENSOR_CORE_CUH
#define CUDA_TENSOR_CORE_CUH

#include "device/cuda/shared/common.cuh"

__device__ inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* c (16,8) += a (16,16) b (16,8) */
template <class T> struct tensor_core;
template <> struct tensor_core<bf16> {
    static __device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
    }
};
template <> struct tensor_core<f16> {
    static __device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
    }
};

/* c (16,8) += a (16,8) b (8,8), both in tf32. The sum is cut, not rounded, so a long one shrinks. */
struct tf32;
template <> struct tensor_core<tf32> {
    static __device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
    }
};

/* The nearest number with 11 bits of significand. */
__device__ inline uint32_t tf32_of(float x) {
#if __CUDA_ARCH__ >= 900
    uint32_t bits;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#else /* what there is, cvt.rna, takes twice as many instructions, to leave NaN alone: here the rest is NaN then */
    return (__float_as_uint(x) + 0x1000u) & ~0x1FFFu;
#endif
}
/* Four elements of an A, or of two B's, as sums of two tf32: 22 bits of 24, and often more, since of the rest, which is
 * exact, the tensor core leaves out what 11 bits do not hold. What is infinite becomes NaN. */
struct tf32_pairs {
    uint32_t high[4], low[4];
    __device__ inline void set(int i, float x) {
        high[i] = tf32_of(x);
        low[i] = __float_as_uint(x - __uint_as_float(high[i]));
    }
    __device__ inline void set_all(const uint32_t (&bits)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) set(i, __uint_as_float(bits[i]));
    }
};

/* Four 8 x 8 parts, each transposed if TURNED: lane i gives the address of row i % 8 of part i / 8. */
template <bool TURNED> __device__ inline void parts_load(uint32_t (&four)[4], const uint16_t *row) {
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
                     : "r"(shared_address(row)));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
                     : "r"(shared_address(row)));
}

/* 4, 8 or 16 bytes to shared memory, later; zeros unless `is_there`. 16 bytes pass by the L1 cache. */
template <int BYTES> __device__ inline void copy_later(void *to, const void *from, bool is_there) {
#if __CUDA_ARCH__ >= 800
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(is_there ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES),
                     "r"(is_there ? BYTES : 0)
                     : "memory");
#endif
}
__device__ inline void copies_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits until at most PENDING groups are under way. */
template <int PENDING> __device__ inline void copies_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

#endif
