/* norm_template.h: the loops of norm.c for one compute type. REAL, NAME and SQRT are set by the includer. */

/* Sum of x - mean, or of (x - mean)^2, over one row. The buffer has room for BLOCK. */
static REAL NAME(row_sum)(const struct norm *norm, int64_t row, REAL mean, bool squared, REAL *buffer) {
    REAL lane[BLOCK_LANES] = {0};
    for (int64_t c = 0; c < norm->C; c += BLOCK) {
        const int64_t n = block_min(BLOCK, norm->C - c);
        const REAL *x = NAME(block_read)(buffer, norm->x->data, norm->x->dtype, row * norm->C + c, n);
        int64_t i = 0;
        for (; i + BLOCK_LANES <= n; i += BLOCK_LANES) {
            for (int j = 0; j < BLOCK_LANES; j++) {
                const REAL d = x[i + j] - mean;
                lane[j] += squared ? d * d : d;
            }
        }
        for (int j = 0; i + j < n; j++) {
            const REAL d = x[i + j] - mean;
            lane[j] += squared ? d * d : d;
        }
    }
    return NAME(block_total)(lane);
}

/* What dropout leaves of n elements from `at` on, rounded to the operand and written to it. */
static void NAME(drop)(const struct norm *norm, const tl_operand *to, int64_t at, const REAL *x, int64_t n,
                       REAL *buffer) {
    const REAL growth = (REAL)(1 / (1 - norm->dropout));
    uint8_t keep[BLOCK];
    rng_fill_mask(keep, n, dropout_key(norm->generator), dropout_first(norm->generator) + (uint64_t)at, norm->dropout);
    REAL *dropped = NAME(block_place)(buffer, to->data, to->dtype, at);
    for (int64_t i = 0; i < n; i++) {
        dropped[i] = keep[i] ? x[i] * growth : 0;
    }
    NAME(block_write)(dropped, to->data, to->dtype, at, n);
}

/* One row of x = a + b, if x is to be computed. */
static void NAME(add_row)(const struct norm *norm, int64_t row, REAL *a_buffer, REAL *b_buffer, REAL *sum_buffer) {
    const tl_operand *a_in = norm->addend[0], *b_in = norm->addend[1], *sum_out = norm->x;
    for (int64_t c = 0; c < norm->C; c += BLOCK) {
        const int64_t n = block_min(BLOCK, norm->C - c), at = row * norm->C + c;
        const REAL *a = NAME(block_read)(a_buffer, a_in->data, a_in->dtype, at, n);
        const REAL *b = NAME(block_read)(b_buffer, b_in->data, b_in->dtype, at, n);
        if (norm->dropout > 0) { /* it waits where the sum will be */
            NAME(drop)(norm, sum_out, at, b, n, sum_buffer);
            b = NAME(block_read)(b_buffer, sum_out->data, sum_out->dtype, at, n);
        }
        REAL *sum = NAME(block_place)(sum_buffer, sum_out->data, sum_out->dtype, at);
        for (int64_t i = 0; i < n; i++) {
            sum[i] = a[i] + b[i];
        }
        NAME(block_write)(sum, sum_out->data, sum_out->dtype, at, n);
    }
}

/* y = (x - mean) rstd weight + bias; weight and bias may be NULL. */
static void NAME(normalize)(REAL *y, const REAL *x, REAL mean, REAL rstd, const REAL *weight, const REAL *bias,
                            int64_t n) {
    if (weight && bias) {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    } else if (weight) {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * weight[i];
    } else if (bias) {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd + bias[i];
    } else {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd;
    }
}

static void NAME(forward_rows)(void *context, int64_t first, int64_t last) {
    const struct norm *norm = context;
    SCRATCH_ARRAY(REAL, x_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, y_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, weight_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, bias_buffer, BLOCK);
    for (int64_t row = first; row < last; row++) {
        if (norm->addend[0]) {
            NAME(add_row)(norm, row, x_buffer, weight_buffer, y_buffer);
        }
        const REAL mean = norm->centered ? NAME(row_sum)(norm, row, 0, false, x_buffer) / (REAL)norm->C : 0;
        const REAL variance = NAME(row_sum)(norm, row, mean, true, x_buffer) / (REAL)norm->C;
        const REAL rstd = 1 / SQRT(variance + (REAL)norm->eps);
        if (norm->mean) {
            ((REAL *)norm->mean->data)[row] = mean;
        }
        ((REAL *)norm->rstd->data)[row] = rstd;

        for (int64_t c = 0; c < norm->C; c += BLOCK) {
            const int64_t n = block_min(BLOCK, norm->C - c), at = row * norm->C + c;
            const REAL *x = NAME(block_read)(x_buffer, norm->x->data, norm->x->dtype, at, n);
            REAL *y = NAME(block_place)(y_buffer, norm->y->data, norm->y->dtype, at);
            const REAL *weight =
                norm->weight ? NAME(block_read)(weight_buffer, norm->weight->data, norm->weight->dtype, c, n) : NULL;
            const REAL *bias =
                norm->bias ? NAME(block_read)(bias_buffer, norm->bias->data, norm->bias->dtype, c, n) : NULL;
            NAME(normalize)(y, x, mean, rstd, weight, bias, n);
            NAME(block_write)(y, norm->y->data, norm->y->dtype, at, n);
        }
    }
}

/* Block [c, c + n) of one row: xhat, and g before and after the weight. */
struct NAME(block) {
    REAL xhat[BLOCK], gw[BLOCK], g_buffer[BLOCK], other_buffer[BLOCK], weight_buffer[BLOCK];
    const REAL *g, *x, *weight; /* weight may be NULL */
    REAL mean, rstd;
};

static void NAME(load)(struct NAME(block) * block, const struct norm *norm, int64_t row, int64_t c, int64_t n) {
    const int64_t at = row * norm->C + c;
    block->mean = norm->mean ? ((const REAL *)norm->mean->data)[row] : 0;
    block->rstd = ((const REAL *)norm->rstd->data)[row];
    block->x = NAME(block_read)(block->other_buffer, norm->x->data, norm->x->dtype, at, n);
    block->g = NAME(block_read)(block->g_buffer, norm->g->data, norm->g->dtype, at, n);
    block->weight =
        norm->weight ? NAME(block_read)(block->weight_buffer, norm->weight->data, norm->weight->dtype, c, n) : NULL;
}

/* n elements from i on, up to BLOCK_LANES: xhat and gw, and their sums. */
VECTOR_INLINE void NAME(add_lanes)(struct NAME(block) * block, int64_t i, int n, REAL *gw_lane, REAL *gwx_lane,
                                   bool has_weight) {
    for (int j = 0; j < n; j++) {
        const REAL xhat = (block->x[i + j] - block->mean) * block->rstd;
        const REAL gw = has_weight ? block->g[i + j] * block->weight[i + j] : block->g[i + j];
        block->xhat[i + j] = xhat;
        block->gw[i + j] = gw;
        gw_lane[j] += gw;
        gwx_lane[j] += gw * xhat;
    }
}

VECTOR_INLINE void NAME(add_block)(struct NAME(block) * block, int64_t n, REAL *gw_sums, REAL *gwx_sums,
                                   bool has_weight) {
    REAL gw_lane[BLOCK_LANES], gwx_lane[BLOCK_LANES]; /* registers */
    int64_t i = 0;
    memcpy(gw_lane, gw_sums, sizeof gw_lane);
    memcpy(gwx_lane, gwx_sums, sizeof gwx_lane);
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES)
        NAME(add_lanes)(block, i, BLOCK_LANES, gw_lane, gwx_lane, has_weight);
    NAME(add_lanes)(block, i, (int)(n - i), gw_lane, gwx_lane, has_weight);
    memcpy(gw_sums, gw_lane, sizeof gw_lane);
    memcpy(gwx_sums, gwx_lane, sizeof gwx_lane);
}

/* The sums of one run: of g * xhat, of g and of dx, or what dropout leaves of it; NULL: not wanted. */
struct NAME(run_sums) {
    REAL *dweight, *dbias, *dx;
};

/* dx of one row; on the way it is added to the run's sums. */
static void NAME(backward_row)(const struct norm *norm, int64_t row, const struct NAME(run_sums) * sums,
                               struct NAME(block) * block) {
    REAL *const dweight = sums->dweight, *const dbias = sums->dbias;
    REAL gw_lane[BLOCK_LANES] = {0}, gwx_lane[BLOCK_LANES] = {0}, unused[BLOCK_LANES] = {0};
    for (int64_t c = 0; c < norm->C; c += BLOCK) {
        const int64_t n = block_min(BLOCK, norm->C - c);
        NAME(load)(block, norm, row, c, n);
        if (block->weight) NAME(add_block)(block, n, gw_lane, gwx_lane, true);
        else NAME(add_block)(block, n, gw_lane, gwx_lane, false);
        if (dweight && dbias) {
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) {
                dweight[c + i] += block->g[i] * block->xhat[i];
                dbias[c + i] += block->g[i];
            }
        } else if (dweight) {
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) dweight[c + i] += block->g[i] * block->xhat[i];
        }
    }

    const REAL mean_gw = norm->centered ? NAME(block_total)(gw_lane) / (REAL)norm->C : 0;
    const REAL mean_gwx = NAME(block_total)(gwx_lane) / (REAL)norm->C;
    const REAL rstd = ((const REAL *)norm->rstd->data)[row];
    for (int64_t c = 0; c < norm->C; c += BLOCK) {
        const int64_t n = block_min(BLOCK, norm->C - c), at = row * norm->C + c;
        if (norm->C > BLOCK) { /* a row of one block is still there */
            NAME(load)(block, norm, row, c, n);
            if (block->weight) NAME(add_block)(block, n, unused, unused, true);
            else NAME(add_block)(block, n, unused, unused, false);
        }
        REAL *dx = NAME(block_place)(block->other_buffer, norm->dx->data, norm->dx->dtype, at);
        for (int64_t i = 0; i < n; i++) {
            dx[i] = rstd * (block->gw[i] - mean_gw - block->xhat[i] * mean_gwx);
        }
        if (norm->g_sum) { /* rounded first: the bits equal those of a separate norm gradient and sum */
            const REAL *g_sum = NAME(block_read)(block->g_buffer, norm->g_sum->data, norm->g_sum->dtype, at, n);
            NAME(block_write)(dx, norm->dx->data, norm->dx->dtype, at, n);
            NAME(block_read)(dx, norm->dx->data, norm->dx->dtype, at, n);
            for (int64_t i = 0; i < n; i++) {
                dx[i] += g_sum[i];
            }
        }
        NAME(block_write)(dx, norm->dx->data, norm->dx->dtype, at, n);
        const tl_operand *last = norm->dx;
        if (norm->dropped) {
            const REAL *rounded = NAME(block_read)(block->other_buffer, last->data, last->dtype, at, n);
            last = norm->dropped;
            NAME(drop)(norm, last, at, rounded, n, block->g_buffer);
        }
        if (sums->dx) {
            const REAL *rounded = NAME(block_read)(block->other_buffer, last->data, last->dtype, at, n);
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) sums->dx[c + i] += rounded[i];
        }
    }
}

static void NAME(backward_runs)(void *context, int64_t first, int64_t last) {
    const struct norm *norm = context;
    SCRATCH(struct NAME(block), block);
    for (int64_t run = first; run < last; run++) {
        const tl_operand *const out[3] = {norm->dweight, norm->dbias, norm->dx_sums};
        REAL *place[3] = {NULL, NULL, NULL}, *next = (REAL *)norm->sums + run * norm->C;
        for (int which = 0; which < 3; which++) {
            if (!out[which]) continue;
            place[which] = next;
            next += NORM_CHUNKS * norm->C;
            memset(place[which], 0, (size_t)norm->C * sizeof(REAL));
        }
        const struct NAME(run_sums) sums = {place[0], place[1], place[2]};
        const int64_t end = block_min((run + 1) * norm->run, norm->n_rows);
        for (int64_t row = run * norm->run; row < end; row++) {
            NAME(backward_row)(norm, row, &sums, block);
        }
    }
}

/* Adds the runs' sums (n_runs, C) in order; items are blocks of columns. */
static void NAME(add_runs)(void *context, int64_t first, int64_t last) {
    const struct norm *norm = context;
    const tl_operand *out[3] = {norm->dweight, norm->dbias, norm->dx_sums};
    for (int64_t item = first; item < last; item++) {
        const int64_t c = item * BLOCK, n = block_min(BLOCK, norm->C - c);
        for (int which = 0, at = 0; which < 3; which++) {
            if (!out[which]) continue;
            REAL total[BLOCK] = {0};
            for (int64_t run = 0; run < norm->n_runs; run++) {
                const REAL *sums = (const REAL *)norm->sums + (at * NORM_CHUNKS + run) * norm->C + c;
                for (int64_t i = 0; i < n; i++) {
                    total[i] += sums[i];
                }
            }
            NAME(block_write)(total, out[which]->data, out[which]->dtype, c, n);
            at++;
        }
    }
}

#undef REAL
#undef NAME
#undef SQRT
