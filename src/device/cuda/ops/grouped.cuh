/* grouped.cuh: which tile of which group a block computes, and where it lies: for all kernels of grouped products. */
#ifndef CUDA_GROUPED_CUH
#define CUDA_GROUPED_CUH

#include "device/cuda/shared/common.cuh"

struct grouped {
    const void *a, *b, *ends;
    void *out;
    tl_dtype dtype, out_dtype, ends_dtype;
    int64_t N, m, n, k; /* rows: m is not used; outer: k is not used */
    int n_groups;
    bool is_outer, transpose_b, adds;
    struct cuda_fault *fault;
};

/* ---- Which tile ----------------------------------------------------------------------------------------- */

/* Rows first .. last-1 of group e. Ends that fall or leave the rows are an error, and the group is empty. */
__device__ inline void group_rows(const grouped &g, int e, int64_t *first, int64_t *last) {
    *first = e > 0 ? id_at(g.ends, g.ends_dtype, e - 1) : 0;
    *last = e < g.n_groups ? id_at(g.ends, g.ends_dtype, e) : g.N;
    if (*first >= 0 && *first <= *last && *last <= g.N) return;
    if (e < g.n_groups) fault_raise(g.fault, FAULT_GROUPED, *last, g.N + 1);
    *first = *last = 0;
}

/* Groups that have tiles: with rows behind the last group, unless they stay as they are. */
__device__ inline int groups_of(const grouped &g) { return g.n_groups + (g.is_outer || g.adds ? 0 : 1); }

/* first_tile[e]: how many tiles (of rows or of m) are before group e. One warp. */
template <int TILE_M> __device__ void tiles_count(const grouped &g, int *first_tile) {
    const int lane = (int)threadIdx.x % 32, n_groups = groups_of(g);
    const int of_m = (int)((g.m + TILE_M - 1) / TILE_M);
    int before = 0;
    for (int base = 0; base < n_groups; base += 32) {
        int64_t first = 0, last = 0;
        int n = 0;
        if (base + lane < n_groups) {
            group_rows(g, base + lane, &first, &last);
            n = g.is_outer ? of_m : (int)((last - first + TILE_M - 1) / TILE_M);
        }
        int sum = n;
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other = __shfl_up_sync(0xFFFFFFFFu, sum, distance);
            if (lane >= distance) sum += other;
        }
        if (base + lane < n_groups) first_tile[base + lane] = before + sum - n;
        before += __shfl_sync(0xFFFFFFFFu, sum, 31);
    }
    if (lane == 0) first_tile[n_groups] = before;
}

/* A tile of a group. */
struct tile {
    int group;
    int64_t first;         /* the group's first row */
    int64_t i, j;          /* the tile's first row within the group (or of m), and its first column */
    int64_t n_m, n_n, n_k; /* rows and columns of the result from there on, and terms */
};

template <int TILE_M, int TILE_N>
__device__ inline tile tile_at(const grouped &g, const int *first_tile, int64_t index) {
    const int64_t n_tiles_n = (g.n + TILE_N - 1) / TILE_N;
    int low = 0, high = groups_of(g) - 1;
    while (low < high) { /* the last group that begins at or before it */
        const int middle = (low + high + 1) / 2;
        if (first_tile[middle] * n_tiles_n <= index) low = middle;
        else high = middle - 1;
    }
    const int64_t inside = index - first_tile[low] * n_tiles_n, n_tiles_m = first_tile[low + 1] - first_tile[low];
    int64_t last;
    tile t;
    t.group = low;
    t.i = inside % n_tiles_m * TILE_M; /* neighbours share columns of b */
    t.j = inside / n_tiles_m * TILE_N;
    group_rows(g, low, &t.first, &last);
    t.n_m = (g.is_outer ? g.m : last - t.first) - t.i;
    t.n_n = g.n - t.j;
    t.n_k = g.is_outer ? last - t.first : low < g.n_groups ? g.k : 0;
    return t;
}
template <int TILE_M, int TILE_N> __device__ inline int64_t tiles_of(const grouped &g, const int *first_tile) {
    return first_tile[groups_of(g)] * ((g.n + TILE_N - 1) / TILE_N);
}

/* Its first elements in both operands and in the result. */
__device__ inline int64_t place_in_a(const grouped &g, const tile &t) {
    return g.is_outer ? t.first * g.m + t.i : (t.first + t.i) * g.k;
}
__device__ inline int64_t place_in_b(const grouped &g, const tile &t) {
    if (g.is_outer) return t.first * g.n + t.j;
    return t.group * g.n * g.k + (g.transpose_b ? t.j * g.k : t.j);
}
__device__ inline int64_t place_in_out(const grouped &g, const tile &t) {
    return (g.is_outer ? t.group * g.m + t.i : t.first + t.i) * g.n + t.j;
}

/* ---- Results --------------------------------------------------------------------------------------------- */

template <class T> __device__ inline void pair_store(const grouped &g, int64_t at, float x, float y) {
    if (g.out_dtype == TL_F32) {
        float2 *out = (float2 *)((float *)g.out + at);
        if (g.adds) x += out->x, y += out->y;
        *out = make_float2(x, y);
        return;
    }
    unit<T, 2> *out = (unit<T, 2> *)((T *)g.out + at);
    if (g.adds) x += value_of<float>(out->v[0]), y += value_of<float>(out->v[1]);
    unit<T, 2> both;
    both.v[0] = conversion<T>::from(x);
    both.v[1] = conversion<T>::from(y);
    *out = both;
}

/* ---- Launches -------------------------------------------------------------------------------------------- */

/* No more blocks than there can be tiles. */
static unsigned blocks_of(const tl_kernel_args *args, const grouped &g, int tile_m, int tile_n, int per_processor) {
    const int64_t of_n = (g.n + tile_n - 1) / tile_n;
    const int64_t of_m = g.is_outer ? g.n_groups * ((g.m + tile_m - 1) / tile_m) : g.N / tile_m + g.n_groups + 1;
    const int64_t most = (int64_t)cuda_state_of(args->stream)->n_multiprocessors * per_processor;
    return (unsigned)(of_n * of_m < most ? of_n * of_m : most);
}

/* grouped_hopper.cu: what grouped.cu's tiles take, on Hopper's tensor cores. */
bool grouped_fits_hopper(const tl_kernel_args *args, const grouped &g);
bool grouped_hopper(const tl_kernel_args *args, const grouped &g);

#endif
