/* reduce_softmax_template.h: softmax and its gradient in compute type T; included by reduce.c once per type. */

/* Elements first .. first+n-1 of a dense operand as an array of T: in place, or converted into buffer. */
static const T *TYPE(dense_part)(const tl_operand *x, int64_t first, int64_t n, T *buffer) {
    const char *at = (const char *)x->data + first * iterate_element_bytes(x->dtype);
    if (x->dtype == COMPUTE) return (const T *)(const void *)at;
    TYPE(convert_to)(buffer, at, x->dtype, 1, n);
    return buffer;
}

static T TYPE(row_max)(const struct softmax_task *task, int64_t first) {
    T lanes[LANES], buffer[BLOCK];
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = -INFINITY;
    for (int64_t i = 0; i < task->n_columns; i += BLOCK) {
        const int64_t n = smaller(BLOCK, task->n_columns - i);
        TYPE(accumulate_max)(lanes, TYPE(dense_part)(task->x, first + i, n, buffer), n);
    }
    return TYPE(tree_max)(lanes);
}

static T TYPE(block_sum)(const T *x, int64_t n) {
    T lanes[LANES] = {0};
    TYPE(accumulate_sum)(lanes, x, n);
    return TYPE(tree_sum)(lanes);
}

/* The sum of products, in the same order. */
static T TYPE(block_dot)(const T *x, const T *y, int64_t n) {
    T lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) lanes[lane] += x[i + lane] * y[i + lane];
    for (int lane = 0; i + lane < n; lane++) lanes[lane] += x[i + lane] * y[i + lane];
    return TYPE(tree_sum)(lanes);
}

/* In tiles, as the maps of elementwise_map_template.h. */
static void TYPE(exp_part)(T *out, const T *x, T max, int64_t n) {
    int64_t i = 0;
    for (; i + VECTOR_TILE <= n; i += VECTOR_TILE) {
        T tile[VECTOR_TILE];
        memcpy(tile, x + i, sizeof tile);
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] -= max;
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] = TYPE(vector_exp_falling)(tile[k]);
        memcpy(out + i, tile, sizeof tile);
    }
    for (; i < n; i++) out[i] = TYPE(vector_exp_falling)(x[i] - max);
}

static void TYPE(softmax_rows)(void *context, int64_t first_row, int64_t last_row) {
    const struct softmax_task *task = context;
    const tl_operand *out = task->out;
    const int64_t out_bytes = iterate_element_bytes(out->dtype);
    SCRATCH_ARRAY(T, buffer, BLOCK);
    SCRATCH_ARRAY(T, row_buffer, KEPT_ROW);
    SCRATCH_ARRAY(T, exps, BLOCK);
    for (int64_t row = first_row; row < last_row; row++) {
        const int64_t first = row * task->n_columns;
        char *to = (char *)out->data + first * out_bytes;
        T *kept = out->dtype == COMPUTE ? (T *)(void *)to : task->n_columns <= KEPT_ROW ? row_buffer : NULL;
        const T max = TYPE(row_max)(task, first);

        double sum = 0.0;
        for (int64_t i = 0; i < task->n_columns; i += BLOCK) {
            const int64_t n = smaller(BLOCK, task->n_columns - i);
            T *part = kept ? kept + i : exps;
            TYPE(exp_part)(part, TYPE(dense_part)(task->x, first + i, n, buffer), max, n);
            sum += (double)TYPE(block_sum)(part, n);
        }

        const T scale = (T)(1.0 / sum);
        for (int64_t i = 0; i < task->n_columns; i += BLOCK) {
            const int64_t n = smaller(BLOCK, task->n_columns - i);
            T *part = kept ? kept + i : exps;
            if (!kept) TYPE(exp_part)(part, TYPE(dense_part)(task->x, first + i, n, buffer), max, n);
            for (int64_t k = 0; k < n; k++) part[k] *= scale;
            if (out->dtype != COMPUTE) TYPE(convert_from)(to + i * out_bytes, out->dtype, 1, part, n);
        }
    }
}

/* d/dx of softmax: y (g - sum(g y)). */
static void TYPE(softmax_grad_rows)(void *context, int64_t first_row, int64_t last_row) {
    const struct softmax_task *task = context;
    const tl_operand *out = task->out;
    const int64_t out_bytes = iterate_element_bytes(out->dtype);
    SCRATCH_ARRAY(T, y_buffer, BLOCK);
    SCRATCH_ARRAY(T, g_buffer, BLOCK);
    SCRATCH_ARRAY(T, result, BLOCK);
    for (int64_t row = first_row; row < last_row; row++) {
        const int64_t first = row * task->n_columns;
        double sum = 0.0;
        for (int64_t i = 0; i < task->n_columns; i += BLOCK) {
            const int64_t n = smaller(BLOCK, task->n_columns - i);
            const T *y = TYPE(dense_part)(task->x, first + i, n, y_buffer);
            const T *g = TYPE(dense_part)(task->g, first + i, n, g_buffer);
            sum += (double)TYPE(block_dot)(g, y, n);
        }

        const T dot = (T)sum;
        for (int64_t i = 0; i < task->n_columns; i += BLOCK) {
            const int64_t n = smaller(BLOCK, task->n_columns - i);
            const T *y = TYPE(dense_part)(task->x, first + i, n, y_buffer);
            const T *g = TYPE(dense_part)(task->g, first + i, n, g_buffer);
            char *to = (char *)out->data + (first + i) * out_bytes;
            T *part = out->dtype == COMPUTE ? (T *)(void *)to : result;
            VECTOR_LOOP
            for (int64_t k = 0; k < n; k++) part[k] = y[k] * (g[k] - dot);
            if (out->dtype != COMPUTE) TYPE(convert_from)(to, out->dtype, 1, result, n);
        }
    }
}
