/* attention_decode.h: attention of one query per row on all keys, as when text is generated. A part of attention.c.
 *
 * The tiles of attention_template.h would multiply a whole tile of queries for this one. Here the query heads that
 * share a head of keys are a product with few rows (gemm_thin.h), which reads keys and values once, in place:
 *     scores = scale q k^T        p = exp(scores - max)        o = p v        out = o / sum
 * over blocks of DECODE_KEYS keys with a running maximum, as in the other paths. */

enum { DECODE_KEYS = 1024, DECODE_HEADS = GEMM_THIN_ROWS, DECODE_MOST_D = 1024 };

struct decode {
    float q[DECODE_HEADS * DECODE_MOST_D], o[DECODE_HEADS * DECODE_MOST_D]; /* (heads, D); q times the scale */
    float scores[DECODE_HEADS * DECODE_KEYS];
    float max[DECODE_HEADS], sum[DECODE_HEADS];
};

static bool is_decode(const struct attention *a) {
    return a->T == 1 && a->S > 0 && a->D > 0 && a->D <= DECODE_MOST_D && !a->mask && !a->first_key &&
           !(a->dropout > 0) && a->left >= a->S - 1 && dtype_compute(a->q->dtype) == TL_F32;
}

/* Rows b, s .. of a head of keys or values. */
static const void *decode_rows(const tl_operand *x, int64_t b, int64_t s, int64_t h) {
    return block_at(x->data, x->dtype, block_row_at(x, b, s, h));
}

/* Scores of one head with n keys become weights; older sums are scaled to the new maximum. */
static void decode_weights(struct decode *w, int64_t i, int64_t n, int64_t D) {
    float *score = w->scores + i * DECODE_KEYS, *o = w->o + i * D, max = w->max[i];
    for (int64_t key = 0; key < n; key++) max = score[key] > max ? score[key] : max;
    const float shift = max > -INFINITY ? max : 0, factor = weight_f32(w->max[i] - shift);
    for (int64_t j = 0; factor != 1 && j < D; j++) o[j] *= factor;
    float lanes[BLOCK_LANES] = {0};
    int64_t key = 0;
    for (; key + BLOCK_LANES <= n; key += BLOCK_LANES)
        for (int j = 0; j < BLOCK_LANES; j++) lanes[j] += score[key + j] = weight_f32(score[key + j] - shift);
    for (int j = 0; key < n; key++, j++) lanes[j] += score[key] = weight_f32(score[key] - shift);
    w->max[i] = max;
    w->sum[i] = w->sum[i] * factor + block_total_f32(lanes);
}

static void decode_keys(struct decode *w, const struct attention *a, int64_t b, int64_t h_kv, int64_t n_heads,
                        int64_t s, int64_t n) {
    const struct gemm scores = {.a = {w->q, TL_F32, a->D, 1, NULL},
                                .b = {decode_rows(a->k, b, s, h_kv), a->k->dtype, a->k->stride[1], 1, NULL},
                                .out = w->scores,
                                .out_dtype = TL_F32,
                                .out_step = DECODE_KEYS,
                                .m = n_heads,
                                .n = n,
                                .k = a->D};
    gemm_multiply_small(&scores);
    for (int64_t i = 0; i < n_heads; i++) {
        if (a->soft_cap > 0) cap_run_f32(w->scores + i * DECODE_KEYS, (float)a->soft_cap, n);
        decode_weights(w, i, n, a->D);
    }
    const struct gemm output = {.a = {w->scores, TL_F32, DECODE_KEYS, 1, NULL},
                                .b = {decode_rows(a->v, b, s, h_kv), a->v->dtype, 1, a->v->stride[1], NULL},
                                .out = w->o,
                                .out_dtype = TL_F32,
                                .out_step = a->D,
                                .m = n_heads,
                                .n = a->D,
                                .k = n,
                                .add = true};
    gemm_multiply_small(&output);
}

/* Heads h .. h + n_heads - 1 of row b, all of one head of keys. */
static void decode_heads(struct decode *w, const struct attention *a, int64_t b, int64_t h, int64_t n_heads) {
    const int64_t D = a->D, h_kv = h / (a->H / a->H_kv);
    for (int64_t i = 0; i < n_heads; i++) {
        convert_to_f32(w->q + i * D, decode_rows(a->q, b, 0, h + i), a->q->dtype, 1, D);
        for (int64_t j = 0; j < D; j++) w->q[i * D + j] *= (float)a->scale;
        w->max[i] = -INFINITY;
        w->sum[i] = 0;
    }
    memset(w->o, 0, (size_t)(n_heads * D) * sizeof *w->o);
    for (int64_t s = 0; s < a->S; s += DECODE_KEYS)
        decode_keys(w, a, b, h_kv, n_heads, s, block_min(DECODE_KEYS, a->S - s));
    float *lse = (float *)a->lse->data + b * a->H + h;
    for (int64_t i = 0; i < n_heads; i++) {
        const bool sees_nothing = w->sum[i] == 0;
        const float factor = sees_nothing ? 0 : 1 / w->sum[i];
        lse[i] = sees_nothing ? -INFINITY : w->max[i] + vector_log_f32(w->sum[i]);
        for (int64_t j = 0; j < D; j++) w->o[i * D + j] *= factor;
        block_write_f32(w->o + i * D, a->out->data, a->out->dtype, (b * a->H + h + i) * D, D);
    }
}

static int64_t decode_groups(const struct attention *a) {
    return a->H ? (a->H / a->H_kv + DECODE_HEADS - 1) / DECODE_HEADS : 0;
}

static void decode_range(void *context, int64_t first, int64_t last) {
    const struct attention *a = context;
    const int64_t n_groups = decode_groups(a), per_kv = a->H / a->H_kv;
    SCRATCH(struct decode, w);
    for (int64_t item = first; item < last; item++) {
        const int64_t group = item % n_groups, h_kv = item / n_groups % a->H_kv, b = item / n_groups / a->H_kv;
        const int64_t begin = group * DECODE_HEADS;
        decode_heads(w, a, b, h_kv * per_kv + begin, block_min(DECODE_HEADS, per_kv - begin));
    }
}
