/* copy_tiles.c: copies that permute axes.
 *
 * Out and in are contiguous along different axes. A tile is a product of two groups of axes: `down`, the output's innermost, so
 * that the tile is written in runs along them; and `along`, the input's innermost, so that it is read in runs along those. A group
 * has as many axes as a run needs to be long enough, and a table of addresses gives where each run begins; so
 * permutations of any number of axes are one case. What is contiguous in both is the unit that moves: an element, which is turned in
 * registers, or a cell of several, which is copied.
 *
 * What the sizes are for, measured on a Neoverse V1 (docs/einops.md has the result):
 *   - Reading is what takes time, since a core waits for lines. So rows are brought into a buffer in whole runs, and lines of the next
 *     tile are asked for all the while, one here and one there: filling the buffer and turning it would otherwise leave memory idle in turn.
 *   - Runs that are read have 256 to 512 bytes. From 1024 on the core's own prefetcher sees a stream and fetches what lies behind the
 *     run, which is thrown away: reading takes twice as long.
 *   - Writing whole lines takes nearly nothing if runs have 512 bytes or more, and half of the speed if they have 64. A run is written
 *     to its end before the next, so that few pages are in use. Clearing lines first (dc zva) was slower, non-temporal stores mostly as fast.
 *   - Addresses are translated for 4 KiB at a time, even where pages are huge, if a hypervisor has them in small pieces. Tiles
 *     follow each other as they lie in the input: then the pages of one tile serve the next.
 */
#include "device/cpu/copy_tiles.h"

#include "device/cpu/parallel.h"
#include "device/cpu/vector_math.h"
#include "ops/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = 64,
    DOWN_BYTES = 512,  /* what a tile writes at one place */
    ALONG_BYTES = 256, /* what it reads at one place */
    ROW_BYTES = ALONG_BYTES +
                LINE_BYTES, /* of the buffer: not a power of two, whose rows would share lines of the first cache */
    MOST_DOWN = 256,
    CELL_MIN_BYTES = 16,
    CELL_MAX_BYTES = 512,   /* longer ones need no tile */
    CELL_DOWN_BYTES = 2048, /* what a tile of cells writes at one place */
    CELL_ALONG_BYTES = 512, /* what it reads at one place */
    MIN_DOWN = 8,           /* elements: with fewer on a side, a tile is not worth it */
    MIN_ALONG = 8,          /* likewise */
    TILES_A_RANGE = 16,
};

typedef uint8_t vector __attribute__((vector_size(16)));
typedef uint8_t vector_memory __attribute__((vector_size(16), aligned(1), may_alias));

/* Rows that a later tile will read, asked for bit by bit: as many at each of a number of calls. Memory has work all the time then, while
 * asking for many at once would stop the core until most have come. */
struct fetch {
    const char *const *row;
    int64_t n_rows, row_bytes;
    int64_t next; /* the first row that was not asked for */
    int64_t due, each, n_calls;
};

/* The rows that are left are spread over n_calls calls. */
VECTOR_INLINE void fetch_plan(struct fetch *fetch, int64_t n_calls) {
    fetch->each = fetch->n_rows - fetch->next;
    fetch->n_calls = n_calls;
    fetch->due = 0;
}

VECTOR_INLINE void fetch_some(struct fetch *fetch) {
    for (fetch->due += fetch->each; fetch->due >= fetch->n_calls; fetch->due -= fetch->n_calls) {
        const char *row = fetch->row[fetch->next++];
        for (int64_t at = 0; at < fetch->row_bytes; at += LINE_BYTES) __builtin_prefetch(row + at, 0, 2);
    }
}

/* Every second block of `a` changes places with the one before it of `b`; blocks have 8, 4, 2 or 1 bytes. By lanes where there are two
 * of them, which takes other units of the core than shuffles do. */
VECTOR_INLINE void swap_8(vector *a, vector *b) {
    typedef uint64_t lanes __attribute__((vector_size(16)));
    lanes low = (lanes)*a, high = (lanes)*b;
    const uint64_t up = low[1];
    low[1] = high[0];
    high[0] = up;
    *a = (vector)low;
    *b = (vector)high;
}

/* The same by shuffles, which is faster where little else is shuffled. */
VECTOR_INLINE void shuffle_8(vector *a, vector *b) {
    typedef uint64_t lanes __attribute__((vector_size(16)));
    const lanes x = (lanes)*a, y = (lanes)*b;
    *a = (vector)__builtin_shufflevector(x, y, 0, 2);
    *b = (vector)__builtin_shufflevector(x, y, 1, 3);
}

VECTOR_INLINE void swap_4(vector *a, vector *b) {
    typedef uint32_t lanes __attribute__((vector_size(16)));
    const lanes x = (lanes)*a, y = (lanes)*b;
    *a = (vector)__builtin_shufflevector(x, y, 0, 4, 2, 6);
    *b = (vector)__builtin_shufflevector(x, y, 1, 5, 3, 7);
}

VECTOR_INLINE void swap_2(vector *a, vector *b) {
    typedef uint16_t lanes __attribute__((vector_size(16)));
    const lanes x = (lanes)*a, y = (lanes)*b;
    *a = (vector)__builtin_shufflevector(x, y, 0, 8, 2, 10, 4, 12, 6, 14);
    *b = (vector)__builtin_shufflevector(x, y, 1, 9, 3, 11, 5, 13, 7, 15);
}

VECTOR_INLINE void swap_1(vector *a, vector *b) {
    const vector x = *a, y = *b;
    *a = __builtin_shufflevector(x, y, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    *b = __builtin_shufflevector(x, y, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}

#define T uint8_t
#define NAME(name) name##_1
#include "device/cpu/turn_template.h"
#define T uint16_t
#define NAME(name) name##_2
#include "device/cpu/turn_template.h"
#define T uint32_t
#define NAME(name) name##_4
#include "device/cpu/turn_template.h"
#define T uint64_t
#define NAME(name) name##_8
#include "device/cpu/turn_template.h"

typedef void (*turner)(char *const *to, const char *from, int64_t from_step, int64_t n_from, int64_t n_to,
                       struct fetch *fetch);

/* Axes that tiles take together, the innermost first. */
struct group {
    int n_axes;
    int axis[TL_MAX_RANK];
};

struct task {
    const struct iterate *walk; /* operands: out, in */
    tl_dtype out_dtype, in_dtype;
    int64_t out_unit, in_unit; /* bytes of what moves as one */
    turner turn;               /* NULL: cells */
    struct group down, along;
    int order[TL_MAX_RANK];    /* the axes by the input's strides, the smallest first: so tiles follow each other */
    int64_t tile[TL_MAX_RANK]; /* how much of an axis a tile has */
    int64_t n_tiles;
};

struct tile {
    int64_t n_down, n_along;
    const char *from[MOST_DOWN]; /* n_down: where the run along the input begins */
    char *to[ALONG_BYTES];       /* n_along: where the run of the output begins */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* ---- The plan ------------------------------------------------------------------------------------------------- */

static int64_t tiles_along(const struct task *task, int axis) {
    return (task->walk->size[axis] - 1) / task->tile[axis] + 1;
}

static bool is_taken(const struct group *group, int axis) {
    for (int i = 0; i < group->n_axes; i++)
        if (group->axis[i] == axis) return true;
    return false;
}

/* The axis along which an operand goes on `bytes` behind its beginning, other than `but` and what `other` has; or -1. */
static int axis_after(const struct task *task, int operand, int64_t bytes, int but, const struct group *other) {
    for (int axis = 0; axis < task->walk->rank; axis++)
        if (axis != but && task->walk->stride[operand][axis] == bytes && !is_taken(other, axis)) return axis;
    return -1;
}

/* Equal parts of an axis, of at most `most` and in whole `steps`. */
static int64_t part_of(int64_t size, int64_t most, int64_t step) {
    if (size <= most) return size;
    const int64_t n = (size - 1) / most + 1;
    return smaller(most, larger(1, ((size - 1) / n + step) / step * step));
}

/* Takes axes until the operand's run has `most` units: inner axes whole, the last one perhaps in parts. Gives the run's units. */
static int64_t take_axes(struct task *task, struct group *group, int operand, int64_t unit, int64_t most, int64_t step,
                         int but, const struct group *other) {
    int64_t n = 1;
    for (int axis; (axis = axis_after(task, operand, n * unit, but, other)) >= 0;) {
        const int64_t size = task->walk->size[axis], part = part_of(size, most / n, n == 1 ? step : 1);
        group->axis[group->n_axes++] = axis;
        task->tile[axis] = part;
        n *= part;
        if (part < size || 2 * n > most) break;
    }
    return n;
}

static void order_axes(struct task *task) {
    for (int axis = 0; axis < task->walk->rank; axis++) {
        int at = axis;
        const int64_t stride = magnitude(task->walk->stride[1][axis]);
        for (; at > 0 && stride < magnitude(task->walk->stride[1][task->order[at - 1]]); at--)
            task->order[at] = task->order[at - 1];
        task->order[at] = axis;
        task->tile[axis] = 1;
    }
}

/* Elements of the size of the output's, turned in registers. `inner` is the axis that they are made of, or -1. */
static bool plan_elements(struct task *task, int inner) {
    static const turner turners[9] = {[1] = turn_1, [2] = turn_2, [4] = turn_4, [8] = turn_8};
    const int64_t wide = larger(task->out_unit, task->in_unit); /* a converted row fits the buffer */
    task->turn = turners[task->out_unit];
    const struct group none = {0};
    const int64_t most = smaller(MOST_DOWN, DOWN_BYTES / task->out_unit);
    const int64_t n_down =
        take_axes(task, &task->down, 0, task->out_unit, most, LINE_BYTES / task->out_unit, inner, &none);
    const int64_t n_along =
        take_axes(task, &task->along, 1, task->in_unit, ALONG_BYTES / wide, LINE_BYTES / wide, inner, &task->down);
    return task->turn && n_down >= MIN_DOWN && n_along >= MIN_ALONG;
}

/* Where the innermost axis is contiguous in both, its run is what moves. */
static bool plan_cells(struct task *task) {
    const int inner = task->walk->rank - 1;
    const int64_t bytes = task->walk->size[inner] * task->out_unit;
    if (task->out_dtype != task->in_dtype || inner < 2 || bytes > CELL_MAX_BYTES) return false;
    task->out_unit = task->in_unit = bytes;
    task->tile[inner] = task->walk->size[inner];
    if (bytes == 2 || bytes == 4 || bytes == 8) return plan_elements(task, inner);
    if (bytes < CELL_MIN_BYTES) return false;
    const struct group none = {0};
    const int64_t most_down = CELL_DOWN_BYTES / bytes, most_along = larger(2, CELL_ALONG_BYTES / bytes);
    const int64_t n_down = take_axes(task, &task->down, 0, bytes, most_down, 1, inner, &none);
    const int64_t n_along = take_axes(task, &task->along, 1, bytes, most_along, 1, inner, &task->down);
    return n_down > 1 && n_along > 1;
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------ */

/* Addresses of all positions of a group: of one axis they are a stride apart, and each further axis repeats them. */
static int64_t spread(char **table, char *base, const struct task *task, const struct group *group, int operand,
                      const int64_t *extent) {
    int64_t n = 1;
    table[0] = base;
    for (int i = 0; i < group->n_axes; i++) {
        const int axis = group->axis[i];
        const int64_t stride = task->walk->stride[operand][axis];
        for (int64_t k = 1; k < extent[axis]; k++)
            for (int64_t j = 0; j < n; j++) table[k * n + j] = table[j] + k * stride;
        n *= extent[axis];
    }
    return n;
}

static void find_tile(const struct task *task, int64_t number, struct tile *tile) {
    const struct iterate *walk = task->walk;
    int64_t extent[TL_MAX_RANK];
    char *at[2] = {walk->data[0], walk->data[1]};
    for (int k = 0; k < walk->rank; k++) {
        const int axis = task->order[k];
        const int64_t n = tiles_along(task, axis), first = number % n * task->tile[axis];
        number /= n;
        extent[axis] = smaller(task->tile[axis], walk->size[axis] - first);
        for (int i = 0; i < 2; i++) at[i] += first * walk->stride[i][axis];
    }
    tile->n_down = spread((char **)(uintptr_t)tile->from, at[1], task, &task->down, 1, extent);
    tile->n_along = spread(tile->to, at[0], task, &task->along, 0, extent);
}

/* Brings a tile's rows into `rows`, converted, and asks for the first half of the next tile. */
static void fill_rows(const struct task *task, const struct tile *tile, struct fetch *fetch, char *rows) {
    const int64_t bytes = tile->n_along * task->in_unit;
    fetch_plan(fetch, 2 * tile->n_down);
    for (int64_t i = 0; i < tile->n_down; i++) {
        fetch_some(fetch);
        if (task->out_dtype != task->in_dtype)
            convert(rows + i * ROW_BYTES, task->out_dtype, 1, tile->from[i], task->in_dtype, 1, tile->n_along,
                    CONVERT_NEAREST, NULL);
        else if (bytes == ALONG_BYTES) memcpy(rows + i * ROW_BYTES, tile->from[i], ALONG_BYTES);
        else memcpy(rows + i * ROW_BYTES, tile->from[i], (size_t)bytes);
    }
}

/* One cell, while the one at `fetch` is asked for. A line is read before it is written: a library's memcpy would be a call for each. */
VECTOR_INLINE void copy_cell(char *to, const char *from, const char *fetch, int64_t bytes) {
    int64_t at = 0;
    for (; at + LINE_BYTES <= bytes; at += LINE_BYTES) {
        vector line[LINE_BYTES / 16];
        __builtin_prefetch(fetch + at, 0, 2);
        for (int k = 0; k < LINE_BYTES / 16; k++) line[k] = *(const vector_memory *)(const void *)(from + at + 16 * k);
        for (int k = 0; k < LINE_BYTES / 16; k++) *(vector_memory *)(void *)(to + at + 16 * k) = line[k];
    }
    if (at == bytes) return;
    __builtin_prefetch(fetch + at, 0, 2);
    memcpy(to + at, from + at, (size_t)(bytes - at));
}

static void copy_cells(const struct task *task, const struct tile *tile, const struct tile *next) {
    const int64_t unit = task->out_unit;
    const bool fetches = next && next->n_down == tile->n_down && next->n_along == tile->n_along;
    for (int64_t j = 0; j < tile->n_along; j++)
        for (int64_t i = 0; i < tile->n_down; i++)
            copy_cell(tile->to[j] + i * unit, tile->from[i] + j * unit, (fetches ? next : tile)->from[i] + j * unit,
                      unit);
}

static void copy_range(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    _Alignas(64) char rows[MOST_DOWN * ROW_BYTES];
    struct tile tiles[2];
    find_tile(task, first, &tiles[first % 2]);
    for (int64_t number = first; number < last; number++) {
        const struct tile *tile = &tiles[number % 2], *next = NULL;
        if (number + 1 < task->n_tiles) { /* of the next range as well: most often the same thread takes it */
            find_tile(task, number + 1, &tiles[(number + 1) % 2]);
            next = &tiles[(number + 1) % 2];
        }
        if (task->turn) {
            struct fetch fetch = {0};
            if (next)
                fetch = (struct fetch){
                    .row = next->from, .n_rows = next->n_down, .row_bytes = next->n_along * task->in_unit};
            fill_rows(task, tile, &fetch, rows);
            task->turn(tile->to, rows, ROW_BYTES, tile->n_down, tile->n_along, &fetch);
        } else {
            copy_cells(task, tile, next);
        }
    }
}

bool copy_tiles(const struct iterate *walk, tl_dtype out_dtype, tl_dtype in_dtype, int n_threads) {
    struct task task = {.walk = walk, .out_dtype = out_dtype, .in_dtype = in_dtype};
    task.out_unit = iterate_element_bytes(out_dtype);
    task.in_unit = iterate_element_bytes(in_dtype);
    if (walk->n == 0) return false;
    order_axes(&task);
    const bool has_cells = walk->step[0] == task.out_unit && walk->step[1] == task.in_unit;
    if (!(has_cells ? plan_cells(&task) : plan_elements(&task, -1))) return false;

    int64_t tile_elements = 1;
    task.n_tiles = 1;
    for (int axis = 0; axis < walk->rank; axis++) {
        task.n_tiles *= tiles_along(&task, axis);
        tile_elements *= task.tile[axis];
    }
    const int64_t grain = larger(parallel_grain(tile_elements), task.n_tiles > 32 * TILES_A_RANGE ? TILES_A_RANGE : 1);
    parallel_for(task.n_tiles, grain, n_threads, copy_range, &task);
    return true;
}
