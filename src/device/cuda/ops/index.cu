/* index.cu: gather, scatter, advanced indexing.
 *
 * Elements move between a *table* (the tensor that is indexed) and *slots* (the elements fetched from it or written
 * to it). An index outside its axis is recorded as a fault (state.h) and its element skipped: readers write zeros,
 * writers nothing. Where many elements are fetched from a line, it goes through shared memory (fetch_in_lines; with the
 * same slots in all lines, fetch_same_in_lines); dense slots of short lines are fetched in packs (fetch_flat).
 *
 * Order. Two slots share a place in the table only if they agree in all axes without an index, the *rest*. Writers
 * are therefore split along the rest, and further by places: which of `n_parts` a slot belongs to depends on its
 * place alone. What is for one element of the rest and one part is done in row-major order:
 *   by thread   one thread, neighbouring elements of the rest beside it: rows that are moved as a whole, short lines
 *   by warp     32 slots at a time; those that share a place take turns
 *   by block    1024 at a time; of those that share a place the first goes first, then the next. Many slots for few
 *               elements of the rest. Sums of floats are kept in shared memory, if the lines of the table fit
 *               (add_in_lines), or, of rows, parts of strips of them (add_to_rows); of many short lines each warp has
 *               one (add_by_warps)
 *   by group    very many rows: they are grouped by place, in order, and a warp adds a group up (add_groups)
 *   by element  few slots: for each element of the table a thread looks for those that it gets (put_few); for each
 *               part of a row a warp (put_few_rows); in a table that stays, for each slot (add_few_in_place)
 * Which write is last, and the order of a sum, depend on nothing else. Sums of integers may have any order: they are
 * done with atomics.
 *
 * Sums of 16-bit and 8-bit floats grow in f32, in shared memory, in registers or in an f32 copy of the table, in the
 * workspace, and are rounded once.
 */
#include "device/cuda/ops/copy.cuh"
#include "device/cuda/shared/row_groups.cuh"
#include "device/cuda/shared/line_pack.cuh"
#include "device/cuda/shared/select.cuh"

static const int64_t NOWHERE = INT64_MIN; /* an offset that no table has */

/* ---- Readers -------------------------------------------------------------------------------------------- */

/* Where one index leads. */
struct axis_ids {
    const void *index;
    tl_dtype dtype;
    int64_t stride, size; /* of the table's axis */
    bool wraps;           /* negative ids count from the end */
    int fault_code;
    struct cuda_fault *fault;
};
__device__ inline int64_t place_of_id(const axis_ids &a, int64_t at) {
    const int64_t id = id_at(a.index, a.dtype, at);
    if (id < a.size && id >= (a.wraps ? -a.size : 0)) return (id < 0 ? id + a.size : id) * a.stride;
    fault_raise(a.fault, a.fault_code, id, a.size);
    return NOWHERE;
}

enum { FETCH_AHEAD = 4 };

/* Operands: out, table, and the one index or, of several, their offsets. T only gives the element size. */
template <class T, bool ONE>
__global__ void __launch_bounds__(BLOCK)
    fetch_any(geometry<3> g, T *out, const T *table, axis_ids ids, const int64_t *offset) {
    const int64_t step = (int64_t)gridDim.x * (BLOCK * FETCH_AHEAD);
    for (int64_t first = blockIdx.x * (int64_t)(BLOCK * FETCH_AHEAD) + threadIdx.x; first < g.numel; first += step) {
        int64_t at[FETCH_AHEAD][3], place[FETCH_AHEAD];
        T x[FETCH_AHEAD];
#pragma unroll
        for (int k = 0; k < FETCH_AHEAD; k++) {
            place[k] = NOWHERE;
            if (first + k * BLOCK >= g.numel) continue;
            offsets_of(g, first + k * BLOCK, at[k]);
            place[k] = ONE ? place_of_id(ids, at[k][2]) : offset[at[k][2]];
        }
#pragma unroll
        for (int k = 0; k < FETCH_AHEAD; k++) x[k] = place[k] == NOWHERE ? T(0) : table[at[k][1] + place[k]];
#pragma unroll
        for (int k = 0; k < FETCH_AHEAD; k++)
            if (first + k * BLOCK < g.numel) out[at[k][0]] = x[k];
    }
}

/* The line of a dense walk's element: axis 1 is along it. */
__device__ inline int64_t line_of(const geometry<3> &g, int64_t i) {
    if (g.numel > INT32_MAX) return i / g.size[1];
    return (__umulhi((uint32_t)i, g.magic[1]) + (uint32_t)i) >> g.shift[1];
}

/* Dense slots, beside each other in out and, line by line, in the index: a thread has `N` neighbours, which may lie in
 * several lines. COMMON: one line of ids for all. */
template <class T> struct flat {
    enum { N = sizeof(T) < 4 ? 8 : 4 };
};
template <class T, class I, bool COMMON>
__global__ void __launch_bounds__(BLOCK) fetch_flat(geometry<3> g, T *out, const T *table, axis_ids ids) {
    enum { N = flat<T>::N };
    const int64_t n = g.size[1], n_packs = (g.numel + N - 1) / N;
    FOR_EACH(i, n_packs) {
        const int64_t first = i * N, row = line_of(g, first), column = first - row * n;
        const int count = (int)min((int64_t)N, g.numel - first);
        const I *const index = (const I *)ids.index + (COMMON ? column : first);
        unit<I, N> id;
        if ((COMMON ? column + N <= n : count == N) && (uintptr_t)index % sizeof(uint4) == 0) {
            id = *(const unit<I, N> *)index;
        } else {
            int64_t at = 0;
#pragma unroll
            for (int k = 0; k < N; k++) {
                if (k < count) id.v[k] = index[at];
                at = COMMON && column + at + 1 == n ? -column : at + 1;
            }
        }
        unit<T, N> x;
        const T *line = table + row * g.stride[1][0];
        int64_t left = n - column; /* slots of this line */
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (k >= count) continue;
            if (left-- == 0) {
                line += g.stride[1][0];
                left = n - 1;
            }
            const int64_t in_line = id.v[k] < 0 && ids.wraps ? id.v[k] + ids.size : id.v[k];
            const bool is_good = in_line >= 0 && in_line < ids.size;
            if (!is_good) fault_raise(ids.fault, ids.fault_code, id.v[k], ids.size);
            x.v[k] = is_good ? line[in_line * ids.stride] : T(0);
        }
        if (count == N) {
            *(unit<T, N> *)(out + first) = x;
            continue;
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            if (k < count) out[first + k] = x.v[k];
    }
}

/* line = x, by n_threads, with X_AHEAD elements of each under way at once. */
template <class T, class C>
__device__ inline void line_begin(C *line, const T *x, int64_t step, int n, int thread, int n_threads) {
    enum { X_AHEAD = 8 };
    for (int i = thread; i < n; i += X_AHEAD * n_threads) {
        T v[X_AHEAD];
#pragma unroll
        for (int k = 0; k < X_AHEAD; k++)
            if (i + k * n_threads < n) v[k] = x[(i + k * n_threads) * step];
#pragma unroll
        for (int k = 0; k < X_AHEAD; k++)
            if (i + k * n_threads < n) line[i + k * n_threads] = value_of<C>(v[k]);
    }
}

/* A dense line, copied in packs of 16 bytes, AHEAD of each thread under way at once: where it begins in a room with
 * space for one more. */
template <int AHEAD, class T> __device__ inline const T *line_copy(uint4 *room, const T *x, int n) {
    enum { N = sizeof(uint4) / sizeof(T) };
    const int shift = (int)((uintptr_t)x % sizeof(uint4) / sizeof(T)), before = min(n, (N - shift) % N);
    const int n_packs = (n - before) / N, after = before + n_packs * N, thread = threadIdx.x, threads = blockDim.x;
    T *const line = (T *)room + shift;
    const uint4 *const from = (const uint4 *)(x + before);
    uint4 *const to = (uint4 *)(line + before);
    if (thread < before) line[thread] = x[thread];
    if (thread < n - after) line[after + thread] = x[after + thread];
    for (int i = thread; i < n_packs; i += AHEAD * threads) {
        uint4 pack[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) pack[k] = from[min(i + k * threads, n_packs - 1)];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (i + k * threads < n_packs) to[i + k * threads] = pack[k];
    }
    return line;
}

/* Dense lines of the table, from which many elements are fetched: a block copies one to shared memory, which has banks
 * for single elements where the caches read 32 bytes, and fetches a part of the slots from there. */
struct line_fetch {
    geometry<3> rest; /* out, table, index */
    void *out;
    const void *table;
    axis_ids ids;
    int64_t out_step, table_step, index_step; /* along the line; table_step is 1 */
    int64_t n, part;                          /* slots of a line, and of a block */
    int n_parts;
};
enum { LINE_FETCH_THREADS = 1024, IDS_AHEAD = 8 };

/* ALONE: a multiprocessor has one block, not three. */
template <class T, class I, bool ALONE>
__global__ void __launch_bounds__(ALONE ? LINE_FETCH_THREADS : LINE_FETCH_THREADS / 2, ALONE ? 1 : 3)
    fetch_in_lines(line_fetch w) {
    extern __shared__ uint4 fetch_room[];
    const int thread = threadIdx.x, threads = blockDim.x;
    for (int64_t i = blockIdx.x; i < w.rest.numel * w.n_parts; i += gridDim.x) {
        int64_t rest[3];
        offsets_of(w.rest, i / w.n_parts, rest);
        const int64_t first = i % w.n_parts * w.part;
        const int n = (int)min(w.part, w.n - first); /* not above 0 where parts are left over */
        T *const out = (T *)w.out + rest[0] + first * w.out_step;
        const I *const index = (const I *)w.ids.index + rest[2] + first * w.index_step;
        I id[IDS_AHEAD];
#pragma unroll
        for (int k = 0; k < IDS_AHEAD; k++)
            if (thread + k * threads < n) id[k] = index[(thread + k * threads) * w.index_step];
        const T *const line = line_copy<2>(fetch_room, (const T *)w.table + rest[1], (int)w.ids.size);
        __syncthreads();
        for (int j = thread; j < n; j += IDS_AHEAD * threads) {
            T x[IDS_AHEAD];
#pragma unroll
            for (int k = 0; k < IDS_AHEAD; k++) {
                if (j + k * threads >= n) continue;
                const int64_t in_line = id[k] < 0 && w.ids.wraps ? id[k] + w.ids.size : id[k];
                const bool is_good = in_line >= 0 && in_line < w.ids.size;
                if (!is_good) fault_raise(w.ids.fault, w.ids.fault_code, id[k], w.ids.size);
                x[k] = is_good ? line[(int)in_line] : T(0);
                const int next = j + (IDS_AHEAD + k) * threads;
                if (next < n) id[k] = index[next * w.index_step];
            }
#pragma unroll
            for (int k = 0; k < IDS_AHEAD; k++)
                if (j + k * threads < n) out[(j + k * threads) * w.out_step] = x[k];
        }
        __syncthreads();
    }
}

/* Where in a line an id leads; -1: outside. */
__device__ inline int place_in_line(const axis_ids &a, int64_t id) {
    const int64_t place = id < 0 && a.wraps ? id + a.size : id;
    if ((uint64_t)place < (uint64_t)a.size) return (int)place;
    fault_raise(a.fault, a.fault_code, id, a.size);
    return -1;
}

/* The same where all lines have the same slots, at most IDS_AHEAD for each thread, which keeps their places: a block
 * processes several lines. */
template <class T, class I>
__global__ void __launch_bounds__(LINE_FETCH_THREADS / 2, 3) fetch_same_in_lines(line_fetch w) {
    extern __shared__ uint4 fetch_room[];
    const int thread = threadIdx.x, threads = blockDim.x, n = (int)w.n;
    int place[IDS_AHEAD];
#pragma unroll
    for (int k = 0; k < IDS_AHEAD; k++)
        place[k] = thread + k * threads < n
                       ? place_in_line(w.ids, ((const I *)w.ids.index)[(thread + k * threads) * w.index_step])
                       : -1;
    for (int64_t i = blockIdx.x; i < w.rest.numel; i += gridDim.x) {
        int64_t rest[3];
        offsets_of(w.rest, i, rest);
        const T *const line = line_copy<4>(fetch_room, (const T *)w.table + rest[1], (int)w.ids.size);
        __syncthreads();
        T x[IDS_AHEAD], *to = (T *)w.out + rest[0] + thread * w.out_step;
#pragma unroll
        for (int k = 0; k < IDS_AHEAD; k++) x[k] = place[k] < 0 ? T(0) : line[place[k]];
#pragma unroll
        for (int k = 0; k < IDS_AHEAD; k++, to += threads * w.out_step)
            if (thread + k * threads < n) *to = x[k];
        __syncthreads();
    }
}

#define BY_BYTES(dtype, CALL)     \
    switch (dtype_bytes(dtype)) { \
    case 8:                       \
        CALL(uint64_t);           \
        break;                    \
    case 4:                       \
        CALL(uint32_t);           \
        break;                    \
    case 2:                       \
        CALL(uint16_t);           \
        break;                    \
    default:                      \
        CALL(uint8_t);            \
        break;                    \
    }

/* Several operands walked together along some axes, with the strides of each. */
template <int N> static geometry<N> walk_of(int rank, const int64_t *shape, const int64_t (&stride)[N][TL_MAX_RANK]) {
    tl_operand each[N] = {};
    const tl_operand *list[N];
    for (int k = 0; k < N; k++) {
        each[k].rank = rank;
        each[k].shape = shape;
        each[k].stride = stride[k];
        list[k] = &each[k];
    }
    return geometry_of<N>(list);
}

/* Lines worth copying: so many elements in all, slots of a line and bytes of it; a slot alone reads SECTOR bytes. Of
 * dense slots the caches do as well with FLAT_BYTES. */
enum { FETCH_LEAST = 1 << 18, FETCH_SLOTS = 256, FETCH_LEAST_BYTES = 1 << 10, FETCH_BYTES = 216 << 10, SECTOR = 32 };
enum {
    FETCH_BLOCKS = 528 /* four for each multiprocessor */,
    FLAT_BYTES = 2 << 10,
    MOST_SLOTS = 1 << 30 /* of a block */
};

template <class T, class I, bool ALONE>
static bool fetch_in_lines_launch(const tl_kernel_args *args, const line_fetch &w, size_t bytes) {
    if (!shared_memory_try(fetch_in_lines<T, I, ALONE>, bytes)) return false;
    const int64_t wanted = (w.part + IDS_AHEAD - 1) / IDS_AHEAD;
    const int most = ALONE ? LINE_FETCH_THREADS : LINE_FETCH_THREADS / 2;
    const int64_t rounds = (wanted + most - 1) / most; /* in the last, too, most threads shall have slots */
    const int threads = (int)(((wanted + rounds - 1) / rounds + 31) / 32 * 32);
    fetch_in_lines<T, I, ALONE><<<capped(w.rest.numel * w.n_parts), threads, bytes, stream_of(args)>>>(w);
    return true;
}

/* Whether all lines have the same slots, few enough for fetch_same_in_lines. */
static bool has_same_slots(const line_fetch &w) {
    for (int axis = 0; axis < w.rest.rank; axis++)
        if (w.rest.stride[2][axis] != 0) return false;
    return w.n_parts == 1 && w.n <= IDS_AHEAD * LINE_FETCH_THREADS / 2;
}

/* Blocks with the same number of lines, as far as possible, as many as multiprocessors have room for; of few lines each
 * has a block of more threads. */
template <class T, class I>
static bool fetch_same_launch(const tl_kernel_args *args, const line_fetch &w, size_t bytes) {
    if (!shared_memory_try(fetch_same_in_lines<T, I>, bytes)) return false;
    const int most = LINE_FETCH_THREADS / 2, each = w.rest.numel <= FETCH_BLOCKS ? IDS_AHEAD / 2 : (int)IDS_AHEAD;
    const int64_t wanted = (w.n + each - 1) / each, n_lines = w.rest.numel;
    const int threads = wanted < most ? (int)((wanted + 31) / 32 * 32) : most;
    const int64_t by_threads = 3 * most / threads, by_bytes = (int64_t)(FETCH_BYTES / bytes);
    const int64_t fit = FETCH_BLOCKS / 4 * (by_bytes < 1 ? 1 : by_bytes < by_threads ? by_bytes : by_threads);
    const int64_t lines_each = (n_lines + fit - 1) / fit, blocks = (n_lines + lines_each - 1) / lines_each;
    fetch_same_in_lines<T, I><<<capped(blocks), threads, bytes, stream_of(args)>>>(w);
    return true;
}

template <class T, class I> static bool fetch_in_lines_of(const tl_kernel_args *args, const line_fetch &w) {
    const size_t bytes = (size_t)w.ids.size * sizeof(T) + sizeof(uint4);
    const bool is_alone = bytes > 100 << 10 || w.rest.numel * w.n_parts <= FETCH_BLOCKS / 4;
    if (has_same_slots(w)) return fetch_same_launch<T, I>(args, w, bytes);
    return is_alone ? fetch_in_lines_launch<T, I, true>(args, w, bytes)
                    : fetch_in_lines_launch<T, I, false>(args, w, bytes);
}

/* True: all is done. False: short or long lines, few slots of a line or in all, or too little shared memory. */
template <class T> static bool try_fetch_in_lines(const tl_kernel_args *args, line_fetch w) {
    const int64_t bytes = w.ids.size * (int64_t)sizeof(T), n_lines = w.rest.numel;
    if (w.table_step != 1 || w.ids.size > FETCH_BYTES || bytes > FETCH_BYTES || bytes < FETCH_LEAST_BYTES) return false;
    if (w.n < FETCH_SLOTS || w.n < bytes / SECTOR || n_lines < FETCH_LEAST / w.n) return false;
    w.n_parts = 1;
    while (n_lines * w.n_parts < FETCH_BLOCKS && w.n / (2 * w.n_parts) >= w.ids.size / 2) w.n_parts *= 2;
    while (n_lines * w.n_parts <= FETCH_BLOCKS / 8 && w.n / (2 * w.n_parts) >= w.ids.size / 8) w.n_parts *= 2;
    w.part = (w.n + w.n_parts - 1) / w.n_parts;
    if (w.part > MOST_SLOTS) return false;
    return w.ids.dtype == TL_I64 ? fetch_in_lines_of<T, int64_t>(args, w) : fetch_in_lines_of<T, int32_t>(args, w);
}

/* Whether a walk is one of dense slots with one index, along axis 1, and the same for all lines or as dense. */
template <class T> static bool is_flat(const geometry<3> &g, const T *out) {
    if (g.rank != 2 || g.stride[1][1] != 0 || (uintptr_t)out % alignof(unit<T, flat<T>::N>) != 0) return false;
    if (g.stride[0][1] != 1 || g.stride[0][0] != g.size[1] || g.stride[2][1] != 1) return false;
    return g.stride[2][0] == 0 || g.stride[2][0] == g.size[1];
}

template <class T, class I>
static void fetch_flat_launch(const tl_kernel_args *args, const geometry<3> &g, const axis_ids &ids) {
    T *const out = (T *)args->out[0].data;
    const T *const table = (const T *)args->in[0].data;
    const unsigned blocks = blocks_for((g.numel + flat<T>::N - 1) / flat<T>::N);
    if (g.stride[2][0] == 0) fetch_flat<T, I, true><<<blocks, BLOCK, 0, stream_of(args)>>>(g, out, table, ids);
    else fetch_flat<T, I, false><<<blocks, BLOCK, 0, stream_of(args)>>>(g, out, table, ids);
}

/* lines: or NULL. */
template <class T>
static void fetch_launch(const tl_kernel_args *args, const geometry<3> &g, const axis_ids &ids, const int64_t *offset,
                         const line_fetch *lines) {
    T *const out = (T *)args->out[0].data;
    const T *const table = (const T *)args->in[0].data;
    const unsigned blocks = blocks_for(g.numel, BLOCK * FETCH_AHEAD);
    const bool dense = !offset && is_flat(g, out), short_lines = ids.size * (int64_t)sizeof(T) < FLAT_BYTES;
    if (lines && !(dense && short_lines) && try_fetch_in_lines<T>(args, *lines)) return;
    if (dense && ids.dtype == TL_I64) return fetch_flat_launch<T, int64_t>(args, g, ids);
    if (dense) return fetch_flat_launch<T, int32_t>(args, g, ids);
    if (offset) fetch_any<T, false><<<blocks, BLOCK, 0, stream_of(args)>>>(g, out, table, ids, offset);
    else fetch_any<T, true><<<blocks, BLOCK, 0, stream_of(args)>>>(g, out, table, ids, offset);
}

extern "C" bool cuda_gather(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *index = &args->in[1], *out = &args->out[0];
    const int axis = ((const struct attr_gather *)args->attr)->axis;
    if (!operands_known(args) || !ids_known(args, index)) return false;
    if (operand_numel(index) == 0) return true;
    int64_t shape[TL_MAX_RANK], all[3][TL_MAX_RANK], rest[3][TL_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        const int64_t stride[3] = {out->stride[i], i == axis ? 0 : x->stride[i], index->stride[i]};
        for (int k = 0; k < 3; k++) all[k][i] = rest[k][rank] = stride[k];
        shape[rank] = index->shape[i];
        rank += i != axis;
    }
    const axis_ids ids = {index->data, index->dtype, x->stride[axis], x->shape[axis],
                          false,       FAULT_GATHER, fault_of(args)};
    const line_fetch lines = {
        walk_of<3>(rank, shape, rest), out->data,          x->data, ids, out->stride[axis], x->stride[axis],
        index->stride[axis],           index->shape[axis], 0,       0};
    const geometry<3> g = walk_of<3>(x->rank, index->shape, all);
#define GATHER(T) fetch_launch<T>(args, g, ids, nullptr, &lines)
    BY_BYTES(x->dtype, GATHER)
#undef GATHER
    return true;
}

/* ---- Writers -------------------------------------------------------------------------------------------- */

struct writing {
    void *table;
    const void *slots, *index;
    tl_dtype table_dtype, slots_dtype, index_dtype;
    int element_bytes;
    geometry<3> rest; /* table, slots, index: over the axes without an index */
    int64_t n;        /* slots for each element of the rest */
    int n_parts;      /* a power of two */
    bool is_scatter;
    int64_t table_step, slots_step, index_step, size; /* scatter: along the axis */
    const int64_t *offset;                            /* index_put: in the table, for each of n; or NULL, */
    axis_ids ids;                                     /* and the one index of rows */
    geometry<1> index_at;
    geometry<1> slots_at; /* and in the slots */
    struct cuda_fault *fault;
};

__device__ inline int64_t place_of(const writing &w, const int64_t (&rest)[3], int64_t j) {
    if (!w.is_scatter) return w.offset[j] == NOWHERE ? NOWHERE : rest[0] + w.offset[j];
    const int64_t id = id_at(w.index, w.index_dtype, rest[2] + j * w.index_step);
    if (id >= 0 && id < w.size) return rest[0] + id * w.table_step;
    fault_raise(w.fault, FAULT_SCATTER, id, w.size);
    return NOWHERE;
}

__device__ inline int64_t slot_of(const writing &w, const int64_t (&rest)[3], int64_t j) {
    if (w.is_scatter) return rest[1] + j * w.slots_step;
    int64_t at[1];
    offsets_of(w.slots_at, j, at);
    return rest[1] + at[0];
}

/* Ways to write one slot. Slots that are put have the table's dtype. */
struct way_put {
    static const bool adds = false;
    __device__ void operator()(const writing &w, int64_t place, int64_t slot) const {
        switch (w.element_bytes) {
        case 8:
            ((uint64_t *)w.table)[place] = ((const uint64_t *)w.slots)[slot];
            break;
        case 4:
            ((uint32_t *)w.table)[place] = ((const uint32_t *)w.slots)[slot];
            break;
        case 2:
            ((uint16_t *)w.table)[place] = ((const uint16_t *)w.slots)[slot];
            break;
        default:
            ((uint8_t *)w.table)[place] = ((const uint8_t *)w.slots)[slot];
            break;
        }
    }
};
template <class C> struct way_add {
    static const bool adds = true;
    __device__ void operator()(const writing &w, int64_t place, int64_t slot) const {
        const C sum = load_as<C>(w.table, place, w.table_dtype) + load_as<C>(w.slots, slot, w.slots_dtype);
        store_as<C>(w.table, place, w.table_dtype, sum);
    }
};

/* A number that depends on a place in a line of the table, in [0, n) for a power of two. */
__device__ inline unsigned scattered(int64_t place, unsigned n) {
    const unsigned mixed = (unsigned)(((uint64_t)place * 0x9E3779B97F4A7C15ull) >> 32);
    return mixed & (n - 1);
}

/* grid.y: the part. */
template <class W> __global__ void __launch_bounds__(BLOCK) write_by_thread(writing w, W way) {
    FOR_EACH(i, w.rest.numel) {
        int64_t rest[3];
        offsets_of(w.rest, i, rest);
        for (int64_t j = 0; j < w.n; j++) {
            const int64_t place = place_of(w, rest, j);
            if (place == NOWHERE || scattered(place - rest[0], w.n_parts) != blockIdx.y) continue;
            way(w, place, slot_of(w, rest, j));
        }
    }
}

__device__ inline int64_t row_place(const writing &w, int64_t j) {
    int64_t at[1];
    offsets_of(w.index_at, j, at);
    return place_of_id(w.ids, at[0]);
}

/* The same where all elements of the rest have the same places: a warp looks at 32 of them at a time. Of places that
 * are known, four times as many are asked for at once: a warp waits for memory that often. */
enum { ROWS_AHEAD = 4 };
template <class W> __global__ void __launch_bounds__(BLOCK) write_rows(writing w, W way) {
    const int64_t n_threads = (w.rest.numel + 31) / 32 * 32;
    FOR_EACH(i, n_threads) {
        int64_t rest[3] = {0, 0, 0};
        if (i < w.rest.numel) offsets_of(w.rest, i, rest);
        for (int64_t base = 0; base < w.n; base += 32 * ROWS_AHEAD) {
            const int64_t first = base + threadIdx.x % 32;
            int64_t own[ROWS_AHEAD];
            if (w.offset) {
#pragma unroll
                for (int k = 0; k < ROWS_AHEAD; k++) own[k] = first + 32 * k < w.n ? w.offset[first + 32 * k] : NOWHERE;
            } else {
#pragma unroll
                for (int k = 0; k < ROWS_AHEAD; k++)
                    own[k] = first + 32 * k < w.n ? row_place(w, first + 32 * k) : NOWHERE;
            }
#pragma unroll
            for (int k = 0; k < ROWS_AHEAD; k++) {
                const bool is_mine = own[k] != NOWHERE && scattered(own[k], w.n_parts) == blockIdx.y;
                for (unsigned found = __ballot_sync(0xFFFFFFFFu, is_mine); found; found &= found - 1) {
                    const int lane = __ffs((int)found) - 1;
                    const int64_t place = __shfl_sync(0xFFFFFFFFu, own[k], lane);
                    if (i < w.rest.numel) way(w, rest[0] + place, slot_of(w, rest, base + 32 * k + lane));
                }
            }
        }
    }
}

/* The largest of a warp; there is an instruction for it from compute capability 8.0 on. */
static __device__ unsigned warp_max(unsigned x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xFFFFFFFFu, x);
#else
    return warp_reduce(x, max_of());
#endif
}

template <class W> __global__ void __launch_bounds__(BLOCK) write_by_warp(writing w, W way) {
    const int lane = threadIdx.x % 32;
    const int64_t first = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32,
                  step = (int64_t)gridDim.x * (BLOCK / 32);
    for (int64_t i = first; i < w.rest.numel; i += step) {
        int64_t rest[3];
        offsets_of(w.rest, i, rest);
        for (int64_t base = 0; base < w.n; base += 32) {
            const int64_t j = base + lane, place = j < w.n ? place_of(w, rest, j) : NOWHERE;
            const unsigned meets = __match_any_sync(0xFFFFFFFFu, (unsigned long long)place);
            const bool is_good = place != NOWHERE;
            if (W::adds) {
                const int turn = __popc(meets & ((1u << lane) - 1));
                const int turns = (int)warp_max(is_good ? (unsigned)__popc(meets) : 0u);
                for (int t = 0; t < turns; t++) {
                    if (is_good && turn == t) way(w, place, slot_of(w, rest, j));
                    __syncwarp();
                }
            } else {
                if (is_good && 31 - __clz((int)meets) == lane) way(w, place, slot_of(w, rest, j));
                __syncwarp();
            }
        }
    }
}

/* Up to 32 slots of 16 bits, one for each lane of a warp, without an f32 copy of the table: the first lane of those
 * that share a place adds them to it in order. */
template <class T> __global__ void __launch_bounds__(BLOCK) add_short_lines(writing w) {
    const int lane = threadIdx.x % 32;
    const int64_t first = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32,
                  step = (int64_t)gridDim.x * (BLOCK / 32);
    for (int64_t i = first; i < w.rest.numel; i += step) {
        int64_t rest[3];
        offsets_of(w.rest, i, rest);
        const int64_t place = lane < w.n ? place_of(w, rest, lane) : NOWHERE;
        const unsigned meets = __match_any_sync(0xFFFFFFFFu, (unsigned long long)place);
        const bool is_first = place != NOWHERE && __ffs((int)meets) - 1 == lane;
        const float value = place != NOWHERE ? value_of<float>(((const T *)w.slots)[slot_of(w, rest, lane)]) : 0.0f;
        float sum = is_first ? value_of<float>(((const T *)w.table)[place]) : 0.0f;
        for (int k = 0; k < w.n; k++) {
            const float other = __shfl_sync(0xFFFFFFFFu, value, k);
            if (meets >> k & 1) sum += other;
        }
        if (is_first) ((T *)w.table)[place] = conversion<T>::from(sum);
    }
}

enum { WRITE_BLOCK = 1024, OWNERS = 4096 };

/* Slots of a tile that may share a place (their hashes are equal) are written in rounds, the first of them in each. */
template <class W> __global__ void __launch_bounds__(WRITE_BLOCK) write_by_block(writing w, W way) {
    __shared__ int owner[OWNERS];
    for (int i = threadIdx.x; i < OWNERS; i += blockDim.x) owner[i] = INT32_MAX;
    __syncthreads();
    for (int64_t i = blockIdx.x; i < w.rest.numel; i += gridDim.x) {
        int64_t rest[3];
        offsets_of(w.rest, i, rest);
        for (int64_t base = 0; base < w.n; base += blockDim.x) {
            const int64_t j = base + threadIdx.x, place = j < w.n ? place_of(w, rest, j) : NOWHERE;
            const int64_t in_line = place != NOWHERE ? place - rest[0] : 0;
            bool waits = place != NOWHERE && scattered(in_line, w.n_parts) == blockIdx.y;
            int *const own = &owner[scattered(in_line >> 8 ^ in_line * 31, OWNERS)];
            while (__syncthreads_or(waits)) {
                if (waits) atomicMin(own, (int)threadIdx.x);
                __syncthreads();
                const bool is_first = waits && *own == (int)threadIdx.x;
                if (is_first) way(w, place, slot_of(w, rest, j));
                __syncthreads();
                if (is_first) *own = INT32_MAX;
                waits = waits && !is_first;
            }
        }
    }
}

/* Sums of floats, in shared memory: x is read, and the result written, once. A block has a part of a line's places. It
 * looks at all slots of the line, a tile of some for each thread at a time, and those in its part are added in rounds:
 * of slots with the same owner cell, and those that share a place have the same, the first goes first. A cell holds the
 * number of the round, counted down, above the slot's number in the tile, so that a cell is hardly ever emptied. */
struct line_sums {
    geometry<4> rest; /* out, x, index, source */
    void *out;
    const void *x, *index, *source;
    tl_dtype index_dtype;
    int64_t out_step, x_step, index_step, source_step; /* along the line */
    int64_t size, n;                                   /* places, slots */
    bool wraps;                                        /* negative ids count from the end */
    int fault_code;
    struct cuda_fault *fault;
    int64_t part;                  /* places of a block */
    int n_parts, cell_bits, depth; /* depth: of a thread's list */
};
/* Two ways: slots stay in registers until their tile has been added; or a thread lists its own (own_list). */
enum { LINE_THREADS = 512, LINE_EACH = 4, LIST_EACH = 16, LIST_AHEAD = 4 };
enum { PART_BYTES = 80 << 10, SLOT_BITS = 17, FIRST_ROUND = (1 << (31 - SLOT_BITS)) - 1, PLACE_BITS = 32 - SLOT_BITS };
static_assert(2 * LIST_EACH * LINE_THREADS <= 1 << SLOT_BITS, "the number of a slot since the lists were empty");
static_assert(PART_BYTES / sizeof(float) <= 1 << PLACE_BITS, "a place in a part");

/* A cell for each place, or, of more places, one by hash. */
__device__ inline int cell_of(int place, const line_sums &w) {
    return w.part <= 1 << w.cell_bits ? place : (int)((uint32_t)place * 0x9E3779B1u >> (32 - w.cell_bits));
}

/* What a slot writes into its cell: the smallest goes first. */
__device__ inline int turn_of(int round, int number) { return round << SLOT_BITS | number; }

/* The number of a thread's slot `e` in its tile. */
__device__ inline int in_tile(int e) { return e * (int)blockDim.x + (int)threadIdx.x; }

/* `round`: the same in all threads; 0 before the first. */
__device__ inline void round_begin(const line_sums &w, int *cell, int &round) {
    if (round-- > 0) return;
    __syncthreads();
    for (int k = threadIdx.x; k < 1 << w.cell_bits; k += blockDim.x) cell[k] = INT32_MAX;
    __syncthreads();
    round = FIRST_ROUND;
}

/* EACH slots of a line from `base` on, as they are in memory. */
template <class T, class I, int EACH> struct line_slots {
    I id[EACH];
    T value[EACH];
    /* How many the line has from there on. */
    static __device__ int count(const line_sums &w, int64_t base) {
        return (int)min(w.n - base, (int64_t)1 << SLOT_BITS);
    }
    template <class X>
    static __device__ void fetch(X (&x)[EACH], const X *line, int64_t step, const line_sums &w, int64_t base) {
        const int n = count(w, base);
        const X *from = line + (base + threadIdx.x) * step;
#pragma unroll
        for (int e = 0; e < EACH; e++, from += blockDim.x * step)
            if (in_tile(e) < n) x[e] = *from;
    }
    __device__ void fetch_ids(const line_sums &w, const int64_t (&rest)[4], int64_t base) {
        fetch(id, (const I *)w.index + rest[2], w.index_step, w, base);
    }
    __device__ void fetch_values(const line_sums &w, const int64_t (&rest)[4], int64_t base) {
        fetch(value, (const T *)w.source + rest[3], w.source_step, w, base);
    }
    /* Their places in the part that begins at `first`, and which of them have one: bit e of the result. The first part
     * looks for those that have none anywhere. */
    __device__ unsigned places(const line_sums &w, int64_t base, int64_t first, int64_t size,
                               int (&place)[EACH]) const {
        const int n = count(w, base);
        unsigned waits = 0;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (in_tile(e) >= n) continue;
            const uint64_t in_line = (uint64_t)(id[e] < 0 && w.wraps ? id[e] + w.size : id[e]);
            const uint64_t in_part = in_line - (uint64_t)first;
            place[e] = (int)in_part;
            if (in_part < (uint64_t)size) waits |= 1u << e;
            else if (first == 0 && in_line >= (uint64_t)w.size) fault_raise(w.fault, w.fault_code, id[e], w.size);
        }
        return waits;
    }
};

/* A tile's slots, added in rounds. */
template <class T, class C, int EACH>
__device__ inline void line_add(const line_sums &w, C *line, int *cell, int &round, unsigned waits,
                                const int (&place)[EACH], const T (&value)[EACH]) {
    do {
        round_begin(w, cell, round);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (waits >> e & 1) atomicMin(cell + cell_of(place[e], w), turn_of(round, in_tile(e)));
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if ((waits >> e & 1) && cell[cell_of(place[e], w)] == turn_of(round, in_tile(e))) {
                line[place[e]] += value_of<C>(value[e]);
                waits &= ~(1u << e);
            }
    } while (__syncthreads_or(waits != 0));
}

/* The slots of a line for a block with the places from `first` on. What they are is asked for when the slots before
 * them have not been added yet, so that nobody waits for memory. */
template <class T, class I, class C>
__device__ inline void line_add_slots(const line_sums &w, const int64_t (&rest)[4], int64_t first, int64_t size,
                                      C *line, int *cell, int &round) {
    line_slots<T, I, LINE_EACH> next;
    next.fetch_ids(w, rest, 0);
    next.fetch_values(w, rest, 0);
    line_begin(line, (const T *)w.x + rest[1] + first * w.x_step, w.x_step, (int)size, threadIdx.x, blockDim.x);
    for (int64_t base = 0; base < w.n; base += LINE_EACH * blockDim.x) {
        const line_slots<T, I, LINE_EACH> slots = next;
        int place[LINE_EACH];
        const unsigned waits = slots.places(w, base, first, size, place);
        next.fetch_ids(w, rest, base + LINE_EACH * blockDim.x);
        next.fetch_values(w, rest, base + LINE_EACH * blockDim.x);
        line_add(w, line, cell, round, waits, place, slots.value);
    }
}

/* The block's own slots that a thread has found, in a column of shared memory: their numbers since the lists were empty
 * above their places in the part. */
template <class T> struct own_list {
    uint32_t *slot;
    T *value;
    int n;

    static __device__ int place_in(uint32_t x) { return (int)(x & ((1u << PLACE_BITS) - 1)); }
    static __device__ int number_of(uint32_t x) { return (int)(x >> PLACE_BITS); }
    __device__ void put(int number, int place) {
        slot[in_tile(n++)] = (uint32_t)number << PLACE_BITS | (uint32_t)place;
    }

    /* source: of the slot with the number 0. */
    __device__ void fetch_values(const T *source, int64_t step) {
        for (int k = 0; k < n; k += LIST_AHEAD) {
            T x[LIST_AHEAD];
#pragma unroll
            for (int a = 0; a < LIST_AHEAD; a++)
                if (k + a < n) x[a] = source[number_of(slot[in_tile(k + a)]) * step];
#pragma unroll
            for (int a = 0; a < LIST_AHEAD; a++)
                if (k + a < n) value[in_tile(k + a)] = x[a];
        }
    }
    /* Adds those whose turn it is. Others move to the front: nothing is overwritten that has not been read. */
    template <class C> __device__ void add(const line_sums &w, C *line, const int *cell, int round) {
        int left = 0;
        for (int k = 0; k < n; k += LIST_AHEAD) {
            uint32_t own[LIST_AHEAD];
            T x[LIST_AHEAD];
            C sum[LIST_AHEAD];
            bool is_first[LIST_AHEAD];
#pragma unroll
            for (int a = 0; a < LIST_AHEAD; a++) {
                own[a] = slot[in_tile(min(k + a, n - 1))];
                x[a] = value[in_tile(min(k + a, n - 1))];
            }
#pragma unroll
            for (int a = 0; a < LIST_AHEAD; a++)
                is_first[a] = cell[cell_of(place_in(own[a]), w)] == turn_of(round, number_of(own[a])) && k + a < n;
#pragma unroll
            for (int a = 0; a < LIST_AHEAD; a++)
                if (is_first[a]) sum[a] = line[place_in(own[a])] + value_of<C>(x[a]);
#pragma unroll
            for (int a = 0; a < LIST_AHEAD; a++) {
                if (is_first[a]) line[place_in(own[a])] = sum[a];
                if (is_first[a] || k + a >= n) continue;
                slot[in_tile(left)] = own[a];
                value[in_tile(left++)] = x[a];
            }
        }
        n = left;
    }
    template <class C> __device__ void add_all(const line_sums &w, C *line, int *cell, int &round) {
        bool is_new = true; /* in later rounds, most of many for one place see that it is not their turn */
        do {
            round_begin(w, cell, round);
#pragma unroll 4
            for (int k = 0; k < n; k++) {
                const uint32_t own = slot[in_tile(k)];
                int *const to = cell + cell_of(place_in(own), w), turn = turn_of(round, number_of(own));
                if (is_new || *(volatile int *)to > turn) atomicMin(to, turn);
            }
            is_new = false;
            __syncthreads();
            add(w, line, cell, round);
        } while (__syncthreads_or(n > 0));
    }
};

/* The same where few of them are the block's, or tiles would need many rounds: no other values are read, and rounds are
 * for what is listed, which is added when a list may not have room for another tile. */
template <class T, class I, class C>
__device__ inline void line_add_own(const line_sums &w, const int64_t (&rest)[4], int64_t first, int64_t size, C *line,
                                    int *cell, int &round) {
    const int tile = LIST_EACH * (int)blockDim.x;
    uint32_t *const room = (uint32_t *)(cell + ((size_t)1 << w.cell_bits));
    own_list<T> own = {room, (T *)(room + w.depth * blockDim.x), 0};
    line_slots<T, I, LIST_EACH> next;
    next.fetch_ids(w, rest, 0);
    line_begin(line, (const T *)w.x + rest[1] + first * w.x_step, w.x_step, (int)size, threadIdx.x, blockDim.x);
    int64_t begin = 0; /* the slot with the number 0 */
    for (int64_t base = 0; base < w.n; base += tile) {
        const line_slots<T, I, LIST_EACH> slots = next;
        int place[LIST_EACH];
        next.fetch_ids(w, rest, base + tile);
        const unsigned found = slots.places(w, base, first, size, place);
#pragma unroll
        for (int e = 0; e < LIST_EACH; e++)
            if (found >> e & 1) own.put((int)(base - begin) + in_tile(e), place[e]);
        const bool is_last = base + tile >= w.n || base + 2 * tile - begin > 1 << SLOT_BITS;
        if (!__syncthreads_or(is_last || own.n > w.depth - LIST_EACH)) continue;
        own.fetch_values((const T *)w.source + rest[3] + begin * w.source_step, w.source_step);
        own.add_all(w, line, cell, round);
        begin = base + tile;
    }
}

template <class T, class I, bool LISTS>
__global__ void __launch_bounds__(LINE_THREADS, LISTS ? 1 : 2) add_in_lines(line_sums w) {
    typedef typename compute_type<T>::type C;
    extern __shared__ double line_room[];
    C *const line = (C *)line_room;
    int *const cell = (int *)(line + w.part);
    int round = 0;
    for (int64_t i = blockIdx.x; i < w.rest.numel * w.n_parts; i += gridDim.x) {
        int64_t rest[4];
        offsets_of(w.rest, i / w.n_parts, rest);
        const int64_t first = i % w.n_parts * w.part, size = max(min(w.part, w.size - first), (int64_t)0);
        if constexpr (LISTS) line_add_own<T, I>(w, rest, first, size, line, cell, round);
        else line_add_slots<T, I>(w, rest, first, size, line, cell, round);
#pragma unroll 4
        for (int64_t k = threadIdx.x; k < size; k += blockDim.x)
            ((T *)w.out)[rest[0] + (first + k) * w.out_step] = conversion<T>::from(line[k]);
        __syncthreads();
    }
}

/* The same of rows: lines side by side, with the same slots. A block has a part of the places of up to STRIP lines, and
 * a warp has every so many of these places, each lane the same lines of all. Of a tile of slots the block lists those
 * for its part, in order; from the list each warp collects those for its places, and adds them with own_ahead rows of
 * the source under way at once. */
enum { ROW_THREADS = 1024, ROW_EACH = 8, STRIP_EACH = 2, STRIP = 32 * STRIP_EACH, MOST_ROW_BLOCKS = 1 << 12 };
template <class T> struct own_ahead {
    enum { N = sizeof(T) > 4 ? 4 : 8 };
};

/* Where the n_own lines of a lane, of which `first` is the first, are in an operand. */
__device__ inline void strip_offsets(const geometry<4> &rest, int operand, int64_t first, int n_own,
                                     int64_t (&at)[STRIP_EACH]) {
#pragma unroll
    for (int c = 0; c < STRIP_EACH; c++) {
        if (c >= n_own) continue;
        int64_t of_all[4];
        offsets_of(rest, first + 32 * c, of_all);
        at[c] = of_all[operand];
    }
}

/* put(k, c, x) of line c of n rows, in order; row k is at from + offset_of(k). */
template <class T, class OFFSET, class PUT>
__device__ inline void strip_read(const T *from, const int64_t (&at)[STRIP_EACH], int n_own, int n,
                                  const OFFSET &offset_of, const PUT &put) {
    enum { AHEAD = own_ahead<T>::N };
    for (int k = 0; k < n; k += AHEAD) {
        T x[AHEAD][STRIP_EACH];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (k + a >= n) continue;
            const T *const row = from + offset_of(k + a);
#pragma unroll
            for (int c = 0; c < STRIP_EACH; c++)
                if (c < n_own) x[a][c] = row[at[c]];
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
#pragma unroll
            for (int c = 0; c < STRIP_EACH; c++)
                if (k + a < n && c < n_own) put(k + a, c, x[a][c]);
    }
}

/* What all warps of a block know about a tile of slots. */
struct row_tile {
    int64_t scan_room[32];
    int start[ROW_EACH * ROW_THREADS / 32]; /* of 32 neighbours: where in the list theirs begin */
    uint32_t queue[ROW_THREADS / 32][2 * 32];
};

/* Lists the slots that go to a part, in order, as own_list has them. Returns how many. */
template <class T, class I>
__device__ inline int list_own(const line_sums &w, const line_slots<T, I, ROW_EACH> &slots, int64_t base, int64_t first,
                               int size, row_tile &tile, uint32_t *list) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32, thread = threadIdx.x;
    int place[ROW_EACH];
    const unsigned found = slots.places(w, base, first, size, place);
#pragma unroll
    for (int e = 0; e < ROW_EACH; e++) {
        const unsigned bits = __ballot_sync(0xFFFFFFFFu, found >> e & 1);
        if (lane == 0) tile.start[e * n_warps + warp] = __popc(bits);
    }
    __syncthreads();
    const bool has_count = thread < ROW_EACH * n_warps;
    const int64_t count = has_count ? tile.start[thread] : 0;
    int64_t all;
    const int64_t until = block_scan(count, sum_of(), tile.scan_room, &all);
    if (has_count) tile.start[thread] = (int)(until - count);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < ROW_EACH; e++) {
        const bool is_own = found >> e & 1;
        const unsigned before = __ballot_sync(0xFFFFFFFFu, is_own) & ((1u << lane) - 1);
        if (is_own)
            list[tile.start[e * n_warps + warp] + __popc(before)] = (uint32_t)in_tile(e) << PLACE_BITS | place[e];
    }
    __syncthreads();
    return (int)all;
}

/* add(slots, how many) of those of a list whose places are this warp's, in order, at least 32 at a time but for the
 * last. */
template <class F> __device__ inline void own_each(const uint32_t *list, int n_listed, uint32_t *queue, const F &add) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32; /* a power of two */
    int n = 0;
    for (int i = 0; i < n_listed; i += 32) {
        const uint32_t slot = i + lane < n_listed ? list[i + lane] : 0;
        const bool is_mine = i + lane < n_listed && (slot & (n_warps - 1)) == warp;
        const unsigned bits = __ballot_sync(0xFFFFFFFFu, is_mine);
        if (is_mine) queue[n + __popc(bits & ((1u << lane) - 1))] = slot;
        n += __popc(bits);
        if (n < 32 && i + 32 < n_listed) continue;
        __syncwarp();
        add(queue, n);
        __syncwarp(); /* all have read before the next are put there */
        n = 0;
    }
}

template <class T, class I> __global__ void __launch_bounds__(ROW_THREADS) add_to_rows(line_sums w, int width) {
    typedef typename compute_type<T>::type C;
    typedef own_list<T> own;
    extern __shared__ double line_room[];
    __shared__ row_tile tile;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    const int64_t strip = blockIdx.x / w.n_parts * (int64_t)width, first = blockIdx.x % w.n_parts * w.part;
    const int size = (int)min(w.part, w.size - first), n_lines = (int)min((int64_t)width, w.rest.numel - strip);
    const int n_own = (n_lines - lane + 31) / 32, n_rows = (size - warp + n_warps - 1) / n_warps;
    const int64_t no_rest[4] = {0, 0, 0, 0};
    C *const sum = (C *)line_room + lane;
    uint32_t *const list = (uint32_t *)((C *)line_room + w.part * width);
    int64_t at[STRIP_EACH];
    line_slots<T, I, ROW_EACH> slots;
    slots.fetch_ids(w, no_rest, 0);
    strip_offsets(w.rest, 1, strip + lane, n_own, at);
    strip_read((const T *)w.x + first * w.x_step, at, n_own, n_rows,
               [&](int k) { return (warp + k * n_warps) * w.x_step; },
               [&](int k, int c, T x) { sum[(warp + k * n_warps) * width + 32 * c] = value_of<C>(x); });
    strip_offsets(w.rest, 3, strip + lane, n_own, at);
    for (int64_t base = 0; base < w.n; base += ROW_EACH * blockDim.x) {
        const int n_listed = list_own(w, slots, base, first, size, tile, list);
        slots.fetch_ids(w, no_rest, base + ROW_EACH * blockDim.x);
        const T *const source = (const T *)w.source + base * w.source_step;
        own_each(list, n_listed, tile.queue[warp], [&](const uint32_t *slot, int n) {
            strip_read(
                source, at, n_own, n, [&](int k) { return own::number_of(slot[k]) * w.source_step; },
                [&](int k, int c, T x) { sum[own::place_in(slot[k]) * width + 32 * c] += value_of<C>(x); });
        });
    }
    strip_offsets(w.rest, 0, strip + lane, n_own, at);
    T *const out = (T *)w.out + first * w.out_step;
#pragma unroll 4
    for (int k = warp; k < size; k += n_warps)
#pragma unroll
        for (int c = 0; c < STRIP_EACH; c++)
            if (c < n_own) out[at[c] + k * w.out_step] = conversion<T>::from(sum[k * width + 32 * c]);
}

/* The same of many short lines: a warp has one. Of 32 slots the first that has a place adds those that share it, in
 * order; which they are a word for each place says. */
template <class T, class I> struct warp_slots {
    enum { EACH = 4, TILE = 32 * EACH };
    I id[EACH];
    T value[EACH];
    /* Those from `base` on: 32 neighbours at a time. */
    __device__ void fetch(const line_sums &w, const int64_t (&rest)[4], int64_t base) {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int64_t j = base + 32 * e + threadIdx.x % 32;
            if (j >= w.n) continue;
            id[e] = ((const I *)w.index)[rest[2] + j * w.index_step];
            value[e] = ((const T *)w.source)[rest[3] + j * w.source_step];
        }
    }
};

/* A warp's rooms in shared memory: sums, the values of 32 slots, and a bit for each, all 0 between its calls. */
template <class C> struct warp_line {
    C *line, *value;
    unsigned *lanes;

    /* `has`: the lane has a slot, of value x; id: where it goes. */
    __device__ void add(const line_sums &w, bool has, int64_t id, C x) const {
        const int lane = threadIdx.x % 32;
        const int64_t place = id < 0 && w.wraps ? id + w.size : id;
        const bool is_good = has && place >= 0 && place < w.size;
        if (has && !is_good) fault_raise(w.fault, w.fault_code, id, w.size);
        value[lane] = x;
        if (is_good) atomicOr(lanes + place, 1u << lane);
        __syncwarp();
        const unsigned meets = is_good ? lanes[place] : 0;
        __syncwarp(); /* all have read before the first empties it */
        if (is_good && __ffs((int)meets) - 1 == lane) {
            C sum = line[place] + x;
            for (unsigned left = meets & (meets - 1); left; left &= left - 1) sum += value[__ffs((int)left) - 1];
            line[place] = sum;
            lanes[place] = 0;
        }
        __syncwarp();
    }
};

enum { WARP_LINE_THREADS = 128, WARP_LINE_BYTES = 20 << 10, WARP_LINE_SLOTS = 2048, WARP_LINES = 1 << 12 };
template <class C> static __host__ __device__ inline size_t warp_line_bytes(int64_t size) {
    return (size_t)(size + 32) * sizeof(C) + (size_t)(size + size % 2) * sizeof(unsigned);
}

template <class T, class I> __global__ void __launch_bounds__(WARP_LINE_THREADS) add_by_warps(line_sums w) {
    typedef typename compute_type<T>::type C;
    typedef warp_slots<T, I> slots_of_warp;
    extern __shared__ double line_room[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, size = (int)w.size;
    C *const line = (C *)((char *)line_room + warp * warp_line_bytes<C>(size));
    const warp_line<C> room = {line, line + size, (unsigned *)(line + size + 32)};
    for (int k = lane; k < size; k += 32) room.lanes[k] = 0;
    for (int64_t i = blockIdx.x * (int64_t)(blockDim.x / 32) + warp; i < w.rest.numel;
         i += gridDim.x * (int64_t)(blockDim.x / 32)) {
        int64_t rest[4];
        offsets_of(w.rest, i, rest);
        slots_of_warp next;
        next.fetch(w, rest, 0);
        line_begin(line, (const T *)w.x + rest[1], w.x_step, size, lane, 32);
        __syncwarp();
        for (int64_t base = 0; base < w.n; base += slots_of_warp::TILE) {
            const slots_of_warp slots = next;
            next.fetch(w, rest, base + slots_of_warp::TILE);
#pragma unroll
            for (int e = 0; e < slots_of_warp::EACH; e++) {
                if (base + 32 * e >= w.n) continue;
                const bool has = base + 32 * e + lane < w.n;
                room.add(w, has, has ? (int64_t)slots.id[e] : 0, has ? value_of<C>(slots.value[e]) : C(0));
            }
        }
        for (int k = lane; k < size; k += 32) ((T *)w.out)[rest[0] + k * w.out_step] = conversion<T>::from(line[k]);
    }
}

/* Integer sums. One thread per slot; the lanes of a warp that share a place add up first. ROWS: neighbours are
 * neighbours in the rest, not in the slots. Small dense tables are summed up in shared memory by each block. */
enum { SMALL_TABLE = 2048 };

__device__ inline void add_integer(void *table, tl_dtype dtype, int64_t place, int64_t x) {
    if (dtype == TL_I64) atomicAdd((unsigned long long *)table + place, (unsigned long long)x);
    else atomicAdd((int *)table + place, (int)x);
}

template <bool ROWS, bool SMALL> __global__ void __launch_bounds__(BLOCK) add_integers(writing w, int64_t table_numel) {
    __shared__ unsigned long long sums[SMALL ? SMALL_TABLE : 1];
    for (int64_t i = threadIdx.x; SMALL && i < table_numel; i += blockDim.x) sums[i] = 0;
    __syncthreads();
    const int64_t total = w.rest.numel * w.n, n_threads = (total + 31) / 32 * 32;
    FOR_EACH(t, n_threads) {
        int64_t place = NOWHERE, x = 0;
        if (t < total) {
            const int64_t inner = ROWS ? w.rest.numel : w.n, outer = t / inner, at = t - outer * inner;
            const int64_t j = ROWS ? outer : at;
            int64_t rest[3];
            offsets_of(w.rest, ROWS ? at : outer, rest);
            place = place_of(w, rest, j);
            if (place != NOWHERE) x = load_as<int64_t>(w.slots, slot_of(w, rest, j), w.slots_dtype);
        }
        const unsigned meets = __match_any_sync(0xFFFFFFFFu, (unsigned long long)place);
        const int lane = threadIdx.x % 32;
        if (__any_sync(0xFFFFFFFFu, __popc(meets) > 1)) {
            uint64_t sum = 0;
            for (int k = 0; k < 32; k++) {
                const uint64_t other = __shfl_sync(0xFFFFFFFFu, (uint64_t)x, k);
                if (meets >> k & 1) sum += other;
            }
            x = (int64_t)sum;
        }
        if (place == NOWHERE || __ffs((int)meets) - 1 != lane) continue;
        if (SMALL) atomicAdd(&sums[place], (unsigned long long)x);
        else add_integer(w.table, w.table_dtype, place, x);
    }
    if (!SMALL) return;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < table_numel; i += blockDim.x)
        if (sums[i]) add_integer(w.table, w.table_dtype, i, (int64_t)sums[i]);
}

static bool lies_dense(const tl_operand *x) {
    int64_t step = 1;
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        if (x->shape[axis] != 1 && x->stride[axis] != step) return false;
        step *= x->shape[axis];
    }
    return true;
}

static void add_integers_launch(const tl_kernel_args *args, const writing &w, const tl_operand *table) {
    const int64_t total = w.rest.numel * w.n, numel = operand_numel(table);
    const bool rows = w.rest.numel > 1 && w.rest.stride[0][w.rest.rank - 1] == 1;
    const unsigned blocks = blocks_for(total), few = blocks < 1056 ? blocks : 1056;
    const cudaStream_t stream = stream_of(args);
    if (numel <= SMALL_TABLE && lies_dense(table)) {
        if (rows) add_integers<true, true><<<few, BLOCK, 0, stream>>>(w, numel);
        else add_integers<false, true><<<few, BLOCK, 0, stream>>>(w, numel);
    } else if (rows) add_integers<true, false><<<blocks, BLOCK, 0, stream>>>(w, numel);
    else add_integers<false, false><<<blocks, BLOCK, 0, stream>>>(w, numel);
}

/* Threads, and blocks of WRITE_BLOCK, that are enough for all multiprocessors; and the most parts that help. */
enum { ENOUGH_THREADS = 1 << 17, ENOUGH_BLOCKS = 128, MOST_PARTS = 256, SHORT_LINE = 128 };

/* The smallest power of two that gives `enough` together with n others; at most n_slots. */
static int parts_for(int64_t n, int64_t enough, int64_t n_slots) {
    int parts = 1;
    while (parts < MOST_PARTS && parts * 2 <= n_slots && n * parts < enough) parts *= 2;
    return parts;
}

/* Whether neighbours in the rest are neighbours in the table. */
static bool is_of_rows(const writing &w) {
    const int last = w.rest.rank - 1;
    return w.rest.stride[0][last] == 1 && w.rest.size[last] >= 32;
}

template <class W> static void write_launch(const tl_kernel_args *args, writing w, W way) {
    const cudaStream_t stream = stream_of(args);
    const bool rows = is_of_rows(w);
    if (rows || w.n < 32 || w.rest.numel >= 1 << 16) {
        w.n_parts = parts_for(w.rest.numel, ENOUGH_THREADS, w.n);
        const dim3 grid(blocks_for(w.rest.numel), (unsigned)w.n_parts);
        if (rows && !w.is_scatter) write_rows<W><<<grid, BLOCK, 0, stream>>>(w, way);
        else write_by_thread<W><<<grid, BLOCK, 0, stream>>>(w, way);
    } else if (w.n <= SHORT_LINE) {
        write_by_warp<W><<<blocks_for(w.rest.numel, BLOCK / 32), BLOCK, 0, stream>>>(w, way);
    } else {
        w.n_parts = parts_for(w.rest.numel, ENOUGH_BLOCKS, w.n / WRITE_BLOCK);
        const int threads = w.n < WRITE_BLOCK ? (int)((w.n + 31) / 32 * 32) : (int)WRITE_BLOCK;
        write_by_block<W><<<dim3(capped(w.rest.numel), (unsigned)w.n_parts), threads, 0, stream>>>(w, way);
    }
}

static void write_all(const tl_kernel_args *args, const writing &w, const tl_operand *table, bool adds) {
    if (w.rest.numel == 0 || w.n == 0) return;
    if (!adds) write_launch(args, w, way_put());
    else if (compute_of(w.table_dtype) == COMPUTE_F64) write_launch(args, w, way_add<double>());
    else if (compute_of(w.table_dtype) == COMPUTE_F32) write_launch(args, w, way_add<float>());
    else if (w.table_dtype == TL_I64 || w.table_dtype == TL_I32) add_integers_launch(args, w, table);
    else write_launch(args, w, way_add<int64_t>());
}

/* A table in f32 for sums that must not be rounded one by one, or the output itself. */
struct table {
    tl_operand operand;
    int64_t stride[TL_MAX_RANK];
    bool is_wide;
};

/* Copies x into the output, or into its wide copy. */
static bool table_begin(table *t, const tl_kernel_args *args, bool adds, void *wide) {
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    t->operand = *out;
    t->is_wide = adds && dtype_is_float(out->dtype) && out->dtype != TL_F32 && out->dtype != TL_F64;
    if (t->is_wide) {
        t->operand.data = wide;
        t->operand.dtype = TL_F32;
        t->operand.stride = t->stride;
        int64_t step = 1;
        for (int axis = out->rank - 1; axis >= 0; axis--) {
            t->stride[axis] = step;
            step *= out->shape[axis];
        }
    }
    return t->operand.data == x->data || copy_operand(args, &t->operand, x);
}

static bool table_end(const table *t, const tl_kernel_args *args) {
    return !t->is_wide || copy_operand(args, &args->out[0], &t->operand);
}

static writing writing_of(const tl_kernel_args *args, const tl_operand *table, const tl_operand *slots) {
    writing w = {};
    w.table = table->data;
    w.table_dtype = table->dtype;
    w.element_bytes = dtype_bytes(table->dtype);
    w.slots = slots->data;
    w.slots_dtype = slots->dtype;
    w.fault = fault_of(args);
    return w;
}

/* The sums of a block and its cells: 96 KiB at most, so that a multiprocessor has two blocks; with lists it has one,
 * and more cells. Every part looks at all slots of its line: there are no more than memory asks for, unless
 * multiprocessors would idle (LINE_BLOCKS). Of few lines half as many: the L2 cache has no more ids for them. */
enum { LEAST_PART = 128, MOST_LINE_PARTS = 8, LINE_BLOCKS = 132, FEW_LINES = 16, CELL_BITS = 12 };
enum { SHORT_LINES = 1 << 14, FEW_PARTS = 3, LIST_CELL_BITS = 14, LIST_BYTES = 224 << 10 };
static int64_t line_parts(int64_t n_lines, int64_t size, int element_bytes) {
    const int64_t most = PART_BYTES / element_bytes, needed = (size + most - 1) / most;
    const int64_t enough = (n_lines > FEW_LINES ? LINE_BLOCKS : LINE_BLOCKS / 2) / n_lines;
    const int64_t wanted = enough < size / LEAST_PART ? enough : size / LEAST_PART;
    return wanted > needed ? wanted : needed;
}

template <class T, class I, bool LISTS> static bool lines_launch(const tl_kernel_args *args, line_sums w) {
    const int64_t wanted = ((w.n > w.part ? w.n : w.part) + LINE_EACH - 1) / LINE_EACH;
    const int threads = wanted < LINE_THREADS ? (int)((wanted + 31) / 32 * 32) : LINE_THREADS;
    const int most_bits = !LISTS ? (int)CELL_BITS : (int)LIST_CELL_BITS - (sizeof(T) > 4); /* f64: lists are longer */
    while (w.cell_bits < most_bits && (int64_t)1 << w.cell_bits < w.part) w.cell_bits++;
    size_t bytes = (size_t)w.part * sizeof(typename compute_type<T>::type) + (sizeof(int) << w.cell_bits);
    if (LISTS) { /* of one tile, or of two */
        const size_t list = (size_t)LIST_EACH * threads * (sizeof(uint32_t) + sizeof(T));
        w.depth = bytes + 2 * list <= LIST_BYTES ? 2 * LIST_EACH : LIST_EACH;
        bytes += w.depth / LIST_EACH * list;
    }
    if (!shared_memory_try(add_in_lines<T, I, LISTS>, bytes)) return false;
    add_in_lines<T, I, LISTS><<<capped(w.rest.numel * w.n_parts), threads, bytes, stream_of(args)>>>(w);
    return true;
}

/* Lists: of parts whose slots are few among those of the line, and of those with fewer cells than places, unless there
 * are so many blocks that a multiprocessor should have two. */
template <class T, class I> static bool lines_launch_best(const tl_kernel_args *args, const line_sums &w) {
    const bool is_alone = w.rest.numel * w.n_parts <= LINE_BLOCKS;
    if ((w.n_parts > FEW_PARTS || (is_alone && w.part > 1 << CELL_BITS)) && lines_launch<T, I, true>(args, w))
        return true;
    return lines_launch<T, I, false>(args, w);
}

/* True: all is done. False: few or long lines, or few slots beside places that may stay as they are. */
template <class T> static bool try_add_by_warps(const tl_kernel_args *args, const line_sums &w) {
    const size_t bytes = warp_line_bytes<typename compute_type<T>::type>(w.size);
    if (w.rest.numel < WARP_LINES || w.size > WARP_LINE_BYTES || bytes > WARP_LINE_BYTES || w.n > WARP_LINE_SLOTS)
        return false;
    if (w.n < 16 || (w.n < w.size / 4 && (w.n < 32 || w.x == w.out))) return false;
    const int n_warps = bytes > 4 << 10 ? 2 : WARP_LINE_THREADS / 32; /* at most 40 KiB for a block */
    const unsigned blocks = capped((w.rest.numel + n_warps - 1) / n_warps);
    if (w.index_dtype == TL_I64)
        add_by_warps<T, int64_t><<<blocks, 32 * n_warps, n_warps * bytes, stream_of(args)>>>(w);
    else add_by_warps<T, int32_t><<<blocks, 32 * n_warps, n_warps * bytes, stream_of(args)>>>(w);
    return true;
}

/* Blocks of one strip and one part: as many parts as memory asks for, or as occupy the device. */
template <class T, class I> static bool rows_launch(const tl_kernel_args *args, line_sums w) {
    typedef typename compute_type<T>::type C;
    const int64_t n_strips = (w.rest.numel + STRIP - 1) / STRIP, width = (w.rest.numel + n_strips - 1) / n_strips;
    const int64_t most = PART_BYTES / (int64_t)sizeof(C) / width, enough = max((int64_t)1, LINE_BLOCKS / n_strips);
    w.part = min(most, (w.size + enough - 1) / enough);
    const int64_t n_parts = (w.size + w.part - 1) / w.part, n_blocks = n_strips * n_parts;
    if (n_blocks > MOST_ROW_BLOCKS) return false;
    w.n_parts = (int)n_parts;
    const int threads = n_blocks <= LINE_BLOCKS ? ROW_THREADS : ROW_THREADS / 2; /* of a multiprocessor, or of half */
    const size_t bytes = (size_t)(w.part * width) * sizeof(C) + ROW_EACH * threads * sizeof(uint32_t);
    if (!shared_memory_try(add_to_rows<T, I>, bytes)) return false;
    add_to_rows<T, I><<<(unsigned)n_blocks, threads, bytes, stream_of(args)>>>(w, (int)width);
    return true;
}

/* True: all is done. False: the lines have slots of their own, or few slots meet a table that may stay as it is, or is
 * copied as it is, which others do faster; but not one of 16 bits, which they copy to f32 and back. Their time grows
 * with the slots, each of which all of their warps look at: FEW_ROWS_ADDED take about as long as a launch. */
enum { FEW_ROWS_ADDED = 1 << 12 };
template <class T> static bool try_add_to_rows(const tl_kernel_args *args, const line_sums &w) {
    for (int axis = 0; axis < w.rest.rank; axis++)
        if (w.rest.stride[2][axis] != 0) return false;
    const bool stays = w.x == w.out;
    if (sizeof(T) > 2 && w.n < w.size / 4 && (stays || w.n < FEW_ROWS_ADDED)) return false;
    return w.index_dtype == TL_I64 ? rows_launch<T, int64_t>(args, w) : rows_launch<T, int32_t>(args, w);
}

/* True: all is done. False: the lines are too long or too short for it, are rows (try_add_to_rows), have few slots
 * beside places that may stay as they are, or the GPU has too little shared memory; the others have the same result.
 * Short lines of 16 bits, if they are copied anyway, are better off here where launches count, not work. */
template <class T> static bool try_add_in_lines(const tl_kernel_args *args, line_sums w) {
    const bool is_wide = sizeof(T) == 2, in_place = w.x == w.out;
    const int64_t n_lines = w.rest.numel;
    if (w.size == 0 || w.n == 0 || n_lines == 0) return false;
    const int last = w.rest.rank - 1;
    if (w.rest.stride[0][last] == 1 && w.rest.size[last] >= 32) return try_add_to_rows<T>(args, w);
    if (try_add_by_warps<T>(args, w)) return true;
    if (w.n <= SHORT_LINE && !(is_wide && n_lines <= SHORT_LINES && !in_place)) return false;
    if (in_place && !is_wide && w.n < w.size / 4) return false;
    const int64_t n_parts = line_parts(n_lines, w.size, (int)sizeof(typename compute_type<T>::type));
    if (n_parts > MOST_LINE_PARTS && n_lines * n_parts > LINE_BLOCKS) return false;
    w.n_parts = (int)n_parts;
    w.part = (w.size + n_parts - 1) / n_parts;
    w.part += w.part % 2; /* cells lie behind whole words of any size */
    return w.index_dtype == TL_I64 ? lines_launch_best<T, int64_t>(args, w) : lines_launch_best<T, int32_t>(args, w);
}

static bool add_in_lines_of(const tl_kernel_args *args, const line_sums &w) {
    switch (args->out[0].dtype) {
    case TL_F64:
        return try_add_in_lines<double>(args, w);
    case TL_F32:
        return try_add_in_lines<float>(args, w);
    case TL_BF16:
        return try_add_in_lines<bf16>(args, w);
    case TL_F16:
        return try_add_in_lines<f16>(args, w);
    default:
        return false;
    }
}

/* The lines of scatter_add. False: some have no slots, and are only copied. */
static bool scatter_lines(const tl_kernel_args *args, int axis, line_sums *w) {
    const tl_operand *x = &args->in[0], *index = &args->in[1], *source = &args->in[2], *out = &args->out[0];
    const tl_operand *const all[4] = {out, x, index, source};
    int64_t shape[TL_MAX_RANK], stride[4][TL_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < index->rank; i++) {
        if (i == axis) continue;
        if (x->shape[i] != index->shape[i]) return false;
        for (int k = 0; k < 4; k++) stride[k][rank] = all[k]->stride[i];
        shape[rank++] = index->shape[i];
    }
    *w = {walk_of<4>(rank, shape, stride),
          out->data,
          x->data,
          index->data,
          source->data,
          index->dtype,
          out->stride[axis],
          x->stride[axis],
          index->stride[axis],
          source->stride[axis],
          x->shape[axis],
          index->shape[axis],
          false,
          FAULT_SCATTER,
          fault_of(args),
          0,
          0,
          0,
          0};
    return true;
}

/* What scatter writes into a table: the output, or its wide copy. */
static writing scatter_writing(const tl_kernel_args *args, const tl_operand *table) {
    const tl_operand *index = &args->in[1], *source = &args->in[2];
    const int axis = ((const struct attr_gather *)args->attr)->axis;
    writing w = writing_of(args, table, source);
    const tl_operand *const all[3] = {table, source, index};
    int64_t shape[TL_MAX_RANK], stride[3][TL_MAX_RANK];
    tl_operand slim[3] = {*table, *source, *index};
    for (int k = 0; k < 3; k++) {
        int n = 0;
        for (int i = 0; i < index->rank; i++) {
            if (i == axis) continue;
            shape[n] = index->shape[i];
            stride[k][n++] = all[k]->stride[i];
        }
        slim[k].rank = n;
        slim[k].shape = shape;
        slim[k].stride = stride[k];
    }
    const tl_operand *const list[3] = {&slim[0], &slim[1], &slim[2]};
    w.rest = geometry_of<3>(list);
    w.n = index->shape[axis];
    w.is_scatter = true;
    w.index = index->data;
    w.index_dtype = index->dtype;
    w.table_step = table->stride[axis];
    w.slots_step = source->stride[axis];
    w.index_step = index->stride[axis];
    w.size = table->shape[axis];
    return w;
}

/* True: all is done. False: no short lines of 16 bits. */
static bool try_add_short_lines(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    if (out->dtype != TL_BF16 && out->dtype != TL_F16) return false;
    const writing w = scatter_writing(args, out);
    if (w.n > 32 || is_of_rows(w) || (x->data != out->data && !copy_operand(args, out, x))) return false;
    const unsigned blocks = blocks_for(w.rest.numel, BLOCK / 32);
    if (out->dtype == TL_BF16) add_short_lines<bf16><<<blocks, BLOCK, 0, stream_of(args)>>>(w);
    else add_short_lines<f16><<<blocks, BLOCK, 0, stream_of(args)>>>(w);
    return true;
}

static bool scatter(const tl_kernel_args *args, bool adds) {
    const tl_operand *index = &args->in[1];
    const int axis = ((const struct attr_gather *)args->attr)->axis;
    const bool is_empty = operand_numel(index) == 0;
    if (!operands_known(args) || !ids_known(args, index)) return false;
    line_sums lines;
    if (adds && !is_empty && scatter_lines(args, axis, &lines) && add_in_lines_of(args, lines)) return true;
    if (adds && !is_empty && try_add_short_lines(args)) return true;
    table t;
    if (!table_begin(&t, args, adds, args->workspace)) return false;
    if (!is_empty) write_all(args, scatter_writing(args, &t.operand), &t.operand, adds);
    return table_end(&t, args);
}

/* ---- Several axes ---------------------------------------------------------------------------------------- */

/* offset[i] (+)= an index's part of the place; NOWHERE stays. */
__global__ void __launch_bounds__(BLOCK) add_places(geometry<2> g, axis_ids ids, bool is_first, int64_t *offset) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        const int64_t before = is_first ? 0 : offset[at[0]], place = place_of_id(ids, at[1]);
        offset[at[0]] = place != NOWHERE && before != NOWHERE ? before + place : NOWHERE;
    }
}

static axis_ids axis_ids_of(const tl_kernel_args *args, const tl_operand *index, const tl_operand *table, int k,
                            int fault_code) {
    const struct attr_index *attr = (const struct attr_index *)args->attr;
    const int axis = attr->axes[k];
    return {index->data, index->dtype, table->stride[axis], table->shape[axis],
            attr->wraps, fault_code,   fault_of(args)};
}

/* Offsets into the table, in elements, for every position of the indices. */
static bool find_places(const tl_kernel_args *args, const tl_operand *index, const tl_operand *table, int rank,
                        const int64_t *shape, int64_t *offset, int fault_code) {
    const struct attr_index *attr = (const struct attr_index *)args->attr;
    int64_t dense[TL_MAX_RANK], step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        dense[i] = step;
        step *= shape[i];
    }
    if ((size_t)step * sizeof *offset > args->workspace_bytes) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    tl_operand places = *table;
    places.data = offset;
    places.rank = rank;
    places.shape = shape;
    places.stride = dense;
    for (int k = 0; k < attr->n; k++) {
        if (!ids_known(args, &index[k])) return false;
        const tl_operand *const list[2] = {&places, &index[k]};
        const geometry<2> g = geometry_of<2>(list);
        if (g.numel == 0) continue;
        add_places<<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>(
            g, axis_ids_of(args, &index[k], table, k, fault_code), k == 0, offset);
    }
    return true;
}

/* The axes of the fetched tensor: the indices' common shape B and the rest, in order; strides in the table (0 along
 * B) and in the array of offsets (0 along the rest). */
struct result_axes {
    int rank;
    int64_t shape[TL_MAX_RANK], table[TL_MAX_RANK], offset[TL_MAX_RANK];
    bool is_index[TL_MAX_RANK];
};

static void result_axes_of(result_axes *r, const struct attr_index *attr, const tl_operand *table, int n_index,
                           const int64_t *index_shape) {
    const int place = attr->axes[attr->n - 1] - attr->axes[0] == attr->n - 1 ? attr->axes[0] : 0;
    int n_rest = 0;
    r->rank = table->rank - attr->n + n_index;
    for (int i = 0, next = 0; i < table->rank; i++) {
        if (next < attr->n && attr->axes[next] == i) {
            next++;
            continue;
        }
        const int at = n_rest < place ? n_rest : n_rest + n_index;
        r->shape[at] = table->shape[i];
        r->table[at] = table->stride[i];
        r->offset[at] = 0;
        r->is_index[at] = false;
        n_rest++;
    }
    int64_t step = 1;
    for (int i = n_index - 1; i >= 0; i--) {
        r->shape[place + i] = index_shape[i];
        r->table[place + i] = 0;
        r->offset[place + i] = step;
        r->is_index[place + i] = true;
        step *= index_shape[i];
    }
}

/* The lines along the axis of one index. False: places or slots of several strides. */
static bool index_fetch_lines(const tl_kernel_args *args, const result_axes *r, const axis_ids &ids, line_fetch *w) {
    const tl_operand *x = &args->in[0], *index = &args->in[1], *out = &args->out[0];
    int64_t shape[TL_MAX_RANK], rest[3][TL_MAX_RANK], along[2][TL_MAX_RANK];
    int rank = 0, next = 0;
    for (int i = 0; i < r->rank; i++) {
        if (r->is_index[i]) {
            along[0][next] = out->stride[i];
            along[1][next] = index->stride[next];
            next++;
            continue;
        }
        rest[0][rank] = out->stride[i];
        rest[1][rank] = r->table[i];
        rest[2][rank] = 0;
        shape[rank++] = r->shape[i];
    }
    const geometry<2> walk = walk_of<2>(next, index->shape, along);
    if (walk.rank > 1) return false;
    *w = {walk_of<3>(rank, shape, rest),
          out->data,
          x->data,
          ids,
          walk.stride[0][0],
          ids.stride,
          walk.stride[1][0],
          walk.numel,
          0,
          0};
    return true;
}

static bool index_fetch(const tl_kernel_args *args) {
    const struct attr_index *attr = (const struct attr_index *)args->attr;
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    int64_t shape[TL_MAX_RANK], *offset = (int64_t *)args->workspace;
    if (!operands_known(args)) return false;
    const int rank = indices_shape(args->in + 1, attr->n, shape);
    const bool is_one = attr->n == 1;
    if (is_one ? !ids_known(args, &args->in[1]) : !find_places(args, args->in + 1, x, rank, shape, offset, FAULT_INDEX))
        return false;
    if (operand_numel(out) == 0) return true;
    result_axes r;
    result_axes_of(&r, attr, x, rank, shape);
    for (int i = 0, next = 0; is_one && i < r.rank; i++)
        if (r.is_index[i]) r.offset[i] = args->in[1].stride[next++];
    tl_operand table = *x, places = *x;
    table.rank = places.rank = r.rank;
    table.shape = places.shape = r.shape;
    table.stride = r.table;
    places.stride = r.offset;
    const tl_operand *const list[3] = {out, &table, &places};
    const geometry<3> g = geometry_of<3>(list);
    const axis_ids ids = axis_ids_of(args, &args->in[1], x, 0, FAULT_INDEX);
    line_fetch lines;
    const bool has_lines = is_one && index_fetch_lines(args, &r, ids, &lines);
#define FETCH(T) fetch_launch<T>(args, g, ids, is_one ? nullptr : offset, has_lines ? &lines : nullptr)
    BY_BYTES(x->dtype, FETCH)
#undef FETCH
    return true;
}

/* The rest and the places of a writer, from the axes of the slots. */
static void writing_axes(writing *w, const result_axes *r, const tl_operand *slots) {
    int64_t shape[2][TL_MAX_RANK], table[TL_MAX_RANK], from[2][TL_MAX_RANK];
    int n[2] = {0, 0};
    tl_operand like = *slots;
    for (int i = 0; i < r->rank; i++) {
        const int which = r->is_index[i], at = n[which]++;
        shape[which][at] = r->shape[i];
        from[which][at] = broadcast_stride(slots, i, r->rank);
        if (!which) table[at] = r->table[i];
    }
    tl_operand rest[2] = {like, like}, places = like;
    rest[0].rank = rest[1].rank = n[0];
    rest[0].shape = rest[1].shape = shape[0];
    rest[0].stride = table;
    rest[1].stride = from[0];
    places.rank = n[1];
    places.shape = shape[1];
    places.stride = from[1];
    const tl_operand *const list[3] = {&rest[0], &rest[1], &rest[1]}, *const one[1] = {&places};
    w->rest = geometry_of<3>(list);
    w->slots_at = geometry_of<1>(one);
    w->n = w->slots_at.numel;
}

/* Few slots of one index: a thread for each element of the table looks for those whose place it is, in order. One
 * launch, and no f32 copy. The walk has out, x, the slots (0 along the axis), and the place along the axis. */
enum { FEW_SLOTS = 1024, FEW_LOOKS = 1 << 26, FEW_IN_PLACE = 16 };

/* Where each slot goes, and where it is, by all threads of a block. */
__device__ inline void few_load(const geometry<2> &slots_at, const axis_ids &ids, int64_t (&place)[FEW_SLOTS],
                                int64_t (&slot)[FEW_SLOTS]) {
    for (int j = threadIdx.x; j < slots_at.numel; j += blockDim.x) {
        int64_t at[2];
        offsets_of(slots_at, j, at);
        slot[j] = at[0];
        place[j] = place_of_id(ids, at[1]);
    }
    __syncthreads();
}

template <class T, bool ADDS>
__global__ void __launch_bounds__(BLOCK)
    put_few(geometry<4> g, T *out, const T *x, const T *slots, axis_ids ids, geometry<2> slots_at) {
    __shared__ int64_t place[FEW_SLOTS], slot[FEW_SLOTS];
    const int n = (int)slots_at.numel;
    few_load(slots_at, ids, place, slot);
    FOR_EACH(i, g.numel) {
        int64_t at[4];
        offsets_of(g, i, at);
        int last = -1;
        if constexpr (ADDS) {
            typedef typename compute_type<T>::type C;
            C sum = value_of<C>(x[at[1]]);
            for (int j = 0; j < n; j++)
                if (place[j] == at[3]) {
                    sum += value_of<C>(slots[at[2] + slot[j]]);
                    last = j;
                }
            if (last >= 0 || x != out) out[at[0]] = conversion<T>::from(sum);
        } else {
            for (int j = 0; j < n; j++)
                if (place[j] == at[3]) last = j;
            if (last >= 0) out[at[0]] = slots[at[2] + slot[last]];
            else if (x != out) out[at[0]] = x[at[1]];
        }
    }
}

/* Dense rows: a warp has a part of a row, of ROW_PACKS packs, and looks once for the slots that the row gets. */
enum { ROW_PACKS = 32 * PACKS_AHEAD, ROW_AHEAD = 8, FEW_ROW = 64 /* elements of the shortest row */ };
template <class T> struct row_part {
    enum { NUMEL = ROW_PACKS * line_pack<T>::N, STEP = 32 * ROW_AHEAD };
};

/* f(i, how many) of a lane's elements of a part of a row: i, i + 32, and so on. */
template <class T, class F> __device__ inline void row_part_each(int64_t n, int64_t part, F f) {
    const int64_t begin = part * row_part<T>::NUMEL, end = min(n, begin + row_part<T>::NUMEL);
    for (int64_t i = begin + threadIdx.x % 32; i < end; i += row_part<T>::STEP)
        f(i, (int)min((int64_t)ROW_AHEAD, (end - i + 31) / 32));
}

/* A part of a row of n, by a warp: in packs, if both rows begin at the same place of one. */
template <class T> __device__ inline void row_copy(T *to, const T *from, int64_t n, int64_t part) {
    if (((uintptr_t)to - (uintptr_t)from) % 16 == 0) {
        line_pack<T> x[PACKS_AHEAD];
#pragma unroll
        for (int k = 0; k < PACKS_AHEAD; k++) x[k].fetch(from, n, part * ROW_PACKS + k * 32 + threadIdx.x % 32);
#pragma unroll
        for (int k = 0; k < PACKS_AHEAD; k++) {
            T v[line_pack<T>::N];
#pragma unroll
            for (int j = 0; j < line_pack<T>::N; j++) v[j] = x[k].template at<T>(from, j, T());
            line_put(to, x[k], v);
        }
        return;
    }
    row_part_each<T>(n, part, [&](int64_t i, int count) {
        T v[ROW_AHEAD];
#pragma unroll
        for (int k = 0; k < ROW_AHEAD; k++)
            if (k < count) v[k] = from[i + 32 * k];
#pragma unroll
        for (int k = 0; k < ROW_AHEAD; k++)
            if (k < count) to[i + 32 * k] = v[k];
    });
}

/* Bit j % 32 of word j / 32: the row gets slot j. */
struct few_found {
    uint32_t bits[FEW_SLOTS / 32];
};

/* A warp lists which of n slots have this place. The last of them; -1: none. */
__device__ inline int few_find(few_found &found, const int64_t (&place)[FEW_SLOTS], int n, int64_t wanted) {
    const int lane = threadIdx.x % 32;
    int last = -1;
    __syncwarp(); /* lanes may still be reading those of the part before */
    for (int first = 0; first < n; first += 32) {
        const unsigned bits = __ballot_sync(0xFFFFFFFFu, first + lane < n && place[first + lane] == wanted);
        if (lane == 0) found.bits[first / 32] = bits;
        if (bits) last = first + 31 - __clz((int)bits);
    }
    __syncwarp();
    return last;
}

/* The same for x and the sum of the slots that were found, up to the last, in order; slots: where the row's element 0
 * would be. */
template <class T>
__device__ inline void row_add(T *to, const T *x, const T *slots, const int64_t (&slot)[FEW_SLOTS],
                               const few_found &found, int last, int64_t n, int64_t part) {
    typedef typename compute_type<T>::type C;
    row_part_each<T>(n, part, [&](int64_t i, int count) {
        C sum[ROW_AHEAD];
#pragma unroll
        for (int k = 0; k < ROW_AHEAD; k++)
            if (k < count) sum[k] = value_of<C>(x[i + 32 * k]);
        for (int first = 0; first <= last; first += 32)
            for (unsigned left = found.bits[first / 32]; left; left &= left - 1) {
                const T *const from = slots + slot[first + __ffs((int)left) - 1];
#pragma unroll
                for (int k = 0; k < ROW_AHEAD; k++)
                    if (k < count) sum[k] += value_of<C>(from[i + 32 * k]);
            }
#pragma unroll
        for (int k = 0; k < ROW_AHEAD; k++)
            if (k < count) to[i + 32 * k] = conversion<T>::from(sum[k]);
    });
}

template <class T, bool ADDS>
__global__ void __launch_bounds__(BLOCK)
    put_few_rows(geometry<4> g, int n_parts, T *out, const T *x, const T *slots, axis_ids ids, geometry<2> slots_at) {
    __shared__ int64_t place[FEW_SLOTS], slot[FEW_SLOTS];
    __shared__ few_found of_warp[BLOCK / 32];
    few_found &found = of_warp[threadIdx.x / 32];
    const int n = (int)slots_at.numel;
    const int64_t row = g.size[g.rank - 1], n_items = g.numel / row * n_parts;
    few_load(slots_at, ids, place, slot);
    for (int64_t item = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32; item < n_items;
         item += gridDim.x * (int64_t)(BLOCK / 32)) {
        const int64_t part = item % n_parts;
        int64_t at[4];
        offsets_of(g, item / n_parts * row, at);
        const int last = few_find(found, place, n, at[3]);
        if (last < 0) {
            if (x != out) row_copy(out + at[0], x + at[1], row, part);
        } else if constexpr (ADDS) {
            row_add(out + at[0], x + at[1], slots + at[2], slot, found, last, row, part);
        } else {
            row_copy(out + at[0], slots + at[2] + slot[last], row, part);
        }
    }
}

/* A table that stays where it is, of which most has no slot: a warp has one slot and 32 ROW_AHEAD elements of the rest.
 * Where that slot is the last of its place, the warp adds what all slots of the place have, in order. rest: the table
 * and the slots. */
enum { REST_PART = 32 * ROW_AHEAD };

template <class T>
__global__ void __launch_bounds__(BLOCK)
    add_few_in_place(geometry<2> rest, T *out, const T *slots, axis_ids ids, geometry<2> slots_at) {
    typedef typename compute_type<T>::type C;
    __shared__ int64_t place[FEW_SLOTS], slot[FEW_SLOTS];
    __shared__ few_found of_warp[BLOCK / 32];
    few_found &found = of_warp[threadIdx.x / 32];
    const int n = (int)slots_at.numel;
    const int64_t n_items = (rest.numel + REST_PART - 1) / REST_PART * n;
    few_load(slots_at, ids, place, slot);
    for (int64_t item = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32; item < n_items;
         item += gridDim.x * (int64_t)(BLOCK / 32)) {
        const int own = (int)(item % n);
        const int64_t first = item / n * REST_PART + threadIdx.x % 32;
        if (place[own] == NOWHERE || few_find(found, place, n, place[own]) != own) continue;
        T *to[ROW_AHEAD];
        const T *from[ROW_AHEAD];
        C sum[ROW_AHEAD];
#pragma unroll
        for (int k = 0; k < ROW_AHEAD; k++) {
            if (first + 32 * k >= rest.numel) continue;
            int64_t at[2];
            offsets_of(rest, first + 32 * k, at);
            to[k] = out + at[0] + place[own];
            from[k] = slots + at[1];
            sum[k] = value_of<C>(*to[k]);
        }
        for (int word = 0; word <= own / 32; word++)
            for (unsigned left = found.bits[word]; left; left &= left - 1) {
                const int64_t at = slot[word * 32 + __ffs((int)left) - 1];
#pragma unroll
                for (int k = 0; k < ROW_AHEAD; k++)
                    if (first + 32 * k < rest.numel) sum[k] += value_of<C>(from[k][at]);
            }
#pragma unroll
        for (int k = 0; k < ROW_AHEAD; k++)
            if (first + 32 * k < rest.numel) *to[k] = conversion<T>::from(sum[k]);
    }
}

/* Whether the elements of a row, which all have the same place along the axis, are neighbours in all operands. */
static bool few_has_rows(const geometry<4> &g) {
    const int last = g.rank - 1;
    return g.size[last] >= FEW_ROW && g.stride[0][last] == 1 && g.stride[1][last] == 1 && g.stride[2][last] == 1 &&
           g.stride[3][last] == 0;
}

/* Parts of a row, which may begin inside a pack. */
template <class T> static int64_t few_row_parts(int64_t row) {
    return (row + line_pack<T>::N - 1 + row_part<T>::NUMEL - 1) / row_part<T>::NUMEL;
}

/* False: too many elements of the table, or parts of its rows, to look at the slots for each. */
template <class T, bool ADDS>
static bool put_few_launch(const tl_kernel_args *args, const geometry<4> &g, const geometry<2> &slots_at) {
    axis_ids ids = axis_ids_of(args, &args->in[2], &args->out[0], 0, FAULT_INDEX_PUT);
    ids.stride = 1;
    T *const out = (T *)args->out[0].data;
    const T *const x = (const T *)args->in[0].data, *const slots = (const T *)args->in[1].data;
    const bool has_rows = few_has_rows(g);
    const int64_t row = g.size[g.rank - 1], n_parts = few_row_parts<T>(row), n_items = g.numel / row * n_parts;
    if ((has_rows ? n_items : g.numel) > FEW_LOOKS / slots_at.numel) return false;
    if (has_rows)
        put_few_rows<T, ADDS><<<blocks_for(n_items, BLOCK / 32), BLOCK, 0, stream_of(args)>>>(g, (int)n_parts, out, x,
                                                                                              slots, ids, slots_at);
    else put_few<T, ADDS><<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>(g, out, x, slots, ids, slots_at);
    return true;
}

template <class T>
static bool add_few_launch(const tl_kernel_args *args, const result_axes &r, const geometry<2> &slots_at) {
    const axis_ids ids = axis_ids_of(args, &args->in[2], &args->out[0], 0, FAULT_INDEX_PUT);
    int64_t shape[TL_MAX_RANK], stride[2][TL_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < r.rank; i++) {
        if (r.is_index[i]) continue;
        shape[rank] = r.shape[i];
        stride[0][rank] = r.table[i];
        stride[1][rank++] = broadcast_stride(&args->in[1], i, r.rank);
    }
    const geometry<2> rest = walk_of<2>(rank, shape, stride);
    const int64_t n_items = (rest.numel + REST_PART - 1) / REST_PART * slots_at.numel;
    const unsigned most = FETCH_BLOCKS, blocks = min(blocks_for(n_items, BLOCK / 32), most); /* each reads all ids */
    add_few_in_place<T><<<blocks, BLOCK, 0, stream_of(args)>>>(rest, (T *)args->out[0].data,
                                                               (const T *)args->in[1].data, ids, slots_at);
    return true;
}

/* True: all is done. False: several indices, many slots, or numbers that others add up. In place, most elements have
 * nothing to do, unless the axis is as short as the index: sums of 16 bits, which others would copy to f32, look for
 * the slots instead. */
static bool try_put_few(const tl_kernel_args *args, int n_index, const int64_t *index_shape, int64_t n) {
    const struct attr_index *attr = (const struct attr_index *)args->attr;
    const tl_operand *x = &args->in[0], *slots = &args->in[1], *index = &args->in[2], *out = &args->out[0];
    const int64_t numel = operand_numel(out);
    const bool is_wide = attr->accumulates && (out->dtype == TL_BF16 || out->dtype == TL_F16);
    if (attr->n != 1 || n == 0 || n > FEW_SLOTS || numel == 0) return false;
    const bool in_place = x->data == out->data, stays = in_place && out->shape[attr->axes[0]] > 2 * n;
    if (!is_wide && (stays || (in_place && n >= FEW_IN_PLACE))) return false;
    result_axes r;
    result_axes_of(&r, attr, out, n_index, index_shape);
    int64_t from[TL_MAX_RANK], along[TL_MAX_RANK], slot_stride[TL_MAX_RANK];
    for (int i = 0, axis = 0, next = 0; i < r.rank || axis < out->rank; axis++) { /* slots' axes beside the table's */
        from[axis] = 0;
        along[axis] = axis == attr->axes[0];
        if (!along[axis]) from[axis] = broadcast_stride(slots, i++, r.rank);
        else
            for (; i < r.rank && r.is_index[i]; i++) slot_stride[next++] = broadcast_stride(slots, i, r.rank);
    }
    tl_operand walks[2] = {*out, *out}, places[2] = {*index, *index};
    walks[0].stride = from;
    walks[1].stride = along;
    places[0].stride = slot_stride;
    const tl_operand *const list[4] = {out, x, &walks[0], &walks[1]}, *const both[2] = {&places[0], &places[1]};
    const geometry<4> g = geometry_of<4>(list);
    const geometry<2> slots_at = geometry_of<2>(both);
    if (stays)
        return out->dtype == TL_BF16 ? add_few_launch<bf16>(args, r, slots_at) : add_few_launch<f16>(args, r, slots_at);
    if (!attr->accumulates) {
#define PUT_FEW(T) return put_few_launch<T, false>(args, g, slots_at)
        BY_BYTES(out->dtype, PUT_FEW)
#undef PUT_FEW
    }
    switch (out->dtype) {
    case TL_F64:
        return put_few_launch<double, true>(args, g, slots_at);
    case TL_F32:
        return put_few_launch<float, true>(args, g, slots_at);
    case TL_BF16:
        return put_few_launch<bf16, true>(args, g, slots_at);
    case TL_F16:
        return put_few_launch<f16, true>(args, g, slots_at);
    default:
        return false;
    }
}

/* The lines along the axis of one index, which all have the same places. False: several indices, or places or slots of
 * several strides. */
static bool index_lines(const tl_kernel_args *args, int n_index, const int64_t *index_shape, line_sums *w) {
    const struct attr_index *attr = (const struct attr_index *)args->attr;
    const tl_operand *x = &args->in[0], *slots = &args->in[1], *index = &args->in[2], *out = &args->out[0];
    if (attr->n != 1) return false;
    result_axes of_out, of_x;
    result_axes_of(&of_out, attr, out, n_index, index_shape);
    result_axes_of(&of_x, attr, x, n_index, index_shape);
    int64_t shape[TL_MAX_RANK], stride[4][TL_MAX_RANK], along[2][TL_MAX_RANK];
    int rank = 0, next = 0;
    for (int i = 0; i < of_out.rank; i++) {
        const int64_t step = broadcast_stride(slots, i, of_out.rank);
        if (of_out.is_index[i]) {
            along[0][next] = index->stride[next];
            along[1][next++] = step;
            continue;
        }
        stride[0][rank] = of_out.table[i];
        stride[1][rank] = of_x.table[i];
        stride[2][rank] = 0;
        stride[3][rank] = step;
        shape[rank++] = of_out.shape[i];
    }
    const geometry<2> walk = walk_of<2>(n_index, index_shape, along);
    const int axis = attr->axes[0];
    if (walk.rank > 1) return false;
    *w = {walk_of<4>(rank, shape, stride),
          out->data,
          x->data,
          index->data,
          slots->data,
          index->dtype,
          out->stride[axis],
          x->stride[axis],
          walk.stride[0][0],
          walk.stride[1][0],
          out->shape[axis],
          walk.numel,
          attr->wraps,
          FAULT_INDEX_PUT,
          fault_of(args),
          0,
          0,
          0,
          0};
    return true;
}

/* ---- Rows in groups ----------------------------------------------------------------------------------------
 *
 * Sums of floats over very many rows of the same places: a group of rows (row_groups.cuh) has a place, and what it adds
 * up to is x and the rows in order. A warp has a set of numbers of the list, and looks for the groups that begin there.
 * Where the table does not stay, numbers from n on are places: those without a group are copied.
 */
struct group_sums {
    row_groups groups;
    void *out;
    const void *x, *source;
    int64_t out_step, x_step, source_step, n_columns;
    int64_t n_items; /* numbers of the list, and of places */
    int each;        /* items of a set */
};

/* A set has an item for each lane, and fewer where there would be too few sets: two for each warp that there is room
 * for. */
enum { GROUP_WARPS = 132 * 24 * 2 };

__device__ inline group_span item_span(const group_sums &w, int64_t item) {
    const int64_t n = w.groups.places.n, place = item - n;
    if (item >= w.n_items) return {0, 0, -1};
    if (place >= 0) return {0, 0, w.groups.starts[place] ? -1 : place};
    const group_span span = span_at(w.groups, (int)item);
    return span.n ? span : group_span{0, 0, -1};
}

/* The lanes' rows of a group of few, in ascending order; the other lanes have none. */
__device__ inline int rows_in_order(int row, int n, int *room) {
    const int lane = threadIdx.x % 32;
    int below = 0;
    for (int k = 0; k < n; k++) below += __shfl_sync(0xFFFFFFFFu, row, k) < row;
    if (lane < n) room[below] = row;
    __syncwarp();
    row = room[lane];
    __syncwarp();
    return row;
}

/* M units of columns of a lane, 32 apart, from `first` on. */
template <class T, int U, int M>
__device__ inline void group_add(const group_sums &w, const group_span &group, int64_t first, int *room) {
    typedef typename compute_type<T>::type C;
    enum { AHEAD = 8 / M };
    const int lane = threadIdx.x % 32, n_own = (int)min((int64_t)M, (w.n_columns / U - first + 31) / 32);
    const T *const x = (const T *)w.x + group.place * w.x_step, *const source = (const T *)w.source;
    C sum[M][U];
#pragma unroll
    for (int m = 0; m < M; m++)
        if (m < n_own) row_load<U>(x, first + 32 * m).widen(sum[m]);
    for (int base = 0; base < group.n; base += 32) {
        const int n = min(32, group.n - base);
        int row = lane < n ? w.groups.rows[group.first + base + lane] : INT32_MAX;
        if (group.n <= FEW_ROWS) row = rows_in_order(row, n, room);
        for (int k = 0; k < n; k += AHEAD) {
            row_pack<T, U> own[AHEAD][M];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const T *const from = source + __shfl_sync(0xFFFFFFFFu, row, (k + a) % 32) * w.source_step;
#pragma unroll
                for (int m = 0; m < M; m++)
                    if (k + a < n && m < n_own) own[a][m] = row_load<U>(from, first + 32 * m);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
#pragma unroll
                for (int m = 0; m < M; m++) {
                    C wide[U];
                    if (k + a >= n || m >= n_own) continue;
                    own[a][m].widen(wide);
                    for (int j = 0; j < U; j++) sum[m][j] += wide[j];
                }
        }
    }
    T *const to = (T *)w.out + group.place * w.out_step;
#pragma unroll
    for (int m = 0; m < M; m++) {
        row_pack<T, U> own;
        if (m >= n_own) continue;
        own.narrow(sum[m]);
        row_store<U>(to, first + 32 * m, own);
    }
}

template <class T, int U, int M> __global__ void __launch_bounds__(BLOCK, 3) add_groups(group_sums w) {
    __shared__ int room[BLOCK / 32][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t n_parts = (w.n_columns + 32 * U * M - 1) / (32 * U * M), n_sets = (w.n_items + w.each - 1) / w.each;
    for (int64_t turn = blockIdx.x * (int64_t)(BLOCK / 32) + warp; turn < n_sets * n_parts;
         turn += gridDim.x * (int64_t)(BLOCK / 32)) {
        const int64_t set = turn / n_parts, first = (turn - set * n_parts) * (32 * M) + lane;
        const group_span own = item_span(w, lane < w.each ? set * w.each + lane : w.n_items);
        for (unsigned wanted = __ballot_sync(0xFFFFFFFFu, own.place >= 0); wanted; wanted &= wanted - 1) {
            const int from = __ffs((int)wanted) - 1;
            const group_span group = {__shfl_sync(0xFFFFFFFFu, own.first, from), __shfl_sync(0xFFFFFFFFu, own.n, from),
                                      __shfl_sync(0xFFFFFFFFu, own.place, from)};
            group_add<T, U, M>(w, group, first, room[warp]);
        }
    }
}

template <class T, int U, int M> static void add_groups_launch(const tl_kernel_args *args, group_sums w) {
    const int64_t n_parts = (w.n_columns + 32 * U * M - 1) / (32 * U * M);
    for (w.each = 32; w.each > 1 && w.n_items / w.each * n_parts < GROUP_WARPS;) w.each /= 2;
    const int64_t n_turns = (w.n_items + w.each - 1) / w.each * n_parts;
    add_groups<T, U, M><<<blocks_for(n_turns, BLOCK / 32), BLOCK, 0, stream_of(args)>>>(w);
}

/* In units of 16 bytes, if all rows begin and end where one may. */
template <class T> static bool add_groups_of(const tl_kernel_args *args, const group_sums &w) {
    const int64_t steps = w.out_step | w.x_step | w.source_step | w.n_columns;
    const uintptr_t all = (uintptr_t)w.out | (uintptr_t)w.x | (uintptr_t)w.source | (uintptr_t)steps * sizeof(T);
    if (all % 16 == 0) add_groups_launch<T, 16 / sizeof(T), 1>(args, w);
    else add_groups_launch<T, 1, 4>(args, w);
    return true;
}

/* True: all is done. False: fewer rows, or rows that are not dense. */
static bool try_add_groups(const tl_kernel_args *args, const line_sums &l) {
    if (!rows_are_grouped(l.n, l.size) || args->workspace_bytes < group_bytes(l.n, l.size)) return false;
    if (l.rest.rank > 1 || l.rest.numel < 32) return false;
    for (int k = 0; k < 4; k++)
        if (l.rest.stride[k][0] != (k != 2)) return false;
    const row_places places = {l.index, l.index_dtype, l.index_step, l.n, l.size, l.wraps, l.fault_code, l.fault};
    group_sums w = {{}, l.out, l.x, l.source, l.out_step, l.x_step, l.source_step, l.rest.numel, l.n, 0};
    if (l.x != l.out) w.n_items += l.size;
    const tl_dtype dtype = args->out[0].dtype;
    if (dtype != TL_F64 && dtype != TL_F32 && dtype != TL_BF16 && dtype != TL_F16) return false;
    if (!rows_group(args, places, args->workspace, &w.groups)) return false;
    return dtype == TL_F64    ? add_groups_of<double>(args, w)
           : dtype == TL_F32  ? add_groups_of<float>(args, w)
           : dtype == TL_BF16 ? add_groups_of<bf16>(args, w)
                              : add_groups_of<f16>(args, w);
}

static bool index_put(const tl_kernel_args *args) {
    const struct attr_index *attr = (const struct attr_index *)args->attr;
    int64_t shape[TL_MAX_RANK], n = 1, *offset = (int64_t *)args->workspace;
    if (!operands_known(args)) return false;
    const int rank = indices_shape(args->in + 2, attr->n, shape);
    for (int i = 0; i < rank; i++) n *= shape[i];
    if (attr->n == 1 && !ids_known(args, &args->in[2])) return false;
    line_sums lines;
    if (try_put_few(args, rank, shape, n)) return true;
    if (attr->accumulates && index_lines(args, rank, shape, &lines) &&
        (try_add_groups(args, lines) || add_in_lines_of(args, lines)))
        return true;
    table t;
    if (!table_begin(&t, args, attr->accumulates, offset + n)) return false;
    if (n > 0 && operand_numel(&args->out[0]) > 0) {
        writing w = writing_of(args, &t.operand, &args->in[1]);
        result_axes r;
        result_axes_of(&r, attr, &t.operand, rank, shape);
        writing_axes(&w, &r, &args->in[1]);
        if (attr->n == 1 && n <= FEW_SLOTS && is_of_rows(w) &&
            !(attr->accumulates && !dtype_is_float(t.operand.dtype))) {
            const tl_operand *const list[1] = {&args->in[2]};
            w.ids = axis_ids_of(args, &args->in[2], &t.operand, 0, FAULT_INDEX_PUT);
            w.index_at = geometry_of<1>(list);
        } else {
            if (!find_places(args, args->in + 2, &t.operand, rank, shape, offset, FAULT_INDEX_PUT)) return false;
            w.offset = offset;
        }
        write_all(args, w, &t.operand, attr->accumulates);
    }
    return table_end(&t, args);
}

/* ---- repeat_interleave ------------------------------------------------------------------------------------
 *
 * Counts are cut into tiles, and what is written into parts. Three launches: the sum of each tile, the sum of all
 * tiles before each, and a block for each tile and part that have anything in common. A tile has at least one part, so
 * that block j has the last tile t with
 *
 *     t + before[t] / REPEAT_PART <= j,    and part    j - t.
 *
 * So neither one count of millions nor millions of counts of 0 are the work of one block. The workspace has one int64
 * for each tile.
 */
enum { REPEAT_THREADS = 512, REPEAT_EACH = SELECT_TILE / REPEAT_THREADS, REPEAT_PART = 4096 };
enum { REPEAT_MARKS = REPEAT_PART / REPEAT_THREADS };
static_assert(REPEAT_MARKS * sizeof(uint16_t) == sizeof(uint4), "a thread's marks are one access");

struct repeats {
    const void *counts;
    tl_dtype dtype;
    int64_t stride, n, total, n_tiles;
    int64_t *tiles;
    int64_t *out;
    __device__ int64_t given(int64_t i) const { return i < n ? id_at(counts, dtype, i * stride) : 0; }
    /* No more than there is room for, so that sums do not overflow. */
    __device__ int64_t count(int64_t given) const { return min(max(given, (int64_t)0), total); }
};

__global__ void __launch_bounds__(REPEAT_THREADS) repeat_count(repeats r, struct cuda_fault *fault) {
    const int64_t first = blockIdx.x * (int64_t)SELECT_TILE + threadIdx.x;
    int64_t given[REPEAT_EACH], sum = 0;
#pragma unroll
    for (int k = 0; k < REPEAT_EACH; k++) given[k] = r.given(first + k * REPEAT_THREADS);
#pragma unroll
    for (int k = 0; k < REPEAT_EACH; k++) {
        if (given[k] < 0) fault_raise(fault, FAULT_REPEAT, given[k], first + k * REPEAT_THREADS);
        sum += r.count(given[k]);
    }
    sum = block_reduce(sum, sum_of(), (int64_t)0);
    if (threadIdx.x == 0) r.tiles[blockIdx.x] = sum;
}

/* The tile of this block. */
__device__ inline int64_t repeat_tile(const repeats &r) {
    int64_t low = 0, high = r.n_tiles - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (middle + r.tiles[middle] / REPEAT_PART <= blockIdx.x) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* A mark is the number of an element in its tile, counted from 1, and stands where the part first has it; every other
 * place gets the mark before it. */
__device__ inline void repeat_marks_spread(uint16_t *marks, int64_t *before, int64_t *room) {
    unit<uint16_t, REPEAT_MARKS> own = unit_load<REPEAT_MARKS>(marks, threadIdx.x);
    int64_t last = 0, all;
#pragma unroll
    for (int k = 0; k < REPEAT_MARKS; k++) last = max(last, (int64_t)own.v[k]);
    before[threadIdx.x] = block_scan(last, max_of(), room, &all);
    __syncthreads();
    uint16_t mark = threadIdx.x ? (uint16_t)before[threadIdx.x - 1] : 0;
#pragma unroll
    for (int k = 0; k < REPEAT_MARKS; k++) own.v[k] = mark = max(mark, own.v[k]);
    unit_store<REPEAT_MARKS>(marks, threadIdx.x, own);
    __syncthreads();
}

__global__ void __launch_bounds__(REPEAT_THREADS) repeat_put(repeats r) {
    __shared__ int64_t room[32], counts[REPEAT_THREADS][REPEAT_EACH + 1];
    __shared__ unit<uint16_t, REPEAT_MARKS> of_thread[REPEAT_THREADS];
    uint16_t *const marks = (uint16_t *)of_thread;
    const int64_t tile = repeat_tile(r), first = tile * SELECT_TILE, before = r.tiles[tile];
    const int64_t part = (blockIdx.x - tile) * REPEAT_PART;
#pragma unroll
    for (int k = 0; k < REPEAT_EACH; k++) {
        const int i = k * REPEAT_THREADS + threadIdx.x;
        counts[i / REPEAT_EACH][i % REPEAT_EACH] = r.count(r.given(first + i));
    }
    of_thread[threadIdx.x] = {};
    __syncthreads();
    int64_t sum = 0, all;
#pragma unroll
    for (int k = 0; k < REPEAT_EACH; k++) sum += counts[threadIdx.x][k];
    int64_t at = before + block_scan(sum, sum_of(), room, &all) - sum;
#pragma unroll
    for (int k = 0; k < REPEAT_EACH; k++) {
        const int64_t next = at + counts[threadIdx.x][k];
        if (next > max(at, part) && at < part + REPEAT_PART)
            marks[max(at - part, (int64_t)0)] = (uint16_t)(threadIdx.x * REPEAT_EACH + k + 1);
        at = next;
    }
    __syncthreads();
    repeat_marks_spread(marks, counts[0], room);
    const int64_t end = min(min(before + all, part + REPEAT_PART), r.total);
    for (int64_t i = max(before, part) + threadIdx.x; i < end; i += REPEAT_THREADS)
        r.out[i] = first + marks[i - part] - 1;
}

static bool repeat_all(const tl_kernel_args *args, const repeats &r) {
    const cudaStream_t stream = stream_of(args);
    if (!tiles_fit(args, r.n_tiles, args->workspace_bytes)) return false;
    repeat_count<<<(unsigned)r.n_tiles, REPEAT_THREADS, 0, stream>>>(r, fault_of(args));
    if (r.total == 0) return true;
    select_scan<0><<<1, 1024, 0, stream>>>(r.tiles, r.n_tiles, r.total, nullptr);
    repeat_put<<<(unsigned)(r.n_tiles + r.total / REPEAT_PART), REPEAT_THREADS, 0, stream>>>(r);
    return true;
}

extern "C" {

bool cuda_scatter(const tl_kernel_args *args) { return scatter(args, false); }
bool cuda_scatter_add(const tl_kernel_args *args) { return scatter(args, true); }
bool cuda_index(const tl_kernel_args *args) { return index_fetch(args); }
bool cuda_index_put(const tl_kernel_args *args) { return index_put(args); }

bool cuda_repeat_interleave(const tl_kernel_args *args) {
    const tl_operand *counts = &args->in[0];
    const int64_t n = counts->shape[0], total = ((const struct attr_repeat *)args->attr)->total;
    if (!ids_known(args, counts)) return false;
    if (n == 0) return true;
    return repeat_all(args,
                      {counts->data, counts->dtype, counts->stride[0], n, total, (n + SELECT_TILE - 1) / SELECT_TILE,
                       (int64_t *)args->workspace, (int64_t *)args->out[0].data});
}

} /* extern "C" */
