/* rope_template.h: the loop of rope.c for one compute type. REAL and NAME are set by the includer. */

struct NAME(rope_angles) {
    double frequency[ROPE_PAIRS];
    REAL cosine[ROPE_PAIRS], sine[ROPE_PAIRS]; /* of the angles of one position */
};

/* Angles are computed in f64: positions of thousands times frequencies near 1 leave few digits of an f32. */
static void NAME(rope_turn)(struct NAME(rope_angles) * a, const struct rope *rope, int64_t position, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double angle = (double)position * a->frequency[i];
        a->cosine[i] = (REAL)(rope->magnitude * cos(angle));
        a->sine[i] = (REAL)(rope->sign * rope->magnitude * sin(angle));
    }
}

/* Rotates the pair (x[i], x[i + half]) of every head by the angle position * frequency of i. Rows of the batch follow
 * each other inside a position, so that those at the same one share its angles. */
static void NAME(rope_positions)(void *context, int64_t first, int64_t last) {
    const struct rope *rope = context;
    const tl_operand *x = rope->x, *out = rope->out;
    const int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3], half = rope_half(rope->attr, D);
    for (int64_t i0 = 0; i0 < half; i0 += ROPE_PAIRS) {
        const int64_t n = block_min(ROPE_PAIRS, half - i0);
        struct NAME(rope_angles) a;
        for (int64_t i = 0; i < n; i++) {
            a.frequency[i] = rope_frequency(rope->attr, i0 + i, half);
        }
        for (int64_t t = first; t < last; t++) {
            for (int64_t row = 0; row < B * H; row++) {
                const int64_t b = row / H, h = row % H, position = position_at(rope, b, t);
                if (row == 0 || (h == 0 && position != position_at(rope, b - 1, t))) {
                    NAME(rope_turn)(&a, rope, position, n);
                }
                const int64_t in_at = block_row_at(x, b, t, h) + i0, out_at = ((b * T + t) * H + h) * D + i0;
                REAL in_buffer[2][ROPE_PAIRS], out_buffer[2][ROPE_PAIRS];
                const REAL *low = NAME(block_read)(in_buffer[0], x->data, x->dtype, in_at, n);
                const REAL *high = NAME(block_read)(in_buffer[1], x->data, x->dtype, in_at + half, n);
                REAL *out_low = NAME(block_place)(out_buffer[0], out->data, out->dtype, out_at);
                REAL *out_high = NAME(block_place)(out_buffer[1], out->data, out->dtype, out_at + half);
                for (int64_t i = 0; i < n; i++) {
                    const REAL x0 = low[i], x1 = high[i];
                    out_low[i] = x0 * a.cosine[i] - x1 * a.sine[i];
                    out_high[i] = x1 * a.cosine[i] + x0 * a.sine[i];
                }
                NAME(block_write)(out_low, out->data, out->dtype, out_at, n);
                NAME(block_write)(out_high, out->data, out->dtype, out_at + half, n);
            }
        }
    }
    rope_keep(rope, first, last);
}

#undef REAL
#undef NAME
