/* attention_template.h: the loops of attention.c for one compute type. REAL, NAME and TILE_N are set by the
 * includer. */

enum {
    NAME(PART) = HEAD_PART_BYTES / (int)sizeof(REAL), /* of a head; a multiple of TILE_N */
    NAME(SIDE) = TILE_N > TILE_M ? TILE_N : TILE_M    /* rows of scores are processed in multiples of this */
};

/* Part of a head: columns d .. d + n - 1, in buffers padded with zeros to `width` columns. */
struct NAME(part) {
    int64_t d, n, width;
};

static struct NAME(part) NAME(part_at)(int64_t D, int64_t d) {
    const int64_t n = block_min(NAME(PART), D - d);
    return (struct NAME(part)){d, n, round_up(n, TILE_N)};
}

/* Rows t .. t + n - 1 of head h, one part of them, as (n rounded up to TILE_M, width), times `scale`. */
static void NAME(load)(REAL *out, const tl_operand *x, int64_t b, int64_t t, int64_t h, int64_t n,
                       struct NAME(part) part, REAL scale) {
    for (int64_t i = 0; i < n && part.n > 0; i++) { /* without columns x has no elements, and perhaps no address */
        REAL *restrict row = out + i * part.width;
        const void *from = block_at(x->data, x->dtype, block_row_at(x, b, t + i, h) + part.d);
        if (x->dtype == NAME(TYPE)) {
            memcpy(row, from, (size_t)part.n * sizeof(REAL));
        } else {
            NAME(convert_to)(row, from, x->dtype, 1, part.n);
        }
        for (int64_t j = part.n; j < part.width; j++) {
            row[j] = 0;
        }
        for (int64_t j = 0; scale != 1 && j < part.width; j++) {
            row[j] *= scale;
        }
    }
    memset(out + n * part.width, 0, (size_t)((round_up(n, TILE_M) - n) * part.width) * sizeof(REAL));
}

/* out (width, BLOCK_ROWS) = rows (n, width)^T; columns from n on, up to the next multiple of SIDE, are 0. */
static void NAME(turn)(REAL *restrict out, const REAL *restrict rows, int64_t n, int64_t width) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int64_t j = 0; j < width; j += 4) {
            NAME(turn_quad)(rows + i * width + j, width, out + j * ROWS + i);
        }
    }
    for (; i < round_up(n, NAME(SIDE)); i++) {
        for (int64_t j = 0; j < width; j++) {
            out[j * ROWS + i] = i < n ? rows[i * width + j] : 0;
        }
    }
}

/* The first n rows of a padded buffer, times the row's factor (NULL: 1), into a dense (B,T,H,D) output. */
static void NAME(unload)(const tl_operand *out, int64_t b, int64_t t, int64_t h, int64_t n, struct NAME(part) part,
                         const REAL *rows, const REAL *factor) {
    for (int64_t i = 0; i < n && part.n > 0; i++) {
        const int64_t at = block_row_at(out, b, t + i, h) + part.d;
        const REAL f = factor ? factor[i] : 1;
        REAL buffer[NAME(PART)];
        REAL *row = NAME(block_place)(buffer, out->data, out->dtype, at);
        for (int64_t j = 0; j < part.n; j++) {
            row[j] = rows[i * part.width + j] * f;
        }
        NAME(block_write)(row, out->data, out->dtype, at, part.n);
    }
}

/* n elements of the mask from (b, h, t, s) on, along the keys, as numbers to add to scores. */
static void NAME(mask_row)(REAL *out, const tl_operand *mask, int64_t b, int64_t h, int64_t t, int64_t s, int64_t n) {
    const int64_t at = b * mask->stride[0] + h * mask->stride[1] + t * mask->stride[2] + s * mask->stride[3];
    NAME(convert_to)(out, block_at(mask->data, mask->dtype, at), mask->dtype, mask->stride[3], n);
    for (int64_t i = 0; mask->dtype == TL_BOOL && i < n; i++) {
        out[i] = out[i] != 0 ? 0 : -INFINITY;
    }
}

/* ---- Forward --------------------------------------------------------------------------------------------- */

/* One block of queries. Scores are (keys, queries): the weights can then be multiplied with v as they are, and the
 * running maxima and sums are plain vectors over queries. */
struct NAME(forward) {
    _Alignas(64) REAL q_t[NAME(PART) * ROWS];  /* (D, queries), times the scale */
    _Alignas(64) REAL rows[ROWS * NAME(PART)]; /* q, k or v: (ROWS, D) */
    _Alignas(64) REAL scores[ROWS * ROWS];     /* (keys, queries) */
    _Alignas(64) REAL o[ROWS * NAME(PART)];    /* (queries, D) */
    REAL max[ROWS], sum[ROWS], factor[ROWS];
    int64_t b, h, h_kv;
    struct span queries; /* of head h */
    struct span keys;    /* the current block */
    int64_t first_s;     /* where the blocks of keys begin */
};

/* Scores of the tiles in which a query sees a key. If the head is one part, q is packed only for the first block of
 * keys. */
static void NAME(forward_scores)(struct NAME(forward) * f, const struct attention *attention) {
    const int64_t D = attention->D;
    for (int64_t d = 0; d < D; d += NAME(PART)) {
        const struct NAME(part) part = NAME(part_at)(D, d);
        if (f->keys.first == f->first_s || D > NAME(PART)) {
            NAME(load)(f->rows, attention->q, f->b, f->queries.first, f->h, f->queries.n, part, (REAL)attention->scale);
            NAME(turn)(f->q_t, f->rows, f->queries.n, part.width);
        }
        NAME(load)(f->rows, attention->k, f->b, f->keys.first, f->h_kv, f->keys.n, part, 1);
        for (int64_t j = 0; j < f->queries.n; j += TILE_N) {
            const struct range seen = seen_keys(attention, f->b, f->queries, j, TILE_N, f->keys);
            for (int64_t i = seen.from / TILE_M * TILE_M; i < seen.to; i += TILE_M) {
                NAME(tile_of_rows)
                (part.width, f->rows + i * part.width, part.width, f->q_t + j, ROWS, f->scores + i * ROWS + j, ROWS,
                 d > 0);
            }
        }
    }
    if (D == 0) {
        memset(f->scores, 0, sizeof f->scores);
    }
}

/* x = c tanh(x / c) */
static void NAME(cap_run)(REAL *x, REAL c, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = c * NAME(vector_tanh)(x[i] / c);
    }
}

/* Caps the scores of the tiles in which a query sees a key. */
static void NAME(forward_cap)(struct NAME(forward) * f, const struct attention *attention) {
    for (int64_t key = 0; key < f->keys.n; key++) {
        const struct range seen = seeing_queries(attention, f->b, f->keys, key, 1, f->queries);
        const struct range tiles = whole_tiles(seen, NAME(SIDE));
        NAME(cap_run)(f->scores + key * ROWS + tiles.from, (REAL)attention->soft_cap, tiles.to - tiles.from);
    }
}

/* Adds the mask to the scores. */
static void NAME(forward_mask)(struct NAME(forward) * f, const struct attention *attention) {
    for (int64_t i = 0; i < f->queries.n; i++) {
        REAL row[ROWS];
        NAME(mask_row)(row, attention->mask, f->b, f->h, f->queries.first + i, f->keys.first, f->keys.n);
        const struct range seen = seen_keys(attention, f->b, f->queries, i, 1, f->keys);
        for (int64_t key = seen.from; key < seen.to; key++) {
            f->scores[key * ROWS + i] += row[key];
        }
    }
}

static void NAME(hide)(REAL *score, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        score[i] = -INFINITY;
    }
}

static void NAME(raise_max)(const REAL *restrict score, REAL *restrict max, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        max[i] = score[i] > max[i] ? score[i] : max[i];
    }
}

static void NAME(exp_and_sum)(REAL *restrict score, const REAL *restrict shift, REAL *restrict sum, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const REAL weight = NAME(weight)(score[i] - shift[i]);
        score[i] = weight;
        sum[i] += weight;
    }
}

/* Turns scores into exp(score - max), updates max and sum, and sets `factor`, which scales older sums. In a key's row
 * it touches only tiles in which a query sees the key. */
static void NAME(forward_softmax)(struct NAME(forward) * f, const struct attention *attention) {
    REAL shift[ROWS];
    memcpy(f->factor, f->max, sizeof f->factor);
    if (attention->soft_cap > 0) {
        NAME(forward_cap)(f, attention);
    }
    if (attention->mask) {
        NAME(forward_mask)(f, attention);
    }
    for (int64_t key = 0; key < f->keys.n; key++) {
        const struct range seen = seeing_queries(attention, f->b, f->keys, key, 1, f->queries);
        const struct range tiles = whole_tiles(seen, NAME(SIDE));
        REAL *score = f->scores + key * ROWS;
        if (tiles.from == tiles.to) {
            continue;
        }
        NAME(hide)(score, tiles.from, seen.from);
        NAME(hide)(score, seen.to, tiles.to);
        NAME(raise_max)(score + tiles.from, f->max + tiles.from, tiles.to - tiles.from);
    }
    for (int64_t i = 0; i < ROWS; i++) {
        shift[i] = f->max[i] > -INFINITY ? f->max[i] : 0; /* nothing seen yet: exp(-inf - 0) is the 0 we want */
        f->factor[i] = NAME(weight)(f->factor[i] - shift[i]);
        f->sum[i] *= f->factor[i];
    }
    for (int64_t key = 0; key < f->keys.n; key++) {
        const struct range seen = seeing_queries(attention, f->b, f->keys, key, 1, f->queries);
        const struct range tiles = whole_tiles(seen, NAME(SIDE));
        NAME(exp_and_sum)
        (f->scores + key * ROWS + tiles.from, shift + tiles.from, f->sum + tiles.from, tiles.to - tiles.from);
    }
}

/* Zeroes the weights that dropout does not keep. */
static void NAME(forward_drop)(struct NAME(forward) * f, const struct attention *attention) {
    for (int64_t i = 0; i < f->queries.n; i++) {
        const struct range seen = seen_keys(attention, f->b, f->queries, i, 1, f->keys);
        uint8_t keep[ROWS];
        if (seen.from >= seen.to) {
            continue;
        }
        keep_row(keep, attention, f->b, f->h, f->queries.first + i, f->keys.first + seen.from, seen.to - seen.from);
        for (int64_t key = seen.from; key < seen.to; key++) {
            REAL *weight = f->scores + key * ROWS + i;
            *weight = keep[key - seen.from] ? *weight : 0;
        }
    }
}

/* o = factor o + weights v */
static void NAME(forward_output)(struct NAME(forward) * f, const struct attention *attention, struct NAME(part) part) {
    for (int64_t i = 0; i < f->queries.n; i++) {
        for (int64_t j = 0; f->factor[i] != 1 && j < part.width; j++) {
            f->o[i * part.width + j] *= f->factor[i];
        }
    }
    NAME(load)(f->rows, attention->v, f->b, f->keys.first, f->h_kv, f->keys.n, part, 1);
    for (int64_t i = 0; i < f->queries.n; i += TILE_M) {
        const struct range seen = seen_keys(attention, f->b, f->queries, i, TILE_M, f->keys);
        for (int64_t j = 0; seen.from < seen.to && j < part.width; j += TILE_N) {
            NAME(tile_of_columns)
            (seen.to - seen.from, f->scores + seen.from * ROWS + i, ROWS, f->rows + seen.from * part.width + j,
             part.width, f->o + i * part.width + j, part.width, true);
        }
    }
}

/* One part of the output of a block of queries. */
static void NAME(forward_part)(struct NAME(forward) * f, const struct attention *attention, struct NAME(part) part) {
    for (int64_t i = 0; i < ROWS; i++) {
        f->max[i] = -INFINITY;
        f->sum[i] = 0;
    }
    memset(f->o, 0, (size_t)(ROWS * part.width) * sizeof(REAL));
    const int64_t end = visible_keys(attention, f->queries.first + f->queries.n - 1);
    f->first_s = first_key(attention, f->b, f->queries.first) / ROWS * ROWS;
    for (int64_t s = f->first_s; s < end; s += ROWS) {
        f->keys = (struct span){s, block_min(ROWS, end - s)};
        NAME(forward_scores)(f, attention);
        NAME(forward_softmax)(f, attention);
        if (attention->dropout > 0) {
            NAME(forward_drop)(f, attention);
        }
        NAME(forward_output)(f, attention, part);
    }

    REAL *lse = (REAL *)attention->lse->data + (f->b * attention->H + f->h) * attention->T + f->queries.first;
    for (int64_t i = 0; i < f->queries.n; i++) {
        const bool sees_nothing = f->sum[i] == 0;
        lse[i] = sees_nothing ? -INFINITY : f->max[i] + NAME(vector_log)(f->sum[i]);
        f->factor[i] = sees_nothing ? 0 : (REAL)attention->growth / f->sum[i];
    }
    NAME(unload)(attention->out, f->b, f->queries.first, f->h, f->queries.n, part, f->o, f->factor);
}

static void NAME(forward_blocks)(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t n_blocks = blocks_of(attention->T);
    SCRATCH(struct NAME(forward), f);
    for (int64_t item = first; item < last; item++) {
        const int64_t head = item / n_blocks;
        f->b = head / attention->H;
        f->h = head % attention->H;
        f->h_kv = f->h / (attention->H / attention->H_kv);
        f->queries = block_of(attention->T, n_blocks - 1 - item % n_blocks); /* the longest first */
        int64_t d = 0;
        do { /* lse is due even when D is 0 */
            NAME(forward_part)(f, attention, NAME(part_at)(attention->D, d));
            d += NAME(PART);
        } while (d < attention->D);
    }
}

/* ---- Backward -------------------------------------------------------------------------------------------- */

/* One block of keys against one block of queries at a time. p and ds are (queries, keys). */
struct NAME(backward) {
    _Alignas(64) REAL k[ROWS * NAME(PART)], k_t[NAME(PART) * ROWS], v_t[NAME(PART) * ROWS]; /* (keys, D), (D, keys) */
    _Alignas(64) REAL q[ROWS * NAME(PART)], g[ROWS * NAME(PART)]; /* (queries, D); q times the scale */
    _Alignas(64) REAL dk[ROWS * NAME(PART)], dv[ROWS * NAME(PART)], dq[ROWS * NAME(PART)];
    _Alignas(64) REAL p[ROWS * ROWS], ds[ROWS * ROWS], cap_slope[ROWS * ROWS];
    int64_t b, h, h_kv;
    struct span keys, queries; /* queries of head h */
};

static void NAME(load_keys)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part) {
    NAME(load)(w->k, attention->v, w->b, w->keys.first, w->h_kv, w->keys.n, part, 1);
    NAME(turn)(w->v_t, w->k, w->keys.n, part.width);
    NAME(load)(w->k, attention->k, w->b, w->keys.first, w->h_kv, w->keys.n, part, 1);
    NAME(turn)(w->k_t, w->k, w->keys.n, part.width);
}

static void NAME(load_queries)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part) {
    NAME(load)(w->q, attention->q, w->b, w->queries.first, w->h, w->queries.n, part, (REAL)attention->scale);
    NAME(load)(w->g, attention->g, w->b, w->queries.first, w->h, w->queries.n, part, 1);
}

/* Scores in p and g v^T in ds, of the tiles in which a query sees a key. */
static void NAME(backward_scores)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part,
                                  bool add) {
    for (int64_t i = 0; i < w->queries.n; i += TILE_M) {
        const struct range seen = whole_tiles(seen_keys(attention, w->b, w->queries, i, TILE_M, w->keys), NAME(SIDE));
        for (int64_t j = seen.from; j < seen.to; j += TILE_N) {
            NAME(tile_of_rows)
            (part.width, w->q + i * part.width, part.width, w->k_t + j, ROWS, w->p + i * ROWS + j, ROWS, add);
            NAME(tile_of_rows)
            (part.width, w->g + i * part.width, part.width, w->v_t + j, ROWS, w->ds + i * ROWS + j, ROWS, add);
        }
    }
}

/* One query's row: scores in p become weights, and g v^T in ds becomes the slope of the scores. */
static void NAME(weights_row)(REAL *restrict p, REAL *restrict ds, REAL lse, REAL delta, int64_t n) {
    for (int64_t key = 0; key < n; key++) {
        p[key] = NAME(weight)(p[key] - lse);
        ds[key] = p[key] * (ds[key] - delta);
    }
}

/* Scores x become capped ones, and `slope` the slopes of the cap there. */
static void NAME(cap_row)(REAL *restrict x, REAL *restrict slope, REAL c, int64_t n) {
    for (int64_t key = 0; key < n; key++) {
        const REAL t = NAME(vector_tanh)(x[key] / c);
        x[key] = c * t;
        slope[key] = 1 - t * t;
    }
}

/* ds = ds * slope of the cap, of the tiles in which a query sees a key: from here on of scores before the cap. */
static void NAME(apply_cap_slopes)(struct NAME(backward) * w, const struct attention *attention) {
    for (int64_t i = 0; i < w->queries.n; i++) {
        const struct range seen = seen_keys(attention, w->b, w->queries, i, 1, w->keys);
        for (int64_t key = seen.from; key < seen.to; key++) {
            w->ds[i * ROWS + key] *= w->cap_slope[i * ROWS + key];
        }
    }
}

/* x = keep ? growth x : 0 */
static void NAME(drop_row)(REAL *restrict x, const uint8_t *restrict keep, REAL growth, int64_t n) {
    for (int64_t key = 0; key < n; key++) {
        x[key] = keep[key] ? growth * x[key] : 0;
    }
}

static void NAME(clear)(REAL *p, REAL *ds, int64_t from, int64_t to) {
    for (int64_t key = from; key < to; key++) {
        p[key] = 0;
        ds[key] = 0;
    }
}

/* p = exp(scale q k^T - lse) and ds = p * (g v^T - delta), both 0 where the query does not see the key but a
 * neighbour in its tile does. Leaves q, g and k of the given part loaded. */
static void NAME(backward_weights)(struct NAME(backward) * w, const struct attention *attention,
                                   struct NAME(part) part) {
    const int64_t D = attention->D;
    for (int64_t d = 0; d < D; d += NAME(PART)) {
        const struct NAME(part) summed = NAME(part_at)(D, d);
        if (D > NAME(PART)) {
            NAME(load_keys)(w, attention, summed);
        }
        NAME(load_queries)(w, attention, summed);
        NAME(backward_scores)(w, attention, summed, d > 0);
    }
    if (D > NAME(PART)) {
        NAME(load_keys)(w, attention, part);
        NAME(load_queries)(w, attention, part);
    }
    if (D == 0) {
        memset(w->p, 0, sizeof w->p);
        memset(w->ds, 0, sizeof w->ds);
    }

    const int64_t row = (w->b * attention->H + w->h) * attention->T + w->queries.first;
    const REAL *lse = (const REAL *)attention->lse->data + row, *delta = (const REAL *)attention->delta + row;
    for (int64_t i = 0; i < round_up(w->queries.n, TILE_M); i++) {
        const struct range tiles =
            whole_tiles(seen_keys(attention, w->b, w->queries, i / TILE_M * TILE_M, TILE_M, w->keys), NAME(SIDE));
        const bool is_there = i < w->queries.n;
        const struct range seen =
            is_there ? seen_keys(attention, w->b, w->queries, i, 1, w->keys) : (struct range){0, 0};
        REAL *p = w->p + i * ROWS, *ds = w->ds + i * ROWS;
        if (seen.from >= seen.to || lse[i] == -INFINITY) { /* NaN stays */
            NAME(clear)(p, ds, tiles.from, tiles.to);
            NAME(clear)(p, w->cap_slope + i * ROWS, tiles.from, tiles.to);
            continue;
        }
        if (attention->soft_cap > 0) {
            NAME(cap_row)
            (p + seen.from, w->cap_slope + i * ROWS + seen.from, (REAL)attention->soft_cap, seen.to - seen.from);
        }
        if (attention->mask) {
            REAL mask[ROWS];
            NAME(mask_row)(mask, attention->mask, w->b, w->h, w->queries.first + i, w->keys.first, w->keys.n);
            for (int64_t key = seen.from; key < seen.to; key++) {
                p[key] += mask[key];
            }
        }
        uint8_t keep[ROWS];
        const int64_t n_seen = seen.to - seen.from;
        if (attention->dropout > 0) {
            keep_row(keep, attention, w->b, w->h, w->queries.first + i, w->keys.first + seen.from, n_seen);
            NAME(drop_row)(ds + seen.from, keep, (REAL)attention->growth, n_seen);
        }
        NAME(weights_row)(p + tiles.from, ds + tiles.from, lse[i], delta[i], tiles.to - tiles.from);
        if (attention->dropout > 0) {
            NAME(drop_row)(p + seen.from, keep, (REAL)attention->growth, n_seen);
        }
        NAME(clear)(p, ds, tiles.from, seen.from);
        NAME(clear)(p, ds, seen.to, tiles.to);
    }
}

/* The mask is added to the scores, so its gradient is theirs. */
static void NAME(unload_mask)(const struct NAME(backward) * w, const struct attention *attention) {
    for (int64_t i = 0; i < w->queries.n; i++) {
        const struct range seen = seen_keys(attention, w->b, w->queries, i, 1, w->keys);
        const int64_t row = (w->b * attention->H + w->h) * attention->T + w->queries.first + i;
        if (seen.from < seen.to) {
            NAME(block_write)
            (w->ds + i * ROWS + seen.from, attention->dmask->data, attention->dmask->dtype,
             row * attention->S + w->keys.first + seen.from, seen.to - seen.from);
        }
    }
}

/* dv += p^T g and dk += ds^T (scale q) */
static void NAME(add_keys)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part) {
    for (int64_t i = 0; i < w->keys.n; i += TILE_M) {
        const struct range seen = seeing_queries(attention, w->b, w->keys, i, TILE_M, w->queries);
        const int64_t n = seen.to - seen.from, at = seen.from * ROWS + i;
        for (int64_t j = 0; n > 0 && j < part.width; j += TILE_N) {
            NAME(tile_of_columns)
            (n, w->p + at, ROWS, w->g + seen.from * part.width + j, part.width, w->dv + i * part.width + j, part.width,
             true);
            NAME(tile_of_columns)
            (n, w->ds + at, ROWS, w->q + seen.from * part.width + j, part.width, w->dk + i * part.width + j, part.width,
             true);
        }
    }
}

/* dq += scale ds k, in memory */
static void NAME(add_queries)(struct NAME(backward) * w, const struct attention *attention, struct NAME(part) part) {
    const REAL scale = (REAL)attention->scale;
    for (int64_t i = 0; i < w->queries.n; i += TILE_M) {
        const struct range seen = whole_tiles(seen_keys(attention, w->b, w->queries, i, TILE_M, w->keys), NAME(SIDE));
        if (seen.from >= seen.to) {
            continue;
        }
        const int64_t n = block_min(seen.to, round_up(w->keys.n, 4)) - seen.from; /* k has no further rows */
        for (int64_t j = 0; j < part.width; j += TILE_N) {
            NAME(tile_of_rows)
            (n, w->ds + i * ROWS + seen.from, ROWS, w->k + seen.from * part.width + j, part.width,
             w->dq + i * part.width + j, part.width, false);
        }
        for (int64_t r = i; r < block_min(i + TILE_M, w->queries.n); r++) {
            const int64_t at = block_row_at(&attention->dq_sums, w->b, w->queries.first + r, w->h);
            REAL *restrict sums = (REAL *)attention->dq_sums.data + at + part.d;
            for (int64_t j = 0; j < part.n; j++) {
                sums[j] += scale * w->dq[r * part.width + j];
            }
        }
    }
}

/* One block of keys with all queries that see it, part by part: dk and dv of the block, and dq's share of it in
 * memory. */
static void NAME(backward_keys)(struct NAME(backward) * w, const struct attention *attention, bool with_queries) {
    const int64_t group = attention->H / attention->H_kv;
    const int64_t first_t = first_query(attention, w->keys.first);
    const int64_t end_t = end_query_of(attention, w->b, w->keys);
    int64_t d = 0;
    do {
        const struct NAME(part) part = NAME(part_at)(attention->D, d);
        memset(w->dk, 0, (size_t)(ROWS * part.width) * sizeof(REAL));
        memset(w->dv, 0, (size_t)(ROWS * part.width) * sizeof(REAL));
        NAME(load_keys)(w, attention, part);
        for (w->h = w->h_kv * group; w->h < (w->h_kv + 1) * group; w->h++) {
            for (int64_t t = first_t; t < end_t; t += ROWS) {
                w->queries = (struct span){t, block_min(ROWS, end_t - t)};
                NAME(backward_weights)(w, attention, part);
                if (attention->dmask && part.d == 0) {
                    NAME(unload_mask)(w, attention);
                }
                if (attention->soft_cap > 0) {
                    NAME(apply_cap_slopes)(w, attention);
                }
                NAME(add_keys)(w, attention, part);
                if (with_queries) {
                    NAME(add_queries)(w, attention, part);
                }
            }
        }
        NAME(unload)(attention->dk, w->b, w->keys.first, w->h_kv, w->keys.n, part, w->dk, NULL);
        NAME(unload)(attention->dv, w->b, w->keys.first, w->h_kv, w->keys.n, part, w->dv, NULL);
        d += NAME(PART);
    } while (d < attention->D);
}

/* delta = rowsum(g * out) of one head, and its rows of dq_sums and dmask set to 0. */
static void NAME(backward_begin)(const struct attention *attention, int64_t b, int64_t h) {
    const int64_t D = attention->D;
    SCRATCH_ARRAY(REAL, g_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, out_buffer, BLOCK);
    for (int64_t t = 0; t < attention->T; t++) {
        const int64_t at = ((b * attention->T + t) * attention->H + h) * D;
        REAL lane[BLOCK_LANES] = {0};
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
            memset((REAL *)attention->dq_sums.data + block_row_at(&attention->dq_sums, b, t, h), 0,
                   (size_t)D * sizeof(REAL));
        }
    }
    if (attention->dmask && attention->T * attention->S > 0) { /* blocks that no query sees are not visited */
        const int64_t n = attention->T * attention->S, at = (b * attention->H + h) * n;
        memset(block_at(attention->dmask->data, attention->dmask->dtype, at), 0,
               (size_t)n * (size_t)dtype_info(attention->dmask->dtype)->bits / 8);
    }
}

/* Copies rows of dq_sums to dq, unless dq_sums is dq. */
static void NAME(backward_end)(const struct attention *attention, int64_t b, int64_t h, struct span queries) {
    for (int64_t t = queries.first; t < queries.first + queries.n; t++) {
        NAME(block_write)
        ((const REAL *)attention->dq_sums.data + block_row_at(&attention->dq_sums, b, t, h), attention->dq->data,
         attention->dq->dtype, block_row_at(attention->dq, b, t, h), attention->D);
    }
}

/* An item is one kv head, with its query heads. */
static void NAME(backward_heads)(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t group = attention->H / attention->H_kv;
    SCRATCH(struct NAME(backward), w);
    for (int64_t item = first; item < last; item++) {
        w->b = item / attention->H_kv;
        w->h_kv = item % attention->H_kv;
        for (int64_t h = w->h_kv * group; h < (w->h_kv + 1) * group; h++) {
            NAME(backward_begin)(attention, w->b, h);
        }
        for (int64_t i = 0; i < blocks_of(attention->S); i++) {
            w->keys = block_of(attention->S, i);
            NAME(backward_keys)(w, attention, true);
        }
        for (int64_t h = w->h_kv * group; h < (w->h_kv + 1) * group; h++) {
            NAME(backward_end)(attention, w->b, h, (struct span){0, attention->T});
        }
    }
}

/* The same in three steps with smaller items, for fewer heads than threads. An item is one query head ... */
static void NAME(backward_begins)(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    for (int64_t item = first; item < last; item++) {
        NAME(backward_begin)(attention, item / attention->H, item % attention->H);
    }
}

/* ... one block of keys of a kv head ... */
static void NAME(backward_key_blocks)(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t n_blocks = blocks_of(attention->S);
    SCRATCH(struct NAME(backward), w);
    for (int64_t item = first; item < last; item++) {
        w->b = item / n_blocks / attention->H_kv;
        w->h_kv = item / n_blocks % attention->H_kv;
        w->keys = block_of(attention->S, item % n_blocks);
        NAME(backward_keys)(w, attention, false);
    }
}

/* ... one block of queries of a query head. The weights are computed a second time. */
static void NAME(backward_query_blocks)(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t n_blocks = blocks_of(attention->T);
    SCRATCH(struct NAME(backward), w);
    for (int64_t item = first; item < last; item++) {
        w->b = item / n_blocks / attention->H;
        w->h = item / n_blocks % attention->H;
        w->h_kv = w->h / (attention->H / attention->H_kv);
        w->queries = block_of(attention->T, n_blocks - 1 - item % n_blocks); /* the longest first */
        const int64_t end = visible_keys(attention, w->queries.first + w->queries.n - 1);
        for (int64_t s = first_key(attention, w->b, w->queries.first) / ROWS * ROWS; s < end; s += ROWS) {
            w->keys = (struct span){s, block_min(ROWS, attention->S - s)};
            for (int64_t d = 0; d < attention->D; d += NAME(PART)) {
                const struct NAME(part) part = NAME(part_at)(attention->D, d);
                NAME(load_keys)(w, attention, part);
                NAME(backward_weights)(w, attention, part);
                if (attention->soft_cap > 0) {
                    NAME(apply_cap_slopes)(w, attention);
                }
                NAME(add_queries)(w, attention, part);
            }
        }
        NAME(backward_end)(attention, w->b, w->h, w->queries);
    }
}

#undef REAL
#undef NAME
#undef TILE_N
