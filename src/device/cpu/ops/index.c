/* index.c: gather, scatter, advanced indexing.
 *
 * Each call moves elements between a *table* (the tensor that is indexed) and *slots* (the elements fetched from it
 * or written to it), in one of three ways: fetch, put, add. All indices are checked before a table is written, and
 * the error names the first invalid one.
 *
 * Order. Two slots share a place in the table only if they agree in all axes without an index. Writers are therefore
 * split along these axes, and each range visits its slots in row-major order: which write is last, and the order of a
 * sum, do not depend on the number of threads. Readers are split in the fastest way.
 *
 * Sums of 16-bit and 8-bit floats grow in an f32 copy of the table, in the workspace, and are rounded once.
 */
#include "device/cpu/ops/copy.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 512, ERROR_BYTES = 200 };

#define PLUS(a, b) ((a) + (b))
#define WRAP(type, a, b) ((type)((a) + (b)))
#define EITHER(a, b) ((a) || (b))

#define T uint8_t
#define NAME(name) name##_1
#include "device/cpu/ops/index_template.h"
#define T uint16_t
#define NAME(name) name##_2
#include "device/cpu/ops/index_template.h"
#define T uint32_t
#define NAME(name) name##_4
#include "device/cpu/ops/index_template.h"
#define T uint64_t
#define NAME(name) name##_8
#include "device/cpu/ops/index_template.h"

#define T float
#define NAME(name) name##_f32
#define ADD(a, b) PLUS(a, b)
#include "device/cpu/ops/index_template.h"
#define T double
#define NAME(name) name##_f64
#define ADD(a, b) PLUS(a, b)
#include "device/cpu/ops/index_template.h"
#define T uint8_t
#define NAME(name) name##_i8
#define ADD(a, b) WRAP(uint8_t, a, b)
#include "device/cpu/ops/index_template.h"
#define T uint16_t
#define NAME(name) name##_i16
#define ADD(a, b) WRAP(uint16_t, a, b)
#include "device/cpu/ops/index_template.h"
#define T uint32_t
#define NAME(name) name##_i32
#define ADD(a, b) WRAP(uint32_t, a, b)
#include "device/cpu/ops/index_template.h"
#define T uint64_t
#define NAME(name) name##_i64
#define ADD(a, b) WRAP(uint64_t, a, b)
#include "device/cpu/ops/index_template.h"
#define T uint8_t
#define NAME(name) name##_bool
#define ADD(a, b) EITHER(a, b)
#include "device/cpu/ops/index_template.h"

struct way {
    void (*line)(char *table, int64_t table_step, const int64_t *id, int64_t id_step, char *slot, int64_t slot_step,
                 int64_t n);
    void (*row)(char *table, int64_t table_step, char *slot, int64_t slot_step, int64_t n);
};

/* By bytes of an element. */
static const struct way fetches[9] = {[1] = {fetch_line_1, fetch_row_1},
                                      [2] = {fetch_line_2, fetch_row_2},
                                      [4] = {fetch_line_4, fetch_row_4},
                                      [8] = {fetch_line_8, fetch_row_8}};
static const struct way puts_[9] = {[1] = {put_line_1, put_row_1},
                                    [2] = {put_line_2, put_row_2},
                                    [4] = {put_line_4, put_row_4},
                                    [8] = {put_line_8, put_row_8}};
/* By the table's dtype; floats not listed here are added in f32. Integers wrap, so signed and unsigned are alike. */
static const struct way adds[TL_DTYPE_COUNT] = {
    [TL_F64] = {add_line_f64, add_row_f64},   [TL_F32] = {add_line_f32, add_row_f32},
    [TL_I64] = {add_line_i64, add_row_i64},   [TL_I32] = {add_line_i32, add_row_i32},
    [TL_I16] = {add_line_i16, add_row_i16},   [TL_U16] = {add_line_i16, add_row_i16},
    [TL_I8] = {add_line_i8, add_row_i8},      [TL_U8] = {add_line_i8, add_row_i8},
    [TL_BOOL] = {add_line_bool, add_row_bool}};

/* ---- Indices ---- */

/* At most CHUNK indices as an array: in place, or converted into `buffer`. */
static const int64_t *ids_read(int64_t *buffer, const char *at, tl_dtype dtype, int64_t step, int64_t n) {
    if (dtype == TL_I64 && step == 1) return (const int64_t *)(const void *)at;
    convert_to_i64(buffer, at, dtype, step, n);
    return buffer;
}

/* How many of n indices are not from `lowest` to size-1. */
static int64_t count_wrong(const int64_t *id, int64_t n, int64_t lowest, int64_t size) {
    const uint64_t width = (uint64_t)size - (uint64_t)lowest;
    int64_t n_wrong = 0;
    for (int64_t i = 0; i < n; i++) n_wrong += (uint64_t)id[i] - (uint64_t)lowest >= width;
    return n_wrong;
}

/* Checks an index tensor in row-major order of `shape`, to which it is broadcast. `add` (may be NULL): add[position]
 * += index * bytes. False, with an error that names it, at the first index out of range. */
static bool read_indices(const tl_kernel_args *args, const tl_operand *index, int rank, const int64_t *shape, int axis,
                         int64_t size, bool wraps, int64_t *add, int64_t bytes) {
    struct iterate walk;
    iterate_begin(&walk, rank, shape, &index, 1, ITERATE_ROW_MAJOR);
    const int64_t step = walk.step[0] / iterate_element_bytes(index->dtype);
    const int64_t lowest = wraps ? -size : 0;
    int64_t buffer[CHUNK];
    struct iterate_run run;
    iterate_seek(&walk, &run, 0, walk.n);
    while (iterate_next(&walk, &run, CHUNK)) {
        const int64_t *id = ids_read(buffer, run.data[0], index->dtype, step, run.length);
        if (count_wrong(id, run.length, lowest, size)) {
            while (*id >= lowest && *id < size) id++;
            snprintf(args->error, ERROR_BYTES, "index %" PRId64 " is out of bounds for dimension %d with size %" PRId64,
                     *id, axis, size);
            return false;
        }
        if (!add) continue;
        for (int64_t i = 0; i < run.length; i++) add[run.position + i] += (id[i] + (id[i] < 0 ? size : 0)) * bytes;
    }
    return true;
}

/* Checks all indices of an axis in parallel; a range reports only whether one is invalid. */
struct check {
    struct iterate walk;
    tl_dtype dtype;
    int64_t size;
    atomic_bool is_wrong;
};

static void check_range(void *context, int64_t first, int64_t last) {
    struct check *c = context;
    const int64_t step = c->walk.step[0] / iterate_element_bytes(c->dtype);
    int64_t buffer[CHUNK], n_wrong = 0;
    struct iterate_run run;
    iterate_seek(&c->walk, &run, first, last);
    while (iterate_next(&c->walk, &run, CHUNK))
        n_wrong += count_wrong(ids_read(buffer, run.data[0], c->dtype, step, run.length), run.length, 0, c->size);
    if (n_wrong) atomic_store_explicit(&c->is_wrong, true, memory_order_relaxed);
}

/* Checks that every index is from 0 to size-1; the error names the first that is not. */
static bool check_indices(const tl_kernel_args *args, const tl_operand *index, int axis, int64_t size) {
    struct check c = {.dtype = index->dtype, .size = size};
    iterate_begin(&c.walk, index->rank, index->shape, &index, 1, ITERATE_ANY_ORDER);
    parallel_for(c.walk.n, parallel_grain(1), args->n_threads, check_range, &c);
    return !atomic_load(&c.is_wrong) ||
           read_indices(args, index, index->rank, index->shape, axis, size, false, NULL, 0);
}

/* ---- The table that writers write to ---- */

/* A table in f32 for sums that must not be rounded one by one, or the output itself. */
struct table {
    tl_operand operand;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK];
    bool is_wide;
    const struct way *way;
};

/* Copies x into the output, or into its wide copy. */
static void table_begin(struct table *t, const tl_kernel_args *args, bool adds_up, void *wide) {
    const tl_operand *x = &args->in[0], *out = &args->out[0];
    t->operand = *out;
    t->is_wide = adds_up && dtype_is_float(out->dtype) && out->dtype != TL_F32 && out->dtype != TL_F64;
    t->way = t->is_wide ? &adds[TL_F32] : adds_up ? &adds[out->dtype] : &puts_[iterate_element_bytes(out->dtype)];
    if (t->is_wide) {
        t->operand.data = wide;
        t->operand.dtype = TL_F32;
        t->operand.stride = t->stride;
        int64_t step = 1;
        for (int axis = out->rank - 1; axis >= 0; axis--) {
            t->stride[axis] = step;
            step *= out->shape[axis];
        }
    }
    if (t->operand.data != x->data) copy_operand(&t->operand, x, args->n_threads);
}

static void table_end(const struct table *t, const tl_kernel_args *args) {
    if (t->is_wide) copy_operand(&args->out[0], &t->operand, args->n_threads);
}

/* Slots as the table needs them: at most CHUNK elements, converted into `buffer` if its sums are wide. */
static char *slots_read(bool is_wide, char *slot, tl_dtype dtype, int64_t *step, int64_t n, float *buffer) {
    if (!is_wide) return slot;
    convert_to_f32(buffer, slot, dtype, *step / iterate_element_bytes(dtype), n);
    *step = sizeof *buffer;
    return (char *)buffer;
}

/* ---- gather, scatter: along one axis ---- */

/* An operand without one of its axes. */
struct slim {
    tl_operand operand;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK];
};

/* Operand x, of the sizes that `like` has (x may be larger), without the axis. */
static void slim_begin(struct slim *s, const tl_operand *x, const tl_operand *like, int axis) {
    s->operand = (tl_operand){
        .data = x->data, .dtype = x->dtype, .rank = like->rank - 1, .shape = s->shape, .stride = s->stride};
    for (int i = 0, n = 0; i < like->rank; i++) {
        if (i == axis) continue;
        s->shape[n] = like->shape[i];
        s->stride[n++] = x->stride[i];
    }
}

struct gather {
    struct iterate walk; /* out, index, x with the index's sizes and stride 0 along the axis */
    tl_dtype index_dtype;
    int64_t axis_size, axis_bytes;
    const struct way *way;
    atomic_bool is_wrong; /* an index is; the fetched elements are then useless */
};

static void gather_range(void *context, int64_t first, int64_t last) {
    struct gather *g = context;
    const int64_t index_step = g->walk.step[1] / iterate_element_bytes(g->index_dtype);
    int64_t buffer[CHUNK];
    struct iterate_run run;
    iterate_seek(&g->walk, &run, first, last);
    while (iterate_next(&g->walk, &run, CHUNK)) {
        const int64_t *id = ids_read(buffer, run.data[1], g->index_dtype, index_step, run.length);
        if (count_wrong(id, run.length, 0, g->axis_size)) {
            atomic_store_explicit(&g->is_wrong, true, memory_order_relaxed);
            return;
        }
        g->way->line(run.data[2], g->walk.step[2], id, g->axis_bytes, run.data[0], g->walk.step[0], run.length);
    }
}

bool cpu_gather(const tl_kernel_args *args) {
    const struct attr_gather *attr = args->attr;
    const tl_operand *x = &args->in[0], *index = &args->in[1], *out = &args->out[0];
    if (iterate_numel(index) == 0) return true;
    const int64_t bytes = iterate_element_bytes(x->dtype);
    const int64_t size = x->shape[attr->axis];
    int64_t stride[TL_MAX_RANK];
    memcpy(stride, x->stride, (size_t)x->rank * sizeof *stride);
    stride[attr->axis] = 0;
    const tl_operand table = {
        .data = x->data, .dtype = x->dtype, .rank = index->rank, .shape = index->shape, .stride = stride};
    struct gather g = {.index_dtype = index->dtype,
                       .axis_size = size,
                       .axis_bytes = x->stride[attr->axis] * bytes,
                       .way = &fetches[bytes]};
    iterate_begin(&g.walk, out->rank, out->shape, (const tl_operand *[]){out, index, &table}, 3, ITERATE_ANY_ORDER);
    parallel_for(g.walk.n, parallel_grain(4), args->n_threads, gather_range, &g);
    return !atomic_load(&g.is_wrong) ||
           read_indices(args, index, index->rank, index->shape, attr->axis, size, false, NULL, 0);
}

struct scatter {
    struct iterate walk; /* table, index, source: all without the axis */
    struct table table;
    tl_dtype index_dtype, source_dtype;
    int64_t n, table_step, index_step, source_step; /* along the axis, in bytes; of the index in elements */
    int64_t axis_size;
    bool is_checked;      /* all indices were checked before: the table existed */
    atomic_bool is_wrong; /* an unchecked index is; the new table is then useless */
};

/* One line of the axis. */
static void scatter_line(struct scatter *s, char *table, const char *index, char *source) {
    int64_t id_buffer[CHUNK];
    float buffer[CHUNK];
    for (int64_t at = 0; at < s->n; at += CHUNK) {
        const int64_t n = s->n - at < CHUNK ? s->n - at : CHUNK;
        int64_t step = s->source_step;
        const char *from = index + at * s->index_step * iterate_element_bytes(s->index_dtype);
        const int64_t *id = ids_read(id_buffer, from, s->index_dtype, s->index_step, n);
        if (!s->is_checked && count_wrong(id, n, 0, s->axis_size)) {
            atomic_store_explicit(&s->is_wrong, true, memory_order_relaxed);
            return;
        }
        char *slot = slots_read(s->table.is_wide, source + at * s->source_step, s->source_dtype, &step, n, buffer);
        s->table.way->line(table, 0, id, s->table_step, slot, step, n);
    }
}

static void scatter_range(void *context, int64_t first, int64_t last) {
    struct scatter *s = context;
    struct iterate_run run;
    iterate_seek(&s->walk, &run, first, last);
    while (iterate_next(&s->walk, &run, INT64_MAX))
        for (int64_t i = 0; i < run.length; i++)
            scatter_line(s, run.data[0] + i * s->walk.step[0], run.data[1] + i * s->walk.step[1],
                         run.data[2] + i * s->walk.step[2]);
}

static bool scatter(const tl_kernel_args *args, bool adds_up) {
    const struct attr_gather *attr = args->attr;
    const tl_operand *x = &args->in[0], *index = &args->in[1], *source = &args->in[2];
    const bool is_empty = iterate_numel(index) == 0;
    const int axis = attr->axis;
    struct scatter s = {.index_dtype = index->dtype,
                        .source_dtype = source->dtype,
                        .axis_size = x->shape[axis],
                        .is_checked = args->out[0].data == x->data};
    if (s.is_checked && !is_empty && !check_indices(args, index, axis, x->shape[axis])) return false;
    table_begin(&s.table, args, adds_up, args->workspace);
    if (!is_empty) {
        const tl_operand *table = &s.table.operand;
        struct slim slim[3];
        slim_begin(&slim[0], table, index, axis);
        slim_begin(&slim[1], index, index, axis);
        slim_begin(&slim[2], source, index, axis);
        s.n = index->shape[axis];
        s.table_step = table->stride[axis] * iterate_element_bytes(table->dtype);
        s.index_step = index->stride[axis];
        s.source_step = source->stride[axis] * iterate_element_bytes(source->dtype);
        iterate_begin(&s.walk, index->rank - 1, slim[1].shape,
                      (const tl_operand *[]){&slim[0].operand, &slim[1].operand, &slim[2].operand}, 3,
                      ITERATE_ANY_ORDER);
        parallel_for(s.walk.n, parallel_grain(4 * s.n), args->n_threads, scatter_range, &s);
    }
    table_end(&s.table, args);
    return !atomic_load(&s.is_wrong) ||
           read_indices(args, index, index->rank, index->shape, axis, s.axis_size, false, NULL, 0);
}

bool cpu_scatter(const tl_kernel_args *args) { return scatter(args, false); }
bool cpu_scatter_add(const tl_kernel_args *args) { return scatter(args, true); }

/* ---- index, index_put: several axes ---- */

struct several {
    struct iterate rest;   /* table, slots: over the axes without an index */
    struct iterate places; /* slots, offsets in the table: over the indices' common shape */
    const struct way *way;
    tl_dtype slot_dtype;
    bool is_wide;
    int64_t longest; /* run over the rest */
};

/* Positions `first` to `last` of the indices, for one run over the rest. */
static void several_run(const struct several *s, const struct iterate_run *rest, int64_t first, int64_t last) {
    const int64_t table_step = s->rest.step[0];
    float buffer[CHUNK];
    struct iterate_run run;
    iterate_seek(&s->places, &run, first, last);
    while (iterate_next(&s->places, &run, CHUNK)) {
        char *slots = run.data[0] + (rest->data[1] - s->rest.data[1]);
        const int64_t *offset = (const int64_t *)(const void *)run.data[1];
        if (rest->length == 1) {
            int64_t step = s->places.step[0];
            char *slot = slots_read(s->is_wide, slots, s->slot_dtype, &step, run.length, buffer);
            s->way->line(rest->data[0], 0, offset, 1, slot, step, run.length);
            continue;
        }
        for (int64_t i = 0; i < run.length; i++) {
            int64_t step = s->rest.step[1];
            char *slot =
                slots_read(s->is_wide, slots + i * s->places.step[0], s->slot_dtype, &step, rest->length, buffer);
            s->way->row(rest->data[0] + offset[i], table_step, slot, step, rest->length);
        }
    }
}

static void several_rest(void *context, int64_t first, int64_t last) {
    const struct several *s = context;
    struct iterate_run run;
    iterate_seek(&s->rest, &run, first, last);
    while (iterate_next(&s->rest, &run, s->longest)) several_run(s, &run, 0, s->places.n);
}

static void several_places(void *context, int64_t first, int64_t last) {
    const struct several *s = context;
    struct iterate_run run;
    iterate_seek(&s->rest, &run, 0, s->rest.n);
    while (iterate_next(&s->rest, &run, s->longest)) several_run(s, &run, first, last);
}

/* Stride of the slots along an axis of the result's `rank`; 0 where they are broadcast. */
static int64_t slot_stride(const tl_operand *slots, int rank, int axis) {
    const int own = axis - (rank - slots->rank);
    return own < 0 || slots->shape[own] == 1 ? 0 : slots->stride[own];
}

/* Offsets into the table, in bytes, for every position of the indices. */
static bool find_places(const tl_kernel_args *args, const tl_operand *index, const tl_operand *table, int rank,
                        const int64_t *shape, int64_t *offset) {
    const struct attr_index *attr = args->attr;
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    if (n) memset(offset, 0, (size_t)n * sizeof *offset);
    for (int k = 0; k < attr->n; k++) {
        const int axis = attr->axes[k];
        const int64_t bytes = table->stride[axis] * iterate_element_bytes(table->dtype);
        if (!read_indices(args, &index[k], rank, shape, axis, table->shape[axis], attr->wraps, offset, bytes))
            return false;
    }
    return true;
}

/* As few ranges as keep the threads busy: each visits all places, and the shorter its piece of a row, the more cache
 * lines are fetched for a few elements. Every element belongs to one range, whatever the grain. */
static int64_t rest_grain(const struct several *s, int n_threads) {
    const int64_t worth = parallel_grain(s->places.n), share = (s->rest.n + 2 * n_threads - 1) / (2 * n_threads);
    return worth > share ? worth : share;
}

static int64_t magnitude(int64_t step) { return step < 0 ? -step : step; }

/* Moves between table and slots once the places are known. `offset` has the shape of the indices. */
static void several_move(const tl_kernel_args *args, struct several *s, const tl_operand *table,
                         const tl_operand *slots, int n_index, const int64_t *index_shape, int64_t *offset,
                         bool is_reader) {
    const struct attr_index *attr = args->attr;
    const int rank = table->rank - attr->n + n_index;
    const int place = attr->axes[attr->n - 1] - attr->axes[0] == attr->n - 1 ? attr->axes[0] : 0;
    int64_t shape[TL_MAX_RANK], table_stride[TL_MAX_RANK], stride[TL_MAX_RANK], index_stride[TL_MAX_RANK],
        dense[TL_MAX_RANK];
    int n_rest = 0;
    for (int i = 0, next = 0; i < table->rank; i++) {
        if (next < attr->n && attr->axes[next] == i) {
            next++;
            continue;
        }
        shape[n_rest] = table->shape[i];
        table_stride[n_rest] = table->stride[i];
        stride[n_rest] = slot_stride(slots, rank, n_rest < place ? n_rest : n_rest + n_index);
        n_rest++;
    }
    int64_t step = 1;
    for (int i = n_index - 1; i >= 0; i--) {
        index_stride[i] = slot_stride(slots, rank, place + i);
        dense[i] = step;
        step *= index_shape[i];
    }
    const tl_operand table_rest = {table->data, table->dtype, n_rest, shape, table_stride};
    const tl_operand slots_rest = {slots->data, slots->dtype, n_rest, shape, stride};
    const tl_operand slots_index = {slots->data, slots->dtype, n_index, index_shape, index_stride};
    const tl_operand offsets = {offset, TL_I64, n_index, index_shape, dense};
    iterate_begin(&s->rest, n_rest, shape, (const tl_operand *[]){&table_rest, &slots_rest}, 2, ITERATE_ANY_ORDER);
    iterate_begin(&s->places, n_index, index_shape, (const tl_operand *[]){&slots_index, &offsets}, 2,
                  ITERATE_ROW_MAJOR);
    s->slot_dtype = slots->dtype;
    /* If the slots of an index are closer together in memory than those of the rest, go line by line. */
    const bool by_lines = s->places.n > 1 && magnitude(s->places.step[0]) < magnitude(s->rest.step[1]);
    s->longest = by_lines ? 1 : s->is_wide ? CHUNK : INT64_MAX;
    if (is_reader && s->places.n > s->rest.n)
        parallel_for(s->places.n, parallel_grain(s->rest.n), args->n_threads, several_places, s);
    else parallel_for(s->rest.n, rest_grain(s, args->n_threads), args->n_threads, several_rest, s);
}

bool cpu_index(const tl_kernel_args *args) {
    const struct attr_index *attr = args->attr;
    const tl_operand *x = &args->in[0], *index = &args->in[1];
    int64_t shape[TL_MAX_RANK], *offset = args->workspace;
    const int rank = indices_shape(index, attr->n, shape);
    if (!find_places(args, index, x, rank, shape, offset)) return false;
    struct several s = {.way = &fetches[iterate_element_bytes(x->dtype)]};
    if (iterate_numel(&args->out[0]) > 0) several_move(args, &s, x, &args->out[0], rank, shape, offset, true);
    return true;
}

bool cpu_index_put(const tl_kernel_args *args) {
    const struct attr_index *attr = args->attr;
    const tl_operand *index = &args->in[2];
    int64_t shape[TL_MAX_RANK], n = 1, *offset = args->workspace;
    const int rank = indices_shape(index, attr->n, shape);
    for (int i = 0; i < rank; i++) n *= shape[i];
    /* All indices are checked before the first byte of the table moves; its final strides are known only then. */
    if (!find_places(args, index, &args->in[0], rank, shape, offset)) return false;
    struct table table;
    table_begin(&table, args, attr->accumulates, offset + n);
    if (!find_places(args, index, &table.operand, rank, shape, offset)) return false;
    struct several s = {.way = table.way, .is_wide = table.is_wide};
    if (n && iterate_numel(&args->out[0]) > 0)
        several_move(args, &s, &table.operand, &args->in[1], rank, shape, offset, false);
    table_end(&table, args);
    return true;
}

/* ---- repeat_interleave ---- */

static int64_t count_at(const tl_operand *counts, int64_t i) {
    return convert_get_i64((const char *)counts->data + i * counts->stride[0] * iterate_element_bytes(counts->dtype),
                           counts->dtype, 0);
}

bool cpu_repeat_interleave(const tl_kernel_args *args) {
    const struct attr_repeat *attr = args->attr;
    const tl_operand *counts = &args->in[0];
    int64_t *out = args->out[0].data, made = 0;
    for (int64_t i = 0; i < counts->shape[0]; i++) {
        if (count_at(counts, i) >= 0) continue;
        snprintf(args->error, ERROR_BYTES, "repeats can not be negative: %" PRId64 " at position %" PRId64,
                 count_at(counts, i), i);
        return false;
    }
    for (int64_t i = 0; i < counts->shape[0]; i++)
        for (int64_t k = count_at(counts, i); k > 0 && made < attr->total; k--) out[made++] = i;
    return true;
}
