/* index.c: elements by their number: gathering, scattering, advanced indexing.
 *
 * Two ops read (gather, index) and three write (scatter, scatter_add, index_put); each reader's gradient is a writer
 * and vice versa. The rest of the file is functions over these five.
 *
 * Duplicates. If several values go to one place, the last in row-major order stays, whatever the number of threads;
 * sums are added in that order. The gradient of a value that did not stay is zero: a tensor of numbers, written with
 * the same indices, shows which one stayed. PyTorch leaves both undefined.
 *
 * Bytes. Fetched elements are counted, not the table they come from; in place, written elements, not the target.
 */
#include <string.h>

#include "ops/index.h"

/* ---- gather ---- */

/* An empty index fits any shape, as in PyTorch. */
static bool fits_index(const tl_call *c, int axis) {
    const tl_tensor *x = c->input[0], *index = c->input[1];
    if (!call_needs_bytes(c, 0) || !call_needs_index(c, 1)) return false;
    if (index->numel == 0) return true;
    if (index->rank != x->rank)
        return call_fail(c, "index tensor must have the same number of dimensions as input tensor");
    for (int i = 0; i < x->rank; i++)
        if (i != axis && index->shape[i] > x->shape[i])
            return call_fail_need(c, "size does not match at dimension %d",
                                  "an index no larger than the input apart from dimension %d", i, axis);
    return true;
}

static bool gather_shape(tl_call *c) {
    const struct attr_gather *a = c->attr;
    return fits_index(c, a->axis) && call_output(c, 0, c->input[0]->dtype, c->input[1]->rank, c->input[1]->shape);
}
/* one element per index, and the indices */
static void gather_cost(const tl_call *c, struct cost *cost) {
    count fetched = index_bytes(c->input[0], c->output[0]->numel);
    *cost = (struct cost){.n_parts = 1, .part[0] = {COST_HERE, 0, fetched + tensor_traffic(c->input[1]), fetched}};
}
/* dx = zeros with g added at the indices */
static void gather_backward(tl_gradient *g) {
    const struct attr_gather *a = g->node->attr;
    const struct edge *e = &g->node->edges[0];
    tl_tensor *zeros = tl_zeros(e->rank, e->shape, e->dtype, g->grad[0]->storage->device);
    g->result[0] = tl_scatter_add_(zeros, a->axis, gradient_input(g, 1), g->grad[0]);
}
const tl_op op_gather = {RECORD(KERNEL, gather, 1),
                         .shapes = "x, index of its rank -> index's shape",
                         .dtypes = "any x but f4; index i64, i32",
                         .flops = "0",
                         .shape = gather_shape,
                         .cost = gather_cost,
                         .backward = gather_backward,
                         .saves = {TL_INPUT(1)}};

tl_tensor *tl_gather(tl_tensor *x, int axis, tl_tensor *index) {
    if (!tensor_check(x, "gather") || !tensor_check(index, "gather")) return NULL;
    struct attr_gather a = {index_axis("gather", x, axis)};
    if (a.axis < 0) return NULL;
    if (x->rank && index->rank) return op_apply2(&op_gather, x, index, ATTR(a));
    int rank = index->rank;
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, index->shape, (size_t)rank * sizeof *shape);
    x = index_lift(x);
    tl_tensor *found = op_apply2(&op_gather, x, index_lift(index), ATTR(a));
    return found ? tl_view(found, rank, shape) : NULL;
}

tl_tensor *tl_take_along(tl_tensor *x, int axis, tl_tensor *index) {
    if (!tensor_check(x, "take_along") || !tensor_check(index, "take_along")) return NULL;
    if (x->rank != index->rank || !x->rank) {
        error_set(TL_ERROR_USE,
                  "take_along: input and indices should have the same number of dimensions, at least "
                  "one, but got %d dimensions for input, and %d dimensions for indices",
                  x->rank, index->rank);
        return NULL;
    }
    int at = index_axis("take_along", x, axis), rank;
    if (at < 0) return NULL;
    int64_t a[TL_MAX_RANK], b[TL_MAX_RANK], both[TL_MAX_RANK];
    memcpy(a, x->shape, (size_t)x->rank * sizeof *a);
    memcpy(b, index->shape, (size_t)x->rank * sizeof *b);
    a[at] = b[at] = 1;
    if (!shape_broadcast(x->rank, a, x->rank, b, &rank, both)) {
        error_set(TL_ERROR_USE, "take_along: the sizes must match at every axis that is not 1 or %d", at);
        return NULL;
    }
    both[at] = x->shape[at];
    tl_tensor *wide = tl_expand(x, rank, both);
    both[at] = index->shape[at];
    tl_tensor *wide_index = tl_expand(index, rank, both);
    return wide && wide_index ? tl_gather(wide, at, wide_index) : NULL;
}

/* ---- scatter, scatter_add ---- */

/* In place, no input may be the target itself: it would be read while it changes. */
static bool inputs_stay(const tl_call *c) {
    for (int i = 1; c->in_place && i < c->n_inputs; i++)
        if (c->input[i]->numel && tensor_same_view(c->input[0], c->input[i]))
            return call_fail_need(
                c, "some elements of the input tensor and the written-to tensor refer to a single memory location",
                "a clone of one of them");
    return true;
}

static bool scatter_shape(tl_call *c) {
    const struct attr_gather *a = c->attr;
    const tl_tensor *x = c->input[0], *index = c->input[1], *source = c->input[2];
    if (!fits_index(c, a->axis)) return false;
    if (source->dtype != x->dtype) return call_fail(c, "expected self.dtype to be equal to src.dtype");
    if (index->numel && !shape_equal(index->rank, index->shape, source->rank, source->shape))
        return call_fail(c, "expected index to be no larger than src in every dimension");
    return inputs_stay(c) && (c->in_place || call_output_like(c, 0, 0));
}
static bool scatter_add_shape(tl_call *c) { return call_needs_arithmetic(c, 0) && scatter_shape(c); }

/* The cost of writers: out of place, x's elements and then the new ones; in place only the new ones, and if they are
 * added, the old values. n: elements written. */
static void put_cost(const tl_call *c, struct cost *cost, int64_t n, bool adds) {
    cost_traffic(c, cost, adds ? (count)n : 0);
    if (!c->in_place) return;
    cost->part[0].bytes_read = adds ? index_bytes(c->input[0], n) : 0;
    for (int i = 1; i < c->n_inputs; i++) cost->part[0].bytes_read += tensor_traffic(c->input[i]);
    cost->part[0].bytes_written = index_bytes(c->input[0], n);
}
static void scatter_cost(const tl_call *c, struct cost *cost) { put_cost(c, cost, c->input[1]->numel, false); }
static void scatter_add_cost(const tl_call *c, struct cost *cost) { put_cost(c, cost, c->input[1]->numel, true); }
static uint64_t scatter_add_workspace(const tl_call *c) {
    return index_sums_are_wider(c->input[0]->dtype) ? (uint64_t)c->input[0]->numel * sizeof(float) : 0;
}

static tl_tensor *zero_of(const tl_tensor *x) { return tl_zeros(TL_SCALAR, x->dtype, x->storage->device); }

/* The numbers 0, 1, ... in a shape. */
static tl_tensor *numbers(const tl_tensor *like) {
    tl_tensor *n = tl_arange(0, 1, like->numel, TL_I64, like->storage->device);
    return n ? tl_view(n, like->rank, like->shape) : NULL;
}

/* dx = g, zero where it was overwritten; dsource = g at the indices, for the elements that stayed */
static void scatter_backward(tl_gradient *g) {
    const struct attr_gather *a = g->node->attr;
    const struct edge *e = &g->node->edges[0];
    tl_tensor *index = gradient_input(g, 1), *zero = zero_of(g->grad[0]);
    if (!index || !zero) return;
    if (g->needs[0]) g->result[0] = tl_scatter_scalar(g->grad[0], a->axis, index, 0);
    if (!g->needs[2] || !index->numel) return;
    tl_tensor *board = tl_empty(e->rank, e->shape, TL_I64, index->storage->device), *number = numbers(index);
    tl_tensor *last = tl_gather(tl_scatter_(board, a->axis, index, number), a->axis, index);
    tl_tensor *stayed = tl_cmp(last, TL_EQ, number);
    g->result[2] = tl_where(stayed, tl_gather(g->grad[0], a->axis, index), zero);
}
/* dx = g; dsource = g at the indices */
static void scatter_add_backward(tl_gradient *g) {
    const struct attr_gather *a = g->node->attr;
    g->result[0] = g->grad[0];
    tl_tensor *index = g->needs[2] ? gradient_input(g, 1) : NULL;
    if (index && index->numel) g->result[2] = tl_gather(g->grad[0], a->axis, index);
}

const tl_op op_scatter = {RECORD(KERNEL, scatter, 1),
                          .shapes = "x, index of its rank, source of index's shape -> x's shape",
                          .dtypes = "any x but f4, source of x's; index i64, i32",
                          .flops = "0",
                          .shape = scatter_shape,
                          .cost = scatter_cost,
                          .backward = scatter_backward,
                          .saves_any = TL_INPUT(1),
                          .may_overwrite = true};
const tl_op op_scatter_add = {RECORD(KERNEL, scatter_add, 1),
                              .shapes = "x, index of its rank, source of index's shape -> x's shape",
                              .dtypes = "any arithmetic x, source of x's; index i64, i32",
                              .flops = "one per element of source",
                              .shape = scatter_add_shape,
                              .cost = scatter_add_cost,
                              .workspace = scatter_add_workspace,
                              .backward = scatter_add_backward,
                              .saves = {0, 0, TL_INPUT(1)},
                              .may_overwrite = true};

/* A source larger than the index gives its first elements. */
static tl_tensor *source_cut(tl_tensor *source, const tl_tensor *index) {
    if (!index->numel || source->rank != index->rank) return source;
    for (int i = 0; source && i < index->rank; i++)
        if (source->shape[i] > index->shape[i]) source = tl_slice(source, i, 0, index->shape[i], 1);
    return source;
}

static tl_tensor *scatter(const tl_op *op, tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, bool in_place) {
    if (!tensor_check(x, op->name) || !tensor_check(index, op->name) || !tensor_check(source, op->name)) return NULL;
    struct attr_gather a = {index_axis(op->name, x, axis)};
    if (a.axis < 0) return NULL;
    bool is_scalar = x->rank == 0;
    tl_tensor *input[3] = {x, index, source};
    for (int i = 0; i < 3; i++) input[i] = index_lift(input[i]);
    if (!input[0] || !input[1] || !input[2]) return NULL;
    input[2] = source_cut(input[2], input[1]);
    tl_call c;
    call_begin(&c, op, input, 3, ATTR(a));
    c.in_place = in_place;
    tl_tensor *result = op_apply(&c);
    if (!result || !is_scalar) return result;
    return in_place ? x : tl_view(result, TL_SCALAR);
}

tl_tensor *tl_scatter(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source) {
    return scatter(&op_scatter, x, axis, index, source, false);
}
tl_tensor *tl_scatter_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source) {
    return scatter(&op_scatter, x, axis, index, source, true);
}
tl_tensor *tl_scatter_add(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source) {
    return scatter(&op_scatter_add, x, axis, index, source, false);
}
tl_tensor *tl_scatter_add_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source) {
    return scatter(&op_scatter_add, x, axis, index, source, true);
}

static tl_tensor *scatter_value(tl_tensor *x, int axis, tl_tensor *index, double value, bool in_place) {
    if (!tensor_check(x, "scatter") || !tensor_check(index, "scatter")) return NULL;
    tl_tensor *source = tl_full(TL_SCALAR, value, x->dtype, x->storage->device);
    if (source) source = tl_expand(source, index->rank, index->shape);
    return source ? scatter(&op_scatter, x, axis, index, source, in_place) : NULL;
}
tl_tensor *tl_scatter_scalar(tl_tensor *x, int axis, tl_tensor *index, double value) {
    return scatter_value(x, axis, index, value, false);
}
tl_tensor *tl_scatter_scalar_(tl_tensor *x, int axis, tl_tensor *index, double value) {
    return scatter_value(x, axis, index, value, true);
}

/* ---- index ---- */

/* The common shape of the index tensors from input `first` on. */
static bool index_broadcast(const tl_call *c, int first, int *rank, int64_t *shape) {
    *rank = 0;
    for (int i = first; i < c->n_inputs; i++) {
        const tl_tensor *index = c->input[i];
        if (!call_needs_index(c, i)) return false;
        if (!shape_broadcast(*rank, shape, index->rank, index->shape, rank, shape))
            return call_fail(c, "shape mismatch: indexing tensors could not be broadcast together");
    }
    return true;
}

/* The shape of the fetched tensor: that of the indices in place of their axes. */
static bool indexed_shape(const tl_call *c, int first, int *rank, int64_t *shape) {
    const struct attr_index *a = c->attr;
    const tl_tensor *x = c->input[0];
    int n_index, n_rest = 0, next = 0;
    int64_t index[TL_MAX_RANK], rest[TL_MAX_RANK];
    if (!call_needs_bytes(c, 0) || !index_broadcast(c, first, &n_index, index)) return false;
    for (int i = 0; i < x->rank; i++)
        if (next < a->n && a->axes[next] == i) next++;
        else rest[n_rest++] = x->shape[i];
    *rank = n_rest + n_index;
    if (*rank > TL_MAX_RANK) return call_fail(c, "the result has more than %d axes", TL_MAX_RANK);
    int place = a->axes[a->n - 1] - a->axes[0] == a->n - 1 ? a->axes[0] : 0;
    for (int i = 0; i < *rank; i++)
        shape[i] = i < place ? rest[i] : i < place + n_index ? index[i - place] : rest[i - n_index];
    return true;
}

static bool index_shape(tl_call *c) {
    int rank;
    int64_t shape[TL_MAX_RANK];
    return indexed_shape(c, 1, &rank, shape) && call_output(c, 0, c->input[0]->dtype, rank, shape);
}
static void index_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 0);
    count fetched = index_bytes(c->input[0], c->output[0]->numel);
    cost->part[0].bytes_read += fetched;
    cost->part[0].bytes_read -= tensor_traffic(c->input[0]); /* x comes first, so it was counted */
}

/* One int64 for each element of the indices' common shape. */
static uint64_t places_bytes(const tl_call *c, int first) {
    int rank;
    int64_t shape[TL_MAX_RANK], numel;
    if (!index_broadcast(c, first, &rank, shape) || !shape_numel(rank, shape, &numel)) return 0;
    return (uint64_t)numel * sizeof(int64_t);
}
static uint64_t index_workspace(const tl_call *c) { return places_bytes(c, 1); }

static tl_tensor *index_apply(const tl_op *op, tl_tensor **input, int n_inputs, const struct attr_index *a,
                              bool in_place) {
    tl_call c;
    call_begin(&c, op, input, n_inputs, a, sizeof *a);
    c.in_place = in_place;
    return op_apply(&c);
}

/* dx = zeros with g added where x was read */
static void index_backward(tl_gradient *g) {
    struct attr_index a = *(const struct attr_index *)g->node->attr;
    const struct edge *e = &g->node->edges[0];
    tl_tensor *input[INDEX_MAX + 2];
    a.accumulates = true;
    input[0] = tl_zeros(e->rank, e->shape, e->dtype, g->grad[0]->storage->device);
    input[1] = g->grad[0];
    for (int i = 0; i < a.n; i++) input[i + 2] = gradient_input(g, i + 1);
    g->result[0] = index_apply(&op_index_put, input, a.n + 2, &a, true);
}
const tl_op op_index = {RECORD(KERNEL, index, 1),
                        .shapes = "x, indices that broadcast -> their shape in place of their axes",
                        .dtypes = "any x but f4; indices i64, i32",
                        .flops = "0",
                        .shape = index_shape,
                        .cost = index_cost,
                        .workspace = index_workspace,
                        .backward = index_backward,
                        .saves_any = TL_INPUTS(1, INDEX_MAX)};

/* ---- index_put ---- */

static bool index_put_shape(tl_call *c) {
    const struct attr_index *a = c->attr;
    const tl_tensor *x = c->input[0], *values = c->input[1];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if ((a->accumulates && !call_needs_arithmetic(c, 0)) || !indexed_shape(c, 2, &rank, shape)) return false;
    if (values->dtype != x->dtype)
        return call_fail(c,
                         "the source and destination dtypes must match, got %s for the destination and %s for the "
                         "source",
                         dtype_info(x->dtype)->torch_name, dtype_info(values->dtype)->torch_name);
    if (!shape_broadcasts_to(values->rank, values->shape, rank, shape)) {
        char text[TL_MAX_RANK * 21 + 3];
        shape_print(text, sizeof text, rank, shape);
        return call_fail(c, "shape mismatch: the value tensor cannot be broadcast to indexing result of shape %s",
                         text);
    }
    return inputs_stay(c) && (c->in_place || call_output_like(c, 0, 0));
}
static void index_put_cost(const tl_call *c, struct cost *cost) {
    int rank;
    int64_t shape[TL_MAX_RANK], n = 0;
    if (indexed_shape(c, 2, &rank, shape)) shape_numel(rank, shape, &n);
    put_cost(c, cost, n, ((const struct attr_index *)c->attr)->accumulates);
}
static uint64_t index_put_workspace(const tl_call *c) {
    bool is_wide = ((const struct attr_index *)c->attr)->accumulates && index_sums_are_wider(c->input[0]->dtype);
    return places_bytes(c, 2) + (is_wide ? (uint64_t)c->input[0]->numel * sizeof(float) : 0);
}

/* For each place that the indices name, whether the value put there is the last: bool, of the indices' shape, with
 * axes of size 1 that align it with the values. */
static tl_tensor *last_put(tl_gradient *g, tl_tensor **index, tl_tensor *values) {
    const struct edge *e = &g->node->edges[0];
    struct attr_index a = *(const struct attr_index *)g->node->attr;
    int place = a.axes[a.n - 1] - a.axes[0] == a.n - 1 ? a.axes[0] : 0, rank = values->rank - (e->rank - a.n);
    int64_t sizes[INDEX_MAX], shape[TL_MAX_RANK];
    for (int i = 0; i < a.n; i++) {
        sizes[i] = e->shape[a.axes[i]];
        a.axes[i] = i;
    }
    for (int i = 0; i < rank; i++) shape[i] = values->shape[place + i];
    tl_tensor *board = tl_empty(a.n, sizes, TL_I64, values->storage->device);
    tl_tensor *one = tl_empty(TL_SCALAR, TL_I64, values->storage->device);
    one = one ? tl_expand(one, rank, shape) : NULL;
    tl_tensor *number = one ? numbers(one) : NULL, *input[INDEX_MAX + 2] = {board, number};
    memcpy(input + 2, index, (size_t)a.n * sizeof *index);
    a.accumulates = false;
    input[1] = index_apply(&op_index_put, input, a.n + 2, &a, true);
    tl_tensor *stayed = tl_cmp(index_apply(&op_index, input + 1, a.n + 1, &a, false), TL_EQ, number);
    for (int i = place + rank; i < values->rank; i++) shape[i - place] = 1;
    return stayed ? tl_view(stayed, values->rank - place, shape) : NULL;
}

/* dx = g, zero where it was overwritten (all of it where values were added); dvalues = g read where they went, for
 * those that stayed */
static void index_put_backward(tl_gradient *g) {
    const struct attr_index *a = g->node->attr;
    tl_tensor *input[INDEX_MAX + 2] = {g->grad[0]}, *index[INDEX_MAX];
    for (int i = 0; i < a->n; i++) index[i] = gradient_input(g, i + 2);
    tl_tensor *zero = zero_of(g->grad[0]);
    if (!zero) return;
    if (g->needs[0] && a->accumulates) g->result[0] = g->grad[0];
    if (g->needs[0] && !a->accumulates) {
        input[1] = zero;
        memcpy(input + 2, index, (size_t)a->n * sizeof *index);
        g->result[0] = index_apply(&op_index_put, input, a->n + 2, a, false);
    }
    if (!g->needs[1]) return;
    memcpy(input + 1, index, (size_t)a->n * sizeof *index);
    tl_tensor *values = index_apply(&op_index, input, a->n + 1, a, false);
    if (values && !a->accumulates) values = tl_where(last_put(g, index, values), values, zero);
    g->result[1] = values;
}
const tl_op op_index_put = {RECORD(KERNEL, index_put, 1),
                            .shapes = "x, values, indices that broadcast -> x's shape",
                            .dtypes =
                                "any x but f4 (arithmetic where values are added), values of x's; indices i64, i32",
                            .flops = "0, or one per element put where they are added",
                            .shape = index_put_shape,
                            .cost = index_put_cost,
                            .workspace = index_put_workspace,
                            .backward = index_put_backward,
                            .saves_any = TL_INPUTS(2, INDEX_MAX + 1),
                            .may_overwrite = true};

/* ---- Masks among the indices ---- */

/* The caller's indices with masks expanded: one index per axis. */
struct indices {
    int n, axes[TL_MAX_RANK];
    tl_tensor *index[TL_MAX_RANK];
    bool has_mask, is_alone; /* some index is a mask; there is one index */
};

/* A mask of rank r stands for the r axes of x from `at` on. */
static bool mask_check(const char *what, const tl_tensor *x, int at, const tl_tensor *mask) {
    char of_mask[TL_MAX_RANK * 21 + 3], of_x[TL_MAX_RANK * 21 + 3];
    for (int i = 0; i < mask->rank; i++) {
        if (at + i < x->rank && mask->shape[i] == x->shape[at + i]) continue;
        shape_print(of_mask, sizeof of_mask, mask->rank, mask->shape);
        shape_print(of_x, sizeof of_x, x->rank, x->shape);
        return error_set(TL_ERROR_USE,
                         "%s: The shape of the mask %s at index %d does not match the shape of the indexed tensor %s "
                         "at index %d",
                         what, of_mask, i, of_x, at + i);
    }
    return mask->rank > 0 || error_set(TL_ERROR_USE, "%s: a mask of rank 0 stands for no axis (need one)", what);
}

/* Axes and indices are checked, masks only for their shape. */
static bool indices_check(const char *what, tl_tensor *x, const int *axes, tl_tensor **indices, int n,
                          struct indices *list) {
    *list = (struct indices){.is_alone = n == 1};
    if (!tensor_check(x, what)) return false;
    if (n > 0 && !(error_given(axes, what, "axes") && error_given(indices, what, "indices"))) return false;
    int total = n; /* axes that indices stand for */
    for (int i = 0; i < n && n <= x->rank; i++) {
        if (!tensor_check(indices[i], what)) return false;
        const int at = index_axis(what, x, axes[i]);
        const bool is_mask = indices[i]->dtype == TL_BOOL;
        if (at < 0 || (is_mask && !mask_check(what, x, at, indices[i]))) return false;
        total += is_mask ? indices[i]->rank - 1 : 0;
        if (indices[i]->dtype == TL_U8)
            return error_set(TL_ERROR_USE, "%s: a mask of u8 is a thing of the past (need bool, or ids i64 or i32)",
                             what);
        for (int k = 0; k < (is_mask ? indices[i]->rank : 1) && list->n < TL_MAX_RANK; k++, list->n++) {
            list->axes[list->n] = at + k;
            list->index[list->n] = indices[i];
        }
        list->has_mask |= is_mask;
    }
    if (total < 1 || total > INDEX_MAX || total > x->rank)
        return error_set(TL_ERROR_USE, "%s: too many indices for tensor of dimension %d: %d (need 1 to %d)", what,
                         x->rank, total, x->rank < INDEX_MAX ? x->rank : INDEX_MAX);
    for (int i = 0; i < list->n; i++)
        for (int j = 0; j < i; j++)
            if (list->axes[i] == list->axes[j])
                return error_set(TL_ERROR_USE, "%s: axis %d is named twice", what, list->axes[i]);
    return true;
}

/* A mask becomes the columns of its nonzero: one vector of indices for each of its axes. */
static bool masks_count(const char *what, struct indices *list) {
    for (int i = 0; i < list->n;) {
        tl_tensor *mask = list->index[i];
        if (mask->dtype != TL_BOOL) {
            i++;
            continue;
        }
        if (!device_has_data(mask->storage->device))
            return error_set(TL_ERROR_USE,
                             "%s: how many a mask names depends on data, and meta has none (need a real device)", what);
        tl_tensor *places = tl_nonzero(mask); /* (n, rank) */
        for (int k = 0; k < mask->rank; k++, i++) {
            list->index[i] = places ? tl_select(places, 1, k) : NULL;
            if (!list->index[i]) return false;
        }
    }
    return true;
}

/* The attributes of the call, and the indices in the order of their axes. */
static void indices_sort(const struct indices *list, struct attr_index *a, tl_tensor **ordered) {
    memset(a, 0, sizeof *a);
    for (int i = 0; i < list->n; i++) {
        int k = a->n++;
        for (; k > 0 && a->axes[k - 1] > list->axes[i]; k--) {
            a->axes[k] = a->axes[k - 1];
            ordered[k] = ordered[k - 1];
        }
        a->axes[k] = list->axes[i];
        ordered[k] = list->index[i];
    }
    a->wraps = true;
}

tl_tensor *tl_index(tl_tensor *x, const int *axes, tl_tensor **indices, int n) {
    struct indices list;
    struct attr_index a;
    tl_tensor *input[INDEX_MAX + 1] = {x}, *result = NULL;
    if (!indices_check("index", x, axes, indices, n, &list)) return NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    if (masks_count("index", &list)) {
        indices_sort(&list, &a, input + 1);
        result = index_apply(&op_index, input, a.n + 1, &a, false);
    }
    return tl_scope_return(scope, result);
}

/* One value for all elements that one mask selects: no shape depends on the mask, so tl_where does it, on meta too. */
static bool is_fill(const struct indices *list, const tl_tensor *values) {
    return list->has_mask && list->is_alone && values->numel == 1;
}
static tl_tensor *mask_put(tl_tensor *x, const struct indices *list, tl_tensor *value, bool accumulates) {
    tl_tensor *mask = list->index[0];
    for (int i = list->axes[0] + list->n; mask && i < x->rank; i++) mask = tl_unsqueeze(mask, -1);
    value = tl_reshape(value, TL_SCALAR);
    return tl_where(mask, accumulates ? tl_add(x, value) : value, x);
}

static tl_tensor *index_put(tl_tensor *x, const int *axes, tl_tensor **indices, int n, tl_tensor *values,
                            bool accumulates, bool in_place) {
    struct indices list;
    struct attr_index a;
    tl_tensor *input[INDEX_MAX + 2] = {x, values}, *result = NULL;
    if (!indices_check("index_put", x, axes, indices, n, &list) || !tensor_check(values, "index_put")) return NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    if (is_fill(&list, values) && values->dtype == x->dtype && values->rank <= x->rank - list.n + 1) {
        result = mask_put(x, &list, values, accumulates);
        if (in_place) result = tl_copy_(x, result);
    } else if (masks_count("index_put", &list)) {
        indices_sort(&list, &a, input + 2);
        a.accumulates = accumulates;
        result = index_apply(&op_index_put, input, a.n + 2, &a, in_place);
    }
    return tl_scope_return(scope, result);
}
tl_tensor *tl_index_put(tl_tensor *x, const int *axes, tl_tensor **indices, int n, tl_tensor *values, bool accumulate) {
    return index_put(x, axes, indices, n, values, accumulate, false);
}
tl_tensor *tl_index_put_(tl_tensor *x, const int *axes, tl_tensor **indices, int n, tl_tensor *values,
                         bool accumulate) {
    return index_put(x, axes, indices, n, values, accumulate, true);
}

/* ---- One axis, one vector of indices ---- */

static bool is_vector(const char *what, const tl_tensor *index) {
    return index->rank <= 1 || error_set(TL_ERROR_USE, "%s(): Index is supposed to be a vector", what);
}

tl_tensor *tl_index_select(tl_tensor *x, int axis, tl_tensor *index) {
    if (!tensor_check(x, "index_select") || !tensor_check(index, "index_select")) return NULL;
    struct attr_index a;
    memset(&a, 0, sizeof a);
    a.n = 1;
    a.axes[0] = index_axis("index_select", x, axis);
    if (a.axes[0] < 0 || !is_vector("index_select", index)) return NULL;
    bool is_scalar = x->rank == 0;
    if (is_scalar && index->numel != 1) {
        error_set(TL_ERROR_USE, "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
                  (long long)index->numel);
        return NULL;
    }
    tl_tensor *input[2] = {x, index};
    for (int i = 0; i < 2; i++) input[i] = index_lift(input[i]);
    tl_tensor *rows = index_apply(&op_index, input, 2, &a, false);
    return rows && is_scalar ? tl_view(rows, TL_SCALAR) : rows;
}

static tl_tensor *index_add(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, double alpha, bool in_place) {
    const char *what = "index_add";
    if (!tensor_check(x, what) || !tensor_check(index, what) || !tensor_check(source, what)) return NULL;
    struct attr_index a;
    memset(&a, 0, sizeof a);
    a.n = 1;
    a.accumulates = true;
    a.axes[0] = index_axis(what, x, axis);
    if (a.axes[0] < 0 || !is_vector(what, index)) return NULL;
    bool is_scalar = x->rank == 0, fits = source->rank == x->rank;
    for (int i = 0; fits && i < x->rank; i++) fits = source->shape[i] == (i == a.axes[0] ? index->numel : x->shape[i]);
    if (!fits) {
        error_set(TL_ERROR_USE,
                  "index_add(): source tensor shape must match self tensor shape, excluding the "
                  "specified dimension, which has the number of indices (%lld)",
                  (long long)index->numel);
        return NULL;
    }
    if (alpha != 1) source = tl_scale(source, alpha);
    if (!source) return NULL;
    tl_tensor *input[3] = {x, source, index};
    for (int i = 0; i < 3; i++) input[i] = index_lift(input[i]);
    tl_tensor *sum = index_apply(&op_index_put, input, 3, &a, in_place);
    return !sum || !is_scalar ? sum : in_place ? x : tl_view(sum, TL_SCALAR);
}
tl_tensor *tl_index_add(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, double alpha) {
    return index_add(x, axis, index, source, alpha, false);
}
tl_tensor *tl_index_add_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, double alpha) {
    return index_add(x, axis, index, source, alpha, true);
}

/* ---- Masks ---- */

tl_tensor *tl_masked_fill(tl_tensor *x, tl_tensor *mask, double value) {
    if (!tensor_check(x, "masked_fill") || !tensor_check(mask, "masked_fill")) return NULL;
    return tl_where(mask, tl_full(TL_SCALAR, value, x->dtype, x->storage->device), x);
}
tl_tensor *tl_masked_fill_(tl_tensor *x, tl_tensor *mask, double value) {
    tl_tensor *filled = tl_masked_fill(x, mask, value);
    return filled ? tl_copy_(x, filled) : NULL;
}

tl_tensor *tl_masked_select(tl_tensor *x, tl_tensor *mask) {
    if (!tensor_check(x, "masked_select") || !tensor_check(mask, "masked_select")) return NULL;
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (mask->dtype != TL_BOOL || !shape_broadcast(x->rank, x->shape, mask->rank, mask->shape, &rank, shape)) {
        error_set(TL_ERROR_USE, "masked_select: expected a boolean tensor for mask that broadcasts with the input");
        return NULL;
    }
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *wide = tl_reshape(tl_expand(mask, rank, shape), TL_SHAPE(-1));
    tl_tensor *place = wide ? tl_nonzero(wide) : NULL; /* (n, 1) */
    tl_tensor *flat = place ? tl_reshape(tl_expand(x, rank, shape), TL_SHAPE(-1)) : NULL;
    return tl_scope_return(scope, flat ? tl_index_select(flat, 0, tl_select(place, 1, 0)) : NULL);
}

/* ---- Repeating by a tensor of counts ---- */

static bool repeat_interleave_shape(tl_call *c) {
    return call_needs_index(c, 0) &&
           (c->input[0]->rank == 1 || call_fail(c, "repeats must be 0-dim or 1-dim tensor")) &&
           call_output(c, 0, TL_I64, 1, &((const struct attr_repeat *)c->attr)->total);
}
static void repeat_interleave_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }
const tl_op op_repeat_interleave = {RECORD(DYNAMIC, repeat_interleave, 1),
                                    .shapes = "counts (n) -> (their sum): the numbers to read",
                                    .dtypes = "i64, i32",
                                    .flops = "0",
                                    .shape = repeat_interleave_shape,
                                    .cost = repeat_interleave_cost};

tl_tensor *tl_repeat_counts(tl_tensor *x, int axis, tl_tensor *counts) {
    if (!tensor_check(x, "repeat_interleave") || !tensor_check(counts, "repeat_interleave")) return NULL;
    int at = index_axis("repeat_interleave", x, axis);
    if (at < 0) return NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    x = index_lift(x);
    int64_t size = x ? x->shape[at] : 0;
    bool is_one = counts->rank == 0 || (counts->rank == 1 && counts->shape[0] == 1);
    if (x && is_one) counts = tl_expand(counts, TL_SHAPE(size));
    struct attr_repeat a = {0};
    if (x && counts && counts->numel != size)
        error_set(TL_ERROR_USE,
                  "repeat_interleave: repeats must have the same size as input along dim, but got "
                  "repeats.size(0) = %lld and input.size(%d) = %lld",
                  (long long)counts->numel, at, (long long)size);
    else if (x && counts && device_has_data(counts->storage->device)) a.total = tl_item_int(tl_sum_all(counts));
    if (a.total < 0) a.total = 0; /* the kernel reports the negative count */
    tl_tensor *index = tl_error() == TL_OK ? op_apply1(&op_repeat_interleave, counts, ATTR(a)) : NULL;
    return tl_scope_return(scope, index ? tl_index_select(x, at, index) : NULL);
}

/* ---- Counting ---- */

tl_tensor *tl_one_hot(tl_tensor *index, int64_t n_classes) {
    if (!tensor_check(index, "one_hot")) return NULL;
    if (n_classes < 1 || index->rank == TL_MAX_RANK) {
        error_set(TL_ERROR_USE, "one_hot: num_classes should be positive, not %lld", (long long)n_classes);
        return NULL;
    }
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, index->shape, (size_t)index->rank * sizeof *shape);
    shape[index->rank] = n_classes;
    tl_tensor *zeros = tl_zeros(index->rank + 1, shape, TL_I64, index->storage->device);
    tl_tensor *column = zeros ? tl_unsqueeze(index, -1) : NULL;
    return column ? tl_scatter_scalar_(zeros, -1, column, 1) : NULL;
}

tl_tensor *tl_bincount(tl_tensor *x, int64_t n_bins, tl_tensor *weights) {
    if (!tensor_check(x, "bincount") || (weights && !tensor_check(weights, "bincount"))) return NULL;
    if (x->rank != 1 || n_bins < 0 || (weights && (weights->rank != 1 || weights->numel != x->numel))) {
        error_set(TL_ERROR_USE,
                  "bincount: only supports 1-d non-negative integral inputs, weights of their number, and "
                  "a number of bins that is not negative");
        return NULL;
    }
    tl_device *device = x->storage->device;
    tl_tensor *bins = tl_zeros(TL_SHAPE(n_bins), weights ? weights->dtype : TL_I64, device);
    tl_tensor *one = weights ? weights : tl_ones(TL_SCALAR, TL_I64, device);
    if (!bins || !one) return NULL;
    return tl_index_add_(bins, 0, x, tl_expand(one, 1, x->shape), 1);
}
