/* copy.c: moving elements: dense copies, casts, assignment, other devices. No FLOPs. */
#include <inttypes.h>
#include <string.h>

#include "account/ledger.h"
#include "ops/complex.h"
#include "ops/ops.h"
#include "tensor/convert.h"

static void move_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }

/* ---- copy: out = x, dense, of attr.dtype ---- */

static bool copy_shape(tl_call *c) {
    const struct attr_copy *a = c->attr;
    const tl_tensor *x = c->input[0];
    if (dtype_info(a->dtype)->bits < 8 && (x->rank == 0 || x->shape[x->rank - 1] % 2))
        return call_fail_need(c, "two %s share a byte", "a last axis of even length", tl_dtype_name(a->dtype));
    return call_output(c, 0, a->dtype, x->rank, x->shape);
}
/* dx = dout, in x's dtype (the graph casts) */
static void copy_backward(tl_gradient *g) { g->result[0] = g->grad[0]; }
const tl_op op_copy = {RECORD(KERNEL, copy, 1),  .shapes = "x (...) -> (...), dense",
                       .dtypes = "any to any",   .flops = "0",
                       .shape = copy_shape,      .cost = move_cost,
                       .backward = copy_backward};

tl_tensor *tl_clone(tl_tensor *x) {
    if (!tensor_check(x, "clone")) return NULL;
    struct attr_copy a = {x->dtype};
    return op_apply1(&op_copy, x, ATTR(a));
}

tl_tensor *tl_contiguous(tl_tensor *x) {
    if (!tensor_check(x, "contiguous")) return NULL;
    return tensor_is_dense(x) ? x : tl_clone(x);
}

tl_tensor *tl_cast(tl_tensor *x, tl_dtype dtype) {
    if (!tensor_check(x, "cast")) return NULL;
    if (!dtype_info(dtype)) {
        error_set(TL_ERROR_USE, "cast: no dtype has the number %d", (int)dtype);
        return NULL;
    }
    struct attr_copy a = {dtype};
    if (dtype_is_complex(dtype) && !dtype_is_complex(x->dtype)) return complex_of_real(x, dtype);
    return x->dtype == dtype ? x : op_apply1(&op_copy, x, ATTR(a));
}

/* ---- assign: x = source, broadcast and cast ---- */

static bool assign_shape(tl_call *c) {
    const tl_tensor *x = c->input[0], *source = c->input[1];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!shape_broadcast(x->rank, x->shape, source->rank, source->shape, &rank, shape))
        return call_fail_clash(c, x->rank, x->shape, source->rank, source->shape);
    if (!shape_equal(rank, shape, x->rank, x->shape)) return call_fail_larger(c, x, rank, shape);
    if (dtype_info(x->dtype)->bits < 8 && !tensor_is_dense(source))
        return call_fail_need(c, "two %s share a byte", "a contiguous source", tl_dtype_name(x->dtype));
    return true;
}
/* The old contents are not read. */
static void assign_cost(const tl_call *c, struct cost *cost) {
    *cost = (struct cost){.n_parts = 1,
                          .part[0] = {COST_HERE, 0, tensor_traffic(c->input[1]), tensor_traffic(c->input[0])}};
}
/* nothing of the old x is left; dsource = dx (the graph undoes broadcasting) */
static void assign_backward(tl_gradient *g) { g->result[1] = g->grad[0]; }
const tl_op op_assign = {RECORD(KERNEL, assign, 1),
                         .shapes = "x, source that broadcasts to it -> x",
                         .dtypes = "any; source is cast to x's",
                         .flops = "0",
                         .shape = assign_shape,
                         .cost = assign_cost,
                         .backward = assign_backward,
                         .overwrites = {OVERWRITES(0)}};

tl_tensor *tl_copy_(tl_tensor *x, tl_tensor *source) {
    if (!tensor_check(x, "assign") || !tensor_check(source, "assign")) return NULL;
    /* integers have no gradient */
    if (!dtype_has_gradient(x->dtype) && tl_needs_grad(source)) source = tl_detach(source);
    return op_apply2(&op_assign, x, source, NULL, 0);
}

/* ---- fill: x = value ---- */

static bool fill_shape(tl_call *c) {
    (void)c;
    return true;
}
static void fill_cost(const tl_call *c, struct cost *cost) {
    *cost = (struct cost){.n_parts = 1, .part[0] = {COST_HERE, 0, 0, tensor_traffic(c->input[0])}};
}
static void fill_backward(tl_gradient *g) { (void)g; } /* a constant */
const tl_op op_fill = {
    RECORD(KERNEL, fill, 1), .shapes = "x -> x", .dtypes = "any",           .flops = "0",
    .shape = fill_shape,     .cost = fill_cost,  .backward = fill_backward, .overwrites = {OVERWRITES(0)}};

/* A view of an expanded tensor that has each element once, so that it may be filled. x itself if nothing repeats. */
static tl_tensor *without_repeats(tl_tensor *x) {
    for (int i = 0; x && i < x->rank; i++)
        if (x->stride[i] == 0 && x->shape[i] > 1) x = tl_slice(x, i, 0, 1, 1);
    return x;
}

tl_tensor *tl_fill_(tl_tensor *x, double value) {
    struct attr_full a = {value};
    if (!tensor_check(x, "fill")) return NULL;
    return op_apply1(&op_fill, without_repeats(x), ATTR(a)) ? x : NULL;
}

/* ---- unview: zeros with g at a view's place ---- */

static bool unview_shape(tl_call *c) {
    const struct attr_unview *a = c->attr;
    return call_needs_float(c, 0) && call_output(c, 0, c->input[0]->dtype, a->rank, a->shape);
}
/* Placing costs no FLOPs; adding, where elements overlap, one each. */
static void unview_cost(const tl_call *c, struct cost *cost) {
    const struct attr_unview *a = c->attr;
    cost_traffic(c, cost, a->overlaps ? (count)c->input[0]->numel : 0);
}
/* dg = the view of dout */
static void unview_backward(tl_gradient *g) {
    const struct attr_unview *a = g->node->attr;
    const struct edge *e = &g->node->edges[0];
    tl_tensor *dense = tl_contiguous(g->grad[0]);
    if (dense) g->result[0] = tl_as_strided(dense, e->rank, e->shape, a->stride, dense->offset + a->offset);
}
const tl_op op_unview = {RECORD(KERNEL, unview, 1),  .shapes = "g of a view -> the shape it is a view of",
                         .dtypes = "floats",         .flops = "0, or one per element of g where they overlap",
                         .shape = unview_shape,      .cost = unview_cost,
                         .backward = unview_backward};

/* ---- transfer: the same elements on another device ---- */

struct attr_transfer {
    tl_device *from;
}; /* where the gradient goes back to */

static bool transfer_shape(tl_call *c) {
    if (!device_has_data(c->device) && device_has_data(c->out_device))
        return call_fail(c, "meta has no data to send to %s", c->out_device->name);
    return call_output_like(c, 0, 0);
}
static void transfer_cost(const tl_call *c, struct cost *cost) {
    *cost = (struct cost){.n_parts = 1, .part[0].phase = COST_HERE, .transfer_bytes = tensor_traffic(c->input[0])};
}
static void transfer_backward(tl_gradient *g) {
    g->result[0] = tl_to(g->grad[0], ((const struct attr_transfer *)g->node->attr)->from);
}
static bool transfer_run(const tl_call *c, char *error) {
    size_t bytes = (size_t)c->output[0]->storage->bytes;
    if (!bytes) return true;
    void *to = tensor_data(c->output[0]);
    const void *from = tensor_data(c->input[0]);
    if (device_is_host(c->device))
        return c->out_device->functions->copy(c->out_device, to, from, bytes, COPY_TO_DEVICE, error);
    if (device_is_host(c->out_device))
        return c->device->functions->copy(c->device, to, from, bytes, COPY_TO_HOST, error);
    return c->device->functions->copy(c->device, to, from, bytes, COPY_INSIDE, error);
}
const tl_op op_transfer = {RECORD(TRANSFER, transfer, 1), .shapes = "x (...) -> (...), on another device",
                           .dtypes = "any, complex too",  .flops = "0",
                           .shape = transfer_shape,       .cost = transfer_cost,
                           .backward = transfer_backward, .run = transfer_run};

tl_tensor *tl_to(tl_tensor *x, tl_device *device) {
    if (!tensor_check(x, "to")) return NULL;
    if (!device) {
        error_set(TL_ERROR_USE, "to: got NULL instead of a device");
        return NULL;
    }
    if (x->storage->device == device) return x;
    x = tl_contiguous(x);
    tl_call c;
    struct attr_transfer a = {x ? x->storage->device : NULL};
    call_begin(&c, &op_transfer, &x, 1, ATTR(a));
    c.out_device = device;
    return op_apply(&c);
}

/* Bytes for a file are read, if kernels run on the host, or copied to the host. */
bool transfer_bill(const tl_tensor *x) {
    const struct thread_state *s = thread_state();
    struct ledger_entry entry = {
        .key = {op_transfer.name, s->path, (uint8_t)s->phase, (uint8_t)x->dtype, (uint8_t)dtype_accumulate(x->dtype)},
        .cost = {.n_parts = 1, .part[0].phase = COST_HERE}};
    if (device_prices_host(x->storage->device)) entry.cost.part[0].bytes_read = tl_bytes(x);
    else entry.cost.transfer_bytes = tl_bytes(x);
    return ledger_bill(&entry);
}

/* ---- Host data ---- */

tl_tensor *tl_from_data(const void *data, int rank, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    device = device_or_default(device);
    if (!device) return NULL;
    if (device_is_host(device)) {
        int64_t numel;
        bool is_shape = rank == 0 || (rank > 0 && rank <= TL_MAX_RANK && shape); /* otherwise tl_empty says it */
        if (is_shape && shape_numel(rank, shape, &numel) && numel && !error_given(data, "from_data", "data"))
            return NULL;
        tl_tensor *x = tl_empty(rank, shape, dtype, device);
        if (x && x->storage->bytes) memcpy(tensor_data(x), data, (size_t)x->storage->bytes);
        return x;
    }
    static char unread; /* meta has no data, and takes none */
    if (!data && !device_has_data(device)) data = &unread;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    void *host = (void *)(uintptr_t)data; /* read only: it is the source of a transfer */
    tl_tensor *x = tl_from_external(host, SIZE_MAX / 4, rank, shape, NULL, dtype, NULL, NULL, NULL);
    return tl_scope_return(scope, x ? tl_to(x, device) : NULL);
}

bool tl_to_data(tl_tensor *x, void *data, size_t bytes) {
    if (!tensor_check(x, "to_data")) return false;
    if (bytes != tl_bytes(x))
        return error_set(TL_ERROR_USE, "to_data: the tensor has %" PRIu64 " bytes, the buffer %zu", tl_bytes(x), bytes);
    tl_device *device = x->storage->device;
    if (!device_check(device, "to_data") || (bytes && !error_given(data, "to_data", "a buffer"))) return false;
    if (!device_has_data(device)) return error_set(TL_ERROR_USE, "to_data: meta has no data");
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *dense = scope.depth ? tl_contiguous(x) : NULL;
    char error[200] = "";
    bool ok =
        dense && (bytes == 0 || device->functions->copy(device, data, tensor_data(dense), bytes, COPY_TO_HOST, error));
    if (dense && !ok) error_set(TL_ERROR_DEVICE, "to_data: %s", error);
    if (scope.depth) tl_scope_end(scope);
    tl_set_grad_mode(mode);
    return ok;
}
