/* reduce.c: sums, products, maxima and minima over axes, the gradient of the latter, and softmax.
 *
 * The order of a sum. The reduced elements of one output, in row-major order, are cut into chunks of REDUCE_CHUNK.
 * Inside a chunk, element j goes to lane j % LANES; each lane adds in order, then the lanes are added in a fixed
 * tree. Chunk sums are added in order, in f64 (i64 for integers), and rounded once to the output. That order depends
 * on nothing but the shape, so the bits are the same for every number of threads, for every layout of x, and for
 * both ways of walking below.
 *
 *   rows     the reduced axes are contiguous (mean over the last axis): one output at a time; the lanes are those of
 *            vector registers
 *   columns  the kept axes are contiguous (a bias gradient, (N,C) -> (C)): many outputs at a time, each with its own
 *            LANES; the vector runs across outputs
 *
 * Maxima work in the same way; NaN wins. So do products, which are computed in f64 for every float dtype: a product
 * of f32 leaves the range of f32 on the way more often than at the end.
 */
#include "base/scratch.h"
#include "device/cpu/ops/copy.h"
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

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

enum {
    LANES = 8,
    BLOCK = 512,          /* gathered elements; a multiple of LANES */
    COLUMN_BYTES = 12288, /* of outputs at a time: whole rows read fastest (pages, prefetch); their lanes are 96 KiB */
    GROUP = 4,            /* rows of one lane that are added together (column_groups) */
    MIN_COLUMNS = 8,      /* fewer kept elements in a row than this are not worth a vector */
};

/* For an extreme: bytes of a vector, and sets of lanes side by side. */
#if defined(__AVX2__)
enum { VECTOR_BYTES = 32, STREAMS = 8 };
#else
enum { VECTOR_BYTES = 16, STREAMS = 4 };
#endif

struct task {
    struct iterate kept, reduced; /* walks over x, one operand each; both start at x */
    const char *x;
    tl_dtype x_dtype, out_dtype;
    char *out;
    int64_t x_bytes, out_bytes; /* per element */
    int64_t x_stride; /* rows: along the innermost reduced axis; columns: the innermost kept one; in elements */
    bool is_array;    /* x is an array of the compute type along that axis */
    int64_t n_chunks;
    int64_t n_blocks, columns; /* columns: blocks per row of outputs, outputs per block */
    void *partial;             /* (output, chunk) sums when chunks are spread over threads; NULL otherwise */
    bool is_mean;              /* results are divided by the number of reduced elements */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t chunk_end(const struct task *task, int64_t chunk) {
    return smaller((chunk + 1) * REDUCE_CHUNK, task->reduced.n);
}

/* First output and number of outputs of a block of columns, and where their elements begin. */
static int64_t find_block(const struct task *task, int64_t block, int64_t *output, const char **base) {
    const int64_t kept_size = task->kept.size[task->kept.rank - 1];
    const int64_t column = block % task->n_blocks * task->columns;
    *output = block / task->n_blocks * kept_size + column;
    struct iterate_run run;
    iterate_seek(&task->kept, &run, *output, *output + 1);
    iterate_next(&task->kept, &run, 1);
    *base = run.data[0];
    return smaller(task->columns, kept_size - column);
}

/* NaN beats everything; the comparison with a NaN already held is false. */
#define ADD(a, b) ((a) + (b))
#define ADD_WRAPPING(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define MULTIPLY(a, b) ((a) * (b))
#define MULTIPLY_WRAPPING(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define SMALLER(a, b) ((((b) < (a)) | ((b) != (b))) ? (b) : (a))
#define LARGER(a, b) ((((b) > (a)) | ((b) != (b))) ? (b) : (a))

/* When b is chosen instead of a, for whole vectors. */
#define IS_SMALLER(a, b) (((b) < (a)) | ((b) != (b)))
#define IS_LARGER(a, b) (((b) > (a)) | ((b) != (b)))
#define IS_ZERO_OR_NAN(a) (((a) == 0) | ((a) != (a)))
#define IS_SMALLER_INTEGER(a, b) ((b) < (a))
#define IS_LARGER_INTEGER(a, b) ((b) > (a))

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

#define T float
#define IS_DOUBTFUL IS_ZERO_OR_NAN
#define MASK int32_t
#define WIDE double
#define TYPE(name) name##_f32
#define WIDE_TYPE(name) name##_f64
#define NAME(name) name##_sum_f32
#define COMBINE ADD
#define IDENTITY 0.0f
#define NARROW uint16_t
#define NARROW_DTYPE TL_BF16
#define WIDEN(code) f32_of_bits((uint32_t)(code) << 16)
#include "device/cpu/ops/reduce_template.h"
#undef NARROW
#undef NARROW_DTYPE
#undef WIDEN
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_max_f32
#if defined(__aarch64__)
#define QUICK vmaxq_f32
#endif
#define COMBINE LARGER
#define CHOOSE IS_LARGER
#define IDENTITY (-INFINITY)
#include "device/cpu/ops/reduce_template.h"
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_min_f32
#if defined(__aarch64__)
#define QUICK vminq_f32
#endif
#define COMBINE SMALLER
#define CHOOSE IS_SMALLER
#define IDENTITY INFINITY
#include "device/cpu/ops/reduce_template.h"
#undef T
#undef MASK
#undef TYPE
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY

#define T double
#define MASK int64_t
#define TYPE(name) name##_f64
#define NAME(name) name##_sum_f64
#define COMBINE ADD
#define IDENTITY 0.0
#include "device/cpu/ops/reduce_template.h"
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_max_f64
#if defined(__aarch64__)
#define QUICK vmaxq_f64
#endif
#define COMBINE LARGER
#define CHOOSE IS_LARGER
#define IDENTITY (-INFINITY)
#include "device/cpu/ops/reduce_template.h"
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_min_f64
#if defined(__aarch64__)
#define QUICK vminq_f64
#endif
#define COMBINE SMALLER
#define CHOOSE IS_SMALLER
#define IDENTITY INFINITY
#include "device/cpu/ops/reduce_template.h"
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_prod_f64
#define COMBINE MULTIPLY
#define IDENTITY 1.0
#define NARROW float
#define NARROW_DTYPE TL_F32
#define WIDEN(x) ((double)(x))
#include "device/cpu/ops/reduce_template.h"
#undef NARROW
#undef NARROW_DTYPE
#undef WIDEN
#undef T
#undef MASK
#undef WIDE
#undef TYPE
#undef WIDE_TYPE
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY

#undef IS_DOUBTFUL
#define IS_DOUBTFUL(a) ((a) ^ (a)) /* equal integers are the same */
#define T int64_t
#define MASK int64_t
#define WIDE int64_t
#define TYPE(name) name##_i64
#define WIDE_TYPE(name) name##_i64
#define NAME(name) name##_sum_i64
#define COMBINE ADD_WRAPPING
#define IDENTITY 0
#include "device/cpu/ops/reduce_template.h"
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_max_i64
#define COMBINE LARGER
#define CHOOSE IS_LARGER_INTEGER
#define IDENTITY INT64_MIN
#include "device/cpu/ops/reduce_template.h"
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_min_i64
#define COMBINE SMALLER
#define CHOOSE IS_SMALLER_INTEGER
#define IDENTITY INT64_MAX
#include "device/cpu/ops/reduce_template.h"
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY
#define NAME(name) name##_prod_i64
#define COMBINE MULTIPLY_WRAPPING
#define IDENTITY 1
#include "device/cpu/ops/reduce_template.h"
#undef T
#undef MASK
#undef WIDE
#undef TYPE
#undef WIDE_TYPE
#undef NAME
#undef COMBINE
#undef CHOOSE
#undef QUICK
#undef IDENTITY

/* ---- The driver ------------------------------------------------------------------------------------------- */

/* A reduction in one compute type: a pass over outputs, one over (output, chunk) items, one that joins those. */
struct reduction {
    parallel_body rows, row_chunks, columns, column_chunks, join;
    int64_t compute_bytes;
};
#define REDUCTION(name, T) \
    { rows_##name, row_chunks_##name, columns_##name, column_chunks_##name, join_##name, sizeof(T) }
static const struct reduction sum_f32 = REDUCTION(sum_f32, float);
static const struct reduction sum_f64 = REDUCTION(sum_f64, double);
static const struct reduction sum_i64 = REDUCTION(sum_i64, int64_t);
static const struct reduction max_f32 = REDUCTION(max_f32, float);
static const struct reduction max_f64 = REDUCTION(max_f64, double);
static const struct reduction max_i64 = REDUCTION(max_i64, int64_t);
static const struct reduction min_f32 = REDUCTION(min_f32, float);
static const struct reduction min_f64 = REDUCTION(min_f64, double);
static const struct reduction min_i64 = REDUCTION(min_i64, int64_t);
static const struct reduction prod_f64 = REDUCTION(prod_f64, double);
static const struct reduction prod_i64 = REDUCTION(prod_i64, int64_t);
#undef REDUCTION

void reduce_walk(struct iterate *walk, const tl_operand *x, uint32_t axes) {
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK];
    tl_operand part = {.data = x->data, .dtype = x->dtype, .shape = shape, .stride = stride};
    for (int axis = 0; axis < x->rank; axis++) {
        if (axes >> axis & 1) {
            shape[part.rank] = x->shape[axis];
            stride[part.rank++] = x->stride[axis];
        }
    }
    const tl_operand *operand = &part;
    iterate_begin(walk, part.rank, shape, &operand, 1, ITERATE_ROW_MAJOR);
}

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Outputs per block: all of a row if they fit, but fewer if threads would otherwise be idle. The width does not
 * affect results. */
static int64_t block_columns(const struct task *task, int64_t limit, int n_threads) {
    const int64_t kept_size = task->kept.size[task->kept.rank - 1];
    const int64_t n_items = task->kept.n / kept_size * (task->partial ? task->n_chunks : 1);
    const int64_t columns = smaller(kept_size, limit);
    if (n_items >= n_threads || columns * task->reduced.n < 2 * parallel_grain(1)) return columns;
    const int64_t share = (kept_size + n_threads - 1) / n_threads;
    return smaller(columns, (share + 63) / 64 * 64);
}

static void reduce(const tl_kernel_args *args, const struct reduction *reduction, tl_dtype compute) {
    const struct attr_reduce *attr = args->attr;
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    struct task task = {.x = x->data, .x_dtype = x->dtype, .out_dtype = out->dtype, .out = out->data};
    task.x_bytes = iterate_element_bytes(x->dtype);
    task.out_bytes = iterate_element_bytes(out->dtype);
    reduce_walk(&task.kept, x, ~attr->axes);
    reduce_walk(&task.reduced, x, attr->axes);
    task.is_mean = attr->is_mean;
    if (task.kept.n == 0) return;
    task.n_chunks = (task.reduced.n + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
    const size_t partial_bytes = (size_t)task.kept.n * (size_t)task.n_chunks * 8;
    if (task.n_chunks > 1 && args->workspace && args->workspace_bytes >= partial_bytes) task.partial = args->workspace;

    const int64_t kept_size = task.kept.size[task.kept.rank - 1];
    const bool by_columns = kept_size >= MIN_COLUMNS && task.reduced.n > 1 &&
                            magnitude(task.kept.step[0]) < magnitude(task.reduced.step[0]);
    const struct iterate *inner = by_columns ? &task.kept : &task.reduced;
    task.x_stride = inner->step[0] / task.x_bytes;
    task.is_array = x->dtype == compute && task.x_stride == 1;
    task.columns = by_columns ? block_columns(&task, COLUMN_BYTES / reduction->compute_bytes, args->n_threads) : 1;
    task.n_blocks = (kept_size + task.columns - 1) / task.columns;

    /* One item is an output (or a block of them), or one chunk of it. */
    const int64_t n_items = by_columns ? task.kept.n / kept_size * task.n_blocks : task.kept.n;
    if (!task.partial) {
        const int64_t grain = parallel_grain(task.columns * task.reduced.n);
        parallel_for(n_items, grain, args->n_threads, by_columns ? reduction->columns : reduction->rows, &task);
        return;
    }
    const int64_t grain = parallel_grain(task.columns * REDUCE_CHUNK);
    parallel_for(n_items * task.n_chunks, grain, args->n_threads,
                 by_columns ? reduction->column_chunks : reduction->row_chunks, &task);
    parallel_for(task.kept.n, parallel_grain(task.n_chunks), args->n_threads, reduction->join, &task);
}

bool cpu_sum(const tl_kernel_args *args) {
    if (iterate_numel(&args->in[0]) == 0) { /* no address to walk from */
        copy_fill(&args->out[0], ((const struct attr_reduce *)args->attr)->is_mean ? NAN : 0, args->n_threads);
        return true;
    }
    const tl_dtype compute = dtype_compute(args->out[0].dtype);
    reduce(args, compute == TL_F32 ? &sum_f32 : compute == TL_F64 ? &sum_f64 : &sum_i64, compute);
    return true;
}

bool cpu_max(const tl_kernel_args *args) {
    const tl_dtype compute = dtype_compute(args->out[0].dtype);
    reduce(args, compute == TL_F32 ? &max_f32 : compute == TL_F64 ? &max_f64 : &max_i64, compute);
    return true;
}

bool cpu_min(const tl_kernel_args *args) {
    const tl_dtype compute = dtype_compute(args->out[0].dtype);
    reduce(args, compute == TL_F32 ? &min_f32 : compute == TL_F64 ? &min_f64 : &min_i64, compute);
    return true;
}

bool cpu_prod(const tl_kernel_args *args) {
    if (iterate_numel(&args->in[0]) == 0) {
        copy_fill(&args->out[0], 1, args->n_threads);
        return true;
    }
    const bool is_float = dtype_is_float(args->out[0].dtype);
    reduce(args, is_float ? &prod_f64 : &prod_i64, is_float ? TL_F64 : TL_I64);
    return true;
}

/* ---- The gradient of max and min ------------------------------------------------------------------------------
 *
 * dx first says which elements are ties, as 0 and 1; their sums are those of cpu_sum; then each element gets its share.
 */

struct share_task {
    struct iterate walk; /* dx, x, y, or dx, number of ties, g */
    tl_dtype dtype, sum_dtype;
};

#define T float
#define TYPE(name) name##_f32
#include "device/cpu/ops/reduce_extreme_template.h"
#undef T
#undef TYPE

#define T double
#define TYPE(name) name##_f64
#include "device/cpu/ops/reduce_extreme_template.h"
#undef T
#undef TYPE

bool cpu_extreme_grad(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *y = &args->in[1], *g = &args->in[2], *dx = &args->out[0];
    const bool is_f64 = x->dtype == TL_F64;
    const size_t sums_bytes = (size_t)iterate_numel(y) * sizeof(double);
    struct share_task task = {.dtype = x->dtype, .sum_dtype = is_f64 ? TL_F64 : TL_F32};
    const int64_t n = iterate_numel(x), grain = parallel_stream_grain(n, args->n_threads);
    if (n == 0) return true;

    iterate_begin(&task.walk, dx->rank, dx->shape, (const tl_operand *[]){dx, x, y}, 3, ITERATE_ANY_ORDER);
    parallel_for(n, grain, args->n_threads, is_f64 ? mark_ties_f64 : mark_ties_f32, &task);

    tl_operand sums = *y;
    sums.data = args->workspace;
    sums.dtype = task.sum_dtype;
    tl_kernel_args counting = *args;
    counting.in = dx;
    counting.out = &sums;
    counting.workspace = (char *)args->workspace + sums_bytes;
    counting.workspace_bytes = args->workspace_bytes - sums_bytes;
    reduce(&counting, is_f64 ? &sum_f64 : &sum_f32, task.sum_dtype);

    iterate_begin(&task.walk, dx->rank, dx->shape, (const tl_operand *[]){dx, &sums, g}, 3, ITERATE_ANY_ORDER);
    parallel_for(n, grain, args->n_threads, is_f64 ? share_gradient_f64 : share_gradient_f32, &task);
    return true;
}

/* ---- softmax ------------------------------------------------------------------------------------------------
 *
 * Row by row, in blocks: the maximum, then exp(x - max) and its sum, then the division. The sum of a block is taken
 * in LANES as above; blocks are added in f64. When the output is of the compute type, or the row is short, the
 * exponentials are kept between the passes; otherwise they are computed twice, since rounding them to 16 bits would
 * lose digits.
 */
enum { KEPT_ROW = 2048 };

struct softmax_task {
    const tl_operand *x, *g, *out; /* softmax: x; gradient: x is y */
    int64_t n_columns;
};

#define T float
#define TYPE(name) name##_f32
#define COMPUTE TL_F32
#include "device/cpu/ops/reduce_softmax_template.h"
#undef T
#undef TYPE
#undef COMPUTE

#define T double
#define TYPE(name) name##_f64
#define COMPUTE TL_F64
#include "device/cpu/ops/reduce_softmax_template.h"

static bool run_softmax(const tl_kernel_args *args, parallel_body rows_f32, parallel_body rows_f64) {
    const tl_operand *out = &args->out[0];
    struct softmax_task task = {&args->in[0], args->n_in > 1 ? &args->in[1] : NULL, out, 1};
    task.n_columns = out->shape[1];
    const int64_t n = iterate_numel(out);
    const bool is_f64 = dtype_compute(out->dtype) == TL_F64;
    parallel_for(n / task.n_columns, parallel_grain(4 * task.n_columns), args->n_threads, is_f64 ? rows_f64 : rows_f32,
                 &task);
    return true;
}

static bool softmax(const tl_kernel_args *args) { return run_softmax(args, softmax_rows_f32, softmax_rows_f64); }
static bool softmax_grad(const tl_kernel_args *args) {
    return run_softmax(args, softmax_grad_rows_f32, softmax_grad_rows_f64);
}

bool reduce_along(const tl_kernel_args *args, bool (*rows)(const tl_kernel_args *args)) {
    enum { MOST_INPUTS = 2 };
    const int axis = ((const struct attr_softmax *)args->attr)->axis;
    const tl_operand *x = &args->in[0];
    const int64_t n = x->shape[axis], numel = iterate_numel(x);
    if (numel == 0) return true;
    int64_t inner = 1;
    for (int i = axis + 1; i < x->rank; i++) inner *= x->shape[i];

    /* lines as rows, and where these are in an operand: (outer, inner, n) */
    const int64_t shape[2] = {numel / n, n}, stride[2] = {n, 1};
    const int64_t place_shape[3] = {numel / n / inner, inner, n}, place_stride[3] = {n * inner, 1, inner};
    tl_operand in[MOST_INPUTS], out = args->out[0];
    char *room = args->workspace;
    for (int i = 0; i < args->n_in; i++) {
        tl_operand place = args->in[i];
        place.rank = 3, place.shape = place_shape, place.stride = place_stride;
        in[i] = args->in[i];
        in[i].rank = 2, in[i].shape = shape, in[i].stride = stride;
        if (inner == 1) continue;
        in[i].data = room;
        room += numel * iterate_element_bytes(x->dtype);
        tl_operand copied = place;
        copied.data = in[i].data;
        copied.stride = (const int64_t[]){inner * n, n, 1};
        copy_operand(&copied, &place, args->n_threads);
    }
    out.rank = 2, out.shape = shape, out.stride = stride;
    if (inner > 1) out.data = in[0].data;
    tl_kernel_args lines = *args;
    lines.in = in;
    lines.out = &out;
    if (!rows(&lines) || inner == 1) return true;
    tl_operand place = args->out[0], copied = out;
    place.rank = copied.rank = 3;
    place.shape = copied.shape = place_shape;
    place.stride = place_stride;
    copied.stride = (const int64_t[]){inner * n, n, 1};
    copy_operand(&place, &copied, args->n_threads);
    return true;
}

bool cpu_softmax(const tl_kernel_args *args) { return reduce_along(args, softmax); }
bool cpu_softmax_grad(const tl_kernel_args *args) { return reduce_along(args, softmax_grad); }
