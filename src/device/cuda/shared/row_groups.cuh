/* row_groups.cuh: rows that belong to places of a table, grouped by place, for gradients of tables (token.cu) and
 * index_put (index.cu).
 *
 * A group is the rows of one place. They are listed in the workspace: size + 1 int32, which become the ends of groups,
 * and n int32 of row numbers. What follows takes time by rows, not by places, most of which may have none. Counting and
 * placing use integer atomics, whose sums are exact: the order of groups, and that inside a group, are left to chance.
 * A group is put in ascending order before it is added up, so there are no float atomics and no chance in the sums.
 *
 * Groups of more than FEW_ROWS are in front, in `starts[size]` places of the list: a text has ids with thousands of
 * rows. A block sorts one. The others fill the list from its end; who adds them up puts them in order. What is between
 * the two, for rows without a place, is -1.
 */
#ifndef CUDA_ROW_GROUPS_CUH
#define CUDA_ROW_GROUPS_CUH

#include "device/cuda/shared/block_sort.cuh"
#include "device/cuda/shared/group_rule.h"
#include "device/cuda/shared/prefix_scan.cuh"

enum { FEW_ROWS = 16 };

/* Where rows belong. */
struct row_places {
    const void *ids;
    tl_dtype dtype;
    int64_t stride, n, size; /* of ids; rows; places */
    bool wraps;              /* negative ids count from the end */
    int fault_code;
    struct cuda_fault *fault;

    __device__ int64_t id(int64_t row) const { return id_at(ids, dtype, row * stride); }
    /* -1: none. */
    __device__ int64_t of(int64_t row) const {
        const int64_t own = id(row), place = own < 0 && wraps ? own + size : own;
        return place >= 0 && place < size ? place : -1;
    }
};

struct row_groups {
    row_places places;
    int *starts, *rows;
};

static __global__ void __launch_bounds__(BLOCK) group_count(row_groups g) {
    FOR_EACH(i, g.places.n) {
        const int64_t place = g.places.of(i);
        g.rows[i] = -1;
        if (place >= 0) atomicAdd(&g.starts[place], 1);
        else fault_raise(g.places.fault, g.places.fault_code, g.places.id(i), g.places.size);
    }
}

/* starts[v] = where v's group begins in the list. Blocks take room for all of their groups at once. The last number of
 * the list, -1 until it is taken, counts those that were taken from the end. */
static __global__ void __launch_bounds__(1024) group_begin(row_groups g) {
    __shared__ int64_t room[32];
    __shared__ int front, back;
    const int64_t v = blockIdx.x * (int64_t)1024 + threadIdx.x, n = g.places.n, size = g.places.size;
    const int64_t count = v < size ? g.starts[v] : 0, many = count > FEW_ROWS ? count : 0, few = count - many;
    int64_t all_many, all_few;
    const int64_t many_until = block_scan(many, sum_of(), room, &all_many),
                  few_until = block_scan(few, sum_of(), room, &all_few);
    if (threadIdx.x == 0) {
        front = all_many ? atomicAdd(&g.starts[size], (int)all_many) : 0;
        back = all_few ? atomicAdd(&g.rows[n - 1], (int)all_few) + 1 : 0;
    }
    __syncthreads();
    if (count) g.starts[v] = (int)(many ? front + many_until - many : n - back - few_until);
}

/* Afterwards starts[v] has moved to the end of v's group; it is 0 where there is none. */
static __global__ void __launch_bounds__(BLOCK) group_place(row_groups g) {
    FOR_EACH(i, g.places.n) {
        const int64_t place = g.places.of(i);
        if (place >= 0) g.rows[atomicAdd(&g.starts[place], 1)] = (int)i;
    }
}

struct number_exchange {
    int *x;
    __device__ void operator()(int low, int high) const {
        if (x[low] <= x[high]) return;
        const int t = x[low];
        x[low] = x[high];
        x[high] = t;
    }
};

enum { SORT_SHARED = 4096, ORDER_BLOCKS = 264 /* two for each multiprocessor */ };

/* A group too long for the sort: the block looks through all ids, four per thread, and lists the rows of this place. */
__device__ inline void block_list(const row_places &places, int64_t place, int *list) {
    __shared__ int of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    int listed = 0;
    for (int64_t base = 0; base < places.n; base += (int64_t)blockDim.x * 4) {
        const int64_t first = base + (int64_t)threadIdx.x * 4;
        unsigned found = 0;
        for (int j = 0; j < 4; j++)
            if (first + j < places.n && places.of(first + j) == place) found |= 1u << j;
        int before = __popc(found); /* inclusive over the warp, then exclusive */
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other = __shfl_up_sync(0xFFFFFFFFu, before, distance);
            if (lane >= distance) before += other;
        }
        if (lane == 31) of_warp[warp] = before;
        __syncthreads();
        int at = listed + before - __popc(found);
        for (int k = 0; k < n_warps; k++) {
            if (k < warp) at += of_warp[k];
            listed += of_warp[k];
        }
        for (int j = 0; j < 4; j++)
            if (found >> j & 1) list[at++] = (int)(first + j);
        __syncthreads();
    }
}

struct group_span {
    int first, n; /* of the list */
    int64_t place;
};
/* The group that begins at a number of the list, or an empty one. Rows of one group may be in any order, and change
 * places meanwhile. */
__device__ inline group_span span_at(const row_groups &g, int at) {
    const int row = g.rows[at], before = at ? g.rows[at - 1] : -1;
    if (row < 0) return {0, 0, 0};
    const int64_t place = g.places.of(row);
    if (before >= 0 && g.places.of(before) == place) return {0, 0, 0};
    return {at, g.starts[place] - at, place};
}

/* A block processes a set of numbers of the list that are far apart: up to 32, one for each lane, and fewer where there
 * would be too few sets for all multiprocessors. */
enum { FEW_SETS = 1056 };
__host__ __device__ inline int sets_of(int n_listed) {
    const int whole = (n_listed + 31) / 32;
    return whole > FEW_SETS ? whole : min(n_listed, (int)FEW_SETS);
}

/* Every group of many in ascending order. All warps of a block take the same branch. */
static __global__ void __launch_bounds__(1024) group_order(row_groups g) {
    __shared__ int sorted[SORT_SHARED];
    const int n_listed = g.starts[g.places.size], n_sets = sets_of(n_listed);
    for (int set = blockIdx.x; set < n_sets; set += gridDim.x) {
        const int at = set + threadIdx.x % 32 * n_sets;
        const group_span own = at < n_listed ? span_at(g, at) : group_span{0, 0, 0};
        for (unsigned wanted = __ballot_sync(0xFFFFFFFFu, own.n > 0); wanted; wanted &= wanted - 1) {
            const int lane = __ffs((int)wanted) - 1;
            const int n = __shfl_sync(0xFFFFFFFFu, own.n, lane);
            int *list = g.rows + __shfl_sync(0xFFFFFFFFu, own.first, lane);
            if (n > SORT_SHARED) {
                block_list(g.places, __shfl_sync(0xFFFFFFFFu, own.place, lane), list);
                continue;
            }
            for (int i = threadIdx.x; i < n; i += blockDim.x) sorted[i] = list[i];
            __syncthreads();
            block_sort(n, number_exchange{sorted});
            for (int i = threadIdx.x; i < n; i += blockDim.x) list[i] = sorted[i];
            __syncthreads();
        }
    }
}

/* Groups all rows, of which there are some; room: group_bytes. */
static bool rows_group(const tl_kernel_args *args, const row_places &places, void *room, row_groups *g) {
    const cudaStream_t stream = stream_of(args);
    const int64_t n = places.n, size = places.size;
    int *const starts = (int *)room;
    *g = {places, starts, starts + size + 1};
    if (!cuda_check(cudaMemsetAsync(starts, 0, (size_t)(size + 1) * sizeof *starts, stream), args->op, args->error))
        return false;
    group_count<<<blocks_for(n), BLOCK, 0, stream>>>(*g);
    group_begin<<<(unsigned)((size + 1023) / 1024), 1024, 0, stream>>>(*g);
    group_place<<<blocks_for(n), BLOCK, 0, stream>>>(*g);
    if (n > FEW_ROWS) group_order<<<min(sets_of((int)n), (int)ORDER_BLOCKS), 1024, 0, stream>>>(*g);
    return true;
}

#endif
