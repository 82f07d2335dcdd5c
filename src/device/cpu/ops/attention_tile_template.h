/* attention_tile_template.h: attention_tile.h for one type. REAL, NAME, TILE_ADD and TILE_N are set by the includer. */

static inline void NAME(tile_finish)(NAME(tile) sum[TILE_M][2], REAL *c, int64_t c_step, bool add) {
    TILE_UNROLLED
    for (int i = 0; i < TILE_M; i++) {
        NAME(tile_stored) *left = (NAME(tile_stored) *)(c + i * c_step);
        NAME(tile_stored) *right = (NAME(tile_stored) *)(c + i * c_step + TILE_N / 2);
        if (add) {
            sum[i][0] += *left;
            sum[i][1] += *right;
        }
        *left = sum[i][0];
        *right = sum[i][1];
    }
}

static inline void NAME(tile_walk)(int64_t n_k, const REAL *a, int64_t row_step, int64_t k_step, const REAL *b,
                                   int64_t b_step, REAL *c, int64_t c_step, bool add) {
    NAME(tile) sum[TILE_M][2];
    TILE_UNROLLED
    for (int i = 0; i < TILE_M; i++) sum[i][0] = sum[i][1] = (NAME(tile)){0};
    for (int64_t p = 0; p < n_k; p++) {
        const NAME(tile) b0 = *(const NAME(tile_stored) *)(b + p * b_step);
        const NAME(tile) b1 = *(const NAME(tile_stored) *)(b + p * b_step + TILE_N / 2);
        TILE_UNROLLED
        for (int i = 0; i < TILE_M; i++) {
            const REAL own = a[i * row_step + p * k_step];
            sum[i][0] = TILE_ADD(sum[i][0], b0, own);
            sum[i][1] = TILE_ADD(sum[i][1], b1, own);
        }
    }
    NAME(tile_finish)(sum, c, c_step, add);
}

static inline void NAME(tile_of_rows)(int64_t n_k, const REAL *a, int64_t a_step, const REAL *b, int64_t b_step,
                                      REAL *c, int64_t c_step, bool add) {
    NAME(tile_walk)(n_k, a, a_step, 1, b, b_step, c, c_step, add);
}

static inline void NAME(tile_of_columns)(int64_t n_k, const REAL *a, int64_t a_step, const REAL *b, int64_t b_step,
                                         REAL *c, int64_t c_step, bool add) {
    NAME(tile_walk)(n_k, a, 1, a_step, b, b_step, c, c_step, add);
}

#undef REAL
#undef NAME
#undef TILE_ADD
#undef TILE_N
