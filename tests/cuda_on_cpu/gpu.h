/* gpu.h: what CUDA C++ has and C++ has not, so that kernels run on a CPU, where no GPU is.
 *
 * Included before every .cu file, which `convert` has turned into C++. A block's threads are coroutines (gpu.cpp) that
 * take turns in one thread of the host: each runs until it has to wait for others, at a barrier or an exchange among
 * the lanes of a warp. Blocks run one after the other, those of a cluster together, and launches one after the other.
 * What is wrong in all orders is wrong here: sums, indices, conversions, barriers that not all threads reach.
 *
 * A GPU works in one of many orders, and this one in either of two. Early: the first thread is the first to run, and
 * what threads do not wait for (copies to and from shared memory, products of warpgroups) is done when it is asked for.
 * Late: the last thread is the first, and such work is done when somebody has to wait for it, tiles even only when
 * nobody can go on. A kernel that relies on neither gives the same results in both.
 */
#ifndef GPU_H
#define GPU_H

#include <cuda.h>
#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <type_traits>

/* Kernels are compiled for it. CUDA_ON_CPU=80 runs those for capability 8.0 all the same; 90-late is late. */
#define GPU_ARCH 900
#define __CUDA_ARCH_FEAT_SM90_ALL

/* ---- Where a thread is ----------------------------------------------------------------------------------- */

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
extern int gpu_thread; /* in the block */
extern int gpu_rank;   /* of the block in its cluster */

void gpu_launch(dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()> &kernel);
/* The first thing that a kernel does whose blocks form clusters of n. */
void gpu_cluster(int n);
void *gpu_dynamic_shared(void); /* of the thread's own block */
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
/* Waits for n threads that bring the same number of a barrier; or is one of them, and goes on. */
void gpu_barrier_wait(int barrier, int n);
void gpu_barrier_arrive(int barrier, int n);
/* Waits for the other threads of the warpgroup; of the cluster. */
void gpu_warpgroup_wait(void);
void gpu_cluster_wait(void);
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
/* A thread that waits for memory to change lets others run; one that changes what others wait for says so. */
void gpu_turn(void);
void gpu_changed(void);
inline void __nanosleep(unsigned) { gpu_turn(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

/* ---- Now or later ------------------------------------------------------------------------------------------ */

extern const bool gpu_is_late;
/* Work of a thread that it waits for by groups: until at most so many are not done. */
enum gpu_work { GPU_COPIES, GPU_STORES, GPU_PRODUCTS, GPU_WORKS };
void gpu_later(gpu_work kind, const std::function<void()> &work);
void gpu_commit(gpu_work kind);
void gpu_finish(gpu_work kind, int n_pending);
/* Work that is done when no thread can go on without it. */
void gpu_much_later(const std::function<void()> &work);
template <class F> void gpu_do(gpu_work kind, F work) {
    if (gpu_is_late) gpu_later(kind, work);
    else work();
}

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

/* By value, as on a GPU. GCC 12 computes (c ? p : q)[std::min(i, j)] from a temporary that it has not set. */
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
inline int64_t min(int64_t a, int b) { return min(a, (int64_t)b); }
inline int64_t max(int64_t a, int b) { return max(a, (int64_t)b); }
inline int64_t min(int a, int64_t b) { return min((int64_t)a, b); }
inline int64_t max(int a, int64_t b) { return max((int64_t)a, b); }
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }

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
inline float gpu_cut(double x) { /* to zero */
    const float near = (float)x;
    return fabs((double)near) > fabs(x) ? nextafterf(near, 0) : near;
}
inline float __fmul_rz(float a, float b) { return gpu_cut((double)a * (double)b); }
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
template <class F> unsigned gpu_halves(unsigned a, unsigned b, F f) {
    return (uint16_t)f((int16_t)a, (int16_t)b) | (unsigned)(uint16_t)f((int16_t)(a >> 16), (int16_t)(b >> 16)) << 16;
}
inline unsigned __viaddmin_s16x2(unsigned a, unsigned b, unsigned c) {
    return gpu_halves(__vadd2(a, b), c, [](int16_t x, int16_t y) { return x < y ? x : y; });
}
inline unsigned __viaddmax_s16x2(unsigned a, unsigned b, unsigned c) {
    return gpu_halves(__vadd2(a, b), c, [](int16_t x, int16_t y) { return x > y ? x : y; });
}
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> void __stcs(T *p, T x) { *p = x; }

/* ---- Instructions ----------------------------------------------------------------------------------------- */

#define INSTRUCTION inline void

/* Shared memory has addresses of 32 bits: here the distance to the dynamic shared memory of the cluster's first block;
 * that of the next is GPU_ROOM bytes on. */
enum { GPU_ROOM = 1 << 18 };
uint32_t gpu_shared_address(const void *p);
char *gpu_shared_place(uint32_t address);
#define __cvta_generic_to_shared gpu_shared_address

INSTRUCTION ex2_approx_ftz_f32(float &y, float x) { y = exp2f(x); }
INSTRUCTION rcp_approx_ftz_f32(float &y, float x) { y = 1 / x; }
INSTRUCTION cvt_u32_u64(uint32_t &low, uint64_t x) { low = (uint32_t)x; }
INSTRUCTION bar_sync(int barrier, int n) { gpu_barrier_wait(barrier, n); }
INSTRUCTION bar_sync(int) { gpu_unknown("bar.sync of all threads by number"); }
INSTRUCTION bar_arrive(int barrier, int n) { gpu_barrier_arrive(barrier, n); }
INSTRUCTION barrier_cluster_arrive() { gpu_cluster_wait(); }
INSTRUCTION mov_u32_tid_x(int &y) { y = (int)threadIdx.x; }
INSTRUCTION mov_u32_cluster_ctarank(int &y) { y = gpu_rank; }
INSTRUCTION mov_b32(float &y, float x) { y = x; }
INSTRUCTION mad_wide_s32(const char *&y, int a, int b, const char *c) { y = c + (int64_t)a * b; }
INSTRUCTION createpolicy_fractional_L2_b64(uint64_t &policy) { policy = 0; }
INSTRUCTION cp_async_bulk_prefetch_L2_global(const void *, uint32_t) {}
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
INSTRUCTION cp_async_ca_shared_global(uint32_t to, const void *from, int n, int n_there) {
    gpu_do(GPU_COPIES, [=] {
        memcpy(gpu_shared_place(to), from, (size_t)n_there);
        memset(gpu_shared_place(to) + n_there, 0, (size_t)(n - n_there));
    });
}
INSTRUCTION cp_async_cg_shared_global(uint32_t to, const void *from, int n_there) {
    cp_async_ca_shared_global(to, from, 16, n_there);
}
INSTRUCTION cp_async_commit_group() { gpu_commit(GPU_COPIES); }
INSTRUCTION cp_async_wait_group(int n_pending) { gpu_finish(GPU_COPIES, n_pending); }

inline float gpu_narrow(const __nv_bfloat16 *, uint32_t bits) { return gpu_of_bits<float>(bits << 16); }
extern const float *const gpu_halves_of; /* every f16, since CUDA's own conversion takes its time */
inline float gpu_narrow(const __half *, uint32_t bits) { return gpu_halves_of[bits]; }
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

/* tf32 has 10 bits behind the point: the other 13 of a word are not read. */
INSTRUCTION cvt_rn_tf32_f32(uint32_t &y, float x) {
    y = __float_as_uint(x);
    if (isfinite(x)) y += 0xFFFu + (y >> 13 & 1);
    y &= ~0x1FFFu;
}
/* c (16,8) += a (16,8) b (8,8), cut as a tensor core's sums are. */
INSTRUCTION mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float &c0, float &c1, float &c2, float &c3, uint32_t a0,
                                                               uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                                               uint32_t b1) {
    const struct { uint32_t a[4], b[2]; } own = {{a0, a1, a2, a3}, {b0, b1}};
    const gpu_lanes lanes = gpu_warp_wait(0xFFFFFFFFu, gpu_bits(&own));
    float *const c[4] = {&c0, &c1, &c2, &c3};
    const auto lane_of = [&](int i) { return gpu_of_bits<decltype(&own)>(lanes.of[i]); };
    const auto wide = [](uint32_t bits) { return (double)__uint_as_float(bits & ~0x1FFFu); };
    for (int i = 0; i < 4; i++) {
        const int row = gpu_lane() / 4, column = gpu_lane() % 4 * 2 + i % 2;
        double sum = *c[i];
        for (int k = 0; k < 8; k++)
            sum += wide(lane_of(row * 4 + k % 4)->a[i / 2 + k / 4 * 2]) * wide(lane_of(column * 4 + k % 4)->b[k / 4]);
        *c[i] = gpu_cut(sum);
    }
    gpu_warp_wait(0xFFFFFFFFu, 0); /* all have read what the others brought */
}

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

/* ---- Instructions of Hopper --------------------------------------------------------------------------------- */

INSTRUCTION setmaxnreg_dec_sync_aligned_u32() {}
INSTRUCTION setmaxnreg_inc_sync_aligned_u32(int = 0) {}
INSTRUCTION fence_mbarrier_init_release_cluster() {}
INSTRUCTION fence_proxy_async() {}
INSTRUCTION fence_proxy_async_shared_cta() {}

/* A barrier in shared memory. A phase is over when all have arrived and all bytes are there. */
struct gpu_mbarrier {
    enum { IS_SET = 0x5a };
    uint8_t is_set, n_expected, n_missing, phase;
    int32_t bytes_missing;

    void change(int n_arrived, int bytes) {
        if (is_set != IS_SET || n_arrived > n_missing) gpu_unknown("an arrival at a barrier that expects none");
        n_missing -= (uint8_t)n_arrived;
        bytes_missing += bytes;
        if (n_missing == 0 && bytes_missing == 0) n_missing = n_expected, phase ^= 1;
        gpu_changed();
    }
};
inline gpu_mbarrier &gpu_mbarrier_at(uint32_t address) { return *(gpu_mbarrier *)gpu_shared_place(address); }
INSTRUCTION mbarrier_init_shared_cta_b64(uint32_t at, int n) {
    gpu_mbarrier_at(at) = {gpu_mbarrier::IS_SET, (uint8_t)n, (uint8_t)n, 0, 0};
}
INSTRUCTION mbarrier_arrive_shared_cta_b64(uint32_t at) { gpu_mbarrier_at(at).change(1, 0); }
INSTRUCTION mbarrier_arrive_expect_tx_shared_cta_b64(uint32_t at, int bytes) { gpu_mbarrier_at(at).change(1, bytes); }
INSTRUCTION mbarrier_try_wait_parity_shared_cta_b64(uint32_t at, int phase) {
    if (gpu_mbarrier_at(at).is_set != gpu_mbarrier::IS_SET) gpu_unknown("a wait at what is no barrier");
    while (gpu_mbarrier_at(at).phase == phase) gpu_turn();
}
/* Where that address is in another block of the cluster. */
inline uint32_t gpu_address_in(uint32_t address, int rank) {
    return (address & (GPU_ROOM - 1)) | (uint32_t)rank * GPU_ROOM;
}
INSTRUCTION mapa_shared_cluster_u32(uint32_t at, int rank) { /* and arrives at the barrier there */
    mbarrier_arrive_shared_cta_b64(gpu_address_in(at, rank));
}

INSTRUCTION mapa_shared_cluster_u32(uint32_t at, int rank, int n) { /* and writes there */
    memcpy(gpu_shared_place(gpu_address_in(at, rank)), &n, sizeof n);
    gpu_changed();
}
INSTRUCTION ld_acquire_cluster_shared_cta_s32(uint32_t at, int n) { /* until it is n or more */
    while (gpu_of_bits<int>(*(const uint32_t *)gpu_shared_place(at)) < n) gpu_turn();
}

/* A tensor of 16-bit elements, in boxes of rows of 64, whose 16-byte parts are swizzled by the row. */
struct gpu_map {
    char *data;
    uint64_t size[4], stride[4]; /* stride: bytes */
    uint32_t n_rows;             /* of a box */
};
static_assert(sizeof(gpu_map) <= sizeof(CUtensorMap), "it takes the place of CUDA's own");
inline uint32_t gpu_swizzle(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }
/* Each element of the box at d, t, h, b that is inside the tensor; `outside` of the others. */
template <class F, class G>
void gpu_box(const gpu_map &m, uint32_t room, int d, int t, int h, int b, F inside, G outside) {
    if (room % 1024) gpu_unknown("a tile that is not aligned");
    for (uint32_t row = 0; row < m.n_rows; row++)
        for (uint32_t i = 0; i < 64; i++) {
            const int64_t at[4] = {d + (int64_t)i, t + (int64_t)row, h, b};
            bool is_inside = true;
            char *place = m.data;
            for (int k = 0; k < 4; k++) {
                is_inside = is_inside && at[k] >= 0 && at[k] < (int64_t)m.size[k];
                place += at[k] * (int64_t)m.stride[k];
            }
            char *const here = gpu_shared_place(gpu_swizzle(room + row * 128 + i * 2));
            if (is_inside) inside(here, place);
            else outside(here);
        }
}
inline void gpu_box_fetch(uint32_t to, const void *map, uint32_t barrier, int d, int t, int h, int b) {
    const auto fetch = [=] {
        const gpu_map &m = *(const gpu_map *)map;
        gpu_box(
            m, to, d, t, h, b, [](char *here, const char *place) { memcpy(here, place, 2); },
            [](char *here) { memset(here, 0, 2); });
        gpu_mbarrier_at(barrier).change(0, -(int)(m.n_rows * 128));
    };
    if (gpu_is_late) gpu_much_later(fetch);
    else fetch();
}
INSTRUCTION cp_async_bulk_tensor_4d_shared_cluster_global_mbarrier_complete_tx_bytes(uint32_t to, const void *map,
                                                                                     uint32_t barrier, int d, int t,
                                                                                     int h, int b) {
    gpu_box_fetch(to, map, barrier, d, t, h, b);
}
INSTRUCTION cp_async_bulk_tensor_4d_shared_cluster_global_mbarrier_complete_tx_bytes_multicast_cluster(
    uint32_t to, const void *map, uint32_t barrier, int d, int t, int h, uint16_t ranks) {
    for (int rank = 0; rank < 16; rank++)
        if (ranks >> rank & 1) gpu_box_fetch(gpu_address_in(to, rank), map, gpu_address_in(barrier, rank), d, t, h, h);
}
INSTRUCTION cp_async_bulk_tensor_4d_global_shared_cta_bulk_group(const void *map, uint32_t from, int d, int t, int h) {
    gpu_do(GPU_STORES, [=] {
        gpu_box(
            *(const gpu_map *)map, from, d, t, h, h, [](const char *here, char *place) { memcpy(place, here, 2); },
            [](char *) {});
    });
}
INSTRUCTION cp_async_bulk_global_shared_cta_bulk_group(float *to, uint32_t from, int bytes) {
    gpu_do(GPU_STORES, [=] { memcpy(to, gpu_shared_place(from), (size_t)bytes); });
}
INSTRUCTION cp_reduce_async_bulk_global_shared_cta_bulk_group_add_f32(float *to, uint32_t from, int bytes) {
    gpu_do(GPU_STORES, [=] {
        const float *const x = (const float *)gpu_shared_place(from);
        for (int i = 0; i < bytes / 4; i++) to[i] += x[i];
    });
}
INSTRUCTION cp_async_bulk_commit_group() { gpu_commit(GPU_STORES); }
INSTRUCTION cp_async_bulk_wait_group_read() { gpu_finish(GPU_STORES, 0); }
INSTRUCTION cp_async_bulk_wait_group() { gpu_finish(GPU_STORES, 0); }

INSTRUCTION cvt_rn_bf16x2_f32(uint32_t &two, float high, float low) {
    const __nv_bfloat16 halves[2] = {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
    memcpy(&two, halves, 4);
}
INSTRUCTION cvt_rn_f16x2_f32(uint32_t &two, float high, float low) {
    const __half halves[2] = {__float2half_rn(low), __float2half_rn(high)};
    memcpy(&two, halves, 4);
}
/* Lane i has the address of row i % 8 of part i / 8; it brings two neighbours of row i / 4 of each. */
INSTRUCTION stmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const gpu_lanes lanes = gpu_warp_wait(0xFFFFFFFFu, at);
    const uint32_t pairs[4] = {a, b, c, d};
    for (int part = 0; part < 4; part++)
        memcpy(gpu_shared_place((uint32_t)lanes.of[part * 8 + gpu_lane() / 4]) + gpu_lane() % 4 * 4, &pairs[part], 4);
}

/* Warpgroup products. Each thread computes its own results. All must have done so before one may go on behind the wait,
 * since then operands may be overwritten. */
INSTRUCTION wgmma_fence_sync_aligned() {}
INSTRUCTION wgmma_commit_group_sync_aligned() { gpu_commit(GPU_PRODUCTS); }
INSTRUCTION wgmma_wait_group_sync_aligned(int n_pending) {
    gpu_finish(GPU_PRODUCTS, n_pending);
    gpu_warpgroup_wait();
}

/* 16 terms of a row (or, turned, of a column) of an operand in shared memory. */
template <class T> void gpu_terms(float (&terms)[16], uint64_t operand, int row, bool is_turned) {
    const uint32_t begin = (uint32_t)(operand & 0x3fff) << 4, apart = (uint32_t)(operand >> 16 & 0x3fff) << 4;
    const uint32_t eight_rows = (uint32_t)(operand >> 32 & 0x3fff) << 4, r = (uint32_t)row;
    const char *const room = (const char *)gpu_dynamic_shared();
    uint16_t bits[16];
    if (operand >> 62 != 1) gpu_unknown("an operand that is not swizzled by 128 bytes");
    for (uint32_t k = 0; k < 16; k += is_turned ? 1 : 8) {
        const uint32_t at = is_turned ? begin + r / 64 * apart + k / 8 * eight_rows + k % 8 * 128 + r % 64 * 2
                                      : begin + r / 8 * eight_rows + r % 8 * 128 + k * 2;
        memcpy(&bits[k], room + gpu_swizzle(at), is_turned ? 2 : 16);
    }
    for (int k = 0; k < 16; k++) terms[k] = gpu_narrow((const T *)nullptr, bits[k]);
}
/* Two rows of a, by all columns that the lane has. */
template <int N, class T>
void gpu_products(float (&c)[N / 2], const float (&a)[2][16], uint64_t b, bool turns_b, bool adds) {
    for (int i = 0; i < N / 4; i++) {
        float terms[16];
        gpu_terms<T>(terms, b, i / 2 * 8 + gpu_lane() % 4 * 2 + i % 2, turns_b);
        for (int half = 0; half < 2; half++) {
            double sum = 0;
            for (int k = 0; k < 16; k++) sum += (double)a[half][k] * (double)terms[k];
            float &result = c[i / 2 * 4 + half * 2 + i % 2];
            result = (float)(adds ? (double)result + sum : sum);
        }
    }
}
template <int N, bool TURNS_A, bool TURNS_B, class T>
void gpu_products_shared(T, float (&c)[N / 2], uint64_t a, uint64_t b, int adds) {
    gpu_do(GPU_PRODUCTS, [=, &c] {
        const int row = gpu_thread % 128 / 32 * 16 + gpu_lane() / 4;
        float rows[2][16];
        for (int half = 0; half < 2; half++) gpu_terms<T>(rows[half], a, row + 8 * half, TURNS_A);
        gpu_products<N, T>(c, rows, b, TURNS_B, adds);
    });
}
template <int N, class T>
void gpu_products_registers(T, float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b, int adds) {
    const struct { uint32_t a[4]; } own = {{a[0], a[1], a[2], a[3]}};
    const gpu_lanes lanes = gpu_warp_wait(0xFFFFFFFFu, gpu_bits(&own));
    float rows[2][16];
    for (int k = 0; k < 16; k++) {
        const decltype(&own) lane = gpu_of_bits<decltype(&own)>(lanes.of[gpu_lane() / 4 * 4 + k % 8 / 2]);
        for (int half = 0; half < 2; half++)
            rows[half][k] = gpu_narrow((const T *)nullptr, lane->a[half + k / 8 * 2] >> 16 * (k % 2) & 0xFFFFu);
    }
    gpu_warp_wait(0xFFFFFFFFu, 0); /* all have read what the others brought */
    gpu_do(GPU_PRODUCTS, [=, &c] { gpu_products<N, T>(c, rows, b, true, adds); });
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
