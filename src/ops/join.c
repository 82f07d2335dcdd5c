/* join.c: tensors made from parts of others: joining, splitting, padding, repeating, triangles, grids.
 *
 * Two ops move bytes, concat and pad. The rest is views, and functions over views and these two.
 */
#include <string.h>

#include "ops/index.h"

static void join_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }

/* ---- concat ---- */

/* PyTorch skips vectors without elements, whatever the rank of the others. */
static bool is_passed_over(int rank, const int64_t *shape) { return rank == 1 && shape[0] == 0; }

static bool concat_shape(tl_call *c) {
    const struct attr_concat *a = c->attr;
    tl_dtype dtype = c->input[0]->dtype;
    int64_t shape[TL_MAX_RANK] = {0};
    int rank = -1, first = 0;
    for (int i = 0; i < c->n_inputs; i++) {
        const tl_tensor *x = c->input[i];
        if (!call_needs_bytes(c, i)) return false;
        if (x->rank == 0) return call_fail(c, "zero-dimensional tensor (at position %d) cannot be concatenated", i);
        dtype = dtype == x->dtype ? dtype : dtype_promote(dtype, x->dtype);
        if (dtype == TL_DTYPE_COUNT) return call_fail_need(c, "these dtypes do not promote to a common one", "a cast");
        if (is_passed_over(x->rank, x->shape)) continue;
        if (rank < 0) {
            rank = x->rank;
            first = i;
            memcpy(shape, x->shape, (size_t)rank * sizeof *shape);
            shape[a->axis] = 0;
        }
        if (x->rank != rank)
            return call_fail(c, "tensors must have same number of dimensions: got %d and %d", rank, x->rank);
        for (int k = 0; k < rank; k++)
            if (k != a->axis && x->shape[k] != c->input[first]->shape[k])
                return call_fail(c,
                                 "Sizes of tensors must match except in dimension %d. Expected size %lld but got "
                                 "size %lld for tensor number %d",
                                 a->axis, (long long)c->input[first]->shape[k], (long long)x->shape[k], i);
        if (__builtin_add_overflow(shape[a->axis], x->shape[a->axis], &shape[a->axis]))
            return call_fail(c, "the result has more elements than can be counted");
    }
    return call_output(c, 0, dtype, rank < 0 ? 1 : rank, shape);
}
/* each input gets its slice of g */
static void concat_backward(tl_gradient *g) {
    const struct attr_concat *a = g->node->attr;
    int64_t start = 0;
    for (int i = 0; i < g->node->n_inputs; i++) {
        const struct edge *e = &g->node->edges[i];
        if (is_passed_over(e->rank, e->shape)) continue;
        int64_t stop = start + e->shape[a->axis];
        if (g->needs[i]) g->result[i] = tl_slice(g->grad[0], a->axis, start, stop, 1);
        start = stop;
    }
}
static tl_dtype concat_dtype(const tl_call *c) { return c->out[0].dtype; }
const tl_op op_concat = {RECORD(KERNEL, concat, 1),
                         .shapes = "up to 64, equal but along the axis -> their sum along it",
                         .dtypes = "any but f4; they promote",
                         .flops = "0",
                         .shape = concat_shape,
                         .cost = join_cost,
                         .backward = concat_backward,
                         .compute_dtype = concat_dtype};

static bool tensors_check(const char *what, tl_tensor **inputs, int n) {
    if (n < 1) return error_set(TL_ERROR_USE, "%s: expected a non-empty list of Tensors", what);
    if (!error_given(inputs, what, "a list of tensors")) return false;
    for (int i = 0; i < n; i++)
        if (!tensor_check(inputs[i], what)) return false;
    return true;
}

/* The first input that is not skipped; n if there is none. */
static int concat_first(tl_tensor **inputs, int n) {
    int i = 0;
    while (i < n && is_passed_over(inputs[i]->rank, inputs[i]->shape)) i++;
    return i;
}

static tl_tensor *concat(tl_tensor **inputs, int n, const struct attr_concat *a) {
    tl_call c;
    if (n <= TL_MAX_INPUTS) {
        call_begin(&c, &op_concat, inputs, n, a, sizeof *a);
        return op_apply(&c);
    }
    /* More than one call takes: the parts of an even split are joined, then their results. */
    tl_tensor *part[TL_MAX_INPUTS];
    for (int i = 0; i < TL_MAX_INPUTS; i++) {
        int first = (int)((int64_t)n * i / TL_MAX_INPUTS), m = (int)((int64_t)n * (i + 1) / TL_MAX_INPUTS) - first;
        struct attr_concat along = {concat_first(inputs + first, m) == m ? 0 : a->axis};
        part[i] = concat(inputs + first, m, &along);
        if (!part[i]) return NULL;
    }
    return concat(part, TL_MAX_INPUTS, a);
}

tl_tensor *tl_concat(tl_tensor **inputs, int n, int axis) {
    if (!tensors_check("concat", inputs, n)) return NULL;
    int first = concat_first(inputs, n);
    struct attr_concat a = {first < n ? index_axis("concat", inputs[first], axis)
                                      : 0}; /* of nothing but (0): any axis */
    if (a.axis < 0) return NULL;
    if (n <= TL_MAX_INPUTS) return concat(inputs, n, &a);
    tl_scope scope = tl_scope_begin();
    return scope.depth ? tl_scope_return(scope, concat(inputs, n, &a)) : NULL;
}

tl_tensor *tl_stack(tl_tensor **inputs, int n, int axis) {
    if (!tensors_check("stack", inputs, n)) return NULL;
    int rank = inputs[0]->rank, at = axis_check("stack", axis, rank + 1);
    for (int i = 0; at >= 0 && i < n; i++)
        if (!shape_equal(rank, inputs[0]->shape, inputs[i]->rank, inputs[i]->shape)) {
            error_set(TL_ERROR_USE, "stack: expects each tensor to be equal size, but entry %d is not", i);
            return NULL;
        }
    if (rank == TL_MAX_RANK) error_set(TL_ERROR_USE, "stack: rank is %d already", rank);
    if (at < 0 || rank == TL_MAX_RANK) return NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *part[TL_MAX_INPUTS];
    if (n > TL_MAX_INPUTS) {
        part[0] = tl_stack(inputs, n / 2, at);
        part[1] = part[0] ? tl_stack(inputs + n / 2, n - n / 2, at) : NULL;
        return tl_scope_return(scope, part[1] ? tl_concat(part, 2, at) : NULL);
    }
    bool ok = true;
    for (int i = 0; ok && i < n; i++) ok = (part[i] = tl_unsqueeze(inputs[i], at)) != NULL;
    return tl_scope_return(scope, ok ? tl_concat(part, n, at) : NULL);
}

/* ---- split, chunk: views ---- */

/* Each part is a tensor: a count of billions is a mistake, and would exhaust the machine's memory. */
enum { MOST_PARTS = 1 << 20 };

bool tl_split(tl_tensor *x, int axis, const int64_t *sizes, int n, tl_tensor **parts) {
    if (!tensor_check(x, "split")) return false;
    int at = index_axis("split", x, axis);
    if (at < 0 || !x->rank) return at >= 0 && error_set(TL_ERROR_USE, "split: a scalar has no axis to split");
    if (n > 0 && !(error_given(sizes, "split", "sizes") && error_given(parts, "split", "a list for its parts")))
        return false;
    if (n > MOST_PARTS) return error_set(TL_ERROR_USE, "split: %d parts are too many (need at most %d)", n, MOST_PARTS);
    int64_t start = 0;
    bool fits = true;
    for (int i = 0; fits && i < n; i++) fits = sizes[i] >= 0 && !__builtin_add_overflow(start, sizes[i], &start);
    if (!fits || start != x->shape[at])
        return error_set(TL_ERROR_USE, "split: sizes must sum exactly to %lld, the size of dimension %d",
                         (long long)x->shape[at], at);
    start = 0;
    for (int i = 0; i < n; i++) {
        parts[i] = tl_slice(x, at, start, start + sizes[i], 1);
        if (!parts[i]) return false;
        start += sizes[i];
    }
    return true;
}

int tl_chunk(tl_tensor *x, int axis, int n, tl_tensor **parts) {
    if (!tensor_check(x, "chunk")) return 0;
    int at = index_axis("chunk", x, axis), made = 0;
    if (at < 0) return 0;
    if (n < 1 || !x->rank) {
        error_set(TL_ERROR_USE,
                  "chunk: expects at least a 1-dimensional tensor and chunks to be greater than 0, not %d", n);
        return 0;
    }
    if (!error_given(parts, "chunk", "a list for its parts")) return 0;
    int64_t size = x->shape[at], step = (size + n - 1) / n, n_parts = step ? (size + step - 1) / step : n;
    if (n_parts > MOST_PARTS) {
        error_set(TL_ERROR_USE, "chunk: %lld parts are too many (need at most %d)", (long long)n_parts, MOST_PARTS);
        return 0;
    }
    for (int64_t start = 0; made < n && (start < size || size == 0); start += step) {
        parts[made] = tl_slice(x, at, start, start + step, 1);
        if (!parts[made]) return 0;
        made++;
    }
    return made;
}

/* ---- pad ---- */

static bool pad_shape(tl_call *c) {
    const struct attr_pad *a = c->attr;
    const tl_tensor *x = c->input[0];
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_bytes(c, 0)) return false;
    for (int i = 0; i < x->rank; i++)
        if (__builtin_add_overflow(x->shape[i], a->before[i], &shape[i]) ||
            __builtin_add_overflow(shape[i], a->after[i], &shape[i]))
            return call_fail(c, "the result has more elements than can be counted");
    return call_output(c, 0, x->dtype, x->rank, shape);
}
/* dx = the part of g that x was */
static void pad_backward(tl_gradient *g) {
    const struct attr_pad *a = g->node->attr;
    const struct edge *e = &g->node->edges[0];
    tl_tensor *part = g->grad[0];
    for (int i = 0; part && i < e->rank; i++)
        if (a->before[i] || a->after[i]) part = tl_slice(part, i, a->before[i], a->before[i] + e->shape[i], 1);
    g->result[0] = part;
}
const tl_op op_pad = {RECORD(KERNEL, pad, 1),  .shapes = "x -> x with more elements along its axes",
                      .dtypes = "any but f4",  .flops = "0",
                      .shape = pad_shape,      .cost = join_cost,
                      .backward = pad_backward};

/* Along one axis, by joining views. */
static tl_tensor *pad_axis(tl_tensor *x, int axis, int64_t before, int64_t after, tl_pad_mode mode) {
    int64_t size = x->shape[axis], shape[TL_MAX_RANK];
    tl_tensor *part[3];
    int n = 0;
    if (mode == TL_PAD_REFLECT ? before >= size || after >= size
                               : !size || (mode == TL_PAD_CIRCULAR && (before > size || after > size))) {
        error_set(TL_ERROR_USE,
                  "pad: padding size should be less than the corresponding input dimension, but got: padding (%lld, "
                  "%lld) at dimension %d of size %lld",
                  (long long)before, (long long)after, axis, (long long)size);
        return NULL;
    }
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    for (int side = 0; side < 2; side++) {
        int64_t more = side ? after : before;
        if (side == 1) part[n++] = x;
        if (!more) continue;
        tl_tensor *edge = NULL;
        if (mode == TL_PAD_REFLECT && side == 0) edge = tl_slice(x, axis, more, 0, -1);
        if (mode == TL_PAD_REFLECT && side == 1)
            edge = tl_slice(x, axis, size - 2, more == size - 1 ? TL_END : size - 2 - more, -1);
        if (mode == TL_PAD_CIRCULAR)
            edge = side ? tl_slice(x, axis, 0, more, 1) : tl_slice(x, axis, size - more, size, 1);
        if (mode == TL_PAD_REPLICATE) {
            shape[axis] = more;
            edge = tl_slice(x, axis, side ? size - 1 : 0, side ? size : 1, 1);
            edge = edge ? tl_expand(edge, x->rank, shape) : NULL;
        }
        if (!edge) return NULL;
        part[n++] = edge;
    }
    return tl_concat(part, n, axis);
}

tl_tensor *tl_pad(tl_tensor *x, const int64_t *before, const int64_t *after, tl_pad_mode mode, double value) {
    if (!tensor_check(x, "pad")) return NULL;
    if (x->rank && !(error_given(before, "pad", "padding") && error_given(after, "pad", "padding"))) return NULL;
    if ((unsigned)mode > TL_PAD_CIRCULAR) {
        error_set(TL_ERROR_USE, "pad: no mode has the number %d", (int)mode);
        return NULL;
    }
    struct attr_pad a;
    memset(&a, 0, sizeof a);
    a.value = value;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *y = x;
    for (int i = 0; y && i < x->rank; i++) { /* negative numbers cut off */
        int64_t size = x->shape[i], low = before[i] < 0 ? before[i] : 0, high = after[i] < 0 ? after[i] : 0;
        a.before[i] = before[i] - low;
        a.after[i] = after[i] - high;
        if (low < -size || high < -size || size + low + high < 0) {
            error_set(TL_ERROR_USE, "pad: padding (%lld, %lld) takes more than the %lld elements of dimension %d",
                      (long long)before[i], (long long)after[i], (long long)size, i);
            y = NULL;
        } else if (low || high) {
            y = tl_slice(y, i, -low, size + high, 1);
        }
        if (y && mode != TL_PAD_CONSTANT && (a.before[i] || a.after[i]))
            y = pad_axis(y, i, a.before[i], a.after[i], mode);
    }
    if (y && mode == TL_PAD_CONSTANT) y = op_apply1(&op_pad, y, ATTR(a));
    else if (y == x) y = tl_clone(x);
    return tl_scope_return(scope, y);
}

/* ---- flip, roll ---- */

tl_tensor *tl_flip(tl_tensor *x, const int *axes, int n_axes) {
    if (!tensor_check(x, "flip") || (n_axes > 0 && !error_given(axes, "flip", "axes"))) return NULL;
    uint64_t seen = 0;
    for (int i = 0; x && i < n_axes; i++) {
        int at = index_axis("flip", x, axes[i]);
        if (at < 0) return NULL;
        if (seen >> at & 1) {
            error_set(TL_ERROR_USE, "flip: dim %d appears multiple times in the list of dims", at);
            return NULL;
        }
        seen |= (uint64_t)1 << at;
        if (x->rank) x = tl_slice(x, at, -1, TL_END, -1);
    }
    return x;
}

/* x[-shift:] before x[:-shift] */
static tl_tensor *roll_axis(tl_tensor *x, int64_t shift, int axis) {
    int64_t size = x->shape[axis], cut = size ? (size - shift % size) % size : 0;
    tl_tensor *back = tl_slice(x, axis, cut, TL_END, 1), *front = tl_slice(x, axis, 0, cut, 1);
    return back && front ? tl_concat((tl_tensor *[]){back, front}, 2, axis) : NULL;
}

tl_tensor *tl_roll(tl_tensor *x, const int64_t *shifts, const int *axes, int n) {
    if (!tensor_check(x, "roll")) return NULL;
    if (n < 1) {
        error_set(TL_ERROR_USE, "roll: `shifts` required");
        return NULL;
    }
    if (!error_given(shifts, "roll", "shifts")) return NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *y = x;
    for (int i = 0; y && axes && i < n; i++) {
        int at = index_axis("roll", x, axes[i]);
        y = at < 0 ? NULL : x->rank ? roll_axis(y, shifts[i], at) : tl_clone(y);
    }
    if (!axes && n > 1) error_set(TL_ERROR_USE, "roll: shifts and dimensions must align, got %d shifts and no dims", n);
    else if (!axes) {
        tl_tensor *flat = tl_reshape(x, TL_SHAPE(-1));
        y = flat ? roll_axis(flat, shifts[0], 0) : NULL;
        y = y ? tl_view(y, x->rank, x->shape) : NULL;
    }
    return tl_scope_return(scope, tl_error() == TL_OK ? y : NULL);
}

/* ---- Repeating ---- */

/* Every axis i becomes (counts[i], size): a view with stride 0, copied when the two are merged. */
static tl_tensor *tile_all(tl_tensor *x, int rank, const int64_t *counts) {
    int64_t pairs[2 * TL_MAX_RANK], ones[2 * TL_MAX_RANK], shape[TL_MAX_RANK];
    int n = 0, extra = rank - x->rank;
    bool ok = extra >= 0 && rank <= TL_MAX_RANK;
    for (int i = 0; ok && i < rank; i++) {
        int64_t size = i < extra ? 1 : x->shape[i - extra];
        ok = counts[i] >= 0 && !__builtin_mul_overflow(size, counts[i], &shape[i]);
        if (counts[i] != 1) {
            pairs[n] = counts[i];
            ones[n++] = 1;
        }
        pairs[n] = ones[n] = size;
        n++;
    }
    if (!ok || n > TL_MAX_RANK) {
        error_set(TL_ERROR_USE,
                  "tile: counts are not negative, sizes fit, and at most %d axes are made (%d counts for rank %d)",
                  TL_MAX_RANK, rank, x->rank);
        return NULL;
    }
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *y = tl_reshape(x, n, ones);
    y = y ? tl_expand(y, n, pairs) : NULL;
    y = y ? tl_clone(y) : NULL;
    return tl_scope_return(scope, y ? tl_view(y, rank, shape) : NULL);
}

tl_tensor *tl_tile(tl_tensor *x, int n, const int64_t *counts) {
    if (!tensor_check(x, "tile") || (n > 0 && !error_given(counts, "tile", "counts"))) return NULL;
    if (n < 0 || n >= x->rank) return tile_all(x, n, counts);
    int64_t all[TL_MAX_RANK];
    for (int i = 0; i < x->rank; i++) all[i] = i < x->rank - n ? 1 : counts[i - (x->rank - n)];
    return tile_all(x, x->rank, all);
}

tl_tensor *tl_repeat_interleave(tl_tensor *x, int axis, int64_t times) {
    if (!tensor_check(x, "repeat_interleave")) return NULL;
    int at = index_axis("repeat_interleave", x, axis), n = 0;
    if (at < 0) return NULL;
    int64_t total = 0, wide[TL_MAX_RANK + 1], shape[TL_MAX_RANK];
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    x = index_lift(x);
    if (x && (times < 0 || x->rank == TL_MAX_RANK || __builtin_mul_overflow(x->shape[at], times, &total))) {
        error_set(TL_ERROR_USE, "repeat_interleave: repeats must be non-negative, and fit, not %lld", (long long)times);
        x = NULL;
    }
    for (int i = 0; x && i < x->rank; i++) {
        shape[i] = i == at ? total : x->shape[i];
        wide[n++] = x->shape[i];
        if (i == at) wide[n++] = times;
    }
    tl_tensor *y = x ? tl_unsqueeze(x, at + 1) : NULL;
    y = y ? tl_expand(y, n, wide) : NULL;
    y = y ? tl_clone(y) : NULL;
    return tl_scope_return(scope, y ? tl_view(y, x->rank, shape) : NULL);
}

/* ---- Triangles ---- */

/* The mask is of one matrix; the last two axes of x are matrices. */
static tl_tensor *triangle(const char *what, tl_tensor *x, int64_t k, tl_compare relation) {
    if (!tensor_check(x, what)) return NULL;
    if (x->rank < 2) {
        error_set(TL_ERROR_USE, "%s: input tensor must have at least 2 dimensions", what);
        return NULL;
    }
    tl_device *device = x->storage->device;
    int64_t n_rows = x->shape[x->rank - 2], n_columns = x->shape[x->rank - 1];
    if (k > n_columns) k = n_columns; /* beyond the corners all diagonals are alike */
    if (k < -n_rows) k = -n_rows;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *row = tl_arange((double)k, 1, n_rows, TL_I64, device);
    tl_tensor *column = tl_arange(0, 1, n_columns, TL_I64, device);
    row = row ? tl_unsqueeze(row, 1) : NULL; /* the row's number, moved by k, meets the column's on the diagonal */
    tl_tensor *mask = row && column ? tl_cmp(column, relation, row) : NULL;
    tl_tensor *zero = mask ? tl_zeros(TL_SCALAR, x->dtype, device) : NULL;
    return tl_scope_return(scope, zero ? tl_where(mask, x, zero) : NULL);
}
tl_tensor *tl_triu(tl_tensor *x, int64_t k) { return triangle("triu", x, k, TL_GE); }
tl_tensor *tl_tril(tl_tensor *x, int64_t k) { return triangle("tril", x, k, TL_LE); }

/* ---- eye, linspace, meshgrid ---- */

tl_tensor *tl_eye(int64_t n_rows, int64_t n_columns, tl_dtype dtype, tl_device *device) {
    tl_tensor *x = tl_zeros(TL_SHAPE(n_rows, n_columns), dtype, device);
    tl_tensor *diagonal = x ? tl_diagonal(x, 0, 0, 1) : NULL;
    return diagonal && tl_fill_(diagonal, 1) ? x : NULL;
}

/* In f64 for integers, which are truncated as in a cast. */
tl_tensor *tl_linspace(double start, double stop, int64_t n, tl_dtype dtype, tl_device *device) {
    if (n < 0 || !dtype_info(dtype) || dtype == TL_BOOL) {
        error_set(TL_ERROR_USE, "linspace: number of steps must be non-negative, and the dtype no bool");
        return NULL;
    }
    tl_dtype made = dtype_is_float(dtype) ? dtype : TL_F64;
    tl_tensor *x = tl_arange(start, n > 1 ? (stop - start) / (double)(n - 1) : 0, n, made, device);
    if (x && n > 1 && !tl_fill_(tl_select(x, 0, -1), stop)) return NULL; /* the sum of the steps may miss the end */
    return x ? tl_cast(x, dtype) : NULL;
}

bool tl_meshgrid(tl_tensor **inputs, int n, bool is_xy, tl_tensor **grids) {
    if (!tensors_check("meshgrid", inputs, n) || !error_given(grids, "meshgrid", "a list for its results"))
        return false;
    int64_t shape[TL_MAX_RANK];
    if (n > TL_MAX_RANK) return error_set(TL_ERROR_USE, "meshgrid: %d tensors are more than %d", n, TL_MAX_RANK);
    for (int i = 0; i < n; i++) {
        int at = is_xy && n > 1 && i < 2 ? 1 - i : i;
        if (inputs[i]->rank > 1)
            return error_set(TL_ERROR_USE,
                             "meshgrid: expected scalar or 1D tensor in the tensor list, but tensor %d "
                             "has rank %d",
                             i, inputs[i]->rank);
        shape[at] = inputs[i]->numel;
    }
    for (int i = 0; i < n; i++) {
        int64_t own[TL_MAX_RANK];
        for (int k = 0; k < n; k++) own[k] = 1;
        own[is_xy && n > 1 && i < 2 ? 1 - i : i] = inputs[i]->numel;
        tl_tensor *line = tl_view(inputs[i], n, own);
        grids[i] = line ? tl_expand(line, n, shape) : NULL;
        if (!grids[i]) return false;
    }
    return true;
}
