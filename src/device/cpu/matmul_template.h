/* matmul_template.h: the tile path of matmul.c for one compute type. REAL, NAME and COLUMNS are set by the includer. */

enum { NAME(TILE_K) = TILE_K_BYTES / (int)sizeof(REAL) };

/* Lays n rows (of n_k elements, k_stride apart) out as panels (n / width, n_k, width), the last one padded with zeros.
 * k_stride 1: rows are converted whole and then transposed. stride 1: runs along the rows are converted and cut. */
static void NAME(pack)(REAL *out, const void *data, tl_dtype dtype, int64_t stride, int64_t k_stride, int64_t n,
                       int64_t n_k, int64_t width) {
    const int64_t n_padded = (n + width - 1) / width * width;
    if (stride == 1 && k_stride != 1) {
        REAL line[TILE_N] = {0};
        for (int64_t k = 0; k < n_k; k++) {
            NAME(convert_to)(line, block_at(data, dtype, k * k_stride), dtype, 1, n);
            for (int64_t i = 0; i < n_padded; i += width) {
                memcpy(out + i * n_k + k * width, line + i, (size_t)width * sizeof(REAL));
            }
        }
        return;
    }
    enum { LINES = TILE_ROWS > COLUMNS ? TILE_ROWS : COLUMNS };
    REAL lines[LINES][NAME(TILE_K)];
    for (int64_t i0 = 0; i0 < n; i0 += width) {
        for (int64_t i = 0; i < width; i++) {
            if (i0 + i < n) {
                NAME(convert_to)(lines[i], block_at(data, dtype, (i0 + i) * stride), dtype, k_stride, n_k);
            } else {
                memset(lines[i], 0, (size_t)n_k * sizeof(REAL));
            }
        }
        NAME(tile_transpose)(width, n_k, lines[0], NAME(TILE_K), out + i0 * n_k, width);
    }
}

/* The finished sums of a rectangle (rows `step` apart), rounded into the output or added to it. */
static void NAME(store)(const struct product *p, const struct rectangle *r, const REAL *sums, int64_t step) {
    for (int64_t i = 0; i < r->n_i; i++) {
        void *out = block_at(p->out->data, p->out->dtype, r->out_at + i * p->n);
        const REAL *row = sums + i * step;
        REAL total[STORE_N];
        if (p->add) {
            NAME(convert_to)(total, out, p->out->dtype, 1, r->n_j);
            for (int64_t j = 0; j < r->n_j; j++) {
                total[j] += row[j];
            }
            row = total;
        }
        NAME(convert_from)(out, p->out->dtype, 1, row, r->n_j);
    }
}

static void NAME(tile_rectangles)(void *context, int64_t first, int64_t last) {
    const struct product *p = context;
    _Alignas(64) REAL sums[TILE_M * TILE_N];
    _Alignas(64) REAL a[TILE_M * NAME(TILE_K)], b[TILE_N * NAME(TILE_K)];
    for (int64_t item = first; item < last; item++) {
        const struct rectangle r = rectangle_at(p, item);
        if (p->k == 0) {
            memset(sums, 0, sizeof sums);
        }
        for (int64_t k = 0; k < p->k; k += NAME(TILE_K)) {
            const int64_t n_k = block_min(NAME(TILE_K), p->k - k);
            const tl_dtype a_dtype = p->a.operand->dtype, b_dtype = p->b.operand->dtype;
            NAME(pack)
            (a, block_at(r.a, a_dtype, k * p->a.k_stride), a_dtype, p->a.stride, p->a.k_stride, r.n_i, n_k, TILE_ROWS);
            NAME(pack)
            (b, block_at(r.b, b_dtype, k * p->b.k_stride), b_dtype, p->b.stride, p->b.k_stride, r.n_j, n_k, COLUMNS);
            for (int64_t j = 0; j < r.n_j; j += COLUMNS) {
                for (int64_t i = 0; i < r.n_i; i += TILE_ROWS) {
                    NAME(tile_block)
                    (n_k, a + i * n_k, TILE_ROWS, b + j * n_k, COLUMNS, sums + i * TILE_N + j, TILE_N, k > 0);
                }
            }
        }
        NAME(store)(p, &r, sums, TILE_N);
    }
}

#undef REAL
#undef NAME
#undef COLUMNS
