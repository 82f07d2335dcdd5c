/* gemm_thin.h: products with an operand of a few rows. A part of gemm.c.
 *
 * A vector times a matrix reads every number of the matrix once, so packing would cost more than the product, and the
 * memory's bandwidth is the bound. The matrix is read in place, f32 or bf16 as it is and other dtypes through a buffer;
 * the few rows of the other operand are converted to f32 first. Sums run in BLOCK_LANES lanes over THIN_K terms, or in
 * order, whichever axis is dense. The order of a sum depends neither on threads nor on how many rows there are: a row
 * gives the same bits alone and among GEMM_THIN_ROWS.
 *
 * Four lines are read at a time, each from another quarter of a run of lines: the chip then sees four streams that go
 * straight on. Four neighbouring lines would be several streams in one page, which it does not follow; that is a tenth
 * slower in f32, a quarter in bf16.
 */

/* Terms of a partial sum; lines of a run; terms of the rows that are ready at a time; lines at once; bytes, or terms,
 * from what is read to what is fetched. THIN_GROUP: rows of columns at once. THIN_REGISTERS: vectors that a tile of
 * rows and lines may take, of those that the chip has. */
enum { THIN_K = 512, THIN_RUN = 64, THIN_PANEL = 8 * THIN_K, THIN_LINES = 4, THIN_AHEAD = 1024, THIN_FAR = 8 };
enum { THIN_LINES_ACROSS = 32 }; /* that are converted at a time, if need be */
#if defined(__AVX512F__)
enum { THIN_BYTES = 64, THIN_GROUP = 4, THIN_REGISTERS = 30 };
#elif defined(__AVX2__)
enum { THIN_BYTES = 32, THIN_GROUP = 1, THIN_REGISTERS = 14 };
#elif defined(__aarch64__)
enum { THIN_BYTES = 16, THIN_GROUP = 1, THIN_REGISTERS = 30 };
#else
enum { THIN_BYTES = 16, THIN_GROUP = 1, THIN_REGISTERS = 14 };
#endif
enum { THIN_WIDTH = THIN_BYTES / 4, THIN_VECTORS = BLOCK_LANES / THIN_WIDTH, THIN_STEP = THIN_PANEL + THIN_K };
typedef float thin_vector __attribute__((vector_size(THIN_BYTES), aligned(4), may_alias));
typedef uint32_t thin_words __attribute__((vector_size(THIN_BYTES)));
typedef uint16_t thin_halves __attribute__((vector_size(THIN_BYTES / 2), aligned(2), may_alias));
/* Rows that were a power of two apart would share the sets of the L1 cache, which has no place for eight of them. */
typedef float thin_row[THIN_STEP], thin_sums[THIN_RUN];
typedef float thin_lanes[THIN_LINES][BLOCK_LANES];
_Static_assert(BLOCK_LANES == 16 && THIN_LINES == 4, "thin_totals adds four by four");
/* Keeps the compiler from loading a vector again for each product. */
#if defined(__x86_64__)
#define THIN_LOADED(vector) __asm__("" : "+v"(vector))
#else
#define THIN_LOADED(vector) ((void)0)
#endif

/* out (few, lines), or its transpose. */
struct thin {
    const struct gemm *g;
    const struct gemm_side *few, *many;
    int64_t n_few, n_many;
    int64_t out_few, out_many; /* strides of the output */
    thin_row *rows;            /* the few rows, if all their terms are a panel; NULL: each run converts them */
};

/* n_k terms from k on of all the few rows. */
static void thin_rows(thin_row *rows, const struct thin *t, int64_t k, int64_t n_k) {
    const struct gemm_side *s = t->few;
    for (int64_t i = 0; i < t->n_few; i++) side_read(rows[i], s, i * s->stride + k * s->k_stride, s->k_stride, n_k);
}

/* THIN_WIDTH numbers of a line, from the i-th. bf16 is the upper half of f32. */
INLINE void thin_load(thin_vector *to, const void *line, bool is_bf16, int64_t i) {
    if (!is_bf16) {
        *to = *(const thin_vector *)((const float *)line + i);
        return;
    }
    const thin_halves *halves = (const thin_halves *)((const uint16_t *)line + i);
#if defined(__AVX512BW__) /* one instruction puts each half above 16 zero bits */
    const __m512i from = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0,
                                          3, 0, 2, 0, 1, 0, 0, 0);
    *to = (thin_vector)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, from,
                                                      _mm512_castsi256_si512(_mm256_loadu_si256((const void *)halves)));
#else
    *to = (thin_vector)(__builtin_convertvector(*halves, thin_words) << 16);
#endif
}

INLINE float thin_number(const void *line, bool is_bf16, int64_t i) {
    return is_bf16 ? f32_of_bits((uint32_t)((const uint16_t *)line)[i] << 16) : ((const float *)line)[i];
}

/* lane += factor number: fused where the chip can, which makes eight rows twice as fast. */
INLINE void thin_add(thin_vector *lane, const thin_vector *factor, const thin_vector *number) {
#if defined(__AVX512F__)
    *lane = (thin_vector)_mm512_fmadd_ps((__m512)*factor, (__m512)*number, (__m512)*lane);
#elif defined(__AVX2__)
    *lane = (thin_vector)_mm256_fmadd_ps((__m256)*factor, (__m256)*number, (__m256)*lane);
#elif defined(__aarch64__)
    *lane = (thin_vector)vfmaq_f32((float32x4_t)*lane, (float32x4_t)*factor, (float32x4_t)*number);
#else
    *lane += *factor * *number;
#endif
}

INLINE float thin_add_one(float lane, float factor, float number) {
#if defined(__AVX2__) || defined(__aarch64__)
    return __builtin_fmaf(factor, number, lane);
#else
    return lane + factor * number;
#endif
}

/* The last n terms of all lines, fewer than BLOCK_LANES. */
static __attribute__((noinline)) void thin_tail(thin_lanes lanes, const float *row, const void *const *line,
                                                bool is_bf16, int64_t i, int64_t n) {
    for (int x = 0; x < THIN_LINES; x++)
        for (int64_t p = 0; p < n; p++)
            lanes[x][p] = thin_add_one(lanes[x][p], row[p], thin_number(line[x], is_bf16, i + p));
}

/* sums[x] += block_total_f32(lanes[x]), in the same order of additions, four lines at a time. */
INLINE void thin_totals(float *sums, thin_lanes lanes) {
    typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__AVX512F__) /* (i, i+8), then (i, i+4), then within each line's four */
    const __m512 a = _mm512_loadu_ps(lanes[0]), b = _mm512_loadu_ps(lanes[1]), c = _mm512_loadu_ps(lanes[2]),
                 d = _mm512_loadu_ps(lanes[3]);
    const __m512 a_b = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee),
                 c_d = _mm512_shuffle_f32x4(c, d, 0x44) + _mm512_shuffle_f32x4(c, d, 0xee);
    __m512 all = _mm512_shuffle_f32x4(a_b, c_d, 0x88) + _mm512_shuffle_f32x4(a_b, c_d, 0xdd);
    all += _mm512_permute_ps(all, 0x4e);
    all += _mm512_permute_ps(all, 0xb1);
    const __m512i firsts = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    *(quad *)sums += (quad)_mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, all));
#else
    quad total[THIN_LINES];
#pragma GCC unroll 4
    for (int x = 0; x < THIN_LINES; x++) {
        const quad *lane = (const quad *)lanes[x];
        total[x] = (lane[0] + lane[2]) + (lane[1] + lane[3]);
    }
    const quad low = __builtin_shufflevector(total[0], total[1], 0, 4, 1, 5),
               high = __builtin_shufflevector(total[0], total[1], 2, 6, 3, 7),
               low_2 = __builtin_shufflevector(total[2], total[3], 0, 4, 1, 5),
               high_2 = __builtin_shufflevector(total[2], total[3], 2, 6, 3, 7);
    const quad a = low + high, b = low_2 + high_2; /* (0+2, 0+2, 1+3, 1+3) of two lines each */
    *(quad *)sums += __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
#endif
}

typedef thin_vector thin_tile_lanes[GEMM_THIN_ROWS][THIN_LINES][THIN_VECTORS];

/* One block of terms of a tile, from the i-th on. */
INLINE void thin_block(thin_tile_lanes lane, const float *rows, int n_rows, const void *const *line, int n_lines,
                       int v0, int n_v, bool is_bf16, int64_t i) {
#pragma GCC unroll 4
    for (int v = 0; v < n_v; v++) {
        const int64_t at = i + THIN_WIDTH * (v0 + v);
        thin_vector number[THIN_LINES];
#pragma GCC unroll 4
        for (int x = 0; x < n_lines; x++) thin_load(&number[x], line[x], is_bf16, at);
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
            thin_vector factor = *(const thin_vector *)(rows + r * THIN_STEP + at);
            THIN_LOADED(factor);
#pragma GCC unroll 4
            for (int x = 0; x < n_lines; x++) thin_add(&lane[r][x][v], &factor, &number[x]);
        }
    }
}

/* Products of n_rows rows with n_lines lines, of n_v vectors of each block of lanes, from the v0-th on: as many as stay
 * in registers. Each number is loaded once for all rows. What is `ahead` bytes further is fetched meanwhile, a cache
 * line at a time; if a block takes several calls, each fetches its share. */
INLINE void thin_tile(thin_lanes *lanes, const float *rows, int n_rows, const void *const *line, int n_lines, int v0,
                      int n_v, bool is_bf16, int64_t n, int64_t ahead) {
    const int64_t step = BLOCK_LANES * (is_bf16 ? 2 : 1), calls = THIN_VECTORS / n_v;
    thin_tile_lanes lane;
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int x = 0; x < n_lines; x++)
#pragma GCC unroll 4
            for (int v = 0; v < n_v; v++) lane[r][x][v] = (thin_vector){0};
    int64_t i = 0;
    for (; i + step <= n; i += step) {
        if (calls == 1 || i / step % calls == v0 / n_v)
#pragma GCC unroll 4
            for (int x = 0; x < n_lines; x++) __builtin_prefetch((const char *)line[x] + i * (is_bf16 ? 2 : 4) + ahead);
        thin_block(lane, rows, n_rows, line, n_lines, v0, n_v, is_bf16, i);
        if (is_bf16) thin_block(lane, rows, n_rows, line, n_lines, v0, n_v, is_bf16, i + BLOCK_LANES);
    }
    if (is_bf16 && i + BLOCK_LANES <= n) thin_block(lane, rows, n_rows, line, n_lines, v0, n_v, is_bf16, i);
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int x = 0; x < n_lines; x++)
#pragma GCC unroll 4
            for (int v = 0; v < n_v; v++) *(thin_vector *)(lanes[r][x] + THIN_WIDTH * (v0 + v)) = lane[r][x][v];
}

/* n_rows rows with four lines, tile by tile. */
INLINE void thin_dots(thin_sums *sums, int64_t j, const float *rows, int n_rows, const void *const *line, bool is_bf16,
                      int64_t n, int64_t ahead) {
    const int n_v = n_rows == 1 ? THIN_VECTORS : 1;
    const int n_lines = 4 * (n_rows + 1) <= THIN_REGISTERS ? 4 : 2 * (n_rows + 1) <= THIN_REGISTERS ? 2 : 1;
    thin_lanes lanes[GEMM_THIN_ROWS];
    const int64_t whole = n - n % BLOCK_LANES;
    for (int x = 0; x < THIN_LINES; x += n_lines)
        for (int v = 0; v < THIN_VECTORS; v += n_v)
            thin_tile((thin_lanes *)lanes[0][x], rows, n_rows, line + x, n_lines, v, n_v, is_bf16, n, ahead);
    for (int r = 0; r < n_rows; r++) {
        if (whole < n) thin_tail(lanes[r], rows + r * THIN_STEP + whole, line, is_bf16, whole, n - whole);
        thin_totals(sums[r] + j, lanes[r]);
    }
}

/* All rows with four lines. */
static void thin_four(thin_sums *sums, int64_t j, const float *rows, int64_t n_rows, const void *const *line,
                      bool is_bf16, int64_t n, int64_t ahead) {
#define THIN_CASE(r)                                                    \
    case r:                                                             \
        if (is_bf16) thin_dots(sums, j, rows, r, line, true, n, ahead); \
        else thin_dots(sums, j, rows, r, line, false, n, ahead);        \
        break
    switch (n_rows) {
        THIN_CASE(1);
        THIN_CASE(2);
        THIN_CASE(3);
        THIN_CASE(4);
        THIN_CASE(5);
        THIN_CASE(6);
        THIN_CASE(7);
        THIN_CASE(8);
    }
#undef THIN_CASE
}
_Static_assert(GEMM_THIN_ROWS == 8 && GEMM_THIN_COLUMNS <= 8, "thin_four has a case for each");

/* Lines are dense in the terms: dot products. Line x of the j-th four is j + x quarter, and its sum is 4 j + x. */
static void thin_along(const struct thin *t, thin_sums *sums, int64_t first, int64_t n, thin_row *rows, int64_t k,
                       int64_t n_k) {
    const struct gemm_side *s = t->many;
    const bool is_ready = (side_has(s, TL_F32) || side_has(s, TL_BF16)) && s->k_stride == 1;
    const int64_t quarter = (n + THIN_LINES - 1) / THIN_LINES;
    /* along the lines if these follow each other, and else to the next one */
    const int64_t ahead = s->stride == t->g->k ? THIN_AHEAD : s->stride * (s->dtype == TL_BF16 ? 2 : 4);
    SCRATCH_ARRAY(float, buffer, THIN_LINES *THIN_K);
    for (int64_t j = 0; j < quarter; j++)
        for (int64_t at = 0; at < n_k; at += THIN_K) {
            const int64_t length = block_min(THIN_K, n_k - at);
            const void *line[THIN_LINES];
            for (int64_t x = 0; x < THIN_LINES; x++) { /* beyond the last line: that one again, for nothing */
                const int64_t index = first + block_min(j + x * quarter, n - 1),
                              from = index * s->stride + (k + at) * s->k_stride;
                if (is_ready) line[x] = block_at(s->data, s->dtype, from);
                else side_read(buffer + x * THIN_K, s, from, s->k_stride, length), line[x] = buffer + x * THIN_K;
            }
            thin_four(sums, THIN_LINES * j, rows[0] + at, t->n_few, line, is_ready && s->dtype == TL_BF16, length,
                      is_ready ? ahead : 0);
        }
}

/* From thin_along's order of sums to that of the lines. */
static void thin_order(float *sums, int64_t n) {
    const int64_t quarter = (n + THIN_LINES - 1) / THIN_LINES;
    thin_sums by_four;
    memcpy(by_four, sums, sizeof by_four);
    for (int64_t x = 0; x < THIN_LINES; x++)
        for (int64_t j = 0; j < quarter && x * quarter + j < n; j++)
            sums[x * quarter + j] = by_four[THIN_LINES * j + x];
}

/* n_rows rows, from term `from` on, with a whole run of lines, whose sums stay in registers. `step`: from term to
 * term, in numbers. */
INLINE void thin_columns(thin_sums *sums, thin_row *rows, int n_rows, int64_t from, const void *line, bool is_bf16,
                         int64_t step, int64_t n_k) {
    enum { THIN_RUN_VECTORS = THIN_RUN / THIN_WIDTH };
    thin_vector lane[THIN_GROUP][THIN_RUN_VECTORS];
    for (int r = 0; r < n_rows; r++) memcpy(lane[r], sums[r], sizeof lane[r]);
    for (int64_t p = 0; p < n_k; p++, line = (const char *)line + step * (is_bf16 ? 2 : 4)) {
        for (int x = 0; x < THIN_RUN * (is_bf16 ? 2 : 4); x += 64)
            __builtin_prefetch((const char *)line + THIN_FAR * step * (is_bf16 ? 2 : 4) + x);
#pragma GCC unroll 16
        for (int v = 0; v < THIN_RUN_VECTORS; v++) {
            thin_vector number;
            thin_load(&number, line, is_bf16, THIN_WIDTH * v);
#pragma GCC unroll 4
            for (int r = 0; r < n_rows; r++) {
                const float factor = rows[r][from + p];
                const thin_vector factors = factor - (thin_vector){0};
                thin_add(&lane[r][v], &factors, &number);
            }
        }
    }
    for (int r = 0; r < n_rows; r++) memcpy(sums[r], lane[r], sizeof lane[r]);
}

/* The same of all rows, from term p on. */
static void thin_all_columns(const struct thin *t, thin_sums *sums, thin_row *rows, int64_t p, const void *line,
                             bool is_bf16, int64_t step, int64_t n_k) {
    int64_t i = 0;
    for (; i + THIN_GROUP <= t->n_few; i += THIN_GROUP)
        if (is_bf16) thin_columns(sums + i, rows + i, THIN_GROUP, p, line, true, step, n_k);
        else thin_columns(sums + i, rows + i, THIN_GROUP, p, line, false, step, n_k);
    for (; i < t->n_few; i++)
        if (is_bf16) thin_columns(sums + i, rows + i, 1, p, line, true, step, n_k);
        else thin_columns(sums + i, rows + i, 1, p, line, false, step, n_k);
}

/* Terms are dense in the lines: multiples of these are added. */
static void thin_across(const struct thin *t, thin_sums *sums, int64_t first, int64_t n, thin_row *rows, int64_t k,
                        int64_t n_k) {
    const struct gemm_side *s = t->many;
    const bool is_ready = side_has(s, TL_F32) || side_has(s, TL_BF16);
    if (n == THIN_RUN && is_ready) {
        thin_all_columns(t, sums, rows, 0, block_at(s->data, s->dtype, first + k * s->k_stride), s->dtype == TL_BF16,
                         s->k_stride, n_k);
        return;
    }
    SCRATCH_ARRAY(float, buffer, THIN_LINES_ACROSS *THIN_RUN);
    for (int64_t p = 0; p < n_k; p += THIN_LINES_ACROSS) {
        const int64_t n_lines = block_min(THIN_LINES_ACROSS, n_k - p);
        for (int64_t x = 0; x < n_lines; x++)
            side_read(buffer + x * THIN_RUN, s, first + (k + p + x) * s->k_stride, 1, n);
        if (n == THIN_RUN) {
            thin_all_columns(t, sums, rows, p, buffer, false, THIN_RUN, n_lines);
            continue;
        }
        for (int64_t x = 0; x < n_lines; x++)
            for (int64_t i = 0; i < t->n_few; i++)
                for (int64_t j = 0; j < n; j++)
                    sums[i][j] = thin_add_one(sums[i][j], rows[i][p + x], buffer[x * THIN_RUN + j]);
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
    SCRATCH_ARRAY(thin_row, own, t->rows ? 0 : t->n_few);
    SCRATCH_ARRAY(thin_sums, sums, t->n_few);
    for (int64_t run = first; run < last; run++) {
        const int64_t at = run * THIN_RUN, n = block_min(THIN_RUN, t->n_many - at);
        memset(sums, 0, (size_t)t->n_few * sizeof *sums);
        for (int64_t p = 0; p < k; p += THIN_PANEL) {
            const int64_t n_k = block_min(THIN_PANEL, k - p);
            if (!t->rows) thin_rows(own, t, p, n_k);
            if (is_across) thin_across(t, sums, at, n, t->rows ? t->rows : own, p, n_k);
            else thin_along(t, sums, at, n, t->rows ? t->rows : own, p, n_k);
        }
        for (int64_t i = 0; i < t->n_few && !is_across; i++) thin_order(sums[i], n);
        thin_store(t, sums, at, n);
    }
}

static void multiply_thin(const struct gemm *g, int n_threads) {
    const bool is_row = g->m <= GEMM_THIN_ROWS; /* whatever n is: the bits must not depend on m */
    struct thin t = {.g = g,
                     .few = is_row ? &g->a : &g->b,
                     .many = is_row ? &g->b : &g->a,
                     .n_few = is_row ? g->m : g->n,
                     .n_many = is_row ? g->n : g->m,
                     .out_few = is_row ? g->out_step : 1,
                     .out_many = is_row ? 1 : g->out_step};
    SCRATCH_ARRAY(thin_row, rows, g->k <= THIN_PANEL ? t.n_few : 0);
    if (g->k <= THIN_PANEL) {
        thin_rows(rows, &t, 0, g->k);
        t.rows = rows;
    }
    parallel_for((t.n_many - 1) / THIN_RUN + 1, parallel_grain(t.n_few * THIN_RUN * g->k / 2), n_threads, thin_range,
                 &t);
}
