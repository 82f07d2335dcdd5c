/* tile_template.h: the body of tile.h for one type. REAL, NAME and COLUMNS are set by the includer. */

/* One block of TILE_ROWS x COLUMNS sums over n_k terms; see tile.h. */
static inline void NAME(tile_block)(int64_t n_k, const REAL *a, int64_t a_step, const REAL *b, int64_t b_step, REAL *c,
                                    int64_t c_step, bool add) {
    typedef NAME(tile_vector) vector;
    typedef NAME(tile_memory) memory;
    enum { LANES = COLUMNS / 2 };
    vector sum[TILE_ROWS][2];
    for (int i = 0; i < TILE_ROWS; i++) {
        sum[i][0] = (vector){0};
        sum[i][1] = (vector){0};
    }
    for (int64_t p = 0; p < n_k; p++) {
        const vector b0 = *(const memory *)(b + p * b_step);
        const vector b1 = *(const memory *)(b + p * b_step + LANES);
        NAME(tile_step)(sum, a + p * a_step, b0, b1);
    }
    for (int i = 0; i < TILE_ROWS; i++) {
        memory *left = (memory *)(c + i * c_step), *right = (memory *)(c + i * c_step + LANES);
        if (add) {
            sum[i][0] += *left;
            sum[i][1] += *right;
        }
        *left = sum[i][0];
        *right = sum[i][1];
    }
}

/* c (n_rows, n_columns) = or += a^T b, where a is (n_k, n_rows) and b is (n_k, n_columns). n_rows must be a
 * multiple of TILE_ROWS and n_columns of COLUMNS: buffers are padded. */
static inline void NAME(tile_product)(int64_t n_rows, int64_t n_columns, int64_t n_k, const REAL *a, int64_t a_step,
                                      const REAL *b, int64_t b_step, REAL *c, int64_t c_step, bool add) {
    for (int64_t j = 0; j < n_columns; j += COLUMNS) {
        for (int64_t i = 0; i < n_rows; i += TILE_ROWS) {
            NAME(tile_block)(n_k, a + i, a_step, b + j, b_step, c + i * c_step + j, c_step, add);
        }
    }
}

/* out (n_columns, n_rows) = in^T for in (n_rows, n_columns); steps between rows. */
static inline void NAME(tile_transpose)(int64_t n_rows, int64_t n_columns, const REAL *in, int64_t in_step, REAL *out,
                                        int64_t out_step) {
    for (int64_t i = 0; i < n_rows; i += 4) {
        int64_t j = 0;
        for (; i + 4 <= n_rows && j + 4 <= n_columns; j += 4) {
            NAME(tile_transpose_quad)(in + i * in_step + j, in_step, out + j * out_step + i, out_step);
        }
        for (; j < n_columns; j++) {
            for (int64_t k = i; k < i + 4 && k < n_rows; k++) {
                out[j * out_step + k] = in[k * in_step + j];
            }
        }
    }
}

#undef REAL
#undef NAME
#undef COLUMNS
