/* sort.c: sort, top-k, search in sorted tensors, distinct values. */
#include <string.h>

#include "ops/index.h"

/* ceil(log2 n): the levels of a merge, the steps of a search. */
static count levels(int64_t n) {
    count k = 0;
    while (((count)1 << k) < (count)n) k++;
    return k;
}

/* ---- sort: the first k of the sorted axis, and where they were ---- */

static bool sort_shape(tl_call *c) {
    const struct attr_sort *a = c->attr;
    const tl_tensor *x = c->input[0];
    int64_t shape[TL_MAX_RANK];
    if (!call_needs_arithmetic(c, 0)) return false;
    if (a->k < 0 || a->k > x->shape[a->axis])
        return call_fail(c, "selected index k out of range: %lld of %lld", (long long)a->k,
                         (long long)x->shape[a->axis]);
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[a->axis] = a->k;
    return call_output(c, 0, x->dtype, x->rank, shape) && call_output(c, 1, TL_I64, x->rank, shape);
}
/* one comparison per element and level of merging */
static void sort_cost(const tl_call *c, struct cost *cost) {
    const struct attr_sort *a = c->attr;
    cost_traffic(c, cost, (count)c->input[0]->numel * levels(c->input[0]->shape[a->axis]));
}
/* Two arrays of (key, index) for each slot. */
static uint64_t sort_workspace(const tl_call *c) {
    int64_t size = c->input[0]->shape[((const struct attr_sort *)c->attr)->axis];
    int64_t lines = size ? c->input[0]->numel / size : 0;
    return (uint64_t)(lines < SORT_SLOTS ? lines : SORT_SLOTS) * (uint64_t)size * 32;
}
/* dx = zeros with g where the values came from */
static void sort_backward(tl_gradient *g) {
    const struct attr_sort *a = g->node->attr;
    const struct edge *e = &g->node->edges[0];
    if (!g->grad[0]) return;
    tl_tensor *zeros = tl_zeros(e->rank, e->shape, e->dtype, g->grad[0]->storage->device);
    g->result[0] = tl_scatter_(zeros, a->axis, gradient_output(g, 1), g->grad[0]);
}
const tl_op op_sort = {RECORD(KERNEL, sort, 2),
                       .shapes = "x -> values and indices, the axis cut to k",
                       .dtypes = "any arithmetic; indices i64",
                       .flops = "ceil(log2 size) per element of x",
                       .shape = sort_shape,
                       .cost = sort_cost,
                       .workspace = sort_workspace,
                       .backward = sort_backward,
                       .saves = {TL_OUTPUT(1)}};

/* k < 0: the whole axis. */
static bool sort(const char *what, tl_tensor *x, int64_t k, int axis, bool descending, tl_tensor **values,
                 tl_tensor **indices) {
    if (!tensor_check(x, what)) return false;
    struct attr_sort a;
    memset(&a, 0, sizeof a);
    a.axis = index_axis(what, x, axis);
    if (a.axis < 0) return false;
    bool is_scalar = x->rank == 0;
    x = index_lift(x);
    if (!x) return false;
    a.k = k < 0 ? x->shape[a.axis] : k;
    a.descending = descending;
    tl_call c;
    call_begin(&c, &op_sort, &x, 1, ATTR(a));
    if (!op_apply(&c)) return false;
    for (int j = 0; is_scalar && a.k && j < 2; j++) {
        c.output[j] = tl_view(c.output[j], TL_SCALAR);
        if (!c.output[j]) return false;
    }
    if (values) *values = c.output[0];
    if (indices) *indices = c.output[1];
    return true;
}

bool tl_sort(tl_tensor *x, int axis, bool descending, tl_tensor **values, tl_tensor **indices) {
    return sort("sort", x, -1, axis, descending, values, indices);
}

tl_tensor *tl_argsort(tl_tensor *x, int axis, bool descending) {
    tl_tensor *indices;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    bool ok = sort("argsort", x, -1, axis, descending, NULL, &indices);
    return tl_scope_return(scope, ok ? indices : NULL);
}

bool tl_topk(tl_tensor *x, int64_t k, int axis, bool largest, tl_tensor **values, tl_tensor **indices) {
    if (k < 0) return error_set(TL_ERROR_USE, "topk: selected index k out of range: %lld", (long long)k);
    return sort("topk", x, k, axis, largest, values, indices);
}

/* ---- searchsorted ---- */

static bool searchsorted_shape(tl_call *c) {
    const tl_tensor *sorted = c->input[0], *values = c->input[1];
    if (!call_needs_arithmetic(c, 0)) return false;
    if (sorted->dtype != values->dtype)
        return call_fail(c, "boundary tensor and input value tensor should have same dtype");
    bool fits = sorted->rank == 1 || (sorted->rank > 1 && sorted->rank == values->rank);
    for (int i = 0; fits && sorted->rank > 1 && i < sorted->rank - 1; i++) fits = sorted->shape[i] == values->shape[i];
    if (!fits)
        return call_fail(c, "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
                            "and input value tensor must match");
    return call_output(c, 0, TL_I64, values->rank, values->shape);
}
/* Each step of a search is a comparison and fetches one element: n boundaries have n + 1 answers. */
static void searchsorted_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *sorted = c->input[0], *values = c->input[1];
    count steps = (count)values->numel * levels(sorted->shape[sorted->rank - 1] + 1);
    count fetched = steps * (count)dtype_info(sorted->dtype)->bits / 8, all = tensor_traffic(sorted);
    *cost = (struct cost){.n_parts = 1,
                          .part[0] = {COST_HERE, steps, tensor_traffic(values) + (fetched < all ? fetched : all),
                                      tensor_traffic(c->output[0])}};
}
const tl_op op_searchsorted = {RECORD(KERNEL, searchsorted, 1),
                               .shapes = "sorted (..., n), values (..., m) -> values' shape; or sorted (n), any values",
                               .dtypes = "any arithmetic, both alike; result i64",
                               .flops = "ceil(log2 (n + 1)) per value",
                               .shape = searchsorted_shape,
                               .cost = searchsorted_cost};

tl_tensor *tl_searchsorted(tl_tensor *sorted, tl_tensor *values, bool right) {
    if (!tensor_check(sorted, "searchsorted") || !tensor_check(values, "searchsorted")) return NULL;
    struct attr_search a = {right};
    tl_dtype dtype = sorted->dtype == values->dtype ? sorted->dtype : dtype_promote(sorted->dtype, values->dtype);
    if (dtype != TL_DTYPE_COUNT) {
        sorted = tl_cast(sorted, dtype);
        values = sorted ? tl_cast(values, dtype) : NULL;
    }
    return op_apply2(&op_searchsorted, sorted, values, ATTR(a));
}

/* ---- unique ---- */

static bool unique_shape(tl_call *c) {
    int64_t n = ((const struct attr_unique *)c->attr)->n;
    return call_needs_arithmetic(c, 0) && call_output(c, 0, c->input[0]->dtype, 1, &n) &&
           call_output(c, 1, TL_I64, 1, c->input[1]->shape) && call_output(c, 2, TL_I64, 1, &n);
}
/* one comparison with the element before */
static void unique_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, (count)c->input[0]->numel); }
const tl_op op_unique = {RECORD(DYNAMIC, unique, 3),
                         .shapes = "sorted (n), order (n) -> values (m), inverse (n), counts (m)",
                         .dtypes = "any arithmetic; order, inverse and counts i64",
                         .flops = "n",
                         .shape = unique_shape,
                         .cost = unique_cost};

/* How many elements of a sorted vector differ from the one before. */
static int64_t count_distinct(tl_tensor *sorted) {
    if (sorted->numel < 2) return sorted->numel;
    tl_tensor *later = tl_slice(sorted, 0, 1, TL_END, 1), *earlier = tl_slice(sorted, 0, 0, -1, 1);
    return 1 + tl_item_int(tl_sum_all(tl_cmp(later, TL_NE, earlier)));
}

static bool unique(tl_tensor *x, tl_call *c, tl_tensor **input) {
    struct attr_unique a = {0};
    tl_tensor *flat = tl_reshape(x, TL_SHAPE(x->numel));
    if (!flat) return false;
    input[0] = input[1] = flat;
    bool is_meta = !device_has_data(x->storage->device); /* the error names unique, not the count inside */
    if (!is_meta && !tl_sort(flat, 0, false, &input[0], &input[1])) return false;
    if (!is_meta) a.n = count_distinct(input[0]);
    if (tl_error() != TL_OK) return false;
    call_begin(c, &op_unique, input, 2, ATTR(a));
    if (!op_apply(c)) return false;
    c->output[1] = tl_view(c->output[1], x->rank, x->shape);
    return c->output[1] != NULL;
}

bool tl_unique(tl_tensor *x, tl_tensor **values, tl_tensor **inverse, tl_tensor **counts) {
    if (!tensor_check(x, "unique")) return false;
    tl_tensor **result[3] = {values, inverse, counts}, *input[2];
    tl_call c;
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    bool ok = scope.depth && unique(x, &c, input);
    for (int j = 0; ok && j < 3; j++)
        if (result[j]) tensor_keep(c.output[j]);
    if (scope.depth) tl_scope_end(scope);
    tl_set_grad_mode(mode);
    for (int j = 0; ok && j < 3; j++)
        if (result[j]) *result[j] = scope_adopt(c.output[j]);
    return ok && tl_error() == TL_OK;
}
