/* matmul_thin.cu: products of a few rows by a matrix, as in decoding: 16 bits, from compute capability 8.0 on.
 *
 * out (m,n) = a (m,k) b^T, b (n,k), m <= MATMUL_THIN_ROWS. All of b is read once and used little, so its bytes over the
 * memory's bandwidth are the time that it takes:
 *
 *   - A block has TILE rows of b, and its warps share k: warp w takes the chunks w, w + WARPS, ... of CHUNK elements.
 *   - Lanes read 16 bytes at a time from memory to registers, AHEAD chunks before they are used.
 *   - b is the A of the tensor core's product and a is its B, so that up to 8 rows cost what one does. Which of the 32
 *     elements of a block of k is which does not matter to a sum, as long as both sides agree: a lane's 16 bytes are
 *     its parts of two products.
 *   - Warps' sums are added in their order.
 *
 * So a row has the same bits whatever the other rows are, and however many. */
#include "device/cuda/ops/matmul.h"
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/tensor_core.cuh"

namespace {

enum { TILE = 16, WARPS = 8, CHUNK = 64, AHEAD = 4, COLUMNS = 8 /* of a tensor core's product */ };

/* 8 elements; zeros behind the end. b passes by the L1 cache: nobody reads it twice. */
__device__ inline uint4 b_load(const uint16_t *row, int64_t at, int64_t k) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (at < k)
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(row + at));
    return x;
}
__device__ inline uint4 a_load(const uint16_t *row, int64_t at, int64_t k, bool is_there) {
    return is_there && at < k ? *(const uint4 *)(row + at) : make_uint4(0, 0, 0, 0);
}

/* What a lane reads of a chunk: of rows r and r + 8 of the tile, and of its row of a in each group of COLUMNS. */
template <int GROUPS> struct chunk { uint4 b[2][2], a[2][GROUPS]; };

template <class T, int GROUPS> __device__ inline void chunk_multiply(float (&sum)[GROUPS][4], const chunk<GROUPS> &c) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t first[4] = {c.b[i][0].x, c.b[i][1].x, c.b[i][0].y, c.b[i][1].y};
        const uint32_t second[4] = {c.b[i][0].z, c.b[i][1].z, c.b[i][0].w, c.b[i][1].w};
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            tensor_core<T>::multiply(sum[g], first, c.a[i][g].x, c.a[i][g].y);
            tensor_core<T>::multiply(sum[g], second, c.a[i][g].z, c.a[i][g].w);
        }
    }
}

template <class T, class OUT, int GROUPS, bool ADDS>
__global__ void __launch_bounds__(32 * WARPS, 2) thin_tiles(struct thin_product c) {
    __shared__ float sums[WARPS][COLUMNS * GROUPS][TILE];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, r = lane / 4, quarter = 8 * (lane % 4);
    const int64_t first = blockIdx.x * (int64_t)TILE, last = c.n - 1;
    const uint16_t *const b0 = (const uint16_t *)c.b + min(first + r, last) * c.ld_b, *const b1 =
                                                                                          (const uint16_t *)c.b +
                                                                                          min(first + r + 8, last) *
                                                                                              c.ld_b;
    auto load = [&](chunk<GROUPS> &to, int64_t at) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64_t here = at + 32 * i + quarter;
            to.b[i][0] = b_load(b0, here, c.k);
            to.b[i][1] = b_load(b1, here, c.k);
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                to.a[i][g] = a_load((const uint16_t *)c.a + (r + 8 * g) * c.ld_a, here, c.k, r + 8 * g < c.m);
        }
    };
    float sum[GROUPS][4] = {};
    for (int64_t at = warp * CHUNK; at < c.k; at += AHEAD * WARPS * CHUNK) {
        chunk<GROUPS> held[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) load(held[i], at + i * WARPS * CHUNK);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) chunk_multiply<T, GROUPS>(sum, held[i]);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[warp][8 * g + 2 * (lane % 4) + i % 2][r + i / 2 * 8] = sum[g][i];
    __syncthreads();
    const int column = (int)threadIdx.x % TILE, row = (int)threadIdx.x / TILE;
    const int64_t at = first + column;
    if (row >= c.m || at > last || row >= COLUMNS * GROUPS) return;
    float total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) total += sums[w][row][column];
    if (c.bias) total += value_of<float>(((const T *)c.bias)[at]);
    OUT *const out = (OUT *)c.out + row * c.ld_out + at;
    if (ADDS) total += value_of<float>(*out);
    *out = conversion<OUT>::from(total);
}

template <class T, class OUT, int GROUPS> void launch(const tl_kernel_args *args, const struct thin_product &c) {
    const unsigned n_blocks = (unsigned)((c.n + TILE - 1) / TILE);
    if (c.adds) thin_tiles<T, OUT, GROUPS, true><<<n_blocks, 32 * WARPS, 0, stream_of(args)>>>(c);
    else thin_tiles<T, OUT, GROUPS, false><<<n_blocks, 32 * WARPS, 0, stream_of(args)>>>(c);
}

template <class T> void launch_for(const tl_kernel_args *args, const struct thin_product &c) {
    const bool is_wide = c.out_dtype == TL_F32;
    if (c.m <= COLUMNS && is_wide) launch<T, float, 1>(args, c);
    else if (c.m <= COLUMNS) launch<T, T, 1>(args, c);
    else if (is_wide) launch<T, float, 2>(args, c);
    else launch<T, T, 2>(args, c);
}

} // namespace

extern "C" void matmul_thin(const tl_kernel_args *args, const struct thin_product *c) {
    if (c->dtype == TL_BF16) launch_for<bf16>(args, *c);
    else launch_for<f16>(args, *c);
}
