#include "nn/dispatch.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "ops/collective.h"
#include "ops/ops.h"
#include "tensor/tensor.h"

/* ---- How many rows ---- */

/* What prices take for granted: rows are cut into n equal parts, and of each rank this one receives its part of them,
 * times the load. */
static void counts_declare(struct dispatch *d, double load) {
    const int n = d->ep->size;
    for (int rank = 0; rank < n; rank++) {
        int64_t from, to;
        shard_range(d->n_sent, n, rank, &from, &to);
        d->counts[rank] = to - from;
    }
    for (int rank = 0; rank < n; rank++) d->counts[n + rank] = (int64_t)ceil(load * (double)d->counts[d->ep->rank]);
}

/* Sums of n parts of a vector on the device. */
static bool parts_read(tl_tensor *x, int n, int64_t *sums) {
    const size_t numel = (size_t)tl_numel(x), each = numel / (size_t)n, bytes = numel * sizeof(int64_t);
    int64_t *all = memory_new(bytes);
    bool ok = all ? tl_to_data(x, all, bytes) : error_memory(bytes, "numbers of rows");
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (size_t i = 0; ok && i < numel; i++) sums[i / each] += all[i];
    memory_free(all);
    return ok;
}

static void load_add(struct dispatch_load *load, const struct dispatch *d) {
    load->n_rows += d->n_received;
    load->n_even += d->n_sent;
    if (d->n_sent) load->most = fmax(load->most, (double)d->n_received / (double)d->n_sent);
}

bool dispatch_begin(struct dispatch *d, const struct parallel *p, tl_tensor *counts, int64_t n_rows,
                    struct dispatch_load *load) {
    const int n = p->ep->size;
    *d = (struct dispatch){.ep = p->ep, .n_sent = n_rows, .n_experts = tl_numel(counts) / n};
    d->counts = memory_new(2 * (size_t)n * sizeof *d->counts);
    if (!d->counts) return error_memory(2 * (size_t)n * sizeof *d->counts, "numbers of rows");
    d->arrived = tl_all_to_all(counts, p->ep);
    bool ok = d->arrived && transfer_bill(counts) && transfer_bill(d->arrived);
    const bool is_price = !device_has_data(tl_device_of(counts));
    if (ok && is_price) counts_declare(d, p->ep_load);
    else ok = ok && parts_read(counts, n, d->counts) && parts_read(d->arrived, n, d->counts + n);
    for (int rank = 0; ok && rank < n; rank++) d->n_received += d->counts[n + rank];
    if (ok && !is_price) load_add(load, d);
    if (!ok) dispatch_end(d);
    return ok;
}

void dispatch_end(struct dispatch *d) {
    memory_free(d->counts);
    d->counts = NULL;
}

/* ---- Rows ---- */

/* For a gradient: the way back. */
struct trip {
    tl_comm *ep;
    bool is_back;
    int64_t counts[]; /* as a dispatch has them */
};

static tl_tensor *trip_make(tl_comm *ep, const int64_t *counts, bool is_back, tl_tensor *rows) {
    const int64_t *send = counts, *receive = counts + ep->size;
    return is_back ? all_to_all_rows(rows, receive, send, ep) : all_to_all_rows(rows, send, receive, ep);
}

/* dx: the rows of dy where those of x came from */
static void trip_return(tl_gradient *g, void *context) {
    const struct trip *t = context;
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    dy = dy ? trip_make(t->ep, t->counts, !t->is_back, dy) : NULL;
    if (dy) tl_gradient_set(g, 0, dy);
}

static tl_tensor *travel(const struct dispatch *d, tl_tensor *rows, bool is_back) {
    const size_t bytes = 2 * (size_t)d->ep->size * sizeof *d->counts;
    tl_tensor *y = rows ? trip_make(d->ep, d->counts, is_back, rows) : NULL;
    struct trip *t = y ? memory_new(sizeof *t + bytes) : NULL;
    if (!y) return NULL;
    if (!t) return error_memory(sizeof *t + bytes, "a way back of rows"), NULL;
    t->ep = d->ep;
    t->is_back = is_back;
    memcpy(t->counts, d->counts, bytes);
    return tl_function(trip_return, t, memory_free, &rows, 1, &y, 1) ? y : NULL;
}

tl_tensor *dispatch_send(const struct dispatch *d, tl_tensor *rows) { return travel(d, rows, false); }
tl_tensor *dispatch_return(const struct dispatch *d, tl_tensor *rows) { return travel(d, rows, true); }

/* Rows arrive in blocks, one for each rank and expert: row r is in the first block that ends behind it. */
tl_tensor *dispatch_experts(const struct dispatch *d) {
    tl_tensor *ends = tl_cumsum(d->arrived, 0);
    tl_tensor *rows = ends ? tl_arange(0, 1, d->n_received, TL_I64, tl_device_of(ends)) : NULL;
    tl_tensor *blocks = rows ? tl_searchsorted(ends, rows, true) : NULL;
    return blocks ? tl_remainder_scalar(blocks, tl_scalar_int(d->n_experts)) : NULL;
}
