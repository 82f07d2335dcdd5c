/* copy_tiles.c: copies that permute axes.
 *
 * Out and in are contiguous along different axes. A tile is a product of two groups of axes: `down`, the output's
 * innermost, so that the tile is written in runs along them; and `along`, the input's innermost, so that it is read
 * in runs along those. A group has as many axes as a run needs to be long enough, and a table of offsets gives where
 * each run begins; so permutations of any number of axes are one case. The unit that moves is contiguous in both: an
 * element, which is transposed in registers, or a cell of several elements, which is copied.
 *
 * A tile of elements is loaded into a buffer in rows and transposed from there. Only units of 4 and 8 bytes are
 * transposed: narrower elements are interleaved while they are loaded, as many rows as fill 4 bytes, so that a block
 * of whole output lines fits in registers.
 *
 * The reasons for the sizes, measured on a Neoverse V1 (docs/einops.md has results):
 *   - A store of a few bytes is expensive, even if it stays in the L1 cache: with one per line a plain copy reaches
 *     two thirds of its speed, with one per four lines four fifths. It probably ends a mode in which a core writes
 *     whole lines without reading them first. The loops here therefore store only whole lines: no counters in
 *     memory, no spilled registers, no tables.
 *   - Reading dominates, since a core waits for lines. Lines are therefore prefetched three tiles ahead, each row
 *     together with the row at the same place that is loaded. Usually both are in the same page, and a TLB miss
 *     costs more than the prefetch; prefetching during the transpose was slower for that reason. The core drops
 *     prefetches if more than one is issued in about 6 cycles.
 *   - TLB entries cover 4 KiB, even with huge pages, if the hypervisor uses small ones. The TLB is indexed by the
 *     low bits of the page number: of 2048 entries, rows 16 KiB apart share 512, rows 256 KiB apart 32. Tiles of
 *     elements therefore follow each other along the input until they have written to 512 pages, and then along the
 *     output, so that the entries of one tile serve the next. Tiles are as square as the buffer allows: each row and
 *     each run is a page.
 *   - Runs that are read have 128 or 256 bytes. From 1024 bytes the hardware prefetcher detects a stream and fetches
 *     beyond the run, which is wasted: reading takes twice as long. Cells are different: 8 by 16 of them were
 *     best, of 128 to 512 bytes each.
 *   - Clearing lines first (dc zva) was slower, non-temporal stores and loads as fast. So was a second buffer that
 *     is filled while the first is transposed, and interleaving with st2. Handling runs that start within a line
 *     separately was slower.
 */
#include "base/scratch.h"
#include "device/cpu/ops/copy_tiles.h"

#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = 64,
    DOWN_BYTES = 512, /* contiguous bytes that a tile writes; half of it for narrow elements */
    MOST_DOWN = 256,  /* elements */
    MOST_ALONG = 128,
    ROW_BYTES = 256, /* of the buffer; twice that for narrow elements. 128 to 256 contiguous bytes are read */
    BUFFER_BYTES = 128 * (ROW_BYTES + LINE_BYTES),
    SPAN_RUNS = 512, /* tiles advance along the input for this many runs of the output, then along the output */
    TILES_AHEAD = 3, /* tiles of prefetch distance */
    CELL_MIN_BYTES = 16,
    CELL_MAX_BYTES = 512,   /* longer ones need no tile */
    CELL_DOWN_BYTES = 1024, /* contiguous bytes that a tile of cells writes, but at least the next number of cells */
    CELL_MIN_DOWN = 16,
    CELL_ALONG_BYTES = 512, /* contiguous bytes that it reads, likewise */
    CELL_MIN_ALONG = 8,
    CELL_SPAN_BYTES = 1 << 20,
    MIN_DOWN = 8,  /* elements: with fewer on a side, a tile is not worth it */
    MIN_ALONG = 8, /* likewise */
    TILES_A_RANGE = 16,
};

typedef uint8_t vector __attribute__((vector_size(16)));
typedef uint8_t vector_memory __attribute__((vector_size(16), aligned(1), may_alias));

/* Rows of a later tile, prefetched a few at a time while this one is loaded: of many prefetches at once most would be
 * dropped. */
struct ahead {
    const char *base;
    const int64_t *offset;
    int64_t n_rows, row_bytes;
};

VECTOR_INLINE void ask(const struct ahead *ahead, int64_t row) {
    const char *at = ahead->base + ahead->offset[row], *end = at + ahead->row_bytes;
    for (at -= (uintptr_t)at % LINE_BYTES; at < end; at += LINE_BYTES) __builtin_prefetch(at, 0, 2);
}

/* Swaps every second block of `a` with the block before it of `b`; blocks have 8 or 4 bytes. */
VECTOR_INLINE void swap_8(vector *a, vector *b) {
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

#define T uint32_t
#define NAME(name) name##_4
#include "device/cpu/ops/copy_transpose_template.h"
#define T uint64_t
#define NAME(name) name##_8
#include "device/cpu/ops/copy_transpose_template.h"

/* Elements of two rows by turns. */
VECTOR_INLINE void zip_2(vector *low, vector *high, vector a, vector b) {
    typedef uint16_t lanes __attribute__((vector_size(16)));
    const lanes x = (lanes)a, y = (lanes)b;
    *low = (vector)__builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);
    *high = (vector)__builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
}

VECTOR_INLINE void zip_1(vector *low, vector *high, vector x, vector y) {
    *low = __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *high = __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* How many rows of elements make one row of units, and their distance in the buffer: not a power of two, since such
 * rows would conflict in the L1 cache. */
VECTOR_INLINE int64_t zipped(int64_t element) { return element < 4 ? 4 / element : 1; }
VECTOR_INLINE int64_t row_step(int64_t element) { return (element < 4 ? 2 * ROW_BYTES : ROW_BYTES) + LINE_BYTES; }

VECTOR_INLINE vector load(const char *at) { return *(const vector_memory *)(const void *)at; }

VECTOR_INLINE void store_line(char *to, const vector *a) {
    for (int k = 0; k < LINE_BYTES / 16; k++) *(vector_memory *)(void *)(to + 16 * k) = a[k];
}

/* Interleaves rows of elements into one row of units: whole lines of units first, then the rest one by one. */
VECTOR_INLINE void zip_rows(char *to, const char *const *row, int64_t n, int64_t element, int64_t n_rows) {
    const int64_t step = LINE_BYTES / n_rows, bytes = n * element;
    int64_t at = 0;
    for (; at + step <= bytes; at += step) {
        vector a[4];
        if (n_rows == 1) {
            for (int k = 0; k < 4; k++) a[k] = load(row[0] + at + 16 * k);
        } else if (n_rows == 2) {
            zip_2(&a[0], &a[1], load(row[0] + at), load(row[1] + at));
            zip_2(&a[2], &a[3], load(row[0] + at + 16), load(row[1] + at + 16));
        } else {
            vector b[4];
            zip_1(&b[0], &b[1], load(row[0] + at), load(row[1] + at));
            zip_1(&b[2], &b[3], load(row[2] + at), load(row[3] + at));
            zip_2(&a[0], &a[1], b[0], b[2]);
            zip_2(&a[2], &a[3], b[1], b[3]);
        }
        store_line(to + at * n_rows, a);
    }
    for (; at < bytes; at += element)
        for (int64_t k = 0; k < n_rows; k++) memcpy(to + at * n_rows + k * element, row[k] + at, (size_t)element);
}

/* Axes that tiles take together, the innermost first. */
struct group {
    int n_axes;
    int axis[TL_MAX_RANK];
};

/* A number of steps along an axis, each of `step` tiles. */
struct level {
    int axis;
    int64_t count, step;
};

struct task {
    const struct iterate *walk; /* operands: out, in */
    tl_dtype out_dtype, in_dtype;
    int64_t out_unit, in_unit; /* bytes that move as one */
    bool has_cells;
    struct group down, along;
    int order[TL_MAX_RANK];              /* the axes by the input's strides, the smallest first */
    int64_t tile[TL_MAX_RANK];           /* how much of an axis a tile has */
    struct level level[TL_MAX_RANK + 1]; /* the order of tiles: the first level varies fastest */
    int n_levels;
    int64_t n_tiles;
    const int64_t *from; /* offset of each run along the input from the tile's start */
    const int64_t *to;   /* and each run of the output */
};

/* A smaller tile at an edge uses the beginnings of the tables: only a group's outermost axis is ever cut. */
struct tile {
    char *out;
    const char *in;
    int64_t n_down, n_along;
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

/* The axis with a stride of `bytes`, other than `but` and those of `other`; or -1. */
static int axis_after(const struct task *task, int operand, int64_t bytes, int but, const struct group *other) {
    for (int axis = 0; axis < task->walk->rank; axis++)
        if (axis != but && task->walk->stride[operand][axis] == bytes && !is_taken(other, axis)) return axis;
    return -1;
}

/* The size of equal parts of an axis: at most `most`, a multiple of `step`. */
static int64_t part_of(int64_t size, int64_t most, int64_t step) {
    if (size <= most) return size;
    const int64_t n = (size - 1) / most + 1;
    return smaller(most, larger(1, ((size - 1) / n + step) / step * step));
}

/* Takes axes until the operand's run has `most` units: inner axes whole, the last one perhaps in parts. Returns the
 * run's length in units. */
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

/* Elements of the output's size, transposed in registers. `inner` is the axis they consist of, or -1. */
static bool plan_elements(struct task *task, int inner) {
    const int64_t wide = larger(4, task->out_unit);
    const int64_t most_down = (wide > task->out_unit ? DOWN_BYTES / 2 : DOWN_BYTES) / task->out_unit;
    const int64_t most_along = (row_step(task->out_unit) - LINE_BYTES) / wide;
    const struct group none = {0};
    const int64_t n_down =
        take_axes(task, &task->down, 0, task->out_unit, most_down, LINE_BYTES / task->out_unit, inner, &none);
    const int64_t n_along =
        take_axes(task, &task->along, 1, task->in_unit, most_along, LINE_BYTES / wide, inner, &task->down);
    return n_down >= MIN_DOWN && n_along >= MIN_ALONG;
}

/* If the innermost axis is contiguous in both, its run is the unit that moves. */
static bool plan_cells(struct task *task) {
    const int inner = task->walk->rank - 1;
    const int64_t bytes = task->walk->size[inner] * task->out_unit;
    if (task->out_dtype != task->in_dtype || inner < 2 || bytes > CELL_MAX_BYTES) return false;
    task->out_unit = task->in_unit = bytes;
    task->tile[inner] = task->walk->size[inner];
    if (bytes == 2 || bytes == 4 || bytes == 8) return plan_elements(task, inner);
    if (bytes < CELL_MIN_BYTES) return false;
    task->has_cells = true;
    const struct group none = {0};
    const int64_t most_down = larger(CELL_MIN_DOWN, CELL_DOWN_BYTES / bytes);
    const int64_t most_along = larger(CELL_MIN_ALONG, CELL_ALONG_BYTES / bytes);
    const int64_t n_down = take_axes(task, &task->down, 0, bytes, most_down, 1, inner, &none);
    const int64_t n_along = take_axes(task, &task->along, 1, bytes, most_along, 1, inner, &task->down);
    return n_down > 1 && n_along > 1;
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------ */

/* Offsets of all positions of a group: of one axis they are a stride apart, and each further axis repeats them. */
static void spread(int64_t *table, const struct task *task, const struct group *group, int operand) {
    int64_t n = 1;
    table[0] = 0;
    for (int i = 0; i < group->n_axes; i++) {
        const int axis = group->axis[i];
        const int64_t stride = task->walk->stride[operand][axis];
        for (int64_t k = 1; k < task->tile[axis]; k++)
            for (int64_t j = 0; j < n; j++) table[k * n + j] = table[j] + k * stride;
        n *= task->tile[axis];
    }
}

static void add_level(struct task *task, int axis, int64_t count, int64_t step) {
    if (count == 1) return;
    task->level[task->n_levels++] = (struct level){axis, count, step};
    task->n_tiles *= count;
}

/* Along the input for a span, then along the output's innermost cut axis, then along the input to the end. If a span
 * does not divide the axis that it cuts, the last span has positions without a tile; find_tile returns an empty one. */
static void order_tiles(struct task *task) {
    const int down = task->down.axis[task->down.n_axes - 1];
    const int64_t n_down = tiles_along(task, down);
    const int64_t most = task->has_cells ? CELL_SPAN_BYTES : SPAN_RUNS * task->in_unit;
    bool is_open = true;
    task->n_tiles = 1;
    for (int k = 0; k < task->walk->rank; k++) {
        const int axis = task->order[k];
        if (axis == down) continue;
        const int64_t n = tiles_along(task, axis);
        const int64_t bytes = larger(1, task->tile[axis] * magnitude(task->walk->stride[1][axis]));
        if (is_open && n * bytes >= most) {
            const int64_t n_spans = (n * bytes - 1) / most + 1, span = (n - 1) / smaller(n, n_spans) + 1;
            is_open = false;
            add_level(task, axis, span, 1);
            add_level(task, down, n_down, 1);
            add_level(task, axis, (n - 1) / span + 1, span);
        } else {
            add_level(task, axis, n, 1);
        }
    }
    if (is_open) add_level(task, down, n_down, 1);
}

static struct tile find_tile(const struct task *task, int64_t number) {
    const struct iterate *walk = task->walk;
    int64_t place[TL_MAX_RANK] = {0};
    struct tile tile = {.out = walk->data[0], .in = walk->data[1], .n_down = 1, .n_along = 1};
    for (int k = 0; k < task->n_levels; k++) {
        const struct level *level = &task->level[k];
        place[level->axis] += number % level->count * level->step * task->tile[level->axis];
        number /= level->count;
    }
    for (int axis = 0; axis < walk->rank; axis++) {
        tile.out += place[axis] * walk->stride[0][axis];
        tile.in += place[axis] * walk->stride[1][axis];
        if (place[axis] >= walk->size[axis]) tile.n_down = 0;
    }
    for (int i = 0; i < task->down.n_axes; i++) {
        const int axis = task->down.axis[i];
        tile.n_down *= smaller(task->tile[axis], walk->size[axis] - place[axis]);
    }
    for (int i = 0; i < task->along.n_axes; i++) {
        const int axis = task->along.axis[i];
        tile.n_along *= smaller(task->tile[axis], walk->size[axis] - place[axis]);
    }
    return tile;
}

/* Loads a tile's rows into the buffer, `zip` of them interleaved. Each load also prefetches a row of a later tile,
 * usually in the same page, so that both use the same TLB entry. */
VECTOR_INLINE void fill_rows(const char *in, const int64_t *from, int64_t n_down, int64_t n_along,
                             const struct ahead *ahead, char *buffer, int64_t element) {
    const int64_t zip = zipped(element), step = row_step(element);
    for (int64_t i = 0; i < n_down; i += zip) {
        const char *row[4];
        for (int64_t k = i; k < smaller(i + zip, ahead->n_rows); k++) ask(ahead, k);
        for (int64_t k = 0; k < zip; k++) row[k] = in + from[smaller(i + k, n_down - 1)];
        zip_rows(buffer, row, n_along, element, zip);
        buffer += step;
    }
}

/* The same with conversion. It is a separate function because calls would make the other loop spill registers. */
__attribute__((noinline)) static void fill_converted(const struct task *task, const struct tile *tile,
                                                     const struct ahead *ahead, char *buffer, int64_t element) {
    char converted[4][MOST_ALONG * 8];
    const char *const row[4] = {converted[0], converted[1], converted[2], converted[3]};
    for (int64_t i = 0; i < tile->n_down; i += zipped(element)) {
        for (int64_t k = i; k < smaller(i + zipped(element), ahead->n_rows); k++) ask(ahead, k);
        for (int64_t k = 0; k < zipped(element); k++)
            convert(converted[k], task->out_dtype, 1, tile->in + task->from[smaller(i + k, tile->n_down - 1)],
                    task->in_dtype, 1, tile->n_along, CONVERT_NEAREST, NULL);
        zip_rows(buffer, row, tile->n_along, element, zipped(element));
        buffer += row_step(element);
    }
}

/* The elements from row `down` and column `along` on, one by one. */
VECTOR_INLINE void turn_rest(const struct task *task, const struct tile *tile, const char *buffer, int64_t element,
                             int64_t down, int64_t along) {
    const int64_t zip = zipped(element);
    for (int64_t j = 0; j < tile->n_along; j++)
        for (int64_t i = j < along ? down : 0; i < tile->n_down; i++)
            memcpy(tile->out + task->to[j] + i * element,
                   buffer + i / zip * row_step(element) + (j * zip + i % zip) * element, (size_t)element);
}

/* One tile of elements. Their size is a constant here: with constant steps no register is spilled. */
VECTOR_INLINE void turn_tile(const struct task *task, const struct tile *tile, const struct ahead *ahead, char *buffer,
                             int64_t element) {
    const int64_t zip = zipped(element), step = row_step(element);
    const int64_t n_lines = tile->n_down * element / LINE_BYTES;
    const int64_t n_columns = tile->n_along - tile->n_along % (16 / (zip * element));
    if (task->out_dtype != task->in_dtype) fill_converted(task, tile, ahead, buffer, element);
    else fill_rows(tile->in, task->from, tile->n_down, tile->n_along, ahead, buffer, element);
    if (zip * element == 4) turn_rows_4(tile->out, task->to, buffer, step, n_lines, n_columns);
    else turn_rows_8(tile->out, task->to, buffer, step, n_lines, n_columns);
    turn_rest(task, tile, buffer, element, n_lines * LINE_BYTES / element, n_columns);
}

typedef void (*turner)(const struct task *, const struct tile *, const struct ahead *, char *buffer);

static void turn_1(const struct task *task, const struct tile *tile, const struct ahead *ahead, char *buffer) {
    turn_tile(task, tile, ahead, buffer, 1);
}
static void turn_2(const struct task *task, const struct tile *tile, const struct ahead *ahead, char *buffer) {
    turn_tile(task, tile, ahead, buffer, 2);
}
static void turn_4(const struct task *task, const struct tile *tile, const struct ahead *ahead, char *buffer) {
    turn_tile(task, tile, ahead, buffer, 4);
}
static void turn_8(const struct task *task, const struct tile *tile, const struct ahead *ahead, char *buffer) {
    turn_tile(task, tile, ahead, buffer, 8);
}

/* Copies one cell and prefetches the one at `fetch`. A line is read before it is written. memcpy would be a call per
 * cell. */
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

static void copy_cells(const struct task *task, const struct tile *tile, const struct tile *ahead) {
    const int64_t unit = task->out_unit;
    const bool is_same = ahead->n_down == tile->n_down && ahead->n_along == tile->n_along;
    const char *in = tile->in, *later = is_same ? ahead->in : in;
    for (int64_t j = 0; j < tile->n_along; j++)
        for (int64_t i = 0; i < tile->n_down; i++)
            copy_cell(tile->out + task->to[j] + i * unit, in + task->from[i] + j * unit,
                      later + task->from[i] + j * unit, unit);
}

static void copy_range(void *context, int64_t first, int64_t last) {
    static const turner turners[9] = {[1] = turn_1, [2] = turn_2, [4] = turn_4, [8] = turn_8};
    const struct task *task = context;
    SCRATCH_ARRAY(char, buffer, BUFFER_BYTES);
    struct tile tiles[TILES_AHEAD + 1];
    for (int64_t number = first - TILES_AHEAD; number < last; number++) {
        const int64_t later = number + TILES_AHEAD; /* also in the next range, usually of the same thread */
        const bool is_there = later < task->n_tiles;
        if (is_there) tiles[later % (TILES_AHEAD + 1)] = find_tile(task, later);
        if (number < first) continue;
        const struct tile *tile = &tiles[number % (TILES_AHEAD + 1)];
        const struct tile *asked = is_there ? &tiles[later % (TILES_AHEAD + 1)] : tile;
        if (task->has_cells) {
            copy_cells(task, tile, asked);
            continue;
        }
        const struct ahead ahead = {.base = asked->in,
                                    .offset = task->from,
                                    .n_rows = is_there ? asked->n_down : 0,
                                    .row_bytes = asked->n_along * task->in_unit};
        turners[task->out_unit](task, tile, &ahead, buffer);
    }
}

bool copy_tiles(const struct iterate *walk, tl_dtype out_dtype, tl_dtype in_dtype, int n_threads) {
    int64_t from[MOST_DOWN], to[MOST_ALONG];
    struct task task = {.walk = walk, .out_dtype = out_dtype, .in_dtype = in_dtype, .from = from, .to = to};
    task.out_unit = iterate_element_bytes(out_dtype);
    task.in_unit = iterate_element_bytes(in_dtype);
    if (walk->n == 0) return false;
    order_axes(&task);
    const bool has_cells = walk->step[0] == task.out_unit && walk->step[1] == task.in_unit;
    if (!(has_cells ? plan_cells(&task) : plan_elements(&task, -1))) return false;
    spread(from, &task, &task.down, 1);
    spread(to, &task, &task.along, 0);
    order_tiles(&task);

    int64_t tile_elements = 1;
    for (int axis = 0; axis < walk->rank; axis++) tile_elements *= task.tile[axis];
    const int64_t grain = larger(parallel_grain(tile_elements), task.n_tiles > 32 * TILES_A_RANGE ? TILES_A_RANGE : 1);
    parallel_for(task.n_tiles, grain, n_threads, copy_range, &task);
    return true;
}
