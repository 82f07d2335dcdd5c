/* attention_hopper.cuh: what both attention kernels for Hopper share beyond hopper.cuh: their products, and rows of a
 * head written from registers. A head of 128 is two tiles side by side.
 */
#ifndef CUDA_ATTENTION_HOPPER_CUH
#define CUDA_ATTENTION_HOPPER_CUH

#include "device/cuda/ops/attention.cuh"
#include "device/cuda/shared/hopper.cuh"

__device__ inline float2 unpack(bf16, uint32_t two) {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}
__device__ inline float2 unpack(f16, uint32_t two) {
    __half2 halves;
    memcpy(&halves, &two, 4);
    return __half22float2(halves);
}

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

#define PRODUCTS(type)                                                                                          \
    SHARED_PRODUCT(multiply_rows, type, 64, LIST_32, REG32(c), "%32", "%33", "%34", 0, 0)                       \
    SHARED_PRODUCT(multiply_rows, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 0)                      \
    SHARED_PRODUCT(multiply_columns, type, 64, LIST_32, REG32(c), "%32", "%33", "%34", 1, 1)                    \
    REGISTER_PRODUCT(multiply_registers, type, 64, LIST_32, REG32(c), "%32", "%33", "%34", "%35", "%36", "%37") \
    REGISTER_PRODUCT(multiply_registers, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", "%67", "%68", "%69")
PRODUCTS(bf16)
PRODUCTS(f16)

/* ---- Results ------------------------------------------------------------------------------------------ */

template <class T, int N> __device__ inline void operand_of(uint32_t (&a)[N / 8][4], const float (&c)[N]) {
#pragma unroll
    for (int k = 0; k < N / 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) a[k][i] = round_two(T(), c[8 * k + 2 * i], c[8 * k + 2 * i + 1]);
}

/* 64 rows of 64, times a factor, rounded, into rows of a head from `first` on and elements from d0 on. `staging` is
 * the consumer's, and free. */
template <class T>
__device__ inline void rows_write(const lane_place &me, const float *c, float factor, void *staging,
                                  const attention_rows &rows, int b, int first, int h, int end, int d0, int D) {
    block_write<T>(me, c, factor, staging, row_at(rows, b, first, h) + d0, rows.stride_t, end - first, D - d0);
}
#endif

/* ---- Launching ---------------------------------------------------------------------------------------- */

/* n_rows rows of n_heads heads in tiles of `tile` rows of 64 elements. */
static bool map_make(const tl_kernel_args *args, CUtensorMap *map, const attention_call &a, const attention_rows &rows,
                     int64_t n_rows, int64_t n_heads, int tile) {
    return map_encode(args, map, a.dtype, rows.data, {a.D, n_rows, n_heads, a.B},
                      {rows.stride_t, rows.stride_h, rows.stride_b}, tile);
}

#endif
