/* copy.c: moving elements: copy, assign, fill, unview.
 *
 * Three ways, by what the walk over (out, in) looks like:
 *   bytes      same dtype: rows are moved as they are, never through a float, so every NaN keeps its bits
 *   converted  convert() does a row at a time
 *   tiled      the input is contiguous along another axis than the output (a transpose): rectangles are read along
 *              the input's axis (converted on the way), turned into a buffer, and written along the output's in whole
 *              cache lines. Reading is what takes time, writing whole lines nearly none: so the next tile is asked for
 *              while this one is turned, and tiles follow each other as they lie in the input
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

/* A tile is read in runs of READ_BYTES and written in runs of WRITE_BYTES (of the output's elements). */
enum { READ_BYTES = 256, WRITE_BYTES = 256, LINE_BYTES = 64 };
enum { CHUNK = 512 }; /* unview */
enum { TILE_MIN_ACROSS = 16, TILE_MIN_DOWN = 8, TILES_A_RANGE = 32 };

/* Loops over elements of 1, 2, 4 and 8 bytes. */
#define T uint8_t
#define LANES 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define NAME(name) name##_1
#include "device/cpu/copy_template.h"
#define T uint16_t
#define LANES 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define NAME(name) name##_2
#include "device/cpu/copy_template.h"
#define T uint32_t
#define LANES 4
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define NAME(name) name##_4
#include "device/cpu/copy_template.h"
#define T uint64_t
#define LANES 2
#define LOW 0, 2
#define HIGH 1, 3
#define NAME(name) name##_8
#include "device/cpu/copy_template.h"

/* The loops for one element size. Strides are in bytes. */
struct mover {
    void (*move)(char *out, int64_t out_step, const char *in, int64_t in_step, int64_t n);
    void (*fill)(char *out, int64_t out_step, const void *element, int64_t n);
    void (*turn)(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n_from, int64_t n_to);
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
    int order[TL_MAX_RANK];               /* tiled: axes, the one whose tiles follow each other first */
    int64_t tile[TL_MAX_RANK];            /* tiled: how much of an axis a tile has */
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

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Rows of whole cache lines may be written anywhere for nothing, but reading waits: take them as they lie in the
 * input. Sorts the outer axes, large strides outside. */
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

/* ---- Tiles ------------------------------------------------------------------------------------------------ */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The axis along which the input is contiguous, if that is another than the innermost and both are worth tiling;
 * otherwise -1. */
static int find_tile_axis(const struct iterate *walk, int64_t in_bytes) {
    const int inner = walk->rank - 1;
    if (walk->step[1] == in_bytes || walk->step[1] == 0 || walk->size[inner] < TILE_MIN_ACROSS) return -1;
    for (int axis = 0; axis < inner; axis++)
        if (walk->stride[1][axis] == in_bytes && walk->size[axis] >= TILE_MIN_DOWN) return axis;
    return -1;
}

static int64_t tiles_along(const struct task *task, int axis) {
    return (task->walk.size[axis] - 1) / task->tile[axis] + 1;
}

/* How large tiles are, and the axes by the input's strides: the smallest, which is that of tile_axis, first. Gives how
 * many tiles there are. */
static int64_t plan_tiles(struct task *task) {
    const struct iterate *walk = &task->walk;
    int64_t n_tiles = 1;
    for (int axis = 0; axis < walk->rank; axis++) {
        int at = axis;
        for (; at > 0 && magnitude(walk->stride[1][axis]) < magnitude(walk->stride[1][task->order[at - 1]]); at--)
            task->order[at] = task->order[at - 1];
        task->order[at] = axis;
        task->tile[axis] = 1;
    }
    task->tile[walk->rank - 1] = WRITE_BYTES / task->out_bytes;
    task->tile[task->tile_axis] = READ_BYTES / task->out_bytes;
    for (int axis = 0; axis < walk->rank; axis++) n_tiles *= tiles_along(task, axis);
    return n_tiles;
}

/* A rectangle: element (column, row) lies at at[i] + column * step[i] + row * stride[i][tile_axis]. */
struct tile {
    char *at[2];
    int64_t n_columns, n_rows;
};

static struct tile find_tile(const struct task *task, int64_t number) {
    const struct iterate *walk = &task->walk;
    const int inner = walk->rank - 1;
    int64_t first[TL_MAX_RANK];
    struct tile tile = {.at = {walk->data[0], walk->data[1]}};
    for (int k = 0; k < walk->rank; k++) {
        const int axis = task->order[k];
        const int64_t n = tiles_along(task, axis);
        first[axis] = number % n * task->tile[axis];
        number /= n;
        for (int i = 0; i < 2; i++) tile.at[i] += first[axis] * walk->stride[i][axis];
    }
    tile.n_columns = smaller(task->tile[inner], walk->size[inner] - first[inner]);
    tile.n_rows = smaller(task->tile[task->tile_axis], walk->size[task->tile_axis] - first[task->tile_axis]);
    return tile;
}

/* Asks for what a tile reads. */
static void fetch_tile(const struct task *task, const struct tile *tile) {
    for (int64_t column = 0; column < tile->n_columns; column++) {
        const char *from = tile->at[1] + column * task->walk.step[1];
        for (int64_t at = 0; at < tile->n_rows * task->in_bytes; at += LINE_BYTES) __builtin_prefetch(from + at, 0, 2);
    }
}

/* Asks for the lines that a tile writes: turning takes as long as they need to come. */
static void claim_tile(const struct task *task, const struct tile *tile) {
    for (int64_t row = 0; row < tile->n_rows; row++) {
        const char *to = tile->at[0] + row * task->walk.stride[0][task->tile_axis];
        for (int64_t at = 0; at < tile->n_columns * task->out_bytes; at += LINE_BYTES)
            __builtin_prefetch(to + at, 1, 3);
    }
}

static void copy_tiles(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const struct iterate *walk = &task->walk;
    const int64_t e = task->out_bytes;
    _Alignas(64) char converted[READ_BYTES * WRITE_BYTES]; /* [column][row], in the output's dtype */
    _Alignas(64) char turned[READ_BYTES * WRITE_BYTES];    /* [row][column] */
    struct tile next = find_tile(task, first);
    for (int64_t number = first; number < last; number++) {
        const struct tile tile = next;
        if (number + 1 < last) {
            next = find_tile(task, number + 1);
            fetch_tile(task, &next);
        }
        if (walk->step[0] == e) claim_tile(task, &tile);
        if (task->out_dtype == task->in_dtype) {
            task->mover->turn(turned, WRITE_BYTES, tile.at[1], walk->step[1], tile.n_columns, tile.n_rows);
        } else {
            for (int64_t column = 0; column < tile.n_columns; column++)
                convert(converted + column * READ_BYTES, task->out_dtype, 1, tile.at[1] + column * walk->step[1],
                        task->in_dtype, 1, tile.n_rows, CONVERT_NEAREST, NULL);
            task->mover->turn(turned, WRITE_BYTES, converted, READ_BYTES, tile.n_columns, tile.n_rows);
        }
        for (int64_t row = 0; row < tile.n_rows; row++) {
            char *to = tile.at[0] + row * walk->stride[0][task->tile_axis];
            if (walk->step[0] != e) task->mover->move(to, walk->step[0], turned + row * WRITE_BYTES, e, tile.n_columns);
            else if (tile.n_columns * e == WRITE_BYTES) memcpy(to, turned + row * WRITE_BYTES, WRITE_BYTES);
            else memcpy(to, turned + row * WRITE_BYTES, (size_t)(tile.n_columns * e));
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
        follow_input(&task);
        parallel_for(task.walk.n, parallel_grain(1), n_threads, copy_rows, &task);
        return;
    }

    const int64_t n_tiles = plan_tiles(&task);
    const int64_t grain = parallel_grain(task.tile[task.walk.rank - 1] * task.tile[task.tile_axis]);
    parallel_for(n_tiles, n_tiles > 32 * TILES_A_RANGE ? TILES_A_RANGE : grain, n_threads, copy_tiles, &task);
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
