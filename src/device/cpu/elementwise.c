/* elementwise.c: one result element from one element of each input.
 *
 * All ops share one driver. Positions are cut into blocks that fit the first-level cache. For each block every operand
 * is brought to the compute type (f32, f64 or i64), a plain loop over arrays computes, and the result is
 * converted to the output's dtype. An operand that already is a gapless array of the compute type is used where it lies.
 * So each op is one loop per compute type, and dtypes, strides and broadcasting are in one place.
 *
 * Where rows are short (a narrow slice, a small innermost axis of a permuted view), several rows are gathered into one
 * block first: the loops stay long.
 *
 * In place: an input may be the very memory of the output, element for element; each element is read before it is
 * written, and loops carry VECTOR_LOOP since nothing else overlaps.
 */
#include "device/cpu/elementwise.h"
#include "device/cpu/iterate.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vector_math.h"
#include "ops/attr.h"
#include "tensor/convert_round.h"
#include "tensor/dtype.h"

#include <stdio.h>

enum {
    MAX_INPUTS = ELEMENTWISE_INPUTS,
    BLOCK = 512,        /* elements; 4 arrays of f64 are 16 KiB */
    SHORT_ROW = 64,     /* below this, rows are gathered */
    PLAIN_LIMIT = 4096, /* up to this, dense operands are not split for threads anyway */
};

/* Loops for one input, the first or the second, that is the same element throughout. */
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
    bool is_constant[1 + MAX_INPUTS]; /* the same element everywhere: brought to the compute type once per thread */
    int n_inputs;
    const struct ones *ones;
    int one;       /* of two inputs, the one that is the same element all along a row and has a loop for it; or -1 */
    bool is_ready; /* that element is of the compute type */
    bool needs_buffers; /* something passes through a block */
};

/* Where the rows of a gathered block go. */
struct scatter {
    int n_rows;
    char *data[BLOCK];
    int64_t length[BLOCK];
};

/* The loops and the driver, once per compute type. ARITHMETIC is the type in which + - * are done: unsigned for
 * integers, which wrap. */
#define T float
#define ONES f32
#define NAME(name) name##_f32
#define ARITHMETIC float
#define SCALAR(x) ((float)(x))
#define IS_FLOAT 1
#include "device/cpu/elementwise_template.h"

#define T double
#define ONES f64
#define NAME(name) name##_f64
#define ARITHMETIC double
#define SCALAR(x) (x)
#define IS_FLOAT 1
#include "device/cpu/elementwise_template.h"

#define T int64_t
#define ONES i64
#define NAME(name) name##_i64
#define ARITHMETIC uint64_t
#define SCALAR(x) truncate_i64(x)
#define IS_FLOAT 0
#include "device/cpu/elementwise_template.h"

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

static bool run_as_output(const tl_kernel_args *args, const struct elementwise *op) {
    return elementwise_run(args, op, dtype_compute(args->out[0].dtype));
}

/* ---- The ops ------------------------------------------------------------------------------------------- */

const struct elementwise elementwise_add = {add_f32, add_f64, add_i64};
const struct elementwise elementwise_sub = {sub_f32, sub_f64, sub_i64};
const struct elementwise elementwise_mul = {mul_f32, mul_f64, mul_i64};
const struct elementwise elementwise_div = {div_f32, div_f64, NULL};
static const struct elementwise op_affine = {affine_f32, affine_f64, affine_i64};
static const struct elementwise op_neg = {neg_f32, neg_f64, neg_i64};
static const struct elementwise op_exp = {exp_f32, exp_f64, NULL};
static const struct elementwise op_log = {log_f32, log_f64, NULL};
static const struct elementwise op_sqrt = {sqrt_f32, sqrt_f64, NULL};
static const struct elementwise op_tanh = {tanh_f32, tanh_f64, NULL};
static const struct elementwise op_sigmoid = {sigmoid_f32, sigmoid_f64, NULL};
static const struct elementwise op_relu = {relu_f32, relu_f64, relu_i64};
static const struct elementwise op_gelu = {gelu_f32, gelu_f64, NULL};
static const struct elementwise op_gelu_grad = {gelu_grad_f32, gelu_grad_f64, NULL};
static const struct elementwise op_silu = {silu_f32, silu_f64, NULL};
static const struct elementwise op_silu_grad = {silu_grad_f32, silu_grad_f64, NULL};
static const struct elementwise op_where = {where_f32, where_f64, where_i64};
const struct elementwise elementwise_compare[] = {
    [TL_EQ] = {eq_f32, eq_f64, eq_i64}, [TL_NE] = {ne_f32, ne_f64, ne_i64}, [TL_LT] = {lt_f32, lt_f64, lt_i64},
    [TL_LE] = {le_f32, le_f64, le_i64}, [TL_GT] = {gt_f32, gt_f64, gt_i64}, [TL_GE] = {ge_f32, ge_f64, ge_i64},
};

bool cpu_add(const tl_kernel_args *args) { return run_as_output(args, &elementwise_add); }
bool cpu_sub(const tl_kernel_args *args) { return run_as_output(args, &elementwise_sub); }
bool cpu_mul(const tl_kernel_args *args) { return run_as_output(args, &elementwise_mul); }
bool cpu_div(const tl_kernel_args *args) { return run_as_output(args, &elementwise_div); }
bool cpu_affine(const tl_kernel_args *args) { return run_as_output(args, &op_affine); }
bool cpu_neg(const tl_kernel_args *args) { return run_as_output(args, &op_neg); }
bool cpu_exp(const tl_kernel_args *args) { return run_as_output(args, &op_exp); }
bool cpu_log(const tl_kernel_args *args) { return run_as_output(args, &op_log); }
bool cpu_sqrt(const tl_kernel_args *args) { return run_as_output(args, &op_sqrt); }
bool cpu_tanh(const tl_kernel_args *args) { return run_as_output(args, &op_tanh); }
bool cpu_sigmoid(const tl_kernel_args *args) { return run_as_output(args, &op_sigmoid); }
bool cpu_relu(const tl_kernel_args *args) { return run_as_output(args, &op_relu); }
bool cpu_gelu(const tl_kernel_args *args) { return run_as_output(args, &op_gelu); }
bool cpu_gelu_grad(const tl_kernel_args *args) { return run_as_output(args, &op_gelu_grad); }
bool cpu_silu(const tl_kernel_args *args) { return run_as_output(args, &op_silu); }
bool cpu_silu_grad(const tl_kernel_args *args) { return run_as_output(args, &op_silu_grad); }
bool cpu_where(const tl_kernel_args *args) { return run_as_output(args, &op_where); }

bool cpu_compare(const tl_kernel_args *args) {
    const struct attr_compare *attr = args->attr;
    return elementwise_run(args, &elementwise_compare[attr->relation],
                           elementwise_compute(args->in[0].dtype, args->in[1].dtype));
}

static const struct elementwise op_swiglu = {swiglu_f32, swiglu_f64, NULL};
bool cpu_swiglu(const tl_kernel_args *args) { return run_as_output(args, &op_swiglu); }
