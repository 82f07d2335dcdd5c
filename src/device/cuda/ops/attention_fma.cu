/* attention_fma.cu: attention and its gradient in f64, and in f32 and 16 bits where no kernel for tensor cores goes
 * (heads wider than 256, cards before 8.0), by tiles of fused multiply-adds.
 *
 * A block has ROWS queries (or keys) of a head, and walks the other side COLUMNS at a time. Its threads form a square:
 * a thread has the scores of a few neighbouring rows and columns, and of the same rows a few columns of the results, so
 * that each number it reads from shared memory serves up to four products. Results of wide heads are made in slices, by
 * as many blocks, each of which computes the scores.
 *
 *   forward   s = scale q k^T + mask; running maximum m and sum l per query; out = sum of p v / (l (1 - dropout))
 *   dK, dV    a block of keys, over the tiles of queries that see it, over the heads of its group
 *   dQ        a block of queries, over its tiles of keys; it also writes the mask's gradient, which is ds
 *
 * with p = exp(s - lse), dp = m g v^T, ds = p (dp - delta); m is 0 or 1/(1 - dropout). Nothing is rounded to fewer bits
 * than those of the sums. No atomics: the same bits each time.
 *
 * Shared memory holds STEP elements of every row and column, then, in the same place, PART columns of v (or k, q, g);
 * and the weights of all scores. While a step is multiplied, registers fetch the next one.
 */
#include "device/cuda/ops/attention.cuh"
#include "device/cuda/shared/common.cuh"

enum { SIDE = 16, THREADS = SIDE * SIDE, QUAD = 4, PART = 64, PART_EACH = PART / SIDE };

/* ---- Shapes ------------------------------------------------------------------------------------------- */

/* At most so many rows that the sums of a thread, of all results, fill 64 registers. */
constexpr int rows_for(int words, int DP, int n_results, int most) {
    int n = most;
    while (n > SIDE && n_results * words * (n / SIDE) * (DP / SIDE) > 64) n /= 2;
    return n;
}

/* T: the operands' dtype. DP: the head size, rounded up, or a slice of it. RESULTS: how many a thread sums at once. */
template <class T, int DP, int RESULTS, int MOST_ROWS = 64> struct tile_shape {
    typedef typename compute_type<T>::type C;
    enum { WORDS = sizeof(C) / 4, ROWS = rows_for(WORDS, DP, RESULTS, MOST_ROWS), COLUMNS = 64 / WORDS };
    enum { STEP = 32 / WORDS, SLICE = DP, PARTS = DP / PART };
    enum { ROW_EACH = ROWS / SIDE, COLUMN_EACH = COLUMNS / SIDE }; /* of a thread */
    enum { BLOCKS = WORDS * DP > 64 ? 1 : 2 };                     /* of a multiprocessor */
};

/* Rows and columns lie turned: a row of shared memory has one element of all heads. */
template <class SHAPE> struct alignas(16) tile_room {
    typedef typename SHAPE::C C;
    union {
        struct {
            C rows[SHAPE::STEP][SHAPE::ROWS], columns[SHAPE::STEP][SHAPE::COLUMNS];
        };
        C part[SHAPE::COLUMNS][PART];
    };
    C weights[SHAPE::COLUMNS][SHAPE::ROWS];
};

/* The EACH rows of a thread are a unit, and a line of shared memory has SIDE of them. In line `line` of those that are
 * written by columns, unit u is at u ^ line: lines that are written at once then go to different banks. */
__device__ inline int turned_unit(int unit, int line) { return unit ^ (line % SIDE); }
template <int EACH> __device__ inline int turned_place(int row, int line) {
    return turned_unit(row / EACH, line) * EACH + row % EACH;
}

/* The first column of results that the block has. */
template <class SHAPE> __device__ inline int slice_begin() { return (int)blockIdx.y * SHAPE::SLICE; }
__device__ inline int thread_row() { return (int)threadIdx.x / SIDE; }
__device__ inline int thread_column() { return (int)threadIdx.x % SIDE; }

/* ---- Rows of a head ----------------------------------------------------------------------------------- */

template <class T> struct head_rows {
    T *data;
    int64_t step; /* from row to row */
    int n, D;
    bool has_quads; /* four elements of a row can be read at once */
};
template <class T>
__device__ inline head_rows<T> rows_of_head(const attention_rows &rows, int64_t b, int64_t h, int64_t n, int64_t D) {
    T *const data = (T *)rows.data + b * rows.stride_b + h * rows.stride_h;
    const bool is_aligned = (uintptr_t)data % alignof(unit<T, QUAD>) == 0;
    return {data, rows.stride_t, (int)n, (int)D, is_aligned && rows.stride_t % QUAD == 0 && D % QUAD == 0};
}

/* Elements d .. d + 3 of a row; zeros beyond the last row and beyond D. */
template <class T> __device__ inline unit<T, QUAD> quad_get(const head_rows<T> &rows, int row, int d) {
    unit<T, QUAD> quad;
#pragma unroll
    for (int j = 0; j < QUAD; j++) quad.v[j] = conversion<T>::from(typename compute_type<T>::type(0));
    if (row >= rows.n || d >= rows.D) return quad;
    const T *const from = rows.data + row * rows.step + d;
    if (rows.has_quads) return *(const unit<T, QUAD> *)from;
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        if (d + j < rows.D) quad.v[j] = from[j];
    return quad;
}
template <class T> __device__ inline void quad_put(const head_rows<T> &rows, int row, int d, const unit<T, QUAD> &x) {
    if (row >= rows.n || d >= rows.D) return;
    T *const to = rows.data + row * rows.step + d;
    if (rows.has_quads) *(unit<T, QUAD> *)to = x;
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        if (!rows.has_quads && d + j < rows.D) to[j] = x.v[j];
}

/* N rows of WIDTH elements on their way to shared memory, in the registers of a block. */
template <class T, int N, int WIDTH> struct held_tile {
    typedef typename compute_type<T>::type C;
    enum { PER_ROW = WIDTH / QUAD, QUADS = N * PER_ROW, EACH = (QUADS + THREADS - 1) / THREADS };
    unit<T, QUAD> quad[EACH];

    static __device__ int number(int k) { return (int)threadIdx.x + k * THREADS; }
    static __device__ bool is_there(int k) { return QUADS % THREADS == 0 || number(k) < QUADS; }
    __device__ void fetch(const head_rows<T> &rows, int first, int d) {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (is_there(k)) quad[k] = quad_get(rows, first + number(k) / PER_ROW, d + number(k) % PER_ROW * QUAD);
    }
    __device__ void put(C (*to)[WIDTH]) const {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            unit<C, QUAD> wide;
#pragma unroll
            for (int j = 0; j < QUAD; j++) wide.v[j] = value_of<C>(quad[k].v[j]);
            if (is_there(k)) unit_store<QUAD>(to[number(k) / PER_ROW], number(k) % PER_ROW, wide);
        }
    }
    __device__ void put_turned(C (*to)[N]) const {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int row = number(k) / PER_ROW, part = number(k) % PER_ROW;
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                if (is_there(k)) to[part * QUAD + j][turned_place<N / SIDE>(row, part)] = value_of<C>(quad[k].v[j]);
        }
    }
};

/* ---- Products ----------------------------------------------------------------------------------------- */

/* The thread's scores: rows from `first_row` on by columns from `first_column` on, over their heads. */
template <class SHAPE, class T>
__device__ inline void tile_multiply(typename SHAPE::C (&s)[SHAPE::ROW_EACH][SHAPE::COLUMN_EACH],
                                     tile_room<SHAPE> &room, const head_rows<T> &rows, int first_row,
                                     const head_rows<T> &columns, int first_column) {
    typedef typename SHAPE::C C;
    held_tile<T, SHAPE::ROWS, SHAPE::STEP> x;
    held_tile<T, SHAPE::COLUMNS, SHAPE::STEP> y;
    x.fetch(rows, first_row, 0), y.fetch(columns, first_column, 0);
#pragma unroll
    for (int r = 0; r < SHAPE::ROW_EACH; r++)
#pragma unroll
        for (int c = 0; c < SHAPE::COLUMN_EACH; c++) s[r][c] = 0;
    for (int d = 0; d < rows.D; d += SHAPE::STEP) {
        __syncthreads(); /* what lies there has been read */
        x.put_turned(room.rows), y.put_turned(room.columns);
        __syncthreads();
        if (d + SHAPE::STEP < rows.D)
            x.fetch(rows, first_row, d + SHAPE::STEP), y.fetch(columns, first_column, d + SHAPE::STEP);
#pragma unroll 16
        for (int i = 0; i < SHAPE::STEP; i++) {
            const int line = i / QUAD;
            const unit<C, SHAPE::ROW_EACH> u =
                unit_load<SHAPE::ROW_EACH>(room.rows[i], turned_unit(thread_row(), line));
            const unit<C, SHAPE::COLUMN_EACH> v =
                unit_load<SHAPE::COLUMN_EACH>(room.columns[i], turned_unit(thread_column(), line));
#pragma unroll
            for (int r = 0; r < SHAPE::ROW_EACH; r++)
#pragma unroll
                for (int c = 0; c < SHAPE::COLUMN_EACH; c++) s[r][c] = fma_of(u.v[r], v.v[c], s[r][c]);
        }
    }
}

/* The thread's share of a result, of heads in parts. */
template <class SHAPE> struct tile_sums {
    typename SHAPE::C of[SHAPE::PARTS][SHAPE::ROW_EACH][PART_EACH];

    __device__ void clear() {
#pragma unroll
        for (int p = 0; p < SHAPE::PARTS; p++)
#pragma unroll
            for (int r = 0; r < SHAPE::ROW_EACH; r++)
#pragma unroll
                for (int c = 0; c < PART_EACH; c++) of[p][r][c] = 0;
    }
    __device__ void scale_row(int r, typename SHAPE::C factor) {
#pragma unroll
        for (int p = 0; p < SHAPE::PARTS; p++)
#pragma unroll
            for (int c = 0; c < PART_EACH; c++) of[p][r][c] *= factor;
    }
    /* Row r of the thread is that of a head from first_row on. */
    template <class T> __device__ void put(const head_rows<T> &rows, int first_row) const {
#pragma unroll
        for (int r = 0; r < SHAPE::ROW_EACH; r++)
#pragma unroll
            for (int p = 0; p < SHAPE::PARTS; p++) {
                unit<T, QUAD> quad;
#pragma unroll
                for (int c = 0; c < PART_EACH; c++) quad.v[c] = conversion<T>::from(of[p][r][c]);
                quad_put(rows, first_row + r, slice_begin<SHAPE>() + p * PART + thread_column() * PART_EACH, quad);
            }
    }
};
static_assert(PART_EACH == QUAD, "a thread's part of a row is written at once");

/* The weights of the thread's scores, for all threads. The last ones must have been read. */
template <class SHAPE>
__device__ inline void weights_put(tile_room<SHAPE> &room,
                                   const typename SHAPE::C (&s)[SHAPE::ROW_EACH][SHAPE::COLUMN_EACH]) {
#pragma unroll
    for (int c = 0; c < SHAPE::COLUMN_EACH; c++) {
        unit<typename SHAPE::C, SHAPE::ROW_EACH> own;
#pragma unroll
        for (int r = 0; r < SHAPE::ROW_EACH; r++) own.v[r] = s[r][c];
        unit_store<SHAPE::ROW_EACH>(room.weights[thread_column() * SHAPE::COLUMN_EACH + c],
                                    turned_unit(thread_row(), thread_column()), own);
    }
}

/* sums += weights (ROWS, COLUMNS) by the columns' heads, (COLUMNS, SLICE). */
template <class SHAPE, class T>
__device__ inline void tile_add(tile_sums<SHAPE> &sums, tile_room<SHAPE> &room, const head_rows<T> &columns,
                                int first_column) {
    typedef typename SHAPE::C C;
#pragma unroll
    for (int p = 0; p < SHAPE::PARTS; p++) {
        const int d = slice_begin<SHAPE>() + p * PART;
        if (d >= columns.D) continue;
        held_tile<T, SHAPE::COLUMNS, PART> z;
        z.fetch(columns, first_column, d);
        __syncthreads(); /* what lies there has been read */
        z.put(room.part);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < SHAPE::COLUMNS; k++) {
            const unit<C, SHAPE::ROW_EACH> w =
                unit_load<SHAPE::ROW_EACH>(room.weights[k], turned_unit(thread_row(), k / SHAPE::COLUMN_EACH));
            const unit<C, PART_EACH> v = unit_load<PART_EACH>(room.part[k], thread_column());
#pragma unroll
            for (int r = 0; r < SHAPE::ROW_EACH; r++)
#pragma unroll
                for (int c = 0; c < PART_EACH; c++) sums.of[p][r][c] = fma_of(w.v[r], v.v[c], sums.of[p][r][c]);
        }
    }
}

/* Over the threads that share rows. */
template <class C, class F> __device__ inline C row_reduce(C x, F f) {
#pragma unroll
    for (int away = SIDE / 2; away > 0; away /= 2) x = f(x, __shfl_xor_sync(ALL_LANES, x, away));
    return x;
}

/* ---- Dropout ------------------------------------------------------------------------------------------ */

/* Which of keys s .. s + N - 1 query `row` = (b H + h) T + t keeps; s is a multiple of N, which divides 8. */
template <int N> __device__ inline unsigned keys_kept(const tile_mask &mask, int64_t row, int s) {
    const uint64_t block = mask.first + (uint64_t)row * mask.row_blocks + (unsigned)s / 8;
    const rng_block draws = block_draw(mask, block);
    const uint32_t dropped =
        mask.is_most ? eight_dropped<true>(mask.shift, draws, 0) : eight_dropped<false>(mask.shift, draws, 0);
    unsigned kept = 0;
#pragma unroll
    for (int j = 0; j < N; j++) kept |= (~dropped >> (8 * ((s + j) % 4) + (s + j) % 8 / 4) & 1u) << j;
    return kept;
}

/* ---- Forward ------------------------------------------------------------------------------------------ */

/* Where a block of queries is, and which keys it walks. */
struct query_block {
    int64_t head, b, h, h_kv;
    int begin, first; /* the block's first query, the thread's */
    int from, to;     /* the keys that any of them sees */
};
template <class SHAPE> __device__ inline query_block query_block_of(const attention_call &a, int64_t n) {
    query_block q;
    q.head = blockIdx.x / n, q.b = q.head / a.H, q.h = q.head % a.H, q.h_kv = q.h / (a.H / a.H_kv);
    q.begin = (int)(n - 1 - blockIdx.x % n) * SHAPE::ROWS; /* the longest first */
    q.first = q.begin + thread_row() * SHAPE::ROW_EACH;
    const int64_t last = min((int64_t)q.begin + SHAPE::ROWS, a.T) - 1;
    q.from = (int)first_key(a, q.b, q.begin) / SHAPE::COLUMNS * SHAPE::COLUMNS, q.to = (int)visible_keys(a, last);
    return q;
}

/* The keys that each of the thread's queries sees: from .. to - 1. */
template <int N> struct thread_sight {
    int from[N], to[N];
    __device__ bool sees(int r, int s) const { return s >= from[r] && s < to[r]; }
};
template <int N> __device__ inline thread_sight<N> sight_of_queries(const attention_call &a, int64_t b, int first) {
    thread_sight<N> own;
#pragma unroll
    for (int r = 0; r < N; r++) {
        const bool is_there = first + r < a.T;
        own.from[r] = is_there ? (int)first_key(a, b, first + r) : 0;
        own.to[r] = is_there ? (int)visible_keys(a, first + r) : 0;
    }
    return own;
}

/* From scores to weights, before they are divided by their sum: shrinks what was summed with a smaller maximum. */
template <class SHAPE>
__device__ inline void row_weights(typename SHAPE::C (&s)[SHAPE::COLUMN_EACH], typename SHAPE::C &top,
                                   typename SHAPE::C &total, tile_sums<SHAPE> &sums, int r) {
    typedef typename SHAPE::C C;
    C most = lowest<C>();
#pragma unroll
    for (int c = 0; c < SHAPE::COLUMN_EACH; c++) most = max_of()(most, s[c]);
    most = max_of()(top, row_reduce(most, max_of()));
    const C shift = most == lowest<C>() ? C(0) : most, shrink = exp_of(top - shift);
    top = most;
    total *= shrink;
    sums.scale_row(r, shrink);
#pragma unroll
    for (int c = 0; c < SHAPE::COLUMN_EACH; c++) {
        s[c] = s[c] == lowest<C>() ? C(0) : exp_of(s[c] - shift);
        total += s[c];
    }
}

template <class T, class SHAPE>
__global__ void __launch_bounds__(THREADS, SHAPE::BLOCKS) fma_forward(attention_call a, tile_mask mask, int64_t n) {
    typedef typename SHAPE::C C;
    enum { ROW_EACH = SHAPE::ROW_EACH, COLUMN_EACH = SHAPE::COLUMN_EACH };
    __shared__ tile_room<SHAPE> room;
    const query_block at = query_block_of<SHAPE>(a, n);
    const thread_sight<ROW_EACH> own = sight_of_queries<ROW_EACH>(a, at.b, at.first);
    const head_rows<T> q = rows_of_head<T>(a.q, at.b, at.h, a.T, a.D),
                       k = rows_of_head<T>(a.k, at.b, at.h_kv, a.S, a.D),
                       v = rows_of_head<T>(a.v, at.b, at.h_kv, a.S, a.D);
    tile_sums<SHAPE> sums;
    C top[ROW_EACH], total[ROW_EACH];
    sums.clear();
#pragma unroll
    for (int r = 0; r < ROW_EACH; r++) top[r] = lowest<C>(), total[r] = 0;
    for (int s0 = at.from; s0 < at.to; s0 += SHAPE::COLUMNS) {
        C s[ROW_EACH][COLUMN_EACH];
        const int key = s0 + thread_column() * COLUMN_EACH;
        tile_multiply<SHAPE>(s, room, q, at.begin, k, s0);
#pragma unroll
        for (int r = 0; r < ROW_EACH; r++) {
#pragma unroll
            for (int c = 0; c < COLUMN_EACH; c++)
                s[r][c] = own.sees(r, key + c) ? score_of(a, at.b, at.h, at.first + r, key + c, s[r][c]) : lowest<C>();
            row_weights<SHAPE>(s[r], top[r], total[r], sums, r);
            if (!mask.drops) continue;
            const unsigned kept = keys_kept<COLUMN_EACH>(mask, at.head * a.T + at.first + r, key);
#pragma unroll
            for (int c = 0; c < COLUMN_EACH; c++)
                if (!(kept >> c & 1)) s[r][c] = 0;
        }
        weights_put(room, s);
        tile_add(sums, room, v, s0);
    }
#pragma unroll
    for (int r = 0; r < ROW_EACH; r++) {
        const C all = row_reduce(total[r], sum_of());
        const int t = at.first + r;
        sums.scale_row(r, all == C(0) ? C(0) : C(1 / (1 - a.dropout)) / all);
        if (thread_column() == 0 && blockIdx.y == 0 && t < a.T)
            ((C *)a.lse)[at.head * a.T + t] = all == C(0) ? lowest<C>() : top[r] + log_of(all);
    }
    sums.put(rows_of_head<T>(a.out, at.b, at.h, a.T, a.D), at.first);
}

/* ---- Backward ----------------------------------------------------------------------------------------- */

/* What the gradients need of query `row` = (b H + h) T + t. */
template <class C> struct query_totals { C lse, delta; };
template <class C>
__device__ inline query_totals<C> totals_of(const attention_call &a, const C *delta, int64_t row, bool is_there) {
    if (!is_there) return {0, 0};
    return {((const C *)a.lse)[row], delta[row]};
}

/* p, ds, and the gradient of the scaled product that the score was made of. */
template <class C> struct score_gradient { C weight, ds, d_dot; };
template <class C>
__device__ inline score_gradient<C> gradient_of(const attention_call &a, int64_t b, int64_t h, int64_t t, int64_t s,
                                                C dot, C dp, const query_totals<C> &of_query, bool is_kept) {
    const C score = score_of(a, b, h, t, s, dot);
    if (score == lowest<C>()) return {0, 0, 0};
    const C p = exp_of(score - of_query.lse), growth = C(1 / (1 - a.dropout));
    const C ds = p * ((is_kept ? growth * dp : C(0)) - of_query.delta);
    return {is_kept ? p : C(0), ds, ds * cap_slope(a, dot)};
}

template <class T, class SHAPE>
__global__ void __launch_bounds__(THREADS, SHAPE::BLOCKS)
    fma_keys(attention_call a, tile_mask mask, const typename SHAPE::C *delta, int64_t n) {
    typedef typename SHAPE::C C;
    enum { ROW_EACH = SHAPE::ROW_EACH, COLUMN_EACH = SHAPE::COLUMN_EACH };
    __shared__ tile_room<SHAPE> room;
    const int64_t head = blockIdx.x / n, b = head / a.H_kv, h_kv = head % a.H_kv, group = a.H / a.H_kv;
    const int begin = (int)(blockIdx.x % n) * SHAPE::ROWS, first = begin + thread_row() * ROW_EACH;
    const int64_t last = min((int64_t)begin + SHAPE::ROWS, a.S) - 1;
    const int from = (int)first_query(a, begin), to = (int)end_query(a, b, last);
    const head_rows<T> k = rows_of_head<T>(a.k, b, h_kv, a.S, a.D), v = rows_of_head<T>(a.v, b, h_kv, a.S, a.D);
    tile_sums<SHAPE> dk, dv;
    dk.clear(), dv.clear();
    for (int64_t h = h_kv * group; h < (h_kv + 1) * group; h++) {
        const head_rows<T> q = rows_of_head<T>(a.q, b, h, a.T, a.D), g = rows_of_head<T>(a.g, b, h, a.T, a.D);
        for (int t0 = from; t0 < to; t0 += SHAPE::COLUMNS) {
            C s[ROW_EACH][COLUMN_EACH], ds[ROW_EACH][COLUMN_EACH];
            tile_multiply<SHAPE>(s, room, k, begin, q, t0);
            tile_multiply<SHAPE>(ds, room, v, begin, g, t0);
#pragma unroll
            for (int c = 0; c < COLUMN_EACH; c++) {
                const int t = t0 + thread_column() * COLUMN_EACH + c;
                const int64_t row = (b * a.H + h) * a.T + t;
                const thread_sight<1> of_keys = sight_of_queries<1>(a, b, t);
                const query_totals<C> of_query = totals_of(a, delta, row, t < a.T);
                const unsigned kept = mask.drops && t < a.T ? keys_kept<ROW_EACH>(mask, row, first) : ~0u;
#pragma unroll
                for (int r = 0; r < ROW_EACH; r++) {
                    const score_gradient<C> own =
                        of_keys.sees(0, first + r)
                            ? gradient_of(a, b, h, t, first + r, s[r][c], ds[r][c], of_query, kept >> r & 1)
                            : score_gradient<C>{0, 0, 0};
                    s[r][c] = own.weight, ds[r][c] = own.d_dot;
                }
            }
            weights_put(room, s);
            tile_add(dv, room, g, t0);
            __syncthreads(); /* the weights have been read */
            weights_put(room, ds);
            tile_add(dk, room, q, t0);
        }
    }
#pragma unroll
    for (int r = 0; r < ROW_EACH; r++) dk.scale_row(r, C(a.scale)), dv.scale_row(r, C(1 / (1 - a.dropout)));
    dk.put(rows_of_head<T>(a.dk, b, h_kv, a.S, a.D), first);
    dv.put(rows_of_head<T>(a.dv, b, h_kv, a.S, a.D), first);
}

template <class T, class SHAPE>
__global__ void __launch_bounds__(THREADS, SHAPE::BLOCKS)
    fma_queries(attention_call a, tile_mask mask, const typename SHAPE::C *delta, int64_t n) {
    typedef typename SHAPE::C C;
    enum { ROW_EACH = SHAPE::ROW_EACH, COLUMN_EACH = SHAPE::COLUMN_EACH };
    __shared__ tile_room<SHAPE> room;
    query_block at = query_block_of<SHAPE>(a, n);
    if (a.dmask) at.from = 0, at.to = (int)a.S; /* its zeros are written, too */
    const thread_sight<ROW_EACH> own = sight_of_queries<ROW_EACH>(a, at.b, at.first);
    const head_rows<T> q = rows_of_head<T>(a.q, at.b, at.h, a.T, a.D), g = rows_of_head<T>(a.g, at.b, at.h, a.T, a.D),
                       k = rows_of_head<T>(a.k, at.b, at.h_kv, a.S, a.D),
                       v = rows_of_head<T>(a.v, at.b, at.h_kv, a.S, a.D);
    const int64_t row = at.head * a.T + at.first;
    query_totals<C> of_query[ROW_EACH];
    tile_sums<SHAPE> dq;
    dq.clear();
#pragma unroll
    for (int r = 0; r < ROW_EACH; r++) of_query[r] = totals_of(a, delta, row + r, at.first + r < a.T);
    for (int s0 = at.from; s0 < at.to; s0 += SHAPE::COLUMNS) {
        C s[ROW_EACH][COLUMN_EACH], ds[ROW_EACH][COLUMN_EACH];
        const int key = s0 + thread_column() * COLUMN_EACH;
        tile_multiply<SHAPE>(s, room, q, at.begin, k, s0);
        tile_multiply<SHAPE>(ds, room, g, at.begin, v, s0);
#pragma unroll
        for (int r = 0; r < ROW_EACH; r++) {
            const int t = at.first + r;
            const unsigned kept = mask.drops && t < a.T ? keys_kept<COLUMN_EACH>(mask, row + r, key) : ~0u;
#pragma unroll
            for (int c = 0; c < COLUMN_EACH; c++) {
                const score_gradient<C> one = own.sees(r, key + c) ? gradient_of(a, at.b, at.h, t, key + c, s[r][c],
                                                                                 ds[r][c], of_query[r], kept >> c & 1)
                                                                   : score_gradient<C>{0, 0, 0};
                ds[r][c] = one.d_dot;
                if (a.dmask && blockIdx.y == 0 && t < a.T && key + c < a.S)
                    store_as<C>(a.dmask, (row + r) * a.S + key + c, a.mask_dtype, one.ds);
            }
        }
        weights_put(room, ds);
        tile_add(dq, room, k, s0);
    }
#pragma unroll
    for (int r = 0; r < ROW_EACH; r++) dq.scale_row(r, C(a.scale));
    dq.put(rows_of_head<T>(a.dq, at.b, at.h, a.T, a.D), at.first);
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static int64_t tiles_of(int64_t n, int rows) { return (n + rows - 1) / rows; }
template <class SHAPE> static dim3 blocks_of(int64_t n_tiles, int64_t n_heads, const attention_call &a) {
    return dim3((unsigned)(n_tiles * n_heads), (unsigned)max(tiles_of(a.D, SHAPE::SLICE), (int64_t)1));
}

template <class T, class SHAPE> static void forward_launch(const tl_kernel_args *args, const attention_call &a) {
    const int64_t n = tiles_of(a.T, SHAPE::ROWS);
    fma_forward<T, SHAPE><<<blocks_of<SHAPE>(n, a.B * a.H, a), THREADS, 0, stream_of(args)>>>(a, mask_of(a), n);
}

template <class T, int DP> static void backward_launch(const tl_kernel_args *args, const attention_call &a) {
    typedef tile_shape<T, DP, 1> query_shape;
    typedef tile_shape<T, DP, 2> key_shape;
    const int64_t n_keys = tiles_of(a.S, key_shape::ROWS), n_queries = tiles_of(a.T, query_shape::ROWS);
    const typename key_shape::C *const delta = (const typename key_shape::C *)args->workspace;
    const dim3 keys = blocks_of<key_shape>(n_keys, a.B * a.H_kv, a),
               queries = blocks_of<query_shape>(n_queries, a.B * a.H, a);
    if (n_keys > 0) fma_keys<T, key_shape><<<keys, THREADS, 0, stream_of(args)>>>(a, mask_of(a), delta, n_keys);
    fma_queries<T, query_shape><<<queries, THREADS, 0, stream_of(args)>>>(a, mask_of(a), delta, n_queries);
}

/* A few queries, as in decoding, get a block of few rows. */
template <class T, bool BACKWARD, int DP> static void launch(const tl_kernel_args *args, const attention_call &a) {
    if (BACKWARD) backward_launch<T, DP>(args, a);
    else if (a.T <= SIDE) forward_launch<T, tile_shape<T, DP, 1, SIDE>>(args, a);
    else forward_launch<T, tile_shape<T, DP, 1>>(args, a);
}
/* In slices of 128, but by the head size in f32, which is what these kernels are for. */
template <class T, bool BACKWARD> static bool launch_sliced(const tl_kernel_args *args, const attention_call &a) {
    launch<T, BACKWARD, 128>(args, a);
    return true;
}
template <bool BACKWARD> static bool launch_f32(const tl_kernel_args *args, const attention_call &a) {
    if (a.D <= 64) launch<float, BACKWARD, 64>(args, a);
    else if (a.D <= 128) launch<float, BACKWARD, 128>(args, a);
    else launch<float, BACKWARD, 256>(args, a);
    return true;
}
template <bool BACKWARD> static bool dispatch(const tl_kernel_args *args, const attention_call *call) {
    switch (call->dtype) {
    case TL_F64:
        return launch_sliced<double, BACKWARD>(args, *call);
    case TL_F32:
        return launch_f32<BACKWARD>(args, *call);
    case TL_BF16:
        return launch_sliced<bf16, BACKWARD>(args, *call);
    default:
        return launch_sliced<f16, BACKWARD>(args, *call);
    }
}

extern "C" {

bool attention_fma_fits(const attention_call *call) {
    const int64_t longest = call->T > call->S ? call->T : call->S, n = tiles_of(longest, SIDE);
    return call->D <= ATTENTION_WIDEST_HEAD && longest < INT32_MAX - THREADS &&
           call->B * call->H <= INT32_MAX / (n + 1);
}

bool attention_fma_forward(const tl_kernel_args *args, const attention_call *call) {
    return dispatch<false>(args, call);
}
bool attention_fma_backward(const tl_kernel_args *args, const attention_call *call) {
    return attention_own_delta(args, call) && dispatch<true>(args, call);
}

} /* extern "C" */
