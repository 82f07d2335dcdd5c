/* fold.c: reductions whose partial result is more than one number, and running sums and products.
 *
 * The reduced elements of one output, in row-major order, are cut into chunks of REDUCE_CHUNK. A chunk is gathered into an
 * array of f64 (i64 for integers) and made into a *state* of two numbers; the states of an output are joined in order,
 * and the last one is finished into the result. Chunks depend on the shape alone, so the bits are the same for every number
 * of threads and every layout of x. Inside a chunk, sums run in LANES, as in reduce.c.
 */
#include "device/cpu/iterate.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/reduce.h"
#include "device/cpu/vector_math.h"
#include "ops/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

union number {
    double f;
    int64_t i;
};
struct state {
    union number a, b;
};
_Static_assert(sizeof(struct state) == FOLD_STATE_BYTES, "attr.h says how large a state is");

struct task;
/* How one reduction works. x is an array of n doubles or int64s, whose first is element `first` of its output's. */
struct fold {
    struct state (*chunk)(const void *x, int64_t n, int64_t first, const void *attr);
    /* total, over n_total elements, and part, over n_part that follow. */
    void (*join)(struct state *total, int64_t n_total, struct state part, int64_t n_part, const void *attr);
    void (*finish)(const struct task *task, int64_t output, struct state state);
};

struct task {
    const struct fold *fold;
    const tl_kernel_args *args;
    struct iterate kept, reduced; /* walks over x; both start at x */
    const tl_operand *x;
    int64_t x_stride, n_chunks;
    bool is_float;
    struct state *partial; /* (output, chunk) */
};

/* ---- Walking -------------------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t chunk_length(const struct task *task, int64_t chunk) {
    return smaller(REDUCE_CHUNK, task->reduced.n - chunk * REDUCE_CHUNK);
}

/* The chunk of the output whose elements begin at `base`. */
static struct state fold_chunk(const struct task *task, const char *base, int64_t chunk) {
    union number buffer[REDUCE_CHUNK];
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
    for (int64_t output = first; output < last; output++) {
        const char *base = output_base(task, output);
        struct state total = fold_chunk(task, base, 0);
        for (int64_t chunk = 1; chunk < task->n_chunks; chunk++)
            task->fold->join(&total, chunk * REDUCE_CHUNK, fold_chunk(task, base, chunk), chunk_length(task, chunk),
                             task->args->attr);
        task->fold->finish(task, output, total);
    }
}

/* Items are output * n_chunks + chunk. */
static void fold_chunks(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    for (int64_t item = first; item < last; item++)
        task->partial[item] = fold_chunk(task, output_base(task, item / task->n_chunks), item % task->n_chunks);
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

/* Every attribute begins with the set of axes. */
static bool run_fold(const tl_kernel_args *args, const struct fold *fold) {
    const struct attr_reduce *over = args->attr;
    const tl_operand *x = &args->in[0];
    struct task task = {.fold = fold, .args = args, .x = x, .is_float = dtype_is_float(x->dtype)};
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
    if (task.n_chunks == 1) {
        parallel_for(n_outputs, parallel_grain(2 * task.reduced.n), args->n_threads, fold_outputs, &task);
        return true;
    }
    task.partial = args->workspace;
    parallel_for(n_outputs * task.n_chunks, parallel_grain(2 * REDUCE_CHUNK), args->n_threads, fold_chunks, &task);
    parallel_for(n_outputs, parallel_grain(task.n_chunks), args->n_threads, join_chunks, &task);
    return true;
}

static void write_real(const struct task *task, int out, int64_t output, double value) {
    const tl_operand *to = &task->args->out[out];
    convert_from_f64((char *)to->data + output * iterate_element_bytes(to->dtype), to->dtype, 1, &value, 1);
}

static double lanes_total(double lane[LANES]) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
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

/* The value first, in lanes; then where it is. */
VECTOR_INLINE struct state extreme_place(const double *x, int64_t n, int64_t first, bool wants_max) {
    double lane[LANES], best = x[0];
    int nans[LANES] = {0}, has_nan = 0;
    int64_t i = 0, place = 0;
    for (int k = 0; k < LANES; k++) lane[k] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double y = x[i + k];
            lane[k] = (wants_max ? y > lane[k] : y < lane[k]) ? y : lane[k];
            nans[k] |= y != y;
        }
    for (; i < n; i++) {
        best = (wants_max ? x[i] > best : x[i] < best) ? x[i] : best;
        has_nan |= x[i] != x[i];
    }
    for (int k = 0; k < LANES; k++) {
        best = (wants_max ? lane[k] > best : lane[k] < best) ? lane[k] : best;
        has_nan |= nans[k];
    }
    while (has_nan ? x[place] == x[place] : x[place] != best) place++;
    return (struct state){{.f = x[place]}, {.i = first + place}};
}
static struct state max_place_f64(const void *x, int64_t n, int64_t first, const void *attr) {
    (void)attr;
    return extreme_place(x, n, first, true);
}
static struct state min_place_f64(const void *x, int64_t n, int64_t first, const void *attr) {
    (void)attr;
    return extreme_place(x, n, first, false);
}
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

bool cpu_argmax(const tl_kernel_args *args) {
    static const struct fold real = {max_place_f64, join_max_f64, finish_place};
    static const struct fold whole = {max_place_i64, join_max_i64, finish_place};
    return run_fold(args, dtype_is_float(args->in[0].dtype) ? &real : &whole);
}

bool cpu_argmin(const tl_kernel_args *args) {
    static const struct fold real = {min_place_f64, join_min_f64, finish_place};
    static const struct fold whole = {min_place_i64, join_min_i64, finish_place};
    return run_fold(args, dtype_is_float(args->in[0].dtype) ? &real : &whole);
}

/* ---- var: the mean, and the sum of squared distances from it (Chan's rule joins them) ------------------------- */

static struct state var_chunk(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first, (void)attr;
    const double *x = data;
    double lane[LANES] = {0};
    const double mean = n ? array_sum(x, n) / (double)n : NAN;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (x[i + k] - mean) * (x[i + k] - mean);
    for (int k = 0; i + k < n; k++) lane[k] += (x[i + k] - mean) * (x[i + k] - mean);
    return (struct state){{.f = mean}, {.f = lanes_total(lane)}};
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
    static const struct fold fold = {var_chunk, join_var, finish_var};
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

static struct state norm_chunk(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first;
    const double *x = data, p = ((const struct attr_vector_norm *)attr)->p;
    double term[REDUCE_CHUNK];
    if (isinf(p)) {
        double best = n ? fabs(x[0]) : 0;
        for (int64_t i = 1; i < n; i++)
            if (is_better_f64(fabs(x[i]), best, p > 0)) best = fabs(x[i]);
        return (struct state){{.f = best}, {.f = 0}};
    }
    if (p == 2) return (struct state){{.f = sum_of_squares(x, n)}, {.f = 0}};
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
    static const struct fold fold = {norm_chunk, join_norm, finish_norm};
    return run_fold(args, &fold);
}

/* ---- logsumexp: a finite shift, and the sum of e^(x - shift) -------------------------------------------------- */

static double finite_max(const double *x, int64_t n) {
    double lane[LANES], max = -INFINITY;
    int64_t i = 0;
    for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int k = 0; k < LANES; k++) max = lane[k] > max ? lane[k] : max;
    return isfinite(max) ? max : 0;
}

static struct state logsumexp_chunk_f64(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first, (void)attr;
    const double *x = data, shift = finite_max(x, n);
    double term[REDUCE_CHUNK];
    for (int64_t i = 0; i < n; i++) term[i] = exp(x[i] - shift);
    return (struct state){{.f = shift}, {.f = array_sum(term, n)}};
}

/* For x of at most f32: exponentials in f32, which are good to its last place, and their sum in f64. */
static struct state logsumexp_chunk_f32(const void *data, int64_t n, int64_t first, const void *attr) {
    (void)first, (void)attr;
    const double *x = data, shift = finite_max(x, n);
    double term[REDUCE_CHUNK];
    float narrow[REDUCE_CHUNK];
    for (int64_t i = 0; i < n; i++) narrow[i] = (float)(x[i] - shift);
    for (int64_t i = 0; i < n; i++) narrow[i] = vector_exp_f32(narrow[i]);
    for (int64_t i = 0; i < n; i++) term[i] = (double)narrow[i];
    return (struct state){{.f = shift}, {.f = array_sum(term, n)}};
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
    static const struct fold narrow = {logsumexp_chunk_f32, join_logsumexp, finish_logsumexp};
    static const struct fold wide = {logsumexp_chunk_f64, join_logsumexp, finish_logsumexp};
    return run_fold(args, dtype_compute(args->in[0].dtype) == TL_F64 ? &wide : &narrow);
}

/* ---- Running sums and products: row by row, in blocks --------------------------------------------------------- */

struct scan {
    const tl_operand *x, *g, *out;
    struct attr_scan attr;
    int64_t n; /* elements of a row */
    bool is_product;
    double *carry; /* cumprod_grad: the product before each block */
};

/* Where position `at` of the scan is in a row, and the direction of the next. */
static void *scan_at(const struct scan *scan, const tl_operand *x, int64_t row, int64_t at) {
    const int64_t place = scan->attr.is_reverse ? scan->n - 1 - at : at;
    return (char *)x->data + (row * scan->n + place) * iterate_element_bytes(x->dtype);
}
static int scan_step(const struct scan *scan) { return scan->attr.is_reverse ? -1 : 1; }

static void scan_rows_f64(void *context, int64_t first, int64_t last) {
    const struct scan *scan = context;
    double x[SCAN_BLOCK];
    for (int64_t row = first; row < last; row++) {
        double total = scan->is_product;
        for (int64_t at = 0; at < scan->n; at += SCAN_BLOCK) {
            const int64_t n = smaller(SCAN_BLOCK, scan->n - at);
            convert_to_f64(x, scan_at(scan, scan->x, row, at), scan->x->dtype, scan_step(scan), n);
            for (int64_t i = 0; i < n; i++) {
                const double before = total;
                total = scan->is_product ? total * x[i] : total + x[i];
                x[i] = scan->attr.is_exclusive ? before : total;
            }
            convert_from_f64(scan_at(scan, scan->out, row, at), scan->out->dtype, scan_step(scan), x, n);
        }
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
    for (int64_t at = 0; at < scan->n; at += SCAN_BLOCK) {
        const int64_t n = smaller(SCAN_BLOCK, scan->n - at);
        convert_to_f64(x, scan_at(scan, scan->x, row, at), scan->x->dtype, scan_step(scan), n);
        carry[at / SCAN_BLOCK] = total;
        for (int64_t i = 0; i < n; i++) total *= x[i];
    }
}

/* What comes after the place that is looked at, in the direction of the scan. */
struct after {
    double x, g, r;
};

/* One block, from its last place to its first; `product` is that of what is before the block. */
static void grad_block(const struct scan *scan, int64_t row, int64_t at, double product, struct after *after) {
    double x[SCAN_BLOCK], g[SCAN_BLOCK], before[SCAN_BLOCK];
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
    for (int64_t i = 0; i < n; i++) {
        before[i] = product;
        product *= x[i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        const double r = (scan->attr.is_exclusive ? after->g : g[i]) + after->x * after->r;
        *after = (struct after){x[i], g[i], r};
        before[i] *= r;
    }
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
