/* head_template.h: the rows of head.c for one compute type. REAL and NAME are set by the includer. */

static REAL NAME(row_max)(const REAL *x, int64_t n) {
    REAL lane[BLOCK_LANES];
    for (int j = 0; j < BLOCK_LANES; j++) lane[j] = -INFINITY;
    int64_t i = 0;
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES)
        for (int j = 0; j < BLOCK_LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int j = 0; i + j < n; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    REAL max = -INFINITY;
    for (int j = 0; j < BLOCK_LANES; j++) max = lane[j] > max ? lane[j] : max;
    return max;
}

/* Sum of exp(x - shift). */
static REAL NAME(row_exp_sum)(const REAL *x, REAL shift, int64_t n) {
    REAL lane[BLOCK_LANES] = {0}, e[BLOCK];
    for (int64_t c = 0; c < n; c += BLOCK) {
        const int64_t length = block_min(BLOCK, n - c);
        for (int64_t i = 0; i < length; i++) e[i] = NAME(vector_exp)(x[c + i] - shift);
        int64_t i = 0;
        for (; i + BLOCK_LANES <= length; i += BLOCK_LANES)
            for (int j = 0; j < BLOCK_LANES; j++) lane[j] += e[i + j];
        for (int j = 0; i + j < length; j++) lane[j] += e[i + j];
    }
    return NAME(block_total)(lane);
}

/* Rows of a chunk: loss = lse - logit of the target, and in place of the logits (exp(logit - lse) - onehot) * scale. */
static void NAME(head_rows)(void *context, int64_t first, int64_t last) {
    const struct head *head = context;
    const int64_t V = head->V;
    for (int64_t i = first; i < last; i++) {
        REAL *x = (REAL *)head->logits + i * V;
        const int64_t target = target_at(head->targets, head->row + i);
        if (target == head->ignore_index) {
            ((REAL *)head->losses)[head->row + i] = 0;
            if (V > 0) memset(x, 0, (size_t)V * sizeof(REAL));
            continue;
        }
        const REAL max = NAME(row_max)(x, V);
        const REAL shift = max > -INFINITY ? max : 0;
        const REAL lse = shift + NAME(vector_log)(NAME(row_exp_sum)(x, shift, V)), scale = (REAL)head->scale;
        ((REAL *)head->losses)[head->row + i] = lse - x[target];
        if (!head->has_gradients) continue;
        const REAL slope = (NAME(vector_exp)(x[target] - lse) - 1) * scale;
        for (int64_t j = 0; j < V; j++) x[j] = NAME(vector_exp)(x[j] - lse) * scale;
        x[target] = slope;
    }
}

#undef REAL
#undef NAME
