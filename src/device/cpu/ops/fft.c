/* fft.c: discrete Fourier transforms, in f64 for both dtypes and rounded once.
 *
 * One pass for each factor p of the length m (Stockham: the order of the results needs no reordering): with
 * n = the length that is left and s = the length that is done,
 *
 *     y[s (p j + k) + q] = w_n^(j k) sum over r < p of x[s (j + r n/p) + q] w_p^(r k)        j < n/p, k < p, q < s
 *
 * where w_n = e^(-2 pi i / n). Lengths with a large prime factor are convolved with a chirp (Bluestein):
 * with b[j] = e^(pi i j j / n), X[k] = conj(b[k]) sum over j of (x[j] conj(b[j])) b[k - j].
 * Only the forward transform is done; the inverse is that of the conjugate, conjugated.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"
#include "spec/fft.h"

struct plan {
    const tl_kernel_args *args;
    const struct attr_fft *attr;
    int64_t n, m, n_transforms, n_lanes;
    double *roots, *chirp, *filter; /* m roots of unity; n, and m numbers where m is not n */
    double *buffers;                /* two of m numbers for each lane */
};

/* ---- One transform of m numbers ---- */

/* Factors of 4: sums, differences, and a product with -i. */
static void pass_4(const double *roots, int64_t n, int64_t s, const double *x, double *y) {
    const int64_t quarter = n / 4;
    for (int64_t j = 0; j < quarter; j++) {
        const double *w[3] = {roots + 2 * (j * s), roots + 2 * (2 * j * s), roots + 2 * (3 * j * s)};
        for (int64_t q = 0; q < s; q++) {
            const double *a = x + 2 * (s * j + q), *b = a + 2 * s * quarter, *c = b + 2 * s * quarter,
                         *d = c + 2 * s * quarter;
            const double ac_re = a[0] + c[0], ac_im = a[1] + c[1], ca_re = a[0] - c[0], ca_im = a[1] - c[1];
            const double bd_re = b[0] + d[0], bd_im = b[1] + d[1], db_re = b[1] - d[1], db_im = d[0] - b[0];
            const double re[3] = {ca_re + db_re, ac_re - bd_re, ca_re - db_re};
            const double im[3] = {ca_im + db_im, ac_im - bd_im, ca_im - db_im};
            double *to = y + 2 * (s * 4 * j + q);
            to[0] = ac_re + bd_re;
            to[1] = ac_im + bd_im;
            for (int k = 0; k < 3; k++) {
                to[2 * s * (k + 1)] = re[k] * w[k][0] - im[k] * w[k][1];
                to[2 * s * (k + 1) + 1] = re[k] * w[k][1] + im[k] * w[k][0];
            }
        }
    }
}

static void pass_any(const double *roots, int64_t m, int p, int64_t n, int64_t s, const double *x, double *y) {
    const int64_t part = n / p;
    for (int64_t j = 0; j < part; j++)
        for (int k = 0; k < p; k++) {
            const double *turn = roots + 2 * (j * k * s);
            for (int64_t q = 0; q < s; q++) {
                double re = 0, im = 0;
                for (int r = 0; r < p; r++) {
                    const double *a = x + 2 * (s * (j + r * part) + q), *w = roots + 2 * (r * k % p * (m / p));
                    re += a[0] * w[0] - a[1] * w[1];
                    im += a[0] * w[1] + a[1] * w[0];
                }
                double *to = y + 2 * (s * (p * j + k) + q);
                to[0] = re * turn[0] - im * turn[1];
                to[1] = re * turn[1] + im * turn[0];
            }
        }
}

/* x, with y as room; the result is in either, and returned. */
static double *forward(const double *roots, int64_t m, double *x, double *y) {
    int64_t n = m, s = 1;
    for (int p = 4; n > 1; p = p == 4 ? 2 : p == 3 ? 5 : p + 1) /* 4, 2, 3, 5, 6, ... */
        while (n % p == 0) {
            if (p == 4) pass_4(roots, n, s, x, y);
            else pass_any(roots, m, p, n, s, x, y);
            n /= p;
            s *= p;
            double *swap = x;
            x = y;
            y = swap;
        }
    return x;
}

/* ---- A transform of n numbers by one of m ---- */

static void product(double *a, const double *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double re = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];
        a[2 * i + 1] = a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i];
        a[2 * i] = re;
    }
}

static void conjugate(double *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) a[2 * i + 1] = -a[2 * i + 1];
}

/* The convolution is the inverse of a product of transforms; the filter has the 1/m of the inverse. */
static double *by_chirp(const struct plan *p, double *x, double *y) {
    product(x, p->chirp, p->n);
    memset(x + 2 * p->n, 0, (size_t)(p->m - p->n) * 2 * sizeof *x);
    double *z = forward(p->roots, p->m, x, y);
    product(z, p->filter, p->m);
    conjugate(z, p->m);
    z = forward(p->roots, p->m, z, z == x ? y : x);
    conjugate(z, p->n);
    product(z, p->chirp, p->n);
    return z;
}

/* e^(-2 pi i k / n), exact at the eighths of a turn: k / n is reduced to one of them first. */
static void root_of_unity(int64_t k, int64_t n, double *w) {
    const double turn = 6.283185307179586476925286766559;
    const int64_t eighth = 8 * k / n;                                   /* n is at most 2 FFT_MOST */
    const double rest = (double)(8 * k - eighth * n) / (8 * (double)n); /* below 1/8 */
    const bool is_odd = eighth & 1;
    const double angle = turn * (is_odd ? 0.125 - rest : rest), near = cos(angle), far = sin(angle);
    const double re[8] = {near, far, -far, -near, -near, -far, far, near};
    const double im[8] = {far, near, near, far, -far, -near, -near, -far};
    w[0] = re[eighth];
    w[1] = -im[eighth];
}

static void plan_fill(struct plan *p, double *room) {
    p->roots = room;
    for (int64_t k = 0; k < p->m; k++) root_of_unity(k, p->m, p->roots + 2 * k);
    p->chirp = p->roots + 2 * p->m;
    p->filter = p->chirp + 2 * p->n;
    p->buffers = p->m == p->n ? p->chirp : p->filter + 2 * p->m;
    if (p->m == p->n) return;
    double *b = p->buffers; /* the chirp around 0, both ways */
    memset(b, 0, (size_t)p->m * 2 * sizeof *b);
    for (int64_t j = 0, square = 0; j < p->n; square = (square + 2 * j + 1) % (2 * p->n), j++) {
        root_of_unity(square, 2 * p->n, p->chirp + 2 * j); /* j j modulo a whole turn: no digit is lost */
        for (int side = 0; side < 2; side++) {
            double *to = b + 2 * (side && j ? p->m - j : j);
            to[0] = p->chirp[2 * j] / (double)p->m;
            to[1] = -p->chirp[2 * j + 1] / (double)p->m;
        }
    }
    const double *z = forward(p->roots, p->m, b, b + 2 * p->m);
    memcpy(p->filter, z, (size_t)p->m * 2 * sizeof *z);
}

/* ---- Rows ---- */

static double number(const void *data, bool is_wide, int64_t i) {
    return is_wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
}
static void number_set(void *data, bool is_wide, int64_t i, double value) {
    if (is_wide) ((double *)data)[i] = value;
    else ((float *)data)[i] = (float)value;
}

static void row_read(const struct plan *p, int64_t row, double *x) {
    const tl_operand *in = &p->args->in[0];
    const bool is_wide = in->dtype == TL_F64;
    const int64_t n = p->n, half = n / 2 + 1;
    const double sign = p->attr->inverse ? -1 : 1;
    for (int64_t j = 0; j < n; j++) {
        if (p->attr->kind == FFT_OF_REAL) {
            x[2 * j] = number(in->data, is_wide, row * n + j);
            x[2 * j + 1] = 0;
            continue;
        }
        /* of a half, the other numbers are the conjugates of these; the first and the middle one are real */
        const bool is_half = p->attr->kind == FFT_TO_REAL, is_mirrored = is_half && j >= half;
        const int64_t at = 2 * (row * (is_half ? half : n) + (is_mirrored ? n - j : j));
        x[2 * j] = number(in->data, is_wide, at);
        x[2 * j + 1] =
            is_half && (j == 0 || 2 * j == n) ? 0 : sign * (is_mirrored ? -1 : 1) * number(in->data, is_wide, at + 1);
    }
}

static void row_write(const struct plan *p, int64_t row, const double *y) {
    const tl_operand *out = &p->args->out[0];
    const bool is_wide = out->dtype == TL_F64;
    const int64_t n = p->attr->kind == FFT_OF_REAL ? p->n / 2 + 1 : p->n;
    const double scale = p->attr->scale, sign = p->attr->inverse ? -1 : 1;
    for (int64_t k = 0; k < n; k++) {
        if (p->attr->kind == FFT_TO_REAL) {
            number_set(out->data, is_wide, row * n + k, scale * y[2 * k]);
            continue;
        }
        number_set(out->data, is_wide, 2 * (row * n + k), scale * y[2 * k]);
        number_set(out->data, is_wide, 2 * (row * n + k) + 1, scale * sign * y[2 * k + 1]);
    }
}

static void lanes_run(void *context, int64_t first, int64_t last) {
    const struct plan *p = context;
    for (int64_t lane = first; lane < last; lane++) {
        double *x = p->buffers + lane * 4 * p->m, *y = x + 2 * p->m;
        for (int64_t row = lane; row < p->n_transforms; row += p->n_lanes) {
            row_read(p, row, x);
            row_write(p, row, p->m == p->n ? forward(p->roots, p->m, x, y) : by_chirp(p, x, y));
        }
    }
}

bool cpu_fft(const tl_kernel_args *args) {
    const struct attr_fft *a = args->attr;
    const tl_operand *x = &args->in[0];
    struct plan p = {.args = args, .attr = a, .n = a->n, .m = fft_inner(a->n), .n_transforms = 1};
    for (int i = 0; i < x->rank - (a->kind == FFT_OF_REAL ? 1 : 2); i++) p.n_transforms *= x->shape[i];
    if (p.n_transforms == 0) return true;
    p.n_lanes = fft_lanes(p.n_transforms);
    plan_fill(&p, args->workspace);
    parallel_for(p.n_lanes, 1, args->n_threads, lanes_run, &p);
    return true;
}
