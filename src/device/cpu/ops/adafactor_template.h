/* adafactor_template.h: Adafactor's passes for one compute type. The includer sets REAL, REAL_DTYPE and NAME. */

/* Elements of p, from its master copy where there is one. */
static const REAL *NAME(p_read)(const struct adafactor *a, REAL *buffer, int64_t at, int64_t n) {
    if (a->master) return (const REAL *)a->master + at;
    return NAME(block_read)(buffer, a->p->data, a->p->dtype, at, n);
}

/* As torch.lerp. */
static inline REAL NAME(mixed)(REAL from, REAL to, double weight) {
    return weight < 0.5 ? from + (REAL)weight * (to - from) : to - (to - from) * (REAL)(1 - weight);
}

static double NAME(square_sum)(const REAL *x, int64_t n) {
    REAL lane[BLOCK_LANES] = {0};
    int64_t i = 0;
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES)
        for (int j = 0; j < BLOCK_LANES; j++) lane[j] += x[i + j] * x[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += x[i] * x[i];
    return (double)NAME(block_total)(lane);
}

/* ---- Squares of g and of p: row's moments, and sums by column ---- */

static void NAME(squares_of_line)(const struct adafactor *a, int64_t line, REAL *restrict sums) {
    const struct adafactor_sizes *s = &a->sizes;
    REAL *const row = (REAL *)a->state[0] + line;
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    double total = 0, p_total = 0;
    for (int64_t c = 0; c < s->columns; c += BLOCK) {
        const int64_t n = block_min(BLOCK, s->columns - c), at = line * s->columns + c;
        const REAL *g = NAME(block_read)(buffer, a->g->data, a->g->dtype, at, n);
        total += NAME(square_sum)(g, n);
        for (int64_t i = 0; i < n; i++) sums[c + i] += g[i] * g[i];
        p_total += NAME(square_sum)(NAME(p_read)(a, buffer, at, n), n);
    }
    *row = NAME(mixed)(*row, (REAL)(total / (double)s->columns * a->scale * a->scale), a->weight);
    a->p_sums[line] = p_total;
}

static void NAME(squares)(void *context, int64_t first, int64_t last) {
    const struct adafactor *a = context;
    const struct adafactor_sizes *s = &a->sizes;
    for (int64_t unit = first; unit < last; unit++) { /* a run of a matrix */
        const int64_t matrix = unit / s->runs, from = unit % s->runs * ADAFACTOR_RUN;
        REAL *sums = (REAL *)a->columns + unit * s->columns;
        memset(sums, 0, (size_t)s->columns * sizeof *sums);
        for (int64_t r = from; r < block_min(from + ADAFACTOR_RUN, s->rows); r++)
            NAME(squares_of_line)(a, matrix * s->rows + r, sums);
    }
}

/* Of a vector: its variance, and the sum of p^2. */
static void NAME(variance)(struct adafactor *a) {
    REAL *v = a->state[0];
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    const REAL square = (REAL)(a->scale * a->scale);
    a->p_sums[0] = 0;
    for (int64_t c = 0; c < a->sizes.columns; c += BLOCK) {
        const int64_t n = block_min(BLOCK, a->sizes.columns - c);
        const REAL *g = NAME(block_read)(buffer, a->g->data, a->g->dtype, c, n);
        for (int64_t i = 0; i < n; i++) v[c + i] = NAME(mixed)(v[c + i], g[i] * g[i] * square, a->weight);
        a->p_sums[0] += NAME(square_sum)(NAME(p_read)(a, buffer, c, n), n);
    }
}

/* Column's moments, of columns first .. last - 1 of all matrices. One over their roots replaces the first run's
 * sums. */
static void NAME(columns)(void *context, int64_t first, int64_t last) {
    const struct adafactor *a = context;
    const struct adafactor_sizes *s = &a->sizes;
    REAL *column = a->state[1];
    for (int64_t i = first; i < last; i++) {
        REAL *sums = (REAL *)a->columns + i / s->columns * s->runs * s->columns + i % s->columns;
        double total = 0;
        for (int64_t run = 0; run < s->runs; run++) total += (double)sums[run * s->columns];
        column[i] = NAME(mixed)(column[i], (REAL)(total / (double)s->rows * a->scale * a->scale), a->weight);
        *sums = 1 / NAME(vector_sqrt)(column[i]);
    }
}

/* The mean of each matrix's rows' moments. NaN stays. */
static void NAME(means)(struct adafactor *a) {
    const struct adafactor_sizes *s = &a->sizes;
    const REAL *row = a->state[0];
    for (int64_t m = 0; m < s->n_matrices; m++) {
        double total = 0;
        for (int64_t r = 0; r < s->rows; r++) total += (double)row[m * s->rows + r];
        const double mean = total / (double)s->rows;
        a->means[m] = mean < a->eps1 ? a->eps1 : mean;
    }
}

/* ---- u ---- */

/* n elements of u over the scale, from column c of a line on. NaN stays. Of a matrix, 1 / sqrt(v) is the product of
 * row's and column's, at most 1 / eps1: a root and a division for each element would take longer than the rest. */
static void NAME(update_read)(const struct adafactor *a, int64_t line, int64_t c, int64_t n, REAL *u) {
    const struct adafactor_sizes *s = &a->sizes;
    const REAL least = (REAL)(a->eps1 * a->eps1), *state = a->state[0];
    const REAL *g = NAME(block_read)(u, a->g->data, a->g->dtype, line * s->columns + c, n);
    if (!s->is_factored) {
        const REAL *v = state + c;
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) u[i] = g[i] / NAME(vector_sqrt)(v[i] < least ? least : v[i]);
        return;
    }
    const int64_t matrix = line / s->rows;
    const REAL *inverse = (const REAL *)a->columns + matrix * s->runs * s->columns + c;
    const REAL row = state[line] / (REAL)a->means[matrix], by_row = 1 / NAME(vector_sqrt)(row);
    const REAL most = (REAL)(1 / a->eps1);
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) { /* g may be u */
        const REAL by = by_row * inverse[i];
        u[i] = g[i] * (by > most ? most : by);
    }
}

static void NAME(update_squares)(void *context, int64_t first, int64_t last) {
    const struct adafactor *a = context;
    SCRATCH_ARRAY(REAL, u, BLOCK);
    for (int64_t line = first; line < last; line++) {
        a->u_sums[line] = 0;
        for (int64_t c = 0; c < a->sizes.columns; c += BLOCK) {
            const int64_t n = block_min(BLOCK, a->sizes.columns - c);
            NAME(update_read)(a, line, c, n, u);
            a->u_sums[line] += NAME(square_sum)(u, n);
        }
    }
}

/* ---- p ---- */

static void NAME(p_write)(const struct adafactor *a, const REAL *values, int64_t at, int64_t n) {
    const tl_operand *p = a->p;
    const tl_generator *generator = &a->attr->update.generator;
    uint32_t words[BLOCK];
    if (a->master) memcpy((REAL *)a->master + at, values, (size_t)n * sizeof *values);
    if (!a->attr->update.is_stochastic) {
        NAME(block_write)(values, p->data, p->dtype, at, n);
        return;
    }
    rng_fill_u32(words, n, (struct rng_key){generator->seed, generator->stream}, generator->index + (uint64_t)at);
    convert(block_at(p->data, p->dtype, at), p->dtype, 1, values, REAL_DTYPE, 1, n, CONVERT_STOCHASTIC, words);
}

static void NAME(steps)(void *context, int64_t first, int64_t last) {
    const struct adafactor *a = context;
    const REAL keep = (REAL)a->keep, factor = (REAL)a->factor;
    SCRATCH_ARRAY(REAL, u, BLOCK);
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    for (int64_t line = first; line < last; line++)
        for (int64_t c = 0; c < a->sizes.columns; c += BLOCK) {
            const int64_t n = block_min(BLOCK, a->sizes.columns - c), at = line * a->sizes.columns + c;
            NAME(update_read)(a, line, c, n, u);
            const REAL *p = NAME(p_read)(a, buffer, at, n);
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) u[i] = p[i] * keep - factor * u[i];
            NAME(p_write)(a, u, at, n);
        }
}

#undef REAL
#undef REAL_DTYPE
#undef NAME
