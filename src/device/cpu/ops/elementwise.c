/* elementwise.c: one result element from one element of each input.
 *
 * All ops share one driver. Positions are cut into blocks that fit in the L1 cache. For each block every operand is
 * converted to the compute type (f32, f64 or i64), a plain loop over arrays computes, and the result is converted to
 * the output's dtype. An operand that already is a gapless array of the compute type is used in place. So each op is
 * one loop per compute type, and dtypes, strides and broadcasting are in one place. The loops follow from the
 * formulas in spec/elementwise_list.h.
 *
 * Where rows are short (a narrow slice, a small innermost axis of a permuted view), several rows are gathered into one
 * block first: the loops stay long.
 *
 * In place: an input may be the output's own memory, element for element. Each element is read before it is written;
 * loops carry VECTOR_LOOP since nothing else overlaps.
 */
#include "base/scratch.h"
#include "device/cpu/ops/elementwise.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "spec/integer_math.h"
#include "tensor/convert.h"
#include "tensor/convert_round.h"
#include "tensor/dtype.h"

#include <stdatomic.h>
#include <stdio.h>

enum {
    MAX_INPUTS = ELEMENTWISE_INPUTS,
    BLOCK = 512,        /* elements; 4 arrays of f64 are 16 KiB */
    SHORT_ROW = 64,     /* below this, rows are gathered */
    PLAIN_LIMIT = 4096, /* up to this, dense operands are not split for threads anyway */
};

/* Loops for two inputs of which the first or the second is the same element throughout. */
struct ones {
    const struct elementwise *op;
    void (*f32[2])(float *out, float one, const float *x, int64_t n);
    void (*f64[2])(double *out, double one, const double *x, int64_t n);
    void (*i64[2])(int64_t *out, int64_t one, const int64_t *x, int64_t n);
};

/* One call, as its threads see it. Operand 0 of the walk is the output. */
struct task {
    struct iterate walk;
    const struct elementwise *op;
    const void *attr;
    tl_dtype dtype[1 + MAX_INPUTS];
    int64_t stride[1 + MAX_INPUTS];   /* along the innermost axis, in elements */
    bool is_array[1 + MAX_INPUTS];    /* rows are gapless arrays of the compute type */
    bool is_constant[1 + MAX_INPUTS]; /* the same element everywhere: converted to the compute type once per thread */
    int n_inputs;
    const struct ones *ones;
    int one;            /* which of two inputs is the same element along a row and has a loop for that; or -1 */
    bool is_ready;      /* that element is of the compute type */
    bool needs_buffers; /* something passes through a block */
};

/* Where the rows of a gathered block belong. */
struct scatter {
    int n_rows;
    char *data[BLOCK];
    int64_t length[BLOCK];
};

/* A scalar as a double; f32 rounds it once more. */
static double real_of(tl_scalar s) { return s.kind == TL_SCALAR_FLOAT ? s.f : (double)s.i; }

enum { PIECE = 256 }; /* elements that are checked together for whether all of them are easy */

/* The loops and the driver, once per compute type. W is the type in which + - * are done: unsigned for integers, which
 * wrap. */
#define T float
#define ONES f32
#define NAME(name) name##_f32
#define LIBM(name) name##f
#define W float
#define SCALAR(x) ((float)(x))
#define NUMBER(s) ((float)real_of(s))
#define SELECT vector_select
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#define IS_FLOAT 1
#include "device/cpu/ops/elementwise_template.h"

#define T double
#define ONES f64
#define NAME(name) name##_f64
#define LIBM(name) name
#define W double
#define SCALAR(x) (x)
#define NUMBER(s) real_of(s)
#define SELECT vector_select_f64
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#define IS_FLOAT 1
#include "device/cpu/ops/elementwise_template.h"

static void pow_i64(int64_t *out, const int64_t *const *in, int64_t n, const void *attr) {
    (void)attr;
    const int64_t *a = in[0], *b = in[1];
    for (int64_t i = 0; i < n; i++) out[i] = integer_pow(a[i], b[i]);
}

/* attr is a flag that a divisor was 0: such an element is 0, and the call fails afterwards. */
static void remainder_i64(int64_t *out, const int64_t *const *in, int64_t n, const void *attr) {
    const int64_t *a = in[0], *b = in[1];
    for (int64_t i = 0; i < n; i++) {
        if (b[i] == 0) atomic_store_explicit((atomic_bool *)(uintptr_t)attr, true, memory_order_relaxed);
        out[i] = integer_remainder(a[i], b[i]);
    }
}

#define T int64_t
#define ONES i64
#define NAME(name) name##_i64
#define W uint64_t
#define SCALAR(x) truncate_i64(x)
#define NUMBER(s) ((s).i)
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#define IS_FLOAT 0
#include "device/cpu/ops/elementwise_template.h"

/* ---- The driver --------------------------------------------------------------------------------------- */

tl_dtype elementwise_compute(tl_dtype a, tl_dtype b) {
    a = dtype_compute(a);
    b = dtype_compute(b);
    if (a == TL_F64 || b == TL_F64) return TL_F64;
    return a == TL_F32 || b == TL_F32 ? TL_F32 : TL_I64;
}

static bool is_constant(const struct iterate *walk, int operand) {
    for (int axis = 0; axis < walk->rank; axis++)
        if (walk->stride[operand][axis] != 0) return false;
    return true;
}

/* Finds task->ones and task->one. */
static void find_one(struct task *task) {
    static const struct ones all[] = {
        {&elementwise_add, {add_one_f32, add_one_f32}, {add_one_f64, add_one_f64}, {add_one_i64, add_one_i64}},
        {&elementwise_sub,
         {sub_from_one_f32, sub_one_f32},
         {sub_from_one_f64, sub_one_f64},
         {sub_from_one_i64, sub_one_i64}},
        {&elementwise_mul, {mul_one_f32, mul_one_f32}, {mul_one_f64, mul_one_f64}, {mul_one_i64, mul_one_i64}},
        {&elementwise_div, {div_of_one_f32, div_one_f32}, {div_of_one_f64, div_one_f64}, {NULL, NULL}},
    };
    task->one = -1;
    for (int i = 0; i < 2 && task->n_inputs == 2; i++) {
        if (task->stride[1 + i] != 0 || task->stride[2 - i] == 0) continue;
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            if (all[k].op != task->op) continue;
            task->ones = &all[k];
            task->one = i;
        }
    }
}

/* Small operands of the compute type, dense and of one shape, need no walk: the loop is all there is to do. Returns
 * their size, or 0. */
static int64_t plain_size(const tl_kernel_args *args, tl_dtype compute) {
    const tl_operand *out = &args->out[0];
    int64_t n = 1;
    if (out->dtype != compute) return 0;
    for (int axis = out->rank - 1; axis >= 0; axis--) {
        if (out->stride[axis] != n && out->shape[axis] != 1) return 0;
        n *= out->shape[axis];
    }
    for (int i = 0; i < args->n_in; i++) {
        if (args->in[i].dtype != compute || args->in[i].rank != out->rank) return 0;
        for (int axis = 0; axis < out->rank; axis++)
            if (args->in[i].shape[axis] != out->shape[axis] || args->in[i].stride[axis] != out->stride[axis]) return 0;
    }
    return n <= PLAIN_LIMIT ? n : 0;
}

bool elementwise_run(const tl_kernel_args *args, const struct elementwise *op, tl_dtype compute) {
    const int64_t plain = compute == TL_F32 ? plain_size(args, TL_F32) : 0;
    if (plain) {
        const float *in[MAX_INPUTS];
        for (int i = 0; i < args->n_in; i++) in[i] = args->in[i].data;
        op->loop_f32(args->out[0].data, in, plain, args->attr);
        return true;
    }
    if (compute == TL_I64 && !op->loop_i64) {
        snprintf(args->error, 200, "%s of %s is not defined", args->op, dtype_info(args->out[0].dtype)->name);
        return false;
    }

    const tl_operand *operands[1 + MAX_INPUTS] = {&args->out[0]};
    for (int i = 0; i < args->n_in; i++) operands[1 + i] = &args->in[i];
    struct task task = {.op = op, .attr = args->attr, .n_inputs = args->n_in};
    iterate_begin(&task.walk, args->out[0].rank, args->out[0].shape, operands, 1 + args->n_in, ITERATE_ANY_ORDER);
    for (int i = 0; i <= args->n_in; i++) {
        const int64_t element_bytes = iterate_element_bytes(operands[i]->dtype);
        task.dtype[i] = operands[i]->dtype;
        task.stride[i] = task.walk.step[i] / element_bytes;
        task.is_array[i] = operands[i]->dtype == compute && task.stride[i] == 1;
        task.is_constant[i] = i > 0 && is_constant(&task.walk, i);
    }

    find_one(&task);
    task.is_ready = task.one >= 0 && task.dtype[1 + task.one] == compute;
    for (int i = 0; i <= args->n_in; i++)
        task.needs_buffers |= !task.is_array[i] && (task.one < 0 || i != 1 + task.one);

    const bool is_short = task.walk.rank > 1 && task.walk.size[task.walk.rank - 1] < SHORT_ROW;
    parallel_body body;
    if (compute == TL_F32) body = is_short ? gather_rows_f32 : walk_rows_f32;
    else if (compute == TL_F64) body = is_short ? gather_rows_f64 : walk_rows_f64;
    else body = is_short ? gather_rows_i64 : walk_rows_i64;
    parallel_for(task.walk.n, parallel_stream_grain(task.walk.n, args->n_threads), args->n_threads, body, &task);
    return true;
}

bool elementwise_as_output(const tl_kernel_args *args, const struct elementwise *op) {
    return elementwise_run(args, op, dtype_compute(args->out[0].dtype));
}

/* Truth of inputs: in their own type. */
static bool as_input(const tl_kernel_args *args, const struct elementwise *op) {
    return elementwise_run(args, op, dtype_compute(args->in[0].dtype));
}
bool elementwise_as_inputs(const tl_kernel_args *args, const struct elementwise *op) {
    return elementwise_run(args, op, elementwise_compute(args->in[0].dtype, args->in[1].dtype));
}

/* A scalar tensor may be of a wider integer dtype than the result: it wraps first, as in PyTorch, where that makes a
 * difference (in sums and products it does not). */
static bool wrapped(const tl_kernel_args *args, const struct elementwise *op) {
    const tl_dtype dtype = args->out[0].dtype;
    _Alignas(8) char element[2][8];
    tl_operand in[2] = {args->in[0], args->in[1]};
    for (int i = 0; i < 2 && !dtype_is_float(dtype); i++) {
        if (in[i].rank > 0 || in[i].dtype == dtype) continue;
        convert(element[i], dtype, 1, in[i].data, in[i].dtype, 1, 1, CONVERT_NEAREST, NULL);
        in[i].data = element[i];
        in[i].dtype = dtype;
    }
    tl_kernel_args narrow = *args;
    narrow.in = in;
    return elementwise_as_output(&narrow, op);
}

/* ---- The ops ------------------------------------------------------------------------------------------- */

/* How each class of elementwise_list.h runs. */
#define RUN_REAL elementwise_as_output
#define RUN_FLOAT elementwise_as_output
#define RUN_NUMBER elementwise_as_output
#define RUN_SIGNED elementwise_as_output
#define RUN_ANY elementwise_as_output
#define RUN_TRUTH as_input
#define RUN_ANY_PAIR elementwise_as_output
#define RUN_SIGNED_PAIR elementwise_as_output
#define RUN_QUOTIENT elementwise_as_output
#define RUN_NUMBER_PAIR wrapped
#define RUN_EXTREME wrapped
#define RUN_LOGIC elementwise_as_inputs
#define RUN_FLOAT_PAIR elementwise_as_output
#define RUN_SLOPE elementwise_as_output
#define RUN_BITS_PAIR wrapped

#define KERNEL_PLAIN(name, run) \
    bool cpu_##name(const tl_kernel_args *args) { return run(args, &elementwise_##name); }
#define KERNEL_TILED KERNEL_PLAIN
#define KERNEL_CPU_LOOP KERNEL_PLAIN
#define KERNEL_OWN(name, run)

#define ROW(name, dtypes, kernel)                                                                                \
    const struct elementwise elementwise_##name = {name##_f32, name##_f64, INTEGERS_##dtypes(NULL, name##_i64)}; \
    KERNEL_##kernel(name, RUN_##dtypes)
#define UNARY(name, dtypes, formula, flops, words, reads, gradient, in_place, autocast, kernel) \
    ROW(name, dtypes, kernel)
#define BINARY(name, dtypes, formula, flops, words, reads_a, rule_a, reads_b, rule_b, in_place, autocast, kernel) \
    ROW(name, dtypes, kernel)
#define SPECIAL(...)
#include "spec/elementwise_list.h"

static bool has_zero_integer(const tl_operand *x) {
    enum { CHUNK = 256 };
    struct iterate walk;
    struct iterate_run run;
    int64_t value[CHUNK];
    iterate_begin(&walk, x->rank, x->shape, &x, 1, ITERATE_ANY_ORDER);
    const int64_t step = walk.step[0] / iterate_element_bytes(x->dtype);
    iterate_seek(&walk, &run, 0, walk.n);
    while (iterate_next(&walk, &run, CHUNK)) {
        convert_to_i64(value, run.data[0], x->dtype, step, run.length);
        for (int64_t i = 0; i < run.length; i++)
            if (value[i] == 0) return true;
    }
    return false;
}

/* In place, a divisor of 0 must be known before the first element is overwritten. */
bool cpu_remainder(const tl_kernel_args *args) {
    const bool is_in_place = args->out[0].data == args->in[0].data && !dtype_is_float(args->out[0].dtype);
    atomic_bool has_zero = is_in_place && iterate_numel(&args->out[0]) && has_zero_integer(&args->in[1]);
    tl_kernel_args flagged = *args;
    flagged.attr = &has_zero;
    if (!atomic_load(&has_zero) && !wrapped(&flagged, &elementwise_remainder)) return false;
    if (!atomic_load(&has_zero)) return true;
    snprintf(args->error, 200, "ZeroDivisionError: an integer has no remainder by 0");
    return false;
}

/* ---- Special rows: those of numbers are in scalar.c -------------------------------------------------------- */

const struct elementwise elementwise_clamp = {clamp_all_f32, clamp_all_f64, clamp_all_i64};
static const struct elementwise loops_affine = {affine_f32, affine_f64, affine_i64};
static const struct elementwise loops_where = {where_f32, where_f64, where_i64};
static const struct elementwise loops_leaky_relu = {leaky_relu_f32, leaky_relu_f64, NULL};
static const struct elementwise loops_softplus = {softplus_f32, softplus_f64, NULL};
const struct elementwise elementwise_compare[] = {
    [TL_EQ] = {eq_f32, eq_f64, eq_i64}, [TL_NE] = {ne_f32, ne_f64, ne_i64}, [TL_LT] = {lt_f32, lt_f64, lt_i64},
    [TL_LE] = {le_f32, le_f64, le_i64}, [TL_GT] = {gt_f32, gt_f64, gt_i64}, [TL_GE] = {ge_f32, ge_f64, ge_i64},
};

bool cpu_affine(const tl_kernel_args *args) { return elementwise_as_output(args, &loops_affine); }
bool cpu_where(const tl_kernel_args *args) { return elementwise_as_output(args, &loops_where); }
bool cpu_leaky_relu(const tl_kernel_args *args) { return elementwise_as_output(args, &loops_leaky_relu); }
bool cpu_softplus(const tl_kernel_args *args) { return elementwise_as_output(args, &loops_softplus); }
bool cpu_compare(const tl_kernel_args *args) {
    const struct attr_compare *attr = args->attr;
    return elementwise_as_inputs(args, &elementwise_compare[attr->relation]);
}
