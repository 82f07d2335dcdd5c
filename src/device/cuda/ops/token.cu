/* token.cu: rows by id, and the loss over a vocabulary.
 *
 * An id outside [0,V) must not fault: the kernel writes it to the fault cell (state.h) and continues with zeros;
 * sync reports it. Waiting for the device after each lookup would cost more than the lookup.
 */
#include "device/cuda/shared/row_groups.cuh"
#include "device/cuda/shared/embedding_rule.h"
#include "device/cuda/shared/line_pack.cuh"
#include "device/cuda/shared/prefix_scan.cuh"

/* ---- embedding ---------------------------------------------------------------------------------------- */

/* A row is C units of type U, where U is as wide as the row's length and addresses allow. Block (32, 8): a warp per
 * row. */
template <class U>
__global__ void __launch_bounds__(256)
    embedding_rows(const U *weight, int64_t V, int64_t n_units, geometry<1> ids_at, const void *ids, tl_dtype ids_dtype,
                   U *out, struct cuda_fault *fault) {
    for (int64_t row = blockIdx.x * (int64_t)8 + threadIdx.y; row < ids_at.numel; row += (int64_t)gridDim.x * 8) {
        int64_t at[1];
        offsets_of(ids_at, row, at);
        const int64_t id = id_at(ids, ids_dtype, at[0]);
        const bool is_good = id >= 0 && id < V;
        if (!is_good && threadIdx.x == 0) fault_raise(fault, FAULT_EMBEDDING, id, V);
        for (int64_t i = threadIdx.x; i < n_units; i += 32)
            out[row * n_units + i] = is_good ? weight[id * n_units + i] : U();
    }
}

template <class U> static void embedding_launch(const tl_kernel_args *args, int64_t V, int64_t row_bytes) {
    const tl_operand *ids = &args->in[1];
    const tl_operand *const list[1] = {ids};
    const geometry<1> g = geometry_of<1>(list);
    embedding_rows<U><<<capped((g.numel + 7) / 8), dim3(32, 8), 0, stream_of(args)>>>(
        (const U *)args->in[0].data, V, row_bytes / (int64_t)sizeof(U), g, ids->data, ids->dtype,
        (U *)args->out[0].data, fault_of(args));
}

/* ---- embedding_grad ------------------------------------------------------------------------------------
 *
 * Rows of g are grouped by id (row_groups.cuh). A group of many is added up by blocks, each 32 packs of columns with 16
 * lanes for rows. A group of few has a warp for itself.
 */
enum { ROW_LANES = 16, GROUP_AHEAD = 4 };
static_assert((int)FEW_ROWS <= (int)ROW_LANES, "what lanes would gain is not worth a block");

/* Groups of many (is_added: added to existing rows): lane k adds rows k, k + ROW_LANES, ... of the group, then the
 * lanes are added in order. Blocks take turns at 32 units of columns of a set. */
template <class T, int U>
__global__ void __launch_bounds__(32 * ROW_LANES)
    embedding_grad_many(const T *g, row_groups groups, int64_t n_columns, T *out, bool is_added) {
    typedef typename compute_type<T>::type C;
    __shared__ C parts[ROW_LANES][32 * U];
    const int n_listed = groups.starts[groups.places.size], n_sets = sets_of(n_listed), row_lane = threadIdx.x / 32;
    const int64_t n_units = n_columns / U, n_turns = n_sets * ((n_units + 31) / 32);
    for (int64_t turn = blockIdx.x; turn < n_turns; turn += gridDim.x) {
        const int64_t across = turn / n_sets, unit_at = across * 32 + threadIdx.x % 32, first_column = across * 32 * U;
        const int at = (int)(turn - across * n_sets) + threadIdx.x % 32 * n_sets;
        const group_span own = at < n_listed ? span_at(groups, at) : group_span{0, 0, 0};
        const bool is_there = unit_at < n_units;
        for (unsigned wanted = __ballot_sync(0xFFFFFFFFu, own.n > 0); wanted; wanted &= wanted - 1) {
            const int lane = __ffs((int)wanted) - 1;
            const int n = __shfl_sync(0xFFFFFFFFu, own.n, lane);
            const int *list = groups.rows + __shfl_sync(0xFFFFFFFFu, own.first, lane);
            T *const to = out + __shfl_sync(0xFFFFFFFFu, own.place, lane) * n_columns + first_column;
            C sum[U];
            for (int j = 0; j < U; j++) sum[j] = 0;
            for (int i = row_lane; is_there && i < n; i += ROW_LANES * GROUP_AHEAD) {
                unit<T, U> x[GROUP_AHEAD];
#pragma unroll
                for (int k = 0; k < GROUP_AHEAD; k++)
                    if (i + k * ROW_LANES < n) x[k] = unit_load<U>(g + list[i + k * ROW_LANES] * n_columns, unit_at);
#pragma unroll
                for (int k = 0; k < GROUP_AHEAD; k++)
                    for (int j = 0; i + k * ROW_LANES < n && j < U; j++) sum[j] += value_of<C>(x[k].v[j]);
            }
            for (int j = 0; j < U; j++) parts[row_lane][threadIdx.x % 32 * U + j] = sum[j];
            __syncthreads();
            for (int column = threadIdx.x; column < 32 * U && first_column + column < n_columns; column += blockDim.x) {
                C total = is_added ? value_of<C>(to[column]) + parts[0][column] : parts[0][column];
                for (int k = 1; k < ROW_LANES; k++) total += parts[k][column];
                to[column] = conversion<T>::from(total);
            }
            __syncthreads();
        }
    }
}

enum { FEW_UNITS = 4 }; /* of a lane */

/* Groups of few, FEW_UNITS times 32 units of columns by blockIdx.y. Block (32, 8): a warp looks at a place. The lanes
 * have the group's rows, and know how many are below theirs. */
template <class T, int U>
__global__ void __launch_bounds__(256)
    embedding_grad_few(const T *g, row_groups groups, int64_t n_columns, T *out, bool is_added) {
    typedef typename compute_type<T>::type C;
    const int lane = threadIdx.x;
    const int64_t n_units = n_columns / U, first = blockIdx.y * (int64_t)(32 * FEW_UNITS) + lane;
    const int64_t step = (int64_t)gridDim.x * 8, begin = groups.starts[groups.places.size];
    for (int64_t at = begin + blockIdx.x * (int64_t)8 + threadIdx.y; at < groups.places.n; at += step) {
        const group_span group = span_at(groups, (int)at);
        if (!group.n) continue; /* the same in all lanes */
        const int own = lane < group.n ? groups.rows[group.first + lane] : INT32_MAX;
        int below = 0;
        for (int k = 0; k < group.n; k++) below += __shfl_sync(0xFFFFFFFFu, own, k) < own;
        T *const to = out + group.place * n_columns;
        C sum[FEW_UNITS][U];
#pragma unroll
        for (int m = 0; m < FEW_UNITS; m++) {
            unit<T, U> x;
            if (is_added && first + m * 32 < n_units) x = unit_load<U>(to, first + m * 32);
            for (int j = 0; j < U; j++) sum[m][j] = is_added && first + m * 32 < n_units ? value_of<C>(x.v[j]) : C(0);
        }
        for (int k = 0; k < group.n; k++) {
            const unsigned has = __ballot_sync(0xFFFFFFFFu, lane < group.n && below == k);
            const T *const from = g + __shfl_sync(0xFFFFFFFFu, own, __ffs((int)has) - 1) * n_columns;
            unit<T, U> x[FEW_UNITS];
#pragma unroll
            for (int m = 0; m < FEW_UNITS; m++)
                if (first + m * 32 < n_units) x[m] = unit_load<U>(from, first + m * 32);
#pragma unroll
            for (int m = 0; m < FEW_UNITS; m++)
                for (int j = 0; first + m * 32 < n_units && j < U; j++) sum[m][j] += C(0) + value_of<C>(x[m].v[j]);
        }
#pragma unroll
        for (int m = 0; m < FEW_UNITS; m++) {
            if (first + m * 32 >= n_units) continue;
            unit<T, U> y;
            for (int j = 0; j < U; j++) y.v[j] = conversion<T>::from(sum[m][j]);
            unit_store<U>(to, first + m * 32, y);
        }
    }
}

template <class T, int U>
static void add_groups_launch(const tl_kernel_args *args, const T *g, const row_groups &groups, int64_t n_columns,
                              bool is_added) {
    T *const out = (T *)args->out[0].data;
    const cudaStream_t stream = stream_of(args);
    const int64_t n = groups.places.n, n_units = n_columns / U, n_turns = sets_of((int)n) * ((n_units + 31) / 32);
    if (n > FEW_ROWS)
        embedding_grad_many<T, U><<<(unsigned)min(n_turns, (int64_t)FEW_SETS * 2), 32 * ROW_LANES, 0, stream>>>(
            g, groups, n_columns, out, is_added);
    const dim3 grid(blocks_for(n, 8), (unsigned)((n_units + 32 * FEW_UNITS - 1) / (32 * FEW_UNITS)));
    embedding_grad_few<T, U><<<grid, dim3(32, 8), 0, stream>>>(g, groups, n_columns, out, is_added);
}

/* ---- embedding_grad of a table of few rows -----------------------------------------------------------------
 *
 * Many rows of g for each id, and for some of them, as in text, a good part of all. A block has a strip of columns and
 * a part of g, TABLE_CHUNK rows at a time. It sorts the rows of a chunk by id, which keeps their order, and cuts them
 * into pieces of TABLE_PIECE: every piece takes as long, whatever the ids are. The sum of what a piece has of an id
 * goes to a slot of shared memory,
 *
 *     slot = piece + id
 *
 * which no other piece and id have, since the next sum is of the next piece, of a higher id, or both. The slots of an
 * id follow each other, and are added in order; then chunks, then parts.
 */
enum { TABLE_THREADS = 512, TABLE_WARPS = TABLE_THREADS / 32, TABLE_PIECE = 16 };
enum { TABLE_EACH = TABLE_CHUNK / TABLE_THREADS };
static_assert(TABLE_FEW <= TABLE_THREADS, "a thread for each id");
static const uint16_t NO_ID = UINT16_MAX;

/* A chunk's rows by id: `row` has their numbers in the chunk, those of id v from begin[v] to begin[v + 1]. */
struct table_groups {
    uint16_t id[TABLE_CHUNK], row[TABLE_CHUNK], begin[TABLE_FEW + 1];
};

/* A warp has neighbouring rows. counts: shared memory for V numbers of each warp, which become where the warp's rows of
 * an id begin. */
__device__ inline void table_group(table_groups &groups, uint16_t *counts, const void *ids, tl_dtype dtype,
                                   int64_t first, int n, int V, struct cuda_fault *fault) {
    __shared__ int64_t room[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint16_t *const own = counts + warp * V;
    int rank[TABLE_EACH];
    for (int i = threadIdx.x; i < TABLE_WARPS * V; i += TABLE_THREADS) counts[i] = 0;
    __syncthreads();
    int64_t of_row[TABLE_EACH];
#pragma unroll
    for (int e = 0; e < TABLE_EACH; e++) {
        const int i = (warp * TABLE_EACH + e) * 32 + lane;
        of_row[e] = i < n ? id_at(ids, dtype, first + i) : -1;
        if (i < n && (of_row[e] < 0 || of_row[e] >= V)) fault_raise(fault, FAULT_EMBEDDING_GRAD, of_row[e], V);
    }
#pragma unroll
    for (int e = 0; e < TABLE_EACH; e++) {
        const bool is_good = of_row[e] >= 0 && of_row[e] < V;
        const int id = is_good ? (int)of_row[e] : (int)NO_ID;
        const unsigned meets = __match_any_sync(0xFFFFFFFFu, id);
        groups.id[(warp * TABLE_EACH + e) * 32 + lane] = (uint16_t)id;
        rank[e] = (is_good ? own[id] : 0) + __popc(meets & ((1u << lane) - 1));
        __syncwarp();
        if (is_good && __ffs((int)meets) - 1 == lane) own[id] += (uint16_t)__popc(meets);
        __syncwarp();
    }
    __syncthreads();
    int64_t count = 0, all;
    for (int w = 0; w < TABLE_WARPS && threadIdx.x < V; w++) {
        const int more = counts[w * V + threadIdx.x];
        counts[w * V + threadIdx.x] = (uint16_t)count;
        count += more;
    }
    const int64_t until = block_scan(count, sum_of(), room, &all);
    if (threadIdx.x < V) groups.begin[threadIdx.x] = (uint16_t)(until - count);
    if (threadIdx.x == 0) groups.begin[V] = (uint16_t)all;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < TABLE_EACH; e++) {
        const int i = (warp * TABLE_EACH + e) * 32 + lane, id = groups.id[i];
        if (id != NO_ID) groups.row[groups.begin[id] + own[id] + rank[e]] = (uint16_t)i;
    }
    __syncthreads();
}

/* The sums of a piece, U columns of them for a thread. g: row 0 of the chunk, at these columns. */
template <class T, int U>
__device__ inline void table_piece(const table_groups &groups, const T *g, int64_t n_columns, int piece, int n,
                                   float *slots) {
    enum { AHEAD = U > 1 ? 4 : 8 };
    float sum[U];
    int id = -1;
    for (int i = piece * TABLE_PIECE, end = min(n, i + TABLE_PIECE); i < end; i += AHEAD) {
        unit<T, U> x[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (i + k < end) x[k] = unit_load<U>(g + groups.row[i + k] * n_columns, 0);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (i + k >= end) break;
            const int next = groups.id[groups.row[i + k]];
            if (next != id) {
                for (int j = 0; j < U && id >= 0; j++) slots[(piece + id) * TABLE_STRIP + j] = sum[j];
                for (int j = 0; j < U; j++) sum[j] = 0;
                id = next;
            }
            for (int j = 0; j < U; j++) sum[j] += value_of<float>(x[k].v[j]);
        }
    }
    for (int j = 0; j < U && id >= 0; j++) slots[(piece + id) * TABLE_STRIP + j] = sum[j];
}

/* -0 + x = x for every x: the sum of an id that a chunk does not have. */
static const float NO_SUM = -0.0f;

/* grid: strips, parts. parts: a table for each part; or NULL, and the only chunk's sums go to out. */
template <class T, int U>
__global__ void __launch_bounds__(TABLE_THREADS, 2)
    table_sums(const T *g, const void *ids, tl_dtype dtype, int64_t n_rows, int V, int64_t n_columns, float *parts,
               T *out, bool is_added, struct cuda_fault *fault) {
    enum { LANES = TABLE_STRIP / U };
    __shared__ table_groups groups;
    extern __shared__ double table_room[];
    float *const slots = (float *)table_room;
    const int64_t n_chunks = (n_rows + TABLE_CHUNK - 1) / TABLE_CHUNK, first_column = blockIdx.x * (int64_t)TABLE_STRIP;
    const int64_t begin = n_chunks * blockIdx.y / gridDim.y, end = n_chunks * (blockIdx.y + 1) / gridDim.y;
    const int own_column = threadIdx.x % LANES * U, n_own = (int)min((int64_t)TABLE_STRIP, n_columns - first_column);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t first = chunk * TABLE_CHUNK;
        table_group(groups, (uint16_t *)table_room, ids, dtype, first, (int)min((int64_t)TABLE_CHUNK, n_rows - first),
                    V, fault);
        const int n = groups.begin[V];
        for (int piece = threadIdx.x / LANES; piece * TABLE_PIECE < n; piece += TABLE_THREADS / LANES)
            if (own_column < n_own)
                table_piece<T, U>(groups, g + first * n_columns + first_column + own_column, n_columns, piece, n,
                                  slots + own_column);
        __syncthreads();
        for (int i = threadIdx.x; i < V * TABLE_STRIP; i += TABLE_THREADS) {
            const int id = i / TABLE_STRIP, column = i % TABLE_STRIP, from = groups.begin[id],
                      to = groups.begin[id + 1];
            if (column >= n_own) continue;
            const int64_t at = id * n_columns + first_column + column;
            float sum = parts && chunk > begin ? parts[blockIdx.y * (V * n_columns) + at]
                        : !parts && is_added   ? value_of<float>(out[at])
                                               : NO_SUM;
            if (!parts && is_added && from == to) continue;
            for (int slot = from / TABLE_PIECE + id; from < to && slot <= (to - 1) / TABLE_PIECE + id; slot++)
                sum += slots[slot * TABLE_STRIP + column];
            if (parts) parts[blockIdx.y * (V * n_columns) + at] = sum;
            else out[at] = conversion<T>::from(from < to ? sum : 0.0f);
        }
        __syncthreads();
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK) table_add(const float *parts, int n_parts, int64_t n, T *out, bool is_added) {
    enum { AHEAD = 8 };
    FOR_EACH(i, n) {
        float sum = is_added ? value_of<float>(out[i]) : 0.0f;
        for (int p = 0; p < n_parts; p += AHEAD) {
            float x[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (p + k < n_parts) x[k] = parts[(p + k) * n + i];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (p + k < n_parts) sum += x[k];
        }
        out[i] = conversion<T>::from(sum);
    }
}

/* True: all is done. False: too many rows of the table, or too little shared memory for them. */
template <class T, int U>
static bool table_launch(const tl_kernel_args *args, const tl_operand *g_rows, int V, int64_t n_columns,
                         bool is_added) {
    const tl_operand *ids = g_rows + 1;
    const int64_t n = operand_numel(ids), n_parts = table_parts(n, n_columns);
    const size_t of_slots = (size_t)(TABLE_CHUNK / TABLE_PIECE + V) * TABLE_STRIP * sizeof(float),
                 of_counts = (size_t)(TABLE_WARPS * V) * sizeof(uint16_t),
                 bytes = of_slots > of_counts ? of_slots : of_counts;
    float *const parts = table_bytes(n, V, n_columns, false) ? (float *)args->workspace : nullptr;
    T *const out = (T *)args->out[0].data;
    if (!shared_memory_try(table_sums<T, U>, bytes)) return false;
    const dim3 grid((unsigned)table_strips(n_columns), (unsigned)n_parts);
    table_sums<T, U><<<grid, TABLE_THREADS, bytes, stream_of(args)>>>(
        (const T *)g_rows->data, ids->data, ids->dtype, n, V, n_columns, parts, out, is_added, fault_of(args));
    if (parts)
        table_add<T><<<blocks_for(V * n_columns), BLOCK, 0, stream_of(args)>>>(parts, (int)n_parts, V * n_columns, out,
                                                                               is_added);
    return true;
}

template <class T>
static bool embedding_grad_launch(const tl_kernel_args *args, const tl_operand *g_rows, int64_t V, int64_t n_columns,
                                  bool is_added) {
    const tl_operand *ids = g_rows + 1;
    const int64_t n = operand_numel(ids);
    const cudaStream_t stream = stream_of(args);
    const T *g = (const T *)g_rows->data;
    void *const out = args->out[0].data;
    const void *const addresses[] = {g, out};
    const bool by_packs = sizeof(T) < 8 && rows_are_packs(n_columns, 2, addresses);
    if constexpr (sizeof(T) < 8)
        if (n > 0 && V <= TABLE_FEW &&
            (by_packs ? table_launch<T, PACK>(args, g_rows, (int)V, n_columns, is_added)
                      : table_launch<T, 1>(args, g_rows, (int)V, n_columns, is_added)))
            return true;
    if (!is_added &&
        !cuda_check(cudaMemsetAsync(out, 0, (size_t)(V * n_columns) * sizeof(T), stream), args->op, args->error))
        return false;
    if (n == 0) return true;
    row_groups groups;
    const row_places places = {ids->data, ids->dtype, 1, n, V, false, FAULT_EMBEDDING_GRAD, fault_of(args)};
    if (!rows_group(args, places, args->workspace, &groups)) return false;
    if constexpr (sizeof(T) < 8)
        if (by_packs) {
            add_groups_launch<T, PACK>(args, g, groups, n_columns, is_added);
            return true;
        }
    add_groups_launch<T, 1>(args, g, groups, n_columns, is_added);
    return true;
}

/* ---- cross_entropy ------------------------------------------------------------------------------------ */

/* One call: where the losses of rows go. */
struct entropy {
    const void *targets;
    tl_dtype targets_dtype, loss_dtype;
    int64_t n_rows, V, ignored;
    void *loss;                       /* (N); or NULL, */
    struct cross_entropy_part *parts; /* and their sums, one for each block */
    struct cuda_fault *fault;
};

/* A row that is left out, by one thread. */
template <class C> __device__ inline void row_skip(const entropy &e, int64_t row, C *lse_out) {
    lse_out[row] = C(0);
    if (e.loss) store_as<C>(e.loss, row, e.loss_dtype, C(0));
}
/* Another row x, by one thread. */
template <class T, class C>
__device__ inline void row_put(const entropy &e, int64_t row, const T *x, int64_t target, C lse, C *lse_out,
                               struct cross_entropy_part &part) {
    const bool is_good = target >= 0 && target < e.V;
    if (!is_good) fault_raise(e.fault, FAULT_CROSS_ENTROPY, target, e.V);
    const C loss = is_good ? lse - value_of<C>(x[target]) : C(0);
    lse_out[row] = lse;
    if (e.loss) store_as<C>(e.loss, row, e.loss_dtype, loss);
    part.loss += (double)loss;
    part.n++;
}
/* The block's sum, of the parts of its threads; those that put no row have 0. */
__device__ inline void part_put(const entropy &e, const struct cross_entropy_part &part) {
    if (!e.parts) return;
    const double loss = block_reduce(part.loss, sum_of(), 0.0);
    const int64_t n = block_reduce(part.n, sum_of(), (int64_t)0);
    if (threadIdx.x == 0) e.parts[blockIdx.x] = {loss, n};
}

enum { ENTROPY_WARPS = 8 };

/* Short rows: a warp for each, of which a lane keeps HELD logits. */
template <class T, int HELD>
__global__ void __launch_bounds__(32 * ENTROPY_WARPS)
    cross_entropy_warps(const T *logits, entropy e, typename compute_type<T>::type *lse_out) {
    typedef typename compute_type<T>::type C;
    const int lane = threadIdx.x % 32, V = (int)e.V;
    const int64_t step = gridDim.x * (int64_t)ENTROPY_WARPS;
    struct cross_entropy_part part = {0, 0};
    if (e.parts) next_begin(); /* cross_entropy_finish, which waits */
    for (int64_t row = blockIdx.x * (int64_t)ENTROPY_WARPS + threadIdx.x / 32; row < e.n_rows; row += step) {
        const T *x = logits + row * V;
        const int64_t target = id_at(e.targets, e.targets_dtype, row);
        if (target == e.ignored) { /* the same in all lanes */
            if (lane == 0) row_skip(e, row, lse_out);
            continue;
        }
        C v[HELD], top = lowest<C>(), sum = 0;
#pragma unroll
        for (int k = 0; k < HELD; k++) v[k] = lane + 32 * k < V ? value_of<C>(x[lane + 32 * k]) : lowest<C>();
#pragma unroll
        for (int k = 0; k < HELD; k++) top = max_of()(top, v[k]);
        top = warp_reduce(top, max_of());
        const C shift = top == lowest<C>() ? C(0) : top;
#pragma unroll
        for (int k = 0; k < HELD; k++) sum += exp_of(v[k] - shift);
        const C lse = shift + log_of(warp_reduce(sum, sum_of()));
        if (lane == 0) row_put(e, row, x, target, lse, lse_out, part);
    }
    part_put(e, part);
}

struct exact_exp {
    template <class C> static __device__ C of(C x) { return exp_of(x); }
};

/* A block for each row. */
template <class T>
__global__ void __launch_bounds__(512)
    cross_entropy_rows(const T *logits, entropy e, typename compute_type<T>::type *lse_out) {
    typedef typename compute_type<T>::type C;
    struct cross_entropy_part part = {0, 0};
    if (e.parts) next_begin();
    for (int64_t row = blockIdx.x; row < e.n_rows; row += gridDim.x) {
        const T *x = logits + row * e.V;
        const int64_t target = id_at(e.targets, e.targets_dtype, row);
        if (target == e.ignored) { /* the same in all threads */
            if (threadIdx.x == 0) row_skip(e, row, lse_out);
            continue;
        }
        const running<C> all = line_running<exact_exp>(x, e.V);
        const C lse = (all.top == lowest<C>() ? C(0) : all.top) + log_of(all.sum);
        if (threadIdx.x == 0) row_put(e, row, x, target, lse, lse_out, part);
    }
    part_put(e, part);
}

/* The sum of all parts or, with a share, the mean of the rows that count. */
__global__ void __launch_bounds__(512)
    cross_entropy_finish(const struct cross_entropy_part *parts, int n_parts, void *loss, tl_dtype loss_dtype,
                         void *share, tl_dtype share_dtype) {
    double sum = 0;
    int64_t n = 0;
    front_wait();
#pragma unroll 4
    for (int i = threadIdx.x; i < n_parts; i += blockDim.x) {
        sum += parts[i].loss;
        n += parts[i].n;
    }
    sum = block_reduce(sum, sum_of(), 0.0);
    n = block_reduce(n, sum_of(), (int64_t)0);
    if (threadIdx.x != 0) return;
    store_as<double>(loss, 0, loss_dtype, share ? sum / (double)n : sum);
    if (share) store_as<double>(share, 0, share_dtype, 1 / (double)n);
}

/* (exp(logit - lse) - [i = target]) g [share]; a target of -1 is none of these. 0 in rows that are left out. */
template <class T, bool PACKED>
__global__ void __launch_bounds__(512)
    cross_entropy_grad_rows(const void *g, tl_dtype g_dtype, bool is_reduced, const T *logits, const void *targets,
                            tl_dtype targets_dtype, const typename compute_type<T>::type *lses,
                            const typename compute_type<T>::type *share, int64_t n_rows, int64_t V, int64_t ignored,
                            T *out, struct cuda_fault *fault) {
    typedef typename compute_type<T>::type C;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const int64_t target = id_at(targets, targets_dtype, row);
        const C lse = lses[row], scale = load_as<C>(g, is_reduced ? 0 : row, g_dtype) * (share ? *share : C(1));
        const T *x = logits + row * V;
        T *y = out + row * V;
        if (target == ignored) {
            for (int64_t i = threadIdx.x; i < V; i += blockDim.x) y[i] = conversion<T>::from(C(0));
            continue;
        }
        if ((target < -1 || target >= V) && threadIdx.x == 0) fault_raise(fault, FAULT_CROSS_ENTROPY_GRAD, target, V);
        if (PACKED) {
            for (int64_t i = threadIdx.x; i < V / PACK; i += blockDim.x) {
                const pack<T> p = ((const pack<T> *)x)[i];
                pack<T> q;
                for (int j = 0; j < PACK; j++) {
                    const C hit = i * PACK + j == target ? C(1) : C(0);
                    q.v[j] = conversion<T>::from((exp_of(value_of<C>(p.v[j]) - lse) - hit) * scale);
                }
                ((pack<T> *)y)[i] = q;
            }
        } else {
            for (int64_t i = threadIdx.x; i < V; i += blockDim.x)
                y[i] = conversion<T>::from((exp_of(value_of<C>(x[i]) - lse) - (i == target ? C(1) : C(0))) * scale);
        }
    }
}

static bool rows_pack(const void *a, const void *b, int64_t V) {
    return V % PACK == 0 && ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
}

enum { ENTROPY_FEW = 4, ENTROPY_HELD = 16 };

/* Blocks for so many rows each: one for each part at the most. */
static unsigned entropy_blocks(const entropy &e, int64_t rows) {
    const int64_t blocks = (e.n_rows + rows - 1) / rows;
    return e.parts ? (unsigned)cross_entropy_parts(blocks) : capped(blocks);
}

template <class T> static unsigned entropy_rows_launch(const tl_kernel_args *args, const entropy &e) {
    typedef typename compute_type<T>::type C;
    const T *logits = (const T *)args->in[0].data;
    C *lse = (C *)args->out[1].data;
    const bool by_warps = e.V <= 32 * ENTROPY_HELD;
    const unsigned blocks = entropy_blocks(e, by_warps ? ENTROPY_WARPS : 1);
    const cudaStream_t stream = stream_of(args);
    if (blocks == 0) return 0;
    if (e.V <= 32 * ENTROPY_FEW)
        cross_entropy_warps<T, ENTROPY_FEW><<<blocks, 32 * ENTROPY_WARPS, 0, stream>>>(logits, e, lse);
    else if (by_warps) cross_entropy_warps<T, ENTROPY_HELD><<<blocks, 32 * ENTROPY_WARPS, 0, stream>>>(logits, e, lse);
    else cross_entropy_rows<T><<<blocks, threads_for_row(e.V / 2), 0, stream>>>(logits, e, lse);
    return blocks;
}

template <class T> static bool cross_entropy_launch(const tl_kernel_args *args, int64_t n_rows, int64_t V) {
    static const bool is_early = waits_for_front(cross_entropy_finish);
    const struct attr_cross_entropy a = cross_entropy_options((const struct attr_cross_entropy *)args->attr);
    const tl_operand *targets = &args->in[1], *loss = &args->out[0], *share = args->n_out > 2 ? &args->out[2] : nullptr;
    entropy e = {targets->data,  targets->dtype, loss->dtype, n_rows,        V,
                 a.ignore_index, nullptr,        nullptr,     fault_of(args)};
    const bool is_reduced = a.reduction != TL_REDUCE_NONE;
    if (is_reduced) e.parts = (struct cross_entropy_part *)args->workspace;
    else e.loss = loss->data;
    if (is_reduced && args->workspace_bytes < (size_t)cross_entropy_parts(n_rows) * sizeof *e.parts) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    const unsigned n_parts = entropy_rows_launch<T>(args, e);
    if (is_reduced)
        launch_early(args, cross_entropy_finish, is_early && n_parts > 0, 1, 512, 0, e.parts, (int)n_parts, loss->data,
                     loss->dtype, share ? share->data : nullptr, share ? share->dtype : loss->dtype);
    return true;
}

template <class T> static bool cross_entropy_grad_launch(const tl_kernel_args *args, int64_t n_rows, int64_t V) {
    typedef typename compute_type<T>::type C;
    const tl_operand *g = &args->in[0], *targets = &args->in[2];
    const T *logits = (const T *)args->in[1].data;
    const C *lse = (const C *)args->in[3].data, *share = args->n_in > 4 ? (const C *)args->in[4].data : nullptr;
    T *out = (T *)args->out[0].data;
    const struct attr_cross_entropy a = cross_entropy_options((const struct attr_cross_entropy *)args->attr);
    const bool is_reduced = a.reduction != TL_REDUCE_NONE;
    const int threads = threads_for_row(V);
    if (rows_pack(logits, out, V))
        cross_entropy_grad_rows<T, true><<<capped(n_rows), threads, 0, stream_of(args)>>>(
            g->data, g->dtype, is_reduced, logits, targets->data, targets->dtype, lse, share, n_rows, V, a.ignore_index,
            out, fault_of(args));
    else
        cross_entropy_grad_rows<T, false><<<capped(n_rows), threads, 0, stream_of(args)>>>(
            g->data, g->dtype, is_reduced, logits, targets->data, targets->dtype, lse, share, n_rows, V, a.ignore_index,
            out, fault_of(args));
    return true;
}

extern "C" {

bool cuda_embedding(const tl_kernel_args *args) {
    const tl_operand *weight = &args->in[0];
    if (!operands_known(args) || !ids_known(args, &args->in[1])) return false;
    const int64_t V = weight->shape[0], row_bytes = weight->shape[1] * dtype_bytes(weight->dtype);
    if (operand_numel(&args->out[0]) == 0) return true;
    const uint64_t lengths = (uint64_t)row_bytes | (uintptr_t)weight->data | (uintptr_t)args->out[0].data;
    if (lengths % 16 == 0) embedding_launch<uint4>(args, V, row_bytes);
    else if (lengths % 4 == 0) embedding_launch<uint32_t>(args, V, row_bytes);
    else if (lengths % 2 == 0) embedding_launch<uint16_t>(args, V, row_bytes);
    else embedding_launch<uint8_t>(args, V, row_bytes);
    return true;
}

/* ids follow g. */
static bool add_rows(const tl_kernel_args *args, const tl_operand *g, bool is_added) {
    const tl_operand *out = &args->out[0];
    if (!operands_known(args) || !ids_known(args, g + 1)) return false;
    if (out->dtype != g->dtype) return cuda_refuse_dtype(args, out->dtype);
    const int64_t V = out->shape[0], n = operand_numel(g + 1), n_columns = out->shape[1];
    if (V == 0 || n_columns == 0) return true;
    const size_t of_groups = (size_t)(V + 1 + n) * sizeof(int32_t),
                 of_table = (size_t)table_bytes(n, V, n_columns, out->dtype == TL_F64),
                 need = of_groups > of_table ? of_groups : of_table;
    if (args->workspace_bytes < need || n > INT32_MAX) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s of %lld rows needs %zu bytes of workspace, has %zu", args->op,
                 (long long)n, need, args->workspace_bytes);
        return false;
    }
    switch (g->dtype) {
    case TL_F64:
        return embedding_grad_launch<double>(args, g, V, n_columns, is_added);
    case TL_F32:
        return embedding_grad_launch<float>(args, g, V, n_columns, is_added);
    case TL_BF16:
        return embedding_grad_launch<bf16>(args, g, V, n_columns, is_added);
    case TL_F16:
        return embedding_grad_launch<f16>(args, g, V, n_columns, is_added);
    default:
        return cuda_refuse_dtype(args, g->dtype);
    }
}

bool cuda_embedding_grad(const tl_kernel_args *args) { return add_rows(args, &args->in[0], false); }
bool cuda_embedding_acc(const tl_kernel_args *args) { return add_rows(args, &args->in[1], true); }

bool cuda_cross_entropy(const tl_kernel_args *args) {
    const tl_operand *logits = &args->in[0];
    const int64_t n_rows = logits->shape[0], V = logits->shape[1];
    if (!ids_known(args, &args->in[1])) return false;
    switch (logits->dtype) {
    case TL_F64:
        return cross_entropy_launch<double>(args, n_rows, V);
    case TL_F32:
        return cross_entropy_launch<float>(args, n_rows, V);
    case TL_BF16:
        return cross_entropy_launch<bf16>(args, n_rows, V);
    case TL_F16:
        return cross_entropy_launch<f16>(args, n_rows, V);
    default:
        return cuda_refuse_dtype(args, logits->dtype);
    }
}

bool cuda_cross_entropy_grad(const tl_kernel_args *args) {
    const tl_operand *logits = &args->in[1];
    const int64_t n_rows = logits->shape[0], V = logits->shape[1];
    const tl_dtype want = logits->dtype == TL_F64 ? TL_F64 : TL_F32;
    if (!ids_known(args, &args->in[2])) return false;
    if (args->in[3].dtype != want || args->out[0].dtype != logits->dtype)
        return cuda_refuse_dtype(args, args->in[3].dtype);
    if (n_rows == 0 || V == 0) return true;
    switch (logits->dtype) {
    case TL_F64:
        return cross_entropy_grad_launch<double>(args, n_rows, V);
    case TL_F32:
        return cross_entropy_grad_launch<float>(args, n_rows, V);
    case TL_BF16:
        return cross_entropy_grad_launch<bf16>(args, n_rows, V);
    case TL_F16:
        return cross_entropy_grad_launch<f16>(args, n_rows, V);
    default:
        return cuda_refuse_dtype(args, logits->dtype);
    }
}

} /* extern "C" */
