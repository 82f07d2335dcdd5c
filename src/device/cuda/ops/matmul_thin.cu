/* matmul_thin.cu: products of a few rows by a matrix, as in decoding: 16 bits, from compute capability 8.0 on.
 *
 * out (m,n) = a (m,k) b^T, b (n,k), m <= MATMUL_THIN_ROWS. All of b is read once and used little, so its bytes over the
 * memory's bandwidth are the time that it takes:
 *
 *   - A block has TILE rows of b, and its warps share k: warp w takes the chunks w, w + WARPS, ... of CHUNK elements.
 *   - Lanes read 16 bytes at a time from memory to registers, some chunks before they are used; the first before the
 *     kernels in front have ended (launch_early), unless they write b.
 *   - b is the A of the tensor core's product and a is its B, so that up to 8 rows cost what one does. Which of the 32
 *     elements of a block of k is which does not matter to a sum, as long as both sides agree: a lane's 16 bytes are
 *     its parts of two products.
 *   - Warps' sums are added in their order.
 *
 * An activation at the end takes the place of a kernel; that of a gate reads the tiles of two matrices.
 *
 * So a row has the same bits whatever the other rows are, and however many. */
#include "device/cuda/ops/matmul.h"
#include "device/cuda/shared/fetch.cuh"
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/real_math.cuh"
#include "device/cuda/shared/tensor_core.cuh"

namespace {

/* COLUMNS: of a tensor core's product. CHUNKS_AHEAD: of all matrices together. */
enum { TILE = 16, WARPS = 8, CHUNK = 64, CHUNKS_AHEAD = 4, COLUMNS = 8 };

/* 8 elements; zeros behind the end. b passes by the L1 cache: nobody reads it twice. */
__device__ inline uint4 b_load(const uint16_t *row, int64_t at, int64_t k) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (at < k)
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(row + at));
    return x;
}
/* The same before front_wait. */
__device__ inline uint4 b_load_early(const uint16_t *row, int64_t at, int64_t k) {
    return at < k ? load_early(row + at) : make_uint4(0, 0, 0, 0);
}
__device__ inline uint4 a_load(const uint16_t *row, int64_t at, int64_t k, bool is_there) {
    return is_there && at < k ? *(const uint4 *)(row + at) : make_uint4(0, 0, 0, 0);
}

/* A block's rows of a matrix, and where the matrix's first column is in the result. */
struct thin_tile {
    const uint16_t *b;
    int64_t first, last, column; /* last: of the matrix */
};
__device__ inline thin_tile tile_of(const struct thin_product &c) {
    thin_tile t = {(const uint16_t *)c.b[0].data, blockIdx.x * (int64_t)TILE, c.b[0].n - 1, 0};
#pragma unroll
    for (int i = 1; i < MATMUL_PARTS; i++) {
        const int64_t above = (t.last + TILE) / TILE * TILE; /* rows of the tiles of the matrix above */
        if (i >= c.n_b || t.first < above) continue;
        t.first -= above, t.column += t.last + 1;
        t.b = (const uint16_t *)c.b[i].data, t.last = c.b[i].n - 1;
    }
    return t;
}

/* What a lane reads of a chunk: of rows r and r + 8 of the tile of each matrix; and of its row of a in each group of
 * COLUMNS. */
template <int MATRICES> struct chunk_b { uint4 x[MATRICES][2][2]; };
template <int GROUPS> struct chunk_a { uint4 x[2][GROUPS]; };

template <class T, int GROUPS>
__device__ inline void chunk_multiply(float (&sum)[GROUPS][4], const uint4 (&b)[2][2], const chunk_a<GROUPS> &a) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t first[4] = {b[i][0].x, b[i][1].x, b[i][0].y, b[i][1].y};
        const uint32_t second[4] = {b[i][0].z, b[i][1].z, b[i][0].w, b[i][1].w};
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            tensor_core<T>::multiply(sum[g], first, a.x[i][g].x, a.x[i][g].y);
            tensor_core<T>::multiply(sum[g], second, a.x[i][g].z, a.x[i][g].w);
        }
    }
}

/* A thread's one number of the tile's result, from the sums of all warps. */
template <class T, class OUT, int MATRICES>
__device__ inline void thin_end(const struct thin_product &c, const float (&total)[MATRICES], int64_t row, int64_t at) {
    OUT *const out = (OUT *)c.out + row * c.ld_out + at;
    float x = total[0];
    if (c.bias) x += value_of<float>(((const T *)c.bias)[at]);
    if (c.adds) x += value_of<float>(*out);
    if (c.end == THIN_GELU) x = short_gelu(value_of<float>(conversion<T>::from(x)));
    if (MATRICES == 2) { /* as if both products were written before they are read */
        const float gate = value_of<float>(conversion<T>::from(x));
        x = gate * short_sigmoid(gate) * value_of<float>(conversion<T>::from(total[MATRICES - 1]));
    }
    *out = conversion<OUT>::from(x);
}

template <class T, class OUT, int GROUPS, int MATRICES>
__global__ void __launch_bounds__(32 * WARPS, 2) thin_tiles(struct thin_product c) {
    enum { AHEAD = CHUNKS_AHEAD / MATRICES };
    __shared__ float sums[WARPS][COLUMNS * GROUPS][MATRICES][TILE];
    next_begin();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, r = lane / 4, quarter = 8 * (lane % 4);
    const thin_tile tile = tile_of(c);
    const int64_t first = tile.first, last = tile.last;
    const int64_t rows[2] = {min(first + r, last) * c.ld_b, min(first + r + 8, last) * c.ld_b};
    const uint16_t *const matrix[2] = {tile.b, (const uint16_t *)c.b_up};
    auto load_b = [&](chunk_b<MATRICES> &to, int64_t at, bool is_early) {
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const uint16_t *const row = matrix[m] + rows[half];
                    const int64_t here = at + 32 * i + quarter;
                    to.x[m][i][half] = is_early ? b_load_early(row, here, c.k) : b_load(row, here, c.k);
                }
    };
    auto load_a = [&](chunk_a<GROUPS> &to, int64_t at) {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                to.x[i][g] =
                    a_load((const uint16_t *)c.a + (r + 8 * g) * c.ld_a, at + 32 * i + quarter, c.k, r + 8 * g < c.m);
    };
    float sum[MATRICES][GROUPS][4] = {};
    chunk_b<MATRICES> b[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) load_b(b[i], (warp + i * WARPS) * CHUNK, true);
    front_wait();
    for (int64_t at = warp * CHUNK; at < c.k; at += AHEAD * WARPS * CHUNK) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t here = at + i * WARPS * CHUNK;
            chunk_a<GROUPS> a;
            load_a(a, here);
#pragma unroll
            for (int m = 0; m < MATRICES; m++) chunk_multiply<T, GROUPS>(sum[m], b[i].x[m], a);
            load_b(b[i], here + AHEAD * WARPS * CHUNK, false);
        }
    }
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[warp][8 * g + 2 * (lane % 4) + i % 2][m][r + i / 2 * 8] = sum[m][g][i];
    __syncthreads();
    const int column = (int)threadIdx.x % TILE, row = (int)threadIdx.x / TILE;
    if (row >= c.m || first + column > last) return;
    float total[MATRICES] = {};
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
#pragma unroll
        for (int w = 0; w < WARPS; w++) total[m] += sums[w][row][m][column];
    thin_end<T, OUT, MATRICES>(c, total, row, tile.column + first + column);
}

/* b may be the result of the product in front. */
bool may_fetch(const tl_kernel_args *args, const struct thin_product &c) {
    auto fetches = [&](const void *b, int64_t n) {
        return early_may_fetch(args, b, 2 * (size_t)((n - 1) * c.ld_b + c.k));
    };
    for (int i = 0; i < c.n_b; i++)
        if (!fetches(c.b[i].data, c.b[i].n)) return false;
    return c.end != THIN_SWIGLU || fetches(c.b_up, c.b[0].n);
}
unsigned n_tiles(const struct thin_product &c) {
    int64_t n = 0;
    for (int i = 0; i < c.n_b; i++) n += (c.b[i].n + TILE - 1) / TILE;
    return (unsigned)n;
}

template <class T, class OUT, int GROUPS, int MATRICES>
void launch(const tl_kernel_args *args, const struct thin_product &c) {
    static const bool can_wait = waits_for_front(thin_tiles<T, OUT, GROUPS, MATRICES>);
    launch_early(args, thin_tiles<T, OUT, GROUPS, MATRICES>, can_wait && may_fetch(args, c), n_tiles(c), 32 * WARPS, 0,
                 c);
}

template <class T> void launch_for(const tl_kernel_args *args, const struct thin_product &c) {
    const bool is_wide = c.out_dtype == TL_F32, is_one_group = c.m <= COLUMNS;
    if (c.end == THIN_SWIGLU && is_one_group) launch<T, T, 1, 2>(args, c);
    else if (c.end == THIN_SWIGLU) launch<T, T, 2, 2>(args, c);
    else if (is_one_group && is_wide) launch<T, float, 1, 1>(args, c);
    else if (is_one_group) launch<T, T, 1, 1>(args, c);
    else if (is_wide) launch<T, float, 2, 1>(args, c);
    else launch<T, T, 2, 1>(args, c);
}

} // namespace

extern "C" void matmul_thin(const tl_kernel_args *args, const struct thin_product *c) {
    if (c->dtype == TL_BF16) launch_for<bf16>(args, *c);
    else launch_for<f16>(args, *c);
}
