/* gemm.c: one product of two matrices with f32 sums, by blocks.
 *
 * Goto's scheme. The sums of a small block of the output (8 x 12 on Arm) stay in registers while the terms run; both
 * operands are packed first, so that a block reads them from beginning to end. The loops around it keep reused data
 * in the caches: a panel of b (12 columns) in L1, a slice of a (128 rows) in L2, the rest of the packed operands in
 * L3.
 *
 *   for each block of the output, at most GEMM_M x GEMM_N                     (device/cpu/shared/gemm_sizes.h)
 *     for each block of terms
 *       pack both operands into the workspace                                 all threads, by panels
 *       for each slice of rows and run of columns                             all threads
 *         for each panel of b (packed only now on some chips), for each panel of a: block
 *
 * The cuts depend on the sizes alone, except for the slices and runs, which change no sum. So the bits do not depend
 * on the number of threads.
 *
 * 16-bit results are rounded once: their sums wait in f32 until the last block of terms, in the workspace when there
 * is more than one. Operands of other dtypes are converted while they are packed. Two bf16 operands are multiplied
 * as such where the chip can, and as f32 elsewhere.
 *
 * Rejected: a bias or an activation in the same pass. As a separate op a bias reads and writes the result once,
 * which is 1 % of a GPT-2 product in f32.
 */
#include "device/cpu/shared/gemm.h"
#include "base/float_bits.h"
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/unpack.h"
#include "device/cpu/shared/gemm_kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/gemm_sizes.h"

#include "device/cpu/shared/gemm_pack.h"
#include "device/cpu/shared/gemm_thin.h"

/* ---- Kinds of products ------------------------------------------------------------------------------------------- */

typedef void (*pack_function)(char *out, const struct slab *slab);
typedef void (*block_function)(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store);

enum { MOST_PARTS = 3 };
struct kind {
    int rows, columns, terms; /* of a block */
    int number_bytes;         /* of a packed number */
    int64_t k;                /* terms of a block at most */
    int64_t chunk;            /* of them at a time, so that a panel fits in the L1 cache; 0: all of them */
    int64_t slice;            /* rows of a that are multiplied with a panel of b, so that they fit in the L2 cache */
    block_function parts[MOST_PARTS]; /* blocks of only the first columns; the last of them has all */
    int part_columns;                 /* of the first; the second has twice as many, and so on */
    pack_function pack_a, pack_b;
    bool stores_bf16; /* block does */
    bool packs_late;  /* panels of b: see gemm_kernels.h */
};

/* The block that computes the first n columns of a panel, or all of them if it has no more. */
static block_function block_of(const struct kind *kind, int64_t n) {
    return kind->parts[(block_min(n, kind->columns) - 1) / kind->part_columns];
}

#ifndef GEMM_STORES_BF16
#define GEMM_STORES_BF16 0
#endif

static void pack_a_f32(char *out, const struct slab *slab) { pack_slab(out, slab, F32_ROWS, 1, FORMAT_F32, false); }
static void pack_b_f32(char *out, const struct slab *slab) { pack_slab(out, slab, F32_COLUMNS, 1, FORMAT_F32, true); }

#ifndef F32_PARTS
#define F32_PARTS \
    { block_f32 }
enum { F32_PART = F32_COLUMNS };
#endif
static const struct kind kind_f32 = {.rows = F32_ROWS,
                                     .columns = F32_COLUMNS,
                                     .terms = F32_TERMS,
                                     .number_bytes = sizeof(float),
                                     .k = GEMM_K_F32,
                                     .chunk = F32_CHUNK,
                                     .slice = F32_SLICE,
                                     .parts = F32_PARTS,
                                     .part_columns = F32_PART,
                                     .pack_a = pack_a_f32,
                                     .pack_b = pack_b_f32,
                                     .packs_late = GEMM_PACKS_LATE};

#if defined(GEMM_HAS_BF16)
static void pack_a_bf16(char *out, const struct slab *slab) {
    pack_slab(out, slab, BF16_ROWS, BF16_A_GROUP, FORMAT_BF16, false);
}
static void pack_b_bf16(char *out, const struct slab *slab) {
    pack_slab(out, slab, BF16_COLUMNS, BF16_B_GROUP, FORMAT_BF16, true);
}
static void pack_a_split(char *out, const struct slab *slab) {
    pack_slab(out, slab, BF16_ROWS, BF16_A_GROUP, FORMAT_SPLIT, false);
}
static void pack_b_split(char *out, const struct slab *slab) {
    pack_slab(out, slab, BF16_COLUMNS, BF16_B_GROUP, FORMAT_SPLIT, true);
}

/* With x = high + low in both operands: high*low + low*high, which is one product of twice the terms since a's
 * panels hold (high, low) and b's (low, high), and then high*high. low*low, at most 2^-16 of the product, is left
 * out. */
static void block_split(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    block_bf16(2 * n_k, a, b, c, c_step, store);
    block_bf16(n_k, a, (const uint16_t *)b + n_k * BF16_COLUMNS, c, c_step, STORE_SUM);
}

#ifndef BF16_PARTS
#define BF16_PARTS \
    { block_bf16 }
enum { BF16_PART = BF16_COLUMNS };
#endif
static const struct kind kind_bf16 = {.rows = BF16_ROWS,
                                      .columns = BF16_COLUMNS,
                                      .terms = BF16_TERMS,
                                      .number_bytes = sizeof(uint16_t),
                                      .k = GEMM_K_BF16,
                                      .chunk = BF16_CHUNK,
                                      .slice = BF16_SLICE,
                                      .parts = BF16_PARTS,
                                      .part_columns = BF16_PART,
                                      .pack_a = pack_a_bf16,
                                      .pack_b = pack_b_bf16,
                                      .stores_bf16 = GEMM_STORES_BF16,
                                      .packs_late = GEMM_PACKS_LATE};
static const struct kind kind_split = {.rows = BF16_ROWS,
                                       .columns = BF16_COLUMNS,
                                       .terms = BF16_TERMS,
                                       .number_bytes = sizeof(float),
                                       .k = GEMM_K_F32 / 2,
                                       .slice = BF16_SLICE,
                                       .parts = {block_split},
                                       .part_columns = BF16_COLUMNS,
                                       .pack_a = pack_a_split,
                                       .pack_b = pack_b_split};
#endif

static bool is_bf16(const struct gemm *g) { return g->a.dtype == TL_BF16 && g->b.dtype == TL_BF16; }

static const struct kind *kind_of(const struct gemm *g) {
#if defined(GEMM_HAS_BF16)
    if (is_bf16(g)) return &kind_bf16;
    if (g->is_fast && g->a.dtype == TL_F32 && g->b.dtype == TL_F32) return &kind_split;
#else
    (void)g;
#endif
    return &kind_f32;
}

bool gemm_beats_blas(void) { return GEMM_BEATS_BLAS; }

static int64_t cuts(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int64_t padded(int64_t n, int64_t size) { return cuts(n, size) * size; }

/* n in as few equal parts of at most `limit` as possible, each but the last a multiple of `unit`. */
static int64_t even_part(int64_t n, int64_t limit, int64_t unit) {
    const int64_t n_parts = cuts(n, limit > unit ? limit / unit * unit : unit);
    return padded(cuts(n, n_parts), unit);
}

/* ---- One block of the output and of the terms -------------------------------------------------------------------- */

/* Columns, a multiple of every width; rows of them whose sums may wait in the arena; bytes of a panel of b there. */
enum { RUN = 96, WAITING = 128, LATE_BYTES = GEMM_PACKS_LATE ? 64 << 10 : 64 };
#if GEMM_PACKS_LATE
_Static_assert(F32_CHUNK *F32_COLUMNS * 4 <= LATE_BYTES, "a panel of b fits");
#if defined(GEMM_HAS_BF16)
_Static_assert((BF16_CHUNK ? BF16_CHUNK : GEMM_K_BF16) * BF16_COLUMNS * 2 <= LATE_BYTES, "a panel of b fits");
#endif
#endif

/* A thread's buffers in its arena. */
struct room {
    _Alignas(64) float sums[WAITING * RUN];
    _Alignas(64) char panel[LATE_BYTES + GEMM_SLACK];
};

struct work {
    const struct gemm *g;
    const struct kind *kind;
    char *a, *b;                    /* packed */
    float *sums;                    /* f32 sums of the block; NULL when out has them */
    int64_t sums_step;              /* from row to row of them */
    int64_t i, n_i, j, n_j;         /* the block */
    int64_t k, n_k, n_terms;        /* its terms, and these padded */
    bool is_first, is_last;         /* of the blocks of terms */
    bool is_late;                   /* b is not packed yet */
    int64_t n_a_panels, n_b_panels; /* to pack; none when they are packed already */
    int64_t slice, run, n_runs;     /* cuts of the multiplication */
};

/* Panels of b, then of a. */
static void pack_range(void *context, int64_t first, int64_t last) {
    const struct work *w = context;
    const struct kind *kind = w->kind;
    for (int side = 0; side < 2; side++) {
        const bool is_a = side == 1;
        const int64_t width = is_a ? kind->rows : kind->columns, n = is_a ? w->n_i : w->n_j;
        const int64_t from = is_a ? first - w->n_b_panels : first, to = is_a ? last - w->n_b_panels : last;
        const int64_t begin = from > 0 ? from : 0, end = block_min(to, is_a ? w->n_a_panels : w->n_b_panels);
        if (begin >= end) continue;
        const struct slab slab = {.side = is_a ? &w->g->a : &w->g->b,
                                  .row = (is_a ? w->i : w->j) + begin * width,
                                  .n = block_min(end * width, n) - begin * width,
                                  .k = w->k,
                                  .n_k = w->n_k,
                                  .n_terms = w->n_terms};
        char *out = (is_a ? w->a : w->b) + begin * width * w->n_terms * kind->number_bytes;
        (is_a ? kind->pack_a : kind->pack_b)(out, &slab);
    }
}

/* Element (i, j) of the block, in the output. */
static void *out_at(const struct work *w, int64_t i, int64_t j) {
    return block_at(w->g->out, w->g->out_dtype, (w->i + i) * w->g->out_step + w->j + j);
}

/* A block at the edge of an output that takes whole blocks directly. */
static void block_at_edge(const struct work *w, int64_t n_terms, const void *a, const void *b, int64_t i, int64_t j,
                          enum store store) {
    const int rows = w->kind->rows, columns = w->kind->columns;
    const struct gemm *g = w->g;
    const int64_t n_i = block_min(rows, w->n_i - i), n_j = block_min(columns, w->n_j - j);
    _Alignas(64) float sums[32 * 32];
    block_of(w->kind, n_j)(n_terms, a, b, sums, columns, STORE);
    for (int64_t r = 0; r < n_i; r++) {
        const float *sum = sums + r * columns;
        void *out = out_at(w, i + r, j);
        if (store == STORE_SUM)
            for (int64_t s = 0; s < n_j; s++) ((float *)out)[s] += sum[s];
        else convert_from_f32(out, g->out_dtype, 1, sum, n_j);
    }
}

/* Rows of tiles are short, and rounding is a few instructions there. */
static void store_row(void *out, tl_dtype dtype, const float *row, int64_t n) {
    int64_t i = 0;
#if defined(GEMM_HAS_TILES)
    for (; dtype == TL_BF16 && i + 32 <= n; i += 32) round_32((uint16_t *)out + i, row + i);
#endif
    if (i < n) convert_from_f32(block_at(out, dtype, i), dtype, 1, row + i, n - i);
}

/* Finished sums of n_j <= RUN columns, rounded into the output or added to it. */
static void store_narrow(const struct work *w, const float *sums, int64_t step, int64_t i, int64_t n_i, int64_t j,
                         int64_t n_j) {
    const struct gemm *g = w->g;
    for (int64_t r = 0; r < n_i; r++, sums += step) {
        void *out = out_at(w, i + r, j);
        const float *row = sums;
        float total[RUN];
        if (g->add) {
            convert_to_f32(total, out, g->out_dtype, 1, n_j);
            for (int64_t s = 0; s < n_j; s++) total[s] += sums[s];
            row = total;
        }
        store_row(out, g->out_dtype, row, n_j);
    }
}

/* Terms that are multiplied at once: neighbours in k are adjacent in a panel. */
static int64_t chunk_of(const struct work *w) {
    return w->kind->chunk ? even_part(w->n_terms, w->kind->chunk, w->kind->terms) : w->n_terms;
}

/* n_terms, from the k-th, of the panel of b whose first column is c. */
static const char *panel_of_b(const struct work *w, int64_t k, int64_t n_terms, int64_t c, struct room *room) {
    const struct kind *kind = w->kind;
    if (!w->is_late) return w->b + (c * w->n_terms + k * kind->columns) * kind->number_bytes;
    const struct slab slab = {.side = &w->g->b,
                              .row = w->j + c,
                              .n = block_min(kind->columns, w->n_j - c),
                              .k = w->k + k,
                              .n_k = block_min(n_terms, w->n_k - k),
                              .n_terms = n_terms};
    kind->pack_b(room->panel, &slab);
    return room->panel;
}

/* n_terms of blocks, from the k-th, that go to the output directly. */
static void multiply_wide(const struct work *w, int64_t k, int64_t n_terms, int64_t i, int64_t n_i, int64_t j,
                          int64_t n_j, enum store store, struct room *room) {
    const struct kind *kind = w->kind;
    const int64_t line_bytes = w->n_terms * kind->number_bytes, step = w->g->out_step;
    for (int64_t c = j; c < j + n_j; c += kind->columns) {
        const char *b = panel_of_b(w, k, n_terms, c, room);
        const int64_t columns = block_min(kind->columns, w->n_j - c);
        const block_function block = block_of(kind, columns);
        for (int64_t r = i; r < i + n_i; r += kind->rows) {
            const char *a = w->a + r * line_bytes + k * kind->rows * kind->number_bytes;
            if (r + kind->rows > w->n_i || columns % kind->part_columns) {
                block_at_edge(w, n_terms, a, b, r, c, store);
                continue;
            }
            void *out = out_at(w, r, c);
            for (int x = 0; x < kind->rows && store != STORE_BF16; x++) { /* a row may touch one cache line more */
                for (int y = 0; y < columns; y += 16) __builtin_prefetch((float *)out + x * step + y, 1);
                __builtin_prefetch((float *)out + x * step + columns - 1, 1);
            }
            block(n_terms, a, b, out, step, store);
        }
    }
}

/* Blocks whose sums wait in f32: in the workspace, or in the arena when these are all the terms. */
static void multiply_narrow(const struct work *w, int64_t i, int64_t n_i, int64_t j, int64_t n_j, struct room *room) {
    const struct kind *kind = w->kind;
    const int64_t line_bytes = w->n_terms * kind->number_bytes, step = w->sums ? w->sums_step : RUN;
    float *sums = w->sums ? w->sums + i * step + j : room->sums;
    for (int64_t k = 0, n; k < w->n_terms; k += n) {
        n = block_min(chunk_of(w), w->n_terms - k);
        for (int64_t c = 0; c < n_j; c += kind->columns) {
            const char *b = panel_of_b(w, k, n, j + c, room);
            const block_function block = block_of(kind, n_j - c);
            for (int64_t r = 0; r < n_i; r += kind->rows)
                block(n, w->a + (i + r) * line_bytes + k * kind->rows * kind->number_bytes, b, sums + r * step + c,
                      step, w->is_first && k == 0 ? STORE : STORE_SUM);
        }
    }
    if (w->is_last) store_narrow(w, sums, step, i, n_i, j, n_j);
}

static bool is_rounded_by_blocks(const struct work *w) {
    return w->g->out_dtype == TL_BF16 && w->kind->stores_bf16 && !w->sums && !w->g->add;
}

/* Rows i .. i + n_i - 1 of the block, columns j .. j + n_j - 1 (n_j <= RUN). */
static void multiply_part(const struct work *w, int64_t i, int64_t n_i, int64_t j, int64_t n_j, struct room *room) {
    const struct gemm *g = w->g;
    if (g->out_dtype == TL_F32)
        for (int64_t k = 0, n; k < w->n_terms; k += n) {
            n = block_min(chunk_of(w), w->n_terms - k);
            multiply_wide(w, k, n, i, n_i, j, n_j, w->is_first && !g->add && k == 0 ? STORE : STORE_SUM, room);
        }
    else if (is_rounded_by_blocks(w)) multiply_wide(w, 0, w->n_terms, i, n_i, j, n_j, STORE_BF16, room);
    else multiply_narrow(w, i, n_i, j, n_j, room);
}

static void multiply_range(void *context, int64_t first, int64_t last) {
    const struct work *w = context;
    const int64_t step = w->is_late ? w->kind->columns : RUN;
    SCRATCH(struct room, room);
    tiles_begin();
    for (int64_t item = first; item < last; item++) {
        const int64_t i = item / w->n_runs * w->slice, j = item % w->n_runs * w->run;
        const int64_t n_i = block_min(w->slice, w->n_i - i), end = block_min(j + w->run, w->n_j);
        for (int64_t at = j; at < end; at += step) multiply_part(w, i, n_i, at, block_min(step, end - at), room);
    }
    tiles_end();
}

/* ---- All blocks -------------------------------------------------------------------------------------------------- */

/* Slices and runs: enough of them to keep all threads busy to the end. */
static void cut_for_threads(struct work *w, int n_threads) {
    const int rows = w->kind->rows;
    const bool is_waiting = w->g->out_dtype != TL_F32 && !w->sums && !is_rounded_by_blocks(w);
    w->slice = even_part(w->n_i, is_waiting ? block_min(WAITING, w->kind->slice) : w->kind->slice, rows);
    w->run = padded(w->n_j, RUN);
    while (cuts(w->n_i, w->slice) * cuts(w->n_j, w->run) < 4 * n_threads && n_threads > 1) {
        if (w->run > RUN) w->run = padded(w->run / 2, RUN);
        else if (w->slice > rows) w->slice = padded(w->slice / 2, rows);
        else break;
    }
    w->n_runs = cuts(w->n_j, w->run);
}

static void run_block(struct work *w, int n_threads) {
    const int64_t panel_work = w->n_terms * w->kind->columns / 2;
    int64_t n_panels = w->n_a_panels + w->n_b_panels, grain = parallel_grain(panel_work);
    if (grain < LINE / w->kind->columns) grain = LINE / w->kind->columns; /* neighbours share cache lines */
    parallel_for(n_panels, grain, n_threads, pack_range, w);
    cut_for_threads(w, n_threads);
    parallel_for(cuts(w->n_i, w->slice) * w->n_runs, 1, n_threads, multiply_range, w);
}

/* `limit`: rows, columns and terms of a block. The workspace has the packed operands and then the sums. */
static void multiply(const struct gemm *g, const struct kind *kind, struct gemm_sizes limit, char *workspace,
                     int n_threads) {
    struct work w = {.g = g, .kind = kind};
    const bool is_ready = side_has(&g->b, kind->number_bytes == 2 ? TL_BF16 : TL_F32);
    /* One wide panel of converted numbers may be more than a workspace for bf16 has. */
    w.is_late = kind->packs_late && (is_ready || g->n < 2 * kind->columns);
    const int64_t part_m = even_part(g->m, limit.m, kind->rows), part_n = even_part(g->n, limit.n, kind->columns);
    const int64_t part_k = even_part(g->k, limit.k, kind->terms);
    const size_t line_bytes = (size_t)part_k * (size_t)kind->number_bytes;
    w.b = workspace;
    w.a = w.is_late ? workspace : w.b + gemm_round_up((size_t)part_n * line_bytes + GEMM_SLACK);
    if (g->out_dtype != TL_F32 && part_k < g->k) {
        w.sums = (float *)(void *)(w.a + gemm_round_up((size_t)part_m * line_bytes + GEMM_SLACK));
        w.sums_step = part_n;
    }
    for (w.j = 0; w.j < g->n; w.j += part_n) {
        w.n_j = block_min(part_n, g->n - w.j);
        for (w.i = 0; w.i < g->m; w.i += part_m) {
            w.n_i = block_min(part_m, g->m - w.i);
            for (w.k = 0; w.k < g->k; w.k += part_k) {
                w.n_k = block_min(part_k, g->k - w.k);
                w.n_terms = padded(w.n_k, kind->terms);
                w.is_first = w.k == 0;
                w.is_last = w.k + w.n_k == g->k;
                w.n_a_panels = cuts(w.n_i, kind->rows);
                w.n_b_panels = w.is_late || (w.i > 0 && part_k >= g->k) ? 0 : cuts(w.n_j, kind->columns);
                run_block(&w, n_threads);
            }
        }
    }
}

/* Few rows or columns; or nothing to sum: zeros, or nothing to add. */
static bool is_trivial(const struct gemm *g, int n_threads) {
    if (g->m <= 0 || g->n <= 0) return true;
    if (g->k > 0 && !gemm_is_thin(g->m, g->n)) return false;
    if (g->k > 0) {
        multiply_thin(g, n_threads);
        return true;
    }
    const size_t row_bytes = (size_t)g->n * (size_t)(dtype_info(g->out_dtype)->bits / 8);
    for (int64_t i = 0; i < g->m && !g->add; i++) memset(block_at(g->out, g->out_dtype, i * g->out_step), 0, row_bytes);
    return true;
}

void gemm_multiply(const struct gemm *g, void *workspace, int n_threads) {
    if (is_trivial(g, n_threads)) return;
    const struct kind *kind = kind_of(g);
    struct gemm_sizes limit = {.m = gemm_min(g->m, GEMM_M), .n = gemm_min(g->n, GEMM_N), .k = kind->k};
    if (is_bf16(g) && kind->number_bytes == 4) { /* packed as f32 in a workspace meant for bf16 */
        limit = (struct gemm_sizes){.m = cuts(limit.m, 2), .n = cuts(limit.n, 2), .k = GEMM_K_BF16};
    }
    multiply(g, kind, limit, workspace, n_threads);
}

void gemm_multiply_small(const struct gemm *g) {
    enum { M = 96, N = 192, K = 192 }; /* multiples of every block */
    if (is_trivial(g, 1)) return;
    SCRATCH_ARRAY(char, workspace, (M + N) * K * 4 + 2 * (GEMM_SLACK + 64) + M * N * 4);
    multiply(g, kind_of(g), (struct gemm_sizes){.m = M, .n = N, .k = K}, workspace, 1);
}
