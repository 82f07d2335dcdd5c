/* attention_template.h: the loops of attention.c for one compute type. REAL, NAME and COLUMNS are set by the includer. */

enum {
    NAME(PART) = HEAD_PART_BYTES / (int)sizeof(REAL), /* of a head; a multiple of COLUMNS */
    NAME(QUANTUM) = COLUMNS > 8 ? 48 : 24, /* smallest number of queries: a multiple of TILE_ROWS and COLUMNS */
};

static inline int64_t NAME(pad)(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* Part of a head: columns d .. d + n - 1, in buffers padded with zeros to `width` columns. */
struct NAME(part) {
    int64_t d, n, width;
};

static struct NAME(part) NAME(part_at)(int64_t D, int64_t d) {
    const int64_t n = block_min(NAME(PART), D - d);
    return (struct NAME(part)){d, n, NAME(pad)(n, COLUMNS)};
}

/* Rows t .. t + n - 1 of head h, one part of them, as (n_padded, width). */
static void NAME(load)(REAL *out, const tl_operand *x, int64_t b, int64_t t, int64_t h, int64_t n, int64_t n_padded,
                       struct NAME(part) part) {
    if (part.n == 0) { /* then x has no elements, and perhaps no address */
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        REAL *row = out + i * part.width;
        NAME(convert_to)(row, block_at(x->data, x->dtype, row_at(x, b, t + i, h) + part.d), x->dtype, 1, part.n);
        for (int64_t j = part.n; j < part.width; j++) {
            row[j] = 0;
        }
    }
    memset(out + n * part.width, 0, (size_t)((n_padded - n) * part.width) * sizeof(REAL));
}

/* The first n rows of a padded tile, times the row's factor (NULL: 1) and `scale`, into a dense (B,T,H,D) output. */
static void NAME(unload)(const tl_operand *out, int64_t b, int64_t t, int64_t h, int64_t n, struct NAME(part) part,
                         const REAL *tile, const REAL *factor, REAL scale) {
    for (int64_t i = 0; i < n && part.n > 0; i++) {
        const int64_t at = ((b * out->shape[1] + t + i) * out->shape[2] + h) * out->shape[3] + part.d;
        const REAL f = factor ? factor[i] * scale : scale;
        REAL buffer[NAME(PART)];
        REAL *row = NAME(block_place)(buffer, out->data, out->dtype, at);
        for (int64_t j = 0; j < part.n; j++) {
            row[j] = tile[i * part.width + j] * f;
        }
        NAME(block_write)(row, out->data, out->dtype, at, part.n);
    }
}

/* n elements of the mask from (b, h, t, s) on, along the keys, as what is added to scores. */
static void NAME(mask_row)(REAL *out, const tl_operand *mask, int64_t b, int64_t h, int64_t t, int64_t s, int64_t n) {
    const int64_t at = b * mask->stride[0] + h * mask->stride[1] + t * mask->stride[2] + s * mask->stride[3];
    NAME(convert_to)(out, block_at(mask->data, mask->dtype, at), mask->dtype, mask->stride[3], n);
    for (int64_t i = 0; mask->dtype == TL_BOOL && i < n; i++) {
        out[i] = out[i] != 0 ? 0 : -INFINITY;
    }
}

/* ---- Forward --------------------------------------------------------------------------------------------- */

/* One block of queries. Scores lie as (keys, queries): the weights then are an operand of the product with v as they are,
 * and the running maxima and sums are plain vectors over queries. */
struct NAME(forward) {
    _Alignas(64) REAL q[NAME(PART) * FORWARD_QUERIES];    /* (D, queries) */
    _Alignas(64) REAL k[NAME(PART) * KEYS];               /* (D, keys) */
    _Alignas(64) REAL rows[FORWARD_QUERIES * NAME(PART)]; /* q, k on their way; v (keys, D) */
    _Alignas(64) REAL scores[KEYS * FORWARD_QUERIES];
    _Alignas(64) REAL o[FORWARD_QUERIES * NAME(PART)]; /* (queries, D) */
    REAL max[FORWARD_QUERIES], sum[FORWARD_QUERIES], factor[FORWARD_QUERIES];
    int64_t b, h, h_kv, t, n, n_padded; /* queries t .. t + n - 1 of head h */
    int64_t first_s;                    /* where their blocks of keys begin */
};

/* Scores with keys s .. s + n_keys - 1. q stays packed from the first block of keys on where it is all there. */
static void NAME(forward_scores)(struct NAME(forward) * f, const struct attention *attention, int64_t s,
                                 int64_t n_keys) {
    const int64_t D = attention->D, keys_padded = NAME(pad)(n_keys, TILE_ROWS);
    for (int64_t d = 0; d < D; d += NAME(PART)) {
        const struct NAME(part) part = NAME(part_at)(D, d);
        if (s == f->first_s || D > NAME(PART)) {
            NAME(load)(f->rows, attention->q, f->b, f->t, f->h, f->n, f->n_padded, part);
            NAME(tile_transpose)(f->n_padded, part.n, f->rows, part.width, f->q, FORWARD_QUERIES);
        }
        NAME(load)(f->rows, attention->k, f->b, s, f->h_kv, n_keys, keys_padded, part);
        NAME(tile_transpose)(keys_padded, part.n, f->rows, part.width, f->k, KEYS);
        NAME(tile_product)
        (keys_padded, f->n_padded, part.n, f->k, KEYS, f->q, FORWARD_QUERIES, f->scores, FORWARD_QUERIES, d > 0);
    }
    if (D == 0) {
        memset(f->scores, 0, sizeof f->scores);
    }
}

/* Scales the scores and adds the mask to them. */
static void NAME(forward_mask)(struct NAME(forward) * f, const struct attention *attention, int64_t s, int64_t n_keys) {
    const REAL scale = (REAL)attention->scale;
    for (int64_t i = 0; i < f->n; i++) {
        REAL row[KEYS];
        NAME(mask_row)(row, attention->mask, f->b, f->h, f->t + i, s, n_keys);
        for (int64_t key = 0; key < n_keys; key++) {
            REAL *score = f->scores + key * FORWARD_QUERIES + i;
            *score = *score * scale + row[key];
        }
    }
}

/* Scales one key's scores with n queries, hides them from those before `first` and from `end` on, and raises the maxima. */
static void NAME(raise_max)(REAL *restrict score, REAL *restrict max, REAL scale, int64_t first, int64_t end,
                            int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        score[i] *= scale;
    }
    for (int64_t i = 0; i < first; i++) {
        score[i] = -INFINITY;
    }
    for (int64_t i = end > 0 ? end : 0; i < n; i++) {
        score[i] = -INFINITY;
    }
    for (int64_t i = 0; i < n; i++) {
        max[i] = score[i] > max[i] ? score[i] : max[i];
    }
}

static void NAME(exp_and_sum)(REAL *restrict score, const REAL *restrict shift, REAL *restrict sum, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const REAL weight = NAME(vector_exp)(score[i] - shift[i]);
        score[i] = weight;
        sum[i] += weight;
    }
}

/* Turns scores into exp(scale * score - max), moves max and sum on, and leaves in `factor` what older sums shrink by. */
static void NAME(forward_softmax)(struct NAME(forward) * f, const struct attention *attention, int64_t s,
                                  int64_t n_keys) {
    const int64_t n = f->n_padded;
    REAL shift[FORWARD_QUERIES];
    memcpy(f->factor, f->max, sizeof f->factor);
    if (attention->mask) {
        NAME(forward_mask)(f, attention, s, n_keys);
    }
    for (int64_t key = 0; key < n_keys; key++) {
        const int64_t first_t = first_query(attention, s + key), end_t = end_query(attention, s + key);
        const int64_t n_hidden = first_t > f->t ? block_min(first_t - f->t, f->n) : 0;
        NAME(raise_max)
        (f->scores + key * FORWARD_QUERIES, f->max, attention->mask ? 1 : (REAL)attention->scale, n_hidden,
         end_t < attention->T ? end_t - f->t : n, n);
    }
    for (int64_t i = 0; i < n; i++) {
        shift[i] = f->max[i] > -INFINITY ? f->max[i] : 0; /* nothing seen yet: exp(-inf - 0) is the 0 we want */
        f->factor[i] = NAME(vector_exp)(f->factor[i] - shift[i]);
        f->sum[i] *= f->factor[i];
    }
    for (int64_t key = 0; key < n_keys; key++) {
        NAME(exp_and_sum)(f->scores + key * FORWARD_QUERIES, shift, f->sum, n);
    }
}

/* One part of the output of a block of queries. */
static void NAME(forward_part)(struct NAME(forward) * f, const struct attention *attention, struct NAME(part) part) {
    for (int64_t i = 0; i < FORWARD_QUERIES; i++) {
        f->max[i] = -INFINITY;
        f->sum[i] = 0;
    }
    memset(f->o, 0, (size_t)(f->n_padded * part.width) * sizeof(REAL));

    const int64_t n_visible = visible_keys(attention, f->t + f->n - 1);
    f->first_s = first_key(attention, f->t) / KEYS * KEYS;
    for (int64_t s = f->first_s; s < n_visible; s += KEYS) {
        const int64_t n_keys = block_min(KEYS, n_visible - s);
        NAME(forward_scores)(f, attention, s, n_keys);
        NAME(forward_softmax)(f, attention, s, n_keys);
        if (s > f->first_s) {
            for (int64_t i = 0; i < f->n; i++) {
                for (int64_t j = 0; j < part.width; j++) {
                    f->o[i * part.width + j] *= f->factor[i];
                }
            }
        }
        NAME(load)(f->rows, attention->v, f->b, s, f->h_kv, n_keys, n_keys, part);
        NAME(tile_product)
        (NAME(pad)(f->n, TILE_ROWS), part.width, n_keys, f->scores, FORWARD_QUERIES, f->rows, part.width, f->o,
         part.width, true);
    }

    REAL *lse = (REAL *)attention->lse->data + (f->b * attention->H + f->h) * attention->T + f->t;
    for (int64_t i = 0; i < f->n; i++) {
        const bool sees_nothing = f->sum[i] == 0;
        lse[i] = sees_nothing ? -INFINITY : f->max[i] + NAME(vector_log)(f->sum[i]);
        f->factor[i] = sees_nothing ? 0 : 1 / f->sum[i];
    }
    NAME(unload)(attention->out, f->b, f->t, f->h, f->n, part, f->o, f->factor, 1);
}

static void NAME(forward_blocks)(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t n_blocks = (attention->T + FORWARD_QUERIES - 1) / FORWARD_QUERIES;
    struct NAME(forward) f;
    for (int64_t item = first; item < last; item++) {
        const int64_t head = item / n_blocks;
        f.b = head / attention->H;
        f.h = head % attention->H;
        f.h_kv = f.h / (attention->H / attention->H_kv);
        f.t = item % n_blocks * FORWARD_QUERIES;
        f.n = block_min(FORWARD_QUERIES, attention->T - f.t);
        f.n_padded = NAME(pad)(f.n, NAME(QUANTUM));
        int64_t d = 0;
        do { /* lse is due even when D is 0 */
            NAME(forward_part)(&f, attention, NAME(part_at)(attention->D, d));
            d += NAME(PART);
        } while (d < attention->D);
    }
}

/* ---- Backward -------------------------------------------------------------------------------------------- */

/* One block of keys against one block of queries at a time. p and ds lie as (queries, keys), which is how dv and dk want
 * them; dq wants ds the other way round. */
struct NAME(backward) {
    _Alignas(64) REAL k[KEYS * NAME(PART)], k_t[NAME(PART) * KEYS], v_t[NAME(PART) * KEYS]; /* (keys, D), (D, keys) */
    _Alignas(64) REAL q[BACKWARD_QUERIES * NAME(PART)], g[BACKWARD_QUERIES * NAME(PART)];   /* (queries, D) */
    _Alignas(64) REAL q_t[NAME(PART) * BACKWARD_QUERIES], g_t[NAME(PART) * BACKWARD_QUERIES];
    _Alignas(64) REAL dk[KEYS * NAME(PART)], dv[KEYS * NAME(PART)], dq[BACKWARD_QUERIES * NAME(PART)];
    _Alignas(64) REAL p[BACKWARD_QUERIES * KEYS], ds[BACKWARD_QUERIES * KEYS], ds_t[KEYS * BACKWARD_QUERIES];
    int64_t b, h, h_kv;
    int64_t s, n_keys;      /* keys s .. s + n_keys - 1 */
    int64_t t, n, n_padded; /* queries t .. t + n - 1 of head h */
};

static void NAME(load_keys)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part) {
    NAME(load)(w->k, attention->v, w->b, w->s, w->h_kv, w->n_keys, KEYS, part);
    NAME(tile_transpose)(KEYS, part.n, w->k, part.width, w->v_t, KEYS);
    NAME(load)(w->k, attention->k, w->b, w->s, w->h_kv, w->n_keys, KEYS, part);
    NAME(tile_transpose)(KEYS, part.n, w->k, part.width, w->k_t, KEYS);
}

static void NAME(load_queries)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part) {
    NAME(load)(w->q, attention->q, w->b, w->t, w->h, w->n, w->n_padded, part);
    NAME(tile_transpose)(w->n_padded, part.n, w->q, part.width, w->q_t, BACKWARD_QUERIES);
    NAME(load)(w->g, attention->g, w->b, w->t, w->h, w->n, w->n_padded, part);
    NAME(tile_transpose)(w->n_padded, part.n, w->g, part.width, w->g_t, BACKWARD_QUERIES);
}

/* One query's row: scores in p become weights, and g v^T in ds becomes the slope of the scores; 0 before `first` and from
 * n_visible on. */
static void NAME(weights_row)(REAL *restrict p, REAL *restrict ds, REAL scale, REAL lse, REAL delta, int64_t first,
                              int64_t n_visible) {
    for (int64_t key = 0; key < KEYS; key++) {
        p[key] = NAME(vector_exp)(p[key] * scale - lse);
        ds[key] = p[key] * (ds[key] - delta);
    }
    for (int64_t key = 0; key < first && key < KEYS; key++) {
        p[key] = 0;
        ds[key] = 0;
    }
    for (int64_t key = n_visible > 0 ? n_visible : 0; key < KEYS; key++) {
        p[key] = 0;
        ds[key] = 0;
    }
}

/* Scales the scores in p and adds the mask to them. */
static void NAME(backward_mask)(struct NAME(backward) * w, const struct attention *attention) {
    const REAL scale = (REAL)attention->scale;
    for (int64_t i = 0; i < w->n; i++) {
        REAL row[KEYS], *p = w->p + i * KEYS;
        NAME(mask_row)(row, attention->mask, w->b, w->h, w->t + i, w->s, w->n_keys);
        for (int64_t key = 0; key < w->n_keys; key++) {
            p[key] = p[key] * scale + row[key];
        }
    }
}

/* p = exp(scale q k^T - lse) and ds = p * (g v^T - delta), both 0 where the query does not see the key. Leaves q, g and k of
 * the given part loaded. */
static void NAME(backward_weights)(struct NAME(backward) * w, const struct attention *attention,
                                   struct NAME(part) part) {
    const int64_t D = attention->D;
    for (int64_t d = 0; d < D; d += NAME(PART)) {
        const struct NAME(part) summed = NAME(part_at)(D, d);
        if (D > NAME(PART)) {
            NAME(load_keys)(w, attention, summed);
        }
        NAME(load_queries)(w, attention, summed);
        NAME(tile_product)(w->n_padded, KEYS, summed.n, w->q_t, BACKWARD_QUERIES, w->k_t, KEYS, w->p, KEYS, d > 0);
        NAME(tile_product)(w->n_padded, KEYS, summed.n, w->g_t, BACKWARD_QUERIES, w->v_t, KEYS, w->ds, KEYS, d > 0);
    }
    if (D > NAME(PART)) {
        NAME(load_keys)(w, attention, part);
        NAME(load_queries)(w, attention, part);
    }
    if (D == 0) {
        memset(w->p, 0, sizeof w->p);
        memset(w->ds, 0, sizeof w->ds);
    }

    const int64_t row = (w->b * attention->H + w->h) * attention->T + w->t;
    const REAL *lse = (const REAL *)attention->lse->data + row, *delta = (const REAL *)attention->delta + row;
    REAL scale = (REAL)attention->scale;
    if (attention->mask) {
        NAME(backward_mask)(w, attention);
        scale = 1;
    }
    for (int64_t i = 0; i < w->n; i++) {
        const int64_t n_visible = lse[i] == -INFINITY ? 0 : visible_keys(attention, w->t + i) - w->s; /* NaN stays */
        const int64_t first = first_key(attention, w->t + i) - w->s;
        NAME(weights_row)(w->p + i * KEYS, w->ds + i * KEYS, scale, lse[i], delta[i], first, n_visible);
    }
    memset(w->ds + w->n * KEYS, 0, (size_t)((w->n_padded - w->n) * KEYS) * sizeof(REAL));
}

/* The mask is added to the scores, so their slope is its. */
static void NAME(unload_mask)(const struct NAME(backward) * w, const struct attention *attention) {
    for (int64_t i = 0; i < w->n; i++) {
        const int64_t row = (w->b * attention->H + w->h) * attention->T + w->t + i;
        NAME(block_write)
        (w->ds + i * KEYS, attention->dmask->data, attention->dmask->dtype, row * attention->S + w->s, w->n_keys);
    }
}

/* Adds one block of queries to dk and dv of the block of keys, and to dq in memory. */
static void NAME(backward_block)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part) {
    const int64_t keys_padded = NAME(pad)(w->n_keys, TILE_ROWS), queries_padded = NAME(pad)(w->n, TILE_ROWS);
    const REAL scale = (REAL)attention->scale;
    NAME(backward_weights)(w, attention, part);
    if (attention->dmask && part.d == 0) {
        NAME(unload_mask)(w, attention);
    }
    NAME(tile_product)(keys_padded, part.width, w->n, w->p, KEYS, w->g, part.width, w->dv, part.width, true);
    NAME(tile_product)(keys_padded, part.width, w->n, w->ds, KEYS, w->q, part.width, w->dk, part.width, true);
    NAME(tile_transpose)(w->n_padded, w->n_keys, w->ds, KEYS, w->ds_t, BACKWARD_QUERIES);
    NAME(tile_product)
    (queries_padded, part.width, w->n_keys, w->ds_t, BACKWARD_QUERIES, w->k, part.width, w->dq, part.width, false);
    for (int64_t i = 0; i < w->n; i++) {
        REAL *sums = (REAL *)attention->dq_sums +
                     ((w->b * attention->T + w->t + i) * attention->H + w->h) * attention->D + part.d;
        for (int64_t j = 0; j < part.n; j++) {
            sums[j] += scale * w->dq[i * part.width + j];
        }
    }
}

/* dk and dv of one block of keys, part by part. */
static void NAME(backward_keys)(struct NAME(backward) * w, const struct attention *attention) {
    const int64_t group = attention->H / attention->H_kv;
    const int64_t first_t = first_query(attention, w->s), end_t = end_query(attention, w->s + w->n_keys - 1);
    int64_t d = 0;
    do { /* the mask's gradient is due even when D is 0 */
        const struct NAME(part) part = NAME(part_at)(attention->D, d);
        memset(w->dk, 0, (size_t)(KEYS * part.width) * sizeof(REAL));
        memset(w->dv, 0, (size_t)(KEYS * part.width) * sizeof(REAL));
        NAME(load_keys)(w, attention, part);
        for (w->h = w->h_kv * group; w->h < (w->h_kv + 1) * group; w->h++) {
            for (w->t = first_t; w->t < end_t; w->t += BACKWARD_QUERIES) {
                w->n = block_min(BACKWARD_QUERIES, end_t - w->t);
                w->n_padded = NAME(pad)(w->n, NAME(QUANTUM));
                NAME(backward_block)(w, attention, part);
            }
        }
        NAME(unload)(attention->dk, w->b, w->s, w->h_kv, w->n_keys, part, w->dk, NULL, (REAL)attention->scale);
        NAME(unload)(attention->dv, w->b, w->s, w->h_kv, w->n_keys, part, w->dv, NULL, 1);
        d += NAME(PART);
    } while (d < attention->D);
}

/* delta = rowsum(g * out) of one head, and its rows of dq_sums and dmask set to 0. */
static void NAME(backward_begin)(const struct attention *attention, int64_t b, int64_t h) {
    const int64_t D = attention->D;
    for (int64_t t = 0; t < attention->T; t++) {
        const int64_t at = ((b * attention->T + t) * attention->H + h) * D;
        REAL g_buffer[BLOCK], out_buffer[BLOCK], lane[BLOCK_LANES] = {0};
        for (int64_t d = 0; d < D; d += BLOCK) {
            const int64_t n = block_min(BLOCK, D - d);
            const REAL *g = NAME(block_read)(g_buffer, attention->g->data, attention->g->dtype, at + d, n);
            const REAL *out = NAME(block_read)(out_buffer, attention->out->data, attention->out->dtype, at + d, n);
            int64_t i = 0;
            for (; i + BLOCK_LANES <= n; i += BLOCK_LANES) {
                for (int j = 0; j < BLOCK_LANES; j++) {
                    lane[j] += g[i + j] * out[i + j];
                }
            }
            for (int j = 0; i + j < n; j++) {
                lane[j] += g[i + j] * out[i + j];
            }
        }
        const int64_t row = (b * attention->H + h) * attention->T + t;
        const REAL g_lse = attention->g_lse ? ((const REAL *)attention->g_lse->data)[row] : 0;
        ((REAL *)attention->delta)[row] = NAME(block_total)(lane) - g_lse;
        if (D > 0) {
            memset((REAL *)attention->dq_sums + at, 0, (size_t)D * sizeof(REAL));
        }
    }
    if (attention->dmask && attention->T * attention->S > 0) { /* blocks that no query sees are not visited */
        const int64_t n = attention->T * attention->S, at = (b * attention->H + h) * n;
        memset(block_at(attention->dmask->data, attention->dmask->dtype, at), 0,
               (size_t)n * (size_t)dtype_info(attention->dmask->dtype)->bits / 8);
    }
}

static void NAME(backward_heads)(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t group = attention->H / attention->H_kv, D = attention->D;
    struct NAME(backward) w;
    for (int64_t item = first; item < last; item++) {
        w.b = item / attention->H_kv;
        w.h_kv = item % attention->H_kv;
        for (int64_t h = w.h_kv * group; h < (w.h_kv + 1) * group; h++) {
            NAME(backward_begin)(attention, w.b, h);
        }
        for (w.s = 0; w.s < attention->S; w.s += KEYS) {
            w.n_keys = block_min(KEYS, attention->S - w.s);
            NAME(backward_keys)(&w, attention);
        }
        for (int64_t h = w.h_kv * group; h < (w.h_kv + 1) * group; h++) {
            for (int64_t t = 0; t < attention->T; t++) {
                const int64_t at = ((w.b * attention->T + t) * attention->H + h) * D;
                NAME(block_write)
                ((const REAL *)attention->dq_sums + at, attention->dq->data, attention->dq->dtype, at, D);
            }
        }
    }
}

#undef REAL
#undef NAME
#undef COLUMNS
