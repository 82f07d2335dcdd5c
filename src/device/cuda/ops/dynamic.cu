/* dynamic.cu: nonzero: the indices of elements that are not 0. */
#include "device/cuda/shared/select.cuh"

/* Where the indices go: their number i of n is element `at` in row-major order. */
struct nonzero_result {
    geometry<1> shape; /* x's own axes, nothing merged */
    int64_t n, *out;
    __device__ void put(int64_t i, int64_t at) const {
        if (i >= n) return;
        int64_t *to = out + i * shape.rank;
        if (shape.numel > INT32_MAX) {
            for (int axis = shape.rank - 1; axis >= 0; axis--) {
                to[axis] = at % shape.size[axis];
                at /= shape.size[axis];
            }
            return;
        }
        uint32_t rest = (uint32_t)at;
        if (shape.rank == 2) { /* both in one access */
            const uint32_t row = (__umulhi(rest, shape.magic[1]) + rest) >> shape.shift[1];
            *(longlong2 *)to = make_longlong2(row, rest - row * (uint32_t)shape.size[1]);
            return;
        }
        for (int axis = shape.rank - 1; axis >= 0; axis--) {
            const uint32_t next = (__umulhi(rest, shape.magic[axis]) + rest) >> shape.shift[axis];
            to[axis] = rest - next * (uint32_t)shape.size[axis];
            rest = next;
        }
    }
};

struct nonzero_source {
    typedef bool value_type, held_type;
    geometry<1> g;
    const void *x;
    tl_dtype dtype;
    nonzero_result result;
    __device__ bool value(int64_t i) const {
        int64_t at[1];
        offsets_of(g, i, at);
        return load_as<double>(x, at[0], dtype) != 0;
    }
    __device__ bool holds(int64_t, bool value) const { return value; }
    __device__ bool held(int64_t) const { return false; } /* nothing */
    __device__ void put(int64_t i, int64_t number, bool is_found, bool) const {
        if (is_found) result.put(number, i);
    }
};

/* ---- Dense truth values ---------------------------------------------------------------------------------
 *
 * The same three launches as in select.cuh. A thread has TRUTHS neighbours, which it reads at once; a block lists those
 * of its tile that hold in shared memory, so that its indices are written side by side. */
enum { TRUTHS = SELECT_TILE / SELECT_THREADS };
static_assert(TRUTHS == sizeof(uint4), "a thread's truth values are one access");

/* Bit k: byte k of a word is not 0. That is made the byte's highest bit; then the four are moved together. */
__device__ inline unsigned truth_bits(uint32_t word) {
    const uint32_t high = word | ((word & 0x7F7F7F7Fu) + 0x7F7F7F7Fu);
    return (high >> 7 & 0x01010101u) * 0x01020408u >> 24;
}

/* Bit k: element first + k holds. */
__device__ inline unsigned truths_at(const uint8_t *x, int64_t first, int64_t n) {
    if (first + TRUTHS <= n && (uintptr_t)(x + first) % sizeof(uint4) == 0) {
        const uint4 v = *(const uint4 *)(x + first);
        return truth_bits(v.x) | truth_bits(v.y) << 4 | truth_bits(v.z) << 8 | truth_bits(v.w) << 12;
    }
    unsigned found = 0;
    for (int k = 0; k < TRUTHS; k++)
        if (first + k < n && x[first + k]) found |= 1u << k;
    return found;
}

__global__ void __launch_bounds__(SELECT_THREADS) truth_count(const uint8_t *x, int64_t n, int64_t *tiles) {
    const int64_t first = blockIdx.x * (int64_t)SELECT_TILE + threadIdx.x * TRUTHS;
    const int count = block_reduce(__popc(truths_at(x, first, n)), sum_of(), 0);
    if (threadIdx.x == 0) tiles[blockIdx.x] = count;
}

__global__ void __launch_bounds__(SELECT_THREADS)
    truth_put(const uint8_t *x, int64_t n, const int64_t *tiles, nonzero_result result) {
    __shared__ int64_t room[32];
    __shared__ uint16_t list[SELECT_TILE];
    const int64_t tile = blockIdx.x * (int64_t)SELECT_TILE, before = tiles[blockIdx.x];
    unsigned found = truths_at(x, tile + threadIdx.x * TRUTHS, n);
    int64_t count = __popc(found), all;
    int at = (int)(block_scan(count, sum_of(), room, &all) - count);
    for (; found; found &= found - 1) list[at++] = (uint16_t)(threadIdx.x * TRUTHS + __ffs((int)found) - 1);
    __syncthreads();
    for (int i = threadIdx.x; i < all; i += SELECT_THREADS) result.put(before + i, tile + list[i]);
}

static bool nonzero_truths(const tl_kernel_args *args, int64_t n, const nonzero_result &result) {
    const uint8_t *x = (const uint8_t *)args->in[0].data;
    int64_t *const tiles = (int64_t *)args->workspace;
    const int64_t n_tiles = (n + SELECT_TILE - 1) / SELECT_TILE;
    const cudaStream_t stream = stream_of(args);
    if (!tiles_fit(args, n_tiles, args->workspace_bytes)) return false;
    truth_count<<<(unsigned)n_tiles, SELECT_THREADS, 0, stream>>>(x, n, tiles);
    select_scan<0><<<1, 1024, 0, stream>>>(tiles, n_tiles, result.n, fault_of(args));
    truth_put<<<(unsigned)n_tiles, SELECT_THREADS, 0, stream>>>(x, n, tiles, result);
    return true;
}

extern "C" bool cuda_nonzero(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *const list[1] = {x};
    if (!operands_known(args)) return false;
    const geometry<1> g = geometry_of<1>(list);
    if (g.numel == 0) return true;
    nonzero_result result = {};
    result.shape.rank = x->rank;
    result.shape.numel = g.numel;
    for (int i = 0; i < x->rank; i++) result.shape.size[i] = x->shape[i];
    geometry_divides(&result.shape);
    result.n = ((const struct attr_nonzero *)args->attr)->n;
    result.out = (int64_t *)args->out[0].data;
    const bool is_dense = g.rank == 1 && (g.numel == 1 || g.stride[0][0] == 1);
    if (is_dense && x->dtype == TL_BOOL) return nonzero_truths(args, g.numel, result);
    const nonzero_source source = {g, x->data, x->dtype, result};
    return select_all(args, source, g.numel, result.n, (int64_t *)args->workspace, args->workspace_bytes);
}
