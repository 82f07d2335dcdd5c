/* gemm_thin.h: products with an operand of a few rows. A part of gemm.c.
 *
 * A vector times a matrix reads every number of the matrix once, so packing would cost more than the product. The
 * matrix is read in place, a few lines at a time, and the few rows of the other operand are converted to f32. Sums
 * run in BLOCK_LANES lanes over THIN_K terms, or in order, whichever axis is dense; the runs are fixed, so the bits
 * do not depend on threads.
 */

enum { THIN_K = 512, THIN_RUN = 64 };
typedef float thin_line[THIN_K];

/* out (few, lines), or its transpose. */
struct thin {
    const struct gemm *g;
    const struct gemm_side *few, *many;
    int64_t n_few, n_many;
    int64_t out_few, out_many; /* strides of the output */
};

/* n_k terms from k on of all the few rows. */
static void thin_rows(float rows[GEMM_THIN][THIN_K], const struct thin *t, int64_t k, int64_t n_k) {
    const struct gemm_side *s = t->few;
    for (int64_t i = 0; i < t->n_few; i++)
        convert_to_f32(rows[i], block_at(s->data, s->dtype, i * s->stride + k * s->k_stride), s->dtype, s->k_stride,
                       n_k);
}

typedef float thin_vector __attribute__((vector_size(16), aligned(4), may_alias));
enum { THIN_VECTORS = BLOCK_LANES / 4 };

/* Products of one row with four lines, so that the row is loaded once for all of them. */
static void thin_dots(float sums[4], const float *row, const float *const line[4], int64_t n) {
    const float *l0 = line[0], *l1 = line[1], *l2 = line[2], *l3 = line[3];
    thin_vector lane[4][THIN_VECTORS] = {{{0}}};
    int64_t i = 0;
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES) {
#pragma GCC unroll 4
        for (int v = 0; v < THIN_VECTORS; v++) {
            const thin_vector x = *(const thin_vector *)(row + i + 4 * v);
            lane[0][v] += x * *(const thin_vector *)(l0 + i + 4 * v);
            lane[1][v] += x * *(const thin_vector *)(l1 + i + 4 * v);
            lane[2][v] += x * *(const thin_vector *)(l2 + i + 4 * v);
            lane[3][v] += x * *(const thin_vector *)(l3 + i + 4 * v);
        }
    }
    for (int j = 0; j < 4; j++) {
        float lanes[BLOCK_LANES];
        memcpy(lanes, lane[j], sizeof lanes);
        for (int64_t p = i; p < n; p++) lanes[p - i] += row[p] * line[j][p];
        sums[j] += block_total_f32(lanes);
    }
}

/* Lines are dense in the terms: dot products. */
static void thin_along(const struct thin *t, float sums[GEMM_THIN][THIN_RUN], int64_t first, int64_t n) {
    const struct gemm_side *s = t->many;
    const bool is_ready = s->dtype == TL_F32 && s->k_stride == 1;
    SCRATCH_ARRAY(thin_line, rows, GEMM_THIN);
    SCRATCH_ARRAY(thin_line, buffer, 4);
    for (int64_t k = 0; k < t->g->k; k += THIN_K) {
        const int64_t n_k = block_min(THIN_K, t->g->k - k);
        thin_rows(rows, t, k, n_k);
        for (int64_t j = 0; j < n; j += 4) {
            const float *line[4];
            for (int64_t x = 0; x < 4; x++) { /* beyond the last line: that one again */
                const void *from =
                    block_at(s->data, s->dtype, (first + block_min(j + x, n - 1)) * s->stride + k * s->k_stride);
                if (!is_ready) convert_to_f32(buffer[x], from, s->dtype, s->k_stride, n_k);
                line[x] = is_ready ? from : buffer[x];
            }
            for (int64_t i = 0; i < t->n_few; i++) thin_dots(sums[i] + j, rows[i], line, n_k);
        }
    }
}

/* Terms are dense in the lines: multiples of these are added. */
static void thin_across(const struct thin *t, float sums[GEMM_THIN][THIN_RUN], int64_t first, int64_t n) {
    const struct gemm_side *s = t->many;
    float rows[GEMM_THIN][THIN_K], buffer[THIN_RUN];
    for (int64_t k = 0; k < t->g->k; k += THIN_K) {
        const int64_t n_k = block_min(THIN_K, t->g->k - k);
        thin_rows(rows, t, k, n_k);
        for (int64_t p = 0; p < n_k; p++) {
            const float *line = block_read_f32(buffer, s->data, s->dtype, first + (k + p) * s->k_stride, n);
            for (int64_t i = 0; i < t->n_few; i++)
                for (int64_t j = 0; j < n; j++) sums[i][j] += rows[i][p] * line[j];
        }
    }
}

static void thin_range(void *context, int64_t first, int64_t last) {
    const struct thin *t = context;
    const struct gemm *g = t->g;
    for (int64_t run = first; run < last; run++) {
        float sums[GEMM_THIN][THIN_RUN] = {{0}}, total[THIN_RUN];
        const int64_t at = run * THIN_RUN, n = block_min(THIN_RUN, t->n_many - at);
        if (t->many->stride == 1 && t->many->k_stride != 1) thin_across(t, sums, at, n);
        else thin_along(t, sums, at, n);
        for (int64_t i = 0; i < t->n_few; i++) {
            void *out = block_at(g->out, g->out_dtype, i * t->out_few + at * t->out_many);
            if (g->add) {
                convert_to_f32(total, out, g->out_dtype, t->out_many, n);
                for (int64_t j = 0; j < n; j++) sums[i][j] += total[j];
            }
            convert_from_f32(out, g->out_dtype, t->out_many, sums[i], n);
        }
    }
}

static void multiply_thin(const struct gemm *g, int n_threads) {
    const bool is_row = g->m <= g->n;
    struct thin t = {.g = g,
                     .few = is_row ? &g->a : &g->b,
                     .many = is_row ? &g->b : &g->a,
                     .n_few = is_row ? g->m : g->n,
                     .n_many = is_row ? g->n : g->m,
                     .out_few = is_row ? g->out_step : 1,
                     .out_many = is_row ? 1 : g->out_step};
    parallel_for((t.n_many - 1) / THIN_RUN + 1, parallel_grain(t.n_few * THIN_RUN * g->k / 2), n_threads, thin_range,
                 &t);
}
