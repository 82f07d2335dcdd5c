/* linalg_template.h: the work on one matrix, once for each dtype. Included by linalg.c with REAL, NAME, LAPACK, TRSM,
 * MAGNITUDE and LOGARITHM defined. */

/* A column-major copy of a matrix of an operand. */
static void NAME(read)(REAL *to, const tl_operand *x, int64_t index) {
    const REAL *from = (const REAL *)x->data + part_offset(x, 2, index);
    const int64_t m = rows_of(x), n = columns_of(x), row = x->stride[x->rank - 2], column = x->stride[x->rank - 1];
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) to[i + j * m] = from[i * row + j * column];
}

/* Which elements are written; the others are 0. */
enum NAME(part) { NAME(ALL), NAME(LOWER), NAME(UPPER) };

/* The first rows and columns of a column-major matrix with `leading` rows, as a matrix of a dense operand. */
static void NAME(write)(const tl_operand *x, int64_t index, const REAL *from, int64_t leading, enum NAME(part) part) {
    const int64_t m = rows_of(x), n = columns_of(x);
    REAL *to = (REAL *)x->data + index * m * n;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            const bool is_zero = (part == NAME(LOWER) && j > i) || (part == NAME(UPPER) && j < i);
            to[i * n + j] = is_zero ? 0 : from[i + j * leading];
        }
}

static int NAME(triangular)(const tl_kernel_args *args, int64_t index, void *work) {
    const struct attr_triangular *attr = args->attr;
    const tl_operand *x = &args->out[0];
    const int64_t n = rows_of(x), k = columns_of(x);
    REAL *a = work, *b = a + n * n;
    if (!n || !k) return 0;
    NAME(read)(a, &args->in[0], index);
    NAME(read)(b, &args->in[1], index);
    TRSM(CblasColMajor, CblasLeft, attr->upper ? CblasUpper : CblasLower, CblasNoTrans,
         attr->is_unit ? CblasUnit : CblasNonUnit, (int)n, (int)k, 1, a, (int)n, b, (int)n);
    NAME(write)(x, index, b, n, NAME(ALL));
    return 0;
}

#ifdef TALLY_LAPACK

static int NAME(cholesky)(const tl_kernel_args *args, int64_t index, void *work) {
    const int n = (int)rows_of(&args->in[0]);
    int info = 0;
    NAME(read)(work, &args->in[0], index);
    if (n) LAPACK(potrf)("L", &n, work, &n, &info, 1);
    NAME(write)(&args->out[0], index, work, n, NAME(LOWER));
    write_info(&args->out[1], index, info);
    return info;
}

/* Factors the copy in `work` and writes it and the pivots; info. */
static int NAME(factor)(const tl_operand *a, const tl_operand *lu, const tl_operand *pivots, int64_t index,
                        REAL *work) {
    const int m = (int)rows_of(a), n = (int)columns_of(a);
    int info = 0, *to = (int *)pivots->data + index * columns_of(pivots);
    NAME(read)(work, a, index);
    if (m && n) LAPACK(getrf)(&m, &n, work, &m, to, &info);
    NAME(write)(lu, index, work, m, NAME(ALL));
    return info;
}

static int NAME(lu)(const tl_kernel_args *args, int64_t index, void *work) {
    const int info = NAME(factor)(&args->in[0], &args->out[0], &args->out[1], index, work);
    write_info(&args->out[2], index, info);
    return info;
}

static int NAME(solve)(const tl_kernel_args *args, int64_t index, void *work) {
    const tl_operand *x = &args->out[0], *pivots = &args->out[2];
    const int n = (int)rows_of(x), k = (int)columns_of(x);
    REAL *a = work, *b = a + (int64_t)n * n;
    int info = NAME(factor)(&args->in[0], &args->out[1], pivots, index, a), ignored;
    write_info(&args->out[3], index, info);
    if (!n || !k) return info;
    NAME(read)(b, &args->in[1], index);
    LAPACK(getrs)("N", &n, &k, a, &n, (const int *)pivots->data + index * n, b, &n, &ignored, 1);
    NAME(write)(x, index, b, n, NAME(ALL));
    return info;
}

static int NAME(inv)(const tl_kernel_args *args, int64_t index, void *work) {
    const int n = (int)rows_of(&args->in[0]), lwork = LINALG_BLOCK * n;
    REAL *a = work, *more = a + (int64_t)n * n + n;
    int info = 0, *pivots = (int *)(void *)(a + (int64_t)n * n);
    NAME(read)(a, &args->in[0], index);
    if (n) LAPACK(getrf)(&n, &n, a, &n, pivots, &info);
    if (n && !info) LAPACK(getri)(&n, a, &n, pivots, more, &lwork, &info);
    NAME(write)(&args->out[0], index, a, n, NAME(ALL));
    write_info(&args->out[1], index, info);
    return info;
}

/* The product of U's diagonal, with a change of sign for each pair of rows that was swapped. */
static int NAME(det)(const tl_kernel_args *args, int64_t index, void *work) {
    const int64_t n = rows_of(&args->in[0]);
    const REAL *lu = work;
    REAL det = 1, sign = 1, sum = 0;
    NAME(factor)(&args->in[0], &args->out[3], &args->out[4], index, work);
    const int *pivots = (const int *)args->out[4].data + index * n;
    for (int64_t i = 0; i < n; i++) {
        const REAL u = lu[i + i * n];
        const REAL turn = pivots[i] == i + 1 ? 1 : -1;
        det *= turn * u;
        sign *= turn * (u > 0 ? 1 : u < 0 ? -1 : u);
        sum += LOGARITHM(MAGNITUDE(u));
    }
    ((REAL *)args->out[0].data)[index] = det;
    ((REAL *)args->out[1].data)[index] = sign;
    ((REAL *)args->out[2].data)[index] = sum;
    return 0;
}

static int NAME(qr)(const tl_kernel_args *args, int64_t index, void *work) {
    const struct attr_qr *attr = args->attr;
    const tl_operand *x = &args->in[0], *r = &args->out[0], *q = attr->vectors ? &args->out[1] : NULL;
    const int m = (int)rows_of(x), n = (int)columns_of(x), k = m < n ? m : n, n_q = (int)rows_of(r);
    const int columns = n > n_q ? n : n_q, lwork = LINALG_BLOCK * (columns > 1 ? columns : 1);
    REAL *a = work, *tau = a + (int64_t)m * columns, *more = tau + k;
    int info = 0;
    NAME(read)(a, x, index);
    if (k) LAPACK(geqrf)(&m, &n, a, &m, tau, more, &lwork, &info);
    NAME(write)(r, index, a, m, NAME(UPPER));
    if (!q || !m || !n_q) return info;
    LAPACK(orgqr)(&m, &n_q, &k, a, &m, tau, more, &lwork, &info);
    NAME(write)(q, index, a, m, NAME(ALL));
    return info;
}

/* -1 where the first element that is at least half as large as the largest is negative, else 1: vectors times it do
 * not depend on the library, and device/cuda/ops/linalg_jacobi.cu gives the same. Half: among elements of equal size
 * rounding would decide. */
static REAL NAME(sign)(const REAL *x, int64_t n) {
    REAL largest = 0;
    for (int64_t i = 0; i < n; i++) largest = MAGNITUDE(x[i]) > largest ? MAGNITUDE(x[i]) : largest;
    for (int64_t i = 0; i < n; i++)
        if (2 * MAGNITUDE(x[i]) >= largest) return x[i] < 0 ? -1 : 1;
    return 1;
}
/* n numbers with a stride */
static void NAME(turn)(REAL *x, int64_t n, int64_t stride, REAL sign) {
    for (int64_t i = 0; i < n; i++) x[i * stride] *= sign;
}

static int NAME(eigh)(const tl_kernel_args *args, int64_t index, void *work) {
    const struct attr_eigh *attr = args->attr;
    const int n = (int)rows_of(&args->in[0]), lwork = (int)linalg_eigh_lwork(n, attr->vectors),
              liwork = (int)linalg_eigh_liwork(n, attr->vectors);
    REAL *a = work, *more = a + (int64_t)n * n, *values = (REAL *)args->out[0].data + index * n;
    int info = 0, *integers = (int *)(void *)(more + lwork);
    if (!n) return 0;
    NAME(read)(a, &args->in[0], index);
    LAPACK(syevd)
    (attr->vectors ? "V" : "N", attr->upper ? "U" : "L", &n, a, &n, values, more, &lwork, integers, &liwork, &info, 1,
     1);
    if (!attr->vectors) return info;
    for (int64_t j = 0; j < n; j++) NAME(turn)(a + j * n, n, 1, NAME(sign)(a + j * n, n));
    NAME(write)(&args->out[1], index, a, n, NAME(ALL));
    return info;
}

/* Values in pairs of conjugates have a positive imaginary part first; of their vectors LAPACK gives the real part and
 * the imaginary part of the first, in two columns. The info of an element that is not finite is negative. */
static int NAME(eig)(const tl_kernel_args *args, int64_t index, void *work) {
    const bool vectors = ((const struct attr_eig *)args->attr)->vectors;
    const int n = (int)rows_of(&args->in[0]), lwork = (int)linalg_eig_lwork(n), one = 1;
    REAL *a = work, *v = a + (int64_t)n * n, *re = v + (vectors ? (int64_t)n * n : 0), *im = re + n, *more = im + n;
    REAL *values = (REAL *)args->out[0].data + index * n * 2;
    int info = 0;
    if (!n) return 0;
    NAME(read)(a, &args->in[0], index);
    for (int64_t i = 0; i < (int64_t)n * n; i++)
        if (!isfinite(a[i])) return (int)(-1 - i);
    LAPACK(geev)("N", vectors ? "V" : "N", &n, a, &n, re, im, v, &one, v, &n, more, &lwork, &info, 1, 1);
    if (info) return info;
    for (int64_t j = 0; j < n; j++) {
        values[2 * j] = re[j];
        values[2 * j + 1] = im[j];
    }
    if (!vectors) return 0;
    REAL *to = (REAL *)args->out[1].data + index * n * n * 2;
    for (int64_t j = 0; j < n; j++) {
        const bool is_second = im[j] < 0;
        const REAL *column = v + (j - is_second) * n;
        for (int64_t i = 0; i < n; i++) {
            to[2 * (i * n + j)] = column[i];
            to[2 * (i * n + j) + 1] = im[j] == 0 ? 0 : is_second ? -column[i + n] : column[i + n];
        }
    }
    return 0;
}

/* The identity, for factors of a matrix without elements. */
static void NAME(write_identity)(const tl_operand *x, int64_t index) {
    const int64_t m = rows_of(x), n = columns_of(x);
    for (int64_t i = 0; i < m * n; i++) ((REAL *)x->data)[index * m * n + i] = i / n == i % n;
}

static int NAME(svd)(const tl_kernel_args *args, int64_t index, void *work) {
    const struct attr_svd *attr = args->attr;
    const tl_operand *x = &args->in[0], *u = &args->out[1], *vh = &args->out[2];
    const int m = (int)rows_of(x), n = (int)columns_of(x), k = m < n ? m : n, n_u = attr->full ? m : k,
              n_v = attr->full ? n : k, lwork = (int)linalg_svd_lwork(m, n, attr->vectors);
    REAL *a = work, *left = a + (int64_t)m * n, *right = left + (attr->vectors ? (int64_t)m * n_u : 0);
    REAL *more = right + (attr->vectors ? (int64_t)n_v * n : 0), *s = (REAL *)args->out[0].data + index * k;
    const int ld_v = n_v > 1 ? n_v : 1;
    int info = 0, *integers = (int *)(void *)(more + lwork);
    if (!k && attr->vectors) {
        NAME(write_identity)(u, index);
        NAME(write_identity)(vh, index);
    }
    if (!k) return 0;
    NAME(read)(a, x, index);
    LAPACK(gesdd)
    (attr->vectors ? attr->full ? "A" : "S" : "N", &m, &n, a, &m, s, left, &m, right, &ld_v, more, &lwork, integers,
     &info, 1);
    if (!attr->vectors) return info;
    for (int64_t j = 0; j < k; j++) { /* of U's columns; V's follow them */
        const REAL sign = NAME(sign)(left + j * m, m);
        NAME(turn)(left + j * m, m, 1, sign);
        NAME(turn)(right + j, n, ld_v, sign);
    }
    NAME(write)(u, index, left, m, NAME(ALL));
    NAME(write)(vh, index, right, n_v, NAME(ALL));
    return info;
}

#endif

#undef REAL
#undef NAME
#undef LAPACK
#undef TRSM
#undef MAGNITUDE
#undef LOGARITHM
