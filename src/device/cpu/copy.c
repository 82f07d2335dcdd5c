/* copy.c: moving elements: copy, assign, fill, unview.
 *
 * Three ways, by what the walk over (out, in) looks like:
 *   bytes      same dtype: rows are moved as they are, never through a float, so every NaN keeps its bits
 *   converted  convert() does a row at a time
 *   tiled      the input is contiguous along another axis than the output (a transpose): squares of TILE x TILE are
 *              read along the input's axis into a buffer (converted on the way), turned there, and written along the
 *              output's. Each cache line is fetched once and used whole; turning in place instead of in a buffer
 *              thrashes the cache when strides are powers of two
 * Two f4 share a byte, so f4 tensors are converted as one row, or, where there are gaps, along the dense last axis.
 */
#include "device/cpu/copy.h"

#include "device/cpu/iterate.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vector_math.h"
#include "ops/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <string.h>

enum { TILE = 32, CHUNK = 512 };

/* Loops over elements of 1, 2, 4 and 8 bytes. */
#define T uint8_t
#define NAME(name) name##_1
#include "device/cpu/copy_template.h"
#undef T
#undef NAME
#define T uint16_t
#define NAME(name) name##_2
#include "device/cpu/copy_template.h"
#undef T
#undef NAME
#define T uint32_t
#define NAME(name) name##_4
#include "device/cpu/copy_template.h"
#undef T
#undef NAME
#define T uint64_t
#define NAME(name) name##_8
#include "device/cpu/copy_template.h"
#undef T
#undef NAME

/* The loops for one element size. Strides are in bytes. */
struct mover {
    void (*move)(char *out, int64_t out_step, const char *in, int64_t in_step, int64_t n);
    void (*fill)(char *out, int64_t out_step, const void *element, int64_t n);
    void (*turn)(void *to, const void *from, int64_t n_rows);
};
static const struct mover movers[9] = {
    [1] = {move_1, fill_1, turn_1},
    [2] = {move_2, fill_2, turn_2},
    [4] = {move_4, fill_4, turn_4},
    [8] = {move_8, fill_8, turn_8},
};

struct task {
    struct iterate walk; /* operands: out, in */
    tl_dtype out_dtype, in_dtype;
    int64_t out_bytes, in_bytes;          /* per element */
    const struct mover *mover;            /* of the output's elements */
    int tile_axis;                        /* tiled: the axis along which the input is contiguous */
    int64_t tiles_across, tiles_down;     /* tiled: along the innermost axis, along tile_axis */
    _Alignas(8) unsigned char element[8]; /* fill */
};

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
        while (iterate_next(walk, &run, INT64_MAX))
            memmove(run.data[0], run.data[1], (size_t)(run.length * task->out_bytes));
    } else if (walk->step[1] == 0) {
        while (iterate_next(walk, &run, INT64_MAX))
            task->mover->fill(run.data[0], walk->step[0], run.data[1], run.length);
    } else {
        while (iterate_next(walk, &run, INT64_MAX))
            task->mover->move(run.data[0], walk->step[0], run.data[1], walk->step[1], run.length);
    }
}

/* Two f4 share a byte: a dense tensor is one row, cut at even places. */
static void copy_packed(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const int64_t out_bits = dtype_info(task->out_dtype)->bits, in_bits = dtype_info(task->in_dtype)->bits;
    convert(task->walk.data[0] + first * out_bits / 8, task->out_dtype, 1, task->walk.data[1] + first * in_bits / 8,
            task->in_dtype, 1, last - first, CONVERT_NEAREST, NULL);
}

/* ---- Tiles ------------------------------------------------------------------------------------------------ */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The axis along which the input is contiguous, if that is another than the innermost and both are worth tiling;
 * otherwise -1. */
static int find_tile_axis(const struct iterate *walk, int64_t in_bytes) {
    const int inner = walk->rank - 1;
    if (walk->step[1] == in_bytes || walk->step[1] == 0 || walk->size[inner] < TILE / 2) return -1;
    for (int axis = 0; axis < inner; axis++)
        if (walk->stride[1][axis] == in_bytes && walk->size[axis] >= TILE / 4) return axis;
    return -1;
}

/* Addresses of the first element of a tile: `number` counts tiles across, then down, then over the other axes. */
static void find_tile(const struct task *task, int64_t number, char *at[2], int64_t *n_columns, int64_t *n_rows) {
    const struct iterate *walk = &task->walk;
    const int inner = walk->rank - 1;
    const int64_t column = number % task->tiles_across * TILE;
    number /= task->tiles_across;
    const int64_t row = number % task->tiles_down * TILE;
    number /= task->tiles_down;
    *n_columns = smaller(TILE, walk->size[inner] - column);
    *n_rows = smaller(TILE, walk->size[task->tile_axis] - row);
    for (int i = 0; i < 2; i++) at[i] = walk->data[i] + column * walk->step[i] + row * walk->stride[i][task->tile_axis];
    for (int axis = inner - 1; axis >= 0; axis--) {
        if (axis == task->tile_axis) continue;
        const int64_t index = number % walk->size[axis];
        number /= walk->size[axis];
        for (int i = 0; i < 2; i++) at[i] += index * walk->stride[i][axis];
    }
}

static void copy_tiles(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const struct iterate *walk = &task->walk;
    const int64_t row_bytes = TILE * task->out_bytes;
    _Alignas(64) char tile[TILE * TILE * 8] = {0}; /* [column of out][row of out], in the output's dtype */
    _Alignas(64) char turned[TILE * TILE * 8];     /* [row][column] */
    for (int64_t number = first; number < last; number++) {
        char *at[2];
        int64_t n_columns, n_rows;
        find_tile(task, number, at, &n_columns, &n_rows);
        for (int64_t column = 0; column < n_columns; column++) {
            const char *from = at[1] + column * walk->step[1];
            if (task->out_dtype == task->in_dtype)
                memcpy(tile + column * row_bytes, from, (size_t)(n_rows * task->out_bytes));
            else
                convert(tile + column * row_bytes, task->out_dtype, 1, from, task->in_dtype, 1, n_rows, CONVERT_NEAREST,
                        NULL);
        }
        task->mover->turn(turned, tile, n_rows);
        for (int64_t row = 0; row < n_rows; row++) {
            char *to = at[0] + row * walk->stride[0][task->tile_axis];
            if (walk->step[0] == task->out_bytes)
                memcpy(to, turned + row * row_bytes, (size_t)(n_columns * task->out_bytes));
            else task->mover->move(to, walk->step[0], turned + row * row_bytes, task->out_bytes, n_columns);
        }
    }
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
        parallel_for(iterate_numel(out), parallel_grain(1), n_threads, copy_packed, &task);
        return;
    }

    task.out_bytes = iterate_element_bytes(out->dtype);
    task.in_bytes = iterate_element_bytes(in->dtype);
    task.mover = &movers[task.out_bytes];
    iterate_begin(&task.walk, out->rank, out->shape, (const tl_operand *[]){out, in}, 2, ITERATE_ANY_ORDER);
    task.tile_axis = find_tile_axis(&task.walk, task.in_bytes);
    if (task.walk.n == 0 || task.tile_axis < 0) {
        parallel_for(task.walk.n, parallel_grain(1), n_threads, copy_rows, &task);
        return;
    }

    const int64_t across = task.walk.size[task.walk.rank - 1], down = task.walk.size[task.tile_axis];
    task.tiles_across = (across + TILE - 1) / TILE;
    task.tiles_down = (down + TILE - 1) / TILE;
    const int64_t n_tiles = task.walk.n / across / down * task.tiles_across * task.tiles_down;
    parallel_for(n_tiles, parallel_grain(TILE * TILE), n_threads, copy_tiles, &task);
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
    parallel_for(task.walk.n, parallel_grain(1), n_threads, fill_rows, &task);
}

/* ---- unview ---------------------------------------------------------------------------------------------------
 *
 * out[geometry] += g where elements may land on each other: in order, on one thread. Within a run (of nonzero
 * stride) targets differ, so a run is read, added and written as arrays; with stride 0 a run is one element.
 */
#define T float
#define NAME(name) name##_f32
#define ARITHMETIC float
#include "device/cpu/unview_template.h"
#undef T
#undef NAME
#undef ARITHMETIC
#define T double
#define NAME(name) name##_f64
#define ARITHMETIC double
#include "device/cpu/unview_template.h"
#undef T
#undef NAME
#undef ARITHMETIC
#define T int64_t
#define NAME(name) name##_i64
#define ARITHMETIC uint64_t
#include "device/cpu/unview_template.h"

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
