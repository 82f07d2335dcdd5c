/* gemm_thin.h: products with an operand of a few rows. A part of gemm.c.
 *
 * A vector times a matrix reads every number of the matrix once, so packing would cost more than the product, and the
 * memory's bandwidth is the bound. The matrix is read in place, four lines at a time from beginning to end, f32 or
 * bf16 as it is and other dtypes through a buffer; the few rows of the other operand are converted to f32 first. Sums
 * run in BLOCK_LANES lanes over THIN_K terms, or in order, whichever axis is dense. The order of a sum depends neither
 * on threads nor on how many rows there are: a row gives the same bits alone and among GEMM_THIN_ROWS.
 */

/* Terms of a partial sum; lines of an item of work; terms of the rows that are ready at a time; lines at once; rows at
 * once, as many as the registers hold. */
enum { THIN_K = 512, THIN_RUN = 64, THIN_PANEL = 8 * THIN_K, THIN_LINES = 4 };
#if defined(__AVX512F__)
enum { THIN_BYTES = 64, THIN_GROUP = 4 };
#elif defined(__AVX2__)
enum { THIN_BYTES = 32, THIN_GROUP = 1 };
#else
enum { THIN_BYTES = 16, THIN_GROUP = 1 };
#endif
enum { THIN_WIDTH = THIN_BYTES / 4, THIN_VECTORS = BLOCK_LANES / THIN_WIDTH };
typedef float thin_vector __attribute__((vector_size(THIN_BYTES), aligned(4), may_alias));
typedef uint32_t thin_words __attribute__((vector_size(THIN_BYTES)));
typedef uint16_t thin_halves __attribute__((vector_size(THIN_BYTES / 2), aligned(2), may_alias));
typedef float thin_row[THIN_PANEL], thin_sums[THIN_RUN];
#define THIN_INLINE static inline __attribute__((always_inline))

/* out (few, lines), or its transpose. */
struct thin {
    const struct gemm *g;
    const struct gemm_side *few, *many;
    int64_t n_few, n_many;
    int64_t out_few, out_many; /* strides of the output */
};

/* n_k terms from k on of all the few rows. */
static void thin_rows(thin_row *rows, const struct thin *t, int64_t k, int64_t n_k) {
    const struct gemm_side *s = t->few;
    for (int64_t i = 0; i < t->n_few; i++)
        convert_to_f32(rows[i], block_at(s->data, s->dtype, i * s->stride + k * s->k_stride), s->dtype, s->k_stride,
                       n_k);
}

/* THIN_WIDTH numbers of a line, from the i-th. bf16 is the upper half of f32. */
THIN_INLINE void thin_load(thin_vector *to, const void *line, bool is_bf16, int64_t i) {
    if (is_bf16)
        *to = (thin_vector)(__builtin_convertvector(*(const thin_halves *)((const uint16_t *)line + i), thin_words)
                            << 16);
    else *to = *(const thin_vector *)((const float *)line + i);
}

THIN_INLINE float thin_number(const void *line, bool is_bf16, int64_t i) {
    return is_bf16 ? f32_of_bits((uint32_t)((const uint16_t *)line)[i] << 16) : ((const float *)line)[i];
}

/* Products of n_rows rows with four lines, so that each number is loaded once for all of them. */
THIN_INLINE void thin_dots(thin_sums *sums, int64_t j, const float *rows, int n_rows, const void *const *line,
                           bool is_bf16, int64_t n) {
    thin_vector lane[THIN_GROUP][THIN_LINES][THIN_VECTORS] = {{{{0}}}};
    int64_t i = 0;
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES) {
#pragma GCC unroll 4
        for (int v = 0; v < THIN_VECTORS; v++) {
            const int64_t at = i + THIN_WIDTH * v;
            thin_vector number[THIN_LINES];
#pragma GCC unroll 4
            for (int x = 0; x < THIN_LINES; x++) thin_load(&number[x], line[x], is_bf16, at);
#pragma GCC unroll 4
            for (int r = 0; r < n_rows; r++) {
                const thin_vector factor = *(const thin_vector *)(rows + r * THIN_PANEL + at);
#pragma GCC unroll 4
                for (int x = 0; x < THIN_LINES; x++) lane[r][x][v] += factor * number[x];
            }
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int x = 0; x < THIN_LINES; x++) {
            float lanes[BLOCK_LANES];
            memcpy(lanes, lane[r][x], sizeof lanes);
            for (int64_t p = i; p < n; p++) lanes[p - i] += rows[r * THIN_PANEL + p] * thin_number(line[x], is_bf16, p);
            sums[r][j + x] += block_total_f32(lanes);
        }
}

/* All rows with four lines. */
THIN_INLINE void thin_four(thin_sums *sums, int64_t j, const float *rows, int64_t n_rows, const void *const *line,
                           bool is_bf16, int64_t n) {
    for (; n_rows >= THIN_GROUP; n_rows -= THIN_GROUP, rows += THIN_GROUP * THIN_PANEL, sums += THIN_GROUP)
        thin_dots(sums, j, rows, THIN_GROUP, line, is_bf16, n);
    for (; n_rows > 0; n_rows--, rows += THIN_PANEL, sums++) thin_dots(sums, j, rows, 1, line, is_bf16, n);
}

/* Lines are dense in the terms: dot products. */
static void thin_along(const struct thin *t, thin_sums *sums, int64_t first, int64_t n, thin_row *rows, int64_t k,
                       int64_t n_k) {
    const struct gemm_side *s = t->many;
    const bool is_ready = (s->dtype == TL_F32 || s->dtype == TL_BF16) && s->k_stride == 1;
    SCRATCH_ARRAY(float, buffer, THIN_LINES *THIN_K);
    for (int64_t j = 0; j < n; j += THIN_LINES)
        for (int64_t at = 0; at < n_k; at += THIN_K) {
            const int64_t length = block_min(THIN_K, n_k - at);
            const void *line[THIN_LINES];
            for (int64_t x = 0; x < THIN_LINES; x++) { /* beyond the last line: that one again */
                line[x] =
                    block_at(s->data, s->dtype, (first + block_min(j + x, n - 1)) * s->stride + (k + at) * s->k_stride);
                if (is_ready) continue;
                convert_to_f32(buffer + x * THIN_K, line[x], s->dtype, s->k_stride, length);
                line[x] = buffer + x * THIN_K;
            }
            if (is_ready && s->dtype == TL_BF16) thin_four(sums, j, rows[0] + at, t->n_few, line, true, length);
            else thin_four(sums, j, rows[0] + at, t->n_few, line, false, length);
        }
}

/* Terms are dense in the lines: multiples of these are added. */
static void thin_across(const struct thin *t, thin_sums *sums, int64_t first, int64_t n, thin_row *rows, int64_t k,
                        int64_t n_k) {
    const struct gemm_side *s = t->many;
    float buffer[THIN_RUN];
    for (int64_t p = 0; p < n_k; p++) {
        const float *line = block_read_f32(buffer, s->data, s->dtype, first + (k + p) * s->k_stride, n);
        for (int64_t i = 0; i < t->n_few; i++)
            for (int64_t j = 0; j < n; j++) sums[i][j] += rows[i][p] * line[j];
    }
}

/* Sums of a run, rounded into the output or added to it. */
static void thin_store(const struct thin *t, thin_sums *sums, int64_t at, int64_t n) {
    const struct gemm *g = t->g;
    float total[THIN_RUN];
    for (int64_t i = 0; i < t->n_few; i++) {
        void *out = block_at(g->out, g->out_dtype, i * t->out_few + at * t->out_many);
        if (g->add) {
            convert_to_f32(total, out, g->out_dtype, t->out_many, n);
            for (int64_t j = 0; j < n; j++) sums[i][j] += total[j];
        }
        convert_from_f32(out, g->out_dtype, t->out_many, sums[i], n);
    }
}

static void thin_range(void *context, int64_t first, int64_t last) {
    const struct thin *t = context;
    const int64_t k = t->g->k;
    const bool is_across = t->many->stride == 1 && t->many->k_stride != 1;
    SCRATCH_ARRAY(thin_row, rows, t->n_few);
    SCRATCH_ARRAY(thin_sums, sums, t->n_few + THIN_GROUP);
    for (int64_t run = first; run < last; run++) {
        const int64_t at = run * THIN_RUN, n = block_min(THIN_RUN, t->n_many - at);
        memset(sums, 0, (size_t)t->n_few * sizeof *sums);
        for (int64_t p = 0; p < k; p += THIN_PANEL) {
            const int64_t n_k = block_min(THIN_PANEL, k - p);
            if (run == first || k > THIN_PANEL) thin_rows(rows, t, p, n_k); /* else they are there */
            if (is_across) thin_across(t, sums, at, n, rows, p, n_k);
            else thin_along(t, sums, at, n, rows, p, n_k);
        }
        thin_store(t, sums, at, n);
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
