/* lse_template.h: the log of a row's sum of exp, in one compute type. REAL and NAME are set by the includer. */

/* to = exp(x - shift) for x up to shift; may be in place. In tiles, so that several exponentials overlap. */
static inline void NAME(exp_run)(REAL *to, const REAL *x, REAL shift, int64_t n) {
    int64_t i = 0;
    for (; i + VECTOR_TILE <= n; i += VECTOR_TILE) {
        REAL tile[VECTOR_TILE];
        memcpy(tile, x + i, sizeof tile);
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] = NAME(vector_exp_falling)(tile[k] - shift);
        memcpy(to + i, tile, sizeof tile);
    }
    for (; i < n; i++) to[i] = NAME(vector_exp_falling)(x[i] - shift);
}

/* log of the sum of exp(x - shift) over one row of V, where shift is the row's maximum, so that nothing overflows.
 * `buffer` and `e` have room for BLOCK. */
static inline REAL NAME(row_log_sum)(const tl_operand *logits, int64_t row, int64_t V, REAL *shift, REAL *buffer,
                                     REAL *e) {
    REAL lane[BLOCK_LANES];
    for (int j = 0; j < BLOCK_LANES; j++) {
        lane[j] = -INFINITY;
    }
    for (int64_t c = 0; c < V; c += BLOCK) {
        const int64_t n = block_min(BLOCK, V - c);
        const REAL *x = NAME(block_read)(buffer, logits->data, logits->dtype, row * V + c, n);
        int64_t i = 0;
        for (; i + BLOCK_LANES <= n; i += BLOCK_LANES) {
            for (int j = 0; j < BLOCK_LANES; j++) {
                lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
            }
        }
        for (int j = 0; i + j < n; j++) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    REAL max = -INFINITY;
    for (int j = 0; j < BLOCK_LANES; j++) {
        max = lane[j] > max ? lane[j] : max;
        lane[j] = 0;
    }
    const REAL by = max > -INFINITY ? max : 0; /* a row of -inf only has the sum 0, and lse -inf */

    for (int64_t c = 0; c < V; c += BLOCK) {
        const int64_t n = block_min(BLOCK, V - c);
        const REAL *x = NAME(block_read)(buffer, logits->data, logits->dtype, row * V + c, n);
        NAME(exp_run)(e, x, by, n);
        int64_t i = 0;
        for (; i + BLOCK_LANES <= n; i += BLOCK_LANES) {
            for (int j = 0; j < BLOCK_LANES; j++) {
                lane[j] += e[i + j];
            }
        }
        for (int j = 0; i + j < n; j++) {
            lane[j] += e[i + j];
        }
    }
    *shift = by;
    return NAME(vector_log)(NAME(block_total)(lane));
}
