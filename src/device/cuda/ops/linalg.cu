/* linalg.cu: factorisations by elimination and by reflections, and solutions with them. Read linalg.cuh first.
 *
 * cuSOLVER is not used. What it needs as workspace is known only when the library is asked on the card, and differs
 * between its versions, so a price could not name it. These are the textbook's algorithms (Golub and Van Loan) in f64,
 * in columns of PANEL: one block factors a panel of a matrix, and the rest of the matrix is brought up to date by a
 * product, with all blocks.
 *
 * Calls that may fail wait for the device, as PyTorch's do: the error comes from the call that made it. The forms with
 * `info` do not wait.
 */
#include "device/cuda/ops/linalg.cuh"
#include "spec/linalg.h"

#include <stdlib.h>

enum { PANEL = 32, PANEL_THREADS = 512 };

/* A part of the slot's matrix: element (i,j) is at offset + i row + j column. */
struct place {
    int64_t offset, row, column;
};
__device__ inline double *place_at(double *base, const place &p, int64_t i, int64_t j) {
    return base + p.offset + i * p.row + j * p.column;
}

/* ---- Steps ---- */

/* c (m,n) -= a (m,k) b (k,n), k at most PANEL. A block has a tile of PANEL x PANEL, a thread four elements of a row. */
static __global__ void __launch_bounds__(BLOCK)
    product_subtract(slots s, place c, place a, place b, int64_t m, int64_t n, int k) {
    __shared__ double left[PANEL][PANEL + 1], right[PANEL][PANEL + 1]; /* [k][i], [k][j] */
    double *base = slot_at(s, 0);
    const int x = threadIdx.x % PANEL, y = threadIdx.x / PANEL, step = BLOCK / PANEL;
    const int64_t n_down = (m + PANEL - 1) / PANEL, n_tiles = n_down * ((n + PANEL - 1) / PANEL);
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        const int64_t i0 = tile % n_down * PANEL, j0 = tile / n_down * PANEL;
        __syncthreads(); /* the tile before is done */
        for (int r = y; r < PANEL; r += step) {
            left[r][x] = r < k && i0 + x < m ? *place_at(base, a, i0 + x, r) : 0;
            right[x][r] = x < k && j0 + r < n ? *place_at(base, b, x, j0 + r) : 0;
        }
        __syncthreads();
        for (int r = y; r < PANEL; r += step) {
            if (i0 + x >= m || j0 + r >= n) continue;
            double sum = 0;
            for (int l = 0; l < k; l++) sum += left[l][x] * right[l][r];
            *place_at(base, c, i0 + x, j0 + r) -= sum;
        }
    }
}
static void subtract(const slots &s, place c, place a, place b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    if (m <= 0 || n <= 0 || k <= 0) return;
    const int64_t n_tiles = (m + PANEL - 1) / PANEL * ((n + PANEL - 1) / PANEL);
    product_subtract<<<grid_of(s, n_tiles), BLOCK, 0, stream>>>(s, c, a, b, m, n, (int)k);
}

/* b (n,k) = a^-1 b with a triangular a (n,n), n at most PANEL; a thread has a column. */
static __global__ void triangle_solve(slots s, place a, place b, int n, int64_t k, bool upper, bool is_unit) {
    __shared__ double triangle[PANEL][PANEL + 1];
    double *base = slot_at(s, 0);
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) triangle[e % n][e / n] = *place_at(base, a, e % n, e / n);
    __syncthreads();
    FOR_EACH(j, k) {
        for (int step = 0; step < n; step++) {
            const int i = upper ? n - 1 - step : step, from = upper ? i + 1 : 0, to = upper ? n : i;
            double x = *place_at(base, b, i, j);
            for (int r = from; r < to; r++) x -= triangle[i][r] * *place_at(base, b, r, j);
            *place_at(base, b, i, j) = is_unit ? x : x / triangle[i][i];
        }
    }
}

/* b (n,k) = a^-1 b with a triangular a (n,n), both column-major, b with n rows: blocks of PANEL rows in turn. */
static void triangular(const slots &s, int64_t a, int64_t b, int64_t n, int64_t k, bool upper, bool is_unit,
                       cudaStream_t stream) {
    if (!n || !k) return;
    const int64_t n_blocks = (n + PANEL - 1) / PANEL;
    for (int64_t step = 0; step < n_blocks; step++) {
        const int64_t from = (upper ? n_blocks - 1 - step : step) * PANEL, to = linalg_least(from + PANEL, n),
                      size = to - from;
        const place diagonal = {a + from + from * n, 1, n}, own = {b + from, 1, n};
        triangle_solve<<<grid_for(s, k), BLOCK, 0, stream>>>(s, diagonal, own, (int)size, k, upper, is_unit);
        const int64_t rest = upper ? 0 : to, n_rest = upper ? from : n - to;
        subtract(s, {b + rest, 1, n}, {a + rest + from * n, 1, n}, own, n_rest, k, size, stream);
    }
}

/* ---- cholesky ---- */

/* Columns [from, to) of a (n,n), on and below the diagonal; info counts from 1. One block for each slot. */
static __global__ void cholesky_panel(slots s, int64_t n, int64_t from, int64_t to, int32_t *info) {
    double *a = slot_at(s, 0);
    if (info[slot_matrix(s)]) return;
    for (int64_t j = from; j < to; j++) {
        double *column = a + j * n;
        __syncthreads(); /* the updates of this column */
        const double pivot = column[j];
        __syncthreads(); /* all have read it */
        if (!(pivot > 0)) {
            if (threadIdx.x == 0) info[slot_matrix(s)] = (int32_t)(j + 1);
            return;
        }
        const double root = sqrt(pivot);
        if (threadIdx.x == 0) column[j] = root;
        for (int64_t i = j + 1 + threadIdx.x; i < n; i += blockDim.x) column[i] /= root;
        __syncthreads();
        const int64_t n_below = n - j - 1;
        for (int64_t e = threadIdx.x; e < n_below * (to - j - 1); e += blockDim.x) {
            const int64_t i = j + 1 + e % n_below, c = j + 1 + e / n_below;
            if (i >= c) a[i + c * n] -= column[i] * column[c];
        }
    }
}

/* ---- lu ---- */

/* Columns [from, to) of a (m,n) with the largest element as pivot, the first of equal ones; rows are swapped within
 * the panel. pivots and info count from 1. One block for each slot. */
static __global__ void lu_panel(slots s, int64_t m, int64_t from, int64_t to, int32_t *pivots, int64_t pivots_pitch,
                                int32_t *info) {
    double *a = slot_at(s, 0);
    for (int64_t j = from; j < to; j++) {
        double *column = a + j * m, largest = -1;
        int64_t at = j;
        __syncthreads(); /* the updates of this column */
        for (int64_t i = j + threadIdx.x; i < m; i += blockDim.x)
            if (fabs(column[i]) > largest) {
                largest = fabs(column[i]);
                at = i;
            }
        const double most = block_reduce(largest, max_of(), -1.0);
        at = block_reduce(largest == most ? at : INT64_MAX, min_of(), (int64_t)INT64_MAX);
        for (int64_t c = from + threadIdx.x; c < to && at != j; c += blockDim.x) {
            const double kept = a[j + c * m];
            a[j + c * m] = a[at + c * m];
            a[at + c * m] = kept;
        }
        __syncthreads();
        const double pivot = column[j];
        if (threadIdx.x == 0) {
            pivots[blockIdx.y * pivots_pitch + j] = (int32_t)(at + 1);
            if (info && pivot == 0 && !info[slot_matrix(s)]) info[slot_matrix(s)] = (int32_t)(j + 1);
        }
        for (int64_t i = j + 1 + threadIdx.x; i < m && pivot != 0; i += blockDim.x) column[i] /= pivot;
        __syncthreads();
        const int64_t n_below = m - j - 1;
        for (int64_t e = threadIdx.x; e < n_below * (to - j - 1); e += blockDim.x) {
            const int64_t i = j + 1 + e % n_below, c = j + 1 + e / n_below;
            a[i + c * m] -= column[i] * a[j + c * m];
        }
    }
}

/* Rows j in [from, to) and pivots[j] - 1 change places, the first first, in the columns [0, n) without [skip, skip_end)
 * of a matrix of m rows; a thread has a column. */
static __global__ void rows_swap(slots s, int64_t a, int64_t m, int64_t n, int64_t from, int64_t to, int64_t skip,
                                 int64_t skip_end, const int32_t *pivots, int64_t pivots_pitch) {
    FOR_EACH(c, n) {
        if (c >= skip && c < skip_end) continue;
        double *column = slot_at(s, a) + c * m;
        for (int64_t j = from; j < to; j++) {
            const int64_t other = pivots[blockIdx.y * pivots_pitch + j] - 1;
            const double kept = column[j];
            column[j] = column[other];
            column[other] = kept;
        }
    }
}

/* a (m,n) at the slots' begin becomes L, without its diagonal, and U. pivots: those of the first slot. */
static void factor(const slots &s, int64_t m, int64_t n, int32_t *pivots, int64_t pivots_pitch, int32_t *info,
                   cudaStream_t stream) {
    const int64_t k = linalg_least(m, n);
    for (int64_t from = 0; from < k; from += PANEL) {
        const int64_t to = linalg_least(from + PANEL, k), size = to - from;
        const place own = {from + from * m, 1, m}, right = {from + to * m, 1, m}, below = {to + from * m, 1, m};
        lu_panel<<<grid_of(s, 1), PANEL_THREADS, 0, stream>>>(s, m, from, to, pivots, pivots_pitch, info);
        rows_swap<<<grid_for(s, n), BLOCK, 0, stream>>>(s, 0, m, n, from, to, from, to, pivots, pivots_pitch);
        if (to >= n) continue;
        triangle_solve<<<grid_for(s, n - to), BLOCK, 0, stream>>>(s, own, right, (int)size, n - to, false, true);
        subtract(s, {to + to * m, 1, m}, below, right, m - to, n - to, size, stream);
    }
}

/* ---- Calls ---- */

/* `info`, one for each matrix; false where one is not 0, and the text says which, with its info for '%'. */
static bool info_check(const tl_kernel_args *args, const tl_operand *info, const char *text) {
    const int64_t n = matrix_count(&args->in[0]);
    int32_t *host = n ? (int32_t *)malloc((size_t)n * sizeof *host) : NULL;
    if (n && !host) return snprintf(args->error, CUDA_ERROR_BYTES, "no memory for the results of a check") < 0;
    const cudaStream_t stream = stream_of(args);
    bool ok =
        !n || (cuda_check(cudaMemcpyAsync(host, info->data, (size_t)n * sizeof *host, cudaMemcpyDeviceToHost, stream),
                          args->op, args->error) &&
               cuda_check(cudaStreamSynchronize(stream), args->op, args->error));
    for (int64_t i = 0; ok && i < n; i++)
        if (host[i]) ok = matrix_fail(args, i, host[i], text);
    free(host);
    return ok;
}

/* What a call on one matrix after the other has in common. */
struct call {
    const tl_kernel_args *args;
    cudaStream_t stream;
    matrices a;
    int64_t n_matrices, n_slots;
    slots s;
};
static call call_of(const tl_kernel_args *args, struct matrix_room room) {
    call c = {args,
              stream_of(args),
              matrices_of(&args->in[0]),
              matrix_count(&args->in[0]),
              0,
              {(double *)args->workspace, room.all, 0, 0}};
    c.n_slots = matrix_slots(c.n_matrices, room.all);
    return c;
}
static bool call_next(call *c) { return slots_next(&c->s, c->n_matrices, c->n_slots); }
static bool info_clear(const call *c, const tl_operand *info) {
    return c->n_matrices == 0 || cuda_check(cudaMemsetAsync(info->data, 0, (size_t)c->n_matrices * 4, c->stream),
                                            c->args->op, c->args->error);
}
static bool checks(const tl_kernel_args *args) { return ((const struct attr_factor *)args->attr)->checks; }

extern "C" bool cuda_cholesky(const tl_kernel_args *args) {
    call c =
        call_of(args, room_factor(args->in[0].shape[args->in[0].rank - 1], args->in[0].shape[args->in[0].rank - 1]));
    const int64_t n = c.a.n;
    int32_t *info = (int32_t *)args->out[1].data;
    if (!info_clear(&c, &args->out[1])) return false;
    while (call_next(&c)) {
        read_operand(c.s, 0, c.a, PART_ALL, c.stream);
        for (int64_t from = 0; from < n; from += PANEL) {
            const int64_t to = linalg_least(from + PANEL, n);
            cholesky_panel<<<grid_of(c.s, 1), PANEL_THREADS, 0, c.stream>>>(c.s, n, from, to, info);
            const place below = {to + from * n, 1, n}, across = {to + from * n, n, 1}; /* and its transpose */
            subtract(c.s, {to + to * n, 1, n}, below, across, n - to, n - to, to - from, c.stream);
        }
        write_operand(c.s, 0, n, &args->out[0], PART_LOWER, c.stream);
    }
    return !checks(args) || info_check(args, &args->out[1], LINALG_NOT_POSITIVE);
}

extern "C" bool cuda_lu(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const int64_t m = x->shape[x->rank - 2], n = x->shape[x->rank - 1], k = linalg_least(m, n);
    call c = call_of(args, room_factor(m, n));
    if (!info_clear(&c, &args->out[2])) return false;
    while (call_next(&c)) {
        read_operand(c.s, 0, c.a, PART_ALL, c.stream);
        factor(c.s, m, n, (int32_t *)args->out[1].data + c.s.first * k, k, (int32_t *)args->out[2].data, c.stream);
        write_operand(c.s, 0, m, &args->out[0], PART_ALL, c.stream);
    }
    return !checks(args) || info_check(args, &args->out[2], LINALG_ZERO_PIVOT);
}

extern "C" bool cuda_solve_triangular(const tl_kernel_args *args) {
    const struct attr_triangular *attr = (const struct attr_triangular *)args->attr;
    const matrices b = matrices_of(&args->in[1]);
    const struct matrix_room room = room_sides(b.m, b.n);
    call c = call_of(args, room);
    if (!b.m || !b.n) return true;
    while (call_next(&c)) {
        read_operand(c.s, 0, c.a, PART_ALL, c.stream);
        read_operand(c.s, room.second, b, PART_ALL, c.stream);
        triangular(c.s, 0, room.second, b.m, b.n, attr->upper, attr->is_unit, c.stream);
        write_operand(c.s, room.second, b.m, &args->out[0], PART_ALL, c.stream);
    }
    return true;
}

/* P L U x = b for the sides behind the factors. */
static void factored_solve(const slots &s, int64_t sides, int64_t n, int64_t k, const int32_t *pivots,
                           int64_t pivots_pitch, cudaStream_t stream) {
    if (!n || !k) return;
    rows_swap<<<grid_for(s, k), BLOCK, 0, stream>>>(s, sides, n, k, 0, n, 0, 0, pivots, pivots_pitch);
    triangular(s, 0, sides, n, k, false, true, stream);
    triangular(s, 0, sides, n, k, true, false, stream);
}

extern "C" bool cuda_solve(const tl_kernel_args *args) {
    const matrices b = matrices_of(&args->in[1]);
    const int64_t n = b.m, k = b.n;
    const struct matrix_room room = room_sides(n, k);
    call c = call_of(args, room);
    if (!info_clear(&c, &args->out[3])) return false;
    while (call_next(&c)) {
        int32_t *pivots = (int32_t *)args->out[2].data + c.s.first * n;
        read_operand(c.s, 0, c.a, PART_ALL, c.stream);
        factor(c.s, n, n, pivots, n, (int32_t *)args->out[3].data, c.stream);
        write_operand(c.s, 0, n, &args->out[1], PART_ALL, c.stream);
        read_operand(c.s, room.second, b, PART_ALL, c.stream);
        factored_solve(c.s, room.second, n, k, pivots, n, c.stream);
        write_operand(c.s, room.second, n, &args->out[0], PART_ALL, c.stream);
    }
    return !checks(args) || info_check(args, &args->out[3], LINALG_NO_SOLUTION);
}

/* The solution for the identity. Of a singular matrix, as with LAPACK, the factors are the result. */
extern "C" bool cuda_inv(const tl_kernel_args *args) {
    const tl_operand *x = &args->out[0];
    const int64_t n = x->shape[x->rank - 1];
    const struct matrix_room room = room_inv(n);
    call c = call_of(args, room);
    int32_t *info = (int32_t *)args->out[1].data;
    if (!info_clear(&c, &args->out[1])) return false;
    while (n && call_next(&c)) {
        int32_t *pivots = (int32_t *)(c.s.work + room.order);
        const int64_t pitch = 2 * c.s.numbers; /* in halves of a number */
        read_operand(c.s, 0, c.a, PART_ALL, c.stream);
        factor(c.s, n, n, pivots, pitch, info, c.stream);
        identity_fill<<<grid_for(c.s, n * n), BLOCK, 0, c.stream>>>(c.s, room.second, n, n);
        factored_solve(c.s, room.second, n, n, pivots, pitch, c.stream);
        matrix_write<<<grid_for(c.s, n * n), BLOCK, 0, c.stream>>>(c.s, room.second, n, x->data, x->dtype, n, n,
                                                                   PART_ALL, info, 0);
    }
    return !checks(args) || info_check(args, &args->out[1], LINALG_NO_INVERSE);
}

/* The product of U's diagonal, with a change of sign for each pair of rows that was swapped; its sign; its logarithm. A
 * thread has a matrix. */
static __global__ void diagonal_multiply(slots s, int64_t n, const int32_t *pivots, void *det, void *sign, void *sum,
                                         tl_dtype dtype) {
    const double *lu = slot_at(s, 0);
    double product = 1, turns = 1, logarithm = 0;
    for (int64_t i = 0; i < n; i++) {
        const double u = lu[i + i * n], turn = pivots[blockIdx.y * n + i] == i + 1 ? 1 : -1;
        product *= turn * u;
        turns *= turn * (u > 0 ? 1 : u < 0 ? -1 : u);
        logarithm += log(fabs(u));
    }
    store_as<double>(det, slot_matrix(s), dtype, product);
    store_as<double>(sign, slot_matrix(s), dtype, turns);
    store_as<double>(sum, slot_matrix(s), dtype, logarithm);
}

extern "C" bool cuda_det(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const int64_t n = x->shape[x->rank - 1];
    call c = call_of(args, room_factor(n, n));
    while (call_next(&c)) {
        int32_t *pivots = (int32_t *)args->out[4].data + c.s.first * n;
        read_operand(c.s, 0, c.a, PART_ALL, c.stream);
        factor(c.s, n, n, pivots, n, NULL, c.stream);
        write_operand(c.s, 0, n, &args->out[3], PART_ALL, c.stream);
        diagonal_multiply<<<grid_of(c.s, 1), 1, 0, c.stream>>>(c.s, n, pivots, args->out[0].data, args->out[1].data,
                                                               args->out[2].data, x->dtype);
    }
    return true;
}

extern "C" bool cuda_qr(const tl_kernel_args *args) {
    const struct attr_qr *attr = (const struct attr_qr *)args->attr;
    const tl_operand *r = &args->out[0], *q = attr->vectors ? &args->out[1] : NULL;
    const matrices a = matrices_of(&args->in[0]);
    const int64_t n_q = q ? q->shape[q->rank - 1] : 0;
    const struct matrix_room room = room_qr(a.m, a.n, n_q);
    call c = call_of(args, room);
    while (call_next(&c)) {
        read_operand(c.s, 0, a, PART_ALL, c.stream);
        reflect_all(c.s, 0, room.tau, a.m, a.n, c.stream);
        write_operand(c.s, 0, a.m, r, PART_UPPER, c.stream);
        if (!q) continue;
        reflect_back(c.s, 0, room.tau, a.m, a.n, room.q, n_q, c.stream);
        write_operand(c.s, room.q, a.m, q, PART_ALL, c.stream);
    }
    return true;
}

/* ---- swap_rows ---- */

/* Swaps of rows i and pivots[i] - 1, the last first for P and the first first for its inverse; a thread has a column. A
 * pivot that is no row is a fault, and nothing is swapped with it. */
static __global__ void rows_swap_operand(matrices x, void *y, int64_t n_columns, const int32_t *pivots,
                                         geometry<1> rows, int64_t n_pivots, int64_t stride, bool inverse,
                                         struct cuda_fault *fault) {
    FOR_EACH(e, n_columns) {
        const int64_t index = e / x.n, c = e - index * x.n, from = matrix_offset(x, index) + c * x.column;
        const int64_t to = index * x.m * x.n + c;
        int64_t pivot[1];
        offsets_of(rows, index, pivot);
        for (int64_t i = 0; i < x.m; i++)
            store_as<double>(y, to + i * x.n, x.dtype, load_as<double>(x.data, from + i * x.row, x.dtype));
        for (int64_t step = 0; step < n_pivots; step++) {
            const int64_t i = inverse ? step : n_pivots - 1 - step, other = pivots[pivot[0] + i * stride] - 1;
            if (other < 0 || other >= x.m) {
                fault_raise(fault, FAULT_PIVOT, other, x.m);
                continue;
            }
            const double kept = load_as<double>(y, to + i * x.n, x.dtype);
            store_as<double>(y, to + i * x.n, x.dtype, load_as<double>(y, to + other * x.n, x.dtype));
            store_as<double>(y, to + other * x.n, x.dtype, kept);
        }
    }
}

extern "C" bool cuda_swap_rows(const tl_kernel_args *args) {
    const matrices x = matrices_of(&args->in[0]);
    const tl_operand *p = &args->in[1];
    const int64_t n_columns = matrix_count(&args->in[0]) * x.n, n_pivots = p->shape[p->rank - 1];
    if (!n_columns || !x.m) return true;
    tl_operand leading = *p; /* one element for each row of pivots */
    leading.rank--;
    const tl_operand *const walked[1] = {&leading};
    rows_swap_operand<<<blocks_for(n_columns), BLOCK, 0, stream_of(args)>>>(
        x, args->out[0].data, n_columns, (const int32_t *)p->data, geometry_of<1>(walked), n_pivots,
        p->stride[p->rank - 1], ((const struct attr_swap *)args->attr)->inverse, fault_of(args));
    return true;
}

/* ---- eig ---- */

/* The QR algorithm turns two rows at a time, one pair after the other: it has no work for a GPU. */
extern "C" bool cuda_eig(const tl_kernel_args *args) {
    snprintf(args->error, CUDA_ERROR_BYTES,
             "there is no cuda kernel: move the matrix to the cpu first and the result back (x.cpu(), y.cuda(); tl_to "
             "in C)");
    return false;
}
