/* copy.c: moving elements: copy, assign, fill, unview.
 *
 * There are three ways; the walk over (out, in) decides:
 *   bytes      same dtype: rows are moved as they are, never through a float, so every NaN keeps its bits
 *   converted  convert() does a row at a time
 *   tiled      the input is contiguous along another axis than the output (a transpose): copy_tiles.c
 * Two f4 share a byte, so f4 tensors are converted as one row, or, where there are gaps, along the dense last axis.
 */
#include "device/cpu/ops/copy.h"

#include "device/cpu/ops/copy_tiles.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <string.h>

enum { LINE_BYTES = 64 };
enum { CHUNK = 512 }; /* unview */

enum { LINE_VECTOR = 16 }; /* bytes that are moved at a time */
typedef uint8_t line __attribute__((vector_size(LINE_VECTOR), aligned(1), may_alias));

/* Repeats the pattern, of LINE_VECTOR bytes. Eight stores per iteration: fewer would wait for the loop counter.
 * Returns how many of the n bytes are written. */
static int64_t fill_lines(char *out, const char *pattern, int64_t n) {
    const line value = *(const line *)(const void *)pattern;
    int64_t at = 0;
    for (; at + 8 * LINE_VECTOR <= n; at += 8 * LINE_VECTOR)
        for (int k = 0; k < 8; k++) *(line *)(void *)(out + at + LINE_VECTOR * k) = value;
    return at;
}

/* Loops over elements of 1, 2, 4 and 8 bytes. */
#define T uint8_t
#define NAME(name) name##_1
#include "device/cpu/ops/copy_template.h"
#define T uint16_t
#define NAME(name) name##_2
#include "device/cpu/ops/copy_template.h"
#define T uint32_t
#define NAME(name) name##_4
#include "device/cpu/ops/copy_template.h"
#define T uint64_t
#define NAME(name) name##_8
#include "device/cpu/ops/copy_template.h"

/* The loops for one element size. Strides are in bytes. */
struct mover {
    void (*move)(char *out, int64_t out_step, const char *in, int64_t in_step, int64_t n);
    void (*fill)(char *out, int64_t out_step, const void *element, int64_t n);
};
static const struct mover movers[9] = {
    [1] = {move_1, fill_1},
    [2] = {move_2, fill_2},
    [4] = {move_4, fill_4},
    [8] = {move_8, fill_8},
};

struct task {
    struct iterate walk; /* operands: out, in */
    tl_dtype out_dtype, in_dtype;
    int64_t out_bytes, in_bytes;          /* per element */
    const struct mover *mover;            /* of the output's elements */
    _Alignas(8) unsigned char element[8]; /* fill */
};

/* memmove for ranges that are disjoint or identical: 128 bytes are read before they are written. For runs from main
 * memory the library's memmove reaches 80 % of this speed. */
static void move_bytes(char *out, const char *in, int64_t n) {
    int64_t at = 0;
    for (; at + 8 * LINE_VECTOR <= n; at += 8 * LINE_VECTOR) {
        line a[8];
        for (int k = 0; k < 8; k++) a[k] = *(const line *)(const void *)(in + at + LINE_VECTOR * k);
        for (int k = 0; k < 8; k++) *(line *)(void *)(out + at + LINE_VECTOR * k) = a[k];
    }
    if (at < n) memmove(out + at, in + at, (size_t)(n - at));
}

/* ---- Bytes and conversions, row by row ------------------------------------------------------------------- */

static void copy_rows(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const struct iterate *walk = &task->walk;
    struct iterate_run run;
    iterate_seek(walk, &run, first, last);
    if (task->out_dtype != task->in_dtype) {
        const int64_t out_stride = walk->step[0] / task->out_bytes, in_stride = walk->step[1] / task->in_bytes;
        while (iterate_next(walk, &run, INT64_MAX))
            convert(run.data[0], task->out_dtype, out_stride, run.data[1], task->in_dtype, in_stride, run.length,
                    CONVERT_NEAREST, NULL);
    } else if (walk->step[0] == task->out_bytes && walk->step[1] == task->out_bytes) {
        while (iterate_next(walk, &run, INT64_MAX)) move_bytes(run.data[0], run.data[1], run.length * task->out_bytes);
    } else if (walk->step[1] == 0) {
        while (iterate_next(walk, &run, INT64_MAX))
            task->mover->fill(run.data[0], walk->step[0], run.data[1], run.length);
    } else {
        while (iterate_next(walk, &run, INT64_MAX))
            task->mover->move(run.data[0], walk->step[0], run.data[1], walk->step[1], run.length);
    }
}

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Rows of whole cache lines can be written in any order at no cost, but reads stall, so rows follow the order of the
 * input. Sorts the outer axes, large strides outermost. */
static void follow_input(struct task *task) {
    struct iterate *walk = &task->walk;
    const int inner = walk->rank - 1;
    if (walk->step[0] != task->out_bytes || walk->step[1] != task->in_bytes) return;
    if (walk->size[inner] * task->out_bytes < 2 * LINE_BYTES) return;
    for (int axis = 1; axis < inner; axis++)
        for (int at = axis; at > 0 && magnitude(walk->stride[1][at - 1]) < magnitude(walk->stride[1][at]); at--)
            iterate_swap(walk, at - 1, at);
}

/* Two f4 share a byte: a dense tensor is one row, cut at even places. */
static void copy_packed(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const int64_t out_bits = dtype_info(task->out_dtype)->bits, in_bits = dtype_info(task->in_dtype)->bits;
    convert(task->walk.data[0] + first * out_bits / 8, task->out_dtype, 1, task->walk.data[1] + first * in_bits / 8,
            task->in_dtype, 1, last - first, CONVERT_NEAREST, NULL);
}

/* ---- Whole operands ----------------------------------------------------------------------------------------- */

static bool is_packed(tl_dtype dtype) { return dtype_info(dtype)->bits < 8; }

/* f4 with gaps between its rows, or broadcast: one row of the last axis after the other. f4 rows are dense and even. */
static void copy_packed_rows(const tl_operand *out, const tl_operand *in) {
    const int last = out->rank - 1, missing = out->rank - in->rank;
    const int64_t out_bits = dtype_info(out->dtype)->bits, in_bits = dtype_info(in->dtype)->bits, n = out->shape[last];
    const int64_t in_stride = in->rank > 0 && in->shape[in->rank - 1] != 1 ? in->stride[in->rank - 1] : 0;
    int64_t index[TL_MAX_RANK] = {0};
    for (int64_t row = n ? iterate_numel(out) / n : 0; row > 0; row--) {
        int64_t to = 0, from = 0;
        for (int axis = 0; axis < last; axis++) {
            to += index[axis] * out->stride[axis];
            if (axis >= missing && in->shape[axis - missing] != 1) from += index[axis] * in->stride[axis - missing];
        }
        convert((char *)out->data + to * out_bits / 8, out->dtype, out->stride[last],
                (const char *)in->data + from * in_bits / 8, in->dtype, in_stride, n, CONVERT_NEAREST, NULL);
        for (int axis = last - 1; axis >= 0 && ++index[axis] == out->shape[axis]; axis--) index[axis] = 0;
    }
}

void copy_operand(const tl_operand *out, const tl_operand *in, int n_threads) {
    struct task task = {.out_dtype = out->dtype, .in_dtype = in->dtype};
    if (is_packed(out->dtype) || is_packed(in->dtype)) {
        if (!iterate_is_dense(out) || !iterate_is_dense(in) || iterate_numel(out) != iterate_numel(in)) {
            copy_packed_rows(out, in);
            return;
        }
        task.walk.data[0] = out->data;
        task.walk.data[1] = in->data;
        parallel_for(iterate_numel(out), parallel_stream_grain(iterate_numel(out), n_threads), n_threads, copy_packed,
                     &task);
        return;
    }

    task.out_bytes = iterate_element_bytes(out->dtype);
    task.in_bytes = iterate_element_bytes(in->dtype);
    task.mover = &movers[task.out_bytes];
    iterate_begin(&task.walk, out->rank, out->shape, (const tl_operand *[]){out, in}, 2, ITERATE_ANY_ORDER);
    if (copy_tiles(&task.walk, task.out_dtype, task.in_dtype, n_threads)) return;
    follow_input(&task);
    parallel_for(task.walk.n, parallel_stream_grain(task.walk.n, n_threads), n_threads, copy_rows, &task);
}

static void fill_rows(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    struct iterate_run run;
    iterate_seek(&task->walk, &run, first, last);
    while (iterate_next(&task->walk, &run, INT64_MAX))
        task->mover->fill(run.data[0], task->walk.step[0], task->element, run.length);
}

void copy_fill(const tl_operand *out, double value, int n_threads) {
    struct task task = {.out_bytes = 1};
    convert_from_f64(task.element, out->dtype, 1, &value, 1);
    if (is_packed(out->dtype)) {
        if (!iterate_is_dense(out)) {
            copy_packed_rows(out, &(tl_operand){.data = &value, .dtype = TL_F64});
            return;
        }
        const int both = (task.element[0] & 15) * 17;
        if (iterate_numel(out) > 0) memset(out->data, both, (size_t)((iterate_numel(out) + 1) / 2));
        return;
    }
    task.mover = &movers[iterate_element_bytes(out->dtype)];
    iterate_begin(&task.walk, out->rank, out->shape, &out, 1, ITERATE_ANY_ORDER);
    parallel_for(task.walk.n, parallel_stream_grain(task.walk.n, n_threads), n_threads, fill_rows, &task);
}

/* ---- unview ---------------------------------------------------------------------------------------------------
 *
 * out[geometry] += g where several elements may have one target: in order, on one thread. Within a run (of nonzero
 * stride) targets are distinct, so a run is read, added and written as arrays; with stride 0 a run is one element.
 */
#define T float
#define NAME(name) name##_f32
#define ARITHMETIC float
#include "device/cpu/ops/copy_unview_template.h"
#undef T
#undef NAME
#undef ARITHMETIC
#define T double
#define NAME(name) name##_f64
#define ARITHMETIC double
#include "device/cpu/ops/copy_unview_template.h"
#undef T
#undef NAME
#undef ARITHMETIC
#define T int64_t
#define NAME(name) name##_i64
#define ARITHMETIC uint64_t
#include "device/cpu/ops/copy_unview_template.h"

bool cpu_unview(const tl_kernel_args *args) {
    const struct attr_unview *attr = args->attr;
    const tl_operand *g = &args->in[0], *out = &args->out[0];
    copy_fill(out, 0.0, args->n_threads);

    tl_operand target = {.dtype = out->dtype, .rank = g->rank, .shape = g->shape, .stride = attr->stride};
    target.data = (char *)out->data + attr->offset * iterate_element_bytes(out->dtype);
    if (!attr->overlaps) copy_operand(&target, g, args->n_threads);
    else if (dtype_compute(out->dtype) == TL_F32) add_in_order_f32(&target, g);
    else if (dtype_compute(out->dtype) == TL_F64) add_in_order_f64(&target, g);
    else add_in_order_i64(&target, g);
    return true;
}

/* ---- The other kernels ------------------------------------------------------------------------------------------ */

bool cpu_copy(const tl_kernel_args *args) {
    copy_operand(&args->out[0], &args->in[0], args->n_threads);
    return true;
}

bool cpu_assign(const tl_kernel_args *args) {
    copy_operand(&args->out[0], &args->in[1], args->n_threads);
    return true;
}

bool cpu_fill(const tl_kernel_args *args) {
    const struct attr_full *attr = args->attr;
    copy_fill(&args->out[0], attr->value, args->n_threads);
    return true;
}
