/* view.c: other geometries of the same storage. No bytes move.
 *
 * Each view is a function of layouts. Backward of a view that shows only some elements places its gradient
 * into zeros of the input's shape (unview), or adds it to the input's gradient if that exists.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ops/ops.h"

struct attr_select {
    int axis;
    int64_t index;
};
struct attr_slice {
    int axis;
    int64_t start, step, length;
};
struct attr_shape {
    int rank;
    int64_t shape[TL_MAX_RANK];
};
struct attr_permute {
    int axes[TL_MAX_RANK];
};
struct attr_diagonal {
    int axis0, axis1;
    int64_t offset;
};
struct attr_strided {
    int rank;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK], offset, base_offset;
};

/* Two f4 share a byte: a view must keep pairs whole. */
static bool pairs_stay_whole(const tl_call *c) {
    const struct layout *l = &c->out[0];
    if (dtype_info(l->dtype)->bits >= 8) return true;
    bool whole = l->rank > 0 && l->stride[l->rank - 1] == 1 && l->shape[l->rank - 1] % 2 == 0 && l->offset % 2 == 0;
    for (int i = 0; whole && i < l->rank - 1; i++) whole = l->stride[i] % 2 == 0;
    return whole ||
           call_fail_need(c, "two %s share a byte", "a contiguous last axis of even length", tl_dtype_name(l->dtype));
}

/* ---- Gradients of views that show a part ---- */

typedef void (*layout_fn)(struct layout *l, const void *attr);

/* zeros of the input's shape, with g at the view's place */
static void part_backward(tl_gradient *g, layout_fn view) {
    const struct edge *e = &g->node->edges[0];
    if (!g->needs[0]) return;
    if (g->into[0]) { /* add where the input's gradient is already */
        tl_call c;
        call_begin(&c, g->node->op, &g->into[0], 1, g->node->attr, g->node->attr_bytes);
        if (tl_add_(op_apply(&c), g->grad[0])) g->result[0] = g->into[0];
        return;
    }
    struct layout l;
    layout_dense(&l, e->dtype, e->rank, e->shape);
    view(&l, g->node->attr);
    struct attr_unview a = {
        .rank = e->rank, .offset = l.offset, .overlaps = strides_overlap(l.rank, l.shape, l.stride)};
    memcpy(a.shape, e->shape, (size_t)e->rank * sizeof *a.shape);
    memcpy(a.stride, l.stride, (size_t)l.rank * sizeof *a.stride);
    g->result[0] = op_apply1(&op_unview, g->grad[0], ATTR(a));
}

/* ---- select ---- */

static void select_layout(struct layout *l, const void *attr) {
    const struct attr_select *a = attr;
    l->offset += a->index * l->stride[a->axis];
    l->rank--;
    for (int i = a->axis; i < l->rank; i++) {
        l->shape[i] = l->shape[i + 1];
        l->stride[i] = l->stride[i + 1];
    }
}
static bool select_shape(tl_call *c) {
    tensor_layout(c->input[0], &c->out[0]);
    select_layout(&c->out[0], c->attr);
    return pairs_stay_whole(c);
}
static void select_backward(tl_gradient *g) { part_backward(g, select_layout); }
const tl_op op_select = {RECORD(VIEW, select, 1),
                         .shapes = "x -> x without the axis",
                         .dtypes = "any, complex too; pairs of f4 stay whole",
                         .flops = "0",
                         .shape = select_shape,
                         .cost = cost_free,
                         .backward = select_backward};

/* A function that fails before there is a call to name. */
static tl_tensor *fail3(const char *what, tl_tensor *x, const char *format, long long a, long long b, long long c) {
    char text[200], message[200];
    tl_describe(x, text, sizeof text);
    snprintf(message, sizeof message, format, a, b, c);
    error_set(TL_ERROR_USE, "%s: %s: %s", what, message, text);
    return NULL;
}

static tl_tensor *fail(const char *what, tl_tensor *x, const char *format, long long a, long long b) {
    return fail3(what, x, format, a, b, 0);
}

tl_tensor *tl_select(tl_tensor *x, int axis, int64_t index) {
    if (!tensor_check(x, "select")) return NULL;
    struct attr_select a;
    memset(&a, 0, sizeof a);
    a.axis = axis_check("select", axis, x->rank);
    if (a.axis < 0) return NULL;
    int64_t size = x->shape[a.axis];
    if (index < -size || index >= size)
        return fail3("select", x, "index %lld is out of bounds for dimension %lld with size %lld", index, a.axis, size);
    a.index = index < 0 ? index + size : index;
    return op_apply1(&op_select, x, ATTR(a));
}

/* ---- slice ---- */

static void slice_layout(struct layout *l, const void *attr) {
    const struct attr_slice *a = attr;
    l->offset += a->length ? a->start * l->stride[a->axis] : 0;
    l->shape[a->axis] = a->length;
    l->stride[a->axis] *= a->step;
}
static bool slice_shape(tl_call *c) {
    tensor_layout(c->input[0], &c->out[0]);
    slice_layout(&c->out[0], c->attr);
    return pairs_stay_whole(c);
}
static void slice_backward(tl_gradient *g) { part_backward(g, slice_layout); }
const tl_op op_slice = {RECORD(VIEW, slice, 1),
                        .shapes = "x -> x, the axis cut to every step-th from start to stop",
                        .dtypes = "any, complex too; pairs of f4 stay whole",
                        .flops = "0",
                        .shape = slice_shape,
                        .cost = cost_free,
                        .backward = slice_backward};

static int64_t clip(int64_t n, int64_t low, int64_t high) { return n < low ? low : n > high ? high : n; }

tl_tensor *tl_slice(tl_tensor *x, int axis, int64_t start, int64_t stop, int64_t step) {
    if (!tensor_check(x, "slice")) return NULL;
    struct attr_slice a;
    memset(&a, 0, sizeof a);
    a.axis = axis_check("slice", axis, x->rank);
    if (a.axis < 0) return NULL;
    if (step == 0 || step == INT64_MIN) return fail("slice", x, "step %lld is not allowed", step, 0);
    int64_t size = x->shape[a.axis];
    bool to_end = stop == TL_END;
    if (start < 0) start = start < -size ? (step > 0 ? 0 : -1) : start + size; /* before the beginning */
    if (stop < 0) stop = stop < -size ? (step > 0 ? 0 : -1) : stop + size;
    start = step > 0 ? clip(start, 0, size) : clip(start, -1, size - 1);
    stop = to_end ? (step > 0 ? size : -1) : step > 0 ? clip(stop, 0, size) : clip(stop, -1, size - 1);
    int64_t distance = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
    a.start = start;
    a.step = step;
    a.length = distance > 0 ? (distance - 1) / stride + 1 : 0;
    if (a.length <= 1) a.step = 1; /* an unused stride must not overflow */
    return op_apply1(&op_slice, x, ATTR(a));
}

/* ---- view, reshape ---- */

static bool view_shape(tl_call *c) {
    const struct attr_shape *a = c->attr;
    const tl_tensor *x = c->input[0];
    struct layout *l = &c->out[0];
    l->dtype = x->dtype;
    l->rank = a->rank;
    l->offset = x->offset;
    memcpy(l->shape, a->shape, (size_t)a->rank * sizeof *l->shape);
    if (strides_for_view(x->rank, x->shape, x->stride, l->rank, l->shape, l->stride)) return pairs_stay_whole(c);
    return call_fail(c, "view size is not compatible with input tensor's size and stride (at least one dimension spans "
                        "across two contiguous subspaces). Use .reshape(...) instead");
}
static void view_backward(tl_gradient *g) {
    const struct edge *e = &g->node->edges[0];
    g->result[0] = tl_reshape(g->grad[0], e->rank, e->shape);
}
const tl_op op_view = {RECORD(VIEW, view, 1),
                       .shapes = "x -> any shape of as many elements that its strides allow",
                       .dtypes = "any, complex too; pairs of f4 stay whole",
                       .flops = "0",
                       .shape = view_shape,
                       .cost = cost_free,
                       .passes_on = true,
                       .backward = view_backward};

/* Fills in a size of -1; false when the sizes do not multiply to numel. */
static bool shape_complete(const char *what, tl_tensor *x, int rank, const int64_t *shape, struct attr_shape *a) {
    memset(a, 0, sizeof *a);
    if (rank < 0 || rank > TL_MAX_RANK) return fail(what, x, "rank %lld is more than %lld", rank, TL_MAX_RANK);
    if (rank && !error_given(shape, what, "a shape")) return false;
    int open = -1;
    int64_t known = 1;
    bool ok = true;
    for (int i = 0; i < rank; i++) {
        a->shape[i] = shape[i];
        if (shape[i] == -1 && open >= 0) return fail(what, x, "only one dimension can be inferred", 0, 0);
        if (shape[i] == -1) open = i;
        else ok = ok && shape[i] >= 0 && size_mul(known, shape[i], &known);
    }
    a->rank = rank;
    if (ok && open >= 0 && known == 0)
        return fail(what, x, "cannot reshape tensor of 0 elements with an unspecified dimension of any size", 0, 0);
    if (ok && open >= 0) {
        a->shape[open] = x->numel / known;
        ok = x->numel % known == 0;
    } else if (ok) {
        ok = known == x->numel;
    }
    if (ok) return true;
    char wanted[SHAPE_TEXT];
    shape_print_spaced(wanted, sizeof wanted, rank, shape);
    error_set(TL_ERROR_USE, "%s: shape '%s' is invalid for input of size %lld", what, wanted, (long long)x->numel);
    return false;
}

tl_tensor *tl_view(tl_tensor *x, int rank, const int64_t *shape) {
    struct attr_shape a;
    if (!tensor_check(x, "view") || !shape_complete("view", x, rank, shape, &a)) return NULL;
    return op_apply1(&op_view, x, ATTR(a));
}

tl_tensor *tl_reshape(tl_tensor *x, int rank, const int64_t *shape) {
    struct attr_shape a;
    int64_t stride[TL_MAX_RANK];
    if (!tensor_check(x, "reshape") || !shape_complete("reshape", x, rank, shape, &a)) return NULL;
    if (!strides_for_view(x->rank, x->shape, x->stride, a.rank, a.shape, stride)) x = tl_clone(x);
    return op_apply1(&op_view, x, ATTR(a));
}

tl_tensor *tl_flatten(tl_tensor *x, int first, int last) {
    if (!tensor_check(x, "flatten")) return NULL;
    int rank_there = x->rank ? x->rank : 1; /* a scalar has one axis here, as in PyTorch */
    int from = axis_check("flatten", first, rank_there), to = axis_check("flatten", last, rank_there);
    if (from < 0 || to < 0) return NULL;
    if (x->rank == 0) return tl_reshape(x, TL_SHAPE(1));
    if (from > to)
        return fail("flatten", x, "flatten() has invalid args: start_dim %lld cannot come after end_dim %lld", first,
                    last);
    int64_t shape[TL_MAX_RANK], merged = 1;
    int rank = 0;
    for (int i = 0; i < from; i++) shape[rank++] = x->shape[i];
    for (int i = from; i <= to; i++) merged *= x->shape[i];
    shape[rank++] = merged;
    for (int i = to + 1; i < x->rank; i++) shape[rank++] = x->shape[i];
    return tl_reshape(x, rank, shape);
}

tl_tensor *tl_unflatten(tl_tensor *x, int axis, int rank, const int64_t *sizes) {
    if (!tensor_check(x, "unflatten")) return NULL;
    int at = axis_check("unflatten", axis, x->rank);
    if (at < 0) return NULL;
    if (rank < 1 || x->rank - 1 + rank > TL_MAX_RANK) return fail("unflatten", x, "%lld sizes", rank, 0);
    if (!error_given(sizes, "unflatten", "sizes")) return NULL;
    int64_t shape[TL_MAX_RANK], known = 1;
    int n = 0, open = -1;
    for (int i = 0; i < at; i++) shape[n++] = x->shape[i];
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == -1 && open >= 0) return fail("unflatten", x, "only one dimension can be inferred", 0, 0);
        if (sizes[i] == -1) open = n;
        else if (sizes[i] < 0 || !size_mul(known, sizes[i], &known)) known = -1;
        shape[n++] = sizes[i];
    }
    if (open >= 0 && known > 0) shape[open] = x->shape[at] / known;
    if (known < 0 || (open >= 0 ? known == 0 || x->shape[at] % known : known != x->shape[at]))
        return fail("unflatten", x, "the sizes do not multiply to axis %lld of size %lld", axis, x->shape[at]);
    for (int i = at + 1; i < x->rank; i++) shape[n++] = x->shape[i];
    return tl_view(x, n, shape);
}

tl_tensor *tl_squeeze(tl_tensor *x, int axis) {
    if (!tensor_check(x, "squeeze")) return NULL;
    int at = axis_check("squeeze", axis, x->rank ? x->rank : 1), n = 0; /* a scalar may be said to have one axis */
    if (at < 0) return NULL;
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        if (i != at || x->shape[i] != 1) shape[n++] = x->shape[i];
    return tl_view(x, n, shape);
}

tl_tensor *tl_unsqueeze(tl_tensor *x, int axis) {
    if (!tensor_check(x, "unsqueeze")) return NULL;
    if (x->rank == TL_MAX_RANK) return fail("unsqueeze", x, "rank is %lld already", TL_MAX_RANK, 0);
    int at = axis_check("unsqueeze", axis, x->rank + 1), n = 0;
    if (at < 0) return NULL;
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i <= x->rank; i++) shape[i] = i == at ? 1 : x->shape[n++];
    return tl_view(x, x->rank + 1, shape);
}

/* ---- permute, transpose ---- */

static bool permute_shape(tl_call *c) {
    const struct attr_permute *a = c->attr;
    const tl_tensor *x = c->input[0];
    struct layout *l = &c->out[0];
    tensor_layout(x, l);
    for (int i = 0; i < x->rank; i++) {
        l->shape[i] = x->shape[a->axes[i]];
        l->stride[i] = x->stride[a->axes[i]];
    }
    return pairs_stay_whole(c);
}
static void permute_backward(tl_gradient *g) {
    const struct attr_permute *a = g->node->attr;
    int inverse[TL_MAX_RANK];
    for (int i = 0; i < g->node->edges[0].rank; i++) inverse[a->axes[i]] = i;
    g->result[0] = tl_permute(g->grad[0], inverse);
}
const tl_op op_permute = {RECORD(VIEW, permute, 1),
                          .shapes = "x -> its axes in another order",
                          .dtypes = "any, complex too; pairs of f4 stay whole",
                          .flops = "0",
                          .shape = permute_shape,
                          .cost = cost_free,
                          .backward = permute_backward};

tl_tensor *tl_permute(tl_tensor *x, const int *axes) {
    if (!tensor_check(x, "permute") || (x->rank && !error_given(axes, "permute", "axes"))) return NULL;
    struct attr_permute a;
    memset(&a, 0, sizeof a);
    uint64_t seen = 0;
    for (int i = 0; i < x->rank; i++) {
        int at = axis_check("permute", axes[i], x->rank);
        if (at < 0) return NULL;
        if (seen >> at & 1) return fail("permute", x, "axis %lld is named twice", axes[i], 0);
        seen |= (uint64_t)1 << at;
        a.axes[i] = at;
    }
    return op_apply1(&op_permute, x, ATTR(a));
}

tl_tensor *tl_transpose(tl_tensor *x, int axis0, int axis1) {
    if (!tensor_check(x, "transpose")) return NULL;
    int rank = x->rank ? x->rank : 1; /* a scalar may be said to have one axis */
    int a = axis_check("transpose", axis0, rank), b = axis_check("transpose", axis1, rank);
    if (a < 0 || b < 0) return NULL;
    int axes[TL_MAX_RANK];
    for (int i = 0; i < x->rank; i++) axes[i] = i == a ? b : i == b ? a : i;
    return tl_permute(x, axes);
}

/* ---- expand ---- */

static bool expand_shape(tl_call *c) {
    const struct attr_shape *a = c->attr;
    const tl_tensor *x = c->input[0];
    struct layout *l = &c->out[0];
    tensor_layout(x, l);
    l->rank = a->rank;
    int extra = a->rank - x->rank;
    for (int i = 0; i < a->rank; i++) {
        bool repeats = i < extra || (x->shape[i - extra] == 1 && a->shape[i] != 1);
        l->shape[i] = a->shape[i];
        l->stride[i] = repeats ? 0 : x->stride[i - extra];
    }
    return pairs_stay_whole(c);
}
static void expand_backward(tl_gradient *g) { g->result[0] = g->grad[0]; } /* the graph undoes broadcasting */
const tl_op op_expand = {RECORD(VIEW, expand, 1),
                         .shapes = "x -> a shape it broadcasts to",
                         .dtypes = "any, complex too; pairs of f4 stay whole",
                         .flops = "0",
                         .shape = expand_shape,
                         .cost = cost_free,
                         .backward = expand_backward};

tl_tensor *tl_expand(tl_tensor *x, int rank, const int64_t *shape) {
    if (!tensor_check(x, "expand")) return NULL;
    if (rank < x->rank || rank > TL_MAX_RANK)
        return fail("expand", x,
                    "the number of sizes provided (%lld) must be greater or equal to the number of dimensions in the "
                    "tensor (%lld)",
                    rank, x->rank);
    if (rank && !error_given(shape, "expand", "a shape")) return NULL;
    struct attr_shape a;
    memset(&a, 0, sizeof a);
    a.rank = rank;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t own = i < rank - x->rank ? -1 : x->shape[i - (rank - x->rank)];
        a.shape[i] = shape[i] == -1 ? own : shape[i];
        if (a.shape[i] < 0) return fail("expand", x, "the size of new axis %lld must be given", i, 0);
        if (own != -1 && own != 1 && own != a.shape[i])
            return fail3("expand", x,
                         "The expanded size of the tensor (%lld) must match the existing size (%lld) at non-singleton "
                         "dimension %lld",
                         a.shape[i], own, i);
    }
    return op_apply1(&op_expand, x, ATTR(a));
}

tl_tensor *tl_broadcast_to(tl_tensor *x, int rank, const int64_t *shape) { return tl_expand(x, rank, shape); }

/* ---- diagonal ---- */

static void diagonal_layout(struct layout *l, const void *attr) {
    const struct attr_diagonal *a = attr;
    int64_t rows = l->shape[a->axis0], columns = l->shape[a->axis1];
    int64_t length = a->offset >= 0 ? (rows < columns - a->offset ? rows : columns - a->offset)
                                    : (rows + a->offset < columns ? rows + a->offset : columns);
    if (length < 0) length = 0;
    if (length) l->offset += a->offset >= 0 ? a->offset * l->stride[a->axis1] : -a->offset * l->stride[a->axis0];
    int64_t stride = l->stride[a->axis0] + l->stride[a->axis1];
    int n = 0;
    for (int i = 0; i < l->rank; i++) {
        if (i == a->axis0 || i == a->axis1) continue;
        l->shape[n] = l->shape[i];
        l->stride[n++] = l->stride[i];
    }
    l->shape[n] = length;
    l->stride[n++] = stride;
    l->rank = n;
}
static bool diagonal_shape(tl_call *c) {
    tensor_layout(c->input[0], &c->out[0]);
    diagonal_layout(&c->out[0], c->attr);
    return pairs_stay_whole(c);
}
static void diagonal_backward(tl_gradient *g) { part_backward(g, diagonal_layout); }
const tl_op op_diagonal = {RECORD(VIEW, diagonal, 1),
                           .shapes = "x -> x without two axes, their diagonal as the last",
                           .dtypes = "any, complex too; pairs of f4 stay whole",
                           .flops = "0",
                           .shape = diagonal_shape,
                           .cost = cost_free,
                           .backward = diagonal_backward};

tl_tensor *tl_diagonal(tl_tensor *x, int64_t offset, int axis0, int axis1) {
    if (!tensor_check(x, "diagonal")) return NULL;
    struct attr_diagonal a;
    memset(&a, 0, sizeof a);
    a.axis0 = axis_check("diagonal", axis0, x->rank);
    a.axis1 = a.axis0 < 0 ? -1 : axis_check("diagonal", axis1, x->rank);
    if (a.axis0 < 0 || a.axis1 < 0) return NULL;
    if (a.axis0 == a.axis1)
        return fail("diagonal", x, "diagonal dimensions cannot be identical %lld, %lld", axis0, axis1);
    int64_t limit = INT64_MAX / 4;
    a.offset = clip(offset, -limit, limit);
    return op_apply1(&op_diagonal, x, ATTR(a));
}

/* ---- as_strided ---- */

static void strided_layout(struct layout *l, const void *attr) {
    const struct attr_strided *a = attr;
    l->rank = a->rank;
    l->offset = a->offset - a->base_offset;
    memcpy(l->shape, a->shape, (size_t)a->rank * sizeof *l->shape);
    memcpy(l->stride, a->stride, (size_t)a->rank * sizeof *l->stride);
}
static bool strided_shape(tl_call *c) {
    const struct attr_strided *a = c->attr;
    const tl_tensor *x = c->input[0];
    struct layout *l = &c->out[0];
    l->dtype = x->dtype;
    strided_layout(l, a);
    l->offset = a->offset;
    int64_t numel, low, high, there = (int64_t)(x->storage->bytes * 8 / (size_t)dtype_info(x->dtype)->bits);
    if (!shape_numel(l->rank, l->shape, &numel)) return call_fail(c, "negative or overflowing sizes");
    if (numel == 0) return pairs_stay_whole(c);
    if (!strides_span(l->rank, l->shape, l->stride, &low, &high) || a->offset < 0 || low < -a->offset ||
        high > there - 1 - a->offset)
        return call_fail(c, "the geometry reaches outside the storage of %lld elements", (long long)there);
    if (x->requires_grad && !thread_state()->grad_off &&
        (!tensor_is_dense(x) || low < x->offset - a->offset || high > x->offset + x->numel - 1 - a->offset))
        return call_fail_need(c, "its gradient is known only for geometries inside a contiguous tensor", "a clone");
    return pairs_stay_whole(c);
}
static void strided_backward(tl_gradient *g) {
    g->into[0] = NULL; /* the geometry belongs to the input's storage, not to its gradient's */
    part_backward(g, strided_layout);
}
const tl_op op_as_strided = {RECORD(VIEW, as_strided, 1),
                             .shapes = "x -> any shape and strides inside its storage",
                             .dtypes = "any, complex too; pairs of f4 stay whole",
                             .flops = "0",
                             .shape = strided_shape,
                             .cost = cost_free,
                             .backward = strided_backward};

tl_tensor *tl_as_strided(tl_tensor *x, int rank, const int64_t *shape, const int64_t *stride, int64_t offset) {
    if (!tensor_check(x, "as_strided")) return NULL;
    if (rank < 0 || rank > TL_MAX_RANK) return fail("as_strided", x, "rank %lld is more than %lld", rank, TL_MAX_RANK);
    if (rank && (!shape || !stride)) return fail("as_strided", x, "rank %lld needs a shape and strides", rank, 0);
    struct attr_strided a;
    memset(&a, 0, sizeof a);
    a.rank = rank;
    a.offset = offset;
    a.base_offset = x->offset;
    for (int i = 0; i < rank; i++) {
        a.shape[i] = shape[i];
        a.stride[i] = stride[i];
    }
    return op_apply1(&op_as_strided, x, ATTR(a));
}
