/* attention_bf16.h: bf16 attention on the chip's bf16 instructions, which are four times as fast as f32.
 *
 * The walk over blocks is attention_template.h's. Two things differ: all products take bf16 operands and sum in f32,
 * and scores are (queries, keys) in both directions. Forward, a weight enters its product in two parts, its bf16
 * value and the rounding error of that (16 bits together), so that the result is rounded once, as everywhere.
 * Backward, weights and slopes are rounded to bf16. This path takes no mask, no dropout, no soft cap, and heads of
 * at most 128 columns, a multiple of 8; everything else takes the f32 path.
 *
 * BFMMLA multiplies 2 rows by 2 rows, 4 terms of each. A panel holds 8 rows: for each 4 terms the four pairs of rows
 * one after the other, 32 numbers. An operand whose rows are the index that is summed over is transposed while it is
 * packed.
 */

enum { BF16_HEAD = 128, BF16_PANEL = 8 };

typedef uint16_t bf16_panels[ROWS * BF16_HEAD]; /* (ROWS, D) or (D, ROWS) */

/* c (8, 8) = or += a b^T over n_k terms, a multiple of 4; a and b point into panels. */
static inline void bf16_tile(int64_t n_k, const uint16_t *a, const uint16_t *b, float *c, int64_t c_step, bool add) {
    float32x4_t sum[4][4];
    TILE_UNROLLED
    for (int i = 0; i < 4; i++) sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = vdupq_n_f32(0);
    for (int64_t k = 0; k < n_k; k += 4, a += 32, b += 32) {
        const bfloat16x8_t b0 = vreinterpretq_bf16_u16(vld1q_u16(b)), b1 = vreinterpretq_bf16_u16(vld1q_u16(b + 8));
        const bfloat16x8_t b2 = vreinterpretq_bf16_u16(vld1q_u16(b + 16)),
                           b3 = vreinterpretq_bf16_u16(vld1q_u16(b + 24));
        TILE_UNROLLED
        for (int i = 0; i < 4; i++) {
            const bfloat16x8_t own = vreinterpretq_bf16_u16(vld1q_u16(a + 8 * i));
            sum[i][0] = vbfmmlaq_f32(sum[i][0], own, b0);
            sum[i][1] = vbfmmlaq_f32(sum[i][1], own, b1);
            sum[i][2] = vbfmmlaq_f32(sum[i][2], own, b2);
            sum[i][3] = vbfmmlaq_f32(sum[i][3], own, b3);
        }
    }
    TILE_UNROLLED
    for (int i = 0; i < 8; i++) { /* an accumulator has two numbers of a row and two of the next */
        float *row = c + i * c_step;
        float64x2_t s[4];
        TILE_UNROLLED
        for (int j = 0; j < 4; j++) s[j] = vreinterpretq_f64_f32(sum[i / 2][j]);
        float32x4_t left = vreinterpretq_f32_f64(i % 2 ? vzip2q_f64(s[0], s[1]) : vzip1q_f64(s[0], s[1]));
        float32x4_t right = vreinterpretq_f32_f64(i % 2 ? vzip2q_f64(s[2], s[3]) : vzip1q_f64(s[2], s[3]));
        vst1q_f32(row, add ? vaddq_f32(vld1q_f32(row), left) : left);
        vst1q_f32(row + 4, add ? vaddq_f32(vld1q_f32(row + 4), right) : right);
    }
}

static inline uint64x2_t bf16_load(const uint16_t *at, bool is_there) {
    return is_there ? vreinterpretq_u64_u16(vld1q_u16(at)) : vdupq_n_u64(0);
}

/* Panels of rows: n rows of `width` numbers, `step` apart; up to the next multiple of 8 they are 0. */
static void bf16_pack_rows(uint16_t *out, const uint16_t *x, int64_t step, int64_t n, int64_t width) {
    for (int64_t i = 0; i < n; i += BF16_PANEL) {
        for (int64_t j = 0; j < width; j += 8) {
            uint16_t *to = out + i * width + j * BF16_PANEL;
            TILE_UNROLLED
            for (int p = 0; p < 4; p++) {
                const int64_t r = i + 2 * p;
                const uint64x2_t even = bf16_load(x + r * step + j, r < n);
                const uint64x2_t odd = bf16_load(x + (r + 1) * step + j, r + 1 < n);
                vst1q_u16(to + 8 * p, vreinterpretq_u16_u64(vzip1q_u64(even, odd)));
                vst1q_u16(to + 32 + 8 * p, vreinterpretq_u16_u64(vzip2q_u64(even, odd)));
            }
        }
    }
}

/* Panels of columns: n rows of `width` numbers, and the rows, up to the next multiple of 4 with zeros, are summed
 * over. A panel has room for ROWS terms. */
static void bf16_pack_columns(uint16_t *out, const uint16_t *x, int64_t step, int64_t n, int64_t width) {
    for (int64_t i = 0; i < n; i += 4) {
        for (int64_t j = 0; j < width; j += 8) {
            uint16_t *to = out + j * ROWS + i * BF16_PANEL;
            uint16x8_t row[4];
            TILE_UNROLLED
            for (int r = 0; r < 4; r++) row[r] = vreinterpretq_u16_u64(bf16_load(x + (i + r) * step + j, i + r < n));
            const uint16x8_t even0 = vzip1q_u16(row[0], row[2]), odd0 = vzip1q_u16(row[1], row[3]);
            const uint16x8_t even1 = vzip2q_u16(row[0], row[2]), odd1 = vzip2q_u16(row[1], row[3]);
            vst1q_u16(to, vzip1q_u16(even0, odd0));
            vst1q_u16(to + 8, vzip2q_u16(even0, odd0));
            vst1q_u16(to + 16, vzip1q_u16(even1, odd1));
            vst1q_u16(to + 24, vzip2q_u16(even1, odd1));
        }
    }
}

/* weight_f32, four at a time. */
static inline float32x4_t bf16_weights(float32x4_t x) {
    const uint32x4_t is_zero = vcltq_f32(x, vdupq_n_f32(-87.0f));
    const float32x4_t rounder = vdupq_n_f32(VECTOR_ROUNDER), bounded = vbslq_f32(is_zero, vdupq_n_f32(-87.0f), x);
    const float32x4_t shifted = vfmaq_n_f32(rounder, bounded, 0x1.715476p+0f), n = vsubq_f32(shifted, rounder);
    const float32x4_t r = vfmaq_n_f32(vfmaq_n_f32(bounded, n, -0x1.62e43p-1f), n, 0x1.05c61p-29f);
    float32x4_t q = vfmaq_n_f32(vdupq_n_f32(0x1.12299cp-7f), r, 0x1.6d725cp-10f);
    q = vfmaq_f32(vdupq_n_f32(0x1.5554c8p-5f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0x1.5554aep-3f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0.5f), q, r);
    const float32x4_t e = vaddq_f32(vdupq_n_f32(1), vfmaq_f32(r, vmulq_f32(r, r), q));
    const int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(e), vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(bits), is_zero));
}

static inline uint16x8_t bf16_round(float32x4_t left, float32x4_t right) {
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(left), right));
}

/* The rounding errors of eight numbers, rounded to bf16. */
static inline uint16x8_t bf16_rest(float32x4_t left, float32x4_t right, uint16x8_t rounded) {
    const float32x4_t kept_left = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(rounded), 16));
    const float32x4_t kept_right = vreinterpretq_f32_u32(vshll_high_n_u16(rounded, 16));
    return bf16_round(vsubq_f32(left, kept_left), vsubq_f32(right, kept_right));
}

static const uint16_t *bf16_row(const tl_operand *x, int64_t b, int64_t t, int64_t h) {
    return (const uint16_t *)x->data + block_row_at(x, b, t, h);
}

static bool takes_bf16(const struct attention *a) {
    return a->q->dtype == TL_BF16 && !a->mask && a->dropout == 0 && a->soft_cap == 0 && a->D > 0 && a->D <= BF16_HEAD &&
           a->D % 8 == 0;
}

/* ---- Forward --------------------------------------------------------------------------------------------- */

struct forward_bf16 {
    _Alignas(64) bf16_panels q, k, v; /* (queries, D), (keys, D), (D, keys) */
    _Alignas(64) uint16_t p[2][ROWS * ROWS],
        weights[2][ROWS * ROWS]; /* (queries, keys), both parts: as panels, and by rows */
    _Alignas(64) float scores[ROWS * ROWS], o[ROWS * BF16_HEAD];
    float max[ROWS], sum[ROWS], factor[ROWS];
    int64_t b, h, h_kv;
    struct span queries, keys;
};

/* The tiles of a row of scores that are computed: those in which one of the eight queries around it sees a key. */
static struct range bf16_tiles(const struct attention *attention, int64_t b, struct span queries, int64_t i,
                               struct span keys) {
    return whole_tiles(seen_keys(attention, b, queries, i / BF16_PANEL * BF16_PANEL, BF16_PANEL, keys), BF16_PANEL);
}

/* Turns one query's scores into weights; updates its maximum, its sum, and the factor of earlier sums. */
static void bf16_softmax_row(struct forward_bf16 *f, const struct attention *attention, int64_t i) {
    const struct range tiles = bf16_tiles(attention, f->b, f->queries, i, f->keys);
    const struct range seen = seen_keys(attention, f->b, f->queries, i, 1, f->keys);
    float *score = f->scores + i * ROWS;
    uint16_t *weight = f->weights[0] + i * ROWS, *rest = f->weights[1] + i * ROWS;
    if (seen.from >= seen.to) { /* its neighbours see some */
        memset(weight + tiles.from, 0, (size_t)(tiles.to - tiles.from) * sizeof *weight);
        memset(rest + tiles.from, 0, (size_t)(tiles.to - tiles.from) * sizeof *rest);
        f->factor[i] = 1;
        return;
    }
    hide_f32(score, tiles.from, seen.from);
    hide_f32(score, seen.to, tiles.to);
    float32x4_t top = vdupq_n_f32(f->max[i]), total = vdupq_n_f32(0);
    for (int64_t key = tiles.from; key < tiles.to; key += 4) {
        const float32x4_t scaled = vmulq_n_f32(vld1q_f32(score + key), (float)attention->scale);
        const float32x4_t seen_only =
            vbslq_f32(vceqq_f32(vld1q_f32(score + key), vdupq_n_f32(-INFINITY)), vdupq_n_f32(-INFINITY), scaled);
        vst1q_f32(score + key, seen_only);
        top = vmaxq_f32(top, seen_only);
    }
    const float max = vmaxvq_f32(top), shift = max == -INFINITY ? 0 : max;
    for (int64_t key = tiles.from; key < tiles.to; key += 8) {
        const float32x4_t left = bf16_weights(vsubq_f32(vld1q_f32(score + key), vdupq_n_f32(shift)));
        const float32x4_t right = bf16_weights(vsubq_f32(vld1q_f32(score + key + 4), vdupq_n_f32(shift)));
        total = vaddq_f32(total, vaddq_f32(left, right));
        const uint16x8_t rounded = bf16_round(left, right);
        vst1q_u16(weight + key, rounded);
        vst1q_u16(rest + key, bf16_rest(left, right, rounded));
    }
    f->factor[i] = weight_f32(f->max[i] - shift);
    f->sum[i] = f->sum[i] * f->factor[i] + vaddvq_f32(total);
    f->max[i] = max;
}

static void bf16_forward_keys(struct forward_bf16 *f, const struct attention *attention) {
    const int64_t D = attention->D;
    const tl_operand *k = attention->k, *v = attention->v;
    bf16_pack_rows(f->k, bf16_row(k, f->b, f->keys.first, f->h_kv), k->stride[1], f->keys.n, D);
    bf16_pack_columns(f->v, bf16_row(v, f->b, f->keys.first, f->h_kv), v->stride[1], f->keys.n, D);
    for (int64_t i = 0; i < f->queries.n; i += BF16_PANEL) {
        const struct range tiles = bf16_tiles(attention, f->b, f->queries, i, f->keys);
        for (int64_t j = tiles.from; j < tiles.to; j += BF16_PANEL)
            bf16_tile(D, f->q + i * D, f->k + j * D, f->scores + i * ROWS + j, ROWS, false);
        for (int64_t r = i; r < block_min(i + BF16_PANEL, f->queries.n); r++) {
            bf16_softmax_row(f, attention, r);
            for (int64_t d = 0; f->factor[r] != 1 && d < D; d++) f->o[r * D + d] *= f->factor[r];
        }
    }
    bf16_pack_rows(f->p[0], f->weights[0], ROWS, f->queries.n, ROWS);
    bf16_pack_rows(f->p[1], f->weights[1], ROWS, f->queries.n, ROWS);
    for (int64_t i = 0; i < f->queries.n; i += BF16_PANEL) {
        const struct range tiles = bf16_tiles(attention, f->b, f->queries, i, f->keys);
        const int64_t n = block_min(tiles.to, round_up(f->keys.n, 4)) - tiles.from;
        const int64_t from = tiles.from * BF16_PANEL, at = i * ROWS + from;
        for (int64_t d = 0; n > 0 && d < D; d += BF16_PANEL) {
            bf16_tile(n, f->p[1] + at, f->v + d * ROWS + from, f->o + i * D + d, D, true);
            bf16_tile(n, f->p[0] + at, f->v + d * ROWS + from, f->o + i * D + d, D, true);
        }
    }
}

static void forward_blocks_bf16(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t n_blocks = blocks_of(attention->T), D = attention->D;
    SCRATCH(struct forward_bf16, f);
    memset(f->weights, 0, sizeof f->weights); /* unseen elements are packed too, although they are never multiplied */
    for (int64_t item = first; item < last; item++) {
        f->b = item / n_blocks / attention->H;
        f->h = item / n_blocks % attention->H;
        f->h_kv = f->h / (attention->H / attention->H_kv);
        f->queries = block_of(attention->T, n_blocks - 1 - item % n_blocks); /* the longest first */
        const tl_operand *q = attention->q;
        bf16_pack_rows(f->q, bf16_row(q, f->b, f->queries.first, f->h), q->stride[1], f->queries.n, D);
        memset(f->o, 0, (size_t)(ROWS * D) * sizeof *f->o);
        for (int64_t i = 0; i < ROWS; i++) f->max[i] = -INFINITY, f->sum[i] = 0;
        const int64_t end = visible_keys(attention, f->queries.first + f->queries.n - 1);
        for (int64_t s = first_key(attention, f->b, f->queries.first) / ROWS * ROWS; s < end; s += ROWS) {
            f->keys = (struct span){s, block_min(ROWS, end - s)};
            bf16_forward_keys(f, attention);
        }
        float *lse = (float *)attention->lse->data + (f->b * attention->H + f->h) * attention->T + f->queries.first;
        for (int64_t i = 0; i < f->queries.n; i++) {
            const bool sees_nothing = f->sum[i] == 0;
            lse[i] = sees_nothing ? -INFINITY : f->max[i] + vector_log_f32(f->sum[i]);
            f->factor[i] = sees_nothing ? 0 : 1 / f->sum[i];
        }
        const struct part_f32 whole = {0, D, D};
        unload_f32(attention->out, f->b, f->queries.first, f->h, f->queries.n, whole, f->o, f->factor);
    }
}

/* ---- Backward -------------------------------------------------------------------------------------------- */

struct backward_bf16 {
    _Alignas(64) bf16_panels k, v, k_t, q, g, q_t, g_t; /* (keys, D), (D, keys), (queries, D), (D, queries) */
    _Alignas(64) uint16_t weights[ROWS * ROWS], slopes[ROWS * ROWS];            /* (queries, keys), by rows */
    _Alignas(64) uint16_t p_t[ROWS * ROWS], ds[ROWS * ROWS], ds_t[ROWS * ROWS]; /* panels; (keys, queries) transposed */
    _Alignas(64) float scores[ROWS * ROWS], dp[ROWS * ROWS];
    _Alignas(64) float dk[ROWS * BF16_HEAD], dv[ROWS * BF16_HEAD], dq[ROWS * BF16_HEAD];
    int64_t b, h, h_kv;
    struct span keys, queries;
};

static void bf16_load_keys(struct backward_bf16 *w, const struct attention *attention) {
    const tl_operand *k = attention->k, *v = attention->v;
    const uint16_t *rows = bf16_row(k, w->b, w->keys.first, w->h_kv);
    bf16_pack_rows(w->k, rows, k->stride[1], w->keys.n, attention->D);
    bf16_pack_columns(w->k_t, rows, k->stride[1], w->keys.n, attention->D);
    bf16_pack_rows(w->v, bf16_row(v, w->b, w->keys.first, w->h_kv), v->stride[1], w->keys.n, attention->D);
}

static void bf16_load_queries(struct backward_bf16 *w, const struct attention *attention) {
    const tl_operand *q = attention->q, *g = attention->g;
    const uint16_t *q_rows = bf16_row(q, w->b, w->queries.first, w->h);
    const uint16_t *g_rows = bf16_row(g, w->b, w->queries.first, w->h);
    bf16_pack_rows(w->q, q_rows, q->stride[1], w->queries.n, attention->D);
    bf16_pack_rows(w->g, g_rows, g->stride[1], w->queries.n, attention->D);
    bf16_pack_columns(w->q_t, q_rows, q->stride[1], w->queries.n, attention->D);
    bf16_pack_columns(w->g_t, g_rows, g->stride[1], w->queries.n, attention->D);
}

/* One query's weights exp(scale s - lse) and slopes p * (dp - delta), 0 where it does not see the key but a
 * neighbour does. */
static void bf16_weights_row(struct backward_bf16 *w, const struct attention *attention, int64_t i) {
    const int64_t row = (w->b * attention->H + w->h) * attention->T + w->queries.first + i;
    const float lse = ((const float *)attention->lse->data)[row], delta = ((const float *)attention->delta)[row];
    const struct range tiles = bf16_tiles(attention, w->b, w->queries, i, w->keys);
    const struct range seen = seen_keys(attention, w->b, w->queries, i, 1, w->keys);
    uint16_t *weight = w->weights + i * ROWS, *slope = w->slopes + i * ROWS;
    const bool sees_some = seen.from < seen.to && lse != -INFINITY; /* NaN stays */
    for (int64_t key = tiles.from; sees_some && key < tiles.to; key += 8) {
        float32x4_t p[2], ds[2];
        TILE_UNROLLED
        for (int j = 0; j < 2; j++) {
            const int64_t at = i * ROWS + key + 4 * j;
            p[j] = bf16_weights(vfmaq_n_f32(vdupq_n_f32(-lse), vld1q_f32(w->scores + at), (float)attention->scale));
            ds[j] = vmulq_f32(p[j], vsubq_f32(vld1q_f32(w->dp + at), vdupq_n_f32(delta)));
        }
        vst1q_u16(weight + key, bf16_round(p[0], p[1]));
        vst1q_u16(slope + key, bf16_round(ds[0], ds[1]));
    }
    const int64_t from = sees_some ? seen.from : tiles.to, to = sees_some ? seen.to : tiles.to;
    for (int64_t key = tiles.from; key < from; key++) weight[key] = slope[key] = 0;
    for (int64_t key = to; key < tiles.to; key++) weight[key] = slope[key] = 0;
}

static void bf16_backward_weights(struct backward_bf16 *w, const struct attention *attention) {
    const int64_t D = attention->D;
    for (int64_t i = 0; i < w->queries.n; i += BF16_PANEL) {
        const struct range tiles = bf16_tiles(attention, w->b, w->queries, i, w->keys);
        for (int64_t j = tiles.from; j < tiles.to; j += BF16_PANEL) {
            bf16_tile(D, w->q + i * D, w->k + j * D, w->scores + i * ROWS + j, ROWS, false);
            bf16_tile(D, w->g + i * D, w->v + j * D, w->dp + i * ROWS + j, ROWS, false);
        }
        for (int64_t r = i; r < block_min(i + BF16_PANEL, w->queries.n); r++) bf16_weights_row(w, attention, r);
    }
}

/* dv += p^T g and dk += ds^T q; dk is scaled at its end */
static void bf16_add_keys(struct backward_bf16 *w, const struct attention *attention) {
    const int64_t D = attention->D;
    bf16_pack_columns(w->p_t, w->weights, ROWS, w->queries.n, ROWS);
    bf16_pack_columns(w->ds_t, w->slopes, ROWS, w->queries.n, ROWS);
    for (int64_t i = 0; i < w->keys.n; i += BF16_PANEL) {
        const struct range seeing =
            whole_tiles(seeing_queries(attention, w->b, w->keys, i, BF16_PANEL, w->queries), BF16_PANEL);
        const int64_t n = block_min(seeing.to, round_up(w->queries.n, 4)) - seeing.from;
        const int64_t at = i * ROWS + seeing.from * BF16_PANEL;
        for (int64_t d = 0; n > 0 && d < D; d += BF16_PANEL) {
            const int64_t from = d * ROWS + seeing.from * BF16_PANEL;
            bf16_tile(n, w->p_t + at, w->g_t + from, w->dv + i * D + d, D, true);
            bf16_tile(n, w->ds_t + at, w->q_t + from, w->dk + i * D + d, D, true);
        }
    }
}

/* dq += scale ds k, in memory */
static void bf16_add_queries(struct backward_bf16 *w, const struct attention *attention) {
    const int64_t D = attention->D;
    const float scale = (float)attention->scale;
    bf16_pack_rows(w->ds, w->slopes, ROWS, w->queries.n, ROWS);
    for (int64_t i = 0; i < w->queries.n; i += BF16_PANEL) {
        const struct range tiles = bf16_tiles(attention, w->b, w->queries, i, w->keys);
        const int64_t n = block_min(tiles.to, round_up(w->keys.n, 4)) - tiles.from;
        for (int64_t d = 0; n > 0 && d < D; d += BF16_PANEL)
            bf16_tile(n, w->ds + i * ROWS + tiles.from * BF16_PANEL, w->k_t + d * ROWS + tiles.from * BF16_PANEL,
                      w->dq + i * D + d, D, false);
        for (int64_t r = i; n > 0 && r < block_min(i + BF16_PANEL, w->queries.n); r++) {
            const int64_t at = block_row_at(&attention->dq_sums, w->b, w->queries.first + r, w->h);
            float *restrict sums = (float *)attention->dq_sums.data + at;
            for (int64_t d = 0; d < D; d++) sums[d] += scale * w->dq[r * D + d];
        }
    }
}

/* One block of keys with all queries that see it. */
static void bf16_backward_keys(struct backward_bf16 *w, const struct attention *attention, bool with_queries) {
    const int64_t group = attention->H / attention->H_kv, D = attention->D;
    const int64_t end = end_query_of(attention, w->b, w->keys);
    const struct part_f32 whole = {0, D, D};
    memset(w->dk, 0, (size_t)(ROWS * D) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(ROWS * D) * sizeof *w->dv);
    bf16_load_keys(w, attention);
    for (w->h = w->h_kv * group; w->h < (w->h_kv + 1) * group; w->h++) {
        for (int64_t t = first_query(attention, w->keys.first); t < end; t += ROWS) {
            w->queries = (struct span){t, block_min(ROWS, end - t)};
            bf16_load_queries(w, attention);
            bf16_backward_weights(w, attention);
            bf16_add_keys(w, attention);
            if (with_queries) bf16_add_queries(w, attention);
        }
    }
    for (int64_t i = 0; i < w->keys.n * D; i++) w->dk[i] *= (float)attention->scale;
    unload_f32(attention->dk, w->b, w->keys.first, w->h_kv, w->keys.n, whole, w->dk, NULL);
    unload_f32(attention->dv, w->b, w->keys.first, w->h_kv, w->keys.n, whole, w->dv, NULL);
}

static void
bf16_backward_new(struct backward_bf16 *w) { /* unseen elements are packed too, although they are never multiplied */
    memset(w->weights, 0, sizeof w->weights);
    memset(w->slopes, 0, sizeof w->slopes);
}

/* The items are those of attention_template.h. */
static void backward_heads_bf16(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t group = attention->H / attention->H_kv;
    SCRATCH(struct backward_bf16, w);
    bf16_backward_new(w);
    for (int64_t item = first; item < last; item++) {
        w->b = item / attention->H_kv;
        w->h_kv = item % attention->H_kv;
        for (int64_t h = w->h_kv * group; h < (w->h_kv + 1) * group; h++) backward_begin_f32(attention, w->b, h);
        for (int64_t i = 0; i < blocks_of(attention->S); i++) {
            w->keys = block_of(attention->S, i);
            bf16_backward_keys(w, attention, true);
        }
        for (int64_t h = w->h_kv * group; h < (w->h_kv + 1) * group; h++)
            backward_end_f32(attention, w->b, h, (struct span){0, attention->T});
    }
}

static void backward_key_blocks_bf16(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t n_blocks = blocks_of(attention->S);
    SCRATCH(struct backward_bf16, w);
    bf16_backward_new(w);
    for (int64_t item = first; item < last; item++) {
        w->b = item / n_blocks / attention->H_kv;
        w->h_kv = item / n_blocks % attention->H_kv;
        w->keys = block_of(attention->S, item % n_blocks);
        bf16_backward_keys(w, attention, false);
    }
}

static void backward_query_blocks_bf16(void *context, int64_t first, int64_t last) {
    const struct attention *attention = context;
    const int64_t n_blocks = blocks_of(attention->T);
    SCRATCH(struct backward_bf16, w);
    bf16_backward_new(w);
    for (int64_t item = first; item < last; item++) {
        w->b = item / n_blocks / attention->H;
        w->h = item / n_blocks % attention->H;
        w->h_kv = w->h / (attention->H / attention->H_kv);
        w->queries = block_of(attention->T, n_blocks - 1 - item % n_blocks); /* the longest first */
        bf16_load_queries(w, attention);
        const int64_t end = visible_keys(attention, w->queries.first + w->queries.n - 1);
        for (int64_t s = first_key(attention, w->b, w->queries.first) / ROWS * ROWS; s < end; s += ROWS) {
            w->keys = (struct span){s, block_min(ROWS, attention->S - s)};
            bf16_load_keys(w, attention);
            bf16_backward_weights(w, attention);
            bf16_add_queries(w, attention);
        }
        backward_end_f32(attention, w->b, w->h, w->queries);
    }
}
