/* fold.c: reductions whose partial result is more than one number, and running sums and products.
 *
 * The reduced elements of one output, in row-major order, are cut into chunks of REDUCE_CHUNK. A chunk is gathered
 * into an array of f64 (i64 for integers; f32 for a *narrow* reduction, which keeps the same digits) and reduced to a
 * *state* of two numbers; the states of an output are joined in order, and the last one is finished into the result.
 * Chunks depend on the shape alone, so the bits are the same for every number of threads and every layout of x.
 * Inside a chunk, sums run in LANES, as in reduce.c.
 */
#include "base/scratch.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/ops/reduce.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, COLUMNS = 512, FEW_COLUMNS = 64 };
typedef double column_lane[COLUMNS];

union number {
    double f;
    int64_t i;
};
struct state {
    union number a, b;
};
_Static_assert(sizeof(struct state) == FOLD_STATE_BYTES, "attr.h says how large a state is");

struct task;

/* The elements of n_columns neighbouring outputs: n rows. */
struct rows {
    const char *base;
    int64_t step, n, n_columns; /* step: bytes from row to row */
    int64_t first;              /* element of its output that row 0 has */
    tl_dtype dtype;
};

/* How one reduction works. x is an array of n doubles or int64s (narrow: of floats), of which x[0] is element `first`
 * of its output. */
struct fold {
    struct state (*chunk)(const void *x, int64_t n, int64_t first, const void *attr);
    /* total, over n_total elements, and part, over n_part that follow. */
    void (*join)(struct state *total, int64_t n_total, struct state part, int64_t n_part, const void *attr);
    void (*finish)(const struct task *task, int64_t output, struct state state);
    /* For a narrow one, or NULL: the chunks of neighbouring outputs at once, up to COLUMNS. */
    void (*columns)(const struct rows *rows, struct state *to);
};

struct task {
    const struct fold *fold;
    const tl_kernel_args *args;
    struct iterate kept, reduced; /* walks over x; both start at x */
    const tl_operand *x;
    int64_t x_stride, n_chunks;
    bool is_float, is_narrow;
    int64_t columns;       /* outputs of a block, up to COLUMNS */
    int64_t n_blocks;      /* of columns, in a row of outputs */
    struct state *partial; /* (output, chunk) */
};

/* ---- Walking -------------------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t chunk_length(const struct task *task, int64_t chunk) {
    return smaller(REDUCE_CHUNK, task->reduced.n - chunk * REDUCE_CHUNK);
}

/* The same through floats; an array of them is used in place. */
static struct state fold_narrow_chunk(const struct task *task, const char *base, int64_t chunk, float *buffer) {
    const int64_t first = chunk * REDUCE_CHUNK, n = chunk_length(task, chunk);
    if (task->reduced.rank == 1 && task->x->dtype == TL_F32 && task->x_stride == 1)
        return task->fold->chunk((const float *)(const void *)base + first, n, first, task->args->attr);
    struct iterate_run run;
    iterate_seek(&task->reduced, &run, first, first + n);
    for (int64_t filled = 0; iterate_next(&task->reduced, &run, INT64_MAX); filled += run.length)
        convert_to_f32(buffer + filled, base + (run.data[0] - (const char *)task->x->data), task->x->dtype,
                       task->x_stride, run.length);
    return task->fold->chunk(buffer, n, first, task->args->attr);
}

/* The chunk of the output whose elements begin at `base`; the buffer has room for REDUCE_CHUNK of them. */
static struct state fold_chunk(const struct task *task, const char *base, int64_t chunk, union number *buffer) {
    if (task->is_narrow) return fold_narrow_chunk(task, base, chunk, (float *)(void *)buffer);
    const int64_t first = chunk * REDUCE_CHUNK, n = chunk_length(task, chunk);
    struct iterate_run run;
    iterate_seek(&task->reduced, &run, first, first + n);
    for (int64_t filled = 0; iterate_next(&task->reduced, &run, INT64_MAX); filled += run.length) {
        const char *at = base + (run.data[0] - (const char *)task->x->data);
        if (task->is_float) convert_to_f64(&buffer[filled].f, at, task->x->dtype, task->x_stride, run.length);
        else convert_to_i64(&buffer[filled].i, at, task->x->dtype, task->x_stride, run.length);
    }
    return task->fold->chunk(buffer, n, first, task->args->attr);
}

static const char *output_base(const struct task *task, int64_t output) {
    struct iterate_run run;
    iterate_seek(&task->kept, &run, output, output + 1);
    iterate_next(&task->kept, &run, 1);
    return run.data[0];
}

static void fold_outputs(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    SCRATCH_ARRAY(union number, buffer, REDUCE_CHUNK);
    struct iterate_run run;
    iterate_seek(&task->kept, &run, first, last);
    while (iterate_next(&task->kept, &run, 1)) {
        struct state total = fold_chunk(task, run.data[0], 0, buffer);
        for (int64_t chunk = 1; chunk < task->n_chunks; chunk++)
            task->fold->join(&total, chunk * REDUCE_CHUNK, fold_chunk(task, run.data[0], chunk, buffer),
                             chunk_length(task, chunk), task->args->attr);
        task->fold->finish(task, run.position, total);
    }
}

/* Items are output * n_chunks + chunk. */
static void fold_chunks(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    SCRATCH_ARRAY(union number, buffer, REDUCE_CHUNK);
    for (int64_t item = first; item < last; item++)
        task->partial[item] = fold_chunk(task, output_base(task, item / task->n_chunks), item % task->n_chunks, buffer);
}

static void join_chunks(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    for (int64_t output = first; output < last; output++) {
        const struct state *partial = task->partial + output * task->n_chunks;
        struct state total = partial[0];
        for (int64_t chunk = 1; chunk < task->n_chunks; chunk++)
            task->fold->join(&total, chunk * REDUCE_CHUNK, partial[chunk], chunk_length(task, chunk), task->args->attr);
        task->fold->finish(task, output, total);
    }
}

/* Blocks of columns: items are (row of outputs, block, chunk). */
static void fold_columns(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const int64_t kept_size = task->kept.size[task->kept.rank - 1];
    for (int64_t item = first; item < last; item++) {
        const int64_t chunk = item % task->n_chunks, block = item / task->n_chunks;
        const int64_t column = block % task->n_blocks * task->columns,
                      output = block / task->n_blocks * kept_size + column;
        const int64_t step = task->reduced.step[0];
        struct state state[COLUMNS];
        const struct rows rows = {.base = output_base(task, output) + chunk * REDUCE_CHUNK * step,
                                  .step = step,
                                  .n = chunk_length(task, chunk),
                                  .n_columns = smaller(task->columns, kept_size - column),
                                  .first = chunk * REDUCE_CHUNK,
                                  .dtype = task->x->dtype};
        task->fold->columns(&rows, state);
        for (int64_t c = 0; c < rows.n_columns; c++) {
            if (task->n_chunks == 1) task->fold->finish(task, output + c, state[c]);
            else task->partial[(output + c) * task->n_chunks + chunk] = state[c];
        }
    }
}

/* True if neighbouring outputs have neighbouring elements, and the elements of one output are further apart. */
static bool goes_by_columns(const struct task *task) {
    const struct iterate *kept = &task->kept, *reduced = &task->reduced;
    return task->fold->columns && reduced->rank == 1 && reduced->n > 1 && kept->size[kept->rank - 1] >= LANES &&
           kept->step[0] == iterate_element_bytes(task->x->dtype) &&
           (reduced->step[0] > kept->step[0] || reduced->step[0] < -kept->step[0]);
}

/* Long pieces of rows read fastest. They are shorter if threads would otherwise be idle; the results are the same. */
static bool run_columns(struct task *task, int n_threads) {
    const int64_t kept_size = task->kept.size[task->kept.rank - 1], n_rows = smaller(REDUCE_CHUNK, task->reduced.n);
    const int64_t n_items = task->kept.n / kept_size * task->n_chunks;
    task->columns = smaller(COLUMNS, kept_size);
    while (task->columns > FEW_COLUMNS && n_items * ((kept_size - 1) / task->columns + 1) < 2 * n_threads)
        task->columns = (task->columns + 1) / 2;
    task->n_blocks = (kept_size + task->columns - 1) / task->columns;
    parallel_for(n_items * task->n_blocks, parallel_grain(2 * n_rows * task->columns), n_threads, fold_columns, task);
    if (task->n_chunks > 1) parallel_for(task->kept.n, parallel_grain(task->n_chunks), n_threads, join_chunks, task);
    return true;
}

/* Every attribute begins with the set of axes. */
static bool run_fold_as(const tl_kernel_args *args, const struct fold *fold, bool is_narrow) {
    const struct attr_reduce *over = args->attr;
    const tl_operand *x = &args->in[0];
    struct task task = {.fold = fold, .args = args, .x = x, .is_narrow = is_narrow};
    task.is_float = dtype_is_float(x->dtype);
    const int64_t n_outputs = iterate_numel(&args->out[0]);
    if (n_outputs == 0) return true;
    if (iterate_numel(x) == 0) { /* no address to walk from */
        for (int64_t output = 0; output < n_outputs; output++)
            fold->finish(&task, output, fold->chunk(NULL, 0, 0, args->attr));
        return true;
    }
    reduce_walk(&task.kept, x, ~over->axes);
    reduce_walk(&task.reduced, x, over->axes);
    task.x_stride = task.reduced.step[0] / iterate_element_bytes(x->dtype);
    task.n_chunks = (task.reduced.n + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    task.partial = args->workspace;
    if (goes_by_columns(&task)) return run_columns(&task, args->n_threads);
    if (task.n_chunks == 1) {
        parallel_for(n_outputs, parallel_grain(2 * task.reduced.n), args->n_threads, fold_outputs, &task);
        return true;
    }
    parallel_for(n_outputs * task.n_chunks, parallel_grain(2 * REDUCE_CHUNK), args->n_threads, fold_chunks, &task);
    parallel_for(n_outputs, parallel_grain(task.n_chunks), args->n_threads, join_chunks, &task);
    return true;
}

static bool run_fold(const tl_kernel_args *args, const struct fold *fold) { return run_fold_as(args, fold, false); }

static void write_real(const struct task *task, int out, int64_t output, double value) {
    const tl_operand *to = &task->args->out[out];
    convert_from_f64((char *)to->data + output * iterate_element_bytes(to->dtype), to->dtype, 1, &value, 1);
}

static double lanes_total(double lane[LANES]) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* A row as floats: in place, or converted into `buffer`. */
static const float *row_at(const struct rows *rows, int64_t row, float *buffer) {
    const char *at = rows->base + row * rows->step;
    if (rows->dtype == TL_F32) return (const float *)(const void *)at;
    convert_to_f32(buffer, at, rows->dtype, 1, rows->n_columns);
    return buffer;
}

/* As lanes_total, for every column; the totals are then the first lane. */
static void columns_total(column_lane lane[LANES], int64_t n) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            for (int64_t c = 0; c < n; c++) lane[k][c] += lane[k + half][c];
}

static void columns_begin(column_lane lane[LANES], int64_t n) {
    for (int k = 0; k < LANES; k++) memset(lane[k], 0, (size_t)n * sizeof *lane[k]);
}

static double array_sum(const double *x, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += x[i + k];
    for (int k = 0; i + k < n; k++) lane[k] += x[i + k];
    return lanes_total(lane);
}

/* ---- argmax, argmin: the value, and where it is ------------------------------------------------------------- */

static bool is_better_f64(double x, double best, bool wants_max) {
    if (best != best) return false;
    return x != x || (wants_max ? x > best : x < best);
}

#define T float
#define MASK int32_t
#define NAME(name) name##_f32
#include "device/cpu/ops/fold_template.h"
#define T double
#define MASK int64_t
#define NAME(name) name##_f64
#include "device/cpu/ops/fold_template.h"

static struct state max_place_i64(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)attr;
    const int64_t *x = data;
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (struct state){{.i = x[best]}, {.i = first + best}};
}
static struct state min_place_i64(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)attr;
    const int64_t *x = data;
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] < x[best]) best = i;
    return (struct state){{.i = x[best]}, {.i = first + best}};
}

#define JOIN(name) \
    static void name(struct state *total, int64_t n_total, struct state part, int64_t n_part, const void *attr)
JOIN(join_max_f64) {
    (void)n_total, (void)n_part, (void)attr;
    if (is_better_f64(part.a.f, total->a.f, true)) *total = part;
}
JOIN(join_min_f64) {
    (void)n_total, (void)n_part, (void)attr;
    if (is_better_f64(part.a.f, total->a.f, false)) *total = part;
}
JOIN(join_max_i64) {
    (void)n_total, (void)n_part, (void)attr;
    if (part.a.i > total->a.i) *total = part;
}
JOIN(join_min_i64) {
    (void)n_total, (void)n_part, (void)attr;
    if (part.a.i < total->a.i) *total = part;
}

static void finish_place(const struct task *task, int64_t output, struct state state) {
    ((int64_t *)task->args->out[0].data)[output] = state.b.i;
}

/* The first of equals wins, and the first NaN beats everything: a better element replaces the current one unless that
 * is NaN. */
VECTOR_INLINE void place_columns(const struct rows *rows, struct state *to, bool wants_max) {
    float best[COLUMNS], buffer[COLUMNS];
    int32_t place[COLUMNS]; /* in a chunk */
    const int64_t n = rows->n_columns;
    memset(place, 0, (size_t)n * sizeof *place);
    memcpy(best, row_at(rows, 0, buffer), (size_t)n * sizeof *best);
    for (int64_t row = 1; row < rows->n; row++) {
        const float *x = row_at(rows, row, buffer);
        for (int64_t c = 0; c < n; c++) {
            const int is_better =
                ((wants_max ? x[c] > best[c] : x[c] < best[c]) | (x[c] != x[c])) & (best[c] == best[c]);
            best[c] = vector_select(is_better, x[c], best[c]);
            place[c] = is_better ? (int32_t)row : place[c];
        }
    }
    for (int64_t c = 0; c < n; c++) to[c] = (struct state){{.f = (double)best[c]}, {.i = rows->first + place[c]}};
}
static void max_place_columns(const struct rows *rows, struct state *to) { place_columns(rows, to, true); }
static void min_place_columns(const struct rows *rows, struct state *to) { place_columns(rows, to, false); }

static bool is_narrow(const tl_kernel_args *args) { return dtype_compute(args->in[0].dtype) == TL_F32; }

bool cpu_argmax(const tl_kernel_args *args) {
    static const struct fold narrow = {max_place_f32, join_max_f64, finish_place, max_place_columns};
    static const struct fold real = {max_place_f64, join_max_f64, finish_place, NULL};
    static const struct fold whole = {max_place_i64, join_max_i64, finish_place, NULL};
    if (is_narrow(args)) return run_fold_as(args, &narrow, true);
    return run_fold(args, dtype_is_float(args->in[0].dtype) ? &real : &whole);
}

bool cpu_argmin(const tl_kernel_args *args) {
    static const struct fold narrow = {min_place_f32, join_min_f64, finish_place, min_place_columns};
    static const struct fold real = {min_place_f64, join_min_f64, finish_place, NULL};
    static const struct fold whole = {min_place_i64, join_min_i64, finish_place, NULL};
    if (is_narrow(args)) return run_fold_as(args, &narrow, true);
    return run_fold(args, dtype_is_float(args->in[0].dtype) ? &real : &whole);
}

/* ---- var: the mean, and the sum of squared distances from it (Chan's rule joins them) ------------------------- */

/* With m near the mean and d = x - m: mean = m + sum d / n, squares = sum d^2 - (sum d)^2 / n. For equal numbers the
 * remainder is 0, so that their deviation is 0 and not the rounding error of m, by which a gradient would divide. */
static inline void add_distances(const double *x, int n, double mean, double *rest, double *squares) {
    for (int k = 0; k < n; k++) {
        const double d = x[k] - mean;
        rest[k] += d;
        squares[k] += d * d;
    }
}

static struct state var_chunk(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first, (void)attr;
    const double *x = data;
    double squares[LANES] = {0}, rest[LANES] = {0};
    const double mean = n ? array_sum(x, n) / (double)n : NAN;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) add_distances(x + i, LANES, mean, rest, squares);
    add_distances(x + i, (int)(n - i), mean, rest, squares);
    const double left = lanes_total(rest) / (double)n, total = lanes_total(squares) - left * left * (double)n;
    return (struct state){{.f = isnan(left) ? mean : mean + left},
                          {.f = total < 0 ? 0 : total}}; /* an infinite mean, and NaN, stay */
}

JOIN(join_var) {
    (void)attr;
    const double distance = part.a.f - total->a.f, share = (double)n_part / (double)(n_total + n_part);
    total->a.f += distance * share;
    total->b.f += part.b.f + distance * distance * ((double)n_total * share);
}

static void finish_var(const struct task *task, int64_t output, struct state state) {
    const struct attr_var *attr = task->args->attr;
    const int64_t n = iterate_numel(task->x) / iterate_numel(&task->args->out[0]);
    const double var = state.b.f / fmax((double)n - attr->correction, 0);
    write_real(task, 0, output, attr->is_root ? sqrt(var) : var);
    write_real(task, 1, output, state.a.f);
}

bool cpu_var(const tl_kernel_args *args) {
    static const struct fold fold = {var_chunk, join_var, finish_var, NULL};
    return run_fold(args, &fold);
}

/* ---- norm: one sum, or the extreme magnitude ------------------------------------------------------------------ */

/* As array_sum adds them. */
static double sum_of_squares(const double *x, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += x[i + k] * x[i + k];
    for (int k = 0; i + k < n; k++) lane[k] += x[i + k] * x[i + k];
    return lanes_total(lane);
}

/* The same of floats: their squares are exact in f64. */
static struct state squares_chunk(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first, (void)attr;
    const float *x = data;
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; i + k < n; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    return (struct state){{.f = lanes_total(lane)}, {.f = 0}};
}
static void squares_columns(const struct rows *rows, struct state *to) {
    SCRATCH_ARRAY(column_lane, lane, LANES);
    float buffer[COLUMNS];
    columns_begin(lane, rows->n_columns);
    for (int64_t row = 0; row < rows->n; row++) {
        const float *x = row_at(rows, row, buffer);
        double *sum = lane[row % LANES];
        for (int64_t c = 0; c < rows->n_columns; c++) sum[c] += (double)x[c] * (double)x[c];
    }
    columns_total(lane, rows->n_columns);
    for (int64_t c = 0; c < rows->n_columns; c++) to[c] = (struct state){{.f = lane[0][c]}, {.f = 0}};
}

static struct state norm_chunk(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first;
    const double *x = data, p = ((const struct attr_vector_norm *)attr)->p;
    if (isinf(p)) {
        double best = n ? fabs(x[0]) : 0;
        for (int64_t i = 1; i < n; i++)
            if (is_better_f64(fabs(x[i]), best, p > 0)) best = fabs(x[i]);
        return (struct state){{.f = best}, {.f = 0}};
    }
    if (p == 2) return (struct state){{.f = sum_of_squares(x, n)}, {.f = 0}};
    SCRATCH_ARRAY(double, term, REDUCE_CHUNK);
    for (int64_t i = 0; i < n; i++) term[i] = p == 1 ? fabs(x[i]) : p == 0 ? x[i] != 0 : pow(fabs(x[i]), p);
    return (struct state){{.f = array_sum(term, n)}, {.f = 0}};
}

JOIN(join_norm) {
    (void)n_total, (void)n_part;
    const double p = ((const struct attr_vector_norm *)attr)->p;
    if (!isinf(p)) total->a.f += part.a.f;
    else if (is_better_f64(part.a.f, total->a.f, p > 0)) *total = part;
}

static void finish_norm(const struct task *task, int64_t output, struct state state) {
    const double p = ((const struct attr_vector_norm *)task->args->attr)->p, sum = state.a.f;
    const bool is_plain = isinf(p) || p == 0 || p == 1;
    write_real(task, 0, output, is_plain ? sum : p == 2 ? sqrt(sum) : pow(sum, 1 / p));
}

bool cpu_norm(const tl_kernel_args *args) {
    static const struct fold fold = {norm_chunk, join_norm, finish_norm, NULL};
    static const struct fold squares = {squares_chunk, join_norm, finish_norm, squares_columns};
    const bool is_plain = ((const struct attr_vector_norm *)args->attr)->p == 2 && is_narrow(args);
    return run_fold_as(args, is_plain ? &squares : &fold, is_plain);
}

/* ---- logsumexp: a finite shift, and the sum of e^(x - shift) -------------------------------------------------- */

static struct state logsumexp_chunk_f64(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first, (void)attr;
    const double *x = data, max = number_max_f64(x, n), shift = isfinite(max) ? max : 0;
    SCRATCH_ARRAY(double, term, REDUCE_CHUNK);
    for (int64_t i = 0; i < n; i++) term[i] = exp(x[i] - shift);
    return (struct state){{.f = shift}, {.f = array_sum(term, n)}};
}

/* to = exp(x - shift), in tiles; `is_falling`: for x up to shift. */
VECTOR_INLINE void exp_part(float *to, const float *x, float shift, int64_t n, bool is_falling) {
    for (int64_t i = 0; i < n; i += VECTOR_TILE) {
        const int length = (int)smaller(VECTOR_TILE, n - i);
        float tile[VECTOR_TILE] = {0};
        memcpy(tile, x + i, (size_t)length * sizeof *tile);
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] -= shift;
        for (int k = 0; k < VECTOR_TILE; k++)
            tile[k] = is_falling ? vector_exp_falling_f32(tile[k]) : vector_exp_f32(tile[k]);
        memcpy(to + i, tile, (size_t)length * sizeof *tile);
    }
}

/* For x of at most f32: exponentials in f32, which are good to its last place, and their sum in f64. */
static struct state logsumexp_chunk_f32(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first, (void)attr;
    enum { PART = 256 };
    const float *x = data, max = number_max_f32(x, n);
    double lane[LANES] = {0};
    float term[PART];
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t m = smaller(PART, n - at);
        if (isfinite(max)) exp_part(term, x + at, max, m, true);
        else exp_part(term, x + at, 0, m, false);
        int64_t i = 0;
        for (; i + LANES <= m; i += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += (double)term[i + k];
        for (int k = 0; i + k < m; k++) lane[k] += (double)term[i + k];
    }
    return (struct state){{.f = isfinite(max) ? (double)max : 0}, {.f = lanes_total(lane)}};
}

static void logsumexp_columns(const struct rows *rows, struct state *to) {
    const int64_t n = rows->n_columns;
    SCRATCH_ARRAY(column_lane, lane, LANES);
    float buffer[COLUMNS], shift[COLUMNS], term[COLUMNS];
    columns_begin(lane, n);
    for (int64_t c = 0; c < n; c++) shift[c] = -INFINITY;
    for (int64_t row = 0; row < rows->n; row++) {
        const float *x = row_at(rows, row, buffer);
        for (int64_t c = 0; c < n; c++) shift[c] = x[c] > shift[c] ? x[c] : shift[c];
    }
    for (int64_t c = 0; c < n; c++) shift[c] = isfinite(shift[c]) ? shift[c] : 0;
    for (int64_t row = 0; row < rows->n; row++) {
        const float *x = row_at(rows, row, buffer);
        for (int64_t c = 0; c < n; c++) term[c] = x[c] - shift[c];
        exp_part(term, term, 0, n, false);
        double *sum = lane[row % LANES];
        for (int64_t c = 0; c < n; c++) sum[c] += (double)term[c];
    }
    columns_total(lane, n);
    for (int64_t c = 0; c < n; c++) to[c] = (struct state){{.f = (double)shift[c]}, {.f = lane[0][c]}};
}

JOIN(join_logsumexp) {
    (void)n_total, (void)n_part, (void)attr;
    if (!isfinite(total->b.f) || !isfinite(part.b.f)) { /* infinite or NaN, whatever the shifts */
        total->b.f += part.b.f;
    } else if (total->b.f == 0) {
        *total = part;
    } else if (part.b.f != 0) {
        const double shift = fmax(total->a.f, part.a.f);
        total->b.f = total->b.f * exp(total->a.f - shift) + part.b.f * exp(part.a.f - shift);
        total->a.f = shift;
    }
}

static void finish_logsumexp(const struct task *task, int64_t output, struct state state) {
    write_real(task, 0, output, state.a.f + log(state.b.f));
}

bool cpu_logsumexp(const tl_kernel_args *args) {
    static const struct fold narrow = {logsumexp_chunk_f32, join_logsumexp, finish_logsumexp, logsumexp_columns};
    static const struct fold wide = {logsumexp_chunk_f64, join_logsumexp, finish_logsumexp, NULL};
    return is_narrow(args) ? run_fold_as(args, &narrow, true) : run_fold(args, &wide);
}

/* ---- Running sums and products: row by row, in blocks --------------------------------------------------------- */

struct scan {
    const tl_operand *x, *g, *out;
    struct attr_scan attr;
    int64_t n; /* elements of a row */
    bool is_product;
    double *carry; /* cumprod_grad: the product before each block */
};

/* The address of position `at` of the scan in a row, and the step to the next. */
static void *scan_at(const struct scan *scan, const tl_operand *x, int64_t row, int64_t at) {
    const int64_t place = scan->attr.is_reverse ? scan->n - 1 - at : at;
    return (char *)x->data + (row * scan->n + place) * iterate_element_bytes(x->dtype);
}
static int scan_step(const struct scan *scan) { return scan->attr.is_reverse ? -1 : 1; }

/* SCAN_ROWS rows side by side, since every step of a row waits for the one before. */
enum { SCAN_ROWS = 4, SCAN_PART = 256 };
VECTOR_INLINE void scan_part(double x[SCAN_ROWS][SCAN_PART], double *totals, int64_t n, bool is_product,
                             bool is_exclusive) {
    double total[SCAN_ROWS];
    memcpy(total, totals, sizeof total);
    for (int64_t i = 0; i < n; i++)
        for (int r = 0; r < SCAN_ROWS; r++) {
            const double before = total[r];
            total[r] = is_product ? total[r] * x[r][i] : total[r] + x[r][i];
            x[r][i] = is_exclusive ? before : total[r];
        }
    memcpy(totals, total, sizeof total);
}

/* The same for floats, in place: n elements of SCAN_ROWS rows, in the direction of the scan. */
VECTOR_INLINE void scan_floats(float *const *out, const float *const *x, double *totals, int64_t n, int step,
                               bool is_product, bool is_exclusive) {
    double total[SCAN_ROWS];
    memcpy(total, totals, sizeof total);
    for (int64_t i = 0; i < n; i++)
        for (int r = 0; r < SCAN_ROWS; r++) {
            const double before = total[r], here = (double)x[r][i * step];
            total[r] = is_product ? total[r] * here : total[r] + here;
            out[r][i * step] = (float)(is_exclusive ? before : total[r]);
        }
    memcpy(totals, total, sizeof total);
}

static void scan_float_rows(const struct scan *scan, int64_t row) {
    const bool is_exclusive = scan->attr.is_exclusive;
    double total[SCAN_ROWS];
    const float *x[SCAN_ROWS];
    float *out[SCAN_ROWS];
    for (int r = 0; r < SCAN_ROWS; r++) {
        total[r] = scan->is_product;
        x[r] = scan_at(scan, scan->x, row + r, 0);
        out[r] = scan_at(scan, scan->out, row + r, 0);
    }
    if (scan->is_product) scan_floats(out, x, total, scan->n, scan_step(scan), true, is_exclusive);
    else if (is_exclusive) scan_floats(out, x, total, scan->n, scan_step(scan), false, true);
    else scan_floats(out, x, total, scan->n, scan_step(scan), false, false);
}

/* n_rows rows, up to SCAN_ROWS, through f64. */
static void scan_wide_rows(const struct scan *scan, int64_t row, int n_rows) {
    const bool is_exclusive = scan->attr.is_exclusive;
    double x[SCAN_ROWS][SCAN_PART] = {0}, total[SCAN_ROWS];
    for (int r = 0; r < SCAN_ROWS; r++) total[r] = scan->is_product;
    for (int64_t at = 0; at < scan->n; at += SCAN_PART) {
        const int64_t n = smaller(SCAN_PART, scan->n - at);
        for (int r = 0; r < n_rows; r++)
            convert_to_f64(x[r], scan_at(scan, scan->x, row + r, at), scan->x->dtype, scan_step(scan), n);
        if (scan->is_product) scan_part(x, total, n, true, is_exclusive);
        else if (is_exclusive) scan_part(x, total, n, false, true);
        else scan_part(x, total, n, false, false);
        for (int r = 0; r < n_rows; r++)
            convert_from_f64(scan_at(scan, scan->out, row + r, at), scan->out->dtype, scan_step(scan), x[r], n);
    }
}

static void scan_rows_f64(void *context, int64_t first, int64_t last) {
    const struct scan *scan = context;
    const bool is_f32 = scan->x->dtype == TL_F32 && scan->out->dtype == TL_F32;
    for (int64_t row = first; row < last; row += SCAN_ROWS) {
        const int n_rows = (int)smaller(SCAN_ROWS, last - row);
        if (is_f32 && n_rows == SCAN_ROWS) scan_float_rows(scan, row);
        else scan_wide_rows(scan, row, n_rows);
    }
}

static void scan_rows_i64(void *context, int64_t first, int64_t last) {
    const struct scan *scan = context;
    int64_t x[SCAN_BLOCK];
    for (int64_t row = first; row < last; row++) {
        uint64_t total = scan->is_product;
        for (int64_t at = 0; at < scan->n; at += SCAN_BLOCK) {
            const int64_t n = smaller(SCAN_BLOCK, scan->n - at);
            convert_to_i64(x, scan_at(scan, scan->x, row, at), scan->x->dtype, scan_step(scan), n);
            for (int64_t i = 0; i < n; i++) {
                const uint64_t before = total;
                total = scan->is_product ? total * (uint64_t)x[i] : total + (uint64_t)x[i];
                x[i] = (int64_t)(scan->attr.is_exclusive ? before : total);
            }
            convert_from_i64(scan_at(scan, scan->out, row, at), scan->out->dtype, scan_step(scan), x, n);
        }
    }
}

static int64_t scan_begin(struct scan *scan, const tl_kernel_args *args) {
    scan->x = &args->in[0];
    scan->g = args->n_in > 1 ? &args->in[1] : NULL;
    scan->out = &args->out[0];
    scan->attr = *(const struct attr_scan *)args->attr;
    scan->n = scan->x->rank ? scan->x->shape[scan->x->rank - 1] : 1;
    return scan->n ? iterate_numel(scan->x) / scan->n : 0;
}

static bool run_scan(const tl_kernel_args *args, bool is_product) {
    struct scan scan = {.is_product = is_product};
    const int64_t rows = scan_begin(&scan, args);
    parallel_for(rows, parallel_grain(4 * scan.n), args->n_threads,
                 dtype_is_float(scan.out->dtype) ? scan_rows_f64 : scan_rows_i64, &scan);
    return true;
}
bool cpu_cumsum(const tl_kernel_args *args) { return run_scan(args, false); }
bool cpu_cumprod(const tl_kernel_args *args) { return run_scan(args, true); }

/* The product of x before each block. */
static void find_carries(const struct scan *scan, int64_t row, double *carry) {
    double x[SCAN_BLOCK], total = 1;
    *carry++ = total;
    for (int64_t at = 0; at + SCAN_BLOCK < scan->n; at += SCAN_BLOCK) {
        convert_to_f64(x, scan_at(scan, scan->x, row, at), scan->x->dtype, scan_step(scan), SCAN_BLOCK);
        for (int64_t i = 0; i < SCAN_BLOCK; i++) total *= x[i];
        *carry++ = total;
    }
}

/* The elements after the current one, in the direction of the scan. */
struct after {
    double x, g, r;
};

/* One block, from its last place to its first; `product` is the product of all elements before the block. The
 * products run in the other direction in the same loop, since each step of either waits for the one before. */
static void grad_block(const struct scan *scan, int64_t row, int64_t at, double product, struct after *after) {
    SCRATCH_ARRAY(double, x, SCAN_BLOCK);
    SCRATCH_ARRAY(double, g, SCAN_BLOCK);
    SCRATCH_ARRAY(double, before, SCAN_BLOCK);
    SCRATCH_ARRAY(double, rest, SCAN_BLOCK);
    struct after last = *after;
    const int64_t n = smaller(SCAN_BLOCK, scan->n - at);
    convert_to_f64(x, scan_at(scan, scan->x, row, at), scan->x->dtype, scan_step(scan), n);
    if (!scan->attr.is_total) {
        convert_to_f64(g, scan_at(scan, scan->g, row, at), scan->g->dtype, scan_step(scan), n);
    } else {
        memset(g, 0, (size_t)n * sizeof *g);
        if (at + n == scan->n) {
            const char *total = (const char *)scan->g->data + row * iterate_element_bytes(scan->g->dtype);
            convert_to_f64(&g[n - 1], total, scan->g->dtype, 1, 1);
        }
    }
    const bool is_exclusive = scan->attr.is_exclusive;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = n - 1 - k;
        before[k] = product;
        product *= x[k];
        const double r = (is_exclusive ? last.g : g[i]) + last.x * last.r;
        last = (struct after){x[i], g[i], r};
        rest[i] = r;
    }
    *after = last;
    for (int64_t i = 0; i < n; i++) before[i] *= rest[i];
    convert_from_f64(scan_at(scan, scan->out, row, at), scan->out->dtype, scan_step(scan), before, n);
}

static void grad_rows(void *context, int64_t first, int64_t last) {
    const struct scan *scan = context;
    const int64_t n_blocks = (scan->n + SCAN_BLOCK - 1) / SCAN_BLOCK;
    for (int64_t row = first; row < last; row++) {
        double *carry = scan->carry + row * n_blocks;
        struct after after = {0, 0, 0};
        find_carries(scan, row, carry);
        for (int64_t block = n_blocks - 1; block >= 0; block--)
            grad_block(scan, row, block * SCAN_BLOCK, carry[block], &after);
    }
}

bool cpu_cumprod_grad(const tl_kernel_args *args) {
    struct scan scan = {.carry = args->workspace};
    const int64_t rows = scan_begin(&scan, args);
    parallel_for(rows, parallel_grain(8 * scan.n), args->n_threads, grad_rows, &scan);
    return true;
}
