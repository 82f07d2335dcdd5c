/* grouped.cu: products of groups of rows with one matrix each, in one launch.
 *
 * How many rows a group has is known to the GPU alone. So the grid is as large as the GPU, and its blocks walk the
 * tiles of all groups: each block reads `ends`, sums up how many tiles the groups have, and takes every gridDim-th
 * one. A tile belongs to one block, which adds its terms in order: the same bits each time, whatever the GPU.
 *
 *      rows    a group's tiles cover (its rows, n); the terms are the k of a matrix
 *      outer   every group's tiles cover (m, n); the terms are its rows
 *
 * Rows behind the last group are one more group, without terms. Three kernels:
 *
 *   grouped_hopper  16 bits, sizes in multiples of 8, on Hopper: grouped_hopper.cu.
 *   grouped_tiles   the same on other GPUs: mma.m16n8k16 on tiles of 128 x 128 or 128 x 256, one warp for
 *                   each 64 x 64. Operands arrive by cp.async in a ring of shared memory, in chunks of 16 bytes, whose
 *                   order in a row is turned by the row's number so that ldmatrix finds eight rows in different banks.
 *                   An operand lies there as in memory: with the terms along rows, or (TURNED) along columns, which
 *                   ldmatrix.trans then turns.
 *   grouped_plain   everything else: tiles of 64 x 64, fused multiply-adds in f32 or f64.
 */
#include "device/cuda/ops/grouped.cuh"
#include "device/cuda/shared/tensor_core.cuh"

#include <string.h>

/* ---- Everything ------------------------------------------------------------------------------------------ */

enum {
    PLAIN = 64,
    PLAIN_K = 16,
    PLAIN_EACH = 4,
    PLAIN_SIDE = PLAIN / PLAIN_EACH,
    PLAIN_THREADS = PLAIN_SIDE * PLAIN_SIDE
};

__device__ inline float add_product(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double add_product(double a, double b, double c) { return fma(a, b, c); }

template <class C>
__device__ inline void plain_load(C (&to)[PLAIN_K][PLAIN + 1], const void *from, tl_dtype dtype, int64_t at,
                                  int64_t stride, int64_t k_stride, int64_t n, int64_t n_k) {
    for (int x = (int)threadIdx.x; x < PLAIN * PLAIN_K; x += PLAIN_THREADS) {
        const int i = k_stride == 1 ? x / PLAIN_K : x % PLAIN, p = k_stride == 1 ? x % PLAIN_K : x / PLAIN;
        to[p][i] = i < n && p < n_k ? load_as<C>(from, at + i * stride + p * k_stride, dtype) : C(0);
    }
}

template <class C> __global__ void __launch_bounds__(PLAIN_THREADS) grouped_plain(grouped g) {
    __shared__ C a[PLAIN_K][PLAIN + 1], b[PLAIN_K][PLAIN + 1];
    __shared__ int first_tile[GROUPED_MOST + 2];
    if (threadIdx.x < 32) tiles_count<PLAIN>(g, first_tile);
    __syncthreads();
    const int64_t a_stride = g.is_outer ? 1 : g.k, a_k_stride = g.is_outer ? g.m : 1;
    const int64_t b_stride = !g.is_outer && g.transpose_b ? g.k : 1;
    const int64_t b_k_stride = !g.is_outer && g.transpose_b ? 1 : g.n;
    const int64_t n_tiles = tiles_of<PLAIN, PLAIN>(g, first_tile);
    const int row = (int)threadIdx.x / PLAIN_SIDE, column = (int)threadIdx.x % PLAIN_SIDE;
    for (int64_t index = blockIdx.x; index < n_tiles; index += gridDim.x) {
        const tile t = tile_at<PLAIN, PLAIN>(g, first_tile, index);
        const int64_t from_a = place_in_a(g, t), from_b = place_in_b(g, t), to = place_in_out(g, t);
        C sum[PLAIN_EACH][PLAIN_EACH] = {};
        for (int64_t k = 0; k < t.n_k; k += PLAIN_K) {
            __syncthreads();
            plain_load(a, g.a, g.dtype, from_a + k * a_k_stride, a_stride, a_k_stride, t.n_m, t.n_k - k);
            plain_load(b, g.b, g.dtype, from_b + k * b_k_stride, b_stride, b_k_stride, t.n_n, t.n_k - k);
            __syncthreads();
            for (int p = 0; p < PLAIN_K; p++)
                for (int i = 0; i < PLAIN_EACH; i++)
                    for (int j = 0; j < PLAIN_EACH; j++)
                        sum[i][j] = add_product(a[p][row + i * PLAIN_SIDE], b[p][column + j * PLAIN_SIDE], sum[i][j]);
        }
        for (int i = 0; i < PLAIN_EACH; i++)
            for (int j = 0; j < PLAIN_EACH; j++) {
                const int64_t y = row + i * PLAIN_SIDE, x = column + j * PLAIN_SIDE, at = to + y * g.n + x;
                if (y >= t.n_m || x >= t.n_n) continue;
                store_as<C>(g.out, at, g.out_dtype,
                            g.adds ? load_as<C>(g.out, at, g.out_dtype) + sum[i][j] : sum[i][j]);
            }
    }
}

/* ---- 16 bits, on tensor cores ----------------------------------------------------------------------------- */

enum { TILE_M = 128, TILE_K = 32, STAGES = 4, WARP_M = 64, WARP_N = 64, CHUNK = 8 }; /* a chunk: 8 elements, 16 bytes */
#define TILE_THREADS(TILE_N) (TILE_M / WARP_M * ((TILE_N) / WARP_N) * 32)
#define TILE_BYTES(TILE_N) (STAGES * (TILE_M + (TILE_N)) * TILE_K * 2)

/* Where chunk `chunk` of row `row` lies in an operand's shared memory. Plain rows are TILE_K terms, 64 bytes: two of
 * them are all banks. Turned rows are SIZE elements, one row for each term. */
template <int SIZE, bool TURNED> __device__ inline int chunk_place(int row, int chunk) {
    if (TURNED) return row * SIZE + (chunk ^ (row & 7)) * CHUNK;
    return row * TILE_K + (chunk ^ (row >> 1 & 3)) * CHUNK;
}

/* SIZE rows (or columns) of an operand and TILE_K of its terms; zeros beyond n and n_k. `stride`: of its rows in
 * memory, whether these are terms or not. */
template <int SIZE, bool TURNED, int THREADS>
__device__ inline void operand_fetch(uint16_t *to, const uint16_t *from, int64_t stride, int64_t n, int64_t n_k) {
    enum { CHUNKS = (TURNED ? SIZE : TILE_K) / CHUNK, ROWS = TURNED ? TILE_K : SIZE };
#pragma unroll
    for (int x = 0; x < ROWS * CHUNKS / THREADS; x++) {
        const int at = x * THREADS + (int)threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
        const bool is_there = TURNED ? row < n_k && chunk * CHUNK < n : row < n && chunk * CHUNK < n_k;
        copy_later<16>(to + chunk_place<SIZE, TURNED>(row, chunk),
                       is_there ? from + row * stride + chunk * CHUNK : from, is_there);
    }
}

/* A (16,16) whose first row is i, 16 terms from k on: the four 8 x 8 are (rows, terms), (rows + 8, terms), (rows,
 * terms + 8), (rows + 8, terms + 8). */
template <int SIZE, bool TURNED>
__device__ inline void fragment_a(uint32_t (&x)[4], const uint16_t *from, int i, int k) {
    const int lane = (int)threadIdx.x % 32;
    const int place = TURNED ? chunk_place<SIZE, true>(k + lane % 8 + lane / 16 * 8, i / CHUNK + lane / 8 % 2)
                             : chunk_place<SIZE, false>(i + lane % 16, k / CHUNK + lane / 16);
    parts_load<TURNED>(x, from + place);
}
/* Two B (16,8), of columns j and j + 8: (terms, columns), (terms + 8, columns), (terms, columns + 8), (terms + 8,
 * columns
 * + 8). */
template <int SIZE, bool TURNED>
__device__ inline void fragment_b(uint32_t (&x)[4], const uint16_t *from, int j, int k) {
    const int lane = (int)threadIdx.x % 32;
    const int place = TURNED ? chunk_place<SIZE, true>(k + lane % 16, j / CHUNK + lane / 16)
                             : chunk_place<SIZE, false>(j + lane % 8 + lane / 16 * 8, k / CHUNK + lane / 8 % 2);
    parts_load<TURNED>(x, from + place);
}

template <class T, int TILE_N, bool TURNED_A, bool TURNED_B>
__global__ void __launch_bounds__(TILE_THREADS(TILE_N), 1) grouped_tiles(grouped g) {
    enum {
        THREADS = TILE_THREADS(TILE_N),
        WARPS_N = TILE_N / WARP_N,
        A_SIZE = TILE_M * TILE_K,
        B_SIZE = TILE_N * TILE_K
    };
    extern __shared__ __align__(128) uint16_t ring[];
    __shared__ int first_tile[GROUPED_MOST + 2];
    uint16_t *const ring_a = ring, *const ring_b = ring + STAGES * A_SIZE;
    if (threadIdx.x < 32) tiles_count<TILE_M>(g, first_tile);
    __syncthreads();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int warp_i = warp / WARPS_N * WARP_M, warp_j = warp % WARPS_N * WARP_N;
    const int64_t a_stride = g.is_outer ? g.m : g.k, b_stride = TURNED_B ? g.n : g.k;
    const int64_t a_step = TURNED_A ? a_stride : 1, b_step = TURNED_B ? b_stride : 1; /* from term to term */
    const int64_t n_tiles = tiles_of<TILE_M, TILE_N>(g, first_tile);
    for (int64_t index = blockIdx.x; index < n_tiles; index += gridDim.x) {
        const tile t = tile_at<TILE_M, TILE_N>(g, first_tile, index);
        const uint16_t *const a = (const uint16_t *)g.a + place_in_a(g, t);
        const uint16_t *const b = (const uint16_t *)g.b + place_in_b(g, t);
        const int64_t to = place_in_out(g, t);
        const int64_t n_steps = (t.n_k + TILE_K - 1) / TILE_K;
        auto fetch = [&](int64_t step) {
            const int slot = (int)(step % STAGES);
            const int64_t k = step * TILE_K;
            if (step < n_steps) {
                operand_fetch<TILE_M, TURNED_A, THREADS>(ring_a + slot * A_SIZE, a + k * a_step, a_stride, t.n_m,
                                                         t.n_k - k);
                operand_fetch<TILE_N, TURNED_B, THREADS>(ring_b + slot * B_SIZE, b + k * b_step, b_stride, t.n_n,
                                                         t.n_k - k);
            }
            copies_commit(); /* also of nothing: the waits below count */
        };
        float sum[WARP_M / 16][WARP_N / 8][4] = {};
        for (int step = 0; step < STAGES - 1; step++) fetch(step);
        for (int64_t step = 0; step < n_steps; step++) {
            copies_wait<STAGES - 2>();
            __syncthreads(); /* this step's operands are there, and everyone has left the slot of the next fetch */
            fetch(step + STAGES - 1);
            const uint16_t *const from_a = ring_a + step % STAGES * A_SIZE, *const from_b =
                                                                                ring_b + step % STAGES * B_SIZE;
#pragma unroll
            for (int k = 0; k < TILE_K; k += 16) {
                uint32_t x[WARP_M / 16][4], y[WARP_N / 16][4];
#pragma unroll
                for (int i = 0; i < WARP_M / 16; i++) fragment_a<TILE_M, TURNED_A>(x[i], from_a, warp_i + 16 * i, k);
#pragma unroll
                for (int j = 0; j < WARP_N / 16; j++) fragment_b<TILE_N, TURNED_B>(y[j], from_b, warp_j + 16 * j, k);
#pragma unroll
                for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
                    for (int j = 0; j < WARP_N / 8; j++)
                        tensor_core<T>::multiply(sum[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
            }
        }
        copies_wait<0>();
        __syncthreads(); /* before the next tile's operands arrive */
#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
            for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = warp_i + 16 * i + 8 * half + lane / 4, column = warp_j + 8 * j + lane % 4 * 2;
                    if (row < t.n_m && column < t.n_n)
                        pair_store<T>(g, to + row * g.n + column, sum[i][j][2 * half], sum[i][j][2 * half + 1]);
                }
    }
}

/* ---- Launches ---------------------------------------------------------------------------------------------- */

template <class T, int TILE_N, bool TURNED_A, bool TURNED_B>
static bool tiles_launch(const tl_kernel_args *args, const grouped &g) {
    auto kernel = grouped_tiles<T, TILE_N, TURNED_A, TURNED_B>;
    if (!shared_memory_allow(args, kernel, TILE_BYTES(TILE_N))) return false;
    kernel<<<blocks_of(args, g, TILE_M, TILE_N, 1), TILE_THREADS(TILE_N), TILE_BYTES(TILE_N), stream_of(args)>>>(g);
    return true;
}
template <class T, int TILE_N> static bool tiles_turn(const tl_kernel_args *args, const grouped &g) {
    if (g.is_outer) return tiles_launch<T, TILE_N, true, true>(args, g);
    return g.transpose_b ? tiles_launch<T, TILE_N, false, false>(args, g)
                         : tiles_launch<T, TILE_N, false, true>(args, g);
}
template <class T> static bool tiles_choose(const tl_kernel_args *args, const grouped &g) {
    return g.n > 128 ? tiles_turn<T, 256>(args, g) : tiles_turn<T, 128>(args, g);
}

static bool fits_tiles(const tl_kernel_args *args, const grouped &g) {
    const bool is_even = g.n % CHUNK == 0 && (g.is_outer ? g.m : g.k) % CHUNK == 0;
    const bool has_terms = (g.is_outer ? g.N : g.k) > 0; /* a rank of several may be given no rows */
    const bool is_aligned = ((uintptr_t)g.a | (uintptr_t)g.b | (uintptr_t)g.out) % 16 == 0;
    return cuda_state_of(args->stream)->capability >= 80 && (g.dtype == TL_BF16 || g.dtype == TL_F16) &&
           (g.out_dtype == g.dtype || g.out_dtype == TL_F32) && has_terms && is_even && is_aligned;
}

static bool grouped_run(const tl_kernel_args *args, bool is_outer, bool adds) {
    const struct attr_grouped *attr = (const struct attr_grouped *)args->attr;
    const tl_operand *a = &args->in[adds], *b = a + 1, *ends = a + 2, *out = &args->out[0];
    if (!operands_known(args) || !ids_known(args, ends)) return false;
    grouped g;
    memset(&g, 0, sizeof g);
    g.a = a->data;
    g.b = b->data;
    g.out = out->data;
    g.ends = ends->data;
    g.dtype = a->dtype;
    g.out_dtype = out->dtype;
    g.ends_dtype = ends->dtype;
    g.N = a->shape[0];
    g.m = g.k = a->shape[1];
    g.n = out->shape[out->rank - 1];
    g.n_groups = (int)ends->shape[0];
    g.is_outer = is_outer;
    g.transpose_b = attr->transpose_b;
    g.adds = adds;
    g.fault = fault_of(args);
    if (g.n == 0 || (is_outer ? g.m : g.N) == 0) return true;
    if (fits_tiles(args, g)) {
        if (grouped_fits_hopper(args, g)) return grouped_hopper(args, g);
        return g.dtype == TL_BF16 ? tiles_choose<bf16>(args, g) : tiles_choose<f16>(args, g);
    }
    const unsigned blocks = blocks_of(args, g, PLAIN, PLAIN, 4);
    if (compute_of(g.dtype) == COMPUTE_F64) grouped_plain<double><<<blocks, PLAIN_THREADS, 0, stream_of(args)>>>(g);
    else grouped_plain<float><<<blocks, PLAIN_THREADS, 0, stream_of(args)>>>(g);
    return true;
}

extern "C" bool cuda_grouped_matmul(const tl_kernel_args *args) { return grouped_run(args, false, false); }
extern "C" bool cuda_grouped_matmul_acc(const tl_kernel_args *args) { return grouped_run(args, false, true); }
extern "C" bool cuda_grouped_outer(const tl_kernel_args *args) { return grouped_run(args, true, false); }
extern "C" bool cuda_grouped_outer_acc(const tl_kernel_args *args) { return grouped_run(args, true, true); }
