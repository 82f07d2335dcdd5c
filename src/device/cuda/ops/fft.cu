/* fft.cu: discrete Fourier transforms, in f64 for both dtypes and rounded once: the algorithm of device/cpu/ops/fft.c,
 * where its formulas are, with one launch for each pass over all lanes.
 *
 * cuFFT is not used. Its work area has the size that its planner finds on the card, so a price could not name it; and
 * it computes f32 in f32. Passes move memory more than they compute, so f64 costs a factor of two where f64 is fast.
 *
 * Workspace: roots of unity (m), the chirp (n) and its transform (m) where m is not n, and two buffers of m numbers for
 * each lane, all complex.
 */
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/linalg_rule.h"
#include "spec/fft.h"

/* ---- Tables ---- */

/* e^(-2 pi i k / n), exact at the eighths of a turn: k / n is reduced to one of them first. */
static __device__ double2 root_of_unity(int64_t k, int64_t n) {
    const double turn = 6.283185307179586476925286766559;
    const int64_t eighth = 8 * k / n;
    const double rest = (double)(8 * k - eighth * n) / (8 * (double)n); /* below 1/8 */
    const bool is_odd = eighth & 1;
    const double angle = turn * (is_odd ? 0.125 - rest : rest), near = cos(angle), far = sin(angle);
    const bool swaps = (eighth + 1) & 2;                           /* eighths 1, 2, 5, 6 */
    const double re = swaps ? far : near, im = swaps ? near : far; /* of the first quarter's */
    return {eighth >= 2 && eighth < 6 ? -re : re, eighth < 4 ? -im : im};
}

static __global__ void roots_fill(double2 *roots, int64_t m) { FOR_EACH(k, m) roots[k] = root_of_unity(k, m); }

/* The chirp, and around 0, both ways, its conjugate over m: the filter before its transform. j j modulo a whole turn
 * loses no digit, and fits, since no memory holds 2^32 numbers in all these buffers. */
static __global__ void chirp_fill(double2 *chirp, double2 *filter, int64_t n, int64_t m) {
    FOR_EACH(i, m) {
        const int64_t j = i < n ? i : m - i;
        double2 w = {0, 0};
        if (j < n) w = root_of_unity((int64_t)((uint64_t)j * (uint64_t)j % (uint64_t)(2 * n)), 2 * n);
        if (i < n) chirp[i] = w;
        filter[i] = {w.x / (double)m, -w.y / (double)m};
    }
}

/* ---- Passes over all lanes ---- */

static __device__ double2 times(double2 a, double2 b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

/* n: the length that is left; s: the length that is done; n s = m. A thread has one j and q. */
static __global__ void pass_4(const double2 *roots, int64_t m, int64_t s, const double2 *x, double2 *y,
                              int64_t n_lanes) {
    const int64_t quarter = m / 4;
    FOR_EACH(i, n_lanes * quarter) {
        const int64_t lane = i / quarter, at = i - lane * quarter, j = at / s, q = at - j * s;
        const double2 *from = x + lane * m + at;
        const double2 a = from[0], b = from[quarter], c = from[2 * quarter], d = from[3 * quarter];
        const double2 ac = {a.x + c.x, a.y + c.y}, ca = {a.x - c.x, a.y - c.y};
        const double2 bd = {b.x + d.x, b.y + d.y}, db = {b.y - d.y, d.x - b.x}; /* the second times -i */
        double2 *to = y + lane * m + 4 * s * j + q;
        to[0] = {ac.x + bd.x, ac.y + bd.y};
        to[s] = times({ca.x + db.x, ca.y + db.y}, roots[j * s]);
        to[2 * s] = times({ac.x - bd.x, ac.y - bd.y}, roots[2 * j * s]);
        to[3 * s] = times({ca.x - db.x, ca.y - db.y}, roots[3 * j * s]);
    }
}

/* A thread has one number of the result: j, k and q. */
static __global__ void pass_any(const double2 *roots, int64_t m, int p, int64_t s, const double2 *x, double2 *y,
                                int64_t n_lanes) {
    const int64_t part = m / p; /* s n / p: from one number of a sum to the next */
    FOR_EACH(i, n_lanes * m) {
        const int64_t lane = i / m, at = i - lane * m, q = at % s, k = at / s % p, j = at / s / p;
        const double2 *from = x + lane * m + s * j + q;
        double2 sum = {0, 0};
        for (int r = 0; r < p; r++) {
            const double2 term = times(from[r * part], roots[r * k % p * part]);
            sum = {sum.x + term.x, sum.y + term.y};
        }
        y[i] = times(sum, roots[j * k * s]);
    }
}

/* z = conj(z filter): between the two transforms of a convolution. */
static __global__ void filter_apply(double2 *z, const double2 *filter, int64_t m, int64_t n_lanes) {
    FOR_EACH(i, n_lanes * m) {
        const double2 w = times(z[i], filter[i % m]);
        z[i] = {w.x, -w.y};
    }
}

/* ---- Rows ---- */

struct rows {
    const void *in;
    void *out;
    tl_dtype dtype;
    enum fft_kind kind;
    double sign, scale; /* sign -1: inverse, by conjugates */
    int64_t n, m, first;
};

/* Numbers of the rows from `first` on, times the chirp if there is one, and zeros behind them. */
static __global__ void rows_read(rows r, const double2 *chirp, double2 *x, int64_t n_lanes) {
    const int64_t half = r.n / 2 + 1;
    FOR_EACH(i, n_lanes * r.m) {
        const int64_t lane = i / r.m, j = i - lane * r.m, row = r.first + lane;
        double2 z = {0, 0};
        if (j < r.n && r.kind == FFT_OF_REAL) {
            z.x = load_as<double>(r.in, row * r.n + j, r.dtype);
        } else if (j < r.n) {
            /* of a half, the other numbers are the conjugates of these; the first and the middle one are real */
            const bool is_half = r.kind == FFT_TO_REAL, is_mirrored = is_half && j >= half;
            const int64_t at = 2 * (row * (is_half ? half : r.n) + (is_mirrored ? r.n - j : j));
            z.x = load_as<double>(r.in, at, r.dtype);
            if (!is_half || (j != 0 && 2 * j != r.n))
                z.y = r.sign * (is_mirrored ? -1 : 1) * load_as<double>(r.in, at + 1, r.dtype);
        }
        x[i] = chirp && j < r.n ? times(z, chirp[j]) : z;
    }
}

/* With a chirp z is the conjugate of a convolution. */
static __global__ void rows_write(rows r, const double2 *chirp, const double2 *z, int64_t n_lanes) {
    const int64_t n = r.kind == FFT_OF_REAL ? r.n / 2 + 1 : r.n;
    FOR_EACH(i, n_lanes * n) {
        const int64_t lane = i / n, k = i - lane * n, at = (r.first + lane) * n + k;
        double2 y = z[lane * r.m + k];
        if (chirp) y = times({y.x, -y.y}, chirp[k]);
        if (r.kind == FFT_TO_REAL) {
            store_as<double>(r.out, at, r.dtype, r.scale * y.x);
            continue;
        }
        store_as<double>(r.out, 2 * at, r.dtype, r.scale * y.x);
        store_as<double>(r.out, 2 * at + 1, r.dtype, r.scale * r.sign * y.y);
    }
}

/* ---- The whole ---- */

/* x, with y as room; the result is in either, and returned. The order of factors is the cpu's. */
static double2 *forward(const double2 *roots, int64_t m, double2 *x, double2 *y, int64_t n_lanes, cudaStream_t stream) {
    int64_t n = m, s = 1;
    for (int p = 4; n > 1; p = p == 4 ? 2 : p == 3 ? 5 : p + 1)
        while (n % p == 0) {
            if (p == 4) pass_4<<<blocks_for(n_lanes * m / 4), BLOCK, 0, stream>>>(roots, m, s, x, y, n_lanes);
            else pass_any<<<blocks_for(n_lanes * m), BLOCK, 0, stream>>>(roots, m, p, s, x, y, n_lanes);
            n /= p;
            s *= p;
            double2 *swap = x;
            x = y;
            y = swap;
        }
    return x;
}

extern "C" bool cuda_fft(const tl_kernel_args *args) {
    const struct attr_fft *a = (const struct attr_fft *)args->attr;
    const tl_operand *in = &args->in[0];
    const cudaStream_t stream = stream_of(args);
    const int64_t n = a->n, m = fft_inner(n);
    int64_t n_rows = 1;
    for (int i = 0; i < in->rank - (a->kind == FFT_OF_REAL ? 1 : 2); i++) n_rows *= in->shape[i];
    if (n_rows == 0) return true;
    const int64_t n_lanes = fft_lanes_cuda(n, n_rows);
    double2 *roots = (double2 *)args->workspace, *chirp = m == n ? NULL : roots + m, *filter = chirp ? chirp + n : NULL;
    double2 *x = filter ? filter + m : roots + m, *y = x + n_lanes * m;
    roots_fill<<<blocks_for(m), BLOCK, 0, stream>>>(roots, m);
    if (chirp) {
        chirp_fill<<<blocks_for(m), BLOCK, 0, stream>>>(chirp, x, n, m);
        const double2 *z = forward(roots, m, x, y, 1, stream);
        if (!cuda_check(cudaMemcpyAsync(filter, z, (size_t)m * sizeof *z, cudaMemcpyDeviceToDevice, stream), args->op,
                        args->error))
            return false;
    }
    rows r = {in->data, args->out[0].data, in->dtype, a->kind, a->inverse ? -1.0 : 1.0, a->scale, n, m, 0};
    for (; r.first < n_rows; r.first += n_lanes) {
        const int64_t n_now = n_rows - r.first < n_lanes ? n_rows - r.first : n_lanes;
        rows_read<<<blocks_for(n_now * m), BLOCK, 0, stream>>>(r, chirp, x, n_now);
        double2 *z = forward(roots, m, x, y, n_now, stream);
        if (chirp) {
            filter_apply<<<blocks_for(n_now * m), BLOCK, 0, stream>>>(z, filter, m, n_now);
            z = forward(roots, m, z, z == x ? y : x, n_now, stream);
        }
        rows_write<<<blocks_for(n_now * n), BLOCK, 0, stream>>>(r, chirp, z, n_now);
    }
    return true;
}
