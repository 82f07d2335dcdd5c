/* gpu.h: what CUDA C++ has and C++ has not, so that kernels run on a CPU, where no GPU is.
 *
 * Included before every .cu file, which `convert` has turned into C++. A block's threads are coroutines (gpu.cpp) that
 * take turns in one thread of the host: each runs until it has to wait for others, at a barrier or an exchange among
 * the lanes of a warp. Blocks run one after the other, and so do launches. That is a GPU of compute capability 8.0
 * with the results of one order of many; what is wrong in all orders is wrong here too: sums, indices, conversions,
 * barriers that not all threads reach.
 */
#ifndef GPU_H
#define GPU_H

#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <type_traits>

#define GPU_ARCH 800

/* ---- Where a thread is ----------------------------------------------------------------------------------- */

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
extern int gpu_thread; /* in the block */

void gpu_launch(dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()> &kernel);
void *gpu_dynamic_shared(void);
[[noreturn]] void gpu_unknown(const char *what);

/* Static, since blocks run one after the other. */
#undef __shared__
#define __shared__ static
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __noinline__
#define __noinline__
#undef __forceinline__
#define __forceinline__ inline

/* ---- Waiting --------------------------------------------------------------------------------------------- */

/* Waits for all threads of the block; the sum of what they bring. */
int gpu_block_wait(int brought);
/* Waits for n threads that bring the same number of a barrier. */
void gpu_barrier_wait(int barrier, int n);
/* Waits for the lanes of the mask; what each brought, by lane. */
struct gpu_lanes {
    uint64_t of[32];
};
const gpu_lanes &gpu_warp_wait(unsigned mask, uint64_t brought);

inline void __syncthreads() { gpu_block_wait(0); }
inline int __syncthreads_or(int x) { return gpu_block_wait(x != 0) != 0; }
inline int __syncthreads_and(int x) { return gpu_block_wait(x == 0) == 0; }
inline int __syncthreads_count(int x) { return gpu_block_wait(x != 0); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { gpu_warp_wait(mask, 0); }

template <class T> uint64_t gpu_bits(T x) {
    static_assert(sizeof x <= 8, "a word");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    return bits;
}
template <class T> T gpu_of_bits(uint64_t bits) {
    T x;
    memcpy((void *)&x, &bits, sizeof x);
    return x;
}
inline int gpu_lane() { return gpu_thread % 32; }
template <class T> T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
    const int from = gpu_lane() / width * width + lane % width;
    return gpu_of_bits<T>(gpu_warp_wait(mask, gpu_bits(x)).of[from]);
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int flip) {
    const int from = gpu_lane() ^ flip;
    return gpu_of_bits<T>(gpu_warp_wait(mask, gpu_bits(x)).of[from]);
}
/* From another lane of the same `width` lanes; what is beyond them gives its own. */
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned distance, int width = 32) {
    const int lane = gpu_lane(), from = lane - (int)distance;
    return gpu_of_bits<T>(gpu_warp_wait(mask, gpu_bits(x)).of[from < lane / width * width ? lane : from]);
}
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned distance, int width = 32) {
    const int lane = gpu_lane(), from = lane + (int)distance;
    return gpu_of_bits<T>(gpu_warp_wait(mask, gpu_bits(x)).of[from >= (lane / width + 1) * width ? lane : from]);
}
/* Bits of the lanes of the mask whose word passes. */
template <class F> unsigned gpu_votes(unsigned mask, uint64_t brought, F passes) {
    const gpu_lanes &lanes = gpu_warp_wait(mask, brought);
    unsigned votes = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && passes(lanes.of[i])) votes |= 1u << i;
    return votes;
}
inline unsigned __ballot_sync(unsigned mask, int x) {
    return gpu_votes(mask, x != 0, [](uint64_t word) { return word != 0; });
}
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
inline int __all_sync(unsigned mask, int x) { return __ballot_sync(mask, x) == mask; }
template <class T> unsigned __match_any_sync(unsigned mask, T x) {
    const uint64_t own = gpu_bits(x);
    return gpu_votes(mask, own, [=](uint64_t word) { return word == own; });
}
template <class F> unsigned gpu_fold(unsigned mask, unsigned x, F f) {
    const gpu_lanes &lanes = gpu_warp_wait(mask, x);
    unsigned all = x;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) all = f(all, (unsigned)lanes.of[i]);
    return all;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned x) {
    return gpu_fold(mask, x, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned x) {
    return gpu_fold(mask, x, [](unsigned a, unsigned b) { return a | b; });
}
/* A thread that waits for memory to change lets others run. */
void gpu_turn(void);
inline void __nanosleep(unsigned) { gpu_turn(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

/* ---- Atomic, since no other thread runs meanwhile --------------------------------------------------------- */

template <class T, class F> T gpu_change(T *place, F f) {
    const T before = *place;
    *place = f(before);
    return before;
}
template <class T> T atomicAdd(T *p, std::common_type_t<T> x) {
    return gpu_change(p, [=](T a) { return (T)(a + x); });
}
template <class T> T atomicOr(T *p, std::common_type_t<T> x) {
    return gpu_change(p, [=](T a) { return a | x; });
}
template <class T> T atomicAnd(T *p, std::common_type_t<T> x) {
    return gpu_change(p, [=](T a) { return a & x; });
}
template <class T> T atomicMin(T *p, std::common_type_t<T> x) {
    return gpu_change(p, [=](T a) { return a < x ? a : x; });
}
template <class T> T atomicMax(T *p, std::common_type_t<T> x) {
    return gpu_change(p, [=](T a) { return a > x ? a : x; });
}
template <class T> T atomicExch(T *p, std::common_type_t<T> x) {
    return gpu_change(p, [=](T) { return x; });
}
template <class T> T atomicCAS(T *p, std::common_type_t<T> is, std::common_type_t<T> x) {
    return gpu_change(p, [=](T a) { return a == is ? x : a; });
}

/* ---- Functions -------------------------------------------------------------------------------------------- */

using std::max;
using std::min;
inline int64_t min(int64_t a, int b) { return std::min(a, (int64_t)b); }
inline int64_t max(int64_t a, int b) { return std::max(a, (int64_t)b); }
inline int64_t min(int a, int64_t b) { return std::min((int64_t)a, b); }
inline int64_t max(int a, int64_t b) { return std::max((int64_t)a, b); }
inline unsigned min(unsigned a, int b) { return std::min(a, (unsigned)b); }
inline unsigned max(unsigned a, int b) { return std::max(a, (unsigned)b); }

inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return (unsigned)(((uint64_t)high << 32 | low) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (n & 31));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline float __uint_as_float(unsigned x) { return gpu_of_bits<float>(x); }
inline float __int_as_float(int x) { return gpu_of_bits<float>((unsigned)x); }
inline unsigned __float_as_uint(float x) { return (unsigned)gpu_bits(x); }
inline int __float_as_int(float x) { return (int)gpu_bits(x); }
inline long long __double_as_longlong(double x) { return (long long)gpu_bits(x); }
inline double __longlong_as_double(long long x) { return gpu_of_bits<double>((uint64_t)x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __frcp_rn(float x) { return 1 / x; }
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
inline unsigned __vadd2(unsigned a, unsigned b) { return ((a + b) & 0xFFFFu) | ((a >> 16) + (b >> 16)) << 16; }
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> void __stcs(T *p, T x) { *p = x; }

/* ---- Instructions ----------------------------------------------------------------------------------------- */

#define INSTRUCTION inline void

/* Shared memory has addresses of 32 bits: here the distance to the room of dynamic shared memory. */
uint32_t gpu_shared_address(const void *p);
char *gpu_shared_place(uint32_t address);
#define __cvta_generic_to_shared gpu_shared_address

INSTRUCTION ex2_approx_ftz_f32(float &y, float x) { y = exp2f(x); }
INSTRUCTION rcp_approx_ftz_f32(float &y, float x) { y = 1 / x; }
INSTRUCTION cvt_u32_u64(uint32_t &low, uint64_t x) { low = (uint32_t)x; }
INSTRUCTION bar_sync(int barrier, int n) { gpu_barrier_wait(barrier, n); }
INSTRUCTION bar_sync(int) { gpu_unknown("bar.sync of all threads by number"); }
INSTRUCTION griddepcontrol_wait() {}
INSTRUCTION griddepcontrol_launch_dependents() {}
INSTRUCTION prmt_b32(uint32_t &y, uint32_t a, uint32_t b, uint32_t which) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    y = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t digit = which >> 4 * i & 15, byte = (uint32_t)(bytes >> 8 * (digit & 7)) & 255;
        y |= (digit & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
}
INSTRUCTION prmt_b32(uint32_t &y, uint32_t a, uint32_t which) { prmt_b32(y, a, 0, which); }
INSTRUCTION ld_global_L1_no_allocate_v4_u32(uint32_t &x, uint32_t &y, uint32_t &z, uint32_t &w, const void *from) {
    const uint32_t *const words = (const uint32_t *)from;
    x = words[0], y = words[1], z = words[2], w = words[3];
}
INSTRUCTION ld_global_nc_L1_no_allocate_v4_u32(uint32_t &x, uint32_t &y, uint32_t &z, uint32_t &w, const void *from) {
    ld_global_L1_no_allocate_v4_u32(x, y, z, w, from);
}
/* Copies are done when they are asked for. */
INSTRUCTION cp_async_ca_shared_global(uint32_t to, const void *from, int n, int n_there) {
    memcpy(gpu_shared_place(to), from, (size_t)n_there);
    memset(gpu_shared_place(to) + n_there, 0, (size_t)(n - n_there));
}
INSTRUCTION cp_async_cg_shared_global(uint32_t to, const void *from, int n_there) {
    cp_async_ca_shared_global(to, from, 16, n_there);
}
INSTRUCTION cp_async_commit_group() {}
INSTRUCTION cp_async_wait_group(int) {}

inline float gpu_narrow(const __nv_bfloat16 *, uint32_t bits) { return gpu_of_bits<float>(bits << 16); }
inline float gpu_narrow(const __half *, uint32_t bits) { return __half2float(gpu_of_bits<__half>(bits)); }
/* c (16,8) += a (16,16) b (16,8); tensor_core.cuh says which lane has what. */
template <class T> void gpu_multiply(float *const (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const struct { uint32_t a[4], b[2]; } own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const gpu_lanes lanes = gpu_warp_wait(0xFFFFFFFFu, gpu_bits(&own));
    const auto half = [](uint32_t pair, int i) { return gpu_narrow((const T *)nullptr, pair >> 16 * i & 0xFFFFu); };
    const auto lane_of = [&](int i) { return gpu_of_bits<decltype(&own)>(lanes.of[i]); };
    for (int i = 0; i < 4; i++) {
        const int row = gpu_lane() / 4, column = gpu_lane() % 4 * 2 + i % 2;
        double sum = 0;
        for (int k = 0; k < 16; k++)
            sum += (double)half(lane_of(row * 4 + k % 8 / 2)->a[i / 2 + k / 8 * 2], k % 2) *
                   (double)half(lane_of(column * 4 + k % 8 / 2)->b[k / 8], k % 2);
        *c[i] = (float)(*c[i] + sum);
    }
    gpu_warp_wait(0xFFFFFFFFu, 0); /* all have read what the others brought */
}
#define GPU_MULTIPLY(name, T)                                                                                        \
    INSTRUCTION name(float &c0, float &c1, float &c2, float &c3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, \
                     uint32_t b0, uint32_t b1) {                                                                     \
        gpu_multiply<T>({&c0, &c1, &c2, &c3}, {a0, a1, a2, a3}, {b0, b1});                                           \
    }
GPU_MULTIPLY(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, __nv_bfloat16)
GPU_MULTIPLY(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, __half)

/* Lane i has the address of row i % 8 of part i / 8; it gets two neighbours of row i / 4 of each. */
inline void gpu_parts_load(uint32_t *const (&out)[4], uint32_t address, bool is_turned) {
    const gpu_lanes lanes = gpu_warp_wait(0xFFFFFFFFu, address);
    const auto at = [&](int part, int row, int column) {
        uint16_t x;
        memcpy(&x, gpu_shared_place((uint32_t)lanes.of[part * 8 + row]) + 2 * column, 2);
        return (uint32_t)x;
    };
    const int row = gpu_lane() / 4, column = gpu_lane() % 4 * 2;
    for (int part = 0; part < 4; part++)
        *out[part] = is_turned ? at(part, column, row) | at(part, column + 1, row) << 16
                               : at(part, row, column) | at(part, row, column + 1) << 16;
}
INSTRUCTION ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, uint32_t at) {
    gpu_parts_load({&a, &b, &c, &d}, at, false);
}
INSTRUCTION ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d,
                                                           uint32_t at) {
    gpu_parts_load({&a, &b, &c, &d}, at, true);
}

/* ---- The runtime's functions that take kernels --------------------------------------------------------------- */

template <class K> cudaError_t cudaFuncSetAttribute(K *, cudaFuncAttribute, int) { return cudaSuccess; }
template <class K> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, K *) {
    *attributes = {};
    attributes->ptxVersion = attributes->binaryVersion = GPU_ARCH / 10;
    return cudaSuccess;
}
template <class... P, class... A>
cudaError_t gpu_launch_config(const cudaLaunchConfig_t *config, void (*kernel)(P...), A... a) {
    gpu_launch(config->gridDim, config->blockDim, config->dynamicSmemBytes, [&] { kernel(P(a)...); });
    return cudaSuccess;
}
#define cudaLaunchKernelEx gpu_launch_config

#endif
