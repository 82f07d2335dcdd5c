/* matmul_f64.h: f64 products that CBLAS cannot express or that are too small for it. A part of matmul.c. Blocks of both
 * operands are packed in the thread's arena and multiplied by tile.h, one rectangle of the output after the other. */

/* A rectangle's sums, and the block of each operand that is being multiplied: about 270 KiB. */
enum { TILE_M = 96, TILE_N = 128, TILE_K = 96 };

/* Lays n rows (of n_k elements, k_stride apart) out as panels (n / width, n_k, width), the last one padded with
 * zeros. */
static void pack(double *out, const void *data, tl_dtype dtype, int64_t stride, int64_t k_stride, int64_t n,
                 int64_t n_k, int64_t width) {
    enum { LINES = TILE_ROWS > TILE_COLUMNS_F64 ? TILE_ROWS : TILE_COLUMNS_F64 };
    double lines[LINES][TILE_K];
    for (int64_t i0 = 0; i0 < n; i0 += width) {
        for (int64_t i = 0; i < width; i++) {
            if (i0 + i < n) {
                convert_to_f64(lines[i], block_at(data, dtype, (i0 + i) * stride), dtype, k_stride, n_k);
            } else {
                memset(lines[i], 0, (size_t)n_k * sizeof **lines);
            }
        }
        tile_transpose_f64(width, n_k, lines[0], TILE_K, out + i0 * n_k, width);
    }
}

/* The finished sums of a rectangle, into the output or added to it. */
static void store(const struct product *p, const struct rectangle *r, const double *sums) {
    for (int64_t i = 0; i < r->n_i; i++) {
        double *out = (double *)p->out->data + r->out_at + i * p->n;
        const double *row = sums + i * TILE_N;
        for (int64_t j = 0; j < r->n_j; j++) {
            out[j] = p->add ? out[j] + row[j] : row[j];
        }
    }
}

static void tile_rectangles(void *context, int64_t first, int64_t last) {
    const struct product *p = context;
    const tl_dtype a_dtype = p->a.operand->dtype, b_dtype = p->b.operand->dtype;
    SCRATCH_ARRAY(double, sums, (TILE_M * TILE_N));
    SCRATCH_ARRAY(double, a, (TILE_M * TILE_K));
    SCRATCH_ARRAY(double, b, (TILE_N * TILE_K));
    for (int64_t item = first; item < last; item++) {
        const struct rectangle r = rectangle_at(p, item);
        if (p->k == 0) {
            memset(sums, 0, TILE_M * TILE_N * sizeof *sums);
        }
        for (int64_t k = 0; k < p->k; k += TILE_K) {
            const int64_t n_k = block_min(TILE_K, p->k - k);
            const void *from_a = block_at(r.a, a_dtype, k * p->a.k_stride);
            const void *from_b = block_at(r.b, b_dtype, k * p->b.k_stride);
            pack(a, from_a, a_dtype, p->a.stride, p->a.k_stride, r.n_i, n_k, TILE_ROWS);
            pack(b, from_b, b_dtype, p->b.stride, p->b.k_stride, r.n_j, n_k, TILE_COLUMNS_F64);
            for (int64_t j = 0; j < r.n_j; j += TILE_COLUMNS_F64) {
                for (int64_t i = 0; i < r.n_i; i += TILE_ROWS) {
                    tile_block_f64(n_k, a + i * n_k, TILE_ROWS, b + j * n_k, TILE_COLUMNS_F64, sums + i * TILE_N + j,
                                   TILE_N, k > 0);
                }
            }
        }
        store(p, &r, sums);
    }
}
