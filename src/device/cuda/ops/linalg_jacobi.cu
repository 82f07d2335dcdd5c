/* linalg_jacobi.cu: eigenvalues of symmetric matrices and singular values, by Jacobi's rotations. Read linalg.cuh
 * first.
 *
 * eigh. A rotation of rows and columns p and q makes a_pq 0. In a round, all rows are in one pair each, so n/2
 * rotations are done at once; a sweep of n - 1 rounds meets every pair once. Sweeps follow each other until one
 * finds nothing to turn: some six to ten, since each squares what is left beside the diagonal.
 *
 * svd. The same rotations on the columns of A alone (Hestenes), until they are orthogonal: A V = U diag(s). A matrix
 * with more columns than rows is transposed first. Reflections of U's columns complete them where A has not full
 * rank, or where all of U is wanted.
 *
 * Both need some ten times the operations of LAPACK's methods, but each of their steps has work for the whole GPU.
 * They wait for the device once per sweep.
 *
 * Vectors have a sign that no rule of mathematics gives: the first element that is at least half as large as the
 * largest is positive, of an eigenvector and of U's columns. device/cpu/ops/linalg.c does the same.
 */
#include "device/cuda/ops/linalg.cuh"
#include "spec/linalg.h"

/* LAPACK's, where it has one, stops at 30. */
enum { MOST_SWEEPS = 60 };

/* ---- Scale ---- */

/* The exponent of the largest element, at the slot's begin: with it as a factor no square overflows. NaN: an element is
 * not finite. One block for each slot. */
static __global__ void exponent_find(slots s, int64_t n) {
    const double *a = slot_at(s, 1);
    double largest = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = max_of()(fabs(a[i]), largest);
    largest = block_reduce(largest, max_of(), 0.0);
    int exponent = 0;
    if (largest > 0 && largest < INFINITY) frexp(largest, &exponent);
    if (threadIdx.x == 0) *slot_at(s, 0) = largest < INFINITY ? (double)exponent : (double)NAN;
}
static __device__ int exponent_of(const slots &s) {
    const double exponent = *slot_at(s, 0);
    return isfinite(exponent) ? (int)exponent : 0;
}
static __global__ void exponent_remove(slots s, int64_t n) {
    double *a = slot_at(s, 1);
    const int exponent = exponent_of(s);
    FOR_EACH(i, n) a[i] = scalbn(a[i], -exponent);
}

/* ---- Pairs ---- */

/* Pair i of round r among n: a tournament in which all meet once in m - 1 rounds, m being n made even. False: one of
 * them is nobody. */
static __device__ bool pair_of(int64_t n, int64_t round, int64_t i, int64_t *p, int64_t *q) {
    const int64_t last = n + n % 2 - 1;
    const int64_t a = i ? (round + i) % last : round, b = i ? (round - i + last) % last : last;
    *p = a < b ? a : b;
    *q = a < b ? b : a;
    return *q < n;
}

/* Tangent of the angle that makes 0 of x between a and b: the smaller of two. */
static __device__ double tangent_of(double a, double b, double x) {
    const double theta = (b - a) / (2 * x), size = 1 / (fabs(theta) + sqrt(theta * theta + 1));
    return theta < 0 ? -size : size;
}

/* (x, y) = (c x - s y, s x + c y), element by element. */
static __device__ void columns_turn(double *x, double *y, int64_t n, double c, double s) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const double a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
}

/* ---- Rounds ---- */

/* Columns of the pairs, which know their own rotations: a_pp, a_qq and a_pq are in them. turns has c, s and the new
 * a_pp and a_qq of each pair; s = 0: it was not turned. One block for each pair. */
static __global__ void eigh_columns(slots s, struct matrix_room room, int64_t n, bool vectors, int64_t round,
                                    double *is_turned) {
    const double negligible = 0x1p-53; /* the largest element of the matrix is about 1 */
    double *a = slot_at(s, 1), *v = slot_at(s, room.second), *turn = slot_at(s, room.turns) + 4 * blockIdx.x;
    int64_t p, q;
    const bool is_pair = pair_of(n, round, blockIdx.x, &p, &q);
    const double app = is_pair ? a[p + p * n] : 0, aqq = is_pair ? a[q + q * n] : 0, apq = is_pair ? a[p + q * n] : 0;
    if (!(fabs(apq) > negligible)) {
        if (threadIdx.x == 0) turn[1] = 0;
        return;
    }
    const double t = tangent_of(app, aqq, apq), c = 1 / sqrt(t * t + 1);
    __syncthreads(); /* all have read them */
    columns_turn(a + p * n, a + q * n, n, c, t * c);
    if (vectors) columns_turn(v + p * n, v + q * n, n, c, t * c);
    if (threadIdx.x > 0) return;
    turn[0] = c;
    turn[1] = t * c;
    turn[2] = app - t * apq;
    turn[3] = aqq + t * apq;
    *is_turned = 1;
}

/* Rows of the pairs: a thread has two elements of a column. What the rotation makes 0 is written as 0. */
static __global__ void eigh_rows(slots s, struct matrix_room room, int64_t n, int64_t round) {
    double *a = slot_at(s, 1);
    const int64_t n_pairs = (n + 1) / 2;
    FOR_EACH(e, n_pairs * n) {
        const int64_t j = e / n_pairs, i = e - j * n_pairs;
        const double *turn = slot_at(s, room.turns) + 4 * i;
        int64_t p, q;
        if (!pair_of(n, round, i, &p, &q) || turn[1] == 0) continue;
        double *x = a + p + j * n, *y = a + q + j * n;
        const double above = *x, below = *y;
        *x = j == p ? turn[2] : j == q ? 0 : turn[0] * above - turn[1] * below;
        *y = j == q ? turn[3] : j == p ? 0 : turn[1] * above + turn[0] * below;
    }
}

/* Pairs of columns: they are turned until their product is negligible beside their lengths, or one of them beside the
 * matrix, whose largest element is about 1. */
static __global__ void svd_columns(slots s, struct matrix_room room, int64_t n_rows, int64_t k, bool vectors,
                                   int64_t round, double *is_turned) {
    const double negligible = 0x1p-52 * (4 + sqrt((double)n_rows)); /* what products are rounded by */
    int64_t p, q;
    if (!pair_of(k, round, blockIdx.x, &p, &q)) return;
    double *x = slot_at(s, 1) + p * n_rows, *y = slot_at(s, 1) + q * n_rows, *v = slot_at(s, room.second);
    double xx = 0, yy = 0, xy = 0;
    for (int64_t i = threadIdx.x; i < n_rows; i += blockDim.x) {
        xx += x[i] * x[i];
        yy += y[i] * y[i];
        xy += x[i] * y[i];
    }
    xx = block_reduce(xx, sum_of(), 0.0);
    yy = block_reduce(yy, sum_of(), 0.0);
    xy = block_reduce(xy, sum_of(), 0.0);
    if (!(fabs(xy) > negligible * sqrt(xx) * sqrt(yy)) || xx < 0x1p-200 || yy < 0x1p-200) return;
    const double t = tangent_of(xx, yy, xy), c = 1 / sqrt(t * t + 1);
    columns_turn(x, y, n_rows, c, t * c);
    if (vectors) columns_turn(v + p * k, v + q * k, k, c, t * c);
    if (threadIdx.x == 0) *is_turned = 1;
}

/* ---- Values in order ---- */

static __global__ void eigh_values(slots s, struct matrix_room room, int64_t n) {
    FOR_EACH(i, n) slot_at(s, room.values)[i] = slot_at(s, 1)[i + i * n];
}
/* Lengths of the columns, one block for each. */
static __global__ void svd_values(slots s, struct matrix_room room, int64_t n_rows, int64_t k) {
    for (int64_t j = blockIdx.x; j < k; j += gridDim.x) {
        const double *x = slot_at(s, 1) + j * n_rows;
        double sum = 0;
        for (int64_t i = threadIdx.x; i < n_rows; i += blockDim.x) sum += x[i] * x[i];
        sum = block_reduce(sum, sum_of(), 0.0);
        if (threadIdx.x == 0) slot_at(s, room.values)[j] = sqrt(sum);
    }
}

/* Each value finds its place, the first of equal ones first; order has the values' columns. A matrix with an
 * element or a value that is not finite fails: the first one of the batch is remembered, counted from 1. */
static __global__ void values_write(slots s, struct matrix_room room, int64_t n, bool falling, void *out,
                                    tl_dtype dtype, unsigned long long *failed) {
    const double *values = slot_at(s, room.values);
    const int exponent = exponent_of(s);
    const bool fails = isnan(*slot_at(s, 0));
    FOR_EACH(i, n) {
        const double own = values[i];
        int64_t rank = 0;
        for (int64_t j = 0; j < n; j++)
            rank += (falling ? values[j] > own : values[j] < own) || (values[j] == own && j < i);
        slot_at(s, room.order)[rank] = (double)i;
        store_as<double>(out, slot_matrix(s) * n + rank, dtype, scalbn(own, exponent));
        if (fails || !isfinite(own)) atomicMin(failed, (unsigned long long)slot_matrix(s) + 1);
    }
}

/* ---- Vectors ---- */

/* -1 where the first element that is at least half as large as the largest is negative, else 1. The whole block gets
 * it. */
static __device__ double sign_of(const double *x, int64_t n) {
    double largest = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = max_of()(fabs(x[i]), largest);
    largest = block_reduce(largest, max_of(), 0.0);
    int64_t first = n;
    for (int64_t i = threadIdx.x; i < n && first == n; i += blockDim.x)
        if (2 * fabs(x[i]) >= largest) first = i;
    first = block_reduce(first, min_of(), (int64_t)INT64_MAX);
    return first < n && x[first] < 0 ? -1 : 1;
}

/* Columns in the values' order; one block for each. */
static __global__ void eigh_vectors(slots s, struct matrix_room room, int64_t n, void *out, tl_dtype dtype) {
    for (int64_t j = blockIdx.x; j < n; j += gridDim.x) {
        const double *v = slot_at(s, room.second) + (int64_t)slot_at(s, room.order)[j] * n, sign = sign_of(v, n);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            store_as<double>(out, (slot_matrix(s) * n + i) * n + j, dtype, sign * v[i]);
    }
}

/* Columns of length 1, or 0, in the values' order. */
static __global__ void svd_left(slots s, struct matrix_room room, int64_t n_rows, int64_t k) {
    FOR_EACH(e, n_rows * k) {
        const int64_t j = e / n_rows, from = (int64_t)slot_at(s, room.order)[j];
        const double value = slot_at(s, room.values)[from];
        slot_at(s, room.left)[e] = value > 0 ? slot_at(s, 1)[e - j * n_rows + from * n_rows] / value : 0;
    }
}

/* The long vectors are the columns of q, which may have turned to the other side, as the diagonal of R says; the short
 * ones those of v. U has the long ones, or, where the matrix was transposed, Vh. One block for each column of q. */
static __global__ void svd_vectors(slots s, struct matrix_room room, int64_t n_rows, int64_t k, int64_t n_q,
                                   bool is_transposed, void *u, void *vh, tl_dtype dtype) {
    for (int64_t j = blockIdx.x; j < n_q; j += gridDim.x) {
        const double *own = slot_at(s, room.q) + j * n_rows, *other = NULL;
        double turn = 1, sign = 1;
        if (j < k) {
            other = slot_at(s, room.second) + (int64_t)slot_at(s, room.order)[j] * k;
            turn = slot_at(s, room.left)[j + j * n_rows] < 0 ? -1 : 1;
            sign = is_transposed ? sign_of(other, k) : turn * sign_of(own, n_rows);
        }
        for (int64_t i = threadIdx.x; i < n_rows; i += blockDim.x) {
            const double value = turn * sign * own[i];
            if (is_transposed) store_as<double>(vh, (slot_matrix(s) * n_q + j) * n_rows + i, dtype, value);
            else store_as<double>(u, (slot_matrix(s) * n_rows + i) * n_q + j, dtype, value);
        }
        for (int64_t i = threadIdx.x; i < k && other; i += blockDim.x) {
            if (is_transposed) store_as<double>(u, (slot_matrix(s) * k + i) * k + j, dtype, sign * other[i]);
            else store_as<double>(vh, (slot_matrix(s) * k + j) * k + i, dtype, sign * other[i]);
        }
    }
}

/* ---- Calls ---- */

/* What eigh and svd have in common. n: rows and columns that are turned. */
struct jacobi {
    const tl_kernel_args *args;
    cudaStream_t stream;
    struct matrix_room room;
    slots s;
    int64_t n_matrices, n_slots, n_rows, n;
    bool vectors;
    double *is_turned;          /* one word for all slots */
    unsigned long long *failed; /* another */
};
static jacobi jacobi_of(const tl_kernel_args *args, struct matrix_room room, int64_t n_rows, int64_t n, bool vectors) {
    jacobi j = {args,
                stream_of(args),
                room,
                {(double *)args->workspace, room.all, 0, 0},
                matrix_count(&args->in[0]),
                0,
                n_rows,
                n,
                vectors,
                NULL,
                NULL};
    j.n_slots = matrix_slots(j.n_matrices, room.all);
    j.is_turned = j.s.work + j.n_slots * room.all;
    j.failed = (unsigned long long *)(j.is_turned + 1);
    return j;
}
static bool jacobi_next(jacobi *j) { return slots_next(&j->s, j->n_matrices, j->n_slots); }

static bool word_fetch(const jacobi *j, const void *word, void *host) {
    return cuda_check(cudaMemcpyAsync(host, word, 8, cudaMemcpyDeviceToHost, j->stream), j->args->op, j->args->error) &&
           cuda_check(cudaStreamSynchronize(j->stream), j->args->op, j->args->error);
}

/* The matrix at the slots' first number, scaled, and the identity for its vectors. */
static void jacobi_read(const jacobi *j, const matrices &a, enum part part) {
    const int64_t numel = j->n_rows * j->n;
    if (!numel) return;
    read_operand(j->s, 1, a, part, j->stream);
    exponent_find<<<grid_of(j->s, 1), threads_for_row(numel), 0, j->stream>>>(j->s, numel);
    exponent_remove<<<grid_for(j->s, numel), BLOCK, 0, j->stream>>>(j->s, numel);
    if (j->vectors)
        identity_fill<<<grid_for(j->s, j->n * j->n), BLOCK, 0, j->stream>>>(j->s, j->room.second, j->n, j->n);
}

static void round_queue(const jacobi *j, bool is_eigh, int64_t round) {
    const int64_t n_pairs = (j->n + 1) / 2;
    const dim3 grid((unsigned)n_pairs, j->s.n);
    const int threads = threads_for_row(j->n_rows);
    if (!is_eigh) {
        svd_columns<<<grid, threads, 0, j->stream>>>(j->s, j->room, j->n_rows, j->n, j->vectors, round, j->is_turned);
        return;
    }
    eigh_columns<<<grid, threads, 0, j->stream>>>(j->s, j->room, j->n, j->vectors, round, j->is_turned);
    eigh_rows<<<grid_for(j->s, n_pairs * j->n), BLOCK, 0, j->stream>>>(j->s, j->room, j->n, round);
}

/* Sweeps until there is nothing to turn; false: an error, or there is no end. */
static bool jacobi_sweep(const jacobi *j, bool is_eigh, const char *text) {
    for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
        double is_turned = 0;
        if (!cuda_check(cudaMemsetAsync(j->is_turned, 0, 8, j->stream), j->args->op, j->args->error)) return false;
        for (int64_t round = 0; round + 1 < j->n + j->n % 2; round++) round_queue(j, is_eigh, round);
        if (!word_fetch(j, j->is_turned, &is_turned)) return false;
        if (!is_turned) return true;
    }
    return matrix_fail(j->args, j->s.first, MOST_SWEEPS, text);
}

/* The values, in order, as out[0]; false if one is not finite. */
static bool values_finish(const jacobi *j, bool falling, const char *text) {
    unsigned long long failed = ~0ull;
    const tl_operand *out = &j->args->out[0];
    if (!cuda_check(cudaMemsetAsync(j->failed, 0xFF, 8, j->stream), j->args->op, j->args->error)) return false;
    values_write<<<grid_for(j->s, j->n), BLOCK, 0, j->stream>>>(j->s, j->room, j->n, falling, out->data, out->dtype,
                                                                j->failed);
    if (!word_fetch(j, j->failed, &failed)) return false;
    return failed == ~0ull || matrix_fail(j->args, (int64_t)failed - 1, 1, text);
}

extern "C" bool cuda_eigh(const tl_kernel_args *args) {
    const struct attr_eigh *attr = (const struct attr_eigh *)args->attr;
    const char *text = LINALG_NO_END("eigenvalues");
    const matrices a = matrices_of(&args->in[0]);
    const int64_t n = a.n;
    jacobi j = jacobi_of(args, room_eigh(n, attr->vectors), n, n, attr->vectors);
    while (n && jacobi_next(&j)) {
        jacobi_read(&j, a, attr->upper ? PART_UPPER : PART_LOWER);
        if (!jacobi_sweep(&j, true, text)) return false;
        eigh_values<<<grid_for(j.s, n), BLOCK, 0, j.stream>>>(j.s, j.room, n);
        if (!values_finish(&j, false, text)) return false;
        if (attr->vectors)
            eigh_vectors<<<grid_of(j.s, n), threads_for_row(n), 0, j.stream>>>(j.s, j.room, n, args->out[1].data,
                                                                               args->out[1].dtype);
    }
    return true;
}

extern "C" bool cuda_svd(const tl_kernel_args *args) {
    const struct attr_svd *attr = (const struct attr_svd *)args->attr;
    const char *text = LINALG_NO_END("singular values");
    matrices a = matrices_of(&args->in[0]);
    const bool is_transposed = a.m < a.n;
    if (is_transposed) a = transposed(a);
    const int64_t m = a.m, k = a.n, n_q = attr->full ? m : k;
    jacobi j = jacobi_of(args, room_svd(m, k, n_q, attr->vectors), m, k, attr->vectors);
    while (jacobi_next(&j)) {
        jacobi_read(&j, a, PART_ALL);
        if (k) {
            if (!jacobi_sweep(&j, false, text)) return false;
            svd_values<<<grid_of(j.s, k), threads_for_row(m), 0, j.stream>>>(j.s, j.room, m, k);
            if (!values_finish(&j, true, text)) return false;
        }
        if (!attr->vectors || !m || !n_q) continue;
        if (k) svd_left<<<grid_for(j.s, m * k), BLOCK, 0, j.stream>>>(j.s, j.room, m, k);
        reflect_all(j.s, j.room.left, j.room.tau, m, k, j.stream);
        reflect_back(j.s, j.room.left, j.room.tau, m, k, j.room.q, n_q, j.stream);
        svd_vectors<<<grid_of(j.s, n_q), threads_for_row(m), 0, j.stream>>>(
            j.s, j.room, m, k, n_q, is_transposed, args->out[1].data, args->out[2].data, args->out[1].dtype);
    }
    return true;
}
